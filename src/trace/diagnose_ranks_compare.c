/* What the explained rank does that the others do not: its bytes of each stack against the median
 * of theirs, and the first allocation at which its sequence departs from theirs.
 *
 * A rank's sequence departs where its prefix is none that more than half of the others have. Where
 * the others have no such prefix either, they differ among themselves, as batches of different
 * lengths make them, and nothing is told from there on. */
#include "trace/diagnose_ranks.h"

#include "base/mem.h"

#include <stdlib.h>

static uint64_t bytes_of(const ceni_rank *rank, size_t stack, uint64_t *blocks) {
    size_t low = 0, high = rank->use_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (rank->uses[mid].stack < stack) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    bool found = low < rank->use_count && rank->uses[low].stack == stack;
    *blocks = found ? rank->uses[low].blocks : 0;
    return found ? rank->uses[low].bytes : 0;
}

static uint64_t off_by(const ceni_difference *d) {
    return ceni_distance(d->bytes, d->median);
}

static int largest_first(const void *a, const void *b) {
    const ceni_difference *x = a, *y = b;
    if (off_by(x) != off_by(y)) {
        return off_by(x) < off_by(y) ? 1 : -1;
    }
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

cen_status ceni_ranks_compare(ceni_ranks *ranks) {
    if (!ranks->outlier && !ranks->group_count) {
        return CEN_OK;
    }
    const ceni_rank *here = &ranks->ranks[ranks->explained];
    uint64_t *values = ceni_malloc(ranks->count * sizeof *values), blocks;
    ranks->differences = ceni_malloc(ranks->stack_count * sizeof *ranks->differences);
    if (!values || !ranks->differences) {
        ceni_free(values);
        return CEN_ERR_HOST_MEMORY;
    }
    for (size_t stack = 0; stack < ranks->stack_count; stack++) {
        size_t n = 0;
        for (size_t i = 0; i < ranks->count; i++) {
            if (ceni_rank_is_other(ranks, i)) {
                values[n++] = bytes_of(&ranks->ranks[i], stack, &blocks);
            }
        }
        ceni_difference d = {.stack = stack, .median = ceni_median(values, n)};
        d.bytes = bytes_of(here, stack, &d.blocks);
        if (off_by(&d)) {
            ranks->differences[ranks->difference_count++] = d;
        }
    }
    qsort(ranks->differences, ranks->difference_count, sizeof *ranks->differences, largest_first);
    ceni_free(values);
    return CEN_OK;
}

static bool has_sequence(const ceni_ranks *ranks, size_t at, size_t length) {
    const ceni_rank *rank = &ranks->ranks[at];
    return ceni_rank_is_other(ranks, at) && !rank->truncated && rank->alloc_count > length;
}

/* The first of the others whose prefix at an allocation more than half of them share, of those
 * whose sequence is that long. CENI_NO_INDEX: there is none; *voters tells whether any is. */
static size_t usual_prefix(const ceni_ranks *ranks, size_t at, size_t *voters) {
    size_t lead = 0, best = CENI_NO_INDEX, same = 0;
    *voters = 0;
    for (size_t i = 0; i < ranks->count; i++) {
        if (!has_sequence(ranks, i, at)) {
            continue;
        }
        ++*voters;
        if (!lead) {
            best = i;
            lead = 1;
        } else if (ranks->ranks[i].prefix[at] == ranks->ranks[best].prefix[at]) {
            lead++;
        } else {
            lead--;
        }
    }
    /* `best` is the only one that can have a majority; its first rank stands for it. */
    size_t first = CENI_NO_INDEX;
    for (size_t i = 0; best != CENI_NO_INDEX && i < ranks->count; i++) {
        if (has_sequence(ranks, i, at) &&
            ranks->ranks[i].prefix[at] == ranks->ranks[best].prefix[at]) {
            first = first == CENI_NO_INDEX ? i : first;
            same++;
        }
    }
    return 2 * same > *voters ? first : CENI_NO_INDEX;
}

void ceni_ranks_find_departure(ceni_ranks *ranks) {
    const ceni_rank *here = &ranks->ranks[ranks->explained];
    if (here->truncated) {
        ranks->sequence = CENI_SEQUENCE_LOST;
        return;
    }
    for (size_t at = 0; at < here->alloc_count; at++) {
        size_t voters, usual = usual_prefix(ranks, at, &voters);
        if (!voters) {
            break;
        }
        if (usual == CENI_NO_INDEX) {
            ranks->sequence = CENI_SEQUENCE_MIXED;
            return;
        }
        if (ranks->ranks[usual].prefix[at] != here->prefix[at]) {
            ranks->sequence = CENI_SEQUENCE_DEPARTS;
            ranks->reference = usual;
            return;
        }
        ranks->sequence = CENI_SEQUENCE_SAME;
        ranks->equal_allocs = at + 1;
    }
}
