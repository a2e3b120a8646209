/* The JSON of `cenote holders`; docs/holders.md has its keys. */
#include "cli/holders.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* Names of programs and users are UTF-8; a device's name is the driver's. */
static json_t *text(const char *s) {
    json_t *value = json_string(s);
    return value ? value : json_string("?");
}

static json_t *bytes(uint64_t n) {
    return n == CEN_BYTES_UNKNOWN ? json_null() : json_integer((json_int_t)n);
}

static json_t *kinds_json(const cen_holder *h) {
    json_t *kinds = json_object();
    for (int k = 0; k < CEN_LEDGER_KINDS; k++) {
        if (h->kind_bytes[k]) {
            json_object_set_new(kinds, cen_ledger_kind_text((cen_ledger_kind)k),
                                bytes(h->kind_bytes[k]));
        }
    }
    return kinds;
}

static json_t *owners_json(const cen_holder *h) {
    json_t *owners = json_array();
    for (size_t i = 0; i < h->owner_count; i++) {
        json_array_append_new(owners, json_pack("{s:o, s:o}", "owner", text(h->owners[i].name),
                                                "bytes", bytes(h->owners[i].bytes)));
    }
    return owners;
}

static json_t *ledger_json(const cen_holder *h) {
    if (!h->has_ledger) {
        return json_null();
    }
    bool both = h->device_bytes != CEN_BYTES_UNKNOWN;
    return json_pack("{s:b, s:o, s:o, s:o, s:o}", "physical", (int)h->physical, "bytes",
                     bytes(h->ledger_bytes), "unexplained_bytes",
                     both ? json_integer((json_int_t)h->unexplained_bytes) : json_null(), "owners",
                     owners_json(h), "kinds", kinds_json(h));
}

static json_t *holder_json(const cen_holder *h) {
    return json_pack("{s:i, s:o, s:o, s:b, s:o, s:o}", "pid", h->pid, "user", text(h->user),
                     "program", text(h->program), "dead", (int)h->dead, "device_bytes",
                     bytes(h->device_bytes), "ledger", ledger_json(h));
}

static json_t *device_json(const cen_holder_device *d) {
    json_t *list = json_array();
    for (size_t i = 0; i < d->holder_count; i++) {
        json_array_append_new(list, holder_json(&d->holders[i]));
    }
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "device", d->index, "uuid",
                     text(d->uuid), "name", text(d->name), "total_bytes", bytes(d->total_bytes),
                     "used_bytes", bytes(d->used_bytes), "free_bytes", bytes(d->free_bytes),
                     "reserved_bytes", bytes(d->reserved_bytes), "unclaimed_bytes",
                     (json_int_t)d->unclaimed_bytes, "holders", list);
}

bool holders_print_json(const cen_holders *holders, const cen_holder_device *only,
                        const sharing *shared) {
    json_t *list = json_array();
    for (size_t i = 0; holders && i < cen_holders_device_count(holders); i++) {
        const cen_holder_device *device = cen_holders_device(holders, i);
        if (!only || only == device) {
            json_array_append_new(list, device_json(device));
        }
    }
    json_t *all = json_pack("{s:i, s:o, s:o}", "version", 1, "devices", list, "shared",
                            sharing_json(shared, only ? only->uuid : NULL));
    char *out = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    json_decref(all);
    if (!out) {
        return false;
    }
    puts(out);
    free(out);
    return true;
}
