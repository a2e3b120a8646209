/* Memory for two streams from one pool: a block that a second stream reads, and a request that
 * cannot be served, with its report. Runs on any Linux machine; "cuda:0" as argument: on a GPU. */
#include <stdio.h>
#include <stdlib.h>

#include "cenote/cenote.h"

#define MIB ((size_t)1 << 20)

static void check(cen_status status, const char *what) {
    if (status) {
        fprintf(stderr, "%s: %s\n", what, cen_status_text(status));
        exit(1);
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    printf("log: %s\n", message);
}

/* `compute` writes a block and `copy` reads it, which the pool has to know: freed on `compute`, it
 * goes to no one before `copy` has read it. */
static void share_between_streams(cen_device *device, cen_pool *pool, cen_stream compute,
                                  cen_stream copy) {
    void *block, *target, *next;
    cen_event written;
    check(cen_event_create(device, 0, &written), "event");
    check(cen_pool_alloc(pool, 24 * MIB, compute, &block), "alloc");
    check(cen_pool_alloc(pool, 24 * MIB, copy, &target), "alloc");

    check(cen_fill_async(device, (cen_addr)block, 7, 24 * MIB, compute), "fill");
    check(cen_event_record(device, written, compute), "record");
    check(cen_stream_wait(device, copy, written), "wait");
    check(cen_copy_async(device, (cen_addr)target, (cen_addr)block, 24 * MIB, copy), "copy");
    check(cen_pool_use(pool, block, copy), "use");
    check(cen_pool_free(pool, block, compute), "free");

    /* Safe at once: whatever memory this is, `copy` no longer reads it when the fill runs. */
    check(cen_pool_alloc(pool, 24 * MIB, compute, &next), "alloc");
    check(cen_fill_async(device, (cen_addr)next, 9, 24 * MIB, compute), "fill");

    uint8_t first = 0;
    check(cen_copy_async(device, (cen_addr)&first, (cen_addr)target, 1, copy), "copy");
    check(cen_stream_sync(device, copy), "sync");
    printf("copied: %d\n", first);
    check(cen_pool_free(pool, next, compute), "free");
    check(cen_pool_free(pool, target, copy), "free");
    check(cen_event_destroy(device, written), "event");
}

/* Why a request failed: the sums, also in the log. */
static void fail_with_a_report(cen_pool *pool, cen_stream stream) {
    void *kept, *block;
    cen_pool_failure why;
    check(cen_pool_alloc(pool, 40 * MIB, stream, &kept), "alloc");
    cen_status status = cen_pool_alloc(pool, 30 * MIB, stream, &block);
    if (status != CEN_ERR_DEVICE_MEMORY) {
        fprintf(stderr, "64 MiB held 70: %s\n", cen_status_text(status));
        exit(1);
    }
    check(cen_pool_last_failure(pool, &why), "last failure");
    printf("no room: %.0f MiB live + %.0f requested, limit %.0f\n", (double)why.live_bytes / MIB,
           (double)why.requested_bytes / MIB, (double)why.limit_bytes / MIB);
    check(cen_pool_free(pool, kept, stream), "free");
}

int main(int argc, char **argv) {
    cen_device *device;
    cen_pool *pool;
    cen_stream compute, copy;
    cen_pool_stats stats;
    const cen_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
    cen_log_set(print_log, NULL, CEN_LOG_ERROR);
    check(cen_device_open(argc > 1 ? argv[1] : "host:0", &device), "device");
    check(cen_stream_create(device, 0, &compute), "stream");
    check(cen_stream_create(device, 0, &copy), "stream");
    check(cen_pool_create(device, &options, &pool), "pool");

    share_between_streams(device, pool, compute, copy);
    fail_with_a_report(pool, compute);

    check(cen_pool_get_stats(pool, &stats), "stats");
    printf("peaks: %.0f MiB requested, %.0f reserved\n", (double)stats.requested_peak_bytes / MIB,
           (double)stats.reserved_peak_bytes / MIB);
    check(cen_pool_destroy(pool), "destroy");
    cen_device_close(device);
    return 0;
}
