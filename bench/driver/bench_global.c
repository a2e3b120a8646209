/* What a block of 1 GiB of the global pool costs and gives, by placement: driver time of an
 * allocation and its free, and the bandwidth of one device's kernels on it, at their first use and
 * later, beside a local block and beside the sum of what memory and link allow.
 *
 * usage: bench_global   CENOTE_BENCH_DEVICE: "cuda:0" for cuda:0 and cuda:1 (skipped with fewer),
 * else two host devices with inline streams. */
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "cenote/cenote.h"
#include "dev/dev.h"

#define GIB  ((size_t)1 << 30)
#define RUNS 9 /* on a GPU; a third of them on the host, whose memory is slow to give back */

static cen_device *devices[2];
static cen_global *global; /* keeps nothing */
static cen_global *keeping;
static bool on_gpu;
static int runs = RUNS;
static uint64_t *mismatches; /* pinned */
static const char *separator = "";

static void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench_global: %s failed\n", what);
        exit(1);
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    fprintf(stderr, "bench_global: %s\n", message);
}

typedef struct result {
    bench_measure alloc, again, release; /* us */
    bench_measure first, write, read;    /* GB/s */
} result;

static void launch(const char *name, uint64_t addr, uint32_t seed, size_t bytes, bool check) {
    uint64_t words = bytes / 4, counter = (uintptr_t)mismatches;
    void *args[] = {&addr, &seed, &words, &counter};
    cen_launch shape = {{on_gpu ? 132 * 16 : 1, 1, 1}, {on_gpu ? 512 : 1, 1, 1}, 0};
    need(!cen_kernel_launch(devices[0], name, &shape, args, check ? 4 : 3, 0), name);
}

/* GB/s of one kernel over the block. */
static double rate(const char *name, void *block, uint32_t seed, size_t bytes, bool check) {
    static cen_event start, end;
    float ms = 0;
    if (!start) {
        need(!cen_event_create(devices[0], CEN_EVENT_TIMING, &start) &&
                 !cen_event_create(devices[0], CEN_EVENT_TIMING, &end),
             "making events");
    }
    need(!cen_event_record(devices[0], start, 0), "recording");
    launch(name, (uintptr_t)block, seed, bytes, check);
    need(!cen_event_record(devices[0], end, 0) && !cen_event_sync(devices[0], end) &&
             !cen_event_elapsed(devices[0], start, end, &ms),
         "timing");
    return (double)bytes / ((double)ms * 1e6);
}

static double us_since(uint64_t start) {
    return (double)(bench_now() - start) / 1000;
}

/* Back to the driver, or kept, when this returns. */
static void give_back(cen_global *to, void *block) {
    cen_global_room room;
    need(!cen_global_free(to, block, 0, 0), "freeing");
    need(!cen_stream_sync(devices[0], 0), "waiting");
    need(!cen_global_available(to, CEN_GLOBAL_ALL, &room) && !room.global_bytes, "returning");
}

/* One that was kept: the us of its allocation. */
static double take_again(const cen_global_request *request, size_t bytes) {
    void *block;
    uint64_t start = bench_now();
    need(!cen_global_alloc(keeping, bytes, 0, request, &block, NULL), "allocating");
    double us = us_since(start);
    give_back(keeping, block);
    return us;
}

static result measure(const cen_global_request *request, size_t bytes) {
    double alloc[RUNS], again[RUNS], release[RUNS], first[RUNS], write[RUNS], read[RUNS];
    for (int i = 0; i < runs; i++) {
        void *block;
        uint64_t start = bench_now();
        need(!cen_global_alloc(global, bytes, 0, request, &block, NULL), "allocating");
        alloc[i] = us_since(start);
        first[i] = rate("cen_pattern_u32", block, (uint32_t)i + 1, bytes, false);
        write[i] = rate("cen_pattern_u32", block, (uint32_t)i + 2, bytes, false);
        read[i] = rate("cen_check_u32", block, (uint32_t)i + 2, bytes, true);
        need(!*mismatches, "reading back what was written");
        start = bench_now();
        give_back(global, block);
        release[i] = us_since(start);
    }
    (void)take_again(request, bytes);
    for (int i = 0; i < runs; i++) {
        again[i] = take_again(request, bytes);
    }
    need(!cen_global_defragment(keeping, NULL, NULL), "returning what was kept");
    return (result){bench_measure_of(alloc, (size_t)runs),   bench_measure_of(again, (size_t)runs),
                    bench_measure_of(release, (size_t)runs), bench_measure_of(first, (size_t)runs),
                    bench_measure_of(write, (size_t)runs),   bench_measure_of(read, (size_t)runs)};
}

/* The driver's plain allocation and free of memory that was used, in us. */
static bench_measure plain(size_t bytes, bench_measure *read) {
    double us[RUNS], gb[RUNS];
    for (int i = 0; i < runs; i++) {
        cen_addr addr;
        uint64_t start = bench_now();
        need(!ceni_dev_segment_alloc(devices[0], bytes, &addr), "a plain allocation");
        us[i] = us_since(start);
        (void)rate("cen_pattern_u32", (void *)(uintptr_t)addr, 1, bytes, false);
        gb[i] = rate("cen_check_u32", (void *)(uintptr_t)addr, 1, bytes, true);
        start = bench_now();
        need(!ceni_dev_segment_free(devices[0], addr), "a plain free");
        us[i] += us_since(start);
    }
    *read = bench_measure_of(gb, (size_t)runs);
    return bench_measure_of(us, (size_t)runs);
}

