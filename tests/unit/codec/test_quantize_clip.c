/* Scales cut to calibrated thresholds: what one outlier does to each method, and tensor files whose
 * scales are cut to what is found on each tensor. */
#include "tensor_files.h"

#include <math.h>

#include "base/fault.h"
#include "cenote/calibrate.h"
#include "cenote/quantize.h"

#define ADDR(ptr) ((cen_addr)(uintptr_t)(ptr))

/* More than are read at a time. */
enum { ROWS = 80, COLS = 16384, OUTLIER_ROW = 5 };

/* Nearly normally distributed, and 90 in one channel. */
static float *weights(void) {
    float *x = malloc(sizeof *x * ROWS * COLS);
    uint32_t state = 12345;
    assert_non_null(x);
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++) {
            state = state * 1664525u + 1013904223u;
            sum += (double)(state >> 8) * 0x1p-24;
        }
        x[i] = (float)sum;
    }
    x[(size_t)OUTLIER_ROW * COLS + 77] = 90;
    return x;
}

static float threshold_of(const float *x, cen_threshold how, double percentile,
                          const cen_codec *codec) {
    cen_calibration *c = NULL;
    float amax;
    cen_matrix m = {ADDR(x), ROWS, COLS, COLS, CEN_FP32};
    assert_int_equal(cen_calibration_create(CEN_CHANNELS_NONE, 0, &c), CEN_OK);
    assert_int_equal(cen_calibration_add(c, &m), CEN_OK);
    assert_int_equal(cen_calibration_threshold(c, how, percentile, codec, &amax), CEN_OK);
    cen_calibration_free(c);
    return amax;
}

/* The whole tensor has one scale, and one channel the outlier: what of the others is left. */
static void one_channel_ruins_only_min_max(void **state) {
    static const char *const names[] = {"min/max", "percentile", "entropy", "squared error"};
    const cen_codec codec = {
        .format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR, .scales_given = true};
    float *x = weights();
    int8_t *q = malloc((size_t)ROWS * COLS);
    static cen_codec_sums rows[ROWS];
    assert_non_null(q);
    print_message("int8, one scale a tensor, %d channels of normally distributed weights, one of "
                  "which has a 90:\n  %-14s %9s  %15s  %11s  %3s\n",
                  ROWS, "method", "threshold", "other channels", "that one", "cut");
    for (int how = 0; how < 4; how++) {
        float amax = threshold_of(x, (cen_threshold)how, 99.999, &codec), scale = amax / 127;
        cen_matrix m = {ADDR(x), ROWS, COLS, COLS, CEN_FP32};
        cen_codec_parts parts = {ADDR(q), ADDR(&scale), 0, 0, {(uint64_t)ROWS * COLS, 4, 0, 0}};
        cen_codec_sums others = {0};
        cen_codec_report most, one;
        assert_int_equal(cen_codec_encode(&codec, &m, &parts, rows, NULL), CEN_OK);
        for (int i = 0; i < ROWS; i++) {
            if (i != OUTLIER_ROW) {
                cen_codec_sums_add(&others, &rows[i]);
            }
        }
        cen_codec_report_of(&others, &most);
        cen_codec_report_of(&rows[OUTLIER_ROW], &one);
        print_message("  %-14s %9.3f  %12.2f dB  %8.2f dB  %3d\n", names[how], (double)amax,
                      most.sqnr_db, one.sqnr_db, (int)(most.saturated + one.saturated));
        assert_true(how ? most.sqnr_db > 30 && one.saturated >= 1
                        : most.sqnr_db < 15 && !most.saturated && !one.saturated);
    }
    free(q);
    free(x);
}

/* ---- files ---- */

static void put_weights(const char *file, const float *x, uint64_t rows) {
    const uint64_t shape[2] = {rows, COLS};
    const cen_tensor_spec spec = {"w", "F32", 2, shape};
    cen_tensor_writer *w = NULL;
    assert_int_equal(cen_tensor_writer_open(in_folder(file), &spec, 1, NULL, 0, &w), CEN_OK);
    assert_int_equal(cen_tensor_writer_put(w, 0, x, rows * COLS * sizeof *x), CEN_OK);
    assert_int_equal(cen_tensor_writer_finish(w), CEN_OK);
}

