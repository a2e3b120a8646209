/* Tensor files quantised and back: what is written is what the codec makes of the whole tensor,
 * what stays stays, and descriptions that are off are refused. */
#include "tensor_files.h"

#include <math.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/half.h"
#include "cenote/quantize.h"

typedef struct input {
    const char *name, *type;
    uint32_t rank;
    uint64_t shape[4];
} input;

static uint64_t count_of(const input *in) {
    uint64_t count = 1;
    for (uint32_t i = 0; i < in->rank; i++) {
        count *= in->shape[i];
    }
    return count;
}

/* A number for each element, of several magnitudes, that BF16 and FP16 hold. */
static float value_at(uint64_t i) {
    uint32_t x = (uint32_t)(i * 2654435761u) >> 7;
    float value = (float)((int)(x % 255) - 127) * (x & 0x100 ? 0.25f : 0.015625f);
    return i % 97 == 5 ? 0 : value;
}

/* At most 4096 elements from `first` on; how many. */
static uint64_t put_some(cen_tensor_writer *w, size_t index, const input *in, uint64_t first) {
    static uint8_t bytes[4096 * 8];
    uint64_t rest = count_of(in) - first, n = rest < 4096 ? rest : 4096;
    uint64_t size = !strcmp(in->type, "F64") ? 8 : !strcmp(in->type, "F32") ? 4 : 2;
    for (uint64_t i = 0; i < n; i++) {
        float value = value_at(first + i);
        double wide = (double)value;
        uint16_t half =
            !strcmp(in->type, "F16") ? ceni_f16_of_float(value) : ceni_bf16_of_float(value);
        memcpy(bytes + i * size,
               size == 8   ? (void *)&wide
               : size == 4 ? (void *)&value
                           : &half,
               size);
    }
    assert_int_equal(cen_tensor_writer_put(w, index, bytes, n * size), CEN_OK);
    return n;
}

static void put_inputs(const char *file, const input *inputs, size_t count,
                       const cen_tensor_note *notes, size_t note_count) {
    cen_tensor_spec specs[16];
    cen_tensor_writer *w = NULL;
    for (size_t i = 0; i < count; i++) {
        specs[i] =
            (cen_tensor_spec){inputs[i].name, inputs[i].type, inputs[i].rank, inputs[i].shape};
    }
    assert_int_equal(cen_tensor_writer_open(in_folder(file), specs, count, notes, note_count, &w),
                     CEN_OK);
    for (size_t i = 0; i < count; i++) {
        for (uint64_t j = 0; j < count_of(&inputs[i]);) {
            j += put_some(w, i, &inputs[i], j);
        }
    }
    assert_int_equal(cen_tensor_writer_finish(w), CEN_OK);
}

static const input model[] = {
    {"f", "F32", 2, {5, 70}},         {"h", "F16", 2, {3, 33}},   {"b", "BF16", 3, {2, 3, 64}},
    {"conv", "F32", 4, {4, 8, 3, 3}}, {"thin", "F32", 2, {7, 1}}, {"bias", "F32", 1, {70}},
    {"wide", "F64", 2, {2, 8}},       {"none", "F32", 2, {0, 8}}, {"one", "F32", 0, {0}}};
enum { MODEL = sizeof model / sizeof *model };

static cen_codec codec_of(cen_codec_format format, uint32_t group, bool asymmetric) {
    cen_dtype dtype = cen_codec_format_dtype(format);
    bool scaled =
        dtype == CEN_INT8 || dtype == CEN_INT4 || dtype == CEN_FP8_E4M3 || dtype == CEN_FP8_E5M2;
    return (cen_codec){.format = format,
                       .granularity = !scaled ? CEN_CODEC_UNSCALED
                                      : group ? CEN_CODEC_GROUP
                                              : CEN_CODEC_ROW,
                       .group = scaled ? group : 0,
                       .asymmetric = asymmetric};
}

