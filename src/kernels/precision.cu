// Mixed precision, as precision.h says. A block has a chunk of a row to check, or a state that it
// advances; a warp has a block of an optimizer's states, whose scales it finds by shuffles. What is
// computed is precision.h's, of intrinsics that round once.

#include <stdint.h>

#include "cenote/dtype.h"
#include "kernels/precision.h"
#include "kernels/vector.cuh"

namespace precision {

constexpr int WARP = 32, EACH = CENI_ADAMW_BLOCK / WARP, CHUNK = 4096, QUADS = 4;
constexpr unsigned ALL = 0xFFFFFFFFu;

using word = unsigned long long;

__device__ float of_half(uint32_t dtype, uint16_t half) {
    if (dtype == CEN_BF16) {
        return __uint_as_float((uint32_t)half << 16);
    }
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

__device__ uint16_t to_half(uint32_t dtype, float x) {
    uint16_t half;
    if (dtype == CEN_FP16) {
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    } else {
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(x));
    }
    return half;
}

__device__ float load(uint64_t base, uint32_t dtype, uint64_t at) {
    return dtype == CEN_FP32 ? ((const float *)base)[at]
                             : of_half(dtype, ((const uint16_t *)base)[at]);
}

__device__ void store(uint64_t base, uint32_t dtype, uint64_t at, float x) {
    if (dtype == CEN_FP32) {
        ((float *)base)[at] = x;
    } else {
        ((uint16_t *)base)[at] = to_half(dtype, x);
    }
}

// ---- loss scaling ----

// The tensor that a chunk is of: the last whose first chunk is not after it.
__device__ uint64_t tensor_of(const ceni_scaler_tensor *table, uint64_t tensors, uint64_t chunk) {
    uint64_t low = 0, high = tensors;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (table[middle].first <= chunk) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// Of 16-bit elements, whether either of two is infinite or no number; of FP32 whether one is.
__device__ __forceinline__ bool is_bad(uint32_t dtype, uint32_t word) {
    uint32_t infinite = dtype == CEN_FP32 ? 0x7F800000u : dtype == CEN_FP16 ? 0x7C00u : 0x7F80u;
    bool upper = dtype != CEN_FP32 && (word >> 16 & infinite) == infinite;
    return (word & infinite) == infinite || upper;
}

__device__ __forceinline__ uint32_t times(uint32_t dtype, uint32_t word, float by) {
    if (dtype == CEN_FP32) {
        return __float_as_uint(__fmul_rn(__uint_as_float(word), by));
    }
    float a = of_half(dtype, (uint16_t)word), b = of_half(dtype, (uint16_t)(word >> 16));
    return to_half(dtype, __fmul_rn(a, by)) | (uint32_t)to_half(dtype, __fmul_rn(b, by)) << 16;
}

// Quads of 16 bytes, QUADS of them under way before the first is looked at.
__device__ bool check_quads(uint32_t dtype, uint64_t from, uint32_t quads, float inverse,
                            bool unscale) {
    bool bad = false;
    for (uint32_t first = threadIdx.x; first < quads; first += QUADS * blockDim.x) {
        uint4 q[QUADS];
#pragma unroll
        for (int k = 0; k < QUADS; k++) {
            uint32_t at = first + k * blockDim.x;
            q[k] = at < quads ? cen_vector::load_16(from + at * 16) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < QUADS; k++) {
            uint32_t at = first + k * blockDim.x;
            bad |= is_bad(dtype, q[k].x) || is_bad(dtype, q[k].y) || is_bad(dtype, q[k].z) ||
                   is_bad(dtype, q[k].w);
            if (unscale && at < quads) {
                cen_vector::store_16(
                    from + at * 16,
                    make_uint4(times(dtype, q[k].x, inverse), times(dtype, q[k].y, inverse),
                               times(dtype, q[k].z, inverse), times(dtype, q[k].w, inverse)));
            }
        }
    }
    return !bad;
}

__device__ bool check_chunk(const ceni_scaler_tensor &t, uint64_t chunk, float inverse,
                            bool unscale) {
    uint64_t row = chunk / t.chunks_across, col = chunk % t.chunks_across * CENI_SCALER_CHUNK;
    uint64_t at = row * t.stride + col, n = t.cols - col, done = 0;
    uint32_t size = t.dtype == CEN_FP32 ? 4 : 2;
    uint64_t from = t.data + at * size;
    n = n < CENI_SCALER_CHUNK ? n : CENI_SCALER_CHUNK;
    bool good = true;
    if (from % 16 == 0) {
        uint32_t quads = (uint32_t)n * size / 16;
        good = check_quads(t.dtype, from, quads, inverse, unscale);
        done = quads * 16 / size;
    }
    for (uint64_t i = done + threadIdx.x; i < n; i += blockDim.x) {
        float x = load(t.data, t.dtype, at + i);
        good = good && ceni_exact_finite(x);
        if (unscale) {
            store(t.data, t.dtype, at + i, __fmul_rn(x, inverse));
        }
    }
    return good;
}

// ---- AdamW ----

__device__ float meet(float size) { // of sizes, whose bits are ordered as they are
    return __uint_as_float(__reduce_max_sync(ALL, __float_as_uint(size)));
}

// Where an element of the moments lies in the matrices.
struct spot {
    uint64_t at, row, col;
    bool there;
    __device__ __forceinline__ spot(const ceni_adamw_job &job, uint64_t first, int k,
                                    uint64_t count) {
        at = first + k * WARP + threadIdx.x % WARP;
        there = at < count;
        if (job.rows == 1) {
            row = 0;
        } else if ((at | job.cols) >> 32) {
            row = at / job.cols;
        } else { // takes a fifth of the time
            row = (uint32_t)at / (uint32_t)job.cols;
        }
        col = at - row * job.cols;
    }
};

__device__ __forceinline__ float load_param(const ceni_adamw_job &job, const spot &s) {
    return job.master ? load(job.master, CEN_FP32, s.row * job.master_stride + s.col)
                      : load(job.param, job.param_dtype, s.row * job.param_stride + s.col);
}

__device__ __forceinline__ void store_param(const ceni_adamw_job &job, const spot &s, float p) {
    if (job.master) {
        store(job.master, CEN_FP32, s.row * job.master_stride + s.col, p);
    }
    store(job.param, job.param_dtype, s.row * job.param_stride + s.col, p);
}

// All that is read is on its way before the first is used.
__device__ void step_block(const ceni_adamw_job &job, const ceni_adamw_clock &clock, uint64_t block,
                           uint32_t &nonfinite) {
    float *m_scale = (float *)job.m_scales + block, *v_scale = (float *)job.v_scales + block;
    uint8_t *m = (uint8_t *)job.m, *v = (uint8_t *)job.v, m_code[EACH], v_code[EACH];
    uint64_t first = block * CENI_ADAMW_BLOCK, count = job.rows * job.cols;
    float g[EACH], p[EACH], most_m = 0, most_v = 0;
    ceni_adamw_element e[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const spot s(job, first, k, count);
        m_code[k] = s.there ? m[s.at] : 0;
        v_code[k] = s.there ? v[s.at] : 0;
        g[k] = s.there ? load(job.grad, job.grad_dtype, s.row * job.grad_stride + s.col) : 0;
        p[k] = s.there ? load_param(job, s) : 0;
    }
    float old_m = ceni_moment_scale(*m_scale, 4), old_v = ceni_moment_scale(*v_scale, 5);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const spot s(job, first, k, count);
        float size = ceni_moment_of(m_code[k] & 127u, old_m, 4);
        e[k].m = m_code[k] >> 7 ? -size : size;
        e[k].v = ceni_moment_of(v_code[k], old_v, 5);
        g[k] = __fmul_rn(g[k], clock.unscale);
        if (s.there && !ceni_exact_finite(g[k])) {
            nonfinite++;
        } else if (s.there) {
            ceni_adamw_moments(&job, g[k], &e[k]);
            store_param(job, s, ceni_adamw_param(&job, &clock, p[k], &e[k]));
        }
        most_m = fmaxf(most_m, s.there ? fabsf(e[k].m) : 0);
        most_v = fmaxf(most_v, s.there ? e[k].v : 0);
    }
    most_m = meet(most_m);
    most_v = meet(most_v);
    float new_m = ceni_moment_scale(most_m, 4), new_v = ceni_moment_scale(most_v, 5);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        uint64_t at = first + k * WARP + threadIdx.x % WARP;
        if (at < count) {
            uint64_t noise = ceni_adamw_noise(clock.steps, at);
            uint32_t low = noise & 0xFFFFFu, high = noise >> 20 & 0xFFFFFu;
            uint32_t code = ceni_moment_code(fabsf(e[k].m), new_m, 4, low);
            m[at] = (uint8_t)(code | (e[k].m < 0 ? 128u : 0));
            v[at] = (uint8_t)ceni_moment_code(e[k].v, new_v, 5, high);
        }
    }
    __syncwarp(); // all lanes have read the old scales
    if (threadIdx.x % WARP == 0) {
        *m_scale = most_m;
        *v_scale = most_v;
    }
}

} // namespace precision

