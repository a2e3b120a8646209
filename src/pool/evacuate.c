/* Which pages to empty, and where their blocks go.
 *
 * A round looks at all pages once. The emptiest are emptied first, into the holes of fuller ones;
 * a page that got a block is not emptied in the same round. Blocks that lie side by side go to one
 * hole if there is one, so that they are copied at once; else each half of them looks for its own.
 * A block that lies on several pages is moved from all of them, which may empty more than one.
 *
 * A page is emptied only if that is worth it: what then is idle, less what was idle and is used,
 * weighed against the bytes copied. When the pages of a home or borrowed ones are to be emptied,
 * anything is. */
#include <stdlib.h>

#include "base/mem.h"
#include "pool/compact.h"

#define COPIED_FOR_IDLE 8   /* bytes copied for a byte that becomes idle, at most */
#define LOOKED_AT       256 /* free blocks that are no holes, in a heap, for one search */
#define LOOKED_AT_MOVED                                                                            \
    8 /* the same of those that the mover freed: on pages being emptied, mostly */

/* --- where a block could go --- */

static bool gets(const ceni_place *p, bool idle) {
    return p->role == CENI_TAKES || p->role == CENI_SPARSE || p->role == CENI_FILLS ||
           (idle && p->role == CENI_IDLE);
}

typedef struct hole {
    ceni_block *block;
    uint64_t addr, room;
} hole;

/* The first stretch of a free block that gets `size` bytes. They go to its start, or to its end if
 * only there something else is. */
static bool fit(const ceni_round *round, ceni_block *b, uint64_t size, bool idle, hole *found) {
    uint64_t start = 0, end = 0;
    const ceni_place *first = NULL, *last = NULL;
    for (ceni_place *p = ceni_place_next(round, b, NULL); p; p = ceni_place_next(round, b, p)) {
        uint64_t from = b->addr > p->segment->addr ? b->addr : p->segment->addr;
        uint64_t to = p->segment->addr + p->segment->size;
        to = b->addr + b->size < to ? b->addr + b->size : to;
        if (!gets(p, idle)) {
            if (end - start >= size) {
                break;
            }
            start = end = 0;
            continue;
        }
        if (start == end) {
            start = from;
            first = p;
        }
        end = to;
        last = p;
    }
    if (end - start < size || !size) {
        return false;
    }
    bool at_end = first->role == CENI_IDLE && last->role != CENI_IDLE;
    *found = (hole){b, at_end ? end - size : start, end - start};
    return true;
}

/* The smallest stretch in a line that is large enough, as far as one look at each heap shows. */
static bool find_in_line(const ceni_round *round, const ceni_line *line, uint64_t size, bool idle,
                         hole *best) {
    bool found = false;
    hole h;
    for (const ceni_heap *heap = line->heaps; heap; heap = heap->next) {
        bool here = false;
        int left = heap->stream == round->pool->mover ? LOOKED_AT_MOVED : LOOKED_AT;
        for (unsigned bin = ceni_heap_bin(heap, ceni_bin_of(size));
             bin < CENI_BINS && !here && left; bin = ceni_heap_bin(heap, bin + 1)) {
            for (ceni_block *b = heap->bins[bin]; b && !here && left; b = b->bin_next, left--) {
                here = b->size >= size && fit(round, b, size, idle, &h);
            }
        }
        if (here && (!found || h.room < best->room)) {
            *best = h;
            found = true;
        }
    }
    return found;
}

/* In the line of such blocks first, then in those of the sizes nearest to theirs. */
static bool find(const ceni_round *round, enum ceni_rank rank, uint64_t size, bool idle,
                 hole *found) {
    for (int distance = 0; distance < CENI_RANKS; distance++) {
        for (ceni_line *l = ceni_line_next(round->pool, NULL); l;
             l = ceni_line_next(round->pool, l)) {
            if (abs((int)l->rank - (int)rank) != distance || !ceni_arena_open_to_all(l->arena) ||
                size >= l->no_hole[idle]) {
                continue;
            }
            if (find_in_line(round, l, size, idle, found)) {
                return true;
            }
            if (!round->taken) { /* else there will be more if the plan is given up */
                l->no_hole[idle] = size;
            }
        }
    }
    return false;
}

/* --- the plan for one page --- */

