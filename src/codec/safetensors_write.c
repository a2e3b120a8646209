/* Tensor files written: laid out first, then filled tensor by tensor, then named. */
#include "codec/safetensors.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/safetensors_out.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    cen_tensor_spec spec; /* while the header is made; the caller's */
    const ceni_tensor_type *type;
    size_t index; /* in the caller's order */
    uint64_t offset, bytes, written;
} place;

struct cen_tensor_writer {
    ceni_tensor_out out;
    place *places; /* in the caller's order */
    size_t count;
    uint64_t bytes; /* of the file */
    bool failed;
};

/* ---- the layout ---- */

/* Those of wide types first, so that all are aligned; then by name. */
static int by_layout(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->type != y->type) {
        return x->type > y->type ? -1 : 1;
    }
    return strcmp(x->spec.name, y->spec.name);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const place *)a)->spec.name, ((const place *)b)->spec.name);
}

static int by_index(const void *a, const void *b) {
    size_t x = ((const place *)a)->index, y = ((const place *)b)->index;
    return (x > y) - (x < y);
}

static cen_status check_spec(const char *path, size_t index, const cen_tensor_spec *spec,
                             place *made) {
    uint64_t count;
    if (!spec->name || !spec->type || (!spec->shape && spec->rank)) {
        return ceni_fail(CEN_ERR_INVALID, "%s: specs[%zu].%s is NULL", path, index,
                         !spec->name   ? "name"
                         : !spec->type ? "type"
                                       : "shape");
    }
    made->spec = *spec;
    made->type = ceni_tensor_type_find(spec->type);
    if (!made->type) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: tensor '%.200s': '%.32s' is no type of tensor files, such as F32",
                         path, spec->name, spec->type);
    }
    if (!strcmp(spec->name, "__metadata__")) {
        return ceni_fail(CEN_ERR_INVALID, "%s: a tensor cannot be named '__metadata__'", path);
    }
    if (!ceni_tensor_measure(made->type, spec->shape, spec->rank, &count, &made->bytes)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: tensor '%.200s': too many bytes, or a last byte that is not full",
                         path, spec->name);
    }
    return CEN_OK;
}

static cen_status check_specs(const char *path, const cen_tensor_spec *specs, size_t count,
                              place *places) {
    for (size_t i = 0; i < count; i++) {
        places[i].index = i;
        cen_status status = check_spec(path, i, &specs[i], &places[i]);
        if (status) {
            return status;
        }
    }
    if (count) {
        qsort(places, count, sizeof *places, by_name);
    }
    for (size_t i = 1; i < count; i++) {
        if (!by_name(&places[i - 1], &places[i])) {
            return ceni_fail(CEN_ERR_INVALID, "%s: tensor '%.200s' is to be written twice", path,
                             places[i].spec.name);
        }
    }
    return CEN_OK;
}

/* Offsets in the data. Leaves them in the order of the layout. */
static cen_status lay_out(const char *path, place *places, size_t count, uint64_t *data) {
    uint64_t end = 0;
    if (count) {
        qsort(places, count, sizeof *places, by_layout);
    }
    for (size_t i = 0; i < count; i++) {
        places[i].offset = end;
        end += places[i].bytes;
        if (end < places[i].bytes || end > (uint64_t)INT64_MAX - CEN_TENSOR_HEADER_MAX - 8) {
            return ceni_fail(CEN_ERR_INVALID, "%s: tensor '%.200s': no file is as large", path,
                             places[i].spec.name);
        }
    }
    *data = end;
    return CEN_OK;
}

/* ---- the header ---- */

/* A header in the making, and the file that it is for. */
typedef struct header {
    const char *path;
    ceni_str text;
} header;

static cen_status no_memory(const header *h) {
    return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for its header", h->path);
}

