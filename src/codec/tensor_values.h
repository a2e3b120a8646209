/* The elements of a tensor as doubles, piece by piece. */
#ifndef CENI_TENSOR_VALUES_H
#define CENI_TENSOR_VALUES_H

#include "cenote/quantize.h"

/* Elements of a piece: what is in memory at a time. */
enum { CENI_PIECE = 65536 };

/* Decodes elements that lie at `from`, aligned to nothing; dtype is one of whole bytes. */
void ceni_values_decode(cen_dtype dtype, const uint8_t *from, size_t count, double *to);

/* A tensor whose values are read one after another. Zero: not open. */
typedef struct ceni_tensor_source {
    const cen_tensors *file;
    const cen_tensor *tensor;
    cen_dtype dtype; /* of the values; 0: none that is read */
    uint64_t count;
    cen_quantized quantized; /* if it is */
    float *room;             /* its decoded elements, from `first` on; NULL: it is not quantised */
    uint64_t first, held;
} ceni_tensor_source;

cen_status ceni_tensor_source_open(const cen_tensors *file, const cen_tensor *tensor,
                                   ceni_tensor_source *source);
cen_status ceni_tensor_source_read(ceni_tensor_source *source, uint64_t first, size_t count,
                                   double *to);
void ceni_tensor_source_close(ceni_tensor_source *source);

#endif
