/* Failures: each operation made to fail, bad names, forked children, faults and lost devices. */
#include "tests/conformance/suite.h"

#include <sys/wait.h>
#include <unistd.h>

#include "dev/host/host.h"

/* One of everything, so that any operation can be called with good arguments. */
typedef struct world {
    cen_device *device, *peer;
    mapped memory;  /* two exportable pages, mapped */
    cen_addr range; /* one granule, reserved */
    ceni_page page; /* not mapped */
    cen_addr segment;
    cen_stream stream;
    cen_event events[2]; /* timed and complete */
    cen_event manual;
    void *pinned, *registered, *memory_to_register;
    int fd; /* of memory.pages[0] */
    cen_addr managed;
    cen_event shared;
    ceni_event_token token;
    int event_fd; /* of shared; -1: the token is enough */
} world;

enum { HOST_BYTES = 8192 };

static world make_world(fixture *f, cen_device *peer) {
    cen_device *d = f->device;
    world w = {.device = d, .peer = peer, .memory = suite_map(d, 2, CENI_PAGE_EXPORTABLE)};
    OK(ceni_dev_va_reserve(d, d->granularity, 0, &w.range));
    for (int i = 0; i < 14; i++) { /* so many that tables grow with the next */
        OK(ceni_dev_page_create(d, d->granularity, 0, &w.page));
    }
    OK(ceni_dev_segment_alloc(d, d->granularity, &w.segment));
    OK(cen_stream_create(d, 0, &w.stream));
    for (int i = 0; i < 2; i++) {
        OK(cen_event_create(d, CEN_EVENT_TIMING, &w.events[i]));
        OK(cen_event_record(d, w.events[i], w.stream));
    }
    if (f->host) {
        OK(cen_event_create(d, CEN_EVENT_MANUAL, &w.manual));
    } else {
        OK(ceni_dev_managed_alloc(d, HOST_BYTES, &w.managed));
    }
    OK(cen_stream_sync(d, w.stream));
    OK(cen_pinned_alloc(d, HOST_BYTES, &w.pinned));
    w.registered = aligned_alloc(4096, HOST_BYTES);
    w.memory_to_register = aligned_alloc(4096, HOST_BYTES);
    OK(cen_pinned_register(d, w.registered, HOST_BYTES));
    OK(ceni_dev_page_export(d, w.memory.pages[0], &w.fd));
    OK(cen_event_create(d, CEN_EVENT_SHARED, &w.shared));
    OK(ceni_dev_event_export(d, w.shared, &w.token, &w.event_fd));
    return w;
}

static void nothing(void *arg) {
    (void)arg;
}

static cen_status call_memory(const world *w, enum ceni_dev_op op) {
    cen_device *d = w->device;
    const uint64_t g = d->granularity;
    ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
    ceni_page page;
    cen_addr addr;
    int fd;
    switch (op) {
    case CENI_OP_va_reserve:
        return ceni_dev_va_reserve(d, g, 0, &addr);
    case CENI_OP_va_free:
        return ceni_dev_va_free(d, w->range, g);
    case CENI_OP_page_create:
        return ceni_dev_page_create(d, g, 0, &page);
    case CENI_OP_page_release:
        return ceni_dev_page_release(d, w->page);
    case CENI_OP_page_map:
        return ceni_dev_page_map(d, w->range, g, w->page);
    case CENI_OP_page_unmap:
        return ceni_dev_page_unmap(d, w->memory.addr, w->memory.size, 2);
    case CENI_OP_page_access:
        return ceni_dev_page_access(d, w->memory.addr, w->memory.size, 2, &grant, 1);
    case CENI_OP_page_export:
        fd = -1;
        cen_status status = ceni_dev_page_export(d, w->memory.pages[1], &fd);
        return status || !close(fd) ? status : CEN_ERR_IO;
    case CENI_OP_page_import:
        return ceni_dev_page_import(d, w->fd, g, &page);
    case CENI_OP_segment_alloc:
        return ceni_dev_segment_alloc(d, g, &addr);
    default:
        return ceni_dev_segment_free(d, w->segment);
    }
}

