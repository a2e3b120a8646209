// What the kernels of products share: placing tiles, copies into shared memory, and what is done to
// sums on their way out.
#ifndef CENI_KERNELS_PRODUCT_CUH
#define CENI_KERNELS_PRODUCT_CUH

#include <stdint.h>

#include "cenote/dtype.h"
#include "kernels/product.h"
#include "kernels/vector.cuh"

namespace product {

typedef ceni_product_args args;

__device__ __forceinline__ uint32_t shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

// Copies `bytes` of 16 (the others become zeros) past the first-level cache; `from` is not read
// where bytes is 0.
__device__ __forceinline__ void copy_16(uint32_t to, const void *from, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

// The same through the first-level cache, of what neighbours in time want again.
__device__ __forceinline__ void copy_16_near(uint32_t to, const void *from, uint32_t bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

__device__ __forceinline__ void copy_4(uint32_t to, const void *from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 4 : 0));
}

__device__ __forceinline__ void copies_commit() {
    asm volatile("cp.async.commit_group;");
}

// Waits until at most N groups are on their way.
template <int N> __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Bytes of the 16 from element `first` on that lie before `end`.
__device__ __forceinline__ uint32_t valid_bytes(uint32_t first, uint32_t end, uint32_t size) {
    uint32_t left = first < end ? end - first : 0;
    return left * size < 16 && left < 16 ? left * size : 16;
}

struct place {
    uint32_t row, col; // of a tile, in tiles
};

// Tiles that run at the same time lie in a band `high` tiles high, so that they share what they read.
__device__ __forceinline__ place place_of(uint32_t tile, uint32_t rows, uint32_t cols,
                                          uint32_t high = CENI_RASTER) {
    uint32_t band = tile / (high * cols), first = band * high;
    uint32_t height = rows - first < high ? rows - first : high;
    uint32_t within = tile - band * high * cols;
    return {first + within % height, within / height};
}

// The block's number, read anew: it need not be kept in a register meanwhile.
__device__ __forceinline__ uint32_t block_again() {
    uint32_t block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}

__device__ __forceinline__ uint32_t tiles_of(uint32_t elements, uint32_t tile) {
    return (elements + tile - 1) / tile;
}

__device__ __forceinline__ float float_of_f16(uint16_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

// Two halves in a word, the first in the low bits.
template <bool BF16> __device__ __forceinline__ uint32_t halves_of(float low, float high) {
    uint32_t word;
    if (BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    }
    return word;
}

__device__ __forceinline__ float load_one(uint64_t base, uint8_t type, uint64_t at) {
    if (type == CEN_FP32) {
        return ((const float *)base)[at];
    }
    uint16_t half = ((const uint16_t *)base)[at];
    return type == CEN_BF16 ? __uint_as_float((uint32_t)half << 16) : float_of_f16(half);
}

// The elements at, at + 1, at + 2, at + 3; with `whole` in one access, else those before `count`.
__device__ __forceinline__ void load_four(float v[4], uint64_t base, uint8_t type, uint64_t at,
                                          bool whole, uint32_t count) {
    if (!whole) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            v[i] = i < count ? load_one(base, type, at + i) : 0;
        }
    } else if (type == CEN_FP32) {
        uint4 q = cen_vector::load_16(base + at * 4);
        v[0] = __uint_as_float(q.x), v[1] = __uint_as_float(q.y);
        v[2] = __uint_as_float(q.z), v[3] = __uint_as_float(q.w);
    } else {
        uint2 q = *(const uint2 *)((const uint16_t *)base + at);
        if (type == CEN_BF16) {
            v[0] = __uint_as_float(q.x << 16), v[1] = __uint_as_float(q.x & 0xffff0000u);
            v[2] = __uint_as_float(q.y << 16), v[3] = __uint_as_float(q.y & 0xffff0000u);
        } else {
            v[0] = float_of_f16((uint16_t)q.x), v[1] = float_of_f16((uint16_t)(q.x >> 16));
            v[2] = float_of_f16((uint16_t)q.y), v[3] = float_of_f16((uint16_t)(q.y >> 16));
        }
    }
}