static cen_status quantize(const char *from, const char *to, const cen_quantize_options *options,
                           cen_quantize_row *rows) {
    cen_tensors *in = open_tensors(from);
    cen_status status = cen_quantize(in, in_folder(to), options, rows);
    for (size_t i = 0; i < cen_tensors_count(in) && !status; i++) {
        rows[i].tensor = NULL; /* which is gone */
    }
    cen_tensors_close(in);
    return status;
}

static cen_status dequantize(const char *from, const char *to) {
    const cen_quantize_options options = {.size = sizeof options};
    cen_quantize_row rows[64];
    cen_tensors *in = open_tensors(from);
    cen_status status = cen_dequantize(in, in_folder(to), &options, rows);
    cen_tensors_close(in);
    return status;
}

/* All of a tensor's bytes. */
static void *bytes_of(const cen_tensors *t, const cen_tensor *tensor) {
    void *bytes = malloc(tensor->bytes + 1);
    assert_non_null(bytes);
    assert_int_equal(cen_tensors_read(t, tensor, 0, tensor->bytes, bytes), CEN_OK);
    return bytes;
}

static void same_bytes(const cen_tensors *t, const cen_tensor *tensor, const void *expected,
                       uint64_t bytes) {
    if (!tensor) {
        assert_int_equal(bytes, 0);
        return;
    }
    void *found = bytes_of(t, tensor);
    assert_int_equal(tensor->bytes, bytes);
    assert_memory_equal(found, expected, bytes);
    free(found);
}

/* What the codec makes of a whole tensor of `in` at once is what `out` has in parts. */
static void is_encoded(const cen_tensors *in, const cen_tensors *out, const char *name,
                       const cen_codec *codec) {
    const cen_tensor *tensor = cen_tensors_find(in, name);
    cen_quantized q;
    cen_codec_sizes sizes;
    assert_int_equal(cen_quantized_find(out, name, &q), CEN_OK);
    assert_true(q.dtype == tensor->dtype && q.rank == tensor->rank);
    assert_memory_equal(q.shape, tensor->shape, q.rank * sizeof *q.shape);
    assert_int_equal(cen_codec_bound(codec, q.rows, q.cols, &sizes), CEN_OK);
    uint8_t *source = bytes_of(in, tensor), *room[4];
    const uint64_t bytes[4] = {sizes.values, sizes.scales, sizes.zeros, sizes.metadata};
    for (int i = 0; i < 4; i++) {
        room[i] = malloc(bytes[i] + 1);
        assert_non_null(room[i]);
    }
    cen_codec_parts parts = {(cen_addr)room[0], (cen_addr)room[1], (cen_addr)room[2],
                             (cen_addr)room[3], sizes};
    cen_matrix matrix = {(cen_addr)source, q.rows, q.cols, q.cols, q.dtype};
    assert_int_equal(cen_codec_encode(codec, &matrix, &parts, NULL, NULL), CEN_OK);
    same_bytes(out, q.values, room[0], parts.bytes.values);
    same_bytes(out, q.scales, room[1], parts.bytes.scales);
    same_bytes(out, q.zeros, room[2], parts.bytes.zeros);
    same_bytes(out, q.metadata, room[3], parts.bytes.metadata);
    for (int i = 0; i < 4; i++) {
        free(room[i]);
    }
    free(source);
}

static void same_tensors(const char *a, const char *b) {
    cen_tensors *x = open_tensors(a), *y = open_tensors(b);
    cen_tensor_difference d;
    for (size_t i = 0; i < cen_tensors_count(x); i++) {
        const cen_tensor *t = cen_tensors_get(x, i);
        if (!cen_quantized_is_part(x, t)) {
            const cen_tensor *u = cen_tensors_find(y, t->name);
            assert_non_null(u);
            assert_int_equal(cen_tensors_compare(x, t, y, u, &d), CEN_OK);
            assert_true(!d.different);
        }
    }
    cen_tensors_close(x);
    cen_tensors_close(y);
}

