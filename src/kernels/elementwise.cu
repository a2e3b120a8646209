// Element-wise steps in one pass over memory (elementwise.h).
//
// A thread has a piece of V elements: 16 bytes of the widest type. Pieces begin where the output's
// memory is aligned, so that a row may begin anywhere; its first and last piece may be short. All
// loads of a thread are under way before the first value is used.

#include <stdint.h>

#include "kernels/convert.cuh"
#include "kernels/elementwise.h"

namespace cen_elementwise {

using namespace cen_convert;

__device__ __forceinline__ uint64_t first_row() {
    return (uint64_t)blockIdx.y * blockDim.y + threadIdx.y;
}

__device__ __forceinline__ uint64_t row_step() {
    return (uint64_t)gridDim.y * blockDim.y;
}

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// x times the normal distribution's share below x. The logarithm of the share beyond |x| is smooth: a
// polynomial, fitted to leave at most 1.3 * 2^-24 of the share. Beyond 5.5 that is less than 2^-25.
__device__ __forceinline__ float gelu(float x) {
    float size = fabsf(x), p = 8.4701351e-6f;
    p = fmaf(p, size, -5.3903485e-5f);
    p = fmaf(p, size, -4.2123673e-4f);
    p = fmaf(p, size, 7.3892735e-3f);
    p = fmaf(p, size, -5.2691113e-2f);
    p = fmaf(p, size, -0.45915315f);
    p = fmaf(p, size, -1.1511109f);
    float beyond = power_of_two(fmaf(p, size, -0.99999988f));
    return size > 5.5f ? fmaxf(x, -0.0f) : x * (x < 0 ? beyond : 1 - beyond);
}

// (1 + tanh(z)) / 2 is 1 / (1 + exp(-2 z)); that is a power of two.
__device__ __forceinline__ float gelu_tanh(float x) {
    float z = x * fmaf(x * x, 2.3022082f * 0.044715f, 2.3022082f);
    return x == -INFINITY ? -0.0f : x * reciprocal(1 + power_of_two(-z));
}

__device__ __forceinline__ bool is_matrix(uint32_t kind) {
    return kind == CENI_MAP_ADD || kind == CENI_MAP_AXPY;
}

// One step; `y` has the operand's values. The multiplications and sums are not to be fused.
template <int V>
__device__ __forceinline__ void apply(uint32_t kind, float alpha, uint32_t dtype,
                                      const float (&y)[V], float (&v)[V]) {
    if (kind == CENI_MAP_ROUND && (V == 8 || dtype != CEN_FP32)) {
        unpack<V>(pack<V>(v, dtype), dtype, v);
    }
#pragma unroll
    for (int k = 0; k < V; k++) {
        switch (kind) {
        case CENI_MAP_SCALE:
            v[k] = __fmul_rn(alpha, v[k]);
            break;
        case CENI_MAP_ADD:
        case CENI_MAP_BIAS:
            v[k] = __fadd_rn(v[k], y[k]);
            break;
        case CENI_MAP_AXPY:
            v[k] = __fadd_rn(__fmul_rn(alpha, v[k]), y[k]);
            break;
        case CENI_MAP_RELU:
            v[k] = v[k] < 0 ? 0 : v[k];
            break;
        case CENI_MAP_GELU:
            v[k] = gelu(v[k]);
            break;
        case CENI_MAP_GELU_TANH:
            v[k] = gelu_tanh(v[k]);
            break;
        }
    }
}

__device__ __forceinline__ uint64_t row_of(const ceni_map_step &step, uint64_t row,
                                           uint32_t size) {
    return step.data + (step.kind == CENI_MAP_BIAS ? 0 : row * step.stride * size);
}

__device__ __forceinline__ bool has_operand(uint32_t kind) {
    return is_matrix(kind) || kind == CENI_MAP_BIAS;
}

// Types and steps known when compiled; a thread has U pieces of a row, or with m.down one of each of U
// rows, which then begin in the same place of a piece.
template <int V, int U, uint32_t IN, uint32_t OUT, int FIRST, int SECOND>
__device__ __forceinline__ void map_fixed(const ceni_map &m) {
    const uint32_t in = IN == CEN_FP32 ? 4 : 2, out = OUT == CEN_FP32 ? 4 : 2;
    const uint32_t rows_each = m.down ? U : 1, row_apart = m.down ? blockDim.y : 0;
    const uint32_t across = blockDim.x * (m.down ? 1 : U), apart = m.down ? 0 : blockDim.x;
    for (uint64_t row = (uint64_t)blockIdx.y * blockDim.y * rows_each + threadIdx.y; row < m.rows;
         row += row_step() * rows_each) {
        uint32_t shift = shift_of<V>(m.out + row * m.out_stride * out, out);
        uint64_t pieces = (m.cols + shift + V - 1) / V;
        for (uint64_t base = (uint64_t)blockIdx.x * across + threadIdx.x; base < pieces;
             base += (uint64_t)gridDim.x * across) {
            raw x[U], a[U], b[U];
            part p[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                uint64_t at = row + (uint64_t)u * row_apart;
                p[u] = part_of<V>(base + (uint64_t)u * apart, shift, m.cols);
                p[u].last = at < m.rows ? p[u].last : 0;
                x[u] = load<V>(m.x + at * m.x_stride * in, in, p[u]);
                if (FIRST == CENI_MAP_BIAS && u && m.down) {
                    a[u] = a[0];
                } else if (has_operand(FIRST)) {
                    a[u] = load<V>(row_of(m.steps[0], at, in), in, p[u]);
                }
                if (has_operand(SECOND)) {
                    b[u] = load<V>(row_of(m.steps[1], at, in), in, p[u]);
                }
            }
#pragma unroll
            for (int u = 0; u < U; u++) {
                float v[V], y[V];
                unpack<V>(x[u], IN, v);
                if (has_operand(FIRST)) {
                    unpack<V>(a[u], IN, y);
                }
                apply<V>(FIRST, m.steps[0].alpha, IN, y, v);
                if (has_operand(SECOND)) {
                    unpack<V>(b[u], IN, y);
                }
                apply<V>(SECOND, m.steps[1].alpha, IN, y, v);
                uint64_t at = row + (uint64_t)u * row_apart;
                store<V>(m.out + at * m.out_stride * out, out, p[u], pack<V>(v, OUT));
            }
        }
    }
}

template <int V>
__device__ __forceinline__ raw load_step(const ceni_map_step &step, uint64_t row, const part &p) {
    uint32_t size = V == 8 ? 2 : size_of(step.dtype);
    return load<V>(row_of(step, row, size), size, p);
}

// Any steps and types, decoded from the parameters: every thread takes the same branches. The
// matrices that steps add wait in a queue in registers, in the order of their steps.
template <int V> __device__ __forceinline__ void map_chain(const ceni_map &m) {
    const uint32_t in = V == 8 ? 2 : size_of(m.x_dtype), out = V == 8 ? 2 : size_of(m.out_dtype);
    for (uint64_t row = first_row(); row < m.rows; row += row_step()) {
        uint64_t to = m.out + row * m.out_stride * out, from = m.x + row * m.x_stride * in;
        uint32_t shift = shift_of<V>(to, out);
        uint64_t pieces = (m.cols + shift + V - 1) / V;
        for (uint64_t piece = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; piece < pieces;
             piece += (uint64_t)gridDim.x * blockDim.x) {
            part p = part_of<V>(piece, shift, m.cols);
            raw x = load<V>(from, in, p), queue[CENI_MAP_MATRICES];
            uint32_t step = 0;
#pragma unroll
            for (int k = 0; k < CENI_MAP_MATRICES; k++) {
                while (step < m.count && !is_matrix(m.steps[step].kind)) {
                    step++;
                }
                if (step < m.count) {
                    queue[k] = load_step<V>(m.steps[step++], row, p);
                }
            }
            float v[V], y[V];
            unpack<V>(x, m.x_dtype, v);
#pragma unroll 1
            for (step = 0; step < m.count; step++) {
                const ceni_map_step &s = m.steps[step];
                if (is_matrix(s.kind)) {
                    unpack<V>(queue[0], s.dtype, y);
#pragma unroll
                    for (int k = 1; k < CENI_MAP_MATRICES; k++) {
                        queue[k - 1] = queue[k];
                    }
                } else if (s.kind == CENI_MAP_BIAS) {
                    unpack<V>(load_step<V>(s, row, p), s.dtype, y);
                }
                apply<V>(s.kind, s.alpha, s.dtype, y, v);
            }
            store<V>(to, out, p, pack<V>(v, m.out_dtype));
        }
    }
}

// ---- rows of bytes ----

// Calls whole(address's offset in the row) for each 16 bytes of a row that are aligned in its
// memory, and rest(from, to) for what is left at its ends.
template <typename Whole, typename Rest>
__device__ __forceinline__ void over_bytes(uint64_t row, uint64_t width, Whole whole, Rest rest) {
    uint64_t shift = row % 16, pieces = (width + shift + 15) / 16;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < pieces;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint64_t from = i ? i * 16 - shift : 0, to = i * 16 - shift + 16;
        to = to < width ? to : width;
        if (to - from == 16) {
            whole(from);
        } else {
            rest(from, to);
        }
    }
}

