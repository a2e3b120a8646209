/* Chrome's trace events: valid JSON whose counters, slices and instants are those of the recording.
 * tests/cli/convert-chrome has some of it to the letter. */
#include "converted.h"

#include <jansson.h>

static uint64_t peak_of(const cen_snapshot_device *device) {
    uint64_t now = 0, peak = 0;
    for (size_t i = 0; i < device->initial_count; i++) {
        now += device->initial[i].size;
    }
    peak = now;
    for (size_t i = 0; i < device->event_count; i++) {
        const cen_trace_event *e = &device->events[i];
        now += e->action == CEN_ACTION_ALLOC ? e->size : 0;
        peak = now > peak ? now : peak;
        if (e->action == CEN_ACTION_FREE_COMPLETED) {
            now -= e->size < now ? e->size : now;
        }
    }
    return peak;
}

/* Annotations of a name nest: none ends that has not begun. */
static void check_annotation(json_t *open, const json_t *event, bool begins) {
    char key[600];
    snprintf(key, sizeof key, "%d %s", (int)json_integer_value(json_object_get(event, "pid")),
             json_string_value(json_object_get(event, "name")));
    json_int_t depth = json_integer_value(json_object_get(open, key)) + (begins ? 1 : -1);
    assert_true(depth >= 0);
    assert_int_equal(depth ? json_object_set_new(open, key, json_integer(depth))
                           : json_object_del(open, key),
                     0);
}

/* One slice after another with the same id: it begins, then it ends under the same name. */
static void check_slice(json_t *open, const json_t *event, bool begins) {
    char id[32];
    if (strcmp(json_string_value(json_object_get(event, "cat")), "block") != 0) {
        check_annotation(open, event, begins);
        return;
    }
    snprintf(id, sizeof id, "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(event, "id")));
    json_t *name = json_object_get(event, "name"), *begun = json_object_get(open, id);
    if (begins) {
        assert_null(begun);
        assert_int_equal(json_object_set(open, id, name), 0);
    } else {
        assert_non_null(begun);
        assert_string_equal(json_string_value(begun), json_string_value(name));
        assert_int_equal(json_object_del(open, id), 0);
    }
}

static uint64_t least_slice(const cen_snapshot_device *device) {
    uint64_t least = peak_of(device) / 1000;
    return least ? least : 1;
}

/* A slice that begins; it has to be of a block that is large enough. */
static bool is_large(const cen_snapshot *snapshot, const json_t *event) {
    const json_t *args = json_object_get(event, "args");
    json_int_t pid = json_integer_value(json_object_get(event, "pid"));
    for (size_t i = 0; args && i < cen_snapshot_device_count(snapshot); i++) {
        const cen_snapshot_device *device = cen_snapshot_get_device(snapshot, i);
        if (device->device == pid) {
            uint64_t bytes = (uint64_t)json_integer_value(json_object_get(args, "bytes"));
            assert_true(bytes >= least_slice(device));
        }
    }
    return args != NULL;
}

static size_t count_large(const cen_snapshot_device *device) {
    uint64_t least = least_slice(device);
    size_t count = 0;
    for (size_t i = 0; i < device->initial_count; i++) {
        count += device->initial[i].size >= least;
    }
    for (size_t i = 0; i < device->event_count; i++) {
        const cen_trace_event *e = &device->events[i];
        count += e->action == CEN_ACTION_ALLOC && e->size >= least;
    }
    return count;
}

static void chrome(const cen_snapshot *snapshot) {
    const char *path = in_folder("a.json");
    json_error_t error;
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_CHROME, path, NULL), CEN_OK);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error), *open = json_object();
    if (!root) {
        fail_msg("line %d: %s", error.line, error.text);
    }
    const json_t *events = json_object_get(root, "traceEvents");
    uint64_t peaks[16] = {0};
    size_t failures = 0, slices = 0, expected = 0, large = 0, index;
    json_t *event;
    json_array_foreach(events, index, event) {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const char *name = json_string_value(json_object_get(event, "name"));
        json_int_t pid = json_integer_value(json_object_get(event, "pid"));
        assert_true(phase && name && json_is_integer(json_object_get(event, "ts")));
        if (*phase == 'b' || *phase == 'e') {
            check_slice(open, event, *phase == 'b');
            slices += is_large(snapshot, event);
        }
        failures += !strcmp(name, "out of memory");
        if (*phase == 'C' && !strcmp(name, "allocated")) {
            uint64_t bytes = (uint64_t)json_integer_value(
                json_object_get(json_object_get(event, "args"), "bytes"));
            peaks[pid] = bytes > peaks[pid] ? bytes : peaks[pid];
        }
    }
    for (size_t i = 0; i < cen_snapshot_device_count(snapshot); i++) {
        const cen_snapshot_device *device = cen_snapshot_get_device(snapshot, i);
        assert_int_equal(peaks[device->device], peak_of(device));
        large += count_large(device);
        for (size_t e = 0; e < device->event_count; e++) {
            expected += device->events[e].action == CEN_ACTION_OOM;
        }
    }
    assert_int_equal(failures, expected);
    assert_int_equal(slices, large);
    assert_int_equal(json_object_size(open), 0);
    json_decref(open);
    json_decref(root);
}

