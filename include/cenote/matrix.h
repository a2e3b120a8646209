/* A matrix in a device's memory, as kernels take it. */
#ifndef CENOTE_MATRIX_H
#define CENOTE_MATRIX_H

#include <stdint.h>

#include "cenote/device.h"
#include "cenote/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rows x cols elements, rows one after another: element (i, j) lies at data + (i * stride + j) *
 * size of an element. stride, in elements, is at least cols. `data` is a multiple of the element's
 * size, no more. With no rows or no columns there is no memory, and `data` may be 0. */
typedef struct cen_matrix {
    cen_addr data;
    uint64_t rows, cols, stride;
    cen_dtype dtype;
} cen_matrix;

#ifdef __cplusplus
}
#endif
#endif
