// The same for matrices of whole octets that are aligned, in formats and units that are known when
// compiled: no kernel asks its job what it is to do. A batch of finite elements, which most are,
// takes short ways; what a batch may hold else takes those of codec_codes.cuh.
#pragma once

#include "kernels/codec_tally.cuh"

namespace codec {

// ONE: of a row or of all, and made before, or none. Those of BLOCK and COLUMN are made before,
// too.
enum units { ONE, ROW, GROUP, BLOCK, COLUMN };

template <uint32_t OF, bool ZEROS, units BY, cen_dtype SOURCE> struct form {
    static constexpr uint32_t KIND = OF, DTYPE = SOURCE;
    static constexpr bool ASYM = ZEROS, WIDE = SOURCE == CEN_FP32;
    static constexpr units UNITS = BY;
    static constexpr bool CAST = OF <= CENI_CODEC_BF16, INT = OF > CENI_CODEC_E5M2;
    static constexpr bool OWN = BY == ROW || BY == GROUP;
    // INT whose unit is known to hold what is coded: only what is not finite is to be cut.
    static constexpr bool FITS = INT && OWN;
    static constexpr unsigned BITS = CAST ? 16 : OF == CENI_CODEC_INT4 ? 4 : 8;
    static constexpr int COUNT = WIDE ? CENI_CODEC_BATCH_WIDE : CENI_CODEC_BATCH;
};

// A job whose constants the compiler knows.
template <class F> __device__ __forceinline__ ceni_codec_job narrowed(const ceni_codec_job &all) {
    ceni_codec_job job = all;
    uint32_t scaled = F::CAST                     ? 0
                      : F::INT || F::UNITS != ONE ? CENI_CODEC_SCALED
                                                  : all.flags & CENI_CODEC_SCALED;
    job.kind = F::KIND;
    job.flags = scaled | (F::ASYM ? CENI_CODEC_ASYMMETRIC : 0) |
                (F::CAST ? 0 : CENI_CODEC_SATURATING) | (F::OWN ? CENI_CODEC_OWN_SCALES : 0);
    job.dtype = F::DTYPE;
    if (F::INT) {
        job.high = F::KIND == CENI_CODEC_INT8 ? 127 : 7;
        job.low = -job.high - F::ASYM;
    }
    return job;
}

// A scale whose products are known to be no larger than a float.
struct calm_scale {
    scale one;

    __device__ const scale &at(int) const {
        return one;
    }
    __device__ bool tame() const {
        return true;
    }
};

// Of a thread's octets: one for all, or each its own.
template <class F> struct scales_of {
    static constexpr int COUNT = F::UNITS == GROUP || F::UNITS == BLOCK ? F::COUNT : 1;
    scale of[COUNT];

    __device__ const scale &at(int i) const {
        return of[COUNT == 1 ? 0 : i];
    }
};

// Where a thread's octets are: `step` apart, from `octet` of the row on, `left` of them from there
// to its end (or fewer than 0). The row's elements lie at `from`, its codes at `to`.
struct span {
    uint64_t from, to;
    uint32_t row;
    int octet, step, left;

