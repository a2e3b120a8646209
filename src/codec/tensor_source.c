#include "codec/tensor_values.h"

#include "base/half.h"
#include "base/log.h"
#include "base/mem.h"
#include "codec/tensor_quantized.h"

#include <string.h>

cen_status ceni_tensor_source_open(const cen_tensors *file, const cen_tensor *tensor,
                                   ceni_tensor_source *source) {
    *source = (ceni_tensor_source){
        .file = file, .tensor = tensor, .dtype = tensor->dtype, .count = tensor->count};
    cen_status before = ceni_log_expect(CEN_ERR_NOT_FOUND);
    cen_status status = cen_quantized_find(file, tensor->name, &source->quantized);
    ceni_log_expect(before);
    if (status) {
        return status == CEN_ERR_NOT_FOUND ? CEN_OK : status;
    }
    const cen_quantized *q = &source->quantized;
    uint64_t rows = ceni_quantized_rows(&q->codec, q->rows, q->cols);
    source->dtype = CEN_FP32;
    source->count = q->rows * q->cols;
    source->room = ceni_malloc((size_t)(rows * q->cols) * sizeof *source->room);
    return source->room ? CEN_OK
                        : ceni_fail(CEN_ERR_HOST_MEMORY, "tensor '%.200s': no memory to decode it",
                                    tensor->name);
}

/* Decodes the rows from that of element `at` on. */
static cen_status refill(ceni_tensor_source *source, uint64_t at) {
    const cen_quantized *q = &source->quantized;
    bool lossless = q->codec.format == CEN_CODEC_LOSSLESS_BF16;
    uint64_t first = at / q->cols, rows = ceni_quantized_rows(&q->codec, q->rows, q->cols);
    rows = rows < q->rows - first ? rows : q->rows - first;
    cen_status status = cen_quantized_read(source->file, q, first, rows,
                                           lossless ? CEN_BF16 : CEN_FP32, source->room);
    if (status) {
        return status;
    }
    source->first = first * q->cols;
    source->held = rows * q->cols;
    /* From its end, so that none is overwritten before it is read. */
    for (uint64_t i = lossless ? source->held : 0; i-- > 0;) {
        uint16_t half;
        memcpy(&half, (const uint8_t *)source->room + i * sizeof half, sizeof half);
        source->room[i] = ceni_float_of_bf16(half);
    }
    return CEN_OK;
}

cen_status ceni_tensor_source_read(ceni_tensor_source *source, uint64_t first, size_t count,
                                   double *to) {
    if (!source->room) {
        return cen_tensors_values(source->file, source->tensor, first, count, to);
    }
    for (size_t i = 0; i < count; i++, first++) {
        if (first - source->first >= source->held) {
            cen_status status = refill(source, first);
            if (status) {
                return status;
            }
        }
        to[i] = (double)source->room[first - source->first];
    }
    return CEN_OK;
}

void ceni_tensor_source_close(ceni_tensor_source *source) {
    ceni_free(source->room);
    *source = (ceni_tensor_source){0};
}
