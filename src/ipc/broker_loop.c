/* The event loop: connections come, send, and end. Nothing is freed while events are handled that
 * may speak of it: what ends is doomed, and closed afterwards. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "ipc/broker_int.h"
#include "ipc/step.h"

enum {
    EVENTS = 256,
    ACCEPTS = 64,          /* connections taken at a time: those that are here get their turn */
    HELLO_MS = 5000,       /* for a new connection to say who it is */
    STRANGERS_MAX = 64,    /* connections of a user that have not */
    LISTEN_AGAIN_MS = 100, /* after descriptors ran out altogether */
    VERIFY_EVERY = 16,     /* in debug builds */
    VERIFY_ITEMS = 200
};

void ceni_peer_watch(ceni_peer *peer, enum ceni_event what, int fd, uint32_t events, bool first) {
    struct epoll_event e = {.events = events, .data.u64 = (uintptr_t)peer | (unsigned)what};
    if (epoll_ctl(peer->broker->epoll, first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &e)) {
        ceni_peer_doom(peer, "it cannot be waited for");
    }
}

void ceni_peer_doom(ceni_peer *peer, const char *why) {
    if (peer->doomed) {
        return;
    }
    peer->doomed = true;
    peer->next_doomed = peer->broker->doomed;
    peer->broker->doomed = peer;
    if (why) {
        ceni_log(CEN_LOG_WARN, "broker: process %d of user %" PRIu32 " is cut off: %s", peer->pid,
                 peer->uid, why);
    }
}

static void close_sent(const ceni_peer *peer, const int *fds, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        ceni_closer_close(peer->broker->closer, peer->uid, fds[i]);
    }
}

/* The client may have the same file open, and the kernel would go on waiting for it. That it was
 * not waited for yet is no failure. */
static void unwatch(const ceni_peer *peer, int fd) {
    if (fd >= 0) {
        (void)epoll_ctl(peer->broker->epoll, EPOLL_CTL_DEL, fd, NULL);
    }
}

static void close_connection(ceni_peer *peer) {
    int *const sockets[] = {&peer->socket, &peer->notice};
    for (size_t i = 0; i < 2; i++) {
        unwatch(peer, *sockets[i]);
        ceni_closer_hang_up(peer->broker->closer, peer->uid, *sockets[i]);
        *sockets[i] = -1;
    }
}

static void enlist(ceni_peers *list, ceni_peer *peer) {
    peer->list = list;
    peer->prev = list->last;
    peer->next = NULL;
    *(list->last ? &list->last->next : &list->first) = peer;
    list->last = peer;
}

static void delist(ceni_peer *peer) {
    *(peer->prev ? &peer->prev->next : &peer->list->first) = peer->next;
    *(peer->next ? &peer->next->prev : &peer->list->last) = peer->prev;
}

/* ---- ends ---- */

static void peer_free(ceni_peer *peer) {
    close_connection(peer);
    unwatch(peer, peer->pidfd);
    ceni_closer_close(peer->broker->closer, peer->uid, peer->pidfd);
    ceni_peer_drop_reply(peer);
    ceni_free(peer->queue);
    delist(peer);
    ceni_free(peer);
}

/* The connection is over; the peer stays while its process has something open. */
static void peer_end(ceni_peer *peer) {
    bool over = !peer->greeted;
    if (peer->greeted && peer->dead) {
        ceni_ipc_step("broker: a client is dead");
        ceni_state_dead(peer->broker->state, peer->client);
        over = true;
    } else if (peer->greeted && peer->socket >= 0) {
        ceni_ipc_step("broker: a client hung up");
        over = ceni_state_hangup(peer->broker->state, peer->client);
    }
    if (over) {
        peer_free(peer);
        return;
    }
    close_connection(peer);
    ceni_peer_drop_reply(peer);
    peer->doomed = false;
}

static void end_doomed(cen_broker *b) {
    while (b->doomed) { /* an end may doom others */
        ceni_peer *peer = b->doomed;
        b->doomed = peer->next_doomed;
        peer_end(peer);
    }
}

void ceni_broker_close_all(cen_broker *broker) {
    ceni_peers *const lists[] = {&broker->strangers, &broker->known};
    for (size_t i = 0; i < 2; i++) {
        while (lists[i]->first) {
            peer_free(lists[i]->first);
        }
    }
}

