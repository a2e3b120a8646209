/* Steps of encoding and decoding on eight elements in a vector of AVX2, each of which gives what
 * the loop of the same name in codec_loops_body.h gives. `kind` and `dtype` are constants wherever
 * these are called, so that nothing is left of the choice between them. */
#ifndef CENI_KERNELS_CODEC_VECTORS_H
#define CENI_KERNELS_CODEC_VECTORS_H

#include <immintrin.h>
#include <string.h>

#include "base/half.h"
#include "cenote/dtype.h"
#include "kernels/codec_loops.h"

#define VECTOR_INLINE static inline __attribute__((always_inline))

/* Has what lies so many bytes behind come from memory, if anything does. */
VECTOR_INLINE void v_fetch(const void *from, size_t bytes) {
    _mm_prefetch((const char *)((uintptr_t)from + bytes), _MM_HINT_T0);
}

VECTOR_INLINE __m256i v_all(uint32_t value) {
    return _mm256_set1_epi32((int)value);
}

/* a where the mask is set, else b. */
VECTOR_INLINE __m256i v_pick(__m256i mask, __m256i a, __m256i b) {
    return _mm256_blendv_epi8(b, a, mask);
}

VECTOR_INLINE __m256i v_size(__m256i bits) {
    return _mm256_and_si256(bits, v_all(0x7FFFFFFFu));
}

/* Where a size as bits is above another, both being below 2^31. */
VECTOR_INLINE __m256i v_above(__m256i size, uint32_t than) {
    return _mm256_cmpgt_epi32(size, v_all(than));
}

VECTOR_INLINE __m256i v_nan(__m256 x) {
    return _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* ---- 16-bit floats and FP8; `number`: it is no NaN ---- */

VECTOR_INLINE __m256i v_to_bf16(__m256 x, bool number) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), v_all(1));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, odd), v_all(0x7FFF));
    __m256i code = _mm256_srli_epi32(sum, 16);
    return number ? code : v_pick(v_nan(x), v_all(0x7FFF), code);
}

/* A format with `drop` bits less of mantissa than a float, whose exponent's bias is less by `bias`.
 * What is beyond its largest number becomes `largest`, or what `beyond` is rounded to: both are
 * floats. */
typedef struct v_format {
    int drop;
    uint32_t bias, nan;
    float largest, beyond;
} v_format;

#define V_FP16 ((v_format){13, 112, 0x7FFF, 65504.0f, 65536.0f})
#define V_E4M3 ((v_format){20, 120, 0x7F, 448.0f, 480.0f})
#define V_E5M2 ((v_format){21, 112, 0x7F, 57344.0f, 65536.0f})

/* Beside 2^drop times its own power of two, and that of the least normal number at least, a float's
 * last bit is the format's, so that adding rounds; what the sum has more than that power is the
 * mantissa with its first bit, or the subnormal. */
VECTOR_INLINE __m256i v_to_small(__m256 t, v_format f, bool saturate, bool number) {
    __m256i bits = _mm256_castps_si256(t), size = v_size(bits);
    __m256i sign = _mm256_srli_epi32(_mm256_xor_si256(bits, size), f.drop < 16 ? 16 : 24);
    __m256 end = _mm256_set1_ps(saturate ? f.largest : f.beyond);
    size = _mm256_min_epi32(size, _mm256_castps_si256(end));
    __m256i power =
        _mm256_max_epi32(_mm256_and_si256(size, v_all(0x7F800000u)), v_all((f.bias + 1) << 23));
    __m256i beside = _mm256_add_epi32(power, v_all((uint32_t)f.drop << 23));
    __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(size), _mm256_castsi256_ps(beside));
    __m256i mantissa = _mm256_sub_epi32(_mm256_castps_si256(sum), beside);
    __m256i exponent =
        _mm256_sub_epi32(_mm256_srli_epi32(power, f.drop), v_all((f.bias + 1) << (23 - f.drop)));
    __m256i code = _mm256_or_si256(_mm256_add_epi32(mantissa, exponent), sign);
    return number ? code : v_pick(v_nan(t), v_all(f.nan), code);
}

/* Its own bits in the place of a float's, with the bias made up for; a subnormal, for which that
 * is 1 and a mantissa where 0 and the same is meant, is less by that 1. */
VECTOR_INLINE __m256i v_of_small(__m256i size, v_format f) {
    __m256i wide = _mm256_slli_epi32(size, f.drop);
    __m256i normal = _mm256_add_epi32(wide, v_all(f.bias << 23));
    __m256i least = v_all((f.bias + 1) << 23);
    __m256 above = _mm256_castsi256_ps(_mm256_add_epi32(wide, least));
    __m256 small = _mm256_sub_ps(above, _mm256_castsi256_ps(least));
    return v_pick(_mm256_cmpgt_epi32(least, normal), _mm256_castps_si256(small), normal);
}

