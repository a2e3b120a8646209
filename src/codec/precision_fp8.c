/* Scales of FP8 tensors: of an amax, or of those of some steps. */
#include "codec/precision.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/over.h"
#include "codec/codec.h"

enum { HISTORY_MOST = 1024, MARGIN_MOST = 16, WORK = 8192 };

_Static_assert(sizeof(cen_fp8_scaling) == sizeof(ceni_fp8_scaling), "two names of one struct");

static cen_status check_options(const cen_fp8_options *o) {
    if (!o) {
        return ceni_fail(CEN_ERR_INVALID, "options is NULL");
    }
    if (!ceni_codec_is_fp8(o->format)) {
        return ceni_fail(CEN_ERR_INVALID, "options.format is %s; it is fp8_e4m3 or fp8_e5m2",
                         cen_codec_format_name(o->format));
    }
    if (o->margin < 0 || o->margin > MARGIN_MOST || o->history > HISTORY_MOST) {
        return ceni_fail(CEN_ERR_INVALID,
                         "options.margin is %d, history %u; they are 0 to %d and 0 to %d",
                         o->margin, o->history, MARGIN_MOST, HISTORY_MOST);
    }
    return CEN_OK;
}

static uint64_t pitch_of(const cen_fp8_options *o) {
    return (sizeof(ceni_fp8_scaling) + o->history * sizeof(float) + 7) / 8 * 8;
}

cen_status cen_fp8_bytes(const cen_fp8_options *options, uint64_t *bytes) {
    cen_status status = check_options(options);
    if (!status && !bytes) {
        status = ceni_fail(CEN_ERR_INVALID, "bytes is NULL");
    }
    if (!status) {
        *bytes = pitch_of(options);
    }
    return status;
}

static cen_status check(cen_device *device, const cen_fp8_options *options, cen_addr states,
                        uint64_t tensors) {
    cen_status status = ceni_precision_place(device, "states", states, 8);
    status = status ? status : check_options(options);
    if (!status && (!tensors || tensors > UINT32_MAX)) {
        status = ceni_fail(CEN_ERR_INVALID, "tensors is %llu; it is 1 to 2^32 - 1",
                           (unsigned long long)tensors);
    }
    return status;
}

cen_status cen_fp8_init(cen_device *device, const cen_fp8_options *options, cen_addr states,
                        uint64_t tensors, cen_stream stream) {
    cen_status status = check(device, options, states, tensors);
    if (status) {
        return status;
    }
    uint64_t pitch = pitch_of(options);
    uint8_t *image = ceni_calloc(tensors, pitch);
    if (!image) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_fp8_init: no memory for %llu tensors",
                         (unsigned long long)tensors);
    }
    const ceni_fp8_scaling first = {.scale = 1, .inverse = 1};
    for (uint64_t i = 0; i < tensors; i++) {
        memcpy(image + i * pitch, &first, sizeof first);
    }
    status = cen_copy_async(device, states, (uintptr_t)image, tensors * pitch, stream);
    status = status ? status : cen_stream_sync(device, stream);
    ceni_free(image);
    return status;
}

cen_status cen_fp8_amax_async(cen_device *device, cen_addr state, const cen_matrix *tensor,
                              cen_stream stream) {
    cen_status status = ceni_precision_place(device, "state", state, 8);
    status = status ? status : ceni_precision_matrix(tensor, "tensor");
    if (status || !tensor->rows || !tensor->cols) {
        return status;
    }
    ceni_fp8_job job = {.state = state,
                        .matrix = tensor->data,
                        .rows = tensor->rows,
                        .cols = tensor->cols,
                        .stride = tensor->stride,
                        .dtype = tensor->dtype};
    if (job.stride == job.cols) {
        job.cols *= job.rows;
        job.stride = job.cols;
        job.rows = 1;
    }
    uint64_t across = ceni_over(job.cols, WORK);
    uint64_t blocks = job.rows > UINT64_MAX / across ? UINT64_MAX : job.rows * across;
    return ceni_precision_launch(device, "cen_fp8_amax", &job, blocks, stream);
}

cen_status cen_fp8_update_async(cen_device *device, const cen_fp8_options *options, cen_addr states,
                                uint64_t tensors, cen_stream stream) {
    cen_status status = check(device, options, states, tensors);
    if (status) {
        return status;
    }
    float largest = ceni_codec_largest(cen_codec_format_dtype(options->format));
    ceni_fp8_job job = {.state = states,
                        .tensors = tensors,
                        .pitch = pitch_of(options),
                        .history = options->history,
                        .largest = ldexpf(largest, -options->margin)};
    return ceni_precision_launch(device, "cen_fp8_update", &job, (tensors + 255) / 256, stream);
}

cen_status cen_fp8_read(cen_device *device, cen_addr state, cen_stream stream,
                        cen_fp8_scaling *scaling) {
    cen_fp8_scaling read;
    cen_status status = ceni_precision_place(device, "state", state, 8);
    if (!status && !scaling) {
        status = ceni_fail(CEN_ERR_INVALID, "scaling is NULL");
    }
    status = status ? status : cen_copy_async(device, (uintptr_t)&read, state, sizeof read, stream);
    status = status ? status : cen_stream_sync(device, stream);
    if (!status) {
        *scaling = read;
    }
    return status;
}
