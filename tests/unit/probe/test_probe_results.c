/* The reader of a probe's results: what it takes, what it refuses with which words, and that no
 * failure leaves anything behind. */
#include "base/fault.h"
#include "cenote/log.h"
#include "cenote/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char gpu[] = TEST_DATA "/probe/gpu.json";

static void reads_what_is_there(void **state) {
    cen_probe *probe = NULL;
    assert_int_equal(cen_probe_load(gpu, &probe), CEN_OK);
    assert_int_equal(cen_probe_device_count(probe), 2);
    const cen_probe_device *d = cen_probe_get_device(probe, 0);
    assert_string_equal(d->name, "Some GPU");
    assert_int_equal(d->multiprocessors, 132);
    assert_int_equal(d->level_count, 3);
    const cen_probe_level *l2 = cen_probe_get_level(d, CEN_LEVEL_L2);
    assert_int_equal(l2->capacity_bytes, 52428800);
    assert_true(l2->latency_ns == 140.25 && l2->bandwidth_gbps == 1e4);
    assert_string_equal(cen_probe_get_memory(d)->level, "HBM");
    assert_null(cen_probe_get_level(d, "L3"));
    assert_int_equal(d->skipped_count, 1);
    assert_string_equal(d->skipped[0].reason, "no kernel for them in this build");
    assert_true(cen_probe_get_rate(d, "bf16") == 6.73e14);
    assert_true(cen_probe_get_rate(d, "fp8") == 0);
    d = cen_probe_get_device(probe, 1);
    assert_string_equal(d->name, "");
    assert_null(cen_probe_get_memory(d));
    assert_null(cen_probe_get_device(probe, 2));
    cen_probe_free(probe);
    cen_probe_free(NULL);
}

static const char *error_of(const char *text) {
    cen_probe *probe = NULL;
    cen_status status = cen_probe_load_memory("f", text, strlen(text), &probe);
    assert_int_equal(status, CEN_ERR_FORMAT);
    assert_null(probe);
    return cen_log_last_error();
}

static void refused(const char *text, const char *words) {
    assert_string_equal(error_of(text), words);
}

/* What is no JSON, in the words of the library that reads it. */
static void refused_json(const char *text, const char *begin) {
    assert_memory_equal(error_of(text), begin, strlen(begin));
}

/* The one device of a file whose levels are these. */
static void refused_level(const char *level, const char *words) {
    char text[512], full[256];
    snprintf(text, sizeof text, "{\"devices\":[{\"levels\":[%s]}]}", level);
    snprintf(full, sizeof full, "f: devices[0].levels%s", words);
    refused(text, full);
}

static void refuses_with_the_place(void **state) {
    refused_json("", "f:1:0: no results of a probe: ");
    refused_json("{\"devices\":[],\"devices\":[]}", "f:1:");
    refused("[]", "f: the results of a probe are an object, not a list");
    refused("{}", "f: devices: missing; a list is expected");
    refused("{\"devices\":{}}", "f: devices: a list is expected, not an object");
    refused("{\"devices\":[3]}", "f: devices[0]: an object is expected, not a number");
    refused("{\"devices\":[{}]}", "f: devices[0].levels: missing; a list is expected");
    refused("{\"devices\":[{\"levels\":[],\"multiprocessors\":0}]}",
            "f: devices[0].multiprocessors: a whole number from 1 to 4096 is expected");
    refused("{\"devices\":[{\"levels\":[],\"name\":\"a\\u001bb\"}]}",
            "f: devices[0].name: text without control characters is expected");
    refused("{\"devices\":[{\"levels\":[],\"skipped\":[{\"level\":\"L1\"}]}]}",
            "f: devices[0].skipped[0].reason: missing; text is expected");
    refused("{\"devices\":[{\"levels\":[],\"rates\":[{\"dtype\":\"bf16\"}]}]}",
            "f: devices[0].rates[0].flops: missing; a number over 0 is expected");
    refused_level("4", "[0]: an object is expected, not a number");
    refused_level("{\"level\":\"\"}", "[0].level: 0 bytes; text of 1 to 31 is expected");
    refused_level("{\"level\":\"L2\"}",
                  "[0]: none of capacity_bytes, latency_ns and bandwidth_gbps is there; what was "
                  "not measured belongs in skipped");
    refused_level("{\"level\":\"L2\",\"latency_ns\":null}",
                  "[0].latency_ns: a number over 0 is expected, not null");
    refused_level("{\"level\":\"L2\",\"latency_ns\":-1}",
                  "[0].latency_ns: -1; a number over 0 is expected");
    refused_level("{\"level\":\"L2\",\"bandwidth_gbps\":0}",
                  "[0].bandwidth_gbps: 0; a number over 0 is expected");
    refused_level("{\"level\":\"L2\",\"capacity_bytes\":1.5}",
                  "[0].capacity_bytes: a whole number from 1 to 9223372036854775807 is expected");
    refused_level("{\"level\":\"a\",\"latency_ns\":1},{\"level\":\"a\",\"latency_ns\":2}",
                  "[1]: 'a' is there twice");
}

