/* The loops over a tile of a row that encoding and decoding are made of. They are compiled once for
 * any processor and once for AVX2 (codec_loops_body.h), and give the same bytes either way. n is at
 * most CENI_CODEC_TILE. */
#ifndef CENI_KERNELS_CODEC_LOOPS_H
#define CENI_KERNELS_CODEC_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/codec_runs.h"

typedef struct ceni_codec_loops {
    void (*load_f16)(const uint16_t *from, size_t n, float *x);
    void (*load_bf16)(const uint16_t *from, size_t n, float *x);
    void (*store_f32)(const float *y, size_t n, float *to);
    void (*store_f16)(const float *y, size_t n, uint16_t *to);
    void (*store_bf16)(const float *y, size_t n, uint16_t *to);
    /* Widens lo[k]..hi[k] to the finite elements of the k-th run of `width`; and the same of their
     * sizes, into hi alone. */
    void (*extremes)(const float *x, size_t n, size_t width, float *lo, float *hi);
    void (*largest)(const float *x, size_t n, size_t width, float *hi);
    void (*inverse)(const float *s, size_t n, float *r);
    /* Each of the units' s and r `width` times, a multiple of 32. */
    void (*spread)(const float *s, const float *r, size_t units, size_t width, float *all_s,
                   float *all_r);
    /* Codes of x[i] * r[i]. */
    void (*to_int)(const float *x, const float *r, size_t n, float largest, int8_t *q);
    void (*to_int_zero)(const float *x, const float *r, const int32_t *z, size_t n, int32_t high,
                        int8_t *q);
    void (*to_e4m3)(const float *x, const float *r, size_t n, bool saturate, uint8_t *q);
    void (*to_e5m2)(const float *x, const float *r, size_t n, bool saturate, uint8_t *q);
    void (*to_f16)(const float *x, size_t n, bool saturate, uint16_t *q);
    void (*to_bf16)(const float *x, size_t n, bool saturate, uint16_t *q);
    /* And back: (q - z) * s, cut to finite where q is. */
    void (*of_int)(const int8_t *q, const float *s, const int32_t *z, size_t n, float *y);
    void (*of_e4m3)(const uint8_t *q, const float *s, size_t n, float *y);
    void (*of_e5m2)(const uint8_t *q, const float *s, size_t n, float *y);
    /* Two to a byte; the last byte of an odd n has a half of 0. */
    void (*pack)(const int8_t *q, size_t n, uint8_t *to);
    void (*unpack)(const uint8_t *from, size_t n, int8_t *q);
    /* BF16 as its exponents and, in a byte, sign and mantissa; and back. n is any. */
    void (*split)(const uint16_t *from, size_t n, uint8_t *exponents, uint8_t *rest);
    void (*join)(const uint8_t *exponents, const uint8_t *rest, size_t n, uint16_t *to);
    /* n elements, as so many whole groups of four as that needs (x has that many): two kept of
     * each into `kept`, and a nibble for each; false: a group has more than two nonzeros. */
    bool (*prune)(const float *x, size_t n, float *kept, uint8_t *nibbles);
    /* All of so many groups from those kept, with 0 elsewhere; of indices that are the same the
     * second counts. */
    void (*expand)(const float *kept, const uint8_t *nibbles, size_t groups, float *all);
    /* How many codes of to_int_zero are cut to the end of the range. */
    uint64_t (*cut_by_zero)(const float *x, const float *r, const int32_t *z, size_t n,
                            int32_t high);
    void (*sums)(const float *x, const float *r, const float *y, size_t n, float limit,
                 ceni_codec_sums *sums);
    const ceni_codec_runs *runs; /* NULL: there are none */
} ceni_codec_loops;

extern const ceni_codec_loops ceni_codec_loops_any;
#if defined(__x86_64__)
extern const ceni_codec_loops ceni_codec_loops_avx2; /* only where the processor has it, and FMA */
#endif

/* Those for this processor. */
const ceni_codec_loops *ceni_codec_loops_here(void);

#endif
