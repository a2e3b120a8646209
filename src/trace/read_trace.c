/* A trace's blocks, one after the other, as docs/formats/trace.md describes them.
 *
 * A block that is whole but wrong is an error, with its place. A file that ends within a block, or
 * without an index, was left by a process that was killed, or whose disk was full: what is before
 * is read, and the log says so. */
#include "trace/read_trace.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HEAD_BYTES_MAX 4096
#define MAGIC_KNOWN    5 /* how far into the magic it takes to know what a file wants to be */

bool ceni_trace_looks(const uint8_t *data, size_t size) {
    return size >= MAGIC_KNOWN && !memcmp(data, CENI_FILE_MAGIC, MAGIC_KNOWN);
}

static size_t available(const ceni_trace_file *f, const uint8_t *at) {
    return (size_t)(f->reader->source.end - at);
}

/* Failures name the byte where the block (or the head) begins. */
static void set_place(ceni_trace_file *f, const uint8_t *at) {
    const ceni_source *source = &f->reader->source;
    f->reader->offset = source->base + (uint64_t)(at - source->window);
    f->reader->at_offset = true;
}

/* ---- the head ---- */

static cen_status check_head(ceni_trace_file *f) {
    ceni_reader *reader = f->reader;
    const ceni_file_head *h = &f->head;
    if (memcmp(h->magic, CENI_FILE_MAGIC, sizeof h->magic) != 0) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT,
                              "a trace whose first bytes are damaged, as by a transfer as text");
    }
    if (h->major != CENI_FILE_MAJOR) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT,
                              "a trace of version %u.%u; this cenote reads version %u", h->major,
                              h->minor, CENI_FILE_MAJOR);
    }
    if (h->check != XXH3_64bits(h, offsetof(ceni_file_head, check)) || h->bytes < sizeof *h ||
        h->bytes > HEAD_BYTES_MAX) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "the trace's head is damaged");
    }
    return CEN_OK;
}

static cen_status read_head(ceni_trace_file *f, const uint8_t **at) {
    ceni_reader *reader = f->reader;
    ceni_source *source = &reader->source;
    if (ceni_source_fill(reader, source->window, HEAD_BYTES_MAX)) {
        return reader->status;
    }
    set_place(f, source->window);
    size_t size = available(f, source->window);
    memcpy(&f->head, source->window, size < sizeof f->head ? size : sizeof f->head);
    if (size < sizeof f->head) {
        return ceni_read_fail(reader, CEN_ERR_TRUNCATED, "the trace ends within its head");
    }
    if (check_head(f)) {
        return reader->status;
    }
    if (size < f->head.bytes) {
        return ceni_read_fail(reader, CEN_ERR_TRUNCATED, "the trace ends within its head");
    }
    *at = source->window + f->head.bytes;
    if (CENI_ROOM(reader, f->clock, 1)) {
        return reader->status;
    }
    f->clock.at[f->clock.count++] = (ceni_clock_pair){f->head.ticks, f->head.ns};
    return CEN_OK;
}

/* ---- what blocks define ---- */

static cen_status damaged(ceni_trace_file *f, const char *what) {
    return ceni_read_fail(f->reader, CEN_ERR_FORMAT, "the block of %s contradicts itself", what);
}

/* The reader's string of a file's id; false: it is not defined. CENI_FILE_NONE, for which the
 * writer had no memory, is empty. */
static bool string_of(const ceni_trace_file *f, uint32_t id, uint32_t *string) {
    if (id == CENI_FILE_NONE) {
        *string = f->empty;
        return true;
    }
    if (id >= f->strings.count) {
        return false;
    }
    *string = f->strings.at[id];
    return true;
}

