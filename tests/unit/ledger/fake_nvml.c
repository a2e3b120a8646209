/* The stand-in's functions. Device i has the UUID "GPU-fake-i"; its handle is its address. */
#include "fake_nvml.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

API fake_nvml_state fake_nvml = {
    .device_count = 1,
    .devices = {{.total = 1 << 30}, {.total = 1 << 30}, {.total = 1 << 30}},
};

/* Another program's device 0, as FAKE_NVML in the environment says: "USED PID:BYTES PID:BYTES". */
static void set_up(const char *text) {
    fake_device *d = &fake_nvml.devices[0];
    char *at;
    d->total = 80ull << 30;
    d->used = strtoull(text, &at, 10);
    for (d->compute_count = 0; *at == ' ' && d->compute_count < FAKE_PROCESSES;) {
        fake_process *p = &d->compute[d->compute_count++];
        p->pid = (unsigned)strtoul(at + 1, &at, 10);
        p->bytes = strtoull(at + 1, &at, 10);
    }
}

static unsigned start(void) {
    const char *text = getenv("FAKE_NVML");
    fake_nvml.inits++;
    if (text) {
        set_up(text);
    }
    return fake_nvml.init_result;
}

API unsigned nvmlShutdown(void) {
    fake_nvml.shutdowns++;
    return 0;
}

API const char *nvmlErrorString(unsigned result) {
    return result == 9 ? "Driver Not Loaded" : result == 15 ? "GPU is lost" : "Some Error";
}

static unsigned count(unsigned *n) {
    *n = fake_nvml.device_count;
    return 0;
}

static unsigned at(unsigned index, void **device) {
    if (index >= fake_nvml.device_count) {
        return 2;
    }
    *device = &fake_nvml.devices[index];
    return 0;
}

#ifdef FAKE_NVML_OLD
API unsigned nvmlInit(void) {
    return start();
}
API unsigned nvmlDeviceGetCount(unsigned *n) {
    return count(n);
}
API unsigned nvmlDeviceGetHandleByIndex(unsigned index, void **device) {
    return at(index, device);
}
#else
API unsigned nvmlInit_v2(void) {
    return start();
}
API unsigned nvmlDeviceGetCount_v2(unsigned *n) {
    return count(n);
}
API unsigned nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    return at(index, device);
}
#endif

API unsigned nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    snprintf(text, size, "GPU-fake-%d", (int)((fake_device *)device - fake_nvml.devices));
    return ((fake_device *)device)->uuid_result;
}

API unsigned nvmlDeviceGetName(void *device, char *text, unsigned size) {
    snprintf(text, size, "Fake GPU");
    return 0;
}

API unsigned nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    for (unsigned i = 0; i < fake_nvml.device_count; i++) {
        char text[48];
        nvmlDeviceGetUUID(&fake_nvml.devices[i], text, sizeof text);
        if (!strcmp(text, uuid)) {
            *device = &fake_nvml.devices[i];
            return 0;
        }
    }
    return strncmp(uuid, "GPU-", 4) ? 2 : 6;
}

API unsigned nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    const fake_device *d = device;
    memory[0] = d->total;
    memory[2] = d->used + d->reserved;
    memory[1] = d->total - memory[2];
    return d->memory_result;
}

static atomic_int inside;

static void put(unsigned char *out, const fake_process *process, size_t stride) {
    memset(out, 0xff, stride);
    memset(out + 4, 0, 4);
    memcpy(out, &process->pid, 4);
    memcpy(out + 8, &process->bytes, 8);
    if (stride > 24) {
        memset(out + 24, 0, stride - 24);
    }
}

static unsigned list(const fake_process *processes, unsigned *known, unsigned *n, void *out,
                     size_t declared) {
    size_t stride = fake_nvml.stride ? fake_nvml.stride : declared;
    int now = atomic_fetch_add(&inside, 1) + 1;
    fake_nvml.most_inside = now > fake_nvml.most_inside ? now : fake_nvml.most_inside;
    unsigned result = *n < *known ? 7 : 0;
    for (unsigned i = 0; !result && i < *known; i++) {
        put((unsigned char *)out + i * stride, &processes[i], stride);
    }
    *n = *known;
    if (result && *known + fake_nvml.late <= FAKE_PROCESSES) {
        *known += fake_nvml.late;
    }
    atomic_fetch_sub(&inside, 1);
    return result;
}

#ifdef FAKE_NVML_OLD
API unsigned nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *n, void *out) {
    fake_device *d = device;
    return d->compute_result ? d->compute_result : list(d->compute, &d->compute_count, n, out, 16);
}
#else
API unsigned nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *out) {
    fake_device *d = device;
    return d->compute_result ? d->compute_result : list(d->compute, &d->compute_count, n, out, 24);
}

API unsigned nvmlDeviceGetGraphicsRunningProcesses_v2(void *device, unsigned *n, void *out) {
    fake_device *d = device;
    return d->graphics_result ? d->graphics_result
                              : list(d->graphics, &d->graphics_count, n, out, 24);
}

API unsigned nvmlDeviceGetMemoryInfo_v2(void *device, unsigned long long *memory) {
    const fake_device *d = device;
    if (d->memory_v2_result) {
        return d->memory_v2_result;
    }
    if ((unsigned)memory[0] != (40u | 2u << 24)) {
        return 25;
    }
    memory[1] = d->total;
    memory[2] = d->reserved;
    memory[4] = d->used;
    memory[3] = d->total - d->used - d->reserved;
    return 0;
}

API unsigned nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    const fake_device *d = device;
    *millijoules = d->energy;
    return d->energy_result;
}

API unsigned nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation) {
    *generation = 5;
    return 0;
}

API unsigned nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *lanes) {
    *lanes = 16;
    return 0;
}

API unsigned nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size) {
    snprintf(name, size, "driver's %u", pid);
    return pid == 4000000 ? 0 : 6;
}
#endif
