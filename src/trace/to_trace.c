/* A snapshot as a trace of cenote's.
 *
 * Each event of the snapshot becomes one of the trace's that is read back as it was: a free that is
 * requested as one that waits, its completion by itself. Before them go the memory that was mapped
 * and the blocks that were alive when the history began: the final segments with the history
 * undone, and the snapshot's initial blocks. What the trace ends with is then the final state.
 *
 * Times are ticks of a nanosecond. A trace is in the order of its times, so that a time before the
 * one of the event before becomes that one. docs/convert.md says what is lost. */
#include "trace/convert.h"

#include "base/map.h"
#include "base/mem.h"
#include "trace/read_trace.h"
#include "trace/write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 4096 };

typedef struct writer {
    ceni_out *out;
    const cen_snapshot *snapshot;
    const cen_snapshot_device *device;
    ceni_writer to;
    uint32_t thread;     /* a device's events are one thread's */
    uint32_t *stack_ids; /* by stack: id + 1 */
    ceni_event_record *events;
    size_t count;
    uint64_t now; /* in ticks */
} writer;

static void no_memory(writer *w) {
    ceni_out_fail(w->out, CEN_ERR_HOST_MEMORY, "no memory for the trace");
}

/* The trace's writer has logged why. */
static void failed(writer *w, cen_status status) {
    if (status == CEN_ERR_IO) {
        w->out->logged = true;
        ceni_out_fail(w->out, status, "writing failed: %s", strerror(errno));
    } else if (status) {
        no_memory(w);
    }
}

static uint64_t to_ticks(int64_t time_us) {
    return time_us < 0                  ? 0
           : time_us > INT64_MAX / 1000 ? (uint64_t)INT64_MAX
                                        : (uint64_t)time_us * 1000;
}

/* ---- events ---- */

static void flush(writer *w) {
    if (w->count && !w->out->status) {
        failed(w, ceni_writer_events(&w->to, w->thread, w->events, w->count,
                                     (ceni_moment_pair){w->now, w->now}));
    }
    w->count = 0;
}

static void put(writer *w, unsigned kind, uint64_t addr, uint64_t size, uint64_t stream,
                uint32_t stack) {
    if (w->count == BATCH) {
        flush(w);
    }
    w->events[w->count++] = (ceni_event_record){.ticks = w->now,
                                                .addr = addr,
                                                .size = size,
                                                .stream = stream,
                                                .stack = stack,
                                                .kind = (uint8_t)kind,
                                                .flags = (uint8_t)(kind >> 8),
                                                .device = (uint16_t)w->device->device};
}

/* The id of a stack, which is written when it is first needed. */
static uint32_t stack_id(writer *w, uint32_t stack) {
    size_t count = 0;
    const cen_frame *frames = cen_snapshot_stack(w->snapshot, stack, &count);
    if (!frames || w->stack_ids[stack]) {
        return frames ? w->stack_ids[stack] - 1 : CENI_FILE_NONE;
    }
    ceni_frame_record *records = ceni_calloc(count, sizeof *records);
    for (size_t i = 0; records && i < count; i++) {
        records[i].module = CENI_FILE_NONE;
        records[i].line = frames[i].line;
        records[i].at.named.file =
            ceni_writer_string(&w->to, frames[i].file, strlen(frames[i].file));
        records[i].at.named.function =
            ceni_writer_string(&w->to, frames[i].function, strlen(frames[i].function));
        if (records[i].at.named.file == CENI_FILE_NONE ||
            records[i].at.named.function == CENI_FILE_NONE) {
            no_memory(w);
        }
    }
    uint32_t id = records ? ceni_writer_stack(&w->to, records, count) : CENI_FILE_NONE;
    ceni_free(records);
    if (id == CENI_FILE_NONE) {
        no_memory(w);
        return id;
    }
    w->stack_ids[stack] = id + 1;
    return id;
}

/* ---- memory ---- */

static bool is_segment_event(const cen_trace_event *event) {
    return event->action >= CEN_ACTION_SEGMENT_ALLOC && event->action <= CEN_ACTION_SEGMENT_UNMAP;
}

