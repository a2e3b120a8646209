/* Formats, descriptors, and how many bytes they take. */
#include "codec/codec.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/over.h"
#include "compute/compute.h"

typedef struct format {
    cen_codec_format format;
    cen_dtype dtype;
    const char *name;
} format;

static const format formats[] = {
#define ROW(name, value, dtype, text) {CEN_CODEC_##name, dtype, text},
    CEN_CODEC_FORMAT_MAP(ROW)
#undef ROW
};
enum { FORMATS = sizeof formats / sizeof *formats };

static const format *find(cen_codec_format wanted) {
    for (size_t i = 0; i < FORMATS; i++) {
        if (formats[i].format == wanted) {
            return &formats[i];
        }
    }
    return NULL;
}

const char *cen_codec_format_name(cen_codec_format wanted) {
    const format *f = find(wanted);
    return f ? f->name : "?";
}

cen_dtype cen_codec_format_dtype(cen_codec_format wanted) {
    const format *f = find(wanted);
    return f ? f->dtype : (cen_dtype)0;
}

cen_status cen_codec_format_find(const char *name, cen_codec_format *found) {
    if (!name || !found) {
        return ceni_fail(CEN_ERR_INVALID, "%s is NULL", name ? "format" : "name");
    }
    for (size_t i = 0; i < FORMATS; i++) {
        if (!strcmp(formats[i].name, name)) {
            *found = formats[i].format;
            return CEN_OK;
        }
    }
#define NAME(name, value, dtype, text) " " text
    return ceni_fail(CEN_ERR_NOT_FOUND,
                     "there is no codec of the name '%s'; names are" CEN_CODEC_FORMAT_MAP(NAME),
                     name);
#undef NAME
}

/* ---- descriptors ---- */

static cen_status check_units(const cen_codec *codec, const char *name) {
    static const char *const words[] = {"unscaled", "tensor", "row", "column", "group", "block"};
    cen_codec_granularity g = codec->granularity;
    if (g > CEN_CODEC_BLOCK) {
        return ceni_fail(CEN_ERR_INVALID, "codec.granularity is %d, which is none", (int)g);
    }
    if (ceni_codec_is_int(codec->format)
            ? g == CEN_CODEC_UNSCALED
            : g != CEN_CODEC_UNSCALED && !ceni_codec_is_fp8(codec->format)) {
        return ceni_fail(CEN_ERR_INVALID, "codec.granularity is %s; %s has %s", words[g], name,
                         g ? "no scales" : "scales");
    }
    if (g == CEN_CODEC_GROUP ? codec->group != 32 && codec->group != 64 && codec->group != 128
                             : codec->group != 0) {
        return ceni_fail(CEN_ERR_INVALID, "codec.group is %u; with granularity %s it is %s",
                         codec->group, words[g], g == CEN_CODEC_GROUP ? "32, 64 or 128" : "0");
    }
    uint32_t rows = codec->block_rows, cols = codec->block_cols;
    if (g == CEN_CODEC_BLOCK ? rows < 1 || cols < 1 || rows > 65536 || cols > 65536
                             : rows || cols) {
        return ceni_fail(CEN_ERR_INVALID,
                         "codec.block_rows and block_cols are %u and %u; with granularity %s they "
                         "are %s",
                         rows, cols, words[g], g == CEN_CODEC_BLOCK ? "1 to 65536" : "0");
    }
    return CEN_OK;
}

cen_status cen_codec_check(const cen_codec *codec) {
    const format *f = codec ? find(codec->format) : NULL;
    if (!codec) {
        return ceni_fail(CEN_ERR_INVALID, "codec is NULL");
    }
    if (!f) {
        return ceni_fail(CEN_ERR_INVALID, "codec.format is %d, which is none", (int)codec->format);
    }
    if (codec->overflow > CEN_CODEC_NONFINITE) {
        return ceni_fail(CEN_ERR_INVALID, "codec.overflow is %d, which is none",
                         (int)codec->overflow);
    }
    if (ceni_codec_is_int(codec->format) && codec->overflow == CEN_CODEC_NONFINITE) {
        return ceni_fail(CEN_ERR_INVALID,
                         "codec.overflow asks for infinities, which %s does not have", f->name);
    }
    if (codec->format == CEN_CODEC_LOSSLESS_BF16 && codec->overflow) {
        return ceni_fail(CEN_ERR_INVALID, "codec.overflow is set, and in %s nothing overflows",
                         f->name);
    }
    if (codec->asymmetric && !ceni_codec_is_int(codec->format)) {
        return ceni_fail(CEN_ERR_INVALID, "codec.asymmetric is set, and %s has no zero points",
                         f->name);
    }
    if (codec->scales_given && !codec->granularity) {
        return ceni_fail(CEN_ERR_INVALID, "codec.scales_given is set, and there are no scales");
    }
    if (codec->refuse_dense && !ceni_codec_is_sparse(codec->format)) {
        return ceni_fail(CEN_ERR_INVALID, "codec.refuse_dense is set, and %s is dense", f->name);
    }
    return check_units(codec, f->name);
}

