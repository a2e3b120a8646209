/* Random programs against a model that knows what is live.
 *
 * The model keeps each live block's range, contents and users. No two live blocks may overlap;
 * every block's contents are checked by kernels at random moments and before it is freed, in the
 * order of its streams, while streams are slow and held at random: memory that is handed out too
 * early, or mapped in two places, is seen as wrong contents. */
#include "tests/conformance/pool_suite.h"

#include "dev/host/host.h"

enum { LIVE_MAX = 96 };

typedef struct entry {
    void *block;
    size_t bytes;
    uint32_t seed;
    int stream; /* of its last writer */
} entry;

typedef struct model {
    world w;
    uint64_t rng;
    entry live[LIVE_MAX];
    int count, capturing, held, slow;
    uint32_t seeds;
    uint64_t requested, failures, captures;
    bool tight;
} model;

static uint64_t next(model *m) { /* xorshift64* */
    m->rng ^= m->rng >> 12;
    m->rng ^= m->rng << 25;
    m->rng ^= m->rng >> 27;
    return m->rng * 0x2545F4914F6CDD1Du >> 16;
}

static uint64_t below(model *m, uint64_t n) {
    return next(m) % n;
}

static size_t random_size(model *m) {
    switch (below(m, 8)) {
    case 0:
    case 1:
    case 2:
        return 1 + below(m, 32 * KIB);
    case 3:
        return 32 * KIB + 1 + below(m, MIB);
    case 4:
        return (1 + below(m, 8)) * MIB;
    case 5:
        return 512 << below(m, 14);
    default:
        return MIB / 2 + below(m, m->tight ? 6 * MIB : 20 * MIB);
    }
}

static void let_all_go(model *m) {
    for (int i = 0; i < STREAMS; i++) {
        let_go(&m->w, i);
    }
    m->held = 0;
}

static void no_overlap(const model *m, const void *block, size_t bytes) {
    for (int i = 0; i < m->count; i++) {
        cen_addr a = address(m->live[i].block), b = address(block);
        assert_true(b + bytes <= a || a + m->live[i].bytes <= b);
    }
}

static void do_alloc(model *m) {
    if (m->count == LIVE_MAX) {
        return;
    }
    entry e = {.bytes = random_size(m), .stream = (int)below(m, STREAMS), .seed = ++m->seeds};
    cen_stream s = m->w.streams[e.stream];
    if (m->tight) { /* the ladder's end waits for the device */
        let_all_go(m);
    }
    size_t alignment = below(m, 8) ? 1 : (size_t)1 << below(m, 23);
    cen_status status = cen_pool_alloc_aligned(m->w.pool, e.bytes, alignment, s, &e.block);
    if (status) {
        assert_true(m->tight);
        assert_true(status == CEN_ERR_DEVICE_MEMORY || status == CEN_ERR_CAPTURE);
        m->failures++;
        return;
    }
    size_t bytes = 0;
    OK(cen_pool_block_size(m->w.pool, e.block, &bytes));
    assert_int_equal(bytes, e.bytes);
    assert_int_equal(address(e.block) % alignment, 0);
    no_overlap(m, e.block, e.bytes);
    fill(&m->w, e.block, e.bytes, e.seed, s);
    m->requested += e.bytes;
    m->live[m->count++] = e;
}

/* Its contents were read on another stream, behind the writer: the pool has to know. */
static void read_elsewhere(model *m, entry *e) {
    int other = (int)below(m, STREAMS);
    cen_event event;
    if (other == e->stream) {
        return;
    }
    OK(cen_event_create(m->w.device, 0, &event));
    OK(cen_event_record(m->w.device, event, m->w.streams[e->stream]));
    OK(cen_stream_wait(m->w.device, m->w.streams[other], event));
    OK(cen_event_destroy(m->w.device, event));
    check(&m->w, e->block, e->bytes, e->seed, m->w.streams[other]);
    OK(cen_pool_use(m->w.pool, e->block, m->w.streams[other]));
}

static void do_free(model *m) {
    if (!m->count) {
        return;
    }
    int at = (int)below(m, (uint64_t)m->count);
    entry *e = &m->live[at];
    check(&m->w, e->block, e->bytes, e->seed, m->w.streams[e->stream]);
    if (!below(m, 4)) {
        read_elsewhere(m, e);
    }
    int stream = e->stream;
    if (!below(m, 6)) { /* freed in another stream's name, and said so */
        OK(cen_pool_use(m->w.pool, e->block, m->w.streams[e->stream]));
        stream = (int)below(m, STREAMS);
    }
    OK(cen_pool_free(m->w.pool, e->block, m->w.streams[stream]));
    m->requested -= e->bytes;
    *e = m->live[--m->count];
}

static void do_check(model *m) {
    if (m->count) {
        entry *e = &m->live[below(m, (uint64_t)m->count)];
        check(&m->w, e->block, e->bytes, e->seed, m->w.streams[e->stream]);
        if (!below(m, 2)) { /* rewritten */
            e->seed = ++m->seeds;
            fill(&m->w, e->block, e->bytes, e->seed, m->w.streams[e->stream]);
        }
    }
}

