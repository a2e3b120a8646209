/* Products, once their arguments are checked: which kernel, and the launch. */
#ifndef CENI_COMPUTE_PRODUCT_H
#define CENI_COMPUTE_PRODUCT_H

#include "cenote/product.h"
#include "kernels/product.h"

enum { CENI_PRODUCT_KERNELS_MAX = 16 };

/* A product or convolution in a kernel's own terms. */
typedef struct ceni_product_task {
    ceni_conv_args conv;   /* .product alone, unless `is_conv` */
    ceni_codec_job weight; /* B, if `is_coded` */
    bool is_conv, is_coded;
    const char *kernel; /* NULL: the best */
} ceni_product_task;

/* All that can do the task on this device, the best first; 0: there is nothing to do. */
size_t ceni_product_plan(const cen_device *device, const ceni_product_task *task,
                         cen_product_kernel kernels[CENI_PRODUCT_KERNELS_MAX]);

cen_status ceni_product_list(cen_device *device, const ceni_product_task *task,
                             cen_product_kernel *kernels, size_t capacity, size_t *count);
cen_status ceni_product_launch(cen_device *device, const ceni_product_task *task,
                               cen_stream stream);

/* On the calling thread, in the process's memory. */
void ceni_product_on_host(const ceni_product_task *task);

/* Checks an encoded B, and makes the job of it that a kernel decodes. */
cen_status ceni_product_weight(const cen_product *product, ceni_codec_job *weight);
/* CENI_WIDE_B, if the weight's values and metadata may be read in whole runs; else 0. */
uint8_t ceni_product_weight_wide(const ceni_codec_job *weight);

/* Whether the accesses of CENI_WIDE_D are allowed; sets the flag. D, C, residual, bias and column
 * scales are in args. */
void ceni_product_widen(ceni_product_args *args);

/* Checks that products and convolutions share. `call` is "product" or "conv", with which failures
 * begin; `d` is D, which they call `d_name`. */

/* A vector of `count` elements that has to lie apart from D; addr 0: none. */
cen_status ceni_product_vector(const char *call, const char *name, cen_addr addr, cen_dtype dtype,
                               uint64_t count, const char *d_name, const cen_matrix *d);
/* Its type must be that of D or FP32. */
cen_status ceni_product_bias(const char *call, cen_addr bias, cen_dtype dtype, uint64_t count,
                             const char *d_name, const cen_matrix *d);
cen_status ceni_product_activation(const char *call, cen_activation activation);

#endif
