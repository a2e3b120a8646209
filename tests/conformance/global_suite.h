/* What the tests of the global pool share: several devices with a few streams each, a global pool
 * over them, contents that kernels of any device write and check, streams held up until a test lets
 * them go, and a look at the whole.
 *
 * A test names the room that each device is to have. On the host that is its capacity; a GPU is
 * filled up with ballast until about so much is left, so what depends on it is measured again. */
#ifndef GLOBAL_SUITE_H
#define GLOBAL_SUITE_H

#define SUITE_DEVICES
#include "tests/conformance/suite.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { DEVICES_MAX = 4, STREAMS = 2, BALLAST = 96 };

typedef struct node {
    cen_device *device;
    cen_stream streams[STREAMS];
    cen_event gates[STREAMS]; /* what a held stream waits for; 0: not held */
    uint64_t *mismatches;     /* pinned */
    uint64_t free_at_start;
    ceni_page ballast[BALLAST];
    size_t ballast_count;
} node;

typedef struct world {
    const fixture *f;
    size_t count;
    node nodes[DEVICES_MAX];
    cen_device *devices[DEVICES_MAX];
    cen_global *global;
    uint64_t granule, room;
} world;

/* Fills a GPU until `room` bytes can be had: the driver calls more free than it gives. */
static inline void squeeze(node *n, uint64_t room) {
    uint64_t unit = n->device->granularity;
    ceni_page last;
    OK(ceni_dev_page_create(n->device, (room + unit - 1) / unit * unit, 0, &last));
    uint64_t size = suite_free_bytes(n->device) / unit * unit;
    while (size) {
        assert_true(n->ballast_count < BALLAST);
        if (ceni_dev_page_create(n->device, size, 0, &n->ballast[n->ballast_count])) {
            size = size / 2 / unit * unit;
        } else {
            n->ballast_count++;
        }
    }
    OK(ceni_dev_page_release(n->device, last));
    suite_log_reset();
}

static inline void node_open(world *w, int number, const cen_host_options *host) {
    node *n = &w->nodes[number];
    void *pinned;
    n->device = w->devices[number] = suite_open(w->f, number, host);
    OK(cen_pinned_alloc(n->device, sizeof *n->mismatches, &pinned));
    n->mismatches = pinned;
    *n->mismatches = 0;
    for (int i = 0; i < STREAMS; i++) {
        OK(cen_stream_create(n->device, 0, &n->streams[i]));
    }
    if (!w->f->host) {
        suite_spin(n->device, 1000, 0); /* kernels are loaded before free memory is measured */
        OK(cen_stream_sync(n->device, 0));
        squeeze(n, w->room);
    }
    n->free_at_start = suite_free_bytes(n->device);
}

/* Devices with `room` bytes each, of which the host's have what else `host` says, and a pool. */
static inline world world_on(void **state, uint64_t room, const cen_host_options *host,
                             const cen_global_options *options) {
    const fixture *f = *state;
    world w = {.f = f, .count = (size_t)f->devices, .room = room};
    cen_host_options given = host ? *host : (cen_host_options){0};
    given.devices = (uint32_t)f->devices;
    given.capacity = room;
    for (int i = 0; i < f->devices; i++) {
        node_open(&w, i, &given);
        w.granule = w.devices[i]->granularity > w.granule ? w.devices[i]->granularity : w.granule;
    }
    cen_global_options own = options ? *options : (cen_global_options){0};
    own.size = sizeof own;
    OK(cen_global_create(w.devices, w.count, &own, &w.global));
    return w;
}

static inline world world_open(void **state, uint64_t room, const cen_global_options *options) {
    return world_on(state, room, NULL, options);
}

static inline cen_pool *pool_of(const world *w, int device) {
    return cen_global_pool(w->global, device);
}

/* Keeps work submitted to a stream from now on waiting until let_go; on a GPU, for a while. */
static inline void hold(world *w, int device, int stream) {
    node *n = &w->nodes[device];
    if (!w->f->host) {
        suite_spin(n->device, 20000000, n->streams[stream]);
        return;
    }
    OK(cen_event_create(n->device, CEN_EVENT_MANUAL, &n->gates[stream]));
    OK(cen_stream_wait(n->device, n->streams[stream], n->gates[stream]));
}

