/* A test libnvidia-ml.so.1: the devices of the test driver, and the processes that hold memory of
 * them as their files tell (state.h), those of dead processes too. Declarations are NVML's. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/driver/nvml.h"
#include "tests/driver/state.h"

struct nvml_device {
    int ordinal;
    uint64_t total;
};

static struct nvml_device devices[TD_STATE_DEVICES];
static int device_count;
static int users;

/* The devices and their memory are those that the host backend's settings name. */
static uint64_t setting(const char *name, uint64_t fallback) {
    const char *text = getenv(name);
    uint64_t value = text ? strtoull(text, NULL, 10) : 0;
    return value ? value : fallback;
}

nvml_result nvmlInit_v2(void) {
    if (users++ == 0) {
        uint64_t count = setting("CENOTE_HOST_DEVICES", 2);
        device_count = count < TD_STATE_DEVICES ? (int)count : TD_STATE_DEVICES;
        for (int i = 0; i < device_count; i++) {
            devices[i] =
                (struct nvml_device){i, setting("CENOTE_HOST_CAPACITY", (uint64_t)8 << 30)};
        }
    }
    return NVML_SUCCESS;
}

nvml_result nvmlShutdown(void) {
    if (!users) {
        return NVML_UNINITIALIZED;
    }
    users--;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvml_result result) {
    switch (result) {
    case NVML_SUCCESS:
        return "success, says the test NVML";
    case NVML_UNINITIALIZED:
        return "the test NVML is not initialised";
    case NVML_INVALID_ARGUMENT:
        return "invalid argument, says the test NVML";
    case NVML_NOT_FOUND:
        return "not found, says the test NVML";
    case NVML_INSUFFICIENT_SIZE:
        return "too little room, says the test NVML";
    default:
        return "an error of the test NVML";
    }
}

static nvml_result check(nvml_device_handle device) {
    if (!users) {
        return NVML_UNINITIALIZED;
    }
    for (int i = 0; i < device_count; i++) {
        if (device == &devices[i]) {
            return NVML_SUCCESS;
        }
    }
    return NVML_INVALID_ARGUMENT;
}

nvml_result nvmlDeviceGetCount_v2(unsigned *count) {
    if (!users || !count) {
        return users ? NVML_INVALID_ARGUMENT : NVML_UNINITIALIZED;
    }
    *count = (unsigned)device_count;
    return NVML_SUCCESS;
}

nvml_result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device_handle *device) {
    if (!users || !device || index >= (unsigned)device_count) {
        return users ? NVML_INVALID_ARGUMENT : NVML_UNINITIALIZED;
    }
    *device = &devices[index];
    return NVML_SUCCESS;
}

