/* The pool's everyday calls: allocation and freeing, and the figures that they keep. */
#include "base/clock.h"
#include "base/log.h"
#include "dev/call.h"
#include "pool/lookup.h"
#include "pool/note.h"

#define ALIGNMENT_MAX ((size_t)1 << 30)
#define VERIFY_EVERY  64 /* debug builds: slow-path operations between checks */

uint64_t ceni_pool_now_us(const cen_pool *pool) {
    return pool->options.clock_us ? pool->options.clock_us(pool->options.clock_arg)
                                  : ceni_now_ns() / 1000;
}

int64_t ceni_pool_requested(const cen_pool *pool) {
    return atomic_load_explicit(&pool->requested_locked, memory_order_relaxed) +
           atomic_load_explicit(&pool->requested_shards, memory_order_relaxed);
}

static void raise_peak(cen_pool *pool) {
    int64_t live = ceni_pool_requested(pool);
    uint64_t now = live > 0 ? (uint64_t)live : 0;
    uint64_t peak = atomic_load_explicit(&pool->requested_peak, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak(&pool->requested_peak, &peak, now)) {
    }
}

/* The lock makes this the only writer. */
void ceni_pool_count_requested(cen_pool *pool, int64_t bytes) {
    int64_t live = atomic_load_explicit(&pool->requested_locked, memory_order_relaxed);
    atomic_store_explicit(&pool->requested_locked, live + bytes, memory_order_relaxed);
    if (bytes > 0) {
        raise_peak(pool);
    }
}

void ceni_pool_count_shard(cen_pool *pool, int64_t bytes) {
    atomic_fetch_add_explicit(&pool->requested_shards, bytes, memory_order_relaxed);
    if (bytes > 0) {
        raise_peak(pool);
    }
}

void ceni_pool_count_allocated(cen_pool *pool, uint64_t size) {
    pool->stats.allocated_bytes += size;
    if (pool->stats.allocated_bytes > pool->stats.allocated_peak_bytes) {
        pool->stats.allocated_peak_bytes = pool->stats.allocated_bytes;
    }
}

void ceni_pool_count_reserved(cen_pool *pool, const ceni_line *line, int64_t bytes) {
    cen_pool_stats *s = &pool->stats;
    s->reserved_bytes += (uint64_t)bytes;
    if (s->reserved_bytes > s->reserved_peak_bytes) {
        s->reserved_peak_bytes = s->reserved_bytes;
    }
    if (line->arena->id && !line->arena->released) {
        s->private_reserved_bytes += (uint64_t)bytes;
    }
}

cen_status ceni_pool_refuse(const cen_pool *pool, const char *call) {
    if (!pool) {
        return ceni_fail(CEN_ERR_INVALID, "%s: pool is NULL", call);
    }
    if (pool->device->pid != atomic_load_explicit(&ceni_call_pid, memory_order_relaxed)) {
        return ceni_fail(CEN_ERR_FORKED, "%s: the pool belongs to the parent process", call);
    }
    return CEN_OK;
}

#ifdef CENI_DEBUG
void ceni_pool_check_often(cen_pool *pool) {
    if (++pool->debug_ops % VERIFY_EVERY) {
        return;
    }
    ceni_pool_unpark(pool);
    if (ceni_pool_check(pool)) {
        ceni_log(CEN_LOG_ERROR, "pool: the check after operation %llu failed",
                 (unsigned long long)pool->debug_ops);
    }
}
#endif

void ceni_pool_unpark(cen_pool *pool) {
    ceni_block *b = pool->parked;
    if (b) {
        pool->parked = NULL;
        ceni_block_release(pool, b, b->stream, b->epoch);
    }
}

void ceni_pool_enter(cen_pool *pool) {
    ceni_lock_take(&pool->lock);
    ceni_pool_unpark(pool);
}

/* The block freed last waits, not yet merged, for a request of just its size, for which it is the
 * best fit once more; whatever else comes first merges it. */
static void park(cen_pool *pool, ceni_block *b, ceni_pstream *stream) {
    if (__builtin_expect(pool->dead_pages != 0, false)) { /* it may lie on one */
        ceni_block_release(pool, b, stream, ceni_stream_freeing(pool, stream));
        return;
    }
    ceni_pool_unpark(pool);
    pool->stats.allocated_bytes -= b->size;
    b->kind = CENI_BLOCK_PARKED;
    b->stream = stream;
    b->epoch = ceni_stream_freeing(pool, stream);
    b->requested = 0;
    pool->parked = b;
}

