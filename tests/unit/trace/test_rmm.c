/* RMM's logs: every form that its versions wrote, and what is not one. */
#include "cenote/cenote.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define HEAD   "Thread,Time,Action,Pointer,Size,Stream\n"
#define DAY_US 86400000000

static cen_snapshot *read_text(const char *text) {
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    if (cen_snapshot_read_memory("x.csv", text, strlen(text), &snapshot, &error)) {
        fail_msg("%s", error.message);
    }
    return snapshot;
}

static void is_event(const cen_trace_event *e, cen_action action, uint64_t addr, uint64_t size,
                     uint64_t stream, int64_t time_us) {
    assert_int_equal(e->action, action);
    assert_int_equal(e->addr, addr);
    assert_int_equal(e->size, size);
    assert_int_equal(e->stream, stream);
    assert_int_equal(e->time_us, time_us);
    assert_int_equal(e->stack, CEN_NO_STACK);
}

static void calls_become_events(void **state) {
    cen_snapshot *snapshot =
        read_text(HEAD "71,00:01:02.000003,allocate,0x7f00,256,0x0\n"
                       "72,00:01:02.000004,allocate failure,0x0,1099511627776,0x2\n"
                       "71,00:01:03.5,free,0x7f00,256,0x2a\r\n"
                       "\n"
                       "71,00:01:04.000000,free,0x8f00,512,0\n");
    assert_int_equal(cen_snapshot_device_count(snapshot), 1);
    const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, 0);
    assert_int_equal(d->device, 0);
    assert_int_equal(d->event_count, 6);
    is_event(&d->events[0], CEN_ACTION_ALLOC, 0x7f00, 256, 0, 62000003);
    is_event(&d->events[1], CEN_ACTION_OOM, CEN_FREE_UNKNOWN, UINT64_C(1) << 40, 2, 62000004);
    is_event(&d->events[2], CEN_ACTION_FREE_REQUESTED, 0x7f00, 256, 42, 63500000);
    is_event(&d->events[3], CEN_ACTION_FREE_COMPLETED, 0x7f00, 256, 42, 63500000);
    is_event(&d->events[5], CEN_ACTION_FREE_COMPLETED, 0x8f00, 512, 0, 64000000);
    assert_int_equal(d->segment_count, 0);
    assert_int_equal(d->initial_count, 1); /* freed, so it was there before the log */
    assert_int_equal(d->initial[0].addr, 0x8f00);
    assert_false(d->truncated);
    cen_snapshot_free(snapshot);
}

static void every_form_is_read(void **state) {
    static const struct {
        const char *line;
        uint64_t addr, stream;
        int64_t time_us;
    } forms[] = {
        {"1,10:00:00:000007,allocate,0x10,8,0\n", 0x10, 0, 36000000007},
        {"1,10:00:00:7,allocate,0x10,8,0\n", 0x10, 0, 36000000007},
        {"1,10:00:00,allocate,10,8,10\n", 0x10, 10, 36000000000},
        {"1,1634567890.123456,allocate,0XAF,8,1f\n", 0xaf, 0x1f, 1634567890123456},
        {"1,1634567890.1234567,allocate,0xaf,8,(nil)\n", 0xaf, 0, 1634567890123456},
        {"0x7f12,23:59:59.9,allocate,ffffffffffffff00,8,0xFFFFFFFFFFFFFFFE\n", 0xffffffffffffff00,
         0xfffffffffffffffe, DAY_US - 100000},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char text[256];
        snprintf(text, sizeof text, HEAD "%s", forms[i].line);
        cen_snapshot *snapshot = read_text(text);
        const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, 0);
        assert_int_equal(d->event_count, 1);
        is_event(d->events, CEN_ACTION_ALLOC, forms[i].addr, 8, forms[i].stream, forms[i].time_us);
        cen_snapshot_free(snapshot);
    }
}

static void columns_go_by_name(void **state) {
    cen_snapshot *snapshot = read_text("Time,Action,Pointer,Size,Stream\n"
                                       "00:00:01.0,allocate,0x10,8,3\n"
                                       "00:00:02.0,deallocate,0x10,8,3\n");
    assert_int_equal(cen_snapshot_get_device(snapshot, 0)->event_count, 3);
    cen_snapshot_free(snapshot);
    snapshot = read_text("Time,Size,Pointer,More,Action,Stream\n00:00:01.0,8,0x10,?,allocate,3\n");
    is_event(cen_snapshot_get_device(snapshot, 0)->events, CEN_ACTION_ALLOC, 0x10, 8, 3, 1000000);
    cen_snapshot_free(snapshot);
}

