/* Work against ceilings: each resource's least time, and which of them is the longest. */
#include "cenote/roofline.h"

#include "base/log.h"

#include <math.h>
#include <stdio.h>

const char *cen_bound_name(cen_bound bound) {
    static const char *const names[] = {"memory-bound", "compute-bound", "latency-bound"};
    return (int)bound >= 0 && bound <= CEN_BOUND_LATENCY ? names[bound] : "?";
}

static bool is_amount(double n) {
    return n >= 0 && isfinite(n);
}

static cen_status check(const cen_work *w) {
    if (!w) {
        return ceni_fail(CEN_ERR_INVALID, "cen_roofline_judge: work is NULL");
    }
    if (w->size != sizeof *w) {
        return ceni_fail(CEN_ERR_INVALID, "cen_roofline_judge: work.size is %zu; %zu is expected",
                         w->size, sizeof *w);
    }
    if (!is_amount(w->flops) || !is_amount(w->peak_flops)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_roofline_judge: flops is %g, peak_flops %g; they are finite, and at "
                         "least 0",
                         w->flops, w->peak_flops);
    }
    if (!w->traffic || !w->traffic_count || w->traffic_count > CEN_ROOFLINE_LEVELS) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_roofline_judge: traffic of %zu levels; 1 to %d are expected",
                         w->traffic ? w->traffic_count : 0, CEN_ROOFLINE_LEVELS);
    }
    for (size_t i = 0; i < w->traffic_count; i++) {
        const cen_traffic *t = &w->traffic[i];
        if (!is_amount(t->bytes) || t->bytes <= 0 || !is_amount(t->bandwidth) ||
            !is_amount(t->latency_seconds)) {
            return ceni_fail(CEN_ERR_INVALID,
                             "cen_roofline_judge: traffic[%zu]: bytes is %g, bandwidth %g, "
                             "latency_seconds %g; they are finite, bytes over 0, the others at "
                             "least 0",
                             i, t->bytes, t->bandwidth, t->latency_seconds);
        }
    }
    return CEN_OK;
}

static cen_status judge_level(const cen_work *w, const cen_traffic *t, double peak,
                              cen_roofline_level *to) {
    const cen_probe_level *measured =
        t->level ? cen_probe_get_level(w->device, t->level) : cen_probe_get_memory(w->device);
    const char *name = t->level ? t->level : measured ? measured->level : "memory";
    *to = (cen_roofline_level){
        .bytes = t->bytes, .bandwidth = t->bandwidth, .latency_seconds = t->latency_seconds};
    snprintf(to->level, sizeof to->level, "%s", name);
    if (to->bandwidth <= 0 && measured) {
        to->bandwidth = measured->bandwidth_gbps * 1e9;
    }
    if (to->bandwidth <= 0) {
        return ceni_fail(CEN_ERR_NOT_FOUND, "cen_roofline_judge: no bandwidth of %s is known",
                         t->level ? t->level : "the main memory");
    }
    if (to->latency_seconds <= 0 && measured) {
        to->latency_seconds = measured->latency_ns * 1e-9;
    }
    to->seconds = to->bytes / to->bandwidth;
    to->intensity = w->flops / to->bytes;
    to->ridge = peak / to->bandwidth;
    return CEN_OK;
}

/* The longest of the times decides, the plainer explanation where two are as long. */
static void decide(cen_roofline_result *r) {
    size_t slowest = 0, farthest = 0;
    for (size_t i = 1; i < r->level_count; i++) {
        slowest = r->levels[i].seconds > r->levels[slowest].seconds ? i : slowest;
        farthest =
            r->levels[i].latency_seconds > r->levels[farthest].latency_seconds ? i : farthest;
    }
    r->memory_seconds = r->levels[slowest].seconds;
    r->latency_seconds = r->levels[farthest].latency_seconds;
    r->bound = r->compute_seconds > r->memory_seconds ? CEN_BOUND_COMPUTE : CEN_BOUND_MEMORY;
    r->seconds = fmax(r->compute_seconds, r->memory_seconds);
    r->level = slowest;
    if (r->latency_seconds > r->seconds) {
        r->bound = CEN_BOUND_LATENCY;
        r->seconds = r->latency_seconds;
        r->level = farthest;
    }
}

cen_status cen_roofline_judge(const cen_work *work, cen_roofline_result *result) {
    cen_status status = check(work);
    if (status || !result) {
        return status ? status : ceni_fail(CEN_ERR_INVALID, "cen_roofline_judge: result is NULL");
    }
    cen_roofline_result r = {.level_count = work->traffic_count};
    if (work->flops > 0) {
        r.peak_flops = work->peak_flops > 0
                           ? work->peak_flops
                           : cen_probe_get_rate(work->device, cen_dtype_name(work->type));
        if (r.peak_flops <= 0) {
            return ceni_fail(CEN_ERR_NOT_FOUND, "cen_roofline_judge: no rate of %s is known",
                             cen_dtype_name(work->type));
        }
        r.compute_seconds = work->flops / r.peak_flops;
    }
    for (size_t i = 0; i < work->traffic_count && !status; i++) {
        status = judge_level(work, &work->traffic[i], r.peak_flops, &r.levels[i]);
    }
    if (!status) {
        decide(&r);
        *result = r;
    }
    return status;
}
