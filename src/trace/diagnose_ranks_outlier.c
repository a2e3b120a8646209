/* Which ranks stand out. docs/explain.md states these rules and why the thresholds are what they
 * are; a change here is a change there.
 *
 * A figure stands out when it is off the median of all ranks by more than the threshold. The median
 * and the median of the deviations are not moved by the outlier itself, as mean and variance are.
 * When half of the ranks are one way and half another, none is off by more: then groups tell. */
#include "trace/diagnose_ranks.h"

#include "base/mem.h"

#include <stdlib.h>

/* Times the median of the deviations: 5.4 standard deviations of normal noise. Few ranks tell
 * little of the noise, so that less would take it for an outlier too often. */
enum { MAX_DEVIATIONS = 8 };
/* The floor: this part of the median, and at least this much. */
static const double MIN_PART = 0.02;
static const uint64_t MIN_BYTES = 64u << 20;

static int by_value(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

uint64_t ceni_median(uint64_t *values, size_t count) {
    if (!count) {
        return 0;
    }
    qsort(values, count, sizeof *values, by_value);
    uint64_t low = values[(count - 1) / 2], high = values[count / 2];
    return low + (high - low) / 2;
}

static uint64_t floor_of(uint64_t median) {
    uint64_t part = (uint64_t)(MIN_PART * (double)median);
    return part > MIN_BYTES ? part : MIN_BYTES;
}

static uint64_t figure(const ceni_rank *rank, ceni_outlier by) {
    return by == CENI_OUTLIER_HELD ? rank->held_peak : rank->needed;
}

static ceni_stand stand(uint64_t value, uint64_t median, uint64_t threshold) {
    if (ceni_distance(value, median) <= threshold) {
        return CENI_STAND_WITHIN;
    }
    return value > median ? CENI_STAND_MORE : CENI_STAND_LESS;
}

/* Sets every rank's stand by one figure. */
static void judge_figure(ceni_ranks *ranks, ceni_outlier by, uint64_t *values) {
    size_t count = ranks->count;
    for (size_t i = 0; i < count; i++) {
        values[i] = figure(&ranks->ranks[i], by);
    }
    uint64_t median = ceni_median(values, count);
    for (size_t i = 0; i < count; i++) {
        values[i] = ceni_distance(figure(&ranks->ranks[i], by), median);
    }
    uint64_t noise = MAX_DEVIATIONS * ceni_median(values, count), threshold = floor_of(median);
    threshold = noise > threshold ? noise : threshold;
    if (count == 2) {
        /* Each is as far off as the other: the larger stands out, by the floor alone. */
        threshold = floor_of(median) / 2;
    }
    for (size_t i = 0; i < count; i++) {
        ceni_rank *rank = &ranks->ranks[i];
        ceni_stand s = stand(figure(rank, by), median, threshold);
        s = count == 2 && s == CENI_STAND_LESS ? CENI_STAND_WITHIN : s;
        *(by == CENI_OUTLIER_HELD ? &rank->held_stand : &rank->need_stand) = s;
    }
    *(by == CENI_OUTLIER_HELD ? &ranks->held_median : &ranks->need_median) = median;
    *(by == CENI_OUTLIER_HELD ? &ranks->held_threshold : &ranks->need_threshold) = threshold;
}

/* The verdict of more than half of the ranks; NONE: there is no such. */
static cen_verdict usual_verdict(const ceni_ranks *ranks) {
    for (size_t i = 0; i < ranks->count; i++) {
        size_t same = 0;
        for (size_t k = 0; k < ranks->count; k++) {
            same += ranks->ranks[k].verdict == ranks->ranks[i].verdict;
        }
        if (2 * same > ranks->count) {
            return ranks->ranks[i].verdict;
        }
    }
    return CEN_VERDICT_NONE;
}

static bool stands_out(const ceni_rank *rank, ceni_outlier by, cen_verdict usual) {
    switch (by) {
    case CENI_OUTLIER_FAILED:
        return rank->moment == CENI_MOMENT_FAILED;
    case CENI_OUTLIER_NEED:
        return rank->need_stand != CENI_STAND_WITHIN;
    case CENI_OUTLIER_HELD:
        return rank->held_stand != CENI_STAND_WITHIN;
    case CENI_OUTLIER_VERDICT:
        return usual != CEN_VERDICT_NONE && rank->verdict != usual &&
               rank->verdict != CEN_VERDICT_HEALTHY;
    case CENI_OUTLIER_NONE:
        break;
    }
    return false;
}

/* Marks those that stand out by one reason; false: none or all do. */
static bool mark(ceni_ranks *ranks, ceni_outlier by) {
    cen_verdict usual = usual_verdict(ranks);
    ranks->outlier_count = 0;
    for (size_t i = 0; i < ranks->count; i++) {
        ranks->ranks[i].stands_out = stands_out(&ranks->ranks[i], by, usual);
        ranks->outlier_count += ranks->ranks[i].stands_out;
    }
    if (!ranks->outlier_count || ranks->outlier_count == ranks->count) {
        for (size_t i = 0; i < ranks->count; i++) {
            ranks->ranks[i].stands_out = false;
        }
        ranks->outlier_count = 0;
        return false;
    }
    ranks->outlier = by;
    return true;
}

/* Groups by need: the sorted needs are cut at gaps of at least half the largest gap and above the
 * floor. They count as groups if they have two ranks each on the average, and each is narrower
 * than an eighth of the least gap cut at: noise makes no such. `values` are sorted needs. */
static size_t cut_groups(const uint64_t *values, size_t count, uint64_t threshold, uint64_t *cut) {
    uint64_t largest = 0, least = UINT64_MAX, widest = 0;
    for (size_t i = 1; i < count; i++) {
        uint64_t gap = values[i] - values[i - 1];
        largest = gap > largest ? gap : largest;
    }
    *cut = largest / 2 > threshold ? largest / 2 : threshold;
    size_t groups = 1;
    for (size_t i = 1, first = 0; i <= count; i++) {
        if (i < count && values[i] - values[i - 1] <= *cut) {
            continue;
        }
        uint64_t width = values[i - 1] - values[first];
        widest = width > widest ? width : widest;
        first = i;
        if (i < count) {
            uint64_t gap = values[i] - values[i - 1];
            least = gap < least ? gap : least;
            groups++;
        }
    }
    bool tell = groups > 1 && 2 * groups <= count && widest < least / 8;
    return tell ? groups : 0;
}

/* Numbers the groups from the largest need down. */
static void find_groups(ceni_ranks *ranks, uint64_t *values) {
    uint64_t cut;
    for (size_t i = 0; i < ranks->count; i++) {
        values[i] = ranks->ranks[i].needed;
        ranks->ranks[i].group = CENI_NO_INDEX;
    }
    uint64_t median = ceni_median(values, ranks->count);
    ranks->group_count = cut_groups(values, ranks->count, floor_of(median), &cut);
    for (size_t i = 0; ranks->group_count && i < ranks->count; i++) {
        ceni_rank *rank = &ranks->ranks[i];
        rank->group = 0; /* and one more for each cut above its need */
        for (size_t k = ranks->count; k > 1 && values[k - 1] > rank->needed; k--) {
            rank->group += values[k - 1] - values[k - 2] > cut;
        }
    }
}

/* How much a rank asks to be the one explained. */
static uint64_t weight(const ceni_ranks *ranks, const ceni_rank *rank) {
    switch (ranks->outlier) {
    case CENI_OUTLIER_NEED:
        return ceni_distance(rank->needed, ranks->need_median);
    case CENI_OUTLIER_HELD:
        return ceni_distance(rank->held_peak, ranks->held_median);
    default:
        return rank->needed;
    }
}

static void choose(ceni_ranks *ranks) {
    size_t best = CENI_NO_INDEX;
    for (size_t i = 0; i < ranks->count; i++) {
        const ceni_rank *rank = &ranks->ranks[i];
        if (ranks->outlier && !rank->stands_out) {
            continue;
        }
        if (best == CENI_NO_INDEX || weight(ranks, rank) > weight(ranks, &ranks->ranks[best])) {
            best = i;
        }
    }
    ranks->explained = best;
    for (size_t i = 0; i < ranks->count; i++) {
        ranks->other_count += ceni_rank_is_other(ranks, i);
    }
}

bool ceni_rank_is_other(const ceni_ranks *ranks, size_t at) {
    const ceni_rank *rank = &ranks->ranks[at];
    if (ranks->outlier) {
        return !rank->stands_out;
    }
    return ranks->group_count ? rank->group != ranks->ranks[ranks->explained].group
                              : at != ranks->explained;
}

bool ceni_ranks_are_weak(const ceni_ranks *ranks) {
    return ranks->count == 2 && ranks->outlier && ranks->outlier != CENI_OUTLIER_FAILED;
}

cen_status ceni_ranks_judge(ceni_ranks *ranks) {
    uint64_t *values = ceni_malloc(ranks->count * sizeof *values);
    if (!values) {
        return CEN_ERR_HOST_MEMORY;
    }
    judge_figure(ranks, CENI_OUTLIER_NEED, values);
    judge_figure(ranks, CENI_OUTLIER_HELD, values);
    find_groups(ranks, values);
    ceni_free(values);
    bool found = mark(ranks, CENI_OUTLIER_FAILED) || mark(ranks, CENI_OUTLIER_NEED) ||
                 (!ranks->group_count && mark(ranks, CENI_OUTLIER_HELD)) ||
                 (!ranks->group_count && mark(ranks, CENI_OUTLIER_VERDICT));
    if (found && ranks->outlier_count == 1) {
        ranks->group_count = 0; /* one alone is no group */
    }
    choose(ranks);
    return CEN_OK;
}
