/* Plain device memory, for devices without virtual memory management, and pinned host memory.
 *
 * Pinned memory is portable: every context of the process may use it. The driver says "out of
 * memory" for host memory too; here that becomes CEN_ERR_HOST_MEMORY. Pinning touches no captured
 * work, so it is let through beside a capture; cuMemAlloc and cuMemFree are not. */
#include "dev/cuda/backend.h"

#include <inttypes.h>

cen_status ceni_cuda_segment_alloc(cen_device *device, uint64_t size, cen_addr *addr) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_deviceptr segment = 0;
    if (scope.result == CU_SUCCESS && size > device->total_bytes) {
        scope.result = CU_ERROR_OUT_OF_MEMORY;
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemAlloc(&segment, size);
    }
    if (scope.result == CU_SUCCESS) {
        if (ceni_cuda_own(scope.self, CENI_CUDA_SEGMENT, segment, size)) {
            *addr = segment;
        } else {
            scope.cu->cuMemFree(segment);
            scope.result = CU_ERROR_OUT_OF_MEMORY;
            return ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "keeping a segment");
        }
    }
    return ceni_cuda_leave(&scope, "allocating a segment of %" PRIu64 " bytes", size);
}

cen_status ceni_cuda_segment_free(cen_device *device, cen_addr addr) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        uint64_t size = ceni_cuda_disown(scope.self, CENI_CUDA_SEGMENT, addr);
        scope.result = size ? scope.cu->cuMemFree(addr) : CU_ERROR_INVALID_VALUE;
        if (scope.result != CU_SUCCESS && size) {
            ceni_cuda_own(scope.self, CENI_CUDA_SEGMENT, addr, size);
        }
    }
    return ceni_cuda_leave(&scope, "freeing the segment %#" PRIx64, addr);
}

cen_status ceni_cuda_managed_alloc(cen_device *device, uint64_t size, cen_addr *addr) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_deviceptr memory = 0;
    int by_page = 0;
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuDeviceGetAttribute(&by_page, CU_ATTR_CONCURRENT_MANAGED,
                                                      scope.self->device);
    }
    if (scope.result == CU_SUCCESS && !by_page) {
        scope.result = CU_ERROR_NOT_SUPPORTED;
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemAllocManaged(&memory, size, CU_ATTACH_GLOBAL);
    }
    if (scope.result == CU_SUCCESS) {
        if (ceni_cuda_own(scope.self, CENI_CUDA_SEGMENT, memory, size)) {
            *addr = memory;
        } else {
            scope.cu->cuMemFree(memory);
            scope.result = CU_ERROR_OUT_OF_MEMORY;
            return ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "keeping unified memory");
        }
    }
    return ceni_cuda_leave(&scope, "allocating %" PRIu64 " bytes of unified memory", size);
}

cen_status ceni_cuda_managed_prefetch(cen_device *device, cen_addr addr, uint64_t size,
                                      bool to_host, cen_stream stream) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        const cu_location to = {to_host ? CU_LOCATION_HOST : CU_LOCATION_DEVICE,
                                to_host ? 0 : scope.self->device};
        scope.result = scope.cu->cuMemPrefetchAsync(addr, size, to, 0, (cu_stream)stream);
    }
    return ceni_cuda_leave(&scope, "moving %" PRIu64 " bytes of unified memory at %#" PRIx64, size,
                           addr);
}

static cen_status leave_host(ceni_cuda_scope *scope, const char *what, void *ptr, size_t size) {
    cen_status status = ceni_cuda_status(scope->result);
    return ceni_cuda_leave_as(scope, status == CEN_ERR_DEVICE_MEMORY ? CEN_ERR_HOST_MEMORY : status,
                              "%s (pointer %p, %zu bytes)", what, ptr, size);
}

cen_status ceni_cuda_pinned_alloc(cen_device *device, size_t size, void **ptr) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    void *memory = NULL;
    if (scope.result == CU_SUCCESS) {
        cu_enum mode = ceni_cuda_relax(scope.cu);
        scope.result = scope.cu->cuMemHostAlloc(&memory, size, CU_HOST_ALLOC_PORTABLE);
        ceni_cuda_restore(scope.cu, mode);
    }
    if (scope.result == CU_SUCCESS) {
        if (ceni_cuda_own(scope.self, CENI_CUDA_PINNED, (uintptr_t)memory, size)) {
            *ptr = memory;
        } else {
            scope.cu->cuMemFreeHost(memory);
            scope.result = CU_ERROR_OUT_OF_MEMORY;
        }
    }
    return leave_host(&scope, "allocating pinned memory", NULL, size);
}

cen_status ceni_cuda_pinned_free(cen_device *device, void *ptr) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        uint64_t size = ceni_cuda_disown(scope.self, CENI_CUDA_PINNED, (uintptr_t)ptr);
        scope.result = size ? scope.cu->cuMemFreeHost(ptr) : CU_ERROR_INVALID_VALUE;
        if (scope.result != CU_SUCCESS && size) {
            ceni_cuda_own(scope.self, CENI_CUDA_PINNED, (uintptr_t)ptr, size);
        }
    }
    return leave_host(&scope, "freeing pinned memory", ptr, 0);
}

cen_status ceni_cuda_pinned_register(cen_device *device, void *ptr, size_t size) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        cu_enum mode = ceni_cuda_relax(scope.cu);
        scope.result = scope.cu->cuMemHostRegister(ptr, size, CU_HOST_REGISTER_PORTABLE);
        ceni_cuda_restore(scope.cu, mode);
    }
    if (scope.result == CU_SUCCESS &&
        !ceni_cuda_own(scope.self, CENI_CUDA_REGISTERED, (uintptr_t)ptr, size)) {
        scope.cu->cuMemHostUnregister(ptr);
        scope.result = CU_ERROR_OUT_OF_MEMORY;
    }
    return leave_host(&scope, "registering host memory", ptr, size);
}

cen_status ceni_cuda_pinned_unregister(cen_device *device, void *ptr) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        uint64_t size = ceni_cuda_disown(scope.self, CENI_CUDA_REGISTERED, (uintptr_t)ptr);
        scope.result = size ? scope.cu->cuMemHostUnregister(ptr) : CU_ERROR_INVALID_VALUE;
        if (scope.result != CU_SUCCESS && size) {
            ceni_cuda_own(scope.self, CENI_CUDA_REGISTERED, (uintptr_t)ptr, size);
        }
    }
    return leave_host(&scope, "unregistering host memory", ptr, 0);
}
