/* A stand-in for libcuda.so.1, so that loading the driver, mapping its errors and keeping its
 * handles are tested without a GPU. It models no device: memory is the host's, streams run at once,
 * kernels do nothing. How devices behave is the conformance suite's matter, on real ones.
 *
 * FAKE_CUDA_FAIL="symbol=code,..." makes functions fail, read at each call; FAKE_CUDA_DEVICES sets
 * the number of devices (1). cuMemGetInfo can be had from cuGetProcAddress only, all others from
 * their symbols only; some of newer drivers are left out: cuDeviceGetUuid_v2, the graph functions.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dev/cuda/driver.h"

#define SYM(name, suffix, version, args)                                                           \
    __attribute__((visibility("default"))) cu_result name##suffix args;
#define SYM_AS(member, name, suffix, version, args)
#include "dev/cuda/syms.def"

enum { GRANULARITY = 2 << 20, MAX_DEVICES = 8 };

static cu_result injected(const char *symbol) {
    const char *list = getenv("FAKE_CUDA_FAIL");
    size_t length = strlen(symbol);
    while (list && *list) {
        if (!strncmp(list, symbol, length) && list[length] == '=') {
            return (cu_result)strtoul(list + length + 1, NULL, 10);
        }
        list = strchr(list, ',');
        list += list != NULL;
    }
    return CU_SUCCESS;
}

/* Begins every function: returns the failure that the test asked for. */
#define ENTER()                                                                                    \
    do {                                                                                           \
        cu_result failure = injected(__func__);                                                    \
        if (failure) {                                                                             \
            return failure;                                                                        \
        }                                                                                          \
    } while (0)

static char contexts[MAX_DEVICES];
static _Thread_local cu_context stack[16];
static _Thread_local int depth;

static int devices(void) {
    const char *count = getenv("FAKE_CUDA_DEVICES");
    return count ? (int)strtol(count, NULL, 10) : 1;
}

cu_result cuInit(unsigned flags) {
    ENTER();
    return devices() ? CU_SUCCESS : CU_ERROR_NO_DEVICE;
}

cu_result cuGetErrorName(cu_result error, const char **text) {
    *text = error == CU_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return CU_SUCCESS;
}

cu_result cuGetErrorString(cu_result error, const char **text) {
    *text = "as the test asked";
    return CU_SUCCESS;
}

static cu_result mem_info(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = 3 << 20;
    *total_bytes = 4 << 20;
    return injected("cuMemGetInfo_v2");
}

__attribute__((visibility("default"))) cu_result cuGetProcAddress_v2(const char *name,
                                                                     void **address, int version,
                                                                     unsigned long long flags,
                                                                     cu_enum *status) {
    if (strcmp(name, "cuMemGetInfo") != 0 || version != 3020) {
        return CU_ERROR_NOT_FOUND;
    }
    cu_result (*function)(size_t *, size_t *) = mem_info;
    memcpy(address, &function, sizeof function);
    return CU_SUCCESS;
}

cu_result cuDeviceGetCount(int *count) {
    ENTER();
    *count = devices();
    return CU_SUCCESS;
}

cu_result cuDeviceGet(cu_device *device, int ordinal) {
    ENTER();
    *device = ordinal;
    return CU_SUCCESS;
}

cu_result cuDeviceGetName(char *name, int size, cu_device device) {
    ENTER();
    snprintf(name, (size_t)size, "Fake %d", device);
    return CU_SUCCESS;
}

cu_result cuDeviceGetUuid(cu_uuid *uuid, cu_device device) {
    ENTER();
    for (int i = 0; i < 16; i++) {
        uuid->bytes[i] = (char)(0xf0 + i);
    }
    return CU_SUCCESS;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device) {
    ENTER();
    *bytes = 4 << 20;
    return CU_SUCCESS;
}

cu_result cuDeviceGetAttribute(int *value, cu_enum attribute, cu_device device) {
    ENTER();
    *value = attribute != CU_ATTR_RDMA;
    return CU_SUCCESS;
}

cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device) {
    ENTER();
    *context = (cu_context)&contexts[device];
    return CU_SUCCESS;
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device) {
    ENTER();
    return CU_SUCCESS;
}

cu_result cuCtxGetCurrent(cu_context *context) {
    ENTER();
    *context = depth ? stack[depth - 1] : NULL;
    return CU_SUCCESS;
}

cu_result cuCtxPushCurrent_v2(cu_context context) {
    ENTER();
    stack[depth++] = context;
    return CU_SUCCESS;
}

cu_result cuCtxPopCurrent_v2(cu_context *context) {
    ENTER();
    *context = stack[--depth];
    return CU_SUCCESS;
}