/* ---- shapes ---- */

/* Of a matrix that is not empty. */
static void units(const cen_codec *codec, uint64_t rows, uint64_t cols, ceni_codec_job *job) {
    job->unit_rows = job->unit_cols = 1;
    switch (codec->granularity) {
    case CEN_CODEC_UNSCALED:
    case CEN_CODEC_TENSOR:
        job->unit_rows = rows, job->unit_cols = cols;
        break;
    case CEN_CODEC_ROW:
        job->unit_cols = cols;
        break;
    case CEN_CODEC_COLUMN:
        job->unit_rows = rows;
        break;
    case CEN_CODEC_GROUP:
        job->unit_cols = codec->group;
        break;
    case CEN_CODEC_BLOCK:
        job->unit_rows = codec->block_rows, job->unit_cols = codec->block_cols;
        break;
    }
    job->units_across = ceni_over(cols, job->unit_cols);
}

/* Pitches; false: they are beyond 64 bits. */
static bool pitches(const cen_codec *codec, uint64_t cols, ceni_codec_job *job) {
    uint64_t bits = cen_dtype_bits(cen_codec_format_dtype(codec->format)), kept = cols;
    job->metadata_pitch = 0;
    if (ceni_codec_is_sparse(codec->format)) {
        uint64_t groups = ceni_over(cols, 4), word = bits == 8 ? 8 : 4; /* groups of a word */
        kept = groups * 2;
        job->metadata_pitch = ceni_over(groups, word) * (word / 2);
    }
    uint64_t all;
    job->pitch = 0;
    if (__builtin_mul_overflow(kept, bits, &all)) {
        return false;
    }
    job->pitch = ceni_over(all, 8);
    return true;
}

static bool sizes_of(const cen_codec *codec, uint64_t rows, uint64_t cols, ceni_codec_job *job,
                     cen_codec_sizes *sizes) {
    uint64_t count = 0;
    *sizes = (cen_codec_sizes){0};
    if (!rows || !cols) {
        return true;
    }
    if (codec->format == CEN_CODEC_LOSSLESS_BF16) {
        if (__builtin_mul_overflow(rows, cols, &count) || count > UINT64_MAX / 4) {
            return false;
        }
        sizes->values = ceni_lossless_bound(count);
        return true;
    }
    units(codec, rows, cols, job);
    if (!pitches(codec, cols, job) || __builtin_mul_overflow(rows, job->pitch, &sizes->values) ||
        __builtin_mul_overflow(rows, job->metadata_pitch, &sizes->metadata)) {
        return false;
    }
    if (!codec->granularity) {
        return true;
    }
    if (__builtin_mul_overflow(ceni_over(rows, job->unit_rows), job->units_across, &count) ||
        __builtin_mul_overflow(count, sizeof(float), &sizes->scales)) {
        return false;
    }
    sizes->zeros = codec->asymmetric ? count : 0;
    return true;
}

cen_status cen_codec_bound(const cen_codec *codec, uint64_t rows, uint64_t cols,
                           cen_codec_sizes *sizes) {
    cen_status status = cen_codec_check(codec);
    ceni_codec_job job;
    cen_codec_sizes found;
    if (status) {
        return status;
    }
    if (!sizes) {
        return ceni_fail(CEN_ERR_INVALID, "sizes is NULL");
    }
    if (!sizes_of(codec, rows, cols, &job, &found)) {
        return ceni_fail(CEN_ERR_INVALID, "%llu x %llu elements have no addresses",
                         (unsigned long long)rows, (unsigned long long)cols);
    }
    *sizes = found;
    return CEN_OK;
}

/* ---- jobs ---- */

static uint32_t kind_of(cen_dtype dtype) {
    switch (dtype) {
    case CEN_FP16:
        return CENI_CODEC_FP16;
    case CEN_BF16:
        return CENI_CODEC_BF16;
    case CEN_FP8_E4M3:
        return CENI_CODEC_E4M3;
    case CEN_FP8_E5M2:
        return CENI_CODEC_E5M2;
    case CEN_INT8:
        return CENI_CODEC_INT8;
    default:
        return CENI_CODEC_INT4;
    }
}

