/* How far away a device's levels are. */
#include "probe/gpu.h"

#include "kernels/hierarchy.h"

#include <stdlib.h>
#include <string.h>

enum { SIZES = 64 };

/* Latency of each access, in both measures. */
typedef struct latency {
    ceni_samples ns, cycles;
} latency;

static const cen_launch alone = {{1, 1, 1}, {32, 1, 1}, 0};

/* A chain of so many bytes at `base`, which this device's kernels can follow. */
static cen_status upload_chain(ceni_gpu *gpu, cen_addr base, uint64_t bytes) {
    uint64_t lines = bytes / CENI_GPU_LINE;
    ceni_chain_make(gpu->staging, base, lines, CENI_GPU_LINE, bytes);
    return cen_copy_async(gpu->device, base, (cen_addr)(uintptr_t)gpu->staging,
                          lines * CENI_GPU_LINE, gpu->stream);
}

/* Follows the chain at `base`. All of it is followed once before, up to a bound that a cache larger
 * than any keeps to. Each sample goes on where the last one ended: of a chain that no cache holds,
 * none finds what another brought. */
static cen_status follow(ceni_gpu *gpu, const char *kernel, cen_addr base, uint64_t bytes,
                         latency *found) {
    uint64_t lines = bytes / CENI_GPU_LINE, most = gpu->quick ? 1 << 11 : 1 << 14;
    uint64_t warm = lines <= 128 * most ? lines : most, steps = most;
    cen_addr first = base;
    void *args[] = {&base, &bytes, &first, &warm, &gpu->out};
    cen_status status = CEN_OK;
    *found = (latency){0};
    warm = (warm + CENI_CHASE_BATCH - 1) / CENI_CHASE_BATCH * CENI_CHASE_BATCH;
    status = ceni_gpu_launch(gpu, kernel, alone, args, 5, 1);
    args[3] = &steps;
    for (int i = 0; i < CENI_SAMPLES && !status; i++) {
        first = gpu->result[0];
        status = ceni_gpu_launch(gpu, kernel, alone, args, 5, 3);
        if (!status) {
            ceni_samples_add(&found->cycles, (double)gpu->result[1] / (double)steps);
            ceni_samples_add(&found->ns, (double)gpu->result[2] / (double)steps);
        }
    }
    return status;
}

static cen_status chase(ceni_gpu *gpu, const char *kernel, uint64_t bytes, latency *found) {
    cen_status status = upload_chain(gpu, gpu->memory, bytes);
    return status ? status : follow(gpu, kernel, gpu->memory, bytes, found);
}

static void put(const ceni_gpu *gpu, const char *level, const latency *l) {
    ceni_draft_latency(gpu->draft, level, &l->ns, ceni_samples_figure(&l->cycles).median);
}

/* Shared memory and registers: one launch a sample. */
static void measure_inside(ceni_gpu *gpu, const char *level, const char *kernel, uint32_t shared,
                           uint64_t steps) {
    latency l = {0};
    uint64_t batches = steps / CENI_CHASE_BATCH;
    void *chase_args[] = {&shared, &steps, &gpu->out}, *chain_args[] = {&batches, &gpu->out};
    cen_launch shape = alone;
    cen_status status = CEN_OK;
    shape.shared_bytes = shared;
    for (int i = 0; i < CENI_SAMPLES && !status; i++) {
        status = ceni_gpu_launch(gpu, kernel, shape, shared ? chase_args : chain_args,
                                 shared ? 3 : 2, 3);
        if (!status) {
            ceni_samples_add(&l.cycles, (double)gpu->result[1] / (double)steps);
            ceni_samples_add(&l.ns, (double)gpu->result[2] / (double)steps);
        }
    }
    if (!ceni_gpu_failed(gpu, level, "latency", status)) {
        put(gpu, level, &l);
    }
}

