/* The text of `cenote roofline`, and its JSON; docs/roofline.md has the keys. */
#include "cli/roofline.h"

#include <stdio.h>

#include "cli/cmd.h"
#include "cli/json.h"

static void print_verdict(const cen_work *work, const cen_roofline_result *r) {
    const cen_roofline_level *level = &r->levels[r->level];
    switch (r->bound) {
    case CEN_BOUND_COMPUTE:
        printf("COMPUTE-BOUND: %s at the ceiling of %s arithmetic\n", cli_time(r->seconds),
               cen_dtype_name(work->type));
        break;
    case CEN_BOUND_MEMORY:
        printf("MEMORY-BOUND: %s at the ceiling of %s\n", cli_time(r->seconds), level->level);
        break;
    default:
        printf("LATENCY-BOUND: %s for one access to %s; it moves too little to hide that\n",
               cli_time(r->seconds), level->level);
    }
}

void roofline_print(const cen_work *work, const cen_roofline_result *r) {
    print_verdict(work, r);
    if (work->device && *work->device->name) {
        printf("  %-10s  %s\n", "device", work->device->name);
    }
    if (work->flops > 0) {
        printf("  %-10s  %10s at %sflop/s, %sflop\n", "compute", cli_time(r->compute_seconds),
               cli_si(r->peak_flops), cli_si(work->flops));
    }
    for (size_t i = 0; i < r->level_count; i++) {
        const cen_roofline_level *l = &r->levels[i];
        printf("  %-10s  %10s at %sB/s, %sB", l->level, cli_time(l->seconds), cli_si(l->bandwidth),
               cli_si(l->bytes));
        if (work->flops > 0) {
            printf("; %.4g flop/B, ridge at %.4g", l->intensity, l->ridge);
        }
        putchar('\n');
    }
    if (r->latency_seconds > 0) {
        printf("  %-10s  %10s\n", "latency", cli_time(r->latency_seconds));
    } else {
        printf("  %-10s  %10s\n", "latency", "not known");
    }
}

static json_t *level_json(const cen_roofline_level *l) {
    return json_pack("{s:s, s:o, s:f, s:f, s:f, s:o, s:o}", "level", l->level, "bytes",
                     cli_json_count(l->bytes), "bandwidth", l->bandwidth, "seconds", l->seconds,
                     "intensity", l->intensity, "ridge", cli_json_known(l->ridge),
                     "latency_seconds", cli_json_known(l->latency_seconds));
}

int roofline_print_json(const cen_work *work, const cen_roofline_result *r) {
    json_t *levels = json_array();
    for (size_t i = 0; i < r->level_count; i++) {
        cli_json_append(&levels, level_json(&r->levels[i]));
    }
    const cen_roofline_level *level = &r->levels[r->level];
    bool named = work->device && *work->device->name;
    return cli_json_print(
        "roofline",
        json_pack("{s:s, s:s, s:f, s:f, s:o, s:o, s:s, s:o, s:f, s:f, s:o, s:o, s:o}", "bound",
                  cen_bound_name(r->bound), "level", level->level, "seconds", r->seconds,
                  "intensity", level->intensity, "ridge", cli_json_known(level->ridge), "flops",
                  cli_json_count(work->flops), "dtype", cen_dtype_name(work->type), "peak_flops",
                  cli_json_known(r->peak_flops), "compute_seconds", r->compute_seconds,
                  "memory_seconds", r->memory_seconds, "latency_seconds",
                  cli_json_known(r->latency_seconds), "levels", levels, "device",
                  named ? json_string(work->device->name) : json_null()));
}
