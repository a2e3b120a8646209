/* Which matrices are refused before anything is launched, and which lie in one another's way. */
#include "compute/compute.h"

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define NONE UINT64_MAX

static void bad_ones_are_refused(void **state) {
    static const struct {
        cen_matrix matrix;
        uint64_t bytes; /* NONE: refused */
    } cases[] = {
        {{4096, 3, 5, 8, CEN_FP32}, (2 * 8 + 5) * 4},
        {{4096, 1, 5, UINT64_MAX, CEN_FP16}, 10}, /* one row: its stride takes no room */
        {{4096, 3, 5, 5, CEN_FP64}, 120},
        {{0, 0, 5, 5, CEN_FP32}, 0},
        {{0, 5, 0, 0, CEN_BF16}, 0},
        {{4097, 2, 2, 2, CEN_INT8}, 4},
        {{4096, 3, 5, 4, CEN_FP32}, NONE},
        {{4098, 3, 5, 5, CEN_FP32}, NONE},
        {{0, 1, 1, 1, CEN_FP32}, NONE},
        {{4096, 3, 5, 8, CEN_INT4}, NONE},
        {{4096, 3, 5, 8, (cen_dtype)0}, NONE},
        {{4096, UINT64_MAX, 2, 2, CEN_INT8}, NONE},
        {{4096, 1, UINT64_MAX / 2, UINT64_MAX / 2, CEN_FP32}, NONE},
        {{UINT64_MAX - 7, 1, 9, 9, CEN_INT8}, NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 1;
        cen_status status = ceni_matrix_check(&cases[i].matrix, "m", &bytes);
        assert_int_equal(status, cases[i].bytes == NONE ? CEN_ERR_INVALID : CEN_OK);
        if (!status) {
            assert_int_equal(bytes, cases[i].bytes);
        }
    }
    uint64_t bytes;
    assert_int_equal(ceni_matrix_check(NULL, "m", &bytes), CEN_ERR_INVALID);
}

static void neighbours_do_not_overlap(void **state) {
    const cen_matrix a = {4096, 2, 4, 8, CEN_FP32}; /* to 4096 + 48 */
    cen_matrix b = {4096 + 48, 1, 1, 1, CEN_INT8};
    assert_false(ceni_matrix_overlap(&a, &b));
    assert_false(ceni_matrix_overlap(&b, &a));
    b.data--;
    assert_true(ceni_matrix_overlap(&a, &b));
    assert_true(ceni_matrix_overlap(&b, &a));
    b.rows = 0;
    assert_false(ceni_matrix_overlap(&a, &b));
    assert_true(ceni_matrix_overlap(&a, &a));
}

/* Columns of one matrix: apart where they lie side by side, in either order, of any types. */
static void columns_side_by_side_do_not_overlap(void **state) {
    const cen_matrix a = {4096, 10, 4, 16, CEN_FP32}; /* bytes 0 to 16 of 64 */
    static const struct {
        cen_matrix b;
        bool overlap;
    } cases[] = {
        {{4096 + 16, 10, 12, 16, CEN_FP32}, false},     {{4096 + 16, 10, 13, 16, CEN_FP32}, true},
        {{4096 + 12, 10, 4, 16, CEN_FP32}, true},       {{4096 + 16, 9, 24, 32, CEN_FP16}, false},
        {{4096 + 64 + 16, 3, 12, 16, CEN_FP32}, false}, {{4096 - 48, 3, 12, 16, CEN_FP32}, false},
        {{4096 - 48, 3, 13, 16, CEN_FP32}, true},       {{4096 - 16, 3, 4, 16, CEN_FP32}, false},
        {{4096 + 16, 10, 4, 17, CEN_FP32}, true},       {{4096 + 32, 1, 8, 1000, CEN_FP32}, false},
        {{4096 + 32, 1, 9, 1000, CEN_FP32}, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ceni_matrix_overlap(&a, &cases[i].b), cases[i].overlap);
        assert_int_equal(ceni_matrix_overlap(&cases[i].b, &a), cases[i].overlap);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_ones_are_refused),
        cmocka_unit_test(neighbours_do_not_overlap),
        cmocka_unit_test(columns_side_by_side_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
