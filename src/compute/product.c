/* Products: what is asked for is checked, all of it, before anything is launched. */
#include "compute/product.h"

#include <string.h>

#include "base/log.h"
#include "compute/check.h"
#include "compute/compute.h"

_Static_assert((int)CENI_ACT_NONE == CEN_ACTIVATION_NONE &&
                   (int)CENI_ACT_RELU == CEN_ACTIVATION_RELU &&
                   (int)CENI_ACT_GELU == CEN_ACTIVATION_GELU &&
                   (int)CENI_ACT_GELU_TANH == CEN_ACTIVATION_GELU_TANH,
               "activations are numbered alike");

typedef unsigned long long ull;

static bool types_agree(cen_dtype in, cen_dtype out) {
    switch (in) {
    case CEN_FP32:
        return out == CEN_FP32;
    case CEN_BF16:
    case CEN_FP16:
        return out == in || out == CEN_FP32;
    case CEN_INT8:
        return out == CEN_FP32 || out == CEN_BF16 || out == CEN_FP16 || out == CEN_INT32;
    default:
        return false;
    }
}

static cen_status check_types(const cen_product *p) {
    if (p->a.dtype != p->b.dtype || !types_agree(p->a.dtype, p->d.dtype)) {
        return ceni_fail(
            CEN_ERR_UNSUPPORTED, "product: no kernel makes %s of %s and %s; see cenote/product.h",
            cen_dtype_name(p->d.dtype), cen_dtype_name(p->a.dtype), cen_dtype_name(p->b.dtype));
    }
    return CEN_OK;
}

static cen_status check_shapes(const cen_product *p) {
    uint64_t m = p->transpose_a ? p->a.cols : p->a.rows, k = p->transpose_a ? p->a.rows : p->a.cols;
    uint64_t n = p->transpose_b ? p->b.rows : p->b.cols, l = p->transpose_b ? p->b.cols : p->b.rows;
    if (k != l) {
        return ceni_fail(CEN_ERR_INVALID, "product: op(A) is %llu x %llu, but op(B) %llu x %llu",
                         (ull)m, (ull)k, (ull)l, (ull)n);
    }
    if (p->d.rows != m || p->d.cols != n) {
        return ceni_fail(CEN_ERR_INVALID, "product: D is %llu x %llu; op(A) op(B) is %llu x %llu",
                         (ull)p->d.rows, (ull)p->d.cols, (ull)m, (ull)n);
    }
    if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "product: %llu x %llu x %llu; dimensions are less than 2^31", (ull)m,
                         (ull)n, (ull)k);
    }
    return CEN_OK;
}

/* C or residual: what is added to D has its shape and type, and is D or lies apart. */
static cen_status check_addend(const cen_product *p, const cen_matrix *addend, const char *name) {
    const cen_matrix *d = &p->d;
    cen_status status = ceni_check_matrix("product", name, addend);
    if (status) {
        return status;
    }
    if (addend->rows != d->rows || addend->cols != d->cols || addend->dtype != d->dtype) {
        return ceni_fail(CEN_ERR_INVALID, "product: %s is %llu x %llu %s, D %llu x %llu %s", name,
                         (ull)addend->rows, (ull)addend->cols, cen_dtype_name(addend->dtype),
                         (ull)d->rows, (ull)d->cols, cen_dtype_name(d->dtype));
    }
    bool same = addend->data == d->data && addend->stride == d->stride;
    if (!same && ceni_matrix_overlap(addend, d)) {
        return ceni_fail(CEN_ERR_INVALID, "product: %s overlaps D and is not D", name);
    }
    return CEN_OK;
}

cen_status ceni_product_vector(const char *call, const char *name, cen_addr addr, cen_dtype dtype,
                               uint64_t count, const char *d_name, const cen_matrix *d) {
    const cen_matrix vector = {addr, 1, count, count, dtype};
    cen_status status = addr ? ceni_check_matrix(call, name, &vector) : CEN_OK;
    if (!status && addr && ceni_matrix_overlap(&vector, d)) {
        status = ceni_fail(CEN_ERR_INVALID, "%s: %s overlaps %s", call, d_name, name);
    }
    return status;
}

cen_status ceni_product_bias(const char *call, cen_addr bias, cen_dtype dtype, uint64_t count,
                             const char *d_name, const cen_matrix *d) {
    if (bias && dtype != CEN_FP32 && dtype != d->dtype) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "%s: bias is of %s; %s is of %s, and fp32 would do, too", call,
                         cen_dtype_name(dtype), d_name, cen_dtype_name(d->dtype));
    }
    return ceni_product_vector(call, "bias", bias, dtype, count, d_name, d);
}

cen_status ceni_product_activation(const char *call, cen_activation activation) {
    return (unsigned)activation <= CEN_ACTIVATION_GELU_TANH
               ? CEN_OK
               : ceni_fail(CEN_ERR_INVALID, "%s: activation %d is none of cen_activation", call,
                           (int)activation);
}

/* A sum of whole numbers stays as it is. */
static cen_status check_plain(const cen_product *p) {
    if (p->d.dtype != CEN_INT32 ||
        (p->alpha == 1 && p->beta == 0 && !p->bias && !p->residual.data && !p->row_scale &&
         !p->col_scale && !p->activation)) {
        return CEN_OK;
    }
    return ceni_fail(CEN_ERR_UNSUPPORTED,
                     "product: D of int32 is the plain product: alpha 1, and nothing else");
}

