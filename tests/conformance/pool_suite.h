/* What the pool's tests share: a pool on the fixture's device, streams, blocks with contents that
 * kernels write and check, streams held up until a test lets them go, and a look at the whole pool.
 *
 * A block's contents depend on its seed, so blocks that overlap, or that are handed out while work
 * still uses them, are noticed by the next check. Checks add to a counter that is read at the end.
 */
#ifndef POOL_SUITE_H
#define POOL_SUITE_H

#define SUITE_PLAIN
#include "tests/conformance/suite.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { STREAMS = 4 };

typedef struct world {
    const fixture *f;
    cen_device *device;
    cen_pool *pool;
    cen_stream streams[STREAMS];
    cen_event gates[STREAMS]; /* what a held stream waits for; 0: not held */
    uint64_t *mismatches;     /* pinned */
    uint64_t free_at_start;
} world;

/* A world on a device of its own, which has `host` where it is a host device. */
static inline world world_on(void **state, const cen_host_options *host,
                             const cen_pool_options *options) {
    fixture *f = *state;
    world w = {.f = f, .device = f->device};
    if (host && f->host) {
        cen_device_close(f->device);
        w.device = f->device = suite_open(f, 0, host);
    }
    cen_pool_options given = options ? *options : (cen_pool_options){0};
    given.size = sizeof given;
    void *pinned;
    OK(cen_pinned_alloc(w.device, sizeof *w.mismatches, &pinned));
    w.mismatches = pinned;
    *w.mismatches = 0;
    for (int i = 0; i < STREAMS; i++) {
        OK(cen_stream_create(w.device, 0, &w.streams[i]));
    }
    w.free_at_start = suite_free_bytes(w.device);
    OK(cen_pool_create(w.device, &given, &w.pool));
    return w;
}

static inline world world_open(void **state, const cen_pool_options *options) {
    return world_on(state, NULL, options);
}

/* Keeps work submitted to stream `i` from now on waiting until let_go; on a GPU, for a while. */
static inline void hold(world *w, int i) {
    if (!w->f->host) {
        suite_spin(w->device, 20000000, w->streams[i]);
        return;
    }
    OK(cen_event_create(w->device, CEN_EVENT_MANUAL, &w->gates[i]));
    OK(cen_stream_wait(w->device, w->streams[i], w->gates[i]));
}

static inline void let_go(world *w, int i) {
    if (w->gates[i]) {
        OK(cen_event_signal(w->device, w->gates[i]));
        OK(cen_event_destroy(w->device, w->gates[i]));
        w->gates[i] = 0;
    }
}

static inline void sync_all(world *w) {
    for (int i = 0; i < STREAMS; i++) {
        let_go(w, i);
    }
    for (int i = 0; i < STREAMS; i++) {
        OK(cen_stream_sync(w->device, w->streams[i]));
    }
    OK(cen_stream_sync(w->device, 0));
}

/* Large blocks are written in windows, one to a MiB and one at the end. */
#define WINDOW (16 * KIB)

static inline void touch(world *w, void *block, size_t bytes, uint32_t seed, cen_stream stream,
                         bool check) {
    const size_t step = bytes <= 256 * KIB ? bytes : MIB, part = step == MIB ? WINDOW : bytes;
    uint64_t counter = address(w->mismatches);
    for (size_t at = 0; at < bytes; at += step) {
        bool last = step == MIB && at + step >= bytes;
        cen_addr addr = address(block) + at;
        uint64_t words = (part < bytes - at ? part : bytes - at) / 4;
        uint32_t own = seed * 2654435761u + (uint32_t)at;
        void *args[] = {&addr, &own, &words, &counter};
        const char *name = check ? "cen_check_u32" : "cen_pattern_u32";
        suite_launch(w->device, name, args, check ? 4 : 3, stream);
        if (last && bytes - at > 2 * WINDOW) {
            addr = (address(block) + bytes - WINDOW) & ~(cen_addr)3;
            own++;
            words = WINDOW / 4;
            suite_launch(w->device, name, args, check ? 4 : 3, stream);
        }
    }
}

static inline void fill(world *w, void *block, size_t bytes, uint32_t seed, cen_stream stream) {
    touch(w, block, bytes, seed, stream, false);
}

static inline void check(world *w, void *block, size_t bytes, uint32_t seed, cen_stream stream) {
    touch(w, block, bytes, seed, stream, true);
}

static inline void *get(world *w, size_t bytes, cen_stream stream) {
    void *block = NULL;
    OK(cen_pool_alloc(w->pool, bytes, stream, &block));
    assert_non_null(block);
    return block;
}

static inline cen_pool_stats stats_of(world *w) {
    cen_pool_stats stats;
    OK(cen_pool_get_stats(w->pool, &stats));
    return stats;
}

typedef struct walked {
    cen_addr next; /* where the last range ended */
    uint64_t bytes, live, live_bytes, pending, pending_bytes;
    uint64_t largest;
    bool overlap;
} walked;

static inline bool walk_one(void *arg, const cen_pool_block_info *info) {
    walked *sum = arg;
    sum->bytes += info->bytes;
    sum->next = info->addr + info->bytes;
    sum->live += info->state == CEN_POOL_LIVE;
    sum->live_bytes += info->state == CEN_POOL_LIVE ? info->requested_bytes : 0;
    sum->pending += info->state == CEN_POOL_PENDING;
    sum->pending_bytes += info->state == CEN_POOL_PENDING ? info->bytes : 0;
    return true;
}

/* The pool's invariants hold, and what a walk finds is what the statistics say. */
static inline void sound(world *w) {
    if (cen_pool_verify(w->pool)) {
        fail_msg("%s", suite_log_line);
    }
    walked sum = {0};
    cen_pool_stats stats = stats_of(w);
    OK(cen_pool_walk(w->pool, walk_one, &sum));
    assert_int_equal(sum.bytes, stats.reserved_bytes);
    assert_int_equal(sum.live, stats.blocks);
    assert_int_equal(sum.live_bytes, stats.requested_bytes);
    assert_int_equal(sum.pending, stats.pending_blocks);
    assert_int_equal(sum.pending_bytes, stats.pending_bytes);
    assert_true(stats.requested_bytes <= stats.allocated_bytes);
    assert_true(stats.allocated_bytes <= stats.reserved_bytes);
    assert_true(stats.requested_bytes <= stats.requested_peak_bytes);
    assert_true(stats.allocated_bytes <= stats.allocated_peak_bytes);
    assert_true(stats.reserved_bytes <= stats.reserved_peak_bytes);
}

/* Waits, checks contents, and destroys the pool, which gives all its memory back. */
static inline void world_close(world *w) {
    sync_all(w);
    assert_int_equal(*w->mismatches, 0);
    sound(w);
    suite_log_reset();
    OK(cen_pool_destroy(w->pool));
    if (w->f->host) { /* others use a GPU too */
        assert_int_equal(suite_free_bytes(w->device), w->free_at_start);
    }
    for (int i = 0; i < STREAMS; i++) {
        OK(cen_stream_destroy(w->device, w->streams[i]));
    }
    OK(cen_pinned_free(w->device, w->mismatches));
}

#endif
