/* The pool's invariants, checked one by one. Each check logs the first violation it finds. */
#include "base/log.h"
#include "pool/lookup.h"

#define BAD(...) ceni_fail(CEN_ERR_CORRUPT, "pool: " __VA_ARGS__)
#define HEX(x)   ((unsigned long long)(x))

/* Blocks ascend, do not overlap, and what touches and may merge has merged. */
static cen_status check_blocks(const cen_pool *pool, const ceni_line *line, uint64_t *allocated,
                               uint64_t *free_bytes) {
    const ceni_block *before = NULL;
    for (const ceni_block *b = line->first_block; b; before = b, b = b->next) {
        if (b->prev != before || b->line != line || !b->size) {
            return BAD("block %#llx is linked wrongly", HEX(b->addr));
        }
        if (before && before->addr + before->size > b->addr) {
            return BAD("blocks %#llx and %#llx overlap", HEX(before->addr), HEX(b->addr));
        }
        if (before && ceni_block_may_merge(pool, before, b)) {
            return BAD("free blocks %#llx and %#llx are not merged", HEX(before->addr),
                       HEX(b->addr));
        }
        if ((b->kind == CENI_BLOCK_FREE) != (b->heap != NULL)) {
            return BAD("block %#llx: free and in a heap disagree", HEX(b->addr));
        }
        if (b->heap && (b->heap->line != line || b->heap->stream != b->stream)) {
            return BAD("block %#llx is in another's heap", HEX(b->addr));
        }
        if (b->kind == CENI_BLOCK_PARKED) {
            return BAD("block %#llx is neither live nor free", HEX(b->addr));
        }
        uintptr_t owner = ceni_index_get(pool, b->addr);
        if (b->kind == CENI_BLOCK_LIVE && owner != (uintptr_t)b) {
            return BAD("block %#llx is not in the index", HEX(b->addr));
        }
        if (b->kind == CENI_BLOCK_SLAB && owner != ((uintptr_t)b->slab | CENI_OWNER_SLAB)) {
            return BAD("slab %#llx is not in the index", HEX(b->addr));
        }
        if (b->kind != CENI_BLOCK_DEAD) {
            *(b->kind == CENI_BLOCK_FREE ? free_bytes : allocated) += b->size;
        }
    }
    return before == line->last_block ? CEN_OK : BAD("a line's last block is not its last");
}

static cen_status check_heaps(const ceni_line *line, uint64_t free_bytes) {
    uint64_t sum = 0;
    for (const ceni_heap *h = line->heaps; h; h = h->next) {
        uint64_t in_heap = 0;
        const ceni_heap *noted = !h->stream        ? line->anyones
                                 : line->arena->id ? h
                                                   : h->stream->heaps[line->rank];
        if (h->line != line || noted != h) {
            return BAD("a heap is not the one that its stream and line note");
        }
        for (unsigned bin = 0; bin < CENI_BINS; bin++) {
            bool marked = h->map[bin / 64] >> bin % 64 & 1;
            bool noted_word = h->words >> bin / 64 & 1;
            if (marked != (h->bins[bin] != NULL) || noted_word != (h->map[bin / 64] != 0)) {
                return BAD("bin %u: its bits and its list disagree", bin);
            }
            for (const ceni_block *b = h->bins[bin]; b; b = b->bin_next) {
                if (b->heap != h || b->kind != CENI_BLOCK_FREE ||
                    b->size / CEN_POOL_ALIGNMENT > h->most[bin] ||
                    (b->bin_next && b->bin_next->bin_prev != b)) {
                    return BAD("bin %u: block %#llx does not belong", bin, HEX(b->addr));
                }
                in_heap += b->size;
            }
        }
        if (in_heap != h->free_bytes) {
            return BAD("a heap counts %llu bytes and has %llu", HEX(h->free_bytes), HEX(in_heap));
        }
        sum += in_heap;
    }
    return sum == free_bytes ? CEN_OK
                             : BAD("heaps hold %llu of %llu free bytes", HEX(sum), HEX(free_bytes));
}

