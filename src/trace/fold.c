/* Folding: a dict that has been filled becomes an event, frame, segment, block... by its keys, and
 * a list of them becomes a stack or a chain of index runs.
 *
 * A dict is decided by its first telling key ("action": an event). Most arrive complete in one
 * SETITEMS; one that comes in pieces is plain until a telling key arrives, and later pieces change
 * the record. Keys that are not known are skipped, and None counts as missing. A list is taken as
 * it is when its dict is folded: no pickler writes a list after the dict that holds it, unless the
 * list contains that dict. */
#include "trace/read.h"

#include <string.h>

#define KEY(word) (UINT64_C(1) << CENI_W_##word)

static enum ceni_kind kind_by_keys(uint64_t keys) {
    if (keys & KEY(action)) {
        return CENI_EVENT;
    }
    if (keys & (KEY(blocks) | KEY(total_size))) {
        return CENI_SEGMENT;
    }
    if (keys & KEY(state)) {
        return CENI_BLOCK;
    }
    if (keys & KEY(filename)) {
        return CENI_FRAME;
    }
    if (keys & KEY(real_size)) {
        return CENI_HISTORY;
    }
    if (keys & KEY(stage)) {
        return CENI_NOTE;
    }
    return keys & (KEY(segments) | KEY(device_traces)) ? CENI_ROOT : CENI_PLAIN;
}

/* The known word that a value is, or CENI_WORDS. */
static inline enum ceni_word word_of(ceni_value value) {
    return ceni_tag_of(value) == CENI_STR && ceni_payload(value) < CENI_WORDS
               ? (enum ceni_word)ceni_payload(value)
               : CENI_WORDS;
}

static uint64_t keys_of(const ceni_value *pairs, size_t count) {
    uint64_t keys = 0;
    for (size_t i = 0; i < count; i++) {
        enum ceni_word word = word_of(pairs[2 * i]);
        keys |= word < 64 ? UINT64_C(1) << word : 0;
    }
    return keys;
}

static cen_status wrong(ceni_reader *reader, ceni_value key, const char *expected) {
    return ceni_read_fail(reader, CEN_ERR_FORMAT, "'%s' is not %s",
                          ceni_string(reader, (uint32_t)ceni_payload(key)), expected);
}

static cen_status get_unsigned(ceni_reader *reader, ceni_value key, ceni_value value,
                               uint64_t *out) {
    if (ceni_tag_of(value) == CENI_INT && (int64_t)value >= 0) {
        *out = ceni_payload(value);
    } else if (ceni_tag_of(value) == CENI_WIDE) {
        *out = reader->wide.at[ceni_payload(value)];
    } else {
        return wrong(reader, key, "a non-negative integer of at most 64 bits");
    }
    return CEN_OK;
}

static cen_status get_size(ceni_reader *reader, ceni_value key, ceni_value value, uint64_t *out) {
    if (ceni_tag_of(value) != CENI_INT || ceni_payload(value) > CENI_READ_SIZE_MAX) {
        return wrong(reader, key, "a size (0 to 2^48 bytes)");
    }
    *out = ceni_payload(value);
    return CEN_OK;
}

static cen_status get_small(ceni_reader *reader, ceni_value key, ceni_value value, uint32_t limit,
                            uint32_t *out) {
    if (ceni_tag_of(value) != CENI_INT || ceni_payload(value) >= limit) {
        return wrong(reader, key, "an integer in its range");
    }
    *out = (uint32_t)ceni_payload(value);
    return CEN_OK;
}

static cen_status get_signed(ceni_reader *reader, ceni_value key, ceni_value value, int64_t *out) {
    if (ceni_tag_of(value) != CENI_INT) {
        return wrong(reader, key, "an integer");
    }
    *out = (int64_t)value >> 4;
    return CEN_OK;
}

static cen_status get_string(ceni_reader *reader, ceni_value key, ceni_value value, uint32_t *out) {
    if (ceni_tag_of(value) != CENI_STR) {
        return wrong(reader, key, "a string");
    }
    *out = (uint32_t)ceni_payload(value);
    return CEN_OK;
}

static uint32_t stack_of(const ceni_reader *reader, ceni_value value) {
    if (ceni_tag_of(value) != CENI_LIST) {
        return CEN_NO_STACK;
    }
    uint64_t object = reader->objects.at[ceni_payload(value)];
    return (object & 255) == CENI_STACK ? (uint32_t)(object >> 8) : CEN_NO_STACK;
}

