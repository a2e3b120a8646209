// How sums of wgmma become elements of D of the operands' type where D, its rows and what goes with
// them lie at multiples of 16 bytes: a warp takes its 16 rows 64 columns at a time, in registers,
// lays them into shared memory as the copy engine takes them, and goes on while that writes them.
//
// A warp has two boxes in shared memory, used in turn. What is added, C or a residual, comes in
// whole rows into the box that the results then leave from, one box ahead in registers.
#ifndef CENI_KERNELS_WGMMA_FINISH_CUH
#define CENI_KERNELS_WGMMA_FINISH_CUH

#include "kernels/wgmma.cuh"

namespace product {

enum { OUT_COLS = 64, OUT_BYTES = CENI_WGMMA_OUT_ROWS * 128, OUT_GROUPS = OUT_COLS / 8 };

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <bool BF16> __device__ __forceinline__ float2 floats_of(uint32_t halves) {
    return BF16 ? make_float2(__uint_as_float(halves << 16), __uint_as_float(halves & 0xffff0000u))
                : make_float2(float_of_f16((uint16_t)halves), float_of_f16(halves >> 16));
}

__device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float one_over(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The larger; NaN if x is.
__device__ __forceinline__ float at_least(float x, float least) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(least));
    return y;
}

// 1 + e^(-2 u), of u as GELU takes the tanh of it, but no more than 2^62; of NaN, that.
__device__ __forceinline__ float gelu_divisor(float x) {
    const float linear = -2.30220818f, cubic = -0.10294324f; // -2 sqrt(2 / pi) log2(e), by 0.044715
    return fminf(1 + exp2_of(x * fmaf(x * x, cubic, linear)), 0x1p62f);
}

// Of two at once, since one reciprocal then does. What is far below 0 is taken for -64, whose
// result is less than 2^-55.
__device__ __forceinline__ void gelu_tanh_two(float &x, float &y) {
    float a = gelu_divisor(x), b = gelu_divisor(y), r = one_over(a * b);
    x = at_least(x, -64) * (r * b);
    y = at_least(y, -64) * (r * a);
}

// Which of what is added to a product a warp brings: C or the residual; the plain way takes both.
struct addend {
    uint64_t base, stride;
    uint4 parts[4]; // a lane's of a box: parts of 16 bytes, of rows 4 apart

    __device__ __forceinline__ explicit addend(const args &p) {
        base = p.residual ? p.residual : p.beta != 0 ? p.c : 0;
        stride = p.residual ? p.residual_stride : p.c_stride;
    }

    __device__ __forceinline__ bool any() const {
        return base != 0;
    }

    // Those of two boxes side by side set out for L2.
    __device__ __forceinline__ void announce(const args &p, uint32_t row, uint32_t col) const {
        uint32_t lane = threadIdx.x % 32, at = col + lane / 16 * OUT_COLS;
        if (row + lane % 16 < p.m && at < p.n) {
            prefetch_far(base + ((uint64_t)(row + lane % 16) * stride + at) * 2);
        }
    }

    __device__ __forceinline__ void load(const args &p, uint32_t row, uint32_t col) {
        uint32_t lane = threadIdx.x % 32, at = col + lane % 8 * 8;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t own = row + lane / 8 + i * 4;
            parts[i] = make_uint4(0, 0, 0, 0);
            if (own < p.m && at < p.n) {
                parts[i] = cen_vector::load_16(base + ((uint64_t)own * stride + at) * 2);
            }
        }
    }

    __device__ __forceinline__ void put(uint32_t box) const {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t own = lane / 8 + i * 4;
            store_shared_16(box + own * 128 + ((lane % 8 ^ own % 8) << 4), parts[i]);
        }
        __syncwarp();
    }
};

// Where a lane's row of two groups of 8 columns lies in a box, for what loads or stores four
// matrices: rows 0 to 7 and 8 to 15 of the first group, then of the second.
__device__ __forceinline__ uint32_t group_pair(uint32_t box, uint32_t group) {
    uint32_t lane = threadIdx.x % 32;
    return box + lane % 16 * 128 + (((group + lane / 16) ^ lane % 8) << 4);
}

