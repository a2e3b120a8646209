/* Requests to the broker, one at a time, in the caller's thread. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "ipc/client_int.h"

void ceni_reply_close(ceni_reply *reply) {
    for (unsigned i = 0; i < reply->fd_count; i++) {
        if (reply->fds[i] >= 0) {
            close(reply->fds[i]);
        }
    }
    reply->fd_count = 0;
}

void ceni_client_lose(cen_share *share) {
    /* The thread has it in its poll, hears of this, and closes it. */
    if (share->socket >= 0) {
        shutdown(share->socket, SHUT_RDWR);
    }
    atomic_store(&share->connected, false);
    ceni_share_wake(share);
}

static cen_status not_connected(const cen_share *share) {
    return share->options.no_broker
               ? ceni_fail(CEN_ERR_NO_BROKER, "share: the connection is one without a broker")
               : ceni_fail(CEN_ERR_NO_BROKER, "share: the broker at %s is gone; looking for it",
                           share->path);
}

void *ceni_client_begin(cen_share *share, enum ceni_wire_type type, size_t body_size) {
    return ceni_wire_begin(share->out, type, ++share->seq, body_size);
}

static uint64_t deadline(const cen_share *share) {
    return ceni_now_ns() + (uint64_t)share->options.timeout_ms * 1000000;
}

/* A broker that is stopped costs a disconnect no more than one timeout. */
static void fell_silent(cen_share *share) {
    share->silent = atomic_load(&share->stopping);
}

/* Waits until the reply can be read. */
static cen_status wait_reply(cen_share *share, int socket, uint64_t end) {
    for (;;) {
        struct pollfd poll_fd = {.fd = socket, .events = POLLIN};
        int ready = poll(&poll_fd, 1, ceni_poll_ms(ceni_now_ns(), end));
        if (ready > 0) {
            return CEN_OK;
        }
        if (ready < 0 && errno != EINTR) {
            return ceni_fail(CEN_ERR_IO, "share: waiting for the broker: %s", strerror(errno));
        }
        if (!ready && ceni_now_ns() >= end) {
            fell_silent(share);
            return ceni_fail(CEN_ERR_IO, "share: the broker at %s did not answer for %u ms",
                             share->path, (unsigned)share->options.timeout_ms);
        }
    }
}

/* The reply of the request in share->out, whatever it says. */
static cen_status exchange(cen_share *share, int socket, const int *fds, unsigned count,
                           uint64_t end, ceni_reply *reply, bool *usable) {
    ceni_wire_head asked;
    size_t size = 0;
    memcpy(&asked, share->out->data, sizeof asked);
    *usable = false;
    ceni_ipc_step("client: before a request");
    cen_status status = ceni_wire_send(socket, share->out, fds, count, false);
    if (status) {
        *usable = status == CEN_ERR_INVALID || status == CEN_ERR_LIMIT;
        if (status == CEN_ERR_NOT_READY) {
            fell_silent(share);
            status = ceni_fail(CEN_ERR_IO, "share: the broker at %s takes no request", share->path);
        }
        return status;
    }
    ceni_ipc_step("client: after a request");
    status = wait_reply(share, socket, end);
    if (!status) {
        status = ceni_wire_receive(socket, share->in, &size, reply->fds, &reply->fd_count, true);
        *usable = status == CEN_ERR_LIMIT;
    }
    if (status) {
        return status == CEN_ERR_NOT_READY
                   ? ceni_fail(CEN_ERR_IO, "share: the broker's reply is no message")
                   : status;
    }
    ceni_ipc_step("client: after a reply");
    status = ceni_wire_check(share->in, size, reply->fd_count, CENI_WIRE_REPLY, &reply->message);
    if (!status &&
        (reply->message.head.seq != asked.seq || reply->message.head.type != asked.type)) {
        status = ceni_fail(CEN_ERR_FORMAT, "share: the broker answered what was not asked");
    }
    *usable = !status;
    return status;
}

