/* Measuring a device through its backend: the kernels of kernels/hierarchy.h, and copies. */
#ifndef CENI_PROBE_GPU_H
#define CENI_PROBE_GPU_H

#include "dev/dev.h"
#include "probe/probe.h"

enum { CENI_GPU_LINE = 128, CENI_GPU_OUT_WORDS = 512 };

typedef struct ceni_gpu {
    cen_device *device;
    cen_device *const *devices; /* all; NULL where one could not be opened */
    size_t count, self;
    cen_device_props props;
    ceni_dev_limits limits;
    bool quick;
    uint32_t multiprocessors; /* at least 1 */
    const char *memory_level; /* "HBM" or "DRAM" */
    cen_stream stream, other;
    cen_event events[2];
    cen_addr out;     /* CENI_GPU_OUT_WORDS words of 8 bytes */
    uint64_t *result; /* the same, pinned */
    cen_addr memory;  /* of the device */
    uint64_t memory_bytes;
    char *staging; /* pinned */
    uint64_t staging_bytes;
    bool lost; /* nothing more can be measured: its memory may be in use for ever */
    ceni_draft *draft;
} ceni_gpu;

/* A launch whose last arguments are `rounds` and perhaps `out`. */
typedef struct ceni_gpu_work {
    const char *kernel;
    cen_launch shape;
    void *args[8];
    size_t arg_count;
    uint64_t *rounds; /* one of the arguments */
    double bytes;     /* that a round moves */
} ceni_gpu_work;

/* Notes in the draft that a figure of the level failed with the status, whose reason was logged,
 * and waits for what is under way still; true if it failed. */
bool ceni_gpu_failed(ceni_gpu *gpu, const char *level, const char *figure, cen_status status);
/* Whether all that was enqueued is done: after a failure some of it may still be under way, and
 * what it uses must be neither written nor freed. */
bool ceni_gpu_idle(ceni_gpu *gpu);
/* The launch for the whole device: so many blocks a multiprocessor, of so many threads. */
cen_launch ceni_gpu_shape(const ceni_gpu *gpu, uint32_t blocks, uint32_t threads,
                          uint32_t shared_bytes);
/* 10^9 bytes a second of a launch that takes at least a millisecond; rounds stay odd. */
cen_status ceni_gpu_rate(ceni_gpu *gpu, const ceni_gpu_work *work, ceni_samples *gbps);
/* Launches, waits, and copies `words` of the results. */
cen_status ceni_gpu_launch(ceni_gpu *gpu, const char *kernel, cen_launch shape, void **args,
                           size_t arg_count, size_t words);

/* The parts of ceni_probe_device; what fails is skipped with its reason. */
void ceni_gpu_latencies(ceni_gpu *gpu);
void ceni_gpu_bandwidths(ceni_gpu *gpu);
void ceni_gpu_link(ceni_gpu *gpu);
void ceni_gpu_peers(ceni_gpu *gpu);
void ceni_gpu_managed(ceni_gpu *gpu);
void ceni_gpu_energy(ceni_gpu *gpu);

#endif
