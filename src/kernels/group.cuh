// The threads that share a row: blockDim.x of them, a multiple of 32. What they have
// together is the same in each of them, and the same each time.
#ifndef CENI_KERNELS_GROUP_CUH
#define CENI_KERNELS_GROUP_CUH

#include <stdint.h>

namespace cen_group {

struct add {
    static constexpr float none = 0;
    static __device__ __forceinline__ float of(float a, float b) {
        return a + b;
    }
};

struct largest {
    static constexpr float none = -INFINITY;
    static __device__ __forceinline__ float of(float a, float b) {
        return fmaxf(a, b);
    }
};

template <typename Op> __device__ __forceinline__ float over_warp(float v) {
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) {
        v = Op::of(v, __shfl_xor_sync(0xFFFFFFFFu, v, lanes));
    }
    return v;
}

// All threads of the block call it.
template <typename Op> __device__ __forceinline__ float over_group(float v) {
    __shared__ float parts[32];
    v = over_warp<Op>(v);
    uint32_t warps = blockDim.x / 32;
    if (warps > 1) {
        uint32_t warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
        __syncthreads(); // until all have read what was there before
        if (!lane) {
            parts[warp] = v;
        }
        __syncthreads();
        v = over_warp<Op>(lane < warps ? parts[warp / warps * warps + lane] : Op::none);
    }
    return v;
}

// N values at once, with one barrier: `turn` says in which of two places they meet, and goes on to the
// other. All threads of the block call it.
template <typename Op, int N>
__device__ __forceinline__ void over_group(float (&v)[N], uint32_t &turn) {
    __shared__ float parts[2][N][32];
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            v[n] = Op::of(v[n], __shfl_xor_sync(0xFFFFFFFFu, v[n], lanes));
        }
    }
    uint32_t warps = blockDim.x / 32;
    if (warps == 1) {
        return;
    }
    uint32_t warp = (threadIdx.y * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++) {
        if (!lane) {
            parts[turn][n][warp] = v[n];
        }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; n++) {
        v[n] = over_warp<Op>(lane < warps ? parts[turn][n][warp / warps * warps + lane] : Op::none);
    }
    turn ^= 1;
}

} // namespace cen_group

#endif
