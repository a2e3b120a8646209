// Products of FP32 on the arithmetic units, without TF32: the rungs of the ladder of
// docs/products.md, and what is at its top.
//
// There a block of 256 threads makes a tile of 128 x 128, each thread four blocks of 4 x 4 of it.
// Tiles of A and B of depth 16 lie in shared memory as [depth][row or column], two of each: while one
// is multiplied, cp.async fills the other. What lies along the sum in memory is turned on its way,
// 4 bytes at a time; what lies across is copied 16 bytes at a time where it is aligned.

#include "kernels/product.cuh"

namespace product {

// Element (row, k) of op(A), and (k, col) of op(B).
__device__ __forceinline__ float element_a(const args &p, uint32_t row, uint32_t k) {
    const float *a = (const float *)p.a;
    return p.transpose_a ? a[(uint64_t)k * p.a_stride + row] : a[(uint64_t)row * p.a_stride + k];
}

__device__ __forceinline__ float element_b(const args &p, uint32_t k, uint32_t col) {
    const float *b = (const float *)p.b;
    return p.transpose_b ? b[(uint64_t)col * p.b_stride + k] : b[(uint64_t)k * p.b_stride + col];
}

__device__ inline void finish_one(const args &p, uint32_t row, uint32_t col, float sum) {
    float v[1][4] = {{sum}};
    if (row < p.m && col < p.n) {
        finish_rows<false, 1>(p, v, row, col, 1);
    }
}

__device__ inline void one_thread_one_element(const args &p, uint32_t row, uint32_t col) {
    float sum = 0;
    if (row < p.m && col < p.n) {
        for (uint32_t k = 0; k < p.k; k++) {
            sum += element_a(p, row, k) * element_b(p, k, col);
        }
    }
    finish_one(p, row, col, sum);
}

enum {
    TILE = CENI_SIMT_TILE,
    DEPTH = CENI_FP32_DEPTH,
    PITCH = CENI_SIMT_TILE + 4,
    TILE_BYTES = DEPTH * PITCH * 4
};

__device__ __forceinline__ uint32_t left_of(uint32_t end, uint32_t from) {
    return from < end ? end - from : 0;
}

// How a tile of one operand gets into shared memory, of which each thread knows its own part. ALONG:
// it lies along the sum in memory. A warp then takes 8 steps of the sum by 4 rows: neither banks nor
// sectors are met twice.
template <bool ALONG> struct fp32_tile {
    const float *from;
    uint64_t stride;
    uint32_t left, depth; // rows or columns, and steps of the sum, from the thread's first on
    uint32_t to;          // the thread's first place

    __device__ __forceinline__ fp32_tile(uint64_t base, uint64_t rows_apart, uint32_t first,
                                         uint32_t end, uint32_t steps, bool) {
        uint32_t mn = threadIdx.x / 32 * 4 + threadIdx.x % 32 / 8, at = threadIdx.x % 8;
        from = (const float *)base + (uint64_t)(first + mn) * rows_apart + at;
        stride = rows_apart;
        left = left_of(end, first + mn);
        depth = left_of(steps, at);
        to = (at * PITCH + mn) * 4;
    }

    __device__ __forceinline__ void load(uint32_t shared, uint32_t k) const {
        const float *now = from + k;
        shared += to;
#pragma unroll
        for (uint32_t i = 0; i < TILE / 32; i++, now += 32 * stride) {
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                bool valid = i * 32 < left && k + half * 8 < depth;
                copy_4(shared + (half * 8 * PITCH + i * 32) * 4, now + half * 8, valid);
            }
        }
    }
};

template <> struct fp32_tile<false> {
    const float *from;
    uint64_t stride;
    uint32_t left, depth, to;
    bool wide;

    __device__ __forceinline__ fp32_tile(uint64_t base, uint64_t rows_apart, uint32_t first,
                                         uint32_t end, uint32_t steps, bool aligned) {
        uint32_t mn = aligned ? threadIdx.x % 32 * 4 : threadIdx.x % TILE;
        uint32_t at = threadIdx.x / (aligned ? 32 : TILE);
        wide = aligned;
        from = (const float *)base + (uint64_t)at * rows_apart + first + mn;
        stride = rows_apart;
        left = left_of(end, first + mn);
        depth = left_of(steps, at);
        to = (at * PITCH + mn) * 4;
    }

    __device__ __forceinline__ void load(uint32_t shared, uint32_t k) const {
        const float *now = from + k * stride;
        shared += to;
        if (wide) {
            uint32_t bytes = left < 4 ? left * 4 : 16;
#pragma unroll
            for (uint32_t at = 0; at < DEPTH; at += 8, now += 8 * stride) {
                copy_16(shared + at * PITCH * 4, now, k + at < depth ? bytes : 0);
            }
        } else {
#pragma unroll
            for (uint32_t at = 0; at < DEPTH; at += 2, now += 2 * stride) {
                copy_4(shared + at * PITCH * 4, now, left && k + at < depth);
            }
        }
    }
};