cu_result cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER();
    *least = 0;
    *greatest = -5;
    return CU_SUCCESS;
}

cu_result cuMemGetAllocationGranularity(size_t *granularity, const cu_alloc_prop *prop,
                                        cu_enum option) {
    ENTER();
    *granularity = GRANULARITY;
    return CU_SUCCESS;
}

cu_result cuMemAddressReserve(cu_deviceptr *addr, size_t size, size_t align, cu_deviceptr hint,
                              unsigned long long flags) {
    ENTER();
    void *range = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *addr = (cu_deviceptr)(uintptr_t)range;
    return range == MAP_FAILED ? CU_ERROR_OUT_OF_MEMORY : CU_SUCCESS;
}

cu_result cuMemAddressFree(cu_deviceptr addr, size_t size) {
    ENTER();
    munmap((void *)(uintptr_t)addr, size);
    return CU_SUCCESS;
}

/* A page is a memfd; its handle is the descriptor plus 1. */
cu_result cuMemCreate(cu_handle *handle, size_t size, const cu_alloc_prop *prop,
                      unsigned long long flags) {
    ENTER();
    int fd = memfd_create("fake_cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size)) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    *handle = (cu_handle)fd + 1;
    return CU_SUCCESS;
}

cu_result cuMemRelease(cu_handle handle) {
    ENTER();
    return close((int)handle - 1) ? CU_ERROR_INVALID_VALUE : CU_SUCCESS;
}

cu_result cuMemMap(cu_deviceptr addr, size_t size, size_t offset, cu_handle handle,
                   unsigned long long flags) {
    ENTER();
    void *mapped = mmap((void *)(uintptr_t)addr, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED, (int)handle - 1, (off_t)offset);
    return mapped == MAP_FAILED ? CU_ERROR_INVALID_VALUE : CU_SUCCESS;
}

cu_result cuMemUnmap(cu_deviceptr addr, size_t size) {
    ENTER();
    void *mapped = mmap((void *)(uintptr_t)addr, size, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return mapped == MAP_FAILED ? CU_ERROR_INVALID_VALUE : CU_SUCCESS;
}

cu_result cuMemRetainAllocationHandle(cu_handle *handle, void *addr) {
    ENTER();
    return CU_ERROR_INVALID_VALUE;
}

cu_result cuMemSetAccess(cu_deviceptr addr, size_t size, const cu_access_desc *grants,
                         size_t count) {
    ENTER();
    return CU_SUCCESS;
}

cu_result cuMemAlloc_v2(cu_deviceptr *addr, size_t size) {
    ENTER();
    *addr = (cu_deviceptr)(uintptr_t)malloc(size);
    return *addr ? CU_SUCCESS : CU_ERROR_OUT_OF_MEMORY;
}

cu_result cuMemFree_v2(cu_deviceptr addr) {
    ENTER();
    free((void *)(uintptr_t)addr);
    return CU_SUCCESS;
}

cu_result cuMemHostAlloc(void **ptr, size_t size, unsigned flags) {
    ENTER();
    *ptr = malloc(size);
    return *ptr ? CU_SUCCESS : CU_ERROR_OUT_OF_MEMORY;
}

cu_result cuMemFreeHost(void *ptr) {
    ENTER();
    free(ptr);
    return CU_SUCCESS;
}

cu_result cuMemHostRegister_v2(void *ptr, size_t size, unsigned flags) {
    ENTER();
    return CU_SUCCESS;
}

cu_result cuMemHostUnregister(void *ptr) {
    ENTER();
    return CU_SUCCESS;
}

cu_result cuStreamCreateWithPriority(cu_stream *stream, unsigned flags, int priority) {
    ENTER();
    if (priority < -5 || priority > 0) {
        return CU_ERROR_INVALID_VALUE;
    }
    *stream = malloc(1);
    return CU_SUCCESS;
}

cu_result cuStreamDestroy_v2(cu_stream stream) {
    ENTER();
    free(stream);
    return CU_SUCCESS;
}

cu_result cuStreamSynchronize(cu_stream stream) {
    ENTER();
    return CU_SUCCESS;
}

cu_result cuStreamQuery(cu_stream stream) {
    ENTER();
    return CU_SUCCESS;
}

cu_result cuStreamIsCapturing(cu_stream stream, cu_enum *status) {
    ENTER();
    *status = CU_CAPTURE_NONE;
    return CU_SUCCESS;
}

cu_result cuEventCreate(cu_event *event, unsigned flags) {
    ENTER();
    *event = malloc(1);
    return CU_SUCCESS;
}

cu_result cuEventDestroy_v2(cu_event event) {
    ENTER();
    free(event);
    return CU_SUCCESS;
}
