/* Element-wise calls, against the same steps in plain floats, or in doubles where they are not
 * exact; every shape up to 40 x 40, any alignment and stride; and fills and copies. */
#include "tests/conformance/compute_suite.h"

enum { SIDE = 40 };

typedef struct chain {
    cen_map_op ops[CEN_MAP_OPS_MAX];
    cen_matrix others[CEN_MAP_OPS_MAX];
    size_t count;
} chain;

static void add_step(area *a, chain *c, cen_map_kind kind, uint64_t rows, uint64_t cols,
                     cen_dtype dtype) {
    cen_map_op *op = &c->ops[c->count];
    cen_matrix *other = &c->others[c->count++];
    bool whole = kind == CEN_MAP_ADD || kind == CEN_MAP_AXPY;
    *op = (cen_map_op){.kind = kind, .alpha = any_float() * 3, .dtype = any_type()};
    if (whole || kind == CEN_MAP_BIAS) {
        *other = area_any(a, whole ? rows : 1, cols, dtype);
        area_fill(a, other, 0.3f, 2);
        op->other = other;
    }
}

/* Multiplications and sums are not to be fused here, either. */
static float step(const area *a, const cen_map_op *op, uint64_t row, uint64_t col, float x) {
    volatile float scaled = op->alpha * x;
    switch (op->kind) {
    case CEN_MAP_SCALE:
        return scaled;
    case CEN_MAP_ADD:
        return x + area_in(a, op->other, row, col);
    case CEN_MAP_AXPY:
        return scaled + area_in(a, op->other, row, col);
    case CEN_MAP_BIAS:
        return x + area_in(a, op->other, 0, col);
    case CEN_MAP_RELU:
        return x < 0 ? 0 : x;
    case CEN_MAP_ROUND:
        return rounded(op->dtype, x);
    default:
        return x;
    }
}

static double gelu_of(cen_map_kind kind, double x) {
    if (isinf(x) && x < 0) {
        return -0.0;
    }
    return kind == CEN_MAP_GELU
               ? x / 2 * erfc(-x / sqrt(2))
               : x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979324) * (x + 0.044715 * x * x * x)));
}

/* GELU, if there is any, is the last step. */
static void check(const area *a, const chain *c, const cen_matrix *x, const cen_matrix *out) {
    cen_map_kind last = c->count ? c->ops[c->count - 1].kind : CEN_MAP_SCALE;
    bool gelu = last == CEN_MAP_GELU || last == CEN_MAP_GELU_TANH;
    for (uint64_t i = 0; i < x->rows; i++) {
        for (uint64_t j = 0; j < x->cols; j++) {
            float value = area_in(a, x, i, j), got = area_out(a, out, i, j);
            for (size_t k = 0; k < c->count; k++) {
                value = step(a, &c->ops[k], i, j, value);
            }
            if (gelu) {
                double share = (last == CEN_MAP_GELU ? 8 : 16) * UNIT;
                double bound = isinf(value) ? 0 : share * fabs((double)value);
                near("gelu", got, gelu_of(last, value), bound, out->dtype, i, j);
            } else {
                same_value("map", got, rounded(out->dtype, value), i, j);
            }
        }
    }
}

static void run(area *a, chain *c, const cen_matrix *x, const cen_matrix *out) {
    area_push(a);
    called(cen_compute_map(a->device, c->ops, c->count, x, out, 0));
    area_pull(a, &out, 1);
    check(a, c, x, out);
}

/* Those that have a kernel of their own in each type, the same in one row, and casts. */
static const cen_map_kind fixed[][2] = {
    {CEN_MAP_SCALE, 0},
    {CEN_MAP_ADD, 0},
    {CEN_MAP_AXPY, 0},
    {CEN_MAP_BIAS, 0},
    {CEN_MAP_RELU, 0},
    {CEN_MAP_GELU, 0},
    {CEN_MAP_GELU_TANH, 0},
    {CEN_MAP_BIAS, CEN_MAP_RELU},
    {CEN_MAP_BIAS, CEN_MAP_GELU},
    {CEN_MAP_BIAS, CEN_MAP_GELU_TANH},
    {CEN_MAP_BIAS, CEN_MAP_ADD},
    {0, 0},
};
enum { FIXED = sizeof fixed / sizeof *fixed };