static cen_status read_strings(ceni_trace_file *f, const ceni_block_head *h, const uint8_t *at) {
    ceni_reader *reader = f->reader;
    const uint8_t *end = at + h->length;
    for (uint32_t i = 0; i < h->count; i++) {
        ceni_string_record record;
        if ((size_t)(end - at) < sizeof record) {
            return damaged(f, "strings");
        }
        memcpy(&record, at, sizeof record);
        at += sizeof record;
        uint64_t padded = ((uint64_t)record.size + 3) & ~UINT64_C(3);
        if (padded > (uint64_t)(end - at)) {
            return damaged(f, "strings");
        }
        if (record.size > CENI_READ_STRING_MAX) {
            return ceni_read_fail(reader, CEN_ERR_FORMAT, "a string of more than 16 MiB");
        }
        uint32_t id;
        if (CENI_ROOM(reader, f->strings, 1) || ceni_intern_string(reader, at, record.size, &id)) {
            return reader->status;
        }
        f->strings.at[f->strings.count++] = id;
        at += padded;
    }
    return CEN_OK;
}

static cen_status read_frame(ceni_trace_file *f, const uint8_t *at) {
    ceni_frame_record *frame = &f->frames.at[f->frames.count++];
    memcpy(frame, at, sizeof *frame);
    bool good = frame->module == CENI_FILE_NONE
                    ? string_of(f, frame->at.named.file, &frame->at.named.file) &&
                          string_of(f, frame->at.named.function, &frame->at.named.function)
                    : frame->module < f->modules.count;
    return good ? CEN_OK : damaged(f, "stacks");
}

static cen_status read_stacks(ceni_trace_file *f, const ceni_block_head *h, const uint8_t *at) {
    ceni_reader *reader = f->reader;
    const uint8_t *end = at + h->length;
    for (uint32_t i = 0; i < h->count; i++) {
        ceni_stack_record record;
        if ((size_t)(end - at) < sizeof record) {
            return damaged(f, "stacks");
        }
        memcpy(&record, at, sizeof record);
        at += sizeof record;
        if ((size_t)(end - at) / sizeof *f->frames.at < record.frames) {
            return damaged(f, "stacks");
        }
        if (CENI_ROOM(reader, f->stacks, 1) || CENI_ROOM(reader, f->frames, record.frames)) {
            return reader->status;
        }
        f->stacks.at[f->stacks.count++] = (ceni_span){f->frames.count, record.frames};
        for (uint32_t k = 0; k < record.frames; k++, at += sizeof *f->frames.at) {
            if (read_frame(f, at)) {
                return reader->status;
            }
        }
    }
    return CEN_OK;
}

/* Whether a block's records, of one size, are as many as it says. */
static bool fits(const ceni_block_head *h, size_t size) {
    return h->length / size >= h->count;
}

static cen_status read_modules(ceni_trace_file *f, const ceni_block_head *h, const uint8_t *at) {
    ceni_module_record record;
    if (!fits(h, sizeof record)) {
        return damaged(f, "modules");
    }
    if (CENI_ROOM(f->reader, f->modules, h->count)) {
        return f->reader->status;
    }
    for (uint32_t i = 0; i < h->count; i++, at += sizeof record) {
        memcpy(&record, at, sizeof record);
        if (!string_of(f, record.path, &record.path) ||
            !string_of(f, record.build_id, &record.build_id)) {
            return damaged(f, "modules");
        }
        f->modules.at[f->modules.count++] = record;
    }
    return CEN_OK;
}

cen_status ceni_trace_setting(ceni_trace_file *f, uint32_t key, uint32_t value) {
    if (CENI_ROOM(f->reader, f->settings, 2)) {
        return f->reader->status;
    }
    f->settings.at[f->settings.count++] = ceni_make(CENI_STR, key);
    f->settings.at[f->settings.count++] = ceni_make(CENI_STR, value);
    return CEN_OK;
}

static cen_status read_settings(ceni_trace_file *f, const ceni_block_head *h, const uint8_t *at) {
    ceni_setting_record record;
    if (!fits(h, sizeof record)) {
        return damaged(f, "settings");
    }
    for (uint32_t i = 0; i < h->count; i++, at += sizeof record) {
        memcpy(&record, at, sizeof record);
        if (!string_of(f, record.key, &record.key) || !string_of(f, record.value, &record.value)) {
            return damaged(f, "settings");
        }
        if (ceni_trace_setting(f, record.key, record.value)) {
            return f->reader->status;
        }
    }
    return CEN_OK;
}

