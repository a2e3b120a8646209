/* A client of the broker that speaks in raw messages, and a broker in a process of its own. */
#ifndef TESTS_INTEGRATION_RAW_CLIENT_H
#define TESTS_INTEGRATION_RAW_CLIENT_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cenote/broker.h"
#include "cenote/log.h"
#include "ipc/wire.h"
#include "tests/files.h"

enum { RAW_PAGE = 65536, RAW_PATIENCE_S = 20 };

typedef struct raw {
    int socket, notices;
    uint32_t seq;
    uint64_t id, secret; /* of the client, to resume */
    bool resumed, death_known;
    uint64_t in[CENI_WIRE_MAX / 8];
    ceni_wire_message reply;
    int fds[CENI_WIRE_FDS];
    unsigned fd_count;
    ceni_wire_notice notice;
    uint64_t sets[64], opened[64]; /* what raw_leave gives up */
    unsigned set_count, opened_count;
} raw;

static ceni_wire_builder raw_out;

static inline void raw_close_fds(raw *r) {
    for (unsigned i = 0; i < r->fd_count; i++) {
        close(r->fds[i]);
    }
    r->fd_count = 0;
}

static inline void raw_hangup(raw *r) {
    raw_close_fds(r);
    close(r->socket);
    close(r->notices);
    r->socket = r->notices = -1;
}

/* Waits for a reply; a broker that gives none within RAW_PATIENCE_S is CEN_ERR_IO. */
static inline cen_status raw_receive(raw *r) {
    size_t size;
    raw_close_fds(r);
    cen_status status = ceni_wire_receive(r->socket, r->in, &size, r->fds, &r->fd_count, false);
    status = status == CEN_ERR_NOT_READY ? CEN_ERR_IO : status;
    status =
        status ? status : ceni_wire_check(r->in, size, r->fd_count, CENI_WIRE_REPLY, &r->reply);
    return status ? status : r->reply.head.status;
}

/* Sends what raw_out holds; the status of the reply. CEN_ERR_NO_BROKER: it hung up. */
static inline cen_status raw_call(raw *r, const int *fds, unsigned count) {
    cen_status status = ceni_wire_send(r->socket, &raw_out, fds, count, false);
    return status ? status : raw_receive(r);
}

static inline int raw_connect(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = RAW_PATIENCE_S};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

/* *sent: the end of the pair for notices that the broker has, too. */
static inline cen_status raw_hello_keeping(raw *r, uint64_t resume, uint64_t secret, int *sent) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        return CEN_ERR_LIMIT;
    }
    ceni_wire_hello *h = ceni_wire_begin(&raw_out, CENI_WIRE_HELLO, ++r->seq, sizeof *h);
    *h = (ceni_wire_hello){CENI_WIRE_VERSION, CENI_WIRE_VERSION, 4, resume, secret};
    ceni_wire_add(&raw_out, "test", 4);
    cen_status status = raw_call(r, &pair[1], 1);
    *sent = pair[1];
    r->notices = pair[0];
    if (!status) {
        const ceni_wire_hello_reply *b = r->reply.body;
        r->id = b->client;
        r->secret = b->secret;
        r->resumed = b->resumed;
        r->death_known = b->death_known;
    }
    return status;
}

static inline cen_status raw_hello(raw *r, uint64_t resume, uint64_t secret) {
    int sent = -1;
    cen_status status = raw_hello_keeping(r, resume, secret, &sent);
    if (sent >= 0) {
        close(sent);
    }
    return status;
}

static inline cen_status raw_dial_keeping(raw *r, const char *path, int *sent) {
    *r = (raw){.socket = raw_connect(path), .notices = -1};
    return r->socket < 0 ? CEN_ERR_NO_BROKER : raw_hello_keeping(r, 0, 0, sent);
}

static inline cen_status raw_dial(raw *r, const char *path) {
    *r = (raw){.socket = raw_connect(path), .notices = -1};
    return r->socket < 0 ? CEN_ERR_NO_BROKER : raw_hello(r, 0, 0);
}

/* Waits for a notice of that kind; false if none comes in time. */
static inline bool raw_hear(raw *r, cen_share_notice_kind kind) {
    static uint64_t in[CENI_WIRE_MAX / 8];
    ceni_wire_message m;
    int fds[CENI_WIRE_FDS];
    unsigned count;
    size_t size;
    struct pollfd p = {.fd = r->notices, .events = POLLIN};
    while (poll(&p, 1, RAW_PATIENCE_S * 1000) == 1) {
        if (ceni_wire_receive(r->notices, in, &size, fds, &count, true) ||
            ceni_wire_check(in, size, count, CENI_WIRE_NOTIFY, &m)) {
            return false;
        }
        r->notice = *(const ceni_wire_notice *)m.body;
        if (r->notice.kind == kind) {
            return true;
        }
    }
    return false;
}

