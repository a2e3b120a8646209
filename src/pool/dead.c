/* Memory of devices that are lost.
 *
 * A pool may hold pages that it borrowed of a device that is lost later. They are dead: what they
 * held is gone, and work that touches them fails. What is free on them then, and what is freed on
 * them afterwards, becomes dead blocks, which are in no heap and so are never found; a slab on them
 * gives out no objects any more. Once a dead page holds dead blocks only, whose last uses are
 * complete, it is unmapped and forgotten.
 *
 * A pool whose own device is lost gives out nothing. Its device does nothing any more, so all uses
 * count as complete; what it borrowed goes back through another device. */
#include "base/log.h"
#include "pool/note.h"
#include "pool/page.h"

/* The first segment in use that ends beyond an address. */
static const ceni_segment *segment_at(const ceni_line *line, uint64_t addr) {
    const ceni_segment *s = line->first_segment;
    while (s && (!s->active || s->addr + s->size <= addr)) {
        s = s->next;
    }
    return s;
}

static bool is_dead(const ceni_segment *s) {
    return s->active && s->page && s->page->dead;
}

/* Whether any of a block is dead; *parts: of how many segments it has memory. */
static bool touches_dead(const ceni_block *b, size_t *parts) {
    bool dead = false;
    *parts = 0;
    for (const ceni_segment *s = segment_at(b->line, b->addr); s && s->addr < b->addr + b->size;
         s = s->next) {
        dead = dead || is_dead(s);
        *parts += s->active;
    }
    return dead;
}

bool ceni_block_is_lost(const cen_pool *pool, const ceni_block *block) {
    size_t parts;
    return pool->dead_pages && touches_dead(block, &parts);
}

static void make_dead(cen_pool *pool, ceni_block *b) {
    b->kind = CENI_BLOCK_DEAD;
    pool->dead_bytes += b->size;
}

/* Cuts a block that is in no bin, and makes what lies beyond `end` one that is in use. */
static ceni_block *cut(cen_pool *pool, ceni_block *b, uint64_t end) {
    if (b->addr + b->size <= end) {
        return NULL;
    }
    ceni_block *rest = ceni_block_new(pool); /* is ready */
    rest->addr = end;
    rest->size = b->addr + b->size - end;
    rest->stream = b->stream;
    rest->epoch = b->epoch;
    rest->kind = CENI_BLOCK_LIVE;
    b->size -= rest->size;
    ceni_block_link(b->line, rest, b);
    return rest;
}

bool ceni_block_bury(cen_pool *pool, ceni_block *block) {
    size_t parts;
    if (!touches_dead(block, &parts)) {
        return false;
    }
    if (ceni_blocks_ready(pool, parts - 1)) { /* then what lives of it is given up too */
        make_dead(pool, block);
        return true;
    }
    const ceni_segment *s = segment_at(block->line, block->addr);
    while (block) {
        ceni_block *rest = cut(pool, block, s->addr + s->size);
        block->kind = CENI_BLOCK_FREE;
        if (is_dead(s)) {
            make_dead(pool, block);
        } else {
            ceni_block_release(pool, block, block->stream, block->epoch);
        }
        block = rest;
        s = rest ? segment_at(rest->line, rest->addr) : NULL;
    }
    return true;
}

static void bury_line(cen_pool *pool, ceni_line *line) {
    size_t parts;
    for (ceni_block *b = line->first_block; b;) {
        ceni_block *before = b->prev;
        if (b->kind == CENI_BLOCK_SLAB && touches_dead(b, &parts)) {
            ceni_slab_lose(b->slab);
        } else if (b->kind == CENI_BLOCK_FREE && touches_dead(b, &parts)) {
            ceni_block_unbin(b);
            (void)ceni_block_bury(pool, b);
            /* Its parts may have merged with what follows, or into the one before, which stays. */
            b = before ? before->next : line->first_block;
            continue;
        }
        b = b->next;
    }
}

void ceni_pool_lose_home(cen_pool *pool, const ceni_home *home) {
    size_t before = pool->dead_pages;
    for (ceni_pool_page *p = pool->pages; p; p = p->next) {
        if (!p->dead && ceni_home_is(&p->home, home)) {
            p->dead = true;
            pool->dead_pages++;
        }
    }
    if (pool->dead_pages == before) {
        return;
    }
    atomic_fetch_add(&pool->losses, 1); /* before magazines are flushed: see ceni_slab_alloc */
    for (ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        bury_line(pool, l);
    }
    ceni_magazines_flush(pool);
    ceni_pool_settle(pool, true);
    (void)ceni_pool_release_dead(pool);
}

void ceni_pool_lose(cen_pool *pool, cen_device *mapper) {
    pool->mapper = mapper;
    if (pool->lost) {
        return;
    }
    pool->lost = true;
    ceni_streams_lose(pool);
    ceni_magazines_flush(pool);
    ceni_pool_settle(pool, false);
    (void)ceni_pool_release_home(pool, NULL, UINT64_MAX);
}

/* Whether nothing is left on a dead page; *first: its blocks. */
static bool is_empty(const ceni_pool_page *page, ceni_block **first) {
    const ceni_segment *s = page->active;
    uint64_t end = s->addr + s->size;
    ceni_block *b = s->line->first_block;
    while (b && b->addr + b->size <= s->addr) {
        b = b->next;
    }
    *first = b;
    for (; b && b->addr < end; b = b->next) {
        if (b->kind != CENI_BLOCK_DEAD || !ceni_stream_passed(b->stream, b->epoch) ||
            b->addr < s->addr || b->addr + b->size > end) {
            return false;
        }
    }
    return true;
}

static cen_status release(cen_pool *pool, ceni_pool_page *page, ceni_block *first) {
    ceni_segment *s = page->active;
    for (ceni_block *b = first, *next; b && b->addr < s->addr + s->size; b = next) {
        next = b->next;
        pool->dead_bytes -= b->size;
        ceni_block_unlink(b);
        ceni_block_delete(pool, b);
    }
    ceni_note_segment(pool, CENI_EVENT_UNMAP, s, NULL);
    s->active = false;
    s->last_stream = NULL;
    s->line->reserved -= s->size;
    pool->inactive_segments++;
    page->active = NULL;
    return ceni_page_return(pool, page);
}

uint64_t ceni_pool_release_dead(cen_pool *pool) {
    uint64_t before = pool->stats.reserved_bytes;
    if (!pool->dead_pages || pool->capturing) {
        return 0;
    }
    for (ceni_pool_page *p = pool->pages, *next; p; p = next) {
        ceni_block *first;
        next = p->next;
        if (p->dead && p->active && ceni_page_quiet(p) && is_empty(p, &first) &&
            release(pool, p, first)) {
            break;
        }
    }
    return before - pool->stats.reserved_bytes;
}
