/* Products whose B is encoded, by every kernel, against double precision with what the codec on the
 * host decodes it to, rounded to the type of A: formats, units, shapes, layouts, alignments. */
#include "tests/conformance/product_suite.h"

#include "cenote/codec.h"

enum { PARTS = 4 };

/* Formats that are decoded on the way, each with its units and with and without zero points. */
static const cen_codec_format formats[] = {
    CEN_CODEC_INT8,        CEN_CODEC_INT4,        CEN_CODEC_FP8_E4M3,   CEN_CODEC_FP8_E5M2,
    CEN_CODEC_SPARSE_FP16, CEN_CODEC_SPARSE_BF16, CEN_CODEC_SPARSE_INT8};
enum { FORMATS = sizeof formats / sizeof *formats, CODECS = FORMATS * 16 };

/* The number-th; those that do not exist become others of their format. */
static cen_codec codec_of(int number) {
    cen_codec c = {.format = formats[number / 16]};
    bool whole = cen_codec_format_dtype(c.format) == CEN_INT8 || c.format == CEN_CODEC_INT4;
    bool fp8 = c.format == CEN_CODEC_FP8_E4M3 || c.format == CEN_CODEC_FP8_E5M2;
    int units = number % 8;
    if (!whole && !fp8) {
        return c;
    }
    c.asymmetric = whole && number % 16 >= 8;
    if (units < 3) {
        c.granularity = CEN_CODEC_GROUP;
        c.group = 32u << units;
    } else if (units == 3) {
        c.granularity = CEN_CODEC_BLOCK;
        c.block_rows = 1 + (uint32_t)below(40);
        c.block_cols = below(3) ? 16u << below(3) : below(2) ? 1 : 65536;
    } else if (units == 7 && fp8) {
        c.granularity = CEN_CODEC_UNSCALED;
    } else {
        c.granularity = (cen_codec_granularity)(CEN_CODEC_TENSOR + units % 3);
    }
    return c;
}

/* An encoded B on the device, and what is poisoned around it. */
typedef struct weight {
    cen_codec codec;
    cen_codec_parts parts, host;
    uint8_t *memory[PARTS];
} weight;

static cen_addr *part_at(cen_codec_parts *p, int part) {
    cen_addr *const all[PARTS] = {&p->values, &p->scales, &p->zeros, &p->metadata};
    return all[part];
}

static uint64_t size_of(const cen_codec_sizes *s, int part) {
    const uint64_t all[PARTS] = {s->values, s->scales, s->zeros, s->metadata};
    return all[part];
}

/* Parts lie where B's elements would have: offset 0 to 7, times what each part has to be aligned
 * to, or a multiple of 16. */
static weight weight_make(arena *a, const trial *t, const cen_codec *codec, uint64_t rows,
                          uint64_t cols) {
    weight w = {.codec = *codec};
    uint64_t bits = cen_dtype_bits(cen_codec_format_dtype(codec->format));
    const uint64_t unit[PARTS] = {bits == 16 ? 2 : 1, 4, 1, 2};
    OK(cen_codec_bound(codec, rows, cols, &w.parts.bytes));
    w.host.bytes = w.parts.bytes;
    for (int i = 0; i < PARTS; i++) {
        uint64_t size = size_of(&w.parts.bytes, i), lead = GUARD_BYTES + t->offset[1] * unit[i];
        cen_addr base = arena_take(a, lead + size + GUARD_BYTES);
        w.memory[i] = malloc(size + 1);
        assert_non_null(w.memory[i]);
        OK(cen_fill_async(a->device, base, POISON, lead + size + GUARD_BYTES, 0));
        *part_at(&w.parts, i) = base + lead;
        *part_at(&w.host, i) = (cen_addr)(uintptr_t)w.memory[i];
    }
    return w;
}

static void weight_write(arena *a, weight *w) {
    for (int i = 0; i < PARTS; i++) {
        uint64_t size = size_of(&w->parts.bytes, i);
        if (size) {
            suite_write(a->device, *part_at(&w->parts, i), w->memory[i], size);
        }
    }
}

