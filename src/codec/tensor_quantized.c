/* Quantised tensors found in a file, and decoded. */
#include "codec/tensor_quantized.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/codec.h"
#include "codec/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

enum { ROW_ELEMENTS = 64 };

bool ceni_quantized_fits(const cen_codec *codec) {
    return codec->granularity == CEN_CODEC_UNSCALED || codec->granularity == CEN_CODEC_ROW ||
           codec->granularity == CEN_CODEC_GROUP;
}

uint64_t ceni_quantized_rows(const cen_codec *codec, uint64_t rows, uint64_t cols) {
    uint64_t fit = CENI_ROWS_BYTES / 4 / cols;
    if (codec->format == CEN_CODEC_LOSSLESS_BF16 || fit > rows) {
        return rows;
    }
    return fit ? fit : 1;
}

const char *ceni_quantized_type(cen_codec_format format) {
    return cen_tensor_type(format == CEN_CODEC_INT4 ? CEN_UINT8 : cen_codec_format_dtype(format));
}

static bool is_dense(cen_codec_format format) {
    return format == CEN_CODEC_FP16 || format == CEN_CODEC_BF16 || ceni_codec_is_fp8(format) ||
           format == CEN_CODEC_INT8;
}

void ceni_quantized_shape(const cen_quantized *q, uint64_t bytes, uint32_t *rank,
                          uint64_t shape[CEN_QUANTIZED_RANK]) {
    uint64_t size = cen_dtype_bits(cen_codec_format_dtype(q->codec.format)) / 8;
    if (is_dense(q->codec.format)) {
        memcpy(shape, q->shape, sizeof q->shape);
        *rank = q->rank;
    } else if (q->codec.format == CEN_CODEC_LOSSLESS_BF16) {
        shape[0] = bytes;
        *rank = 1;
    } else {
        shape[0] = q->rows;
        shape[1] = bytes / (size ? size : 1) / q->rows;
        *rank = 2;
    }
}

void ceni_quantized_matrix(const cen_tensor *tensor, uint64_t *rows, uint64_t *cols) {
    uint64_t row = tensor->shape[tensor->rank - 1];
    for (uint32_t i = tensor->rank - 1; i-- > 1 && row < ROW_ELEMENTS;) {
        row *= tensor->shape[i];
    }
    *cols = row;
    *rows = row ? tensor->count / row : 0;
}

/* ---- the description ---- */

char *ceni_quantized_describe(const cen_quantized *q) {
    ceni_str text = {0};
    const cen_codec *c = &q->codec;
    ceni_str_printf(&text, "{\"format\":\"%s\",\"scales\":\"%s\"", cen_codec_format_name(c->format),
                    c->granularity == CEN_CODEC_ROW     ? "row"
                    : c->granularity == CEN_CODEC_GROUP ? "group"
                                                        : "none");
    if (c->granularity == CEN_CODEC_GROUP) {
        ceni_str_printf(&text, ",\"group\":%" PRIu32, c->group);
    }
    ceni_str_printf(&text, "%s,\"dtype\":\"%s\",\"shape\":[",
                    c->asymmetric ? ",\"asymmetric\":true" : "", cen_tensor_type(q->dtype));
    for (uint32_t i = 0; i < q->rank; i++) {
        ceni_str_printf(&text, "%s%" PRIu64, i ? "," : "", q->shape[i]);
    }
    ceni_str_printf(&text, "],\"rows\":%" PRIu64 ",\"cols\":%" PRIu64 "}", q->rows, q->cols);
    return ceni_str_take(&text);
}

/* The tensor whose description is read, and the file that has both. */
typedef struct described {
    const cen_tensors *file;
    const cen_tensor *tensor;
} described;

static cen_status wrong(const described *of, const char *what) {
    return ceni_fail(CEN_ERR_FORMAT, "%s: tensor '%.200s', which is quantised: %s", of->file->path,
                     of->tensor->name, what);
}

static cen_status no_memory(const cen_tensors *file, const char *name) {
    return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: tensor '%.200s': no memory for its description",
                     file->path, name);
}

