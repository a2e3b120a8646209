/* A month of one device in the life of a pool: what of the memory that it holds is in use, left
 * alone, with free memory merged and returned every hour, and with blocks moved too.
 *
 * usage: bench_month   CENOTE_BENCH_CALLS: allocations and frees each way, over all seeds
 *                      (10000000);
 *                      CENOTE_BENCH_SVG: where to draw the first seed's month.
 *
 * Everything is 1/64 of its size: a device of 32 GiB has 512 MiB, pages of 64 MiB have 1 MiB, and
 * the smallest block, of 2 MiB, has 33 KiB. Nothing is written to blocks; what moves is copied. The
 * demand rises and falls by day and week, and the sizes drift; one block in ten lives for hours to
 * days, the others for moments to an hour. Seven in ten are movable. The pool's clock is the
 * month's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/month_svg.h"
#include "cenote/cenote.h"

#define SCALE    64
#define CAPACITY ((uint64_t)512 << 20) /* 32 GiB, scaled */
#define PAGE     (((uint64_t)64 << 20) / SCALE)
#define SMALLEST ((double)(33 << 10))
#define MONTH_US (30.0 * 24 * 3600 * 1e6)
#define EVERY_US ((uint64_t)3600 * 1000000)
#define MOVABLE  0.7

enum { SEEDS = 3, MOST = 1 << 16 };

static const double capacity = (double)CAPACITY;

typedef struct block {
    uint64_t end; /* the call that frees it */
    void *plain;
    cen_movable movable;
    uint64_t bytes;
} block;

typedef struct month {
    cen_pool *pool;
    double now_us;
    uint64_t random, call, calls;
    block *heap; /* the next to go first */
    size_t count;
    uint64_t live;
    month_series *series;
} month;

static cen_device *device;

static void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench_month: %s failed\n", what);
        exit(1);
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    fprintf(stderr, "bench_month: %s\n", message);
}

static double chance(month *m) { /* in [0, 1) */
    m->random ^= m->random >> 12;
    m->random ^= m->random << 25;
    m->random ^= m->random >> 27;
    return (double)(m->random * 0x2545F4914F6CDD1Du >> 11) / 9007199254740992.0;
}

static uint64_t tell(void *arg) {
    return (uint64_t)((month *)arg)->now_us;
}

/* --- blocks by the call that frees them --- */

static void swap(block *a, block *b) {
    block t = *a;
    *a = *b;
    *b = t;
}

static void push(month *m, block b) {
    size_t i = m->count++;
    m->heap[i] = b;
    for (; i && m->heap[i].end < m->heap[(i - 1) / 2].end; i = (i - 1) / 2) {
        swap(&m->heap[i], &m->heap[(i - 1) / 2]);
    }
}

static block pop(month *m) {
    block first = m->heap[0];
    m->heap[0] = m->heap[--m->count];
    for (size_t i = 0, least;; i = least) {
        least = i;
        for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < m->count; k++) {
            least = m->heap[k].end < m->heap[least].end ? k : least;
        }
        if (least == i) {
            return first;
        }
        swap(&m->heap[i], &m->heap[least]);
    }
}

/* --- the demand --- */

/* Bytes that are wanted at a time: between a quarter and five sixths of the device. */
static uint64_t demand(const month *m) {
    double day = m->now_us / (24 * 3600e6), turn = 2 * 3.14159265358979;
    double wave = 0.55 + 0.2 * sin(turn * day) + 0.08 * sin(turn * day / 7);
    return (uint64_t)(wave * capacity);
}

/* From 2 MiB to 512 MiB, evenly by their logarithm, about a middle that drifts over the days. */
static uint64_t size_of(month *m) {
    double drift = 0.5 + 0.5 * sin(m->now_us / (5 * 24 * 3600e6));
    double span = 5.5 * chance(m) + 2.5 * drift * chance(m);
    return (uint64_t)(SMALLEST * exp2(span));
}

static uint64_t lifetime(month *m) {
    double per_hour = (double)m->calls / (30 * 24);
    double from = chance(m) < 0.1 ? per_hour : per_hour / 1000, factor = chance(m) * 4.5;
    return 1 + (uint64_t)(from * exp2(factor) * (from < per_hour ? 20 : 1));
}

static void allocate(month *m) {
    block b = {.bytes = size_of(m)};
    b.end = m->call + lifetime(m);
    cen_status status = chance(m) < MOVABLE ? cen_movable_alloc(m->pool, b.bytes, 0, &b.movable)
                                            : cen_pool_alloc(m->pool, b.bytes, 0, &b.plain);
    need(!status, "allocating");
    m->live += b.bytes;
    push(m, b);
}

static void release(month *m) {
    block b = pop(m);
    need(!(b.plain ? cen_pool_free(m->pool, b.plain, 0) : cen_movable_free(m->pool, b.movable, 0)),
         "freeing");
    m->live -= b.bytes;
}

