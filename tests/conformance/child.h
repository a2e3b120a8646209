/* Tests between processes: the test program is run again as a child, which opens a device of the
 * same kind and plays a role. The two talk over a socket, in messages of one type each, with a
 * descriptor if need be. No process forks a used device, so all of it runs on CUDA, too. An
 * assertion that fails in a child ends it, and then what its parent expects of it fails. */
#ifndef CHILD_H
#define CHILD_H

#include "tests/conformance/suite.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct child {
    pid_t pid;
    int socket;
} child;

typedef struct child_role {
    const char *name;
    void (*play)(const fixture *f, int socket);
} child_role;

enum { CHILD_SOCKET = 3 };

extern char **environ;

static inline child child_start(const fixture *f, const char *role) {
    child c;
    int sockets[2];
    char number[8];
    snprintf(number, sizeof number, "%d", (int)(f - suite_fixtures));
    char *const args[] = {"child", "--child", (char *)(uintptr_t)role, number, NULL};
    posix_spawn_file_actions_t actions;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, sockets[1], CHILD_SOCKET);
    assert_int_equal(posix_spawn(&c.pid, "/proc/self/exe", &actions, NULL, args, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(sockets[1]);
    c.socket = sockets[0];
    return c;
}

static inline void child_tell(int socket, const void *data, size_t size, int fd) {
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    assert_int_equal(sendmsg(socket, &message, MSG_NOSIGNAL), size);
}

/* The descriptor that came along, or -1. */
static inline int child_hear(int socket, void *data, size_t size) {
    int fd = -1;
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {data, size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    assert_int_equal(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), size);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS) {
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    }
    return fd;
}

static inline void child_tell_word(int socket, uint32_t word) {
    child_tell(socket, &word, sizeof word, -1);
}

static inline uint32_t child_hear_word(int socket) {
    uint32_t word = 0;
    child_hear(socket, &word, sizeof word);
    return word;
}

/* It has come to its end, and well. */
static inline void child_end(child c) {
    int status = -1;
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    close(c.socket);
    assert_int_equal(status, 0);
}

static inline void child_kill(child c) {
    kill(c.pid, SIGKILL);
    assert_int_equal(waitpid(c.pid, NULL, 0), c.pid);
    close(c.socket);
}

static inline int child_play(const char *name, const char *number, const child_role *roles,
                             size_t count) {
    fixture *f = &suite_fixtures[strtol(number, NULL, 10)];
    cen_log_set(suite_log, NULL, CEN_LOG_WARN);
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(roles[i].name, name)) {
            f->device = suite_open(f, 0, NULL);
            roles[i].play(f, CHILD_SOCKET);
            cen_device_close(f->device);
            return 0;
        }
    }
    return 1;
}

/* As SUITE_MAIN, also for children. */
#define CHILD_MAIN(tests, roles)                                                                   \
    int main(int argc, char **argv) {                                                              \
        return argc == 4 && !strcmp(argv[1], "--child")                                            \
                   ? child_play(argv[2], argv[3], roles, sizeof(roles) / sizeof *(roles))          \
                   : suite_run(tests, sizeof(tests) / sizeof *(tests));                            \
    }

/* Holds a stream until it is opened: a manual event on the host, where an inline stream may not
 * block; a host function that waits elsewhere. */
typedef struct child_gate {
    cen_event event;
    int ends[2];
} child_gate;

static inline void child_gate_wait(void *arg) {
    char byte;
    while (read(((child_gate *)arg)->ends[0], &byte, 1) < 0) {
    }
}

static inline void child_gate_close(const fixture *f, child_gate *gate, cen_stream stream) {
    if (f->host) {
        OK(cen_event_create(f->device, CEN_EVENT_MANUAL, &gate->event));
        OK(cen_stream_wait(f->device, stream, gate->event));
    } else {
        assert_int_equal(pipe(gate->ends), 0);
        OK(cen_host_func(f->device, stream, child_gate_wait, gate));
    }
}

/* Once. */
static inline void child_gate_open(const fixture *f, child_gate *gate) {
    if (f->host) {
        OK(cen_event_signal(f->device, gate->event));
    } else {
        assert_int_equal(write(gate->ends[1], "x", 1), 1);
    }
}

#endif
