// What products and convolutions on Hopper's tensor cores share: the shared memory of a block, the
// tiles that it walks over, boxes of an operand, and the warpgroups that multiply and finish.
//
// A block of three warpgroups stays and makes one tile of D after the other. The first warpgroup
// has a ring of stages filled, 64 steps of the sum each; the two others multiply 64 rows each,
// their sums in registers, which the first gives up for them. Two mbarriers a stage say that it is
// full, and that both have read it.
//
// A stage holds what the tensor maps lay out, rows of 128 bytes with their 16-byte parts exchanged
// by the row's number mod 8. What lies along the sum has a row for each row or column of the tile;
// what lies across it has boxes of 64 rows or columns, with a row for each step, 8 KiB each.
#ifndef CENI_KERNELS_WGMMA_TILES_CUH
#define CENI_KERNELS_WGMMA_TILES_CUH

#include "kernels/wgmma.cuh"

namespace product {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Shared memory of a block, as addresses.
template <int COLS> struct layout {
    enum {
        STAGES = CENI_WGMMA_STAGES(COLS),
        A_BYTES = CENI_WGMMA_ROWS * 128,
        STAGE_BYTES = CENI_WGMMA_STAGE_BYTES(COLS)
    };
    uint32_t stages, full, empty;
    float *sums; // the stages of warps for what goes out

    // The stages begin at a multiple of 1 KiB, which the exchange of parts counts from.
    __device__ __forceinline__ explicit layout(unsigned char *shared) {
        uint32_t own = shared_address(shared), skip = (1024 - own % 1024) % 1024;
        stages = own + skip;
        full = stages + STAGES * STAGE_BYTES + CENI_WGMMA_WARPS * CENI_STAGE_BYTES;
        empty = full + STAGES * 8;
        sums = (float *)(shared + skip + STAGES * STAGE_BYTES);
    }

    __device__ __forceinline__ uint32_t a(uint32_t stage) const {
        return stages + stage * STAGE_BYTES;
    }

    __device__ __forceinline__ uint32_t b(uint32_t stage) const {
        return a(stage) + A_BYTES;
    }
};

// Copies ROWS rows or columns of an operand, from `first` on, and 64 steps of the sum.
template <bool ALONG, int ROWS, bool BOTH>
__device__ __forceinline__ void copy_operand(uint32_t to, const tensor_map *map, uint32_t first,
                                             uint32_t k, uint32_t barrier) {
    constexpr auto copy = BOTH ? copy_box_to_both : copy_box;
    if constexpr (ALONG) {
        copy(to, map, k, first, barrier);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < ROWS / 64; i++) {
            copy(to + i * BOX_BYTES, map, first + i * 64, k, barrier);
        }
    }
}

// The tiles of a block: every n-th, of BLOCKS blocks together.
template <int COLS, int BLOCKS> struct walk {
    uint32_t rows, cols, id, rank;

    __device__ __forceinline__ explicit walk(const args &p) {
        rows = tiles_of(p.m, CENI_WGMMA_ROWS * BLOCKS);
        cols = tiles_of(p.n, COLS);
        id = blockIdx.x / BLOCKS;
        rank = BLOCKS > 1 ? pair_rank() : 0;
    }

    __device__ __forceinline__ bool more() const {
        return id < rows * cols;
    }

    __device__ __forceinline__ void advance() {
        id += gridDim.x / BLOCKS;
    }

    // In tiles of one block.
    __device__ __forceinline__ place here() const {
        place tile = place_of(id, rows, cols, CENI_RASTER / BLOCKS);
        return {tile.row * BLOCKS + rank, tile.col};
    }
};

