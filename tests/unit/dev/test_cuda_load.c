/* The CUDA backend over a stand-in driver (fake_cuda.c): finding symbols, what driver errors
 * become, contexts, and that closing releases what was left (the sanitizers see what is not). Each
 * case runs in a child, as the driver is loaded once a process. Without the stand-in: skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cenote/log.h"
#include "dev/cuda/backend.h"

static const ceni_backend *const cuda = &ceni_backend_cuda;
static char last_message[1024];
static int message_count;

static void keep(void *arg, cen_log_level level, const char *message) {
    snprintf(last_message, sizeof last_message, "%s", message);
    message_count++;
}

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s (last message: %s)\n", __FILE__, __LINE__,          \
                    #condition, last_message);                                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void in_child(void (*body)(void), const char *failures) {
    pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (!child) {
        setenv("FAKE_CUDA_FAIL", failures, 1);
        cen_log_set(keep, NULL, CEN_LOG_INFO);
        body();
        exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static cen_device *opened(void) {
    cen_device *device = NULL;
    EXPECT(cuda->open(0, NULL, &device) == CEN_OK);
    return device;
}

static void expect_none(const char *reason) {
    int count = -1;
    cen_device *device = NULL;
    EXPECT(cuda->count(&count) == CEN_OK && count == 0);
    EXPECT(strstr(last_message, reason));
    EXPECT(cuda->open(0, NULL, &device) == CEN_ERR_NO_DEVICE && !device);
    EXPECT(strstr(last_message, reason));
}

static void init_fails(void) {
    expect_none("cuInit: CUDA_ERROR_FAKE (999): as the test asked");
}

static void stub_library(void) {
    expect_none("stub");
}

static void no_devices(void) {
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    expect_none("no CUDA device");
}

static void finds_devices(void) {
    int count = 0;
    uint64_t free_bytes = 0, total = 0;
    cen_device_props props;
    cen_device *device = opened();
    EXPECT(cuda->count(&count) == CEN_OK && count == 1);
    EXPECT(cuda->props(device, &props) == CEN_OK);
    EXPECT(!strcmp(props.name, "Fake 0"));
    EXPECT(!strcmp(props.uuid, "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff"));
    EXPECT(props.vmm && props.export_fd && !props.rdma && props.granularity == 2 << 20);
    EXPECT(cuda->mem_info(device, &free_bytes, &total) == CEN_OK); /* from cuGetProcAddress */
    EXPECT(free_bytes == 3 << 20 && total == 4 << 20);
    cuda->close(device);
    EXPECT(cuda->open(1, NULL, &device) == CEN_ERR_NO_DEVICE);
}

static void missing_symbols(void) {
    cen_device *device = opened();
    EXPECT(cuda->copy(device, 1, 2, 3, 0) == CEN_ERR_UNSUPPORTED);
    EXPECT(cuda->host_func(device, 0, NULL, NULL) == CEN_ERR_UNSUPPORTED);
    cuda->close(device);
}

static void maps_errors(void) {
    static const struct {
        int code;
        cen_status status;
    } cases[] = {
        {200, CEN_ERR_UNSUPPORTED}, {1, CEN_ERR_INVALID},       {2, CEN_ERR_DEVICE_MEMORY},
        {4, CEN_ERR_DEVICE_LOST},   {201, CEN_ERR_DEVICE_LOST}, {400, CEN_ERR_INVALID},
        {700, CEN_ERR_DEVICE_LOST}, {709, CEN_ERR_DEVICE_LOST}, {719, CEN_ERR_DEVICE_LOST},
        {801, CEN_ERR_UNSUPPORTED}, {900, CEN_ERR_CAPTURE},     {906, CEN_ERR_CAPTURE},
        {999, CEN_ERR_DEVICE},
    };
    cen_device *device = opened();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char failures[64];
        ceni_page page = 77;
        message_count = 0;
        snprintf(failures, sizeof failures, "cuMemCreate=%d", cases[i].code);
        setenv("FAKE_CUDA_FAIL", failures, 1);
        EXPECT(cuda->page_create(device, 2 << 20, 0, &page) == cases[i].status);
        EXPECT(page == 77 && message_count == 1);
    }
    setenv("FAKE_CUDA_FAIL", "cuStreamQuery=600,cuMemHostAlloc=2", 1);
    void *ptr = NULL;
    message_count = 0;
    EXPECT(cuda->stream_query(device, 0) == CEN_ERR_NOT_READY && message_count == 0);
    EXPECT(cuda->pinned_alloc(device, 4096, &ptr) == CEN_ERR_HOST_MEMORY && !ptr);
    cuda->close(device);
}

