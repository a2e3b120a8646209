/* See trace/symbols.h. What a trace says of a module is a claim: only a regular file at an absolute
 * path is opened, and it is used only if its own build id is the one claimed. libdw is loaded when
 * it is first needed, and stays. */
#include "trace/symbols.h"

#include <stddef.h>

#ifdef CENI_HAVE_LIBDW

#include "base/mem.h"

#include <dlfcn.h>
#include <elfutils/libdwfl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FUNCTIONS(X)                                                                               \
    X(dwfl_begin)                                                                                  \
    X(dwfl_end)                                                                                    \
    X(dwfl_report_offline)                                                                         \
    X(dwfl_report_end)                                                                             \
    X(dwfl_module_getelf)                                                                          \
    X(dwfl_module_build_id)                                                                        \
    X(dwfl_module_addrname)                                                                        \
    X(dwfl_module_getsrc)                                                                          \
    X(dwfl_lineinfo)                                                                               \
    X(dwfl_build_id_find_elf)                                                                      \
    X(dwfl_standard_find_debuginfo)                                                                \
    X(dwfl_offline_section_address)

/* libdw's functions by their own names and types. */
static struct {
    bool found;
#define POINTER(name) __typeof__(&(name)) name;
    FUNCTIONS(POINTER)
#undef POINTER
} dw;

static void load(void) {
    void *library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    bool found = library;
#define LOAD(name)                                                                                 \
    if (found) {                                                                                   \
        void *symbol = dlsym(library, #name);                                                      \
        memcpy(&dw.name, &symbol, sizeof symbol);                                                  \
        found = symbol;                                                                            \
    }
    FUNCTIONS(LOAD)
#undef LOAD
    dw.found = found;
}

struct ceni_symbols {
    Dwfl_Callbacks callbacks;
    Dwfl *dwfl;
    Dwfl_Module *module;
    GElf_Addr bias;
};

static bool has_build_id(Dwfl_Module *module, const char *claimed) {
    const unsigned char *id;
    GElf_Addr address;
    int size = dw.dwfl_module_build_id(module, &id, &address);
    if (size <= 0 || strlen(claimed) != 2 * (size_t)size) {
        return false;
    }
    for (int i = 0; i < size; i++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", id[i]);
        if (memcmp(digits, claimed + 2 * i, 2) != 0) {
            return false;
        }
    }
    return true;
}

ceni_symbols *ceni_symbols_open(const char *path, const char *build_id) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    struct stat stat_;
    if (!dw.found || path[0] != '/' || !*build_id || stat(path, &stat_) ||
        !S_ISREG(stat_.st_mode)) {
        return NULL;
    }
    ceni_symbols *s = ceni_calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    s->callbacks = (Dwfl_Callbacks){.find_elf = dw.dwfl_build_id_find_elf,
                                    .find_debuginfo = dw.dwfl_standard_find_debuginfo,
                                    .section_address = dw.dwfl_offline_section_address};
    s->dwfl = dw.dwfl_begin(&s->callbacks);
    s->module = s->dwfl ? dw.dwfl_report_offline(s->dwfl, path, path, -1) : NULL;
    if (s->dwfl) {
        dw.dwfl_report_end(s->dwfl, NULL, NULL);
    }
    if (!s->module || !dw.dwfl_module_getelf(s->module, &s->bias) ||
        !has_build_id(s->module, build_id)) {
        ceni_symbols_close(s);
        return NULL;
    }
    return s;
}

void ceni_symbols_close(ceni_symbols *s) {
    if (s && s->dwfl) {
        dw.dwfl_end(s->dwfl);
    }
    ceni_free(s);
}

bool ceni_symbols_find(ceni_symbols *s, uint64_t offset, ceni_place *place) {
    *place = (ceni_place){.function = dw.dwfl_module_addrname(s->module, offset + s->bias)};
    Dwfl_Line *line = dw.dwfl_module_getsrc(s->module, offset + s->bias);
    int number = 0;
    place->file = line ? dw.dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
    place->line = place->file && number > 0 ? (uint32_t)number : 0;
    return place->function || place->file;
}

#else

ceni_symbols *ceni_symbols_open(const char *path, const char *build_id) {
    return NULL;
}

void ceni_symbols_close(ceni_symbols *symbols) {
}

bool ceni_symbols_find(ceni_symbols *symbols, uint64_t offset, ceni_place *place) {
    return false;
}

#endif
