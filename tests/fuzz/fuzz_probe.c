/* Property: whatever the bytes, reading a probe's results ends in an error that was logged, or in
 * results that keep what probe.h promises: names that end and are there once, figures over 0 or not
 * measured. Seeds: tests/fuzz/corpus/probe. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/log.h"
#include "cenote/probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) {
        abort();
    }
}

static void check(const cen_probe_device *d) {
    for (size_t i = 0; i < d->level_count; i++) {
        const cen_probe_level *l = &d->levels[i];
        require(*l->level && memchr(l->level, 0, sizeof l->level));
        require(cen_probe_get_level(d, l->level) == l);
        require(l->capacity_bytes || l->latency_ns > 0 || l->bandwidth_gbps > 0);
        require(l->latency_ns >= 0 && isfinite(l->latency_ns));
        require(l->bandwidth_gbps >= 0 && isfinite(l->bandwidth_gbps));
    }
    for (size_t i = 0; i < d->skipped_count; i++) {
        require(*d->skipped[i].level && *d->skipped[i].reason);
        require(memchr(d->skipped[i].reason, 0, sizeof d->skipped[i].reason));
    }
    for (size_t i = 0; i < d->rate_count; i++) {
        require(d->rates[i].flops > 0 && isfinite(d->rates[i].flops));
        require(cen_probe_get_rate(d, d->rates[i].dtype) > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cen_probe *probe = NULL;
    (void)cen_log_last_error();
    if (cen_probe_load_memory("fuzz", data, size, &probe)) {
        require(!probe && !strncmp(cen_log_last_error(), "fuzz:", 5));
        return 0;
    }
    for (size_t i = 0; i < cen_probe_device_count(probe); i++) {
        check(cen_probe_get_device(probe, i));
    }
    require(!cen_probe_get_device(probe, cen_probe_device_count(probe)));
    cen_probe_free(probe);
    return 0;
}
