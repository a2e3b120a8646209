/* What calibration counts of a matrix: a histogram of magnitudes whose bins are the upper bits of
 * the float, counts, extremes, and the same with moments for each channel.
 *
 *     cen_calibrate(job)            counts, extremes and bins; with channels a part each segment,
 *                                   or if that is the only one, the channel
 *     cen_calibrate_channels(job)   adds the parts to the channels: of more segments than one
 *
 * A channel is cut into segments, by shape alone; each is summed by so many lanes, whose sums meet
 * in a tree, and a channel's segments by as many lanes again. So the sums, too, are the same from
 * every grid and backend. All zero bytes are the state of nothing seen. Read by CUDA, too. */
#ifndef CENI_KERNELS_CALIBRATE_H
#define CENI_KERNELS_CALIBRATE_H

#include <stdint.h>

/* 9 bits of the mantissa: 512 bins an octave, and all finite magnitudes. */
enum { CENI_CALIBRATE_SHIFT = 14, CENI_CALIBRATE_BINS = 255 << 9 };
enum { CENI_CALIBRATE_WHOLE, CENI_CALIBRATE_ROWS, CENI_CALIBRATE_COLUMNS };
enum {
    CENI_CALIBRATE_LANES = 32,    /* element i of a row's segment is of lane i / 8 % 32 */
    CENI_CALIBRATE_RUN = 8,       /* ... and a column's segment has one lane */
    CENI_CALIBRATE_PARTS = 262144 /* segments of all channels, unless there are more channels */
};
/* Of cen_calibrate: threads of a block, and bytes of shared memory for an octave of its window and
 * for what lies beyond. */
enum { CENI_CALIBRATE_BLOCK = 1024, CENI_CALIBRATE_OCTAVE = 16384, CENI_CALIBRATE_BEYOND = 256 };

/* Of finite elements, as keys: ~key of the least and key of the largest, so that 0 is neither. */
typedef struct ceni_calibrate_channel {
    uint64_t nan, infinite, zeros;
    double sum, sum2;
    uint32_t least, most;
} ceni_calibrate_channel;

typedef struct ceni_calibrate_state {
    uint64_t count, nan, infinite, zeros;
    uint32_t least, most;
    uint64_t bins[CENI_CALIBRATE_BINS]; /* finite elements that are not 0 */
} ceni_calibrate_state;

typedef struct ceni_calibrate_job {
    uint64_t matrix, rows, cols, stride; /* elements of `dtype` */
    uint64_t state;
    uint64_t channels, parts;   /* 0 without channels */
    uint64_t segment, segments; /* elements of a channel (or a row) in one; how many */
    uint32_t dtype, axis;
    uint32_t octaves, pad; /* of the window, 1 to 253 */
} ceni_calibrate_job;

#ifdef __CUDACC__
#define CENI_CALIBRATE_INLINE static __device__ inline
#else
#define CENI_CALIBRATE_INLINE static inline
#endif

/* Rises with the float's value, -0 before 0; its finite values are from 1 to 2^32 - 2. */
CENI_CALIBRATE_INLINE uint32_t ceni_calibrate_key(uint32_t bits) {
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
CENI_CALIBRATE_INLINE uint32_t ceni_calibrate_bits(uint32_t key) {
    return key >> 31 ? key & 0x7FFFFFFFu : ~key;
}

#ifndef __CUDACC__
#include "kernels/table.h"

/* The same on this thread, with both steps. */
void ceni_calibrate_host(const ceni_calibrate_job *job);

void ceni_twin_calibrate(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args);
void ceni_twin_calibrate_channels(const uint32_t grid[3], const uint32_t block[3],
                                  uint32_t shared_bytes, void *const *args);
size_t ceni_ranges_calibrate(void *const *args, ceni_kernel_range *ranges);
size_t ceni_ranges_calibrate_channels(void *const *args, ceni_kernel_range *ranges);
#endif
#endif
