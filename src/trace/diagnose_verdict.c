/* Cap, verdict and forecast. docs/explain.md states these rules and why the thresholds are what
 * they are; a change here is a change there. */
#include "trace/diagnose.h"

/* A leak that would take longer than this to fill the cap matters to nobody. */
static const double MAX_LEAK_STEPS = 100000;
/* The smallest block that an allocator hands out: a leaked scalar costs this much. */
static const double MIN_BLOCK = 512;
/* Without a failure: this part of what is held, and this much, has to be unused at the peak. */
static const double MIN_WASTE = 0.2;
static const uint64_t MIN_WASTE_BYTES = 128u << 20;
/* Of the holes, this part has to be on other streams, or in private pools, to blame those. */
static const double MIN_STRANDED = 0.5;
/* Of the device, others have to hold this part: contexts and communication libraries take less. */
static const double MIN_OUTSIDE = 0.1;

static bool device_was_full(const ceni_diag *diag) {
    return diag->moment == CENI_MOMENT_FAILED && !diag->held_unknown && !diag->free_unknown &&
           diag->device_free < diag->request;
}

static void set_cap(ceni_diag *diag, ceni_cap_from from, uint64_t low, uint64_t high) {
    diag->cap_from = from;
    diag->cap_low = low;
    diag->cap_high = high;
}

/* After a failure, without what was held: a request may be refused whatever the cap, and below it
 * is only what was once live. */
static void find_cap_of_live(ceni_diag *diag) {
    uint64_t given = diag->cap_given;
    set_cap(diag, given ? CENI_CAP_GIVEN : CENI_CAP_BRACKETED, given ? given : diag->live_peak,
            given ? given : UINT64_MAX);
}

static void find_cap(ceni_diag *diag) {
    uint64_t given = diag->cap_given, asked = diag->held + diag->request;
    if (diag->moment != CENI_MOMENT_FAILED) {
        if (given) {
            set_cap(diag, diag->cap_from ? diag->cap_from : CENI_CAP_GIVEN, given, given);
        } else if (diag->device_total) {
            set_cap(diag, CENI_CAP_DEVICE, diag->device_total, diag->device_total);
        }
        return;
    }
    if (diag->held_unknown) {
        find_cap_of_live(diag);
        return;
    }
    if (device_was_full(diag)) {
        uint64_t allowed = diag->held + diag->device_free;
        if (!given || given >= asked) {
            set_cap(diag, CENI_CAP_DEVICE, allowed, allowed);
            return;
        }
    }
    if (given && given < asked) {
        set_cap(diag, diag->cap_from ? diag->cap_from : CENI_CAP_GIVEN, given, given);
        return;
    }
    diag->cap_contradicted = given != 0;
    uint64_t low = diag->held_peak > diag->held ? diag->held_peak : diag->held;
    set_cap(diag, CENI_CAP_BRACKETED, low < asked ? low : asked, asked);
}

static void find_outside(ceni_diag *diag) {
    uint64_t mine = diag->held + diag->device_free + diag->process_other;
    bool failed = diag->moment == CENI_MOMENT_FAILED;
    if (diag->held_unknown || diag->free_unknown) {
        return;
    }
    if (!diag->outside && diag->device_total > mine && failed) {
        diag->outside = diag->device_total - mine;
    }
}

/* Whether others on the device are what refused the request. */
static bool is_outside(const ceni_diag *diag) {
    uint64_t asked = diag->held + diag->request;
    if (!device_was_full(diag)) {
        return false;
    }
    if (!diag->device_total) {
        return diag->cap_given && asked <= diag->cap_given;
    }
    return (double)diag->outside >= MIN_OUTSIDE * (double)diag->device_total &&
           diag->outside > diag->held - diag->live &&
           asked + diag->process_other <= diag->device_total;
}

static double leak_growth(const ceni_diag *diag) {
    double bytes = 0;
    for (size_t i = 0; i < diag->suspect_count; i++) {
        double least = diag->suspects[i].blocks_per_step * MIN_BLOCK;
        double own = diag->suspects[i].bytes_per_step;
        bytes += own > least ? own : least;
    }
    return bytes;
}

/* A leak is the verdict when without it the request had fitted, or, if nothing failed, when it
 * fills the cap (unknown: once more what is held) within MAX_LEAK_STEPS. */
static bool is_leak(const ceni_diag *diag) {
    if (!diag->suspect_count) {
        return false;
    }
    if (diag->moment == CENI_MOMENT_FAILED) {
        return diag->over && diag->suspect_bytes >= diag->over;
    }
    uint64_t room = diag->held_peak;
    if (diag->cap_low) {
        room = diag->cap_low > diag->needed ? diag->cap_low - diag->needed : 0;
    }
    return (double)room < MAX_LEAK_STEPS * leak_growth(diag);
}

