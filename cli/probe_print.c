/* The tables of `cenote probe`, of 80 columns, and its comma-separated values. */
#include "cli/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"

enum { COLUMNS = 80 };

const char *probe_size(uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    static char texts[4][32];
    static unsigned turn;
    char *out = texts[turn++ % 4];
    double n = (double)bytes;
    size_t unit = 0;
    for (; n >= 1024 && unit < 6; unit++) {
        n /= 1024;
    }
    snprintf(out, 32, bytes ? "%.4g %s" : "-", n, units[unit]);
    return out;
}

/* A number of four digits at most, "-" for 0; eight texts are in use at a time at most. */
static const char *number(double n) {
    static char texts[8][32];
    static unsigned turn;
    char *out = texts[turn++ % 8];
    if (n >= 1e5) {
        snprintf(out, 32, "%.2e", n);
    } else {
        snprintf(out, 32, !(n > 0) ? "-" : n >= 1000 ? "%.0f" : "%.3g", n);
    }
    return out;
}

/* The half of what lies between the lowest and the highest, as a share of the median. */
static const char *spread_text(double median, cen_probe_spread spread) {
    static char texts[4][16];
    static unsigned turn;
    char *out = texts[turn++ % 4];
    double share = median > 0 ? 50 * (spread.high - spread.low) / median : 0;
    if (!(median > 0) || !(spread.low > 0)) {
        snprintf(out, 16, "%s", "");
    } else {
        snprintf(out, 16, share >= 99.5 ? ">99%%" : "%.0f%%", share);
    }
    return out;
}

static void print_level(const cen_probe_level *l) {
    char peak[16] = "-";
    if (l->peak_gbps > 0 && l->bandwidth_gbps > 0) {
        snprintf(peak, sizeof peak, "%.0f%%", 100 * l->bandwidth_gbps / l->peak_gbps);
    }
    char capacity[40];
    if (l->capacity_bytes || !l->unit_bytes) {
        snprintf(capacity, sizeof capacity, "%s", probe_size(l->capacity_bytes));
    } else { /* how many there are is not known */
        snprintf(capacity, sizeof capacity, "%s ea", probe_size(l->unit_bytes));
    }
    printf("  %-14.14s %10s %8s %4s %7s %8s %4s %6s %6s\n", l->level, capacity,
           number(l->latency_ns), spread_text(l->latency_ns, l->latency_spread),
           number(l->latency_cycles), number(l->bandwidth_gbps),
           spread_text(l->bandwidth_gbps, l->bandwidth_spread), peak,
           number(l->picojoules_per_byte));
}

static void print_levels(const cen_probe_device *d) {
    printf("  %-14s %10s %8s %4s %7s %8s %4s %6s %6s\n", "level", "capacity", "ns", "+-", "cycles",
           "GB/s", "+-", "peak", "pJ/B");
    for (size_t i = 0; i < d->level_count; i++) {
        print_level(&d->levels[i]);
    }
    for (size_t i = 0; i < d->rate_count; i++) {
        printf("  arithmetic in %s: %sflop/s\n", d->rates[i].dtype, cli_si(d->rates[i].flops));
    }
}

static void print_transfers(const cen_probe_device *d) {
    if (d->transfer_count) {
        printf("\n  %-14s %-18s %7s %10s %9s %4s\n", "level", "access", "threads", "bytes", "GB/s",
               "+-");
    }
    for (size_t i = 0; i < d->transfer_count; i++) {
        const cen_probe_transfer *t = &d->transfers[i];
        char threads[16] = "";
        if (t->threads) {
            snprintf(threads, sizeof threads, "%" PRIu32, t->threads);
        }
        printf("  %-14.14s %-18.18s %7s %10s %9s %4s\n", t->level, t->access, threads,
               probe_size(t->bytes), number(t->gbps), spread_text(t->gbps, t->spread));
    }
}

/* Words up to the last column, further lines below the first one's begin. */
static void print_wrapped(const char *head, const char *text) {
    size_t indent = strlen(head), column = indent;
    fputs(head, stdout);
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > indent && column + 1 + word > COLUMNS) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)word, text);
        column += word;
        text += word + (text[word] == ' ');
    }
    putchar('\n');
}

