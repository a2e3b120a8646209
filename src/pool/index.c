/* Which block or slab an address belongs to: a two-level table over the 47 bits of user addresses.
 *
 * An entry stands for a granule of 32 KiB. Slabs fill whole granules and own every entry of theirs;
 * a block that is no slab is larger than a granule, so no two begin in the same one, and it owns
 * the entry in which it begins. Lookups take no lock: entries and tables are atomic, and tables
 * stay until the pool goes. Addresses that the pool gives back are forgotten: they may be another
 * pool's next. */
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "pool/lookup.h"

#define ROOT_BITS (CENI_ADDRESS_BITS - CENI_GRANULE_BITS - CENI_LEAF_BITS)

typedef _Atomic uintptr_t entry;

cen_status ceni_index_open(cen_pool *pool) {
    pool->index = ceni_calloc((size_t)1 << ROOT_BITS, sizeof *pool->index);
    return pool->index ? CEN_OK : ceni_fail(CEN_ERR_HOST_MEMORY, "pool: no memory for its index");
}

void ceni_index_close(cen_pool *pool) {
    if (!pool->index) {
        return;
    }
    for (size_t i = 0; i < (size_t)1 << ROOT_BITS; i++) {
        ceni_free(atomic_load_explicit(&pool->index[i], memory_order_relaxed));
    }
    ceni_free(pool->index);
    pool->index = NULL;
}

void ceni_index_forget(cen_pool *pool, uint64_t addr, uint64_t size) {
    const uint64_t leaf_bytes = (uint64_t)1 << (CENI_GRANULE_BITS + CENI_LEAF_BITS);
    const uint64_t granule = (uint64_t)1 << CENI_GRANULE_BITS, end = addr + size;
    while (addr < end) {
        uint64_t next = (addr / leaf_bytes + 1) * leaf_bytes;
        if (!ceni_index_entry(pool, addr)) { /* no table: nothing was ever there */
            addr = next;
            continue;
        }
        for (; addr < next && addr < end; addr += granule) {
            ceni_index_set(pool, addr, 0);
        }
    }
}

cen_status ceni_index_reserve(cen_pool *pool, uint64_t addr, uint64_t size) {
    if (addr >> CENI_ADDRESS_BITS || (addr + size - 1) >> CENI_ADDRESS_BITS) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "pool: address %#llx is beyond %d bits",
                         (unsigned long long)addr, CENI_ADDRESS_BITS);
    }
    unsigned shift = CENI_GRANULE_BITS + CENI_LEAF_BITS;
    for (uint64_t i = addr >> shift; i <= (addr + size - 1) >> shift; i++) {
        if (!atomic_load_explicit(&pool->index[i], memory_order_relaxed)) {
            entry *leaf = ceni_calloc((size_t)1 << CENI_LEAF_BITS, sizeof *leaf);
            if (!leaf) {
                return ceni_fail(CEN_ERR_HOST_MEMORY, "pool: no memory for its index");
            }
            atomic_store_explicit(&pool->index[i], leaf, memory_order_release);
        }
    }
    return CEN_OK;
}
