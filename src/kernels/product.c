/* The twin of all products and convolutions: blocks of A and B are brought to one type, and
 * multiplied in loops along the columns, which a compiler makes vectors of. */
#include "kernels/product.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "cenote/dtype.h"
#include "kernels/args.h"
#include "kernels/operand.h"

enum { ROWS = 32, COLS = 64, DEPTH = 128 };

typedef union number {
    float f;
    uint32_t u; /* a whole number, in two's complement */
} number;

typedef struct work {
    ceni_product_args p;
    const ceni_conv_args *conv;   /* NULL: a plain product */
    const ceni_codec_job *weight; /* NULL: B is not encoded */
    bool whole;                   /* numbers are whole */
    union {
        float f[ROWS][DEPTH];
        uint32_t u[ROWS][DEPTH];
    } a;
    union {
        float f[DEPTH][COLS];
        uint32_t u[DEPTH][COLS];
    } b;
    union {
        float f[ROWS][COLS];
        uint32_t u[ROWS][COLS];
    } sums;
} work;

static float read_float(uint64_t base, uint8_t type, uint64_t index) {
    const void *memory = (const void *)(uintptr_t)base;
    switch (type) {
    case CEN_BF16:
        return ceni_float_of_bf16(((const uint16_t *)memory)[index]);
    case CEN_FP16:
        return ceni_float_of_f16(((const uint16_t *)memory)[index]);
    default:
        return ((const float *)memory)[index];
    }
}

static number read_number(const work *w, uint64_t base, uint64_t index) {
    if (w->whole) {
        return (number){.u = (uint32_t)((const int8_t *)(uintptr_t)base)[index]};
    }
    return (number){.f = read_float(base, w->p.input, index)};
}

/* Element (row, k) of the matrix that the convolution makes of its input. */
static number gather(const work *w, uint32_t row, uint32_t k) {
    const ceni_conv_args *c = w->conv;
    uint32_t tap = k / c->channels, pixels = c->out_height * c->out_width;
    uint32_t image = row / pixels, at = row % pixels;
    int64_t y = (int64_t)(at / c->out_width) * c->stride_y - c->pad_y +
                (int64_t)(tap / c->filter_width) * c->dilation_y;
    int64_t x = (int64_t)(at % c->out_width) * c->stride_x - c->pad_x +
                (int64_t)(tap % c->filter_width) * c->dilation_x;
    if (y < 0 || x < 0 || y >= c->height || x >= c->width) {
        return (number){0};
    }
    uint64_t pixel = ((uint64_t)image * c->height + (uint64_t)y) * c->width + (uint64_t)x;
    return read_number(w, w->p.a, pixel * c->channels + k % c->channels);
}

/* The bits of either are the other's: one store serves both. */
static void load_a(work *w, uint32_t row, uint32_t rows, uint32_t k, uint32_t depth) {
    const ceni_product_args *p = &w->p;
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j < depth; j++) {
            uint64_t r = (uint64_t)row + i, c = (uint64_t)k + j;
            uint64_t at = p->transpose_a ? c * p->a_stride + r : r * p->a_stride + c;
            number x = w->conv ? gather(w, row + i, k + j) : read_number(w, p->a, at);
            w->a.u[i][j] = x.u;
        }
    }
}

/* As load_b, of an encoded B. Transposed, it is decoded as it lies, and turned then. */
static void decode_b(work *w, uint32_t k, uint32_t depth, uint32_t col, uint32_t cols) {
    float turned[COLS][DEPTH];
    memset(&w->b, 0, sizeof w->b);
    if (!w->p.transpose_b) {
        ceni_codec_decode_block(w->weight, k, depth, col, cols, w->b.f[0], COLS);
    } else {
        ceni_codec_decode_block(w->weight, col, cols, k, depth, turned[0], DEPTH);
        for (uint32_t i = 0; i < depth; i++) {
            for (uint32_t j = 0; j < cols; j++) {
                w->b.f[i][j] = turned[j][i];
            }
        }
    }
    ceni_operand_round(w->p.input, (size_t)DEPTH * COLS, w->b.f[0]);
}

