// Products on the tensor cores of sm_80 and later: mma.sync of BF16, FP16 and INT8, of any shape,
// stride and alignment; and convolutions, whose A is gathered on the way.
//
// A block of 256 threads makes a tile of 128 x 128, each of its warps 64 x 32 of it. Tiles of A and
// B, 64 bytes of the sum deep, go through a ring of four stages of shared memory, where they lie as
// product_mma.cuh says.

#include "kernels/product_mma.cuh"

namespace product {

// As mma_tile does, the gathered A of a convolution, along the sum; tiles are loaded in order. A
// thread keeps to one part of the rows, or to one step.
struct mma_gathered {
    enum { DEPTH = ROW_BYTES / 2, PART = 8 };
    const ceni_conv_args *conv;
    const gathered_row *rows;
    tap at;
    bool wide;

    __device__ __forceinline__ void begin(const ceni_conv_args &c, gathered_row *gathered) {
        conv = &c;
        rows = gathered;
        wide = (c.product.wide & CENI_WIDE_A) != 0;
        at.begin(c, wide ? threadIdx.x % PARTS * PART : threadIdx.x % DEPTH);
    }

    __device__ __forceinline__ void load(unsigned char *to, uint32_t) {
        const uint16_t *base = (const uint16_t *)conv->product.a;
        uint64_t index;
        if (wide) {
            uint32_t part = threadIdx.x % PARTS;
#pragma unroll
            for (uint32_t i = 0; i < OPERAND_BYTES / 16 / CENI_TILE_THREADS; i++) {
                uint32_t row = threadIdx.x / PARTS + i * (CENI_TILE_THREADS / PARTS);
                bool valid = at.element(*conv, rows[row], &index);
                copy_16(shared_address(to) + along_at(row, part), valid ? base + index : base,
                        valid ? 16 : 0);
            }
        } else {
            uint32_t step = threadIdx.x % DEPTH;
#pragma unroll 4
            for (uint32_t row = threadIdx.x / DEPTH; row < MMA_TILE;
                 row += CENI_TILE_THREADS / DEPTH) {
                bool valid = at.element(*conv, rows[row], &index);
                *(uint16_t *)(to + along_at(row, step / PART) + step % PART * 2) =
                    valid ? base[index] : (uint16_t)0;
            }
        }
        at.advance(*conv, DEPTH);
    }
};

__device__ __forceinline__ place mma_place(const args &p, uint32_t block) {
    return place_of(block, tiles_of(p.m, MMA_TILE), tiles_of(p.n, MMA_TILE));
}

template <typename T>
__device__ __forceinline__ void finish_mma(const args &p, typename T::sum sums[4][4][4],
                                           unsigned char *shared) {
    place tile = mma_place(p, block_again());
    uint32_t warp = threadIdx.x / 32;
    float *stage = (float *)(shared + warp * CENI_STAGE_BYTES);
#pragma unroll 1 // what finishes is there once
    for (uint32_t i = 0; i < 4; i++) {
        stage_sums<T, 4>(stage, sums, i);
        finish_stage<T::SIZE == 1>(p, stage, tile.row * MMA_TILE + warp / 4 * 64 + i * 16,
                                   tile.col * MMA_TILE + warp % 4 * 32);
    }
}

template <typename T, bool A_ALONG, bool B_ALONG, typename A, typename B>
__device__ __forceinline__ void run_mma(const args &p, A &a, const B &b, unsigned char *shared) {
    typename T::sum sums[4][4][4] = {};
    uint32_t tiles = tiles_of(p.k, ROW_BYTES / T::SIZE), warp = threadIdx.x / 32;
#pragma unroll 1
    for (uint32_t t = 0; t < CENI_MMA_STAGES - 1; t++) {
        if (t < tiles) {
            a.load(shared + t * STAGE, t);
            b.load(shared + t * STAGE + OPERAND_BYTES, t);
        }
        copies_commit();
    }
#pragma unroll 1
    for (uint32_t t = 0; t < tiles; t++) {
        uint32_t next = t + CENI_MMA_STAGES - 1;
        copies_wait<CENI_MMA_STAGES - 2>();
        __syncthreads(); // this stage is there, and nobody reads the one before any more
        if (next < tiles) {
            unsigned char *to = shared + next % CENI_MMA_STAGES * STAGE;
            a.load(to, next);
            b.load(to + OPERAND_BYTES, next);
        }
        copies_commit();
        uint32_t now = shared_address(shared) + t % CENI_MMA_STAGES * STAGE;
        multiply_slice<T, A_ALONG, B_ALONG, 4, MMA_TILE, MMA_TILE>(sums, now, now + OPERAND_BYTES,
                                                                   warp / 4 * 64, warp % 4 * 32, 0);
    }
    copies_wait<0>();
    __syncthreads();
    finish_mma<T>(p, sums, shared);
}

template <typename T, bool ALONG>
__device__ __forceinline__ mma_tile<T, ALONG> mma_tile_b(const args &p, place tile) {
    return {(const typename T::element *)p.b,
            p.b_stride,
            tile.col * MMA_TILE,
            p.n,
            p.k,
            (p.wide & CENI_WIDE_B) != 0,
            ALONG && !p.transpose_b};
}

template <typename T, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void product_mma(const args &p) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    place tile = mma_place(p, blockIdx.x);
    mma_tile<T, A_ALONG> a = mma_tile_a<T, A_ALONG, MMA_TILE, 1>(p, tile);
    mma_tile<T, B_ALONG> b = mma_tile_b<T, B_ALONG>(p, tile);
    run_mma<T, A_ALONG, B_ALONG>(p, a, b, dynamic);
}

template <typename T> __device__ __forceinline__ void conv_mma(const ceni_conv_args &c) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    const args &p = c.product;
    place tile = mma_place(p, blockIdx.x);
    gathered_row *rows = (gathered_row *)(dynamic + CENI_MMA_SHARED);
    gather_rows(c, tile.row * MMA_TILE, rows);
    __syncthreads();
    mma_gathered a;
    a.begin(c, rows);
    mma_tile<T, true> b = mma_tile_b<T, true>(p, tile);
    run_mma<T, true, true>(p, a, b, dynamic);
}

} // namespace product

#define CENI_MMA(name, type, a_along, b_along)                                                     \
    extern "C" __global__ void __launch_bounds__(CENI_TILE_THREADS, 2)                             \
        cen_product_mma_##name(const __grid_constant__ ceni_product_args p) {                      \
        product::product_mma<product::type, a_along, b_along>(p);                                  \
    }
#define CENI_CONV(type)                                                                            \
    extern "C" __global__ void __launch_bounds__(CENI_TILE_THREADS, 2)                             \
        cen_conv_mma_##type(const __grid_constant__ ceni_conv_args c) {                            \
        product::conv_mma<product::type>(c);                                                       \
    }
CENI_MMA(bf16_nn, bf16, true, false)
CENI_MMA(bf16_nt, bf16, true, true)
CENI_MMA(bf16_tn, bf16, false, false)
CENI_MMA(bf16_tt, bf16, false, true)
CENI_MMA(fp16_nn, fp16, true, false)
CENI_MMA(fp16_nt, fp16, true, true)
CENI_MMA(fp16_tn, fp16, false, false)
CENI_MMA(fp16_tt, fp16, false, true)
CENI_MMA(int8, int8, true, true)
CENI_CONV(bf16)
CENI_CONV(fp16)
#undef CENI_MMA
#undef CENI_CONV
