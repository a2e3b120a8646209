/* Every device call and every piece of host memory that moving and defragmenting ask for fails
 * once, and then for good: whatever the pool answers, its invariants hold, contents stay, handles
 * work, and in the end everything goes back.
 *
 * One program is run again and again; the n-th call fails, for n from 1 on until the program does
 * not come that far. */
#include "tests/conformance/movable_suite.h"

#include "tests/conformance/faults.h"
#include "dev/host/host.h"

enum { MOST = 40 };

typedef struct item {
    cen_movable m;
    size_t bytes;
    uint32_t seed;
    int stream; /* of its writer */
} item;

typedef struct trial {
    world w;
    faults faults;
    item items[MOST];
    int count;
} trial;

/* The first and last words of a block: quick, since there are thousands of runs. */
static void mark(trial *t, const item *it, int stream, bool check_it) {
    void *block = pin(&t->w, it->m, stream);
    order(&t->w, stream, it->stream);
    uint64_t counter = address(t->w.mismatches), words = 16;
    for (uint32_t i = 0; i < 2; i++) {
        cen_addr addr = address(block) + (i ? (it->bytes & ~(size_t)3) - 64 : 0);
        uint32_t seed = it->seed * 2 + i;
        void *args[] = {&addr, &seed, &words, &counter};
        suite_launch(t->w.device, check_it ? "cen_check_u32" : "cen_pattern_u32", args,
                     check_it ? 4 : 3, t->w.streams[stream]);
    }
    unpin(&t->w, it->m, stream);
}

static void verify(trial *t) {
    if (cen_pool_verify(t->w.pool)) {
        atomic_store(&t->faults.arm->left, 0);
        fail_msg("%s", suite_log_line);
    }
}

static void take(trial *t, size_t bytes, int stream) {
    item it = {.bytes = bytes, .seed = (uint32_t)t->count + 1, .stream = stream};
    assert_true(t->count < MOST);
    cen_status status = cen_movable_alloc(t->w.pool, bytes, t->w.streams[stream], &it.m);
    assert_true(status <= 0 && (status == CEN_OK) == (it.m != 0));
    pause_faults(&t->faults);
    verify(t);
    if (it.m) {
        mark(t, &it, stream, false);
    }
    resume_faults(&t->faults);
    t->items[t->count++] = it; /* also without a block, so that each run has the same numbers */
}

static void drop(trial *t, int i, int stream) {
    if (t->items[i].m && !cen_movable_free(t->w.pool, t->items[i].m, t->w.streams[stream])) {
        t->items[i].m = 0;
    }
    verify(t);
}

/* Pins, reads and unpins, with faults. */
static void use(trial *t, int i, int stream) {
    item *it = &t->items[i];
    void *at = NULL;
    if (!it->m || cen_movable_pin(t->w.pool, it->m, t->w.streams[stream], &at)) {
        return;
    }
    pause_faults(&t->faults);
    mark(t, it, stream, true);
    FAILS(CEN_ERR_BUSY, cen_movable_move(t->w.pool, it->m));
    resume_faults(&t->faults);
    if (cen_movable_unpin(t->w.pool, it->m, t->w.streams[stream])) {
        pause_faults(&t->faults); /* a block that could not be unpinned is still pinned */
        FAILS(CEN_ERR_BUSY, cen_movable_free(t->w.pool, it->m, t->w.streams[stream]));
        OK(cen_movable_unpin(t->w.pool, it->m, t->w.streams[stream]));
        resume_faults(&t->faults);
    }
    verify(t);
}

static void defragment(trial *t, uint64_t keep_bytes, bool compact, bool wait) {
    const cen_defragment_options o = {
        .size = sizeof o, .keep_bytes = keep_bytes, .compact = compact, .wait = wait};
    (void)cen_pool_defragment(t->w.pool, &o, NULL);
    verify(t);
}

static void program(trial *t) {
    static const size_t sizes[] = {40000, 64 * KIB, 192 * KIB, 45000, 320 * KIB};
    for (int i = 0; i < 20; i++) {
        take(t, sizes[i % 5], i % 3);
    }
    for (int i = 0; i < 20; i += 2) {
        use(t, i + 1, (i + 1) % STREAMS);
        drop(t, i, i % STREAMS);
    }
    for (int i = 1; i < 20; i += 6) {
        if (t->items[i].m) {
            (void)cen_movable_move(t->w.pool, t->items[i].m);
            verify(t);
        }
        use(t, i, 3);
    }
    defragment(t, UINT64_MAX, true, false);
    use(t, 3, 1);
    take(t, 576 * KIB, 2);
    defragment(t, 1536 * KIB, true, true);
    take(t, 384 * KIB, 0);
    const cen_defragment_policy policy = {
        .size = sizeof policy, .interval_us = 1, .each = {.compact = true}};
    (void)cen_pool_set_defragment(t->w.pool, &policy);
    drop(t, 5, 1);
    drop(t, 20, 0);
    take(t, 128 * KIB, 1);
    take(t, 1792 * KIB, 3); /* only if blocks move, or not at all */
    defragment(t, 0, false, true);
}

