// The threads that share a row: blockDim.x of them, a power of two from 32 on. What they have
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

} // namespace cen_group

#endif