static cen_status refused(const ceni_reply *reply) {
    cen_status status = (cen_status)reply->message.head.status;
    return ceni_fail(status, "share: the broker: %s",
                     reply->message.why ? reply->message.why : cen_status_text(status));
}

cen_status ceni_client_call(cen_share *share, const int *fds, unsigned count, ceni_reply *reply) {
    bool usable;
    reply->fd_count = 0;
    if (!atomic_load(&share->connected)) {
        return not_connected(share);
    }
    cen_status status = exchange(share, share->socket, fds, count, deadline(share), reply, &usable);
    if (!usable) {
        share->unsure = true;
        ceni_client_lose(share);
    }
    if (status == CEN_ERR_NO_BROKER) {
        status = not_connected(share);
    }
    if (!status && reply->message.head.status) {
        status = refused(reply);
    }
    if (status) {
        ceni_reply_close(reply);
    }
    return status;
}

cen_status ceni_client_tell(cen_share *share, enum ceni_wire_type type, uint64_t id) {
    ceni_wire_id *body = ceni_client_begin(share, type, sizeof *body);
    body->id = id;
    ceni_reply reply;
    cen_status status = ceni_client_call(share, NULL, 0, &reply);
    if (!status) {
        ceni_reply_close(&reply);
    }
    return status;
}

/* Sends those up to `last`, which is read with `lock` held. */
static void flush_until(cen_share *share, const uint64_t *last) {
    pthread_mutex_lock(&share->lock);
    const uint64_t until = *last;
    pthread_mutex_unlock(&share->lock);
    for (unsigned sent = 1;; sent++) {
        pthread_mutex_lock(&share->lock);
        ceni_told *told = share->told;
        bool over = !told || told->number > until;
        pthread_mutex_unlock(&share->lock);
        if (over || !atomic_load(&share->connected)) {
            return;
        }
        /* That it is over already, or not known any more, is as good. */
        cen_status expected = ceni_log_expect(CEN_ERR_NOT_FOUND);
        (void)ceni_client_tell(share, told->type, told->id);
        ceni_log_expect(expected);
        if (!atomic_load(&share->connected)) {
            return; /* it is told, or void, when the broker is back */
        }
        pthread_mutex_lock(&share->lock);
        share->told = told->next;
        share->told_end = share->told ? share->told_end : &share->told;
        pthread_mutex_unlock(&share->lock);
        ceni_free(told);
        if (sent % CENI_FLUSH_MOST == 0) {
            ceni_turn_give(&share->wire);
            ceni_turn_take(&share->wire);
        }
    }
}

void ceni_client_flush(cen_share *share) {
    flush_until(share, &share->told_ordered);
}

void ceni_client_flush_all(cen_share *share) {
    flush_until(share, &share->told_number);
}

/* ---- the connection ---- */

static void forget_socket(int *fd) {
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void ceni_client_hang_up(cen_share *share) {
    atomic_store(&share->connected, false);
    atomic_store(&share->notices_fd, -1);
    forget_socket(&share->socket);
    if (share->notices >= 0) { /* what the broker sends from now on it will send again */
        shutdown(share->notices, SHUT_RDWR);
    }
}

static cen_status dial_failed(cen_share *share, int error) {
    switch (error) {
    case EAGAIN:
        fell_silent(share);
        return ceni_fail(CEN_ERR_IO, "share: the broker at %s takes no connection", share->path);
    case ENOENT:
    case ECONNREFUSED:
        return ceni_fail(CEN_ERR_NO_BROKER, "share: no broker listens at %s: start `cenote serve`",
                         share->path);
    case EACCES:
    case EPERM:
        return ceni_fail(CEN_ERR_PERMISSION, "share: %s may not be used: %s", share->path,
                         strerror(error));
    case EMFILE:
    case ENFILE:
        return ceni_fail(CEN_ERR_LIMIT, "share: a socket: %s", strerror(error));
    default:
        return ceni_fail(CEN_ERR_IO, "share: connecting to %s: %s", share->path, strerror(error));
    }
}

static cen_status open_socket(cen_share *share, int *out) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = share->options.timeout_ms / 1000,
                            .tv_usec = share->options.timeout_ms % 1000 * 1000};
    memcpy(address.sun_path, share->path, strlen(share->path));
    int fd = -1;
    if (ceni_fault(CENI_FAULT_IO)) {
        errno = EIO;
    } else {
        fd = ceni_fd_move(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    }
    /* A connect, too, waits for at most so long. */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) ||
        connect(fd, (const struct sockaddr *)&address, sizeof address)) {
        cen_status status = dial_failed(share, errno);
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    *out = fd;
    return CEN_OK;
}

