/* Products against double precision, by every kernel: types, transpositions, shapes, strides and
 * alignments. What is done to the sums: test_product_epilogue.c. */
#include "tests/conformance/product_suite.h"

static const fixture *fixture_of(void **state) {
    return *state;
}

/* Each transposition and type at shapes of up to 40; which of them are met changes with the seed.
 */
static void small_shapes_are_exact(void **state) {
    arena a = arena_make(fixture_of(state)->device);
    for (int round = 0; round < 12; round++) {
        for (int kind = 0; kind < 4 * PRODUCT_TYPES; kind++) {
            trial t = plain_trial(1 + below(40), 1 + below(40), 1 + below(40), kind / 4);
            t.transpose_a = kind & 1;
            t.transpose_b = kind & 2;
            random_places(&t);
            try_product(*state, &a, &t);
        }
    }
}

/* Around the edges of tiles and of what is in flight. */
static void edges_of_tiles_are_exact(void **state) {
    static const uint64_t sides[] = {1, 15, 16, 31, 33, 63, 64, 65, 127, 128, 129, 255, 257};
    static const uint64_t depths[] = {0, 1, 7, 8, 16, 31, 32, 63, 64, 65, 127, 129, 192, 260};
    arena a = arena_make(fixture_of(state)->device);
    int rounds = kernels_differ(*state) ? 40 : 2;
    for (int round = 0; round < rounds; round++) {
        for (int types = 0; types < PRODUCT_TYPES; types++) {
            trial t = plain_trial(sides[below(13)], sides[below(13)], depths[below(14)], types);
            t.transpose_a = below(2);
            t.transpose_b = below(2);
            random_places(&t);
            try_product(*state, &a, &t);
        }
    }
}

/* Several tiles for a block that goes on, bands of tiles that end early, more stages than there are
 * and fewer. */
static void large_shapes_are_exact(void **state) {
    static const uint64_t shapes[][3] = {
        {1031, 517, 259}, {2304, 2560, 64}, {257, 4099, 129}, {4097, 40, 1027}, {130, 130, 4099}};
    if (!kernels_differ(*state)) {
        suite_skip("one twin serves all shapes here, and takes long for large ones");
    }
    arena a = arena_make(fixture_of(state)->device);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int types = 0; types < PRODUCT_TYPES; types++) {
            trial t = plain_trial(shapes[i][0], shapes[i][1], shapes[i][2], types);
            t.transpose_a = below(2);
            t.transpose_b = below(2);
            random_places(&t);
            try_product(*state, &a, &t);
        }
    }
}

/* What is empty launches nothing, and needs no memory. */
static void empty_products_do_nothing(void **state) {
    cen_device *d = fixture_of(state)->device;
    cen_product p = {.size = sizeof p,
                     .a = {0, 0, 7, 7, CEN_FP32},
                     .b = {4096, 7, 3, 3, CEN_FP32},
                     .d = {0, 0, 3, 3, CEN_FP32},
                     .alpha = 1};
    size_t count = 1;
    OK(cen_product_list(d, &p, NULL, 0, &count));
    assert_int_equal(count, 0);
    OK(cen_product_run(d, &p, 0));
}

/* The list is cut to its capacity and tells all; names of others are refused. */
static void kernels_are_listed_and_forced(void **state) {
    cen_device *d = fixture_of(state)->device;
    arena a = arena_make(d);
    trial t = plain_trial(64, 64, 64, 0);
    operands o = operands_make(&a, &t);
    cen_product p = product_of(&t, &o);
    cen_product_kernel two[2] = {{0}}, five[5];
    size_t count = 0;
    OK(cen_product_list(d, &p, two, 1, &count));
    assert_int_equal(count, 5);
    assert_string_equal(two[0].name, "cen_product_fp32_64_nn");
    assert_int_equal(two[0].tile[0], 128);
    assert_int_equal(two[0].blocks, 1);
    assert_null(two[1].name);
    OK(cen_product_list(d, &p, five, 5, &count));
    assert_string_equal(five[1].name, "cen_product_fp32_nn");
    assert_string_equal(five[4].name, "cen_product_naive");
    suite_log_reset();
    p.kernel = "cen_product_mma_bf16_nn";
    FAILS(CEN_ERR_NOT_FOUND, cen_product_run(d, &p, 0));
    assert_logged("'cen_product_mma_bf16_nn' is no kernel that does this product");
    operands_free(&o);
}

