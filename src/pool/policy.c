/* What is worth its driver time.
 *
 * Growing makes pages; small pages are more often wholly idle and so can be moved, but each costs a
 * create, a map and its share of an access call. So pages are a share of what is reserved, finer
 * while the budget of optional driver time lasts, and coarser when it is used up; a pool that keeps
 * growing beyond its budget also grows in larger steps. The budget starts with a credit for warming
 * up, which decays, and is refilled at a share of the elapsed time.
 *
 * Costs are those measured beside running kernels on an H200 (docs/design.md, decision 3); only
 * their ratios matter. */
#include <math.h>

#include "pool/page.h"

#define START_CREDIT_US 70e3
#define CREDIT_DECAY_US 500e3 /* the credit falls to 1/e in this time */
#define BUDGET_CAP_US   2e3
#define DEBT_CAP_US     5e3
#define DEBT_SCALE_US   2e3 /* at this debt, growth goes in the largest steps */
#define SPLIT_SHARE     0.4 /* of the budget that one growth may take for finer pages */
#define FINE_SHARE      160 /* pages of reserved/160 while there is budget */
#define COARSE_SHARE    96  /* pages of reserved/96 at most */
#define PAGE_MIN        ((uint64_t)2 << 20)
#define PAGE_MAX        ((uint64_t)128 << 20)
#define PAGES_A_BLOCK   24  /* a block needs no finer pages than this many of its size */
#define STEP_SHARE      200 /* growth of at least reserved/200 */
#define STEP_SHARE_DEBT 24  /* and of reserved/24 when deep in debt */

static const double call_us[] = {10, 0, 0, 180, 125, 0};
static const double handle_us[] = {0, 130, 25, 40, 23, 100};
/* A page more in a growth or a remap. */
#define PAGE_US (130.0 + 25 + 40)

static void tick(cen_pool *pool) {
    uint64_t now = ceni_pool_now_us(pool);
    double elapsed = now > pool->budget_time ? (double)(now - pool->budget_time) : 0;
    pool->budget_time = now;
    if (pool->budget > BUDGET_CAP_US) {
        double extra = pool->budget - BUDGET_CAP_US;
        pool->budget = BUDGET_CAP_US + extra * exp(-elapsed / CREDIT_DECAY_US);
    } else {
        double refilled = pool->budget + elapsed * pool->options.driver_share;
        pool->budget = refilled < BUDGET_CAP_US ? refilled : BUDGET_CAP_US;
    }
}

void ceni_policy_open(cen_pool *pool) {
    pool->budget = pool->options.driver_share < 0 ? 0 : START_CREDIT_US;
    pool->budget_time = ceni_pool_now_us(pool);
}

void ceni_policy_spend(cen_pool *pool, enum ceni_driver_kind kind, size_t handles) {
    pool->budget -= call_us[kind] + handle_us[kind] * (double)handles;
    if (pool->budget < -DEBT_CAP_US) {
        pool->budget = -DEBT_CAP_US;
    }
}

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high) {
    return value < low ? low : value > high ? high : value;
}

ceni_growth ceni_policy_growth(cen_pool *pool, const ceni_line *line, uint64_t need,
                               uint64_t lack) {
    uint64_t unit = pool->granularity;
    lack = round_up(lack, unit);
    if (pool->options.page_bytes) {
        uint64_t page = round_up(pool->options.page_bytes, unit);
        return (ceni_growth){round_up(lack, page), page};
    }
    if (line->rank == CENI_SMALL) {
        return (ceni_growth){lack, lack};
    }
    tick(pool);
    uint64_t reserved = pool->stats.reserved_bytes;
    uint64_t step = line->arena->id ? 0 : reserved / STEP_SHARE;
    if (pool->budget < 0 && !line->arena->id) {
        double debt = -pool->budget / DEBT_SCALE_US;
        step += (uint64_t)((double)(reserved / STEP_SHARE_DEBT - step) * (debt < 1 ? debt : 1));
    }
    uint64_t bytes = round_up(lack > step ? lack : step, unit);
    uint64_t fine = clamp(reserved / FINE_SHARE, PAGE_MIN, PAGE_MAX);
    fine = fine > need / PAGES_A_BLOCK ? fine : need / PAGES_A_BLOCK;
    uint64_t coarse = clamp(reserved / COARSE_SHARE, PAGE_MIN, PAGE_MAX);
    coarse = coarse > fine ? coarse : fine;
    uint64_t pages = (bytes + fine / 2) / fine;
    uint64_t afford = 1 + (uint64_t)(pool->budget > 0 ? pool->budget * SPLIT_SHARE / PAGE_US : 0);
    pages = pages < afford ? pages : afford;
    uint64_t least = (bytes + coarse / 2) / coarse;
    pages = pages > least ? pages : least;
    return (ceni_growth){bytes, round_up(pages ? bytes / pages : bytes, unit)};
}

uint64_t ceni_policy_plain(const cen_pool *pool, uint64_t need) {
    return round_up(need, pool->granularity);
}
