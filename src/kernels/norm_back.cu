// The gradients of layer norm (norm_back.h).
//
// Pieces of 4 columns begin at multiples of 4 here, wherever a row lies, so that a thread has the same
// columns of each row and adds up their gradients in registers.

#include <stdint.h>

#include "kernels/convert.cuh"
#include "kernels/group.cuh"
#include "kernels/norm_back.h"

namespace cen_norm_back_parts {

using namespace cen_convert;
using namespace cen_group;

enum { PIECES = CENI_NORM_BACK_HELD / 4 };

__device__ __forceinline__ uint64_t row_of(const ceni_operand &o, uint64_t row) {
    return o.data + row * o.stride * size_of(o.dtype);
}

__device__ __forceinline__ void load_gamma(const ceni_operand &gamma, const part &p,
                                           float (&v)[4]) {
    if (gamma.data) {
        unpack<4>(load<4, true>(gamma.data, size_of(gamma.dtype), p), gamma.dtype, v);
    } else {
        v[0] = v[1] = v[2] = v[3] = 1;
    }
}

struct row_stats {
    float mean, rstd;
    __device__ __forceinline__ row_stats(const ceni_norm_back &a, uint64_t row) {
        mean = ((const float *)a.mean)[row * a.mean_stride];
        rstd = ((const float *)a.rstd)[row * a.rstd_stride];
    }
};

__device__ __forceinline__ void store_dx(const ceni_norm_back &a, uint64_t row, const part &p,
                                         const float (&v)[4]) {
    store<4>(row_of(a.dx, row), size_of(a.dx.dtype), p, pack<4>(v, a.dx.dtype));
}

// The parts of one block: those of its threads with y > 0 come to y 0, which writes them.
__device__ __forceinline__ void put_parts(const ceni_norm_back &a, uint64_t index, int k, part p,
                                          float (&gamma)[4], float (&beta)[4]) {
    __shared__ float others[CENI_NORM_BACK_THREADS_MAX][8];
    uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; j++) {
        others[thread][j] = gamma[j];
        others[thread][4 + j] = beta[j];
    }
    __syncthreads();
    if (threadIdx.y) {
        return;
    }
    float *to = (float *)a.work + index * 2 * a.cols + p.start;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        for (uint32_t y = 1; y < blockDim.y; y++) {
            gamma[j] += others[y * blockDim.x + threadIdx.x][j];
            beta[j] += others[y * blockDim.x + threadIdx.x][4 + j];
        }
        if (j < p.last) {
            to[j] = gamma[j];
            to[a.cols + j] = beta[j];
        }
    }
}

template <uint32_t TYPE> __device__ __forceinline__ void back(const ceni_norm_back &a) {
    const uint32_t size = TYPE == CEN_FP32 ? 4 : 2;
    float dgamma[PIECES][4] = {}, dbeta[PIECES][4] = {};
    for (uint64_t base = (uint64_t)blockIdx.x * blockDim.y; base < a.rows;
         base += (uint64_t)gridDim.x * blockDim.y) {
        // Threads of a row behind the last go along with the last one's, as sums want all of them.
        bool real = base + threadIdx.y < a.rows;
        uint64_t row = real ? base + threadIdx.y : a.rows - 1;
        uint64_t dy_row = row_of(a.dy, row), x_row = row_of(a.x, row);
        raw dy_raw[PIECES], x_raw[PIECES];
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            part p = part_of<4>(k * blockDim.x + threadIdx.x, 0, a.cols);
            dy_raw[k] = load<4>(dy_row, size, p);
            x_raw[k] = load<4>(x_row, size, p);
        }
        row_stats stats(a, row);
        float g[PIECES][4], h[PIECES][4], sum_g = 0, sum_gh = 0;
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            part p = part_of<4>(k * blockDim.x + threadIdx.x, 0, a.cols);
            float gamma[4];
            load_gamma(a.gamma, p, gamma);
            unpack<4>(dy_raw[k], TYPE, g[k]);
            unpack<4>(x_raw[k], TYPE, h[k]);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                bool there = j < p.last;
                h[k][j] = there ? (h[k][j] - stats.mean) * stats.rstd : 0;
                dgamma[k][j] += real && there ? g[k][j] * h[k][j] : 0;
                dbeta[k][j] += real ? g[k][j] : 0;
                g[k][j] = there ? g[k][j] * gamma[j] : 0;
                sum_g += g[k][j];
                sum_gh += g[k][j] * h[k][j];
            }
        }
        if (!a.dx.data) {
            continue;
        }
        float mean_g = over_group<add>(sum_g) / (float)a.cols;
        float mean_gh = over_group<add>(sum_gh) / (float)a.cols;
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            part p = part_of<4>(k * blockDim.x + threadIdx.x, 0, a.cols);
            float v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[j] = stats.rstd * (g[k][j] - mean_g - h[k][j] * mean_gh);
            }
            if (real) {
                store_dx(a, row, p, v);
            }
        }
    }
    if (a.work) {
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            part p = part_of<4>(k * blockDim.x + threadIdx.x, 0, a.cols);
            put_parts(a, blockIdx.x, k, p, dgamma[k], dbeta[k]);
        }
    }
}