/* Of tiles of 128 and of 64 columns those that the busiest multiprocessor is done with first. */
static void tiles_of_fp32_fit_the_shape(void **state) {
    static const struct {
        uint64_t m, n;
        const char *first;
    } cases[] = {
        {128, 64, "cen_product_fp32_64_nt"}, {128, 128, "cen_product_fp32_64_nt"},
        {512, 128, "cen_product_fp32_nt"},   {512, 192, "cen_product_fp32_64_nt"},
        {1024, 256, "cen_product_fp32_nt"},  {256, 192, "cen_product_fp32_nt"},
    };
    cen_device *d = fixture_of(state)->device;
    uint32_t multiprocessors = d->multiprocessors;
    arena a = arena_make(d);
    d->multiprocessors = 4;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cen_product_kernel first;
        size_t count = 0;
        trial t = plain_trial(cases[i].m, cases[i].n, 8, 0);
        t.transpose_b = true;
        operands o = operands_make(&a, &t);
        cen_product p = product_of(&t, &o);
        OK(cen_product_list(d, &p, &first, 1, &count));
        assert_string_equal(first.name, cases[i].first);
        operands_free(&o);
    }
    d->multiprocessors = multiprocessors;
}

/* A device that copies boxes, on any backend: the fixture's own, which is told so. */
static int maps_made;
static cen_status maps_status;
static ceni_tiled maps_seen[3];

static cen_status make_no_map(cen_device *device, const ceni_tiled *tiled, ceni_tensor_map *map) {
    maps_seen[maps_made++ % 3] = *tiled;
    memset(map, 0, sizeof *map);
    return maps_status;
}

static size_t list_on_hopper(cen_device *d, const trial *t, arena *a,
                             cen_product_kernel kernels[8]) {
    size_t count = 0;
    operands o = operands_make(a, t);
    cen_product p = product_of(t, &o);
    OK(cen_product_list(d, &p, kernels, 8, &count));
    operands_free(&o);
    return count;
}

/* Boxes are copied of what is aligned to 16 bytes, by the tile that takes fewer rounds. */
static void tensor_maps_are_used_where_they_can_be(void **state) {
    cen_device *d = fixture_of(state)->device;
    ceni_backend backend = *d->backend;
    const ceni_backend *own = d->backend;
    uint32_t capability = d->compute_capability, multiprocessors = d->multiprocessors;
    arena a = arena_make(d);
    cen_product_kernel kernels[8];
    backend.tensor_map = make_no_map;
    d->backend = &backend;
    d->compute_capability = 90;
    d->multiprocessors = 4;
    trial t = plain_trial(256, 512, 64, 1);
    t.transpose_b = true;
    assert_int_equal(list_on_hopper(d, &t, &a, kernels), 4);
    assert_string_equal(kernels[0].name, "cen_product_wgmma_bf16_nt");
    assert_string_equal(kernels[1].name, "cen_product_wgmma128_bf16_nt");
    assert_string_equal(kernels[2].name, "cen_product_wgmma_pair_bf16_nt");
    assert_string_equal(kernels[3].name, "cen_product_mma_bf16_nt");
    assert_int_equal(kernels[2].tile[0], 256);
    assert_int_equal(kernels[2].blocks, 4);
    assert_int_equal(kernels[0].blocks, 4);
    assert_int_equal(kernels[1].blocks, 4); /* for 8 tiles */
    t.m = t.n = 128;                        /* nothing for the second of a pair */
    assert_int_equal(list_on_hopper(d, &t, &a, kernels), 3);
    assert_string_equal(kernels[0].name, "cen_product_wgmma128_bf16_nt");
    t.extra[1] = 4; /* rows of 136 bytes */
    assert_int_equal(list_on_hopper(d, &t, &a, kernels), 1);
    t.extra[1] = 0;
    t.offset[0] = 1;
    assert_int_equal(list_on_hopper(d, &t, &a, kernels), 1);
    t.offset[0] = 0;
    t.k = 0;
    assert_int_equal(list_on_hopper(d, &t, &a, kernels), 1);
    d->backend = own;
    d->compute_capability = capability;
    d->multiprocessors = multiprocessors;
}

