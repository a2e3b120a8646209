/* Mixed precision: gradients checked and unscaled, scales that follow them, and a step of AdamW
 * whose moments take 8 bits. What is computed is here, once for the host and CUDA, of operations
 * that round once; include/cenote/precision.h says what it means.
 *
 *     cen_scaler_check(job)     all tensors of the table: the first that is not finite; unscales
 *     cen_scaler_update(job)    the scale for the next step, and counts
 *     cen_fp8_amax(job)         *amax = max(*amax, |x|) of a matrix, where NaN is the largest
 *     cen_fp8_update(job)       the scale of each tensor from its amax, or those it had lately
 *     cen_adamw_begin(job)      what all tensors of a step share
 *     cen_adamw_step(job)       one tensor */
#ifndef CENI_KERNELS_PRECISION_H
#define CENI_KERNELS_PRECISION_H

#include <stdint.h>

#ifdef __CUDACC__
#define CENI_EXACT           static __device__ inline
#define CENI_EXACT_BITS(x)   __float_as_uint(x)
#define CENI_EXACT_FLOAT(u)  __uint_as_float(u)
#define CENI_EXACT_MUL(a, b) __fmul_rn(a, b)
#define CENI_EXACT_ADD(a, b) __fadd_rn(a, b)
#define CENI_EXACT_DIV(a, b) __fdiv_rn(a, b)
#define CENI_EXACT_SQRT(a)   __fsqrt_rn(a)
#define CENI_EXACT_SQRT64(a) __dsqrt_rn(a)
#else
#include <math.h>

#include "base/half.h"
#define CENI_EXACT           static inline
#define CENI_EXACT_BITS(x)   ceni_float_bits(x)
#define CENI_EXACT_FLOAT(u)  ceni_float_of(u)
#define CENI_EXACT_MUL(a, b) ((a) * (b))
#define CENI_EXACT_ADD(a, b) ((a) + (b))
#define CENI_EXACT_DIV(a, b) ((a) / (b))
#define CENI_EXACT_SQRT(a)   sqrtf(a)
#define CENI_EXACT_SQRT64(a) sqrt(a)
#endif

#define CENI_FLOAT_MAX 0x1.FFFFFEp127f
#define CENI_FLOAT_MIN 0x1p-126f

CENI_EXACT int ceni_exact_finite(float x) {
    return (CENI_EXACT_BITS(x) & 0x7FFFFFFFu) < 0x7F800000u;
}

/* What many are divided by. The quotient is the nearest, as that of a division is, of what is not
 * so small that it becomes 0 in a code. */
typedef struct ceni_divisor {
    float by;
#ifdef __CUDACC__
    float inverse, lift; /* of by * lift: tiny ones are lifted, so that remainders are exact */
#endif
} ceni_divisor;

CENI_EXACT ceni_divisor ceni_divisor_of(float by) {
    ceni_divisor d;
    d.by = by;
#ifdef __CUDACC__
    d.lift = by < 0x1p-60f ? 0x1p64f : 1.0f;
    d.by = __fmul_rn(by, d.lift);
    d.inverse = __frcp_rn(d.by);
#endif
    return d;
}

CENI_EXACT float ceni_divide(float a, ceni_divisor d) {
#ifdef __CUDACC__
    a = __fmul_rn(a, d.lift);
    float q = __fmul_rn(a, d.inverse); /* within two of the last places, then within one */
    q = __fmaf_rn(__fmaf_rn(-q, d.by, a), d.inverse, q);
    return __fmaf_rn(__fmaf_rn(-q, d.by, a), d.inverse, q);
#else
    return a / d.by;
#endif
}

/* ---- loss scaling ---- */

enum { CENI_SCALER_CHUNK = 8192 }; /* elements of a row that a block takes */

/* As cen_scaler_state. */
typedef struct ceni_scaler_state {
    float scale, inverse;
    uint32_t found; /* ~index of the first tensor that is not finite; 0: none */
    uint32_t last, good, pad;
    uint64_t steps, skipped, floored, last_step;
} ceni_scaler_state;

typedef struct ceni_scaler_tensor {
    uint64_t data, rows, cols, stride;
    uint64_t first;         /* the number of its first chunk */
    uint64_t chunks_across; /* chunks of a row */
    uint64_t overflows;     /* steps in which it was not finite */
    uint32_t dtype, hit;
} ceni_scaler_tensor;