/* ---- requests ---- */

static inline int raw_page(const char *contents, uint64_t bytes, int seals) {
    int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(fd, (off_t)bytes) || pwrite(fd, contents, strlen(contents), 0) < 0 ||
        fcntl(fd, F_ADD_SEALS, seals)) {
        abort();
    }
    return fd;
}

static inline cen_status raw_send_set(raw *r, const char *uuid, int fd) {
    ceni_wire_set *b = ceni_wire_begin(&raw_out, CENI_WIRE_SET, ++r->seq, sizeof *b);
    b->bytes = b->page_bytes = RAW_PAGE;
    b->page_count = 1;
    snprintf(b->uuid, sizeof b->uuid, "%s", uuid);
    cen_status status = raw_call(r, &fd, 1);
    if (!status) {
        r->sets[r->set_count++ % 64] = ((const ceni_wire_set_reply *)r->reply.body)->set;
    }
    return status;
}

/* A set of one page on the host; 0 if it is refused. */
static inline uint64_t raw_set(raw *r, const char *contents) {
    int page = raw_page(contents, RAW_PAGE, F_SEAL_SHRINK);
    cen_status status = raw_send_set(r, "HOST-0", page);
    close(page);
    return status ? 0 : ((const ceni_wire_set_reply *)r->reply.body)->set;
}

static inline uint64_t raw_publish(raw *r, uint64_t set, const char *name,
                                   const ceni_wire_access *access) {
    ceni_wire_publish *b = ceni_wire_begin(&raw_out, CENI_WIRE_PUBLISH, ++r->seq, sizeof *b);
    *b = (ceni_wire_publish){.set = set, .token = {3, 4}, .directory_size = 3};
    b->access_count = access ? 1 : 0;
    b->name_size = (uint32_t)strlen(name);
    ceni_wire_add(&raw_out, access, access ? sizeof *access : 0);
    ceni_wire_add(&raw_out, name, strlen(name));
    ceni_wire_add(&raw_out, "dir", 3);
    return raw_call(r, NULL, 0) ? 0 : ((const ceni_wire_publish_reply *)r->reply.body)->export_id;
}

static inline cen_status raw_call_open(raw *r) {
    cen_status status = raw_call(r, NULL, 0);
    if (!status) {
        const ceni_wire_open_reply *b = r->reply.body;
        r->opened[r->opened_count++ % 64] = b->export_id;
    }
    return status;
}

static inline cen_status raw_open(raw *r, const char *name, uint32_t flags, uint32_t wait_ms) {
    ceni_wire_open *b = ceni_wire_begin(&raw_out, CENI_WIRE_OPEN, ++r->seq, sizeof *b);
    *b = (ceni_wire_open){.flags = flags, .wait_ms = wait_ms, .name_size = (uint32_t)strlen(name)};
    ceni_wire_add(&raw_out, name, strlen(name));
    return raw_call_open(r);
}

static inline cen_status raw_open_token(raw *r, uint64_t id, uint64_t a, uint64_t c) {
    ceni_wire_open *b = ceni_wire_begin(&raw_out, CENI_WIRE_OPEN, ++r->seq, sizeof *b);
    *b = (ceni_wire_open){.export_id = id, .token = {a, c}};
    return raw_call_open(r);
}

static inline cen_status raw_id(raw *r, enum ceni_wire_type type, uint64_t id) {
    ceni_wire_id *b = ceni_wire_begin(&raw_out, type, ++r->seq, sizeof *b);
    b->id = id;
    return raw_call(r, NULL, 0);
}

/* Gives up all that it has, and hangs up: this process goes on, and that alone ends nothing. */
static inline void raw_leave(raw *r) {
    for (unsigned i = 0; i < r->opened_count && i < 64; i++) {
        (void)raw_id(r, CENI_WIRE_CLOSE, r->opened[i]);
    }
    for (unsigned i = 0; i < r->set_count && i < 64; i++) {
        (void)raw_id(r, CENI_WIRE_DROP, r->sets[i]);
    }
    raw_hangup(r);
}

static inline cen_status raw_pages(raw *r, uint64_t set) {
    ceni_wire_pages *b = ceni_wire_begin(&raw_out, CENI_WIRE_PAGES, ++r->seq, sizeof *b);
    b->set = set;
    return raw_call(r, NULL, 0);
}

