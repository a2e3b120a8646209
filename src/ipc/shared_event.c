/* Events that order readers behind a writer in another process. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "ipc/client_int.h"

void ceni_shared_event_close(ceni_shared_event *shared) {
    if (shared->fd >= 0) {
        close(shared->fd);
        shared->fd = -1;
    }
}

static cen_status make(cen_device *device, cen_stream stream, cen_event *event,
                       ceni_shared_event *shared) {
    ceni_event_token token;
    cen_event made;
    int fd = -1;
    cen_status status = cen_event_create(device, CEN_EVENT_SHARED, &made);
    if (status) {
        return status;
    }
    status = cen_event_record(device, made, stream);
    status = status ? status : ceni_dev_event_export(device, made, &token, &fd);
    bool has_fd = fd >= 0;
    if (!status && has_fd && (fd = ceni_fd_move(fd)) < 0) {
        status = ceni_fail(CEN_ERR_LIMIT, "export: an event's descriptor: %s", strerror(errno));
    }
    if (status) {
        (void)cen_event_destroy(device, made);
        return status;
    }
    *shared =
        (ceni_shared_event){.flags = has_fd ? CENI_WIRE_EVENT_FD : CENI_WIRE_EVENT_TOKEN, .fd = fd};
    memcpy(shared->token, has_fd ? (const uint8_t[64]){0} : token.bytes, sizeof shared->token);
    *event = made;
    return CEN_OK;
}

cen_status ceni_shared_event_make(cen_device *device, cen_stream stream, bool synced,
                                  cen_event *event, ceni_shared_event *shared) {
    bool capturing = false;
    cen_status status = cen_stream_capturing(device, stream, &capturing);
    if (!status && capturing) {
        return ceni_fail(CEN_ERR_CAPTURE, "export: the stream is capturing");
    }
    if (!status && !synced) {
        cen_status expected = ceni_log_expect(CEN_ERR_UNSUPPORTED);
        status = make(device, stream, event, shared);
        ceni_log_expect(expected);
        synced = status == CEN_ERR_UNSUPPORTED;
        status = synced ? CEN_OK : status;
    }
    return status || !synced ? status : cen_stream_sync(device, stream);
}

/* The event as `device` knows it, imported once. `lock` is held. */
static cen_status imported(ceni_opened *lease, cen_device *device, cen_event *event) {
    for (const ceni_imported_event *e = lease->events; e; e = e->next) {
        if (e->device == device) {
            *event = e->event;
            return CEN_OK;
        }
    }
    ceni_imported_event *made = ceni_calloc(1, sizeof *made);
    if (!made) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "wait: out of host memory");
    }
    ceni_event_token token;
    memcpy(token.bytes, lease->shared.token, sizeof token.bytes);
    cen_status status = ceni_dev_event_import(device, &token, lease->shared.fd, &made->event);
    if (status) {
        ceni_free(made);
        return status;
    }
    made->device = device;
    made->next = lease->events;
    lease->events = made;
    *event = made->event;
    return CEN_OK;
}

cen_status cen_share_wait(cen_share_view *view, cen_stream stream) {
    cen_status status = view ? ceni_share_check(view->share, "wait")
                             : ceni_fail(CEN_ERR_INVALID, "wait: view is NULL");
    if (status || !view->lease->shared.flags) {
        return status;
    }
    cen_share *share = view->share;
    cen_device *device = view->import->device;
    cen_event event;
    pthread_mutex_lock(&share->lock);
    status = imported(view->lease, device, &event);
    status = status ? status : cen_stream_wait(device, stream, event);
    pthread_mutex_unlock(&share->lock);
    return status;
}
