/* The connection's thread: does what waited for streams, tells the broker what is queued, hears its
 * notices, and finds it again. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ipc/client_int.h"

enum {
    POLL_NS = 1000000, /* between looks at streams that are not done */
    RETRY_MIN_MS = 100,
    RETRY_MAX_MS = 2000
};
#define NO_RETRY 0

void ceni_share_tell_later(cen_share *share, ceni_told **told) {
    ceni_told *moved = *told;
    *told = NULL;
    moved->next = NULL;
    moved->number = ++share->told_number;
    if (moved->type != CENI_WIRE_CLOSE) {
        share->told_ordered = moved->number;
    }
    *share->told_end = moved;
    share->told_end = &moved->next;
    ceni_share_wake(share);
}

void ceni_share_untell(cen_share *share, enum ceni_wire_type type, uint64_t id) {
    ceni_told **link = &share->told;
    while (*link && ((*link)->type != type || (*link)->id != id)) {
        link = &(*link)->next;
    }
    ceni_told *told = *link;
    if (told) {
        *link = told->next;
        share->told_end = told->next ? share->told_end : link;
        ceni_free(told);
    }
}

cen_status ceni_work_begin(ceni_work *work, const char *what, cen_device *device,
                           cen_stream stream) {
    bool capturing = false;
    cen_event event = 0;
    cen_status status = cen_stream_capturing(device, stream, &capturing);
    if (!status && capturing) {
        return ceni_fail(CEN_ERR_CAPTURE, "%s: the stream is capturing", what);
    }
    status = status ? status : cen_event_create(device, 0, &event);
    if (!status) {
        status = cen_event_record(device, event, stream);
        if (status) {
            (void)cen_event_destroy(device, event);
            event = 0;
        }
    }
    if (status && !ceni_is_loss(status)) {
        return status;
    }
    work->device = device; /* a lost device does no more work */
    work->event = event;
    return CEN_OK;
}

void ceni_work_queue(cen_share *share, ceni_work *work) {
    bool first = !share->works;
    work->next = share->works;
    share->works = work;
    if (first) {
        ceni_share_wake(share);
    }
}

static bool work_is_done(ceni_work *work, bool wait) {
    if (!work->event) {
        return true;
    }
    cen_status expected = ceni_log_expect(CEN_ERR_CAPTURE);
    cen_status status = wait ? cen_event_sync(work->device, work->event)
                             : ceni_dev_event_peek(work->device, work->event);
    ceni_log_expect(expected);
    if (!wait && (status == CEN_ERR_NOT_READY || status == CEN_ERR_CAPTURE)) {
        return false;
    }
    (void)cen_event_destroy(work->device, work->event);
    work->event = 0;
    return true;
}

void ceni_share_poll(cen_share *share, bool wait) {
    ceni_work *done = NULL;
    for (ceni_work **link = &share->works; *link;) {
        ceni_work *work = *link;
        if (work_is_done(work, wait)) {
            *link = work->next;
            work->next = done;
            done = work;
        } else {
            link = &work->next;
        }
    }
    while (done) {
        ceni_work *work = done;
        done = work->next;
        work->done(share, work);
    }
}

/* ---- notices ---- */

static void give_notice(const cen_share *share, cen_share_notice_kind kind, uint64_t id,
                        uint64_t version, const char *name) {
    cen_share_notice notice = {kind, id, version, name};
    if (share->options.notice) {
        share->options.notice(share->options.notice_arg, &notice);
    }
}

/* What a notice changes here. False: it does not fit what is known here. `lock` is held; last: so
 * is `wire`, and it will not fit better. */
static bool apply(cen_share *share, const ceni_wire_notice *n, bool last) {
    ceni_opened *lease = NULL;
    ceni_offer *export = ceni_offer_find(share, n->export_id);
    uint64_t *found = ceni_map_get(&share->leases, n->export_id);
    lease = found ? (ceni_opened *)(uintptr_t)*found : NULL;
    switch (n->kind) {
    case CEN_SHARE_NEW_VERSION:
        share->news_count++;
        pthread_cond_broadcast(&share->news);
        return true;
    case CEN_SHARE_REVOKED:
        if (lease) {
            atomic_store(&lease->revoked, true);
        }
        return lease;
    case CENI_WIRE_NOTICE_WITHDRAWN:
        if (lease) {
            lease->withdrawn = true;
        }
        if (export) {
            export->withdrawn = true;
        }
        return lease || export;
    case CENI_WIRE_NOTICE_EVENT:
        if (lease) {
            atomic_store(&lease->ask, true);
        }
        return lease;
    case CEN_SHARE_PUBLISHER_GONE:
        if (lease) {
            lease->orphan = true;
        }
        return lease;
    case CEN_SHARE_IDLE:
        if (export && (export->withdrawn || last)) { /* of an open one no broker should say so */
            bool unclean = n->unclean || !export->withdrawn;
            export->withdrawn = export->idle = true;
            ceni_offer_idle(share, export, unclean);
            return true;
        }
        return false;
    default:
        return true;
    }
}

