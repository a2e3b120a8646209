/* Descriptors and arguments that are refused, sizes, reports, 2:4 by hand, and budgets. */
#include "tests/unit/codec/reference.h"

#include "cenote/log.h"

static char warned[1024];
static int warnings;

static void sink(void *arg, cen_log_level level, const char *message) {
    if (level == CEN_LOG_WARN) {
        snprintf(warned, sizeof warned, "%s", message);
        warnings++;
    }
}

static void refused(cen_status got, cen_status want, const char *why) {
    const char *said = cen_log_last_error();
    assert_int_equal(got, want);
    if (!strstr(said, why)) {
        fail_msg("said '%s', which lacks '%s'", said, why);
    }
}

static void bad_descriptors_are_refused(void **state) {
    static const struct {
        cen_codec codec;
        const char *why;
    } cases[] = {
        {{0}, "codec.format is 0"},
        {{.format = 99}, "codec.format is 99"},
        {{.format = CEN_CODEC_INT8}, "codec.granularity is unscaled; int8 has scales"},
        {{.format = CEN_CODEC_BF16, .granularity = CEN_CODEC_ROW}, "bf16 has no scales"},
        {{.format = CEN_CODEC_INT8, .granularity = 9}, "codec.granularity is 9"},
        {{.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_GROUP, .group = 48},
         "codec.group is 48; with granularity group it is 32, 64 or 128"},
        {{.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW, .group = 32}, "codec.group"},
        {{.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_BLOCK, .block_rows = 4},
         "block_cols are 4 and 0"},
        {{.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW, .block_cols = 4},
         "block_cols are 0 and 4"},
        {{.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW, .overflow = CEN_CODEC_NONFINITE},
         "codec.overflow asks for"},
        {{.format = CEN_CODEC_FP16, .overflow = 7}, "codec.overflow is 7"},
        {{.format = CEN_CODEC_LOSSLESS_BF16, .overflow = CEN_CODEC_SATURATE}, "nothing overflows"},
        {{.format = CEN_CODEC_FP8_E4M3, .asymmetric = true}, "codec.asymmetric"},
        {{.format = CEN_CODEC_FP16, .refuse_dense = true}, "codec.refuse_dense"},
        {{.format = CEN_CODEC_FP8_E4M3, .scales_given = true}, "codec.scales_given is set"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused(cen_codec_check(&cases[i].codec), CEN_ERR_INVALID, cases[i].why);
    }
    refused(cen_codec_check(NULL), CEN_ERR_INVALID, "codec is NULL");
    for (int i = 0; i < CODECS; i++) {
        assert_int_equal(cen_codec_check(&all_codecs[i]), CEN_OK);
        cen_codec_format format;
        assert_int_equal(
            cen_codec_format_find(cen_codec_format_name(all_codecs[i].format), &format), CEN_OK);
        assert_int_equal(format, all_codecs[i].format);
    }
    assert_string_equal(cen_codec_format_name((cen_codec_format)77), "?");
    assert_int_equal(cen_codec_format_dtype((cen_codec_format)77), 0);
    cen_codec_format format;
    refused(cen_codec_format_find("int9", &format), CEN_ERR_NOT_FOUND,
            "'int9'; names are fp16 bf16 fp8_e4m3");
}

static void sizes_are_exact(void **state) {
    static const struct {
        cen_codec codec;
        uint64_t rows, cols;
        cen_codec_sizes sizes;
    } cases[] = {
        {{.format = CEN_CODEC_BF16}, 3, 5, {30, 0, 0, 0}},
        {{.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_GROUP, .group = 32},
         3,
         65,
         {99, 36, 0, 0}},
        {{.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_COLUMN, .asymmetric = true},
         3,
         5,
         {15, 20, 5, 0}},
        {{.format = CEN_CODEC_INT8,
          .granularity = CEN_CODEC_BLOCK,
          .block_rows = 2,
          .block_cols = 4},
         3,
         5,
         {15, 16, 0, 0}},
        {{.format = CEN_CODEC_SPARSE_BF16}, 2, 64, {128, 0, 0, 16}},
        {{.format = CEN_CODEC_SPARSE_BF16}, 2, 17, {40, 0, 0, 8}},
        {{.format = CEN_CODEC_SPARSE_INT8, .granularity = CEN_CODEC_TENSOR}, 2, 33, {36, 4, 0, 16}},
        {{.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW}, 9, 0, {0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cen_codec_sizes got;
        assert_int_equal(cen_codec_bound(&cases[i].codec, cases[i].rows, cases[i].cols, &got),
                         CEN_OK);
        assert_memory_equal(&got, &cases[i].sizes, sizeof got);
    }
    cen_codec_sizes got;
    refused(cen_codec_bound(&cases[0].codec, (uint64_t)1 << 40, (uint64_t)1 << 40, &got),
            CEN_ERR_INVALID, "have no addresses");
    refused(cen_codec_bound(&cases[0].codec, 1, UINT64_MAX, &got), CEN_ERR_INVALID,
            "have no addresses");
    refused(cen_codec_bound(&cases[0].codec, 1, 1, NULL), CEN_ERR_INVALID, "sizes is NULL");
}

static void bad_arguments_are_refused(void **state) {
    static float x[64];
    cen_codec c = {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW};
    room r = room_make(&c, 4, 16);
    cen_matrix m = {ADDR(x), 4, 16, 16, CEN_FP32}, other = m;
    other.dtype = CEN_FP64;
    refused(cen_codec_encode(&c, &other, &r.parts, NULL, NULL), CEN_ERR_INVALID,
            "source is of fp64");
    refused(cen_codec_encode(&c, NULL, &r.parts, NULL, NULL), CEN_ERR_INVALID, "source is NULL");
    refused(cen_codec_encode(&c, &m, NULL, NULL, NULL), CEN_ERR_INVALID, "parts is NULL");
    cen_codec_parts parts = r.parts;
    parts.bytes.scales--;
    refused(cen_codec_encode(&c, &m, &parts, NULL, NULL), CEN_ERR_INVALID,
            "parts.scales has 15 bytes; 16 are needed");
    refused(cen_codec_decode(&c, &parts, &m), CEN_ERR_TRUNCATED, "parts.scales has 15 bytes");
    parts = r.parts;
    parts.scales = 0;
    refused(cen_codec_encode(&c, &m, &parts, NULL, NULL), CEN_ERR_INVALID, "parts.scales has no");
    parts = r.parts;
    parts.values = ADDR(x) + 8;
    refused(cen_codec_encode(&c, &m, &parts, NULL, NULL), CEN_ERR_INVALID, "overlap");
    parts.values = parts.scales + 1;
    refused(cen_codec_encode(&c, &m, &parts, NULL, NULL), CEN_ERR_INVALID,
            "parts.values and parts.scales overlap");
    c = (cen_codec){.format = CEN_CODEC_LOSSLESS_BF16};
    refused(cen_codec_encode(&c, &m, &r.parts, NULL, NULL), CEN_ERR_INVALID, "takes bf16");
    room_free(&r);
}

/* Rows of groups whose pairs the format's definition names one by one. */
static void pairs_are_canonical(void **state) {
    static const struct {
        float x[4];
        int nibble;
        float kept[2];
    } cases[] = {
        {{1, 2, 0, 0}, 0x4, {1, 2}},
        {{1, 0, 2, 0}, 0x8, {1, 2}},
        {{0, 1, 2, 0}, 0x9, {1, 2}},
        {{1, 0, 0, 2}, 0xC, {1, 2}},
        {{0, 1, 0, 2}, 0xD, {1, 2}},
        {{0, 0, 1, 2}, 0xE, {1, 2}},
        {{0, 0, 0, 0}, 0xE, {0, 0}},
        {{0, 0, 0, 3}, 0xE, {0, 3}},
        {{0, 0, 3, 0}, 0xE, {3, 0}},
        {{0, 3, 0, 0}, 0xD, {3, 0}},
        {{3, 0, 0, 0}, 0xC, {3, 0}},
        {{1, -1, 1, 1}, 0x4, {1, -1}},
        {{1, 2, 2, -3}, 0xD, {2, -3}},
        {{1, 1, 2, 0}, 0x8, {1, 2}},
        {{2, 1, -1, 1}, 0x4, {2, 1}},
        {{1, 3, -1, 1}, 0x4, {1, 3}},
        {{0, 1, 1, 2}, 0xD, {1, 2}},
        {{1, 2, 0, -1}, 0x4, {1, 2}},
        {{4, 1, INFINITY, 9}, 0xE, {INFINITY, 9}},
    };
    cen_codec c = {.format = CEN_CODEC_SPARSE_FP16};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t kept[2];
        uint8_t metadata[2];
        float back[4];
        cen_codec_parts parts = {.values = ADDR(kept),
                                 .metadata = ADDR(metadata),
                                 .bytes = {.values = 4, .metadata = 2}};
        cen_matrix m = {ADDR(cases[i].x), 1, 4, 4, CEN_FP32}, to = {ADDR(back), 1, 4, 4, CEN_FP32};
        assert_int_equal(cen_codec_encode(&c, &m, &parts, NULL, NULL), CEN_OK);
        assert_int_equal(metadata[0], 0xE0 | cases[i].nibble);
        assert_int_equal(metadata[1], 0xEE);
        assert_int_equal(cen_codec_decode(&c, &parts, &to), CEN_OK);
        assert_true(back[cases[i].nibble & 3] == cases[i].kept[0]);
        assert_true(back[cases[i].nibble >> 2] == cases[i].kept[1]);
    }
}

static void dense_ones_are_refused_on_demand(void **state) {
    static float x[2][8] = {{1, 2, 0, 0, 0, 0, 3, 4}, {0, 0, 0, 0, 1, 2, 3, 0}};
    cen_codec c = {.format = CEN_CODEC_SPARSE_BF16, .refuse_dense = true};
    room r = room_make(&c, 2, 8);
    cen_matrix m = {ADDR(x), 2, 8, 8, CEN_FP32}, first = {ADDR(x), 1, 8, 8, CEN_FP32};
    assert_int_equal(cen_codec_encode(&c, &first, &r.parts, NULL, NULL), CEN_OK);
    r.parts.bytes = r.sizes;
    refused(cen_codec_encode(&c, &m, &r.parts, NULL, NULL), CEN_ERR_INVALID,
            "row 1 of source has more than two");
    r.memory[3][GUARD] = 0x45; /* 1, 1 */
    refused(cen_codec_decode(&c, &r.parts, &m), CEN_ERR_FORMAT, "row 0 has indices that do not");
    room_free(&r);
}

static void given_scales_are_checked(void **state) {
    const float bad[] = {0, -1, NAN, INFINITY, 0x1p-127f};
    sample m = sample_make(RANDOM, CEN_FP32, 3, 64, 64, 7);
    cen_codec c = {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_ROW, .asymmetric = true};
    room r = room_make(&c, 3, 64);
    room_give(&c, &m, &r);
    float *scale = (float *)(r.memory[1] + GUARD) + 2, kept = *scale;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        *scale = bad[i];
        refused(cen_codec_encode(&c, &m.matrix, &r.parts, NULL, NULL), CEN_ERR_INVALID,
                "parts.scales: that of unit 2 is");
        assert_int_equal(r.memory[0][GUARD], FILL);
    }
    *scale = kept;
    r.memory[2][GUARD + 1] = 8;
    refused(cen_codec_encode(&c, &m.matrix, &r.parts, NULL, NULL), CEN_ERR_INVALID,
            "parts.zeros: that of unit 1 is 8; a given one is -8 to 7");
    room_free(&r);
    sample_free(&m);
}

/* A threshold of a hundredth of the largest element, as calibration finds: all beyond is cut. */
static void given_scales_clip(void **state) {
    float x[256];
    int8_t q[256];
    for (int i = 0; i < 256; i++) {
        x[i] = (float)(i % 100) * 0.01f;
    }
    x[7] = 100, x[9] = -100;
    cen_codec c = {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR, .scales_given = true};
    float scale = 1.0f / 127;
    cen_matrix m = {ADDR(x), 1, 256, 256, CEN_FP32};
    cen_codec_parts parts = {ADDR(q), ADDR(&scale), 0, 0, {256, 4, 0, 0}};
    cen_codec_sums sums;
    assert_int_equal(cen_codec_encode(&c, &m, &parts, NULL, &sums), CEN_OK);
    assert_true(scale == 1.0f / 127);
    assert_int_equal(q[7], 127);
    assert_int_equal(q[9], -127);
    assert_int_equal(q[50], 64); /* 63.5, to even */
    assert_int_equal(sums.saturated, 2);
    assert_int_equal(sums.overflowed, 0);
}

static void given_scales_end_with_a_wider_format(void **state) {
    sample m = sample_make(RANDOM, CEN_FP32, 16, 256, 256, 5);
    cen_codec c = {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_ROW}, used, wider;
    cen_codec_budget some = {.max_saturated = 0.001};
    cen_codec_sizes sizes;
    assert_int_equal(cen_codec_budget_bound(&c, &some, CEN_FP32, 16, 256, &sizes), CEN_OK);
    room r = room_make(&(cen_codec){.format = CEN_CODEC_BF16}, 16, 256);
    float scales[16], own[16];
    for (int i = 0; i < 16; i++) {
        scales[i] = 1e-6f;
    }
    cen_codec_parts parts = {r.parts.values, ADDR(scales), 0, 0, sizes};
    c.scales_given = true;
    assert_int_equal(cen_codec_wider(&c, CEN_FP32, &wider), CEN_OK);
    assert_false(wider.scales_given);
    assert_int_equal(cen_codec_encode_within(&c, &some, &m.matrix, &parts, NULL, NULL, &used),
                     CEN_OK);
    assert_int_equal(used.format, CEN_CODEC_INT8);
    assert_false(used.scales_given);
    parts.scales = ADDR(own);
    parts.bytes = sizes;
    assert_int_equal(cen_codec_encode(&used, &m.matrix, &parts, NULL, NULL), CEN_OK);
    assert_memory_equal(scales, own, sizeof own);
    room_free(&r);
    sample_free(&m);
}

static void reports_follow_from_sums(void **state) {
    cen_codec_sums s = {.count = 12,
                        .nan = 1,
                        .infinite = 1,
                        .largest = 2,
                        .max_error = 0.5,
                        .error = 2,
                        .error2 = 1,
                        .x2 = 100,
                        .y2 = 81,
                        .xy = 90};
    cen_codec_report r;
    cen_codec_report_of(&s, &r);
    assert_true(r.mean_error == 0.2 && r.mse == 0.1 && r.max_error == 0.5 && r.largest == 2);
    assert_true(fabs(r.sqnr_db - 20) < 1e-12 && r.cosine == 1);
    s.overflowed = 1;
    cen_codec_report_of(&s, &r);
    assert_true(isinf(r.mse) && isinf(r.max_error) && r.sqnr_db < 0 && r.cosine == 0);
    s = (cen_codec_sums){.count = 3};
    cen_codec_report_of(&s, &r);
    assert_true(r.mse == 0 && isinf(r.sqnr_db) && r.sqnr_db > 0 && r.cosine == 1);
    s = (cen_codec_sums){.count = 3, .x2 = 1, .error2 = 1};
    cen_codec_report_of(&s, &r);
    assert_true(r.cosine == 0 && r.sqnr_db == 0);
}

static cen_status within(const cen_codec *c, const cen_codec_budget *budget, const sample *m,
                         cen_codec *used, cen_codec_parts *out) {
    cen_codec_sizes sizes;
    cen_codec_sums total;
    assert_int_equal(
        cen_codec_budget_bound(c, budget, m->matrix.dtype, m->matrix.rows, m->matrix.cols, &sizes),
        CEN_OK);
    uint8_t *memory = malloc((size_t)(sizes.values + sizes.scales + sizes.zeros + sizes.metadata));
    assert_non_null(memory);
    cen_codec_parts parts = {ADDR(memory), ADDR(memory) + sizes.values,
                             ADDR(memory) + sizes.values + sizes.scales,
                             ADDR(memory) + sizes.values + sizes.scales + sizes.zeros, sizes};
    warnings = 0;
    cen_status status = cen_codec_encode_within(c, budget, &m->matrix, &parts, NULL, &total, used);
    if (!status) {
        float *back = malloc((size_t)(m->matrix.rows * m->matrix.cols) * 4);
        assert_non_null(back);
        cen_matrix to = {ADDR(back), m->matrix.rows, m->matrix.cols, m->matrix.cols, CEN_FP32};
        assert_int_equal(cen_codec_decode(used, &parts, &to), CEN_OK);
        free(back);
    }
    *out = parts;
    free(memory);
    return status;
}

static void budgets_fall_back_loudly_or_refuse(void **state) {
    sample m = sample_make(RANDOM, CEN_FP32, 16, 256, 256, 5);
    cen_codec c = {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_GROUP, .group = 32}, used;
    cen_codec_budget none = {0}, some = {.min_sqnr_db = 30}, much = {.min_sqnr_db = 50},
                     all = {.min_sqnr_db = 90};
    cen_codec_parts parts;
    cen_log_set(sink, NULL, CEN_LOG_WARN);
    assert_int_equal(within(&c, &none, &m, &used, &parts), CEN_OK);
    assert_int_equal(used.format, CEN_CODEC_INT4);
    assert_int_equal(warnings, 0);
    assert_int_equal(within(&c, &some, &m, &used, &parts), CEN_OK);
    assert_int_equal(used.format, CEN_CODEC_INT8);
    assert_int_equal(used.group, 32);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warned, "int4 is over its budget: the SQNR in dB is"));
    assert_non_null(strstr(warned, "encoded as int8"));
    assert_int_equal(parts.bytes.values, 16 * 256);
    assert_int_equal(within(&c, &much, &m, &used, &parts), CEN_OK);
    assert_int_equal(used.format, CEN_CODEC_BF16);
    assert_int_equal(warnings, 2);
    assert_int_equal(parts.bytes.scales, 0);
    refused(within(&c, &all, &m, &used, &parts), CEN_ERR_LIMIT, "bf16 is over its budget");
    some.refuse = true;
    refused(within(&c, &some, &m, &used, &parts), CEN_ERR_LIMIT, "int4 is over its budget");
    cen_codec_budget error = {.max_error = 1e-4}, cosine = {.min_cosine = 0.99999999},
                     under = {.max_underflowed = 0.01};
    assert_int_equal(within(&c, &error, &m, &used, &parts), CEN_ERR_LIMIT);
    assert_int_equal(within(&c, &cosine, &m, &used, &parts), CEN_ERR_LIMIT);
    assert_int_equal(within(&c, &under, &m, &used, &parts), CEN_OK);
    assert_int_not_equal(used.format, CEN_CODEC_INT4);
    cen_log_set(NULL, NULL, CEN_LOG_WARN);
    sample_free(&m);
}