/* ---- requests ---- */

static void refuse(ceni_peer *peer, cen_status status, const char *why) {
    ceni_wire_head head;
    memcpy(&head, peer->broker->in, sizeof head);
    ceni_wire_fail(&peer->broker->out, head.type, head.seq, status, why);
    ceni_broker_reply(peer->broker, peer, &peer->broker->out, NULL, 0);
}

static void cut_off(ceni_peer *peer, cen_status status, const char *why) {
    refuse(peer, status, why);
    ceni_peer_doom(peer, why);
}

/* The other end of a socket pair, to write notices to. */
static bool is_notice_socket(int fd) {
    int domain = -1, type = -1;
    socklen_t size = sizeof domain;
    return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) &&
           !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && domain == AF_UNIX &&
           type == SOCK_SEQPACKET;
}

/* The state gave an earlier connection's client to this one. */
static void take_over(ceni_peer *peer, ceni_peer *before) {
    if (peer->pidfd < 0 && before->pidfd >= 0) {
        peer->pidfd = before->pidfd;
        before->pidfd = -1;
        ceni_peer_watch(peer, CENI_EVENT_DEATH, peer->pidfd, EPOLLIN, false);
    }
    before->greeted = false;
    ceni_peer_doom(before, NULL);
}

/* Whether the user may send files: those that came before can be closed. */
static bool has_room(ceni_peer *peer) {
    char why[160];
    size_t count = ceni_closer_count(peer->broker->closer, peer->uid);
    if (count <= peer->broker->closing_max) {
        return true;
    }
    snprintf(why, sizeof why,
             "%zu files that user %" PRIu32 " sent cannot be closed, as who serves them does not "
             "answer: no more are taken",
             count, peer->uid);
    cut_off(peer, CEN_ERR_LIMIT, why);
    return false;
}

static void greet(ceni_peer *peer, const ceni_wire_message *m, int *fds, unsigned count) {
    cen_broker *b = peer->broker;
    ceni_state_identity identity;
    uint32_t *groups;
    if (m->head.type != CENI_WIRE_HELLO || !is_notice_socket(fds[0])) {
        cut_off(peer, CEN_ERR_INVALID,
                m->head.type == CENI_WIRE_HELLO ? "HELLO came without a seqpacket socket"
                                                : "the first message has to be HELLO");
        close_sent(peer, fds, count);
        return;
    }
    peer->notice = fds[0];
    if (!has_room(peer)) {
        close_sent(peer, fds + 1, count - 1);
        return;
    }
    if (ceni_peer_identify(peer, count > 1 ? fds[1] : -1, &identity, &groups)) {
        cut_off(peer, CEN_ERR_IO, cen_log_last_error());
        return;
    }
    void *before;
    cen_status status = ceni_state_hello(b->state, peer, &identity, m, &peer->client, &before);
    ceni_free(groups);
    if (status) {
        ceni_peer_doom(peer, cen_status_text(status));
        return;
    }
    if (before && !ceni_peer_take_notices(peer, before)) {
        ceni_peer_doom(peer, "no memory for its notices");
    }
    peer->greeted = true;
    delist(peer);
    enlist(&b->known, peer);
    ceni_ipc_step("broker: greeted");
    ceni_peer_watch(peer, CENI_EVENT_NOTICE, peer->notice,
                    peer->queue_size ? (uint32_t)EPOLLOUT : 0, true);
    if (peer->pidfd >= 0) {
        ceni_peer_watch(peer, CENI_EVENT_DEATH, peer->pidfd, EPOLLIN, true);
    }
    if (before) {
        take_over(peer, before);
    }
}

static void handle(ceni_peer *peer, size_t size, int *fds, unsigned count) {
    cen_broker *b = peer->broker;
    ceni_wire_message m;
    if (ceni_wire_check(b->in, size, count, CENI_WIRE_REQUEST, &m)) {
        close_sent(peer, fds, count);
        cut_off(peer, CEN_ERR_FORMAT, cen_log_last_error());
        return;
    }
    if (!peer->greeted) {
        greet(peer, &m, fds, count);
        return;
    }
    if (count && !has_room(peer)) {
        close_sent(peer, fds, count);
        return;
    }
    if (!ceni_peer_has_read(peer)) {
        close_sent(peer, fds, count);
        cut_off(peer, CEN_ERR_INVALID, "it asks again before it has read a reply");
        return;
    }
    ceni_state_request(b->state, peer->client, &m, fds, count);
    if (!peer->doomed && !peer->reply && ceni_state_waits(b->state, peer->client)) {
        ceni_peer_watch(peer, CENI_EVENT_SOCKET, peer->socket, 0, false);
        peer->stopped = true;
    }
}

