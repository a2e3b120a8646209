/* What the explanation says to people: its units, what it leaves open, and its width. */
#include "recording.h"

static const char *const KEEP = "keep@train.py:33 < <module>@train.py:40";
static const char *const DEEP =
    "extend_the_cache@serving/engine.py:40 < generate_tokens@server.py:9 "
    "< answer_one_request@server.py:120 < <module>@server.py:300";

/* The explanation as text; no line is over 80 columns. Frees the recording. */
static char *explain(recording *r, uint64_t cap, uint64_t total) {
    cen_snapshot *snapshot = rec_read(r);
    cen_explain_options options = {sizeof options, "recording", cap, total};
    cen_explanation *explanation = NULL;
    char *text = NULL;
    assert_int_equal(cen_explain(snapshot, &options, &explanation), CEN_OK);
    assert_int_equal(cen_explain_text(explanation, &text), CEN_OK);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        if (strcspn(line, "\n") > 80) {
            fail_msg("over 80 columns: %.*s", (int)strcspn(line, "\n"), line);
        }
    }
    cen_explanation_free(explanation);
    cen_snapshot_free(snapshot);
    return text;
}

static void says(char *text, const char *part) {
    if (!strstr(text, part)) {
        fail_msg("'%s' is not in:\n%s", part, text);
    }
}

static void the_sum_has_its_unit_where_the_request_has_another(void **state) {
    recording *r = rec_new();
    rec_alloc(r, 3 * GIB, 0, KEEP);
    rec_step_end(r);
    rec_oom(r, 24 * MIB, 0, 10 * GIB, KEEP);
    char *text = explain(r, 3 * GIB, 0);
    says(text, " failed    24.00 MiB, ");
    says(text, " why       3.00 GiB live + 0.02 = 3.02 needed, 3.00 allowed");
    says(text, "cap       3.00 GiB given");
    free(text);
}

static void owners_add_up_in_the_unit_of_their_title(void **state) {
    recording *r = rec_new();
    size_t freed = rec_alloc(r, 800 * MIB, 0, KEEP);
    rec_alloc(r, 600 * MIB, 0, KEEP);
    rec_free(r, freed);
    r->no_history = true;
    char *text = explain(r, 0, 0);
    says(text, "LIVE NOW  0.59 GiB\n  0.59 100%");
    says(text, "; 0.78 empty\n");
    free(text);
}

static void without_holes_a_bracketed_cap_is_decided(void **state) {
    recording *r = rec_new();
    rec_alloc(r, 900 * MIB, 0, KEEP);
    rec_oom(r, 200 * MIB, 0, 10 * GIB, KEEP);
    char *text = explain(r, 0, 0);
    says(text, "OUT OF CAPACITY\n");
    says(text, "cap from 0.88 (once held), below 1.07: not enough in any case\n");
    free(text);
}

static void inside_the_bracket_the_headline_says_on_what_it_depends(void **state) {
    recording *r = rec_new();
    size_t freed = rec_alloc(r, 100 * MIB, 0, KEEP);
    rec_alloc(r, 800 * MIB, 0, KEEP);
    rec_free(r, freed);
    rec_oom(r, 200 * MIB, 0, 10 * GIB, KEEP);
    char *text = explain(r, 20 * GIB, 0);
    says(text, "OUT OF CAPACITY, UNLESS THE CAP IS 1000.00 MiB OR MORE\n");
    says(text, "cap from 900.00 (once held), below 1100.00: undecided, give --cap\n");
    says(text, "cap       the one given allows it: 900.00 MiB (once held) to 1100.00 (refused)\n");
    free(text);
}

static void a_full_device_asks_for_its_total(void **state) {
    for (int given = 0; given < 2; given++) {
        recording *r = rec_new();
        rec_alloc(r, 900 * MIB, 0, KEEP);
        rec_oom(r, 200 * MIB, 0, 100 * MIB, KEEP);
        char *text = explain(r, 0, given ? 1010 * MIB : 0);
        bool asks = strstr(text, "what others hold of the device: --device-total tells") != NULL;
        assert_int_equal(asks, !given);
        free(text);
    }
}

static void without_frames_it_says_how_to_record_them(void **state) {
    recording *r = rec_new();
    rec_alloc(r, 900 * MIB, 0, NULL);
    rec_oom(r, 200 * MIB, 0, 10 * GIB, NULL);
    char *text = explain(r, 1000 * MIB, 0);
    says(text, "whose memory: _record_memory_history(context=\"all\") records frames\n");
    says(text, "shrink what is needed (batch, length)");
    assert_null(strstr(text, "most is from"));
    free(text);
}

static void a_stream_that_holds_nothing_has_its_row_if_it_asked(void **state) {
    recording *r = rec_new();
    size_t freed = rec_alloc(r, 300 * MIB, 7, KEEP);
    rec_alloc(r, 10 * MIB, 7, KEEP);
    rec_free(r, freed);
    rec_oom(r, 250 * MIB, 5, 10 * GIB, KEEP);
    char *text = explain(r, 400 * MIB, 0);
    says(text, "STRANDED ON ANOTHER STREAM\n");
    says(text, "           5   0.00   0.00   0.00       0     0.00  the request's\n");
    free(text);
}

static void long_growth_stays_within_the_width(void **state) {
    recording *r = rec_new();
    for (int i = 0; i < 490; i++) {
        size_t a = rec_alloc(r, 4 * MIB, 0, KEEP);
        rec_alloc(r, 2 * MIB, 0, DEEP);
        rec_free(r, a);
    }
    rec_oom(r, 2 * MIB, 0, 10 * GIB, DEEP);
    char *text = explain(r, 0, 0);
    says(text, "\nLEAK\n");
    says(text, "(extend_the_cache)\n      < server.py:9 (generate_tokens)");
    says(text, "; the cap in 1 step\n");
    says(text, "A cache that has only grown so far looks the same.\n");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_has_its_unit_where_the_request_has_another),
        cmocka_unit_test(owners_add_up_in_the_unit_of_their_title),
        cmocka_unit_test(without_holes_a_bracketed_cap_is_decided),
        cmocka_unit_test(inside_the_bracket_the_headline_says_on_what_it_depends),
        cmocka_unit_test(a_full_device_asks_for_its_total),
        cmocka_unit_test(without_frames_it_says_how_to_record_them),
        cmocka_unit_test(a_stream_that_holds_nothing_has_its_row_if_it_asked),
        cmocka_unit_test(long_growth_stays_within_the_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
