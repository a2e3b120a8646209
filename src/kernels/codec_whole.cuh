// Encoding and decoding whole octets, whose scales are of a row, of groups or of blocks.
#pragma once

#include "kernels/codec_batch.cuh"

namespace codec {

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

} // namespace codec
