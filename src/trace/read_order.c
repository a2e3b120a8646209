/* The order of a trace's events, and the whole that their devices, marks and settings make.
 *
 * The order is that of the events' times; equal times keep the file's order. The result has the
 * shape that a pickle's has when it was folded, so that both are assembled alike. */
#include "trace/read_trace.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static int by_device_and_time(const void *left, const void *right) {
    const ceni_event_key *a = left, *b = right;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    if (a->ticks != b->ticks) {
        return a->ticks < b->ticks ? -1 : 1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

/* ---- steps and marks ---- */

/* The program's mark is each device's; a converted recording says whose it is. */
static cen_status put_note(ceni_trace_file *f, const ceni_event_record *e, uint32_t step,
                           uint32_t devices) {
    ceni_reader *reader = f->reader;
    bool is_step = e->kind == CENI_EVENT_STEP;
    if (!is_step && (e->kind != CENI_EVENT_MARK || e->addr >= f->strings.count)) {
        return CEN_OK;
    }
    ceni_note_record note = {.time_us = ceni_trace_time_us(f, e->ticks),
                             .name = is_step ? step : f->strings.at[e->addr],
                             .end = is_step || e->size};
    if (CENI_ROOM(reader, reader->notes, devices + 1)) {
        return reader->status;
    }
    if (e->device != CENI_EMIT_ALL_DEVICES) {
        note.device = e->device;
        reader->notes.at[reader->notes.count++] = note;
        return CEN_OK;
    }
    for (note.device = 0; note.device < devices; note.device++) {
        reader->notes.at[reader->notes.count++] = note;
    }
    return CEN_OK;
}

static cen_status put_notes(ceni_trace_file *f, const ceni_event_key *keys, size_t count,
                            uint32_t devices, ceni_value *notes) {
    uint32_t step;
    if (ceni_intern_string(f->reader, (const uint8_t *)CENI_STEP_MARK, strlen(CENI_STEP_MARK),
                           &step)) {
        return f->reader->status;
    }
    for (size_t i = 0; i < count; i++) {
        if (put_note(f, &f->events.at[keys[i].index], step, devices)) {
            return f->reader->status;
        }
    }
    return ceni_trace_list(f->reader, CENI_NOTE, 0, f->reader->notes.count, notes);
}

/* ---- the whole ---- */

static cen_status make_keys(ceni_trace_file *f, ceni_event_key **keys) {
    size_t capacity = 0, count = f->events.count;
    *keys = NULL;
    if (ceni_read_grow(f->reader, keys, &capacity, count, sizeof **keys)) {
        return f->reader->status;
    }
    for (size_t i = 0; i < count; i++) {
        (*keys)[i] = (ceni_event_key){f->events.at[i].ticks, i, f->events.at[i].device};
    }
    if (count) {
        qsort(*keys, count, sizeof **keys, by_device_and_time);
    }
    return CEN_OK;
}

static cen_status make_settings(ceni_trace_file *f, ceni_value *settings) {
    ceni_reader *reader = f->reader;
    size_t count = f->settings.count / 2;
    if (CENI_ROOM(reader, reader->plains, 1) || CENI_ROOM(reader, reader->objects, 1) ||
        CENI_ROOM(reader, reader->entries, count)) {
        return reader->status;
    }
    ceni_plain plain = {0};
    for (size_t i = 0; i < count; i++) {
        size_t at = reader->entries.count++;
        reader->entries.at[at] = (ceni_entry){.key = f->settings.at[2 * i],
                                              .value = f->settings.at[2 * i + 1],
                                              .next = i + 1 < count ? at + 2 : 0};
    }
    if (count) {
        plain = (ceni_plain){reader->entries.count - count + 1, reader->entries.count};
    }
    reader->plains.at[reader->plains.count] = plain;
    reader->objects.at[reader->objects.count] = (uint64_t)reader->plains.count++ << 8 | CENI_PLAIN;
    *settings = ceni_make(CENI_DICT, reader->objects.count++);
    return CEN_OK;
}

static cen_status make_root(ceni_reader *reader, const ceni_root_record *root, ceni_value *result) {
    if (CENI_ROOM(reader, reader->roots, 1) || CENI_ROOM(reader, reader->objects, 1)) {
        return reader->status;
    }
    reader->roots.at[reader->roots.count] = *root;
    reader->objects.at[reader->objects.count] = (uint64_t)reader->roots.count++ << 8 | CENI_ROOT;
    *result = ceni_make(CENI_DICT, reader->objects.count++);
    return CEN_OK;
}

/* Lists of events of devices 0, 1 and so on, as a list: the lists are made last, side by side. */
static cen_status make_traces(ceni_trace_file *f, const ceni_value *events, size_t devices,
                              ceni_value *traces) {
    ceni_reader *reader = f->reader;
    size_t first = reader->objects.count;
    if (CENI_ROOM(reader, reader->objects, devices)) {
        return reader->status;
    }
    for (size_t i = 0; i < devices; i++) {
        reader->objects.at[reader->objects.count++] = reader->objects.at[ceni_payload(events[i])];
    }
    return ceni_trace_list(reader, CENI_ITEMS, first, devices, traces);
}

static cen_status read_all(ceni_trace_file *f, const ceni_event_key *keys, ceni_value *events,
                           ceni_value *result) {
    ceni_reader *reader = f->reader;
    ceni_root_record root = {0};
    size_t at = 0, count = f->events.count;
    uint32_t devices = 0;
    while (at < count && keys[at].device != CENI_EMIT_ALL_DEVICES) {
        if (keys[at].device >= CENI_READ_DEVICES_MAX) {
            return ceni_read_fail(reader, CEN_ERR_FORMAT, "more than %d devices",
                                  CENI_READ_DEVICES_MAX);
        }
        size_t first = at;
        while (at < count && keys[at].device == keys[first].device) {
            at++;
        }
        for (; devices <= keys[first].device; devices++) {
            bool this_one = devices == keys[first].device;
            if (ceni_trace_device(f, devices, keys + first, this_one ? at - first : 0,
                                  &events[devices])) {
                return reader->status;
            }
        }
    }
    size_t segments = reader->segments.count;
    return make_traces(f, events, devices, &root.traces) ||
                   ceni_trace_list(reader, CENI_SEGMENT, 0, segments, &root.segments) ||
                   put_notes(f, keys, count, devices, &root.notes) ||
                   make_settings(f, &root.settings)
               ? reader->status
               : make_root(reader, &root, result);
}

cen_status ceni_trace_events(ceni_trace_file *file, ceni_value *result) {
    ceni_event_key *keys;
    cen_status status = make_keys(file, &keys);
    ceni_value *events = status ? NULL : ceni_malloc(CENI_READ_DEVICES_MAX * sizeof *events);
    if (!status && !events) {
        status = ceni_read_fail(file->reader, CEN_ERR_HOST_MEMORY, "no memory for the devices");
    }
    status = status ? status : read_all(file, keys, events, result);
    ceni_free(keys);
    ceni_free(events);
    return status;
}
