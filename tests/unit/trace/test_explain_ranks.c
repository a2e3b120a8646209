/* Ranks explained together: which stands out, which does not though it differs, what is compared,
 * and which rank a file's name stands for. */
#include "recording.h"

#include <jansson.h>

static const char *const WEIGHTS = "__init__@model.py:5 < <module>@train.py:60";
static const char *const FORWARD = "forward@model.py:12 < step@train.py:31 < <module>@train.py:60";
static const char *const LOSS = "chunked_loss@loss.py:7 < step@train.py:31 < <module>@train.py:60";
static const char *const GATHER = "gather@metrics.py:40 < <module>@train.py:60";

enum { MAX_RANKS = 128 };

static recording *ranks[MAX_RANKS];
static size_t rank_count;

/* A rank of the job, with its weights; its steps are for the test. */
static recording *rank(void) {
    recording *r = rec_new();
    rec_alloc(r, 4 * GIB, 0, WEIGHTS);
    ranks[rank_count++] = r;
    return r;
}

static void step(recording *r, uint64_t activations) {
    size_t a = rec_alloc(r, activations, 0, FORWARD), b = rec_alloc(r, 256 * MIB, 0, LOSS);
    rec_free(r, b);
    rec_free(r, a);
    rec_step_end(r);
}

/* A rank of two steps. */
static recording *usual(uint64_t activations) {
    recording *r = rank();
    step(r, activations);
    step(r, activations);
    return r;
}

static void check_width(const char *text) {
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        if (strcspn(line, "\n") > 80) {
            fail_msg("over 80 columns: %.*s", (int)strcspn(line, "\n"), line);
        }
    }
}

/* The explanation of the ranks made so far, as JSON and as text, which the caller frees if it wants
 * it. names NULL: rank0 and so on. */
static json_t *explain(const char *const *names, char **text) {
    cen_snapshot *snapshots[MAX_RANKS];
    const char *given[MAX_RANKS];
    char made[MAX_RANKS][32], *json = NULL, *printed = NULL;
    cen_explain_options options = {.size = sizeof options};
    cen_explanation *e = NULL;
    for (size_t i = 0; i < rank_count; i++) {
        snapshots[i] = rec_read(ranks[i]);
        snprintf(made[i], sizeof made[i], "rank%zu.pickle", i);
        given[i] = names ? names[i] : made[i];
    }
    assert_int_equal(
        cen_explain_ranks((const cen_snapshot *const *)snapshots, given, rank_count, &options, &e),
        CEN_OK);
    assert_int_equal(cen_explain_json(e, &json), CEN_OK);
    assert_int_equal(cen_explain_text(e, &printed), CEN_OK);
    check_width(printed);
    json_t *root = json_loads(json, 0, NULL);
    assert_non_null(root);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(root, "explanation"), "verdict")),
        cen_verdict_name(cen_explanation_verdict(e)));
    cen_explanation_free(e);
    for (size_t i = 0; i < rank_count; i++) {
        cen_snapshot_free(snapshots[i]);
    }
    rank_count = 0;
    free(json);
    if (text) {
        *text = printed;
    } else {
        free(printed);
    }
    return root;
}

static json_t *get(json_t *root, const char *key) {
    json_t *value = json_object_get(root, key);
    assert_non_null(value);
    return value;
}

static int64_t number(json_t *root, const char *key) {
    return json_integer_value(get(root, key));
}

static const char *string(json_t *root, const char *key) {
    return json_string_value(get(root, key));
}

static void says(const char *text, const char *part) {
    if (!strstr(text, part)) {
        fail_msg("'%s' is not in:\n%s", part, text);
    }
}

/* That one rank stands out, and why. Frees root. */
static void stands_out(json_t *root, int64_t which, const char *reason) {
    json_t *outlier = get(root, "outlier");
    assert_true(json_is_object(outlier));
    assert_int_equal(number(outlier, "rank"), which);
    assert_int_equal(json_array_size(get(outlier, "ranks")), 1);
    assert_string_equal(string(outlier, "reason"), reason);
    assert_int_equal(number(root, "explained_rank"), which);
    json_decref(root);
}

static void none_stands_out(json_t *root) {
    assert_true(json_is_null(get(root, "outlier")));
    assert_int_equal(json_array_size(get(root, "groups")), 0);
    assert_int_equal(json_array_size(get(root, "differences")), 0);
    json_decref(root);
}

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

typedef struct naming {
    const char *names[3];
    int64_t ranks[3]; /* in their order */
    const char *by;
    size_t missing;
} naming;

