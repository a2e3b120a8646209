// What the codec's kernels do with eight neighbours of a row: load and store them, make and find their
// scales, code and decode them. All arithmetic is by intrinsics that round once and are never
// contracted, so that the bytes are those of the host twins.
#pragma once

#include <stdint.h>

#include "base/fp8.h"
#include "cenote/dtype.h"
#include "kernels/codec.h"

namespace codec {

constexpr int EIGHT = 8, STRETCH = 4;
constexpr uint32_t MAGNITUDE = 0x7FFFFFFFu, INFINITE = 0x7F800000u;
constexpr unsigned ALL = 0xFFFFFFFFu;

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

__device__ uint16_t to_f16(float value) {
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ float of_bf16(uint16_t half) {
    return __uint_as_float((uint32_t)half << 16);
}

__device__ uint16_t to_bf16(float value) {
    uint16_t half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ float of_half(uint32_t dtype, uint16_t half) {
    return dtype == CEN_FP16 ? of_f16(half) : of_bf16(half);
}

__device__ uint64_t element_bytes(uint32_t dtype) {
    return dtype == CEN_FP32 ? 4 : 2;
}

__device__ uint64_t place(const ceni_codec_job &job, uint64_t row, uint64_t col) {
    return job.matrix + (row * job.stride + col) * element_bytes(job.dtype);
}

// Eight elements that are quads of 16 bytes, one of them or of FP32 two.
template <bool WIDE>
__device__ void split8(uint32_t dtype, const uint4 *quads, float x[EIGHT]) {
#pragma unroll
    for (int q = 0; q < (WIDE ? 2 : 1); q++) {
        uint4 v = quads[q];
        uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (WIDE) {
                x[4 * q + k] = __uint_as_float(words[k]);
            } else {
                x[2 * k] = of_half(dtype, (uint16_t)words[k]);
                x[2 * k + 1] = of_half(dtype, (uint16_t)(words[k] >> 16));
            }
        }
    }
}

// The first n of eight elements; 0 for the others.
__device__ void load8(const ceni_codec_job &job, uint64_t at, int n, float x[EIGHT]) {
    bool whole = n == EIGHT && at % 16 == 0;
    if (job.dtype == CEN_FP32) {
        const float *from = (const float *)at;
        if (whole) {
            split8<true>(job.dtype, (const uint4 *)at, x);
            return;
        }
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            x[k] = k < n ? from[k] : 0.0f;
        }
        return;
    }
    const uint16_t *from = (const uint16_t *)at;
    if (whole) {
        split8<false>(job.dtype, (const uint4 *)at, x);
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        x[k] = k < n ? of_half(job.dtype, from[k]) : 0.0f;
    }
}

__device__ float one_nan(float y) {
    return (__float_as_uint(y) & MAGNITUDE) > INFINITE ? __uint_as_float(MAGNITUDE) : y;
}

__device__ uint32_t two(uint16_t low, uint16_t high) {
    return low | (uint32_t)high << 16;
}

// `count` of eight 16-bit words, whose address is a multiple of 2.
__device__ void store_words(uint64_t at, int count, const uint16_t w[EIGHT]) {
    if (count == EIGHT && at % 16 == 0) {
        *(uint4 *)at =
            make_uint4(two(w[0], w[1]), two(w[2], w[3]), two(w[4], w[5]), two(w[6], w[7]));
        return;
    }
    if (count == 4 && at % 8 == 0) {
        *(uint2 *)at = make_uint2(two(w[0], w[1]), two(w[2], w[3]));
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        if (k < count) {
            ((uint16_t *)at)[k] = w[k];
        }
    }
}

// Eight elements to an address that is a multiple of 16.
template <bool WIDE> __device__ void join8(uint32_t dtype, uint64_t at, const float y[EIGHT]) {
    if constexpr (WIDE) {
        ((float4 *)at)[0] = make_float4(one_nan(y[0]), one_nan(y[1]), one_nan(y[2]), one_nan(y[3]));
        ((float4 *)at)[1] = make_float4(one_nan(y[4]), one_nan(y[5]), one_nan(y[6]), one_nan(y[7]));
    } else {
        uint16_t w[EIGHT];
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            w[k] = dtype == CEN_FP16 ? to_f16(y[k]) : to_bf16(y[k]);
        }
        *(uint4 *)at =
            make_uint4(two(w[0], w[1]), two(w[2], w[3]), two(w[4], w[5]), two(w[6], w[7]));
    }
}

