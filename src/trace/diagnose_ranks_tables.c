/* The tables of ranks: a line for each, which ranks that have the same one share, and the stacks
 * that differ. */
#include "trace/diagnose_ranks.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LINES = 16, MAX_DIFFERENCES = 8 };

static const uint64_t GIB = 1u << 30, MIB = 1u << 20;
/* Smaller differences are not printed: of the largest one, this part. */
static const double MIN_PART = 0.01;

/* What a rank's line says after its number. */
static void put_rank(ceni_str *out, const ceni_ranks *ranks, size_t at) {
    const ceni_rank *rank = &ranks->ranks[at];
    const char *mark = rank->stands_out                      ? "  stands out"
                       : rank->need_stand == CENI_STAND_MORE ? "  needs more"
                       : rank->need_stand == CENI_STAND_LESS ? "  needs less"
                       : rank->held_stand == CENI_STAND_MORE ? "  holds more"
                       : rank->held_stand == CENI_STAND_LESS ? "  holds less"
                                                             : "";
    ceni_str_printf(out, " %9.2f %9.2f %9.2f  %s%s%s%s", ceni_ranks_num(ranks, rank->needed),
                    ceni_ranks_num(ranks, rank->live_peak), ceni_ranks_num(ranks, rank->held_peak),
                    cen_verdict_name(rank->verdict),
                    rank->moment == CENI_MOMENT_FAILED ? ", failed" : "", mark,
                    at == ranks->explained ? "  <-" : "");
}

/* Whether b, after a and those between, has its line. */
static bool same_line(const ceni_ranks *ranks, size_t a, size_t b, bool *failed) {
    ceni_str x = {0}, y = {0};
    put_rank(&x, ranks, a);
    put_rank(&y, ranks, b);
    bool same = !x.failed && !y.failed && !strcmp(x.data, y.data);
    *failed = *failed || x.failed || y.failed;
    ceni_free(x.data);
    ceni_free(y.data);
    return same && ranks->ranks[a].number + (b - a) == ranks->ranks[b].number;
}

static void put_numbers(ceni_str *out, uint64_t first, uint64_t last) {
    char text[48];
    snprintf(text, sizeof text, last > first ? "%" PRIu64 "-%" PRIu64 : "%" PRIu64, first, last);
    ceni_str_printf(out, "%9s", text);
}

static void put_table(ceni_str *out, const ceni_ranks *ranks) {
    size_t lines = 0, left_out = 0;
    ceni_str_printf(out, "\n     RANK %9s %9s %9s  %s\n", "needs", "live peak", "held peak",
                    ceni_ranks_unit(ranks));
    for (size_t i = 0; i < ranks->count; i++) {
        size_t last = i;
        while (last + 1 < ranks->count && same_line(ranks, i, last + 1, &out->failed)) {
            last++;
        }
        /* The ones that stand out always have a line. */
        if (lines >= MAX_LINES && i != ranks->explained &&
            (!ranks->ranks[i].stands_out || lines >= 2 * MAX_LINES)) {
            left_out += last - i + 1;
            i = last;
            continue;
        }
        put_numbers(out, ranks->ranks[i].number, ranks->ranks[last].number);
        put_rank(out, ranks, i);
        ceni_str_printf(out, "\n");
        lines++;
        i = last;
    }
    if (left_out) {
        ceni_str_printf(out, "%9s  %zu more, not printed\n", "", left_out);
    }
}

/* The user's frames, after the function inside them: stacks of one line differ by it. */
static void put_stack(ceni_str *out, const ceni_rank_stack *stack) {
    ceni_str inner = {0};
    if (!stack->frame_count) {
        return;
    }
    ceni_str_printf(&inner, "    ");
    if (stack->owner.user != &stack->frames[0]) {
        ceni_str_printf(&inner, "%s < ", stack->frames[0].function);
    }
    ceni_str_printf(out, "%s", inner.failed ? "" : inner.data);
    ceni_put_frames(out, stack->frames, stack->frame_count, stack->origin, inner.size);
    out->failed = out->failed || inner.failed;
    ceni_free(inner.data);
}

/* In a unit of their own: they may be small beside what ranks need. */
static void put_differences(ceni_str *out, const ceni_ranks *ranks) {
    if (!ranks->difference_count) {
        return;
    }
    uint64_t largest = ceni_distance(ranks->differences[0].bytes, ranks->differences[0].median);
    double least = MIN_PART * (double)largest, scale = (double)(largest >= GIB ? GIB : MIB);
    size_t shown = 0;
    ceni_str_printf(out, "\nRANK %" PRIu64 " AGAINST THE MEDIAN OF %zu OTHER%s, %s\n",
                    ranks->ranks[ranks->explained].number, ranks->other_count,
                    ranks->other_count == 1 ? "" : "S", largest >= GIB ? "GiB" : "MiB");
    ceni_str_printf(out, "%9s %8s %8s\n", "", "here", "there");
    for (; shown < ranks->difference_count && shown < MAX_DIFFERENCES; shown++) {
        const ceni_difference *d = &ranks->differences[shown];
        double here = (double)d->bytes / scale, there = (double)d->median / scale;
        if ((double)ceni_distance(d->bytes, d->median) < least) {
            break;
        }
        ceni_str_printf(out, "%+9.2f %8.2f %8.2f  ", here - there, here, there);
        ceni_put_rank_label(out, ranks, d->stack);
        ceni_str_printf(out, "\n");
        put_stack(out, &ranks->stacks[d->stack]);
    }
    if (shown < ranks->difference_count) {
        ceni_str_printf(out, "%9s and %zu smaller\n", "", ranks->difference_count - shown);
    }
}

void ceni_text_rank_tables(ceni_str *out, const ceni_ranks *ranks) {
    put_table(out, ranks);
    put_differences(out, ranks);
}
