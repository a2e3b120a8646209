/* Sizes, contents, figures and limits of a pool, seen from one thread and one stream. */
#include "cenote/frameworks.h"
#include "tests/conformance/pool_suite.h"

static const size_t sizes[] = {
    1,
    2,
    511,
    512,
    513,
    1536,
    4096,
    4097,
    32 * KIB - 1,
    32 * KIB,
    32 * KIB + 1,
    33 * KIB,
    64 * KIB,
    100000,
    MIB - 1,
    MIB,
    MIB + 1,
    2 * MIB - 1,
    2 * MIB,
    2 * MIB + 1,
    5 * MIB + 12345,
    16 * MIB,
    33 * MIB,
    64 * MIB,
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void every_size_is_its_own(void **state) {
    world w = world_open(state, NULL);
    void *blocks[2 * SIZES];
    uint64_t requested = 0;
    for (int i = 0; i < 2 * SIZES; i++) {
        size_t bytes = sizes[i % SIZES], size = 0;
        blocks[i] = get(&w, bytes, w.streams[0]);
        assert_int_equal(address(blocks[i]) % CEN_POOL_ALIGNMENT, 0);
        OK(cen_pool_block_size(w.pool, blocks[i], &size));
        assert_int_equal(size, bytes);
        fill(&w, blocks[i], bytes, (uint32_t)i, w.streams[0]);
        requested += bytes;
        sound(&w);
        assert_int_equal(stats_of(&w).requested_bytes, requested);
        assert_int_equal(stats_of(&w).blocks, i + 1);
    }
    for (int i = 0; i < 2 * SIZES; i++) { /* every second one, then the rest */
        int at = i < SIZES ? 2 * i : 2 * (i - SIZES) + 1;
        check(&w, blocks[at], sizes[at % SIZES], (uint32_t)at, w.streams[0]);
        OK(cen_pool_free(w.pool, blocks[at], w.streams[0]));
        sound(&w);
    }
    cen_pool_stats stats = stats_of(&w);
    assert_int_equal(stats.requested_bytes, 0);
    assert_int_equal(stats.requested_peak_bytes, requested);
    assert_int_equal(stats.allocs, 2 * SIZES);
    assert_int_equal(stats.frees, 2 * SIZES);
    assert_int_equal(stats.failures, 0);
    world_close(&w);
}

static void alignments_are_kept(void **state) {
    world w = world_open(state, NULL);
    void *blocks[2 * 14];
    int count = 0;
    for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 4) {
        for (size_t bytes = 1000; bytes <= 3 * MIB; bytes *= 3000) {
            void **block = &blocks[count++];
            OK(cen_pool_alloc_aligned(w.pool, bytes, alignment, w.streams[0], block));
            assert_int_equal(address(*block) % alignment, 0);
            assert_int_equal(address(*block) % CEN_POOL_ALIGNMENT, 0);
            fill(&w, *block, bytes, (uint32_t)count, w.streams[0]);
        }
        sound(&w);
    }
    while (count--) {
        check(&w, blocks[count], count % 2 ? 3000000 : 1000, (uint32_t)count + 1, w.streams[0]);
        OK(cen_pool_free(w.pool, blocks[count], w.streams[0]));
    }
    world_close(&w);
}

