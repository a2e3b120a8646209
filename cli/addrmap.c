#include "cli/addrmap.h"

#include <stdlib.h>

static size_t home(const addrmap *map, uint64_t key) {
    return (size_t)(key * 0x9E3779B97F4A7C15u >> 20) & (map->capacity - 1);
}

static addrmap_entry *probe(const addrmap *map, uint64_t key) {
    size_t i = home(map, key);
    while (map->entries[i].used && map->entries[i].key != key) {
        i = (i + 1) & (map->capacity - 1);
    }
    return &map->entries[i];
}

addrmap_entry *addrmap_get(const addrmap *map, uint64_t key) {
    addrmap_entry *e = map->capacity ? probe(map, key) : NULL;
    return e && e->used ? e : NULL;
}

static bool grow(addrmap *map) {
    addrmap bigger = {NULL, map->capacity ? map->capacity * 2 : 1024, map->count};
    bigger.entries = calloc(bigger.capacity, sizeof *bigger.entries);
    if (!bigger.entries) {
        return false;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->entries[i].used) {
            *probe(&bigger, map->entries[i].key) = map->entries[i];
        }
    }
    free(map->entries);
    *map = bigger;
    return true;
}

addrmap_entry *addrmap_put(addrmap *map, uint64_t key) {
    if (map->count * 2 >= map->capacity && !grow(map)) {
        return NULL;
    }
    addrmap_entry *e = probe(map, key);
    if (!e->used) {
        *e = (addrmap_entry){.key = key, .used = true};
        map->count++;
    }
    return e;
}

/* Moves later entries of the same run back, so that no marker of a removed entry is needed. */
void addrmap_remove(addrmap *map, addrmap_entry *entry) {
    size_t hole = (size_t)(entry - map->entries), i = hole;
    map->count--;
    for (;;) {
        i = (i + 1) & (map->capacity - 1);
        if (!map->entries[i].used) {
            break;
        }
        size_t wants = home(map, map->entries[i].key);
        if (((i - wants) & (map->capacity - 1)) >= ((i - hole) & (map->capacity - 1))) {
            map->entries[hole] = map->entries[i];
            hole = i;
        }
    }
    map->entries[hole].used = false;
}

void addrmap_free(addrmap *map) {
    free(map->entries);
    *map = (addrmap){0};
}
