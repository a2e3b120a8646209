/* Where a block comes from: the best free block that fits, else one rung after the other of a
 * ladder, from what costs nothing to what waits for the device, each followed by another search. */
#include "base/log.h"
#include "pool/note.h"
#include "pool/page.h"
#include "pool/slab.h"

#define QUERIES_AN_ALLOC 16 /* events looked at for pending frees, on the average */
#define SETTLE_EVERY     64 /* allocations, where several streams free blocks */

typedef struct request {
    ceni_arena *arena;
    ceni_line *line;
    uint64_t size, alignment;
    ceni_pstream *stream;
    const unsigned *slab_class; /* it is for a slab; NULL: it is not */
    cen_status status;          /* why the last rung that called the driver failed */
} request;

/* Whether rungs brought back an object of a slab that there is: no other slab is needed. */
static bool came_back(const request *r) {
    return r->slab_class && ceni_slab_listed(r->arena, *r->slab_class, r->stream);
}

static uint64_t need_of(const request *r) {
    return r->alignment > CEN_POOL_ALIGNMENT ? r->size + r->alignment : r->size;
}

enum ceni_rank ceni_rank_of(uint64_t size) {
    return size < CENI_SMALL_LIMIT    ? CENI_SMALL
           : size < CENI_MEDIUM_LIMIT ? CENI_MEDIUM
                                      : CENI_LARGE;
}

static ceni_line *line_of(ceni_arena *arena, uint64_t size) {
    return &arena->lines[ceni_rank_of(size)];
}

/* The best fit of the stream's free blocks and anyone's; of two equals, that of the younger heap.
 */
ceni_block *ceni_line_best(cen_pool *pool, ceni_line *line, uint64_t size, uint64_t alignment,
                           ceni_pstream *stream) {
    ceni_heap *anyones = ceni_heap_get(pool, line, NULL, false);
    ceni_heap *own = ceni_heap_get(pool, line, stream, false);
    ceni_block *a = ceni_heap_find(anyones, size, alignment);
    ceni_block *b = ceni_heap_find(own, size, alignment);
    if (!a || !b) {
        return a ? a : b;
    }
    if (a->size == b->size) {
        return anyones->number > own->number ? a : b;
    }
    return a->size < b->size ? a : b;
}

static ceni_block *search(cen_pool *pool, const request *r) {
    return ceni_line_best(pool, r->line, r->size, r->alignment, r->stream);
}

/* Events that have completed make blocks anyone's. */
static void settle(cen_pool *pool, request *r) {
    pool->since_settled = 0;
    if (pool->stream_count > 1 || pool->pending) {
        ceni_pool_settle(pool, true);
    }
}

static void gather(cen_pool *pool, request *r) {
    (void)ceni_line_gather(pool, r->line, need_of(r), r->stream);
}

static void reactivate(cen_pool *pool, request *r) {
    (void)ceni_line_reactivate(pool, r->line, need_of(r), r->stream);
}

/* A hole among the blocks of the other rank, medium or large: before growing, but after all that
 * keeps them apart. */
static void neighbour(cen_pool *pool, request *r) {
    ceni_line *own = r->line;
    if (own->rank == CENI_SMALL || own->arena->id) {
        return;
    }
    r->line = &own->arena->lines[own->rank == CENI_LARGE ? CENI_MEDIUM : CENI_LARGE];
    if (!search(pool, r)) {
        r->line = own;
    }
}

static void grow(cen_pool *pool, request *r) {
    r->status = ceni_line_grow(pool, r->line, need_of(r), r->stream, false);
}

/* What magazines hold can make whole slabs free; what streams still use can be waited for. */
static void drain(cen_pool *pool, request *r) {
    pool->freed++; /* before failing, all is looked at again */
    ceni_magazines_flush(pool);
    if (ceni_pool_drain(pool) == CEN_OK) {
        gather(pool, r);
        reactivate(pool, r);
    }
}

static void grow_exactly(cen_pool *pool, request *r) {
    r->status = ceni_line_grow(pool, r->line, need_of(r), r->stream, true);
}

static void trim_and_grow(cen_pool *pool, request *r) {
    if (ceni_pool_release_idle(pool, 0)) {
        grow_exactly(pool, r);
    }
}

/* Movable blocks make way; the pages they leave are mapped behind them in stream order. */
static void compact(cen_pool *pool, request *r) {
    if (ceni_pool_compact(pool)) {
        grow_exactly(pool, r);
    }
}

/* A hole among blocks of the other sizes, or in a released private pool. */
static void elsewhere(cen_pool *pool, request *r) {
    ceni_line *own = r->line;
    if (r->arena->id) {
        return;
    }
    for (ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        r->line = l;
        if (ceni_arena_open_to_all(l->arena)) {
            gather(pool, r);
            if (search(pool, r)) {
                return;
            }
        }
    }
    r->line = own;
}

