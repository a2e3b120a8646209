/* Clients that come and go, and the way of a request to its handler. */
#include "ipc/state_int.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

ceni_state *ceni_state_create(const ceni_state_limits *limits, const ceni_state_calls *calls,
                              void *arg, const ceni_state_random *random) {
    ceni_state *s = ceni_calloc(1, sizeof *s);
    if (s) {
        s->limits = *limits;
        s->calls = *calls;
        s->arg = arg;
        s->instance = random->instance;
        s->seed = random->seed;
        memcpy(s->key, random->key, sizeof s->key);
        s->plain_ids = !(random->key[0] | random->key[1]);
        ceni_state_init_slots(s);
    }
    return s;
}

void ceni_state_destroy(ceni_state *s) {
    if (!s) {
        return;
    }
    for (uint32_t i = 0; i < s->exports.used; i++) {
        ceni_export *e = ceni_export_at(s, i);
        if (e->slot.flags & CENI_SLOT_LIVE) {
            uint32_t user = ceni_set_at(s, e->set)->user;
            ceni_state_close_fd(s, user, &e->directory_fd);
            ceni_state_close_fd(s, user, &e->event_fd);
            ceni_free(e->directory);
        }
    }
    for (uint32_t i = 0; i < s->sets.used; i++) {
        ceni_set *set = ceni_set_at(s, i);
        for (uint32_t p = 0; (set->slot.flags & CENI_SLOT_LIVE) && p < set->pages_have; p++) {
            ceni_state_close_fd(s, set->user, &set->pages[p]);
        }
        ceni_free(set->slot.flags & CENI_SLOT_LIVE ? set->pages : NULL);
    }
    for (uint32_t i = 0; i < s->names.used; i++) {
        ceni_name *n = ceni_name_at(s, i);
        ceni_free(n->slot.flags & CENI_SLOT_LIVE ? n->text : NULL);
    }
    for (uint32_t i = 0; i < s->users.used; i++) {
        ceni_user *u = ceni_user_at(s, i);
        ceni_free(u->slot.flags & CENI_SLOT_LIVE ? u->over : NULL);
    }
    for (uint32_t i = 0; i < s->clients.used; i++) {
        ceni_client *c = ceni_client_at(s, i);
        ceni_free(c->slot.flags & CENI_SLOT_LIVE ? c->groups : NULL);
    }
    ceni_slots *const all[] = {&s->users,   &s->clients, &s->sets,  &s->exports, &s->leases,
                               &s->pending, &s->links,   &s->names, &s->watches, NULL};
    for (ceni_slots *const *slots = all; *slots; slots++) {
        ceni_slots_free(*slots);
    }
    ceni_free(s->timers);
    ceni_free(s);
}

cen_status ceni_state_refuse(ceni_state *s, cen_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(s->why, sizeof s->why, format, args);
    va_end(args);
    return status;
}

cen_status ceni_state_no_memory(ceni_state *s) {
    return ceni_state_refuse(s, CEN_ERR_HOST_MEMORY, "the broker is out of memory");
}

void ceni_state_send(ceni_state *s, uint32_t client, const int *fds, unsigned count) {
    ceni_client *c = ceni_client_at(s, client);
    if (c->connected) {
        s->calls.reply(s->arg, c->peer, &s->out, fds, count);
    }
}

void ceni_state_send_failure(ceni_state *s, uint32_t client, enum ceni_wire_type type, uint32_t seq,
                             cen_status status) {
    ceni_wire_fail(&s->out, type, seq, status, s->why);
    ceni_state_send(s, client, NULL, 0);
}

void ceni_state_close_fd(ceni_state *s, uint32_t user, int *fd) {
    if (*fd >= 0) {
        s->calls.close(s->arg, ceni_user_at(s, user)->uid, *fd);
        *fd = -1;
    }
}

/* ---- clients ---- */

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void identify(ceni_client *c, const ceni_state_identity *identity,
                     const ceni_wire_message *m) {
    c->gid = identity->gid;
    c->pid = identity->pid;
    memcpy(c->container, identity->container, sizeof c->container);
    memset(c->label, 0, sizeof c->label);
    memcpy(c->label, m->name, m->name_size);
}

