/* Calibrations kept in files, their channels, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <math.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fault.h"
#include "cenote/calibrate.h"
#include "cenote/log.h"

#define OK(call) assert_int_equal((call), CEN_OK)

enum { ROWS = 5, COLS = 7, BINS = 255 << 9 };

static char path[64];

static int setup(void **state) {
    snprintf(path, sizeof path, "/tmp/test_calibrate_file.%ld", (long)getpid());
    unlink(path);
    return 0;
}

static int teardown(void **state) {
    unlink(path);
    return 0;
}

/* Of a matrix with an outlier in column 3, one of another sign in 5, and a column of zeros. */
static cen_calibration *make(cen_channels axis) {
    static float x[ROWS * COLS];
    cen_calibration *c;
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = i % COLS == 6 ? 0 : (float)(i % 11 - 5) / 4;
    }
    x[3] = 30.0f;
    x[COLS + 5] = -40.0f;
    x[2 * COLS + 1] = NAN;
    x[2 * COLS + 2] = -INFINITY;
    cen_matrix m = {(uintptr_t)x, ROWS, COLS, COLS, CEN_FP32};
    OK(cen_calibration_create(axis, axis == CEN_CHANNELS_ROWS ? ROWS : axis ? COLS : 0, &c));
    OK(cen_calibration_add(c, &m));
    return c;
}

/* Without the padding, which nobody sets. */
static void same_stats(const cen_calibration_stats *a, const cen_calibration_stats *b) {
    assert_memory_equal(a, b, offsetof(cen_calibration_stats, amax) + sizeof a->amax);
}

static void same(const cen_calibration *a, const cen_calibration *b, uint64_t channels) {
    cen_calibration_stats x, y;
    cen_channels ours, theirs;
    uint64_t count, counted;
    OK(cen_calibration_get_channels(a, &ours, &count));
    OK(cen_calibration_get_channels(b, &theirs, &counted));
    assert_true(ours == theirs && count == channels && counted == channels);
    OK(cen_calibration_get_stats(a, &x));
    OK(cen_calibration_get_stats(b, &y));
    same_stats(&x, &y);
    assert_memory_equal(cen_calibration_bins(a, NULL), cen_calibration_bins(b, NULL),
                        BINS * sizeof(uint64_t));
    for (uint64_t i = 0; i < channels; i++) {
        cen_calibration_channel p, q;
        OK(cen_calibration_get_channel(a, i, &p));
        OK(cen_calibration_get_channel(b, i, &q));
        same_stats(&p.stats, &q.stats);
        assert_true(p.sum == q.sum && p.sum2 == q.sum2);
    }
}

static uint8_t *bytes_of(size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *bytes = malloc(1 << 21);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 21, file);
    fclose(file);
    return bytes;
}

static void there_and_back(void **state) {
    for (int axis = CEN_CHANNELS_NONE; axis <= CEN_CHANNELS_COLUMNS; axis++) {
        uint64_t channels = axis == CEN_CHANNELS_ROWS ? ROWS : axis ? COLS : 0;
        cen_calibration *c = make((cen_channels)axis), *back, *empty, *none;
        OK(cen_calibration_save(c, path));
        OK(cen_calibration_load(path, &back));
        same(c, back, channels);
        OK(cen_calibration_merge(back, c)); /* it is as good as the first */
        OK(cen_calibration_merge(c, c == back ? NULL : back));
        OK(cen_calibration_create((cen_channels)axis, channels, &empty));
        OK(cen_calibration_save(empty, path));
        OK(cen_calibration_load(path, &none));
        same(empty, none, channels);
        cen_calibration_free(c);
        cen_calibration_free(back);
        cen_calibration_free(empty);
        cen_calibration_free(none);
    }
}

/* Every byte changed, every length: refused, by the checksum if by nothing else. */
static void damaged(void **state) {
    cen_calibration *c = make(CEN_CHANNELS_COLUMNS), *none = NULL;
    size_t size;
    OK(cen_calibration_save(c, path));
    uint8_t *bytes = bytes_of(&size);
    for (size_t i = 0; i < size; i += i < 100 ? 1 : 37) {
        bytes[i] ^= 0x41;
        assert_int_equal(cen_calibration_load_memory("it", bytes, size, &none), CEN_ERR_FORMAT);
        assert_memory_equal(cen_log_last_error(), "it: ", 4);
        bytes[i] ^= 0x41;
        cen_status status = cen_calibration_load_memory("it", bytes, i, &none);
        assert_true(status == CEN_ERR_FORMAT || status == CEN_ERR_TRUNCATED);
    }
    assert_null(none);
    free(bytes);
    cen_calibration_free(c);
}

