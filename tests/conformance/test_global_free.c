/* Freeing blocks of the global pool: behind the work of streams on several devices, twice, by wrong
 * addresses, while a stream captures, and by several threads at once. */
#include "tests/conformance/global_suite.h"

#include "dev/capture.h"

#define ROOM ((uint64_t)64 * MIB)

static const cen_global_options spans = {.small_bytes = 64 * KIB};
static const cen_global_options spans_at_once = {.small_bytes = 64 * KIB, .return_at_once = true};

/* Nothing is reused before the streams that were named are done. */
static void behind_named_streams(void **state) {
    world w = world_open(state, ROOM, &spans_at_once);
    void *block = get(&w, 16 * MIB, 0, CEN_PLACE_SPLIT);
    for (int d = 0; d < (int)w.count; d++) {
        OK(cen_global_use(w.global, block, d, w.nodes[d].streams[1]));
        OK(cen_global_use(w.global, block, d, w.nodes[d].streams[1])); /* again: as once */
    }
    fill(&w, 0, 0, block, 16 * MIB, 7);
    OK(cen_stream_sync(w.devices[0], w.nodes[0].streams[0]));
    for (int d = 0; d < (int)w.count; d++) {
        hold(&w, d, 1);
        check(&w, d, 1, block, 16 * MIB, 7); /* would fault, were it gone */
    }
    drop(&w, block, 0, 0);
    for (int d = 0; d < (int)w.count; d++) {
        cen_global_room room = room_of(&w, d);
        if (w.f->host) {
            assert_int_equal(room.pending_bytes, 16 * MIB / w.count);
            assert_int_equal(room.global_bytes, 16 * MIB / w.count);
            assert_int_equal(room.available_bytes, ROOM - 16 * MIB / w.count);
            FAILS(CEN_ERR_DOUBLE_FREE, cen_global_free(w.global, block, d, w.nodes[d].streams[0]));
            FAILS(CEN_ERR_FOREIGN_POINTER,
                  cen_global_use(w.global, block, d, w.nodes[d].streams[0]));
        }
        sound(&w);
        let_go(&w, d, 1);
    }
    settle(&w);
    no_mismatches(&w);
    assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).pending_bytes, 0);
    assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).global_bytes, 0);
    world_close(&w);
}

/* What was freed while its work went on is waited for by who would fail otherwise. */
static void the_next_one_waits(void **state) {
    const fixture *f = *state;
    if (f->is_inline) {
        suite_skip("waits for a stream that only this thread could let go");
        return;
    }
    world w = world_open(state, ROOM, &spans);
    uint64_t most = room_of(&w, 1).largest_bytes;
    void *block = get(&w, most, 1, CEN_PLACE_LOCAL), *next = NULL;
    const uint64_t long_enough = 5000000;
    void *args[] = {(void *)(uintptr_t)&long_enough};
    suite_launch(w.devices[0], "cen_spin", args, 1, w.nodes[0].streams[1]);
    fill(&w, 0, 1, block, most, 1);
    check(&w, 0, 1, block, most, 1);
    drop(&w, block, 0, 1);
    OK(place(&w, most - w.granule, 1, CEN_PLACE_LOCAL, &next, NULL));
    fill(&w, 1, 0, next, most - w.granule, 2);
    check(&w, 1, 0, next, most - w.granule, 2);
    drop(&w, next, 1, 0);
    /* The same of the device's local pool: its pages are behind work, too. */
    block = get_local(&w, 32 * MIB, 1, 0);
    suite_launch(w.devices[1], "cen_spin", args, 1, w.nodes[1].streams[0]);
    fill(&w, 1, 0, block, 32 * MIB, 3);
    check(&w, 1, 0, block, 32 * MIB, 3);
    drop_local(&w, block, 1, 0);
    uint64_t rest = w.f->host ? ROOM : most - 2 * MIB;
    OK(place(&w, rest, 1, CEN_PLACE_LOCAL, &next, NULL));
    drop(&w, next, 1, 0);
    world_close(&w);
}

