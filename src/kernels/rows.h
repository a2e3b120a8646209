/* Kernels along rows: sums, softmax, layer norm. Each takes one structure that src/compute filled.
 *
 * A block is (gx, gy): gx threads, a power of two from 32 on, for each of gy rows at once; a thread
 * holds CENI_ROWS_HELD elements of a row in registers, so that gx of them hold a slab.
 *
 *     cen_row_sum_TYPE_P, _absmax_, _softmax_, _layer_norm_TYPE_P(ceni_rows)
 *         all matrices are of that type, their rows whole pieces of 16 bytes and aligned to them;
 *         gamma and beta may each be FP32 as well, aligned as much;
 *         a thread has P pieces of each of CENI_ROWS_WHOLE_ROWS rows, which gx threads hold; gx is
 *         any multiple of 32
 *     cen_row_sum, _absmax(ceni_rows)      out of one slab or more; grid (rows / gy, splits)
 *     cen_row_combine_sum, _absmax         out of the splits' parts; a thread a row
 *     cen_row_softmax_TYPE, _layer_norm_TYPE
 *         x is of that type; a row is one slab, which is read once
 *     cen_row_softmax_part, _moments_part  the parts of each split of a row into work
 *     cen_row_softmax_wide, _layer_norm_wide
 *         any row: from the parts if there are several splits, else the row is read twice
 *
 * With several splits gy is 1. A part is 4 floats at work + (row * splits + split) * 16: the sum;
 * the bits of the largest magnitude; the maximum, the sum of exp(x - it); count, mean, the sum of
 * squares around it. */
#ifndef CENI_KERNELS_ROWS_H
#define CENI_KERNELS_ROWS_H

#include "kernels/operand.h"

enum { CENI_ROWS_HELD = 32, CENI_ROWS_SPLITS_MAX = 32, CENI_ROWS_PART_BYTES = 16 };

/* Of rows in whole pieces of 16 bytes: what a thread has under way; layer norm needs registers for
 * gamma and beta. */
enum { CENI_ROWS_WHOLE_PIECES = 8, CENI_ROWS_WHOLE_NORM_PIECES = 4, CENI_ROWS_WHOLE_THREADS = 512 };
#define CENI_ROWS_WHOLE_ROWS(pieces, most) ((pieces) < (most) ? (most) / (pieces) : 1)

typedef struct ceni_rows {
    ceni_operand x, y, gamma, beta;
    uint64_t out, out_stride;   /* FP32: sum, largest magnitude or mean; 0: not wanted */
    uint64_t rstd, rstd_stride; /* the same */
    uint64_t work, rows, cols;
    uint32_t splits;
    float epsilon;
} ceni_rows;

/* Name, and whose ranges it has. */
#define CENI_ROWS_KERNELS(X)                                                                       \
    X(row_sum, reduce)                                                                             \
    X(row_absmax, reduce)                                                                          \
    X(row_softmax_part, reduce)                                                                    \
    X(row_moments_part, reduce)                                                                    \
    X(row_combine_sum, combine)                                                                    \
    X(row_combine_absmax, combine)                                                                 \
    X(row_softmax_wide, apply)                                                                     \
    X(row_layer_norm_wide, apply)

#define CENI_ROWS_TWIN(name, ranges)                                                               \
    void ceni_twin_##name(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,  \
                          void *const *args);
CENI_ROWS_KERNELS(CENI_ROWS_TWIN)
CENI_ROWS_TWIN(row_softmax, apply)
CENI_ROWS_TWIN(row_layer_norm, apply)
#undef CENI_ROWS_TWIN
size_t ceni_ranges_rows_reduce(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_rows_combine(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_rows_apply(void *const *args, ceni_kernel_range *ranges);

#endif
