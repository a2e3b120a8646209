/* Encoding and decoding on the host, a tile of a row at a time: what codec.c, codec_steps.c and
 * codec_scales.c share. */
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

static inline int32_t ceni_codec_zero(const ceni_codec_job *job, uint64_t unit) {
    return ((const int8_t *)(uintptr_t)job->zeros)[unit];
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

/* Where the values of (row, col) on are, and how many bytes n of them take. */
static inline uint8_t *ceni_codec_values_at(const ceni_codec_job *job, uint64_t row, uint64_t col,
                                            size_t n, size_t *bytes) {
    uint32_t bits = job->kind <= CENI_CODEC_BF16 ? 16 : job->kind == CENI_CODEC_INT4 ? 4 : 8;
    uint64_t place = ceni_codec_is(job, CENI_CODEC_SPARSE) ? col / 2 : col;
    *bytes = (n * bits + 7) / 8;
    return (uint8_t *)(uintptr_t)(job->values + row * job->pitch + place * bits / 8);
}

static inline uint8_t *ceni_codec_metadata_at(const ceni_codec_job *job, uint64_t row,
                                              uint64_t col) {
    return (uint8_t *)(uintptr_t)(job->metadata + row * job->metadata_pitch + col / 8);
}

/* A tile on its way; what the steps leave to each other. */
typedef struct ceni_codec_tile {
    const ceni_codec_loops *loops;
    const ceni_codec_job *job;
    uint64_t unit; /* that s, r and z are full of; UINT64_MAX: none */
    float x[CENI_CODEC_TILE], y[CENI_CODEC_TILE], s[CENI_CODEC_TILE], r[CENI_CODEC_TILE];
    int32_t z[CENI_CODEC_TILE];
    union {
        int8_t i8[CENI_CODEC_TILE];
        uint8_t u8[CENI_CODEC_TILE];
        uint16_t u16[CENI_CODEC_TILE];
    } code;
    /* 2:4: the kept half, with the scales of where it came from, and a nibble for each group */
    float kept[CENI_CODEC_TILE / 2], kept_s[CENI_CODEC_TILE / 2], kept_r[CENI_CODEC_TILE / 2];
    float sum_r[CENI_CODEC_TILE]; /* r, and 0 where an element was pruned */
    int32_t kept_z[CENI_CODEC_TILE / 2];
    uint8_t nibbles[CENI_CODEC_TILE / 4];
} ceni_codec_tile;

void ceni_codec_tile_init(ceni_codec_tile *t, const ceni_codec_loops *loops,
                          const ceni_codec_job *job);
/* So many groups' nibbles, to and from where those of (row, col) on are. false: indices do not
 * rise. */
void ceni_codec_put_metadata(ceni_codec_tile *t, uint64_t row, uint64_t col, size_t groups);
bool ceni_codec_get_metadata(ceni_codec_tile *t, uint64_t row, uint64_t col, size_t groups);
/* n elements from (row, col) on, at most a tile, step by step. `sums` (NULL: not wanted) are added
 * to. false: they are not 2:4, and were pruned. */
bool ceni_codec_encode_steps(ceni_codec_tile *t, uint64_t row, uint64_t col, size_t n,
                             ceni_codec_sums *sums);
/* false: indices that do not rise. */
bool ceni_codec_decode_steps(ceni_codec_tile *t, uint64_t row, uint64_t col, size_t n);
/* The same, left in t->y as floats. */
bool ceni_codec_decode_floats(ceni_codec_tile *t, uint64_t row, uint64_t col, size_t n);

/* As ceni_codec_encode_host and ceni_codec_decode_host, with these loops. */
bool ceni_codec_encode_with(const ceni_codec_loops *loops, const ceni_codec_job *job,
                            ceni_codec_sums *rows, ceni_codec_sums *total, uint64_t *row);
bool ceni_codec_decode_with(const ceni_codec_loops *loops, const ceni_codec_job *job, bool strict,
                            uint64_t *row);

#endif