static void wrong_addresses(void **state) {
    world w = world_open(state, ROOM, &spans_at_once);
    cen_stream s0 = w.nodes[0].streams[0], s1 = w.nodes[1].streams[0];
    char *block = get(&w, 8 * MIB, 0, CEN_PLACE_STRIPED), *small = get_local(&w, 3000, 0, 0);
    char *large = get_local(&w, 3 * MIB, 0, 0);
    void *wrong[] = {block + 1,
                     block + w.granule,
                     block + 8 * MIB,
                     small + 1,
                     small + 512,
                     large + 1,
                     large + MIB,
                     &w,
                     (void *)~(uintptr_t)0};
    int home;
    OK(cen_global_free(w.global, NULL, 0, s0));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        suite_log_reset();
        FAILS(CEN_ERR_FOREIGN_POINTER, cen_global_free(w.global, wrong[i], 0, s0));
        assert_int_equal(suite_log_errors, 1);
        suite_log_reset();
        FAILS(CEN_ERR_FOREIGN_POINTER, cen_global_free(w.global, wrong[i], 1, s1));
        assert_int_equal(suite_log_errors, 1);
        assert_int_not_equal(cen_global_use(w.global, wrong[i], 1, s1), CEN_OK);
        sound(&w);
    }
    cen_global_report r;
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_global_where(w.global, &w, &r));
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_global_home(w.global, &w, &home));
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_global_home(w.global, block + 8 * MIB, &home));
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_global_where(w.global, small + 1, &r));
    FAILS(CEN_ERR_NO_DEVICE, cen_global_free(w.global, block, 4, s0));
    FAILS(CEN_ERR_NO_DEVICE, cen_global_use(w.global, block, -1, s0));
    FAILS(CEN_ERR_INVALID, cen_global_free(NULL, block, 0, s0));
    FAILS(CEN_ERR_INVALID, cen_global_where(w.global, block, NULL));
    FAILS(CEN_ERR_INVALID, cen_global_home(w.global, block, NULL));
    drop(&w, block, 1, 0);
    drop(&w, small, 1, 0);
    drop(&w, large, 0, 0);
    world_close(&w);
}

/* Twice, in each order of owner and other device; with slabs too. */
static void double_frees(void **state) {
    world w = world_open(state, ROOM, &spans_at_once);
    const size_t sizes[] = {700, 3 * MIB};
    for (int i = 0; i < 8; i++) {
        int first = i & 1, second = i >> 1 & 1;
        void *block = get_local(&w, sizes[i >> 2], 0, 0), *another = get_local(&w, 700, 0, 0);
        drop(&w, block, first, 0);
        FAILS(CEN_ERR_DOUBLE_FREE,
              cen_global_free(w.global, block, second, w.nodes[second].streams[0]));
        settle(&w);
        FAILS(CEN_ERR_DOUBLE_FREE,
              cen_global_free(w.global, block, second, w.nodes[second].streams[0]));
        drop(&w, another, 0, 0);
        sound(&w);
    }
    void *block = get(&w, 4 * MIB, 0, CEN_PLACE_LOCAL);
    hold(&w, 1, 0);
    drop(&w, block, 1, 0);
    if (w.f->host) {
        FAILS(CEN_ERR_DOUBLE_FREE, cen_global_free(w.global, block, 0, w.nodes[0].streams[0]));
    }
    let_go(&w, 1, 0);
    settle(&w);
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_global_free(w.global, block, 0, w.nodes[0].streams[0]));
    assert_int_equal(stats_of(&w, 0).blocks, 0);
    world_close(&w);
}

/* A block of a local pool that another device's streams use comes back when they are done. */
static void local_blocks_used_elsewhere(void **state) {
    world w = world_open(state, ROOM, &spans);
    const size_t sizes[] = {400, 20000, 70000, 5 * MIB};
    for (int i = 0; i < 4; i++) {
        void *block = get_local(&w, sizes[i], 0, 0);
        fill(&w, 0, 0, block, sizes[i], 9);
        OK(cen_stream_sync(w.devices[0], w.nodes[0].streams[0]));
        hold(&w, 1, 1);
        check(&w, 1, 1, block, sizes[i], 9);
        OK(cen_global_use(w.global, block, 1, w.nodes[1].streams[1]));
        OK(cen_global_use(w.global, block, 0, w.nodes[0].streams[1]));
        drop(&w, block, i % 2, 0);
        if (w.f->host) { /* the same memory is not given out again */
            void *other = get_local(&w, sizes[i], 0, 0);
            assert_ptr_not_equal(other, block);
            fill(&w, 0, 0, other, sizes[i], 10);
            drop_local(&w, other, 0, 0);
            assert_int_equal(stats_of(&w, 0).blocks, 1);
        }
        sound(&w);
        let_go(&w, 1, 1);
        settle(&w);
        assert_int_equal(stats_of(&w, 0).blocks, 0);
    }
    world_close(&w);
}

