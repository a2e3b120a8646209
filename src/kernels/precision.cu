// Mixed precision, as precision.h says. A block has a chunk of a row to check, or a state that it
// advances; a warp has a block of an optimizer's states, whose scales it finds by shuffles. What is
// computed is precision.h's, of intrinsics that round once.

#include <stdint.h>

#include "cenote/dtype.h"
#include "kernels/precision.h"

namespace precision {

constexpr int WARP = 32, EACH = CENI_ADAMW_BLOCK / WARP, CHUNK = 8192, AHEAD = 4;
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

// Elements of a vector, as `w` has them, that are not finite make `good` false; with `unscale` all
// are multiplied.
__device__ void check_vector(uint32_t dtype, uint32_t w[4], float inverse, bool unscale,
                             bool &good) {
    uint32_t infinite = dtype == CEN_FP16 ? 0x7C00u : 0x7F80u;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (dtype == CEN_FP32) {
            good = good && ceni_exact_finite(__uint_as_float(w[k]));
        } else {
            good = good && (w[k] & infinite) != infinite && (w[k] >> 16 & infinite) != infinite;
        }
    }
    if (!unscale) {
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (dtype == CEN_FP32) {
            w[k] = __float_as_uint(__fmul_rn(__uint_as_float(w[k]), inverse));
        } else {
            float a = of_half(dtype, (uint16_t)w[k]), b = of_half(dtype, (uint16_t)(w[k] >> 16));
            w[k] = to_half(dtype, __fmul_rn(a, inverse)) |
                   (uint32_t)to_half(dtype, __fmul_rn(b, inverse)) << 16;
        }
    }
}

