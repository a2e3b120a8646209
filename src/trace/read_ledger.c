/* See trace/read_ledger.h. A device's memory is segments with blocks in them, as an allocator's:
 *
 *   entry    is a segment                        is a block
 *   SEGMENT  always                              never
 *   MEMORY   always                              where no blocks lie in it: none are known, or
 *                                                they lie in SEGMENTs
 *   BLOCK    where there is neither of them      always
 *   ASYNC    where there is no SEGMENT           always
 *
 * Others have no address that anything could lie at. */
#include "trace/read_ledger.h"

#include "base/mem.h"
#include "trace/read_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES_MAX ((size_t)1 << 30) /* of one that comes through a pipe or out of gzip */

typedef struct conversion {
    ceni_reader *reader;
    const ceni_ledger_file *from;
    ceni_trace_file to;
    struct {
        bool segment, memory, block;
    } has[CEN_LEDGER_DEVICES];
    uint64_t ticks; /* of the latest event: nanoseconds since 1970 */
    CENI_ARRAY(ceni_ledger_event) added;
} conversion;

/* ---- what stacks are made of ---- */

static cen_status add_text(ceni_reader *reader, const char *text, uint32_t *id) {
    return ceni_intern_string(reader, (const uint8_t *)text, strlen(text), id);
}

/* The copy's strings, modules and frames as the reader has them. */
static cen_status take_names(ceni_reader *reader, const ceni_ledger_file *from,
                             ceni_trace_file *to) {
    if (add_text(reader, "", &to->empty) || CENI_ROOM(reader, to->strings, from->string_count) ||
        CENI_ROOM(reader, to->modules, from->module_count) ||
        CENI_ROOM(reader, to->frames, from->frame_count)) {
        return reader->status;
    }
    for (size_t i = 0; i < from->string_count; i++) {
        const ceni_ledger_span *span = &from->strings[i];
        if (ceni_intern_string(reader, (const uint8_t *)from->text + span->first, span->count,
                               &to->strings.at[i])) {
            return reader->status;
        }
        to->strings.count++;
    }
#define STRING(id) ((id) == CENI_FILE_NONE ? to->empty : to->strings.at[id])
    for (size_t i = 0; i < from->module_count; i++) {
        const ceni_module_record *m = &from->modules[i];
        to->modules.at[to->modules.count++] =
            (ceni_module_record){STRING(m->path), STRING(m->build_id)};
    }
    for (size_t i = 0; i < from->frame_count; i++) {
        ceni_frame_record frame = from->frames[i];
        if (frame.module == CENI_FILE_NONE) {
            frame.at.named.file = STRING(frame.at.named.file);
            frame.at.named.function = STRING(frame.at.named.function);
        }
        to->frames.at[to->frames.count++] = frame;
    }
#undef STRING
    return CEN_OK;
}

static cen_status take_stacks(conversion *c) {
    if (CENI_ROOM(c->reader, c->to.stacks, c->from->stack_count)) {
        return c->reader->status;
    }
    for (size_t i = 0; i < c->from->stack_count; i++) {
        const ceni_ledger_span *span = &c->from->stacks[i];
        c->to.stacks.at[c->to.stacks.count++] = (ceni_span){span->first, span->count};
    }
    return ceni_trace_stacks(&c->to);
}

static cen_status put_setting(conversion *c, const char *key, const char *value) {
    uint32_t key_id, value_id;
    return add_text(c->reader, key, &key_id) || add_text(c->reader, value, &value_id)
               ? c->reader->status
               : ceni_trace_setting(&c->to, key_id, value_id);
}

/* What PyTorch's allocator did is told in its own words, with its frames; the rest in cenote's. */
static cen_status take_settings(conversion *c) {
    const ceni_ledger_head *head = &c->from->head;
    if ((strcmp(head->writer, "torch") != 0 && put_setting(c, "cenote", "ledger")) ||
        put_setting(c, "program", head->program) || put_setting(c, "writer", head->writer)) {
        return c->reader->status;
    }
    for (unsigned i = 0; i < CEN_LEDGER_DEVICES; i++) {
        char key[32];
        snprintf(key, sizeof key, "device %u", i);
        if (head->device[i].known && put_setting(c, key, head->device[i].name)) {
            return c->reader->status;
        }
    }
    return CEN_OK;
}

