/* Opening exports: what is open here already without the broker, else through it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "ipc/client_int.h"

/* While a name is waited for, how often to look whether it is there without a notice of it. */
#define LOOK_NS UINT64_C(200000000)

/* What is asked for. */
typedef struct wanted {
    cen_share *share;
    cen_device *device;
    bool write;
    ceni_token token;
    bool is_token;
    char name[CEN_SHARE_NAME_MAX + 1];
    uint64_t version; /* 0: the newest */
    bool outlasts;    /* it waits, too, for a broker that is gone */
} wanted;

static cen_status parse(const char *what, wanted *w) {
    if (ceni_token_is(what)) {
        w->is_token = true;
        cen_status status = ceni_token_read(what, &w->token);
        if (status == CEN_ERR_FORMAT) { /* an answer like any other to what names nothing */
            return CEN_ERR_NOT_FOUND;
        }
        if (!status && w->token.kind != CENI_TOKEN_EXPORT) {
            status = ceni_fail(CEN_ERR_INVALID, "open: the token is one for cen_share_legacy_open");
        }
        return status;
    }
    const char *at = strrchr(what, '@');
    size_t digits = at ? strspn(at + 1, "0123456789") : 0, size = strlen(what);
    if (digits && !at[1 + digits]) {
        errno = 0;
        w->version = strtoull(at + 1, NULL, 10);
        size = (size_t)(at - what);
        if (errno || !w->version) {
            return ceni_fail(CEN_ERR_NOT_FOUND, "open: there is no version %s", at + 1);
        }
    }
    if (size > CEN_SHARE_NAME_MAX) {
        return ceni_fail(CEN_ERR_INVALID, "open: a name has 1 to %d bytes, not %zu",
                         CEN_SHARE_NAME_MAX, size);
    }
    memcpy(w->name, what, size);
    return ceni_share_name_check("open", w->name);
}

/* ---- what is open here ---- */

static ceni_opened *find_lease(const wanted *w) {
    uint64_t *found;
    if (w->is_token) {
        found = ceni_map_get(&w->share->leases, w->token.export_id);
        ceni_opened *lease = found ? (ceni_opened *)(uintptr_t)*found : NULL;
        return lease && lease->secret[0] == w->token.secret[0] &&
                       lease->secret[1] == w->token.secret[1]
                   ? lease
                   : NULL;
    }
    if (!w->version) {
        return NULL; /* a newer one may be there */
    }
    found = ceni_map_get(&w->share->opened, ceni_name_hash(w->name, strlen(w->name), w->version));
    ceni_opened *lease = found ? (ceni_opened *)(uintptr_t)*found : NULL;
    while (lease && (lease->version != w->version || strcmp(lease->name, w->name))) {
        lease = lease->same_name;
    }
    return lease;
}

/* False: the broker must be asked. */
static bool open_here(const wanted *w, cen_share_view *view) {
    pthread_mutex_lock(&w->share->lock);
    ceni_opened *lease = find_lease(w);
    ceni_import *import = lease && !atomic_load(&lease->revoked) && (lease->write || !w->write)
                              ? ceni_import_find(w->share, lease->set, w->device, w->write)
                              : NULL;
    if (import) {
        lease->refs++;
        ceni_view_init(w->share, view, lease, import);
    }
    pthread_mutex_unlock(&w->share->lock);
    return import;
}

/* ---- through the broker; `wire` is held ---- */

static cen_status ask(const wanted *w, ceni_reply *reply) {
    ceni_wire_open *body = ceni_client_begin(w->share, CENI_WIRE_OPEN, sizeof *body);
    *body = (ceni_wire_open){.flags = CENI_WIRE_OPEN_PAGES |
                                      (w->write ? (uint32_t)CENI_WIRE_OPEN_WRITE : 0u)};
    if (w->is_token) {
        body->export_id = w->token.export_id;
        memcpy(body->token, w->token.secret, sizeof body->token);
    } else {
        body->version = w->version;
        body->name_size = (uint32_t)strlen(w->name);
        ceni_wire_add(w->share->out, w->name, body->name_size);
    }
    return ceni_client_call(w->share, NULL, 0, reply);
}

