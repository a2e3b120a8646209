/* The end of memory: limits, the ladder before an error, what the error says, and the callback. */
#include "tests/conformance/pool_suite.h"

#include <sched.h>

static const cen_host_options little = {.capacity = 64 * MIB};

static void the_limit_holds(void **state) {
    world w = world_open(state, &(cen_pool_options){.limit_bytes = 48 * MIB});
    void *a = get(&w, 30 * MIB, w.streams[0]), *block = NULL;
    suite_log_reset();
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_alloc(w.pool, 30 * MIB, w.streams[0], &block));
    assert_logged("no room");
    assert_null(block);
    assert_true(stats_of(&w).reserved_bytes <= 48 * MIB);
    assert_int_equal(stats_of(&w).failures, 1);
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_preallocate(w.pool, 49 * MIB));
    OK(cen_pool_set_limit(w.pool, 0));
    block = get(&w, 30 * MIB, w.streams[0]);
    OK(cen_pool_set_limit(w.pool, 10 * MIB)); /* holding more is no error */
    OK(cen_pool_free(w.pool, block, w.streams[0]));
    assert_ptr_equal(get(&w, 30 * MIB, w.streams[0]), block);
    OK(cen_pool_free(w.pool, block, w.streams[0]));
    OK(cen_pool_free(w.pool, a, w.streams[0]));
    world_close(&w);
}

static void a_failure_says_what_there_is(void **state) {
    world w = world_open(state, &(cen_pool_options){.limit_bytes = 64 * MIB});
    cen_pool_failure f;
    FAILS(CEN_ERR_NOT_FOUND, cen_pool_last_failure(w.pool, &f));
    void *live = get(&w, 20 * MIB, w.streams[0]), *none;
    OK(cen_pool_capture_begin(w.pool, w.streams[1], 5));
    void *private = get(&w, 6 * MIB, w.streams[1]);
    OK(cen_pool_free(w.pool, private, w.streams[1]));
    OK(cen_pool_capture_end(w.pool, w.streams[1]));
    suite_log_reset();
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_alloc(w.pool, 50 * MIB, w.streams[2], &none));
    assert_logged("50.00 MiB");
    OK(cen_pool_last_failure(w.pool, &f));
    assert_int_equal(f.requested_bytes, 50 * MIB);
    assert_true(f.stream == w.streams[2]);
    assert_int_equal(f.live_bytes, 20 * MIB);
    assert_int_equal(f.reserved_bytes, stats_of(&w).reserved_bytes);
    assert_int_equal(f.limit_bytes, 64 * MIB);
    assert_int_equal(f.stranded_private_bytes, 6 * MIB);
    assert_int_equal(f.pending_bytes, 0);
    if (w.f->host) {
        assert_int_equal(f.device_free_bytes, suite_free_bytes(w.device));
    }
    OK(cen_pool_free(w.pool, live, w.streams[0]));
    world_close(&w);
}

/* Everything free but held by work of another stream while a graph is captured, so that it cannot
 * be waited for. */
static void stranded_bytes_are_named(void **state) {
    world w = world_open(state, &(cen_pool_options){.limit_bytes = 32 * MIB});
    void *a = get(&w, 14 * MIB, w.streams[0]), *b = get(&w, 14 * MIB, w.streams[0]), *none;
    hold(&w, 0);
    fill(&w, a, 4 * KIB, 1, w.streams[0]);
    OK(cen_pool_use(w.pool, b, w.streams[1]));
    OK(cen_pool_free(w.pool, a, w.streams[0]));
    OK(cen_pool_capture_begin(w.pool, w.streams[2], 1));
    OK(cen_pool_free(w.pool, b, w.streams[0]));
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_alloc(w.pool, 14 * MIB, w.streams[3], &none));
    cen_pool_failure f;
    OK(cen_pool_last_failure(w.pool, &f));
    assert_true(f.stranded_stream_bytes >= 14 * MIB);
    assert_int_equal(f.pending_bytes, 14 * MIB);
    assert_true(f.largest_free_bytes < 14 * MIB);
    OK(cen_pool_capture_end(w.pool, w.streams[2]));
    let_go(&w, 0);
    OK(cen_pool_alloc(w.pool, 28 * MIB, w.streams[3], &none)); /* now it can */
    OK(cen_pool_free(w.pool, none, w.streams[3]));
    world_close(&w);
}