/* Names, types and shapes of the second are those of the first. */
static void same_frame(const char *a, const char *b) {
    cen_tensors *x = open_tensors(a), *y = open_tensors(b);
    assert_int_equal(cen_tensors_count(x), cen_tensors_count(y));
    assert_int_equal(cen_tensors_note_count(x), cen_tensors_note_count(y));
    for (size_t i = 0; i < cen_tensors_count(x); i++) {
        const cen_tensor *t = cen_tensors_get(x, i), *u = cen_tensors_get(y, i);
        assert_string_equal(t->name, u->name);
        assert_string_equal(t->type, u->type);
        assert_true(t->rank == u->rank && t->bytes == u->bytes);
        assert_memory_equal(t->shape, u->shape, t->rank * sizeof *t->shape);
    }
    cen_tensors_close(x);
    cen_tensors_close(y);
}

static void check_report(const cen_tensors *in, const cen_tensors *out, const cen_quantize_row *row,
                         const cen_tensor *t) {
    cen_tensor_difference d;
    if (row->kept) {
        assert_int_equal(row->bytes, t->bytes);
        return;
    }
    assert_int_equal(cen_tensors_compare(in, t, out, cen_tensors_find(out, t->name), &d), CEN_OK);
    assert_true(d.max_error == row->report.max_error && d.count == row->report.count);
    assert_true(fabs(d.mse - row->report.mse) <= 1e-12 * d.mse);
    assert_true(isinf(d.sqnr_db) ? isinf(row->report.sqnr_db)
                                 : fabs(d.sqnr_db - row->report.sqnr_db) < 1e-9);
    assert_true(fabs(d.cosine - row->report.cosine) < 1e-12);
}

static void try_format(cen_codec codec) {
    static const cen_tensor_note notes[] = {{"format", "pt"}};
    cen_quantize_row rows[MODEL];
    cen_quantize_options options = {.size = sizeof options, .codec = codec};
    put_inputs("in", model, MODEL, notes, 1);
    assert_int_equal(quantize("in", "out", &options, rows), CEN_OK);
    cen_tensors *in = open_tensors("in"), *out = open_tensors("out");
    size_t encoded = 0;
    for (size_t i = 0; i < MODEL; i++) {
        const cen_tensor *t = cen_tensors_get(in, i);
        if (!rows[i].kept) {
            encoded++;
            is_encoded(in, out, t->name, &codec);
        }
        check_report(in, out, &rows[i], t);
    }
    bool half = codec.format == CEN_CODEC_FP16 || codec.format == CEN_CODEC_BF16;
    assert_int_equal(encoded, codec.format == CEN_CODEC_LOSSLESS_BF16 ? 1 : half ? 4 : 5);
    assert_string_equal(cen_tensors_find_note(out, "format"), "pt");
    cen_tensors_close(in);
    cen_tensors_close(out);
    assert_int_equal(dequantize("out", "back"), CEN_OK);
    same_frame("in", "back");
    if (codec.format == CEN_CODEC_LOSSLESS_BF16) {
        same_tensors("in", "back");
    }
    assert_int_equal(files(true), 3);
}

static void every_format_is_the_codecs(void **state) {
    static const cen_codec_format scaled[] = {CEN_CODEC_FP8_E4M3, CEN_CODEC_FP8_E5M2,
                                              CEN_CODEC_INT8, CEN_CODEC_INT4,
                                              CEN_CODEC_SPARSE_INT8};
    static const cen_codec_format unscaled[] = {CEN_CODEC_FP16, CEN_CODEC_BF16,
                                                CEN_CODEC_SPARSE_FP16, CEN_CODEC_SPARSE_BF16,
                                                CEN_CODEC_LOSSLESS_BF16};
    for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++) {
        try_format(codec_of(scaled[i], 0, false));
        try_format(codec_of(scaled[i], 32, false));
        try_format(codec_of(scaled[i], 0, i >= 2));
    }
    for (size_t i = 0; i < sizeof unscaled / sizeof *unscaled; i++) {
        try_format(codec_of(unscaled[i], 0, false));
    }
}