static void weight_free(weight *w) {
    for (int i = 0; i < PARTS; i++) {
        free(w->memory[i]);
    }
}

/* What the parts decode to, into the reference's B. */
static void weight_decode(const weight *w, twofold *b) {
    uint64_t rows = b->matrix.rows, cols = b->matrix.cols;
    float *decoded = malloc((rows * cols + 1) * sizeof *decoded);
    assert_non_null(decoded);
    cen_matrix to = {(cen_addr)(uintptr_t)decoded, rows, cols, cols, CEN_FP32};
    OK(cen_codec_decode(&w->codec, &w->host, &to));
    for (uint64_t i = 0; i < rows * cols; i++) {
        put(b, i / cols, i % cols, decoded[i]);
    }
    free(decoded);
}

/* Of numbers from -1 to 1, some of them far smaller, so that units differ. */
static weight weight_random(arena *a, const trial *t, const cen_codec *codec, twofold *b) {
    uint64_t rows = b->matrix.rows, cols = b->matrix.cols;
    float *source = malloc((rows * cols + 1) * sizeof *source);
    assert_non_null(source);
    for (uint64_t i = 0; i < rows * cols; i++) {
        float size = i / 16 % 3 ? 1 : 0x1p-4f;
        source[i] = size * (float)((double)below(1 << 24) / (1 << 23) - 0.9);
    }
    cen_matrix from = {(cen_addr)(uintptr_t)source, rows, cols, cols, CEN_FP32};
    weight w = weight_make(a, t, codec, rows, cols);
    OK(cen_codec_encode(codec, &from, &w.host, NULL, NULL));
    free(source);
    weight_write(a, &w);
    weight_decode(&w, b);
    return w;
}

static cen_product coded_product(const trial *t, const operands *o, const weight *w) {
    cen_product p = product_of(t, o);
    p.b.data = p.b.stride = 0;
    p.b_codec = &w->codec;
    p.b_parts = w->parts;
    return p;
}

static void try_coded(const fixture *f, arena *a, const trial *t, const cen_codec *codec) {
    char how[128];
    operands o = operands_make(a, t);
    weight w = weight_random(a, t, codec, &o.b);
    snprintf(how, sizeof how, " codec %s units %d group %u block %u x %u%s",
             cen_codec_format_name(codec->format), (int)codec->granularity, codec->group,
             codec->block_rows, codec->block_cols, codec->asymmetric ? " zero points" : "");
    try_kernels(f, a, t, &o, coded_product(t, &o, &w), how);
    weight_free(&w);
    operands_free(&o);
}

/* Types 1 to 4 of product_types have B of 16 bits. */
static trial random_trial(uint64_t m, uint64_t n, uint64_t k) {
    trial t = random_epilogue(m, n, k, 1 + (int)below(4));
    random_places(&t);
    t.kernel = "coded";
    return t;
}

static void small_shapes_are_exact(void **state) {
    arena a = arena_make(((fixture *)*state)->device);
    int rounds = kernels_differ(*state) ? 6 : 2;
    for (int round = 0; round < rounds; round++) {
        for (int number = 0; number < CODECS; number++) {
            cen_codec codec = codec_of(number);
            trial t = random_trial(1 + below(40), 1 + below(40), 1 + below(40));
            try_coded(*state, &a, &t, &codec);
        }
    }
}

/* Around the edges of tiles, groups and what is in flight; and nothing to sum up. */
static void edges_are_exact(void **state) {
    static const uint64_t sides[] = {1, 15, 16, 17, 31, 33, 63, 65, 127, 128, 129, 257};
    static const uint64_t depths[] = {0, 15, 16, 31, 32, 33, 64, 97, 127, 129, 255, 256, 260, 530};
    arena a = arena_make(((fixture *)*state)->device);
    bool all = kernels_differ(*state); /* or the same twin, for which a few will do */
    for (int round = 0; round < (all ? 8 : 1); round++) {
        for (int number = all ? 0 : (int)below(3); number < CODECS; number += all ? 1 : 3) {
            cen_codec codec = codec_of(number);
            trial t = random_trial(sides[below(all ? 12 : 5)], sides[below(all ? 12 : 9)],
                                   depths[below(14)]);
            try_coded(*state, &a, &t, &codec);
        }
    }
}

