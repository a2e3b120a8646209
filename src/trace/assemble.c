/* From the reader's records to a snapshot: what belongs to each device, in order.
 *
 * The arrays of events, strings and stacks move into the snapshot as they are; segments, blocks
 * and annotations, which are few, are copied sorted. A device's events are one run of the array
 * of all events (a pickler writes them one after the other) and are not copied; only where a file
 * shares or shuffles its event dicts they are. */
#include "trace/read.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int ceni_list_kind(const ceni_reader *reader, ceni_value list, size_t *run) {
    *run = 0;
    if (ceni_tag_of(list) == CENI_UNSET || ceni_tag_of(list) == CENI_NONE) {
        return CENI_EMPTY;
    }
    if (ceni_tag_of(list) != CENI_LIST) {
        return -1;
    }
    uint64_t object = reader->objects.at[ceni_payload(list)];
    if ((object & 255) != CENI_ITEMS) {
        return (int)(object & 255);
    }
    *run = reader->lists.at[object >> 8].head;
    return reader->lists.at[object >> 8].kind;
}

/* Walks a list's items: next() gives the index of each. */
typedef struct item_walk {
    size_t run, at;
} item_walk;

static bool next(const ceni_reader *reader, item_walk *walk, size_t *index) {
    if (!walk->run) {
        return false;
    }
    const ceni_run *run = &reader->runs.at[walk->run - 1];
    *index = run->first + walk->at++;
    if (walk->at == run->count) {
        *walk = (item_walk){.run = run->next};
    }
    return true;
}

/* The snapshot's structure is not there: because of a dict in doubt, or altogether. */
static cen_status no_snapshot(ceni_reader *reader, const char *what) {
    if (!reader->doubt[0]) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "%s", what);
    }
    reader->offset = reader->doubt_offset;
    reader->at_offset = true;
    return ceni_read_fail(reader, CEN_ERR_FORMAT, "%s", reader->doubt);
}

/* Begins a walk over `list`, whose items have to be of `kind`. */
static cen_status walk_list(ceni_reader *reader, ceni_value list, enum ceni_object_kind kind,
                            const char *what, item_walk *walk) {
    *walk = (item_walk){0};
    int found = ceni_list_kind(reader, list, &walk->run);
    if (found != CENI_EMPTY && found != (int)kind) {
        return no_snapshot(reader, what);
    }
    return CEN_OK;
}

/* A device while the snapshot is put together; by number. */
typedef struct slot {
    cen_snapshot_device device;
    cen_trace_event *copied;
    size_t first_segment, first_note;
} slot;

typedef struct assembly {
    ceni_reader *reader;
    cen_snapshot *snapshot;
    CENI_ARRAY(slot) slots;
    CENI_ARRAY(ceni_segment_record) segments;
    CENI_ARRAY(ceni_note_record) notes;
    CENI_ARRAY(cen_snapshot_block) blocks;
} assembly;

static cen_status need_device(assembly *a, size_t number) {
    if (number < a->slots.count) {
        return CEN_OK;
    }
    if (number >= CENI_READ_DEVICES_MAX) {
        return ceni_read_fail(a->reader, CEN_ERR_FORMAT, "more than %d devices",
                              CENI_READ_DEVICES_MAX);
    }
    if (CENI_ROOM(a->reader, a->slots, number + 1 - a->slots.count)) {
        return a->reader->status;
    }
    for (; a->slots.count <= number; a->slots.count++) {
        a->slots.at[a->slots.count] = (slot){.device.device = (int)a->slots.count};
    }
    return CEN_OK;
}

/* ---- segments and blocks ---- */

static int by_device_and_address(const void *left, const void *right) {
    const ceni_segment_record *a = left, *b = right;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    return (a->segment.addr > b->segment.addr) - (a->segment.addr < b->segment.addr);
}

static int by_address(const void *left, const void *right) {
    const cen_snapshot_block *a = left, *b = right;
    return (a->addr > b->addr) - (a->addr < b->addr);
}

