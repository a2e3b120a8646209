/* Codecs: tensors in fewer bits, with an account of what that cost.
 *
 * A codec (cen_codec) says in which format a matrix is kept, how many elements share a scale, and
 * what becomes of numbers that do not fit. The bytes follow from the descriptor and the source
 * alone: they are the same from every backend, processor and compiler. docs/codecs.md gives each
 * format to the bit.
 *
 * The source is FP32, FP16 or BF16; "x" below is its element as an FP32, exactly. Arithmetic is
 * FP32, each operation rounded to nearest, ties to even, none contracted with another:
 *
 *   symmetric    amax = the largest |x| of the unit's finite elements, 0 if it has none
 *                s = amax / Q, at least 2^-126     Q: 127 INT8, 7 INT4, 448 E4M3, 57344 E5M2
 *                r = 1 / s, t = x * r
 *                INT: q = t rounded, then cut to -Q..Q        decoded: q * s
 *                FP8: q = t as FP8                            decoded: q * s
 *   asymmetric   lo = the least finite x, hi = the largest, 0 included
 *                s = hi / N - lo / N, at least 2^-126         N: 255 INT8, 15 INT4
 *                r = 1 / s, z = -H - (lo * r rounded)         H: 128 INT8, 8 INT4
 *                q = (x * r rounded) + z, cut to -H..H-1      decoded: (q - z) * s
 *
 * With scales_given s (and z) are the caller's, and what lies beyond Q * s is cut or overflows.
 *
 * "Rounded" is to the nearest integer, ties to even. A decoded value beyond FP32's largest is that
 * one. A unit of zeros has s = 2^-126 and decodes to zeros; s is never 0, infinite or NaN.
 * NaN becomes 0 in INT formats and NaN in all others; an infinity never enters a scale, and is cut
 * to the end of the range in INT formats. Both are counted in the report.
 *
 * Every function may be called from any thread. Memory is given as addresses, as for devices: of
 * this process for cen_codec_encode and cen_codec_decode, of the device for the _async calls. */
#ifndef CENOTE_CODEC_H
#define CENOTE_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "cenote/device.h"
#include "cenote/dtype.h"
#include "cenote/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name, value, type of an encoded element, text. 2:4: of each four neighbours in a row the two of
 * largest magnitude are kept (of equal ones the first), with metadata that says which. Lossless
 * BF16: exponents are entropy coded; the source must be BF16, and the size depends on the data. */
#define CEN_CODEC_FORMAT_MAP(X)                                                                    \
    X(FP16, 1, CEN_FP16, "fp16")                                                                   \
    X(BF16, 2, CEN_BF16, "bf16")                                                                   \
    X(FP8_E4M3, 3, CEN_FP8_E4M3, "fp8_e4m3")                                                       \
    X(FP8_E5M2, 4, CEN_FP8_E5M2, "fp8_e5m2")                                                       \
    X(INT8, 5, CEN_INT8, "int8")                                                                   \
    X(INT4, 6, CEN_INT4, "int4")                                                                   \
    X(SPARSE_FP16, 7, CEN_FP16, "2:4_fp16")                                                        \
    X(SPARSE_BF16, 8, CEN_BF16, "2:4_bf16")                                                        \
    X(SPARSE_INT8, 9, CEN_INT8, "2:4_int8")                                                        \
    X(LOSSLESS_BF16, 10, CEN_UINT8, "lossless_bf16")

typedef enum cen_codec_format {
#define CEN_CODEC_FORMAT_ENUM(name, value, dtype, text) CEN_CODEC_##name = (value),
    CEN_CODEC_FORMAT_MAP(CEN_CODEC_FORMAT_ENUM)
#undef CEN_CODEC_FORMAT_ENUM
} cen_codec_format;

/* Which elements share a scale: a unit. Units at the right and lower edges may be smaller. */
typedef enum cen_codec_granularity {
    CEN_CODEC_UNSCALED = 0, /* no scales: FP16, BF16, FP8, 2:4 of FP16 and BF16, lossless */
    CEN_CODEC_TENSOR = 1,   /* the others: INT8, INT4, FP8, 2:4 of INT8 */
    CEN_CODEC_ROW = 2,
    CEN_CODEC_COLUMN = 3,
    CEN_CODEC_GROUP = 4, /* `group` neighbours in a row */
    CEN_CODEC_BLOCK = 5  /* block_rows x block_cols */
} cen_codec_granularity;

/* What becomes of a finite element that rounds to more than the format's largest number, and of an
 * infinity. INT formats always saturate. */
