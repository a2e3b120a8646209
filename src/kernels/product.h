/* Products of matrices, and convolutions as products: what their kernels take, and the twin.
 *
 *     cen_product_naive, _coalesced, _shared (ceni_product_args)
 *         FP32, any transposition: the lower rungs of the ladder in docs/products.md
 *     cen_product_fp32_LL, cen_product_fp32_64_LL (ceni_product_args)
 *     cen_product_mma_TT_LL(ceni_product_args), cen_product_mma_int8(ceni_product_args)
 *     cen_product_wgmma_TT_LL, cen_product_wgmma_pair_TT_LL
 *         (ceni_product_args, map of A, map of B, map of D, which CENI_WIDE_BOXES is about)
 *     cen_product_wgmma128_TT_LL (ceni_product_args, map of A, map of B)
 *         of these and the other wgmma, only machine code for sm_90a does anything
 *     cen_product_coded_TT_LL, cen_product_coded64_TT_LL, cen_product_coded16_TT_LL
 *         (ceni_product_args, ceni_codec_job)
 *     cen_conv_fp32, cen_conv_fp32_64, cen_conv_mma_TT (ceni_conv_args)
 *     cen_conv_wgmma256_TT, _wgmma128_TT, _wgmma64_TT (ceni_conv_args, map of B): as of wgmma
 *     cen_conv_boxes256_TT, _boxes128_TT, _boxes64_TT, _held64_TT
 *         (ceni_conv_args, map of A's pixels, map of B): likewise; channels are a multiple of 64,
 * and of _held64 the filters and the sum no more than it holds
 *
 * TT: bf16 or fp16. LL: n or t for A, then for B; n lies as it is multiplied, t transposed. All
 * give the same but for rounding; one twin serves all. Each takes one shape of block and what
 * shared memory src/compute/product_plan.c says; the grid is one-dimensional, a block for each
 * tile, or, of wgmma, as many as are wanted, of pairs an even number. */
#ifndef CENI_KERNELS_PRODUCT_H
#define CENI_KERNELS_PRODUCT_H

#include "kernels/codec.h"
#include "kernels/table.h"

/* What `wide` allows: accesses of 16 bytes to A and to B, of 4 elements to all that is added to,
 * scales or takes the result; and that the copy engine takes D to memory, box by box. */
enum { CENI_WIDE_A = 1, CENI_WIDE_B = 2, CENI_WIDE_D = 4, CENI_WIDE_BOXES = 8 };

/* `activation` */
enum { CENI_ACT_NONE = 0, CENI_ACT_RELU = 1, CENI_ACT_GELU = 2, CENI_ACT_GELU_TANH = 3 };

/* d = act(alpha * row_scale * column_scale * (op a * op b) + beta * c + bias) + residual; an
 * address of 0, and c where beta is 0, takes no part. Of INT8, with a result of INT32, it is the
 * plain product. Strides are elements between rows as they lie in memory.
 *
 * Where B is encoded, b is 0, and B what a job decodes to as FP32, rounded to A's type; its rows
 * and columns are the job's, which has no matrix. CENI_WIDE_B: the values of 16 neighbours, of
 * which the first is a multiple of 16, may be read at once, and so may the metadata of 32. */
typedef struct ceni_product_args {
    uint64_t a, b, c, d, bias, residual, row_scale, col_scale;
    uint64_t a_stride, b_stride, c_stride, d_stride, residual_stride;
    uint32_t m, n, k;
    float alpha, beta;
    uint8_t input, output, bias_type; /* values of cen_dtype */
    uint8_t transpose_a, transpose_b;
    uint8_t activation;
    uint8_t wide;
    uint8_t unused;
} ceni_product_args;

/* The rows of A are gathered: row (image, y, x) of the output has, for each tap of the filter, the
 * channels of one pixel of the input, or zeros outside of it. m = images * out_height * out_width,
 * k = filter_height * filter_width * channels. B lies transposed: a row for each filter. */
typedef struct ceni_conv_args {
    ceni_product_args product;
    uint32_t images, height, width, channels;
    uint32_t out_height, out_width, filter_height, filter_width;
    uint32_t stride_y, stride_x, dilation_y, dilation_x;
    int32_t pad_y, pad_x;
} ceni_conv_args;

/* Tiles and shared memory of the kernels, for them and for who launches them. */
enum {
    CENI_SIMT_TILE = 128, /* rows and columns of the tiles of cen_product_fp32 and _mma */
    CENI_FP32_DEPTH = 16,
    CENI_FP32_STAGES = 3,
    CENI_FP32_THREADS = 128,
    CENI_FP32_PAD = 4, /* of a row of shared memory, in elements */
    CENI_MMA_STAGES = 4,
    CENI_MMA_ROW_BYTES = 64, /* of the depth of a tile */
    CENI_MMA_SHARED = CENI_MMA_STAGES * 2 * CENI_SIMT_TILE * CENI_MMA_ROW_BYTES,
    CENI_CONV_ROWS_SHARED = CENI_SIMT_TILE * 16, /* where the gathered rows begin */
    CENI_TILE_THREADS = 256,
    CENI_LADDER_TILE = 32, /* of the lower rungs, whose blocks are as large */
    CENI_STAGE_STRIDE = 40,
    CENI_STAGE_BYTES = 16 * CENI_STAGE_STRIDE * 4, /* of a warp, for its sums on their way out */
    CENI_WGMMA_ROWS = 128,
    CENI_WGMMA_DEPTH = 64,
    CENI_WGMMA_THREADS = 384,
    CENI_WGMMA_WARPS = 8, /* that multiply */
    CENI_RASTER = 16,     /* tiles are taken in bands of so many rows of tiles, column by column */
};

