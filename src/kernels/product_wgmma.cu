// Products of BF16 and FP16 on Hopper's tensor cores: wgmma on tiles that the copy engine brings.
//
// A block of three warpgroups stays and makes one tile of D after the other, 128 rows by 256 or 128
// columns, or of convolutions 64. One thread of the first warpgroup has the copy engine (TMA) fill a
// ring of stages, 64 steps of the sum each; the two others multiply 64 rows each, their sums in
// registers, which the first gives up for them. Two mbarriers a stage say that it is full, and that
// both have read it.
//
// A stage holds what the tensor maps lay out, rows of 128 bytes with their 16-byte parts exchanged by
// the row's number mod 8. What lies along the sum has a row for each row or column of the tile; what
// lies across it has boxes of 64 rows or columns, with a row for each step, 8 KiB each.
//
// Of the kernels named `pair`, two blocks go together, one above the other: each brings one half of
// what they have in common, the columns, to both. A stage is then empty once the warps of both have
// read it.
//
// Convolutions have the first warpgroup gather A itself, by cp.async into the same layout, and its
// first thread have the copy engine bring the filters. What cp.async has written is made known to the
// tensor cores by each thread that wrote before it says so.
//
// In machine code for other architectures the kernels do nothing: they are not launched there.

#include "kernels/wgmma.cuh"

namespace product {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// What the first warpgroup keeps of its registers, and the others then have.
enum { PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232 };
enum { GATHERER_REGISTERS = 88, GATHERED_REGISTERS = 208 };
// Stages that a gatherer has under way while it begins another. One that is full is told so late
// that one more has to be empty before, and the warps that multiply keep one back: 4 stages do.
enum { GATHER_BEHIND = 2 };

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

// All threads call it.
template <int COLS>
__device__ __forceinline__ void begin_barriers(layout<COLS> l, uint32_t to_fill,
                                               uint32_t to_empty) {
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < layout<COLS>::STAGES; i++) {
            barrier_init(l.full + i * 8, to_fill);
            barrier_init(l.empty + i * 8, to_empty);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        stores_seen_by_engines();
    }
    __syncthreads();
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

// ---- convolutions: A is gathered ----

// What a thread of the first warpgroup has of a stage of A: a part of 16 bytes of each 16th row.
struct gatherer {
    enum { PARTS = CENI_WGMMA_DEPTH * 2 / 16, APART = 128 / PARTS, ROWS = CENI_WGMMA_ROWS / APART };
    gathered_row rows[ROWS];
    tap at;

    // `shared` holds the rows of the tile until all threads have theirs.
    __device__ __forceinline__ void begin(const ceni_conv_args &c, uint32_t first,
                                          gathered_row *shared) {
        asm volatile("bar.sync 1, 128;" ::: "memory"); // those of the tile before have been read
        gather_rows(c, first, shared);
        asm volatile("bar.sync 1, 128;" ::: "memory");
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
            rows[i] = shared[threadIdx.x / PARTS + i * APART];
        }
        at.begin(c, threadIdx.x % PARTS * 8);
    }

    // As the copy engine lays out what lies along the sum.
    __device__ __forceinline__ void copy(const ceni_conv_args &c, uint32_t to) {
        const uint16_t *base = (const uint16_t *)c.product.a;
        uint32_t row = threadIdx.x / PARTS, part = threadIdx.x % PARTS;
        to += row * 128 + ((part ^ row % 8) << 4);
#pragma unroll
        for (uint32_t i = 0; i < ROWS; i++) {
            uint64_t index;
            bool valid = at.element(c, rows[i], &index);
            copy_16_near(to + i * APART * 128, valid ? base + index : base, valid ? 16 : 0);
        }
        at.advance(c, CENI_WGMMA_DEPTH);
    }
};

// A warpgroup.
template <int COLS>
__device__ __forceinline__ void gather(const ceni_conv_args &c, const tensor_map *map_b,
                                       layout<COLS> l, gathered_row *shared) {
    uint32_t steps = tiles_of(c.product.k, CENI_WGMMA_DEPTH), behind = 0;
    ring<layout<COLS>::STAGES> at, told;
    for (walk<COLS, 1> w(c.product); w.more(); w.advance()) {
        place tile = w.here();
        gatherer a;
        a.begin(c, tile.row * CENI_WGMMA_ROWS, shared);
        for (uint32_t t = 0; t < steps; t++, at.advance()) {
            uint32_t full = l.full + at.stage * 8;
            barrier_wait(l.empty + at.stage * 8, at.parity ^ 1); // at first, they are
            if (threadIdx.x == 0) {
                barrier_expect(full, COLS * 128);
                copy_operand<true, COLS, false>(l.b(at.stage), map_b, tile.col * COLS,
                                                t * CENI_WGMMA_DEPTH, full);
            }
            a.copy(c, l.a(at.stage));
            copies_commit();
            if (behind < GATHER_BEHIND) {
                behind++;
                continue;
            }
            copies_wait<GATHER_BEHIND>();
            stores_seen_by_engines();
            barrier_arrive(l.full + told.stage * 8);
            told.advance();
        }
    }
    copies_wait<0>();
    stores_seen_by_engines();
    for (; behind; behind--, told.advance()) {
        barrier_arrive(l.full + told.stage * 8);
    }
}

template <typename T, int COLS>
__device__ __forceinline__ void conv_wgmma(const ceni_conv_args &c, const tensor_map *map_b) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    layout<COLS> l(dynamic);
    uint32_t group = threadIdx.x / 128;
    begin_barriers(l, 128 + 1, CENI_WGMMA_WARPS); // who gathers, and who has the filters brought
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)GATHERER_REGISTERS));
        gather<COLS>(c, map_b, l, (gathered_row *)(l.sums + CENI_WGMMA_WARPS * CENI_STAGE_BYTES / 4 +
                                                   layout<COLS>::STAGES * 4));
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)GATHERED_REGISTERS));
        consume<T, COLS, 1, true, true>(c.product, l, group - 1);
    }
}

#define CENI_RUN_CONV(type, cols)                                                                  \
    product::conv_wgmma<product::wgmma_##type, cols>(c, &b)
#define CENI_RUN(type, cols, blocks, a_along, b_along)                                             \
    product::product_wgmma<product::wgmma_##type, cols, blocks, a_along, b_along>(p, &a, &b)
#define CENI_PAIR __cluster_dims__(2, 1, 1)
#else
#define CENI_RUN(type, cols, blocks, a_along, b_along)
#define CENI_RUN_CONV(type, cols)
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
#define CENI_CONV_WGMMA(cols, type)                                                                \
    extern "C" __global__ void __launch_bounds__(CENI_WGMMA_THREADS, 1)                            \
        cen_conv_wgmma##cols##_##type(const __grid_constant__ ceni_conv_args c,                    \
                                      const __grid_constant__ product::tensor_map b) {             \
        CENI_RUN_CONV(type, cols);                                                                 \
    }
CENI_CONV_WGMMA(256, bf16)
CENI_CONV_WGMMA(256, fp16)
CENI_CONV_WGMMA(128, bf16)
CENI_CONV_WGMMA(128, fp16)
CENI_CONV_WGMMA(64, bf16)
CENI_CONV_WGMMA(64, fp16)
#undef CENI_CONV_WGMMA
#undef CENI_LAYOUTS
#undef CENI_WGMMA
#undef CENI_PAIR
#undef CENI_RUN_CONV
#undef CENI_RUN