static void fixed_steps_of(area *a, size_t which, cen_dtype dtype, uint64_t rows, uint64_t cols) {
    chain c = {.count = 0};
    area_clear(a);
    cen_matrix x = area_any(a, rows, cols, dtype);
    for (int i = 0; i < 2 && fixed[which][i]; i++) {
        add_step(a, &c, fixed[which][i], rows, cols, dtype);
    }
    cen_matrix out = area_any(a, rows, cols, c.count ? dtype : any_type());
    area_fill(a, &x, 0, 4);
    run(a, &c, &x, &out);
}

static void steps_with_a_kernel_of_their_own(void **state) {
    area a = area_make(state);
    for (size_t i = 0; i < FIXED; i++) {
        for (int t = 0; t < 3; t++) {
            for (uint64_t n = 0; n < 24; n++) {
                fixed_steps_of(&a, i, float_types[t], 1 + any_below(SIDE), 1 + any_below(SIDE));
            }
            for (uint64_t n = 0; n < 8; n++) { /* rows that begin alike, so that threads go down */
                fixed_steps_of(&a, i, float_types[t], 2 + any_below(SIDE), 8 * any_below(140) + 8);
            }
            fixed_steps_of(&a, i, float_types[t], 1, 1 + any_below(9000));
            fixed_steps_of(&a, i, float_types[t], 3, 4000 + any_below(200));
            fixed_steps_of(&a, i, float_types[t], 700, 1 + any_below(8));
        }
    }
    area_end(&a);
}

/* Any steps with a GELU at the end at times; no more operands than one call may have. */
static chain any_chain(area *a, uint64_t rows, uint64_t cols, bool halves) {
    chain c = {.count = 0};
    size_t length = any_below(CEN_MAP_OPS_MAX), matrices = 0, biases = 0;
    while (c.count < length) {
        cen_map_kind kind = CEN_MAP_SCALE + (cen_map_kind)any_below(CEN_MAP_ROUND);
        bool whole = kind == CEN_MAP_ADD || kind == CEN_MAP_AXPY;
        cen_dtype dtype = halves ? float_types[1 + any_below(2)] : any_type();
        if (kind == CEN_MAP_GELU || kind == CEN_MAP_GELU_TANH ||
            (whole && matrices == CEN_MAP_MATRICES_MAX) ||
            (kind == CEN_MAP_BIAS && biases == CEN_MAP_BIASES_MAX)) {
            continue;
        }
        matrices += whole;
        biases += kind == CEN_MAP_BIAS;
        add_step(a, &c, kind, rows, cols, dtype);
    }
    if (!any_below(4)) {
        add_step(a, &c, any_below(2) ? CEN_MAP_GELU : CEN_MAP_GELU_TANH, rows, cols, CEN_FP32);
    }
    for (size_t i = 0; halves && i < c.count; i++) {
        c.ops[i].dtype = float_types[1 + any_below(2)];
    }
    for (size_t i = 0; i < c.count; i++) {
        c.ops[i].other = c.ops[i].other ? &c.others[i] : NULL;
    }
    return c;
}

static void chain_of(area *a, uint64_t rows, uint64_t cols) {
    bool halves = any_below(2);
    area_clear(a);
    cen_matrix x = area_any(a, rows, cols, halves ? CEN_BF16 : any_type());
    chain c = any_chain(a, rows, cols, halves);
    for (size_t i = 0; i < c.count; i++) { /* it was copied */
        c.ops[i].other = c.ops[i].other ? &c.others[i] : NULL;
    }
    cen_matrix out = area_any(a, rows, cols, halves ? CEN_FP16 : any_type());
    area_fill(a, &x, 0, 5);
    run(a, &c, &x, &out);
}

static void any_chain_of_every_shape(void **state) {
    area a = area_make(state);
    for (uint64_t rows = 1; rows <= SIDE; rows++) {
        for (uint64_t cols = 1; cols <= SIDE; cols++) {
            chain_of(&a, rows, cols);
        }
    }
    for (int i = 0; i < 20; i++) {
        chain_of(&a, 1 + any_below(20), 1000 + any_below(3000));
    }
    area_end(&a);
}

/* Over x, and over what is added. */
static void results_may_take_the_place_of_inputs(void **state) {
    area a = area_make(state);
    for (uint64_t n = 0; n < 300; n++) {
        uint64_t rows = 1 + any_below(30), cols = 1 + any_below(100);
        chain c = {.count = 0};
        area_clear(&a);
        cen_matrix x = area_any(&a, rows, cols, any_type());
        add_step(&a, &c, CEN_MAP_SCALE, rows, cols, CEN_FP32);
        add_step(&a, &c, n % 2 ? CEN_MAP_ADD : CEN_MAP_AXPY, rows, cols, any_type());
        cen_matrix out = n % 3 ? x : c.others[1];
        out.dtype = out.dtype == CEN_FP32 ? CEN_FP32 : n % 5 ? CEN_BF16 : CEN_FP16;
        area_fill(&a, &x, 1, 1);
        run(&a, &c, &x, &out);
    }
    area_end(&a);
}

