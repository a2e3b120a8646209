/* How JSON is built: what the explanation of a file and that of ranks share. */
#ifndef CENI_DIAGNOSE_JSON_H
#define CENI_DIAGNOSE_JSON_H

#include "trace/diagnose.h"

#include <jansson.h>
#include <stdlib.h>

/* A failed jansson call leaves NULL values behind, so a report with holes in it: `failed` says that
 * memory ran out. */
typedef struct builder {
    bool failed;
} builder;

static inline void set(builder *b, json_t *object, const char *key, json_t *value) {
    if (!value || json_object_set_new(object, key, value)) {
        b->failed = true;
    }
}

static inline void append(builder *b, json_t *array, json_t *value) {
    if (!value || json_array_append_new(array, value)) {
        b->failed = true;
    }
}

static inline json_t *text(const char *s) {
    json_t *value = json_string(s);
    /* A name in a file may be no UTF-8. */
    return value ? value : json_string("?");
}

/* Bytes, or any count. */
static inline json_t *bytes(uint64_t n) {
    return json_integer((json_int_t)n);
}

static inline json_t *known(uint64_t n) {
    return n ? bytes(n) : json_null();
}

static inline json_t *from_str(ceni_str *s) {
    char *taken = ceni_str_take(s);
    json_t *value = taken ? text(taken) : NULL;
    free(taken);
    return value;
}

static inline json_t *label(const ceni_owner *owner) {
    ceni_str s = {0};
    ceni_put_label(&s, owner);
    return from_str(&s);
}

static inline json_t *frame(builder *b, const cen_frame *f) {
    json_t *object = json_object();
    set(b, object, "file", text(f->file));
    set(b, object, "line", json_integer(f->line));
    set(b, object, "function", text(f->function));
    return object;
}

static inline json_t *frame_list(builder *b, const cen_frame *frames, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        append(b, array, frame(b, &frames[i]));
    }
    return array;
}

/* The usual object of one file. */
json_t *ceni_json_explanation(builder *b, const cen_explanation *explanation);
/* The object of several ranks, with that of the explained one in it. */
json_t *ceni_json_ranks(builder *b, const cen_explanation *explanation);

#endif
