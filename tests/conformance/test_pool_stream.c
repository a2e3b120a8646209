/* The order of streams: at once on the same stream, behind an event on another, after every use
 * that was named, and never unmapped under work. Streams are held so that work is in flight. */
#include "tests/conformance/pool_suite.h"

#include <pthread.h>

/* On the host, whether work is still waiting on a stream is known; on a GPU it may have ended. */
static void waits(world *w, int i) {
    if (w->f->host) {
        FAILS(CEN_ERR_NOT_READY, cen_stream_query(w->device, w->streams[i]));
    }
}

static void the_same_stream_reuses_at_once(void **state) {
    world w = world_open(state, NULL);
    cen_stream s = w.streams[0];
    const size_t sizes[] = {700, 30000, 50000, 3 * MIB};
    for (int i = 0; i < 4; i++) {
        void *block = get(&w, sizes[i], s);
        OK(cen_pool_free(w.pool, block, s));
    }
    hold(&w, 0);
    uint64_t calls = stats_of(&w).driver_calls;
    for (int i = 0; i < 4; i++) {
        void *first = get(&w, sizes[i], s);
        fill(&w, first, sizes[i], 1, s);
        check(&w, first, sizes[i], 1, s);
        OK(cen_pool_use(w.pool, first, s)); /* says nothing new */
        OK(cen_pool_free(w.pool, first, s));
        void *again = get(&w, sizes[i], s);
        assert_ptr_equal(again, first);
        fill(&w, again, sizes[i], 2, s);
        check(&w, again, sizes[i], 2, s);
        OK(cen_pool_free(w.pool, again, s));
    }
    assert_int_equal(stats_of(&w).driver_calls, calls);
    waits(&w, 0);
    world_close(&w);
}

static void another_stream_comes_after_an_event(void **state) {
    world w = world_open(state, NULL);
    void *block = get(&w, 8 * MIB, w.streams[0]);
    hold(&w, 0);
    for (uint32_t round = 0; round < 6; round++) {
        cen_stream s = w.streams[round % 3];
        fill(&w, block, 8 * MIB, round, s);
        check(&w, block, 8 * MIB, round, s);
        OK(cen_pool_free(w.pool, block, s));
        void *next = get(&w, 8 * MIB, w.streams[(round + 1) % 3]);
        assert_ptr_equal(next, block); /* before the pool grows */
        waits(&w, (int)(round + 1) % 3);
        sound(&w);
    }
    OK(cen_pool_free(w.pool, block, w.streams[0]));
    world_close(&w);
}

/* Pieces of 2 MiB become one large block and pieces again, on other streams, with all in flight. */
static void pages_move_under_work(void **state) {
    world w = world_open(state, &(cen_pool_options){.page_bytes = 2 * MIB, .driver_share = 1});
    void *pieces[16], *large;
    for (uint32_t round = 0; round < 6; round++) {
        cen_stream a = w.streams[round % 2], b = w.streams[2 + round % 2];
        hold(&w, (int)round % 2);
        for (uint32_t i = 0; i < 16; i++) {
            pieces[i] = get(&w, 2 * MIB, a);
            fill(&w, pieces[i], 2 * MIB, 100 * round + i, a);
        }
        for (uint32_t i = 0; i < 16; i += 2) {
            check(&w, pieces[i], 2 * MIB, 100 * round + i, a);
            OK(cen_pool_free(w.pool, pieces[i], a));
        }
        large = get(&w, 16 * MIB, b);
        fill(&w, large, 16 * MIB, 100 * round + 50, b);
        for (uint32_t i = 1; i < 16; i += 2) {
            check(&w, pieces[i], 2 * MIB, 100 * round + i, a);
            OK(cen_pool_free(w.pool, pieces[i], a));
        }
        check(&w, large, 16 * MIB, 100 * round + 50, b);
        OK(cen_pool_free(w.pool, large, b));
        sound(&w);
        let_go(&w, (int)round % 2);
    }
    cen_pool_stats stats = stats_of(&w);
    assert_true(w.f->plain || stats.remapped_bytes >= 16 * MIB);
    assert_true(w.f->plain || stats.reserved_bytes <= 36 * MIB);
    world_close(&w);
}

