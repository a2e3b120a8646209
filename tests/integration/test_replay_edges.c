/* Histories at the edges: what recordings lack, repeat or leave open, what a cap refuses, and
 * memory that runs out while replaying. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/fault.h"
#include "cenote/cenote.h"
#include "cli/replay.h"
#include "tests/integration/history.h"

#define MIB (1ull << 20)

static replay_recorded examine(const cen_snapshot_device *d) {
    replay_recorded r;
    assert_int_equal(replay_examine(d, &r), CEN_OK);
    return r;
}

static replay_result play(const cen_snapshot_device *d, uint64_t cap) {
    replay_recorded r = examine(d);
    replay_options options = {.cap_bytes = cap};
    replay_result result;
    assert_int_equal(replay_run(d, &r, &options, &result), CEN_OK);
    assert_int_equal(result.requested_peak_bytes,
                     cap ? result.requested_peak_bytes : r.requested_peak_bytes);
    return result;
}

static void without_times_there_are_no_shares(void **state) {
    history h = {0};
    history_add(&h, CEN_ACTION_ALLOC, 1, 3 * MIB, 0);
    history_free(&h, 1, 3 * MIB, 0);
    cen_snapshot_device d = history_device(&h);
    assert_true(examine(&d).seconds == 0 && examine(&d).second_half_seconds == 0);
    assert_true(play(&d, 0).driver_seconds > 0);
    free(h.events);
}

static void a_history_may_hold_no_operation(void **state) {
    history h = {.time_us = 1};
    history_add(&h, CEN_ACTION_SNAPSHOT, 0, 0, 0);
    history_add(&h, CEN_ACTION_OOM, 0, 64 * MIB, 0);
    cen_snapshot_device d = history_device(&h);
    assert_int_equal(examine(&d).moment, 1);
    assert_int_equal(play(&d, 0).requested_peak_bytes, 0);
    assert_int_equal(play(&d, 64 * MIB).cap.fit, REPLAY_FITS);
    assert_int_equal(play(&d, 32 * MIB).cap.fit, REPLAY_LACKS_FAILED);
    free(h.events);
}

static void odd_frees_change_nothing_and_are_counted(void **state) {
    history h = {.time_us = 1};
    history_add(&h, CEN_ACTION_ALLOC, 1, 2 * MIB, 0);
    history_add(&h, CEN_ACTION_ALLOC, 2, 0, 0); /* no bytes, no block */
    history_add(&h, CEN_ACTION_FREE_REQUESTED, 2, 0, 0);
    history_add(&h, CEN_ACTION_FREE_REQUESTED, 1, 2 * MIB, 0);
    history_add(&h, CEN_ACTION_FREE_REQUESTED, 1, 2 * MIB, 0);
    history_add(&h, CEN_ACTION_ALLOC, 3, MIB, 7);
    history_add(&h, CEN_ACTION_FREE_COMPLETED, 1, 2 * MIB, 0);
    history_add(&h, CEN_ACTION_FREE_COMPLETED, 2, 0, 0);
    history_free(&h, 1, 2 * MIB, 0);                       /* a second time */
    history_free(&h, 99, MIB, 0);                          /* of nothing */
    history_add(&h, CEN_ACTION_ALLOC, 3, 5 * MIB, 7);      /* its free was lost */
    history_add(&h, CEN_ACTION_FREE_REQUESTED, 3, MIB, 7); /* and this one never completes */
    history_add(&h, CEN_ACTION_ALLOC, 3, MIB, 7);          /* the address of a pending block */
    cen_snapshot_device d = history_device(&h);
    replay_result r = play(&d, 0);
    assert_int_equal(r.requested_peak_bytes, 7 * MIB); /* as if the lost ones stay live */
    assert_int_equal(r.unknown_frees, 2);
    assert_int_equal(r.lost_frees, 2);
    assert_int_equal(r.pending_frees, 1);
    free(h.events);
}

