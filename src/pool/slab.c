/* Small sizes: slabs of equal objects, each of one stream and class. A slab whose objects are all
 * back becomes a free block. requested[] tells live objects from others, and catches double frees.
 *
 * The usual alloc and free do not come here but to the magazines (magazine.c), whose objects count
 * as neither live nor free of their slab. What they cannot serve does: private pools, streams that
 * were released, and objects with uses of other streams, which wait as pending when they are freed.
 */
#include "base/log.h"
#include "base/mem.h"
#include "pool/note.h"
#include "pool/slab.h"

#define SLAB_MIN_BYTES ((uint64_t)64 << 10)
#define SLAB_OBJECTS   8

/* Multiples of 512 bytes with at most a quarter of waste. */
static const uint8_t class_units[CENI_CLASSES] = {1,  2,  3,  4,  5,  6,  7,  8,  10, 12,
                                                  14, 16, 20, 24, 28, 32, 40, 48, 56, 64};

static uint32_t class_bytes(unsigned class_index) {
    return (uint32_t)class_units[class_index] * CEN_POOL_ALIGNMENT;
}

static void list_slab(ceni_slab *slab) {
    ceni_slab **first = &slab->arena->slabs[slab->class_index];
    slab->prev = NULL;
    slab->next = *first;
    if (slab->next) {
        slab->next->prev = slab;
    }
    *first = slab;
    slab->listed = true;
}

static void unlist_slab(ceni_slab *slab) {
    *(slab->prev ? &slab->prev->next : &slab->arena->slabs[slab->class_index]) = slab->next;
    if (slab->next) {
        slab->next->prev = slab->prev;
    }
    slab->listed = false;
}

ceni_slab *ceni_slab_listed(const ceni_arena *arena, unsigned class_index,
                            const ceni_pstream *stream) {
    ceni_slab *slab = arena->slabs[class_index];
    while (slab && slab->stream != stream) {
        slab = slab->next;
    }
    return slab;
}

/* Or one that has a free object by now, if there is no room for one more. */
static cen_status make_slab(cen_pool *pool, ceni_arena *arena, unsigned class_index,
                            ceni_pstream *stream, ceni_slab **out) {
    uint32_t object_bytes = class_bytes(class_index);
    uint64_t bytes = object_bytes * (uint64_t)SLAB_OBJECTS;
    uint64_t granule = (uint64_t)1 << CENI_GRANULE_BITS;
    bytes = bytes < SLAB_MIN_BYTES ? SLAB_MIN_BYTES : (bytes + granule - 1) & ~(granule - 1);
    uint32_t objects = (uint32_t)(bytes / object_bytes);
    ceni_slab *slab = ceni_calloc(1, sizeof *slab + objects * sizeof *slab->requested);
    uint16_t *free_list = ceni_malloc(objects * sizeof *free_list);
    cen_status status =
        slab && free_list ? CEN_OK : ceni_fail(CEN_ERR_HOST_MEMORY, "pool: no memory for a slab");
    if (!status) {
        status = ceni_pool_obtain_slab(pool, arena, bytes, granule, class_index, object_bytes,
                                       stream, &slab->block);
    }
    if (status || !slab->block) {
        ceni_free(slab);
        ceni_free(free_list);
        *out = status ? NULL : ceni_slab_listed(arena, class_index, stream);
        return status;
    }
    slab->block->kind = CENI_BLOCK_SLAB;
    slab->block->slab = slab;
    slab->block->requested = 0;
    slab->addr = slab->block->addr;
    slab->arena = arena;
    slab->stream = stream;
    slab->object_bytes = object_bytes;
    slab->objects = slab->free_count = objects;
    slab->inverse = (65535 + class_units[class_index]) / class_units[class_index];
    slab->class_index = (uint8_t)class_index;
    slab->free_list = free_list;
    for (uint32_t i = 0; i < objects; i++) {
        free_list[i] = (uint16_t)(objects - 1 - i);
    }
    list_slab(slab);
    for (uint64_t at = slab->addr; at < slab->addr + bytes; at += granule) {
        ceni_index_set(pool, at, (uintptr_t)slab | CENI_OWNER_SLAB);
    }
    *out = slab;
    return CEN_OK;
}

static void free_slab(cen_pool *pool, ceni_slab *slab) {
    uint64_t granule = (uint64_t)1 << CENI_GRANULE_BITS;
    for (uint64_t at = slab->addr; at < slab->addr + slab->block->size; at += granule) {
        ceni_index_set(pool, at, CENI_OWNER_FREED);
    }
    if (slab->listed) {
        unlist_slab(slab);
    }
    ceni_block_release(pool, slab->block, slab->stream, ceni_stream_freeing(pool, slab->stream));
    ceni_free(slab->free_list);
    ceni_free(slab);
}

void ceni_slab_give_back(cen_pool *pool, ceni_slab *slab, void *object) {
    slab->free_list[slab->free_count++] = (uint16_t)ceni_object_index(slab, object);
    if (!slab->listed && !slab->dead) {
        list_slab(slab);
    }
    if (slab->free_count == slab->objects && (!slab->arena->id || slab->arena->released)) {
        free_slab(pool, slab);
    }
}

void ceni_slabs_release(cen_pool *pool, ceni_arena *arena) {
    for (unsigned i = 0; i < CENI_CLASSES; i++) {
        ceni_slab *next;
        for (ceni_slab *s = arena->slabs[i]; s; s = next) {
            next = s->next;
            if (s->free_count == s->objects) {
                free_slab(pool, s);
            }
        }
    }
}