/* A number from 1 up; 0: there is none. */
static uint64_t whole(const json_t *value) {
    return json_is_integer(value) && json_integer_value(value) > 0
               ? (uint64_t)json_integer_value(value)
               : 0;
}

static bool is_text(const json_t *value, const char *text) {
    return json_is_string(value) && !strcmp(json_string_value(value), text);
}

static cen_status read_codec(const described *of, const json_t *root, cen_codec *codec) {
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *scales = json_object_get(root, "scales");
    cen_status before = ceni_log_expect(CEN_ERR_NOT_FOUND);
    bool known = format && !cen_codec_format_find(format, &codec->format);
    ceni_log_expect(before);
    if (!known) {
        return wrong(of, "format: the name of a codec's format is expected");
    }
    codec->granularity = is_text(scales, "row")     ? CEN_CODEC_ROW
                         : is_text(scales, "group") ? CEN_CODEC_GROUP
                                                    : CEN_CODEC_UNSCALED;
    if (!codec->granularity && !is_text(scales, "none")) {
        return wrong(of, "scales: \"none\", \"row\" or \"group\" is expected");
    }
    uint64_t group = whole(json_object_get(root, "group"));
    codec->group = group <= UINT32_MAX ? (uint32_t)group : UINT32_MAX;
    codec->asymmetric = json_is_true(json_object_get(root, "asymmetric"));
    before = ceni_log_expect(CEN_ERR_INVALID);
    bool right = !cen_codec_check(codec);
    ceni_log_expect(before);
    return right ? CEN_OK : wrong(of, "format, scales and group make no codec");
}

/* Type and shape of what was encoded. */
static cen_status read_source(const described *of, const json_t *root, cen_quantized *q) {
    static const cen_dtype types[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    const json_t *dtype = json_object_get(root, "dtype"), *shape = json_object_get(root, "shape");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        q->dtype = is_text(dtype, cen_tensor_type(types[i])) ? types[i] : q->dtype;
    }
    if (!q->dtype || (q->codec.format == CEN_CODEC_LOSSLESS_BF16 && q->dtype != CEN_BF16)) {
        return wrong(of, "dtype: a type that its format encodes is expected");
    }
    /* As FP32, into which they may be decoded, no more than a file has bytes. */
    const uint64_t most = INT64_MAX / sizeof(float);
    uint64_t product = 1;
    q->rows = whole(json_object_get(root, "rows"));
    q->cols = whole(json_object_get(root, "cols"));
    q->rank = json_array_size(shape) <= CEN_QUANTIZED_RANK ? (uint32_t)json_array_size(shape) : 0;
    for (uint32_t i = 0; i < q->rank && product; i++) {
        q->shape[i] = whole(json_array_get(shape, i));
        product = q->shape[i] && product <= most / q->shape[i] ? product * q->shape[i] : 0;
    }
    if (!q->rank || !product || !q->rows || product / q->rows != q->cols || product % q->rows) {
        return wrong(of, "shape, rows and cols: of as many elements each, over 0, is expected");
    }
    return CEN_OK;
}

static cen_status parse(const described *of, const char *text, cen_quantized *q) {
    json_error_t error = {0};
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory) {
        return no_memory(of->file, of->tensor->name);
    }
    if (!root) {
        return wrong(of, "its description is no JSON");
    }
    cen_status status = read_codec(of, root, &q->codec);
    if (!status) {
        status = read_source(of, root, q);
    }
    json_decref(root);
    return status;
}

/* ---- the parts ---- */

char *ceni_quantized_text(const char *before, const char *name, const char *end) {
    ceni_str text = {0};
    ceni_str_printf(&text, "%s%s%s", before, name, end);
    return ceni_str_take(&text);
}

