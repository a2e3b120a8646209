/* Results while they are gathered. */
#include "probe/probe.h"

#include "base/log.h"
#include "base/mem.h"
#include "probe/results.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ceni_samples_add(ceni_samples *samples, double value) {
    if (samples->count < CENI_SAMPLES) {
        samples->at[samples->count++] = value;
    }
}

double ceni_probe_round(double value) {
    char text[64];
    snprintf(text, sizeof text, "%.6g", value);
    return strtod(text, NULL);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

ceni_figure ceni_samples_figure(const ceni_samples *samples) {
    double sorted[CENI_SAMPLES];
    size_t n = samples->count;
    if (!n) {
        return (ceni_figure){0};
    }
    memcpy(sorted, samples->at, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    double median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    return (ceni_figure){ceni_probe_round(median),
                         {ceni_probe_round(sorted[0]), ceni_probe_round(sorted[n - 1])}};
}

/* Whether there is room for one row more. */
static bool grow(ceni_draft *draft, void *array, size_t *room, size_t count, size_t size) {
    if (draft->status) {
        return false;
    }
    if (count >= CENI_RESULTS_ROWS) {
        draft->status = ceni_fail(CEN_ERR_LIMIT, "probe: more than %d rows", CENI_RESULTS_ROWS);
    } else if (ceni_grow(array, room, count + 1, size)) {
        draft->status = ceni_fail(CEN_ERR_HOST_MEMORY, "probe: no memory for a row");
    }
    return !draft->status;
}

cen_probe_level *ceni_draft_level(ceni_draft *draft, const char *level) {
    size_t *count = &draft->device.level_count;
    for (size_t i = 0; i < *count; i++) {
        if (!strcmp(draft->levels[i].level, level)) {
            return &draft->levels[i];
        }
    }
    if (!grow(draft, &draft->levels, &draft->level_room, *count, sizeof *draft->levels)) {
        return NULL;
    }
    cen_probe_level *made = &draft->levels[(*count)++];
    *made = (cen_probe_level){0};
    snprintf(made->level, sizeof made->level, "%s", level);
    return made;
}

void ceni_draft_latency(ceni_draft *draft, const char *level, const ceni_samples *ns,
                        double cycles) {
    ceni_figure figure = ceni_samples_figure(ns);
    cen_probe_level *row = figure.median > 0 ? ceni_draft_level(draft, level) : NULL;
    if (row) {
        row->latency_ns = figure.median;
        row->latency_spread = figure.spread;
        row->latency_cycles = ceni_probe_round(cycles);
    }
}

void ceni_draft_transfer(ceni_draft *draft, const char *level, const char *access, uint32_t threads,
                         uint64_t bytes, const ceni_samples *gbps, bool whole) {
    size_t *count = &draft->device.transfer_count;
    ceni_figure figure = ceni_samples_figure(gbps);
    if (!(figure.median > 0) ||
        !grow(draft, &draft->transfers, &draft->transfer_room, *count, sizeof *draft->transfers)) {
        return;
    }
    cen_probe_transfer *t = &draft->transfers[(*count)++];
    *t = (cen_probe_transfer){
        .threads = threads, .bytes = bytes, .gbps = figure.median, .spread = figure.spread};
    snprintf(t->level, sizeof t->level, "%s", level);
    snprintf(t->access, sizeof t->access, "%s", access);
    cen_probe_level *row = whole ? ceni_draft_level(draft, level) : NULL;
    if (row && figure.median > row->bandwidth_gbps) {
        row->bandwidth_gbps = figure.median;
        row->bandwidth_spread = figure.spread;
    }
}

void ceni_draft_step(ceni_draft *draft, uint64_t bytes, const ceni_samples *ns) {
    size_t *count = &draft->device.step_count;
    ceni_figure figure = ceni_samples_figure(ns);
    if (figure.median > 0 &&
        grow(draft, &draft->steps, &draft->step_room, *count, sizeof *draft->steps)) {
        draft->steps[(*count)++] = (cen_probe_step){bytes, figure.median, figure.spread};
    }
}

void ceni_draft_rate(ceni_draft *draft, const char *dtype, double flops) {
    size_t *count = &draft->device.rate_count;
    if (flops > 0 && grow(draft, &draft->rates, &draft->rate_room, *count, sizeof *draft->rates)) {
        cen_probe_rate *rate = &draft->rates[(*count)++];
        *rate = (cen_probe_rate){.flops = ceni_probe_round(flops)};
        snprintf(rate->dtype, sizeof rate->dtype, "%s", dtype);
    }
}

void ceni_draft_skip(ceni_draft *draft, const char *level, const char *format, ...) {
    size_t *count = &draft->device.skipped_count;
    if (!grow(draft, &draft->skipped, &draft->skipped_room, *count, sizeof *draft->skipped)) {
        return;
    }
    cen_probe_skipped *row = &draft->skipped[(*count)++];
    *row = (cen_probe_skipped){0};
    snprintf(row->level, sizeof row->level, "%s", level);
    va_list args;
    va_start(args, format);
    int length = vsnprintf(row->reason, sizeof row->reason, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof row->reason) {
        memcpy(row->reason + sizeof row->reason - 4, "...", 4);
    }
    ceni_one_line(row->reason);
}

cen_status ceni_draft_take(ceni_draft *draft, cen_probe_device *device) {
    cen_status status = draft->status;
    size_t kept = 0;
    if (status) {
        return status;
    }
    for (size_t i = 0; i < draft->device.level_count; i++) {
        const cen_probe_level *l = &draft->levels[i];
        if (l->capacity_bytes || l->latency_ns > 0 || l->bandwidth_gbps > 0) {
            draft->levels[kept++] = *l;
        }
    }
    draft->device.level_count = kept;
    draft->device.levels = draft->levels;
    draft->device.skipped = draft->skipped;
    draft->device.rates = draft->rates;
    draft->device.transfers = draft->transfers;
    draft->device.steps = draft->steps;
    *device = draft->device;
    *draft = (ceni_draft){0};
    return CEN_OK;
}

void ceni_draft_free(ceni_draft *draft) {
    ceni_free(draft->levels);
    ceni_free(draft->skipped);
    ceni_free(draft->rates);
    ceni_free(draft->transfers);
    ceni_free(draft->steps);
    *draft = (ceni_draft){0};
}
