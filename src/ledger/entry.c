/* Entries as they come and go, and what that does to the sums, the samples and the ring. */
#include "ledger/ledger_int.h"

#include "base/log.h"

#include <string.h>

static void count_up(_Atomic uint64_t *counter, int64_t by) {
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + (uint64_t)by, memory_order_release);
}

/* ---- the ring ---- */

/* It grows as long as it has not come round; if it cannot, it comes round earlier. */
void ceni_ledger_note_event(cen_ledger *l, const ceni_ledger_event *event) {
    uint64_t count = CENI_LEDGER_COUNT(l, CENI_LEDGER_EVENTS);
    uint64_t capacity = ceni_ledger_capacity(l, CENI_LEDGER_EVENTS);
    if (count == capacity && capacity < l->options.events &&
        !ceni_ledger_room(l, CENI_LEDGER_EVENTS, 1)) {
        capacity = ceni_ledger_capacity(l, CENI_LEDGER_EVENTS);
    }
    CENI_LEDGER_RING(l)[count & (capacity - 1)] = *event;
    count_up(&l->head->region[CENI_LEDGER_EVENTS].count, 1);
}

static void note_entry(cen_ledger *l, const ceni_ledger_slot *s, enum ceni_ledger_what what,
                       int64_t now) {
    ceni_ledger_event event = {.key = s->key,
                               .bytes = s->bytes,
                               .stream = s->stream,
                               .time_us = now,
                               .stack = s->stack,
                               .device = s->device,
                               .kind = s->kind,
                               .what = (uint8_t)(what | (s->less ? CENI_LEDGER_LESS : 0))};
    ceni_ledger_note_event(l, &event);
}

/* ---- holdings ---- */

/* The sum of what lies at addresses would count blocks twice, and what came free is no holding. */
static bool is_held(const ceni_ledger_slot *s) {
    return s->stack != CEN_LEDGER_NO_STACK && s->kind != CEN_LEDGER_SEGMENT && !s->less;
}

/* Makes the holding of a stack on a device, if there is none; it stays when it is empty. */
static cen_status holding_room(cen_ledger *l, uint32_t stack, uint16_t device) {
    uint64_t name = (uint64_t)stack << 16 | device;
    if (stack == CEN_LEDGER_NO_STACK || ceni_map_get(&l->holdings, name)) {
        return CEN_OK;
    }
    cen_status status = ceni_ledger_room(l, CENI_LEDGER_HOLDINGS, 1);
    if (status) {
        return status;
    }
    uint64_t index = CENI_LEDGER_COUNT(l, CENI_LEDGER_HOLDINGS);
    if (ceni_map_put(&l->holdings, name, index)) {
        return CEN_ERR_HOST_MEMORY;
    }
    uint32_t steps = atomic_load_explicit(&l->head->steps, memory_order_relaxed);
    ceni_ledger_holding *h = &CENI_LEDGER_HELD(l)[index];
    *h = (ceni_ledger_holding){.stack = stack, .device = device, .first = steps, .sampled = steps};
    count_up(&l->head->region[CENI_LEDGER_HOLDINGS].count, 1);
    return CEN_OK;
}

/* The samples of the steps that it did not change in. */
static void put_samples(ceni_ledger_holding *h, uint32_t steps) {
    uint32_t from =
        steps - h->sampled > CENI_LEDGER_SAMPLES ? steps - CENI_LEDGER_SAMPLES : h->sampled;
    for (uint32_t step = from; step < steps; step++) {
        h->samples[step % CENI_LEDGER_SAMPLES] = h->live_bytes;
    }
    h->sampled = steps;
}

/* Adds to all sums: bytes with sign, and count 1, 0 or -1. */
static void account(cen_ledger *l, const ceni_ledger_slot *s, int64_t bytes, int64_t count) {
    ceni_ledger_device *d = &l->head->device[s->device];
    if (cen_ledger_kind_is_summed(s->kind)) {
        int64_t *held = &l->held[s->device];
        *held += s->less ? -bytes : bytes;
        if (*held > 0 && (uint64_t)*held > d->peak_bytes) {
            d->peak_bytes = (uint64_t)*held;
        }
    }
    if (is_held(s)) {
        const uint64_t *index = ceni_map_get(&l->holdings, (uint64_t)s->stack << 16 | s->device);
        if (index) {
            ceni_ledger_holding *h = &CENI_LEDGER_HELD(l)[*index];
            put_samples(h, atomic_load_explicit(&l->head->steps, memory_order_relaxed));
            h->live_bytes += (uint64_t)bytes;
            h->live_count += (uint64_t)count;
        }
    }
}

/* ---- add ---- */

static cen_status check_entry(cen_ledger *l, const cen_ledger_entry *e) {
    if (!e || e->kind >= CEN_LEDGER_KINDS || e->device >= CEN_LEDGER_DEVICES ||
        e->bytes > CENI_LEDGER_BYTES_MOST) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_add: %s",
                         !e                                ? "entry is NULL"
                         : e->kind >= CEN_LEDGER_KINDS     ? "entry.kind is no kind"
                         : e->device >= CEN_LEDGER_DEVICES ? "entry.device is not below 64"
                                                           : "entry.bytes is more than 2^48");
    }
    return CEN_OK;
}

static void end_entry(cen_ledger *l, ceni_ledger_slot *slot, int64_t now) {
    account(l, slot, -(int64_t)slot->bytes, -1);
    note_entry(l, slot, CENI_LEDGER_REMOVED, now);
    ceni_ledger_unslot(l, slot);
    count_up(&l->head->live, -1);
    count_up(&l->head->removes, 1);
}

