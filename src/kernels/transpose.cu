// Transposes (transpose.h): the bytes of a tile come in along its rows and go out along its columns,
// both in pieces that are whole for memory. What differs is how they lie in between.

#include <stdint.h>

#include "kernels/transpose.h"

namespace cen_transpose_tiles {

// Calls body(first row, first column) for each tile of this block.
template <int TILE, typename Body>
__device__ __forceinline__ void over_tiles(const ceni_transpose &t, Body body) {
    for (uint64_t row = (uint64_t)blockIdx.y * TILE; row < t.rows;
         row += (uint64_t)gridDim.y * TILE) {
        for (uint64_t col = (uint64_t)blockIdx.x * TILE; col < t.cols;
             col += (uint64_t)gridDim.x * TILE) {
            body(row, col);
        }
    }
}

// ---- an element at a time ----

template <typename T> __device__ __forceinline__ void naive(const ceni_transpose &t) {
    over_tiles<32>(t, [&](uint64_t row, uint64_t col) {
        for (int y = threadIdx.y; y < 32; y += 8) {
            uint64_t i = row + y, j = col + threadIdx.x;
            if (i < t.rows && j < t.cols) {
                ((T *)t.dst)[j * t.dst_stride + i] = ((const T *)t.src)[i * t.src_stride + j];
            }
        }
    });
}

template <typename T, int PAD> __device__ __forceinline__ void shared(const ceni_transpose &t) {
    __shared__ T tile[32][32 + PAD];
    over_tiles<32>(t, [&](uint64_t row, uint64_t col) {
        __syncthreads(); // until the tile before has been read
#pragma unroll
        for (int y = 0; y < 32; y += 8) {
            uint64_t i = row + y + threadIdx.y, j = col + threadIdx.x;
            if (i < t.rows && j < t.cols) {
                tile[y + threadIdx.y][threadIdx.x] = ((const T *)t.src)[i * t.src_stride + j];
            }
        }
        __syncthreads();
#pragma unroll
        for (int y = 0; y < 32; y += 8) {
            uint64_t i = row + threadIdx.x, j = col + y + threadIdx.y;
            if (i < t.rows && j < t.cols) {
                ((T *)t.dst)[j * t.dst_stride + i] = tile[threadIdx.x][y + threadIdx.y];
            }
        }
    });
}

// ---- 16 bytes at a time ----

// What is one element for memory, and what is read of shared memory at once.
template <int SIZE> struct element;
template <> struct element<1> {
    using type = uint8_t;
    using word = uint32_t;
};
template <> struct element<2> {
    using type = uint16_t;
    using word = uint32_t;
};
template <> struct element<4> {
    using type = uint32_t;
    using word = uint32_t;
};
template <> struct element<8> {
    using type = uint64_t;
    using word = uint64_t;
};

template <int SIZE> union quad {
    uint4 all;
    typename element<SIZE>::type each[16 / SIZE];
};

// 16 bytes from `at`, of which `count` elements are there.
template <int SIZE> __device__ __forceinline__ uint4 load_quad(uint64_t at, int64_t count) {
    constexpr int N = 16 / SIZE;
    if (count >= N) {
        return *(const uint4 *)at;
    }
    quad<SIZE> q;
    q.all = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (k < count) {
            q.each[k] = ((const typename element<SIZE>::type *)at)[k];
        }
    }
    return q.all;
}

template <int SIZE>
__device__ __forceinline__ void store_quad(uint64_t at, int64_t count, const quad<SIZE> &q) {
    constexpr int N = 16 / SIZE;
    if (count >= N) {
        *(uint4 *)at = q.all;
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (k < count) {
            ((typename element<SIZE>::type *)at)[k] = q.each[k];
        }
    }
}

// Column p of the words, whose elements are those of P columns; one word for each of N rows.
template <int SIZE, int N>
__device__ __forceinline__ quad<SIZE> column(const typename element<SIZE>::word (&words)[N],
                                             int p) {
    quad<SIZE> q;
    if constexpr (SIZE == 1) { // bytes p of 4 words each
        uint32_t low = p | (p + 4) << 4, out[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint32_t a = __byte_perm(words[4 * k], words[4 * k + 1], low);
            uint32_t b = __byte_perm(words[4 * k + 2], words[4 * k + 3], low);
            out[k] = __byte_perm(a, b, 0x5410);
        }
        q.all = make_uint4(out[0], out[1], out[2], out[3]);
    } else if constexpr (SIZE == 2) {
        uint32_t halves = p ? 0x7632 : 0x5410;
        q.all = make_uint4(__byte_perm(words[0], words[1], halves),
                           __byte_perm(words[2], words[3], halves),
                           __byte_perm(words[4], words[5], halves),
                           __byte_perm(words[6], words[7], halves));
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) {
            q.each[k] = words[k];
        }
    }
    return q;
}

