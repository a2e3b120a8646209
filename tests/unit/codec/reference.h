/* The codecs as docs/codecs.md defines them, an element at a time and with no regard for speed, to
 * compare the library with; and matrices to encode. Conversions to FP16, BF16 and FP8 are the
 * library's own: test_codec_exhaustive compares them with their definition. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "cenote/codec.h"
#include "tests/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ADDR(ptr) ((cen_addr)(uintptr_t)(ptr))

/* Sanitized code takes ten times as long, and looks for what cases of a kind share: it tries one of
 * so many; every other build tries all. */
#if defined(__SANITIZE_THREAD__)
#define CASES_APART 16
#elif defined(__SANITIZE_ADDRESS__)
#define CASES_APART 5
#else
#define CASES_APART 1
#endif
static inline bool is_tried(void) {
    static unsigned number;
    return number++ % CASES_APART == 0;
}

/* ---- matrices ---- */

enum data { RANDOM, HALVES, SUBNORMAL, HUGE_ONES, SPECIAL, CONSTANT, ZEROS, SPARSE, DATA };
static const char *const data_names[DATA] = {"random",  "halves",   "subnormal", "huge",
                                             "special", "constant", "zeros",     "sparse"};

static inline float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float random_value(enum data data, uint64_t *state) {
    uint64_t r = random_next(state);
    float unit = (float)(int32_t)(uint32_t)r * 0x1p-31f;
    float cubed = unit * unit * unit;
    static const uint32_t special[] = {0x7FC00000u, 0xFF800001u, 0x7F800000u, 0xFF800000u,
                                       0x00000000u, 0x80000000u, 0x7F7FFFFFu, 0xFF7FFFFFu,
                                       0x00000001u, 0x3F800000u, 0xC3E80000u, 0x477FF000u};
    switch (data) {
    case RANDOM:
        return cubed;
    case HALVES:
        return of_bits(to_bits(cubed) & 0xFFFF0000u);
    case SUBNORMAL:
        return of_bits((uint32_t)(r >> 32) & 0x807FFFFFu);
    case HUGE_ONES:
        return unit * 0x1.FFFFFEp127f;
    case SPECIAL:
        return r >> 60 ? cubed * 100 : of_bits(special[(r >> 40) % 12]);
    case CONSTANT:
        return -0.3f;
    case SPARSE:
        return (r >> 40) % 3 ? 0.0f : cubed;
    default:
        return 0.0f;
    }
}

typedef struct sample {
    cen_matrix matrix;
    void *memory;
    float *x; /* the elements as floats, rows * cols */
} sample;

static inline float half_value(cen_dtype dtype, uint16_t half) {
    cen_codec codec = {.format = dtype == CEN_FP16 ? CEN_CODEC_FP16 : CEN_CODEC_BF16};
    float value;
    cen_codec_parts parts = {.values = ADDR(&half), .bytes.values = 2};
    cen_matrix to = {ADDR(&value), 1, 1, 1, CEN_FP32};
    assert_int_equal(cen_codec_decode(&codec, &parts, &to), CEN_OK);
    return value;
}

static inline sample sample_make(enum data data, cen_dtype dtype, uint64_t rows, uint64_t cols,
                                 uint64_t stride, uint64_t seed) {
    size_t size = cen_dtype_bits(dtype) / 8, count = (size_t)(rows * stride);
    sample s = {.memory = malloc(count * size + 1), .x = malloc((size_t)(rows * cols) * 4 + 1)};
    assert_true(s.memory && s.x);
    s.matrix = (cen_matrix){ADDR(s.memory), rows, cols, stride, dtype};
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    cen_codec codec = {.format = dtype == CEN_FP16 ? CEN_CODEC_FP16 : CEN_CODEC_BF16};
    for (size_t i = 0; i < count; i++) {
        float value = random_value(data, &state);
        if (dtype == CEN_FP32) {
            ((float *)s.memory)[i] = value;
        } else {
            uint16_t *to = (uint16_t *)s.memory + i;
            cen_codec_parts parts = {.values = ADDR(to), .bytes.values = 2};
            cen_matrix from = {ADDR(&value), 1, 1, 1, CEN_FP32};
            assert_int_equal(cen_codec_encode(&codec, &from, &parts, NULL, NULL), CEN_OK);
            value = half_value(dtype, *to);
        }
        if (i % stride < cols) {
            s.x[i / stride * cols + i % stride] = value;
        }
    }
    return s;
}

