// Sums, softmax and layer norm along rows (rows.h).
//
// A slab of a row lies in registers, loaded 4 elements at a time with all loads under way at once,
// and is gone through there as often as it takes. Longer rows are read twice.

#include <stdint.h>

#include "kernels/convert.cuh"
#include "kernels/group.cuh"
#include "kernels/rows.cuh"
#include "kernels/rows.h"

namespace cen_rows {

using namespace cen_convert;
using namespace cen_group;

enum { PIECES = CENI_ROWS_HELD / 4 };

// The part of slab number `index` that this thread has; bit 4 * k + j of `mask`: v[k][j] is there.
struct slab {
    float v[PIECES][4];
    uint32_t mask;
    __device__ __forceinline__ bool has(int k, int j) const {
        return mask >> (k * 4 + j) & 1;
    }
};

__device__ __forceinline__ part part_of_slab(uint64_t index, int k, uint32_t shift,
                                             uint64_t cols) {
    return part_of<4>((index * PIECES + k) * blockDim.x + threadIdx.x, shift, cols);
}

// Where a row of x lies, and how many slabs it has; of a row behind the last, none. Plain: it has no
// pieces that are not whole.
template <uint32_t TYPE> struct place {
    static constexpr uint32_t SIZE = TYPE == CEN_FP32 ? 4 : 2;
    uint64_t row, slabs, cols;
    uint32_t shift, pieces;
    bool plain;

    __device__ __forceinline__ place(const ceni_rows &a, uint64_t index) {
        row = a.x.data + index * a.x.stride * SIZE;
        shift = shift_of<4>(row, SIZE);
        cols = index < a.rows ? a.cols : 0;
        plain = shift == 0 && a.cols % 4 == 0 && a.cols < 1u << 31;
        pieces = (uint32_t)(cols / 4);
        // As many for each row of a block, wherever it begins: its threads wait for each other.
        slabs = over(a.cols + 3, CENI_ROWS_HELD * blockDim.x);
    }
    // Quotients of 32 bits take a fifth of those of 64.
    static __device__ __forceinline__ uint64_t over(uint64_t count, uint32_t by) {
        uint64_t more = count + by - 1;
        return more >> 32 ? more / by : (uint32_t)more / by;
    }
    __device__ __forceinline__ uint32_t piece(uint64_t index, int k) const {
        return ((uint32_t)index * PIECES + k) * blockDim.x + threadIdx.x;
    }
    // What is not there is 0, or with LEAST minus infinity.
    template <bool LEAST> __device__ __forceinline__ slab load(uint64_t index) const {
        return plain ? load_plain<LEAST>(index) : load_any<LEAST>(index);
    }

  private:
    template <bool LEAST> __device__ __forceinline__ slab load_plain(uint64_t index) const {
        constexpr uint32_t none = !LEAST             ? 0
                                  : TYPE == CEN_FP32 ? 0xFF800000u
                                  : TYPE == CEN_BF16 ? 0xFF80FF80u
                                                     : 0xFC00FC00u;
        slab s;
        raw r[PIECES];
        s.mask = 0;
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            r[k] = {{none, none, none, none}};
            if (piece(index, k) < pieces) {
                r[k] = load_whole<4>(row + (uint64_t)piece(index, k) * (4 * SIZE), SIZE);
                s.mask |= 0xFu << k * 4;
            }
        }
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            unpack<4>(r[k], TYPE, s.v[k]);
        }
        return s;
    }
    template <bool LEAST> __device__ __forceinline__ slab load_any(uint64_t index) const {
        slab s;
        raw r[PIECES];
        s.mask = 0;
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            part p = part_of_slab(index, k, shift, cols);
            r[k] = cen_convert::load<4, true>(row, SIZE, p);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s.mask |= (uint32_t)(j >= p.first && j < p.last) << (k * 4 + j);
            }
        }
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            unpack<4>(r[k], TYPE, s.v[k]);
#pragma unroll
            for (int j = 0; LEAST && j < 4; j++) {
                s.v[k][j] = s.has(k, j) ? s.v[k][j] : -INFINITY;
            }
        }
        return s;
    }
};

// ---- what slabs come to: of(slab) is the group's, combine() that of two ----