/* A driver without tensor maps: the next kernel is taken, and nothing is logged; what goes wrong
 * otherwise is said. */
static void without_tensor_maps_the_next_kernel_is_taken(void **state) {
    cen_device *d = fixture_of(state)->device;
    ceni_backend backend = *d->backend;
    const ceni_backend *own = d->backend;
    uint32_t capability = d->compute_capability;
    arena a = arena_make(d);
    trial t = plain_trial(40, 72, 24, 1);
    operands o = operands_make(&a, &t);
    cen_product p = product_of(&t, &o);
    backend.tensor_map = make_no_map;
    d->backend = &backend;
    d->compute_capability = 90;
    maps_made = 0;
    maps_status = CEN_ERR_UNSUPPORTED;
    prepare_result(&a, &t, &o);
    suite_log_reset();
    cen_status status = cen_product_run(d, &p, 0);
    maps_status = CEN_ERR_DEVICE;
    cen_status other = cen_product_run(d, &p, 0);
    d->backend = own;
    d->compute_capability = capability;
    skip_without_kernels(status);
    OK(status);
    assert_int_equal(other, CEN_ERR_DEVICE);
    assert_int_equal(suite_log_errors, 0);
    assert_int_equal(maps_made, 3);
    read_back(&a, &o.d, "after no map");
    check_result(&t, &o, "after no map");
    operands_free(&o);
}

/* The maps that a kernel's launch makes, without it; how many. */
static int maps_of(cen_device *d, const cen_product *p) {
    ceni_backend backend = *d->backend;
    const ceni_backend *own = d->backend;
    uint32_t capability = d->compute_capability;
    backend.tensor_map = make_no_map;
    maps_made = 0;
    maps_status = CEN_OK;
    d->backend = &backend;
    d->compute_capability = 90;
    ceni_dev_fault(d, CENI_OP_launch, 1, false);
    cen_status status = cen_product_run(d, p, 0);
    d->backend = own;
    d->compute_capability = capability;
    assert_int_equal(status, CEN_ERR_DEVICE);
    return maps_made;
}

/* Boxes run along rows as they lie: [rows, 64 columns] of what lies along the sum, else turned. */
static void boxes_fit_the_layout(void **state) {
    cen_device *d = fixture_of(state)->device;
    arena a = arena_make(d);
    trial t = plain_trial(40, 72, 24, 1);
    t.extra[1] = 8;
    operands o = operands_make(&a, &t);
    cen_product p = product_of(&t, &o);
    p.kernel = "cen_product_wgmma_bf16_nn";
    assert_int_equal(maps_of(d, &p), 3);
    assert_int_equal(maps_seen[0].data, o.a.matrix.data);
    assert_int_equal(maps_seen[0].cols, 24);
    assert_int_equal(maps_seen[0].rows, 40);
    assert_int_equal(maps_seen[0].box_cols, 64);
    assert_int_equal(maps_seen[0].box_rows, 128);
    assert_int_equal(maps_seen[1].cols, 72);
    assert_int_equal(maps_seen[1].rows, 24);
    assert_int_equal(maps_seen[1].stride, 160);
    assert_int_equal(maps_seen[1].box_rows, 64);
    assert_int_equal(maps_seen[2].data, o.d.matrix.data);
    assert_int_equal(maps_seen[2].cols, 72);
    assert_int_equal(maps_seen[2].rows, 40);
    assert_int_equal(maps_seen[2].stride, 144);
    assert_int_equal(maps_seen[2].box_cols, 64);
    assert_int_equal(maps_seen[2].box_rows, 16);
    operands_free(&o);
}