/* With a checksum that is right. */
static void lies(void **state) {
    static const struct {
        size_t at;
        uint64_t value;
        size_t size;
        const char *why;
    } lie[] = {{8, 2, 4, "version"},          {12, 3, 4, "channels of no kind"},
               {16, 8, 8, "its length"},      {16, UINT64_MAX, 8, "channels of no kind"},
               {24, 36, 8, "equally long"},   {24, 42, 8, "do not add up"},
               {32, 2, 8, "do not add up"},   {40, 99, 8, "not finite"},
               {48, 7, 8, "do not add up"},   {56, 0x42000000, 4, "least element"},
               {60, 0x7F800000, 4, "least"},  {60, 0x41F80000, 4, "do not add up"},
               {64, 0x7FFFFFFF, 4, "beyond"}, {68, 0xFFFFFFFF, 4, "beyond"},
               {64, 1, 4, "do not go from"}};
    cen_calibration *c = make(CEN_CHANNELS_COLUMNS), *none = NULL;
    size_t size;
    OK(cen_calibration_save(c, path));
    uint8_t *bytes = bytes_of(&size), kept[8];
    for (size_t i = 0; i < sizeof lie / sizeof *lie; i++) {
        memcpy(kept, bytes + lie[i].at, 8);
        memcpy(bytes + lie[i].at, &lie[i].value, lie[i].size);
        uint64_t sum = XXH3_64bits(bytes, size - 8);
        memcpy(bytes + size - 8, &sum, 8);
        if (cen_calibration_load_memory("it", bytes, size, &none) != CEN_ERR_FORMAT) {
            fail_msg("lie %zu is believed", i);
        }
        if (!strstr(cen_log_last_error(), lie[i].why)) {
            fail_msg("lie %zu: '%s' lacks '%s'", i, cen_log_last_error(), lie[i].why);
        }
        memcpy(bytes + lie[i].at, kept, 8);
    }
    assert_null(none);
    free(bytes);
    cen_calibration_free(c);
}

static void failures(void **state) {
    cen_calibration *c = make(CEN_CHANNELS_ROWS), *back = NULL;
    unlink(path);
    assert_int_equal(cen_calibration_load("/nowhere/at-all", &back), CEN_ERR_NOT_FOUND);
    assert_int_equal(cen_calibration_load("/tmp", &back), CEN_ERR_IO);
    assert_int_equal(cen_calibration_save(c, "/nowhere/at-all"), CEN_ERR_IO);
    for (int point = 0; point < CENI_FAULT_POINTS; point++) {
        cen_status status = CEN_ERR_IO;
        for (int n = 1; status; n++) {
            assert_true(n < 20 && !back);
            ceni_fault_set(&ceni_fault_points[point], n, false);
            status = cen_calibration_save(c, path);
            if (status) {
                assert_int_not_equal(access(path, F_OK), 0); /* nothing half-written */
            } else {
                status = cen_calibration_load(path, &back);
                assert_true(status != CEN_ERR_FORMAT);
                unlink(path);
            }
            ceni_fault_set(&ceni_fault_points[point], 0, false);
        }
        cen_calibration_free(back);
        back = NULL;
    }
    cen_calibration_free(c);
}

static void creation_fails(void **state) {
    for (int n = 1; n <= 2; n++) {
        cen_calibration *c = NULL;
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], n, false);
        assert_int_equal(cen_calibration_create(CEN_CHANNELS_ROWS, 3, &c), CEN_ERR_HOST_MEMORY);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        assert_null(c);
    }
    cen_calibration *c = NULL;
    assert_int_equal(cen_calibration_create(CEN_CHANNELS_ROWS, 0, &c), CEN_ERR_INVALID);
    assert_int_equal(cen_calibration_create(CEN_CHANNELS_NONE, 1, &c), CEN_ERR_INVALID);
    assert_int_equal(cen_calibration_create((cen_channels)7, 1, &c), CEN_ERR_INVALID);
    OK(cen_calibration_create(CEN_CHANNELS_ROWS, 3, &c));
    float x[3] = {1, 2, 3};
    cen_matrix m = {(uintptr_t)x, 3, 1, 1, CEN_FP32};
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 1, false);
    assert_int_equal(cen_calibration_add(c, &m), CEN_ERR_HOST_MEMORY);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
    cen_calibration_stats stats;
    OK(cen_calibration_get_stats(c, &stats));
    assert_int_equal(stats.count, 0);
    cen_calibration_free(c);
}

