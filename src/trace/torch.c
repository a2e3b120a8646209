/* A snapshot as PyTorch writes it: the dict of torch.cuda.memory._snapshot(), as a pickle.
 *
 * Everything goes out as it is come by; what is kept is the place in the memo of each text, frame
 * and stack, so that each is in the file once. The traces come before the segments: the keys of
 * events, which make most of the file, then have the memo's first places, which are the shortest to
 * name. docs/convert.md says what of a recording the snapshot does not have, and so the file. */
#include "trace/convert.h"

#include "base/mem.h"
#include "trace/pickler.h"
#include "trace/read.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    ceni_pickler p;
    const cen_snapshot *snapshot;
    ceni_map pairs;        /* file's number, function's number -> the pair's number */
    ceni_map frames;       /* pair's number, line -> place in the memo */
    uint32_t *stack_memos; /* by stack, the last is for none: place in the memo + 1 */
} writer;

/* A key of a dict; its value is to follow. */
static void key(writer *w, const char *name) {
    ceni_pickle_text(&w->p, name);
}
static void set_text(writer *w, const char *name, const char *value) {
    key(w, name);
    ceni_pickle_text(&w->p, value);
}
static void set_int(writer *w, const char *name, int64_t value) {
    key(w, name);
    ceni_pickle_int(&w->p, value);
}
static void set_unsigned(writer *w, const char *name, uint64_t value) {
    key(w, name);
    ceni_pickle_unsigned(&w->p, value);
}

/* A dict of fewer pairs than a batch. */
static void begin_dict(writer *w) {
    ceni_pickle_op(&w->p, OP_EMPTY_DICT);
    ceni_pickle_op(&w->p, OP_MARK);
}
static void end_dict(writer *w) {
    ceni_pickle_op(&w->p, OP_SETITEMS);
}

/* ---- stacks ---- */

/* The value of two halves; a new one is as many as the map held. Memory that runs out is `out`'s
 * failure, and 0. */
static uint64_t *find(writer *w, ceni_map *map, uint32_t high, uint32_t low) {
    uint64_t halves = (uint64_t)high << 32 | low;
    uint64_t *found = ceni_map_get(map, halves);
    if (!found && ceni_map_put(map, halves, UINT64_MAX)) {
        ceni_out_fail(w->p.out, CEN_ERR_HOST_MEMORY, "no memory for its frames");
        return NULL;
    }
    return found ? found : ceni_map_get(map, halves);
}

static void put_frame(writer *w, const cen_frame *frame) {
    uint32_t file = ceni_pickle_number(&w->p, frame->file);
    uint32_t function = ceni_pickle_number(&w->p, frame->function);
    uint64_t *pair = find(w, &w->pairs, file, function);
    if (pair && *pair == UINT64_MAX) {
        *pair = w->pairs.count - 1;
    }
    uint64_t *memo = pair ? find(w, &w->frames, (uint32_t)*pair, frame->line) : NULL;
    if (!memo) {
        return;
    }
    if (*memo != UINT64_MAX) {
        ceni_pickle_get(&w->p, (uint32_t)*memo);
        return;
    }
    begin_dict(w);
    set_text(w, "name", frame->function);
    set_text(w, "filename", frame->file);
    set_int(w, "line", frame->line);
    end_dict(w);
    *memo = ceni_pickle_memoize(&w->p);
}

/* A list of frames; without a stack, an empty one. */
static void put_stack(writer *w, uint32_t stack) {
    size_t count = 0;
    const cen_frame *frames = cen_snapshot_stack(w->snapshot, stack, &count);
    uint32_t *memo = &w->stack_memos[frames ? stack : w->snapshot->stack_count];
    if (*memo) {
        ceni_pickle_get(&w->p, *memo - 1);
        return;
    }
    ceni_pickle_op(&w->p, OP_EMPTY_LIST);
    *memo = ceni_pickle_memoize(&w->p) + 1;
    for (size_t i = 0; i < count; i++) {
        ceni_pickle_item(&w->p, OP_APPENDS, i);
        put_frame(w, &frames[i]);
    }
    ceni_pickle_end(&w->p, OP_APPENDS, count);
}

