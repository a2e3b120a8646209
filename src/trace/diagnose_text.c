/* The explanation for people: the verdict, the sum that decides it, the forecast and what to do,
 * then what was ruled out, then tables. The top fits a screen of 80 by 24. One unit, chosen by what
 * is needed, holds for all sums, so that they can be checked by eye. */
#include "trace/diagnose.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, LABEL = 11 };

static double num(const ceni_diag *diag, uint64_t bytes) {
    return (double)bytes / (double)ceni_unit(diag);
}

static const char *unit_name(const ceni_diag *diag) {
    return ceni_unit(diag) == 1u << 30 ? "GiB" : "MiB";
}

const char *ceni_headline(cen_verdict verdict) {
    static const char *const names[] = {
        [CEN_VERDICT_NONE] = "",
        [CEN_VERDICT_HEALTHY] = "HEALTHY",
        [CEN_VERDICT_CAPACITY] = "OUT OF CAPACITY",
        [CEN_VERDICT_FRAGMENTATION] = "FRAGMENTATION",
        [CEN_VERDICT_STRANDED_STREAM] = "STRANDED ON ANOTHER STREAM",
        [CEN_VERDICT_STRANDED_POOL] = "STRANDED IN PRIVATE POOLS",
        [CEN_VERDICT_LEAK] = "LEAK",
        [CEN_VERDICT_OUTSIDE] = "HELD OUTSIDE THE FRAMEWORK",
    };
    return names[verdict];
}

/* A cap inside the bracket may have allowed what was needed. */
static bool is_undecided(const ceni_diag *diag) {
    return diag->cap_from == CENI_CAP_BRACKETED && diag->needed > diag->cap_low &&
           diag->needed < diag->cap_high;
}

static void put_headline(ceni_str *out, const ceni_diag *diag) {
    ceni_str_printf(out, "%s", ceni_headline(diag->verdict));
    if (diag->verdict == CEN_VERDICT_CAPACITY && is_undecided(diag)) {
        ceni_str_printf(out, ", UNLESS THE CAP IS %.2f %s OR MORE", num(diag, diag->needed),
                        unit_name(diag));
    }
    if (diag->verdict == CEN_VERDICT_FRAGMENTATION && diag->held_unknown) {
        ceni_str_printf(out, ", UNLESS OTHERS HELD THE REST");
    }
    if (diag->next != diag->verdict && diag->next != CEN_VERDICT_NONE) {
        ceni_str_printf(out, " NOW; %s NEXT STEP", ceni_headline(diag->next));
    }
    ceni_str_printf(out, "\n");
}

static void put_why_failed(ceni_str *out, const ceni_diag *diag) {
    bool fits = diag->needed <= diag->cap_low;
    ceni_str_printf(out, " why       %.2f %s live + %.2f = %.2f needed, ", num(diag, diag->live),
                    unit_name(diag), num(diag, diag->request), num(diag, diag->needed));
    if (!fits && diag->cap_from == CENI_CAP_BRACKETED) {
        ceni_str_printf(out, "over by %.2f\n", num(diag, diag->over));
        if (diag->held_unknown) {
            ceni_str_printf(out, "           cap from %.2f (once live) up: undecided, give --cap\n",
                            num(diag, diag->cap_low));
            return;
        }
        ceni_str_printf(out, "           cap from %.2f (once held), below %.2f: %s\n",
                        num(diag, diag->cap_low), num(diag, diag->cap_high),
                        is_undecided(diag) ? "undecided, give --cap" : "not enough in any case");
        return;
    }
    if (!fits) {
        ceni_str_printf(out, "%.2f allowed: over by %.2f\n", num(diag, diag->cap_low),
                        num(diag, diag->over));
        return;
    }
    if (diag->held_unknown) {
        ceni_str_printf(out, "fits %.2f;\n           what was held is not recorded\n",
                        num(diag, diag->cap_low));
        return;
    }
    ceni_str_printf(out, "fits %.2f; but\n", num(diag, diag->cap_low));
    ceni_str_printf(out, "           %.2f held + %.2f = %.2f, over by %.2f\n",
                    num(diag, diag->held), num(diag, diag->request),
                    num(diag, diag->held + diag->request), num(diag, diag->over));
}

