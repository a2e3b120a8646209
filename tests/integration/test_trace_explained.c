/* What explain and Perfetto say of a C program's own trace: its lines, and nothing that holds for
 * PyTorch only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <unistd.h>

#include "cenote/cenote.h"

#define MIB      ((size_t)1 << 20)
#define OK(call) assert_int_equal(call, CEN_OK)

enum { STEPS = 24 };

static char path[64];

static int set_up(void **state) {
    snprintf(path, sizeof path, "/tmp/cenote_said_XXXXXX");
    int fd = mkstemp(path);
    close(fd);
    return fd < 0;
}

static int tear_down(void **state) {
    cen_trace_stats stats;
    if (!cen_trace_get_stats(&stats) && stats.on) { /* the test failed on its way */
        (void)cen_trace_stop();
    }
    unlink(path);
    return 0;
}

/* ---- the program ---- */

enum { LEAKS_AT = __LINE__ + 2 };
__attribute__((noinline)) static void leak_a_metric(cen_pool *pool, size_t bytes, void **block) {
    OK(cen_pool_alloc(pool, bytes, 0, block));
}

/* Holds one block more after each step (0 bytes: none), and 16 MiB for a part of it. */
__attribute__((noinline)) static void run_steps(cen_pool *pool, size_t bytes,
                                                size_t more_each_step) {
    void *kept, *block;
    for (size_t i = 0; i < STEPS; i++) {
        OK(cen_pool_alloc(pool, 16 * MIB, 0, &block));
        if (bytes) {
            leak_a_metric(pool, bytes + i * more_each_step, &kept);
        }
        OK(cen_pool_free(pool, block, 0));
        usleep(10); /* times are in microseconds: the step's is to be its own */
        cen_trace_step();
        usleep(10);
    }
}

static void record(const cen_trace_options *options, size_t bytes, size_t more_each_step) {
    cen_device *device;
    cen_pool *pool;
    cen_host_options host = {.size = sizeof host, .capacity = 512 * MIB, .inline_streams = true};
    OK(cen_trace_start(path, options));
    OK(cen_device_open_host(0, &host, &device));
    OK(cen_pool_create(device, NULL, &pool));
    run_steps(pool, bytes, more_each_step);
    OK(cen_trace_stop());
    OK(cen_pool_destroy(pool));
    cen_device_close(device);
}

/* ---- what is said of it ---- */

static char *explained(bool json) {
    cen_snapshot *s = NULL;
    cen_read_error error = {{0}, 0};
    cen_explanation *explanation = NULL;
    char *text = NULL;
    if (cen_snapshot_read(path, &s, &error)) {
        fail_msg("%s", error.message);
    }
    OK(cen_explain(s, NULL, &explanation));
    OK(json ? cen_explain_json(explanation, &text) : cen_explain_text(explanation, &text));
    cen_explanation_free(explanation);
    cen_snapshot_free(s);
    return text;
}

static void says(const char *text, const char *part) {
    if (!strstr(text, part)) {
        fail_msg("'%s' is not in:\n%s", part, text);
    }
}

static void is_silent(const char *text, const char *part) {
    if (strstr(text, part)) {
        fail_msg("'%s' is in:\n%s", part, text);
    }
}

#ifdef CENI_HAVE_LIBDW
static char *as_chrome(void) {
    cen_snapshot *s = NULL;
    char name[80];
    char *text = calloc(1, MIB);
    OK(cen_snapshot_read(path, &s, NULL));
    snprintf(name, sizeof name, "%s.json", path);
    OK(cen_snapshot_write(s, CEN_FORMAT_CHROME, name, NULL));
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    assert_in_range(fread(text, 1, MIB - 1, file), 1, MIB - 2);
    fclose(file);
    unlink(name);
    cen_snapshot_free(s);
    return text;
}

