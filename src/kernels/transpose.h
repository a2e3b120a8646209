/* Transposes of elements of 1, 2, 4 and 8 bytes; docs/kernels.md goes up these rungs. Sizes and
 * strides in elements.
 *
 *     cen_transpose_BYTES(ceni_transpose)         16 bytes at a time, through swizzled shared
 * memory; both matrices' data and strides are multiples of 16 bytes
 *     cen_transpose_padded_BYTES(ceni_transpose)  an element at a time, through padded shared
 * memory cen_transpose_naive_4                       straight from memory to memory
 *     cen_transpose_shared_4                      through shared memory as it is
 *
 * Blocks: of 256 threads, (256, 1) for the first, else (32, 8). Grid: x over tiles of x's columns,
 * y over those of its rows; any grid gives the same. A tile is CENI_TRANSPOSE_TILE(bytes) on each
 * side for the first, else 32. */
#ifndef CENI_KERNELS_TRANSPOSE_H
#define CENI_KERNELS_TRANSPOSE_H

#include "kernels/table.h"

typedef struct ceni_transpose {
    uint64_t dst, src, dst_stride, src_stride;
    uint64_t rows, cols; /* of the source */
    uint64_t size;       /* of an element */
} ceni_transpose;

/* Elements on a side: 8 quads of 16 bytes a row, or 16 of those that are narrow otherwise. */
#define CENI_TRANSPOSE_TILE(size) (128 / (size) * ((size) >= 4 ? 2 : 1))

/* Elements more in each row of a padded tile: so that those of a column are in 32 banks. */
#define CENI_TRANSPOSE_PAD(size) ((size) < 4 ? 4 / (size) : 1)

/* Where quad `quad` of row `row` lies in a row of a tile that has 16 / size rows to a quad: so that
 * 8 lanes that read down a column, a quad's rows apart, use all banks. */
#define CENI_TRANSPOSE_SWIZZLE(quad, row, size) ((quad) ^ (row) / (16 / (size)) % 8)

#define CENI_TRANSPOSE_KERNELS(X)                                                                  \
    X(transpose_1)                                                                                 \
    X(transpose_2)                                                                                 \
    X(transpose_4)                                                                                 \
    X(transpose_8)                                                                                 \
    X(transpose_padded_1)                                                                          \
    X(transpose_padded_2)                                                                          \
    X(transpose_padded_4)                                                                          \
    X(transpose_padded_8)                                                                          \
    X(transpose_naive_4)                                                                           \
    X(transpose_shared_4)

void ceni_twin_transpose(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args);
size_t ceni_ranges_transpose(void *const *args, ceni_kernel_range *ranges);

#endif
