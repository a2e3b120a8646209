/* What is the host backend's alone: its options, the system's limits, real memory, many threads. */
#include "tests/conformance/suite.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "dev/host/host.h"

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif

static fixture *host_only(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("about the host backend");
    }
    return f;
}

static void options_are_checked(void **state) {
    host_only(state);
    cen_device *d = NULL;
    const cen_host_options bad[] = {
        {.size = 0},
        {.size = sizeof *bad + 8},
        {.size = sizeof *bad, .granularity = 2048},
        {.size = sizeof *bad, .granularity = 12288},
        {.size = sizeof *bad, .granularity = 1 << 20, .capacity = (1 << 20) + 4096},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        suite_log_reset();
        FAILS(CEN_ERR_INVALID, cen_device_open_host(0, &bad[i], &d));
        assert_logged("host device");
    }
    FAILS(CEN_ERR_NO_DEVICE, cen_device_open_host(-1, NULL, &d));
    FAILS(CEN_ERR_NO_DEVICE, cen_device_open_host(2, NULL, &d));
    setenv("CENOTE_HOST_CAPACITY", "1g", 1);
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, cen_device_open("host", &d));
    assert_logged("CENOTE_HOST_CAPACITY='1g'");
    setenv("CENOTE_HOST_CAPACITY", "8388608", 1);
    setenv("CENOTE_HOST_DEVICES", "5", 1);
    setenv("CENOTE_HOST_NO_VMM", "1", 1);
    int count = 0;
    OK(cen_device_count("host", &count));
    assert_int_equal(count, 5);
    OK(cen_device_open("host:4", &d));
    unsetenv("CENOTE_HOST_CAPACITY");
    unsetenv("CENOTE_HOST_DEVICES");
    unsetenv("CENOTE_HOST_NO_VMM");
    cen_device_props p;
    cen_addr addr;
    OK(cen_device_get_props(d, &p));
    assert_int_equal(p.total_bytes, 8388608);
    assert_string_equal(p.uuid, "HOST-4");
    assert_false(p.vmm || p.export_fd);
    FAILS(CEN_ERR_UNSUPPORTED, ceni_dev_va_reserve(d, p.granularity, 0, &addr));
    OK(ceni_dev_segment_alloc(d, p.granularity, &addr));
    cen_device_close(d);
}

static void a_full_device_is_full(void **state) {
    fixture *f = host_only(state);
    const cen_host_options small = {.capacity = 8 << 20, .granularity = 1 << 20};
    cen_device *d = suite_open(f, 0, &small);
    ceni_page pages[8], more;
    for (int i = 0; i < 8; i++) {
        OK(ceni_dev_page_create(d, 1 << 20, i % 2 ? CENI_PAGE_EXPORTABLE : 0, &pages[i]));
    }
    assert_int_equal(suite_free_bytes(d), 0);
    suite_log_reset();
    FAILS(CEN_ERR_DEVICE_MEMORY, ceni_dev_page_create(d, 1 << 20, 0, &more));
    suite_log_expect("0 of 8388608 free");
    assert_logged("CENOTE_HOST_CAPACITY");
    cen_addr segment;
    FAILS(CEN_ERR_DEVICE_MEMORY, ceni_dev_segment_alloc(d, 9 << 20, &segment));
    suite_log_expect("9437184 bytes");
    assert_logged("CENOTE_HOST_CAPACITY");
    OK(ceni_dev_page_release(d, pages[2])); /* not side by side: memory has no holes */
    OK(ceni_dev_page_release(d, pages[6]));
    OK(ceni_dev_page_create(d, 2 << 20, 0, &more));
    cen_device_close(d);
}

/* The number at `word` (from 0) of a file's first line; 0: there is none. */
static long read_number(const char *path, int word) {
    char line[256] = "", *at = line;
    FILE *file = fopen(path, "r");
    if (file && !fgets(line, sizeof line, file)) {
        *line = '\0';
    }
    if (file) {
        fclose(file);
    }
    while (word-- > 0) {
        (void)strtol(at, &at, 10);
    }
    return strtol(at, NULL, 10);
}