__device__ void store8(const ceni_codec_job &job, uint64_t at, int n, const float y[EIGHT]) {
    bool whole = n == EIGHT && at % 16 == 0;
    if (job.dtype == CEN_FP32) {
        if (whole) {
            join8<true>(job.dtype, at, y);
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
    if (whole) {
        join8<false>(job.dtype, at, y);
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        if (k < n) {
            ((uint16_t *)at)[k] = job.dtype == CEN_FP16 ? to_f16(y[k]) : to_bf16(y[k]);
        }
    }
}

// ---- scales ----

struct range {
    float lo, hi; // symmetric: hi is the largest size
};

__device__ void widen(const ceni_codec_job &job, const float x[EIGHT], range &r) {
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        uint32_t bits = __float_as_uint(x[k]), size = bits & MAGNITUDE;
        bool finite = size < INFINITE;
        if (has(job, CENI_CODEC_ASYMMETRIC)) {
            float v = finite ? x[k] : 0.0f;
            r.lo = v < r.lo ? v : r.lo;
            r.hi = v > r.hi ? v : r.hi;
        } else {
            float v = finite ? __uint_as_float(size) : 0.0f;
            r.hi = v > r.hi ? v : r.hi;
        }
    }
}

__device__ range wider(range a, range b) {
    return {b.lo < a.lo ? b.lo : a.lo, b.hi > a.hi ? b.hi : a.hi};
}

// Over `width` neighbouring lanes, a power of two.
__device__ range over_lanes(range r, int width) {
    for (int step = width / 2; step; step /= 2) {
        range other = {__shfl_xor_sync(ALL, r.lo, step), __shfl_xor_sync(ALL, r.hi, step)};
        r = wider(r, other);
    }
    return r;
}

// Over the block; every thread gets it. Blocks have whole warps.
__device__ range over_block(range r) {
    __shared__ range warps[32];
    r = over_lanes(r, 32);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = r;
    }
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / 32; w++) {
        r = wider(r, warps[w]);
    }
    return r;
}

struct scale {
    float s, r;
    int z;
};

__device__ scale scale_of(const ceni_codec_job &job, range e) {
    scale made = {1.0f, 1.0f, 0};
    if (has(job, CENI_CODEC_ASYMMETRIC)) {
        made.s = __fsub_rn(__fdiv_rn(e.hi, job.divisor), __fdiv_rn(e.lo, job.divisor));
    } else {
        made.s = __fdiv_rn(e.hi, job.divisor);
    }
    made.s = made.s < 0x1p-126f ? 0x1p-126f : made.s;
    made.r = __fdiv_rn(1.0f, made.s);
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
    got.r = __fdiv_rn(1.0f, got.s);
    got.z = has(job, CENI_CODEC_ASYMMETRIC) ? ((const int8_t *)job.zeros)[unit] : 0;
    return got;
}

// Scales of eight neighbours: of one unit, or each of its own.
struct scales8 {
    float s[EIGHT], r[EIGHT];
    int z[EIGHT];
};

__device__ void same_scales(scale one, int n, scales8 &all) {
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        all.s[k] = k < n ? one.s : 1.0f;
        all.r[k] = k < n ? one.r : 1.0f;
        all.z[k] = k < n ? one.z : 0;
    }
}

__device__ void find_scales(const ceni_codec_job &job, uint64_t row, uint64_t col, int n,
                            scales8 &all) {
    if (!has(job, CENI_CODEC_SCALED)) {
        same_scales({1.0f, 1.0f, 0}, 0, all);
        return;
    }
    uint64_t first = row / job.unit_rows * job.units_across;
    if (job.unit_cols >= job.cols || job.unit_cols % EIGHT == 0) {
        same_scales(read_scale(job, first + col / job.unit_cols), n, all);
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        scale one = {1.0f, 1.0f, 0};
        if (k < n) {
            one = read_scale(job, first + (col + k) / job.unit_cols);
        }
        all.s[k] = one.s;
        all.r[k] = one.r;
        all.z[k] = one.z;
    }
}

