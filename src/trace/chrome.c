/* A snapshot as Chrome's trace events in JSON, for ui.perfetto.dev and chrome://tracing.
 *
 * A device is a process. Its counters are the bytes allocated (asked for and not yet free), those
 * of each stream if there are several, and the bytes reserved, if the recording tells them. A block
 * of at least a thousandth of the peak is an asynchronous slice, named by the place that allocated
 * it, so that the viewer puts the blocks of a place together. Failures, snapshots
 * and ends of steps are instants, annotations with a beginning slices. Times are the recording's;
 * where it has none, an event lasts a microsecond. docs/convert.md says the same to users. */
#include "trace/convert.h"

#include "base/map.h"
#include "trace/diagnose.h"
#include "trace/read.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LARGE_PART = 1000 };

/* A slice that has begun: its id and the stack that it is named by. */
static uint64_t make_slice(uint64_t id, uint32_t stack) {
    return id << 32 | stack;
}

typedef struct writer {
    ceni_out *out;
    const cen_snapshot *snapshot;
    const cen_snapshot_device *device;
    bool any;           /* something was written: a comma is due */
    bool timed;         /* the device's events have times */
    bool with_reserved; /* the recording tells what was reserved */
    uint64_t large;     /* bytes from which on a block has a slice */
    uint64_t slices;    /* so far: their ids */
    ceni_map begun;     /* address of a large block -> its slice */
    ceni_map streams;   /* stream -> bytes allocated */
    ceni_map marks;     /* name of an annotation -> slices of it that are open */
    uint64_t allocated, reserved;
} writer;

static int64_t time_of(const writer *w, size_t event) {
    return w->timed ? w->device->events[event].time_us : (int64_t)event;
}

static void no_memory(writer *w) {
    ceni_out_fail(w->out, CEN_ERR_HOST_MEMORY, "no memory for its blocks");
}

/* Text of the snapshot, which has no control characters, inside a string. */
static void put_text(writer *w, const char *text) {
    while (*text) {
        size_t plain = strcspn(text, "\"\\");
        ceni_out_put(w->out, text, plain);
        text += plain;
        if (*text) {
            ceni_out_put(w->out, "\\", 1);
            ceni_out_put(w->out, text++, 1);
        }
    }
}

/* Begins an event of a phase; its name, other fields and "}" are to follow. */
static void begin(writer *w, char phase, int64_t time) {
    ceni_out_printf(w->out, "%s\n{\"ph\":\"%c\",\"pid\":%d,\"tid\":0,\"ts\":%" PRId64,
                    w->any ? "," : "", phase, w->device->device, time);
    w->any = true;
}

/* ---- counters ---- */

static void counter(writer *w, const char *name, int64_t time, uint64_t bytes) {
    begin(w, 'C', time);
    ceni_out_printf(w->out, ",\"name\":\"%s\",\"args\":{\"bytes\":%" PRIu64 "}}", name, bytes);
}

static void count_stream(writer *w, int64_t time, uint64_t stream) {
    const uint64_t *bytes = ceni_map_get(&w->streams, stream);
    if (bytes && w->streams.count > 1) {
        char name[64];
        snprintf(name, sizeof name, "allocated, stream %" PRIu64, stream);
        counter(w, name, time, *bytes);
    }
}

static void count_allocated(writer *w, int64_t time, uint64_t stream) {
    counter(w, "allocated", time, w->allocated);
    count_stream(w, time, stream);
}

static void add_to_stream(writer *w, uint64_t stream, uint64_t more, uint64_t less) {
    uint64_t *bytes = ceni_map_get(&w->streams, stream);
    if (bytes) {
        *bytes += more;
        *bytes -= less < *bytes ? less : *bytes;
    }
}

/* ---- slices ---- */

/* Where a stack allocates: its user's frame. */
static void put_place(writer *w, uint32_t stack) {
    const cen_frame *frame = ceni_user_frame(w->snapshot, stack);
    if (!frame) {
        ceni_out_printf(w->out, "\"no frames\"");
        return;
    }
    ceni_out_put(w->out, "\"", 1);
    put_text(w, ceni_base_name(frame->file));
    ceni_out_printf(w->out, ":%" PRIu32 " ", frame->line);
    put_text(w, frame->function);
    ceni_out_put(w->out, "\"", 1);
}

static void slice(writer *w, char phase, int64_t time, uint64_t made) {
    begin(w, phase, time);
    ceni_out_printf(w->out, ",\"cat\":\"block\",\"id\":%" PRIu64 ",\"name\":", made >> 32);
    put_place(w, (uint32_t)made);
}

