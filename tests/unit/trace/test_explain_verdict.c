/* Verdicts on made recordings: each is the smallest history that deserves its verdict, next to
 * those that look alike and do not. */
#include "recording.h"

#include <jansson.h>

static const char *const FORWARD = "linear@lib/python3.12/site-packages/torch/nn/functional.py:9 < "
                                   "forward@model.py:7 < step@train.py:20";
static const char *const KEEP = "keep@train.py:33 < <module>@train.py:40";
static const char *const STATE =
    "_init_group@lib/python3.12/site-packages/torch/optim/adam.py:1 < <module>@train.py:41";

/* The explanation as JSON. Frees the recording. */
static json_t *explain(recording *r, uint64_t cap, uint64_t total) {
    cen_snapshot *snapshot = rec_read(r);
    cen_explain_options options = {sizeof options, "recording", cap, total};
    cen_explanation *explanation = NULL;
    char *json = NULL, *text = NULL;
    assert_int_equal(cen_explain(snapshot, &options, &explanation), CEN_OK);
    assert_int_equal(cen_explain_json(explanation, &json), CEN_OK);
    assert_int_equal(cen_explain_text(explanation, &text), CEN_OK);
    json_t *root = json_loads(json, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "verdict")),
                        cen_verdict_name(cen_explanation_verdict(explanation)));
    free(json);
    free(text);
    cen_explanation_free(explanation);
    cen_snapshot_free(snapshot);
    return root;
}

static void expect(json_t *root, const char *verdict, const char *next) {
    assert_string_equal(json_string_value(json_object_get(root, "verdict")), verdict);
    if (next) {
        assert_string_equal(json_string_value(json_object_get(root, "next")), next);
    }
}

static size_t suspects(json_t *root) {
    return json_array_size(json_object_get(root, "suspects"));
}

static int64_t number(json_t *root, const char *key) {
    return json_integer_value(json_object_get(root, key));
}

/* One step's own memory: `size` of activations, freed, and the step's end. */
static void plain_step(recording *r, uint64_t size) {
    size_t a = rec_alloc(r, size, 0, FORWARD), b = rec_alloc(r, size / 2, 0, NULL);
    rec_free(r, b);
    rec_free(r, a);
    rec_step_end(r);
}

static void leak_is_one_stack_growing_each_step(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 10; i++) {
        rec_alloc(r, 3 * MIB, 0, KEEP);
        plain_step(r, 64 * MIB);
    }
    plain_step(r, 64 * MIB);
    json_t *root = explain(r, 200 * MIB, 0);
    expect(root, "leak", NULL);
    assert_int_equal(suspects(root), 1);
    json_t *suspect = json_array_get(json_object_get(root, "suspects"), 0);
    assert_true(json_real_value(json_object_get(suspect, "bytes_per_step")) == 3.0 * MIB);
    assert_int_equal(number(suspect, "blocks"), 10);
    json_t *frame = json_array_get(json_object_get(suspect, "frames"), 0);
    assert_int_equal(number(frame, "line"), 33);
    assert_true(json_real_value(json_object_get(suspect, "steps_to_cap")) > 1);
    json_decref(root);
}

static void leak_every_third_step_is_still_one(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 26; i++) {
        if (i % 3 == 0) {
            rec_alloc(r, 3 * MIB, 0, KEEP);
        }
        plain_step(r, 64 * MIB);
    }
    json_t *root = explain(r, 0, 0);
    expect(root, "leak", NULL);
    json_decref(root);
}

static void leak_without_marks_is_found_by_inferred_steps(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 12; i++) {
        rec_alloc(r, 3 * MIB, 0, KEEP);
        size_t a = rec_alloc(r, 64 * MIB, 0, FORWARD), b = rec_alloc(r, 64 * MIB, 0, FORWARD);
        rec_free(r, a);
        rec_free(r, b);
    }
    json_t *root = explain(r, 0, 0);
    expect(root, "leak", NULL);
    json_t *steps = json_object_get(root, "steps");
    assert_string_equal(json_string_value(json_object_get(steps, "from")), "inferred");
    json_decref(root);
}

static void leak_that_fails_is_a_leak_when_without_it_all_had_fitted(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 12; i++) {
        rec_alloc(r, 8 * MIB, 0, KEEP);
        plain_step(r, 64 * MIB);
    }
    rec_oom(r, 64 * MIB, 0, 10 * GIB, FORWARD);
    json_t *root = explain(r, 150 * MIB, 0);
    expect(root, "leak", NULL);
    json_decref(root);
}