static ceni_block *take_parked(cen_pool *pool, uint64_t size, uint64_t alignment,
                               uint64_t requested, ceni_pstream *stream) {
    ceni_block *b = pool->parked;
    if (!b || b->size != size || b->stream != stream || b->addr & (alignment - 1)) {
        return NULL;
    }
    const ceni_block *left = b->prev, *right = b->next;
    if (ceni_block_fits_with(pool, left, b) && left->kind == CENI_BLOCK_FREE) {
        return NULL;
    }
    bool grows = ceni_block_fits_with(pool, b, right) && right->kind == CENI_BLOCK_FREE;
    uint64_t merged = size + (grows ? right->size : 0);
    const ceni_block *other = ceni_line_best(pool, b->line, size, alignment, stream);
    if (other && other != right && other->size < merged) {
        return NULL;
    }
    pool->parked = NULL;
    b->kind = CENI_BLOCK_LIVE;
    b->requested = requested;
    ceni_pool_count_allocated(pool, size);
    return b;
}

static cen_status alloc_block(cen_pool *pool, uint64_t size, uint64_t alignment, uint64_t requested,
                              ceni_pstream *stream, void **out) {
    ceni_lock_take(&pool->lock);
    if (__builtin_expect(pool->habit != NULL, false)) {
        ceni_pool_habit(pool);
    }
    ceni_arena *route = atomic_load_explicit(&stream->route, memory_order_relaxed);
    ceni_block *block = route ? NULL : take_parked(pool, size, alignment, requested, stream);
    cen_status status = CEN_OK;
    if (!block) {
        status = ceni_pool_obtain(pool, route ? route : &pool->shared, size, alignment, requested,
                                  stream, &block);
    }
    if (!status) {
        ceni_index_set(pool, block->addr, (uintptr_t)block);
        pool->stats.allocs++;
        ceni_pool_count_requested(pool, (int64_t)requested);
        *out = (void *)(uintptr_t)block->addr;
    }
    ceni_pool_check_often(pool);
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status cen_pool_alloc_aligned(cen_pool *pool, size_t bytes, size_t alignment, cen_stream stream,
                                  void **block) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_alloc");
    if (status) {
        return status;
    }
    if (!block || !alignment || alignment & (alignment - 1) || alignment > ALIGNMENT_MAX) {
        return ceni_fail(CEN_ERR_INVALID,
                         !block ? "cen_pool_alloc: block is NULL"
                                : "cen_pool_alloc: alignment %zu is no power of two up to 1 GiB",
                         alignment);
    }
    if (!bytes) {
        *block = NULL;
        return CEN_OK;
    }
    if (bytes > CENI_SIZE_MAX) {
        return ceni_fail(CEN_ERR_DEVICE_MEMORY, "cen_pool_alloc: no device holds %zu bytes", bytes);
    }
    ceni_pstream *s = ceni_stream_get(pool, stream);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_alloc: no memory for a stream");
    }
    uint64_t unit = CEN_POOL_ALIGNMENT;
    if (bytes <= CENI_SLAB_LIMIT && alignment <= unit) {
        status = ceni_slab_alloc(pool, bytes, s, block);
    } else {
        status = alloc_block(pool, ceni_block_bytes(bytes), alignment < unit ? unit : alignment,
                             bytes, s, block);
    }
    if (!status) {
        ceni_note(pool, CENI_EVENT_ALLOC, (uintptr_t)*block, bytes, stream);
    }
    return status;
}

cen_status cen_pool_alloc(cen_pool *pool, size_t bytes, cen_stream stream, void **block) {
    return cen_pool_alloc_aligned(pool, bytes, CEN_POOL_ALIGNMENT, stream, block);
}

cen_status ceni_pool_block_at(cen_pool *pool, const void *ptr, const char *call,
                              ceni_block **block) {
    uintptr_t owner = ceni_index_get(pool, (uintptr_t)ptr);
    ceni_block *b = owner & (CENI_OWNER_SLAB | CENI_OWNER_FREED) ? NULL : (ceni_block *)owner;
    if (b && b->addr == (uintptr_t)ptr && b->kind == CENI_BLOCK_LIVE) {
        *block = b;
        return CEN_OK;
    }
    if (owner == CENI_OWNER_FREED || (b && b->addr == (uintptr_t)ptr)) {
        return ceni_fail(CEN_ERR_DOUBLE_FREE, "%s: %p is free already", call, ptr);
    }
    return ceni_fail(CEN_ERR_FOREIGN_POINTER, "%s: %p is no block of this pool", call, ptr);
}

