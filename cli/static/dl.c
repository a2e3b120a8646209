/* dlopen and its kin for the static binary, in place of the C library's: nothing can be loaded.
 *
 * A static binary that loads a driver needs the very C library that it was linked with, and crashes
 * beside another. With these, looking for the CUDA driver fails as on a machine that has none. */
#include <dlfcn.h>

void *dlopen(const char *file, int mode) {
    (void)file, (void)mode;
    return 0;
}

void *dlsym(void *restrict handle, const char *restrict name) {
    (void)handle, (void)name;
    return 0;
}

int dlclose(void *handle) {
    (void)handle;
    return -1;
}

char *dlerror(void) {
    static char text[] = "the static build of cenote loads no libraries";
    return text;
}
