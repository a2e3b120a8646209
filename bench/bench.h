/* What the benchmarks share: the clock, medians, allocators under one interface with the two runs
 * that they are compared on, and figures as docs/formats/bench-results.md has them. */
#ifndef CENOTE_BENCH_H
#define CENOTE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define BENCH_THREADS 8 /* most */

/* An allocator to be timed, on one stream of its own choice. alloc gives 0 when it failed. */
typedef struct bench_allocator {
    const char *name;
    void *state;
    uint64_t (*alloc)(void *state, size_t size);
    void (*release)(void *state, uint64_t addr, size_t size);
    void (*attach)(void *state); /* called first on a thread that will use it; may be NULL */
} bench_allocator;

typedef struct bench_measure {
    double median, lowest, highest;
} bench_measure;

uint64_t bench_now(void); /* nanoseconds */

/* Of `count` >= 1 samples, which it sorts. */
bench_measure bench_measure_of(double *samples, size_t count);

/* Nanoseconds for one alloc and free of a size, again and again, by `threads` threads at once, each
 * with its allocator: the time that passed, over the pairs of all threads. False when an alloc
 * failed. */
bool bench_pairs(const bench_allocator *allocators, int threads, size_t size, bench_measure *ns);
/* The same for one step of bench/pattern.h, which each thread goes through on its own. */
bool bench_pattern(const bench_allocator *allocators, int threads, bench_measure *ns);

/* Writes a figure, without its closing brace: {"what": .., "unit": .., "median": .., "spread": ..
 */
void bench_figure(FILE *out, const char *what, const char *unit, bench_measure measure);
/* Writes , "peer": {...} */
void bench_peer(FILE *out, const char *name, bench_measure measure);

#endif