// A lane's sums of a box: of each group of 8 columns two of a row, and two 8 rows below. `col` is
// the first of its columns.
template <bool BF16>
__device__ __forceinline__ void scale_and_bias(const args &p, float *v, uint32_t col) {
    float2 bias[OUT_GROUPS];
#pragma unroll
    for (uint32_t i = 0; i < OUT_GROUPS; i++) {
        bias[i] = make_float2(0, 0);
    }
    if (p.bias && p.bias_type == CEN_FP32) {
#pragma unroll
        for (uint32_t i = 0; i < OUT_GROUPS; i++) {
            if (col + i * 8 < p.n) {
                bias[i] = __ldg((const float2 *)((const float *)p.bias + col + i * 8));
            }
        }
    } else if (p.bias) {
#pragma unroll
        for (uint32_t i = 0; i < OUT_GROUPS; i++) {
            if (col + i * 8 < p.n) {
                bias[i] = floats_of<BF16>(
                    __ldg((const uint32_t *)((const uint16_t *)p.bias + col + i * 8)));
            }
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < OUT_GROUPS * 4; i++) {
        v[i] = fmaf(v[i], p.alpha, i % 2 ? bias[i / 4].y : bias[i / 4].x);
    }
}

template <bool BF16> __device__ __forceinline__ void add_box(float *v, uint32_t box, float factor) {
#pragma unroll
    for (uint32_t i = 0; i < OUT_GROUPS; i += 2) {
        uint32_t words[4];
        load_matrices(group_pair(box, i), words);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            float2 more = floats_of<BF16>(words[j]);
            v[i * 4 + j * 2] = fmaf(factor, more.x, v[i * 4 + j * 2]);
            v[i * 4 + j * 2 + 1] = fmaf(factor, more.y, v[i * 4 + j * 2 + 1]);
        }
    }
}

template <uint8_t ACTIVATION> __device__ __forceinline__ void activate_each(float *v) {
#pragma unroll
    for (uint32_t i = 0; i < OUT_GROUPS * 4; i++) {
        v[i] = activate(v[i], ACTIVATION);
    }
}

__device__ __forceinline__ void activate_box(const args &p, float *v) {
    if (p.activation == CENI_ACT_RELU) {
        activate_each<CENI_ACT_RELU>(v);
    } else if (p.activation == CENI_ACT_GELU) {
        activate_each<CENI_ACT_GELU>(v);
    } else if (p.activation == CENI_ACT_GELU_TANH) {
#pragma unroll
        for (uint32_t i = 0; i < OUT_GROUPS * 4; i += 2) {
            gelu_tanh_two(v[i], v[i + 1]);
        }
    }
}

template <bool BF16> __device__ __forceinline__ void put_box(const float *v, uint32_t box) {
#pragma unroll
    for (uint32_t i = 0; i < OUT_GROUPS; i += 2) {
        uint32_t words[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            words[j] = halves_of<BF16>(v[i * 4 + j * 2], v[i * 4 + j * 2 + 1]);
        }
        store_matrices(group_pair(box, i), words);
    }
}

// A warp's sums of 16 rows from `row` on, and COLS columns from `col` on. `out` is where its boxes
// lie; `more` has been loaded for the first, if there is any.
template <bool BF16, int COLS>
__device__ __forceinline__ void finish_boxes(const args &p, float (&sums)[COLS / 2], addend &more,
                                             uint32_t out, const tensor_map *map, uint32_t row,
                                             uint32_t col) {
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < COLS / OUT_COLS; i++) {
        float *v = sums + i * OUT_GROUPS * 4;
        uint32_t box = out + i % 2 * OUT_BYTES, first = col + i * OUT_COLS;
        if (lane == 0) {
            boxes_wait<1>();
        }
        __syncwarp();
        if (more.any()) {
            more.put(box);
            if (i + 1 < COLS / OUT_COLS) {
                more.load(p, row, first + OUT_COLS);
            }
        }
        scale_and_bias<BF16>(p, v, first + lane % 4 * 2);
        if (more.any() && !p.residual) {
            add_box<BF16>(v, box, p.beta);
        }
        activate_box(p, v);
        if (p.residual) {
            add_box<BF16>(v, box, 1);
        }
        put_box<BF16>(v, box);
        stores_seen_by_engines();
        __syncwarp();
        if (lane == 0) {
            if (row < p.m && first < p.n) {
                store_box(map, box, first, row);
            }
            boxes_commit();
        }
    }
}

#endif

} // namespace product

#endif
