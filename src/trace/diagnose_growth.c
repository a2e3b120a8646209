/* Allocations that pile up step by step.
 *
 * A block outlives its step when the whole next step passes and it is still there: what a step
 * holds for itself, and the last loss that is replaced a step later, do not. A stack is a suspect
 * when blocks of its own that outlive their steps are still alive at the horizon from nearly every
 * part of the history after warm-up. Hence what is created once (an optimizer's states, buffers),
 * what is dropped now and then (a cache), what fades (experts visited for the first time) and steps
 * that merely grow (longer sequences) are none. Blocks without frames count as one stack for each
 * size; where their sizes vary and the baseline grows, a leak is neither found nor ruled out. */
#include "trace/diagnose.h"

#include "base/map.h"
#include "base/mem.h"

#include <stdlib.h>

enum {
    MIN_STEPS = 4, /* complete ones: below, repetition cannot be told from a beginning */
    WARM_UP = 2,   /* steps left out; 1 where there are fewer than 6 */
    WARM_UP_BELOW = 6,
    MAX_WINDOWS = 8, /* parts of the history; from 6 on, one of them may be empty */
    SLACK_FROM = 6,
};
/* Of the blocks that outlived their steps, this part may have been freed. */
static const double MAX_FREED = 0.25;
/* The later half of the history must have kept at least this part of what the earlier half kept. */
static const double MIN_STEADY = 0.5;

typedef struct tally {
    uint64_t key;              /* a stack, or the number of stacks + the ordinal of a size */
    uint64_t blocks, bytes;    /* all alive */
    uint64_t kept, kept_bytes; /* of those, from the steps that are judged */
    uint64_t early_bytes;      /* of those, from the earlier half */
    uint64_t latest_size;
    size_t latest_birth;
    uint32_t windows; /* bit set: which parts of the history they are from */
} tally;

struct ceni_growth {
    const ceni_diag *diag;
    size_t stacks;
    size_t first, end; /* steps [first, end) are judged: warm, and followed by a complete one */
    size_t windows;
    ceni_map sizes; /* of blocks without frames -> ordinal */
    ceni_map freed; /* key -> blocks that outlived their step, then freed */
};

cen_status ceni_growth_new(const ceni_diag *diag, ceni_growth **growth) {
    ceni_growth *g = ceni_calloc(1, sizeof *g);
    if (!g) {
        return CEN_ERR_HOST_MEMORY;
    }
    g->diag = diag;
    g->stacks = cen_snapshot_stack_count(diag->snapshot);
    size_t steps = diag->step_complete_count;
    if (steps >= MIN_STEPS) {
        g->first = steps < WARM_UP_BELOW ? 1 : WARM_UP;
        g->end = steps - 1;
        size_t judged = g->end - g->first;
        g->windows = judged < MAX_WINDOWS ? judged : MAX_WINDOWS;
    }
    *growth = g;
    return CEN_OK;
}

void ceni_growth_free(ceni_growth *growth) {
    if (growth) {
        ceni_map_free(&growth->sizes);
        ceni_map_free(&growth->freed);
        ceni_free(growth);
    }
}

static cen_status key_of(ceni_growth *g, const ceni_record *record, uint64_t *key) {
    if (record->stack != CEN_NO_STACK) {
        *key = record->stack;
        return CEN_OK;
    }
    const uint64_t *ordinal = ceni_map_get(&g->sizes, record->size);
    if (!ordinal) {
        if (ceni_map_put(&g->sizes, record->size, g->sizes.count)) {
            return CEN_ERR_HOST_MEMORY;
        }
        ordinal = ceni_map_get(&g->sizes, record->size);
    }
    *key = g->stacks + *ordinal;
    return CEN_OK;
}

cen_status ceni_growth_freed(ceni_growth *g, const ceni_record *record) {
    uint64_t key;
    if (!g->windows || key_of(g, record, &key)) {
        return g->windows ? CEN_ERR_HOST_MEMORY : CEN_OK;
    }
    uint64_t *count = ceni_map_get(&g->freed, key);
    if (count) {
        ++*count;
    } else if (ceni_map_put(&g->freed, key, 1)) {
        return CEN_ERR_HOST_MEMORY;
    }
    return CEN_OK;
}

static void count_block(const ceni_growth *g, tally *t, const ceni_record *b) {
    if (b->birth == CENI_NO_INDEX && b->stack == CEN_NO_STACK) {
        return; /* weights that happen to have this size */
    }
    t->blocks++;
    t->bytes += b->size;
    if (b->birth == CENI_NO_INDEX) {
        return;
    }
    if (t->latest_size == 0 || b->birth > t->latest_birth) {
        t->latest_birth = b->birth;
        t->latest_size = b->size;
    }
    if (b->step < g->first || b->step >= g->end) {
        return;
    }
    size_t at = b->step - g->first, judged = g->end - g->first;
    t->kept++;
    t->kept_bytes += b->size;
    t->early_bytes += at * 2 < judged ? b->size : 0;
    t->windows |= 1u << (at * g->windows / judged);
}