/* ---- events ---- */

static void note_kind(conversion *c, unsigned device, unsigned kind) {
    c->has[device].segment |= kind == CEN_LEDGER_SEGMENT;
    c->has[device].memory |= kind == CEN_LEDGER_MEMORY;
    c->has[device].block |= kind == CEN_LEDGER_BLOCK;
}

static bool is_segment(const conversion *c, const ceni_ledger_event *e) {
    bool segments = c->has[e->device].segment;
    return e->kind == CEN_LEDGER_SEGMENT || e->kind == CEN_LEDGER_MEMORY ||
           (e->kind == CEN_LEDGER_BLOCK && !segments && !c->has[e->device].memory) ||
           (e->kind == CEN_LEDGER_ASYNC && !segments);
}

static bool is_block(const conversion *c, const ceni_ledger_event *e) {
    return e->kind == CEN_LEDGER_BLOCK || e->kind == CEN_LEDGER_ASYNC ||
           (e->kind == CEN_LEDGER_MEMORY &&
            (!c->has[e->device].block || c->has[e->device].segment));
}

static cen_status put(conversion *c, const ceni_ledger_event *e, unsigned kind, unsigned flags,
                      uint64_t addr, unsigned device) {
    if (CENI_ROOM(c->reader, c->to.events, 1)) {
        return c->reader->status;
    }
    c->to.events.at[c->to.events.count++] = (ceni_event_record){.ticks = c->ticks,
                                                                .addr = addr,
                                                                .size = e->bytes,
                                                                .stream = e->stream,
                                                                .stack = e->stack,
                                                                .kind = (uint8_t)kind,
                                                                .flags = (uint8_t)(flags >> 8),
                                                                .device = (uint16_t)device};
    return CEN_OK;
}

static cen_status put_added(conversion *c, const ceni_ledger_event *e, unsigned flags) {
    return (is_segment(c, e) &&
            put(c, e, CENI_EVENT_MAP, flags | CENI_EMIT_PLAIN, e->key, e->device)) ||
                   (is_block(c, e) && put(c, e, CENI_EVENT_ALLOC, flags, e->key, e->device))
               ? c->reader->status
               : CEN_OK;
}

static cen_status put_event(conversion *c, const ceni_ledger_event *e) {
    switch (e->what & ~CENI_LEDGER_LESS) {
    case CENI_LEDGER_ADDED:
        return put_added(c, e, 0);
    case CENI_LEDGER_REMOVED:
        return (is_block(c, e) && put(c, e, CENI_EVENT_FREE, 0, e->key, e->device)) ||
                       (is_segment(c, e) &&
                        put(c, e, CENI_EVENT_UNMAP, CENI_EMIT_PLAIN, e->key, e->device))
                   ? c->reader->status
                   : CEN_OK;
    case CENI_LEDGER_FAILED:
        return put(c, e, CENI_EVENT_OOM, 0, e->key, e->device);
    case CENI_LEDGER_STEPPED:
        return put(c, e, CENI_EVENT_STEP, 0, e->key, CENI_EMIT_ALL_DEVICES);
    default:
        return CEN_OK; /* sizes that change are those of what has no address */
    }
}

static int by_name(const void *left, const void *right) {
    const ceni_ledger_event *a = left, *b = right;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    return (a->key > b->key) - (a->key < b->key);
}