/* All values that are anything special, from each type to each, alone and through steps. */
static void special_values_go_as_ieee_says(void **state) {
    area a = area_make(state);
    static const cen_map_kind kinds[] = {0,           CEN_MAP_RELU, CEN_MAP_SCALE,
                                         CEN_MAP_ADD, CEN_MAP_GELU, CEN_MAP_GELU_TANH};
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
                chain c = {.count = 0};
                area_clear(&a);
                cen_matrix x = area_place(&a, 1, SPECIALS, 0, 0, float_types[from]);
                cen_matrix out = area_place(&a, 1, SPECIALS, 0, 0, float_types[to]);
                for (uint64_t j = 0; j < SPECIALS; j++) {
                    area_set(&a, &x, 0, j, special_values[j]);
                }
                if (kinds[k]) {
                    add_step(&a, &c, kinds[k], 1, SPECIALS, CEN_FP32);
                }
                run(&a, &c, &x, &out);
            }
        }
    }
    area_end(&a);
}

/* Every half to fp32 and back, and to the other half; NaN by its bits. */
static void every_half_is_converted(void **state) {
    enum { HALVES = 1 << 16 };
    area a = area_make(state);
    for (int from = 1; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            area_clear(&a);
            cen_matrix x = area_place(&a, 1, HALVES, 0, 0, float_types[from]);
            cen_matrix out = area_place(&a, 1, HALVES, 0, 0, float_types[to]);
            for (uint32_t j = 0; j < HALVES; j++) {
                uint16_t half = (uint16_t)j;
                memcpy(a.host + area_at(&a, &x, 0, j), &half, sizeof half);
            }
            run(&a, &(chain){.count = 0}, &x, &out);
            for (uint32_t j = 0; to && j < HALVES; j++) {
                uint16_t half;
                memcpy(&half, a.got + area_at(&a, &out, 0, j), sizeof half);
                if (from == to) {
                    assert_int_equal(half, j); /* copied */
                } else if (isnan(area_in(&a, &x, 0, j))) {
                    assert_int_equal(half, 0x7FFF);
                }
            }
        }
    }
    area_end(&a);
}

static const cen_dtype sized[] = {CEN_INT8, CEN_FP16, CEN_UINT32, CEN_FP64};

static void bytes_are_filled_and_copied(void **state) {
    area a = area_make(state);
    for (uint64_t rows = 1; rows <= SIDE; rows++) {
        for (uint64_t cols = 1; cols <= SIDE; cols++) {
            cen_dtype dtype = sized[any_below(4)];
            uint64_t size = size_of(dtype), element = any() << 31 ^ any();
            area_clear(&a);
            cen_matrix x = area_any(&a, rows, cols, dtype),
                       filled = area_any(&a, rows, cols, dtype);
            cen_matrix copied = area_any(&a, rows, cols, dtype);
            for (uint64_t at = 0; at < a.used; at++) {
                a.host[at] = (uint8_t)any();
            }
            area_push(&a);
            called(cen_compute_fill(a.device, &element, &filled, 0));
            called(cen_compute_copy(a.device, &x, &copied, 0));
            area_pull(&a, (const cen_matrix *[]){&filled, &copied}, 2);
            for (uint64_t i = 0; i < rows; i++) {
                assert_memory_equal(a.got + area_at(&a, &copied, i, 0),
                                    a.host + area_at(&a, &x, i, 0), cols * size);
                for (uint64_t j = 0; j < cols; j++) {
                    assert_memory_equal(a.got + area_at(&a, &filled, i, j), &element, size);
                }
            }
        }
    }
    area_end(&a);
}

/* Each call fails with its status, and one line that says `text`. */
static void refused(cen_status status, cen_status got, const char *text) {
    assert_int_equal(got, status);
    assert_logged(text);
}