/* The final segment that holds a range: what it was for is not told by events. NULL: given back. */
static const cen_snapshot_segment *segment_at(const cen_snapshot_device *device, uint64_t addr,
                                              uint64_t size) {
    size_t low = 0, high = device->segment_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const cen_snapshot_segment *s = &device->segments[middle];
        if (s->addr + s->size <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const cen_snapshot_segment *s = &device->segments[low];
    return low < device->segment_count && s->addr <= addr && s->size >= size &&
                   addr - s->addr <= s->size - size
               ? s
               : NULL;
}

/* Maps a piece; its private pool goes round it, as a stream's that allocates from there. */
static void put_map(writer *w, const ceni_piece *piece, unsigned flags, uint32_t stack) {
    bool private = piece->pool[0] || piece->pool[1];
    flags |= (piece->plain ? CENI_EMIT_PLAIN : 0) | (piece->small ? CENI_EMIT_SMALL : 0);
    if (private) {
        put(w, CENI_EVENT_PRIVATE, (uint64_t)piece->pool[0], (uint64_t)piece->pool[1],
            piece->stream, CENI_FILE_NONE);
    }
    put(w, CENI_EVENT_MAP | flags, piece->addr, piece->end - piece->addr, piece->stream, stack);
    if (private) {
        put(w, CENI_EVENT_PRIVATE, 0, 0, piece->stream, CENI_FILE_NONE);
    }
}

static void put_segment_event(writer *w, const cen_trace_event *event, uint32_t stack) {
    bool plain =
        event->action == CEN_ACTION_SEGMENT_ALLOC || event->action == CEN_ACTION_SEGMENT_FREE;
    if (event->addr > UINT64_MAX - event->size) {
        ceni_out_fail(w->out, CEN_ERR_FORMAT, "%llu bytes at 0x%llx are no range",
                      (unsigned long long)event->size, (unsigned long long)event->addr);
        return;
    }
    if (event->action == CEN_ACTION_SEGMENT_FREE || event->action == CEN_ACTION_SEGMENT_UNMAP) {
        put(w, CENI_EVENT_UNMAP | (plain ? CENI_EMIT_PLAIN : 0), event->addr, event->size,
            event->stream, stack);
        return;
    }
    ceni_piece piece = {.addr = event->addr,
                        .end = event->addr + event->size,
                        .stream = event->stream,
                        .plain = plain};
    const cen_snapshot_segment *s = segment_at(w->device, event->addr, event->size);
    if (s && s->stream == event->stream) {
        memcpy(piece.pool, s->pool_id, sizeof piece.pool);
        piece.small = s->small;
    }
    put_map(w, &piece, 0, stack);
}

/* Undoes the history's segment events in the final state. */
static cen_status undo_all(ceni_reader *reader, const cen_snapshot_device *device,
                           ceni_final *pieces) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < device->segment_count && !status; i++) {
        const cen_snapshot_segment *s = &device->segments[i];
        ceni_piece piece = {.addr = s->addr,
                            .end = s->addr + s->size,
                            .stream = s->stream,
                            .pool = {s->pool_id[0], s->pool_id[1]},
                            .plain = !s->expandable,
                            .small = s->small};
        status = s->size ? ceni_final_map(reader, pieces, &piece) : CEN_OK;
    }
    for (size_t i = device->event_count; i-- > 0 && !status;) {
        const cen_trace_event *e = &device->events[i];
        if (!is_segment_event(e) || e->addr > UINT64_MAX - e->size || !e->size) {
            continue;
        }
        bool was_there =
            e->action == CEN_ACTION_SEGMENT_FREE || e->action == CEN_ACTION_SEGMENT_UNMAP;
        ceni_piece piece = {.addr = e->addr,
                            .end = e->addr + e->size,
                            .stream = e->stream,
                            .plain = e->action == CEN_ACTION_SEGMENT_FREE};
        status = was_there ? ceni_final_map(reader, pieces, &piece)
                           : ceni_final_unmap(reader, pieces, piece.addr, piece.end);
    }
    return status;
}

/* ---- devices ---- */

/* Whether a block that was alive before the first event had its free requested by then: it is
 * pending in the end, and no event requested that. */
