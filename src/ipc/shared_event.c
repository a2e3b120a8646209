/* Events that order readers behind a writer in another process. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
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

/* An event that only a token names goes with its process: then there is nothing to wait for. `lock`
 * is held. */
static bool is_over(const ceni_opened *lease) {
    return !lease->shared.flags || (lease->orphan && lease->shared.fd < 0);
}

static cen_status try_wait(cen_share *share, const cen_share_view *view, cen_stream stream) {
    ceni_opened *lease = view->lease;
    cen_device *device = view->import->device;
    cen_event event;
    cen_status status = CEN_OK;
    pthread_mutex_lock(&share->lock);
    const ceni_offer *own = lease->direct < 0 ? ceni_offer_find(share, lease->id) : NULL;
    if (own && own->event) { /* the driver imports none of its own process's */
        status = cen_stream_wait(device, stream, own->event);
    } else if (!is_over(lease)) {
        status = imported(lease, device, &event);
        status = status ? status : cen_stream_wait(device, stream, event);
    }
    pthread_mutex_unlock(&share->lock);
    return status;
}

/* Whether nobody publishes the lease's set any more, as the broker or the sender's socket says. */
static bool ask_orphan(cen_share *share, ceni_opened *lease) {
    cen_share_list *list;
    char byte;
    bool orphan = lease->direct >= 0 && !recv(lease->direct, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    pthread_mutex_lock(&share->wire);
    if (lease->direct < 0 && !ceni_client_list(share, &list)) {
        for (size_t i = 0; i < list->set_count; i++) {
            orphan |= list->sets[i].id == lease->set && !list->sets[i].publisher;
        }
        cen_share_list_free(list);
    }
    pthread_mutex_lock(&share->lock);
    lease->orphan |= orphan;
    pthread_mutex_unlock(&share->lock);
    pthread_mutex_unlock(&share->wire);
    return orphan;
}

cen_status cen_share_wait(cen_share_view *view, cen_stream stream) {
    cen_status status = view ? ceni_share_check(view->share, "wait")
                             : ceni_fail(CEN_ERR_INVALID, "wait: view is NULL");
    if (status || !view->lease->shared.flags) {
        return status;
    }
    ceni_opened *lease = view->lease;
    bool token_only = lease->shared.fd < 0;
    cen_status expected = ceni_log_expect(token_only ? CEN_ERR_DEVICE : CEN_OK);
    status = try_wait(view->share, view, stream);
    ceni_log_expect(expected);
    if (status != CEN_ERR_DEVICE || !token_only) {
        return status;
    }
    if (ask_orphan(view->share, lease)) {
        return CEN_OK;
    }
    return ceni_fail(CEN_ERR_UNSUPPORTED,
                     "wait: the exporter's event cannot be reached, as across users; let it export "
                     "with `synced`");
}