/* More than is in memory at a time: the pieces' seams are in the middle of groups of rows. */
static void large_tensors_are_encoded_in_pieces(void **state) {
    static const input large[] = {{"w", "F32", 2, {1700, 1100}}, {"row", "BF16", 2, {1, 1200000}}};
    cen_quantize_row rows[2];
    cen_quantize_options options = {.size = sizeof options,
                                    .codec = codec_of(CEN_CODEC_INT4, 64, 1)};
    put_inputs("in", large, 2, NULL, 0);
    assert_int_equal(quantize("in", "out", &options, rows), CEN_OK);
    cen_tensors *in = open_tensors("in"), *out = open_tensors("out");
    for (size_t i = 0; i < 2; i++) {
        is_encoded(in, out, cen_tensors_get(in, i)->name, &options.codec);
        check_report(in, out, &rows[i], cen_tensors_get(in, i));
    }
    cen_tensors_close(in);
    cen_tensors_close(out);
    files(true);
}

static void rows_are_made_of_trailing_dimensions(void **state) {
    static const input shapes[] = {{"a", "F32", 2, {3, 8}},
                                   {"b", "F32", 3, {2, 3, 64}},
                                   {"c", "F32", 3, {2, 30, 3}},
                                   {"d", "F32", 4, {5, 2, 3, 3}},
                                   {"e", "F32", 4, {2, 3, 10, 7}}};
    static const uint64_t expected[][2] = {{3, 8}, {6, 64}, {2, 90}, {5, 18}, {6, 70}};
    cen_quantize_row rows[5];
    cen_quantize_options options = {.size = sizeof options,
                                    .codec = codec_of(CEN_CODEC_INT8, 0, 0)};
    put_inputs("in", shapes, 5, NULL, 0);
    assert_int_equal(quantize("in", "out", &options, rows), CEN_OK);
    cen_tensors *out = open_tensors("out");
    for (size_t i = 0; i < 5; i++) {
        cen_quantized q;
        assert_int_equal(cen_quantized_find(out, shapes[i].name, &q), CEN_OK);
        assert_true(q.rows == expected[i][0] && q.cols == expected[i][1]);
        assert_true(q.scales->rank == 2 && q.scales->shape[0] == q.rows && q.scales->shape[1] == 1);
        assert_true(cen_quantized_is_part(out, q.scales) && !cen_quantized_is_part(out, q.values));
    }
    cen_tensors_close(out);
    files(true);
}

static void what_stays_is_named_with_its_reason(void **state) {
    static const input some[] = {{"a.w", "F32", 2, {2, 8}},
                                 {"b.w", "F32", 2, {2, 8}},
                                 {"c.w", "F32", 2, {2, 8}},
                                 {"c.w.scale", "F32", 1, {2}},
                                 {"d.bias", "F32", 1, {8}}};
    static const char *const include[] = {"[abc].*", "d.*"}, *const exclude[] = {"b.w"};
    static const char *const why[] = {NULL, "excluded", "a tensor has the name of a part of it",
                                      "fewer than two dimensions", "fewer than two dimensions"};
    cen_quantize_row rows[8];
    cen_quantize_options options = {.size = sizeof options,
                                    .codec = codec_of(CEN_CODEC_INT8, 0, 0),
                                    .include = include,
                                    .include_count = 2,
                                    .exclude = exclude,
                                    .exclude_count = 1};
    put_inputs("in", some, 5, NULL, 0);
    assert_int_equal(quantize("in", "out", &options, rows), CEN_OK);
    for (size_t i = 0; i < 5; i++) {
        assert_true(why[i] ? rows[i].kept && !strcmp(rows[i].kept, why[i]) : !rows[i].kept);
    }
    /* Again: what is quantised stays so, with its description; the others follow. */
    options =
        (cen_quantize_options){.size = sizeof options, .codec = codec_of(CEN_CODEC_INT4, 0, 0)};
    assert_int_equal(quantize("out", "again", &options, rows), CEN_OK);
    cen_tensors *t = open_tensors("again");
    cen_quantized q;
    assert_int_equal(cen_quantized_find(t, "a.w", &q), CEN_OK);
    assert_int_equal(q.codec.format, CEN_CODEC_INT8);
    assert_int_equal(cen_quantized_find(t, "b.w", &q), CEN_OK);
    assert_int_equal(q.codec.format, CEN_CODEC_INT4);
    assert_int_equal(cen_quantized_find(t, "c.w", &q), CEN_ERR_NOT_FOUND);
    assert_int_equal(cen_quantized_find(t, "absent", &q), CEN_ERR_NOT_FOUND);
    assert_false(cen_quantized_is_part(t, cen_tensors_find(t, "c.w.scale")));
    cen_tensors_close(t);
    assert_int_equal(dequantize("again", "back"), CEN_OK);
    same_frame("in", "back");
    files(true);
}

