/* The same snapshot in every pickler's form reads the same; older and partial shapes are read.
 * tools/make_snapshots.py writes the files. */
#include "cenote/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <cmocka.h>

#define BASE UINT64_C(0x7f0000000000)

static cen_snapshot *read_file(const char *name) {
    char path[512];
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    snprintf(path, sizeof path, TEST_DATA "/%s", name);
    if (cen_snapshot_read(path, &snapshot, &error)) {
        fail_msg("%s", error.message);
    }
    return snapshot;
}

static void same_stack(const cen_snapshot *a, uint32_t left, const cen_snapshot *b,
                       uint32_t right) {
    size_t count, other;
    const cen_frame *x = cen_snapshot_stack(a, left, &count);
    const cen_frame *y = cen_snapshot_stack(b, right, &other);
    assert_int_equal(count, other);
    for (size_t i = 0; i < count; i++) {
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
        assert_true(e->addr == f->addr && e->size == f->size && e->stream == f->stream);
        assert_true(e->time_us == f->time_us && e->action == f->action);
        same_stack(a, e->stack, b, f->stack);
    }
}

static void same_state(const cen_snapshot *a, const cen_snapshot_device *x, const cen_snapshot *b,
                       const cen_snapshot_device *y) {
    assert_int_equal(x->segment_count, y->segment_count);
    for (size_t i = 0; i < x->segment_count; i++) {
        const cen_snapshot_segment *s = &x->segments[i], *t = &y->segments[i];
        assert_true(s->addr == t->addr && s->size == t->size && s->stream == t->stream);
        assert_true(s->pool_id[0] == t->pool_id[0] && s->pool_id[1] == t->pool_id[1]);
        assert_true(s->first_block == t->first_block && s->block_count == t->block_count);
        assert_true(s->expandable == t->expandable && s->small == t->small);
    }
    assert_int_equal(x->block_count, y->block_count);
    for (size_t i = 0; i < x->block_count; i++) {
        const cen_snapshot_block *p = &x->blocks[i], *q = &y->blocks[i];
        assert_true(p->addr == q->addr && p->size == q->size && p->requested == q->requested);
        assert_int_equal(p->state, q->state);
        same_stack(a, p->stack, b, q->stack);
    }
    assert_int_equal(x->initial_count, y->initial_count);
    assert_int_equal(x->initial_reserved, y->initial_reserved);
    assert_int_equal(x->truncated, y->truncated);
}

static void same(const cen_snapshot *a, const cen_snapshot *b) {
    assert_int_equal(cen_snapshot_device_count(a), cen_snapshot_device_count(b));
    assert_int_equal(cen_snapshot_stack_count(a), cen_snapshot_stack_count(b));
    for (size_t i = 0; i < cen_snapshot_device_count(a); i++) {
        const cen_snapshot_device *x = cen_snapshot_get_device(a, i);
        const cen_snapshot_device *y = cen_snapshot_get_device(b, i);
        same_events(a, x, b, y);
        same_state(a, x, b, y);
    }
    const char *key = "roundup_power2_divisions";
    assert_string_equal(cen_snapshot_setting(a, key), cen_snapshot_setting(b, key));
}

static void all_picklers_and_protocols_read_the_same(void **state) {
    static const char *const forms[] = {"c2",  "c3",  "c4",  "c5",    "py2",
                                        "py3", "py4", "py5", "torch", "unshared"};
    cen_snapshot *recorded = read_file("traces/graphs-oom.pickle.gz");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char name[64];
        snprintf(name, sizeof name, "snapshots/graphs-oom.%s.pickle.gz", forms[i]);
        cen_snapshot *snapshot = read_file(name);
        same(recorded, snapshot);
        cen_snapshot_free(snapshot);
    }
    cen_snapshot_free(recorded);
}

/* A pipe has no size and gives what it has: the path "-" reads the same. */
static void plain_memory_and_standard_input_read_the_same(void **state) {
    cen_snapshot *recorded = read_file("traces/graphs-oom.pickle.gz"), *plain, *copy, *piped;
    plain = read_file("snapshots/graphs-oom.plain.pickle");
    same(recorded, plain);
    static uint8_t data[65536];
    FILE *file = fopen(TEST_DATA "/snapshots/graphs-oom.plain.pickle", "rb");
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    assert_int_equal(cen_snapshot_read_memory("memory", data, size, &copy, NULL), CEN_OK);
    same(recorded, copy);
    int ends[2], saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], data, size), size); /* fits a pipe's 64 KiB */
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    assert_int_equal(cen_snapshot_read("-", &piped, NULL), CEN_OK);
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(ends[0]);
    same(recorded, piped);
    cen_snapshot_free(recorded);
    cen_snapshot_free(plain);
    cen_snapshot_free(copy);
    cen_snapshot_free(piped);
}

