/* Sets: their pages come, are handed out, and go when nothing holds the set any more. */
#include "ipc/state_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "ipc/step.h"

void ceni_set_count_fd(ceni_state *s, const ceni_set *set, int by) {
    ceni_user_at(s, set->user)->fds += (uint32_t)by;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

bool ceni_set_allows(const ceni_state *s, const ceni_set *set, uint32_t client, bool *write) {
    const ceni_client *c = ceni_client_at(s, client);
    uint32_t uid = ceni_user_at(s, c->user)->uid;
    bool open = c->user == set->user || uid == 0;
    *write = false;
    for (uint32_t i = 0; i < set->access_count; i++) {
        const ceni_wire_access *a = &set->access[i];
        bool group =
            a->id == c->gid || bsearch(&a->id, c->groups, c->group_count, sizeof a->id, by_number);
        bool meant = a->who == CEN_SHARE_ALL || (a->who == CEN_SHARE_USER && a->id == uid) ||
                     (a->who == CEN_SHARE_GROUP && group);
        open = open || meant;
        *write = *write || (meant && a->write);
    }
    return open;
}

static void set_free(ceni_state *s, uint32_t index) {
    ceni_set *set = ceni_set_at(s, index);
    ceni_set_count_fd(s, set, -(int)set->pages_have);
    for (uint32_t i = 0; i < set->pages_have; i++) {
        ceni_state_close_fd(s, set->user, &set->pages[i]);
    }
    ceni_free(set->pages);
    uint32_t user = set->user;
    ceni_user *u = ceni_user_at(s, user);
    u->bytes -= set->bytes;
    u->sets--;
    ceni_slots_give(&s->sets, index);
    ceni_user_release(s, user);
}

void ceni_set_release(ceni_state *s, uint32_t index) {
    const ceni_set *set = ceni_set_at(s, index);
    if (set->holder == CENI_NONE && !set->export_count && !set->busy) {
        set_free(s, index);
    }
}

static void set_holder(ceni_state *s, uint32_t index, uint32_t client, bool by_reader) {
    ceni_set *set = ceni_set_at(s, index);
    if (set->holder != CENI_NONE) {
        ceni_client *c = ceni_client_at(s, set->holder);
        c->export_count -= set->by_reader ? 0 : set->export_count;
        ceni_list_remove(&s->sets, offsetof(ceni_set, by_holder), &c->sets, index);
    }
    set->holder = client;
    set->by_reader = by_reader;
    if (client != CENI_NONE) {
        ceni_client *c = ceni_client_at(s, client);
        ceni_list_push(&s->sets, offsetof(ceni_set, by_holder), &c->sets, index);
        if (!by_reader) {
            c->export_count += set->export_count;
            set->publisher_pid = c->pid;
        }
    }
}

/* An export whose publisher goes: withdrawn unless it is to stay, or to be taken once. */
static void orphan(ceni_state *s, uint32_t index, bool dropped) {
    const ceni_export *e = ceni_export_at(s, index);
    if (e->withdrawn || (e->keep && !dropped)) {
        return;
    }
    if (e->once && ceni_timer_start(s, index | CENI_TIMER_EXPORT, e->ttl_ms)) {
        return;
    }
    if (dropped) {
        ceni_export_withdraw(s, index, CENI_NONE);
    } else { /* its readers heard that the publisher is gone */
        ceni_export_shut(s, index);
    }
}

void ceni_set_let_go(ceni_state *s, uint32_t index, bool dropped) {
    ceni_set *set = ceni_set_at(s, index);
    bool publisher = !set->by_reader;
    set_holder(s, index, CENI_NONE, false);
    set->busy++;
    for (uint32_t i = set->exports, next; publisher && i != CENI_NONE; i = next) {
        ceni_export *e = ceni_export_at(s, i);
        next = e->by_set.next;
        e->announced = false;
        if (!dropped) {
            ceni_notice_readers(s, e, CEN_SHARE_PUBLISHER_GONE);
        }
        if (e->withdrawn && !e->lease_count) { /* it was kept to tell the publisher */
            ceni_export_release(s, i);
        } else {
            orphan(s, i, dropped);
        }
    }
    set->busy--;
    ceni_set_release(s, index);
}

cen_status ceni_state_on_drop(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    uint64_t id = ((const ceni_wire_id *)m->body)->id;
    uint32_t index = ceni_set_find(s, id);
    if (index == CENI_NONE) {
        return ceni_state_refuse(s, CEN_ERR_NOT_FOUND, "there is no set %" PRIx64, id);
    }
    const ceni_set *set = ceni_set_at(s, index);
    if (set->holder != client) {
        return ceni_state_refuse(s, CEN_ERR_PERMISSION, "set %" PRIx64 " is not this client's", id);
    }
    ceni_ipc_step("broker: drops a set");
    ceni_set_let_go(s, index, true);
    ceni_wire_begin(&s->out, CENI_WIRE_DROP, m->head.seq, 0);
    ceni_state_send(s, client, NULL, 0);
    return CEN_OK;
}

/* ---- SET ---- */

static bool is_host(const char uuid[48]) {
    return !strncmp(uuid, "HOST", 4);
}

static uint64_t page_size(const ceni_wire_set *b, uint32_t page) {
    uint64_t before = page * b->page_bytes;
    return b->bytes - before < b->page_bytes ? b->bytes - before : b->page_bytes;
}

static cen_status check_pages(ceni_state *s, const ceni_wire_set *b, const int *fds,
                              unsigned count) {
    enum ceni_state_fd kind = is_host(b->uuid) ? CENI_FD_HOST_PAGE : CENI_FD_DEVICE_PAGE;
    for (unsigned i = 0; i < count; i++) {
        const char *why;
        uint32_t page = b->first_page + i;
        if (!s->calls.check(s->arg, fds[i], kind, page_size(b, page), &why)) {
            return ceni_state_refuse(s, CEN_ERR_INVALID, "page %" PRIu32 " of %s: %s", page,
                                     b->uuid, why);
        }
    }
    return CEN_OK;
}

static cen_status check_room(ceni_state *s, const ceni_user *u, const ceni_wire_set *b) {
    uint64_t quota = s->calls.quota(s->arg, u->uid);
    if (u->bytes > quota || b->bytes > quota - u->bytes) {
        char most[CENI_SIZE_TEXT], used[CENI_SIZE_TEXT], asked[CENI_SIZE_TEXT];
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "the quota of user %" PRIu32 " is %s: %s are used, %s more were "
                                 "asked for; the broker's --quota-user %" PRIu32 "=SIZE raises it",
                                 u->uid, ceni_size_text(most, quota),
                                 ceni_size_text(used, u->bytes), ceni_size_text(asked, b->bytes),
                                 u->uid);
    }
    if (u->sets >= s->limits.sets) {
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "user %" PRIu32 " has %" PRIu32 " sets, which "
                                 "is the limit",
                                 u->uid, u->sets);
    }
    return CEN_OK;
}

