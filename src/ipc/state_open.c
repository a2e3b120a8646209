/* OPEN: by name, which may be waited for, or by token. */
#include "ipc/state_int.h"

#include <inttypes.h>
#include <string.h>

#include "ipc/step.h"

static void reply(ceni_state *s, uint32_t client, uint32_t seq, const ceni_export *e, bool write,
                  bool pages) {
    const ceni_set *set = ceni_set_at(s, e->set);
    const ceni_name *n = e->name == CENI_NONE ? NULL : ceni_name_at(s, e->name);
    ceni_wire_open_reply *r = ceni_wire_begin(&s->out, CENI_WIRE_OPEN, seq, sizeof *r);
    *r = (ceni_wire_open_reply){
        .export_id = e->id,
        .version = e->version,
        .set = set->id,
        .bytes = set->bytes,
        .page_bytes = set->page_bytes,
        .token = {e->token[0], e->token[1]},
        .page_count = set->page_count,
        .write = write,
        .owner_uid = ceni_user_at(s, set->user)->uid,
        .name_size = n ? n->size : 0,
        .directory_size = e->directory_size,
        .access_count = set->access_count,
        .orphan = ceni_export_publisher(s, e) == CENI_NONE,
    };
    r->flags = (e->keep ? CENI_WIRE_KEEP : 0) | (e->once ? CENI_WIRE_ONCE : 0) |
               (e->directory_fd >= 0 ? CENI_WIRE_DIRECTORY_FD : 0) |
               (e->event_fd >= 0 ? CENI_WIRE_EVENT_FD : 0) |
               (e->has_token ? CENI_WIRE_EVENT_TOKEN : 0);
    memcpy(r->uuid, set->uuid, sizeof r->uuid);
    memcpy(r->event, e->event, sizeof r->event);
    ceni_wire_add(&s->out, set->access, set->access_count * sizeof *set->access);
    ceni_wire_add(&s->out, n ? n->text : "", n ? n->size : 0);
    ceni_wire_add(&s->out, e->directory, e->directory ? e->directory_size : 0);
    int fds[CENI_WIRE_FDS];
    unsigned count = 0, lent = 0;
    if (e->directory_fd >= 0) {
        fds[count++] = e->directory_fd;
    }
    if (e->event_fd >= 0) {
        fds[count++] = e->event_fd;
    }
    uint32_t link = ceni_link_find(s, CENI_CLIENT_SET, client, e->set);
    if (pages && ceni_link_at(s, link)->granted == 1) { /* else it has them, or asks */
        lent = ceni_set_lend(s, e->set, client, 0, fds + count, CENI_WIRE_FDS - count);
    }
    ceni_ipc_step("broker: grants a lease");
    ceni_state_send(s, client, fds, count + lent);
    ceni_set_lent(s, e->set, client, fds + count, lent);
}

static cen_status open_export(ceni_state *s, uint32_t client, uint32_t index, uint32_t flags,
                              uint32_t seq) {
    const ceni_export *e = ceni_export_at(s, index);
    bool may_write, write = flags & CENI_WIRE_OPEN_WRITE, open = !e->withdrawn;
    if (!ceni_set_allows(s, ceni_set_at(s, e->set), client, &may_write)) { /* by its token */
        return ceni_state_refuse(s, CEN_ERR_PERMISSION, "export %" PRIx64 " is not for this user",
                                 e->id);
    }
    if (write && !may_write) {
        return ceni_state_refuse(s, CEN_ERR_PERMISSION,
                                 "export %" PRIx64 " is not for this user to write", e->id);
    }
    cen_status status = ceni_lease_begin(
        s, client, index, CENI_LEASE_GRANTED | (write ? (uint32_t)CENI_LEASE_WRITE : 0));
    if (!status) {
        uint32_t lease = ceni_lease_find(s, client, index);
        reply(s, client, seq, e, ceni_lease_at(s, lease)->slot.flags & CENI_LEASE_WRITE,
              flags & CENI_WIRE_OPEN_PAGES);
        if (open && e->withdrawn) {
            ceni_notice_withdrawn(s, e, client);
        }
    }
    return status;
}

/* By its token: also a withdrawn one, if the client has it open, for whom it may be a second try
 * after a broken connection. */
static cen_status open_by_token(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    const ceni_wire_open *b = m->body;
    uint32_t index = ceni_export_find(s, b->export_id);
    const ceni_export *e = index == CENI_NONE ? NULL : ceni_export_at(s, index);
    bool found = e && !((e->token[0] ^ b->token[0]) | (e->token[1] ^ b->token[1]));
    if (found && e->withdrawn) {
        uint32_t lease = ceni_lease_find(s, client, index);
        found = !e->revoked && lease != CENI_NONE &&
                ceni_lease_at(s, lease)->slot.flags & CENI_LEASE_GRANTED;
    }
    if (!found) {
        return ceni_state_refuse(s, CEN_ERR_NOT_FOUND, "no export has that token");
    }
    return open_export(s, client, index, b->flags, m->head.seq);
}

