/* PUBLISH: new exports, and those that are announced again after a restart. */
#include "ipc/state_int.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "ipc/step.h"

enum { DEFAULT_TTL_MS = 60000 };

/* The set's access list is that of its first export. */
static cen_status take_access(ceni_state *s, ceni_set *set, const ceni_wire_message *m) {
    size_t size = m->access_count * sizeof *m->access;
    if (set->listed &&
        (set->access_count != m->access_count || (size && memcmp(set->access, m->access, size)))) {
        return ceni_state_refuse(s, CEN_ERR_INVALID,
                                 "set %" PRIx64 " has another access list: "
                                 "all its exports have the same",
                                 set->id);
    }
    if (size) {
        memcpy(set->access, m->access, size);
    }
    set->access_count = (uint8_t)m->access_count;
    set->listed = true;
    return CEN_OK;
}

static cen_status check_descriptors(ceni_state *s, const ceni_wire_publish *b, const int *fds) {
    const char *why;
    bool directory = b->flags & CENI_WIRE_DIRECTORY_FD, event = b->flags & CENI_WIRE_EVENT_FD;
    if (directory && !s->calls.check(s->arg, fds[0], CENI_FD_DIRECTORY, b->directory_size, &why)) {
        return ceni_state_refuse(s, CEN_ERR_INVALID, "the directory: %s", why);
    }
    if (event && !s->calls.check(s->arg, fds[directory], CENI_FD_EVENT, 0, &why)) {
        return ceni_state_refuse(s, CEN_ERR_INVALID, "the event: %s", why);
    }
    return CEN_OK;
}

/* The set that a client may publish in; `reader`: it only announces what it has open. */
static cen_status find_set(ceni_state *s, uint32_t client, const ceni_wire_publish *b,
                           uint32_t *index, bool *reader) {
    *index = ceni_set_find(s, b->set);
    if (*index == CENI_NONE) {
        return ceni_state_refuse(s, CEN_ERR_NOT_FOUND, "there is no set %" PRIx64, b->set);
    }
    const ceni_set *set = ceni_set_at(s, *index);
    bool publisher = set->holder == client && !set->by_reader;
    bool again = b->flags & CENI_WIRE_AGAIN;
    if (set->user != ceni_client_at(s, client)->user || (!publisher && !again)) {
        return ceni_state_refuse(s, CEN_ERR_PERMISSION, "set %" PRIx64 " is not this client's",
                                 b->set);
    }
    if (set->pages_have < set->page_count) {
        return ceni_state_refuse(s, CEN_ERR_INVALID,
                                 "set %" PRIx64 " has %" PRIu32 " of its %" PRIu32 " pages", b->set,
                                 set->pages_have, set->page_count);
    }
    *reader = !publisher;
    return CEN_OK;
}

/* ---- names ---- */

static cen_status name_ready(ceni_state *s, const ceni_name *n, uint32_t user, uint64_t version) {
    if (n->living != CENI_NONE && n->owner != user) {
        return ceni_state_refuse(s, CEN_ERR_PERMISSION, "the name %.*s is another user's",
                                 (int)n->size, n->text);
    }
    if (n->living_count >= CENI_VERSIONS_MAX) {
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "the name %.*s has %d versions, which is the "
                                 "limit: withdraw some",
                                 (int)n->size, n->text, CENI_VERSIONS_MAX);
    }
    for (uint32_t i = n->living; version && i != CENI_NONE;) {
        const ceni_export *e = ceni_export_at(s, i);
        if (e->version == version) {
            return ceni_state_refuse(s, CEN_ERR_INVALID,
                                     "the name %.*s has a version %" PRIu64 " already",
                                     (int)n->size, n->text, version);
        }
        i = e->by_name.next;
    }
    return CEN_OK;
}

/* Puts an export among the living or withdrawn of its name. */
static void list_by_name(ceni_state *s, uint32_t index) {
    ceni_export *e = ceni_export_at(s, index);
    if (e->name == CENI_NONE) {
        return;
    }
    ceni_name *n = ceni_name_at(s, e->name);
    ceni_list_push(&s->exports, offsetof(ceni_export, by_name),
                   e->withdrawn ? &n->withdrawn : &n->living, index);
    if (!e->withdrawn) {
        n->owner = ceni_set_at(s, e->set)->user;
        n->living_count++;
    }
    if (e->version > n->last_version) {
        n->last_version = e->version;
    }
}