// ---- rows of whole pieces of 16 bytes ----

// The rows to come, on their way into shared memory. Each thread fetches its own pieces and reads them
// itself, so that nothing waits for others.
template <uint32_t TYPE> struct ring {
    static constexpr int V = TYPE == CEN_FP32 ? 4 : 8, SIZE = 16 / V;
    static constexpr int N = CENI_NORM_BACK_HELD / V; // pieces of a row
    uint32_t at, threads, stages, pieces;

    __device__ __forceinline__ ring(const ceni_norm_back &a, const uint4 *memory) {
        threads = blockDim.x * blockDim.y;
        at = (uint32_t)__cvta_generic_to_shared(memory) +
             (threadIdx.y * blockDim.x + threadIdx.x) * 16;
        stages = (uint32_t)a.stages;
        pieces = (uint32_t)a.cols / V;
    }
    static __device__ __forceinline__ uint32_t piece(int k) {
        return k * blockDim.x + threadIdx.x;
    }
    __device__ __forceinline__ bool has(int k) const {
        return piece(k) < pieces;
    }
    __device__ __forceinline__ uint32_t place(uint32_t stage, int matrix, int k) const {
        return at + ((stage * 2 + matrix) * N + k) * threads * 16;
    }
    // One group of copies, of nothing if the row is behind the last.
    __device__ __forceinline__ void fetch(const ceni_norm_back &a, uint64_t row,
                                          uint32_t stage) const {
        if (row < a.rows) {
            uint64_t dy = a.dy.data + row * a.dy.stride * SIZE;
            uint64_t x = a.x.data + row * a.x.stride * SIZE;
#pragma unroll
            for (int k = 0; k < N; k++) {
                if (has(k)) {
                    copy(place(stage, 0, k), dy + piece(k) * 16);
                    copy(place(stage, 1, k), x + piece(k) * 16);
                }
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    // Until no more groups are under way than the stages behind this one.
    __device__ __forceinline__ void wait() const {
        switch (stages) {
        case 1:
            asm volatile("cp.async.wait_group 0;" ::: "memory");
            break;
        case 2:
            asm volatile("cp.async.wait_group 1;" ::: "memory");
            break;
        case 3:
            asm volatile("cp.async.wait_group 2;" ::: "memory");
            break;
        default:
            asm volatile("cp.async.wait_group 3;" ::: "memory");
        }
    }
    __device__ __forceinline__ void read(uint32_t stage, int matrix, int k, float (&v)[V]) const {
        raw r;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
                     : "r"(place(stage, matrix, k))
                     : "memory");
        unpack<V>(r, TYPE, v);
    }

  private:
    static __device__ __forceinline__ void copy(uint32_t to, uint64_t from) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    }
};

// The part of one block, of which each thread has V columns for each k: rows of threads add up in
// shared memory, which nothing is on its way to any more.
template <int V>
__device__ __forceinline__ void put_whole_part(const ceni_norm_back &a, float *others,
                                               uint32_t piece, bool there, float (&gamma)[V],
                                               float (&beta)[V]) {
    uint32_t threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < V; j++) {
        others[j * threads + thread] = gamma[j];
        others[(V + j) * threads + thread] = beta[j];
    }
    __syncthreads();
    if (threadIdx.y || !there) {
        return;
    }
    uint64_t to = a.work + (blockIdx.x * 2 * a.cols + (uint64_t)piece * V) * sizeof(float);
#pragma unroll
    for (int j = 0; j < V; j += 4) {
        for (uint32_t y = 1; y < blockDim.y; y++) {
            const float *from = others + j * threads + y * blockDim.x + threadIdx.x;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                gamma[j + i] += from[i * threads];
                beta[j + i] += from[(V + i) * threads];
            }
        }
        *(float4 *)(to + j * sizeof(float)) =
            make_float4(gamma[j], gamma[j + 1], gamma[j + 2], gamma[j + 3]);
        *(float4 *)(to + (a.cols + j) * sizeof(float)) =
            make_float4(beta[j], beta[j + 1], beta[j + 2], beta[j + 3]);
    }
}

