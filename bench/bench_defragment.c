/* How fast a pool moves blocks together, beside plain copies of the device in the same run.
 *
 * usage: bench_defragment   CENOTE_BENCH_DEVICE: "cuda:0" where there is a GPU, else "host".
 *
 * Half of the pages lose a quarter of their blocks, the others all but a quarter. Compaction moves
 * what the latter have into the holes of the former, and leaves their pages side by side, so that
 * nothing else is to do. The time is that of the whole call: looking, planning, ordering streams,
 * copying and waiting for the copies. Contents are checked after every run. */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "cenote/cenote.h"

enum { RUNS = 5, MARKS = 2 };

#define MIB ((uint64_t)1 << 20)

static cen_device *device;
static cen_stream stream;
static bool on_gpu;
static uint64_t total, page; /* of a pool, and of each of its pages */
static const char *separator = "";

static void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench_defragment: %s failed\n", what);
        exit(1);
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    fprintf(stderr, "bench_defragment: %s\n", message);
}

/* Gigabytes copied in a second, so many at a time, one copy behind the other. A byte that is read
 * and written counts once. */
static bench_measure copy_rate(uint64_t bytes) {
    const uint64_t copies = total / 2 / bytes > 4 ? total / 2 / bytes : 4;
    double samples[RUNS];
    cen_pool *pool;
    void *from, *to;
    need(!cen_pool_create(device, NULL, &pool), "creating a pool");
    need(!cen_pool_alloc(pool, bytes, stream, &from) && !cen_pool_alloc(pool, bytes, stream, &to),
         "allocating");
    for (int run = -1; run < RUNS; run++) { /* the first one touches the memory */
        uint64_t start = bench_now();
        for (uint64_t i = 0; i < copies; i++) {
            need(!cen_copy_async(device, (cen_addr)(uintptr_t)to, (cen_addr)(uintptr_t)from, bytes,
                                 stream),
                 "copying");
        }
        need(!cen_stream_sync(device, stream), "waiting for copies");
        if (run >= 0) {
            samples[run] = (double)bytes * (double)copies / (double)(bench_now() - start);
        }
    }
    need(!cen_pool_free(pool, from, stream) && !cen_pool_free(pool, to, stream), "freeing");
    need(!cen_pool_destroy(pool), "destroying the pool");
    return bench_measure_of(samples, RUNS);
}

typedef struct herd {
    cen_movable *blocks;
    size_t count, per_page;
    uint64_t size;
} herd;

/* The first and the last bytes of a block hold its number. */
static void mark(cen_pool *pool, const herd *h, size_t i, bool check) {
    void *at;
    uint64_t number = i + 1, seen[MARKS] = {0};
    need(!cen_movable_pin(pool, h->blocks[i], stream, &at), "pinning");
    for (int k = 0; k < MARKS; k++) {
        cen_addr there = (cen_addr)(uintptr_t)at + (k ? h->size - sizeof number : 0);
        cen_addr here = (cen_addr)(uintptr_t)(check ? &seen[k] : &number);
        need(!cen_copy_async(device, check ? here : there, check ? there : here, sizeof number,
                             stream),
             "copying a mark");
    }
    need(!cen_movable_unpin(pool, h->blocks[i], stream), "unpinning");
    need(!cen_stream_sync(device, stream), "waiting for marks");
    need(!check || (seen[0] == number && seen[1] == number), "the contents of a moved block");
}

/* Whether a block stays: a quarter of each page in one half, three quarters in the other; those
 * that stay or go lie side by side, or apart from each other. */
static bool stays(const herd *h, size_t i, bool apart) {
    bool full = i < h->count / 2;
    bool quarter = apart ? i % 4 == 0 : i % h->per_page < h->per_page / 4;
    return quarter != full;
}