/* GB/s of the copy engine from the peer to this device. */
static bench_measure copies(void) {
    const cen_global_request here = {.size = sizeof here, .placement = CEN_PLACE_LOCAL},
                             there = {.size = sizeof there, .placement = CEN_PLACE_PEER};
    void *to, *from;
    double gb[RUNS];
    need(!cen_global_alloc(global, GIB, 0, &here, &to, NULL) &&
             !cen_global_alloc(global, GIB, 0, &there, &from, NULL),
         "allocating");
    for (int i = 0; i < runs; i++) {
        uint64_t start = bench_now();
        need(!cen_copy_async(devices[0], (uintptr_t)to, (uintptr_t)from, GIB, 0) &&
                 !cen_stream_sync(devices[0], 0),
             "copying");
        gb[i] = (double)GIB / (us_since(start) * 1000);
    }
    need(!cen_global_free(global, from, 0, 0), "freeing");
    give_back(global, to);
    return bench_measure_of(gb, (size_t)runs);
}

static void print(const char *what, const char *unit, bench_measure m, const char *peer_name,
                  bench_measure peer, double bound, const char *reason) {
    printf("%s\n  ", separator);
    separator = ",";
    bench_figure(stdout, what, unit, m);
    bench_peer(stdout, peer_name, peer);
    if (bound > 0) {
        printf(", \"floor\": %.4g, \"floor_reason\": \"%s\"", bound, reason);
    }
    printf("}");
}

typedef struct placed {
    const char *name;
    cen_global_request request;
} placed;

static void compare(const placed *p, const result *local, double bound, const char *reason) {
    result r = measure(&p->request, GIB);
    char what[96];
    const struct {
        const char *text, *unit;
        bench_measure own, beside;
        double bound;
    } rows[] = {
        {"alloc", "us", r.alloc, local->alloc, 0},
        {"alloc again", "us", r.again, local->again, 0},
        {"free", "us", r.release, local->release, 0},
        {"first write", "GB/s", r.first, local->first, bound},
        {"write", "GB/s", r.write, local->write, bound},
        {"read", "GB/s", r.read, local->read, bound},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(what, sizeof what, "1 GiB %s, %s", p->name, rows[i].text);
        print(what, rows[i].unit, rows[i].own, "the same, local", rows[i].beside, rows[i].bound,
              reason);
    }
}

static void run(void) {
    const placed local = {"local", {.size = sizeof local.request, .placement = CEN_PLACE_LOCAL}};
    result own = measure(&local.request, GIB);
    bench_measure link = copies(), plain_read, driver = plain(GIB, &plain_read), both = own.alloc;
    both.median += own.release.median;
    both.lowest += own.release.lowest;
    both.highest += own.release.highest;
    print("1 GiB local, alloc + free", "us", both, "the driver's plain alloc + free", driver, 0,
          NULL);
    print("1 GiB local, alloc again", "us", own.again, "the driver's plain alloc + free", driver, 0,
          NULL);
    print("1 GiB local, read", "GB/s", own.read, "read of a plain allocation", plain_read, 0, NULL);
    double memory = own.read.median, wire = link.median;
    double weights[2] = {memory, wire};
    const placed all[] = {
        {"on the peer", {.size = sizeof all->request, .placement = CEN_PLACE_PEER}},
        {"in halves", {.size = sizeof all->request, .placement = CEN_PLACE_SPLIT}},
        {"in 16 MiB stripes", {.size = sizeof all->request, .placement = CEN_PLACE_STRIPED}},
        {"in stripes weighted by rate",
         {.size = sizeof all->request, .placement = CEN_PLACE_STRIPED, .weights = weights}},
        {"weighted by rate",
         {.size = sizeof all->request, .placement = CEN_PLACE_WEIGHTED, .weights = weights}},
    };
    compare(&all[0], &own, wire, "the copy engine's rate over the link");
    for (size_t i = 1; i < sizeof all / sizeof *all; i++) {
        compare(&all[i], &own, memory + wire, "memory and link together");
    }
}

static const char *open_devices(const char *name) {
    int count = 0;
    on_gpu = !strncmp(name, "cuda", 4);
    runs = on_gpu ? RUNS : RUNS / 3;
    if (on_gpu && (cen_device_count("cuda", &count) || count < 2)) {
        return "there are not two GPUs";
    }
    for (int i = 0; i < 2; i++) {
        const char *gpus[] = {"cuda:0", "cuda:1"};
        cen_host_options host = {.size = sizeof host, .inline_streams = true};
        if (on_gpu ? cen_device_open(gpus[i], &devices[i])
                   : cen_device_open_host(i, &host, &devices[i])) {
            return "no such device";
        }
    }
    return NULL;
}

int main(void) {
    const char *name = getenv("CENOTE_BENCH_DEVICE");
    int gpus = 0;
    void *pinned;
    cen_log_set(print_log, NULL, CEN_LOG_WARN);
    need(!cen_device_count("cuda", &gpus), "counting GPUs");
    const char *why = open_devices(name ? name : gpus > 1 ? "cuda" : "host");
    if (why) {
        fprintf(stderr, "bench_global: skipped: %s\n", why);
        return 77;
    }
    need(!cen_pinned_alloc(devices[0], sizeof *mismatches, &pinned), "pinning");
    mismatches = pinned;
    *mismatches = 0;
    const cen_global_options options = {.size = sizeof options, .return_at_once = true};
    need(!cen_global_create(devices, 2, &options, &global) &&
             !cen_global_create(devices, 2, NULL, &keeping),
         "creating global pools");
    printf("{\"name\": \"global\", \"figures\": [");
    run();
    printf("\n]}\n");
    need(!cen_global_verify(global) && !cen_global_destroy(global), "ending");
    need(!cen_global_verify(keeping) && !cen_global_destroy(keeping), "ending");
    cen_device_close(devices[0]);
    cen_device_close(devices[1]);
    return 0;
}
