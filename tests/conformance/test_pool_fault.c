/* Every call that the pool makes of the device, and every piece of host memory it asks for, fails
 * once, and then for good: whatever the pool answers, its invariants hold, no two blocks share
 * memory, contents stay, a capture is not broken, and in the end everything goes back.
 *
 * One program of all the pool's calls is run again and again; the n-th call fails, for n from 1 on
 * until the program does not come that far. */
#include "tests/conformance/pool_suite.h"

#include "tests/conformance/faults.h"
#include "dev/capture.h"
#include "dev/host/host.h"

enum { MOST = 96 };

typedef struct item {
    void *block;
    size_t bytes;
    uint32_t seed;
    int stream;
} item;

typedef struct trial {
    world w;
    faults faults;
    item items[MOST];
    int count;
} trial;

/* A few words of each page: quick, since there are thousands of runs. */
static void mark(trial *t, const item *it, bool check_it) {
    uint64_t counter = address(t->w.mismatches), words = it->bytes < 64 ? it->bytes / 4 : 16;
    for (size_t at = 0; at < it->bytes; at += 2 * MIB) {
        cen_addr addr = address(it->block) + at;
        uint32_t seed = it->seed * 100 + (uint32_t)(at / MIB);
        void *args[] = {&addr, &seed, &words, &counter};
        suite_launch(t->w.device, check_it ? "cen_check_u32" : "cen_pattern_u32", args,
                     check_it ? 4 : 3, t->w.streams[it->stream]);
    }
}

static void verify(trial *t) {
    if (cen_pool_verify(t->w.pool)) {
        atomic_store(&t->faults.arm->left, 0);
        fail_msg("%s", suite_log_line);
    }
}

static void took(trial *t, cen_status status, void *block, size_t bytes, int stream) {
    assert_true(status <= 0 && (status == CEN_OK) == (block != NULL));
    pause_faults(&t->faults);
    verify(t);
    for (int i = 0; block && i < t->count; i++) {
        cen_addr a = address(t->items[i].block), b = address(block);
        assert_true(b + bytes <= a || a + t->items[i].bytes <= b);
    }
    if (block) {
        assert_true(t->count < MOST);
        item it = {block, bytes, (uint32_t)t->count + 1, stream};
        mark(t, &it, false);
        t->items[t->count++] = it;
    }
    resume_faults(&t->faults);
}

static void take(trial *t, size_t bytes, int stream) {
    void *block = NULL;
    cen_status status = cen_pool_alloc(t->w.pool, bytes, t->w.streams[stream], &block);
    took(t, status, block, bytes, stream);
}

/* Frees item i, if it is there, in the name of a stream that its own is a user of. */
static void drop(trial *t, int i, int stream) {
    if (i < 0 || i >= t->count || !t->items[i].block) {
        return;
    }
    item *it = &t->items[i];
    pause_faults(&t->faults);
    mark(t, it, true);
    resume_faults(&t->faults);
    if (stream != it->stream && cen_pool_use(t->w.pool, it->block, t->w.streams[it->stream])) {
        return; /* not noted: cannot be freed there */
    }
    if (!cen_pool_free(t->w.pool, it->block, t->w.streams[stream])) {
        it->block = NULL;
        it->bytes = 0;
    }
    verify(t);
}

static void use(trial *t, int i, int stream) {
    if (i < t->count && t->items[i].block) {
        (void)cen_pool_use(t->w.pool, t->items[i].block, t->w.streams[stream]);
        verify(t);
    }
}

static void pieces_and_holes(trial *t) {
    int first = t->count;
    for (int i = 0; i < 8; i++) {
        take(t, 2 * MIB, 0);
    }
    for (int i = first; i < first + 8; i += 2) {
        drop(t, i, 0);
    }
    take(t, 8 * MIB, 1);
    take(t, 700, 0);
    take(t, 40000, 2);
    drop(t, t->count - 3, 1);
    for (int i = first + 1; i < first + 8; i += 2) {
        drop(t, i, 3);
    }
    take(t, 2 * MIB, 2);
    take(t, 2 * MIB, 3);
    (void)cen_pool_trim(t->w.pool, 0, false, NULL);
    verify(t);
}

static void uses(trial *t) {
    int first = t->count;
    const size_t sizes[] = {900, 50000, 3 * MIB};
    for (int i = 0; i < 3; i++) {
        take(t, sizes[i], i);
        use(t, first + i, 1);
        use(t, first + i, 2);
        drop(t, first + i, i);
    }
    for (int i = 0; i < 3; i++) {
        take(t, sizes[i], 3);
    }
}

static void capture(trial *t) {
    cen_pool *pool = t->w.pool;
    cen_stream s = t->w.streams[0];
    if (cen_pool_capture_begin(pool, s, 7)) {
        return;
    }
    verify(t);
    ceni_graph *graph = NULL;
    pause_faults(&t->faults);
    OK(ceni_capture_begin(t->w.device, s));
    resume_faults(&t->faults);
    void *large = NULL, *small = NULL, *other = NULL;
    (void)cen_pool_alloc(pool, 2 * MIB, s, &large);
    (void)cen_pool_alloc(pool, 3000, s, &small);
    (void)cen_pool_alloc(pool, 5 * MIB, t->w.streams[1], &other);
    assert_true(cen_pool_trim(pool, 0, true, NULL) < 0);
    verify(t);
    pause_faults(&t->faults);
    OK(ceni_capture_end(t->w.device, s, &graph)); /* nothing broke it */
    ceni_graph_destroy(t->w.device, graph);
    resume_faults(&t->faults);
    OK(cen_pool_capture_end(pool, s));
    took(t, large ? CEN_OK : CEN_ERR_DEVICE, large, 2 * MIB, 0);
    took(t, small ? CEN_OK : CEN_ERR_DEVICE, small, 3000, 0);
    took(t, other ? CEN_OK : CEN_ERR_DEVICE, other, 5 * MIB, 1);
    OK(cen_pool_capture_release(pool, 7));
    verify(t);
    drop(t, t->count - 2, 0);
    drop(t, t->count - 3, 0);
}

