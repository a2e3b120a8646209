/* Every recorded snapshot says what expected.json, computed by another program, says of it. */
#include "cenote/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/map.h"

/* A device's history, replayed forward from the initial state. */
typedef struct replay {
    ceni_map live;
    uint64_t now, peak, reserved, reserved_peak;
    size_t ooms;
} replay;

static uint64_t number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return (uint64_t)json_integer_value(value);
}

static void check_oom(const replay *r, const cen_trace_event *event, const json_t *expected) {
    const json_t *oom = json_array_get(json_object_get(expected, "oom"), r->ooms);
    assert_non_null(oom);
    assert_int_equal(event->size, number(oom, "requested_bytes"));
    assert_int_equal(r->now, number(oom, "live_bytes"));
    assert_int_equal(r->reserved, number(oom, "reserved_bytes"));
    assert_int_equal(event->addr, number(oom, "device_free_bytes"));
}

static void step(replay *r, const cen_trace_event *event, const json_t *expected) {
    uint64_t size;
    switch (event->action) {
    case CEN_ACTION_ALLOC:
        assert_false(ceni_map_put(&r->live, event->addr, event->size));
        r->now += event->size;
        break;
    case CEN_ACTION_FREE_COMPLETED:
        assert_true(ceni_map_remove(&r->live, event->addr, &size));
        r->now -= size;
        break;
    case CEN_ACTION_SEGMENT_ALLOC:
    case CEN_ACTION_SEGMENT_MAP:
        r->reserved += event->size;
        break;
    case CEN_ACTION_SEGMENT_FREE:
    case CEN_ACTION_SEGMENT_UNMAP:
        r->reserved -= event->size;
        break;
    case CEN_ACTION_OOM:
        check_oom(r, event, expected);
        r->ooms++;
        break;
    default:
        break;
    }
    r->peak = r->now > r->peak ? r->now : r->peak;
    r->reserved_peak = r->reserved > r->reserved_peak ? r->reserved : r->reserved_peak;
}

static void check_pools(const cen_snapshot_device *device, const json_t *pools) {
    uint64_t sum = 0, all = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)pools, key, value) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < device->segment_count; i++) {
            char text[64];
            snprintf(text, sizeof text, "(%lld, %lld)", (long long)device->segments[i].pool_id[0],
                     (long long)device->segments[i].pool_id[1]);
            bytes += strcmp(text, key) ? 0 : device->segments[i].size;
        }
        assert_int_equal(bytes, json_integer_value(value));
        sum += bytes;
    }
    for (size_t i = 0; i < device->segment_count; i++) {
        all += device->segments[i].size;
    }
    assert_int_equal(sum, all);
}

/* What holds of any snapshot: order, and that blocks fill their segments. */
static void check_shape(const cen_snapshot *snapshot, const cen_snapshot_device *device) {
    size_t block = 0;
    for (size_t i = 0; i < device->segment_count; i++) {
        const cen_snapshot_segment *segment = &device->segments[i];
        assert_true(i == 0 || segment[-1].addr + segment[-1].size <= segment->addr);
        assert_int_equal(segment->first_block, block);
        uint64_t at = segment->addr;
        for (size_t b = 0; b < segment->block_count; b++, block++) {
            assert_int_equal(device->blocks[block].addr, at);
            at += device->blocks[block].size;
        }
        assert_int_equal(at, segment->addr + segment->size);
    }
    assert_int_equal(block, device->block_count);
    for (size_t i = 0; i < device->event_count; i++) {
        uint32_t stack = device->events[i].stack;
        assert_true(stack == CEN_NO_STACK || stack < cen_snapshot_stack_count(snapshot));
    }
}