/* Appends text in quotes; `what` it is, in the failure. CEN_ERR_INVALID: it is no UTF-8. */
static cen_status put_text(header *h, const char *what, const char *text) {
    json_t *value = json_string(text);
    if (!value) {
        value = json_string_nocheck(""); /* which of the two reasons was it? */
        bool memory = !value;
        json_decref(value);
        return memory
                   ? no_memory(h)
                   : ceni_fail(CEN_ERR_INVALID, "%s: %s '%.200s' is no UTF-8", h->path, what, text);
    }
    char *quoted = json_dumps(value, JSON_ENCODE_ANY);
    json_decref(value);
    if (!quoted) {
        return no_memory(h);
    }
    ceni_str_printf(&h->text, "%s", quoted);
    free(quoted);
    return CEN_OK;
}

static int by_key(const void *a, const void *b) {
    return strcmp((*(const cen_tensor_note *const *)a)->key,
                  (*(const cen_tensor_note *const *)b)->key);
}

static cen_status put_sorted_notes(header *h, const cen_tensor_note **sorted, size_t count) {
    cen_status status = CEN_OK;
    qsort(sorted, count, sizeof(void *), by_key);
    ceni_str_printf(&h->text, "\"__metadata__\":{");
    for (size_t i = 0; i < count && !status; i++) {
        if (i && !by_key(&sorted[i - 1], &sorted[i])) {
            return ceni_fail(CEN_ERR_INVALID, "%s: metadata '%.200s' is to be written twice",
                             h->path, sorted[i]->key);
        }
        ceni_str_printf(&h->text, i ? "," : "");
        status = put_text(h, "the metadata's key", sorted[i]->key);
        ceni_str_printf(&h->text, ":");
        if (!status) {
            status = put_text(h, "the metadata's value", sorted[i]->value);
        }
    }
    ceni_str_printf(&h->text, "}");
    return status;
}

static cen_status put_notes(header *h, const cen_tensor_note *notes, size_t count) {
    const cen_tensor_note **sorted = ceni_malloc(count * sizeof(void *));
    if (!sorted) {
        return no_memory(h);
    }
    cen_status status = CEN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        sorted[i] = &notes[i];
        if (!notes[i].key || !notes[i].value) {
            status = ceni_fail(CEN_ERR_INVALID, "%s: notes[%zu].%s is NULL", h->path, i,
                               notes[i].key ? "value" : "key");
        }
    }
    if (!status && count) {
        status = put_sorted_notes(h, sorted, count);
    }
    ceni_free(sorted);
    return status;
}

static cen_status put_entry(header *h, const place *p) {
    cen_status status = put_text(h, "a tensor's name", p->spec.name);
    ceni_str_printf(&h->text, ":{\"dtype\":\"%s\",\"shape\":[", p->type->name);
    for (uint32_t i = 0; i < p->spec.rank; i++) {
        ceni_str_printf(&h->text, "%s%" PRIu64, i ? "," : "", p->spec.shape[i]);
    }
    ceni_str_printf(&h->text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", p->offset,
                    p->offset + p->bytes);
    return status;
}

/* With its length before it and spaces behind it, up to a multiple of 8. */
static cen_status make_header(header *h, const place *places, size_t count,
                              const cen_tensor_note *notes, size_t note_count) {
    ceni_str *text = &h->text;
    ceni_str_fill(text, ' ', 8); /* the length's place */
    ceni_str_printf(text, "{");
    cen_status status = put_notes(h, notes, note_count);
    for (size_t i = 0; i < count && !status; i++) {
        ceni_str_printf(text, i || note_count ? "," : "");
        status = put_entry(h, &places[i]);
    }
    ceni_str_printf(text, "}");
    ceni_str_fill(text, ' ', (int)(-text->size % 8));
    if (!status && text->failed) {
        status = no_memory(h);
    }
    if (!status && text->size - 8 > CEN_TENSOR_HEADER_MAX) {
        status = ceni_fail(CEN_ERR_INVALID, "%s: a header of %zu bytes; %u are the most", h->path,
                           text->size - 8, CEN_TENSOR_HEADER_MAX);
    }
    for (size_t i = 0; i < 8 && !status; i++) {
        text->data[i] = (char)((uint64_t)(text->size - 8) >> (8 * i));
    }
    return status;
}

/* ---- writing ---- */

