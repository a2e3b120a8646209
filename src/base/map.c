#include "base/map.h"

#include "base/mem.h"

/* Fibonacci hashing with the high half folded in: addresses differ mostly in their middle bits. */
static size_t home(const ceni_map *map, uint64_t key) {
    uint64_t mixed = key * 0x9e3779b97f4a7c15u;
    return (size_t)(mixed ^ (mixed >> 32)) & (map->capacity - 1);
}

/* The slot of `key`, or the free slot where it belongs. The map is not full. */
static size_t probe(const ceni_map *map, uint64_t key) {
    size_t at = home(map, key);
    while (map->slots[at].used && map->slots[at].key != key) {
        at = (at + 1) & (map->capacity - 1);
    }
    return at;
}

void ceni_map_free(ceni_map *map) {
    ceni_free(map->slots);
    *map = (ceni_map){0};
}

uint64_t *ceni_map_get(const ceni_map *map, uint64_t key) {
    if (!map->count) {
        return NULL;
    }
    ceni_map_slot *slot = &map->slots[probe(map, key)];
    return slot->used ? &slot->value : NULL;
}

static int grow(ceni_map *map) {
    ceni_map larger = {.capacity = map->capacity ? map->capacity * 2 : 16, .count = map->count};
    larger.slots = ceni_calloc(larger.capacity, sizeof *larger.slots);
    if (!larger.slots) {
        return -1;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[i].used) {
            larger.slots[probe(&larger, map->slots[i].key)] = map->slots[i];
        }
    }
    ceni_free(map->slots);
    *map = larger;
    return 0;
}

int ceni_map_put(ceni_map *map, uint64_t key, uint64_t value) {
    if ((map->count + 1) * 2 > map->capacity && grow(map)) {
        return -1;
    }
    ceni_map_slot *slot = &map->slots[probe(map, key)];
    map->count += !slot->used;
    *slot = (ceni_map_slot){.key = key, .value = value, .used = true};
    return 0;
}

bool ceni_map_remove(ceni_map *map, uint64_t key, uint64_t *value) {
    if (!map->count) {
        return false;
    }
    size_t mask = map->capacity - 1, hole = probe(map, key);
    if (!map->slots[hole].used) {
        return false;
    }
    if (value) {
        *value = map->slots[hole].value;
    }
    /* An entry may move back into the hole unless its home lies after the hole. */
    for (size_t at = (hole + 1) & mask; map->slots[at].used; at = (at + 1) & mask) {
        size_t distance = (at - home(map, map->slots[at].key)) & mask;
        if (distance >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole].used = false;
    map->count--;
    return true;
}
