// Every 32nd float of a gigabyte: each load of 4 bytes moves a sector of 32.
#include "common.cuh"

static __global__ void strided_copy(const float *from, float *to, size_t count, unsigned stride) {
    size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        to[i] = from[i * stride];
    }
}

static __global__ void fill(float *to, size_t count) {
    size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        to[i] = static_cast<float>(i % 1000003);
    }
}

int main() {
    const size_t count = static_cast<size_t>(1) << 23;
    const unsigned stride = 32, threads = 256;
    require_device();
    float *from = device_floats(count * stride), *to = device_floats(count);
    fill<<<static_cast<unsigned>(count * stride / threads), threads>>>(from, count * stride);
    for (int i = 0; i < 3; i++) {
        strided_copy<<<static_cast<unsigned>(count / threads), threads>>>(from, to, count, stride);
    }
    require(cudaDeviceSynchronize(), "strided_copy");
    for (size_t i = 0; i < count; i += count / 61) {
        float got = 0;
        require(cudaMemcpy(&got, to + i, sizeof got, cudaMemcpyDeviceToHost), "cudaMemcpy");
        if (got != static_cast<float>(i * stride % 1000003)) {
            fprintf(stderr, "element %zu: %g\n", i, got);
            return 1;
        }
    }
    return 0;
}