static inline void sample_free(sample *s) {
    free(s->memory);
    free(s->x);
}

/* ---- parts ---- */

enum { GUARD = 64, FILL = 0xA5 };

/* Memory for parts of just the size, with bytes around it that nobody may write. */
typedef struct room {
    uint8_t *memory[4];
    cen_codec_parts parts;
    cen_codec_sizes sizes;
} room;

static inline room room_make(const cen_codec *codec, uint64_t rows, uint64_t cols) {
    room r;
    assert_int_equal(cen_codec_bound(codec, rows, cols, &r.sizes), CEN_OK);
    const uint64_t sizes[4] = {r.sizes.values, r.sizes.scales, r.sizes.zeros, r.sizes.metadata};
    for (int i = 0; i < 4; i++) {
        r.memory[i] = malloc((size_t)sizes[i] + 2 * GUARD);
        assert_non_null(r.memory[i]);
        memset(r.memory[i], FILL, (size_t)sizes[i] + 2 * GUARD);
    }
    r.parts = (cen_codec_parts){ADDR(r.memory[0] + GUARD), ADDR(r.memory[1] + GUARD),
                                ADDR(r.memory[2] + GUARD), ADDR(r.memory[3] + GUARD), r.sizes};
    return r;
}

static inline void room_check(const room *r) {
    const uint64_t sizes[4] = {r->sizes.values, r->sizes.scales, r->sizes.zeros, r->sizes.metadata};
    for (int i = 0; i < 4; i++) {
        for (size_t k = 0; k < GUARD; k++) {
            assert_int_equal(r->memory[i][k], FILL);
            assert_int_equal(r->memory[i][GUARD + sizes[i] + k], FILL);
        }
    }
}

static inline void room_free(room *r) {
    for (int i = 0; i < 4; i++) {
        free(r->memory[i]);
    }
}

/* Scales and zero points to be given: those that the codec makes, each unit's range narrowed, as it
 * is or widened, and its zero point moved. The codec is then one that is given them. */
static inline void room_give(cen_codec *codec, const sample *m, room *r) {
    static const float factors[] = {0.3f, 1.0f, 2.5f, 0.9f};
    assert_int_equal(cen_codec_encode(codec, &m->matrix, &r->parts, NULL, NULL), CEN_OK);
    uint8_t *scales = r->memory[1] + GUARD, *zeros = r->memory[2] + GUARD;
    for (uint64_t u = 0; u < r->sizes.scales / 4; u++) {
        float s;
        memcpy(&s, scales + 4 * u, 4);
        s = fmaxf(s * factors[u % 4], 0x1p-126f);
        memcpy(scales + 4 * u, &s, 4);
        if (r->sizes.zeros) {
            int z = (int8_t)zeros[u] + (int)(u % 3) * 2 - 2;
            int high = cen_codec_format_dtype(codec->format) == CEN_INT8 ? 127 : 7;
            zeros[u] = (uint8_t)(z > high ? high : z < -high - 1 ? -high - 1 : z);
        }
    }
    memset(r->memory[0] + GUARD, FILL, (size_t)r->sizes.values);
    memset(r->memory[3] + GUARD, FILL, (size_t)r->sizes.metadata);
    codec->scales_given = true;
}

static inline void room_copy_scales(const room *from, room *to) {
    memcpy(to->memory[1], from->memory[1], (size_t)from->sizes.scales + 2 * GUARD);
    memcpy(to->memory[2], from->memory[2], (size_t)from->sizes.zeros + 2 * GUARD);
}

/* ---- the definition ---- */

typedef struct shape {
    uint64_t unit_rows, unit_cols, across, units;
} shape;

