/* Figures, walks, and the calls that manage the pool as a whole. */
#include <string.h>

#include "base/log.h"
#include "pool/lookup.h"

static void add_shards(cen_pool *pool, const ceni_pstream *s, cen_pool_stats *stats,
                       int64_t *delta) {
    ceni_shard *shards = atomic_load(&s->shards);
    for (unsigned k = 0; shards && k < CENI_SHARDS; k++) {
        ceni_spin_take(&shards[k].lock);
        stats->allocs += shards[k].allocs;
        stats->frees += shards[k].frees;
        *delta += shards[k].requested_delta;
        ceni_spin_leave(&shards[k].lock);
    }
}

static uint64_t largest_free(const ceni_line *line) {
    uint64_t largest = 0;
    for (const ceni_block *b = line->first_block; b; b = b->next) {
        if (b->kind == CENI_BLOCK_FREE && b->size > largest) {
            largest = b->size;
        }
    }
    return largest;
}

cen_status cen_pool_get_stats(cen_pool *pool, cen_pool_stats *out) {
    if (!pool || !out) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_get_stats: %s is NULL",
                         pool ? "stats" : "pool");
    }
    int64_t delta = 0;
    ceni_lock_take(&pool->lock);
    cen_pool_stats s = pool->stats;
    for (unsigned i = 0; i < CENI_STREAM_SLOTS; i++) {
        for (ceni_pstream *at = atomic_load(&pool->streams[i]); at; at = atomic_load(&at->next)) {
            add_shards(pool, at, &s, &delta);
        }
    }
    int64_t live = ceni_pool_requested(pool) + delta;
    s.requested_bytes = live > 0 ? (uint64_t)live : 0;
    s.requested_peak_bytes = atomic_load(&pool->requested_peak);
    if (s.requested_bytes > s.requested_peak_bytes) {
        s.requested_peak_bytes = s.requested_bytes;
    }
    s.blocks = s.allocs - s.frees;
    s.largest_free_bytes = largest_free(&pool->shared.large);
    for (const ceni_pool_page *p = pool->pages; p; p = p->next) {
        for (const ceni_segment *g = p->mappings; g; g = g->same_page) {
            s.segments++;
        }
    }
    ceni_lock_leave(&pool->lock);
    *out = s;
    return CEN_OK;
}

cen_status cen_pool_reset_peaks(cen_pool *pool) {
    if (!pool) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_reset_peaks: pool is NULL");
    }
    ceni_lock_take(&pool->lock);
    int64_t live = ceni_pool_requested(pool);
    atomic_store(&pool->requested_peak, live > 0 ? (uint64_t)live : 0);
    pool->stats.allocated_peak_bytes = pool->stats.allocated_bytes;
    pool->stats.reserved_peak_bytes = pool->stats.reserved_bytes;
    ceni_lock_leave(&pool->lock);
    return CEN_OK;
}