static inline void let_go(world *w, int device, int stream) {
    node *n = &w->nodes[device];
    if (n->gates[stream]) {
        OK(cen_event_signal(n->device, n->gates[stream]));
        OK(cen_event_destroy(n->device, n->gates[stream]));
        n->gates[stream] = 0;
    }
}

static inline void sync_all(world *w) {
    for (size_t d = 0; d < w->count; d++) {
        for (int i = 0; i < STREAMS; i++) {
            let_go(w, (int)d, i);
        }
    }
    for (size_t d = 0; d < w->count; d++) {
        for (int i = 0; i < STREAMS; i++) {
            OK(cen_stream_sync(w->devices[d], w->nodes[d].streams[i]));
        }
        OK(cen_stream_sync(w->devices[d], 0));
    }
}

/* A few words at both ends of each granule of a block, on a stream of any device. */
static inline void touch(world *w, int device, int stream, void *block, size_t bytes, uint32_t seed,
                         bool check) {
    node *n = &w->nodes[device];
    uint64_t counter = address(n->mismatches), half = w->granule / 2;
    for (size_t at = 0; at < bytes; at += half) {
        size_t part = bytes - at < half ? bytes - at : half;
        bool second = at / half % 2;
        uint64_t words = (part < 4 * KIB ? part : 4 * KIB) / 4;
        cen_addr addr = address(block) + at + (second ? (part - words * 4) & ~(size_t)3 : 0);
        uint32_t own = seed * 2654435761u + (uint32_t)(at / half);
        void *args[] = {&addr, &own, &words, &counter};
        if (words) {
            suite_launch(n->device, check ? "cen_check_u32" : "cen_pattern_u32", args,
                         check ? 4 : 3, n->streams[stream]);
        }
    }
}

static inline void fill(world *w, int device, int stream, void *block, size_t bytes,
                        uint32_t seed) {
    touch(w, device, stream, block, bytes, seed, false);
}

static inline void check(world *w, int device, int stream, void *block, size_t bytes,
                         uint32_t seed) {
    touch(w, device, stream, block, bytes, seed, true);
}

static inline void no_mismatches(world *w) {
    for (size_t d = 0; d < w->count; d++) {
        /* Streams of other devices may still be counting. */
        assert_int_equal(__atomic_load_n(w->nodes[d].mismatches, __ATOMIC_ACQUIRE), 0);
    }
}

/* A block for stream 0 of a device; the report may be NULL. */
static inline cen_status place(world *w, size_t bytes, int device, cen_placement placement,
                               void **block, cen_global_report *report) {
    cen_global_request request = {.size = sizeof request, .placement = placement};
    request.stream = w->nodes[device].streams[0];
    return cen_global_alloc(w->global, bytes, device, &request, block, report);
}

static inline void *get(world *w, size_t bytes, int device, cen_placement placement) {
    void *block = NULL;
    OK(place(w, bytes, device, placement, &block, NULL));
    assert_non_null(block);
    return block;
}

static inline void *get_local(world *w, size_t bytes, int device, int stream) {
    void *block = NULL;
    OK(cen_pool_alloc(pool_of(w, device), bytes, w->nodes[device].streams[stream], &block));
    assert_non_null(block);
    return block;
}

static inline void drop(world *w, void *block, int device, int stream) {
    OK(cen_global_free(w->global, block, device, w->nodes[device].streams[stream]));
}

static inline void drop_local(world *w, void *block, int device, int stream) {
    OK(cen_pool_free(pool_of(w, device), block, w->nodes[device].streams[stream]));
}

static inline cen_global_room room_of(world *w, int device) {
    cen_global_room room;
    OK(cen_global_available(w->global, device, &room));
    return room;
}

static inline cen_pool_stats stats_of(world *w, int device) {
    cen_pool_stats stats;
    OK(cen_pool_get_stats(pool_of(w, device), &stats));
    return stats;
}

