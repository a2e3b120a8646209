/* Folding: a dict that has been filled becomes an event, frame, segment, block... by its keys, and
 * a list of them becomes a stack or a chain of index runs.
 *
 * A dict is decided by its first telling key ("action": an event). Most arrive complete in one
 * SETITEMS; one that comes in pieces is plain until a telling key arrives, and later pieces change
 * the record. One that then does not have what such a dict has may be anybody's data: it becomes
 * plain again, which is an error only where the snapshot needs it. Keys that are not known are
 * skipped, and None counts as missing. A list is taken as it is when its dict is folded: no pickler
 * writes a list after the dict that holds it, unless the list contains that dict. */
#include "trace/read.h"

#include <string.h>

#define KEY(word) (UINT64_C(1) << CENI_W_##word)

static enum ceni_object_kind kind_by_keys(uint64_t keys) {
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

static uint64_t keys_of(const ceni_value *pairs, size_t count) {
    uint64_t keys = 0;
    for (size_t i = 0; i < count; i++) {
        enum ceni_word word = ceni_word_of(pairs[2 * i]);
        keys |= word < 64 ? UINT64_C(1) << word : 0;
    }
    return keys;
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
            ceni_record_frame(reader, &frame, pairs[2 * i], pairs[2 * i + 1])) {
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
static cen_status new_record(ceni_reader *reader, uint64_t *object, enum ceni_object_kind kind) {
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

/* What every event and block has; checked where all keys come at once, which is always so in a
 * pickler's output. */
static cen_status check_keys(ceni_reader *reader, enum ceni_object_kind kind, uint64_t keys) {
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
    reader->doubtful = missing;
    return missing ? ceni_read_fail(reader, CEN_ERR_FORMAT, "%s", missing) : CEN_OK;
}

/* A plain dict turns out to be of `kind`: what it held goes into the new record. */
static cen_status promote(ceni_reader *reader, uint64_t *object, enum ceni_object_kind kind) {
    size_t at = reader->plains.at[*object >> 8].head;
    if (kind == CENI_FRAME ? fold_frame(reader, object, NULL, 0)
                           : new_record(reader, object, kind)) {
        return reader->status;
    }
    for (; at; at = reader->entries.at[at - 1].next) {
        ceni_value pair[2] = {reader->entries.at[at - 1].key, reader->entries.at[at - 1].value};
        if (kind == CENI_FRAME ? fold_frame(reader, object, pair, 1)
                               : ceni_record_set(reader, *object, pair, 1)) {
            return reader->status;
        }
    }
    return CEN_OK;
}

cen_status ceni_fold_set(ceni_reader *reader, size_t index, const ceni_value *pairs, size_t count) {
    uint64_t *object = &reader->objects.at[index];
    enum ceni_object_kind kind = *object & 255;
    if (kind == CENI_EMPTY || kind == CENI_PLAIN) {
        uint64_t keys = keys_of(pairs, count);
        enum ceni_object_kind now = kind_by_keys(keys);
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
                              : ceni_record_set(reader, *object, pairs, count);
}

cen_status ceni_fold_doubt(ceni_reader *reader, size_t index, uint64_t offset) {
    if (!reader->doubt[0]) {
        memcpy(reader->doubt, reader->message, sizeof reader->doubt);
        reader->doubt_offset = offset;
    }
    reader->status = CEN_OK;
    reader->doubtful = false;
    return new_record(reader, &reader->objects.at[index], CENI_PLAIN);
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
    reader->moved += before.count * sizeof *reader->scratch.at;
    reader->scratch.count = 0;
    if (ceni_read_charge(reader, reader->moved)) {
        return reader->status;
    }
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
static enum ceni_object_kind item_of(const ceni_reader *reader, ceni_value item, size_t *index) {
    *index = 0;
    if (ceni_tag_of(item) == CENI_LIST) {
        *index = ceni_payload(item);
        return CENI_ITEMS;
    }
    if (ceni_tag_of(item) != CENI_DICT) {
        return CENI_MIXED;
    }
    uint64_t object = reader->objects.at[ceni_payload(item)];
    enum ceni_object_kind kind = object & 255;
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
    enum ceni_object_kind kind = *object & 255;
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
        enum ceni_object_kind now = item_of(reader, items[i], &item);
        list->kind = list->kind == CENI_EMPTY || list->kind == now ? now : CENI_MIXED;
        if (list->kind != CENI_MIXED && add_item(reader, list, item)) {
            return reader->status;
        }
    }
    return CEN_OK;
}
