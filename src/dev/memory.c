/* The calls that create, map and share physical pages. They are the ones that cost driver time, so
 * their host time is kept. Arguments are checked here, for both backends alike. */
#include "base/clock.h"
#include "dev/call.h"

/* As ceni_call_leave, adding the time since `start` and the pages concerned. */
static cen_status leave_timed(cen_device *device, enum ceni_dev_op op, uint64_t start,
                              size_t handles, cen_status status) {
    if (device) {
        atomic_fetch_add_explicit(&device->stats[op].ns, ceni_now_ns() - start,
                                  memory_order_relaxed);
        atomic_fetch_add_explicit(&device->stats[op].handles, handles, memory_order_relaxed);
    }
    return ceni_call_leave(device, op, status);
}

static cen_status check_vmm(cen_device *device, enum ceni_dev_op op) {
    cen_status status = ceni_call_enter(device, op);
    if (!status && !device->vmm) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "%s: %s:%d has no virtual memory management; use segments",
                         ceni_dev_op_name(op), device->backend->name, device->ordinal);
    }
    return status;
}

static cen_status check_size(cen_device *device, enum ceni_dev_op op, uint64_t size) {
    if (size == 0 || size % device->granularity) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: size %llu is not a positive multiple of the granularity %llu",
                         ceni_dev_op_name(op), (unsigned long long)size,
                         (unsigned long long)device->granularity);
    }
    return CEN_OK;
}

static cen_status check_range(cen_device *device, enum ceni_dev_op op, cen_addr addr,
                              uint64_t size) {
    cen_status status = check_size(device, op, size);
    if (!status && (addr == 0 || addr % device->granularity || addr + size < addr)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: addr 0x%llx is not a valid multiple of the granularity %llu",
                         ceni_dev_op_name(op), (unsigned long long)addr,
                         (unsigned long long)device->granularity);
    }
    return status;
}

cen_status ceni_dev_va_reserve(cen_device *device, uint64_t size, uint64_t align, cen_addr *addr) {
    const enum ceni_dev_op op = CENI_OP_va_reserve;
    uint64_t start = ceni_now_ns();
    cen_status status = check_vmm(device, op);
    status = status ? status : ceni_call_need(addr, op, "addr");
    status = status ? status : check_size(device, op, size);
    if (!status && (align & (align - 1))) {
        status = ceni_fail(CEN_ERR_INVALID, "va_reserve: align %llu is not a power of two",
                           (unsigned long long)align);
    }
    return leave_timed(device, op, start, 1,
                       status ? status : device->backend->va_reserve(device, size, align, addr));
}

cen_status ceni_dev_va_free(cen_device *device, cen_addr addr, uint64_t size) {
    const enum ceni_dev_op op = CENI_OP_va_free;
    uint64_t start = ceni_now_ns();
    cen_status status = check_vmm(device, op);
    status = status ? status : check_range(device, op, addr, size);
    return leave_timed(device, op, start, 1,
                       status ? status : device->backend->va_free(device, addr, size));
}

cen_status ceni_dev_page_create(cen_device *device, uint64_t size, unsigned flags,
                                ceni_page *page) {
    const enum ceni_dev_op op = CENI_OP_page_create;
    uint64_t start = ceni_now_ns();
    cen_status status = check_vmm(device, op);
    status = status ? status : ceni_call_need(page, op, "page");
    status = status ? status : check_size(device, op, size);
    if (!status && (flags & ~(unsigned)(CENI_PAGE_EXPORTABLE | CENI_PAGE_RDMA | CENI_PAGE_HOST))) {
        status = ceni_fail(CEN_ERR_INVALID, "page_create: flags 0x%x has unknown bits", flags);
    }
    return leave_timed(device, op, start, 1,
                       status ? status : device->backend->page_create(device, size, flags, page));
}

cen_status ceni_dev_page_release(cen_device *device, ceni_page page) {
    const enum ceni_dev_op op = CENI_OP_page_release;
    uint64_t start = ceni_now_ns();
    cen_status status = check_vmm(device, op);
    return leave_timed(device, op, start, 1,
                       status ? status : device->backend->page_release(device, page));
}

cen_status ceni_dev_page_map(cen_device *device, cen_addr addr, uint64_t size, ceni_page page) {
    const enum ceni_dev_op op = CENI_OP_page_map;
    uint64_t start = ceni_now_ns();
    cen_status status = check_vmm(device, op);
    status = status ? status : check_range(device, op, addr, size);
    return leave_timed(device, op, start, 1,
                       status ? status : device->backend->page_map(device, addr, size, page));
}

