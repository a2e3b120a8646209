/* Ranks for people: which stands out, by what, and where. One unit holds for all sums. */
#include "trace/diagnose_ranks.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = 80, LABEL = 11 };

/* Less than this is not worth a line at the top. */
static const uint64_t MIN_MOSTLY = 1u << 20;

static const uint64_t GIB = 1u << 30, MIB = 1u << 20;

static bool in_gib(const ceni_ranks *ranks) {
    for (size_t i = 0; i < ranks->count; i++) {
        const ceni_rank *rank = &ranks->ranks[i];
        if (rank->needed >= GIB || rank->held_peak >= GIB) {
            return true;
        }
    }
    return false;
}

double ceni_ranks_num(const ceni_ranks *ranks, uint64_t bytes) {
    return (double)bytes / (double)(in_gib(ranks) ? GIB : MIB);
}

const char *ceni_ranks_unit(const ceni_ranks *ranks) {
    return in_gib(ranks) ? "GiB" : "MiB";
}

static const ceni_rank *explained(const ceni_ranks *ranks) {
    return &ranks->ranks[ranks->explained];
}

/* Runs of numbers: "0-2, 5", at most as many as a line has room for. */
typedef struct runs {
    ceni_str *out;
    size_t count, more;
} runs;

enum { MAX_RUNS = 6 };

static void put_run(void *arg, uint64_t first, uint64_t last) {
    runs *r = arg;
    if (r->count == MAX_RUNS) {
        r->more += last - first + 1;
        return;
    }
    ceni_str_printf(r->out, "%s%" PRIu64, r->count++ ? ", " : "", first);
    if (last > first) {
        ceni_str_printf(r->out, "-%" PRIu64, last);
    }
}

static void end_runs(runs *r) {
    if (r->more) {
        ceni_str_printf(r->out, " and %zu more", r->more);
    }
}

typedef bool choose_fn(const ceni_ranks *ranks, size_t at, size_t arg);

/* The numbers of the ranks chosen. */
static void put_ranks(ceni_str *out, const ceni_ranks *ranks, choose_fn *choose, size_t arg) {
    runs r = {.out = out};
    for (size_t i = 0; i < ranks->count; i++) {
        size_t last = i;
        if (!choose(ranks, i, arg)) {
            continue;
        }
        while (last + 1 < ranks->count && choose(ranks, last + 1, arg) &&
               ranks->ranks[last + 1].number == ranks->ranks[last].number + 1) {
            last++;
        }
        put_run(&r, ranks->ranks[i].number, ranks->ranks[last].number);
        i = last;
    }
    end_runs(&r);
}

static bool in_group(const ceni_ranks *ranks, size_t at, size_t group) {
    return ranks->ranks[at].group == group;
}

static bool is_outlier(const ceni_ranks *ranks, size_t at, size_t arg) {
    return ranks->ranks[at].stands_out;
}

/* Ends a line with two parts, of which the second has a line of its own where both are too wide.
 * Releases them. */
static void put_wrapped(ceni_str *out, size_t column, ceni_str *first, ceni_str *second) {
    if (first->failed || second->failed) {
        out->failed = true;
    } else {
        bool wrap = column + first->size + 1 + second->size > WIDTH;
        ceni_str_printf(out, "%s", first->data);
        ceni_str_printf(out, wrap ? "\n" : " ");
        ceni_str_fill(out, ' ', wrap ? (int)column : 0);
        ceni_str_printf(out, "%s\n", second->data);
    }
    ceni_free(first->data);
    ceni_free(second->data);
}

static void put_title(ceni_str *out, const ceni_ranks *ranks) {
    ceni_str_printf(out, "%zu ranks, numbered by %s\n", ranks->count,
                    ranks->numbered ? "their files' names" : "their places in the list");
}

/* "IT NEEDS 2.93 GiB MORE"; for two ranks, than the other. */
static void put_shift(ceni_str *out, const ceni_ranks *ranks) {
    const ceni_rank *rank = explained(ranks);
    bool held = ranks->outlier == CENI_OUTLIER_HELD;
    uint64_t value = held ? rank->held_peak : rank->needed;
    uint64_t median = held ? ranks->held_median : ranks->need_median;
    uint64_t by =
        ranks->count == 2 ? 2 * ceni_distance(value, median) : ceni_distance(value, median);
    ceni_str_printf(out, "%s %.2f %s %s", held ? "HOLDS" : "NEEDS", ceni_ranks_num(ranks, by),
                    ceni_ranks_unit(ranks), value > median ? "MORE" : "LESS");
}

static ceni_stand way(const ceni_ranks *ranks, const ceni_rank *rank) {
    return ranks->outlier == CENI_OUTLIER_HELD ? rank->held_stand : rank->need_stand;
}

/* Whether all that stand out do so as the explained one. */
static bool one_way(const ceni_ranks *ranks) {
    for (size_t i = 0; i < ranks->count; i++) {
        const ceni_rank *rank = &ranks->ranks[i];
        if (rank->stands_out && way(ranks, rank) != way(ranks, explained(ranks))) {
            return false;
        }
    }
    return true;
}

