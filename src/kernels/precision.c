/* The kernels of mixed precision as the host backend runs them. */
#include "kernels/precision.h"

#include <string.h>

#include "cenote/dtype.h"
#include "kernels/args.h"

enum { BLOCK = CENI_ADAMW_BLOCK };

static float load(uint64_t base, uint32_t dtype, uint64_t at) {
    if (dtype == CEN_FP32) {
        return ((const float *)(uintptr_t)base)[at];
    }
    uint16_t half = ((const uint16_t *)(uintptr_t)base)[at];
    return dtype == CEN_FP16 ? ceni_float_of_f16(half) : ceni_float_of_bf16(half);
}

static void store(uint64_t base, uint32_t dtype, uint64_t at, float x) {
    if (dtype == CEN_FP32) {
        ((float *)(uintptr_t)base)[at] = x;
    } else {
        ((uint16_t *)(uintptr_t)base)[at] =
            dtype == CEN_FP16 ? ceni_f16_of_float(x) : ceni_bf16_of_float(x);
    }
}

static ceni_kernel_range matrix_range(uint64_t data, uint64_t rows, uint64_t cols, uint64_t stride,
                                      uint32_t dtype, bool write) {
    uint64_t elements = rows && cols && data ? (rows - 1) * stride + cols : 0;
    return (ceni_kernel_range){data, elements * (dtype == CEN_FP32 ? 4 : 2), write};
}

/* ---- loss scaling ---- */

static ceni_scaler_job scaler_job(void *const *args) {
    ceni_scaler_job job;
    memcpy(&job, args[0], sizeof job);
    return job;
}

static void check_tensor(const ceni_scaler_job *job, uint64_t index) {
    ceni_scaler_state *state = (ceni_scaler_state *)(uintptr_t)job->state;
    ceni_scaler_tensor *t = (ceni_scaler_tensor *)(uintptr_t)job->table + index;
    uint32_t name = ~(uint32_t)index;
    bool good = true;
    for (uint64_t row = 0; row < t->rows; row++) {
        for (uint64_t col = 0; col < t->cols; col++) {
            uint64_t at = row * t->stride + col;
            float x = load(t->data, t->dtype, at);
            good = good && ceni_exact_finite(x);
            if (job->unscale) {
                store(t->data, t->dtype, at, x * state->inverse);
            }
        }
    }
    if (!good) {
        t->hit = 1;
        state->found = name > state->found ? name : state->found;
    }
}

void ceni_twin_scaler_check(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                            void *const *args) {
    ceni_scaler_job job = scaler_job(args);
    for (uint64_t i = 0; i < job.tensors; i++) {
        check_tensor(&job, i);
    }
}

void ceni_twin_scaler_update(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                             void *const *args) {
    ceni_scaler_job job = scaler_job(args);
    ceni_scaler_tensor *table = (ceni_scaler_tensor *)(uintptr_t)job.table;
    for (uint64_t i = 0; i < job.tensors; i++) {
        table[i].overflows += table[i].hit;
        table[i].hit = 0;
    }
    ceni_scaler_advance((ceni_scaler_state *)(uintptr_t)job.state, &job);
}

/* The tensors' own memory is not among them: where they lie stands in the table, which may not have
 * been written yet. */
size_t ceni_ranges_scaler_check(void *const *args, ceni_kernel_range *ranges) {
    ceni_scaler_job job = scaler_job(args);
    ranges[0] = (ceni_kernel_range){job.state, sizeof(ceni_scaler_state), true};
    ranges[1] = (ceni_kernel_range){job.table, job.tensors * sizeof(ceni_scaler_tensor), true};
    return 2;
}

size_t ceni_ranges_scaler_update(void *const *args, ceni_kernel_range *ranges) {
    return ceni_ranges_scaler_check(args, ranges);
}

/* ---- FP8 ---- */

static ceni_fp8_job fp8_job(void *const *args) {
    ceni_fp8_job job;
    memcpy(&job, args[0], sizeof job);
    return job;
}

void ceni_twin_fp8_amax(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                        void *const *args) {
    ceni_fp8_job job = fp8_job(args);
    float *amax = &((ceni_fp8_scaling *)(uintptr_t)job.state)->amax;
    uint32_t most = ceni_float_bits(*amax);
    for (uint64_t row = 0; row < job.rows; row++) {
        for (uint64_t col = 0; col < job.cols; col++) {
            uint32_t size =
                ceni_float_bits(load(job.matrix, job.dtype, row * job.stride + col)) & 0x7FFFFFFFu;
            most = size > most ? size : most;
        }
    }
    *amax = ceni_float_of(most);
}

void ceni_twin_fp8_update(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                          void *const *args) {
    ceni_fp8_job job = fp8_job(args);
    for (uint64_t i = 0; i < job.tensors; i++) {
        ceni_fp8_scaling *s = (ceni_fp8_scaling *)(uintptr_t)(job.state + i * job.pitch);
        ceni_fp8_advance(s, (float *)(s + 1), &job);
    }
}

size_t ceni_ranges_fp8_amax(void *const *args, ceni_kernel_range *ranges) {
    ceni_fp8_job job = fp8_job(args);
    ranges[0] = (ceni_kernel_range){job.state, sizeof(ceni_fp8_scaling), true};
    ranges[1] = matrix_range(job.matrix, job.rows, job.cols, job.stride, job.dtype, false);
    return 2;
}

