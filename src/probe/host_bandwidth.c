/* How many bytes a second the host's levels move: one thread, and all. */
#include "probe/host.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum access { READ, WRITE, COPY, TRIAD, ACCESSES };
static const struct {
    const char *name;
    unsigned parts; /* ranges of memory that it takes */
} accesses[ACCESSES] = {{"read", 1}, {"write", 1}, {"copy", 2}, {"triad", 3}};

/* The same work for each thread of a crew, on its own part of the memory. */
typedef struct work {
    const ceni_host_loops *loops;
    enum access access;
    char *data;
    uint64_t slice;  /* bytes between two threads' parts */
    uint64_t part;   /* bytes of each of the access's ranges */
    uint64_t rounds; /* over them */
} work;

/* Two floats of 1, which the triads then add: denormal ones would take a processor's slow path. */
static const uint64_t ONES = 0x3f8000003f800000;

static void run_once(const work *w, char *data) {
    uint64_t n = w->part;
    volatile uint64_t sink;
    switch (w->access) {
    case READ:
        sink = w->loops->read(data, n);
        (void)sink;
        break;
    case WRITE:
        w->loops->write(data, n, ONES);
        break;
    case COPY:
        w->loops->copy(data, data + n, n);
        break;
    default:
        w->loops->triad(data, data + n, data + 2 * n, n, 1.5f);
    }
}

static void run(void *arg, uint32_t i) {
    const work *w = arg;
    for (uint64_t r = 0; r < w->rounds; r++) {
        run_once(w, w->data + i * w->slice);
        atomic_signal_fence(memory_order_seq_cst); /* so that each round does all anew */
    }
}

/* By the thread that will use it: the system then takes memory near to it. */
static void touch(void *arg, uint32_t i) {
    const work *w = arg;
    memset(w->data + i * w->slice, 0, w->slice);
}

/* Whether the job takes so long each of three times: once may be because a thread is late. */
static bool lasts(ceni_crew *crew, void (*job)(void *, uint32_t), void *arg, double seconds) {
    for (int i = 0; i < 3; i++) {
        if (ceni_crew_run(crew, job, arg) < seconds) {
            return false;
        }
    }
    return true;
}

/* The rounds that take so long that beginning and end do not count. */
static uint64_t calibrate(ceni_crew *crew, void (*job)(void *, uint32_t), void *arg,
                          uint64_t *rounds, bool quick) {
    *rounds = 1;
    while (*rounds < (uint64_t)1 << 32 && !lasts(crew, job, arg, quick ? 0.0002 : 0.01)) {
        *rounds *= 2;
    }
    return *rounds;
}

/* All accesses of a crew whose threads have `bytes` each. */
static void measure(ceni_host *host, ceni_crew *crew, const char *level, uint64_t bytes,
                    bool whole) {
    uint32_t threads = ceni_crew_threads(crew);
    uint64_t slice = (bytes + 4095) / 4096 * 4096;
    ceni_host_memory memory = {0};
    int error = ceni_host_memory_take(&memory, slice * threads, -1);
    if (error) {
        ceni_draft_skip(host->draft, level, "bandwidth: no memory to measure in: %s",
                        strerror(error));
        return;
    }
    work w = {.loops = host->loops, .data = memory.data, .slice = slice};
    ceni_crew_run(crew, touch, &w);
    for (int a = 0; a < ACCESSES; a++) {
        ceni_samples gbps = {{0}, 0};
        w.access = (enum access)a;
        w.part = bytes / accesses[a].parts / CENI_LOOP_BYTES * CENI_LOOP_BYTES;
        double moved = (double)w.part * accesses[a].parts * threads *
                       (double)calibrate(crew, run, &w, &w.rounds, host->options->quick);
        for (int i = 0; i < CENI_SAMPLES; i++) {
            ceni_samples_add(&gbps, moved * 1e-9 / ceni_crew_run(crew, run, &w));
        }
        ceni_draft_transfer(host->draft, level, accesses[a].name, threads,
                            w.part * accesses[a].parts, &gbps, whole);
    }
    ceni_host_memory_drop(&memory);
}

/* What one of so many threads works on, all of them together in a half of the caches of a level; 0:
 * so much of it lies in the level below that the two cannot be told apart. */
static uint64_t share_of_cache(const ceni_host_system *s, uint32_t cache, uint32_t threads) {
    uint64_t count = threads == 1 ? 1 : s->caches[cache].count;
    uint64_t all = s->caches[cache].bytes * count, below = 0;
    if (cache) {
        uint64_t below_count = threads == 1 ? 1 : s->caches[cache - 1].count;
        below = s->caches[cache - 1].bytes * below_count;
    }
    uint64_t half = all / 2 >= 2 * below ? all / 2 : all * 3 / 4;
    uint64_t share = half / threads / CENI_LOOP_BYTES * CENI_LOOP_BYTES;
    return half < below + below / 2 || share < 3 * (uint64_t)CENI_LOOP_BYTES ? 0 : share;
}

