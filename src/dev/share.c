/* The calls that share events and memory with other processes. */
#include <unistd.h>

#include "dev/call.h"

cen_status ceni_dev_event_export(cen_device *device, cen_event event, ceni_event_token *token,
                                 int *fd) {
    const enum ceni_dev_op op = CENI_OP_event_export;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(token, op, "token");
    status = status ? status : ceni_call_need(fd, op, "fd");
    return ceni_call_leave(
        device, op, status ? status : device->backend->event_export(device, event, token, fd));
}

cen_status ceni_dev_event_import(cen_device *device, const ceni_event_token *token, int fd,
                                 cen_event *event) {
    const enum ceni_dev_op op = CENI_OP_event_import;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(token, op, "token");
    status = status ? status : ceni_call_need(event, op, "event");
    return ceni_call_leave(
        device, op, status ? status : device->backend->event_import(device, token, fd, event));
}

cen_status ceni_dev_legacy_export(cen_device *device, cen_addr addr, ceni_legacy_handle *handle,
                                  uint64_t *offset, uint64_t *bytes) {
    const enum ceni_dev_op op = CENI_OP_legacy_export;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(handle, op, "handle");
    status = status ? status : ceni_call_need(offset, op, "offset");
    status = status ? status : ceni_call_need(bytes, op, "bytes");
    return ceni_call_leave(
        device, op,
        status ? status : device->backend->legacy_export(device, addr, handle, offset, bytes));
}

cen_status ceni_dev_legacy_open(cen_device *device, const ceni_legacy_handle *handle,
                                cen_addr *addr, uint64_t *bytes) {
    const enum ceni_dev_op op = CENI_OP_legacy_open;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(handle, op, "handle");
    status = status ? status : ceni_call_need(addr, op, "addr");
    status = status ? status : ceni_call_need(bytes, op, "bytes");
    return ceni_call_leave(
        device, op, status ? status : device->backend->legacy_open(device, handle, addr, bytes));
}

cen_status ceni_dev_legacy_close(cen_device *device, cen_addr addr) {
    const enum ceni_dev_op op = CENI_OP_legacy_close;
    cen_status status = ceni_call_enter(device, op);
    return ceni_call_leave(device, op,
                           status ? status : device->backend->legacy_close(device, addr));
}

cen_status ceni_dev_dmabuf(cen_device *device, cen_addr addr, uint64_t bytes, int *fd) {
    const enum ceni_dev_op op = CENI_OP_dmabuf;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(fd, op, "fd");
    if (!status && (!addr || !bytes || addr % page || bytes % page || addr + bytes < addr)) {
        status = ceni_fail(CEN_ERR_INVALID,
                           "dmabuf: addr 0x%llx and bytes %llu must be multiples of the host's "
                           "page size %llu",
                           (unsigned long long)addr, (unsigned long long)bytes,
                           (unsigned long long)page);
    }
    return ceni_call_leave(device, op,
                           status ? status : device->backend->dmabuf(device, addr, bytes, fd));
}
