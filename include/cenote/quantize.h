/* Tensor files in fewer bits: tensors are encoded by a codec (cenote/codec.h) into a new file that
 * says how, and are found there and decoded again. docs/formats/quantized.md has the file's keys.
 *
 * A matrix is made of a tensor like this: a row is its last dimension, together with as many before
 * it as make at least 64 elements, but never the first; so a convolution's row is an output
 * channel. Files are read and written in pieces of some MiB. */
#ifndef CENOTE_QUANTIZE_H
#define CENOTE_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/calibrate.h"
#include "cenote/codec.h"
#include "cenote/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tensors of more dimensions are not quantised. */
#define CEN_QUANTIZED_RANK 16

/* A tensor that its file describes as quantised. */
typedef struct cen_quantized {
    const cen_tensor *values, *scales, *zeros, *metadata; /* NULL: its codec has none */
    cen_codec codec;
    cen_dtype dtype; /* of what it was made of: FP32, FP16 or BF16 */
    uint32_t rank;   /* of that, too */
    uint64_t shape[CEN_QUANTIZED_RANK];
    uint64_t rows, cols; /* of the matrix that was encoded */
} cen_quantized;

/* How the tensor of a name is quantised. CEN_ERR_NOT_FOUND: no tensor, or not described as
 * quantised; CEN_ERR_FORMAT: a description that is off, or parts that are not as it says;
 * CEN_ERR_HOST_MEMORY. What it points to is the file's. Any thread. */
CEN_API cen_status cen_quantized_find(const cen_tensors *tensors, const char *name,
                                      cen_quantized *quantized);

/* Whether all that a file says of its quantised tensors holds: each description is of a tensor that
 * is there, with all its parts. CEN_ERR_FORMAT: the first that is off, the log says which;
 * CEN_ERR_HOST_MEMORY. Any thread. */
CEN_API cen_status cen_quantized_check(const cen_tensors *tensors);

/* Whether a tensor is a part of another: its scales, zero points or metadata. Any thread. */
CEN_API bool cen_quantized_is_part(const cen_tensors *tensors, const cen_tensor *tensor);

/* Decodes `rows` rows from row `first` on, as FP32, FP16 or BF16; those of the lossless format as
 * BF16 only, and all at once. CEN_ERR_INVALID: no such rows or type; CEN_ERR_FORMAT: bytes that no
 * encoding gives; CEN_ERR_HOST_MEMORY, and as cen_tensors_read. Any thread. */
CEN_API cen_status cen_quantized_read(const cen_tensors *tensors, const cen_quantized *quantized,
                                      uint64_t first, uint64_t rows, cen_dtype dtype, void *to);

/* How far it is, in bytes of the input, from time to time; `total` may be read twice over. */
typedef void (*cen_quantize_progress)(void *arg, uint64_t done, uint64_t total);

/* Zero-initialise, set size to sizeof(cen_quantize_options), then what is wanted. */
typedef struct cen_quantize_options {
    size_t size;
    cen_codec codec;         /* unscaled, or with scales by rows or groups */
    cen_codec_budget budget; /* all zero: whatever it costs. Each tensor is then encoded twice */
    /* Over which size elements are cut off, found on each tensor itself, which is read once more
     * (cenote/calibrate.h): its scales are amax / Q of min(amax, threshold). MAX: none are. The
     * others need scales and no zero points, ENTROPY INT8 or INT4, and PERCENTILE a percentile. */
    cen_threshold threshold;
    double percentile;
    /* Shell patterns (fnmatch) of names: only those that one of `include` fits, if there is any,
     * and none that one of `exclude` fits. */
    const char *const *include, *const *exclude;
    size_t include_count, exclude_count;
    cen_quantize_progress progress; /* NULL: not wanted; called by the thread that called */
    void *arg;
} cen_quantize_options;

/* What became of a tensor. */
typedef struct cen_quantize_row {
    const cen_tensor *tensor; /* of the input */
    const char *kept;         /* why it is as it was; NULL: it was encoded, or decoded */
    cen_codec codec;          /* of the encoded one, which a budget may have widened */
    cen_codec_report report;  /* what encoding cost */
    float threshold;          /* that its scales were cut to; 0: they were not */
    uint64_t bytes;           /* in the output, with all its parts */
} cen_quantize_row;

/* Writes `in` to a new file `out` (cen_tensor_writer_open) with its tensors of two dimensions and
 * more encoded, if they are FP32, FP16 or BF16; all else, metadata too, as it is. rows has room for
 * a row of each tensor of `in`, in that order. A warning says of NaNs that became 0 and
 * of infinities that became numbers, which the errors of the report do not count, of tensors that
 * a budget widened or left alone, and of patterns that fit no name. CEN_ERR_INVALID: an option, or
 * `out` is one of the files that `in` reads; CEN_ERR_FORMAT: as cen_quantized_check of `in`;
 * otherwise as the calls that read, encode and write. Nothing is left on failure.
 */
CEN_API cen_status cen_quantize(const cen_tensors *in, const char *out,
                                const cen_quantize_options *options, cen_quantize_row *rows);

/* The way back: what is quantised is decoded into the type that it was made of, and its parts and
 * description are gone. Of the options only size, progress and arg count. A part of a quantised
 * tensor has a row with no bytes. */
CEN_API cen_status cen_dequantize(const cen_tensors *in, const char *out,
                                  const cen_quantize_options *options, cen_quantize_row *rows);

#ifdef __cplusplus
}
#endif
#endif
