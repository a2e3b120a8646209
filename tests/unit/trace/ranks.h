/* Makes ranks of one job for tests, and explains them together. */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

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
static inline recording *rank(void) {
    recording *r = rec_new();
    rec_alloc(r, 4 * GIB, 0, WEIGHTS);
    ranks[rank_count++] = r;
    return r;
}

static inline void step(recording *r, uint64_t activations) {
    size_t a = rec_alloc(r, activations, 0, FORWARD), b = rec_alloc(r, 256 * MIB, 0, LOSS);
    rec_free(r, b);
    rec_free(r, a);
    rec_step_end(r);
}

/* A rank of two steps. */
static inline recording *usual(uint64_t activations) {
    recording *r = rank();
    step(r, activations);
    step(r, activations);
    return r;
}

static inline void check_width(const char *text) {
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        if (strcspn(line, "\n") > 80) {
            fail_msg("over 80 columns: %.*s", (int)strcspn(line, "\n"), line);
        }
    }
}

/* The explanation of the ranks made so far, as JSON and as text, which the caller frees if it wants
 * it. names NULL: rank0 and so on. */
static inline json_t *explain(const char *const *names, char **text) {
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

static inline json_t *get(json_t *root, const char *key) {
    json_t *value = json_object_get(root, key);
    assert_non_null(value);
    return value;
}

static inline int64_t number(json_t *root, const char *key) {
    return json_integer_value(get(root, key));
}

static const char *string(json_t *root, const char *key) {
    return json_string_value(get(root, key));
}

static inline void says(const char *text, const char *part) {
    if (!strstr(text, part)) {
        fail_msg("'%s' is not in:\n%s", part, text);
    }
}

/* That one rank stands out, and why. Frees root. */
static inline void stands_out(json_t *root, int64_t which, const char *reason) {
    json_t *outlier = get(root, "outlier");
    assert_true(json_is_object(outlier));
    assert_int_equal(number(outlier, "rank"), which);
    assert_int_equal(json_array_size(get(outlier, "ranks")), 1);
    assert_string_equal(string(outlier, "reason"), reason);
    assert_int_equal(number(root, "explained_rank"), which);
    json_decref(root);
}

static inline void none_stands_out(json_t *root) {
    assert_true(json_is_null(get(root, "outlier")));
    assert_int_equal(json_array_size(get(root, "groups")), 0);
    assert_int_equal(json_array_size(get(root, "differences")), 0);
    json_decref(root);
}

#endif
