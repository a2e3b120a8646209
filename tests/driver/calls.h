/* The driver's functions for a test, however it gets them: linked (CALLS_LINKED), through dlsym or
 * through cuGetProcAddress, as the program's first argument says ("dlsym", "proc"). */
#ifndef TESTS_DRIVER_CALLS_H
#define TESTS_DRIVER_CALLS_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/driver/entries.h"

/* FN(name, suffix, version): what cuGetProcAddress is asked for, and the symbol. */
#define CALLS(FN)                                                                                  \
    FN(cuInit, , 2000)                                                                             \
    FN(cuDriverGetVersion, , 2020)                                                                 \
    FN(cuDeviceGet, , 2000)                                                                        \
    FN(cuDeviceGetCount, , 2000)                                                                   \
    FN(cuDeviceGetUuid, _v2, 11040)                                                                \
    FN(cuDevicePrimaryCtxRetain, , 7000)                                                           \
    FN(cuDevicePrimaryCtxRelease, _v2, 11000)                                                      \
    FN(cuDevicePrimaryCtxGetState, , 7000)                                                         \
    FN(cuCtxCreate, _v2, 3020)                                                                     \
    FN(cuCtxDestroy, _v2, 4000)                                                                    \
    FN(cuCtxSetCurrent, , 4000)                                                                    \
    FN(cuCtxGetCurrent, , 4000)                                                                    \
    FN(cuCtxSynchronize, , 2000)                                                                   \
    FN(cuMemGetInfo, _v2, 3020)                                                                    \
    FN(cuMemAlloc, _v2, 3020)                                                                      \
    FN(cuMemFree, _v2, 3020)                                                                       \
    FN(cuMemAllocPitch, _v2, 3020)                                                                 \
    FN(cuMemAllocManaged, , 6000)                                                                  \
    FN(cuMemAllocHost, _v2, 3020)                                                                  \
    FN(cuMemFreeHost, , 2000)                                                                      \
    FN(cuMemHostGetDevicePointer, _v2, 3020)                                                       \
    FN(cuMemGetAddressRange, _v2, 3020)                                                            \
    FN(cuPointerGetAttribute, , 4000)                                                              \
    FN(cuArrayCreate, _v2, 3020)                                                                   \
    FN(cuArrayDestroy, , 2000)                                                                     \
    FN(cuMemAllocAsync, , 11020)                                                                   \
    FN(cuMemFreeAsync, , 11020)                                                                    \
    FN(cuMemAllocFromPoolAsync, , 11020)                                                           \
    FN(cuMemPoolCreate, , 11020)                                                                   \
    FN(cuMemPoolDestroy, , 11020)                                                                  \
    FN(cuMemPoolTrimTo, , 11020)                                                                   \
    FN(cuMemPoolGetAttribute, , 11020)                                                             \
    FN(cuMemPoolSetAttribute, , 11020)                                                             \
    FN(cuDeviceGetDefaultMemPool, , 11020)                                                         \
    FN(cuMemcpyHtoD, _v2, 3020)                                                                    \
    FN(cuMemcpyDtoH, _v2, 3020)                                                                    \
    FN(cuMemcpyDtoDAsync, _v2, 3020)                                                               \
    FN(cuMemsetD8, _v2, 3020)                                                                      \
    FN(cuMemsetD8Async, , 3020)                                                                    \
    FN(cuStreamCreate, , 2000)                                                                     \
    FN(cuStreamDestroy, _v2, 4000)                                                                 \
    FN(cuStreamSynchronize, , 2000)                                                                \
    FN(cuStreamBeginCapture, _v2, 10010)                                                           \
    FN(cuStreamEndCapture, , 10000)                                                                \
    FN(cuStreamGetCaptureInfo, _v2, 11030)                                                         \
    FN(cuThreadExchangeStreamCaptureMode, , 10010)                                                 \
    FN(cuGraphInstantiateWithFlags, , 11040)                                                       \
    FN(cuGraphLaunch, , 10000)                                                                     \
    FN(cuGraphExecDestroy, , 10000)                                                                \
    FN(cuGraphDestroy, , 10000)                                                                    \
    FN(cuLaunchHostFunc, , 10000)                                                                  \
    FN(cuModuleLoadData, , 2000)                                                                   \
    FN(cuModuleUnload, , 2000)                                                                     \
    FN(cuModuleGetFunction, , 2000)                                                                \
    FN(cuLaunchKernel, , 4000)                                                                     \
    FN(cuGetProcAddress, _v2, 12000)                                                               \
    FN(cuGetExportTable, , 3000)

static struct {
#define FN(name, suffix, version) __typeof__(&name##suffix) name;
    CALLS(FN)
#undef FN
} cu;

#define OK(call)           assert_int_equal((call), CU_SUCCESS)
#define GIVES(error, call) assert_int_equal((call), (error))

#ifdef CALLS_LINKED
static inline int calls_find(const char *how) {
    (void)how;
#define FN(name, suffix, version) cu.name = name##suffix;
    CALLS(FN)
#undef FN
    return 0;
}
#else
static inline void calls_set(void *function, void *address) {
    memcpy(function, &address, sizeof address);
}

static inline int calls_find(const char *how) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    __typeof__(&cuGetProcAddress_v2) proc = NULL;
    calls_set(&proc, dlsym(library, "cuGetProcAddress_v2"));
    int missing = 0;
#define FN(name, suffix, version)                                                                  \
    {                                                                                              \
        void *at = NULL;                                                                           \
        if (strcmp(how, "proc") != 0) {                                                            \
            at = dlsym(library, #name #suffix);                                                    \
        } else if (proc) {                                                                         \
            proc(#name, &at, version, CU_PROC_ADDRESS_LEGACY_STREAM, NULL);                        \
        }                                                                                          \
        missing += !at;                                                                            \
        calls_set(&cu.name, at);                                                                   \
    }
    CALLS(FN)
#undef FN
    return missing ? -1 : 0;
}
#endif

#endif
