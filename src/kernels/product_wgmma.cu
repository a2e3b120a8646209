// Products of BF16 and FP16 on Hopper's tensor cores: wgmma on tiles that the copy engine brings.
//
// Tiles of D have 128 rows and 256 or 128 columns. One thread of the first warpgroup has the copy
// engine (TMA) fill the stages; of tiles of 256 columns it takes D out as well, if D lies so
// (wgmma_finish.cuh).
//
// Of the kernels named `pair`, two blocks go together, one above the other: each brings one half of
// what they have in common, the columns, to both. A stage is then empty once the warps of both have
// read it.
//
// In machine code for other architectures the kernels do nothing: they are not launched there.

#include "kernels/wgmma_finish.cuh"
#include "kernels/wgmma_tiles.cuh"

// Steps of a tile that the first warpgroup is ahead of the second; 0: neither waits.
#ifndef CENI_WGMMA_LEAD
#define CENI_WGMMA_LEAD 2
#endif

namespace product {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// What the first warpgroup keeps of its registers, and the others then have.
enum { PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232 };

// One thread.
template <int COLS, int BLOCKS, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void produce(const args &p, const tensor_map *map_a,
                                        const tensor_map *map_b, layout<COLS> l) {
    const uint32_t own = COLS / BLOCKS; // of the columns, which a row of 128 bytes is for each
    uint32_t steps = tiles_of(p.k, CENI_WGMMA_DEPTH);
    ring<layout<COLS>::STAGES> at;
    for (walk<COLS, BLOCKS> w(p); w.more(); w.advance()) {
        place tile = w.here();
        for (uint32_t t = 0; t < steps; t++, at.advance()) {
            uint32_t full = l.full + at.stage * 8, k = t * CENI_WGMMA_DEPTH;
            barrier_wait(l.empty + at.stage * 8, at.parity ^ 1); // at first, they are
            barrier_expect(full, layout<COLS>::STAGE_BYTES);
            copy_operand<A_ALONG, CENI_WGMMA_ROWS, false>(l.a(at.stage), map_a,
                                                          tile.row * CENI_WGMMA_ROWS, k, full);
            copy_operand<B_ALONG, COLS / BLOCKS, (BLOCKS > 1)>(
                l.b(at.stage) + w.rank * own * 128, map_b, tile.col * COLS + w.rank * own, k, full);
        }
    }
}

// Shared memory with the boxes that leave a block.
template <int COLS> struct out_layout : layout<COLS> {
    uint32_t out;

    __device__ __forceinline__ explicit out_layout(unsigned char *shared) : layout<COLS>(shared) {
        out = this->stages + this->STAGES * this->STAGE_BYTES;
        this->full = out + CENI_WGMMA_OUT_BYTES;
        this->empty = this->full + this->STAGES * 8;
    }
};

// What goes with a warp's rows of a tile sets out for the caches.
template <int COLS>
__device__ __forceinline__ void announce(const args &p, const addend &more, uint32_t row,
                                         uint32_t col) {
    uint32_t lane = threadIdx.x % 32, size = p.bias_type == CEN_FP32 ? 4 : 2;
    if (p.bias && lane * 128 < COLS * size && col + lane * 128 / size < p.n) {
        prefetch_near(p.bias + (uint64_t)col * size + lane * 128);
    }
    if (more.any()) {
        for (uint32_t i = 0; i < COLS; i += 2 * OUT_COLS) {
            more.announce(p, row, col + i);
        }
    }
}

// One warpgroup of the two, by its number: as consume does, but D goes out in boxes.
template <typename T, bool BF16, int COLS, int BLOCKS, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void consume_out(const args &p, const tensor_map *map_d,
                                            out_layout<COLS> l, uint32_t group) {
    uint32_t steps = tiles_of(p.k, CENI_WGMMA_DEPTH), warp = group * 4 + threadIdx.x / 32 % 4;
    float sums[COLS / 2];
    addend more(p);
    ring<layout<COLS>::STAGES> at;
    for (walk<COLS, BLOCKS> w(p); w.more(); w.advance()) {
        place tile = w.here();
        uint32_t row = tile.row * CENI_WGMMA_ROWS + warp * 16, col = tile.col * COLS;
        announce<COLS>(p, more, row, col);
        uint32_t last = multiply<T, COLS, BLOCKS, A_ALONG, B_ALONG, CENI_WGMMA_LEAD>(
            l, at, steps, w.rank, group, sums);
        if (more.any()) {
            more.load(p, row, col); // while the last are multiplied
        }
        wgmma_wait<0>();
        release<BLOCKS>(l.empty + last * 8, w.rank);
        finish_boxes<BF16, COLS>(p, sums, more, l.out + warp * 2 * OUT_BYTES, map_d, row, col);
    }
    if (threadIdx.x % 32 == 0) {
        boxes_wait<0>(); // shared memory stays until then
    }
}

// The first warpgroup has stages filled; the others do `multiply_and_finish`, by their numbers.
template <int COLS, int BLOCKS, bool A_ALONG, bool B_ALONG, typename Consume>
__device__ __forceinline__ void share_out(const args &p, const tensor_map *map_a,
                                          const tensor_map *map_b, layout<COLS> l,
                                          Consume multiply_and_finish) {
    uint32_t group = threadIdx.x / 128;
    begin_barriers(l, 1, CENI_WGMMA_WARPS * BLOCKS);
    if (BLOCKS > 1) {
        pair_sync(); // the other's barriers are there
    }
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)PRODUCER_REGISTERS));
        if (threadIdx.x == 0) {
            produce<COLS, BLOCKS, A_ALONG, B_ALONG>(p, map_a, map_b, l);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)CONSUMER_REGISTERS));
        multiply_and_finish(group - 1);
    }
    if (BLOCKS > 1) {
        pair_sync(); // the other writes to this block's memory no more
    }
}