static void large_shapes_are_exact(void **state) {
    static const uint64_t shapes[][3] = {
        {16, 1000, 4112}, {1, 4096, 1031}, {300, 517, 1059}, {64, 2304, 2048}, {2100, 130, 130}};
    if (!kernels_differ(*state)) {
        suite_skip("one twin serves all shapes here, and takes long for large ones");
    }
    arena a = arena_make(((fixture *)*state)->device);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int format = 0; format < FORMATS; format++) {
            cen_codec codec = codec_of(format * 16 + (int)below(16));
            trial t = random_trial(shapes[i][0], shapes[i][1], shapes[i][2]);
            try_coded(*state, &a, &t, &codec);
        }
    }
}

/* Runs one product, by each kernel, and reads D back. */
static void run_each(const fixture *f, arena *a, const trial *t, operands *o, const cen_product *p,
                     void (*look)(const trial *t, const operands *o)) {
    cen_product_kernel kernels[4];
    cen_product product = *p;
    size_t count = 0;
    OK(cen_product_list(a->device, p, kernels, 4, &count));
    for (size_t i = 0; i < (kernels_differ(f) ? count : 1); i++) {
        product.kernel = kernels[i].name;
        prepare_result(a, t, o);
        cen_status status = cen_product_run(a->device, &product, 0);
        skip_without_kernels(status);
        OK(status);
        read_back(a, &o->d, product.kernel);
        look(t, o);
    }
}

static void all_are_zero(const trial *t, const operands *o) {
    for (uint64_t i = 0; i < t->m * t->n; i++) {
        assert_true(get(&o->d, i / t->n, i % t->n) == 0);
    }
}

/* Codes of 0, which fill up the last run of a row, decode to -infinity here: it takes no part. */
static void behind_a_row_there_is_nothing(void **state) {
    static const cen_codec codecs[] = {
        {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW, .asymmetric = true},
        {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_TENSOR, .asymmetric = true},
        {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_COLUMN, .asymmetric = true},
        {.format = CEN_CODEC_SPARSE_INT8, .granularity = CEN_CODEC_ROW, .asymmetric = true}};
    arena a = arena_make(((fixture *)*state)->device);
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        for (uint64_t k = 33; k < 50; k++) {
            trial t = plain_trial(5, 9, k, 2);
            t.transpose_b = true;
            operands o = operands_make(&a, &t);
            weight w = weight_make(&a, &t, &codecs[i], 9, k);
            memset(w.memory[0], codecs[i].format == CEN_CODEC_INT4 ? 0x77 : 7, w.host.bytes.values);
            memset(w.memory[2], 7, w.host.bytes.zeros);
            memset(w.memory[3], 0x44, w.host.bytes.metadata);
            for (uint64_t j = 0; j < w.host.bytes.scales / sizeof(float); j++) {
                const float huge = 1e30f;
                memcpy(w.memory[1] + j * sizeof huge, &huge, sizeof huge);
            }
            weight_write(&a, &w);
            cen_product p = coded_product(&t, &o, &w);
            run_each(*state, &a, &t, &o, &p, all_are_zero);
            weight_free(&w);
            operands_free(&o);
        }
    }
}

static void only_column_6_is_not_finite(const trial *t, const operands *o) {
    for (uint64_t i = 0; i < t->m * t->n; i++) {
        assert_int_equal(!isfinite(get(&o->d, i / t->n, i % t->n)), i % t->n == 6);
    }
}

static void only_row_3_is_nan(const trial *t, const operands *o) {
    for (uint64_t i = 0; i < t->m * t->n; i++) {
        assert_int_equal(isnan(get(&o->d, i / t->n, i % t->n)), i / t->n == 3);
    }
}

