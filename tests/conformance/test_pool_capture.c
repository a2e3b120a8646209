/* Graphs: their blocks come from private pools and stay, whatever the shared pool does; and nothing
 * the pool does while a stream captures breaks the capture. */
#include "tests/conformance/pool_suite.h"

#include "dev/capture.h"

enum { BLOCKS = 4 };

typedef struct graph {
    ceni_graph *graph;
    void *blocks[BLOCKS];
    size_t bytes[BLOCKS];
    uint32_t seed;
} graph;

/* Allocates a graph's blocks and captures writing and checking them. Plain segments cannot be made
 * during a capture, so the private pool is filled before. */
static graph record(world *w, int stream, uint64_t id, uint32_t seed) {
    graph g = {.bytes = {1000, 60000, 3 * MIB, 6 * MIB}, .seed = seed};
    cen_stream s = w->streams[stream];
    OK(cen_pool_capture_begin(w->pool, s, id));
    for (int i = 0; w->f->plain && i < BLOCKS; i++) {
        g.blocks[i] = get(w, g.bytes[i], s);
    }
    for (int i = 0; w->f->plain && i < BLOCKS; i++) {
        OK(cen_pool_free(w->pool, g.blocks[i], s));
    }
    OK(ceni_capture_begin(w->device, s));
    for (int i = 0; i < BLOCKS; i++) {
        g.blocks[i] = get(w, g.bytes[i], s);
        fill(w, g.blocks[i], g.bytes[i], seed + (uint32_t)i, s);
    }
    return g;
}

static void end_record(world *w, int stream, graph *g) {
    cen_stream s = w->streams[stream];
    for (int i = 0; i < BLOCKS; i++) {
        check(w, g->blocks[i], g->bytes[i], g->seed + (uint32_t)i, s);
    }
    OK(ceni_capture_end(w->device, s, &g->graph));
    OK(cen_pool_capture_end(w->pool, s));
}

static void replay(world *w, const graph *g, cen_stream stream) {
    OK(ceni_graph_launch(w->device, g->graph, stream));
    for (int i = 0; i < BLOCKS; i++) {
        check(w, g->blocks[i], g->bytes[i], g->seed + (uint32_t)i, stream);
    }
}

static void free_graph(world *w, graph *g, int stream) {
    OK(cen_stream_sync(w->device, w->streams[stream]));
    ceni_graph_destroy(w->device, g->graph);
    for (int i = 0; i < BLOCKS; i++) {
        OK(cen_pool_free(w->pool, g->blocks[i], w->streams[stream]));
    }
}

/* Pieces, holes and large blocks on two streams; where there are pages they are remapped. */
static void churn(world *w, uint32_t seed) {
    void *pieces[12];
    for (uint32_t i = 0; i < 12; i++) {
        pieces[i] = get(w, 2 * MIB, w->streams[1]);
        fill(w, pieces[i], 2 * MIB, seed + i, w->streams[1]);
    }
    for (uint32_t i = 0; i < 12; i += 2) {
        check(w, pieces[i], 2 * MIB, seed + i, w->streams[1]);
        OK(cen_pool_free(w->pool, pieces[i], w->streams[1]));
    }
    void *large = get(w, 11 * MIB, w->streams[2]), *small = get(w, 3000, w->streams[2]);
    fill(w, large, 11 * MIB, seed + 50, w->streams[2]);
    fill(w, small, 3000, seed + 51, w->streams[2]);
    for (uint32_t i = 1; i < 12; i += 2) {
        check(w, pieces[i], 2 * MIB, seed + i, w->streams[1]);
        OK(cen_pool_free(w->pool, pieces[i], w->streams[1]));
    }
    check(w, large, 11 * MIB, seed + 50, w->streams[2]);
    check(w, small, 3000, seed + 51, w->streams[2]);
    OK(cen_pool_free(w->pool, large, w->streams[2]));
    OK(cen_pool_free(w->pool, small, w->streams[2]));
}