/* The sum at the peak, or of the state. */
static void put_why_not_failed(ceni_str *out, const ceni_diag *diag) {
    uint64_t held = diag->moment == CENI_MOMENT_PEAK ? diag->held_peak : diag->held;
    double unused = held ? 100 * (1 - (double)diag->live / (double)held) : 0;
    ceni_str_printf(out, " why       %.2f %s live%s", num(diag, diag->live), unit_name(diag),
                    diag->moment == CENI_MOMENT_PEAK ? " at the peak" : "");
    if (diag->held_unknown) {
        ceni_str_printf(out, ", what was held is not recorded");
    } else {
        ceni_str_printf(out, ", %.2f held: %.0f%% unused", num(diag, held), unused);
    }
    if (diag->cap_low) {
        ceni_str_printf(out, "; %s %.2f", diag->over ? "over" : "fits", num(diag, diag->cap_low));
    }
    ceni_str_printf(out, "\n");
}

static void put_why(ceni_str *out, const ceni_diag *diag) {
    if (diag->moment == CENI_MOMENT_FAILED) {
        put_why_failed(out, diag);
    } else {
        put_why_not_failed(out, diag);
    }
    if (diag->suspect_count) {
        ceni_str_printf(out, "           ");
        ceni_put_size(out, (uint64_t)(diag->suspect_growth + 0.5));
        ceni_str_printf(out, " a step stays, from %zu stack%s: ", diag->suspect_count,
                        diag->suspect_count == 1 ? "" : "s");
        ceni_put_size(out, diag->suspect_bytes);
        ceni_str_printf(out, " now\n");
    }
    if (diag->verdict == CEN_VERDICT_OUTSIDE && diag->outside) {
        ceni_str_printf(out, "           others hold %.2f of the device's %.2f; %.2f was free\n",
                        num(diag, diag->outside), num(diag, diag->device_total),
                        num(diag, diag->device_free));
        ceni_str_printf(out, "           alone, %.2f fits %.2f\n",
                        num(diag, diag->held + diag->request + diag->process_other),
                        num(diag, diag->device_total));
    }
}

static void put_forecast(ceni_str *out, const ceni_diag *diag) {
    if (diag->moment == CENI_MOMENT_STATE || diag->verdict == CEN_VERDICT_OUTSIDE) {
        return;
    }
    ceni_str_printf(out, " forecast  ");
    if (!diag->next_needed) {
        ceni_str_printf(out, diag->step_count ? "no steady growth from step to step\n"
                                              : "none: no steps found in the history\n");
        return;
    }
    uint64_t growth = diag->next_needed - diag->needed;
    ceni_str_printf(out, "+");
    ceni_put_size(out, growth);
    ceni_str_printf(out, " a step: next needs %.2f %s", num(diag, diag->next_needed),
                    unit_name(diag));
    if (diag->packed_steps) {
        ceni_str_printf(out, ". Packing buys %" PRIu64 " step%s", diag->packed_steps,
                        diag->packed_steps == 1 ? "" : "s");
    } else if (diag->cap_low > diag->needed && growth) {
        ceni_str_printf(out, "; the cap in ");
        ceni_put_steps(out, (diag->cap_low - diag->needed) / growth + 1);
    } else if (!diag->cap_low) {
        ceni_str_printf(out, "; --cap tells when it ends");
    }
    ceni_str_printf(out, "\n");
}

static void put_actions(ceni_str *out, const ceni_diag *diag) {
    for (size_t i = 0; i < diag->action_count; i++) {
        const ceni_action *a = &diag->actions[i];
        ceni_str tail = {0};
        ceni_put_size(&tail, a->bytes);
        ceni_str_printf(&tail, ", %s", ceni_mark_name(a->mark));
        size_t width = LABEL + strlen(a->text) + strlen(": -") + tail.size;
        ceni_str_printf(out, "%s %s:%s -%s\n", i ? "          " : " do first ", a->text,
                        width > WIDTH ? "\n            " : "", tail.failed ? "" : tail.data);
        out->failed = out->failed || tail.failed;
        ceni_free(tail.data);
    }
}

