// Scales that are made of whole octets: of a row, of groups, of blocks.
#pragma once

#include "kernels/codec_form.cuh"

namespace codec {

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

} // namespace codec
