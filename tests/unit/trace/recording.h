/* Makes recordings for tests: a little allocator whose history is written as PyTorch's pickle, so
 * that tests go through the reader. A freed block of the same size and stream is used again; else
 * an allocation is cut from the segment opened last, or gets one of its own. */
#ifndef TEST_RECORDING_H
#define TEST_RECORDING_H

#include <stdarg.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cenote/cenote.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

enum { REC_MAX = 1 << 14 };

typedef struct rec_event {
    const char *action;
    uint64_t addr, size, stream;
    const char *frames; /* "function@file:line < ..."; NULL: none */
} rec_event;

typedef struct rec_segment_ {
    uint64_t addr, size, stream;
    int pool;
} rec_segment_;

typedef struct rec_block {
    uint64_t addr, size, stream;
    const char *frames;
    bool freed;
} rec_block;

typedef struct recording {
    rec_event events[REC_MAX];
    rec_segment_ segments[REC_MAX];
    rec_block blocks[REC_MAX];
    struct {
        const char *name;
        bool end;
        size_t at;
    } marks[REC_MAX];
    size_t event_count, segment_count, block_count, mark_count;
    uint64_t next, open_left;
    bool no_history; /* the state only */
    unsigned char *out;
    size_t size, capacity;
} recording;

static recording *rec_new(void) {
    recording *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->next = 0x7f0000000000;
    return r;
}

static void rec_event_(recording *r, const char *action, uint64_t addr, uint64_t size,
                       uint64_t stream, const char *frames) {
    assert_true(r->event_count < REC_MAX);
    r->events[r->event_count++] = (rec_event){action, addr, size, stream, frames};
}

/* Opens a segment from which the next allocations are cut. */
static size_t rec_segment(recording *r, uint64_t size, uint64_t stream, int pool) {
    r->next = (r->next + r->open_left + 2 * MIB) & ~(2 * MIB - 1);
    r->open_left = size;
    r->segments[r->segment_count] = (rec_segment_){r->next, size, stream, pool};
    rec_event_(r, "segment_alloc", r->next, size, stream, NULL);
    return r->segment_count++;
}

/* Returns the block, for rec_free. */
static size_t rec_alloc(recording *r, uint64_t size, uint64_t stream, const char *frames) {
    uint64_t rounded = (size + 511) / 512 * 512;
    for (size_t i = 0; i < r->block_count; i++) {
        rec_block *b = &r->blocks[i];
        if (b->freed && b->size == size && b->stream == stream) {
            b->freed = false;
            b->frames = frames;
            rec_event_(r, "alloc", b->addr, size, stream, frames);
            return i;
        }
    }
    if (r->open_left < rounded) {
        rec_segment(r, (rounded + 2 * MIB - 1) / (2 * MIB) * (2 * MIB), stream, 0);
    }
    rec_event_(r, "alloc", r->next, size, stream, frames);
    r->blocks[r->block_count] = (rec_block){r->next, size, stream, frames, false};
    r->next += rounded;
    r->open_left -= rounded;
    return r->block_count++;
}

static void rec_free(recording *r, size_t block) {
    rec_block *b = &r->blocks[block];
    assert_false(b->freed);
    b->freed = true;
    rec_event_(r, "free_requested", b->addr, b->size, b->stream, b->frames);
    rec_event_(r, "free_completed", b->addr, b->size, b->stream, b->frames);
}

static void rec_oom(recording *r, uint64_t size, uint64_t stream, uint64_t device_free,
                    const char *frames) {
    rec_event_(r, "oom", device_free, size, stream, frames);
}

/* The end of an optimizer's step. */
static void rec_step_end(recording *r) {
    r->marks[r->mark_count].name = "Optimizer.step#AdamW.step";
    r->marks[r->mark_count].end = true;
    r->marks[r->mark_count++].at = r->event_count;
}

static void put(recording *r, const void *bytes, size_t size) {
    if (r->size + size > r->capacity) {
        r->capacity = (r->size + size) * 2;
        r->out = realloc(r->out, r->capacity);
        assert_non_null(r->out);
    }
    memcpy(r->out + r->size, bytes, size);
    r->size += size;
}

static void put_op(recording *r, const char *op) {
    put(r, op, strlen(op));
}

static void put_text(recording *r, const char *text, size_t size) {
    uint32_t length = (uint32_t)size;
    put_op(r, "X");
    put(r, &length, 4);
    put(r, text, size);
}

static void put_key(recording *r, const char *key) {
    put_text(r, key, strlen(key));
}

static void put_int(recording *r, uint64_t value) {
    unsigned char op[3] = {0x8a, 8, 0};
    put(r, op, 2);
    put(r, &value, 8);
}

