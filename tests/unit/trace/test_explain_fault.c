/* Every allocation of an explanation fails once: the call says so, sets nothing and leaks nothing
 * (the leaks show under the address sanitizer). */
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

static cen_status whole(void) {
    cen_explanation *explanation = NULL;
    char *text = NULL, *json = NULL;
    cen_status status = cen_explain(snapshot, NULL, &explanation);
    assert_true((status == CEN_OK) == (explanation != NULL));
    if (!status) {
        status = cen_explain_text(explanation, &text);
        assert_true((status == CEN_OK) == (text != NULL));
    }
    if (!status) {
        status = cen_explain_json(explanation, &json);
        assert_true((status == CEN_OK) == (json != NULL));
    }
    free(text);
    free(json);
    cen_explanation_free(explanation);
    return status;
}

static void each_allocation_may_fail(void **state) {
    int failed = 0;
    for (int64_t n = 1;; n++) {
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], n, false);
        cen_status status = whole();
        bool passed = ceni_fault_points[CENI_FAULT_HOST_MEMORY].left > 0;
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        if (passed) {
            assert_int_equal(status, CEN_OK);
            break;
        }
        assert_int_equal(status, CEN_ERR_HOST_MEMORY);
        failed++;
    }
    assert_true(failed > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_allocation_may_fail, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