/* What lies beyond the last column is zero, so that loops have one length. */
static void load_b(work *w, uint32_t k, uint32_t depth, uint32_t col, uint32_t cols) {
    const ceni_product_args *p = &w->p;
    if (w->weight) {
        decode_b(w, k, depth, col, cols);
        return;
    }
    for (uint32_t i = 0; i < depth; i++) {
        for (uint32_t j = 0; j < COLS; j++) {
            uint64_t r = (uint64_t)k + i, c = (uint64_t)col + j;
            uint64_t at = p->transpose_b ? c * p->b_stride + r : r * p->b_stride + c;
            w->b.u[i][j] = j < cols ? read_number(w, p->b, at).u : 0;
        }
    }
}

static void add_row(float *restrict sums, float a, const float *restrict b) {
    for (uint32_t j = 0; j < COLS; j++) {
        sums[j] += a * b[j];
    }
}

static void multiply(work *w, uint32_t rows, uint32_t depth) {
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t k = 0; k < depth; k++) {
            add_row(w->sums.f[i], w->a.f[i][k], w->b.f[k]);
        }
    }
}

/* Sums go round at 2^31, as the device's do. */
static void add_whole_row(uint32_t *restrict sums, uint32_t a, const uint32_t *restrict b) {
    for (uint32_t j = 0; j < COLS; j++) {
        sums[j] += a * b[j];
    }
}

static void multiply_whole(work *w, uint32_t rows, uint32_t depth) {
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t k = 0; k < depth; k++) {
            add_whole_row(w->sums.u[i], w->a.u[i][k], w->b.u[k]);
        }
    }
}

static float activate(float x, uint8_t activation) {
    switch (activation) {
    case CENI_ACT_RELU:
        return x < 0 ? 0 : x;
    case CENI_ACT_GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678f));
    case CENI_ACT_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    default:
        return x;
    }
}

static void write_out(const ceni_product_args *p, uint64_t index, float value) {
    void *memory = (void *)(uintptr_t)p->d;
    switch (p->output) {
    case CEN_BF16:
        ((uint16_t *)memory)[index] = ceni_bf16_of_float(value);
        break;
    case CEN_FP16:
        ((uint16_t *)memory)[index] = ceni_f16_of_float(value);
        break;
    default:
        ((float *)memory)[index] = value;
    }
}