static void withdraw_older(ceni_state *s, uint32_t name, uint32_t newest) {
    const ceni_name *n = ceni_name_at(s, name);
    for (uint32_t i = n->living, next; i != CENI_NONE; i = next) {
        next = ceni_export_at(s, i)->by_name.next;
        if (i != newest) {
            ceni_export_withdraw(s, i, CENI_NONE);
        }
    }
}

/* ---- exports ---- */

static void fill(ceni_export *e, const ceni_wire_publish *b, int *fds) {
    e->token[0] = b->token[0];
    e->token[1] = b->token[1];
    e->keep = b->flags & CENI_WIRE_KEEP;
    e->once = b->flags & CENI_WIRE_ONCE;
    e->ttl_ms = b->once_ttl_ms ? b->once_ttl_ms : DEFAULT_TTL_MS;
    e->has_token = b->flags & CENI_WIRE_EVENT_TOKEN;
    memcpy(e->event, b->event, sizeof e->event);
    e->directory_size = b->directory_size;
    e->leases = e->timer = CENI_NONE;
    e->directory_fd = e->event_fd = -1;
    unsigned at = 0;
    if (b->flags & CENI_WIRE_DIRECTORY_FD) {
        e->directory_fd = fds[at];
        fds[at++] = -1;
    }
    if (b->flags & CENI_WIRE_EVENT_FD) {
        e->event_fd = fds[at];
        fds[at] = -1;
    }
}

static cen_status check_room(ceni_state *s, const ceni_set *set, const ceni_wire_publish *b) {
    const ceni_user *u = ceni_user_at(s, set->user);
    if (u->exports >= s->limits.exports) {
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "user %" PRIu32 " has %" PRIu32 " exports, "
                                 "which is the limit",
                                 u->uid, u->exports);
    }
    if ((b->flags & (CENI_WIRE_DIRECTORY_FD | CENI_WIRE_EVENT_FD)) && u->fds + 2 > s->limits.fds) {
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "user %" PRIu32 " has %" PRIu32 " descriptors "
                                 "here, which is the limit",
                                 u->uid, u->fds);
    }
    return CEN_OK;
}

/* Memory for an export with its name; nothing else of it is known yet. */
static cen_status make(ceni_state *s, uint32_t set, const ceni_wire_message *m, bool withdrawn,
                       uint32_t *index) {
    const ceni_wire_publish *b = m->body;
    uint32_t name = CENI_NONE;
    if (m->name_size) {
        name = ceni_name_get(s, m->name, m->name_size);
        if (name == CENI_NONE) {
            return ceni_state_no_memory(s);
        }
        cen_status status =
            withdrawn ? CEN_OK
                      : name_ready(s, ceni_name_at(s, name), ceni_set_at(s, set)->user, b->version);
        if (status) {
            ceni_name_release(s, name);
            return status;
        }
    }
    uint8_t *directory = m->directory_size ? ceni_malloc(m->directory_size) : NULL;
    *index = m->directory_size && !directory ? CENI_NONE : ceni_slots_take(&s->exports);
    if (*index == CENI_NONE) {
        ceni_free(directory);
        if (name != CENI_NONE) {
            ceni_name_release(s, name);
        }
        return ceni_state_no_memory(s);
    }
    if (directory) {
        memcpy(directory, m->directory, m->directory_size);
    }
    ceni_export *e = ceni_export_at(s, *index);
    e->directory = directory;
    e->name = name;
    e->set = set;
    e->withdrawn = withdrawn;
    return CEN_OK;
}

