/* Movable blocks: handles, pins, and moves with work in flight, whose order contents show. */
#include "tests/conformance/movable_suite.h"

static const cen_pool_options small_pages = {.page_bytes = 2 * MIB, .driver_share = 1};

static void a_handle_stands_for_a_block(void **state) {
    world w = world_open(state, &small_pages);
    const size_t sizes[] = {1, 32 * KIB, 100 * KIB, 3 * MIB + 5};
    for (int i = 0; i < 4; i++) {
        size_t bytes = 0;
        cen_movable m = make(&w, sizes[i], 0), n = make(&w, sizes[i], 0);
        assert_true(m != n);
        OK(cen_movable_size(w.pool, m, &bytes));
        assert_int_equal(bytes, sizes[i]);
        assert_int_equal(stats_of(&w).requested_bytes, 2 * sizes[i]);
        write_it(&w, m, sizes[i], 1, 0);
        write_it(&w, n, sizes[i], 2, 0);
        assert_ptr_not_equal(read_it(&w, m, sizes[i], 1, 0), read_it(&w, n, sizes[i], 2, 0));
        sound(&w);
        OK(cen_movable_free(w.pool, m, w.streams[0]));
        OK(cen_movable_free(w.pool, n, w.streams[0]));
        sound(&w);
    }
    assert_int_equal(stats_of(&w).blocks, 0);
    assert_int_equal(stats_of(&w).requested_bytes, 0);
    world_close(&w);
}

static void a_stale_handle_is_known(void **state) {
    world w = world_open(state, NULL);
    cen_movable seen[40], stale[] = {0, 1, 77, UINT64_MAX, 0};
    void *addr = &w;
    size_t bytes = 123;
    for (int i = 0; i < 40; i++) {
        seen[i] = make(&w, 50000, 0);
        for (int k = 0; k < i; k++) {
            assert_true(seen[k] != seen[i]); /* also when its entry is used again */
        }
        OK(cen_movable_free(w.pool, seen[i], w.streams[0]));
    }
    stale[4] = seen[3];
    for (int i = 0; i < 5; i++) {
        suite_log_reset();
        FAILS(CEN_ERR_NOT_FOUND, cen_movable_pin(w.pool, stale[i], w.streams[0], &addr));
        assert_logged("cen_movable_pin: no movable block");
        FAILS(CEN_ERR_NOT_FOUND, cen_movable_unpin(w.pool, stale[i], w.streams[0]));
        FAILS(CEN_ERR_NOT_FOUND, cen_movable_free(w.pool, stale[i], w.streams[0]));
        FAILS(CEN_ERR_NOT_FOUND, cen_movable_move(w.pool, stale[i]));
        FAILS(CEN_ERR_NOT_FOUND, cen_movable_size(w.pool, stale[i], &bytes));
    }
    assert_ptr_equal(addr, &w);
    assert_int_equal(bytes, 123);
    world_close(&w);
}

