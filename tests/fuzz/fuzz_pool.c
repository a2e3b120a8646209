/* Property: no program of calls, read from the bytes, gives two live blocks that overlap, breaks an
 * invariant of the pool, or leaves device memory behind. Device calls fail where the bytes say so.
 * Seeds: tests/fuzz/corpus/pool. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/movable.h"
#include "dev/dev.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SLOTS   32
#define STREAMS 3

typedef struct world {
    cen_device *device;
    cen_pool *pool;
    cen_stream streams[STREAMS];
    uint64_t addr[SLOTS], bytes[SLOTS];
    bool capturing[STREAMS];
    cen_movable movable[SLOTS];
    uint8_t pins[SLOTS], mark[SLOTS];
} world;

static void require(bool holds) {
    if (!holds) {
        abort();
    }
}

static void check_apart(const world *w, unsigned slot) {
    for (unsigned i = 0; i < SLOTS; i++) {
        require(i == slot || !w->bytes[i] || w->addr[i] + w->bytes[i] <= w->addr[slot] ||
                w->addr[slot] + w->bytes[slot] <= w->addr[i]);
    }
}

static void allocate(world *w, unsigned slot, unsigned stream, uint8_t a, uint8_t b) {
    void *block;
    size_t bytes = ((size_t)b + 1) << (a % 20);
    if (w->bytes[slot] || cen_pool_alloc_aligned(w->pool, bytes, (size_t)512 << (a / 20 % 8),
                                                 w->streams[stream], &block)) {
        return;
    }
    w->addr[slot] = (uintptr_t)block;
    w->bytes[slot] = bytes;
    check_apart(w, slot);
}

static void release(world *w, unsigned slot, unsigned stream) {
    void *block = (void *)(uintptr_t)w->addr[slot];
    if (w->bytes[slot] && !cen_pool_free(w->pool, block, w->streams[stream])) {
        w->bytes[slot] = 0;
    }
}

/* Streams run inline: a movable block's contents can be looked at while it is pinned. */
static void use_movable(world *w, unsigned slot, unsigned stream, bool keep) {
    void *at;
    if (cen_movable_pin(w->pool, w->movable[slot], w->streams[stream], &at)) {
        return;
    }
    require(!w->mark[slot] || *(volatile uint8_t *)at == w->mark[slot]);
    w->mark[slot] = (uint8_t)(1 + (w->mark[slot] + slot) % 255);
    *(volatile uint8_t *)at = w->mark[slot];
    w->pins[slot]++;
    if (!keep || w->pins[slot] > 3) {
        w->pins[slot] -= !cen_movable_unpin(w->pool, w->movable[slot], w->streams[stream]);
    }
}

static void free_movable(world *w, unsigned slot, unsigned stream) {
    while (w->pins[slot] && !cen_movable_unpin(w->pool, w->movable[slot], w->streams[stream])) {
        w->pins[slot]--;
    }
    cen_movable handle = w->movable[slot];
    if (!cen_movable_free(w->pool, handle, w->streams[stream])) {
        require(!w->pins[slot]);
        require(cen_movable_free(w->pool, handle, w->streams[stream]) == CEN_ERR_NOT_FOUND);
        w->movable[slot] = 0;
        w->mark[slot] = 0;
    }
}

static void defragment(world *w, uint8_t a, uint8_t b) {
    cen_defragment_options o = {.size = sizeof o, .compact = a & 1, .wait = a & 2};
    o.keep_bytes = a & 4 ? UINT64_MAX : (uint64_t)b << 20;
    if (a & 8) {
        const cen_defragment_policy p = {
            .size = sizeof p, .interval_us = b, .threshold = b / 255.0, .each = o};
        (void)cen_pool_set_defragment(w->pool, a & 16 ? &p : NULL);
    } else {
        (void)cen_pool_defragment(w->pool, &o, NULL);
    }
}

static void move_something(world *w, const uint8_t *op, unsigned slot, unsigned stream) {
    switch (op[2] % 6) {
    case 0:
    case 1:
        if (!w->movable[slot]) {
            size_t bytes = ((size_t)op[3] + 1) << (10 + op[2] / 6 % 10);
            (void)cen_movable_alloc(w->pool, bytes, w->streams[stream], &w->movable[slot]);
        }
        break;
    case 2:
        use_movable(w, slot, stream, op[3] & 1);
        break;
    case 3:
        free_movable(w, slot, stream);
        break;
    case 4:
        (void)cen_movable_move(w->pool, w->movable[slot]);
        break;
    default:
        defragment(w, op[2] / 6, op[3]);
        break;
    }
}

static void capture(world *w, unsigned stream, uint64_t id) {
    if (w->capturing[stream]) {
        require(!cen_pool_capture_end(w->pool, w->streams[stream]));
        w->capturing[stream] = false;
    } else {
        w->capturing[stream] = !cen_pool_capture_begin(w->pool, w->streams[stream], id);
    }
}

static void step(world *w, const uint8_t *op) {
    unsigned slot = op[1] % SLOTS, stream = op[1] / SLOTS % STREAMS;
    switch (op[0] < 200 ? op[0] % 10 : 10) {
    case 0:
    case 1:
    case 2:
        allocate(w, slot, stream, op[2], op[3]);
        break;
    case 3:
    case 4:
        release(w, slot, stream);
        break;
    case 5:
        if (w->bytes[slot]) {
            (void)cen_pool_use(w->pool, (void *)(uintptr_t)w->addr[slot], w->streams[stream]);
        }
        break;
    case 6:
        (void)cen_pool_trim(w->pool, (uint64_t)op[2] << 20, op[3] & 1, NULL);
        break;
    case 7:
        capture(w, stream, 1 + op[2] % 2);
        break;
    case 8:
        ceni_dev_fault(w->device, op[2] % CENI_OP_COUNT, op[3] % 8, false);
        break;
    case 9:
        if (op[2] & 1) {
            (void)cen_pool_capture_release(w->pool, 1 + op[3] % 2);
        } else {
            (void)cen_pool_set_limit(w->pool, (uint64_t)op[3] << 20);
        }
        break;
    default:
        move_something(w, op, slot, stream);
        break;
    }
}

static void close_world(world *w, uint64_t free_before) {
    for (unsigned op = 0; op < CENI_OP_COUNT; op++) {
        ceni_dev_fault(w->device, op, 0, false);
    }
    require(!cen_pool_verify(w->pool));
    require(!cen_pool_destroy(w->pool));
    uint64_t free_after, total;
    require(!cen_device_mem_info(w->device, &free_after, &total) && free_after == free_before);
    cen_device_close(w->device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cen_host_options host = {.size = sizeof host, .devices = 1, .inline_streams = true};
    host.capacity = (uint64_t)256 << 20;
    host.no_vmm = size && data[0] & 1;
    world w = {0};
    uint64_t free_before, total;
    require(!cen_device_open_host(0, &host, &w.device));
    require(!cen_device_mem_info(w.device, &free_before, &total));
    cen_pool_options options = {.size = sizeof options};
    options.page_bytes = size && data[0] & 2 ? (uint64_t)2 << 20 : 0;
    require(!cen_pool_create(w.device, &options, &w.pool));
    for (unsigned i = 1; i < STREAMS; i++) {
        require(!cen_stream_create(w.device, 0, &w.streams[i]));
    }
    for (size_t at = 1, steps = 0; at + 4 <= size && steps < 400; at += 4, steps++) {
        step(&w, data + at);
        if (steps % 16 == 0) {
            require(!cen_pool_verify(w.pool));
        }
    }
    close_world(&w, free_before);
    return 0;
}