typedef struct ceni_scaler_job {
    uint64_t state, table; /* the table follows the state */
    uint64_t tensors, chunks;
    uint32_t unscale;
    float growth, backoff, floor;
    uint32_t interval;
} ceni_scaler_job;

CENI_EXACT void ceni_scaler_advance(ceni_scaler_state *s, const ceni_scaler_job *job) {
    s->steps++;
    if (s->found) {
        float scale = CENI_EXACT_MUL(s->scale, job->backoff);
        s->skipped++;
        s->floored += s->scale <= job->floor;
        s->scale = scale < job->floor ? job->floor : scale;
        s->good = 0;
        s->last = s->found;
        s->last_step = s->steps;
    } else if (++s->good >= job->interval) {
        float scale = CENI_EXACT_MUL(s->scale, job->growth);
        s->scale = ceni_exact_finite(scale) ? scale : s->scale;
        s->good = 0;
    }
    s->inverse = CENI_EXACT_DIV(1.0f, s->scale);
    s->found = 0;
}

/* ---- FP8 ---- */

/* As cen_fp8_scaling; the history follows. */
typedef struct ceni_fp8_scaling {
    float scale, inverse, amax;
    uint32_t next;
    uint64_t updates, nonfinite;
} ceni_fp8_scaling;

typedef struct ceni_fp8_job {
    uint64_t state; /* of one tensor for cen_fp8_amax */
    uint64_t tensors, pitch;
    uint64_t matrix, rows, cols, stride;
    uint32_t dtype, history;
    float largest; /* the format's, over 2^margin */
} ceni_fp8_job;

CENI_EXACT void ceni_fp8_advance(ceni_fp8_scaling *s, float *history, const ceni_fp8_job *job) {
    float amax = s->amax;
    int finite = ceni_exact_finite(amax);
    s->updates++;
    s->nonfinite += !finite;
    if (finite && job->history) {
        history[s->next] = amax;
        s->next = s->next + 1 == job->history ? 0 : s->next + 1;
    }
    for (uint32_t i = 0; i < job->history; i++) {
        amax = i == 0 || history[i] > amax ? history[i] : amax;
    }
    if (ceni_exact_finite(amax) && amax > 0) {
        float scale = CENI_EXACT_DIV(job->largest, amax);
        scale = scale > 0x1p126f ? 0x1p126f : scale; /* so that its inverse is normal */
        s->scale = scale < CENI_FLOAT_MIN ? CENI_FLOAT_MIN : scale;
    } else if (!job->history) {
        s->scale = 1.0f;
    }
    s->inverse = CENI_EXACT_DIV(1.0f, s->scale);
    s->amax = 0;
}

/* ---- AdamW ---- */

enum { CENI_ADAMW_BLOCK = 256 };

/* As cen_adamw_clock. */
typedef struct ceni_adamw_clock {
    uint64_t steps, nonfinite;
    double power1, power2; /* beta1^steps, beta2^steps */
    float step_size, root; /* rate / (1 - power1), sqrt(1 - power2) */
    float decay, unscale;  /* 1 - rate * weight decay; of gradients */
    uint32_t skip, pad;
} ceni_adamw_clock;

typedef struct ceni_adamw_job {
    uint64_t clock, scaler; /* 0: none */
    uint64_t param, grad, master, param_stride, grad_stride, master_stride;
    uint64_t rows, cols;
    uint64_t m_scales, v_scales, m, v; /* FP32 a block, then a byte an element */
    double rate, beta1, beta2;
    float b1, c1, b2, c2, epsilon, decay; /* c: 1 - b */
    uint32_t param_dtype, grad_dtype, scaled;
} ceni_adamw_job;

CENI_EXACT void ceni_adamw_advance(ceni_adamw_clock *clock, const ceni_scaler_state *scaler,
                                   const ceni_adamw_job *job) {
    clock->skip = scaler && scaler->found;
    if (clock->skip) {
        return;
    }
    clock->power1 = (clock->steps ? clock->power1 : 1.0) * job->beta1;
    clock->power2 = (clock->steps ? clock->power2 : 1.0) * job->beta2;
    clock->steps++;
    clock->step_size = (float)(job->rate / (1.0 - clock->power1));
    clock->root = (float)CENI_EXACT_SQRT64(1.0 - clock->power2);
    clock->decay = job->decay;
    clock->unscale = scaler && job->scaled ? scaler->inverse : 1.0f;
}

