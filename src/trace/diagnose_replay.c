/* Replays the history: the blocks alive at the moment, and what outlives its step.
 *
 * A block without frames is compared with the blocks alive that have some: a gradient has the shape
 * of what it belongs to, so the latest one of exactly its size names it, by inference. Records are
 * kept in one array; a freed one's place is used again. Blocks of a backward pass that are still
 * alive where the optimizer's step begins are its gradients. */
#include "trace/diagnose.h"

#include "base/map.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Smaller blocks have too many namesakes for an inference by size. */
static const uint64_t MIN_LIKE = 1u << 20;

typedef struct replay {
    ceni_diag *diag;
    ceni_growth *growth;
    ceni_map by_addr; /* -> index of the record */
    ceni_map by_size; /* size -> index of the latest record with frames */
    ceni_record *records;
    size_t count, capacity;
    size_t *free_list;
    size_t free_count, free_capacity;
    bool *autograd_stack;
    size_t step;
    bool in_backward;
} replay;

static cen_status add(replay *r, const ceni_record *record) {
    size_t at = r->count;
    if (r->free_count) {
        at = r->free_list[--r->free_count];
    } else if (ceni_grow(&r->records, &r->capacity, r->count + 1, sizeof *r->records)) {
        return CEN_ERR_HOST_MEMORY;
    } else {
        r->count++;
    }
    r->records[at] = *record;
    bool named = record->stack != CEN_NO_STACK && record->size >= MIN_LIKE;
    if (ceni_map_put(&r->by_addr, record->addr, at) ||
        (named && ceni_map_put(&r->by_size, record->size, at))) {
        return CEN_ERR_HOST_MEMORY;
    }
    return CEN_OK;
}

/* The stack of the latest block alive with frames and exactly this size. */
static uint32_t like(const replay *r, uint64_t size) {
    const uint64_t *at = ceni_map_get(&r->by_size, size);
    if (!at) {
        return CEN_NO_STACK;
    }
    const ceni_record *named = &r->records[*at];
    bool alive = named->size == size && named->death == CENI_NO_INDEX;
    return alive ? named->stack : CEN_NO_STACK;
}

static cen_status on_alloc(replay *r, const cen_trace_event *e, size_t event) {
    ceni_record record = {.addr = e->addr,
                          .size = e->size,
                          .stream = e->stream,
                          .birth = event,
                          .death = CENI_NO_INDEX,
                          .stack = e->stack,
                          .like = CEN_NO_STACK,
                          .step = (uint32_t)r->step};
    if (e->stack == CEN_NO_STACK) {
        record.like = like(r, e->size);
        record.autograd = r->in_backward;
    } else if (r->autograd_stack[e->stack]) {
        r->in_backward = true;
    }
    return add(r, &record);
}

static cen_status on_free(replay *r, const cen_trace_event *e, size_t event) {
    uint64_t at;
    if (!ceni_map_remove(&r->by_addr, e->addr, &at)) {
        return CEN_OK;
    }
    ceni_record *record = &r->records[at];
    record->death = event;
    cen_status status = CEN_OK;
    if (r->step >= record->step + 2 && record->birth != CENI_NO_INDEX) {
        status = ceni_growth_freed(r->growth, record);
    }
    if (!status) {
        if (ceni_grow(&r->free_list, &r->free_capacity, r->free_count + 1, sizeof *r->free_list)) {
            return CEN_ERR_HOST_MEMORY;
        }
        r->free_list[r->free_count++] = at;
    }
    return status;
}

