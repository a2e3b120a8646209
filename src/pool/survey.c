/* What a round of moving sees: each page in use, how much of it could move, and what holds it. */
#include <stdlib.h>

#include "base/mem.h"
#include "pool/compact.h"

static uint8_t role_of(const ceni_round *round, const ceni_place *p) {
    bool stays = p->fixed || p->pinned;
    if (!p->wanted) {
        return p->live || stays ? CENI_TAKES : CENI_IDLE;
    }
    if (round->home || round->borrowed) {
        return p->live && !stays ? CENI_LEAVES : CENI_CLOSED;
    }
    return !p->live && !stays ? CENI_IDLE : stays ? CENI_TAKES : CENI_SPARSE;
}

static bool is_wanted(const ceni_round *round, const ceni_segment *s) {
    if (round->home) {
        return s->page && ceni_home_is(&s->page->home, round->home);
    }
    return !round->borrowed || (s->page && ceni_page_borrowed(round->pool, s->page));
}

/* Adds up the blocks of a place, from the first that reaches into it. */
static cen_status survey_place(ceni_round *round, ceni_place *p, const ceni_block *b) {
    const ceni_segment *s = p->segment;
    uint64_t end = s->addr + s->size;
    for (; b && b->addr < end; b = b->next) {
        if (b->kind == CENI_BLOCK_FREE) {
            continue;
        }
        if (b->kind != CENI_BLOCK_LIVE || !b->movable || ceni_block_is_lost(round->pool, b)) {
            p->fixed = true;
        } else if (round->pool->movables[b->movable - 1].pins) {
            p->pinned += ceni_place_share(p, b);
        } else {
            p->live += ceni_place_share(p, b);
            p->count++;
            if (ceni_grow(&round->numbers, &round->number_capacity, round->number_count + 1,
                          sizeof *round->numbers)) {
                return CEN_ERR_HOST_MEMORY;
            }
            round->numbers[round->number_count++] = b->movable;
        }
    }
    p->wanted = is_wanted(round, s);
    p->role = role_of(round, p);
    round->pinned_bytes += p->wanted && !p->fixed ? p->pinned : 0;
    return CEN_OK;
}

static cen_status survey_line(ceni_round *round, ceni_line *line) {
    line->no_hole[0] = line->no_hole[1] = UINT64_MAX;
    const ceni_block *b = line->first_block;
    for (ceni_segment *s = line->first_segment; s; s = s->next) {
        if (!s->active) {
            continue;
        }
        while (b && b->addr + b->size <= s->addr) {
            b = b->next;
        }
        if (ceni_grow(&round->places, &round->place_capacity, round->place_count + 1,
                      sizeof *round->places)) {
            return CEN_ERR_HOST_MEMORY;
        }
        ceni_place *p = &round->places[round->place_count++];
        *p = (ceni_place){.segment = s, .first = round->number_count};
        cen_status status = survey_place(round, p, b);
        if (status) {
            return status;
        }
    }
    return CEN_OK;
}

static int by_address(const void *a, const void *b) {
    const ceni_place *x = a, *y = b;
    return (x->segment->addr > y->segment->addr) - (x->segment->addr < y->segment->addr);
}

cen_status ceni_round_survey(ceni_round *round) {
    cen_status status = CEN_OK;
    round->place_count = round->number_count = 0;
    round->pinned_bytes = 0;
    for (ceni_line *l = ceni_line_next(round->pool, NULL); l && !status;
         l = ceni_line_next(round->pool, l)) {
        status = ceni_arena_open_to_all(l->arena) ? survey_line(round, l) : CEN_OK;
    }
    if (round->place_count) {
        qsort(round->places, round->place_count, sizeof *round->places, by_address);
    }
    return status;
}

void ceni_round_close(ceni_round *round) {
    ceni_free(round->places);
    ceni_free(round->numbers);
    ceni_free(round->moves);
}

size_t ceni_place_of(const ceni_round *round, uint64_t addr) {
    size_t low = 0, high = round->place_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(round->places[middle].segment->addr <= addr ? &low : &high) = middle;
    }
    return low;
}

ceni_place *ceni_place_next(const ceni_round *round, const ceni_block *b, ceni_place *p) {
    p = p ? p + 1 : &round->places[ceni_place_of(round, b->addr)];
    bool within = p < round->places + round->place_count && p->segment->addr < b->addr + b->size;
    return within ? p : NULL;
}