static cen_status new_export(ceni_state *s, uint32_t set_index, const ceni_wire_message *m,
                             bool withdrawn, int *fds, uint32_t *index) {
    const ceni_wire_publish *b = m->body;
    ceni_set *set = ceni_set_at(s, set_index);
    cen_status status = check_room(s, set, b);
    status = status ? status : make(s, set_index, m, withdrawn, index);
    if (status) {
        return status;
    }
    ceni_export *e = ceni_export_at(s, *index);
    fill(e, b, fds);
    ceni_set_count_fd(s, set, (e->directory_fd >= 0) + (e->event_fd >= 0));
    e->id = b->export_id ? b->export_id : ceni_state_new_id(s);
    if (e->name != CENI_NONE) {
        e->version = b->version ? b->version : ceni_name_at(s, e->name)->last_version + 1;
    }
    list_by_name(s, *index);
    ceni_list_push(&s->exports, offsetof(ceni_export, by_set), &set->exports, *index);
    set->export_count++;
    if (set->holder != CENI_NONE && !set->by_reader) {
        ceni_client_at(s, set->holder)->export_count++;
    }
    ceni_user_at(s, set->user)->exports++;
    ceni_slots_insert(&s->exports, *index);
    return CEN_OK;
}

static void reply(ceni_state *s, uint32_t client, uint32_t seq, uint64_t id, uint64_t version) {
    ceni_wire_publish_reply *r = ceni_wire_begin(&s->out, CENI_WIRE_PUBLISH, seq, sizeof *r);
    *r = (ceni_wire_publish_reply){id, version};
    ceni_state_send(s, client, NULL, 0);
}

/* ---- after a restart ---- */

static cen_status check_same(ceni_state *s, uint32_t set, const ceni_wire_message *m,
                             const ceni_export *e) {
    const ceni_wire_publish *b = m->body;
    bool same_name = m->name_size == 0;
    if (e->name != CENI_NONE) {
        const ceni_name *n = ceni_name_at(s, e->name);
        same_name = n->size == m->name_size && !memcmp(n->text, m->name, n->size);
    }
    bool same_token = !((e->token[0] ^ b->token[0]) | (e->token[1] ^ b->token[1]));
    if (e->set != set || !same_token || e->version != b->version || !same_name) {
        return ceni_state_refuse(s, CEN_ERR_PERMISSION, "export %" PRIx64 " is another one", e->id);
    }
    return CEN_OK;
}

/* The publisher's word on whether an export is withdrawn that a reader announced before. It opens
 * what was closed for want of it, and nothing else. */
static cen_status settle(ceni_state *s, uint32_t index, uint32_t publisher, bool withdrawn) {
    ceni_export *e = ceni_export_at(s, index);
    if (!withdrawn && e->hidden && !(e->once && e->lease_count)) {
        if (e->name != CENI_NONE) {
            ceni_name *n = ceni_name_at(s, e->name);
            cen_status status = name_ready(s, n, ceni_set_at(s, e->set)->user, e->version);
            if (status) {
                return status;
            }
            ceni_list_remove(&s->exports, offsetof(ceni_export, by_name), &n->withdrawn, index);
        }
        e->withdrawn = e->hidden = false;
        list_by_name(s, index);
    }
    e->announced = true;
    if (withdrawn || e->hidden) {
        ceni_export_withdraw(s, index, publisher);
    }
    return CEN_OK;
}

/* One that this broker does not know. Not every reader has told of its lease yet: nobody can say
 * who has it open. */
static cen_status found_again(ceni_state *s, const ceni_wire_message *m, int *fds, uint32_t set,
                              bool reader, uint32_t *index) {
    const ceni_wire_publish *b = m->body;
    uint32_t user = ceni_set_at(s, set)->user;
    ceni_user *u = ceni_user_at(s, user);
    u->over = u->over ? u->over : ceni_malloc(CENI_OVER_MAX * sizeof *u->over);
    if (!u->over) {
        return ceni_state_no_memory(s);
    }
    bool withdrawn = b->flags & CENI_WIRE_WITHDRAWN || ceni_export_was_over(s, user, b->export_id);
    bool hidden = !withdrawn && reader && !(b->flags & CENI_WIRE_KEEP);
    cen_status status = new_export(s, set, m, withdrawn || hidden, fds, index);
    if (!status) {
        ceni_export *e = ceni_export_at(s, *index);
        e->unclean = true;
        e->hidden = hidden;
        e->announced = !reader;
        ceni_pending_match(s, *index);
    }
    return status;
}

