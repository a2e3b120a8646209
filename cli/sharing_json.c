/* The JSON of what processes share; docs/holders.md has its keys. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/sharing.h"

/* Labels are what clients say of themselves, which need not be UTF-8. */
static json_t *text(const char *s) {
    json_t *value = json_string(s);
    return value ? value : json_string("?");
}

/* Identifiers have 64 bits, more than a number of JSON is sure to keep. */
static json_t *id_json(uint64_t id) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIx64, id);
    return id ? json_string(digits) : json_null();
}

static json_t *client_json(const cen_share_client_info *c) {
    char user[SHARING_USER];
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:b}", "client", id_json(c->id), "pid",
                     c->pid ? json_integer(c->pid) : json_null(), "user",
                     text(sharing_user(c->uid, user)), "program", text(c->label), "container",
                     *c->container ? text(c->container) : json_null(), "connected",
                     (int)c->connected);
}

static json_t *leases_json(const sharing *s, uint64_t export_id) {
    json_t *list = json_array();
    size_t count;
    const cen_share_lease_info *leases = sharing_leases(s, export_id, &count);
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list, json_pack("{s:o, s:b}", "client", id_json(leases[i].client),
                                              "write", (int)leases[i].write));
    }
    return list;
}

static json_t *exports_json(const sharing *s, uint64_t set) {
    json_t *list = json_array();
    size_t count;
    const cen_share_export_listing *exports = sharing_exports(s, set, &count);
    for (size_t i = 0; i < count; i++) {
        const cen_share_export_listing *e = &exports[i];
        json_array_append_new(list, json_pack("{s:o, s:o, s:I, s:b, s:b, s:b, s:o}", "export",
                                              id_json(e->id), "name",
                                              *e->name ? text(e->name) : json_null(), "version",
                                              (json_int_t)e->version, "keep", (int)e->keep,
                                              "withdrawn", (int)e->withdrawn, "revoked",
                                              (int)e->revoked, "leases", leases_json(s, e->id)));
    }
    return list;
}

static json_t *set_json(const sharing *s, const cen_share_set_info *set) {
    char user[SHARING_USER];
    return json_pack("{s:o, s:I, s:i, s:o, s:o, s:b, s:o, s:o, s:i, s:o}", "set", id_json(set->id),
                     "bytes", (json_int_t)set->bytes, "pages", (int)set->pages, "device",
                     text(set->device_uuid), "user", text(sharing_user(set->uid, user)), "orphan",
                     (int)!set->publisher, "publisher", id_json(set->publisher), "publisher_pid",
                     set->publisher_pid ? json_integer(set->publisher_pid) : json_null(),
                     "importers", (int)set->importers, "exports", exports_json(s, set->id));
}

json_t *sharing_json(const sharing *s, const char *uuid) {
    if (!s->list) {
        return json_null();
    }
    const cen_share_list *list = s->list;
    json_t *clients = json_array(), *sets = json_array();
    json_int_t bytes = 0;
    for (size_t i = 0; i < list->client_count; i++) {
        json_array_append_new(clients, client_json(&list->clients[i]));
    }
    for (size_t i = 0; i < list->set_count; i++) {
        if (!uuid || !strcmp(list->sets[i].device_uuid, uuid)) {
            bytes += (json_int_t)list->sets[i].bytes;
            json_array_append_new(sets, set_json(s, &list->sets[i]));
        }
    }
    return json_pack("{s:I, s:o, s:o}", "bytes", bytes, "clients", clients, "sets", sets);
}