static cen_status fetch_some(cen_share *share, const ceni_opened *lease, int *fds, uint32_t first,
                             uint32_t *count) {
    ceni_wire_pages *body = ceni_client_begin(share, CENI_WIRE_PAGES, sizeof *body);
    *body = (ceni_wire_pages){.set = lease->set, .first_page = first};
    ceni_reply reply;
    cen_status status = ceni_client_call(share, NULL, 0, &reply);
    if (status) {
        return status;
    }
    const ceni_wire_pages_reply *r = reply.message.body;
    if (r->first_page != first || r->count > lease->page_count - first) {
        ceni_reply_close(&reply);
        return ceni_fail(CEN_ERR_FORMAT, "open: the broker sent other pages than were asked for");
    }
    memcpy(fds + first, reply.fds, r->count * sizeof *fds);
    *count = r->count;
    return CEN_OK;
}

/* The first pages may have come with the reply to OPEN, behind its other descriptors, which it
 * keeps. */
static uint32_t take_pages(ceni_reply *opened, const ceni_opened *lease, int *fds) {
    const ceni_wire_open_reply *body = opened->message.body;
    unsigned others =
        !!(body->flags & CENI_WIRE_DIRECTORY_FD) + !!(body->flags & CENI_WIRE_EVENT_FD);
    uint32_t count = opened->fd_count - others;
    count = count < lease->page_count ? count : lease->page_count;
    memcpy(fds, opened->fds + others, count * sizeof *fds);
    for (uint32_t i = 0; i < count; i++) {
        opened->fds[others + i] = -1;
    }
    return count;
}

static cen_status fetch_pages(cen_share *share, const ceni_opened *lease, ceni_reply *opened,
                              int *fds) {
    uint32_t have = take_pages(opened, lease, fds), came = 0;
    while (have < lease->page_count) {
        cen_status status = fetch_some(share, lease, fds, have, &came);
        if (status) {
            ceni_fd_close_all(fds, have);
            return status;
        }
        have += came;
        ceni_ipc_step("client: some pages came");
    }
    return CEN_OK;
}

/* The first import of a set. */
static cen_status import_set(const wanted *w, const ceni_opened *lease, ceni_reply *opened,
                             ceni_import **out) {
    cen_status status = ceni_import_reaches(w->device, lease->uuid);
    if (status) {
        return status;
    }
    int *fds = ceni_malloc(lease->page_count * sizeof *fds);
    if (!fds) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "open: no memory for %u pages",
                         (unsigned)lease->page_count);
    }
    /* A process of the set's user keeps the descriptors, to tell a new broker of them. */
    bool keep = lease->owner_uid == geteuid();
    ceni_import *import = NULL;
    status = fetch_pages(w->share, lease, opened, fds);
    if (!status) {
        status = ceni_import_map(w->device, w->write, lease, fds, keep, &import);
        if (status || !keep) {
            ceni_fd_close_all(fds, lease->page_count);
        }
    }
    if (status || !keep) {
        ceni_free(fds);
    }
    if (status) {
        return status;
    }
    pthread_mutex_lock(&w->share->lock);
    status = ceni_import_add(w->share, import);
    pthread_mutex_unlock(&w->share->lock);
    if (status) {
        ceni_import_free(import);
        return status;
    }
    *out = import;
    return CEN_OK;
}

