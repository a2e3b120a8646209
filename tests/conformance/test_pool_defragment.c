/* Defragmentation: what it moves, returns and puts side by side, that its report is true, and that
 * contents and the order of streams stay. */
#include "tests/conformance/movable_suite.h"

#include <math.h>

enum { BLOCKS = 64 };

static const cen_pool_options pages_of_8 = {.page_bytes = 8 * MIB, .driver_share = 1};

typedef struct herd {
    cen_movable m[BLOCKS];
    size_t bytes;
    int count;
} herd;

/* Blocks side by side, each with contents of its own. */
static herd graze(world *w, int count, size_t bytes) {
    herd h = {.bytes = bytes, .count = count};
    for (int i = 0; i < count; i++) {
        h.m[i] = make(w, bytes, 0);
        write_it(w, h.m[i], bytes, 100 + (uint32_t)i, 0);
    }
    return h;
}

static void cull(world *w, herd *h, int i) {
    OK(cen_movable_free(w->pool, h->m[i], w->streams[0]));
    h->m[i] = 0;
}

/* One of each `every` stays. */
static void thin(world *w, herd *h, int every) {
    for (int i = 0; i < h->count; i++) {
        if (i % every) {
            cull(w, h, i);
        }
    }
}

static void check_herd(world *w, const herd *h, int stream) {
    for (int i = 0; i < h->count; i++) {
        if (h->m[i]) {
            read_it(w, h->m[i], h->bytes, 100 + (uint32_t)i, stream);
        }
    }
}

static void part(world *w, herd *h) {
    check_herd(w, h, 0);
    for (int i = 0; i < h->count; i++) {
        if (h->m[i]) {
            cull(w, h, i);
        }
    }
}

static cen_defragment_report defragment(world *w, cen_defragment_options options) {
    cen_defragment_report r;
    options.size = sizeof options;
    uint64_t before = stats_of(w).reserved_bytes;
    OK(cen_pool_defragment(w->pool, &options, &r));
    sound(w);
    assert_int_equal(r.reserved_before, before);
    assert_int_equal(r.reserved_after, stats_of(w).reserved_bytes);
    assert_int_equal(r.returned_bytes, r.reserved_before - r.reserved_after);
    assert_int_equal(r.largest_after, stats_of(w).largest_free_bytes);
    assert_true(r.ns > 0);
    return r;
}

static void compaction_empties_pages(void **state) {
    world w = world_open(state, &pages_of_8);
    herd h = graze(&w, 64, MIB);
    assert_int_equal(stats_of(&w).reserved_bytes, 64 * MIB);
    thin(&w, &h, 4); /* 16 MiB, two on each of 8 pages */
    cen_defragment_report r = defragment(&w, (cen_defragment_options){.wait = true});
    assert_int_equal(r.moved_blocks, 0); /* not asked for */
    assert_int_equal(r.returned_bytes, 0);
    r = defragment(&w, (cen_defragment_options){.compact = true, .wait = true});
    assert_int_equal(r.reserved_after, 16 * MIB);
    assert_int_equal(r.moved_bytes, r.moved_blocks * MIB);
    assert_in_range(r.moved_blocks, 12, 14); /* those of 6 pages, or of a target too */
    assert_int_equal(r.pinned_bytes, 0);
    assert_false(r.out_of_time);
    assert_int_equal(r.largest_before, 3 * MIB);
    assert_int_equal(r.largest_after, 0);
    check_herd(&w, &h, 1);
    r = defragment(&w, (cen_defragment_options){.compact = true, .wait = true});
    assert_int_equal(r.moved_blocks, 0); /* nothing is left to do */
    part(&w, &h);
    world_close(&w);
}

/* Blocks that lie side by side, and over the ends of pages, of all sizes. */
static void blocks_over_several_pages_move(void **state) {
    world w = world_open(state, &pages_of_8);
    herd h[3] = {graze(&w, 12, 11 * MIB + 512), graze(&w, 40, 900 * KIB), graze(&w, 64, 60000)};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < h[i].count; k++) {
            if (k % 6 > 1) {
                cull(&w, &h[i], k);
            }
        }
    }
    uint64_t live = stats_of(&w).allocated_bytes;
    cen_defragment_report r =
        defragment(&w, (cen_defragment_options){.compact = true, .wait = true});
    assert_true(r.reserved_after >= live);
    if (!w.f->plain) { /* blocks end within pages of 8 MiB */
        assert_true(r.reserved_after <= live + 5 * 8 * MIB);
    }
    for (int i = 0; i < 3; i++) {
        check_herd(&w, &h[i], i);
    }
    (void)defragment(&w, (cen_defragment_options){.compact = true, .wait = true});
    for (int i = 0; i < 3; i++) {
        part(&w, &h[i]);
    }
    world_close(&w);
}