static cen_status check_added(const cen_product *p) {
    const cen_matrix *d = &p->d;
    cen_status status = p->beta != 0 ? check_addend(p, &p->c, "C") : CEN_OK;
    if (!status && p->residual.data) {
        status = check_addend(p, &p->residual, "residual");
    }
    if (!status) {
        status = ceni_product_bias("product", p->bias, p->bias_dtype, d->cols, "D", d);
    }
    if (!status) {
        status =
            ceni_product_vector("product", "row_scale", p->row_scale, CEN_FP32, d->rows, "D", d);
    }
    if (!status) {
        status =
            ceni_product_vector("product", "col_scale", p->col_scale, CEN_FP32, d->cols, "D", d);
    }
    return status;
}

static cen_status check(const cen_product *p, ceni_product_task *task) {
    if (!p) {
        return ceni_fail(CEN_ERR_INVALID, "product: product is NULL");
    }
    if (p->size != sizeof *p) {
        return ceni_fail(CEN_ERR_INVALID, "product: product.size is %zu; %zu is expected", p->size,
                         sizeof *p);
    }
    cen_status status = ceni_check_matrix("product", "A", &p->a);
    status = status || p->b_codec ? status : ceni_check_matrix("product", "B", &p->b);
    status = status ? status : ceni_check_matrix("product", "D", &p->d);
    status = status ? status : check_types(p);
    status = status ? status : check_shapes(p);
    status = status ? status : ceni_product_activation("product", p->activation);
    status = status ? status : check_plain(p);
    status = status ? status : check_added(p);
    if (!status && ceni_matrix_overlap(&p->d, &p->a)) {
        status = ceni_fail(CEN_ERR_INVALID, "product: D overlaps A");
    }
    if (!status && p->b_codec) {
        status = ceni_product_weight(p, &task->weight);
    } else if (!status && ceni_matrix_overlap(&p->d, &p->b)) {
        status = ceni_fail(CEN_ERR_INVALID, "product: D overlaps B");
    }
    return status;
}

static bool multiple(uint64_t addr, uint64_t stride, uint64_t size, uint64_t bytes) {
    return addr % bytes == 0 && stride * size % bytes == 0;
}

void ceni_product_widen(ceni_product_args *args) {
    uint64_t size = cen_dtype_bits((cen_dtype)args->output) / 8;
    uint64_t bias = args->bias ? cen_dtype_bits((cen_dtype)args->bias_type) / 8 : 1;
    bool wide = multiple(args->d, args->d_stride, size, 4 * size) && args->bias % (4 * bias) == 0 &&
                args->col_scale % 16 == 0;
    wide = wide && (args->beta == 0 || multiple(args->c, args->c_stride, size, 4 * size));
    wide = wide &&
           (!args->residual || multiple(args->residual, args->residual_stride, size, 4 * size));
    args->wide |= wide ? CENI_WIDE_D : 0;
}

static void make_task(const cen_product *p, ceni_product_task *task) {
    uint64_t size = cen_dtype_bits(p->a.dtype) / 8;
    task->kernel = p->kernel;
    task->is_coded = p->b_codec != NULL;
    ceni_product_args *args = &task->conv.product;
    *args = (ceni_product_args){
        .a = p->a.data,
        .b = p->b.data,
        .c = p->beta != 0 ? p->c.data : 0,
        .d = p->d.data,
        .bias = p->bias,
        .residual = p->residual.data,
        .row_scale = p->row_scale,
        .col_scale = p->col_scale,
        .a_stride = p->a.stride,
        .b_stride = p->b.stride,
        .c_stride = p->c.stride,
        .d_stride = p->d.stride,
        .residual_stride = p->residual.stride,
        .m = (uint32_t)p->d.rows,
        .n = (uint32_t)p->d.cols,
        .k = (uint32_t)(p->transpose_a ? p->a.rows : p->a.cols),
        .alpha = p->alpha,
        .beta = p->beta,
        .input = (uint8_t)p->a.dtype,
        .output = (uint8_t)p->d.dtype,
        .bias_type = (uint8_t)p->bias_dtype,
        .transpose_a = p->transpose_a,
        .transpose_b = p->transpose_b,
        .activation = (uint8_t)p->activation,
    };
    args->wide = (uint8_t)((multiple(p->a.data, p->a.stride, size, 16) ? CENI_WIDE_A : 0) |
                           (multiple(p->b.data, p->b.stride, size, 16) ? CENI_WIDE_B : 0));
    if (task->is_coded) {
        args->b = args->b_stride = 0;
        args->wide =
            (uint8_t)((args->wide & CENI_WIDE_A) | ceni_product_weight_wide(&task->weight));
    }
    ceni_product_widen(args);
}

cen_status cen_product_run(cen_device *device, const cen_product *product, cen_stream stream) {
    ceni_product_task task = {0};
    cen_status status = check(product, &task);
    if (status) {
        return status;
    }
    make_task(product, &task);
    return ceni_product_launch(device, &task, stream);
}

cen_status cen_product_list(cen_device *device, const cen_product *product,
                            cen_product_kernel *kernels, size_t capacity, size_t *count) {
    ceni_product_task task = {0};
    cen_status status = check(product, &task);
    if (status) {
        return status;
    }
    make_task(product, &task);
    return ceni_product_list(device, &task, kernels, capacity, count);
}

cen_status cen_product_on_host(const cen_product *product) {
    ceni_product_task task = {0};
    cen_status status = check(product, &task);
    if (!status) {
        make_task(product, &task);
        ceni_product_on_host(&task);
    }
    return status;
}