static void check_device(const cen_snapshot *snapshot, const char *file, const json_t *expected) {
    const cen_snapshot_device *device = cen_snapshot_get_device(snapshot, 0);
    assert_non_null(device);
    assert_int_equal(device->device, number(expected, "device"));
    assert_int_equal(device->event_count, number(expected, "events"));
    assert_int_equal(device->initial_reserved, number(expected, "reserved_at_start_bytes"));
    replay r = {.reserved = device->initial_reserved, .reserved_peak = device->initial_reserved};
    for (size_t i = 0; i < device->initial_count; i++) {
        r.now += device->initial[i].size;
        assert_false(ceni_map_put(&r.live, device->initial[i].addr, device->initial[i].size));
    }
    assert_int_equal(r.now, number(expected, "live_at_start_bytes"));
    r.peak = r.now;
    for (size_t i = 0; i < device->event_count; i++) {
        step(&r, &device->events[i], expected);
    }
    assert_int_equal(r.peak, number(expected, "requested_peak_bytes"));
    assert_int_equal(r.reserved_peak, number(expected, "reserved_peak_bytes"));
    assert_int_equal(r.ooms, json_array_size(json_object_get(expected, "oom")));
    check_pools(device, json_object_get(expected, "segment_bytes_by_pool_at_end"));
    check_shape(snapshot, device);
    assert_int_equal(device->unknown_frees, 0);
    bool truncated = strstr(file, "gpt-oom") || strstr(file, "moe-expandable");
    assert_int_equal(device->truncated, truncated);
    ceni_map_free(&r.live);
}

static void recorded_files_are_read_as_expected(void **state) {
    json_t *all = json_load_file(TEST_DATA "/traces/expected.json", 0, NULL), *expected;
    const char *file;
    size_t count = 0;
    assert_non_null(all);
    json_object_foreach(all, file, expected) {
        char path[512];
        snprintf(path, sizeof path, TEST_DATA "/traces/%s", file);
        cen_snapshot *snapshot;
        cen_read_error error;
        if (cen_snapshot_read(path, &snapshot, &error)) {
            fail_msg("%s", error.message);
        }
        const json_t *devices = json_object_get(expected, "devices");
        assert_int_equal(cen_snapshot_device_count(snapshot), json_array_size(devices));
        check_device(snapshot, file, json_array_get(devices, 0));
        cen_snapshot_free(snapshot);
        count++;
    }
    assert_int_equal(count, 12);
    json_decref(all);
}

static void stacks_settings_and_annotations_are_there(void **state) {
    cen_snapshot *snapshot;
    assert_int_equal(cen_snapshot_read(TEST_DATA "/traces/gpt-leak.pickle.gz", &snapshot, NULL), 0);
    assert_string_equal(cen_snapshot_setting(snapshot, "expandable_segments"), "False");
    assert_string_equal(cen_snapshot_setting(snapshot, "garbage_collection_threshold"), "0.0");
    assert_string_equal(cen_snapshot_setting(snapshot, "max_split_size"), "-1");
    assert_string_equal(cen_snapshot_setting(snapshot, "PYTORCH_CUDA_ALLOC_CONF"), "");
    assert_memory_equal(cen_snapshot_setting(snapshot, "roundup_power2_divisions"), "[1:0,2:0,", 9);
    assert_null(cen_snapshot_setting(snapshot, "nothing"));
    const cen_snapshot_device *device = cen_snapshot_get_device(snapshot, 0);
    assert_int_equal(device->annotation_count, 120);
    assert_string_equal(device->annotations[0].name, "Optimizer.step#AdamW.step");
    assert_false(device->annotations[0].end);
    assert_true(device->annotations[1].end);
    assert_int_equal(device->annotations[0].time_us, 1795967791396841);
    size_t with = 0, frames;
    for (size_t i = 0; i < device->event_count; i++) {
        uint32_t stack = device->events[i].stack;
        if (stack != CEN_NO_STACK) {
            const cen_frame *frame = cen_snapshot_stack(snapshot, stack, &frames);
            assert_true(frames > 0 && strlen(frame->file) && strlen(frame->function));
            with++;
        }
    }
    assert_int_equal(with, 5568 + 49 + 5400 + 5400);
    assert_null(cen_snapshot_stack(snapshot, CEN_NO_STACK, &frames));
    assert_int_equal(frames, 0);
    cen_snapshot_free(snapshot);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_files_are_read_as_expected),
        cmocka_unit_test(stacks_settings_and_annotations_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
