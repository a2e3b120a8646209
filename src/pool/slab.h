/* Inside the pool: what slabs (slab.c) and the magazines in front of them (magazine.c) share. */
#ifndef CENI_POOL_SLAB_H
#define CENI_POOL_SLAB_H

#include "pool/lookup.h"

/* The class of a size up to CENI_SLAB_LIMIT. */
static inline unsigned ceni_class_of(uint64_t bytes) {
    unsigned units = (unsigned)((bytes + CEN_POOL_ALIGNMENT - 1) / CEN_POOL_ALIGNMENT);
    if (units <= 8) {
        return units - 1;
    }
    unsigned log =
        31 - (unsigned)__builtin_clz(units - 1); /* 9..16 -> 3, 17..32 -> 4, 33..64 -> 5 */
    return 8 + (log - 3) * 4 + ((units - 1) >> (log - 2) & 3);
}

/* The slab around an object. */
static inline ceni_slab *ceni_slab_at(const cen_pool *pool, const void *object) {
    return (ceni_slab *)(ceni_index_get(pool, (uintptr_t)object) & ~CENI_OWNER_SLAB);
}

/* Which object of its slab begins at an address or lies around it. The multiplication divides
 * exactly: a slab has at most 512 units, and what is rounded up is less than the divisor, 64. */
static inline uint32_t ceni_object_index(const ceni_slab *slab, const void *object) {
    uint64_t offset = (uint64_t)(uintptr_t)object - slab->addr;
    return (uint32_t)(offset / CEN_POOL_ALIGNMENT * slab->inverse >> 16);
}

static inline _Atomic uint32_t *ceni_object_requested(ceni_slab *slab, const void *object) {
    return &slab->requested[ceni_object_index(slab, object)];
}

/* The entry of the object that begins at an address; NULL if none does. */
static inline _Atomic uint32_t *ceni_object_at(ceni_slab *slab, const void *object) {
    uint32_t index = ceni_object_index(slab, object);
    uint64_t addr = slab->addr + (uint64_t)index * slab->object_bytes;
    return index < slab->objects && addr == (uintptr_t)object ? &slab->requested[index] : NULL;
}

/* A slab of the stream that has a free object of the class, or NULL; the lock is held. */
ceni_slab *ceni_slab_listed(const ceni_arena *arena, unsigned class_index,
                            const ceni_pstream *stream);
/* A free object of the stream, from one of the arena's slabs; the lock is held. */
cen_status ceni_slab_take(cen_pool *pool, ceni_arena *arena, unsigned class_index,
                          ceni_pstream *stream, void **object);
/* Just this free object of an arena's slab; the lock is held. */
cen_status ceni_slab_take_at(ceni_slab *slab, const ceni_arena *arena, const void *object,
                             uint64_t bytes, const ceni_pstream *stream);
/* Past the magazines: for a capture, or a stream that was released. */
cen_status ceni_slab_alloc_slowly(cen_pool *pool, uint64_t bytes, ceni_pstream *stream,
                                  void **object);
/* Past the magazines: for a private pool, another stream, or with uses. The object, of `bytes`, was
 * marked as free at the time `ticks`; if that fails it is live as before. */
cen_status ceni_slab_free_slowly(cen_pool *pool, ceni_slab *slab, void *object, uint32_t bytes,
                                 ceni_pstream *stream, uint64_t ticks);

#endif