// The same for the gathered A of a convolution; tiles are loaded in order.
struct fp32_gathered {
    const ceni_conv_args *conv;
    const gathered_row *rows;
    tap at;

    __device__ __forceinline__ void load(uint32_t shared, uint32_t) {
        uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const float *base = (const float *)conv->product.a;
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
#pragma unroll
            for (uint32_t i = 0; i < TILE / 32; i++) {
                uint32_t row = i * 32 + warp * 4 + lane / 8;
                uint64_t index;
                bool valid = at.element(*conv, rows[row], &index);
                copy_4(shared + ((half * 8 + lane % 8) * PITCH + row) * 4,
                       valid ? base + index : base, valid);
            }
            at.advance(*conv, 8);
        }
    }
};

// A thread's place in its block's tile: warps are 4 x 2, of 32 x 64; lanes 4 x 8, such that each
// quarter of a warp reads two rows and four columns.
struct thread_place {
    uint32_t row, col;

    __device__ thread_place() {
        uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        row = warp / 2 * 32 + ((lane & 1) | (lane >> 2 & 2)) * 4;
        col = warp % 2 * 64 + ((lane >> 1 & 3) | (lane >> 2 & 4)) * 4;
    }
};

__device__ __forceinline__ void read_eight(float v[8], const float *from, uint32_t apart) {
    float4 low = *(const float4 *)from, high = *(const float4 *)(from + apart);
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
}

__device__ __forceinline__ void multiply_tile(float sums[8][8], const float *a, const float *b) {
#pragma unroll
    for (uint32_t k = 0; k < DEPTH; k++) {
        float x[8], y[8];
        read_eight(x, a + k * PITCH, 16);
        read_eight(y, b + k * PITCH, 32);
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                sums[i][j] += x[i] * y[j];
            }
        }
    }
}

__device__ __forceinline__ place fp32_place(const args &p, uint32_t block) {
    return place_of(block, tiles_of(p.m, TILE), tiles_of(p.n, TILE));
}

// The four blocks of 4 x 4 of all threads of a warp are four of 16 x 32.
__device__ __forceinline__ void finish_tile(const args &p, float sums[8][8], float *shared,
                                            thread_place at) {
    place tile = fp32_place(p, block_again());
    uint32_t warp = threadIdx.x / 32;
    float *stage = shared + warp * (CENI_STAGE_BYTES / 4);
#pragma unroll 1 // what finishes is there once; sums are chosen by constants all the same
    for (uint32_t part = 0; part < 4; part++) {
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            const float *s = &sums[i / 8 * 4 + i % 4][i / 4 % 2 * 4];
            if (i / 4 == part) {
                *(float4 *)(stage + (at.row % 16 + i % 4) * CENI_STAGE_STRIDE + at.col % 32) =
                    make_float4(s[0], s[1], s[2], s[3]);
            }
        }
        finish_stage<false>(p, stage, tile.row * TILE + warp / 2 * 32 + part / 2 * 16,
                            tile.col * TILE + warp % 2 * 64 + part % 2 * 32);
    }
}

template <typename A, typename B>
__device__ __forceinline__ void run_fp32(const args &p, A &a, const B &b, float *shared) {
    const thread_place at;
    float sums[8][8] = {};
    uint32_t tiles = tiles_of(p.k, DEPTH);
    const uint32_t ring = shared_address(shared);
    if (tiles) {
        a.load(ring, 0);
        b.load(ring + 2 * TILE_BYTES, 0);
        copies_commit();
    }
    for (uint32_t t = 0; t < tiles; t++) {
        const float *now = shared + t % 2 * (TILE_BYTES / 4);
        uint32_t next = ring + (t + 1) % 2 * TILE_BYTES;
        copies_wait<0>();
        __syncthreads(); // this tile is there, and nobody reads the one before any more
        if (t + 1 < tiles) {
            a.load(next, (t + 1) * DEPTH);
            b.load(next + 2 * TILE_BYTES, (t + 1) * DEPTH);
            copies_commit();
        }
        multiply_tile(sums, now + at.row, now + 2 * (TILE_BYTES / 4) + at.col);
    }
    __syncthreads();
    finish_tile(p, sums, shared, at);
}