static void three_steps_are_too_few_for_a_leak(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 3; i++) {
        rec_alloc(r, 3 * MIB, 0, KEEP);
        rec_alloc(r, 3 * MIB, 0, KEEP);
        plain_step(r, 64 * MIB);
    }
    rec_alloc(r, 512, 0, FORWARD);
    json_t *root = explain(r, 0, 0);
    expect(root, "healthy", NULL);
    json_decref(root);
}

static void optimizer_states_are_created_once(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 10; i++) {
        size_t a = rec_alloc(r, 64 * MIB, 0, FORWARD);
        for (int k = 0; k < 20 && i == 0; k++) {
            rec_alloc(r, MIB, 0, STATE);
        }
        rec_free(r, a);
        rec_step_end(r);
    }
    json_t *root = explain(r, 0, 0);
    expect(root, "healthy", NULL);
    assert_int_equal(suspects(root), 0);
    json_decref(root);
}

static void states_of_experts_come_late_and_fade(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < (i < 4 ? 20 >> i : 0); k++) {
            rec_alloc(r, MIB, 0, KEEP);
        }
        plain_step(r, 64 * MIB);
    }
    json_t *root = explain(r, 0, 0);
    expect(root, "healthy", NULL);
    json_decref(root);
}

static void what_fades_is_no_leak(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 12; i++) {
        for (int k = 0; k < (i < 5 ? 30 : 1); k++) {
            rec_alloc(r, MIB, 0, KEEP);
        }
        plain_step(r, 64 * MIB);
    }
    json_t *root = explain(r, 0, 0);
    assert_int_equal(suspects(root), 0);
    json_decref(root);
}

static void a_longer_first_step_does_not_hide_inferred_steps(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 12; i++) {
        rec_alloc(r, 3 * MIB, 0, KEEP);
        for (int k = 0; k < (i ? 8 : 12); k++) {
            rec_free(r, rec_alloc(r, 8 * MIB, 0, FORWARD));
        }
    }
    json_t *root = explain(r, 0, 0);
    expect(root, "leak", NULL);
    json_decref(root);
}

static void states_of_a_small_model_do_not_hide_inferred_steps(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 12; i++) {
        rec_alloc(r, 3 * MIB, 0, KEEP);
        for (int j = 0; j < 6; j++) {
            rec_free(r, rec_alloc(r, 64 * MIB, 0, FORWARD));
        }
        for (int j = 0; i == 0 && j < 24; j++) {
            rec_alloc(r, MIB, 0, STATE);
        }
    }
    json_t *root = explain(r, 0, 0);
    expect(root, "leak", NULL);
    json_decref(root);
}

static void a_small_job_has_some_unused(void **state) {
    recording *r = rec_new();
    rec_segment(r, 60 * MIB, 0, 0);
    rec_alloc(r, 30 * MIB, 0, KEEP);
    json_t *root = explain(r, 0, 0);
    expect(root, "healthy", NULL);
    json_decref(root);
}

static void unsteady_peaks_forecast_nothing(void **state) {
    static const uint64_t sizes[] = {100, 110, 120, 130, 140, 150, 170, 170};
    recording *r = rec_new();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        plain_step(r, sizes[i] * MIB);
    }
    json_t *root = explain(r, 0, 0);
    assert_int_equal(number(json_object_get(root, "steps"), "growth_bytes"), 0);
    assert_true(json_is_null(json_object_get(root, "next_sufficient_bytes")));
    json_decref(root);
}

static void a_cache_that_is_dropped_is_no_leak(void **state) {
    recording *r = rec_new();
    size_t cache[8];
    for (int i = 0; i < 30; i++) {
        cache[i % 8] = rec_alloc(r, 4 * MIB, 0, KEEP);
        plain_step(r, 64 * MIB);
        for (int k = 0; k < 8 && i % 8 == 7; k++) {
            rec_free(r, cache[k]);
        }
    }
    json_t *root = explain(r, 0, 0);
    assert_int_equal(suspects(root), 0);
    assert_string_not_equal(json_string_value(json_object_get(root, "verdict")), "leak");
    json_decref(root);
}

static void the_last_loss_is_replaced_a_step_later(void **state) {
    recording *r = rec_new();
    size_t last = 0;
    for (int i = 0; i < 12; i++) {
        size_t loss = rec_alloc(r, 512, 0, KEEP);
        if (i) {
            rec_free(r, last);
        }
        last = loss;
        plain_step(r, 64 * MIB);
    }
    json_t *root = explain(r, 0, 0);
    assert_int_equal(suspects(root), 0);
    json_decref(root);
}

static void numbers_kept_alone_are_named_but_no_leak(void **state) {
    recording *r = rec_new();
    rec_alloc(r, 2 * GIB, 0, NULL);
    rec_segment(r, 2 * MIB, 0, 0);
    for (int i = 0; i < 12; i++) {
        rec_alloc(r, 4, 0, KEEP);
        rec_step_end(r);
    }
    json_t *root = explain(r, 0, 0);
    expect(root, "healthy", NULL);
    assert_int_equal(suspects(root), 1);
    json_decref(root);
}

