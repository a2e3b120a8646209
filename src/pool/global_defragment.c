/* Defragmentation over all devices: what was lent comes home, each local pool is defragmented, and
 * what the global pool keeps goes back. */
#include "pool/global_int.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* What is left of the budget, by the local pools' clock, as theirs are. */
static uint64_t left_us(const ceni_member *m, const cen_defragment_options *options,
                        uint64_t start) {
    uint64_t spent = ceni_pool_now_us(m->pool) - start;
    return !options->budget_us              ? 0
           : spent + 1 < options->budget_us ? options->budget_us - spent
                                            : 1;
}

static void add_report(cen_defragment_report *sum, const cen_defragment_report *one) {
    sum->returned_bytes += one->returned_bytes;
    sum->regrouped_bytes += one->regrouped_bytes;
    sum->moved_bytes += one->moved_bytes;
    sum->moved_blocks += one->moved_blocks;
    sum->pinned_bytes += one->pinned_bytes;
    sum->reserved_before += one->reserved_before;
    sum->reserved_after += one->reserved_after;
    sum->out_of_time = sum->out_of_time || one->out_of_time;
}

static uint64_t largest(cen_global *g) {
    cen_global_room room = {0};
    return cen_global_available(g, CEN_GLOBAL_ALL, &room) ? 0 : room.largest_bytes;
}

/* One local pool: first its movable blocks leave what is borrowed, as far as there is room. */
static cen_status defragment_member(ceni_member *m, const cen_defragment_options *options,
                                    uint64_t start, cen_defragment_report *sum) {
    cen_defragment_options each = *options;
    cen_defragment_report one;
    if (options->compact) {
        ceni_pool_enter(m->pool);
        sum->moved_bytes += ceni_pool_bring_home(m->pool, left_us(m, options, start));
        ceni_lock_leave(&m->pool->lock);
    }
    each.budget_us = left_us(m, options, start);
    cen_status status = cen_pool_defragment(m->pool, &each, &one);
    if (!status) {
        add_report(sum, &one);
    }
    return status;
}

cen_status cen_global_defragment(cen_global *global, const cen_defragment_options *options,
                                 cen_defragment_report *report) {
    cen_status status = ceni_global_refuse(global, 0, "cen_global_defragment");
    if (!status && options && options->size < sizeof(size_t)) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_global_defragment: options.size is not set");
    }
    if (!status && ceni_global_capturing(global)) {
        status = ceni_fail(CEN_ERR_CAPTURE, "cen_global_defragment: a stream is capturing");
    }
    if (status) {
        return status;
    }
    cen_defragment_options own = {.size = sizeof own};
    if (options) {
        memcpy(&own, options, options->size < sizeof own ? options->size : sizeof own);
        own.size = sizeof own;
    }
    uint64_t start = ceni_now_ns(), start_us = ceni_pool_now_us(global->members[0].pool);
    cen_defragment_report sum = {.largest_before = largest(global)};
    (void)ceni_spans_finish(global, own.wait);
    if (own.keep_bytes != UINT64_MAX) {
        sum.returned_bytes += ceni_spans_return(global, CEN_GLOBAL_ALL, UINT64_MAX);
    }
    for (size_t i = 0; i < global->count; i++) {
        cen_status one = atomic_load(&global->members[i].lost)
                             ? CEN_OK
                             : defragment_member(&global->members[i], &own, start_us, &sum);
        status = status ? status : one;
    }
    sum.largest_after = largest(global);
    sum.ns = ceni_now_ns() - start;
    if (!status && report) {
        *report = sum;
    }
    return status;
}
