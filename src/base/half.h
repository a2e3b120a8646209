/* The 16-bit floats, to and from 32 bits, as the device's own instructions convert them
 * (cvt.rn.f16.f32, cvt.rn.bf16.f32): to the nearest, ties to even; what is too large becomes
 * infinite; every NaN becomes 0x7FFF. Without branches that keep a loop from being vectorised. */
#ifndef CENI_BASE_HALF_H
#define CENI_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t ceni_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ceni_float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t ceni_bf16_of_float(float value) {
    uint32_t bits = ceni_float_bits(value);
    uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFu : rounded);
}

static inline float ceni_float_of_bf16(uint16_t half) {
    return ceni_float_of((uint32_t)half << 16);
}

static inline uint16_t ceni_f16_of_float(float value) {
    uint32_t bits = ceni_float_bits(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    /* From 2^-14 on: the exponent's bias is 15, not 127, and 13 bits are rounded away; a carry goes
     * into the exponent, and at 65520 to infinity. */
    uint32_t normal = (size - (112u << 23) + 0xFFFu + (size >> 13 & 1u)) >> 13;
    /* Below it: beside 0.5 the float's own last bit is 2^-24, so that adding rounds. */
    uint32_t small = ceni_float_bits(ceni_float_of(size) + 0.5f) - 0x3F000000u;
    uint32_t half = size < 0x38800000u ? small : normal;
    half = size >= 0x47800000u ? 0x7C00u : half;
    return (uint16_t)(size > 0x7F800000u ? 0x7FFFu : half | sign);
}

static inline float ceni_float_of_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, size = half & 0x7FFFu;
    uint32_t normal = (size << 13) + (112u << 23);
    /* Subnormal: as many times 2^-24, which a float holds exactly. */
    uint32_t small = ceni_float_bits((float)size * 0x1p-24f);
    uint32_t bits = size < 0x400u ? small : normal;
    bits = size >= 0x7C00u ? normal + (112u << 23) : bits;
    return ceni_float_of(bits | sign);
}

#endif