/* ---- events ---- */

static void put_event(writer *w, const cen_trace_event *event) {
    static const char *const actions[] = {
        [CEN_ACTION_ALLOC] = "alloc",
        [CEN_ACTION_FREE_REQUESTED] = "free_requested",
        [CEN_ACTION_FREE_COMPLETED] = "free_completed",
        [CEN_ACTION_SEGMENT_ALLOC] = "segment_alloc",
        [CEN_ACTION_SEGMENT_FREE] = "segment_free",
        [CEN_ACTION_SEGMENT_MAP] = "segment_map",
        [CEN_ACTION_SEGMENT_UNMAP] = "segment_unmap",
        [CEN_ACTION_SNAPSHOT] = "snapshot",
        [CEN_ACTION_OOM] = "oom",
        [CEN_ACTION_OTHER] = "other",
    };
    begin_dict(w);
    set_text(w, "action", actions[event->action]);
    if (event->action == CEN_ACTION_OOM) {
        key(w, "device_free");
        if (event->addr == CEN_FREE_UNKNOWN) {
            ceni_pickle_int(&w->p, -1);
        } else {
            ceni_pickle_unsigned(&w->p, event->addr);
        }
    } else {
        set_unsigned(w, "addr", event->addr);
    }
    set_unsigned(w, "size", event->size);
    set_unsigned(w, "stream", event->stream);
    set_int(w, "time_us", event->time_us);
    set_text(w, "compile_context", "N/A");
    set_text(w, "user_metadata", "");
    key(w, "frames");
    put_stack(w, event->stack);
    end_dict(w);
}

static void put_events(writer *w, const cen_snapshot_device *device) {
    for (size_t i = 0; i < device->event_count && !w->p.out->status; i++) {
        ceni_pickle_item(&w->p, OP_APPENDS, i);
        put_event(w, &device->events[i]);
    }
    ceni_pickle_end(&w->p, OP_APPENDS, device->event_count);
}

/* A list for each device number, also for those in between that hold nothing. */
static void put_traces(writer *w) {
    const cen_snapshot *snapshot = w->snapshot;
    size_t number = 0;
    ceni_pickle_op(&w->p, OP_EMPTY_LIST);
    for (size_t i = 0; i < snapshot->device_count; i++) {
        const cen_snapshot_device *device = &snapshot->devices[i];
        for (; number <= (size_t)device->device; number++) {
            ceni_pickle_op(&w->p, OP_EMPTY_LIST);
            if (number == (size_t)device->device) {
                put_events(w, device);
            }
            ceni_pickle_op(&w->p, OP_APPEND);
        }
    }
}

/* ---- segments ---- */

static void put_block(writer *w, const cen_snapshot_block *block) {
    static const char *const states[] = {
        [CEN_BLOCK_INACTIVE] = "inactive",
        [CEN_BLOCK_ACTIVE] = "active_allocated",
        [CEN_BLOCK_PENDING_FREE] = "active_pending_free",
    };
    begin_dict(w);
    set_unsigned(w, "address", block->addr);
    set_unsigned(w, "size", block->size);
    set_unsigned(w, "requested_size", block->requested);
    set_text(w, "state", states[block->state]);
    key(w, "frames");
    put_stack(w, block->stack);
    end_dict(w);
}

/* Before the next block, or the end: memory_viz lays a segment's blocks side by side whatever their
 * addresses, so that a gap is a block that nobody has. */
static size_t put_gap(writer *w, size_t index, uint64_t from, uint64_t to) {
    if (from >= to) {
        return index;
    }
    cen_snapshot_block gap = {
        .addr = from, .size = to - from, .stack = CEN_NO_STACK, .state = CEN_BLOCK_INACTIVE};
    ceni_pickle_item(&w->p, OP_APPENDS, index);
    put_block(w, &gap);
    return index + 1;
}