static void pinned_and_ordinary_blocks_stay(void **state) {
    world w = world_open(state, &pages_of_8);
    herd h = graze(&w, 64, MIB);
    thin(&w, &h, 4);
    void *at[3];
    for (int i = 0; i < 3; i++) { /* on three pages */
        at[i] = pin(&w, h.m[16 * i], 1);
    }
    void *plain = get(&w, MIB, w.streams[2]);
    fill(&w, plain, MIB, 7, w.streams[2]);
    cen_defragment_report r =
        defragment(&w, (cen_defragment_options){.compact = true, .wait = true});
    assert_true(r.pinned_bytes >= 2 * MIB && r.pinned_bytes <= 3 * MIB);
    assert_in_range(r.reserved_after, 24 * MIB, 32 * MIB);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(pin(&w, h.m[16 * i], 1), at[i]);
        unpin(&w, h.m[16 * i], 1);
        unpin(&w, h.m[16 * i], 1);
    }
    check(&w, plain, MIB, 7, w.streams[2]);
    OK(cen_pool_free(w.pool, plain, w.streams[2]));
    check_herd(&w, &h, 3);
    r = defragment(&w, (cen_defragment_options){.compact = true, .wait = true});
    assert_int_equal(r.reserved_after, 16 * MIB);
    part(&w, &h);
    world_close(&w);
}

/* Without waiting, with work of several streams held: contents are right behind it, and the pages
 * go back once it is done. */
static void work_in_flight_goes_on(void **state) {
    world w = world_open(state, &pages_of_8);
    herd h = graze(&w, 64, MIB);
    sync_all(&w);
    for (int i = 0; i < 3; i++) {
        hold(&w, i);
    }
    for (int i = 0; i < 64; i += 4) { /* rewritten by one, read by another, neither done */
        cen_stream s = w.streams[i % 3];
        fill(&w, pin(&w, h.m[i], i % 3), MIB, 100 + (uint32_t)i, s);
        unpin(&w, h.m[i], i % 3);
    }
    thin(&w, &h, 4);
    cen_defragment_report r = defragment(&w, (cen_defragment_options){.compact = true});
    assert_true(r.moved_blocks > 0);
    if (w.f->host) {
        FAILS(CEN_ERR_NOT_READY, cen_stream_query(w.device, w.streams[0]));
        assert_int_equal(r.returned_bytes, 0);
    }
    void *over[4]; /* what was left is written at once */
    for (uint32_t i = 0; i < 4; i++) {
        over[i] = get(&w, 6 * MIB, w.streams[3]);
        fill(&w, over[i], 6 * MIB, i, w.streams[3]);
    }
    check_herd(&w, &h, 3);
    for (uint32_t i = 0; i < 4; i++) {
        check(&w, over[i], 6 * MIB, i, w.streams[3]);
        OK(cen_pool_free(w.pool, over[i], w.streams[3]));
    }
    sync_all(&w);
    r = defragment(&w, (cen_defragment_options){.compact = true, .wait = true});
    assert_int_equal(r.reserved_after, 16 * MIB);
    part(&w, &h);
    world_close(&w);
}

static void idle_pages_come_side_by_side(void **state) {
    world w = world_open(state, &(cen_pool_options){.page_bytes = 2 * MIB, .driver_share = 1});
    herd h = graze(&w, 32, 2 * MIB);
    thin(&w, &h, 2);
    if (w.f->plain) {
        cen_defragment_report r =
            defragment(&w, (cen_defragment_options){.keep_bytes = UINT64_MAX, .wait = true});
        assert_int_equal(r.regrouped_bytes, 0);
        assert_int_equal(r.returned_bytes, 0);
        part(&w, &h);
        world_close(&w);
        return;
    }
    cen_defragment_report r =
        defragment(&w, (cen_defragment_options){.keep_bytes = 48 * MIB, .wait = true});
    assert_int_equal(r.returned_bytes, 16 * MIB);
    assert_int_equal(r.largest_before, 2 * MIB);
    assert_int_equal(r.largest_after, 16 * MIB);
    assert_in_range(r.regrouped_bytes, 14 * MIB, 16 * MIB);
    uint64_t calls = stats_of(&w).driver_calls;
    void *large = get(&w, 16 * MIB, w.streams[1]);
    fill(&w, large, 16 * MIB, 1, w.streams[1]);
    check(&w, large, 16 * MIB, 1, w.streams[1]);
    assert_int_equal(stats_of(&w).driver_calls, calls);
    check_herd(&w, &h, 0);
    r = defragment(&w, (cen_defragment_options){.keep_bytes = UINT64_MAX});
    assert_int_equal(r.regrouped_bytes, 0);
    OK(cen_pool_free(w.pool, large, w.streams[1]));
    part(&w, &h);
    world_close(&w);
}

