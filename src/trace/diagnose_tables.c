/* The tables below the verdict: what is needed by owner, what grows, streams, private pools, and a
 * plot of live and held. */
#include "trace/diagnose.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ROWS = 8, PLOT_ROWS = 8, MAX_FRAMES = 4 };

static double num(const ceni_diag *diag, uint64_t bytes) {
    return (double)bytes / (double)ceni_unit(diag);
}

static int64_t hundredths(const ceni_diag *diag, uint64_t bytes) {
    return (int64_t)(num(diag, bytes) * 100 + 0.5);
}

static void put_owners(ceni_str *out, const ceni_diag *diag) {
    static const char *const titles[] = {"LIVE NOW", "LIVE AT THE PEAK", "NEEDED AT FAILURE"};
    /* What the printed rows leave of the printed sum, so that the table adds up as it reads. */
    int64_t rest = hundredths(diag, diag->needed);
    if (!diag->owner_count) {
        return;
    }
    ceni_str_printf(out, "\n%s  %.2f %s\n", titles[diag->moment], num(diag, diag->needed),
                    ceni_unit(diag) == 1u << 30 ? "GiB" : "MiB");
    for (size_t i = 0; i < diag->owner_count && i < MAX_ROWS; i++) {
        const ceni_owner *owner = &diag->owners[i];
        if (owner->bytes * 100 < diag->needed) {
            break;
        }
        double part = 100 * (double)owner->bytes / (double)diag->needed;
        ceni_str_printf(out, "%6.2f %2.0f%%  ", num(diag, owner->bytes), part);
        ceni_put_label(out, owner);
        ceni_str_printf(out, "\n");
        rest -= hundredths(diag, owner->bytes);
    }
    if (rest > 0) {
        ceni_str_printf(out, "%6.2f %2.0f%%  other\n", (double)rest / 100,
                        (double)rest / num(diag, diag->needed));
    }
}

void ceni_put_frames(ceni_str *out, const cen_frame *frames, size_t count, ceni_origin origin,
                     size_t column) {
    size_t shown = 0;
    const cen_frame *user = ceni_frames_user(frames, count, origin);
    for (size_t i = 0; i < count && shown < MAX_FRAMES; i++) {
        if (&frames[i] == user || ceni_is_user_frame(&frames[i], origin)) {
            const char *file = ceni_base_name(frames[i].file), *name = frames[i].function;
            size_t length =
                (size_t)snprintf(NULL, 0, " < %s:%" PRIu32 " (%s)", file, frames[i].line, name);
            bool wrap = shown && column + length > 80;
            ceni_str_printf(out, "%s%s%s:%" PRIu32 " (%s)", wrap ? "\n     " : "",
                            shown++ ? " < " : "", file, frames[i].line, name);
            column = (wrap ? 5 : column) + length;
        }
    }
    ceni_str_printf(out, "\n");
}

static void put_suspect_frames(ceni_str *out, const ceni_diag *diag, uint32_t stack) {
    size_t count = 0;
    const cen_frame *frames =
        stack == CEN_NO_STACK ? NULL : cen_snapshot_stack(diag->snapshot, stack, &count);
    if (count) {
        ceni_put_frames(out, frames, count, ceni_origin_of(diag->snapshot),
                        strlen("    allocated at "));
    } else {
        bool traced = ceni_origin_of(diag->snapshot) == CENI_ORIGIN_CENOTE;
        ceni_str_printf(out, "no frames recorded%s\n",
                        ceni_is_torch(diag) ? ": one of autograd's threads?"
                        : traced            ? ": cen_trace_options.stacks records them"
                                            : "");
    }
}

static void put_suspects(ceni_str *out, const ceni_diag *diag) {
    if (!diag->suspect_count) {
        return;
    }
    ceni_str_printf(out, "\nGROWING STEP BY STEP\n");
    for (size_t i = 0; i < diag->suspect_count && i < MAX_ROWS; i++) {
        const ceni_suspect *s = &diag->suspects[i];
        ceni_str_printf(out, "  +");
        ceni_put_size(out, (uint64_t)(s->bytes_per_step + 0.5));
        ceni_str_printf(out, " a step: %" PRIu64 " blocks, ", s->blocks);
        ceni_put_size(out, s->bytes);
        if (s->steps_left >= 1) {
            ceni_str_printf(out, "; the cap in ");
            ceni_put_steps(out, (uint64_t)s->steps_left);
        }
        ceni_str_printf(out, "\n    allocated at ");
        put_suspect_frames(out, diag, s->stack);
    }
    if (diag->suspect_count > MAX_ROWS) {
        ceni_str_printf(out, "  and %zu more\n", diag->suspect_count - MAX_ROWS);
    }
    ceni_str_printf(out, "  A cache that has only grown so far looks the same.\n");
}

