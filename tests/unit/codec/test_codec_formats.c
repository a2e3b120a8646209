/* Each format on the host against its definition (reference.h): bytes, what they decode to, and the
 * sums of the report, over shapes, strides, types and kinds of data. */
#include "tests/unit/codec/reference.h"

static void differ(const char *what, const cen_codec *c, const sample *m, enum data data,
                   uint64_t at) {
    fail_msg("%s of %s from %llu x %llu (stride %llu) %s, %s, differ at %llu", what, codec_text(c),
             (unsigned long long)m->matrix.rows, (unsigned long long)m->matrix.cols,
             (unsigned long long)m->matrix.stride, cen_dtype_name(m->matrix.dtype),
             data_names[data], (unsigned long long)at);
}

static void compare_bytes(const room *got, const room *want, const cen_codec *c, const sample *m,
                          enum data data) {
    static const char *const names[] = {"values", "scales", "zeros", "metadata"};
    const uint64_t sizes[4] = {want->sizes.values, want->sizes.scales, want->sizes.zeros,
                               want->sizes.metadata};
    for (int i = 0; i < 4; i++) {
        for (uint64_t k = 0; k < sizes[i]; k++) {
            if (got->memory[i][GUARD + k] != want->memory[i][GUARD + k]) {
                differ(names[i], c, m, data, k);
            }
        }
    }
    room_check(got);
}

static bool same_float(float a, float b) {
    return to_bits(a) == to_bits(b) || (isnan(a) && isnan(b));
}

