#include "compute/check.h"

#include <stdio.h>

#include "base/log.h"
#include "base/over.h"
#include "compute/compute.h"

typedef unsigned long long ull;

cen_status ceni_check_device(const char *call, const cen_device *device) {
    return device ? CEN_OK : ceni_fail(CEN_ERR_INVALID, "%s: device is NULL", call);
}

cen_status ceni_check_matrix(const char *call, const char *name, const cen_matrix *matrix) {
    char whole[64];
    uint64_t bytes;
    snprintf(whole, sizeof whole, "%s: %s", call, name);
    return ceni_matrix_check(matrix, whole, &bytes);
}

cen_status ceni_check_floats(const char *call, const char *name, const cen_matrix *matrix) {
    cen_status status = ceni_check_matrix(call, name, matrix);
    if (!status && matrix->dtype != CEN_FP32 && matrix->dtype != CEN_FP16 &&
        matrix->dtype != CEN_BF16) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "%s: %s is %s; fp32, fp16 and bf16 have kernels",
                         call, name, cen_dtype_name(matrix->dtype));
    }
    return status;
}

cen_status ceni_check_shape(const char *call, const char *name, const cen_matrix *matrix,
                            uint64_t rows, uint64_t cols) {
    cen_status status = ceni_check_floats(call, name, matrix);
    if (!status && (matrix->rows != rows || matrix->cols != cols)) {
        return ceni_fail(CEN_ERR_INVALID, "%s: %s is %llu x %llu, not %llu x %llu", call, name,
                         (ull)matrix->rows, (ull)matrix->cols, (ull)rows, (ull)cols);
    }
    return status;
}

cen_status ceni_check_column(const char *call, const char *name, const cen_matrix *matrix,
                             uint64_t rows) {
    cen_status status = ceni_check_shape(call, name, matrix, rows, 1);
    if (!status && matrix->dtype != CEN_FP32) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "%s: %s is %s; it has to be fp32", call, name,
                         cen_dtype_name(matrix->dtype));
    }
    return status;
}

/* The same elements in the same places; the stride of a single row says nothing. */
static bool same(const cen_matrix *a, const cen_matrix *b) {
    return a->data == b->data && a->rows == b->rows && a->cols == b->cols &&
           (a->stride == b->stride || a->rows == 1) &&
           cen_dtype_bits(a->dtype) == cen_dtype_bits(b->dtype);
}

cen_status ceni_check_apart(const char *call, const char *a_name, const cen_matrix *a,
                            const char *b_name, const cen_matrix *b, bool in_place) {
    if (!b || !ceni_matrix_overlap(a, b) || (in_place && same(a, b))) {
        return CEN_OK;
    }
    return ceni_fail(CEN_ERR_INVALID, "%s: %s and %s overlap%s", call, a_name, b_name,
                     in_place ? ", and are not the same elements" : "");
}

ceni_operand ceni_operand_of(const cen_matrix *matrix) {
    return matrix ? (ceni_operand){matrix->data, matrix->stride, matrix->dtype} : (ceni_operand){0};
}

bool ceni_in_pieces(const ceni_operand *operand, uint32_t dtype, uint64_t rows) {
    bool strides = rows <= 1 || operand->stride * ceni_operand_size(dtype) % 16 == 0;
    return !operand->data || (operand->dtype == dtype && operand->data % 16 == 0 && strides);
}

uint32_t ceni_blocks(uint64_t count, uint64_t each, uint32_t most) {
    uint64_t blocks = ceni_over(count, each);
    return blocks > most ? most : blocks ? (uint32_t)blocks : 1;
}

uint32_t ceni_power(uint64_t value, uint32_t least, uint32_t most) {
    uint32_t power = least;
    while (power < value && power < most) {
        power *= 2;
    }
    return power;
}
