/* Segments and pages: which are idle, where a request lacks the least, and moving a page from one
 * of its segments to another. Lists are walked in step, by address: this is the slow path, taken
 * when no free block fits. */
#include "pool/note.h"
#include "pool/page.h"

#include "base/log.h"
#include "base/mem.h"

static bool usable(const cen_pool *pool, const ceni_block *block, const ceni_pstream *stream) {
    if (block->kind != CENI_BLOCK_FREE) {
        return false;
    }
    if (!block->stream || ceni_stream_passed(block->stream, block->epoch)) {
        return true;
    }
    /* Behind an event any stream may have it, but not while a capture goes on. */
    return stream && (block->stream == stream || !pool->capturing);
}

ceni_block *ceni_segment_idle(const cen_pool *pool, const ceni_segment *segment, ceni_block *from,
                              const ceni_pstream *stream) {
    uint64_t end = segment->addr + segment->size;
    ceni_block *first = from;
    while (first && first->addr + first->size <= segment->addr) {
        first = first->next;
    }
    for (ceni_block *b = first; b; b = b->next) {
        if (!usable(pool, b, stream)) {
            return NULL;
        }
        if (b->addr + b->size >= end) {
            return first;
        }
    }
    return NULL;
}

cen_status ceni_line_idle(cen_pool *pool, ceni_line *line, const ceni_pstream *stream,
                          uint64_t skip, uint64_t skip_size, ceni_idle_list *list) {
    if (ceni_line_free(line) < pool->granularity ||
        (pool->freed && line->no_idle_at == pool->freed && line->no_idle_for == stream)) {
        return CEN_OK; /* no page is wholly free, or none was and nothing was freed since */
    }
    size_t before = list->count;
    bool skipped = false;
    ceni_block *b = line->first_block;
    for (ceni_segment *s = line->first_segment; s; s = s->next) {
        if (!s->active || s->plain) {
            continue;
        }
        while (b && b->addr + b->size <= s->addr) {
            b = b->next;
        }
        if (s->addr < skip + skip_size && s->addr + s->size > skip) {
            skipped = skipped || ceni_segment_idle(pool, s, b, stream);
            continue;
        }
        ceni_block *first = ceni_segment_idle(pool, s, b, stream);
        if (!first) {
            continue;
        }
        if (ceni_grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items)) {
            return CEN_ERR_HOST_MEMORY;
        }
        list->items[list->count++] = (ceni_idle){s->page, first->size};
        list->bytes += s->size;
    }
    if (list->count == before && !skipped && stream && !pool->capturing) {
        line->no_idle_at = pool->freed;
        line->no_idle_for = stream;
    }
    return CEN_OK;
}

static uint64_t gap_end(const ceni_line *line, const ceni_segment *after) {
    const ceni_segment *next = after ? after->next : line->first_segment;
    return next ? next->addr : line->base + line->size;
}

bool ceni_line_gap(cen_pool *pool, ceni_line *line, uint64_t need, const ceni_pstream *stream,
                   ceni_gap *gap) {
    bool found = false;
    /* Most lines are full from their start: then only their end is looked at. */
    ceni_segment *after = line->has_gaps ? NULL : line->last_segment;
    ceni_block *left = NULL, *b = line->has_gaps ? line->first_block : line->last_block;
    do {
        uint64_t addr = after ? after->addr + after->size : line->base;
        uint64_t room = gap_end(line, after) - addr;
        while (b && b->addr + b->size <= addr) {
            left = b;
            b = b->next;
        }
        bool joins = left && left->addr + left->size == addr && usable(pool, left, stream) &&
                     (!left->stream || left->stream == stream);
        uint64_t have = joins ? left->size : 0;
        uint64_t lack = have < need ? need - have : 0;
        if (room && room >= lack && (!found || have >= gap->have)) {
            *gap = (ceni_gap){after, joins ? left : NULL, addr, room, have};
            found = true;
        }
        after = after ? after->next : line->first_segment;
    } while (after);
    return found;
}

ceni_segment *ceni_segment_new(ceni_line *line, ceni_segment *after, uint64_t addr, uint64_t size,
                               ceni_pool_page *page) {
    ceni_segment *s = ceni_calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    s->addr = addr;
    s->size = size;
    s->page = page;
    s->line = line;
    s->prev = after;
    s->next = after ? after->next : line->first_segment;
    *(s->prev ? &s->prev->next : &line->first_segment) = s;
    *(s->next ? &s->next->prev : &line->last_segment) = s;
    if (page) {
        s->same_page = page->mappings;
        page->mappings = s;
    }
    return s;
}

