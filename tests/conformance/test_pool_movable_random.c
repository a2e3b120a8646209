/* Random programs of movable and ordinary blocks against a model that knows contents, readers and
 * pins, on one thread and on several. Blocks are moved, compacted and defragmented at random while
 * streams are slow or held: a move that is too early, or a place that is given out too early, is
 * seen as wrong contents. CENOTE_TEST_OPERATIONS sets how many in all (100000). */
#include "tests/conformance/movable_suite.h"

#include "dev/host/host.h"

enum { LIVE_MOST = 128, THREADS = 6, OWN = 16 };

typedef struct entry {
    cen_movable m;
    void *block; /* an ordinary one, or where a pinned one is */
    size_t bytes;
    uint32_t seed;
    int writer;
    unsigned readers; /* bits of streams that read it since */
    int pins;
} entry;

typedef struct model {
    world w;
    uint64_t rng;
    entry live[LIVE_MOST];
    int count, capturing, held;
    uint32_t seeds;
    uint64_t requested, moved, refused, ids;
    bool tight;
} model;

static uint64_t below(uint64_t *rng, uint64_t n) { /* xorshift64* */
    *rng ^= *rng >> 12;
    *rng ^= *rng << 25;
    *rng ^= *rng >> 27;
    return (*rng * 0x2545F4914F6CDD1Du >> 16) % n;
}

static uint64_t dice(model *m, uint64_t n) {
    return below(&m->rng, n);
}

static size_t some_size(uint64_t *rng) {
    switch (below(rng, 12)) {
    case 0:
        return MIB + below(rng, MIB);
    case 1:
        return 1 + below(rng, 32 * KIB);
    default:
        return 33 * KIB + below(rng, 300 * KIB);
    }
}

static void let_all_go(model *m) {
    for (int i = 0; i < STREAMS; i++) {
        let_go(&m->w, i);
    }
    m->held = 0;
}

/* The ends of a block, and its middle. */
static void touch_ends(world *w, void *block, size_t bytes, uint32_t seed, int stream, bool check) {
    size_t words = bytes / 4 < 256 ? bytes / 4 : 256;
    const size_t at[3] = {0, bytes / 2 & ~(size_t)511, (bytes & ~(size_t)3) - 4 * words};
    for (uint32_t i = 0; i < (bytes > 4096 ? 3 : 1); i++) {
        uint64_t addr = address(block) + at[i], n = words, counter = address(w->mismatches);
        uint32_t own = seed * 16 + i;
        void *args[] = {&addr, &own, &n, &counter};
        suite_launch(w->device, check ? "cen_check_u32" : "cen_pattern_u32", args, check ? 4 : 3,
                     w->streams[stream]);
    }
}

static void write_entry(model *m, entry *e, void *at, int stream) {
    order(&m->w, stream, e->writer);
    for (int i = 0; i < STREAMS; i++) {
        if (e->readers >> i & 1) {
            order(&m->w, stream, i);
        }
    }
    e->seed = ++m->seeds;
    e->writer = stream;
    e->readers = 0;
    touch_ends(&m->w, at, e->bytes, e->seed, stream, false);
}

static void read_entry(model *m, entry *e, void *at, int stream) {
    order(&m->w, stream, e->writer);
    e->readers |= 1u << stream;
    touch_ends(&m->w, at, e->bytes, e->seed, stream, true);
}

static void do_alloc(model *m) {
    if (m->count == LIVE_MOST) {
        return;
    }
    entry e = {.bytes = some_size(&m->rng), .writer = (int)dice(m, STREAMS)};
    cen_stream s = m->w.streams[e.writer];
    if (m->tight) { /* the ladder's end waits for the device */
        let_all_go(m);
    }
    bool movable = dice(m, 10) < 7;
    cen_status status = movable ? cen_movable_alloc(m->w.pool, e.bytes, s, &e.m)
                                : cen_pool_alloc(m->w.pool, e.bytes, s, &e.block);
    if (status) {
        bool graph = status == CEN_ERR_CAPTURE && m->capturing;
        assert_true(graph || (m->tight && status == CEN_ERR_DEVICE_MEMORY));
        m->refused++;
        return;
    }
    m->requested += e.bytes;
    if (e.block) {
        write_entry(m, &e, e.block, e.writer);
    } else if (dice(m, 8)) { /* else it is never pinned, maybe, and holds nothing */
        write_entry(m, &e, pin(&m->w, e.m, e.writer), e.writer);
        unpin(&m->w, e.m, e.writer);
    }
    m->live[m->count++] = e;
}

