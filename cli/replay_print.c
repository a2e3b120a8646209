/* Replays as text: the answer about the cap first, then recorded and cenote side by side. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/replay_report.h"

#define GIB (1ull << 30)
#define MIB (1ull << 20)

/* Sizes of one device are all in GiB, or all in MiB where it never held one. */
typedef struct unit {
    double bytes;
    const char *name;
} unit;

static unit unit_of(const replay_outcome *o) {
    const replay_recorded *rec = &o->recorded;
    return rec->reserved_peak_bytes >= GIB || rec->requested_peak_bytes >= GIB ? (unit){GIB, "GiB"}
                                                                               : (unit){MIB, "MiB"};
}

static double in(unit u, uint64_t bytes) {
    return (double)bytes / u.bytes;
}

static double ratio(uint64_t a, uint64_t b) {
    return b ? (double)a / (double)b : 0;
}

static void print_head(const replay_outcome *o) {
    printf("%s: device %d, %s events", o->name, o->d->device, cli_grouped(o->d->event_count));
    if (o->recorded.seconds > 0) {
        printf(" over %.2f s", o->recorded.seconds);
    }
    printf("%s\n", o->d->truncated ? " (ring full, start lost)" : "");
}

static bool is_library(const char *file) {
    static const char *const library[] = {"site-packages/", "dist-packages/", "lib/python3.",
                                          "lib64/python3."};
    size_t length = strlen(file);
    for (size_t i = 0; i < sizeof library / sizeof *library; i++) {
        if (strstr(file, library[i])) {
            return true;
        }
    }
    return length < 3 || strcmp(file + length - 3, ".py");
}

/* The innermost frame, and of the others those outside installed libraries: three in all. */
static void print_frames(const cen_snapshot *snapshot, uint32_t stack) {
    size_t count = 0, shown = 0;
    const cen_frame *frames =
        stack == CEN_NO_STACK ? NULL : cen_snapshot_stack(snapshot, stack, &count);
    for (size_t i = 0; frames && i < count && shown < 3; i++) {
        if (i == 0 || !is_library(frames[i].file)) {
            printf("           %s at %s:%" PRIu32 "\n", frames[i].function, frames[i].file,
                   frames[i].line);
            shown++;
        }
    }
    if (!count) {
        printf("           no frames recorded\n");
    }
}

static void print_place(const replay_outcome *o, unit u) {
    const replay_cap *c = &o->capped.cap;
    if (c->event == SIZE_MAX) {
        printf(" where     a block of %.2f %s alive before the first event\n",
               in(u, c->requested_bytes), u.name);
    } else {
        int64_t since = o->d->events[c->event].time_us - o->d->events[0].time_us;
        printf(" where     %.2f %s, event %s", in(u, c->requested_bytes), u.name,
               cli_grouped(c->event));
        if (o->recorded.seconds > 0) {
            printf(", %.3f s in", (double)since / 1e6);
        }
        printf(", %s when recorded\n", c->fit == REPLAY_LACKS_SERVED ? "served" : "failed");
    }
    print_frames(o->snapshot, c->stack);
}

static void print_lack(const replay_outcome *o, unit u) {
    const replay_cap *c = &o->capped.cap;
    printf("DOES NOT FIT IN %.2f %s: %.2f MORE NEEDED AT THIS REQUEST\n", in(u, o->cap_bytes),
           u.name, in(u, c->margin_bytes));
    print_place(o, u);
    printf(" why       %.2f live + %.2f = %.2f needed; %.2f held, largest free %.2f",
           in(u, c->live_bytes), in(u, c->requested_bytes),
           in(u, c->live_bytes + c->requested_bytes), in(u, c->reserved_bytes),
           in(u, c->largest_free_bytes));
    if (c->pending_bytes) {
        printf(", %.2f still in use by streams", in(u, c->pending_bytes));
    }
    putchar('\n');
    uint64_t needed = c->live_bytes + c->requested_bytes, taken = c->live_bytes + c->pending_bytes;
    if (needed <= o->cap_bytes && c->reserved_bytes > taken) {
        printf(
            "           %.2f of the held are free, in pages with live blocks or in other pools\n",
            in(u, c->reserved_bytes - taken));
    }
    printf(" below     the whole run, without the cap\n");
}

/* Without a cap: that a request failed, and how to ask whether it fits here. */
static void print_question(const replay_outcome *o, unit u) {
    const cen_trace_event *failed = &o->d->events[o->recorded.moment];
    double cap = ceil(100 * in(u, o->recorded.reserved_peak_bytes)) / 100;
    printf("%.2f %s FAILED WHEN RECORDED: --cap SAYS WHETHER IT FITS HERE\n", in(u, failed->size),
           u.name);
    if (o->recorded.reserved_unknown) {
        printf(" try       --cap SIZE, the limit that the job had\n");
        return;
    }
    printf(" try       --cap %.2f%s, the most that was held, or the limit that the job had\n", cap,
           u.name);
}