/* What was added before the ring's first event, as there before it. */
static cen_status put_before(conversion *c) {
    const ceni_ledger_file *f = c->from;
    if (CENI_ROOM(c->reader, c->added, f->event_count)) {
        return c->reader->status;
    }
    for (size_t i = 0; i < f->event_count; i++) {
        if ((f->events[i].what & ~CENI_LEDGER_LESS) == CENI_LEDGER_ADDED) {
            c->added.at[c->added.count++] = f->events[i];
        }
    }
    if (c->added.count) {
        qsort(c->added.at, c->added.count, sizeof *c->added.at, by_name);
    }
    for (size_t i = 0; i < f->entry_count; i++) {
        const cen_ledger_entry *from = &f->entries[i];
        ceni_ledger_event e = {.key = from->key,
                               .bytes = from->bytes,
                               .stream = from->stream,
                               .stack = from->stack,
                               .device = from->device,
                               .kind = from->kind};
        bool in_ring = c->added.count &&
                       bsearch(&e, c->added.at, c->added.count, sizeof *c->added.at, by_name);
        if (!in_ring && put_added(c, &e, CENI_EMIT_BEFORE)) {
            return c->reader->status;
        }
    }
    return CEN_OK;
}

/* The order is the ring's: times were taken a little before it was decided. */
static void advance(conversion *c, int64_t time_us) {
    uint64_t ticks = time_us > 0 && time_us < INT64_MAX / 1000 ? (uint64_t)time_us * 1000 : 0;
    c->ticks = ticks > c->ticks ? ticks : c->ticks;
}

static cen_status take_events(conversion *c) {
    const ceni_ledger_file *f = c->from;
    for (size_t i = 0; i < f->entry_count; i++) {
        note_kind(c, f->entries[i].device, f->entries[i].kind);
    }
    for (size_t i = 0; i < f->event_count; i++) {
        unsigned what = f->events[i].what & ~CENI_LEDGER_LESS;
        if (what == CENI_LEDGER_ADDED || what == CENI_LEDGER_REMOVED) {
            note_kind(c, f->events[i].device, f->events[i].kind);
        }
    }
    advance(c, f->event_count ? f->events[0].time_us : f->head.started_us);
    c->to.head.unix_ns = c->to.head.ns = c->to.head.ticks = c->ticks;
    if (CENI_ROOM(c->reader, c->to.clock, 1) || put_before(c)) {
        return c->reader->status;
    }
    c->to.clock.at[c->to.clock.count++] = (ceni_clock_pair){c->ticks, c->ticks};
    for (size_t i = 0; i < f->event_count; i++) {
        advance(c, f->events[i].time_us);
        if (put_event(c, &f->events[i])) {
            return c->reader->status;
        }
    }
    return CEN_OK;
}

cen_status ceni_ledger_convert(ceni_reader *reader, const ceni_ledger_file *file,
                               ceni_value *result) {
    conversion *c = ceni_calloc(1, sizeof *c);
    if (!c) {
        return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory to read it");
    }
    c->reader = c->to.reader = reader;
    c->from = file;
    reader->no_ring =
        atomic_load(&file->head.region[CENI_LEDGER_EVENTS].count) <= file->event_count;
    if (!take_names(reader, file, &c->to) && !take_stacks(c) && !take_settings(c) &&
        !take_events(c)) {
        (void)ceni_trace_events(&c->to, result);
    }
    ceni_trace_file_free(&c->to);
    ceni_free(c->added.at);
    ceni_free(c);
    return reader->status;
}

/* ---- from a source ---- */

/* A file can be read again until it is whole; what comes through a pipe or out of gzip is taken as
 * it is. */
static cen_status open_bytes(ceni_reader *reader, ceni_ledger_source *bytes) {
    ceni_source *source = &reader->source;
    off_t end = source->fd >= 0 && !source->raw ? lseek(source->fd, 0, SEEK_END) : -1;
    if (end >= 0) {
        source->stored = (uint64_t)end;
        *bytes = (ceni_ledger_source){.fd = source->fd};
        return CEN_OK;
    }
    if (ceni_source_fill(reader, source->window, BYTES_MAX)) {
        return reader->status;
    }
    *bytes = (ceni_ledger_source){
        .fd = -1, .data = source->window, .size = (uint64_t)(source->end - source->window)};
    return CEN_OK;
}