static void the_rank_is_the_number_in_the_name(void **state) {
    static const naming cases[] = {
        {{"rank3.pickle", "rank1.pickle", "rank0.pickle"}, {0, 1, 3}, "name", 1},
        {{"snapshot_rank_03.pkl.gz", "snapshot_rank_10.pkl.gz", "snapshot_rank_1.pkl.gz"},
         {1, 3, 10},
         "name",
         0},
        {{"2.pickle", "0.pickle", "1.pickle"}, {0, 1, 2}, "name", 0},
        {{"run5/step10-2.p4.gz", "run5/step10-0.p4.gz", "run5/step10-1.p4.gz"},
         {0, 1, 2},
         "name",
         0},
        /* folders, hosts, times */
        {{"a/Rank-1/s.pickle", "a/Rank-2/s.pickle", "a/Rank-0/s.pickle"}, {0, 1, 2}, "name", 0},
        {{"n17_2_1699.pkl", "n18_1_1711.pkl", "n19_0_1705.pkl"}, {0, 1, 2}, "name", 0},
        {{"x/RANK2.pkl", "y/rank0.pkl", "z/Rank=1.pkl"}, {0, 1, 2}, "name", 0},
        {{"x/rank2_of_8.pkl", "y/rank0_of_8.pkl", "z/rank1_of_8.pkl"}, {0, 1, 2}, "name", 0},
        {{"rank0_t5.pkl", "rank0_t6.pkl", "rank0_t7.pkl"}, {5, 6, 7}, "name", 0},
        /* none of its own */
        {{"a.pickle", "b.pickle", "c.pickle"}, {0, 1, 2}, "place", 0},
        {{"1.pickle", "1.pickle", "2.pickle"}, {0, 1, 2}, "place", 0},
        {{"1.pickle", "2.pickle", "x3.pickle"}, {0, 1, 2}, "place", 0},
        {{"1699999999999.p", "1699999999998.p", "1699999999997.p"}, {0, 1, 2}, "place", 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        for (int i = 0; i < 3; i++) {
            usual(GIB);
        }
        json_t *root = explain(cases[k].names, NULL);
        for (size_t i = 0; i < 3; i++) {
            int64_t found = number(json_array_get(get(root, "ranks"), i), "rank");
            if (found != cases[k].ranks[i]) {
                fail_msg("case %zu: rank %lld", k, (long long)found);
            }
        }
        assert_string_equal(string(root, "numbered_by"), cases[k].by);
        assert_int_equal(json_array_size(get(root, "missing_ranks")), cases[k].missing);
        none_stands_out(root);
    }
}

static void ranks_follow_their_numbers_not_the_list(void **state) {
    static const char *const names[] = {"s/rank7.pickle", "s/rank5.pickle", "s/rank6.pickle"};
    usual(3 * GIB);
    usual(GIB);
    usual(GIB);
    json_t *root = explain(names, NULL);
    json_t *last = json_array_get(get(root, "ranks"), 2);
    assert_string_equal(string(last, "file"), "rank7.pickle");
    assert_int_equal(number(last, "needed_bytes"), 7 * GIB + 256 * MIB);
    assert_string_equal(string(get(root, "explanation"), "file"), "rank7.pickle");
    stands_out(root, 7, "needs");
}

static void a_hundred_ranks_fit_a_screen(void **state) {
    for (uint64_t i = 0; i < 100; i++) {
        usual(i == 77 ? 3 * GIB : GIB + (i * 7 % 5) * 6 * MIB);
    }
    char *text = NULL;
    json_t *root = explain(NULL, &text);
    says(text, "\nRANK 77 STANDS OUT: ");
    says(text, "\n       77      7.25      7.25      7.25  healthy  stands out  <-\n");
    says(text, " more, not printed\n");
    free(text);
    stands_out(root, 77, "needs");
}

/* Numbers that are no runs: the lines that list them break, and end. */
static void long_lists_of_ranks_stay_within_the_width(void **state) {
    char made[40][32], *text = NULL;
    const char *names[40];
    for (int k = 0; k < 2; k++) {
        for (uint64_t i = 0; i < 40; i++) {
            snprintf(made[i], sizeof made[i], "rank%d.pickle", 12345 + 2 * (int)i);
            names[i] = made[i];
            recording *r = usual(k && i % 2 ? 2 * GIB : GIB);
            if (!k && i % 2) {
                rec_oom(r, GIB, 0, GIB, LOSS);
            }
        }
        json_decref(explain(names, &text));
        says(text,
             k ? " groups    ranks 12347, 12351, 12355, 12359, 12363, 12367 and 14 more need 6.25\n"
               : "RANKS 12347, 12351, 12355, 12359, 12363, 12367 and 14 more\nRAN OUT OF");
        free(text);
    }
}

static void many_missing_ranks_stay_within_the_width(void **state) {
    char made[30][32], *text = NULL;
    const char *names[30];
    for (int i = 0; i < 30; i++) {
        snprintf(made[i], sizeof made[i], "rank%d.pickle", i < 10 ? i : 2 * i - 10);
        names[i] = made[i];
        usual(GIB);
    }
    json_decref(explain(names, &text));
    says(text, " missing   no file of ranks 11, 13, 15, 17, 19, 21 and 13 more\n");
    free(text);
    names[1] = "rank1000000.pickle";
    for (int i = 0; i < 30; i++) {
        usual(GIB);
    }
    json_decref(explain(names, &text));
    assert_null(strstr(text, " missing "));
    free(text);
    usual(GIB);
    usual(GIB);
    names[1] = "rank2.pickle";
    json_decref(explain(names, &text));
    says(text, " missing   no file of rank 1\n");
    free(text);
}

static void from_files_the_answer_is_the_same(void **state) {
    static const char *const paths[] = {TEST_DATA "/ranks/plain.pickle.gz",
                                        TEST_DATA "/ranks/branch.pickle.gz",
                                        TEST_DATA "/ranks/extra.pickle.gz"};
    cen_snapshot *snapshots[3];
    cen_explanation *a = NULL, *b = NULL;
    char *from_snapshots = NULL, *from_files = NULL;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(cen_snapshot_read(paths[i], &snapshots[i], NULL), CEN_OK);
    }
    assert_int_equal(cen_explain_ranks((const cen_snapshot *const *)snapshots, paths, 3, NULL, &a),
                     CEN_OK);
    assert_int_equal(cen_explain_rank_files(paths, 3, NULL, &b), CEN_OK);
    assert_int_equal(cen_explain_json(a, &from_snapshots), CEN_OK);
    assert_int_equal(cen_explain_json(b, &from_files), CEN_OK);
    says(from_files, "\"file\": \"extra.pickle.gz\"");
    assert_string_equal(from_snapshots, from_files);
    cen_explanation_free(a);
    cen_explanation_free(b);
    for (size_t i = 0; i < 3; i++) {
        cen_snapshot_free(snapshots[i]);
    }
    free(from_snapshots);
    free(from_files);
}

