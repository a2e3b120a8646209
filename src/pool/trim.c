/* Memory back to the driver. A page is unmapped, from all of its segments, only when the host has
 * seen every use of it complete; while a stream captures nothing is unmapped. */
#include "base/log.h"
#include "base/mem.h"
#include "pool/note.h"
#include "pool/page.h"

static bool mapping_quiet(const ceni_segment *s) {
    return s->active || ceni_stream_passed(s->last_stream, s->last_epoch);
}

bool ceni_page_quiet(const ceni_pool_page *page) {
    for (const ceni_segment *s = page->mappings; s; s = s->same_page) {
        if (!mapping_quiet(s)) {
            return false;
        }
    }
    return true;
}

/* Unmaps and forgets one inactive segment. */
static cen_status drop_segment(cen_pool *pool, ceni_segment *s) {
    cen_status status = ceni_driver_unmap(pool, s->addr, s->size, 1);
    if (!status) {
        pool->inactive_segments--;
        ceni_segment_delete(s);
    }
    return status;
}

void ceni_line_drop_inactive(cen_pool *pool, ceni_line *line) {
    if (pool->capturing) {
        return;
    }
    ceni_segment *next;
    for (ceni_segment *s = line->first_segment; s; s = next) {
        next = s->next;
        if (!s->active && !s->plain && mapping_quiet(s) && drop_segment(pool, s)) {
            return;
        }
    }
}

/* Gives back a page that is mapped nowhere; if that fails, it is tried again with the next trim. */
static cen_status release_handle(cen_pool *pool, ceni_pool_page *page) {
    cen_status status = ceni_driver_release(pool, page);
    if (!status) {
        ceni_page_remove(pool, page);
        ceni_free(page);
    }
    return status;
}

cen_status ceni_page_return(cen_pool *pool, ceni_pool_page *page) {
    cen_status status = CEN_OK;
    while (page->mappings) {
        ceni_segment *s = page->mappings;
        if ((status = drop_segment(pool, s))) {
            while (s && s->lost) {
                s = s->same_page;
            }
            if (s) { /* still mapped there: use it there */
                pool->inactive_segments--;
                ceni_segment_activate(pool, s, NULL);
            }
            return status;
        }
    }
    return release_handle(pool, page);
}

static cen_status release_page(cen_pool *pool, ceni_pool_page *page) {
    cen_status status = ceni_blocks_ready(pool, 2);
    if (status) {
        return status;
    }
    ceni_page_deactivate(pool, page, NULL);
    return ceni_page_return(pool, page);
}

static uint64_t release_unmapped(cen_pool *pool) {
    uint64_t before = pool->stats.reserved_bytes;
    for (ceni_pool_page *page = pool->pages, *next; page; page = next) {
        next = page->next;
        if (!page->mappings && release_handle(pool, page)) {
            break;
        }
    }
    return before - pool->stats.reserved_bytes;
}

static uint64_t release_plain(cen_pool *pool, ceni_line *line, uint64_t keep_bytes) {
    uint64_t before = pool->stats.reserved_bytes;
    ceni_block *b = line->first_block;
    ceni_segment *next;
    for (ceni_segment *s = line->first_segment; s && pool->stats.reserved_bytes > keep_bytes;
         s = next) {
        next = s->next;
        ceni_block *first = ceni_segment_idle(pool, s, b, NULL);
        if (!first || first->addr != s->addr || first->size != s->size ||
            ceni_driver_segment_free(pool, s->addr)) {
            continue;
        }
        ceni_note_segment(pool, CENI_EVENT_UNMAP, s, NULL);
        b = first->next;
        ceni_block_unbin(first);
        ceni_block_unlink(first);
        ceni_block_delete(pool, first);
        ceni_pool_count_reserved(pool, line, -(int64_t)s->size);
        line->reserved -= s->size;
        ceni_segment_delete(s);
    }
    return before - pool->stats.reserved_bytes;
}

static bool is_of(const cen_pool *pool, const ceni_pool_page *page, const ceni_home *home) {
    return home ? ceni_home_is(&page->home, home) : ceni_page_borrowed(pool, page);
}

/* Idle pages of one home of a line, or, without one, all that are borrowed. */
static uint64_t release_home(cen_pool *pool, ceni_line *line, const ceni_home *home,
                             uint64_t bytes) {
    uint64_t before = pool->stats.reserved_bytes;
    ceni_idle_list idle = {0};
    if (ceni_line_idle(pool, line, NULL, 0, 0, &idle)) {
        ceni_free(idle.items);
        return 0;
    }
    for (size_t i = idle.count; i-- > 0 && before - pool->stats.reserved_bytes < bytes;) {
        ceni_pool_page *page = idle.items[i].page;
        if (is_of(pool, page, home) && ceni_page_quiet(page) && release_page(pool, page)) {
            break;
        }
    }
    ceni_free(idle.items);
    return before - pool->stats.reserved_bytes;
}