/* ---- channels ---- */

static void outliers(void **state) {
    cen_calibration *c = make(CEN_CHANNELS_COLUMNS), *whole = make(CEN_CHANNELS_NONE);
    cen_outlier list[3] = {{9, 9}, {9, 9}, {9, 9}};
    uint64_t count;
    float rest;
    OK(cen_calibration_outliers(c, 2.0f, list, 3, &count, &rest));
    assert_int_equal(count, 2);
    assert_true(list[0].channel == 5 && list[0].value == -40.0f);
    assert_true(list[1].channel == 3 && list[1].value == 30.0f && list[2].channel == 9);
    assert_true(rest == 1.25f);
    list[1].channel = 9;
    OK(cen_calibration_outliers(c, 2.0f, list, 1, &count, NULL));
    assert_true(count == 2 && list[0].channel == 5 && list[1].channel == 9);
    OK(cen_calibration_outliers(c, 0.0f, NULL, 0, &count, &rest));
    assert_true(count == 6 && rest == 0);
    OK(cen_calibration_outliers(c, INFINITY, NULL, 0, &count, &rest));
    assert_true(count == 0 && rest == 40.0f);
    assert_int_equal(cen_calibration_outliers(whole, 1, NULL, 0, &count, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_calibration_outliers(c, NAN, NULL, 0, &count, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_calibration_outliers(c, 1, NULL, 2, &count, NULL), CEN_ERR_INVALID);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 1, false);
    assert_int_equal(cen_calibration_outliers(c, 2, list, 3, &count, NULL), CEN_ERR_HOST_MEMORY);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
    cen_calibration_free(c);
    cen_calibration_free(whole);
}

/* The product of x / s and w * s is that of x and w, and the outlier is shared by both. */
static void smoothing(void **state) {
    float w[COLS * 2], scales[COLS];
    cen_calibration *x = make(CEN_CHANNELS_COLUMNS), *c;
    for (int i = 0; i < COLS * 2; i++) {
        w[i] = i / 2 == 4 ? 0 : 0.5f;
    }
    cen_matrix m = {(uintptr_t)w, COLS, 2, 2, CEN_FP32};
    OK(cen_calibration_create(CEN_CHANNELS_ROWS, COLS, &c));
    OK(cen_calibration_add(c, &m));
    OK(cen_calibration_smooth(x, c, 0.5, scales));
    assert_true(fabs(scales[3] - sqrt(30.0) / sqrt(0.5)) < 1e-5);
    assert_true(fabs(scales[5] - sqrt(40.0) / sqrt(0.5)) < 1e-5);
    assert_true(fabs(40 / scales[5] - 0.5 * scales[5]) < 1e-5);
    assert_true(scales[4] == 1 && scales[6] == 1); /* one of them is all zeros */
    OK(cen_calibration_smooth(x, c, 1, scales));
    assert_true(scales[3] == 30);
    OK(cen_calibration_smooth(x, c, 0, scales));
    assert_true(scales[3] == 2);
    assert_int_equal(cen_calibration_smooth(x, c, 1.5, scales), CEN_ERR_INVALID);
    assert_int_equal(cen_calibration_smooth(x, c, NAN, scales), CEN_ERR_INVALID);
    cen_calibration *rows = make(CEN_CHANNELS_ROWS);
    assert_int_equal(cen_calibration_smooth(x, rows, 0.5, scales), CEN_ERR_INVALID);
    assert_int_equal(cen_calibration_merge(x, rows), CEN_ERR_INVALID);
    assert_non_null(strstr(cen_log_last_error(), "columns, from "));
    assert_int_equal(cen_calibration_merge(x, x), CEN_ERR_INVALID);
    cen_calibration_free(rows);
    cen_calibration_free(x);
    cen_calibration_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back), cmocka_unit_test(damaged),
        cmocka_unit_test(lies),           cmocka_unit_test(failures),
        cmocka_unit_test(creation_fails), cmocka_unit_test(outliers),
        cmocka_unit_test(smoothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