static cen_status quantize(const char *from, const cen_quantize_options *options,
                           cen_quantize_row *row) {
    cen_tensors *in = open_tensors(from);
    cen_status status = cen_quantize(in, in_folder("q"), options, row);
    cen_tensors_close(in);
    return status;
}

static cen_quantize_options options_of(cen_codec_format format, cen_threshold how) {
    return (cen_quantize_options){.size = sizeof(cen_quantize_options),
                                  .codec = {.format = format, .granularity = CEN_CODEC_ROW},
                                  .threshold = how,
                                  .percentile = 99.99};
}

/* Each scale is that of the lesser of its row's largest element and the threshold; the values are
 * the codec's with these. */
static void check_file(const float *x, float threshold, float largest) {
    cen_tensors *t = open_tensors("q");
    cen_quantized q;
    static float scales[ROWS];
    int8_t *got = malloc((size_t)ROWS * COLS), *want = malloc((size_t)ROWS * COLS);
    assert_true(got && want);
    assert_int_equal(cen_quantized_find(t, "w", &q), CEN_OK);
    assert_false(q.codec.scales_given);
    assert_int_equal(cen_tensors_read(t, q.scales, 0, sizeof scales, scales), CEN_OK);
    assert_int_equal(cen_tensors_read(t, q.values, 0, (uint64_t)ROWS * COLS, got), CEN_OK);
    for (int i = 0; i < ROWS; i++) {
        float amax = 0;
        for (int j = 0; j < COLS; j++) {
            amax = fmaxf(amax, fabsf(x[i * COLS + j]));
        }
        assert_true(scales[i] == fminf(amax, threshold) / largest);
    }
    q.codec.scales_given = true;
    cen_matrix m = {ADDR(x), ROWS, COLS, COLS, CEN_FP32};
    cen_codec_parts parts = {
        ADDR(want), ADDR(scales), 0, 0, {(uint64_t)ROWS * COLS, sizeof scales, 0, 0}};
    assert_int_equal(cen_codec_encode(&q.codec, &m, &parts, NULL, NULL), CEN_OK);
    assert_memory_equal(got, want, (size_t)ROWS * COLS);
    free(got);
    free(want);
    cen_tensors_close(t);
}

static void scales_of_files_are_cut(void **state) {
    float *x = weights();
    put_weights("in", x, ROWS);
    for (int how = 0; how < 4; how++) {
        cen_quantize_options o = options_of(CEN_CODEC_INT8, (cen_threshold)how);
        cen_quantize_row row;
        assert_int_equal(quantize("in", &o, &row), CEN_OK);
        float expected = threshold_of(x, o.threshold, o.percentile, &o.codec);
        assert_true(row.threshold == (how ? expected : 0));
        assert_true(how ? row.report.saturated > 0 : row.report.saturated == 0);
        check_file(x, expected, 127);
    }
    cen_quantize_options fp8 = options_of(CEN_CODEC_FP8_E4M3, CEN_THRESHOLD_PERCENTILE);
    cen_quantize_row row;
    assert_int_equal(quantize("in", &fp8, &row), CEN_OK);
    check_file(x, row.threshold, 448);
    free(x);
}

/* A wider codec has more levels, and so a threshold of its own; of 16 bits it has none. */
static void budgets_find_thresholds_anew(void **state) {
    float *x = weights();
    put_weights("in", x, ROWS);
    cen_quantize_options o = options_of(CEN_CODEC_INT4, CEN_THRESHOLD_MSE);
    cen_quantize_row row;
    o.budget.max_error = 1e-6;
    assert_int_equal(quantize("in", &o, &row), CEN_OK);
    assert_string_equal(row.kept ? row.kept : "", "over its budget");
    o.budget = (cen_codec_budget){.min_cosine = 0.995};
    assert_int_equal(quantize("in", &o, &row), CEN_OK);
    assert_int_equal(row.codec.format, CEN_CODEC_INT8);
    assert_true(row.threshold == threshold_of(x, CEN_THRESHOLD_MSE, 0, &row.codec));
    assert_true(row.threshold > threshold_of(x, CEN_THRESHOLD_MSE, 0, &o.codec));
    check_file(x, row.threshold, 127);
    free(x);
}