template <uint32_t TYPE>
__device__ __forceinline__ void store_whole_dx(const ceni_norm_back &a, uint64_t row,
                                               const ring<TYPE> &next, float rstd,
                                               const float (&sums)[2],
                                               const float (&g)[ring<TYPE>::N][ring<TYPE>::V],
                                               const float (&h)[ring<TYPE>::N][ring<TYPE>::V]) {
    constexpr int V = next.V;
    float mean_g = sums[0] / (float)a.cols, mean_gh = sums[1] / (float)a.cols;
    uint64_t to = a.dx.data + row * a.dx.stride * next.SIZE;
#pragma unroll
    for (int k = 0; k < next.N; k++) {
        float v[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            v[j] = rstd * (g[k][j] - mean_g - h[k][j] * mean_gh);
        }
        if (next.has(k)) {
            store_whole<V>(to + next.piece(k) * 16, next.SIZE, pack<V>(v, TYPE));
        }
    }
}

// Stays packed; ones where there is none.
template <uint32_t TYPE>
__device__ __forceinline__ void load_whole_gamma(const ceni_norm_back &a, const ring<TYPE> &next,
                                                 raw (&gamma)[ring<TYPE>::N]) {
    constexpr int V = next.V;
    float ones[V];
#pragma unroll
    for (int j = 0; j < V; j++) {
        ones[j] = 1;
    }
#pragma unroll
    for (int k = 0; k < next.N; k++) {
        gamma[k] = pack<V>(ones, TYPE);
        if (a.gamma.data && next.has(k)) {
            gamma[k] = load_whole<V>(a.gamma.data + next.piece(k) * 16, next.SIZE);
        }
    }
}

template <uint32_t TYPE> __device__ __forceinline__ void back_whole(const ceni_norm_back &a) {
    extern __shared__ uint4 norm_back_ring[];
    const ring<TYPE> next(a, norm_back_ring);
    constexpr int N = next.N, V = next.V;
    float dgamma[N][V] = {}, dbeta[N][V] = {};
    raw gamma[N];
    load_whole_gamma<TYPE>(a, next, gamma);
    uint64_t step = (uint64_t)gridDim.x * blockDim.y;
    uint64_t base = (uint64_t)blockIdx.x * blockDim.y, row = base + threadIdx.y;
    for (uint32_t s = 0; s < next.stages; s++) {
        next.fetch(a, row + s * step, s);
    }
    uint32_t stage = 0, turn = 0;
    row_stats coming(a, row < a.rows ? row : a.rows - 1);
    // The threads of a block go round equally often, as sums want all of them.
    for (; base < a.rows; base += step, row += step) {
        bool real = row < a.rows;
        row_stats stats = coming;
        coming = row_stats(a, row + step < a.rows ? row + step : a.rows - 1);
        float g[N][V] = {}, h[N][V] = {}, sums[2] = {};
        next.wait();
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (!real || !next.has(k)) {
                continue;
            }
            float factor[V];
            unpack<V>(gamma[k], TYPE, factor);
            next.read(stage, 0, k, g[k]);
            next.read(stage, 1, k, h[k]);
#pragma unroll
            for (int j = 0; j < V; j++) {
                h[k][j] = (h[k][j] - stats.mean) * stats.rstd;
                dgamma[k][j] += g[k][j] * h[k][j];
                dbeta[k][j] += g[k][j];
                g[k][j] *= factor[j];
                sums[0] += g[k][j];
                sums[1] += g[k][j] * h[k][j];
            }
        }
        over_group<add>(sums, turn);
        next.fetch(a, row + next.stages * step, stage); // what was there has been used
        if (a.dx.data && real) {
            store_whole_dx<TYPE>(a, row, next, stats.rstd, sums, g, h);
        }
        stage = stage + 1 == next.stages ? 0 : stage + 1;
    }
    if (a.work) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            put_whole_part<V>(a, (float *)norm_back_ring, next.piece(k), next.has(k), dgamma[k],
                              dbeta[k]);
        }
    }
}

// ---- longer rows ----

// One piece of a longer row: g and h.
template <uint32_t TYPE>
__device__ __forceinline__ void load_piece(const ceni_norm_back &a, uint64_t row, const part &p,
                                           const row_stats &stats, float (&g)[4], float (&h)[4]) {
    const uint32_t size = TYPE == CEN_FP32 ? 4 : 2;
    raw dy = load<4>(row_of(a.dy, row), size, p), x = load<4>(row_of(a.x, row), size, p);
    float gamma[4];
    load_gamma(a.gamma, p, gamma);
    unpack<4>(dy, TYPE, g);
    unpack<4>(x, TYPE, h);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        g[j] = j < p.last ? g[j] * gamma[j] : 0;
        h[j] = j < p.last ? (h[j] - stats.mean) * stats.rstd : 0;
    }
}