static void misuse_is_refused(void **state) {
    world w = world_open(state, &small_pages);
    cen_movable m = 5;
    void *addr = NULL;
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, cen_movable_alloc(NULL, 1, 0, &m));
    assert_logged("pool is NULL");
    FAILS(CEN_ERR_INVALID, cen_movable_alloc(w.pool, 0, 0, &m));
    assert_logged("bytes is 0");
    FAILS(CEN_ERR_INVALID, cen_movable_alloc(w.pool, 10, 0, NULL));
    assert_logged("handle is NULL");
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_movable_alloc(w.pool, SIZE_MAX, 0, &m));
    assert_logged("no device holds");
    assert_int_equal(m, 5);
    m = make(&w, 2 * MIB, 0);
    FAILS(CEN_ERR_INVALID, cen_movable_unpin(w.pool, m, w.streams[0]));
    assert_logged("not pinned");
    FAILS(CEN_ERR_INVALID, cen_movable_pin(w.pool, m, w.streams[0], NULL));
    assert_logged("addr is NULL");
    FAILS(CEN_ERR_INVALID, cen_movable_size(w.pool, m, NULL));
    assert_logged("bytes is NULL");
    addr = pin(&w, m, 0);
    FAILS(CEN_ERR_BUSY, cen_movable_free(w.pool, m, w.streams[0]));
    assert_logged("pinned");
    FAILS(CEN_ERR_BUSY, cen_movable_move(w.pool, m));
    assert_logged("pinned");
    FAILS(CEN_ERR_INVALID, cen_pool_free(w.pool, addr, w.streams[0]));
    assert_logged("cen_movable_free");
    FAILS(CEN_ERR_INVALID, cen_pool_use(w.pool, addr, w.streams[0]));
    assert_logged("its unpins");
    sound(&w);
    unpin(&w, m, 0);
    make_hole(&w, 4 * MIB);
    OK(cen_movable_move(w.pool, m));
    suite_log_reset();
    FAILS(CEN_ERR_DOUBLE_FREE, cen_pool_free(w.pool, addr, w.streams[0]));
    assert_logged("is free already");
    OK(cen_movable_free(w.pool, m, w.streams[0]));
    world_close(&w);
}

static void pins_nest(void **state) {
    world w = world_open(state, &small_pages);
    cen_movable m = make(&w, 2 * MIB, 0);
    void *first = pin(&w, m, 0);
    assert_ptr_equal(pin(&w, m, 1), first);
    assert_ptr_equal(pin(&w, m, 0), first);
    make_hole(&w, 4 * MIB);
    for (int i = 0; i < 3; i++) {
        FAILS(CEN_ERR_BUSY, cen_movable_move(w.pool, m));
        unpin(&w, m, i % 2);
    }
    OK(cen_movable_move(w.pool, m));
    assert_ptr_not_equal(pin(&w, m, 2), first);
    unpin(&w, m, 2);
    OK(cen_movable_free(w.pool, m, w.streams[2]));
    world_close(&w);
}

/* A chain of writers and readers on all streams, with a move between any two, held at its start. */
static void moves_follow_work_in_flight(void **state) {
    const size_t sizes[] = {40000, 2 * MIB, 7 * MIB + 12};
    world w = world_open(state, &small_pages);
    for (int i = 0; i < 3; i++) {
        cen_movable m = make(&w, sizes[i], 0);
        make_hole(&w, 12 * MIB);
        hold(&w, 0);
        write_it(&w, m, sizes[i], 1, 0);
        uint32_t seed = 1;
        for (int round = 0; round < 8; round++) {
            int here = round % STREAMS;
            void *before = pin(&w, m, 0);
            unpin(&w, m, 0);
            OK(cen_movable_move(w.pool, m));
            sound(&w);
            void *now = read_it(&w, m, sizes[i], seed, here);
            assert_ptr_not_equal(now, before);
            write_it(&w, m, sizes[i], ++seed, here);
            waits(&w, here);
        }
        OK(cen_movable_free(w.pool, m, w.streams[2]));
        sync_all(&w);
        assert_int_equal(*w.mismatches, 0);
    }
    world_close(&w);
}

/* Several streams read, the block moves, and its old place is written at once by another stream. */
static void the_old_place_waits_for_all_readers(void **state) {
    world w = world_open(state, &small_pages);
    cen_movable m = make(&w, 4 * MIB, 0);
    write_it(&w, m, 4 * MIB, 1, 0);
    make_hole(&w, 4 * MIB);
    sync_all(&w);
    for (int i = 0; i < 3; i++) {
        hold(&w, i);
        read_it(&w, m, 4 * MIB, 1, i);
    }
    void *old = pin(&w, m, 0);
    unpin(&w, m, 0);
    OK(cen_movable_move(w.pool, m));
    void *other = get(&w, 4 * MIB, w.streams[3]);
    if (other == old) { /* best fit, so it is */
        waits(&w, 0);
    }
    fill(&w, other, 4 * MIB, 2, w.streams[3]);
    check(&w, other, 4 * MIB, 2, w.streams[3]);
    read_it(&w, m, 4 * MIB, 1, 3);
    sync_all(&w);
    OK(cen_pool_free(w.pool, other, w.streams[3]));
    OK(cen_movable_free(w.pool, m, w.streams[0]));
    world_close(&w);
}

