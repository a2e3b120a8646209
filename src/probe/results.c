/* Where a probe's results are, their bytes, and what others look up in them. */
#include "probe/results.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The length of the path, as snprintf counts; negative: no variable says where. */
static int name_it(char *to, size_t size) {
    const char *asked = getenv("CENOTE_PROBE");
    if (asked && *asked) {
        return snprintf(to, size, "%s", asked);
    }
    const char *cache = getenv("XDG_CACHE_HOME"), *below = "";
    if (!cache || !*cache) {
        cache = getenv("HOME");
        below = "/.cache";
    }
    if (!cache || !*cache) {
        return -1;
    }
    char host[256] = "";
    if (gethostname(host, sizeof host - 1)) {
        snprintf(host, sizeof host, "localhost");
    }
    return snprintf(to, size, "%s%s/cenote/probe-%s.json", cache, below, host);
}

cen_status cen_probe_path(char *path, size_t size) {
    char made[4096];
    if (!path) {
        return ceni_fail(CEN_ERR_INVALID, "cen_probe_path: path is NULL");
    }
    int length = name_it(made, sizeof made);
    if (length < 0) {
        return ceni_fail(CEN_ERR_NOT_FOUND,
                         "cen_probe_path: CENOTE_PROBE, XDG_CACHE_HOME and HOME are all unset");
    }
    if ((size_t)length >= sizeof made || (size_t)length >= size) {
        return ceni_fail(CEN_ERR_INVALID, "cen_probe_path: size is %zu; the path needs %d", size,
                         length + 1);
    }
    memcpy(path, made, (size_t)length + 1);
    return CEN_OK;
}

cen_status cen_probe_load(const char *path, cen_probe **probe) {
    char kept[4096];
    if (!probe) {
        return ceni_fail(CEN_ERR_INVALID, "cen_probe_load: probe is NULL");
    }
    if (!path) {
        cen_status status = cen_probe_path(kept, sizeof kept);
        if (status) {
            return status;
        }
        path = kept;
    }
    char *data = NULL;
    size_t size = 0;
    cen_status status = ceni_file_read(path, CENI_RESULTS_BYTES, &data, &size);
    if (!status) {
        status = cen_probe_load_memory(path, data, size, probe);
        ceni_free(data);
    }
    return status;
}

size_t cen_probe_device_count(const cen_probe *probe) {
    return probe ? probe->device_count : 0;
}

const cen_probe_device *cen_probe_get_device(const cen_probe *probe, size_t index) {
    return probe && index < probe->device_count ? &probe->devices[index] : NULL;
}

const cen_probe_level *cen_probe_get_level(const cen_probe_device *device, const char *level) {
    for (size_t i = 0; device && level && i < device->level_count; i++) {
        if (!strcmp(device->levels[i].level, level)) {
            return &device->levels[i];
        }
    }
    return NULL;
}

const cen_probe_level *cen_probe_get_memory(const cen_probe_device *device) {
    const cen_probe_level *hbm = cen_probe_get_level(device, CEN_LEVEL_HBM);
    return hbm ? hbm : cen_probe_get_level(device, CEN_LEVEL_DRAM);
}

double cen_probe_get_rate(const cen_probe_device *device, const char *dtype) {
    for (size_t i = 0; device && dtype && i < device->rate_count; i++) {
        if (!strcmp(device->rates[i].dtype, dtype)) {
            return device->rates[i].flops;
        }
    }
    return 0;
}