/* Idle pages that were left by moves a moment ago are put side by side behind those. */
static void moved_then_regrouped(void **state) {
    world w = world_open(state, &pages_of_8);
    herd h = graze(&w, 64, MIB);
    thin(&w, &h, 4);
    hold(&w, 0);
    write_it(&w, h.m[0], MIB, 100, 0);
    cen_defragment_report r =
        defragment(&w, (cen_defragment_options){.keep_bytes = UINT64_MAX, .compact = true});
    assert_int_equal(r.returned_bytes, 0);
    if (!w.f->plain) {
        assert_int_equal(r.largest_after, 48 * MIB);
        void *large = get(&w, 48 * MIB, w.streams[2]);
        fill(&w, large, 48 * MIB, 5, w.streams[2]);
        check_herd(&w, &h, 1);
        check(&w, large, 48 * MIB, 5, w.streams[2]);
        OK(cen_pool_free(w.pool, large, w.streams[2]));
    }
    part(&w, &h);
    world_close(&w);
}

/* An allocation that would fail for want of whole pages has blocks moved. */
static void before_failing_blocks_move(void **state) {
    cen_pool_options options = pages_of_8;
    options.limit_bytes = 64 * MIB;
    world w = world_open(state, &options);
    herd h = graze(&w, 64, MIB);
    thin(&w, &h, 4);
    void *large = NULL;
    suite_log_reset();
    cen_status status = cen_pool_alloc(w.pool, 48 * MIB, w.streams[1], &large);
    assert_int_equal(status, w.f->plain ? CEN_ERR_DEVICE_MEMORY : CEN_OK);
    if (large) {
        fill(&w, large, 48 * MIB, 1, w.streams[1]);
        check_herd(&w, &h, 2);
        check(&w, large, 48 * MIB, 1, w.streams[1]);
        OK(cen_pool_free(w.pool, large, w.streams[1]));
    }
    part(&w, &h);
    world_close(&w);
}

/* --- time --- */

typedef struct fake_clock {
    uint64_t now, step;
} fake_clock;

static uint64_t tell(void *arg) {
    fake_clock *c = arg;
    return c->now += c->step;
}

static void a_budget_ends_it(void **state) {
    fake_clock c = {.now = 1};
    cen_pool_options options = pages_of_8;
    options.clock_us = tell;
    options.clock_arg = &c;
    world w = world_open(state, &options);
    herd h = graze(&w, 64, MIB);
    thin(&w, &h, 4);
    c.step = 10;
    const cen_defragment_options none = {.compact = true, .wait = true, .budget_us = 5};
    cen_defragment_report r = defragment(&w, none);
    assert_true(r.out_of_time);
    assert_int_equal(r.moved_blocks, 0);
    assert_int_equal(r.returned_bytes, 0);
    const cen_defragment_options some = {.compact = true, .wait = true, .budget_us = 25};
    r = defragment(&w, some); /* time for two looks, or pages */
    assert_true(r.out_of_time);
    assert_in_range(r.moved_blocks, 1, 5);
    int rounds = 0;
    do {
        r = defragment(&w, some);
    } while (r.out_of_time && ++rounds < 100);
    assert_int_equal(stats_of(&w).reserved_bytes, 64 * MIB); /* never came to returning any */
    r = defragment(&w, (cen_defragment_options){.wait = true});
    assert_false(r.out_of_time);
    check_herd(&w, &h, 1);
    part(&w, &h);
    world_close(&w);
}

