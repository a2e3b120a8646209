/* Leases: who has what open. */
#include "ipc/state_int.h"

#include <inttypes.h>

#include "ipc/step.h"

/* The links that a lease of this client in this set counts in. */
typedef struct link_key {
    enum ceni_link_kind kind;
    uint32_t from, to;
} link_key;

static unsigned keys_of(const ceni_state *s, uint32_t client, uint32_t set, link_key keys[3]) {
    uint32_t user = ceni_client_at(s, client)->user, owner = ceni_set_at(s, set)->user;
    keys[0] = (link_key){CENI_CLIENT_SET, client, set};
    keys[1] = (link_key){CENI_USER_SET, user, set};
    keys[2] = (link_key){CENI_CLIENT_OWNER, client, owner};
    return user == owner ? 1 : 3; /* what is a user's own is seen without */
}

static void link_end(ceni_state *s, link_key key, uint32_t flags) {
    uint32_t index = ceni_link_find(s, key.kind, key.from, key.to);
    ceni_link *l = ceni_link_at(s, index);
    l->count--;
    l->writes -= !!(flags & CENI_LEASE_WRITE);
    l->granted -= !!(flags & CENI_LEASE_GRANTED);
    if (!l->count) {
        if (key.kind == CENI_CLIENT_SET) {
            ceni_set_at(s, key.to)->importers--;
        }
        ceni_slots_give(&s->links, index);
    }
}

static bool link_begin(ceni_state *s, link_key key) {
    uint32_t index = ceni_link_find(s, key.kind, key.from, key.to);
    if (index == CENI_NONE) {
        index = ceni_slots_take(&s->links);
        if (index == CENI_NONE) {
            return false;
        }
        ceni_link *l = ceni_link_at(s, index);
        l->from = key.from | (uint32_t)key.kind << 30;
        l->to = key.to;
        ceni_slots_insert(&s->links, index);
        if (key.kind == CENI_CLIENT_SET) {
            ceni_set_at(s, key.to)->importers++;
        }
    }
    ceni_link_at(s, index)->count++;
    return true;
}

static cen_status new_lease(ceni_state *s, uint32_t client, uint32_t export, uint32_t *index) {
    ceni_client *c = ceni_client_at(s, client);
    ceni_user *u = ceni_user_at(s, c->user);
    if (u->leases >= s->limits.leases) {
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "user %" PRIu32 " has %" PRIu32 " leases, "
                                 "which is the limit",
                                 u->uid, u->leases);
    }
    *index = ceni_slots_take(&s->leases);
    if (*index == CENI_NONE) {
        return ceni_state_no_memory(s);
    }
    ceni_export *e = ceni_export_at(s, export);
    link_key keys[3];
    unsigned count = keys_of(s, client, e->set, keys);
    for (unsigned i = 0; i < count; i++) {
        if (!link_begin(s, keys[i])) {
            while (i) {
                link_end(s, keys[--i], 0);
            }
            ceni_slots_give(&s->leases, *index);
            return ceni_state_no_memory(s);
        }
    }
    ceni_lease *l = ceni_lease_at(s, *index);
    l->client = client;
    l->export = export;
    ceni_slots_insert(&s->leases, *index);
    ceni_list_push(&s->leases, offsetof(ceni_lease, by_client), &c->leases, *index);
    ceni_list_push(&s->leases, offsetof(ceni_lease, by_export), &e->leases, *index);
    c->lease_count++;
    e->lease_count++;
    u->leases++;
    return CEN_OK;
}

cen_status ceni_lease_begin(ceni_state *s, uint32_t client, uint32_t export, uint32_t flags) {
    uint32_t index = ceni_lease_find(s, client, export);
    if (index == CENI_NONE) {
        cen_status status = new_lease(s, client, export, &index);
        if (status) {
            return status;
        }
    }
    ceni_lease *l = ceni_lease_at(s, index);
    ceni_export *e = ceni_export_at(s, export);
    uint32_t added = flags & ~l->slot.flags;
    l->slot.flags |= added;
    e->writers += !!(added & CENI_LEASE_WRITE);
    link_key keys[3];
    unsigned count = keys_of(s, client, e->set, keys);
    for (unsigned i = 0; i < count; i++) {
        ceni_link *link =
            ceni_link_at(s, ceni_link_find(s, keys[i].kind, keys[i].from, keys[i].to));
        link->writes += !!(added & CENI_LEASE_WRITE);
        link->granted += !!(added & CENI_LEASE_GRANTED);
    }
    if (e->once) {
        ceni_export_shut(s, export);
    }
    return CEN_OK;
}

cen_status ceni_lease_again(ceni_state *s, uint32_t client, uint32_t export, uint32_t flags) {
    const ceni_export *e = ceni_export_at(s, export);
    bool open = !e->withdrawn;
    cen_status status = ceni_lease_begin(s, client, export, flags);
    if (!status && open && e->withdrawn) {
        ceni_notice_withdrawn(s, e, client);
    }
    return status;
}

