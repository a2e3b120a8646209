/* A program that cenote recorded itself: as a PyTorch snapshot and as a trace again, its recording
 * says the same. */
#include "tests/folder.h"

#include "cenote/cenote.h"

#define OK(call) assert_int_equal(call, CEN_OK)
#define MIB      ((size_t)1 << 20)

enum { STEPS = 6, BLOCKS = 40 };

/* Steps of blocks on two streams, some used by the other one when they are freed, some kept, some
 * small; and a request that is too large. */
static void run_program(cen_device *device, cen_pool *pool) {
    cen_stream streams[2];
    void *kept[STEPS], *failing;
    OK(cen_stream_create(device, 0, &streams[0]));
    OK(cen_stream_create(device, 0, &streams[1]));
    for (size_t step = 0; step < STEPS; step++) {
        void *blocks[BLOCKS];
        cen_trace_mark("forward", false);
        for (size_t i = 0; i < BLOCKS; i++) {
            size_t size = i % 5 ? (i % 7 + 1) * 3 * MIB : 100 * (i + 1);
            OK(cen_pool_alloc(pool, size, streams[i % 2], &blocks[i]));
        }
        cen_trace_mark("forward", true);
        OK(cen_pool_alloc(pool, MIB, streams[0], &kept[step]));
        for (size_t i = 0; i < BLOCKS; i++) {
            if (i % 3 == 0) {
                OK(cen_pool_use(pool, blocks[i], streams[(i + 1) % 2]));
            }
            OK(cen_pool_free(pool, blocks[i], streams[i % 2]));
        }
        OK(cen_stream_sync(device, streams[0]));
        OK(cen_stream_sync(device, streams[1]));
        cen_trace_step();
    }
    assert_int_equal(cen_pool_alloc(pool, 4096 * MIB, streams[1], &failing), CEN_ERR_DEVICE_MEMORY);
    OK(cen_trace_stop());
    for (size_t step = 0; step < STEPS; step++) {
        OK(cen_pool_free(pool, kept[step], streams[0]));
    }
    OK(cen_stream_destroy(device, streams[0]));
    OK(cen_stream_destroy(device, streams[1]));
}

static void record(const char *path) {
    cen_pool_options limited = {.size = sizeof limited, .limit_bytes = 1024 * MIB};
    cen_trace_options traced = {.size = sizeof traced, .stacks = CEN_TRACE_NATIVE_STACKS};
    cen_device *device;
    cen_pool *pool;
    OK(cen_device_open_host(0, NULL, &device));
    OK(cen_trace_start(path, &traced));
    OK(cen_pool_create(device, &limited, &pool));
    run_program(device, pool);
    OK(cen_pool_destroy(pool));
    cen_device_close(device);
}

static cen_snapshot *read_file(const char *path) {
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    if (cen_snapshot_read(path, &snapshot, &error)) {
        fail_msg("%s", error.message);
    }
    return snapshot;
}

static char *explained(const cen_snapshot *snapshot) {
    cen_explanation *explanation = NULL;
    char *json = NULL;
    OK(cen_explain(snapshot, NULL, &explanation));
    OK(cen_explain_json(explanation, &json));
    cen_explanation_free(explanation);
    return json;
}

/* The snapshot in another format, read again; it has to be explained as `expected`. */
static cen_snapshot *through(cen_snapshot *snapshot, cen_format format, const char *name,
                             const char *expected) {
    OK(cen_snapshot_write(snapshot, format, in_folder(name), NULL));
    cen_snapshot_free(snapshot);
    cen_snapshot *again = read_file(in_folder(name));
    char *json = explained(again);
    assert_string_equal(json, expected);
    free(json);
    unlink(in_folder(name));
    return again;
}

static void a_recorded_program_stays_what_it_was(void **state) {
    assert_int_equal(make_folder(state), 0);
    record(in_folder("live.cenotrace"));
    cen_snapshot *snapshot = read_file(in_folder("live.cenotrace"));
    unlink(in_folder("live.cenotrace"));
    char *expected = explained(snapshot);
    assert_non_null(strstr(expected, "\"moment\": \"failed\""));
    assert_non_null(strstr(expected, "\"complete\": 6"));
    snapshot = through(snapshot, CEN_FORMAT_TORCH, "a.pickle", expected);
    snapshot = through(snapshot, CEN_FORMAT_TRACE, "b.cenotrace.gz", expected);
    snapshot = through(snapshot, CEN_FORMAT_TRACE, "c.cenotrace", expected);
    snapshot = through(snapshot, CEN_FORMAT_TORCH, "d.pickle.gz", expected);
    cen_snapshot_free(snapshot);
    free(expected);
    assert_int_equal(rmdir(test_folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_program_stays_what_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
