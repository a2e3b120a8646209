// A product as it is written first: one result a thread, each operand from global memory every time.
#include "common.cuh"

static __global__ void naive_product(const float *left, const float *right, float *result, int n) {
    int row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    float sum = 0;
    for (int k = 0; k < n; k++) {
        sum += left[static_cast<size_t>(row) * n + k] * right[static_cast<size_t>(k) * n + column];
    }
    result[static_cast<size_t>(row) * n + column] = sum;
}

int main() {
    const int n = 2048;
    return run_product(naive_product, dim3(n / 16, n / 16), dim3(16, 16), n);
}
