// An octet's codes: made of elements and their scales, read back, stored and loaded.
#pragma once

#include "kernels/codec_device.cuh"

namespace codec {

// ---- codes: of eight neighbours (or four) in words, the first in the lowest bits ----

__device__ uint32_t bits_of(const ceni_codec_job &job) {
    return job.kind <= CENI_CODEC_BF16 ? 16 : job.kind == CENI_CODEC_INT4 ? 4 : 8;
}

__device__ uint32_t cut_half(uint32_t code, uint32_t infinite) {
    return (code & 0x7FFF) == infinite ? code - 1 : code;
}

__device__ uint32_t cut_halves(uint32_t both, uint32_t infinite) {
    return cut_half(both & 0xFFFFu, infinite) | cut_half(both >> 16, infinite) << 16;
}

// NaN becomes 0. Cut before z is added, which then cannot overflow.
__device__ int with_zero(float t, int z) {
    int q = __float2int_rn(t);
    return (q > 1024 ? 1024 : q < -1024 ? -1024 : q) + z;
}

__device__ int cut(const ceni_codec_job &job, int q) {
    return min(max(q, job.low), job.high);
}

// Two FP8 codes, saturating. The instruction is there from sm_89 on.
__device__ uint32_t to_e4m3(float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    return both;
#else
    return ceni_e4m3_of_float(low, true) | (uint32_t)ceni_e4m3_of_float(high, true) << 8;
#endif
}

__device__ uint32_t to_e5m2(float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t both;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    return both;
#else
    return ceni_e5m2_of_float(low, true) | (uint32_t)ceni_e5m2_of_float(high, true) << 8;
#endif
}

// A code of t that does not saturate from one that does: what is beyond the tie above the largest
// number is an infinity, or where there is none NaN, of its sign.
__device__ uint32_t unsaturated(const ceni_codec_job &job, uint32_t code, float t) {
    bool e4m3 = job.kind == CENI_CODEC_E4M3;
    bool beyond = e4m3 ? fabsf(t) > 464.0f : fabsf(t) >= 61440.0f;
    return beyond ? (code & 0x80u) | (e4m3 ? 0x7Fu : 0x7Cu) : code;
}

template <int COUNT> __device__ void pack_ints(bool four, const int q[COUNT], uint32_t w[4]) {
    if (four) {
        w[0] = 0;
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            w[0] |= (uint32_t)(q[k] & 15) << 4 * k;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
        uint32_t low = __byte_perm(q[4 * i], q[4 * i + 1], 0x0040);
        w[i] = __byte_perm(low, __byte_perm(q[4 * i + 2], q[4 * i + 3], 0x0040), 0x5410);
    }
}

template <int COUNT, typename S>
__device__ void code_ints(const ceni_codec_job &job, const float x[COUNT], const S &s,
                          uint32_t w[4]) {
    int q[COUNT];
    if (has(job, CENI_CODEC_ASYMMETRIC)) {
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            q[k] = cut(job, with_zero(__fmul_rn(x[k], s.at(k).r), s.at(k).z));
        }
    } else {
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            q[k] = cut(job, __float2int_rn(__fmul_rn(x[k], s.at(k).r)));
        }
    }
    pack_ints<COUNT>(job.kind == CENI_CODEC_INT4, q, w);
}

template <int COUNT, typename S>
__device__ void code(const ceni_codec_job &job, const float x[COUNT], const S &s, uint32_t w[4]) {
    bool saturate = has(job, CENI_CODEC_SATURATING);
    if (job.kind > CENI_CODEC_E5M2) {
        code_ints<COUNT>(job, x, s, w);
        return;
    }
    if (job.kind > CENI_CODEC_BF16) {
#pragma unroll
        for (int i = 0; i < COUNT / 4; i++) {
            float t[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                t[k] = __fmul_rn(x[4 * i + k], s.at(4 * i + k).r);
            }
            w[i] = job.kind == CENI_CODEC_E4M3 ? to_e4m3(t[0], t[1]) | to_e4m3(t[2], t[3]) << 16
                                               : to_e5m2(t[0], t[1]) | to_e5m2(t[2], t[3]) << 16;
            if (!saturate) {
                uint32_t all = w[i];
                w[i] = 0;
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    w[i] |= unsaturated(job, all >> 8 * k & 0xFFu, t[k]) << 8 * k;
                }
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) {
        w[i] = job.kind == CENI_CODEC_FP16 ? to_f16(x[2 * i], x[2 * i + 1])
                                           : to_bf16(x[2 * i], x[2 * i + 1]);
    }
    if (saturate) {
#pragma unroll
        for (int i = 0; i < COUNT / 2; i++) {
            w[i] = cut_halves(w[i], job.kind == CENI_CODEC_FP16 ? 0x7C00u : 0x7F80u);
        }
    }
}

// ---- and back ----

__device__ float back(float value, float s) {
    float y = __fmul_rn(value, s);
    y = y > 0x1.FFFFFEp127f ? 0x1.FFFFFEp127f : y;
    return y < -0x1.FFFFFEp127f ? -0x1.FFFFFEp127f : y;
}

__device__ bool is_e5m2_infinite(float v) {
    return (__float_as_uint(v) & MAGNITUDE) == INFINITE;
}

// Two of FP8 as floats.
__device__ void of_e4m3(uint32_t both, float v[2]) {
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)both));
    v[0] = of_f16((uint16_t)halves);
    v[1] = of_f16((uint16_t)(halves >> 16));
