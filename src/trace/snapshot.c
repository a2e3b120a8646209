/* Snapshots: the public calls, the reader's failures and its memory. */
#include "trace/read.h"

#include "base/log.h"
#include "base/mem.h"
#include "trace/read_ledger.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

cen_status ceni_read_fail(ceni_reader *reader, cen_status status, const char *format, ...) {
    if (!reader->status) {
        va_list args;
        va_start(args, format);
        vsnprintf(reader->message, sizeof reader->message, format, args);
        va_end(args);
        reader->status = status;
    }
    return reader->status;
}

cen_status ceni_read_charge(ceni_reader *reader, uint64_t bytes) {
    if (bytes > CENI_READ_KEPT_FREE + CENI_READ_KEPT_FACTOR * reader->source.stored) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT,
                              "what it holds is out of proportion to its size (limit: 256 MiB and "
                              "64 times the bytes read)");
    }
    return CEN_OK;
}

cen_status ceni_read_grow(ceni_reader *reader, void *array, size_t *capacity, size_t need,
                          size_t size) {
    size_t before = *capacity;
    if (ceni_grow(array, capacity, need, size)) {
        return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory for %zu elements", need);
    }
    reader->kept += (*capacity - before) * size;
    return ceni_read_charge(reader, reader->kept);
}

void ceni_reader_free(ceni_reader *reader) {
    ceni_source_close(&reader->source);
    void *arrays[] = {
        reader->stack.at,          reader->memo.at,
        reader->objects.at,        reader->wide.at,
        reader->lists.at,          reader->runs.at,
        reader->plains.at,         reader->entries.at,
        reader->events.at,         reader->segments.at,
        reader->blocks.at,         reader->histories.at,
        reader->notes.at,          reader->roots.at,
        reader->text.at,           reader->clean.at,
        reader->strings.at,        reader->frames.at,
        reader->stack_frames.at,   reader->stacks.at,
        reader->scratch.at,        reader->string_table.slots,
        reader->frame_table.slots, reader->stack_table.slots,
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        ceni_free(arrays[i]);
    }
    ceni_free(reader);
}

/* The end of a long name tells more than its beginning. */
static const char *short_name(const char *name) {
    size_t length = strlen(name);
    return length > 80 ? name + length - 80 : name;
}

/* Composes the message, logs it once and hands it to the caller. */
static cen_status report(const ceni_reader *reader, cen_read_error *error) {
    cen_read_error made = {.offset = reader->offset};
    char place[32] = "";
    if (reader->at_offset) {
        snprintf(place, sizeof place, "byte %llu: ", (unsigned long long)reader->offset);
    }
    snprintf(made.message, sizeof made.message, "%.80s: %s%s", short_name(reader->name), place,
             reader->message);
    ceni_one_line(made.message);
    if (error) {
        *error = made;
    }
    return ceni_fail(reader->status, "%s", made.message);
}

static cen_status run(ceni_reader *reader, ceni_value *result) {
    const ceni_source *source = &reader->source;
    if (ceni_source_fill(reader, source->window, 8)) { /* a pipe may have given less so far */
        return reader->status;
    }
    size_t size = (size_t)(source->end - source->window);
    return ceni_trace_looks(source->window, size)    ? ceni_trace_run(reader, result)
           : ceni_ledger_looks(source->window, size) ? ceni_ledger_run(reader, result)
           : ceni_rmm_looks(source->window, size)    ? ceni_rmm_run(reader, result)
                                                     : ceni_pickle_run(reader, result);
}

static cen_status read_all(const char *name, const char *path, const void *data, size_t size,
                           cen_snapshot **snapshot, cen_read_error *error) {
    ceni_reader *reader = ceni_calloc(1, sizeof *reader);
    if (!reader) {
        if (error) {
            *error = (cen_read_error){0};
            snprintf(error->message, sizeof error->message, "%.80s: no memory to read it",
                     short_name(name));
            ceni_one_line(error->message);
        }
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%.80s: no memory to read it", short_name(name));
    }
    reader->name = name;
    ceni_value result = 0;
    cen_status status;
    if ((status = ceni_source_open(reader, path, data, size)) ||
        (status = ceni_intern_words(reader)) || (status = run(reader, &result)) ||
        (status = ceni_assemble(reader, result, snapshot))) {
        report(reader, error);
    }
    ceni_reader_free(reader);
    return status;
}