typedef enum cen_codec_overflow {
    CEN_CODEC_DEFAULT = 0,   /* FP8, INT: saturate; FP16, BF16: as IEEE */
    CEN_CODEC_SATURATE = 1,  /* the largest finite number of its sign */
    CEN_CODEC_NONFINITE = 2, /* infinity of its sign; in E4M3, which has none, NaN of its sign */
} cen_codec_overflow;

/* Zero-initialise, then set what is wanted. */
typedef struct cen_codec {
    cen_codec_format format;
    cen_codec_granularity granularity;
    uint32_t group;                  /* CEN_CODEC_GROUP: 32, 64 or 128; else 0 */
    uint32_t block_rows, block_cols; /* CEN_CODEC_BLOCK: 1 to 65536; else 0 */
    cen_codec_overflow overflow;
    bool asymmetric;   /* INT8, INT4 and 2:4 of INT8: zero points, too */
    bool refuse_dense; /* 2:4: more than two nonzeros of four are an error, not pruned */
    /* Encoding reads parts->scales (asymmetric: and zeros), where a calibrated threshold / Q clips;
     * it makes none. A scale is finite and at least 2^-126, a zero point within the range of q. */
    bool scales_given;
} cen_codec;

/* Bytes of each part of an encoded matrix; 0 where there is none. */
typedef struct cen_codec_sizes {
    uint64_t values;   /* rows one after another, each of whole bytes; INT4's first element is in
                          the low half, and an odd row's last half is 0 */
    uint64_t scales;   /* FP32, one a unit, units row by row */
    uint64_t zeros;    /* INT8, one a unit: z */
    uint64_t metadata; /* 2:4: a nibble of two indices for each four elements, the first in the
                          lowest bits of a word of 16 bits (32 for INT8 values); each row of whole
                          words, whose unused nibbles are 0xE */
} cen_codec_sizes;

/* Where the parts are, and the bytes at each address. Addresses need no alignment, save on a
 * device: `scales` to 4 bytes, and `values` and `metadata` to the type of their elements or words.
 * What a part's size of 0 says is not there may be 0. */
typedef struct cen_codec_parts {
    cen_addr values, scales, zeros, metadata;
    cen_codec_sizes bytes;
} cen_codec_parts;

/* What encoding did to a row, or to several: counts, and sums over the elements that were finite
 * and came back finite. y: what x decodes to, as FP32; e = |x - y|. */
typedef struct cen_codec_sums {
    uint64_t count;       /* elements, all of them */
    uint64_t nan;         /* x was NaN */
    uint64_t infinite;    /* x was an infinity */
    uint64_t saturated;   /* x, finite or infinite, was cut to the end of the range; asymmetric:
                             only if infinite, or, with scales_given, if q was cut */
    uint64_t overflowed;  /* x was finite, and y is an infinity or NaN */
    uint64_t underflowed; /* x was not 0, and y is; with 2:4 pruned elements, too */
    double largest;       /* the largest |x| */
    double max_error;     /* the largest e */
    double error, error2; /* sums of e and of e * e */
    double x2, y2, xy;    /* sums of x * x, y * y and x * y */
} cen_codec_sums;

typedef struct cen_codec_report {
    double largest;
    double max_error, mean_error, mse; /* infinite if anything overflowed */
    double sqnr_db; /* 10 log10(sum of x * x / sum of e * e); infinite if there is no error */
    double cosine;  /* of x and y; 1 if both are zero, 0 if one is or anything overflowed */
    uint64_t nan, infinite, saturated, overflowed, underflowed, count;
} cen_codec_report;

/* Limits to what encoding may cost, over the whole matrix. A zero field limits nothing. */
typedef struct cen_codec_budget {
    double max_error;       /* relative to the largest finite |x| */
    double min_sqnr_db;     /* decibels */
    double min_cosine;      /* 0 to 1 */
    double max_saturated;   /* share of the elements, 0 to 1; infinities count */
    double max_underflowed; /* share of the elements, 0 to 1 */
    bool finite_only; /* a NaN or an infinity in the source is refused, an overflow too much */
    bool refuse;      /* rather than fall back to a wider format */
} cen_codec_budget;

/* The format's name, such as "int8"; "?" if unknown. Never NULL. */
CEN_API const char *cen_codec_format_name(cen_codec_format format);
/* The format of a name. CEN_ERR_NOT_FOUND: there is none of that name. */
CEN_API cen_status cen_codec_format_find(const char *name, cen_codec_format *format);
/* The type of the format's encoded elements (UINT8 for lossless: bytes); 0 if unknown. */
CEN_API cen_dtype cen_codec_format_dtype(cen_codec_format format);

/* Is it a codec? CEN_ERR_INVALID: the log says which field is wrong, and why. */
CEN_API cen_status cen_codec_check(const cen_codec *codec);

