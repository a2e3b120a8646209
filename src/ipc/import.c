/* Other processes' sets, mapped here. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "ipc/client_int.h"

/* ---- whether a device reaches another's memory ---- */

/* Opens the device of a backend that has the uuid; NULL: none that can be opened has. */
static cen_device *open_owner(const char *backend, const char *uuid) {
    int count = 0;
    if (cen_device_count(backend, &count)) {
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        char name[32];
        cen_device *device;
        cen_device_props props;
        snprintf(name, sizeof name, "%s:%d", backend, i);
        if (cen_device_open(name, &device)) {
            continue;
        }
        if (!cen_device_get_props(device, &props) && !strcmp(props.uuid, uuid)) {
            return device;
        }
        cen_device_close(device);
    }
    return NULL;
}

cen_status ceni_import_reaches(cen_device *device, const char *uuid) {
    cen_device_props props;
    bool can = false;
    cen_status status = cen_device_get_props(device, &props);
    if (status || !strcmp(props.uuid, uuid)) {
        return status;
    }
    cen_device *owner = open_owner(device->backend->name, uuid);
    if (!owner) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "open: it lies on device %s, which this process does not see (%s:%d is "
                         "%s); across machines, use NCCL",
                         uuid, device->backend->name, device->ordinal, props.uuid);
    }
    status = cen_peer_can_access(device, owner, &can);
    cen_device_close(owner);
    if (!status && !can) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED, "open: %s:%d does not reach device %s",
                           device->backend->name, device->ordinal, uuid);
    }
    return status;
}

/* ---- mapping ---- */

static uint64_t page_size(const ceni_import *import, uint32_t page) {
    return ceni_set_page_size(import->bytes, import->page_bytes, page);
}

static void unmap_pages(const ceni_import *import, uint32_t count) {
    if (count) {
        uint64_t bytes = (count - 1) * import->page_bytes + page_size(import, count - 1);
        (void)ceni_dev_page_unmap(import->device, import->addr, bytes, count);
    }
    (void)ceni_dev_va_free(import->device, import->addr, import->bytes);
}

/* The handle is dropped at once: the mapping keeps the page. */
static cen_status map_page(const ceni_import *import, uint32_t page, int fd) {
    ceni_page handle;
    uint64_t size = page_size(import, page);
    cen_status status = ceni_dev_page_import(import->device, fd, size, &handle);
    if (status) {
        return status;
    }
    status =
        ceni_dev_page_map(import->device, import->addr + page * import->page_bytes, size, handle);
    (void)ceni_dev_page_release(import->device, handle);
    return status;
}

static cen_status map_pages(ceni_import *import, const int *fds) {
    uint64_t granule = import->device->granularity;
    if (import->bytes % granule || import->page_bytes % granule) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "open: pages of %" PRIu64 " bytes are no whole number of this device's "
                         "%" PRIu64,
                         import->page_bytes, granule);
    }
    cen_status status = ceni_dev_va_reserve(import->device, import->bytes, 0, &import->addr);
    if (status) {
        return status;
    }
    uint32_t mapped = 0;
    while (!status && mapped < import->page_count) {
        status = map_page(import, mapped, fds[mapped]);
        mapped += !status;
    }
    ceni_grant grant = {import->device, import->write ? CENI_ACCESS_READ_WRITE : CENI_ACCESS_READ};
    status = status ? status
                    : ceni_dev_page_access(import->device, import->addr, import->bytes, mapped,
                                           &grant, 1);
    if (status) {
        unmap_pages(import, mapped);
    }
    return status;
}

cen_status ceni_import_map(cen_device *device, bool write, const ceni_opened *lease, int *fds,
                           bool keep, ceni_import **out) {
    ceni_import *import = ceni_calloc(1, sizeof *import);
    if (!import) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "open: out of host memory");
    }
    *import = (ceni_import){.set = lease->set,
                            .device = device,
                            .write = write,
                            .direct = lease->direct >= 0,
                            .bytes = lease->bytes,
                            .page_bytes = lease->page_bytes,
                            .page_count = lease->page_count,
                            .refs = 1};
    cen_status status = map_pages(import, fds);
    if (status) {
        ceni_free(import);
        return status;
    }
    import->fds = keep ? fds : NULL;
    *out = import;
    return CEN_OK;
}

ceni_import *ceni_import_find(cen_share *share, uint64_t set, cen_device *device, bool write) {
    uint64_t *found = ceni_map_get(&share->imports, set);
    ceni_import *import = found ? (ceni_import *)(uintptr_t)*found : NULL;
    while (import && (import->device != device || import->write != write)) {
        import = import->next;
    }
    if (import) {
        import->refs++;
    }
    return import;
}

cen_status ceni_import_add(cen_share *share, ceni_import *import) {
    uint64_t *found = ceni_map_get(&share->imports, import->set);
    if (found) {
        import->next = (ceni_import *)(uintptr_t)*found;
        *found = (uint64_t)(uintptr_t)import;
        return CEN_OK;
    }
    return ceni_map_put(&share->imports, import->set, (uint64_t)(uintptr_t)import)
               ? ceni_fail(CEN_ERR_HOST_MEMORY, "open: out of host memory")
               : CEN_OK;
}

void ceni_import_drop(cen_share *share, ceni_import *import) {
    if (--import->refs) {
        return;
    }
    uint64_t *found = import->direct ? NULL : ceni_map_get(&share->imports, import->set);
    if (found) {
        ceni_import *head = (ceni_import *)(uintptr_t)*found, **link = &head;
        while (*link != import) {
            link = &(*link)->next;
        }
        *link = import->next;
        if (head) {
            *found = (uint64_t)(uintptr_t)head;
        } else {
            (void)ceni_map_remove(&share->imports, import->set, NULL);
        }
    }
    import->next = share->garbage;
    share->garbage = import;
}

void ceni_import_free(ceni_import *import) {
    unmap_pages(import, import->page_count);
    ceni_fd_close_all(import->fds, import->fds ? import->page_count : 0);
    ceni_free(import->fds);
    ceni_free(import);
}

void ceni_import_sweep(cen_share *share) {
    pthread_mutex_lock(&share->lock);
    ceni_import *garbage = share->garbage;
    share->garbage = NULL;
    pthread_mutex_unlock(&share->lock);
    while (garbage) {
        ceni_import *next = garbage->next;
        ceni_import_free(garbage);
        garbage = next;
    }
}