/* NaN and infinity of B spoil their column, of A its row, and nothing else. */
static void what_is_not_finite_stays_so(void **state) {
    static const cen_codec codecs[] = {
        {.format = CEN_CODEC_FP8_E4M3, .granularity = CEN_CODEC_GROUP, .group = 32},
        {.format = CEN_CODEC_FP8_E5M2,
         .granularity = CEN_CODEC_ROW,
         .overflow = CEN_CODEC_NONFINITE},
        {.format = CEN_CODEC_FP8_E4M3},
        {.format = CEN_CODEC_SPARSE_FP16},
        {.format = CEN_CODEC_SPARSE_BF16}};
    arena a = arena_make(((fixture *)*state)->device);
    for (int i = 0; i < 5 * 4; i++) {
        trial t = plain_trial(20, 40, 70, 1 + i % 4);
        t.transpose_b = true;
        operands o = operands_make(&a, &t);
        put(&o.a, 3, 11, 0.5f);
        cen_matrix source = o.b.matrix;
        put(&o.b, 6, 21, i % 2 || codecs[i / 4].format == CEN_CODEC_FP8_E4M3 ? NAN : INFINITY);
        source.data = (cen_addr)(uintptr_t)element(&o.b, 0, 0);
        weight w = weight_make(&a, &t, &codecs[i / 4], 40, 70);
        OK(cen_codec_encode(&w.codec, &source, &w.host, NULL, NULL));
        weight_write(&a, &w);
        cen_product p = coded_product(&t, &o, &w);
        run_each(*state, &a, &t, &o, &p, only_column_6_is_not_finite);
        weight_free(&w);
        put(&o.b, 6, 21, 1);
        w = weight_make(&a, &t, &codecs[i / 4], 40, 70);
        OK(cen_codec_encode(&w.codec, &source, &w.host, NULL, NULL));
        weight_write(&a, &w);
        put(&o.a, 3, 11, NAN);
        suite_write(a.device, o.a.base, o.a.host, o.a.bytes);
        p = coded_product(&t, &o, &w);
        run_each(*state, &a, &t, &o, &p, only_row_3_is_nan);
        weight_free(&w);
        operands_free(&o);
    }
}

/* Any metadata decodes to what cen_codec_decode_async makes of it. */
static void any_metadata_is_safe(void **state) {
    static const cen_codec codecs[] = {
        {.format = CEN_CODEC_SPARSE_FP16},
        {.format = CEN_CODEC_SPARSE_BF16},
        {.format = CEN_CODEC_SPARSE_INT8, .granularity = CEN_CODEC_COLUMN}};
    arena a = arena_make(((fixture *)*state)->device);
    for (int i = 0; i < 3 * 8; i++) {
        trial t = random_trial(9, 30, 45);
        operands o = operands_make(&a, &t);
        weight w = weight_random(&a, &t, &codecs[i / 8], &o.b);
        for (uint64_t j = 0; j < w.host.bytes.metadata; j++) {
            w.memory[3][j] = (uint8_t)random_word();
        }
        weight_write(&a, &w);
        cen_status status = cen_codec_decode_async(a.device, &w.codec, &w.parts, &o.b.matrix, 0);
        skip_without_kernels(status);
        OK(status);
        suite_read(a.device, o.b.host, o.b.base, o.b.bytes);
        try_kernels(*state, &a, &t, &o, coded_product(&t, &o, &w), " random metadata");
        weight_free(&w);
        operands_free(&o);
    }
}

/* Of few rows small tiles are first, that more multiprocessors have one; a dense kernel is none of
 * those. */