static uint32_t flags_of(const cen_codec *codec) {
    bool half = codec->format == CEN_CODEC_FP16 || codec->format == CEN_CODEC_BF16 ||
                codec->format == CEN_CODEC_SPARSE_FP16 || codec->format == CEN_CODEC_SPARSE_BF16;
    bool saturate =
        codec->overflow == CEN_CODEC_SATURATE || (codec->overflow == CEN_CODEC_DEFAULT && !half);
    return (codec->granularity ? CENI_CODEC_SCALED : 0u) |
           (codec->asymmetric ? CENI_CODEC_ASYMMETRIC : 0u) |
           (codec->scales_given ? CENI_CODEC_GIVEN_SCALES : 0u) |
           (ceni_codec_is_sparse(codec->format) ? CENI_CODEC_SPARSE : 0u) |
           (saturate ? CENI_CODEC_SATURATING : 0u) |
           (codec->refuse_dense ? CENI_CODEC_ONLY_SPARSE : 0u);
}

/* What becomes of numbers, by kind. */
static void set_numbers(const cen_codec *codec, ceni_codec_job *job) {
    static const struct {
        float largest, limit;
    } of[] = {[CENI_CODEC_FP16] = {1, 0x1.FFDFFEp15f},  [CENI_CODEC_BF16] = {1, 0x1.FEFFFEp127f},
              [CENI_CODEC_E4M3] = {448, 464},           [CENI_CODEC_E5M2] = {57344, 0x1.DFFFFEp15f},
              [CENI_CODEC_INT8] = {127, 0x1.FDFFFEp6f}, [CENI_CODEC_INT4] = {7, 0x1.DFFFFEp2f}};
    job->kind = kind_of(cen_codec_format_dtype(codec->format));
    job->flags = flags_of(codec);
    job->divisor = of[job->kind].largest;
    job->limit = of[job->kind].limit;
    job->high = job->kind == CENI_CODEC_INT8 ? 127 : 7;
    job->low = -job->high;
    if (codec->asymmetric) {
        job->divisor = (float)(2 * job->high + 1);
        /* Only infinities are beyond a unit's own ends; with given ones it depends on z. */
        job->limit = codec->scales_given ? INFINITY : 0x1.FFFFFEp127f;
        job->low--;
    }
}

typedef struct part {
    const char *name;
    cen_addr addr;
    uint64_t bytes, needed;
} part;

static cen_status check_part(const part *p, bool encode) {
    if (p->bytes < p->needed) {
        return ceni_fail(encode ? CEN_ERR_INVALID : CEN_ERR_TRUNCATED,
                         "%s has %llu bytes; %llu are needed", p->name,
                         (unsigned long long)p->bytes, (unsigned long long)p->needed);
    }
    if (p->needed && (!p->addr || p->needed > UINT64_MAX - p->addr)) {
        return ceni_fail(CEN_ERR_INVALID, "%s has no memory for %llu bytes", p->name,
                         (unsigned long long)p->needed);
    }
    return CEN_OK;
}

/* No two of them may share a byte, the matrix being the last. */
static cen_status check_parts(const part *parts, size_t count, bool encode) {
    for (size_t i = 0; i < count; i++) {
        const part *a = &parts[i];
        cen_status status = check_part(a, encode);
        for (size_t j = 0; !status && j < i; j++) {
            const part *b = &parts[j];
            if (a->needed && b->needed && a->addr < b->addr + b->needed &&
                b->addr < a->addr + a->needed && (encode || i + 1 == count)) {
                return ceni_fail(CEN_ERR_INVALID, "%s and %s overlap", b->name, a->name);
            }
        }
        if (status) {
            return status;
        }
    }
    return CEN_OK;
}

static cen_status check_matrix(const cen_codec *codec, const cen_matrix *matrix, const char *name,
                               uint64_t *bytes) {
    cen_status status = ceni_matrix_check(matrix, name, bytes);
    if (status) {
        return status;
    }
    bool half = matrix->dtype == CEN_FP16 || matrix->dtype == CEN_BF16;
    if (!half && matrix->dtype != CEN_FP32) {
        return ceni_fail(CEN_ERR_INVALID, "%s is of %s; codecs take fp32, fp16 and bf16", name,
                         cen_dtype_name(matrix->dtype));
    }
    if (codec->format == CEN_CODEC_LOSSLESS_BF16 && matrix->dtype != CEN_BF16) {
        return ceni_fail(CEN_ERR_INVALID, "%s is of %s; %s takes bf16", name,
                         cen_dtype_name(matrix->dtype), cen_codec_format_name(codec->format));
    }
    return CEN_OK;
}

