/* Memory-bound operations on matrices in a device's memory: chains of element-wise operations in
 * one pass, fills, copies, transposes, and what goes along rows: sums, softmax, layer norm.
 *
 * Every function checks its arguments, launches kernels on `stream` and returns; matrices are read
 * and written in stream order, and their descriptions only before the call returns. Elements are
 * FP32, FP16 or BF16, each matrix its own, unless said otherwise. Any rows, cols and stride; a
 * matrix need only be aligned to its element, but is read and written fastest where its data and
 * stride are multiples of 16 bytes. A matrix without elements takes nothing, and no launch.
 *
 * Arithmetic is FP32, subnormals kept. Results are rounded to the output's type once, to the
 * nearest, ties to even; what is too large becomes infinite, and a NaN that is rounded to 16 bits
 * becomes 0x7FFF. The same call on the same device gives the same bits each time: no sum depends on
 * which thread came first. Element-wise steps are rounded one by one and give the same bits on
 * every backend; sums, exponentials and the error function may differ within the bounds given
 * below, in which u = 2^-24, unless a sum overflows. Rounding to the output's type comes on top.
 *
 * Outputs overlap neither each other nor inputs, save where a function says "in place": then the
 * output may be that input, at the same address with the same stride and size of element.
 *
 * CEN_ERR_INVALID: an argument is wrong; CEN_ERR_UNSUPPORTED: types that go with no kernel, or a
 * library built without kernels for the device. The log says which. Any thread. */
#ifndef CENOTE_COMPUTE_H
#define CENOTE_COMPUTE_H

#include <stddef.h>
#include <stdint.h>

#include "cenote/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- element by element ---- */

/* What a step does to the value x of each element, which it has from the step before. */
typedef enum cen_map_kind {
    CEN_MAP_SCALE = 1, /* alpha * x */
    CEN_MAP_ADD,       /* x + other[i][j], as for a residual */
    CEN_MAP_AXPY,      /* alpha * x + other[i][j], both operations rounded */
    CEN_MAP_BIAS,      /* x + other[0][j]: one row, added to each */
    CEN_MAP_RELU,      /* 0 if x < 0, else x: NaN stays NaN, and -0 stays -0 */
    CEN_MAP_GELU,      /* as in cenote/product.h: x / 2 * (1 + erf(x / sqrt(2))); within 8u * |x| */
    CEN_MAP_GELU_TANH, /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))); within 16u * |x|.
                          Of minus infinity both give -0, their limit; of NaN NaN */
    CEN_MAP_ROUND      /* x rounded to `dtype` and back */
} cen_map_kind;

typedef struct cen_map_op {
    cen_map_kind kind;
    float alpha;             /* SCALE, AXPY */
    const cen_matrix *other; /* ADD, AXPY: as large as x; BIAS: 1 row of as many columns */
    cen_dtype dtype;         /* ROUND */
} cen_map_op;

enum {
    CEN_MAP_OPS_MAX = 8,      /* steps of one call */
    CEN_MAP_MATRICES_MAX = 4, /* of those that add a matrix */
    CEN_MAP_BIASES_MAX = 2    /* of those that add a row */
};

/* out = the steps `ops` in order, applied to x, in one pass over memory. Without steps: x in the
 * type of `out`; bit for bit if that is x's. Values between steps are FP32. In place of x, or of a
 * matrix that a step adds. Bit-exact on every backend, but for GELU; the bits of a NaN may differ.
 */
CEN_API cen_status cen_compute_map(cen_device *device, const cen_map_op *ops, size_t op_count,
                                   const cen_matrix *x, const cen_matrix *out, cen_stream stream);

/* Every element of `out`, of any type of whole bytes, becomes the one at `element`, in host memory,
 * which is read before the call returns. */
CEN_API cen_status cen_compute_fill(cen_device *device, const void *element, const cen_matrix *out,
                                    cen_stream stream);

/* out = x, of any type of whole bytes, the same for both. */
CEN_API cen_status cen_compute_copy(cen_device *device, const cen_matrix *x, const cen_matrix *out,
                                    cen_stream stream);

/* out[j][i] = x[i][j], of any type of whole bytes, the same for both. */
CEN_API cen_status cen_compute_transpose(cen_device *device, const cen_matrix *x,
                                         const cen_matrix *out, cen_stream stream);

/* ---- along rows ---- */

