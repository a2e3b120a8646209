/* Whole matrices by the loops for any processor and by those of this one: the same bytes, the same
 * sums to the last bit, and the same matrix back, whether pieces are taken straight or in steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/codec.h"
#include "kernels/codec_tile.h"
#include "tests/random.h"

enum { MOST_ROWS = 5, MOST_COLS = 2200, STRIDE = MOST_COLS + 3, ROOM = MOST_ROWS * STRIDE * 4 };

typedef enum data { ORDINARY, TINY, WILD, SPARSE, DATA } data;

static uint8_t source[ROOM], values[2][ROOM], metadata[2][ROOM], back[2][ROOM];
static float scales[2][MOST_ROWS * MOST_COLS];
static int8_t zeros[2][MOST_ROWS * MOST_COLS];
static uint64_t seed = 1;

static uint32_t next(void) {
    return (uint32_t)(random_next(&seed) >> 24);
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Bits of an FP32, whose upper half is a BF16 and serves as an FP16. */
static uint32_t element(data d) {
    float value = ((float)(int32_t)(next() << 8) * 0x1p-31f + (float)(next() & 0xFFFF) * 0x1p-15f);
    switch (d) {
    case ORDINARY:
        return bits_of(value);
    case TINY:
        return bits_of(value) & 0x807FFFFFu;
    case SPARSE:
        return next() % 3 ? next() & 0x80000000u : bits_of(value);
    default:
        return next() % 16 ? bits_of(value) : next();
    }
}

static void fill(cen_dtype dtype, data d) {
    for (size_t i = 0; i < ROOM / 4; i++) {
        uint32_t bits = element(d);
        if (dtype == CEN_FP32) {
            memcpy(source + 4 * i, &bits, 4);
        } else {
            uint16_t half = (uint16_t)(bits >> 16);
            memcpy(source + 2 * i, &half, 2);
        }
    }
}

static void make_job(const cen_codec *codec, cen_matrix *m, int i, bool encode,
                     ceni_codec_job *job) {
    cen_codec_parts p = {.values = (uintptr_t)values[i],
                         .scales = (uintptr_t)scales[i],
                         .zeros = (uintptr_t)zeros[i],
                         .metadata = (uintptr_t)metadata[i]};
    m->data = (uintptr_t)(encode ? source : back[i]);
    assert_int_equal(cen_codec_bound(codec, m->rows, m->cols, &p.bytes), CEN_OK);
    assert_int_equal(ceni_codec_job_make(codec, m, &p, encode, job), CEN_OK);
    if (encode && codec->granularity && !codec->scales_given) {
        job->flags |= CENI_CODEC_OWN_SCALES;
    }
}

static bool same(const void *a, const void *b, size_t bytes) {
    return !memcmp(a, b, bytes);
}

static void both(const cen_codec *codec, cen_dtype dtype, uint64_t rows, uint64_t cols) {
    const ceni_codec_loops *const loops[2] = {&ceni_codec_loops_any, ceni_codec_loops_here()};
    cen_matrix m = {0, rows, cols, STRIDE, dtype};
    ceni_codec_sums row_sums[2][MOST_ROWS], total[2];
    for (int i = 0; i < 2; i++) {
        ceni_codec_job job;
        uint64_t row;
        make_job(codec, &m, i, true, &job);
        memset(&total[i], 0, sizeof total[i]);
        assert_true(ceni_codec_encode_with(loops[i], &job, row_sums[i], &total[i], &row));
        memset(values[i], 0, sizeof values[i]);
        assert_true(ceni_codec_encode_with(loops[i], &job, NULL, NULL, &row));
        make_job(codec, &m, i, false, &job);
        assert_true(ceni_codec_decode_with(loops[i], &job, true, &row));
    }
    if (!same(values[0], values[1], ROOM) || !same(metadata[0], metadata[1], ROOM) ||
        !same(scales[0], scales[1], sizeof scales[0]) ||
        !same(zeros[0], zeros[1], sizeof zeros[0]) || !same(back[0], back[1], ROOM) ||
        !same(row_sums[0], row_sums[1], rows * sizeof **row_sums) ||
        !same(&total[0], &total[1], sizeof *total)) {
        fail_msg("%s by %d of %u, asymmetric %d, overflow %d, given %d, of %s, %llu x %llu",
                 cen_codec_format_name(codec->format), codec->granularity,
                 codec->granularity == CEN_CODEC_BLOCK ? codec->block_cols : codec->group,
                 codec->asymmetric, codec->overflow, codec->scales_given, cen_dtype_name(dtype),
                 (unsigned long long)rows, (unsigned long long)cols);
    }
}

