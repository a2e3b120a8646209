/* cen_probe_run: every device, then the host. */
#include "probe/probe.h"

#include "base/log.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "probe/results.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static cen_status check_options(const cen_probe_options *options) {
    struct stat st;
    if (options && options->size != sizeof *options) {
        return ceni_fail(CEN_ERR_INVALID, "cen_probe_run: options.size is %zu; %zu is expected",
                         options->size, sizeof *options);
    }
    if (options && options->dir && (stat(options->dir, &st) || !S_ISDIR(st.st_mode))) {
        return ceni_fail(CEN_ERR_INVALID, "cen_probe_run: dir '%s' is no folder", options->dir);
    }
    return CEN_OK;
}

/* The GPUs, each open; those that cannot be opened have a place, which is NULL. */
typedef struct gpus {
    cen_device **at;
    size_t count;
} gpus;

static void close_gpus(gpus *g) {
    for (size_t i = 0; i < g->count; i++) {
        cen_device_close(g->at[i]);
    }
    ceni_free(g->at);
}

static cen_status open_gpus(gpus *g) {
    int count = 0;
    cen_status status = cen_device_count("cuda", &count);
    if (status) {
        return status == CEN_ERR_HOST_MEMORY ? status : CEN_OK;
    }
    g->at = ceni_calloc((size_t)count + 1, sizeof(void *));
    if (!g->at) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_probe_run: no memory for %d devices", count);
    }
    g->count = (size_t)count;
    return CEN_OK;
}

static cen_status measure_gpu(const gpus *g, size_t i, bool quick, cen_probe_device *device) {
    ceni_draft draft = {0};
    cen_status status;
    if (g->at[i]) {
        status = ceni_probe_device(g->at, g->count, i, quick, &draft);
    } else {
        char name[32];
        snprintf(name, sizeof name, "cuda:%zu", i);
        snprintf(draft.device.name, sizeof draft.device.name, "%s", name);
        cen_device *none = NULL;
        cen_status opened = cen_device_open(name, &none);
        ceni_draft_skip(&draft, "device", "%s",
                        opened ? cen_log_last_error() : "it could not be opened at first");
        cen_device_close(none);
        status = draft.status;
    }
    status = status ? status : ceni_draft_take(&draft, device);
    ceni_draft_free(&draft);
    return status;
}

static cen_status measure_host(const cen_probe_options *options, cen_probe_device *device) {
    ceni_host_probe host = {
        .root = "", .dir = options ? options->dir : NULL, .quick = options && options->quick};
    ceni_draft draft = {0};
    cen_status status = ceni_probe_host(&host, &draft);
    status = status ? status : ceni_draft_take(&draft, device);
    ceni_draft_free(&draft);
    return status;
}

static void note_date(cen_probe *probe) {
    struct tm day;
    time_t now = time(NULL);
    if (gmtime_r(&now, &day)) {
        strftime(probe->date, sizeof probe->date, "%Y-%m-%d", &day);
    }
}

static cen_status measure_all(const cen_probe_options *options, const gpus *g, cen_probe *probe) {
    cen_status status = CEN_OK;
    bool quick = options && options->quick;
    for (size_t i = 0; i < g->count && !status; i++) {
        status = measure_gpu(g, i, quick, &probe->devices[probe->device_count]);
        probe->device_count += !status;
    }
    if (!status) {
        status = measure_host(options, &probe->devices[probe->device_count]);
        probe->device_count += !status;
    }
    probe->quick = quick;
    note_date(probe);
    return status;
}

cen_status cen_probe_run(const cen_probe_options *options, cen_probe **probe) {
    gpus g = {NULL, 0};
    if (!probe) {
        return ceni_fail(CEN_ERR_INVALID, "cen_probe_run: probe is NULL");
    }
    cen_status status = check_options(options);
    status = status ? status : open_gpus(&g);
    if (status) {
        return status;
    }
    for (size_t i = 0; i < g.count; i++) {
        char name[32];
        snprintf(name, sizeof name, "cuda:%zu", i);
        if (cen_device_open(name, &g.at[i])) {
            g.at[i] = NULL;
        }
    }
    cen_probe *made = ceni_calloc(1, sizeof *made);
    cen_probe_device *devices = ceni_calloc(g.count + 1, sizeof *devices);
    if (made && devices) {
        made->devices = devices;
        devices = NULL;
        status = measure_all(options, &g, made);
    } else {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "cen_probe_run: no memory for the results");
    }
    close_gpus(&g);
    ceni_free(devices);
    if (status) {
        cen_probe_free(made);
        return status;
    }
    *probe = made;
    return CEN_OK;
}
