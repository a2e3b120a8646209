/* Elements as numbers: each type's, what they are like, and how far they are from others. */
#include "tensor_files.h"

#include <float.h>
#include <math.h>

static void put_one(const char *name, const char *type, uint64_t count, const void *data,
                    uint64_t bytes) {
    cen_tensor_spec spec = {"a", type, 1, &count};
    cen_tensor_writer *w = NULL;
    assert_int_equal(cen_tensor_writer_open(in_folder(name), &spec, 1, NULL, 0, &w), CEN_OK);
    assert_int_equal(cen_tensor_writer_put(w, 0, data, bytes), CEN_OK);
    assert_int_equal(cen_tensor_writer_finish(w), CEN_OK);
}

static double value_of(const char *type, const void *data, uint64_t bytes) {
    double value = 0;
    put_one("v", type, 1, data, bytes);
    cen_tensors *t = open_tensors("v");
    assert_int_equal(cen_tensors_values(t, cen_tensors_get(t, 0), 0, 1, &value), CEN_OK);
    cen_tensors_close(t);
    return value;
}

static void each_type_is_read(void **state) {
    assert_true(value_of("BOOL", "\1", 1) == 1);
    assert_true(value_of("U8", "\xff", 1) == 255);
    assert_true(value_of("I8", "\xff", 1) == -1);
    assert_true(value_of("I16", "\0\x80", 2) == -32768);
    assert_true(value_of("U16", "\0\x80", 2) == 32768);
    assert_true(value_of("I32", "\0\0\0\x80", 4) == -0x1p31);
    assert_true(value_of("U32", "\0\0\0\x80", 4) == 0x1p31);
    assert_true(value_of("I64", "\0\0\0\0\0\0\0\x80", 8) == -0x1p63);
    assert_true(value_of("U64", "\0\0\0\0\0\0\0\x80", 8) == 0x1p63);
    assert_true(value_of("F16", "\0\x3c", 2) == 1);
    assert_true(value_of("F16", "\1\0", 2) == 0x1p-24);
    assert_true(value_of("BF16", "\x80\x3f", 2) == 1);
    assert_true(value_of("F32", "\0\0\x80\xbf", 4) == -1);
    assert_true(value_of("F64", "\0\0\0\0\0\0\xf0\x3f", 8) == 1);
    assert_true(value_of("F8_E4M3", "\x7e", 1) == 448);
    assert_true(value_of("F8_E4M3", "\x01", 1) == 0x1p-9);
    assert_true(value_of("F8_E4M3", "\x38", 1) == 1);
    assert_true(isnan(value_of("F8_E4M3", "\xff", 1)));
    assert_true(value_of("F8_E5M2", "\x7b", 1) == 57344);
    assert_true(value_of("F8_E5M2", "\x01", 1) == 0x1p-16);
    assert_true(value_of("F8_E5M2", "\xfc", 1) == -(double)INFINITY);
    assert_true(isnan(value_of("F8_E5M2", "\x7d", 1)));
}

static void a_tensor_is_summed_up(void **state) {
    enum { N = 200001 };
    float *v = malloc(N * sizeof *v);
    assert_non_null(v);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        v[i] = 1e6f + (float)(i % 7);
        sum += i % 7;
    }
    double mean = sum / N;
    for (int i = 0; i < N; i++) {
        squares += (i % 7 - mean) * (i % 7 - mean);
    }
    put_one("s", "F32", N, v, N * sizeof *v);
    cen_tensor_stats s;
    cen_tensors *t = open_tensors("s");
    assert_int_equal(cen_tensors_stats(t, cen_tensors_get(t, 0), &s), CEN_OK);
    assert_true(s.count == N && !s.nan && !s.infinite && !s.zeros);
    assert_true(s.min == 1e6 && s.max == 1e6 + 6 && s.absmax == 1e6 + 6);
    assert_true(fabs(s.mean - 1e6 - mean) < 1e-6 && fabs(s.std - sqrt(squares / N)) < 1e-9);
    cen_tensors_close(t);
    const float few[] = {NAN, -3, 0, -0.0f, INFINITY, -INFINITY, 1};
    put_one("s", "F32", 7, few, sizeof few);
    t = open_tensors("s");
    assert_int_equal(cen_tensors_stats(t, cen_tensors_get(t, 0), &s), CEN_OK);
    assert_true(s.nan == 1 && s.infinite == 2 && s.zeros == 2 && s.absmax == 3 && s.min == -3);
    assert_true(s.max == 1 && s.mean == -0.5);
    cen_tensors_close(t);
    const float nothing[] = {NAN};
    put_one("s", "F32", 1, nothing, sizeof nothing);
    t = open_tensors("s");
    assert_int_equal(cen_tensors_stats(t, cen_tensors_get(t, 0), &s), CEN_OK);
    assert_true(s.nan == 1 && s.min == 0 && s.mean == 0 && s.std == 0);
    cen_tensors_close(t);
    free(v);
}

