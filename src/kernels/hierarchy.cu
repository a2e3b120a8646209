// Following, reading and writing each level of a device's memory (hierarchy.h has what each kernel
// does). Loads that are timed are volatile assembly: none is hoisted, merged or left out.

#include <stdint.h>

#include "kernels/hierarchy.h"

namespace {

__device__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
    return now;
}

__device__ uint64_t cycles() {
    uint64_t now;
    asm volatile("mov.u64 %0, %clock64;" : "=l"(now)::"memory");
    return now;
}

struct through_l1 {
    static __device__ uint64_t word(uint64_t at) {
        uint64_t value;
        asm volatile("ld.global.ca.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
        return value;
    }
    static __device__ uint4 quad(uint64_t at) {
        uint4 q;
        asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
                     : "l"(at));
        return q;
    }
};

struct past_l1 {
    static __device__ uint64_t word(uint64_t at) {
        uint64_t value;
        asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
        return value;
    }
    static __device__ uint4 quad(uint64_t at) {
        uint4 q;
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
                     : "l"(at));
        return q;
    }
};

// Follows `steps` addresses; the clocks are read when the last load's value is there.
template <typename Load> __device__ uint64_t follow(uint64_t at, uint64_t steps) {
    for (uint64_t i = 0; i < steps / CENI_CHASE_BATCH; i++) {
#pragma unroll
        for (int k = 0; k < CENI_CHASE_BATCH; k++) {
            at = Load::word(at);
        }
    }
    return at;
}

template <typename Load> __device__ void chase(uint64_t first, uint64_t steps, uint64_t *out) {
    if (blockIdx.x || threadIdx.x) {
        return;
    }
    uint64_t ns = nanoseconds(), start = cycles();
    uint64_t at = follow<Load>(first, steps);
    out[0] = at; // waits for it
    __threadfence();
    out[1] = cycles() - start;
    out[2] = nanoseconds() - ns;
}

__device__ void fold(uint32_t &sum, uint4 q) {
    sum ^= q.x ^ q.y;
    sum ^= q.z ^ q.w;
}

// A block's share of `quads` are runs of four for each of its threads: `run` for a whole one, which
// begins at its argument, with the threads' `apart`; `single` for each of the rest.
template <typename Run, typename Single>
__device__ void share(uint64_t quads, uint32_t block, uint32_t blocks, Run run, Single single) {
    const uint64_t apart = blockDim.x, length = 4 * apart;
    for (uint64_t at = block * length; at < quads; at += blocks * length) {
        uint64_t i = at + threadIdx.x;
        if (at + length <= quads) {
            run(i, apart);
            continue;
        }
        for (; i < quads; i += apart) {
            single(i);
        }
    }
}

// The ^ of this thread's share of the quads of 16 bytes, `rounds` times.
template <typename Load>
__device__ uint32_t fold_all(uint64_t src, uint64_t quads, uint64_t rounds, uint32_t block,
                             uint32_t blocks) {
    uint32_t sum = 0;
    auto run = [&](uint64_t i, uint64_t apart) {
        uint4 a = Load::quad(src + i * 16), b = Load::quad(src + (i + apart) * 16);
        uint4 c = Load::quad(src + (i + 2 * apart) * 16);
        uint4 d = Load::quad(src + (i + 3 * apart) * 16);
        fold(sum, a);
        fold(sum, b);
        fold(sum, c);
        fold(sum, d);
    };
    for (uint64_t r = 0; r < rounds; r++) {
        share(quads, block, blocks, run, [&](uint64_t i) { fold(sum, Load::quad(src + i * 16)); });
    }
    return sum;
}

// The ^ over the block, in its first thread.
__device__ uint32_t fold_block(uint32_t sum) {
    __shared__ uint32_t total;
    if (!threadIdx.x) {
        total = 0;
    }
    __syncthreads();
    atomicXor(&total, sum);
    __syncthreads();
    return total;
}

// Stores make(i) at dst for this thread's share of the quads of 16 bytes, `rounds` times; four are
// made before the first is stored.
template <typename Make>
__device__ void store_all(uint64_t dst, uint64_t quads, uint64_t rounds, Make make) {
    uint4 *to = (uint4 *)dst;
    auto run = [=](uint64_t i, uint64_t apart) {
        uint4 a = make(i), b = make(i + apart), c = make(i + 2 * apart), d = make(i + 3 * apart);
        to[i] = a;
        to[i + apart] = b;
        to[i + 2 * apart] = c;
        to[i + 3 * apart] = d;
    };
    for (uint64_t r = 0; r < rounds; r++) {
        share(quads, blockIdx.x, gridDim.x, run, [=](uint64_t i) { to[i] = make(i); });
        asm volatile("" ::: "memory"); // so that each round stores anew
    }
}

// a + scale * b of the bits of floats, each operation rounded.
__device__ uint32_t add_scaled(uint32_t a, float scale, uint32_t b) {
    return __float_as_uint(__fadd_rn(__uint_as_float(a), __fmul_rn(scale, __uint_as_float(b))));
}

__device__ float halve_and_add(float x) {
    return __fmaf_rn(x, 0.5f, 1.0f);
}

} // namespace

extern "C" __global__ void cen_chase(uint64_t base, uint64_t bytes, uint64_t first, uint64_t steps,
                                     uint64_t out) {
    chase<through_l1>(first, steps, (uint64_t *)out);
}

extern "C" __global__ void cen_chase_l2(uint64_t base, uint64_t bytes, uint64_t first,
                                        uint64_t steps, uint64_t out) {
    chase<past_l1>(first, steps, (uint64_t *)out);
}

