// Pieces of a row: V elements of up to 16 bytes, read and written at once where they are aligned and
// all there, else element by element; and their values as FP32, by the device's own conversions.
// A type that is known when compiled costs no branch.
#ifndef CENI_KERNELS_CONVERT_CUH
#define CENI_KERNELS_CONVERT_CUH

#include <stdint.h>

#include "cenote/dtype.h"
#include "kernels/vector.cuh"

namespace cen_convert {

struct raw {
    uint32_t w[4];
};

// Of a piece's elements those in [first, last) are the row's.
struct part {
    int64_t start;
    int first, last;
    __device__ __forceinline__ bool empty() const {
        return first >= last;
    }
};

template <int V>
__device__ __forceinline__ part part_of(uint64_t piece, uint32_t shift, uint64_t cols) {
    part p;
    p.start = (int64_t)(piece * V) - shift;
    p.first = p.start < 0 ? (int)-p.start : 0;
    int64_t left = (int64_t)cols - p.start;
    p.last = left < V ? (int)left : V;
    return p;
}

__device__ __forceinline__ uint32_t size_of(uint32_t dtype) {
    return dtype == CEN_FP32 ? 4 : 2;
}

// Elements by which a row is shifted so that pieces begin at multiples of V elements in memory.
template <int V> __device__ __forceinline__ uint32_t shift_of(uint64_t row, uint32_t size) {
    return (uint32_t)(row / size % V);
}

// A piece that is aligned and all there.
template <int V> __device__ __forceinline__ raw load_whole(uint64_t at, uint32_t size) {
    if (V * size == 16) {
        uint4 q = cen_vector::load_16(at);
        return {{q.x, q.y, q.z, q.w}};
    }
    uint2 q = cen_vector::load_8(at);
    return {{q.x, q.y, 0, 0}};
}

template <int V>
__device__ __forceinline__ void store_whole(uint64_t at, uint32_t size, const raw &r) {
    if (V * size == 16) {
        cen_vector::store_16(at, make_uint4(r.w[0], r.w[1], r.w[2], r.w[3]));
    } else {
        cen_vector::store_8(at, make_uint2(r.w[0], r.w[1]));
    }
}

// What is not there is 0. ANCHORED: pieces begin where this row's memory is aligned, so that only those
// at its ends are read element by element, in a loop that is small but waits for each.
template <int V, bool ANCHORED = false>
__device__ __forceinline__ raw load(uint64_t row, uint32_t size, const part &p) {
    raw r = {{0, 0, 0, 0}};
    uint64_t at = row + (uint64_t)p.start * size;
    if (p.first == 0 && p.last == V && at % (V * size) == 0) {
        return load_whole<V>(at, size);
    }
    if constexpr (ANCHORED) {
#pragma unroll 1
        for (int k = V - 1; k >= 0; k--) { // each comes in at w[0], and pushes the others up
            bool there = k >= p.first && k < p.last;
            if (V == 4 && size == 4) {
                r.w[3] = r.w[2], r.w[2] = r.w[1], r.w[1] = r.w[0];
                r.w[0] = there ? ((const uint32_t *)at)[k] : 0;
            } else {
                r.w[3] = __funnelshift_l(r.w[2], r.w[3], 16);
                r.w[2] = __funnelshift_l(r.w[1], r.w[2], 16);
                r.w[1] = __funnelshift_l(r.w[0], r.w[1], 16);
                r.w[0] = r.w[0] << 16 | (there ? ((const uint16_t *)at)[k] : 0);
            }
        }
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) {
            if (k >= p.first && k < p.last) {
                if (V == 4 && size == 4) {
                    r.w[k & 3] = ((const uint32_t *)at)[k];
                } else {
                    r.w[k / 2] |= (uint32_t)((const uint16_t *)at)[k] << k % 2 * 16;
                }
            }
        }
    }
    return r;
}

template <int V>
__device__ __forceinline__ void store(uint64_t row, uint32_t size, const part &p, raw r) {
    uint64_t at = row + (uint64_t)p.start * size;
    if (p.first == 0 && p.last == V && at % (V * size) == 0) {
        store_whole<V>(at, size, r);
        return;
    }
    // Not unrolled: it is rare, and stores are not waited for. The next element comes down to w[0].
#pragma unroll 1
    for (int k = 0; k < p.last; k++) {
        if (V == 4 && size == 4) {
            if (k >= p.first) {
                ((uint32_t *)at)[k] = r.w[0];
            }
            r.w[0] = r.w[1], r.w[1] = r.w[2], r.w[2] = r.w[3];
        } else {
            if (k >= p.first) {
                ((uint16_t *)at)[k] = (uint16_t)r.w[0];
            }
            r.w[0] = __funnelshift_r(r.w[0], r.w[1], 16);
            r.w[1] = __funnelshift_r(r.w[1], r.w[2], 16);
            r.w[2] = __funnelshift_r(r.w[2], r.w[3], 16);
            r.w[3] >>= 16;
        }
    }
}

__device__ __forceinline__ float float_of_f16(uint32_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((uint16_t)half));
    return value;
}

template <int V>
__device__ __forceinline__ void unpack(const raw &r, uint32_t dtype, float (&v)[V]) {
    if (V == 4 && dtype == CEN_FP32) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            v[k] = __uint_as_float(r.w[k & 3]);
        }
    } else if (dtype == CEN_FP16) {
#pragma unroll
        for (int k = 0; k < V; k += 2) {
            v[k] = float_of_f16(r.w[k / 2] & 0xFFFFu);
            v[k + 1] = float_of_f16(r.w[k / 2] >> 16);
        }
    } else {
#pragma unroll
        for (int k = 0; k < V; k += 2) {
            v[k] = __uint_as_float(r.w[k / 2] << 16);
            v[k + 1] = __uint_as_float(r.w[k / 2] & 0xFFFF0000u);
        }
    }
}

template <int V>
__device__ __forceinline__ raw pack(const float (&v)[V], uint32_t dtype) {
    raw r = {{0, 0, 0, 0}};
    if (V == 4 && dtype == CEN_FP32) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            r.w[k & 3] = __float_as_uint(v[k]);
        }
    } else if (dtype == CEN_FP16) {
#pragma unroll
        for (int k = 0; k < V; k += 2) { // the first operand becomes the upper half
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r.w[k / 2]) : "f"(v[k + 1]), "f"(v[k]));
        }
    } else {
#pragma unroll
        for (int k = 0; k < V; k += 2) {
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r.w[k / 2]) : "f"(v[k + 1]), "f"(v[k]));
        }
    }
    return r;
}

} // namespace cen_convert

#endif