    __device__ bool has(int i) const {
        return i * step < left;
    }
    __device__ void advance(int by) {
        octet += by;
        left -= by;
    }
};

__device__ __forceinline__ span span_of(const ceni_codec_job &job, uint32_t row, int octet) {
    span at = {place(job, row, 0), job.values + row * job.pitch,   row, octet,
               (int)job.team,      (int)(job.cols / EIGHT) - octet};
    return at;
}

template <class F> __device__ __forceinline__ uint64_t source_of(const span &at, int i) {
    return at.from + (uint64_t)(uint32_t)(at.octet + i * at.step) * (F::WIDE ? 32 : 16);
}

template <class F> __device__ __forceinline__ void fetch_span(const span &at, raw<F::WIDE> v[]) {
#pragma unroll
    for (int i = 0; i < F::COUNT; i++) {
        v[i] = {};
        if (at.has(i)) {
            fetch_whole<F::WIDE>(source_of<F>(at, i), v[i]);
        }
    }
}

template <class F>
__device__ __forceinline__ void store_octet(const span &at, int i, const uint32_t w[4]) {
    uint64_t to = at.to + (uint64_t)(uint32_t)(at.octet + i * at.step) * F::BITS;
    if (!at.has(i)) {
        return;
    }
    if (F::BITS == 16) {
        *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
    } else if (F::BITS == 8) {
        *(uint2 *)to = make_uint2(w[0], w[1]);
    } else {
        *(uint32_t *)to = w[0];
    }
}

// ---- scales ----

// What is seen of elements: the bits of the largest size, an infinity's or NaN's if there is one;
// and of the finite ones the largest, and how far below 0 they go.
struct sight {
    uint32_t most;
    float up, down;
};

template <class F>
__device__ __forceinline__ void look(const ceni_codec_job &job, const raw<F::WIDE> &v, sight &to) {
    float top = largest<F::WIDE>(job, larger<F::WIDE>(0, v)), x[EIGHT];
    to.most = max(to.most, __float_as_uint(top));
    if (!F::ASYM && is_finite(top)) {
        to.up = fmaxf(to.up, top);
        return;
    }
    expand<F::WIDE>(job, v, x);
    if (F::ASYM && is_finite(top)) {
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            to.up = fmaxf(to.up, x[k]);
            to.down = fmaxf(to.down, -x[k]);
        }
        return;
    }
    range e = {0, 0};
    widen(job, x, e);
    to.up = fmaxf(to.up, e.hi);
    to.down = fmaxf(to.down, -e.lo);
}

// By a thread's octets. Without zero points the words are compared first; what is not finite is
// looked for in memory once more.
template <class F>
__device__ __forceinline__ sight look_at(const ceni_codec_job &job, const span &at,
                                         const raw<F::WIDE> v[]) {
    sight to = {0, 0, 0};
    if (F::ASYM) {
#pragma unroll
        for (int i = 0; i < F::COUNT; i++) {
            look<F>(job, v[i], to);
        }
        return to;
    }
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < F::COUNT; i++) {
        most = larger<F::WIDE>(most, v[i]);
    }
    to.up = largest<F::WIDE>(job, most);
    to.most = __float_as_uint(to.up);
    if (!is_finite(to.up)) {
        to.up = 0;
#pragma unroll 1
        for (int i = 0; i < F::COUNT && at.has(i); i++) {
            raw<F::WIDE> one;
            fetch_whole<F::WIDE>(source_of<F>(at, i), one);
            look<F>(job, one, to);
        }
    }
    return to;
}

// Numbers that are not negative are in the order of their bits; of a zero the sign is nothing.
__device__ __forceinline__ float most_of_warp(float v) {
    return __uint_as_float(__reduce_max_sync(ALL, __float_as_uint(v) & MAGNITUDE));
}

// The same over the block, once.
__device__ __forceinline__ float most_of_team(const ceni_codec_job &job, float v,
                                              float warps[WARP]) {
    v = most_of_warp(v);
    if (job.team == WARP) {
        return v;
    }
    if (threadIdx.x % WARP == 0) {
        warps[threadIdx.x / WARP] = v;
    }
    __syncthreads();
    return most_of_warp(threadIdx.x % WARP < job.team / WARP ? warps[threadIdx.x % WARP] : 0.0f);
}

// A row's, of which the team has the first octets already.
template <class F>
__device__ __forceinline__ scale own_row(const ceni_codec_job &job, unsigned lane, sight seen,
                                         const span &at) {
    __shared__ float warps[2][WARP];
    span then = at;
    int stretch = F::COUNT * at.step;
    for (then.advance(stretch); then.left + (int)lane > 0; then.advance(stretch)) {
        raw<F::WIDE> v[F::COUNT];
        fetch_span<F>(then, v);
        sight next = look_at<F>(job, then, v);
        seen.up = fmaxf(seen.up, next.up);
        seen.down = fmaxf(seen.down, next.down);
    }
    float up = most_of_team(job, seen.up, warps[0]);
    float down = F::ASYM ? most_of_team(job, seen.down, warps[1]) : 0.0f;
    scale made = scale_of(job, {-down, up});
    if (lane == 0) {
        write_scale(job, at.row, made);
    }
    return made;
}

