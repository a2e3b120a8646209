// Filling and checking words of memory, and keeping the device busy. Each kernel gives bit for bit
// what its host twin gives, for any grid.
//
// Words are read and written 16 bytes at a time between an unaligned head and tail of up to 3 words,
// so `dst` and `src` need only be multiples of 4.

#include <stdint.h>

namespace {

__device__ uint64_t thread_index() {
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ uint64_t thread_count() {
    return (uint64_t)gridDim.x * blockDim.x;
}

// The i-th word of the pattern of `seed`.
__device__ uint32_t mix(uint32_t seed, uint64_t i) {
    uint32_t x = (uint32_t)i * 0x9E3779B1u ^ seed;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    return x;
}

// Words before the first 16-byte boundary.
__device__ uint64_t head_words(uint64_t address, uint64_t count) {
    uint64_t head = (16 - address % 16) % 16 / 4;
    return head < count ? head : count;
}

// Stores word(i) at dst[i] for all i < count.
template <typename Word> __device__ void store_words(uint64_t dst, uint64_t count, Word word) {
    uint32_t *words = (uint32_t *)dst;
    uint64_t head = head_words(dst, count), quads = (count - head) / 4, tail = head + quads * 4;
    uint4 *body = (uint4 *)(words + head);
    for (uint64_t i = thread_index(); i < quads; i += thread_count()) {
        uint64_t at = head + i * 4;
        body[i] = make_uint4(word(at), word(at + 1), word(at + 2), word(at + 3));
    }
    uint64_t odd = head + count - tail;
    for (uint64_t i = thread_index(); i < odd; i += thread_count()) {
        uint64_t at = i < head ? i : tail + i - head;
        words[at] = word(at);
    }
}

} // namespace

extern "C" __global__ void cen_fill_u32(uint64_t dst, uint32_t value, uint64_t count) {
    store_words(dst, count, [=](uint64_t) { return value; });
}

extern "C" __global__ void cen_pattern_u32(uint64_t dst, uint32_t seed, uint64_t count) {
    store_words(dst, count, [=](uint64_t i) { return mix(seed, i); });
}

extern "C" __global__ void cen_check_u32(uint64_t src, uint32_t seed, uint64_t count,
                                         uint64_t mismatches) {
    const uint32_t *words = (const uint32_t *)src;
    uint64_t head = head_words(src, count), quads = (count - head) / 4, tail = head + quads * 4;
    const uint4 *body = (const uint4 *)(words + head);
    unsigned long long wrong = 0;
    for (uint64_t i = thread_index(); i < quads; i += thread_count()) {
        uint4 got = body[i];
        uint64_t at = head + i * 4;
        wrong += (got.x != mix(seed, at)) + (got.y != mix(seed, at + 1)) +
                 (got.z != mix(seed, at + 2)) + (got.w != mix(seed, at + 3));
    }
    uint64_t odd = head + count - tail;
    for (uint64_t i = thread_index(); i < odd; i += thread_count()) {
        uint64_t at = i < head ? i : tail + i - head;
        wrong += words[at] != mix(seed, at);
    }
    if (wrong) {
        atomicAdd((unsigned long long *)mismatches, wrong);
    }
}

extern "C" __global__ void cen_spin(uint64_t nanoseconds) {
    uint64_t start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}
