/* Property: no program of calls on a global pool over three devices, read from the bytes, gives two
 * live blocks that overlap, breaks an invariant, or leaves memory of a device that is there behind.
 * Device calls fail, and one device is lost, where the bytes say so. Seeds:
 * tests/fuzz/corpus/global.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/global.h"
#include "dev/dev.h"
#include "dev/host/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SLOTS   32
#define DEVICES 3
#define STREAMS 2

typedef struct world {
    cen_device *devices[DEVICES];
    cen_global *global;
    cen_stream streams[DEVICES][STREAMS];
    uint64_t free_before[DEVICES];
    uint64_t addr[SLOTS], bytes[SLOTS];
    int lost; /* -1: none */
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

static void allocate(world *w, unsigned slot, int device, const uint8_t *op) {
    void *block = NULL;
    size_t bytes = ((size_t)op[3] + 1) << (op[2] % 18);
    double weights[DEVICES] = {(double)(op[3] & 3), (double)(op[3] >> 2 & 3), 1};
    cen_global_request request = {.size = sizeof request, .stream = w->streams[device][op[2] & 1]};
    cen_global_report r;
    if (w->bytes[slot]) {
        return;
    }
    if (op[2] & 0x80) {
        if (cen_pool_alloc(cen_global_pool(w->global, device), bytes, request.stream, &block)) {
            return;
        }
    } else {
        request.placement = (cen_placement)(op[1] % (CEN_PLACE_HOST + 2));
        request.weights = op[2] & 0x40 ? weights : NULL;
        request.stripe_bytes = (uint64_t)(op[3] & 0x30) << 17;
        if (cen_global_alloc(w->global, bytes, device, &request, &block, &r)) {
            return;
        }
        uint64_t sum = r.host_bytes;
        for (int d = 0; d < DEVICES; d++) {
            sum += r.device_bytes[d];
        }
        require(r.requested_bytes == bytes && r.mapped_bytes == sum && sum >= bytes);
    }
    w->addr[slot] = (uintptr_t)block;
    w->bytes[slot] = bytes;
    check_apart(w, slot);
}

static void release(world *w, unsigned slot, int device, unsigned stream) {
    void *block = (void *)(uintptr_t)w->addr[slot];
    if (w->bytes[slot] && !cen_global_free(w->global, block, device, w->streams[device][stream])) {
        w->bytes[slot] = 0;
    }
}

static void manage(world *w, int device, const uint8_t *op) {
    cen_global_room room;
    cen_pool *pool = cen_global_pool(w->global, device);
    switch (op[2] % 6) {
    case 0:
        (void)cen_global_reclaim(w->global, device, (uint64_t)op[3] << 20, op[2] & 0x40, NULL);
        break;
    case 1:
        (void)cen_pool_trim(pool, (uint64_t)op[3] << 18, op[2] & 0x40, NULL);
        break;
    case 2:
        if (!cen_global_available(w->global, (int)(op[3] % (DEVICES + 2)) - 2, &room)) {
            require(room.largest_bytes <= room.available_bytes);
        }
        break;
    case 3:
        (void)cen_pool_set_limit(pool, (uint64_t)op[3] << 20);
        break;
    case 4:
        (void)cen_global_defragment(w->global, NULL, NULL);
        break;
    default:
        if (w->lost < 0 && op[3] % 8 == 0) {
            w->lost = device;
            ceni_host_lose(w->devices[device]);
        }
        break;
    }
}

static void step(world *w, const uint8_t *op) {
    unsigned slot = op[1] % SLOTS, stream = op[1] / SLOTS % STREAMS;
    int device = op[0] / 16 % DEVICES;
    switch (op[0] % 16) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
        allocate(w, slot, device, op);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
        release(w, slot, device, stream);
        break;
    case 10:
        if (w->bytes[slot]) {
            (void)cen_global_use(w->global, (void *)(uintptr_t)w->addr[slot], device,
                                 w->streams[device][stream]);
        }
        break;
    case 11:
        ceni_dev_fault(w->devices[device], op[2] % CENI_OP_COUNT, op[3] % 8, false);
        break;
    default:
        manage(w, device, op);
        break;
    }
}

static void disarm(world *w) {
    for (int d = 0; d < DEVICES; d++) {
        for (unsigned op = 0; op < CENI_OP_COUNT; op++) {
            ceni_dev_fault(w->devices[d], op, 0, false);
        }
    }
}

static void close_world(world *w) {
    disarm(w);
    require(!cen_global_verify(w->global));
    cen_status status = cen_global_destroy(w->global);
    require(!status || w->lost >= 0);
    for (int d = 0; d < DEVICES; d++) {
        uint64_t free_after, total;
        require(d == w->lost || (!cen_device_mem_info(w->devices[d], &free_after, &total) &&
                                 free_after == w->free_before[d]));
    }
    for (int d = 0; d < DEVICES; d++) {
        cen_device_close(w->devices[d]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cen_host_options host = {.size = sizeof host, .devices = DEVICES, .inline_streams = true};
    host.capacity = (uint64_t)24 << 20;
    host.peer_group = size && data[0] & 1 ? 2 : 0;
    world w = {.lost = -1};
    for (int d = 0; d < DEVICES; d++) {
        uint64_t total;
        require(!cen_device_open_host(d, &host, &w.devices[d]));
        require(!cen_device_mem_info(w.devices[d], &w.free_before[d], &total));
        for (unsigned i = 1; i < STREAMS; i++) {
            require(!cen_stream_create(w.devices[d], 0, &w.streams[d][i]));
        }
    }
    cen_global_options options = {.size = sizeof options, .small_bytes = (uint64_t)1 << 20};
    options.allow_host = size && data[0] & 2;
    options.host_bytes = (uint64_t)16 << 20;
    options.no_borrowing = size && data[0] & 4;
    options.return_at_once = size && data[0] & 8;
    options.pool = (cen_pool_options){.size = sizeof options.pool};
    options.pool.page_bytes = size && data[0] & 16 ? (uint64_t)2 << 20 : 0;
    require(!cen_global_create(w.devices, DEVICES, &options, &w.global));
    for (size_t at = 1, steps = 0; at + 4 <= size && steps < 400; at += 4, steps++) {
        step(&w, data + at);
        if (steps % 16 == 0) {
            require(!cen_global_verify(w.global));
        }
    }
    close_world(&w);
    return 0;
}
