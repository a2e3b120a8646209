/* Ranks explained together: which stands out, which does not though it differs, and what is
 * compared. */
#include "ranks.h"

static void identical_ranks_are_alike(void **state) {
    for (int i = 0; i < 4; i++) {
        usual(GIB);
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    says(text, "\nNO RANK STANDS OUT\n");
    says(text, "\n      1-3      5.25 ");
    says(text, " sequence  the same as the others', for all 5 allocations compared\n");
    assert_string_equal(string(get(root, "sequence"), "state"), "same");
    free(text);
    none_stands_out(root);
}

static void a_buffer_more_is_named_with_its_line(void **state) {
    for (int i = 0; i < 4; i++) {
        recording *r = rank();
        if (i == 2) {
            rec_alloc(r, 3 * GIB, 0, GATHER);
        }
        step(r, GIB);
        step(r, GIB);
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    json_t *first = json_array_get(get(root, "differences"), 0);
    says(text, "\nRANK 2 STANDS OUT: IT NEEDS 3.00 GiB MORE\n");
    says(text, " most by   3.00 GiB more: tensors, metrics.py:40\n");
    assert_int_equal(json_array_size(get(root, "differences")), 1);
    assert_int_equal(number(first, "difference_bytes"), 3 * GIB);
    assert_int_equal(number(first, "bytes"), 3 * GIB);
    assert_int_equal(number(first, "median_bytes"), 0);
    assert_int_equal(number(get(first, "at"), "line"), 40);
    free(text);
    stands_out(root, 2, "needs");
}

static void a_buffer_less_is_missing(void **state) {
    for (int i = 0; i < 5; i++) {
        recording *r = rank();
        if (i != 4) {
            rec_alloc(r, GIB, 0, GATHER);
        }
        step(r, GIB);
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    json_t *first = json_array_get(get(root, "differences"), 0);
    says(text, "\nRANK 4 STANDS OUT: IT NEEDS 1.00 GiB LESS\n");
    says(text, " most by   1.00 GiB less: tensors, metrics.py:40\n");
    assert_int_equal(number(first, "difference_bytes"), -(int64_t)GIB);
    assert_int_equal(number(first, "median_bytes"), GIB);
    free(text);
    stands_out(root, 4, "needs");
}

/* The same function and line in two files are two stacks. At the top is what goes the rank's way.
 */
static void the_main_difference_goes_the_ranks_way(void **state) {
    for (int i = 0; i < 3; i++) {
        recording *r = rank();
        if (i == 1) {
            rec_alloc(r, 2 * GIB, 0, "gather@other.py:40 < <module>@train.py:60");
            rec_alloc(r, 2 * GIB, 0, "gather@third.py:40 < <module>@train.py:60");
            rec_alloc(r, MIB, 0, "gather@fourth.py:40 < <module>@train.py:60");
        } else {
            rec_alloc(r, 3 * GIB, 0, GATHER);
        }
        step(r, GIB);
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text), *all = get(root, "differences");
    assert_int_equal(json_array_size(all), 4);
    assert_int_equal(number(json_array_get(all, 0), "difference_bytes"), -3 * (int64_t)GIB);
    assert_int_equal(number(json_array_get(all, 2), "difference_bytes"), 2 * GIB);
    says(text, " most by   2.00 GiB more: tensors, other.py:40\n");
    says(text, " and 1 smaller\n");
    assert_null(strstr(text, "fourth.py"));
    free(text);
    stands_out(root, 1, "needs");
}

static void the_one_that_failed_is_explained_though_another_is_larger(void **state) {
    for (int i = 0; i < 5; i++) {
        recording *r = usual(i == 0 ? 3 * GIB : GIB);
        if (i == 3) {
            rec_oom(r, 512 * MIB, 0, GIB, LOSS);
        }
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text), *all = get(root, "ranks");
    says(text, "\nRANK 3 RAN OUT OF MEMORY, THE OTHERS DID NOT\n");
    assert_string_equal(string(json_array_get(all, 0), "needs"), "more");
    assert_false(json_boolean_value(get(json_array_get(all, 0), "stands_out")));
    assert_true(json_boolean_value(get(json_array_get(all, 3), "failed")));
    assert_int_equal(number(json_array_get(all, 3), "requested_bytes"), 512 * MIB);
    free(text);
    stands_out(root, 3, "failed");
}

/* Rank 2 needs the most of those that failed. */
static void several_that_failed_are_named(void **state) {
    for (int i = 0; i < 5; i++) {
        recording *r = usual(GIB);
        if (i == 1 || i == 2) {
            rec_oom(r, i == 2 ? 6 * GIB : 2 * GIB, 0, GIB, LOSS);
        }
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    says(text, "\nRANKS 1-2 RAN OUT OF MEMORY, THE OTHERS DID NOT\n");
    assert_int_equal(json_array_size(get(get(root, "outlier"), "ranks")), 2);
    assert_int_equal(number(root, "explained_rank"), 2);
    assert_int_equal(number(root, "compared_ranks"), 3);
    free(text);
    json_decref(root);
}

static void where_all_failed_the_figures_tell(void **state) {
    for (int i = 0; i < 3; i++) {
        rec_oom(usual(GIB), 2 * GIB, 0, GIB, LOSS);
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    says(text, "\nNO RANK STANDS OUT: ALL RAN OUT OF MEMORY\n");
    free(text);
    none_stands_out(root);
    for (int i = 0; i < 3; i++) {
        rec_oom(usual(GIB), i == 1 ? 4 * GIB : 2 * GIB, 0, GIB, LOSS);
    }
    stands_out(explain(NULL, NULL), 1, "needs");
}

static void a_small_leak_stands_out_by_the_verdict(void **state) {
    for (int i = 0; i < 3; i++) {
        recording *r = rank();
        for (int k = 0; k < 8; k++) {
            step(r, GIB);
            if (i == 1) {
                rec_alloc(r, MIB, 0, GATHER);
            }
        }
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    says(text, "\nRANK 1 STANDS OUT BY ITS VERDICT: LEAK\n");
    free(text);
    stands_out(root, 1, "verdict");
}

static void to_be_healthy_is_no_way_to_stand_out(void **state) {
    for (int i = 0; i < 3; i++) {
        recording *r = rank();
        for (int k = 0; k < 8; k++) {
            step(r, GIB);
            if (i != 1) {
                rec_alloc(r, MIB, 0, GATHER);
            }
        }
    }
    json_t *root = explain(NULL, NULL);
    assert_string_equal(string(json_array_get(get(root, "ranks"), 0), "verdict"), "leak");
    assert_string_equal(string(json_array_get(get(root, "ranks"), 1), "verdict"), "healthy");
    none_stands_out(root);
}

/* Holding a cache is no need, but it stands out too. */
static void a_rank_that_holds_more_for_the_same_need(void **state) {
    for (int i = 0; i < 3; i++) {
        recording *r = rank();
        if (i == 0) {
            rec_free(r, rec_alloc(r, 700 * MIB, 0, GATHER));
            rec_alloc(r, 4096, 0, GATHER);
        }
        step(r, GIB);
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    says(text, "\nRANK 0 STANDS OUT: IT HOLDS 0.69 GiB MORE\n");
    assert_null(strstr(text, " most by ")); /* 4 KiB of 0.69 GiB */
    free(text);
    stands_out(root, 0, "holds");
}

/* Live are 4 GiB and 256 MiB beside the activations: 2% are over 64 MiB. */
static void the_floor_keeps_small_differences_out(void **state) {
    static const uint64_t more[] = {100 * MIB, 120 * MIB};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3; i++) {
            usual(i == 1 ? GIB + more[k] : GIB);
        }
        json_t *root = explain(NULL, NULL);
        assert_int_equal(number(root, "needed_threshold_bytes"),
                         (int64_t)(0.02 * (double)(5 * GIB + 256 * MIB)));
        if (k) {
            stands_out(root, 1, "needs");
        } else {
            none_stands_out(root);
        }
    }
}

/* Batches of different lengths: the spread of the ranks is what an outlier has to leave. */
static void noise_hides_what_lies_within_it(void **state) {
    for (int k = 0; k < 2; k++) {
        for (uint64_t i = 0; i < 9; i++) {
            usual(i == 8 ? (k ? 6 * GIB : 3 * GIB) : GIB + i * 200 * MIB);
        }
        json_t *root = explain(NULL, NULL);
        if (k) {
            stands_out(root, 8, "needs");
        } else {
            none_stands_out(root);
        }
    }
}

static void check_groups(json_t *root, const char *expected) {
    char *found = json_dumps(get(root, "groups"), JSON_COMPACT);
    assert_string_equal(found, expected);
    free(found);
}

static void two_halves_are_groups_and_no_outlier(void **state) {
    for (int i = 0; i < 6; i++) {
        usual(i < 3 ? 2 * GIB : GIB);
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    says(text, "\nNO RANK STANDS OUT; THERE ARE 2 GROUPS\n");
    says(text, " groups    ranks 0-2 need 6.25\n           ranks 3-5 need 5.25\n");
    check_groups(root, "[[0,1,2],[3,4,5]]");
    assert_true(json_is_null(get(root, "outlier")));
    assert_int_equal(number(root, "compared_ranks"), 3);
    json_t *first = json_array_get(get(root, "differences"), 0);
    assert_int_equal(number(first, "difference_bytes"), GIB);
    free(text);
    json_decref(root);
}

static void stages_of_a_pipeline_are_groups(void **state) {
    for (uint64_t i = 0; i < 8; i++) {
        usual((4 - i / 2) * GIB + i % 2 * MIB);
    }
    json_t *root = explain(NULL, NULL);
    check_groups(root, "[[0,1],[2,3],[4,5],[6,7]]");
    assert_true(json_is_null(get(root, "outlier")));
    json_decref(root);
}

/* None is usual, and none is a group; the one that needs most is explained. */
static void stages_of_a_rank_each_are_no_groups(void **state) {
    for (uint64_t i = 0; i < 4; i++) {
        usual((i + 1) * GIB);
    }
    json_t *root = explain(NULL, NULL);
    assert_int_equal(number(root, "explained_rank"), 3);
    none_stands_out(root);
}

static void a_minority_stands_out_together(void **state) {
    for (int i = 0; i < 7; i++) {
        usual(i < 2 ? 2 * GIB : GIB);
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    says(text, "\nRANKS 0-1 STAND OUT TOGETHER: RANK 0 NEEDS 1.00 GiB MORE\n");
    check_groups(root, "[[0,1],[2,3,4,5,6]]");
    assert_int_equal(number(root, "compared_ranks"), 5);
    free(text);
    json_decref(root);
    for (int i = 0; i < 7; i++) {
        usual(i == 1 ? 3 * GIB : i == 3 ? GIB : 2 * GIB);
    }
    root = explain(NULL, &text);
    says(text, "\nRANKS 1, 3 STAND OUT IN TWO WAYS: RANK 1 NEEDS 1.00 GiB MORE\n");
    free(text);
    json_decref(root);
}

static void of_two_ranks_the_larger_is_said_to_be_weak(void **state) {
    usual(GIB);
    usual(2 * GIB);
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    says(text, "\nRANK 1 STANDS OUT: IT NEEDS 1.00 GiB MORE\n");
    says(text, " note      of two ranks neither is the usual one: a third would tell\n");
    assert_true(json_boolean_value(get(get(root, "outlier"), "weak")));
    free(text);
    stands_out(root, 1, "needs");
    usual(GIB);
    usual(GIB + 100 * MIB);
    none_stands_out(explain(NULL, NULL));
    usual(GIB);
    rec_oom(usual(GIB), 8 * GIB, 0, GIB, LOSS);
    root = explain(NULL, &text);
    assert_null(strstr(text, " note  "));
    assert_false(json_boolean_value(get(get(root, "outlier"), "weak")));
    free(text);
    stands_out(root, 1, "failed");
}

static void sequence_is(json_t *root, const char *expected, int64_t equal) {
    json_t *sequence = get(root, "sequence");
    assert_string_equal(string(sequence, "state"), expected);
    assert_int_equal(number(sequence, "equal_allocations"), equal);
    json_decref(root);
}

static void a_sequence_departs_at_another_size_or_line(void **state) {
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3; i++) {
            recording *r = usual(GIB);
            rec_alloc(r, k == 0 && i == 1 ? 9 * MIB : 8 * MIB, 0, k && i == 1 ? LOSS : GATHER);
            rec_oom(r, i == 1 ? 4 * GIB : MIB, 0, GIB, LOSS);
        }
        json_t *root = explain(NULL, NULL), *sequence = get(root, "sequence");
        json_t *here = get(sequence, "here"), *there = get(sequence, "there");
        assert_int_equal(number(here, "rank"), 1);
        assert_int_equal(number(there, "rank"), 0);
        assert_int_equal(number(here, "bytes"), k ? 8 * MIB : 9 * MIB);
        assert_int_equal(number(there, "bytes"), 8 * MIB);
        assert_string_equal(string(get(here, "at"), "file"), k ? "loss.py" : "metrics.py");
        sequence_is(root, "departs", 5);
    }
}

/* Where more than half of the others are not one way, nothing is told of the one explained. */
static void others_that_differ_tell_nothing(void **state) {
    static const uint64_t sizes[] = {1, 2, 3, 4};
    for (size_t i = 0; i < 4; i++) {
        recording *r = usual(GIB);
        rec_alloc(r, sizes[i] * MIB, 0, GATHER);
    }
    sequence_is(explain(NULL, NULL), "mixed", 5);
    static const uint64_t halves[] = {1, 2, 2, 3, 3};
    for (size_t i = 0; i < 5; i++) {
        recording *r = usual(GIB);
        rec_alloc(r, halves[i] * MIB, 0, GATHER);
    }
    sequence_is(explain(NULL, NULL), "mixed", 5);
    static const uint64_t most[] = {9, 2, 2, 3};
    for (size_t i = 0; i < 4; i++) {
        recording *r = usual(GIB);
        rec_alloc(r, most[i] * MIB, 0, GATHER);
    }
    sequence_is(explain(NULL, NULL), "departs", 5);
}

static void without_a_history_no_sequence_is_compared(void **state) {
    for (int i = 0; i < 3; i++) {
        usual(GIB)->no_history = true;
    }
    sequence_is(explain(NULL, NULL), "none", 0);
    /* Blocks that are alive but were never allocated: the ring buffer lost the start. */
    for (int i = 0; i < 3; i++) {
        recording *r = rank();
        r->event_count = 0;
        step(r, GIB);
    }
    sequence_is(explain(NULL, NULL), "start-lost", 0);
    for (int i = 0; i < 3; i++) {
        recording *r = rank();
        r->event_count = i == 2 ? r->event_count : 0;
        step(r, i == 2 ? 3 * GIB : GIB);
    }
    sequence_is(explain(NULL, NULL), "none", 0);
}

static void blocks_without_frames_are_compared_by_kind(void **state) {
    for (int i = 0; i < 3; i++) {
        recording *r = usual(GIB);
        rec_alloc(r, i == 1 ? 5 * GIB : 3 * GIB, 0, NULL);
    }
    json_t *root = explain(NULL, NULL), *first = json_array_get(get(root, "differences"), 0);
    assert_int_equal(number(first, "difference_bytes"), 2 * GIB);
    assert_true(json_is_null(get(first, "at")));
    stands_out(root, 1, "needs");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identical_ranks_are_alike),
        cmocka_unit_test(a_buffer_more_is_named_with_its_line),
        cmocka_unit_test(a_buffer_less_is_missing),
        cmocka_unit_test(the_main_difference_goes_the_ranks_way),
        cmocka_unit_test(the_one_that_failed_is_explained_though_another_is_larger),
        cmocka_unit_test(several_that_failed_are_named),
        cmocka_unit_test(where_all_failed_the_figures_tell),
        cmocka_unit_test(a_small_leak_stands_out_by_the_verdict),
        cmocka_unit_test(to_be_healthy_is_no_way_to_stand_out),
        cmocka_unit_test(a_rank_that_holds_more_for_the_same_need),
        cmocka_unit_test(the_floor_keeps_small_differences_out),
        cmocka_unit_test(noise_hides_what_lies_within_it),
        cmocka_unit_test(two_halves_are_groups_and_no_outlier),
        cmocka_unit_test(stages_of_a_pipeline_are_groups),
        cmocka_unit_test(stages_of_a_rank_each_are_no_groups),
        cmocka_unit_test(a_minority_stands_out_together),
        cmocka_unit_test(of_two_ranks_the_larger_is_said_to_be_weak),
        cmocka_unit_test(a_sequence_departs_at_another_size_or_line),
        cmocka_unit_test(others_that_differ_tell_nothing),
        cmocka_unit_test(without_a_history_no_sequence_is_compared),
        cmocka_unit_test(blocks_without_frames_are_compared_by_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