static void print_cap(const replay_outcome *o, unit u) {
    const replay_cap *c = &o->capped.cap;
    if (c->fit) {
        print_lack(o, u);
    } else if (c->tried == 1) {
        printf("THE %.2f %s THAT FAILED FIT IN %.2f, WITH %.2f TO SPARE\n",
               in(u, c->requested_bytes), u.name, in(u, o->cap_bytes), in(u, c->margin_bytes));
    } else if (c->tried) {
        printf("THE %s REQUESTS THAT FAILED FIT IN %.2f %s, WITH %.2f TO SPARE\n",
               cli_grouped(c->tried), in(u, o->cap_bytes), u.name, in(u, c->margin_bytes));
    } else {
        printf("FITS IN %.2f %s, WITH %.2f TO SPARE\n", in(u, o->cap_bytes), u.name,
               in(u, c->margin_bytes));
    }
}

/* What calls to the driver are modelled to take on a GPU is no share of a time that is shorter:
 * that recording is of a few milliseconds, or of no GPU. */
static bool has_share(const replay_outcome *o, double seconds) {
    return o->recorded.second_half_seconds > 0 && seconds <= o->recorded.second_half_seconds;
}

/* Percent of the recorded time of the second half. */
static double share(const replay_outcome *o, double seconds) {
    return 100 * seconds / o->recorded.second_half_seconds;
}

/* A figure that is not recorded is NAN. */
static void print_row(const char *what, const char *unit_name, double recorded, double own,
                      int decimals) {
    char label[64];
    snprintf(label, sizeof label, "%s%s%s", what, *unit_name ? ", " : "", unit_name);
    if (isnan(recorded)) {
        printf("%-30s%10s%10.*f\n", label, "-", decimals, own);
    } else {
        printf("%-30s%10.*f%10.*f\n", label, decimals, recorded, decimals, own);
    }
}

static void print_table(const replay_outcome *o, unit u) {
    const replay_result *r = &o->own;
    const replay_recorded *rec = &o->recorded;
    bool known = !rec->reserved_unknown;
    printf("\n%-30s%10s%10s\n", "", "recorded", "cenote");
    print_row("peak requested", u.name, in(u, rec->requested_peak_bytes),
              in(u, r->requested_peak_bytes), 2);
    print_row("peak reserved", u.name, known ? in(u, rec->reserved_peak_bytes) : NAN,
              in(u, r->reserved_peak_bytes), 2);
    print_row("utilisation", "",
              known ? ratio(rec->requested_peak_bytes, rec->reserved_peak_bytes) : NAN,
              ratio(r->requested_peak_bytes, r->reserved_peak_bytes), 3);
    print_row(rec->oom ? "largest hole at failure" : "largest hole at peak", u.name,
              known ? in(u, rec->largest_hole_bytes) : NAN, in(u, r->largest_hole_bytes), 2);
    printf("%-30s%10s%10s\n", "driver calls", known ? cli_grouped(rec->driver_calls) : "-",
           cli_grouped(r->driver_calls));
    print_row("driver time, modelled", "ms", known ? rec->driver_seconds * 1e3 : NAN,
              r->driver_seconds * 1e3, 1);
    print_row("  in the second half", "ms", known ? rec->driver_second_half * 1e3 : NAN,
              r->driver_seconds_second_half * 1e3, 1);
    if (has_share(o, r->driver_seconds_second_half) &&
        (!known || has_share(o, rec->driver_second_half))) {
        print_row("  share of that half", "%", known ? share(o, rec->driver_second_half) : NAN,
                  share(o, r->driver_seconds_second_half), 1);
    } else if (rec->second_half_seconds > 0) {
        printf("%-30s%20s\n", "  share of that half", "too short to tell");
    }
}

static void print_point(const replay_outcome *o, const char *pages, const replay_result *r) {
    printf("%-9s%12.3f%14s%12.1f%14.1f", pages,
           ratio(r->requested_peak_bytes, r->reserved_peak_bytes), cli_grouped(r->driver_calls),
           r->driver_seconds * 1e3, r->driver_seconds_second_half * 1e3);
    if (has_share(o, r->driver_seconds_second_half)) {
        printf(" %6.1f%%", share(o, r->driver_seconds_second_half));
    }
    putchar('\n');
}

static void print_curve(const replay_outcome *o) {
    printf("\n%-9s%12s%14s%12s%14s\n", "pages", "utilisation", "driver calls", "driver ms",
           "second half");
    for (size_t i = 0; i < REPLAY_CURVE_POINTS; i++) {
        char pages[16];
        snprintf(pages, sizeof pages, "%" PRIu64 " MiB", replay_curve_mib[i]);
        print_point(o, pages, &o->curve[i]);
    }
    print_point(o, "by cost", &o->own);
}

static void print_notes(const replay_outcome *o) {
    const replay_result *r = &o->own;
    if (r->unknown_frees) {
        printf("note: %s frees of blocks that nothing accounts for were not made\n",
               cli_grouped(r->unknown_frees));
    }
    if (r->lost_frees) {
        printf("note: %s addresses were handed out again with no free recorded: the blocks before "
               "count as live\n",
               cli_grouped(r->lost_frees));
    }
}

void replay_print(const replay_outcome *o) {
    unit u = unit_of(o);
    print_head(o);
    if (o->cap_bytes) {
        print_cap(o, u);
    } else if (o->recorded.oom) {
        print_question(o, u);
    }
    print_table(o, u);
    if (o->with_curve) {
        print_curve(o);
    }
    print_notes(o);
}