/* What is freed on one stream and still used by another is not to be had, and not waited for. */
static void pending_blocks_are_not_waited_for(void **state) {
    history h = {.time_us = 1};
    history_add(&h, CEN_ACTION_ALLOC, 1, 40 * MIB, 0);
    history_add(&h, CEN_ACTION_FREE_REQUESTED, 1, 40 * MIB, 0);
    history_add(&h, CEN_ACTION_ALLOC, 2, 40 * MIB, 0);
    history_add(&h, CEN_ACTION_FREE_COMPLETED, 1, 40 * MIB, 0);
    cen_snapshot_device d = history_device(&h);
    replay_result r = play(&d, 64 * MIB);
    assert_int_equal(r.cap.fit, REPLAY_LACKS_SERVED);
    assert_int_equal(r.cap.event, 2);
    assert_int_equal(r.cap.pending_bytes, 40 * MIB);
    assert_true(r.cap.margin_bytes >= 16 * MIB);
    assert_int_equal(play(&d, 80 * MIB).cap.fit, REPLAY_FITS);
    free(h.events);
}

static void every_failed_request_is_tried(void **state) {
    history h = {.time_us = 1};
    history_add(&h, CEN_ACTION_ALLOC, 1, 16 * MIB, 0);
    history_add(&h, CEN_ACTION_OOM, 0, 32 * MIB, 0);
    history_add(&h, CEN_ACTION_OOM, 0, 48 * MIB, 0);
    history_add(&h, CEN_ACTION_OOM, 0, 8 * MIB, 0);
    cen_snapshot_device d = history_device(&h);
    assert_int_equal(examine(&d).moment, 3); /* the last */
    replay_cap c = play(&d, 100 * MIB).cap;
    assert_true(c.fit == REPLAY_FITS && c.tried == 3 && c.served == 3 && c.at_request);
    assert_true(c.margin_bytes <= 36 * MIB);
    c = play(&d, 60 * MIB).cap;
    assert_true(c.fit == REPLAY_LACKS_FAILED && c.tried == 2 && c.served == 1);
    assert_int_equal(c.event, 2);
    assert_int_equal(c.live_bytes, 16 * MIB);
    assert_true(c.margin_bytes >= 4 * MIB);
    free(h.events);
}

static void what_was_there_before_may_not_fit(void **state) {
    const cen_initial_block before[] = {{1, 8 * MIB, 0, CEN_NO_STACK},
                                        {2, 8 * MIB, 5, CEN_NO_STACK}};
    history h = {.time_us = 1};
    history_free(&h, 1, 8 * MIB, 0);
    cen_snapshot_device d = history_device(&h);
    d.initial = before;
    d.initial_count = 2;
    assert_int_equal(play(&d, 0).requested_peak_bytes, 16 * MIB);
    replay_cap c = play(&d, 10 * MIB).cap;
    assert_true(c.fit == REPLAY_LACKS_SERVED && c.event == SIZE_MAX);
    assert_int_equal(play(&d, 1).cap.live_bytes, 0);
    free(h.events);
}

/* A request that a cap refuses leaves no stream in a private pool: the next one is served. */
static void private_pools_under_a_cap(void **state) {
    const cen_snapshot_segment segments[] = {
        {.addr = 1ull << 30, .size = 64 * MIB, .pool_id = {0, 3}},
    };
    history h = {.time_us = 1};
    history_add(&h, CEN_ACTION_ALLOC, 1ull << 30, 16 * MIB, 4);
    history_add(&h, CEN_ACTION_ALLOC, 5, 16 * MIB, 4);
    history_add(&h, CEN_ACTION_ALLOC, (1ull << 30) + 32 * MIB, 16 * MIB, 4);
    cen_snapshot_device d = history_device(&h);
    d.segments = segments;
    d.segment_count = 1;
    replay_result r = play(&d, 0);
    assert_int_equal(r.private_ids, 1);
    r = play(&d, 40 * MIB);
    assert_true(r.cap.fit == REPLAY_LACKS_SERVED && r.cap.event == 2);
    assert_true(r.cap.margin_bytes >= 8 * MIB);
    free(h.events);
}

