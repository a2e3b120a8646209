/* Who is at the other end of a socket, and the sign of that process's death. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "ipc/broker_int.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum { CONTAINER_ID = 64, CONTAINER_SHOWN = 12, OVERFLOW_ID = 65534 };

bool ceni_peer_credentials(ceni_peer *peer) {
    struct ucred c;
    socklen_t size = sizeof c;
    if (ceni_fault(CENI_FAULT_IO) || getsockopt(peer->socket, SOL_SOCKET, SO_PEERCRED, &c, &size)) {
        return false;
    }
    peer->uid = c.uid;
    peer->gid = c.gid;
    peer->pid = (int)c.pid;
    /* Users without a number here all look like one. */
    return !peer->broker->partly_mapped || c.uid != OVERFLOW_ID;
}

/* The further groups; NULL: no memory, or they cannot be told. */
static uint32_t *read_groups(int socket, size_t *count) {
    socklen_t size = 64 * sizeof(uint32_t);
    for (;;) {
        uint32_t *groups = ceni_malloc(size);
        if (!groups) {
            return NULL;
        }
        if (!getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &size)) {
            *count = size / sizeof *groups;
            return groups;
        }
        ceni_free(groups);
        if (errno != ERANGE) { /* else `size` is what it takes */
            return NULL;
        }
    }
}

/* The process that /proc says a pidfd is of, 0: one that is not seen here; -1: it is no pidfd. */
static long pid_of(int pidfd) {
    char path[48], line[128];
    long pid = -1;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (!strncmp(line, "Pid:", 4)) {
            pid = strtol(line + 4, NULL, 10);
        }
    }
    if (file) {
        fclose(file);
    }
    return pid;
}

static void close_own(const ceni_peer *peer, int own, int used) {
    if (own != used) {
        ceni_closer_close(peer->broker->closer, peer->uid, own);
    }
}

/* A pidfd of the peer by what the kernel knows, else the client's own. */
static cen_status find_pidfd(ceni_peer *peer, int own) {
    int fd = -1;
    socklen_t size = sizeof fd;
    bool asked = !getsockopt(peer->socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size);
    if (!asked && errno == ESRCH) {
        close_own(peer, own, -1);
        return CEN_ERR_NOT_FOUND;
    }
    if (!asked && peer->pid > 0) {
        fd = (int)syscall(SYS_pidfd_open, peer->pid, 0);
    }
    if (fd < 0 && own >= 0) {
        /* Of a peer without a number here no more can be said than that its pidfd has none. */
        fd = pid_of(own) == peer->pid ? own : -1;
    }
    close_own(peer, own, fd);
    peer->pidfd = fd == own ? fd : ceni_fd_move(fd);
    return CEN_OK;
}

/* Shortens the id of the innermost container in a path of cgroups, if there is one. */
static void find_container(const char *path, char container[64]) {
    size_t run = 0;
    for (const char *at = path; *at; at++) {
        bool hex = (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f');
        run = hex ? run + 1 : 0;
        if (run == CONTAINER_ID) {
            memcpy(container, at + 1 - CONTAINER_ID, CONTAINER_SHOWN);
            container[CONTAINER_SHOWN] = '\0';
        }
    }
}

static void read_container(int pid, char container[64]) {
    char path[32], line[4096];
    snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        find_container(line, container);
    }
    if (file) {
        fclose(file);
    }
}

cen_status ceni_peer_identify(ceni_peer *peer, int pidfd, ceni_state_identity *identity,
                              uint32_t **groups) {
    *identity = (ceni_state_identity){.uid = peer->uid, .gid = peer->gid, .pid = peer->pid};
    if (find_pidfd(peer, pidfd)) {
        return ceni_fail(CEN_ERR_NOT_FOUND, "the client's process is gone");
    }
    identity->death_known = peer->pidfd >= 0;
    *groups = read_groups(peer->socket, &identity->group_count);
    if (!*groups) {
        return ceni_fail(CEN_ERR_LIMIT, "the broker cannot learn the client's groups");
    }
    identity->groups = *groups;
    read_container(peer->pid, identity->container);
    if (!ceni_random(&identity->secret, sizeof identity->secret)) {
        cen_status status =
            ceni_fail(CEN_ERR_IO, "the broker has no random numbers: %s", strerror(errno));
        ceni_free(*groups);
        return status;
    }
    return CEN_OK;
}