cen_status ceni_dev_page_unmap(cen_device *device, cen_addr addr, uint64_t size, size_t handles) {
    const enum ceni_dev_op op = CENI_OP_page_unmap;
    uint64_t start = ceni_now_ns();
    cen_status status = check_vmm(device, op);
    status = status ? status : check_range(device, op, addr, size);
    return leave_timed(device, op, start, handles,
                       status ? status : device->backend->page_unmap(device, addr, size));
}

static cen_status check_grants(cen_device *device, const ceni_grant *grants, size_t count) {
    if (!grants || !count) {
        return ceni_fail(CEN_ERR_INVALID, "page_access: no grants given");
    }
    for (size_t i = 0; i < count; i++) {
        const ceni_grant *g = &grants[i];
        if (!g->device || g->device->backend != device->backend) {
            return ceni_fail(CEN_ERR_INVALID, "page_access: grant %zu: device is %s", i,
                             g->device ? "of another backend" : "NULL");
        }
        if (g->access != CENI_ACCESS_NONE && g->access != CENI_ACCESS_READ &&
            g->access != CENI_ACCESS_READ_WRITE) {
            return ceni_fail(CEN_ERR_INVALID, "page_access: grant %zu: access %d is unknown", i,
                             (int)g->access);
        }
    }
    return CEN_OK;
}

cen_status ceni_dev_page_access(cen_device *device, cen_addr addr, uint64_t size, size_t handles,
                                const ceni_grant *grants, size_t count) {
    const enum ceni_dev_op op = CENI_OP_page_access;
    uint64_t start = ceni_now_ns();
    cen_status status = check_vmm(device, op);
    status = status ? status : check_range(device, op, addr, size);
    status = status ? status : check_grants(device, grants, count);
    return leave_timed(device, op, start, handles,
                       status ? status
                              : device->backend->page_access(device, addr, size, grants, count));
}

cen_status ceni_dev_page_export(cen_device *device, ceni_page page, int *fd) {
    const enum ceni_dev_op op = CENI_OP_page_export;
    uint64_t start = ceni_now_ns();
    cen_status status = check_vmm(device, op);
    status = status ? status : ceni_call_need(fd, op, "fd");
    return leave_timed(device, op, start, 1,
                       status ? status : device->backend->page_export(device, page, fd));
}

cen_status ceni_dev_page_import(cen_device *device, int fd, uint64_t size, ceni_page *page) {
    const enum ceni_dev_op op = CENI_OP_page_import;
    uint64_t start = ceni_now_ns();
    cen_status status = check_vmm(device, op);
    status = status ? status : ceni_call_need(page, op, "page");
    status = status ? status : check_size(device, op, size);
    return leave_timed(device, op, start, 1,
                       status ? status : device->backend->page_import(device, fd, size, page));
}

cen_status ceni_dev_segment_alloc(cen_device *device, uint64_t size, cen_addr *addr) {
    const enum ceni_dev_op op = CENI_OP_segment_alloc;
    uint64_t start = ceni_now_ns();
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(addr, op, "addr");
    if (!status && !size) {
        status = ceni_fail(CEN_ERR_INVALID, "segment_alloc: size is 0");
    }
    return leave_timed(device, op, start, 1,
                       status ? status : device->backend->segment_alloc(device, size, addr));
}

cen_status ceni_dev_segment_free(cen_device *device, cen_addr addr) {
    const enum ceni_dev_op op = CENI_OP_segment_free;
    uint64_t start = ceni_now_ns();
    cen_status status = ceni_call_enter(device, op);
    return leave_timed(device, op, start, 1,
                       status ? status : device->backend->segment_free(device, addr));
}

static cen_status check_managed(cen_device *device, enum ceni_dev_op op, uint64_t size) {
    cen_status status = ceni_call_enter(device, op);
    if (!status && (!device->backend->managed_alloc || !device->backend->managed_prefetch)) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED, "%s: %s has no unified memory",
                           ceni_dev_op_name(op), device->backend->name);
    }
    if (!status && !size) {
        status = ceni_fail(CEN_ERR_INVALID, "%s: size is 0", ceni_dev_op_name(op));
    }
    return status;
}

cen_status ceni_dev_managed_alloc(cen_device *device, uint64_t size, cen_addr *addr) {
    const enum ceni_dev_op op = CENI_OP_managed_alloc;
    cen_status status = check_managed(device, op, size);
    status = status ? status : ceni_call_need(addr, op, "addr");
    return ceni_call_leave(device, op,
                           status ? status : device->backend->managed_alloc(device, size, addr));
}

cen_status ceni_dev_managed_prefetch(cen_device *device, cen_addr addr, uint64_t size, bool to_host,
                                     cen_stream stream) {
    const enum ceni_dev_op op = CENI_OP_managed_prefetch;
    cen_status status = check_managed(device, op, size);
    return ceni_call_leave(
        device, op,
        status ? status : device->backend->managed_prefetch(device, addr, size, to_host, stream));
}