/* In the name of any stream: those that unpinned it are known. */
static void do_free(model *m) {
    if (!m->count) {
        return;
    }
    int at = (int)dice(m, (uint64_t)m->count), stream = (int)dice(m, STREAMS);
    entry *e = &m->live[at];
    if (e->pins) {
        FAILS(CEN_ERR_BUSY, cen_movable_free(m->w.pool, e->m, m->w.streams[stream]));
        return;
    }
    if (e->m) {
        cen_movable handle = e->m;
        OK(cen_movable_free(m->w.pool, handle, m->w.streams[stream]));
        FAILS(CEN_ERR_NOT_FOUND, cen_movable_free(m->w.pool, handle, m->w.streams[stream]));
    } else {
        for (int i = 0; i < STREAMS; i++) {
            if (e->readers >> i & 1 || i == e->writer) {
                OK(cen_pool_use(m->w.pool, e->block, m->w.streams[i]));
            }
        }
        OK(cen_pool_free(m->w.pool, e->block, m->w.streams[stream]));
    }
    m->requested -= e->bytes;
    *e = m->live[--m->count];
}

/* A pin that lasts is used by the streams that it was made for. */
static bool try_pin(model *m, entry *e, int stream) {
    void *at = NULL;
    cen_status status = cen_movable_pin(m->w.pool, e->m, m->w.streams[stream], &at);
    if (status) {
        assert_true(status == CEN_ERR_CAPTURE && m->capturing);
        return false;
    }
    assert_true(!e->pins || at == e->block);
    e->block = at;
    e->pins++;
    return true;
}

static void do_use(model *m) {
    if (!m->count) {
        return;
    }
    entry *e = &m->live[dice(m, (uint64_t)m->count)];
    int stream = (int)dice(m, STREAMS);
    if (e->m && !try_pin(m, e, stream)) {
        return;
    }
    if (!e->seed || !dice(m, 3)) {
        write_entry(m, e, e->block, stream);
    } else {
        read_entry(m, e, e->block, stream);
    }
    if (e->m) {
        unpin(&m->w, e->m, stream);
        e->pins--;
    }
}

static void do_pin(model *m) {
    if (!m->count) {
        return;
    }
    entry *e = &m->live[dice(m, (uint64_t)m->count)];
    int stream = (int)dice(m, STREAMS);
    if (e->m && e->pins && dice(m, 4)) {
        unpin(&m->w, e->m, stream);
        e->pins--;
    } else if (e->m) {
        (void)try_pin(m, e, stream);
    }
}

static void do_move(model *m) {
    if (!m->count) {
        return;
    }
    entry *e = &m->live[dice(m, (uint64_t)m->count)];
    if (!e->m) {
        return;
    }
    cen_status status = cen_movable_move(m->w.pool, e->m);
    if (e->pins) {
        assert_int_equal(status, CEN_ERR_BUSY);
    } else if (m->capturing) {
        assert_int_equal(status, CEN_ERR_CAPTURE);
    } else {
        assert_true(status == CEN_OK || status == CEN_ERR_DEVICE_MEMORY);
    }
    m->moved += !status;
}

static void do_defragment(model *m) {
    cen_defragment_options o = {.size = sizeof o, .compact = dice(m, 4), .wait = dice(m, 2)};
    const uint64_t keep[] = {0, stats_of(&m->w).reserved_bytes / 2, UINT64_MAX};
    o.keep_bytes = keep[dice(m, 3)];
    o.budget_us = dice(m, 3) ? 0 : 1 + dice(m, 300);
    if (o.wait || m->w.f->plain) { /* freeing a plain segment waits */
        let_all_go(m);
    }
    cen_defragment_report r;
    cen_status status = cen_pool_defragment(m->w.pool, &o, &r);
    assert_int_equal(status, m->capturing ? CEN_ERR_CAPTURE : CEN_OK);
    m->moved += status ? 0 : r.moved_blocks;
}

