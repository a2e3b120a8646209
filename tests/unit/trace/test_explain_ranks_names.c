/* Which rank a file's name stands for, how ranks are listed, and what is refused. */
#include "ranks.h"

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
