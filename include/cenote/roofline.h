/* Kernels judged on paper: bank conflicts of an access to shared memory, the traffic of a tile, and
 * time against ceilings. No device is asked; nothing here is measured.
 *
 * docs/banks.md, docs/tile.md and docs/roofline.md have the formulas with their sources. Any thread
 * may call. */
#ifndef CENOTE_ROOFLINE_H
#define CENOTE_ROOFLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/dtype.h"
#include "cenote/probe.h"
#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Banks of shared memory
 *
 * Shared memory has 32 banks; the 4-byte word w lies in bank w mod 32. In one wavefront each bank
 * gives one word, to as many lanes as ask for it (CUDA C++ Programming Guide, "Shared Memory" of
 * the compute capabilities from 5.0 on). A warp's access of up to 4 bytes a lane is one pass; of 8
 * bytes it is two, a half-warp each; of 16 bytes four, a quarter-warp each. */
#define CEN_BANKS      32
#define CEN_BANK_BYTES 4
#define CEN_WARP_LANES 32

/* The most shared memory that a block gets on any device so far (sm_90), in bytes. */
#define CEN_SHARED_MAX ((uint32_t)227 << 10)

/* One access of a warp. */
typedef struct cen_bank_access {
    uint32_t degree;           /* the most words that one pass wants of one bank; 1: no conflict */
    uint32_t wavefronts;       /* the sum of that over the passes */
    uint32_t ideal_wavefronts; /* the passes with a lane in them */
} cen_bank_access;

/* Judges the access of one warp: lane i reads or writes `bytes` bytes at offsets[i] of shared
 * memory. lanes: 1 to 32. CEN_ERR_INVALID: bytes is not 1, 2, 4, 8 or 16, an offset is no multiple
 * of it, or lanes is out of range. */
CEN_API cen_status cen_banks_warp(const uint32_t *offsets, uint32_t lanes, uint32_t bytes,
                                  cen_bank_access *access);

/* How warps walk over a tile of rows x cols elements, 32 elements an access. */
typedef enum cen_walk {
    CEN_WALK_ROW = 0,        /* along the rows, one after another: the layout's own order */
    CEN_WALK_COLUMN = 1,     /* down the columns, one after another */
    CEN_WALK_TRANSPOSED = 2, /* along the rows, then down the columns: stored, then read turned */
    CEN_WALK_STRIDED = 3     /* every `stride`-th element in order of rows */
} cen_walk;

/* Columns are exchanged within a row, so that a column's elements lie in different banks: element
 * (row, column) lies where (row, column ^ ((row >> shift & (2^bits - 1)) << base)) would. bits 0:
 * nothing is exchanged. 2^(bits + base) has to divide the columns, or it would leave the row. */
typedef struct cen_swizzle {
    uint32_t bits, base, shift;
} cen_swizzle;

/* A tile in shared memory and the walk over it. Zero-initialise and set `size` to sizeof. Element
 * (r, c) lies at byte (r * (cols + pad) + swizzled c) * elem_bytes. */
typedef struct cen_banks_tile {
    size_t size;
    cen_walk walk;
    uint32_t rows, cols;
    uint32_t elem_bytes; /* of one lane's access: 1, 2, 4, 8 or 16 */
    uint32_t pad;        /* elements between the end of a row and the next */
    uint32_t stride;     /* CEN_WALK_STRIDED alone: elements from lane to lane */
    cen_swizzle swizzle;
} cen_banks_tile;

/* All accesses of a walk. Wavefronts beyond the ideal ones are the conflicts that profilers count.
 */
typedef struct cen_banks_result {
    uint32_t degree;    /* of the worst access */
    double mean_degree; /* over the accesses */
    uint64_t accesses, wavefronts, ideal_wavefronts;
} cen_banks_result;

/* Judges the walk. CEN_ERR_INVALID: the tile is empty, does not fit into CEN_SHARED_MAX, or a field
 * is out of range (the log says which). */
CEN_API cen_status cen_banks_judge(const cen_banks_tile *tile, cen_banks_result *result);

/* Judges one access of the walk: the index-th of cen_banks_result's `accesses`, from 0. Errors as
 * cen_banks_judge's; CEN_ERR_NOT_FOUND: there are fewer. */
CEN_API cen_status cen_banks_judge_access(const cen_banks_tile *tile, uint64_t index,
                                          cen_bank_access *access);

/* What removes every conflict of a walk, each alone, from a layout with neither. */
typedef struct cen_banks_remedy {
    bool has_pad, has_swizzle; /* false: there is none, or none that fits */
    uint32_t pad;              /* the smallest */
    cen_swizzle swizzle;       /* of the fewest bits; among those of the lowest shift, then base */
} cen_banks_remedy;

