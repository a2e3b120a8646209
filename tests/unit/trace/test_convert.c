/* What is written is what was read, and what memory_viz can read. */
#include "converted.h"

static void same_stack(const cen_snapshot *a, uint32_t of_a, const cen_snapshot *b, uint32_t of_b) {
    size_t count_a = 0, count_b = 0;
    const cen_frame *x = cen_snapshot_stack(a, of_a, &count_a);
    const cen_frame *y = cen_snapshot_stack(b, of_b, &count_b);
    assert_int_equal(count_a, count_b);
    for (size_t i = 0; i < count_a; i++) {
        assert_string_equal(x[i].file, y[i].file);
        assert_string_equal(x[i].function, y[i].function);
        assert_int_equal(x[i].line, y[i].line);
    }
}

static void same_events(const cen_snapshot *a, const cen_snapshot_device *x, const cen_snapshot *b,
                        const cen_snapshot_device *y) {
    assert_int_equal(x->event_count, y->event_count);
    for (size_t i = 0; i < x->event_count; i++) {
        const cen_trace_event *e = &x->events[i], *f = &y->events[i];
        assert_int_equal(e->action, f->action);
        assert_int_equal(e->addr, f->addr);
        assert_int_equal(e->size, f->size);
        assert_int_equal(e->stream, f->stream);
        assert_int_equal(e->time_us, f->time_us);
        same_stack(a, e->stack, b, f->stack);
    }
    assert_int_equal(x->initial_count, y->initial_count);
    assert_int_equal(x->initial_reserved, y->initial_reserved);
    assert_int_equal(x->unknown_frees, y->unknown_frees);
}

static void same_blocks(const cen_snapshot *a, const cen_snapshot_block *x, const cen_snapshot *b,
                        const cen_snapshot_block *y, size_t count) {
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(x[i].addr, y[i].addr);
        assert_int_equal(x[i].size, y[i].size);
        assert_int_equal(x[i].requested, y[i].requested);
        assert_int_equal(x[i].state, y[i].state);
        same_stack(a, x[i].stack, b, y[i].stack);
    }
}

/* A trace does not say how large a block was made for what was asked, nor how free memory is cut.
 */
static void same_live_blocks(const cen_snapshot *a, const cen_snapshot_device *x,
                             const cen_snapshot *b, const cen_snapshot_device *y) {
    size_t at = 0;
    for (size_t i = 0; i < x->block_count; i++) {
        const cen_snapshot_block *block = &x->blocks[i];
        if (block->state == CEN_BLOCK_INACTIVE) {
            continue;
        }
        while (at < y->block_count && y->blocks[at].state == CEN_BLOCK_INACTIVE) {
            at++;
        }
        assert_true(at < y->block_count);
        assert_int_equal(block->addr, y->blocks[at].addr);
        assert_int_equal(block->requested, y->blocks[at].requested);
        assert_int_equal(block->state, y->blocks[at].state);
        same_stack(a, block->stack, b, y->blocks[at++].stack);
    }
    for (; at < y->block_count; at++) {
        assert_int_equal(y->blocks[at].state, CEN_BLOCK_INACTIVE);
    }
}

static void same_segments(const cen_snapshot *a, const cen_snapshot_device *x,
                          const cen_snapshot *b, const cen_snapshot_device *y) {
    assert_int_equal(x->segment_count, y->segment_count);
    for (size_t i = 0; i < x->segment_count; i++) {
        const cen_snapshot_segment *s = &x->segments[i], *t = &y->segments[i];
        assert_int_equal(s->addr, t->addr);
        assert_int_equal(s->size, t->size);
        assert_int_equal(s->stream, t->stream);
        assert_memory_equal(s->pool_id, t->pool_id, sizeof s->pool_id);
        assert_int_equal(s->expandable, t->expandable);
        assert_int_equal(s->small, t->small);
    }
}

static void same_state(const cen_snapshot *a, const cen_snapshot_device *x, const cen_snapshot *b,
                       const cen_snapshot_device *y, bool blocks_too) {
    same_segments(a, x, b, y);
    if (!blocks_too) {
        same_live_blocks(a, x, b, y);
        return;
    }
    for (size_t i = 0; i < x->segment_count; i++) {
        const cen_snapshot_segment *s = &x->segments[i], *t = &y->segments[i];
        if (s->block_count == t->block_count) { /* else gaps were filled */
            same_blocks(a, x->blocks + s->first_block, b, y->blocks + t->first_block,
                        s->block_count);
        }
    }
}

