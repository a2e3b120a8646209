// Codes of finite octets, and what a report says of a batch of them.
#pragma once

#include "kernels/codec_own.cuh"

namespace codec {

// ---- codes ----

// Eight integers in four bits each. They come as bits of floats that are beside 1.5 * 2^23 + 8, and
// are added up: what is above their low bits is the same in all, and taken off before.
__device__ __forceinline__ uint32_t pack_biased(const float steps[EIGHT]) {
    uint32_t w = 0, above = 0;
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        w += __float_as_uint(steps[k]) << 4 * k;
        above += ROUNDER_BITS << 4 * k;
    }
    return (w - above) ^ 0x88888888u;
}

// Of eight finite elements; and with BACK what they decode to, if the scale is tame.
template <class F, bool BACK>
__device__ __forceinline__ void code_calm(const ceni_codec_job &job, const float x[EIGHT],
                                          const scale &s, uint32_t w[4], float y[EIGHT]) {
    if (!F::FITS) {
        calm_scale calm = {s};
        code<EIGHT>(job, x, calm, w);
        if (BACK) {
            value<EIGHT>(job, w, calm, y);
        }
        return;
    }
    bool biased = F::KIND == CENI_CODEC_INT4 && !F::ASYM;
    const float rounder = __uint_as_float(ROUNDER_BITS + (biased ? 8 : 0));
    float steps[EIGHT];
    int q[EIGHT];
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        steps[k] = __fadd_rn(__fmul_rn(x[k], s.r), rounder);
        q[k] = (int)__float_as_uint(steps[k]);
        if (F::ASYM) {
            q[k] = cut(job, q[k] - (int)ROUNDER_BITS + s.z);
        }
        if (BACK) {
            float whole = F::ASYM ? (float)(q[k] - s.z) : __fsub_rn(steps[k], rounder);
            y[k] = __fmul_rn(whole, s.s);
        }
    }
    if (biased) {
        w[0] = pack_biased(steps);
    } else {
        pack_ints<EIGHT>(F::KIND == CENI_CODEC_INT4, q, w);
    }
}

// ---- the report ----

// A batch's sums, in single precision: at most 32 additions to each, and five more over the warp,
// so that they are within 37 * 2^-24 of what they are of.
struct batch_sums {
    float error, error2, x2, y2, xy, most;
    unsigned there, kept; // elements that are not 0, and those that did not become 0
};

// Halves that are not 0, but for their signs.
__device__ __forceinline__ unsigned not_zero_halves(uint32_t w) {
    return __vminu2(w & 0x7FFF7FFFu, 0x00010001u);
}

// Codes of eight that do not decode to 0, without zero points.
template <class F> __device__ __forceinline__ unsigned not_zero_codes(const uint32_t w[4]) {
    if (F::CAST) {
        unsigned both = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            both += not_zero_halves(w[i]);
        }
        return (both & 0xFFFFu) + (both >> 16);
    }
    if (F::KIND == CENI_CODEC_INT4) {
        return __popc((((w[0] & 0x77777777u) + 0x77777777u) | w[0]) & 0x88888888u);
    }
    uint32_t a = (w[0] & 0x7F7F7F7Fu) + 0x7F7F7F7Fu, b = (w[1] & 0x7F7F7F7Fu) + 0x7F7F7F7Fu;
    if (F::INT) { // -128 alone has no other bit, and is not 0
        a |= w[0];
        b |= w[1];
    }
    return __popc((a & 0x80808080u) | (b & 0x80808080u) >> 1);
}

template <class F> __device__ __forceinline__ unsigned not_zero(const raw<F::WIDE> &v) {
    unsigned count = 0;
#pragma unroll
    for (int k = 0; k < (F::WIDE ? 8 : 4); k++) {
        count += F::WIDE ? (v.w[k] & MAGNITUDE) != 0 : not_zero_halves(v.w[k]);
    }
    return F::WIDE ? count : (count & 0xFFFFu) + (count >> 16);
}

template <class F>
__device__ __forceinline__ void add_octet(const raw<F::WIDE> &v, const float x[EIGHT],
                                          const float y[EIGHT], const uint32_t w[4],
                                          batch_sums &to) {
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        float d = __fsub_rn(x[k], y[k]);
        to.most = fmaxf(to.most, fabsf(d));
        to.error = __fadd_rn(to.error, fabsf(d));
        to.error2 = __fmaf_rn(d, d, to.error2);
        to.x2 = __fmaf_rn(x[k], x[k], to.x2);
        to.y2 = __fmaf_rn(y[k], y[k], to.y2);
        to.xy = __fmaf_rn(x[k], y[k], to.xy);
        if (F::ASYM) {
            to.kept += x[k] == 0 || y[k] != 0;
        }
    }
    to.there += F::ASYM ? EIGHT : not_zero<F>(v);
    to.kept += F::ASYM ? 0 : not_zero_codes<F>(w);
}

// Whether squares of a number keep their bits as floats, and sums of a batch's and a warp's are
// none too large; and so they are if all are 0.
__device__ __forceinline__ bool is_middling(float size) {
    return size == 0 || (size >= 0x1p-50f && size <= 0x1p55f);
}

// Whether a batch whose largest size is `top` may be added up so: the difference of x and y is then
// exact as a float. Without a scale that is so of what is not cut: y is a multiple of x's last bit,
// and no farther from x than 0 is. With one the scale is the unit's own: y is 0, or x is within
// half and twice of it; only where y is one step (of INT, or the least of FP8) and x just below a
// half of it may a bit more be needed, if it passes a power of two, which takes an s whose mantissa
// is nearly 2.
__device__ __forceinline__ bool is_exact(const ceni_codec_job &job, const scale &s, float top) {
    return s.tame() && (__float_as_uint(s.s) & 0x7FFFFFu) < 0x7FF000u && is_middling(top) &&
           __fmul_rn(top, s.r) <= job.limit;
}

// Of a warp, to its row.
__device__ __forceinline__ void put_batch(const ceni_codec_job &job, const span &at, int octets,
                                          const batch_sums &p, float top) {
    unsigned lane = threadIdx.x % WARP;
    word *to = (word *)((ceni_codec_sums *)job.sums + at.row);
    unsigned both = __reduce_add_sync(ALL, (unsigned)octets * EIGHT | (p.there - p.kept) << 16);
    float most = most_of_warp(p.most);
    top = most_of_warp(top);
    if (lane < 2) {
        atomicAdd(to + 5 * lane, (word)(lane ? both >> 16 : both & 0xFFFFu));
        atomicMax(to + 6 + lane, (word)__double_as_longlong((double)(lane ? most : top)));
    }
    float v[EIGHT] = {p.error, p.error2, p.x2, p.y2, p.xy, 0, 0, 0};
#pragma unroll
    for (int half = 4, step = 16; half; half /= 2, step /= 2) {
        bool upper = lane & step;
#pragma unroll
        for (int i = 0; i < half; i++) {
            float given = upper ? v[i] : v[i + half], kept = upper ? v[i + half] : v[i];
            v[i] = kept + __shfl_xor_sync(ALL, given, step);
        }
    }
    v[0] += __shfl_xor_sync(ALL, v[0], 2);
    v[0] += __shfl_xor_sync(ALL, v[0], 1);
    if (lane % 4 == 0 && lane / 4 < 5) {
        atomicAdd((double *)to + 8 + lane / 4, (double)v[0]);
    }
}

} // namespace codec
