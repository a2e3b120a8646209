#include "ipc/channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

cen_status ceni_channel_open(ceni_channel *channel, int socket, uint32_t timeout_ms) {
    int type = 0, domain = 0;
    socklen_t size = sizeof type;
    if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) ||
        getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) || domain != AF_UNIX ||
        (type != SOCK_STREAM && type != SOCK_SEQPACKET)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "share: %d is no Unix socket of type SOCK_STREAM or SOCK_SEQPACKET",
                         socket);
    }
    *channel = (ceni_channel){.socket = socket,
                              .stream = type == SOCK_STREAM,
                              .end_ns = ceni_now_ns() + (uint64_t)timeout_ms * 1000000};
    return CEN_OK;
}

/* Until one of them is ready. */
static cen_status wait_any(const ceni_channel *c, struct pollfd *fds, nfds_t count,
                           const char *what) {
    for (;;) {
        int left = ceni_poll_ms(ceni_now_ns(), c->end_ns);
        int ready = poll(fds, count, left);
        if (ready > 0) {
            return CEN_OK;
        }
        if (ready < 0 && errno != EINTR) {
            return ceni_fail(CEN_ERR_IO, "share: waiting for the other end: %s", strerror(errno));
        }
        if (!ready && !left) {
            return ceni_fail(CEN_ERR_IO, "share: the other end did not %s in time", what);
        }
    }
}

static cen_status wait_for(const ceni_channel *c, bool read) {
    struct pollfd fd = {.fd = c->socket, .events = read ? POLLIN : POLLOUT};
    return wait_any(c, &fd, 1, read ? "send" : "read");
}

cen_status ceni_channel_await(const ceni_channel *channel, int socket) {
    struct pollfd fds[2] = {{.fd = socket, .events = POLLIN},
                            {.fd = channel->socket, .events = POLLRDHUP}};
    return wait_any(channel, fds, 2, "answer");
}

static cen_status closed(void) {
    return ceni_fail(CEN_ERR_TRUNCATED, "share: the other end closed the socket");
}

/* One call's worth of a message, with its descriptors. */
static cen_status send_first(const ceni_channel *c, const ceni_wire_builder *builder,
                             const int *fds, unsigned count) {
    for (;;) {
        cen_status status = ceni_wire_send(c->socket, builder, fds, count, true);
        if (status != CEN_ERR_NOT_READY) {
            return status == CEN_ERR_NO_BROKER ? closed() : status;
        }
        status = wait_for(c, false);
        if (status) {
            return status;
        }
    }
}

static cen_status send_bytes(const ceni_channel *c, const uint8_t *at, size_t left) {
    while (left) {
        ssize_t sent = send(c->socket, at, left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            return errno == EPIPE || errno == ECONNRESET
                       ? closed()
                       : ceni_fail(CEN_ERR_IO, "share: sending: %s", strerror(errno));
        }
        at += sent > 0 ? sent : 0;
        left -= sent > 0 ? (size_t)sent : 0;
        cen_status status = sent < 0 ? wait_for(c, false) : CEN_OK;
        if (status) {
            return status;
        }
    }
    return CEN_OK;
}

cen_status ceni_channel_send(const ceni_channel *channel, const ceni_wire_builder *builder,
                             const int *fds, unsigned count) {
    if (!channel->stream || builder->overflow) {
        return send_first(channel, builder, fds, count);
    }
    /* The head goes first, with the descriptors: so little is sent whole, or not at all. */
    ceni_wire_builder *head = ceni_malloc(sizeof *head);
    if (!head) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "share: no memory for a message");
    }
    memcpy(head->data, builder->data, sizeof(ceni_wire_head));
    head->size = sizeof(ceni_wire_head);
    head->overflow = false;
    cen_status status = send_first(channel, head, fds, count);
    ceni_free(head);
    return status ? status
                  : send_bytes(channel, (const uint8_t *)builder->data + sizeof(ceni_wire_head),
                               builder->size - sizeof(ceni_wire_head));
}

static cen_status receive_bytes(const ceni_channel *c, uint8_t *at, size_t left) {
    while (left) {
        cen_status status = wait_for(c, true);
        if (status) {
            return status;
        }
        ssize_t got = recv(c->socket, at, left, MSG_DONTWAIT);
        if (got == 0) {
            return closed();
        }
        if (got < 0 && errno != EAGAIN && errno != EINTR) {
            return ceni_fail(CEN_ERR_IO, "share: receiving: %s", strerror(errno));
        }
        at += got > 0 ? got : 0;
        left -= got > 0 ? (size_t)got : 0;
    }
    return CEN_OK;
}

/* The rest of a message of which the first bytes, at most a head, came. */
static cen_status receive_rest(const ceni_channel *c, uint8_t *buffer, size_t *size) {
    ceni_wire_head head;
    cen_status status =
        *size < sizeof head ? receive_bytes(c, buffer + *size, sizeof head - *size) : CEN_OK;
    if (status) {
        return status;
    }
    memcpy(&head, buffer, sizeof head);
    if (head.size < sizeof head || head.size > CENI_WIRE_MAX) {
        return ceni_fail(CEN_ERR_FORMAT, "share: what came is no message of an export");
    }
    *size = head.size;
    return receive_bytes(c, buffer + sizeof head, head.size - sizeof head);
}

cen_status ceni_channel_receive(const ceni_channel *channel, void *buffer, size_t *size, int *fds,
                                unsigned *count) {
    size_t room = channel->stream ? sizeof(ceni_wire_head) : CENI_WIRE_MAX;
    cen_status status;
    do {
        status = wait_for(channel, true);
        if (!status) {
            status = ceni_wire_receive_part(channel->socket, buffer, room, size, fds, count, true);
        }
    } while (status == CEN_ERR_NOT_READY);
    if (status) {
        return status == CEN_ERR_NO_BROKER ? closed() : status;
    }
    status = channel->stream ? receive_rest(channel, buffer, size) : CEN_OK;
    ceni_fd_close_all(fds, status ? *count : 0);
    return status;
}