__device__ __forceinline__ void store_words(uint64_t base, uint64_t at, const uint32_t v[4],
                                            bool whole, uint32_t count) {
    uint32_t *to = (uint32_t *)base + at;
    if (whole) {
        cen_vector::store_16((uint64_t)to, make_uint4(v[0], v[1], v[2], v[3]));
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if (i < count) {
            to[i] = v[i];
        }
    }
}

__device__ __forceinline__ void store_halves(uint64_t base, uint64_t at, uint32_t low,
                                             uint32_t high, bool whole, uint32_t count) {
    uint16_t *to = (uint16_t *)base + at;
    if (whole) {
        *(uint2 *)to = make_uint2(low, high);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if (i < count) {
            to[i] = (uint16_t)((i < 2 ? low : high) >> (i % 2 * 16));
        }
    }
}

__device__ __forceinline__ float activate(float x, uint8_t activation) {
    switch (activation) {
    case CENI_ACT_RELU:
        return x < 0 ? 0 : x;
    case CENI_ACT_GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678f));
    case CENI_ACT_GELU_TANH: // (1 + tanh u) / 2 = 1 / (1 + e^(-2 u))
        return __fdividef(x, 1 + __expf(-1.59576912f * (x + 0.044715f * x * x * x)));
    default:
        return x;
    }
}

// Elements of one matrix that go with `ROWS` rows of sums, 4 rows apart, and 4 columns of them: all
// of them are on their way before the first is used.
template <int ROWS>
__device__ __forceinline__ void load_rows(float v[ROWS][4], const args &p, uint64_t base,
                                          uint64_t stride, uint32_t row, uint32_t col, bool whole,
                                          uint32_t count) {
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        if (row + i * 4 < p.m) {
            load_four(v[i], base, p.output, (row + i * 4) * stride + col, whole, count);
        }
    }
}

template <int ROWS>
__device__ __forceinline__ void store_rows(const args &p, const float v[ROWS][4], uint32_t row,
                                           uint32_t col, bool whole, uint32_t count) {
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        uint64_t at = (row + i * 4) * p.d_stride + col;
        if (row + i * 4 >= p.m) {
            continue;
        }
        if (p.output == CEN_BF16) {
            store_halves(p.d, at, halves_of<true>(v[i][0], v[i][1]),
                         halves_of<true>(v[i][2], v[i][3]), whole, count);
        } else if (p.output == CEN_FP16) {
            store_halves(p.d, at, halves_of<false>(v[i][0], v[i][1]),
                         halves_of<false>(v[i][2], v[i][3]), whole, count);
        } else {
            const uint32_t words[4] = {__float_as_uint(v[i][0]), __float_as_uint(v[i][1]),
                                       __float_as_uint(v[i][2]), __float_as_uint(v[i][3])};
            store_words(p.d, at, words, whole, count);
        }
    }
}

#define CENI_EACH(statement)                                                                       \
    _Pragma("unroll") for (uint32_t i = 0; i < ROWS; i++) {                                        \
        _Pragma("unroll") for (uint32_t j = 0; j < 4; j++) {                                       \
            statement;                                                                             \
        }                                                                                          \
    }

// Sums become elements of D: rows `row`, row + 4 and so on, and columns from `col` to before the
// count-th from there, 4 at most. With INTEGER, the bits are those of whole numbers.
template <bool INTEGER, int ROWS>
__device__ __forceinline__ void finish_rows(const args &p, float v[ROWS][4], uint32_t row,
                                            uint32_t col, uint32_t count) {
    bool whole = count >= 4 && (p.wide & CENI_WIDE_D);
    float w[4], more[ROWS][4] = {};
    if (INTEGER && p.output == CEN_INT32) {
        store_rows<ROWS>(p, v, row, col, whole, count);
        return;
    }
    if (INTEGER) {
        CENI_EACH(v[i][j] = (float)__float_as_int(v[i][j]))
    }
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        float scale = p.alpha;
        if (p.row_scale && row + i * 4 < p.m) {
            scale *= ((const float *)p.row_scale)[row + i * 4];
        }
        v[i][0] *= scale, v[i][1] *= scale, v[i][2] *= scale, v[i][3] *= scale;
    }
    if (p.col_scale) {
        load_four(w, p.col_scale, CEN_FP32, col, whole, count);
        CENI_EACH(v[i][j] *= w[j])
    }
    if (p.beta != 0) {
        load_rows<ROWS>(more, p, p.c, p.c_stride, row, col, whole, count);
        CENI_EACH(v[i][j] += p.beta * more[i][j])
    }
    if (p.bias) {
        load_four(w, p.bias, p.bias_type, col, whole, count);
        CENI_EACH(v[i][j] += w[j])
    }
    if (p.activation) {
        CENI_EACH(v[i][j] = activate(v[i][j], p.activation))
    }
    if (p.residual) {
        load_rows<ROWS>(more, p, p.residual, p.residual_stride, row, col, whole, count);
        CENI_EACH(v[i][j] += more[i][j])
    }
    store_rows<ROWS>(p, v, row, col, whole, count);
}