/* One that this broker knows. */
static cen_status same_again(ceni_state *s, uint32_t client, const ceni_wire_message *m, int *fds,
                             uint32_t set, bool reader, uint32_t index) {
    const ceni_wire_publish *b = m->body;
    ceni_export *e = ceni_export_at(s, index);
    cen_status status = check_same(s, set, m, e);
    if (status || reader) {
        return status;
    }
    int *event_fd = &fds[b->flags & CENI_WIRE_DIRECTORY_FD ? 1 : 0];
    ceni_export_set_event(s, e, b->flags, b->event, event_fd);
    return settle(s, index, client, b->flags & CENI_WIRE_WITHDRAWN);
}

/* Who waits for the name was told that it is not there. */
static void opens_again(ceni_state *s, uint32_t index) {
    uint32_t name = ceni_export_at(s, index)->name;
    if (name != CENI_NONE && ceni_name_newest(s, name) == index) {
        ceni_notice_watchers(s, index);
    }
    ceni_open_waiting(s, index);
}

static cen_status publish_again(ceni_state *s, uint32_t client, const ceni_wire_message *m,
                                int *fds, uint32_t set, bool reader) {
    const ceni_wire_publish *b = m->body;
    bool withdrawn = b->flags & CENI_WIRE_WITHDRAWN;
    uint32_t index = ceni_export_find(s, b->export_id);
    bool is_new = index == CENI_NONE, was_open = !is_new && !ceni_export_at(s, index)->withdrawn;
    cen_status status = is_new ? found_again(s, m, fds, set, reader, &index)
                               : same_again(s, client, m, fds, set, reader, index);
    if (status) {
        return status;
    }
    if (reader) {
        status = ceni_lease_again(s, client, index, 0);
        if (!status && withdrawn) { /* also where the publisher has not heard of it */
            ceni_export_withdraw(s, index, client);
        }
    }
    const ceni_export *e = ceni_export_at(s, index); /* one that is withdrawn may be over by now */
    if (!status && !withdrawn && e->withdrawn && !e->hidden) {
        (void)ceni_notice_export(s, client, CENI_WIRE_NOTICE_WITHDRAWN, e);
    }
    if (!status) {
        reply(s, client, m->head.seq, b->export_id, b->version);
    }
    if (!withdrawn && !was_open && !e->withdrawn) {
        opens_again(s, index);
    }
    if (is_new) {
        ceni_export_release(s, index);
    }
    return status;
}

static cen_status publish_new(ceni_state *s, uint32_t client, const ceni_wire_message *m, int *fds,
                              uint32_t set) {
    const ceni_wire_publish *b = m->body;
    uint32_t index;
    cen_status status = new_export(s, set, m, false, fds, &index);
    if (status) {
        return status;
    }
    ceni_export *e = ceni_export_at(s, index);
    e->announced = true;
    ceni_ipc_step("broker: has an export");
    reply(s, client, m->head.seq, e->id, e->version);
    if (e->name != CENI_NONE) {
        ceni_notice_version(s, index);
        if (!(b->flags & CENI_WIRE_KEEP_OLDER)) {
            withdraw_older(s, e->name, index);
        }
        ceni_open_waiting(s, index);
    }
    return CEN_OK;
}

cen_status ceni_state_on_publish(ceni_state *s, uint32_t client, const ceni_wire_message *m,
                                 int *fds) {
    const ceni_wire_publish *b = m->body;
    uint32_t index;
    bool reader = false;
    cen_status status = find_set(s, client, b, &index, &reader);
    if (status) {
        return status;
    }
    ceni_set *set = ceni_set_at(s, index);
    bool listed = set->listed;
    status = check_descriptors(s, b, fds);
    status = status ? status : take_access(s, set, m);
    if (status) {
        return status;
    }
    set->busy++; /* an announcement may begin and end with it */
    status = b->flags & CENI_WIRE_AGAIN ? publish_again(s, client, m, fds, index, reader)
                                        : publish_new(s, client, m, fds, index);
    set->busy--;
    if (status && !set->export_count) {
        set->listed = listed;
    }
    if (!status && set->by_reader && set->holder == client) { /* its exports hold it from now on */
        ceni_set_let_go(s, index, false);
    } else {
        ceni_set_release(s, index);
    }
    return status;
}