__device__ __forceinline__ void store_unit(uint64_t at, uint64_t value, uint64_t unit) {
    switch (unit) {
    case 1:
        *(uint8_t *)at = (uint8_t)value;
        break;
    case 2:
        *(uint16_t *)at = (uint16_t)value;
        break;
    case 4:
        *(uint32_t *)at = (uint32_t)value;
        break;
    default:
        *(uint64_t *)at = value;
    }
}

__device__ __forceinline__ uint64_t load_unit(uint64_t at, uint64_t unit) {
    switch (unit) {
    case 1:
        return *(const uint8_t *)at;
    case 2:
        return *(const uint16_t *)at;
    case 4:
        return *(const uint32_t *)at;
    default:
        return *(const uint64_t *)at;
    }
}

template <typename Unit>
__device__ __forceinline__ uint4 load_units(uint64_t at) {
    union {
        uint4 quad;
        Unit units[16 / sizeof(Unit)];
    } all;
#pragma unroll
    for (int k = 0; k < (int)(16 / sizeof(Unit)); k++) {
        all.units[k] = ((const Unit *)at)[k];
    }
    return all.quad;
}

// 16 bytes from an address that is a multiple of `unit`.
__device__ __forceinline__ uint4 load_quad(uint64_t at, uint64_t unit) {
    if (at % 16 == 0) {
        return *(const uint4 *)at;
    }
    switch (unit) {
    case 1:
        return load_units<uint8_t>(at);
    case 2:
        return load_units<uint16_t>(at);
    case 4:
        return load_units<uint32_t>(at);
    default:
        return load_units<uint64_t>(at);
    }
}

} // namespace cen_elementwise

