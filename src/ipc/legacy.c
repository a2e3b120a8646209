/* Memory that cenote did not allocate: the driver's own handles as tokens, and dma-bufs. */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "cenote/share.h"
#include "dev/dev.h"
#include "ipc/token.h"

cen_status cen_share_legacy_export(cen_device *device, cen_addr addr, uint64_t bytes,
                                   char token[CEN_SHARE_TOKEN_SIZE]) {
    if (!token) {
        return ceni_fail(CEN_ERR_INVALID, "legacy_export: token is NULL");
    }
    ceni_token t = {.kind = CENI_TOKEN_LEGACY, .bytes = bytes};
    ceni_legacy_handle handle;
    cen_device_props props;
    uint64_t whole;
    cen_status status = ceni_dev_legacy_export(device, addr, &handle, &t.offset, &whole);
    if (!status && (!bytes || bytes > whole - t.offset)) {
        status =
            ceni_fail(CEN_ERR_INVALID,
                      "legacy_export: bytes %" PRIu64 "; the allocation has %" PRIu64 " from there",
                      bytes, whole - t.offset);
    }
    status = status ? status : cen_device_get_props(device, &props);
    if (!status) {
        memcpy(t.handle, handle.bytes, sizeof t.handle);
        t.device = ceni_token_device(props.uuid);
        ceni_token_write(&t, token);
    }
    return status;
}

/* Opens what the token says; it may say anything. */
static cen_status open_range(cen_device *device, const ceni_token *t, cen_addr *addr) {
    ceni_legacy_handle handle;
    cen_addr base;
    uint64_t whole;
    memcpy(handle.bytes, t->handle, sizeof handle.bytes);
    cen_status status = ceni_dev_legacy_open(device, &handle, &base, &whole);
    if (status) {
        return status;
    }
    if (!t->bytes || t->offset > whole || t->bytes > whole - t->offset) {
        status = ceni_dev_legacy_close(device, base);
        return status ? status
                      : ceni_fail(CEN_ERR_FORMAT,
                                  "legacy_open: the token is for more than the %" PRIu64
                                  " bytes that are there",
                                  whole);
    }
    *addr = base + t->offset;
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
    cen_addr start;
    cen_status status = ceni_token_read(token, &t);
    if (!status && t.kind != CENI_TOKEN_LEGACY) {
        status = ceni_fail(CEN_ERR_INVALID,
                           "legacy_open: the token is of an export, for cen_share_open");
    }
    status = status ? status : open_range(device, &t, &start);
    if (!status) {
        *addr = start;
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