/* A block that nobody pinned yet lies where work of its stream goes on. */
static void a_fresh_block_is_its_streams(void **state) {
    world w = world_open(state, &small_pages);
    void *before = get(&w, 4 * MIB, w.streams[0]);
    make_hole(&w, 4 * MIB);
    hold(&w, 0);
    fill(&w, before, 4 * MIB, 1, w.streams[0]);
    check(&w, before, 4 * MIB, 1, w.streams[0]);
    OK(cen_pool_free(w.pool, before, w.streams[0]));
    cen_movable m = make(&w, 4 * MIB, 0);
    void *at = pin(&w, m, 0);
    assert_ptr_equal(at, before);
    unpin(&w, m, 0);
    OK(cen_movable_free(w.pool, m, w.streams[0]));
    m = make(&w, 4 * MIB, 0); /* there again, and never pinned */
    OK(cen_movable_move(w.pool, m));
    void *other = get(&w, 4 * MIB, w.streams[1]);
    assert_ptr_equal(other, before);
    fill(&w, other, 4 * MIB, 2, w.streams[1]);
    check(&w, other, 4 * MIB, 2, w.streams[1]);
    write_it(&w, m, 4 * MIB, 3, 2);
    read_it(&w, m, 4 * MIB, 3, 2);
    sync_all(&w);
    check(&w, other, 4 * MIB, 2, w.streams[1]);
    OK(cen_pool_free(w.pool, other, w.streams[1]));
    OK(cen_movable_free(w.pool, m, w.streams[2]));
    world_close(&w);
}

/* What streams that unpinned it still do comes before the reuse of its memory. */
static void a_free_waits_for_those_who_unpinned(void **state) {
    world w = world_open(state, &small_pages);
    cen_movable m = make(&w, 4 * MIB, 0);
    write_it(&w, m, 4 * MIB, 1, 0);
    sync_all(&w);
    hold(&w, 1);
    void *old = read_it(&w, m, 4 * MIB, 1, 1);
    OK(cen_movable_free(w.pool, m, w.streams[0]));
    sound(&w);
    if (w.f->host) {
        assert_int_equal(stats_of(&w).pending_blocks, 1);
    }
    void *other = get(&w, 4 * MIB, w.streams[0]);
    if (w.f->host) {
        assert_ptr_not_equal(other, old);
    }
    fill(&w, other, 4 * MIB, 2, w.streams[0]);
    sync_all(&w);
    void *again = get(&w, 4 * MIB, w.streams[0]);
    fill(&w, again, 4 * MIB, 3, w.streams[0]);
    check(&w, other, 4 * MIB, 2, w.streams[0]);
    OK(cen_pool_free(w.pool, other, w.streams[0]));
    OK(cen_pool_free(w.pool, again, w.streams[0]));
    world_close(&w);
}