static cen_status open_notices(int ends[2]) {
    if (ceni_fault(CENI_FAULT_IO) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
        return ceni_fail(CEN_ERR_LIMIT, "share: a pair of sockets: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        ends[i] = ceni_fd_move(ends[i]);
        if (ends[i] < 0) {
            cen_status status = ceni_fail(CEN_ERR_LIMIT, "share: a socket: %s", strerror(errno));
            for (int k = 0; k < 2; k++) {
                if (ends[k] >= 0) {
                    close(ends[k]);
                }
            }
            return status;
        }
    }
    return CEN_OK;
}

static cen_status hello(cen_share *share, int socket, int notices, uint64_t end, bool *resumed) {
    int fds[2] = {notices, -1};
    /* Kernels before 5.3 have none; the broker then looks for it itself. */
    fds[1] = ceni_fd_move((int)syscall(SYS_pidfd_open, getpid(), 0));
    ceni_wire_hello *body = ceni_client_begin(share, CENI_WIRE_HELLO, sizeof *body);
    *body = (ceni_wire_hello){.version_min = CENI_WIRE_VERSION,
                              .version_max = CENI_WIRE_VERSION,
                              .label_size = (uint32_t)strlen(share->label),
                              .resume = share->client,
                              .resume_secret = share->secret};
    ceni_wire_add(share->out, share->label, body->label_size);
    ceni_reply reply = {.fd_count = 0};
    bool usable;
    cen_status status = exchange(share, socket, fds, fds[1] < 0 ? 1 : 2, end, &reply, &usable);
    if (fds[1] >= 0) {
        close(fds[1]);
    }
    if (!status && reply.message.head.status) {
        status = refused(&reply);
    }
    if (status) {
        ceni_reply_close(&reply);
        return status == CEN_ERR_NO_BROKER ? dial_failed(share, ECONNREFUSED) : status;
    }
    const ceni_wire_hello_reply *r = reply.message.body;
    *resumed = r->resumed;
    share->client = r->client;
    share->secret = r->secret;
    share->instance = r->instance;
    return CEN_OK;
}

cen_status ceni_client_dial(cen_share *share, bool *resumed) {
    int socket, ends[2];
    uint64_t end = deadline(share); /* of connecting and the answer together */
    if (share->silent) {
        return ceni_fail(CEN_ERR_NO_BROKER, "share: the broker at %s did not answer before",
                         share->path);
    }
    cen_status status = open_socket(share, &socket);
    if (status) {
        return status;
    }
    status = open_notices(ends);
    if (!status) {
        status = hello(share, socket, ends[1], end, resumed);
        close(ends[1]);
        if (status) {
            close(ends[0]);
        }
    }
    if (status) {
        close(socket);
        return status;
    }
    share->socket = socket;
    forget_socket(&share->notices);
    share->notices = ends[0];
    atomic_store(&share->notices_fd, ends[0]);
    atomic_store(&share->connected, true);
    return CEN_OK;
}

cen_status ceni_client_come_back(cen_share *share) {
    cen_status expected = ceni_log_expect(CEN_ERR_NO_BROKER);
    bool resumed = false;
    cen_status status = ceni_client_dial(share, &resumed);
    if (!status) {
        status = resumed ? ceni_client_reconcile(share) : ceni_client_announce(share);
    }
    status = status ? status : ceni_client_watches(share);
    if (status) {
        ceni_client_hang_up(share);
    }
    ceni_log_expect(expected);
    return status;
}