static void what_cannot_be_is_refused(void **state) {
    world w = world_open(state, NULL);
    void *block = &w;
    size_t bytes = 7;
    const size_t bad[] = {0, 3, 24, 513, (size_t)2 << 30, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        suite_log_reset();
        FAILS(CEN_ERR_INVALID, cen_pool_alloc_aligned(w.pool, 4096, bad[i], 0, &block));
        assert_logged("alignment");
    }
    const size_t huge[] = {SIZE_MAX,        SIZE_MAX - 511,  SIZE_MAX / 2,
                           (size_t)1 << 47, (size_t)1 << 46, (size_t)1 << 45};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        suite_log_reset();
        FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_alloc(w.pool, huge[i], 0, &block));
        assert_int_equal(suite_log_errors, 1);
        FAILS(CEN_ERR_DEVICE_MEMORY,
              cen_pool_alloc_aligned(w.pool, huge[i], (size_t)1 << 30, 0, &block));
        sound(&w);
    }
    assert_ptr_equal(block, &w);
    OK(cen_pool_alloc(w.pool, 0, 0, &block));
    assert_null(block);
    OK(cen_pool_free(w.pool, NULL, 0));
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, cen_pool_alloc(w.pool, 1, 0, NULL));
    assert_logged("NULL");
    FAILS(CEN_ERR_INVALID, cen_pool_alloc(NULL, 1, 0, &block));
    assert_logged("NULL");
    FAILS(CEN_ERR_INVALID, cen_pool_free(NULL, &w, 0));
    FAILS(CEN_ERR_INVALID, cen_pool_use(NULL, &w, 0));
    FAILS(CEN_ERR_INVALID, cen_pool_block_size(w.pool, &w, NULL));
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_pool_block_size(w.pool, NULL, &bytes));
    FAILS(CEN_ERR_INVALID, cen_pool_get_stats(w.pool, NULL));
    FAILS(CEN_ERR_INVALID, cen_pool_walk(w.pool, NULL, NULL));
    FAILS(CEN_ERR_INVALID, cen_pool_trim(NULL, 0, false, NULL));
    FAILS(CEN_ERR_INVALID, cen_pool_create(NULL, NULL, &w.pool));
    FAILS(CEN_ERR_INVALID, cen_pool_create(w.device, NULL, NULL));
    OK(cen_pool_destroy(NULL));
    assert_int_equal(bytes, 7);
    world_close(&w);
}

static void peaks_are_kept_and_reset(void **state) {
    world w = world_open(state, NULL);
    void *small = get(&w, 20000, w.streams[0]), *large = get(&w, 9 * MIB, w.streams[0]);
    cen_pool_stats high = stats_of(&w);
    assert_int_equal(high.requested_bytes, 20000 + 9 * MIB);
    OK(cen_pool_free(w.pool, large, w.streams[0]));
    OK(cen_pool_free(w.pool, small, w.streams[0]));
    cen_pool_stats low = stats_of(&w);
    assert_int_equal(low.requested_bytes, 0);
    assert_int_equal(low.requested_peak_bytes, 20000 + 9 * MIB);
    assert_int_equal(low.allocated_peak_bytes, high.allocated_bytes);
    assert_int_equal(low.reserved_peak_bytes, high.reserved_bytes);
    small = get(&w, 300, w.streams[0]);
    OK(cen_pool_trim(w.pool, 0, true, NULL));
    OK(cen_pool_reset_peaks(w.pool));
    low = stats_of(&w);
    assert_int_equal(low.requested_peak_bytes, 300);
    assert_int_equal(low.allocated_peak_bytes, low.allocated_bytes);
    assert_int_equal(low.reserved_peak_bytes, low.reserved_bytes);
    OK(cen_pool_free(w.pool, small, w.streams[0]));
    assert_int_equal(stats_of(&w).requested_peak_bytes, 300);
    world_close(&w);
}

static void a_list_is_the_walk(void **state) {
    world w = world_open(state, NULL);
    void *block = get(&w, 5 * MIB, w.streams[0]), *small = get(&w, 700, w.streams[1]);
    size_t count = 0, again = 0;
    OK(cen_pool_list(w.pool, NULL, 0, &count));
    assert_true(count > 2);
    cen_pool_block_info *infos = calloc(count, sizeof *infos);
    assert_non_null(infos);
    OK(cen_pool_list(w.pool, infos, 1, &again));
    assert_int_equal(again, count);
    assert_true(infos[0].bytes > 0 && !infos[1].bytes); /* no more than there is room for */
    OK(cen_pool_list(w.pool, infos, count, &again));
    assert_int_equal(again, count);
    uint64_t bytes = 0, found = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += infos[i].bytes;
        found += infos[i].addr == (uintptr_t)block && infos[i].requested_bytes == 5 * MIB;
        found += infos[i].addr == (uintptr_t)small && infos[i].requested_bytes == 700;
    }
    free(infos);
    assert_int_equal(found, 2);
    assert_int_equal(bytes, stats_of(&w).reserved_bytes);
    FAILS(CEN_ERR_INVALID, cen_pool_list(w.pool, NULL, 1, &count));
    FAILS(CEN_ERR_INVALID, cen_pool_list(w.pool, NULL, 0, NULL));
    FAILS(CEN_ERR_INVALID, cen_pool_list(NULL, NULL, 0, &count));
    OK(cen_pool_free(w.pool, block, w.streams[0]));
    OK(cen_pool_free(w.pool, small, w.streams[1]));
    world_close(&w);
}

