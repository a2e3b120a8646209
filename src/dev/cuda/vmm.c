/* Reserved addresses, physical pages and mappings: the driver's virtual memory management.
 *
 * A page is the driver's allocation handle. The driver itself refuses to map over a mapping and to
 * free a range that holds one; only after such a refusal do we look why, so that steady state pays
 * nothing for the difference between CEN_ERR_BUSY and CEN_ERR_INVALID. */
#include "dev/cuda/backend.h"

#include <fcntl.h>
#include <inttypes.h>

#include "base/log.h"

enum { MAX_GRANTS = 64 };

/* Whether any page is mapped in a range. */
static bool holds_mapping(const ceni_cuda_scope *scope, cen_addr addr, uint64_t size) {
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
    uint64_t owned = 0;
    if (scope.result == CU_SUCCESS) {
        owned = ceni_cuda_disown(scope.self, CENI_CUDA_VA, addr);
        scope.result = owned && owned != size ? CU_ERROR_INVALID_VALUE
                                              : scope.cu->cuMemAddressFree(addr, size);
    }
    if (scope.result == CU_SUCCESS) {
        return ceni_cuda_leave(&scope, "freeing addresses");
    }
    cen_status status = ceni_cuda_status(scope.result);
    if (owned) {
        ceni_cuda_own(scope.self, CENI_CUDA_VA, addr, owned);
        if (status == CEN_ERR_INVALID && owned == size && holds_mapping(&scope, addr, size)) {
            status = CEN_ERR_BUSY;
        }
    }
    return ceni_cuda_leave_as(&scope, status,
                              "freeing the addresses %#" PRIx64 " to +%" PRIu64 " bytes%s", addr,
                              size, status == CEN_ERR_BUSY ? ", which hold a mapping" : "");
}

cen_status ceni_cuda_page_create(cen_device *device, uint64_t size, unsigned flags,
                                 ceni_page *page) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    const ceni_cuda_device *self = scope.self;
    cu_alloc_prop prop = {
        .type = CU_ALLOC_PINNED,
        .handle_types = flags & CENI_PAGE_EXPORTABLE ? CU_HANDLE_FD : 0,
        .location = {CU_LOCATION_DEVICE, self->device},
        .flags = {.rdma = (flags & CENI_PAGE_RDMA) != 0},
    };
    cu_handle handle = 0;
    if (scope.result == CU_SUCCESS && ((flags & CENI_PAGE_EXPORTABLE && !self->export_fd) ||
                                       (flags & CENI_PAGE_RDMA && !self->rdma))) {
        scope.result = CU_ERROR_NOT_SUPPORTED;
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemCreate(&handle, size, &prop, 0);
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

cen_status ceni_cuda_page_map(cen_device *device, cen_addr addr, uint64_t size, ceni_page page) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemMap(addr, size, 0, page, 0);
    }
    if (scope.result == CU_SUCCESS) {
        if (ceni_cuda_own(scope.self, CENI_CUDA_MAPPING, addr, size)) {
            return ceni_cuda_leave(&scope, "mapping");
        }
        scope.cu->cuMemUnmap(addr, size);
        scope.result = CU_ERROR_OUT_OF_MEMORY;
        return ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "keeping a mapping");
    }
    cen_status status = ceni_cuda_status(scope.result);
    if (status == CEN_ERR_INVALID && holds_mapping(&scope, addr, size)) {
        status = CEN_ERR_BUSY;
    }
    return ceni_cuda_leave_as(
        &scope, status, "mapping the page %#" PRIx64 " of %" PRIu64 " bytes at %#" PRIx64 "%s",
        page, size, addr, status == CEN_ERR_BUSY ? ", where something is mapped" : "");
}

cen_status ceni_cuda_page_unmap(cen_device *device, cen_addr addr, uint64_t size) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemUnmap(addr, size);
    }
    if (scope.result == CU_SUCCESS) {
        for (cen_addr at = addr; at < addr + size;) {
            uint64_t one = ceni_cuda_disown(scope.self, CENI_CUDA_MAPPING, at);
            at += one ? one : device->granularity;
        }
    }
    return ceni_cuda_leave(&scope, "unmapping %#" PRIx64 " to +%" PRIu64 " bytes", addr, size);
}

cen_status ceni_cuda_page_access(cen_device *device, cen_addr addr, uint64_t size,
                                 const ceni_grant *grants, size_t count) {
    cu_access_desc list[MAX_GRANTS];
    if (!count || count > MAX_GRANTS) {
        return ceni_fail(CEN_ERR_INVALID, "cuda:%d: %zu grants: 1 to %d can be given at once",
                         device->ordinal, count, MAX_GRANTS);
    }
    for (size_t i = 0; i < count; i++) {
        const cen_device *who = grants[i].device;
        if (who->backend != &ceni_backend_cuda) {
            return ceni_fail(CEN_ERR_INVALID, "cuda:%d: grant %zu is for a device of %s",
                             device->ordinal, i, who->backend->name);
        }
        list[i].location.type = CU_LOCATION_DEVICE;
        list[i].location.id = ((const ceni_cuda_device *)who)->device;
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
