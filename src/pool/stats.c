/* Figures, walks, and the calls that manage the pool as a whole. */
#include <string.h>

#include "base/log.h"
#include "pool/lookup.h"

/* Adds what magazines have counted, and takes their share of the requested bytes out of them. */
static int64_t add_shards(const ceni_pstream *s, cen_pool_stats *stats) {
    ceni_shard *shards = atomic_load(&s->shards);
    int64_t delta = 0;
    for (unsigned k = 0; shards && k < CENI_SHARDS; k++) {
        ceni_spin_take(&shards[k].lock);
        stats->allocs += shards[k].allocs;
        stats->frees += shards[k].frees;
        delta += shards[k].requested_delta;
        shards[k].requested_delta = 0;
        ceni_spin_leave(&shards[k].lock);
    }
    return delta;
}

/* The pool's figures and those of its magazines; the lock is held. */
static cen_pool_stats collect(cen_pool *pool) {
    cen_pool_stats s = pool->stats;
    int64_t delta = 0;
    for (unsigned i = 0; i < CENI_STREAM_SLOTS; i++) {
        for (ceni_pstream *at = atomic_load(&pool->streams[i]); at; at = atomic_load(&at->next)) {
            delta += add_shards(at, &s);
        }
    }
    ceni_pool_count_requested(pool, delta); /* here, so that the peak knows what was reported */
    int64_t live = ceni_pool_requested(pool);
    s.requested_bytes = live > 0 ? (uint64_t)live : 0;
    s.requested_peak_bytes = atomic_load(&pool->requested_peak);
    s.blocks = s.allocs - s.frees;
    return s;
}

uint64_t ceni_pool_largest_free(cen_pool *pool) {
    uint64_t largest = 0;
    for (const ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        uint64_t of_line = ceni_arena_open_to_all(l->arena) ? ceni_line_largest(l) : 0;
        largest = of_line > largest ? of_line : largest;
    }
    return largest;
}

cen_status cen_pool_get_stats(cen_pool *pool, cen_pool_stats *out) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_get_stats");
    if (!status && !out) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_pool_get_stats: stats is NULL");
    }
    if (status) {
        return status;
    }
    ceni_pool_enter(pool);
    cen_pool_stats s = collect(pool);
    s.largest_free_bytes = ceni_pool_largest_free(pool);
    for (const ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        for (const ceni_segment *g = l->first_segment; g; g = g->next) {
            s.segments++;
        }
    }
    ceni_lock_leave(&pool->lock);
    *out = s;
    return CEN_OK;
}

cen_status cen_pool_reset_peaks(cen_pool *pool) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_reset_peaks");
    if (status) {
        return status;
    }
    ceni_pool_enter(pool);
    atomic_store(&pool->requested_peak, collect(pool).requested_bytes);
    pool->stats.allocated_peak_bytes = pool->stats.allocated_bytes;
    pool->stats.reserved_peak_bytes = pool->stats.reserved_bytes;
    ceni_lock_leave(&pool->lock);
    return CEN_OK;
}