static bool may_open(const ceni_state *s, uint32_t client, const ceni_export *e) {
    bool write;
    return ceni_set_allows(s, ceni_set_at(s, e->set), client, &write);
}

/* The living export of a name: of that version, or the newest; if `client` is not CENI_NONE, of
 * those that it may open: the others are for it as if they were not there. */
static uint32_t find_version(const ceni_state *s, const ceni_name *n, uint64_t version,
                             uint32_t client) {
    uint32_t best = CENI_NONE;
    for (uint32_t i = n->living; i != CENI_NONE; i = ceni_export_at(s, i)->by_name.next) {
        const ceni_export *e = ceni_export_at(s, i);
        bool better = best == CENI_NONE || e->version > ceni_export_at(s, best)->version;
        if ((version ? e->version == version : better) &&
            (client == CENI_NONE || may_open(s, client, e))) {
            best = i;
        }
    }
    return best;
}

uint32_t ceni_name_newest(const ceni_state *s, uint32_t name) {
    return find_version(s, ceni_name_at(s, name), 0, CENI_NONE);
}

static cen_status wait_for(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    const ceni_wire_open *b = m->body;
    uint32_t name = ceni_name_get(s, m->name, m->name_size);
    if (name == CENI_NONE) {
        return ceni_state_no_memory(s);
    }
    if (!ceni_timer_start(s, client, b->wait_ms)) {
        ceni_name_release(s, name);
        return ceni_state_no_memory(s);
    }
    ceni_client *c = ceni_client_at(s, client);
    c->wait_name = name;
    c->wait_version = b->version;
    c->wait_flags = b->flags;
    c->wait_seq = m->head.seq;
    ceni_list_push(&s->clients, offsetof(ceni_client, by_name), &ceni_name_at(s, name)->waiting,
                   client);
    return CEN_ERR_NOT_READY;
}

cen_status ceni_state_on_open(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    const ceni_wire_open *b = m->body;
    if (!m->name_size) {
        return open_by_token(s, client, m);
    }
    uint32_t name = ceni_name_find(s, m->name, m->name_size);
    uint32_t index =
        name == CENI_NONE ? CENI_NONE : find_version(s, ceni_name_at(s, name), b->version, client);
    if (index != CENI_NONE) {
        return open_export(s, client, index, b->flags, m->head.seq);
    }
    if (b->wait_ms) {
        return wait_for(s, client, m);
    }
    return ceni_state_refuse(s, CEN_ERR_NOT_FOUND, "nothing of the name %.*s is published%s",
                             (int)(m->name_size < 100 ? m->name_size : 100), m->name,
                             b->version ? " in that version" : "");
}

void ceni_open_forget(ceni_state *s, uint32_t client) {
    ceni_client *c = ceni_client_at(s, client);
    uint32_t name = c->wait_name;
    if (name != CENI_NONE) {
        ceni_timer_stop(s, client);
        ceni_list_remove(&s->clients, offsetof(ceni_client, by_name),
                         &ceni_name_at(s, name)->waiting, client);
        c->wait_name = CENI_NONE;
        ceni_name_release(s, name);
    }
}

void ceni_open_timeout(ceni_state *s, uint32_t client) {
    uint32_t seq = ceni_client_at(s, client)->wait_seq;
    ceni_open_forget(s, client);
    cen_status status =
        ceni_state_refuse(s, CEN_ERR_NOT_FOUND, "nothing of that name was published in time");
    ceni_state_send_failure(s, client, CENI_WIRE_OPEN, seq, status);
}

void ceni_open_waiting(ceni_state *s, uint32_t export) {
    const ceni_export *e = ceni_export_at(s, export);
    if (e->name == CENI_NONE) {
        return;
    }
    uint64_t version = e->version;
    for (uint32_t i = ceni_name_at(s, e->name)->waiting, next; i != CENI_NONE; i = next) {
        const ceni_client *c = ceni_client_at(s, i);
        next = c->by_name.next;
        if (e->withdrawn) { /* the first had it alone */
            break;
        }
        if ((c->wait_version && c->wait_version != version) || !may_open(s, i, e)) {
            continue;
        }
        uint32_t flags = c->wait_flags, seq = c->wait_seq;
        ceni_open_forget(s, i);
        cen_status status = open_export(s, i, export, flags, seq);
        if (status) {
            ceni_state_send_failure(s, i, CENI_WIRE_OPEN, seq, status);
        }
    }
}
