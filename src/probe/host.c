/* The host's levels. Each figure is the median of CENI_SAMPLES. */
#include "probe/host.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static uint64_t largest_cache(const ceni_host_system *s) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < s->cache_count; i++) {
        uint64_t all = s->caches[i].bytes * s->caches[i].count;
        most = all > most ? all : most;
    }
    return most;
}

/* The most that is used for a working set: a quarter of what is free, and 1 GiB unless the caches
 * are so large that it takes more. */
static uint64_t most_used(const ceni_host *host) {
    uint64_t caches = largest_cache(&host->system), free_part = host->system.free_bytes / 4;
    uint64_t most = 2 * caches > 1024 * CENI_MIB ? 2 * caches : 1024 * CENI_MIB;
    most = host->options->quick ? 64 * CENI_MIB : most;
    return most < free_part ? most : free_part;
}

/* A working set that no cache holds, four times the largest where that may be; 0: less than twice
 * that may be used. */
static uint64_t choose_dram(const ceni_host *host) {
    uint64_t caches = largest_cache(&host->system), most = most_used(host);
    uint64_t wanted = 4 * caches > 256 * CENI_MIB ? 4 * caches : 256 * CENI_MIB;
    wanted = wanted > most ? most / CENI_MIB * CENI_MIB : wanted;
    return wanted >= 2 * caches && wanted >= 16 * CENI_MIB ? wanted : 0;
}

/* ---- latency ---- */

/* Latency of a chain over the first `bytes` of memory. */
static ceni_samples measure_chain(const ceni_host *host, const ceni_host_memory *memory,
                                  uint64_t bytes) {
    ceni_samples ns = {{0}, 0};
    uint64_t lines = bytes / CENI_HOST_LINE, base = (uintptr_t)memory->data;
    uint64_t most = host->options->quick ? 1 << 12 : 1 << 18;
    uint64_t steps = lines > most ? most : lines < 1 << 12 ? 1 << 12 : lines;
    ceni_chain_make(memory->data, base, lines, CENI_HOST_LINE, bytes);
    uint64_t warm = host->options->quick && lines > most ? most : lines;
    uint64_t at = ceni_host_follow(base, warm > 4 * most ? 4 * most : warm);
    for (int i = 0; i < CENI_SAMPLES; i++) {
        uint64_t start = ceni_now_ns();
        at = ceni_host_follow(at, steps);
        ceni_samples_add(&ns, (double)(ceni_now_ns() - start) / (double)steps);
    }
    return ns;
}

static void put_latency(const ceni_host *host, const char *level, const ceni_samples *ns) {
    ceni_draft_latency(host->draft, level, ns, ceni_samples_figure(ns).median * host->clock);
}

/* The size at which a cache's own latency shows: half of it, unless the one below takes most of
 * that. */
static uint64_t inside(const ceni_host_system *s, uint32_t cache) {
    uint64_t half = s->caches[cache].bytes / 2;
    uint64_t below = cache ? s->caches[cache - 1].bytes : 0;
    half = half < 2 * below ? s->caches[cache].bytes * 3 / 4 : half;
    return half / CENI_HOST_LINE * CENI_HOST_LINE;
}

/* Without word from the system: where latencies rise, a cache ends. */
static void find_caches(ceni_host *host) {
    uint64_t ends[CENI_HOST_CACHES];
    const cen_probe_step *steps = host->draft->steps;
    size_t count = host->draft->device.step_count;
    size_t found = ceni_steps_find(steps, count, ends, CENI_HOST_CACHES);
    for (size_t i = 0; i < found; i++) {
        cen_probe_level *level = ceni_draft_level(host->draft, ceni_cache_name(i));
        for (size_t k = 0; k < count && level; k++) {
            if (steps[k].bytes <= ends[i] / 2 || !level->unit_bytes) {
                level->unit_bytes = ends[i];
                level->latency_ns = steps[k].ns;
                level->latency_spread = steps[k].spread;
                level->latency_cycles = ceni_probe_round(steps[k].ns * host->clock);
            }
        }
        ceni_draft_skip(
            host->draft, ceni_cache_name(i),
            "capacity of all of them, and bandwidth: /sys does not tell of caches; this "
            "one shows in the latencies");
    }
    if (!found) {
        ceni_draft_skip(host->draft, CEN_LEVEL_L1,
                        "/sys does not tell of caches, and no step in the latencies shows one");
    }
}

