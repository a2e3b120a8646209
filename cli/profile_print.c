/* The text of `cenote profile`. */
#include <ctype.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/profile.h"

enum { USUAL_TOP = 10 };

static bool has(const cen_profile_row *row, cen_profile_figure figure) {
    return !row->figures[figure].missing;
}

static double get(const cen_profile_row *row, cen_profile_figure figure) {
    return row->figures[figure].value;
}

/* "54%", or "?"; eight texts are in use at a time at most. */
static const char *percent(const cen_profile_row *row, cen_profile_figure figure) {
    static char texts[8][24];
    static unsigned turn;
    char *text = texts[turn++ % 8];
    if (has(row, figure)) {
        snprintf(text, sizeof texts[0], "%.0f%%", 100 * get(row, figure));
    } else {
        snprintf(text, sizeof texts[0], "?");
    }
    return text;
}

/* The same of another figure, with so many digits behind the point. */
static const char *number(const cen_profile_row *row, cen_profile_figure figure, int digits) {
    static char texts[8][24];
    static unsigned turn;
    char *text = texts[turn++ % 8];
    if (has(row, figure)) {
        snprintf(text, sizeof texts[0], "%.*f", digits, get(row, figure));
    } else {
        snprintf(text, sizeof texts[0], "?");
    }
    return text;
}

static const char *amount(const cen_profile_row *row, cen_profile_figure figure) {
    return has(row, figure) ? cli_si(get(row, figure)) : "? ";
}

static void print_level(FILE *out, const char *level, const cen_profile_row *row,
                        cen_profile_figure bytes, cen_profile_figure share) {
    fprintf(out, "    %-8s %sB, %s of its peak", level, amount(row, bytes), percent(row, share));
}

static void print_levels(FILE *out, const profile_options *options, const cen_profile_row *row) {
    cen_profile_measured m = {0};
    bool measured = profile_measured(options, row, &m);
    print_level(out, "DRAM", row, CEN_PROFILE_DRAM_BYTES, CEN_PROFILE_DRAM_SHARE);
    if (measured && m.dram > 0) {
        fprintf(out, ", %.0f%% of what was measured", 100 * m.dram);
    }
    putc('\n', out);
    print_level(out, "L2", row, CEN_PROFILE_L2_BYTES, CEN_PROFILE_L2_SHARE);
    if (measured && m.l2 > 0) {
        fprintf(out, ", %.0f%% of what was measured", 100 * m.l2);
    }
    bool low =
        has(row, CEN_PROFILE_L2_HIT) && get(row, CEN_PROFILE_L2_HIT) < CEN_PROFILE_L2_HIT_LOW;
    fprintf(out, ", hits %s%s\n", percent(row, CEN_PROFILE_L2_HIT), low ? " (low)" : "");
    print_level(out, "L1", row, CEN_PROFILE_L1_BYTES, CEN_PROFILE_L1_SHARE);
    fprintf(out, ", hits %s\n", percent(row, CEN_PROFILE_L1_HIT));
    fprintf(out, "    %-8s loads use %s and stores %s of 32 B a sector; banks %s of the ideal\n",
            "access", number(row, CEN_PROFILE_LOAD_BYTES, 1),
            number(row, CEN_PROFILE_STORE_BYTES, 1), number(row, CEN_PROFILE_BANK_RATIO, 2));
    fprintf(out, "    %-8s %sop, %s /B of DRAM, %s of the peak, tensor cores %s", "compute",
            amount(row, CEN_PROFILE_OPERATIONS), number(row, CEN_PROFILE_INTENSITY, 2),
            percent(row, CEN_PROFILE_COMPUTE_SHARE), percent(row, CEN_PROFILE_TENSOR_SHARE));
    if (measured && m.fp32 > 0) {
        fprintf(out, "; fp32 %.0f%% of what was measured", 100 * m.fp32);
    }
    bool limited = *row->limit && get(row, CEN_PROFILE_OCCUPANCY_MOST) < 1;
    fprintf(out, "\n    %-8s %s of %s possible, %s registers, %s waves%s%s\n", "warps",
            percent(row, CEN_PROFILE_OCCUPANCY), percent(row, CEN_PROFILE_OCCUPANCY_MOST),
            number(row, CEN_PROFILE_REGISTERS, 0), number(row, CEN_PROFILE_WAVES, 2),
            limited ? "; limited by " : "", limited ? row->limit : "");
}

static void print_row(FILE *out, const profile_options *options, const cen_profile_row *row) {
    char bound[64];
    snprintf(bound, sizeof bound, "%s", cen_profile_bound_name(row->bound));
    for (char *at = bound; *at; at++) {
        *at = (char)toupper((unsigned char)*at);
    }
    fprintf(out, "\n%s\n  grid %s, block %s, device %u: %s launch%s", row->kernel,
            *row->grid ? row->grid : "?", *row->block ? row->block : "?", row->device,
            cli_grouped(row->launches), row->launches == 1 ? "" : "es");
    if (has(row, CEN_PROFILE_SECONDS)) {
        fprintf(out, ", %s", cli_time(get(row, CEN_PROFILE_SECONDS)));
    }
    if (row->time_share > 0) {
        fprintf(out, ", %.0f%% of the time", 100 * row->time_share);
    }
    fprintf(out, "\n  %s: %s\n", bound, row->reason);
    if (*row->advice) {
        fprintf(out, "  try: %s\n", row->advice);
    }
    print_levels(out, options, row);
}

