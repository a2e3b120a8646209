/* Making one large free block of what is there already, without a driver call: neighbouring free
 * blocks are joined behind events, and idle pages are used through earlier mappings of theirs. */
#include "base/mem.h"
#include "pool/page.h"

static bool can_have(const cen_pool *pool, const ceni_block *b, const ceni_pstream *stream) {
    return b->kind == CENI_BLOCK_FREE && (!b->stream || b->stream == stream || !pool->capturing ||
                                          ceni_stream_passed(b->stream, b->epoch));
}

/* Makes a free block `stream`'s own, behind the work of the stream that it was freed on. */
static cen_status claim(cen_pool *pool, ceni_block *b, ceni_pstream *stream) {
    if (b->stream == stream) {
        return CEN_OK;
    }
    cen_status status = ceni_stream_order(pool, stream, b->stream, b->epoch);
    if (!status) {
        ceni_block_unbin(b);
        b->stream = stream;
        b->epoch = stream->epoch;
        (void)ceni_stream_freeing(pool, stream);
        ceni_block_bin(pool, b);
    }
    return status;
}

/* Claims the blocks of [addr, end), splitting none, and merges the line. */
static cen_status claim_range(cen_pool *pool, ceni_line *line, uint64_t addr, uint64_t end,
                              ceni_pstream *stream) {
    if (!ceni_heap_get(pool, line, stream, true)) {
        return CEN_ERR_HOST_MEMORY;
    }
    cen_status status = CEN_OK;
    for (ceni_block *b = line->first_block; b && b->addr < end && !status; b = b->next) {
        if (b->addr + b->size > addr && b->kind == CENI_BLOCK_FREE) {
            status = claim(pool, b, stream);
        }
    }
    ceni_line_merge(pool, line);
    return status;
}

bool ceni_line_gather(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream) {
    if (pool->stream_count <= 1 || ceni_line_free(line) < need ||
        (pool->freed && line->no_run_at == pool->freed && line->no_run_for == stream &&
         line->no_run_need <= need)) {
        return false; /* what could be joined is joined already, or too little */
    }
    uint64_t best = UINT64_MAX, best_addr = 0, start = 0, size = 0;
    const ceni_block *before = NULL;
    for (const ceni_block *b = line->first_block; b; before = b, b = b->next) {
        if (!can_have(pool, b, stream)) {
            size = 0;
            continue;
        }
        if (!size || !ceni_block_touches(before, b)) {
            start = b->addr;
            size = 0;
        }
        size += b->size;
        bool ends = !b->next || !ceni_block_touches(b, b->next) || !can_have(pool, b->next, stream);
        if (ends && size >= need && size < best) {
            best = size;
            best_addr = start;
        }
    }
    if (best == UINT64_MAX && !pool->capturing) {
        line->no_run_at = pool->freed;
        line->no_run_need = need;
        line->no_run_for = stream;
    }
    return best != UINT64_MAX && !claim_range(pool, line, best_addr, best_addr + best, stream);
}

/* How much of each active segment is free at its two ends, and which pages are idle. */
static void measure(const cen_pool *pool, ceni_line *line, const ceni_pstream *stream) {
    bool open = ceni_arena_open_to_all(line->arena); /* a graph's pages stay where they are */
    ceni_block *b = line->first_block;
    for (ceni_segment *s = line->first_segment; s; s = s->next) {
        if (!s->active) {
            continue;
        }
        uint64_t end = s->addr + s->size, reach = s->addr;
        s->free_head = s->free_tail = 0;
        while (b && b->addr + b->size <= s->addr) {
            b = b->next;
        }
        for (ceni_block *at = b; at && at->addr < end; at = at->next) {
            uint64_t from = at->addr > s->addr ? at->addr : s->addr;
            uint64_t to = at->addr + at->size < end ? at->addr + at->size : end;
            bool free = can_have(pool, at, stream);
            if (free && from == reach && reach - s->addr == s->free_head) {
                s->free_head += to - from;
            }
            s->free_tail = free ? s->free_tail + (to - from) : 0;
            reach = to;
        }
        if (s->page) {
            s->page->idle = open && s->free_head == s->size;
        }
    }
}

typedef struct window {
    ceni_segment *first, *last;
    uint64_t addr, size;
} window;

/* Grows a window from `first` on until it holds `need`; false if it cannot, or if every segment in
 * it is active already. */
static bool try_window(cen_pool *pool, ceni_segment *first, uint64_t need, window *w) {
    uint64_t stamp = ++pool->stamp;
    bool reactivates = false;
    *w = (window){first, first, first->addr, 0};
    for (ceni_segment *s = first; s; s = s->next) {
        if (s != first && s->addr != s->prev->addr + s->prev->size) {
            return false;
        }
        bool whole = s->active ? s->free_head == s->size : !s->lost && s->page->idle;
        if (s->plain || s->page->stamp == stamp) {
            return false;
        }
        s->page->stamp = stamp;
        reactivates = reactivates || !s->active;
        w->last = s;
        if (s == first && s->active) {
            w->addr = s->addr + s->size - s->free_tail;
            w->size = s->free_tail;
            whole = s->free_tail > 0;
        } else {
            w->size += s->active ? s->free_head : whole ? s->size : 0;
        }
        if (w->size >= need) {
            return reactivates;
        }
        if (!whole) {
            return false;
        }
    }
    return false;
}

static cen_status reactivate(cen_pool *pool, const window *w, ceni_pstream *stream) {
    size_t count = 0;
    for (ceni_segment *s = w->first;; s = s->next) {
        if (!s->active) {
            cen_status status = ceni_page_order(pool, s->page, stream);
            if (status) {
                return status;
            }
            count++;
        }
        if (s == w->last) {
            break;
        }
    }
    if (ceni_blocks_ready(pool, 3 * count) || !ceni_heap_get(pool, w->first->line, stream, true)) {
        return CEN_ERR_HOST_MEMORY;
    }
    for (ceni_segment *s = w->first;; s = s->next) {
        if (!s->active) {
            pool->stats.remapped_bytes += s->size;
            ceni_page_deactivate(pool, s->page, stream);
            pool->inactive_segments--;
            ceni_segment_activate(pool, s, stream);
        }
        if (s == w->last) {
            break;
        }
    }
    return claim_range(pool, w->first->line, w->addr, w->addr + w->size, stream);
}

bool ceni_line_reactivate(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream) {
    if (!pool->inactive_segments || line->arena->id) {
        return false;
    }
    for (ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        measure(pool, l, stream);
    }
    window best = {0}, w;
    for (ceni_segment *s = line->first_segment; s; s = s->next) {
        bool can_start = s->active ? s->free_tail > 0 : !s->lost && s->page->idle;
        if (can_start && try_window(pool, s, need, &w) && (!best.first || w.size < best.size)) {
            best = w;
        }
    }
    return best.first && !reactivate(pool, &best, stream);
}
