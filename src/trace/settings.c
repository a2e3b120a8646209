/* The allocator's settings as text, by key: "False", "0.8", and a dict in a setting as PyTorch's
 * own configuration writes it: "[256:1,512:2]". */
#include "trace/read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    ceni_reader *reader;
    CENI_ARRAY(char) text;
    CENI_ARRAY(ceni_setting) settings;
} writer;

static cen_status put(writer *w, const char *text, size_t size) {
    if (CENI_ROOM(w->reader, w->text, size)) {
        return w->reader->status;
    }
    memcpy(w->text.at + w->text.count, text, size);
    w->text.count += size;
    return CEN_OK;
}

void ceni_float_text(char *to, size_t size, uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    int digits = 1;
    do {
        snprintf(to, size, "%.*g", digits, value);
    } while (++digits <= 17 && strtod(to, NULL) != value);
    char *comma = strchr(to, ','); /* some locales' point */
    if (comma) {
        *comma = '.';
    }
    if (isfinite(value) && !strpbrk(to, ".e")) {
        strncat(to, ".0", size - strlen(to) - 1);
    }
}

static cen_status put_scalar(writer *w, ceni_value value) {
    char text[64] = "?";
    switch (ceni_tag_of(value)) {
    case CENI_NONE:
        return put(w, "None", 4);
    case CENI_BOOL:
        return ceni_payload(value) ? put(w, "True", 4) : put(w, "False", 5);
    case CENI_STR: {
        const char *string = ceni_string(w->reader, (uint32_t)ceni_payload(value));
        return put(w, string, strlen(string));
    }
    case CENI_INT:
        snprintf(text, sizeof text, "%lld", (long long)((int64_t)value >> 4));
        break;
    case CENI_WIDE:
        snprintf(text, sizeof text, "%llu",
                 (unsigned long long)w->reader->wide.at[ceni_payload(value)]);
        break;
    case CENI_FLOAT:
        ceni_float_text(text, sizeof text, w->reader->wide.at[ceni_payload(value)]);
        break;
    default:
        break;
    }
    return put(w, text, strlen(text));
}

/* The first entry of a plain dict (index + 1), or 0. */
static size_t first_entry(const ceni_reader *reader, ceni_value value) {
    if (ceni_tag_of(value) != CENI_DICT) {
        return 0;
    }
    uint64_t object = reader->objects.at[ceni_payload(value)];
    return (object & 255) == CENI_PLAIN ? reader->plains.at[object >> 8].head : 0;
}

static cen_status put_value(writer *w, ceni_value value) {
    size_t at = first_entry(w->reader, value);
    if (!at) {
        return put_scalar(w, value);
    }
    for (const char *before = "["; at; at = w->reader->entries.at[at - 1].next, before = ",") {
        ceni_entry entry = w->reader->entries.at[at - 1];
        if (put(w, before, 1) || put_scalar(w, entry.key) || put(w, ":", 1) ||
            put_scalar(w, entry.value)) {
            return w->reader->status;
        }
    }
    return put(w, "]", 1);
}

cen_status ceni_assemble_settings(ceni_reader *reader, ceni_value settings,
                                  cen_snapshot *snapshot) {
    writer w = {.reader = reader};
    for (size_t at = first_entry(reader, settings); at; at = reader->entries.at[at - 1].next) {
        ceni_entry entry = reader->entries.at[at - 1];
        ceni_setting setting = {.key = w.text.count};
        if (CENI_ROOM(reader, w.settings, 1) || put_scalar(&w, entry.key) || put(&w, "", 1)) {
            break;
        }
        setting.value = w.text.count;
        if (put_value(&w, entry.value) || put(&w, "", 1)) {
            break;
        }
        w.settings.at[w.settings.count++] = setting;
    }
    snapshot->settings = w.settings.at;
    snapshot->setting_count = w.settings.count;
    snapshot->setting_text = w.text.at;
    return reader->status;
}