static void what_has_no_threshold_is_not_cut(void **state) {
    float *x = calloc(COLS * 2, sizeof *x);
    assert_non_null(x);
    for (int what = 0; what < 2; what++) {
        put_weights("in", x, 2);
        for (int how = 1; how < 4; how++) {
            cen_quantize_options o = options_of(CEN_CODEC_INT8, (cen_threshold)how);
            cen_quantize_row row;
            assert_int_equal(quantize("in", &o, &row), CEN_OK);
            assert_true(row.threshold == 0);
            assert_null(row.kept);
        }
        for (int i = 0; i < COLS * 2; i++) {
            x[i] = NAN;
        }
    }
    free(x);
}

static void bad_options_are_refused(void **state) {
    cen_quantize_options o[] = {options_of(CEN_CODEC_INT8, (cen_threshold)4),
                                options_of(CEN_CODEC_INT8, CEN_THRESHOLD_MSE),
                                options_of(CEN_CODEC_BF16, CEN_THRESHOLD_MSE),
                                options_of(CEN_CODEC_FP8_E4M3, CEN_THRESHOLD_ENTROPY),
                                options_of(CEN_CODEC_INT8, CEN_THRESHOLD_PERCENTILE),
                                options_of(CEN_CODEC_INT8, CEN_THRESHOLD_MAX),
                                options_of(CEN_CODEC_INT8, CEN_THRESHOLD_MAX),
                                options_of(CEN_CODEC_INT8, CEN_THRESHOLD_MAX)};
    const char *const words[] = {"options.threshold is 4",      "options.codec has zero points",
                                 "options.codec has no scales", "entropy is of int8 and int4",
                                 "options.percentile is 0",     "options.codec.scales_given",
                                 "options.include is NULL",     "options.exclude is NULL"};
    static const float x[COLS] = {1};
    o[1].codec.asymmetric = true;
    o[2].codec.granularity = CEN_CODEC_UNSCALED;
    o[4].percentile = 0;
    o[5].codec.scales_given = true;
    o[6].include_count = 1;
    o[7].exclude_count = 1;
    put_weights("in", x, 1);
    for (size_t i = 0; i < sizeof o / sizeof *o; i++) {
        cen_quantize_row row;
        files(true);
        put_weights("in", x, 1);
        assert_int_equal(quantize("in", &o[i], &row), CEN_ERR_INVALID);
        const char *said = cen_log_last_error();
        if (!strstr(said, words[i])) {
            fail_msg("said '%s', which lacks '%s'", said, words[i]);
        }
        assert_int_equal(files(false), 1);
    }
}

/* Every allocation fails once: there is no third file, and nothing is lost. */
static void memory_runs_out(void **state) {
    static const float x[2 * COLS] = {1, 2, 3};
    cen_quantize_options o = options_of(CEN_CODEC_INT8, CEN_THRESHOLD_MSE);
    cen_status status = CEN_ERR_HOST_MEMORY;
    files(true);
    put_weights("in", x, 2);
    put_file("q", "before", 6);
    cen_tensors *in = open_tensors("in");
    for (int n = 1; status; n++) {
        cen_quantize_row row;
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], n, false);
        status = cen_quantize(in, in_folder("q"), &o, &row);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        assert_true(!status || status == CEN_ERR_HOST_MEMORY);
        assert_int_equal(files(false), 2);
        assert_true(n < 1000);
    }
    cen_tensors_close(in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_channel_ruins_only_min_max),
        cmocka_unit_test(scales_of_files_are_cut),
        cmocka_unit_test(budgets_find_thresholds_anew),
        cmocka_unit_test(what_has_no_threshold_is_not_cut),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