static cen_status new_client(ceni_state *s, const ceni_state_identity *identity,
                             const ceni_wire_message *m, uint32_t *client) {
    uint32_t user = ceni_user_get(s, identity->uid);
    if (user == CENI_NONE) {
        return ceni_state_no_memory(s);
    }
    if (ceni_user_at(s, user)->clients >= s->limits.clients) {
        ceni_user_release(s, user);
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "user %" PRIu32 " has %" PRIu32 " clients, "
                                 "which is the limit",
                                 identity->uid, s->limits.clients);
    }
    uint32_t *groups = ceni_malloc(identity->group_count * sizeof *groups);
    uint32_t index = groups ? ceni_slots_take(&s->clients) : CENI_NONE;
    if (index == CENI_NONE) {
        ceni_free(groups);
        ceni_user_release(s, user);
        return ceni_state_no_memory(s);
    }
    if (identity->group_count) {
        memcpy(groups, identity->groups, identity->group_count * sizeof *groups);
        qsort(groups, identity->group_count, sizeof *groups, by_number);
    }
    ceni_client *c = ceni_client_at(s, index);
    identify(c, identity, m);
    c->groups = groups;
    c->group_count = (uint32_t)identity->group_count;
    c->user = user;
    c->leases = c->sets = c->pending = c->watches = c->wait_name = c->timer = CENI_NONE;
    c->death_known = identity->death_known;
    c->secret = identity->secret;
    c->id = ceni_state_new_id(s);
    ceni_slots_insert(&s->clients, index);
    ceni_user_at(s, user)->clients++;
    *client = index;
    return CEN_OK;
}

/* The client that a HELLO resumes, or CENI_NONE. */
static uint32_t resumed(ceni_state *s, const ceni_state_identity *identity,
                        const ceni_wire_hello *hello) {
    uint32_t index = hello->resume ? ceni_client_find(s, hello->resume) : CENI_NONE;
    if (index == CENI_NONE) {
        return CENI_NONE;
    }
    const ceni_client *c = ceni_client_at(s, index);
    bool same = !(c->secret ^ hello->resume_secret) && c->pid == identity->pid &&
                ceni_user_at(s, c->user)->uid == identity->uid;
    return same ? index : CENI_NONE;
}

static cen_status join(ceni_state *s, void *peer, const ceni_state_identity *identity,
                       const ceni_wire_message *m, uint32_t *client, void **replaced) {
    const ceni_wire_hello *hello = m->body;
    if (hello->version_min > CENI_WIRE_VERSION || hello->version_max < CENI_WIRE_VERSION) {
        return ceni_state_refuse(s, CEN_ERR_UNSUPPORTED,
                                 "the broker speaks version %d, the client %u to %u: both must be "
                                 "of one cenote release",
                                 CENI_WIRE_VERSION, hello->version_min, hello->version_max);
    }
    uint32_t index = resumed(s, identity, hello);
    bool known = index != CENI_NONE;
    cen_status status = known ? CEN_OK : new_client(s, identity, m, &index);
    if (status) {
        return status;
    }
    ceni_client *c = ceni_client_at(s, index);
    if (known) {
        ceni_open_forget(s, index);
        identify(c, identity, m);
        c->death_known = c->death_known || identity->death_known;
        *replaced = c->peer;
    }
    c->peer = peer;
    c->connected = true;
    *client = index;
    ceni_wire_hello_reply *r = ceni_wire_begin(&s->out, CENI_WIRE_HELLO, m->head.seq, sizeof *r);
    *r = (ceni_wire_hello_reply){.version = CENI_WIRE_VERSION,
                                 .death_known = c->death_known,
                                 .resumed = known,
                                 .client = c->id,
                                 .secret = c->secret,
                                 .instance = s->instance};
    ceni_state_send(s, index, NULL, 0);
    if (known) {
        ceni_notice_again(s, index);
    }
    return CEN_OK;
}

cen_status ceni_state_hello(ceni_state *s, void *peer, const ceni_state_identity *identity,
                            const ceni_wire_message *m, uint32_t *client, void **replaced) {
    *replaced = NULL;
    cen_status status = join(s, peer, identity, m, client, replaced);
    if (status) {
        ceni_wire_fail(&s->out, CENI_WIRE_HELLO, m->head.seq, status, s->why);
        s->calls.reply(s->arg, peer, &s->out, NULL, 0);
    }
    return status;
}

