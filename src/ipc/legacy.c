/* Memory that cenote did not allocate: the driver's own handles, and dma-bufs. */
#include <string.h>

#include "ipc/client_int.h"

#define SIZE_LIMIT ((uint64_t)1 << 48) /* what a token has room for */

cen_status cen_share_legacy_export(cen_device *device, cen_addr addr, uint64_t bytes,
                                   char token[CEN_SHARE_TOKEN_SIZE]) {
    cen_device_props props;
    ceni_legacy_handle handle;
    uint64_t offset, whole;
    if (!token || !bytes || bytes >= SIZE_LIMIT) {
        return ceni_fail(CEN_ERR_INVALID, "legacy_export: %s",
                         !token ? "token is NULL" : "bytes is 0, or too large");
    }
    cen_status status = cen_device_get_props(device, &props);
    status = status ? status : ceni_dev_legacy_export(device, addr, &handle, &offset, &whole);
    if (!status && (offset > whole || bytes > whole - offset || offset >= SIZE_LIMIT)) {
        status = ceni_fail(CEN_ERR_INVALID,
                           "legacy_export: %llu bytes at %#llx go beyond the allocation",
                           (unsigned long long)bytes, (unsigned long long)addr);
    }
    if (status) {
        return status;
    }
    ceni_token made = {.kind = CENI_TOKEN_LEGACY,
                       .device = ceni_token_device(props.uuid),
                       .offset = offset,
                       .bytes = bytes};
    memcpy(made.handle, handle.bytes, sizeof made.handle);
    ceni_token_write(&made, token);
    return CEN_OK;
}

cen_status cen_share_legacy_open(cen_device *device, const char *token, cen_addr *addr,
                                 uint64_t *bytes) {
    if (!token || !addr || !bytes) {
        return ceni_fail(CEN_ERR_INVALID, "legacy_open: %s is NULL",
                         !token  ? "token"
                         : !addr ? "addr"
                                 : "bytes");
    }
    ceni_token t;
    cen_device_props props;
    ceni_legacy_handle handle;
    cen_addr base;
    uint64_t whole;
    cen_status status = cen_device_get_props(device, &props);
    status = status ? status : ceni_token_read(token, &t);
    if (!status && t.kind != CENI_TOKEN_LEGACY) {
        status = ceni_fail(CEN_ERR_INVALID, "legacy_open: the token is one for cen_share_open");
    }
    if (!status && t.device != ceni_token_device(props.uuid)) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED,
                           "legacy_open: the memory does not lie on %s; open it for the device "
                           "that it lies on",
                           props.uuid);
    }
    if (status) {
        return status;
    }
    memcpy(handle.bytes, t.handle, sizeof handle.bytes);
    status = ceni_dev_legacy_open(device, &handle, &base, &whole);
    if (!status && (t.offset > whole || t.bytes > whole - t.offset)) {
        (void)ceni_dev_legacy_close(device, base);
        status = ceni_fail(CEN_ERR_FORMAT, "legacy_open: the token's range is not in its memory");
    }
    if (!status) {
        *addr = base + t.offset;
        *bytes = t.bytes;
    }
    return status;
}

cen_status cen_share_legacy_close(cen_device *device, cen_addr addr) {
    return ceni_dev_legacy_close(device, addr);
}

cen_status cen_share_dmabuf(cen_device *device, cen_addr addr, uint64_t bytes, int *fd) {
    return ceni_dev_dmabuf(device, addr, bytes, fd);
}