static void begin_slice(writer *w, int64_t time, const cen_initial_block *block) {
    if (block->size < w->large) {
        return;
    }
    uint64_t made = make_slice(w->slices++, block->stack);
    if (ceni_map_put(&w->begun, block->addr, made)) {
        no_memory(w);
        return;
    }
    slice(w, 'b', time, made);
    ceni_out_printf(w->out,
                    ",\"args\":{\"bytes\":%" PRIu64 ",\"address\":\"0x%" PRIx64
                    "\",\"stream\":\"%" PRIu64 "\"}}",
                    block->size, block->addr, block->stream);
}

static void end_slice(writer *w, int64_t time, uint64_t addr) {
    uint64_t made;
    if (ceni_map_remove(&w->begun, addr, &made)) {
        slice(w, 'e', time, made);
        ceni_out_put(w->out, "}", 1);
    }
}

/* ---- events ---- */

static void failure(writer *w, int64_t time, const cen_trace_event *event) {
    begin(w, 'i', time);
    ceni_out_printf(w->out,
                    ",\"s\":\"p\",\"name\":\"out of memory\",\"args\":{\"bytes\":%" PRIu64
                    ",\"stream\":\"%" PRIu64 "\"",
                    event->size, event->stream);
    if (event->addr <= INT64_MAX) { /* known, and what JSON readers can hold */
        ceni_out_printf(w->out, ",\"device_free\":%" PRIu64, event->addr);
    }
    ceni_out_printf(w->out, ",\"place\":");
    put_place(w, event->stack);
    ceni_out_printf(w->out, "}}");
}

static void allocated(writer *w, size_t index) {
    const cen_trace_event *e = &w->device->events[index];
    int64_t time = time_of(w, index);
    cen_initial_block block = {e->addr, e->size, e->stream, e->stack};
    w->allocated += e->size;
    add_to_stream(w, e->stream, e->size, 0);
    count_allocated(w, time, e->stream);
    end_slice(w, time, e->addr); /* handed out again without a free recorded */
    begin_slice(w, time, &block);
}

static void freed(writer *w, size_t index) {
    const cen_trace_event *e = &w->device->events[index];
    int64_t time = time_of(w, index);
    w->allocated -= e->size < w->allocated ? e->size : w->allocated;
    add_to_stream(w, e->stream, 0, e->size);
    count_allocated(w, time, e->stream);
    end_slice(w, time, e->addr);
}

static void reserved(writer *w, size_t index, bool more) {
    uint64_t size = w->device->events[index].size;
    w->reserved += more ? size : 0;
    w->reserved -= more ? 0 : size < w->reserved ? size : w->reserved;
    counter(w, "reserved", time_of(w, index), w->reserved);
}

static void put_event(writer *w, size_t index) {
    const cen_trace_event *event = &w->device->events[index];
    switch (event->action) {
    case CEN_ACTION_ALLOC:
        allocated(w, index);
        break;
    case CEN_ACTION_FREE_COMPLETED:
        freed(w, index);
        break;
    case CEN_ACTION_SEGMENT_ALLOC:
    case CEN_ACTION_SEGMENT_MAP:
        reserved(w, index, true);
        break;
    case CEN_ACTION_SEGMENT_FREE:
    case CEN_ACTION_SEGMENT_UNMAP:
        reserved(w, index, false);
        break;
    case CEN_ACTION_OOM:
        failure(w, time_of(w, index), event);
        break;
    case CEN_ACTION_SNAPSHOT:
        begin(w, 'i', time_of(w, index));
        ceni_out_printf(w->out, ",\"s\":\"p\",\"name\":\"snapshot\"}");
        break;
    default:
        break;
    }
}

/* ---- devices ---- */

/* What has to be known before the first event: the peak, the streams, what there is to tell. */
static void look_ahead(writer *w) {
    const cen_snapshot_device *device = w->device;
    uint64_t now = 0, peak;
    for (size_t i = 0; i < device->initial_count; i++) {
        now += device->initial[i].size;
        if (ceni_map_put(&w->streams, device->initial[i].stream, 0)) {
            no_memory(w);
        }
    }
    w->allocated = peak = now;
    w->reserved = device->initial_reserved;
    w->with_reserved = device->segment_count || w->reserved;
    for (size_t i = 0; i < device->event_count && !w->out->status; i++) {
        const cen_trace_event *event = &device->events[i];
        w->timed |= event->time_us != 0;
        now += event->action == CEN_ACTION_ALLOC ? event->size : 0;
        peak = now > peak ? now : peak;
        if (event->action == CEN_ACTION_FREE_COMPLETED) {
            now -= event->size < now ? event->size : now;
        }
        if (event->action == CEN_ACTION_ALLOC && ceni_map_put(&w->streams, event->stream, 0)) {
            no_memory(w);
        }
    }
    w->large = peak / LARGE_PART ? peak / LARGE_PART : 1;
}

