/* A map from recorded addresses (or streams) to small values: open addressing, for replay. */
#ifndef CENOTE_CLI_ADDRMAP_H
#define CENOTE_CLI_ADDRMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct addrmap_entry {
    uint64_t key;
    uint64_t size;
    void *block;   /* NULL for a request of 0 bytes */
    uint32_t gate; /* freed already, and waiting for this gate; 0: not freed */
    bool used;
} addrmap_entry;

typedef struct addrmap {
    addrmap_entry *entries;
    size_t capacity, count;
} addrmap;

/* The entry of a key, or NULL. Valid until the next addrmap_put or addrmap_remove. */
addrmap_entry *addrmap_get(const addrmap *map, uint64_t key);
/* The entry of a key, made if it is not there. NULL: no memory. */
addrmap_entry *addrmap_put(addrmap *map, uint64_t key);
void addrmap_remove(addrmap *map, addrmap_entry *entry);
void addrmap_free(addrmap *map);

#endif