cen_status ceni_slab_take(cen_pool *pool, ceni_arena *arena, unsigned class_index,
                          ceni_pstream *stream, void **object) {
    ceni_slab *slab = ceni_slab_listed(arena, class_index, stream);
    if (!slab) {
        cen_status status = make_slab(pool, arena, class_index, stream, &slab);
        if (status) {
            return status;
        }
    }
    uint32_t index = slab->free_list[--slab->free_count];
    if (!slab->free_count) {
        unlist_slab(slab);
    }
    *object = (void *)(uintptr_t)(slab->addr + (uint64_t)index * slab->object_bytes);
    return CEN_OK;
}

cen_status ceni_slab_take_at(ceni_slab *slab, const ceni_arena *arena, const void *object,
                             uint64_t bytes, const ceni_pstream *stream) {
    _Atomic uint32_t *requested = ceni_object_at(slab, object);
    uint32_t index = ceni_object_index(slab, object), at = 0;
    while (at < slab->free_count && slab->free_list[at] != index) {
        at++;
    }
    if (!requested || at == slab->free_count || slab->arena != arena || slab->stream != stream ||
        bytes > slab->object_bytes) {
        return ceni_fail(CEN_ERR_BUSY, "cen_pool_alloc_at: %p: %llu bytes there are not free",
                         object, (unsigned long long)bytes);
    }
    slab->free_list[at] = slab->free_list[--slab->free_count];
    if (!slab->free_count) {
        unlist_slab(slab);
    }
    atomic_store(requested, (uint32_t)bytes);
    return CEN_OK;
}

int64_t ceni_slab_requested(ceni_slab *slab, const void *object) {
    _Atomic uint32_t *at = ceni_object_at(slab, object);
    return at ? (int64_t)atomic_load(at) : -1;
}

void ceni_slab_lose(ceni_slab *slab) {
    slab->dead = true;
    atomic_store(&slab->has_uses, true);
    if (slab->listed) {
        unlist_slab(slab);
    }
}

cen_status ceni_slab_alloc_slowly(cen_pool *pool, uint64_t bytes, ceni_pstream *stream,
                                  void **object) {
    ceni_lock_take(&pool->lock);
    ceni_arena *route = atomic_load_explicit(&stream->route, memory_order_relaxed);
    cen_status status =
        ceni_slab_take(pool, route ? route : &pool->shared, ceni_class_of(bytes), stream, object);
    if (!status) {
        atomic_store(ceni_object_requested(ceni_slab_at(pool, *object), *object), (uint32_t)bytes);
        ceni_pool_count_requested(pool, (int64_t)bytes);
        pool->stats.allocs++;
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status ceni_slab_size(ceni_slab *slab, const void *object, size_t *bytes) {
    _Atomic uint32_t *at = ceni_object_at(slab, object);
    uint32_t requested = at ? atomic_load(at) : 0;
    if (!requested) {
        return ceni_fail(CEN_ERR_FOREIGN_POINTER, "pool: %p is no live block", object);
    }
    *bytes = requested;
    return CEN_OK;
}

cen_status ceni_slab_use(cen_pool *pool, ceni_slab *slab, void *object, ceni_pstream *stream) {
    size_t bytes;
    cen_status status = ceni_slab_size(slab, object, &bytes);
    if (status || stream == slab->stream) {
        return status;
    }
    struct ceni_object_use *u = pool->object_uses;
    while (u && u->object != object) {
        u = u->next;
    }
    if (!u) {
        if (!(u = ceni_calloc(1, sizeof *u))) {
            return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_use: no memory");
        }
        u->object = object;
        u->next = pool->object_uses;
        pool->object_uses = u;
        atomic_store(&slab->has_uses, true);
    }
    status = ceni_use_add(&u->uses, stream);
    return status ? ceni_fail(status, "cen_pool_use: no memory") : CEN_OK;
}

/* Where the pool's list notes the uses of an object; what it points to is NULL if there are none.
 */
static struct ceni_object_use **find_uses(cen_pool *pool, const void *object) {
    struct ceni_object_use **at = &pool->object_uses;
    while (*at && (*at)->object != object) {
        at = &(*at)->next;
    }
    return at;
}

cen_status ceni_slab_free_slowly(cen_pool *pool, ceni_slab *slab, void *object, uint32_t bytes,
                                 ceni_pstream *stream, uint64_t ticks) {
    ceni_lock_take(&pool->lock);
    struct ceni_object_use **at = find_uses(pool, object), *noted = *at;
    ceni_use *fresh = NULL, **uses = noted ? &noted->uses : &fresh;
    cen_status status = stream == slab->stream ? CEN_OK : ceni_use_add(uses, stream);
    bool pending = !status && *uses;
    if (status) {
        (void)ceni_fail(status, "cen_pool_free: no memory");
    } else if (*uses) {
        ceni_uses_end(*uses);
        status = ceni_pending_add(pool, slab->block, object, *uses);
    } else {
        ceni_slab_give_back(pool, slab, object);
    }
    if (status) { /* not freed: live as before */
        atomic_store(ceni_object_requested(slab, object), bytes);
        ceni_uses_free(fresh);
    } else {
        if (noted) {
            *at = noted->next;
            ceni_free(noted);
        }
        pool->stats.frees++;
        ceni_pool_count_requested(pool, -(int64_t)bytes);
    }
    ceni_lock_leave(&pool->lock);
    if (!status) {
        ceni_note_free(pool, ticks, (uintptr_t)object, bytes, stream->handle, pending);
    }
    return status;
}

void ceni_slabs_close(cen_pool *pool) {
    for (ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        for (ceni_block *b = l->first_block; b; b = b->next) {
            if (b->slab) {
                ceni_free(b->slab->free_list);
                ceni_free(b->slab);
                b->slab = NULL;
            }
        }
    }
}