static bool all_failed(const ceni_ranks *ranks) {
    for (size_t i = 0; i < ranks->count; i++) {
        if (ranks->ranks[i].moment != CENI_MOMENT_FAILED) {
            return false;
        }
    }
    return true;
}

static void put_headline(ceni_str *out, const ceni_ranks *ranks) {
    const ceni_rank *rank = explained(ranks);
    bool one = ranks->outlier_count == 1;
    if (ranks->outlier == CENI_OUTLIER_NONE) {
        ceni_str_printf(out, "NO RANK STANDS OUT");
        if (all_failed(ranks)) {
            ceni_str_printf(out, ": ALL RAN OUT OF MEMORY");
        }
        if (ranks->group_count) {
            ceni_str_printf(out, "; THERE ARE %zu GROUPS", ranks->group_count);
        }
        ceni_str_printf(out, "\n");
        return;
    }
    ceni_str who = {0}, what = {0};
    ceni_str_printf(&who, one ? "RANK " : "RANKS ");
    put_ranks(&who, ranks, is_outlier, 0);
    switch (ranks->outlier) {
    case CENI_OUTLIER_FAILED:
        ceni_str_printf(&what, "RAN OUT OF MEMORY, THE OTHER%s DID NOT",
                        ranks->count - ranks->outlier_count == 1 ? "" : "S");
        break;
    case CENI_OUTLIER_VERDICT:
        ceni_str_printf(&what, one ? "STANDS OUT BY ITS VERDICT: %s" : "STAND OUT BY VERDICT: %s",
                        ceni_headline(rank->verdict));
        break;
    default:
        if (one) {
            ceni_str_printf(&what, "STANDS OUT: IT ");
        } else if (one_way(ranks)) {
            ceni_str_printf(&what, "STAND OUT TOGETHER: RANK %" PRIu64 " ", rank->number);
        } else {
            ceni_str_printf(&what, "STAND OUT IN TWO WAYS: RANK %" PRIu64 " ", rank->number);
        }
        put_shift(&what, ranks);
    }
    put_wrapped(out, 0, &who, &what);
}

/* " needs     27.06 GiB, the others 24.02 to 24.15; usual 24.10 +- 0.48" */
static void put_figure(ceni_str *out, const ceni_ranks *ranks, const char *name, bool held) {
    uint64_t least = UINT64_MAX, most = 0;
    uint64_t here = held ? explained(ranks)->held_peak : explained(ranks)->needed;
    for (size_t i = 0; i < ranks->count; i++) {
        uint64_t value = held ? ranks->ranks[i].held_peak : ranks->ranks[i].needed;
        if (ceni_rank_is_other(ranks, i)) {
            least = value < least ? value : least;
            most = value > most ? value : most;
        }
    }
    ceni_str_printf(out, " %-9s %.2f %s, ", name, ceni_ranks_num(ranks, here),
                    ceni_ranks_unit(ranks));
    if (ceni_ranks_num(ranks, most) - ceni_ranks_num(ranks, least) < 0.005) {
        ceni_str_printf(out, "the other%s %.2f", ranks->other_count == 1 ? "" : "s",
                        ceni_ranks_num(ranks, least));
    } else {
        ceni_str_printf(out, "the others %.2f to %.2f", ceni_ranks_num(ranks, least),
                        ceni_ranks_num(ranks, most));
    }
    uint64_t threshold = held ? ranks->held_threshold : ranks->need_threshold;
    if (ranks->count == 2) {
        ceni_str_printf(out, "; the same within %.2f", ceni_ranks_num(ranks, 2 * threshold));
    } else if (ranks->outlier || !ranks->group_count) {
        ceni_str_printf(out, "; usual %.2f +- %.2f",
                        ceni_ranks_num(ranks, held ? ranks->held_median : ranks->need_median),
                        ceni_ranks_num(ranks, threshold));
    }
    ceni_str_printf(out, "\n");
}

static void put_groups(ceni_str *out, const ceni_ranks *ranks) {
    for (size_t g = 0; g < ranks->group_count; g++) {
        uint64_t least = UINT64_MAX, most = 0;
        size_t members = 0;
        for (size_t i = 0; i < ranks->count; i++) {
            uint64_t needed = ranks->ranks[i].needed;
            if (in_group(ranks, i, g)) {
                least = needed < least ? needed : least;
                most = needed > most ? needed : most;
                members++;
            }
        }
        ceni_str who = {0}, what = {0};
        ceni_str_printf(&who, members == 1 ? "rank " : "ranks ");
        put_ranks(&who, ranks, in_group, g);
        ceni_str_printf(&what, members == 1 ? "needs %.2f" : "need %.2f",
                        ceni_ranks_num(ranks, least));
        if (ceni_ranks_num(ranks, most) - ceni_ranks_num(ranks, least) >= 0.005) {
            ceni_str_printf(&what, " to %.2f", ceni_ranks_num(ranks, most));
        }
        ceni_str_printf(out, g ? "           " : " groups    ");
        put_wrapped(out, LABEL, &who, &what);
    }
}

