// What encoding did, for the report: a thread's counts and sums over its elements, and how those of
// a warp are added to a row's. Sums are in double precision; which order they are added in is not
// said (codec.h), so products may be contracted with them.
#pragma once

#include "kernels/codec_codes.cuh"

namespace codec {

struct tally {
    unsigned nan, infinite, saturated, overflowed, underflowed, count;
    float largest, most; // |x|, and what is known of the largest error as a float
    double max_error, error, error2, x2, y2, xy;
    double near_error2, near_y2, near_xy; // of add_near: e * e, y * y and y * (x - y)
};

// The sums over an element that is finite, as is what became of it.
__device__ __forceinline__ void add_finite(tally &to, float x, float y) {
    double a = x, b = y, e = fabs(__dsub_rn(a, b));
    to.largest = fmaxf(to.largest, fabsf(x));
    to.max_error = e > to.max_error ? e : to.max_error;
    to.error += e;
    to.error2 += e * e;
    to.x2 += a * a;
    to.y2 += b * b;
    to.xy += a * b;
}

// Of t only its size is asked.
__device__ void add_any(tally &to, float x, float t, float y, float limit) {
    uint32_t x_size = __float_as_uint(x) & MAGNITUDE, y_size = __float_as_uint(y) & MAGNITUDE;
    to.nan += x_size > INFINITE;
    to.infinite += x_size == INFINITE;
    to.saturated += fabsf(t) > limit && y_size < INFINITE;
    to.overflowed += x_size < INFINITE && y_size >= INFINITE;
    to.underflowed += x_size && x_size < INFINITE && !y_size;
    if (x_size < INFINITE && y_size < INFINITE) {
        add_finite(to, x, y);
    }
}

// The first n of eight.
__device__ void add(const ceni_codec_job &job, int n, const float x[EIGHT], const float t[EIGHT],
                    const float y[EIGHT], tally &to) {
    uint32_t most = 0;
    float size = 0;
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        most = max(most, __float_as_uint(x[k]) & MAGNITUDE);
        most = max(most, __float_as_uint(y[k]) & MAGNITUDE);
        size = fmaxf(size, fabsf(t[k]));
    }
    to.count += n;
    if (n < EIGHT || most >= INFINITE || size > job.limit) {
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            if (k < n) {
                add_any(to, x[k], t[k], y[k], job.limit);
            }
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        to.underflowed += x[k] != 0 && y[k] == 0;
        add_finite(to, x[k], y[k]);
    }
}

// Whether add_near may be asked: INT with a scale of the unit's own, whose s lets the difference of
// x and y be exact as a float. That is at most s * (1/2 + 2^-13). Where y is two steps or more, x
// is within half and twice of it, and the difference exact; so it is where y is 0. Where y is one
// step and x just below a half of it, it needs one bit more only if it passes a power of two, which
// takes an s whose mantissa is nearly 2.
__device__ bool is_near(const ceni_codec_job &job, const scale &s) {
    return job.kind > CENI_CODEC_E5M2 && !has(job, CENI_CODEC_GIVEN_SCALES) && s.tame() &&
           (__float_as_uint(s.s) & 0x7FFFFFu) < 0x7FF000u;
}

// Codes eight finite elements, and adds them, but for the largest. Beside 1.5 * 2^23 a float's last
// bit is 1, so adding rounds to integers, and the bits are theirs.
__device__ void add_near(const ceni_codec_job &job, const float x[EIGHT], const scale &s,
                         uint32_t w[4], tally &to) {
    const float rounder = __uint_as_float(ROUNDER_BITS);
    int q[EIGHT];
    to.count += EIGHT;
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        float steps = __fadd_rn(__fmul_rn(x[k], s.r), rounder);
        q[k] = (int)(__float_as_uint(steps) - ROUNDER_BITS);
        if (has(job, CENI_CODEC_ASYMMETRIC)) {
            q[k] = cut(job, q[k] + s.z);
            steps = __uint_as_float((uint32_t)(q[k] - s.z) + ROUNDER_BITS);
        }
        float y = __fmul_rn(__fsub_rn(steps, rounder), s.s), d = __fsub_rn(x[k], y);
        double b = y, e = d;
        to.underflowed += x[k] != 0 && y == 0;
        to.most = fmaxf(to.most, fabsf(d));
        to.error += fabs(e);
        to.near_error2 += e * e;
        to.near_y2 += b * b;
        to.near_xy += b * e;
    }
    pack_ints<EIGHT>(job.kind == CENI_CODEC_INT4, q, w);
}

