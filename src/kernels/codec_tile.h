/* Encoding and decoding on the host, a tile of a row at a time: what codec.c and codec_scales.c
 * share. */
#ifndef CENI_KERNELS_CODEC_TILE_H
#define CENI_KERNELS_CODEC_TILE_H

#include <string.h>

#include "cenote/dtype.h"
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

/* A matrix's type as an index: CEN_FP32, CEN_BF16, CEN_FP16. */
static inline size_t ceni_codec_source(const ceni_codec_job *job) {
    return CEN_FP32 - job->dtype;
}

static inline void *ceni_codec_element(const ceni_codec_job *job, uint64_t row, uint64_t col) {
    uint64_t bytes = job->dtype == CEN_FP32 ? 4 : 2;
    return (void *)(uintptr_t)(job->matrix + (row * job->stride + col) * bytes);
}

/* Elements of row `row` from column `col` on, as floats. */
void ceni_codec_load(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t row,
                     uint64_t col, size_t n, float *x);

/* Widens *lo and *hi, or *hi alone without zero points, to n elements of a row, at most a tile. */
void ceni_codec_widen(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t row,
                      uint64_t col, size_t n, float *lo, float *hi);
/* Writes scales and zero points of the units in the band of rows with `row`. */
void ceni_codec_scale_band(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t row);
/* From its least and largest elements; without zero points `lo` is not asked. */
void ceni_codec_scale_unit(const ceni_codec_job *job, uint64_t unit, float lo, float hi);

/* As ceni_codec_encode_host and ceni_codec_decode_host, with these loops. */
bool ceni_codec_encode_with(const ceni_codec_loops *loops, const ceni_codec_job *job,
                            ceni_codec_sums *rows, ceni_codec_sums *total, uint64_t *row);
bool ceni_codec_decode_with(const ceni_codec_loops *loops, const ceni_codec_job *job, bool strict,
                            uint64_t *row);

#endif
