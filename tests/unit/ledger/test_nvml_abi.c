/* Holds our declarations of NVML (src/ledger/nvml.h) against the toolkit's header, at compile time.
 * Skipped where there is none. */
#include <assert.h>
#include <stddef.h>

#include "ledger/nvml.h"

/* What every version of the library agrees on. */
static_assert(sizeof(nvml_process_v1) == 16, "nvmlProcessInfo_v1_t");
static_assert(sizeof(nvml_process_v2) == 24, "nvmlProcessInfo_v2_t");
static_assert(sizeof(nvml_memory_v2) == 40, "nvmlMemory_v2_t");
static_assert(sizeof(nvml_gpm_metric) == 40, "nvmlGpmMetric_t");
static_assert(offsetof(nvml_gpm_metrics, metrics) == 24, "nvmlGpmMetricsGet_t");

#if __has_include(<nvml.h>)
#include <nvml.h>

#define RESULT(name, theirs, value)                                                                \
    static_assert((unsigned)(CENI_NVML_##name) == (unsigned)(theirs), #theirs);
NVML_RESULT_MAP(RESULT)

#define FIELD(ours, our_field, theirs, their_field)                                                \
    static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&                    \
                      sizeof(((ours *)0)->our_field) == sizeof(((theirs *)0)->their_field),        \
                  #theirs "." #their_field);
FIELD(nvml_process_v1, pid, nvmlProcessInfo_v1_t, pid)
FIELD(nvml_process_v1, bytes, nvmlProcessInfo_v1_t, usedGpuMemory)
FIELD(nvml_process_v2, pid, nvmlProcessInfo_v2_t, pid)
FIELD(nvml_process_v2, bytes, nvmlProcessInfo_v2_t, usedGpuMemory)
FIELD(nvml_process_v2, gpu_instance, nvmlProcessInfo_v2_t, gpuInstanceId)
FIELD(nvml_process_v2, compute_instance, nvmlProcessInfo_v2_t, computeInstanceId)
FIELD(nvml_memory_v1, total, nvmlMemory_t, total)
FIELD(nvml_memory_v1, free, nvmlMemory_t, free)
FIELD(nvml_memory_v1, used, nvmlMemory_t, used)
FIELD(nvml_memory_v2, version, nvmlMemory_v2_t, version)
FIELD(nvml_memory_v2, total, nvmlMemory_v2_t, total)
FIELD(nvml_memory_v2, reserved, nvmlMemory_v2_t, reserved)
FIELD(nvml_memory_v2, free, nvmlMemory_v2_t, free)
FIELD(nvml_memory_v2, used, nvmlMemory_v2_t, used)
FIELD(nvml_gpm_metric, id, nvmlGpmMetric_t, metricId)
FIELD(nvml_gpm_metric, result, nvmlGpmMetric_t, nvmlReturn)
FIELD(nvml_gpm_metric, value, nvmlGpmMetric_t, value)
FIELD(nvml_gpm_metrics, version, nvmlGpmMetricsGet_t, version)
FIELD(nvml_gpm_metrics, count, nvmlGpmMetricsGet_t, numMetrics)
FIELD(nvml_gpm_metrics, first, nvmlGpmMetricsGet_t, sample1)
FIELD(nvml_gpm_metrics, second, nvmlGpmMetricsGet_t, sample2)
FIELD(nvml_gpm_support, version, nvmlGpmSupport_t, version)
FIELD(nvml_gpm_support, supported, nvmlGpmSupport_t, isSupportedDevice)
static_assert(sizeof(nvml_gpm_metric) == sizeof(nvmlGpmMetric_t), "nvmlGpmMetric_t");
static_assert(sizeof(nvml_gpm_metrics) >= sizeof(nvmlGpmMetricsGet_t), "nvmlGpmMetricsGet_t");
static_assert(NVML_GPM_V1 == NVML_GPM_METRICS_GET_VERSION, "NVML_GPM_METRICS_GET_VERSION");
static_assert(NVML_GPM_V1 == NVML_GPM_SUPPORT_VERSION, "NVML_GPM_SUPPORT_VERSION");
static_assert(NVML_MEMORY_V2 == nvmlMemory_v2, "nvmlMemory_v2");
static_assert((unsigned long long)NVML_VALUE_NOT_AVAILABLE == ~0ull, "NVML_VALUE_NOT_AVAILABLE");

int main(void) {
    return 0;
}
#else
int main(void) {
    return 77;
}
#endif
