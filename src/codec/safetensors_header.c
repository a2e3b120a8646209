/* The header of a tensor file taken apart.
 *
 * Its outer object, and that of the metadata, are walked here member by member, and each name and
 * value is read by jansson on its own: so memory is needed for one member at a time, and not for a
 * tree of the whole, which would be twenty times the header. */
#include "codec/safetensors.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* No tensor's entry is nearly as long; what is longer is not read. */
enum { ENTRY_BYTES = 65536 };

typedef struct header {
    cen_tensors *into;
    uint32_t shard;
    const char *file, *text;
    size_t size, at;
    bool has_metadata;
} header;

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(header *h) {
    while (h->at < h->size && is_space(h->text[h->at])) {
        h->at++;
    }
}

/* The next byte that is no white space; NUL at the end, which no JSON has. */
static char next(header *h) {
    skip_space(h);
    return h->at < h->size ? h->text[h->at] : '\0';
}

static cen_status no_memory(const header *h) {
    return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for its header", h->file);
}

static cen_status expected(const header *h, const char *what) {
    return ceni_fail(CEN_ERR_FORMAT, "%s: header, byte %zu: %s is expected", h->file, h->at, what);
}

/* The JSON value here, which has to end within `limit` bytes. */
static cen_status read_value(header *h, size_t limit, json_t **value) {
    json_error_t error = {0};
    size_t rest = h->size - h->at;
    bool cut = rest > limit;
    json_t *made =
        json_loadb(h->text + h->at, cut ? limit : rest,
                   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &error);
    if (made) {
        h->at += (size_t)error.position;
        *value = made;
        return CEN_OK;
    }
    if (json_error_code(&error) == json_error_out_of_memory) {
        return no_memory(h);
    }
    if (cut && json_error_code(&error) == json_error_premature_end_of_input) {
        return ceni_fail(CEN_ERR_FORMAT, "%s: header, byte %zu: an entry of more than %zu bytes",
                         h->file, h->at, limit);
    }
    return ceni_fail(CEN_ERR_FORMAT, "%s: header, byte %zu: %s", h->file,
                     h->at + (error.position > 0 ? (size_t)error.position : 0),
                     ceni_json_fault(&error));
}

static cen_status read_text(header *h, const char *what, json_t **text) {
    if (next(h) != '"') {
        return expected(h, what);
    }
    return read_value(h, h->size, text);
}

/* Calls `member` for each member of the object here, with the place at the member's value. */
static cen_status walk(header *h, const char *what, cen_status (*member)(header *h, json_t *key)) {
    if (next(h) != '{') {
        return expected(h, what);
    }
    h->at++;
    if (next(h) == '}') {
        h->at++;
        return CEN_OK;
    }
    for (;;) {
        json_t *key = NULL;
        cen_status status = read_text(h, "a name in quotes", &key);
        if (!status && next(h) != ':') {
            status = expected(h, "':'");
        }
        if (!status) {
            h->at++;
            status = member(h, key);
        }
        json_decref(key);
        if (status) {
            return status;
        }
        char after = next(h);
        if (after != ',' && after != '}') {
            return expected(h, "',' or '}'");
        }
        h->at++;
        if (after == '}') {
            return CEN_OK;
        }
    }
}

static cen_status read_note(header *h, json_t *key) {
    json_t *value = NULL;
    cen_status status = read_text(h, "text in quotes, as all metadata is,", &value);
    if (status) {
        return status;
    }
    cen_tensors *into = h->into;
    size_t key_size = json_string_length(key) + 1, value_size = json_string_length(value) + 1;
    char *made = ceni_malloc(key_size + value_size);
    if (!made ||
        ceni_grow(&into->notes, &into->note_capacity, into->note_count + 1, sizeof *into->notes)) {
        ceni_free(made);
        json_decref(value);
        return no_memory(h);
    }
    memcpy(made, json_string_value(key), key_size);
    memcpy(made + key_size, json_string_value(value), value_size);
    json_decref(value);
    into->notes[into->note_count++] = (cen_tensor_note){made, made + key_size};
    return CEN_OK;
}

static cen_status wrong(const header *h, const json_t *name, const char *what) {
    return ceni_fail(CEN_ERR_FORMAT, "%s: header: tensor '%.200s': %s", h->file,
                     json_string_value(name), what);
}

/* -0 and the like, which jansson takes for 0. */
static bool has_minus(const char *text, size_t size) {
    bool quoted = false;
    for (size_t i = 0; i < size; i++) {
        if (quoted && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            quoted = !quoted;
        } else if (!quoted && text[i] == '-') {
            return true;
        }
    }
    return false;
}