/* D leaves in boxes where it and what goes with it lie so, and no scale does; else by stores. */
static void results_leave_in_boxes_where_they_can(void **state) {
    cen_device *d = fixture_of(state)->device;
    arena a = arena_make(d);
    for (int which = 0; which < 8; which++) {
        trial t = plain_trial(40, which == 1 ? 70 : 72, 24, which == 2 ? 3 : 1);
        t.residual = which == 3 || which == 5;
        t.beta = which == 4 || which == 5;
        t.row_scale = which == 6;
        t.extra[1] = which == 1 ? 2 : 0;
        t.extra[3] = which == 1 ? 2 : 0;
        t.offset[3] = which == 7 ? 4 : 0;
        operands o = operands_make(&a, &t);
        cen_product p = product_of(&t, &o);
        p.kernel = "cen_product_wgmma_bf16_nn";
        bool fits = which == 0 || which == 3 || which == 4;
        assert_int_equal(maps_of(d, &p), fits ? 3 : 2);
        if (fits) { /* not in the kernel of narrower tiles */
            p.kernel = "cen_product_wgmma128_bf16_nn";
            assert_int_equal(maps_of(d, &p), 2);
        }
        operands_free(&o);
    }
}

typedef struct refusal {
    const char *text;
    cen_status status;
    void (*spoil)(cen_product *p);
} refusal;

#define SPOIL(name, change)                                                                        \
    static void name(cen_product *p) {                                                             \
        change;                                                                                    \
    }
SPOIL(no_size, p->size = 8)
SPOIL(no_type, p->a.dtype = (cen_dtype)0)
SPOIL(short_rows, p->b.stride = p->b.cols - 1)
SPOIL(no_memory, p->d.data = 0)
SPOIL(odd_address, p->a.data += 2)
SPOIL(mixed_types, p->b.dtype = CEN_INT32)
SPOIL(no_combination, p->d.dtype = CEN_INT32)
SPOIL(unlike_depths, p->transpose_a = true)
SPOIL(unlike_result, p->d.rows--)
SPOIL(unlike_c, p->beta = 1; p->c = p->d; p->c.cols--)
SPOIL(c_beside_d, p->beta = 1; p->c = p->d; p->c.data += 4)
SPOIL(residual_type, p->residual = p->d; p->residual.dtype = CEN_INT32)
SPOIL(d_in_a, p->d.data = p->a.data)
SPOIL(d_in_b, p->d.data = p->b.data + 8)
SPOIL(bias_type, p->bias = 4096; p->bias_dtype = CEN_BF16)
SPOIL(bias_in_d, p->bias = p->d.data; p->bias_dtype = CEN_FP32)
SPOIL(odd_bias, p->bias = 4097; p->bias_dtype = CEN_FP32)
SPOIL(scale_in_d, p->col_scale = p->d.data)
SPOIL(no_activation, p->activation = (cen_activation)9)
SPOIL(too_long, p->a.cols = p->a.stride = p->b.rows = UINT64_C(1) << 31)
SPOIL(no_addresses, p->a.stride = UINT64_MAX)