/* A program that ends frees much before anything completes: one pass tells which block was in use.
 */
static void many_frees_at_once(void **state) {
    enum { COUNT = 300000 };
    history h = {.time_us = 1};
    for (uint64_t i = 1; i <= COUNT; i++) {
        history_add(&h, CEN_ACTION_ALLOC, i * 512, 512, 0);
    }
    for (uint64_t i = 1; i <= COUNT; i++) {
        history_add(&h, CEN_ACTION_FREE_REQUESTED, i * 512, 512, 0);
    }
    for (uint64_t i = 1; i <= COUNT; i++) {
        history_add(&h, CEN_ACTION_FREE_COMPLETED, i * 512, 512, 0);
    }
    cen_snapshot_device d = history_device(&h);
    replay_result r = play(&d, 0);
    assert_int_equal(r.requested_peak_bytes, (uint64_t)COUNT * 512);
    assert_int_equal(r.pending_frees, 0);
    free(h.events);
}

/* Segments that came and went after the moment were not there at it. */
static void the_recorded_hole_is_of_the_moment(void **state) {
    const cen_snapshot_segment last[] = {
        {.addr = 0x10000000, .size = 32 * MIB},
        {.addr = 0x10000000 + 32 * MIB, .size = 32 * MIB}, /* beside it, but another */
    };
    history h = {.time_us = 1};
    history_add(&h, CEN_ACTION_ALLOC, 0x10000000, 8 * MIB, 0);
    history_add(&h, CEN_ACTION_ALLOC, 0x10000000 + 32 * MIB, 4 * MIB, 0);
    history_add(&h, CEN_ACTION_SEGMENT_ALLOC, 0x90000000, 512 * MIB, 0);
    history_free(&h, 0x10000000, 8 * MIB, 0);
    history_add(&h, CEN_ACTION_SEGMENT_FREE, 0x90000000, 512 * MIB, 0);
    cen_snapshot_device d = history_device(&h);
    d.segments = last;
    d.segment_count = 2;
    d.initial_reserved = 64 * MIB;
    replay_recorded r = examine(&d);
    assert_int_equal(r.moment, 2);
    assert_int_equal(r.largest_hole_bytes, 28 * MIB);
    assert_int_equal(r.reserved_peak_bytes, 576 * MIB);
    assert_int_equal(r.driver_calls, 2);
    free(h.events);
}

static void running_out_of_host_memory_is_an_error(void **state) {
    history h = {.time_us = 1};
    for (uint64_t i = 1; i <= 40; i++) {
        history_add(&h, CEN_ACTION_ALLOC, i, i * 100000, i % 3);
        if (i > 5 && i % 2) {
            history_add(&h, CEN_ACTION_FREE_REQUESTED, i - 5, 1, i % 3);
        }
        if (i > 15 && i % 2) {
            history_add(&h, CEN_ACTION_FREE_COMPLETED, i - 15, 1, i % 3);
        }
    }
    cen_snapshot_device d = history_device(&h);
    replay_recorded r = examine(&d);
    replay_options options = {.cap_bytes = 40 * MIB};
    int64_t n = 0;
    cen_status status;
    do {
        replay_result result;
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], ++n, true);
        status = replay_run(&d, &r, &options, &result);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        assert_true(status == CEN_OK || status == CEN_ERR_HOST_MEMORY);
    } while (status && n < 100000);
    assert_int_equal(status, CEN_OK);
    assert_true(n > 20);
    free(h.events);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_times_there_are_no_shares),
        cmocka_unit_test(a_history_may_hold_no_operation),
        cmocka_unit_test(odd_frees_change_nothing_and_are_counted),
        cmocka_unit_test(pending_blocks_are_not_waited_for),
        cmocka_unit_test(every_failed_request_is_tried),
        cmocka_unit_test(what_was_there_before_may_not_fit),
        cmocka_unit_test(private_pools_under_a_cap),
        cmocka_unit_test(many_frees_at_once),
        cmocka_unit_test(the_recorded_hole_is_of_the_moment),
        cmocka_unit_test(running_out_of_host_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
