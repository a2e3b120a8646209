/* Kernels judged by a profiler's counters: what Nsight Compute (ncu) recorded, or, where that may
 * not count, what the driver tells of whole devices.
 *
 * docs/profile.md has the formula of each figure, the counters behind it and the thresholds of a
 * verdict. A figure that the recording does not hold is absent with its reason, never a guess.
 * Profiles are immutable: any number of threads may use one. Any thread may call. */
#ifndef CENOTE_PROFILE_H
#define CENOTE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/probe.h"
#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_profile cen_profile;

/* Figures of a kernel: name, key in outputs, unit. Shares and rates are of 1. */
#define CEN_PROFILE_FIGURE_MAP(X)                                                                  \
    X(SECONDS, "seconds", "s")      /* of all its launches */                                      \
    X(DRAM_SHARE, "dram_share", "") /* of the peak of the main memory's bandwidth */               \
    X(L2_SHARE, "l2_share", "")                                                                    \
    X(L1_SHARE, "l1_share", "")           /* of L1, shared memory and what feeds them */           \
    X(COMPUTE_SHARE, "compute_share", "") /* of the busiest arithmetic pipe, or of issuing */      \
    X(TENSOR_SHARE, "tensor_share", "")   /* of tensor cores */                                    \
    X(L2_HIT, "l2_hit", "")                                                                        \
    X(L1_HIT, "l1_hit", "")                                                                        \
    X(LOAD_BYTES, "load_bytes_per_sector", "B") /* used of each 32 that a load moves */            \
    X(STORE_BYTES, "store_bytes_per_sector", "B")                                                  \
    X(BANK_RATIO, "bank_ratio", "")  /* wavefronts to shared memory, of the ideal */               \
    X(DRAM_BYTES, "dram_bytes", "B") /* read and written, of all launches */                       \
    X(L2_BYTES, "l2_bytes", "B")                                                                   \
    X(L1_BYTES, "l1_bytes", "B")                                                                   \
    X(FP32, "fp32_operations", "") /* a multiplication and an addition are two */                  \
    X(FP64, "fp64_operations", "")                                                                 \
    X(FP16, "fp16_operations", "")                                                                 \
    X(TENSOR, "tensor_operations", "")      /* integers' too */                                    \
    X(OPERATIONS, "operations", "")         /* the sum of these four */                            \
    X(INTENSITY, "intensity", "/B")         /* operations a byte of DRAM */                        \
    X(OCCUPANCY, "occupancy", "")           /* warps at work, of those that fit a device */        \
    X(OCCUPANCY_MOST, "occupancy_most", "") /* that its resources allow */                         \
    X(REGISTERS, "registers", "")           /* a thread */                                         \
    X(WAVES, "waves", "")                   /* blocks, of those that run at a time */

typedef enum cen_profile_figure {
#define CEN_PROFILE_ENUM(name, key, unit) CEN_PROFILE_##name,
    CEN_PROFILE_FIGURE_MAP(CEN_PROFILE_ENUM)
#undef CEN_PROFILE_ENUM
        CEN_PROFILE_FIGURES /* how many there are */
} cen_profile_figure;

/* "dram_share", ...; "?" for another value. */
CEN_API const char *cen_profile_key(cen_profile_figure figure);

typedef struct cen_profile_value {
    double value;        /* 0 or more, finite; 0 if it is not known */
    const char *missing; /* why it is not known: one line; NULL: it is known */
} cen_profile_value;

/* What bounds a kernel. */
#define CEN_PROFILE_BOUND_MAP(X)                                                                   \
    X(UNKNOWN, "unknown")                                                                          \
    X(DRAM, "memory-bound at DRAM")                                                                \
    X(L2, "memory-bound at L2")                                                                    \
    X(L1, "memory-bound at L1 or shared memory")                                                   \
    X(COMPUTE, "compute-bound")                                                                    \
    X(LATENCY, "latency-bound")                                                                    \
    X(SMALL, "launch-bound or too small")

typedef enum cen_profile_bound {
#define CEN_PROFILE_ENUM(name, text) CEN_PROFILE_BY_##name,
    CEN_PROFILE_BOUND_MAP(CEN_PROFILE_ENUM)
#undef CEN_PROFILE_ENUM
        CEN_PROFILE_BOUNDS
} cen_profile_bound;

/* "memory-bound at DRAM", ...; "?" for another value. */
CEN_API const char *cen_profile_bound_name(cen_profile_bound bound);

/* The hit rate of L2 below which it is flagged. */
#define CEN_PROFILE_L2_HIT_LOW 0.8

/* The launches of one kernel in one shape on one device. */
typedef struct cen_profile_row {
    const char *kernel;       /* UTF-8, without controls; at most 4 KiB of the recorded name */
    char grid[48], block[48]; /* "(256, 1, 1)"; "" if the recording does not tell */
    uint32_t device;          /* as the recording numbers them */
    uint64_t launches;
    double time_share; /* of the time of all kernels; 0 if a time is not known */
    cen_profile_value figures[CEN_PROFILE_FIGURES];
    const char *limit; /* what keeps more warps from a multiprocessor: "registers", "shared memory",
                          "warps", "blocks"; "" if not known */
    cen_profile_bound bound;
    double bound_share; /* the share that decided; 0: none did */
    const char *reason; /* how the verdict came about: one line */
    const char *advice; /* the one thing to try: one line; "" with CEN_PROFILE_BY_UNKNOWN */
} cen_profile_row;