struct sum {
    static constexpr bool LEAST = false;
    float value;
    static __device__ __forceinline__ sum none() {
        return {0};
    }
    static __device__ __forceinline__ sum of(const slab &s) {
        float total = 0;
#pragma unroll
        for (int k = 0; k < PIECES; k++) { // what is not there was loaded as 0
            total += (s.v[k][0] + s.v[k][1]) + (s.v[k][2] + s.v[k][3]);
        }
        return {over_group<add>(total)};
    }
    static __device__ __forceinline__ sum combine(sum a, sum b) {
        return {a.value + b.value};
    }
    __device__ __forceinline__ float4 words() const {
        return make_float4(value, 0, 0, 0);
    }
    static __device__ __forceinline__ sum from(float4 w) {
        return {w.x};
    }
};

struct absmax {
    static constexpr bool LEAST = false;
    float value;
    static __device__ __forceinline__ absmax none() {
        return {0};
    }
    static __device__ __forceinline__ absmax of(const slab &s) {
        float most = 0;
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                most = larger::of(most, __uint_as_float(__float_as_uint(s.v[k][j]) & 0x7FFFFFFFu));
            }
        }
        return {over_group<larger>(most)};
    }
    static __device__ __forceinline__ absmax combine(absmax a, absmax b) {
        return {larger::of(a.value, b.value)};
    }
    __device__ __forceinline__ float4 words() const {
        return make_float4(value, 0, 0, 0);
    }
    static __device__ __forceinline__ absmax from(float4 w) {
        return {w.x};
    }
};

// The maximum, and the sum of exp(x - it); where that is minus infinity, of exp(x).
struct powers {
    static constexpr bool LEAST = true;
    float most, total;
    static __device__ __forceinline__ powers none() {
        return {-INFINITY, 0};
    }
    static __device__ __forceinline__ float largest_of(const slab &s) {
        float most = -INFINITY;
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                most = fmaxf(most, s.v[k][j]);
            }
        }
        return over_group<largest>(most);
    }
    static __device__ __forceinline__ powers of(const slab &s) {
        float most = largest_of(s), from = base_of(most), total = 0;
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                total += power(s.v[k][j] - from);
            }
        }
        return {most, over_group<add>(total)};
    }
    static __device__ __forceinline__ powers combine(powers a, powers b) {
        float most = fmaxf(a.most, b.most);
        float from = base_of(most);
        return {most, a.total * power(a.most - from) + b.total * power(b.most - from)};
    }
    __device__ __forceinline__ float4 words() const {
        return make_float4(most, total, 0, 0);
    }
    static __device__ __forceinline__ powers from(float4 w) {
        return {w.x, w.y};
    }
};

// Count, mean, and the sum of squares around it.
struct moments {
    static constexpr bool LEAST = false;
    float count, mean, squares;
    static __device__ __forceinline__ moments none() {
        return {0, 0, 0};
    }
    static __device__ __forceinline__ moments of(const slab &s) {
        float count = over_group<add>((float)__popc(s.mask)), mean = sum::of(s).value / count;
        float squares = 0;
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            float around = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float apart = s.v[k][j] - mean;
                around += s.has(k, j) ? apart * apart : 0;
            }
            squares += around;
        }
        return {count, mean, over_group<add>(squares)};
    }
    static __device__ __forceinline__ moments combine(moments a, moments b) {
        if (a.count == 0 || b.count == 0) {
            return a.count == 0 ? b : a;
        }
        float count = a.count + b.count, apart = b.mean - a.mean, share = b.count / count;
        return {count, a.mean + apart * share,
                a.squares + b.squares + apart * apart * a.count * share};
    }
    __device__ __forceinline__ float4 words() const {
        return make_float4(count, mean, squares, 0);
    }
    static __device__ __forceinline__ moments from(float4 w) {
        return {w.x, w.y, w.z};
    }
    __device__ __forceinline__ float rstd(float epsilon) const {
        return rsqrtf(squares / count + epsilon);
    }
};

// Of the slabs of this block's split. The whole block calls it.
template <typename Stat, uint32_t TYPE>
__device__ __forceinline__ Stat of_split(const ceni_rows &a, const place<TYPE> &at) {
    Stat stat = Stat::none();
    for (uint64_t i = blockIdx.y; i < at.slabs; i += a.splits) {
        stat = Stat::combine(stat, Stat::of(at.template load<Stat::LEAST>(i)));
    }
    return stat;
}

__device__ __forceinline__ float4 *parts_of(const ceni_rows &a, uint64_t row) {
    return (float4 *)a.work + row * a.splits;
}

