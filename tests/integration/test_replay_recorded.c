/* Every recorded snapshot, replayed: the figures that expected.json, computed by another program,
 * knows; and no two blocks that are live by the recording, from alloc to free_completed, ever share
 * addresses or physical memory, whatever the pages' size and the cap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "cenote/cenote.h"
#include "cli/replay.h"
#include "tests/integration/overlap.h"

#define LOOK_EVERY 1000 /* acts between two looks at the physical memory */

typedef struct watcher {
    overlap_model model;
    size_t acts;
} watcher;

static void watch(void *arg, const replay_call *call) {
    watcher *w = arg;
    if (call->act == REPLAY_ALLOCATED) {
        overlap_begin(&w->model, call->block, call->size);
    } else if (call->act == REPLAY_ENDED) {
        overlap_end(&w->model, call->block);
    }
    w->acts++;
    if (w->acts % LOOK_EVERY == 0 || (w->acts & (w->acts - 1)) == 0) { /* early ones too */
        overlap_look(&w->model);
    }
}

static replay_result play(const char *name, const cen_snapshot_device *d, const replay_recorded *r,
                          uint64_t page_bytes, uint64_t cap_bytes) {
    watcher w = {0};
    replay_options options = {
        .page_bytes = page_bytes, .cap_bytes = cap_bytes, .observe = watch, .observe_arg = &w};
    replay_result result;
    assert_int_equal(replay_run(d, r, &options, &result), CEN_OK);
    if (!overlap_fine(&w.model)) {
        overlap_print(&w.model, name);
        fail();
    }
    assert_true(w.model.looked_at);
    free(w.model.blocks);
    return result;
}

static uint64_t number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return (uint64_t)json_integer_value(value);
}

static void check_device(const char *name, const cen_snapshot_device *d, const json_t *expected) {
    static const uint64_t pages[] = {0, 2u << 20, 8u << 20};
    replay_recorded r;
    assert_int_equal(replay_examine(d, &r), CEN_OK);
    assert_int_equal(r.requested_peak_bytes, number(expected, "requested_peak_bytes"));
    assert_int_equal(r.reserved_peak_bytes, number(expected, "reserved_peak_bytes"));
    assert_int_equal(r.oom, json_is_array(json_object_get(expected, "oom")));
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        replay_result own = play(name, d, &r, pages[i], 0);
        assert_int_equal(own.requested_peak_bytes, number(expected, "requested_peak_bytes"));
        assert_true(own.reserved_peak_bytes >= own.requested_peak_bytes);
        assert_true(own.reserved_peak_bytes < 2 * own.requested_peak_bytes);
        assert_int_equal(own.unknown_frees + own.lost_frees, 0);
        assert_true(own.driver_seconds_second_half >= 0);
        assert_true(own.driver_seconds_second_half <= own.driver_seconds);
    }
    for (unsigned parts = 1; parts <= 3; parts++) { /* of what the recorded allocator held */
        uint64_t cap = r.reserved_peak_bytes / 3 * parts;
        replay_result capped = play(name, d, &r, 0, cap);
        assert_true(capped.reserved_peak_bytes <= cap || capped.cap.fit != REPLAY_FITS);
        assert_true(capped.cap.fit == REPLAY_FITS || capped.cap.margin_bytes > 0);
    }
}

static void recordings_replay_as_expected(void **state) {
    json_t *expected = json_load_file(TEST_DATA "/traces/expected.json", 0, NULL);
    assert_non_null(expected);
    const char *name;
    json_t *value;
    json_object_foreach(expected, name, value) {
        char path[512];
        cen_snapshot *snapshot;
        snprintf(path, sizeof path, TEST_DATA "/traces/%s", name);
        assert_int_equal(cen_snapshot_read(path, &snapshot, NULL), CEN_OK);
        size_t replayed = 0;
        for (size_t i = 0; i < cen_snapshot_device_count(snapshot); i++) {
            const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, i);
            if (d->event_count) {
                json_t *devices = json_object_get(value, "devices");
                check_device(name, d, json_array_get(devices, replayed++));
            }
        }
        assert_int_equal(replayed, json_array_size(json_object_get(value, "devices")));
        cen_snapshot_free(snapshot);
    }
    json_decref(expected);
}

/* The check itself: it sees what it is there to see. */
static void the_check_sees_overlaps(void **state) {
    overlap_model m = {0};
    overlap_begin(&m, 1024, 512);
    overlap_begin(&m, 2048, 1000);
    overlap_begin(&m, 1536, 512);
    assert_true(overlap_fine(&m));
    overlap_begin(&m, 2560, 100);
    assert_int_equal(m.alike, 1);
    overlap_begin(&m, 512, 513);
    assert_int_equal(m.alike, 2);
    overlap_end(&m, 4096);
    assert_int_equal(m.unknown, 1);
    overlap_look(&m);
    assert_int_equal(m.unmapped, 1);
    free(m.blocks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_check_sees_overlaps),
        cmocka_unit_test(recordings_replay_as_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
