/* More memory behind a line: idle pages are mapped where the request lacks the least, and pages are
 * created for what then still lacks.
 *
 * A moved page keeps its old mapping, which costs nothing and can be gone back to for nothing
 * (ceni_line_reactivate). Nothing is unmapped here, so nothing has to be complete: the new user's
 * stream is ordered behind the old ones. All that can fail comes before anything changes. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "pool/page.h"

/* The pages to move and to make for one growth. */
typedef struct plan {
    uint64_t need;
    ceni_home home; /* of the pages to make */
    ceni_gap gap;
    ceni_idle_list idle; /* the first `moves` of it are moved */
    size_t moves;
    uint64_t moved_bytes;
    ceni_pool_page **made;
    size_t makes;
    uint64_t made_bytes;
    ceni_segment **segments; /* new ones: moves, then makes */
    size_t mapped;
} plan;

static int by_range(const void *a, const void *b) {
    const ceni_idle *x = a, *y = b;
    if (x->around != y->around) {
        return x->around < y->around ? -1 : 1;
    }
    return x->page->size == y->page->size ? 0 : x->page->size > y->page->size ? -1 : 1;
}

static void swap(ceni_idle *a, ceni_idle *b) {
    ceni_idle t = *a;
    *a = *b;
    *b = t;
}

/* Puts the pages to move first: from the smallest free ranges, which serve least where they are;
 * the last is the smallest page that still suffices. */
static void choose_moves(plan *p, uint64_t lack) {
    ceni_idle_list *l = &p->idle;
    if (l->count) {
        qsort(l->items, l->count, sizeof *l->items, by_range);
    }
    while (p->moves < l->count && p->moved_bytes < lack) {
        size_t pick = p->moves;
        if (l->items[pick].page->size > lack - p->moved_bytes) {
            for (size_t i = p->moves; i < l->count; i++) {
                uint64_t size = l->items[i].page->size;
                if (size >= lack - p->moved_bytes && size < l->items[pick].page->size) {
                    pick = i;
                }
            }
        }
        swap(&l->items[p->moves], &l->items[pick]);
        p->moved_bytes += l->items[p->moves++].page->size;
    }
}

/* A small line takes small pages only: a large one would be stuck there. */
static void drop_unfit(plan *p, const ceni_line *line, uint64_t lack) {
    if (line->rank != CENI_SMALL) {
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < p->idle.count; i++) {
        if (p->idle.items[i].page->size <= 4 * lack) {
            p->idle.items[kept++] = p->idle.items[i];
        }
    }
    p->idle.count = kept;
}

/* A graph keeps its pages, so it gets none that a neighbour may want back. */
static void drop_borrowed(const cen_pool *pool, plan *p) {
    size_t kept = 0;
    for (size_t i = 0; i < p->idle.count; i++) {
        if (!ceni_page_borrowed(pool, p->idle.items[i].page)) {
            p->idle.items[kept++] = p->idle.items[i];
        }
    }
    p->idle.count = kept;
}

static cen_status find_idle(cen_pool *pool, ceni_line *line, const ceni_pstream *stream, plan *p) {
    if (!ceni_arena_open_to_all(line->arena)) {
        stream = NULL; /* a graph may run on any stream: only what is complete */
    }
    uint64_t skip = p->gap.left ? p->gap.left->addr : 0;
    uint64_t skip_size = p->gap.left ? p->gap.left->size : 0;
    cen_status status = CEN_OK;
    for (ceni_line *l = ceni_line_next(pool, NULL); l && !status; l = ceni_line_next(pool, l)) {
        if (ceni_arena_open_to_all(l->arena)) {
            status = ceni_line_idle(pool, l, stream, skip, skip_size, &p->idle);
        }
    }
    if (!ceni_arena_open_to_all(line->arena)) {
        drop_borrowed(pool, p);
    }
    return status;
}

static cen_status make_page(cen_pool *pool, uint64_t size, plan *p) {
    ceni_pool_page *page = ceni_calloc(1, sizeof *page);
    if (!page) {
        return CEN_ERR_HOST_MEMORY;
    }
    page->home = p->home;
    cen_status status = ceni_driver_create(pool, size, &page->home, &page->handle);
    if (status) {
        ceni_free(page);
        return status;
    }
    page->size = size;
    p->made[p->makes++] = page;
    p->made_bytes += size;
    return CEN_OK;
}

static cen_status make_pages(cen_pool *pool, const ceni_line *line, uint64_t lack, bool must,
                             plan *p) {
    uint64_t unit = pool->granularity;
    ceni_growth g = ceni_policy_growth(pool, line, p->need, lack);
    bool own = !p->home.host && p->home.device == pool->device;
    uint64_t allowed = own ? ceni_pool_allowed(pool) : UINT64_MAX;
    if (must || g.bytes > allowed) {
        g.bytes = (lack + unit - 1) / unit * unit;
    }
    if (g.bytes > allowed || g.bytes > p->gap.room - p->moved_bytes) {
        return CEN_ERR_DEVICE_MEMORY;
    }
    size_t count = (g.bytes + g.page_bytes - 1) / g.page_bytes;
    p->made = ceni_calloc(count, sizeof(void *));
    cen_status status = p->made ? CEN_OK : CEN_ERR_HOST_MEMORY;
    while (!status && p->made_bytes < g.bytes) {
        uint64_t rest = g.bytes - p->made_bytes;
        status = make_page(pool, rest < g.page_bytes ? rest : g.page_bytes, p);
    }
    return status;
}

