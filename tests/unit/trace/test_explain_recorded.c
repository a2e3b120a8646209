/* What explain says of the recorded snapshots, against expected.json and figures computed by hand,
 * and of out-of-memory messages as several versions word them. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include <locale.h>

#include "cenote/cenote.h"

#define TRACES TEST_DATA "/traces/"

static const double GIB = 1u << 30;

/* Explains a recorded file; *text, if asked for, is the text. */
static json_t *explain(const char *file, double cap_gib, char **text) {
    char path[512], *json = NULL;
    snprintf(path, sizeof path, "%s%s", TRACES, file);
    cen_snapshot *snapshot = NULL;
    cen_explanation *explanation = NULL;
    cen_explain_options options = {sizeof options, file, (uint64_t)(cap_gib * GIB), 0};
    assert_int_equal(cen_snapshot_read(path, &snapshot, NULL), CEN_OK);
    assert_int_equal(cen_explain(snapshot, &options, &explanation), CEN_OK);
    assert_int_equal(cen_explain_json(explanation, &json), CEN_OK);
    if (text) {
        assert_int_equal(cen_explain_text(explanation, text), CEN_OK);
    }
    json_t *root = json_loads(json, 0, NULL);
    assert_non_null(root);
    free(json);
    cen_explanation_free(explanation);
    cen_snapshot_free(snapshot);
    return root;
}

static const char *string(json_t *root, const char *key) {
    const char *value = json_string_value(json_object_get(root, key));
    return value ? value : "";
}

static int64_t number(json_t *root, const char *key) {
    return json_integer_value(json_object_get(root, key));
}

static void contains(const char *text, const char *words) {
    if (!strstr(text, words)) {
        fail_msg("'%s' is not in:\n%s", words, text);
    }
}

/* An expected verdict names one or more verdicts, perhaps "never" some, and more words. */
static void check_verdict(const char *file, const char *expected, const char *verdict) {
    const char *never = strstr(expected, "never"), *found = strstr(expected, verdict);
    if (!*verdict || !found || (never && found > never)) {
        fail_msg("%s: '%s', expected %s", file, verdict, expected);
    }
}

static void check_sums(json_t *root, json_t *expected) {
    assert_int_equal(number(root, "live_peak_bytes"), number(expected, "requested_peak_bytes"));
    assert_int_equal(number(root, "held_peak_bytes"), number(expected, "reserved_peak_bytes"));
    json_t *oom = json_array_get(json_object_get(expected, "oom"), 0);
    if (oom) {
        json_t *failed = json_object_get(root, "failed");
        assert_int_equal(number(failed, "requested_bytes"), number(oom, "requested_bytes"));
        assert_int_equal(number(failed, "device_free_bytes"), number(oom, "device_free_bytes"));
        assert_int_equal(number(root, "live_bytes"), number(oom, "live_bytes"));
        assert_int_equal(number(root, "held_bytes"), number(oom, "reserved_bytes"));
        assert_int_equal(number(root, "sufficient_bytes"), number(oom, "sufficient_bytes"));
    }
}

static void check_holes(json_t *root) {
    json_t *holes = json_object_get(root, "holes"), *owners = json_object_get(root, "owners");
    assert_int_equal(number(holes, "hole_bytes"),
                     number(root, "held_bytes") - number(root, "live_bytes"));
    int64_t owned = 0;
    for (size_t i = 0; i < json_array_size(owners); i++) {
        owned += number(json_array_get(owners, i), "bytes");
    }
    assert_int_equal(owned, number(root, "sufficient_bytes"));
}

static void every_file_is_judged_as_expected(void **state) {
    json_t *all = json_load_file(TRACES "expected.json", 0, NULL), *expected;
    const char *file;
    assert_non_null(all);
    json_object_foreach(all, file, expected) {
        double cap = strstr(file, "gpt-oom") ? 27.94 : strstr(file, "graphs") ? 10 : 0;
        json_t *root = explain(file, cap, NULL);
        check_verdict(file, string(expected, "verdict"), string(root, "verdict"));
        /* Peaks after a failure are its unwinding: none of these files has one. */
        check_sums(root, json_array_get(json_object_get(expected, "devices"), 0));
        check_holes(root);
        bool leaks = strstr(file, "leak") != NULL;
        assert_int_equal(json_array_size(json_object_get(root, "suspects")), leaks ? 2 : 0);
        json_decref(root);
    }
    json_decref(all);
}

