/* Building messages, and carrying them. */
#include "ipc/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"

enum { SCM_MAX = 253 }; /* descriptors that the kernel carries in a message */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are little-endian");

/* Room of `size` bytes at the end, zeroed; NULL if there is none. */
static void *extend(ceni_wire_builder *builder, size_t size) {
    if (builder->overflow || size > CENI_WIRE_MAX - builder->size) {
        builder->overflow = true;
        return NULL;
    }
    size_t padded = ceni_wire_padded(size);
    uint8_t *at = builder->data + builder->size;
    memset(at, 0, padded);
    builder->size += padded;
    ceni_wire_head *head = (ceni_wire_head *)builder->data;
    head->size = (uint32_t)builder->size;
    return at;
}

void *ceni_wire_begin(ceni_wire_builder *builder, enum ceni_wire_type type, uint32_t seq,
                      size_t body_size) {
    builder->size = 0;
    builder->overflow = false;
    uint8_t *at = extend(builder, sizeof(ceni_wire_head) + body_size);
    ceni_wire_head *head = (ceni_wire_head *)builder->data;
    head->type = (uint16_t)type;
    head->version = CENI_WIRE_VERSION;
    head->seq = seq;
    return at + sizeof *head;
}

void ceni_wire_add(ceni_wire_builder *builder, const void *data, size_t size) {
    void *at = extend(builder, size);
    if (at && size) {
        memcpy(at, data, size);
    }
}

void ceni_wire_fail(ceni_wire_builder *builder, enum ceni_wire_type type, uint32_t seq,
                    cen_status status, const char *why) {
    char text[CENI_WIRE_WHY_MAX];
    ceni_wire_begin(builder, type, seq, 0);
    ceni_wire_head *head = (void *)builder->data;
    head->status = status;
    snprintf(text, sizeof text, "%s", why);
    ceni_one_line(text);
    ceni_wire_add(builder, text, strlen(text) + 1);
}

static cen_status failed(const char *what, int error) {
    switch (error) {
    case EAGAIN:
#if EWOULDBLOCK != EAGAIN
    case EWOULDBLOCK:
#endif
        return CEN_ERR_NOT_READY;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
    case ECONNREFUSED:
        return CEN_ERR_NO_BROKER;
    case ETOOMANYREFS:
    case ENOBUFS:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return ceni_fail(CEN_ERR_LIMIT, "%s a message: %s", what, strerror(error));
    default:
        return ceni_fail(CEN_ERR_IO, "%s a message: %s", what, strerror(error));
    }
}

typedef union control {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(SCM_MAX * sizeof(int))];
} control;

cen_status ceni_wire_send(int socket, const ceni_wire_builder *builder, const int *fds,
                          unsigned fd_count, bool dont_wait) {
    if (builder->overflow || fd_count > CENI_WIRE_FDS) {
        return ceni_fail(CEN_ERR_INVALID, "a message of more than %d bytes or %d descriptors",
                         CENI_WIRE_MAX, CENI_WIRE_FDS);
    }
    if (ceni_fault(CENI_FAULT_IO)) {
        return failed("sending", EIO);
    }
    struct iovec part = {.iov_base = (void *)builder->data, .iov_len = builder->size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    control ancillary;
    if (fd_count) {
        message.msg_control = memset(&ancillary, 0, sizeof ancillary);
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
    }
    int flags = MSG_NOSIGNAL | (dont_wait ? MSG_DONTWAIT : 0);
    ssize_t sent;
    do {
        sent = sendmsg(socket, &message, flags);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? failed("sending", errno) : CEN_OK;
}

/* Takes the descriptors out of what came; those over CENI_WIRE_FDS are closed. How many there were;
 * *lost: one of them could not be kept. */
static unsigned take_descriptors(struct msghdr *message, int *fds, bool *lost,
                                 const ceni_wire_bin *bin) {
    unsigned count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (count >= CENI_WIRE_FDS) {
                bin->close(bin->arg, fd);
            } else if ((fds[count] = ceni_fd_move(fd)) < 0) {
                *lost = true;
                continue;
            }
            count++;
        }
    }
    return count;
}

static cen_status receive(int socket, void *buffer, size_t room, size_t *size, int *fds,
                          unsigned *fd_count, bool dont_wait, const ceni_wire_bin *bin) {
    if (ceni_fault(CENI_FAULT_IO)) {
        return failed("receiving", EIO);
    }
    struct iovec part = {.iov_base = buffer, .iov_len = room};
    control ancillary;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_control = &ancillary;
    message.msg_controllen = sizeof ancillary;
    ssize_t got;
    do {
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (dont_wait ? MSG_DONTWAIT : 0));
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return failed("receiving", errno);
    }
    int came[CENI_WIRE_FDS];
    bool lost = message.msg_flags & MSG_CTRUNC;
    unsigned count = take_descriptors(&message, came, &lost, bin);
    cen_status status = CEN_OK;
    if (got == 0) {
        status = CEN_ERR_NO_BROKER;
    } else if (message.msg_flags & MSG_TRUNC) {
        status = ceni_fail(CEN_ERR_FORMAT, "a message is longer than %d bytes", CENI_WIRE_MAX);
    } else if (count > CENI_WIRE_FDS) {
        status = ceni_fail(CEN_ERR_FORMAT, "a message with %u descriptors: at most %d may come",
                           count, CENI_WIRE_FDS);
    } else if (lost) {
        status = ceni_fail(CEN_ERR_LIMIT, "this process has no room for a message's descriptors "
                                          "(ulimit -n)");
    }
    if (status) {
        for (unsigned i = 0; i < count && i < CENI_WIRE_FDS; i++) {
            bin->close(bin->arg, came[i]);
        }
        return status;
    }
    memcpy(fds, came, count * sizeof *fds);
    *fd_count = count;
    *size = (size_t)got;
    return CEN_OK;
}

static void close_it(void *arg, int fd) {
    ceni_fd_close_foreign(fd);
}

cen_status ceni_wire_receive_part(int socket, void *buffer, size_t room, size_t *size, int *fds,
                                  unsigned *fd_count, bool dont_wait) {
    static const ceni_wire_bin bin = {.close = close_it};
    return receive(socket, buffer, room, size, fds, fd_count, dont_wait, &bin);
}

cen_status ceni_wire_receive_into(int socket, void *buffer, size_t *size, int *fds,
                                  unsigned *fd_count, const ceni_wire_bin *bin) {
    return receive(socket, buffer, CENI_WIRE_MAX, size, fds, fd_count, true, bin);
}

cen_status ceni_wire_receive(int socket, void *buffer, size_t *size, int *fds, unsigned *fd_count,
                             bool dont_wait) {
    return ceni_wire_receive_part(socket, buffer, CENI_WIRE_MAX, size, fds, fd_count, dont_wait);
}