// A warpgroup's 64 rows of a tile: a warp has 16, a lane two of those, two columns of each eight.
template <int COLS>
__device__ __forceinline__ void finish_wgmma(const args &p, const float (&sums)[COLS / 2],
                                             float *stage, place tile, uint32_t group) {
    uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    float *to = stage + lane / 4 * CENI_STAGE_STRIDE + lane % 4 * 2;
#pragma unroll 1 // what finishes is there once; sums are chosen by constants all the same
    for (uint32_t j = 0; j < COLS / 32; j++) {
#pragma unroll
        for (uint32_t i = 0; i < COLS / 8; i++) {
            if (i / 4 == j) {
                const float *s = &sums[i * 4];
                *(float2 *)(to + i % 4 * 8) = make_float2(s[0], s[1]);
                *(float2 *)(to + i % 4 * 8 + 8 * CENI_STAGE_STRIDE) = make_float2(s[2], s[3]);
            }
        }
        finish_stage<false>(p, stage, tile.row * CENI_WGMMA_ROWS + group * 64 + warp * 16,
                            tile.col * COLS + j * 32);
    }
}

// Says of a warp that it has read a stage.
template <int BLOCKS> __device__ __forceinline__ void release(uint32_t empty, uint32_t rank) {
    if (threadIdx.x % 32 == 0) {
        barrier_arrive(empty);
        if (BLOCKS > 1) {
            barrier_arrive_other(empty, rank ^ 1);
        }
    }
}

// A warpgroup's sums of a tile, of the two the group-th. Then the last of them are under way, and
// the stage that they read, which is given back, is to be released.
//
// With LEAD, the second warpgroup begins a tile when the first has so many steps of it under way:
// either multiplies alone while the other finishes. There are more steps than stages then, so that
// the first cannot begin a tile before the second has begun the one before.
template <typename T, int COLS, int BLOCKS, bool A_ALONG, bool B_ALONG, uint32_t LEAD>
__device__ __forceinline__ uint32_t multiply(layout<COLS> l, ring<layout<COLS>::STAGES> &at,
                                             uint32_t steps, uint32_t rank, uint32_t group,
                                             float (&sums)[COLS / 2]) {
    uint32_t before = 0;
    bool leads = LEAD && steps > layout<COLS>::STAGES;
    if (leads && group) {
        group_waits();
    }
    for (uint32_t t = 0; t < steps; t++, at.advance()) {
        barrier_wait(l.full + at.stage * 8, at.parity);
        // Either way, the 64 rows of this warpgroup begin 8 KiB after those of the other.
        uint64_t a = describe<A_ALONG>(l.a(at.stage) + group * BOX_BYTES);
        uint64_t b = describe<B_ALONG>(l.b(at.stage));
        wgmma_begin();
#pragma unroll
        for (uint32_t k = 0; k < CENI_WGMMA_DEPTH / 16; k++) {
            wgmma<!A_ALONG, !B_ALONG>(T(), sums, a + k * step_16<A_ALONG>(),
                                      b + k * step_16<B_ALONG>(), t + k);
        }
        wgmma_commit();
        wgmma_wait<1>(); // the stage before has been read
        if (t) {
            release<BLOCKS>(l.empty + before * 8, rank);
        }
        before = at.stage;
        if (leads && !group && t + 1 == LEAD) {
            group_goes_on();
        }
    }
    return before;
}

// One warpgroup of the two, by its number.
template <typename T, int COLS, int BLOCKS, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void consume(const args &p, layout<COLS> l, uint32_t group) {
    uint32_t steps = tiles_of(p.k, CENI_WGMMA_DEPTH);
    float *stage = l.sums + (group * 4 + threadIdx.x / 32 % 4) * (CENI_STAGE_BYTES / 4);
    float sums[COLS / 2];
    ring<layout<COLS>::STAGES> at;
    for (walk<COLS, BLOCKS> w(p); w.more(); w.advance()) {
        uint32_t last =
            multiply<T, COLS, BLOCKS, A_ALONG, B_ALONG, 0>(l, at, steps, w.rank, group, sums);
        wgmma_wait<0>();
        release<BLOCKS>(l.empty + last * 8, w.rank);
        finish_wgmma<COLS>(p, sums, stage, w.here(), group);
    }
}

// All threads call it.
template <typename Layout>
__device__ __forceinline__ void begin_barriers(Layout l, uint32_t to_fill, uint32_t to_empty) {
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < Layout::STAGES; i++) {
            barrier_init(l.full + i * 8, to_fill);
            barrier_init(l.empty + i * 8, to_empty);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        stores_seen_by_engines();
    }
    __syncthreads();
}

#endif

} // namespace product

#endif
