/* What every call looks up, without the lock: whose an address is, and which stream a handle. */
#ifndef CENI_POOL_LOOKUP_H
#define CENI_POOL_LOOKUP_H

#include "pool/pool_int.h"

#define CENI_ADDRESS_BITS 47
#define CENI_LEAF_BITS    16

/* The entry of an address; NULL if there is none. */
static inline _Atomic uintptr_t *ceni_index_entry(const cen_pool *pool, uint64_t addr) {
    if (addr >> CENI_ADDRESS_BITS) {
        return NULL;
    }
    _Atomic uintptr_t *leaf = atomic_load_explicit(
        &pool->index[addr >> (CENI_GRANULE_BITS + CENI_LEAF_BITS)], memory_order_acquire);
    return leaf ? &leaf[addr >> CENI_GRANULE_BITS & (((uint64_t)1 << CENI_LEAF_BITS) - 1)] : NULL;
}

static inline uintptr_t ceni_index_get(const cen_pool *pool, uint64_t addr) {
    _Atomic uintptr_t *entry = ceni_index_entry(pool, addr);
    return entry ? atomic_load_explicit(entry, memory_order_acquire) : 0;
}

static inline void ceni_index_set(cen_pool *pool, uint64_t addr, uintptr_t owner) {
    _Atomic uintptr_t *entry = ceni_index_entry(pool, addr);
    if (entry) {
        atomic_store_explicit(entry, owner, memory_order_release);
    }
}

/* The slab whose memory an address is, or NULL. */
static inline ceni_slab *ceni_slab_of(const cen_pool *pool, const void *ptr) {
    uintptr_t owner = ceni_index_get(pool, (uintptr_t)ptr);
    return owner & CENI_OWNER_SLAB ? (ceni_slab *)(owner & ~CENI_OWNER_SLAB) : NULL;
}

static inline unsigned ceni_stream_slot(cen_stream handle) {
    return (unsigned)((uint64_t)handle * 0x9E3779B97F4A7C15u >> 58) % CENI_STREAM_SLOTS;
}

/* NULL: not seen yet. The table only grows. */
static inline ceni_pstream *ceni_stream_find(cen_pool *pool, cen_stream handle, bool retired) {
    ceni_pstream *s =
        atomic_load_explicit(&pool->streams[ceni_stream_slot(handle)], memory_order_acquire);
    while (s && (s->handle != handle ||
                 atomic_load_explicit(&s->retired, memory_order_relaxed) != retired)) {
        s = atomic_load_explicit(&s->next, memory_order_acquire);
    }
    return s;
}

ceni_pstream *ceni_stream_add(cen_pool *pool, cen_stream handle);

/* The stream as the pool knows it, made if it does not; NULL: no host memory. The lock is not held.
 */
static inline ceni_pstream *ceni_stream_get(cen_pool *pool, cen_stream handle) {
    ceni_pstream *s = ceni_stream_find(pool, handle, false);
    return s ? s : ceni_stream_add(pool, handle);
}

/* The same for a free, which may still name a stream that was released. */
static inline ceni_pstream *ceni_stream_named(cen_pool *pool, cen_stream handle) {
    ceni_pstream *s = ceni_stream_find(pool, handle, false);
    s = s ? s : ceni_stream_find(pool, handle, true);
    return s ? s : ceni_stream_add(pool, handle);
}

#endif