/* The lease that the reply gives, with a reference, and the set if it is mapped. */
static cen_status note_lease(const wanted *w, ceni_reply *reply, ceni_opened **out,
                             ceni_import **import) {
    cen_share *share = w->share;
    const ceni_wire_open_reply *body = reply->message.body;
    pthread_mutex_lock(&share->lock);
    uint64_t *found = ceni_map_get(&share->leases, body->export_id);
    ceni_opened *lease = found ? (ceni_opened *)(uintptr_t)*found : NULL;
    if (lease) {
        lease->refs++;
    }
    pthread_mutex_unlock(&share->lock);
    bool is_new = !lease;
    cen_status status = is_new ? ceni_opened_new(reply, &lease) : CEN_OK;
    if (status) {
        return status;
    }
    pthread_mutex_lock(&share->lock);
    if (is_new) {
        lease->refs = 1;
        status = ceni_opened_add(share, lease);
        lease->instance = body->orphan ? 0 : share->instance;
        /* One that ended since the request was queued to be told: the broker now has this one. */
        ceni_share_untell(share, CENI_WIRE_CLOSE, lease->id);
    }
    if (!status) {
        lease->write |= body->write;
        *import = ceni_import_find(share, lease->set, w->device, w->write);
        *out = lease;
    }
    pthread_mutex_unlock(&share->lock);
    if (status) {
        ceni_opened_free(lease);
    }
    return status;
}

static cen_status open_there(const wanted *w, cen_share_view *view) {
    cen_share *share = w->share;
    ceni_reply reply;
    ceni_opened *lease = NULL;
    ceni_import *import = NULL;
    ceni_client_flush(share);
    cen_status status = ask(w, &reply);
    if (status) {
        return status;
    }
    uint64_t id = ((const ceni_wire_open_reply *)reply.message.body)->export_id;
    status = note_lease(w, &reply, &lease, &import);
    if (status) { /* it may not stay open there */
        ceni_reply_close(&reply);
        (void)ceni_client_tell(share, CENI_WIRE_CLOSE, id);
        return status;
    }
    if (!import) {
        status = import_set(w, lease, &reply, &import);
    }
    ceni_reply_close(&reply);
    pthread_mutex_lock(&share->lock);
    if (status) {
        ceni_opened_drop(share, lease);
    } else {
        ceni_view_init(share, view, lease, import);
    }
    pthread_mutex_unlock(&share->lock);
    return status;
}

static cen_status try_open(const wanted *w, cen_share_view *view) {
    ceni_turn_take(&w->share->wire);
    cen_status status = open_there(w, view);
    ceni_turn_give(&w->share->wire);
    return status;
}

/* ---- waiting for a name, or for the broker ----
 *
 * OPEN itself can wait, but a connection has one request at a time: others' would wait with it. So
 * the name is watched meanwhile, and asked for again when its notice comes. */

static struct timespec timespec_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}

/* Waits until something is published, or, since what is announced again after a restart of the
 * broker is no news, for a while. False: the time is over. */
static bool wait_news(cen_share *share, uint64_t seen, uint64_t end_ns) {
    uint64_t now = ceni_now_ns(), look = now + LOOK_NS;
    const struct timespec until = timespec_of(look < end_ns ? look : end_ns);
    int error = 0;
    pthread_mutex_lock(&share->lock);
    while (share->news_count == seen && error != ETIMEDOUT) {
        error = pthread_cond_timedwait(&share->news, &share->lock, &until);
    }
    pthread_mutex_unlock(&share->lock);
    return now < end_ns;
}

static uint64_t news_seen(cen_share *share) {
    pthread_mutex_lock(&share->lock);
    uint64_t seen = share->news_count;
    pthread_mutex_unlock(&share->lock);
    return seen;
}

/* Watches the name, then tries. While there is no connection, which the thread makes again, nothing
 * is asked. */
static cen_status try_watching(const wanted *w, bool *watched, cen_share_view *view) {
    cen_share *share = w->share;
    if (w->outlasts && !atomic_load(&share->connected)) {
        return CEN_ERR_NO_BROKER;
    }
    if (!*watched && !w->is_token) {
        cen_status expected = ceni_log_expect(w->outlasts ? CEN_ERR_NO_BROKER : CEN_OK);
        cen_status status = ceni_share_watch_hold(share, w->name, true);
        ceni_log_expect(expected);
        if (status) {
            return status;
        }
        *watched = true;
    }
    cen_status expected = ceni_log_expect(CEN_ERR_NOT_FOUND);
    cen_status status = try_open(w, view);
    ceni_log_expect(expected);
    return status;
}

