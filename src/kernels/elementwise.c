/* The twins of elementwise.cu: a piece of a row at a time, as floats, through all steps. */
#include "kernels/elementwise.h"

#include <math.h>
#include <string.h>

#include "kernels/operand.h"

enum { PIECE = 256 };

static bool has_operand(const ceni_map_step *step) {
    return step->kind == CENI_MAP_ADD || step->kind == CENI_MAP_AXPY || step->kind == CENI_MAP_BIAS;
}

static void add(float alpha, const float *y, size_t count, float *x) {
    for (size_t i = 0; i < count; i++) {
        float scaled = alpha * x[i];
        x[i] = scaled + y[i];
    }
}

static void scale(float alpha, size_t count, float *x) {
    for (size_t i = 0; i < count; i++) {
        x[i] = alpha * x[i];
    }
}

static void relu(size_t count, float *x) {
    for (size_t i = 0; i < count; i++) {
        x[i] = x[i] < 0 ? 0 : x[i];
    }
}

static void gelu(size_t count, float *x) {
    for (size_t i = 0; i < count; i++) {
        x[i] = x[i] == -INFINITY ? -0.0f : 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
    }
}

/* (1 + tanh(z)) / 2 is 1 / (1 + exp(-2 z)). */
static void gelu_tanh(size_t count, float *x) {
    for (size_t i = 0; i < count; i++) {
        float z = 1.5957691f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        x[i] = x[i] == -INFINITY ? -0.0f : x[i] / (1 + expf(-z));
    }
}

static void apply(const ceni_map_step *step, uint64_t row, uint64_t col, size_t count, float *x) {
    float y[PIECE];
    if (has_operand(step)) {
        ceni_operand operand = {step->data, step->stride, step->dtype};
        ceni_operand_load(&operand, step->kind == CENI_MAP_BIAS ? 0 : row, col, count, y);
    }
    switch (step->kind) {
    case CENI_MAP_SCALE:
        scale(step->alpha, count, x);
        break;
    case CENI_MAP_ADD:
    case CENI_MAP_BIAS:
        add(1, y, count, x);
        break;
    case CENI_MAP_AXPY:
        add(step->alpha, y, count, x);
        break;
    case CENI_MAP_RELU:
        relu(count, x);
        break;
    case CENI_MAP_GELU:
        gelu(count, x);
        break;
    case CENI_MAP_GELU_TANH:
        gelu_tanh(count, x);
        break;
    case CENI_MAP_ROUND:
        ceni_operand_round(step->dtype, count, x);
        break;
    }
}

void ceni_twin_map(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                   void *const *args) {
    ceni_map m;
    memcpy(&m, args[0], sizeof m);
    ceni_operand x = {m.x, m.x_stride, m.x_dtype}, out = {m.out, m.out_stride, m.out_dtype};
    float piece[PIECE];
    for (uint64_t row = 0; row < m.rows; row++) {
        for (uint64_t col = 0; col < m.cols; col += PIECE) {
            size_t count = m.cols - col < PIECE ? m.cols - col : PIECE;
            ceni_operand_load(&x, row, col, count, piece);
            for (uint32_t i = 0; i < m.count; i++) {
                apply(&m.steps[i], row, col, count, piece);
            }
            ceni_operand_store(&out, row, col, count, piece);
        }
    }
}

size_t ceni_ranges_map(void *const *args, ceni_kernel_range *ranges) {
    ceni_map m;
    memcpy(&m, args[0], sizeof m);
    size_t count = 2;
    ranges[0] = ceni_operand_range(m.out, m.out_stride, m.rows, m.cols,
                                   ceni_operand_size(m.out_dtype), true);
    ranges[1] =
        ceni_operand_range(m.x, m.x_stride, m.rows, m.cols, ceni_operand_size(m.x_dtype), false);
    for (uint32_t i = 0; i < m.count && count < CENI_KERNEL_RANGES_MAX; i++) {
        const ceni_map_step *step = &m.steps[i];
        if (has_operand(step)) {
            ranges[count++] = ceni_operand_range(step->data, step->stride,
                                                 step->kind == CENI_MAP_BIAS ? 1 : m.rows, m.cols,
                                                 ceni_operand_size(step->dtype), false);
        }
    }
    return count;
}

void ceni_twin_fill_rows(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args) {
    ceni_bytes b;
    memcpy(&b, args[0], sizeof b);
    for (uint64_t row = 0; row < b.rows; row++) {
        uint8_t *dst = (uint8_t *)(uintptr_t)(b.dst + row * b.dst_stride);
        for (uint64_t i = 0; i < b.width; i += b.unit) {
            memcpy(dst + i, &b.src, b.unit);
        }
    }
}

size_t ceni_ranges_fill_rows(void *const *args, ceni_kernel_range *ranges) {
    ceni_bytes b;
    memcpy(&b, args[0], sizeof b);
    ranges[0] = ceni_operand_range(b.dst, b.dst_stride, b.rows, b.width, 1, true);
    return 1;
}

void ceni_twin_copy_rows(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args) {
    ceni_bytes b;
    memcpy(&b, args[0], sizeof b);
    for (uint64_t row = 0; row < b.rows; row++) {
        memcpy((void *)(uintptr_t)(b.dst + row * b.dst_stride),
               (const void *)(uintptr_t)(b.src + row * b.src_stride), b.width);
    }
}

size_t ceni_ranges_copy_rows(void *const *args, ceni_kernel_range *ranges) {
    ceni_bytes b;
    memcpy(&b, args[0], sizeof b);
    ranges[0] = ceni_operand_range(b.dst, b.dst_stride, b.rows, b.width, 1, true);
    ranges[1] = ceni_operand_range(b.src, b.src_stride, b.rows, b.width, 1, false);
    return 2;
}