static void a_graph_replays_while_the_pool_remaps(void **state) {
    world w = world_open(state, &(cen_pool_options){.page_bytes = 2 * MIB, .driver_share = 1});
    graph g = record(&w, 0, 1, 1000);
    end_record(&w, 0, &g);
    uint64_t private = stats_of(&w).private_reserved_bytes;
    assert_true(private >= 9 * MIB);
    for (uint32_t round = 0; round < 4; round++) {
        replay(&w, &g, w.streams[round % 2 ? 0 : 3]);
        churn(&w, 5000 * round);
        replay(&w, &g, w.streams[round % 2 ? 0 : 3]);
        OK(cen_pool_trim(w.pool, 0, round % 2, NULL));
        sound(&w);
        sync_all(&w); /* a graph runs on one stream at a time */
    }
    assert_true(w.f->plain || stats_of(&w).remapped_bytes > 0);
    assert_int_equal(stats_of(&w).private_reserved_bytes, private);
    replay(&w, &g, w.streams[0]);
    free_graph(&w, &g, 0);
    OK(cen_pool_capture_release(w.pool, 1));
    assert_int_equal(stats_of(&w).private_reserved_bytes, 0);
    OK(cen_pool_trim(w.pool, 0, true, NULL));
    assert_int_equal(stats_of(&w).reserved_bytes, 0);
    world_close(&w);
}

/* Everything that other streams ask for in the meantime, pending blocks and other streams' idle
 * memory included, and an allocation that fails. */
static void nothing_breaks_a_capture(void **state) {
    world w = world_open(state, &(cen_pool_options){.page_bytes = 2 * MIB, .driver_share = 1});
    void *none, *used = get(&w, 5 * MIB, w.streams[1]), *held = get(&w, 8 * MIB, w.streams[2]);
    void *object = get(&w, 800, w.streams[1]);
    fill(&w, held, 8 * MIB, 3, w.streams[2]);
    OK(cen_pool_free(w.pool, held, w.streams[2]));
    OK(cen_pool_preallocate(w.pool, 64 * MIB));
    graph g = record(&w, 0, 1, 1000);
    OK(cen_pool_use(w.pool, used, w.streams[2]));
    OK(cen_pool_use(w.pool, object, w.streams[2]));
    OK(cen_pool_free(w.pool, used, w.streams[1]));
    OK(cen_pool_free(w.pool, object, w.streams[1]));
    assert_int_equal(stats_of(&w).pending_blocks, 2);
    churn(&w, 100);
    sound(&w);
    suite_log_reset();
    FAILS(CEN_ERR_CAPTURE, cen_pool_trim(w.pool, 0, false, NULL));
    assert_logged("captur");
    FAILS(CEN_ERR_CAPTURE, cen_pool_trim(w.pool, 0, true, NULL));
    OK(cen_pool_set_limit(w.pool, stats_of(&w).reserved_bytes));
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_alloc(w.pool, 200 * MIB, w.streams[1], &none));
    OK(cen_pool_set_limit(w.pool, 0));
    end_record(&w, 0, &g);
    replay(&w, &g, w.streams[0]);
    OK(cen_pool_trim(w.pool, 0, true, NULL));
    assert_int_equal(stats_of(&w).pending_blocks, 0);
    replay(&w, &g, w.streams[0]);
    free_graph(&w, &g, 0);
    OK(cen_pool_capture_release(w.pool, 1));
    world_close(&w);
}

/* Plain segments cannot be made while a graph is captured; asking for one must not break it. */
static void growth_during_a_capture(void **state) {
    world w = world_open(state, NULL);
    graph g = record(&w, 0, 1, 1000);
    void *block = NULL;
    suite_log_reset();
    cen_status status = cen_pool_alloc(w.pool, 90 * MIB, w.streams[1], &block);
    if (w.f->plain) {
        assert_int_equal(status, CEN_ERR_CAPTURE);
        assert_logged("captur");
    } else {
        OK(status);
        fill(&w, block, 90 * MIB, 1, w.streams[1]);
        check(&w, block, 90 * MIB, 1, w.streams[1]);
        OK(cen_pool_free(w.pool, block, w.streams[1]));
    }
    end_record(&w, 0, &g);
    replay(&w, &g, w.streams[0]);
    free_graph(&w, &g, 0);
    world_close(&w);
}

