/* Movable blocks: handles that stand for blocks, and pins.
 *
 * A handle is the number of an entry and the entry's generation, which a free moves on, so that a
 * handle is known to be stale. An unpinned block has no user but those that its uses name: each
 * stream that unpinned it, up to the epoch of then; the stream that it was allocated on, since its
 * memory may be another's before that stream gets there; and the mover, if the block was moved. A
 * move comes after all of them, and leaves the mover's as the only one. A pin comes after the
 * mover's. */
#include "base/log.h"
#include "base/mem.h"
#include "cenote/movable.h"
#include "pool/compact.h"
#include "pool/lookup.h"
#include "pool/note.h"

static cen_movable handle_of(const ceni_movable *m, uint32_t number) {
    return (cen_movable)m->generation << 32 | number;
}

/* What a handle stands for; the lock is held. */
static cen_status find(cen_pool *pool, cen_movable handle, const char *call, ceni_movable **found) {
    uint32_t number = (uint32_t)handle;
    ceni_movable *m = number && number <= pool->movable_count ? &pool->movables[number - 1] : NULL;
    if (!m || !m->block || handle_of(m, number) != handle) {
        return ceni_fail(CEN_ERR_NOT_FOUND,
                         "%s: no movable block has the handle %#llx, or it was "
                         "freed",
                         call, (unsigned long long)handle);
    }
    *found = m;
    return CEN_OK;
}

/* An entry that stands for nothing; 0: no host memory. */
static uint32_t take_entry(cen_pool *pool) {
    uint32_t number = pool->free_movable;
    if (number) {
        pool->free_movable = pool->movables[number - 1].next;
        return number;
    }
    if (pool->movable_count == UINT32_MAX ||
        ceni_grow(&pool->movables, &pool->movable_capacity, pool->movable_count + 1,
                  sizeof *pool->movables)) {
        return 0;
    }
    pool->movables[pool->movable_count++] = (ceni_movable){0};
    return (uint32_t)pool->movable_count;
}

static void give_entry(cen_pool *pool, uint32_t number) {
    ceni_movable *m = &pool->movables[number - 1];
    *m = (ceni_movable){.generation = m->generation + 1, .next = pool->free_movable};
    pool->free_movable = number;
}

void ceni_movables_close(cen_pool *pool) {
    ceni_free(pool->movables);
    pool->movables = NULL;
}

/* Has a use that ends now; the memory for it may be there already. */
static cen_status note_use(cen_pool *pool, ceni_use **uses, ceni_pstream *stream) {
    cen_status status = ceni_use_add(uses, stream);
    if (!status) {
        ceni_use_of(*uses, stream)->epoch = ceni_stream_freeing(pool, stream);
    }
    return status;
}

static cen_status alloc(cen_pool *pool, uint64_t bytes, ceni_pstream *s, cen_movable *handle) {
    if (atomic_load_explicit(&s->route, memory_order_relaxed)) {
        return ceni_fail(CEN_ERR_CAPTURE, "cen_movable_alloc: the stream is in a private pool, "
                                          "whose blocks stay where they are");
    }
    if (bytes > CENI_SIZE_MAX) {
        return ceni_fail(CEN_ERR_DEVICE_MEMORY, "cen_movable_alloc: no device holds %llu bytes",
                         (unsigned long long)bytes);
    }
    ceni_use *uses = NULL;
    ceni_block *block;
    uint32_t number = take_entry(pool);
    cen_status status = number ? ceni_use_add(&uses, s) : CEN_ERR_HOST_MEMORY;
    if (status) {
        (void)ceni_fail(status, "cen_movable_alloc: no memory");
    } else {
        pool->movable_awaited++; /* the lock may be dropped meanwhile */
        status = ceni_pool_obtain(pool, &pool->shared, ceni_block_bytes(bytes), CEN_POOL_ALIGNMENT,
                                  bytes, s, &block);
        pool->movable_awaited--;
    }
    if (status) {
        ceni_uses_free(uses);
        if (number) {
            give_entry(pool, number);
        }
        return status;
    }
    (void)note_use(pool, &uses, s); /* it is there */
    block->uses = uses;
    block->movable = number;
    pool->movables[number - 1].block = block;
    pool->movable_live++;
    ceni_index_set(pool, block->addr, (uintptr_t)block);
    pool->stats.allocs++;
    ceni_pool_count_requested(pool, (int64_t)bytes);
    *handle = handle_of(&pool->movables[number - 1], number);
    ceni_note(pool, CENI_EVENT_ALLOC, block->addr, bytes, s->handle);
    return CEN_OK;
}

