/* The gradients of layer norm. Sums over rows are made in parts, one for each block that goes over
 * rows, at work: a row of cols floats for gamma, then one for beta, and so for each part.
 *
 *     cen_norm_back(ceni_norm_back)          dx and the parts, reading dy and x once. A block of
 * (gx, gy) holds CENI_NORM_BACK_HELD elements a thread, which make up a row; a part a block
 *     cen_norm_back_TYPE(ceni_norm_back)     the same of matrices of that type alone, in rows of
 * whole pieces of 16 bytes that are aligned; with shared memory for `stages` rows, of
 * CENI_NORM_BACK_STAGE bytes a thread each
 *     cen_norm_back_wide(ceni_norm_back)     dx of longer rows; a block a row
 *     cen_norm_back_columns(ceni_norm_back)  the parts then; blocks of (32, 8), 4 columns a thread,
 *         grid (columns / 128, parts)
 *     cen_norm_back_sum(ceni_norm_back)      gamma's and beta's out of the parts; blocks of (32,
 * 8), a column a thread, grid (columns / 32) */
#ifndef CENI_KERNELS_NORM_BACK_H
#define CENI_KERNELS_NORM_BACK_H

#include "kernels/operand.h"

enum { CENI_NORM_BACK_HELD = 16, CENI_NORM_BACK_THREADS_MAX = 512, CENI_NORM_BACK_STAGES_MAX = 4 };

/* What a thread holds of a row of dy and of x. */
#define CENI_NORM_BACK_STAGE(size) (2 * CENI_NORM_BACK_HELD * (size))

typedef struct ceni_norm_back {
    ceni_operand dy, x, gamma, dx, dgamma, dbeta; /* one whose data is 0 is not there */
    uint64_t mean, mean_stride, rstd, rstd_stride;
    uint64_t work; /* 0: no parts are wanted */
    uint64_t rows, cols, parts;
    uint64_t stages; /* rows under way at once, up to CENI_NORM_BACK_STAGES_MAX */
} ceni_norm_back;

void ceni_twin_norm_back(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args);
void ceni_twin_norm_back_wide(const uint32_t grid[3], const uint32_t block[3],
                              uint32_t shared_bytes, void *const *args);
void ceni_twin_norm_back_columns(const uint32_t grid[3], const uint32_t block[3],
                                 uint32_t shared_bytes, void *const *args);
void ceni_twin_norm_back_sum(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                             void *const *args);
size_t ceni_ranges_norm_back(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_norm_back_wide(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_norm_back_columns(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_norm_back_sum(void *const *args, ceni_kernel_range *ranges);

#endif
