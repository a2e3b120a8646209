/* Small sizes: slabs of equal objects, and magazines in front of them.
 *
 * An object belongs to its slab's stream. A magazine holds freed objects of one stream and class
 * for the threads of one processor, so that the usual alloc and free touch one cache line under a
 * lock that no other processor wants. Objects in magazines count as neither live nor free of their
 * slab; a slab whose objects are all back becomes a free block. An object freed with other streams'
 * uses waits as pending. requested[] tells live objects from others, and catches double frees. */
#include <sched.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "pool/lookup.h"
#include "pool/note.h"

#define SLAB_MIN_BYTES ((uint64_t)64 << 10)
#define SLAB_OBJECTS   8

/* Multiples of 512 bytes with at most a quarter of waste. */
static const uint8_t class_units[CENI_CLASSES] = {1,  2,  3,  4,  5,  6,  7,  8,  10, 12,
                                                  14, 16, 20, 24, 28, 32, 40, 48, 56, 64};

uint32_t ceni_class_bytes(unsigned class_index) {
    return (uint32_t)class_units[class_index] * CEN_POOL_ALIGNMENT;
}

static unsigned class_of(uint64_t bytes) {
    unsigned units = (unsigned)((bytes + CEN_POOL_ALIGNMENT - 1) / CEN_POOL_ALIGNMENT);
    if (units <= 8) {
        return units - 1;
    }
    unsigned log =
        31 - (unsigned)__builtin_clz(units - 1); /* 9..16 -> 3, 17..32 -> 4, 33..64 -> 5 */
    return 8 + (log - 3) * 4 + ((units - 1) >> (log - 2) & 3);
}

/* 128 KiB of objects, at most CENI_MAGAZINE. */
static const uint8_t magazine_sizes[CENI_CLASSES] = {16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
                                                     16, 16, 12, 10, 9,  8,  6,  5,  4,  4};

/* Which object of its slab begins at an address or lies around it. The multiplication divides
 * exactly: a slab has at most 512 units, and what is rounded up is less than the divisor, 64. */
static uint32_t object_index(const ceni_slab *slab, const void *object) {
    uint64_t offset = (uint64_t)(uintptr_t)object - slab->addr;
    return (uint32_t)(offset / CEN_POOL_ALIGNMENT * slab->inverse >> 16);
}

