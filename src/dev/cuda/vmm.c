/* Reserved addresses, physical pages and mappings: the driver's virtual memory management.
 *
 * A page is the driver's allocation handle. What a device object reserved, created and mapped it
 * also remembers, so that the contract's refusals do not rest on what a driver version happens to
 * check; a range is unmapped through the device object that mapped it. */
#include "dev/cuda/backend.h"

#include <fcntl.h>
#include <inttypes.h>

#include "base/log.h"

enum { MAX_GRANTS = 64 };

/* Whether any page is mapped in a range, by whomever. */
static bool is_mapped(const ceni_cuda_scope *scope, cen_addr addr, uint64_t size) {
    uint64_t step = scope->self->base.granularity;
    for (cen_addr at = addr; at < addr + size; at += step) {
        cu_handle handle;
        if (scope->cu->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at) == CU_SUCCESS) {
            scope->cu->cuMemRelease(handle);
            return true;
        }
    }
    return false;
}

cen_status ceni_cuda_va_reserve(cen_device *device, uint64_t size, uint64_t align, cen_addr *addr) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_deviceptr reserved = 0;
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemAddressReserve(&reserved, size, align, 0, 0);
    }
    if (scope.result == CU_SUCCESS) {
        if (ceni_cuda_own(scope.self, CENI_CUDA_VA, reserved, size)) {
            *addr = reserved;
        } else {
            scope.cu->cuMemAddressFree(reserved, size);
            scope.result = CU_ERROR_OUT_OF_MEMORY;
            return ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "keeping a reservation");
        }
    }
    return ceni_cuda_leave(&scope, "reserving %" PRIu64 " bytes of addresses", size);
}

cen_status ceni_cuda_va_free(cen_device *device, cen_addr addr, uint64_t size) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS && (ceni_cuda_size_of(scope.self, CENI_CUDA_VA, addr) != size)) {
        scope.result = CU_ERROR_INVALID_VALUE;
    }
    if (scope.result == CU_SUCCESS &&
        ceni_cuda_any_within(scope.self, CENI_CUDA_MAPPING, addr, size)) {
        scope.result = CU_ERROR_ALREADY_MAPPED;
    }
    if (scope.result == CU_SUCCESS) {
        ceni_cuda_disown(scope.self, CENI_CUDA_VA, addr);
        scope.result = scope.cu->cuMemAddressFree(addr, size);
        if (scope.result != CU_SUCCESS) {
            ceni_cuda_own(scope.self, CENI_CUDA_VA, addr, size);
        }
    }
    return ceni_cuda_leave(&scope, "freeing the addresses %#" PRIx64 " to +%" PRIu64 " bytes", addr,
                           size);
}

/* Learns from a page that was made, or not for want of memory, how much of what the driver calls
 * free it keeps for itself: tens of megabytes on large cards. */
static void learn_withheld(const ceni_cuda_scope *scope, uint64_t size, bool made) {
    cen_device *device = &scope->self->base;
    uint64_t known = atomic_load(&device->withheld), most = device->total_bytes / 128;
    size_t free_bytes = 0, total;
    if ((made && !known) || scope->cu->cuMemGetInfo(&free_bytes, &total) != CU_SUCCESS) {
        return;
    }
    if (made && free_bytes < known) {
        atomic_store(&device->withheld, free_bytes);
    } else if (!made && free_bytes >= size) {
        uint64_t withheld = free_bytes - size + device->granularity;
        withheld = withheld < most ? withheld : most;
        atomic_store(&device->withheld, withheld > known ? withheld : known);
    }
}

cen_status ceni_cuda_page_create(cen_device *device, uint64_t size, unsigned flags,
                                 ceni_page *page) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    const ceni_cuda_device *self = scope.self;
    bool on_host = flags & CENI_PAGE_HOST;
    cu_alloc_prop prop = {
        .type = CU_ALLOC_PINNED,
        .handle_types = flags & CENI_PAGE_EXPORTABLE ? CU_HANDLE_FD : 0,
        .location = {on_host ? CU_LOCATION_HOST_NUMA : CU_LOCATION_DEVICE,
                     on_host ? self->host_node : self->device},
        .flags = {.rdma = (flags & CENI_PAGE_RDMA) != 0},
    };
    cu_handle handle = 0;
    if (scope.result == CU_SUCCESS &&
        ((flags & CENI_PAGE_EXPORTABLE && !self->export_fd) ||
         (flags & CENI_PAGE_RDMA && !self->rdma) || (on_host && !self->host_pages))) {
        scope.result = CU_ERROR_NOT_SUPPORTED;
    }
    if (scope.result == CU_SUCCESS && !on_host && size > device->total_bytes) {
        scope.result = CU_ERROR_OUT_OF_MEMORY;
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemCreate(&handle, size, &prop, 0);
        if (!on_host && (scope.result == CU_SUCCESS || scope.result == CU_ERROR_OUT_OF_MEMORY)) {
            learn_withheld(&scope, size, scope.result == CU_SUCCESS);
        }
    }
    if (scope.result == CU_SUCCESS) {
        if (ceni_cuda_own(scope.self, CENI_CUDA_PAGE, handle, size)) {
            *page = handle;
        } else {
            scope.cu->cuMemRelease(handle);
            scope.result = CU_ERROR_OUT_OF_MEMORY;
            return ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "keeping a page");
        }
    }
    return ceni_cuda_leave(&scope, "creating a page of %" PRIu64 " bytes%s%s", size,
                           flags & CENI_PAGE_EXPORTABLE ? ", exportable" : "",
                           flags & CENI_PAGE_RDMA ? ", for RDMA" : "");
}

