/* Events that order readers behind a writer in another process. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
        if (synced) {
            ceni_log(CEN_LOG_INFO,
                     "export: the device shares no events here: waiting for the stream");
            status = CEN_OK;
        }
    }
    return status || !synced ? status : cen_stream_sync(device, stream);
}

/* ---- exports of this process ----
 *
 * A driver opens no event in the process that made it. The table is of all connections: one may
 * open what another exports. */

static pthread_mutex_t local_lock = PTHREAD_MUTEX_INITIALIZER;
static ceni_map local; /* id -> ceni_offer */
static pthread_once_t local_once = PTHREAD_ONCE_INIT;

static void lock_local(void) {
    pthread_mutex_lock(&local_lock);
}

static void unlock_local(void) {
    pthread_mutex_unlock(&local_lock);
}

static void watch_forks(void) {
    pthread_atfork(lock_local, unlock_local, unlock_local);
}

bool ceni_wait_local(const ceni_opened *lease, cen_device *device, cen_stream stream,
                     cen_status *status) {
    pthread_once(&local_once, watch_forks);
    lock_local();
    uint64_t *found = ceni_map_get(&local, lease->id);
    const ceni_offer *export = found ? (const ceni_offer *)(uintptr_t)*found : NULL;
    /* Not one of the process that this one was forked from. */
    bool here =
        export && !memcmp(export->secret, lease->secret, sizeof lease->secret) &&
        export->set->share->pid == atomic_load_explicit(&ceni_call_pid, memory_order_relaxed);
    if (here) {
        *status = cen_stream_wait(device, stream, export->event);
    }
    unlock_local();
    return here;
}

/* ---- whether their work is complete; `lock` is held ---- */

enum { LOOKS_MOST = 64 }; /* at exports in one turn of the thread */

static void link_unsettled(cen_share *share, ceni_offer *export) {
    export->unsettled = true;
    export->unsettled_next = NULL;
    *share->unsettled_end = export;
    share->unsettled_end = &export->unsettled_next;
    share->unsettled_count++;
}

static void unlink_unsettled(cen_share *share, ceni_offer *export) {
    ceni_offer **link = &share->unsettled;
    while (*link != export) {
        link = &(*link)->unsettled_next;
    }
    *link = export->unsettled_next;
    share->unsettled_end = *link ? share->unsettled_end : link;
    share->unsettled_count--;
    export->unsettled = false;
}

void ceni_offer_unsettled(cen_share *share, ceni_offer *export) {
    lock_local();
    /* Without memory for the note it is waited for as another process's. */
    (void)ceni_map_put(&local, export->id, (uint64_t)(uintptr_t) export);
    unlock_local();
    export->cleared = false;
    if (!export->unsettled) {
        link_unsettled(share, export);
        ceni_share_wake(share);
    }
}

void ceni_offer_forget_event(cen_share *share, ceni_offer *export) {
    if (!export->event) {
        return;
    }
    lock_local();
    (void)ceni_map_remove(&local, export->id, NULL);
    if (!local.count) {
        ceni_map_free(&local);
    }
    unlock_local();
    if (export->unsettled) {
        unlink_unsettled(share, export);
    }
}

static cen_status look(const ceni_offer *export, bool wait) {
    cen_status expected = ceni_log_expect(CEN_ERR_CAPTURE);
    cen_status status = wait ? cen_event_sync(export->set->device, export->event)
                             : ceni_dev_event_peek(export->set->device, export->event);
    ceni_log_expect(expected);
    return status;
}

/* One whose work is complete, of the set if one is given; with `wait`, which waits for it. It is
 * off the list, as are those whose work will never be. NULL: none was found. */
static ceni_offer *take_settled(cen_share *share, const cen_share_set *set, bool wait) {
    size_t looks = share->unsettled_count;
    for (looks = wait || looks < LOOKS_MOST ? looks : LOOKS_MOST; share->unsettled && looks;
         looks--) {
        ceni_offer *export = share->unsettled;
        cen_status status = CEN_ERR_NOT_READY;
        unlink_unsettled(share, export);
        if (!set || export->set == set) {
            status = look(export, wait);
        }
        if (!status) {
            return export;
        }
        if (!ceni_is_loss(status)) {
            link_unsettled(share, export); /* to the end */
        }
    }
    return NULL;
}

/* ---- telling ---- */