/* Shared bytes of a kernel of FP32 whose tiles have `cols` columns. */
#define CENI_FP32_SHARED(cols)                                                                     \
    (CENI_FP32_STAGES * CENI_FP32_DEPTH * (CENI_SIMT_TILE + (cols) + 2 * CENI_FP32_PAD) * 4)

/* Of the kernels that decode B, by the rows of their tiles: columns, slices of the sum, each of
 * which has CENI_MMA_ROW_BYTES of a row of a stage, stages, and shared bytes. Beside a stage's A
 * lie the encoded runs of 16 of B: values, metadata, and a scale. Two stages of B are decoded. */
enum { CENI_CODED_RUN = 16, CENI_CODED_RUN_BYTES = 24 };
#define CENI_CODED_COLS(rows)    ((rows) == CENI_SIMT_TILE ? CENI_SIMT_TILE : 32)
#define CENI_CODED_SLICES(rows)  ((rows) == 16 ? 8 : (rows) == 64 ? 4 : 1)
#define CENI_CODED_STAGES(rows)  ((rows) == 64 ? 6 : 4)
#define CENI_CODED_A_BYTES(rows) ((rows)*CENI_CODED_SLICES(rows) * CENI_MMA_ROW_BYTES)
#define CENI_CODED_B_BYTES(rows)                                                                   \
    (CENI_CODED_COLS(rows) * CENI_CODED_SLICES(rows) * CENI_MMA_ROW_BYTES)
#define CENI_CODED_RUNS(rows) (CENI_CODED_B_BYTES(rows) / 2 / CENI_CODED_RUN)
#define CENI_CODED_SHARED(rows)                                                                    \
    (CENI_CODED_STAGES(rows) *                                                                     \
         (CENI_CODED_A_BYTES(rows) + CENI_CODED_RUNS(rows) * CENI_CODED_RUN_BYTES) +               \
     2 * CENI_CODED_B_BYTES(rows))

/* Stages of a wgmma kernel whose tiles have `cols` columns, and its shared bytes. */
#define CENI_WGMMA_STAGES(cols)      ((cols) == 256 ? 4 : 6)
#define CENI_WGMMA_STAGE_BYTES(cols) ((CENI_WGMMA_ROWS + (cols)) * CENI_WGMMA_DEPTH * 2)
#define CENI_WGMMA_SHARED(cols)                                                                    \
    (1024 + CENI_WGMMA_STAGES(cols) * (CENI_WGMMA_STAGE_BYTES(cols) + 16) +                        \
     CENI_WGMMA_WARPS * CENI_STAGE_BYTES)

/* Kernels that take a map of D may have the copy engine take D out: each warp has two boxes, which
 * are larger than its stage. Of products those do with so many columns. Rows of a box, of 128 bytes
 * each, and shared bytes. */
enum { CENI_WGMMA_OUT_COLS = 256, CENI_WGMMA_OUT_ROWS = 16 };
#define CENI_WGMMA_OUT_BYTES (CENI_WGMMA_WARPS * 2 * CENI_WGMMA_OUT_ROWS * 128)
#define CENI_WGMMA_OUT_SHARED(cols)                                                                \
    (1024 + CENI_WGMMA_STAGES(cols) * (CENI_WGMMA_STAGE_BYTES(cols) + 16) + CENI_WGMMA_OUT_BYTES)

/* cen_conv_held64: filters, and steps of the sum, that it keeps; its stages are of A alone. */
enum {
    CENI_HELD_COLS = 64,
    CENI_HELD_STEPS = 9,
    CENI_HELD_STAGES = 7,
    CENI_HELD_BYTES = CENI_HELD_COLS * CENI_WGMMA_DEPTH * 2, /* of a step */
    CENI_HELD_SHARED = 1024 + CENI_HELD_STEPS * CENI_HELD_BYTES +
                       CENI_HELD_STAGES * (CENI_WGMMA_ROWS * CENI_WGMMA_DEPTH * 2 + 16) +
                       CENI_WGMMA_OUT_BYTES + 8
};

void ceni_twin_product(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                       void *const *args);
void ceni_twin_coded(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                     void *const *args);
void ceni_twin_conv(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                    void *const *args);
size_t ceni_ranges_product(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_coded(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_conv(void *const *args, ceni_kernel_range *ranges);

#endif