static bool is_pending(const ceni_map *requested, const cen_snapshot_device *device,
                       uint64_t addr) {
    size_t low = 0, high = device->block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (device->blocks[middle].addr < addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < device->block_count && device->blocks[low].addr == addr &&
           device->blocks[low].state == CEN_BLOCK_PENDING_FREE &&
           !ceni_map_get((ceni_map *)requested, addr);
}

/* What was there before the first event. */
static void put_initial(writer *w) {
    const cen_snapshot_device *device = w->device;
    ceni_reader *reader = ceni_calloc(1, sizeof *reader); /* only what failures and growth need */
    ceni_final pieces = {0};
    ceni_map requested = {0};
    cen_status status = reader ? undo_all(reader, device, &pieces) : CEN_ERR_HOST_MEMORY;
    for (size_t i = 0; i < device->event_count && !status; i++) {
        const cen_trace_event *event = &device->events[i];
        if (event->action == CEN_ACTION_FREE_REQUESTED) {
            status = ceni_map_put(&requested, event->addr, 0) ? CEN_ERR_HOST_MEMORY : CEN_OK;
        }
    }
    for (size_t i = 0; i < pieces.pieces.count && !status; i++) {
        put_map(w, &pieces.pieces.at[i], CENI_EMIT_BEFORE, CENI_FILE_NONE);
    }
    for (size_t i = 0; i < device->initial_count && !status; i++) {
        const cen_initial_block *block = &device->initial[i];
        unsigned pending =
            is_pending(&requested, device, block->addr) ? (unsigned)CENI_EMIT_PENDING : 0;
        put(w, CENI_EVENT_ALLOC | CENI_EMIT_BEFORE | pending, block->addr, block->size,
            block->stream, stack_id(w, block->stack));
    }
    if (status) {
        no_memory(w);
    }
    ceni_free(pieces.pieces.at);
    ceni_map_free(&requested);
    ceni_free(reader);
}

static void put_event(writer *w, const cen_trace_event *event) {
    static const unsigned kinds[] = {
        [CEN_ACTION_ALLOC] = CENI_EVENT_ALLOC,
        [CEN_ACTION_FREE_REQUESTED] = CENI_EVENT_FREE | CENI_EMIT_PENDING,
        [CEN_ACTION_FREE_COMPLETED] = CENI_EVENT_FREED,
        [CEN_ACTION_SNAPSHOT] = CENI_EVENT_SNAPSHOT,
        [CEN_ACTION_OOM] = CENI_EVENT_OOM,
        [CEN_ACTION_OTHER] = CENI_EVENT_OTHER,
    };
    uint64_t ticks = to_ticks(event->time_us);
    uint32_t stack = stack_id(w, event->stack);
    w->now = ticks > w->now ? ticks : w->now;
    if (is_segment_event(event)) {
        put_segment_event(w, event, stack);
    } else {
        put(w, kinds[event->action], event->addr, event->size, event->stream, stack);
    }
}

/* Annotations may be of any time: they are a thread's of their own. */
static void put_annotations(writer *w) {
    for (size_t i = 0; i < w->device->annotation_count && !w->out->status; i++) {
        const cen_annotation *mark = &w->device->annotations[i];
        uint32_t name = ceni_writer_string(&w->to, mark->name, strlen(mark->name));
        if (name == CENI_FILE_NONE) {
            no_memory(w);
            return;
        }
        w->now = to_ticks(mark->time_us);
        put(w, CENI_EVENT_MARK, name, mark->end, 0, CENI_FILE_NONE);
    }
    flush(w);
}

static void put_device(writer *w, uint64_t start) {
    w->now = start;
    put_initial(w);
    for (size_t i = 0; i < w->device->event_count && !w->out->status; i++) {
        put_event(w, &w->device->events[i]);
    }
    flush(w);
    w->thread++;
    put_annotations(w);
    w->thread++;
}

static uint64_t start_of(const cen_snapshot *snapshot) {
    uint64_t start = UINT64_MAX;
    for (size_t i = 0; i < snapshot->device_count; i++) {
        const cen_snapshot_device *d = &snapshot->devices[i];
        uint64_t event = d->event_count ? to_ticks(d->events[0].time_us) : UINT64_MAX;
        uint64_t mark = d->annotation_count ? to_ticks(d->annotations[0].time_us) : UINT64_MAX;
        start = event < start ? event : start;
        start = mark < start ? mark : start;
    }
    return start == UINT64_MAX ? 0 : start;
}

static void put_all(writer *w, uint64_t start) {
    const cen_snapshot *snapshot = w->snapshot;
    for (size_t i = 0; i < snapshot->setting_count && !w->out->status; i++) {
        failed(w, ceni_writer_setting(&w->to, snapshot->setting_text + snapshot->settings[i].key,
                                      snapshot->setting_text + snapshot->settings[i].value));
    }
    for (size_t i = 0; i < snapshot->device_count && !w->out->status; i++) {
        w->device = &snapshot->devices[i];
        put_device(w, start);
    }
}

void ceni_write_trace(ceni_out *out, const cen_snapshot *snapshot) {
    writer w = {.out = out, .snapshot = snapshot};
    uint64_t start = start_of(snapshot);
    ceni_moment_pair first = {start, start};
    int fd = ceni_out_file(out);
    w.stack_ids = ceni_calloc(snapshot->stack_count + 1, sizeof *w.stack_ids);
    w.events = ceni_malloc(BATCH * sizeof *w.events);
    if (!w.stack_ids || !w.events) {
        no_memory(&w);
    } else if (fd >= 0) {
        cen_status status = ceni_writer_open(
            &w.to, fd, out->name, snapshot->no_ring ? CENI_PID_NONE : CENI_PID_RING, first, start);
        failed(&w, status);
        if (!status) {
            put_all(&w, start);
            failed(&w, ceni_writer_close(&w.to, 0, (ceni_moment_pair){w.now, w.now}));
        }
    }
    ceni_out_take(out, fd);
    ceni_free(w.stack_ids);
    ceni_free(w.events);
}