static void what_is_not_finite_can_be_refused(void **state) {
    sample m = sample_make(SPECIAL, CEN_FP32, 16, 256, 256, 5);
    sample big = sample_make(HUGE_ONES, CEN_FP32, 4, 64, 64, 5);
    cen_codec c = {.format = CEN_CODEC_FP8_E4M3, .overflow = CEN_CODEC_NONFINITE}, used;
    cen_codec_budget finite = {.finite_only = true}, saturated = {.max_saturated = 0.01};
    cen_codec_parts parts;
    refused(within(&c, &finite, &m, &used, &parts), CEN_ERR_LIMIT, "NaN and");
    assert_null(strstr(cen_status_text(CEN_ERR_LIMIT), "system")); /* it is the caller's limit */
    assert_int_equal(within(&c, &finite, &big, &used, &parts), CEN_OK);
    assert_int_equal(used.format, CEN_CODEC_BF16);
    c.overflow = CEN_CODEC_SATURATE;
    assert_int_equal(within(&c, &saturated, &big, &used, &parts), CEN_OK);
    assert_int_equal(used.format, CEN_CODEC_BF16);
    sample_free(&m);
    sample_free(&big);
}

static void bad_budgets_are_refused(void **state) {
    static float x[4];
    cen_codec c = {.format = CEN_CODEC_BF16}, wider;
    cen_codec_sizes sizes;
    cen_codec_budget bad = {.max_error = -1}, nan = {.min_cosine = NAN}, fine = {0};
    refused(cen_codec_budget_bound(&c, &bad, CEN_FP32, 1, 1, &sizes), CEN_ERR_INVALID,
            "budget.max_error is -1; it is from 0 to inf");
    refused(cen_codec_budget_bound(&c, &nan, CEN_FP32, 1, 1, &sizes), CEN_ERR_INVALID,
            "budget.min_cosine");
    refused(cen_codec_budget_bound(&c, NULL, CEN_FP32, 1, 1, &sizes), CEN_ERR_INVALID,
            "budget is NULL");
    refused(cen_codec_wider(&c, CEN_FP32, &wider), CEN_ERR_NOT_FOUND, "wider than bf16");
    c = (cen_codec){.format = CEN_CODEC_SPARSE_INT8, .granularity = CEN_CODEC_ROW};
    cen_matrix m = {ADDR(x), 1, 4, 4, CEN_FP32};
    room r = room_make(&c, 1, 4);
    refused(cen_codec_encode_within(&c, &fine, &m, &r.parts, NULL, NULL, &wider), CEN_ERR_INVALID,
            "parts.values has room for 2 bytes; with what the budget may fall back to, 8 are");
    c = (cen_codec){.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW};
    r.parts.bytes.values = 8;
    r.parts.bytes.scales = 3;
    refused(cen_codec_encode_within(&c, &fine, &m, &r.parts, NULL, NULL, &wider), CEN_ERR_INVALID,
            "parts.scales has room for 3 bytes; with what the budget may fall back to, 4 are");
    c = (cen_codec){.format = CEN_CODEC_SPARSE_INT8, .granularity = CEN_CODEC_ROW};
    assert_int_equal(cen_codec_wider(&c, CEN_FP16, &wider), CEN_OK);
    assert_int_equal(wider.format, CEN_CODEC_INT8);
    assert_int_equal(cen_codec_wider(&wider, CEN_FP16, &wider), CEN_OK);
    assert_int_equal(wider.format, CEN_CODEC_FP16);
    room_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_descriptors_are_refused),
        cmocka_unit_test(sizes_are_exact),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(pairs_are_canonical),
        cmocka_unit_test(dense_ones_are_refused_on_demand),
        cmocka_unit_test(given_scales_are_checked),
        cmocka_unit_test(given_scales_clip),
        cmocka_unit_test(given_scales_end_with_a_wider_format),
        cmocka_unit_test(reports_follow_from_sums),
        cmocka_unit_test(budgets_fall_back_loudly_or_refuse),
        cmocka_unit_test(what_is_not_finite_can_be_refused),
        cmocka_unit_test(bad_budgets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