static void kernels_are_listed(void **state) {
    static const struct {
        uint64_t m, n;
        const char *names[3];
    } cases[] = {{16, 960, {"coded16", "coded64", "coded"}},
                 {17, 960, {"coded64", "coded16", "coded"}},
                 {128, 512, {"coded64", "coded", "coded16"}},
                 {300, 640, {"coded", "coded64", "coded16"}}};
    cen_device *d = ((fixture *)*state)->device;
    uint32_t multiprocessors = d->multiprocessors, capability = d->compute_capability;
    arena a = arena_make(d);
    cen_codec codec = {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_GROUP, .group = 64};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cen_product_kernel kernels[4];
        size_t count = 0, few = 0;
        trial t = plain_trial(cases[i].m, cases[i].n, 20, 1);
        t.transpose_b = true;
        operands o = operands_make(&a, &t);
        weight w = weight_random(&a, &t, &codec, &o.b);
        cen_product p = coded_product(&t, &o, &w);
        d->multiprocessors = 30;
        d->compute_capability = 80;
        cen_status status = cen_product_list(d, &p, kernels, 4, &count);
        OK(status);
        d->compute_capability = 89; /* whose blocks have less shared memory */
        status = cen_product_list(d, &p, NULL, 0, &few);
        d->multiprocessors = multiprocessors;
        d->compute_capability = capability;
        OK(status);
        assert_int_equal(few, 1);
        assert_int_equal(count, 3);
        for (int j = 0; j < 3; j++) {
            char name[64];
            snprintf(name, sizeof name, "cen_product_%s_bf16_nt", cases[i].names[j]);
            assert_string_equal(kernels[j].name, name);
            assert_int_equal(kernels[j].blocks,
                             (t.m + kernels[j].tile[0] - 1) / kernels[j].tile[0] *
                                 ((t.n + kernels[j].tile[1] - 1) / kernels[j].tile[1]));
        }
        suite_log_reset();
        p.kernel = "cen_product_mma_bf16_nt";
        FAILS(CEN_ERR_NOT_FOUND, cen_product_run(d, &p, 0));
        assert_logged("is no kernel that does this product");
        weight_free(&w);
        operands_free(&o);
    }
}

typedef struct refusal {
    const char *text;
    cen_status status;
    void (*spoil)(cen_product *p, cen_codec *c);
} refusal;

#define SPOIL(name, change)                                                                        \
    static void name(cen_product *p, cen_codec *c) {                                               \
        change;                                                                                    \
    }
SPOIL(two_places, p->b.data = 4096)
SPOIL(no_codec, c->format = (cen_codec_format)99)
SPOIL(no_group, c->group = 48)
SPOIL(odd_blocks, c->granularity = CEN_CODEC_BLOCK; c->group = 0; c->block_rows = 3;
      c->block_cols = 48)
SPOIL(no_decoder, *c = (cen_codec){.format = CEN_CODEC_BF16})
SPOIL(lossless, *c = (cen_codec){.format = CEN_CODEC_LOSSLESS_BF16})
SPOIL(no_zeros, c->format = CEN_CODEC_FP8_E4M3; c->asymmetric = true)
SPOIL(zeros_missing, c->asymmetric = true)
SPOIL(more_scales, c->group = 32)
SPOIL(no_metadata, c->format = CEN_CODEC_SPARSE_INT8)
SPOIL(short_values, p->b_parts.bytes.values--)
SPOIL(no_values, p->b_parts.values = 0)
SPOIL(no_scales, p->b_parts.scales = 0)
SPOIL(odd_scales, p->b_parts.scales += 2)
SPOIL(in_fp32, p->b.dtype = p->a.dtype = p->d.dtype = CEN_FP32; p->a.stride = p->a.cols;
      p->d.stride = p->d.cols)
SPOIL(unlike_types, p->b.dtype = CEN_FP16)
SPOIL(unlike_depth, p->b.cols--)
SPOIL(unlike_columns, p->b.rows--)
SPOIL(d_in_values, p->d.data = p->b_parts.values & ~UINT64_C(1))
SPOIL(d_in_scales, p->d.data = p->b_parts.scales)