#undef CENI_EACH

// A warp's sums of 16 rows x 32 columns lie in its stage, rows CENI_STAGE_STRIDE apart, and go out
// as rows, so that each access to D covers whole sectors. SWAPPED: the first and second of each two
// neighbours have changed places there.
template <bool INTEGER, bool SWAPPED = false>
__device__ __forceinline__ void finish_stage(const args &p, const float *stage, uint32_t row,
                                             uint32_t col) {
    uint32_t lane = threadIdx.x % 32, at = lane % 8 * 4;
    float v[4][4];
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        float4 sums = *(const float4 *)(stage + (lane / 8 + i * 4) * CENI_STAGE_STRIDE + at);
        v[i][SWAPPED] = sums.x, v[i][!SWAPPED] = sums.y;
        v[i][2 + SWAPPED] = sums.z, v[i][3 - SWAPPED] = sums.w;
    }
    if (col + at < p.n) {
        finish_rows<INTEGER, 4>(p, v, row + lane / 8, col + at, p.n - col - at);
    }
    __syncwarp();
}

// Where a row of the gathered A begins: its first pixel, which may lie outside of the input.
struct gathered_row {
    int64_t pixel;
    int32_t y, x;
};

// The 128 rows of a block's tile; rows beyond the last lie outside of the input.
__device__ inline void gather_rows(const ceni_conv_args &c, uint32_t first, gathered_row *rows) {
    for (uint32_t i = threadIdx.x; i < CENI_SIMT_TILE; i += blockDim.x) {
        uint32_t row = first + i, pixels = c.out_height * c.out_width;
        gathered_row r = {0, -(1 << 30), 0};
        if (row < c.product.m) {
            uint32_t image = row / pixels, at = row % pixels;
            r.y = (int32_t)(at / c.out_width * c.stride_y) - c.pad_y;
            r.x = (int32_t)(at % c.out_width * c.stride_x) - c.pad_x;
            r.pixel = ((int64_t)image * c.height + r.y) * c.width + r.x;
        }
        rows[i] = r;
    }
}

// A place in the sum of a convolution: a tap of the filter and a channel.
struct tap {
    uint32_t channel, x, y;

    __device__ __forceinline__ void begin(const ceni_conv_args &c, uint32_t k) {
        channel = k % c.channels;
        x = k / c.channels % c.filter_width;
        y = k / c.channels / c.filter_width;
    }

    __device__ __forceinline__ void advance(const ceni_conv_args &c, uint32_t by) {
        channel += by;
        while (channel >= c.channels) {
            channel -= c.channels;
            if (++x == c.filter_width) {
                x = 0;
                y++;
            }
        }
    }

    // The element of the input there; false: it is outside.
    __device__ __forceinline__ bool element(const ceni_conv_args &c, gathered_row r,
                                            uint64_t *index) const {
        int32_t dy = (int32_t)(y * c.dilation_y), dx = (int32_t)(x * c.dilation_x);
        int64_t pixel = r.pixel + (int64_t)dy * c.width + dx;
        *index = (uint64_t)pixel * c.channels + channel;
        return y < c.filter_height && (uint32_t)(r.y + dy) < c.height &&
               (uint32_t)(r.x + dx) < c.width;
    }
};

} // namespace product

#endif
