/* How many bytes a second a device's levels move, and its arithmetic. */
#include "probe/gpu.h"

#include "kernels/hierarchy.h"

#include <string.h>

/* Enough threads to hide the latencies, few enough that all of them have room at once: a second
 * wave of blocks would leave most of the device idle. */
enum { BLOCKS = 2, THREADS = 512 };

static void put(ceni_gpu *gpu, const ceni_gpu_work *work, const char *level, const char *access,
                uint64_t bytes) {
    ceni_samples gbps = {{0}, 0};
    if (!ceni_gpu_failed(gpu, level, access, ceni_gpu_rate(gpu, work, &gbps))) {
        ceni_draft_transfer(gpu->draft, level, access, 0, bytes, &gbps, true);
    }
}

/* Reads, writes, copies and triads of `bytes` in all, which the level holds. */
static void measure_accesses(ceni_gpu *gpu, const char *level, uint64_t bytes) {
    uint64_t rounds, half = bytes / 2 / 512 * 512, third = bytes / 3 / 512 * 512;
    uint64_t whole = bytes / 16 * 16;
    cen_addr first = gpu->memory, second = first + half, b = first + third, c = b + third;
    uint32_t value = 3;
    float scale = 1.5f;
    const cen_launch shape = ceni_gpu_shape(gpu, BLOCKS, THREADS, 0);
    const ceni_gpu_work read = {"cen_read", shape,   {&first, &bytes, &rounds, &gpu->out},
                                4,          &rounds, (double)whole};
    const ceni_gpu_work write = {"cen_write", shape,   {&first, &value, &bytes, &rounds},
                                 4,           &rounds, (double)whole};
    const ceni_gpu_work copy = {"cen_copy", shape,   {&first, &second, &half, &rounds},
                                4,          &rounds, 2 * (double)half};
    const ceni_gpu_work triad = {
        "cen_triad", shape,   {&first, &b, &c, &scale, &third, &rounds},
        6,           &rounds, 3 * (double)third,
    };
    put(gpu, &read, level, "read", bytes);
    put(gpu, &write, level, "write", bytes);
    put(gpu, &copy, level, "copy", 2 * half);
    put(gpu, &triad, level, "triad", 3 * third);
}

/* Each multiprocessor on its own. */
static void measure_inside(ceni_gpu *gpu) {
    enum { OPERANDS = 4 }; /* of an FMA: three are read, one is written */
    uint64_t rounds, l1_bytes = 32 * CENI_KIB;
    uint32_t shared_bytes = 32 * CENI_KIB;
    const cen_launch shape = ceni_gpu_shape(gpu, BLOCKS, THREADS, 0),
                     with_shared = ceni_gpu_shape(gpu, BLOCKS, THREADS, shared_bytes);
    double threads = (double)shape.grid[0] * THREADS, blocks = shape.grid[0];
    const ceni_gpu_work fma = {
        "cen_fma", shape,   {&rounds, &gpu->out},
        2,         &rounds, threads * CENI_FMA_CHAINS * OPERANDS * sizeof(float)};
    const ceni_gpu_work shared = {
        "cen_read_shared", with_shared,          {&shared_bytes, &rounds, &gpu->out}, 3,
        &rounds,           blocks * shared_bytes};
    const ceni_gpu_work l1 = {"cen_read_l1",
                              shape,
                              {&gpu->memory, &l1_bytes, &rounds, &gpu->out},
                              4,
                              &rounds,
                              blocks * (double)l1_bytes};
    put(gpu, &fma, CEN_LEVEL_REGISTERS, "FMA operands",
        CENI_FMA_CHAINS * sizeof(float) * THREADS * BLOCKS);
    const cen_probe_level *registers = ceni_draft_level(gpu->draft, CEN_LEVEL_REGISTERS);
    if (registers && registers->bandwidth_gbps > 0) {
        ceni_draft_rate(gpu->draft, "fp32",
                        registers->bandwidth_gbps * 1e9 * 2 / (OPERANDS * sizeof(float)));
    }
    put(gpu, &shared, CEN_LEVEL_SHARED, "read", shared_bytes);
    put(gpu, &l1, CEN_LEVEL_L1, "read", l1_bytes);
}

void ceni_gpu_bandwidths(ceni_gpu *gpu) {
    uint64_t l2 = gpu->limits.l2_bytes * 2 / 5 / 512 * 512;
    measure_inside(gpu);
    if (l2 && l2 <= gpu->memory_bytes) {
        measure_accesses(gpu, CEN_LEVEL_L2, l2);
    } else {
        ceni_draft_skip(gpu->draft, CEN_LEVEL_L2, "bandwidth: %s",
                        l2 ? "too little memory is free" : "the device does not tell its size");
    }
    if (gpu->memory_bytes >= 4 * gpu->limits.l2_bytes) {
        measure_accesses(gpu, gpu->memory_level, gpu->memory_bytes);
    } else {
        ceni_draft_skip(gpu->draft, gpu->memory_level,
                        "bandwidth: too little memory is free to get past the cache");
    }
}
