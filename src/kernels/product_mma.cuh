// What the kernels on the tensor cores' mma share: the instructions, how tiles lie in shared memory
// and get there, and how a slice of the sum is multiplied.
//
// What lies along the sum is kept as rows of 64 bytes, what lies across it as rows of elements for
// each step of the sum; both with their 16-byte parts exchanged, so that the 8 rows which a matrix
// of ldmatrix takes lie in different banks. Copies are of 16 bytes where the memory is aligned;
// otherwise elements are loaded and stored, with the same order of stages.
#ifndef CENI_KERNELS_PRODUCT_MMA_CUH
#define CENI_KERNELS_PRODUCT_MMA_CUH

#include "kernels/product.cuh"

namespace product {

struct bf16 {
    enum { SIZE = 2, IS_BF16 = 1 };
    typedef float sum;
    typedef uint16_t element;
};
struct fp16 {
    enum { SIZE = 2, IS_BF16 = 0 };
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

// Where the 16-byte part `part` of row `row` lies: rows along the sum, and across it. Warps that
// share a sum have slices of it, whose parts along it are exchanged by the slice's number, too:
// what is stored together is then of several slices, in different banks.
__device__ __forceinline__ uint32_t along_at(uint32_t row, uint32_t part, uint32_t slice = 0) {
    return row * ROW_BYTES + ((part ^ (row >> 1 & 3) ^ (slice & 3)) << 4);
}

// Of ROWS elements: rows of less than 128 bytes are exchanged as many together as these hold.
template <uint32_t ROWS>
__device__ __forceinline__ uint32_t across_at(uint32_t step, uint32_t part) {
    constexpr uint32_t BYTES = ROWS * 2, TOGETHER = BYTES < 128 ? 128 / BYTES : 1;
    constexpr uint32_t MASK = BYTES < 128 ? BYTES / 16 - 1 : 7;
    return step * BYTES + ((part ^ (step / TOGETHER & MASK)) << 4);
}

// How a tile of one operand gets into shared memory. ALONG: it lies along the sum there; and in
// memory, too, unless `turned`, which only INT8 may be, as ldmatrix turns no bytes. It has ROWS
// rows or columns of the matrix, and SLICES times ROW_BYTES of the sum.
template <typename T, bool ALONG, uint32_t ROWS = MMA_TILE, uint32_t SLICES = 1> struct mma_tile {
    enum { DEPTH = ROW_BYTES / T::SIZE, PART = 16 / T::SIZE, LENGTH = DEPTH * SLICES };
    typedef typename T::element element;
    const element *base;
    uint64_t stride;
    uint32_t first, end, depth; // rows or columns of the whole matrix; the sum's length
    bool wide, turned;

    __device__ __forceinline__ void load_wide(uint32_t to, uint32_t k) const {
#pragma unroll
        for (uint32_t i = 0; i < ROWS * PARTS * SLICES / CENI_TILE_THREADS; i++) {
            uint32_t id = threadIdx.x + i * CENI_TILE_THREADS, bytes;
            const element *from;
            if (ALONG) {
                // Two rows of each slice, so that eight threads store to different banks.
                uint32_t slice = SLICES == 1 ? 0 : id / (2 * PARTS) % SLICES;
                uint32_t mn =
                    SLICES == 1 ? id / PARTS : id / PARTS % 2 + id / (2 * PARTS * SLICES) * 2;
                uint32_t row = first + mn, at = k + slice * DEPTH + id % PARTS * PART;
                bytes = row < end ? valid_bytes(at, depth, T::SIZE) : 0;
                from = base + (uint64_t)row * stride + at;
                copy_16(to + slice * (ROWS * ROW_BYTES) + along_at(mn, id % PARTS, slice),
                        bytes ? from : base, bytes);
            } else {
                uint32_t step = id / (ROWS / PART), part = id % (ROWS / PART);
                uint32_t at = first + part * PART;
                bytes = k + step < depth ? valid_bytes(at, end, T::SIZE) : 0;
                from = base + (uint64_t)(k + step) * stride + at;
                copy_16(to + across_at<ROWS>(step, part), bytes ? from : base, bytes);
            }
        }
    }

    // Neighbouring threads take neighbours in memory, a few at a time to have them on their way
    // together.
    __device__ __forceinline__ void load_elements(unsigned char *to, uint32_t k) const {
        enum { BATCH = 8 };
        bool by_steps = ALONG && !turned;
#pragma unroll 1
        for (uint32_t begin = threadIdx.x; begin < ROWS * LENGTH;
             begin += BATCH * CENI_TILE_THREADS) {
            element v[BATCH];
#pragma unroll
            for (uint32_t i = 0; i < BATCH; i++) {
                uint32_t id = begin + i * CENI_TILE_THREADS;
                uint32_t mn = by_steps ? id / LENGTH : id % ROWS;
                uint32_t step = by_steps ? id % LENGTH : id / ROWS;
                uint64_t row = (uint64_t)first + mn, at = (uint64_t)k + step;
                v[i] = row < end && at < depth
                           ? base[by_steps ? row * stride + at : at * stride + row]
                           : (element)0;
            }
#pragma unroll
            for (uint32_t i = 0; i < BATCH; i++) {
                uint32_t id = begin + i * CENI_TILE_THREADS;
                uint32_t mn = by_steps ? id / LENGTH : id % ROWS;
                uint32_t step = by_steps ? id % LENGTH : id / ROWS;
                uint32_t slice = SLICES == 1 ? 0 : step / DEPTH, within = step - slice * DEPTH;
                uint32_t place = ALONG ? slice * (ROWS * ROW_BYTES) +
                                             along_at(mn, within / PART, slice) +
                                             step % PART * T::SIZE
                                       : across_at<ROWS>(step, mn / PART) + mn % PART * T::SIZE;
                *(element *)(to + place) = v[i];
            }
        }
    }

    __device__ __forceinline__ void load(unsigned char *to, uint32_t tile) const {
        if (wide && !turned) {
            load_wide(shared_address(to), tile * LENGTH);
        } else {
            load_elements(to, tile * LENGTH);
        }
    }
};

// Multiplies a slice of a stage, in two steps: I times 16 rows from `row` and 32 columns from `col`
// on, of tiles of ROWS rows and COLS columns.
template <typename T, bool A_ALONG, bool B_ALONG, int I, uint32_t ROWS, uint32_t COLS>
__device__ __forceinline__ void multiply_slice(typename T::sum sums[I][4][4], uint32_t a,
                                               uint32_t b, uint32_t row, uint32_t col,
                                               uint32_t slice) {
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t step = 0; step < 2; step++) {
        uint32_t x[I][4], y[2][4];
#pragma unroll
        for (uint32_t i = 0; i < I; i++) {
            uint32_t m = row + i * 16;
            load_matrices<!A_ALONG>(
                x[i], a + (A_ALONG ? along_at(m + lane % 16, step * 2 + lane / 16, slice)
                                   : across_at<ROWS>(step * 16 + lane % 8 + lane / 16 * 8,
                                                     m / 8 + (lane >> 3 & 1))));
        }
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t n = col + j * 16;
            load_matrices<!B_ALONG>(
                y[j], b + (B_ALONG ? along_at(n + lane % 8 + lane / 16 * 8,
                                              step * 2 + (lane >> 3 & 1), slice)
                                   : across_at<COLS>(step * 16 + lane % 16, n / 8 + lane / 16)));
        }
#pragma unroll
        for (uint32_t i = 0; i < I; i++) {
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

// The i-th 16 rows of a warp's sums, into its stage.
template <typename T, int I>
__device__ __forceinline__ void stage_sums(float *stage, const typename T::sum sums[I][4][4],
                                           uint32_t i) {
    uint32_t lane = threadIdx.x % 32;
#pragma unroll // sums are chosen by constants
    for (uint32_t j = 0; j < I * 4; j++) {
        float *to = stage + lane / 4 * CENI_STAGE_STRIDE + j % 4 * 8 + lane % 4 * 2;
        if (j / 4 == i) {
            const typename T::sum *s = sums[j / 4][j % 4];
            *(float2 *)to = make_float2(bits_of(s[0]), bits_of(s[1]));
            *(float2 *)(to + 8 * CENI_STAGE_STRIDE) = make_float2(bits_of(s[2]), bits_of(s[3]));
        }
    }
}

// The part of `p`'s A that a block's tile takes.
template <typename T, bool ALONG, uint32_t ROWS, uint32_t SLICES>
__device__ __forceinline__ mma_tile<T, ALONG, ROWS, SLICES> mma_tile_a(const args &p, place tile) {
    return {(const typename T::element *)p.a,
            p.a_stride,
            tile.row * ROWS,
            p.m,
            p.k,
            (p.wide & CENI_WIDE_A) != 0,
            ALONG && p.transpose_a};
}

} // namespace product

#endif