static const refusal refusals[] = {
    {"product: product.size is 8; ", CEN_ERR_INVALID, no_size},
    {"product: A has elements of type ?", CEN_ERR_INVALID, no_type},
    {"product: B has rows of 24 elements, 23 apart", CEN_ERR_INVALID, short_rows},
    {"product: D has no memory", CEN_ERR_INVALID, no_memory},
    {"product: A lies at", CEN_ERR_INVALID, odd_address},
    {"product: no kernel makes fp32 of fp32 and int32", CEN_ERR_UNSUPPORTED, mixed_types},
    {"product: no kernel makes int32 of fp32 and fp32", CEN_ERR_UNSUPPORTED, no_combination},
    {"product: op(A) is 32 x 16, but op(B) 32 x 24", CEN_ERR_INVALID, unlike_depths},
    {"product: D is 15 x 24; op(A) op(B) is 16 x 24", CEN_ERR_INVALID, unlike_result},
    {"product: C is 16 x 23 fp32, D 16 x 24 fp32", CEN_ERR_INVALID, unlike_c},
    {"product: C overlaps D and is not D", CEN_ERR_INVALID, c_beside_d},
    {"product: residual is 16 x 24 int32", CEN_ERR_INVALID, residual_type},
    {"product: D overlaps A", CEN_ERR_INVALID, d_in_a},
    {"product: D overlaps B", CEN_ERR_INVALID, d_in_b},
    {"product: bias is of bf16", CEN_ERR_UNSUPPORTED, bias_type},
    {"product: D overlaps bias", CEN_ERR_INVALID, bias_in_d},
    {"product: bias lies at 0x1001", CEN_ERR_INVALID, odd_bias},
    {"product: D overlaps col_scale", CEN_ERR_INVALID, scale_in_d},
    {"product: activation 9 is none", CEN_ERR_INVALID, no_activation},
    {"dimensions are less than 2^31", CEN_ERR_UNSUPPORTED, too_long},
    {"product: A of 16 x 32 fp32", CEN_ERR_INVALID, no_addresses},
};

static void bad_products_are_refused(void **state) {
    cen_device *d = fixture_of(state)->device;
    arena a = arena_make(d);
    trial t = plain_trial(16, 24, 32, 0);
    operands o = operands_make(&a, &t);
    cen_product good = product_of(&t, &o);
    prepare_result(&a, &t, &o);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        cen_product p = good;
        refusals[i].spoil(&p);
        suite_log_reset();
        cen_status status = cen_product_run(d, &p, 0);
        if (status != refusals[i].status) {
            fail_msg("'%s': status %d", refusals[i].text, status);
        }
        assert_logged(refusals[i].text);
    }
    FAILS(CEN_ERR_INVALID, cen_product_run(d, NULL, 0));
    assert_logged("product is NULL");
    FAILS(CEN_ERR_INVALID, cen_product_run(NULL, &good, 0));
    assert_logged("product: device is NULL");
    FAILS(CEN_ERR_INVALID, cen_product_list(d, &good, NULL, 0, NULL));
    assert_logged("count is NULL");
    read_back(&a, &o.d, "after refusals");
    for (uint64_t i = 0; i < o.d.bytes; i++) {
        assert_int_equal(o.d.host[i], POISON);
    }
    operands_free(&o);
}

/* A sum of whole numbers takes nothing else. */
static void whole_results_are_plain(void **state) {
    cen_device *d = fixture_of(state)->device;
    arena a = arena_make(d);
    trial t = plain_trial(16, 24, 32, 5);
    operands o = operands_make(&a, &t);
    cen_product p = product_of(&t, &o);
    p.activation = CEN_ACTIVATION_RELU;
    FAILS(CEN_ERR_UNSUPPORTED, cen_product_run(d, &p, 0));
    assert_logged("D of int32 is the plain product");
    operands_free(&o);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(small_shapes_are_exact),
    SUITE_TEST(edges_of_tiles_are_exact),
    SUITE_TEST(large_shapes_are_exact),
    SUITE_TEST(empty_products_do_nothing),
    SUITE_TEST(kernels_are_listed_and_forced),
    SUITE_TEST(tiles_of_fp32_fit_the_shape),
    SUITE_TEST(tensor_maps_are_used_where_they_can_be),
    SUITE_TEST(without_tensor_maps_the_next_kernel_is_taken),
    SUITE_TEST(boxes_fit_the_layout),
    SUITE_TEST(results_leave_in_boxes_where_they_can),
    SUITE_TEST(bad_products_are_refused),
    SUITE_TEST(whole_results_are_plain),
};

int main(void) {
    random_begin();
    return suite_run(tests, sizeof tests / sizeof *tests);
}