static void frameworks_get_blocks_by_device(void **state) {
    world w = world_open(state, NULL);
    cen_frameworks_pools pools = {{NULL}};
    pools.pools[3] = w.pool;
    void *block = cen_frameworks_malloc(&pools, 3 * MIB, 3);
    assert_non_null(block);
    size_t bytes = 0;
    OK(cen_pool_block_size(w.pool, block, &bytes));
    assert_int_equal(bytes, 3 * MIB);
    assert_null(cen_frameworks_malloc(&pools, 0, 3));
    cen_frameworks_free(&pools, NULL, 3);
    const int none[] = {-1, 0, CEN_FRAMEWORKS_DEVICES};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        suite_log_reset();
        assert_null(cen_frameworks_malloc(&pools, 1, none[i]));
        assert_logged("no pool for device");
        suite_log_reset();
        cen_frameworks_free(&pools, block, none[i]);
        assert_logged("no pool for device");
    }
    assert_null(cen_frameworks_malloc(NULL, 1, 3));
    suite_log_reset();
    assert_null(cen_frameworks_malloc(&pools, SIZE_MAX / 2, 3));
    assert_string_equal(cen_log_last_error(), suite_log_line);
    assert_logged("no device holds");
    cen_frameworks_free(&pools, block, 3);
    assert_int_equal(stats_of(&w).blocks, 0);
    suite_log_reset();
    cen_frameworks_free(&pools, block, 3);
    assert_logged("free already");
    world_close(&w);
}

static void freed_pieces_serve_a_larger_block(void **state) {
    world w = world_open(state, NULL);
    void *blocks[16];
    for (int i = 0; i < 16; i++) {
        blocks[i] = get(&w, 4 * MIB, w.streams[0]);
    }
    uint64_t reserved = stats_of(&w).reserved_bytes;
    for (int i = 0; i < 16; i += 2) {
        OK(cen_pool_free(w.pool, blocks[i], w.streams[0]));
    }
    void *large = get(&w, 16 * MIB, w.streams[0]); /* no hole has more than 4 MiB */
    fill(&w, large, 16 * MIB, 99, w.streams[0]);
    cen_pool_stats stats = stats_of(&w);
    if (!w.f->plain) {
        assert_int_equal(stats.reserved_bytes, reserved);
        assert_true(stats.remapped_bytes >= 16 * MIB);
    }
    for (int i = 1; i < 16; i += 2) {
        fill(&w, blocks[i], 4 * MIB, (uint32_t)i, w.streams[0]);
    }
    check(&w, large, 16 * MIB, 99, w.streams[0]);
    for (int i = 1; i < 16; i += 2) {
        check(&w, blocks[i], 4 * MIB, (uint32_t)i, w.streams[0]);
        OK(cen_pool_free(w.pool, blocks[i], w.streams[0]));
    }
    OK(cen_pool_free(w.pool, large, w.streams[0]));
    world_close(&w);
}

