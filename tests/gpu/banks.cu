// Accesses to shared memory, of which a profiler counts the conflicts: check_banks.py's.
//
// usage: banks ELEM: one warp reads elements of ELEM bytes (1, 2, 4, 8 or 16), 32 offsets
// an access, from the standard input, a line an access; -1: the lane reads nothing. One launch of
// `walk` a program run.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

template <typename T> __device__ uint32_t fold(const T &value) {
    const unsigned char *bytes = (const unsigned char *)&value;
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof value; i++) {
        sum ^= bytes[i];
    }
    return sum;
}

// volatile, so that each access is made, and as one of the whole element.
template <typename T> __device__ T load(const unsigned char *at);
template <> __device__ uint8_t load(const unsigned char *at) {
    return *(volatile const uint8_t *)at;
}
template <> __device__ uint16_t load(const unsigned char *at) {
    return *(volatile const uint16_t *)at;
}
template <> __device__ uint32_t load(const unsigned char *at) {
    return *(volatile const uint32_t *)at;
}
template <> __device__ uint2 load(const unsigned char *at) {
    uint2 v;
    asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"((uint32_t)__cvta_generic_to_shared(at)));
    return v;
}
template <> __device__ uint4 load(const unsigned char *at) {
    uint4 v;
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"((uint32_t)__cvta_generic_to_shared(at)));
    return v;
}

template <typename T>
__global__ void walk(const int32_t *offsets, uint32_t accesses, uint32_t bytes, uint32_t *out) {
    extern __shared__ __align__(16) unsigned char tile[];
    for (uint32_t i = threadIdx.x; i < bytes; i += 32) {
        tile[i] = (unsigned char)(i * 37 + 11);
    }
    __syncwarp();
    uint32_t sum = 0;
    for (uint32_t i = 0; i < accesses; i++) {
        int32_t offset = offsets[i * 32 + threadIdx.x];
        if (offset >= 0) {
            sum = sum * 31 + fold(load<T>(tile + offset));
        }
        __syncwarp();
    }
    out[threadIdx.x] = sum;
}

static void check(cudaError_t error, const char *what) {
    if (error != cudaSuccess) {
        fprintf(stderr, "banks: %s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

template <typename T> static void run(const std::vector<int32_t> &offsets, uint32_t bytes) {
    int32_t *from = nullptr;
    uint32_t *out = nullptr, sums[32] = {};
    check(cudaMalloc(&from, offsets.size() * sizeof(int32_t)), "allocating");
    check(cudaMalloc(&out, sizeof sums), "allocating");
    check(cudaMemcpy(from, offsets.data(), offsets.size() * sizeof(int32_t), cudaMemcpyDefault),
          "copying the offsets");
    check(cudaFuncSetAttribute(walk<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
          "asking for shared memory");
    walk<T><<<1, 32, bytes>>>(from, (uint32_t)(offsets.size() / 32), bytes, out);
    check(cudaGetLastError(), "launching");
    check(cudaMemcpy(sums, out, sizeof sums, cudaMemcpyDefault), "reading the sums");
    for (int lane = 0; lane < 32; lane++) { // the same from what must lie there
        uint32_t sum = 0;
        for (size_t i = lane; i < offsets.size(); i += 32) {
            uint32_t value = 0;
            for (size_t b = 0; offsets[i] >= 0 && b < sizeof(T); b++) {
                value ^= (unsigned char)((offsets[i] + b) * 37 + 11);
            }
            sum = offsets[i] >= 0 ? sum * 31 + value : sum;
        }
        if (sum != sums[lane]) {
            fprintf(stderr, "banks: lane %d read other bytes than lie there\n", lane);
            exit(1);
        }
    }
}

int main(int argc, char **argv) {
    int elem = argc == 2 ? atoi(argv[1]) : 0;
    std::vector<int32_t> offsets;
    uint32_t bytes = 0;
    for (int offset; scanf("%d", &offset) == 1;) {
        offsets.push_back(offset);
        bytes = offset >= 0 && (uint32_t)(offset + elem) > bytes ? (uint32_t)(offset + elem) : bytes;
    }
    if (offsets.empty() || offsets.size() % 32) {
        fprintf(stderr, "banks: 32 offsets an access are needed, from the standard input\n");
        return 2;
    }
    switch (elem) {
    case 1:
        run<uint8_t>(offsets, bytes);
        return 0;
    case 2:
        run<uint16_t>(offsets, bytes);
        return 0;
    case 4:
        run<uint32_t>(offsets, bytes);
        return 0;
    case 8:
        run<uint2>(offsets, bytes);
        return 0;
    case 16:
        run<uint4>(offsets, bytes);
        return 0;
    }
    fprintf(stderr, "banks: elements have 1, 2, 4, 8 or 16 bytes\n");
    return 2;
}