/* Reads what ncu wrote with --csv, --page raw or details: the lines before the table, units, digits
 * in groups. Rows are sorted by time, those without one last. CEN_ERR_NOT_FOUND: there is no such
 * file, or ncu profiled no kernel; CEN_ERR_PERMISSION: it was not allowed to count;
 * CEN_ERR_TRUNCATED: the file is empty or ends within a row; CEN_ERR_FORMAT: it is none, or the log
 * says which line is off; CEN_ERR_IO; CEN_ERR_HOST_MEMORY; CEN_ERR_INVALID: an argument is NULL. */
CEN_API cen_status cen_profile_read(const char *path, cen_profile **profile);

/* The same from memory, which need not end with NUL; `name` stands for it in messages. */
CEN_API cen_status cen_profile_read_memory(const char *name, const void *data, size_t size,
                                           cen_profile **profile);

/* NULL is ignored. No other thread may be using it. */
CEN_API void cen_profile_free(cen_profile *profile);

/* How many rows there are; 0 of NULL. */
CEN_API size_t cen_profile_count(const cen_profile *profile);
/* The index-th row, from 0; NULL if there are not so many. Lives as `profile` does. */
CEN_API const cen_profile_row *cen_profile_get(const cen_profile *profile, size_t index);

/* The metrics that ncu is to record, with commas between, for the caller to free(). `offered` is
 * what `ncu --query-metrics` printed, of which only what is there is asked for: one name that a
 * device does not have ends ncu. NULL, or a text that names none of ours: those of sm_90.
 * CEN_ERR_INVALID: `metrics` is NULL; CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_profile_metrics(const char *offered, char **metrics);

/* A row against what a probe measured of its device: shares of 1; 0: not known. */
typedef struct cen_profile_measured {
    double dram, l2; /* bytes over time, of the level's bandwidth */
    double fp32;     /* operations in fp32 over time, of their rate */
} cen_profile_measured;

/* CEN_ERR_INVALID: an argument is NULL. */
CEN_API cen_status cen_profile_measure(const cen_profile_row *row, const cen_probe_device *device,
                                       cen_profile_measured *measured);

/* Whole devices
 *
 * The driver's counters of devices (NVML's GPM; Hopper and later) need no rights and no replay, and
 * know no kernels: what else runs on a device counts, too. A sampler is one thread's at a time. */

/* Shares of 1 of what a device could do: name, key in outputs, what it is. */
#define CEN_SAMPLE_MAP(X)                                                                          \
    X(SM, "sm", "multiprocessors at work")                                                         \
    X(OCCUPANCY, "occupancy", "warps on multiprocessors")                                          \
    X(DRAM, "dram", "DRAM bandwidth")                                                              \
    X(TENSOR, "tensor", "tensor cores")                                                            \
    X(FP32, "fp32", "fp32 pipes")                                                                  \
    X(FP16, "fp16", "fp16 pipes")                                                                  \
    X(FP64, "fp64", "fp64 pipes")

typedef enum cen_sample_share {
#define CEN_SAMPLE_ENUM(name, key, text) CEN_SAMPLE_##name,
    CEN_SAMPLE_MAP(CEN_SAMPLE_ENUM)
#undef CEN_SAMPLE_ENUM
        CEN_SAMPLE_SHARES
} cen_sample_share;

/* "sm", ... and "multiprocessors at work", ...; "?" for another value. */
CEN_API const char *cen_sample_key(cen_sample_share share);
CEN_API const char *cen_sample_text(cen_sample_share share);

/* A stretch of time of a device. */
typedef struct cen_sample_moment {
    double seconds;                   /* its end, from the sampler's start */
    double length;                    /* seconds, over 0 */
    double shares[CEN_SAMPLE_SHARES]; /* means over it; below 0: the device does not tell */
} cen_sample_moment;

/* What is known of a device. Moments are joined in pairs as they become many. */
typedef struct cen_sample_device {
    char name[128];
    uint32_t index; /* NVML's */
    const cen_sample_moment *moments;
    size_t count;
} cen_sample_device;

typedef struct cen_sampler cen_sampler;

/* Starts on all devices that count. CEN_ERR_NO_DEVICE: there is no driver, or it has no device;
 * CEN_ERR_UNSUPPORTED: no device counts, the log says why; CEN_ERR_DEVICE; CEN_ERR_HOST_MEMORY;
 * CEN_ERR_INVALID: `sampler` is NULL. */
CEN_API cen_status cen_sampler_open(cen_sampler **sampler);

/* Reads the counters if a tenth of a second has passed since they were read last; cheap otherwise.
 * A device that fails to tell keeps what it told before. CEN_ERR_INVALID. */
CEN_API cen_status cen_sampler_take(cen_sampler *sampler);

/* How many devices count; 0 of NULL. */
CEN_API size_t cen_sampler_count(const cen_sampler *sampler);
/* The index-th device that counts, from 0; NULL if there are not so many. Valid until the next
 * cen_sampler_take. */
CEN_API const cen_sample_device *cen_sampler_get(const cen_sampler *sampler, size_t index);
/* Ends it; what cen_sampler_get gave is gone. NULL is ignored. */
CEN_API void cen_sampler_close(cen_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