static void graphs_share_an_id(void **state) {
    world w = world_open(state, NULL);
    graph a = record(&w, 0, 9, 1000);
    for (int i = 0; i < BLOCKS; i++) { /* freed within the capture: the next graph has the memory */
        check(&w, a.blocks[i], a.bytes[i], a.seed + (uint32_t)i, w.streams[0]);
        OK(cen_pool_free(w.pool, a.blocks[i], w.streams[0]));
    }
    OK(ceni_capture_end(w.device, w.streams[0], &a.graph));
    OK(cen_pool_capture_end(w.pool, w.streams[0]));
    uint64_t private = stats_of(&w).private_reserved_bytes;
    graph b = record(&w, 0, 9, 2000);
    end_record(&w, 0, &b);
    assert_int_equal(stats_of(&w).private_reserved_bytes, private);
    churn(&w, 7);
    for (int i = 0; i < 2; i++) {
        OK(ceni_graph_launch(w.device, a.graph, w.streams[0]));
        replay(&w, &b, w.streams[0]);
    }
    OK(cen_stream_sync(w.device, w.streams[0]));
    ceni_graph_destroy(w.device, a.graph);
    OK(cen_pool_capture_release(w.pool, 9)); /* before its blocks are freed: they join later */
    sound(&w);
    free_graph(&w, &b, 0);
    void *large = get(&w, 6 * MIB, w.streams[0]);
    assert_int_equal(stats_of(&w).private_reserved_bytes, 0);
    OK(cen_pool_free(w.pool, large, w.streams[0]));
    sound(&w);
    OK(cen_pool_trim(w.pool, 0, true, NULL));
    assert_int_equal(stats_of(&w).reserved_bytes, 0);
    world_close(&w);
}

/* Idle memory of a private pool is nobody else's, however short memory is: the graph writes there.
 */
static void what_a_graph_freed_stays_its_own(void **state) {
    world w = world_open(state, &(cen_pool_options){.page_bytes = 2 * MIB, .driver_share = 1});
    graph g = record(&w, 0, 1, 1000);
    for (int i = 0; i < BLOCKS; i++) {
        check(&w, g.blocks[i], g.bytes[i], g.seed + (uint32_t)i, w.streams[0]);
        OK(cen_pool_free(w.pool, g.blocks[i], w.streams[0]));
    }
    OK(ceni_capture_end(w.device, w.streams[0], &g.graph));
    OK(cen_pool_capture_end(w.pool, w.streams[0]));
    void *live = get(&w, 4 * MIB, w.streams[1]), *small = get(&w, 500, w.streams[1]), *none;
    fill(&w, live, 4 * MIB, 5, w.streams[1]);
    fill(&w, small, 500, 6, w.streams[1]);
    OK(cen_pool_trim(w.pool, 0, true, NULL)); /* nor is it trimmed */
    OK(cen_pool_set_limit(w.pool, stats_of(&w).reserved_bytes));
    for (int round = 0; round < 2; round++) {
        FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_alloc(w.pool, 4 * MIB, w.streams[1], &none));
        FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_alloc(w.pool, 5 * MIB, w.streams[0], &none));
        sound(&w);
        OK(ceni_graph_launch(w.device, g.graph, w.streams[0]));
        sync_all(&w);
    }
    check(&w, live, 4 * MIB, 5, w.streams[1]);
    check(&w, small, 500, 6, w.streams[1]);
    ceni_graph_destroy(w.device, g.graph);
    OK(cen_pool_capture_release(w.pool, 1));
    none = get(&w, 5 * MIB, w.streams[1]); /* now it can be had */
    OK(cen_pool_free(w.pool, none, w.streams[1]));
    OK(cen_pool_free(w.pool, live, w.streams[1]));
    OK(cen_pool_free(w.pool, small, w.streams[1]));
    world_close(&w);
}

/* Memory of a released private pool serves small and large blocks of the shared one, and many
 * captures leave nothing behind. */