static void (*const rungs[])(cen_pool *, request *) = {
    settle, gather,       reactivate, neighbour, grow,
    drain,  grow_exactly, elsewhere,  compact,   trim_and_grow,
};

static uint64_t free_bytes(const cen_pool *pool, const ceni_arena *arena, const ceni_pstream *only,
                           bool others) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < CENI_RANKS; i++) {
        for (const ceni_heap *h = arena->lines[i].heaps; h; h = h->next) {
            if (!others || (h->stream && h->stream != only)) {
                sum += h->free_bytes;
            }
        }
    }
    return sum;
}

static uint64_t largest_free(const request *r) {
    uint64_t largest = 0;
    for (const ceni_block *b = r->line->first_block; b; b = b->next) {
        if (b->kind == CENI_BLOCK_FREE && (!b->stream || b->stream == r->stream) &&
            b->size > largest) {
            largest = b->size;
        }
    }
    return largest;
}

static void describe_failure(cen_pool *pool, const request *r, uint64_t requested) {
    cen_pool_failure *f = &pool->failure;
    uint64_t total;
    *f = (cen_pool_failure){
        .requested_bytes = requested,
        .stream = r->stream->handle,
        .live_bytes = (uint64_t)ceni_pool_requested(pool),
        .reserved_bytes = pool->stats.reserved_bytes,
        .limit_bytes = pool->limit,
        .largest_free_bytes = largest_free(r),
        .stranded_stream_bytes = free_bytes(pool, &pool->shared, r->stream, true),
        .pending_bytes = pool->stats.pending_bytes,
    };
    for (const ceni_arena *a = pool->shared.next; a; a = a->next) {
        f->stranded_private_bytes += a->released ? 0 : free_bytes(pool, a, NULL, false);
    }
    if (cen_device_mem_info(pool->device, &f->device_free_bytes, &total)) {
        f->device_free_bytes = 0;
    }
    pool->failed = true;
    pool->stats.failures++;
}

static void log_failure(const cen_pool *pool, cen_status why) {
    const cen_pool_failure *f = &pool->failure;
    ceni_log(CEN_LOG_ERROR,
             "pool: no room for %.2f MiB: %.2f live + %.2f requested, %.2f reserved, largest free "
             "%.2f, stranded by streams %.2f, in private pools %.2f, pending %.2f, device free "
             "%.2f, limit %.2f MiB%s%s",
             CENI_MIB(f->requested_bytes), CENI_MIB(f->live_bytes), CENI_MIB(f->requested_bytes),
             CENI_MIB(f->reserved_bytes), CENI_MIB(f->largest_free_bytes),
             CENI_MIB(f->stranded_stream_bytes), CENI_MIB(f->stranded_private_bytes),
             CENI_MIB(f->pending_bytes), CENI_MIB(f->device_free_bytes),
             f->limit_bytes == UINT64_MAX ? CENI_MIB(pool->device->total_bytes)
                                          : CENI_MIB(f->limit_bytes),
             f->limit_bytes == UINT64_MAX ? " (none of its own: what the device shows in all)" : "",
             why == CEN_ERR_CAPTURE ? "; no plain segment can be made while a stream is capturing"
                                    : "");
}

static ceni_block *climb(cen_pool *pool, request *r) {
    ceni_pool_unpark(pool);
    if (r->size > pool->device->total_bytes) {
        return NULL; /* nothing that could be done would help */
    }
    ceni_block *found = search(pool, r);
    for (size_t i = 0; !found && !came_back(r) && i < sizeof rungs / sizeof *rungs; i++) {
        rungs[i](pool, r);
        found = search(pool, r);
        if (!found && (r->status == CEN_ERR_DEVICE_LOST || r->status == CEN_ERR_FORKED)) {
            return NULL;
        }
    }
    return found;
}

/* What can be made of the device's own memory, of `lack` bytes that are more than that. */
static uint64_t own_part(cen_pool *pool, uint64_t lack) {
    uint64_t free_bytes, allowed = ceni_pool_allowed(pool);
    if (ceni_dev_obtainable(pool->device, &free_bytes)) {
        return 0;
    }
    free_bytes = (free_bytes < allowed ? free_bytes : allowed) / pool->granularity;
    return free_bytes * pool->granularity < lack ? free_bytes * pool->granularity : 0;
}

/* What lies beyond the device, if the pool is part of a global one: first its own memory that
 * others have borrowed, then memory of others. The lock is dropped while the neighbours are asked.
 * A graph's memory would stay borrowed until the graph is gone, so it is not. */
