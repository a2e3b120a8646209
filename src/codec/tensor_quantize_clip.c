/* Thresholds found on a tensor itself, and scales that are cut to them. */
#include "codec/tensor_quantize.h"

#include "base/log.h"
#include "base/mem.h"
#include "codec/codec.h"

#include <string.h>

cen_status ceni_quantize_calibrate(ceni_quantize_job *job, const cen_tensor *tensor,
                                   const ceni_quantize_item *item, cen_calibration **calibration) {
    const cen_quantized *q = &item->q;
    uint64_t rows = ceni_quantized_rows(&q->codec, q->rows, q->cols);
    uint64_t row = q->cols * (tensor->bits / 8);
    cen_calibration *c = NULL;
    cen_status status = cen_calibration_create(CEN_CHANNELS_NONE, 0, &c);
    uint8_t *room = status ? NULL : ceni_malloc((size_t)(rows * row));
    if (!status && !room) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "tensor '%.200s': no memory for a piece of it",
                           tensor->name);
    }
    for (uint64_t first = 0; first < q->rows && !status; first += rows) {
        uint64_t n = q->rows - first < rows ? q->rows - first : rows;
        cen_matrix matrix = {(cen_addr)room, n, q->cols, q->cols, q->dtype};
        status = cen_tensors_read(job->in, tensor, first * row, n * row, room);
        status = status ? status : cen_calibration_add(c, &matrix);
        ceni_quantize_advance(job, n * row);
    }
    ceni_free(room);
    if (status) {
        cen_calibration_free(c);
        return status;
    }
    *calibration = c;
    return CEN_OK;
}

cen_status ceni_quantize_threshold(const ceni_quantize_job *job, const cen_calibration *calibration,
                                   ceni_quantize_item *item) {
    const cen_quantize_options *o = job->options;
    float found = 0;
    item->threshold = 0;
    if (!item->q.codec.granularity) { /* a wider codec's */
        return CEN_OK;
    }
    cen_status before = ceni_log_expect(CEN_ERR_NOT_FOUND);
    cen_status status =
        cen_calibration_threshold(calibration, o->threshold, o->percentile, &item->q.codec, &found);
    ceni_log_expect(before);
    if (status) {
        return status == CEN_ERR_NOT_FOUND ? CEN_OK
                                           : status; /* nothing is finite, nothing is cut */
    }
    item->threshold = found;
    return CEN_OK;
}

/* Division keeps the order of amax, so that this is the scale of the lesser of amax and the
 * threshold. */
static void cut_scales(const ceni_quantize_item *item, const cen_codec_parts *parts) {
    float most = item->threshold / ceni_codec_largest(cen_codec_format_dtype(item->q.codec.format));
    most = most < 0x1p-126f ? 0x1p-126f : most;
    for (uint64_t at = 0; at < parts->bytes.scales; at += sizeof most) {
        void *scale = (void *)(uintptr_t)(parts->scales + at);
        float s;
        memcpy(&s, scale, sizeof s);
        memcpy(scale, s < most ? &s : &most, sizeof s);
    }
}

cen_status ceni_quantize_encode_matrix(const ceni_quantize_item *item, const cen_matrix *matrix,
                                       cen_codec_parts *parts, cen_codec_sums *sums) {
    cen_codec codec = item->q.codec;
    if (item->threshold > 0) {
        cen_status status = cen_codec_encode(&codec, matrix, parts, NULL, NULL);
        if (status) {
            return status;
        }
        cut_scales(item, parts);
        codec.scales_given = true;
    }
    return cen_codec_encode(&codec, matrix, parts, NULL, sums);
}
