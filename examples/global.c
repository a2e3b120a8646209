/* Two devices as one: where a tensor goes that is larger than either, what is left where, a pool
 * that borrows from its neighbour and gives back, and defragmentation with its figures. Runs on any
 * Linux machine, on two emulated devices of 8 GiB; "cuda:0 cuda:1" as arguments: on two GPUs.
 *
 * Sizes are shares of a device's memory; on the host only the ends of the tensor's parts are
 * touched, so that no machine needs 12 GiB for it. */
#include <stdio.h>
#include <stdlib.h>

#include "cenote/cenote.h"

#define MIB   ((size_t)1 << 20)
#define GIB   ((double)((size_t)1 << 30))
#define MANY  96
#define BLOCK (11 * MIB)

static void check(cen_status status, const char *what) {
    if (status) {
        fprintf(stderr, "%s: %s\n", what, cen_status_text(status));
        exit(1);
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    fprintf(stderr, "log: %s\n", message);
}

static void print_rooms(cen_global *global, const char *when) {
    printf("%-34s %8s %8s %8s %8s %8s\n", when, "total", "free", "pool", "global", "largest");
    for (int device = 0; device < 3; device++) {
        cen_global_room r;
        check(cen_global_available(global, device < 2 ? device : CEN_GLOBAL_ALL, &r), "available");
        char name[16];
        snprintf(name, sizeof name, device < 2 ? "  device %d" : "  together", device);
        printf("%-34s %8.2f %8.2f %8.2f %8.2f %8.2f GiB\n", name, (double)r.total_bytes / GIB,
               (double)r.available_bytes / GIB, (double)r.pool_bytes / GIB,
               (double)r.global_bytes / GIB, (double)r.largest_bytes / GIB);
    }
}

static void print_place(const char *what, const cen_global_report *r) {
    static const char *const names[] = {"",        "local",    "on a peer",  "split",
                                        "striped", "weighted", "on the host"};
    printf("%s: %.2f GiB %s: %.2f on device 0, %.2f on device 1, in %.0f us\n", what,
           (double)r->mapped_bytes / GIB, names[r->placement], (double)r->device_bytes[0] / GIB,
           (double)r->device_bytes[1] / GIB, (double)r->driver_ns / 1000);
}

/* Device 0 writes at the seam between the devices' pages, device 1 reads it there. */
static void share_a_tensor(cen_device *const *devices, cen_global *global, size_t bytes) {
    cen_global_report where;
    void *tensor;
    check(cen_global_alloc(global, bytes, 0, NULL, &tensor, &where), "alloc");
    print_place("a tensor larger than a device", &where);
    print_rooms(global, "with the tensor");

    cen_addr seam = (cen_addr)tensor + where.device_bytes[0] - 4;
    uint8_t read[8];
    check(cen_fill_async(devices[0], seam, 0x5c, sizeof read, 0), "fill");
    check(cen_stream_sync(devices[0], 0), "sync");
    check(cen_copy_async(devices[1], (cen_addr)read, seam, sizeof read, 0), "copy");
    check(cen_stream_sync(devices[1], 0), "sync");
    for (size_t i = 0; i < sizeof read; i++) {
        check(read[i] == 0x5c ? CEN_OK : CEN_ERR_CORRUPT, "what device 1 read of device 0's write");
    }
    printf("device 1 reads across the seam what device 0 wrote\n");
    check(cen_global_free(global, tensor, 0, 0), "free");

    const cen_global_request striped = {.size = sizeof striped, .placement = CEN_PLACE_STRIPED};
    check(cen_global_alloc(global, bytes / 4, 0, &striped, &tensor, &where), "striped");
    print_place("asked for in stripes", &where);
    check(cen_global_free(global, tensor, 0, 0), "free");
}

/* Device 0 is full: its local pool borrows, and gives back when device 1 wants its memory. */
static void borrow(cen_global *global, size_t device_bytes) {
    void *kept, *more, *theirs;
    cen_pool *pool = cen_global_pool(global, 0);
    cen_pool_stats stats;
    check(cen_pool_alloc(pool, device_bytes / 8 * 7, 0, &kept), "alloc");
    check(cen_pool_alloc(pool, device_bytes / 4, 0, &more), "alloc");
    check(cen_pool_get_stats(pool, &stats), "stats");
    printf("device 0 is full; its pool borrows %.2f GiB of device 1\n",
           (double)stats.borrowed_bytes / GIB);
    check(cen_pool_free(pool, more, 0), "free");
    cen_global_room room;
    check(cen_global_available(global, 1, &room), "available");
    size_t all = room.free_bytes + room.kept_bytes + room.lent_bytes;
    check(cen_pool_alloc(cen_global_pool(global, 1), all, 0, &theirs), "alloc");
    check(cen_pool_get_stats(pool, &stats), "stats");
    printf("device 1 needs all of its own: the pool of device 0 now holds %.2f GiB of it\n",
           (double)stats.borrowed_bytes / GIB);
    check(cen_pool_free(cen_global_pool(global, 1), theirs, 0), "free");
    check(cen_pool_free(pool, kept, 0), "free");
}

/* Every second block goes; the others are movable, so whole pages become free. */
static void defragment(cen_device *device, cen_global *global) {
    cen_pool *pool = cen_global_pool(global, 0);
    cen_movable blocks[MANY];
    void *at;
    check(cen_pool_trim(pool, 0, true, NULL), "trim");
    check(cen_pool_trim(cen_global_pool(global, 1), 0, true, NULL), "trim");
    for (int i = 0; i < MANY; i++) {
        check(cen_movable_alloc(pool, BLOCK, 0, &blocks[i]), "movable");
        check(cen_movable_pin(pool, blocks[i], 0, &at), "pin");
        check(cen_fill_async(device, (cen_addr)at, (uint8_t)i, 64, 0), "fill");
        check(cen_movable_unpin(pool, blocks[i], 0), "unpin");
    }
    for (int i = 0; i < MANY; i += 2) {
        check(cen_movable_free(pool, blocks[i], 0), "free");
    }
    const cen_defragment_options options = {.size = sizeof options, .compact = true, .wait = true};
    cen_defragment_report r;
    check(cen_global_defragment(global, &options, &r), "defragment");
    printf(
        "defragmented: %.0f MiB held before, %.0f after; %llu blocks of %.0f MiB moved, %.0f MiB "
        "returned, %.1f ms\n",
        (double)r.reserved_before / MIB, (double)r.reserved_after / MIB,
        (unsigned long long)r.moved_blocks, (double)r.moved_bytes / MIB,
        (double)r.returned_bytes / MIB, (double)r.ns / 1e6);
    for (int i = 1; i < MANY; i += 2) {
        uint8_t byte = 0;
        check(cen_movable_pin(pool, blocks[i], 0, &at), "pin");
        check(cen_copy_async(device, (cen_addr)&byte, (cen_addr)at + 63, 1, 0), "copy");
        check(cen_stream_sync(device, 0), "sync");
        check(byte == i ? CEN_OK : CEN_ERR_CORRUPT, "a moved block's contents");
        check(cen_movable_unpin(pool, blocks[i], 0), "unpin");
        check(cen_movable_free(pool, blocks[i], 0), "free");
    }
}

int main(int argc, char **argv) {
    cen_device *devices[2];
    cen_global *global;
    cen_device_props props;
    cen_log_set(print_log, NULL, CEN_LOG_ERROR);
    for (int i = 0; i < 2; i++) {
        const char *const host[] = {"host:0", "host:1"};
        check(cen_device_open(argc > 2 ? argv[1 + i] : host[i], &devices[i]), "device");
    }
    check(cen_device_get_props(devices[0], &props), "props");
    check(cen_global_create(devices, 2, NULL, &global), "global");

    print_rooms(global, "at the start");
    share_a_tensor(devices, global, props.total_bytes / 2 * 3);
    borrow(global, props.total_bytes);
    defragment(devices[0], global);
    print_rooms(global, "at the end");

    check(cen_global_destroy(global), "destroy");
    cen_device_close(devices[0]);
    cen_device_close(devices[1]);
    return 0;
}