static cen_status free_block(cen_pool *pool, void *ptr, ceni_pstream *stream, uint64_t *bytes,
                             bool *pending) {
    ceni_block *b;
    cen_status status = ceni_pool_block_at(pool, ptr, "cen_pool_free", &b);
    if (status) {
        return status;
    }
    if (__builtin_expect(b->movable != 0, false)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_pool_free: %p is a movable block: its handle is freed, with "
                         "cen_movable_free",
                         ptr);
    }
    if (!ceni_heap_get(pool, b->line, stream, true)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_free: no memory for a heap");
    }
    uint64_t requested = b->requested;
    ceni_use_drop(&b->uses, stream); /* what it does comes before the reuse in any case */
    if (b->uses) {
        ceni_uses_end(b->uses);
        if ((status = ceni_pending_add(pool, b, NULL, b->uses))) {
            return status;
        }
        b->uses = NULL;
        b->kind = CENI_BLOCK_PENDING;
        b->stream = stream;
        b->epoch = ceni_stream_freeing(pool, stream);
    }
    ceni_index_set(pool, b->addr, CENI_OWNER_FREED);
    pool->stats.frees++;
    ceni_pool_count_requested(pool, -(int64_t)requested);
    *bytes = requested;
    *pending = b->kind == CENI_BLOCK_PENDING;
    if (!*pending) {
        park(pool, b, stream);
    }
    return CEN_OK;
}

cen_status cen_pool_free(cen_pool *pool, void *block, cen_stream stream) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_free");
    if (status || !block) {
        return status;
    }
    ceni_pstream *s = ceni_stream_named(pool, stream);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_free: no memory for a stream");
    }
    ceni_slab *slab = ceni_slab_of(pool, block);
    if (slab) {
        return ceni_slab_free(pool, slab, block, s);
    }
    uint64_t at = ceni_note_time(), bytes = 0;
    bool pending = false;
    ceni_lock_take(&pool->lock);
    status = free_block(pool, block, s, &bytes, &pending);
    if (__builtin_expect(pool->habit != NULL, false)) {
        ceni_pool_habit(pool);
    }
    ceni_pool_check_often(pool);
    ceni_lock_leave(&pool->lock);
    if (!status) {
        ceni_note_free(pool, at, (uintptr_t)block, bytes, stream, pending);
    }
    return status;
}

cen_status cen_pool_use(cen_pool *pool, void *block, cen_stream stream) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_use");
    if (status) {
        return status;
    }
    ceni_pstream *s = ceni_stream_get(pool, stream);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_use: no memory for a stream");
    }
    ceni_slab *slab = ceni_slab_of(pool, block);
    ceni_lock_take(&pool->lock);
    ceni_block *b;
    if (slab) {
        status = ceni_slab_use(pool, slab, block, s);
    } else if (!(status = ceni_pool_block_at(pool, block, "cen_pool_use", &b))) {
        status = b->movable ? CEN_ERR_INVALID : ceni_use_add(&b->uses, s);
        if (status) {
            (void)ceni_fail(status,
                            status == CEN_ERR_INVALID
                                ? "cen_pool_use: %p is a movable block: its unpins say who "
                                  "uses it"
                                : "cen_pool_use: no memory to note a use of %p",
                            block);
        }
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status cen_pool_block_size(cen_pool *pool, const void *block, size_t *bytes) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_block_size");
    if (status || !bytes) {
        return status ? status : ceni_fail(CEN_ERR_INVALID, "cen_pool_block_size: bytes is NULL");
    }
    ceni_slab *slab = ceni_slab_of(pool, block);
    if (slab) {
        return ceni_slab_size(slab, block, bytes);
    }
    ceni_lock_take(&pool->lock);
    ceni_block *b;
    if (!(status = ceni_pool_block_at(pool, block, "cen_pool_block_size", &b))) {
        *bytes = b->requested;
    }
    ceni_lock_leave(&pool->lock);
    return status;
}