/* The local pool takes such a block for live until the other device's work is complete. */
static void local_blocks_freed_elsewhere(void **state) {
    world w = world_open(state, ROOM, &spans);
    void *block = get_local(&w, 400, 0, 0);
    cen_stream theirs = w.nodes[1].streams[1], own = w.nodes[0].streams[0];
    cen_global_report report;
    hold(&w, 1, 1);
    OK(cen_global_use(w.global, block, 1, theirs));
    drop(&w, block, 1, 1);
    if (w.f->host) { /* held for as long as the test likes */
        FAILS(CEN_ERR_FOREIGN_POINTER, cen_global_use(w.global, block, 0, own));
        FAILS(CEN_ERR_FOREIGN_POINTER, cen_global_use(w.global, block, 1, theirs));
        FAILS(CEN_ERR_FOREIGN_POINTER, cen_global_where(w.global, block, &report));
        FAILS(CEN_ERR_DOUBLE_FREE, cen_global_free(w.global, block, 0, own));
    }
    let_go(&w, 1, 1);
    settle(&w);
    assert_int_equal(stats_of(&w, 0).blocks, 0);
    world_close(&w);
}

/* A movable block is its handle's, in whichever device's name. */
static void movable_blocks_are_refused(void **state) {
    world w = world_open(state, ROOM, &spans);
    cen_stream own = w.nodes[0].streams[0];
    cen_movable m;
    void *block;
    OK(cen_movable_alloc(pool_of(&w, 0), 70000, own, &m));
    OK(cen_movable_pin(pool_of(&w, 0), m, own, &block));
    for (int d = 0; d < 2; d++) {
        suite_log_reset();
        FAILS(CEN_ERR_INVALID, cen_global_use(w.global, block, d, w.nodes[d].streams[0]));
        assert_logged("movable");
        suite_log_reset();
        FAILS(CEN_ERR_INVALID, cen_global_free(w.global, block, d, w.nodes[d].streams[0]));
        assert_logged("movable");
    }
    OK(cen_movable_unpin(pool_of(&w, 0), m, own));
    OK(cen_movable_free(pool_of(&w, 0), m, own));
    world_close(&w);
}

/* Frees in other devices' names are looked at now and then, so that they do not pile up. */
static void many_do_not_pile_up(void **state) {
    world w = world_open(state, ROOM, NULL);
    for (int i = 0; i < 2000; i++) {
        void *block = get(&w, 20000, 0, CEN_PLACE_AUTO);
        drop(&w, block, 1, 0);
        if (i % 64 == 0) {
            OK(cen_stream_sync(w.devices[1], w.nodes[1].streams[0]));
        }
    }
    assert_true(stats_of(&w, 0).reserved_bytes < 30 * MIB);
    world_close(&w);
}

static void not_while_capturing(void **state) {
    world w = world_open(state, ROOM, &spans);
    cen_stream s = w.nodes[0].streams[0];
    void *block = get(&w, 8 * MIB, 0, CEN_PLACE_SPLIT),
         *other = get(&w, 4 * MIB, 1, CEN_PLACE_LOCAL);
    void *pending = get(&w, 4 * MIB, 0, CEN_PLACE_LOCAL);
    ceni_graph *graph = NULL;
    drop(&w, pending, 0, 1); /* whose event is not to be looked at */
    OK(cen_pool_capture_begin(pool_of(&w, 0), s, 5));
    OK(ceni_capture_begin(w.devices[0], s));
    suite_log_reset();
    FAILS(CEN_ERR_CAPTURE, cen_global_free(w.global, block, 0, s));
    assert_logged("capturing");
    OK(cen_global_use(w.global, other, 0, s));
    FAILS(CEN_ERR_CAPTURE, cen_global_free(w.global, other, 1, w.nodes[1].streams[0]));
    FAILS(CEN_ERR_CAPTURE, cen_global_reclaim(w.global, 0, MIB, true, NULL));
    sound(&w);
    fill(&w, 0, 0, block, 8 * MIB, 3);
    cen_global_room room;
    OK(cen_global_available(w.global, CEN_GLOBAL_ALL, &room));
    void *more = get(&w, 4 * MIB, 1, CEN_PLACE_LOCAL);
    void *small = get(&w, 1000, 0, CEN_PLACE_AUTO);
    drop(&w, more, 1, 0);
    OK(ceni_capture_end(w.devices[0], s, &graph)); /* nothing of it broke the capture */
    OK(cen_pool_capture_end(pool_of(&w, 0), s));
    OK(ceni_graph_launch(w.devices[0], graph, s));
    check(&w, 0, 0, block, 8 * MIB, 3);
    drop(&w, block, 0, 0);
    drop(&w, other, 1, 0);
    drop(&w, small, 0, 0);
    OK(cen_stream_sync(w.devices[0], s));
    ceni_graph_destroy(w.devices[0], graph);
    OK(cen_pool_capture_release(pool_of(&w, 0), 5));
    world_close(&w);
}

