// What the codec's kernels do with eight neighbours of a row: load and store them, make and find
// their scales, code and decode them (codec_codes.cuh). What is asked of the job is asked once for
// the eight. All arithmetic is by intrinsics that round once and are never contracted, so that the
// bytes are those of the host twins.
#pragma once

#include <stdint.h>

#include "base/fp8.h"
#include "cenote/dtype.h"
#include "kernels/codec.h"

namespace codec {

constexpr int EIGHT = 8, WARP = 32;
constexpr uint32_t MAGNITUDE = 0x7FFFFFFFu, INFINITE = 0x7F800000u;
constexpr uint32_t ROUNDER_BITS = 0x4B400000u; // 1.5 * 2^23, whose last bit is 1
constexpr unsigned ALL = 0xFFFFFFFFu;

// Octets that a thread has at once.
template <bool WIDE> __device__ constexpr int batch() {
    return WIDE ? CENI_CODEC_BATCH_WIDE : CENI_CODEC_BATCH;
}

__device__ bool has(const ceni_codec_job &job, uint32_t flag) {
    return job.flags & flag;
}

__device__ uint64_t over(uint64_t count, uint64_t by) {
    return (count + by - 1) / by;
}

// ---- elements ----

__device__ float of_f16(uint16_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

__device__ float of_bf16(uint16_t half) {
    return __uint_as_float((uint32_t)half << 16);
}

__device__ float of_half(uint32_t dtype, uint16_t half) {
    return dtype == CEN_FP16 ? of_f16(half) : of_bf16(half);
}

// Two at a time, the first in the low half.
__device__ uint32_t to_f16(float low, float high) {
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ uint32_t to_bf16(float low, float high) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ uint64_t element_bytes(uint32_t dtype) {
    return dtype == CEN_FP32 ? 4 : 2;
}

__device__ uint64_t place(const ceni_codec_job &job, uint64_t row, uint64_t col) {
    return job.matrix + (row * job.stride + col) * element_bytes(job.dtype);
}

// Eight elements as they lie: FP32 if WIDE, else of 16 bits.
template <bool WIDE> struct raw { uint32_t w[WIDE ? 8 : 4]; };

// At a multiple of 16.
template <bool WIDE> __device__ void fetch_whole(uint64_t at, raw<WIDE> &to) {
#pragma unroll
    for (int k = 0; k < (WIDE ? 2 : 1); k++) {
        uint4 v = __ldg((const uint4 *)at + k);
        to.w[4 * k] = v.x, to.w[4 * k + 1] = v.y, to.w[4 * k + 2] = v.z, to.w[4 * k + 3] = v.w;
    }
}

// The first n; 0 for the others.
template <bool WIDE> __device__ void fetch(uint64_t at, int n, raw<WIDE> &to) {
    if (n == EIGHT && at % 16 == 0) {
        fetch_whole<WIDE>(at, to);
        return;
    }
#pragma unroll
    for (int k = 0; k < (WIDE ? 8 : 4); k++) {
        if (WIDE) {
            to.w[k] = k < n ? ((const uint32_t *)at)[k] : 0;
        } else {
            uint32_t low = 2 * k < n ? ((const uint16_t *)at)[2 * k] : 0;
            uint32_t high = 2 * k + 1 < n ? ((const uint16_t *)at)[2 * k + 1] : 0;
            to.w[k] = low | high << 16;
        }
    }
}

template <bool WIDE>
__device__ void expand(const ceni_codec_job &job, const raw<WIDE> &from, float x[EIGHT]) {
    if (WIDE) {
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            x[k] = __uint_as_float(from.w[WIDE ? k : k / 2]);
        }
    } else if (job.dtype == CEN_FP16) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            x[2 * k] = of_f16((uint16_t)from.w[k]);
            x[2 * k + 1] = of_f16((uint16_t)(from.w[k] >> 16));
        }
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            x[2 * k] = __uint_as_float(from.w[k] << 16);
            x[2 * k + 1] = __uint_as_float(from.w[k] & 0xFFFF0000u);
        }
    }
}

// Of eight and what was the largest of others before, as bits that lie as in a raw.
template <bool WIDE> __device__ uint32_t larger(uint32_t most, const raw<WIDE> &v) {
#pragma unroll
    for (int k = 0; k < (WIDE ? 8 : 4); k++) {
        most = WIDE ? max(most, v.w[k] & MAGNITUDE) : __vmaxu2(most, v.w[k] & 0x7FFF7FFFu);
    }
    return most;
}

