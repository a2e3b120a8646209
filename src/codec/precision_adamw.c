/* AdamW with moments of 8 bits. */
#include "codec/precision.h"

#include <math.h>

#include "base/log.h"
#include "base/over.h"
#include "compute/compute.h"

enum { WARPS = 8 }; /* of a block; a warp takes a block of moments at a time */

_Static_assert(sizeof(cen_adamw_clock) == sizeof(ceni_adamw_clock), "two names of one struct");

static uint64_t blocks_of(uint64_t elements) {
    return ceni_over(elements, CENI_ADAMW_BLOCK);
}

cen_status cen_adamw_bytes(uint64_t elements, uint64_t *bytes) {
    if (!bytes) {
        return ceni_fail(CEN_ERR_INVALID, "bytes is NULL");
    }
    if (elements > UINT64_MAX / 4) {
        return ceni_fail(CEN_ERR_INVALID, "%llu elements have no addresses",
                         (unsigned long long)elements);
    }
    *bytes = 2 * elements + 2 * sizeof(float) * blocks_of(elements);
    return CEN_OK;
}

static cen_status job_of(const cen_adamw_options *o, ceni_adamw_job *job) {
    if (!o) {
        return ceni_fail(CEN_ERR_INVALID, "options is NULL");
    }
    bool assumed = o->beta1 == 0 && o->beta2 == 0;
    double beta1 = assumed ? 0.9 : o->beta1, beta2 = assumed ? 0.999 : o->beta2;
    double epsilon = o->epsilon == 0 ? 1e-8 : o->epsilon;
    if (!(o->rate >= 0) || !isfinite(o->rate) || !(o->weight_decay >= 0) ||
        !isfinite(o->weight_decay)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "options.rate is %g, weight_decay %g; they are at least 0", o->rate,
                         o->weight_decay);
    }
    if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1)) {
        return ceni_fail(CEN_ERR_INVALID, "options.beta1 is %g, beta2 %g; they are 0 to under 1",
                         beta1, beta2);
    }
    if (!((float)epsilon > 0) || !isfinite((float)epsilon)) {
        return ceni_fail(CEN_ERR_INVALID, "options.epsilon is %g; it is over 0, as an FP32",
                         epsilon);
    }
    *job = (ceni_adamw_job){.rate = o->rate,
                            .beta1 = beta1,
                            .beta2 = beta2,
                            .b1 = (float)beta1,
                            .c1 = (float)(1 - beta1),
                            .b2 = (float)beta2,
                            .c2 = (float)(1 - beta2),
                            .epsilon = (float)epsilon,
                            .decay = (float)(1 - o->rate * o->weight_decay)};
    return CEN_OK;
}

cen_status cen_adamw_begin_async(cen_device *device, const cen_adamw_options *options,
                                 cen_addr clock, cen_addr scaler, bool scaled, cen_stream stream) {
    ceni_adamw_job job;
    cen_status status = ceni_precision_place(device, "clock", clock, 8);
    status = status ? status : job_of(options, &job);
    if (!status && scaler) {
        status = ceni_precision_place(device, "scaler", scaler, 8);
    }
    if (status) {
        return status;
    }
    if (scaled && !scaler) {
        return ceni_fail(CEN_ERR_INVALID, "gradients are scaled, and scaler is 0");
    }
    job.clock = clock;
    job.scaler = scaler;
    job.scaled = scaled;
    return ceni_precision_launch(device, "cen_adamw_begin", &job, 1, stream);
}

static cen_status check_shape(const cen_matrix *matrix, const char *name, const cen_matrix *as) {
    cen_status status = ceni_precision_matrix(matrix, name);
    if (!status && (matrix->rows != as->rows || matrix->cols != as->cols)) {
        status = ceni_fail(CEN_ERR_INVALID, "%s is %llu x %llu; tensor.parameter is %llu x %llu",
                           name, (unsigned long long)matrix->rows, (unsigned long long)matrix->cols,
                           (unsigned long long)as->rows, (unsigned long long)as->cols);
    }
    return status;
}

static cen_status check_tensor(const cen_adamw_tensor *t) {
    if (!t) {
        return ceni_fail(CEN_ERR_INVALID, "tensor is NULL");
    }
    cen_status status = check_shape(&t->parameter, "tensor.parameter", &t->parameter);
    status = status ? status : check_shape(&t->gradient, "tensor.gradient", &t->parameter);
    if (!status && t->master.data) {
        status = check_shape(&t->master, "tensor.master", &t->parameter);
        if (!status && t->master.dtype != CEN_FP32) {
            status = ceni_fail(CEN_ERR_INVALID, "tensor.master is of %s; it is of fp32",
                               cen_dtype_name(t->master.dtype));
        }
        if (!status && ceni_matrix_overlap(&t->master, &t->parameter)) {
            status = ceni_fail(CEN_ERR_INVALID, "tensor.master and tensor.parameter overlap");
        }
    }
    if (!status && ceni_matrix_overlap(&t->gradient, &t->parameter)) {
        status = ceni_fail(CEN_ERR_INVALID, "tensor.gradient and tensor.parameter overlap");
    }
    return status;
}

cen_status cen_adamw_step_async(cen_device *device, const cen_adamw_options *options,
                                cen_addr clock, const cen_adamw_tensor *tensor, cen_stream stream) {
    ceni_adamw_job job;
    cen_status status = ceni_precision_place(device, "clock", clock, 8);
    status = status ? status : job_of(options, &job);
    status = status ? status : check_tensor(tensor);
    if (status || !tensor->parameter.rows || !tensor->parameter.cols) {
        return status;
    }
    status = ceni_precision_place(device, "tensor.moments", tensor->moments, 4);
    if (status) {
        return status;
    }
    uint64_t count = tensor->parameter.rows * tensor->parameter.cols, blocks = blocks_of(count);
    job.clock = clock;
    job.param = tensor->parameter.data;
    job.param_stride = tensor->parameter.stride;
    job.param_dtype = tensor->parameter.dtype;
    job.grad = tensor->gradient.data;
    job.grad_stride = tensor->gradient.stride;
    job.grad_dtype = tensor->gradient.dtype;
    job.master = tensor->master.data;
    job.master_stride = tensor->master.stride;
    job.rows = tensor->parameter.rows;
    job.cols = tensor->parameter.cols;
    if (job.param_stride == job.cols && job.grad_stride == job.cols &&
        (!job.master || job.master_stride == job.cols)) {
        job.cols = job.param_stride = job.grad_stride = job.master_stride = count;
        job.rows = 1; /* rows without gaps are one */
    }
    job.m_scales = tensor->moments;
    job.v_scales = job.m_scales + blocks * sizeof(float);
    job.m = job.v_scales + blocks * sizeof(float);
    job.v = job.m + count;
    return ceni_precision_launch(device, "cen_adamw_step", &job, blocks / WARPS + 1, stream);
}