static void the_end_of_memory(trial *t) {
    int first = t->count;
    (void)cen_pool_preallocate(t->w.pool, 30 * MIB);
    verify(t);
    take(t, 60 * MIB, 2); /* cannot be had */
    for (int i = 0; i < 12; i++) {
        take(t, i % 2 ? 32 * KIB : 5 * MIB, i % STREAMS);
    }
    for (int i = first; i < first + 12; i += 3) {
        drop(t, i, (i + 1) % STREAMS);
    }
    take(t, 9 * MIB, 1);
    (void)cen_pool_trim(t->w.pool, 10 * MIB, true, NULL);
    verify(t);
}

/* Everything works again: all can be freed, and all memory returns. */
static void clean_up(trial *t) {
    ceni_fault_set(t->faults.arm, 0, false);
    for (int i = 0; i < t->count; i++) {
        if (t->items[i].block) {
            mark(t, &t->items[i], true);
            OK(cen_pool_free(t->w.pool, t->items[i].block, t->w.streams[t->items[i].stream]));
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        OK(cen_stream_sync(t->w.device, t->w.streams[i]));
    }
    assert_int_equal(*t->w.mismatches, 0);
    OK(cen_pool_trim(t->w.pool, 0, true, NULL));
    sound(&t->w);
    assert_int_equal(stats_of(&t->w).blocks, 0);
    assert_int_equal(stats_of(&t->w).pending_blocks, 0);
    assert_int_equal(stats_of(&t->w).allocated_bytes, 0);
    OK(cen_pool_destroy(t->w.pool));
    t->w.pool = NULL;
    assert_int_equal(suite_free_bytes(t->w.device), t->w.free_at_start);
}

/* False: the call that was to fail did not come. */
static bool attempt(void *base, ceni_fault_arm *arm, int64_t n, bool sticky) {
    static trial t;
    t = (trial){.w = *(world *)base, .faults = {.arm = arm}};
    const cen_pool_options options = {
        .size = sizeof options, .limit_bytes = 44 * MIB, .page_bytes = sticky ? 2 * MIB : 0};
    ceni_fault_set(arm, n, sticky);
    if (!cen_pool_create(t.w.device, &options, &t.w.pool)) {
        pieces_and_holes(&t);
        uses(&t);
        capture(&t);
        the_end_of_memory(&t);
    } else {
        assert_null(t.w.pool);
    }
    bool came = faults_came(&t.faults, sticky);
    if (t.w.pool) {
        clean_up(&t);
    }
    ceni_fault_set(arm, 0, false);
    assert_int_equal(suite_free_bytes(t.w.device), t.w.free_at_start);
    return came;
}

static world start(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("a failing call is injected above the backend: the host shows it");
    }
    world w = world_open(state, NULL);
    OK(cen_pool_destroy(w.pool));
    w.pool = NULL;
    return w;
}

static const enum ceni_dev_op memory_ops[] = {
    CENI_OP_va_reserve,    CENI_OP_va_free,      CENI_OP_page_create, CENI_OP_page_release,
    CENI_OP_page_map,      CENI_OP_page_unmap,   CENI_OP_page_access, CENI_OP_segment_alloc,
    CENI_OP_segment_free,  CENI_OP_event_create, CENI_OP_mem_info,    CENI_OP_stream_capturing,
    CENI_OP_event_destroy,
};
static const enum ceni_dev_op order_ops[] = {CENI_OP_event_record, CENI_OP_event_query,
                                             CENI_OP_event_sync, CENI_OP_stream_wait};

static void memory_calls_fail(void **state) {
    world w = start(state);
    if (!w.f->is_inline && !w.f->plain) {
        suite_skip("a failing call is injected above the backend: one kind of host is enough");
    }
    for (size_t i = 0; i < sizeof memory_ops / sizeof *memory_ops; i++) {
        each_fault(attempt, &w, &w.device->faults[memory_ops[i]], 5000);
    }
}

/* On slow streams, where there is something to wait for. */
static void ordering_calls_fail(void **state) {
    world w = start(state);
    for (int i = 0; i < 2 && !w.f->is_inline; i++) {
        OK(ceni_host_stream_delay(w.device, w.streams[i], 10));
    }
    for (size_t i = 0; i < sizeof order_ops / sizeof *order_ops; i++) {
        each_fault(attempt, &w, &w.device->faults[order_ops[i]], 5000);
    }
}

static void host_memory_fails(void **state) {
    world w = start(state);
    if (!w.f->is_inline && !w.f->plain) {
        suite_skip("a failing call is injected above the backend: one kind of host is enough");
    }
    each_fault(attempt, &w, &ceni_fault_points[CENI_FAULT_HOST_MEMORY], 5000);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(memory_calls_fail),
    SUITE_TEST(ordering_calls_fail),
    SUITE_TEST(host_memory_fails),
};
SUITE_MAIN(tests)
