/* Convolutions: checked, and put as products. */
#include <string.h>

#include "base/log.h"
#include "compute/check.h"
#include "compute/compute.h"
#include "compute/product.h"

typedef unsigned long long ull;

/* So that what is added to a place of the input stays a place (kernels/product.cuh). */
enum { SIDE_MAX = 1 << 30 };

static cen_status check_size(const cen_conv *conv) {
    if (!conv) {
        return ceni_fail(CEN_ERR_INVALID, "conv: conv is NULL");
    }
    if (conv->size != sizeof *conv) {
        return ceni_fail(CEN_ERR_INVALID, "conv: conv.size is %zu; %zu is expected", conv->size,
                         sizeof *conv);
    }
    return CEN_OK;
}

static uint32_t or_one(uint32_t value) {
    return value ? value : 1;
}

/* One side of the output. */
static cen_status output_side(const cen_conv *c, int axis, uint32_t *side) {
    static const char *const names[] = {"rows", "columns"};
    uint64_t input = axis ? c->width : c->height;
    uint64_t filter = axis ? c->filter_width : c->filter_height;
    uint64_t dilation = or_one(c->dilation[axis]), padded = input + 2 * (uint64_t)c->padding[axis];
    uint64_t span = dilation * (filter ? filter - 1 : 0) + 1;
    if (!filter) {
        return ceni_fail(CEN_ERR_INVALID, "conv: the filter has no %s", names[axis]);
    }
    if (padded >= SIDE_MAX || span >= SIDE_MAX) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "conv: %s: %llu of input and padding, a filter over %llu; less than 2^30",
                         names[axis], (ull)padded, (ull)span);
    }
    if (span > padded) {
        return ceni_fail(CEN_ERR_INVALID, "conv: the filter spans %llu %s, of %llu with padding",
                         (ull)span, names[axis], (ull)padded);
    }
    *side = (uint32_t)((padded - span) / or_one(c->stride[axis]) + 1);
    return CEN_OK;
}

cen_status cen_conv_output(const cen_conv *conv, uint32_t *height, uint32_t *width) {
    uint32_t rows, cols;
    cen_status status = check_size(conv);
    if (!status && (!height || !width)) {
        status = ceni_fail(CEN_ERR_INVALID, "conv: %s is NULL", height ? "width" : "height");
    }
    status = status ? status : output_side(conv, 0, &rows);
    status = status ? status : output_side(conv, 1, &cols);
    if (!status) {
        *height = rows;
        *width = cols;
    }
    return status;
}

/* Four sides without gaps, as rows of the last; `rows`: the product of the first three. */
static cen_status tensor(cen_addr data, cen_dtype dtype, const uint32_t sides[4], const char *name,
                         cen_matrix *made) {
    uint64_t rows = sides[0];
    bool fits = !__builtin_mul_overflow(rows, sides[1], &rows) &&
                !__builtin_mul_overflow(rows, sides[2], &rows);
    *made = (cen_matrix){data, rows, sides[3], sides[3], dtype};
    if (!fits) {
        return ceni_fail(CEN_ERR_INVALID, "conv: %s of %u x %u x %u x %u has no addresses", name,
                         sides[0], sides[1], sides[2], sides[3]);
    }
    return ceni_check_matrix("conv", name, made);
}

typedef struct parts {
    cen_matrix input, weight, output, residual;
    uint32_t height, width; /* of the output */
} parts;

static cen_status check_apart(const cen_conv *c, const parts *t) {
    cen_status status = CEN_OK;
    if (ceni_matrix_overlap(&t->output, &t->input)) {
        status = ceni_fail(CEN_ERR_INVALID, "conv: output overlaps input");
    } else if (ceni_matrix_overlap(&t->output, &t->weight)) {
        status = ceni_fail(CEN_ERR_INVALID, "conv: output overlaps weight");
    } else if (c->residual && c->residual != c->output &&
               ceni_matrix_overlap(&t->output, &t->residual)) {
        status = ceni_fail(CEN_ERR_INVALID, "conv: residual overlaps output and is not output");
    }
    return status ? status
                  : ceni_product_bias("conv", c->bias, c->bias_dtype, c->filters, "output",
                                      &t->output);
}