static void print_skipped(const cen_probe_device *d) {
    if (d->skipped_count) {
        printf("\n  not measured:\n");
    }
    for (size_t i = 0; i < d->skipped_count; i++) {
        char head[64];
        snprintf(head, sizeof head, "  %-14.31s ", d->skipped[i].level);
        print_wrapped(head, d->skipped[i].reason);
    }
}

void probe_print(const cen_probe *probe, bool quick) {
    for (size_t i = 0; i < cen_probe_device_count(probe); i++) {
        const cen_probe_device *d = cen_probe_get_device(probe, i);
        printf("%sdevice %zu: %s", i ? "\n" : "", i, *d->name ? d->name : "no name");
        if (d->multiprocessors) {
            printf(", %" PRIu32 " multiprocessors", d->multiprocessors);
        }
        if (d->page_bytes) {
            printf(", pages of %s", probe_size(d->page_bytes));
        }
        putchar('\n');
        print_levels(d);
        print_transfers(d);
        print_skipped(d);
    }
    if (quick) {
        printf("\n--quick: these figures are rough.\n");
    }
}

/* ---- comma-separated values ---- */

/* Text between quotes, which are doubled within. */
static void print_quoted(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') {
            putchar('"');
        }
        putchar(*text);
    }
    putchar('"');
}

/* One figure: what it is of, and its number with the lowest and the highest. */
static void print_row(size_t device, const char *level, const char *figure, uint32_t threads,
                      uint64_t bytes, double value, cen_probe_spread spread) {
    if (!(value > 0)) {
        return;
    }
    printf("%zu,", device);
    print_quoted(level);
    putchar(',');
    print_quoted(figure);
    printf(threads ? ",%" PRIu32 : ",", threads);
    printf(bytes ? ",%" PRIu64 : ",", bytes);
    printf(",%.15g", value);
    if (spread.low > 0) {
        printf(",%.15g,%.15g\n", spread.low, spread.high);
    } else {
        printf(",,\n");
    }
}

static void print_level_rows(size_t device, const cen_probe_level *l) {
    const cen_probe_spread none = {0, 0};
    const char *name = l->level;
    print_row(device, name, "capacity_bytes", 0, 0, (double)l->capacity_bytes, none);
    print_row(device, name, "unit_bytes", 0, 0, (double)l->unit_bytes, none);
    print_row(device, name, "latency_ns", 0, 0, l->latency_ns, l->latency_spread);
    print_row(device, name, "latency_cycles", 0, 0, l->latency_cycles, none);
    print_row(device, name, "bandwidth_gbps", 0, 0, l->bandwidth_gbps, l->bandwidth_spread);
    print_row(device, name, "peak_gbps", 0, 0, l->peak_gbps, none);
    print_row(device, name, "picojoules_per_byte", 0, 0, l->picojoules_per_byte, none);
}

void probe_print_csv(const cen_probe *probe) {
    puts("device,level,figure,threads,bytes,median,low,high");
    for (size_t n = 0; n < cen_probe_device_count(probe); n++) {
        const cen_probe_device *d = cen_probe_get_device(probe, n);
        for (size_t i = 0; i < d->level_count; i++) {
            print_level_rows(n, &d->levels[i]);
        }
        for (size_t i = 0; i < d->transfer_count; i++) {
            const cen_probe_transfer *t = &d->transfers[i];
            print_row(n, t->level, t->access, t->threads, t->bytes, t->gbps, t->spread);
        }
        for (size_t i = 0; i < d->step_count; i++) {
            const cen_probe_step *s = &d->steps[i];
            print_row(n, "", "latency_ns by size", 0, s->bytes, s->ns, s->spread);
        }
        for (size_t i = 0; i < d->rate_count; i++) {
            print_row(n, d->rates[i].dtype, "flops", 0, 0, d->rates[i].flops,
                      (cen_probe_spread){0, 0});
        }
    }
}