static void same_annotations(const cen_snapshot_device *x, const cen_snapshot_device *y) {
    assert_int_equal(x->annotation_count, y->annotation_count);
    for (size_t i = 0; i < x->annotation_count; i++) {
        assert_string_equal(x->annotations[i].name, y->annotations[i].name);
        assert_int_equal(x->annotations[i].time_us, y->annotations[i].time_us);
        assert_int_equal(x->annotations[i].end, y->annotations[i].end);
    }
}

static char *explained(const cen_snapshot *snapshot) {
    cen_explanation *explanation = NULL;
    char *json = NULL;
    assert_int_equal(cen_explain(snapshot, NULL, &explanation), CEN_OK);
    assert_int_equal(cen_explain_json(explanation, &json), CEN_OK);
    cen_explanation_free(explanation);
    return json;
}

static void same(const cen_snapshot *a, const cen_snapshot *b, bool blocks_too) {
    static const char *const settings[] = {"PYTORCH_CUDA_ALLOC_CONF", "max_split_size",
                                           "garbage_collection_threshold", "expandable_segments",
                                           "roundup_power2_divisions"};
    assert_int_equal(cen_snapshot_device_count(a), cen_snapshot_device_count(b));
    for (size_t i = 0; i < cen_snapshot_device_count(a); i++) {
        const cen_snapshot_device *x = cen_snapshot_get_device(a, i);
        const cen_snapshot_device *y = cen_snapshot_get_device(b, i);
        assert_int_equal(x->device, y->device);
        same_events(a, x, b, y);
        same_state(a, x, b, y, blocks_too);
        same_annotations(x, y);
        assert_int_equal(x->truncated, y->truncated);
    }
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *x = cen_snapshot_setting(a, settings[i]);
        const char *y = cen_snapshot_setting(b, settings[i]);
        assert_int_equal(!x, !y);
        if (x) {
            assert_string_equal(x, y);
        }
    }
    if (cen_snapshot_device_count(a)) {
        char *x = explained(a), *y = explained(b);
        assert_string_equal(x, y);
        free(x);
        free(y);
    }
}

/* memory_viz lays the blocks of a segment side by side, so they have to be all that is in it. */
static void blocks_tile(const cen_snapshot *snapshot) {
    for (size_t i = 0; i < cen_snapshot_device_count(snapshot); i++) {
        const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, i);
        for (size_t s = 0; s < d->segment_count; s++) {
            uint64_t at = d->segments[s].addr;
            for (size_t b = 0; b < d->segments[s].block_count; b++) {
                const cen_snapshot_block *block = &d->blocks[d->segments[s].first_block + b];
                assert_int_equal(block->addr, at);
                at += block->size;
            }
            assert_int_equal(at, d->segments[s].addr + d->segments[s].size);
        }
    }
}

static void gaps_are_filled(void **state) {
    static const char pickle[] =
        "\x80\4}(\x8c\x08segments](}(\x8c\7addressM\0\x10\x8c\x0atotal_sizeM\0\4\x8c\6blocks]("
        "}(\x8c\7addressM\0\x11\x8c\4sizeM\0\1\x8c\5state\x8c\x10"
        "active_allocatedu"
        "}(\x8c\7addressM\x80\x12\x8c\4sizeM\0\1\x8c\5state\x8c\x10"
        "active_allocatedu"
        "eueu.";
    cen_snapshot *snapshot = NULL;
    const char *path = in_folder("a.pickle");
    assert_int_equal(cen_snapshot_read_memory("x", pickle, sizeof pickle - 1, &snapshot, NULL),
                     CEN_OK);
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, path, NULL), CEN_OK);
    cen_snapshot *again = read_file(path);
    same(snapshot, again, false);
    assert_int_equal(cen_snapshot_get_device(again, 0)->block_count, 5);
    blocks_tile(again);
    cen_snapshot_free(snapshot);
    cen_snapshot_free(again);
    files(true);
}

static void torch_again(const cen_snapshot *snapshot) {
    static const char *const names[] = {"a.pickle", "a.pickle.gz"};
    for (int i = 0; i < 2; i++) {
        const char *path = in_folder(names[i]);
        assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, path, NULL), CEN_OK);
        cen_snapshot *again = read_file(path);
        same(snapshot, again, true);
        cen_snapshot_free(again);
    }
    assert_int_equal(files(true), 2);
}

static void torch_is_torch_again(void **state) {
    assert_true(for_each(torch_again) > 40);
}

/* Torch -> trace -> torch; the trace both plain and compressed. */
static void through_a_trace(const cen_snapshot *snapshot) {
    static const char *const names[] = {"a.cenotrace", "a.cenotrace.gz"};
    for (int i = 0; i < 2; i++) {
        const char *path = in_folder(names[i]);
        assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TRACE, path, NULL), CEN_OK);
        cen_snapshot *trace = read_file(path);
        same(snapshot, trace, false);
        path = in_folder("a.pickle");
        assert_int_equal(cen_snapshot_write(trace, CEN_FORMAT_TORCH, path, NULL), CEN_OK);
        cen_snapshot *torch = read_file(path);
        same(snapshot, torch, false);
        same(trace, torch, true);
        cen_snapshot_free(trace);
        cen_snapshot_free(torch);
    }
    assert_int_equal(files(true), 3);
}