static inline cen_status set_event(ceni_reader *reader, size_t index, ceni_value key,
                                   ceni_value value) {
    cen_trace_event *event = &reader->events.at[index];
    switch (word_of(key)) {
    case CENI_W_action:
        if (ceni_tag_of(value) != CENI_STR) {
            return wrong(reader, key, "a string");
        }
        uint64_t word = ceni_payload(value);
        event->action = word >= CENI_W_alloc && word <= CENI_W_oom
                            ? (uint8_t)(word - CENI_W_alloc + CEN_ACTION_ALLOC)
                            : CEN_ACTION_OTHER;
        return CEN_OK;
    case CENI_W_addr:
    case CENI_W_device_free:
        return get_unsigned(reader, key, value, &event->addr);
    case CENI_W_size:
        return get_size(reader, key, value, &event->size);
    case CENI_W_stream:
        return get_unsigned(reader, key, value, &event->stream);
    case CENI_W_time_us:
        return get_signed(reader, key, value, &event->time_us);
    case CENI_W_frames:
        event->stack = stack_of(reader, value);
        return CEN_OK;
    default:
        return CEN_OK;
    }
}

static cen_status set_segment(ceni_reader *reader, size_t index, ceni_value key, ceni_value value) {
    ceni_segment_record *record = &reader->segments.at[index];
    switch (word_of(key)) {
    case CENI_W_device:
        return get_small(reader, key, value, CENI_READ_DEVICES_MAX, &record->device);
    case CENI_W_address:
        return get_unsigned(reader, key, value, &record->segment.addr);
    case CENI_W_total_size:
        return get_size(reader, key, value, &record->segment.size);
    case CENI_W_stream:
        return get_unsigned(reader, key, value, &record->segment.stream);
    case CENI_W_segment_type:
        record->segment.small = word_of(value) == CENI_W_small;
        return CEN_OK;
    case CENI_W_segment_pool_id:
        if (ceni_tag_of(value) != CENI_PAIR) {
            return wrong(reader, key, "a tuple of two integers");
        }
        const uint64_t *pair = reader->wide.at + ceni_payload(value);
        return get_signed(reader, key, pair[0], &record->segment.pool_id[0])
                   ? reader->status
                   : get_signed(reader, key, pair[1], &record->segment.pool_id[1]);
    case CENI_W_is_expandable:
        record->segment.expandable = value == ceni_make(CENI_BOOL, 1);
        return CEN_OK;
    case CENI_W_blocks:
        record->blocks = value;
        return CEN_OK;
    default:
        return CEN_OK;
    }
}

static cen_status set_state(ceni_reader *reader, ceni_value key, ceni_value value, uint8_t *state) {
    switch (word_of(value)) {
    case CENI_W_inactive:
        *state = CEN_BLOCK_INACTIVE;
        return CEN_OK;
    case CENI_W_active_allocated:
        *state = CEN_BLOCK_ACTIVE;
        return CEN_OK;
    case CENI_W_active_pending_free:
    case CENI_W_active_awaiting_free:
        *state = CEN_BLOCK_PENDING_FREE;
        return CEN_OK;
    default:
        return wrong(reader, key,
                     "a known state (active_allocated, active_pending_free, "
                     "active_awaiting_free, inactive)");
    }
}

static cen_status set_block(ceni_reader *reader, size_t index, ceni_value key, ceni_value value) {
    ceni_block_record *record = &reader->blocks.at[index];
    switch (word_of(key)) {
    case CENI_W_address:
        record->has_address = true;
        return get_unsigned(reader, key, value, &record->block.addr);
    case CENI_W_size:
        return get_size(reader, key, value, &record->block.size);
    case CENI_W_requested_size:
        record->has_requested = true;
        return get_size(reader, key, value, &record->block.requested);
    case CENI_W_state:
        return set_state(reader, key, value, &record->block.state);
    case CENI_W_frames:
        record->block.stack = stack_of(reader, value);
        return CEN_OK;
    case CENI_W_history:
        record->history = value;
        return CEN_OK;
    default:
        return CEN_OK;
    }
}