// ---- codes ----

__device__ uint16_t cut_half(uint16_t code, uint16_t infinite, bool saturate) {
    return saturate && (code & 0x7FFF) == infinite ? code - 1 : code;
}

// NaN becomes 0. Cut before z is added, which then cannot overflow.
__device__ int with_zero(float t, int z) {
    int q = __float2int_rn(t);
    return (q > 1024 ? 1024 : q < -1024 ? -1024 : q) + z;
}

// Whether a code is cut to the end of a range that was given, with zero points.
__device__ bool cut_by_zero(const ceni_codec_job &job, float x, float r, int z) {
    if (!has(job, CENI_CODEC_GIVEN_SCALES) || !has(job, CENI_CODEC_ASYMMETRIC)) {
        return false;
    }
    int q = with_zero(__fmul_rn(x, r), z);
    return q > job.high || q < job.low;
}

__device__ uint16_t code_of(const ceni_codec_job &job, float x, float r, int z) {
    bool saturate = has(job, CENI_CODEC_SATURATING);
    float t = __fmul_rn(x, r);
    switch (job.kind) {
    case CENI_CODEC_FP16: return cut_half(to_f16(x), 0x7C00, saturate);
    case CENI_CODEC_BF16: return cut_half(to_bf16(x), 0x7F80, saturate);
    case CENI_CODEC_E4M3: return ceni_e4m3_of_float(t, saturate);
    case CENI_CODEC_E5M2: return ceni_e5m2_of_float(t, saturate);
    default: break;
    }
    int q = with_zero(t, z);
    return (uint16_t)(q > job.high ? job.high : q < job.low ? job.low : q);
}

__device__ float back(float value, float s) {
    float y = __fmul_rn(value, s);
    y = y > 0x1.FFFFFEp127f ? 0x1.FFFFFEp127f : y;
    return y < -0x1.FFFFFEp127f ? -0x1.FFFFFEp127f : y;
}

// Before it is multiplied by a scale.
__device__ float unscaled_of(const ceni_codec_job &job, uint16_t code, int z) {
    switch (job.kind) {
    case CENI_CODEC_FP16: return of_f16(code);
    case CENI_CODEC_BF16: return of_bf16(code);
    case CENI_CODEC_E4M3: return ceni_float_of_e4m3((uint8_t)code);
    case CENI_CODEC_E5M2: return ceni_float_of_e5m2((uint8_t)code);
    default: return (float)((int8_t)code - z);
    }
}

__device__ float value_of(const ceni_codec_job &job, uint16_t code, float s, int z) {
    float v = unscaled_of(job, code, z);
    bool plain = job.kind <= CENI_CODEC_BF16 || (job.kind == CENI_CODEC_E5M2 && (code & 0x7F) == 0x7C);
    return plain ? v : back(v, s);
}

__device__ uint32_t bits_of(const ceni_codec_job &job) {
    return job.kind <= CENI_CODEC_BF16 ? 16 : job.kind == CENI_CODEC_INT4 ? 4 : 8;
}

// Where the values of (row, col) on are; col is a multiple of 8.
__device__ uint64_t values_at(const ceni_codec_job &job, uint64_t row, uint64_t col) {
    uint64_t at = has(job, CENI_CODEC_SPARSE) ? col / 2 : col;
    return job.values + row * job.pitch + at * bits_of(job) / 8;
}

// `count` of eight bytes.
__device__ void store_bytes(uint64_t at, int count, uint64_t bytes) {
    if (count == 8 && at % 8 == 0) {
        *(uint64_t *)at = bytes;
    } else if (count == 4 && at % 4 == 0) {
        *(uint32_t *)at = (uint32_t)bytes;
    } else {
        for (int k = 0; k < count; k++) {
            ((uint8_t *)at)[k] = (uint8_t)(bytes >> 8 * k);
        }
    }
}