static void traces_keep_what_was_recorded(void **state) {
    assert_int_equal(for_each_in("/traces/*.gz", through_a_trace), 12);
    assert_int_equal(for_each_in("/logs/rmm*", through_a_trace), 2);
    static const char *const made[] = {"batches", "double", "empty", "free",
                                       "graphs",  "old",    "state", "truncated"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        char pattern[64];
        snprintf(pattern, sizeof pattern, "/snapshots/%s*", made[i]);
        assert_true(for_each_in(pattern, through_a_trace) > 0);
    }
}

/* Also where the history contradicts the final state: the events are what they were. */
static void events_again(const cen_snapshot *snapshot) {
    const char *path = in_folder("a.cenotrace");
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TRACE, path, NULL), CEN_OK);
    cen_snapshot *again = read_file(path);
    assert_int_equal(cen_snapshot_device_count(again), cen_snapshot_device_count(snapshot));
    for (size_t i = 0; i < cen_snapshot_device_count(again); i++) {
        const cen_snapshot_device *x = cen_snapshot_get_device(snapshot, i);
        const cen_snapshot_device *y = cen_snapshot_get_device(again, i);
        assert_int_equal(x->device, y->device);
        assert_int_equal(x->event_count, y->event_count);
        for (size_t e = 0; e < x->event_count; e++) {
            assert_int_equal(x->events[e].action, y->events[e].action);
            assert_int_equal(x->events[e].addr, y->events[e].addr);
            same_stack(snapshot, x->events[e].stack, again, y->events[e].stack);
        }
    }
    cen_snapshot_free(again);
}

static void every_event_is_in_the_trace(void **state) {
    assert_true(for_each(events_again) > 40);
}

/* ---- what memory_viz can read ---- */

/* The bytes after an opcode, for those that PyTorch's page knows; -1: it does not. */
static int operand(const uint8_t *at) {
    switch (at[0]) {
    case '(':
    case '.':
    case ']':
    case '}':
    case 'a':
    case 'e':
    case 'u':
    case 'N':
    case 0x86: /* TUPLE2 */
    case 0x88: /* NEWTRUE, NEWFALSE */
    case 0x89:
    case 0x94: /* MEMOIZE */
        return 0;
    case 0x80: /* PROTO */
    case 'K':
    case 'h':
        return 1;
    case 'M':
        return 2;
    case 'J':
    case 'j':
        return 4;
    case 'G':
        return 8;
    case 0x8a: /* LONG1 */
    case 0x8c: /* SHORT_BINUNICODE */
        return 1 + at[1];
    case 'X':
        return 4 + (at[1] | at[2] << 8 | at[3] << 16);
    default:
        return -1;
    }
}

static void only_known_opcodes(const cen_snapshot *snapshot) {
    const char *path = in_folder("a.pkl");
    size_t size;
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, path, NULL), CEN_OK);
    char *data = bytes_of(path, &size);
    const uint8_t *at = (const uint8_t *)data, *end = at + size;
    assert_memory_equal(at, "\x80\4", 2);
    while (at < end && *at != '.') {
        int more = operand(at);
        if (more < 0) {
            fail_msg("opcode 0x%02x at byte %td", *at, at - (const uint8_t *)data);
        }
        at += 1 + more;
    }
    assert_ptr_equal(at + 1, end);
    free(data);
}

static void memory_viz_knows_the_opcodes(void **state) {
    assert_true(for_each(only_known_opcodes) > 40);
}

/* The page's numbers are doubles: what is not known is -1, not the largest integer. */
static void unknown_free_bytes_are_minus_one(void **state) {
    static const char says[] = "device_free\x94J\xff\xff\xff\xff";
    cen_snapshot *snapshot = read_file(TEST_DATA "/logs/rmm.csv");
    const char *path = in_folder("a.pickle");
    size_t size;
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, path, NULL), CEN_OK);
    char *data = bytes_of(path, &size);
    assert_non_null(memmem(data, size, says, sizeof says - 1));
    free(data);
    cen_snapshot_free(snapshot);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torch_is_torch_again),
        cmocka_unit_test(gaps_are_filled),
        cmocka_unit_test(traces_keep_what_was_recorded),
        cmocka_unit_test(every_event_is_in_the_trace),
        cmocka_unit_test(memory_viz_knows_the_opcodes),
        cmocka_unit_test(unknown_free_bytes_are_minus_one),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