extern "C" __global__ void cen_chase_lines(uint64_t base, uint64_t stride, uint64_t count,
                                           uint64_t steps, uint64_t out) {
    if (blockIdx.x || threadIdx.x) {
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = follow<past_l1>(base + i * stride, CENI_CHASE_BATCH); // into the cache
        uint64_t start = cycles() + (at ? 0 : 1);
        at = follow<past_l1>(at, steps);
        ((uint64_t *)out)[i] = cycles() - start + (at ? 0 : 1);
    }
}

extern "C" __global__ void cen_chase_shared(uint32_t bytes, uint64_t steps, uint64_t out) {
    extern __shared__ uint4 shared[];
    uint32_t *words = (uint32_t *)shared, base = (uint32_t)__cvta_generic_to_shared(shared);
    for (uint32_t i = threadIdx.x; i < bytes / 4; i += blockDim.x) {
        words[i] = base + (i + 17) % (bytes / 4) * 4;
    }
    __syncthreads();
    if (blockIdx.x || threadIdx.x) {
        return;
    }
    uint32_t at = base;
    uint64_t ns = nanoseconds(), start = cycles();
    for (uint64_t i = 0; i < steps / CENI_CHASE_BATCH; i++) {
#pragma unroll
        for (int k = 0; k < CENI_CHASE_BATCH; k++) {
            asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at)::"memory");
        }
    }
    ((uint64_t *)out)[0] = at - base;
    __threadfence();
    ((uint64_t *)out)[1] = cycles() - start;
    ((uint64_t *)out)[2] = nanoseconds() - ns;
}

extern "C" __global__ void cen_read(uint64_t src, uint64_t bytes, uint64_t rounds, uint64_t out) {
    uint32_t sum = fold_block(fold_all<past_l1>(src, bytes / 16, rounds, blockIdx.x, gridDim.x));
    if (!threadIdx.x) {
        atomicXor((unsigned long long *)out, (unsigned long long)sum);
    }
}

extern "C" __global__ void cen_read_l1(uint64_t src, uint64_t bytes, uint64_t rounds,
                                       uint64_t out) {
    uint32_t sum = fold_block(fold_all<through_l1>(src, bytes / 16, rounds, 0, 1));
    if (!threadIdx.x) {
        atomicAdd((unsigned long long *)out, (unsigned long long)sum);
    }
}

extern "C" __global__ void cen_read_shared(uint32_t bytes, uint64_t rounds, uint64_t out) {
    extern __shared__ uint4 shared[];
    uint32_t *words = (uint32_t *)shared, base = (uint32_t)__cvta_generic_to_shared(shared);
    uint32_t quads = bytes / 16, sum = 0;
    for (uint32_t i = threadIdx.x; i < quads * 4; i += blockDim.x) {
        uint32_t x = i * 0x9E3779B1u ^ 1u;
        x ^= x >> 16;
        x *= 0x85EBCA6Bu;
        words[i] = x ^ x >> 13;
    }
    __syncthreads();
    for (uint64_t r = 0; r < rounds; r++) {
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < quads; i += blockDim.x) {
            uint4 q;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
                         : "r"(base + i * 16));
            fold(sum, q);
        }
    }
    sum = fold_block(sum);
    if (!threadIdx.x) {
        atomicAdd((unsigned long long *)out, (unsigned long long)sum);
    }
}

extern "C" __global__ void cen_write(uint64_t dst, uint32_t value, uint64_t bytes,
                                     uint64_t rounds) {
    uint4 quad = make_uint4(value, value, value, value);
    store_all(dst, bytes / 16, rounds, [=](uint64_t) { return quad; });
}

extern "C" __global__ void cen_copy(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t rounds) {
    store_all(dst, bytes / 16, rounds, [=](uint64_t i) { return past_l1::quad(src + i * 16); });
}

extern "C" __global__ void cen_triad(uint64_t dst, uint64_t a, uint64_t b, float scale,
                                     uint64_t bytes, uint64_t rounds) {
    store_all(dst, bytes / 16, rounds, [=](uint64_t i) {
        uint4 x = past_l1::quad(a + i * 16), y = past_l1::quad(b + i * 16);
        return make_uint4(add_scaled(x.x, scale, y.x), add_scaled(x.y, scale, y.y),
                          add_scaled(x.z, scale, y.z), add_scaled(x.w, scale, y.w));
    });
}

extern "C" __global__ void cen_fma(uint64_t rounds, uint64_t out) {
    float x[CENI_FMA_CHAINS], sum = 0;
#pragma unroll
    for (int c = 0; c < CENI_FMA_CHAINS; c++) {
        x[c] = (float)c;
    }
#pragma unroll 8
    for (uint64_t r = 0; r < rounds; r++) {
#pragma unroll
        for (int c = 0; c < CENI_FMA_CHAINS; c++) {
            x[c] = halve_and_add(x[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < CENI_FMA_CHAINS; c++) {
        sum += x[c];
    }
    atomicAdd((unsigned long long *)out, (unsigned long long)__float2ll_rn(sum));
}

extern "C" __global__ void cen_fma_chain(uint64_t rounds, uint64_t out) {
    if (blockIdx.x || threadIdx.x) {
        return;
    }
    uint64_t ns = nanoseconds(), start = cycles();
    float x = start ? 5.0f : 4.0f; // 5, but not before the clock is read
    for (uint64_t r = 0; r < rounds; r++) {
#pragma unroll
        for (int k = 0; k < CENI_CHASE_BATCH; k++) {
            x = halve_and_add(x);
        }
    }
    ((uint64_t *)out)[0] = __float_as_uint(x);
    __threadfence();
    ((uint64_t *)out)[1] = cycles() - start;
    ((uint64_t *)out)[2] = nanoseconds() - ns;
}