static void gpt_oom_reads_as_computed_by_hand(void **state) {
    static const char *const lines[] = {
        "FRAGMENTATION NOW; OUT OF CAPACITY NEXT STEP\n",
        " failed    2.93 GiB, backward of cross_entropy, train.py:51 (inferred)\n",
        " why       24.14 GiB live + 2.93 = 27.06 needed, fits 27.94; but\n",
        "           25.20 held + 2.93 = 28.13, over by 0.19\n",
        " forecast  +1.07 GiB a step: next needs 28.13 GiB. Packing buys 1 step\n",
        "cap       27.94 GiB given; card had 113.85 free: the cap is set in software\n",
        "holes     1.06 GiB, 124 in 65 of 250 segments, largest 0.88\n",
        "ruled out leak (baseline 4.64 each step), streams (1), pools (0)\n",
        "peaks     20.64 21.71 22.78 23.85 24.92 25.99 [27.06] 28.13?\n",
        "  8.78 32%  cross_entropy x3, train.py:51 (2 by inference)\n",
        "  8.24 30%  activations, train.py:43\n",
        "  3.05 11%  Adam state, train.py:56\n",
        "  3.04 11%  activations, train.py:41\n",
        "  2.21  8%  activations, train.py:42\n",
        "  1.56  6%  before recording: weights, workspace (inferred)\n",
        "  0.18  1%  other\n",
        "(ring full, start lost)",
    };
    char *text = NULL;
    json_t *root = explain("gpt-oom.pickle.gz", 27.94, &text);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        contains(text, lines[i]);
    }
    assert_string_equal(string(root, "next"), "capacity");
    assert_int_equal(number(root, "packing_buys_steps"), 1);
    free(text);
    json_decref(root);
}

static void gpt_oom_without_a_cap_brackets_it(void **state) {
    json_t *root = explain("gpt-oom.pickle.gz", 0, NULL);
    assert_string_equal(string(root, "verdict"), "fragmentation");
    assert_string_equal(string(root, "next"), "capacity");
    assert_string_equal(string(root, "cap_from"), "bracketed");
    assert_int_equal(number(root, "cap_low_bytes"), 29999759360);
    assert_int_equal(number(root, "cap_high_bytes"), 27059552256 + 3142189056);
    json_decref(root);
}

static void gpt_leak_names_both_stacks(void **state) {
    json_t *root = explain("gpt-leak.pickle.gz", 0, NULL);
    static const double per_step[] = {1 << 20, 4};
    static const char *const functions[] = {"<module>", "cross_entropy"};
    for (size_t i = 0; i < 2; i++) {
        json_t *s = json_array_get(json_object_get(root, "suspects"), i);
        json_t *frames = json_object_get(s, "frames");
        json_t *last = json_array_get(frames, json_array_size(frames) - 1);
        assert_true(json_real_value(json_object_get(s, "bytes_per_step")) == per_step[i]);
        assert_int_equal(number(s, "blocks"), 30);
        assert_string_equal(string(json_array_get(frames, 0), "function"), functions[i]);
        assert_string_equal(string(last, "file"), "train.py");
        assert_int_equal(number(last, "line"), 111);
    }
    json_decref(root);
}

static void graphs_oom_names_what_its_pools_hold(void **state) {
    char *text = NULL;
    json_t *root = explain("graphs-oom.pickle.gz", 10, &text);
    contains(text, "9.19 GiB live + 1.00 = 10.19 needed, 10.00 allowed: over by 0.19");
    contains(text, "PRIVATE POOLS  930.00 MiB in 3");
    contains(text, "256.00 MiB  activations, train.py:55");
    assert_int_equal(json_array_size(json_object_get(root, "pools")), 3);
    assert_int_equal(number(root, "private_pool_bytes"), 930ll << 20);
    free(text);
    json_decref(root);
}

static void stranded_oom_is_the_side_streams(void **state) {
    json_t *root = explain("stranded-oom.pickle.gz", 8, NULL);
    assert_string_equal(string(root, "verdict"), "stranded-stream");
    json_t *streams = json_object_get(json_object_get(root, "holes"), "by_stream");
    assert_int_equal(json_array_size(streams), 1);
    assert_int_equal(number(json_array_get(streams, 0), "live_bytes"), 240ll << 20);
    json_decref(root);
}

static json_t *explain_log(const char *message) {
    cen_explanation *explanation = NULL;
    char *json = NULL, *text = NULL;
    assert_int_equal(cen_explain_log(message, strlen(message), NULL, &explanation), CEN_OK);
    assert_int_equal(cen_explain_json(explanation, &json), CEN_OK);
    assert_int_equal(cen_explain_text(explanation, &text), CEN_OK);
    json_t *root = json_loads(json, 0, NULL);
    free(json);
    free(text);
    cen_explanation_free(explanation);
    return root;
}

#define TODAY "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "

static void log_of_a_full_device_is_outside(void **state) {
    json_t *root = explain_log(
        "epoch 3\n" TODAY "1024.00 MiB. GPU 2 has a total capacity of 139.80 GiB of which 699.56 "
        "MiB is free. Process 519 has 100.60 GiB memory in use. Process 7 has 10.00 GiB memory in "
        "use. Including non-PyTorch memory, this process has 28.51 GiB memory in use. Of the "
        "allocated memory 28.00 GiB is allocated by PyTorch, and 256.00 KiB is reserved by PyTorch "
        "but unallocated. If reserved\nmore lines\nworker 3 died: CUDA out of memory\n");
    assert_string_equal(string(root, "verdict"), "outside");
    assert_int_equal(number(root, "device"), 2);
    assert_int_equal(number(root, "outside_bytes"), (int64_t)(110.6 * GIB));
    json_t *first = json_array_get(json_object_get(root, "processes"), 0);
    assert_int_equal(number(first, "pid"), 519);
    contains(string(json_array_get(json_object_get(root, "do_first"), 0), "text"), "process 519");
    json_decref(root);
}