void ceni_put_rank_label(ceni_str *out, const ceni_ranks *ranks, size_t stack) {
    if (stack == CENI_NO_INDEX) {
        ceni_str_printf(out, "no frames recorded");
    } else {
        ceni_put_label(out, &ranks->stacks[stack].owner);
    }
}

/* The largest difference that goes the way of the rank's own. */
static const ceni_difference *main_difference(const ceni_ranks *ranks) {
    bool more = explained(ranks)->needed >= ranks->need_median;
    for (size_t i = 0; i < ranks->difference_count; i++) {
        const ceni_difference *d = &ranks->differences[i];
        if ((d->bytes > d->median) == more) {
            return d;
        }
    }
    return NULL;
}

static void put_mostly(ceni_str *out, const ceni_ranks *ranks) {
    const ceni_difference *d = main_difference(ranks);
    if (!d || ceni_distance(d->bytes, d->median) < MIN_MOSTLY) {
        return;
    }
    ceni_str size = {0}, label = {0};
    ceni_put_size(&size, ceni_distance(d->bytes, d->median));
    ceni_str_printf(&size, d->bytes > d->median ? " more:" : " less:");
    ceni_put_rank_label(&label, ranks, d->stack);
    ceni_str_printf(out, " most by   ");
    put_wrapped(out, LABEL, &size, &label);
}

static void put_alloc(ceni_str *out, const ceni_ranks *ranks, uint64_t rank,
                      const ceni_rank_alloc *alloc) {
    ceni_str_printf(out, "           rank %" PRIu64 ": ", rank);
    ceni_put_size(out, alloc->size);
    ceni_str_printf(out, ", ");
    ceni_put_rank_label(out, ranks, alloc->stack);
    ceni_str_printf(out, "\n");
}

static void put_allocs(ceni_str *out, const ceni_ranks *ranks, const char *which) {
    ceni_put_count(out, ranks->equal_allocs);
    ceni_str_printf(out, " %sallocation%s", which, ranks->equal_allocs == 1 ? "" : "s");
}

static void put_sequence(ceni_str *out, const ceni_ranks *ranks) {
    ceni_str_printf(out, " sequence  ");
    switch (ranks->sequence) {
    case CENI_SEQUENCE_NONE:
        ceni_str_printf(out, "not compared: no history\n");
        break;
    case CENI_SEQUENCE_LOST:
        ceni_str_printf(out, "not compared: the start of the history is lost\n");
        break;
    case CENI_SEQUENCE_SAME:
        ceni_str_printf(out, "the same as the others', for all ");
        put_allocs(out, ranks, "");
        ceni_str_printf(out, " compared\n");
        break;
    case CENI_SEQUENCE_MIXED:
        ceni_str_printf(out, "not told: after ");
        put_allocs(out, ranks, "");
        ceni_str_printf(out, " the others differ among themselves\n");
        break;
    case CENI_SEQUENCE_DEPARTS:
        if (ranks->equal_allocs) {
            ceni_str_printf(out, "departs from the others' after ");
            put_allocs(out, ranks, "equal ");
            ceni_str_printf(out, "; the next is\n");
        } else {
            ceni_str_printf(out, "another from the first allocation on, which is\n");
        }
        put_alloc(out, ranks, explained(ranks)->number, &ranks->here);
        put_alloc(out, ranks, ranks->ranks[ranks->reference].number, &ranks->there);
    }
}

static void put_notes(ceni_str *out, const ceni_ranks *ranks) {
    if (ceni_ranks_are_weak(ranks)) {
        ceni_str_printf(out,
                        " note      of two ranks neither is the usual one: a third would tell\n");
    }
    ceni_str what = {0}, list = {0};
    runs r = {.out = &list};
    ceni_ranks_missing(ranks, put_run, &r);
    end_runs(&r);
    if (!r.count) {
        return;
    }
    bool several = r.count > 1 || (!list.failed && strchr(list.data, '-'));
    ceni_str_printf(&what, several ? "no file of ranks" : "no file of rank");
    ceni_str_printf(out, " missing   ");
    put_wrapped(out, LABEL, &what, &list);
}

void ceni_text_ranks(ceni_str *out, const ceni_ranks *ranks) {
    put_title(out, ranks);
    put_headline(out, ranks);
    put_figure(out, ranks, "needs", false);
    put_figure(out, ranks, "holds", true);
    put_groups(out, ranks);
    put_mostly(out, ranks);
    put_sequence(out, ranks);
    put_notes(out, ranks);
    ceni_text_rank_tables(out, ranks);
    ceni_str_printf(out, "\nRANK %" PRIu64 " EXPLAINED\n", explained(ranks)->number);
}
