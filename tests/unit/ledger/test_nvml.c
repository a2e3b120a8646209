/* The reader of NVML over a stand-in: new and old libraries, lists that grow or have the sizes of
 * other drivers, calls that fail, threads and forks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "cenote/holders.h"
#include "fake_load.h"
#include "ledger/nvml.h"

#define NEW FAKE_NVML_DIR
#define OLD FAKE_NVML_DIR "_old"

static ceni_nvml_why why;

static ceni_nvml_device first(void) {
    ceni_nvml_device device = NULL;
    EXPECT(ceni_nvml_at(0, &device, &why) == CEN_OK);
    return device;
}

static size_t listed(ceni_nvml_process **processes) {
    size_t count = 0;
    EXPECT(ceni_nvml_processes(first(), processes, &count, &why) == CEN_OK);
    return count;
}

static void reads(void) {
    unsigned count = 0;
    ceni_nvml_memory memory;
    char uuid[48], name[128];
    fake->device_count = 2;
    fake->devices[0].used = 300;
    fake->devices[0].reserved = 24;
    EXPECT(ceni_nvml_count(&count, &why) == CEN_OK && count == 2);
    EXPECT(ceni_nvml_identity(first(), uuid, name, &why) == CEN_OK);
    EXPECT(!strcmp(uuid, "GPU-fake-0") && !strcmp(name, "Fake GPU"));
    EXPECT(ceni_nvml_memory_of(first(), &memory, &why) == CEN_OK);
    EXPECT(memory.total == 1 << 30 && memory.used + memory.reserved == 324);
    EXPECT(memory.free == (1 << 30) - 324);
    ceni_nvml_device second = NULL;
    EXPECT(ceni_nvml_find("GPU-fake-1", &second, &why) == CEN_OK && second != first());
    EXPECT(fake->inits == 1 && fake->shutdowns == 0);
}

static void reads_new(void) {
    ceni_nvml_memory memory;
    reads();
    EXPECT(ceni_nvml_memory_of(first(), &memory, &why) == CEN_OK && memory.reserved == 24);
    fake->devices[0].memory_v2_result = 13; /* some drivers have the function and refuse */
    EXPECT(ceni_nvml_memory_of(first(), &memory, &why) == CEN_OK);
    EXPECT(memory.used == 324 && memory.reserved == 0);
    uint64_t energy = 0;
    unsigned generation = 0, lanes = 0;
    fake->devices[0].energy = 1234567;
    EXPECT(ceni_nvml_energy(first(), &energy, &why) == CEN_OK && energy == 1234567);
    fake->devices[0].energy = 1;
    fake->devices[0].energy_result = 3;
    EXPECT(ceni_nvml_energy(first(), &energy, &why) == CEN_ERR_UNSUPPORTED && energy == 1234567);
    EXPECT(ceni_nvml_pcie(first(), &generation, &lanes, &why) == CEN_OK);
    EXPECT(generation == 5 && lanes == 16);
}

static void reads_old(void) {
    ceni_nvml_process *processes = NULL;
    char name[64];
    reads();
    fake->devices[0].compute_count = 2;
    fake->devices[0].compute[0] = (fake_process){7, 70};
    fake->devices[0].compute[1] = (fake_process){8, 80};
    EXPECT(listed(&processes) == 2);
    EXPECT(processes[1].pid == 8 && processes[1].bytes == 80);
    ceni_free(processes);
    EXPECT(!ceni_nvml_program(4000000, name, sizeof name));
    uint64_t energy = 7;
    unsigned generation = 7, lanes = 7;
    EXPECT(ceni_nvml_energy(first(), &energy, &why) == CEN_ERR_UNSUPPORTED && energy == 7);
    EXPECT(ceni_nvml_pcie(first(), &generation, &lanes, &why) == CEN_ERR_UNSUPPORTED);
    EXPECT(generation == 7 && lanes == 7);
}

/* Those that compute and draw are in both lists; of MIG's instances in one list twice. */
static void lists_once(void) {
    ceni_nvml_process *processes = NULL;
    fake_device *d = &fake->devices[0];
    d->compute_count = 3;
    d->compute[0] = (fake_process){7, 70};
    d->compute[1] = (fake_process){8, ~0ull};
    d->compute[2] = (fake_process){7, 30};
    d->graphics_count = 2;
    d->graphics[0] = (fake_process){7, 100};
    d->graphics[1] = (fake_process){9, 5};
    EXPECT(listed(&processes) == 3);
    EXPECT(processes[0].pid == 7 && processes[0].bytes == 100);
    EXPECT(processes[1].pid == 8 && processes[1].bytes == CEN_BYTES_UNKNOWN);
    EXPECT(processes[2].pid == 9 && processes[2].bytes == 5);
    ceni_free(processes);
    d->graphics_result = 3;
    EXPECT(listed(&processes) == 2);
    ceni_free(processes);
}

static void lists_any_size(void) {
    static const size_t strides[] = {16, 24, 32};
    ceni_nvml_process *processes = NULL;
    fake->devices[0].compute_count = 5;
    for (unsigned i = 0; i < 5; i++) {
        fake->devices[0].compute[i] = (fake_process){100 + i, 1000 + i};
    }
    for (size_t s = 0; s < 3; s++) {
        fake->stride = strides[s];
        EXPECT(listed(&processes) == 5);
        for (unsigned i = 0; i < 5; i++) {
            EXPECT(processes[i].pid == (int)(100 + i) && processes[i].bytes == 1000 + i);
        }
        ceni_free(processes);
    }
}