static cen_status begin(cen_tensor_writer *w, const char *path, const cen_tensor_note *notes,
                        size_t note_count) {
    header h = {.path = path};
    uint64_t data = 0;
    cen_status status = lay_out(path, w->places, w->count, &data);
    if (!status) {
        status = make_header(&h, w->places, w->count, notes, note_count);
    }
    if (!status) {
        w->bytes = h.text.size + data;
        status = ceni_tensor_out_open(&w->out, path, w->bytes);
    }
    if (!status) {
        status = ceni_tensor_out_write(&w->out, 0, h.text.data, h.text.size);
    }
    for (size_t i = 0; i < w->count; i++) {
        w->places[i].offset += h.text.size;
        w->places[i].spec = (cen_tensor_spec){0};
    }
    if (w->count) {
        qsort(w->places, w->count, sizeof *w->places, by_index);
    }
    ceni_free(h.text.data);
    return status;
}

cen_status cen_tensor_writer_open(const char *path, const cen_tensor_spec *specs, size_t count,
                                  const cen_tensor_note *notes, size_t note_count,
                                  cen_tensor_writer **writer) {
    if (!path || (!specs && count) || (!notes && note_count) || !writer) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tensor_writer_open: %s is NULL",
                         !path                  ? "path"
                         : !specs && count      ? "specs"
                         : !notes && note_count ? "notes"
                                                : "writer");
    }
    cen_tensor_writer *made = ceni_calloc(1, sizeof *made);
    place *places = made ? ceni_calloc(count, sizeof *places) : NULL;
    if (!places) {
        ceni_free(made);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for a writer", path);
    }
    *made = (cen_tensor_writer){.out = {.fd = -1}, .places = places, .count = count};
    cen_status status = check_specs(path, specs, count, places);
    if (!status) {
        status = begin(made, path, notes, note_count);
    }
    if (status) {
        cen_tensor_writer_drop(made);
        return status;
    }
    *writer = made;
    return CEN_OK;
}

cen_status cen_tensor_writer_put(cen_tensor_writer *writer, size_t index, const void *data,
                                 uint64_t bytes) {
    if (!writer || (!data && bytes)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tensor_writer_put: %s is NULL",
                         writer ? "data" : "writer");
    }
    if (index >= writer->count) {
        return ceni_fail(CEN_ERR_INVALID, "%s: index is %zu; there are %zu tensors",
                         writer->out.target, index, writer->count);
    }
    place *p = &writer->places[index];
    if (bytes > p->bytes - p->written) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: tensor %zu has %" PRIu64 " of its %" PRIu64 " bytes; %" PRIu64
                         " more do not fit",
                         writer->out.target, index, p->written, p->bytes, bytes);
    }
    cen_status status = ceni_tensor_out_write(&writer->out, p->offset + p->written, data, bytes);
    p->written += bytes;
    writer->failed |= status != CEN_OK;
    return status;
}

uint64_t cen_tensor_writer_bytes(const cen_tensor_writer *writer) {
    return writer ? writer->bytes : 0;
}

cen_status cen_tensor_writer_finish(cen_tensor_writer *writer) {
    if (!writer) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tensor_writer_finish: writer is NULL");
    }
    cen_status status = CEN_OK;
    if (writer->failed) {
        status = ceni_fail(CEN_ERR_INVALID, "%s: writing failed before; it cannot be finished",
                           writer->out.target);
    }
    for (size_t i = 0; i < writer->count && !status; i++) {
        const place *p = &writer->places[i];
        if (p->written != p->bytes) {
            status = ceni_fail(CEN_ERR_INVALID,
                               "%s: tensor %zu has %" PRIu64 " of its %" PRIu64 " bytes",
                               writer->out.target, i, p->written, p->bytes);
        }
    }
    if (!status) {
        status = ceni_tensor_out_name(&writer->out);
    }
    cen_tensor_writer_drop(writer);
    return status;
}

void cen_tensor_writer_drop(cen_tensor_writer *writer) {
    if (writer) {
        ceni_tensor_out_close(&writer->out);
        ceni_free(writer->places);
        ceni_free(writer);
    }
}