template <typename T, int COLS, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void product_wgmma(const args &p, const tensor_map *map_a,
                                              const tensor_map *map_b) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    layout<COLS> l(dynamic);
    share_out<COLS, 1, A_ALONG, B_ALONG>(p, map_a, map_b, l, [&](uint32_t group) {
        consume<T, COLS, 1, A_ALONG, B_ALONG>(p, l, group);
    });
}

template <typename T, bool BF16, int COLS, int BLOCKS, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void product_wgmma_out(const args &p, const tensor_map *map_a,
                                                  const tensor_map *map_b,
                                                  const tensor_map *map_d) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    out_layout<COLS> l(dynamic);
    share_out<COLS, BLOCKS, A_ALONG, B_ALONG>(p, map_a, map_b, l, [&](uint32_t group) {
        if (p.wide & CENI_WIDE_BOXES) {
            consume_out<T, BF16, COLS, BLOCKS, A_ALONG, B_ALONG>(p, map_d, l, group);
        } else {
            consume<T, COLS, BLOCKS, A_ALONG, B_ALONG>(p, l, group);
        }
    });
}

#define CENI_RUN(type, bf16, cols, blocks, a_along, b_along)                                       \
    product::product_wgmma<product::wgmma_##type, cols, a_along, b_along>(p, &a, &b)
#define CENI_RUN_OUT(type, bf16, cols, blocks, a_along, b_along)                                   \
    product::product_wgmma_out<product::wgmma_##type, bf16, cols, blocks, a_along, b_along>(       \
        p, &a, &b, &d)
#define CENI_PAIR __cluster_dims__(2, 1, 1)
#else
#define CENI_RUN(...)
#define CENI_RUN_OUT(...)
#define CENI_PAIR
#endif

} // namespace product

#define CENI_MAP(name) const __grid_constant__ product::tensor_map name
#define CENI_WGMMA(name, cluster, ...)                                                             \
    extern "C" __global__ void __launch_bounds__(CENI_WGMMA_THREADS, 1) cen_product_##name(        \
        const __grid_constant__ ceni_product_args p, CENI_MAP(a), CENI_MAP(b)) {                   \
        CENI_RUN(__VA_ARGS__);                                                                     \
    }
#define CENI_WGMMA_OUT(name, cluster, ...)                                                         \
    extern "C" __global__ void cluster __launch_bounds__(CENI_WGMMA_THREADS, 1)                    \
        cen_product_##name(const __grid_constant__ ceni_product_args p, CENI_MAP(a), CENI_MAP(b),  \
                           CENI_MAP(d)) {                                                          \
        CENI_RUN_OUT(__VA_ARGS__);                                                                 \
    }
#define CENI_LAYOUTS(KERNEL, name, ...)                                                            \
    KERNEL(name##_nn, __VA_ARGS__, true, false)                                                    \
    KERNEL(name##_nt, __VA_ARGS__, true, true)                                                     \
    KERNEL(name##_tn, __VA_ARGS__, false, false)                                                   \
    KERNEL(name##_tt, __VA_ARGS__, false, true)
CENI_LAYOUTS(CENI_WGMMA_OUT, wgmma_bf16, , bf16, true, 256, 1)
CENI_LAYOUTS(CENI_WGMMA_OUT, wgmma_fp16, , fp16, false, 256, 1)
CENI_LAYOUTS(CENI_WGMMA_OUT, wgmma_pair_bf16, CENI_PAIR, bf16, true, 256, 2)
CENI_LAYOUTS(CENI_WGMMA_OUT, wgmma_pair_fp16, CENI_PAIR, fp16, false, 256, 2)
CENI_LAYOUTS(CENI_WGMMA, wgmma128_bf16, , bf16, true, 128, 1)
CENI_LAYOUTS(CENI_WGMMA, wgmma128_fp16, , fp16, false, 128, 1)
#undef CENI_LAYOUTS
#undef CENI_WGMMA_OUT
#undef CENI_WGMMA
#undef CENI_MAP
#undef CENI_PAIR
#undef CENI_RUN_OUT
#undef CENI_RUN
