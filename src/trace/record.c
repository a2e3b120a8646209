/* Records: what each known key of an event, segment, block... does to its record.
 *
 * A value of the wrong type or out of range is a doubtful failure (see fold.c): a size that is
 * wrong would only become a wrong diagnosis. None counts as missing; unknown keys are skipped. */
#include "trace/read.h"

static cen_status wrong(ceni_reader *reader, ceni_value key, const char *expected) {
    reader->doubtful = true;
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
    switch (ceni_word_of(key)) {
    case CENI_W_action:
        if (ceni_tag_of(value) != CENI_STR) {
            return wrong(reader, key, "a string");
        }
        uint64_t word = ceni_payload(value);
        event->action = word >= CENI_W_alloc && word <= CENI_W_oom
                            ? (uint8_t)(word - CENI_W_alloc + CEN_ACTION_ALLOC)
                            : CEN_ACTION_OTHER;
        return CEN_OK;
    case CENI_W_device_free:
        if (ceni_tag_of(value) == CENI_INT && (int64_t)value < 0) { /* as cenote writes it */
            event->addr = CEN_FREE_UNKNOWN;
            return CEN_OK;
        }
        return get_unsigned(reader, key, value, &event->addr);
    case CENI_W_addr:
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
    switch (ceni_word_of(key)) {
    case CENI_W_device:
        return get_small(reader, key, value, CENI_READ_DEVICES_MAX, &record->device);
    case CENI_W_address:
        return get_unsigned(reader, key, value, &record->segment.addr);
    case CENI_W_total_size:
        return get_size(reader, key, value, &record->segment.size);
    case CENI_W_stream:
        return get_unsigned(reader, key, value, &record->segment.stream);
    case CENI_W_segment_type:
        record->segment.small = ceni_word_of(value) == CENI_W_small;
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
    switch (ceni_word_of(value)) {
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
    switch (ceni_word_of(key)) {
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
    switch (ceni_word_of(key)) {
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
    switch (ceni_word_of(key)) {
    case CENI_W_stage:
        record->end = ceni_word_of(value) == CENI_W_END;
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
    switch (ceni_word_of(key)) {
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

cen_status ceni_record_frame(ceni_reader *reader, ceni_frame_key *frame, ceni_value key,
                             ceni_value value) {
    int64_t line = 0;
    switch (ceni_word_of(key)) {
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

/* As ceni_record_set below, for what a large file consists of. */
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

cen_status ceni_record_set(ceni_reader *reader, uint64_t object, const ceni_value *pairs,
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
