/* Loss scaling. */
#include "codec/precision.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/over.h"
#include "compute/compute.h"

enum { BLOCK = 256, BLOCKS_EACH = 8 };

_Static_assert(sizeof(ceni_scaler_state) % 8 == 0, "the table follows, aligned");
_Static_assert(offsetof(ceni_scaler_state, inverse) == 4 && offsetof(ceni_scaler_state, found) == 8,
               "as precision.h says");

cen_status ceni_precision_place(cen_device *device, const char *name, cen_addr addr,
                                uint64_t alignment) {
    if (!device) {
        return ceni_fail(CEN_ERR_INVALID, "device is NULL");
    }
    if (!addr || addr % alignment) {
        return ceni_fail(CEN_ERR_INVALID, "%s is 0x%llx; it is a multiple of %llu", name,
                         (unsigned long long)addr, (unsigned long long)alignment);
    }
    return CEN_OK;
}

cen_status ceni_precision_matrix(const cen_matrix *matrix, const char *name) {
    uint64_t bytes, count;
    cen_status status = ceni_matrix_check(matrix, name, &bytes);
    if (status) {
        return status;
    }
    if (matrix->dtype != CEN_FP32 && matrix->dtype != CEN_FP16 && matrix->dtype != CEN_BF16) {
        return ceni_fail(CEN_ERR_INVALID, "%s is of %s; it is of fp32, fp16 or bf16", name,
                         cen_dtype_name(matrix->dtype));
    }
    if (__builtin_mul_overflow(matrix->rows, matrix->cols, &count)) {
        return ceni_fail(CEN_ERR_INVALID, "%s of %llu x %llu elements has no addresses", name,
                         (unsigned long long)matrix->rows, (unsigned long long)matrix->cols);
    }
    return CEN_OK;
}

cen_status ceni_precision_launch(cen_device *device, const char *kernel, void *job, uint64_t blocks,
                                 cen_stream stream) {
    cen_device_props props;
    cen_status status = cen_device_get_props(device, &props);
    if (status) {
        return status;
    }
    uint64_t most = (uint64_t)props.multiprocessors * BLOCKS_EACH;
    blocks = blocks > most && most ? most : blocks;
    const cen_launch shape = {{(uint32_t)blocks, 1, 1}, {BLOCK, 1, 1}, 0};
    return cen_kernel_launch(device, kernel, &shape, &job, 1, stream);
}

/* ---- states ---- */

static cen_status check_options(const cen_scaler_options *given, cen_scaler_options *o) {
    *o = given ? *given : (cen_scaler_options){0};
    o->scale = o->scale != 0 ? o->scale : 65536.0f;
    o->growth = o->growth != 0 ? o->growth : 2.0f;
    o->backoff = o->backoff != 0 ? o->backoff : 0.5f;
    o->interval = o->interval ? o->interval : 2000;
    o->floor = o->floor != 0 ? o->floor : 1.0f;
    if (!(o->growth > 1) || !isfinite(o->growth) || !(o->backoff > 0 && o->backoff < 1)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "options.growth is %g, backoff %g; they are over 1, and 0 to 1",
                         (double)o->growth, (double)o->backoff);
    }
    if (!(o->floor >= 0x1p-126f && o->scale >= o->floor && o->scale <= 0x1p126f)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "options.scale is %g, floor %g; they are 2^-126 to 2^126, and the floor "
                         "is no more than the scale",
                         (double)o->scale, (double)o->floor);
    }
    return CEN_OK;
}

static cen_status check_count(uint64_t count) {
    return !count || count > (uint64_t)1 << 31
               ? ceni_fail(CEN_ERR_INVALID, "count is %llu; it is 1 to 2^31",
                           (unsigned long long)count)
               : CEN_OK;
}

cen_status cen_scaler_bytes(uint64_t tensors, uint64_t *bytes) {
    cen_status status = check_count(tensors);
    if (!status && !bytes) {
        status = ceni_fail(CEN_ERR_INVALID, "bytes is NULL");
    }
    if (!status) {
        *bytes = sizeof(ceni_scaler_state) + tensors * sizeof(ceni_scaler_tensor);
    }
    return status;
}

static cen_status check_gradients(const cen_matrix *gradients, uint64_t count) {
    cen_status status = check_count(count);
    if (!status && !gradients) {
        status = ceni_fail(CEN_ERR_INVALID, "gradients is NULL");
    }
    for (uint64_t i = 0; !status && i < count; i++) {
        char name[40];
        (void)snprintf(name, sizeof name, "gradients[%llu]", (unsigned long long)i);
        status = ceni_precision_matrix(&gradients[i], name);
    }
    return status;
}

