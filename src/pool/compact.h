/* Inside the pool: moving movable blocks. A round looks at all pages once, then empties some of
 * them. survey.c looks, planning (evacuate.c) says which blocks go where; moving (compact.c) does
 * it. */
#ifndef CENI_POOL_COMPACT_H
#define CENI_POOL_COMPACT_H

#include "pool/page.h"

/* What a page is to a round. */
enum ceni_role {
    CENI_TAKES,  /* gets blocks, is not emptied */
    CENI_SPARSE, /* gets blocks, and may be emptied while it has got none */
    CENI_IDLE,   /* gets blocks if nothing else can */
    CENI_FILLS,  /* was idle, and gets blocks by the plan that is being made */
    CENI_LEAVES, /* to be emptied, gets none */
    CENI_CLOSED, /* none of it */
};

/* A page, or a plain segment, in use. */
typedef struct ceni_place {
    ceni_segment *segment;
    uint64_t live;       /* bytes of blocks on it that may move */
    uint64_t pinned;     /* bytes of blocks on it that could, were they not pinned */
    size_t first, count; /* the numbers of the former, in the round's list */
    uint8_t role;
    bool fixed;  /* something on it does not move */
    bool wanted; /* the round is to empty it, if it can */
} ceni_place;

typedef struct ceni_move {
    ceni_block *from, *to; /* to: NULL while it has no place */
} ceni_move;

typedef struct ceni_round {
    cen_pool *pool;
    /* what to empty: pages of a home, or borrowed ones, or else the emptiest */
    const ceni_home *home;
    bool borrowed;
    uint64_t enough;   /* bytes of pages to empty */
    uint64_t deadline; /* by the pool's clock, in microseconds; 0: none */

    ceni_place *places; /* by address */
    size_t place_count, place_capacity;
    uint32_t *numbers; /* of movable blocks, by place and address */
    size_t number_count, number_capacity;
    ceni_move *moves; /* the plan for one page */
    size_t move_count, move_capacity;
    uint64_t taken, filled; /* bytes that it has places for; of idle pages that it uses */

    uint64_t moved_bytes, moved_blocks;
    uint64_t emptied_bytes;       /* of pages that became idle, less idle ones that were used */
    uint64_t lacking[CENI_RANKS]; /* bytes of blocks that found no place, by the line for them */
    uint64_t pinned_bytes;
    bool out_of_time;
} ceni_round;

static inline uint64_t ceni_least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* When a budget ends, by the pool's clock; 0: never. */
static inline uint64_t ceni_deadline(const cen_pool *pool, uint64_t budget_us) {
    uint64_t now = ceni_pool_now_us(pool);
    return !budget_us ? 0 : budget_us > UINT64_MAX - now ? UINT64_MAX : now + budget_us;
}

/* survey.c */
cen_status ceni_round_survey(ceni_round *round);
void ceni_round_close(ceni_round *round);
/* The place of an address, which has one. */
size_t ceni_place_of(const ceni_round *round, uint64_t addr);
/* Bytes of a block that lie on a place. */
static inline uint64_t ceni_place_share(const ceni_place *place, const ceni_block *block) {
    const ceni_segment *s = place->segment;
    uint64_t from = block->addr > s->addr ? block->addr : s->addr;
    return ceni_least(block->addr + block->size, s->addr + s->size) - from;
}
/* The places that a block lies on, one after the other: from NULL on, to NULL. */
ceni_place *ceni_place_next(const ceni_round *round, const ceni_block *block, ceni_place *place);

/* evacuate.c
 * Empties pages as the round says; closing it is the caller's. CEN_OK also if nothing could be
 * done; what was moved before a failure stays moved. Results are added to those that are there. */
cen_status ceni_round_run(ceni_round *round);
/* vacate.c: the same for pages of a home or borrowed ones; blocks that find no place get new memory
 * of the device's own, if it has room. */
cen_status ceni_round_leave(ceni_round *round);
/* Moves one block to the best hole of other pages. CEN_ERR_DEVICE_MEMORY: there is none. */
cen_status ceni_block_move_away(cen_pool *pool, ceni_block *block);

/* compact.c */
/* The pool's stream for moves, made if there is none yet. */
cen_status ceni_mover_open(cen_pool *pool);
/* Takes [addr, addr+size) of a free block for a planned move. Needs two spare blocks. */
ceni_block *ceni_move_take(cen_pool *pool, ceni_block *hole, uint64_t addr, uint64_t size);
/* Carries the plan out, or nothing of it. */
cen_status ceni_round_move(ceni_round *round);
/* Gives back what was taken for the plan, and forgets it. */
void ceni_round_forget(ceni_round *round);

#endif