/* What there was before the first event. */
static void put_initial(writer *w, int64_t time) {
    for (size_t i = 0; i < w->device->initial_count && !w->out->status; i++) {
        const cen_initial_block *block = &w->device->initial[i];
        add_to_stream(w, block->stream, block->size, 0);
        begin_slice(w, time, block);
    }
    counter(w, "allocated", time, w->allocated);
    if (w->with_reserved) {
        counter(w, "reserved", time, w->reserved);
    }
    for (size_t i = 0; i < w->streams.capacity; i++) {
        if (w->streams.slots[i].used) {
            count_stream(w, time, w->streams.slots[i].key);
        }
    }
}

/* ---- annotations ---- */

static void put_mark(writer *w, char phase, int64_t time, const char *name) {
    begin(w, phase, time);
    ceni_out_printf(w->out, phase == 'i' ? ",\"s\":\"p\",\"name\":\""
                                         : ",\"cat\":\"annotation\",\"id\":0,\"name\":\"");
    put_text(w, name);
    ceni_out_printf(w->out, "\"}");
}

/* Ends what was still open in the end. */
static void end_marks(writer *w, int64_t last) {
    for (size_t i = 0; i < w->marks.capacity; i++) {
        const ceni_map_slot *slot = &w->marks.slots[i];
        for (uint64_t n = slot->used ? slot->value : 0; n && !w->out->status; n--) {
            put_mark(w, 'e', last, w->snapshot->text + slot->key);
        }
    }
}

/* Marks of one name nest by their order. An end without its beginning, as each step of a program
 * has, is an instant. */
static void put_annotations(writer *w, int64_t last) {
    for (size_t i = 0; i < w->device->annotation_count && !w->out->status; i++) {
        const cen_annotation *mark = &w->device->annotations[i];
        uint64_t name = (uint64_t)(mark->name - w->snapshot->text);
        uint64_t *open = ceni_map_get(&w->marks, name);
        if (!mark->end && ceni_map_put(&w->marks, name, open ? *open + 1 : 1)) {
            no_memory(w);
            return;
        }
        bool matched = !mark->end || (open && *open);
        if (mark->end && matched) {
            --*open;
        }
        put_mark(w, !matched ? 'i' : mark->end ? 'e' : 'b', mark->time_us, mark->name);
        last = mark->time_us > last ? mark->time_us : last;
    }
    end_marks(w, last);
}

static void put_device(writer *w) {
    const cen_snapshot_device *device = w->device;
    look_ahead(w);
    int64_t time = device->event_count ? time_of(w, 0) : 0;
    begin(w, 'M', time);
    ceni_out_printf(w->out, ",\"name\":\"process_name\",\"args\":{\"name\":\"device %d\"}}",
                    device->device);
    begin(w, 'M', time);
    ceni_out_printf(w->out, ",\"name\":\"thread_name\",\"args\":{\"name\":\"memory\"}}");
    put_initial(w, time);
    for (size_t i = 0; i < device->event_count && !w->out->status; i++) {
        put_event(w, i);
    }
    int64_t last = device->event_count ? time_of(w, device->event_count - 1) : 0;
    put_annotations(w, last);
    for (size_t i = 0; i < w->begun.capacity && !w->out->status; i++) {
        if (w->begun.slots[i].used) { /* alive in the end */
            slice(w, 'e', last, w->begun.slots[i].value);
            ceni_out_put(w->out, "}", 1);
        }
    }
    ceni_map_free(&w->begun);
    ceni_map_free(&w->streams);
    ceni_map_free(&w->marks);
}

void ceni_write_chrome(ceni_out *out, const cen_snapshot *snapshot) {
    uint64_t slices = 0;
    bool any = false;
    ceni_out_printf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (size_t i = 0; i < snapshot->device_count && !out->status; i++) {
        writer w = {.out = out,
                    .snapshot = snapshot,
                    .device = &snapshot->devices[i],
                    .any = any,
                    .slices = slices};
        put_device(&w);
        slices = w.slices;
        any = w.any;
    }
    ceni_out_printf(out, "\n]}\n");
}
