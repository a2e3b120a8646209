// Products of BF16 and FP16 on Hopper's tensor cores: wgmma on tiles that the copy engine brings.
//
// Tiles of D have 128 rows and 256 or 128 columns. One thread of the first warpgroup has the copy
// engine (TMA) fill the stages.
//
// Of the kernels named `pair`, two blocks go together, one above the other: each brings one half of
// what they have in common, the columns, to both. A stage is then empty once the warps of both have
// read it.
//
// In machine code for other architectures the kernels do nothing: they are not launched there.

#include "kernels/wgmma_tiles.cuh"

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

template <typename T, int COLS, int BLOCKS, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void product_wgmma(const args &p, const tensor_map *map_a,
                                              const tensor_map *map_b) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    layout<COLS> l(dynamic);
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
        consume<T, COLS, BLOCKS, A_ALONG, B_ALONG>(p, l, group - 1);
    }
    if (BLOCKS > 1) {
        pair_sync(); // the other writes to this block's memory no more
    }
}

#define CENI_RUN(type, cols, blocks, a_along, b_along)                                             \
    product::product_wgmma<product::wgmma_##type, cols, blocks, a_along, b_along>(p, &a, &b)
#define CENI_PAIR __cluster_dims__(2, 1, 1)
#else
#define CENI_RUN(type, cols, blocks, a_along, b_along)
#define CENI_PAIR
#endif

} // namespace product

#define CENI_WGMMA(name, type, cols, blocks, cluster, a_along, b_along)                            \
    extern "C" __global__ void cluster __launch_bounds__(CENI_WGMMA_THREADS, 1)                    \
        cen_product_##name(const __grid_constant__ ceni_product_args p,                            \
                           const __grid_constant__ product::tensor_map a,                          \
                           const __grid_constant__ product::tensor_map b) {                        \
        CENI_RUN(type, cols, blocks, a_along, b_along);                                            \
    }
#define CENI_LAYOUTS(name, ...)                                                                    \
    CENI_WGMMA(name##_nn, __VA_ARGS__, true, false)                                                \
    CENI_WGMMA(name##_nt, __VA_ARGS__, true, true)                                                 \
    CENI_WGMMA(name##_tn, __VA_ARGS__, false, false)                                               \
    CENI_WGMMA(name##_tt, __VA_ARGS__, false, true)
CENI_LAYOUTS(wgmma_bf16, bf16, 256, 1, )
CENI_LAYOUTS(wgmma_fp16, fp16, 256, 1, )
CENI_LAYOUTS(wgmma128_bf16, bf16, 128, 1, )
CENI_LAYOUTS(wgmma128_fp16, fp16, 128, 1, )
CENI_LAYOUTS(wgmma_pair_bf16, bf16, 256, 2, CENI_PAIR)
CENI_LAYOUTS(wgmma_pair_fp16, fp16, 256, 2, CENI_PAIR)
#undef CENI_LAYOUTS
#undef CENI_WGMMA
#undef CENI_PAIR
#undef CENI_RUN
