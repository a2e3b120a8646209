/* What counting a tensor for calibration takes, in bytes read a second, beside reading the same
 * memory and doing nothing with it: a billion values on a GPU, fewer on the host, in one pass; on
 * the host with one core. And AdamW with moments of 8 bits, beside a copy of as many bytes.
 *
 * usage: bench_calibrate   CENOTE_BENCH_DEVICE: "cuda:0" where there is a GPU, else "host". */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "cenote/cenote.h"

enum { ROUNDS = 9 };

static cen_device *device;
static cen_pool *pool;
static bool on_gpu;
static const char *separator = "";

static void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench_calibrate: %s failed\n", what);
        exit(1);
    }
}

static cen_addr room(size_t bytes) {
    void *block = NULL;
    need(!cen_pool_alloc(pool, bytes, 0, &block), "allocating");
    return (cen_addr)(uintptr_t)block;
}

static double processor_seconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

static cen_event first, last;
static double started;

/* Seconds of what is between these two: on a GPU by its own events, on the host the processor's,
 * so that another program costs less of the figures. */
static void start(void) {
    need(!cen_stream_sync(device, 0), "waiting");
    started = processor_seconds();
    need(!on_gpu || !cen_event_record(device, first, 0), "recording an event");
}

static double seconds(void) {
    float ms = 0;
    if (!on_gpu) {
        need(!cen_stream_sync(device, 0), "waiting");
        return processor_seconds() - started;
    }
    need(!cen_event_record(device, last, 0) && !cen_event_sync(device, last) &&
             !cen_event_elapsed(device, first, last, &ms),
         "timing");
    return (double)ms * 1e-3;
}

/* ---- the batch ---- */

static uint64_t count;
static cen_addr values, state, words;

/* A million normally distributed values, again and again: as BF16 their upper halves. */
static void fill(cen_dtype dtype) {
    enum { PIECE = 1 << 20 };
    static uint8_t piece[PIECE * 4];
    uint64_t random = 88172645463325252u, width = cen_dtype_bits(dtype) / 8;
    for (size_t i = 0; i < PIECE; i++) {
        float sum = -6;
        for (int k = 0; k < 12; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(random >> 40) * 0x1p-24f;
        }
        memcpy(piece + i * width, (uint8_t *)&sum + (4 - width), width);
    }
    for (uint64_t at = 0; at < count; at += PIECE) {
        need(!cen_copy_async(device, values + at * width, (cen_addr)(uintptr_t)piece, PIECE * width,
                             0),
             "filling");
    }
    need(!cen_stream_sync(device, 0), "waiting");
}

static double read_only(uint64_t bytes) {
    uint64_t rounds = 1;
    void *args[] = {&values, &bytes, &rounds, &words};
    cen_device_props props;
    need(!cen_device_get_props(device, &props), "asking the device");
    const cen_launch shape = {{props.multiprocessors * 8, 1, 1}, {512, 1, 1}, 0};
    start();
    need(!cen_kernel_launch(device, "cen_read", &shape, args, 4, 0), "reading");
    return (double)bytes / seconds() * 1e-9;
}

static double calibrate(cen_calibration *c, const cen_matrix *batch, uint64_t bytes) {
    need(!cen_calibration_clear_async(device, c, state, 0), "clearing");
    start();
    need(!cen_calibration_add_async(device, c, state, batch, 0), "calibrating");
    return (double)bytes / seconds() * 1e-9;
}

static void figure(const char *what, double *samples, const char *peer, double *peers,
                   double target) {
    printf("%s\n  ", separator);
    separator = ",";
    bench_figure(stdout, what, "GB/s", bench_measure_of(samples, ROUNDS));
    bench_measure of_peer = bench_measure_of(peers, ROUNDS);
    bench_peer(stdout, peer, of_peer);
    printf(", \"target\": %.1f}", target * of_peer.median);
}