static void close_one(void *arg, int fd) {
    close_sent(arg, &fd, 1);
}

static void receive(ceni_peer *peer) {
    cen_broker *b = peer->broker;
    int fds[CENI_WIRE_FDS];
    unsigned count = 0;
    size_t size = 0;
    memset(b->in, 0, sizeof(ceni_wire_head));
    const ceni_wire_bin bin = {.close = close_one, .arg = peer};
    cen_status status = ceni_wire_receive_into(peer->socket, b->in, &size, fds, &count, &bin);
    switch (status) {
    case CEN_OK:
        handle(peer, size, fds, count);
        break;
    case CEN_ERR_NOT_READY:
        break;
    case CEN_ERR_NO_BROKER:
        ceni_peer_doom(peer, NULL);
        break;
    case CEN_ERR_LIMIT: /* no fault of the client's: it may try again */
        refuse(peer, status, "the broker has no room for more descriptors");
        break;
    default:
        cut_off(peer, status, cen_log_last_error());
    }
}

/* ---- new connections ---- */

static bool too_many(const cen_broker *b, uint32_t uid) {
    unsigned count = 0;
    for (const ceni_peer *p = b->strangers.first; p; p = p->next) {
        count += p->uid == uid;
    }
    return count > STRANGERS_MAX; /* it is among them */
}

static void welcome(cen_broker *b, int socket) {
    ceni_peer *peer = socket < 0 ? NULL : ceni_calloc(1, sizeof *peer);
    if (!peer) {
        ceni_fd_close_foreign(socket);
        return;
    }
    peer->broker = b;
    peer->socket = socket;
    peer->notice = peer->pidfd = -1;
    peer->since_ms = b->now;
    enlist(&b->strangers, peer);
    if (!ceni_peer_credentials(peer)) {
        ceni_peer_doom(peer, "its user is not known here");
    } else if (too_many(b, peer->uid)) {
        ceni_peer_doom(peer, "too many connections of its user have not said HELLO");
    } else {
        ceni_peer_watch(peer, CENI_EVENT_SOCKET, socket, EPOLLIN, true);
    }
}

static void listen_to(cen_broker *b, bool on) {
    struct epoll_event e = {.events = on ? (uint32_t)EPOLLIN : 0, .data.u64 = (uintptr_t)b};
    b->listening = on;
    b->listen_again = b->now + LISTEN_AGAIN_MS;
    (void)epoll_ctl(b->epoll, EPOLL_CTL_MOD, b->listener, &e); /* it was added: it is there */
}

/* No descriptor is left: the spare one makes room to refuse a connection, which else would come
 * again and again. */
static void refuse_connection(cen_broker *b) {
    if (b->spare >= 0) {
        close(b->spare);
        b->spare = -1;
    }
    int socket = accept4(b->listener, NULL, NULL, SOCK_CLOEXEC);
    if (socket >= 0) {
        ceni_wire_fail(&b->out, CENI_WIRE_HELLO, 0, CEN_ERR_LIMIT,
                       "the broker has no descriptors left (LimitNOFILE= of its unit)");
        (void)recv(socket, b->in, sizeof b->in, MSG_DONTWAIT); /* a close would drop the reply */
        (void)ceni_wire_send(socket, &b->out, NULL, 0, true);
        ceni_fd_close_foreign(socket);
        ceni_log(CEN_LOG_WARN, "broker: a connection is refused: no descriptors are left");
    }
    b->spare = ceni_fd_move(epoll_create1(EPOLL_CLOEXEC));
    if (socket < 0 || b->spare < 0) {
        listen_to(b, false);
    }
}

