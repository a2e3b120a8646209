/* Finding the driver's own functions, and putting hooks in their place wherever a program asks:
 * dlsym and cuGetProcAddress.
 *
 * Only names of the table are answered. What the driver gives is swapped by its address, not by the
 * name that was asked for: which of several signatures a name means depends on the version and the
 * flags, which the driver judges. So each signature of the table is looked up both as a symbol and
 * through cuGetProcAddress, and both addresses are known. */
#include "preload/preload.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define OLDEST_GLIBC "GLIBC_2.2.5"
#else
#define OLDEST_GLIBC "GLIBC_2.17"
#endif

typedef void (*any_function)(void);

typedef struct hook {
    const char *symbol, *plain;
    int version;
    unsigned streams;
    any_function mine;
    void *theirs[2]; /* as a symbol; as cuGetProcAddress gives it */
} hook;

void *(*pl_dlsym)(void *handle, const char *name);

static hook hooks[] = {
#define HOOK(symbol, plain, version, streams, parameters, arguments)                               \
    {#symbol, #plain, version, streams, (any_function)(symbol), {NULL, NULL}},
#include "preload/hooks.def"
};
enum { HOOKS = sizeof hooks / sizeof *hooks };

static pl_driver driver;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool found;

/* What this driver lacks says so. Without a driver at all there is no device. */
static atomic_bool no_driver;

static pl_result lacking(void) {
    return atomic_load(&no_driver) ? PL_NO_DEVICE : PL_NOT_SUPPORTED;
}

#define HOOK(symbol, plain, version, streams, parameters, arguments)                               \
    static pl_result missing_##symbol parameters {                                                 \
        return lacking();                                                                          \
    }
#define USED(symbol, parameters)                                                                   \
    static pl_result missing_##symbol parameters {                                                 \
        return lacking();                                                                          \
    }
#include "preload/hooks.def"

/* A function pointer from what dlsym gave: C has no cast for it, POSIX guarantees the bytes. */
static void set(void *pointer, void *address) {
    if (address) {
        memcpy(pointer, &address, sizeof address);
    }
}

static void *as_object(any_function f) {
    void *address;
    memcpy(&address, &f, sizeof address);
    return address;
}

static void find_dlsym(void) {
    void *address = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    address = address ? address : dlvsym(RTLD_NEXT, "dlsym", OLDEST_GLIBC);
    set(&pl_dlsym, address);
}

/* Before any other library's constructor can ask, if the loader runs ours first; else at the first
 * question. */
__attribute__((constructor(101))) static void begin(void) {
    if (!pl_dlsym) {
        find_dlsym();
    }
}

static void *ask_driver(const hook *h) {
    void *address = NULL;
    pl_enum status = 0;
    pl_flags flags = h->streams ? h->streams : PL_LEGACY;
    pl_result result = driver.cuGetProcAddress_v2(h->plain, &address, h->version, flags, &status);
    if (result == PL_NOT_SUPPORTED) { /* a driver from before CUDA 12 */
        result = driver.cuGetProcAddress(h->plain, &address, h->version, flags);
    }
    return result == PL_SUCCESS ? address : NULL;
}

/* A driver that is older than a signature gives the one before it, which is not the same. */
static bool is_earlier(const hook *h, const void *address) {
    for (const hook *e = hooks; e < h; e++) {
        bool same_name = !strcmp(e->plain, h->plain) && e->streams == h->streams;
        if (same_name && (e->theirs[0] == address || e->theirs[1] == address)) {
            return true;
        }
    }
    return false;
}

static void find_proc_addresses(void) {
    for (hook *h = hooks; h < hooks + HOOKS; h++) {
        void *address = ask_driver(h);
        h->theirs[1] =
            address && (address == h->theirs[0] || !is_earlier(h, address)) ? address : NULL;
    }
}

