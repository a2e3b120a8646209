// Whole octets of which each column has its scale.
#pragma once

#include "kernels/codec_batch.cuh"

namespace codec {

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