uint64_t ceni_pool_release_home(cen_pool *pool, const ceni_home *home, uint64_t bytes) {
    uint64_t returned = 0;
    if (pool->capturing || !pool->vmm || (!home && !pool->stats.borrowed_bytes)) {
        return 0;
    }
    returned = ceni_pool_release_dead(pool);
    for (ceni_line *l = ceni_line_next(pool, NULL); l && returned < bytes;
         l = ceni_line_next(pool, l)) {
        if (ceni_arena_open_to_all(l->arena)) {
            returned += release_home(pool, l, home, bytes - returned);
        }
    }
    return returned;
}

static uint64_t release_line(cen_pool *pool, ceni_line *line, uint64_t keep_bytes) {
    if (!pool->vmm) {
        return release_plain(pool, line, keep_bytes);
    }
    uint64_t before = pool->stats.reserved_bytes;
    ceni_idle_list idle = {0};
    if (ceni_line_idle(pool, line, NULL, 0, 0, &idle)) {
        ceni_free(idle.items);
        return 0;
    }
    for (size_t i = idle.count; i-- > 0 && pool->stats.reserved_bytes > keep_bytes;) {
        if (ceni_page_quiet(idle.items[i].page) && release_page(pool, idle.items[i].page)) {
            break;
        }
    }
    ceni_free(idle.items);
    return before - pool->stats.reserved_bytes;
}

static void close_line(cen_pool *pool, ceni_line *line);

/* True if nothing is left of a released arena but its reservations. */
static bool is_empty(cen_pool *pool, ceni_arena *arena) {
    bool empty = arena->released && !arena->serving;
    for (unsigned i = 0; i < CENI_RANKS && empty; i++) {
        ceni_line_drop_inactive(pool, &arena->lines[i]);
        empty = empty && !arena->lines[i].first_segment;
    }
    return empty;
}

void ceni_arenas_reap(cen_pool *pool) {
    for (ceni_arena **at = &pool->shared.next; *at;) {
        ceni_arena *a = *at;
        if (!is_empty(pool, a)) {
            at = &a->next;
            continue;
        }
        for (unsigned i = 0; i < CENI_RANKS; i++) {
            close_line(pool, &a->lines[i]);
        }
        *at = a->next;
        ceni_free(a);
    }
}

uint64_t ceni_pool_release_idle(cen_pool *pool, uint64_t keep_bytes) {
    if (pool->capturing) {
        return 0;
    }
    uint64_t returned = release_unmapped(pool) + ceni_pool_release_dead(pool);
    for (ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        returned += ceni_arena_open_to_all(l->arena) ? release_line(pool, l, keep_bytes) : 0;
    }
    ceni_arenas_reap(pool);
    return returned;
}

/* Unmaps a line's segments in as few calls as there are gaps between them, and forgets all. */
static void close_line(cen_pool *pool, ceni_line *line) {
    ceni_segment *s = line->first_segment;
    while (s && !s->plain) {
        uint64_t addr = s->addr, size = 0;
        size_t count = 0;
        for (; s && s->addr == addr + size; s = s->next, count++) {
            size += s->size;
        }
        (void)ceni_driver_unmap(pool, addr, size, count); /* logged; there is nothing else to do */
    }
    while ((s = line->first_segment)) {
        if (s->active) {
            ceni_note_segment(pool, CENI_EVENT_UNMAP, s, NULL);
        }
        if (s->plain) {
            (void)ceni_driver_segment_free(pool, s->addr);
        }
        ceni_segment_delete(s);
    }
    if (line->size) {
        ceni_index_forget(pool, line->base, line->size);
        (void)ceni_dev_va_free(pool->mapper, line->base, line->size);
    }
    while (line->first_block) {
        ceni_block *b = line->first_block;
        ceni_uses_free(b->uses);
        ceni_block_unlink(b);
        ceni_block_delete(pool, b);
    }
    while (line->heaps) {
        ceni_heap *h = line->heaps;
        line->heaps = h->next;
        ceni_free(h);
    }
}

void ceni_pool_close_lines(cen_pool *pool) {
    for (ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        close_line(pool, l);
    }
    while (pool->pages) {
        ceni_pool_page *page = pool->pages;
        pool->pages = page->next;
        (void)ceni_driver_release(pool, page);
        ceni_free(page);
    }
}