static void lists_many(void) {
    ceni_nvml_process *processes = NULL;
    fake->devices[0].compute_count = 60;
    fake->late = 20; /* come after the first call */
    for (unsigned i = 0; i < FAKE_PROCESSES; i++) {
        fake->devices[0].compute[i] = (fake_process){100 + i, 1};
    }
    size_t count = listed(&processes);
    EXPECT(count == fake->devices[0].compute_count && count >= 80);
    EXPECT(processes[count - 1].pid == (int)(99 + count));
    ceni_free(processes);
}

static void fails(void) {
    unsigned count;
    ceni_nvml_device device = NULL;
    ceni_nvml_memory memory;
    ceni_nvml_process *processes = NULL;
    char uuid[48], name[128];
    size_t n = 0;
    fake->init_result = 9;
    EXPECT(ceni_nvml_count(&count, &why) == CEN_ERR_NO_DEVICE);
    EXPECT(!strcmp(why.text, "NVML: nvmlInit: Driver Not Loaded (9)"));
    fake->init_result = 18;
    EXPECT(ceni_nvml_count(&count, &why) == CEN_ERR_DEVICE);
    fake->init_result = 0; /* the driver was loaded meanwhile */
    EXPECT(ceni_nvml_count(&count, &why) == CEN_OK);
    EXPECT(ceni_nvml_at(1, &device, &why) == CEN_ERR_DEVICE && !device);
    EXPECT(ceni_nvml_find("GPU-none", &device, &why) == CEN_ERR_NOT_FOUND && !device);
    EXPECT(ceni_nvml_find("nonsense", &device, &why) == CEN_ERR_NOT_FOUND && !device);
    device = first();
    fake->devices[0].uuid_result = 15;
    EXPECT(ceni_nvml_identity(device, uuid, name, &why) == CEN_ERR_DEVICE);
    EXPECT(!strcmp(why.text, "NVML: nvmlDeviceGetUUID: GPU is lost (15)"));
    fake->devices[0].memory_v2_result = fake->devices[0].memory_result = 15;
    EXPECT(ceni_nvml_memory_of(device, &memory, &why) == CEN_ERR_DEVICE);
    fake->devices[0].compute_result = 3;
    EXPECT(ceni_nvml_processes(device, &processes, &n, &why) == CEN_ERR_UNSUPPORTED);
    EXPECT(!processes && !n);
    fake->devices[0].compute_result = 0;
    fake->devices[0].compute_count = 1;
    for (int nth = 1;; nth++) {
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], nth, false);
        cen_status status = ceni_nvml_processes(device, &processes, &n, &why);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        if (!status) {
            EXPECT(nth > 2);
            break;
        }
        EXPECT(status == CEN_ERR_HOST_MEMORY && !processes);
    }
    ceni_free(processes);
}

static void forks(void) {
    unsigned count;
    EXPECT(ceni_nvml_count(&count, &why) == CEN_OK && fake->inits == 1);
    pid_t child = fork();
    if (!child) {
        EXPECT(ceni_nvml_count(&count, &why) == CEN_OK);
        EXPECT(fake->inits == 2 && fake->shutdowns == 1);
        EXPECT(ceni_nvml_count(&count, &why) == CEN_OK && fake->inits == 2);
        exit(0);
    }
    int status = 1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(ceni_nvml_count(&count, &why) == CEN_OK && fake->inits == 1);
}

static void *looks_often(void *arg) {
    for (int i = 0; i < 200; i++) {
        ceni_nvml_process *processes = NULL;
        EXPECT(listed(&processes) == 0);
        ceni_free(processes);
    }
    return NULL;
}

static void threads(void) {
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        EXPECT(!pthread_create(&thread[i], NULL, looks_often, NULL));
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
    }
    EXPECT(fake->inits == 1 && fake->most_inside == 1);
}

static void is_none(void) {
    unsigned count = 77;
    EXPECT(ceni_nvml_count(&count, &why) == CEN_ERR_NO_DEVICE && count == 77);
    EXPECT(!strncmp(why.text, "no NVML: libnvidia-ml.so.1", 26));
}

static void test_new(void **state) {
    in_child(reads_new, NEW);
}
static void test_old(void **state) {
    in_child(reads_old, OLD);
}
static void test_once(void **state) {
    in_child(lists_once, NEW);
}
static void test_any_size(void **state) {
    in_child(lists_any_size, NEW);
}
static void test_many(void **state) {
    in_child(lists_many, NEW);
}
static void test_fails(void **state) {
    in_child(fails, NEW);
}
static void test_forks(void **state) {
    in_child(forks, NEW);
}
static void test_threads(void **state) {
    in_child(threads, NEW);
}
static void test_none(void **state) {
    if (dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
        skip(); /* this machine has one */
    }
    in_child(is_none, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new),   cmocka_unit_test(test_old),
        cmocka_unit_test(test_once),  cmocka_unit_test(test_any_size),
        cmocka_unit_test(test_many),  cmocka_unit_test(test_fails),
        cmocka_unit_test(test_forks), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
