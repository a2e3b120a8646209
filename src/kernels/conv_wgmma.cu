// Convolutions of BF16 and FP16 on Hopper's tensor cores: wgmma, as of products (wgmma_tiles.cuh),
// on an A that is never written down.
//
// Of the kernels named `boxes` and `held`, one thread has the copy engine bring A, a tap and 64
// channels of 128 pixels a stage: the engine itself walks over the images and makes zeros of what
// lies outside. With 256 columns both warpgroups make a tile together; with 128 or 64 they take
// turns, each with a tile of its own, so that one multiplies while the other's sums go out. `held`
// has all filters in shared memory from the start, and brings A alone.
//
// Of the others the first warpgroup gathers A itself, by cp.async into the layout of a stage, and
// its first thread has the copy engine bring the filters. What cp.async has written is made known
// to the tensor cores by each thread that wrote before it says so.
//
// In machine code for other architectures the kernels do nothing: they are not launched there.

#include "kernels/wgmma_finish.cuh"
#include "kernels/wgmma_tiles.cuh"

namespace product {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// What the first warpgroup keeps of its registers, and the others then have.
enum { BRINGER_REGISTERS = 40, BROUGHT_REGISTERS = 232 };
enum { GATHERER_REGISTERS = 88, GATHERED_REGISTERS = 208 };
// Stages that a gatherer has under way while it begins another. One that is full is told so late
// that one more has to be empty before, and the warps that multiply keep one back: 4 stages do.
enum { GATHER_BEHIND = 2 };
// The named barriers by which warpgroups give each other turns: this and the next.
enum { TURN = 14 };

// ---- A in boxes ----

// Shared memory of a block, as addresses.
template <int COLS, bool HELD> struct boxes_layout {
    enum {
        STAGES = HELD ? CENI_HELD_STAGES : CENI_WGMMA_STAGES(COLS),
        A_BYTES = CENI_WGMMA_ROWS * 128,
        STAGE_BYTES = A_BYTES + (HELD ? 0 : COLS * 128),
        HELD_BYTES = HELD ? CENI_HELD_STEPS * CENI_HELD_BYTES : 0
    };
    uint32_t filters, stages, out, full, empty, held;
    float *sums; // where `out` is, for sums that leave otherwise

    // Boxes begin at a multiple of 1 KiB, which the exchange of parts counts from.
    __device__ __forceinline__ explicit boxes_layout(unsigned char *shared) {
        uint32_t own = shared_address(shared), skip = (1024 - own % 1024) % 1024;
        filters = own + skip;
        stages = filters + HELD_BYTES;
        out = stages + STAGES * STAGE_BYTES;
        full = out + CENI_WGMMA_OUT_BYTES;
        empty = full + STAGES * 8;
        held = empty + STAGES * 8;
        sums = (float *)(shared + (out - own));
    }

    __device__ __forceinline__ uint32_t a(uint32_t stage) const {
        return stages + stage * STAGE_BYTES;
    }

    __device__ __forceinline__ uint32_t b(uint32_t stage, uint32_t step) const {
        return HELD ? filters + step * CENI_HELD_BYTES : a(stage) + A_BYTES;
    }
};

// One thread.
template <int COLS, bool HELD>
__device__ __forceinline__ void bring(const ceni_conv_args &c, const tensor_map *map_a,
                                      const tensor_map *map_b, boxes_layout<COLS, HELD> l) {
    uint32_t steps = tiles_of(c.product.k, CENI_WGMMA_DEPTH), pixels = c.out_height * c.out_width;
    ring<boxes_layout<COLS, HELD>::STAGES> at;
    if (HELD) {
        barrier_expect(l.held, steps * CENI_HELD_BYTES);
        for (uint32_t t = 0; t < steps; t++) {
            copy_box(l.b(0, t), map_b, t * CENI_WGMMA_DEPTH, 0, l.held);
        }
    }
    for (walk<COLS, 1> w(c.product); w.more(); w.advance()) {
        place tile = w.here();
        uint32_t first = tile.row * CENI_WGMMA_ROWS, image = first / pixels, pixel = first % pixels;
        int32_t y = (int32_t)(pixel / c.out_width * c.stride_y) - c.pad_y;
        int32_t x = (int32_t)(pixel % c.out_width * c.stride_x) - c.pad_x;
        uint32_t channel = 0, right = 0, down = 0; // of the tap
        for (uint32_t t = 0; t < steps; t++, at.advance()) {
            uint32_t full = l.full + at.stage * 8;
            barrier_wait(l.empty + at.stage * 8, at.parity ^ 1); // at first, they are
            barrier_expect(full, l.STAGE_BYTES);
            copy_pixels(l.a(at.stage), map_a, channel, x, y, image, right, down, full);
            if (!HELD) {
                copy_box(l.b(at.stage, t), map_b, t * CENI_WGMMA_DEPTH, tile.col * COLS, full);
            }
            channel += CENI_WGMMA_DEPTH;
            if (channel == c.channels) {
                channel = 0;
                right += c.dilation_x;
                if (right == c.filter_width * c.dilation_x) {
                    right = 0;
                    down += c.dilation_y;
                }
            }
        }
    }
}

// A warpgroup's turn begins once the other has multiplied the tile before: by then the other has
// seen those stages full, whose phases this one does not wait for.
__device__ __forceinline__ void await_turn(uint32_t group) {
    asm volatile("bar.sync %0, 256;" ::"r"(TURN + group) : "memory");
}

__device__ __forceinline__ void give_turn(uint32_t to) {
    asm volatile("bar.arrive %0, 256;" ::"r"(TURN + to) : "memory");
}

// Sums of 64 rows, of which a warp has 16: in boxes or as elements.
template <bool BF16, int COLS, typename Layout>
__device__ __forceinline__ void finish_conv(const args &p, float (&sums)[COLS / 2],
                                            const tensor_map *map_d, Layout l, place tile,
                                            uint32_t half) {
    uint32_t warp = threadIdx.x / 32 - 4; // of those that multiply
    if (p.wide & CENI_WIDE_BOXES) {
        uint32_t row = tile.row * CENI_WGMMA_ROWS + half * 64 + warp % 4 * 16;
        uint32_t col = tile.col * COLS;
        addend more(p);
        if (more.any()) {
            more.load(p, row, col);
        }
        // Where there is one box, the halves use the warp's two in turn, as boxes otherwise do.
        uint32_t box = warp * 2 + (COLS == OUT_COLS ? half : 0);
        finish_boxes<BF16, COLS>(p, sums, more, l.out + box * OUT_BYTES, map_d, row, col);
    } else {
        finish_wgmma<COLS>(p, sums, l.sums + warp * (CENI_STAGE_BYTES / 4), tile, half);
    }
}

// One warpgroup of the two, by its number: 64 rows of each tile, or, in turn, all rows of every
// other.
template <typename T, bool BF16, int COLS, bool IN_TURN, typename Layout>
__device__ __forceinline__ void consume_boxes(const args &p, const tensor_map *map_d, Layout l,
                                              uint32_t group) {
    constexpr uint32_t halves = IN_TURN ? 2 : 1;
    uint32_t steps = tiles_of(p.k, CENI_WGMMA_DEPTH), own = IN_TURN ? 0 : group;
    float sums[halves][COLS / 2];
    ring<Layout::STAGES> at;
    walk<COLS, 1> w(p);
    if (IN_TURN && group) {
        w.advance();
        at.skip(steps);
    }
    while (w.more()) {
        place tile = w.here();
        uint32_t before = 0;
        if (IN_TURN && w.id >= gridDim.x) { // not the block's first
            await_turn(group);
        }
        for (uint32_t t = 0; t < steps; t++, at.advance()) {
            barrier_wait(l.full + at.stage * 8, at.parity);
            uint64_t a = describe<true>(l.a(at.stage) + own * BOX_BYTES);
            uint64_t b = describe<true>(l.b(at.stage, t));
            wgmma_begin();
#pragma unroll
            for (uint32_t k = 0; k < CENI_WGMMA_DEPTH / 16; k++) {
                const uint32_t further = k * step_16<true>();
#pragma unroll
                for (uint32_t i = 0; i < halves; i++) {
                    wgmma<0, 0>(T(), sums[i], a + i * (BOX_BYTES / 16) + further, b + further,
                                t + k);
                }
            }
            wgmma_commit();
            wgmma_wait<1>(); // the stage before has been read
            if (t) {
                release<1>(l.empty + before * 8, 0);
            }
            before = at.stage;
        }
        w.advance();
        if (IN_TURN && w.more()) { // which is the other's
            give_turn(group ^ 1);
        }
        wgmma_wait<0>();
        release<1>(l.empty + before * 8, 0);
#pragma unroll
        for (uint32_t i = 0; i < halves; i++) {
            finish_conv<BF16, COLS>(p, sums[i], map_d, l, tile, own + i);
        }
        if (IN_TURN) {
            w.advance();
            at.skip(steps);
        }
    }
    if (threadIdx.x % 32 == 0) {
        boxes_wait<0>(); // shared memory stays until then
    }
}

template <typename T, bool BF16, int COLS, bool HELD>
__device__ __forceinline__ void conv_boxes(const ceni_conv_args &c, const tensor_map *map_a,
                                           const tensor_map *map_b, const tensor_map *map_d) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    constexpr bool in_turn = COLS < 256;
    boxes_layout<COLS, HELD> l(dynamic);
    uint32_t group = threadIdx.x / 128;
    if (HELD && threadIdx.x == 0) {
        barrier_init(l.held, 1);
    }
    begin_barriers(l, 1, in_turn ? CENI_WGMMA_WARPS / 2 : CENI_WGMMA_WARPS);
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)BRINGER_REGISTERS));
        if (threadIdx.x == 0) {
            bring<COLS, HELD>(c, map_a, map_b, l);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)BROUGHT_REGISTERS));
        if (HELD) {
            barrier_wait(l.held, 0);
        }
        consume_boxes<T, BF16, COLS, in_turn>(c.product, map_d, l, group - 1);
    }
}

