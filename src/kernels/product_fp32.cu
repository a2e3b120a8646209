// Products of FP32 on the arithmetic units, without TF32: the rungs of the ladder of
// docs/products.md, and what is at its top.
//
// There a block of 256 threads makes a tile of 128 x 128, each thread four blocks of 4 x 4 of it.
// Tiles of A and B of depth 16 lie in shared memory as [depth][row or column], two of each: while
// one is multiplied, cp.async fills the other. What lies along the sum in memory is turned on its
// way, 4 bytes at a time; what lies across is copied 16 bytes at a time where it is aligned.

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

// A block of ROWS x COLS warps. Each makes BLOCKS * 16 rows by 64 columns of the tile, of which a
// lane has BLOCKS by two blocks of 4 x 4.
template <uint32_t ROWS, uint32_t COLS, uint32_t BLOCKS> struct shape {
    static constexpr uint32_t WARPS = ROWS * COLS, THREADS = WARPS * 32, A_BLOCKS = BLOCKS;
    static constexpr uint32_t WARP_M = BLOCKS * 16, WARP_N = 64;
    static constexpr uint32_t M = ROWS * WARP_M, N = COLS * WARP_N;
    static constexpr uint32_t DEPTH = CENI_FP32_DEPTH, STAGES = CENI_FP32_STAGES;
    static constexpr uint32_t A_PITCH = M + CENI_FP32_PAD, B_PITCH = N + CENI_FP32_PAD;
    static constexpr uint32_t A_FLOATS = DEPTH * A_PITCH;
    static constexpr uint32_t STAGE_FLOATS = A_FLOATS + DEPTH * B_PITCH;
    float sums[BLOCKS * 4][8];
};

__device__ __forceinline__ uint32_t left_of(uint32_t end, uint32_t from) {
    return from < end ? end - from : 0;
}

// How SIDE rows or columns of one operand get into shared memory, stage after stage; each thread
// knows its own part. ALONG: they lie along the sum in memory. A warp then takes 8 steps of the sum
// by 4 rows: neither banks nor sectors are met twice.
template <bool ALONG, uint32_t SIDE, uint32_t THREADS> struct fp32_tile {
    static constexpr uint32_t PITCH = SIDE + CENI_FP32_PAD, APART = THREADS / 8;
    const float *from; // in the next stage
    uint64_t stride;
    uint32_t left, depth; // rows or columns, and steps of the sum, from the thread's first on
    uint32_t to;          // the thread's first place
    bool whole;           // no row or column of the tile is outside

    __device__ __forceinline__ fp32_tile(uint64_t base, uint64_t rows_apart, uint32_t first,
                                         uint32_t end, uint32_t steps, bool) {
        uint32_t mn = threadIdx.x / 8, at = threadIdx.x % 8;
        from = (const float *)base + (uint64_t)(first + mn) * rows_apart + at;
        stride = rows_apart;
        left = left_of(end, first + mn);
        depth = left_of(steps, at);
        to = (at * PITCH + mn) * 4;
        whole = first + SIDE <= end;
    }

    template <bool WHOLE> __device__ __forceinline__ void copy(uint32_t shared) const {
        const float *now = from;
#pragma unroll
        for (uint32_t i = 0; i < SIDE / APART; i++, now += APART * stride) {
#pragma unroll
            for (uint32_t k = 0; k < CENI_FP32_DEPTH; k += 8) {
                bool valid = WHOLE || (i * APART < left && k < depth);
                copy_4(shared + (k * PITCH + i * APART) * 4, now + k, valid);
            }
        }
    }

    __device__ __forceinline__ void load(uint32_t shared) {
        if (whole && depth >= CENI_FP32_DEPTH) {
            copy<true>(shared + to);
        } else {
            copy<false>(shared + to);
        }
        from += CENI_FP32_DEPTH;
        depth = left_of(depth, CENI_FP32_DEPTH);
    }
};

