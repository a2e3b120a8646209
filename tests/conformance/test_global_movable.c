/* Movable blocks on borrowed pages: they make way when the lender wants its memory back, and come
 * home when there is room. */
#include "tests/conformance/movable_suite.h"

#include "pool/pool_int.h"

enum { BLOCKS = 96, CAPACITY = 64 };

/* Two small devices, and the local pool of the first, which is full and has borrowed. */
typedef struct lent {
    world w;
    cen_device *peer;
    cen_global *global;
    cen_movable m[BLOCKS];
} lent;

static lent borrow(void **state) {
    fixture *f = *state;
    if (!f->host || f->plain) {
        suite_skip("small devices with virtual memory management: the host's");
    }
    lent t = {.w = {.f = f}};
    const cen_host_options small = {.capacity = CAPACITY * MIB};
    cen_device_close(f->device);
    f->device = t.w.device = suite_open(f, 0, &small);
    t.peer = suite_open(f, 1, &small);
    void *pinned;
    OK(cen_pinned_alloc(t.w.device, sizeof *t.w.mismatches, &pinned));
    t.w.mismatches = pinned;
    *t.w.mismatches = 0;
    for (int i = 0; i < STREAMS; i++) {
        OK(cen_stream_create(t.w.device, 0, &t.w.streams[i]));
    }
    cen_device *devices[] = {t.w.device, t.peer};
    cen_global_options options = {.size = sizeof options};
    options.pool =
        (cen_pool_options){.size = sizeof options.pool, .page_bytes = 4 * MIB, .driver_share = 1};
    OK(cen_global_create(devices, 2, &options, &t.global));
    t.w.pool = cen_global_pool(t.global, 0);
    for (int i = 0; i < BLOCKS; i++) {
        t.m[i] = make(&t.w, MIB, 0);
        write_it(&t.w, t.m[i], MIB, (uint32_t)i, 0);
    }
    assert_int_equal(stats_of(&t.w).borrowed_bytes, (BLOCKS - CAPACITY) * MIB);
    return t;
}

static void check_all(lent *t, int stream) {
    for (int i = 0; i < BLOCKS; i++) {
        if (t->m[i]) {
            read_it(&t->w, t->m[i], MIB, (uint32_t)i, stream);
        }
    }
}

static void drop(lent *t, int i) {
    OK(cen_movable_free(t->w.pool, t->m[i], t->w.streams[0]));
    t->m[i] = 0;
}

/* Every second of the first 64: half of the device's own memory, in pieces. */
static void thin(lent *t) {
    for (int i = 0; i < CAPACITY; i += 2) {
        drop(t, i);
    }
}

static void finish(lent *t) {
    check_all(t, 0);
    sync_all(&t->w);
    assert_int_equal(*t->w.mismatches, 0);
    for (int i = 0; i < BLOCKS; i++) {
        if (t->m[i]) {
            drop(t, i);
        }
    }
    sound(&t->w);
    OK(cen_global_destroy(t->global));
    assert_int_equal(suite_free_bytes(t->w.device), CAPACITY * MIB);
    assert_int_equal(suite_free_bytes(t->peer), CAPACITY * MIB);
    for (int i = 0; i < STREAMS; i++) {
        OK(cen_stream_destroy(t->w.device, t->w.streams[i]));
    }
    OK(cen_pinned_free(t->w.device, t->w.mismatches));
    cen_device_close(t->peer);
}

static void what_was_lent_comes_back(void **state) {
    lent t = borrow(state);
    uint64_t returned = 1;
    OK(cen_global_reclaim(t.global, 1, 8 * MIB, true, &returned));
    assert_int_equal(returned, 0); /* there is nowhere to go */
    sound(&t.w);
    thin(&t);
    hold(&t.w, 0);
    for (int i = CAPACITY; i < BLOCKS; i++) {
        write_it(&t.w, t.m[i], MIB, (uint32_t)i, 0);
    }
    OK(cen_global_reclaim(t.global, 1, 8 * MIB, false, &returned));
    assert_int_equal(returned, 0); /* moved, behind work that is held */
    check_all(&t, 1);
    let_go(&t.w, 0);
    OK(cen_global_reclaim(t.global, 1, 8 * MIB, true, &returned));
    assert_int_equal(returned, 8 * MIB);
    assert_int_equal(stats_of(&t.w).borrowed_bytes, 24 * MIB);
    OK(cen_global_reclaim(t.global, 1, UINT64_MAX, true, &returned));
    assert_int_equal(returned, 24 * MIB);
    assert_int_equal(stats_of(&t.w).borrowed_bytes, 0);
    assert_int_equal(suite_free_bytes(t.peer), CAPACITY * MIB);
    sound(&t.w);
    finish(&t);
}

static uint64_t bring_home(lent *t) {
    ceni_pool_enter(t->w.pool);
    uint64_t moved = ceni_pool_bring_home(t->w.pool, 0);
    ceni_lock_leave(&t->w.pool->lock);
    sound(&t->w);
    return moved;
}

/* Whole pages of the device's own went back to the driver: new ones are made for those that come.
 */
static void blocks_come_home(void **state) {
    lent t = borrow(state);
    assert_int_equal(bring_home(&t), 0);
    for (int i = 0; i < 48; i++) {
        drop(&t, i);
    }
    sync_all(&t.w);
    OK(cen_pool_trim(t.w.pool, 0, true, NULL));
    assert_true(suite_free_bytes(t.w.device) >= 32 * MIB);
    void *stays = pin(&t.w, t.m[90], 1);
    uint64_t moved = bring_home(&t);
    assert_in_range(moved, 28 * MIB, 31 * MIB);
    check_all(&t, 1);
    sync_all(&t.w);
    bring_home(&t);
    assert_in_range(stats_of(&t.w).borrowed_bytes, 2 * MIB, 4 * MIB); /* the pinned block's */
    assert_ptr_equal(pin(&t.w, t.m[90], 2), stays);
    unpin(&t.w, t.m[90], 2);
    unpin(&t.w, t.m[90], 1);
    const cen_defragment_options all = {.size = sizeof all, .compact = true, .wait = true};
    OK(cen_pool_defragment(t.w.pool, &all, NULL));
    assert_int_equal(stats_of(&t.w).borrowed_bytes, 0);
    finish(&t);
}

static void a_reclaim_with_pins_says_what_it_got(void **state) {
    lent t = borrow(state);
    thin(&t);
    void *at[2] = {pin(&t.w, t.m[64], 1), pin(&t.w, t.m[95], 1)};
    uint64_t returned = 0;
    OK(cen_global_reclaim(t.global, 1, UINT64_MAX, true, &returned));
    assert_in_range(returned, 24 * MIB, 28 * MIB);
    assert_int_equal(stats_of(&t.w).borrowed_bytes, 32 * MIB - returned);
    assert_ptr_equal(pin(&t.w, t.m[64], 1), at[0]);
    assert_ptr_equal(pin(&t.w, t.m[95], 1), at[1]);
    for (int i = 0; i < 4; i++) {
        unpin(&t.w, t.m[i % 2 ? 95 : 64], 1);
    }
    finish(&t);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(what_was_lent_comes_back),
    SUITE_TEST(blocks_come_home),
    SUITE_TEST(a_reclaim_with_pins_says_what_it_got),
};
SUITE_MAIN(tests)