/* Older recordings keep the request and its frames in the block's history, the newest first. */
static void apply_history(const ceni_reader *reader, const ceni_block_record *record,
                          cen_snapshot_block *block) {
    size_t run;
    bool any = ceni_list_kind(reader, record->history, &run) == CENI_HISTORY && run;
    const ceni_history_record *newest =
        any ? &reader->histories.at[reader->runs.at[run - 1].first] : NULL;
    if (!record->has_requested) {
        block->requested = newest && block->state != CEN_BLOCK_INACTIVE && newest->real_size
                               ? newest->real_size
                               : block->size;
    }
    if (newest && block->stack == CEN_NO_STACK && block->state != CEN_BLOCK_INACTIVE) {
        block->stack = newest->stack;
    }
}

/* Appends a segment's blocks; one without an address follows the one before it. */
static cen_status add_blocks(assembly *a, ceni_segment_record *record) {
    ceni_reader *reader = a->reader;
    item_walk walk;
    if (walk_list(reader, record->blocks, CENI_BLOCK,
                  "not a memory snapshot: 'blocks' is no list of blocks", &walk)) {
        return reader->status;
    }
    record->segment.first_block = a->blocks.count;
    uint64_t addr = record->segment.addr;
    bool sorted = true;
    for (size_t index; next(reader, &walk, &index);) {
        const ceni_block_record *from = &reader->blocks.at[index];
        if (CENI_ROOM(reader, a->blocks, 1)) {
            return reader->status;
        }
        cen_snapshot_block *block = &a->blocks.at[a->blocks.count++];
        *block = from->block;
        block->addr = from->has_address ? block->addr : addr;
        if (block->addr > UINT64_MAX - block->size) {
            return ceni_read_fail(reader, CEN_ERR_FORMAT, "a block ends beyond the address space");
        }
        sorted &= block->addr >= addr;
        addr = block->addr + block->size;
        apply_history(reader, from, block);
    }
    record->segment.block_count = a->blocks.count - record->segment.first_block;
    if (!sorted) {
        qsort(a->blocks.at + record->segment.first_block, record->segment.block_count,
              sizeof *a->blocks.at, by_address);
    }
    return CEN_OK;
}

static cen_status collect_segments(assembly *a, ceni_value list) {
    ceni_reader *reader = a->reader;
    item_walk walk;
    if (walk_list(reader, list, CENI_SEGMENT,
                  "not a memory snapshot: 'segments' is no list of segments", &walk)) {
        return reader->status;
    }
    for (size_t index; next(reader, &walk, &index);) {
        if (CENI_ROOM(reader, a->segments, 1)) {
            return reader->status;
        }
        const ceni_segment_record *record = &reader->segments.at[index];
        if (record->segment.addr > UINT64_MAX - record->segment.size) {
            return ceni_read_fail(reader, CEN_ERR_FORMAT,
                                  "a segment ends beyond the address space");
        }
        a->segments.at[a->segments.count++] = *record;
        if (need_device(a, record->device)) {
            return reader->status;
        }
    }
    if (a->segments.count) {
        qsort(a->segments.at, a->segments.count, sizeof *a->segments.at, by_device_and_address);
    }
    return CEN_OK;
}

/* Copies the sorted segments into the snapshot. Each device's blocks are consecutive, and
 * first_block counts from the device's first. */
static cen_status place_segments(assembly *a) {
    cen_snapshot *snapshot = a->snapshot;
    size_t capacity = 0, device_block = 0;
    if (ceni_read_grow(a->reader, &snapshot->segments, &capacity, a->segments.count,
                       sizeof *snapshot->segments)) {
        return a->reader->status;
    }
    for (size_t i = 0; i < a->segments.count; i++) {
        ceni_segment_record *record = &a->segments.at[i];
        slot *to = &a->slots.at[record->device];
        if (!to->device.segment_count++) {
            to->first_segment = i;
            device_block = a->blocks.count;
        }
        if (add_blocks(a, record)) {
            return a->reader->status;
        }
        to->device.block_count += record->segment.block_count;
        record->segment.first_block -= device_block;
        snapshot->segments[i] = record->segment;
    }
    snapshot->blocks = a->blocks.at;
    a->blocks.at = NULL;
    size_t block = 0;
    for (size_t i = 0; i < a->slots.count; i++) {
        slot *to = &a->slots.at[i];
        if (to->device.segment_count) {
            to->device.segments = snapshot->segments + to->first_segment;
        }
        if (to->device.block_count) {
            to->device.blocks = snapshot->blocks + block;
            block += to->device.block_count;
        }
    }
    return CEN_OK;
}

