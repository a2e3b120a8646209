/* What the broker holds, as a list. */
#include <string.h>

#include "ipc/client_int.h"

/* The public list first: freeing it frees this. */
typedef struct list {
    cen_share_list shown;
    cen_share_client_info *clients;
    cen_share_set_info *sets;
    cen_share_export_listing *exports;
    cen_share_lease_info *leases;
    size_t client_room, set_room, export_room, lease_room;
} list;

/* Records as they come; `bad` once one ends too early. */
typedef struct cursor {
    const uint8_t *at;
    size_t left;
    bool bad;
} cursor;

static void take(cursor *c, void *to, size_t size) {
    if (c->bad || size > c->left) {
        c->bad = true;
        memset(to, 0, size);
        return;
    }
    memcpy(to, c->at, size);
    c->at += size;
    c->left -= size;
}

static uint64_t take_u64(cursor *c) {
    uint64_t value;
    take(c, &value, sizeof value);
    return value;
}
static uint32_t take_u32(cursor *c) {
    uint32_t value;
    take(c, &value, sizeof value);
    return value;
}
static bool take_bool(cursor *c) {
    uint8_t value;
    take(c, &value, sizeof value);
    c->bad |= value > 1;
    return value;
}

static void take_text(cursor *c, char *to, size_t room) {
    uint16_t size;
    take(c, &size, sizeof size);
    c->bad |= size >= room;
    to[0] = 0;
    if (!c->bad) {
        take(c, to, size);
        to[size] = 0;
        ceni_one_line(to);
    }
}

static void take_client(cursor *c, cen_share_client_info *info) {
    info->id = take_u64(c);
    info->pid = (int)take_u32(c);
    info->uid = take_u32(c);
    info->gid = take_u32(c);
    take_text(c, info->label, sizeof info->label);
    take_text(c, info->container, sizeof info->container);
    info->connected = take_bool(c);
}

static void take_set(cursor *c, cen_share_set_info *info) {
    info->id = take_u64(c);
    info->bytes = take_u64(c);
    info->pages = take_u32(c);
    info->uid = take_u32(c);
    info->publisher = take_u64(c);
    info->publisher_pid = (int)take_u32(c);
    take_text(c, info->device_uuid, sizeof info->device_uuid);
    info->exports = take_u32(c);
    info->importers = take_u32(c);
}

static void take_export(cursor *c, cen_share_export_listing *info) {
    info->id = take_u64(c);
    info->set = take_u64(c);
    info->version = take_u64(c);
    take_text(c, info->name, sizeof info->name);
    info->keep = take_bool(c);
    info->withdrawn = take_bool(c);
    info->revoked = take_bool(c);
    info->written = take_bool(c);
    info->leases = take_u32(c);
}

static void take_lease(cursor *c, cen_share_lease_info *info) {
    info->client = take_u64(c);
    info->export_id = take_u64(c);
    info->write = take_bool(c);
}

/* One record more, of a kind that ceni_wire_check knows. False: no memory. */
static bool take_record(list *l, uint32_t kind, cursor *c) {
    cen_share_list *s = &l->shown;
    switch (kind) {
    case CENI_WIRE_RECORD_CLIENT:
        if (ceni_grow(&l->clients, &l->client_room, s->client_count + 1, sizeof *l->clients)) {
            return false;
        }
        take_client(c, &l->clients[s->client_count++]);
        return true;
    case CENI_WIRE_RECORD_SET:
        if (ceni_grow(&l->sets, &l->set_room, s->set_count + 1, sizeof *l->sets)) {
            return false;
        }
        take_set(c, &l->sets[s->set_count++]);
        return true;
    case CENI_WIRE_RECORD_EXPORT:
        if (ceni_grow(&l->exports, &l->export_room, s->export_count + 1, sizeof *l->exports)) {
            return false;
        }
        take_export(c, &l->exports[s->export_count++]);
        return true;
    default:
        if (ceni_grow(&l->leases, &l->lease_room, s->lease_count + 1, sizeof *l->leases)) {
            return false;
        }
        take_lease(c, &l->leases[s->lease_count++]);
        return true;
    }
}

static cen_status take_records(list *l, const ceni_wire_message *message) {
    const ceni_wire_list_reply *body = message->body;
    cursor c = {message->records, message->records_size, false};
    for (uint32_t i = 0; i < body->count && !c.bad; i++) {
        if (!take_record(l, body->kind, &c)) {
            return ceni_fail(CEN_ERR_HOST_MEMORY, "list: out of host memory");
        }
    }
    return c.bad ? ceni_fail(CEN_ERR_FORMAT, "list: the broker sent a malformed record") : CEN_OK;
}

void cen_share_list_free(cen_share_list *shown) {
    list *l = (list *)shown;
    if (l) {
        ceni_free(l->clients);
        ceni_free(l->sets);
        ceni_free(l->exports);
        ceni_free(l->leases);
        ceni_free(l);
    }
}

cen_status ceni_client_list(cen_share *share, cen_share_list **out) {
    list *l = ceni_calloc(1, sizeof *l);
    uint64_t cursor_at = 0;
    cen_status status = l ? CEN_OK : ceni_fail(CEN_ERR_HOST_MEMORY, "list: out of host memory");
    while (!status) {
        ceni_wire_list *body = ceni_client_begin(share, CENI_WIRE_LIST, sizeof *body);
        body->cursor = cursor_at;
        ceni_reply reply;
        status = ceni_client_call(share, NULL, 0, &reply);
        if (status) {
            break;
        }
        cursor_at = ((const ceni_wire_list_reply *)reply.message.body)->cursor;
        status = take_records(l, &reply.message);
        ceni_reply_close(&reply);
        if (!cursor_at) {
            break;
        }
    }
    if (status) {
        cen_share_list_free((cen_share_list *)l);
        return status;
    }
    l->shown.clients = l->clients;
    l->shown.sets = l->sets;
    l->shown.exports = l->exports;
    l->shown.leases = l->leases;
    *out = &l->shown;
    return CEN_OK;
}

cen_status cen_share_list_read(cen_share *share, cen_share_list **out) {
    cen_status status = ceni_share_check(share, "list_read");
    if (!status && !out) {
        status = ceni_fail(CEN_ERR_INVALID, "list_read: list is NULL");
    }
    if (status) {
        return status;
    }
    ceni_turn_take(&share->wire);
    ceni_client_flush(share);
    status = ceni_client_list(share, out);
    ceni_turn_give(&share->wire);
    return status;
}