/* A card that is full is used to the last page. */
static void the_ladder_is_climbed(void **state) {
    if (!((fixture *)*state)->host) {
        suite_skip("only the host has a card so small");
    }
    world w = world_on(state, &little, NULL);
    void *blocks[16], *none;
    for (int i = 0; i < 16; i++) {
        blocks[i] = get(&w, 4 * MIB, w.streams[i % STREAMS]);
        fill(&w, blocks[i], 4 * MIB, (uint32_t)i, w.streams[i % STREAMS]);
    }
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_alloc(w.pool, 2 * MIB, w.streams[0], &none));
    for (int i = 0; i < 16; i += 2) {
        check(&w, blocks[i], 4 * MIB, (uint32_t)i, w.streams[i % STREAMS]);
        OK(cen_pool_free(w.pool, blocks[i], w.streams[i % STREAMS]));
    }
    sound(&w);
    if (!w.f->plain) {
        void *large = get(&w, 32 * MIB, w.streams[1]);
        fill(&w, large, 32 * MIB, 77, w.streams[1]);
        sound(&w);
        check(&w, large, 32 * MIB, 77, w.streams[1]);
        OK(cen_pool_free(w.pool, large, w.streams[1]));
    }
    for (int i = 1; i < 16; i += 2) {
        check(&w, blocks[i], 4 * MIB, (uint32_t)i, w.streams[i % STREAMS]);
        OK(cen_pool_free(w.pool, blocks[i], w.streams[i % STREAMS]));
    }
    /* All of it, in one piece, and all of it in small ones. */
    void *all = get(&w, 64 * MIB, w.streams[2]);
    OK(cen_pool_free(w.pool, all, w.streams[2]));
    void **small = calloc(2048, sizeof *small);
    int count = 0;
    while (count < 2048 && !cen_pool_alloc(w.pool, 32 * KIB, w.streams[3], &small[count])) {
        count++;
    }
    assert_int_equal(count, 2048);
    sound(&w);
    while (count--) {
        OK(cen_pool_free(w.pool, small[count], w.streams[3]));
    }
    free(small);
    all = get(&w, 64 * MIB, w.streams[0]);
    OK(cen_pool_free(w.pool, all, w.streams[0]));
    world_close(&w);
}

/* The n-th processor that this thread may run on, from 0; -1: there are fewer. */
static int cpu_at(const cpu_set_t *allowed, int n) {
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, allowed) && !n--) {
            return cpu;
        }
    }
    return -1;
}