static void released_memory_is_used(void **state) {
    world w = world_open(state, NULL);
    for (uint64_t id = 1; id <= 24; id++) {
        void *blocks[3];
        const size_t bytes[3] = {20 * MIB, 100000, 700};
        OK(cen_pool_capture_begin(w.pool, w.streams[0], id));
        for (int i = 0; i < 3; i++) {
            blocks[i] = get(&w, bytes[i], w.streams[0]);
        }
        OK(cen_pool_capture_end(w.pool, w.streams[0]));
        for (int i = 0; i < 3; i++) {
            OK(cen_pool_free(w.pool, blocks[i], w.streams[0]));
        }
        OK(cen_pool_capture_release(w.pool, id));
        sound(&w);
        uint64_t reserved = stats_of(&w).reserved_bytes;
        OK(cen_pool_set_limit(w.pool, reserved));
        void *small[64];
        for (int i = 0; i < 64; i++) {
            small[i] = get(&w, 30000, w.streams[1]);
            fill(&w, small[i], 30000, (uint32_t)i, w.streams[1]);
        }
        void *large = get(&w, 12 * MIB, w.streams[1]);
        assert_int_equal(stats_of(&w).reserved_bytes, reserved);
        sound(&w);
        for (int i = 0; i < 64; i++) {
            check(&w, small[i], 30000, (uint32_t)i, w.streams[1]);
            OK(cen_pool_free(w.pool, small[i], w.streams[1]));
        }
        OK(cen_pool_free(w.pool, large, w.streams[1]));
        OK(cen_pool_set_limit(w.pool, 0));
        OK(cen_pool_trim(w.pool, 0, true, NULL));
        assert_int_equal(stats_of(&w).reserved_bytes, 0);
        sound(&w);
    }
    uint64_t reserves = stats_of(&w).driver_kind_calls[0];
    assert_true(w.f->plain || w.device->stats[CENI_OP_va_free].calls + 6 >= reserves);
    world_close(&w);
}

static void misuse_is_named(void **state) {
    world w = world_open(state, NULL);
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, cen_pool_capture_begin(w.pool, w.streams[0], 0));
    assert_logged("id 0");
    FAILS(CEN_ERR_INVALID, cen_pool_capture_end(w.pool, w.streams[0]));
    FAILS(CEN_ERR_NOT_FOUND, cen_pool_capture_release(w.pool, 3));
    OK(cen_pool_capture_begin(w.pool, w.streams[0], 3));
    suite_log_reset();
    FAILS(CEN_ERR_BUSY, cen_pool_capture_begin(w.pool, w.streams[0], 4));
    assert_logged("already");
    FAILS(CEN_ERR_BUSY, cen_pool_capture_release(w.pool, 3));
    OK(cen_pool_capture_begin(w.pool, w.streams[1], 3));
    OK(cen_pool_capture_end(w.pool, w.streams[0]));
    FAILS(CEN_ERR_BUSY, cen_pool_capture_release(w.pool, 3));
    FAILS(CEN_ERR_CAPTURE, cen_pool_stream_release(w.pool, w.streams[2]));
    OK(cen_pool_capture_end(w.pool, w.streams[1]));
    OK(cen_pool_capture_release(w.pool, 3));
    FAILS(CEN_ERR_NOT_FOUND, cen_pool_capture_release(w.pool, 3));
    sound(&w);
    OK(cen_pool_capture_begin(w.pool, w.streams[1], 3)); /* left so: destroying ends it */
    world_close(&w);
}

typedef struct end_in_callback {
    cen_pool *pool;
    cen_stream stream;
    void *block;
} end_in_callback;

/* All that is left of the private pool 7 goes, and another one comes. */
static bool end_and_release(void *arg, const cen_pool_failure *failure) {
    end_in_callback *e = arg;
    OK(cen_pool_capture_end(e->pool, e->stream));
    OK(cen_pool_free(e->pool, e->block, e->stream));
    OK(cen_pool_capture_release(e->pool, 7));
    OK(cen_pool_trim(e->pool, 0, true, NULL));
    OK(cen_pool_capture_begin(e->pool, e->stream, 8));
    OK(cen_pool_capture_end(e->pool, e->stream));
    return true;
}