/* How many records of a kind there are; for clients, only those that are connected. */
static inline unsigned raw_count(raw *r, enum ceni_wire_record kind) {
    unsigned count = 0;
    uint64_t cursor = 0;
    do {
        ceni_wire_list *b = ceni_wire_begin(&raw_out, CENI_WIRE_LIST, ++r->seq, sizeof *b);
        b->cursor = cursor;
        if (raw_call(r, NULL, 0)) {
            return UINT32_MAX;
        }
        const ceni_wire_list_reply *l = r->reply.body;
        cursor = l->cursor;
        const uint8_t *at = r->reply.records;
        for (uint32_t i = 0; l->kind == kind && i < l->count; i++) {
            if (kind != CENI_WIRE_RECORD_CLIENT) {
                count++;
                continue;
            }
            uint16_t label, container;
            memcpy(&label, at + 20, 2);
            memcpy(&container, at + 22 + label, 2);
            at += 24 + label + container;
            count += *at++;
        }
    } while (cursor);
    return count;
}

/* Waits until that many records are there. */
static inline bool raw_until(raw *r, enum ceni_wire_record kind, unsigned want) {
    for (unsigned i = 0; i < RAW_PATIENCE_S * 1000; i++) {
        if (raw_count(r, kind) == want) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

/* ---- the broker, and other processes ---- */

typedef struct server {
    pid_t pid;
    char folder[64], path[96];
    unsigned files; /* that it has open without a client */
} server;

/* Runs a broker in this process until it is killed. Writes a byte to `ready` when it listens. */
static inline void serve(const cen_broker_options *options, rlim_t files, int ready) {
    cen_broker *broker;
    struct rlimit limit = {files, files};
    if ((files && setrlimit(RLIMIT_NOFILE, &limit)) || cen_broker_create(options, &broker) ||
        write(ready, "", 1) != 1) {
        fprintf(stderr, "the broker: %s\n", cen_log_last_error());
        _exit(1);
    }
    close(ready);
    _exit(cen_broker_run(broker) ? 1 : 0);
}

static inline bool server_run(server *s, const cen_broker_options *more, rlim_t files) {
    cen_broker_options options = more ? *more : (cen_broker_options){0};
    int ready[2];
    char byte;
    options.size = sizeof options;
    options.socket = s->path;
    options.mode = 0666;
    if (pipe(ready)) {
        return false;
    }
    s->pid = fork();
    if (!s->pid) {
        close(ready[0]);
        serve(&options, files, ready[1]);
    }
    close(ready[1]);
    bool up = read(ready[0], &byte, 1) == 1;
    up = read(ready[0], &byte, 1) == 0 && up; /* it has closed its end */
    close(ready[0]);
    s->files = files_of(s->pid);
    return up;
}

static inline bool server_start(server *s, const cen_broker_options *more, rlim_t files) {
    snprintf(s->folder, sizeof s->folder, "/tmp/cenote-test-XXXXXX");
    if (!mkdtemp(s->folder) || chmod(s->folder, 0755)) {
        return false;
    }
    snprintf(s->path, sizeof s->path, "%s/b.sock", s->folder);
    return server_run(s, more, files);
}

/* Kills it; true if it lived until now. */
static inline bool server_kill(server *s) {
    int status;
    kill(s->pid, SIGKILL);
    return waitpid(s->pid, &status, 0) == s->pid && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGKILL;
}

/* Whether it has let go of everything, once its clients are gone. */
static inline bool server_is_empty(const server *s) {
    for (unsigned i = 0; i < RAW_PATIENCE_S * 1000 && files_of(s->pid) != s->files; i++) {
        usleep(1000);
    }
    return files_of(s->pid) == s->files;
}

static inline void server_end(server *s) {
    server_kill(s);
    unlink(s->path);
    rmdir(s->folder);
}

/* Another process, which runs `fn` and then waits to be killed; it says when that is. */
typedef struct child {
    pid_t pid;
    int said; /* a byte comes when fn is done: 0, or what went wrong */
} child;

static inline child child_start(int (*fn)(void *arg), void *arg) {
    int said[2];
    child c = {0};
    if (pipe(said)) {
        abort();
    }
    c.pid = fork();
    if (!c.pid) {
        char result = (char)fn(arg);
        if (write(said[1], &result, 1) == 1) {
            pause();
        }
        _exit(1);
    }
    close(said[1]);
    c.said = said[0];
    return c;
}

static inline int child_result(child *c) {
    char result = -1;
    return read(c->said, &result, 1) == 1 ? result : -1;
}

static inline void child_kill(child *c) {
    int status;
    kill(c->pid, SIGKILL);
    waitpid(c->pid, &status, 0);
    close(c->said);
}

#endif