static void run_on(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

/* The last object of a full card was put aside for the threads of another processor. */
static void the_last_object_is_anyones(void **state) {
    cpu_set_t allowed;
    if (!((fixture *)*state)->host) {
        suite_skip("only the host has a card so small");
    }
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int first = cpu_at(&allowed, 0), second = cpu_at(&allowed, 1);
    if (second < 0) {
        suite_skip("there is one processor");
    }
    world w = world_on(state, &little, NULL);
    void *objects[2048];
    run_on(first);
    for (int i = 0; i < 2047; i++) {
        objects[i] = get(&w, 32 * KIB, w.streams[0]);
    }
    run_on(second);
    objects[2047] = get(&w, 32 * KIB, w.streams[0]);
    assert_int_equal(stats_of(&w).failures, 0);
    sound(&w);
    assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
    for (int i = 0; i < 2048; i++) {
        OK(cen_pool_free(w.pool, objects[i], w.streams[0]));
    }
    world_close(&w);
}

typedef struct helper {
    world *w;
    void *block;
    int calls;
    cen_pool_failure failure;
} helper;

static bool free_something(void *arg, const cen_pool_failure *failure) {
    helper *h = arg;
    h->calls++;
    h->failure = *failure;
    if (!h->block) {
        return false;
    }
    OK(cen_pool_free(h->w->pool, h->block, h->w->streams[0]));
    OK(cen_pool_trim(h->w->pool, 0, true, NULL));
    h->block = NULL;
    return true;
}

static void the_callback_is_asked_last(void **state) {
    helper h = {0};
    world w = world_open(
        state,
        &(cen_pool_options){.limit_bytes = 40 * MIB, .retry = free_something, .retry_arg = &h});
    h.w = &w;
    h.block = get(&w, 24 * MIB, w.streams[0]);
    suite_log_reset();
    void *block = get(&w, 30 * MIB, w.streams[1]), *none;
    assert_int_equal(h.calls, 1);
    assert_int_equal(h.failure.requested_bytes, 30 * MIB);
    assert_int_equal(h.failure.live_bytes, 24 * MIB);
    assert_int_equal(stats_of(&w).retries, 1);
    assert_int_equal(suite_log_errors, 0);
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_alloc(w.pool, 30 * MIB, w.streams[1], &none));
    assert_int_equal(h.calls, 2);
    OK(cen_pool_free(w.pool, block, w.streams[1]));
    world_close(&w);
}

static void live_blocks_at_the_end_are_counted(void **state) {
    world w = world_open(state, NULL);
    (void)get(&w, 4 * MIB, w.streams[0]);
    (void)get(&w, 400, w.streams[0]);
    suite_log_reset();
    OK(cen_pool_destroy(w.pool));
    assert_non_null(strstr(suite_log_line, "2 blocks"));
    assert_int_equal(suite_log_errors, 0);
    if (w.f->host) {
        assert_int_equal(suite_free_bytes(w.device), w.free_at_start);
    }
}

static void plain_segments_are_announced(void **state) {
    suite_log_reset();
    world w = world_open(state, NULL);
    assert_true(!w.f->plain || strstr(suite_log_line, "no virtual memory management"));
    world_close(&w);
}

/* Pages that move again and again leave mappings and gaps behind: there are addresses for all that
 * all the same. */
static void addresses_outlast_moves(void **state) {
    fixture *f = *state;
    if (!f->host || f->plain) {
        suite_skip("only the host has pages so small, and plain segments none");
        return;
    }
    const cen_host_options tiny_pages = {.capacity = 16 * MIB, .granularity = 4096};
    world w =
        world_on(state, &tiny_pages, &(cen_pool_options){.page_bytes = 4096, .driver_share = 1});
    for (int round = 0; round < 24; round += SUITE_STRIDE) {
        size_t piece = (72 + 12 * (size_t)(round % 12)) << 10;
        int count = (int)(14 * MIB / piece);
        void *pieces[200];
        for (int i = 0; i < count; i++) {
            pieces[i] = get(&w, piece, w.streams[0]);
        }
        for (int i = 0; i < count; i += 2) {
            OK(cen_pool_free(w.pool, pieces[i], w.streams[0]));
        }
        void *large = get(&w, 6 * MIB + (size_t)round * 8192, w.streams[0]);
        OK(cen_pool_free(w.pool, large, w.streams[0]));
        for (int i = 1; i < count; i += 2) {
            OK(cen_pool_free(w.pool, pieces[i], w.streams[0]));
        }
    }
    sound(&w);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(the_limit_holds),
    SUITE_TEST(a_failure_says_what_there_is),
    SUITE_TEST(stranded_bytes_are_named),
    SUITE_TEST(the_ladder_is_climbed),
    SUITE_TEST(the_last_object_is_anyones),
    SUITE_TEST(addresses_outlast_moves),
    SUITE_TEST(the_callback_is_asked_last),
    SUITE_TEST(live_blocks_at_the_end_are_counted),
    SUITE_TEST(plain_segments_are_announced),
};
SUITE_MAIN(tests)