cen_status cen_pool_last_failure(cen_pool *pool, cen_pool_failure *failure) {
    if (!pool || !failure) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_last_failure: %s is NULL",
                         pool ? "failure" : "pool");
    }
    ceni_lock_take(&pool->lock);
    cen_status status = pool->failed ? CEN_OK : CEN_ERR_NOT_FOUND;
    if (!status) {
        *failure = pool->failure;
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

static cen_pool_block_info info_of(const ceni_block *b) {
    static const cen_pool_block_state states[] = {
        [CENI_BLOCK_FREE] = CEN_POOL_FREE,
        [CENI_BLOCK_LIVE] = CEN_POOL_LIVE,
        [CENI_BLOCK_SLAB] = CEN_POOL_LIVE,
        [CENI_BLOCK_PENDING] = CEN_POOL_PENDING,
    };
    return (cen_pool_block_info){
        .addr = b->addr,
        .bytes = b->size,
        .requested_bytes = b->requested,
        .stream = b->stream ? b->stream->handle : 0,
        .private_id = b->line->arena->released ? 0 : b->line->arena->id,
        .state = states[b->kind],
    };
}

/* The objects of a slab, those in magazines as free ones. */
static bool walk_slab(const ceni_block *b, bool (*fn)(void *, const cen_pool_block_info *),
                      void *arg) {
    cen_pool_block_info info = info_of(b);
    info.bytes = b->slab->object_bytes;
    for (uint32_t i = 0; i < b->slab->objects; i++, info.addr += info.bytes) {
        info.requested_bytes = atomic_load(&b->slab->requested[i]);
        info.state = info.requested_bytes ? CEN_POOL_LIVE : CEN_POOL_FREE;
        if (!fn(arg, &info)) {
            return false;
        }
    }
    return true;
}

static bool walk_line(const ceni_line *line, bool (*fn)(void *, const cen_pool_block_info *),
                      void *arg) {
    for (const ceni_block *b = line->first_block; b; b = b->next) {
        cen_pool_block_info info = info_of(b);
        if (!(b->slab ? walk_slab(b, fn, arg) : fn(arg, &info))) {
            return false;
        }
    }
    return true;
}

cen_status cen_pool_walk(cen_pool *pool, bool (*fn)(void *arg, const cen_pool_block_info *info),
                         void *arg) {
    if (!pool || !fn) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_walk: %s is NULL", pool ? "fn" : "pool");
    }
    ceni_lock_take(&pool->lock);
    bool go = walk_line(&pool->shared.small, fn, arg) && walk_line(&pool->shared.large, fn, arg);
    for (const ceni_arena *a = pool->arenas; a && go; a = a->next) {
        go = walk_line(&a->small, fn, arg) && walk_line(&a->large, fn, arg);
    }
    ceni_lock_leave(&pool->lock);
    return CEN_OK;
}

cen_status cen_pool_set_limit(cen_pool *pool, uint64_t bytes) {
    if (!pool) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_set_limit: pool is NULL");
    }
    ceni_lock_take(&pool->lock);
    pool->limit = bytes ? bytes : UINT64_MAX;
    ceni_lock_leave(&pool->lock);
    return CEN_OK;
}

cen_status cen_pool_preallocate(cen_pool *pool, uint64_t bytes) {
    if (!pool) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_preallocate: pool is NULL");
    }
    cen_status status = CEN_OK;
    ceni_pstream *s = ceni_stream_get(pool, 0);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_preallocate: no memory");
    }
    ceni_lock_take(&pool->lock);
    if (pool->stats.reserved_bytes < bytes) {
        status = ceni_line_extend(pool, &pool->shared.large, bytes - pool->stats.reserved_bytes, s);
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status cen_pool_trim(cen_pool *pool, uint64_t keep_bytes, bool wait, uint64_t *returned_bytes) {
    if (!pool) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_trim: pool is NULL");
    }
    ceni_lock_take(&pool->lock);
    cen_status status = pool->capturing
                            ? ceni_fail(CEN_ERR_CAPTURE, "cen_pool_trim: a stream is capturing")
                            : CEN_OK;
    uint64_t returned = 0;
    if (!status) {
        ceni_magazines_flush(pool);
        ceni_pool_settle(pool, true);
        status = wait ? ceni_pool_drain(pool) : CEN_OK;
        returned = ceni_pool_release_idle(pool, keep_bytes);
    }
    ceni_lock_leave(&pool->lock);
    if (!status && returned_bytes) {
        *returned_bytes = returned;
    }
    return status;
}

cen_status cen_pool_stream_release(cen_pool *pool, cen_stream stream) {
    if (!pool) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_stream_release: pool is NULL");
    }
    ceni_pstream *s = ceni_stream_get(pool, stream);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_stream_release: no memory");
    }
    ceni_lock_take(&pool->lock);
    cen_status status =
        pool->capturing
            ? ceni_fail(CEN_ERR_CAPTURE, "cen_pool_stream_release: a stream is capturing")
            : CEN_OK;
    if (!status) {
        ceni_magazines_flush(pool);
        status = ceni_stream_mark(pool, s);
        ceni_pool_settle(pool, true);
    }
    ceni_lock_leave(&pool->lock);
    return status;
}