static void put_pair(recording *r, const char *key, uint64_t value) {
    put_key(r, key);
    put_int(r, value);
}

static void put_string_pair(recording *r, const char *key, const char *value) {
    put_key(r, key);
    put_key(r, value);
}

/* "function@file:line < function@file:line" */
static void put_frames(recording *r, const char *frames) {
    put_key(r, "frames");
    put_op(r, "](");
    while (frames && *frames) {
        const char *file = strchr(frames, '@'), *line = strchr(file, ':');
        char *end;
        put_op(r, "}(");
        put_key(r, "name");
        put_text(r, frames, (size_t)(file - frames));
        put_key(r, "filename");
        put_text(r, file + 1, (size_t)(line - file - 1));
        put_pair(r, "line", strtoull(line + 1, &end, 10));
        put_op(r, "u");
        frames = *end ? end + strlen(" < ") : end;
    }
    put_op(r, "e");
}

static void put_events(recording *r) {
    put_key(r, "device_traces");
    put_op(r, "](](");
    for (size_t i = 0; i < r->event_count && !r->no_history; i++) {
        const rec_event *e = &r->events[i];
        bool oom = !strcmp(e->action, "oom");
        put_op(r, "}(");
        put_string_pair(r, "action", e->action);
        put_pair(r, oom ? "device_free" : "addr", e->addr);
        put_pair(r, "size", e->size);
        put_pair(r, "stream", e->stream);
        put_pair(r, "time_us", 1000 + 10 * i);
        put_frames(r, e->frames);
        put_op(r, "u");
    }
    put_op(r, "ee");
}

static void put_blocks(recording *r, const rec_segment_ *seg) {
    uint64_t at = seg->addr;
    put_key(r, "blocks");
    put_op(r, "](");
    for (size_t i = 0; i <= r->block_count; i++) {
        const rec_block *b = i < r->block_count ? &r->blocks[i] : NULL;
        if (b && (b->freed || b->addr < seg->addr || b->addr >= seg->addr + seg->size)) {
            continue;
        }
        uint64_t next = b ? b->addr : seg->addr + seg->size;
        if (next > at) {
            put_op(r, "}(");
            put_pair(r, "address", at);
            put_pair(r, "size", next - at);
            put_pair(r, "requested_size", 0);
            put_string_pair(r, "state", "inactive");
            put_frames(r, NULL);
            put_op(r, "u");
        }
        if (b) {
            uint64_t rounded = (b->size + 511) / 512 * 512;
            put_op(r, "}(");
            put_pair(r, "address", b->addr);
            put_pair(r, "size", rounded);
            put_pair(r, "requested_size", b->size);
            put_string_pair(r, "state", "active_allocated");
            put_frames(r, b->frames);
            put_op(r, "u");
            at = b->addr + rounded;
        }
    }
    put_op(r, "e");
}

static void put_segments(recording *r) {
    put_key(r, "segments");
    put_op(r, "](");
    for (size_t i = 0; i < r->segment_count; i++) {
        const rec_segment_ *seg = &r->segments[i];
        put_op(r, "}(");
        put_pair(r, "device", 0);
        put_pair(r, "address", seg->addr);
        put_pair(r, "total_size", seg->size);
        put_pair(r, "stream", seg->stream);
        put_string_pair(r, "segment_type", "large");
        put_key(r, "segment_pool_id");
        put_int(r, (uint64_t)seg->pool);
        put_int(r, 0);
        put_op(r, "\x86");
        put_key(r, "is_expandable");
        put_op(r, "\x89");
        put_blocks(r, seg);
        put_op(r, "u");
    }
    put_op(r, "e");
}

static void put_marks(recording *r) {
    put_key(r, "external_annotations");
    put_op(r, "](");
    for (size_t i = 0; i < r->mark_count; i++) {
        put_op(r, "}(");
        put_string_pair(r, "name", r->marks[i].name);
        put_string_pair(r, "stage", r->marks[i].end ? "END" : "START");
        put_pair(r, "device", 0);
        put_pair(r, "time_us", 1000 + 10 * r->marks[i].at - 5);
        put_op(r, "u");
    }
    put_op(r, "e");
}

/* Writes and reads the recording, and frees it. */
static cen_snapshot *rec_read(recording *r) {
    put(r, "\x80\x02", 2);
    put_op(r, "}(");
    put_segments(r);
    put_events(r);
    put_marks(r);
    put_op(r, "u.");
    cen_snapshot *snapshot = NULL;
    cen_read_error error = {"", 0};
    if (cen_snapshot_read_memory("recording", r->out, r->size, &snapshot, &error)) {
        fail_msg("%s", error.message);
    }
    free(r->out);
    free(r);
    return snapshot;
}

#endif