// ---- eight of a dense format ----

// With zero points and given scales: codes that are cut to the end of the range.
template <int COUNT, typename S>
__device__ void add_cut(const ceni_codec_job &job, int n, const float x[COUNT], const S &s,
                        tally &to) {
    if (!has(job, CENI_CODEC_GIVEN_SCALES) || !has(job, CENI_CODEC_ASYMMETRIC)) {
        return;
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        int q = with_zero(__fmul_rn(x[k], s.at(k).r), s.at(k).z);
        to.saturated += k < n && q != cut(job, q);
    }
}

template <bool SUMS, typename S>
__device__ void encode_dense(const ceni_codec_job &job, uint64_t row, uint64_t col, int n,
                             const float x[EIGHT], const S &s, tally &sums) {
    uint32_t w[4];
    code<EIGHT>(job, x, s, w);
    store_codes(job, values_at(job, row, col), n, w);
    if (SUMS && job.sums) {
        float y[EIGHT], t[EIGHT];
        value<EIGHT>(job, w, s, y);
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            t[k] = has(job, CENI_CODEC_SCALED) ? __fmul_rn(x[k], s.at(k).r) : x[k];
        }
        add_cut<EIGHT>(job, n, x, s, sums);
        add(job, n, x, t, y, sums);
    }
}

// ---- to memory: by whole warps ----

using word = unsigned long long;

__device__ void put_count(uint64_t *to, unsigned count) {
    count = __reduce_add_sync(ALL, count);
    if (threadIdx.x % WARP == 0 && count) {
        atomicAdd((word *)to, (word)count);
    }
}

// The largest of a warp. Numbers that are not negative are in the order of their bits.
__device__ double over_warp(double most) {
    word bits = (word)__double_as_longlong(most);
    uint32_t high = (uint32_t)(bits >> 32), top = __reduce_max_sync(ALL, high);
    uint32_t low = __reduce_max_sync(ALL, high == top ? (uint32_t)bits : 0);
    return __longlong_as_double((long long)((word)top << 32 | low));
}

__device__ void put_most(double *to, double most) {
    most = over_warp(most);
    if (threadIdx.x % WARP == 0 && most > 0) {
        atomicMax((word *)to, (word)__double_as_longlong(most));
    }
}

// Eight sums over a warp: the lanes share them out by halves, so that lane 4 * i has the i-th. The
// first five go to memory.
__device__ void put_sums(double *to, double v[EIGHT]) {
    unsigned lane = threadIdx.x % WARP;
#pragma unroll
    for (int half = 4, step = 16; half; half /= 2, step /= 2) {
        bool upper = lane & step;
#pragma unroll
        for (int i = 0; i < half; i++) {
            double given = upper ? v[i] : v[i + half], kept = upper ? v[i + half] : v[i];
            v[i] = kept + __shfl_xor_sync(ALL, given, step);
        }
    }
    v[0] += __shfl_xor_sync(ALL, v[0], 2);
    v[0] += __shfl_xor_sync(ALL, v[0], 1);
    if (lane % 4 == 0 && lane / 4 < 5 && v[0] != 0) {
        atomicAdd(to + lane / 4, v[0]);
    }
}

__device__ void put_tally(const ceni_codec_job &job, uint64_t row, const tally &t) {
    ceni_codec_sums *to = (ceni_codec_sums *)job.sums + row;
    put_count(&to->count, t.count);
    put_count(&to->underflowed, t.underflowed);
    if (__any_sync(ALL, t.nan | t.infinite | t.saturated | t.overflowed)) {
        put_count(&to->nan, t.nan);
        put_count(&to->infinite, t.infinite);
        put_count(&to->saturated, t.saturated);
        put_count(&to->overflowed, t.overflowed);
    }
    put_most(&to->largest, t.largest);
    put_most(&to->max_error, t.most > t.max_error ? t.most : t.max_error);
    double sums[EIGHT] = {t.error, t.error2 + t.near_error2,
                          t.x2 + (t.near_y2 + (2 * t.near_xy + t.near_error2)), t.y2 + t.near_y2,
                          t.xy + (t.near_y2 + t.near_xy)};
    put_sums(&to->error, sums);
}

} // namespace codec