static long resident_kib(void) {
    long pages = read_number("/proc/self/statm", 1);
    assert_true(pages > 0);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void only_touched_memory_is_real(void **state) {
    cen_device *d = host_only(state)->device;
    const uint64_t size = (uint64_t)2 << 30;
    cen_addr addr;
    ceni_page page;
    long before = resident_kib();
    OK(ceni_dev_va_reserve(d, size, 0, &addr));
    OK(ceni_dev_page_create(d, size, 0, &page));
    OK(ceni_dev_page_map(d, addr, size, page));
    ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
    OK(ceni_dev_page_access(d, addr, size, 1, &grant, 1));
    assert_true(resident_kib() - before < 8 << 10);
    OK(cen_fill_async(d, addr + (size / 2), 1, 64 << 20, 0));
    OK(cen_stream_sync(d, 0));
    assert_true(resident_kib() - before > 60 << 10);
    OK(ceni_dev_page_unmap(d, addr, size, 1));
    OK(ceni_dev_page_release(d, page));
    assert_true(resident_kib() - before < 8 << 10);
    OK(ceni_dev_page_create(d, size, 0, &page)); /* in the same extent: it reads as zero */
    OK(ceni_dev_page_map(d, addr, size, page));
    OK(ceni_dev_page_access(d, addr, size, 1, &grant, 1));
    assert_int_equal(suite_word(d, addr + size / 2), 0);
}

static void the_limit_of_open_files_is_named(void **state) {
    cen_device *d = host_only(state)->device;
    struct rlimit limit, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 40;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    cen_status status = CEN_OK;
    ceni_page page = 0;
    int made = 0;
    suite_log_reset();
    while (!status && made < 100) {
        status = ceni_dev_page_create(d, d->granularity, CENI_PAGE_EXPORTABLE, &page);
        made += !status;
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, CEN_ERR_LIMIT);
    assert_logged("at most 40; raise it with ulimit -n");
    assert_int_equal(suite_free_bytes(d), d->total_bytes - (uint64_t)made * d->granularity);
    OK(ceni_dev_page_create(d, d->granularity, CENI_PAGE_EXPORTABLE, &page));
}

/* A file that grows beyond the limit raises SIGXFSZ, which would end this program. */
static void the_limit_of_file_sizes_is_named(void **state) {
    cen_device *d = host_only(state)->device;
    struct rlimit limit, low;
    ceni_page page, kept[2];
    cen_event event;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low = limit;
    low.rlim_cur = 2 * d->granularity;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    suite_log_reset();
    cen_status exportable =
        ceni_dev_page_create(d, 3 * d->granularity, CENI_PAGE_EXPORTABLE, &page);
    suite_log_expect("at most 4194304 bytes");
    assert_logged("ulimit -f");
    cen_status first = ceni_dev_page_create(d, d->granularity, 0, &kept[0]);
    cen_status second = ceni_dev_page_create(d, d->granularity, 0, &kept[1]);
    cen_status plain = ceni_dev_page_create(d, d->granularity, 0, &page); /* of the same file */
    assert_logged("ulimit -f");
    low.rlim_cur = 1024;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    cen_status shared = cen_event_create(d, CEN_EVENT_SHARED, &event);
    assert_logged("ulimit -f");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    OK(first);
    OK(second);
    FAILS(CEN_ERR_LIMIT, exportable);
    FAILS(CEN_ERR_LIMIT, plain);
    FAILS(CEN_ERR_LIMIT, shared);
    assert_int_equal(suite_free_bytes(d), d->total_bytes - 2 * d->granularity);
    OK(ceni_dev_page_create(d, 3 * d->granularity, CENI_PAGE_EXPORTABLE, &page));
    OK(cen_event_create(d, CEN_EVENT_SHARED, &event));
}

static void the_limit_of_maps_is_named(void **state) {
    fixture *f = host_only(state);
#ifdef THREAD_SANITIZER
    suite_skip("the runtime of this sanitizer ends the process when it gets no memory map");
#endif
    const cen_host_options small = {.granularity = 4096, .capacity = 1 << 20};
    cen_device *d = suite_open(f, 0, &small);
    long most = read_number("/proc/sys/vm/max_map_count", 0);
    if (!most || most > 200000) {
        suite_skip("the system's limit of memory maps is unknown or too high to reach");
    }
    cen_addr range, at;
    ceni_page page;
    uint64_t size = (uint64_t)most * 2 * 4096;
    OK(ceni_dev_va_reserve(d, size, 0, &range));
    OK(ceni_dev_page_create(d, 4096, 0, &page));
    cen_status status = CEN_OK;
    suite_log_reset();
    for (at = range; !status && at < range + size; at += 8192) { /* one page, with gaps */
        status = ceni_dev_page_map(d, at, 4096, page);
    }
    assert_int_equal(status, CEN_ERR_LIMIT);
    assert_logged("vm.max_map_count");
    OK(ceni_dev_page_unmap(d, range, 4096, 1)); /* joins two gaps: room again */
    OK(ceni_dev_page_map(d, range, 4096, page));
    cen_device_close(d);
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void slowness_is_emulated(void **state) {
    fixture *f = host_only(state);
    const cen_host_options slow = {.copy_bytes_per_us = 20, .copy_latency_us = 5000};
    cen_device *d = suite_open(f, 0, &slow);
    mapped m = suite_map(d, 2, 0);
    cen_stream stream;
    OK(cen_stream_create(d, 0, &stream));
    double start = now_ms();
    OK(cen_copy_async(d, m.addr, m.addr + m.granule, 2000000, stream)); /* 100 ms and 5 */
    double queued = now_ms();
    OK(cen_stream_sync(d, stream));
    assert_true(now_ms() - start >= 105);
    assert_true(f->is_inline || queued - start < 100);
    OK(ceni_host_stream_delay(d, stream, 10000));
    start = now_ms();
    OK(cen_fill_async(d, m.addr, 1, 4, stream));
    OK(cen_fill_async(d, m.addr, 2, 4, stream));
    OK(cen_stream_sync(d, stream));
    assert_true(now_ms() - start >= 20);
    cen_device_close(d);
}

enum { THREADS = 4, ROUNDS = 150 };

/* Each thread remaps its own pages and works on them on its own stream, gated by its neighbour. */
typedef struct worker {
    cen_device *device;
    cen_event *shared; /* one a thread */
    int id, failures;
} worker;

static void *churn(void *arg) {
    worker *w = arg;
    cen_device *d = w->device;
    const uint64_t g = d->granularity;
    cen_stream stream;
    int bad = cen_stream_create(d, 0, &stream) != CEN_OK;
    for (int i = 0; i < ROUNDS; i++) {
        cen_addr addr = 0;
        ceni_page page = 0;
        uint32_t word = 0;
        ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
        bad += ceni_dev_va_reserve(d, 2 * g, 0, &addr) || ceni_dev_page_create(d, g, 0, &page);
        bad += ceni_dev_page_map(d, addr, g, page) || ceni_dev_page_map(d, addr + g, g, page);
        bad += ceni_dev_page_access(d, addr, 2 * g, 2, &grant, 1) != CEN_OK;
        bad += cen_stream_wait(d, stream, w->shared[(w->id + 1) % THREADS]) != CEN_OK;
        bad += cen_fill_async(d, addr, (uint8_t)i, 64, stream) != CEN_OK;
        bad += cen_event_record(d, w->shared[w->id], stream) != CEN_OK;
        bad += cen_copy_async(d, address(&word), addr + g, 4, stream) != CEN_OK;
        bad += cen_stream_sync(d, stream) || word != 0x01010101u * (uint8_t)i;
        bad += ceni_dev_page_unmap(d, addr, 2 * g, 2) || ceni_dev_page_release(d, page);
        bad += ceni_dev_va_free(d, addr, 2 * g) != CEN_OK;
    }
    bad += cen_stream_destroy(d, stream) != CEN_OK;
    w->failures = bad;
    return NULL;
}

static void threads_share_a_device(void **state) {
    cen_device *d = host_only(state)->device;
    pthread_t threads[THREADS];
    worker workers[THREADS];
    cen_event events[THREADS];
    uint64_t before = suite_free_bytes(d);
    for (int i = 0; i < THREADS; i++) {
        OK(cen_event_create(d, 0, &events[i]));
        workers[i] = (worker){d, events, i, 0};
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    assert_int_equal(suite_free_bytes(d), before);
}

/* The only thread is the one that would signal: it gets an answer instead of waiting for itself. */
static void a_sync_that_only_a_signal_could_end_is_not_ready(void **state) {
    fixture *f = host_only(state);
    if (!f->is_inline) {
        suite_skip("only inline streams run on the thread that would signal");
    }
    const cen_host_options alone = {.never_wait = true};
    cen_device *d = suite_open(f, 0, &alone);
    cen_event gate, after;
    cen_stream stream;
    OK(cen_stream_create(d, 0, &stream));
    OK(cen_event_create(d, CEN_EVENT_MANUAL, &gate));
    OK(cen_event_create(d, 0, &after));
    OK(cen_stream_wait(d, stream, gate));
    OK(cen_event_record(d, after, stream));
    FAILS(CEN_ERR_NOT_READY, cen_event_sync(d, gate));
    FAILS(CEN_ERR_NOT_READY, cen_event_sync(d, after));
    FAILS(CEN_ERR_NOT_READY, cen_stream_sync(d, stream));
    OK(cen_stream_sync(d, 0));
    OK(cen_event_signal(d, gate));
    OK(cen_event_sync(d, after));
    OK(cen_stream_sync(d, stream));
    OK(cen_stream_wait(d, stream, gate));
    cen_device_close(d); /* with a gate pending or not, closing ends */
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(options_are_checked),
    SUITE_TEST(a_full_device_is_full),
    SUITE_TEST(only_touched_memory_is_real),
    SUITE_TEST(the_limit_of_open_files_is_named),
    SUITE_TEST(the_limit_of_file_sizes_is_named),
    SUITE_TEST(the_limit_of_maps_is_named),
    SUITE_TEST(slowness_is_emulated),
    SUITE_TEST(threads_share_a_device),
    SUITE_TEST(a_sync_that_only_a_signal_could_end_is_not_ready),
};
SUITE_MAIN(tests)
