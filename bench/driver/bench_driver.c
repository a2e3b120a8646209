/* What the driver's calls cost, on an idle device and beside a running kernel: the figures that the
 * design and the cost model of `cenote replay` rest on.
 *
 * usage: bench_driver [DEVICE]   ("cuda:0" where there is a GPU, else "host")
 * Prints {"name", "figures", "calls"}: figures compare backing memory page by page with one plain
 * allocation; calls are the single calls, in microseconds. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "cenote/log.h"
#include "dev/dev.h"

enum { ROUNDS = 15, STITCH_ROUNDS = 3, STITCHED = 512, SPIN_MS = 400 };

/* The calls of one round, in order. */
#define CALLS(X) X(reserve) X(create) X(map) X(access) X(remap) X(unmap) X(release) X(free)

enum call {
#define CALL_ENUM(name) CALL_##name,
    CALLS(CALL_ENUM)
#undef CALL_ENUM
        CALL_COUNT
};

static const char *const call_names[] = {
#define CALL_NAME(name) #name,
    CALLS(CALL_NAME)
#undef CALL_NAME
};

static cen_device *device;
static const char *separator = "";

static void need(cen_status status, const char *what) {
    if (status) {
        fprintf(stderr, "bench_driver: %s: %s\n", what, cen_status_text(status));
        exit(1);
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    fprintf(stderr, "bench_driver: %s\n", message);
}

/* Microseconds since *start, which becomes now. */
static double lap(uint64_t *start) {
    uint64_t before = *start;
    *start = bench_now();
    return (double)(*start - before) / 1000;
}

/* Starts a kernel that keeps one multiprocessor busy; false where none can be launched. */
static bool spin(cen_stream stream) {
    uint64_t ns = SPIN_MS * UINT64_C(1000000);
    void *args[] = {&ns};
    cen_launch shape = {{1, 1, 1}, {1, 1, 1}, 0};
    return cen_kernel_launch(device, "cen_spin", &shape, args, 1, stream) == CEN_OK;
}

/* `count` pages of `size` in one range; times[call] of this round, each for all pages together. */
static void round_of(uint64_t size, size_t count, double times[CALL_COUNT]) {
    static ceni_page pages[STITCHED];
    ceni_grant grant = {device, CENI_ACCESS_READ_WRITE};
    uint64_t bytes = size * count;
    cen_addr range = 0;
    uint64_t clock = bench_now();
    need(ceni_dev_va_reserve(device, bytes * 2, 0, &range), "reserving");
    times[CALL_reserve] = lap(&clock);
    for (size_t i = 0; i < count; i++) {
        need(ceni_dev_page_create(device, size, 0, &pages[i]), "creating");
    }
    times[CALL_create] = lap(&clock);
    for (size_t i = 0; i < count; i++) {
        need(ceni_dev_page_map(device, range + i * size, size, pages[i]), "mapping");
    }
    times[CALL_map] = lap(&clock);
    need(ceni_dev_page_access(device, range, bytes, count, &grant, 1), "access");
    times[CALL_access] = lap(&clock);
    need(ceni_dev_page_unmap(device, range, bytes, count), "unmapping");
    for (size_t i = 0; i < count; i++) {
        need(ceni_dev_page_map(device, range + bytes + i * size, size, pages[i]), "remapping");
    }
    need(ceni_dev_page_access(device, range + bytes, bytes, count, &grant, 1), "access");
    times[CALL_remap] = lap(&clock);
    need(ceni_dev_page_unmap(device, range + bytes, bytes, count), "unmapping");
    times[CALL_unmap] = lap(&clock);
    for (size_t i = 0; i < count; i++) {
        need(ceni_dev_page_release(device, pages[i]), "releasing");
    }
    times[CALL_release] = lap(&clock);
    need(ceni_dev_va_free(device, range, bytes * 2), "freeing addresses");
    times[CALL_free] = lap(&clock);
}

/* Runs the rounds and prints a line for each call; *whole is the time of a round without remap. */
static void measure(uint64_t size, size_t count, int rounds, const char *load,
                    bench_measure *whole) {
    double times[CALL_COUNT], samples[CALL_COUNT][ROUNDS], sums[ROUNDS];
    round_of(size, count, times); /* warms up */
    for (int i = 0; i < rounds; i++) {
        round_of(size, count, times);
        sums[i] = 0;
        for (int call = 0; call < CALL_COUNT; call++) {
            samples[call][i] = times[call];
            sums[i] += call == CALL_remap ? 0 : times[call];
        }
    }
    for (int call = 0; call < CALL_COUNT; call++) {
        char what[128];
        snprintf(what, sizeof what, "%s, %zu x %" PRIu64 " MiB, %s", call_names[call], count,
                 size >> 20, load);
        printf("%s\n  ", separator);
        bench_figure(stdout, what, "us", bench_measure_of(samples[call], (size_t)rounds));
        printf("}");
        separator = ",";
    }
    *whole = bench_measure_of(sums, (size_t)rounds);
}

static bench_measure measure_segment(uint64_t size) {
    double samples[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) {
        cen_addr addr = 0;
        uint64_t clock = bench_now();
        need(ceni_dev_segment_alloc(device, size, &addr), "allocating a segment");
        need(ceni_dev_segment_free(device, addr), "freeing a segment");
        if (i >= 0) {
            samples[i] = lap(&clock);
        }
    }
    return bench_measure_of(samples, ROUNDS);
}

static void measure_busy(uint64_t size, cen_stream stream) {
    bench_measure whole;
    if (!spin(stream)) {
        return;
    }
    measure(size, 1, ROUNDS, "beside a kernel", &whole);
    if (cen_stream_query(device, stream) != CEN_ERR_NOT_READY) {
        fprintf(stderr, "bench_driver: the kernel ended before the last call: %" PRIu64 " MiB\n",
                size >> 20);
    }
    need(cen_stream_sync(device, stream), "waiting for the kernel");
}

int main(int argc, char **argv) {
    static const uint64_t sizes[] = {2 << 20, 32 << 20, 256 << 20, 1 << 30};
    static const size_t stitched[] = {8, 64, STITCHED};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    bench_measure paged[SIZES], plain[SIZES], whole;
    cen_stream stream = 0;
    int gpus = 0;
    cen_log_set(print_log, NULL, CEN_LOG_ERROR);
    need(cen_device_count("cuda", &gpus), "counting GPUs");
    need(cen_device_open(argc > 1 ? argv[1] : gpus ? "cuda:0" : "host", &device), "opening");
    if (!device->vmm) {
        fprintf(stderr, "bench_driver: skipped: no virtual memory management\n");
        return 77;
    }
    need(cen_stream_create(device, 0, &stream), "making a stream");
    printf("{\"name\": \"driver\", \"calls\": [");
    for (int i = 0; i < SIZES; i++) {
        measure(sizes[i], 1, ROUNDS, "idle", &paged[i]);
        plain[i] = measure_segment(sizes[i]);
        measure_busy(sizes[i], stream);
    }
    for (size_t i = 0; i < sizeof stitched / sizeof *stitched; i++) {
        measure(2 << 20, stitched[i], STITCH_ROUNDS, "idle", &whole);
    }
    printf("\n], \"figures\": [");
    for (int i = 0; i < SIZES; i++) {
        char what[128];
        snprintf(what, sizeof what, "reserve, back, unmap and release %" PRIu64 " MiB, one page",
                 sizes[i] >> 20);
        printf("%s\n  ", i ? "," : "");
        bench_figure(stdout, what, "us", paged[i]);
        bench_peer(stdout, "plain allocation and free", plain[i]);
        printf("}");
    }
    printf("\n]}\n");
    need(cen_stream_destroy(device, stream), "destroying the stream");
    cen_device_close(device);
    return 0;
}
