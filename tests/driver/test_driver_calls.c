/* What programs of the driver API meet in the test driver: statuses, memory and what is free of it,
 * contents, order, pools, captures. Runs three times, once for each way to get at the functions. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver/calls.h"

enum { MIB = 1 << 20, GRANULE = 2 * MIB };

static cu_context context;

static size_t free_now(void) {
    size_t free_bytes = 0, total = 0;
    OK(cu.cuMemGetInfo(&free_bytes, &total));
    assert_true(free_bytes <= total);
    return free_bytes;
}

static cu_deviceptr get(size_t size) {
    cu_deviceptr addr = 0;
    OK(cu.cuMemAlloc(&addr, size));
    return addr;
}

static void nothing_works_before_its_time(void **state) {
    cu_deviceptr addr = 7;
    int count, version = 0;
    size_t bytes;
    GIVES(CU_ERROR_NOT_INITIALIZED, cu.cuDeviceGetCount(&count));
    GIVES(CU_ERROR_NOT_INITIALIZED, cu.cuMemAlloc(&addr, MIB));
    OK(cu.cuDriverGetVersion(&version));
    assert_int_equal(version, 13000);
    GIVES(CU_ERROR_INVALID_VALUE, cu.cuInit(1));
    OK(cu.cuInit(0));
    OK(cu.cuInit(0));
    OK(cu.cuDeviceGetCount(&count));
    assert_int_equal(count, 2);
    cu_device device;
    OK(cu.cuDeviceGet(&device, 1));
    GIVES(CU_ERROR_INVALID_DEVICE, cu.cuDeviceGet(&device, 2));
    GIVES(CU_ERROR_INVALID_CONTEXT, cu.cuMemAlloc(&addr, MIB));
    GIVES(CU_ERROR_INVALID_CONTEXT, cu.cuMemGetInfo(&bytes, &bytes));
    GIVES(CU_ERROR_INVALID_CONTEXT, cu.cuCtxSynchronize());
    assert_int_equal(addr, 7);
}

static int with_context(void **state) {
    return cu.cuDevicePrimaryCtxRetain(&context, 0) || cu.cuCtxSetCurrent(context) ? -1 : 0;
}

static int without_context(void **state) {
    return cu.cuDevicePrimaryCtxRelease(0) ? -1 : 0;
}

static void contexts_take_memory(void **state) {
    size_t before = free_now(), total;
    cu_context made, current;
    unsigned flags;
    int active;
    OK(cu.cuCtxCreate(&made, 0, 0));
    assert_int_equal(before - free_now(), 300 * MIB);
    cu_deviceptr addr = get(3 * MIB);
    OK(cu.cuCtxDestroy(made)); /* with what is allocated in it */
    GIVES(CU_ERROR_INVALID_VALUE, cu.cuMemFree(addr));
    OK(cu.cuCtxGetCurrent(&current));
    assert_ptr_equal(current, context);
    assert_int_equal(free_now(), before);
    GIVES(CU_ERROR_CONTEXT_DESTROYED, cu.cuCtxSetCurrent(made));
    OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 1);
    OK(cu.cuDevicePrimaryCtxRelease(0)); /* the last user: it ends, still current */
    GIVES(CU_ERROR_CONTEXT_DESTROYED, cu.cuMemGetInfo(&total, &total));
    assert_int_equal(with_context(NULL), 0);
    assert_int_equal(free_now(), before);
}

static void small_allocations_share_granules(void **state) {
    size_t before = free_now();
    cu_deviceptr a = get(MIB), b = get(MIB);
    assert_int_equal(before - free_now(), GRANULE);
    cu_deviceptr c = get(100);
    assert_int_equal(before - free_now(), 2 * GRANULE);
    cu_deviceptr d = get(MIB + 1), e = get(5 * MIB);
    assert_int_equal(before - free_now(), 6 * GRANULE);
    assert_int_equal(a % 512 + b % 512 + c % 512, 0);
    OK(cu.cuMemFree(b));
    assert_int_equal(get(MIB), b);
    cu_deviceptr all[] = {a, b, c, d, e};
    for (int i = 0; i < 5; i++) {
        OK(cu.cuMemFree(all[i]));
        GIVES(CU_ERROR_INVALID_VALUE, cu.cuMemFree(all[i]));
    }
    OK(cu.cuMemFree(0));
    assert_int_equal(free_now(), before);
    GIVES(CU_ERROR_INVALID_VALUE, cu.cuMemAlloc(&a, 0));
}

