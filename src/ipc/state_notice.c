/* What clients are told unasked, and the names that they watch. */
#include "ipc/state_int.h"

bool ceni_notice_export(ceni_state *s, uint32_t client, uint32_t kind, const ceni_export *e) {
    ceni_client *c = ceni_client_at(s, client);
    if (!c->connected) {
        return false;
    }
    const ceni_name *n = e->name == CENI_NONE ? NULL : ceni_name_at(s, e->name);
    ceni_wire_notice *b = ceni_wire_begin(&s->note, CENI_WIRE_NOTICE, 0, sizeof *b);
    b->kind = kind;
    b->export_id = e->id;
    b->version = e->version;
    b->unclean = kind == CEN_SHARE_IDLE && e->unclean;
    b->name_size = n && kind != CENI_WIRE_NOTICE_WITHDRAWN ? n->size : 0;
    ceni_wire_add(&s->note, n ? n->text : "", b->name_size);
    return s->calls.notice(s->arg, c->peer, &s->note);
}

void ceni_notice_readers(ceni_state *s, const ceni_export *e, cen_share_notice_kind kind) {
    for (uint32_t i = e->leases; i != CENI_NONE; i = ceni_lease_at(s, i)->by_export.next) {
        (void)ceni_notice_export(s, ceni_lease_at(s, i)->client, kind, e); /* or it resumes */
    }
}

/* Whether the client, if it has the export open, would announce it to another broker as open,
 * unless it knows that it is not. */
static bool would_open(const ceni_state *s, uint32_t client, const ceni_export *e) {
    return !e->once && !e->revoked &&
           ceni_client_at(s, client)->user == ceni_set_at(s, e->set)->user;
}

void ceni_notice_withdrawn(ceni_state *s, const ceni_export *e, uint32_t by) {
    uint32_t publisher = ceni_export_publisher(s, e);
    if (publisher != CENI_NONE && publisher != by && e->announced) {
        (void)ceni_notice_export(s, publisher, CENI_WIRE_NOTICE_WITHDRAWN, e);
    }
    for (uint32_t i = e->leases; i != CENI_NONE; i = ceni_lease_at(s, i)->by_export.next) {
        uint32_t client = ceni_lease_at(s, i)->client;
        if (would_open(s, client, e)) {
            (void)ceni_notice_export(s, client, CENI_WIRE_NOTICE_WITHDRAWN, e);
        }
    }
}

/* Tells a client of a new version, once, and only if it may open it. */
static void tell_version(ceni_state *s, uint32_t client, const ceni_export *e) {
    ceni_client *c = ceni_client_at(s, client);
    bool write;
    if (c->stamp != s->stamp) {
        c->stamp = s->stamp;
        if (ceni_set_allows(s, ceni_set_at(s, e->set), client, &write)) {
            (void)ceni_notice_export(s, client, CEN_SHARE_NEW_VERSION, e);
        }
    }
}

static void tell_readers(ceni_state *s, uint32_t list, const ceni_export *e) {
    for (uint32_t i = list; i != CENI_NONE; i = ceni_export_at(s, i)->by_name.next) {
        uint32_t lease = ceni_export_at(s, i)->leases;
        for (; lease != CENI_NONE; lease = ceni_lease_at(s, lease)->by_export.next) {
            tell_version(s, ceni_lease_at(s, lease)->client, e);
        }
    }
}

void ceni_notice_watchers(ceni_state *s, uint32_t export) {
    const ceni_export *e = ceni_export_at(s, export);
    s->stamp++;
    for (uint32_t i = ceni_name_at(s, e->name)->watches; i != CENI_NONE;) {
        const ceni_watch *watch = ceni_watch_at(s, i);
        tell_version(s, watch->client, e);
        i = watch->by_name.next;
    }
}

void ceni_notice_version(ceni_state *s, uint32_t export) {
    const ceni_export *e = ceni_export_at(s, export);
    const ceni_name *n = ceni_name_at(s, e->name);
    ceni_notice_watchers(s, export);
    tell_readers(s, n->living, e);
    tell_readers(s, n->withdrawn, e);
}