// The same as a float; an infinity or NaN if there is one among them.
template <bool WIDE> __device__ float largest(const ceni_codec_job &job, uint32_t most) {
    return WIDE ? __uint_as_float(most)
                : of_half(job.dtype, (uint16_t)max(most & 0xFFFFu, most >> 16));
}

__device__ bool is_finite(float x) {
    return (__float_as_uint(x) & MAGNITUDE) < INFINITE;
}

// Eight of any type, for what is not hurried.
__device__ void load8(const ceni_codec_job &job, uint64_t at, int n, float x[EIGHT]) {
    if (job.dtype == CEN_FP32) {
        raw<true> v;
        fetch<true>(at, n, v);
        expand<true>(job, v, x);
    } else {
        raw<false> v;
        fetch<false>(at, n, v);
        expand<false>(job, v, x);
    }
}

__device__ float one_nan(float y) {
    return (__float_as_uint(y) & MAGNITUDE) > INFINITE ? __uint_as_float(MAGNITUDE) : y;
}

// `count` of eight 16-bit words, two in each of w, whose address is a multiple of 2.
__device__ void store_words(uint64_t at, int count, const uint32_t w[4]) {
    if (count == EIGHT && at % 16 == 0) {
        *(uint4 *)at = make_uint4(w[0], w[1], w[2], w[3]);
        return;
    }
    if (count == 4 && at % 8 == 0) {
        *(uint2 *)at = make_uint2(w[0], w[1]);
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        if (k < count) {
            ((uint16_t *)at)[k] = (uint16_t)(w[k / 2] >> k % 2 * 16);
        }
    }
}

__device__ void store8(const ceni_codec_job &job, uint64_t at, int n, const float y[EIGHT]) {
    if (job.dtype == CEN_FP32) {
        if (n == EIGHT && at % 16 == 0) {
            ((float4 *)at)[0] =
                make_float4(one_nan(y[0]), one_nan(y[1]), one_nan(y[2]), one_nan(y[3]));
            ((float4 *)at)[1] =
                make_float4(one_nan(y[4]), one_nan(y[5]), one_nan(y[6]), one_nan(y[7]));
            return;
        }
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            if (k < n) {
                ((float *)at)[k] = one_nan(y[k]);
            }
        }
        return;
    }
    uint32_t w[4];
    if (job.dtype == CEN_FP16) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            w[k] = to_f16(y[2 * k], y[2 * k + 1]);
        }
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            w[k] = to_bf16(y[2 * k], y[2 * k + 1]);
        }
    }
    store_words(at, n, w);
}

// ---- scales ----

struct range {
    float lo, hi; // symmetric: hi is the largest size
};

// By the finite ones of eight.
__device__ void widen(const ceni_codec_job &job, const float x[EIGHT], range &r) {
    float lo = 0, hi = 0;
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        float v = is_finite(x[k]) ? x[k] : 0.0f;
        lo = fminf(lo, v);
        hi = fmaxf(hi, v);
    }
    bool both = has(job, CENI_CODEC_ASYMMETRIC);
    r.lo = both ? fminf(r.lo, lo) : 0.0f;
    r.hi = fmaxf(r.hi, both ? hi : fmaxf(hi, -lo));
}

// By so many octets; without zero points, and if all are finite, by their bits.
template <bool WIDE, int COUNT>
__device__ void widen(const ceni_codec_job &job, const raw<WIDE> v[COUNT], range &r) {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        most = larger<WIDE>(most, v[i]);
    }
    float top = largest<WIDE>(job, most);
    if (is_finite(top) && !has(job, CENI_CODEC_ASYMMETRIC)) {
        r.hi = fmaxf(r.hi, top);
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        float x[EIGHT];
        expand<WIDE>(job, v[i], x);
        widen(job, x, r);
    }
}

__device__ range wider(range a, range b) {
    return {b.lo < a.lo ? b.lo : a.lo, b.hi > a.hi ? b.hi : a.hi};
}

