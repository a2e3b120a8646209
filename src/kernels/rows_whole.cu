// Rows of whole pieces of 16 bytes, aligned, all of one type but for gamma and beta, which may be
// FP32 (rows.h): nothing is asked for single elements, and what is 16 bits wide stays so until it
// is added up.
//
// A thread has P pieces of each of R rows, packed in registers, all loads under way at once.

#include <stdint.h>

#include "kernels/convert.cuh"
#include "kernels/group.cuh"
#include "kernels/rows.cuh"
#include "kernels/rows.h"

namespace cen_rows_whole {

using namespace cen_convert;
using namespace cen_group;
using namespace cen_rows;

template <uint32_t TYPE> struct word; // 4 bytes of a piece
template <> struct word<CEN_FP32> {
    static constexpr uint32_t LEAST = 0xFF800000u, MAGNITUDE = 0x7FFFFFFFu;
    static __device__ __forceinline__ uint32_t max(uint32_t a, uint32_t b) {
        return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
    }
    // Of magnitudes; NaN is the largest.
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
        return umax(a, b);
    }
};
template <> struct word<CEN_FP16> {
    static constexpr uint32_t LEAST = 0xFC00FC00u, MAGNITUDE = 0x7FFF7FFFu;
    static __device__ __forceinline__ uint32_t max(uint32_t a, uint32_t b) {
        uint32_t c;
        asm("max.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
        return c;
    }
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
        uint32_t c;
        asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
        return c;
    }
};
template <> struct word<CEN_BF16> {
    static constexpr uint32_t LEAST = 0xFF80FF80u, MAGNITUDE = 0x7FFF7FFFu;
    static __device__ __forceinline__ uint32_t max(uint32_t a, uint32_t b) {
        uint32_t c;
        asm("max.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
        return c;
    }
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
        uint32_t c;
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
        return c;
    }
};

template <uint32_t TYPE, int P, int R> struct rows {
    static constexpr int V = TYPE == CEN_FP32 ? 4 : 8, SIZE = 16 / V;
    raw r[R][P];
    uint64_t first; // this thread's first row, the others blockDim.y apart
    uint32_t pieces;

    // What is not there is `none` throughout.
    __device__ __forceinline__ rows(const ceni_rows &a, uint64_t base, uint32_t none) {
        first = base + threadIdx.y;
        pieces = (uint32_t)a.cols / V;
#pragma unroll
        for (int i = 0; i < R; i++) {
            uint64_t from = a.x.data + row(i) * a.x.stride * SIZE;
#pragma unroll
            for (int k = 0; k < P; k++) {
                r[i][k] = {{none, none, none, none}};
                if (has(k) && row(i) < a.rows) {
                    uint4 q = cen_vector::load_16_once(from + piece(k) * 16);
                    r[i][k] = {{q.x, q.y, q.z, q.w}};
                }
            }
        }
    }
    __device__ __forceinline__ uint64_t row(int i) const {
        return first + i * blockDim.y;
    }
    static __device__ __forceinline__ uint32_t piece(int k) {
        return k * blockDim.x + threadIdx.x;
    }
    __device__ __forceinline__ bool has(int k) const {
        return piece(k) < pieces;
    }
    // Gives what a row comes to, once it is there.
    __device__ __forceinline__ void give(const ceni_rows &a, uint64_t to, uint64_t stride,
                                         const float (&value)[R]) const {
#pragma unroll
        for (int i = 0; i < R; i++) {
            if (!threadIdx.x && row(i) < a.rows) {
                cen_rows::give(to, stride, row(i), value[i]);
            }
        }
    }
    // Sums over the group of term(i, v), v an element of row i; each in V parts until they meet.
    template <typename Term>
    __device__ __forceinline__ void sum(uint32_t &turn, float (&total)[R], Term term) const {
#pragma unroll
        for (int i = 0; i < R; i++) {
            float parts[V] = {};
#pragma unroll
            for (int k = 0; k < P; k++) {
                float v[V];
                unpack<V>(r[i][k], TYPE, v);
                if (has(k)) {
#pragma unroll
                    for (int j = 0; j < V; j++) {
                        parts[j] += term(i, v[j]);
                    }
                }
            }
#pragma unroll
            for (int apart = V / 2; apart; apart /= 2) {
#pragma unroll
                for (int j = 0; j < apart; j++) {
                    parts[j] += parts[j + apart];
                }
            }
            total[i] = parts[0];
        }
        over_group<add>(total, turn);
    }
    // Stores value(i, j, v) for elements j of all pieces k, after begin(k).
    template <typename Begin, typename Value>
    __device__ __forceinline__ void store(const ceni_rows &a, Begin begin, Value value) const {
#pragma unroll
        for (int k = 0; k < P; k++) {
            if (!has(k)) {
                continue;
            }
            begin(k);
#pragma unroll
            for (int i = 0; i < R; i++) {
                float v[V];
                unpack<V>(r[i][k], TYPE, v);
#pragma unroll
                for (int j = 0; j < V; j++) {
                    v[j] = value(i, j, v[j]);
                }
                if (row(i) < a.rows) {
                    uint64_t to = a.y.data + row(i) * a.y.stride * SIZE;
                    store_whole<V>(to + piece(k) * 16, SIZE, pack<V>(v, TYPE));
                }
            }
        }
    }
};