/* Through the first-level cache: where the latencies rise for the first time, it ends. */
static void measure_l1(ceni_gpu *gpu) {
    uint64_t sizes[SIZES], ends[1] = {0};
    cen_probe_step steps[SIZES];
    latency l;
    size_t count = ceni_chain_sizes(4 * CENI_KIB, gpu->quick ? 64 * CENI_KIB : 512 * CENI_KIB,
                                    CENI_GPU_LINE, sizes, SIZES);
    for (size_t i = 0; i < count; i++) {
        if (ceni_gpu_failed(gpu, CEN_LEVEL_L1, "latency", chase(gpu, "cen_chase", sizes[i], &l))) {
            return;
        }
        steps[i] = (cen_probe_step){.bytes = sizes[i], .ns = ceni_samples_figure(&l.cycles).median};
        if (i == 2) { /* 8 KiB: no cache is so small */
            put(gpu, CEN_LEVEL_L1, &l);
        }
    }
    cen_probe_level *row = ceni_draft_level(gpu->draft, CEN_LEVEL_L1);
    if (!ceni_steps_find(steps, count, ends, 1)) {
        ceni_draft_skip(gpu->draft, CEN_LEVEL_L1,
                        "capacity: the latencies do not rise up to %llu KiB",
                        (unsigned long long)(sizes[count - 1] / CENI_KIB));
    } else if (row) {
        row->unit_bytes = ends[0];
        row->capacity_bytes = ends[0] * gpu->multiprocessors;
    }
}

