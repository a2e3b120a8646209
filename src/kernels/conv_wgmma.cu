// Convolutions of BF16 and FP16 on Hopper's tensor cores: wgmma, as of products (wgmma_tiles.cuh),
// on an A that is never written down.
//
// The first warpgroup gathers A itself, by cp.async into the layout of a stage, and its first
// thread has the copy engine bring the filters. What cp.async has written is made known to the
// tensor cores by each thread that wrote before it says so.
//
// In machine code for other architectures the kernels do nothing: they are not launched there.

#include "kernels/wgmma_tiles.cuh"

namespace product {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// What the first warpgroup keeps of its registers, and the others then have.
enum { GATHERER_REGISTERS = 88, GATHERED_REGISTERS = 208 };
// Stages that a gatherer has under way while it begins another. One that is full is told so late
// that one more has to be empty before, and the warps that multiply keep one back: 4 stages do.
enum { GATHER_BEHIND = 2 };

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
        gather<COLS>(c, map_b, l,
                     (gathered_row *)(l.sums + CENI_WGMMA_WARPS * CENI_STAGE_BYTES / 4 +
                                      layout<COLS>::STAGES * 4));
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)GATHERED_REGISTERS));
        consume<T, COLS, 1, true, true>(c.product, l, group - 1);
    }
}

#define CENI_RUN(type, cols) product::conv_wgmma<product::wgmma_##type, cols>(c, &b)
#else
#define CENI_RUN(type, cols)
#endif

} // namespace product

#define CENI_CONV_WGMMA(cols, type)                                                                \
    extern "C" __global__ void __launch_bounds__(CENI_WGMMA_THREADS, 1)                            \
        cen_conv_wgmma##cols##_##type(const __grid_constant__ ceni_conv_args c,                    \
                                      const __grid_constant__ product::tensor_map b) {             \
        CENI_RUN(type, cols);                                                                      \
    }
CENI_CONV_WGMMA(256, bf16)
CENI_CONV_WGMMA(256, fp16)
CENI_CONV_WGMMA(128, bf16)
CENI_CONV_WGMMA(128, fp16)
CENI_CONV_WGMMA(64, bf16)
CENI_CONV_WGMMA(64, fp16)
#undef CENI_CONV_WGMMA
#undef CENI_RUN
