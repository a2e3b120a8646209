#include "bench/bench.h"

#include <stdlib.h>
#include <time.h>

#include "bench/pattern.h"

enum { ROUNDS = 21, PAIRS = 1000 };

uint64_t bench_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bench_measure bench_measure_of(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, order);
    return (bench_measure){samples[count / 2], samples[0], samples[count - 1]};
}

bool bench_pairs(const bench_allocator *allocator, size_t size, bench_measure *ns) {
    double samples[ROUNDS];
    for (int round = -1; round < ROUNDS; round++) { /* the first only warms up */
        uint64_t start = bench_now();
        for (int i = 0; i < PAIRS; i++) {
            uint64_t addr = allocator->alloc(allocator->state, size);
            if (!addr) {
                return false;
            }
            allocator->release(allocator->state, addr, size);
        }
        if (round >= 0) {
            samples[round] = (double)(bench_now() - start) / PAIRS;
        }
    }
    *ns = bench_measure_of(samples, ROUNDS);
    return true;
}

bool bench_pattern(const bench_allocator *allocator, bench_measure *ns) {
    static double samples[PATTERN_STEPS / PATTERN_CHUNK];
    uint64_t addrs[PATTERN_SLOTS] = {0}, random = PATTERN_SEED;
    size_t sizes[PATTERN_SLOTS], filled = 0;
    bool ok = true;
    for (; ok && filled < PATTERN_SLOTS; filled++) {
        sizes[filled] = pattern_size(&random);
        addrs[filled] = allocator->alloc(allocator->state, sizes[filled]);
        ok = addrs[filled] != 0;
    }
    for (size_t chunk = 0; ok && chunk < PATTERN_STEPS / PATTERN_CHUNK; chunk++) {
        uint64_t start = bench_now();
        for (int i = 0; ok && i < PATTERN_CHUNK; i++) {
            size_t slot = pattern_slot(&random), size = pattern_size(&random);
            allocator->release(allocator->state, addrs[slot], sizes[slot]);
            addrs[slot] = allocator->alloc(allocator->state, size);
            sizes[slot] = size;
            ok = addrs[slot] != 0;
        }
        samples[chunk] = (double)(bench_now() - start) / PATTERN_CHUNK;
    }
    for (size_t slot = 0; slot < filled; slot++) {
        if (addrs[slot]) {
            allocator->release(allocator->state, addrs[slot], sizes[slot]);
        }
    }
    if (ok) {
        *ns = bench_measure_of(samples, PATTERN_STEPS / PATTERN_CHUNK);
    }
    return ok;
}

void bench_figure(FILE *out, const char *what, const char *unit, bench_measure measure) {
    fprintf(out, "{\"what\": \"%s\", \"unit\": \"%s\", \"median\": %.6g, \"spread\": [%.6g, %.6g]",
            what, unit, measure.median, measure.lowest, measure.highest);
}

void bench_peer(FILE *out, const char *name, bench_measure measure) {
    fprintf(out, ", \"peer\": {\"name\": \"%s\", \"median\": %.6g, \"spread\": [%.6g, %.6g]}", name,
            measure.median, measure.lowest, measure.highest);
}
