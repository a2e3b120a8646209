/* The part of NVML that the test library serves, as NVML declares it. */
#ifndef TESTS_DRIVER_NVML_H
#define TESTS_DRIVER_NVML_H

#define EXPORT __attribute__((visibility("default")))

typedef unsigned nvml_result;
enum {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7
};

typedef struct nvml_device *nvml_device_handle;

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;

/* nvmlProcessInfo_v2_t: of both nvmlDeviceGetComputeRunningProcesses_v2 and _v3. */
typedef struct nvml_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} nvml_process;

/* The counters of a device between two samples, and how many metrics one call may ask for. */
typedef struct nvml_gpm_metric {
    unsigned metric, result;
    double value;
    struct {
        char *short_name, *long_name, *unit;
    } info;
} nvml_gpm_metric;

typedef struct nvml_gpm_metrics {
    unsigned version, count;
    struct nvml_sample *first, *second;
    nvml_gpm_metric metrics[333];
} nvml_gpm_metrics;

typedef struct nvml_gpm_support {
    unsigned version, supported;
} nvml_gpm_support;

EXPORT nvml_result nvmlInit_v2(void);
EXPORT nvml_result nvmlShutdown(void);
EXPORT const char *nvmlErrorString(nvml_result result);
EXPORT nvml_result nvmlDeviceGetCount_v2(unsigned *count);
EXPORT nvml_result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device_handle *device);
EXPORT nvml_result nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device_handle *device);
EXPORT nvml_result nvmlDeviceGetIndex(nvml_device_handle device, unsigned *index);
EXPORT nvml_result nvmlDeviceGetUUID(nvml_device_handle device, char *uuid, unsigned length);
EXPORT nvml_result nvmlDeviceGetName(nvml_device_handle device, char *name, unsigned length);
EXPORT nvml_result nvmlDeviceGetMemoryInfo(nvml_device_handle device, nvml_memory *memory);
EXPORT nvml_result nvmlDeviceGetMemoryInfo_v2(nvml_device_handle device, nvml_memory_v2 *memory);
EXPORT nvml_result nvmlDeviceGetComputeRunningProcesses_v2(nvml_device_handle device,
                                                           unsigned *count, nvml_process *list);
EXPORT nvml_result nvmlDeviceGetComputeRunningProcesses_v3(nvml_device_handle device,
                                                           unsigned *count, nvml_process *list);
EXPORT nvml_result nvmlDeviceGetTotalEnergyConsumption(nvml_device_handle device,
                                                       unsigned long long *millijoules);
EXPORT nvml_result nvmlDeviceGetMaxPcieLinkGeneration(nvml_device_handle device,
                                                      unsigned *generation);
EXPORT nvml_result nvmlDeviceGetMaxPcieLinkWidth(nvml_device_handle device, unsigned *lanes);
EXPORT nvml_result nvmlGpmQueryDeviceSupport(nvml_device_handle device, nvml_gpm_support *support);
EXPORT nvml_result nvmlGpmSampleAlloc(struct nvml_sample **sample);
EXPORT nvml_result nvmlGpmSampleFree(struct nvml_sample *sample);
EXPORT nvml_result nvmlGpmSampleGet(nvml_device_handle device, struct nvml_sample *sample);
EXPORT nvml_result nvmlGpmMetricsGet(nvml_gpm_metrics *metrics);
EXPORT nvml_result nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length);

#undef EXPORT

#endif