/* Active segments are tiled by blocks, and blocks lie in nothing else. */
static cen_status check_segments(const ceni_line *line) {
    const ceni_block *b = line->first_block;
    uint64_t reserved = 0;
    for (const ceni_segment *s = line->first_segment; s; s = s->next) {
        uint64_t end = s->addr + s->size;
        if (s->line != line || (s->next && (s->next->prev != s || end > s->next->addr))) {
            return BAD("segment %#llx is linked wrongly or overlaps", HEX(s->addr));
        }
        if (!s->active) {
            if (b && b->addr < end && b->addr + b->size > s->addr) {
                return BAD("block %#llx lies in an inactive segment", HEX(b->addr));
            }
            continue;
        }
        reserved += s->size;
        uint64_t reach = b ? b->addr : end;
        if (reach > s->addr) {
            return BAD("segment %#llx begins without a block", HEX(s->addr));
        }
        while (b && b->addr + b->size <= end) {
            if (b->addr > s->addr && b->prev && b->prev->addr + b->prev->size != b->addr) {
                return BAD("segment %#llx has a hole before %#llx", HEX(s->addr), HEX(b->addr));
            }
            reach = b->addr + b->size;
            b = b->next;
        }
        if (reach < end && (!b || b->addr > reach || !s->next || s->next->addr != end)) {
            return BAD("segment %#llx ends without a block", HEX(s->addr));
        }
    }
    if (b) {
        return BAD("block %#llx lies in no segment", HEX(b->addr));
    }
    return reserved == line->reserved ? CEN_OK : BAD("a line's reserved bytes do not add up");
}

static cen_status check_slabs(const ceni_line *line) {
    for (const ceni_block *b = line->first_block; b; b = b->next) {
        const ceni_slab *s = b->slab;
        if ((b->kind == CENI_BLOCK_SLAB) != (s != NULL)) {
            return BAD("block %#llx: slab and kind disagree", HEX(b->addr));
        }
        if (!s) {
            continue;
        }
        uint32_t live = 0;
        for (uint32_t i = 0; i < s->objects; i++) {
            live += atomic_load(&s->requested[i]) != 0;
        }
        if (live + s->free_count > s->objects || s->listed != (s->free_count > 0 && !s->dead)) {
            return BAD("slab %#llx: %u live and %u free of %u objects", HEX(s->addr), live,
                       s->free_count, s->objects);
        }
        for (uint32_t i = 0; i < s->free_count; i++) {
            if (s->free_list[i] >= s->objects || atomic_load(&s->requested[s->free_list[i]])) {
                return BAD("slab %#llx lists object %u as free", HEX(s->addr), s->free_list[i]);
            }
        }
    }
    return CEN_OK;
}

/* Nothing is free on dead pages, no slab on them gives out objects, and only what had a part of one
 * is dead. */
static cen_status check_dead(const ceni_line *line, uint64_t *dead_bytes) {
    const ceni_segment *s = line->first_segment;
    for (const ceni_block *b = line->first_block; b; b = b->next) {
        while (s && s->addr + s->size <= b->addr) {
            s = s->next;
        }
        bool dead = false;
        for (const ceni_segment *at = s; at && at->addr < b->addr + b->size; at = at->next) {
            dead = dead || (at->active && at->page && at->page->dead);
        }
        if (dead ? b->kind == CENI_BLOCK_FREE || (b->slab && !b->slab->dead)
                 : b->kind == CENI_BLOCK_DEAD || (b->slab && b->slab->dead)) {
            return BAD("block %#llx: its memory is %s, and it is not", HEX(b->addr),
                       dead ? "lost" : "there");
        }
        *dead_bytes += b->kind == CENI_BLOCK_DEAD ? b->size : 0;
    }
    return CEN_OK;
}

/* Each page is in use through exactly one of its segments. */
static cen_status check_pages(const cen_pool *pool) {
    uint64_t count = 0, dead = 0;
    for (const ceni_pool_page *p = pool->pages; p; p = p->next, count++) {
        dead += p->dead;
        unsigned active = 0, usable = 0;
        for (const ceni_segment *s = p->mappings; s; s = s->same_page) {
            if (s->page != p || s->size != p->size) {
                return BAD("segment %#llx does not match its page", HEX(s->addr));
            }
            active += s->active;
            usable += !s->lost;
            if (s->active != (p->active == s)) {
                return BAD("segment %#llx: its page is active elsewhere", HEX(s->addr));
            }
        }
        if (active != (usable ? 1 : 0)) {
            return BAD("a page of %llu bytes is active in %u places", HEX(p->size), active);
        }
    }
    return count == pool->stats.pages && dead == pool->dead_pages
               ? CEN_OK
               : BAD("the number of pages does not add up");
}