template <typename Stat>
__device__ __forceinline__ Stat of_parts(const ceni_rows &a, uint64_t row) {
    Stat stat = Stat::none();
    for (uint32_t i = 0; i < a.splits; i++) {
        stat = Stat::combine(stat, Stat::from(parts_of(a, row)[i]));
    }
    return stat;
}

// Calls body(row), the same number of times in each thread of a block; rows behind the last, too.
template <typename Body> __device__ __forceinline__ void over_rows(uint64_t rows, Body body) {
    for (uint64_t base = (uint64_t)blockIdx.x * blockDim.y; base < rows;
         base += (uint64_t)gridDim.x * blockDim.y) {
        body(base + threadIdx.y);
    }
}

template <typename Stat, uint32_t TYPE, bool FINAL>
__device__ __forceinline__ void reduce(const ceni_rows &a) {
    over_rows(a.rows, [&](uint64_t row) {
        Stat stat = of_split<Stat>(a, place<TYPE>(a, row));
        if (threadIdx.x || row >= a.rows) {
            return;
        }
        if (FINAL && a.splits == 1) {
            give(a.out, a.out_stride, row, stat.words().x);
        } else {
            parts_of(a, row)[blockIdx.y] = stat.words();
        }
    });
}

template <typename Stat> __device__ __forceinline__ void combine(const ceni_rows &a) {
    for (uint64_t row = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; row < a.rows;
         row += (uint64_t)gridDim.x * blockDim.x) {
        give(a.out, a.out_stride, row, of_parts<Stat>(a, row).words().x);
    }
}

// Makes the compiler forget where pieces lie until they are stored; it would keep that in registers.
__device__ __forceinline__ uint32_t recompute(uint32_t shift) {
    asm volatile("" : "+r"(shift));
    return shift;
}

// Stores what value(k, part, v) makes of the k-th pieces of a slab.
template <uint32_t TYPE, typename Value>
__device__ __forceinline__ void store_slab(const ceni_rows &a, uint64_t row,
                                           const place<TYPE> &at, uint64_t index, Value value) {
    uint32_t size = size_of(a.y.dtype), shift = recompute(at.shift);
    uint64_t to = a.y.data + row * a.y.stride * size;
    bool plain = at.plain && a.y.dtype == TYPE && to % (4 * at.SIZE) == 0;
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        float v[4];
        if (plain) {
            uint32_t piece = at.piece(index, k);
            if (piece < at.pieces) {
                part p = {(int64_t)piece * 4, 0, 4};
                value(k, p, v);
                store_whole<4>(to + (uint64_t)piece * (4 * at.SIZE), at.SIZE, pack<4>(v, TYPE));
            }
        } else {
            part p = part_of_slab(index, k, shift, at.cols);
            if (!p.empty()) {
                value(k, p, v);
                store<4>(to, size, p, pack<4>(v, a.y.dtype));
            }
        }
    }
}

template <uint32_t TYPE>
__device__ __forceinline__ void store_softmax(const ceni_rows &a, uint64_t row,
                                              const place<TYPE> &at, uint64_t index,
                                              const slab &s, powers stat) {
    float inverse = 1 / stat.total;
    store_slab<TYPE>(a, row, at, index, [&](int k, const part &, float(&v)[4]) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[j] = power(s.v[k][j] - stat.most) * inverse;
        }
    });
}

// 4 elements of gamma or beta; `without` where there is none.
__device__ __forceinline__ void load_factor(const ceni_operand &o, const part &p, float without,
                                            float (&v)[4]) {
    if (o.data) {
        unpack<4>(load<4, true>(o.data, size_of(o.dtype), p), o.dtype, v);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        v[j] = without;
    }
}

template <uint32_t TYPE>
__device__ __forceinline__ void store_norm(const ceni_rows &a, uint64_t row,
                                           const place<TYPE> &at, uint64_t index, const slab &s,
                                           moments stat) {
    float rstd = stat.rstd(a.epsilon);
    if (!threadIdx.x && !index && row < a.rows) {
        give(a.out, a.out_stride, row, stat.mean);
        give(a.rstd, a.rstd_stride, row, rstd);
    }
    store_slab<TYPE>(a, row, at, index, [&](int k, const part &p, float(&v)[4]) {
        float gamma[4], beta[4];
        load_factor(a.gamma, p, 1, gamma);
        load_factor(a.beta, p, 0, beta);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[j] = (s.v[k][j] - stat.mean) * rstd * gamma[j] + beta[j];
        }
    });
}