void ceni_lease_end(ceni_state *s, uint32_t index, bool unclean) {
    ceni_lease *l = ceni_lease_at(s, index);
    uint32_t export = l->export;
    ceni_client *c = ceni_client_at(s, l->client);
    ceni_export *e = ceni_export_at(s, export);
    link_key keys[3];
    unsigned count = keys_of(s, l->client, e->set, keys);
    for (unsigned i = 0; i < count; i++) {
        link_end(s, keys[i], l->slot.flags);
    }
    ceni_list_remove(&s->leases, offsetof(ceni_lease, by_client), &c->leases, index);
    ceni_list_remove(&s->leases, offsetof(ceni_lease, by_export), &e->leases, index);
    c->lease_count--;
    e->lease_count--;
    e->writers -= !!(l->slot.flags & CENI_LEASE_WRITE);
    e->unclean = e->unclean || unclean;
    ceni_user_at(s, c->user)->leases--;
    ceni_slots_give(&s->leases, index);
    ceni_export_release(s, export);
}

/* ---- CLOSE ---- */

static uint32_t pending_of(const ceni_state *s, uint32_t client, uint64_t export_id) {
    uint32_t i = ceni_pending_first(s, export_id);
    while (i != CENI_NONE && ceni_pending_at(s, i)->client != client) {
        i = ceni_pending_next(s, i, export_id);
    }
    return i;
}

cen_status ceni_state_on_close(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    uint64_t id = ((const ceni_wire_id *)m->body)->id;
    uint32_t export = ceni_export_find(s, id);
    uint32_t lease = export == CENI_NONE ? CENI_NONE : ceni_lease_find(s, client, export);
    uint32_t pending = lease == CENI_NONE ? pending_of(s, client, id) : CENI_NONE;
    if (lease == CENI_NONE && pending == CENI_NONE) {
        return ceni_state_refuse(s, CEN_ERR_NOT_FOUND,
                                 "this client does not have export %" PRIx64 " open", id);
    }
    ceni_ipc_step("broker: ends a lease");
    if (lease != CENI_NONE) {
        ceni_lease_end(s, lease, false);
    } else {
        ceni_pending_end(s, pending);
    }
    ceni_wire_begin(&s->out, CENI_WIRE_CLOSE, m->head.seq, 0);
    ceni_state_send(s, client, NULL, 0);
    return CEN_OK;
}

/* ---- LEASE ---- */

void ceni_pending_end(ceni_state *s, uint32_t index) {
    ceni_pending *p = ceni_pending_at(s, index);
    ceni_client *c = ceni_client_at(s, p->client);
    ceni_list_remove(&s->pending, offsetof(ceni_pending, by_client), &c->pending, index);
    c->lease_count--;
    ceni_user_at(s, c->user)->leases--;
    ceni_slots_give(&s->pending, index);
}

/* A lease that a client says it has had. */
static cen_status have(ceni_state *s, uint32_t client, uint32_t export, uint64_t set_id,
                       bool write) {
    const ceni_export *e = ceni_export_at(s, export);
    const ceni_set *set = ceni_set_at(s, e->set);
    bool may_write;
    if (set->id != set_id || !ceni_set_allows(s, set, client, &may_write) ||
        (write && !may_write)) {
        return ceni_state_refuse(s, CEN_ERR_PERMISSION, "export %" PRIx64 " is not for this user",
                                 e->id);
    }
    return ceni_lease_again(s, client, export, write ? CENI_LEASE_WRITE : 0);
}

void ceni_pending_match(ceni_state *s, uint32_t export) {
    uint64_t id = ceni_export_at(s, export)->id;
    for (uint32_t i; (i = ceni_pending_first(s, id)) != CENI_NONE;) {
        ceni_pending p = *ceni_pending_at(s, i);
        ceni_pending_end(s, i);
        /* One that is refused has no claim; one for which memory lacks asks again by OPEN. */
        if (have(s, p.client, export, p.set_id, p.write)) {
            ceni_export_at(s, export)->unclean = true;
        }
    }
}

static cen_status new_pending(ceni_state *s, uint32_t client, const ceni_wire_lease *b) {
    ceni_client *c = ceni_client_at(s, client);
    ceni_user *u = ceni_user_at(s, c->user);
    if (pending_of(s, client, b->export_id) != CENI_NONE) {
        return ceni_state_refuse(s, CEN_ERR_INVALID, "export %" PRIx64 " was announced twice",
                                 b->export_id);
    }
    if (u->leases >= s->limits.leases) {
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "user %" PRIu32 " has %" PRIu32 " leases, "
                                 "which is the limit",
                                 u->uid, u->leases);
    }
    uint32_t index = ceni_slots_take(&s->pending);
    if (index == CENI_NONE) {
        return ceni_state_no_memory(s);
    }
    ceni_pending *p = ceni_pending_at(s, index);
    p->client = client;
    p->write = b->write;
    p->export_id = b->export_id;
    p->set_id = b->set;
    ceni_slots_insert(&s->pending, index);
    ceni_list_push(&s->pending, offsetof(ceni_pending, by_client), &c->pending, index);
    c->lease_count++;
    u->leases++;
    return CEN_OK;
}

cen_status ceni_state_on_lease(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    const ceni_wire_lease *b = m->body;
    uint32_t export = ceni_export_find(s, b->export_id);
    cen_status status =
        export == CENI_NONE ? new_pending(s, client, b) : have(s, client, export, b->set, b->write);
    if (status) {
        return status;
    }
    ceni_wire_begin(&s->out, CENI_WIRE_LEASE, m->head.seq, 0);
    ceni_state_send(s, client, NULL, 0);
    return CEN_OK;
}