static void chrome_adds_up(void **state) {
    assert_true(for_each(chrome) > 40);
}

/* Names with what JSON escapes, and more than a line of them. */
static void chrome_escapes(void **state) {
    static const char pickle[] = "\x80\4}(\x8c\x0d"
                                 "device_traces]](}(\x8c\6action\x8c\5alloc\x8c\4addrJ\0\0\1\0"
                                 "\x8c\4sizeM\0\1\x8c\6frames](}(\x8c\x08"
                                 "filename\x8c\6a\"\\.py\x8c\4name\x8c\2\xc3\xa4\x8c\4lineK\7ue"
                                 "ueau.";
    cen_snapshot *snapshot = NULL;
    size_t size;
    assert_int_equal(cen_snapshot_read_memory("x", pickle, sizeof pickle - 1, &snapshot, NULL),
                     CEN_OK);
    chrome(snapshot);
    char *text = bytes_of(in_folder("a.json"), &size);
    assert_non_null(strstr(text, "\"name\":\"a\\\"\\\\.py:7 \xc3\xa4\""));
    free(text);
    cen_snapshot_free(snapshot);
}

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) {
        count++;
    }
    return count;
}

/* A program's steps have ends only: they are instants, as is an end without its beginning. What is
 * left open ends. */
static void steps_are_instants(void **state) {
    assert_int_equal(cen_trace_start(in_folder("t.cenotrace"), NULL), CEN_OK);
    cen_trace_mark("late", true);
    for (uint64_t i = 1; i <= 3; i++) {
        cen_trace_mark("forward", false);
        cen_trace_alloc(0, i << 20, 4096, 0);
        cen_trace_mark("forward", true);
        cen_trace_step();
    }
    cen_trace_mark("open", false);
    cen_trace_mark("open", false);
    assert_int_equal(cen_trace_stop(), CEN_OK);
    cen_snapshot *snapshot = read_file(in_folder("t.cenotrace"));
    chrome(snapshot);
    size_t size;
    char *text = bytes_of(in_folder("a.json"), &size);
    assert_int_equal(count_of(text, "\"s\":\"p\",\"name\":\"cen_trace_step\"}"), 3);
    assert_int_equal(count_of(text, "\"s\":\"p\",\"name\":\"late\"}"), 1);
    assert_int_equal(count_of(text, "\"cat\":\"annotation\",\"id\":0,\"name\":\"forward\"}"), 6);
    assert_int_equal(count_of(text, "\"cat\":\"annotation\",\"id\":0,\"name\":\"open\"}"), 4);
    free(text);
    cen_snapshot_free(snapshot);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chrome_adds_up),
        cmocka_unit_test(chrome_escapes),
        cmocka_unit_test(steps_are_instants),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
