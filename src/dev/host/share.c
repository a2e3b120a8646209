/* Shared events: their way to other processes, and waiting for what another process records. And
 * the handles of drivers, which the host has not. */
#include "dev/host/host_int.h"

enum { SYNC_PAUSE_MS = 50 };

bool ceni_host_foreign_done(host_point *point) {
    point->done = point->done || ceni_host_shared_is_complete(point->shared, point->number);
    return point->done;
}

void ceni_host_foreign_pause(host_space *space, host_point *point, uint32_t ms) {
    point->refs++;
    pthread_mutex_unlock(&space->run);
    cen_status status = ceni_host_shared_pause(point->shared, point->number, ms);
    pthread_mutex_lock(&space->run);
    if (status == CEN_ERR_DEVICE_LOST && !point->done) {
        ceni_log(CEN_LOG_WARN, "stream_wait: the process that recorded the shared event is gone "
                               "without having completed it; the stream goes on");
    }
    point->done = point->done || status != CEN_ERR_NOT_READY;
    ceni_host_point_drop(point);
}

host_point *ceni_host_foreign_point(host_shared *shared) {
    host_point *point = ceni_host_point_new(false);
    if (point) {
        point->foreign = true;
        point->shared = ceni_host_shared_keep(shared);
        point->number = ceni_host_shared_latest(shared);
        ceni_host_foreign_done(point);
    }
    return point;
}

cen_status ceni_host_foreign_settle(host_device *device, const char *what, host_shared *shared,
                                    bool wait) {
    const uint32_t number = ceni_host_shared_latest(shared);
    wait = wait && !ceni_host_would_hang(device);
    ceni_host_shared_keep(shared);
    cen_status status;
    do {
        pthread_mutex_unlock(&device->space->run);
        status = ceni_host_shared_pause(shared, number, wait ? SYNC_PAUSE_MS : 0);
        pthread_mutex_lock(&device->space->run);
    } while (wait && status == CEN_ERR_NOT_READY && !atomic_load(&device->error));
    ceni_host_shared_drop(shared);
    if (status == CEN_ERR_DEVICE_LOST) {
        return ceni_fail(status,
                         "%s: the process that recorded the shared event is gone without having "
                         "completed it",
                         what);
    }
    return status;
}

cen_status ceni_host_event_export(cen_device *device, cen_event event, ceni_event_token *token,
                                  int *fd) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    const host_event *e = ceni_host_event_find(d->space, "event_export", event);
    if (!e) {
        status = CEN_ERR_INVALID;
    } else if (!e->shared || ceni_host_shared_is_import(e->shared)) {
        status = ceni_fail(CEN_ERR_INVALID, "event_export: the event is %s",
                           e->shared ? "another process's" : "not CEN_EVENT_SHARED");
    } else {
        status = ceni_host_shared_export(e->shared, fd);
    }
    if (!status) {
        *token = (ceni_event_token){{0}};
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}

cen_status ceni_host_event_import(cen_device *device, const ceni_event_token *token, int fd,
                                  cen_event *event) {
    (void)token; /* the descriptor is all */
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    host_shared *shared;
    pthread_mutex_lock(&d->space->run);
    status = ceni_host_shared_adopt(fd, &shared);
    status = status ? status : ceni_host_event_add(d, CEN_EVENT_SHARED, NULL, shared, event);
    pthread_mutex_unlock(&d->space->run);
    return status;
}

static cen_status no_handles(cen_device *device, const char *what) {
    cen_status status = ceni_host_ready(host_of(device));
    return status ? status
                  : ceni_fail(CEN_ERR_UNSUPPORTED,
                              "%s: a host device has no legacy handles; its memory is shared with "
                              "cen_share_export",
                              what);
}

cen_status ceni_host_legacy_export(cen_device *device, cen_addr addr, ceni_legacy_handle *handle,
                                   uint64_t *offset, uint64_t *bytes) {
    return no_handles(device, "legacy_export");
}

cen_status ceni_host_legacy_open(cen_device *device, const ceni_legacy_handle *handle,
                                 cen_addr *addr, uint64_t *bytes) {
    return no_handles(device, "legacy_open");
}

cen_status ceni_host_legacy_close(cen_device *device, cen_addr addr) {
    return no_handles(device, "legacy_close");
}

cen_status ceni_host_dmabuf(cen_device *device, cen_addr addr, uint64_t bytes, int *fd) {
    cen_status status = ceni_host_ready(host_of(device));
    return status
               ? status
               : ceni_fail(CEN_ERR_UNSUPPORTED,
                           "dmabuf: a host device has none: its memory is the processor's, which "
                           "ibv_reg_mr takes");
}
