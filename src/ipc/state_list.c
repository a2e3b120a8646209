/* LIST: what a user may see, a part at a time. */
#include "ipc/state_int.h"

#include <string.h>

/* Records of one reply. A request looks at so many items and no more, so that a long list does not
 * keep the others waiting; its reply may have no record and go on all the same. */
enum { ROOM = 24000, LOOK = 4096, RECORD_MAX = 1024 };

typedef struct page {
    uint8_t bytes[ROOM];
    size_t size;
    uint32_t count;
} page;

static void put(page *p, const void *data, size_t size) {
    memcpy(p->bytes + p->size, data, size);
    p->size += size;
}
static void put_u8(page *p, bool value) {
    p->bytes[p->size++] = value;
}
static void put_u32(page *p, uint32_t value) {
    put(p, &value, sizeof value);
}
static void put_u64(page *p, uint64_t value) {
    put(p, &value, sizeof value);
}
static void put_text(page *p, const char *text, size_t size) {
    uint16_t length = (uint16_t)size;
    put(p, &length, sizeof length);
    put(p, text, size);
}

/* Who asks. */
typedef struct viewer {
    uint32_t client, user;
    bool all;
} viewer;

/* Whether it is the user's, or open by one of the user's processes. */
static bool has_set(const ceni_state *s, viewer v, uint32_t set) {
    return v.all || ceni_set_at(s, set)->user == v.user ||
           ceni_link_find(s, CENI_USER_SET, v.user, set) != CENI_NONE;
}

static bool may_open(const ceni_state *s, viewer v, uint32_t set) {
    bool write;
    return ceni_set_allows(s, ceni_set_at(s, set), v.client, &write);
}

static bool client_record(const ceni_state *s, viewer v, uint32_t index, page *p) {
    const ceni_client *c = ceni_client_at(s, index);
    if (!v.all && c->user != v.user &&
        ceni_link_find(s, CENI_CLIENT_OWNER, index, v.user) == CENI_NONE) {
        return false;
    }
    put_u64(p, c->id);
    put_u32(p, (uint32_t)c->pid);
    put_u32(p, ceni_user_at(s, c->user)->uid);
    put_u32(p, c->gid);
    put_text(p, c->label, strlen(c->label));
    put_text(p, c->container, strlen(c->container));
    put_u8(p, c->connected);
    return true;
}

static bool set_record(const ceni_state *s, viewer v, uint32_t index, page *p) {
    const ceni_set *set = ceni_set_at(s, index);
    if (!has_set(s, v, index) && !may_open(s, v, index)) {
        return false;
    }
    bool publisher = set->holder != CENI_NONE && !set->by_reader;
    put_u64(p, set->id);
    put_u64(p, set->bytes);
    put_u32(p, set->page_count);
    put_u32(p, ceni_user_at(s, set->user)->uid);
    put_u64(p, publisher ? ceni_client_at(s, set->holder)->id : 0);
    put_u32(p, (uint32_t)set->publisher_pid);
    put_text(p, set->uuid, strlen(set->uuid));
    put_u32(p, set->export_count);
    put_u32(p, set->importers);
    return true;
}

static bool export_record(const ceni_state *s, viewer v, uint32_t index, page *p) {
    const ceni_export *e = ceni_export_at(s, index);
    /* Of those that others may open, what has no name is for who has its token. */
    bool open = e->name != CENI_NONE && !e->withdrawn;
    if (!has_set(s, v, e->set) && !(open && may_open(s, v, e->set))) {
        return false;
    }
    const ceni_name *n = e->name == CENI_NONE ? NULL : ceni_name_at(s, e->name);
    put_u64(p, e->id);
    put_u64(p, ceni_set_at(s, e->set)->id);
    put_u64(p, e->version);
    put_text(p, n ? n->text : "", n ? n->size : 0);
    put_u8(p, e->keep);
    put_u8(p, e->withdrawn);
    put_u8(p, e->revoked);
    put_u8(p, e->writers != 0);
    put_u32(p, e->lease_count);
    return true;
}

static bool lease_record(const ceni_state *s, viewer v, uint32_t index, page *p) {
    const ceni_lease *l = ceni_lease_at(s, index);
    const ceni_client *c = ceni_client_at(s, l->client);
    const ceni_export *e = ceni_export_at(s, l->export);
    if (!v.all && c->user != v.user && ceni_set_at(s, e->set)->user != v.user) {
        return false;
    }
    put_u64(p, c->id);
    put_u64(p, e->id);
    put_u8(p, l->slot.flags & CENI_LEASE_WRITE);
    return true;
}

typedef bool (*record_fn)(const ceni_state *s, viewer v, uint32_t index, page *p);

/* Fills a page of one kind from item `at` on; gives where to go on, CENI_NONE: nowhere. */
static uint32_t fill(const ceni_state *s, viewer v, const ceni_slots *slots, record_fn record,
                     uint32_t at, page *p) {
    uint32_t end = slots->used - at < LOOK ? slots->used : at + LOOK;
    for (; at < end && p->size + RECORD_MAX <= ROOM; at++) {
        const ceni_slot *slot = ceni_slots_at(slots, at);
        if (slot->flags & CENI_SLOT_LIVE) {
            p->count += record(s, v, at, p);
        }
    }
    return at < slots->used ? at : CENI_NONE;
}

cen_status ceni_state_on_list(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    static const record_fn records[] = {client_record, set_record, export_record, lease_record};
    const ceni_slots *const slots[] = {&s->clients, &s->sets, &s->exports, &s->leases};
    uint64_t cursor = ((const ceni_wire_list *)m->body)->cursor;
    uint32_t kind = cursor ? (uint32_t)(cursor >> 32) : CENI_WIRE_RECORD_CLIENT;
    uint32_t at = (uint32_t)cursor;
    if (kind < CENI_WIRE_RECORD_CLIENT || kind > CENI_WIRE_RECORD_LEASE ||
        at > slots[kind - 1]->used) {
        return ceni_state_refuse(s, CEN_ERR_INVALID, "a cursor that no reply had");
    }
    const ceni_client *c = ceni_client_at(s, client);
    viewer v = {client, c->user, ceni_user_at(s, c->user)->uid == 0};
    page p;
    p.size = p.count = 0;
    at = fill(s, v, slots[kind - 1], records[kind - 1], at, &p);
    ceni_wire_list_reply *r = ceni_wire_begin(&s->out, CENI_WIRE_LIST, m->head.seq, sizeof *r);
    r->kind = kind;
    r->count = p.count;
    if (at != CENI_NONE) {
        r->cursor = (uint64_t)kind << 32 | at;
    } else if (kind < CENI_WIRE_RECORD_LEASE) {
        r->cursor = (uint64_t)(kind + 1) << 32;
    }
    ceni_wire_add(&s->out, p.bytes, p.size);
    ceni_state_send(s, client, NULL, 0);
    return CEN_OK;
}