static cen_status new_set(ceni_state *s, uint32_t client, const ceni_wire_set *b, uint32_t *index) {
    uint32_t user = ceni_client_at(s, client)->user;
    ceni_user *u = ceni_user_at(s, user);
    cen_status status = check_room(s, u, b);
    if (status) {
        return status;
    }
    *index = ceni_slots_take(&s->sets);
    if (*index == CENI_NONE) {
        return ceni_state_no_memory(s);
    }
    ceni_set *set = ceni_set_at(s, *index);
    set->user = user;
    set->id = b->set ? b->set : ceni_state_new_id(s);
    set->bytes = b->bytes;
    set->page_bytes = b->page_bytes;
    set->page_count = b->page_count;
    set->host = is_host(b->uuid);
    memcpy(set->uuid, b->uuid, sizeof set->uuid);
    set->holder = set->exports = CENI_NONE;
    set_holder(s, *index, client, b->again == 2);
    ceni_slots_insert(&s->sets, *index);
    u->sets++;
    u->bytes += b->bytes;
    return CEN_OK;
}

/* Pages that continue a set, or announce one again that is here. */
static cen_status same_set(ceni_state *s, uint32_t client, const ceni_wire_set *b, uint32_t index) {
    const ceni_set *set = ceni_set_at(s, index);
    const ceni_client *c = ceni_client_at(s, client);
    if (set->user != c->user || (!b->again && (set->holder != client || set->by_reader))) {
        return ceni_state_refuse(s, CEN_ERR_PERMISSION, "set %" PRIx64 " is not this client's",
                                 set->id);
    }
    if (set->bytes != b->bytes || set->page_bytes != b->page_bytes ||
        memcmp(set->uuid, b->uuid, sizeof set->uuid)) {
        return ceni_state_refuse(s, CEN_ERR_INVALID,
                                 "set %" PRIx64 " has other sizes or another "
                                 "device",
                                 set->id);
    }
    if (b->again == 1 && set->holder != client && set->holder != CENI_NONE && !set->by_reader) {
        return ceni_state_refuse(s, CEN_ERR_BUSY, "set %" PRIx64 " has a publisher", set->id);
    }
    if (b->again == 1 && (set->holder != client || set->by_reader)) {
        set_holder(s, index, client, false);
    } else if (b->again == 2 && set->holder == CENI_NONE) {
        set_holder(s, index, client, true);
    }
    return CEN_OK;
}