/* ---- events ---- */

static cen_status copy_events(assembly *a, slot *to, item_walk walk) {
    ceni_reader *reader = a->reader;
    size_t capacity = 0, count = 0;
    for (size_t index; next(reader, &walk, &index);) {
        if (count == capacity &&
            ceni_read_grow(reader, &to->copied, &capacity, count + 1, sizeof *to->copied)) {
            return reader->status;
        }
        to->copied[count++] = reader->events.at[index];
    }
    to->device.events = to->copied;
    to->device.event_count = count;
    return CEN_OK;
}

static cen_status place_events(assembly *a, ceni_value traces) {
    ceni_reader *reader = a->reader;
    item_walk walk, events;
    if (walk_list(reader, traces, CENI_ITEMS,
                  "not a memory snapshot: 'device_traces' is no list of lists", &walk)) {
        return reader->status;
    }
    size_t number = 0;
    for (size_t object; next(reader, &walk, &object); number++) {
        if (walk_list(reader, ceni_make(CENI_LIST, object), CENI_EVENT,
                      "not a memory snapshot: a device's trace is no list of events", &events)) {
            return reader->status;
        }
        if (need_device(a, number)) {
            return reader->status;
        }
        slot *to = &a->slots.at[number];
        if (!events.run) {
            continue;
        }
        const ceni_run *run = &reader->runs.at[events.run - 1];
        if (run->next) {
            if (copy_events(a, to, events)) {
                return reader->status;
            }
        } else {
            to->device.events = reader->events.at + run->first;
            to->device.event_count = run->count;
        }
    }
    return CEN_OK;
}

/* ---- annotations ---- */

static int by_device_and_time(const void *left, const void *right) {
    const ceni_note_record *a = left, *b = right;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    if (a->time_us != b->time_us) {
        return a->time_us < b->time_us ? -1 : 1;
    }
    return (a->order > b->order) - (a->order < b->order);
}

/* Annotations of another shape are not an error: they explain, and nothing is counted on them. */
static cen_status place_notes(assembly *a, ceni_value list) {
    ceni_reader *reader = a->reader;
    item_walk walk = {0};
    if (ceni_list_kind(reader, list, &walk.run) != CENI_NOTE) {
        return CEN_OK;
    }
    for (size_t index; next(reader, &walk, &index);) {
        if (CENI_ROOM(reader, a->notes, 1)) {
            return reader->status;
        }
        a->notes.at[a->notes.count] = reader->notes.at[index];
        a->notes.at[a->notes.count].order = a->notes.count;
        a->notes.count++;
    }
    qsort(a->notes.at, a->notes.count, sizeof *a->notes.at, by_device_and_time);
    cen_annotation *to = NULL;
    size_t capacity = 0;
    if (ceni_read_grow(reader, &to, &capacity, a->notes.count, sizeof *to)) {
        ceni_free(to);
        return reader->status;
    }
    a->snapshot->annotations = to;
    for (size_t i = 0; i < a->notes.count; i++) {
        const ceni_note_record *note = &a->notes.at[i];
        to[i] = (cen_annotation){ceni_string(reader, note->name), note->time_us, note->end};
        if (note->device < a->slots.count) {
            cen_snapshot_device *device = &a->slots.at[note->device].device;
            device->annotations = device->annotations ? device->annotations : to + i;
            device->annotation_count++;
        }
    }
    return CEN_OK;
}

/* ---- the whole ---- */