static void a_leak_has_the_programs_line(void **state) {
    cen_trace_options options = {.size = sizeof options, .stacks = CEN_TRACE_NATIVE_STACKS};
    record(&options, MIB, 0);
    char place[64], expected[128];
    snprintf(place, sizeof place, "test_trace_explained.c:%d", LEAKS_AT);
    char *text = explained(false), *json = explained(true), *chrome = as_chrome();
    says(text, "LEAK\n");
    snprintf(expected, sizeof expected, "leak_a_metric, %s\n", place);
    says(text, expected); /* as an owner */
    snprintf(expected, sizeof expected, "allocated at %s (leak_a_metric)", place);
    says(text, expected); /* as a suspect */
    says(text, " (run_steps)");
    is_silent(text, "_start");
    snprintf(expected, sizeof expected, "do first  let go of what is allocated at %s", place);
    says(text, expected);
    snprintf(expected, sizeof expected, "\"label\": \"leak_a_metric, %s\"", place);
    says(json, expected);
    snprintf(expected, sizeof expected, "\"name\":\"%s leak_a_metric\"", place);
    says(chrome, expected);
    free(text);
    free(json);
    free(chrome);
}
#endif

/* Blocks of all sizes, and nobody to tell whose they are: it may be a leak. */
static void without_stacks_growth_is_not_ruled_out(void **state) {
    record(NULL, 3 * MIB, 4096);
    char *text = explained(false), *json = explained(true);
    is_silent(text, "ruled out leak");
    says(text, "ruled out streams");
    says(text, "open      leak: the baseline grows by 3.0");
    says(text, " a step, and no frames tell whose\n");
    says(text, "whose memory: cen_trace_options.stacks records frames\n");
    says(json, " a step, and no frames tell whose\"");
    free(text);
    free(json);
}

/* Where all is freed again there is no leak, frames or not. */
static void without_stacks_what_does_not_grow_is_ruled_out(void **state) {
    record(NULL, 0, 0);
    char *text = explained(false);
    says(text, "ruled out leak (baseline 0.00 each step)");
    is_silent(text, "open      leak");
    free(text);
}

enum { SMALL = 320 };

/* Holes between blocks, too small for a large one. */
static void fragmentation_has_cenotes_remedy(void **state) {
    cen_device *device;
    cen_pool *pool;
    void *small[SMALL], *large;
    cen_host_options host = {.size = sizeof host, .capacity = 1024 * MIB, .inline_streams = true};
    cen_pool_options options = {.size = sizeof options, .page_bytes = 2 * MIB};
    OK(cen_trace_start(path, NULL));
    OK(cen_device_open_host(0, &host, &device));
    OK(cen_pool_create(device, &options, &pool));
    for (size_t i = 0; i < SMALL; i++) {
        OK(cen_pool_alloc(pool, MIB, 0, &small[i]));
    }
    for (size_t i = 0; i < SMALL; i += 2) {
        OK(cen_pool_free(pool, small[i], 0));
    }
    OK(cen_pool_alloc(pool, 300 * MIB, 0, &large));
    OK(cen_trace_stop());
    char *text = explained(false);
    says(text, "FRAGMENTATION\n");
    says(text, "do first  make blocks movable (cen_movable_alloc), then cen_pool_defragment:");
    is_silent(text, "PYTORCH");
    is_silent(text, "torch");
    free(text);
    OK(cen_pool_destroy(pool));
    cen_device_close(device);
}

/* A scalar's worth is no tensor with .item(), and no thread of autograd's allocated it. */
static void a_small_leak_has_no_advice_of_pytorchs(void **state) {
    record(NULL, 256, 0);
    char *text = explained(false);
    says(text, "LEAK\n");
    says(text, "do first  let go of what is allocated at no frames: ");
    says(text, "allocated at no frames recorded: cen_trace_options.stacks records them\n");
    is_silent(text, ".item()");
    is_silent(text, "autograd");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#ifdef CENI_HAVE_LIBDW
        cmocka_unit_test_setup_teardown(a_leak_has_the_programs_line, set_up, tear_down),
#endif
        cmocka_unit_test_setup_teardown(fragmentation_has_cenotes_remedy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_small_leak_has_no_advice_of_pytorchs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_stacks_growth_is_not_ruled_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_stacks_what_does_not_grow_is_ruled_out, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