// Of COUNT values that each of `lanes` neighbours has, a lane gets the largest of one: that of its
// own number modulo COUNT.
template <int COUNT>
__device__ __forceinline__ float share_most(float v[COUNT], unsigned lane, unsigned lanes) {
#pragma unroll
    for (int bit = 1; bit < COUNT; bit *= 2) {
        bool upper = lane & bit;
#pragma unroll
        for (int j = 0; j < COUNT / 2 / bit; j++) {
            float kept = upper ? v[2 * j + 1] : v[2 * j], given = upper ? v[2 * j] : v[2 * j + 1];
            v[j] = fmaxf(kept, __shfl_xor_sync(ALL, given, bit));
        }
    }
    for (unsigned step = COUNT; step < lanes; step *= 2) {
        v[0] = fmaxf(v[0], __shfl_xor_sync(ALL, v[0], step));
    }
    return v[0];
}

// Of the groups that a thread's octets are in: each is made by one of its lanes (the others of the
// same number modulo COUNT make the same), and goes to all. Returns the largest size of all octets.
template <class F, bool SUMS>
__device__ __forceinline__ uint32_t own_groups(const ceni_codec_job &job, const span &at,
                                               const raw<F::WIDE> v[], scales_of<F> &s) {
    float up[F::COUNT], down[F::COUNT];
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < F::COUNT; i++) {
        sight seen = {0, 0, 0};
        look<F>(job, v[i], seen);
        most = max(most, seen.most);
        up[i] = seen.up;
        down[i] = seen.down;
    }
    unsigned lane = threadIdx.x % WARP, lanes = (unsigned)job.unit_cols / EIGHT;
    unsigned mine = lane % F::COUNT, within = lane % lanes;
    float hi = share_most<F::COUNT>(up, lane, lanes);
    float lo = F::ASYM ? -share_most<F::COUNT>(down, lane, lanes) : 0.0f;
    scale made = scale_of(job, {lo, hi});
    if (within < F::COUNT && (int)mine * at.step < at.left + (int)within) {
        uint32_t group = (uint32_t)(at.octet + (int)mine * at.step) >> (__ffs((int)lanes) - 1);
        write_scale(job, at.row * job.units_across + group, made);
    }
#pragma unroll
    for (int i = 0; i < F::COUNT; i++) {
        int from = (int)(lane - mine + i);
        s.of[i].r = __shfl_sync(ALL, made.r, from);
        s.of[i].s = SUMS ? __shfl_sync(ALL, made.s, from) : 1.0f;
        s.of[i].z = F::ASYM ? __shfl_sync(ALL, made.z, from) : 0;
    }
    return most;
}

// Of blocks that are a power of two of octets wide.
template <class F>
__device__ __forceinline__ void read_blocks(const ceni_codec_job &job, const span &at,
                                            scales_of<F> &s) {
    uint64_t first = at.row / (uint32_t)job.unit_rows * job.units_across;
    int shift = __ffs((int)job.unit_cols / EIGHT) - 1;
#pragma unroll
    for (int i = 0; i < scales_of<F>::COUNT; i++) {
        s.of[i] = {1.0f, 1.0f, 0};
        if (at.has(i)) {
            s.of[i] = read_scale(job, first + ((uint32_t)(at.octet + i * at.step) >> shift));
        }
    }
}