static cen_status call_stream(const world *w, enum ceni_dev_op op) {
    cen_device *d = w->device;
    cen_stream stream;
    cen_event event;
    bool capturing;
    float ms;
    switch (op) {
    case CENI_OP_stream_create:
        return cen_stream_create(d, 0, &stream);
    case CENI_OP_stream_destroy:
        return cen_stream_destroy(d, w->stream);
    case CENI_OP_stream_sync:
        return cen_stream_sync(d, w->stream);
    case CENI_OP_stream_query:
        return cen_stream_query(d, w->stream);
    case CENI_OP_stream_wait:
        return cen_stream_wait(d, w->stream, w->events[0]);
    case CENI_OP_stream_capturing:
        return cen_stream_capturing(d, w->stream, &capturing);
    case CENI_OP_event_create:
        return cen_event_create(d, 0, &event);
    case CENI_OP_event_destroy:
        return cen_event_destroy(d, w->events[0]);
    case CENI_OP_event_record:
        return cen_event_record(d, w->events[0], w->stream);
    case CENI_OP_event_query:
        return cen_event_query(d, w->events[0]);
    case CENI_OP_event_peek:
        return ceni_dev_event_peek(d, w->events[0]);
    case CENI_OP_event_sync:
        return cen_event_sync(d, w->events[0]);
    case CENI_OP_event_signal:
        return cen_event_signal(d, w->manual);
    default:
        return cen_event_elapsed(d, w->events[0], w->events[1], &ms);
    }
}

static cen_status call_work(const world *w, enum ceni_dev_op op) {
    cen_device *d = w->device;
    const cen_launch shape = {{1, 1, 1}, {1, 1, 1}, 0};
    cen_addr dst = w->memory.addr;
    uint64_t ns = 1;
    void *args[] = {&ns}, *ptr;
    cen_device_props props;
    uint64_t free_bytes, total;
    bool can;
    int rank;
    switch (op) {
    case CENI_OP_props:
        return cen_device_get_props(d, &props);
    case CENI_OP_mem_info:
        return cen_device_mem_info(d, &free_bytes, &total);
    case CENI_OP_copy:
        return cen_copy_async(d, dst, address(w->pinned), HOST_BYTES, w->stream);
    case CENI_OP_copy_peer:
        return cen_copy_peer_async(d, dst, d, dst + w->memory.granule, 4, w->stream);
    case CENI_OP_fill:
        return cen_fill_async(d, dst, 9, 4, w->stream);
    case CENI_OP_launch:
        return cen_kernel_launch(d, "cen_spin", &shape, args, 1, w->stream);
    case CENI_OP_host_func:
        return cen_host_func(d, w->stream, nothing, NULL);
    case CENI_OP_pinned_alloc:
        return cen_pinned_alloc(d, 4096, &ptr);
    case CENI_OP_pinned_free:
        return cen_pinned_free(d, w->pinned);
    case CENI_OP_pinned_register:
        return cen_pinned_register(d, w->memory_to_register, HOST_BYTES);
    case CENI_OP_pinned_unregister:
        return cen_pinned_unregister(d, w->registered);
    case CENI_OP_peer_can_access:
        return w->peer ? cen_peer_can_access(d, w->peer, &can) : CEN_ERR_UNSUPPORTED;
    case CENI_OP_peer_rank:
        return w->peer ? ceni_dev_peer_rank(d, w->peer, &rank) : CEN_ERR_UNSUPPORTED;
    default:
        return w->peer ? cen_peer_enable(d, w->peer) : CEN_ERR_UNSUPPORTED;
    }
}