VECTOR_INLINE __m256 v_of_bf16(__m256i code) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(code, 16));
}

VECTOR_INLINE __m256 v_of_f16(__m256i code) {
    __m256i size = _mm256_and_si256(code, v_all(0x7FFF));
    __m256i sign = _mm256_slli_epi32(_mm256_xor_si256(code, size), 16);
    __m256i bits = v_of_small(size, V_FP16), beyond = v_above(size, 0x7BFF);
    bits = _mm256_add_epi32(bits, _mm256_and_si256(beyond, v_all(112u << 23)));
    return _mm256_castsi256_ps(_mm256_or_si256(bits, sign));
}

/* ---- integers ---- */

VECTOR_INLINE __m256 v_cut(__m256 t, float end) {
    t = _mm256_and_ps(t, _mm256_cmp_ps(t, t, _CMP_ORD_Q));
    return _mm256_max_ps(_mm256_min_ps(t, _mm256_set1_ps(end)), _mm256_set1_ps(-end));
}

VECTOR_INLINE __m256i v_to_int(__m256 t, int32_t high) {
    return _mm256_cvtps_epi32(v_cut(t, (float)high));
}

VECTOR_INLINE __m256i v_to_int_zero(__m256 t, __m256i z, int32_t high) {
    __m256i q = _mm256_add_epi32(_mm256_cvtps_epi32(v_cut(t, 1024.0f)), z);
    q = _mm256_min_epi32(q, _mm256_set1_epi32(high));
    return _mm256_max_epi32(q, _mm256_set1_epi32(-high - 1));
}

/* ---- any kind ---- */

/* What a unit's elements share. */
typedef struct v_unit {
    __m256 s, r;
    __m256i z;
    bool saturate;
} v_unit;

/* t is x * r; 16-bit kinds have no r, and are x's. */
VECTOR_INLINE __m256i v_encode(__m256 t, const v_unit *u, uint32_t kind, bool zero) {
    switch (kind) {
    case CENI_CODEC_FP16:
        return v_to_small(t, V_FP16, u->saturate, false);
    case CENI_CODEC_BF16: {
        __m256i code = v_to_bf16(t, false), size = _mm256_and_si256(code, v_all(0x7FFF));
        __m256i infinite = _mm256_cmpeq_epi32(size, v_all(0x7F80));
        return u->saturate ? _mm256_add_epi32(code, infinite) : code;
    }
    case CENI_CODEC_E4M3:
        return v_to_small(t, V_E4M3, u->saturate, false);
    case CENI_CODEC_E5M2:
        return v_to_small(t, V_E5M2, u->saturate, false);
    case CENI_CODEC_INT8:
        return zero ? v_to_int_zero(t, u->z, 127) : v_to_int(t, 127);
    default:
        return zero ? v_to_int_zero(t, u->z, 7) : v_to_int(t, 7);
    }
}

/* ---- memory ---- */

VECTOR_INLINE __m256 v_load(const void *from, size_t i, cen_dtype dtype) {
    if (dtype == CEN_FP32) {
        return _mm256_loadu_ps((const float *)from + i);
    }
    __m128i half = _mm_loadu_si128((const __m128i_u *)((const uint16_t *)from + i));
    __m256i code = _mm256_cvtepu16_epi32(half);
    return dtype == CEN_FP16 ? v_of_f16(code) : v_of_bf16(code);
}

/* Sixteen elements. Halves of 16-bit ones are dealt: a has elements 0-3 and 8-11, b the others,
 * which is the order that packing takes them in. */
VECTOR_INLINE void v_load_two(const void *from, size_t i, cen_dtype dtype, __m256 *a, __m256 *b) {
    if (dtype == CEN_FP32) {
        *a = v_load(from, i, dtype);
        *b = v_load(from, i + 8, dtype);
        return;
    }
    __m256i none = _mm256_setzero_si256();
    __m256i all = _mm256_loadu_si256((const __m256i_u *)((const uint16_t *)from + i));
    if (dtype == CEN_FP16) {
        *a = v_of_f16(_mm256_unpacklo_epi16(all, none));
        *b = v_of_f16(_mm256_unpackhi_epi16(all, none));
    } else {
        *a = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, all));
        *b = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, all));
    }
}

/* Codes of 16 bits: sixteen of them. */
VECTOR_INLINE void v_put16(uint16_t *to, __m256i a, __m256i b, bool dealt) {
    __m256i both = _mm256_packus_epi32(a, b);
    both = dealt ? both : _mm256_permute4x64_epi64(both, 0xD8);
    _mm256_storeu_si256((__m256i_u *)to, both);
}

