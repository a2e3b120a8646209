/* Products of matrices and convolutions, with what is usually done to their results in the same
 * kernel. docs/products.md says which kernel takes what.
 *
 * Calls with a stream are asynchronous, in its order, and all may come from any thread; what they
 * are given is read before they return. Matrices are the device's memory, if there is a device.
 * Results differ from run to run of different kernels by rounding, never from run to run of the
 * same one.
 *
 * Errors, beside those of any call on a device: CEN_ERR_INVALID: the log names the argument, what
 * it is and what is wanted; CEN_ERR_UNSUPPORTED: types that do not go together, or a codec that no
 * kernel decodes (the log names them), dimensions of 2^31 or more, or a library built without CUDA
 * kernels; CEN_ERR_TRUNCATED: a part of an encoded B is too short; CEN_ERR_NOT_FOUND: `kernel` is
 * none that can do it on the device. */
#ifndef CENOTE_PRODUCT_H
#define CENOTE_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/codec.h"
#include "cenote/device.h"
#include "cenote/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* GELU (Hendrycks, Gimpel: "Gaussian error linear units", 2016): x / 2 * (1 + erf(x / sqrt 2));
 * GELU_TANH: with tanh(sqrt(2 / pi) * (x + 0.044715 x^3)) in place of erf. */
typedef enum cen_activation {
    CEN_ACTIVATION_NONE = 0,
    CEN_ACTIVATION_RELU = 1,
    CEN_ACTIVATION_GELU = 2,
    CEN_ACTIVATION_GELU_TANH = 3
} cen_activation;

/* D = activation(alpha * row_scale[i] * col_scale[j] * (op(A) * op(B))[i, j] + beta * C[i, j] +
 *                bias[j]) + residual[i, j]
 *
 * in this order, with sums of FP32, rounded once to D's type. op: as it lies, or transposed. So
 * dX = dY * W^T is transpose_b, and dW = X^T * dY transpose_a. alpha and beta are taken as they
 * are: the plain product has an alpha of 1, and with 0, as after zero-initialising, it is left out.
 *
 * | A and B  | D                      |
 * | FP32     | FP32                   |
 * | BF16     | BF16, FP32             |
 * | FP16     | FP16, FP32             |
 * | INT8     | FP32, BF16, FP16, INT32 |
 *
 * A and B are of one type, C and residual of D's. INT8 is summed in INT32, which goes round at
 * 2^31; with D of INT32 that is the result: alpha 1, nothing else.
 *
 * With S = |alpha * scales| * (|op(A)| * |op(B)|)[i, j] + |beta * C| + |bias| + |residual|, and u
 * the rounding of D's type (2^-24 FP32, 2^-11 FP16, 2^-8 BF16), each element is within (k + 16) *
 * 2^-23 * S + u * |exact| of the exact one, as long as nothing leaves the type's normal range; of
 * INT32 it is exact. FP32 is multiplied in FP32, never in TF32.
 *
 * B, the weights, may be as a codec keeps it (cenote/codec.h): b_codec and b_parts say how and
 * where, and b its rows and columns as they lie, transposed or not, and the type it is multiplied
 * in, A's: BF16 or FP16. The result is that of B decoded to FP32 and rounded to this type, which is
 * done on the way into shared memory: decoded it lies nowhere. INT8, INT4, FP8 and 2:4, with and
 * without zero points, of any granularity, save that blocks are 1, a power of two from 16 on, or
 * all columns wide. As of cen_codec_decode_async scales lie at multiples of 4, values of 16 bits at
 * multiples of 2, and metadata is not checked. */
