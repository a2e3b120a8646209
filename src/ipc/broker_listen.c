/* The socket that clients connect to: a path of the broker's, or one that was opened for it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "ipc/broker_int.h"
#include "ipc/path.h"

enum { BACKLOG = 1024 };

static int option_of(int fd, int option) {
    int value = -1;
    socklen_t size = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &size) ? -1 : value;
}

static cen_status take_open(cen_broker *broker) {
    int fd = broker->options.listen_fd - 1;
    if (option_of(fd, SO_DOMAIN) != AF_UNIX || option_of(fd, SO_TYPE) != SOCK_SEQPACKET ||
        option_of(fd, SO_ACCEPTCONN) != 1) {
        return ceni_fail(CEN_ERR_INVALID,
                         "broker: listen_fd: descriptor %d is no listening Unix socket of "
                         "type seqpacket (ListenSequentialPacket= in a socket unit)",
                         fd);
    }
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0 || fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) | O_NONBLOCK)) {
        return ceni_fail(CEN_ERR_LIMIT, "broker: listen_fd: %s", strerror(errno));
    }
    broker->listener = copy;
    return CEN_OK;
}

/* The path, and its folder, which is made if it is a default one. */
static cen_status choose_path(cen_broker *broker, char *folder, size_t size) {
    char *path = broker->address.sun_path;
    ceni_ipc_place place;
    cen_status status =
        ceni_ipc_listen_path(broker->options.socket, path, sizeof broker->address.sun_path, &place);
    if (status) {
        return status;
    }
    const char *slash = strrchr(path, '/');
    snprintf(folder, size, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
             slash ? path : ".");
    if (place != CENI_IPC_NAMED && mkdir(folder, place == CENI_IPC_OWN ? 0700 : 0755) &&
        errno != EEXIST) {
        return ceni_fail(CEN_ERR_IO, "broker: %s cannot be made: %s", folder, strerror(errno));
    }
    return CEN_OK;
}

/* Clears the way if nobody listens on a socket of ours that is there. */
static cen_status remove_stale(const cen_broker *broker) {
    const char *path = broker->address.sun_path;
    struct stat st;
    if (lstat(path, &st)) {
        return errno == ENOENT ? CEN_OK
                               : ceni_fail(CEN_ERR_IO, "broker: %s: %s", path, strerror(errno));
    }
    if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid()) {
        return ceni_fail(CEN_ERR_IO, "broker: %s is there and is %s: it stays", path,
                         S_ISSOCK(st.st_mode) ? "another user's" : "no socket");
    }
    int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0) {
        return ceni_fail(CEN_ERR_LIMIT, "broker: a socket: %s", strerror(errno));
    }
    int refused = connect(probe, (const struct sockaddr *)&broker->address, sizeof broker->address)
                      ? errno
                      : 0;
    close(probe);
    if (refused != ECONNREFUSED) { /* also where a queue is full, or a socket of another type */
        return ceni_fail(CEN_ERR_BUSY, "broker: %s: somebody listens there already", path);
    }
    return unlink(path) ? ceni_fail(CEN_ERR_IO, "broker: %s: %s", path, strerror(errno)) : CEN_OK;
}

static cen_status bind_path(cen_broker *broker) {
    const char *path = broker->address.sun_path;
    struct stat st;
    mode_t mode = broker->options.mode ? broker->options.mode : 0600;
    int fd = ceni_fault(CENI_FAULT_IO)
                 ? -1
                 : ceni_fd_move(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0) {
        return ceni_fail(CEN_ERR_LIMIT, "broker: a socket: %s", strerror(errno));
    }
    if (bind(fd, (const struct sockaddr *)&broker->address, sizeof broker->address)) {
        int error = errno;
        close(fd);
        return ceni_fail(error == EADDRINUSE ? CEN_ERR_BUSY : CEN_ERR_IO, "broker: %s: %s", path,
                         strerror(error));
    }
    /* Nobody can connect before listen, so the mode holds from the first. */
    if (chmod(path, mode) || stat(path, &st) || listen(fd, BACKLOG)) {
        int error = errno;
        close(fd);
        unlink(path);
        return ceni_fail(CEN_ERR_IO, "broker: %s: %s", path, strerror(error));
    }
    broker->listener = fd;
    broker->socket_device = st.st_dev;
    broker->socket_inode = st.st_ino;
    return CEN_OK;
}

cen_status ceni_broker_listen(cen_broker *broker) {
    broker->address.sun_family = AF_UNIX;
    if (broker->options.listen_fd) {
        return take_open(broker);
    }
    char folder[sizeof broker->address.sun_path + 1];
    cen_status status = choose_path(broker, folder, sizeof folder);
    if (status) {
        return status;
    }
    /* Of two brokers that start, one finds the other's socket and not the stale one of before. */
    int lock = ceni_fd_move(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock < 0) {
        return ceni_fail(CEN_ERR_IO, "broker: %s: %s", folder, strerror(errno));
    }
    if (flock(lock, LOCK_EX | LOCK_NB)) {
        status = ceni_fail(CEN_ERR_BUSY, "broker: %s: another broker is starting there", folder);
    }
    status = status ? status : remove_stale(broker);
    status = status ? status : bind_path(broker);
    close(lock);
    return status;
}

void ceni_broker_unlisten(cen_broker *broker) {
    struct stat st;
    if (broker->socket_inode && !lstat(broker->address.sun_path, &st) &&
        st.st_dev == broker->socket_device && st.st_ino == broker->socket_inode) {
        unlink(broker->address.sun_path);
    }
    if (broker->listener >= 0) {
        close(broker->listener);
    }
}