static int by_address(const void *a, const void *b) {
    const ceni_record *x = a, *y = b;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* Copies what is alive now, sorted by address. */
static cen_status copy_alive(const replay *r, ceni_record **alive, size_t *count) {
    size_t n = 0;
    ceni_record *copy = ceni_malloc(r->by_addr.count * sizeof *copy);
    if (!copy) {
        return CEN_ERR_HOST_MEMORY;
    }
    for (size_t i = 0; i < r->by_addr.capacity; i++) {
        if (r->by_addr.slots[i].used) {
            copy[n++] = r->records[r->by_addr.slots[i].value];
        }
    }
    qsort(copy, n, sizeof *copy, by_address);
    *alive = copy;
    *count = n;
    return CEN_OK;
}

/* The event by which gradients of the moment's step are surely complete: where the next optimizer's
 * step begins. CENI_NO_INDEX: there is none, or the moment is a failure. */
static size_t gradients_until(const ceni_diag *diag) {
    const cen_snapshot_device *dev = diag->source;
    if (diag->moment != CENI_MOMENT_PEAK || diag->event == CENI_NO_INDEX) {
        return CENI_NO_INDEX;
    }
    int64_t now = dev->events[diag->event].time_us;
    for (size_t i = 0; i < dev->annotation_count; i++) {
        const cen_annotation *mark = &dev->annotations[i];
        if (mark->end || mark->time_us < now || !strstr(mark->name, "Optimizer.step")) {
            continue;
        }
        for (size_t at = diag->event; at < dev->event_count; at++) {
            if (dev->events[at].time_us > mark->time_us) {
                return at;
            }
        }
        return CENI_NO_INDEX;
    }
    return CENI_NO_INDEX;
}

/* Marks those of the moment's blocks that lived until the optimizer's step as gradients: without
 * frames, born in a backward pass, and still there. */
static void mark_gradients(ceni_diag *diag, const replay *r) {
    for (size_t i = 0; i < diag->record_count; i++) {
        ceni_record *record = &diag->records[i];
        const uint64_t *at = ceni_map_get(&r->by_addr, record->addr);
        bool lived = at && r->records[*at].birth == record->birth;
        if (lived && record->stack == CEN_NO_STACK && record->autograd) {
            record->gradient = true;
            record->like = CEN_NO_STACK;
        }
    }
}

static cen_status run(replay *r) {
    ceni_diag *diag = r->diag;
    size_t until = gradients_until(diag);
    cen_status status = CEN_OK;
    for (size_t i = 0; !status && i < diag->horizon; i++) {
        const cen_trace_event *e = &diag->source->events[i];
        if (r->step < diag->step_count && i == diag->steps[r->step].end) {
            r->step++;
            r->in_backward = false;
        }
        if (i == until) {
            mark_gradients(diag, r);
        }
        if (e->action == CEN_ACTION_ALLOC) {
            status = on_alloc(r, e, i);
        } else if (e->action == CEN_ACTION_FREE_COMPLETED) {
            status = on_free(r, e, i);
        }
        if (!status && i == diag->event) {
            status = copy_alive(r, &diag->records, &diag->record_count);
        }
    }
    return status;
}

static cen_status add_initial(replay *r) {
    const cen_snapshot_device *dev = r->diag->source;
    cen_status status = CEN_OK;
    for (size_t i = 0; !status && i < dev->initial_count; i++) {
        const cen_initial_block *b = &dev->initial[i];
        ceni_record record = {.addr = b->addr,
                              .size = b->size,
                              .stream = b->stream,
                              .birth = CENI_NO_INDEX,
                              .death = CENI_NO_INDEX,
                              .stack = b->stack,
                              .like = CEN_NO_STACK};
        status = add(r, &record);
    }
    return status;
}

/* Which stacks begin a backward pass. */
static cen_status find_autograd(replay *r) {
    size_t stacks = cen_snapshot_stack_count(r->diag->snapshot);
    r->autograd_stack = ceni_calloc(stacks, sizeof *r->autograd_stack);
    if (!r->autograd_stack) {
        return CEN_ERR_HOST_MEMORY;
    }
    for (size_t i = 0; i < stacks; i++) {
        r->autograd_stack[i] = ceni_stack_in_autograd(r->diag->snapshot, (uint32_t)i);
    }
    return CEN_OK;
}

/* What is alive at the horizon feeds the growth; the moment's copy is taken here when the moment is
 * not an event before the horizon (a failure, or a state). */
static cen_status finish(replay *r) {
    ceni_diag *diag = r->diag;
    ceni_record *alive = NULL;
    size_t count = 0;
    cen_status status = copy_alive(r, &alive, &count);
    if (status) {
        return status;
    }
    status = ceni_growth_finish(r->growth, diag, alive, count);
    if (diag->request && diag->request_stack == CEN_NO_STACK) {
        diag->request_like = like(r, diag->request);
    }
    if (diag->records) {
        ceni_free(alive);
    } else {
        diag->records = alive;
        diag->record_count = count;
    }
    return status;
}

cen_status ceni_diagnose_replay(ceni_diag *diag) {
    replay r = {.diag = diag};
    cen_status status = find_autograd(&r);
    if (!status) {
        status = ceni_growth_new(diag, &r.growth);
    }
    if (!status) {
        status = add_initial(&r);
    }
    if (!status && diag->moment == CENI_MOMENT_PEAK && diag->event == CENI_NO_INDEX) {
        status = copy_alive(&r, &diag->records, &diag->record_count);
    }
    if (!status) {
        status = run(&r);
    }
    if (!status) {
        status = finish(&r);
    }
    ceni_growth_free(r.growth);
    ceni_map_free(&r.by_addr);
    ceni_map_free(&r.by_size);
    ceni_free(r.records);
    ceni_free(r.free_list);
    ceni_free(r.autograd_stack);
    return status;
}
