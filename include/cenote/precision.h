/* Mixed precision: loss scaling, scales of FP8 tensors, and AdamW with moments of 8 bits, on a
 * device and without the host waiting, save where it reads.
 *
 * States lie in device memory of the caller's, aligned to 8 bytes. Every function may be called
 * from any thread; calls on one state belong on one stream, or in an order. Results are the same,
 * bit for bit, from every backend. docs/precision.md has the formulas.
 *
 * Errors, beside those of any call on a device: CEN_ERR_INVALID: an argument, the log names it with
 * what is expected; CEN_ERR_UNSUPPORTED, of the _async calls: the library has no CUDA kernels;
 * CEN_ERR_HOST_MEMORY, of those that wait for the stream. */
#ifndef CENOTE_PRECISION_H
#define CENOTE_PRECISION_H

#include <stdbool.h>
#include <stdint.h>

#include "cenote/codec.h"
#include "cenote/device.h"
#include "cenote/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- loss scaling ----
 *
 * Micikevicius and others: "Mixed precision training", 2018; the scale follows the gradients.
 *
 * A step: the loss is multiplied with the scale; cen_scaler_check looks at all gradients, and
 * divides them by it if asked to; the optimizer's step is left out if one was not finite;
 * cen_scaler_update makes the scale of the next step. A state begins with the scale and its
 * inverse, both FP32, and a word of 32 bits that is not 0 while the last check found something. */

/* A zero field means its default. */
typedef struct cen_scaler_options {
    float scale;       /* the first; 65536 */
    float growth;      /* over 1; 2 */
    float backoff;     /* over 0, under 1; 0.5 */
    uint32_t interval; /* good steps from one growth to the next; 2000 */
    float floor;       /* the scale goes no lower; 1 */
} cen_scaler_options;

typedef struct cen_scaler_report {
    float scale;
    uint32_t good;      /* steps since it changed */
    uint64_t steps;     /* updates */
    uint64_t skipped;   /* steps of which not all gradients were finite */
    uint64_t floored;   /* of these, with the scale at its floor: it is not the scale's doing */
    uint64_t last_step; /* the last that was skipped, from 1; 0: none */
    uint64_t first;     /* the first of its tensors that was not finite, if there is such a step */
} cen_scaler_report;

/* Bytes of a state for so many tensors, at most 2^31. */
CEN_API cen_status cen_scaler_bytes(uint64_t tensors, uint64_t *bytes);

/* Makes a state for gradients (FP32, FP16 or BF16), whose memory is at the same place in each step.
 * Waits for the stream. `options` may be NULL. */
CEN_API cen_status cen_scaler_init(cen_device *device, const cen_scaler_options *options,
                                   cen_addr state, const cen_matrix *gradients, uint64_t count,
                                   cen_stream stream);

/* Looks for infinities and NaN in the gradients of the state, in one launch. `unscale`: each is
 * multiplied with the inverse, too, and rounded to its type; FP16 may lose by it what scaling won,
 * so an optimizer that takes scaled gradients is better. `gradients` and `count` are those of
 * cen_scaler_init. */
CEN_API cen_status cen_scaler_check_async(cen_device *device, cen_addr state,
                                          const cen_matrix *gradients, uint64_t count, bool unscale,
                                          cen_stream stream);

/* Ends a step: after something not finite the scale is multiplied with `backoff`, not below
 * `floor`; after `interval` good steps with `growth`, unless that is infinite. */
CEN_API cen_status cen_scaler_update_async(cen_device *device, const cen_scaler_options *options,
                                           cen_addr state, uint64_t count, cen_stream stream);

/* Waits for the stream, and reads. `overflows` (NULL: not wanted) gets for each tensor the steps in
 * which it was not finite. */
CEN_API cen_status cen_scaler_read(cen_device *device, cen_addr state, uint64_t count,
                                   cen_stream stream, cen_scaler_report *report,
                                   uint64_t *overflows);

/* ---- scales of FP8 ----
 *
 * scale = largest of the format / amax / 2^margin, kept to 2^-126..2^126: an element is multiplied
 * with it before it becomes FP8. amax is that of the tensor now, or the largest of its last
 * `history` ones. One that is infinite or NaN is counted, and enters no history and no scale. */

typedef struct cen_fp8_options {
    cen_codec_format format; /* CEN_CODEC_FP8_E4M3 or _E5M2 */
    int32_t margin;          /* 0 to 16 */
    uint32_t history;        /* up to 1024; 0: the scale is of the amax now, and 1 if that is 0 */
} cen_fp8_options;