static void begin_entry(cen_ledger *l, const ceni_ledger_slot *from) {
    ceni_ledger_slot *slot = ceni_ledger_probe(l, from->kind, from->device, from->key);
    memcpy(slot, from, offsetof(ceni_ledger_slot, used));
    atomic_store_explicit(&slot->used, 1, memory_order_release);
    count_up(&l->head->live, 1);
    count_up(&l->head->adds, 1);
    account(l, slot, (int64_t)slot->bytes, 1);
    note_entry(l, slot, CENI_LEDGER_ADDED, slot->time_us);
}

/* The lock is held. */
static cen_status add(cen_ledger *l, const cen_ledger_entry *e, int64_t now) {
    uint32_t stack =
        e->stack < CENI_LEDGER_COUNT(l, CENI_LEDGER_STACKS) ? e->stack : CEN_LEDGER_NO_STACK;
    cen_status status = ceni_ledger_table_room(l);
    status = status ? status : holding_room(l, stack, e->device);
    if (status) {
        count_up(&l->head->lost, 1);
        return status;
    }
    ceni_ledger_slot new = {.key = e->key,
                            .bytes = e->bytes,
                            .stream = e->stream,
                            .time_us = e->time_us ? e->time_us : now,
                            .stack = stack,
                            .step = atomic_load_explicit(&l->head->steps, memory_order_relaxed),
                            .device = e->device,
                            .kind = e->kind,
                            .less = e->less};
    ceni_ledger_slot *slot = ceni_ledger_probe(l, e->kind, e->device, e->key);
    bool replaced = atomic_load_explicit(&slot->used, memory_order_relaxed);
    if (replaced) {
        end_entry(l, slot, now);
    }
    begin_entry(l, &new);
    return replaced ? CEN_ERR_BUSY : CEN_OK;
}

cen_status cen_ledger_add(cen_ledger *l, const cen_ledger_entry *entry) {
    cen_status status = ceni_ledger_check(l, "cen_ledger_add");
    status = status ? status : check_entry(l, entry);
    if (status) {
        return status;
    }
    int64_t now = ceni_ledger_now_us();
    ceni_ledger_enter(l);
    status = add(l, entry, now);
    bool told = l->told;
    l->told |= status && status != CEN_ERR_BUSY;
    ceni_ledger_leave(l, now);
    if (status == CEN_ERR_BUSY) {
        ceni_log(CEN_LOG_DEBUG, "cen_ledger_add: %s 0x%llx was there already",
                 cen_ledger_kind_text((cen_ledger_kind)entry->kind),
                 (unsigned long long)entry->key);
    } else if (status && !told) {
        return ceni_fail(status, "cen_ledger_add: no room in the ledger: entries are lost");
    }
    return status;
}

/* ---- what is there ---- */

static bool is_used(const ceni_ledger_slot *slot) {
    return atomic_load_explicit(&slot->used, memory_order_relaxed);
}

/* CEN_ERR_NOT_FOUND is an answer, not a failure: a caller frees what others allocated, too. */
cen_status cen_ledger_remove(cen_ledger *l, cen_ledger_kind kind, unsigned device, uint64_t key,
                             cen_ledger_entry *removed) {
    cen_status status = ceni_ledger_check(l, "cen_ledger_remove");
    if (status) {
        return status;
    }
    int64_t now = ceni_ledger_now_us();
    ceni_ledger_enter(l);
    ceni_ledger_slot *slot = ceni_ledger_probe(l, kind, device, key);
    if (is_used(slot)) {
        if (removed) {
            *removed = ceni_ledger_entry_of(slot);
        }
        end_entry(l, slot, now);
    } else {
        status = CEN_ERR_NOT_FOUND;
    }
    ceni_ledger_leave(l, now);
    return status;
}

cen_status cen_ledger_find(cen_ledger *l, cen_ledger_kind kind, uint64_t key,
                           cen_ledger_entry *entry) {
    cen_status status = ceni_ledger_check(l, "cen_ledger_find");
    if (status) {
        return status;
    }
    pthread_mutex_lock(&l->lock);
    const ceni_ledger_slot *slot = ceni_ledger_search(l, kind, key);
    if (slot && entry) {
        *entry = ceni_ledger_entry_of(slot);
    }
    pthread_mutex_unlock(&l->lock);
    return slot ? CEN_OK : CEN_ERR_NOT_FOUND;
}

cen_status cen_ledger_resize(cen_ledger *l, cen_ledger_kind kind, unsigned device, uint64_t key,
                             uint64_t bytes) {
    cen_status status = ceni_ledger_check(l, "cen_ledger_resize");
    if (status) {
        return status;
    }
    if (bytes > CENI_LEDGER_BYTES_MOST) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_resize: bytes is more than 2^48");
    }
    int64_t now = ceni_ledger_now_us();
    ceni_ledger_enter(l);
    ceni_ledger_slot *slot = ceni_ledger_probe(l, kind, device, key);
    if (is_used(slot)) {
        uint64_t before = slot->bytes;
        account(l, slot, (int64_t)bytes - (int64_t)before, 0);
        slot->bytes = bytes;
        ceni_ledger_slot as_event = *slot;
        as_event.stream = before;
        note_entry(l, &as_event, CENI_LEDGER_RESIZED, now);
    } else {
        status = CEN_ERR_NOT_FOUND;
    }
    ceni_ledger_leave(l, now);
    return status;
}