static ceni_pool_page *planned_page(const plan *p, size_t i) {
    return i < p->moves ? p->idle.items[i].page : p->made[i - p->moves];
}

/* One call for each run of pages of one home: who may have access follows from it. */
static cen_status allow_pages(cen_pool *pool, const plan *p) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < p->mapped && !status;) {
        const ceni_segment *first = p->segments[i];
        uint64_t size = 0;
        size_t count = 0;
        for (; i < p->mapped && ceni_home_is(&p->segments[i]->page->home, &first->page->home);
             i++) {
            size += p->segments[i]->size;
            count++;
        }
        status = ceni_driver_access(pool, first->addr, size, count, &first->page->home);
    }
    return status;
}

/* Maps all planned pages side by side from the gap's start on, and allows access. */
static cen_status map_pages(cen_pool *pool, ceni_line *line, plan *p) {
    size_t count = p->moves + p->makes;
    uint64_t addr = p->gap.addr;
    cen_status status = ceni_index_reserve(pool, addr, p->moved_bytes + p->made_bytes);
    p->segments = status ? NULL : ceni_calloc(count, sizeof(void *));
    if (!status && !p->segments) {
        status = CEN_ERR_HOST_MEMORY;
    }
    ceni_segment *after = p->gap.after;
    while (!status && p->mapped < count) {
        ceni_pool_page *page = planned_page(p, p->mapped);
        ceni_segment *s = ceni_segment_new(line, after, addr, page->size, page);
        status = s ? ceni_driver_map(pool, addr, page->size, page->handle) : CEN_ERR_HOST_MEMORY;
        if (status) {
            if (s) {
                ceni_segment_delete(s);
            }
            break;
        }
        p->segments[p->mapped++] = after = s;
        addr += page->size;
    }
    return status ? status : allow_pages(pool, p);
}

/* Undoes a growth that failed. What cannot be unmapped stays as a lost mapping, and what cannot be
 * released as a page in no use. */
static void roll_back(cen_pool *pool, const ceni_line *line, plan *p) {
    uint64_t size = 0;
    for (size_t i = 0; i < p->mapped; i++) {
        size += p->segments[i]->size;
    }
    if (p->mapped && ceni_driver_unmap(pool, p->gap.addr, size, p->mapped)) {
        for (size_t i = 0; i < p->mapped; i++) {
            p->segments[i]->lost = true;
        }
        pool->inactive_segments += p->mapped;
        p->mapped = 0;
    }
    for (size_t i = 0; i < p->mapped; i++) {
        ceni_segment_delete(p->segments[i]);
    }
    for (size_t i = 0; i < p->makes; i++) {
        ceni_pool_page *page = p->made[i];
        if (page->mappings || ceni_driver_release(pool, page)) {
            ceni_page_add(pool, line, page); /* a trim tries again */
        } else {
            ceni_free(page);
        }
    }
}

/* Nothing can fail from here on. */
static void commit(cen_pool *pool, const ceni_line *line, plan *p, ceni_pstream *stream) {
    bool closed = !ceni_arena_open_to_all(line->arena);
    ceni_block *left = p->gap.left;
    if (left && left->stream != stream) {
        ceni_block_unbin(left);
        /* What is before it may join it. */
        ceni_block_release(pool, left, stream, stream->epoch);
    }
    for (size_t i = 0; i < p->moves; i++) {
        uint64_t size = p->idle.items[i].page->size;
        pool->stats.remapped_bytes += size;
        pool->stats.private_reserved_bytes += closed ? size : 0;
        ceni_page_deactivate(pool, p->idle.items[i].page, stream);
    }
    for (size_t i = 0; i < p->makes; i++) {
        ceni_page_add(pool, line, p->made[i]);
    }
    if (p->gap.have + p->moved_bytes + p->made_bytes - p->need >= pool->granularity) {
        pool->freed++; /* what is over may be an idle page */
    }
    for (size_t i = 0; i < p->mapped; i++) {
        ceni_segment_activate(pool, p->segments[i], stream);
    }
}

static bool find_gap(cen_pool *pool, ceni_line *line, uint64_t need, const ceni_pstream *stream,
                     plan *p) {
    if (ceni_line_gap(pool, line, need, stream, &p->gap)) {
        return true;
    }
    ceni_line_drop_inactive(pool, line);
    return ceni_line_gap(pool, line, need, stream, &p->gap);
}

/* Makes what follows unable to fail. Each moved page can split the blocks at its two ends, and
 * appears as one. */