/* Looks for what removes the conflicts of the walk; the tile's own pad and swizzle do not count. A
 * walk without a conflict gets pad 0 and a swizzle of 0 bits. Errors as cen_banks_judge's. */
CEN_API cen_status cen_banks_find_remedy(const cen_banks_tile *tile, cen_banks_remedy *remedy);

/* Roofline
 *
 * Work of F operations that moves B bytes to and from a level takes at least F / peak and at least
 * B / bandwidth (Williams, Waterman, Patterson: "Roofline: an insightful visual performance model",
 * 2009; several levels as in its hierarchical form). It also takes at least one access's latency:
 * by Little's law latency x bandwidth bytes have to be in flight to reach the bandwidth, so that
 * work of fewer bytes is held up by the latency. */
#define CEN_ROOFLINE_LEVELS 8

/* What takes longest. */
typedef enum cen_bound {
    CEN_BOUND_MEMORY = 0,  /* moving the bytes of one level */
    CEN_BOUND_COMPUTE = 1, /* the arithmetic */
    CEN_BOUND_LATENCY = 2  /* one access */
} cen_bound;

/* "memory-bound", "compute-bound", "latency-bound"; "?" for another value. */
CEN_API const char *cen_bound_name(cen_bound bound);

/* Bytes that work moves to and from a level. */
typedef struct cen_traffic {
    const char *level;      /* NULL: the device's main memory */
    double bytes;           /* over 0 */
    double bandwidth;       /* bytes a second; 0: as the device has it */
    double latency_seconds; /* of one access; 0: as the device has it, if it has */
} cen_traffic;

/* Zero-initialise and set `size` to sizeof. */
typedef struct cen_work {
    size_t size;
    double flops;                   /* operations; 0: it only moves bytes */
    double peak_flops;              /* operations a second; 0: the device's rate of `type` */
    cen_dtype type;                 /* for that rate alone */
    const cen_traffic *traffic;     /* a level each */
    size_t traffic_count;           /* 1 to CEN_ROOFLINE_LEVELS */
    const cen_probe_device *device; /* ceilings as measured; NULL: all are given above */
} cen_work;

/* A level's part: its traffic against its ceiling. */
typedef struct cen_roofline_level {
    char level[32];
    double bytes, bandwidth; /* bytes a second */
    double latency_seconds;  /* 0: not known */
    double seconds;          /* bytes / bandwidth */
    double intensity;        /* operations a byte */
    double ridge;            /* the intensity at which arithmetic takes as long; 0: no arithmetic */
} cen_roofline_level;

/* The bound, and the least times behind it. */
typedef struct cen_roofline_result {
    cen_bound bound;
    double seconds;    /* the work's least time: the largest of the three below */
    size_t level;      /* that decides: of the slowest traffic, or of the longest latency */
    double peak_flops; /* the ceiling of arithmetic; 0: there is no arithmetic */
    double compute_seconds, memory_seconds, latency_seconds; /* latency 0: not known */
    cen_roofline_level levels[CEN_ROOFLINE_LEVELS];          /* as `traffic` */
    size_t level_count;
} cen_roofline_result;

/* Judges work against ceilings. CEN_ERR_INVALID: a number is negative, not finite or missing, or a
 * field is out of range; CEN_ERR_NOT_FOUND: a ceiling is neither given nor in the device's results
 * (the log says which). */
CEN_API cen_status cen_roofline_judge(const cen_work *work, cen_roofline_result *result);

/* Tiles
 *
 * A chain of operations on m rows, planned twice: a kernel for each operation, and fused into as
 * few kernels as the tile allows. docs/tile.md has the model: what is counted at each level, how a
 * block's resources are estimated, and the sources of the limits. */

/* What the map counts bytes at. */
typedef enum cen_tile_level {
    CEN_TILE_HBM = 0, /* the main memory, of whatever kind */
    CEN_TILE_L2 = 1,
    CEN_TILE_SHARED = 2,
    CEN_TILE_REGISTERS = 3
} cen_tile_level;
#define CEN_TILE_LEVELS 4

/* "HBM", "L2", "shared", "registers": the names of a probe's results; "?" for another value. */
CEN_API const char *cen_tile_level_name(cen_tile_level level);

