/* Handles of physical pages, and their way to other processes as file descriptors. */
#include <errno.h>
#include <fcntl.h>

#include "dev/host/host_int.h"

/* Gives memory a handle, or drops it. */
static cen_status name_page(host_space *space, host_mem *mem, ceni_page *page) {
    ceni_page handle = ceni_host_handle_add(&space->pages, mem);
    if (!handle) {
        ceni_host_mem_drop(mem);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "page: out of host memory");
    }
    *page = handle;
    return CEN_OK;
}

static cen_status find_page(host_device *device, const char *what, ceni_page page, host_mem **mem) {
    *mem = ceni_host_handle_get(&device->space->pages, page);
    if (!*mem || (*mem)->owner != device) {
        return ceni_fail(CEN_ERR_INVALID, "%s: page 0x%llx is not one of host:%d", what,
                         (unsigned long long)page, device->base.ordinal);
    }
    return CEN_OK;
}

cen_status ceni_host_page_create(cen_device *device, uint64_t size, unsigned flags,
                                 ceni_page *page) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    if (flags & CENI_PAGE_RDMA) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "page_create: a host device has no RDMA");
    }
    host_mem *mem;
    pthread_rwlock_wrlock(&d->space->map);
    status = ceni_host_mem_create(d, size, flags, &mem);
    status = status ? status : name_page(d->space, mem, page);
    pthread_rwlock_unlock(&d->space->map);
    return status;
}

cen_status ceni_host_page_release(cen_device *device, ceni_page page) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    host_mem *mem;
    pthread_rwlock_wrlock(&d->space->map);
    status = find_page(d, "page_release", page, &mem);
    if (!status) {
        ceni_host_handle_remove(&d->space->pages, page);
        ceni_host_mem_drop(mem);
    }
    pthread_rwlock_unlock(&d->space->map);
    return status;
}

cen_status ceni_host_page_export(cen_device *device, ceni_page page, int *fd) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    host_mem *mem;
    pthread_rwlock_rdlock(&d->space->map);
    status = find_page(d, "page_export", page, &mem);
    if (!status && !mem->exportable) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED,
                           "page_export: the page was created without CENI_PAGE_EXPORTABLE");
    }
    if (!status) {
        int copy = fcntl(mem->fd, F_DUPFD_CLOEXEC, 0);
        if (copy < 0) {
            status = ceni_host_fd_failed("page_export", errno);
        } else {
            *fd = copy;
        }
    }
    pthread_rwlock_unlock(&d->space->map);
    return status;
}

cen_status ceni_host_page_import(cen_device *device, int fd, uint64_t size, ceni_page *page) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    host_mem *mem;
    pthread_rwlock_wrlock(&d->space->map);
    status = ceni_host_mem_adopt(d, fd, size, &mem);
    status = status ? status : name_page(d->space, mem, page);
    pthread_rwlock_unlock(&d->space->map);
    return status;
}