static char warned[512]; /* one after another */

static void keep(void *arg, cen_log_level level, const char *message) {
    if (level == CEN_LOG_WARN) {
        size_t length = strlen(warned);
        snprintf(warned + length, sizeof warned - length, "%s\n", message);
    }
}

static cen_codec_format within(double sqnr, const input *in, const char **kept) {
    cen_quantize_row row;
    cen_quantize_options options = {.size = sizeof options,
                                    .codec = codec_of(CEN_CODEC_INT4, 0, 0),
                                    .budget = {.min_sqnr_db = sqnr}};
    put_inputs("in", in, 1, NULL, 0);
    *warned = 0;
    cen_log_set(keep, NULL, CEN_LOG_WARN);
    assert_int_equal(quantize("in", "out", &options, &row), CEN_OK);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    *kept = row.kept;
    assert_true(row.kept || row.report.sqnr_db >= sqnr);
    if (row.kept) {
        same_tensors("in", "out");
    }
    return row.codec.format;
}

static void a_budget_widens_or_leaves_alone(void **state) {
    static const input f32 = {"w", "F32", 2, {40, 100}}, bf16 = {"w", "BF16", 2, {40, 100}};
    const char *kept;
    assert_int_equal(within(5, &f32, &kept), CEN_CODEC_INT4);
    assert_string_equal(warned, "");
    assert_int_equal(within(30, &f32, &kept), CEN_CODEC_INT8);
    assert_non_null(strstr(warned, "tensor 'w': int4 is over its budget: the SQNR in dB is"));
    assert_int_equal(within(100, &f32, &kept), CEN_CODEC_BF16);
    assert_null(kept);
    assert_int_equal(within(100, &bf16, &kept), 0);
    assert_string_equal(kept, "over its budget");
    assert_non_null(strstr(warned, "kept as it is"));
    files(true);
    cen_quantize_row row;
    cen_quantize_options options = {.size = sizeof options,
                                    .codec = codec_of(CEN_CODEC_INT4, 0, 0),
                                    .budget = {.min_sqnr_db = 100, .refuse = true}};
    put_inputs("in", &f32, 1, NULL, 0);
    assert_int_equal(quantize("in", "out", &options, &row), CEN_ERR_LIMIT);
    assert_int_equal(files(true), 1);
}

static void what_is_not_finite_is_told(void **state) {
    const uint64_t shape[] = {1, 4};
    const float values[] = {1, NAN, 2, -INFINITY};
    cen_tensor_spec spec = {"w", "F32", 2, shape};
    cen_tensor_writer *w = NULL;
    assert_int_equal(cen_tensor_writer_open(in_folder("in"), &spec, 1, NULL, 0, &w), CEN_OK);
    assert_int_equal(cen_tensor_writer_put(w, 0, values, sizeof values), CEN_OK);
    assert_int_equal(cen_tensor_writer_finish(w), CEN_OK);
    cen_quantize_row row;
    cen_quantize_options options = {.size = sizeof options,
                                    .codec = codec_of(CEN_CODEC_INT8, 0, 0)};
    cen_log_set(keep, NULL, CEN_LOG_WARN);
    assert_int_equal(quantize("in", "out", &options, &row), CEN_OK);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    assert_true(row.report.nan == 1 && row.report.infinite == 1);
    assert_non_null(strstr(warned, "tensor 'w': 1 NaNs became 0\n"));
    assert_non_null(strstr(warned, "tensor 'w': 1 infinities became the largest number that"));
    options.budget.finite_only = true;
    assert_int_equal(quantize("in", "out", &options, &row), CEN_OK);
    assert_string_equal(row.kept, "not finite");
    files(true);
}

