// Products of BF16 and FP16 on Hopper's tensor cores: wgmma on tiles that the copy engine brings.
//
// A block of three warpgroups stays and makes one tile of D after the other, 128 rows by 256 or 128
// columns. One thread of the first warpgroup has the copy engine (TMA) fill a ring of stages, 64
// steps of the sum each; the two others multiply 64 rows each, their sums in registers, which the
// first gives up for them. Two mbarriers a stage say that it is full, and that both have read it.
//
// A stage holds what the tensor maps lay out, rows of 128 bytes with their 16-byte parts exchanged by
// the row's number mod 8. What lies along the sum has a row for each row or column of the tile; what
// lies across it has boxes of 64 rows or columns, with a row for each step, 8 KiB each.
//
// Of the kernels named `pair`, two blocks go together, one above the other: each brings one half of
// what they have in common, the columns, to both. A stage is then empty once the warps of both have
// read it.
//
// In machine code for other architectures the kernels do nothing: they are not launched there.

#include "kernels/product.cuh"

namespace product {

struct __align__(128) tensor_map {
    uint64_t words[16];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    BOX_BYTES = 64 * 128, /* of what lies across the sum */
    PRODUCER_REGISTERS = 40,
    CONSUMER_REGISTERS = 232
};

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// Waits for the phase of that parity to end.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred ended;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, ended;\n"
                     "}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

// The same barrier of the pair's other block.
__device__ __forceinline__ void barrier_arrive_other(uint32_t barrier, uint32_t other) {
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
                 "}" ::"r"(barrier),
                 "r"(other)
                 : "memory");
}

__device__ __forceinline__ uint32_t pair_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of both blocks.
__device__ __forceinline__ void pair_sync() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// To the same place of both blocks, and told to the same barrier of both.
__device__ __forceinline__ void copy_box_to_both(uint32_t to, const tensor_map *map, uint32_t col,
                                                 uint32_t row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(col), "r"(row), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

__device__ __forceinline__ void copy_box(uint32_t to, const tensor_map *map, uint32_t col,
                                         uint32_t row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(col), "r"(row), "r"(barrier)
                 : "memory");
}

// How wgmma finds an operand: its address, and strides in units of 16 bytes. Along the sum: 8 rows
// are 1 KiB. Across it: 8 steps are 1 KiB, and the next 64 rows or columns are the next box.
template <bool ALONG> __device__ __forceinline__ uint64_t describe(uint32_t shared) {
    const uint64_t leading = ALONG ? 1 : BOX_BYTES / 16, stride = 1024 / 16, swizzle_128 = 1;
    return (uint64_t)(shared >> 4 & 0x3fff) | leading << 16 | stride << 32 | swizzle_128 << 62;
}

// What is added to a description to go 16 steps further.
template <bool ALONG> __device__ constexpr uint32_t step_16() {
    return (ALONG ? 16 * 2 : 16 * 128) / 16;
}

struct wgmma_bf16 {};
struct wgmma_fp16 {};

#define CENI_EIGHT(i)                                                                              \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])

template <int TURN_A, int TURN_B>
__device__ __forceinline__ void wgmma(wgmma_bf16, float (&d)[128], uint64_t a, uint64_t b, uint32_t add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
                 "%128, %129, add, 1, 1, %131, %132;\n"
                 "}"
                 : CENI_EIGHT(0), CENI_EIGHT(8), CENI_EIGHT(16), CENI_EIGHT(24), CENI_EIGHT(32), CENI_EIGHT(40), CENI_EIGHT(48), CENI_EIGHT(56), CENI_EIGHT(64), CENI_EIGHT(72), CENI_EIGHT(80), CENI_EIGHT(88), CENI_EIGHT(96), CENI_EIGHT(104), CENI_EIGHT(112), CENI_EIGHT(120)
                 : "l"(a), "l"(b), "r"(add), "n"(TURN_A), "n"(TURN_B));
}

template <int TURN_A, int TURN_B>
__device__ __forceinline__ void wgmma(wgmma_bf16, float (&d)[64], uint64_t a, uint64_t b, uint32_t add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, add, 1, 1, %67, %68;\n"
                 "}"
                 : CENI_EIGHT(0), CENI_EIGHT(8), CENI_EIGHT(16), CENI_EIGHT(24), CENI_EIGHT(32), CENI_EIGHT(40), CENI_EIGHT(48), CENI_EIGHT(56)
                 : "l"(a), "l"(b), "r"(add), "n"(TURN_A), "n"(TURN_B));
}

template <int TURN_A, int TURN_B>
__device__ __forceinline__ void wgmma(wgmma_fp16, float (&d)[128], uint64_t a, uint64_t b, uint32_t add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
                 "%128, %129, add, 1, 1, %131, %132;\n"
                 "}"
                 : CENI_EIGHT(0), CENI_EIGHT(8), CENI_EIGHT(16), CENI_EIGHT(24), CENI_EIGHT(32), CENI_EIGHT(40), CENI_EIGHT(48), CENI_EIGHT(56), CENI_EIGHT(64), CENI_EIGHT(72), CENI_EIGHT(80), CENI_EIGHT(88), CENI_EIGHT(96), CENI_EIGHT(104), CENI_EIGHT(112), CENI_EIGHT(120)
                 : "l"(a), "l"(b), "r"(add), "n"(TURN_A), "n"(TURN_B));
}

template <int TURN_A, int TURN_B>
__device__ __forceinline__ void wgmma(wgmma_fp16, float (&d)[64], uint64_t a, uint64_t b, uint32_t add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, add, 1, 1, %67, %68;\n"
                 "}"
                 : CENI_EIGHT(0), CENI_EIGHT(8), CENI_EIGHT(16), CENI_EIGHT(24), CENI_EIGHT(32), CENI_EIGHT(40), CENI_EIGHT(48), CENI_EIGHT(56)
                 : "l"(a), "l"(b), "r"(add), "n"(TURN_A), "n"(TURN_B));
}

#undef CENI_EIGHT

__device__ __forceinline__ void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// The ring: which stage is next, and the parity of its phase.
template <int STAGES> struct ring {
    uint32_t stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

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

// One warpgroup of the two, by its number.
template <typename T, int COLS, int BLOCKS, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void consume(const args &p, layout<COLS> l, uint32_t group) {
    uint32_t steps = tiles_of(p.k, CENI_WGMMA_DEPTH);
    float *stage = l.sums + (group * 4 + threadIdx.x / 32 % 4) * (CENI_STAGE_BYTES / 4);
    float sums[COLS / 2];
    ring<layout<COLS>::STAGES> at;
    for (walk<COLS, BLOCKS> w(p); w.more(); w.advance()) {
        uint32_t before = 0;
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
                release<BLOCKS>(l.empty + before * 8, w.rank);
            }
            before = at.stage;
        }
        wgmma_wait<0>();
        release<BLOCKS>(l.empty + before * 8, w.rank);
        finish_wgmma<COLS>(p, sums, stage, w.here(), group);
    }
}

template <typename T, int COLS, int BLOCKS, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void product_wgmma(const args &p, const tensor_map *map_a,
                                              const tensor_map *map_b) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    layout<COLS> l(dynamic);
    uint32_t group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < layout<COLS>::STAGES; i++) {
            barrier_init(l.full + i * 8, 1);
            barrier_init(l.empty + i * 8, CENI_WGMMA_WARPS * BLOCKS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
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