static cen_status set_history(ceni_reader *reader, size_t index, ceni_value key, ceni_value value) {
    ceni_history_record *record = &reader->histories.at[index];
    switch (word_of(key)) {
    case CENI_W_real_size:
        return get_size(reader, key, value, &record->real_size);
    case CENI_W_frames:
        record->stack = stack_of(reader, value);
        return CEN_OK;
    default:
        return CEN_OK;
    }
}

static cen_status set_note(ceni_reader *reader, size_t index, ceni_value key, ceni_value value) {
    ceni_note_record *record = &reader->notes.at[index];
    switch (word_of(key)) {
    case CENI_W_stage:
        record->end = word_of(value) == CENI_W_END;
        return CEN_OK;
    case CENI_W_name:
        return get_string(reader, key, value, &record->name);
    case CENI_W_device:
        return get_small(reader, key, value, CENI_READ_DEVICES_MAX, &record->device);
    case CENI_W_time_us:
        return get_signed(reader, key, value, &record->time_us);
    default:
        return CEN_OK;
    }
}

static cen_status set_root(ceni_reader *reader, size_t index, ceni_value key, ceni_value value) {
    ceni_root_record *record = &reader->roots.at[index];
    switch (word_of(key)) {
    case CENI_W_segments:
        record->segments = value;
        break;
    case CENI_W_device_traces:
        record->traces = value;
        break;
    case CENI_W_allocator_settings:
        record->settings = value;
        break;
    case CENI_W_external_annotations:
        record->notes = value;
        break;
    default:
        break;
    }
    return CEN_OK;
}

static cen_status set_frame(ceni_reader *reader, ceni_frame_key *frame, ceni_value key,
                            ceni_value value) {
    int64_t line = 0;
    switch (word_of(key)) {
    case CENI_W_filename:
        return get_string(reader, key, value, &frame->file);
    case CENI_W_name:
        return get_string(reader, key, value, &frame->function);
    case CENI_W_line:
        if (get_signed(reader, key, value, &line)) {
            return reader->status;
        }
        frame->line = line < 0 || line > UINT32_MAX ? 0 : (uint32_t)line;
        return CEN_OK;
    default:
        return CEN_OK;
    }
}

/* Frames are values, not records: setting a key makes another frame. */
static cen_status fold_frame(ceni_reader *reader, uint64_t *object, const ceni_value *pairs,
                             size_t count) {
    ceni_frame_key frame = {.file = CENI_WORDS, .function = CENI_WORDS}; /* "" */
    if ((*object & 255) == CENI_FRAME) {
        frame = reader->frames.at[*object >> 8];
    }
    for (size_t i = 0; i < count; i++) {
        if (ceni_tag_of(pairs[2 * i + 1]) != CENI_NONE &&
            set_frame(reader, &frame, pairs[2 * i], pairs[2 * i + 1])) {
            return reader->status;
        }
    }
    uint32_t id;
    if (ceni_intern_frame(reader, &frame, &id)) {
        return reader->status;
    }
    *object = (uint64_t)id << 8 | CENI_FRAME;
    return CEN_OK;
}

#define NEW_RECORD(array, ...)                                                                     \
    (CENI_ROOM(reader, reader->array, 1)                                                           \
         ? reader->status                                                                          \
         : (reader->array.at[reader->array.count] = __VA_ARGS__,                                   \
            *object = (uint64_t)reader->array.count++ << 8 | kind, CEN_OK))

/* Gives an object an empty record of `kind`. */
static cen_status new_record(ceni_reader *reader, uint64_t *object, enum ceni_kind kind) {
    switch (kind) {
    case CENI_EVENT:
        return NEW_RECORD(events,
                          (cen_trace_event){.stack = CEN_NO_STACK, .action = CEN_ACTION_OTHER});
    case CENI_SEGMENT:
        return NEW_RECORD(segments, (ceni_segment_record){.blocks = ceni_make(CENI_NONE, 0)});
    case CENI_BLOCK:
        return NEW_RECORD(blocks, (ceni_block_record){.block.stack = CEN_NO_STACK});
    case CENI_HISTORY:
        return NEW_RECORD(histories, (ceni_history_record){.stack = CEN_NO_STACK});
    case CENI_NOTE:
        return NEW_RECORD(notes, (ceni_note_record){.name = CENI_WORDS});
    case CENI_ROOT:
        return NEW_RECORD(roots, (ceni_root_record){0});
    default:
        return NEW_RECORD(plains, (ceni_plain){0});
    }
}

