/* A matrix as kernels take it, checked by src/compute: element (i, j) at data + (i * stride + j) *
 * size; and its elements as FP32, for twins. */
#ifndef CENI_KERNELS_OPERAND_H
#define CENI_KERNELS_OPERAND_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/table.h"

typedef struct ceni_operand {
    uint64_t data, stride; /* elements; data 0: there is none */
    uint32_t dtype;        /* cen_dtype */
} ceni_operand;

/* count elements from (row, col) on, as FP32. */
void ceni_operand_load(const ceni_operand *from, uint64_t row, uint64_t col, size_t count,
                       float *to);
/* The same rounded, and back. */
void ceni_operand_store(const ceni_operand *to, uint64_t row, uint64_t col, size_t count,
                        const float *from);
/* Each value rounded to a type and back. */
void ceni_operand_round(uint32_t dtype, size_t count, float *values);

/* From its first byte to its last; none if it is empty or not there. */
ceni_kernel_range ceni_operand_range(uint64_t data, uint64_t stride, uint64_t rows, uint64_t cols,
                                     uint64_t size, bool write);
uint64_t ceni_operand_size(uint32_t dtype); /* of an element, in bytes */

#endif
