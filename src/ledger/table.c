/* The live table: open addressing, linear probing, at most half full while the file can grow.
 *
 * Entries move back when one goes, as in base/map.c, so that there are no tombstones. A killed
 * writer leaves a moving entry in two places at most, never in none and never half written. The
 * hash leaves the device out, so that an entry is found on any. */
#include "ledger/ledger_int.h"

#include <string.h>

static size_t home(uint64_t mask, unsigned kind, uint64_t key) {
    uint64_t mixed = (key ^ (uint64_t)kind << 59) * 0x9e3779b97f4a7c15u;
    return (size_t)((mixed ^ mixed >> 32) & mask);
}

static bool is_used(const ceni_ledger_slot *slot) {
    return atomic_load_explicit(&slot->used, memory_order_relaxed);
}

static void set_used(ceni_ledger_slot *slot, uint32_t used) {
    atomic_store_explicit(&slot->used, used, memory_order_release);
}

ceni_ledger_slot *ceni_ledger_probe(const cen_ledger *l, unsigned kind, unsigned device,
                                    uint64_t key) {
    uint64_t mask = ceni_ledger_capacity(l, CENI_LEDGER_LIVE) - 1;
    ceni_ledger_slot *slots = CENI_LEDGER_SLOTS(l);
    size_t at = home(mask, kind, key);
    while (is_used(&slots[at]) &&
           (slots[at].key != key || slots[at].kind != kind || slots[at].device != device)) {
        at = (at + 1) & mask;
    }
    return &slots[at];
}

ceni_ledger_slot *ceni_ledger_search(const cen_ledger *l, unsigned kind, uint64_t key) {
    uint64_t mask = ceni_ledger_capacity(l, CENI_LEDGER_LIVE) - 1;
    ceni_ledger_slot *slots = CENI_LEDGER_SLOTS(l);
    size_t at = home(mask, kind, key);
    while (is_used(&slots[at]) && (slots[at].key != key || slots[at].kind != kind)) {
        at = (at + 1) & mask;
    }
    return is_used(&slots[at]) ? &slots[at] : NULL;
}

/* A copy that counts only when it is whole. The compiler must not put `used` first. */
static void move(ceni_ledger_slot *to, const ceni_ledger_slot *from) {
    memcpy(to, from, offsetof(ceni_ledger_slot, used));
    set_used(to, 1);
}

static void fill(ceni_ledger_slot *to, uint64_t mask, const ceni_ledger_slot *from,
                 uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        if (is_used(&from[i])) {
            size_t at = home(mask, from[i].kind, from[i].key);
            while (is_used(&to[at])) {
                at = (at + 1) & mask;
            }
            move(&to[at], &from[i]);
        }
    }
}

/* Where the file cannot grow, the table is filled further before it refuses. */
cen_status ceni_ledger_table_room(cen_ledger *l) {
    uint64_t capacity = ceni_ledger_capacity(l, CENI_LEDGER_LIVE);
    uint64_t live = atomic_load_explicit(&l->head->live, memory_order_relaxed);
    if ((live + 1) * 2 <= capacity) {
        return CEN_OK;
    }
    void *larger = NULL;
    cen_status status = ceni_ledger_spare(l, CENI_LEDGER_LIVE, capacity * 2, &larger);
    if (status) {
        return live + 1 <= capacity / 8 * 7 ? CEN_OK : status;
    }
    fill(larger, capacity * 2 - 1, CENI_LEDGER_SLOTS(l), capacity);
    ceni_ledger_swap(l, CENI_LEDGER_LIVE, larger);
    return CEN_OK;
}

void ceni_ledger_unslot(cen_ledger *l, ceni_ledger_slot *slot) {
    uint64_t mask = ceni_ledger_capacity(l, CENI_LEDGER_LIVE) - 1;
    ceni_ledger_slot *slots = CENI_LEDGER_SLOTS(l);
    size_t hole = (size_t)(slot - slots);
    set_used(slot, 0);
    for (size_t at = (hole + 1) & mask; is_used(&slots[at]); at = (at + 1) & mask) {
        size_t distance = (at - home(mask, slots[at].kind, slots[at].key)) & mask;
        if (distance >= ((at - hole) & mask)) {
            move(&slots[hole], &slots[at]);
            set_used(&slots[at], 0);
            hole = at;
        }
    }
}