static void used_blocks_wait_for_their_users(void **state) {
    world w = world_open(state, NULL);
    const size_t sizes[] = {900, 20000, 40000, 3 * MIB};
    for (int i = 0; i < 4; i++) {
        void *block = get(&w, sizes[i], w.streams[0]), *others[40];
        fill(&w, block, sizes[i], 1, w.streams[0]);
        OK(cen_stream_sync(w.device, w.streams[0]));
        hold(&w, 1);
        check(&w, block, sizes[i], 1, w.streams[1]);
        OK(cen_pool_use(w.pool, block, w.streams[1]));
        OK(cen_pool_use(w.pool, block, w.streams[1]));
        OK(cen_pool_use(w.pool, block, w.streams[2]));
        OK(cen_pool_free(w.pool, block, w.streams[0]));
        assert_true(!w.f->host || stats_of(&w).pending_blocks == 1);
        assert_true(!w.f->host || stats_of(&w).pending_bytes >= sizes[i]);
        sound(&w);
        for (uint32_t k = 0; k < 40; k++) { /* none of them is the block while it is used */
            others[k] = get(&w, sizes[i], w.streams[k % 2 ? 0 : 3]);
            fill(&w, others[k], sizes[i], 2 + k, w.streams[k % 2 ? 0 : 3]);
            assert_true(!w.f->host || others[k] != block);
        }
        let_go(&w, 1);
        OK(cen_stream_sync(w.device, w.streams[1]));
        for (uint32_t k = 0; k < 40; k++) {
            check(&w, others[k], sizes[i], 2 + k, w.streams[k % 2 ? 0 : 3]);
            OK(cen_pool_free(w.pool, others[k], w.streams[k % 2 ? 0 : 3]));
        }
        OK(cen_pool_trim(w.pool, UINT64_MAX, true, NULL));
        assert_int_equal(stats_of(&w).pending_blocks, 0);
        assert_int_equal(stats_of(&w).pending_bytes, 0);
        sound(&w);
    }
    world_close(&w);
}

/* Allocated on one stream, which still uses it and says so, and freed on another. */
static void the_first_stream_can_be_a_user(void **state) {
    world w = world_open(state, NULL);
    const size_t sizes[] = {900, 40000, 3 * MIB};
    for (int i = 0; i < 3; i++) {
        void *block = get(&w, sizes[i], w.streams[0]), *next[4];
        hold(&w, 0);
        fill(&w, block, sizes[i], 1, w.streams[0]);
        check(&w, block, sizes[i], 1, w.streams[0]);
        OK(cen_pool_use(w.pool, block, w.streams[0]));
        OK(cen_pool_free(w.pool, block, w.streams[1]));
        for (int k = 0; k < 4; k++) {
            next[k] = get(&w, sizes[i], w.streams[1]);
            fill(&w, next[k], sizes[i], 2, w.streams[1]);
        }
        let_go(&w, 0);
        for (int k = 0; k < 4; k++) {
            check(&w, next[k], sizes[i], 2, w.streams[1]);
            OK(cen_pool_free(w.pool, next[k], w.streams[1]));
        }
        sync_all(&w);
    }
    world_close(&w);
}