static cen_status place_stacks(assembly *a) {
    ceni_reader *reader = a->reader;
    size_t capacity = 0, count = reader->stack_frames.count;
    if (ceni_read_grow(reader, &a->snapshot->frames, &capacity, count,
                       sizeof *a->snapshot->frames)) {
        return reader->status;
    }
    for (size_t i = 0; i < count; i++) {
        const ceni_frame_key *key = &reader->frames.at[reader->stack_frames.at[i]];
        a->snapshot->frames[i] = (cen_frame){.file = ceni_string(reader, key->file),
                                             .function = ceni_string(reader, key->function),
                                             .line = key->line};
    }
    return CEN_OK;
}

/* Moves the devices that hold anything into the snapshot, and rewinds each. */
static cen_status place_devices(assembly *a) {
    cen_snapshot *snapshot = a->snapshot;
    snapshot->devices = ceni_calloc(a->slots.count, sizeof *snapshot->devices);
    snapshot->copied = ceni_calloc(a->slots.count, sizeof(cen_trace_event *));
    if (!snapshot->devices || !snapshot->copied) {
        return ceni_read_fail(a->reader, CEN_ERR_HOST_MEMORY, "no memory for the devices");
    }
    for (size_t i = 0; i < a->slots.count; i++) {
        slot *from = &a->slots.at[i];
        if (from->device.event_count || from->device.segment_count) {
            size_t to = snapshot->device_count++;
            snapshot->devices[to] = from->device;
            snapshot->copied[to] = from->copied;
            from->copied = NULL;
            if (ceni_rewind(a->reader, &snapshot->devices[to])) {
                return a->reader->status;
            }
        }
    }
    return CEN_OK;
}

static cen_status find_root(ceni_reader *reader, ceni_value result, ceni_root_record *root) {
    size_t run;
    if (ceni_tag_of(result) == CENI_DICT) {
        uint64_t object = reader->objects.at[ceni_payload(result)];
        if ((object & 255) == CENI_ROOT) {
            *root = reader->roots.at[object >> 8];
            return CEN_OK;
        }
    } else if (ceni_list_kind(reader, result, &run) == CENI_SEGMENT) {
        *root = (ceni_root_record){.segments = result}; /* the oldest form: the state only */
        return CEN_OK;
    }
    return no_snapshot(reader, "a pickle, but not of a memory snapshot; expected a dict with "
                               "'segments' and 'device_traces'");
}

static void free_assembly(assembly *a) {
    for (size_t i = 0; i < a->slots.count; i++) {
        ceni_free(a->slots.at[i].copied);
    }
    ceni_free(a->slots.at);
    ceni_free(a->segments.at);
    ceni_free(a->notes.at);
    ceni_free(a->blocks.at);
}

/* The reader's last arrays become the snapshot's. */
static void move_arrays(ceni_reader *reader, cen_snapshot *snapshot) {
    snapshot->no_ring = reader->no_ring;
    snapshot->events = reader->events.at;
    snapshot->text = reader->text.at;
    snapshot->stacks = reader->stacks.at;
    snapshot->stack_count = reader->stacks.count;
    reader->events.at = NULL;
    reader->text.at = NULL;
    reader->stacks.at = NULL;
}

cen_status ceni_assemble(ceni_reader *reader, ceni_value result, cen_snapshot **snapshot) {
    ceni_root_record root = {0};
    if (find_root(reader, result, &root)) {
        return reader->status;
    }
    assembly a = {.reader = reader, .snapshot = ceni_calloc(1, sizeof *a.snapshot)};
    if (!a.snapshot) {
        return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory for the snapshot");
    }
    if (collect_segments(&a, root.segments) || place_events(&a, root.traces) ||
        place_segments(&a) || place_notes(&a, root.notes) || place_stacks(&a) ||
        ceni_assemble_settings(reader, root.settings, a.snapshot) || place_devices(&a)) {
        cen_snapshot_free(a.snapshot);
    } else {
        move_arrays(reader, a.snapshot);
        *snapshot = a.snapshot;
    }
    free_assembly(&a);
    return reader->status;
}
