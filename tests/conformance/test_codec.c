/* Encoding and decoding in a device's memory give the bytes that the host gives, for every codec,
 * kind of data, type, length and stride; and the sums of the report, within what codec.h says. */
#include "tests/conformance/suite.h"

#include "tests/unit/codec/reference.h"

enum { SLOT = 1 << 18, SLOTS = 6 }; /* matrix, the four parts, sums */

typedef struct bench {
    cen_device *device;
    cen_addr slots[SLOTS];
} bench;

static bench bench_make(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, 0);
    bench b = {.device = d};
    assert_true(m.size >= (uint64_t)SLOTS * SLOT);
    for (int i = 0; i < SLOTS; i++) {
        b.slots[i] = m.addr + (uint64_t)i * SLOT;
    }
    return b;
}

static void done(cen_status status) {
    if (status == CEN_ERR_UNSUPPORTED) {
        suite_skip("the library was built without CUDA kernels");
    }
    OK(status);
}

static uint64_t matrix_bytes(const cen_matrix *m) {
    return m->rows && m->cols
               ? ((m->rows - 1) * m->stride + m->cols) * (cen_dtype_bits(m->dtype) / 8)
               : 0;
}

/* `shift` bytes off what malloc or a driver would align. */
static cen_codec_parts parts_on(const bench *b, const cen_codec_sizes *sizes, uint64_t shift) {
    return (cen_codec_parts){b->slots[1] + shift, b->slots[2] + 4 * shift, b->slots[3] + shift,
                             b->slots[4] + shift, *sizes};
}

static void same_bytes(const bench *b, const char *what, const cen_codec *c, cen_addr got,
                       const uint8_t *want, uint64_t size) {
    uint8_t *bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    if (size) {
        suite_read(b->device, bytes, got, (size_t)size);
    }
    for (uint64_t i = 0; i < size; i++) {
        if (bytes[i] != want[i]) {
            fail_msg("%s: %s differ at %llu: 0x%02x, and 0x%02x on the host", codec_text(c), what,
                     (unsigned long long)i, bytes[i], want[i]);
        }
    }
    free(bytes);
}

static void near(double got, double want, double of) {
    if (fabs(got - want) > of * 0x1p-18) {
        fail_msg("a sum is %.17g, and %.17g on the host", got, want);
    }
}

static void same_sums(const bench *b, const cen_codec_sums *want, uint64_t rows) {
    cen_codec_sums *got = malloc((size_t)rows * sizeof *got + 1);
    assert_non_null(got);
    if (rows) {
        suite_read(b->device, got, b->slots[5], (size_t)rows * sizeof *got);
    }
    for (uint64_t i = 0; i < rows; i++) {
        const cen_codec_sums *g = &got[i], *w = &want[i];
        assert_int_equal(g->count, w->count);
        assert_int_equal(g->nan, w->nan);
        assert_int_equal(g->infinite, w->infinite);
        assert_int_equal(g->saturated, w->saturated);
        assert_int_equal(g->overflowed, w->overflowed);
        assert_int_equal(g->underflowed, w->underflowed);
        assert_true(g->largest == w->largest && g->max_error == w->max_error);
        near(g->error, w->error, w->error);
        near(g->error2, w->error2, w->error2);
        near(g->x2, w->x2, w->x2);
        near(g->y2, w->y2, w->y2);
        near(g->xy, w->xy, sqrt(w->x2) * sqrt(w->y2));
    }
    free(got);
}

static void put(const bench *b, cen_addr to, const uint8_t *from, uint64_t size) {
    if (size) {
        suite_write(b->device, to, from, (size_t)size);
    }
}

static void encode(const bench *b, const cen_codec *c, const sample *m, const room *want,
                   const cen_codec_sums *rows, uint64_t shift) {
    cen_codec_parts parts = parts_on(b, &want->sizes, shift);
    cen_matrix source = m->matrix;
    source.data = b->slots[0] + shift * 4;
    if (matrix_bytes(&source)) {
        suite_write(b->device, source.data, m->memory, (size_t)matrix_bytes(&source));
    }
    for (int with = 0; with < 2; with++) {
        for (int i = 1; i < SLOTS; i++) {
            OK(cen_fill_async(b->device, b->slots[i], FILL, SLOT, 0));
        }
        if (c->scales_given) {
            put(b, parts.scales, want->memory[1] + GUARD, want->sizes.scales);
            put(b, parts.zeros, want->memory[2] + GUARD, want->sizes.zeros);
        }
        done(cen_codec_encode_async(b->device, c, &source, &parts, with ? b->slots[5] : 0, 0));
        same_bytes(b, "values", c, parts.values, want->memory[0] + GUARD, want->sizes.values);
        same_bytes(b, "scales", c, parts.scales, want->memory[1] + GUARD, want->sizes.scales);
        same_bytes(b, "zeros", c, parts.zeros, want->memory[2] + GUARD, want->sizes.zeros);
        same_bytes(b, "metadata", c, parts.metadata, want->memory[3] + GUARD, want->sizes.metadata);
        /* and the byte behind each part is as it was */
        const uint8_t fill = FILL;
        same_bytes(b, "bytes behind values", c, parts.values + want->sizes.values, &fill, 1);
        same_bytes(b, "bytes behind scales", c, parts.scales + want->sizes.scales, &fill, 1);
        same_bytes(b, "bytes behind zeros", c, parts.zeros + want->sizes.zeros, &fill, 1);
        same_bytes(b, "bytes behind metadata", c, parts.metadata + want->sizes.metadata, &fill, 1);
    }
    same_sums(b, rows, source.rows);
}