struct sum {
    static constexpr int PIECES = CENI_ROWS_WHOLE_PIECES;
    template <uint32_t TYPE, int P, int R>
    static __device__ __forceinline__ void of(const ceni_rows &a, uint64_t base, uint32_t &turn) {
        rows<TYPE, P, R> x(a, base, 0);
        float total[R];
        x.sum(turn, total, [](int, float v) { return v; });
        x.give(a, a.out, a.out_stride, total);
    }
};

struct absmax {
    static constexpr int PIECES = CENI_ROWS_WHOLE_PIECES;
    template <uint32_t TYPE, int P, int R>
    static __device__ __forceinline__ void of(const ceni_rows &a, uint64_t base, uint32_t &turn) {
        using word = cen_rows_whole::word<TYPE>;
        rows<TYPE, P, R> x(a, base, 0);
        float most[R];
#pragma unroll
        for (int i = 0; i < R; i++) {
            raw largest = {{0, 0, 0, 0}};
#pragma unroll
            for (int k = 0; k < P; k++) {
#pragma unroll
                for (int w = 0; w < 4; w++) {
                    largest.w[w] = word::larger(largest.w[w], x.r[i][k].w[w] & word::MAGNITUDE);
                }
            }
            float v[x.V];
            unpack<x.V>(largest, TYPE, v);
            most[i] = v[0];
#pragma unroll
            for (int j = 1; j < x.V; j++) {
                most[i] = larger::of(most[i], v[j]);
            }
        }
        over_group<larger>(most, turn);
        x.give(a, a.out, a.out_stride, most);
    }
};

struct softmax {
    static constexpr int PIECES = CENI_ROWS_WHOLE_PIECES;
    template <uint32_t TYPE, int P, int R>
    static __device__ __forceinline__ void of(const ceni_rows &a, uint64_t base, uint32_t &turn) {
        using word = cen_rows_whole::word<TYPE>;
        rows<TYPE, P, R> x(a, base, word::LEAST);
        float most[R], from[R], total[R];
#pragma unroll
        for (int i = 0; i < R; i++) {
            raw top = x.r[i][0];
#pragma unroll
            for (int k = 1; k < P; k++) {
#pragma unroll
                for (int w = 0; w < 4; w++) {
                    top.w[w] = word::max(top.w[w], x.r[i][k].w[w]);
                }
            }
            float v[x.V];
            unpack<x.V>(top, TYPE, v);
            most[i] = -INFINITY;
#pragma unroll
            for (int j = 0; j < x.V; j++) {
                most[i] = fmaxf(most[i], v[j]);
            }
        }
        over_group<largest>(most, turn);
#pragma unroll
        for (int i = 0; i < R; i++) {
            from[i] = base_of(most[i]);
        }
        x.sum(turn, total, [&](int i, float v) { return power(v - from[i]); });
        // Of a row that has nothing but minus infinity: 0 times infinity.
#pragma unroll
        for (int i = 0; i < R; i++) {
            total[i] = 1 / total[i];
        }
        x.store(
            a, [](int) {}, [&](int i, int, float v) { return power(v - from[i]) * total[i]; });
    }
};