static cen_status check_parts(const cen_conv *c, parts *t) {
    const uint32_t input[4] = {c->images, c->height, c->width, c->channels};
    const uint32_t weight[4] = {c->filters, c->filter_height, c->filter_width, c->channels};
    cen_status status = cen_conv_output(c, &t->height, &t->width);
    if (!status && c->dtype != CEN_FP32 && c->dtype != CEN_BF16 && c->dtype != CEN_FP16) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED, "conv: of %s (%d); fp32, bf16 and fp16 there are",
                           cen_dtype_name(c->dtype), (int)c->dtype);
    }
    if (status) {
        return status;
    }
    const uint32_t output[4] = {c->images, t->height, t->width, c->filters};
    status = tensor(c->input, c->dtype, input, "input", &t->input);
    status = status ? status : tensor(c->weight, c->dtype, weight, "weight", &t->weight);
    status = status ? status : tensor(c->output, c->dtype, output, "output", &t->output);
    t->residual = t->output;
    t->residual.data = c->residual;
    if (!status && c->residual) {
        status = tensor(c->residual, c->dtype, output, "residual", &t->residual);
    }
    status = status ? status : ceni_product_activation("conv", c->activation);
    return status ? status : check_apart(c, t);
}

/* The product that it is. */
static cen_status make_product(const cen_conv *c, const parts *t, ceni_product_args *p) {
    uint64_t size = cen_dtype_bits(c->dtype) / 8;
    uint64_t taps = (uint64_t)c->filter_height * c->filter_width, k;
    if (__builtin_mul_overflow(taps, c->channels, &k) || k > INT32_MAX ||
        t->output.rows > INT32_MAX || c->filters > INT32_MAX) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "conv: %llu pixels of output, %u filters of %llu taps x %u channels; "
                         "products of dimensions less than 2^31",
                         (ull)t->output.rows, c->filters, (ull)taps, c->channels);
    }
    *p = (ceni_product_args){
        .a = c->input,
        .b = c->weight,
        .d = c->output,
        .bias = c->bias,
        .residual = c->residual,
        .a_stride = c->channels,
        .b_stride = k,
        .d_stride = c->filters,
        .residual_stride = c->filters,
        .m = (uint32_t)t->output.rows,
        .n = c->filters,
        .k = (uint32_t)k,
        .alpha = 1,
        .input = (uint8_t)c->dtype,
        .output = (uint8_t)c->dtype,
        .bias_type = (uint8_t)c->bias_dtype,
        .transpose_b = 1,
        .activation = (uint8_t)c->activation,
    };
    bool wide_a = c->input % 16 == 0 && c->channels * size % 16 == 0;
    bool wide_b = c->weight % 16 == 0 && k * size % 16 == 0;
    p->wide = (uint8_t)((wide_a ? CENI_WIDE_A : 0) | (wide_b ? CENI_WIDE_B : 0));
    ceni_product_widen(p);
    return CEN_OK;
}

static cen_status make_task(const cen_conv *c, ceni_product_task *task) {
    parts t;
    cen_status status = check_size(c);
    status = status ? status : check_parts(c, &t);
    if (status) {
        return status;
    }
    *task = (ceni_product_task){.is_conv = true, .kernel = c->kernel};
    task->conv = (ceni_conv_args){
        .images = c->images,
        .height = c->height,
        .width = c->width,
        .channels = c->channels,
        .out_height = t.height,
        .out_width = t.width,
        .filter_height = c->filter_height,
        .filter_width = c->filter_width,
        .stride_y = or_one(c->stride[0]),
        .stride_x = or_one(c->stride[1]),
        .dilation_y = or_one(c->dilation[0]),
        .dilation_x = or_one(c->dilation[1]),
        .pad_y = (int32_t)c->padding[0],
        .pad_x = (int32_t)c->padding[1],
    };
    return make_product(c, &t, &task->conv.product);
}

cen_status cen_conv_run(cen_device *device, const cen_conv *conv, cen_stream stream) {
    ceni_product_task task;
    cen_status status = make_task(conv, &task);
    return status ? status : ceni_product_launch(device, &task, stream);
}

cen_status cen_conv_list(cen_device *device, const cen_conv *conv, cen_product_kernel *kernels,
                         size_t capacity, size_t *count) {
    ceni_product_task task;
    cen_status status = make_task(conv, &task);
    return status ? status : ceni_product_list(device, &task, kernels, capacity, count);
}

cen_status cen_conv_on_host(const cen_conv *conv) {
    ceni_product_task task;
    cen_status status = make_task(conv, &task);
    if (!status) {
        ceni_product_on_host(&task);
    }
    return status;
}