static void put_cap(ceni_str *out, const ceni_diag *diag) {
    bool failed = diag->moment == CENI_MOMENT_FAILED;
    ceni_str_printf(out, "cap       ");
    switch (diag->cap_from) {
    case CENI_CAP_GIVEN:
    case CENI_CAP_STATED:
        ceni_str_printf(out, "%.2f %s %s", num(diag, diag->cap_low), unit_name(diag),
                        ceni_cap_name(diag->cap_from));
        break;
    case CENI_CAP_BRACKETED:
        if (diag->held_unknown) {
            ceni_str_printf(out, "not given: at least %.2f %s (once live)",
                            num(diag, diag->cap_low), unit_name(diag));
            break;
        }
        ceni_str_printf(out,
                        diag->cap_contradicted
                            ? "the one given allows it: %.2f %s (once held) to %.2f (refused)"
                            : "not given: at least %.2f %s (once held), below %.2f (refused)",
                        num(diag, diag->cap_low), unit_name(diag), num(diag, diag->cap_high));
        break;
    case CENI_CAP_DEVICE:
        ceni_str_printf(out, failed ? "the device: %.2f %s held or free" : "the device: %.2f %s",
                        num(diag, diag->cap_low), unit_name(diag));
        break;
    case CENI_CAP_NONE:
        ceni_str_printf(out, "not given, nothing was refused: at least the %.2f %s once %s",
                        num(diag, diag->held_peak), unit_name(diag),
                        diag->held_unknown ? "live" : "held");
    }
    if (failed && !diag->free_unknown) {
        const char *split = diag->cap_from == CENI_CAP_BRACKETED ? "\n          " : "; ";
        ceni_str_printf(out, "%scard had %.2f free%s", split, num(diag, diag->device_free),
                        diag->device_free >= diag->request ? ": the cap is set in software" : "");
    }
    ceni_str_printf(out, "\n");
}

static void put_holes(ceni_str *out, const ceni_diag *diag) {
    if (diag->held_unknown) {
        ceni_str_printf(out, "holes     not known: the recording has no segments\n");
        return;
    }
    if (!diag->snapshot) {
        ceni_str_printf(out, "holes     %.2f %s reserved but unallocated\n",
                        num(diag, diag->held - diag->live), unit_name(diag));
        return;
    }
    ceni_str_printf(
        out, "holes     %.2f %s, %" PRIu64 " in %" PRIu64 " of %" PRIu64 " segments, largest %.2f",
        num(diag, diag->total.holes), unit_name(diag), diag->total.hole_count,
        diag->segments_with_holes, diag->total.segments, num(diag, diag->total.hole_largest));
    if (diag->cached) {
        ceni_str_printf(out, "; %.2f empty", num(diag, diag->cached));
    }
    ceni_str_printf(out, "\n");
}

/* Each cause that is ruled out, with its number. */
static void put_ruled_out(ceni_str *out, const ceni_diag *diag) {
    size_t n = diag->step_complete_count;
    const char *comma = "ruled out ";
    bool no_leak = !diag->suspect_count && n >= 4 && diag->untold_growth <= 0;
    if (!diag->snapshot || (diag->held_unknown && !no_leak)) {
        return;
    }
    if (no_leak) {
        ceni_str_printf(out, "%sleak (baseline %.2f each step)", comma,
                        num(diag, diag->steps[n - 1].low));
        comma = ", ";
    }
    if (diag->held_unknown) { /* nor is anything known of streams and pools */
        ceni_str_printf(out, "\n");
        return;
    }
    if (diag->verdict != CEN_VERDICT_STRANDED_STREAM) {
        ceni_str_printf(out, "%sstreams (%zu", comma, diag->stream_count);
        if (diag->stream_count > 1) {
            ceni_str_printf(out, ", %.2f free on others", num(diag, ceni_holes_elsewhere(diag)));
        }
        ceni_str_printf(out, ")");
        comma = ", ";
    }
    if (diag->verdict != CEN_VERDICT_STRANDED_POOL) {
        uint64_t holes = 0;
        for (size_t i = 0; i < diag->pool_count; i++) {
            holes += diag->pools[i].holes;
        }
        ceni_str_printf(out, "%spools (%zu", comma, diag->pool_count);
        if (diag->pool_count) {
            ceni_str_printf(out, ", %.2f free in them", num(diag, holes));
        }
        ceni_str_printf(out, ")");
    }
    ceni_str_printf(out, "\n");
}

