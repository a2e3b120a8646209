/* Streams that wait for work of another process.
 *
 * Where such waits end when that process dies (the host backend), the stream waits for the event
 * itself. On CUDA they do not: the stream would hang for ever, and its device could not be closed.
 * There a host function blocks the stream until the connection's thread sees that the event is
 * complete, hears from the broker that it is (the only way where the event cannot be opened: that
 * of another user, say), or finds that the exporter has ended. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ipc/client_int.h"

#define US 1000u
#define MS 1000000u
enum {
    LOOK_MIN_NS = 50 * US, /* between looks at an event; more for one that takes longer */
    LOOK_MAX_NS = 1 * MS,
    ASK_MIN_NS = 2 * MS, /* between questions to the broker */
    ASK_MAX_NS = 100 * MS
};
#define ANNOUNCE_NS                                                                                \
    ((uint64_t)5000 * MS) /* until a publisher has told a new broker of its sets                   \
                           */

struct ceni_wait {
    ceni_wait *next; /* of the connection */
    /* The thread's; `lock` of the connection is held. */
    ceni_opened *lease; /* with a reference */
    cen_device *device;
    uint64_t since, ask_at;
    /* The host function's, too: the connection may be gone when it is called. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over;
    unsigned refs;
};

/* ---- the host function ---- */

static void unref(ceni_wait *wait) {
    pthread_mutex_lock(&wait->lock);
    bool last = !--wait->refs;
    pthread_mutex_unlock(&wait->lock);
    if (last) {
        pthread_cond_destroy(&wait->changed);
        pthread_mutex_destroy(&wait->lock);
        ceni_free(wait);
    }
}

static void block(void *arg) {
    ceni_wait *wait = arg;
    pthread_mutex_lock(&wait->lock);
    while (!wait->over) {
        pthread_cond_wait(&wait->changed, &wait->lock);
    }
    pthread_mutex_unlock(&wait->lock);
    unref(wait);
}

/* Takes it off the list and lets its stream go on. `lock` is held. */
static void end(cen_share *share, ceni_wait *wait) {
    ceni_wait **link = &share->waits;
    while (*link != wait) {
        link = &(*link)->next;
    }
    *link = wait->next;
    ceni_opened_drop(share, wait->lease); /* its device may be closed once the stream goes on */
    pthread_mutex_lock(&wait->lock);
    wait->over = true;
    pthread_cond_signal(&wait->changed);
    pthread_mutex_unlock(&wait->lock);
    unref(wait);
}

void ceni_waits_end(cen_share *share) {
    if (share->waits) {
        ceni_log(CEN_LOG_WARN, "disconnect: streams that wait for other processes go on");
    }
    while (share->waits) {
        end(share, share->waits);
    }
}

/* ---- what is known of the work ---- */

enum outlook { PENDING = 0, DONE, LOST };

/* The event as `device` knows it, imported once; 0: it cannot be. `lock` is held. */
static cen_status import_event(ceni_opened *lease, cen_device *device, cen_event *event) {
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
    bool may_fail = !device->backend->foreign_waits_end;
    cen_status expected = ceni_log_expect(may_fail ? CEN_ERR_DEVICE : CEN_OK);
    cen_status status = ceni_dev_event_import(device, &token, lease->shared.fd, &made->event);
    ceni_log_expect(expected);
    if (status && (!may_fail || ceni_is_loss(status))) {
        ceni_free(made);
        return status;
    }
    made->device = device;
    made->next = lease->events;
    lease->events = made;
    *event = made->event;
    return CEN_OK;
}

/* What the sender of a direct lease has said, and whether it is there. `lock` is held. */
static void hear_sender(ceni_opened *lease) {
    uint8_t said;
    ssize_t got;
    while ((got = recv(lease->direct, &said, 1, MSG_DONTWAIT)) == 1) {
        lease->done = said == CENI_DIRECT_DONE;
        lease->marked |= said == CENI_DIRECT_MARKED;
    }
    lease->orphan |= !got || (errno != EAGAIN && errno != EINTR);
}

static enum outlook query(cen_device *device, cen_event event) {
    cen_status expected = ceni_log_expect(CEN_ERR_CAPTURE);
    cen_status status = ceni_dev_event_peek(device, event);
    ceni_log_expect(expected);
    return !status ? DONE : ceni_is_loss(status) ? LOST : PENDING;
}

/* What can be told without the broker. *ask: it may know more. `lock` is held. */
static enum outlook look(const cen_share *share, ceni_opened *lease, cen_device *device,
                         bool *ask) {
    cen_event event = 0;
    *ask = false;
    if (lease->shared.flags && import_event(lease, device, &event)) {
        return LOST; /* its own device is, and logged */
    }
    enum outlook outlook = event ? query(device, event) : PENDING;
    if (lease->direct < 0) {
        if (!lease->shared.flags && !atomic_load(&lease->ask) && !atomic_load(&share->connected)) {
            return DONE; /* what is marked while nobody can hear it is complete at once */
        }
        *ask = outlook == PENDING && (!event || lease->orphan) && atomic_load(&share->connected);
        return outlook;
    }
    hear_sender(lease); /* after the look: it is the last word of who has ended */
    if (outlook == PENDING && (!event || lease->orphan) && lease->done) {
        return DONE;
    }
    bool blind = !event && lease->marked; /* of new work its end is not told */
    return outlook == PENDING && (lease->orphan || blind) ? LOST : outlook;
}

/* Asks the broker for the lease's event, which is noted. `wire` is held. */
static cen_status ask_event(cen_share *share, ceni_opened *lease, bool *none) {
    ceni_wire_event *body = ceni_client_begin(share, CENI_WIRE_EVENT, sizeof *body);
    *body = (ceni_wire_event){.export_id = lease->id};
    ceni_reply reply;
    /* What is told from here on is told of later work. */
    bool ask = atomic_exchange(&lease->ask, false);
    bool doubt = atomic_exchange(&lease->doubt, false);
    cen_status status = ceni_client_call(share, NULL, 0, &reply);
    if (status) {
        if (ask) {
            atomic_store(&lease->ask, true);
        }
        if (doubt) {
            atomic_store(&lease->doubt, true);
        }
        return status;
    }
    const ceni_wire_event *r = reply.message.body;
    pthread_mutex_lock(&share->lock);
    *none = !r->flags;
    lease->done = *none;
    if (!*none && !lease->shared.flags) {
        lease->shared.flags = r->flags;
        memcpy(lease->shared.token, r->event, sizeof lease->shared.token);
        if (reply.fd_count) {
            lease->shared.fd = reply.fds[0];
            reply.fd_count = 0;
        }
    }
    pthread_mutex_unlock(&share->lock);
    ceni_reply_close(&reply);
    return CEN_OK;
}

/* A new broker's word counts only once the publisher has told it of the set. */
static bool knows(const cen_share *share, const ceni_opened *lease) {
    return lease->orphan || lease->instance == share->instance;
}

/* What the broker says. `wire` is held. */
static enum outlook ask_broker(cen_share *share, ceni_opened *lease) {
    bool none = false, told = atomic_load(&lease->ask);
    cen_status expected = ceni_log_expect(CEN_ERR_NOT_FOUND);
    cen_status status = ask_event(share, lease, &none);
    ceni_log_expect(expected);
    pthread_mutex_lock(&share->lock);
    enum outlook outlook = PENDING;
    /* Nor does it matter what there was before, if this process never heard of any. */
    bool counts = knows(share, lease) || (!lease->shared.flags && !told);
    if (!counts && told) {
        atomic_store(&lease->ask, true);
    }
    if (atomic_load(&share->connected) && counts) {
        if (!status && none) {
            outlook = DONE;
        } else if (lease->orphan) { /* what was seen of it here is all that is known */
            outlook = lease->shared.flags && !lease->done ? LOST : DONE;
        } else if (status && !lease->shared.flags) {
            outlook = DONE; /* it is over, and there was no work to wait for */
        }
    }
    pthread_mutex_unlock(&share->lock);
    return outlook;
}

/* `lock` is held. */
static cen_status lose(ceni_opened *lease) {
    if (!lease->lost) {
        lease->lost = true;
        ceni_log(CEN_LOG_WARN,
                 "wait: the process that exported %#llx ended before its work was done; streams "
                 "that waited go on, and the contents are what they are",
                 (unsigned long long)lease->id);
    }
    return CEN_ERR_DEVICE_LOST;
}

/* ---- the thread ---- */

static uint64_t interval(uint64_t waited, uint64_t min, uint64_t max) {
    uint64_t part = waited / 8;
    return part < min ? min : part > max ? max : part;
}

uint64_t ceni_waits_pause(const cen_share *share, uint64_t now) {
    uint64_t pause = UINT64_MAX;
    for (const ceni_wait *w = share->waits; w; w = w->next) {
        uint64_t each = interval(now - w->since, LOOK_MIN_NS, LOOK_MAX_NS);
        pause = each < pause ? each : pause;
    }
    return pause;
}

/* Settles one; false: nothing was to be done. *ask: one of which the broker may know more. */
static bool poll_one(cen_share *share, uint64_t now, ceni_wait **ask) {
    for (ceni_wait *w = share->waits; w; w = w->next) {
        bool asks;
        enum outlook outlook = w->lease->lost ? LOST : look(share, w->lease, w->device, &asks);
        if (outlook == PENDING && asks && now >= w->ask_at) {
            *ask = w;
            return true;
        }
        if (outlook != PENDING) {
            if (outlook == LOST) {
                (void)lose(w->lease);
            }
            end(share, w);
            return true;
        }
    }
    return false;
}

/* Only this thread ends waits: what it found is there without the lock, too. */
static void ask_for(cen_share *share, ceni_wait *wait) {
    ceni_turn_take(&share->wire);
    enum outlook outlook = ask_broker(share, wait->lease);
    ceni_turn_give(&share->wire);
    pthread_mutex_lock(&share->lock);
    uint64_t now = ceni_now_ns();
    wait->ask_at = now + interval(now - wait->since, ASK_MIN_NS, ASK_MAX_NS);
    if (outlook == LOST) {
        (void)lose(wait->lease);
    }
    if (outlook != PENDING) {
        end(share, wait);
    }
    pthread_mutex_unlock(&share->lock);
}

/* After a restart of the broker: whether the publishers have come back. */
static void find_publishers(cen_share *share, uint64_t now) {
    bool late = now - share->back_at >= ANNOUNCE_NS;
    cen_share_list *list = NULL;
    ceni_turn_take(&share->wire);
    cen_status status = ceni_client_list(share, &list);
    ceni_turn_give(&share->wire);
    if (status) {
        return; /* the connection broke, and is made again */
    }
    pthread_mutex_lock(&share->lock);
    for (ceni_wait *w = share->waits; w; w = w->next) {
        bool there = false;
        for (size_t i = 0; i < list->set_count; i++) {
            there |= list->sets[i].id == w->lease->set && list->sets[i].publisher;
        }
        w->lease->instance = there ? share->instance : w->lease->instance;
        w->lease->orphan |= !there && late && w->lease->direct < 0;
    }
    pthread_mutex_unlock(&share->lock);
    cen_share_list_free(list);
}

void ceni_waits_poll(cen_share *share) {
    ceni_wait *ask = NULL;
    bool found, unknown = false;
    uint64_t now = ceni_now_ns();
    do {
        ask = NULL;
        pthread_mutex_lock(&share->lock);
        found = poll_one(share, now, &ask);
        pthread_mutex_unlock(&share->lock);
        if (ask) {
            ask_for(share, ask);
        }
    } while (found);
    pthread_mutex_lock(&share->lock);
    for (const ceni_wait *w = share->waits; w; w = w->next) {
        unknown |= w->lease->direct < 0 && !knows(share, w->lease);
    }
    pthread_mutex_unlock(&share->lock);
    if (unknown && atomic_load(&share->connected) && now >= share->look_at) {
        share->look_at = now + ASK_MAX_NS;
        find_publishers(share, now);
    }
}

/* ---- waiting ---- */

/* Blocks the stream until the thread says that the wait is over. */
static cen_status block_stream(cen_share *share, ceni_opened *lease, cen_device *device,
                               cen_stream stream) {
    ceni_wait *wait = ceni_malloc(sizeof *wait);
    if (!wait) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "wait: out of host memory");
    }
    *wait = (ceni_wait){.lease = lease, .device = device, .since = ceni_now_ns(), .refs = 2};
    pthread_mutex_init(&wait->lock, NULL);
    pthread_cond_init(&wait->changed, NULL);
    pthread_mutex_lock(&share->lock);
    lease->refs++;
    wait->next = share->waits;
    share->waits = wait;
    pthread_mutex_unlock(&share->lock);
    ceni_share_wake(share);
    cen_status status = cen_host_func(device, stream, block, wait);
    if (status) { /* the thread ends it when it is over; nobody waits */
        unref(wait);
    }
    return status;
}

