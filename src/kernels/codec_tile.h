/* Encoding and decoding on the host, a tile of a row at a time: what codec.c and codec_scales.c
 * share. */
#ifndef CENI_KERNELS_CODEC_TILE_H
#define CENI_KERNELS_CODEC_TILE_H

#include <string.h>

#include "kernels/codec_loops.h"

static inline bool ceni_codec_is(const ceni_codec_job *job, uint32_t flag) {
    return (job->flags & flag) != 0;
}

static inline uint64_t ceni_codec_least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The scale of the k-th unit, wherever it lies. */
static inline float ceni_codec_scale(const ceni_codec_job *job, uint64_t unit) {
    float s;
    memcpy(&s, (const void *)(uintptr_t)(job->scales + unit * sizeof s), sizeof s);
    return s;
}

static inline int8_t ceni_codec_zero(const ceni_codec_job *job, uint64_t unit) {
    return *(const int8_t *)(uintptr_t)(job->zeros + unit);
}

/* Elements of row `row` from column `col` on, as floats. */
void ceni_codec_load(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t row,
                     uint64_t col, size_t n, float *x);

/* Writes scales and zero points of the units in the band of rows with `row`. */
void ceni_codec_scale_band(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t row);
/* From its least and largest elements; without zero points `lo` is not asked. */
void ceni_codec_scale_unit(const ceni_codec_job *job, uint64_t unit, float lo, float hi);

#endif