static ceni_block *ask_neighbours(cen_pool *pool, request *r) {
    const ceni_lenders *lenders = pool->lenders;
    if (!lenders || r->arena->id) {
        return NULL;
    }
    /* More of its own would not help a pool that is at its limit. */
    bool own = r->size <= pool->device->total_bytes && ceni_pool_allowed(pool) >= pool->granularity;
    ceni_block *found = NULL;
    if (own) {
        ceni_lock_leave(&pool->lock);
        bool more = lenders->reclaim(lenders->arg, need_of(r));
        ceni_lock_take(&pool->lock);
        found = more ? climb(pool, r) : NULL;
    }
    for (unsigned attempt = 0; !found;) {
        ceni_home home;
        ceni_pool_unpark(pool);
        uint64_t lack = ceni_line_lack(pool, r->line, need_of(r), r->stream);
        uint64_t part = own_part(pool, lack);
        ceni_lock_leave(&pool->lock);
        bool more = lenders->lender(lenders->arg, lack - part, &attempt, &home);
        ceni_lock_take(&pool->lock);
        ceni_pool_unpark(pool);
        if (!more) {
            return NULL;
        }
        if (part) {
            (void)ceni_line_extend(pool, r->line, part, r->stream);
        }
        (void)ceni_line_borrow(pool, r->line, need_of(r), r->stream, &home);
        found = search(pool, r);
    }
    return found;
}

/* Asks the user to free something; the lock is dropped meanwhile. */
static bool ask(cen_pool *pool) {
    if (!pool->options.retry) {
        return false;
    }
    cen_pool_failure failure = pool->failure;
    ceni_lock_leave(&pool->lock);
    bool again = pool->options.retry(pool->options.retry_arg, &failure);
    ceni_lock_take(&pool->lock);
    pool->stats.retries += again;
    return again;
}

/* By the ladder, by neighbours, and by the user; NULL, and what failed is described, unless an
 * object came back. */
static ceni_block *find(cen_pool *pool, request *r, uint64_t requested) {
    ceni_block *found = climb(pool, r);
    if (!found && !came_back(r) && r->status != CEN_ERR_DEVICE_LOST) {
        r->line = line_of(r->arena, r->size);
        found = ask_neighbours(pool, r);
    }
    if (!found && !came_back(r)) {
        describe_failure(pool, r, requested);
        r->line = line_of(r->arena, r->size);
        if (r->status != CEN_ERR_DEVICE_LOST && ask(pool)) {
            found = climb(pool, r);
        }
    }
    return found;
}

static cen_status obtain(cen_pool *pool, request r, uint64_t requested, ceni_block **block) {
    if (pool->lost) {
        return ceni_fail(CEN_ERR_DEVICE_LOST, "pool: its device is lost");
    }
    if (pool->freeing_streams > 1 && ++pool->since_settled >= SETTLE_EVERY) {
        settle(pool, &r);
    } else if (pool->pending && (pool->since_polled += QUERIES_AN_ALLOC) >= pool->marks) {
        pool->since_polled = 0;
        ceni_pool_poll(pool);
    }
    r.arena->serving++; /* the callback may end the capture and release the arena */
    ceni_block *found = find(pool, &r, requested);
    r.arena->serving--;
    if (!found && came_back(&r)) {
        *block = NULL;
        return CEN_OK;
    }
    if (!found) {
        ceni_note(pool, CENI_EVENT_OOM, pool->failure.device_free_bytes, requested,
                  r.stream->handle);
        log_failure(pool, r.status);
        return r.status ? r.status : CEN_ERR_DEVICE_MEMORY;
    }
    if (!ceni_heap_get(pool, found->line, r.stream, true)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "pool: no memory for a heap");
    }
    uint64_t addr = (found->addr + r.alignment - 1) & ~(r.alignment - 1);
    cen_status status = ceni_block_take(pool, found, addr, r.size);
    if (status) {
        return ceni_fail(status, "pool: no memory for a block");
    }
    found->kind = CENI_BLOCK_LIVE;
    found->stream = r.stream;
    found->requested = requested;
    ceni_pool_count_allocated(pool, r.size);
    *block = found;
    return CEN_OK;
}

cen_status ceni_pool_obtain(cen_pool *pool, ceni_arena *arena, uint64_t size, uint64_t alignment,
                            uint64_t requested, ceni_pstream *stream, ceni_block **block) {
    request r = {arena, line_of(arena, size), size, alignment, stream, NULL, CEN_OK};
    return obtain(pool, r, requested, block);
}

cen_status ceni_pool_obtain_slab(cen_pool *pool, ceni_arena *arena, uint64_t size,
                                 uint64_t alignment, unsigned class_index, uint64_t requested,
                                 ceni_pstream *stream, ceni_block **block) {
    request r = {arena, line_of(arena, size), size, alignment, stream, &class_index, CEN_OK};
    return obtain(pool, r, requested, block);
}