static void times_go_forward(void **state) {
    cen_snapshot *snapshot = read_text(HEAD "1,23:59:59.000000,allocate,0x10,8,0\n"
                                            "2,23:59:58.999999,allocate,0x20,8,0\n"
                                            "1,00:00:01.000000,allocate,0x30,8,0\n"
                                            "1,00:00:00.999999,allocate,0x40,8,0\n"
                                            "1,23:00:00.000000,allocate,0x50,8,0\n"
                                            "1,01:00:00.000000,allocate,0x60,8,0\n");
    const cen_trace_event *e = cen_snapshot_get_device(snapshot, 0)->events;
    assert_int_equal(e[1].time_us, e[0].time_us);
    assert_int_equal(e[2].time_us, DAY_US + 1000000);
    assert_int_equal(e[3].time_us, DAY_US + 1000000);
    assert_int_equal(e[4].time_us, DAY_US + 23 * INT64_C(3600000000));
    assert_int_equal(e[5].time_us, 2 * DAY_US + INT64_C(3600000000));
    cen_snapshot_free(snapshot);
}

/* A killed process leaves a line that may be cut anywhere. */
static void a_line_without_its_end_is_left(void **state) {
    static const char line[] = "1,00:00:02.000000,allocate,0x20,4096,0x2a";
    for (size_t length = 0; length < sizeof line; length++) {
        char text[256];
        snprintf(text, sizeof text, HEAD "1,00:00:01.000000,allocate,0x10,8,0\n%.*s", (int)length,
                 line);
        cen_snapshot *snapshot = read_text(text);
        assert_int_equal(cen_snapshot_get_device(snapshot, 0)->event_count, 1);
        cen_snapshot_free(snapshot);
    }
    cen_snapshot *snapshot = read_text(HEAD);
    assert_int_equal(cen_snapshot_device_count(snapshot), 0);
    cen_snapshot_free(snapshot);
}

/* Nothing was asked for, and nothing given: any number of such may be alive at once. */
static void null_pointers_are_no_blocks(void **state) {
    cen_snapshot *snapshot = read_text(HEAD "1,00:00:01.0,allocate,0x0,0,0\n"
                                            "1,00:00:01.0,allocate,(nil),0,0\n"
                                            "1,00:00:01.0,allocate,0x10,8,0\n"
                                            "1,00:00:01.0,free,0x0,0,0\n");
    assert_int_equal(cen_snapshot_get_device(snapshot, 0)->event_count, 1);
    cen_snapshot_free(snapshot);
}

static void refused(const char *text, const char *says) {
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    cen_status status = cen_snapshot_read_memory("x.csv", text, strlen(text), &snapshot, &error);
    if (status != CEN_ERR_FORMAT || !strstr(error.message, says)) {
        fail_msg("got %d \"%s\", expected \"%s\"", status, error.message, says);
    }
    assert_null(snapshot);
}

static void bad_lines_are_named(void **state) {
    refused("Thread,Time,Action,Pointer,Size\n", "line 1: no column 'Stream'; expected RMM's");
    refused("Time,What\n", "line 1: no column 'Action'");
    refused(HEAD "1,00:00:01.0,allocate,0x10,8\n", "line 2: 5 fields; expected 6");
    refused(HEAD "1,00:00:01.0,allocate,0x10,8,0,\n", "line 2: 7 fields; expected 6");
    refused(HEAD "\n1,00:00:01.0,grow,0x10,8,0\n",
            "line 3: action 'grow'; expected allocate, allocate failure or free");
    refused(HEAD "1,00:00:01.0,allocate,0xg,8,0\n",
            "line 2: pointer '0xg'; expected a hexadecimal");
    refused(HEAD "1,00:00:01.0,allocate,0x,8,0\n", "line 2: pointer '0x'");
    refused(HEAD "1,00:00:01.0,allocate,0x10000000000000000,8,0\n", "line 2: pointer");
    refused(HEAD "1,00:00:01.0,allocate,0x10,-8,0\n", "line 2: size '-8'; expected bytes");
    refused(HEAD "1,00:00:01.0,allocate,0x10,281474976710657,0\n", "at most 2^48");
    refused(HEAD "1,00:00:01.0,allocate,0x10,8,x\n", "line 2: stream 'x'; expected a number");
    static const char *const times[] = {"",        "1:2",      "00:61:00.0",  "00:00:01.",
                                        "a:00:00", "00.1.2",   "1:2:3:4:5",   "00:00:00:1000000",
                                        "-1.0",    "00:00:.5", "99999999999", "4294967295:00:00.0"};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char text[256], says[64];
        snprintf(text, sizeof text, HEAD "1,%s,allocate,0x10,8,0\n", times[i]);
        snprintf(says, sizeof says, "line 2: time '%s'; expected HH:MM:SS", times[i]);
        refused(text, says);
    }
}