static void wrong_calls_are_refused(void **state) {
    cen_quantize_row rows[MODEL];
    cen_quantize_options options = {.size = sizeof options,
                                    .codec = codec_of(CEN_CODEC_INT8, 0, 0)};
    put_inputs("in", model, MODEL, NULL, 0);
    assert_int_equal(link(in_folder("in"), in_folder("twin")), 0);
    cen_tensors *in = open_tensors("in");
    const char *out = in_folder("out");
    assert_int_equal(cen_quantize(in, in_folder("in"), &options, rows), CEN_ERR_INVALID);
    assert_int_equal(cen_quantize(in, in_folder("twin"), &options, rows), CEN_ERR_INVALID);
    assert_non_null(strstr(cen_log_last_error(), "is what is read"));
    assert_int_equal(cen_dequantize(in, in_folder("twin"), &options, rows), CEN_ERR_INVALID);
    assert_int_equal(cen_quantize(NULL, out, &options, rows), CEN_ERR_INVALID);
    assert_int_equal(cen_quantize(in, NULL, &options, rows), CEN_ERR_INVALID);
    assert_int_equal(cen_quantize(in, out, NULL, rows), CEN_ERR_INVALID);
    assert_int_equal(cen_quantize(in, out, &options, NULL), CEN_ERR_INVALID);
    options.size--;
    assert_int_equal(cen_quantize(in, out, &options, rows), CEN_ERR_INVALID);
    options.size++;
    options.budget.min_cosine = 2;
    assert_int_equal(cen_quantize(in, out, &options, rows), CEN_ERR_INVALID);
    options.budget.min_cosine = 0;
    options.codec.granularity = CEN_CODEC_TENSOR;
    assert_int_equal(cen_quantize(in, out, &options, rows), CEN_ERR_INVALID);
    options.codec.granularity = CEN_CODEC_UNSCALED;
    assert_int_equal(cen_quantize(in, out, &options, rows), CEN_ERR_INVALID);
    cen_tensors_close(in);
    assert_int_equal(files(true), 2);
}

/* Whatever fails but a file without a name, the output is what it was, and nothing else there. */
static void failures_leave_nothing(void **state) {
    static const cen_status expected[] = {CEN_ERR_HOST_MEMORY, CEN_ERR_IO}; /* by fault point */
    static const input few[] = {{"w", "BF16", 2, {4, 64}}, {"bias", "F32", 1, {4}}};
    cen_quantize_options options = {.size = sizeof options,
                                    .codec = codec_of(CEN_CODEC_INT4, 32, true),
                                    .budget = {.min_sqnr_db = 1}};
    cen_quantize_row rows[8];
    put_inputs("in", few, 2, NULL, 0);
    assert_int_equal(quantize("in", "q", &options, rows), CEN_OK);
    for (int point = 0; point < CENI_FAULT_POINTS; point++) {
        for (int way = 0; way < 2; way++) {
            int64_t n = 1, without = 0;
            for (bool passed = false; !passed; n++) {
                put_file("out", "before", 6);
                cen_tensors *in = open_tensors(way ? "q" : "in");
                ceni_fault_set(&ceni_fault_points[point], n, false);
                cen_status status = way ? cen_dequantize(in, in_folder("out"), &options, rows)
                                        : cen_quantize(in, in_folder("out"), &options, rows);
                passed = ceni_fault_points[point].left > 0;
                ceni_fault_set(&ceni_fault_points[point], 0, false);
                cen_tensors_close(in);
                bool fine = passed || (!status && !without++);
                assert_int_equal(status, fine ? CEN_OK : expected[point]);
                assert_int_equal(files(false), 3);
            }
            assert_true(n > 8 && without == (point == CENI_FAULT_IO));
        }
    }
    files(true);
}

