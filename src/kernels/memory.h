/* Kernels that write, check and wait: what tests and measurements of memory need. Words are 32
 * bits.
 *
 *     cen_fill_u32(uint64_t dst, uint32_t value, uint64_t count)
 *     cen_pattern_u32(uint64_t dst, uint32_t seed, uint64_t count)     dst[i] = mix(seed, i)
 *     cen_check_u32(uint64_t src, uint32_t seed, uint64_t count, uint64_t mismatches)
 *         adds the number of words that differ from the pattern to *(uint64_t *)mismatches
 *     cen_spin(uint64_t nanoseconds)                                    keeps the stream busy
 *
 * Grid-stride: any grid and block give the same result. */
#ifndef CENI_KERNELS_MEMORY_H
#define CENI_KERNELS_MEMORY_H

#include "kernels/table.h"

/* The pattern's word i, here and in memory.cu. */
static inline uint32_t ceni_mix_u32(uint32_t seed, uint64_t i) {
    uint32_t x = (uint32_t)i * 0x9E3779B1u ^ seed;
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    return x ^ x >> 13;
}

void ceni_twin_fill_u32(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                        void *const *args);
void ceni_twin_pattern_u32(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                           void *const *args);
void ceni_twin_check_u32(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args);
void ceni_twin_spin(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                    void *const *args);
size_t ceni_ranges_fill_u32(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_pattern_u32(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_check_u32(void *const *args, ceni_kernel_range *ranges);

#endif