static void accept_some(cen_broker *b) {
    for (unsigned i = 0; i < ACCEPTS && b->listening; i++) {
        int socket = accept4(b->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0) {
            welcome(b, ceni_fd_move(socket));
        } else if (errno == EMFILE || errno == ENFILE) {
            refuse_connection(b);
        } else if (errno == ENOMEM || errno == ENOBUFS) {
            listen_to(b, false);
        } else if (errno != ECONNABORTED && errno != EINTR) {
            break;
        }
    }
}

/* ---- events ---- */

static void on_socket(ceni_peer *peer, uint32_t events) {
    if (events & EPOLLIN && !peer->reply) {
        receive(peer);
    } else if (events & EPOLLOUT && peer->reply) {
        ceni_peer_send_more(peer);
    } else if (events & (EPOLLHUP | EPOLLERR)) {
        ceni_peer_doom(peer, NULL);
    }
}

static void on_notice(ceni_peer *peer, uint32_t events) {
    if (events & (EPOLLHUP | EPOLLERR)) {
        ceni_peer_doom(peer, NULL);
    } else if (events & EPOLLOUT) {
        ceni_peer_notice_more(peer);
    }
}

static void on_event(cen_broker *b, const struct epoll_event *e) {
    if (e->data.u64 == 0) { /* the wake: looked at by the loop */
        return;
    }
    if (e->data.u64 == (uintptr_t)b) {
        accept_some(b);
        return;
    }
    ceni_peer *peer = (ceni_peer *)(uintptr_t)(e->data.u64 & ~(uint64_t)CENI_EVENT_MASK);
    switch ((enum ceni_event)(e->data.u64 & CENI_EVENT_MASK)) {
    case CENI_EVENT_DEATH:
        peer->dead = true;
        ceni_peer_doom(peer, NULL);
        break;
    case CENI_EVENT_SOCKET:
        if (!peer->doomed) {
            on_socket(peer, e->events);
        }
        break;
    default:
        if (!peer->doomed) {
            on_notice(peer, e->events);
        }
    }
}

static void tick(cen_broker *b) {
    b->now = ceni_now_ns() / 1000000;
    ceni_state_now(b->state, b->now);
    ceni_state_tick(b->state);
    if (!b->listening && b->now >= b->listen_again) {
        if (b->spare < 0) {
            b->spare = ceni_fd_move(epoll_create1(EPOLL_CLOEXEC));
        }
        listen_to(b, true);
    }
    for (ceni_peer *p = b->strangers.first; p && b->now - p->since_ms >= HELLO_MS; p = p->next) {
        ceni_peer_doom(p, "it has not said HELLO");
    }
    end_doomed(b);
}

/* For epoll_wait: until the next that is due. */
static int timeout(const cen_broker *b) {
    uint64_t due = ceni_state_deadline(b->state);
    const ceni_peer *stranger = b->strangers.first;
    if (stranger && stranger->since_ms + HELLO_MS < due) {
        due = stranger->since_ms + HELLO_MS;
    }
    if (!b->listening && b->listen_again < due) {
        due = b->listen_again;
    }
    if (due == UINT64_MAX) {
        return -1;
    }
    uint64_t now = ceni_now_ns() / 1000000;
    uint64_t left = due > now ? due - now : 0;
    return left < INT_MAX ? (int)left : INT_MAX;
}

#ifdef CENI_DEBUG
static void verify_often(cen_broker *b) {
    ceni_state_counts c = ceni_state_count(b->state);
    if (++b->batches % VERIFY_EVERY == 0 &&
        c.clients + c.sets + c.exports + c.leases < VERIFY_ITEMS) {
        (void)ceni_state_verify(b->state); /* logs what is wrong */
    }
}
#endif

cen_status ceni_broker_loop(cen_broker *b) {
    struct epoll_event events[EVENTS];
    while (!atomic_load(&b->stop)) {
        int count = epoll_wait(b->epoll, events, EVENTS, timeout(b));
        if (count < 0 && errno != EINTR) {
            return ceni_fail(CEN_ERR_IO, "broker: epoll_wait: %s", strerror(errno));
        }
        tick(b);
        for (int i = 0; i < count; i++) {
            on_event(b, &events[i]);
        }
        end_doomed(b);
#ifdef CENI_DEBUG
        verify_often(b);
#endif
    }
    return CEN_OK;
}
