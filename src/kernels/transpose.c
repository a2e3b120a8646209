/* The twin of transpose.cu: tiles that stay in the first cache. */
#include "kernels/transpose.h"

#include <string.h>

#include "kernels/operand.h"

enum { TILE = 32 };

#define TRANSPOSE_TILE(type)                                                                       \
    static void tile_##type(const ceni_transpose *t, uint64_t row, uint64_t col) {                 \
        type *dst = (type *)(uintptr_t)t->dst;                                                     \
        const type *src = (const type *)(uintptr_t)t->src;                                         \
        uint64_t rows = row + TILE < t->rows ? row + TILE : t->rows;                               \
        uint64_t cols = col + TILE < t->cols ? col + TILE : t->cols;                               \
        for (uint64_t j = col; j < cols; j++) {                                                    \
            for (uint64_t i = row; i < rows; i++) {                                                \
                dst[j * t->dst_stride + i] = src[i * t->src_stride + j];                           \
            }                                                                                      \
        }                                                                                          \
    }
TRANSPOSE_TILE(uint8_t)
TRANSPOSE_TILE(uint16_t)
TRANSPOSE_TILE(uint32_t)
TRANSPOSE_TILE(uint64_t)
#undef TRANSPOSE_TILE

void ceni_twin_transpose(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args) {
    ceni_transpose t;
    memcpy(&t, args[0], sizeof t);
    for (uint64_t row = 0; row < t.rows; row += TILE) {
        for (uint64_t col = 0; col < t.cols; col += TILE) {
            switch (t.size) {
            case 1:
                tile_uint8_t(&t, row, col);
                break;
            case 2:
                tile_uint16_t(&t, row, col);
                break;
            case 4:
                tile_uint32_t(&t, row, col);
                break;
            default:
                tile_uint64_t(&t, row, col);
            }
        }
    }
}

size_t ceni_ranges_transpose(void *const *args, ceni_kernel_range *ranges) {
    ceni_transpose t;
    memcpy(&t, args[0], sizeof t);
    ranges[0] = ceni_operand_range(t.dst, t.dst_stride, t.cols, t.rows, t.size, true);
    ranges[1] = ceni_operand_range(t.src, t.src_stride, t.rows, t.cols, t.size, false);
    return 2;
}
