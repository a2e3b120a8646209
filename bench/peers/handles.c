#include "bench/peers/handles.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long device_ptr;

/* Name in the table, its arguments, symbol. */
#define FUNCTIONS(X)                                                                               \
    X(init, (unsigned), "cuInit")                                                                  \
    X(device_get, (int *, int), "cuDeviceGet")                                                     \
    X(retain, (void **, int), "cuDevicePrimaryCtxRetain")                                          \
    X(let_go, (int), "cuDevicePrimaryCtxRelease_v2")                                               \
    X(set_current, (void *), "cuCtxSetCurrent")                                                    \
    X(alloc, (device_ptr *, size_t), "cuMemAlloc_v2")                                              \
    X(release, (device_ptr), "cuMemFree_v2")                                                       \
    X(write, (device_ptr, const void *, size_t), "cuMemcpyHtoD_v2")                                \
    X(read, (void *, device_ptr, size_t), "cuMemcpyDtoH_v2")                                       \
    X(export, (peer_handle *, device_ptr), "cuIpcGetMemHandle")                                    \
    X(import, (device_ptr *, peer_handle, unsigned), "cuIpcOpenMemHandle_v2")

enum { LAZY_PEER_ACCESS = 1 };

struct peer_handles {
#define MEMBER(name, args, symbol) int(*name) args;
    FUNCTIONS(MEMBER)
#undef MEMBER
    bool on_gpu;
    int device;
    struct block {
        device_ptr addr;
        peer_handle handle;
    } * made;
    size_t count, room;
};

static bool find(void *library, const char *symbol, void *function) {
    void *address = dlsym(library, symbol);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static const char *open_driver(peer_handles *p, int ordinal) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!library) {
        return "there is no CUDA driver";
    }
    const char *missing = NULL;
#define FIND(name, args, symbol) missing = find(library, symbol, &p->name) ? missing : symbol;
    FUNCTIONS(FIND)
#undef FIND
    if (missing) {
        return "the driver is too old";
    }
    if (p->init(0) || p->device_get(&p->device, ordinal)) {
        return "no such CUDA device";
    }
    if (p->retain(&context, p->device)) {
        return "the primary context cannot be used";
    }
    return p->set_current(context) ? "the primary context cannot be used" : NULL;
}

const char *peer_handles_open(const char *device, peer_handles **peer) {
    peer_handles *p = calloc(1, sizeof *p);
    if (!p) {
        return "no memory";
    }
    const char *number = strchr(device, ':');
    p->on_gpu = !strncmp(device, "cuda", 4);
    long index = number ? strtol(number + 1, NULL, 10) : 0;
    const char *why = p->on_gpu ? open_driver(p, (int)index) : NULL;
    if (why) {
        free(p);
        return why;
    }
    *peer = p;
    return NULL;
}

const char *peer_handles_name(const peer_handles *peer) {
    return peer->on_gpu ? "cuIpcOpenMemHandle" : "shm_open and mmap";
}

static void *map_file(const char *name, int flags, uint64_t bytes) {
    int fd = shm_open(name, flags, 0600);
    if (fd < 0) {
        return MAP_FAILED;
    }
    void *at = MAP_FAILED;
    if (!(flags & O_CREAT) || !ftruncate(fd, (off_t)bytes)) {
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    return at;
}

static bool make_file(uint64_t bytes, uint64_t word, size_t number, peer_handle *handle) {
    snprintf(handle->bytes, sizeof handle->bytes, "/cenote-bench-%d-%zu", (int)getpid(), number);
    uint64_t *at = map_file(handle->bytes, O_RDWR | O_CREAT | O_EXCL, bytes);
    if (at == MAP_FAILED) {
        return false;
    }
    *at = word;
    munmap(at, bytes);
    return true;
}

bool peer_handles_make(peer_handles *peer, uint64_t bytes, uint64_t word, peer_handle *handle) {
    if (peer->count == peer->room) {
        size_t room = peer->room ? 2 * peer->room : 64;
        struct block *more = realloc(peer->made, room * sizeof *more);
        if (!more) {
            return false;
        }
        peer->made = more;
        peer->room = room;
    }
    struct block *b = &peer->made[peer->count];
    *b = (struct block){0};
    bool ok = peer->on_gpu
                  ? !peer->alloc(&b->addr, bytes) && !peer->write(b->addr, &word, sizeof word) &&
                        !peer->export(&b->handle, b->addr)
                  : make_file(bytes, word, peer->count, &b->handle);
    peer->count += ok;
    *handle = b->handle;
    return ok;
}

bool peer_handles_map(peer_handles *peer, const peer_handle *handle, uint64_t bytes,
                      uint64_t *addr) {
    if (peer->on_gpu) {
        device_ptr at = 0;
        bool ok = !peer->import(&at, *handle, LAZY_PEER_ACCESS);
        *addr = at;
        return ok;
    }
    void *at = map_file(handle->bytes, O_RDWR, bytes);
    *addr = (uint64_t)(uintptr_t)at;
    return at != MAP_FAILED;
}

bool peer_handles_word(peer_handles *peer, uint64_t addr, uint64_t *word) {
    if (peer->on_gpu) {
        return !peer->read(word, addr, sizeof *word);
    }
    *word = *(const uint64_t *)(uintptr_t)addr;
    return true;
}

void peer_handles_close(peer_handles *peer) {
    for (size_t i = 0; i < peer->count; i++) {
        if (peer->on_gpu) {
            peer->release(peer->made[i].addr);
        } else {
            shm_unlink(peer->made[i].handle.bytes);
        }
    }
    if (peer->on_gpu) {
        peer->let_go(peer->device);
    }
    free(peer->made);
    free(peer);
}