#else
    v[0] = ceni_float_of_e4m3((uint8_t)both);
    v[1] = ceni_float_of_e4m3((uint8_t)(both >> 8));
#endif
}

// An E5M2 is an FP16 without its last bits.
__device__ void of_e5m2(uint32_t both, float v[2]) {
    v[0] = of_f16((uint16_t)(both << 8));
    v[1] = of_f16((uint16_t)(both & 0xFF00u));
}

template <int COUNT, typename S>
__device__ void value(const ceni_codec_job &job, const uint32_t w[4], const S &s, float y[COUNT]) {
    if (job.kind == CENI_CODEC_FP16) {
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            y[k] = of_f16((uint16_t)(w[k / 2] >> k % 2 * 16));
        }
        return;
    }
    if (job.kind == CENI_CODEC_BF16) {
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            y[k] = of_bf16((uint16_t)(w[k / 2] >> k % 2 * 16));
        }
        return;
    }
    if (job.kind == CENI_CODEC_INT4) {
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            y[k] = (float)(((int)(w[0] << (28 - 4 * k)) >> 28) - s.at(k).z);
        }
    } else if (job.kind == CENI_CODEC_INT8) {
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            y[k] = (float)((int8_t)(w[k / 4] >> k % 4 * 8) - s.at(k).z);
        }
    } else {
#pragma unroll
        for (int k = 0; k < COUNT; k += 2) {
            uint32_t both = w[k / 4] >> k % 4 * 8 & 0xFFFFu;
            if (job.kind == CENI_CODEC_E4M3) {
                of_e4m3(both, y + k);
            } else {
                of_e5m2(both, y + k);
            }
        }
    }
    if (s.tame()) {
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            y[k] = __fmul_rn(y[k], s.at(k).s);
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        y[k] = is_e5m2_infinite(y[k]) ? y[k] : back(y[k], s.at(k).s);
    }
}

// ---- codes in memory ----

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
        return __ldg((const unsigned long long *)at);
    }
    if (count == 4 && at % 4 == 0) {
        return __ldg((const uint32_t *)at);
    }
    uint64_t bytes = 0;
    for (int k = 0; k < count; k++) {
        bytes |= (uint64_t)((const uint8_t *)at)[k] << 8 * k;
    }
    return bytes;
}

__device__ void store_codes(const ceni_codec_job &job, uint64_t at, int count,
                            const uint32_t w[4]) {
    if (job.kind <= CENI_CODEC_BF16) {
        store_words(at, count, w);
    } else if (job.kind == CENI_CODEC_INT4) { // an odd row's last half is 0
        uint32_t most = count < EIGHT ? (1u << 4 * count) - 1 : ~0u;
        store_bytes(at, (count + 1) / 2, w[0] & most);
    } else {
        store_bytes(at, count, w[0] | (uint64_t)w[1] << 32);
    }
}

__device__ void load_codes(const ceni_codec_job &job, uint64_t at, int count, uint32_t w[4]) {
    uint64_t low, high = 0;
    if (job.kind > CENI_CODEC_BF16) {
        low = load_bytes(at, job.kind == CENI_CODEC_INT4 ? (count + 1) / 2 : count);
    } else if (count == EIGHT && at % 16 == 0) {
        uint4 v = __ldg((const uint4 *)at);
        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
        return;
    } else {
        low = load_bytes(at, count < 4 ? 2 * count : 8);
        high = load_bytes(at + 8, count < 4 ? 0 : 2 * count - 8);
    }
    w[0] = (uint32_t)low, w[1] = (uint32_t)(low >> 32);
    w[2] = (uint32_t)high, w[3] = (uint32_t)(high >> 32);
}

} // namespace codec
