/* A trace's events -> the records that a snapshot is assembled from.
 *
 * The order of events is that of their times; equal times keep the file's order. Each device's
 * events are gone through once, with the blocks that are live (by address), the frees that wait for
 * other streams, the memory that is mapped, and which streams allocate from private pools. What is
 * left at the end is the snapshot's state, from which rewind.c finds what was there before. */
#include "trace/read_trace.h"

#include "base/map.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* An event's place in the order. */
typedef struct key {
    uint64_t ticks;
    size_t index;
    uint16_t device;
} key;

typedef struct route {
    uint64_t stream;
    int64_t pool[2];
} route;

typedef struct walk {
    ceni_trace_file *file;
    ceni_reader *reader;
    uint32_t device;
    uint64_t main_stream; /* that of memory which is no stream's */
    ceni_map at;          /* address -> index in blocks, of those live or pending */
    CENI_ARRAY(ceni_live) blocks;
    CENI_ARRAY(route) routes;
    ceni_final final;
} walk;

static int by_device_and_time(const void *left, const void *right) {
    const key *a = left, *b = right;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    if (a->ticks != b->ticks) {
        return a->ticks < b->ticks ? -1 : 1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

/* ---- time ---- */

/* Ticks -> microseconds since 1970, by the pairs of clock readings around them. */
static int64_t time_us(const ceni_trace_file *f, uint64_t ticks) {
    const ceni_clock_pair *pairs = f->clock.at;
    size_t low = 0, high = f->clock.count - 1;
    while (high > low + 1) {
        size_t middle = low + (high - low) / 2;
        *(pairs[middle].ticks <= ticks ? &low : &high) = middle;
    }
    const ceni_clock_pair *from = &pairs[low], *to = &pairs[high];
    double rate = high > low ? (double)(to->ns - from->ns) / (double)(to->ticks - from->ticks) : 1;
    double since = ticks >= from->ticks ? (double)(ticks - from->ticks) * rate
                                        : -(double)(from->ticks - ticks) * rate;
    double limit = 4e18;
    since = since > limit ? limit : since < -limit ? -limit : since;
    uint64_t ns = f->head.unix_ns + (from->ns - f->head.ns) + (uint64_t)(int64_t)since;
    return (int64_t)ns / 1000;
}

/* ---- records ---- */

static cen_status put(walk *w, const ceni_event_record *e, cen_action action, uint64_t addr,
                      uint64_t size) {
    ceni_reader *reader = w->reader;
    if (CENI_ROOM(reader, reader->events, 1)) {
        return reader->status;
    }
    reader->events.at[reader->events.count++] = (cen_trace_event){
        .addr = addr,
        .size = size,
        .stream = e->stream,
        .time_us = time_us(w->file, e->ticks),
        .stack = e->stack < w->file->stack_of.count ? w->file->stack_of.at[e->stack] : CEN_NO_STACK,
        .action = (uint8_t)action};
    return CEN_OK;
}

static bool has(const ceni_event_record *e, unsigned flag) {
    return e->flags & flag >> 8;
}

static cen_status on_alloc(walk *w, const ceni_event_record *e) {
    ceni_reader *reader = w->reader;
    if (CENI_ROOM(reader, w->blocks, 1)) {
        return reader->status;
    }
    bool before = has(e, CENI_EMIT_BEFORE);
    w->blocks.at[w->blocks.count] = (ceni_live){
        .addr = e->addr,
        .size = e->size,
        .stream = e->stream,
        .stack = e->stack < w->file->stack_of.count ? w->file->stack_of.at[e->stack] : CEN_NO_STACK,
        .pending = before && has(e, CENI_EMIT_PENDING),
        .before = before};
    if (ceni_map_put(&w->at, e->addr, w->blocks.count)) {
        return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory for the blocks");
    }
    w->blocks.count++;
    return before ? CEN_OK : put(w, e, CEN_ACTION_ALLOC, e->addr, e->size);
}

/* The block's memory is free. Of one that was there before the first event, this is what rewinding
 * finds: it says whose it was. */
static cen_status complete(walk *w, const ceni_event_record *e, const ceni_live *block) {
    uint64_t size = block ? block->size : e->size;
    if (put(w, e, CEN_ACTION_FREE_COMPLETED, e->addr, size)) {
        return w->reader->status;
    }
    if (block && block->before) {
        cen_trace_event *event = &w->reader->events.at[w->reader->events.count - 1];
        event->stream = block->stream;
        event->stack = block->stack;
    }
    (void)ceni_map_remove(&w->at, e->addr, NULL);
    return CEN_OK;
}

static ceni_live *block_at(const walk *w, uint64_t addr) {
    const uint64_t *index = ceni_map_get(&w->at, addr);
    return index ? &w->blocks.at[*index] : NULL;
}

static cen_status on_free(walk *w, const ceni_event_record *e) {
    ceni_live *block = block_at(w, e->addr);
    if (put(w, e, CEN_ACTION_FREE_REQUESTED, e->addr, block ? block->size : e->size)) {
        return w->reader->status;
    }
    if (!has(e, CENI_EMIT_PENDING)) {
        return complete(w, e, block);
    }
    if (!block) { /* allocated before the trace: its size is known from here */
        ceni_event_record alloc = *e;
        alloc.flags = CENI_EMIT_BEFORE >> 8;
        if (on_alloc(w, &alloc)) {
            return w->reader->status;
        }
        block = block_at(w, e->addr);
    }
    block->pending = true;
    return CEN_OK;
}

/* One that tells its size, as those of converted recordings do, needs no block that is known. */
static cen_status on_freed(walk *w, const ceni_event_record *e) {
    const ceni_live *block = block_at(w, e->addr);
    return (block && block->pending) || e->size ? complete(w, e, block) : CEN_OK;
}

/* The block's memory moved: to the program it is free here, and allocated where the next event
 * says. */
static cen_status on_move(walk *w, const ceni_event_record *e) {
    const ceni_live *block = block_at(w, e->addr);
    return put(w, e, CEN_ACTION_FREE_REQUESTED, e->addr, block ? block->size : e->size)
               ? w->reader->status
               : complete(w, e, block);
}

static route *route_of(const walk *w, uint64_t stream) {
    for (size_t i = 0; i < w->routes.count; i++) {
        if (w->routes.at[i].stream == stream) {
            return &w->routes.at[i];
        }
    }
    return NULL;
}

static cen_status on_private(walk *w, const ceni_event_record *e) {
    route *known = route_of(w, e->stream);
    if (!known) {
        if (CENI_ROOM(w->reader, w->routes, 1)) {
            return w->reader->status;
        }
        known = &w->routes.at[w->routes.count++];
    }
    *known = (route){e->stream, {(int64_t)e->addr, (int64_t)e->size}};
    return CEN_OK;
}

static cen_status on_shared(walk *w, const ceni_event_record *e) {
    for (size_t i = 0; i < w->final.pieces.count; i++) {
        ceni_piece *piece = &w->final.pieces.at[i];
        if ((uint64_t)piece->pool[0] == e->addr && (uint64_t)piece->pool[1] == e->size) {
            piece->pool[0] = piece->pool[1] = 0;
        }
    }
    return CEN_OK;
}

/* Memory that all streams share counts as the main one's: so its pieces join, and none of it looks
 * as if it were another stream's. */
static cen_status on_map(walk *w, const ceni_event_record *e) {
    const route *from = route_of(w, e->stream);
    ceni_event_record event = *e;
    event.stream = has(e, CENI_EMIT_ANYONES) ? w->main_stream : e->stream;
    ceni_piece piece = {.addr = e->addr,
                        .end = e->addr + e->size,
                        .stream = event.stream,
                        .pool = {from ? from->pool[0] : 0, from ? from->pool[1] : 0},
                        .plain = has(e, CENI_EMIT_PLAIN),
                        .small = has(e, CENI_EMIT_SMALL)};
    if (!e->size) {
        return CEN_OK;
    }
    if (ceni_final_map(w->reader, &w->final, &piece) || has(e, CENI_EMIT_BEFORE)) {
        return w->reader->status;
    }
    return put(w, &event, piece.plain ? CEN_ACTION_SEGMENT_ALLOC : CEN_ACTION_SEGMENT_MAP, e->addr,
               e->size);
}

static cen_status on_unmap(walk *w, const ceni_event_record *e) {
    ceni_event_record event = *e;
    event.stream = has(e, CENI_EMIT_ANYONES) ? w->main_stream : e->stream;
    if (ceni_final_unmap(w->reader, &w->final, e->addr, e->addr + e->size)) {
        return w->reader->status;
    }
    bool plain = has(e, CENI_EMIT_PLAIN);
    return put(w, &event, plain ? CEN_ACTION_SEGMENT_FREE : CEN_ACTION_SEGMENT_UNMAP, e->addr,
               e->size);
}

static cen_status on_oom(walk *w, const ceni_event_record *e) {
    return put(w, e, CEN_ACTION_OOM, e->addr, e->size);
}

static cen_status on_snapshot(walk *w, const ceni_event_record *e) {
    return put(w, e, CEN_ACTION_SNAPSHOT, e->addr, e->size);
}

static cen_status on_other(walk *w, const ceni_event_record *e) {
    return put(w, e, CEN_ACTION_OTHER, e->addr, e->size);
}

static cen_status apply(walk *w, const ceni_event_record *e) {
    static cen_status (*const on[])(walk *, const ceni_event_record *) = {
        [CENI_EVENT_ALLOC] = on_alloc,   [CENI_EVENT_FREE] = on_free,
        [CENI_EVENT_FREED] = on_freed,   [CENI_EVENT_MAP] = on_map,
        [CENI_EVENT_UNMAP] = on_unmap,   [CENI_EVENT_OOM] = on_oom,
        [CENI_EVENT_MOVE] = on_move,     [CENI_EVENT_PRIVATE] = on_private,
        [CENI_EVENT_SHARED] = on_shared, [CENI_EVENT_SNAPSHOT] = on_snapshot,
        [CENI_EVENT_OTHER] = on_other,
    };
    if (e->kind >= sizeof on / sizeof *on || !on[e->kind]) {
        return CEN_OK; /* copies, streams, and what a later version knows: not an allocator's */
    }
    bool sized = e->kind != CENI_EVENT_PRIVATE && e->kind != CENI_EVENT_SHARED;
    bool range = e->kind == CENI_EVENT_MAP || e->kind == CENI_EVENT_UNMAP;
    if ((sized && e->size > CENI_READ_SIZE_MAX) || (range && e->addr > UINT64_MAX - e->size)) {
        return ceni_read_fail(w->reader, CEN_ERR_FORMAT,
                              "device %u: an event of %llu bytes at 0x%llx is no range", w->device,
                              (unsigned long long)e->size, (unsigned long long)e->addr);
    }
    return on[e->kind](w, e);
}

/* ---- devices ---- */

/* The stream that most was allocated on; if a request failed, that one's. */
static cen_status find_main_stream(walk *w, const key *keys, size_t count) {
    ceni_map bytes = {0};
    uint64_t most = 0;
    bool failed = false;
    for (size_t i = 0; i < count; i++) {
        const ceni_event_record *e = &w->file->events.at[keys[i].index];
        if (e->kind == CENI_EVENT_OOM) {
            w->main_stream = e->stream;
            failed = true;
        }
        if (e->kind != CENI_EVENT_ALLOC || failed) {
            continue;
        }
        uint64_t *known = ceni_map_get(&bytes, e->stream);
        uint64_t sum = (known ? *known : 0) + (e->size < CENI_READ_SIZE_MAX ? e->size : 0);
        if (ceni_map_put(&bytes, e->stream, sum)) {
            ceni_map_free(&bytes);
            return ceni_read_fail(w->reader, CEN_ERR_HOST_MEMORY, "no memory for the streams");
        }
        if (sum > most) {
            most = sum;
            w->main_stream = e->stream;
        }
    }
    ceni_map_free(&bytes);
    return CEN_OK;
}

static int by_address(const void *left, const void *right) {
    const ceni_live *a = left, *b = right;
    return (a->addr > b->addr) - (a->addr < b->addr);
}

/* Those that are live or pending at the end, by address. */
static cen_status collect_live(walk *w) {
    if (CENI_ROOM(w->reader, w->final.live, w->at.count)) {
        return w->reader->status;
    }
    for (size_t i = 0; i < w->at.capacity; i++) {
        if (w->at.slots[i].used) {
            w->final.live.at[w->final.live.count++] = w->blocks.at[w->at.slots[i].value];
        }
    }
    if (w->final.live.count) {
        qsort(w->final.live.at, w->final.live.count, sizeof *w->final.live.at, by_address);
    }
    return CEN_OK;
}

static cen_status read_device(ceni_trace_file *f, uint32_t device, const key *keys, size_t count,
                              ceni_value *events) {
    walk w = {.file = f, .reader = f->reader, .device = device};
    size_t first = f->reader->events.count;
    cen_status status = find_main_stream(&w, keys, count);
    for (size_t i = 0; i < count && !status; i++) {
        status = apply(&w, &f->events.at[keys[i].index]);
    }
    status = status ? status : collect_live(&w);
    status = status ? status : ceni_final_put(f->reader, &w.final, device);
    status = status ? status
                    : ceni_trace_list(f->reader, CENI_EVENT, first, f->reader->events.count - first,
                                      events);
    ceni_map_free(&w.at);
    ceni_free(w.blocks.at);
    ceni_free(w.routes.at);
    ceni_free(w.final.pieces.at);
    ceni_free(w.final.live.at);
    return status;
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
    ceni_note_record note = {.time_us = time_us(f, e->ticks),
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

static cen_status put_notes(ceni_trace_file *f, const key *keys, size_t count, uint32_t devices,
                            ceni_value *notes) {
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

static cen_status make_keys(ceni_trace_file *f, key **keys) {
    size_t capacity = 0, count = f->events.count;
    *keys = NULL;
    if (ceni_read_grow(f->reader, keys, &capacity, count, sizeof **keys)) {
        return f->reader->status;
    }
    for (size_t i = 0; i < count; i++) {
        (*keys)[i] = (key){f->events.at[i].ticks, i, f->events.at[i].device};
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

static cen_status read_all(ceni_trace_file *f, const key *keys, ceni_value *events,
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
            if (read_device(f, devices, keys + first, this_one ? at - first : 0,
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
    key *keys;
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