static cen_status check_line(const cen_pool *pool, const ceni_line *line, uint64_t *allocated,
                             uint64_t *reserved) {
    uint64_t free_bytes = 0;
    cen_status status = check_blocks(pool, line, allocated, &free_bytes);
    if (!status) {
        status = check_heaps(line, free_bytes);
    }
    if (!status) {
        status = check_segments(line);
    }
    if (!status) {
        status = check_slabs(line);
    }
    *reserved += line->reserved;
    return status;
}

/* Handles and the blocks they stand for agree, and moves are on the mover's account. */
static cen_status check_movables(cen_pool *pool) {
    uint64_t blocks = 0, entries = 0, spare = 0;
    for (const ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        for (const ceni_block *b = l->first_block; b; b = b->next) {
            if (!b->movable) {
                continue;
            }
            blocks++;
            if (b->kind != CENI_BLOCK_LIVE || !ceni_arena_open_to_all(l->arena) ||
                b->movable > pool->movable_count || pool->movables[b->movable - 1].block != b) {
                return BAD("movable block %#llx and its handle disagree", HEX(b->addr));
            }
            for (const ceni_use *u = b->uses; u; u = u->next) {
                if (u->epoch > u->stream->freed_epoch) {
                    return BAD("movable block %#llx: a use would never be marked", HEX(b->addr));
                }
            }
        }
    }
    for (size_t i = 0; i < pool->movable_count; i++) {
        const ceni_movable *m = &pool->movables[i];
        entries += m->block != NULL;
        if (m->block ? m->block->movable != i + 1 : m->pins) {
            return BAD("handle %llu: its block is another's, or it has pins and no block", HEX(i));
        }
    }
    for (uint32_t at = pool->free_movable; at && spare <= pool->movable_count; spare++) {
        at = pool->movables[at - 1].next;
    }
    return blocks == entries && entries == pool->movable_live &&
                   entries + spare + pool->movable_making == pool->movable_count
               ? CEN_OK
               : BAD("%llu movable blocks, %llu handles in use, %llu spare of %llu", HEX(blocks),
                     HEX(entries), HEX(spare), HEX(pool->movable_count));
}

cen_status ceni_pool_check(cen_pool *pool) {
    uint64_t allocated = 0, reserved = 0, dead = 0;
    cen_status status = CEN_OK;
    for (ceni_line *l = ceni_line_next(pool, NULL); l && !status; l = ceni_line_next(pool, l)) {
        status = check_line(pool, l, &allocated, &reserved);
        status = status ? status : check_dead(l, &dead);
    }
    if (!status) {
        status = check_pages(pool);
    }
    if (!status) {
        status = check_movables(pool);
    }
    for (const ceni_pool_page *p = pool->pages; p; p = p->next) {
        reserved += p->active ? 0 : p->size;
    }
    if (!status && reserved != pool->stats.reserved_bytes) {
        status = BAD("%llu bytes are reserved, %llu are counted", HEX(reserved),
                     HEX(pool->stats.reserved_bytes));
    }
    if (!status && dead != pool->dead_bytes) {
        status = BAD("%llu bytes are dead, %llu are counted", HEX(dead), HEX(pool->dead_bytes));
    }
    if (!status && allocated != pool->stats.allocated_bytes) {
        status = BAD("%llu bytes are allocated, %llu are counted", HEX(allocated),
                     HEX(pool->stats.allocated_bytes));
    }
    return status;
}

cen_status cen_pool_verify(cen_pool *pool) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_verify");
    if (status) {
        return status;
    }
    ceni_pool_enter(pool);
    status = ceni_pool_check(pool);
    ceni_lock_leave(&pool->lock);
    return status;
}