/* 40 random bits for an element in a step, the same everywhere: 20 for each moment. */
CENI_EXACT uint64_t ceni_adamw_noise(uint64_t step, uint64_t element) {
    uint64_t x = (element + 1) * 0x9E3779B97F4A7C15u ^ step * 0xD1B54A32D192ED03u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* A moment's code is a float of 3 bits of mantissa and `exponent` bits of exponent, 4 or 5, whose
 * bias is half their range, with subnormals and without infinities: the largest is 1.875 times
 * 2^8 or 2^16. */
CENI_EXACT float ceni_moment_largest(int exponent) {
    return exponent == 4 ? 480.0f : 122880.0f;
}

CENI_EXACT float ceni_moment_scale(float amax, int exponent) {
    float s = CENI_EXACT_DIV(amax, ceni_moment_largest(exponent));
    return s < CENI_FLOAT_MIN ? CENI_FLOAT_MIN : s;
}

CENI_EXACT float ceni_moment_of(uint32_t code, float s, int exponent) {
    uint32_t offset = (exponent == 4 ? 120u : 112u) << 23;
    float unit = exponent == 4 ? 0x1p-9f : 0x1p-17f;
    float value =
        code < 8 ? CENI_EXACT_MUL((float)code, unit) : CENI_EXACT_FLOAT((code << 20) + offset);
    float y = CENI_EXACT_MUL(value, s);
    return y > CENI_FLOAT_MAX ? CENI_FLOAT_MAX : y;
}

/* Of size / s, at least 0, rounded up with the probability that it lies beyond the lower code, for
 * 20 bits of noise. What is not 0 does not become 0. */
CENI_EXACT uint32_t ceni_moment_code(float size, ceni_divisor s, int exponent, uint32_t noise) {
    uint32_t offset = (exponent == 4 ? 120u : 112u) << 23, top = exponent == 4 ? 127 : 255;
    float t = ceni_divide(size, s), least = exponent == 4 ? 0x1p-6f : 0x1p-14f;
    float fine = CENI_EXACT_MUL(t, exponent == 4 ? 0x1p29f : 0x1p37f); /* 2^20 a subnormal unit */
    uint32_t code =
        t < least ? ((uint32_t)fine + noise) >> 20 : (CENI_EXACT_BITS(t) - offset + noise) >> 20;
    code = code > top ? top : code;
    return size > 0 && !code ? 1 : code;
}

/* What is kept of an element while its block's scales are found. */
typedef struct ceni_adamw_element {
    float m, v; /* the moments from now on */
} ceni_adamw_element;

/* The moments after gradient g, which is finite. */
CENI_EXACT void ceni_adamw_moments(const ceni_adamw_job *job, float g, ceni_adamw_element *e) {
    float square = CENI_EXACT_MUL(CENI_EXACT_MUL(job->c2, g), g);
    e->m = CENI_EXACT_ADD(CENI_EXACT_MUL(job->b1, e->m), CENI_EXACT_MUL(job->c1, g));
    e->v = CENI_EXACT_ADD(CENI_EXACT_MUL(job->b2, e->v), square);
    e->v = e->v > CENI_FLOAT_MAX ? CENI_FLOAT_MAX : e->v;
}

CENI_EXACT float ceni_adamw_param(const ceni_adamw_job *job, const ceni_adamw_clock *clock,
                                  ceni_divisor root, float p, const ceni_adamw_element *e) {
    float deep = ceni_divide(CENI_EXACT_SQRT(e->v), root);
    float step = CENI_EXACT_DIV(e->m, CENI_EXACT_ADD(deep, job->epsilon));
    return CENI_EXACT_ADD(CENI_EXACT_MUL(p, clock->decay), -CENI_EXACT_MUL(clock->step_size, step));
}

#ifndef __CUDACC__
#include "kernels/table.h"

#define CENI_PRECISION_TWIN(name)                                                                  \
    void ceni_twin_##name(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,  \
                          void *const *args);                                                      \
    size_t ceni_ranges_##name(void *const *args, ceni_kernel_range *ranges)
CENI_PRECISION_TWIN(scaler_check);
CENI_PRECISION_TWIN(scaler_update);
CENI_PRECISION_TWIN(fp8_amax);
CENI_PRECISION_TWIN(fp8_update);
CENI_PRECISION_TWIN(adamw_begin);
CENI_PRECISION_TWIN(adamw_step);
#endif
#endif
