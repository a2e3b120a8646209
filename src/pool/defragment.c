/* Defragmentation: what is free is merged, blocks are moved so that pages become idle, idle pages
 * go back to the driver, and those that stay are put side by side: when asked, or by a policy
 * within the pool's own calls. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cenote/movable.h"
#include "pool/compact.h"

#define PAGES_AT_ONCE 16   /* put side by side, or returned, between two looks at the clock */
#define EACH_US       1000 /* for what the pool does by itself, unless said otherwise */
#define LOOK_EVERY    64   /* frees between two looks at the threshold, at least ... */
#define LOOK_MOST     4096 /* ... and at most, when nothing could be done the last times */

/* --- a pool as a whole --- */

typedef struct work {
    cen_pool *pool;
    const cen_defragment_options *options;
    uint64_t deadline;
    cen_defragment_report report;
} work;

static bool out_of_time(work *w) {
    bool late = w->deadline && ceni_pool_now_us(w->pool) >= w->deadline;
    w->report.out_of_time = w->report.out_of_time || late;
    return w->report.out_of_time;
}

static cen_status merge(const work *w) {
    ceni_magazines_flush(w->pool);
    ceni_pool_settle(w->pool, true);
    return w->options->wait ? ceni_pool_drain(w->pool) : CEN_OK;
}

static cen_status move(work *w, bool borrowed) {
    ceni_round round = {
        .pool = w->pool, .borrowed = borrowed, .enough = UINT64_MAX, .deadline = w->deadline};
    cen_status status = borrowed ? ceni_round_leave(&round) : ceni_round_run(&round);
    ceni_round_close(&round);
    w->report.moved_bytes += round.moved_bytes;
    w->report.moved_blocks += round.moved_blocks;
    w->report.pinned_bytes = round.pinned_bytes;
    w->report.out_of_time = round.out_of_time;
    return status;
}

/* Home from borrowed pages first, then together. */
static cen_status compact(work *w) {
    cen_pool *pool = w->pool;
    cen_status status = CEN_OK;
    if (pool->movable_live && pool->stats.borrowed_bytes) {
        status = move(w, true);
    }
    if (!status && pool->movable_live && !w->report.out_of_time) {
        status = move(w, false);
    }
    bool wait = !status && w->options->wait && w->report.moved_blocks;
    return wait ? ceni_pool_drain(pool) : status;
}

/* Borrowed pages first, and some at a time. */
static void return_idle(work *w) {
    cen_pool *pool = w->pool;
    uint64_t keep = w->options->keep_bytes, *reserved = &pool->stats.reserved_bytes,
             before = *reserved;
    uint64_t part = before > keep ? (before - keep) / PAGES_AT_ONCE : 0;
    part = part > pool->granularity ? part : pool->granularity;
    while (*reserved > keep && !out_of_time(w)) {
        uint64_t most = ceni_least(part, *reserved - keep);
        if (!ceni_pool_release_home(pool, NULL, most) &&
            !ceni_pool_release_idle(pool, *reserved - most)) {
            break;
        }
    }
    w->report.returned_bytes = before - *reserved;
}

/* Behind the moves of a moment ago, unless they were waited for: then anyone may have the result.
 * Idle pages that could not be returned yet, though they should be, are left for the next time. */
static void regroup(work *w) {
    cen_pool *pool = w->pool;
    if (pool->stats.reserved_bytes > w->options->keep_bytes) {
        return;
    }
    ceni_pstream *stream = w->options->wait ? NULL : pool->mover;
    uint64_t before = pool->stats.remapped_bytes;
    while (pool->vmm && !out_of_time(w) &&
           !ceni_line_regroup(pool, &pool->shared.lines[CENI_LARGE], ceni_pool_largest_free(pool),
                              w->deadline ? PAGES_AT_ONCE : SIZE_MAX, stream)) {
    }
    w->report.regrouped_bytes = pool->stats.remapped_bytes - before;
}

static cen_status defragment(cen_pool *pool, const cen_defragment_options *options,
                             cen_defragment_report *report) {
    uint64_t start = ceni_now_ns();
    work w = {
        .pool = pool, .options = options, .deadline = ceni_deadline(pool, options->budget_us)};
    w.report.largest_before = ceni_pool_largest_free(pool);
    w.report.reserved_before = pool->stats.reserved_bytes;
    cen_status status = merge(&w);
    if (!status && options->compact) {
        status = compact(&w);
    }
    if (!status) {
        return_idle(&w);
        regroup(&w);
    }
    w.report.largest_after = ceni_pool_largest_free(pool);
    w.report.reserved_after = pool->stats.reserved_bytes;
    w.report.ns = ceni_now_ns() - start;
    pool->stats.defragmentations++;
    pool->stats.moved_bytes += w.report.moved_bytes;
    *report = w.report;
    return status;
}

