/* Several processes on one device: what each sees of the others' memory, through the driver and
 * through NVML, and what is left of one that was killed. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver/calls.h"
#include "tests/driver/nvml.h"

enum { MIB = 1 << 20, CONTEXT = 300, CARD = 1024 };

static struct {
    __typeof__(&nvmlInit_v2) init;
    __typeof__(&nvmlShutdown) shutdown;
    __typeof__(&nvmlDeviceGetCount_v2) count;
    __typeof__(&nvmlDeviceGetHandleByIndex_v2) by_index;
    __typeof__(&nvmlDeviceGetHandleByUUID) by_uuid;
    __typeof__(&nvmlDeviceGetUUID) uuid;
    __typeof__(&nvmlDeviceGetMemoryInfo) memory;
    __typeof__(&nvmlDeviceGetComputeRunningProcesses_v3) processes;
    __typeof__(&nvmlSystemGetProcessName) name;
} nvml;

static nvml_device_handle device;
static char folder[] = "/tmp/cenote-holders-XXXXXX";

static void find_nvml(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    calls_set(&nvml.init, dlsym(library, "nvmlInit_v2"));
    calls_set(&nvml.shutdown, dlsym(library, "nvmlShutdown"));
    calls_set(&nvml.count, dlsym(library, "nvmlDeviceGetCount_v2"));
    calls_set(&nvml.by_index, dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
    calls_set(&nvml.by_uuid, dlsym(library, "nvmlDeviceGetHandleByUUID"));
    calls_set(&nvml.uuid, dlsym(library, "nvmlDeviceGetUUID"));
    calls_set(&nvml.memory, dlsym(library, "nvmlDeviceGetMemoryInfo"));
    calls_set(&nvml.processes, dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"));
    calls_set(&nvml.name, dlsym(library, "nvmlSystemGetProcessName"));
}

/* A process that holds `mib` of the first device; it ends when told to. */
typedef struct holder {
    pid_t pid;
    int say, hear;
} holder;

/* In the child: 0, or where it failed. */
static int hold(size_t mib, int hear, int say) {
    cu_context context;
    cu_deviceptr addr;
    char byte = 1;
    size_t free_bytes, total;
    if (calls_find("dlsym") || cu.cuInit(0) || cu.cuDevicePrimaryCtxRetain(&context, 0) ||
        cu.cuCtxSetCurrent(context) || cu.cuMemAlloc(&addr, mib * MIB) ||
        cu.cuMemGetInfo(&free_bytes, &total)) {
        return 1;
    }
    uint64_t left = free_bytes / MIB;
    return write(say, &left, sizeof left) == sizeof left && read(hear, &byte, 1) == 1 ? 0 : 2;
}

static holder start(size_t mib, uint64_t *left) {
    int to[2], from[2];
    assert_int_equal(pipe(to) | pipe(from), 0);
    holder h = {.pid = fork(), .say = to[1], .hear = from[0]};
    if (!h.pid) { /* which ends with its parent: it sees the pipe end */
        close(to[1]);
        close(from[0]);
        exit(hold(mib, to[0], from[1]));
    }
    close(to[0]);
    close(from[1]);
    *left = 0;
    assert_int_equal(read(h.hear, left, sizeof *left), sizeof *left);
    return h;
}

static void stop(const holder *h, bool killed) {
    int status = 0;
    if (killed) {
        kill(h->pid, SIGKILL);
    } else {
        assert_int_equal(write(h->say, "x", 1), 1);
    }
    assert_int_equal(waitpid(h->pid, &status, 0), h->pid);
    assert_true(killed || status == 0);
    close(h->say);
    close(h->hear);
}

/* What NVML says that a process holds; 0: it is not there. */
static uint64_t held_mib(pid_t pid) {
    nvml_process list[8];
    unsigned count = 8;
    assert_int_equal(nvml.processes(device, &count, list), 0);
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == (unsigned)pid) {
            return list[i].bytes / MIB;
        }
    }
    return 0;
}

static uint64_t used_mib(void) {
    nvml_memory memory;
    assert_int_equal(nvml.memory(device, &memory), 0);
    assert_int_equal(memory.total, memory.free + memory.used);
    return memory.used / MIB;
}

static void devices_match_by_uuid(void **state) {
    char uuid[96] = "";
    unsigned count = 0;
    nvml_device_handle found = NULL;
    assert_int_equal(nvml.count(&count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(nvml.uuid(device, uuid, 5), 7);
    assert_int_equal(nvml.uuid(device, uuid, sizeof uuid), 0);
    assert_int_equal(nvml.by_uuid(uuid, &found), 0);
    assert_ptr_equal(found, device);
    assert_int_equal(nvml.by_uuid("GPU-0", &found), 6);
    assert_memory_equal(uuid, "GPU-", 4);
    pid_t child = fork(); /* the driver says the same */
    if (!child) {
        cu_uuid bytes;
        char text[48], *at = text;
        bool ok = !calls_find("dlsym") && !cu.cuInit(0) && !cu.cuDeviceGetUuid(&bytes, 0);
        at += snprintf(at, sizeof text, "GPU-");
        for (int i = 0; ok && i < 16; i++) {
            at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                          (unsigned char)bytes.bytes[i]);
        }
        _exit(ok && !strcmp(text, uuid) ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void processes_see_one_another(void **state) {
    uint64_t left;
    char name[256];
    holder a = start(100, &left);
    assert_int_equal(left, CARD - CONTEXT - 100);
    holder b = start(20, &left);
    assert_int_equal(left, CARD - 2 * CONTEXT - 120);
    assert_int_equal(held_mib(a.pid), CONTEXT + 100);
    assert_int_equal(held_mib(b.pid), CONTEXT + 20);
    assert_int_equal(used_mib(), 2 * CONTEXT + 120);
    assert_int_equal(nvml.name((unsigned)a.pid, name, sizeof name), 0);
    assert_non_null(strstr(name, "test_driver_holders"));
    stop(&a, false);
    assert_int_equal(held_mib(a.pid), 0);
    stop(&b, true); /* killed: its memory stays, as an orphan's */
    assert_int_equal(held_mib(b.pid), CONTEXT + 20);
    assert_int_equal(nvml.name((unsigned)b.pid, name, sizeof name), 6);
    a = start(1, &left);
    assert_int_equal(left, CARD - 2 * CONTEXT - 20 - 2); /* a granule */
    stop(&a, false);
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", folder, b.pid);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(used_mib(), 0);
}

static int set_up(void **state) {
    assert_non_null(mkdtemp(folder));
    setenv("CENOTE_TEST_DRIVER_STATE", folder, 1);
    find_nvml();
    assert_int_equal(nvml.by_index(0, &device), 1); /* not initialised */
    return nvml.init() || nvml.by_index(0, &device) ? -1 : 0;
}

static int tear_down(void **state) {
    return rmdir(folder) || nvml.shutdown() ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_match_by_uuid),
        cmocka_unit_test(processes_see_one_another),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