/* Bytes of the parts of an encoded rows x cols matrix: exactly, or for lossless the most that
 * `values` can take. CEN_ERR_INVALID: as cen_codec_check, or too large for an address space. */
CEN_API cen_status cen_codec_bound(const cen_codec *codec, uint64_t rows, uint64_t cols,
                                   cen_codec_sizes *sizes);

/* Encodes `source` into `parts`, whose `bytes` are the room at each address, at least
 * cen_codec_bound's (no part may overlap the source or another), and set to the bytes used.
 * `rows` (NULL: not wanted) gets source->rows sums, one for each row, and `total` (NULL: not
 * wanted) those of the matrix; without either, encoding is faster. Both are made in the pass that
 * encodes, in double precision. CEN_ERR_INVALID: an argument, too little room, or with refuse_dense
 * a source that is not 2:4 (then the parts hold nothing of use), or with scales_given a scale or
 * zero point that is none (the log says which unit's; nothing is written). CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_codec_encode(const cen_codec *codec, const cen_matrix *source,
                                    cen_codec_parts *parts, cen_codec_sums *rows,
                                    cen_codec_sums *total);

/* Decodes `parts`, with the bytes that encoding used, into `to` (FP32, FP16 or BF16; lossless: BF16
 * only), whose rows and cols are those of the source. An FP16 or BF16 is the decoded FP32, rounded
 * as cenote's FP16 and BF16 formats are. Any bytes are safe: CEN_ERR_FORMAT if they are not what
 * encoding gives, as far as that can be told (lossless; metadata of 2:4, whose indices must rise),
 * CEN_ERR_TRUNCATED if there are too few. `to` may be written in part then. */
CEN_API cen_status cen_codec_decode(const cen_codec *codec, const cen_codec_parts *parts,
                                    const cen_matrix *to);

/* The same in memory of `device`, in stream order, without the host waiting. `sums` (0: not wanted)
 * is device memory, aligned to 8 bytes, for source->rows cen_codec_sums: the counts and max_error
 * are those of cen_codec_encode, the other sums within 2^-18 of them, relatively (xy: of the root
 * of x2 * y2). All else is bit for bit the same. The parts' `bytes` are checked, not set: they are
 * cen_codec_bound's. CEN_ERR_UNSUPPORTED: lossless, refuse_dense, or the library has no CUDA
 * kernels. Metadata is not checked when decoding: any is safe, and decodes to something. Nor are
 * given scales and zero points when encoding: with others than cen_codec_encode takes nothing is
 * written out of place, but values and counts mean nothing. */
CEN_API cen_status cen_codec_encode_async(cen_device *device, const cen_codec *codec,
                                          const cen_matrix *source, const cen_codec_parts *parts,
                                          cen_addr sums, cen_stream stream);
CEN_API cen_status cen_codec_decode_async(cen_device *device, const cen_codec *codec,
                                          const cen_codec_parts *parts, const cen_matrix *to,
                                          cen_stream stream);

/* Adds `sums` to `total`, and makes a report of sums. NULL arguments are ignored. */
CEN_API void cen_codec_sums_add(cen_codec_sums *total, const cen_codec_sums *sums);
CEN_API void cen_codec_report_of(const cen_codec_sums *sums, cen_codec_report *report);

/* The next codec to try when `codec` costs a source of type `source` too much: INT4 goes to INT8 of
 * the same units, 2:4 to the dense format, INT8 and FP8 to FP16 if that is the source's type and
 * else to BF16, and FP16 to BF16. It makes its own scales: scales_given is not set.
 * CEN_ERR_NOT_FOUND: there is none. */
CEN_API cen_status cen_codec_wider(const cen_codec *codec, cen_dtype source, cen_codec *wider);

/* As cen_codec_bound, the most over the codec and all that it may fall back to. */
CEN_API cen_status cen_codec_budget_bound(const cen_codec *codec, const cen_codec_budget *budget,
                                          cen_dtype source, uint64_t rows, uint64_t cols,
                                          cen_codec_sizes *sizes);

/* As cen_codec_encode, with a budget: where the cost is too high, the next wider codec is tried,
 * and a warning says which was left and why. `used` is the codec that the parts are of. The room is
 * at least cen_codec_budget_bound's. CEN_ERR_LIMIT: no codec keeps to the budget (or the first does
 * not, with `refuse`, or the source is not finite, with `finite_only`); the parts hold nothing of
 * use then. With scales_given, those that were given are lost once a wider codec made its own. */
CEN_API cen_status cen_codec_encode_within(const cen_codec *codec, const cen_codec_budget *budget,
                                           const cen_matrix *source, cen_codec_parts *parts,
                                           cen_codec_sums *rows, cen_codec_sums *total,
                                           cen_codec *used);

#ifdef __cplusplus
}
#endif
#endif
