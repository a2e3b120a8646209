// What the kernels along rows share.
#ifndef CENI_KERNELS_ROWS_CUH
#define CENI_KERNELS_ROWS_CUH

#include <stdint.h>

namespace cen_rows {

// The bits of magnitudes order as they do, NaN above all.
struct larger {
    static constexpr float none = 0;
    static __device__ __forceinline__ float of(float a, float b) {
        return __uint_as_float(umax(__float_as_uint(a), __float_as_uint(b)));
    }
};

// exp(x) of x <= 0. What would be subnormal is 0: the largest is 1, and counts 2^126 times as much.
__device__ __forceinline__ float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}

// From what exponents of a row are taken whose largest element is `most`.
__device__ __forceinline__ float base_of(float most) {
    return most == -INFINITY ? 0 : most;
}

__device__ __forceinline__ void give(uint64_t to, uint64_t stride, uint64_t row, float value) {
    if (to) {
        ((float *)to)[row * stride] = value;
    }
}

} // namespace cen_rows

#endif