static void client_over(ceni_state *s, uint32_t client, bool clean) {
    ceni_client *c = ceni_client_at(s, client);
    c->connected = false;
    ceni_open_forget(s, client);
    while (c->leases != CENI_NONE) {
        ceni_lease_end(s, c->leases, !clean);
    }
    while (c->pending != CENI_NONE) {
        ceni_pending_end(s, c->pending);
    }
    while (c->watches != CENI_NONE) {
        ceni_watch_end(s, c->watches);
    }
    while (c->sets != CENI_NONE) {
        ceni_set_let_go(s, c->sets, false);
    }
    uint32_t user = c->user;
    ceni_free(c->groups);
    ceni_slots_give(&s->clients, client);
    ceni_user_at(s, user)->clients--;
    ceni_user_release(s, user);
}

/* What a client is in the middle of when its socket closes, and cannot go on with. */
static void drop_unfinished(ceni_state *s, uint32_t client) {
    for (uint32_t i = ceni_client_at(s, client)->sets, next; i != CENI_NONE; i = next) {
        const ceni_set *set = ceni_set_at(s, i);
        next = set->by_holder.next;
        if (set->by_reader || set->pages_have < set->page_count) {
            ceni_set_let_go(s, i, false);
        }
    }
}

bool ceni_state_hangup(ceni_state *s, uint32_t client) {
    ceni_client *c = ceni_client_at(s, client);
    c->connected = false;
    ceni_open_forget(s, client);
    drop_unfinished(s, client);
    bool empty = c->leases == CENI_NONE && c->sets == CENI_NONE && c->pending == CENI_NONE;
    if (c->death_known && !empty) {
        return false;
    }
    client_over(s, client, false);
    return true;
}

void ceni_state_dead(ceni_state *s, uint32_t client) {
    client_over(s, client, true);
}

bool ceni_state_waits(const ceni_state *s, uint32_t client) {
    return ceni_client_at(s, client)->wait_name != CENI_NONE;
}

uint64_t ceni_state_weight(const ceni_state *s, uint32_t client) {
    const ceni_client *c = ceni_client_at(s, client);
    return (uint64_t)c->lease_count + c->export_count;
}

/* ---- requests ---- */

static cen_status handle(ceni_state *s, uint32_t client, const ceni_wire_message *m, int *fds,
                         unsigned count) {
    switch (m->head.type) {
    case CENI_WIRE_SET:
        return ceni_state_on_set(s, client, m, fds, count);
    case CENI_WIRE_PUBLISH:
        return ceni_state_on_publish(s, client, m, fds);
    case CENI_WIRE_OPEN:
        return ceni_state_on_open(s, client, m);
    case CENI_WIRE_PAGES:
        return ceni_state_on_pages(s, client, m);
    case CENI_WIRE_CLOSE:
        return ceni_state_on_close(s, client, m);
    case CENI_WIRE_WITHDRAW:
    case CENI_WIRE_REVOKE:
        return ceni_state_on_withdraw(s, client, m);
    case CENI_WIRE_DROP:
        return ceni_state_on_drop(s, client, m);
    case CENI_WIRE_LIST:
        return ceni_state_on_list(s, client, m);
    case CENI_WIRE_WATCH:
        return ceni_state_on_watch(s, client, m);
    case CENI_WIRE_LEASE:
        return ceni_state_on_lease(s, client, m);
    case CENI_WIRE_EVENT:
        return ceni_state_on_event(s, client, m, fds);
    default:
        return ceni_state_refuse(s, CEN_ERR_INVALID, "HELLO came twice");
    }
}

void ceni_state_request(ceni_state *s, uint32_t client, const ceni_wire_message *m, int *fds,
                        unsigned count) {
    if (ceni_state_waits(s, client)) { /* it does not wait for its reply: nor does the broker */
        ceni_open_timeout(s, client);
    }
    cen_status status = handle(s, client, m, fds, count);
    for (unsigned i = 0; i < count; i++) { /* those that were kept are -1 */
        ceni_state_close_fd(s, ceni_client_at(s, client)->user, &fds[i]);
    }
    if (status && status != CEN_ERR_NOT_READY) { /* that one waits */
        ceni_state_send_failure(s, client, m->head.type, m->head.seq, status);
    }
}

ceni_state_counts ceni_state_count(const ceni_state *s) {
    return (ceni_state_counts){.clients = s->clients.live,
                               .sets = s->sets.live,
                               .exports = s->exports.live,
                               .leases = s->leases.live,
                               .names = s->names.live,
                               .users = s->users.live,
                               .lease_bytes =
                                   ceni_slots_bytes(&s->leases) + ceni_slots_bytes(&s->links)};
}