typedef struct cen_product {
    size_t size; /* sizeof(cen_product) */
    cen_matrix a, b, d;
    bool transpose_a, transpose_b;
    cen_activation activation;
    float alpha, beta;
    cen_matrix c;             /* as D; not read where beta is 0. May be D itself */
    cen_matrix residual;      /* as D; none where its data is 0. May be D itself */
    cen_addr bias;            /* as many as D has columns; 0: none */
    cen_dtype bias_dtype;     /* D's, or FP32 */
    cen_addr row_scale;       /* FP32, as many as D has rows; 0: 1 */
    cen_addr col_scale;       /* FP32, as many as D has columns; 0: 1 */
    const char *kernel;       /* one that cen_product_list names; NULL: the first of them */
    const cen_codec *b_codec; /* NULL: B is not encoded. Else b.data is 0, and b.stride not read */
    cen_codec_parts b_parts;  /* their bytes at least cen_codec_bound's of b.rows x b.cols */
} cen_product;

/* A kernel that can do a certain product or convolution. */
typedef struct cen_product_kernel {
    const char *name;
    uint32_t tile[3]; /* rows and columns of D, of a block or of a pair that goes together, and
                         how much of the sum a stage holds */
    uint32_t stages;
    uint32_t blocks, threads; /* of a launch; threads: of a block */
    uint32_t shared_bytes;    /* of a block */
} cen_product_kernel;

/* Enqueues it. D may not overlap A, B or its parts, bias or scales, nor C or residual, unless it is
 * the same matrix; two matrices overlap if they have a byte in common that lies between the first
 * and the last of each, in a row or not. With no rows or no columns nothing is launched; with
 * nothing to sum up (k = 0) sums are 0. */
CEN_API cen_status cen_product_run(cen_device *device, const cen_product *product,
                                   cen_stream stream);

/* The kernels that can do it on this device, the one that would be taken first, up to `capacity` of
 * them; count: how many there are. None where there is nothing to launch. */
CEN_API cen_status cen_product_list(cen_device *device, const cen_product *product,
                                    cen_product_kernel *kernels, size_t capacity, size_t *count);

/* The same in this process's own memory, by the calling thread, and done when it returns; `kernel`
 * is not read. The bits are those of the host backend, which would have the memory pinned. */
CEN_API cen_status cen_product_on_host(const cen_product *product);

/* A convolution: output[image, y, x, f] = activation(sum of input[image, y * stride - padding +
 * i * dilation, ...] * weight[f, i, j, c] + bias[f]) + residual[image, y, x, f], zeros outside of
 * the input. Images lie as [image][y][x][channel] (channels last), weights as
 * [filter][y][x][channel], each without gaps; all of one type, FP32, BF16 or FP16, but for the
 * bias. Pairs are y, then x. Errors of results as of a product whose k is filter_height *
 * filter_width * channels. */
typedef struct cen_conv {
    size_t size; /* sizeof(cen_conv) */
    cen_dtype dtype;
    cen_addr input, weight, output;
    cen_addr residual;    /* 0: none; may be the output */
    cen_addr bias;        /* as many as filters; 0: none */
    cen_dtype bias_dtype; /* dtype, or FP32 */
    uint32_t images, height, width, channels;
    uint32_t filters, filter_height, filter_width;
    uint32_t stride[2];   /* 0: 1 */
    uint32_t padding[2];  /* on both sides */
    uint32_t dilation[2]; /* 0: 1 */
    cen_activation activation;
    const char *kernel; /* one that cen_conv_list names; NULL: the first of them */
} cen_conv;

/* Rows and columns of the output: of a side, with a division that rounds down,
 *
 *   (side + 2 * padding - dilation * (filter's side - 1) - 1) / stride + 1
 *
 * CEN_ERR_INVALID: the filter does not fit; CEN_ERR_UNSUPPORTED: a side with its padding, or what
 * the filter spans, is 2^30 or more. */
CEN_API cen_status cen_conv_output(const cen_conv *conv, uint32_t *height, uint32_t *width);

/* As of products. Without images, rows, columns or filters nothing is launched. */
CEN_API cen_status cen_conv_run(cen_device *device, const cen_conv *conv, cen_stream stream);
CEN_API cen_status cen_conv_list(cen_device *device, const cen_conv *conv,
                                 cen_product_kernel *kernels, size_t capacity, size_t *count);
CEN_API cen_status cen_conv_on_host(const cen_conv *conv);

#ifdef __cplusplus
}
#endif
#endif
