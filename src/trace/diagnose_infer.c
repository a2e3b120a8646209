/* Steps without marks: a loop shows as a stack that allocates at even distances.
 *
 * For each stack the number of allocations between its successive ones is averaged. The step begins
 * at the stack with the longest even period: the outermost loop that recurs often enough. A stack
 * that allocates several times a step, at uneven distances, is not even; one allocation after
 * another from a single line is no step. The result is marked inferred wherever it is told. */
#include "trace/diagnose.h"

#include "base/mem.h"

enum { MIN_RECURRENCES = 4, MIN_PERIOD = 2 };
/* From here on the first distance need not be even: a small model creates twice as many states in
 * its first step as it allocates otherwise. */
enum { SKIP_FIRST_FROM = 6 };
/* The distances' variance may be this part of their squared mean: a first step that creates an
 * optimizer's states is longer by half. */
static const double MAX_UNEVEN = 0.08;
/* The loop spans at least this part of the history. */
static const double MIN_SPAN = 0.7;

typedef struct recurrence {
    size_t count, first, last; /* ordinals of allocations */
    double sum, squares;       /* of the distances */
    double first_distance;
} recurrence;

static size_t run(const ceni_diag *diag, recurrence *by_stack) {
    size_t ordinal = 0;
    for (size_t i = 0; i < diag->horizon; i++) {
        const cen_trace_event *e = &diag->source->events[i];
        if (e->action != CEN_ACTION_ALLOC) {
            continue;
        }
        ordinal++;
        if (e->stack == CEN_NO_STACK) {
            continue;
        }
        recurrence *r = &by_stack[e->stack];
        if (r->count++) {
            double distance = (double)(ordinal - r->last);
            r->first_distance = r->count == 2 ? distance : r->first_distance;
            r->sum += distance;
            r->squares += distance * distance;
        } else {
            r->first = ordinal;
        }
        r->last = ordinal;
    }
    return ordinal;
}

/* The mean distance if the stack can be a step's beginning, else 0. */
static double period(const recurrence *r, size_t allocations) {
    if (r->count < MIN_RECURRENCES) {
        return 0;
    }
    double skipped = r->count >= SKIP_FIRST_FROM ? r->first_distance : 0;
    double n = (double)(r->count - 1 - (skipped > 0)), mean = (r->sum - skipped) / n;
    double variance = (r->squares - skipped * skipped) / n - mean * mean;
    bool even = variance <= MAX_UNEVEN * mean * mean;
    bool spans = r->sum >= MIN_SPAN * (double)allocations;
    return mean >= MIN_PERIOD && even && spans ? mean : 0;
}

cen_status ceni_infer_steps(const ceni_diag *diag, size_t **boundaries, size_t *count) {
    size_t stacks = cen_snapshot_stack_count(diag->snapshot);
    recurrence *by_stack = ceni_calloc(stacks, sizeof *by_stack);
    if (!by_stack) {
        return CEN_ERR_HOST_MEMORY;
    }
    size_t allocations = run(diag, by_stack), best = CENI_NO_INDEX;
    double longest = 0;
    for (size_t i = 0; i < stacks; i++) {
        double p = period(&by_stack[i], allocations);
        if (p > longest || (p > 0 && p == longest && by_stack[i].first < by_stack[best].first)) {
            best = i;
            longest = p;
        }
    }
    size_t n = best == CENI_NO_INDEX ? 0 : by_stack[best].count - 1;
    ceni_free(by_stack);
    *boundaries = NULL;
    *count = 0;
    if (!n) {
        return CEN_OK;
    }
    size_t *found = ceni_malloc(n * sizeof *found);
    if (!found) {
        return CEN_ERR_HOST_MEMORY;
    }
    size_t seen = 0;
    for (size_t i = 0; i < diag->horizon; i++) {
        const cen_trace_event *e = &diag->source->events[i];
        if (e->action == CEN_ACTION_ALLOC && e->stack == best && seen++) {
            found[(*count)++] = i; /* the first one begins the first step, with what precedes it */
        }
    }
    *boundaries = found;
    return CEN_OK;
}
