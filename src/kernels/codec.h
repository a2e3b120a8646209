/* Encoding and decoding a matrix, as include/cenote/codec.h says it: the job that the kernels of
 * codec.cu and their twins are given, and the same done on the calling thread.
 *
 *     cen_encode_extremes(job)  per grid block a pair (least, largest) of floats into `values`,
 *                               where one unit is the whole matrix: the first step of its scale
 *     cen_encode_scales(job)    scales and zero points; of one unit from those pairs
 *     cen_encode(job)           values and metadata; with CENI_CODEC_OWN_SCALES it makes the scales
 *                               of units in one row, which are the row or a group, too
 *     cen_encode_sums(job)      and adds to sums, which are 0 before
 *     cen_encode_sparse(job)    either, of 2:4
 *     cen_encode_each(job)      where eight neighbours have scales of more than one unit
 *     cen_encode_each_sums(job) and adds to sums
 *     cen_decode(job)           the matrix
 *     cen_encode_column_scales(job), cen_encode_block_scales(job)
 *                               as cen_encode_scales: of columns, and of units of whole octets,
 * that are aligned cen_encode_FORM_UNITS_TYPE(job), cen_encode_sums_..., cen_decode_...: the same,
 * of the forms below
 *
 * Read by CUDA, too. */
#ifndef CENI_KERNELS_CODEC_H
#define CENI_KERNELS_CODEC_H

#include <stdint.h>

/* What an encoded element is. */
enum {
    CENI_CODEC_FP16 = 1,
    CENI_CODEC_BF16,
    CENI_CODEC_E4M3,
    CENI_CODEC_E5M2,
    CENI_CODEC_INT8,
    CENI_CODEC_INT4
};
enum {
    CENI_CODEC_SCALED = 1,
    CENI_CODEC_ASYMMETRIC = 2,
    CENI_CODEC_SPARSE = 4, /* 2:4 */
    CENI_CODEC_SATURATING = 8,
    CENI_CODEC_OWN_SCALES = 16,
    CENI_CODEC_ONLY_SPARSE = 32, /* on the host: a source that is not 2:4 is refused */
    CENI_CODEC_GIVEN_SCALES = 64 /* never with OWN_SCALES; counts what was cut by codes if
                                    ASYMMETRIC */
};
enum {
    CENI_CODEC_TILE = 1024,
    CENI_CODEC_EXTREMES_MAX = 1024,
    /* Octets that a thread has at once, of 16 bits and of FP32, and threads of a team. */
    CENI_CODEC_BATCH = 4,
    CENI_CODEC_BATCH_WIDE = 2,
    CENI_CODEC_TEAM_MAX = 512,
    CENI_CODEC_EACH_ROWS = 32 /* rows of an item of cen_encode_each */
};

/* Forms that have kernels of their own, for matrices of whole octets that are aligned: a format and
 * what is of one scale. Those of ROW and GROUP make their scales. As X(name, kind, zero points,
 * name, units), for each type of the matrix. */
#define CENI_CODEC_SCALED_FORMS(X, name, units)                                                    \
    X(e4m3, CENI_CODEC_E4M3, false, name, units)                                                   \
    X(e5m2, CENI_CODEC_E5M2, false, name, units)                                                   \
    X(int8, CENI_CODEC_INT8, false, name, units)                                                   \
    X(int4, CENI_CODEC_INT4, false, name, units)                                                   \
    X(int8z, CENI_CODEC_INT8, true, name, units)                                                   \
    X(int4z, CENI_CODEC_INT4, true, name, units)
#define CENI_CODEC_ONE_FORMS(X)                                                                    \
    X(fp16, CENI_CODEC_FP16, false, one, ONE)                                                      \
    X(bf16, CENI_CODEC_BF16, false, one, ONE)                                                      \
    CENI_CODEC_SCALED_FORMS(X, one, ONE)
