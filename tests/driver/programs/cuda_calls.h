/* The driver's functions that the sample programs call, as any program of the driver API declares
 * them. A program that defines LOOK_UP finds them through dlsym instead of linking. */
#ifndef CUDA_CALLS_H
#define CUDA_CALLS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long device_address;
typedef void *handle; /* contexts, streams, graphs */

#define CUDA_CALLS(X)                                                                              \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDevicePrimaryCtxRetain, (handle * context, int device))                                    \
    X(cuCtxSetCurrent, (handle context))                                                           \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total))                                      \
    X(cuMemAlloc_v2, (device_address * address, size_t size))                                      \
    X(cuMemFree_v2, (device_address address))                                                      \
    X(cuMemcpyHtoD_v2, (device_address to, const void *from, size_t size))                         \
    X(cuMemcpyDtoH_v2, (void *to, device_address from, size_t size))                               \
    X(cuMemsetD8Async, (device_address to, unsigned char value, size_t size, handle stream))       \
    X(cuMemAllocAsync, (device_address * address, size_t size, handle stream))                     \
    X(cuMemFreeAsync, (device_address address, handle stream))                                     \
    X(cuStreamCreate, (handle * stream, unsigned flags))                                           \
    X(cuStreamSynchronize, (handle stream))                                                        \
    X(cuStreamDestroy_v2, (handle stream))                                                         \
    X(cuStreamBeginCapture_v2, (handle stream, unsigned mode))                                     \
    X(cuStreamEndCapture, (handle stream, handle * graph))                                         \
    X(cuThreadExchangeStreamCaptureMode, (unsigned *mode))                                         \
    X(cuGraphInstantiateWithFlags, (handle * exec, handle graph, unsigned long long flags))        \
    X(cuGraphLaunch, (handle exec, handle stream))                                                 \
    X(cuGraphExecDestroy, (handle exec))                                                           \
    X(cuGraphDestroy, (handle graph))

#ifdef LOOK_UP
#include <dlfcn.h>
#define X(name, args) static unsigned(*name) args;
CUDA_CALLS(X)
#undef X
static void find_calls(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
#define X(name, args) *(void **)&name = dlsym(library, #name);
    CUDA_CALLS(X)
#undef X
}
#else
#define X(name, args) unsigned name args;
CUDA_CALLS(X)
#undef X
static void find_calls(void) {
}
#endif

/* Ends the program if a call failed that has no reason to. */
#define DO(call)                                                                                   \
    do {                                                                                           \
        unsigned result_ = (call);                                                                 \
        if (result_) {                                                                             \
            fprintf(stderr, "%s:%d: %s gave %u\n", __FILE__, __LINE__, #call, result_);            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* The first device, its primary context current. */
static inline void start(void) {
    handle context;
    find_calls();
    DO(cuInit(0));
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
}

/* The n-th argument as a number. */
static inline long argument(int argc, char **argv, int n, long fallback) {
    return argc > n ? strtol(argv[n], NULL, 10) : fallback;
}

#endif