/* Looks up the stream and takes the lock; `wrong`: what is with the call's arguments, or NULL. */
static cen_status enter(cen_pool *pool, cen_stream handle, bool named, const char *call,
                        const char *wrong, ceni_pstream **stream) {
    cen_status status = ceni_pool_refuse(pool, call);
    if (!status && wrong) {
        status = ceni_fail(CEN_ERR_INVALID, "%s: %s", call, wrong);
    }
    if (status) {
        return status;
    }
    *stream = named ? ceni_stream_named(pool, handle) : ceni_stream_get(pool, handle);
    if (!*stream) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for a stream", call);
    }
    ceni_lock_take(&pool->lock);
    return CEN_OK;
}

static void leave(cen_pool *pool) {
    ceni_pool_check_often(pool);
    ceni_lock_leave(&pool->lock);
}

cen_status cen_movable_alloc(cen_pool *pool, size_t bytes, cen_stream stream, cen_movable *handle) {
    ceni_pstream *s;
    const char *wrong = !handle ? "handle is NULL" : !bytes ? "bytes is 0" : NULL;
    cen_status status = enter(pool, stream, false, "cen_movable_alloc", wrong, &s);
    if (status) {
        return status;
    }
    if (pool->habit) {
        ceni_pool_habit(pool);
    }
    status = alloc(pool, bytes, s, handle);
    leave(pool);
    return status;
}

/* A graph may run on any stream: behind a move only when the host has seen it complete. */
static cen_status order_behind_move(cen_pool *pool, const ceni_block *block, ceni_pstream *stream) {
    const ceni_use *move = pool->mover ? ceni_use_of(block->uses, pool->mover) : NULL;
    if (!move || ceni_stream_passed(pool->mover, move->epoch)) {
        return CEN_OK;
    }
    if (pool->capturing) {
        return ceni_fail(CEN_ERR_CAPTURE, "cen_movable_pin: a stream captures, and the block's "
                                          "last move is not known to be complete");
    }
    cen_status status = ceni_stream_order(pool, stream, pool->mover, move->epoch);
    return status == CEN_ERR_HOST_MEMORY ? ceni_fail(status, "cen_movable_pin: no memory") : status;
}

cen_status cen_movable_pin(cen_pool *pool, cen_movable handle, cen_stream stream, void **addr) {
    ceni_pstream *s;
    ceni_movable *m;
    cen_status status =
        enter(pool, stream, false, "cen_movable_pin", addr ? NULL : "addr is NULL", &s);
    if (status) {
        return status;
    }
    if (!(status = find(pool, handle, "cen_movable_pin", &m)) && m->pins == UINT32_MAX) {
        status = ceni_fail(CEN_ERR_LIMIT, "cen_movable_pin: pinned %u times already", m->pins);
    }
    if (!status && !(status = order_behind_move(pool, m->block, s))) {
        m->pins++;
        *addr = (void *)(uintptr_t)m->block->addr;
    }
    leave(pool);
    return status;
}

cen_status cen_movable_unpin(cen_pool *pool, cen_movable handle, cen_stream stream) {
    ceni_pstream *s;
    ceni_movable *m;
    cen_status status = enter(pool, stream, true, "cen_movable_unpin", NULL, &s);
    if (status) {
        return status;
    }
    if (!(status = find(pool, handle, "cen_movable_unpin", &m)) && !m->pins) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_movable_unpin: the block is not pinned");
    }
    if (!status) {
        ceni_uses_prune(&m->block->uses);
        if ((status = note_use(pool, &m->block->uses, s))) {
            (void)ceni_fail(status, "cen_movable_unpin: no memory: the block stays pinned");
        } else {
            m->pins--;
        }
    }
    leave(pool);
    return status;
}