static void measure_threads(ceni_host *host, uint32_t threads) {
    const ceni_host_system *s = &host->system;
    bool whole = threads == s->cpu_count;
    ceni_crew *crew = NULL;
    int error = ceni_crew_start(s, threads, &crew);
    if (error) {
        ceni_draft_skip(host->draft, CEN_LEVEL_DRAM, "bandwidth of %u threads: %s",
                        (unsigned)threads, strerror(error));
        return;
    }
    for (uint32_t i = 0; i < s->cache_count; i++) {
        uint64_t share = share_of_cache(s, i, threads);
        if (share) {
            measure(host, crew, ceni_cache_name(i), share, whole);
        } else {
            ceni_draft_skip(host->draft, ceni_cache_name(i),
                            "bandwidth of %u threads: the caches below hold most of what fits",
                            (unsigned)threads);
        }
    }
    if (host->dram_bytes) {
        measure(host, crew, CEN_LEVEL_DRAM, host->dram_bytes / threads, whole);
    }
    ceni_crew_stop(crew);
}

void ceni_host_bandwidths(ceni_host *host) {
    measure_threads(host, 1);
    if (host->system.cpu_count > 1) {
        measure_threads(host, host->system.cpu_count);
    }
}

/* ---- arithmetic, and so registers ---- */

typedef struct arithmetic {
    const ceni_host_loops *loops;
    uint64_t rounds;
} arithmetic;

static void multiply_and_add(void *arg, uint32_t i) {
    const arithmetic *a = arg;
    volatile float sink = a->loops->fma(a->rounds);
    (void)sink;
}

void ceni_host_arithmetic(ceni_host *host) {
    enum { OPERANDS = 4 }; /* of an FMA: three are read, one is written */
    uint32_t threads = host->system.cpu_count;
    arithmetic a = {.loops = host->loops};
    ceni_samples gbps = {{0}, 0}, ns = {{0}, 0};
    ceni_crew *crew = NULL;
    int error = ceni_crew_start(&host->system, threads, &crew);
    if (error) {
        ceni_draft_skip(host->draft, CEN_LEVEL_REGISTERS, "%u threads: %s", (unsigned)threads,
                        strerror(error));
        return;
    }
    uint64_t bytes = (uint64_t)a.loops->fma_chains * a.loops->fma_width * sizeof(float);
    double floats = (double)calibrate(crew, multiply_and_add, &a, &a.rounds, host->options->quick) *
                    a.loops->fma_chains * a.loops->fma_width * threads;
    for (int i = 0; i < CENI_SAMPLES; i++) {
        double seconds = ceni_crew_run(crew, multiply_and_add, &a);
        ceni_samples_add(&gbps, floats * OPERANDS * sizeof(float) * 1e-9 / seconds);
    }
    ceni_crew_stop(crew);
    ceni_draft_transfer(host->draft, CEN_LEVEL_REGISTERS, "FMA operands", threads, bytes, &gbps,
                        true);
    ceni_draft_rate(host->draft, "fp32",
                    ceni_samples_figure(&gbps).median * 1e9 * 2 / (OPERANDS * sizeof(float)));
    for (int i = 0; i < CENI_SAMPLES && ceni_host_fma_latency(true) > 0; i++) {
        ceni_samples_add(&ns, ceni_host_fma_latency(host->options->quick));
    }
    ceni_draft_latency(host->draft, CEN_LEVEL_REGISTERS, &ns,
                       ceni_samples_figure(&ns).median * host->clock);
    ceni_draft_skip(host->draft, CEN_LEVEL_REGISTERS,
                    "capacity: a processor does not tell how many registers it renames");
}

/* ---- memcpy ---- */

void ceni_host_link(ceni_host *host) {
    uint64_t half = host->dram_bytes / 2, most = host->options->quick ? 1 << 18 : 1 << 26;
    uint64_t total = host->options->quick ? 1 << 20 : 1 << 26;
    ceni_host_memory memory = {0};
    int error = half < total ? -1 : ceni_host_memory_take(&memory, 2 * half, -1);
    if (error) {
        ceni_draft_skip(host->draft, CEN_LEVEL_LINK, "memcpy: no memory to measure in%s%s",
                        error > 0 ? ": " : "", error > 0 ? strerror(error) : "");
        return;
    }
    memset(memory.data, 0, memory.bytes);
    uint64_t at = 0;
    for (uint64_t chunk = 4096; chunk <= most; chunk *= 4) {
        ceni_samples gbps = {{0}, 0};
        for (int i = 0; i < CENI_SAMPLES; i++) {
            uint64_t start = ceni_now_ns();
            for (uint64_t copied = 0; copied < total; copied += chunk) {
                at = at + chunk > half ? 0 : at;
                memcpy(memory.data + at, memory.data + half + at, chunk);
                at += chunk;
            }
            ceni_samples_add(&gbps, (double)total / (double)(ceni_now_ns() - start));
        }
        ceni_draft_transfer(host->draft, CEN_LEVEL_LINK, "memcpy", 1, chunk, &gbps, true);
    }
    ceni_host_memory_drop(&memory);
}