/* A device's name is a setting: "device 0" -> "NVIDIA H200". */
static cen_status read_devices(ceni_trace_file *f, const ceni_block_head *h, const uint8_t *at) {
    ceni_device_record record;
    if (!fits(h, sizeof record)) {
        return damaged(f, "devices");
    }
    for (uint32_t i = 0; i < h->count; i++, at += sizeof record) {
        memcpy(&record, at, sizeof record);
        if (!string_of(f, record.name, &record.name)) {
            return damaged(f, "devices");
        }
        char key[32];
        int length = snprintf(key, sizeof key, "device %u", record.number);
        uint32_t id;
        if (ceni_intern_string(f->reader, (const uint8_t *)key, (size_t)length, &id) ||
            ceni_trace_setting(f, id, record.name)) {
            return f->reader->status;
        }
    }
    return CEN_OK;
}

static cen_status read_events(ceni_trace_file *f, const ceni_block_head *h, const uint8_t *at) {
    if (!fits(h, sizeof *f->events.at)) {
        return damaged(f, "events");
    }
    if (CENI_ROOM(f->reader, f->events, h->count)) {
        return f->reader->status;
    }
    if (h->count) {
        memcpy(f->events.at + f->events.count, at, h->count * sizeof *f->events.at);
        f->events.count += h->count;
    }
    return CEN_OK;
}

static cen_status read_index(ceni_trace_file *f, const ceni_block_head *h, const uint8_t *at) {
    ceni_file_tail tail;
    if (h->length < sizeof tail) {
        return damaged(f, "the index");
    }
    memcpy(&tail, at + h->length - sizeof tail, sizeof tail);
    if (memcmp(tail.magic, CENI_TAIL_MAGIC, sizeof tail.magic) != 0) {
        return damaged(f, "the index");
    }
    f->lost = tail.lost;
    f->ended = true;
    return CEN_OK;
}

/* ---- blocks ---- */

/* Both clocks only go forward; a pair that does not is of no use. */
static cen_status note_clock(ceni_trace_file *f, const ceni_block_head *h) {
    const ceni_clock_pair *last = &f->clock.at[f->clock.count - 1];
    if (h->ticks <= last->ticks || h->ns < last->ns) {
        return CEN_OK;
    }
    if (CENI_ROOM(f->reader, f->clock, 1)) {
        return f->reader->status;
    }
    f->clock.at[f->clock.count++] = (ceni_clock_pair){h->ticks, h->ns};
    return CEN_OK;
}

static cen_status read_payload(ceni_trace_file *f, const ceni_block_head *h, const uint8_t *at) {
    static cen_status (*const readers[])(ceni_trace_file *, const ceni_block_head *,
                                         const uint8_t *) = {
        [CENI_FILE_EVENTS] = read_events,   [CENI_FILE_STRINGS] = read_strings,
        [CENI_FILE_STACKS] = read_stacks,   [CENI_FILE_MODULES] = read_modules,
        [CENI_FILE_DEVICES] = read_devices, [CENI_FILE_SETTINGS] = read_settings,
        [CENI_FILE_INDEX] = read_index,
    };
    bool known = h->type < sizeof readers / sizeof *readers && readers[h->type];
    return known ? readers[h->type](f, h, at) : CEN_OK; /* a later version's: skipped */
}