/* The parts are still there from encoding. */
static void decode(const bench *b, const cen_codec *c, const sample *m, const room *want,
                   uint64_t shift) {
    static const cen_dtype types[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    cen_codec_parts parts = parts_on(b, &want->sizes, shift);
    for (int t = 0; t < 3; t++) {
        cen_matrix to = m->matrix;
        to.dtype = types[t];
        to.data = b->slots[0] + shift * 4;
        uint64_t bytes = matrix_bytes(&to);
        uint8_t *memory = malloc((size_t)bytes + 1);
        assert_non_null(memory);
        memset(memory, FILL, (size_t)bytes + 1);
        OK(cen_fill_async(b->device, b->slots[0], FILL, SLOT, 0));
        done(cen_codec_decode_async(b->device, c, &parts, &to, 0));
        to.data = ADDR(memory);
        OK(cen_codec_decode(c, &want->parts, &to));
        memory[bytes] = FILL;
        same_bytes(b, "decoded values", c, b->slots[0] + shift * 4, memory, bytes + 1);
        free(memory);
    }
}

static void try_one(const bench *b, cen_codec codec, bool give, enum data data, cen_dtype dtype,
                    uint64_t rows, uint64_t cols, uint64_t stride, uint64_t shift) {
    const cen_codec *c = &codec;
    sample m = sample_make(data, dtype, rows, cols, stride, rows * 77 + cols);
    room want = room_make(c, rows, cols);
    cen_codec_sums *sums = malloc((size_t)rows * sizeof *sums + 1);
    assert_non_null(sums);
    if (give) {
        room_give(&codec, &m, &want);
    }
    OK(cen_codec_encode(c, &m.matrix, &want.parts, sums, NULL));
    encode(b, c, &m, &want, sums, shift);
    decode(b, c, &m, &want, shift);
    free(sums);
    room_free(&want);
    sample_free(&m);
}

static void try(const bench *b, const cen_codec *c, enum data data, cen_dtype dtype, uint64_t rows,
                uint64_t cols, uint64_t stride, uint64_t shift) {
    if (is_tried()) {
        try_one(b, *c, false, data, dtype, rows, cols, stride, shift);
    }
    if (c->granularity && is_tried()) {
        try_one(b, *c, true, data, dtype, rows, cols, stride, shift);
    }
}

static void every_kind_of_data(void **state) {
    static const cen_dtype types[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    bench b = bench_make(state);
    for (int c = 0; c < CODECS; c++) {
        for (int data = 0; data < DATA; data++) {
            for (int t = 0; t < 3; t++) {
                try(&b, &all_codecs[c], (enum data)data, types[t], 9, 264, 272, 0);
            }
        }
    }
}

static void every_length(void **state) {
    bench b = bench_make(state);
    for (int c = 0; c < CODECS; c++) {
        bool halves = cen_dtype_bits(cen_codec_format_dtype(all_codecs[c].format)) == 16;
        for (uint64_t cols = 0; cols <= 1000; cols += cols < 40 ? 1 : 37) {
            try(&b, &all_codecs[c], RANDOM, cols % 3 ? CEN_FP32 : CEN_BF16, 3, cols,
                cols + cols % 4, halves ? 2 : cols % 3);
        }
        try(&b, &all_codecs[c], RANDOM, CEN_BF16, 0, 10, 10, 0);
        try(&b, &all_codecs[c], SPECIAL, CEN_FP16, 70, 5, 9, 0);
    }
}

/* Rows longer than what a block's threads hold at once, and matrices of many tiles. */
static void large_ones(void **state) {
    bench b = bench_make(state);
    for (int c = 0; c < CODECS; c++) {
        try(&b, &all_codecs[c], RANDOM, CEN_FP32, 2, 20011, 20011, 0);
        try(&b, &all_codecs[c], HALVES, CEN_BF16, 2, 9000, 9000, 0);
        try(&b, &all_codecs[c], SPECIAL, CEN_FP32, 1, 40000, 40000, 0);
        try(&b, &all_codecs[c], RANDOM, CEN_BF16, 2, 20003, 20008, 0);
        try(&b, &all_codecs[c], RANDOM, CEN_FP32, 300, 100, 108, 0);
    }
}

static void what_is_refused(void **state) {
    bench b = bench_make(state);
    cen_codec c = {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW};
    cen_codec_sizes sizes;
    OK(cen_codec_bound(&c, 4, 8, &sizes));
    cen_codec_parts parts = parts_on(&b, &sizes, 0);
    cen_matrix m = {b.slots[0], 4, 8, 8, CEN_FP32};
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, cen_codec_encode_async(NULL, &c, &m, &parts, 0, 0));
    assert_logged("device is NULL");
    FAILS(CEN_ERR_INVALID, cen_codec_encode_async(b.device, &c, &m, &parts, b.slots[5] + 4, 0));
    assert_logged("sums lies at");
    parts.scales += 2;
    FAILS(CEN_ERR_INVALID, cen_codec_decode_async(b.device, &c, &parts, &m, 0));
    assert_logged("parts.scales lies at");
    c = (cen_codec){.format = CEN_CODEC_LOSSLESS_BF16};
    m.dtype = CEN_BF16;
    parts.bytes.values = SLOT;
    FAILS(CEN_ERR_UNSUPPORTED, cen_codec_encode_async(b.device, &c, &m, &parts, 0, 0));
    assert_logged("on the host only");
    c = (cen_codec){.format = CEN_CODEC_SPARSE_BF16, .refuse_dense = true};
    parts.bytes.metadata = SLOT;
    FAILS(CEN_ERR_UNSUPPORTED, cen_codec_encode_async(b.device, &c, &m, &parts, 0, 0));
    assert_logged("only the host can refuse");
    c = (cen_codec){.format = CEN_CODEC_BF16};
    parts.values += 1;
    FAILS(CEN_ERR_INVALID, cen_codec_encode_async(b.device, &c, &m, &parts, 0, 0));
    assert_logged("parts.values lies at");
}

/* Indices that do not rise, scales that no encoding gives: some bytes, the same on every device. */
static void hostile_parts_are_safe(void **state) {
    bench b = bench_make(state);
    uint64_t seed = 5;
    for (int c = 0; c < CODECS; c++) {
        room r = room_make(&all_codecs[c], 5, 333);
        cen_codec_parts parts = parts_on(&b, &r.sizes, 0);
        const cen_addr to[4] = {parts.values, parts.scales, parts.zeros, parts.metadata};
        const uint64_t sizes[4] = {r.sizes.values, r.sizes.scales, r.sizes.zeros, r.sizes.metadata};
        for (int i = 0; i < 4; i++) {
            for (uint64_t k = 0; k < sizes[i]; k++) {
                r.memory[i][GUARD + k] = (uint8_t)(random_next(&seed) >> 30);
            }
            for (uint64_t k = 0; i == 3 && k < sizes[i]; k++) {
                r.memory[i][GUARD + k] = 0x4E; /* the host tells what does not rise */
            }
            put(&b, to[i], r.memory[i] + GUARD, sizes[i]);
        }
        sample m = sample_make(ZEROS, CEN_FP32, 5, 333, 333, 1);
        decode(&b, &all_codecs[c], &m, &r, 0);
        sample_free(&m);
        room_free(&r);
    }
    /* and indices that do not rise */
    cen_codec sparse = {.format = CEN_CODEC_SPARSE_BF16};
    cen_codec_sizes sizes;
    OK(cen_codec_bound(&sparse, 8, 64, &sizes));
    cen_codec_parts parts = parts_on(&b, &sizes, 0);
    OK(cen_fill_async(b.device, parts.metadata, 0x55, (size_t)sizes.metadata, 0));
    cen_matrix to = {b.slots[0], 8, 64, 64, CEN_FP32};
    done(cen_codec_decode_async(b.device, &sparse, &parts, &to, 0));
    OK(cen_stream_sync(b.device, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(every_kind_of_data), SUITE_TEST(every_length),           SUITE_TEST(large_ones),
        SUITE_TEST(what_is_refused),    SUITE_TEST(hostile_parts_are_safe),
    };
    return suite_run(tests, sizeof tests / sizeof *tests);
}
