/* What is done to the sums of a product on their way out: scales, C, bias, activations, residual,
 * in any combination, by every kernel. */
#include "tests/conformance/product_suite.h"

static void combinations_are_exact(void **state) {
    arena a = arena_make(((fixture *)*state)->device);
    for (int round = 0; round < 40; round++) {
        for (int types = 0; types < PRODUCT_TYPES; types++) {
            trial t = random_epilogue(1 + below(40), 1 + below(40), below(40), types);
            random_places(&t);
            try_product(*state, &a, &t);
        }
    }
}

static void combinations_of_large_ones_are_exact(void **state) {
    if (!kernels_differ(*state)) {
        suite_skip("one twin serves all shapes here, and takes long for large ones");
    }
    arena a = arena_make(((fixture *)*state)->device);
    for (int round = 0; round < 4; round++) {
        for (int types = 0; types < PRODUCT_TYPES; types++) {
            trial t = random_epilogue(100 + below(700), 100 + below(700), 1 + below(600), types);
            random_places(&t);
            try_product(*state, &a, &t);
        }
    }
}

/* With what a result that leaves in boxes may have, where all lies at multiples of 16 bytes. */
static trial boxed_trial(uint64_t m, uint64_t n, uint64_t k, int types) {
    trial t = random_epilogue(m, n / 8 * 8, k, types);
    t.row_scale = t.col_scale = false;
    if (t.residual && t.beta != 0) {
        t.residual = t.in_place;
        t.beta = 0;
        t.in_place = false;
    }
    uint64_t cols[2] = {t.transpose_a ? t.m : t.k, t.transpose_b ? t.k : t.n};
    for (int i = 0; i < 5; i++) {
        t.offset[i] = below(2) * 8;
        t.extra[i] = below(2) * 8 + (i < 2 ? (8 - cols[i] % 8) % 8 : 0);
    }
    t.offset[5] = below(2) * 4;
    return t;
}

/* Of one tile and of several for a block, with few steps of the sum and with more than stages. */
static void results_in_boxes_are_exact(void **state) {
    arena a = arena_make(((fixture *)*state)->device);
    bool differ = kernels_differ(*state);
    for (int round = 0; round < (differ ? 12 : 2); round++) {
        for (int types = 1; types < 3; types++) {
            trial t = boxed_trial(1 + below(400), 8 + below(600), 1 + below(900), types);
            try_product(*state, &a, &t);
        }
    }
    for (int round = 0; differ && round < 6; round++) {
        trial t = boxed_trial(1544, 2824, round < 2 ? 200 : 700, 1 + round % 2);
        try_product(*state, &a, &t);
    }
}

/* With beta 0, C is not read: it may hold anything, or be no matrix. */
static void without_beta_c_is_not_read(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    arena a = arena_make(d);
    for (int types = 0; types < PRODUCT_TYPES; types++) {
        trial t = plain_trial(33, 70, 20, types);
        operands o = operands_make(&a, &t);
        cen_product p = product_of(&t, &o);
        for (int which = 0; which < 2; which++) {
            prepare_result(&a, &t, &o); /* D is NaN, too, and C in its place */
            p.c = which ? (cen_matrix){.rows = 1, .cols = 99} : o.d.matrix;
            cen_status status = cen_product_run(d, &p, 0);
            skip_without_kernels(status);
            OK(status);
            read_back(&a, &o.d, "beta 0");
            check_result(&t, &o, "beta 0");
        }
        operands_free(&o);
    }
}

/* NaN goes through, also through what would turn it away by a comparison. */
static void nan_stays_nan(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    arena a = arena_make(d);
    for (int types = 0; types < 5; types++) {
        for (int activation = 0; activation < 4; activation++) {
            trial t = plain_trial(20, 40, 16, types);
            t.activation = (cen_activation)activation;
            operands o = operands_make(&a, &t);
            put(&o.a, 7, 3, NAN);
            suite_write(d, o.a.base, o.a.host, o.a.bytes);
            cen_product p = product_of(&t, &o);
            prepare_result(&a, &t, &o);
            cen_status status = cen_product_run(d, &p, 0);
            skip_without_kernels(status);
            OK(status);
            read_back(&a, &o.d, "NaN");
            for (uint64_t i = 0; i < 20 * 40; i++) {
                bool is = isnan(get(&o.d, i / 40, i % 40));
                assert_int_equal(is, i / 40 == 7);
            }
            operands_free(&o);
        }
    }
}