// A piece's gamma or beta, of the rows' type or FP32; `without` where there is none.
template <uint32_t TYPE, int V>
__device__ __forceinline__ void load_factors(const ceni_operand &o, uint32_t piece, float without,
                                             float (&v)[V]) {
    if (!o.data) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            v[j] = without;
        }
    } else if (o.dtype == TYPE) {
        uint4 q = __ldg((const uint4 *)o.data + piece);
        unpack<V>({{q.x, q.y, q.z, q.w}}, TYPE, v);
    } else {
#pragma unroll
        for (int j = 0; j < V; j += 4) {
            float4 q = __ldg((const float4 *)o.data + (piece * V + j) / 4);
            v[j] = q.x, v[j + 1] = q.y, v[j + 2] = q.z, v[j + 3] = q.w;
        }
    }
}

struct layer_norm {
    static constexpr int PIECES = CENI_ROWS_WHOLE_NORM_PIECES;
    template <uint32_t TYPE, int P, int R>
    static __device__ __forceinline__ void of(const ceni_rows &a, uint64_t base, uint32_t &turn) {
        rows<TYPE, P, R> x(a, base, 0);
        float mean[R], rstd[R], gamma[x.V], beta[x.V];
        x.sum(turn, mean, [](int, float v) { return v; });
#pragma unroll
        for (int i = 0; i < R; i++) {
            mean[i] /= (float)a.cols;
        }
        x.sum(turn, rstd, [&](int i, float v) { return (v - mean[i]) * (v - mean[i]); });
#pragma unroll
        for (int i = 0; i < R; i++) {
            rstd[i] = rsqrtf(rstd[i] / (float)a.cols + a.epsilon);
        }
        x.give(a, a.out, a.out_stride, mean);
        x.give(a, a.rstd, a.rstd_stride, rstd);
        x.store(
            a,
            [&](int k) {
                load_factors<TYPE, x.V>(a.gamma, x.piece(k), 1, gamma);
                load_factors<TYPE, x.V>(a.beta, x.piece(k), 0, beta);
            },
            [&](int i, int j, float v) { return (v - mean[i]) * rstd[i] * gamma[j] + beta[j]; });
    }
};

template <typename What, uint32_t TYPE, int P>
__device__ __forceinline__ void over_rows(const ceni_rows &a) {
    constexpr int R = CENI_ROWS_WHOLE_ROWS(P, What::PIECES);
    uint32_t turn = 0;
    uint64_t step = (uint64_t)blockDim.y * R;
    for (uint64_t base = blockIdx.x * step; base < a.rows; base += gridDim.x * step) {
        What::template of<TYPE, P, R>(a, base, turn);
    }
}

} // namespace cen_rows_whole

#define WHOLE(name, type, dtype, pieces)                                                           \
    extern "C" __global__ void __launch_bounds__(CENI_ROWS_WHOLE_THREADS, 2)                       \
        cen_row_##name##_##type##_##pieces(const __grid_constant__ ceni_rows a) {                  \
        cen_rows_whole::over_rows<cen_rows_whole::name, CEN_##dtype, pieces>(a);                   \
    }
#define WHOLE_TYPES(name, pieces)                                                                  \
    WHOLE(name, fp32, FP32, pieces)                                                                \
    WHOLE(name, fp16, FP16, pieces)                                                                \
    WHOLE(name, bf16, BF16, pieces)
#define WHOLE_PIECES(name) WHOLE_TYPES(name, 2) WHOLE_TYPES(name, 4) WHOLE_TYPES(name, 8)
WHOLE_PIECES(sum)
WHOLE_PIECES(absmax)
WHOLE_PIECES(softmax)
WHOLE_PIECES(layer_norm)
#undef WHOLE_PIECES
#undef WHOLE_TYPES
#undef WHOLE
