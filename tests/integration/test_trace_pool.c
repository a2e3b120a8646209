/* A program of several threads and streams, recorded: what the trace says is what the program and
 * its pool know: every block, the most that was requested and reserved, and what is live in the
 * end. Then explain and replay take the trace like any other recording. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>

#include "cenote/cenote.h"

#define MIB         ((size_t)1 << 20)
#define OK(call)    assert_int_equal(call, CEN_OK)
#define TRUE(value) check_true(value, __LINE__) /* in threads, where cmocka cannot jump */

static char path[64];

static void check_true(bool value, int line) {
    if (!value) {
        fprintf(stderr, "line %d\n", line);
        abort();
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    fprintf(stderr, "%s\n", message);
}

static int set_up(void **state) {
    snprintf(path, sizeof path, "/tmp/cenote_pool_XXXXXX");
    int fd = mkstemp(path);
    close(fd);
    cen_log_set(print_log, NULL, CEN_LOG_ERROR);
    return fd < 0;
}

static int tear_down(void **state) {
    cen_trace_stats stats;
    if (!cen_trace_get_stats(&stats) && stats.on) { /* the test failed on its way */
        (void)cen_trace_stop();
    }
    unlink(path);
    return 0;
}

static cen_snapshot *read_back(void) {
    cen_snapshot *s = NULL;
    cen_read_error error = {{0}, 0};
    cen_status status = cen_snapshot_read(path, &s, &error);
    if (status) {
        fail_msg("%s", error.message);
    }
    return s;
}

/* What a trace's events say, run through in their order. */
typedef struct sums {
    uint64_t live, live_peak, reserved, reserved_peak;
    size_t allocs, frees, pending, live_count;
} sums;

static sums run_through(const cen_snapshot_device *d) {
    sums s = {.reserved = d->initial_reserved, .live_count = d->initial_count};
    for (size_t i = 0; i < d->event_count; i++) {
        const cen_trace_event *e = &d->events[i];
        switch (e->action) {
        case CEN_ACTION_ALLOC:
            s.live += e->size;
            s.allocs++;
            break;
        case CEN_ACTION_FREE_REQUESTED:
            s.live -= e->size;
            s.frees++;
            break;
        case CEN_ACTION_SEGMENT_ALLOC:
        case CEN_ACTION_SEGMENT_MAP:
            s.reserved += e->size;
            break;
        case CEN_ACTION_SEGMENT_FREE:
        case CEN_ACTION_SEGMENT_UNMAP:
            s.reserved -= e->size;
            break;
        default:
            break;
        }
        assert_true(s.live <= (uint64_t)1 << 62); /* no free before its alloc */
        s.live_peak = s.live > s.live_peak ? s.live : s.live_peak;
        s.reserved_peak = s.reserved > s.reserved_peak ? s.reserved : s.reserved_peak;
    }
    return s;
}

/* By the order of the events, no address is allocated that is live: a free comes before the next
 * alloc there, whatever thread made it. */
static void check_order(const cen_snapshot_device *d) {
    typedef struct live {
        uint64_t addr, end;
    } live;
    live *blocks = calloc(d->event_count + 1, sizeof *blocks);
    size_t count = 0;
    for (size_t i = 0; i < d->event_count; i++) {
        const cen_trace_event *e = &d->events[i];
        if (e->action == CEN_ACTION_ALLOC) {
            for (size_t k = 0; k < count; k++) {
                assert_true(e->addr >= blocks[k].end || e->addr + e->size <= blocks[k].addr);
            }
            blocks[count++] = (live){e->addr, e->addr + e->size};
        } else if (e->action == CEN_ACTION_FREE_COMPLETED) {
            size_t k = 0;
            while (k < count && blocks[k].addr != e->addr) {
                k++;
            }
            assert_true(k < count);
            blocks[k] = blocks[--count];
        }
    }
    free(blocks);
}

/* ---- threads that share a pool ---- */

enum { THREADS = 4, HELD = 24, TURNS = 3000 };

typedef struct worker {
    cen_pool *pool;
    cen_stream own, other;
    unsigned seed;
    void *blocks[HELD];
    size_t sizes[HELD];
} worker;

static unsigned next_random(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void *work(void *arg) {
    worker *w = arg;
    for (int turn = 0; turn < TURNS; turn++) {
        unsigned i = next_random(&w->seed) % HELD;
        if (w->blocks[i]) {
            if (next_random(&w->seed) % 8 == 0) {
                TRUE(!cen_pool_use(w->pool, w->blocks[i], w->other));
            }
            TRUE(!cen_pool_free(w->pool, w->blocks[i], w->own));
            w->blocks[i] = NULL;
        } else {
            unsigned scale = next_random(&w->seed) % 14;
            w->sizes[i] = (size_t)1 + next_random(&w->seed) % ((size_t)256 << scale);
            TRUE(!cen_pool_alloc(w->pool, w->sizes[i], w->own, &w->blocks[i]));
        }
    }
    return NULL;
}

typedef struct program {
    cen_device *device;
    cen_pool *pool;
    cen_stream streams[THREADS];
    worker workers[THREADS];
    cen_pool_stats stats;
} program;

static void run_program(program *p, bool no_vmm) {
    cen_host_options host = {
        .size = sizeof host, .capacity = 512 * MIB, .granularity = 2 * MIB, .no_vmm = no_vmm};
    OK(cen_device_open_host(0, &host, &p->device));
    cen_pool_options options = {.size = sizeof options, .page_bytes = 2 * MIB};
    OK(cen_pool_create(p->device, &options, &p->pool));
    for (int i = 0; i < THREADS; i++) {
        OK(cen_stream_create(p->device, 0, &p->streams[i]));
    }
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        p->workers[i] = (worker){.pool = p->pool,
                                 .own = p->streams[i],
                                 .other = p->streams[(i + 1) % THREADS],
                                 .seed = (unsigned)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &p->workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(cen_pool_trim(p->pool, 0, true, NULL)); /* frees that waited are complete */
    OK(cen_pool_get_stats(p->pool, &p->stats));
}

static void close_program(program *p) {
    for (int i = 0; i < THREADS; i++) {
        for (int k = 0; k < HELD; k++) {
            if (p->workers[i].blocks[k]) {
                OK(cen_pool_free(p->pool, p->workers[i].blocks[k], p->streams[i]));
            }
        }
    }
    OK(cen_pool_destroy(p->pool));
    cen_device_close(p->device);
}

static const cen_snapshot_block *block_at(const cen_snapshot_device *d, uint64_t addr) {
    for (size_t i = 0; i < d->block_count; i++) {
        if (d->blocks[i].addr == addr && d->blocks[i].state == CEN_BLOCK_ACTIVE) {
            return &d->blocks[i];
        }
    }
    return NULL;
}

/* Each block that the program holds is in the state, and no other. */
static void check_live(const cen_snapshot_device *d, const program *p) {
    size_t held = 0, active = 0;
    for (int i = 0; i < THREADS; i++) {
        for (int k = 0; k < HELD; k++) {
            if (p->workers[i].blocks[k]) {
                const cen_snapshot_block *b = block_at(d, (uintptr_t)p->workers[i].blocks[k]);
                assert_non_null(b);
                assert_int_equal(b->requested, p->workers[i].sizes[k]);
                held++;
            }
        }
    }
    for (size_t i = 0; i < d->block_count; i++) {
        active += d->blocks[i].state != CEN_BLOCK_INACTIVE;
    }
    assert_int_equal(active, held);
}

static uint64_t segments_bytes(const cen_snapshot_device *d) {
    uint64_t sum = 0;
    for (size_t i = 0; i < d->segment_count; i++) {
        uint64_t at = d->segments[i].addr;
        for (size_t k = 0; k < d->segments[i].block_count; k++) { /* its blocks tile it */
            const cen_snapshot_block *b = &d->blocks[d->segments[i].first_block + k];
            assert_int_equal(b->addr, at);
            at += b->size;
        }
        assert_int_equal(at, d->segments[i].addr + d->segments[i].size);
        sum += d->segments[i].size;
    }
    return sum;
}

static void check_program(bool no_vmm) {
    program p;
    OK(cen_trace_start(path, NULL));
    run_program(&p, no_vmm);
    OK(cen_trace_stop());
    cen_snapshot *s = read_back();
    assert_int_equal(cen_snapshot_device_count(s), 1);
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    sums sum = run_through(d);
    assert_int_equal(sum.allocs, p.stats.allocs);
    assert_int_equal(sum.frees, p.stats.frees);
    assert_int_equal(sum.live, p.stats.requested_bytes);
    assert_int_equal(sum.reserved, p.stats.reserved_bytes);
    assert_int_equal(sum.reserved_peak, p.stats.reserved_peak_bytes);
    /* The pool's own peak is told a little late, by what magazines have not yet counted. */
    assert_true(sum.live_peak + 4 * MIB > p.stats.requested_peak_bytes);
    assert_true(sum.live_peak < p.stats.requested_peak_bytes + 4 * MIB);
    assert_int_equal(d->initial_count, 0);
    assert_int_equal(d->initial_reserved, 0);
    assert_int_equal(d->unknown_frees, 0);
    assert_int_equal(segments_bytes(d), p.stats.reserved_bytes);
    check_live(d, &p);
    check_order(d);
    cen_snapshot_free(s);
    close_program(&p);
}

static void many_threads(void **state) {
    check_program(false);
}

static void plain_segments(void **state) {
    check_program(true);
}

/* Destroying a pool gives all back, live blocks too. */
static void destroyed_with_blocks(void **state) {
    cen_device *device;
    cen_pool *pool;
    void *small, *large;
    cen_host_options host = {.size = sizeof host, .capacity = 64 * MIB};
    OK(cen_trace_start(path, NULL));
    OK(cen_device_open_host(0, &host, &device));
    OK(cen_pool_create(device, NULL, &pool));
    OK(cen_pool_alloc(pool, 100, 0, &small));
    OK(cen_pool_alloc(pool, 5 * MIB, 0, &large));
    OK(cen_pool_destroy(pool));
    cen_device_close(device);
    OK(cen_trace_stop());
    cen_snapshot *s = read_back();
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    sums sum = run_through(d);
    assert_int_equal(sum.allocs, 2);
    assert_int_equal(sum.live, 0);
    assert_int_equal(sum.reserved, 0);
    assert_int_equal(d->segment_count, 0);
    cen_snapshot_free(s);
}

/* ---- blocks that move ---- */

enum { MOVABLES = 24 };

static void moved_blocks(void **state) {
    cen_device *device;
    cen_pool *pool;
    cen_movable handles[MOVABLES];
    cen_host_options host = {.size = sizeof host, .capacity = 256 * MIB, .inline_streams = true};
    cen_pool_options options = {.size = sizeof options, .page_bytes = 2 * MIB};
    OK(cen_trace_start(path, NULL));
    OK(cen_device_open_host(0, &host, &device));
    OK(cen_pool_create(device, &options, &pool));
    for (size_t i = 0; i < MOVABLES; i++) {
        OK(cen_movable_alloc(pool, MIB / 2 + i, 0, &handles[i]));
    }
    for (size_t i = 0; i < MOVABLES; i += 2) {
        OK(cen_movable_free(pool, handles[i], 0));
    }
    cen_defragment_report report;
    cen_defragment_options compact = {.size = sizeof compact, .compact = true, .wait = true};
    OK(cen_pool_defragment(pool, &compact, &report));
    assert_true(report.moved_bytes > 0);
    uint64_t addrs[MOVABLES];
    for (size_t i = 1; i < MOVABLES; i += 2) {
        void *addr;
        OK(cen_movable_pin(pool, handles[i], 0, &addr));
        OK(cen_movable_unpin(pool, handles[i], 0));
        addrs[i] = (uintptr_t)addr;
    }
    cen_pool_stats stats;
    OK(cen_pool_get_stats(pool, &stats));
    OK(cen_trace_stop());

    cen_snapshot *s = read_back();
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    sums sum = run_through(d);
    assert_int_equal(sum.live, stats.requested_bytes);
    assert_int_equal(sum.reserved, stats.reserved_bytes);
    assert_true(sum.allocs > stats.allocs); /* a move is a free and an alloc */
    check_order(d);
    for (size_t i = 1; i < MOVABLES; i += 2) {
        const cen_snapshot_block *b = block_at(d, addrs[i]);
        assert_non_null(b);
        assert_int_equal(b->requested, MIB / 2 + i);
    }
    cen_snapshot_free(s);
    OK(cen_pool_destroy(pool));
    cen_device_close(device);
}

/* ---- blocks over two devices ---- */

static void global_blocks(void **state) {
    cen_device *devices[2];
    cen_global *global;
    void *spread, *gone;
    cen_host_options host = {.size = sizeof host, .capacity = 64 * MIB, .inline_streams = true};
    OK(cen_trace_start(path, NULL));
    for (int i = 0; i < 2; i++) {
        OK(cen_device_open_host(i, &host, &devices[i]));
    }
    OK(cen_global_create(devices, 2, NULL, &global));
    cen_global_request request = {.size = sizeof request, .placement = CEN_PLACE_SPLIT};
    OK(cen_global_alloc(global, 8 * MIB, 1, &request, &spread, NULL));
    OK(cen_global_alloc(global, 12 * MIB, 1, &request, &gone, NULL));
    OK(cen_global_free(global, gone, 1, 0));
    OK(cen_trace_stop());
    cen_snapshot *s = read_back();
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    assert_int_equal(cen_snapshot_device_count(s), 1); /* nothing was asked for on the other one */
    assert_int_equal(d->device, 1);
    sums sum = run_through(d);
    assert_int_equal(sum.allocs, 2);
    assert_int_equal(sum.live, 8 * MIB);
    assert_non_null(block_at(d, (uintptr_t)spread));
    assert_int_equal(block_at(d, (uintptr_t)spread)->requested, 8 * MIB);
    cen_snapshot_free(s);
    OK(cen_global_free(global, spread, 1, 0));
    OK(cen_global_destroy(global));
    for (int i = 0; i < 2; i++) {
        cen_device_close(devices[i]);
    }
}

/* ---- steps, private pools, a failure ---- */

static void fail_in_step_five(cen_pool *pool, cen_stream stream) {
    void *kept[8], *block;
    for (int step = 0; step < 4; step++) {
        OK(cen_pool_alloc(pool, 8 * MIB, stream, &kept[step]));
        OK(cen_pool_alloc(pool, 4 * MIB, stream, &block));
        OK(cen_pool_free(pool, block, stream));
        cen_trace_step();
    }
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    assert_int_equal(cen_pool_alloc(pool, 40 * MIB, stream, &block), CEN_ERR_DEVICE_MEMORY);
    cen_log_set(print_log, NULL, CEN_LOG_ERROR);
}

static void a_failure_is_explained(void **state) {
    cen_device *device;
    cen_pool *pool;
    cen_stream stream;
    void *block;
    cen_host_options host = {.size = sizeof host, .capacity = 256 * MIB};
    cen_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
    OK(cen_device_open_host(0, &host, &device));
    OK(cen_trace_start(path, NULL)); /* after the device, before the pool */
    OK(cen_pool_create(device, &options, &pool));
    OK(cen_stream_create(device, 0, &stream));
    OK(cen_pool_capture_begin(pool, stream, 77));
    OK(cen_pool_alloc(pool, 2 * MIB, stream, &block));
    OK(cen_pool_capture_end(pool, stream));
    fail_in_step_five(pool, stream);
    OK(cen_trace_stop());

    cen_snapshot *s = read_back();
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    assert_int_equal(d->annotation_count, 4);
    bool found = false;
    for (size_t i = 0; i < d->segment_count; i++) {
        const cen_snapshot_segment *segment = &d->segments[i];
        bool around =
            segment->addr <= (uintptr_t)block && segment->addr + segment->size > (uintptr_t)block;
        assert_int_equal(segment->pool_id[1], around ? 77 : 0);
        found |= around;
    }
    assert_true(found);
    cen_explain_options explain = {.size = sizeof explain, .cap_bytes = 64 * MIB};
    cen_explanation *explanation;
    char *text = NULL;
    OK(cen_explain(s, &explain, &explanation));
    OK(cen_explain_text(explanation, &text));
    assert_non_null(strstr(text, "40.00 MiB"));
    assert_int_equal(cen_explanation_verdict(explanation), CEN_VERDICT_LEAK); /* as it is written */
    assert_non_null(strstr(text, "8.00 MiB a step stays, from 1 stack: 32.00 MiB now"));
    assert_non_null(strstr(text, "(0, 77)  2.00 MiB held"));
    assert_non_null(strstr(text, "cen_trace_options.stacks records frames"));
    free(text);
    cen_explanation_free(explanation);
    cen_snapshot_free(s);
    OK(cen_pool_destroy(pool));
    cen_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_threads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(plain_segments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(destroyed_with_blocks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(moved_blocks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(global_blocks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failure_is_explained, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
