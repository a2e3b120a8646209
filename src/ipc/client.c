/* Connecting and disconnecting. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "ipc/client_int.h"
#include "ipc/path.h"

enum { TIMEOUT_MS = 5000 };

cen_status ceni_share_check(const cen_share *share, const char *what) {
    if (!share) {
        return ceni_fail(CEN_ERR_INVALID, "%s: share is NULL", what);
    }
    if (share->pid != atomic_load_explicit(&ceni_call_pid, memory_order_relaxed)) {
        return ceni_fail(CEN_ERR_FORKED, "%s: the connection is of process %d", what, share->pid);
    }
    return CEN_OK;
}

void ceni_share_wake(cen_share *share) {
    uint64_t one = 1;
    /* It fails only where the count is at its limit, and the thread awake. */
    ssize_t written = write(share->wake, &one, sizeof one);
    (void)written;
}

cen_status ceni_share_random(uint64_t out[2]) {
    uint64_t random[2] = {0, 0};
    while (!(random[0] | random[1])) {
        if (!ceni_random(random, sizeof random)) {
            return ceni_fail(CEN_ERR_IO, "share: no random numbers: %s", strerror(errno));
        }
    }
    memcpy(out, random, sizeof random);
    return CEN_OK;
}

/* Whether what follows the last '@' reads as a version. */
static bool ends_in_version(const char *name) {
    const char *at = strrchr(name, '@');
    return at && at[1] && strspn(at + 1, "0123456789") == strlen(at + 1);
}

cen_status ceni_share_name_check(const char *what, const char *name) {
    size_t size = name ? strnlen(name, CEN_SHARE_NAME_MAX + 1) : 0;
    const char *fault = NULL;
    if (!size) {
        fault = "it is empty";
    } else if (size > CEN_SHARE_NAME_MAX) {
        fault = "it is too long";
    } else if (ceni_token_is(name) || ends_in_version(name)) {
        fault = "it reads as a token or as name@version";
    } else if (*name == '#') {
        fault = "it begins with '#', as the number of an export does";
    }
    for (size_t i = 0; !fault && i < size; i++) {
        if (name[i] <= ' ' || name[i] > '~') {
            fault = "it holds a byte that is not printable, or a space";
        }
    }
    return fault ? ceni_fail(CEN_ERR_INVALID, "%s: the name cannot be used: %s", what, fault)
                 : CEN_OK;
}

static cen_status set_label(cen_share *share) {
    const char *label = share->options.label;
    label = label ? label : program_invocation_short_name;
    snprintf(share->label, sizeof share->label, "%s", label);
    ceni_one_line(share->label);
    share->options.label = share->label;
    return CEN_OK;
}

static cen_status set_options(cen_share *share, const cen_share_options *options) {
    if (options && options->size != sizeof *options) {
        return ceni_fail(CEN_ERR_INVALID, "connect: options.size is %zu, not %zu", options->size,
                         sizeof *options);
    }
    if (options) {
        share->options = *options;
    }
    share->options.timeout_ms = share->options.timeout_ms ? share->options.timeout_ms : TIMEOUT_MS;
    cen_status status =
        share->options.no_broker
            ? CEN_OK
            : ceni_ipc_socket_path(share->options.socket, share->path, sizeof share->path);
    share->options.socket = share->path;
    return status ? status : set_label(share);
}

static cen_status get_memory(cen_share *share) {
    share->out = ceni_malloc(sizeof *share->out);
    share->in = ceni_malloc(CENI_WIRE_MAX);
    share->heard = ceni_malloc(CENI_WIRE_MAX);
    if (!share->out || !share->in || !share->heard) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "connect: out of host memory");
    }
    share->wake =
        ceni_fault(CENI_FAULT_IO) ? -1 : ceni_fd_move(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return share->wake < 0 ? ceni_fail(CEN_ERR_LIMIT, "connect: eventfd: %s", strerror(errno))
                           : CEN_OK;
}

static void free_share(cen_share *share) {
    ceni_client_hang_up(share);
    if (share->notices >= 0) {
        close(share->notices);
    }
    if (share->wake >= 0) {
        close(share->wake);
    }
    ceni_map_free(&share->exports);
    ceni_map_free(&share->named);
    ceni_map_free(&share->leases);
    ceni_map_free(&share->opened);
    ceni_map_free(&share->imports);
    while (share->told) {
        ceni_told *told = share->told;
        share->told = told->next;
        ceni_free(told);
    }
    while (share->watches) {
        ceni_watch *watch = share->watches;
        share->watches = watch->next;
        ceni_free(watch);
    }
    pthread_cond_destroy(&share->news);
    pthread_mutex_destroy(&share->lock);
    ceni_turn_destroy(&share->wire);
    ceni_free(share->out);
    ceni_free(share->in);
    ceni_free(share->heard);
    ceni_free(share);
}

