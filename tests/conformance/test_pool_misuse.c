/* Bad input: each mistake has its status and one line, and the pool stays as it was. */
#include "tests/conformance/pool_suite.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/host/host.h"

static const size_t sizes[] = {1, 900, 32 * KIB, 32 * KIB + 1, MIB - 1, 3 * MIB};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void freed_twice(void **state) {
    world w = world_open(state, NULL);
    for (int i = 0; i < SIZES; i++) {
        void *keep = get(&w, sizes[i], w.streams[0]), *block = get(&w, sizes[i], w.streams[0]);
        fill(&w, keep, sizes[i], 1, w.streams[0]);
        OK(cen_pool_free(w.pool, block, w.streams[0]));
        for (int k = 0; k < 3; k++) { /* at once, on another stream, after merging and draining */
            suite_log_reset();
            FAILS(CEN_ERR_DOUBLE_FREE, cen_pool_free(w.pool, block, w.streams[k]));
            assert_logged("free already");
            sound(&w);
            OK(cen_pool_trim(w.pool, k ? 0 : UINT64_MAX, true, NULL));
        }
        assert_true(cen_pool_use(w.pool, block, w.streams[1]) < 0);
        size_t bytes;
        assert_true(cen_pool_block_size(w.pool, block, &bytes) < 0);
        check(&w, keep, sizes[i], 1, w.streams[0]);
        OK(cen_pool_use(w.pool, keep, w.streams[1]));
        hold(&w, 1);
        OK(cen_pool_free(w.pool, keep, w.streams[0]));
        suite_log_reset();
        FAILS(CEN_ERR_DOUBLE_FREE, cen_pool_free(w.pool, keep, w.streams[0])); /* pending */
        assert_logged("free already");
        assert_true(cen_pool_use(w.pool, keep, w.streams[2]) < 0);
        let_go(&w, 1);
        sound(&w);
    }
    world_close(&w);
}

static void foreign(world *w, void *pointer) {
    size_t bytes = 5;
    suite_log_reset();
    cen_status status = cen_pool_free(w->pool, pointer, w->streams[0]);
    assert_true(status == CEN_ERR_FOREIGN_POINTER || status == CEN_ERR_DOUBLE_FREE);
    assert_int_equal(suite_log_errors, 1);
    assert_true(cen_pool_use(w->pool, pointer, w->streams[1]) < 0);
    assert_true(cen_pool_block_size(w->pool, pointer, &bytes) < 0);
    assert_int_equal(bytes, 5);
}

static void pointers_of_others(void **state) {
    world w = world_open(state, NULL);
    int local;
    void *heap = malloc(100);
    foreign(&w, &local);
    foreign(&w, heap);
    foreign(&w, w.mismatches);
    foreign(&w, (void *)(uintptr_t)UINT64_MAX);
    foreign(&w, (void *)(uintptr_t)1);
    foreign(&w, (void *)((uintptr_t)1 << 47));
    free(heap);
    for (int i = 0; i < SIZES; i++) {
        char *block = get(&w, sizes[i], w.streams[0]);
        fill(&w, block, sizes[i], 1, w.streams[0]);
        const size_t inside[] = {1, 4, 511, 512, sizes[i] / 2, sizes[i] - 1, 32 * KIB, 64 * KIB};
        for (size_t k = 0; k < sizeof inside / sizeof *inside; k++) {
            if (inside[k] && inside[k] < sizes[i]) {
                foreign(&w, block + inside[k]);
            }
        }
        sound(&w);
        check(&w, block, sizes[i], 1, w.streams[0]);
        OK(cen_pool_free(w.pool, block, w.streams[0]));
    }
    cen_pool *other;
    OK(cen_pool_create(w.device, NULL, &other));
    void *theirs;
    OK(cen_pool_alloc(other, 5000, w.streams[0], &theirs));
    foreign(&w, theirs);
    OK(cen_pool_free(other, theirs, w.streams[0]));
    OK(cen_pool_destroy(other));
    world_close(&w);
}