static void do_policy(model *m) {
    cen_defragment_policy p = {.size = sizeof p};
    p.interval_us = dice(m, 2) ? 100 + dice(m, 3000) : 0;
    p.threshold = dice(m, 2) ? (double)dice(m, 100) / 100 : 0;
    p.each = (cen_defragment_options){.compact = dice(m, 4)};
    p.each.keep_bytes = m->w.f->plain || dice(m, 2) ? UINT64_MAX : 0;
    OK(cen_pool_set_defragment(m->w.pool, dice(m, 3) ? &p : NULL));
}

static void do_hold(model *m) {
    if (m->held) {
        let_all_go(m);
        return;
    }
    int i = (int)dice(m, STREAMS);
    if (m->w.f->host) {
        hold(&m->w, i);
        m->held = 1;
    }
    if (m->w.f->host && !m->w.f->is_inline) {
        OK(ceni_host_stream_delay(m->w.device, m->w.streams[i], (uint32_t)dice(m, 20)));
    }
}

static void do_capture(model *m) {
    if (!m->capturing) {
        m->capturing = 1 + (int)dice(m, STREAMS);
        OK(cen_pool_capture_begin(m->w.pool, m->w.streams[m->capturing - 1], 1 + m->ids));
        return;
    }
    OK(cen_pool_capture_end(m->w.pool, m->w.streams[m->capturing - 1]));
    OK(cen_pool_capture_release(m->w.pool, 1 + m->ids++));
    m->capturing = 0;
}

static void step(model *m) {
    static const struct {
        int share;
        void (*fn)(model *m);
    } kinds[] = {{260, do_alloc},     {240, do_free},   {200, do_use},
                 {120, do_pin},       {120, do_move},   {25, do_hold},
                 {15, do_defragment}, {10, do_capture}, {10, do_policy}};
    int at = (int)dice(m, 1000);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if ((at -= kinds[i].share) < 0) {
            kinds[i].fn(m);
            return;
        }
    }
}

static void finish(model *m) {
    let_all_go(m);
    if (m->capturing) {
        do_capture(m);
    }
    OK(cen_pool_set_defragment(m->w.pool, NULL));
    for (int i = 0; i < m->count; i++) {
        entry *e = &m->live[i];
        if (e->m) {
            e->block = pin(&m->w, e->m, 0);
            e->pins++;
        }
        if (e->seed) {
            read_entry(m, e, e->block, 0);
        }
        while (e->pins) {
            unpin(&m->w, e->m, 0);
            e->pins--;
        }
    }
    while (m->count) {
        do_free(m);
    }
    sync_all(&m->w);
    OK(cen_pool_trim(m->w.pool, 0, true, NULL));
    assert_int_equal(stats_of(&m->w).reserved_bytes, 0);
    assert_true(m->moved > 0);
    world_close(&m->w);
}

static uint64_t operations(void) {
    const char *given = getenv("CENOTE_TEST_OPERATIONS");
    return given ? strtoull(given, NULL, 10) : 100000;
}

static void run(void **state, uint64_t seed, bool tight, uint64_t steps) {
    static model m;
    const cen_host_options host = {.capacity = tight ? 20 * MIB : 256 * MIB,
                                   .granularity = 64 * KIB};
    cen_pool_options options = {.page_bytes = 256 * KIB, .driver_share = 1};
    if (!((fixture *)*state)->host) {
        options.page_bytes = 2 * MIB;
        options.limit_bytes = tight ? 24 * MIB : 0;
    }
    m = (model){.rng = seed * 0x9E3779B97F4A7C15u, .tight = tight};
    m.w = world_on(state, &host, &options);
    for (uint64_t i = 0; i < steps; i++) {
        step(&m);
        if (i % 256 == 0) {
            sound(&m.w);
            assert_int_equal(stats_of(&m.w).requested_bytes, m.requested);
            assert_int_equal(stats_of(&m.w).blocks, m.count);
        }
        if (i % 1024 == 0) {
            sync_all(&m.w);
            m.held = 0;
            assert_int_equal(*m.w.mismatches, 0);
        }
    }
    finish(&m);
}