#define CENI_CODEC_ENCODERS(X)                                                                     \
    CENI_CODEC_ONE_FORMS(X)                                                                        \
    CENI_CODEC_SCALED_FORMS(X, row, ROW)                                                           \
    CENI_CODEC_SCALED_FORMS(X, group, GROUP)                                                       \
    CENI_CODEC_SCALED_FORMS(X, block, BLOCK)
#define CENI_CODEC_DECODERS(X)                                                                     \
    CENI_CODEC_ONE_FORMS(X)                                                                        \
    CENI_CODEC_SCALED_FORMS(X, group, GROUP)

/* The same of 2:4, without zero points and a report: cen_encode_sparse_FORM_TYPE(job) and
 * cen_decode_sparse_... . As X(name, kind). */
#define CENI_CODEC_SPARSE_FORMS(X)                                                                 \
    X(fp16, CENI_CODEC_FP16)                                                                       \
    X(bf16, CENI_CODEC_BF16)                                                                       \
    X(int8, CENI_CODEC_INT8)

/* One matrix. The source when encoding, what is written when decoding. */
typedef struct ceni_codec_job {
    uint64_t matrix, rows, cols, stride; /* elements of `dtype` */
    uint64_t values, scales, zeros, metadata;
    uint64_t sums;                  /* 0: not wanted */
    uint64_t pitch, metadata_pitch; /* bytes from row to row */
    uint64_t unit_rows, unit_cols, units_across;
    uint32_t dtype; /* cen_dtype: FP32, FP16 or BF16 */
    uint32_t kind, flags;
    uint32_t extremes;      /* pairs that cen_encode_extremes makes */
    uint32_t team;          /* threads that have a row or a stretch of it: all of a block, or 32 */
    uint64_t across, items; /* stretches of a row, and of all rows */
    float divisor;          /* of a unit's extremes: its scale */
    float limit; /* what |t| exceeds when it is cut: beyond the tie above the largest number */
    int32_t low, high; /* of INT kinds */
} ceni_codec_job;

/* As cen_codec_sums. */
typedef struct ceni_codec_sums {
    uint64_t count, nan, infinite, saturated, overflowed, underflowed;
    double largest, max_error, error, error2, x2, y2, xy;
} ceni_codec_sums;

#ifndef __CUDACC__
#include <stdbool.h>

#include "kernels/table.h"

/* Into host memory; with CENI_CODEC_OWN_SCALES all units' scales, too. `rows` (NULL: not wanted)
 * gets sums for each row, and those of all are added to `total` (NULL: not wanted). false: with
 * CENI_CODEC_ONLY_SPARSE, a row has more than two nonzeros of four; *row says which. */
bool ceni_codec_encode_host(const ceni_codec_job *job, ceni_codec_sums *rows,
                            ceni_codec_sums *total, uint64_t *row);
/* false: with `strict`, a row's metadata has indices that do not rise; *row says which. */
bool ceni_codec_decode_host(const ceni_codec_job *job, bool strict, uint64_t *row);
/* Those of rows x cols elements from (row, col) on, as floats, into rows `stride` apart. col is a
 * multiple of a power of two, from 8 up to a tile, and cols is that power, or fewer at a row's
 * end. */
void ceni_codec_decode_block(const ceni_codec_job *job, uint64_t row, size_t rows, uint64_t col,
                             size_t cols, float *to, size_t stride);
void ceni_codec_sums_add(ceni_codec_sums *to, const ceni_codec_sums *from);

void ceni_twin_codec_extremes(const uint32_t grid[3], const uint32_t block[3],
                              uint32_t shared_bytes, void *const *args);
void ceni_twin_codec_scales(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                            void *const *args);
void ceni_twin_codec_encode(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                            void *const *args);
void ceni_twin_codec_decode(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                            void *const *args);
size_t ceni_ranges_codec_extremes(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_codec_scales(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_codec_encode(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_codec_decode(void *const *args, ceni_kernel_range *ranges);
#endif
#endif