static cen_status take_run(ceni_round *round, const hole *h, size_t first, size_t count) {
    cen_status status = ceni_blocks_ready(round->pool, 2 * count);
    ceni_block *from = h->block;
    uint64_t addr = h->addr;
    for (size_t i = first; i < first + count && !status; i++) {
        ceni_move *m = &round->moves[i];
        m->to = ceni_move_take(round->pool, from, addr, m->from->size);
        addr += m->from->size;
        round->taken += m->from->size;
        from = m->to->next; /* the rest of the hole, if there is any */
        for (ceni_place *p = ceni_place_next(round, m->to, NULL); p;
             p = ceni_place_next(round, m->to, p)) {
            if (p->role == CENI_IDLE) {
                p->role = CENI_FILLS;
                round->filled += p->segment->size;
            }
        }
    }
    return status;
}

/* Finds places for `count` neighbours. CEN_ERR_DEVICE_MEMORY: there are none. */
static cen_status place_run(ceni_round *round, size_t first, size_t count) {
    uint64_t size = 0;
    for (size_t i = first; i < first + count; i++) {
        size += round->moves[i].from->size;
    }
    enum ceni_rank rank = ceni_rank_of(round->moves[first].from->size);
    bool idle = count == 1 || round->home || round->borrowed;
    hole h;
    if (find(round, rank, size, false, &h) || (idle && find(round, rank, size, true, &h))) {
        return take_run(round, &h, first, count);
    }
    if (count == 1) {
        return CEN_ERR_DEVICE_MEMORY;
    }
    cen_status status = place_run(round, first, count / 2);
    return status ? status : place_run(round, first + count / 2, count - count / 2);
}

static cen_status add_move(ceni_round *round, ceni_block *from) {
    if (ceni_grow(&round->moves, &round->move_capacity, round->move_count + 1,
                  sizeof *round->moves)) {
        return CEN_ERR_HOST_MEMORY;
    }
    round->moves[round->move_count++] = (ceni_move){from, NULL};
    return CEN_OK;
}

/* All blocks on a page, with a place for each. */
static cen_status plan(ceni_round *round, const ceni_place *p) {
    const ceni_segment *s = p->segment;
    cen_status status = CEN_OK;
    for (size_t i = p->first; i < p->first + p->count && !status; i++) {
        ceni_block *b = round->pool->movables[round->numbers[i] - 1].block;
        if (b->addr < s->addr + s->size && b->addr + b->size > s->addr) { /* not moved since */
            status = add_move(round, b);
        }
    }
    for (size_t i = 0; i < round->move_count && !status;) {
        size_t first = i++;
        while (i < round->move_count && round->moves[i].from->prev == round->moves[i - 1].from &&
               ceni_block_touches(round->moves[i - 1].from, round->moves[i].from)) {
            i++;
        }
        status = place_run(round, first, i - first);
    }
    return status;
}

/* Moves the plan's blocks in the figures of the places. */
static void count_moves(ceni_round *round, bool back) {
    for (size_t i = 0; i < round->move_count; i++) {
        const ceni_block *ends[] = {round->moves[i].from, round->moves[i].to};
        for (int k = 0; k < 2; k++) {
            const ceni_block *b = ends[k];
            for (ceni_place *p = ceni_place_next(round, b, NULL); p;
                 p = ceni_place_next(round, b, p)) {
                uint64_t share = ceni_place_share(p, b);
                p->live += (k == 1) != back ? share : -share;
            }
        }
    }
}

/* Bytes of the pages that nothing is left on; `close`: they are done with. */
static uint64_t emptied(ceni_round *round, bool close) {
    const ceni_place *last = NULL;
    uint64_t bytes = 0;
    for (size_t i = 0; i < round->move_count; i++) {
        const ceni_block *b = round->moves[i].from;
        for (ceni_place *p = ceni_place_next(round, b, NULL); p; p = ceni_place_next(round, b, p)) {
            if ((last && p <= last) || p->live || p->fixed || p->pinned) {
                continue;
            }
            bytes += p->wanted ? p->segment->size : 0;
            last = p;
            p->role = close ? CENI_CLOSED : p->role;
        }
    }
    return bytes;
}