/* Reusable at once on `stream`, elsewhere behind it, and nowhere before all uses are complete. */
static cen_status free_block(cen_pool *pool, ceni_block *b, ceni_pstream *stream) {
    if (!ceni_heap_get(pool, b->line, stream, true)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_movable_free: no memory for a heap");
    }
    uint64_t requested = b->requested;
    ceni_uses_prune(&b->uses);
    ceni_use *own = ceni_use_take(&b->uses, stream); /* comes before the reuse in any case */
    cen_status status = b->uses ? ceni_pending_add(pool, b, NULL, b->uses) : CEN_OK;
    if (status) {
        if (own) {
            own->next = b->uses;
            b->uses = own;
        }
        return status;
    }
    ceni_free(own);
    ceni_index_set(pool, b->addr, CENI_OWNER_FREED);
    b->movable = 0;
    b->stream = stream;
    b->epoch = ceni_stream_freeing(pool, stream);
    ceni_note_free(pool, ceni_note_time(), b->addr, requested, stream->handle, b->uses != NULL);
    if (b->uses) {
        b->uses = NULL;
        b->kind = CENI_BLOCK_PENDING;
    } else {
        ceni_block_release(pool, b, stream, b->epoch);
    }
    pool->stats.frees++;
    ceni_pool_count_requested(pool, -(int64_t)requested);
    return CEN_OK;
}

cen_status cen_movable_free(cen_pool *pool, cen_movable handle, cen_stream stream) {
    ceni_pstream *s;
    ceni_movable *m;
    cen_status status = enter(pool, stream, true, "cen_movable_free", NULL, &s);
    if (status) {
        return status;
    }
    if (!(status = find(pool, handle, "cen_movable_free", &m)) && m->pins) {
        status = ceni_fail(CEN_ERR_BUSY, "cen_movable_free: the block is pinned");
    }
    if (!status && !(status = free_block(pool, m->block, s))) {
        give_entry(pool, (uint32_t)handle);
        pool->movable_live--;
        if (pool->habit) {
            ceni_pool_habit(pool);
        }
    }
    leave(pool);
    return status;
}

cen_status cen_movable_move(cen_pool *pool, cen_movable handle) {
    cen_status status = ceni_pool_refuse(pool, "cen_movable_move");
    if (status) {
        return status;
    }
    ceni_movable *m;
    ceni_pool_enter(pool);
    if (!(status = find(pool, handle, "cen_movable_move", &m)) && m->pins) {
        status = ceni_fail(CEN_ERR_BUSY, "cen_movable_move: the block is pinned");
    } else if (!status && pool->capturing) {
        status = ceni_fail(CEN_ERR_CAPTURE, "cen_movable_move: a stream captures");
    } else if (!status && ceni_block_is_lost(pool, m->block)) {
        status = ceni_fail(CEN_ERR_DEVICE_LOST, "cen_movable_move: the block was on a lost device");
    } else if (!status &&
               (status = ceni_block_move_away(pool, m->block)) == CEN_ERR_DEVICE_MEMORY) {
        (void)ceni_fail(status, "cen_movable_move: no other page has a hole of %llu bytes",
                        (unsigned long long)m->block->size);
    }
    leave(pool);
    return status;
}

cen_status cen_movable_size(cen_pool *pool, cen_movable handle, size_t *bytes) {
    cen_status status = ceni_pool_refuse(pool, "cen_movable_size");
    if (!status && !bytes) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_movable_size: bytes is NULL");
    }
    if (status) {
        return status;
    }
    ceni_movable *m;
    ceni_lock_take(&pool->lock);
    if (!(status = find(pool, handle, "cen_movable_size", &m))) {
        *bytes = m->block->requested;
    }
    ceni_lock_leave(&pool->lock);
    return status;
}