cen_status ceni_ledger_snapshot(const ceni_ledger_file *file, cen_snapshot **snapshot) {
    ceni_reader *reader = ceni_calloc(1, sizeof *reader);
    if (!reader) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "ledger: no memory for its snapshot");
    }
    reader->name = "ledger";
    reader->source.fd = -1;
    reader->source.stored = (uint64_t)file->event_count * sizeof *file->events + file->text_size;
    ceni_value result = 0;
    cen_status status;
    if ((status = ceni_intern_words(reader)) ||
        (status = ceni_ledger_convert(reader, file, &result)) ||
        (status = ceni_assemble(reader, result, snapshot))) {
        report(reader, NULL);
    }
    ceni_reader_free(reader);
    return status;
}

static cen_status invalid(const char *argument, cen_read_error *error) {
    if (error) {
        *error = (cen_read_error){0};
        snprintf(error->message, sizeof error->message, "%s is NULL", argument);
    }
    return ceni_fail(CEN_ERR_INVALID, "reading a snapshot: %s is NULL", argument);
}

cen_status cen_snapshot_read(const char *path, cen_snapshot **snapshot, cen_read_error *error) {
    if (!path || !snapshot) {
        return invalid(path ? "snapshot" : "path", error);
    }
    return read_all(strcmp(path, "-") ? path : "standard input", path, NULL, 0, snapshot, error);
}

cen_status cen_snapshot_read_memory(const char *name, const void *data, size_t size,
                                    cen_snapshot **snapshot, cen_read_error *error) {
    if (!name || !snapshot || (size && !data)) {
        return invalid(!name ? "name" : snapshot ? "data" : "snapshot", error);
    }
    return read_all(name, NULL, data, size, snapshot, error);
}

void cen_snapshot_free(cen_snapshot *snapshot) {
    if (!snapshot) {
        return;
    }
    for (size_t i = 0; i < snapshot->device_count; i++) {
        ceni_free((void *)snapshot->devices[i].initial);
        ceni_free(snapshot->copied[i]);
    }
    ceni_free(snapshot->devices);
    ceni_free(snapshot->copied);
    ceni_free(snapshot->events);
    ceni_free(snapshot->segments);
    ceni_free(snapshot->blocks);
    ceni_free(snapshot->annotations);
    ceni_free(snapshot->text);
    ceni_free(snapshot->frames);
    ceni_free(snapshot->stacks);
    ceni_free(snapshot->settings);
    ceni_free(snapshot->setting_text);
    ceni_free(snapshot);
}

size_t cen_snapshot_device_count(const cen_snapshot *snapshot) {
    return snapshot->device_count;
}

const cen_snapshot_device *cen_snapshot_get_device(const cen_snapshot *snapshot, size_t index) {
    return index < snapshot->device_count ? &snapshot->devices[index] : NULL;
}

size_t cen_snapshot_stack_count(const cen_snapshot *snapshot) {
    return snapshot->stack_count;
}

const cen_frame *cen_snapshot_stack(const cen_snapshot *snapshot, uint32_t stack,
                                    size_t *frame_count) {
    if (stack >= snapshot->stack_count) {
        *frame_count = 0;
        return NULL;
    }
    *frame_count = snapshot->stacks[stack].count;
    return snapshot->frames + snapshot->stacks[stack].first;
}

const char *cen_snapshot_setting(const cen_snapshot *snapshot, const char *key) {
    for (size_t i = 0; i < snapshot->setting_count; i++) {
        if (!strcmp(snapshot->setting_text + snapshot->settings[i].key, key)) {
            return snapshot->setting_text + snapshot->settings[i].value;
        }
    }
    return NULL;
}