static void log_with_an_allowance_has_a_software_cap(void **state) {
    json_t *root = explain_log(
        TODAY "2.93 GiB. GPU 0 has a total capacity of 139.80 GiB of which 113.85 GiB is free. "
              "27.94 GiB allowed; Of the allocated memory 24.14 GiB is allocated by PyTorch, with "
              "930.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.06 GiB is reserved "
              "by PyTorch but unallocated.");
    assert_string_equal(string(root, "verdict"), "fragmentation");
    assert_string_equal(string(root, "cap_from"), "stated");
    assert_int_equal(number(root, "private_pool_bytes"), 930ll << 20);
    json_decref(root);
}

static void logs_of_older_versions_are_understood(void **state) {
    json_t *root = explain_log(
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total "
        "capacity; 9.71 GiB already allocated; 5.56 MiB free; 9.80 GiB reserved in total by "
        "PyTorch)");
    assert_string_equal(string(root, "verdict"), "fragmentation");
    assert_int_equal(number(root, "held_bytes"), (int64_t)(9.8 * GIB + 0.5));
    json_decref(root);
    root =
        explain_log("RuntimeError: CUDA out of memory. Tried to allocate 16.00 GiB (GPU 0; 11.93 "
                    "GiB total capacity; 4.00 GiB already allocated; 7.33 GiB free; 179.00 KiB "
                    "cached)");
    assert_string_equal(string(root, "verdict"), "capacity");
    assert_int_equal(number(root, "held_bytes"), (4ll << 30) + (179 << 10));
    json_decref(root);
}

static void a_comma_for_the_point_changes_nothing(void **state) {
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        print_message("[  REASON  ] no locale with a decimal comma is installed\n");
        skip();
        return;
    }
    json_t *root =
        explain_log(TODAY "2.50 GiB. GPU 0 has a total capacity of 139.80 GiB of which "
                          "1.25 GiB is free. Including non-PyTorch memory, this process "
                          "has 28.51 GiB memory in use. Of the allocated memory 28.00 GiB "
                          "is allocated by PyTorch, and 256.00 KiB is reserved by "
                          "PyTorch but unallocated.");
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(number(root, "device_total_bytes"), (int64_t)(139.80 * GIB + 0.5));
    json_decref(root);
}

static void texts_without_a_message_are_refused(void **state) {
    cen_explanation *explanation = NULL;
    static const char none[] = "all is well\n", bare[] = "CUDA out of memory. Sorry.";
    assert_int_equal(cen_explain_log(none, sizeof none - 1, NULL, &explanation), CEN_ERR_NOT_FOUND);
    assert_int_equal(cen_explain_log("", 0, NULL, &explanation), CEN_ERR_NOT_FOUND);
    assert_int_equal(cen_explain_log(bare, sizeof bare - 1, NULL, &explanation), CEN_ERR_FORMAT);
    assert_null(explanation);
}

/* A program compiled against a smaller struct has its fields read and no more. */
static void options_are_read_as_far_as_their_size_says(void **state) {
    static const char text[] = TODAY "2.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which "
                                     "70.00 GiB is free. Of the allocated memory 4.00 GiB is "
                                     "allocated by PyTorch, and 1.00 GiB is reserved by PyTorch "
                                     "but unallocated.";
    const size_t sizes[] = {0, offsetof(cen_explain_options, cap_bytes),
                            sizeof(cen_explain_options), sizeof(cen_explain_options) + 64};
    static const char *const caps[] = {NULL, "bracketed", "given", "given"};
    for (size_t i = 0; i < 4; i++) {
        cen_explain_options options = {sizes[i], "log", 5 * GIB, 0};
        cen_explanation *explanation = NULL;
        char *json = NULL;
        cen_status status = cen_explain_log(text, sizeof text - 1, &options, &explanation);
        if (!caps[i]) {
            assert_int_equal(status, CEN_ERR_INVALID);
            continue;
        }
        assert_int_equal(status, CEN_OK);
        assert_int_equal(cen_explain_json(explanation, &json), CEN_OK);
        json_t *root = json_loads(json, 0, NULL);
        assert_string_equal(string(root, "cap_from"), caps[i]);
        json_decref(root);
        free(json);
        cen_explanation_free(explanation);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_read_as_far_as_their_size_says),
        cmocka_unit_test(every_file_is_judged_as_expected),
        cmocka_unit_test(gpt_oom_reads_as_computed_by_hand),
        cmocka_unit_test(gpt_oom_without_a_cap_brackets_it),
        cmocka_unit_test(gpt_leak_names_both_stacks),
        cmocka_unit_test(graphs_oom_names_what_its_pools_hold),
        cmocka_unit_test(stranded_oom_is_the_side_streams),
        cmocka_unit_test(log_of_a_full_device_is_outside),
        cmocka_unit_test(log_with_an_allowance_has_a_software_cap),
        cmocka_unit_test(logs_of_older_versions_are_understood),
        cmocka_unit_test(a_comma_for_the_point_changes_nothing),
        cmocka_unit_test(texts_without_a_message_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