static void shutdown_is_an_error(void) {
    cen_device *device = opened();
    cen_stream stream = 0;
    setenv("FAKE_CUDA_FAIL", "cuCtxGetCurrent=4,cuDevicePrimaryCtxRelease_v2=4", 1);
    EXPECT(cuda->stream_create(device, 0, &stream) == CEN_ERR_DEVICE_LOST && !stream);
    cuda->close(device);
}

static void keeps_the_callers_context(void) {
    cen_device *device = opened();
    const ceni_cu *cu = ((ceni_cuda_device *)device)->cu;
    cu_context other = (cu_context)&last_message, current = NULL;
    cen_stream stream = 0;
    EXPECT(cu->cuCtxPushCurrent(other) == CU_SUCCESS);
    EXPECT(cuda->stream_create(device, -100, &stream) == CEN_OK); /* clamped */
    EXPECT(cu->cuCtxGetCurrent(&current) == CU_SUCCESS && current == other);
    EXPECT(cuda->stream_destroy(device, stream) == CEN_OK);
    EXPECT(cu->cuCtxPopCurrent(&current) == CU_SUCCESS && current == other);
    cuda->close(device);
}

static void close_releases(void) {
    enum { PAGE = 2 << 20, COUNT = 100 };
    cen_device *device = opened();
    int before = dup(0);
    close(before);
    cen_addr range = 0, segment = 0;
    void *pinned = NULL;
    EXPECT(cuda->va_reserve(device, COUNT * (uint64_t)PAGE, 0, &range) == CEN_OK);
    EXPECT(cuda->segment_alloc(device, PAGE, &segment) == CEN_OK);
    EXPECT(cuda->pinned_alloc(device, PAGE, &pinned) == CEN_OK);
    for (int i = 0; i < COUNT; i++) {
        ceni_page page = 0;
        cen_event event = 0;
        cen_stream stream = 0;
        EXPECT(cuda->page_create(device, PAGE, 0, &page) == CEN_OK);
        EXPECT(cuda->page_map(device, range + (uint64_t)i * PAGE, PAGE, page) == CEN_OK);
        EXPECT(cuda->event_create(device, 0, &event) == CEN_OK);
        EXPECT(cuda->stream_create(device, 0, &stream) == CEN_OK);
        if (i % 3 == 0) {
            EXPECT(cuda->page_release(device, page) == CEN_OK);
            EXPECT(cuda->page_release(device, page) == CEN_ERR_INVALID);
            EXPECT(cuda->event_destroy(device, event) == CEN_OK);
            EXPECT(cuda->stream_destroy(device, stream) == CEN_OK);
        }
    }
    EXPECT(cuda->va_free(device, range, COUNT * (uint64_t)PAGE) == CEN_ERR_BUSY);
    EXPECT(cuda->page_unmap(device, range + 1, PAGE) == CEN_ERR_INVALID);
    EXPECT(cuda->page_unmap(device, range, COUNT / 2 * (uint64_t)PAGE) == CEN_OK);
    ceni_cuda_device *self = (ceni_cuda_device *)device;
    EXPECT(self->owned.count == 3 + COUNT / 2 + 3 * (COUNT - (COUNT + 2) / 3));
    cuda->close(device);
    int after = dup(0);
    EXPECT(after == before); /* every page's descriptor is closed */
}

static void test_load(void **state) {
    in_child(init_fails, "cuInit=999");
    in_child(stub_library, "cuInit=34");
    in_child(no_devices, "");
    in_child(finds_devices, "");
    in_child(missing_symbols, "");
}

static void test_errors(void **state) {
    in_child(maps_errors, "");
    in_child(shutdown_is_an_error, "");
}

static void test_ownership(void **state) {
    in_child(keeps_the_callers_context, "");
    in_child(close_releases, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_ownership),
    };
    return getenv("CENOTE_FAKE_CUDA") ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