static bool grows(const ceni_growth *g, const tally *t) {
    size_t covered = 0, need = g->windows - (g->windows >= SLACK_FROM);
    for (size_t w = 0; w < g->windows; w++) {
        covered += t->windows >> w & 1;
    }
    if (covered < need || t->kept < 2) {
        return false;
    }
    const uint64_t *freed = ceni_map_get(&g->freed, t->key);
    if (freed && (double)*freed > MAX_FREED * (double)(t->kept + *freed)) {
        return false;
    }
    uint64_t late = t->kept_bytes - t->early_bytes;
    if (g->end - g->first >= 4 && (double)late < MIN_STEADY * (double)t->early_bytes) {
        return false;
    }
    /* Known by name: created when a parameter first has a gradient, once. */
    const char *what;
    return t->key >= g->stacks ||
           ceni_stack_kind(g->diag->snapshot, (uint32_t)t->key, &what) != CENI_KIND_OPTIMIZER_STATE;
}

/* Fills tallies, one for each key alive; *count of them. */
static cen_status tally_alive(ceni_growth *g, const ceni_record *alive, size_t n, tally *tallies,
                              size_t *count) {
    ceni_map at = {0};
    cen_status status = CEN_OK;
    for (size_t i = 0; !status && i < n; i++) {
        uint64_t key;
        status = key_of(g, &alive[i], &key);
        if (status) {
            break;
        }
        const uint64_t *found = ceni_map_get(&at, key);
        if (!found) {
            if (ceni_map_put(&at, key, *count)) {
                status = CEN_ERR_HOST_MEMORY;
                break;
            }
            tallies[*count] = (tally){.key = key};
            found = ceni_map_get(&at, key);
            ++*count;
        }
        count_block(g, &tallies[*found], &alive[i]);
    }
    ceni_map_free(&at);
    return status;
}

static int by_growth(const void *a, const void *b) {
    const ceni_suspect *x = a, *y = b;
    return x->bytes_per_step < y->bytes_per_step ? 1 : -(x->bytes_per_step > y->bytes_per_step);
}

static void add_suspect(const ceni_growth *g, ceni_diag *diag, const tally *t) {
    double judged = (double)(g->end - g->first);
    diag->suspects[diag->suspect_count++] = (ceni_suspect){
        .stack = t->key < g->stacks ? (uint32_t)t->key : CEN_NO_STACK,
        .block_size = t->latest_size,
        .blocks = t->blocks,
        .bytes = t->bytes,
        .blocks_per_step = (double)t->kept / judged,
        .bytes_per_step = (double)t->kept_bytes / judged,
        .steps_left = -1,
    };
    diag->suspect_bytes += t->bytes;
    diag->suspect_growth += (double)t->kept_bytes / judged;
}

/* How much the baseline grows a step, where at least half of that is of blocks without frames.
 * Their sizes may vary, so that none recurs, and yet all may be of one stack. */
static double untold_growth(const ceni_growth *g, const ceni_diag *diag, const ceni_record *alive,
                            size_t n) {
    uint64_t first = diag->steps[g->first].low, last = diag->steps[g->end].low;
    uint64_t middle = diag->steps[(g->first + g->end) / 2].low, unknown = 0;
    if (first >= middle || middle >= last) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        const ceni_record *b = &alive[i];
        bool judged = b->birth != CENI_NO_INDEX && b->step >= g->first && b->step < g->end;
        unknown += judged && b->stack == CEN_NO_STACK ? b->size : 0;
    }
    return unknown >= (last - first) / 2 ? (double)(last - first) / (double)(g->end - g->first) : 0;
}

cen_status ceni_growth_finish(ceni_growth *g, ceni_diag *diag, const ceni_record *alive, size_t n) {
    if (!g->windows) {
        return CEN_OK;
    }
    tally *tallies = ceni_malloc(n * sizeof *tallies);
    size_t count = 0, found = 0;
    cen_status status = tallies ? tally_alive(g, alive, n, tallies, &count) : CEN_ERR_HOST_MEMORY;
    for (size_t i = 0; !status && i < count; i++) {
        found += grows(g, &tallies[i]);
    }
    if (!status && found) {
        diag->suspects = ceni_calloc(found, sizeof *diag->suspects);
        status = diag->suspects ? CEN_OK : CEN_ERR_HOST_MEMORY;
    }
    for (size_t i = 0; !status && i < count; i++) {
        if (grows(g, &tallies[i])) {
            add_suspect(g, diag, &tallies[i]);
        }
    }
    ceni_free(tallies);
    diag->untold_growth = found ? 0 : untold_growth(g, diag, alive, n);
    if (diag->suspects) {
        qsort(diag->suspects, diag->suspect_count, sizeof *diag->suspects, by_growth);
    }
    return status;
}