static void put_blocks(writer *w, const cen_snapshot_segment *segment,
                       const cen_snapshot_block *blocks) {
    uint64_t at = segment->addr;
    size_t count = 0;
    ceni_pickle_op(&w->p, OP_EMPTY_LIST);
    for (size_t i = 0; i < segment->block_count; i++) {
        count = put_gap(w, count, at, blocks[i].addr);
        ceni_pickle_item(&w->p, OP_APPENDS, count++);
        put_block(w, &blocks[i]);
        at = blocks[i].addr + blocks[i].size;
    }
    count = put_gap(w, count, at, segment->addr + segment->size);
    ceni_pickle_end(&w->p, OP_APPENDS, count);
}

static void put_segment(writer *w, int device, const cen_snapshot_segment *segment,
                        const cen_snapshot_block *blocks) {
    uint64_t allocated = 0, active = 0, requested = 0;
    for (size_t i = 0; i < segment->block_count; i++) {
        const cen_snapshot_block *block = &blocks[i];
        bool live = block->state != CEN_BLOCK_INACTIVE;
        allocated += block->state == CEN_BLOCK_ACTIVE ? block->size : 0;
        active += live ? block->size : 0;
        requested += live ? block->requested : 0;
    }
    begin_dict(w);
    set_int(w, "device", device);
    set_unsigned(w, "address", segment->addr);
    set_unsigned(w, "total_size", segment->size);
    set_unsigned(w, "allocated_size", allocated);
    set_unsigned(w, "active_size", active);
    set_unsigned(w, "requested_size", requested);
    set_unsigned(w, "stream", segment->stream);
    set_text(w, "segment_type", segment->small ? "small" : "large");
    key(w, "segment_pool_id");
    ceni_pickle_int(&w->p, segment->pool_id[0]);
    ceni_pickle_int(&w->p, segment->pool_id[1]);
    ceni_pickle_op(&w->p, OP_TUPLE2);
    key(w, "is_expandable");
    ceni_pickle_bool(&w->p, segment->expandable);
    key(w, "frames");
    put_stack(w, CEN_NO_STACK);
    key(w, "blocks");
    put_blocks(w, segment, blocks);
    end_dict(w);
}

static void put_segments(writer *w) {
    size_t count = 0;
    ceni_pickle_op(&w->p, OP_EMPTY_LIST);
    for (size_t i = 0; i < w->snapshot->device_count; i++) {
        const cen_snapshot_device *device = &w->snapshot->devices[i];
        for (size_t s = 0; s < device->segment_count && !w->p.out->status; s++) {
            const cen_snapshot_segment *segment = &device->segments[s];
            ceni_pickle_item(&w->p, OP_APPENDS, count++);
            put_segment(w, device->device, segment, device->blocks + segment->first_block);
        }
    }
    ceni_pickle_end(&w->p, OP_APPENDS, count);
}

/* ---- settings and annotations ---- */

/* A number as Python prints it; settings are kept as text (settings.c), and become what they were.
 * What only looks like one is written as text, which reads back the same. */
static bool put_number(writer *w, const char *text, size_t size) {
    char copy[40], again[40], *end;
    if (!size || size >= sizeof copy || !strchr("-0123456789", text[0])) {
        return false;
    }
    memcpy(copy, text, size);
    copy[size] = 0;
    long long integer = strtoll(copy, &end, 10);
    if (!*end) {
        snprintf(again, sizeof again, "%lld", integer);
        if (!strcmp(copy, again)) {
            ceni_pickle_int(&w->p, integer);
            return true;
        }
        return false;
    }
    char *point = strchr(copy, '.');
    if (point) {
        *point = *localeconv()->decimal_point;
    }
    double value = strtod(copy, &end);
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    ceni_float_text(again, sizeof again, bits);
    if (*end || strlen(again) != size || memcmp(text, again, size) != 0) {
        return false;
    }
    ceni_pickle_float(&w->p, value);
    return true;
}