// Over `width` neighbouring lanes, a power of two. By whole warps.
__device__ range over_lanes(const ceni_codec_job &job, range r, int width) {
    bool both = has(job, CENI_CODEC_ASYMMETRIC);
    if (!both && width == WARP) { // of what is not negative, the bits are ordered as it is
        return {0.0f, __uint_as_float(__reduce_max_sync(ALL, __float_as_uint(r.hi)))};
    }
    for (int step = width / 2; step; step /= 2) {
        range other = {both ? __shfl_xor_sync(ALL, r.lo, step) : 0.0f,
                       __shfl_xor_sync(ALL, r.hi, step)};
        r = wider(r, other);
    }
    return r;
}

// Over the block; every thread gets it. Blocks have whole warps.
__device__ range over_block(const ceni_codec_job &job, range r) {
    __shared__ range warps[32];
    r = over_lanes(job, r, WARP);
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        warps[threadIdx.x / WARP] = r;
    }
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / WARP; w++) {
        r = wider(r, warps[w]);
    }
    return r;
}

// Of eight neighbours that share it.
struct scale {
    float s, r;
    int z;

    __device__ scale at(int) const {
        return *this;
    }
    // No product with it is beyond a float, save for infinities.
    __device__ bool tame() const {
        return s >= 0x1p-126f && s <= 0x1p110f;
    }
};

// Of eight neighbours, each of its own.
struct scales8 {
    scale of[EIGHT];

    __device__ scale at(int k) const {
        return of[k];
    }
    __device__ bool tame() const {
        return false;
    }
};

__device__ scale scale_of(const ceni_codec_job &job, range e) {
    scale made = {1.0f, 1.0f, 0};
    if (has(job, CENI_CODEC_ASYMMETRIC)) {
        made.s = __fsub_rn(__fdiv_rn(e.hi, job.divisor), __fdiv_rn(e.lo, job.divisor));
    } else {
        made.s = __fdiv_rn(e.hi, job.divisor);
    }
    made.s = made.s < 0x1p-126f ? 0x1p-126f : made.s;
    made.r = __frcp_rn(made.s);
    if (has(job, CENI_CODEC_ASYMMETRIC)) {
        made.z = job.low - __float2int_rn(__fmul_rn(e.lo, made.r));
    }
    return made;
}

__device__ void write_scale(const ceni_codec_job &job, uint64_t unit, scale made) {
    ((float *)job.scales)[unit] = made.s;
    if (has(job, CENI_CODEC_ASYMMETRIC)) {
        ((int8_t *)job.zeros)[unit] = (int8_t)made.z;
    }
}

__device__ scale read_scale(const ceni_codec_job &job, uint64_t unit) {
    scale got = {((const float *)job.scales)[unit], 0, 0};
    got.r = __frcp_rn(got.s);
    got.z = has(job, CENI_CODEC_ASYMMETRIC) ? ((const int8_t *)job.zeros)[unit] : 0;
    return got;
}

// Where an octet's elements have more than one unit.
__device__ bool each_its_own(const ceni_codec_job &job) {
    return has(job, CENI_CODEC_SCALED) && job.unit_cols < job.cols && job.unit_cols % EIGHT;
}

__device__ scale find_scale(const ceni_codec_job &job, uint64_t row, uint64_t col) {
    if (!has(job, CENI_CODEC_SCALED)) {
        return {1.0f, 1.0f, 0};
    }
    uint64_t down = job.unit_rows >= job.rows ? 0 : job.unit_rows == 1 ? row : row / job.unit_rows;
    uint64_t across = job.unit_cols >= job.cols ? 0 : col / job.unit_cols;
    return read_scale(job, down * job.units_across + across);
}

__device__ void find_scales(const ceni_codec_job &job, uint64_t row, uint64_t col, int n,
                            scales8 &all) {
    uint32_t width = (uint32_t)job.unit_cols, left = width - (uint32_t)(col % width);
    uint64_t down = job.unit_rows >= job.rows ? 0 : row / job.unit_rows;
    uint64_t unit = down * job.units_across + col / width;
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        all.of[k] = {1.0f, 1.0f, 0};
        if (k < n) {
            all.of[k] = read_scale(job, unit);
        }
        left--;
        unit += !left;
        left = left ? left : width;
    }
}

// The unit's, but for places behind the row's end.
__device__ void spread_scale(scale one, int n, scales8 &all) {
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        all.of[k] = k < n ? one : scale{1.0f, 1.0f, 0};
    }
}

} // namespace codec