/* The stream that frees decides who has to wait. */
static void freed_on_another_stream(void **state) {
    world w = world_open(state, NULL);
    const size_t sizes[] = {900, 40000, 3 * MIB};
    for (int i = 0; i < 3; i++) {
        void *block = get(&w, sizes[i], w.streams[0]), *next[4];
        hold(&w, 1);
        fill(&w, block, sizes[i], 1, w.streams[1]);
        check(&w, block, sizes[i], 1, w.streams[1]);
        OK(cen_pool_free(w.pool, block, w.streams[1]));
        for (uint32_t k = 0; k < 4; k++) {
            next[k] = get(&w, sizes[i], w.streams[0]);
            fill(&w, next[k], sizes[i], 2 + k, w.streams[0]);
        }
        sound(&w);
        let_go(&w, 1);
        for (uint32_t k = 0; k < 4; k++) {
            check(&w, next[k], sizes[i], 2 + k, w.streams[0]);
            OK(cen_pool_free(w.pool, next[k], w.streams[0]));
        }
        sync_all(&w);
    }
    world_close(&w);
}

typedef struct job {
    world *w;
    void *blocks[64];
    cen_status status;
} job;

static void *free_all(void *arg) {
    job *j = arg;
    for (int i = 63; i >= 0 && !j->status; i--) {
        j->status = cen_pool_free(j->w->pool, j->blocks[i], j->w->streams[0]);
    }
    return NULL;
}

static void freed_by_another_thread(void **state) {
    world w = world_open(state, NULL);
    job j = {.w = &w};
    for (int i = 0; i < 64; i++) {
        j.blocks[i] = get(&w, i % 4 ? 5000 : MIB, w.streams[0]);
    }
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_all, &j), 0);
    pthread_join(thread, NULL);
    OK(j.status);
    uint64_t reserved = stats_of(&w).reserved_bytes;
    for (int i = 0; i < 64; i++) {
        j.blocks[i] = get(&w, i % 4 ? 5000 : MIB, w.streams[0]);
    }
    assert_int_equal(stats_of(&w).reserved_bytes, reserved);
    free_all(&j);
    world_close(&w);
}

static void a_released_stream_leaves_its_memory(void **state) {
    world w = world_open(state, NULL);
    void *freed = get(&w, 10 * MIB, w.streams[3]), *live = get(&w, 6 * MIB, w.streams[3]);
    void *small = get(&w, 600, w.streams[3]), *used = get(&w, 4 * MIB, w.streams[0]);
    fill(&w, freed, 10 * MIB, 1, w.streams[3]);
    fill(&w, live, 6 * MIB, 2, w.streams[3]);
    check(&w, live, 6 * MIB, 2, w.streams[3]);
    OK(cen_pool_use(w.pool, used, w.streams[3]));
    OK(cen_pool_free(w.pool, freed, w.streams[3]));
    cen_stream gone = w.streams[3];
    OK(cen_pool_stream_release(w.pool, gone));
    OK(cen_stream_destroy(w.device, gone));
    OK(cen_stream_create(w.device, 0, &w.streams[3]));
    suite_log_reset();
    uint64_t reserved = stats_of(&w).reserved_bytes;
    void *next = get(&w, 10 * MIB, w.streams[1]);
    assert_int_equal(stats_of(&w).reserved_bytes, reserved);
    /* What was the stream's can still be freed in its name, and what it used too. */
    OK(cen_pool_free(w.pool, live, gone));
    OK(cen_pool_free(w.pool, small, gone));
    OK(cen_pool_free(w.pool, used, w.streams[0]));
    OK(cen_pool_free(w.pool, next, w.streams[1]));
    uint64_t returned;
    OK(cen_pool_trim(w.pool, 0, true, &returned));
    assert_int_equal(suite_log_errors, 0);
    assert_int_equal(stats_of(&w).pending_blocks, 0);
    assert_int_equal(returned, reserved);
    world_close(&w);
}

typedef struct late_frees {
    cen_pool *pool;
    cen_stream stream;
    void *blocks[64];
    cen_status status;
} late_frees;

static void *free_late(void *arg) {
    late_frees *l = arg;
    for (int i = 0; i < 64 && !l->status; i++) {
        l->status = cen_pool_free(l->pool, l->blocks[i], l->stream);
    }
    return NULL;
}