/* A part of so many bytes, if there are any. */
static cen_status find_part(const described *of, const char *end, const char *type, uint64_t bytes,
                            const cen_tensor **part) {
    if (!bytes) {
        return CEN_OK;
    }
    char *name = ceni_quantized_text("", of->tensor->name, end);
    if (!name) {
        return no_memory(of->file, of->tensor->name);
    }
    const cen_tensor *found = cen_tensors_find(of->file, name);
    ceni_free(name);
    if (!found || strcmp(found->type, type) != 0 || found->bytes != bytes) {
        return ceni_fail(CEN_ERR_FORMAT,
                         "%s: tensor '%.200s', which is quantised: a tensor '%.200s%s' of type %s "
                         "and %" PRIu64 " bytes is expected",
                         of->file->path, of->tensor->name, of->tensor->name, end, type, bytes);
    }
    *part = found;
    return CEN_OK;
}

static cen_status find_parts(const described *of, cen_quantized *q) {
    cen_codec_sizes sizes = {0};
    cen_status before = ceni_log_expect(CEN_ERR_INVALID);
    cen_status status = cen_codec_bound(&q->codec, q->rows, q->cols, &sizes);
    ceni_log_expect(before);
    bool lossless = q->codec.format == CEN_CODEC_LOSSLESS_BF16;
    /* Lossless keeps a byte of each element as it is: so none claims more than there can be. */
    uint64_t least = lossless ? q->rows * q->cols : sizes.values;
    const cen_tensor *values = of->tensor;
    if (status || strcmp(values->type, ceni_quantized_type(q->codec.format)) != 0 ||
        values->bytes < least || values->bytes > sizes.values) {
        return wrong(of, "its type or bytes are not what its description makes");
    }
    q->values = values;
    status = find_part(of, CENI_SCALES_END, "F32", sizes.scales, &q->scales);
    if (!status) {
        status = find_part(of, CENI_ZEROS_END, "I8", sizes.zeros, &q->zeros);
    }
    if (!status) {
        const char *words = q->codec.format == CEN_CODEC_SPARSE_INT8 ? "U32" : "U16";
        status = find_part(of, CENI_METADATA_END, words, sizes.metadata, &q->metadata);
    }
    return status;
}

cen_status cen_quantized_find(const cen_tensors *tensors, const char *name,
                              cen_quantized *quantized) {
    if (!tensors || !name || !quantized) {
        return ceni_fail(CEN_ERR_INVALID, "cen_quantized_find: %s is NULL",
                         !tensors ? "tensors"
                         : !name  ? "name"
                                  : "quantized");
    }
    const described of = {tensors, cen_tensors_find(tensors, name)};
    char *key = ceni_quantized_text(CENI_QUANTIZED_KEY, name, "");
    if (!key) {
        return no_memory(tensors, name);
    }
    const char *text = cen_tensors_find_note(tensors, key);
    ceni_free(key);
    if (!of.tensor || !text) {
        return ceni_fail(CEN_ERR_NOT_FOUND, "%s: tensor '%.200s' is not %s", tensors->path, name,
                         of.tensor ? "described as quantised" : "there");
    }
    cen_quantized made = {0};
    cen_status status = parse(&of, text, &made);
    if (!status) {
        status = find_parts(&of, &made);
    }
    if (!status) {
        *quantized = made;
    }
    return status;
}

cen_status cen_quantized_check(const cen_tensors *tensors) {
    static const char key[] = CENI_QUANTIZED_KEY;
    cen_status status = CEN_OK;
    if (!tensors) {
        return ceni_fail(CEN_ERR_INVALID, "cen_quantized_check: tensors is NULL");
    }
    for (size_t i = 0; i < cen_tensors_note_count(tensors) && !status; i++) {
        const cen_tensor_note *note = cen_tensors_get_note(tensors, i);
        const char *name = note->key + sizeof key - 1;
        cen_quantized found;
        if (strncmp(note->key, key, sizeof key - 1) != 0) {
            continue;
        }
        status = cen_tensors_find(tensors, name)
                     ? cen_quantized_find(tensors, name, &found)
                     : ceni_fail(CEN_ERR_FORMAT,
                                 "%s: metadata '%s%.200s' is of a tensor that is not there",
                                 tensors->path, key, name);
    }
    return status;
}