// ---- A gathered ----

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
#define CENI_BOXES(type, bf16, cols, held)                                                         \
    product::conv_boxes<product::wgmma_##type, bf16, cols, held>(c, &a, &b, &d)
#else
#define CENI_RUN(...)
#define CENI_BOXES(...)
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
#define CENI_MAP(name) const __grid_constant__ product::tensor_map name
#define CENI_CONV_BOXES(name, cols, held, type, bf16)                                              \
    extern "C" __global__ void __launch_bounds__(CENI_WGMMA_THREADS, 1) cen_conv_##name##_##type(  \
        const __grid_constant__ ceni_conv_args c, CENI_MAP(a), CENI_MAP(b), CENI_MAP(d)) {         \
        CENI_BOXES(type, bf16, cols, held);                                                        \
    }
#define CENI_BOTH(...)                                                                             \
    CENI_CONV_BOXES(__VA_ARGS__, bf16, true)                                                       \
    CENI_CONV_BOXES(__VA_ARGS__, fp16, false)
CENI_BOTH(boxes256, 256, false)
CENI_BOTH(boxes128, 128, false)
CENI_BOTH(boxes64, 64, false)
CENI_BOTH(held64, CENI_HELD_COLS, true)
#undef CENI_BOTH
#undef CENI_MAP
#undef CENI_CONV_BOXES
#undef CENI_CONV_WGMMA
#undef CENI_BOXES
#undef CENI_RUN