/* Plain dicts keep what may turn out to be a setting, in order. */
static cen_status set_plain(ceni_reader *reader, size_t index, ceni_value key, ceni_value value) {
    if (ceni_tag_of(key) != CENI_STR) {
        return CEN_OK;
    }
    if (CENI_ROOM(reader, reader->entries, 1)) {
        return reader->status;
    }
    ceni_plain *plain = &reader->plains.at[index];
    reader->entries.at[reader->entries.count++] = (ceni_entry){.key = key, .value = value};
    *(plain->tail ? &reader->entries.at[plain->tail - 1].next : &plain->head) =
        reader->entries.count;
    plain->tail = reader->entries.count;
    return CEN_OK;
}

/* As set_pairs below, for what a large file consists of. */
static cen_status set_event_pairs(ceni_reader *reader, size_t index, const ceni_value *pairs,
                                  size_t count) {
    for (size_t i = 0; i < count; i++) {
        ceni_value key = pairs[2 * i], value = pairs[2 * i + 1];
        if (ceni_tag_of(value) != CENI_NONE && set_event(reader, index, key, value)) {
            return reader->status;
        }
    }
    return CEN_OK;
}

typedef cen_status set_fn(ceni_reader *, size_t, ceni_value, ceni_value);

static cen_status set_pairs(ceni_reader *reader, uint64_t object, const ceni_value *pairs,
                            size_t count) {
    static set_fn *const set[] = {
        [CENI_PLAIN] = set_plain, [CENI_EVENT] = set_event,     [CENI_SEGMENT] = set_segment,
        [CENI_BLOCK] = set_block, [CENI_HISTORY] = set_history, [CENI_NOTE] = set_note,
        [CENI_ROOT] = set_root,
    };
    set_fn *fn = set[object & 255];
    if (fn == set_event) {
        return set_event_pairs(reader, object >> 8, pairs, count);
    }
    for (size_t i = 0; i < count; i++) {
        ceni_value key = pairs[2 * i], value = pairs[2 * i + 1];
        bool missing = ceni_tag_of(value) == CENI_NONE && fn != set_plain;
        if (!missing && fn(reader, object >> 8, key, value)) {
            return reader->status;
        }
    }
    return CEN_OK;
}

/* What every event and block has; checked where all keys come at once, which is always so in a
 * pickler's output. */
static cen_status check_keys(ceni_reader *reader, enum ceni_kind kind, uint64_t keys) {
    const char *missing = NULL;
    if (kind == CENI_EVENT && !(keys & (KEY(addr) | KEY(device_free)))) {
        missing = "an event without 'addr'";
    } else if ((kind == CENI_EVENT || kind == CENI_BLOCK) && !(keys & KEY(size))) {
        missing = kind == CENI_EVENT ? "an event without 'size'" : "a block without 'size'";
    } else if (kind == CENI_SEGMENT && !(keys & KEY(address))) {
        missing = "a segment without 'address'";
    } else if (kind == CENI_SEGMENT && !(keys & KEY(total_size))) {
        missing = "a segment without 'total_size'";
    }
    return missing ? ceni_read_fail(reader, CEN_ERR_FORMAT, "%s", missing) : CEN_OK;
}

/* A plain dict turns out to be of `kind`: what it held goes into the new record. */
static cen_status promote(ceni_reader *reader, uint64_t *object, enum ceni_kind kind) {
    size_t at = reader->plains.at[*object >> 8].head;
    if (kind == CENI_FRAME ? fold_frame(reader, object, NULL, 0)
                           : new_record(reader, object, kind)) {
        return reader->status;
    }
    for (; at; at = reader->entries.at[at - 1].next) {
        ceni_value pair[2] = {reader->entries.at[at - 1].key, reader->entries.at[at - 1].value};
        if (kind == CENI_FRAME ? fold_frame(reader, object, pair, 1)
                               : set_pairs(reader, *object, pair, 1)) {
            return reader->status;
        }
    }
    return CEN_OK;
}

