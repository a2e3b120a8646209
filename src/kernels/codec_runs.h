/* Encoding and decoding straight from memory to memory, without the steps of codec_loops.h: what
 * most matrices take on a processor that has vectors for it. They give the same bytes and the same
 * sums as the steps. */
#ifndef CENI_KERNELS_CODEC_RUNS_H
#define CENI_KERNELS_CODEC_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/codec.h"

enum {
    CENI_CODEC_STEP = 32,   /* elements; runs and units are multiples of it */
    CENI_CODEC_AHEAD = 4096 /* bytes from what is read to what is read soon, in one row */
};

/* A piece of a row: n elements, of which each `width` share an s, r and z (NULL: they are 0).
 * 16-bit kinds ask for none of them. */
typedef struct ceni_codec_run {
    void *matrix, *values;
    size_t n, width;
    const float *s, *r;
    const int8_t *z;
    bool saturate;
    bool unscaled, given; /* s and r are 1; or others' */
    float limit;
    int16_t infinite; /* of a 16-bit kind, as its bits */
    size_t ahead;     /* bytes from the matrix's piece to what is read soon */
} ceni_codec_run;

typedef struct ceni_codec_run_loops {
    void (*encode)(const ceni_codec_run *run);
    void (*decode)(const ceni_codec_run *run);
} ceni_codec_run_loops;

/* hi[k], or lo[k] and hi[k], are widened to the finite elements of the k-th unit. */
typedef struct ceni_codec_source_loops {
    void (*largest)(const void *from, size_t n, size_t width, float *hi);
    void (*extremes)(const void *from, size_t n, size_t width, float *lo, float *hi);
    /* Of a run that became y. false: an element is not finite, or what has no scale is cut, and
     * nothing is done. */
    bool (*sums)(const ceni_codec_run *run, const float *y, ceni_codec_sums *sums);
} ceni_codec_source_loops;

typedef struct ceni_codec_runs {
    /* By CEN_FP32 less the matrix's type, and by kind. */
    ceni_codec_run_loops of[3][CENI_CODEC_INT4 + 1];
    ceni_codec_source_loops source[3];
    /* 2:4 of a 16-bit kind from and to that kind. false: indices do not rise. */
    void (*encode_sparse)(const ceni_codec_run *run, uint8_t *metadata);
    bool (*decode_sparse)(const ceni_codec_run *run, const uint8_t *metadata);
} ceni_codec_runs;

#if defined(__x86_64__)
extern const ceni_codec_runs ceni_codec_runs_avx2;
void ceni_codec_encode_sparse_avx2(const ceni_codec_run *run, uint8_t *metadata);
void ceni_codec_expand_avx2(const float *kept, const uint8_t *nibbles, size_t groups, float *all);
bool ceni_codec_prune_avx2(const float *x, size_t n, float *kept, uint8_t *nibbles);
bool ceni_codec_decode_sparse_avx2(const ceni_codec_run *run, const uint8_t *metadata);
#endif

#endif