static void find_all(void *library) {
    size_t i = 0;
#define HOOK(symbol, plain, version, streams, parameters, arguments)                               \
    hooks[i].theirs[0] = library ? pl_dlsym(library, #symbol) : NULL;                              \
    driver.symbol = missing_##symbol;                                                              \
    set(&driver.symbol, hooks[i++].theirs[0]);
#define USED(symbol, parameters)                                                                   \
    driver.symbol = missing_##symbol;                                                              \
    set(&driver.symbol, library ? pl_dlsym(library, #symbol) : NULL);
#include "preload/hooks.def"
    if (library) {
        find_proc_addresses();
    }
    i = 0;
#define HOOK(symbol, plain, version, streams, parameters, arguments)                               \
    if (!hooks[i].theirs[0]) {                                                                     \
        set(&driver.symbol, hooks[i].theirs[1]);                                                   \
    }                                                                                              \
    i++;
#include "preload/hooks.def"
}

/* Loads the driver if the program has not: it is about to call it. */
const pl_driver *pl_real(void) {
    if (atomic_load_explicit(&found, memory_order_acquire)) {
        return &driver;
    }
    begin();
    int before = pl_inside;
    pl_inside = PL_OWN;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    pthread_mutex_lock(&lock);
    if (!atomic_load(&found)) {
        atomic_store(&no_driver, !library);
        find_all(library);
        (void)dlerror(); /* of names that this driver lacks: the program must not find it */
        atomic_store_explicit(&found, true, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    pl_inside = before;
    return &driver;
}

void pl_fork_resolve(void) {
    pthread_mutex_init(&lock, NULL);
}

void *pl_swap(void *address, unsigned streams) {
    void *mine = address;
    for (size_t i = 0; address && i < HOOKS; i++) {
        const hook *h = &hooks[i];
        if (h->theirs[0] != address && h->theirs[1] != address) {
            continue;
        }
        bool exact = !h->streams || !streams || h->streams == streams;
        if (mine == address || exact) {
            mine = as_object(h->mine);
        }
        if (exact) {
            break;
        }
    }
    return mine;
}

static bool in_table(const char *name) {
    for (size_t i = 0; i < HOOKS; i++) {
        if (!strcmp(hooks[i].symbol, name)) {
            return true;
        }
    }
    return false;
}

/* A library of the program's own may have a function of such a name: only the driver's is swapped.
 * A library that is asked by a handle gives the same to every caller. */
void *pl_answer(void *handle, const char *name) {
    begin();
    if (pl_inside == PL_OWN || handle == RTLD_NEXT || handle == RTLD_DEFAULT || !name ||
        name[0] != 'c' || name[1] != 'u' || !in_table(name)) {
        return NULL;
    }
    void *address = pl_dlsym(handle, name);
    if (!address) {
        return NULL;
    }
    for (size_t i = 0; i < HOOKS; i++) {
        if (as_object(hooks[i].mine) == address) {
            return address;
        }
    }
    (void)pl_real();
    for (size_t i = 0; i < HOOKS; i++) {
        if (!strcmp(hooks[i].symbol, name) && hooks[i].theirs[0] == address) {
            return as_object(hooks[i].mine);
        }
    }
    return NULL;
}

/* Which default stream the flags choose; where none does it is the legacy one. */
static unsigned streams_of(pl_flags flags) {
    return flags & PL_PER_THREAD ? PL_PER_THREAD : PL_LEGACY;
}

static void swap_found(pl_result result, void **address, pl_flags flags) {
    if (result == PL_SUCCESS && address && *address && pl_inside != PL_OWN) {
        *address = pl_swap(*address, streams_of(flags));
    }
}

pl_result cuGetProcAddress(const char *name, void **address, int version, pl_flags flags) {
    pl_result result = pl_real()->cuGetProcAddress(name, address, version, flags);
    swap_found(result, address, flags);
    return result;
}

pl_result cuGetProcAddress_v2(const char *name, void **address, int version, pl_flags flags,
                              pl_enum *status) {
    pl_result result = pl_real()->cuGetProcAddress_v2(name, address, version, flags, status);
    swap_found(result, address, flags);
    return result;
}