/* What the caller's version of the options says; the rest is 0. */
static cen_defragment_options given(const cen_defragment_options *options) {
    cen_defragment_options all = {0};
    if (options) {
        memcpy(&all, options, ceni_least(options->size, sizeof all));
    }
    return all;
}

cen_status cen_pool_defragment(cen_pool *pool, const cen_defragment_options *options,
                               cen_defragment_report *report) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_defragment");
    if (!status && options && options->size < sizeof options->size) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_pool_defragment: options.size is not set");
    }
    if (status) {
        return status;
    }
    cen_defragment_options all = given(options);
    cen_defragment_report done;
    ceni_pool_enter(pool);
    status = pool->capturing
                 ? ceni_fail(CEN_ERR_CAPTURE, "cen_pool_defragment: a stream is capturing")
                 : defragment(pool, &all, &done);
    ceni_lock_leave(&pool->lock);
    if (status == CEN_ERR_HOST_MEMORY) {
        (void)ceni_fail(status, "cen_pool_defragment: no memory");
    }
    if (!status && report) {
        *report = done;
    }
    return status;
}

/* --- by itself --- */

struct ceni_habit {
    cen_defragment_policy policy;
    uint64_t next_us;        /* when it is time again */
    uint64_t look_at, every; /* pool->freed when the threshold is looked at, and how often */
};

static bool is_ragged(cen_pool *pool, double threshold) {
    uint64_t free_bytes = 0, largest = 0;
    for (const ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        if (ceni_arena_open_to_all(l->arena)) {
            uint64_t of_line = ceni_line_largest(l);
            largest = of_line > largest ? of_line : largest;
            free_bytes += ceni_line_free(l);
        }
    }
    return free_bytes >= pool->stats.reserved_bytes / 16 &&
           (double)largest < (1 - threshold) * (double)free_bytes;
}

void ceni_pool_habit(cen_pool *pool) {
    struct ceni_habit *h = pool->habit;
    const cen_defragment_policy *p = &h->policy;
    if (pool->capturing) {
        return;
    }
    bool due = p->interval_us && ceni_pool_now_us(pool) >= h->next_us;
    bool look = p->threshold > 0 && pool->freed >= h->look_at;
    if (look) {
        h->look_at = pool->freed + h->every;
        look = is_ragged(pool, p->threshold);
    }
    if (!due && !look) {
        return;
    }
    ceni_pool_unpark(pool);
    cen_defragment_report report;
    (void)defragment(pool, &p->each, &report); /* what could be done is done */
    h->next_us = ceni_pool_now_us(pool) + p->interval_us;
    if (look) { /* what does not help is done less often */
        bool helped = report.moved_bytes || report.returned_bytes || report.regrouped_bytes ||
                      !is_ragged(pool, p->threshold);
        h->every = helped ? LOOK_EVERY : ceni_least(2 * h->every, LOOK_MOST);
        h->look_at = pool->freed + h->every;
    }
}

void ceni_habit_close(cen_pool *pool) {
    ceni_free(pool->habit);
    pool->habit = NULL;
}

static cen_status refuse_policy(const cen_defragment_policy *policy) {
    if (policy && policy->size < sizeof policy->size) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_set_defragment: policy.size is not set");
    }
    if (policy && policy->size >= offsetof(cen_defragment_policy, each) &&
        !(policy->threshold >= 0 && policy->threshold <= 1)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_set_defragment: threshold is no share");
    }
    return CEN_OK;
}

cen_status cen_pool_set_defragment(cen_pool *pool, const cen_defragment_policy *policy) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_set_defragment");
    status = status ? status : refuse_policy(policy);
    if (status) {
        return status;
    }
    struct ceni_habit *habit = policy ? ceni_calloc(1, sizeof *habit) : NULL;
    if (policy && !habit) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_set_defragment: no memory");
    }
    if (habit) {
        memcpy(&habit->policy, policy, ceni_least(policy->size, sizeof *policy));
        cen_defragment_options *each = &habit->policy.each;
        each->budget_us = each->budget_us ? each->budget_us : EACH_US;
        habit->every = LOOK_EVERY;
        habit->next_us = ceni_pool_now_us(pool) + policy->interval_us;
    }
    ceni_pool_enter(pool);
    ceni_habit_close(pool);
    pool->habit = habit;
    ceni_lock_leave(&pool->lock);
    return CEN_OK;
}
