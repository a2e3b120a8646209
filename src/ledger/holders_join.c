/* One process: what NVML says that it holds of a device, and what its ledgers say.
 *
 * Its ledgers tell of the same memory from two sides: `cenote run` sees what the driver gave, an
 * allocator what it took and handed on. So summed kinds are the physical ledger's alone where there
 * is one. Without it they are the allocators', each of which took memory of its own; one that took
 * its memory from the framework or the CUDA runtime has segments only, which then stand for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ledger/holders.h"

typedef struct owners {
    struct owner {
        char name[sizeof((cen_holder_owner *)0)->name];
        int64_t bytes;
    } * at;
    size_t count, capacity;
} owners;

/* The number that a ledger gave a device; CEN_LEDGER_DEVICES: it has not seen it. */
static unsigned device_of(const cen_ledger_view *view, const char *uuid) {
    for (unsigned d = 0; d < CEN_LEDGER_DEVICES; d++) {
        const cen_ledger_device_info *info = cen_ledger_view_device(view, d);
        if (info && info->known && *uuid && !strcmp(info->uuid, uuid)) {
            return d;
        }
    }
    return CEN_LEDGER_DEVICES;
}

/* Of measured kinds the sum has a sign; where more came free than was taken, nothing is held. */
static uint64_t held(uint64_t bytes) {
    return (int64_t)bytes > 0 ? bytes : 0;
}

/* Whether entries of a kind count in a ledger: those of summed kinds, or segments without them. */
typedef struct counted {
    bool kind[CEN_LEDGER_KINDS];
    uint64_t bytes;
} counted;

static counted count_kinds(const cen_ledger_device_info *info, bool physical) {
    counted c = {.bytes = 0};
    int64_t sum = 0;
    for (size_t k = 0; k < CEN_LEDGER_KINDS; k++) {
        c.kind[k] = cen_ledger_kind_is_summed((cen_ledger_kind)k);
        sum += c.kind[k] ? (int64_t)info->bytes[k] : 0;
    }
    if (!physical && sum <= 0) {
        memset(c.kind, 0, sizeof c.kind);
        c.kind[CEN_LEDGER_SEGMENT] = true;
        sum = (int64_t)info->bytes[CEN_LEDGER_SEGMENT];
    }
    c.bytes = held((uint64_t)sum);
    return c;
}

static int own(owners *list, const char *name, int64_t bytes) {
    for (size_t i = 0; i < list->count; i++) {
        if (!strncmp(list->at[i].name, name, sizeof list->at[i].name - 1)) {
            list->at[i].bytes += bytes;
            return 0;
        }
    }
    if (ceni_grow(&list->at, &list->capacity, list->count + 1, sizeof *list->at)) {
        return -1;
    }
    struct owner *owner = &list->at[list->count++];
    snprintf(owner->name, sizeof owner->name, "%s", name);
    owner->bytes = bytes;
    return 0;
}

static int own_entries(owners *list, cen_ledger_view *view, unsigned device, const counted *c) {
    size_t count = 0;
    const cen_ledger_entry *entries = cen_ledger_view_entries(view, &count);
    for (size_t i = 0; i < count; i++) {
        const cen_ledger_entry *e = &entries[i];
        if (e->device != device || e->kind >= CEN_LEDGER_KINDS || !c->kind[e->kind]) {
            continue;
        }
        int64_t bytes = e->less ? -(int64_t)e->bytes : (int64_t)e->bytes;
        if (own(list, cen_ledger_view_owner(view, e), bytes)) {
            return -1;
        }
    }
    return 0;
}

static int by_bytes(const void *a, const void *b) {
    const cen_holder_owner *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : strcmp(x->name, y->name);
}

/* Puts those that hold anything into the holder. */
static cen_status set_owners(cen_holder *holder, const owners *list) {
    cen_holder_owner *set = ceni_calloc(list->count, sizeof *set);
    size_t count = 0;
    if (!set) {
        return CEN_ERR_HOST_MEMORY;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (list->at[i].bytes > 0) {
            memcpy(set[count].name, list->at[i].name, sizeof set->name);
            set[count++].bytes = (uint64_t)list->at[i].bytes;
        }
    }
    qsort(set, count, sizeof *set, by_bytes);
    holder->owners = set;
    holder->owner_count = count;
    return CEN_OK;
}

/* Adds a ledger's kinds to the holder's. A ledger beside a physical one adds only what that one
 * does not see: kinds that are not summed, of which it has none. */
static void add_kinds(cen_holder *holder, const cen_ledger_device_info *info, bool beside) {
    for (size_t k = 0; k < CEN_LEDGER_KINDS; k++) {
        if (!beside || (!cen_ledger_kind_is_summed((cen_ledger_kind)k) && !holder->kind_bytes[k])) {
            holder->kind_bytes[k] += held(info->bytes[k]);
        }
    }
}

cen_status ceni_holder_join(cen_holder *holder, const char *uuid, const ceni_holder_ledger *ledgers,
                            size_t count) {
    owners list = {0};
    int failed = 0;
    for (size_t i = 0; i < count && !failed; i++) {
        cen_ledger_view *view = ledgers[i].view;
        unsigned device = device_of(view, uuid);
        if (device == CEN_LEDGER_DEVICES) {
            continue;
        }
        const cen_ledger_device_info *info = cen_ledger_view_device(view, device);
        bool beside = holder->physical; /* the physical ledger comes first */
        holder->has_ledger = true;
        holder->physical |= ledgers[i].physical;
        add_kinds(holder, info, beside);
        if (!beside) {
            counted c = count_kinds(info, ledgers[i].physical);
            holder->ledger_bytes += c.bytes;
            failed = own_entries(&list, view, device, &c);
        }
    }
    cen_status status = failed ? CEN_ERR_HOST_MEMORY : CEN_OK;
    if (!failed && list.count) {
        status = set_owners(holder, &list);
    }
    ceni_free(list.at);
    if (holder->has_ledger && holder->device_bytes != CEN_BYTES_UNKNOWN) {
        holder->unexplained_bytes = (int64_t)(holder->device_bytes - holder->ledger_bytes);
    }
    return status;
}