/* Whether the broker must be asked about an export that came without an event: it has told of one,
 * or may have, in a notice that the thread has not applied yet. */
static bool may_be_marked(cen_share *share, const ceni_opened *lease) {
    struct pollfd notices = {.fd = atomic_load(&share->notices_fd), .events = POLLIN};
    return lease->direct < 0 && (poll(&notices, 1, 0) > 0 || atomic_load(&share->hearing) ||
                                 atomic_load(&lease->ask) || atomic_load(&lease->doubt));
}

/* A lease with an event, or of which the broker may know one. */
static cen_status wait_foreign(cen_share *share, ceni_opened *lease, cen_device *device,
                               cen_stream stream) {
    bool ask = false;
    cen_event event = 0;
    pthread_mutex_lock(&share->lock);
    enum outlook outlook = lease->lost ? LOST : PENDING;
    if (lease->direct >= 0) {
        hear_sender(lease);
    }
    bool known = lease->direct >= 0 || lease->instance;
    bool by_itself = device->backend->foreign_waits_end && known && !lease->orphan && !lease->lost;
    if (!outlook && (!by_itself || !lease->shared.flags)) {
        outlook = look(share, lease, device, &ask);
    }
    pthread_mutex_unlock(&share->lock);
    if (outlook == PENDING && ask) {
        ceni_turn_take(&share->wire);
        outlook = ask_broker(share, lease);
        ceni_turn_give(&share->wire);
    }
    if (outlook == DONE) {
        return CEN_OK;
    }
    cen_status status = CEN_OK;
    pthread_mutex_lock(&share->lock);
    if (outlook == LOST) {
        status = lose(lease);
    } else if (by_itself && lease->shared.flags) {
        status = import_event(lease, device, &event);
        status = status ? status : cen_stream_wait(device, stream, event);
    }
    pthread_mutex_unlock(&share->lock);
    return status || event ? status : block_stream(share, lease, device, stream);
}

cen_status cen_share_wait(cen_share_view *view, cen_stream stream) {
    cen_status status = view ? ceni_share_check(view->share, "wait")
                             : ceni_fail(CEN_ERR_INVALID, "wait: view is NULL");
    if (status) {
        return status;
    }
    cen_share *share = view->share;
    ceni_opened *lease = view->lease;
    cen_device *device = view->import->device;
    bool capturing = false;
    status = cen_stream_capturing(device, stream, &capturing);
    if (!status && capturing) {
        status = ceni_fail(CEN_ERR_CAPTURE, "wait: the stream is capturing");
    }
    if (status || ceni_wait_local(lease, device, stream, &status)) {
        return status;
    }
    pthread_mutex_lock(&share->lock);
    bool has_event = lease->shared.flags;
    pthread_mutex_unlock(&share->lock);
    return has_event || may_be_marked(share, lease) ? wait_foreign(share, lease, device, stream)
                                                    : CEN_OK;
}
