#include "ipc/slots.h"

#include <string.h>

#include "base/mem.h"

enum { CHUNK = 1 << CENI_SLOTS_SHIFT, FIRST_HEADS = 64 };

void ceni_slots_init(ceni_slots *slots, size_t item_size, uint64_t seed,
                     uint64_t (*hash)(const void *item, uint64_t seed)) {
    *slots = (ceni_slots){.item_size = item_size, .free = CENI_NONE, .seed = seed, .hash = hash};
}

void ceni_slots_free(ceni_slots *slots) {
    for (uint32_t i = 0; i < slots->used; i += CHUNK) {
        ceni_free(slots->chunks[i >> CENI_SLOTS_SHIFT]);
    }
    ceni_free(slots->chunks);
    ceni_free(slots->heads);
    slots->chunks = NULL;
    slots->heads = NULL;
    slots->used = 0;
}

/* Memory for one more item, at the end. */
static bool extend(ceni_slots *slots) {
    if (slots->used % CHUNK) {
        return true;
    }
    size_t chunk = slots->used >> CENI_SLOTS_SHIFT;
    if (slots->used >= CENI_NONE - CHUNK ||
        ceni_grow(&slots->chunks, &slots->chunk_capacity, chunk + 1, sizeof *slots->chunks)) {
        return false;
    }
    return (slots->chunks[chunk] = ceni_malloc(CHUNK * slots->item_size)) != NULL;
}

static bool have_heads(ceni_slots *slots) {
    if (!slots->heads) {
        slots->heads = ceni_malloc(FIRST_HEADS * sizeof *slots->heads);
        if (!slots->heads) {
            return false;
        }
        memset(slots->heads, 0xff, FIRST_HEADS * sizeof *slots->heads);
        slots->head_count = FIRST_HEADS;
    }
    return true;
}

uint32_t ceni_slots_take(ceni_slots *slots) {
    uint32_t index = slots->free;
    if (!have_heads(slots) || (index == CENI_NONE && !extend(slots))) {
        return CENI_NONE;
    }
    if (index == CENI_NONE) {
        index = slots->used++;
    } else {
        slots->free = ((ceni_slot *)ceni_slots_at(slots, index))->next;
    }
    ceni_slot *slot = memset(ceni_slots_at(slots, index), 0, slots->item_size);
    slot->flags = CENI_SLOT_LIVE;
    slots->live++;
    return index;
}

static uint32_t *head_of(const ceni_slots *slots, uint64_t hash) {
    return &slots->heads[hash & (slots->head_count - 1)];
}

uint32_t ceni_slots_first(const ceni_slots *slots, uint64_t hash) {
    return slots->heads ? *head_of(slots, hash) : CENI_NONE;
}

static void link_in(ceni_slots *slots, uint32_t index) {
    ceni_slot *slot = ceni_slots_at(slots, index);
    uint32_t *head = head_of(slots, slots->hash(slot, slots->seed));
    slot->next = *head;
    *head = index;
}

static void more_heads(ceni_slots *slots) {
    if (slots->head_count > UINT32_MAX / 2) {
        return;
    }
    uint32_t count = slots->head_count * 2;
    uint32_t *heads = ceni_malloc(count * sizeof *heads);
    if (!heads) {
        return;
    }
    memset(heads, 0xff, count * sizeof *heads);
    ceni_free(slots->heads);
    slots->heads = heads;
    slots->head_count = count;
    for (uint32_t i = 0; i < slots->used; i++) {
        if (((ceni_slot *)ceni_slots_at(slots, i))->flags & CENI_SLOT_FOUND) {
            link_in(slots, i);
        }
    }
}

void ceni_slots_insert(ceni_slots *slots, uint32_t index) {
    if (slots->found >= slots->head_count) {
        more_heads(slots);
    }
    ((ceni_slot *)ceni_slots_at(slots, index))->flags |= CENI_SLOT_FOUND;
    slots->found++;
    link_in(slots, index);
}

void ceni_slots_give(ceni_slots *slots, uint32_t index) {
    ceni_slot *slot = ceni_slots_at(slots, index);
    if (slot->flags & CENI_SLOT_FOUND) {
        uint32_t *at = head_of(slots, slots->hash(slot, slots->seed));
        while (*at != index) {
            at = &((ceni_slot *)ceni_slots_at(slots, *at))->next;
        }
        *at = slot->next;
        slots->found--;
    }
    *slot = (ceni_slot){.next = slots->free};
    slots->free = index;
    slots->live--;
}

size_t ceni_slots_bytes(const ceni_slots *slots) {
    size_t chunks = ((size_t)slots->used + CHUNK - 1) >> CENI_SLOTS_SHIFT;
    return chunks * CHUNK * slots->item_size + slots->chunk_capacity * sizeof *slots->chunks +
           slots->head_count * sizeof *slots->heads;
}

void ceni_list_push(const ceni_slots *slots, size_t offset, uint32_t *head, uint32_t index) {
    *ceni_links_of(slots, offset, index) = (ceni_links){CENI_NONE, *head};
    if (*head != CENI_NONE) {
        ceni_links_of(slots, offset, *head)->prev = index;
    }
    *head = index;
}

void ceni_list_remove(const ceni_slots *slots, size_t offset, uint32_t *head, uint32_t index) {
    ceni_links links = *ceni_links_of(slots, offset, index);
    if (links.prev != CENI_NONE) {
        ceni_links_of(slots, offset, links.prev)->next = links.next;
    } else {
        *head = links.next;
    }
    if (links.next != CENI_NONE) {
        ceni_links_of(slots, offset, links.next)->prev = links.prev;
    }
}