/* Streams are idle, and the pool knows: what it recorded to see that is complete too. */
static inline void settle(world *w) {
    for (int round = 0; round < 2; round++) {
        for (size_t d = 0; d < w->count; d++) {
            for (int i = 0; i < STREAMS; i++) {
                OK(cen_stream_sync(w->devices[d], w->nodes[d].streams[i]));
            }
            OK(cen_stream_sync(w->devices[d], 0));
        }
        (void)room_of(w, CEN_GLOBAL_ALL);
    }
}

static inline uint64_t whole(const world *w, uint64_t bytes) {
    return (bytes + w->granule - 1) / w->granule * w->granule;
}

static inline cen_global_request asking(cen_placement placement) {
    return (cen_global_request){.size = sizeof(cen_global_request), .placement = placement};
}

static inline uint64_t everyone(const world *w) {
    return ((uint64_t)1 << w->count) - 1;
}

/* The report's sums, and the home of each page of the block. */
static inline void agrees(world *w, void *block, size_t bytes, const cen_global_report *r) {
    uint64_t sum = r->host_bytes, tally[DEVICES_MAX] = {0}, host = 0;
    assert_int_equal(r->requested_bytes, bytes);
    assert_int_equal(r->mapped_bytes, whole(w, bytes));
    assert_int_not_equal(r->placement, CEN_PLACE_AUTO);
    for (size_t d = 0; d < CEN_GLOBAL_DEVICES; d++) {
        sum += r->device_bytes[d];
        assert_true(d < w->count || !r->device_bytes[d]);
    }
    assert_int_equal(sum, r->mapped_bytes);
    for (uint64_t at = 0; at < r->mapped_bytes; at += w->granule) {
        int first, last;
        OK(cen_global_home(w->global, (char *)block + at, &first));
        OK(cen_global_home(w->global, (char *)block + at + w->granule - 1, &last));
        assert_int_equal(first, last);
        *(first == CEN_GLOBAL_HOST ? &host : &tally[first]) += w->granule;
    }
    for (size_t d = 0; d < w->count; d++) {
        assert_int_equal(tally[d], r->device_bytes[d]);
    }
    assert_int_equal(host, r->host_bytes);
}

/* What one device writes, each other one in reach reads at the same addresses. */
static inline void is_shared(world *w, void *block, size_t bytes, uint64_t reachable) {
    for (int d = 0; d < (int)w->count; d++) {
        if (!(reachable >> d & 1)) {
            continue;
        }
        fill(w, d, 0, block, bytes, 100 + (uint32_t)d);
        OK(cen_stream_sync(w->devices[d], w->nodes[d].streams[0]));
        for (int e = 0; e < (int)w->count; e++) {
            if (reachable >> e & 1) {
                check(w, e, 0, block, bytes, 100 + (uint32_t)d);
            }
        }
        for (int e = 0; e < (int)w->count; e++) {
            OK(cen_stream_sync(w->devices[e], w->nodes[e].streams[0]));
        }
        no_mismatches(w);
    }
}

static inline void sound(world *w) {
    if (cen_global_verify(w->global)) {
        fail_msg("%s", suite_log_line);
    }
}

static inline void close_devices(world *w) {
    for (size_t d = 0; d < w->count; d++) {
        node *n = &w->nodes[d];
        for (size_t i = 0; i < n->ballast_count; i++) {
            OK(ceni_dev_page_release(n->device, n->ballast[i]));
        }
        cen_device_close(n->device);
    }
}

/* Waits, checks contents, and destroys the pool, which gives all memory back. */
static inline void world_close(world *w) {
    sync_all(w);
    no_mismatches(w);
    sound(w);
    suite_log_reset();
    OK(cen_global_destroy(w->global));
    for (size_t d = 0; d < w->count && w->f->host; d++) { /* others use a GPU too */
        assert_int_equal(suite_free_bytes(w->devices[d]), w->nodes[d].free_at_start);
    }
    close_devices(w);
}

static inline int global_setup(void **state) {
    suite_log_reset();
    *state = suite_now;
    return 0;
}

/* A test opens its devices itself: with the room that it needs. */
#define GLOBAL_TEST(function) cmocka_unit_test_setup(function, global_setup)

#endif