// Vectors of 16 bytes, several of which are on their way at once.
__device__ bool check_vectors(uint32_t dtype, uint64_t from, unsigned count, float inverse,
                              bool unscale) {
    bool good = true;
    uint4 *vectors = (uint4 *)from;
    for (unsigned first = threadIdx.x; first < count; first += AHEAD * blockDim.x) {
        uint4 v[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            unsigned at = first + i * blockDim.x;
            v[i] = at < count ? vectors[at] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            unsigned at = first + i * blockDim.x;
            uint32_t w[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
            check_vector(dtype, w, inverse, unscale, good);
            if (unscale && at < count) {
                vectors[at] = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
    }
    return good;
}

__device__ bool check_chunk(const ceni_scaler_tensor &t, uint64_t chunk, float inverse,
                            bool unscale) {
    uint64_t row = chunk / t.chunks_across, col = chunk % t.chunks_across * CENI_SCALER_CHUNK;
    uint64_t at = row * t.stride + col, n = t.cols - col, done = 0;
    uint64_t from = t.data + at * (t.dtype == CEN_FP32 ? 4 : 2);
    unsigned each = t.dtype == CEN_FP32 ? 4 : 8;
    n = n < CENI_SCALER_CHUNK ? n : CENI_SCALER_CHUNK;
    bool good = true;
    if (from % 16 == 0) {
        good = check_vectors(t.dtype, from, (unsigned)n / each, inverse, unscale);
        done = n / each * each;
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

// ---- FP8 ----

// The largest magnitude in so many vectors of 16 bytes, as the bits of a float.
__device__ uint32_t most_of(uint32_t dtype, uint64_t from, unsigned count) {
    uint32_t most = 0, mask = dtype == CEN_FP32 ? 0x7FFFFFFFu : 0x7FFF7FFFu;
    const uint4 *vectors = (const uint4 *)from;
    for (unsigned first = threadIdx.x; first < count; first += AHEAD * blockDim.x) {
        uint4 v[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            unsigned at = first + i * blockDim.x;
            v[i] = at < count ? __ldg(vectors + at) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const uint32_t w[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                uint32_t size = w[k] & mask;
                most = dtype == CEN_FP32 ? max(most, size) : __vmaxu2(most, size);
            }
        }
    }
    return dtype == CEN_FP32
               ? most
               : __float_as_uint(of_half(dtype, (uint16_t)max(most & 0xFFFFu, most >> 16)));
}

// ---- AdamW ----

__device__ float meet(float size) { // of sizes, whose bits are ordered as they are
    return __uint_as_float(__reduce_max_sync(ALL, __float_as_uint(size)));
}

// Eight neighbours of a block: a lane's.
struct octet {
    uint64_t m, v; // codes, a byte each
    float g[EACH], p[EACH];
};

__device__ uint64_t load_codes(uint64_t from, int n) {
    if (n == EACH && from % 8 == 0) {
        return *(const uint64_t *)from;
    }
    uint64_t codes = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        codes |= k < n ? (uint64_t)((const uint8_t *)from)[k] << 8 * k : 0;
    }
    return codes;
}

__device__ void store_codes(uint64_t to, int n, uint64_t codes) {
    if (n == EACH && to % 8 == 0) {
        *(uint64_t *)to = codes;
        return;
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        if (k < n) {
            ((uint8_t *)to)[k] = (uint8_t)(codes >> 8 * k);
        }
    }
}

// Where element `at` of all lies in a matrix.
__device__ uint64_t place(const ceni_adamw_job &job, uint64_t stride, uint64_t at) {
    return job.rows == 1 ? at : at / job.cols * stride + at % job.cols;
}

// The first n of eight from element `at` on, of one row if they lie as vectors.
__device__ void load_eight(const ceni_adamw_job &job, uint64_t base, uint32_t dtype,
                           uint64_t stride, uint64_t at, int n, float x[EACH]) {
    uint64_t from = base + at * (dtype == CEN_FP32 ? 4 : 2);
    if (n < EACH || job.rows > 1 || from % 16) {
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            x[k] = k < n ? load(base, dtype, place(job, stride, at + k)) : 0.0f;
        }
        return;
    }
    uint4 a = *(const uint4 *)from;
    uint32_t w[4] = {a.x, a.y, a.z, a.w};
    if (dtype == CEN_FP32) {
        float4 b = ((const float4 *)from)[1];
        x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (dtype == CEN_FP32) {
            x[k] = __uint_as_float(w[k]);
        } else {
            x[2 * k] = of_half(dtype, (uint16_t)w[k]);
            x[2 * k + 1] = of_half(dtype, (uint16_t)(w[k] >> 16));
        }
    }
}

// Those of a set of bits.
__device__ void store_eight(const ceni_adamw_job &job, uint64_t base, uint32_t dtype,
                            uint64_t stride, uint64_t at, unsigned set, const float x[EACH]) {
    uint64_t to = base + at * (dtype == CEN_FP32 ? 4 : 2);
    if (set != 255 || job.rows > 1 || to % 16) {
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            if (set >> k & 1) {
                store(base, dtype, place(job, stride, at + k), x[k]);
            }
        }
    } else if (dtype == CEN_FP32) {
        ((float4 *)to)[0] = make_float4(x[0], x[1], x[2], x[3]);
        ((float4 *)to)[1] = make_float4(x[4], x[5], x[6], x[7]);
    } else {
        uint32_t w[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            w[k] = to_half(dtype, x[2 * k]) | (uint32_t)to_half(dtype, x[2 * k + 1]) << 16;
        }
        *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

// Everything is asked of memory before anything is computed.
__device__ void load_octet(const ceni_adamw_job &job, uint64_t at, int n, octet &o) {
    o.m = load_codes(job.m + at, n);
    o.v = load_codes(job.v + at, n);
    load_eight(job, job.grad, job.grad_dtype, job.grad_stride, at, n, o.g);
    if (job.master) {
        load_eight(job, job.master, CEN_FP32, job.master_stride, at, n, o.p);
    } else {
        load_eight(job, job.param, job.param_dtype, job.param_stride, at, n, o.p);
    }
}

__device__ void step_block(const ceni_adamw_job &job, const ceni_adamw_clock &clock,
                           ceni_divisor root, uint64_t block, uint32_t &nonfinite) {
    float *m_scale = (float *)job.m_scales + block, *v_scale = (float *)job.v_scales + block;
    uint64_t at = block * CENI_ADAMW_BLOCK + threadIdx.x % WARP * EACH;
    uint64_t count = job.rows * job.cols;
    int n = at >= count ? 0 : count - at < EACH ? (int)(count - at) : EACH;
    float old_m = ceni_moment_scale(*m_scale, 4), old_v = ceni_moment_scale(*v_scale, 5);
    float most_m = 0, most_v = 0;
    unsigned stepped = 0;
    ceni_adamw_element e[EACH];
    octet o;
    load_octet(job, at, n, o);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        uint32_t code = (uint32_t)(o.m >> 8 * k) & 255u;
        float size = ceni_moment_of(code & 127u, old_m, 4);
        e[k].m = code >> 7 ? -size : size;
        e[k].v = ceni_moment_of((uint32_t)(o.v >> 8 * k) & 255u, old_v, 5);
        float g = __fmul_rn(o.g[k], clock.unscale);
        bool finite = ceni_exact_finite(g), steps = k < n && finite;
        ceni_adamw_element to = e[k]; // whatever g is: a choice keeps more in flight than a branch
        ceni_adamw_moments(&job, g, &to);
        float p = ceni_adamw_param(&job, &clock, root, o.p[k], &to);
        e[k].m = steps ? to.m : e[k].m;
        e[k].v = steps ? to.v : e[k].v;
        o.p[k] = steps ? p : o.p[k];
        stepped |= steps ? 1u << k : 0;
        nonfinite += k < n && !finite;
        most_m = k < n ? fmaxf(most_m, fabsf(e[k].m)) : most_m;
        most_v = k < n ? fmaxf(most_v, e[k].v) : most_v;
    }
    if (job.master) {
        store_eight(job, job.master, CEN_FP32, job.master_stride, at, stepped, o.p);
    }
    store_eight(job, job.param, job.param_dtype, job.param_stride, at, stepped, o.p);
    most_m = meet(most_m);
    most_v = meet(most_v);
    ceni_divisor new_m = ceni_divisor_of(ceni_moment_scale(most_m, 4));
    ceni_divisor new_v = ceni_divisor_of(ceni_moment_scale(most_v, 5));
    uint64_t m = 0, v = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        uint64_t noise = ceni_adamw_noise(clock.steps, at + k);
        uint32_t low = noise & 0xFFFFFu, high = noise >> 20 & 0xFFFFFu;
        uint32_t code = ceni_moment_code(fabsf(e[k].m), new_m, 4, low);
        m |= (uint64_t)(code | (e[k].m < 0 ? 128u : 0)) << 8 * k;
        v |= (uint64_t)ceni_moment_code(e[k].v, new_v, 5, high) << 8 * k;
    }
    store_codes(job.m + at, n, m);
    store_codes(job.v + at, n, v);
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
    uint64_t across = (job.cols + CHUNK - 1) / CHUNK, bytes = job.dtype == CEN_FP32 ? 4 : 2;
    for (uint64_t chunk = blockIdx.x; chunk < job.rows * across; chunk += gridDim.x) {
        uint64_t row = job.rows == 1 ? 0 : chunk / across, col = (chunk - row * across) * CHUNK;
        unsigned n = (unsigned)(job.cols - col < CHUNK ? job.cols - col : CHUNK), done = 0;
        uint64_t at = row * job.stride + col, from = job.matrix + at * bytes;
        if (from % 16 == 0) {
            most = max(most, most_of(job.dtype, from, n * (unsigned)bytes / 16));
            done = n * (unsigned)bytes / 16 * 16 / (unsigned)bytes;
        }
        for (unsigned i = done + threadIdx.x; i < n; i += blockDim.x) {
            float x = load(job.matrix, job.dtype, at + i);
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

extern "C" __global__ void __launch_bounds__(256, 3) cen_adamw_step(ceni_adamw_job job) {
    using namespace precision;
    ceni_adamw_clock clock = *(const ceni_adamw_clock *)job.clock;
    uint64_t blocks = (job.rows * job.cols + CENI_ADAMW_BLOCK - 1) / CENI_ADAMW_BLOCK;
    uint64_t warps = blockDim.x / WARP;
    ceni_divisor root = ceni_divisor_of(clock.root);
    uint32_t nonfinite = 0;
    for (uint64_t block = blockIdx.x * warps + threadIdx.x / WARP; !clock.skip && block < blocks;
         block += gridDim.x * warps) {
        step_block(job, clock, root, block, nonfinite);
    }
    if (nonfinite) {
        atomicAdd((word *)&((ceni_adamw_clock *)job.clock)->nonfinite, (word)nonfinite);
    }
}