static void finish(const work *w, uint32_t sum, uint64_t row, uint64_t col) {
    const ceni_product_args *p = &w->p;
    const float *row_scale = (const float *)(uintptr_t)p->row_scale;
    const float *col_scale = (const float *)(uintptr_t)p->col_scale;
    uint64_t index = row * p->d_stride + col;
    if (p->output == CEN_INT32) {
        ((uint32_t *)(uintptr_t)p->d)[index] = sum;
        return;
    }
    float x = w->whole ? (float)(int32_t)sum : ceni_float_of(sum);
    x *= row_scale ? p->alpha * row_scale[row] : p->alpha;
    x *= col_scale ? col_scale[col] : 1;
    x += p->beta != 0 ? p->beta * read_float(p->c, p->output, row * p->c_stride + col) : 0;
    x += p->bias ? read_float(p->bias, p->bias_type, col) : 0;
    x = activate(x, p->activation);
    x += p->residual ? read_float(p->residual, p->output, row * p->residual_stride + col) : 0;
    write_out(p, index, x);
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static void run(const ceni_product_args *p, const ceni_conv_args *conv,
                const ceni_codec_job *weight) {
    work w = {.p = *p, .conv = conv, .weight = weight, .whole = p->input == CEN_INT8};
    for (uint32_t col = 0; col < p->n; col += COLS) {
        uint32_t cols = least(p->n - col, COLS);
        for (uint32_t row = 0; row < p->m; row += ROWS) {
            uint32_t rows = least(p->m - row, ROWS);
            memset(&w.sums, 0, sizeof w.sums);
            for (uint32_t k = 0; k < p->k; k += DEPTH) {
                uint32_t depth = least(p->k - k, DEPTH);
                load_a(&w, row, rows, k, depth);
                load_b(&w, k, depth, col, cols);
                (w.whole ? multiply_whole : multiply)(&w, rows, depth);
            }
            for (uint32_t i = 0; i < rows * cols; i++) {
                finish(&w, w.sums.u[i / cols][i % cols], (uint64_t)row + i / cols,
                       (uint64_t)col + i % cols);
            }
        }
    }
}

void ceni_twin_product(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                       void *const *args) {
    ceni_product_args p;
    memcpy(&p, args[0], sizeof p);
    run(&p, NULL, NULL);
}

void ceni_twin_coded(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                     void *const *args) {
    ceni_product_args p;
    ceni_codec_job weight;
    memcpy(&p, args[0], sizeof p);
    memcpy(&weight, args[1], sizeof weight);
    run(&p, NULL, &weight);
}

void ceni_twin_conv(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                    void *const *args) {
    ceni_conv_args c;
    memcpy(&c, args[0], sizeof c);
    run(&c.product, &c, NULL);
}

static uint64_t size_of(uint8_t type) {
    return cen_dtype_bits((cen_dtype)type) / 8;
}

static ceni_kernel_range matrix(uint64_t addr, uint64_t rows, uint64_t cols, uint64_t stride,
                                uint64_t size, bool write) {
    uint64_t elements = addr && rows && cols ? (rows - 1) * stride + cols : 0;
    return (ceni_kernel_range){addr, elements * size, write};
}

/* All but A's. */
static size_t result_ranges(const ceni_product_args *p, ceni_kernel_range *ranges) {
    uint64_t in = size_of(p->input), out = size_of(p->output), m = p->m, n = p->n, k = p->k;
    size_t count = 0;
    ranges[count++] = p->transpose_b ? matrix(p->b, n, k, p->b_stride, in, false)
                                     : matrix(p->b, k, n, p->b_stride, in, false);
    ranges[count++] = matrix(p->d, m, n, p->d_stride, out, true);
    ranges[count++] = matrix(p->beta != 0 ? p->c : 0, m, n, p->c_stride, out, false);
    ranges[count++] = matrix(p->residual, m, n, p->residual_stride, out, false);
    ranges[count++] = matrix(p->bias, 1, n, n, size_of(p->bias_type), false);
    ranges[count++] = matrix(p->row_scale, 1, m, m, sizeof(float), false);
    ranges[count++] = matrix(p->col_scale, 1, n, n, sizeof(float), false);
    return count;
}

static ceni_kernel_range range_of_a(const ceni_product_args *p) {
    uint64_t in = size_of(p->input);
    return p->transpose_a ? matrix(p->a, p->k, p->m, p->a_stride, in, false)
                          : matrix(p->a, p->m, p->k, p->a_stride, in, false);
}

size_t ceni_ranges_product(void *const *args, ceni_kernel_range *ranges) {
    ceni_product_args p;
    memcpy(&p, args[0], sizeof p);
    size_t count = result_ranges(&p, ranges);
    ranges[count++] = range_of_a(&p);
    return count;
}

/* A in the place of the decoded matrix, which is nowhere. */
size_t ceni_ranges_coded(void *const *args, ceni_kernel_range *ranges) {
    ceni_product_args p;
    memcpy(&p, args[0], sizeof p);
    size_t count = result_ranges(&p, ranges);
    size_t more = ceni_ranges_codec_decode(args + 1, ranges + count);
    ranges[count] = range_of_a(&p);
    return count + more;
}

size_t ceni_ranges_conv(void *const *args, ceni_kernel_range *ranges) {
    ceni_conv_args c;
    memcpy(&c, args[0], sizeof c);
    uint64_t pixels = (uint64_t)c.images * c.height * c.width;
    size_t count = result_ranges(&c.product, ranges);
    ranges[count++] =
        matrix(c.product.a, pixels, c.channels, c.channels, size_of(c.product.input), false);
    return count;
}