static void shapes(const cen_codec *codec) {
    static const uint64_t cols[] = {1, 32, 100, 1000, 1025, 2200};
    static const cen_dtype types[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (data d = ORDINARY; d < DATA; d++) {
            fill(types[t], d);
            for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
                both(codec, types[t], 1 + c % MOST_ROWS, cols[c]);
            }
        }
    }
}

static void units(cen_codec codec) {
    static const uint32_t blocks[] = {3, 32, 96, 256, 1536};
    for (cen_codec_granularity g = CEN_CODEC_TENSOR; g <= CEN_CODEC_COLUMN; g++) {
        codec.granularity = g;
        shapes(&codec);
    }
    codec.granularity = CEN_CODEC_GROUP;
    for (codec.group = 32; codec.group <= 128; codec.group *= 2) {
        shapes(&codec);
    }
    codec.granularity = CEN_CODEC_BLOCK;
    codec.group = 0;
    codec.block_rows = 2;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        codec.block_cols = blocks[i];
        shapes(&codec);
    }
}

static void without_scales(void **state) {
    static const cen_codec_format formats[] = {CEN_CODEC_FP16,        CEN_CODEC_BF16,
                                               CEN_CODEC_FP8_E4M3,    CEN_CODEC_FP8_E5M2,
                                               CEN_CODEC_SPARSE_FP16, CEN_CODEC_SPARSE_BF16};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        for (cen_codec_overflow o = CEN_CODEC_DEFAULT; o <= CEN_CODEC_NONFINITE; o++) {
            shapes(&(cen_codec){.format = formats[i], .overflow = o});
        }
    }
}

static void with_scales(void **state) {
    units((cen_codec){.format = CEN_CODEC_FP8_E4M3});
    units((cen_codec){.format = CEN_CODEC_FP8_E5M2, .overflow = CEN_CODEC_NONFINITE});
    units((cen_codec){.format = CEN_CODEC_INT8});
    units((cen_codec){.format = CEN_CODEC_INT8, .asymmetric = true});
    units((cen_codec){.format = CEN_CODEC_INT4});
    units((cen_codec){.format = CEN_CODEC_INT4, .asymmetric = true});
    units((cen_codec){.format = CEN_CODEC_SPARSE_INT8});
    units((cen_codec){.format = CEN_CODEC_SPARSE_INT8, .asymmetric = true});
}

/* Some so small that what is cut is infinite, and, as only a device takes them, infinite. */
static void with_given_scales(void **state) {
    for (size_t i = 0; i < MOST_ROWS * MOST_COLS; i++) {
        uint32_t bits = next() % 50 ? bits_of((float)(1 + next() % 100) * 0x1p-9f)
                                    : (next() % 2 ? 0x7F800000u : 0x00800000u);
        memcpy(&scales[0][i], &bits, sizeof bits);
        zeros[0][i] = (int8_t)(next() % 16 - 8);
    }
    memcpy(scales[1], scales[0], sizeof scales[0]);
    memcpy(zeros[1], zeros[0], sizeof zeros[0]);
    units((cen_codec){.format = CEN_CODEC_FP8_E4M3, .scales_given = true});
    units((cen_codec){
        .format = CEN_CODEC_FP8_E5M2, .overflow = CEN_CODEC_NONFINITE, .scales_given = true});
    units((cen_codec){.format = CEN_CODEC_INT8, .scales_given = true});
    units((cen_codec){.format = CEN_CODEC_INT4, .scales_given = true, .asymmetric = true});
    units((cen_codec){.format = CEN_CODEC_SPARSE_INT8, .scales_given = true});
}