/* Memory of the device for a call's own use, a multiple of 16; the call's until its work is done.
 */
typedef struct cen_scratch {
    cen_addr data;
    uint64_t bytes;
} cen_scratch;

/* Bytes of work with which several blocks share a row of a matrix of so many rows and columns; 0:
 * each row has a block or less in any case. With less work, or `work` NULL, a row has one block,
 * and a matrix of few long rows takes longer. */
CEN_API uint64_t cen_compute_rows_work(uint64_t rows, uint64_t cols);

/* out[i] = the sum of row i, and the largest magnitude in row i; `out` has x's rows, 1 column, and
 * elements of FP32. Of a row without elements 0. A sum is within (24 + cols / 1024) * u * the sum
 * of magnitudes; the largest magnitude is exact, and NaN if the row has a NaN. */
CEN_API cen_status cen_compute_row_sum(cen_device *device, const cen_matrix *x,
                                       const cen_scratch *work, const cen_matrix *out,
                                       cen_stream stream);
CEN_API cen_status cen_compute_row_absmax(cen_device *device, const cen_matrix *x,
                                          const cen_scratch *work, const cen_matrix *out,
                                          cen_stream stream);

/* out[i][j] = exp(x[i][j] - m) / the sum of exp(x[i][k] - m) over k, m the largest of row i. In
 * place of x. Within (256 + cols / 1024) * u of the value, and 2^-126. Of minus infinity 0; a row
 * with NaN or infinity, or of nothing but minus infinity, becomes NaN throughout. */
CEN_API cen_status cen_compute_softmax(cen_device *device, const cen_matrix *x,
                                       const cen_scratch *work, const cen_matrix *out,
                                       cen_stream stream);

/* y = (x - mean) * rstd * gamma + beta, where mean is that of the row, and rstd 1 / sqrt(variance +
 * epsilon), the variance being that of the row's own elements (divided by cols). In place of x. The
 * row's elements have a spread of s = sqrt(variance + epsilon) around their mean: mean is within
 * (24 + cols / 1024) * u of the mean magnitude a, rstd within (64 + cols / 512) * u * (1 + a / s)
 * of itself, and y within the same share of |gamma| * (1 + |x - mean| / s) + |beta|. A row with NaN
 * or infinity becomes NaN throughout. With rows there are columns. */
typedef struct cen_layer_norm {
    const cen_matrix *x;
    const cen_matrix *gamma, *beta; /* 1 row of x's columns; NULL: ones, zeros */
    float epsilon;                  /* not negative */
    const cen_matrix *y;            /* as large as x */
    const cen_matrix *mean, *rstd;  /* x's rows, 1 column, FP32; NULL: not wanted */
} cen_layer_norm;

CEN_API cen_status cen_compute_layer_norm(cen_device *device, const cen_layer_norm *norm,
                                          const cen_scratch *work, cen_stream stream);

/* The gradients of x, gamma and beta, given dy, that of y. With h = (x - mean) * rstd and g = dy *
 * gamma: dx = rstd * (g - mean of g - h * mean of g * h), means along the row; dgamma and dbeta are
 * the sums over rows of dy * h and of dy. dx in place of dy or x. dx is within (64 + cols / 512) *
 * u of rstd * (|g| + mean of |g| + |h| * mean of |g * h|); dgamma and dbeta within (64 + rows / 8)
 * * u of the sum of magnitudes. dy has x's type. */
typedef struct cen_layer_norm_back {
    const cen_matrix *dy, *x;
    const cen_matrix *gamma;          /* as given to cen_compute_layer_norm; NULL: ones */
    const cen_matrix *mean, *rstd;    /* as it gave them; x's rows, 1 column, FP32 */
    const cen_matrix *dx;             /* as large as x; NULL: not wanted */
    const cen_matrix *dgamma, *dbeta; /* 1 row of x's columns; NULL: not wanted */
} cen_layer_norm_back;

/* Bytes of work that the gradients of gamma or beta need. */
CEN_API uint64_t cen_compute_layer_norm_back_work(uint64_t rows, uint64_t cols);

/* CEN_ERR_INVALID: also if dgamma or dbeta is wanted, and there is too little work. */
CEN_API cen_status cen_compute_layer_norm_back(cen_device *device, const cen_layer_norm_back *back,
                                               const cen_scratch *work, cen_stream stream);

#ifdef __cplusplus
}
#endif
#endif