static void put_scalar(writer *w, const char *text, size_t size) {
    if (size == 4 && !memcmp(text, "None", size)) {
        ceni_pickle_op(&w->p, OP_NONE);
    } else if (size == 4 && !memcmp(text, "True", size)) {
        ceni_pickle_bool(&w->p, true);
    } else if (size == 5 && !memcmp(text, "False", size)) {
        ceni_pickle_bool(&w->p, false);
    } else if (!put_number(w, text, size)) {
        ceni_pickle_string(&w->p, text, size);
    }
}

/* "[256:1,512:2]": each part has one colon. */
static bool is_dict_text(const char *text) {
    size_t length = strlen(text), colons = 0;
    if (length < 2 || text[0] != '[' || text[length - 1] != ']') {
        return false;
    }
    for (size_t i = 1; i < length; i++) {
        colons += text[i] == ':';
        if (text[i] == ',' || text[i] == ']') {
            if (colons != 1 || (text[i] == ']' && i < length - 1)) {
                return false;
            }
            colons = 0;
        }
    }
    return true;
}

static void put_setting(writer *w, const char *text) {
    if (!is_dict_text(text)) {
        put_scalar(w, text, strlen(text));
        return;
    }
    size_t count = 0;
    ceni_pickle_op(&w->p, OP_EMPTY_DICT);
    for (const char *at = text + 1; *at;) {
        size_t name = strcspn(at, ":"), size = strcspn(at + name, ",]") - 1;
        ceni_pickle_item(&w->p, OP_SETITEMS, count++);
        ceni_pickle_string(&w->p, at, name);
        put_scalar(w, at + name + 1, size);
        at += name + 1 + size;
        at += 1; /* the comma or the bracket */
    }
    ceni_pickle_end(&w->p, OP_SETITEMS, count);
}

static void put_settings(writer *w) {
    const cen_snapshot *snapshot = w->snapshot;
    ceni_pickle_op(&w->p, OP_EMPTY_DICT);
    for (size_t i = 0; i < snapshot->setting_count; i++) {
        const char *name = snapshot->setting_text + snapshot->settings[i].key;
        ceni_pickle_item(&w->p, OP_SETITEMS, i);
        ceni_pickle_string(&w->p, name, strlen(name));
        put_setting(w, snapshot->setting_text + snapshot->settings[i].value);
    }
    ceni_pickle_end(&w->p, OP_SETITEMS, snapshot->setting_count);
}

static void put_annotations(writer *w) {
    size_t count = 0;
    ceni_pickle_op(&w->p, OP_EMPTY_LIST);
    for (size_t i = 0; i < w->snapshot->device_count; i++) {
        const cen_snapshot_device *device = &w->snapshot->devices[i];
        for (size_t a = 0; a < device->annotation_count && !w->p.out->status; a++) {
            const cen_annotation *mark = &device->annotations[a];
            ceni_pickle_item(&w->p, OP_APPENDS, count++);
            begin_dict(w);
            set_text(w, "stage", mark->end ? "END" : "START");
            set_text(w, "name", mark->name);
            set_int(w, "device", device->device);
            set_int(w, "time_us", mark->time_us);
            end_dict(w);
        }
    }
    ceni_pickle_end(&w->p, OP_APPENDS, count);
}

void ceni_write_torch(ceni_out *out, const cen_snapshot *snapshot) {
    writer w = {.p.out = out, .snapshot = snapshot};
    w.stack_memos = ceni_calloc(snapshot->stack_count + 1, sizeof *w.stack_memos);
    if (!w.stack_memos) {
        ceni_out_fail(out, CEN_ERR_HOST_MEMORY, "no memory for its stacks");
        return;
    }
    ceni_pickle_op(&w.p, OP_PROTO);
    ceni_pickle_op(&w.p, 4);
    begin_dict(&w);
    key(&w, "device_traces");
    put_traces(&w);
    key(&w, "segments");
    put_segments(&w);
    key(&w, "allocator_settings");
    put_settings(&w);
    key(&w, "external_annotations");
    put_annotations(&w);
    end_dict(&w);
    ceni_pickle_op(&w.p, OP_STOP);
    ceni_pickler_free(&w.p);
    ceni_map_free(&w.pairs);
    ceni_map_free(&w.frames);
    ceni_free(w.stack_memos);
}
