#include "compute/compute.h"

#include "base/log.h"

/* From the first byte to the last; false: more than there are addresses. */
static bool extent(const cen_matrix *m, uint64_t *bytes) {
    uint64_t size = cen_dtype_bits(m->dtype) / 8, last, elements;
    *bytes = 0;
    return !m->rows || !m->cols ||
           (!__builtin_mul_overflow(m->rows - 1, m->stride, &last) &&
            !__builtin_add_overflow(last, m->cols, &elements) &&
            !__builtin_mul_overflow(elements, size, bytes) && *bytes <= UINT64_MAX - m->data);
}

cen_status ceni_matrix_check(const cen_matrix *matrix, const char *name, uint64_t *bytes) {
    uint32_t bits = matrix ? cen_dtype_bits(matrix->dtype) : 0;
    uint64_t size = bits / 8;
    if (!matrix) {
        return ceni_fail(CEN_ERR_INVALID, "%s is NULL", name);
    }
    if (!size) {
        return ceni_fail(CEN_ERR_INVALID, "%s has elements of type %s (%d); whole bytes are needed",
                         name, cen_dtype_name(matrix->dtype), (int)matrix->dtype);
    }
    if (matrix->stride < matrix->cols) {
        return ceni_fail(CEN_ERR_INVALID, "%s has rows of %llu elements, %llu apart", name,
                         (unsigned long long)matrix->cols, (unsigned long long)matrix->stride);
    }
    if (!extent(matrix, bytes)) {
        return ceni_fail(CEN_ERR_INVALID, "%s of %llu x %llu %s, rows %llu apart, has no addresses",
                         name, (unsigned long long)matrix->rows, (unsigned long long)matrix->cols,
                         cen_dtype_name(matrix->dtype), (unsigned long long)matrix->stride);
    }
    if (*bytes && !matrix->data) {
        return ceni_fail(CEN_ERR_INVALID, "%s has no memory", name);
    }
    if (*bytes && matrix->data % size) {
        return ceni_fail(CEN_ERR_INVALID, "%s lies at 0x%llx, which is no multiple of its %u bytes",
                         name, (unsigned long long)matrix->data, bits / 8);
    }
    return CEN_OK;
}

/* Bytes from one row to the next. A single row may be taken to have any; 0 says so. */
static uint64_t pitch(const cen_matrix *m) {
    return m->rows > 1 ? m->stride * (cen_dtype_bits(m->dtype) / 8) : 0;
}

/* Columns of one matrix, side by side: rows equally far apart, none of one reaching into the
 * other's.
 */
static bool beside(const cen_matrix *a, const cen_matrix *b) {
    uint64_t step = pitch(a) ? pitch(a) : pitch(b);
    if (!step || (pitch(b) && pitch(b) != step)) {
        return false;
    }
    uint64_t a_width = a->cols * (cen_dtype_bits(a->dtype) / 8);
    uint64_t b_width = b->cols * (cen_dtype_bits(b->dtype) / 8);
    uint64_t from_a = (b->data - a->data) % step;
    from_a = b->data < a->data && from_a ? step - (a->data - b->data) % step : from_a;
    return from_a >= a_width && b_width <= step && from_a <= step - b_width;
}

bool ceni_matrix_overlap(const cen_matrix *a, const cen_matrix *b) {
    uint64_t a_bytes, b_bytes;
    return extent(a, &a_bytes) && extent(b, &b_bytes) && a_bytes && b_bytes &&
           a->data < b->data + b_bytes && b->data < a->data + a_bytes && !beside(a, b);
}
