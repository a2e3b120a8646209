/* NVML: what a driver tells of its devices and of the processes on them.
 *
 * The library (libnvidia-ml.so.1) is loaded at the first call and kept. All its calls are made one
 * at a time, so that a fork finds none under way; a forked child starts it anew. Nothing here logs:
 * a failure puts its reason into `why`, for the caller, who knows what it means. */
#ifndef CENI_NVML_H
#define CENI_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/status.h"

/* The library's interface, declared here so that no toolkit is needed (test_nvml_abi.c). */
typedef struct nvml_process_v1 {
    unsigned pid;
    unsigned long long bytes;
} nvml_process_v1;

typedef struct nvml_process_v2 {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance;
    unsigned compute_instance;
} nvml_process_v2;

typedef struct nvml_memory_v1 {
    unsigned long long total, free, used;
} nvml_memory_v1;

typedef struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;

/* Counters over a stretch of time. The library's own number of metrics has grown, so there is room
 * for more than any has had. */
typedef struct nvml_gpm_metric {
    unsigned id;
    unsigned result;
    double value;
    struct {
        char *short_name, *long_name, *unit;
    } info;
} nvml_gpm_metric;

typedef struct nvml_gpm_metrics {
    unsigned version, count;
    void *first, *second; /* samples */
    nvml_gpm_metric metrics[512];
} nvml_gpm_metrics;

typedef struct nvml_gpm_support {
    unsigned version, supported;
} nvml_gpm_support;

#define NVML_GPM_V1 1u

#define NVML_MEMORY_V2 ((unsigned)sizeof(nvml_memory_v2) | 2u << 24)

/* Name of ours, name and value of the library's. */
#define NVML_RESULT_MAP(X)                                                                         \
    X(OK, NVML_SUCCESS, 0)                                                                         \
    X(INVALID_ARGUMENT, NVML_ERROR_INVALID_ARGUMENT, 2)                                            \
    X(NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED, 3)                                                  \
    X(NOT_FOUND, NVML_ERROR_NOT_FOUND, 6)                                                          \
    X(INSUFFICIENT_SIZE, NVML_ERROR_INSUFFICIENT_SIZE, 7)                                          \
    X(DRIVER_NOT_LOADED, NVML_ERROR_DRIVER_NOT_LOADED, 9)                                          \
    X(LIBRARY_NOT_FOUND, NVML_ERROR_LIBRARY_NOT_FOUND, 12)                                         \
    X(FUNCTION_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND, 13)                                       \
    X(MEMORY, NVML_ERROR_MEMORY, 20)

enum {
#define CENI_NVML_ENUM(name, theirs, value) CENI_NVML_##name = (value),
    NVML_RESULT_MAP(CENI_NVML_ENUM)
#undef CENI_NVML_ENUM
};

typedef struct ceni_nvml_why {
    char text[256]; /* one line */
} ceni_nvml_why;

/* A device as the library names it; good until the process forks. */
typedef void *ceni_nvml_device;

typedef struct ceni_nvml_memory {
    uint64_t total, used, free;
    uint64_t reserved; /* by the driver, beside `used`; 0 where it is counted as used */
} ceni_nvml_memory;

#define CENI_NVML_UNKNOWN UINT64_MAX

typedef struct ceni_nvml_process {
    int pid;
    uint64_t bytes; /* CENI_NVML_UNKNOWN where the driver does not tell */
} ceni_nvml_process;

/* CEN_ERR_NO_DEVICE: no library, or no driver; CEN_ERR_DEVICE: the library fails. */
cen_status ceni_nvml_count(unsigned *count, ceni_nvml_why *why);
/* CEN_ERR_NO_DEVICE, CEN_ERR_DEVICE. */
cen_status ceni_nvml_at(unsigned index, ceni_nvml_device *device, ceni_nvml_why *why);
/* CEN_ERR_NOT_FOUND besides. */
cen_status ceni_nvml_find(const char *uuid, ceni_nvml_device *device, ceni_nvml_why *why);
cen_status ceni_nvml_identity(ceni_nvml_device device, char uuid[48], char name[128],
                              ceni_nvml_why *why);
cen_status ceni_nvml_memory_of(ceni_nvml_device device, ceni_nvml_memory *memory,
                               ceni_nvml_why *why);
/* Those that compute and those that draw, each once; freed with ceni_free. CEN_ERR_UNSUPPORTED,
 * CEN_ERR_HOST_MEMORY, CEN_ERR_DEVICE. */
cen_status ceni_nvml_processes(ceni_nvml_device device, ceni_nvml_process **processes,
                               size_t *count, ceni_nvml_why *why);
/* What the device has taken since the driver was loaded. CEN_ERR_UNSUPPORTED: it has no counter. */
cen_status ceni_nvml_energy(ceni_nvml_device device, uint64_t *millijoules, ceni_nvml_why *why);
/* The best link between device and host: of which generation, of how many lanes.
 * CEN_ERR_UNSUPPORTED. */
cen_status ceni_nvml_pcie(ceni_nvml_device device, unsigned *generation, unsigned *width,
                          ceni_nvml_why *why);
/* Counters of a device between two samples (GPM: Hopper and later). Whether it has them:
 * CEN_ERR_UNSUPPORTED if not. */
cen_status ceni_nvml_counts(ceni_nvml_device device, ceni_nvml_why *why);
/* A sample's place; good until the process forks. CEN_ERR_HOST_MEMORY. */
typedef void *ceni_nvml_sample;
cen_status ceni_nvml_sample_make(ceni_nvml_sample *sample, ceni_nvml_why *why);
void ceni_nvml_sample_free(ceni_nvml_sample sample);
cen_status ceni_nvml_sample_take(ceni_nvml_device device, ceni_nvml_sample sample,
                                 ceni_nvml_why *why);
/* Values of `count` metrics, by the library's numbers, from one sample to a later one; NAN: it does
 * not tell. count: up to 64. */
cen_status ceni_nvml_sample_compare(ceni_nvml_sample first, ceni_nvml_sample second,
                                    const unsigned *ids, size_t count, double *values,
                                    ceni_nvml_why *why);
/* The name that the driver has of a process; false: none. */
bool ceni_nvml_program(int pid, char *name, size_t size);

#endif