cen_status ceni_cuda_page_release(cen_device *device, ceni_page page) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        uint64_t size = ceni_cuda_disown(scope.self, CENI_CUDA_PAGE, page);
        /* A handle that is not ours, or not any more, may be another page's by now. */
        scope.result = size ? scope.cu->cuMemRelease(page) : CU_ERROR_INVALID_VALUE;
        if (scope.result != CU_SUCCESS && size) {
            ceni_cuda_own(scope.self, CENI_CUDA_PAGE, page, size);
        }
    }
    return ceni_cuda_leave(&scope, "releasing the page %#" PRIx64, page);
}

/* What the driver would say to a mapping of a part of the page, or of more than it; a page of
 * another device object is the driver's to judge. */
static cu_result check_whole(const ceni_cuda_scope *scope, ceni_page page, uint64_t size) {
    uint64_t whole = ceni_cuda_size_of(scope->self, CENI_CUDA_PAGE, page);
    if (!whole || whole == size) {
        return CU_SUCCESS;
    }
    return size < whole ? CU_ERROR_NOT_SUPPORTED : CU_ERROR_INVALID_VALUE;
}

cen_status ceni_cuda_page_map(cen_device *device, cen_addr addr, uint64_t size, ceni_page page) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = check_whole(&scope, page, size);
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemMap(addr, size, 0, page, 0);
        if (scope.result != CU_SUCCESS && is_mapped(&scope, addr, size)) {
            scope.result = CU_ERROR_ALREADY_MAPPED;
        }
    }
    if (scope.result == CU_SUCCESS && !ceni_cuda_own(scope.self, CENI_CUDA_MAPPING, addr, size)) {
        scope.cu->cuMemUnmap(addr, size);
        scope.result = CU_ERROR_OUT_OF_MEMORY;
        return ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "keeping a mapping");
    }
    return ceni_cuda_leave(&scope,
                           "mapping the page %#" PRIx64 " of %" PRIu64 " bytes at %#" PRIx64, page,
                           size, addr);
}

cen_status ceni_cuda_page_unmap(cen_device *device, cen_addr addr, uint64_t size) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cen_addr end = addr + size;
    for (cen_addr at = addr; scope.result == CU_SUCCESS && at < end;) {
        uint64_t one = ceni_cuda_size_of(scope.self, CENI_CUDA_MAPPING, at);
        if (!one || one > end - at) {
            scope.result = CU_ERROR_NOT_MAPPED; /* not filled by whole mappings */
        }
        at += one;
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemUnmap(addr, size);
    }
    for (cen_addr at = addr; scope.result == CU_SUCCESS && at < end;) {
        at += ceni_cuda_disown(scope.self, CENI_CUDA_MAPPING, at);
    }
    return ceni_cuda_leave(&scope, "unmapping %#" PRIx64 " to +%" PRIu64 " bytes", addr, size);
}

cen_status ceni_cuda_page_access(cen_device *device, cen_addr addr, uint64_t size,
                                 const ceni_grant *grants, size_t count) {
    cu_access_desc list[MAX_GRANTS];
    if (count > MAX_GRANTS) {
        return ceni_fail(CEN_ERR_INVALID, "cuda:%d: %zu grants: at most %d can be given at once",
                         device->ordinal, count, MAX_GRANTS);
    }
    for (size_t i = 0; i < count; i++) {
        list[i].location.type = CU_LOCATION_DEVICE;
        list[i].location.id = ((const ceni_cuda_device *)grants[i].device)->device;
        list[i].flags = (cu_enum)grants[i].access; /* the same numbers */
    }
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemSetAccess(addr, size, list, count);
    }
    return ceni_cuda_leave(&scope, "setting access to %#" PRIx64 " to +%" PRIu64 " bytes", addr,
                           size);
}

cen_status ceni_cuda_page_export(cen_device *device, ceni_page page, int *fd) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    int exported = -1;
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemExportToShareableHandle(&exported, page, CU_HANDLE_FD, 0);
    }
    if (scope.result == CU_SUCCESS) {
        fcntl(exported, F_SETFD, FD_CLOEXEC);
        *fd = exported;
    }
    return ceni_cuda_leave(&scope, "exporting the page %#" PRIx64, page);
}

cen_status ceni_cuda_page_import(cen_device *device, int fd, uint64_t size, ceni_page *page) {
    if (fcntl(fd, F_GETFD) < 0) {
        return ceni_fail(CEN_ERR_INVALID, "cuda:%d: %d is not an open file descriptor",
                         device->ordinal, fd);
    }
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_handle handle = 0;
    if (scope.result == CU_SUCCESS) {
        scope.result =
            scope.cu->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_HANDLE_FD);
    }
    if (scope.result == CU_SUCCESS) {
        if (ceni_cuda_own(scope.self, CENI_CUDA_PAGE, handle, size)) {
            *page = handle;
        } else {
            scope.cu->cuMemRelease(handle);
            scope.result = CU_ERROR_OUT_OF_MEMORY;
            return ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "keeping an imported page");
        }
    }
    return ceni_cuda_leave(&scope, "importing a page of %" PRIu64 " bytes from descriptor %d", size,
                           fd);
}