uint64_t ceni_holes_elsewhere(const ceni_diag *diag) {
    uint64_t elsewhere = diag->total.holes;
    for (size_t i = 0; i < diag->stream_count; i++) {
        if (diag->streams[i].stream == diag->request_stream) {
            elsewhere -= diag->streams[i].holes;
        }
    }
    return elsewhere;
}

static cen_verdict stranded_or_fragmented(const ceni_diag *diag) {
    uint64_t elsewhere = ceni_holes_elsewhere(diag), pools = 0;
    double most = MIN_STRANDED * (double)diag->total.holes;
    for (size_t i = 0; i < diag->pool_count; i++) {
        pools += diag->pools[i].holes;
    }
    if (diag->pool_count && (double)pools >= most && pools >= diag->over) {
        return CEN_VERDICT_STRANDED_POOL;
    }
    if (diag->stream_count && (double)elsewhere >= most && elsewhere >= diag->over) {
        return CEN_VERDICT_STRANDED_STREAM;
    }
    return CEN_VERDICT_FRAGMENTATION;
}

static cen_verdict judge_failure(const ceni_diag *diag) {
    if (is_outside(diag)) {
        return CEN_VERDICT_OUTSIDE;
    }
    if (is_leak(diag)) {
        return CEN_VERDICT_LEAK;
    }
    return diag->needed > diag->cap_low ? CEN_VERDICT_CAPACITY : stranded_or_fragmented(diag);
}

static cen_verdict judge_peak(const ceni_diag *diag) {
    if (is_leak(diag)) {
        return CEN_VERDICT_LEAK;
    }
    if (diag->cap_low && diag->needed > diag->cap_low) {
        return CEN_VERDICT_CAPACITY;
    }
    if (diag->cap_low && diag->held_peak > diag->cap_low) {
        return CEN_VERDICT_FRAGMENTATION;
    }
    /* A state at rest holds empty segments for the next step: they are no fragmentation. */
    uint64_t waste = diag->moment == CENI_MOMENT_STATE ? diag->total.holes - diag->cached
                                                       : diag->held_peak - diag->live_peak;
    bool much = waste >= MIN_WASTE_BYTES && (double)waste >= MIN_WASTE * (double)diag->held_peak;
    return much ? CEN_VERDICT_FRAGMENTATION : CEN_VERDICT_HEALTHY;
}

static void find_over(ceni_diag *diag) {
    uint64_t held = diag->held + diag->request;
    if (diag->moment != CENI_MOMENT_FAILED && diag->held_peak > held) {
        held = diag->held_peak;
    }
    uint64_t reach = diag->needed > diag->cap_low ? diag->needed : held;
    diag->over = diag->cap_low && reach > diag->cap_low ? reach - diag->cap_low : 0;
}

static void forecast(ceni_diag *diag) {
    double growth = diag->growth > 0 ? diag->growth : diag->suspect_growth;
    bool fits = diag->cap_low && diag->needed <= diag->cap_low;
    diag->next =
        diag->step_count || diag->moment == CENI_MOMENT_FAILED ? diag->verdict : CEN_VERDICT_NONE;
    if (growth <= 0) {
        return;
    }
    diag->next_needed = diag->needed + (uint64_t)growth;
    if (diag->cap_low && diag->next_needed > diag->cap_low &&
        diag->verdict != CEN_VERDICT_OUTSIDE) {
        diag->next = CEN_VERDICT_CAPACITY;
    }
    if (fits && diag->over && diag->moment == CENI_MOMENT_FAILED) {
        diag->packed_steps = 1 + (uint64_t)((double)(diag->cap_low - diag->needed) / growth);
    }
}

static void time_suspects(ceni_diag *diag) {
    for (size_t i = 0; diag->cap_low && i < diag->suspect_count; i++) {
        ceni_suspect *s = &diag->suspects[i];
        double least = s->blocks_per_step * MIN_BLOCK;
        double room = diag->cap_low > diag->needed ? (double)(diag->cap_low - diag->needed) : 0;
        s->steps_left = room / (s->bytes_per_step > least ? s->bytes_per_step : least);
    }
}

void ceni_diagnose_verdict(ceni_diag *diag) {
    find_cap(diag);
    find_outside(diag);
    find_over(diag);
    diag->verdict = diag->moment == CENI_MOMENT_FAILED ? judge_failure(diag) : judge_peak(diag);
    forecast(diag);
    time_suspects(diag);
    ceni_diagnose_actions(diag);
}
