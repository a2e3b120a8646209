/* A map from 64-bit keys to 64-bit values: open addressing, linear probing, at most half full.
 *
 * Removal shifts the following entries back, so there are no tombstones and the cost of a lookup
 * depends only on what the map holds now, not on what it held. Every key is allowed. */
#ifndef CENI_MAP_H
#define CENI_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ceni_map_slot {
    uint64_t key;
    uint64_t value;
    bool used;
} ceni_map_slot;

/* All zero: an empty map. */
typedef struct ceni_map {
    ceni_map_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
} ceni_map;

void ceni_map_free(ceni_map *map);

/* The value of `key`, or NULL. Valid until the map changes. */
uint64_t *ceni_map_get(const ceni_map *map, uint64_t key);

/* Sets the value of `key`. Returns 0, or -1 with nothing changed when memory is exhausted. */
int ceni_map_put(ceni_map *map, uint64_t key, uint64_t value);

/* Removes `key` and stores its value if `value` is given; false if it is not there. */
bool ceni_map_remove(ceni_map *map, uint64_t key, uint64_t *value);

#endif