static void memory_runs_out(void **state) {
    size_t before = free_now(), count = 0;
    cu_deviceptr all[64], more = 7;
    while (count < 64 && cu.cuMemAlloc(&all[count], 64 * MIB) == CU_SUCCESS) {
        count++;
    }
    assert_int_equal(count, before / (64 * MIB));
    GIVES(CU_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc(&more, 64 * MIB));
    GIVES(CU_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc(&more, SIZE_MAX));
    assert_int_equal(more, 7);
    while (count) {
        OK(cu.cuMemFree(all[--count]));
    }
    assert_int_equal(free_now(), before);
}

static void contents_are_kept(void **state) {
    unsigned char out[4096], in[4096];
    for (int i = 0; i < 4096; i++) {
        out[i] = (unsigned char)(i * 7);
    }
    cu_deviceptr a = get(sizeof out), b = get(GRANULE);
    OK(cu.cuMemcpyHtoD(a, out, sizeof out));
    OK(cu.cuMemcpyDtoDAsync(b + 100, a, sizeof out, NULL));
    OK(cu.cuMemcpyDtoH(in, b + 100, sizeof in));
    assert_memory_equal(in, out, sizeof in);
    assert_memory_equal((const void *)(uintptr_t)a, out, sizeof out);
    OK(cu.cuMemsetD8(a, 9, sizeof out));
    assert_int_equal(((const unsigned char *)(uintptr_t)a)[4095], 9);
    GIVES(CU_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH(in, b + GRANULE - 8, sizeof in));
    OK(cu.cuMemFree(a));
    OK(cu.cuMemFree(b));
}

static void slow(void *arg) {
    usleep(20000);
    *(volatile int *)arg = 1;
}

static void freeing_waits_for_work(void **state) {
    cu_stream stream;
    volatile int done = 0;
    OK(cu.cuStreamCreate(&stream, CU_STREAM_NO_IMPLICIT));
    cu_deviceptr addr = get(MIB);
    OK(cu.cuLaunchHostFunc(stream, slow, (void *)&done));
    OK(cu.cuMemFree(addr));
    assert_int_equal(done, 1);
    OK(cu.cuStreamDestroy(stream));
    GIVES(CU_ERROR_INVALID_HANDLE, cu.cuStreamSynchronize(stream));
}

static void the_legacy_stream_waits_for_blocking_ones(void **state) {
    cu_stream stream;
    volatile int done = 0;
    unsigned char byte = 0;
    OK(cu.cuStreamCreate(&stream, 0));
    cu_deviceptr addr = get(MIB);
    OK(cu.cuMemsetD8(addr, 1, MIB));
    OK(cu.cuLaunchHostFunc(stream, slow, (void *)&done));
    OK(cu.cuMemsetD8Async(addr, 2, MIB, stream));
    OK(cu.cuMemcpyDtoH(&byte, addr, 1)); /* on the legacy stream */
    assert_int_equal(byte, 2);
    done = 0;
    OK(cu.cuLaunchHostFunc(NULL, slow, (void *)&done));
    OK(cu.cuMemsetD8Async(addr, 3, MIB, stream));
    OK(cu.cuStreamSynchronize(stream));
    assert_int_equal(done, 1);
    OK(cu.cuStreamDestroy(stream));
    OK(cu.cuMemFree(addr));
}