/* A tensor, whose rows are one if they touch. */
static ceni_scaler_tensor tensor_of(const cen_matrix *m) {
    ceni_scaler_tensor t = {
        .data = m->data, .rows = m->rows, .cols = m->cols, .stride = m->stride, .dtype = m->dtype};
    if (t.stride == t.cols) {
        t.cols *= t.rows;
        t.rows = t.cols ? 1 : 0;
        t.stride = t.cols;
    }
    t.chunks_across = ceni_over(t.cols, CENI_SCALER_CHUNK);
    return t;
}

static uint64_t chunks_of(const cen_matrix *gradients, uint64_t count) {
    uint64_t chunks = 0;
    for (uint64_t i = 0; i < count; i++) {
        ceni_scaler_tensor t = tensor_of(&gradients[i]);
        chunks += t.rows * t.chunks_across;
    }
    return chunks;
}

cen_status cen_scaler_init(cen_device *device, const cen_scaler_options *options, cen_addr state,
                           const cen_matrix *gradients, uint64_t count, cen_stream stream) {
    cen_scaler_options o;
    uint64_t bytes = 0, chunks = 0;
    cen_status status = ceni_precision_place(device, "state", state, 8);
    status = status ? status : check_options(options, &o);
    status = status ? status : check_gradients(gradients, count);
    status = status ? status : cen_scaler_bytes(count, &bytes);
    if (status) {
        return status;
    }
    ceni_scaler_state *image = ceni_calloc(1, bytes);
    if (!image) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_scaler_init: no memory for %llu tensors",
                         (unsigned long long)count);
    }
    ceni_scaler_tensor *table = (ceni_scaler_tensor *)(image + 1);
    image->scale = o.scale;
    image->inverse = 1.0f / o.scale;
    for (uint64_t i = 0; i < count; i++) {
        table[i] = tensor_of(&gradients[i]);
        table[i].first = chunks;
        chunks += table[i].rows * table[i].chunks_across;
    }
    status = cen_copy_async(device, state, (uintptr_t)image, bytes, stream);
    status = status ? status : cen_stream_sync(device, stream);
    ceni_free(image);
    return status;
}

cen_status cen_scaler_check_async(cen_device *device, cen_addr state, const cen_matrix *gradients,
                                  uint64_t count, bool unscale, cen_stream stream) {
    cen_status status = ceni_precision_place(device, "state", state, 8);
    status = status ? status : check_gradients(gradients, count);
    if (status) {
        return status;
    }
    ceni_scaler_job job = {.state = state,
                           .table = state + sizeof(ceni_scaler_state),
                           .tensors = count,
                           .chunks = chunks_of(gradients, count),
                           .unscale = unscale};
    return job.chunks ? ceni_precision_launch(device, "cen_scaler_check", &job, job.chunks, stream)
                      : CEN_OK;
}

cen_status cen_scaler_update_async(cen_device *device, const cen_scaler_options *options,
                                   cen_addr state, uint64_t count, cen_stream stream) {
    cen_scaler_options o;
    cen_status status = ceni_precision_place(device, "state", state, 8);
    status = status ? status : check_options(options, &o);
    status = status ? status : check_count(count);
    if (status) {
        return status;
    }
    ceni_scaler_job job = {.state = state,
                           .table = state + sizeof(ceni_scaler_state),
                           .tensors = count,
                           .growth = o.growth,
                           .backoff = o.backoff,
                           .floor = o.floor,
                           .interval = o.interval};
    return ceni_precision_launch(device, "cen_scaler_update", &job, 1, stream);
}

cen_status cen_scaler_read(cen_device *device, cen_addr state, uint64_t count, cen_stream stream,
                           cen_scaler_report *report, uint64_t *overflows) {
    uint64_t bytes = 0;
    cen_status status = ceni_precision_place(device, "state", state, 8);
    status = status ? status : cen_scaler_bytes(count, &bytes);
    if (!status && !report) {
        status = ceni_fail(CEN_ERR_INVALID, "report is NULL");
    }
    if (status) {
        return status;
    }
    ceni_scaler_state *image = ceni_malloc(bytes);
    if (!image) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_scaler_read: no memory for %llu tensors",
                         (unsigned long long)count);
    }
    status = cen_copy_async(device, (uintptr_t)image, state, bytes, stream);
    status = status ? status : cen_stream_sync(device, stream);
    if (!status) {
        const ceni_scaler_tensor *table = (const ceni_scaler_tensor *)(image + 1);
        *report = (cen_scaler_report){.scale = image->scale,
                                      .good = image->good,
                                      .steps = image->steps,
                                      .skipped = image->skipped,
                                      .floored = image->floored,
                                      .last_step = image->last_step,
                                      .first = image->last_step ? ~image->last : 0};
        for (uint64_t i = 0; overflows && i < count; i++) {
            overflows[i] = table[i].overflows;
        }
    }
    ceni_free(image);
    return status;
}