size_t ceni_ranges_fp8_update(void *const *args, ceni_kernel_range *ranges) {
    ceni_fp8_job job = fp8_job(args);
    ranges[0] = (ceni_kernel_range){job.state, job.tensors * job.pitch, true};
    return 1;
}

/* ---- AdamW ---- */

static ceni_adamw_job adamw_job(void *const *args) {
    ceni_adamw_job job;
    memcpy(&job, args[0], sizeof job);
    return job;
}

static ceni_adamw_clock *clock_of(const ceni_adamw_job *job) {
    return (ceni_adamw_clock *)(uintptr_t)job->clock;
}

void ceni_twin_adamw_begin(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                           void *const *args) {
    ceni_adamw_job job = adamw_job(args);
    ceni_adamw_advance(clock_of(&job), (const ceni_scaler_state *)(uintptr_t)job.scaler, &job);
}

static void step_param(const ceni_adamw_job *job, uint64_t row, uint64_t col,
                       const ceni_adamw_element *e) {
    uint64_t at = row * job->param_stride + col, in_master = row * job->master_stride + col;
    float p = job->master ? load(job->master, CEN_FP32, in_master)
                          : load(job->param, job->param_dtype, at);
    p = ceni_adamw_param(job, clock_of(job), ceni_divisor_of(clock_of(job)->root), p, e);
    if (job->master) {
        store(job->master, CEN_FP32, in_master, p);
    }
    store(job->param, job->param_dtype, at, p);
}

static void step_block(const ceni_adamw_job *job, uint64_t block) {
    ceni_adamw_clock *clock = clock_of(job);
    float *m_scale = (float *)(uintptr_t)job->m_scales + block;
    float *v_scale = (float *)(uintptr_t)job->v_scales + block;
    uint8_t *m = (uint8_t *)(uintptr_t)job->m, *v = (uint8_t *)(uintptr_t)job->v;
    uint64_t first = block * BLOCK, left = job->rows * job->cols - first;
    uint64_t n = left < BLOCK ? left : BLOCK;
    float old_m = ceni_moment_scale(*m_scale, 4), old_v = ceni_moment_scale(*v_scale, 5);
    ceni_adamw_element e[BLOCK];
    float most_m = 0, most_v = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = first + i, row = at / job->cols, col = at % job->cols;
        float size = ceni_moment_of(m[at] & 127u, old_m, 4);
        e[i].m = m[at] >> 7 ? -size : size;
        e[i].v = ceni_moment_of(v[at], old_v, 5);
        float g = load(job->grad, job->grad_dtype, row * job->grad_stride + col) * clock->unscale;
        if (ceni_exact_finite(g)) {
            ceni_adamw_moments(job, g, &e[i]);
            step_param(job, row, col, &e[i]);
        } else {
            clock->nonfinite++;
        }
        most_m = fabsf(e[i].m) > most_m ? fabsf(e[i].m) : most_m;
        most_v = e[i].v > most_v ? e[i].v : most_v;
    }
    ceni_divisor new_m = ceni_divisor_of(ceni_moment_scale(most_m, 4));
    ceni_divisor new_v = ceni_divisor_of(ceni_moment_scale(most_v, 5));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t noise = ceni_adamw_noise(clock->steps, first + i);
        uint32_t low = noise & 0xFFFFFu, high = noise >> 20 & 0xFFFFFu;
        uint32_t code = ceni_moment_code(fabsf(e[i].m), new_m, 4, low);
        m[first + i] = (uint8_t)(code | (e[i].m < 0 ? 128u : 0));
        v[first + i] = (uint8_t)ceni_moment_code(e[i].v, new_v, 5, high);
    }
    *m_scale = most_m;
    *v_scale = most_v;
}

void ceni_twin_adamw_step(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                          void *const *args) {
    ceni_adamw_job job = adamw_job(args);
    uint64_t blocks = (job.rows * job.cols + BLOCK - 1) / BLOCK;
    for (uint64_t i = 0; !clock_of(&job)->skip && i < blocks; i++) {
        step_block(&job, i);
    }
}

size_t ceni_ranges_adamw_begin(void *const *args, ceni_kernel_range *ranges) {
    ceni_adamw_job job = adamw_job(args);
    ranges[0] = (ceni_kernel_range){job.clock, sizeof(ceni_adamw_clock), true};
    ranges[1] = (ceni_kernel_range){job.scaler, job.scaler ? sizeof(ceni_scaler_state) : 0, false};
    return 2;
}

size_t ceni_ranges_adamw_step(void *const *args, ceni_kernel_range *ranges) {
    ceni_adamw_job job = adamw_job(args);
    uint64_t count = job.rows * job.cols, blocks = (count + BLOCK - 1) / BLOCK;
    ranges[0] = (ceni_kernel_range){job.clock, sizeof(ceni_adamw_clock), true};
    ranges[1] =
        matrix_range(job.param, job.rows, job.cols, job.param_stride, job.param_dtype, true);
    ranges[2] = matrix_range(job.grad, job.rows, job.cols, job.grad_stride, job.grad_dtype, false);
    ranges[3] = matrix_range(job.master, job.rows, job.cols, job.master_stride, CEN_FP32, true);
    ranges[4] = (ceni_kernel_range){job.m_scales, blocks * sizeof(float), true};
    ranges[5] = (ceni_kernel_range){job.v_scales, blocks * sizeof(float), true};
    ranges[6] = (ceni_kernel_range){job.m, count, true};
    ranges[7] = (ceni_kernel_range){job.v, count, true};
    return 8;
}