static void place_parts(const cen_codec *codec, const cen_codec_parts *parts, uint64_t rows,
                        uint64_t cols, ceni_codec_job *job) {
    job->rows = cols ? rows : 0;
    job->cols = cols;
    job->values = parts->values;
    job->scales = parts->scales;
    job->zeros = parts->zeros;
    job->metadata = parts->metadata;
    set_numbers(codec, job);
}

enum { PARTS = 4 };

/* The parts of an encoded matrix, of which so many bytes are needed. */
static void name_parts(const cen_codec_parts *parts, const cen_codec_sizes *needed,
                       part named[PARTS]) {
    const cen_codec_sizes *bytes = &parts->bytes;
    named[0] = (part){"parts.values", parts->values, bytes->values, needed->values};
    named[1] = (part){"parts.scales", parts->scales, bytes->scales, needed->scales};
    named[2] = (part){"parts.zeros", parts->zeros, bytes->zeros, needed->zeros};
    named[3] = (part){"parts.metadata", parts->metadata, bytes->metadata, needed->metadata};
}

cen_status ceni_codec_job_make(const cen_codec *codec, const cen_matrix *matrix,
                               const cen_codec_parts *parts, bool encode, ceni_codec_job *job) {
    const char *name = encode ? "source" : "to";
    cen_codec_sizes sizes;
    uint64_t bytes;
    cen_status status = cen_codec_check(codec);
    status = status ? status : check_matrix(codec, matrix, name, &bytes);
    if (status) {
        return status;
    }
    if (!parts) {
        return ceni_fail(CEN_ERR_INVALID, "parts is NULL");
    }
    *job = (ceni_codec_job){0};
    if (!sizes_of(codec, matrix->rows, matrix->cols, job, &sizes)) {
        return ceni_fail(CEN_ERR_INVALID, "%s of %llu x %llu elements cannot be encoded", name,
                         (unsigned long long)matrix->rows, (unsigned long long)matrix->cols);
    }
    if (codec->format == CEN_CODEC_LOSSLESS_BF16 && !encode) {
        sizes.values = parts->bytes.values; /* as many as there are, which decoding checks */
    }
    part all[PARTS + 1] = {[PARTS] = {name, matrix->data, bytes, bytes}};
    name_parts(parts, &sizes, all);
    status = check_parts(all, PARTS + 1, encode);
    place_parts(codec, parts, matrix->rows, matrix->cols, job);
    job->matrix = matrix->data;
    job->stride = matrix->stride;
    job->dtype = matrix->dtype;
    return status;
}

cen_status ceni_codec_job_of_parts(const cen_codec *codec, uint64_t rows, uint64_t cols,
                                   const cen_codec_parts *parts, const char *what,
                                   ceni_codec_job *job) {
    cen_codec_sizes sizes;
    cen_status status = cen_codec_check(codec);
    if (status) {
        return status;
    }
    *job = (ceni_codec_job){.unit_rows = 1, .unit_cols = 1}; /* of an empty one */
    if (!sizes_of(codec, rows, cols, job, &sizes)) {
        return ceni_fail(CEN_ERR_INVALID, "%s of %llu x %llu elements cannot be encoded", what,
                         (unsigned long long)rows, (unsigned long long)cols);
    }
    part all[PARTS];
    name_parts(parts, &sizes, all);
    for (size_t i = 0; !status && i < PARTS; i++) {
        status = check_part(&all[i], false);
    }
    place_parts(codec, parts, rows, cols, job);
    return status;
}

cen_status ceni_codec_job_aligned(const ceni_codec_job *job) {
    if ((job->flags & CENI_CODEC_SCALED) && job->scales % sizeof(float)) {
        return ceni_fail(CEN_ERR_INVALID, "parts.scales lies at 0x%llx, which is no multiple of 4",
                         (unsigned long long)job->scales);
    }
    if (job->kind <= CENI_CODEC_BF16 && job->values % 2) {
        return ceni_fail(CEN_ERR_INVALID, "parts.values lies at 0x%llx, which is no multiple of 2",
                         (unsigned long long)job->values);
    }
    return CEN_OK;
}