extern "C" __global__ void __launch_bounds__(256) cen_scaler_check(ceni_scaler_job job) {
    using namespace precision;
    ceni_scaler_state *state = (ceni_scaler_state *)job.state;
    ceni_scaler_tensor *table = (ceni_scaler_tensor *)job.table;
    float inverse = state->inverse;
    for (uint64_t chunk = blockIdx.x; chunk < job.chunks; chunk += gridDim.x) {
        uint64_t index = tensor_of(table, job.tensors, chunk);
        ceni_scaler_tensor t = table[index];
        bool good = check_chunk(t, chunk - t.first, inverse, job.unscale);
        if (!__all_sync(ALL, good) && threadIdx.x % WARP == 0) {
            atomicOr(&table[index].hit, 1u);
            atomicMax(&state->found, ~(uint32_t)index);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) cen_scaler_update(ceni_scaler_job job) {
    ceni_scaler_tensor *table = (ceni_scaler_tensor *)job.table;
    for (uint64_t i = threadIdx.x; blockIdx.x == 0 && i < job.tensors; i += blockDim.x) {
        table[i].overflows += table[i].hit;
        table[i].hit = 0;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        ceni_scaler_advance((ceni_scaler_state *)job.state, &job);
    }
}

// A block takes CHUNK neighbours of a row at a time.
extern "C" __global__ void __launch_bounds__(256) cen_fp8_amax(ceni_fp8_job job) {
    using namespace precision;
    uint32_t most = 0;
    uint64_t across = (job.cols + CHUNK - 1) / CHUNK;
    for (uint64_t chunk = blockIdx.x; chunk < job.rows * across; chunk += gridDim.x) {
        uint64_t row = chunk / across, col = chunk % across * CHUNK;
        uint64_t end = col + CHUNK < job.cols ? col + CHUNK : job.cols;
#pragma unroll 8
        for (uint64_t i = col + threadIdx.x; i < end; i += blockDim.x) {
            float x = load(job.matrix, job.dtype, row * job.stride + i);
            most = max(most, __float_as_uint(x) & 0x7FFFFFFFu);
        }
    }
    most = __reduce_max_sync(ALL, most);
    if (threadIdx.x % WARP == 0) {
        atomicMax((unsigned *)&((ceni_fp8_scaling *)job.state)->amax, most);
    }
}

extern "C" __global__ void __launch_bounds__(256) cen_fp8_update(ceni_fp8_job job) {
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < job.tensors;
         i += gridDim.x * blockDim.x) {
        ceni_fp8_scaling *s = (ceni_fp8_scaling *)(job.state + i * job.pitch);
        ceni_fp8_advance(s, (float *)(s + 1), &job);
    }
}

extern "C" __global__ void cen_adamw_begin(ceni_adamw_job job) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        ceni_adamw_advance((ceni_adamw_clock *)job.clock, (const ceni_scaler_state *)job.scaler,
                           &job);
    }
}

extern "C" __global__ void __launch_bounds__(256) cen_adamw_step(ceni_adamw_job job) {
    using namespace precision;
    ceni_adamw_clock clock = *(const ceni_adamw_clock *)job.clock;
    uint64_t blocks = (job.rows * job.cols + CENI_ADAMW_BLOCK - 1) / CENI_ADAMW_BLOCK;
    uint64_t warps = blockDim.x / WARP;
    uint32_t nonfinite = 0;
    for (uint64_t block = blockIdx.x * warps + threadIdx.x / WARP; !clock.skip && block < blocks;
         block += gridDim.x * warps) {
        step_block(job, clock, block, nonfinite);
    }
    if (nonfinite) {
        atomicAdd((word *)&((ceni_adamw_clock *)job.clock)->nonfinite, (word)nonfinite);
    }
}
