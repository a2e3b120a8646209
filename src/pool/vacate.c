/* Moving for others: for a failing allocation (ladder.c), and for a global pool that wants pages of
 * one device back or has room again for those that were borrowed. */
#include <string.h>

#include "pool/compact.h"

uint64_t ceni_pool_compact(cen_pool *pool) {
    if (!pool->movable_live || pool->capturing) {
        return 0;
    }
    ceni_round round = {.pool = pool, .enough = UINT64_MAX};
    (void)ceni_round_run(&round); /* what was moved is moved */
    ceni_round_close(&round);
    return round.emptied_bytes;
}

/* Makes room for blocks that found none, of the device's own memory. False: none was made. */
static bool make_room(cen_pool *pool, const uint64_t lacking[CENI_RANKS]) {
    bool made = false;
    for (int rank = 0; rank < CENI_RANKS; rank++) {
        uint64_t unit = pool->granularity, room;
        if (!lacking[rank] || ceni_dev_obtainable(pool->device, &room)) {
            continue;
        }
        room = ceni_least(room, ceni_pool_allowed(pool)) / unit * unit;
        uint64_t want = ceni_least((lacking[rank] + unit - 1) / unit * unit, room);
        made = (want && !ceni_line_extend(pool, &pool->shared.lines[rank], want, NULL)) || made;
    }
    return made;
}

cen_status ceni_round_leave(ceni_round *round) {
    cen_pool *pool = round->pool;
    cen_status status = ceni_round_run(round);
    if (status || round->out_of_time || round->emptied_bytes >= round->enough) {
        return status;
    }
    bool own = round->home && !round->home->host && round->home->device == pool->device;
    if (!own && make_room(pool, round->lacking)) {
        memset(round->lacking, 0, sizeof round->lacking);
        status = ceni_round_run(round);
    }
    return status;
}

uint64_t ceni_pool_vacate(cen_pool *pool, const ceni_home *home, uint64_t bytes, bool wait) {
    if (pool->capturing || !pool->vmm) {
        return 0;
    }
    ceni_pool_unpark(pool);
    ceni_magazines_flush(pool);
    ceni_pool_settle(pool, true);
    uint64_t returned = ceni_pool_release_home(pool, home, bytes);
    if (returned < bytes && wait && !ceni_pool_drain(pool)) {
        returned += ceni_pool_release_home(pool, home, bytes - returned);
    }
    if (returned >= bytes || !pool->movable_live || pool->lost) {
        return returned;
    }
    ceni_round round = {.pool = pool, .home = home, .enough = bytes - returned};
    (void)ceni_round_leave(&round); /* what was moved is moved */
    ceni_round_close(&round);
    if (wait && round.emptied_bytes && !ceni_pool_drain(pool)) {
        returned += ceni_pool_release_home(pool, home, bytes - returned);
    }
    return returned;
}

uint64_t ceni_pool_bring_home(cen_pool *pool, uint64_t budget_us) {
    if (pool->capturing || !pool->vmm || !pool->stats.borrowed_bytes) {
        return 0;
    }
    ceni_pool_unpark(pool);
    ceni_pool_settle(pool, true);
    (void)ceni_pool_release_home(pool, NULL, UINT64_MAX);
    if (!pool->movable_live) {
        return 0;
    }
    ceni_round round = {.pool = pool, .borrowed = true, .enough = UINT64_MAX};
    round.deadline = ceni_deadline(pool, budget_us);
    (void)ceni_round_leave(&round); /* what was moved is moved */
    ceni_round_close(&round);
    return round.moved_bytes;
}