cen_status ceni_ledger_run(ceni_reader *reader, ceni_value *result) {
    ceni_ledger_source bytes;
    ceni_ledger_file file;
    ceni_ledger_trouble trouble;
    if (open_bytes(reader, &bytes)) {
        return reader->status;
    }
    cen_status status = ceni_ledger_file_read(&bytes, &file, &trouble);
    if (status) {
        reader->offset = trouble.offset;
        reader->at_offset = status == CEN_ERR_FORMAT || status == CEN_ERR_TRUNCATED;
        return ceni_read_fail(reader, status, "%s", trouble.message);
    }
    (void)ceni_ledger_convert(reader, &file, result);
    ceni_ledger_file_free(&file);
    return reader->status;
}

/* ---- names ---- */

struct ceni_ledger_names {
    ceni_reader *reader;
    ceni_trace_file file;
    const ceni_ledger_file *from;
    ceni_namer *namer;
};

cen_status ceni_ledger_names_open(const ceni_ledger_file *file, ceni_ledger_names **names) {
    ceni_ledger_names *n = ceni_calloc(1, sizeof *n);
    ceni_reader *reader = ceni_calloc(1, sizeof *reader);
    if (!n || !reader) {
        ceni_free(n);
        ceni_free(reader);
        return CEN_ERR_HOST_MEMORY;
    }
    *n = (ceni_ledger_names){.reader = reader, .from = file, .file = {.reader = reader}};
    reader->source.stored = file->text_size;
    if (!take_names(reader, file, &n->file)) {
        n->namer = ceni_namer_open(reader, n->file.modules.at, n->file.modules.count);
    }
    cen_status status = reader->status;
    if (status) {
        ceni_ledger_names_close(n);
    } else {
        *names = n;
    }
    return status;
}

void ceni_ledger_names_close(ceni_ledger_names *n) {
    if (n) {
        ceni_namer_close(n->namer);
        ceni_trace_file_free(&n->file);
        ceni_reader_free(n->reader);
        ceni_free(n);
    }
}

/* Frames and their text in one piece: the reader's arrays move as it learns more. */
static cen_frame *copy_frames(const ceni_reader *reader, ceni_span span) {
    size_t bytes = 0;
    for (size_t i = 0; i < span.count; i++) {
        const ceni_frame_key *key = &reader->frames.at[reader->stack_frames.at[span.first + i]];
        bytes += reader->strings.at[key->file].size + reader->strings.at[key->function].size + 2;
    }
    cen_frame *frames = ceni_malloc(span.count * sizeof *frames + bytes);
    char *text = frames ? (char *)(frames + span.count) : NULL;
    for (size_t i = 0; frames && i < span.count; i++) {
        const ceni_frame_key *key = &reader->frames.at[reader->stack_frames.at[span.first + i]];
        size_t file = reader->strings.at[key->file].size + 1;
        size_t function = reader->strings.at[key->function].size + 1;
        memcpy(text, ceni_string(reader, key->file), file);
        memcpy(text + file, ceni_string(reader, key->function), function);
        frames[i] = (cen_frame){.file = text, .function = text + file, .line = key->line};
        text += file + function;
    }
    return frames;
}

cen_status ceni_ledger_names_stack(ceni_ledger_names *n, uint32_t stack, cen_frame **frames,
                                   size_t *count) {
    const ceni_ledger_span *from = &n->from->stacks[stack];
    uint32_t id = CEN_NO_STACK;
    *frames = NULL;
    *count = 0;
    if (ceni_namer_stack(n->namer, from->count ? n->file.frames.at + from->first : NULL,
                         from->count, &id) ||
        id == CEN_NO_STACK) {
        return n->reader->status;
    }
    *frames = copy_frames(n->reader, n->reader->stacks.at[id]);
    *count = *frames ? n->reader->stacks.at[id].count : 0;
    return *frames ? CEN_OK : CEN_ERR_HOST_MEMORY;
}
