/* Items of one type by small numbers, found again by a hash of their key.
 *
 * Items lie in chunks that never move, so a pointer is good until its item is given back; links
 * between items are 32-bit numbers, half a pointer. An item begins with a ceni_slot. The hash is
 * seeded: what a client chooses as a key does not tell it where that ends up. */
#ifndef CENI_IPC_SLOTS_H
#define CENI_IPC_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CENI_SLOT_LIVE = 1u, CENI_SLOT_FOUND = 2u }; /* FOUND: the hash has it */
#define CENI_NONE UINT32_MAX

typedef struct ceni_slot {
    uint32_t next;  /* of the free, or of those with the same hash */
    uint32_t flags; /* the two lowest are used here */
} ceni_slot;

typedef struct ceni_slots {
    uint8_t **chunks;
    size_t chunk_capacity;
    size_t item_size;
    uint32_t used; /* items that the chunks have had so far */
    uint32_t free; /* the first of those given back */
    uint32_t live;
    uint32_t *heads;
    uint32_t head_count; /* a power of two, or 0 */
    uint32_t found;
    uint64_t seed;
    uint64_t (*hash)(const void *item, uint64_t seed);
} ceni_slots;

enum { CENI_SLOTS_SHIFT = 8 };

static inline void *ceni_slots_at(const ceni_slots *slots, uint32_t index) {
    return slots->chunks[index >> CENI_SLOTS_SHIFT] +
           (index & ((1u << CENI_SLOTS_SHIFT) - 1)) * slots->item_size;
}

void ceni_slots_init(ceni_slots *slots, size_t item_size, uint64_t seed,
                     uint64_t (*hash)(const void *item, uint64_t seed));
void ceni_slots_free(ceni_slots *slots);

/* A zeroed item; CENI_NONE when memory is exhausted. */
uint32_t ceni_slots_take(ceni_slots *slots);
/* Lets an item whose key is set be found. Cannot fail: with no memory for more heads the chains get
 * longer. */
void ceni_slots_insert(ceni_slots *slots, uint32_t index);
void ceni_slots_give(ceni_slots *slots, uint32_t index);

/* The first item that may have this hash; the others follow by ceni_slot.next. */
uint32_t ceni_slots_first(const ceni_slots *slots, uint64_t hash);

/* Bytes of memory that it takes. */
size_t ceni_slots_bytes(const ceni_slots *slots);

/* ---- lists of items, linked both ways; `offset` is that of the ceni_links in the item ---- */

typedef struct ceni_links {
    uint32_t prev, next;
} ceni_links;

static inline ceni_links *ceni_links_of(const ceni_slots *slots, size_t offset, uint32_t index) {
    return (ceni_links *)((uint8_t *)ceni_slots_at(slots, index) + offset);
}
void ceni_list_push(const ceni_slots *slots, size_t offset, uint32_t *head, uint32_t index);
void ceni_list_remove(const ceni_slots *slots, size_t offset, uint32_t *head, uint32_t index);

#endif