static ceni_shard *shard_of(ceni_shard *shards) {
    int cpu = sched_getcpu();
    return &shards[(unsigned)(cpu < 0 ? 0 : cpu) % CENI_SHARDS];
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

static cen_status make_slab(cen_pool *pool, ceni_arena *arena, unsigned class_index,
                            ceni_pstream *stream, ceni_slab **out) {
    uint32_t object_bytes = ceni_class_bytes(class_index);
    uint64_t bytes = object_bytes * (uint64_t)SLAB_OBJECTS;
    uint64_t granule = (uint64_t)1 << CENI_GRANULE_BITS;
    bytes = bytes < SLAB_MIN_BYTES ? SLAB_MIN_BYTES : (bytes + granule - 1) & ~(granule - 1);
    uint32_t objects = (uint32_t)(bytes / object_bytes);
    ceni_slab *slab = ceni_calloc(1, sizeof *slab + objects * sizeof *slab->requested);
    uint16_t *free_list = ceni_malloc(objects * sizeof *free_list);
    cen_status status =
        slab && free_list ? CEN_OK : ceni_fail(CEN_ERR_HOST_MEMORY, "pool: no memory for a slab");
    if (!status) {
        status = ceni_pool_obtain(pool, arena, bytes, granule, object_bytes, stream, &slab->block);
    }
    if (status) {
        ceni_free(slab);
        ceni_free(free_list);
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
    slab->free_list[slab->free_count++] = (uint16_t)object_index(slab, object);
    if (!slab->listed && !slab->dead) {
        list_slab(slab);
    }
    if (slab->free_count == slab->objects) {
        free_slab(pool, slab);
    }
}

/* A free object of the stream, from a slab; lock held. */
static cen_status take_object(cen_pool *pool, ceni_arena *arena, unsigned class_index,
                              ceni_pstream *stream, void **object) {
    ceni_slab *slab = arena->slabs[class_index];
    while (slab && slab->stream != stream) {
        slab = slab->next;
    }
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

static ceni_slab *slab_at(const cen_pool *pool, const void *object) {
    return (ceni_slab *)(ceni_index_get(pool, (uintptr_t)object) & ~CENI_OWNER_SLAB);
}

static _Atomic uint32_t *requested_of(ceni_slab *slab, const void *object) {
    return &slab->requested[object_index(slab, object)];
}

/* The entry of the object that begins at an address; NULL if none does. */
static _Atomic uint32_t *object_at(ceni_slab *slab, const void *object) {
    uint32_t index = object_index(slab, object);
    uint64_t addr = slab->addr + (uint64_t)index * slab->object_bytes;
    return index < slab->objects && addr == (uintptr_t)object ? &slab->requested[index] : NULL;
}

int64_t ceni_slab_requested(ceni_slab *slab, const void *object) {
    _Atomic uint32_t *at = object_at(slab, object);
    return at ? (int64_t)atomic_load(at) : -1;
}

void ceni_slab_lose(ceni_slab *slab) {
    slab->dead = true;
    atomic_store(&slab->has_uses, true);
    if (slab->listed) {
        unlist_slab(slab);
    }
}

static ceni_shard *new_shards(void) {
    size_t size = CENI_SHARDS * sizeof(ceni_shard);
    ceni_shard *shards = ceni_aligned(_Alignof(ceni_shard), size);
    if (shards) {
        memset(shards, 0, size);
    }
    return shards;
}

static ceni_shard *stream_shards(cen_pool *pool, ceni_pstream *stream) {
    ceni_shard *shards = atomic_load_explicit(&stream->shards, memory_order_acquire);
    if (shards) {
        return shards;
    }
    ceni_lock_take(&pool->lock);
    shards = atomic_load(&stream->shards);
    if (!shards) {
        shards =
            pool->spare_shard_count ? pool->spare_shards[--pool->spare_shard_count] : new_shards();
        atomic_store_explicit(&stream->shards, shards, memory_order_release);
    }
    ceni_lock_leave(&pool->lock);
    return shards;
}

/* Takes a shard's lock, unless the stream was released: then its shards are another stream's. */
static bool enter(ceni_shard *shard, const ceni_pstream *stream) {
    ceni_spin_take(&shard->lock);
    if (atomic_load_explicit(&stream->retired, memory_order_relaxed)) {
        ceni_spin_leave(&shard->lock);
        return false;
    }
    return true;
}

/* The same with objects in hand: pages that died since may be theirs, and magazines were flushed.
 */
static bool enter_unless_lost(const cen_pool *pool, ceni_shard *shard, const ceni_pstream *stream,
                              uint64_t losses) {
    if (!enter(shard, stream)) {
        return false;
    }
    if (atomic_load(&pool->losses) != losses) {
        ceni_spin_leave(&shard->lock);
        return false;
    }
    return true;
}

/* Adds what a shard has counted to the pool's figures; the shard's lock is held. */
static void publish(cen_pool *pool, ceni_shard *shard) {
    ceni_pool_count_shard(pool, shard->requested_delta);
    shard->requested_delta = 0;
}

#define DELTA_MAX (64 << 10)

static void count(cen_pool *pool, ceni_shard *shard, int64_t bytes) {
    shard->requested_delta += bytes;
    if (shard->requested_delta > DELTA_MAX || shard->requested_delta < -DELTA_MAX) {
        publish(pool, shard);
    }
}

/* Fills half a magazine's worth from slabs. */
static cen_status refill(cen_pool *pool, unsigned class_index, ceni_pstream *stream, void **objects,
                         unsigned *count) {
    unsigned want = (magazine_sizes[class_index] + 1u) / 2;
    ceni_lock_take(&pool->lock);
    cen_status status = CEN_OK;
    *count = 0;
    while (*count < want) {
        status = take_object(pool, &pool->shared, class_index, stream, &objects[*count]);
        if (status) {
            break;
        }
        ++*count;
        if (!pool->shared.slabs[class_index]) {
            break; /* one is enough: do not make a slab for the sake of the magazine */
        }
    }
    ceni_lock_leave(&pool->lock);
    return *count ? CEN_OK : status;
}

static void return_objects(cen_pool *pool, void *const *objects, unsigned count) {
    ceni_lock_take(&pool->lock);
    for (unsigned i = 0; i < count; i++) {
        ceni_slab_give_back(pool, slab_at(pool, objects[i]), objects[i]);
    }
    ceni_lock_leave(&pool->lock);
}

/* Past the magazines: for a capture, or a stream that was released. */
static cen_status alloc_slowly(cen_pool *pool, uint64_t bytes, ceni_pstream *stream,
                               void **object) {
    ceni_lock_take(&pool->lock);
    ceni_arena *route = atomic_load_explicit(&stream->route, memory_order_relaxed);
    cen_status status =
        take_object(pool, route ? route : &pool->shared, class_of(bytes), stream, object);
    if (!status) {
        atomic_store(requested_of(slab_at(pool, *object), *object), (uint32_t)bytes);
        ceni_pool_count_requested(pool, (int64_t)bytes);
        pool->stats.allocs++;
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status ceni_slab_alloc(cen_pool *pool, uint64_t bytes, ceni_pstream *stream, void **object) {
    if (atomic_load_explicit(&stream->route, memory_order_acquire)) {
        return alloc_slowly(pool, bytes, stream, object);
    }
    ceni_shard *shards = stream_shards(pool, stream);
    if (!shards) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "pool: no memory for magazines");
    }
    unsigned c = class_of(bytes), fresh = 0, over = 0;
    void *objects[CENI_MAGAZINE], *got;
    ceni_shard *shard = shard_of(shards);
    if (!enter(shard, stream)) {
        return alloc_slowly(pool, bytes, stream, object);
    }
    if (!shard->count[c]) {
        ceni_spin_leave(&shard->lock);
        uint64_t losses = atomic_load(&pool->losses);
        cen_status status = refill(pool, c, stream, objects, &fresh);
        if (!fresh) {
            return status;
        }
        if (!enter_unless_lost(pool, shard, stream, losses)) {
            return_objects(pool, objects, fresh);
            return alloc_slowly(pool, bytes, stream, object);
        }
        got = objects[--fresh];
        while (over < fresh && shard->count[c] < CENI_MAGAZINE) {
            shard->object[c][shard->count[c]++] = objects[over++];
        }
    } else {
        got = shard->object[c][--shard->count[c]];
    }
    shard->allocs++;
    count(pool, shard, (int64_t)bytes);
    ceni_spin_leave(&shard->lock);
    if (over < fresh) {
        return_objects(pool, objects + over, fresh - over);
    }
    atomic_store_explicit(requested_of(slab_at(pool, got), got), (uint32_t)bytes,
                          memory_order_relaxed);
    *object = got;
    return CEN_OK;
}

cen_status ceni_slab_size(ceni_slab *slab, const void *object, size_t *bytes) {
    _Atomic uint32_t *at = object_at(slab, object);
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

/* Where the pool's list notes the uses of an object; what it points to is NULL if there are none.
 */
static struct ceni_object_use **find_uses(cen_pool *pool, const void *object) {
    struct ceni_object_use **at = &pool->object_uses;
    while (*at && (*at)->object != object) {
        at = &(*at)->next;
    }
    return at;
}

/* Frees past the magazines: for a private pool, another stream, or with uses. */
static cen_status free_slowly(cen_pool *pool, ceni_slab *slab, void *object, uint32_t bytes,
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
        atomic_store(requested_of(slab, object), bytes);
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

cen_status ceni_slab_free(cen_pool *pool, ceni_slab *slab, void *object, ceni_pstream *stream) {
    _Atomic uint32_t *requested = object_at(slab, object);
    if (!requested) {
        return ceni_fail(CEN_ERR_FOREIGN_POINTER, "cen_pool_free: %p is inside a block", object);
    }
    uint32_t bytes = atomic_exchange_explicit(requested, 0, memory_order_acq_rel);
    if (!bytes) {
        return ceni_fail(CEN_ERR_DOUBLE_FREE, "cen_pool_free: %p is free already", object);
    }
    uint64_t ticks = ceni_note_time();
    ceni_shard *shards = atomic_load_explicit(&stream->shards, memory_order_acquire);
    if (stream != slab->stream || slab->arena->id || !shards) {
        return free_slowly(pool, slab, object, bytes, stream, ticks);
    }
    unsigned c = slab->class_index, spill = 0;
    void *objects[CENI_MAGAZINE];
    ceni_shard *shard = shard_of(shards);
    if (!enter(shard, stream)) {
        return free_slowly(pool, slab, object, bytes, stream, ticks);
    }
    if (slab->has_uses) { /* under the lock: whoever flushes sets it first */
        ceni_spin_leave(&shard->lock);
        return free_slowly(pool, slab, object, bytes, stream, ticks);
    }
    if (shard->count[c] >= magazine_sizes[c]) {
        spill = (shard->count[c] + 1u) / 2;
        shard->count[c] = (uint8_t)(shard->count[c] - spill);
        memcpy(objects, shard->object[c], spill * sizeof *objects);
        memmove(shard->object[c], shard->object[c] + spill, shard->count[c] * sizeof *objects);
    }
    shard->object[c][shard->count[c]++] = object;
    shard->frees++;
    count(pool, shard, -(int64_t)bytes);
    ceni_spin_leave(&shard->lock);
    if (spill) {
        return_objects(pool, objects, spill);
    }
    ceni_note_free(pool, ticks, (uintptr_t)object, bytes, stream->handle, false);
    return CEN_OK;
}

static void flush_shard(cen_pool *pool, ceni_shard *shard) {
    for (unsigned c = 0; c < CENI_CLASSES; c++) {
        void *objects[CENI_MAGAZINE];
        ceni_spin_take(&shard->lock);
        unsigned count = shard->count[c];
        memcpy(objects, shard->object[c], count * sizeof *objects);
        shard->count[c] = 0;
        ceni_spin_leave(&shard->lock);
        for (unsigned i = 0; i < count; i++) {
            ceni_slab_give_back(pool, slab_at(pool, objects[i]), objects[i]);
        }
    }
}

void ceni_magazines_flush(cen_pool *pool) {
    for (unsigned i = 0; i < CENI_STREAM_SLOTS; i++) {
        for (ceni_pstream *s = atomic_load(&pool->streams[i]); s; s = atomic_load(&s->next)) {
            ceni_shard *shards = atomic_load(&s->shards);
            for (unsigned k = 0; shards && k < CENI_SHARDS; k++) {
                flush_shard(pool, &shards[k]);
            }
        }
    }
}

void ceni_magazines_retire(cen_pool *pool, ceni_pstream *stream) {
    ceni_shard *shards = atomic_load(&stream->shards);
    if (!shards) {
        return;
    }
    for (unsigned k = 0; k < CENI_SHARDS; k++) {
        flush_shard(pool, &shards[k]);
        ceni_spin_take(&shards[k].lock);
        publish(pool, &shards[k]);
        pool->stats.allocs += shards[k].allocs;
        pool->stats.frees += shards[k].frees;
        shards[k].allocs = shards[k].frees = 0;
        ceni_spin_leave(&shards[k].lock);
    }
    if (!ceni_grow(&pool->spare_shards, &pool->spare_shard_capacity, pool->spare_shard_count + 1,
                   sizeof(void *))) {
        pool->spare_shards[pool->spare_shard_count++] = shards;
        atomic_store(&stream->shards, NULL);
    }
}