/* Gigabytes moved in a second, by one compaction of a pool made for it. */
static double compact(uint64_t size, bool apart) {
    cen_pool_options options = {.size = sizeof options, .page_bytes = page};
    cen_defragment_options all = {
        .size = sizeof all, .keep_bytes = UINT64_MAX, .compact = true, .wait = true};
    cen_defragment_report r;
    cen_pool *pool;
    need(!cen_pool_create(device, &options, &pool), "creating a pool");
    need(!cen_pool_preallocate(pool, total), "preallocating");
    herd h = {.count = total / size, .per_page = page / size, .size = size};
    need((h.blocks = calloc(h.count, sizeof *h.blocks)) != NULL, "memory");
    for (size_t i = 0; i < h.count; i++) {
        void *at;
        need(!cen_movable_alloc(pool, size, stream, &h.blocks[i]), "allocating");
        need(!cen_movable_pin(pool, h.blocks[i], stream, &at), "pinning");
        need(!cen_fill_async(device, (cen_addr)(uintptr_t)at, 0, size, stream), "filling");
        need(!cen_movable_unpin(pool, h.blocks[i], stream), "unpinning");
    }
    for (size_t i = 0; i < h.count; i++) {
        if (stays(&h, i, apart)) {
            mark(pool, &h, i, false);
        } else {
            need(!cen_movable_free(pool, h.blocks[i], stream), "freeing");
        }
    }
    need(!cen_pool_defragment(pool, &all, &r), "defragmenting");
    need(!cen_pool_verify(pool), "checking the pool");
    need(r.moved_bytes == total / 8 && !r.regrouped_bytes, "moving all, and only that");
    need(r.largest_after >= total / 2, "one free half");
    for (size_t i = 0; i < h.count; i++) {
        if (stays(&h, i, apart)) {
            mark(pool, &h, i, true);
            need(!cen_movable_free(pool, h.blocks[i], stream), "freeing");
        }
    }
    free(h.blocks);
    need(!cen_pool_destroy(pool), "destroying the pool");
    return (double)r.moved_bytes / (double)r.ns;
}

/* Beside copies of what lies side by side, and of half of the memory at a time. */
static void measure(uint64_t size, bool apart, bench_measure large) {
    double samples[RUNS];
    bench_measure alike = copy_rate(apart ? size : page / 4);
    char what[96];
    for (int run = 0; run < RUNS; run++) {
        samples[run] = compact(size, apart);
    }
    snprintf(what, sizeof what, "compaction, blocks of %llu MiB %s",
             (unsigned long long)(size / MIB), apart ? "apart" : "side by side");
    printf("%s\n  ", separator);
    separator = ",";
    bench_figure(stdout, what, "GB/s", bench_measure_of(samples, RUNS));
    bench_peer(stdout, "plain copies, as much at a time", alike);
    printf(", \"also\": [{\"name\": \"plain copies, %llu MiB at a time\", \"median\": %.6g, "
           "\"spread\": [%.6g, %.6g]}], \"target\": %.4g}",
           (unsigned long long)(total / 2 / MIB), large.median, large.lowest, large.highest,
           0.9 * alike.median);
}

static bool open_device(const char *name) {
    cen_host_options host = {.size = sizeof host, .inline_streams = true};
    uint64_t free_bytes, all_bytes;
    if (on_gpu ? cen_device_open(name, &device) : cen_device_open_host(0, &host, &device)) {
        return false;
    }
    need(!cen_stream_create(device, 0, &stream), "making a stream");
    need(!cen_device_mem_info(device, &free_bytes, &all_bytes), "asking for memory");
    page = (on_gpu ? 128 : 64) * MIB;
    total = on_gpu ? 32768 * MIB : 512 * MIB;
    while (total > free_bytes / 2) {
        total /= 2;
    }
    return true;
}

int main(void) {
    const char *name = getenv("CENOTE_BENCH_DEVICE");
    int gpus = 0;
    cen_log_set(print_log, NULL, CEN_LOG_WARN);
    need(!cen_device_count("cuda", &gpus), "counting GPUs");
    name = name ? name : gpus ? "cuda:0" : "host";
    on_gpu = !strncmp(name, "cuda", 4);
    if (!open_device(name)) {
        fprintf(stderr, "bench_defragment: skipped: no such device\n");
        return 77;
    }
    bench_measure large = copy_rate(total / 2);
    printf("{\"name\": \"defragment\", \"figures\": [");
    measure(page / 8, false, large);
    measure(page / 8, true, large);
    measure(page / 32, false, large);
    measure(page / 32, true, large);
    printf("\n]}\n");
    need(!cen_stream_destroy(device, stream), "destroying the stream");
    cen_device_close(device);
    return 0;
}