static void the_callback_can_end_the_capture(void **state) {
    end_in_callback e = {0};
    world w = world_open(
        state,
        &(cen_pool_options){.limit_bytes = 40 * MIB, .retry = end_and_release, .retry_arg = &e});
    e.pool = w.pool;
    e.stream = w.streams[0];
    OK(cen_pool_capture_begin(w.pool, e.stream, 7));
    e.block = get(&w, 24 * MIB, e.stream);
    void *block = get(&w, 30 * MIB, e.stream);
    sound(&w);
    OK(cen_pool_free(w.pool, block, e.stream));
    suite_log_reset();
    world_close(&w);
}

/* Taken back to what it was when the graph was captured, a private pool has each block where the
 * graph writes; what other blocks lay there meanwhile had to go. */
static void blocks_come_back_to_their_places(void **state) {
    world w = world_open(state, NULL);
    graph g = record(&w, 0, 1, 1000);
    end_record(&w, 0, &g);
    cen_stream s = w.streams[0];
    for (int i = 0; i < BLOCKS; i++) {
        OK(cen_pool_free(w.pool, g.blocks[i], s));
    }
    OK(cen_pool_capture_begin(w.pool, s, 1));
    void *others[2] = {get(&w, 5 * MIB, s), get(&w, 700, s)};
    OK(cen_pool_capture_end(w.pool, s));
    suite_log_reset();
    cen_status status = cen_pool_alloc_at(w.pool, 1, g.blocks[3], g.bytes[3], s);
    assert_int_equal(status, w.f->plain ? status : CEN_ERR_BUSY);
    if (!status) {
        OK(cen_pool_free(w.pool, g.blocks[3], s));
    }
    FAILS(CEN_ERR_NOT_FOUND, cen_pool_alloc_at(w.pool, 2, g.blocks[0], g.bytes[0], s));
    FAILS(CEN_ERR_NOT_FOUND, cen_pool_alloc_at(w.pool, 0, g.blocks[0], g.bytes[0], s));
    FAILS(CEN_ERR_INVALID, cen_pool_alloc_at(w.pool, 1, (char *)g.blocks[0] + 8, 100, s));
    FAILS(CEN_ERR_INVALID, cen_pool_alloc_at(w.pool, 1, g.blocks[0], 0, s));
    FAILS(CEN_ERR_BUSY, cen_pool_alloc_at(w.pool, 1, (void *)(uintptr_t)4096, 4096, s));
    OK(cen_pool_free(w.pool, others[0], s));
    OK(cen_pool_free(w.pool, others[1], s));
    for (int i = 0; i < BLOCKS; i++) {
        OK(cen_pool_alloc_at(w.pool, 1, g.blocks[i], g.bytes[i], s));
        FAILS(CEN_ERR_BUSY, cen_pool_alloc_at(w.pool, 1, g.blocks[i], g.bytes[i], s));
        size_t bytes = 0;
        OK(cen_pool_block_size(w.pool, g.blocks[i], &bytes));
        assert_int_equal(bytes, g.bytes[i]);
        sound(&w);
    }
    churn(&w, 100); /* none of the places is anyone else's */
    replay(&w, &g, s);
    free_graph(&w, &g, 0);
    OK(cen_pool_capture_release(w.pool, 1));
    OK(cen_pool_trim(w.pool, 0, true, NULL));
    assert_int_equal(stats_of(&w).reserved_bytes, 0);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(blocks_come_back_to_their_places),
    SUITE_TEST(a_graph_replays_while_the_pool_remaps),
    SUITE_TEST(nothing_breaks_a_capture),
    SUITE_TEST(growth_during_a_capture),
    SUITE_TEST(graphs_share_an_id),
    SUITE_TEST(what_a_graph_freed_stays_its_own),
    SUITE_TEST(released_memory_is_used),
    SUITE_TEST(misuse_is_named),
    SUITE_TEST(the_callback_can_end_the_capture),
};
SUITE_MAIN(tests)
