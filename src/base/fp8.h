/* OFP8 to and from 32 bits: rounded to nearest, ties to even, with subnormals; then what is beyond
 * the largest number saturates or becomes infinite (E5M2) or NaN of its sign (E4M3). Every NaN
 * becomes 0x7F. The same code serves the host and, in CUDA, the device. Without branches that keep
 * a loop from being vectorised, and with no sum of a product that could be contracted. */
#ifndef CENI_BASE_FP8_H
#define CENI_BASE_FP8_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define CENI_FP8_INLINE             static __device__ inline
#define CENI_FP8_BITS(value)        __float_as_uint(value)
#define CENI_FP8_FLOAT(bits)        __uint_as_float(bits)
#define CENI_FP8_TIMES(value, unit) __fmul_rn(value, unit)
#define CENI_FP8_PLUS(value, unit)  __fadd_rn(value, unit)
#else
#include "base/half.h"
#define CENI_FP8_INLINE             static inline
#define CENI_FP8_BITS(value)        ceni_float_bits(value)
#define CENI_FP8_FLOAT(bits)        ceni_float_of(bits)
#define CENI_FP8_TIMES(value, unit) ((value) * (unit))
#define CENI_FP8_PLUS(value, unit)  ((value) + (unit))
#endif

/* Beside `unit`, 2^23 times the least subnormal, a float's own last bit is that subnormal, so that
 * adding rounds. */
CENI_FP8_INLINE uint32_t ceni_fp8_subnormal(uint32_t size, float unit) {
    return CENI_FP8_BITS(CENI_FP8_PLUS(CENI_FP8_FLOAT(size), unit)) - CENI_FP8_BITS(unit);
}

CENI_FP8_INLINE uint8_t ceni_e4m3_of_float(float value, bool saturate) {
    uint32_t bits = CENI_FP8_BITS(value), sign = bits >> 24 & 0x80u, size = bits & 0x7FFFFFFFu;
    uint32_t normal = (size - (120u << 23) + 0x7FFFFu + (size >> 20 & 1u)) >> 20;
    uint32_t small = ceni_fp8_subnormal(size, 16384.0f);
    uint32_t code = size < 0x3C800000u ? small : normal;           /* 2^-6 */
    code = size > 0x43E80000u ? (saturate ? 0x7Eu : 0x7Fu) : code; /* 464, the tie above 448 */
    return (uint8_t)(size > 0x7F800000u ? 0x7Fu : code | sign);
}

CENI_FP8_INLINE uint8_t ceni_e5m2_of_float(float value, bool saturate) {
    uint32_t bits = CENI_FP8_BITS(value), sign = bits >> 24 & 0x80u, size = bits & 0x7FFFFFFFu;
    uint32_t normal = (size - (112u << 23) + 0xFFFFFu + (size >> 21 & 1u)) >> 21;
    uint32_t small = ceni_fp8_subnormal(size, 128.0f);
    uint32_t code = size < 0x38800000u ? small : normal;            /* 2^-14 */
    code = size >= 0x47700000u ? (saturate ? 0x7Bu : 0x7Cu) : code; /* 61440, the tie */
    return (uint8_t)(size > 0x7F800000u ? 0x7Fu : code | sign);
}

/* A code's bits in the place of a float's are the number but for the exponent's bias, subnormal or
 * not, so that an exact product makes it. */
CENI_FP8_INLINE float ceni_float_of_e4m3(uint8_t code) {
    uint32_t sign = (uint32_t)(code & 0x80u) << 24, size = code & 0x7Fu;
    uint32_t bits = CENI_FP8_BITS(CENI_FP8_TIMES(CENI_FP8_FLOAT(size << 20), 0x1p120f));
    bits = size == 0x7Fu ? 0x7FFFFFFFu : bits;
    return CENI_FP8_FLOAT(bits | sign);
}

CENI_FP8_INLINE float ceni_float_of_e5m2(uint8_t code) {
    uint32_t sign = (uint32_t)(code & 0x80u) << 24, size = code & 0x7Fu;
    uint32_t bits = CENI_FP8_BITS(CENI_FP8_TIMES(CENI_FP8_FLOAT(size << 21), 0x1p112f));
    bits = size >= 0x7Cu ? (size << 21) + (224u << 23) : bits;
    return CENI_FP8_FLOAT(bits | sign);
}

#endif