static void a_policy_by_time(void **state) {
    fake_clock c = {.now = 1000};
    cen_pool_options options = pages_of_8;
    options.clock_us = tell;
    options.clock_arg = &c;
    world w = world_open(state, &options);
    cen_defragment_policy p = {.size = sizeof p, .interval_us = 500};
    p.each = (cen_defragment_options){.compact = true, .wait = true};
    OK(cen_pool_set_defragment(w.pool, &p));
    herd h = graze(&w, 64, MIB);
    thin(&w, &h, 4);
    sync_all(&w);
    assert_int_equal(stats_of(&w).reserved_bytes, 64 * MIB); /* no time passed */
    c.now += 499;
    void *block = get(&w, 100 * KIB, w.streams[0]);
    uint64_t reserved = stats_of(&w).reserved_bytes;
    assert_true(reserved >= 64 * MIB);
    c.now += 1;
    void *tiny = get(&w, 100, w.streams[0]); /* may be served without the lock */
    OK(cen_pool_free(w.pool, block, w.streams[0]));
    assert_true(stats_of(&w).reserved_bytes <= 32 * MIB);
    OK(cen_pool_free(w.pool, tiny, w.streams[0]));
    check_herd(&w, &h, 1);
    /* Not while a stream captures, and not when it was called off. */
    herd more = graze(&w, 32, MIB);
    thin(&w, &more, 4);
    reserved = stats_of(&w).reserved_bytes;
    OK(cen_pool_capture_begin(w.pool, w.streams[3], 1));
    c.now += 1000;
    cull(&w, &h, 0);
    assert_int_equal(stats_of(&w).reserved_bytes, reserved);
    OK(cen_pool_capture_end(w.pool, w.streams[3]));
    OK(cen_pool_set_defragment(w.pool, NULL));
    c.now += 1000;
    cull(&w, &h, 4);
    assert_int_equal(stats_of(&w).reserved_bytes, reserved);
    part(&w, &h);
    part(&w, &more);
    world_close(&w);
}

static void a_policy_by_threshold(void **state) {
    world w = world_open(state, &pages_of_8);
    cen_defragment_policy p = {.size = sizeof p, .threshold = 0.5};
    p.each = (cen_defragment_options){.compact = true, .wait = true, .budget_us = 60000000};
    OK(cen_pool_set_defragment(w.pool, &p));
    herd h = graze(&w, 64, MIB);
    uint64_t reserved = stats_of(&w).reserved_bytes;
    thin(&w, &h, 4);
    for (int i = 0; i < 200 && stats_of(&w).reserved_bytes > reserved / 2; i++) {
        void *block = get(&w, 40 * KIB, w.streams[0]); /* it looks now and then */
        OK(cen_pool_free(w.pool, block, w.streams[0]));
    }
    assert_true(stats_of(&w).reserved_bytes <= reserved / 2);
    /* One large free block is not what it is for. */
    void *large = get(&w, 64 * MIB, w.streams[0]);
    OK(cen_pool_free(w.pool, large, w.streams[0]));
    reserved = stats_of(&w).reserved_bytes;
    for (int i = 0; i < 200; i++) {
        void *block = get(&w, 40 * KIB, w.streams[0]);
        OK(cen_pool_free(w.pool, block, w.streams[0]));
    }
    assert_int_equal(stats_of(&w).reserved_bytes, reserved);
    part(&w, &h);
    world_close(&w);
}

static void misuse_is_refused(void **state) {
    world w = world_open(state, NULL);
    cen_defragment_options none = {0};
    cen_defragment_policy p = {.size = sizeof p, .threshold = NAN};
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, cen_pool_defragment(NULL, NULL, NULL));
    assert_logged("pool is NULL");
    FAILS(CEN_ERR_INVALID, cen_pool_defragment(w.pool, &none, NULL));
    assert_logged("options.size");
    FAILS(CEN_ERR_INVALID, cen_pool_set_defragment(w.pool, &p));
    assert_logged("threshold");
    p.threshold = 1.5;
    FAILS(CEN_ERR_INVALID, cen_pool_set_defragment(w.pool, &p));
    assert_logged("threshold");
    p.size = 0;
    FAILS(CEN_ERR_INVALID, cen_pool_set_defragment(w.pool, &p));
    assert_logged("policy.size");
    OK(cen_pool_defragment(w.pool, NULL, NULL)); /* of an empty pool */
    OK(cen_pool_set_defragment(w.pool, NULL));
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(compaction_empties_pages),
    SUITE_TEST(blocks_over_several_pages_move),
    SUITE_TEST(pinned_and_ordinary_blocks_stay),
    SUITE_TEST(work_in_flight_goes_on),
    SUITE_TEST(idle_pages_come_side_by_side),
    SUITE_TEST(moved_then_regrouped),
    SUITE_TEST(before_failing_blocks_move),
    SUITE_TEST(a_budget_ends_it),
    SUITE_TEST(a_policy_by_time),
    SUITE_TEST(a_policy_by_threshold),
    SUITE_TEST(misuse_is_refused),
};
SUITE_MAIN(tests)
