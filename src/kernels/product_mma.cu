// Products on the tensor cores of sm_80 and later: mma.sync of BF16, FP16 and INT8, of any shape,
// stride and alignment; and convolutions, whose A is gathered on the way.
//
// A block of 256 threads makes a tile of 128 x 128, each of its warps 64 x 32 of it. Tiles of A and
// B, 64 bytes of the sum deep, go through a ring of four stages of shared memory. What lies along
// the sum is kept as rows of 64 bytes, what lies across it as rows of 128 elements for each step of
// the sum; both with their 16-byte parts exchanged, so that the 8 rows which a matrix of ldmatrix
// takes lie in different banks. Copies are of 16 bytes where the memory is aligned; otherwise
// elements are loaded and stored, with the same order of stages.

#include "kernels/product.cuh"

namespace product {

struct bf16 {
    enum { SIZE = 2 };
    typedef float sum;
    typedef uint16_t element;
};
struct fp16 {
    enum { SIZE = 2 };
    typedef float sum;
    typedef uint16_t element;
};
struct int8 {
    enum { SIZE = 1 };
    typedef int32_t sum;
    typedef uint8_t element;
};

__device__ __forceinline__ void mma(bf16, float d[4], const uint32_t a[4], const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma(fp16, float d[4], const uint32_t a[4], const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma(int8, int32_t d[4], const uint32_t a[4], const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <bool TURNED> __device__ __forceinline__ void load_matrices(uint32_t v[4], uint32_t from) {
    if (TURNED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(from)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(from)
                     : "memory");
    }
}

enum {
    MMA_TILE = CENI_SIMT_TILE,
    ROW_BYTES = CENI_MMA_ROW_BYTES,
    PARTS = ROW_BYTES / 16,
    OPERAND_BYTES = MMA_TILE * ROW_BYTES,
    STAGE = 2 * OPERAND_BYTES
};

// Where the 16-byte part `part` of row `row` lies: rows along the sum, and across it.
__device__ __forceinline__ uint32_t along_at(uint32_t row, uint32_t part) {
    return row * ROW_BYTES + ((part ^ (row >> 1 & 3)) << 4);
}

__device__ __forceinline__ uint32_t across_at(uint32_t step, uint32_t part) {
    return step * (MMA_TILE * 2) + ((part ^ (step & 7)) << 4);
}

// How a tile of one operand gets into shared memory. ALONG: it lies along the sum there; and in
// memory, too, unless `turned`, which only INT8 may be, as ldmatrix turns no bytes.
template <typename T, bool ALONG> struct mma_tile {
    enum { DEPTH = ROW_BYTES / T::SIZE, PART = 16 / T::SIZE };
    typedef typename T::element element;
    const element *base;
    uint64_t stride;
    uint32_t first, end, depth; // rows or columns of the whole matrix; the sum's length
    bool wide, turned;

    __device__ __forceinline__ void load_wide(uint32_t to, uint32_t k) const {
#pragma unroll
        for (uint32_t i = 0; i < OPERAND_BYTES / 16 / CENI_TILE_THREADS; i++) {
            uint32_t id = threadIdx.x + i * CENI_TILE_THREADS, bytes;
            const element *from;
            if (ALONG) {
                uint32_t row = first + id / PARTS, at = k + id % PARTS * PART;
                bytes = row < end ? valid_bytes(at, depth, T::SIZE) : 0;
                from = base + (uint64_t)row * stride + at;
                copy_16(to + along_at(id / PARTS, id % PARTS), bytes ? from : base, bytes);
            } else {
                uint32_t step = id / (MMA_TILE / PART), part = id % (MMA_TILE / PART);
                uint32_t at = first + part * PART;
                bytes = k + step < depth ? valid_bytes(at, end, T::SIZE) : 0;
                from = base + (uint64_t)(k + step) * stride + at;
                copy_16(to + across_at(step, part), bytes ? from : base, bytes);
            }
        }
    }

    // Neighbouring threads take neighbours in memory, a few at a time to have them on their way
    // together.
    __device__ __forceinline__ void load_elements(unsigned char *to, uint32_t k) const {
        enum { BATCH = 8 };
        bool by_steps = ALONG && !turned;
#pragma unroll 1
        for (uint32_t begin = threadIdx.x; begin < MMA_TILE * DEPTH;
             begin += BATCH * CENI_TILE_THREADS) {
            element v[BATCH];
#pragma unroll
            for (uint32_t i = 0; i < BATCH; i++) {
                uint32_t id = begin + i * CENI_TILE_THREADS;
                uint32_t mn = by_steps ? id / DEPTH : id % MMA_TILE;
                uint32_t step = by_steps ? id % DEPTH : id / MMA_TILE;
                uint64_t row = (uint64_t)first + mn, at = (uint64_t)k + step;
                v[i] = row < end && at < depth
                           ? base[by_steps ? row * stride + at : at * stride + row]
                           : (element)0;
            }
#pragma unroll
            for (uint32_t i = 0; i < BATCH; i++) {
                uint32_t id = begin + i * CENI_TILE_THREADS;
                uint32_t mn = by_steps ? id / DEPTH : id % MMA_TILE;
                uint32_t step = by_steps ? id % DEPTH : id / MMA_TILE;
                uint32_t place = ALONG ? along_at(mn, step / PART) + step % PART * T::SIZE
                                       : across_at(step, mn / PART) + mn % PART * T::SIZE;
                *(element *)(to + place) = v[i];
            }
        }
    }

    __device__ __forceinline__ void load(unsigned char *to, uint32_t tile) const {
        if (wide && !turned) {
            load_wide(shared_address(to), tile * DEPTH);
        } else {
            load_elements(to, tile * DEPTH);
        }
    }
};

// The same for the gathered A of a convolution; tiles are loaded in order. A thread keeps to one
// part of the rows, or to one step.
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

// Multiplies a stage, of which a warp takes 64 rows and 32 columns, in two steps.
template <typename T, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void multiply_stage(typename T::sum sums[4][4][4], uint32_t a,
                                               uint32_t b) {
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t row = warp / 4 * 64, col = warp % 4 * 32;
#pragma unroll
    for (uint32_t step = 0; step < 2; step++) {
        uint32_t x[4][4], y[2][4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t m = row + i * 16;
            load_matrices<!A_ALONG>(
                x[i], a + (A_ALONG ? along_at(m + lane % 16, step * 2 + lane / 16)
                                   : across_at(step * 16 + lane % 8 + lane / 16 * 8,
                                               m / 8 + (lane >> 3 & 1))));
        }
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t n = col + j * 16;
            load_matrices<!B_ALONG>(
                y[j], b + (B_ALONG ? along_at(n + lane % 8 + lane / 16 * 8,
                                              step * 2 + (lane >> 3 & 1))
                                   : across_at(step * 16 + lane % 16, n / 8 + lane / 16)));
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                mma(T(), sums[i][j], x[i], &y[j / 2][j % 2 * 2]);
            }
        }
    }
}

__device__ __forceinline__ float bits_of(float sum) {
    return sum;
}

__device__ __forceinline__ float bits_of(int32_t sum) {
    return __int_as_float(sum);
}

__device__ __forceinline__ place mma_place(const args &p, uint32_t block) {
    return place_of(block, tiles_of(p.m, MMA_TILE), tiles_of(p.n, MMA_TILE));
}

template <typename T>
__device__ __forceinline__ void finish_mma(const args &p, typename T::sum sums[4][4][4],
                                           unsigned char *shared) {
    place tile = mma_place(p, block_again());
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *stage = (float *)(shared + warp * CENI_STAGE_BYTES);
#pragma unroll 1 // what finishes is there once; sums are chosen by constants all the same
    for (uint32_t i = 0; i < 4; i++) {
#pragma unroll
        for (uint32_t j = 0; j < 16; j++) {
            float *to = stage + lane / 4 * CENI_STAGE_STRIDE + j % 4 * 8 + lane % 4 * 2;
            if (j / 4 == i) {
                const typename T::sum *s = sums[j / 4][j % 4];
                *(float2 *)to = make_float2(bits_of(s[0]), bits_of(s[1]));
                *(float2 *)(to + 8 * CENI_STAGE_STRIDE) = make_float2(bits_of(s[2]), bits_of(s[3]));
            }
        }
        finish_stage<T::SIZE == 1>(p, stage, tile.row * MMA_TILE + warp / 4 * 64 + i * 16,
                                   tile.col * MMA_TILE + warp % 4 * 32);
    }
}

template <typename T, bool A_ALONG, bool B_ALONG, typename A, typename B>
__device__ __forceinline__ void run_mma(const args &p, A &a, const B &b, unsigned char *shared) {
    typename T::sum sums[4][4][4] = {};
    uint32_t tiles = tiles_of(p.k, ROW_BYTES / T::SIZE);
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
        multiply_stage<T, A_ALONG, B_ALONG>(sums, now, now + OPERAND_BYTES);
    }
    copies_wait<0>();
    __syncthreads();
    finish_mma<T>(p, sums, shared);
}

template <typename T, bool ALONG>
__device__ __forceinline__ mma_tile<T, ALONG> mma_tile_a(const args &p, place tile) {
    return {(const typename T::element *)p.a, p.a_stride, tile.row * MMA_TILE, p.m, p.k,
            (p.wide & CENI_WIDE_A) != 0, ALONG && p.transpose_a};
}

template <typename T, bool ALONG>
__device__ __forceinline__ mma_tile<T, ALONG> mma_tile_b(const args &p, place tile) {
    return {(const typename T::element *)p.b, p.b_stride, tile.col * MMA_TILE, p.n, p.k,
            (p.wide & CENI_WIDE_B) != 0, ALONG && !p.transpose_b};
}

template <typename T, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void product_mma(const args &p) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    place tile = mma_place(p, blockIdx.x);
    mma_tile<T, A_ALONG> a = mma_tile_a<T, A_ALONG>(p, tile);
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