static inline shape shape_of(const cen_codec *c, uint64_t rows, uint64_t cols) {
    shape s = {rows, cols, 1, 1};
    switch (c->granularity) {
    case CEN_CODEC_ROW:
        s.unit_rows = 1;
        break;
    case CEN_CODEC_COLUMN:
        s.unit_cols = 1;
        break;
    case CEN_CODEC_GROUP:
        s.unit_rows = 1, s.unit_cols = c->group;
        break;
    case CEN_CODEC_BLOCK:
        s.unit_rows = c->block_rows, s.unit_cols = c->block_cols;
        break;
    default:
        break;
    }
    s.across = (cols + s.unit_cols - 1) / s.unit_cols;
    s.units = (rows + s.unit_rows - 1) / s.unit_rows * s.across;
    return s;
}

static inline bool is_int(const cen_codec *c) {
    return cen_codec_format_dtype(c->format) == CEN_INT8 ||
           cen_codec_format_dtype(c->format) == CEN_INT4;
}

static inline bool is_sparse(const cen_codec *c) {
    return c->format == CEN_CODEC_SPARSE_FP16 || c->format == CEN_CODEC_SPARSE_BF16 ||
           c->format == CEN_CODEC_SPARSE_INT8;
}

static inline void reference_scale(const cen_codec *c, const sample *m, uint64_t unit,
                                   const shape *s, float *scale, int8_t *zero) {
    float lo = 0, hi = 0, amax = 0;
    uint64_t top = unit / s->across * s->unit_rows, left = unit % s->across * s->unit_cols;
    for (uint64_t i = top; i < top + s->unit_rows && i < m->matrix.rows; i++) {
        for (uint64_t j = left; j < left + s->unit_cols && j < m->matrix.cols; j++) {
            float x = m->x[i * m->matrix.cols + j];
            if (isfinite(x)) {
                lo = fminf(lo, x);
                hi = fmaxf(hi, x);
                amax = fmaxf(amax, fabsf(x));
            }
        }
    }
    cen_dtype type = cen_codec_format_dtype(c->format);
    if (c->asymmetric) {
        float steps = type == CEN_INT8 ? 255 : 15, high = hi / steps, low = lo / steps;
        *scale = fmaxf(high - low, 0x1p-126f);
        float inverse = 1 / *scale, place = lo * inverse;
        *zero = (int8_t)(-(type == CEN_INT8 ? 128 : 8) - lrintf(place));
    } else {
        float most = type == CEN_INT8       ? 127
                     : type == CEN_INT4     ? 7
                     : type == CEN_FP8_E4M3 ? 448
                                            : 57344;
        *scale = fmaxf(amax / most, 0x1p-126f);
        *zero = 0;
    }
}

/* The code of x, and what it decodes to. */
static inline uint16_t reference_code(const cen_codec *c, float x, float scale, int zero,
                                      float *back) {
    cen_dtype type = cen_codec_format_dtype(c->format);
    float inverse = 1 / scale, t = c->granularity ? x * inverse : x;
    if (is_int(c)) {
        int low = c->asymmetric ? type == CEN_INT8 ? -128 : -8 : type == CEN_INT8 ? -127 : -7;
        int high = type == CEN_INT8 ? 127 : 7, q = zero;
        if (isinf(t)) {
            q = t > 0 ? high : low;
        } else if (!isnan(t)) {
            q = (int)lrintf(t) + zero;
            q = q > high ? high : q < low ? low : q;
        }
        double y = (double)(q - zero) * (double)scale;
        *back = fabs(y) > 0x1.FFFFFEp127 ? (float)copysign(0x1.FFFFFEp127, y) : (float)y;
        return (uint16_t)(q & (type == CEN_INT8 ? 0xFF : 0xF));
    }
    cen_codec plain = {.format = type == CEN_FP8_E4M3   ? CEN_CODEC_FP8_E4M3
                                 : type == CEN_FP8_E5M2 ? CEN_CODEC_FP8_E5M2
                                 : type == CEN_FP16     ? CEN_CODEC_FP16
                                                        : CEN_CODEC_BF16,
                       .overflow = c->overflow};
    uint16_t code = 0;
    float value;
    cen_codec_parts parts = {.values = ADDR(&code), .bytes.values = 2};
    cen_matrix in = {ADDR(&t), 1, 1, 1, CEN_FP32}, out = {ADDR(&value), 1, 1, 1, CEN_FP32};
    assert_int_equal(cen_codec_encode(&plain, &in, &parts, NULL, NULL), CEN_OK);
    assert_int_equal(cen_codec_decode(&plain, &parts, &out), CEN_OK);
    *back = value;
    if (c->granularity && isfinite(value)) {
        double y = (double)value * (double)scale;
        *back = fabs(y) > 0x1.FFFFFEp127 ? (float)copysign(0x1.FFFFFEp127, y) : (float)y;
    }
    return code;
}