static void hear(cen_share *share, const ceni_wire_message *message) {
    const ceni_wire_notice *n = message->body;
    char name[CEN_SHARE_NAME_MAX + 1] = "";
    memcpy(name, message->name, message->name_size);
    pthread_mutex_lock(&share->lock);
    bool known = apply(share, n, false);
    pthread_mutex_unlock(&share->lock);
    if (!known) { /* the request that it came after may not be through yet */
        ceni_turn_take(&share->wire);
        pthread_mutex_lock(&share->lock);
        (void)apply(share, n, true);
        pthread_mutex_unlock(&share->lock);
        ceni_turn_give(&share->wire);
    }
    /* Of the broker's end its socket tells. */
    if (n->kind != CEN_SHARE_BROKER_GONE && n->kind != CEN_SHARE_BROKER_BACK &&
        n->kind != CENI_WIRE_NOTICE_WITHDRAWN && n->kind != CENI_WIRE_NOTICE_EVENT) {
        give_notice(share, (cen_share_notice_kind)n->kind, n->export_id, n->version, name);
    }
}

/* Hears all that came. False: the socket is of no use any more. */
static bool hear_all(cen_share *share) {
    for (;;) {
        int fds[CENI_WIRE_FDS];
        unsigned count = 0;
        size_t size;
        ceni_wire_message message;
        atomic_store(&share->hearing, true);
        cen_status status =
            ceni_wire_receive(share->notices, share->heard, &size, fds, &count, true);
        if (status == CEN_ERR_NOT_READY) {
            atomic_store(&share->hearing, false);
            return true;
        }
        for (unsigned i = 0; !status && i < count; i++) {
            close(fds[i]);
        }
        status =
            status ? status : ceni_wire_check(share->heard, size, 0, CENI_WIRE_NOTIFY, &message);
        if (status) {
            return false;
        }
        hear(share, &message);
    }
}

/* ---- leases given over sockets ---- */