static cen_status call_share(const world *w, enum ceni_dev_op op) {
    cen_device *d = w->device;
    ceni_event_token token;
    ceni_legacy_handle handle = {{0}};
    cen_event event;
    cen_addr addr;
    uint64_t offset, bytes;
    cen_status status;
    int fd = -1;
    switch (op) {
    case CENI_OP_event_export:
        status = ceni_dev_event_export(d, w->shared, &token, &fd);
        break;
    case CENI_OP_event_import:
        return ceni_dev_event_import(d, &w->token, w->event_fd, &event);
    case CENI_OP_legacy_export:
        return ceni_dev_legacy_export(d, w->segment, &handle, &offset, &bytes);
    case CENI_OP_legacy_open:
        return ceni_dev_legacy_open(d, &handle, &addr, &bytes);
    case CENI_OP_legacy_close:
        return ceni_dev_legacy_close(d, w->segment);
    default:
        status = ceni_dev_dmabuf(d, w->memory.addr, w->memory.granule, &fd);
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

/* What cannot be had from one process alone: CUDA opens no handle in the process that made it. */
static bool takes_two(const fixture *f, enum ceni_dev_op op) {
    return !f->host &&
           (op == CENI_OP_event_import || op == CENI_OP_legacy_open || op == CENI_OP_legacy_close);
}

/* What not every device can do. */
static cen_status call_optional(const world *w, enum ceni_dev_op op) {
    const ceni_tiled tiled = {w->memory.addr, 64, 64, 128, CEN_FP16, 64, 64};
    const ceni_pixels pixels = {.data = w->memory.addr,
                                .images = 1,
                                .height = 2,
                                .width = 2,
                                .channels = 64,
                                .steps = {1, 1},
                                .pixels = 64,
                                .dtype = CEN_FP16};
    ceni_tensor_map map;
    cen_addr addr;
    switch (op) {
    case CENI_OP_pixel_map:
        return ceni_dev_pixel_map(w->device, &pixels, &map);
    case CENI_OP_tensor_map:
        return ceni_dev_tensor_map(w->device, &tiled, &map);
    case CENI_OP_managed_alloc:
        return ceni_dev_managed_alloc(w->device, HOST_BYTES, &addr);
    default:
        return ceni_dev_managed_prefetch(w->device, w->managed, HOST_BYTES, true, w->stream);
    }
}

static cen_status call(const world *w, enum ceni_dev_op op) {
    if (op == CENI_OP_limits) {
        ceni_dev_limits limits;
        return ceni_dev_get_limits(w->device, &limits);
    }
    if (op >= CENI_OP_tensor_map) {
        return call_optional(w, op);
    }
    if (op >= CENI_OP_event_export) {
        return call_share(w, op);
    }
    if (op >= CENI_OP_va_reserve && op <= CENI_OP_segment_free) {
        return call_memory(w, op);
    }
    if (op >= CENI_OP_stream_create && op <= CENI_OP_event_elapsed) {
        return call_stream(w, op);
    }
    return call_work(w, op);
}

static void free_world(fixture *f, world *w) {
    cen_device_close(f->device);
    cen_device_close(w->peer);
    close(w->fd);
    if (w->event_fd >= 0) {
        close(w->event_fd);
    }
    free(w->registered);
    free(w->memory_to_register);
    f->device = suite_open(f, 0, NULL);
}

/* Fails once with a word in the log and nothing changed; then works. */
static void every_operation_can_fail(void **state) {
    fixture *f = *state;
    for (enum ceni_dev_op op = 0; op < CENI_OP_COUNT; op++) {
        world w = make_world(f, f->host ? suite_open(f, 1, NULL) : NULL);
        uint64_t free_bytes = suite_free_bytes(f->device);
        uint64_t calls = f->device->stats[op].calls, failures = f->device->stats[op].failures;
        ceni_dev_fault(f->device, op, 1, false);
        suite_log_reset();
        cen_status status = call(&w, op);
        if (!strstr(suite_log_line, ceni_dev_op_name(op))) {
            assert_false(f->host); /* what a GPU lacks cannot fail */
        } else {
            assert_true(status < 0 && status != CEN_ERR_NOT_READY);
            assert_logged("failure injected");
            assert_int_equal(f->device->stats[op].failures, failures + 1);
            assert_int_equal(f->device->stats[op].calls, calls + 1);
            assert_int_equal(suite_free_bytes(f->device), free_bytes);
            status = call(&w, op);
            if (status && status != CEN_ERR_UNSUPPORTED && !takes_two(f, op)) {
                fail_msg("%s after its failure: %s", ceni_dev_op_name(op), cen_status_name(status));
            }
        }
        free_world(f, &w);
    }
}

/* As above for the backend's own host memory: each request of each operation. */
static void every_allocation_can_fail(void **state) {
    fixture *f = *state;
    ceni_fault_arm *arm = &ceni_fault_points[CENI_FAULT_HOST_MEMORY];
    for (enum ceni_dev_op op = 0; op < CENI_OP_COUNT; op++) {
        bool failed = true;
        for (int64_t n = 1; failed && n < 10; n++) {
            world w = make_world(f, f->host ? suite_open(f, 1, NULL) : NULL);
            uint64_t free_bytes = suite_free_bytes(f->device);
            suite_log_reset();
            ceni_fault_set(arm, n, false);
            cen_status status = call(&w, op);
            ceni_fault_set(arm, 0, false);
            failed = status == CEN_ERR_HOST_MEMORY;
            if (failed) {
                assert_int_equal(suite_log_errors, 1);
                assert_int_equal(suite_free_bytes(f->device), free_bytes);
                OK(call(&w, op));
            } else if (f->host && op < CENI_OP_legacy_export) { /* of which it has none */
                OK(status);
            }
            free_world(f, &w);
        }
        assert_false(failed);
    }
}

static void opening_can_run_out_of_memory(void **state) {
    fixture *f = *state;
    ceni_fault_arm *arm = &ceni_fault_points[CENI_FAULT_HOST_MEMORY];
    cen_device_close(f->device);
    cen_status status = CEN_ERR_HOST_MEMORY;
    int64_t failures = -1;
    for (int64_t n = 1; status == CEN_ERR_HOST_MEMORY && n < 100; n++, failures++) {
        f->device = NULL;
        ceni_fault_set(arm, n, false);
        status = cen_device_open(f->name, &f->device);
        ceni_fault_set(arm, 0, false);
    }
    OK(status);
    assert_true(failures > 0);
}

static void faults_come_from_the_environment(void **state) {
    fixture *f = *state;
    setenv("CENOTE_FAULT", "page_create:2,event_query:1+", 1);
    cen_device *d = suite_open(f, 0, NULL);
    const char *malformed[] = {"page_creat:1",    "page_create", "page_create:0",  "page_create:1x",
                               "page_create:1++", ":1",          "page_create:1,,"};
    cen_device *none = NULL;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        setenv("CENOTE_FAULT", malformed[i], 1);
        suite_log_reset();
        FAILS(CEN_ERR_INVALID, cen_device_open(f->name, &none));
        assert_logged("CENOTE_FAULT");
        assert_null(none);
    }
    unsetenv("CENOTE_FAULT");
    ceni_page page;
    cen_event event;
    OK(ceni_dev_page_create(d, d->granularity, 0, &page));
    FAILS(CEN_ERR_DEVICE_MEMORY, ceni_dev_page_create(d, d->granularity, 0, &page));
    OK(ceni_dev_page_create(d, d->granularity, 0, &page));
    OK(cen_event_create(d, 0, &event));
    for (int i = 0; i < 3; i++) {
        FAILS(CEN_ERR_DEVICE, cen_event_query(d, event));
    }
    cen_device_close(d);
}

static void calls_are_counted(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 3, 0);
    suite_unmap(d, &m);
    FAILS(CEN_ERR_INVALID, ceni_dev_page_create(d, 1, 0, &m.pages[0]));
    assert_int_equal(d->stats[CENI_OP_page_create].calls, 4);
    assert_int_equal(d->stats[CENI_OP_page_create].failures, 1);
    assert_int_equal(d->stats[CENI_OP_page_unmap].calls, 1);
    assert_int_equal(d->stats[CENI_OP_page_unmap].handles, 3);
    assert_int_equal(d->stats[CENI_OP_page_map].handles, 3);
    assert_true(d->stats[CENI_OP_page_map].ns > 0);
}