static cen_status order_moves(cen_pool *pool, const plan *p, ceni_pstream *stream) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < p->moves && !status; i++) {
        status = ceni_page_order(pool, p->idle.items[i].page, stream);
    }
    return status ? status : ceni_blocks_ready(pool, 3 * p->moves + p->makes + 2);
}

enum how { GROW, GROW_EXACTLY, CREATE_ONLY };

static cen_status prepare(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream,
                          enum how how, plan *p) {
    if (!find_gap(pool, line, need, stream, p)) {
        return CEN_ERR_DEVICE_MEMORY;
    }
    uint64_t have = how == CREATE_ONLY ? 0 : p->gap.have;
    uint64_t lack = need - (have < need ? have : need);
    cen_status status = how == CREATE_ONLY ? CEN_OK : find_idle(pool, line, stream, p);
    if (status || !lack) {
        return status ? status : CEN_ERR_DEVICE_MEMORY;
    }
    if (how == GROW) {
        drop_unfit(p, line, lack);
    }
    choose_moves(p, lack);
    while (p->moves && p->moved_bytes > p->gap.room) {
        p->moved_bytes -= p->idle.items[--p->moves].page->size;
    }
    if (p->moved_bytes < lack) {
        status = make_pages(pool, line, lack - p->moved_bytes, how != GROW, p);
    }
    return status ? status : order_moves(pool, p, stream);
}

/* Maps what was prepared, if it could be. */
static cen_status carry_out(cen_pool *pool, ceni_line *line, plan *p, ceni_pstream *stream,
                            cen_status status) {
    if (!status) {
        status = map_pages(pool, line, p);
    }
    if (status) {
        roll_back(pool, line, p);
    } else {
        commit(pool, line, p, stream);
    }
    ceni_free(p->idle.items);
    ceni_free(p->made);
    ceni_free(p->segments);
    return status;
}

static cen_status grow(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream,
                       enum how how, const ceni_home *home) {
    cen_status status = ceni_line_open(pool, line);
    if (!status && !ceni_heap_get(pool, line, stream, true)) {
        status = CEN_ERR_HOST_MEMORY;
    }
    if (status || !pool->vmm) {
        return status ? status : ceni_line_grow_plain(pool, line, need, how != GROW);
    }
    plan p;
    memset(&p, 0, sizeof p);
    p.need = need;
    p.home = home ? *home : (ceni_home){pool->device, false};
    status = prepare(pool, line, need, stream, how, &p);
    return carry_out(pool, line, &p, stream, status);
}

/* All idle pages behind what is free already, if that makes more than `above`; some of them now. */
static cen_status prepare_regroup(cen_pool *pool, ceni_line *line, uint64_t above, size_t most,
                                  ceni_pstream *stream, plan *p) {
    uint64_t aim = above + pool->granularity;
    cen_status status = CEN_ERR_DEVICE_MEMORY;
    if (find_gap(pool, line, aim, stream, p) && !(status = find_idle(pool, line, stream, p))) {
        choose_moves(p, UINT64_MAX);
    }
    while (p->moves && p->moved_bytes > p->gap.room) {
        p->moved_bytes -= p->idle.items[--p->moves].page->size;
    }
    if (!status && (!p->moves || p->gap.have + p->moved_bytes < aim)) {
        status = CEN_ERR_DEVICE_MEMORY;
    }
    while (p->moves > most) {
        p->moved_bytes -= p->idle.items[--p->moves].page->size;
    }
    p->need = p->gap.have + p->moved_bytes;
    return status ? status : order_moves(pool, p, stream);
}

cen_status ceni_line_regroup(cen_pool *pool, ceni_line *line, uint64_t above, size_t most,
                             ceni_pstream *stream) {
    if (!ceni_heap_get(pool, line, stream, true)) {
        return CEN_ERR_HOST_MEMORY;
    }
    plan p;
    memset(&p, 0, sizeof p);
    cen_status status = prepare_regroup(pool, line, above, most, stream, &p);
    return carry_out(pool, line, &p, stream, status);
}

cen_status ceni_line_grow(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream,
                          bool must) {
    return grow(pool, line, need, stream, must ? GROW_EXACTLY : GROW, NULL);
}

cen_status ceni_line_borrow(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream,
                            const ceni_home *home) {
    return grow(pool, line, need, stream, GROW_EXACTLY, home);
}

uint64_t ceni_line_lack(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream) {
    plan p;
    memset(&p, 0, sizeof p);
    if (ceni_line_gap(pool, line, need, stream, &p.gap)) {
        need -= p.gap.have < need ? p.gap.have : need;
        if (!find_idle(pool, line, stream, &p)) {
            need -= p.idle.bytes < need ? p.idle.bytes : need;
        }
    }
    ceni_free(p.idle.items);
    return need;
}

cen_status ceni_line_extend(cen_pool *pool, ceni_line *line, uint64_t bytes, ceni_pstream *stream) {
    cen_status status = grow(pool, line, bytes, stream, CREATE_ONLY, NULL);
    pool->freed++; /* all of it is idle */
    return status;
}