/* The block at *at, which is moved on; *end when there is no whole one. */
static cen_status read_block(ceni_trace_file *f, const uint8_t **at, bool *end) {
    ceni_reader *reader = f->reader;
    ceni_block_head h;
    if (ceni_source_fill(reader, *at, sizeof h)) {
        return reader->status;
    }
    *at = reader->source.window;
    set_place(f, *at);
    *end = available(f, *at) < sizeof h;
    if (*end) {
        return CEN_OK;
    }
    memcpy(&h, *at, sizeof h);
    if (h.magic != CENI_BLOCK_MAGIC || h.length > CENI_BLOCK_BYTES_MAX) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "the trace is damaged: no block begins here");
    }
    if (ceni_source_fill(reader, *at, sizeof h + h.length)) {
        return reader->status;
    }
    *at = reader->source.window;
    *end = available(f, *at) < sizeof h + h.length;
    if (*end) {
        return CEN_OK;
    }
    const uint8_t *payload = *at + sizeof h;
    if (h.check != XXH3_64bits_withSeed(payload, h.length,
                                        XXH3_64bits(&h, offsetof(ceni_block_head, check)))) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT,
                              "the trace is damaged: a block of %u bytes does not agree with its "
                              "checksum",
                              h.length);
    }
    *at = payload + h.length;
    return note_clock(f, &h) ? reader->status : read_payload(f, &h, payload);
}

/* Whether a file ends as a stopped trace: then a block that looks cut off has a damaged length. */
static bool has_tail(const ceni_trace_file *f, const uint8_t *at) {
    return available(f, at) >= 8 && !memcmp(f->reader->source.end - 8, CENI_TAIL_MAGIC, 8);
}

/* What a reader has to know of a trace that is not whole, as a setting too. */
static cen_status note_end(ceni_trace_file *f, size_t rest) {
    ceni_reader *reader = f->reader;
    if (f->lost) {
        ceni_log(CEN_LOG_WARN, "%s: %llu events were lost while it was recorded", reader->name,
                 (unsigned long long)f->lost);
    }
    if (f->ended) {
        return CEN_OK;
    }
    ceni_log(CEN_LOG_WARN,
             rest ? "%s: the trace ends within a block, at byte %llu: what is before was read"
                  : "%s: the trace was not stopped: it ends at byte %llu, and what its threads had "
                    "not written yet is missing",
             reader->name, (unsigned long long)reader->offset);
    uint32_t key, value;
    return ceni_intern_string(reader, (const uint8_t *)CENI_CUT_OFF, strlen(CENI_CUT_OFF), &key) ||
                   ceni_intern_string(reader, (const uint8_t *)"True", 4, &value)
               ? reader->status
               : ceni_trace_setting(f, key, value);
}

static cen_status read_blocks(ceni_trace_file *f) {
    const uint8_t *at = f->reader->source.window;
    if (ceni_intern_string(f->reader, (const uint8_t *)"", 0, &f->empty) || read_head(f, &at)) {
        return f->reader->status;
    }
    for (bool end = false; !end;) {
        if (read_block(f, &at, &end)) {
            return f->reader->status;
        }
        if (f->ended && available(f, at)) {
            set_place(f, at);
            return ceni_read_fail(f->reader, CEN_ERR_FORMAT,
                                  "the trace is damaged: something follows its index");
        }
    }
    return !f->ended && has_tail(f, at)
               ? ceni_read_fail(f->reader, CEN_ERR_FORMAT,
                                "the trace is damaged: a block is too long")
               : note_end(f, available(f, at));
}

void ceni_trace_file_free(ceni_trace_file *f) {
    ceni_free(f->strings.at);
    ceni_free(f->modules.at);
    ceni_free(f->frames.at);
    ceni_free(f->stacks.at);
    ceni_free(f->stack_of.at);
    ceni_free(f->settings.at);
    ceni_free(f->events.at);
    ceni_free(f->clock.at);
}

cen_status ceni_trace_run(ceni_reader *reader, ceni_value *result) {
    ceni_trace_file file = {.reader = reader};
    if (!read_blocks(&file)) {
        reader->no_ring = file.head.pid != CENI_PID_RING;
        reader->at_offset = false;
        if (!ceni_trace_stacks(&file)) {
            (void)ceni_trace_events(&file, result);
        }
    }
    ceni_trace_file_free(&file);
    return reader->status;
}
