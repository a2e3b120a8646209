#include "kernels/operand.h"

#include "base/half.h"
#include "cenote/dtype.h"

uint64_t ceni_operand_size(uint32_t dtype) {
    return dtype == CEN_FP32 ? 4 : 2;
}

static uint64_t at(const ceni_operand *o, uint64_t row, uint64_t col) {
    return o->data + (row * o->stride + col) * ceni_operand_size(o->dtype);
}

void ceni_operand_load(const ceni_operand *from, uint64_t row, uint64_t col, size_t count,
                       float *to) {
    const void *src = (const void *)(uintptr_t)at(from, row, col);
    const uint16_t *halves = src;
    if (from->dtype == CEN_FP32) {
        memcpy(to, src, count * sizeof *to);
    } else if (from->dtype == CEN_FP16) {
        for (size_t i = 0; i < count; i++) {
            to[i] = ceni_float_of_f16(halves[i]);
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            to[i] = ceni_float_of_bf16(halves[i]);
        }
    }
}

void ceni_operand_store(const ceni_operand *to, uint64_t row, uint64_t col, size_t count,
                        const float *from) {
    void *dst = (void *)(uintptr_t)at(to, row, col);
    uint16_t *halves = dst;
    if (to->dtype == CEN_FP32) {
        memcpy(dst, from, count * sizeof *from);
    } else if (to->dtype == CEN_FP16) {
        for (size_t i = 0; i < count; i++) {
            halves[i] = ceni_f16_of_float(from[i]);
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            halves[i] = ceni_bf16_of_float(from[i]);
        }
    }
}

void ceni_operand_round(uint32_t dtype, size_t count, float *values) {
    if (dtype == CEN_FP16) {
        for (size_t i = 0; i < count; i++) {
            values[i] = ceni_float_of_f16(ceni_f16_of_float(values[i]));
        }
    } else if (dtype == CEN_BF16) {
        for (size_t i = 0; i < count; i++) {
            values[i] = ceni_float_of_bf16(ceni_bf16_of_float(values[i]));
        }
    }
}

ceni_kernel_range ceni_operand_range(uint64_t data, uint64_t stride, uint64_t rows, uint64_t cols,
                                     uint64_t size, bool write) {
    bool empty = !data || !rows || !cols;
    return (ceni_kernel_range){data, empty ? 0 : ((rows - 1) * stride + cols) * size, write};
}