cen_status ceni_fold_set(ceni_reader *reader, size_t index, const ceni_value *pairs, size_t count) {
    uint64_t *object = &reader->objects.at[index];
    enum ceni_kind kind = *object & 255;
    if (kind == CENI_EMPTY || kind == CENI_PLAIN) {
        uint64_t keys = keys_of(pairs, count);
        enum ceni_kind now = kind_by_keys(keys);
        if (kind == CENI_EMPTY) {
            if ((count > 1 && check_keys(reader, now, keys)) ||
                (now != CENI_FRAME && new_record(reader, object, now))) {
                return reader->status;
            }
        } else if (now != CENI_PLAIN && promote(reader, object, now)) {
            return reader->status;
        }
        kind = now;
    }
    return kind == CENI_FRAME ? fold_frame(reader, object, pairs, count)
                              : set_pairs(reader, *object, pairs, count);
}

/* ---- lists ---- */

static bool all_frames(const ceni_reader *reader, const ceni_value *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (ceni_tag_of(items[i]) != CENI_DICT ||
            (reader->objects.at[ceni_payload(items[i])] & 255) != CENI_FRAME) {
            return false;
        }
    }
    return true;
}

/* An empty list or a stack gets frames: it becomes another stack. */
static cen_status append_frames(ceni_reader *reader, uint64_t *object, const ceni_value *items,
                                size_t count) {
    ceni_span before = {0};
    if ((*object & 255) == CENI_STACK) {
        before = reader->stacks.at[*object >> 8];
    }
    reader->scratch.count = 0;
    if (CENI_ROOM(reader, reader->scratch, before.count + count)) {
        return reader->status;
    }
    uint32_t *frames = reader->scratch.at, id;
    if (before.count) {
        memcpy(frames, reader->stack_frames.at + before.first, before.count * sizeof *frames);
    }
    for (size_t i = 0; i < count; i++) {
        frames[before.count + i] = (uint32_t)(reader->objects.at[ceni_payload(items[i])] >> 8);
    }
    if (ceni_intern_stack(reader, frames, before.count + count, &id)) {
        return reader->status;
    }
    *object = (uint64_t)id << 8 | CENI_STACK;
    return CEN_OK;
}

/* What an item is in a list: its kind, and its index among those. */
static enum ceni_kind item_of(const ceni_reader *reader, ceni_value item, size_t *index) {
    *index = 0;
    if (ceni_tag_of(item) == CENI_LIST) {
        *index = ceni_payload(item);
        return CENI_ITEMS;
    }
    if (ceni_tag_of(item) != CENI_DICT) {
        return CENI_MIXED;
    }
    uint64_t object = reader->objects.at[ceni_payload(item)];
    enum ceni_kind kind = object & 255;
    *index = object >> 8;
    return kind == CENI_EMPTY || kind == CENI_PLAIN ? CENI_MIXED : kind;
}

static cen_status add_item(ceni_reader *reader, ceni_items *list, size_t index) {
    if (list->tail) {
        ceni_run *run = &reader->runs.at[list->tail - 1];
        if (run->first + run->count == index) {
            run->count++;
            return CEN_OK;
        }
    }
    if (CENI_ROOM(reader, reader->runs, 1)) {
        return reader->status;
    }
    reader->runs.at[reader->runs.count++] = (ceni_run){.first = index, .count = 1};
    *(list->tail ? &reader->runs.at[list->tail - 1].next : &list->head) = reader->runs.count;
    list->tail = reader->runs.count;
    return CEN_OK;
}

cen_status ceni_fold_append(ceni_reader *reader, size_t index, const ceni_value *items,
                            size_t count) {
    uint64_t *object = &reader->objects.at[index];
    enum ceni_kind kind = *object & 255;
    if (!count) {
        return CEN_OK;
    }
    if (kind != CENI_ITEMS && all_frames(reader, items, count)) {
        return append_frames(reader, object, items, count);
    }
    if (kind != CENI_ITEMS) {
        if (CENI_ROOM(reader, reader->lists, 1)) {
            return reader->status;
        }
        reader->lists.at[reader->lists.count] =
            (ceni_items){.kind = kind == CENI_STACK ? CENI_MIXED : CENI_EMPTY};
        *object = (uint64_t)reader->lists.count++ << 8 | CENI_ITEMS;
    }
    ceni_items *list = &reader->lists.at[*object >> 8];
    for (size_t i = 0; i < count && list->kind != CENI_MIXED; i++) {
        size_t item;
        enum ceni_kind now = item_of(reader, items[i], &item);
        list->kind = list->kind == CENI_EMPTY || list->kind == now ? now : CENI_MIXED;
        if (list->kind != CENI_MIXED && add_item(reader, list, item)) {
            return reader->status;
        }
    }
    return CEN_OK;
}