/* NaN in a column of B stays in it, by each kernel, whatever is computed of neighbours at once. */
static void nan_stays_in_its_column(void **state) {
    arena a = arena_make(((fixture *)*state)->device);
    for (int activation = 0; activation < 4; activation++) {
        trial t = plain_trial(130, 264, 72, 1);
        t.activation = (cen_activation)activation;
        operands o = operands_make(&a, &t);
        put(&o.b, 3, 101, NAN);
        suite_write(a.device, o.b.base, o.b.host, o.b.bytes);
        cen_product p = product_of(&t, &o);
        cen_product_kernel kernels[16];
        size_t count = 0;
        OK(cen_product_list(a.device, &p, kernels, 16, &count));
        for (size_t i = 0; i < count; i++) {
            p.kernel = kernels[i].name;
            prepare_result(&a, &t, &o);
            cen_status status = cen_product_run(a.device, &p, 0);
            skip_without_kernels(status);
            OK(status);
            read_back(&a, &o.d, p.kernel);
            for (uint64_t at = 0; at < t.m * t.n; at++) {
                bool is = isnan(get(&o.d, at / t.n, at % t.n));
                assert_int_equal(is, at % t.n == 101);
            }
        }
        operands_free(&o);
    }
}

/* What is too large for FP16 is infinite; sums of INT8 go round at 2^31 and not before. */
static void large_values_end_as_they_should(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    arena a = arena_make(d);
    trial t = plain_trial(4, 4, 64, 2);
    t.alpha = 70000;
    operands o = operands_make(&a, &t);
    for (uint64_t i = 0; i < 64; i++) {
        put(&o.a, 0, i, 1);
        put(&o.b, i, 0, i % 2 ? 1 : 0.5f);
    }
    suite_write(d, o.a.base, o.a.host, o.a.bytes);
    suite_write(d, o.b.base, o.b.host, o.b.bytes);
    cen_product p = product_of(&t, &o);
    prepare_result(&a, &t, &o);
    cen_status status = cen_product_run(d, &p, 0);
    skip_without_kernels(status);
    OK(status);
    read_back(&a, &o.d, "large");
    assert_true(isinf(get(&o.d, 0, 0)) && get(&o.d, 0, 0) > 0);
    operands_free(&o);
    trial whole = plain_trial(3, 3, 140000, 5);
    whole.transpose_b = true;
    o = operands_make(&a, &whole);
    memset(element(&o.a, 0, 0), 0x80, 3 * 140000); /* -128 each: 140000 * 2^14 is more than 2^31 */
    memset(element(&o.b, 0, 0), 0x80, 3 * 140000);
    suite_write(d, o.a.base, o.a.host, o.a.bytes);
    suite_write(d, o.b.base, o.b.host, o.b.bytes);
    p = product_of(&whole, &o);
    OK(cen_product_run(d, &p, 0));
    suite_read(d, o.d.host, o.d.base, o.d.bytes);
    assert_true(get(&o.d, 2, 1) == 140000.0 * 16384 - 4294967296.0);
    operands_free(&o);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(combinations_are_exact),          SUITE_TEST(combinations_of_large_ones_are_exact),
    SUITE_TEST(results_in_boxes_are_exact),      SUITE_TEST(nan_stays_in_its_column),
    SUITE_TEST(without_beta_c_is_not_read),      SUITE_TEST(nan_stays_nan),
    SUITE_TEST(large_values_end_as_they_should),
};

int main(void) {
    random_begin();
    return suite_run(tests, sizeof tests / sizeof *tests);
}
