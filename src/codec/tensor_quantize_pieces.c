/* Tensors encoded, decoded and copied, some MiB at a time. */
#include "codec/tensor_quantize.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

void ceni_quantize_advance(ceni_quantize_job *job, uint64_t bytes) {
    job->done += bytes;
    job->done = job->done < job->total ? job->done : job->total;
    if (job->options->progress) {
        job->options->progress(job->options->arg, job->done, job->total);
    }
}

static cen_status no_memory(const cen_tensor *tensor) {
    return ceni_fail(CEN_ERR_HOST_MEMORY, "tensor '%.200s': no memory for a piece of it",
                     tensor->name);
}

/* Appends the parts that were encoded to the output. */
static cen_status put_parts(ceni_quantize_job *job, const ceni_quantize_item *item,
                            const cen_codec_parts *parts) {
    const struct {
        cen_addr at;
        uint64_t bytes;
    } all[CENI_PARTS] = {{parts->values, parts->bytes.values},
                         {parts->scales, parts->bytes.scales},
                         {parts->zeros, parts->bytes.zeros},
                         {parts->metadata, parts->bytes.metadata}};
    size_t index = item->first;
    cen_status status = CEN_OK;
    for (size_t i = 0; i < CENI_PARTS && !status; i++) {
        if (all[i].bytes) {
            status =
                cen_tensor_writer_put(job->writer, index++, (const void *)all[i].at, all[i].bytes);
        }
    }
    return status;
}

static cen_codec_parts parts_at(cen_addr room, const cen_codec_sizes *sizes) {
    cen_codec_parts parts = {.bytes = *sizes};
    parts.values = room;
    parts.scales = parts.values + sizes->values;
    parts.zeros = parts.scales + sizes->scales;
    parts.metadata = parts.zeros + sizes->zeros;
    return parts;
}

static uint64_t all_of(const cen_codec_sizes *sizes) {
    return sizes->values + sizes->scales + sizes->zeros + sizes->metadata;
}

/* Rows from `first` on, which are read to `source`. */
static cen_status encode_rows(ceni_quantize_job *job, const cen_tensor *tensor,
                              ceni_quantize_item *item, uint64_t first, uint64_t rows,
                              uint8_t *source, uint8_t *room) {
    const cen_quantized *q = &item->q;
    uint64_t row = q->cols * (tensor->bits / 8);
    cen_codec_sizes sizes;
    cen_codec_sums sums;
    cen_status status = cen_codec_bound(&q->codec, rows, q->cols, &sizes);
    if (!status) {
        status = cen_tensors_read(job->in, tensor, first * row, rows * row, source);
    }
    if (status) {
        return status;
    }
    cen_codec_parts parts = parts_at((cen_addr)room, &sizes);
    cen_matrix matrix = {(cen_addr)source, rows, q->cols, q->cols, q->dtype};
    status = ceni_quantize_encode_matrix(item, &matrix, &parts, &sums);
    if (!status && job->writer) {
        status = put_parts(job, item, &parts);
    }
    if (!status) {
        cen_codec_sums_add(&item->sums, &sums);
        item->sizes.values = rows == q->rows ? parts.bytes.values : item->sizes.values;
        ceni_quantize_advance(job, rows * row);
    }
    return status;
}

cen_status ceni_quantize_encode(ceni_quantize_job *job, const cen_tensor *tensor,
                                ceni_quantize_item *item) {
    const cen_quantized *q = &item->q;
    uint64_t rows = ceni_quantized_rows(&q->codec, q->rows, q->cols);
    cen_codec_sizes sizes;
    cen_status status = cen_codec_bound(&q->codec, rows, q->cols, &sizes);
    if (status) {
        return status;
    }
    item->sums = (cen_codec_sums){0};
    uint8_t *source = ceni_malloc((size_t)(rows * q->cols * (tensor->bits / 8)));
    uint8_t *room = ceni_malloc((size_t)all_of(&sizes));
    if (!source || !room) {
        status = no_memory(tensor);
    }
    for (uint64_t first = 0; first < q->rows && !status; first += rows) {
        uint64_t n = q->rows - first < rows ? q->rows - first : rows;
        status = encode_rows(job, tensor, item, first, n, source, room);
    }
    ceni_free(source);
    ceni_free(room);
    return status;
}

cen_status ceni_quantize_decode(ceni_quantize_job *job, const cen_tensor *tensor,
                                ceni_quantize_item *item) {
    const cen_quantized *q = &item->q;
    uint64_t rows = ceni_quantized_rows(&q->codec, q->rows, q->cols);
    uint64_t row = q->cols * (cen_dtype_bits(q->dtype) / 8);
    uint8_t *room = ceni_malloc((size_t)(rows * row));
    cen_status status = room ? CEN_OK : no_memory(tensor);
    for (uint64_t first = 0; first < q->rows && !status; first += rows) {
        uint64_t n = q->rows - first < rows ? q->rows - first : rows;
        status = cen_quantized_read(job->in, q, first, n, q->dtype, room);
        if (!status) {
            status = cen_tensor_writer_put(job->writer, item->first, room, n * row);
        }
        ceni_quantize_advance(job, n * (tensor->bytes / q->rows));
    }
    ceni_free(room);
    return status;
}

cen_status ceni_quantize_copy(ceni_quantize_job *job, const cen_tensor *tensor,
                              ceni_quantize_item *item) {
    uint64_t most = tensor->bytes < CENI_ROWS_BYTES ? tensor->bytes : CENI_ROWS_BYTES;
    uint8_t *room = ceni_malloc((size_t)most);
    cen_status status = room ? CEN_OK : no_memory(tensor);
    for (uint64_t at = 0; at < tensor->bytes && !status; at += most) {
        uint64_t n = tensor->bytes - at < most ? tensor->bytes - at : most;
        status = cen_tensors_read(job->in, tensor, at, n, room);
        if (!status) {
            status = cen_tensor_writer_put(job->writer, item->first, room, n);
        }
        ceni_quantize_advance(job, n);
    }
    ceni_free(room);
    return status;
}