static void compare_decoded(const cen_codec *c, const sample *m, const room *r, const float *y,
                            enum data data) {
    static const cen_dtype types[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    uint64_t rows = m->matrix.rows, cols = m->matrix.cols, stride = cols + 3;
    for (int t = 0; t < 3; t++) {
        size_t size = cen_dtype_bits(types[t]) / 8, bytes = (size_t)(rows * stride) * size;
        uint8_t *memory = malloc(bytes + 1);
        assert_non_null(memory);
        memset(memory, FILL, bytes);
        cen_matrix to = {ADDR(memory), rows, cols, stride, types[t]};
        assert_int_equal(cen_codec_decode(c, &r->parts, &to), CEN_OK);
        for (uint64_t i = 0; i < rows * stride; i++) {
            uint64_t row = i / stride, col = i % stride;
            uint16_t half, want_half;
            float value;
            if (col >= cols) {
                for (size_t k = 0; k < size; k++) {
                    assert_int_equal(memory[i * size + k], FILL);
                }
                continue;
            }
            float want = y[row * cols + col];
            if (types[t] == CEN_FP32) {
                memcpy(&value, memory + 4 * i, 4);
                if (!same_float(value, want)) {
                    differ("floats", c, m, data, row * cols + col);
                }
                continue;
            }
            memcpy(&half, memory + 2 * i, 2);
            cen_codec plain = {.format = types[t] == CEN_FP16 ? CEN_CODEC_FP16 : CEN_CODEC_BF16};
            cen_codec_parts parts = {.values = ADDR(&want_half), .bytes.values = 2};
            cen_matrix from = {ADDR(&want), 1, 1, 1, CEN_FP32};
            assert_int_equal(cen_codec_encode(&plain, &from, &parts, NULL, NULL), CEN_OK);
            if (half != want_half) {
                differ("halves", c, m, data, row * cols + col);
            }
        }
        free(memory);
    }
}

/* What cuts an element to the end of the range. */
static bool is_cut(const cen_codec *c, const cen_codec_parts *parts, const sample *m, uint64_t i,
                   uint64_t j, float y) {
    float x = m->x[i * m->matrix.cols + j], s = 1;
    int z = 0, high = cen_codec_format_dtype(c->format) == CEN_INT8 ? 127 : 7;
    if (!isfinite(y) || isnan(x)) {
        return false;
    }
    if (isinf(x)) {
        return true;
    }
    if (c->granularity) {
        shape u = shape_of(c, m->matrix.rows, m->matrix.cols);
        uint64_t unit = i / u.unit_rows * u.across + j / u.unit_cols;
        memcpy(&s, (uint8_t *)(uintptr_t)parts->scales + 4 * unit, 4);
        z = c->asymmetric ? ((int8_t *)(uintptr_t)parts->zeros)[unit] : 0;
    }
    float inverse = 1 / s, t = fabsf(c->granularity ? x * inverse : x);
    if (is_int(c)) { /* no finite element is beyond the range of its unit's own scale */
        long q = lrintf(x < 0 ? -t : t) + z;
        return c->scales_given && (q > high || q < (c->asymmetric ? -high - 1 : -high));
    }
    switch (cen_codec_format_dtype(c->format)) {
    case CEN_FP16:
        return t >= 65520;
    case CEN_BF16:
        return t >= 0x1.FFp127f;
    case CEN_FP8_E4M3:
        return t > 464;
    default:
        return t >= 61440;
    }
}

static void add(cen_codec_sums *s, float x, float y, bool cut) {
    double e = fabs((double)x - (double)y), size = fabs((double)x);
    s->count++;
    s->nan += isnan(x) != 0;
    s->infinite += isinf(x) != 0;
    s->saturated += cut;
    s->overflowed += isfinite(x) && !isfinite(y);
    s->underflowed += isfinite(x) && x != 0 && y == 0;
    if (isfinite(x) && isfinite(y)) {
        s->largest = fmax(s->largest, size);
        s->max_error = fmax(s->max_error, e);
        s->error += e;
        s->error2 += e * e;
        s->x2 += (double)x * x;
        s->y2 += (double)y * y;
        s->xy += (double)x * y;
    }
}

static void near(double got, double want, double of) {
    if (fabs(got - want) > of * 0x1p-40) {
        fail_msg("a sum is %.17g, not %.17g", got, want);
    }
}

static void same_sums(const cen_codec_sums *got, const cen_codec_sums *want) {
    assert_int_equal(got->count, want->count);
    assert_int_equal(got->nan, want->nan);
    assert_int_equal(got->infinite, want->infinite);
    assert_int_equal(got->saturated, want->saturated);
    assert_int_equal(got->overflowed, want->overflowed);
    assert_int_equal(got->underflowed, want->underflowed);
    assert_true(got->largest == want->largest);
    assert_true(got->max_error == want->max_error);
    near(got->error, want->error, want->error);
    near(got->error2, want->error2, want->error2);
    near(got->x2, want->x2, want->x2);
    near(got->y2, want->y2, want->y2);
    near(got->xy, want->xy, sqrt(want->x2) * sqrt(want->y2));
}

static void compare_sums(const cen_codec *c, const sample *m, const room *r,
                         const cen_codec_sums *rows, const cen_codec_sums *total, const float *y,
                         const bool *kept) {
    cen_codec_sums all = {0};
    for (uint64_t i = 0; i < m->matrix.rows; i++) {
        cen_codec_sums one = {0};
        for (uint64_t j = 0; j < m->matrix.cols; j++) {
            uint64_t k = i * m->matrix.cols + j;
            bool cut = kept[k] && is_cut(c, &r->parts, m, i, j, y[k]);
            add(&one, m->x[k], y[k], cut);
            add(&all, m->x[k], y[k], cut);
        }
        same_sums(&rows[i], &one);
    }
    same_sums(total, &all);
}

/* What docs/codecs.md promises of the error, for units of numbers. */
static void check_bound(const cen_codec *c, const sample *m, const room *r, const float *y,
                        enum data data) {
    if (!c->granularity || c->scales_given || is_sparse(c) || data == SPECIAL) {
        return;
    }
    uint64_t rows = m->matrix.rows, cols = m->matrix.cols;
    shape u = rows && cols ? shape_of(c, rows, cols) : (shape){1, 1, 0, 0};
    for (uint64_t k = 0; k < rows * cols; k++) {
        uint64_t unit = k / cols / u.unit_rows * u.across + k % cols / u.unit_cols;
        float s;
        memcpy(&s, r->memory[1] + GUARD + 4 * unit, 4);
        double size = fabs((double)m->x[k]), step = s * (0.5 + 0x1p-13);
        if (c->format == CEN_CODEC_FP8_E4M3) {
            step = fmax(size * (0x1p-4 + 0x1p-20), s * 0x1p-10 * 1.001);
        } else if (c->format == CEN_CODEC_FP8_E5M2) {
            step = fmax(size * (0x1p-3 + 0x1p-20), s * 0x1p-17 * 1.001);
        }
        if (isfinite(m->x[k]) && fabs((double)m->x[k] - (double)y[k]) > step) {
            differ("errors", c, m, data, k);
        }
    }
}

static void try_one(const cen_codec *c, bool give, enum data data, cen_dtype dtype, uint64_t rows,
                    uint64_t cols, uint64_t stride) {
    cen_codec codec = *c;
    c = &codec;
    sample m = sample_make(data, dtype, rows, cols, stride, rows * 1000 + cols);
    room want = room_make(c, rows, cols), got = room_make(c, rows, cols);
    float *y = malloc((size_t)(rows * cols) * 4 + 1);
    cen_codec_sums *sums = malloc((size_t)rows * sizeof *sums + 1), total;
    bool *kept = malloc((size_t)(rows * cols) + 1);
    assert_true(y && sums && kept);
    if (give) {
        room_give(&codec, &m, &got);
        room_copy_scales(&got, &want);
    }
    (void)reference_encode(c, &m, &want, y, kept);
    assert_int_equal(cen_codec_encode(c, &m.matrix, &got.parts, sums, &total), CEN_OK);
    compare_bytes(&got, &want, c, &m, data);
    compare_sums(c, &m, &got, sums, &total, y, kept);
    compare_decoded(c, &m, &got, y, data);
    check_bound(c, &m, &got, y, data);
    room again = room_make(c, rows, cols);
    room_copy_scales(&got, &again);
    assert_int_equal(cen_codec_encode(c, &m.matrix, &again.parts, NULL, NULL), CEN_OK);
    compare_bytes(&again, &want, c, &m, data);
    room_free(&again);
    room_free(&want);
    room_free(&got);
    sample_free(&m);
    free(kept);
    free(sums);
    free(y);
}

static void try(const cen_codec *c, enum data data, cen_dtype dtype, uint64_t rows, uint64_t cols,
                uint64_t stride) {
    if (is_tried()) {
        try_one(c, false, data, dtype, rows, cols, stride);
    }
    if (c->granularity && is_tried()) {
        try_one(c, true, data, dtype, rows, cols, stride);
    }
}

static void every_kind_of_data(void **state) {
    static const cen_dtype types[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    for (int c = 0; c < CODECS; c++) {
        for (int data = 0; data < DATA; data++) {
            for (int t = 0; t < 3; t++) {
                try(&all_codecs[c], (enum data)data, types[t], 7, 133, 140);
            }
        }
    }
}

static void every_length(void **state) {
    for (int c = 0; c < CODECS; c++) {
        for (uint64_t cols = 0; cols <= 1000; cols += cols < 70 ? 1 : 31) {
            try(&all_codecs[c], cols % 2 ? RANDOM : SPARSE, CEN_FP32, 3, cols, cols + cols % 5);
        }
        try(&all_codecs[c], RANDOM, CEN_BF16, 0, 10, 10);
        try(&all_codecs[c], RANDOM, CEN_FP32, 2, 2500, 2500);
        try(&all_codecs[c], SPECIAL, CEN_FP16, 70, 5, 9);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_data),
        cmocka_unit_test(every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