static void zero_bytes_are_refused(void **state) {
    static const char *const texts[] = {"\0\0\n", "1,00:00:01.0,allocate,0x10,8,0\0x\n"};
    for (int i = 0; i < 2; i++) {
        char text[256];
        size_t head = sizeof HEAD - 1, size = i ? 33 : 3;
        memcpy(text, HEAD, sizeof HEAD);
        memcpy(text + head, texts[i], size);
        cen_snapshot *snapshot = NULL;
        cen_read_error error;
        assert_int_equal(cen_snapshot_read_memory("r", text, head + size, &snapshot, &error),
                         CEN_ERR_FORMAT);
        assert_non_null(strstr(error.message, "line 2: a byte 0"));
        /* A log that was not written out may end in them. */
        assert_int_equal(cen_snapshot_read_memory("r", text, head + 2 + 29 * i, &snapshot, NULL),
                         CEN_OK);
        cen_snapshot_free(snapshot);
    }
}

static void long_lines_are_refused(void **state) {
    char *text = malloc(10000);
    assert_non_null(text);
    memset(text, ',', 9999);
    memcpy(text, HEAD, strlen(HEAD));
    text[9999] = 0;
    refused(text, "line 2: longer than 4096 bytes");
    text[strlen(HEAD) + 100] = '\n';
    refused(text, "line 2: more than 32 fields");
    free(text);
}

static char *explained(const cen_snapshot *snapshot, uint64_t cap, bool json) {
    cen_explanation *explanation = NULL;
    cen_explain_options options = {.size = sizeof options, .cap_bytes = cap};
    char *text = NULL;
    assert_int_equal(cen_explain(snapshot, &options, &explanation), CEN_OK);
    assert_int_equal(
        json ? cen_explain_json(explanation, &text) : cen_explain_text(explanation, &text), CEN_OK);
    cen_explanation_free(explanation);
    return text;
}

static void has(const cen_snapshot *snapshot, uint64_t cap, bool json, const char *words) {
    char *text = explained(snapshot, cap, json);
    if (!strstr(text, words)) {
        fail_msg("no \"%s\" in:\n%s", words, text);
    }
    free(text);
}

static void lacks(const cen_snapshot *snapshot, uint64_t cap, const char *words) {
    char *text = explained(snapshot, cap, false);
    if (strstr(text, words)) {
        fail_msg("\"%s\" in:\n%s", words, text);
    }
    free(text);
}

/* A log says nothing of what was held: neither does the answer. */
static void nothing_is_claimed_of_what_was_held(void **state) {
    const uint64_t gib = UINT64_C(1) << 30, caps[] = {0, 3 * gib, 8 * gib};
    static const char *const not_known[] = {" held:",    "card had", "once held", "largest",
                                            "streams (", "pools (",  ". held",    "held +"};
    cen_snapshot *snapshot = read_text(HEAD "1,00:00:01.0,allocate,0x100000000,1073741824,0\n"
                                            "1,00:00:02.0,allocate,0x200000000,1073741824,0\n"
                                            "1,00:00:03.0,free,0x100000000,1073741824,0\n"
                                            "1,00:00:04.0,allocate failure,0x0,4294967296,0\n");
    for (size_t i = 0; i < 3; i++) {
        for (size_t w = 0; w < sizeof not_known / sizeof *not_known; w++) {
            lacks(snapshot, caps[i], not_known[w]);
        }
        has(snapshot, caps[i], true, "\"held_bytes\": null");
        has(snapshot, caps[i], true, "\"held_peak_bytes\": null");
        has(snapshot, caps[i], true, "\"device_free_bytes\": null");
        has(snapshot, caps[i], true, "\"holes\": null");
    }
    has(snapshot, 0, false, "OUT OF CAPACITY, UNLESS THE CAP IS 5.00 GiB OR MORE");
    has(snapshot, 0, false, "cap from 2.00 (once live) up: undecided");
    has(snapshot, 0, true, "\"cap_high_bytes\": null");
    has(snapshot, 3 * gib, false, "OUT OF CAPACITY\n");
    has(snapshot, 8 * gib, false, "FRAGMENTATION, UNLESS OTHERS HELD THE REST\n");
    has(snapshot, 8 * gib, true, "\"verdict\": \"fragmentation\"");
    cen_snapshot_free(snapshot);

    snapshot = read_text(HEAD "1,00:00:01.0,allocate,0x100000000,1073741824,0\n");
    has(snapshot, 0, false, "HEALTHY\n why       1.00 GiB live at the peak, what was held is not");
    has(snapshot, 0, false, "open      leak");
    has(snapshot, gib / 2, false, "OUT OF CAPACITY\n");
    for (size_t w = 0; w < sizeof not_known / sizeof *not_known; w++) {
        lacks(snapshot, 0, not_known[w]);
    }
    cen_snapshot_free(snapshot);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_become_events),
        cmocka_unit_test(every_form_is_read),
        cmocka_unit_test(columns_go_by_name),
        cmocka_unit_test(times_go_forward),
        cmocka_unit_test(a_line_without_its_end_is_left),
        cmocka_unit_test(null_pointers_are_no_blocks),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(zero_bytes_are_refused),
        cmocka_unit_test(long_lines_are_refused),
        cmocka_unit_test(nothing_is_claimed_of_what_was_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