__device__ uint64_t load_bytes(uint64_t at, int count) {
    if (count == 8 && at % 8 == 0) {
        return *(const uint64_t *)at;
    }
    if (count == 4 && at % 4 == 0) {
        return *(const uint32_t *)at;
    }
    uint64_t bytes = 0;
    for (int k = 0; k < count; k++) {
        bytes |= (uint64_t)((const uint8_t *)at)[k] << 8 * k;
    }
    return bytes;
}

// The bytes of `count` codes of 4 or 8 bits.
__device__ uint64_t join_codes(const ceni_codec_job &job, int count, const uint16_t q[EIGHT]) {
    uint64_t bytes = 0;
    bool four = job.kind == CENI_CODEC_INT4;
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        uint64_t code = k < count ? q[k] & (four ? 0xFu : 0xFFu) : 0;
        bytes |= code << (four ? 4 * k : 8 * k);
    }
    return bytes;
}

__device__ void store_codes(const ceni_codec_job &job, uint64_t at, int count,
                            const uint16_t q[EIGHT]) {
    if (bits_of(job) == 16) {
        store_words(at, count, q);
        return;
    }
    bool four = job.kind == CENI_CODEC_INT4;
    store_bytes(at, four ? (count + 1) / 2 : count, join_codes(job, count, q));
}

// Of eight codes that lie in words.
__device__ void split_codes(const ceni_codec_job &job, const uint32_t words[4], uint16_t q[EIGHT]) {
    uint32_t bits = bits_of(job);
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        if (bits == 16) {
            q[k] = (uint16_t)(words[k / 2] >> k % 2 * 16);
        } else if (bits == 8) {
            q[k] = (uint16_t)(words[k / 4] >> k % 4 * 8 & 0xFFu);
        } else {
            uint32_t code = words[0] >> 4 * k & 0xFu;
            q[k] = (uint16_t)(code & 8 ? code | 0xF0u : code);
        }
    }
}

__device__ void load_codes(const ceni_codec_job &job, uint64_t at, int count, uint16_t q[EIGHT]) {
    uint64_t low, high = 0;
    if (bits_of(job) < 16) {
        low = load_bytes(at, job.kind == CENI_CODEC_INT4 ? (count + 1) / 2 : count);
    } else if (count == EIGHT && at % 16 == 0) {
        ulonglong2 v = *(const ulonglong2 *)at;
        low = v.x, high = v.y;
    } else {
        low = load_bytes(at, count < 4 ? 2 * count : 8);
        high = load_bytes(at + 8, count < 4 ? 0 : 2 * count - 8);
    }
    uint32_t words[4] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                         (uint32_t)(high >> 32)};
    split_codes(job, words, q);
}

// ---- 2:4 ----

// The pair kept of four, as in codec_loops_body.h.
__device__ uint32_t pair_of(const float *v) {
    uint32_t a = __float_as_uint(v[0]) & MAGNITUDE, b = __float_as_uint(v[1]) & MAGNITUDE;
    uint32_t c = __float_as_uint(v[2]) & MAGNITUDE, d = __float_as_uint(v[3]) & MAGNITUDE;
    int ab = a < b, ac = a < c, ad = a < d, bc = b < c, bd = b < d, cd = c < d;
    uint32_t mask = (ab + ac + ad < 2 && a) | (!ab + bc + bd < 2 && b) << 1 |
                    (!ac + !bc + cd < 2 && c) << 2 | (!ad + !bd + !cd < 2 && d) << 3;
    return (uint32_t)(0x000E0DCE098E4DCEull >> 4 * mask) & 15;
}

// One of four, without indexing registers by what is only known when it runs.
template <typename T> __device__ T pick(const T *v, uint32_t index) {
    T low = index & 1 ? v[1] : v[0], high = index & 1 ? v[3] : v[2];
    return index & 2 ? high : low;
}

__device__ uint64_t metadata_at(const ceni_codec_job &job, uint64_t row, uint64_t col) {
    return job.metadata + row * job.metadata_pitch + col / 8;
}

} // namespace codec