/* ---- rows that are told of ---- */

enum { BAD_ROWS = 3, BAD_COLS = 196, BAD = 1 };

static void put_one(cen_dtype dtype, uint64_t col, float value) {
    uint64_t at = BAD * STRIDE + col;
    uint32_t bits = bits_of(value);
    if (dtype == CEN_FP32) {
        memcpy(source + 4 * at, &bits, 4);
    } else {
        memcpy(source + 2 * at, (uint8_t *)&bits + 2, 2);
    }
}

/* Three nonzeros in the group of `col`. */
static void a_dense_row_is_told(const ceni_codec_loops *loops, cen_codec codec, cen_matrix *m,
                                uint64_t col) {
    ceni_codec_job job;
    uint64_t row = BAD_ROWS;
    codec.refuse_dense = true;
    make_job(&codec, m, 0, true, &job);
    assert_true(ceni_codec_encode_with(loops, &job, NULL, NULL, &row));
    for (uint64_t k = 1; k < 4; k++) {
        put_one(m->dtype, col / 4 * 4 + k, 1);
    }
    assert_false(ceni_codec_encode_with(loops, &job, NULL, NULL, &row));
    assert_int_equal(row, BAD);
    for (uint64_t k = 1; k < 4; k++) {
        put_one(m->dtype, col / 4 * 4 + k, 0);
    }
    assert_true(ceni_codec_encode_with(loops, &job, NULL, NULL, &row));
}

/* A group's indices are both 1. */
static void falling_indices_are_told(const ceni_codec_loops *loops, const cen_codec *codec,
                                     cen_matrix *m, uint64_t col) {
    ceni_codec_job job;
    uint64_t row = BAD_ROWS;
    make_job(codec, m, 0, false, &job);
    uint8_t *pair = metadata[0] + BAD * job.metadata_pitch + col / 8, kept = *pair;
    assert_true(ceni_codec_decode_with(loops, &job, true, &row));
    *pair = (uint8_t)(col / 4 % 2 ? (kept & 0x0F) | 0x50 : (kept & 0xF0) | 0x05);
    assert_false(ceni_codec_decode_with(loops, &job, true, &row));
    assert_int_equal(row, BAD);
    assert_true(ceni_codec_decode_with(loops, &job, false, &row));
    *pair = kept;
}

/* Amid vectors, at their edges and in what is left behind them. */
static void bad_rows_are_told(void **state) {
    static const uint64_t cols[] = {1, 37, 130, 191, 193};
    static const cen_dtype types[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    static const cen_codec codecs[] = {
        {.format = CEN_CODEC_SPARSE_FP16},
        {.format = CEN_CODEC_SPARSE_BF16},
        {.format = CEN_CODEC_SPARSE_INT8, .granularity = CEN_CODEC_ROW}};
    const ceni_codec_loops *const loops[2] = {&ceni_codec_loops_any, ceni_codec_loops_here()};
    memset(source, 0, sizeof source);
    for (size_t i = 0; i < 2 * 3 * 3 * 5; i++) {
        cen_matrix m = {0, BAD_ROWS, BAD_COLS, STRIDE, types[i / 2 % 3]};
        a_dense_row_is_told(loops[i % 2], codecs[i / 6 % 3], &m, cols[i / 18]);
        falling_indices_are_told(loops[i % 2], &codecs[i / 6 % 3], &m, cols[i / 18]);
    }
}

int main(void) {
    if (ceni_codec_loops_here() == &ceni_codec_loops_any) {
        puts("this processor has no loops of its own");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_scales),
        cmocka_unit_test(with_scales),
        cmocka_unit_test(with_given_scales),
        cmocka_unit_test(bad_rows_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
