/* What is worth its driver time.
 *
 * Small pages are more often wholly idle and so can be moved, but each costs a create, a map and
 * its share of an access call. So pages are a share of what is reserved, and no finer than a share
 * of the block they are made for. Growth is exact while the budget of driver time lasts; a pool
 * that keeps growing beyond its budget grows in larger steps. The budget starts with a credit for
 * warming up, which decays, and is refilled at a share of the elapsed time.
 *
 * Costs are those measured beside running kernels on an H200 (docs/driver-costs.md); only their
 * ratios matter. The shares were chosen by replaying recorded runs (docs/pool.md). */
#include <math.h>

#include "pool/page.h"

#define START_CREDIT_US 100e3
#define CREDIT_DECAY_US 300e3 /* the credit falls to 1/e in this time */
#define BUDGET_CAP_US   1e3
#define DEBT_CAP_US     1e3
#define DEBT_SCALE_US   4e3  /* at this debt, growth would go in the largest steps */
#define SPLIT_SHARE     0.05 /* of the budget that one growth may take for finer pages */
#define FINE_SHARE      128  /* pages of reserved/128 while there is budget */
#define COARSE_SHARE    96   /* pages of reserved/96 at most */
#define PAGE_MIN        ((uint64_t)8 << 20)
#define PAGE_MAX        ((uint64_t)256 << 20)
#define PAGES_A_BLOCK   48 /* a block needs no finer pages than this many of its size */
#define LIMIT_FINER     32 /* under a limit pages are so much finer, and growth is exact */
#define LIMIT_PAGE_MIN  ((uint64_t)2 << 20)
#define STEP_SHARE      500 /* growth of at least reserved/500 */
#define STEP_SHARE_DEBT 20  /* towards reserved/20 with debt */

static const double call_us[] = {10, 0, 0, 180, 125, 0};
static const double handle_us[] = {0, 130, 25, 40, 23, 100};
#define PAGE_US (130.0 + 25 + 40) /* a page more in a growth */

static void tick(cen_pool *pool) {
    uint64_t now = ceni_pool_now_us(pool);
    double elapsed = now > pool->budget_time ? (double)(now - pool->budget_time) : 0;
    pool->budget_time = now;
    if (pool->budget > BUDGET_CAP_US) {
        double extra = pool->budget - BUDGET_CAP_US;
        pool->budget = BUDGET_CAP_US + extra * exp(-elapsed / CREDIT_DECAY_US);
    } else {
        double refilled = pool->budget + elapsed * fmax(pool->options.driver_share, 0);
        pool->budget = fmin(refilled, BUDGET_CAP_US);
    }
}

void ceni_policy_open(cen_pool *pool) {
    pool->budget = pool->options.driver_share < 0 ? 0 : START_CREDIT_US;
    pool->budget_time = ceni_pool_now_us(pool);
}

void ceni_policy_spend(cen_pool *pool, enum ceni_driver_kind kind, size_t handles) {
    pool->budget -= call_us[kind] + handle_us[kind] * (double)handles;
    pool->budget = fmax(pool->budget, -DEBT_CAP_US);
}

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* The least that a growth should add. A graph's pool keeps what it gets: it gets no more than that.
 */
static uint64_t step_of(const cen_pool *pool, const ceni_line *line) {
    if (line->arena->id) {
        return 0;
    }
    double least = (double)pool->stats.reserved_bytes / STEP_SHARE;
    double most = (double)pool->stats.reserved_bytes / STEP_SHARE_DEBT;
    double debt = pool->budget < 0 ? -pool->budget / DEBT_SCALE_US : 0;
    return (uint64_t)(least + (most - least) * fmin(debt, 1));
}

/* Coarse pages that are idle in part would take what little room a limit leaves: a job that was
 * given 2 % more than it asks for is to finish, whatever the driver's time. Of pages made while
 * there is room it is too late to think when there is none. */
static ceni_growth limited_growth(const cen_pool *pool, uint64_t need, uint64_t lack) {
    uint64_t share = pool->stats.reserved_bytes / FINE_SHARE / LIMIT_FINER;
    uint64_t page = clamp(share, LIMIT_PAGE_MIN, PAGE_MAX);
    page = larger(page, need / PAGES_A_BLOCK / LIMIT_FINER);
    return (ceni_growth){lack, round_up(page, pool->granularity)};
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
    if (pool->limit != UINT64_MAX) {
        return limited_growth(pool, need, lack);
    }
    uint64_t step = step_of(pool, line);
    uint64_t bytes = round_up(larger(lack, step), unit);
    uint64_t reserved = pool->stats.reserved_bytes;
    uint64_t fine = clamp(reserved / FINE_SHARE, PAGE_MIN, PAGE_MAX);
    uint64_t coarse = clamp(reserved / COARSE_SHARE, PAGE_MIN, PAGE_MAX);
    fine = larger(fine, need / PAGES_A_BLOCK);
    coarse = larger(coarse, fine);
    /* As many as are wanted, if they can be paid, but at least so that none is too coarse. */
    uint64_t pages = (bytes + fine / 2) / fine;
    uint64_t afford = 1 + (uint64_t)(fmax(pool->budget, 0) * SPLIT_SHARE / PAGE_US);
    pages = larger(pages < afford ? pages : afford, (bytes + coarse / 2) / coarse);
    return (ceni_growth){bytes, round_up(pages ? bytes / pages : bytes, unit)};
}

uint64_t ceni_policy_plain(const cen_pool *pool, uint64_t need) {
    return round_up(need, pool->granularity);
}
