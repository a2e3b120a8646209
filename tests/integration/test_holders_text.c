/* What `cenote holders` prints, run as a program over a stand-in for NVML: of this process with a
 * ledger, of one that is gone, of one whose bytes are unknown, and of none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cenote/ledger.h"

#define MIB ((uint64_t)1 << 20)
enum { GONE = 4000001 };

static char folder[] = "/tmp/cenote-holders-text-XXXXXX";
static cen_ledger *ledger;

static int set_up(void **state) {
    char path[128];
    cen_ledger_options options = {.size = sizeof options, .writer = "run"};
    assert_non_null(mkdtemp(folder));
    setenv("CENOTE_LEDGER_DIR", folder, 1);
    setenv("LD_LIBRARY_PATH", FAKE_NVML_DIR, 1);
    snprintf(path, sizeof path, "%s/%d-run.ledger", folder, getpid());
    assert_int_equal(cen_ledger_create(path, &options, &ledger), CEN_OK);
    assert_int_equal(cen_ledger_device(ledger, 0, "GPU-fake-0", "Fake GPU", 1 << 30), CEN_OK);
    cen_ledger_entry entry = {
        .key = 1, .bytes = 512 * MIB, .kind = CEN_LEDGER_CONTEXT, .stack = CEN_LEDGER_NO_STACK};
    return cen_ledger_add(ledger, &entry);
}

static int tear_down(void **state) {
    char command[128];
    cen_ledger_close(ledger);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* Runs cenote holders with these words; what it printed, on both outputs. */
static const char *run(const char *words, int expected) {
    static char text[8192];
    char command[1024];
    snprintf(command, sizeof command, "'%s' holders %s 2>&1", CENOTE, words);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    text[fread(text, 1, sizeof text - 1, pipe)] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), expected);
    return text;
}

static void set_nvml(uint64_t used_mib, uint64_t own, uint64_t gone) {
    char text[128];
    snprintf(text, sizeof text, "%" PRIu64 " %d:%" PRIu64 " %d:%" PRIu64, used_mib * MIB, getpid(),
             own, GONE, gone);
    setenv("FAKE_NVML", text, 1);
}

/* No line is longer than a terminal. */
static void assert_narrow(const char *text) {
    for (const char *end; *text; text = end + 1) {
        end = strchr(text, '\n');
        assert_non_null(end);
        assert_true(end - text <= 80);
    }
}

static void test_text(void **state) {
    char own[64];
    const struct passwd *user = getpwuid(getuid());
    set_nvml(20 * 1024, 640 * MIB, 12 * 1024 * MIB);
    const char *text = run("", 0);
    assert_narrow(text);
    assert_non_null(strstr(text, "GPU 0  Fake GPU  20.0 of 80.0 GiB used: "
                                 "2 processes, 7.38 GiB claimed by none\n  pid 4000001 ?"));
    assert_non_null(strstr(text, "  gone  "));
    assert_non_null(strstr(text, "  12.0 GiB\n      no such process here: it died and its memory "
                                 "is still held,\n      or it lives in another container\n"));
    snprintf(own, sizeof own, "  pid %-7d %s", getpid(), user ? user->pw_name : "");
    assert_non_null(strstr(text, own));
    assert_non_null(strstr(text, "test_holders_text"));
    assert_non_null(strstr(text, "  640 MiB\n      context 512 MiB, unexplained +128 MiB\n"));
}

static void test_signs(void **state) {
    set_nvml(1024, 256 * MIB, UINT64_MAX);
    const char *text = run("--device 0", 0);
    assert_non_null(strstr(text, ", 768 MiB claimed by none\n"));
    assert_non_null(strstr(text, "context 512 MiB, unexplained -256 MiB\n"));
    assert_non_null(strstr(text, "  ? GiB\n"));
    set_nvml(1024, 512 * MIB, 1024 * MIB);
    assert_non_null(strstr(run("", 0), ", claimed 512 MiB too much\n"));
}

static void test_json(void **state) {
    set_nvml(1024, 640 * MIB, UINT64_MAX);
    const char *text = run("--json --device=0", 0);
    assert_non_null(strstr(text, "\"version\": 1"));
    assert_non_null(strstr(text, "\"uuid\": \"GPU-fake-0\""));
    assert_non_null(strstr(text, "\"unclaimed_bytes\": 402653184"));
    assert_non_null(strstr(text, "\"unexplained_bytes\": 134217728"));
    assert_non_null(strstr(text, "\"physical\": true"));
    assert_non_null(strstr(text, "\"context\": 536870912"));
    assert_non_null(strstr(text, "\"device_bytes\": null"));
    assert_non_null(strstr(text, "\"dead\": true"));
}

/* A line for each GPU is all there is to say where nobody holds anything. */
static void test_idle(void **state) {
    char path[128], away[128];
    snprintf(path, sizeof path, "%s/%d-run.ledger", folder, getpid());
    snprintf(away, sizeof away, "%s/away", folder);
    assert_int_equal(rename(path, away), 0);
    setenv("FAKE_NVML", "644245094", 1);
    assert_string_equal(run("--device 0", 0),
                        "GPU 0  Fake GPU  614 MiB of 80.0 GiB used: no process\n");
    assert_int_equal(rename(away, path), 0);
}

static void test_no_such_gpu(void **state) {
    set_nvml(1024, 1, 1);
    assert_string_equal(run("--device 3", 1),
                        "cenote holders: there is no GPU 3 that answers; without --device all are "
                        "listed\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),        cmocka_unit_test(test_signs),
        cmocka_unit_test(test_json),        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_no_such_gpu),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