/* Whole numbers only: what has a point or an exponent is read as a real. There is no sign. */
static bool read_numbers(const json_t *list, uint64_t *numbers) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *number = json_array_get(list, i);
        if (!json_is_integer(number)) {
            return false;
        }
        numbers[i] = (uint64_t)json_integer_value(number);
    }
    return true;
}

static cen_status measure(const header *h, const json_t *name, const ceni_tensor_type *type,
                          const uint64_t offsets[2], cen_tensor *tensor) {
    if (offsets[0] > offsets[1]) {
        return wrong(h, name, "data_offsets: its end is before its beginning");
    }
    if (!ceni_tensor_measure(type, tensor->shape, tensor->rank, &tensor->count, &tensor->bytes)) {
        return wrong(h, name, "shape: too many bytes, or a last byte that is not full");
    }
    if (tensor->bytes != offsets[1] - offsets[0]) {
        return wrong(h, name, "data_offsets: not as many bytes as type and shape make");
    }
    tensor->type = type->name;
    tensor->dtype = type->dtype;
    tensor->bits = type->bits;
    tensor->offset = offsets[0];
    return CEN_OK;
}

/* What an entry says, in memory that begins at tensor->shape. */
static cen_status read_tensor(const header *h, const json_t *name, const json_t *entry,
                              cen_tensor *tensor) {
    const char *spelling = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *place = json_object_get(entry, "data_offsets");
    const ceni_tensor_type *type = spelling ? ceni_tensor_type_find(spelling) : NULL;
    if (!type) {
        return wrong(h, name, "dtype: one of safetensors' types is expected, such as \"F32\"");
    }
    if (!json_is_array(shape)) {
        return wrong(h, name, "shape: a list is expected");
    }
    uint64_t offsets[2];
    if (json_array_size(place) != 2 || !read_numbers(place, offsets)) {
        return wrong(h, name, "data_offsets: a list of two whole numbers is expected");
    }
    size_t rank = json_array_size(shape), size = json_string_length(name) + 1;
    uint64_t *numbers = ceni_malloc(rank * sizeof *numbers + size);
    if (!numbers) {
        return no_memory(h);
    }
    memcpy(numbers + rank, json_string_value(name), size);
    *tensor = (cen_tensor){.name = (char *)(numbers + rank),
                           .shape = numbers,
                           .rank = (uint32_t)rank,
                           .shard = h->shard};
    cen_status status = read_numbers(shape, numbers)
                            ? measure(h, name, type, offsets, tensor)
                            : wrong(h, name, "shape: whole numbers from 0 up are expected");
    if (status) {
        ceni_free(numbers);
    }
    return status;
}

static cen_status read_entry(header *h, json_t *name) {
    json_t *entry = NULL;
    if (next(h) != '{') {
        return expected(h, "an object that describes a tensor");
    }
    size_t begin = h->at;
    cen_status status = read_value(h, ENTRY_BYTES, &entry);
    if (status) {
        return status;
    }
    cen_tensors *into = h->into;
    cen_tensor tensor;
    if (has_minus(h->text + begin, h->at - begin)) {
        status = wrong(h, name, "a number with a sign; whole numbers from 0 up are expected");
    } else if (ceni_grow(&into->tensors, &into->capacity, into->count + 1, sizeof *into->tensors)) {
        status = no_memory(h);
    } else {
        status = read_tensor(h, name, entry, &tensor);
    }
    if (!status) {
        into->tensors[into->count++] = tensor;
    }
    json_decref(entry);
    return status;
}

static cen_status read_member(header *h, json_t *key) {
    if (strcmp(json_string_value(key), "__metadata__") != 0) {
        return read_entry(h, key);
    }
    if (h->has_metadata) {
        return ceni_fail(CEN_ERR_FORMAT, "%s: header: __metadata__ is there twice", h->file);
    }
    h->has_metadata = true;
    return walk(h, "an object", read_note);
}

cen_status ceni_tensors_parse(cen_tensors *tensors, uint32_t shard, const char *text, size_t size) {
    header h = {.into = tensors,
                .shard = shard,
                .file = tensors->shards[shard].told.path,
                .text = text,
                .size = size};
    cen_status status = walk(&h, "'{'", read_member);
    if (!status && (skip_space(&h), h.at < size)) {
        status = expected(&h, "the header's end");
    }
    return status;
}
