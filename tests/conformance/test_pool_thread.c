/* Many threads, on their own and on shared streams, which pass blocks to each other. */
#include "tests/conformance/pool_suite.h"

enum { THREADS = 8, ROUNDS = 1500, SHELF = 32, OWN = 12 };

typedef struct item {
    void *block;
    size_t bytes;
    uint32_t seed;
    int stream;
} item;

/* Where blocks wait for the thread that takes them next. */
typedef struct shelf {
    pthread_mutex_t lock;
    item items[SHELF];
} shelf;

typedef struct worker {
    world *w;
    shelf *shelf;
    int index;
    uint64_t rng;
    item own[OWN];
    int failed; /* the line where something was wrong */
    uint64_t made;
} worker;

static uint64_t next(worker *k) {
    k->rng = k->rng * 6364136223846793005u + 1442695040888963407u;
    return k->rng >> 33;
}

/* cmocka's assertions leave the thread that runs the test: workers note what failed instead. */
#define EXPECT(condition) (k->failed = k->failed ? k->failed : (condition) ? 0 : __LINE__)

static size_t size_of(worker *k) {
    switch (next(k) % 4) {
    case 0:
        return 40000 + next(k) % 900000;
    case 1:
        return MIB + next(k) % (2 * MIB);
    default:
        return 1 + next(k) % (32 * KIB);
    }
}

static void touch_head(worker *k, const item *it, bool check_it) {
    uint64_t addr = address(it->block), words = (it->bytes < 4096 ? it->bytes : 4096) / 4;
    uint64_t counter = address(k->w->mismatches);
    uint32_t seed = it->seed;
    void *args[] = {&addr, &seed, &words, &counter};
    const cen_launch shape = {{1, 1, 1}, {128, 1, 1}, 0};
    EXPECT(!cen_kernel_launch(k->w->device, check_it ? "cen_check_u32" : "cen_pattern_u32", &shape,
                              args, check_it ? 4 : 3, k->w->streams[it->stream]));
}

static item make(worker *k) {
    /* Streams are shared by pairs of threads. */
    item it = {.bytes = size_of(k), .stream = k->index % STREAMS};
    it.seed = (uint32_t)k->index << 24 | (uint32_t)k->made++;
    EXPECT(!cen_pool_alloc(k->w->pool, it.bytes, k->w->streams[it.stream], &it.block));
    if (it.block) {
        touch_head(k, &it, false);
    }
    return it;
}

/* On its own stream, or on the stream of this thread, which then has to wait. */
static void put_away(worker *k, item *it) {
    if (!it->block) {
        return;
    }
    size_t bytes = 0;
    EXPECT(!cen_pool_block_size(k->w->pool, it->block, &bytes) && bytes == it->bytes);
    touch_head(k, it, true);
    int mine = k->index % STREAMS;
    if (mine != it->stream && next(k) % 2) {
        EXPECT(!cen_pool_use(k->w->pool, it->block, k->w->streams[it->stream]));
        EXPECT(!cen_pool_free(k->w->pool, it->block, k->w->streams[mine]));
    } else {
        EXPECT(!cen_pool_free(k->w->pool, it->block, k->w->streams[it->stream]));
    }
    it->block = NULL;
}

static void *work(void *arg) {
    worker *k = arg;
    for (int i = 0; i < ROUNDS; i++) {
        item *it = &k->own[next(k) % OWN];
        put_away(k, it);
        *it = make(k);
        if (i % 3 == 0) { /* exchange it for what lies on the shelf */
            pthread_mutex_lock(&k->shelf->lock);
            item *there = &k->shelf->items[next(k) % SHELF], taken = *there;
            *there = *it;
            pthread_mutex_unlock(&k->shelf->lock);
            *it = taken;
        }
        if (i % 64 == k->index) {
            EXPECT(!cen_pool_verify(k->w->pool));
        }
        if (i % 100 == 50 + k->index) {
            cen_pool_stats stats;
            EXPECT(!cen_pool_trim(k->w->pool, 0, k->index % 2, NULL));
            EXPECT(!cen_pool_get_stats(k->w->pool, &stats));
        }
    }
    for (int i = 0; i < OWN; i++) {
        put_away(k, &k->own[i]);
    }
    return NULL;
}

static void run(void **state, uint64_t page_bytes) {
    world w = world_open(state, &(cen_pool_options){.page_bytes = page_bytes, .driver_share = 1});
    shelf s = {.lock = PTHREAD_MUTEX_INITIALIZER};
    static worker workers[THREADS];
    pthread_t threads[THREADS];
    void *first = get(&w, 100, w.streams[0]); /* skips here where there are no kernels */
    fill(&w, first, 100, 1, w.streams[0]);
    OK(cen_pool_free(w.pool, first, w.streams[0]));
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.w = &w, .shelf = &s, .index = i, .rng = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        if (workers[i].failed) {
            fail_msg("thread %d failed in line %d: %s", i, workers[i].failed, suite_log_line);
        }
    }
    for (int i = 0; i < SHELF; i++) {
        put_away(&workers[0], &s.items[i]);
    }
    sync_all(&w);
    OK(cen_pool_trim(w.pool, 0, true, NULL));
    assert_int_equal(stats_of(&w).blocks, 0);
    assert_int_equal(stats_of(&w).reserved_bytes, 0);
    world_close(&w);
}

static void threads_share_a_pool(void **state) {
    run(state, 0);
}

static void threads_share_a_pool_of_small_pages(void **state) {
    run(state, 2 * MIB);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(threads_share_a_pool),
    SUITE_TEST(threads_share_a_pool_of_small_pages),
};
SUITE_MAIN(tests)