/* The low bytes of 32 codes, in their order. */
VECTOR_INLINE __m256i v_bytes(const __m256i code[4], bool is_signed, bool dealt) {
    __m256i a = _mm256_packs_epi32(code[0], code[1]), b = _mm256_packs_epi32(code[2], code[3]);
    __m256i all = is_signed ? _mm256_packs_epi16(a, b) : _mm256_packus_epi16(a, b);
    return dealt ? _mm256_permute4x64_epi64(all, 0xD8)
                 : _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Two to a byte. */
VECTOR_INLINE __m128i v_nibbles(__m256i bytes) {
    __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    __m256i pairs = _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x1001));
    return _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
}

/* Codes i..i+31 of what begins at `to`, in the place that `kind` gives them. */
VECTOR_INLINE void v_put_codes(void *to, size_t i, const __m256i code[4], uint32_t kind,
                               bool dealt) {
    uint8_t *bytes = (uint8_t *)to;
    if (kind <= CENI_CODEC_BF16) {
        v_put16((uint16_t *)to + i, code[0], code[1], dealt);
        v_put16((uint16_t *)to + i + 16, code[2], code[3], dealt);
    } else if (kind == CENI_CODEC_INT4) {
        _mm_storeu_si128((__m128i_u *)(bytes + i / 2), v_nibbles(v_bytes(code, true, dealt)));
    } else {
        _mm256_storeu_si256((__m256i_u *)(bytes + i),
                            v_bytes(code, kind == CENI_CODEC_INT8, dealt));
    }
}

/* ---- numbers of codes ---- */

/* Bytes in the order that v_of_halves takes them in. */
VECTOR_INLINE __m256i v_dealt(__m256i bytes) {
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

/* Floats from the bytes of their upper halves, the lower being 0. */
VECTOR_INLINE void v_of_halves(__m256i high, __m256i low, __m256 number[4]) {
    __m256i none = _mm256_setzero_si256();
    __m256i a = _mm256_unpacklo_epi8(low, high), b = _mm256_unpackhi_epi8(low, high);
    number[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, a));
    number[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, a));
    number[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, b));
    number[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, b));
}

VECTOR_INLINE __m256i v_table(__m128i table, __m256i index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), index);
}

/* Eight nibbles of four bytes: each to the upper end of its element, and back with its sign. */
VECTOR_INLINE __m256 v_of_int4(const uint8_t *packed) {
    int32_t all;
    memcpy(&all, packed, sizeof all);
    __m256i up = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(all), up), 28));
}

/* From 16 on a code's lower half is the lower byte's upper one, and its exponent counts on from
 * that of the first sixteen, which a table has. */
VECTOR_INLINE void v_of_e4m3(__m256i bytes, __m256 number[4]) {
    const __m128i first_high = _mm_setr_epi8(0, 0x3B, 0x3B, 0x3B, 0x3C, 0x3C, 0x3C, 0x3C, 0x3C,
                                             0x3C, 0x3C, 0x3C, 0x3C, 0x3C, 0x3C, 0x3C);
    const __m128i first_low =
        _mm_setr_epi8(0, 0, (char)0x80, (char)0xC0, 0, 0x20, 0x40, 0x60, (char)0x80, (char)0x90,
                      (char)0xA0, (char)0xB0, (char)0xC0, (char)0xD0, (char)0xE0, (char)0xF0);
    __m256i code = v_dealt(bytes), half = _mm256_set1_epi8(15);
    __m256i size = _mm256_and_si256(code, _mm256_set1_epi8(0x7F));
    __m256i nan = _mm256_cmpeq_epi8(size, _mm256_set1_epi8(0x7F));
    __m256i lower = _mm256_and_si256(size, half);
    __m256i upper = _mm256_and_si256(_mm256_srli_epi16(size, 4), half);
    __m256i first = _mm256_cmpeq_epi8(upper, _mm256_setzero_si256());
    __m256i high = _mm256_add_epi8(upper, _mm256_set1_epi8(0x3C));
    high = v_pick(first, v_table(first_high, lower), _mm256_or_si256(high, nan));
    __m256i low = v_pick(first, v_table(first_low, lower), _mm256_slli_epi16(lower, 4));
    v_of_halves(_mm256_or_si256(high, _mm256_xor_si256(code, size)), _mm256_or_si256(low, nan),
                number);
}