/* What a tensor's state begins with; its history follows, of `history` FP32. */
typedef struct cen_fp8_scaling {
    float scale, inverse; /* 1 until there was an amax over 0 */
    float amax;           /* since the last update; NaN if there was one */
    uint32_t next;        /* where the next one goes in the history */
    uint64_t updates, nonfinite;
} cen_fp8_scaling;

/* Bytes of one tensor's state, a multiple of 8; those of several lie one after another. */
CEN_API cen_status cen_fp8_bytes(const cen_fp8_options *options, uint64_t *bytes);
/* Makes states of so many tensors. Waits for the stream. */
CEN_API cen_status cen_fp8_init(cen_device *device, const cen_fp8_options *options, cen_addr states,
                                uint64_t tensors, cen_stream stream);
/* Takes a tensor's amax (of FP32, FP16 or BF16) into its own state, the largest of several calls.
 */
CEN_API cen_status cen_fp8_amax_async(cen_device *device, cen_addr state, const cen_matrix *tensor,
                                      cen_stream stream);
/* Makes the scales of so many tensors from their amax, which begins anew. */
CEN_API cen_status cen_fp8_update_async(cen_device *device, const cen_fp8_options *options,
                                        cen_addr states, uint64_t tensors, cen_stream stream);
/* Waits for the stream, and reads one tensor's. */
CEN_API cen_status cen_fp8_read(cen_device *device, cen_addr state, cen_stream stream,
                                cen_fp8_scaling *scaling);

/* ---- AdamW with moments of 8 bits ----
 *
 * Loshchilov, Hutter: "Decoupled weight decay regularization", 2019.
 *
 * Both moments are kept in blocks of 256 neighbours (row by row), each an FP32 amax and a byte an
 * element: a float of 3 bits of mantissa, with sign and 4 bits of exponent for the first moment,
 * with 5 for the second. They are rounded up or down at random, with the odds that keep their mean;
 * the random bits follow from the step and the place. Zero bytes are moments of 0. */

typedef struct cen_adamw_options {
    double rate;         /* learning rate; at least 0 */
    double beta1, beta2; /* 0 to under 1; both 0: 0.9 and 0.999 */
    double epsilon;      /* over 0; 0 means 1e-8 */
    double weight_decay; /* at least 0: parameters are multiplied with 1 - rate * weight_decay */
} cen_adamw_options;

/* What the tensors of a step share. In device memory; zero bytes are no step yet. */
typedef struct cen_adamw_clock {
    uint64_t steps;     /* made, without those that were skipped */
    uint64_t nonfinite; /* elements of gradients that were not finite in a step that was made; such
                           an element's parameter and moments stay as they were */
    double power1, power2; /* beta1 and beta2 to the power of `steps` */
    float step_size, root; /* rate / (1 - power1), and the root of 1 - power2 */
    float decay, unscale;  /* that a parameter and a gradient are multiplied with */
    uint32_t skip, unused; /* skip: not 0 if the step that was begun is left out */
} cen_adamw_clock;

typedef struct cen_adamw_tensor {
    cen_matrix parameter; /* FP32, FP16 or BF16 */
    cen_matrix gradient;  /* of the same shape, FP32, FP16 or BF16 */
    cen_matrix master;    /* FP32 of the same shape, from which the parameter is rounded; data 0:
                             none */
    cen_addr moments;     /* cen_adamw_bytes, aligned to 4 */
} cen_adamw_tensor;

/* Bytes of the moments of so many elements. */
CEN_API cen_status cen_adamw_bytes(uint64_t elements, uint64_t *bytes);

/* Begins a step. `scaler`: a scaler's state, after its check and before its update, so that the
 * step is skipped if something was not finite; 0: none. `scaled`: gradients are still scaled, and
 * multiplied with the scaler's inverse where they are used. */
CEN_API cen_status cen_adamw_begin_async(cen_device *device, const cen_adamw_options *options,
                                         cen_addr clock, cen_addr scaler, bool scaled,
                                         cen_stream stream);
/* The step of one tensor, with the options of cen_adamw_begin_async. */
CEN_API cen_status cen_adamw_step_async(cen_device *device, const cen_adamw_options *options,
                                        cen_addr clock, const cen_adamw_tensor *tensor,
                                        cen_stream stream);

#ifdef __cplusplus
}
#endif
#endif
