/* A machine's memory hierarchy as it was measured: the results file that `cenote probe` writes,
 * read for the parts that judge by it.
 *
 * docs/formats/probe.md describes the file. What was not measured is 0 or absent here, never a
 * guess. Results are immutable: any number of threads may use them. Any thread may call. */
#ifndef CENOTE_PROBE_H
#define CENOTE_PROBE_H

#include <stddef.h>
#include <stdint.h>

#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_probe cen_probe;

/* Levels that other parts look for by name; a file may hold more. A device's main memory is "HBM",
 * or "DRAM" where it is of another kind. */
#define CEN_LEVEL_REGISTERS "registers"
#define CEN_LEVEL_SHARED    "shared"
#define CEN_LEVEL_L1        "L1"
#define CEN_LEVEL_L2        "L2"
#define CEN_LEVEL_L3        "L3"
#define CEN_LEVEL_HBM       "HBM"
#define CEN_LEVEL_DRAM      "DRAM"

/* A level of the hierarchy. At least one of the three figures is known. */
typedef struct cen_probe_level {
    char level[32];
    uint64_t capacity_bytes; /* of the whole device; 0: not measured */
    double latency_ns;       /* of one access that depends on the one before; 0: not measured */
    double bandwidth_gbps;   /* 10^9 bytes a second, of the whole device; 0: not measured */
} cen_probe_level;

/* A level, or a figure of one, that the machine could not measure. */
typedef struct cen_probe_skipped {
    char level[32];
    char reason[256];
} cen_probe_skipped;

/* The rate of arithmetic in a type of number. */
typedef struct cen_probe_rate {
    char dtype[16]; /* "fp32", "bf16", ... */
    double flops;   /* operations a second; a multiplication and an addition are two */
} cen_probe_rate;

typedef struct cen_probe_device {
    char name[128];           /* "" if the file does not tell */
    uint32_t multiprocessors; /* 0: not told */
    const cen_probe_level *levels;
    size_t level_count;
    const cen_probe_skipped *skipped;
    size_t skipped_count;
    const cen_probe_rate *rates;
    size_t rate_count;
} cen_probe_device;

/* Reads a results file; path NULL: this machine's (cen_probe_path). The whole file is checked, and
 * the log says which place in it is wrong. CEN_ERR_NOT_FOUND: there is no such file; CEN_ERR_IO;
 * CEN_ERR_FORMAT: it is not what docs/formats/probe.md says; CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_probe_load(const char *path, cen_probe **probe);

/* The same from memory, which need not end with NUL; `name` stands for it in messages. */
CEN_API cen_status cen_probe_load_memory(const char *name, const void *data, size_t size,
                                         cen_probe **probe);

CEN_API void cen_probe_free(cen_probe *probe);

/* Where this machine's results are kept: $CENOTE_PROBE, else probe-HOST.json in the folder cenote
 * of $XDG_CACHE_HOME or of ~/.cache. CEN_ERR_INVALID: `path` is NULL or `size` too small;
 * CEN_ERR_NOT_FOUND: none of the three variables is set. */
CEN_API cen_status cen_probe_path(char *path, size_t size);

CEN_API size_t cen_probe_device_count(const cen_probe *probe);
/* The index-th device of the file, from 0; NULL if there are not so many. Lives as `probe` does. */
CEN_API const cen_probe_device *cen_probe_get_device(const cen_probe *probe, size_t index);

/* The level of that name; NULL: the file does not have it. */
CEN_API const cen_probe_level *cen_probe_get_level(const cen_probe_device *device,
                                                   const char *level);
/* The main memory's: "HBM", else "DRAM". */
CEN_API const cen_probe_level *cen_probe_get_memory(const cen_probe_device *device);
/* Operations a second in that type; 0: the file does not have it. */
CEN_API double cen_probe_get_rate(const cen_probe_device *device, const char *dtype);

#ifdef __cplusplus
}
#endif
#endif
