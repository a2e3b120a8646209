#include "kernels/memory.h"

#include <stdatomic.h>
#include <time.h>

#include "kernels/args.h"

/* Words of 4 bytes; a count that cannot be is a range that cannot be. */
static ceni_kernel_range words(uint64_t addr, uint64_t count, bool write) {
    return (ceni_kernel_range){addr, count > UINT64_MAX / 4 ? UINT64_MAX : count * 4, write};
}

void ceni_twin_fill_u32(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                        void *const *args) {
    uint32_t *dst = (uint32_t *)(uintptr_t)ceni_arg64(args, 0);
    uint32_t value = ceni_arg32(args, 1);
    uint64_t count = ceni_arg64(args, 2);
    for (uint64_t i = 0; i < count; i++) {
        dst[i] = value;
    }
}

size_t ceni_ranges_fill_u32(void *const *args, ceni_kernel_range *ranges) {
    ranges[0] = words(ceni_arg64(args, 0), ceni_arg64(args, 2), true);
    return 1;
}

void ceni_twin_pattern_u32(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                           void *const *args) {
    uint32_t *dst = (uint32_t *)(uintptr_t)ceni_arg64(args, 0);
    uint32_t seed = ceni_arg32(args, 1);
    uint64_t count = ceni_arg64(args, 2);
    for (uint64_t i = 0; i < count; i++) {
        dst[i] = ceni_mix_u32(seed, i);
    }
}

size_t ceni_ranges_pattern_u32(void *const *args, ceni_kernel_range *ranges) {
    return ceni_ranges_fill_u32(args, ranges);
}

void ceni_twin_check_u32(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args) {
    const uint32_t *src = (const uint32_t *)(uintptr_t)ceni_arg64(args, 0);
    uint32_t seed = ceni_arg32(args, 1);
    uint64_t count = ceni_arg64(args, 2);
    uint64_t differ = 0;
    for (uint64_t i = 0; i < count; i++) {
        differ += src[i] != ceni_mix_u32(seed, i);
    }
    atomic_fetch_add((_Atomic uint64_t *)(uintptr_t)ceni_arg64(args, 3), differ);
}

size_t ceni_ranges_check_u32(void *const *args, ceni_kernel_range *ranges) {
    ranges[0] = words(ceni_arg64(args, 0), ceni_arg64(args, 2), false);
    ranges[1] = (ceni_kernel_range){ceni_arg64(args, 3), sizeof(uint64_t), true};
    return 2;
}

void ceni_twin_spin(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                    void *const *args) {
    uint64_t ns = ceni_arg64(args, 0);
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&left, &left)) {
    }
}