cen_status cen_pool_last_failure(cen_pool *pool, cen_pool_failure *failure) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_last_failure");
    if (!status && !failure) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_pool_last_failure: failure is NULL");
    }
    if (status) {
        return status;
    }
    ceni_pool_enter(pool);
    status = pool->failed ? CEN_OK : CEN_ERR_NOT_FOUND;
    if (!status) {
        *failure = pool->failure;
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

static cen_pool_block_info info_of(const ceni_block *b) {
    static const cen_pool_block_state states[] = {
        [CENI_BLOCK_FREE] = CEN_POOL_FREE, [CENI_BLOCK_LIVE] = CEN_POOL_LIVE,
        [CENI_BLOCK_SLAB] = CEN_POOL_LIVE, [CENI_BLOCK_PENDING] = CEN_POOL_PENDING,
        [CENI_BLOCK_DEAD] = CEN_POOL_LOST,
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

static bool is_pending(const cen_pool *pool, const ceni_block *b, uint64_t addr) {
    const ceni_pending *p = pool->pending;
    while (p && (p->block != b || (uintptr_t)p->object != addr)) {
        p = p->next;
    }
    return p != NULL;
}

/* The objects of a slab, those in magazines as free ones, and what is left over at its end. */
static bool walk_slab(const cen_pool *pool, const ceni_block *b,
                      bool (*fn)(void *, const cen_pool_block_info *), void *arg) {
    cen_pool_block_info info = info_of(b);
    info.bytes = b->slab->object_bytes;
    for (uint32_t i = 0; i < b->slab->objects; i++, info.addr += info.bytes) {
        info.requested_bytes = atomic_load(&b->slab->requested[i]);
        info.state = info.requested_bytes             ? CEN_POOL_LIVE
                     : is_pending(pool, b, info.addr) ? CEN_POOL_PENDING
                                                      : CEN_POOL_FREE;
        if (!fn(arg, &info)) {
            return false;
        }
    }
    info.bytes = b->addr + b->size - info.addr;
    info.requested_bytes = 0;
    info.state = CEN_POOL_FREE;
    return !info.bytes || fn(arg, &info);
}

static bool walk_line(const cen_pool *pool, const ceni_line *line,
                      bool (*fn)(void *, const cen_pool_block_info *), void *arg) {
    for (const ceni_block *b = line->first_block; b; b = b->next) {
        cen_pool_block_info info = info_of(b);
        if (!(b->slab ? walk_slab(pool, b, fn, arg) : fn(arg, &info))) {
            return false;
        }
    }
    return true;
}

cen_status cen_pool_walk(cen_pool *pool, bool (*fn)(void *arg, const cen_pool_block_info *info),
                         void *arg) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_walk");
    if (!status && !fn) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_pool_walk: fn is NULL");
    }
    if (status) {
        return status;
    }
    ceni_pool_enter(pool);
    bool go = true;
    for (ceni_line *l = ceni_line_next(pool, NULL); l && go; l = ceni_line_next(pool, l)) {
        go = walk_line(pool, l, fn, arg);
    }
    ceni_lock_leave(&pool->lock);
    return CEN_OK;
}

typedef struct list {
    cen_pool_block_info *infos;
    size_t capacity, count;
} list;

static bool list_one(void *arg, const cen_pool_block_info *info) {
    list *l = arg;
    if (l->count < l->capacity) {
        l->infos[l->count] = *info;
    }
    l->count++;
    return true;
}

cen_status cen_pool_list(cen_pool *pool, cen_pool_block_info *infos, size_t capacity,
                         size_t *count) {
    if (!count || (capacity && !infos)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_list: %s is NULL", count ? "infos" : "count");
    }
    list l = {.infos = infos, .capacity = capacity};
    cen_status status = cen_pool_walk(pool, list_one, &l);
    if (!status) {
        *count = l.count;
    }
    return status;
}

cen_status cen_pool_set_limit(cen_pool *pool, uint64_t bytes) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_set_limit");
    if (status) {
        return status;
    }
    ceni_pool_enter(pool);
    pool->limit = bytes ? bytes : UINT64_MAX;
    ceni_lock_leave(&pool->lock);
    return CEN_OK;
}

cen_status cen_pool_preallocate(cen_pool *pool, uint64_t bytes) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_preallocate");
    if (status) {
        return status;
    }
    ceni_pool_enter(pool);
    uint64_t reserved = pool->stats.reserved_bytes;
    if (bytes > pool->device->total_bytes) {
        status = ceni_fail(CEN_ERR_DEVICE_MEMORY,
                           "cen_pool_preallocate: %llu bytes are more than "
                           "the device has",
                           (unsigned long long)bytes);
    } else if (reserved < bytes) { /* nobody used it yet: it is anyone's */
        status = ceni_line_extend(pool, &pool->shared.lines[CENI_LARGE], bytes - reserved, NULL);
        if (status == CEN_ERR_DEVICE_MEMORY) {
            (void)ceni_fail(status, "cen_pool_preallocate: no room for %llu bytes beside %llu",
                            (unsigned long long)(bytes - reserved), (unsigned long long)reserved);
        }
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status cen_pool_trim(cen_pool *pool, uint64_t keep_bytes, bool wait, uint64_t *returned_bytes) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_trim");
    if (status) {
        return status;
    }
    ceni_pool_enter(pool);
    status = pool->capturing ? ceni_fail(CEN_ERR_CAPTURE, "cen_pool_trim: a stream is capturing")
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
    cen_status status = ceni_pool_refuse(pool, "cen_pool_stream_release");
    if (status) {
        return status;
    }
    ceni_pstream *s = ceni_stream_get(pool, stream);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_stream_release: no memory");
    }
    ceni_pool_enter(pool);
    status = pool->capturing
                 ? ceni_fail(CEN_ERR_CAPTURE, "cen_pool_stream_release: a stream is capturing")
                 : CEN_OK;
    if (!status) {
        status = ceni_stream_mark(pool, s);
        atomic_store(&s->retired, !status);
        if (!status) {
            ceni_magazines_retire(pool, s);
        }
        ceni_pool_settle(pool, true);
    }
    ceni_lock_leave(&pool->lock);
    return status;
}