static void bad_arguments_are_refused(void **state) {
    static const char *const names[] = {"a", "b"}, *const holes[] = {"a", NULL};
    static const char *const none[] = {TEST_DATA "/ranks/plain.pickle.gz", TEST_DATA "/none"};
    usual(GIB);
    rank_count = 0;
    cen_snapshot *snapshot = rec_read(ranks[0]);
    const cen_snapshot *two[] = {snapshot, snapshot}, *one[] = {snapshot, NULL};
    cen_explain_options unset = {0};
    cen_explanation *e = NULL;
    assert_int_equal(cen_explain_ranks(two, names, 1, NULL, &e), CEN_ERR_INVALID);
    assert_int_equal(cen_explain_ranks(NULL, names, 2, NULL, &e), CEN_ERR_INVALID);
    assert_int_equal(cen_explain_ranks(two, NULL, 2, NULL, &e), CEN_ERR_INVALID);
    assert_int_equal(cen_explain_ranks(one, names, 2, NULL, &e), CEN_ERR_INVALID);
    assert_int_equal(cen_explain_ranks(two, holes, 2, NULL, &e), CEN_ERR_INVALID);
    assert_int_equal(cen_explain_ranks(two, names, 2, &unset, &e), CEN_ERR_INVALID);
    assert_int_equal(cen_explain_ranks(two, names, 2, NULL, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_explain_rank_files(none, 2, NULL, &e), CEN_ERR_IO);
    assert_int_equal(cen_explain_rank_files(none, 1, NULL, &e), CEN_ERR_INVALID);
    assert_int_equal(cen_explain_rank_files(NULL, 2, NULL, &e), CEN_ERR_INVALID);
    assert_null(e);
    cen_snapshot_free(snapshot);
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
        cmocka_unit_test(the_rank_is_the_number_in_the_name),
        cmocka_unit_test(ranks_follow_their_numbers_not_the_list),
        cmocka_unit_test(a_hundred_ranks_fit_a_screen),
        cmocka_unit_test(long_lists_of_ranks_stay_within_the_width),
        cmocka_unit_test(many_missing_ranks_stay_within_the_width),
        cmocka_unit_test(from_files_the_answer_is_the_same),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
