/* Element-wise kernels: each takes one structure, whose sizes and types src/compute has checked.
 *
 *     cen_map_chain_4, _8(ceni_map)   any steps; 4 elements a thread, or 8 where none is FP32
 *     cen_map_STEPS_TYPE(ceni_map)    the same for CENI_MAP_FIXED, all matrices of one type
 *     cen_map_FROM_to_TO(ceni_map)    no steps
 *     cen_fill_rows, cen_copy_rows(ceni_bytes)
 *
 * Blocks and grid: x goes over a row's pieces, y over rows; any of either gives the same. With
 * `down` the rows of `out` are a multiple of 16 bytes apart. */
#ifndef CENI_KERNELS_ELEMENTWISE_H
#define CENI_KERNELS_ELEMENTWISE_H

#include "kernels/table.h"

enum {
    CENI_MAP_NONE,
    CENI_MAP_SCALE,
    CENI_MAP_ADD,
    CENI_MAP_AXPY,
    CENI_MAP_BIAS,
    CENI_MAP_RELU,
    CENI_MAP_GELU,
    CENI_MAP_GELU_TANH,
    CENI_MAP_ROUND
};
enum { CENI_MAP_STEPS = 8, CENI_MAP_MATRICES = 4, CENI_MAP_BIASES = 2 };

typedef struct ceni_map_step {
    uint64_t data, stride; /* of the operand */
    float alpha;
    uint16_t kind, dtype; /* of the operand; ROUND: to which */
} ceni_map_step;

typedef struct ceni_map {
    uint64_t x, out, x_stride, out_stride, rows, cols;
    uint16_t x_dtype, out_dtype, count;
    uint16_t down; /* a thread of those with known steps takes two rows' pieces, not two of a row */
    ceni_map_step steps[CENI_MAP_STEPS];
} ceni_map;

/* Rows of bytes. Addresses, width and stride are multiples of `unit`, a power of two up to 8. */
typedef struct ceni_bytes {
    uint64_t dst, dst_stride;
    uint64_t src, src_stride; /* fill: the element in as many copies as 8 bytes hold; none */
    uint64_t rows, width;
    uint64_t unit;
} ceni_bytes;

/* Name, and the kinds of its steps. */
#define CENI_MAP_FIXED(X)                                                                          \
    X(scale, SCALE, NONE)                                                                          \
    X(add, ADD, NONE)                                                                              \
    X(axpy, AXPY, NONE)                                                                            \
    X(bias, BIAS, NONE)                                                                            \
    X(relu, RELU, NONE)                                                                            \
    X(gelu, GELU, NONE)                                                                            \
    X(gelu_tanh, GELU_TANH, NONE)                                                                  \
    X(bias_relu, BIAS, RELU)                                                                       \
    X(bias_gelu, BIAS, GELU)                                                                       \
    X(bias_gelu_tanh, BIAS, GELU_TANH)                                                             \
    X(bias_add, BIAS, ADD)

/* The names of both types, and the types. */
#define CENI_MAP_CASTS(X)                                                                          \
    X(fp32, fp16, FP32, FP16)                                                                      \
    X(fp32, bf16, FP32, BF16)                                                                      \
    X(fp16, fp32, FP16, FP32)                                                                      \
    X(bf16, fp32, BF16, FP32)                                                                      \
    X(fp16, bf16, FP16, BF16)                                                                      \
    X(bf16, fp16, BF16, FP16)

void ceni_twin_map(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                   void *const *args);
void ceni_twin_fill_rows(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args);
void ceni_twin_copy_rows(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args);
size_t ceni_ranges_map(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_fill_rows(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_copy_rows(void *const *args, ceni_kernel_range *ranges);

#endif