static const refusal refusals[] = {
    {"B has both b_codec and b.data", CEN_ERR_INVALID, two_places},
    {"codec.format is 99", CEN_ERR_INVALID, no_codec},
    {"codec.group is 48", CEN_ERR_INVALID, no_group},
    {"B is of codec bf16, which no kernel of products decodes", CEN_ERR_UNSUPPORTED, no_decoder},
    {"B is of codec lossless_bf16", CEN_ERR_UNSUPPORTED, lossless},
    {"B has blocks of 48 columns", CEN_ERR_UNSUPPORTED, odd_blocks},
    {"codec.asymmetric is set, and fp8_e4m3", CEN_ERR_INVALID, no_zeros},
    {"parts.zeros has 0 bytes; 48 are needed", CEN_ERR_TRUNCATED, zeros_missing},
    {"parts.scales has 192 bytes; 288 are needed", CEN_ERR_TRUNCATED, more_scales},
    {"parts.metadata has 0 bytes", CEN_ERR_TRUNCATED, no_metadata},
    {"parts.values has 1679 bytes; 1680 are needed", CEN_ERR_TRUNCATED, short_values},
    {"parts.values has no memory", CEN_ERR_INVALID, no_values},
    {"parts.scales has no memory", CEN_ERR_INVALID, no_scales},
    {"parts.scales lies at", CEN_ERR_INVALID, odd_scales},
    {"B is encoded, and multiplied as fp32", CEN_ERR_UNSUPPORTED, in_fp32},
    {"no kernel makes bf16 of bf16 and fp16", CEN_ERR_UNSUPPORTED, unlike_types},
    {"op(A) is 16 x 70, but op(B) 69 x 24", CEN_ERR_INVALID, unlike_depth},
    {"D is 16 x 24; op(A) op(B) is 16 x 23", CEN_ERR_INVALID, unlike_columns},
    {"product: D overlaps b_parts.values", CEN_ERR_INVALID, d_in_values},
    {"product: D overlaps b_parts.scales", CEN_ERR_INVALID, d_in_scales},
};

static void bad_weights_are_refused(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    arena a = arena_make(d);
    cen_codec codec = {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_GROUP, .group = 64};
    trial t = plain_trial(16, 24, 70, 1);
    t.transpose_b = true;
    operands o = operands_make(&a, &t);
    weight w = weight_random(&a, &t, &codec, &o.b);
    prepare_result(&a, &t, &o);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        cen_product p = coded_product(&t, &o, &w);
        cen_codec spoiled = codec;
        size_t count = 0;
        p.b_codec = &spoiled;
        refusals[i].spoil(&p, &spoiled);
        suite_log_reset();
        cen_status status = cen_product_run(d, &p, 0);
        if (status != refusals[i].status) {
            fail_msg("'%s': status %d", refusals[i].text, status);
        }
        assert_logged(refusals[i].text);
        FAILS(refusals[i].status, cen_product_list(d, &p, NULL, 0, &count));
    }
    cen_product p = coded_product(&t, &o, &w);
    ceni_dev_fault(d, CENI_OP_launch, 1, false);
    FAILS(CEN_ERR_DEVICE, cen_product_run(d, &p, 0));
    read_back(&a, &o.d, "after refusals");
    for (uint64_t i = 0; i < o.d.bytes; i++) {
        assert_int_equal(o.d.host[i], POISON);
    }
    weight_free(&w);
    operands_free(&o);
}

/* With nothing to sum up B has no parts, and D is what is added. */
static void nothing_to_sum_up_is_zero(void **state) {
    arena a = arena_make(((fixture *)*state)->device);
    trial t = plain_trial(20, 40, 0, 1);
    t.transpose_b = true;
    operands o = operands_make(&a, &t);
    cen_codec codec = {
        .format = CEN_CODEC_INT8, .granularity = CEN_CODEC_GROUP, .group = 32, .asymmetric = true};
    cen_product p = product_of(&t, &o);
    p.b.data = 0;
    p.b_codec = &codec;
    run_each(*state, &a, &t, &o, &p, all_are_zero);
    operands_free(&o);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(small_shapes_are_exact),      SUITE_TEST(edges_are_exact),
    SUITE_TEST(large_shapes_are_exact),      SUITE_TEST(behind_a_row_there_is_nothing),
    SUITE_TEST(what_is_not_finite_stays_so), SUITE_TEST(any_metadata_is_safe),
    SUITE_TEST(kernels_are_listed),          SUITE_TEST(bad_weights_are_refused),
    SUITE_TEST(nothing_to_sum_up_is_zero),
};

int main(void) {
    random_begin();
    return suite_run(tests, sizeof tests / sizeof *tests);
}
