/* Moving blocks. The mover, a stream of the pool's own, waits for the last uses of the block and of
 * the place it goes to, copies, and is from then on the stream that both places are ordered behind:
 * the old one is free for its work, the new one has it as its only use. No host waits.
 *
 * All that can fail comes before anything changes. A copy that was submitted before another failed
 * has written to a place that is given back: it is free for the mover's work then. */
#include "pool/compact.h"

#include "base/mem.h"
#include "pool/lookup.h"
#include "pool/note.h"

cen_status ceni_mover_open(cen_pool *pool) {
    if (pool->mover) {
        return CEN_OK;
    }
    cen_stream handle;
    cen_status status = cen_stream_create(pool->device, 0, &handle);
    if (status) {
        return status;
    }
    if (!(pool->mover = ceni_stream_enter(pool, handle))) {
        (void)cen_stream_destroy(pool->device, handle);
        return CEN_ERR_HOST_MEMORY;
    }
    return CEN_OK;
}

ceni_block *ceni_move_take(cen_pool *pool, ceni_block *hole, uint64_t addr, uint64_t size) {
    (void)ceni_block_take(pool, hole, addr, size); /* spare blocks are ready */
    hole->kind = CENI_BLOCK_PARKED;
    return hole;
}

void ceni_round_forget(ceni_round *round) {
    cen_pool *pool = round->pool;
    while (round->move_count) {
        ceni_block *to = round->moves[--round->move_count].to;
        if (!to) {
            continue;
        }
        for (ceni_place *p = ceni_place_next(round, to, NULL); p;
             p = ceni_place_next(round, to, p)) {
            p->role = p->role == CENI_FILLS ? CENI_IDLE : p->role;
        }
        ceni_block_release(pool, to, to->stream, to->epoch);
    }
    round->taken = round->filled = 0;
}

/* All that one move needs: its streams in order, and memory for what will be noted. */
static cen_status prepare(cen_pool *pool, const ceni_move *m) {
    cen_status status = ceni_use_add(&m->from->uses, pool->mover); /* its epoch follows */
    if (!status && (!ceni_heap_get(pool, m->from->line, pool->mover, true) ||
                    !ceni_heap_get(pool, m->to->line, pool->mover, true))) {
        status = CEN_ERR_HOST_MEMORY;
    }
    for (const ceni_use *u = m->from->uses; u && !status; u = u->next) {
        status = ceni_stream_order(pool, pool->mover, u->stream, u->epoch);
    }
    return status ? status : ceni_stream_order(pool, pool->mover, m->to->stream, m->to->epoch);
}

/* From `addr` on, how far memory is of one home. */
static uint64_t reach(const ceni_round *round, uint64_t addr, uint64_t size) {
    size_t i = ceni_place_of(round, addr);
    const ceni_pool_page *first = round->places[i].segment->page;
    while (i < round->place_count && round->places[i].segment->addr < addr + size) {
        const ceni_segment *s = round->places[i++].segment;
        if (!ceni_home_is(&s->page->home, &first->home)) {
            return s->addr - addr;
        }
    }
    return size;
}

/* One copy for each stretch of one device's memory. */
static cen_status copy(const ceni_round *round, uint64_t to, uint64_t from, uint64_t size) {
    const cen_pool *pool = round->pool;
    cen_status status = CEN_OK;
    while (size && !status) {
        uint64_t part = size;
        if (pool->stats.borrowed_bytes) {
            uint64_t at_source = reach(round, from, size), at_target = reach(round, to, size);
            part = at_source < at_target ? at_source : at_target;
        }
        status = cen_copy_async(pool->device, to, from, part, pool->mover->handle);
        to += part;
        from += part;
        size -= part;
    }
    return status;
}

/* Neighbours that stay neighbours are copied as one. */
static cen_status copy_all(const ceni_round *round) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < round->move_count && !status;) {
        const ceni_move *first = &round->moves[i];
        uint64_t size = 0;
        while (i < round->move_count && round->moves[i].from->addr == first->from->addr + size &&
               round->moves[i].to->addr == first->to->addr + size) {
            size += round->moves[i++].from->size;
        }
        status = copy(round, first->to->addr, first->from->addr, size);
    }
    return status;
}

/* The block is now what was taken for it; its old place is free. */
static void commit(cen_pool *pool, const ceni_move *m, uint64_t epoch) {
    ceni_block *from = m->from, *to = m->to;
    ceni_use *use = ceni_use_take(&from->uses, pool->mover);
    ceni_uses_free(from->uses);
    from->uses = NULL;
    use->epoch = epoch;
    to->uses = use;
    to->kind = CENI_BLOCK_LIVE;
    to->stream = from->stream;
    to->requested = from->requested;
    to->movable = from->movable;
    pool->movables[to->movable - 1].block = to;
    ceni_index_set(pool, from->addr, CENI_OWNER_FREED);
    ceni_index_set(pool, to->addr, (uintptr_t)to);
    ceni_note(pool, CENI_EVENT_MOVE, from->addr, from->requested, from->stream->handle);
    ceni_note(pool, CENI_EVENT_ALLOC, to->addr, to->requested, to->stream->handle);
    ceni_block_release(pool, from, pool->mover, epoch);
    ceni_pool_count_allocated(pool, to->size);
}

cen_status ceni_round_move(ceni_round *round) {
    cen_pool *pool = round->pool;
    cen_status status = CEN_OK;
    for (size_t i = 0; i < round->move_count && !status; i++) {
        status = prepare(pool, &round->moves[i]);
    }
    if (status) {
        ceni_round_forget(round);
        return status;
    }
    uint64_t epoch = ceni_stream_freeing(pool, pool->mover);
    if ((status = copy_all(round))) {
        for (size_t i = 0; i < round->move_count; i++) {
            round->moves[i].to->stream = pool->mover;
            round->moves[i].to->epoch = epoch;
        }
        ceni_round_forget(round);
        return status;
    }
    for (size_t i = 0; i < round->move_count; i++) {
        round->moved_bytes += round->moves[i].to->size;
        commit(pool, &round->moves[i], epoch);
    }
    round->moved_blocks += round->move_count;
    round->move_count = 0;
    round->taken = round->filled = 0;
    return CEN_OK;
}
