// The same in tiles: 128 x 128 results a block, 8 x 8 a thread, operands in shared memory, the next
// tile on its way while one is multiplied. No tensor cores.
#include "common.cuh"

enum { TILE = 128, DEPTH = 8, THREADS = 256, PAD = 4 };

struct Tiles {
    // The left one lies turned. A row is padded, so that the turning stores hit all banks.
    float left[2][DEPTH][TILE + PAD];
    float right[2][DEPTH][TILE];
};

struct Staged {
    float4 left, right;
};

// Four floats of each operand's tile at depth k, a thread.
static __device__ Staged load(const float *left, const float *right, int n, int k) {
    int t = static_cast<int>(threadIdx.x);
    size_t row = blockIdx.y * TILE + t / 2, column = blockIdx.x * TILE + t % 32 * 4;
    Staged s;
    s.left = *reinterpret_cast<const float4 *>(&left[row * n + k + t % 2 * 4]);
    s.right = *reinterpret_cast<const float4 *>(&right[static_cast<size_t>(k + t / 32) * n + column]);
    return s;
}

static __device__ void store(Tiles &tiles, int turn, const Staged &s) {
    int t = static_cast<int>(threadIdx.x), k = t % 2 * 4, row = t / 2;
    tiles.left[turn][k][row] = s.left.x;
    tiles.left[turn][k + 1][row] = s.left.y;
    tiles.left[turn][k + 2][row] = s.left.z;
    tiles.left[turn][k + 3][row] = s.left.w;
    *reinterpret_cast<float4 *>(&tiles.right[turn][t / 32][t % 32 * 4]) = s.right;
}

static __device__ void multiply(const Tiles &tiles, int turn, int y, int x, float sums[8][8]) {
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        __align__(16) float a[8], b[8];
        *reinterpret_cast<float4 *>(a) = *reinterpret_cast<const float4 *>(&tiles.left[turn][k][y * 8]);
        *reinterpret_cast<float4 *>(a + 4) = *reinterpret_cast<const float4 *>(&tiles.left[turn][k][y * 8 + 4]);
        *reinterpret_cast<float4 *>(b) = *reinterpret_cast<const float4 *>(&tiles.right[turn][k][x * 4]);
        *reinterpret_cast<float4 *>(b + 4) = *reinterpret_cast<const float4 *>(&tiles.right[turn][k][64 + x * 4]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                sums[i][j] += a[i] * b[j];
            }
        }
    }
}

static __global__ void __launch_bounds__(THREADS, 2)
    tuned_product(const float *left, const float *right, float *result, int n) {
    __shared__ Tiles tiles;
    int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16, turn = 0;
    float sums[8][8] = {};
    store(tiles, 0, load(left, right, n, 0));
    __syncthreads();
    for (int k = DEPTH; k < n; k += DEPTH) {
        Staged next = load(left, right, n, k);
        multiply(tiles, turn, y, x, sums);
        turn ^= 1;
        store(tiles, turn, next);
        __syncthreads();
    }
    multiply(tiles, turn, y, x, sums);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float *to = &result[(static_cast<size_t>(blockIdx.y) * TILE + y * 8 + i) * n + blockIdx.x * TILE];
        *reinterpret_cast<float4 *>(to + x * 4) = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
        *reinterpret_cast<float4 *>(to + 64 + x * 4) = make_float4(sums[i][4], sums[i][5], sums[i][6], sums[i][7]);
    }
}

int main() {
    const int n = 4096;
    return run_product(tuned_product, dim3(n / TILE, n / TILE), dim3(THREADS), n);
}