template <uint32_t SIDE, uint32_t THREADS> struct fp32_tile<false, SIDE, THREADS> {
    static constexpr uint32_t PITCH = SIDE + CENI_FP32_PAD, WIDE_APART = THREADS * 4 / SIDE,
                              APART = THREADS < SIDE ? 1 : THREADS / SIDE;
    const float *from;
    uint64_t stride;
    uint32_t left, depth, to;
    bool wide, whole;

    __device__ __forceinline__ fp32_tile(uint64_t base, uint64_t rows_apart, uint32_t first,
                                         uint32_t end, uint32_t steps, bool aligned) {
        uint32_t mn = aligned ? threadIdx.x % (SIDE / 4) * 4 : threadIdx.x % SIDE;
        uint32_t at = threadIdx.x / (aligned ? SIDE / 4 : SIDE);
        wide = aligned;
        whole = first + SIDE <= end;
        from = (const float *)base + (uint64_t)at * rows_apart + first + mn;
        stride = rows_apart;
        left = left_of(end, first + mn);
        depth = left_of(steps, at);
        to = (at * PITCH + mn) * 4;
    }

    template <bool WHOLE> __device__ __forceinline__ void copy_wide(uint32_t shared) const {
        const float *now = from;
        uint32_t bytes = WHOLE || left > 4 ? 16 : left * 4;
#pragma unroll
        for (uint32_t k = 0; k < CENI_FP32_DEPTH; k += WIDE_APART, now += WIDE_APART * stride) {
            copy_16(shared + k * PITCH * 4, now, WHOLE || k < depth ? bytes : 0);
        }
    }

    __device__ __forceinline__ void copy_each(uint32_t shared) const {
        const float *now = from;
#pragma unroll
        for (uint32_t k = 0; k < CENI_FP32_DEPTH; k += APART, now += APART * stride) {
#pragma unroll
            for (uint32_t i = 0; i < SIDE; i += THREADS) {
                copy_4(shared + (k * PITCH + i) * 4, now + i, i < left && k < depth);
            }
        }
    }

    __device__ __forceinline__ void load(uint32_t shared) {
        if (!wide) {
            copy_each(shared + to);
        } else if (whole && depth >= CENI_FP32_DEPTH) {
            copy_wide<true>(shared + to);
        } else {
            copy_wide<false>(shared + to);
        }
        from += CENI_FP32_DEPTH * stride;
        depth = left_of(depth, CENI_FP32_DEPTH);
    }
};

// The same for the gathered A of a convolution: where rows begin is in bytes.
template <typename S> struct fp32_gathered {
    static constexpr uint32_t PITCH = S::M + CENI_FP32_PAD, APART = S::THREADS / 8;
    const ceni_conv_args *conv;
    gathered_row *rows;
    tap at; // of the thread's first step in the next stage

    __device__ __forceinline__ fp32_gathered(const ceni_conv_args &c, uint32_t first,
                                             void *shared) {
        conv = &c;
        rows = (gathered_row *)shared;
        gather_rows(c, first, rows);
        for (uint32_t i = threadIdx.x; i < S::M; i += S::THREADS) {
            rows[i].pixel *= c.channels * 4ll;
        }
        at.begin(c, threadIdx.x % 8);
        __syncthreads();
    }

    // Of STEPS steps, 8 apart are a thread's: all of one tap.
    template <uint32_t STEPS> __device__ __forceinline__ void copy(uint32_t shared) {
        const ceni_conv_args &c = *conv;
        int32_t dy = (int32_t)(at.y * c.dilation_y), dx = (int32_t)(at.x * c.dilation_x);
        const char *base = (const char *)c.product.a +
                           (((int64_t)dy * c.width + dx) * c.channels + at.channel) * 4;
        bool inside = at.y < c.filter_height;
        const int4 *row = (const int4 *)(rows + threadIdx.x / 8); // each in one access
#pragma unroll
        for (uint32_t first = 0; first < S::M; first += 8 * APART) {
            int4 r[8]; // read together: reads wait for copies that have begun
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) {
                r[i] = row[first + i * APART];
            }
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) {
                int64_t from = (int64_t)r[i].y << 32 | (uint32_t)r[i].x;
                bool valid =
                    inside & (uint32_t)(r[i].z + dy) < c.height & (uint32_t)(r[i].w + dx) < c.width;
#pragma unroll
                for (uint32_t k = 0; k < STEPS; k += 8) {
                    copy_4(shared + (k * PITCH + first + i * APART) * 4, base + from + k * 4,
                           valid);
                }
            }
        }
        at.advance(c, STEPS);
    }

    __device__ __forceinline__ void load(uint32_t shared) {
        shared += (threadIdx.x % 8 * PITCH + threadIdx.x / 8) * 4;
        if (conv->channels % CENI_FP32_DEPTH == 0) {
            copy<CENI_FP32_DEPTH>(shared);
        } else {
#pragma unroll 1
            for (uint32_t k = 0; k < CENI_FP32_DEPTH; k += 8) {
                copy<8>(shared + k * PITCH * 4);
            }
        }
    }
};