/* Which two of four are kept, as their nibble. */
static inline int reference_pair(const float x[4], bool *dense) {
    int nonzero = 0, first = -1, second = -1;
    for (int i = 0; i < 4; i++) {
        nonzero += !(x[i] == 0);
    }
    *dense = *dense || nonzero > 2;
    if (nonzero < 2) {
        return x[0] != 0 ? 0xC : x[1] != 0 ? 0xD : 0xE;
    }
    for (int i = 0; i < 4; i++) {
        uint32_t size = to_bits(x[i]) & 0x7FFFFFFFu;
        if (first < 0 || size > (to_bits(x[first]) & 0x7FFFFFFFu)) {
            second = first;
            first = i;
        } else if (second < 0 || size > (to_bits(x[second]) & 0x7FFFFFFFu)) {
            second = i;
        }
    }
    return first < second ? first | second << 2 : second | first << 2;
}

static inline void put_code(uint8_t *values, int bits, uint64_t at, uint16_t code) {
    if (bits == 16) {
        memcpy(values + 2 * at, &code, 2);
    } else if (bits == 8) {
        values[at] = (uint8_t)code;
    } else {
        values[at / 2] = (uint8_t)(values[at / 2] | code << at % 2 * 4);
    }
}

/* Those of each unit, 1 and 0 where there are none; those that are not given go into r's memory. */
static inline void reference_scales(const cen_codec *c, const sample *m, room *r, const shape *s,
                                    float *scales, int8_t *zeros) {
    for (uint64_t u = 0; u < s->units; u++) {
        scales[u] = 1;
        zeros[u] = 0;
        if (c->scales_given) {
            memcpy(&scales[u], r->memory[1] + GUARD + 4 * u, 4);
            zeros[u] = c->asymmetric ? (int8_t)r->memory[2][GUARD + u] : 0;
        } else if (c->granularity) {
            reference_scale(c, m, u, s, &scales[u], &zeros[u]);
            memcpy(r->memory[1] + GUARD + 4 * u, &scales[u], 4);
            if (c->asymmetric) {
                memcpy(r->memory[2] + GUARD + u, &zeros[u], 1);
            }
        }
    }
}

/* Into r's memory, whose bytes are cleared first; y gets what each element decodes to, and kept
 * whether it was not pruned. True: a group of four has more than two nonzeros. */
static inline bool reference_encode(const cen_codec *c, const sample *m, room *r, float *y,
                                    bool *kept) {
    uint64_t rows = m->matrix.rows, cols = m->matrix.cols, groups = (cols + 3) / 4;
    int bits = (int)cen_dtype_bits(cen_codec_format_dtype(c->format));
    uint8_t *values = r->memory[0] + GUARD, *metadata = r->memory[3] + GUARD;
    shape s = rows && cols ? shape_of(c, rows, cols) : (shape){1, 1, 0, 0};
    float *scales = malloc((size_t)s.units * 4 + 4);
    int8_t *zeros = malloc((size_t)s.units + 1);
    bool dense = false;
    assert_true(scales && zeros);
    reference_scales(c, m, r, &s, scales, zeros);
    memset(values, 0, (size_t)r->sizes.values);
    memset(metadata, 0xEE, (size_t)r->sizes.metadata);
    uint64_t pitch = rows ? r->sizes.values / rows : 0;
    uint64_t metadata_pitch = rows ? r->sizes.metadata / rows : 0;
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t g = 0; g < groups; g++) {
            float x[4] = {0};
            for (uint64_t k = 0; k < 4 && 4 * g + k < cols; k++) {
                x[k] = m->x[i * cols + 4 * g + k];
                y[i * cols + 4 * g + k] = 0;
                kept[i * cols + 4 * g + k] = false;
            }
            int pair = is_sparse(c) ? reference_pair(x, &dense) : 0;
            for (uint64_t k = 0; k < (is_sparse(c) ? 2 : 4); k++) {
                uint64_t place = is_sparse(c) ? (uint64_t)(pair >> 2 * k & 3) : k;
                uint64_t j = 4 * g + place, at = is_sparse(c) ? 2 * g + k : j;
                if (j >= cols && !is_sparse(c)) {
                    break;
                }
                uint64_t u = i / s.unit_rows * s.across + j / s.unit_cols;
                float back;
                uint16_t code = reference_code(c, x[place], j < cols ? scales[u] : 1,
                                               j < cols ? zeros[u] : 0, &back);
                put_code(values + i * pitch, bits, at, code);
                if (j < cols) {
                    y[i * cols + j] = back;
                    kept[i * cols + j] = true;
                }
            }
            if (is_sparse(c)) {
                uint8_t *byte = metadata + i * metadata_pitch + g / 2;
                *byte = (uint8_t)(g % 2 ? (*byte & 0x0F) | pair << 4 : (*byte & 0xF0) | pair);
            }
        }
    }
    free(scales);
    free(zeros);
    return dense;
}