static void measure(const char *what, cen_dtype dtype, cen_channels axis) {
    uint64_t cols = 4096, rows = count / cols, bytes = count * cen_dtype_bits(dtype) / 8;
    cen_matrix batch = {values, rows, cols, cols, dtype};
    cen_calibration *c;
    cen_calibration_stats stats;
    uint64_t channels = axis == CEN_CHANNELS_ROWS ? rows : axis ? cols : 0;
    double counted[ROUNDS], only[ROUNDS];
    need(!cen_calibration_create(axis, channels, &c), "making a calibration");
    for (int i = -1; i < ROUNDS; i++) { /* the first is not counted */
        counted[i < 0 ? 0 : i] = calibrate(c, &batch, bytes);
        only[i < 0 ? 0 : i] = read_only(bytes);
    }
    need(!cen_calibration_collect(device, c, state, 0), "collecting");
    need(!cen_calibration_get_stats(c, &stats) && stats.count == count, "counting all");
    cen_calibration_free(c);
    figure(what, counted, "reading the same", only, 0.85);
}

/* ---- AdamW ---- */

static void measure_adamw(void) {
    const cen_adamw_options options = {.rate = 1e-3};
    uint64_t n = count / 8, moments_bytes, bytes = n * (4 + 4 + 4 + 2 + 2); /* read and written */
    double stepped[ROUNDS], copied[ROUNDS];
    need(!cen_adamw_bytes(n, &moments_bytes), "asking for sizes");
    cen_addr gradient = values + n * 4, moments = room(moments_bytes), clock = room(1024);
    cen_adamw_tensor t = {{values, 1, n, n, CEN_FP32}, {gradient, 1, n, n, CEN_FP32}, {0}, moments};
    need(!cen_fill_async(device, moments, 0, moments_bytes, 0), "clearing");
    need(!cen_fill_async(device, clock, 0, 1024, 0), "clearing");
    for (int i = -1; i < ROUNDS; i++) {
        int k = i < 0 ? 0 : i;
        start();
        need(!cen_adamw_begin_async(device, &options, clock, 0, false, 0), "beginning a step");
        need(!cen_adamw_step_async(device, &options, clock, &t, 0), "stepping");
        stepped[k] = (double)bytes / seconds() * 1e-9;
        uint64_t source = gradient, to = values, length = n * 4, rounds = 1;
        void *args[] = {&to, &source, &length, &rounds};
        const cen_launch shape = {{1024, 1, 1}, {512, 1, 1}, 0};
        start();
        need(!cen_kernel_launch(device, "cen_copy", &shape, args, 4, 0), "copying");
        copied[k] = 2 * (double)length / seconds() * 1e-9;
    }
    figure("a step of AdamW, moments of 8 bits, FP32 parameters and gradients", stepped,
           "copying FP32", copied, 0.7);
}

int main(void) {
    const char *name = getenv("CENOTE_BENCH_DEVICE");
    int gpus = 0;
    if (!name) {
        name = !cen_device_count("cuda", &gpus) && gpus ? "cuda:0" : "host";
    }
    on_gpu = strncmp(name, "host", 4) != 0;
    count = on_gpu ? (uint64_t)1 << 30 : (uint64_t)1 << 26;
    const cen_host_options options = {.size = sizeof options, .inline_streams = true};
    need(!(on_gpu ? cen_device_open(name, &device) : cen_device_open_host(0, &options, &device)),
         "opening the device");
    need(!cen_pool_create(device, NULL, &pool), "creating a pool");
    need(!on_gpu || (!cen_event_create(device, CEN_EVENT_TIMING, &first) &&
                     !cen_event_create(device, CEN_EVENT_TIMING, &last)),
         "creating events");
    cen_calibration *widest;
    uint64_t bytes;
    need(!cen_calibration_create(CEN_CHANNELS_ROWS, count / 4096, &widest) &&
             !cen_calibration_bytes(widest, &bytes),
         "asking for sizes");
    cen_calibration_free(widest);
    values = room(count * 4);
    state = room(bytes);
    words = room(4096);
    printf("{\"name\": \"calibrate\", \"figures\": [");
    fill(CEN_BF16);
    measure("counting BF16", CEN_BF16, CEN_CHANNELS_NONE);
    measure("counting BF16, channels in rows", CEN_BF16, CEN_CHANNELS_ROWS);
    measure("counting BF16, channels in columns", CEN_BF16, CEN_CHANNELS_COLUMNS);
    fill(CEN_FP32);
    measure("counting FP32", CEN_FP32, CEN_CHANNELS_NONE);
    measure_adamw();
    printf("\n]}\n");
    return 0;
}
