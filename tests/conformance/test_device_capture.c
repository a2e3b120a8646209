/* What an allocator may do while a stream is captured: map, record elsewhere; but neither query nor
 * wait. */
#include "tests/conformance/suite.h"

#include "dev/capture.h"

typedef struct world {
    bool host;
    cen_device *device;
    mapped memory;
    cen_stream captured, other;
    cen_event event;
} world;

static world begin(void **state) {
    fixture *f = *state;
    world w = {.host = f->host, .device = f->device, .memory = suite_map(f->device, 2, 0)};
    OK(cen_fill_async(w.device, w.memory.addr, 0, w.memory.size, 0));
    OK(cen_stream_sync(w.device, 0));
    OK(cen_stream_create(w.device, 0, &w.captured));
    OK(cen_stream_create(w.device, 0, &w.other));
    OK(cen_event_create(w.device, 0, &w.event));
    OK(ceni_capture_begin(w.device, w.captured));
    return w;
}

static void a_graph_replays_its_work(void **state) {
    world w = begin(state);
    cen_device *d = w.device;
    const uint64_t g = w.memory.granule;
    cen_addr a = w.memory.addr, b = a + g, last = a + 4;
    uint32_t value = 5;
    uint64_t count = 1;
    void *args[] = {&last, &value, &count};
    bool capturing = false;
    OK(cen_stream_capturing(d, w.captured, &capturing));
    assert_true(capturing);
    OK(cen_stream_capturing(d, w.other, &capturing));
    assert_false(capturing);
    OK(cen_fill_async(d, a, 0x12, g, w.captured));
    OK(cen_copy_async(d, b, a, g, w.captured));
    suite_launch(d, "cen_fill_u32", args, 3, w.captured);
    ceni_graph *graph;
    OK(ceni_capture_end(d, w.captured, &graph));
    assert_int_equal(suite_word(d, b), 0); /* nothing ran */
    for (int i = 0; i < 2; i++) {
        OK(cen_fill_async(d, a, 0, w.memory.size, w.other));
        OK(ceni_graph_launch(d, graph, w.other));
        OK(cen_stream_sync(d, w.other));
        assert_int_equal(suite_word(d, a), 0x12121212);
        assert_int_equal(suite_word(d, last), 5);
        assert_int_equal(suite_word(d, b + 4), 0x12121212);
    }
    ceni_graph_destroy(d, graph);
}

static void memory_calls_keep_the_capture(void **state) {
    world w = begin(state);
    cen_device *d = w.device;
    mapped m = suite_map(d, 2, 0);
    suite_unmap(d, &m);
    OK(cen_event_record(d, w.event, w.other));
    OK(cen_fill_async(d, w.memory.addr, 1, 4, w.other));
    ceni_graph *graph;
    OK(ceni_capture_end(d, w.captured, &graph));
    ceni_graph_destroy(d, graph);
    OK(cen_stream_sync(d, w.other));
    OK(cen_event_query(d, w.event));
}

static void *peek(void *arg) {
    const world *w = arg;
    cen_status status;
    do {
        status = ceni_dev_event_peek(w->device, w->event);
    } while (status == CEN_ERR_NOT_READY);
    return status ? NULL : arg;
}

/* On CUDA in relaxed mode, from the thread that captures and from another. */
static void a_look_at_an_event_keeps_the_capture(void **state) {
    world w = begin(state);
    pthread_t thread;
    void *worked = NULL;
    OK(cen_fill_async(w.device, w.memory.addr, 1, 4, w.captured));
    OK(cen_event_record(w.device, w.event, w.other));
    assert_non_null(peek(&w));
    assert_int_equal(pthread_create(&thread, NULL, peek, &w), 0);
    pthread_join(thread, &worked);
    assert_non_null(worked);
    ceni_graph *graph;
    OK(ceni_capture_end(w.device, w.captured, &graph));
    OK(ceni_graph_launch(w.device, graph, w.other));
    OK(cen_stream_sync(w.device, w.other));
    assert_int_equal(suite_word(w.device, w.memory.addr), 0x01010101);
    ceni_graph_destroy(w.device, graph);
}

static cen_status breaking_call(const world *w, int which) {
    cen_addr addr;
    switch (which) {
    case 0:
        return cen_event_query(w->device, w->event);
    case 1:
        return cen_event_sync(w->device, w->event);
    case 2:
        return cen_stream_query(w->device, w->other);
    case 3:
        return cen_stream_sync(w->device, w->other);
    case 4:
        return ceni_dev_segment_alloc(w->device, 64, &addr);
    default:
        return cen_stream_wait(w->device, w->captured, w->event);
    }
}

static void queries_and_waits_break_it(void **state) {
    world w = begin(state);
    ceni_graph *graph = NULL;
    OK(cen_stream_wait(w.device, w.captured, w.event)); /* never recorded: nothing to wait for */
    OK(cen_event_record(w.device, w.event, w.other));
    /* CUDA takes a wait for an event that was never recorded as nothing. */
    for (int i = 0; i < (w.host ? 6 : 5); i++) {
        suite_log_reset();
        FAILS(CEN_ERR_CAPTURE, breaking_call(&w, i));
        assert_int_equal(suite_log_errors, 1);
        FAILS(CEN_ERR_CAPTURE, cen_fill_async(w.device, w.memory.addr, 1, 4, w.captured));
        FAILS(CEN_ERR_CAPTURE, ceni_capture_end(w.device, w.captured, &graph));
        assert_null(graph);
        OK(cen_stream_sync(w.device, w.captured)); /* usable again */
        if (w.host) {
            OK(cen_event_sync(w.device, w.event)); /* as recorded before */
        }
        OK(ceni_capture_begin(w.device, w.captured));
    }
    assert_true(ceni_capture_begin(w.device, w.captured) < 0);
    /* left capturing: closing the device ends it */
}

static void a_waiting_stream_joins(void **state) {
    world w = begin(state);
    cen_device *d = w.device;
    cen_addr a = w.memory.addr;
    bool capturing = false;
    OK(cen_fill_async(d, a, 1, 4, w.captured));
    OK(cen_event_record(d, w.event, w.captured));
    OK(cen_stream_wait(d, w.other, w.event));
    OK(cen_stream_capturing(d, w.other, &capturing));
    assert_true(capturing);
    OK(cen_copy_async(d, a + 4, a, 4, w.other));
    OK(cen_event_record(d, w.event, w.other));
    OK(cen_stream_wait(d, w.captured, w.event));
    ceni_graph *graph;
    if (w.host) { /* on CUDA this breaks the capture */
        FAILS(CEN_ERR_INVALID, ceni_capture_end(d, w.other, &graph));
    }
    OK(ceni_capture_end(d, w.captured, &graph));
    assert_true(cen_event_query(d, w.event) < 0); /* it is the graph's, not a stream's */
    assert_true(cen_stream_wait(d, w.other, w.event) < 0);
    OK(ceni_graph_launch(d, graph, 0));
    assert_int_equal(suite_word(d, a + 4), 0x01010101);
    ceni_graph_destroy(d, graph);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(a_graph_replays_its_work),
    SUITE_TEST(memory_calls_keep_the_capture),
    SUITE_TEST(a_look_at_an_event_keeps_the_capture),
    SUITE_TEST(queries_and_waits_break_it),
    SUITE_TEST(a_waiting_stream_joins),
};
SUITE_MAIN(tests)