// Scales of units of whole octets and several rows, a block each. F's kind is any.
template <class F> __device__ __forceinline__ void own_blocks(const ceni_codec_job &all) {
    __shared__ float warps[2][WARP];
    ceni_codec_job job = narrowed<F>(all);
    job.low = all.low;
    uint32_t across = (uint32_t)job.units_across, band = blockIdx.x / across;
    uint64_t top = band * job.unit_rows, left = (blockIdx.x - band * across) * job.unit_cols;
    uint64_t below = job.rows - top, beside = job.cols - left;
    uint32_t rows = (uint32_t)(below < job.unit_rows ? below : job.unit_rows);
    uint32_t width = (uint32_t)(beside < job.unit_cols ? beside : job.unit_cols) / EIGHT;
    sight seen = {0, 0, 0};
    for (uint32_t i = threadIdx.x; i < rows * width; i += F::COUNT * blockDim.x) {
        raw<F::WIDE> v[F::COUNT];
#pragma unroll
        for (int k = 0; k < F::COUNT; k++) {
            uint32_t at = i + k * blockDim.x, row = at / width;
            v[k] = {};
            if (at < rows * width) {
                fetch_whole<F::WIDE>(place(job, top + row, left + (at - row * width) * EIGHT),
                                     v[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < F::COUNT; k++) {
            look<F>(job, v[k], seen);
        }
    }
    float up = most_of_team(job, seen.up, warps[0]);
    float down = F::ASYM ? most_of_team(job, seen.down, warps[1]) : 0.0f;
    if (threadIdx.x == 0) {
        write_scale(job, blockIdx.x, scale_of(job, {-down, up}));
    }
}

template <bool ZEROS> __device__ __forceinline__ void own_blocks_of(const ceni_codec_job &job) {
    if (job.dtype == CEN_FP32) {
        own_blocks<form<CENI_CODEC_INT8, ZEROS, BLOCK, CEN_FP32>>(job);
    } else if (job.dtype == CEN_FP16) {
        own_blocks<form<CENI_CODEC_INT8, ZEROS, BLOCK, CEN_FP16>>(job);
    } else {
        own_blocks<form<CENI_CODEC_INT8, ZEROS, BLOCK, CEN_BF16>>(job);
    }
}

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

// ---- encoding ----

// A thread's octets by the ways that take anything, from memory once more. Out of line, once for
// all forms.
template <bool WIDE, bool SUMS>
__device__ __noinline__ void encode_wild(const ceni_codec_job &job, const span at, scale s0,
                                         scale s1, scale s2, scale s3) {
    tally sums = {};
#pragma unroll 1
    for (int i = 0; i < batch<WIDE>() && at.has(i); i++) {
        uint64_t col = (uint64_t)(uint32_t)(at.octet + i * at.step) * EIGHT;
        raw<WIDE> v;
        float x[EIGHT];
        fetch_whole<WIDE>(place(job, at.row, col), v);
        expand<WIDE>(job, v, x);
        encode_dense<SUMS>(job, at.row, col, EIGHT, x, s0, sums);
        s0 = s1, s1 = s2, s2 = s3;
    }
    if (SUMS) {
        __syncwarp();
        put_tally(job, at.row, sums);
    }
}

template <class F, bool SUMS>
__device__ __forceinline__ void encode_wild(const ceni_codec_job &all, const span &at,
                                            const scales_of<F> &s) {
    constexpr int LAST = F::COUNT - 1;
    encode_wild<F::WIDE, SUMS>(all, at, s.at(0), s.at(1), s.at(LAST < 2 ? LAST : 2), s.at(LAST));
}

// By whole warps. false: their elements are not such as batch_sums take.
template <class F>
__device__ __forceinline__ bool encode_summed(const ceni_codec_job &job, const span &at,
                                              const raw<F::WIDE> v[], const scales_of<F> &s,
                                              float top) {
    bool exact = is_finite(top);
#pragma unroll
    for (int i = 0; i < scales_of<F>::COUNT; i++) {
        exact = exact && is_exact(job, s.of[i], top);
    }
    if (!__all_sync(ALL, exact)) {
        return false;
    }
    batch_sums sums = {};
    int octets = 0;
#pragma unroll
    for (int i = 0; i < F::COUNT; i++) {
        float x[EIGHT], y[EIGHT];
        uint32_t w[4];
        expand<F::WIDE>(job, v[i], x);
        code_calm<F, true>(job, x, s.at(i), w, y);
        store_octet<F>(at, i, w);
        add_octet<F>(v[i], x, y, w, sums);
        octets += at.has(i);
    }
    if (!__all_sync(ALL, is_middling(sums.most))) {
        return false;
    }
    put_batch(job, at, octets, sums, top);
    return true;
}

template <class F, bool SUMS>
__device__ __forceinline__ void encode_span(const ceni_codec_job &all, const ceni_codec_job &job,
                                            const span &at, const raw<F::WIDE> v[],
                                            const scales_of<F> &s, uint32_t most) {
    if constexpr (SUMS) {
        if (!encode_summed<F>(job, at, v, s, __uint_as_float(most))) {
            encode_wild<F, true>(all, at, s);
        }
    } else if (F::FITS && most >= INFINITE) {
        encode_wild<F, false>(all, at, s);
    } else {
#pragma unroll
        for (int i = 0; i < F::COUNT; i++) {
            float x[EIGHT], y[EIGHT];
            uint32_t w[4];
            expand<F::WIDE>(job, v[i], x);
            code_calm<F, false>(job, x, s.at(i), w, y);
            store_octet<F>(at, i, w);
        }
    }
}

// A team's row whose scale it makes, or stretch of another.
template <class F, bool SUMS>
__device__ __forceinline__ void encode_item(const ceni_codec_job &all, uint32_t item,
                                            unsigned lane) {
    const ceni_codec_job job = narrowed<F>(all);
    uint32_t across = (uint32_t)job.across, row = across == 1 ? item : item / across;
    int stretch = F::COUNT * (int)job.team;
    span at = span_of(job, row, (int)(item - row * across) * stretch + (int)lane);
    raw<F::WIDE> v[F::COUNT];
    scales_of<F> s;
    uint32_t most = 0;
    fetch_span<F>(at, v);
    if (F::UNITS == GROUP) {
        most = own_groups<F, SUMS>(job, at, v, s);
    } else if (F::UNITS == BLOCK) {
        read_blocks<F>(job, at, s);
        most = SUMS ? look_at<F>(job, at, v).most : 0;
    } else if (F::UNITS == ROW) {
        sight seen = look_at<F>(job, at, v);
        most = seen.most;
        s.of[0] = own_row<F>(job, lane, seen, at);
    } else {
        s.of[0] = find_scale(job, row, 0);
        most = SUMS ? look_at<F>(job, at, v).most : 0;
    }
    while (true) {
        encode_span<F, SUMS>(all, job, at, v, s, most);
        at.advance(stretch);
        if (F::UNITS != ROW || at.left + (int)lane <= 0) {
            return;
        }
        fetch_span<F>(at, v);
        most = look_at<F>(job, at, v).most;
    }
}

// There are as many blocks as items need, and items and a row's octets are fewer than 2^31.
template <class F, bool SUMS>
__device__ __forceinline__ void encode_whole(const ceni_codec_job &job) {
    bool warps = job.team == WARP;
    unsigned lane = warps ? threadIdx.x % WARP : threadIdx.x, per = warps ? blockDim.x / WARP : 1;
    uint32_t item = blockIdx.x * per + (warps ? threadIdx.x / WARP : 0);
    if (item < job.items) { // by whole warps, and by whole blocks if a block is a team
        // Where scales were made before, the cache still has the end of what was read for them.
        encode_item<F, SUMS>(job, F::OWN ? item : (uint32_t)job.items - 1 - item, lane);
    }
}

// ---- decoding ----

// What a thread decodes at once: four elements where they are FP32, so that a warp's stores lie
// without gaps, else an octet.
template <class F> struct piece {
    static constexpr int SIZE = F::WIDE ? 4 : 8, COUNT = CENI_CODEC_BATCH * EIGHT / SIZE;
    static constexpr int BYTES = SIZE * (int)F::BITS / 8;
};

template <class F> __device__ __forceinline__ void fetch_piece(uint64_t at, uint32_t w[4]) {
    constexpr int BYTES = piece<F>::BYTES;
    if (BYTES == 16) {
        uint4 v = __ldg((const uint4 *)at);
        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else if (BYTES == 8) {
        uint2 v = __ldg((const uint2 *)at);
        w[0] = v.x, w[1] = v.y;
    } else {
        w[0] = BYTES == 4 ? __ldg((const uint32_t *)at) : __ldg((const uint16_t *)at);
    }
}

template <class F>
__device__ __forceinline__ void decode_piece(const ceni_codec_job &job, uint64_t to,
                                             const uint32_t w[4], const scale &s) {
    constexpr int SIZE = piece<F>::SIZE;
    float y[SIZE];
    if (!F::CAST && s.tame()) {
        calm_scale calm = {s};
        value<SIZE>(job, w, calm, y);
    } else {
        value<SIZE>(job, w, s, y);
    }
    if constexpr (F::WIDE) {
#pragma unroll
        for (int k = 0; k < SIZE; k++) {
            y[k] = F::INT && s.tame() ? y[k] : one_nan(y[k]);
        }
        *(float4 *)to = make_float4(y[0], y[1], y[2], y[3]);
    } else {
        uint32_t both[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            both[k] = F::DTYPE == CEN_FP16 ? to_f16(y[2 * k], y[2 * k + 1])
                                           : to_bf16(y[2 * k], y[2 * k + 1]);
        }
        *(uint4 *)to = make_uint4(both[0], both[1], both[2], both[3]);
    }
}

// A stretch of a row: all its codes and scales are on their way before the first is decoded.
template <class F>
__device__ __forceinline__ void decode_item(const ceni_codec_job &job, uint32_t item, int lane) {
    constexpr int SIZE = piece<F>::SIZE, COUNT = piece<F>::COUNT;
    uint32_t across = (uint32_t)job.across, row = across == 1 ? item : item / across;
    int step = (int)job.team, first = (int)(item - row * across) * COUNT * step + lane;
    int left = (int)(job.cols / SIZE) - first;
    uint64_t from = job.values + row * job.pitch, to = place(job, row, 0);
    uint32_t w[COUNT][4];
    scale s[F::UNITS == GROUP ? COUNT : 1];
    s[0] = {1.0f, 1.0f, 0};
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (i * step < left) {
            fetch_piece<F>(from + (uint64_t)(uint32_t)(first + i * step) * piece<F>::BYTES, w[i]);
        }
    }
    if (F::UNITS == GROUP) {
        uint32_t down = job.unit_rows == 1 ? row : row / (uint32_t)job.unit_rows;
        uint64_t unit = down * job.units_across;
        int pieces = (int)job.unit_cols / SIZE, shift = __ffs(pieces) - 1;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (i * step < left) {
                s[F::UNITS == GROUP ? i : 0] =
                    read_scale(job, unit + ((first + i * step) >> shift));
            }
        }
    } else if (!F::CAST) {
        s[0] = find_scale(job, row, 0);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (i * step < left) {
            decode_piece<F>(job, to + (uint64_t)(uint32_t)(first + i * step) * 16, w[i],
                            s[F::UNITS == GROUP ? i : 0]);
        }
    }
}

template <class F> __device__ __forceinline__ void decode_whole(const ceni_codec_job &all) {
    const ceni_codec_job job = narrowed<F>(all);
    bool warps = job.team == WARP;
    uint32_t per = warps ? blockDim.x / WARP : 1;
    uint32_t item = blockIdx.x * per + (warps ? threadIdx.x / WARP : 0);
    if (item < job.items) {
        decode_item<F>(job, item, (int)(warps ? threadIdx.x % WARP : threadIdx.x));
    }
}

// ---- columns ----

// Scales of eight columns, all of them tame.
struct calm_scales8 {
    const scales8 &all;

    __device__ const scale &at(int k) const {
        return all.of[k];
    }
    __device__ bool tame() const {
        return true;
    }
};

// An octet a thread, down so many rows at once.
template <class F, bool ENCODE>
__device__ __forceinline__ void column_rows(const ceni_codec_job &job, uint32_t row, uint32_t octet,
                                            const scales8 &s, bool tame) {
    constexpr int COUNT = F::COUNT;
    raw<F::WIDE> v[COUNT];
    uint32_t w[COUNT][4];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint64_t at = place(job, row + i, octet * (uint64_t)EIGHT);
        uint64_t codes = values_at(job, row + i, octet * (uint64_t)EIGHT);
        if (row + i < job.rows && ENCODE) {
            fetch_whole<F::WIDE>(at, v[i]);
        } else if (row + i < job.rows) {
            load_codes(job, codes, EIGHT, w[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint64_t at = place(job, row + i, octet * (uint64_t)EIGHT);
        uint64_t codes = values_at(job, row + i, octet * (uint64_t)EIGHT);
        float x[EIGHT];
        if (row + i >= job.rows) {
            return;
        }
        if (ENCODE) {
            expand<F::WIDE>(job, v[i], x);
            code<EIGHT>(job, x, s, w[i]);
            store_codes(job, codes, EIGHT, w[i]);
        } else if (tame) {
            value<EIGHT>(job, w[i], calm_scales8{s}, x);
            store8(job, at, EIGHT, x);
        } else {
            value<EIGHT>(job, w[i], s, x);
            store8(job, at, EIGHT, x);
        }
    }
}

// A block's item is CENI_CODEC_EACH_ROWS rows by an octet a thread. Columns are of all rows.
template <class F, bool ENCODE>
__device__ __forceinline__ void columns_whole(const ceni_codec_job &all) {
    const ceni_codec_job job = narrowed<F>(all);
    uint32_t octets = (uint32_t)(job.cols / EIGHT), across = (octets + blockDim.x - 1) / blockDim.x;
    uint32_t block = gridDim.x - 1 - blockIdx.x; // the cache may have the end, from making scales
    uint32_t octet = block % across * blockDim.x + threadIdx.x;
    uint32_t first = block / across * CENI_CODEC_EACH_ROWS;
    scales8 s;
    bool tame = true;
    if (octet >= octets) {
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        s.of[k] = read_scale(job, octet * (uint64_t)EIGHT + k);
        tame = tame && s.of[k].tame();
    }
#pragma unroll 1
    for (uint32_t i = 0; i < CENI_CODEC_EACH_ROWS && first + i < job.rows; i += F::COUNT) {
        column_rows<F, ENCODE>(job, first + i, octet, s, tame);
    }
}

// The largest sizes of columns, without zero points: `team` neighbouring threads have an octet of
// columns each and run down the rows, as do all others of the block's, who meet at the end.
template <bool WIDE> __device__ void column_most(const ceni_codec_job &job) {
    constexpr int COUNT = batch<WIDE>() * 2, WORDS = WIDE ? 8 : 4, STRIP = 64;
    __shared__ uint32_t tops[WARP][STRIP];
    uint32_t lanes = job.team, lane = threadIdx.x % lanes, parts = blockDim.x / lanes;
    uint64_t col = ((uint64_t)blockIdx.x * lanes + lane) * EIGHT;
    raw<WIDE> most = {};
    float tall[EIGHT];
    for (uint64_t row = threadIdx.x / lanes; col < job.cols && row < job.rows;
         row += COUNT * parts) {
        raw<WIDE> v[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            v[i] = {};
            if (row + i * parts < job.rows) {
                fetch_whole<WIDE>(place(job, row + i * parts, col), v[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
#pragma unroll
            for (int k = 0; k < WORDS; k++) {
                most.w[k] = WIDE ? max(most.w[k], v[i].w[k] & MAGNITUDE)
                                 : __vmaxu2(most.w[k], v[i].w[k] & 0x7FFF7FFFu);
            }
        }
    }
    bool finite = is_finite(largest<WIDE>(job, larger<WIDE>(0, most)));
    expand<WIDE>(job, most, tall);
    if (!finite) { // once more, by those that are
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            tall[k] = 0;
        }
        for (uint64_t row = threadIdx.x / lanes; row < job.rows; row += parts) {
            raw<WIDE> v;
            float x[EIGHT];
            fetch_whole<WIDE>(place(job, row, col), v);
            expand<WIDE>(job, v, x);
#pragma unroll
            for (int k = 0; k < EIGHT; k++) {
                tall[k] = is_finite(x[k]) ? fmaxf(tall[k], fabsf(x[k])) : tall[k];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        for (uint32_t step = lanes; step < WARP; step *= 2) {
            tall[k] = fmaxf(tall[k], __shfl_xor_sync(ALL, tall[k], (int)step));
        }
        if (threadIdx.x % WARP < lanes) {
            tops[threadIdx.x / WARP][lane * EIGHT + k] = __float_as_uint(tall[k]);
        }
    }
    __syncthreads();
    uint64_t mine = (uint64_t)blockIdx.x * lanes * EIGHT + threadIdx.x;
    if (threadIdx.x < lanes * EIGHT && mine < job.cols) {
        uint32_t top = 0;
        for (unsigned warp = 0; warp < blockDim.x / WARP; warp++) {
            top = max(top, tops[warp][threadIdx.x]);
        }
        write_scale(job, mine, scale_of(job, {0.0f, __uint_as_float(top)}));
    }
}

} // namespace codec