/* ---- descriptions that are off ---- */

static void refuse_description(const char *text, const char *words) {
    static const input parts[] = {{"w", "F16", 2, {2, 32}}, {"w.scale", "F32", 2, {2, 1}}};
    const cen_tensor_note note = {"cenote.quantized:w", text};
    cen_quantized q;
    cen_quantize_row rows[2];
    const cen_quantize_options options = {.size = sizeof options};
    put_inputs("in", parts, 2, &note, 1);
    cen_tensors *t = open_tensors("in");
    assert_int_equal(cen_quantized_find(t, "w", &q), CEN_ERR_FORMAT);
    const char *said = cen_log_last_error();
    if (!strstr(said, words) || !strstr(said, "/in: tensor 'w', which is quantised: ")) {
        fail_msg("it says \"%s\", not \"%s\"", said, words);
    }
    cen_tensor_difference d;
    const cen_tensor *w = cen_tensors_find(t, "w");
    assert_int_equal(cen_tensors_compare(t, w, t, w, &d), CEN_ERR_FORMAT);
    assert_int_equal(cen_dequantize(t, in_folder("out"), &options, rows), CEN_ERR_FORMAT);
    cen_tensors_close(t);
    assert_int_equal(files(true), 1);
}

#define REST "\"dtype\":\"F32\",\"shape\":[2,32],\"rows\":2,\"cols\":32}"

static void wrong_descriptions_are_refused(void **state) {
    refuse_description("", "its description is no JSON");
    refuse_description("[]", "format: the name of a codec's format");
    refuse_description("{\"format\":\"int9\"," REST, "format: the name of a codec's format");
    refuse_description("{\"format\":\"fp16\"," REST, "scales: \"none\", \"row\" or \"group\"");
    refuse_description("{\"format\":\"fp16\",\"format\":\"fp16\"}", "its description is no JSON");
    refuse_description("{\"format\":\"fp16\",\"scales\":\"row\"," REST, "make no codec");
    refuse_description("{\"format\":\"int8\",\"scales\":\"group\",\"group\":33," REST,
                       "make no codec");
    refuse_description("{\"format\":\"int8\",\"scales\":\"group\",\"group\":4294967328," REST,
                       "make no codec");
    refuse_description("{\"format\":\"fp16\",\"scales\":\"none\",\"dtype\":\"F64\"}",
                       "dtype: a type that its format encodes");
    refuse_description("{\"format\":\"lossless_bf16\",\"scales\":\"none\"," REST,
                       "dtype: a type that its format encodes");
    static const char *const shapes[] = {
        "\"shape\":[],\"rows\":2,\"cols\":32",
        "\"shape\":[2,32],\"rows\":0,\"cols\":32",
        "\"shape\":[2,32],\"rows\":2,\"cols\":31",
        "\"shape\":[2,-32],\"rows\":2,\"cols\":32",
        "\"shape\":[2,32.0],\"rows\":2,\"cols\":32",
        "\"shape\":[0,32],\"rows\":0,\"cols\":32",
        "\"shape\":[4611686018427387904,4],\"rows\":2,\"cols\":32",
        "\"shape\":[1,2305843009213693952],\"rows\":1,\"cols\":2305843009213693952",
        "\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2,32],\"rows\":2,\"cols\":32"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{\"format\":\"fp16\",\"scales\":\"none\",\"dtype\":\"F32\",%s}", shapes[i]);
        refuse_description(text, "shape, rows and cols: of as many elements each");
    }
    refuse_description("{\"format\":\"bf16\",\"scales\":\"none\"," REST,
                       "its type or bytes are not");
    refuse_description(
        "{\"format\":\"fp16\",\"scales\":\"none\",\"dtype\":\"F32\",\"shape\":[2,33],"
        "\"rows\":2,\"cols\":33}",
        "its type or bytes are not");
    refuse_description("{\"format\":\"2:4_fp16\",\"scales\":\"none\",\"dtype\":\"F32\",\"shape\":"
                       "[2,64],\"rows\":2,\"cols\":64}",
                       "a tensor 'w.sparse' of type U16 and 16 bytes is expected");
}

