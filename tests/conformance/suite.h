/* One suite for every backend. Each program's tests run on "host" (threads), "host" with inline
 * streams, and "cuda:0" where a driver is present; CENOTE_TEST_DEVICE=cuda:0 (or host) runs that
 * device only, and the program exits 77 when it is absent; with CENOTE_REQUIRE_GPU in the
 * environment an absent GPU is a failure. A program that defines SUITE_PLAIN also runs on "host"
 * without virtual memory management; one that defines SUITE_DEVICES runs on several devices at once
 * (global_suite.h), two and four on the host. Each test gets a freshly opened device in a
 * `fixture`, and what it does not free is the device's to free. */
#ifndef SUITE_H
#define SUITE_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cenote/cenote.h"
#include "dev/dev.h"

/* Of so many fault points, or rounds of the same, one is tried. The thread sanitizer takes some
 * twenty times as long and looks for races, which the points share; the address sanitizer takes
 * twice as long; every other build tries all. */
#if defined(__SANITIZE_THREAD__)
#define SUITE_STRIDE 8
#elif defined(__SANITIZE_ADDRESS__)
#define SUITE_STRIDE 2
#else
#define SUITE_STRIDE 1
#endif

typedef struct fixture {
    const char *label, *name;
    bool host, is_inline;
    bool plain;  /* without virtual memory management */
    int devices; /* wanted at once; 0: one */
    cen_device *device;
} fixture;

#define OK(call)            assert_int_equal((call), CEN_OK)
#define FAILS(status, call) assert_int_equal((call), (status))

static fixture suite_fixtures[] = {
#ifdef SUITE_DEVICES
    {.label = "2 host", .name = "host:0", .host = true, .devices = 2},
    {.label = "2 host inline", .name = "host:0", .host = true, .is_inline = true, .devices = 2},
    {.label = "4 host", .name = "host:0", .host = true, .devices = 4},
    {.label = "4 host inline", .name = "host:0", .host = true, .is_inline = true, .devices = 4},
    {.label = "2 cuda", .name = "cuda:0", .devices = 2},
#else
    {.label = "host", .name = "host:0", .host = true},
    {.label = "host inline", .name = "host:0", .host = true, .is_inline = true},
#ifdef SUITE_PLAIN
    {.label = "host plain", .name = "host:0", .host = true, .plain = true},
#endif
    {.label = "cuda:0", .name = "cuda:0"},
#endif
};
static fixture *suite_now;

/* Whether the driver is the one of tests/driver, on which no library of NVIDIA's can compute. */
static inline bool suite_test_driver(const fixture *f) {
    cen_device_props props;
    return !f->host && !cen_device_get_props(f->device, &props) &&
           !strncmp(props.name, "cenote test device", 18);
}

/* What cannot run here says why. */
static inline void suite_skip(const char *why) {
    print_message("[  REASON  ] %s\n", why);
    skip();
}

/* What the library logged: the last line, and how many errors since suite_log_reset. */
static pthread_mutex_t suite_log_lock = PTHREAD_MUTEX_INITIALIZER;
static char suite_log_line[1024];
static int suite_log_errors;

static inline void suite_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    pthread_mutex_lock(&suite_log_lock);
    snprintf(suite_log_line, sizeof suite_log_line, "%s", message);
    suite_log_errors += level == CEN_LOG_ERROR;
    pthread_mutex_unlock(&suite_log_lock);
}

static inline void suite_log_reset(void) {
    pthread_mutex_lock(&suite_log_lock);
    suite_log_line[0] = 0;
    suite_log_errors = 0;
    pthread_mutex_unlock(&suite_log_lock);
}

/* The last failure was said in words that contain `text`. */
static inline void suite_log_expect(const char *text) {
    if (!strstr(suite_log_line, text)) {
        fail_msg("logged '%s', which lacks '%s'", suite_log_line, text);
    }
}

/* And once. */
static inline void assert_logged(const char *text) {
    suite_log_expect(text);
    assert_int_equal(suite_log_errors, 1);
    suite_log_reset();
}

/* A device of the fixture's backend, with what else is wanted of the host's options. */
static inline cen_device *suite_open(const fixture *f, int ordinal,
                                     const cen_host_options *wanted) {
    cen_device *device = NULL;
    if (f->host) {
        /* As on real cards, half of the memory is no whole number of pages. */
        cen_host_options options =
            wanted ? *wanted : (cen_host_options){.capacity = ((uint64_t)8 << 30) + (2 << 20)};
        options.size = sizeof options;
        options.inline_streams = f->is_inline;
        options.no_vmm = options.no_vmm || f->plain;
        OK(cen_device_open_host(ordinal, &options, &device));
    } else {
        char name[32];
        snprintf(name, sizeof name, "cuda:%d", ordinal);
        OK(cen_device_open(name, &device));
    }
    return device;
}