static void growing_work_is_a_forecast_and_no_leak(void **state) {
    recording *r = rec_new();
    for (uint64_t i = 0; i < 6; i++) {
        plain_step(r, (100 + 10 * i) * MIB);
    }
    json_t *root = explain(r, 230 * MIB, 0);
    assert_int_equal(suspects(root), 0);
    assert_int_equal(number(json_object_get(root, "steps"), "growth_bytes"), 15 * MIB);
    assert_int_equal(number(root, "next_sufficient_bytes"), 240 * MIB);
    assert_string_equal(json_string_value(json_object_get(root, "next")), "capacity");
    json_decref(root);
}

static void capacity_is_more_needed_than_allowed(void **state) {
    recording *r = rec_new();
    rec_alloc(r, 900 * MIB, 0, KEEP);
    rec_oom(r, 200 * MIB, 0, 10 * GIB, FORWARD);
    json_t *root = explain(r, 1000 * MIB, 0);
    expect(root, "capacity", "capacity");
    assert_int_equal(number(root, "sufficient_bytes"), 1100 * MIB);
    assert_int_equal(number(root, "over_bytes"), 100 * MIB);
    json_decref(root);
}

/* Four segments of 100 MiB, the first half of each live, on a stream and in a pool. */
static recording *half_empty(uint64_t stream, int pool) {
    recording *r = rec_new();
    size_t second[4];
    for (int i = 0; i < 4; i++) {
        rec_segment(r, 100 * MIB, stream, pool);
        rec_alloc(r, 50 * MIB, stream, KEEP);
        second[i] = rec_alloc(r, 50 * MIB, stream, FORWARD);
    }
    for (int i = 0; i < 4; i++) {
        rec_free(r, second[i]);
    }
    return r;
}

static void fragmentation_fits_packed(void **state) {
    recording *r = half_empty(0, 0);
    rec_oom(r, 150 * MIB, 0, 10 * GIB, FORWARD);
    json_t *root = explain(r, 500 * MIB, 0);
    expect(root, "fragmentation", "fragmentation");
    assert_int_equal(number(root, "over_bytes"), 50 * MIB);
    json_t *holes = json_object_get(root, "holes");
    assert_int_equal(number(holes, "holes"), 4);
    assert_int_equal(number(holes, "hole_bytes"), 200 * MIB);
    assert_int_equal(number(holes, "largest_hole_bytes"), 50 * MIB);
    json_decref(root);
}

static void holes_on_another_stream_are_stranded(void **state) {
    recording *r = half_empty(7, 0);
    rec_oom(r, 150 * MIB, 0, 10 * GIB, FORWARD);
    json_t *root = explain(r, 500 * MIB, 0);
    expect(root, "stranded-stream", NULL);
    json_decref(root);
}

static void holes_in_private_pools_are_stranded(void **state) {
    recording *r = half_empty(7, 3);
    rec_oom(r, 150 * MIB, 0, 10 * GIB, FORWARD);
    json_t *root = explain(r, 500 * MIB, 0);
    expect(root, "stranded-pool", NULL);
    json_t *pool = json_array_get(json_object_get(root, "pools"), 0);
    assert_int_equal(number(pool, "held_bytes"), 400 * MIB);
    json_t *owner = json_array_get(json_object_get(pool, "owners"), 0);
    assert_int_equal(number(json_object_get(owner, "at"), "line"), 33);
    json_decref(root);
}

static void outside_is_a_full_device_held_by_others(void **state) {
    for (int by_total = 0; by_total < 2; by_total++) {
        recording *r = rec_new();
        rec_alloc(r, 900 * MIB, 0, KEEP);
        rec_oom(r, 200 * MIB, 0, 100 * MIB, FORWARD);
        json_t *root = explain(r, by_total ? 0 : 4 * GIB, by_total ? 8 * GIB : 0);
        expect(root, "outside", NULL);
        assert_int_equal(number(root, "cap_bytes"), 1000 * MIB);
        assert_int_equal(number(root, "outside_bytes"), by_total ? 8 * GIB - 1000 * MIB : 0);
        json_decref(root);
    }
}

static void a_full_device_of_our_own_is_capacity(void **state) {
    recording *r = rec_new();
    rec_alloc(r, 900 * MIB, 0, KEEP);
    rec_oom(r, 200 * MIB, 0, 100 * MIB, FORWARD);
    json_t *root = explain(r, 0, 1010 * MIB);
    expect(root, "capacity", NULL);
    json_decref(root);
}