nvml_result nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device_handle *device) {
    if (!users || !uuid || !device) {
        return users ? NVML_INVALID_ARGUMENT : NVML_UNINITIALIZED;
    }
    for (int i = 0; i < device_count; i++) {
        char text[TD_UUID_TEXT];
        td_uuid_text(i, text);
        if (!strcmp(text, uuid)) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_NOT_FOUND;
}

nvml_result nvmlDeviceGetIndex(nvml_device_handle device, unsigned *index) {
    nvml_result result = check(device);
    if (!result && index) {
        *index = (unsigned)device->ordinal;
    }
    return result;
}

static nvml_result give_text(const char *text, char *to, unsigned length) {
    if (!to) {
        return NVML_INVALID_ARGUMENT;
    }
    if (strlen(text) >= length) {
        return NVML_INSUFFICIENT_SIZE;
    }
    memcpy(to, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

nvml_result nvmlDeviceGetUUID(nvml_device_handle device, char *uuid, unsigned length) {
    nvml_result result = check(device);
    char text[TD_UUID_TEXT];
    if (result) {
        return result;
    }
    td_uuid_text(device->ordinal, text);
    return give_text(text, uuid, length);
}

nvml_result nvmlDeviceGetName(nvml_device_handle device, char *name, unsigned length) {
    nvml_result result = check(device);
    char text[64];
    if (result) {
        return result;
    }
    snprintf(text, sizeof text, "cenote test device %d", device->ordinal);
    return give_text(text, name, length);
}

/* The processes on a device. */
typedef struct holders {
    int ordinal;
    uint64_t used;
    unsigned count, capacity;
    nvml_process *list;
} holders;

static void add_holder(const td_user *user, void *arg) {
    holders *h = arg;
    uint64_t bytes = user->used[h->ordinal];
    if (!bytes) {
        return;
    }
    if (h->count < h->capacity) {
        h->list[h->count] = (nvml_process){(unsigned)user->pid, bytes, UINT32_MAX, UINT32_MAX};
    }
    h->count++;
    h->used += bytes;
}

static uint64_t used_bytes(nvml_device_handle device) {
    holders h = {.ordinal = device->ordinal};
    td_state_each(add_holder, &h);
    return h.used < device->total ? h.used : device->total;
}

nvml_result nvmlDeviceGetMemoryInfo(nvml_device_handle device, nvml_memory *memory) {
    nvml_result result = check(device);
    if (!result && memory) {
        uint64_t used = used_bytes(device);
        *memory = (nvml_memory){device->total, device->total - used, used};
    }
    return result ? result : memory ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

nvml_result nvmlDeviceGetMemoryInfo_v2(nvml_device_handle device, nvml_memory_v2 *memory) {
    nvml_result result = check(device);
    if (!result && (!memory || memory->version != (sizeof *memory | 2u << 24))) {
        return NVML_INVALID_ARGUMENT;
    }
    if (!result) {
        uint64_t used = used_bytes(device);
        memory->total = device->total;
        memory->reserved = 0;
        memory->used = used;
        memory->free = device->total - used;
    }
    return result;
}

static nvml_result processes(nvml_device_handle device, unsigned *count, nvml_process *list) {
    nvml_result result = check(device);
    if (result || !count) {
        return result ? result : NVML_INVALID_ARGUMENT;
    }
    holders h = {.ordinal = device->ordinal, .capacity = list ? *count : 0, .list = list};
    td_state_each(add_holder, &h);
    *count = h.count;
    return h.count > h.capacity ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvml_result nvmlDeviceGetComputeRunningProcesses_v2(nvml_device_handle device, unsigned *count,
                                                    nvml_process *list) {
    return processes(device, count, list);
}

nvml_result nvmlDeviceGetComputeRunningProcesses_v3(nvml_device_handle device, unsigned *count,
                                                    nvml_process *list) {
    return processes(device, count, list);
}

/* 1 W while nothing runs, and each CPU second of the process counts as 100 W more. */
nvml_result nvmlDeviceGetTotalEnergyConsumption(nvml_device_handle device,
                                                unsigned long long *millijoules) {
    nvml_result result = check(device);
    struct timespec wall, cpu;
    if (result || !millijoules) {
        return result ? result : NVML_INVALID_ARGUMENT;
    }
    clock_gettime(CLOCK_MONOTONIC, &wall);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    *millijoules =
        (unsigned long long)wall.tv_sec * 1000 + (unsigned long long)wall.tv_nsec / 1000000 +
        100 * ((unsigned long long)cpu.tv_sec * 1000 + (unsigned long long)cpu.tv_nsec / 1000000);
    return NVML_SUCCESS;
}

static nvml_result give_number(nvml_device_handle device, unsigned number, unsigned *to) {
    nvml_result result = check(device);
    if (!result && to) {
        *to = number;
    }
    return result ? result : to ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

nvml_result nvmlDeviceGetMaxPcieLinkGeneration(nvml_device_handle device, unsigned *generation) {
    return give_number(device, 5, generation);
}

nvml_result nvmlDeviceGetMaxPcieLinkWidth(nvml_device_handle device, unsigned *lanes) {
    return give_number(device, 16, lanes);
}

/* Device 0 counts unless TD_GPM is 0, and only at first if it is "once"; the others never do. */
nvml_result nvmlGpmQueryDeviceSupport(nvml_device_handle device, nvml_gpm_support *support) {
    nvml_result result = check(device);
    const char *asked = getenv("TD_GPM");
    if (result || !support || support->version != 1) {
        return result ? result : NVML_INVALID_ARGUMENT;
    }
    support->supported = device->ordinal == 0 && !(asked && !strcmp(asked, "0"));
    return NVML_SUCCESS;
}

struct nvml_sample {
    unsigned turn; /* 0: nothing was read into it */
};

nvml_result nvmlGpmSampleAlloc(struct nvml_sample **sample) {
    *sample = calloc(1, sizeof **sample);
    return *sample ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

nvml_result nvmlGpmSampleFree(struct nvml_sample *sample) {
    free(sample);
    return NVML_SUCCESS;
}

nvml_result nvmlGpmSampleGet(nvml_device_handle device, struct nvml_sample *sample) {
    static unsigned turns;
    nvml_result result = check(device);
    const char *asked = getenv("TD_GPM");
    if (!result && turns && asked && !strcmp(asked, "once")) {
        return NVML_NOT_SUPPORTED;
    }
    if (!result) {
        sample->turn = ++turns;
    }
    return result;
}

/* Multiprocessors (2), their warps (3), tensor cores (5) and DRAM (10), in percent; no others. */
nvml_result nvmlGpmMetricsGet(nvml_gpm_metrics *metrics) {
    if (!metrics || metrics->version != 1 || !metrics->first->turn ||
        metrics->second->turn <= metrics->first->turn) {
        return NVML_INVALID_ARGUMENT;
    }
    for (unsigned i = 0; i < metrics->count; i++) {
        nvml_gpm_metric *m = &metrics->metrics[i];
        m->result = NVML_SUCCESS;
        m->value = m->metric == 2 ? 75 : m->metric == 3 ? 50 : m->metric == 5 ? 0 : 25;
        if (m->metric != 2 && m->metric != 3 && m->metric != 5 && m->metric != 10) {
            m->result = NVML_NOT_SUPPORTED;
        }
    }
    return NVML_SUCCESS;
}

nvml_result nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    char path[64], text[256] = "";
    if (!users) {
        return NVML_UNINITIALIZED;
    }
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return NVML_NOT_FOUND;
    }
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    return give_text(text, name, length);
}