/* The same by eights; and infinity and NaN have all of a float's exponent. */
VECTOR_INLINE void v_of_e5m2(__m256i bytes, __m256 number[4]) {
    const __m128i first_high =
        _mm_setr_epi8(0, 0x37, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i first_low = _mm_setr_epi8(0, (char)0x80, 0, 0x40, (char)0x80, (char)0xA0,
                                            (char)0xC0, (char)0xE0, 0, 0, 0, 0, 0, 0, 0, 0);
    __m256i code = v_dealt(bytes), bias = _mm256_set1_epi8(0x38);
    __m256i size = _mm256_and_si256(code, _mm256_set1_epi8(0x7F));
    __m256i beyond = _mm256_cmpgt_epi8(size, _mm256_set1_epi8(0x7B));
    __m256i lower = _mm256_and_si256(size, _mm256_set1_epi8(7));
    __m256i upper = _mm256_and_si256(_mm256_srli_epi16(size, 3), _mm256_set1_epi8(15));
    __m256i first = _mm256_cmpeq_epi8(upper, _mm256_setzero_si256());
    __m256i high = _mm256_add_epi8(_mm256_add_epi8(upper, bias), _mm256_and_si256(beyond, bias));
    high = v_pick(first, v_table(first_high, lower), high);
    __m256i low = v_pick(first, v_table(first_low, lower), _mm256_slli_epi16(lower, 5));
    v_of_halves(_mm256_or_si256(high, _mm256_xor_si256(code, size)), low, number);
}

/* Numbers of codes i..i+31, without their scale. */
VECTOR_INLINE void v_numbers(const void *from, size_t i, __m256 z, uint32_t kind,
                             __m256 number[4]) {
    const uint8_t *bytes = (const uint8_t *)from;
    if (kind == CENI_CODEC_E4M3 || kind == CENI_CODEC_E5M2) {
        __m256i all = _mm256_loadu_si256((const __m256i_u *)(bytes + i));
        if (kind == CENI_CODEC_E4M3) {
            v_of_e4m3(all, number);
        } else {
            v_of_e5m2(all, number);
        }
        return;
    }
    for (size_t k = 0, at = i; k < 4; k++, at += 8) {
        __m128i eight = kind == CENI_CODEC_INT8 ? _mm_loadl_epi64((const __m128i_u *)(bytes + at))
                                                : _mm_setzero_si128();
        switch (kind) {
        case CENI_CODEC_FP16:
            number[k] = v_load(from, at, CEN_FP16);
            break;
        case CENI_CODEC_BF16:
            number[k] = v_load(from, at, CEN_BF16);
            break;
        case CENI_CODEC_INT8:
            number[k] = _mm256_sub_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)), z);
            break;
        default:
            number[k] = _mm256_sub_ps(v_of_int4(bytes + at / 2), z);
            break;
        }
    }
}

/* Where no product of a code with s is beyond a float, and an infinity stays one. */
VECTOR_INLINE bool v_is_tame(float s, uint32_t kind) {
    float most = kind == CENI_CODEC_E4M3 ? 448.0f : kind == CENI_CODEC_E5M2 ? 57344.0f : 255.0f;
    return s > 0 && s * most <= 0x1.FFFFFEp127f;
}

/* Times s; cut to finite, save for NaN and an infinity that was there. */
VECTOR_INLINE __m256 v_scaled(__m256 number, __m256 s, uint32_t kind, bool tame) {
    if (kind <= CENI_CODEC_BF16) {
        return number;
    }
    __m256 y = _mm256_mul_ps(number, s), most = _mm256_set1_ps(0x1.FFFFFEp127f);
    if (tame) {
        return y;
    }
    y = _mm256_max_ps(_mm256_set1_ps(-0x1.FFFFFEp127f), _mm256_min_ps(most, y));
    if (kind == CENI_CODEC_E5M2) {
        __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), number);
        y = _mm256_blendv_ps(y, number, _mm256_cmp_ps(size, most, _CMP_GT_OQ));
    }
    return y;
}

/* Sixteen numbers of a matrix; `numbers`: none is NaN. */
VECTOR_INLINE void v_store(void *to, size_t i, __m256 a, __m256 b, cen_dtype dtype, bool numbers) {
    if (!numbers && dtype == CEN_FP32) {
        __m256 nan = _mm256_castsi256_ps(v_all(0x7FFFFFFFu));
        a = _mm256_blendv_ps(a, nan, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
        b = _mm256_blendv_ps(b, nan, _mm256_cmp_ps(b, b, _CMP_UNORD_Q));
    }
    if (dtype == CEN_BF16) {
        v_put16((uint16_t *)to + i, v_to_bf16(a, numbers), v_to_bf16(b, numbers), false);
    } else if (dtype == CEN_FP16) {
        v_put16((uint16_t *)to + i, v_to_small(a, V_FP16, false, numbers),
                v_to_small(b, V_FP16, false, numbers), false);
    } else {
        _mm256_storeu_ps((float *)to + i, a);
        _mm256_storeu_ps((float *)to + i + 8, b);
    }
}

#endif