static inline int suite_setup(void **state) {
    suite_log_reset();
    suite_now->device = suite_open(suite_now, 0, NULL);
    *state = suite_now;
    return 0;
}

static inline int suite_teardown(void **state) {
    fixture *f = *state;
    cen_device_close(f->device);
    f->device = NULL;
    return 0;
}

#define SUITE_TEST(function) cmocka_unit_test_setup_teardown(function, suite_setup, suite_teardown)

/* Runs the tests on each device; the program's exit status. */
static inline int suite_run(const struct CMUnitTest *tests, size_t count) {
    const char *only = getenv("CENOTE_TEST_DEVICE");
    int failed = 0, ran = 0;
    cen_log_set(suite_log, NULL, CEN_LOG_WARN);
    for (size_t i = 0; i < sizeof suite_fixtures / sizeof *suite_fixtures; i++) {
        fixture *f = &suite_fixtures[i];
        if (only && strcmp(only, f->name) && strcmp(only, f->host ? "host" : "cuda")) {
            continue;
        }
        int devices = 0, needed = f->host || !f->devices ? 1 : f->devices;
        suite_log_reset();
        if (cen_device_count(f->host ? "host" : "cuda", &devices) || devices < needed) {
            /* One GPU is all that may be asked for. */
            bool required = !f->host && devices < 1 && getenv("CENOTE_REQUIRE_GPU");
            printf("%s: %s: %s\n", f->label, required ? "required" : "skipped",
                   suite_log_line[0] ? suite_log_line
                   : devices         ? "there are not enough such devices"
                                     : "there is no such device");
            failed += required;
            continue;
        }
        suite_now = f;
        ran++;
        failed += _cmocka_run_group_tests(f->label, tests, count, NULL, NULL) != 0;
    }
    return failed ? 1 : ran ? 0 : 77;
}

#define SUITE_MAIN(tests)                                                                          \
    int main(void) {                                                                               \
        return suite_run(tests, sizeof(tests) / sizeof *(tests));                                  \
    }

/* `count` pages of one granule each, mapped side by side and writable by the device. */
typedef struct mapped {
    cen_addr addr;
    uint64_t size, granule;
    size_t count;
    ceni_page pages[16];
} mapped;

static inline mapped suite_map(cen_device *device, size_t count, unsigned flags) {
    mapped m = {.granule = device->granularity, .count = count};
    m.size = m.granule * count;
    OK(ceni_dev_va_reserve(device, m.size, 0, &m.addr));
    for (size_t i = 0; i < count; i++) {
        OK(ceni_dev_page_create(device, m.granule, flags, &m.pages[i]));
        OK(ceni_dev_page_map(device, m.addr + i * m.granule, m.granule, m.pages[i]));
    }
    ceni_grant grant = {device, CENI_ACCESS_READ_WRITE};
    OK(ceni_dev_page_access(device, m.addr, m.size, count, &grant, 1));
    return m;
}

static inline void suite_unmap(cen_device *device, const mapped *m) {
    OK(ceni_dev_page_unmap(device, m->addr, m->size, m->count));
    for (size_t i = 0; i < m->count; i++) {
        OK(ceni_dev_page_release(device, m->pages[i]));
    }
    OK(ceni_dev_va_free(device, m->addr, m->size));
}

static inline cen_addr address(const void *ptr) {
    return (cen_addr)(uintptr_t)ptr;
}

/* Reads and writes device memory, in order with stream 0, and waits. */
static inline void suite_read(cen_device *device, void *to, cen_addr from, size_t size) {
    OK(cen_copy_async(device, address(to), from, size, 0));
    OK(cen_stream_sync(device, 0));
}

static inline void suite_write(cen_device *device, cen_addr to, const void *from, size_t size) {
    OK(cen_copy_async(device, to, address(from), size, 0));
    OK(cen_stream_sync(device, 0));
}

static inline uint32_t suite_word(cen_device *device, cen_addr from) {
    uint32_t word = 0;
    suite_read(device, &word, from, sizeof word);
    return word;
}

/* Launches a built-in kernel; skips the test where the library has no kernels for the device. */
static inline void suite_launch(cen_device *device, const char *name, void *const *args,
                                size_t count, cen_stream stream) {
    const cen_launch shape = {{4, 1, 1}, {128, 1, 1}, 0};
    cen_status status = cen_kernel_launch(device, name, &shape, args, count, stream);
    if (status == CEN_ERR_UNSUPPORTED) {
        suite_skip("the library was built without CUDA kernels");
    }
    OK(status);
}

static inline void suite_spin(cen_device *device, uint64_t ns, cen_stream stream) {
    void *args[] = {&ns};
    suite_launch(device, "cen_spin", args, 1, stream);
}

static inline uint64_t suite_free_bytes(cen_device *device) {
    uint64_t free_bytes = 0, total = 0;
    OK(cen_device_mem_info(device, &free_bytes, &total));
    assert_true(free_bytes <= total);
    return free_bytes;
}

#endif