/* Streams come and go, while another thread still frees in their name. */
static void streams_come_and_go(void **state) {
    world w = world_open(state, NULL);
    for (int round = 0; round < 200; round++) {
        late_frees l = {.pool = w.pool};
        OK(cen_stream_create(w.device, 0, &l.stream));
        for (int i = 0; i < 64; i++) {
            l.blocks[i] = get(&w, 600, l.stream);
        }
        pthread_t thread;
        OK(pthread_create(&thread, NULL, free_late, &l));
        OK(cen_pool_stream_release(w.pool, l.stream));
        void *next = get(&w, 600, w.streams[round % 3]);
        OK(pthread_join(thread, NULL));
        OK(l.status);
        OK(cen_pool_free(w.pool, next, w.streams[round % 3]));
        OK(cen_stream_destroy(w.device, l.stream));
    }
    cen_pool_stats stats = stats_of(&w);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    assert_int_equal(stats.allocs, 200 * 65);
    assert_int_equal(stats.frees, 200 * 65);
    sound(&w);
    world_close(&w);
}

static void nothing_is_unmapped_under_work(void **state) {
    world w = world_open(state, &(cen_pool_options){.page_bytes = 2 * MIB, .driver_share = 1});
    void *a = get(&w, 8 * MIB, w.streams[0]), *b = get(&w, 8 * MIB, w.streams[1]);
    hold(&w, 0);
    fill(&w, a, 8 * MIB, 1, w.streams[0]);
    check(&w, a, 8 * MIB, 1, w.streams[0]);
    OK(cen_pool_free(w.pool, a, w.streams[0]));
    OK(cen_pool_free(w.pool, b, w.streams[1]));
    /* Larger than either: pages of both, moved, and in use at their new place. */
    void *large = get(&w, 12 * MIB, w.streams[2]);
    fill(&w, large, 12 * MIB, 2, w.streams[2]);
    check(&w, large, 12 * MIB, 2, w.streams[2]);
    OK(cen_pool_free(w.pool, large, w.streams[2]));
    uint64_t before = stats_of(&w).reserved_bytes, returned = 1;
    if (!w.f->plain) { /* cudaFree waits, and so does its likeness */
        OK(cen_pool_trim(w.pool, 0, false, &returned));
        assert_true(!w.f->host || returned <= before - 12 * MIB);
        sound(&w);
    }
    let_go(&w, 0);
    OK(cen_pool_trim(w.pool, 0, true, &returned));
    assert_int_equal(stats_of(&w).reserved_bytes, 0);
    world_close(&w);
}

/* One trim that waits returns also the slabs that pending objects keep. */
static void a_trim_waits_for_pending_objects(void **state) {
    world w = world_open(state, NULL);
    void *object = get(&w, 600, w.streams[0]);
    hold(&w, 1);
    OK(cen_pool_use(w.pool, object, w.streams[1]));
    OK(cen_pool_free(w.pool, object, w.streams[0]));
    let_go(&w, 1);
    uint64_t returned;
    OK(cen_pool_trim(w.pool, 0, true, &returned));
    assert_int_equal(stats_of(&w).reserved_bytes, 0);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(the_same_stream_reuses_at_once),
    SUITE_TEST(another_stream_comes_after_an_event),
    SUITE_TEST(pages_move_under_work),
    SUITE_TEST(used_blocks_wait_for_their_users),
    SUITE_TEST(the_first_stream_can_be_a_user),
    SUITE_TEST(freed_on_another_stream),
    SUITE_TEST(freed_by_another_thread),
    SUITE_TEST(a_released_stream_leaves_its_memory),
    SUITE_TEST(nothing_is_unmapped_under_work),
    SUITE_TEST(streams_come_and_go),
    SUITE_TEST(a_trim_waits_for_pending_objects),
};
SUITE_MAIN(tests)
