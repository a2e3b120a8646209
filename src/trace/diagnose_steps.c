/* Steps, their peaks, and the moment that is judged.
 *
 * A step ends where the program says so (cen_trace_step), or where an optimizer's step ends, by the
 * marks that PyTorch records; without marks the
 * boundaries are inferred from what recurs (diagnose_infer.c), or there are none. The moment is the
 * last failed request, else the first event after which the most bytes are live, else, without
 * events, the state. What follows a failure is unwinding and is not looked at. */
#include "trace/diagnose.h"
#include "trace/emit.h"

#include "base/mem.h"

#include <string.h>

static bool is_step_end(const cen_annotation *mark) {
    return mark->end &&
           (!strcmp(mark->name, CENI_STEP_MARK) || strstr(mark->name, "Optimizer.step"));
}

/* The name that most marks of a step's end carry: with several optimizers, one of them counts. What
 * the program says itself counts before all. */
static const char *main_mark(const cen_snapshot_device *dev) {
    enum { NAMES = 8 };
    const char *names[NAMES];
    size_t counts[NAMES], n = 0, best = 0;
    for (size_t i = 0; i < dev->annotation_count; i++) {
        if (!is_step_end(&dev->annotations[i])) {
            continue;
        }
        if (!strcmp(dev->annotations[i].name, CENI_STEP_MARK)) {
            return dev->annotations[i].name;
        }
        size_t at = 0;
        while (at < n && strcmp(names[at], dev->annotations[i].name)) {
            at++;
        }
        if (at == NAMES) {
            continue;
        }
        if (at == n) {
            names[n] = dev->annotations[i].name;
            counts[n++] = 0;
        }
        counts[at]++;
        best = counts[at] > counts[best] ? at : best;
    }
    return n ? names[best] : NULL;
}

/* The events before which a new step begins, from the marks. */
static cen_status marked_steps(const ceni_diag *diag, size_t **boundaries, size_t *count) {
    const cen_snapshot_device *dev = diag->source;
    const char *name = main_mark(dev);
    size_t capacity = 0, n = 0, at = 0;
    size_t *found = NULL;
    for (size_t i = 0; name && i < dev->annotation_count; i++) {
        const cen_annotation *mark = &dev->annotations[i];
        if (!is_step_end(mark) || strcmp(mark->name, name)) {
            continue;
        }
        while (at < diag->horizon && dev->events[at].time_us <= mark->time_us) {
            at++;
        }
        /* A mark before the first event ended a step that is not in the history. */
        if (at == 0 || at >= diag->horizon || (n && found[n - 1] == at)) {
            continue;
        }
        if (ceni_grow(&found, &capacity, n + 1, sizeof *found)) {
            ceni_free(found);
            return CEN_ERR_HOST_MEMORY;
        }
        found[n++] = at;
    }
    *boundaries = found;
    *count = n;
    return CEN_OK;
}

static void find_failure(ceni_diag *diag) {
    const cen_snapshot_device *dev = diag->source;
    diag->horizon = dev->event_count;
    diag->event = CENI_NO_INDEX;
    for (size_t i = 0; i < dev->event_count; i++) {
        const cen_trace_event *e = &dev->events[i];
        if (e->action == CEN_ACTION_OOM) {
            diag->failures++;
            diag->event = i;
        }
    }
    if (diag->failures) {
        const cen_trace_event *e = &dev->events[diag->event];
        diag->moment = CENI_MOMENT_FAILED;
        diag->horizon = diag->event;
        diag->request = e->size;
        diag->request_stream = e->stream;
        diag->request_stack = e->stack;
        diag->free_unknown = e->addr == CEN_FREE_UNKNOWN;
        diag->device_free = diag->free_unknown ? 0 : e->addr;
    } else if (dev->event_count) {
        diag->moment = CENI_MOMENT_PEAK;
    }
}

/* The sums as they run through the events. */
typedef struct curve {
    uint64_t live, held;
} curve;

static void advance(curve *c, const cen_trace_event *e) {
    uint64_t freed = 0, unmapped = 0;
    switch (e->action) {
    case CEN_ACTION_ALLOC:
        c->live += e->size;
        break;
    case CEN_ACTION_FREE_COMPLETED:
        freed = e->size;
        break;
    case CEN_ACTION_SEGMENT_ALLOC:
    case CEN_ACTION_SEGMENT_MAP:
        c->held += e->size;
        break;
    case CEN_ACTION_SEGMENT_FREE:
    case CEN_ACTION_SEGMENT_UNMAP:
        unmapped = e->size;
        break;
    default:
        break;
    }
    c->live -= freed < c->live ? freed : c->live;
    c->held -= unmapped < c->held ? unmapped : c->held;
}

static void note(ceni_diag *diag, ceni_step *step, const curve *c, size_t event) {
    if (c->live > diag->live_peak) {
        diag->live_peak = c->live;
        if (diag->moment == CENI_MOMENT_PEAK) {
            diag->event = event;
            diag->live = c->live;
            diag->held = c->held;
            if (event != CENI_NO_INDEX) {
                diag->request_stream = diag->source->events[event].stream;
            }
        }
    }
    if (c->held > diag->held_peak) {
        diag->held_peak = c->held;
    }
    if (step) {
        step->peak = c->live > step->peak ? c->live : step->peak;
        step->low = c->live < step->low ? c->live : step->low;
    }
}