static void the_oldest_form_is_read(void **state) {
    cen_snapshot *snapshot = read_file("snapshots/old-list.pickle");
    const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, 0);
    size_t frames;
    assert_int_equal(d->segment_count, 2);
    assert_true(d->segments[0].addr == BASE && d->segments[1].addr == BASE + 4096);
    assert_int_equal(d->segments[1].first_block, 2);
    assert_true(d->blocks[0].addr == BASE && d->blocks[1].addr == BASE + 512);
    assert_int_equal(d->blocks[0].requested, 500); /* the newest of its history */
    assert_string_equal(cen_snapshot_stack(snapshot, d->blocks[0].stack, &frames)->function,
                        "step");
    assert_int_equal(frames, 2);
    assert_int_equal(d->blocks[1].requested, 1536);
    assert_int_equal(d->blocks[2].state, CEN_BLOCK_PENDING_FREE);
    assert_int_equal(d->initial_count, 2);
    assert_false(d->truncated);
    cen_snapshot_free(snapshot);
}

static void a_state_without_history_is_read(void **state) {
    static const char *const names[] = {"snapshots/state-only.pickle",
                                        "snapshots/empty-traces.pickle"};
    for (int i = 0; i < 2; i++) {
        cen_snapshot *snapshot = read_file(names[i]);
        assert_int_equal(cen_snapshot_device_count(snapshot), 1);
        const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, 0);
        assert_true(d->segments[0].pool_id[0] == 0 && d->segments[0].pool_id[1] == 7);
        assert_true(d->segments[0].expandable && !d->segments[0].small);
        assert_int_equal(d->initial_count, 1);
        assert_int_equal(d->initial[0].size, 2000);
        assert_int_equal(d->initial_reserved, 2048);
        assert_false(d->truncated);
        cen_snapshot_free(snapshot);
    }
}

static void missing_and_unknown_keys_are_borne(void **state) {
    cen_snapshot *snapshot = read_file("snapshots/sparse.pickle");
    assert_int_equal(cen_snapshot_device_count(snapshot), 2);
    const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, 0);
    assert_int_equal(cen_snapshot_get_device(snapshot, 1)->device, 2);
    assert_int_equal(cen_snapshot_get_device(snapshot, 1)->event_count, 2);
    assert_int_equal(d->event_count, 10);
    assert_true(d->events[1].stack != CEN_NO_STACK && d->events[1].time_us == 0);
    assert_true(d->events[2].stack == CEN_NO_STACK && d->events[3].stack == CEN_NO_STACK);
    assert_int_equal(d->events[4].action, CEN_ACTION_OTHER);
    assert_int_equal(d->events[5].stream, 0);
    assert_int_equal(d->events[6].action, CEN_ACTION_OOM);
    assert_int_equal(d->events[6].addr, 12345);
    assert_true(d->segments[0].pool_id[0] == 0 && d->segments[0].pool_id[1] == 0);
    for (size_t i = 0; i < d->block_count; i++) {
        assert_true(d->blocks[i].addr == BASE + 512 * i);
    }
    assert_int_equal(d->initial_count, 1);
    assert_true(d->initial[0].addr == BASE + 2048 && d->initial[0].size == 77);
    assert_int_equal(d->initial[0].stream, 3);
    assert_int_equal(d->initial_reserved, 0);
    assert_int_equal(d->annotation_count, 2);
    assert_true(!d->annotations[0].end && d->annotations[1].end);
    assert_string_equal(cen_snapshot_setting(snapshot, "a"), "None");
    assert_string_equal(cen_snapshot_setting(snapshot, "b"), "0.8");
    assert_string_equal(cen_snapshot_setting(snapshot, "c"), "9223372036854775808");
    assert_string_equal(cen_snapshot_setting(snapshot, "d"), "[256:1,512:2]");
    assert_string_equal(cen_snapshot_setting(snapshot, "e"), "-5");
    cen_snapshot_free(snapshot);
}