static void init_locks(cen_share *share) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&share->news, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&share->lock, NULL);
    ceni_turn_init(&share->wire);
}

cen_status cen_share_connect(const cen_share_options *options, cen_share **out) {
    if (!out) {
        return ceni_fail(CEN_ERR_INVALID, "connect: share is NULL");
    }
    cen_share *share = ceni_calloc(1, sizeof *share);
    if (!share) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "connect: out of host memory");
    }
    share->pid = ceni_call_this_process();
    share->socket = share->notices = share->wake = -1;
    share->back_at = ceni_now_ns();
    share->told_end = &share->told;
    share->unsettled_end = &share->unsettled;
    atomic_init(&share->notices_fd, -1);
    init_locks(share);
    bool resumed;
    cen_status status = set_options(share, options);
    status = status ? status : get_memory(share);
    if (!status && !share->options.no_broker) {
        status = ceni_client_dial(share, &resumed);
    }
    if (!status) {
        int error = ceni_fault(CENI_FAULT_HOST_MEMORY)
                        ? EAGAIN
                        : pthread_create(&share->thread, NULL, ceni_client_thread, share);
        status =
            error ? ceni_fail(CEN_ERR_LIMIT, "connect: its thread: %s", strerror(error)) : CEN_OK;
    }
    if (status) {
        free_share(share);
        return status;
    }
    *out = share;
    return CEN_OK;
}

/* A broker that is there may not be left with what only the end of the process would end. */
static void reach_broker(cen_share *share) {
    if (!share->options.no_broker && !atomic_load(&share->connected)) {
        ceni_client_hang_up(share);
        if (ceni_client_come_back(share)) {
            ceni_log(CEN_LOG_INFO, "disconnect: there is no broker to tell");
        }
    }
}

/* Views first: their leases are told to be over before the sets are. */
static void let_go(cen_share *share) {
    pthread_mutex_lock(&share->lock);
    ceni_share_poll(share, true);
    while (share->views) {
        cen_share_view *view = share->views;
        share->views = view->next;
        ceni_import_drop(share, view->import);
        ceni_opened_drop(share, view->lease);
        ceni_free(view);
    }
    for (const cen_share_set *set = share->sets; set; set = set->next) {
        bool stays = false;
        for (ceni_offer *e = set->exports; e; e = e->next) {
            stays |= !e->withdrawn && (e->flags & (CENI_WIRE_KEEP | CENI_WIRE_ONCE));
        }
        for (ceni_offer *e = set->exports; stays && e; e = e->next) {
            if (!(e->flags & (CENI_WIRE_KEEP | CENI_WIRE_ONCE))) {
                ceni_offer_withdrawn(e);
            }
        }
        if (!stays && set->id) {
            ceni_told **drop = &((cen_share_set *)set)->drop;
            (*drop)->id = set->id;
            ceni_share_tell_later(share, drop);
        }
    }
    pthread_mutex_unlock(&share->lock);
    ceni_import_sweep(share);
    ceni_turn_take(&share->wire);
    ceni_client_flush_all(share);
    bool resumed;
    if (share->told && !share->options.no_broker) { /* the connection broke: once more over another,
                                                       if there is somebody who knows of all this */
        ceni_client_hang_up(share);
        cen_status expected = ceni_log_expect(CEN_ERR_NO_BROKER);
        if (!ceni_client_dial(share, &resumed) && resumed && !ceni_client_reconcile(share)) {
            ceni_client_flush_all(share);
        }
        ceni_log_expect(expected);
    }
    ceni_turn_give(&share->wire);
}

void cen_share_disconnect(cen_share *share) {
    if (!share || ceni_share_check(share, "disconnect")) {
        return;
    }
    atomic_store(&share->stopping, true);
    ceni_share_wake(share);
    pthread_join(share->thread, NULL);
    pthread_mutex_lock(&share->lock);
    ceni_waits_end(share);
    pthread_mutex_unlock(&share->lock);
    ceni_turn_take(&share->wire);
    reach_broker(share);
    ceni_offers_settle(share, NULL);
    ceni_turn_give(&share->wire);
    let_go(share);
    while (share->directs) {
        ceni_direct *direct = share->directs;
        share->directs = direct->next;
        close(direct->fd);
        ceni_free(direct);
    }
    while (share->sets) {
        cen_share_set *set = share->sets;
        while (set->exports) {
            ceni_offer_free(share, set->exports);
        }
        ceni_share_set_free(set);
    }
    free_share(share);
}
