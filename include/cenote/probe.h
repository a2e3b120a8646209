/* A machine's memory hierarchy: measured, and kept in a results file for the parts that judge by
 * it.
 *
 * docs/formats/probe.md describes the file, docs/hierarchy.md how each figure is measured. What was
 * not measured is 0 or absent here, never a guess. Results are immutable: any number of threads may
 * use them. Any thread may call. */
#ifndef CENOTE_PROBE_H
#define CENOTE_PROBE_H

#include <stdbool.h>
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
#define CEN_LEVEL_LINK      "link" /* between host and device; on the host, memcpy */
#define CEN_LEVEL_PEER      "peer"
#define CEN_LEVEL_UNIFIED   "unified memory" /* moved by the driver to where it is used */
#define CEN_LEVEL_DISK      "disk"

/* A measured figure: the median of its samples, the lowest and the highest. */
typedef struct cen_probe_spread {
    double low, high; /* 0: not told */
} cen_probe_spread;

/* A level of the hierarchy. At least one of capacity, latency and bandwidth is known. */
typedef struct cen_probe_level {
    char level[32];
    uint64_t capacity_bytes; /* of the whole device; 0: not measured */
    double latency_ns;       /* of one access that depends on the one before; 0: not measured */
    double bandwidth_gbps;   /* 10^9 bytes a second, of the whole device, by the access that is
                                fastest; 0: not measured */
    uint64_t unit_bytes;     /* of one of its parts, such as a core's cache; 0: not told */
    double latency_cycles;   /* of the clock at which it was measured; 0: not measured */
    cen_probe_spread latency_spread;   /* of latency_ns */
    cen_probe_spread bandwidth_spread; /* of bandwidth_gbps */
    double peak_gbps;                  /* what clocks and widths promise; 0: not known */
    double picojoules_per_byte;        /* of a read, without what the idle device takes; 0: not
                                          measured */
} cen_probe_level;

/* The bandwidth of one kind of access. */
typedef struct cen_probe_transfer {
    char level[32];
    char access[32];  /* "read", "write", "copy", "triad", "H2D pinned", ... */
    uint32_t threads; /* of the host; 0: does not apply */
    uint64_t bytes;   /* that a thread or a device works on, or a copy moves; over 0 */
    double gbps;      /* over 0; what is read and what is written both count, save for copies of
                         "link" and "peer", whose bytes count once */
    cen_probe_spread spread;
} cen_probe_transfer;

/* The latency of dependent accesses to so many bytes. */
typedef struct cen_probe_step {
    uint64_t bytes;
    double ns;
    cen_probe_spread spread;
} cen_probe_step;

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
    const cen_probe_transfer *transfers;
    size_t transfer_count;
    const cen_probe_step *steps; /* by size */
    size_t step_count;
    uint64_t page_bytes; /* of the memory that latencies were measured in; 0: not told */
} cen_probe_device;

/* Zero-initialise and set `size` to sizeof. */
typedef struct cen_probe_options {
    size_t size;
    const char *dir; /* where the disk is measured; NULL: $TMPDIR, else /tmp */
    bool quick;      /* sizes and times so small that the figures are rough: for tests */
} cen_probe_options;

/* Measures this machine: each GPU, in the driver's order, and then the host. Takes half a minute or
 * so, and wants the machine to itself: up to 3 GiB of each GPU's memory, a quarter of the host's
 * free memory, 256 MiB of the folder's disk (a file without a name). options NULL: defaults. What
 * cannot be measured is in the device's `skipped` with the reason, and is no failure.
 * CEN_ERR_INVALID; CEN_ERR_HOST_MEMORY; CEN_ERR_FORKED. */
CEN_API cen_status cen_probe_run(const cen_probe_options *options, cen_probe **probe);

/* Writes the results to a file, whole or not at all; path NULL: to this machine's (cen_probe_path),
 * whose folders are made. CEN_ERR_INVALID; CEN_ERR_NOT_FOUND: as of cen_probe_path; CEN_ERR_IO: the
 * log says why; CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_probe_write(const cen_probe *probe, const char *path);

/* The file's text, for the caller to free(). CEN_ERR_INVALID, CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_probe_json(const cen_probe *probe, char **text);

/* Reads a results file; path NULL: this machine's (cen_probe_path). The whole file is checked, and
 * the log says which place in it is wrong. CEN_ERR_NOT_FOUND: there is no such file; CEN_ERR_IO;
 * CEN_ERR_FORMAT: it is not what docs/formats/probe.md says; CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_probe_load(const char *path, cen_probe **probe);

/* The same from memory, which need not end with NUL; `name` stands for it in messages. */
CEN_API cen_status cen_probe_load_memory(const char *name, const void *data, size_t size,
                                         cen_probe **probe);

/* NULL is ignored. No other thread may be using it. */
CEN_API void cen_probe_free(cen_probe *probe);

/* Where this machine's results are kept: $CENOTE_PROBE, else probe-HOST.json in the folder cenote
 * of $XDG_CACHE_HOME or of ~/.cache. CEN_ERR_INVALID: `path` is NULL or `size` too small;
 * CEN_ERR_NOT_FOUND: none of the three variables is set. */
CEN_API cen_status cen_probe_path(char *path, size_t size);

/* How many devices the file has, the host among them; 0 of NULL. */
CEN_API size_t cen_probe_device_count(const cen_probe *probe);
/* The index-th device of the file, from 0; NULL if there are not so many. Lives as `probe` does. */
CEN_API const cen_probe_device *cen_probe_get_device(const cen_probe *probe, size_t index);

/* The level of that name; NULL: the file does not have it, or an argument is NULL. */
CEN_API const cen_probe_level *cen_probe_get_level(const cen_probe_device *device,
                                                   const char *level);
/* The main memory's: "HBM", else "DRAM"; NULL: the file has neither, or `device` is NULL. */
CEN_API const cen_probe_level *cen_probe_get_memory(const cen_probe_device *device);
/* Operations a second in that type; 0: the file does not have it, or an argument is NULL. */
CEN_API double cen_probe_get_rate(const cen_probe_device *device, const char *dtype);

#ifdef __cplusplus
}
#endif
#endif
