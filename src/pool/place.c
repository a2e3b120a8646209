/* Blocks at given addresses: a graph that replays writes where it wrote when it was captured, so
 * whoever takes a private pool back to an earlier state needs the same blocks again. */
#include "base/log.h"
#include "pool/note.h"
#include "pool/slab.h"

static ceni_arena *arena_of(cen_pool *pool, uint64_t id) {
    ceni_arena *a = id ? pool->shared.next : NULL;
    while (a && (a->id != id || a->released)) {
        a = a->next;
    }
    return a;
}

/* The free block that has all of a range, or NULL. */
static ceni_block *free_around(ceni_arena *arena, uint64_t addr, uint64_t size) {
    for (unsigned i = 0; i < CENI_RANKS; i++) { /* plain segments have no range of their line's */
        ceni_block *b = arena->lines[i].first_block;
        while (b && b->addr + b->size <= addr) {
            b = b->next;
        }
        if (b && b->addr <= addr) {
            bool fits = b->kind == CENI_BLOCK_FREE && b->addr + b->size - addr >= size;
            return fits ? b : NULL;
        }
    }
    return NULL;
}

static cen_status take_block(cen_pool *pool, ceni_arena *arena, uint64_t addr, uint64_t bytes,
                             ceni_pstream *stream) {
    uint64_t size = ceni_block_bytes(bytes);
    ceni_block *b = free_around(arena, addr, size);
    if (!b) {
        return ceni_fail(CEN_ERR_BUSY, "cen_pool_alloc_at: %#llx: %llu bytes there are not free",
                         (unsigned long long)addr, (unsigned long long)bytes);
    }
    if (!ceni_heap_get(pool, b->line, stream, true)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_alloc_at: no memory for a heap");
    }
    cen_status status = ceni_stream_order(pool, stream, b->stream, b->epoch);
    status = status ? status : ceni_block_take(pool, b, addr, size);
    if (status) {
        return ceni_fail(status, "cen_pool_alloc_at: the place cannot be taken");
    }
    b->kind = CENI_BLOCK_LIVE;
    b->stream = stream;
    b->requested = bytes;
    ceni_pool_count_allocated(pool, size);
    ceni_index_set(pool, addr, (uintptr_t)b);
    return CEN_OK;
}

cen_status cen_pool_alloc_at(cen_pool *pool, uint64_t id, void *block, size_t bytes,
                             cen_stream stream) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_alloc_at");
    if (!status && (!bytes || bytes > CENI_SIZE_MAX || (uintptr_t)block % CEN_POOL_ALIGNMENT)) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_pool_alloc_at: %p, %zu bytes: no block's", block,
                           bytes);
    }
    if (status) {
        return status;
    }
    ceni_pstream *s = ceni_stream_get(pool, stream);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_alloc_at: no memory for a stream");
    }
    ceni_pool_enter(pool);
    ceni_arena *arena = arena_of(pool, id);
    ceni_slab *slab = ceni_slab_of(pool, block);
    if (!arena) {
        status = ceni_fail(CEN_ERR_NOT_FOUND, "cen_pool_alloc_at: no private pool %llu",
                           (unsigned long long)id);
    } else if (slab) {
        status = ceni_slab_take_at(slab, arena, block, bytes, s);
    } else {
        status = take_block(pool, arena, (uintptr_t)block, bytes, s);
    }
    if (!status) {
        pool->stats.allocs++;
        ceni_pool_count_requested(pool, (int64_t)bytes);
    }
    ceni_pool_check_often(pool);
    ceni_lock_leave(&pool->lock);
    if (!status) {
        ceni_note(pool, CENI_EVENT_ALLOC, (uintptr_t)block, bytes, stream);
    }
    return status;
}
