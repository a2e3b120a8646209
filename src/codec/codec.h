/* What the codec's files share. */
#ifndef CENI_CODEC_CODEC_H
#define CENI_CODEC_CODEC_H

#include "cenote/codec.h"
#include "kernels/codec.h"

static inline bool ceni_codec_is_int(cen_codec_format format) {
    return format == CEN_CODEC_INT8 || format == CEN_CODEC_INT4 || format == CEN_CODEC_SPARSE_INT8;
}
static inline bool ceni_codec_is_fp8(cen_codec_format format) {
    return format == CEN_CODEC_FP8_E4M3 || format == CEN_CODEC_FP8_E5M2;
}
static inline bool ceni_codec_is_sparse(cen_codec_format format) {
    return format == CEN_CODEC_SPARSE_FP16 || format == CEN_CODEC_SPARSE_BF16 ||
           format == CEN_CODEC_SPARSE_INT8;
}

/* Q of docs/codecs.md, of a codec's elements that may have scales: what a scale is amax by. */
static inline float ceni_codec_largest(cen_dtype kind) {
    return kind == CEN_FP8_E4M3   ? 448.0f
           : kind == CEN_FP8_E5M2 ? 57344.0f
           : kind == CEN_INT8     ? 127.0f
                                  : 7.0f;
}

/* Checks all arguments and makes the job of them. `encode`: parts are written, `matrix` is read.
 * A job of an empty matrix has no elements and may not be run. */
cen_status ceni_codec_job_make(const cen_codec *codec, const cen_matrix *matrix,
                               const cen_codec_parts *parts, bool encode, ceni_codec_job *job);

/* The same for whoever decodes by itself, on a device: where the rows x cols matrix is that `parts`
 * hold is no matter of the job's, which has no `matrix`; it may be empty. `what` has been encoded,
 * in the failure.
 */
cen_status ceni_codec_job_of_parts(const cen_codec *codec, uint64_t rows, uint64_t cols,
                                   const cen_codec_parts *parts, const char *what,
                                   ceni_codec_job *job);
/* Whether scales and values lie as a device needs them. */
cen_status ceni_codec_job_aligned(const ceni_codec_job *job);

/* Which limit of a budget is passed, in words; NULL: none. */
const char *ceni_codec_too_much(const cen_codec_budget *budget, const cen_codec_sums *sums,
                                char *text, size_t size);

/* Lossless BF16: bytes at most; encoding, with the bytes used; decoding. The arguments are checked,
 * save for what is in the stream. */
uint64_t ceni_lossless_bound(uint64_t elements);
cen_status ceni_lossless_encode(const cen_matrix *source, const cen_codec_parts *parts,
                                uint64_t *bytes, cen_codec_sums *rows, cen_codec_sums *total);
cen_status ceni_lossless_decode(const cen_codec_parts *parts, const cen_matrix *to);

#endif
