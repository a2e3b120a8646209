/* Whatever fails while a ledger is made, written or read: it is told, nothing is lost but what is
 * counted as lost, and the ledger can be read afterwards. */
#include "tests/unit/ledger/ledger_tests.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/fault.h"

static void disarm(void) {
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], 0, false);
}

/* Everything once; true: nothing failed. What failed is checked to be counted. */
static bool exercise(const char *path, bool *read_whole) {
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    cen_ledger_options options = {.size = sizeof options, .stacks = CEN_TRACE_NATIVE_STACKS};
    uint64_t added = 0;
    bool good = true;
    *read_whole = false;
    if (cen_ledger_create(path, &options, &ledger)) {
        return false;
    }
    for (uint64_t i = 0; i < 1500; i++) {
        char name[64];
        snprintf(name, sizeof name, "a function with quite a long name %d", (int)i);
        uint32_t stack = i % 2 ? stack_named(ledger, name) : cen_ledger_stack_here(ledger, 0);
        good &= stack != CEN_LEDGER_NO_STACK;
        cen_ledger_entry entry = an_entry(CEN_LEDGER_MEMORY, i, 100, stack);
        cen_status status = cen_ledger_add(ledger, &entry);
        assert_true(!status || status == CEN_ERR_HOST_MEMORY || status == CEN_ERR_IO);
        good &= !status;
        added += !status;
    }
    assert_int_equal(cen_ledger_held_bytes(ledger, 0), 100 * added);
    char *text = NULL, *json = NULL;
    cen_snapshot *snapshot = NULL;
    cen_status status = cen_ledger_read(path, &view, NULL);
    if (!status) {
        const cen_ledger_info *info = cen_ledger_view_info(view);
        assert_int_equal(info->adds, added);
        assert_int_equal(info->lost, 1500 - added);
        *read_whole = true;
        good &= !cen_ledger_leaks_text(view, 0, &text, NULL);
        good &= !cen_ledger_leaks_json(view, &json, NULL);
        good &= !cen_ledger_view_snapshot(view, &snapshot);
    }
    free(text);
    free(json);
    cen_snapshot_free(snapshot);
    cen_ledger_view_free(view);
    cen_ledger_watch *watch = NULL;
    good &= !cen_ledger_watch_open(path, &watch);
    cen_ledger_watch_close(watch);
    cen_ledger_close(ledger);
    return good && !status;
}

static void sweep(enum ceni_fault_point point, bool sticky) {
    const char *path = fresh_path();
    int64_t n = 1;
    bool whole, done = false;
    for (; !done && n < 100000; n += n < 100 ? 1 : n / 8) {
        ceni_fault_set(&ceni_fault_points[point], n, sticky);
        bool good = exercise(path, &whole);
        done = atomic_load(&ceni_fault_points[point].left) > 0 &&
               (!sticky || good); /* it was not reached */
        disarm();
        assert_true(!done || (good && whole));
    }
    assert_true(done && n > 20);
    assert_true(exercise(path, &whole) && whole);
    unlink(path);
}

static void test_memory(void **state) {
    sweep(CENI_FAULT_HOST_MEMORY, false);
}

static void test_memory_for_good(void **state) {
    sweep(CENI_FAULT_HOST_MEMORY, true);
}

static void test_io(void **state) {
    sweep(CENI_FAULT_IO, false);
}

static void test_io_for_good(void **state) {
    sweep(CENI_FAULT_IO, true);
}

/* A limit on the file's size, as on a full disk: the process lives, entries are lost and counted,
 * and as many are kept as there is room for. */
static void test_full(void **state) {
    enum { ADDS = 10000 };
    const char *path = fresh_path();
    pid_t child = fork();
    if (!child) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20});
        cen_ledger *ledger = NULL;
        cen_status status = cen_ledger_create(path, NULL, &ledger);
        uint64_t lost = 0;
        for (uint64_t i = 0; !status && i < ADDS; i++) {
            cen_ledger_entry entry = an_entry(CEN_LEDGER_MEMORY, i, 100, CEN_LEDGER_NO_STACK);
            lost += cen_ledger_add(ledger, &entry) == CEN_ERR_IO;
        }
        cen_ledger_close(ledger);
        _exit(!status && lost > 1000 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    cen_ledger_view *view = NULL;
    OK(cen_ledger_read(path, &view, NULL));
    const cen_ledger_info *info = cen_ledger_view_info(view);
    assert_int_equal(info->adds + info->lost, ADDS);
    assert_true(info->adds > 3000);
    cen_ledger_view_free(view);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory), cmocka_unit_test(test_memory_for_good),
        cmocka_unit_test(test_io),     cmocka_unit_test(test_io_for_good),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