static void again_to_publisher(ceni_state *s, uint32_t client) {
    for (uint32_t i = ceni_client_at(s, client)->sets; i != CENI_NONE;
         i = ceni_set_at(s, i)->by_holder.next) {
        for (uint32_t e = ceni_set_at(s, i)->exports, next; e != CENI_NONE; e = next) {
            const ceni_export *export = ceni_export_at(s, e);
            next = export->by_set.next;
            if (export->announced && export->withdrawn) {
                (void)ceni_notice_export(s, client, CENI_WIRE_NOTICE_WITHDRAWN, export);
            }
            ceni_export_release(s, e); /* if it is over, this can be told now */
        }
    }
}

void ceni_notice_again(ceni_state *s, uint32_t client) {
    const ceni_client *c = ceni_client_at(s, client);
    again_to_publisher(s, client);
    for (uint32_t i = c->leases; i != CENI_NONE; i = ceni_lease_at(s, i)->by_client.next) {
        const ceni_export *e = ceni_export_at(s, ceni_lease_at(s, i)->export);
        if (e->revoked) {
            (void)ceni_notice_export(s, client, CEN_SHARE_REVOKED, e);
        }
        if (e->withdrawn && !e->hidden && would_open(s, client, e)) {
            (void)ceni_notice_export(s, client, CENI_WIRE_NOTICE_WITHDRAWN, e);
        }
        if (ceni_export_publisher(s, e) == CENI_NONE) {
            (void)ceni_notice_export(s, client, CEN_SHARE_PUBLISHER_GONE, e);
        }
    }
    for (uint32_t i = c->watches; i != CENI_NONE; i = ceni_watch_at(s, i)->by_client.next) {
        uint32_t e = ceni_name_newest(s, ceni_watch_at(s, i)->name);
        if (e != CENI_NONE) {
            s->stamp++;
            tell_version(s, client, ceni_export_at(s, e));
        }
    }
}

/* ---- WATCH ---- */

void ceni_watch_end(ceni_state *s, uint32_t index) {
    const ceni_watch *w = ceni_watch_at(s, index);
    uint32_t name = w->name;
    ceni_client *c = ceni_client_at(s, w->client);
    ceni_list_remove(&s->watches, offsetof(ceni_watch, by_client), &c->watches, index);
    ceni_list_remove(&s->watches, offsetof(ceni_watch, by_name), &ceni_name_at(s, name)->watches,
                     index);
    c->watch_count--;
    ceni_slots_give(&s->watches, index);
    ceni_name_release(s, name);
}

static cen_status watch_begin(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    ceni_client *c = ceni_client_at(s, client);
    if (c->watch_count >= CENI_WATCHES_MAX) {
        return ceni_state_refuse(s, CEN_ERR_LIMIT, "a client may watch %d names", CENI_WATCHES_MAX);
    }
    uint32_t name = ceni_name_get(s, m->name, m->name_size);
    uint32_t index = name == CENI_NONE ? CENI_NONE : ceni_slots_take(&s->watches);
    if (index == CENI_NONE) {
        if (name != CENI_NONE) {
            ceni_name_release(s, name);
        }
        return ceni_state_no_memory(s);
    }
    ceni_watch *w = ceni_watch_at(s, index);
    w->client = client;
    w->name = name;
    ceni_slots_insert(&s->watches, index);
    ceni_list_push(&s->watches, offsetof(ceni_watch, by_client), &c->watches, index);
    ceni_list_push(&s->watches, offsetof(ceni_watch, by_name), &ceni_name_at(s, name)->watches,
                   index);
    c->watch_count++;
    return CEN_OK;
}

cen_status ceni_state_on_watch(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    uint32_t name = ceni_name_find(s, m->name, m->name_size);
    uint32_t index = name == CENI_NONE ? CENI_NONE : ceni_watch_find(s, client, name);
    bool on = ((const ceni_wire_watch *)m->body)->on;
    cen_status status = CEN_OK;
    if (on && index == CENI_NONE) {
        status = watch_begin(s, client, m);
    } else if (!on && index != CENI_NONE) {
        ceni_watch_end(s, index);
    }
    if (!status) {
        ceni_wire_begin(&s->out, CENI_WIRE_WATCH, m->head.seq, 0);
        ceni_state_send(s, client, NULL, 0);
    }
    return status;
}