/* The number of the first call that a forked child was not refused; 0: all were. */
static int calls_of_a_child(world *w, void *block, void *small) {
    cen_pool_stats stats;
    cen_pool_failure failure;
    uint64_t returned;
    size_t bytes;
    void *out;
    walked sum = {0};
    const cen_status got[] = {
        cen_pool_alloc(w->pool, 100, w->streams[0], &out),
        cen_pool_alloc(w->pool, MIB, w->streams[0], &out),
        cen_pool_alloc_aligned(w->pool, MIB, 4096, 0, &out),
        cen_pool_free(w->pool, block, w->streams[0]),
        cen_pool_free(w->pool, small, w->streams[0]),
        cen_pool_use(w->pool, block, w->streams[1]),
        cen_pool_block_size(w->pool, block, &bytes),
        cen_pool_stream_release(w->pool, w->streams[1]),
        cen_pool_preallocate(w->pool, 64 * MIB),
        cen_pool_set_limit(w->pool, 1),
        cen_pool_trim(w->pool, 0, true, &returned),
        cen_pool_capture_begin(w->pool, w->streams[0], 1),
        cen_pool_capture_end(w->pool, w->streams[0]),
        cen_pool_capture_release(w->pool, 1),
        cen_pool_get_stats(w->pool, &stats),
        cen_pool_reset_peaks(w->pool),
        cen_pool_last_failure(w->pool, &failure),
        cen_pool_walk(w->pool, walk_one, &sum),
        cen_pool_verify(w->pool),
        cen_pool_destroy(w->pool),
    };
    for (int i = 0; i < (int)(sizeof got / sizeof *got); i++) {
        if (got[i] != CEN_ERR_FORKED) {
            return i + 1;
        }
    }
    return 0;
}

static void a_forked_child_is_refused(void **state) {
    world w = world_open(state, NULL);
    void *block = get(&w, 2 * MIB, w.streams[0]), *small = get(&w, 100, w.streams[0]);
    fill(&w, block, 2 * MIB, 1, w.streams[0]);
    OK(cen_stream_sync(w.device, w.streams[0]));
    cen_pool_stats before = stats_of(&w);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        _exit(calls_of_a_child(&w, block, small));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    cen_pool_stats after = stats_of(&w);
    assert_memory_equal(&before, &after, sizeof before);
    check(&w, block, 2 * MIB, 1, w.streams[0]);
    OK(cen_pool_free(w.pool, block, w.streams[0]));
    OK(cen_pool_free(w.pool, small, w.streams[0]));
    world_close(&w);
}

static void a_lost_device_is_an_error(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("only the host can be declared lost");
    }
    world w = world_open(state, NULL);
    void *blocks[6], *block = NULL;
    for (int i = 0; i < 6; i++) {
        blocks[i] = get(&w, sizes[i], w.streams[i % 2]);
        fill(&w, blocks[i], sizes[i], 1, w.streams[i % 2]);
    }
    OK(cen_pool_use(w.pool, blocks[5], w.streams[2]));
    OK(cen_pool_use(w.pool, blocks[1], w.streams[2]));
    OK(cen_pool_free(w.pool, blocks[4], w.streams[0]));
    ceni_host_lose(w.device);
    suite_log_reset();
    FAILS(CEN_ERR_DEVICE_LOST, cen_pool_alloc(w.pool, 60 * MIB, w.streams[3], &block));
    assert_null(block);
    (void)cen_pool_preallocate(w.pool, 100 * MIB);
    (void)cen_pool_trim(w.pool, 0, true, NULL);
    (void)cen_pool_stream_release(w.pool, w.streams[0]);
    OK(cen_pool_verify(w.pool));
    for (int i = 0; i < 6; i++) { /* frees only note it; what fails is later */
        if (i != 4) {
            OK(cen_pool_free(w.pool, blocks[i], w.streams[i % 2]));
        }
    }
    OK(cen_pool_verify(w.pool));
    assert_int_equal(stats_of(&w).blocks, 0);
    (void)cen_pool_destroy(w.pool); /* does not crash, whatever it says */
}

static void options_out_of_range(void **state) {
    world w = world_open(state, NULL);
    cen_pool *other = NULL;
    for (int i = 0; i < 3; i++) {
        const uint64_t pages[] = {UINT64_MAX, UINT64_MAX - w.device->granularity, (1ull << 46) + 1};
        cen_pool_options options = {.size = sizeof options, .page_bytes = pages[i]};
        suite_log_reset();
        FAILS(CEN_ERR_INVALID, cen_pool_create(w.device, &options, &other));
        assert_logged("page_bytes");
        options = (cen_pool_options){.size = sizeof options};
        options.driver_share = (const double[]){1.5, NAN, INFINITY}[i];
        FAILS(CEN_ERR_INVALID, cen_pool_create(w.device, &options, &other));
        assert_logged("driver_share");
        options.size = offsetof(cen_pool_options, driver_share); /* an older caller has none */
        OK(cen_pool_create(w.device, &options, &other));
        OK(cen_pool_destroy(other));
        other = NULL;
    }
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(freed_twice),
    SUITE_TEST(pointers_of_others),
    SUITE_TEST(options_out_of_range),
    SUITE_TEST(a_forked_child_is_refused),
    SUITE_TEST(a_lost_device_is_an_error),
};
SUITE_MAIN(tests)