// A lane's place in its block's tile: lanes are 4 x 8, such that each quarter of a warp reads two
// rows and four columns.
template <typename S> struct thread_place {
    uint32_t row, col;

    __device__ thread_place() {
        uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        row = warp / (S::N / S::WARP_N) * S::WARP_M + ((lane & 1) | (lane >> 2 & 2)) * 4;
        col = warp % (S::N / S::WARP_N) * S::WARP_N + ((lane >> 1 & 3) | (lane >> 2 & 4)) * 4;
    }
};

template <uint32_t BLOCKS>
__device__ __forceinline__ void read_blocks(float v[BLOCKS * 4], const float *from,
                                            uint32_t apart) {
#pragma unroll
    for (uint32_t i = 0; i < BLOCKS; i++) {
        float4 four = *(const float4 *)(from + i * apart);
        v[i * 4] = four.x, v[i * 4 + 1] = four.y, v[i * 4 + 2] = four.z, v[i * 4 + 3] = four.w;
    }
}

template <typename S>
__device__ __forceinline__ void multiply_tile(S &s, const float *a, const float *b) {
#pragma unroll 8 // as much code as lies near the multiprocessor
    for (uint32_t k = 0; k < S::DEPTH; k++) {
        float x[S::A_BLOCKS * 4], y[8];
        read_blocks<S::A_BLOCKS>(x, a + k * S::A_PITCH, 16);
        read_blocks<2>(y, b + k * S::B_PITCH, 32);
#pragma unroll
        for (uint32_t i = 0; i < S::A_BLOCKS * 4; i++) {
#pragma unroll
            for (uint32_t j = 0; j < 8; j++) {
                s.sums[i][j] += x[i] * y[j];
            }
        }
    }
}

template <typename S> __device__ __forceinline__ place fp32_place(const args &p, uint32_t block) {
    return place_of(block, tiles_of(p.m, S::M), tiles_of(p.n, S::N));
}

// A block of 4 x 4 of all lanes of a warp is one of 16 x 32. Neighbours change places on their way:
// vectors that are stored lie in registers as they are stored, and so a sum and the element of B
// that it is multiplied with are in different banks of registers.
template <typename S>
__device__ __forceinline__ void finish_tile(const args &p, const S &s, float *shared) {
    const thread_place<S> at;
    place tile = fp32_place<S>(p, block_again());
    float *stage = shared + threadIdx.x / 32 * (CENI_STAGE_BYTES / 4);
#pragma unroll 1 // what finishes is there once; sums are chosen by constants all the same
    for (uint32_t part = 0; part < S::A_BLOCKS * 2; part++) {
#pragma unroll
        for (uint32_t i = 0; i < S::A_BLOCKS * 8; i++) {
            const float *four = &s.sums[i / 8 * 4 + i % 4][i / 4 % 2 * 4];
            if (i / 4 == part) {
                *(float4 *)(stage + (at.row % 16 + i % 4) * CENI_STAGE_STRIDE + at.col % 32) =
                    make_float4(four[1], four[0], four[3], four[2]);
            }
        }
        finish_stage<false, true>(p, stage, tile.row * S::M + at.row / 16 * 16 + part / 2 * 16,
                                  tile.col * S::N + at.col / 64 * 64 + part % 2 * 32);
    }
}

