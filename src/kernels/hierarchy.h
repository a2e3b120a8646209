/* Kernels that measure a device's levels of memory. Sizes are in bytes, addresses multiples of 16.
 *
 *     cen_chase(uint64_t base, uint64_t bytes, uint64_t first, uint64_t steps, uint64_t out)
 *     cen_chase_l2(...)
 *         one thread follows the addresses that begin at *first and, as it, stay in [base, base +
 *         bytes), in batches of CENI_CHASE_BATCH; out[0]: the last one, out[1]: cycles, out[2]:
 *         nanoseconds. cen_chase goes through the first-level cache, cen_chase_l2 past it
 *     cen_chase_lines(uint64_t base, uint64_t stride, uint64_t count, uint64_t steps, uint64_t out)
 *         for each of `count` lines that hold their own address: out[i]: cycles of `steps` accesses
 *     cen_chase_shared(uint32_t bytes, uint64_t steps, uint64_t out)
 *         as cen_chase, in shared memory of `bytes`, a power of two; out[0]: the last offset
 *     cen_read(uint64_t src, uint64_t bytes, uint64_t rounds, uint64_t out)
 *         out[0] ^= all words of 4 bytes, past the first-level cache; the grid reads all, rounds
 * times cen_read_l1(...), each block reads all, through that cache; out[0] += the blocks' ^ of
 * words cen_read_shared(uint32_t bytes, uint64_t rounds, uint64_t out) as cen_read_l1, of shared
 * memory that holds the pattern of seed 1 (kernels/memory.h) cen_write(uint64_t dst, uint32_t
 * value, uint64_t bytes, uint64_t rounds) cen_copy(uint64_t dst, uint64_t src, uint64_t bytes,
 * uint64_t rounds) cen_triad(uint64_t dst, uint64_t a, uint64_t b, float scale, uint64_t bytes,
 * uint64_t rounds) dst[i] = a[i] + scale * b[i], floats, each operation rounded cen_fma(uint64_t
 * rounds, uint64_t out) CENI_FMA_CHAINS chains a thread of x = x * 0.5 + 1, from the chain's index
 * on; out[0] += each thread's sum, rounded to a whole number cen_fma_chain(uint64_t rounds,
 * uint64_t out) one chain of CENI_CHASE_BATCH a round; out[0]: 4 bytes of the last x; [1], [2] as
 * cen_chase
 *
 * `out` holds words of 8 bytes. A twin's cycles are its nanoseconds. The steps of a chase are a
 * multiple of CENI_CHASE_BATCH; what is left over is not made. */
#ifndef CENI_KERNELS_HIERARCHY_H
#define CENI_KERNELS_HIERARCHY_H

#include "kernels/table.h"

enum { CENI_CHASE_BATCH = 16, CENI_FMA_CHAINS = 8, CENI_SHARED_BYTES_MAX = 48 << 10 };

#define CENI_TWIN(name)                                                                            \
    void ceni_twin_##name(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,  \
                          void *const *args)
#define CENI_RANGES(name) size_t ceni_ranges_##name(void *const *args, ceni_kernel_range *ranges)

CENI_TWIN(chase);
CENI_TWIN(chase_lines);
CENI_TWIN(chase_shared);
CENI_TWIN(read);
CENI_TWIN(read_l1);
CENI_TWIN(read_shared);
CENI_TWIN(write);
CENI_TWIN(copy);
CENI_TWIN(triad);
CENI_TWIN(fma);
CENI_TWIN(fma_chain);
CENI_RANGES(chase);
CENI_RANGES(chase_lines);
CENI_RANGES(chase_shared);
CENI_RANGES(read);
CENI_RANGES(read_shared);
CENI_RANGES(write);
CENI_RANGES(copy);
CENI_RANGES(triad);
CENI_RANGES(fma);
CENI_RANGES(fma_chain);

#endif