/* Keeps the pages that the set does not have. */
static cen_status add_pages(ceni_state *s, ceni_set *set, uint32_t first, int *fds,
                            unsigned count) {
    uint32_t end = first + count;
    if (first > set->pages_have) {
        return ceni_state_refuse(s, CEN_ERR_INVALID, "page %" PRIu32 " came before page %" PRIu32,
                                 first, set->pages_have);
    }
    if (end <= set->pages_have) {
        return CEN_OK;
    }
    uint32_t more = end - set->pages_have;
    const ceni_user *u = ceni_user_at(s, set->user);
    if (u->fds > s->limits.fds || more > s->limits.fds - u->fds) {
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "user %" PRIu32 " has %" PRIu32 " descriptors here, and may have "
                                 "%" PRIu32 ": use larger pages",
                                 u->uid, u->fds, s->limits.fds);
    }
    if (ceni_grow(&set->pages, &set->page_capacity, end, sizeof *set->pages)) {
        return ceni_state_no_memory(s);
    }
    ceni_set_count_fd(s, set, (int)more);
    while (set->pages_have < end) {
        int *fd = &fds[set->pages_have - first];
        set->pages[set->pages_have++] = *fd;
        *fd = -1;
    }
    return CEN_OK;
}

cen_status ceni_state_on_set(ceni_state *s, uint32_t client, const ceni_wire_message *m, int *fds,
                             unsigned count) {
    const ceni_wire_set *b = m->body;
    cen_status status = check_pages(s, b, fds, count);
    if (status) {
        return status;
    }
    uint32_t index = b->set ? ceni_set_find(s, b->set) : CENI_NONE;
    bool is_new = index == CENI_NONE;
    if (is_new && b->first_page) {
        return ceni_state_refuse(s, CEN_ERR_NOT_FOUND, "there is no set %" PRIx64, b->set);
    }
    status = is_new ? new_set(s, client, b, &index) : same_set(s, client, b, index);
    if (status) {
        return status;
    }
    ceni_set *set = ceni_set_at(s, index);
    status = add_pages(s, set, b->first_page, fds, count);
    if (status) {
        if (is_new) {
            ceni_set_let_go(s, index, true);
        }
        return status;
    }
    ceni_ipc_step("broker: has pages of a set");
    ceni_wire_set_reply *r = ceni_wire_begin(&s->out, CENI_WIRE_SET, m->head.seq, sizeof *r);
    r->set = set->id;
    ceni_state_send(s, client, NULL, 0);
    return CEN_OK;
}

/* ---- PAGES ---- */

/* Whether the client gets descriptors that only read. */
static bool gets_weaker(const ceni_state *s, uint32_t set, uint32_t client) {
    uint32_t link = ceni_link_find(s, CENI_CLIENT_SET, client, set);
    return ceni_set_at(s, set)->host && !ceni_link_at(s, link)->writes;
}

unsigned ceni_set_lend(ceni_state *s, uint32_t index, uint32_t client, uint32_t first, int *fds,
                       unsigned room) {
    const ceni_set *set = ceni_set_at(s, index);
    bool weaker = gets_weaker(s, index, client);
    unsigned left = set->page_count - first, count = left < room ? left : room, made = 0;
    for (; made < count; made++) {
        int fd = set->pages[first + made];
        fds[made] = weaker ? s->calls.read_only(s->arg, fd) : fd;
        if (fds[made] < 0) {
            ceni_set_lent(s, index, client, fds, made);
            return 0;
        }
    }
    return made;
}

void ceni_set_lent(ceni_state *s, uint32_t index, uint32_t client, int *fds, unsigned count) {
    bool weaker = gets_weaker(s, index, client);
    for (unsigned i = 0; weaker && i < count; i++) {
        ceni_state_close_fd(s, ceni_set_at(s, index)->user, &fds[i]);
    }
}

cen_status ceni_state_on_pages(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    const ceni_wire_pages *b = m->body;
    uint32_t index = ceni_set_find(s, b->set);
    uint32_t found =
        index == CENI_NONE ? CENI_NONE : ceni_link_find(s, CENI_CLIENT_SET, client, index);
    if (found == CENI_NONE || !ceni_link_at(s, found)->granted) {
        return ceni_state_refuse(s, CEN_ERR_PERMISSION,
                                 "this client has no export of set %" PRIx64 " open", b->set);
    }
    const ceni_set *set = ceni_set_at(s, index);
    if (b->first_page >= set->page_count) {
        return ceni_state_refuse(s, CEN_ERR_INVALID,
                                 "set %" PRIx64 " has %" PRIu32 " pages, not "
                                 "%" PRIu32,
                                 set->id, set->page_count, b->first_page);
    }
    int fds[CENI_WIRE_FDS];
    unsigned count = ceni_set_lend(s, index, client, b->first_page, fds, CENI_WIRE_FDS);
    if (!count) {
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "the broker cannot open a page for reading only");
    }
    ceni_wire_pages_reply *r = ceni_wire_begin(&s->out, CENI_WIRE_PAGES, m->head.seq, sizeof *r);
    *r = (ceni_wire_pages_reply){set->id, b->first_page, count};
    ceni_ipc_step("broker: hands out pages");
    ceni_state_send(s, client, fds, count);
    ceni_set_lent(s, index, client, fds, count);
    return CEN_OK;
}
