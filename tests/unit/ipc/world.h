/* A state with clients and descriptors that are only numbers: every one is to be closed once. */
#ifndef TESTS_UNIT_IPC_WORLD_H
#define TESTS_UNIT_IPC_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/state.h"

enum { WORLD_FDS = 1 << 20, WORLD_ACTORS = 24 };

typedef struct actor {
    uint32_t client;
    bool there, connected;
    bool deaf; /* takes no more notices: it is to be hung up on before the state is verified */
    uint64_t id, secret;
    /* the last reply, and the last notice */
    union {
        uint64_t data[CENI_WIRE_MAX / 8];
        ceni_wire_head head;
    } reply;
    size_t reply_size;
    unsigned replies, reply_fds;
    int fds[CENI_WIRE_FDS]; /* that came with it: borrowed */
    ceni_wire_notice notice;
    unsigned notices[CENI_WIRE_NOTICE_EVENT + 1]; /* by kind */
} actor;

typedef struct world {
    ceni_state *state;
    uint8_t *open; /* by descriptor */
    int next_fd;
    int refused_fd; /* one that the check refuses */
    unsigned open_count;
    bool broken; /* a descriptor was closed twice, or a message was malformed */
    uint64_t quota;
    uint64_t now;
    actor actors[WORLD_ACTORS];
} world;

static int world_fd(world *w) {
    if (w->next_fd >= WORLD_FDS) {
        return -1;
    }
    w->open[w->next_fd] = 1;
    w->open_count++;
    return w->next_fd++;
}

static void world_close(void *arg, uint32_t uid, int fd) {
    world *w = arg;
    if (fd < 0 || fd >= w->next_fd || !w->open[fd]) {
        w->broken = true;
        return;
    }
    w->open[fd] = 0;
    w->open_count--;
}

static void world_reply(void *arg, void *peer, const ceni_wire_builder *b, const int *fds,
                        unsigned count) {
    world *w = arg;
    actor *a = peer;
    ceni_wire_message m;
    w->broken = w->broken || ceni_wire_check(b->data, b->size, count, CENI_WIRE_REPLY, &m);
    for (unsigned i = 0; i < count; i++) {
        w->broken = w->broken || fds[i] < 0 || fds[i] >= w->next_fd || !w->open[fds[i]];
        a->fds[i] = fds[i];
    }
    memcpy(a->reply.data, b->data, b->size);
    a->reply_size = b->size;
    a->reply_fds = count;
    a->replies++;
}

static bool world_notice(void *arg, void *peer, const ceni_wire_builder *b) {
    world *w = arg;
    actor *a = peer;
    ceni_wire_message m;
    if (!a->connected || ceni_wire_check(b->data, b->size, 0, CENI_WIRE_NOTIFY, &m)) {
        w->broken = true;
        return true;
    }
    if (a->deaf) {
        return false;
    }
    a->notice = *(const ceni_wire_notice *)m.body;
    a->notices[a->notice.kind]++;
    return true;
}

static bool world_check(void *arg, int fd, enum ceni_state_fd kind, uint64_t bytes,
                        const char **why) {
    const world *w = arg;
    *why = "it is the one that is refused";
    return fd != w->refused_fd;
}

static int world_read_only(void *arg, int fd) {
    return world_fd(arg);
}

static uint64_t world_quota(void *arg, uint32_t uid) {
    return ((world *)arg)->quota;
}

/* instance 0: ids count from 1. */
static world *world_new(uint64_t instance) {
    static const ceni_state_calls calls = {.reply = world_reply,
                                           .notice = world_notice,
                                           .close = world_close,
                                           .check = world_check,
                                           .read_only = world_read_only,
                                           .quota = world_quota};
    static const ceni_state_limits limits = {20, 40, 80, 200, 120};
    world *w = calloc(1, sizeof *w);
    w->open = calloc(WORLD_FDS, 1);
    w->quota = UINT64_MAX;
    w->refused_fd = -1;
    const ceni_state_random random = {.instance = instance, .seed = 42, .key = {instance}};
    w->state = ceni_state_create(&limits, &calls, w, &random);
    return w;
}

/* Whether all descriptors were closed once each. */
static bool world_free(world *w) {
    ceni_state_destroy(w->state);
    bool whole = !w->open_count && !w->broken;
    if (!whole) {
        fprintf(stderr, "%u descriptors are left open; broken: %d\n", w->open_count, w->broken);
    }
    free(w->open);
    free(w);
    return whole;
}

/* Says HELLO for an actor; it resumes if it was there before and is away. */
static cen_status world_hello(world *w, unsigned i, uint32_t uid, bool death_known) {
    actor *a = &w->actors[i];
    static ceni_wire_builder b;
    ceni_wire_message m;
    const uint32_t groups[] = {900, 77, uid + 5000};
    ceni_state_identity identity = {.uid = uid, .gid = uid + 1000, .pid = (int)i + 1};
    identity.groups = groups;
    identity.group_count = 3;
    identity.death_known = death_known;
    identity.secret = 1000 + i;
    ceni_wire_hello *h = ceni_wire_begin(&b, CENI_WIRE_HELLO, 1, sizeof *h);
    h->version_min = h->version_max = CENI_WIRE_VERSION;
    h->label_size = 5;
    h->resume = a->id;
    h->resume_secret = a->secret;
    ceni_wire_add(&b, "actor", 5);
    if (ceni_wire_check(b.data, b.size, 1, CENI_WIRE_REQUEST, &m)) {
        return CEN_ERR_FORMAT;
    }
    void *replaced;
    a->connected = true;
    cen_status status = ceni_state_hello(w->state, a, &identity, &m, &a->client, &replaced);
    a->there = a->connected = !status;
    if (!status) {
        const ceni_wire_hello_reply *r = (const void *)((const char *)a->reply.data + 16);
        a->id = r->client;
        a->secret = r->secret;
    }
    return status;
}

static void world_hangup(world *w, unsigned i) {
    actor *a = &w->actors[i];
    a->connected = a->deaf = false;
    a->there = !ceni_state_hangup(w->state, a->client);
}

static void world_dead(world *w, unsigned i) {
    ceni_state_dead(w->state, w->actors[i].client);
    w->actors[i].there = w->actors[i].connected = false;
}

/* Sends what was built, with that many new descriptors. The status of the reply;
 * CEN_ERR_NOT_READY: there is none yet; CEN_ERR_FORMAT: the message is none. */
static cen_status world_send(world *w, unsigned i, const ceni_wire_builder *b, unsigned fd_count) {
    actor *a = &w->actors[i];
    ceni_wire_message m;
    if (ceni_wire_check(b->data, b->size, fd_count, CENI_WIRE_REQUEST, &m)) {
        return CEN_ERR_FORMAT;
    }
    int fds[CENI_WIRE_FDS];
    for (unsigned n = 0; n < fd_count; n++) {
        fds[n] = world_fd(w);
    }
    a->reply.head.seq = UINT32_MAX;
    ceni_state_request(w->state, a->client, &m, fds, fd_count);
    return a->reply.head.seq == m.head.seq ? a->reply.head.status : CEN_ERR_NOT_READY;
}

#endif