static void nothing_moves_under_a_capture(void **state) {
    world w = world_open(state, &small_pages);
    cen_movable m = make(&w, 4 * MIB, 0), n = make(&w, 2 * MIB, 0), refused = 9;
    make_hole(&w, 8 * MIB);
    hold(&w, 0);
    write_it(&w, m, 4 * MIB, 1, 0);
    write_it(&w, n, 2 * MIB, 2, 0);
    OK(cen_movable_move(w.pool, m));
    void *pinned = pin(&w, n, 1), *addr = NULL;
    OK(cen_pool_capture_begin(w.pool, w.streams[1], 1));
    suite_log_reset();
    FAILS(CEN_ERR_CAPTURE, cen_movable_alloc(w.pool, MIB, w.streams[1], &refused));
    assert_logged("private pool");
    FAILS(CEN_ERR_CAPTURE, cen_movable_move(w.pool, m));
    assert_logged("captures");
    FAILS(CEN_ERR_CAPTURE, cen_pool_defragment(w.pool, NULL, NULL));
    assert_logged("capturing");
    if (w.f->host) { /* the move waits behind stream 0 */
        FAILS(CEN_ERR_CAPTURE, cen_movable_pin(w.pool, m, w.streams[1], &addr));
        assert_logged("last move");
    }
    assert_ptr_equal(pin(&w, n, 1), pinned); /* not moved */
    unpin(&w, n, 1);
    cen_movable other = make(&w, MIB, 2); /* of another stream */
    OK(cen_movable_free(w.pool, other, w.streams[2]));
    sound(&w);
    OK(cen_pool_capture_end(w.pool, w.streams[1]));
    unpin(&w, n, 1);
    read_it(&w, m, 4 * MIB, 1, 1);
    read_it(&w, n, 2 * MIB, 2, 0);
    sync_all(&w);
    OK(cen_movable_free(w.pool, m, w.streams[1]));
    OK(cen_movable_free(w.pool, n, w.streams[0]));
    OK(cen_pool_capture_release(w.pool, 1));
    world_close(&w);
}

/* The full pool: nowhere to move, until something is freed. */
static void there_may_be_no_room(void **state) {
    cen_pool_options options = small_pages;
    options.limit_bytes = 8 * MIB;
    world w = world_open(state, &options);
    cen_movable m = make(&w, 2 * MIB, 0), n = make(&w, 6 * MIB, 0);
    write_it(&w, m, 2 * MIB, 1, 0);
    suite_log_reset();
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_movable_move(w.pool, m));
    assert_logged("no other page has a hole");
    OK(cen_movable_free(w.pool, n, w.streams[0]));
    OK(cen_movable_move(w.pool, m));
    read_it(&w, m, 2 * MIB, 1, 1);
    OK(cen_movable_free(w.pool, m, w.streams[1]));
    world_close(&w);
}

static void live_ones_go_with_the_pool(void **state) {
    world w = world_open(state, &small_pages);
    cen_movable m = make(&w, 3 * MIB, 0);
    make_hole(&w, 4 * MIB);
    write_it(&w, m, 3 * MIB, 1, 0);
    OK(cen_movable_move(w.pool, m));
    (void)pin(&w, m, 1);
    (void)make(&w, 50000, 2);
    world_close(&w);
}

/* The callback runs in the middle of an allocation that has a handle and no block yet. */
static bool verify_when_asked(void *arg, const cen_pool_failure *failure) {
    world *w = arg;
    (void)failure;
    sound(w);
    return false;
}

static void sound_while_one_is_made(void **state) {
    world w;
    const cen_pool_options options = {
        .limit_bytes = 8 * MIB, .retry = verify_when_asked, .retry_arg = &w};
    w = world_open(state, &options);
    cen_movable m = make(&w, MIB, 0), none = 5;
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_movable_alloc(w.pool, 64 * MIB, w.streams[0], &none));
    assert_int_equal(none, 5);
    assert_int_equal(stats_of(&w).failures, 1);
    OK(cen_movable_free(w.pool, m, w.streams[0]));
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(a_handle_stands_for_a_block),
    SUITE_TEST(a_stale_handle_is_known),
    SUITE_TEST(misuse_is_refused),
    SUITE_TEST(pins_nest),
    SUITE_TEST(moves_follow_work_in_flight),
    SUITE_TEST(the_old_place_waits_for_all_readers),
    SUITE_TEST(a_fresh_block_is_its_streams),
    SUITE_TEST(a_free_waits_for_those_who_unpinned),
    SUITE_TEST(nothing_moves_under_a_capture),
    SUITE_TEST(there_may_be_no_room),
    SUITE_TEST(live_ones_go_with_the_pool),
    SUITE_TEST(sound_while_one_is_made),
};
SUITE_MAIN(tests)