template <bool A_ALONG, bool B_ALONG> __device__ __forceinline__ void product_fp32(const args &p) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    place tile = fp32_place(p, blockIdx.x);
    fp32_tile<A_ALONG> a(p.a, p.a_stride, tile.row * TILE, p.m, p.k, p.wide & CENI_WIDE_A);
    fp32_tile<B_ALONG> b(p.b, p.b_stride, tile.col * TILE, p.n, p.k, p.wide & CENI_WIDE_B);
    run_fp32(p, a, b, (float *)dynamic);
}

} // namespace product

#define CENI_FP32(name, a_along, b_along)                                                          \
    extern "C" __global__ void __launch_bounds__(CENI_TILE_THREADS, 2)                             \
        cen_product_fp32_##name(const __grid_constant__ ceni_product_args p) {                     \
        product::product_fp32<a_along, b_along>(p);                                                \
    }
CENI_FP32(nn, true, false)
CENI_FP32(nt, true, true)
CENI_FP32(tn, false, false)
CENI_FP32(tt, false, true)
#undef CENI_FP32

extern "C" __global__ void __launch_bounds__(CENI_TILE_THREADS, 2)
    cen_conv_fp32(const __grid_constant__ ceni_conv_args c) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    const ceni_product_args &p = c.product;
    product::gathered_row *rows = (product::gathered_row *)(dynamic + CENI_FP32_SHARED);
    product::place tile = product::fp32_place(p, blockIdx.x);
    product::gather_rows(c, tile.row * CENI_SIMT_TILE, rows);
    __syncthreads();
    product::fp32_gathered a = {&c, rows, {}};
    a.at.begin(c, threadIdx.x % 8);
    product::fp32_tile<true> b(p.b, p.b_stride, tile.col * CENI_SIMT_TILE, p.n, p.k, false);
    product::run_fp32(p, a, b, (float *)dynamic);
}

// Neighbouring threads take neighbouring rows: each access of a warp touches 32 rows.
extern "C" __global__ void __launch_bounds__(1024)
    cen_product_naive(const __grid_constant__ ceni_product_args p) {
    product::place tile = product::place_of(blockIdx.x, product::tiles_of(p.m, CENI_LADDER_TILE),
                                            product::tiles_of(p.n, CENI_LADDER_TILE));
    product::one_thread_one_element(p, tile.row * CENI_LADDER_TILE + threadIdx.x % CENI_LADDER_TILE,
                                    tile.col * CENI_LADDER_TILE + threadIdx.x / CENI_LADDER_TILE);
}

// Neighbouring threads take neighbouring columns.
extern "C" __global__ void __launch_bounds__(1024)
    cen_product_coalesced(const __grid_constant__ ceni_product_args p) {
    product::place tile = product::place_of(blockIdx.x, product::tiles_of(p.m, CENI_LADDER_TILE),
                                            product::tiles_of(p.n, CENI_LADDER_TILE));
    product::one_thread_one_element(p, tile.row * CENI_LADDER_TILE + threadIdx.x / CENI_LADDER_TILE,
                                    tile.col * CENI_LADDER_TILE + threadIdx.x % CENI_LADDER_TILE);
}

// Tiles of 32 x 32 are read once into shared memory, and 32 times from there.
extern "C" __global__ void __launch_bounds__(1024)
    cen_product_shared(const __grid_constant__ ceni_product_args p) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    enum { SIDE = CENI_LADDER_TILE };
    float *tile_a = (float *)dynamic, *tile_b = tile_a + SIDE * SIDE, sum = 0;
    product::place tile =
        product::place_of(blockIdx.x, product::tiles_of(p.m, SIDE), product::tiles_of(p.n, SIDE));
    uint32_t y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    uint32_t row = tile.row * SIDE + y, col = tile.col * SIDE + x;
    for (uint32_t k = 0; k < p.k; k += SIDE) {
        tile_a[y * SIDE + x] = row < p.m && k + x < p.k ? product::element_a(p, row, k + x) : 0;
        tile_b[y * SIDE + x] = col < p.n && k + y < p.k ? product::element_b(p, k + y, col) : 0;
        __syncthreads();
#pragma unroll
        for (uint32_t i = 0; i < SIDE; i++) {
            sum += tile_a[y * SIDE + i] * tile_b[i * SIDE + x];
        }
        __syncthreads();
    }
    product::finish_one(p, row, col, sum);
}