static cen_status time_is_over(const wanted *w, cen_status status, uint32_t wait_ms) {
    if (status == CEN_ERR_NO_BROKER) {
        return ceni_fail(status, "open: the broker at %s did not come back within %u ms",
                         w->share->path, (unsigned)wait_ms);
    }
    return w->is_token
               ? ceni_fail(status,
                           "open: nothing of that token was there within %u ms, in which the "
                           "broker came back",
                           (unsigned)wait_ms)
               : ceni_fail(status, "open: '%s' was not published within %u ms", w->name,
                           (unsigned)wait_ms);
}

/* A token's export is published, so it is waited for only where the broker was gone: its publisher
 * may have to come back, too. */
static cen_status open_waiting(const wanted *w, uint32_t wait_ms, cen_share_view *view) {
    uint64_t end = ceni_now_ns() + (uint64_t)wait_ms * 1000000;
    bool watched = false, gone = false, waits;
    cen_status status;
    do {
        uint64_t seen = news_seen(w->share);
        status = try_watching(w, &watched, view);
        bool lacks_broker = w->outlasts && status == CEN_ERR_NO_BROKER;
        if (lacks_broker && !gone) {
            gone = true;
            ceni_log(CEN_LOG_INFO, "open: the broker at %s is gone: waiting for it",
                     w->share->path);
        }
        waits = lacks_broker || (status == CEN_ERR_NOT_FOUND && (gone || !w->is_token));
        if (waits && !wait_news(w->share, seen, end)) {
            status = time_is_over(w, status, wait_ms);
            waits = false;
        }
    } while (waits);
    if (watched && ceni_share_watch_hold(w->share, w->name, false)) {
        ceni_log(CEN_LOG_DEBUG, "open: the broker was not told that '%s' is waited for no more",
                 w->name);
    }
    return status;
}

cen_status cen_share_open(cen_share *share, cen_device *device, const char *what, unsigned flags,
                          uint32_t wait_ms, cen_share_view **out) {
    cen_status status = ceni_share_check(share, "open");
    if (!status && (!device || !what || !out)) {
        status = ceni_fail(CEN_ERR_INVALID, "open: %s is NULL",
                           !device ? "device"
                           : !what ? "what"
                                   : "view");
    }
    if (!status && flags & ~(unsigned)CEN_SHARE_WRITE) {
        status = ceni_fail(CEN_ERR_INVALID, "open: unknown flags %#x", flags);
    }
    wanted w = {.share = share, .device = device, .write = flags & CEN_SHARE_WRITE};
    status = status ? status : parse(what, &w);
    if (status) {
        return status;
    }
    cen_share_view *view = ceni_malloc(sizeof *view);
    if (!view) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "open: out of host memory");
    }
    if (!open_here(&w, view)) {
        bool waits = wait_ms && !w.is_token;
        /* In a notice it is the thread that asks, and nobody else finds the broker. */
        w.outlasts = wait_ms && !share->options.no_broker && !ceni_client_is_thread(share);
        cen_status expected = ceni_log_expect(waits ? CEN_ERR_NOT_FOUND : CEN_OK);
        bool gone = w.outlasts && !atomic_load(&share->connected);
        status = gone ? CEN_ERR_NO_BROKER : try_open(&w, view);
        ceni_log_expect(expected);
        if ((waits && status == CEN_ERR_NOT_FOUND) || (w.outlasts && status == CEN_ERR_NO_BROKER)) {
            status = open_waiting(&w, wait_ms, view);
        }
    }
    if (status) {
        ceni_free(view);
        return status;
    }
    *out = view;
    return CEN_OK;
}
