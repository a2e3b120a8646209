// What the programs share: their device, numbers that float32 adds up exactly, and what went wrong.
// They check their results themselves: exit status 0 right, 1 wrong, 77 there is no GPU.
#include "../common.cuh"

static float *device_floats(size_t count) {
    void *memory = nullptr;
    require(cudaMalloc(&memory, count * sizeof(float)), "cudaMalloc");
    return static_cast<float *>(memory);
}

static __host__ __device__ float left_of(int row, int k) {
    return static_cast<float>((row * 3 + k) % 7 - 3);
}

static __host__ __device__ float right_of(int k, int column) {
    return static_cast<float>((k * 5 + column) % 5 - 2);
}

static __global__ void fill_product(float *left, float *right, int n) {
    int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), row = static_cast<int>(blockIdx.y);
    left[static_cast<size_t>(row) * n + column] = left_of(row, column);
    right[static_cast<size_t>(row) * n + column] = right_of(row, column);
}

// Some elements of the product, computed here.
static bool is_product(const float *result, int n) {
    for (int i = 0; i < 64; i++) {
        int row = i * 797 % n, column = i * 1021 % n;
        float got = 0, sum = 0;
        require(cudaMemcpy(&got, result + static_cast<size_t>(row) * n + column, sizeof got, cudaMemcpyDeviceToHost),
                "cudaMemcpy");
        for (int k = 0; k < n; k++) {
            sum += left_of(row, k) * right_of(k, column);
        }
        if (got != sum) {
            fprintf(stderr, "(%d, %d): %g, not %g\n", row, column, got, sum);
            return false;
        }
    }
    return true;
}

// Runs the kernel three times on matrices of n x n: n is a multiple of 128.
template <typename Kernel> static int run_product(Kernel kernel, dim3 grid, dim3 block, int n) {
    require_device();
    size_t count = static_cast<size_t>(n) * n;
    float *left = device_floats(count), *right = device_floats(count), *result = device_floats(count);
    fill_product<<<dim3(n / 128, n), 128>>>(left, right, n);
    for (int i = 0; i < 3; i++) {
        kernel<<<grid, block>>>(left, right, result, n);
    }
    require(cudaDeviceSynchronize(), "the product");
    return is_product(result, n) ? 0 : 1;
}
