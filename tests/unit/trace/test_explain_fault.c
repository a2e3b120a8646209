/* Every allocation and every look at a file of an explanation fails once: the call says so, sets
 * nothing and leaks nothing (the leaks show under the address sanitizer). */
#include "recording.h"

#include "base/fault.h"

static cen_snapshot *snapshot;

static int make(void **state) {
    recording *r = rec_new();
    rec_segment(r, 40 * MIB, 5, 2);
    for (int i = 0; i < 8; i++) {
        rec_alloc(r, MIB, 5, "keep@train.py:3 < <module>@train.py:9");
        rec_free(r, rec_alloc(r, 8 * MIB, 0, "forward@model.py:7"));
        rec_free(r, rec_alloc(r, 8 * MIB, 0, NULL));
        rec_step_end(r);
    }
    rec_oom(r, 64 * MIB, 0, GIB, NULL);
    snapshot = rec_read(r);
    return 0;
}

static int drop(void **state) {
    cen_snapshot_free(snapshot);
    return 0;
}

static cen_status print_both(const cen_explanation *explanation) {
    char *text = NULL, *json = NULL;
    cen_status status = cen_explain_text(explanation, &text);
    assert_true((status == CEN_OK) == (text != NULL));
    if (!status) {
        status = cen_explain_json(explanation, &json);
        assert_true((status == CEN_OK) == (json != NULL));
    }
    free(text);
    free(json);
    return status;
}

static cen_status one(void) {
    cen_explanation *explanation = NULL;
    cen_status status = cen_explain(snapshot, NULL, &explanation);
    assert_true((status == CEN_OK) == (explanation != NULL));
    status = status ? status : print_both(explanation);
    cen_explanation_free(explanation);
    return status;
}

/* Three ranks of which one is another program. */
static cen_status ranks(void) {
    static const char *const paths[] = {TEST_DATA "/ranks/plain.pickle.gz",
                                        TEST_DATA "/ranks/extra.pickle.gz",
                                        TEST_DATA "/ranks/plain.pickle.gz"};
    cen_explanation *explanation = NULL;
    cen_status status = cen_explain_rank_files(paths, 3, NULL, &explanation);
    assert_true((status == CEN_OK) == (explanation != NULL));
    status = status ? status : print_both(explanation);
    cen_explanation_free(explanation);
    return status;
}

/* Each call that passes the point fails once. */
static void sweep(enum ceni_fault_point point, cen_status expected, cen_status (*whole)(void),
                  int at_least) {
    int failed = 0;
    for (int64_t n = 1;; n++) {
        ceni_fault_set(&ceni_fault_points[point], n, false);
        cen_status status = whole();
        bool passed = ceni_fault_points[point].left > 0;
        ceni_fault_set(&ceni_fault_points[point], 0, false);
        if (passed) {
            assert_int_equal(status, CEN_OK);
            break;
        }
        assert_int_equal(status, expected);
        failed++;
    }
    assert_true(failed >= at_least);
}

static void each_allocation_may_fail(void **state) {
    sweep(CENI_FAULT_HOST_MEMORY, CEN_ERR_HOST_MEMORY, one, 20);
}

static void each_allocation_for_ranks_may_fail(void **state) {
    sweep(CENI_FAULT_HOST_MEMORY, CEN_ERR_HOST_MEMORY, ranks, 200);
}

/* Three files are looked at, and read; then two again. */
static void each_look_at_a_file_may_fail(void **state) {
    sweep(CENI_FAULT_IO, CEN_ERR_IO, ranks, 3 + 2 * (3 + 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_allocation_may_fail, make, drop),
        cmocka_unit_test(each_allocation_for_ranks_may_fail),
        cmocka_unit_test(each_look_at_a_file_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