static void other_kinds_of_memory(void **state) {
    size_t before = free_now(), pitch = 0, size = 0;
    cu_deviceptr pitched, managed, at, base;
    cu_array array;
    void *host;
    OK(cu.cuMemAllocPitch(&pitched, &pitch, 1000, 4096, 4));
    assert_int_equal(pitch, 1024);
    assert_int_equal(before - free_now(), 4 * MIB);
    OK(cu.cuMemGetAddressRange(&base, &size, pitched + 5000));
    assert_true(base == pitched && size == pitch * 4096);
    OK(cu.cuArrayCreate(&array, &(cu_array_desc){1024, 1024, CU_FORMAT_FLOAT, 1}));
    assert_int_equal(before - free_now(), 8 * MIB);
    OK(cu.cuMemAllocManaged(&managed, MIB, CU_ATTACH_GLOBAL));
    OK(cu.cuMemAllocHost(&host, MIB));
    assert_int_equal(before - free_now(), 8 * MIB); /* the host's */
    OK(cu.cuMemHostGetDevicePointer(&at, host, 0));
    unsigned kind = 0;
    bool is_managed = false;
    OK(cu.cuPointerGetAttribute(&kind, CU_POINTER_MEMORY_TYPE, pitched));
    assert_int_equal(kind, CU_MEMORY_DEVICE);
    OK(cu.cuPointerGetAttribute(&kind, CU_POINTER_MEMORY_TYPE, at));
    assert_int_equal(kind, CU_MEMORY_HOST);
    OK(cu.cuPointerGetAttribute(&is_managed, CU_POINTER_MANAGED, managed));
    assert_true(is_managed);
    GIVES(CU_ERROR_INVALID_VALUE,
          cu.cuPointerGetAttribute(&kind, CU_POINTER_MEMORY_TYPE, (uintptr_t)&kind));
    *(int *)(uintptr_t)managed = 5;
    OK(cu.cuMemFree(pitched));
    OK(cu.cuMemFree(managed));
    OK(cu.cuMemFreeHost(host));
    OK(cu.cuArrayDestroy(array));
    GIVES(CU_ERROR_INVALID_HANDLE, cu.cuArrayDestroy(array));
    assert_int_equal(free_now(), before);
}