template <uint32_t TYPE> __device__ __forceinline__ void wide(const ceni_norm_back &a) {
    uint64_t pieces = (a.cols + 3) / 4;
    for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        row_stats stats(a, row);
        float g[4], h[4], sum_g = 0, sum_gh = 0;
#pragma unroll 4
        for (uint64_t i = threadIdx.x; i < pieces; i += blockDim.x) {
            load_piece<TYPE>(a, row, part_of<4>(i, 0, a.cols), stats, g, h);
            sum_g += (g[0] + g[1]) + (g[2] + g[3]);
            sum_gh += (g[0] * h[0] + g[1] * h[1]) + (g[2] * h[2] + g[3] * h[3]);
        }
        // Both wait for all threads, so that dx may be written over what was read.
        float mean_g = over_group<add>(sum_g) / (float)a.cols;
        float mean_gh = over_group<add>(sum_gh) / (float)a.cols;
        for (uint64_t i = threadIdx.x; i < pieces; i += blockDim.x) {
            part p = part_of<4>(i, 0, a.cols);
            float v[4];
            load_piece<TYPE>(a, row, p, stats, g, h);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[j] = stats.rstd * (g[j] - mean_g - h[j] * mean_gh);
            }
            store_dx(a, row, p, v);
        }
    }
}

template <uint32_t TYPE> __device__ __forceinline__ void columns(const ceni_norm_back &a) {
    const uint32_t size = TYPE == CEN_FP32 ? 4 : 2;
    uint64_t pieces = (a.cols + 3) / 4;
    for (uint64_t base = (uint64_t)blockIdx.x * blockDim.x; base < pieces;
         base += (uint64_t)gridDim.x * blockDim.x) {
        part p = part_of<4>(base + threadIdx.x, 0, a.cols);
        float dgamma[4] = {}, dbeta[4] = {};
#pragma unroll 4
        for (uint64_t row = blockIdx.y * blockDim.y + threadIdx.y; row < a.rows;
             row += a.parts * blockDim.y) {
            row_stats stats(a, row);
            float dy[4], x[4];
            unpack<4>(load<4>(row_of(a.dy, row), size, p), TYPE, dy);
            unpack<4>(load<4>(row_of(a.x, row), size, p), TYPE, x);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                dgamma[j] += dy[j] * ((x[j] - stats.mean) * stats.rstd);
                dbeta[j] += dy[j];
            }
        }
        put_parts(a, blockIdx.y, 0, p, dgamma, dbeta);
    }
}

} // namespace cen_norm_back_parts

#define BY_TYPE(name, threads, body)                                                               \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                       \
        name(const __grid_constant__ ceni_norm_back a) {                                           \
        using namespace cen_norm_back_parts;                                                       \
        switch (a.x.dtype) {                                                                       \
        case CEN_FP32:                                                                             \
            body<CEN_FP32>(a);                                                                     \
            break;                                                                                 \
        case CEN_FP16:                                                                             \
            body<CEN_FP16>(a);                                                                     \
            break;                                                                                 \
        default:                                                                                   \
            body<CEN_BF16>(a);                                                                     \
        }                                                                                          \
    }
BY_TYPE(cen_norm_back, CENI_NORM_BACK_THREADS_MAX, back)
BY_TYPE(cen_norm_back_wide, CENI_NORM_BACK_THREADS_MAX, wide)
BY_TYPE(cen_norm_back_columns, 256, columns)
#undef BY_TYPE

#define WHOLE(type, dtype)                                                                         \
    extern "C" __global__ void __launch_bounds__(CENI_NORM_BACK_THREADS_MAX, 1)                    \
        cen_norm_back_##type(const __grid_constant__ ceni_norm_back a) {                           \
        cen_norm_back_parts::back_whole<CEN_##dtype>(a);                                           \
    }
WHOLE(fp32, FP32)
WHOLE(fp16, FP16)
WHOLE(bf16, BF16)
#undef WHOLE

extern "C" __global__ void cen_norm_back_sum(const __grid_constant__ ceni_norm_back a) {
    using namespace cen_norm_back_parts;
    __shared__ float sums[2][8][33];
    uint64_t col = (uint64_t)blockIdx.x * 32 + threadIdx.x;
    float gamma = 0, beta = 0;
    if (col < a.cols) {
#pragma unroll 8
        for (uint64_t i = threadIdx.y; i < a.parts; i += 8) {
            const float *from = (const float *)a.work + i * 2 * a.cols + col;
            gamma += from[0];
            beta += from[a.cols];
        }
    }
    sums[0][threadIdx.y][threadIdx.x] = gamma;
    sums[1][threadIdx.y][threadIdx.x] = beta;
    __syncthreads();
    if (threadIdx.y > 1 || col >= a.cols) {
        return;
    }
    const ceni_operand &to = threadIdx.y ? a.dbeta : a.dgamma;
    float v[4] = {};
    for (int i = 0; i < 8; i++) {
        v[0] += sums[threadIdx.y][i][threadIdx.x];
    }
    if (to.data) {
        part p = {(int64_t)col, 0, 1};
        store<4>(to.data, size_of(to.dtype), p, pack<4>(v, to.dtype));
    }
}