void ceni_segment_delete(ceni_segment *s) {
    s->line->has_gaps = true;
    *(s->prev ? &s->prev->next : &s->line->first_segment) = s->next;
    *(s->next ? &s->next->prev : &s->line->last_segment) = s->prev;
    if (s->page) {
        ceni_segment **at = &s->page->mappings;
        while (*at != s) {
            at = &(*at)->same_page;
        }
        *at = s->same_page;
    }
    ceni_free(s);
}

void ceni_page_add(cen_pool *pool, const ceni_line *line, ceni_pool_page *page) {
    page->prev = NULL;
    page->next = pool->pages;
    if (page->next) {
        page->next->prev = page;
    }
    pool->pages = page;
    pool->stats.pages++;
    pool->stats.borrowed_bytes += ceni_page_borrowed(pool, page) ? page->size : 0;
    ceni_pool_count_reserved(pool, line, (int64_t)page->size);
}

void ceni_page_remove(cen_pool *pool, ceni_pool_page *page) {
    *(page->prev ? &page->prev->next : &pool->pages) = page->next;
    if (page->next) {
        page->next->prev = page->prev;
    }
    pool->stats.pages--;
    pool->dead_pages -= page->dead;
    pool->stats.borrowed_bytes -= ceni_page_borrowed(pool, page) ? page->size : 0;
    pool->stats.reserved_bytes -= page->size;
}

cen_status ceni_blocks_ready(cen_pool *pool, size_t count) {
    size_t have = 0;
    for (ceni_block *b = pool->spare_blocks; b && have < count; b = b->next) {
        have++;
    }
    for (; have < count; have++) {
        ceni_block *b = ceni_malloc(sizeof *b);
        if (!b) {
            return CEN_ERR_HOST_MEMORY;
        }
        ceni_block_delete(pool, b);
    }
    return CEN_OK;
}

/* The first block that reaches beyond `addr`. */
static ceni_block *block_at(const ceni_line *line, uint64_t addr) {
    ceni_block *b = line->first_block;
    while (b && b->addr + b->size <= addr) {
        b = b->next;
    }
    return b;
}

cen_status ceni_page_order(cen_pool *pool, ceni_pool_page *page, ceni_pstream *stream) {
    const ceni_segment *s = page->active;
    for (ceni_block *b = block_at(s->line, s->addr); b && b->addr < s->addr + s->size;
         b = b->next) {
        cen_status status = ceni_stream_order(pool, stream, b->stream, b->epoch);
        if (status) {
            return status;
        }
    }
    return CEN_OK;
}

void ceni_page_deactivate(cen_pool *pool, ceni_pool_page *page, ceni_pstream *stream) {
    ceni_segment *s = page->active;
    uint64_t end = s->addr + s->size;
    ceni_block *b = block_at(s->line, s->addr);
    while (b && b->addr < end) {
        uint64_t from = b->addr > s->addr ? b->addr : s->addr;
        uint64_t to = b->addr + b->size < end ? b->addr + b->size : end;
        (void)ceni_block_take(pool, b, from, to - from); /* spare blocks are ready */
        ceni_block *next = b->next;
        ceni_block_unlink(b);
        ceni_block_delete(pool, b);
        b = next;
    }
    ceni_note_segment(pool, CENI_EVENT_UNMAP, s, stream);
    s->active = false;
    s->last_stream = stream;
    s->last_epoch = stream ? stream->epoch : 0;
    if (stream) {
        (void)ceni_stream_freeing(pool, stream);
    }
    s->line->reserved -= s->size;
    pool->inactive_segments++;
    page->active = NULL;
}

void ceni_segment_activate(cen_pool *pool, ceni_segment *s, ceni_pstream *stream) {
    ceni_block *after = NULL;
    for (ceni_block *b = s->line->last_block; b; b = b->prev) {
        if (b->addr < s->addr) {
            after = b;
            break;
        }
    }
    ceni_note_segment(pool, CENI_EVENT_MAP, s, stream);
    s->active = true;
    if (s->page) {
        s->page->active = s;
    }
    s->line->reserved += s->size;
    ceni_block *block = ceni_block_new(pool);
    block->addr = s->addr;
    block->size = s->size;
    block->wall = s->plain;
    ceni_block_link(s->line, block, after);
    if (stream) {
        (void)ceni_stream_freeing(pool, stream);
    }
    ceni_block_release(pool, block, stream, stream ? stream->epoch : 0);
}
