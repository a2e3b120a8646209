/* What recording a trace costs: an event, with and without the C stack; an allocation and its free,
 * recorded, beside the same not recorded; and a program that works between them, as those do that
 * are worth recording.
 *
 * usage: bench_trace   The trace goes into TMPDIR, or /tmp; what the file system costs is in the
 * figures. The pool is one on the host backend, whose streams run inline. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/pattern.h"
#include "cenote/cenote.h"

#define CAPACITY     ((uint64_t)64 << 30)
#define EVENT_TARGET 30.0 /* nanoseconds */

enum { ROUNDS = 41, EVENTS = 8190, STACKS = 819, STEPS = 200, WORK = 4000 };

static cen_device *device;
static cen_pool *pool;
static char path[4096];
static const char *separator = "";

static void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench_trace: %s failed\n", what);
        exit(1);
    }
}

static void record(cen_trace_stacks stacks) {
    cen_trace_options options = {.size = sizeof options, .stacks = stacks};
    need(!cen_trace_start(path, &options), "starting a trace");
}

static void end_recording(void) {
    cen_trace_stats stats;
    need(!cen_trace_stop() && !cen_trace_get_stats(&stats) && !stats.lost, "recording");
}

static void begin_figure(const char *what, const char *unit, bench_measure m) {
    printf("%s\n  ", separator);
    separator = ",";
    bench_figure(stdout, what, unit, m);
}

/* ---- events ---- */

static double ns_an_event(int count) {
    uint64_t start = bench_now();
    for (int i = 0; i < count; i++) {
        cen_trace_alloc(0, 4096 + (cen_addr)i * 512, 512, 0);
    }
    return (double)(bench_now() - start) / count;
}

static bench_measure measure_events(cen_trace_stacks stacks, int count) {
    double samples[ROUNDS];
    record(stacks);
    (void)ns_an_event(count);
    for (int i = 0; i < ROUNDS; i++) {
        samples[i] = ns_an_event(count);
    }
    end_recording();
    return bench_measure_of(samples, ROUNDS);
}

/* What no recording can go below: the time, read after what came before it, and 40 bytes. */
static double ns_of_the_floor(void) {
    static struct { uint64_t word[5]; } buffer[819];
    uint64_t start = bench_now();
    for (int i = 0; i < EVENTS; i++) {
        uint64_t *to = buffer[i % 819].word;
#if defined(__x86_64__)
        __builtin_ia32_lfence();
        to[0] = __builtin_ia32_rdtsc();
#else
        to[0] = bench_now();
#endif
        to[1] = (uint64_t)i * 512;
        to[2] = 512;
        to[3] = to[4] = 0;
        __asm__ volatile("" ::: "memory");
    }
    return (double)(bench_now() - start) / EVENTS;
}

static void events(void) {
    double samples[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        samples[i] = ns_of_the_floor();
    }
    double floor = bench_measure_of(samples, ROUNDS).median;
    begin_figure("an event", "ns", measure_events(CEN_TRACE_NO_STACKS, EVENTS));
    printf(
        ", \"peer\": null, \"floor\": %.2f, \"floor_reason\": \"reading the time, and storing 40 "
        "bytes\", \"target\": %.0f}",
        floor, EVENT_TARGET);
    begin_figure("an event with the C stack", "ns",
                 measure_events(CEN_TRACE_NATIVE_STACKS, STACKS));
    printf(", \"peer\": null, \"floor\": %.2f, \"floor_reason\": \"the same without a stack\"}",
           floor);
}

/* ---- a pool, recorded ---- */

static uint64_t pool_alloc(void *state, size_t size) {
    (void)state;
    void *block = NULL;
    return cen_pool_alloc(pool, size, 0, &block) ? 0 : (uint64_t)(uintptr_t)block;
}

static void pool_release(void *state, uint64_t addr, size_t size) {
    (void)state;
    (void)size;
    (void)cen_pool_free(pool, (void *)(uintptr_t)addr, 0);
}

static const bench_allocator the_pool = {"the pool", NULL, pool_alloc, pool_release, NULL};

static void compare(const char *what, size_t size) {
    bench_measure off, on;
    need(!cen_pool_create(device, NULL, &pool), "creating a pool");
    need(size ? bench_pairs(&the_pool, 1, size, &off) : bench_pattern(&the_pool, 1, &off),
         "allocating");
    record(CEN_TRACE_NO_STACKS);
    need(size ? bench_pairs(&the_pool, 1, size, &on) : bench_pattern(&the_pool, 1, &on),
         "allocating");
    end_recording();
    need(!cen_pool_destroy(pool), "destroying the pool");
    begin_figure(what, "ns", on);
    bench_peer(stdout, "not recorded", off);
    printf("}");
}

/* ---- a program that works ---- */

typedef struct program {
    uint64_t random, addrs[PATTERN_SLOTS], sum;
} program;

/* About ten microseconds of the processor's, as launching a kernel or two takes. */
static void work(program *p) {
    for (int i = 0; i < WORK; i++) {
        p->sum = p->sum * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(p->sum));
    }
}

static double us_a_step(program *p) {
    uint64_t start = bench_now();
    for (int i = 0; i < STEPS; i++) {
        size_t slot = pattern_slot(&p->random), size = pattern_size(&p->random);
        pool_release(NULL, p->addrs[slot], 0);
        work(p);
        p->addrs[slot] = pool_alloc(NULL, size);
        need(p->addrs[slot], "allocating");
    }
    return (double)(bench_now() - start) / STEPS / 1000;
}

static void realistic(void) {
    program p = {.random = PATTERN_SEED};
    double off[ROUNDS], on[ROUNDS], slower[ROUNDS];
    need(!cen_pool_create(device, NULL, &pool), "creating a pool");
    for (size_t i = 0; i < PATTERN_SLOTS; i++) {
        p.addrs[i] = pool_alloc(NULL, pattern_size(&p.random));
    }
    for (int i = 0; i < 50; i++) {
        (void)us_a_step(&p);
    }
    for (int i = 0; i < ROUNDS; i++) { /* in turn, so that both meet the same neighbours */
        off[i] = us_a_step(&p);
        record(CEN_TRACE_NO_STACKS);
        on[i] = us_a_step(&p);
        end_recording();
        slower[i] = 100 * (on[i] / off[i] - 1);
    }
    need(!cen_pool_destroy(pool), "destroying the pool");
    bench_measure ratio = bench_measure_of(slower, ROUNDS);
    begin_figure("mixed pattern with work between, a pair", "us", bench_measure_of(on, ROUNDS));
    bench_peer(stdout, "not recorded", bench_measure_of(off, ROUNDS));
    printf("}");
    fprintf(stderr, "bench_trace: recorded, a program that works is %.2f%% slower (%.2f to %.2f)\n",
            ratio.median, ratio.lowest, ratio.highest);
}

int main(void) {
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/bench_trace_%d", folder ? folder : "/tmp", (int)getpid());
    cen_host_options options = {
        .size = sizeof options, .capacity = CAPACITY, .inline_streams = true};
    need(!cen_device_open_host(0, &options, &device), "opening the host device");
    printf("{\"name\": \"trace\", \"figures\": [");
    events();
    compare("alloc + free, 512 B, recorded", 512);
    compare("alloc + free, 2 MiB, recorded", 2 << 20);
    compare("mixed pattern, a pair, recorded", 0);
    realistic();
    printf("\n]}\n");
    cen_device_close(device);
    unlink(path);
    return 0;
}
