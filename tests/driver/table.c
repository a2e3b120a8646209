/* The table of everything that has an address: sorted, disjoint. And arenas, whose free parts are
 * the gaps between the table's entries. */
#include <string.h>

#include "base/mem.h"
#include "tests/driver/td.h"

static td_entry *entries;
static size_t count, capacity;

size_t td_table_index(uint64_t addr) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (entries[middle].addr + entries[middle].room > addr) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

td_entry *td_table_get(size_t index) {
    return index < count ? &entries[index] : NULL;
}

td_entry *td_table_holds(uint64_t addr) {
    td_entry *e = td_table_get(td_table_index(addr));
    return e && e->addr <= addr ? e : NULL;
}

td_entry *td_table_at(uint64_t addr) {
    td_entry *e = td_table_holds(addr);
    return e && e->addr == addr ? e : NULL;
}

cu_result td_table_add(const td_entry *entry) {
    if (ceni_grow(&entries, &capacity, count + 1, sizeof *entries)) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    size_t i = td_table_index(entry->addr);
    memmove(&entries[i + 1], &entries[i], (count++ - i) * sizeof *entries);
    entries[i] = *entry;
    return CU_SUCCESS;
}

void td_table_remove(uint64_t addr) {
    td_entry *e = td_table_at(addr);
    if (e) {
        size_t i = (size_t)(e - entries);
        memmove(e, e + 1, (--count - i) * sizeof *e);
    }
}

/* The first gap of a chunk that is large enough; 0: none. */
static uint64_t gap(const td_range *chunk, uint64_t room) {
    uint64_t at = chunk->addr, end = chunk->addr + chunk->size;
    for (size_t i = td_table_index(at); at + room <= end; i++) {
        const td_entry *e = td_table_get(i);
        uint64_t next = e && e->addr < end ? e->addr : end;
        if (next - at >= room) {
            return at;
        }
        if (next == end) {
            break;
        }
        at = e->addr + e->room;
    }
    return 0;
}

cu_result td_arena_place(td_arena *arena, uint64_t room, uint64_t chunk, bool may_grow,
                         uint64_t *addr) {
    for (size_t i = 0; i < arena->count; i++) {
        uint64_t at = gap(&arena->chunks[i], room);
        if (at) {
            *addr = at;
            return CU_SUCCESS;
        }
    }
    if (!may_grow ||
        ceni_grow(&arena->chunks, &arena->capacity, arena->count + 1, sizeof *arena->chunks)) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    td_range made;
    cu_result result = td_range_take(arena->card, room > chunk ? room : chunk, &made);
    if (result == CU_ERROR_OUT_OF_MEMORY && room < chunk) {
        result = td_range_take(arena->card, room, &made);
    }
    TD_TRY(result);
    arena->chunks[arena->count++] = made;
    arena->bytes += made.size;
    *addr = made.addr;
    return CU_SUCCESS;
}

static void drop(td_arena *arena, size_t index) {
    td_range chunk = arena->chunks[index];
    arena->chunks[index] = arena->chunks[--arena->count];
    arena->bytes -= chunk.size;
    td_range_drop(arena->card, chunk);
}

void td_arena_trim(td_arena *arena, uint64_t keep) {
    for (size_t i = arena->count; i-- > 0 && arena->bytes > keep;) {
        const td_range *chunk = &arena->chunks[i];
        const td_entry *e = td_table_get(td_table_index(chunk->addr));
        if (!e || e->addr >= chunk->addr + chunk->size) {
            drop(arena, i);
        }
    }
}

void td_arena_clear(td_arena *arena) {
    while (arena->count) {
        drop(arena, arena->count - 1);
    }
    ceni_free(arena->chunks);
    arena->chunks = NULL;
    arena->capacity = 0;
}