/* Sums and squares that no double holds. */
static void elements_of_any_size_are_summed_up(void **state) {
    const double cases[][4] = {/* two elements, mean, deviation */
                               {DBL_MAX, DBL_MAX, DBL_MAX, 0},
                               {DBL_MAX, -DBL_MAX, 0, DBL_MAX},
                               {1e300, 3e300, 2e300, 1e300},
                               {-3e160, -1e160, -2e160, 1e160},
                               {1e-300, 3e-300, 2e-300, 1e-300}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cen_tensor_stats s;
        put_one("s", "F64", 2, cases[i], 16);
        cen_tensors *t = open_tensors("s");
        assert_int_equal(cen_tensors_stats(t, cen_tensors_get(t, 0), &s), CEN_OK);
        assert_true(fabs(s.mean - cases[i][2]) <= fabs(cases[i][2]) * 1e-14);
        assert_true(fabs(s.std - cases[i][3]) <= cases[i][3] * 1e-14);
        cen_tensors_close(t);
    }
}

static cen_status difference(const char *type_a, const void *a, uint64_t bytes_a,
                             const char *type_b, const void *b, uint64_t bytes_b, uint64_t count,
                             cen_tensor_difference *d) {
    put_one("a", type_a, count, a, bytes_a);
    put_one("b", type_b, count, b, bytes_b);
    cen_tensors *x = open_tensors("a"), *y = open_tensors("b");
    cen_status status = cen_tensors_compare(x, cen_tensors_get(x, 0), y, cen_tensors_get(y, 0), d);
    cen_tensors_close(x);
    cen_tensors_close(y);
    return status;
}

static void two_are_compared(void **state) {
    cen_tensor_difference d;
    const float a[] = {1, 2, NAN, 0, INFINITY}, b[] = {1, 2.5f, NAN, -0.0f, INFINITY};
    assert_int_equal(difference("F32", a, 20, "F32", b, 20, 5, &d), CEN_OK);
    assert_true(d.count == 5 && d.different == 1 && !d.nonfinite && d.numeric);
    assert_true(d.max_error == 0.5 && d.mse == 0.25 / 3);
    assert_true(fabs(d.sqnr_db - 10 * log10(5 / 0.25)) < 1e-12);
    assert_true(fabs(d.cosine - 6 / (sqrt(5) * sqrt(7.25))) < 1e-12);
    const float c[] = {1, 2, 3, 0, -INFINITY};
    assert_int_equal(difference("F32", a, 20, "F32", c, 20, 5, &d), CEN_OK);
    assert_true(d.different == 2 && d.nonfinite == 2 && d.max_error == 0 && d.sqnr_db > 1e300);
    /* Finite in the first only: no error is as large. */
    assert_int_equal(difference("F32", c, 20, "F32", a, 20, 5, &d), CEN_OK);
    assert_true(d.different == 2 && d.nonfinite == 2 && isinf(d.max_error) && isinf(d.mse));
    assert_true(d.sqnr_db < -1e300 && d.cosine == 0);
    const uint8_t half[] = {0, 0x3c, 0, 0x40};
    assert_int_equal(difference("F32", a, 8, "F16", half, 4, 2, &d), CEN_OK);
    assert_true(!d.different && d.cosine == 1 && isinf(d.sqnr_db));
    const float zero[] = {0, 0};
    assert_int_equal(difference("F32", a, 8, "F32", zero, 8, 2, &d), CEN_OK);
    assert_true(d.cosine == 0 && d.sqnr_db == 0);
    assert_int_equal(difference("F32", zero, 8, "F32", zero, 8, 2, &d), CEN_OK);
    assert_true(d.cosine == 1);
}

/* Integers that are one double, and types of which only bytes are known. */
static void what_doubles_do_not_tell_is_told(void **state) {
    cen_tensor_difference d;
    const uint64_t p = ((uint64_t)1 << 60) + 1, q = p - 1;
    assert_int_equal(difference("I64", &p, 8, "I64", &q, 8, 1, &d), CEN_OK);
    assert_true(d.different == 1 && d.max_error == 0);
    assert_int_equal(difference("I64", &p, 8, "U64", &q, 8, 1, &d), CEN_OK);
    assert_true(d.different == 0);
    assert_int_equal(difference("C64", "abcdefgh", 8, "C64", "abXdefYh", 8, 1, &d), CEN_OK);
    assert_true(!d.numeric && d.different == 2);
    assert_int_equal(difference("C64", &p, 8, "F64", &q, 8, 1, &d), CEN_ERR_UNSUPPORTED);
    cen_tensor_stats s;
    double v;
    put_one("c", "F8_E8M0", 1, "a", 1);
    put_one("two", "F32", 2, "12345678", 8);
    cen_tensors *t = open_tensors("c"), *two = open_tensors("two");
    const cen_tensor *one = cen_tensors_get(t, 0), *both = cen_tensors_get(two, 0);
    assert_int_equal(cen_tensors_stats(t, one, &s), CEN_ERR_UNSUPPORTED);
    assert_int_equal(cen_tensors_values(t, one, 0, 1, &v), CEN_ERR_UNSUPPORTED);
    assert_int_equal(cen_tensors_values(two, both, 2, 1, &v), CEN_ERR_INVALID);
    assert_int_equal(cen_tensors_values(two, both, 0, 1, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_tensors_stats(two, both, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_tensors_compare(two, both, t, one, &d), CEN_ERR_INVALID);
    assert_int_equal(cen_tensors_compare(two, both, two, NULL, &d), CEN_ERR_INVALID);
    cen_tensors_close(t);
    cen_tensors_close(two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_type_is_read),
        cmocka_unit_test(a_tensor_is_summed_up),
        cmocka_unit_test(elements_of_any_size_are_summed_up),
        cmocka_unit_test(two_are_compared),
        cmocka_unit_test(what_doubles_do_not_tell_is_told),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