static void note(month *m) {
    cen_pool_stats stats;
    need(!cen_pool_get_stats(m->pool, &stats), "figures");
    need(stats.requested_bytes == m->live && stats.blocks == m->count, "keeping count");
    month_series *s = m->series;
    s->live[s->count] = (double)stats.requested_bytes / capacity;
    s->reserved[s->count++] = (double)stats.reserved_bytes / capacity;
}

/* --- the month --- */

typedef struct outcome {
    double utilisation, reserved, seconds;
} outcome;

static outcome live_through(uint64_t seed, uint64_t calls, const cen_defragment_policy *policy,
                            month_series *series) {
    month m = {.random = seed * 0x9E3779B97F4A7C15u, .calls = calls, .series = series};
    cen_pool_options options = {
        .size = sizeof options, .page_bytes = PAGE, .clock_us = tell, .clock_arg = &m};
    m.heap = calloc(MOST, sizeof *m.heap);
    need(m.heap && !cen_pool_create(device, &options, &m.pool), "creating a pool");
    need(!policy || !cen_pool_set_defragment(m.pool, policy), "setting a policy");
    uint64_t start = bench_now(), next = calls / (2 * MONTH_POINTS);
    series->count = 0;
    for (; m.call < calls; m.call++) {
        m.now_us = MONTH_US * (double)m.call / (double)calls;
        if (m.call >= next && series->count < MONTH_POINTS) {
            note(&m);
            next = calls * (2 * series->count + 1) / (2 * MONTH_POINTS); /* between two runs */
        }
        bool due = m.count && (m.heap[0].end <= m.call || m.count == MOST);
        if (due || (m.count && m.live >= demand(&m))) {
            release(&m);
        } else {
            allocate(&m);
        }
    }
    outcome o = {.seconds = (double)(bench_now() - start) / 1e9};
    need(!cen_pool_verify(m.pool), "checking the pool");
    const size_t first = MONTH_POINTS / 60; /* without the first half day */
    for (size_t i = first; i < series->count; i++) {
        o.utilisation += series->live[i] / series->reserved[i];
        o.reserved += series->reserved[i];
    }
    double points = (double)(series->count - first);
    o.utilisation *= 100 / points;
    o.reserved *= 100 / points;
    while (m.count) {
        release(&m);
    }
    free(m.heap);
    need(!cen_pool_destroy(m.pool), "destroying the pool");
    return o;
}

static const char *separator = "";

static void print(const char *what, const double *samples, const double *peer, const char *than) {
    double own[SEEDS], other[SEEDS];
    memcpy(own, samples, sizeof own);
    memcpy(other, peer, sizeof other);
    printf("%s\n  ", separator);
    separator = ",";
    bench_figure(stdout, what, "%", bench_measure_of(own, SEEDS));
    bench_peer(stdout, than, bench_measure_of(other, SEEDS));
    printf(", \"better\": \"more\"}");
}

int main(void) {
    const char *calls_text = getenv("CENOTE_BENCH_CALLS"), *svg = getenv("CENOTE_BENCH_SVG");
    uint64_t calls = calls_text ? strtoull(calls_text, NULL, 10) : 10000000;
    calls /= SEEDS;
    cen_host_options host = {.size = sizeof host,
                             .devices = 1,
                             .capacity = CAPACITY,
                             .granularity = ((uint64_t)2 << 20) / SCALE,
                             .inline_streams = true};
    cen_log_set(print_log, NULL, CEN_LOG_WARN);
    need(calls > 1000 && !cen_device_open_host(0, &host, &device), "opening the host device");
    cen_defragment_policy merge = {.size = sizeof merge, .interval_us = EVERY_US};
    cen_defragment_policy compact = merge;
    compact.each.compact = true;
    const cen_defragment_policy *policies[MONTH_WAYS] = {NULL, &merge, &compact};
    static month_series series[MONTH_WAYS], other;
    double utilisation[MONTH_WAYS][SEEDS];
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (int way = 0; way < MONTH_WAYS; way++) {
            outcome o = live_through(seed + 1, calls, policies[way], seed ? &other : &series[way]);
            utilisation[way][seed] = o.utilisation;
            fprintf(stderr, "bench_month: seed %d, %-22s %.1f%% in use of %.1f%% held, %.1f s\n",
                    (int)seed + 1, month_ways[way], o.utilisation, o.reserved, o.seconds);
        }
    }
    printf("{\"name\": \"month\", \"figures\": [");
    print("in use of what is held, merged and returned", utilisation[1], utilisation[0],
          month_ways[0]);
    print("in use of what is held, compacted", utilisation[2], utilisation[1], month_ways[1]);
    printf("\n]}\n");
    need(!svg || month_draw(svg, series), "drawing");
    cen_device_close(device);
    return 0;
}