static void with_room(void **state) {
    run(state, 1, false, operations() / 6);
}

static void without_room(void **state) {
    run(state, 2, true, operations() / 6);
}

/* --- threads --- */

typedef struct worker {
    world *w;
    int index;
    uint64_t rng, rounds;
    int failed; /* the line where something was wrong */
} worker;

/* cmocka's assertions leave the thread that runs the test: workers note what failed instead. */
#define EXPECT(condition) (k->failed = k->failed ? k->failed : (condition) ? 0 : __LINE__)

static void touch_mine(worker *k, entry *e, bool check) {
    cen_stream s = k->w->streams[k->index % STREAMS];
    void *at = NULL;
    EXPECT(!cen_movable_pin(k->w->pool, e->m, s, &at));
    if (at) {
        uint64_t addr = address(at), n = 256, counter = address(k->w->mismatches);
        void *args[] = {&addr, &e->seed, &n, &counter};
        const cen_launch shape = {{1, 1, 1}, {128, 1, 1}, 0};
        EXPECT(!cen_kernel_launch(k->w->device, check ? "cen_check_u32" : "cen_pattern_u32", &shape,
                                  args, check ? 4 : 3, s));
        EXPECT(!cen_movable_unpin(k->w->pool, e->m, s));
    }
}

static void *work(void *arg) {
    worker *k = arg;
    entry own[OWN] = {{0}};
    cen_stream s = k->w->streams[k->index % STREAMS];
    for (uint64_t i = 0; i < k->rounds && !k->failed; i++) {
        entry *e = &own[below(&k->rng, OWN)];
        uint64_t what = below(&k->rng, 100);
        if (!e->m) {
            e->bytes = some_size(&k->rng) + 4096;
            e->seed = (uint32_t)k->index << 24 | (uint32_t)i;
            EXPECT(!cen_movable_alloc(k->w->pool, e->bytes, s, &e->m));
            touch_mine(k, e, false);
        } else if (what < 40) {
            touch_mine(k, e, true);
            EXPECT(!cen_movable_free(k->w->pool, e->m, s));
            e->m = 0;
        } else if (what < 70) {
            touch_mine(k, e, true);
        } else if (what < 97) {
            cen_status status = cen_movable_move(k->w->pool, e->m);
            EXPECT(!status || status == CEN_ERR_DEVICE_MEMORY);
        } else {
            cen_defragment_options o = {.size = sizeof o, .compact = true, .wait = what == 98};
            o.keep_bytes = what == 99 ? UINT64_MAX : 0;
            EXPECT(!cen_pool_defragment(k->w->pool, &o, NULL));
            EXPECT(!cen_pool_verify(k->w->pool));
        }
    }
    for (int i = 0; i < OWN; i++) {
        if (own[i].m) {
            touch_mine(k, &own[i], true);
            EXPECT(!cen_movable_free(k->w->pool, own[i].m, s));
        }
    }
    return NULL;
}

static void on_several_threads(void **state) {
    const cen_host_options host = {.capacity = 256 * MIB, .granularity = 64 * KIB};
    cen_pool_options options = {.page_bytes = 256 * KIB, .driver_share = 1};
    world w = world_on(state, &host, &options);
    void *first = get(&w, 100, w.streams[0]); /* skips here where there are no kernels */
    fill(&w, first, 100, 1, w.streams[0]);
    OK(cen_pool_free(w.pool, first, w.streams[0]));
    cen_defragment_policy p = {.size = sizeof p, .interval_us = 2000};
    p.each.compact = true;
    OK(cen_pool_set_defragment(w.pool, &p));
    static worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){&w, i, (uint64_t)i + 1, operations() / 12 / THREADS, 0};
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
    assert_int_equal(stats_of(&w).blocks, 0);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(with_room),
    SUITE_TEST(without_room),
    SUITE_TEST(on_several_threads),
};
SUITE_MAIN(tests)