/* A lossless tensor of a few bytes that claims more elements than there is memory. */
static void a_claim_of_many_elements_is_refused(void **state) {
    static const char text[] =
        "{\"format\":\"lossless_bf16\",\"scales\":\"none\",\"dtype\":\"BF16\","
        "\"shape\":[1073741824,1073741824],\"rows\":1073741824,"
        "\"cols\":1073741824}";
    const cen_tensor_note note = {"cenote.quantized:w", text};
    const uint64_t shape[] = {4};
    cen_tensor_spec spec = {"w", "U8", 1, shape};
    cen_tensor_writer *w = NULL;
    cen_tensor_difference d;
    cen_quantize_row row;
    const cen_quantize_options options = {.size = sizeof options};
    assert_int_equal(cen_tensor_writer_open(in_folder("in"), &spec, 1, &note, 1, &w), CEN_OK);
    assert_int_equal(cen_tensor_writer_put(w, 0, "abcd", 4), CEN_OK);
    assert_int_equal(cen_tensor_writer_finish(w), CEN_OK);
    cen_tensors *t = open_tensors("in");
    const cen_tensor *one = cen_tensors_get(t, 0);
    assert_int_equal(cen_tensors_compare(t, one, t, one, &d), CEN_ERR_FORMAT);
    assert_int_equal(cen_dequantize(t, in_folder("out"), &options, &row), CEN_ERR_FORMAT);
    cen_tensors_close(t);
    assert_int_equal(files(true), 1);
}

static void reading_rows_is_checked(void **state) {
    cen_quantize_row rows[MODEL];
    cen_quantize_options options = {.size = sizeof options,
                                    .codec = codec_of(CEN_CODEC_INT8, 0, 0)};
    put_inputs("in", model, MODEL, NULL, 0);
    assert_int_equal(quantize("in", "out", &options, rows), CEN_OK);
    cen_tensors *t = open_tensors("out");
    cen_quantized q;
    float all[5][70], two[2][70];
    assert_int_equal(cen_quantized_find(t, "f", &q), CEN_OK);
    assert_int_equal(cen_quantized_read(t, &q, 0, 5, CEN_FP32, all), CEN_OK);
    assert_int_equal(cen_quantized_read(t, &q, 3, 2, CEN_FP32, two), CEN_OK);
    assert_memory_equal(all[3], two, sizeof two);
    assert_int_equal(cen_quantized_read(t, &q, 4, 2, CEN_FP32, two), CEN_ERR_INVALID);
    assert_int_equal(cen_quantized_read(t, &q, 6, 0, CEN_FP32, two), CEN_ERR_INVALID);
    assert_int_equal(cen_quantized_read(t, &q, 0, 2, CEN_INT8, two), CEN_ERR_INVALID);
    assert_int_equal(cen_quantized_read(t, &q, 0, 2, CEN_FP32, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_quantized_read(NULL, &q, 0, 2, CEN_FP32, two), CEN_ERR_INVALID);
    assert_int_equal(cen_quantized_find(t, NULL, &q), CEN_ERR_INVALID);
    assert_int_equal(cen_quantized_find(t, "f", NULL), CEN_ERR_INVALID);
    cen_tensors_close(t);
    files(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_is_the_codecs),
        cmocka_unit_test(large_tensors_are_encoded_in_pieces),
        cmocka_unit_test(rows_are_made_of_trailing_dimensions),
        cmocka_unit_test(what_stays_is_named_with_its_reason),
        cmocka_unit_test(a_budget_widens_or_leaves_alone),
        cmocka_unit_test(what_is_not_finite_is_told),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(wrong_descriptions_are_refused),
        cmocka_unit_test(a_claim_of_many_elements_is_refused),
        cmocka_unit_test(reading_rows_is_checked),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
