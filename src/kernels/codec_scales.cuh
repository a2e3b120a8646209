// Scales of units of several rows, in a pass of their own.
#pragma once

#include "kernels/codec_codes.cuh"

namespace codec {

__device__ float load_one(const ceni_codec_job &job, uint64_t row, uint64_t col) {
    uint64_t at = place(job, row, col);
    return job.dtype == CEN_FP32 ? __ldg((const float *)at)
                                 : of_half(job.dtype, __ldg((const uint16_t *)at));
}

// One column each: neighbouring threads have neighbouring columns, so that rows are read together.
__device__ void column_scales(const ceni_codec_job &job) {
    __shared__ range rows[8][33];
    unsigned lane = threadIdx.x % 32, part = threadIdx.x / 32, parts = blockDim.x / 32;
    uint64_t bands = over(job.rows, job.unit_rows), across = over(job.cols, 32);
    for (uint64_t item = blockIdx.x; item < bands * across; item += gridDim.x) {
        uint64_t band = item / across, col = item % across * 32 + lane;
        uint64_t first = band * job.unit_rows, end = first + job.unit_rows;
        range e = {0, 0};
        uint64_t last = end < job.rows ? end : job.rows;
        for (uint64_t row = first + part; row < last; row += EIGHT * parts) {
            float x[EIGHT];
#pragma unroll
            for (int k = 0; k < EIGHT; k++) {
                uint64_t at = row + k * parts;
                x[k] = at < last && col < job.cols ? load_one(job, at, col) : 0.0f;
            }
            widen(job, x, e);
        }
        rows[part][lane] = e;
        __syncthreads();
        for (unsigned p = 0; part == 0 && p < parts; p++) {
            e = wider(e, rows[p][lane]);
        }
        if (part == 0 && col < job.cols) {
            write_scale(job, band * job.units_across + col, scale_of(job, e));
        }
        __syncthreads();
    }
}

__device__ void unit_scales(const ceni_codec_job &job) {
    uint64_t bands = over(job.rows, job.unit_rows), width = over(job.unit_cols, EIGHT);
    for (uint64_t unit = blockIdx.x; unit < bands * job.units_across; unit += gridDim.x) {
        uint64_t top = unit / job.units_across * job.unit_rows;
        uint64_t left = unit % job.units_across * job.unit_cols;
        uint64_t rows = job.rows - top < job.unit_rows ? job.rows - top : job.unit_rows;
        uint64_t cols = job.cols - left < job.unit_cols ? job.cols - left : job.unit_cols;
        range e = {0, 0};
        for (uint64_t i = threadIdx.x; i < rows * width; i += blockDim.x) {
            uint64_t row = top + i / width, col = i % width * EIGHT;
            int n = col >= cols ? 0 : cols - col < EIGHT ? (int)(cols - col) : EIGHT;
            float x[EIGHT];
            load8(job, place(job, row, left + col), n, x);
            widen(job, x, e);
        }
        e = over_block(job, e);
        if (threadIdx.x == 0) {
            write_scale(job, unit, scale_of(job, e));
        }
        __syncthreads();
    }
}

// Pairs lie in `values`, which may be aligned to a byte.
__device__ void put_pair(const ceni_codec_job &job, uint64_t index, range e) {
    uint64_t bits = __float_as_uint(e.lo) | (uint64_t)__float_as_uint(e.hi) << 32;
    store_bytes(job.values + index * 8, 8, bits);
}

__device__ range get_pair(const ceni_codec_job &job, uint64_t index) {
    uint64_t bits = load_bytes(job.values + index * 8, 8);
    return {__uint_as_float((uint32_t)bits), __uint_as_float((uint32_t)(bits >> 32))};
}

} // namespace codec
