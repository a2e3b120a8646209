/* Measuring the host: what the system tells of it, memory to measure in, threads, and loops. */
#ifndef CENI_PROBE_HOST_H
#define CENI_PROBE_HOST_H

#include <pthread.h>

#include "probe/probe.h"

enum { CENI_HOST_CACHES = 4, CENI_HOST_LINE = 64, CENI_HOST_CPUS = 1024 };

/* One level of data caches: bytes of each, and how many the allowed processors use. */
typedef struct ceni_host_cache {
    uint64_t bytes;
    uint32_t count;
} ceni_host_cache;

typedef struct ceni_host_system {
    char name[128]; /* of the processor; "" not told */
    uint32_t cpus[CENI_HOST_CPUS];
    uint32_t cpu_count; /* that this process may run on; at most CENI_HOST_CPUS are used */
    ceni_host_cache caches[CENI_HOST_CACHES];
    uint32_t cache_count; /* 0: the system does not tell */
    uint64_t memory_bytes, free_bytes;
    uint32_t nodes;          /* of NUMA; 0: not told */
    int near_node, far_node; /* of the first allowed processor; the farthest from it */
} ceni_host_system;

/* What cannot be read is left zero. root: before "/sys" and "/proc". */
void ceni_host_system_read(const char *root, ceni_host_system *system);

/* Memory to measure in, of huge pages where the system gives them. node: of NUMA, or -1. */
typedef struct ceni_host_memory {
    char *data;
    uint64_t bytes;
    char *mapped;
    size_t mapped_bytes;
} ceni_host_memory;
/* 0, or the errno. */
int ceni_host_memory_take(ceni_host_memory *memory, uint64_t bytes, int node);
void ceni_host_memory_drop(ceni_host_memory *memory);
/* The size of the pages that back most of it; 0: the system does not tell. */
uint64_t ceni_host_memory_page(const ceni_host_memory *memory);

/* Threads, each on a processor of its own. */
typedef struct ceni_crew ceni_crew;
/* 0, or the errno. */
int ceni_crew_start(const ceni_host_system *system, uint32_t threads, ceni_crew **crew);
/* Runs job(arg, i) on thread i, all at once; returns the seconds from the first one's begin to the
 * last one's end. */
double ceni_crew_run(ceni_crew *crew, void (*job)(void *arg, uint32_t i), void *arg);
uint32_t ceni_crew_threads(const ceni_crew *crew);
void ceni_crew_stop(ceni_crew *crew);

/* Loops over memory at 64-byte boundaries, of a multiple of CENI_LOOP_BYTES, as wide as this
 * processor can. `read` and `fma` give what keeps their work from being left out. */
enum { CENI_LOOP_BYTES = 512 };
typedef struct ceni_host_loops {
    const char *name;
    uint64_t (*read)(const void *from, uint64_t bytes);
    void (*write)(void *to, uint64_t bytes, uint64_t value);
    void (*copy)(void *to, const void *from, uint64_t bytes);
    void (*triad)(void *to, const void *a, const void *b, uint64_t bytes, float scale);
    /* fma_chains chains of fma_width floats, each x = x * 0.5 + 1 `rounds` times. */
    float (*fma)(uint64_t rounds);
    uint32_t fma_width, fma_chains;
} ceni_host_loops;
const ceni_host_loops *ceni_host_loops_best(void);
/* Every one that this processor can run; NULL past the last. */
const ceni_host_loops *ceni_host_loops_at(size_t index);

/* Follows the chain; the last address. */
uint64_t ceni_host_follow(uint64_t at, uint64_t steps);
/* Cycles of this thread's processor a nanosecond. */
double ceni_host_clock(bool quick);
/* Nanoseconds of one fused multiplication and addition that waits for the one before. */
double ceni_host_fma_latency(bool quick);

/* The parts of ceni_probe_host. */
typedef struct ceni_host {
    const ceni_host_probe *options;
    ceni_host_system system;
    const ceni_host_loops *loops;
    double clock;        /* cycles a nanosecond; 0: not known */
    uint64_t dram_bytes; /* of a working set that no cache holds; 0: there is no memory for it */
    ceni_draft *draft;
} ceni_host;
void ceni_host_latencies(ceni_host *host);
void ceni_host_bandwidths(ceni_host *host);
void ceni_host_arithmetic(ceni_host *host);
void ceni_host_far(ceni_host *host);
void ceni_host_link(ceni_host *host);
void ceni_host_disk(ceni_host *host);

#endif
