/* The 16-bit floats against their definition: each half's value by ldexp, and between each two
 * neighbours the middle, to the even one, and the floats beside the middle. Rounding never goes
 * down as floats go up, so that decides every float. */
#include "base/half.h"
#include "cenote/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

typedef struct format {
    int exponent_bits, mantissa_bits;
    uint16_t (*of_float)(float);
    float (*to_float)(uint16_t);
} format;

static const format formats[] = {{5, 10, ceni_f16_of_float, ceni_float_of_f16},
                                 {8, 7, ceni_bf16_of_float, ceni_float_of_bf16}};

static double value_of(const format *f, uint16_t half) {
    int mantissa = half & ((1 << f->mantissa_bits) - 1);
    int exponent = half >> f->mantissa_bits & ((1 << f->exponent_bits) - 1);
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    int whole = exponent ? 1 << f->mantissa_bits : 0;
    double size = ldexp(mantissa + whole, (exponent ? exponent : 1) - bias - f->mantissa_bits);
    return half & 0x8000 ? -size : size;
}

static uint16_t infinity_of(const format *f) {
    return (uint16_t)(((1 << f->exponent_bits) - 1) << f->mantissa_bits);
}

static void every_half_is_its_value(void **state) {
    for (const format *f = formats; f < formats + 2; f++) {
        for (uint32_t half = 0; half < 0x10000; half++) {
            float got = f->to_float((uint16_t)half);
            if ((half & 0x7FFF) > infinity_of(f)) {
                assert_true(isnan(got));
                assert_int_equal(f->of_float(got), 0x7FFF);
                continue;
            }
            if ((half & 0x7FFF) == infinity_of(f)) {
                assert_true(isinf(got) && !signbit(got) == !(half & 0x8000));
            } else {
                assert_true(got == value_of(f, (uint16_t)half));
                assert_int_equal(!signbit(got), !(half & 0x8000));
            }
            assert_int_equal(f->of_float(got), half);
        }
    }
}

static void between_two_the_nearer_is_taken(void **state) {
    for (const format *f = formats; f < formats + 2; f++) {
        for (uint16_t half = 0; half < infinity_of(f); half++) {
            uint16_t next = (uint16_t)(half + 1), even = half & 1 ? next : half;
            double low = value_of(f, half), high = value_of(f, next); /* infinity: as 2^n */
            float middle = (float)(low + (high - low) / 2);
            for (int sign = 0; sign < 2; sign++) {
                uint16_t bit = sign ? 0x8000 : 0;
                float m = sign ? -middle : middle;
                assert_int_equal(f->of_float(m), even | bit);
                assert_int_equal(f->of_float(nextafterf(m, 0)), half | bit);
                assert_int_equal(f->of_float(nextafterf(m, sign ? -INFINITY : INFINITY)),
                                 next | bit);
            }
        }
        assert_int_equal(f->of_float(INFINITY), infinity_of(f));
        assert_int_equal(f->of_float(-INFINITY), infinity_of(f) | 0x8000);
        assert_int_equal(f->of_float(ceni_float_of(0xFF800001u)), 0x7FFF);
        assert_int_equal(f->of_float(-3e38f) & 0x8000, 0x8000);
    }
}

static void types_have_names(void **state) {
    static const cen_dtype all[] = {
#define TYPE(name, value, bits, text) CEN_##name,
        CEN_DTYPE_MAP(TYPE)
#undef TYPE
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cen_dtype found;
        assert_int_equal(cen_dtype_find(cen_dtype_name(all[i]), &found), CEN_OK);
        assert_int_equal(found, all[i]);
    }
    cen_dtype found = CEN_FP16;
    assert_int_equal(cen_dtype_find("bfloat16", &found), CEN_OK);
    assert_int_equal(found, CEN_BF16);
    found = CEN_FP16;
    assert_int_equal(cen_dtype_find("fp17", &found), CEN_ERR_NOT_FOUND);
    assert_int_equal(cen_dtype_find(NULL, &found), CEN_ERR_INVALID);
    assert_int_equal(cen_dtype_find("bf16", NULL), CEN_ERR_INVALID);
    assert_int_equal(found, CEN_FP16);
    assert_int_equal(cen_dtype_bits(CEN_INT4), 4);
    assert_int_equal(cen_dtype_bits(CEN_FP64), 64);
    assert_int_equal(cen_dtype_bits((cen_dtype)0), 0);
    assert_string_equal(cen_dtype_name((cen_dtype)99), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_is_its_value),
        cmocka_unit_test(between_two_the_nearer_is_taken),
        cmocka_unit_test(types_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