void ceni_direct_tell(ceni_direct *direct, uint8_t what) {
    /* If it cannot be said, its reader finds out by the event, or by this process's end. */
    (void)send(direct->fd, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    direct->marked = what == CENI_DIRECT_MARKED;
}

/* Each direct lease is told of the first completion and of the first mark: no more than its socket
 * holds, whether anybody reads it or not. `lock` is held. */
static void tell_directs(cen_share *share, const ceni_offer *export, uint8_t what) {
    for (ceni_direct *d = share->directs; d; d = d->next) {
        if (d->export == export && !d->marked) {
            ceni_direct_tell(d, what);
        }
    }
}

/* Tells the broker of an export's event: none, or that one. `wire` is held. */
static cen_status tell_broker(cen_share *share, uint64_t id, const ceni_shared_event *shared) {
    ceni_wire_event *body = ceni_client_begin(share, CENI_WIRE_EVENT, sizeof *body);
    *body = (ceni_wire_event){.export_id = id,
                              .flags = shared ? shared->flags : (uint32_t)CENI_WIRE_EVENT_CLEAR};
    if (shared) {
        memcpy(body->event, shared->token, sizeof body->event);
    }
    ceni_reply reply;
    cen_status status = ceni_client_call(share, shared ? &shared->fd : NULL,
                                         shared && shared->fd >= 0 ? 1 : 0, &reply);
    if (!status) {
        ceni_reply_close(&reply);
    }
    return status;
}

/* What the broker was not told. `lock` is held. */
static void untold(cen_share *share, uint64_t id) {
    ceni_offer *export = ceni_offer_find(share, id);
    if (export && export->cleared) {
        ceni_offer_unsettled(share, export);
    }
}

/* Tells that an export's work is complete. False: nothing is left to be told, or nobody is there
 * to hear it. `wire` is held. */
static bool settle_one(cen_share *share, const cen_share_set *set, bool wait) {
    pthread_mutex_lock(&share->lock);
    ceni_offer *export = take_settled(share, set, wait);
    uint64_t id = export ? export->id : 0;
    if (export) {
        export->cleared = true;
        tell_directs(share, export, CENI_DIRECT_DONE);
    }
    pthread_mutex_unlock(&share->lock);
    if (!export || share->options.no_broker) {
        return export;
    }
    ceni_ipc_step("client: before it tells that work is complete");
    cen_status expected = ceni_log_expect(CEN_ERR_NOT_FOUND); /* it is over already */
    (void)tell_broker(share, id, NULL);
    ceni_log_expect(expected);
    if (!atomic_load(&share->connected)) {
        pthread_mutex_lock(&share->lock);
        untold(share, id);
        pthread_mutex_unlock(&share->lock);
        return false;
    }
    return true;
}

void ceni_offers_poll(cen_share *share) {
    pthread_mutex_lock(&share->lock);
    bool heard = share->options.no_broker || atomic_load(&share->connected);
    ceni_offer *export = heard ? take_settled(share, NULL, false) : NULL;
    if (export) { /* first again: it is taken when no mark can come between */
        export->unsettled_next = share->unsettled;
        share->unsettled_end = share->unsettled ? share->unsettled_end : &export->unsettled_next;
        share->unsettled = export;
        share->unsettled_count++;
        export->unsettled = true;
    }
    pthread_mutex_unlock(&share->lock);
    if (export) {
        ceni_turn_take(&share->wire);
        while (settle_one(share, NULL, false)) {
        }
        ceni_turn_give(&share->wire);
    }
}

void ceni_offers_settle(cen_share *share, const cen_share_set *set) {
    while (settle_one(share, set, true)) {
    }
    pthread_mutex_lock(&share->lock);
    for (ceni_direct *d = share->directs; d; d = d->next) {
        if ((!set || d->export->set == set) && d->export->cleared) {
            ceni_direct_tell(d, CENI_DIRECT_DONE);
        }
    }
    pthread_mutex_unlock(&share->lock);
}

static cen_status mark_event(cen_device *device, cen_event event, cen_stream stream) {
    bool capturing = false;
    cen_status status = cen_stream_capturing(device, stream, &capturing);
    if (!status && capturing) { /* what the graph's work is remains to be seen */
        status = ceni_fail(CEN_ERR_CAPTURE, "mark: the stream is capturing");
    }
    return status ? status : cen_event_record(device, event, stream);
}

cen_status cen_share_mark(cen_share *share, uint64_t export_id, cen_stream stream) {
    cen_status status = ceni_share_check(share, "mark");
    if (status) {
        return status;
    }
    ceni_shared_event shared = {.fd = -1};
    bool tell = false, sync = false;
    ceni_turn_take(&share->wire);
    pthread_mutex_lock(&share->lock);
    ceni_offer *export = ceni_offer_find(share, export_id);
    cen_device *device = export ? export->set->device : NULL;
    bool has_event = export && export->event;
    if (!export) {
        status =
            ceni_fail(CEN_ERR_NOT_FOUND, "mark: this connection exports no %#" PRIx64, export_id);
    } else if (has_event) {
        status = mark_event(device, export->event, stream);
    }
    if (!status && has_event) {
        tell = export->cleared && !share->options.no_broker;
        shared = export->shared;
        if (tell && shared.fd >= 0) {
            shared.fd = fcntl(shared.fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
            sync = shared.fd < 0;
        }
        ceni_offer_unsettled(share, export);
        tell_directs(share, export, CENI_DIRECT_MARKED);
    }
    pthread_mutex_unlock(&share->lock);
    if (tell && !sync) { /* readers who have no event must hear of it, or have no need of it */
        cen_status expected = ceni_log_expect(CEN_ERR_NO_BROKER);
        sync = tell_broker(share, export_id, &shared);
        ceni_log_expect(expected);
        ceni_shared_event_close(&shared);
    }
    ceni_turn_give(&share->wire);
    return !status && (sync || !has_event) ? cen_stream_sync(device, stream) : status;
}