static uint64_t number(cu_pool pool, cu_enum attribute) {
    uint64_t value = 0;
    OK(cu.cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void pools_keep_and_give_back(void **state) {
    size_t before = free_now();
    cu_pool pool;
    cu_stream stream;
    cu_deviceptr a, b;
    OK(cu.cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cu.cuStreamCreate(&stream, CU_STREAM_NO_IMPLICIT));
    OK(cu.cuMemAllocAsync(&a, MIB, stream));
    assert_int_equal(number(pool, CU_POOL_USED), MIB);
    assert_int_equal(number(pool, CU_POOL_RESERVED), 32 * MIB);
    assert_int_equal(before - free_now(), 32 * MIB);
    OK(cu.cuMemFreeAsync(a, stream));
    assert_int_equal(number(pool, CU_POOL_USED), 0);
    OK(cu.cuMemAllocAsync(&b, MIB, stream)); /* the same stream's, at once */
    assert_int_equal(a, b);
    OK(cu.cuMemFreeAsync(b, stream));
    GIVES(CU_ERROR_INVALID_VALUE, cu.cuMemFreeAsync(b, stream));
    OK(cu.cuStreamSynchronize(stream)); /* the threshold is 0 */
    assert_int_equal(number(pool, CU_POOL_RESERVED), 0);
    assert_int_equal(free_now(), before);
    uint64_t threshold = UINT64_MAX;
    OK(cu.cuMemPoolSetAttribute(pool, CU_POOL_THRESHOLD, &threshold));
    OK(cu.cuMemAllocAsync(&a, 40 * MIB, stream));
    OK(cu.cuMemFree(a)); /* any allocation can be freed so */
    assert_int_equal(number(pool, CU_POOL_RESERVED), 40 * MIB);
    assert_int_equal(number(pool, CU_POOL_RESERVED_HIGH), 40 * MIB);
    OK(cu.cuMemPoolTrimTo(pool, 0));
    assert_int_equal(free_now(), before);
    threshold = 0;
    OK(cu.cuMemPoolSetAttribute(pool, CU_POOL_THRESHOLD, &threshold));
    OK(cu.cuStreamDestroy(stream));
}

static void pools_of_ones_own(void **state) {
    size_t before = free_now();
    const cu_pool_props props = {.type = CU_ALLOC_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
    cu_pool pool, of = NULL;
    cu_deviceptr addr, more;
    OK(cu.cuMemPoolCreate(&pool, &props));
    OK(cu.cuMemAllocFromPoolAsync(&addr, 1000, pool, NULL));
    OK(cu.cuPointerGetAttribute(&of, CU_POINTER_POOL, addr));
    assert_ptr_equal(of, pool);
    OK(cu.cuMemPoolDestroy(pool)); /* goes with its last block */
    GIVES(CU_ERROR_INVALID_VALUE, cu.cuMemAllocFromPoolAsync(&more, 1000, pool, NULL));
    assert_int_equal(before - free_now(), 32 * MIB);
    OK(cu.cuMemFreeAsync(addr, NULL));
    OK(cu.cuCtxSynchronize());
    assert_int_equal(free_now(), before);
}

static void captures_become_graphs(void **state) {
    cu_stream stream;
    cu_graph graph;
    cu_graph_exec exec;
    cu_deviceptr addr = get(MIB), more;
    cu_enum status = 9, mode = CU_CAPTURE_MODE_RELAXED;
    uint64_t id = 0;
    OK(cu.cuMemsetD8(addr, 1, MIB));
    OK(cu.cuStreamCreate(&stream, CU_STREAM_NO_IMPLICIT));
    OK(cu.cuStreamBeginCapture(stream, CU_CAPTURE_MODE_GLOBAL));
    OK(cu.cuMemsetD8Async(addr, 2, MIB, stream));
    OK(cu.cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL));
    assert_true(status == CU_CAPTURE_ACTIVE && id > 0);
    OK(cu.cuThreadExchangeStreamCaptureMode(&mode)); /* then allocating is let through */
    OK(cu.cuMemAlloc(&more, MIB));
    OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
    OK(cu.cuStreamEndCapture(stream, &graph));
    assert_int_equal(*(unsigned char *)(uintptr_t)addr, 1);
    OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cu.cuGraphDestroy(graph));
    OK(cu.cuGraphLaunch(exec, stream));
    OK(cu.cuStreamSynchronize(stream));
    assert_int_equal(*(unsigned char *)(uintptr_t)addr, 2);
    OK(cu.cuGraphExecDestroy(exec));
    OK(cu.cuMemFree(more));
    OK(cu.cuStreamBeginCapture(stream, CU_CAPTURE_MODE_GLOBAL));
    GIVES(CU_ERROR_CAPTURE_UNSUPPORTED, cu.cuMemAlloc(&more, MIB));
    GIVES(CU_ERROR_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &graph));
    OK(cu.cuMemFree(addr));
    OK(cu.cuStreamDestroy(stream));
}