static void a_cap_that_cannot_have_refused_is_not_believed(void **state) {
    recording *r = half_empty(0, 0);
    rec_oom(r, 150 * MIB, 0, 10 * GIB, FORWARD);
    json_t *root = explain(r, 8 * GIB, 0);
    assert_true(json_is_true(json_object_get(root, "cap_given_contradicted")));
    assert_string_equal(json_string_value(json_object_get(root, "cap_from")), "bracketed");
    assert_int_equal(number(root, "cap_low_bytes"), 400 * MIB);
    assert_int_equal(number(root, "cap_high_bytes"), 550 * MIB);
    json_decref(root);
}

static void a_state_alone_is_judged_as_it_stands(void **state) {
    recording *r = half_empty(0, 0);
    r->no_history = true;
    json_t *root = explain(r, 0, 0);
    expect(root, "fragmentation", NULL);
    assert_true(json_is_null(json_object_get(root, "next")));
    assert_string_equal(json_string_value(json_object_get(root, "moment")), "state");
    assert_int_equal(number(root, "live_bytes"), 200 * MIB);
    json_decref(root);
}

static void backward_blocks_are_attributed_by_size(void **state) {
    recording *r = rec_new();
    rec_alloc(r, 40 * MIB, 0,
              "cross_entropy@lib/python3.12/site-packages/torch/nn/functional.py:3 < "
              "forward@model.py:51");
    rec_alloc(r, 40 * MIB, 0, NULL);
    rec_alloc(r, MIB / 2, 0, FORWARD);
    rec_alloc(r, MIB / 2, 0, NULL); /* too small to be inferred */
    rec_oom(r, 40 * MIB, 0, 10 * GIB, NULL);
    json_t *root = explain(r, 100 * MIB, 0);
    json_t *owner = json_array_get(json_object_get(root, "owners"), 0);
    assert_string_equal(json_string_value(json_object_get(owner, "label")),
                        "cross_entropy x3, model.py:51 (2 by inference)");
    assert_int_equal(number(owner, "bytes"), 120 * MIB);
    assert_true(json_is_true(json_object_get(json_object_get(root, "failed"), "inferred")));
    for (size_t i = 1; i < 3; i++) {
        owner = json_array_get(json_object_get(root, "owners"), i);
        assert_int_equal(number(owner, "bytes"), MIB / 2);
        assert_int_equal(number(owner, "inferred_blocks"), 0);
    }
    json_decref(root);
}

static void wrong_arguments_are_refused(void **state) {
    cen_explanation *explanation = NULL;
    assert_int_equal(cen_explain(NULL, NULL, &explanation), CEN_ERR_INVALID);
    assert_null(explanation);
    cen_explanation_free(NULL);
    assert_string_equal(cen_verdict_name((cen_verdict)99), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leak_is_one_stack_growing_each_step),
        cmocka_unit_test(leak_every_third_step_is_still_one),
        cmocka_unit_test(leak_without_marks_is_found_by_inferred_steps),
        cmocka_unit_test(leak_that_fails_is_a_leak_when_without_it_all_had_fitted),
        cmocka_unit_test(three_steps_are_too_few_for_a_leak),
        cmocka_unit_test(optimizer_states_are_created_once),
        cmocka_unit_test(states_of_experts_come_late_and_fade),
        cmocka_unit_test(what_fades_is_no_leak),
        cmocka_unit_test(a_longer_first_step_does_not_hide_inferred_steps),
        cmocka_unit_test(states_of_a_small_model_do_not_hide_inferred_steps),
        cmocka_unit_test(a_small_job_has_some_unused),
        cmocka_unit_test(unsteady_peaks_forecast_nothing),
        cmocka_unit_test(a_cache_that_is_dropped_is_no_leak),
        cmocka_unit_test(the_last_loss_is_replaced_a_step_later),
        cmocka_unit_test(numbers_kept_alone_are_named_but_no_leak),
        cmocka_unit_test(growing_work_is_a_forecast_and_no_leak),
        cmocka_unit_test(capacity_is_more_needed_than_allowed),
        cmocka_unit_test(fragmentation_fits_packed),
        cmocka_unit_test(holes_on_another_stream_are_stranded),
        cmocka_unit_test(holes_in_private_pools_are_stranded),
        cmocka_unit_test(outside_is_a_full_device_held_by_others),
        cmocka_unit_test(a_full_device_of_our_own_is_capacity),
        cmocka_unit_test(a_cap_that_cannot_have_refused_is_not_believed),
        cmocka_unit_test(a_state_alone_is_judged_as_it_stands),
        cmocka_unit_test(backward_blocks_are_attributed_by_size),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