static void names_are_checked(void **state) {
    cen_device *d = (cen_device *)state;
    const char *malformed[] = {
        "", "gpu", "host:", "host:x", "host:1x", "host:-1", "host:999999999", "cuda:0:0", ":0"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        suite_log_reset();
        FAILS(CEN_ERR_INVALID, cen_device_open(malformed[i], &d));
        assert_logged("device_open");
        assert_ptr_equal(d, state);
    }
    FAILS(CEN_ERR_NO_DEVICE, cen_device_open("host:99", &d));
    FAILS(CEN_ERR_NO_DEVICE, cen_device_open("cuda:99", &d));
    FAILS(CEN_ERR_INVALID, cen_device_open(NULL, &d));
    FAILS(CEN_ERR_INVALID, cen_device_open("host", NULL));
    FAILS(CEN_ERR_INVALID, cen_stream_sync(NULL, 0));
    int count;
    FAILS(CEN_ERR_INVALID, cen_device_count("tpu", &count));
    cen_device_close(NULL);
}

static void a_forked_child_is_refused(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    cen_event event;
    mapped m = suite_map(d, 1, 0);
    cen_fill_async(d, m.addr, 1, m.size, 0);
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    OK(cen_event_create(d, 0, &event));
    pid_t child = fork();
    if (child == 0) {
        ceni_page page;
        bool refused = cen_event_query(d, event) == CEN_ERR_FORKED &&
                       ceni_dev_page_create(d, d->granularity, 0, &page) == CEN_ERR_FORKED &&
                       cen_stream_sync(d, 0) == CEN_ERR_FORKED;
        /* nor is the memory there */
        refused = refused && write(pipe_ends[1], (void *)(uintptr_t)m.addr, 1) < 0;
        cen_device_close(d); /* leaves the parent's device alone */
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    OK(cen_event_query(d, event));
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void an_illegal_access_is_sticky(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("it would end the context of the whole process");
    }
    cen_device *d = f->device;
    mapped m = suite_map(d, 2, 0);
    cen_stream stream;
    cen_event gate;
    OK(cen_stream_create(d, 0, &stream));
    OK(cen_event_create(d, CEN_EVENT_MANUAL, &gate));
    OK(cen_stream_wait(d, stream, gate));
    OK(cen_fill_async(d, m.addr, 1, m.size, stream));
    OK(ceni_dev_page_unmap(d, m.addr + m.granule, m.granule, 1)); /* under queued work */
    OK(cen_event_signal(d, gate));
    FAILS(CEN_ERR_FAULT, cen_stream_sync(d, stream));
    FAILS(CEN_ERR_FAULT, cen_fill_async(d, m.addr, 1, 4, 0));
    FAILS(CEN_ERR_FAULT, ceni_dev_page_release(d, m.pages[0]));
    f->device = suite_open(f, 0, NULL);
    cen_device_close(d);
    d = f->device; /* a kernel faults on what is not the device's, too */
    uint32_t word = 0, value = 1;
    uint64_t count = 1, dst = address(&word);
    void *args[] = {&dst, &value, &count};
    suite_launch(d, "cen_fill_u32", args, 3, 0);
    FAILS(CEN_ERR_FAULT, cen_stream_sync(d, 0));
    assert_int_equal(word, 0);
}

static void a_lost_device_says_so(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("only the host can be declared lost");
    }
    world w = make_world(f, suite_open(f, 1, NULL));
    OK(cen_event_record(f->device, w.manual, w.stream));
    OK(cen_stream_wait(f->device, w.stream, w.manual)); /* blocked for good */
    OK(cen_fill_async(f->device, w.memory.addr, 1, 4, w.stream));
    ceni_host_lose(f->device);
    for (enum ceni_dev_op op = 0; op < CENI_OP_COUNT; op++) {
        suite_log_reset();
        FAILS(op < CENI_OP_tensor_map ? CEN_ERR_DEVICE_LOST : CEN_ERR_UNSUPPORTED, call(&w, op));
        assert_int_equal(suite_log_errors, 1);
    }
    free_world(f, &w);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(every_operation_can_fail),
    SUITE_TEST(every_allocation_can_fail),
    SUITE_TEST(opening_can_run_out_of_memory),
    SUITE_TEST(faults_come_from_the_environment),
    SUITE_TEST(calls_are_counted),
    SUITE_TEST(names_are_checked),
    SUITE_TEST(a_forked_child_is_refused),
    SUITE_TEST(an_illegal_access_is_sticky),
    SUITE_TEST(a_lost_device_says_so),
};
SUITE_MAIN(tests)