/* Past the first-level cache: the second one and the memory, by size. */
static void measure_l2(ceni_gpu *gpu) {
    uint64_t sizes[SIZES], l2 = gpu->limits.l2_bytes;
    uint64_t most = gpu->staging_bytes < gpu->memory_bytes ? gpu->staging_bytes : gpu->memory_bytes;
    latency l;
    size_t count = ceni_chain_sizes(gpu->quick ? 256 * CENI_KIB : 1 * CENI_MIB, most, CENI_GPU_LINE,
                                    sizes, SIZES);
    for (size_t i = 0; i < count; i++) {
        if (ceni_gpu_failed(gpu, CEN_LEVEL_L2, "latency by size",
                            chase(gpu, "cen_chase_l2", sizes[i], &l))) {
            return;
        }
        ceni_draft_step(gpu->draft, sizes[i], &l.ns);
    }
    if (!l2) {
        ceni_draft_skip(gpu->draft, CEN_LEVEL_L2, "the device does not tell its size");
    } else if (!ceni_gpu_failed(gpu, CEN_LEVEL_L2, "latency",
                                chase(gpu, "cen_chase_l2", l2 / 8, &l))) {
        put(gpu, CEN_LEVEL_L2, &l);
    }
    if (most < 2 * l2) {
        ceni_draft_skip(gpu->draft, gpu->memory_level,
                        "latency: too little memory is free to get past the cache");
    } else if (!ceni_gpu_failed(gpu, gpu->memory_level, "latency",
                                chase(gpu, "cen_chase_l2", most, &l))) {
        put(gpu, gpu->memory_level, &l);
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest gap between neighbours among the middle four fifths; 0 if it is no such: the lines of
 * two halves would lie in two heaps, with next to nothing between. */
static size_t find_gap(const double *sorted, size_t n) {
    size_t at = 0;
    double widest = 0;
    for (size_t i = n / 10; i < n - n / 10; i++) {
        if (sorted[i] - sorted[i - 1] > widest) {
            widest = sorted[i] - sorted[i - 1];
            at = i;
        }
    }
    double near = sorted[at / 2], far = sorted[at + (n - at) / 2];
    return at && far >= 1.2 * near && widest >= 0.5 * (far - near) ? at : 0;
}

enum { LINES = CENI_GPU_OUT_WORDS };

/* The cycles of an access to each of LINES lines that lie far apart, on its own. */
static cen_status time_lines(ceni_gpu *gpu, double cycles[LINES]) {
    uint64_t stride = 4096 + CENI_GPU_LINE, count = LINES, steps = gpu->quick ? 64 : 1024;
    void *args[] = {&gpu->memory, &stride, &count, &steps, &gpu->out};
    memset(gpu->staging, 0, LINES * stride);
    for (uint64_t i = 0; i < LINES; i++) {
        cen_addr at = gpu->memory + i * stride;
        memcpy(gpu->staging + i * stride, &at, sizeof at);
    }
    cen_status status = cen_copy_async(gpu->device, gpu->memory, (cen_addr)(uintptr_t)gpu->staging,
                                       LINES * stride, gpu->stream);
    if (!status) {
        status = ceni_gpu_launch(gpu, "cen_chase_lines", alone, args, 5, LINES);
    }
    for (size_t i = 0; i < LINES && !status; i++) {
        cycles[i] = (double)gpu->result[i] / (double)steps;
    }
    return status;
}

/* The latency of lines [from, to) of the sorted ones: samples from the lowest to the highest. */
static void put_group(const ceni_gpu *gpu, const char *level, const double *sorted, size_t from,
                      size_t to, double ns_a_cycle) {
    ceni_samples ns = {{0}, 0};
    for (size_t i = 0; i < CENI_SAMPLES; i++) {
        size_t line = from + i * (to - 1 - from) / (CENI_SAMPLES - 1);
        ceni_samples_add(&ns, sorted[line] * ns_a_cycle);
    }
    ceni_draft_latency(gpu->draft, level, &ns, sorted[from + (to - from) / 2]);
}

/* Lines of a cache in two halves are near to a multiprocessor, or far from it. */
static void measure_far(ceni_gpu *gpu) {
    static const char far[] = "L2 far";
    double cycles[LINES];
    const cen_probe_level *l2 = ceni_draft_level(gpu->draft, CEN_LEVEL_L2);
    if (!l2 || l2->latency_ns <= 0 || l2->latency_cycles <= 0) {
        ceni_draft_skip(gpu->draft, far, "the latency of L2 could not be measured");
        return;
    }
    double ns_a_cycle = l2->latency_ns / l2->latency_cycles;
    if (ceni_gpu_failed(gpu, far, "latency of single lines", time_lines(gpu, cycles))) {
        return;
    }
    qsort(cycles, LINES, sizeof *cycles, by_value);
    size_t gap = find_gap(cycles, LINES);
    if (!gap) {
        ceni_draft_skip(
            gpu->draft, far,
            "latencies of single lines do not fall into two groups: %.0f to %.0f cycles",
            cycles[LINES / 20], cycles[LINES - LINES / 20]);
        return;
    }
    put_group(gpu, CEN_LEVEL_L2, cycles, 0, gap, ns_a_cycle);
    put_group(gpu, far, cycles, gap, LINES, ns_a_cycle);
}

/* Across the link: the chain is in the host's memory. */
static void measure_link(ceni_gpu *gpu) {
    uint64_t bytes = 256 * CENI_KIB;
    latency l;
    cen_addr base = (cen_addr)(uintptr_t)gpu->staging;
    ceni_chain_make(gpu->staging, base, bytes / CENI_GPU_LINE, CENI_GPU_LINE, bytes);
    if (!ceni_gpu_failed(gpu, CEN_LEVEL_LINK, "latency",
                         follow(gpu, "cen_chase_l2", base, bytes, &l))) {
        put(gpu, CEN_LEVEL_LINK, &l);
    }
}

void ceni_gpu_latencies(ceni_gpu *gpu) {
    static void (*const outside[])(ceni_gpu * gpu) = {measure_l1, measure_l2, measure_far,
                                                      measure_link};
    uint64_t rounds = (gpu->quick ? 10000 : 50000000) / CENI_CHASE_BATCH;
    void *args[] = {&rounds, &gpu->out};
    /* Its clocks rise while it works: a tenth of a second before anything is timed. */
    if (ceni_gpu_failed(gpu, "kernels", "all that they measure",
                        ceni_gpu_launch(gpu, "cen_fma_chain", alone, args, 2, 0))) {
        return;
    }
    measure_inside(gpu, CEN_LEVEL_REGISTERS, "cen_fma_chain", 0, gpu->quick ? 1 << 12 : 1 << 18);
    measure_inside(gpu, CEN_LEVEL_SHARED, "cen_chase_shared", 32 << 10,
                   gpu->quick ? 1 << 12 : 1 << 16);
    for (size_t i = 0; i < sizeof outside / sizeof *outside && !gpu->lost; i++) {
        outside[i](gpu);
    }
}