static void do_hold(model *m) {
    int i = (int)below(m, STREAMS);
    if (m->held) {
        let_all_go(m);
    } else {
        hold(&m->w, i);
        m->held = 1;
    }
    if (m->w.f->host && !m->w.f->is_inline && !below(m, 3)) { /* one is slow, another no more */
        OK(ceni_host_stream_delay(m->w.device, m->w.streams[m->slow], 0));
        m->slow = i;
        OK(ceni_host_stream_delay(m->w.device, m->w.streams[i], (uint32_t)below(m, 30)));
    }
}

static void do_capture(model *m) {
    cen_pool *pool = m->w.pool;
    if (m->capturing) {
        int stream = m->capturing - 1;
        OK(cen_pool_capture_end(pool, m->w.streams[stream]));
        m->capturing = 0;
        if (below(m, 2)) {
            OK(cen_pool_capture_release(pool, 1 + m->captures));
            m->captures++;
        }
    } else {
        m->capturing = 1 + (int)below(m, STREAMS);
        OK(cen_pool_capture_begin(pool, m->w.streams[m->capturing - 1], 1 + m->captures));
    }
}

static void do_trim(model *m) {
    bool wait = below(m, 2);
    uint64_t before = stats_of(&m->w).reserved_bytes, returned = 0;
    if (wait || m->w.f->plain) { /* freeing a plain segment waits */
        let_all_go(m);
    }
    cen_status status = cen_pool_trim(m->w.pool, below(m, 3) ? before / 2 : 0, wait, &returned);
    assert_int_equal(status, m->capturing ? CEN_ERR_CAPTURE : CEN_OK);
    assert_int_equal(stats_of(&m->w).reserved_bytes, before - returned);
}

static void step(model *m) {
    uint64_t dice = below(m, 1000);
    if (dice < 460) {
        do_alloc(m);
    } else if (dice < 900) {
        do_free(m);
    } else if (dice < 950) {
        do_check(m);
    } else if (dice < 980) {
        do_hold(m);
    } else if (dice < 990) {
        do_capture(m);
    } else if (dice < 996 || m->tight) {
        do_trim(m);
    } else {
        uint64_t limit = below(m, 2) ? 0 : UINT64_MAX;
        OK(cen_pool_set_limit(m->w.pool, limit));
    }
}

static void finish(model *m) {
    let_all_go(m);
    if (m->capturing) {
        do_capture(m);
    }
    while (m->count) {
        do_free(m);
    }
    sync_all(&m->w);
    OK(cen_pool_trim(m->w.pool, 0, true, NULL));
    for (uint64_t id = 1; id <= m->captures + 1; id++) {
        cen_status status = cen_pool_capture_release(m->w.pool, id);
        assert_true(!status || status == CEN_ERR_NOT_FOUND);
    }
    OK(cen_pool_trim(m->w.pool, 0, true, NULL));
    assert_int_equal(stats_of(&m->w).reserved_bytes, 0);
    world_close(&m->w);
}

static void run(void **state, uint64_t seed, uint64_t page_bytes, bool tight, int steps) {
    static model m;
    const cen_host_options small = {.capacity = 96 * MIB};
    cen_pool_options options = {.page_bytes = page_bytes, .driver_share = 0.5};
    if (tight && !((fixture *)*state)->host) {
        options.limit_bytes = 96 * MIB;
    }
    m = (model){.rng = seed * 0x9E3779B97F4A7C15u, .tight = tight};
    m.w = world_on(state, tight ? &small : NULL, &options);
    for (int i = 0; i < steps; i++) {
        step(&m);
        if (i % 50 == 0) {
            sound(&m.w);
            assert_int_equal(stats_of(&m.w).requested_bytes, m.requested);
            assert_int_equal(stats_of(&m.w).blocks, m.count);
            assert_int_equal(stats_of(&m.w).failures, m.failures);
        }
        if (i % 500 == 499) {
            let_all_go(&m);
            sync_all(&m.w);
            assert_int_equal(*m.w.mismatches, 0);
        }
    }
    finish(&m);
}

static void chosen_pages(void **state) {
    run(state, 1, 0, false, 1500);
    run(state, 2, 0, false, 1500);
}

static void small_pages(void **state) {
    run(state, 3, 2 * MIB, false, 1500);
}

static void larger_pages(void **state) {
    run(state, 4, 8 * MIB, false, 1500);
}

static void tight_chosen_pages(void **state) {
    run(state, 5, 0, true, 1500);
    run(state, 6, 0, true, 1500);
}

static void tight_small_pages(void **state) {
    run(state, 7, 2 * MIB, true, 1500);
    run(state, 8, 2 * MIB, true, 1500);
}

static void tight_larger_pages(void **state) {
    run(state, 9, 8 * MIB, true, 1500);
}

/* CENOTE_TEST_SEED=n: that one, longer. */
static void a_given_seed(void **state) {
    const char *seed = getenv("CENOTE_TEST_SEED");
    if (!seed) {
        suite_skip("CENOTE_TEST_SEED is not set");
        return;
    }
    uint64_t n = strtoull(seed, NULL, 10);
    run(state, n, n % 3 == 0 ? 0 : n % 3 == 1 ? 2 * MIB : 8 * MIB, n % 2, 10000);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(chosen_pages),       SUITE_TEST(small_pages),       SUITE_TEST(larger_pages),
    SUITE_TEST(tight_chosen_pages), SUITE_TEST(tight_small_pages), SUITE_TEST(tight_larger_pages),
    SUITE_TEST(a_given_seed),
};
SUITE_MAIN(tests)
