/* Magazines: freed objects of one stream and class, for the threads of one processor, so that the
 * usual alloc and free of a small size touch one cache line under a lock that no other processor
 * wants. They are filled from slabs and emptied into them (slab.c) by halves, under the pool's
 * lock, which is never taken with a magazine's held. */
#include <sched.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "pool/note.h"
#include "pool/slab.h"

/* 128 KiB of objects, at most CENI_MAGAZINE. */
static const uint8_t magazine_sizes[CENI_CLASSES] = {16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
                                                     16, 16, 12, 10, 9,  8,  6,  5,  4,  4};

static ceni_shard *shard_of(ceni_shard *shards) {
    int cpu = sched_getcpu();
    return &shards[(unsigned)(cpu < 0 ? 0 : cpu) % CENI_SHARDS];
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
        status = ceni_slab_take(pool, &pool->shared, class_index, stream, &objects[*count]);
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
        ceni_slab_give_back(pool, ceni_slab_at(pool, objects[i]), objects[i]);
    }
    ceni_lock_leave(&pool->lock);
}

cen_status ceni_slab_alloc(cen_pool *pool, uint64_t bytes, ceni_pstream *stream, void **object) {
    if (atomic_load_explicit(&stream->route, memory_order_acquire)) {
        return ceni_slab_alloc_slowly(pool, bytes, stream, object);
    }
    ceni_shard *shards = stream_shards(pool, stream);
    if (!shards) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "pool: no memory for magazines");
    }
    unsigned c = ceni_class_of(bytes), fresh = 0, over = 0;
    void *objects[CENI_MAGAZINE], *got;
    ceni_shard *shard = shard_of(shards);
    if (!enter(shard, stream)) {
        return ceni_slab_alloc_slowly(pool, bytes, stream, object);
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
            return ceni_slab_alloc_slowly(pool, bytes, stream, object);
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
    atomic_store_explicit(ceni_object_requested(ceni_slab_at(pool, got), got), (uint32_t)bytes,
                          memory_order_relaxed);
    *object = got;
    return CEN_OK;
}

cen_status ceni_slab_free(cen_pool *pool, ceni_slab *slab, void *object, ceni_pstream *stream) {
    _Atomic uint32_t *requested = ceni_object_at(slab, object);
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
        return ceni_slab_free_slowly(pool, slab, object, bytes, stream, ticks);
    }
    unsigned c = slab->class_index, spill = 0;
    void *objects[CENI_MAGAZINE];
    ceni_shard *shard = shard_of(shards);
    if (!enter(shard, stream)) {
        return ceni_slab_free_slowly(pool, slab, object, bytes, stream, ticks);
    }
    if (slab->has_uses) { /* under the lock: whoever flushes sets it first */
        ceni_spin_leave(&shard->lock);
        return ceni_slab_free_slowly(pool, slab, object, bytes, stream, ticks);
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
            ceni_slab_give_back(pool, ceni_slab_at(pool, objects[i]), objects[i]);
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
