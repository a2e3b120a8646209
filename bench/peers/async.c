#include "bench/peers/async.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef int (*fn_u)(unsigned);
typedef int (*fn_device_get)(int *, int);
typedef int (*fn_retain)(void **, int);
typedef int (*fn_i)(int);
typedef int (*fn_p)(void *);
typedef int (*fn_stream_create)(void **, unsigned);
typedef int (*fn_get_pool)(void **, int);
typedef int (*fn_set_attribute)(void *, int, void *);
typedef int (*fn_trim)(void *, size_t);
typedef int (*fn_alloc)(unsigned long long *, size_t, void *);
typedef int (*fn_free)(unsigned long long, void *);

/* Name in the table, type, symbol. */
#define FUNCTIONS(X)                                                                               \
    X(init, fn_u, "cuInit")                                                                        \
    X(device_get, fn_device_get, "cuDeviceGet")                                                    \
    X(retain, fn_retain, "cuDevicePrimaryCtxRetain")                                               \
    X(let_go, fn_i, "cuDevicePrimaryCtxRelease_v2")                                                \
    X(set_current, fn_p, "cuCtxSetCurrent")                                                        \
    X(stream_create, fn_stream_create, "cuStreamCreate")                                           \
    X(stream_destroy, fn_p, "cuStreamDestroy_v2")                                                  \
    X(stream_sync, fn_p, "cuStreamSynchronize")                                                    \
    X(get_pool, fn_get_pool, "cuDeviceGetDefaultMemPool")                                          \
    X(set_attribute, fn_set_attribute, "cuMemPoolSetAttribute")                                    \
    X(trim, fn_trim, "cuMemPoolTrimTo")                                                            \
    X(alloc, fn_alloc, "cuMemAllocAsync")                                                          \
    X(release, fn_free, "cuMemFreeAsync")

enum { NON_BLOCKING = 1, RELEASE_THRESHOLD = 4 };

typedef struct peer {
#define MEMBER(name, type, symbol) type name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    int device;
    void *context, *stream, *pool;
    bool owns_stream, copy; /* a copy uses the context of the first, which outlives it */
} peer;

static bool find(void *library, const char *symbol, void *function) {
    void *address = dlsym(library, symbol);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static uint64_t peer_alloc(void *state, size_t size) {
    const peer *p = state;
    unsigned long long addr = 0;
    return p->alloc(&addr, size, p->stream) == 0 ? addr : 0;
}

static void peer_release(void *state, uint64_t addr, size_t size) {
    (void)size;
    const peer *p = state;
    p->release(addr, p->stream);
}

static void peer_attach(void *state) {
    const peer *p = state;
    p->set_current(p->context);
}

static const char *start(peer *p, int ordinal) {
    uint64_t keep_all = UINT64_MAX;
    if (p->init(0) || p->device_get(&p->device, ordinal)) {
        return "no such CUDA device";
    }
    if (p->retain(&p->context, p->device) || p->set_current(p->context)) {
        return "the primary context cannot be used";
    }
    if (p->get_pool(&p->pool, p->device) ||
        p->set_attribute(p->pool, RELEASE_THRESHOLD, &keep_all) ||
        p->stream_create(&p->stream, NON_BLOCKING)) {
        return "the device has no stream-ordered pool";
    }
    p->owns_stream = true;
    return NULL;
}

const char *peer_async_open(int ordinal, bench_allocator *allocator) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        return "there is no CUDA driver";
    }
    peer *p = calloc(1, sizeof *p);
    if (!p) {
        return "no memory";
    }
    const char *missing = NULL;
#define FIND(name, type, symbol) missing = find(library, symbol, &p->name) ? missing : symbol;
    FUNCTIONS(FIND)
#undef FIND
    const char *why = missing ? "the driver is too old" : start(p, ordinal);
    if (why) {
        free(p);
        return why;
    }
    *allocator = (bench_allocator){"cuMemAllocAsync", p, peer_alloc, peer_release, peer_attach};
    return NULL;
}

bool peer_async_copy(const bench_allocator *from, bool own_stream, bench_allocator *allocator) {
    const peer *original = from->state;
    peer *p = malloc(sizeof *p);
    if (!p) {
        return false;
    }
    *p = *original;
    p->copy = true;
    p->owns_stream = own_stream;
    if (own_stream && p->stream_create(&p->stream, NON_BLOCKING)) {
        free(p);
        return false;
    }
    *allocator = *from;
    allocator->state = p;
    return true;
}

void peer_async_close(bench_allocator *allocator) {
    peer *p = allocator->state;
    p->stream_sync(p->stream);
    if (p->owns_stream) {
        p->stream_destroy(p->stream);
    }
    if (!p->copy) {
        p->trim(p->pool, 0);
        p->set_current(NULL);
        p->let_go(p->device);
    }
    free(p);
}