static void what_is_wrong_is_named(void **state) {
    area a = area_make(state);
    cen_device *d = a.device;
    area_clear(&a);
    cen_matrix x = area_place(&a, 4, 6, 6, 0, CEN_FP32), out = area_place(&a, 4, 6, 2, 0, CEN_FP16);
    cen_matrix bad = x, row = area_place(&a, 1, 6, 0, 0, CEN_BF16);
    cen_map_op ops[9] = {{.kind = CEN_MAP_RELU}};
    refused(CEN_ERR_INVALID, cen_compute_map(NULL, ops, 1, &x, &out, 0), "map: device is NULL");
    refused(CEN_ERR_INVALID, cen_compute_map(d, ops, 1, NULL, &out, 0), "map: x is NULL");
    refused(CEN_ERR_INVALID, cen_compute_map(d, NULL, 1, &x, &out, 0), "map: 1 steps at NULL");
    refused(CEN_ERR_INVALID, cen_compute_map(d, ops, 9, &x, &out, 0), "8 is the most");
    refused(CEN_ERR_INVALID, cen_compute_map(d, ops, 2, &x, &out, 0), "step 1 is of kind 0");
    bad.cols = 5;
    refused(CEN_ERR_INVALID, cen_compute_map(d, ops, 1, &x, &bad, 0), "out is 4 x 5, not 4 x 6");
    bad = x;
    bad.dtype = CEN_INT8;
    refused(CEN_ERR_UNSUPPORTED, cen_compute_map(d, ops, 1, &bad, &out, 0), "map: x is int8");
    bad = x;
    bad.data += 4;
    refused(CEN_ERR_INVALID, cen_compute_map(d, ops, 1, &x, &bad, 0), "out and x overlap");
    bad = x;
    bad.stride = UINT64_MAX / 2;
    refused(CEN_ERR_INVALID, cen_compute_map(d, ops, 1, &bad, &out, 0), "no addresses");
    ops[0] = (cen_map_op){.kind = CEN_MAP_ADD, .other = &row};
    refused(CEN_ERR_INVALID, cen_compute_map(d, ops, 1, &x, &out, 0), "step 0's other is 1 x 6");
    ops[0].other = NULL;
    refused(CEN_ERR_INVALID, cen_compute_map(d, ops, 1, &x, &out, 0), "step 0's other is NULL");
    ops[0] = (cen_map_op){.kind = CEN_MAP_ROUND, .dtype = CEN_FP64};
    refused(CEN_ERR_UNSUPPORTED, cen_compute_map(d, ops, 1, &x, &out, 0), "rounds to fp64");
    for (int i = 0; i < 5; i++) {
        ops[i] = (cen_map_op){.kind = CEN_MAP_ADD, .other = &x};
    }
    refused(CEN_ERR_INVALID, cen_compute_map(d, ops, 5, &x, &out, 0), "5 matrices");
    refused(CEN_ERR_INVALID, cen_compute_fill(d, NULL, &x, 0), "fill: element is NULL");
    refused(CEN_ERR_INVALID, cen_compute_copy(d, &x, &out, 0),
            "copy: out is 4 x 6 fp16, x 4 x 6 fp32");
    area_end(&a);
}

static void nothing_takes_nothing(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    const cen_matrix none = {.cols = 7, .stride = 7, .dtype = CEN_FP32};
    const cen_map_op relu = {.kind = CEN_MAP_RELU};
    OK(cen_compute_map(d, &relu, 1, &none, &none, 0));
    OK(cen_compute_copy(d, &none, &none, 0));
    OK(cen_compute_fill(d, &relu, &none, 0));
}

/* Columns of one matrix, side by side, are apart. */
static void columns_side_by_side(void **state) {
    area a = area_make(state);
    area_clear(&a);
    cen_matrix all = area_place(&a, 20, 30, 0, 0, CEN_FP32), x = all, out = all;
    x.cols = out.cols = 13;
    out.data += 15 * 4;
    area_fill(&a, &all, 0, 1);
    chain c = {.ops = {{.kind = CEN_MAP_SCALE, .alpha = 3}}, .count = 1};
    run(&a, &c, &x, &out);
    run(&a, &c, &out, &x);
    area_end(&a);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(steps_with_a_kernel_of_their_own),
    SUITE_TEST(any_chain_of_every_shape),
    SUITE_TEST(results_may_take_the_place_of_inputs),
    SUITE_TEST(special_values_go_as_ieee_says),
    SUITE_TEST(every_half_is_converted),
    SUITE_TEST(bytes_are_filled_and_copied),
    SUITE_TEST(what_is_wrong_is_named),
    SUITE_TEST(nothing_takes_nothing),
    SUITE_TEST(columns_side_by_side),
};
SUITE_MAIN(tests)