/* False: the lease has ended. */
static bool hear_direct(cen_share *share, ceni_direct *direct) {
    uint8_t byte = 0;
    ssize_t got = recv(direct->fd, &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    bool unclean = got != 1 || byte != CENI_DIRECT_CLOSED;
    ceni_offer *export = direct->export;
    export->direct--;
    ceni_offer_idle(share, export, unclean);
    close(direct->fd);
    ceni_free(direct);
    return false;
}

/* ---- the loop ---- */

typedef struct loop {
    uint64_t retry_at; /* when to look for the broker again; 0: it is there, or there is none */
    unsigned retry_ms;
    struct pollfd *fds;
    size_t capacity;
} loop;

/* What came before the connection ended counts. */
static void hear_the_rest(cen_share *share) {
    if (share->notices >= 0) {
        (void)hear_all(share);
        close(share->notices);
        share->notices = -1;
    }
}

static void hang_up(cen_share *share, loop *l) {
    ceni_turn_take(&share->wire);
    ceni_client_hang_up(share);
    ceni_turn_give(&share->wire);
    hear_the_rest(share);
    atomic_store(&share->hearing, false);
    l->retry_ms = RETRY_MIN_MS;
    l->retry_at = ceni_now_ns() + (uint64_t)RETRY_MIN_MS * 1000000;
    ceni_log(CEN_LOG_WARN, "share: the broker at %s is gone; what is mapped stays", share->path);
    give_notice(share, CEN_SHARE_BROKER_GONE, 0, 0, "");
}

/* What the broker would have told of events meanwhile is not known. `lock` is held. */
static void doubt_events(cen_share *share) {
    for (size_t i = 0; i < share->leases.capacity; i++) {
        const ceni_map_slot *slot = &share->leases.slots[i];
        if (slot->used) {
            atomic_store(&((ceni_opened *)(uintptr_t)slot->value)->doubt, true);
        }
    }
}

static void look_for_broker(cen_share *share, loop *l) {
    ceni_turn_take(&share->wire);
    cen_status status = ceni_client_come_back(share);
    ceni_turn_give(&share->wire);
    if (status) {
        hear_the_rest(share);
        l->retry_ms = l->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : l->retry_ms * 2;
        l->retry_at = ceni_now_ns() + (uint64_t)l->retry_ms * 1000000;
        return;
    }
    l->retry_at = NO_RETRY;
    pthread_mutex_lock(&share->lock);
    share->news_count++;
    share->back_at = ceni_now_ns();
    doubt_events(share);
    pthread_cond_broadcast(&share->news);
    pthread_mutex_unlock(&share->lock);
    ceni_log(CEN_LOG_INFO, "share: the broker at %s is back", share->path);
    give_notice(share, CEN_SHARE_BROKER_BACK, 0, 0, "");
}

/* What to poll: the eventfd, both sockets, those of direct leases. `lock` is held. */
static size_t gather(cen_share *share, loop *l) {
    size_t count = 3;
    for (const ceni_direct *d = share->directs; d; d = d->next) {
        count++;
    }
    /* Without memory those that do not fit are looked at another time. */
    if (ceni_grow(&l->fds, &l->capacity, count, sizeof *l->fds)) {
        count = l->capacity < count ? l->capacity : count;
    }
    if (count < 3) {
        return 0;
    }
    l->fds[0] = (struct pollfd){.fd = share->wake, .events = POLLIN};
    l->fds[1] = (struct pollfd){.fd = share->socket};
    l->fds[2] = (struct pollfd){.fd = share->notices, .events = POLLIN};
    size_t i = 3;
    for (const ceni_direct *d = share->directs; d && i < count; d = d->next) {
        l->fds[i++] = (struct pollfd){.fd = d->fd, .events = POLLIN};
    }
    return count;
}

/* Until something must be looked after, in nanoseconds; UINT64_MAX: nothing. `lock` is held. */
static uint64_t timeout_of(const cen_share *share, const loop *l) {
    uint64_t now = ceni_now_ns(), timeout = ceni_waits_pause(share, now);
    bool settles = share->options.no_broker || atomic_load(&share->connected);
    if ((share->works || (share->unsettled && settles)) && POLL_NS < timeout) {
        timeout = POLL_NS;
    }
    uint64_t retry = !l->retry_at ? UINT64_MAX : now >= l->retry_at ? 0 : l->retry_at - now;
    return retry < timeout ? retry : timeout;
}

static void pause_for(struct pollfd *fds, size_t count, uint64_t ns) {
    const struct timespec limit = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    (void)ppoll(fds, count, ns == UINT64_MAX ? NULL : &limit, NULL);
}

static void do_directs(cen_share *share) {
    pthread_mutex_lock(&share->lock);
    for (ceni_direct **link = &share->directs; *link;) {
        ceni_direct *direct = *link, *next = direct->next;
        if (hear_direct(share, direct)) {
            link = &direct->next;
        } else {
            *link = next;
        }
    }
    pthread_mutex_unlock(&share->lock);
}

static void flush(cen_share *share) {
    pthread_mutex_lock(&share->lock);
    bool any = share->told;
    pthread_mutex_unlock(&share->lock);
    if (any && atomic_load(&share->connected)) {
        ceni_turn_take(&share->wire);
        ceni_client_flush_all(share);
        ceni_turn_give(&share->wire);
    }
}

static void turn(cen_share *share, loop *l) {
    pthread_mutex_lock(&share->lock);
    ceni_share_poll(share, false);
    bool directs = share->directs;
    size_t count = gather(share, l);
    uint64_t timeout = timeout_of(share, l);
    bool told = share->told && atomic_load(&share->connected);
    pthread_mutex_unlock(&share->lock);
    ceni_import_sweep(share);
    if (!count) { /* out of memory: try again soon */
        pause_for(NULL, 0, POLL_NS);
        return;
    }
    pause_for(l->fds, count, told ? 0 : timeout);
    uint64_t drained;
    while (read(share->wake, &drained, sizeof drained) > 0) {
    }
    bool gone =
        share->socket >= 0 && ((l->fds[2].revents && !hear_all(share)) || l->fds[1].revents);
    if (gone) {
        hang_up(share, l);
    }
    if (directs) {
        do_directs(share);
    }
    flush(share);
    ceni_offers_poll(share);
    ceni_waits_poll(share);
    if (l->retry_at && ceni_now_ns() >= l->retry_at && !atomic_load(&share->stopping)) {
        look_for_broker(share, l);
    }
}

static _Thread_local const cen_share *of_this_thread;

bool ceni_client_is_thread(const cen_share *share) {
    return of_this_thread == share;
}

void *ceni_client_thread(void *arg) {
    cen_share *share = arg;
    of_this_thread = share;
    loop l = {.retry_at = NO_RETRY};
    while (!atomic_load(&share->stopping)) {
        turn(share, &l);
    }
    ceni_free(l.fds);
    return NULL;
}