template <int SIZE> __device__ __forceinline__ void quads(const ceni_transpose &t) {
    using word = typename element<SIZE>::word;
    constexpr int TILE = CENI_TRANSPOSE_TILE(SIZE), N = 16 / SIZE; // elements of a quad
    constexpr int QUADS = TILE / N, THREADS = 256;                 // quads of a row
    constexpr int WORDS = 16 / (int)sizeof(word);                  // words of a quad
    constexpr int P = (int)sizeof(word) / SIZE;                    // elements of a word
    constexpr int LOADS = TILE * QUADS / THREADS;
    __shared__ uint4 tile[TILE][QUADS];
    over_tiles<TILE>(t, [&](uint64_t row, uint64_t col) {
        uint4 in[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            int at = k * THREADS + threadIdx.x, y = at / QUADS, x = at % QUADS;
            uint64_t i = row + y, j = col + x * N;
            int64_t count = i < t.rows ? (int64_t)(t.cols - j) : 0;
            in[k] = load_quad<SIZE>(t.src + (i * t.src_stride + j) * SIZE, count);
        }
        __syncthreads(); // until the tile before has been read
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            int at = k * THREADS + threadIdx.x, y = at / QUADS, x = at % QUADS;
            tile[y][CENI_TRANSPOSE_SWIZZLE(x, y, SIZE)] = in[k];
        }
        __syncthreads();
        // 8 lanes go down a column, the next 8 take the next word, and so on: a thread takes N rows
        // of one word, which are quads of P columns.
        const word *words = (const word *)tile;
#pragma unroll
        for (int k = 0; k < LOADS / P; k++) {
            int at = k * THREADS + threadIdx.x, lane = at % 8, rest = at / 8;
            int w = rest % WORDS, x = rest / WORDS % QUADS, y = rest / WORDS / QUADS * 8 + lane;
            word column_words[N];
#pragma unroll
            for (int n = 0; n < N; n++) {
                int r = y * N + n, x_there = CENI_TRANSPOSE_SWIZZLE(x, r, SIZE);
                column_words[n] = words[(r * QUADS + x_there) * WORDS + w];
            }
#pragma unroll
            for (int p = 0; p < P; p++) {
                uint64_t i = row + y * N, j = col + x * N + w * P + p;
                int64_t count = j < t.cols ? (int64_t)(t.rows - i) : 0;
                store_quad<SIZE>(t.dst + (j * t.dst_stride + i) * SIZE, count,
                                 column<SIZE>(column_words, p));
            }
        }
    });
}

} // namespace cen_transpose_tiles

// What follows the body: threads, and blocks of a multiprocessor if registers are to be kept for them.
#define KERNEL(name, body, ...)                                                                    \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__)                                      \
        cen_transpose_##name(const __grid_constant__ ceni_transpose t) {                           \
        cen_transpose_tiles::body(t);                                                              \
    }
#define COMMA ,
KERNEL(1, quads<1>, 256, 4)
KERNEL(2, quads<2>, 256)
KERNEL(4, quads<4>, 256)
KERNEL(8, quads<8>, 256)
KERNEL(padded_1, shared<uint8_t COMMA CENI_TRANSPOSE_PAD(1)>, 256)
KERNEL(padded_2, shared<uint16_t COMMA CENI_TRANSPOSE_PAD(2)>, 256)
KERNEL(padded_4, shared<uint32_t COMMA CENI_TRANSPOSE_PAD(4)>, 256)
KERNEL(padded_8, shared<uint64_t COMMA CENI_TRANSPOSE_PAD(8)>, 256)
KERNEL(naive_4, naive<uint32_t>, 256)
KERNEL(shared_4, shared<uint32_t COMMA 0>, 256)
#undef COMMA
#undef KERNEL