/* Whether a row before this one lacks the figure for the same reason. */
static bool told_before(const profile_options *options, const cen_profile *profile, size_t end,
                        size_t figure, const char *why) {
    for (size_t i = 0; i < end; i++) {
        const cen_profile_row *row = cen_profile_get(profile, i);
        const char *missing = row->figures[figure].missing;
        if (missing && !strcmp(missing, why) && profile_takes(options, row)) {
            return true;
        }
    }
    return false;
}

/* Each "?" above, once for each reason. */
static void print_missing(FILE *out, const profile_options *options, const cen_profile *profile,
                          size_t end) {
    bool any = false;
    for (size_t figure = 0; figure < CEN_PROFILE_FIGURES; figure++) {
        for (size_t i = 0; i < end; i++) {
            const cen_profile_row *row = cen_profile_get(profile, i);
            const char *why = row->figures[figure].missing;
            if (!why || !profile_takes(options, row) ||
                told_before(options, profile, i, figure, why)) {
                continue;
            }
            fprintf(out, "%s  %s: %s\n", any ? "" : "\nnot known\n",
                    cen_profile_key((cen_profile_figure)figure), why);
            any = true;
        }
    }
}

void profile_print(FILE *out, const profile_options *options, const cen_profile *profile) {
    uint64_t top = options->top ? options->top : USUAL_TOP, taken = 0, launches = 0;
    double seconds = 0;
    size_t end = 0;
    for (size_t i = 0; i < cen_profile_count(profile); i++) {
        const cen_profile_row *row = cen_profile_get(profile, i);
        if (profile_takes(options, row)) {
            launches += row->launches;
            seconds += get(row, CEN_PROFILE_SECONDS);
            end = taken++ < top ? i + 1 : end;
        }
    }
    fprintf(out, "%s kernel%s, %s launch%s, %s\n", cli_grouped(taken), taken == 1 ? "" : "s",
            cli_grouped(launches), launches == 1 ? "" : "es", cli_time(seconds));
    if (!taken && options->kernel) {
        fprintf(out, "no name matches '%s', of %s\n", options->kernel,
                cli_grouped(cen_profile_count(profile)));
    }
    for (size_t i = 0; i < end; i++) {
        const cen_profile_row *row = cen_profile_get(profile, i);
        if (profile_takes(options, row)) {
            print_row(out, options, row);
        }
    }
    if (taken > top) {
        fprintf(out, "\nand %s more; --top prints them\n", cli_grouped(taken - top));
    }
    print_missing(out, options, profile, end);
}

/* ---- devices ---- */

/* A share over time in so many places, a tenth a step. */
enum { PLACES = 40 };

static void print_course(FILE *out, const cen_sample_device *device, cen_sample_share share) {
    static const char steps[] = " .:-=+*#%@";
    size_t places = device->count < PLACES ? device->count : PLACES;
    for (size_t i = 0; i < places; i++) {
        size_t from = i * device->count / places, to = (i + 1) * device->count / places;
        double mean = profile_mean_of(device, share, from, to).mean;
        int step = mean <= 0 ? 0 : mean >= 1 ? 9 : (int)(mean * 10);
        putc(steps[step], out);
    }
}

static void print_device(FILE *out, const cen_sample_device *device) {
    fprintf(out, "\ndevice %u, %s: %zu sample%s in %s\n", device->index, device->name,
            device->count, device->count == 1 ? "" : "s",
            cli_time(device->moments[device->count - 1].seconds));
    for (int s = 0; s < CEN_SAMPLE_SHARES; s++) {
        profile_mean mean = profile_mean_of(device, (cen_sample_share)s, 0, device->count);
        const char *text = cen_sample_text((cen_sample_share)s);
        if (mean.mean < 0) {
            fprintf(out, "  %-24s the device does not tell\n", text);
            continue;
        }
        fprintf(out, "  %-24s mean %3.0f%%, most %3.0f%%  |", text, 100 * mean.mean,
                100 * mean.most);
        print_course(out, device, (cen_sample_share)s);
        fprintf(out, "|\n");
    }
}

void profile_print_samples(FILE *out, const profile_result *result) {
    fprintf(out, "shares of whole devices, not of kernels, and of all that ran on them: %s\n",
            result->why);
    for (size_t i = 0; i < cen_sampler_count(result->sampler); i++) {
        const cen_sample_device *device = cen_sampler_get(result->sampler, i);
        if (device->count) {
            print_device(out, device);
        }
    }
}
