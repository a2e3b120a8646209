/* Transposes of every shape up to 40 x 40 and of some tiles, at any alignment and stride, for each
 * size of element; and each rung of the ladder by its name. */
#include "tests/conformance/compute_suite.h"

#include "kernels/transpose.h"

enum { SIDE = 40 };

static const cen_dtype sized[] = {CEN_INT8, CEN_BF16, CEN_FP32, CEN_INT64};

static void randomise(area *a) {
    for (uint64_t at = 0; at < a->used; at++) {
        a->host[at] = (uint8_t)any();
    }
    area_push(a);
}

static void check(area *a, const cen_matrix *x, const cen_matrix *out) {
    uint64_t size = size_of(x->dtype);
    area_pull(a, &out, 1);
    for (uint64_t i = 0; i < x->rows; i++) {
        for (uint64_t j = 0; j < x->cols; j++) {
            if (memcmp(a->got + area_at(a, out, j, i), a->host + area_at(a, x, i, j), size)) {
                fail_msg("%llu x %llu of %llu bytes: (%llu, %llu) is wrong (seed %llu)",
                         (unsigned long long)x->rows, (unsigned long long)x->cols,
                         (unsigned long long)size, (unsigned long long)i, (unsigned long long)j,
                         (unsigned long long)compute_seed);
            }
        }
    }
}

static void run(area *a, const cen_matrix *x, const cen_matrix *out) {
    randomise(a);
    called(cen_compute_transpose(a->device, x, out, 0));
    check(a, x, out);
}

static void any_place(area *a, uint64_t rows, uint64_t cols, cen_dtype dtype) {
    area_clear(a);
    cen_matrix x = area_any(a, rows, cols, dtype), out = area_any(a, cols, rows, dtype);
    run(a, &x, &out);
}

/* Rows at multiples of 16 bytes, which are read 16 bytes at a time. */
static void whole_quads(area *a, uint64_t rows, uint64_t cols, cen_dtype dtype) {
    uint64_t quad = 16 / size_of(dtype);
    area_clear(a);
    cen_matrix x = area_place(a, rows, cols, quad - cols % quad, quad, dtype);
    cen_matrix out = area_place(a, cols, rows, quad - rows % quad, 0, dtype);
    run(a, &x, &out);
}

static void every_small_shape(void **state) {
    area a = area_make(state);
    for (uint64_t rows = 1; rows <= SIDE; rows++) {
        for (uint64_t cols = 1; cols <= SIDE; cols++) {
            cen_dtype dtype = sized[(rows + cols) % 4];
            any_place(&a, rows, cols, dtype);
            whole_quads(&a, rows, cols, sized[(rows + cols + any()) % 4]);
        }
    }
    area_end(&a);
}

static void tiles_and_their_edges(void **state) {
    area a = area_make(state);
    for (int t = 0; t < 4; t++) {
        uint64_t tile = CENI_TRANSPOSE_TILE(size_of(sized[t]));
        for (uint64_t n = 0; n < 12; n++) {
            uint64_t rows = tile * (n % 3) + any_below(3), cols = tile * (n / 4) + any_below(3);
            whole_quads(&a, rows + 1, cols + 1, sized[t]);
            any_place(&a, rows + 1, cols + 1, sized[t]);
        }
        whole_quads(&a, tile * 2, tile * 3, sized[t]);
        any_place(&a, 3, 2000 + any_below(50), sized[t]);
        any_place(&a, 2000 + any_below(50), 3, sized[t]);
    }
    area_end(&a);
}

/* The rungs below the kernels that calls use, and any grid. */
static void every_rung(void **state) {
    static const char *const names[] = {"cen_transpose_naive_4", "cen_transpose_shared_4",
                                        "cen_transpose_padded_4"};
    area a = area_make(state);
    for (int i = 0; i < 3; i++) {
        for (uint64_t n = 0; n < 12; n++) {
            uint64_t rows = 1 + any_below(150), cols = 1 + any_below(150);
            area_clear(&a);
            cen_matrix x = area_any(&a, rows, cols, CEN_FP32);
            cen_matrix out = area_any(&a, cols, rows, CEN_FP32);
            randomise(&a);
            ceni_transpose t = {out.data, x.data, out.stride, x.stride, rows, cols, 4};
            cen_launch shape = {{1 + (uint32_t)n % 3, 1 + (uint32_t)n / 3, 1}, {32, 8, 1}, 0};
            called(cen_kernel_launch(a.device, names[i], &shape, (void *[]){&t}, 1, 0));
            check(&a, &x, &out);
        }
    }
    area_end(&a);
}

static void what_is_wrong_is_named(void **state) {
    area a = area_make(state);
    cen_device *d = a.device;
    area_clear(&a);
    cen_matrix x = area_place(&a, 4, 6, 0, 0, CEN_FP32), out = area_place(&a, 6, 4, 0, 0, CEN_FP32);
    cen_matrix bad = x;
    FAILS(CEN_ERR_INVALID, cen_compute_transpose(NULL, &x, &out, 0));
    assert_logged("transpose: device is NULL");
    FAILS(CEN_ERR_INVALID, cen_compute_transpose(d, &x, NULL, 0));
    assert_logged("transpose: out is NULL");
    FAILS(CEN_ERR_INVALID, cen_compute_transpose(d, &x, &x, 0));
    assert_logged("transpose: out is 4 x 6, x 4 x 6");
    bad = out;
    bad.dtype = CEN_INT32;
    FAILS(CEN_ERR_UNSUPPORTED, cen_compute_transpose(d, &x, &bad, 0));
    assert_logged("x is fp32, out int32");
    bad = x;
    bad.rows = 6, bad.cols = 4, bad.stride = 4;
    FAILS(CEN_ERR_INVALID, cen_compute_transpose(d, &x, &bad, 0));
    assert_logged("out and x overlap");
    bad.dtype = CEN_INT4;
    FAILS(CEN_ERR_INVALID, cen_compute_transpose(d, &bad, &out, 0));
    assert_logged("whole bytes");
    cen_matrix none = {.cols = 3, .stride = 3, .dtype = CEN_FP32}, other = none;
    other.rows = 3, other.cols = 0;
    OK(cen_compute_transpose(d, &none, &other, 0));
    area_end(&a);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(every_small_shape),
    SUITE_TEST(tiles_and_their_edges),
    SUITE_TEST(every_rung),
    SUITE_TEST(what_is_wrong_is_named),
};
SUITE_MAIN(tests)