/* A column has the peak of its events; where there are fewer of these, an event has columns. */
static void plot(ceni_diag *diag, const curve *c, size_t event) {
    size_t horizon = diag->horizon ? diag->horizon : 1;
    size_t column = event * CENI_PLOT_COLUMNS / horizon;
    size_t next = (event + 1) * CENI_PLOT_COLUMNS / horizon;
    do {
        uint64_t *live = &diag->plot_live[column], *held = &diag->plot_held[column];
        *live = c->live > *live ? c->live : *live;
        *held = c->held > *held ? c->held : *held;
    } while (++column < next);
}

/* One pass: the peaks of the whole, of each step, and the plot's columns. */
static void run_curve(ceni_diag *diag) {
    const cen_snapshot_device *dev = diag->source;
    curve c = {.held = dev->initial_reserved};
    for (size_t i = 0; i < dev->initial_count; i++) {
        c.live += dev->initial[i].size;
    }
    ceni_step *step = diag->steps;
    note(diag, NULL, &c, CENI_NO_INDEX);
    for (size_t i = 0; i < diag->horizon; i++) {
        if (step && i == step->end) {
            step++;
        }
        if (step && i == step->first) {
            step->peak = step->low = c.live;
        }
        advance(&c, &dev->events[i]);
        note(diag, step, &c, i);
        plot(diag, &c, i);
    }
    if (diag->moment == CENI_MOMENT_FAILED) {
        diag->live = c.live;
        diag->held = c.held;
        if (step) {
            step->peak = c.live + diag->request > step->peak ? c.live + diag->request : step->peak;
        }
    }
}

/* A log of allocations alone does not say what was held for them. */
static bool has_segments(const cen_snapshot_device *dev) {
    bool any = dev->segment_count || dev->initial_reserved;
    for (size_t i = 0; i < dev->event_count && !any; i++) {
        uint8_t action = dev->events[i].action;
        any = action >= CEN_ACTION_SEGMENT_ALLOC && action <= CEN_ACTION_SEGMENT_UNMAP;
    }
    return any;
}

/* The state's sums, where there is no history. */
static void sum_state(ceni_diag *diag) {
    const cen_snapshot_device *dev = diag->source;
    for (size_t i = 0; i < dev->segment_count; i++) {
        diag->held += dev->segments[i].size;
    }
    for (size_t i = 0; i < dev->initial_count; i++) {
        diag->live += dev->initial[i].size;
    }
    diag->live_peak = diag->live;
    diag->held_peak = diag->held;
}

/* Growth is a forecast only when steady: at least four peaks, each higher than the one before, by
 * amounts within a quarter of their mean. */
static double steady_growth(const ceni_diag *diag) {
    size_t n = diag->step_complete_count + (diag->moment == CENI_MOMENT_FAILED);
    n = n < diag->step_count ? n : diag->step_count;
    size_t from = n > 7 ? n - 7 : 0;
    if (n - from < 4) {
        return 0;
    }
    /* A failure below the peaks before it is not where their growth led. */
    if (diag->moment == CENI_MOMENT_FAILED && diag->needed < diag->steps[n - 1].peak) {
        return 0;
    }
    double first = (double)diag->steps[from].peak, last = (double)diag->steps[n - 1].peak;
    double mean = (last - first) / (double)(n - 1 - from);
    for (size_t i = from + 1; i < n; i++) {
        double rise = (double)diag->steps[i].peak - (double)diag->steps[i - 1].peak;
        if (rise <= 0 || rise < mean * 0.75 || rise > mean * 1.25) {
            return 0;
        }
    }
    return mean;
}

static cen_status make_steps(ceni_diag *diag) {
    size_t *boundaries = NULL, count = 0;
    cen_status status = marked_steps(diag, &boundaries, &count);
    diag->steps_from = CENI_STEPS_MARKED;
    if (!status && count == 0) {
        diag->steps_from = CENI_STEPS_INFERRED;
        status = ceni_infer_steps(diag, &boundaries, &count);
    }
    if (!status && count) {
        diag->steps = ceni_calloc(count + 1, sizeof *diag->steps);
        status = diag->steps ? CEN_OK : CEN_ERR_HOST_MEMORY;
    }
    if (status || !count) {
        diag->steps_from = CENI_STEPS_NONE;
        ceni_free(boundaries);
        return status;
    }
    for (size_t i = 0; i <= count; i++) {
        diag->steps[i].first = i ? boundaries[i - 1] : 0;
        diag->steps[i].end = i < count ? boundaries[i] : diag->horizon;
    }
    diag->step_complete_count = count;
    diag->step_count = count + 1;
    ceni_free(boundaries);
    return CEN_OK;
}

cen_status ceni_diagnose_steps(ceni_diag *diag) {
    diag->request_stack = diag->request_like = CEN_NO_STACK;
    find_failure(diag);
    if (diag->moment == CENI_MOMENT_STATE) {
        sum_state(diag);
    } else {
        cen_status status = make_steps(diag);
        if (status) {
            return status;
        }
        run_curve(diag);
        if (!has_segments(diag->source)) {
            diag->held_unknown = true;
            diag->held = diag->live;
            diag->held_peak = diag->live_peak;
        }
    }
    diag->needed = diag->live + diag->request;
    diag->growth = steady_growth(diag);
    return CEN_OK;
}