static void trim_gives_back(void **state) {
    world w = world_open(state, NULL);
    void *a = get(&w, 40 * MIB, w.streams[0]), *b = get(&w, 24 * MIB, w.streams[0]);
    void *c = get(&w, 3000, w.streams[0]);
    fill(&w, a, 40 * MIB, 1, w.streams[0]);
    fill(&w, b, 24 * MIB, 2, w.streams[0]);
    OK(cen_pool_free(w.pool, a, w.streams[0]));
    uint64_t before = stats_of(&w).reserved_bytes, returned = 0,
             free_bytes = suite_free_bytes(w.device);
    OK(cen_pool_trim(w.pool, before, true, &returned));
    assert_int_equal(returned, 0);
    OK(cen_pool_trim(w.pool, 0, true, &returned));
    assert_int_equal(stats_of(&w).reserved_bytes, before - returned);
    assert_true(returned >= 32 * MIB);
    if (w.f->host) {
        assert_int_equal(suite_free_bytes(w.device), free_bytes + returned);
    }
    check(&w, b, 24 * MIB, 2, w.streams[0]);
    sound(&w);
    OK(cen_pool_free(w.pool, b, w.streams[0]));
    OK(cen_pool_free(w.pool, c, w.streams[0]));
    OK(cen_pool_trim(w.pool, 0, true, NULL));
    assert_int_equal(stats_of(&w).reserved_bytes, 0);
    assert_int_equal(stats_of(&w).segments, 0);
    a = get(&w, 8 * MIB, w.streams[0]); /* and goes on */
    fill(&w, a, 8 * MIB, 3, w.streams[0]);
    check(&w, a, 8 * MIB, 3, w.streams[0]);
    OK(cen_pool_free(w.pool, a, w.streams[0]));
    world_close(&w);
}

static void trim_keeps_what_is_asked(void **state) {
    world w = world_open(state, &(cen_pool_options){.page_bytes = 2 * MIB});
    void *blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = get(&w, 2 * MIB, w.streams[0]);
    }
    for (int i = 0; i < 8; i++) {
        OK(cen_pool_free(w.pool, blocks[i], w.streams[0]));
    }
    uint64_t before = stats_of(&w).reserved_bytes, returned = 0;
    OK(cen_pool_trim(w.pool, before / 2, true, &returned));
    cen_pool_stats stats = stats_of(&w);
    assert_int_equal(stats.reserved_bytes, before - returned);
    assert_true(stats.reserved_bytes <= before / 2);
    assert_true(w.f->plain || stats.reserved_bytes + 2 * MIB > before / 2);
    world_close(&w);
}

static void preallocation_is_used(void **state) {
    world w = world_open(state, &(cen_pool_options){.preallocate_bytes = 64 * MIB});
    cen_pool_stats before = stats_of(&w);
    assert_in_range(before.reserved_bytes, 64 * MIB, 70 * MIB);
    void *a = get(&w, 30 * MIB, w.streams[0]), *b = get(&w, 30 * MIB, w.streams[1]);
    assert_int_equal(stats_of(&w).reserved_bytes, before.reserved_bytes);
    assert_int_equal(stats_of(&w).driver_calls, before.driver_calls);
    OK(cen_pool_preallocate(w.pool, 10 * MIB)); /* has more */
    assert_int_equal(stats_of(&w).reserved_bytes, before.reserved_bytes);
    OK(cen_pool_preallocate(w.pool, 100 * MIB));
    assert_true(stats_of(&w).reserved_bytes >= 100 * MIB);
    sound(&w);
    OK(cen_pool_free(w.pool, a, w.streams[0]));
    OK(cen_pool_free(w.pool, b, w.streams[1]));
    suite_log_reset();
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_preallocate(w.pool, (uint64_t)1 << 45));
    assert_int_equal(suite_log_errors, 1);
    sound(&w);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(every_size_is_its_own),
    SUITE_TEST(alignments_are_kept),
    SUITE_TEST(what_cannot_be_is_refused),
    SUITE_TEST(peaks_are_kept_and_reset),
    SUITE_TEST(a_list_is_the_walk),
    SUITE_TEST(frameworks_get_blocks_by_device),
    SUITE_TEST(freed_pieces_serve_a_larger_block),
    SUITE_TEST(trim_gives_back),
    SUITE_TEST(trim_keeps_what_is_asked),
    SUITE_TEST(preallocation_is_used),
};
SUITE_MAIN(tests)