template <typename S, typename A, typename B>
__device__ __forceinline__ void run_fp32(const args &p, A &a, B &b, float *shared) {
    const thread_place<S> at;
    S s = {};
    const uint32_t tiles = tiles_of(p.k, S::DEPTH), ring = shared_address(shared);
    uint32_t stage = 0, ahead = S::STAGES - 1;
    for (uint32_t t = 0; t < S::STAGES - 1; t++) {
        if (t < tiles) {
            a.load(ring + t * S::STAGE_FLOATS * 4);
            b.load(ring + (t * S::STAGE_FLOATS + S::A_FLOATS) * 4);
        }
        copies_commit();
    }
#pragma unroll 1
    for (uint32_t t = 0; t < tiles; t++) {
        copies_wait<S::STAGES - 2>();
        __syncthreads(); // this stage is there, and nobody reads the one before any more
        if (t + S::STAGES - 1 < tiles) {
            a.load(ring + ahead * (S::STAGE_FLOATS * 4));
            b.load(ring + ahead * (S::STAGE_FLOATS * 4) + S::A_FLOATS * 4);
        }
        copies_commit();
        const float *now = shared + stage * S::STAGE_FLOATS;
        multiply_tile(s, now + at.row, now + S::A_FLOATS + at.col);
        ahead = stage;
        stage = stage + 1 == S::STAGES ? 0 : stage + 1;
    }
    copies_wait<0>();
    __syncthreads();
    finish_tile(p, s, shared);
}

typedef shape<2, 2, 4> square;
typedef shape<4, 1, 2> narrow;

template <typename S, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void product_fp32(const args &p) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    place tile = fp32_place<S>(p, blockIdx.x);
    fp32_tile<A_ALONG, S::M, S::THREADS> a(p.a, p.a_stride, tile.row * S::M, p.m, p.k,
                                           p.wide & CENI_WIDE_A);
    fp32_tile<B_ALONG, S::N, S::THREADS> b(p.b, p.b_stride, tile.col * S::N, p.n, p.k,
                                           p.wide & CENI_WIDE_B);
    run_fp32<S>(p, a, b, (float *)dynamic);
}

template <typename S> __device__ __forceinline__ void conv_fp32(const ceni_conv_args &c) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    const args &p = c.product;
    place tile = fp32_place<S>(p, blockIdx.x);
    fp32_gathered<S> a(c, tile.row * S::M, dynamic + CENI_FP32_SHARED(S::N));
    fp32_tile<true, S::N, S::THREADS> b(p.b, p.b_stride, tile.col * S::N, p.n, p.k, false);
    run_fp32<S>(p, a, b, (float *)dynamic);
}

} // namespace product

// `blocks` on a multiprocessor, which bounds their registers.
#define CENI_FP32_KERNEL(shape, blocks, type, name)                                                \
    extern "C" __global__ void __launch_bounds__(product::shape::THREADS, blocks)                  \
        name(const __grid_constant__ type p)
#define CENI_FP32(shape, blocks, name, a_along, b_along)                                           \
    CENI_FP32_KERNEL(shape, blocks, ceni_product_args, cen_product_##name) {                       \
        product::product_fp32<product::shape, a_along, b_along>(p);                                \
    }
#define CENI_FP32_ALL(shape, blocks, name)                                                         \
    CENI_FP32(shape, blocks, name##_nn, true, false)                                               \
    CENI_FP32(shape, blocks, name##_nt, true, true)                                                \
    CENI_FP32(shape, blocks, name##_tn, false, false)                                              \
    CENI_FP32(shape, blocks, name##_tt, false, true)                                               \
    CENI_FP32_KERNEL(shape, blocks, ceni_conv_args, cen_conv_##name) {                             \
        product::conv_fp32<product::shape>(p);                                                     \
    }
CENI_FP32_ALL(square, 2, fp32)
CENI_FP32_ALL(narrow, 3, fp32_64)
#undef CENI_FP32_ALL
#undef CENI_FP32
#undef CENI_FP32_KERNEL

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