/* Everything works again: contents are right, all can be freed, and all memory returns. */
static void clean_up(trial *t) {
    ceni_fault_set(t->faults.arm, 0, false);
    OK(cen_pool_set_defragment(t->w.pool, NULL));
    for (int i = 0; i < t->count; i++) {
        if (t->items[i].m) {
            mark(t, &t->items[i], i % STREAMS, true);
            OK(cen_movable_free(t->w.pool, t->items[i].m, t->w.streams[0]));
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        OK(cen_stream_sync(t->w.device, t->w.streams[i]));
    }
    assert_int_equal(*t->w.mismatches, 0);
    OK(cen_pool_trim(t->w.pool, 0, true, NULL));
    sound(&t->w);
    assert_int_equal(stats_of(&t->w).reserved_bytes, 0);
    OK(cen_pool_destroy(t->w.pool));
}

/* False: the call that was to fail did not come. */
static bool attempt(void *base, ceni_fault_arm *arm, int64_t n, bool sticky) {
    static trial t;
    t = (trial){.w = *(world *)base, .faults = {.arm = arm}};
    const cen_pool_options options = {
        .size = sizeof options, .limit_bytes = 3 * MIB, .page_bytes = 256 * KIB};
    OK(cen_pool_create(t.w.device, &options, &t.w.pool));
    ceni_fault_set(arm, n, sticky);
    program(&t);
    bool came = faults_came(&t.faults, sticky);
    clean_up(&t);
    assert_int_equal(suite_free_bytes(t.w.device), t.w.free_at_start);
    return came;
}

static world start(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("a failing call is injected above the backend: the host shows it");
    }
    const cen_host_options host = {.capacity = 64 * MIB, .granularity = 64 * KIB};
    world w = world_on(state, &host, NULL);
    OK(cen_pool_destroy(w.pool));
    w.pool = NULL;
    return w;
}

static void each(world *w, ceni_fault_arm *arm) {
    int64_t failed = each_fault(attempt, w, arm, 5000);
    assert_true(failed > 0 || w->f->is_inline); /* where nothing is ever waited for */
}

static void memory_calls_fail(void **state) {
    static const enum ceni_dev_op with_vmm[] = {
        CENI_OP_page_create, CENI_OP_page_release,  CENI_OP_page_map,     CENI_OP_page_unmap,
        CENI_OP_page_access, CENI_OP_stream_create, CENI_OP_event_create, CENI_OP_copy};
    static const enum ceni_dev_op plain[] = {CENI_OP_segment_alloc, CENI_OP_segment_free,
                                             CENI_OP_stream_create, CENI_OP_copy};
    world w = start(state);
    if (!w.f->is_inline && !w.f->plain) {
        suite_skip("a failing call is injected above the backend: one kind of host is enough");
    }
    const enum ceni_dev_op *ops = w.f->plain ? plain : with_vmm;
    size_t count = w.f->plain ? sizeof plain / sizeof *plain : sizeof with_vmm / sizeof *with_vmm;
    for (size_t i = 0; i < count; i++) {
        each(&w, &w.device->faults[ops[i]]);
    }
}

/* On slow streams, where there is something to wait for. */
static void ordering_calls_fail(void **state) {
    static const enum ceni_dev_op ops[] = {CENI_OP_event_record, CENI_OP_event_query,
                                           CENI_OP_event_sync, CENI_OP_stream_wait};
    world w = start(state);
    for (int i = 0; i < 2 && !w.f->is_inline; i++) {
        OK(ceni_host_stream_delay(w.device, w.streams[i], 10));
    }
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        each(&w, &w.device->faults[ops[i]]);
    }
}

static void host_memory_fails(void **state) {
    world w = start(state);
    if (!w.f->is_inline && !w.f->plain) {
        suite_skip("a failing call is injected above the backend: one kind of host is enough");
    }
    each(&w, &ceni_fault_points[CENI_FAULT_HOST_MEMORY]);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(memory_calls_fail),
    SUITE_TEST(ordering_calls_fail),
    SUITE_TEST(host_memory_fails),
};
SUITE_MAIN(tests)
