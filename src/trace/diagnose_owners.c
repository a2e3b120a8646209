/* Whose the blocks are that are alive at the moment.
 *
 * Blocks are added up by slot: their stack, or, without frames, a kind (before the recording, a
 * gradient, autograd's threads, unknown). Slots with the same kind and the same line of the user's
 * are one owner. The failed request is counted as if it had been granted. */
#include "trace/diagnose.h"

#include "base/map.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct slot {
    uint64_t bytes, blocks, inferred;
    uint64_t largest, largest_count;
} slot;

size_t ceni_record_slot(const ceni_diag *diag, const ceni_record *record) {
    size_t stacks = cen_snapshot_stack_count(diag->snapshot);
    if (record->stack != CEN_NO_STACK) {
        return record->stack;
    }
    if (record->like != CEN_NO_STACK) {
        return record->like;
    }
    if (record->gradient) {
        return stacks + CENI_KIND_GRADIENTS;
    }
    if (record->birth == CENI_NO_INDEX) {
        return stacks + CENI_KIND_BEFORE;
    }
    return stacks + (record->autograd ? CENI_KIND_AUTOGRAD : CENI_KIND_UNKNOWN);
}

size_t ceni_record_owner(const ceni_diag *diag, const ceni_record *record) {
    return diag->slot_owner[ceni_record_slot(diag, record)];
}

static void largest(uint64_t size, uint64_t times, uint64_t *most, uint64_t *count) {
    if (size > *most) {
        *most = size;
        *count = 0;
    }
    *count += size == *most ? times : 0;
}

static void count_record(const ceni_diag *diag, slot *slots, const ceni_record *record) {
    slot *s = &slots[ceni_record_slot(diag, record)];
    s->bytes += record->size;
    s->blocks++;
    s->inferred += record->stack == CEN_NO_STACK && record->like != CEN_NO_STACK;
    largest(record->size, 1, &s->largest, &s->largest_count);
}

ceni_record ceni_request_record(const ceni_diag *diag) {
    return (ceni_record){
        .size = diag->request, .stack = diag->request_stack, .like = diag->request_like};
}

static uint64_t owner_key(const ceni_owner *owner) {
    uint64_t hash = ceni_hash_text(CENI_HASH_START, owner->what);
    hash = ceni_hash_text(hash, owner->user ? owner->user->file : "");
    uint64_t line = owner->user ? owner->user->line : 0;
    hash = (hash ^ (line << 8 | (uint64_t)owner->kind)) * 0x100000001b3u;
    return hash;
}

static ceni_owner owner_of_slot(const ceni_diag *diag, size_t at) {
    size_t stacks = cen_snapshot_stack_count(diag->snapshot);
    ceni_owner owner = {.what = ""};
    if (at < stacks) {
        owner.kind = ceni_stack_kind(diag->snapshot, (uint32_t)at, &owner.what);
        owner.user = ceni_user_frame(diag->snapshot, (uint32_t)at);
    } else {
        owner.kind = (ceni_kind)(at - stacks);
    }
    return owner;
}

/* Joins slots into owners; slot_owner tells which. */
static cen_status join(ceni_diag *diag, const slot *slots, size_t count) {
    ceni_map by_key = {0};
    size_t capacity = 0;
    cen_status status = CEN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        if (!slots[i].blocks) {
            continue;
        }
        ceni_owner owner = owner_of_slot(diag, i);
        uint64_t key = owner_key(&owner);
        const uint64_t *found = ceni_map_get(&by_key, key);
        size_t at = found ? *found : diag->owner_count;
        if (!found) {
            if (ceni_map_put(&by_key, key, at) ||
                ceni_grow(&diag->owners, &capacity, at + 1, sizeof *diag->owners)) {
                status = CEN_ERR_HOST_MEMORY;
                break;
            }
            diag->owners[at] = owner;
            diag->owner_count++;
        }
        ceni_owner *o = &diag->owners[at];
        o->bytes += slots[i].bytes;
        o->blocks += slots[i].blocks;
        o->inferred += slots[i].inferred;
        largest(slots[i].largest, slots[i].largest_count, &o->largest, &o->largest_count);
        diag->slot_owner[i] = at;
    }
    ceni_map_free(&by_key);
    return status;
}

typedef struct order {
    uint64_t bytes;
    size_t at;
} order;

static int by_bytes(const void *a, const void *b) {
    const order *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? 1 : -1;
    }
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Sorts the owners by bytes and renumbers slot_owner. */
static cen_status sort_owners(ceni_diag *diag, size_t slots) {
    size_t n = diag->owner_count;
    order *orders = ceni_malloc(n * sizeof *orders);
    size_t *place = ceni_malloc(n * sizeof *place);
    ceni_owner *sorted = ceni_malloc(n * sizeof *sorted);
    cen_status status = orders && place && sorted ? CEN_OK : CEN_ERR_HOST_MEMORY;
    if (!status) {
        for (size_t i = 0; i < n; i++) {
            orders[i] = (order){diag->owners[i].bytes, i};
        }
        qsort(orders, n, sizeof *orders, by_bytes);
        for (size_t i = 0; i < n; i++) {
            sorted[i] = diag->owners[orders[i].at];
            place[orders[i].at] = i;
        }
        for (size_t i = 0; i < slots; i++) {
            size_t owner = diag->slot_owner[i];
            diag->slot_owner[i] = owner == CENI_NO_INDEX ? owner : place[owner];
        }
        ceni_free(diag->owners);
        diag->owners = sorted;
    } else {
        ceni_free(sorted);
    }
    ceni_free(orders);
    ceni_free(place);
    return status;
}

cen_status ceni_diagnose_owners(ceni_diag *diag) {
    size_t count = cen_snapshot_stack_count(diag->snapshot) + CENI_KINDS;
    slot *slots = ceni_calloc(count, sizeof *slots);
    diag->slot_owner = ceni_malloc(count * sizeof *diag->slot_owner);
    if (!slots || !diag->slot_owner) {
        ceni_free(slots);
        return CEN_ERR_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        diag->slot_owner[i] = CENI_NO_INDEX;
    }
    for (size_t i = 0; i < diag->record_count; i++) {
        count_record(diag, slots, &diag->records[i]);
    }
    if (diag->request) {
        ceni_record request = ceni_request_record(diag);
        count_record(diag, slots, &request);
    }
    cen_status status = join(diag, slots, count);
    ceni_free(slots);
    return status ? status : sort_owners(diag, count);
}