/* Blocks still live, and still in use by streams, go with the pool. */
static void destroyed_with_blocks(void **state) {
    world w = world_open(state, ROOM, &spans);
    void *block = get(&w, 8 * MIB, 0, CEN_PLACE_SPLIT);
    void *freed = get(&w, 8 * MIB, 1, CEN_PLACE_LOCAL);
    OK(cen_global_use(w.global, block, 1, w.nodes[1].streams[1]));
    const uint64_t a_while = 3000000;
    void *args[] = {(void *)(uintptr_t)&a_while};
    suite_launch(w.devices[1], "cen_spin", args, 1, w.nodes[1].streams[1]);
    fill(&w, 1, 1, block, 8 * MIB, 4);
    fill(&w, 1, 0, freed, 8 * MIB, 4);
    check(&w, 1, 1, block, 8 * MIB, 4);
    drop(&w, freed, 1, 0);
    suite_log_reset();
    OK(cen_global_destroy(w.global));
    assert_non_null(strstr(suite_log_line, "1 blocks live"));
    for (size_t d = 0; d < w.count; d++) {
        OK(cen_stream_sync(w.devices[d], w.nodes[d].streams[1])); /* no fault: it was waited for */
        assert_true(!w.f->host || suite_free_bytes(w.devices[d]) == w.nodes[d].free_at_start);
    }
    no_mismatches(&w);
    close_devices(&w);
}

typedef struct worker {
    world *w;
    pthread_t thread;
    int number;
    int failed;
} worker;

enum { ROUNDS = 150 };

/* Threads may not use cmocka's checks. */
static void *work(void *arg) {
    worker *me = arg;
    world *w = me->w;
    uint64_t rng = 0x9E3779B97F4A7C15u * (uint64_t)(me->number + 1);
    for (int i = 0; i < ROUNDS && !me->failed; i++) {
        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        int device = (int)(rng % w->count), other = (int)(rng >> 8 & 0xff) % (int)w->count;
        size_t bytes = rng >> 16 & 1 ? 300 + (rng >> 20 & 0xffff) : (1 + (rng >> 20 & 3)) * MIB;
        const cen_placement all[] = {CEN_PLACE_AUTO, CEN_PLACE_LOCAL, CEN_PLACE_PEER,
                                     CEN_PLACE_SPLIT};
        cen_stream s = w->nodes[device].streams[me->number % STREAMS];
        cen_global_request request = {.size = sizeof request, .stream = s};
        request.placement = all[rng >> 40 & 3];
        void *block = NULL;
        cen_global_report r;
        cen_status status = cen_global_alloc(w->global, bytes, device, &request, &block, &r);
        if (status == CEN_ERR_DEVICE_MEMORY) {
            continue; /* the others have it */
        }
        me->failed |= status || !block;
        me->failed |= cen_fill_async(w->devices[device], address(block), (uint8_t)i, bytes, s) != 0;
        me->failed |= cen_global_use(w->global, block, other, w->nodes[other].streams[0]) != 0;
        me->failed |= cen_global_free(w->global, block, device, s) != 0;
        if (i % 16 == 0) {
            cen_global_room room;
            me->failed |= cen_global_available(w->global, CEN_GLOBAL_ALL, &room) != 0;
            me->failed |= cen_global_reclaim(w->global, other, MIB, i % 32 == 0, NULL) != 0;
            me->failed |= cen_global_verify(w->global) != 0;
        }
    }
    return NULL;
}

static void by_threads(void **state) {
    world w = world_open(state, ROOM, &spans);
    worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.w = &w, .number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].failed) {
            fail_msg("%s", suite_log_line);
        }
    }
    settle(&w);
    assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).global_bytes, 0);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    GLOBAL_TEST(behind_named_streams),
    GLOBAL_TEST(the_next_one_waits),
    GLOBAL_TEST(wrong_addresses),
    GLOBAL_TEST(double_frees),
    GLOBAL_TEST(local_blocks_used_elsewhere),
    GLOBAL_TEST(local_blocks_freed_elsewhere),
    GLOBAL_TEST(movable_blocks_are_refused),
    GLOBAL_TEST(many_do_not_pile_up),
    GLOBAL_TEST(not_while_capturing),
    GLOBAL_TEST(destroyed_with_blocks),
    GLOBAL_TEST(by_threads),
};
SUITE_MAIN(tests)