static void says_what_is_not_there(void **state) {
    cen_probe *probe = NULL;
    assert_int_equal(cen_probe_load("/nonexistent/p.json", &probe), CEN_ERR_NOT_FOUND);
    assert_string_equal(cen_log_last_error(),
                        "/nonexistent/p.json: cannot be opened: No such file or directory");
    assert_int_equal(cen_probe_load("/", &probe), CEN_ERR_IO);
    assert_int_equal(cen_probe_load(gpu, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_probe_load_memory(NULL, "", 0, &probe), CEN_ERR_INVALID);
    assert_null(probe);
}

static void finds_the_machines_own(void **state) {
    char path[4096], small[8], host[256] = "";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    unsetenv("CENOTE_PROBE");
    setenv("XDG_CACHE_HOME", "/c", 1);
    assert_int_equal(cen_probe_path(path, sizeof path), CEN_OK);
    assert_true(!strncmp(path, "/c/cenote/probe-", 16) && strstr(path, host));
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/h", 1);
    assert_int_equal(cen_probe_path(path, sizeof path), CEN_OK);
    assert_true(!strncmp(path, "/h/.cache/cenote/probe-", 23));
    assert_int_equal(cen_probe_path(small, sizeof small), CEN_ERR_INVALID);
    unsetenv("HOME");
    assert_int_equal(cen_probe_path(path, sizeof path), CEN_ERR_NOT_FOUND);
    setenv("CENOTE_PROBE", gpu, 1);
    cen_probe *probe = NULL;
    assert_int_equal(cen_probe_load(NULL, &probe), CEN_OK);
    cen_probe_free(probe);
}

/* Each allocation and each read fails once; the sanitizers see what is left behind. */
static void failures_leave_nothing(void **state) {
    static const cen_status expected[] = {
        [CENI_FAULT_HOST_MEMORY] = CEN_ERR_HOST_MEMORY, [CENI_FAULT_IO] = CEN_ERR_IO};
    for (int point = 0; point < CENI_FAULT_POINTS; point++) {
        int64_t n = 1;
        for (cen_status status = CEN_ERR_IO; status; n++) {
            cen_probe *probe = NULL;
            ceni_fault_set(&ceni_fault_points[point], n, false);
            status = cen_probe_load(gpu, &probe);
            ceni_fault_set(&ceni_fault_points[point], 0, false);
            assert_int_equal(status, status ? expected[point] : CEN_OK);
            assert_int_equal(probe != NULL, !status);
            cen_probe_free(probe);
        }
        assert_true(n > 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_there),    cmocka_unit_test(refuses_with_the_place),
        cmocka_unit_test(says_what_is_not_there), cmocka_unit_test(finds_the_machines_own),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