/* Zero-initialise and set `size` to sizeof. */
typedef struct cen_tile_request {
    size_t size;
    uint64_t m, n, k; /* rows, the columns of a "linear" without a number, columns of the input */
    cen_dtype type;   /* of all operands and results: fp32, tf32, fp16, bf16, fp8 or int8; sums
                         are of 4 bytes */
    /* Operations after each other, by commas, in any case of letters: "linear 4096, bias, gelu,
     * linear 1024". linear: a product with a weight of that many columns; bias, scale: with one
     * number a column; residual: with a tensor of its own; relu, gelu. NULL: "linear". */
    const char *chain;
    uint32_t sm;                    /* 80 or 90; 0: 90 */
    uint32_t bm, bn, bk;            /* the tile of a block; all 0: chosen */
    uint32_t stages;                /* tiles of operands in flight; 0: chosen */
    uint32_t warps;                 /* that multiply, in a block; 0: chosen */
    uint32_t multiprocessors;       /* 0: the device's, else 108 (sm_80) or 132 (sm_90) */
    uint64_t l2_bytes;              /* 0: the device's, else 40 MiB (sm_80) or 50 MiB (sm_90) */
    double peak_flops, bandwidth;   /* of `type`, and of the main memory; 0: the device's */
    const cen_probe_device *device; /* may be NULL: then without times */
} cen_tile_request;

/* A kernel of the plan. */
typedef struct cen_tile_kernel {
    char name[768];                    /* its operations: "linear 4096 + bias + gelu" */
    double flops;                      /* of the operations */
    double executed_flops;             /* of whole tiles: with what hangs over the edges */
    double bytes[CEN_TILE_LEVELS];     /* moved at each level; a whole number */
    double intensity[CEN_TILE_LEVELS]; /* flops a byte; 0 where no byte is moved */
    double balance; /* operations a byte of HBM, idle multiprocessors' included: it is
                       compute-bound on machines whose ridge is below; 0: no product */
    uint64_t blocks;
    uint32_t threads, registers; /* of a block, of a thread */
    bool spills;                 /* it needs more registers than a thread has */
    uint32_t shared_bytes;       /* of a block */
    uint32_t resident;           /* blocks a multiprocessor */
    const char *limit;           /* of that: "registers", "shared memory", "warps" or "blocks" */
    double occupancy;            /* its warps, of those that a multiprocessor can hold */
    double waves;                /* blocks / all places for them */
    double tail;                 /* share of the last wave's places in use: 1, it is full */
    bool judged;                 /* the ceilings are known, and so what follows */
    cen_bound bound;
    char bound_level[32]; /* of CEN_BOUND_MEMORY and CEN_BOUND_LATENCY */
    double seconds;
} cen_tile_kernel;

/* What a place holds. */
typedef enum cen_tile_kind {
    CEN_TILE_OPERAND = 0,      /* read from outside of the chain */
    CEN_TILE_INTERMEDIATE = 1, /* made by an operation for the next one */
    CEN_TILE_RESULT = 2,       /* the chain's */
    CEN_TILE_BUFFER = 3        /* of each block: tiles in flight, sums */
} cen_tile_kind;

/* "operand", "intermediate", "result", "buffer"; "?" for another value. */
CEN_API const char *cen_tile_kind_name(cen_tile_kind kind);

/* Where a tensor, or a block's part of one, lives. */
typedef struct cen_tile_place {
    char name[48]; /* "input", "weight of linear 1", "after bias 2", ...: by place in the chain */
    cen_tile_kind kind;
    uint64_t rows, cols;
    double bytes;
    cen_tile_level unfused, fused;
} cen_tile_place;

/* One way to run the chain. */
typedef struct cen_tile_plan {
    const cen_tile_kernel *kernels;
    size_t count;
    double bytes[CEN_TILE_LEVELS]; /* of all kernels */
    bool judged;
    double seconds; /* of all, where judged */
} cen_tile_plan;

/* The chain planned: what the request left open, settled, and both plans. */
typedef struct cen_tile_map {
    cen_dtype type;
    uint32_t sm, bm, bn, bk, stages, warps, multiprocessors;
    uint64_t l2_bytes;
    bool has_product; /* else no tile is used */
    double flops;
    double peak_flops, bandwidth; /* the ceilings; 0: not known */
    cen_tile_plan unfused, fused;
    const cen_tile_place *places;
    size_t place_count;
} cen_tile_map;

/* Plans the chain. CEN_ERR_INVALID: a number is out of range, the chain cannot be read, or a block
 * of that tile does not fit into a multiprocessor (the log says which); CEN_ERR_UNSUPPORTED: the
 * architecture does not multiply that type; CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_tile_make(const cen_tile_request *request, cen_tile_map **map);
/* NULL is ignored. */
CEN_API void cen_tile_free(cen_tile_map *map);

#ifdef __cplusplus
}
#endif
#endif