#define FIXED(name, first, second, type, dtype, v)                                                 \
    extern "C" __global__ void cen_map_##name##_##type(const __grid_constant__ ceni_map m) {       \
        cen_elementwise::map_fixed<v, 2, CEN_##dtype, CEN_##dtype, CENI_MAP_##first,               \
                                   CENI_MAP_##second>(m);                                          \
    }
#define FIXED_TYPES(name, first, second)                                                           \
    FIXED(name, first, second, fp32, FP32, 4)                                                      \
    FIXED(name, first, second, fp16, FP16, 8)                                                      \
    FIXED(name, first, second, bf16, BF16, 8)
CENI_MAP_FIXED(FIXED_TYPES)
#undef FIXED_TYPES
#undef FIXED

#define CAST(from, to, in, out)                                                                    \
    extern "C" __global__ void cen_map_##from##_to_##to(const __grid_constant__ ceni_map m) {      \
        constexpr int v = CEN_##in == CEN_FP32 || CEN_##out == CEN_FP32 ? 4 : 8;                   \
        cen_elementwise::map_fixed<v, 2, CEN_##in, CEN_##out, CENI_MAP_NONE, CENI_MAP_NONE>(m);    \
    }
CENI_MAP_CASTS(CAST)
#undef CAST

extern "C" __global__ void cen_map_chain_4(const __grid_constant__ ceni_map m) {
    cen_elementwise::map_chain<4>(m);
}

extern "C" __global__ void cen_map_chain_8(const __grid_constant__ ceni_map m) {
    cen_elementwise::map_chain<8>(m);
}

extern "C" __global__ void cen_fill_rows(const __grid_constant__ ceni_bytes b) {
    using namespace cen_elementwise;
    uint32_t low = (uint32_t)b.src, high = (uint32_t)(b.src >> 32);
    uint4 quad = make_uint4(low, high, low, high);
    for (uint64_t row = first_row(); row < b.rows; row += row_step()) {
        uint64_t dst = b.dst + row * b.dst_stride;
        over_bytes(
            dst, b.width, [&](uint64_t at) { *(uint4 *)(dst + at) = quad; },
            [&](uint64_t from, uint64_t to) {
                for (uint64_t at = from; at < to; at += b.unit) {
                    store_unit(dst + at, b.src, b.unit);
                }
            });
    }
}

extern "C" __global__ void cen_copy_rows(const __grid_constant__ ceni_bytes b) {
    using namespace cen_elementwise;
    for (uint64_t row = first_row(); row < b.rows; row += row_step()) {
        uint64_t dst = b.dst + row * b.dst_stride, src = b.src + row * b.src_stride;
        over_bytes(
            dst, b.width,
            [&](uint64_t at) { *(uint4 *)(dst + at) = load_quad(src + at, b.unit); },
            [&](uint64_t from, uint64_t to) {
                for (uint64_t at = from; at < to; at += b.unit) {
                    store_unit(dst + at, load_unit(src + at, b.unit), b.unit);
                }
            });
    }
}