void ceni_host_latencies(ceni_host *host) {
    enum { SIZES = 64 };
    const ceni_host_system *s = &host->system;
    uint64_t sizes[SIZES], dram = host->dram_bytes ? host->dram_bytes : 4 * CENI_MIB;
    ceni_host_memory memory = {0};
    int error = ceni_host_memory_take(&memory, dram, -1);
    if (error) {
        ceni_draft_skip(host->draft, CEN_LEVEL_DRAM, "latencies: no memory to measure in: %s",
                        strerror(error));
        return;
    }
    memset(memory.data, 0, memory.bytes);
    host->draft->device.page_bytes = ceni_host_memory_page(&memory);
    uint64_t to = host->options->quick && dram > 4 * CENI_MIB ? 4 * CENI_MIB : dram;
    size_t count = ceni_chain_sizes(4096, to, CENI_HOST_LINE, sizes, SIZES);
    for (size_t i = 0; i < count; i++) {
        ceni_samples ns = measure_chain(host, &memory, sizes[i]);
        ceni_draft_step(host->draft, sizes[i], &ns);
    }
    for (uint32_t i = 0; i < s->cache_count; i++) {
        if (inside(s, i) <= memory.bytes) {
            ceni_samples ns = measure_chain(host, &memory, inside(s, i));
            put_latency(host, ceni_cache_name(i), &ns);
        } else {
            ceni_draft_skip(host->draft, ceni_cache_name(i),
                            "latency: there is too little memory to measure in");
        }
    }
    if (host->dram_bytes) {
        ceni_samples ns = measure_chain(host, &memory, host->dram_bytes);
        put_latency(host, CEN_LEVEL_DRAM, &ns);
    }
    ceni_host_memory_drop(&memory);
    if (!s->cache_count) {
        find_caches(host);
    }
}

/* ---- NUMA ---- */

void ceni_host_far(ceni_host *host) {
    static const char far[] = "DRAM far";
    const ceni_host_system *s = &host->system;
    ceni_host_memory memory = {0};
    if (s->nodes < 2 || !host->dram_bytes) {
        ceni_draft_skip(host->draft, far, "%s",
                        !s->nodes      ? "/sys does not tell of NUMA nodes"
                        : s->nodes < 2 ? "there is one NUMA node"
                                       : "there is too little free memory");
        return;
    }
    int error = ceni_host_memory_take(&memory, host->dram_bytes, s->far_node);
    if (error) {
        ceni_draft_skip(host->draft, far, "no memory on NUMA node %d: %s", s->far_node,
                        strerror(error));
        return;
    }
    memset(memory.data, 0, memory.bytes);
    ceni_samples ns = measure_chain(host, &memory, memory.bytes), gbps = {{0}, 0};
    put_latency(host, far, &ns);
    for (int i = 0; i < CENI_SAMPLES; i++) {
        uint64_t start = ceni_now_ns();
        volatile uint64_t sink =
            host->loops->read(memory.data, memory.bytes / CENI_LOOP_BYTES * CENI_LOOP_BYTES);
        (void)sink;
        ceni_samples_add(&gbps, (double)memory.bytes / (double)(ceni_now_ns() - start));
    }
    ceni_draft_transfer(host->draft, far, "read", 1, memory.bytes, &gbps, true);
    ceni_host_memory_drop(&memory);
}

/* ---- all ---- */

/* The rows, too, in the order in which they are to stand. */
static void put_capacities(const ceni_host *host) {
    static const char *const behind[] = {CEN_LEVEL_DRAM, "DRAM far", CEN_LEVEL_LINK,
                                         CEN_LEVEL_DISK};
    const ceni_host_system *s = &host->system;
    ceni_draft_level(host->draft, CEN_LEVEL_REGISTERS);
    for (uint32_t i = 0; i < CENI_HOST_CACHES; i++) {
        cen_probe_level *level = ceni_draft_level(host->draft, ceni_cache_name(i));
        if (level && i < s->cache_count) {
            level->unit_bytes = s->caches[i].bytes;
            level->capacity_bytes = s->caches[i].bytes * s->caches[i].count;
        }
    }
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        ceni_draft_level(host->draft, behind[i]);
    }
    cen_probe_level *dram = ceni_draft_level(host->draft, CEN_LEVEL_DRAM);
    if (dram) {
        dram->capacity_bytes = s->memory_bytes;
    }
}

cen_status ceni_probe_host(const ceni_host_probe *options, ceni_draft *draft) {
    ceni_host host = {.options = options, .draft = draft, .loops = ceni_host_loops_best()};
    ceni_host_system_read(options->root, &host.system);
    snprintf(draft->device.name, sizeof draft->device.name, "%s",
             *host.system.name ? host.system.name : "host");
    host.clock = ceni_host_clock(options->quick);
    host.dram_bytes = choose_dram(&host);
    put_capacities(&host);
    if (!host.dram_bytes) {
        ceni_draft_skip(draft, CEN_LEVEL_DRAM,
                        "latency and bandwidth: a working set of twice the caches takes %llu MiB, "
                        "and this run may use %llu MiB",
                        (unsigned long long)(2 * largest_cache(&host.system) / CENI_MIB),
                        (unsigned long long)(most_used(&host) / CENI_MIB));
    }
    ceni_host_arithmetic(&host);
    ceni_host_latencies(&host);
    ceni_host_bandwidths(&host);
    ceni_host_far(&host);
    ceni_host_link(&host);
    ceni_host_disk(&host);
    ceni_draft_skip(draft, CEN_LEVEL_DRAM,
                    "share of the theoretical peak: the system does not tell the memory's clock");
    ceni_draft_skip(draft, CEN_LEVEL_DRAM, "energy: not measured by this version on a host");
    return draft->status;
}