/* What the file does not tell, and what would. */
static void put_open(ceni_str *out, const ceni_diag *diag) {
    const char *label = "open     ";
    if (!diag->snapshot) {
        return;
    }
    if (!diag->suspect_count && diag->step_complete_count < 4) {
        ceni_str_printf(out, "%s leak: %zu complete steps, 4 would tell\n", label,
                        diag->step_complete_count);
        label = "         ";
    }
    if (diag->untold_growth > 0) {
        ceni_str_printf(out, "%s leak: the baseline grows by ", label);
        ceni_put_size(out, (uint64_t)(diag->untold_growth + 0.5));
        ceni_str_printf(out, " a step, and no frames tell whose\n");
        label = "         ";
    }
    if (diag->cap_from == CENI_CAP_DEVICE && diag->moment == CENI_MOMENT_FAILED &&
        !diag->device_total) {
        ceni_str_printf(out, "%s what others hold of the device: --device-total tells\n", label);
        label = "         ";
    }
    if (diag->held_unknown) {
        ceni_str_printf(out, "%s %swhat others hold of the device\n", label,
                        diag->verdict == CEN_VERDICT_FRAGMENTATION ? "" : "fragmentation, and ");
        return;
    }
    bool unknown = diag->owner_count && diag->owners[0].kind == CENI_KIND_UNKNOWN &&
                   diag->owners[0].bytes > diag->needed / 2;
    if (unknown || diag->untold_growth > 0) {
        bool traced = ceni_origin_of(diag->snapshot) == CENI_ORIGIN_CENOTE;
        ceni_str_printf(out, "%s whose memory: %s records frames\n", label,
                        traced ? "cen_trace_options.stacks"
                               : "_record_memory_history(context=\"all\")");
    }
}

static void put_peaks(ceni_str *out, const ceni_diag *diag) {
    bool failed = diag->moment == CENI_MOMENT_FAILED;
    bool inferred = diag->steps_from == CENI_STEPS_INFERRED;
    /* As many of the last ones as a line holds. */
    size_t one = (size_t)snprintf(NULL, 0, " %.2f", num(diag, diag->held_peak));
    size_t rest = strlen("peaks     ...") + 2 * (one + 2) + (inferred ? 17 : 0);
    size_t room = (WIDTH - rest) / one, most = room < 7 ? room : 7;
    size_t n = diag->step_complete_count, from = n > most ? n - most : 0;
    if (!n) {
        return;
    }
    ceni_str_printf(out, "peaks    %s", from ? " ..." : "");
    for (size_t i = from; i < n; i++) {
        ceni_str_printf(out, " %.2f", num(diag, diag->steps[i].peak));
    }
    if (failed) {
        ceni_str_printf(out, " [%.2f]", num(diag, diag->needed));
    }
    if (diag->growth > 0) {
        ceni_str_printf(out, " %.2f?", num(diag, diag->next_needed));
    }
    ceni_str_printf(out, inferred ? " (steps inferred)\n" : "\n");
}

void ceni_text_device(ceni_str *out, const ceni_diag *diag) {
    put_headline(out, diag);
    if (diag->request) {
        ceni_str_printf(out, " failed    ");
        ceni_put_failed(out, diag);
        if (diag->failures > 1) {
            ceni_str_printf(out, "; the last of %zu", diag->failures);
        }
        ceni_str_printf(out, "\n");
    }
    put_why(out, diag);
    put_forecast(out, diag);
    put_actions(out, diag);
    ceni_str_printf(out, "\n");
    put_cap(out, diag);
    put_holes(out, diag);
    put_ruled_out(out, diag);
    put_open(out, diag);
    put_peaks(out, diag);
    ceni_text_tables(out, diag);
}