struct softmax {
    using stat = powers;
    template <uint32_t TYPE>
    static __device__ __forceinline__ void put(const ceni_rows &a, uint64_t row,
                                               const place<TYPE> &at, uint64_t index,
                                               const slab &s, powers p) {
        store_softmax(a, row, at, index, s, p);
    }
};

struct layer_norm {
    using stat = moments;
    template <uint32_t TYPE>
    static __device__ __forceinline__ void put(const ceni_rows &a, uint64_t row,
                                               const place<TYPE> &at, uint64_t index,
                                               const slab &s, moments m) {
        store_norm(a, row, at, index, s, m);
    }
};

template <typename What, uint32_t TYPE> __device__ __forceinline__ void held(const ceni_rows &a) {
    over_rows(a.rows, [&](uint64_t row) {
        place<TYPE> at(a, row);
        slab s = at.template load<What::stat::LEAST>(0);
        What::put(a, row, at, 0, s, What::stat::of(s));
    });
}

template <typename What, uint32_t TYPE> __device__ __forceinline__ void wide(const ceni_rows &a) {
    over_rows(a.rows, [&](uint64_t row) {
        place<TYPE> at(a, row);
        typename What::stat stat = a.splits == 1 ? of_split<typename What::stat>(a, at)
                                                 : of_parts<typename What::stat>(a, row);
        __syncthreads(); // in place: until all have read what others are about to write
        for (uint64_t i = blockIdx.y; i < at.slabs; i += a.splits) {
            slab s = at.template load<What::stat::LEAST>(i);
            What::put(a, row, at, i, s, stat);
        }
    });
}

} // namespace cen_rows

// A kernel whose body is made for each type of x.
#define BY_TYPE(name, threads, body, ...)                                                          \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                          \
        cen_row_##name(const __grid_constant__ ceni_rows a) {                                      \
        using namespace cen_rows;                                                                  \
        switch (a.x.dtype) {                                                                       \
        case CEN_FP32:                                                                             \
            body<__VA_ARGS__(CEN_FP32)>(a);                                                        \
            break;                                                                                 \
        case CEN_FP16:                                                                             \
            body<__VA_ARGS__(CEN_FP16)>(a);                                                        \
            break;                                                                                 \
        default:                                                                                   \
            body<__VA_ARGS__(CEN_BF16)>(a);                                                        \
        }                                                                                          \
    }
#define OF_SUM(type)     sum, type, true
#define OF_ABSMAX(type)  absmax, type, true
#define OF_POWERS(type)  powers, type, false
#define OF_MOMENTS(type) moments, type, false
#define OF_SOFTMAX(type) softmax, type
#define OF_NORM(type)    layer_norm, type
BY_TYPE(sum, 256, reduce, OF_SUM)
BY_TYPE(absmax, 256, reduce, OF_ABSMAX)
BY_TYPE(softmax_part, 512, reduce, OF_POWERS)
BY_TYPE(moments_part, 512, reduce, OF_MOMENTS)
BY_TYPE(softmax_wide, 512, wide, OF_SOFTMAX)
BY_TYPE(layer_norm_wide, 512, wide, OF_NORM)
// One kernel for each type, so that each has the registers that it needs and two blocks have room.
#define HELD(name, what, type, dtype)                                                              \
    extern "C" __global__ void __launch_bounds__(512, 2)                                           \
        cen_row_##name##_##type(const __grid_constant__ ceni_rows a) {                             \
        cen_rows::held<cen_rows::what, CEN_##dtype>(a);                                            \
    }
HELD(softmax, softmax, fp32, FP32)
HELD(softmax, softmax, fp16, FP16)
HELD(softmax, softmax, bf16, BF16)
HELD(layer_norm, layer_norm, fp32, FP32)
HELD(layer_norm, layer_norm, fp16, FP16)
HELD(layer_norm, layer_norm, bf16, BF16)
#undef HELD
#undef OF_SUM
#undef OF_ABSMAX
#undef OF_POWERS
#undef OF_MOMENTS
#undef OF_SOFTMAX
#undef OF_NORM
#undef BY_TYPE

extern "C" __global__ void cen_row_combine_sum(const __grid_constant__ ceni_rows a) {
    cen_rows::combine<cen_rows::sum>(a);
}

extern "C" __global__ void cen_row_combine_absmax(const __grid_constant__ ceni_rows a) {
    cen_rows::combine<cen_rows::absmax>(a);
}