static void put_streams(ceni_str *out, const ceni_diag *diag) {
    if (diag->stream_count < 2 && diag->verdict != CEN_VERDICT_STRANDED_STREAM) {
        return;
    }
    bool shown = false;
    ceni_str_printf(out, "\nBY STREAM      held   live  holes  number  largest\n");
    for (size_t i = 0; i < diag->stream_count && i < MAX_ROWS; i++) {
        const ceni_segment_group *g = &diag->streams[i];
        ceni_str_printf(out, "%12" PRIu64 " %6.2f %6.2f %6.2f %7" PRIu64 "   %6.2f%s\n", g->stream,
                        num(diag, g->bytes), num(diag, g->live), num(diag, g->holes), g->hole_count,
                        num(diag, g->hole_largest),
                        diag->request && g->stream == diag->request_stream ? "  the request's"
                                                                           : "");
        shown = shown || g->stream == diag->request_stream;
    }
    if (diag->request && !shown) {
        ceni_str_printf(out, "%12" PRIu64 "   0.00   0.00   0.00       0     0.00  the request's\n",
                        diag->request_stream);
    }
}

static void put_pools(ceni_str *out, const ceni_diag *diag) {
    if (!diag->pool_count) {
        return;
    }
    ceni_str_printf(out, "\nPRIVATE POOLS  ");
    ceni_put_size(out, diag->in_pools);
    ceni_str_printf(out, " in %zu\n", diag->pool_count);
    for (size_t i = 0; i < diag->pool_count && i < MAX_ROWS; i++) {
        const ceni_segment_group *g = &diag->pools[i];
        ceni_str_printf(out, "  (%" PRId64 ", %" PRId64 ")  ", g->pool[0], g->pool[1]);
        ceni_put_size(out, g->bytes);
        ceni_str_printf(out, " held, ");
        ceni_put_size(out, g->live);
        ceni_str_printf(out, " live, %" PRIu64 " holes, largest ", g->hole_count);
        ceni_put_size(out, g->hole_largest);
        ceni_str_printf(out, "\n");
        for (size_t o = 0; o < 2 && g->owner[o] != CENI_NO_INDEX; o++) {
            ceni_owner owner = diag->owners[g->owner[o]];
            owner.inferred = owner.largest_count = 0; /* those count the whole device */
            ceni_str_printf(out, "          ");
            ceni_put_size(out, g->owner_bytes[o]);
            ceni_str_printf(out, "  ");
            ceni_put_label(out, &owner);
            ceni_str_printf(out, "\n");
        }
    }
}

/* What only a log tells. */
static void put_log(ceni_str *out, const ceni_diag *diag) {
    if (diag->snapshot) {
        return;
    }
    if (diag->in_pools) {
        ceni_str_printf(out, "\nPRIVATE POOLS  ");
        ceni_put_size(out, diag->in_pools);
        ceni_str_printf(out, " allocated in them\n");
    }
    if (diag->process_count) {
        ceni_str_printf(out, "\nOTHERS ON THE DEVICE\n");
    }
    for (size_t i = 0; i < diag->process_count; i++) {
        ceni_str_printf(out, "  process %-8" PRIu64 " ", diag->processes[i].pid);
        ceni_put_size(out, diag->processes[i].bytes);
        ceni_str_printf(out, "\n");
    }
    ceni_str_printf(out, "\nA snapshot tells whose memory it is: 'cenote explain' without a file "
                         "says how.\n");
}

static void put_plot(ceni_str *out, const ceni_diag *diag) {
    uint64_t top = diag->held_peak > diag->live_peak ? diag->held_peak : diag->live_peak;
    if (!diag->source || diag->moment == CENI_MOMENT_STATE || !top) {
        return;
    }
    ceni_str_printf(out, "\n%6.2f  # live%s\n", num(diag, top),
                    diag->held_unknown ? "" : ", . held");
    for (int row = PLOT_ROWS; row > 0; row--) {
        /* A row's mark is set from half of its height on. */
        double level = ((double)row - 0.5) * (double)top / PLOT_ROWS;
        ceni_str_printf(out, "       |");
        for (size_t c = 0; c < CENI_PLOT_COLUMNS; c++) {
            char mark = (double)diag->plot_live[c] >= level   ? '#'
                        : (double)diag->plot_held[c] >= level ? '.'
                                                              : ' ';
            ceni_str_fill(out, mark, 1);
        }
        ceni_str_printf(out, "\n");
    }
    ceni_str_printf(out, "%6.2f +", 0.0);
    ceni_str_fill(out, '-', CENI_PLOT_COLUMNS);
    ceni_str_printf(out, "%s\n", diag->request ? " failed" : "");
}

void ceni_text_tables(ceni_str *out, const ceni_diag *diag) {
    put_owners(out, diag);
    put_suspects(out, diag);
    put_streams(out, diag);
    put_pools(out, diag);
    put_log(out, diag);
    put_plot(out, diag);
}
