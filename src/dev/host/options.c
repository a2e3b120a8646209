/* A host device's options: what the caller set, else the environment, else the default. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dev/host/host_int.h"

/* Sets *value from the environment if it is 0; then checks it against max. */
static cen_status from_environment(const char *name, uint64_t fallback, uint64_t max,
                                   uint64_t *value) {
    const char *text = getenv(name);
    if (!*value && text && *text) {
        char *end;
        errno = 0;
        *value = strtoull(text, &end, 10);
        if (errno || *end || *text < '0' || *text > '9') {
            return ceni_fail(CEN_ERR_INVALID, "%s='%s' is not a number", name, text);
        }
    }
    if (!*value) {
        *value = fallback;
    }
    if (*value > max) {
        return ceni_fail(CEN_ERR_INVALID, "%s or its option: %llu is more than %llu", name,
                         (unsigned long long)*value, (unsigned long long)max);
    }
    return CEN_OK;
}

static cen_status number32(const char *name, uint32_t fallback, uint32_t *value) {
    uint64_t wide = *value;
    cen_status status = from_environment(name, fallback, UINT32_MAX, &wide);
    *value = (uint32_t)wide;
    return status;
}

static cen_status flag(const char *name, bool *value) {
    uint64_t wide = *value;
    cen_status status = from_environment(name, 0, 1, &wide);
    *value = wide != 0;
    return status;
}

static cen_status check(const cen_host_options *o) {
    if (o->granularity < (uint64_t)sysconf(_SC_PAGESIZE) || o->granularity < 4096 ||
        (o->granularity & (o->granularity - 1))) {
        return ceni_fail(CEN_ERR_INVALID,
                         "host device: granularity %llu is not a power of two of "
                         "at least 4096 and the system's page size",
                         (unsigned long long)o->granularity);
    }
    if (o->capacity % o->granularity) {
        return ceni_fail(CEN_ERR_INVALID,
                         "host device: capacity %llu is not a multiple of the granularity %llu",
                         (unsigned long long)o->capacity, (unsigned long long)o->granularity);
    }
    return CEN_OK;
}

cen_status ceni_host_options(const cen_host_options *given, cen_host_options *options) {
    cen_host_options o = {0};
    if (given) {
        if (!given->size || given->size > sizeof o) {
            return ceni_fail(CEN_ERR_INVALID, "host device: options.size %zu, expected %zu",
                             given->size, sizeof o);
        }
        memcpy(&o, given, given->size);
    }
    const uint64_t any = UINT64_MAX, most = (uint64_t)1 << 46;
    cen_status status = number32("CENOTE_HOST_DEVICES", 2, &o.devices);
    status = status
                 ? status
                 : from_environment("CENOTE_HOST_CAPACITY", (uint64_t)8 << 30, most, &o.capacity);
    status = status ? status
                    : from_environment("CENOTE_HOST_GRANULARITY", 2 << 20, most, &o.granularity);
    status = status
                 ? status
                 : from_environment("CENOTE_HOST_COPY_BYTES_PER_US", 0, any, &o.copy_bytes_per_us);
    status = status ? status : number32("CENOTE_HOST_COPY_LATENCY_US", 0, &o.copy_latency_us);
    status = status ? status : number32("CENOTE_HOST_STREAM_DELAY_US", 0, &o.stream_delay_us);
    status = status ? status : number32("CENOTE_HOST_PEER_GROUP", 0, &o.peer_group);
    status = status ? status : flag("CENOTE_HOST_INLINE", &o.inline_streams);
    status = status ? status : flag("CENOTE_HOST_NO_VMM", &o.no_vmm);
    status = status ? status : check(&o);
    if (!status) {
        *options = o;
        options->size = sizeof o;
    }
    return status;
}