/* As strcmp of `key` with the key of the description of the tensor of that name. */
static int compare_key(const char *key, const char *name, size_t length) {
    size_t before = sizeof CENI_QUANTIZED_KEY - 1;
    int order = strncmp(key, CENI_QUANTIZED_KEY, before);
    if (!order) {
        order = strncmp(key + before, name, length);
    }
    return order ? order : key[before + length] != '\0';
}

static bool is_described(const cen_tensors *tensors, const char *name, size_t length) {
    size_t low = 0, high = cen_tensors_note_count(tensors); /* sorted by key */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_key(cen_tensors_get_note(tensors, middle)->key, name, length);
        if (!order) {
            return true;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return false;
}

bool cen_quantized_is_part(const cen_tensors *tensors, const cen_tensor *tensor) {
    static const char *const ends[] = {CENI_SCALES_END, CENI_ZEROS_END, CENI_METADATA_END};
    size_t length = tensor ? strlen(tensor->name) : 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);
        if (length >= end && !strcmp(tensor->name + length - end, ends[i]) &&
            is_described(tensors, tensor->name, length - end)) {
            return true;
        }
    }
    return false;
}

/* ---- decoding ---- */

/* The rows' bytes of a part, which is read to `to`. */
static cen_status read_part(const cen_tensors *tensors, const cen_tensor *part, uint64_t all,
                            uint64_t first, uint64_t rows, uint8_t **to, cen_addr *at,
                            uint64_t *bytes) {
    uint64_t row = part ? part->bytes / all : 0, from = first * row;
    bool whole_part = rows == all;
    *bytes = !part ? 0 : whole_part ? part->bytes : rows * row;
    *at = (cen_addr)*to;
    cen_status status =
        part ? cen_tensors_read(tensors, part, whole_part ? 0 : from, *bytes, *to) : CEN_OK;
    *to += *bytes;
    return status;
}

static cen_status decode(const cen_tensors *tensors, const cen_quantized *q, uint64_t first,
                         uint64_t rows, uint8_t *room, const cen_matrix *to) {
    cen_codec_parts parts = {0};
    const struct {
        const cen_tensor *part;
        cen_addr *at;
        uint64_t *bytes;
    } all[] = {{q->values, &parts.values, &parts.bytes.values},
               {q->scales, &parts.scales, &parts.bytes.scales},
               {q->zeros, &parts.zeros, &parts.bytes.zeros},
               {q->metadata, &parts.metadata, &parts.bytes.metadata}};
    cen_status status = CEN_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !status; i++) {
        status =
            read_part(tensors, all[i].part, q->rows, first, rows, &room, all[i].at, all[i].bytes);
    }
    return status ? status : cen_codec_decode(&q->codec, &parts, to);
}

cen_status cen_quantized_read(const cen_tensors *tensors, const cen_quantized *quantized,
                              uint64_t first, uint64_t rows, cen_dtype dtype, void *to) {
    const cen_quantized *q = quantized;
    if (!tensors || !q || (!to && rows)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_quantized_read: %s is NULL",
                         !tensors ? "tensors"
                         : !q     ? "quantized"
                                  : "to");
    }
    bool lossless = q->codec.format == CEN_CODEC_LOSSLESS_BF16;
    if (first > q->rows || rows > q->rows - first || (lossless && rows != q->rows)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_quantized_read: %" PRIu64 " rows from %" PRIu64
                         " on; there are %" PRIu64 "%s",
                         rows, first, q->rows, lossless ? ", to be read at once" : "");
    }
    const cen_tensor *const parts[4] = {q->values, q->scales, q->zeros, q->metadata};
    uint64_t bytes = 0;
    for (size_t i = 0; i < 4; i++) {
        uint64_t most = parts[i] ? parts[i]->bytes : 0;
        bytes += lossless ? most : most / q->rows * rows;
    }
    uint8_t *room = ceni_malloc((size_t)bytes);
    if (!room) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: tensor '%.200s': no memory to decode it",
                         tensors->path, q->values->name);
    }
    cen_matrix matrix = {(cen_addr)to, rows, q->cols, q->cols, dtype};
    cen_status status = decode(tensors, q, first, rows, room, &matrix);
    ceni_free(room);
    return status;
}