static void kernels_are_their_twins(void **state) {
    size_t before = free_now();
    cu_module module;
    cu_function fill, none;
    cu_deviceptr addr = get(GRANULE);
    uint32_t value = 77;
    uint64_t count = 1000;
    void *args[] = {&addr, &value, &count};
    OK(cu.cuModuleLoadData(&module, "any image"));
    assert_int_equal(before - free_now(), GRANULE + 4 * MIB);
    OK(cu.cuModuleGetFunction(&fill, module, "cen_fill_u32"));
    GIVES(CU_ERROR_NOT_FOUND, cu.cuModuleGetFunction(&none, module, "no_such_kernel"));
    OK(cu.cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    OK(cu.cuCtxSynchronize());
    assert_int_equal(((uint32_t *)(uintptr_t)addr)[999], 77);
    OK(cu.cuModuleUnload(module));
    GIVES(CU_ERROR_INVALID_HANDLE, cu.cuModuleUnload(module));
    OK(cu.cuMemFree(addr));
    assert_int_equal(free_now(), before);
}

static void versions_decide_what_is_found(void **state) {
    void *at = NULL, *per_thread = NULL, *old = NULL;
    cu_enum found = 9;
    OK(cu.cuGetProcAddress("cuMemAllocAsync", &at, 12000, 1, &found));
    assert_true(at && found == CU_PROC_ADDRESS_FOUND);
    OK(cu.cuGetProcAddress("cuMemAllocAsync", &per_thread, 12000, 2, &found));
    assert_true(per_thread && per_thread != at);
    OK(cu.cuGetProcAddress("cuMemAlloc", &per_thread, 12000, 2, &found)); /* has no such variant */
    assert_true(per_thread && found == CU_PROC_ADDRESS_FOUND);
    OK(cu.cuGetProcAddress("cuMemAlloc", &old, 2000, 1, &found));
    assert_true(old && old != per_thread);
    OK(cu.cuGetProcAddress("cuMemAllocAsync", &at, 11000, 1, &found));
    assert_true(!at && found == CU_PROC_ADDRESS_TOO_OLD);
    OK(cu.cuGetProcAddress("cuNoSuchThing", &at, 12000, 1, &found));
    assert_true(!at && found == CU_PROC_ADDRESS_NOT_FOUND);
    GIVES(CU_ERROR_INVALID_VALUE, cu.cuGetProcAddress("cuInit", &at, 99000, 1, &found));
    const void *table;
    GIVES(CU_ERROR_NOT_FOUND, cu.cuGetExportTable(&table, NULL));
}

static void failures_can_be_asked_for(void **state) {
    cu_deviceptr addr;
    setenv("CENOTE_TEST_DRIVER_FAIL", "cuMemFree_v2=1,cuMemAlloc_v2=2", 1);
    GIVES(CU_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc(&addr, 8));
    unsetenv("CENOTE_TEST_DRIVER_FAIL");
    addr = get(8);
    OK(cu.cuMemFree(addr));
}

static void a_forked_child_has_no_driver(void **state) {
    pid_t child = fork();
    if (!child) {
        cu_deviceptr addr;
        _exit(cu.cuInit(0) == CU_ERROR_NOT_INITIALIZED &&
                      cu.cuMemAlloc(&addr, MIB) == CU_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void *allocate_and_free(void *arg) {
    (void)arg;
    bool ok = cu.cuCtxSetCurrent(context) == CU_SUCCESS;
    for (size_t i = 1; ok && i <= 200; i++) {
        cu_deviceptr addr;
        ok = cu.cuMemAlloc(&addr, i * 10000) == CU_SUCCESS && cu.cuMemFree(addr) == CU_SUCCESS &&
             cu.cuMemAllocAsync(&addr, i * 1000, CU_STREAM_PER_THREAD) == CU_SUCCESS &&
             cu.cuMemFreeAsync(addr, CU_STREAM_PER_THREAD) == CU_SUCCESS;
    }
    return (void *)(uintptr_t)ok;
}

static void threads_share_a_context(void **state) {
    size_t before = free_now();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *ok = NULL;
        pthread_join(threads[i], &ok);
        assert_non_null(ok);
    }
    OK(cu.cuCtxSynchronize());
    assert_int_equal(free_now(), before);
}

#define IN_CONTEXT(function)                                                                       \
    cmocka_unit_test_setup_teardown(function, with_context, without_context)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_works_before_its_time),
        IN_CONTEXT(contexts_take_memory),
        IN_CONTEXT(small_allocations_share_granules),
        IN_CONTEXT(memory_runs_out),
        IN_CONTEXT(contents_are_kept),
        IN_CONTEXT(freeing_waits_for_work),
        IN_CONTEXT(the_legacy_stream_waits_for_blocking_ones),
        IN_CONTEXT(other_kinds_of_memory),
        IN_CONTEXT(pools_keep_and_give_back),
        IN_CONTEXT(pools_of_ones_own),
        IN_CONTEXT(captures_become_graphs),
        IN_CONTEXT(kernels_are_their_twins),
        IN_CONTEXT(versions_decide_what_is_found),
        IN_CONTEXT(failures_can_be_asked_for),
        IN_CONTEXT(a_forked_child_has_no_driver),
        IN_CONTEXT(threads_share_a_context),
    };
    if (calls_find(argc > 1 ? argv[1] : "dlsym")) {
        fprintf(stderr, "the test driver lacks a function\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