static void strings_become_utf8(void **state) {
    static const char pickle[] = "\x80\4}(\x8c\10segments]\x8c\22allocator_settings}("
                                 "\x8c\1a\x8c\5x\xc3\xa9\xe2\x82"
                                 "\x8c\1b\x8c\4\xed\xb2\x80y"
                                 "\x8c\1c\x8c\2\0z"
                                 "\x8c\1d\x8c\4\xf0\x9f\x90\x8d"
                                 "\x8c\1e\x8c\2\xc1\x81uu.";
    static const char *const expected[][2] = {
        {"a", "x\xc3\xa9??"}, {"b", "???y"}, {"c", "?z"}, {"d", "\xf0\x9f\x90\x8d"}, {"e", "??"}};
    cen_snapshot *snapshot;
    assert_int_equal(cen_snapshot_read_memory("m", pickle, sizeof pickle - 1, &snapshot, NULL), 0);
    assert_int_equal(cen_snapshot_device_count(snapshot), 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_string_equal(cen_snapshot_setting(snapshot, expected[i][0]), expected[i][1]);
    }
    cen_snapshot_free(snapshot);
}

static void double_frees_are_counted(void **state) {
    cen_snapshot *snapshot = read_file("snapshots/double-free.pickle");
    const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, 0);
    assert_int_equal(d->unknown_frees, 1);
    assert_int_equal(d->initial_count, 0);
    cen_snapshot_free(snapshot);
}

static void events_that_are_shared_keep_each_list_its_order(void **state) {
    cen_snapshot *snapshot = read_file("snapshots/shared-events.pickle");
    const cen_snapshot_device *a = cen_snapshot_get_device(snapshot, 0);
    const cen_snapshot_device *b = cen_snapshot_get_device(snapshot, 1);
    static const size_t order[] = {3, 2, 1, 0};
    assert_true(a->event_count == 4 && b->event_count == 4);
    for (size_t i = 0; i < 4; i++) {
        assert_memory_equal(&b->events[i], &a->events[order[i]], sizeof *a->events);
    }
    assert_int_equal(a->initial_reserved, 0); /* segments made that the final state lacks */
    cen_snapshot_free(snapshot);
}

static void truncation_needs_evidence(void **state) {
    static const struct {
        const char *name;
        bool truncated;
    } cases[] = {{"snapshots/truncated-state.pickle", true},
                 {"snapshots/truncated-free.pickle", true},
                 {"snapshots/free-stacks.pickle", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cen_snapshot *snapshot = read_file(cases[i].name);
        const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, 0);
        assert_int_equal(d->initial_count, 1);
        assert_int_equal(d->truncated, cases[i].truncated);
        cen_snapshot_free(snapshot);
    }
}

/* 1,024 events; one fewer; 1,024 with nothing alive before. */
static void a_round_count_is_evidence_if_something_was_alive(void **state) {
    cen_snapshot *snapshot = read_file("snapshots/truncated-ring.pickle.gz");
    assert_true(cen_snapshot_get_device(snapshot, 0)->truncated);
    assert_false(cen_snapshot_get_device(snapshot, 1)->truncated);
    assert_int_equal(cen_snapshot_get_device(snapshot, 1)->initial_count, 1);
    assert_false(cen_snapshot_get_device(snapshot, 2)->truncated);
    assert_int_equal(cen_snapshot_get_device(snapshot, 2)->event_count, 1024);
    cen_snapshot_free(snapshot);
}

static void lists_and_dicts_in_several_batches_are_whole(void **state) {
    cen_snapshot *snapshot = read_file("snapshots/batches.pickle.gz");
    const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, 0);
    assert_int_equal(d->event_count, 3);
    assert_int_equal(d->events[0].action, CEN_ACTION_ALLOC);
    assert_int_equal(d->events[0].size, 64);
    size_t frames;
    const cen_frame *frame = cen_snapshot_stack(snapshot, d->events[0].stack, &frames);
    assert_int_equal(frames, 2001);
    for (size_t i = 0; i < frames; i++) {
        assert_int_equal(frame[i].line, i);
    }
    cen_snapshot_free(snapshot);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_picklers_and_protocols_read_the_same),
        cmocka_unit_test(plain_memory_and_standard_input_read_the_same),
        cmocka_unit_test(the_oldest_form_is_read),
        cmocka_unit_test(a_state_without_history_is_read),
        cmocka_unit_test(missing_and_unknown_keys_are_borne),
        cmocka_unit_test(strings_become_utf8),
        cmocka_unit_test(double_frees_are_counted),
        cmocka_unit_test(events_that_are_shared_keep_each_list_its_order),
        cmocka_unit_test(truncation_needs_evidence),
        cmocka_unit_test(a_round_count_is_evidence_if_something_was_alive),
        cmocka_unit_test(lists_and_dicts_in_several_batches_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