/* ---- codecs to try ---- */

static const cen_codec all_codecs[] = {
    {.format = CEN_CODEC_FP16},
    {.format = CEN_CODEC_BF16, .overflow = CEN_CODEC_SATURATE},
    {.format = CEN_CODEC_FP8_E4M3, .overflow = CEN_CODEC_NONFINITE},
    {.format = CEN_CODEC_FP8_E5M2},
    {.format = CEN_CODEC_FP8_E4M3, .granularity = CEN_CODEC_TENSOR},
    {.format = CEN_CODEC_FP8_E4M3, .granularity = CEN_CODEC_ROW, .overflow = CEN_CODEC_NONFINITE},
    {.format = CEN_CODEC_FP8_E5M2,
     .granularity = CEN_CODEC_BLOCK,
     .block_rows = 3,
     .block_cols = 50,
     .overflow = CEN_CODEC_NONFINITE},
    {.format = CEN_CODEC_FP8_E4M3, .granularity = CEN_CODEC_GROUP, .group = 128},
    {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR},
    {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR, .asymmetric = true},
    {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW},
    {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW, .asymmetric = true},
    {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_COLUMN},
    {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_COLUMN, .asymmetric = true},
    {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_GROUP, .group = 32},
    {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_BLOCK, .block_rows = 4, .block_cols = 128},
    {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_TENSOR},
    {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_ROW, .asymmetric = true},
    {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_GROUP, .group = 32},
    {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_GROUP, .group = 64, .asymmetric = true},
    {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_GROUP, .group = 128},
    {.format = CEN_CODEC_INT4,
     .granularity = CEN_CODEC_BLOCK,
     .block_rows = 2,
     .block_cols = 2000,
     .asymmetric = true},
    {.format = CEN_CODEC_SPARSE_FP16},
    {.format = CEN_CODEC_SPARSE_BF16},
    {.format = CEN_CODEC_SPARSE_INT8, .granularity = CEN_CODEC_ROW},
    {.format = CEN_CODEC_SPARSE_INT8, .granularity = CEN_CODEC_TENSOR, .asymmetric = true},
    {.format = CEN_CODEC_SPARSE_INT8, .granularity = CEN_CODEC_COLUMN},
    {.format = CEN_CODEC_SPARSE_INT8,
     .granularity = CEN_CODEC_GROUP,
     .group = 32,
     .asymmetric = true},
};
enum { CODECS = sizeof all_codecs / sizeof *all_codecs };

static inline const char *codec_text(const cen_codec *c) {
    static char text[128];
    snprintf(text, sizeof text, "%s, granularity %d of %u or %ux%u%s%s",
             cen_codec_format_name(c->format), (int)c->granularity, c->group, c->block_rows,
             c->block_cols, c->asymmetric ? ", asymmetric" : "",
             c->scales_given ? ", scales given" : "");
    return text;
}

#endif