static bool is_worth(const ceni_round *round, uint64_t gain) {
    if (round->home || round->borrowed) {
        return true;
    }
    return gain > round->filled &&
           (gain - round->filled) >= round->taken / COPIED_FOR_IDLE; /* the plan is complete */
}

/* --- the round --- */

/* The page stays as it is: its holes may serve others. */
static void give_up(ceni_round *round, ceni_place *p) {
    bool leaves = round->home || round->borrowed;
    for (size_t i = 0; i < round->move_count && leaves; i++) {
        const ceni_block *b = round->moves[i].from;
        const ceni_place *begin = &round->places[ceni_place_of(round, b->addr)];
        if (begin == p || !begin->wanted) { /* else it was or will be counted there */
            round->lacking[ceni_rank_of(b->size)] += b->size;
        }
    }
    ceni_round_forget(round);
    p->role = leaves ? CENI_CLOSED : CENI_TAKES;
    p->segment->line->no_hole[0] = p->segment->line->no_hole[1] = UINT64_MAX;
}

static cen_status empty_place(ceni_round *round, ceni_place *p) {
    p->role = CENI_LEAVES;
    cen_status status = plan(round, p);
    if (status == CEN_ERR_DEVICE_MEMORY) {
        give_up(round, p);
        return CEN_OK;
    }
    if (status) {
        ceni_round_forget(round);
        return status;
    }
    count_moves(round, false);
    uint64_t gain = emptied(round, false);
    if (!is_worth(round, gain)) {
        count_moves(round, true);
        give_up(round, p);
        return CEN_OK;
    }
    (void)emptied(round, true);
    for (size_t i = 0; i < round->move_count; i++) {
        const ceni_block *to = round->moves[i].to;
        for (ceni_place *t = ceni_place_next(round, to, NULL); t;
             t = ceni_place_next(round, to, t)) {
            t->role = CENI_TAKES;
        }
    }
    bool sparse = !round->home && !round->borrowed;
    gain -= sparse ? round->filled : 0;
    status = ceni_round_move(round);
    round->emptied_bytes += status ? 0 : gain;
    return status;
}

typedef struct candidate {
    double share; /* of the page that is in use */
    size_t place;
} candidate;

static int by_share(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->share != y->share ? (x->share > y->share) - (x->share < y->share)
                                : (x->place > y->place) - (x->place < y->place);
}

static cen_status empty_all(ceni_round *round) {
    candidate *list = ceni_calloc(round->place_count + 1, sizeof *list);
    if (!list) {
        return CEN_ERR_HOST_MEMORY;
    }
    size_t count = 0;
    for (size_t i = 0; i < round->place_count; i++) {
        const ceni_place *p = &round->places[i];
        if (p->role == CENI_SPARSE || p->role == CENI_LEAVES) {
            list[count++] = (candidate){(double)p->live / (double)p->segment->size, i};
        }
    }
    qsort(list, count, sizeof *list, by_share);
    cen_status status = CEN_OK;
    for (size_t i = 0; i < count && !status && round->emptied_bytes < round->enough; i++) {
        ceni_place *p = &round->places[list[i].place];
        if (p->role != CENI_SPARSE && p->role != CENI_LEAVES) {
            continue; /* it got a block, or has none left */
        }
        if (round->deadline && ceni_pool_now_us(round->pool) >= round->deadline) {
            round->out_of_time = true;
            break;
        }
        status = empty_place(round, p);
    }
    ceni_free(list);
    return status;
}

cen_status ceni_round_run(ceni_round *round) {
    cen_status status = ceni_round_survey(round);
    if (!status && round->number_count && !(status = ceni_mover_open(round->pool))) {
        status = empty_all(round);
    }
    return status;
}

cen_status ceni_block_move_away(cen_pool *pool, ceni_block *block) {
    ceni_round round = {.pool = pool};
    cen_status status = ceni_round_survey(&round);
    status = status ? status : ceni_mover_open(pool);
    status = status ? status : add_move(&round, block);
    if (!status) {
        for (ceni_place *p = ceni_place_next(&round, block, NULL); p;
             p = ceni_place_next(&round, block, p)) {
            p->role = CENI_CLOSED;
        }
        status = place_run(&round, 0, 1);
    }
    if (status) {
        ceni_round_forget(&round);
    } else {
        status = ceni_round_move(&round);
    }
    ceni_round_close(&round);
    return status;
}
