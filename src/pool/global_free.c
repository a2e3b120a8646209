/* Freeing blocks of the global pool: an event on every stream that uses one, and its return once
 * all are complete. */
#include "pool/global_int.h"

#include "base/log.h"
#include "base/mem.h"

#define LOOK_AT 16 /* pending frees */

/* Addresses of a private pool that is gone may be another's by now: who has a live block there goes
 * first. */
ceni_member *ceni_global_owner(cen_global *g, const void *block) {
    for (int live = 1; live >= 0; live--) {
        for (size_t i = 0; i < g->count; i++) {
            if (ceni_pool_owns(g->members[i].pool, block, live)) {
                return &g->members[i];
            }
        }
    }
    return NULL;
}

static void drop_events(cen_global *g, ceni_span *s) {
    for (size_t i = 0; i < s->use_count; i++) {
        if (s->uses[i].recorded) {
            (void)cen_event_destroy(g->members[s->uses[i].device].device, s->uses[i].event);
            s->uses[i].recorded = false;
        }
    }
}

void ceni_span_forget_uses(cen_global *g, ceni_span *s) {
    drop_events(g, s);
    s->use_count = 0;
}

static cen_status record_use(cen_global *g, ceni_span_use *use) {
    cen_device *device = g->members[use->device].device;
    bool capturing = false;
    cen_status status = cen_stream_capturing(device, use->stream, &capturing);
    if (!status && capturing) {
        status = ceni_fail(CEN_ERR_CAPTURE,
                           "cen_global_free: a stream that uses the block is capturing");
    }
    status = status ? status : cen_event_create(device, 0, &use->event);
    if (!status) {
        use->recorded = true;
        status = cen_event_record(device, use->event, use->stream);
    }
    return ceni_is_loss(status) ? CEN_OK : status; /* it does no work any more */
}

/* Events on every stream that uses the span. All or none. */
static cen_status record_uses(cen_global *g, ceni_span *s) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < s->use_count && !status; i++) {
        status = record_use(g, &s->uses[i]);
    }
    if (status) {
        drop_events(g, s);
    }
    return status;
}

static bool is_noted(const ceni_span *s, int device, cen_stream stream) {
    for (size_t i = 0; i < s->use_count; i++) {
        if (s->uses[i].device == device && s->uses[i].stream == stream) {
            return true;
        }
    }
    return false;
}

static cen_status add_use(ceni_span *s, int device, cen_stream stream) {
    if (is_noted(s, device, stream)) {
        return CEN_OK;
    }
    if (ceni_grow(&s->uses, &s->use_capacity, s->use_count + 1, sizeof *s->uses)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "global pool: no memory to note a use");
    }
    s->uses[s->use_count++] = (ceni_span_use){.device = device, .stream = stream};
    return CEN_OK;
}

static void count_pending(cen_global *g, const ceni_span *s, int64_t sign) {
    g->pending_count += (size_t)sign;
    for (size_t i = 0; s->pages && i < s->page_count; i++) {
        int home = s->pages[i].home;
        atomic_fetch_add(home == CEN_GLOBAL_HOST ? &g->host_pending
                                                 : &g->members[home].pending_bytes,
                         (uint64_t)sign * s->pages[i].size);
    }
}

/* The span that begins at an address; for a live block of `owner`, NULL: of nobody, the note that
 * other devices' streams use it, made if there is none. The lock is held. */
static cen_status span_at(cen_global *g, const void *block, const ceni_member *owner,
                          ceni_span **out) {
    ceni_span *s = ceni_span_find(g, (uintptr_t)block);
    *out = s && s->addr == (uintptr_t)block ? s : NULL;
    if (*out || !owner) {
        return CEN_OK;
    }
    s = ceni_calloc(1, sizeof *s);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "global pool: no memory to note a use");
    }
    s->addr = (uintptr_t)block;
    s->size = 1;
    s->device = s->mapper = owner->number;
    cen_status status = ceni_span_enter(g, s);
    if (status) {
        ceni_free(s);
        return status;
    }
    *out = s;
    return CEN_OK;
}

/* The lock is held. */
static cen_status free_span(cen_global *g, ceni_span *s, int device, cen_stream stream) {
    if (s->pending) {
        return ceni_fail(CEN_ERR_DOUBLE_FREE, "cen_global_free: the block is free already");
    }
    size_t uses = s->use_count;
    cen_status status = add_use(s, device, stream);
    status = status ? status : record_uses(g, s);
    if (status) {
        s->use_count = uses; /* live as before */
    } else {
        ceni_span_note(g, CENI_EVENT_FREE | CENI_EMIT_PENDING, s, s->requested, stream);
        s->pending = true;
        count_pending(g, s, 1);
    }
    return status;
}

/* Looks at what is pending when there is much of it: at twice what was left the last time. */
static void look_sometimes(cen_global *g) {
    if (atomic_load(&g->pending_count) >= atomic_load(&g->look_at) + LOOK_AT) {
        (void)ceni_spans_finish(g, false);
        atomic_store(&g->look_at, 2 * atomic_load(&g->pending_count));
    }
}

cen_status cen_global_free(cen_global *global, void *block, int device, cen_stream stream) {
    const char *call = "cen_global_free";
    cen_status status = ceni_global_refuse(global, device, call);
    if (status || !block) {
        return status;
    }
    ceni_member *owner = ceni_global_owner(global, block);
    ceni_lock_take(&global->lock);
    ceni_span *s = ceni_span_find(global, (uintptr_t)block);
    bool known = s && s->addr == (uintptr_t)block;
    ceni_lock_leave(&global->lock);
    if (!known && owner && owner->number == device) {
        return cen_pool_free(owner->pool, block, stream);
    }
    if (!known) {
        status = owner ? ceni_pool_live(owner->pool, block, call)
                       : ceni_fail(CEN_ERR_FOREIGN_POINTER, "%s: %p is no block of this pool", call,
                                   block);
    }
    if (status) {
        return status;
    }
    ceni_lock_take(&global->lock);
    status = span_at(global, block, owner, &s);
    if (!status && !s) { /* another thread freed it, and it went */
        status = ceni_fail(CEN_ERR_DOUBLE_FREE, "%s: %p is free already", call, block);
    }
    status = status ? status : free_span(global, s, device, stream);
    ceni_lock_leave(&global->lock);
    look_sometimes(global);
    return status;
}

/* Whether a device can reach a live block of a local pool. */
static cen_status check_reach(cen_global *g, const ceni_member *owner, const void *block,
                              int device) {
    cen_global_report report;
    cen_status status = ceni_pool_live(owner->pool, block, "cen_global_use");
    status = status ? status : cen_global_where(g, block, &report);
    if (!status && !(report.reachable >> device & 1)) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED,
                           "cen_global_use: device %d cannot reach all of the block", device);
    }
    return status;
}

cen_status cen_global_use(cen_global *global, void *block, int device, cen_stream stream) {
    cen_status status = ceni_global_refuse(global, device, "cen_global_use");
    if (status) {
        return status;
    }
    const ceni_member *owner = ceni_global_owner(global, block);
    ceni_lock_take(&global->lock);
    ceni_span *s = ceni_span_find(global, (uintptr_t)block);
    bool freed = s && s->pending; /* its pool still takes it for live */
    ceni_lock_leave(&global->lock);
    if (owner && owner->number == device && !freed) {
        return cen_pool_use(owner->pool, block, stream);
    }
    if (owner && !freed && (status = check_reach(global, owner, block, device))) {
        return status;
    }
    ceni_lock_take(&global->lock);
    status = span_at(global, block, owner, &s);
    if (!status && (!s || s->pending)) {
        status = ceni_fail(CEN_ERR_FOREIGN_POINTER,
                           "cen_global_use: %p is no live block of this pool", block);
    } else if (!status && s->pages && !(s->reachable >> device & 1)) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED,
                           "cen_global_use: device %d cannot reach all of the block", device);
    }
    status = status ? status : add_use(s, device, stream);
    ceni_lock_leave(&global->lock);
    return status;
}

/* Whether all uses are complete; with `wait`, once they are. What a lost device did is over. */
static bool is_complete(cen_global *g, const ceni_span *s, bool wait) {
    for (size_t i = 0; i < s->use_count; i++) {
        const ceni_span_use *use = &s->uses[i];
        cen_device *device = g->members[use->device].device;
        if (!use->recorded || atomic_load(&g->members[use->device].lost)) {
            continue;
        }
        cen_status status =
            wait ? cen_event_sync(device, use->event) : cen_event_query(device, use->event);
        if (status && !ceni_is_loss(status)) {
            return false;
        }
    }
    return true;
}

/* Takes what is complete out of the table. The lock is dropped while a span is waited for: only who
 * finishes takes pending ones out. */
static ceni_span *take_complete(cen_global *g, bool wait) {
    ceni_span *taken = NULL, *s;
    ceni_lock_take(&g->lock);
    for (uint64_t from = 0; (s = ceni_span_from(g, from));) {
        from = s->addr + s->size;
        if (!s->pending) {
            continue;
        }
        if (wait) {
            ceni_lock_leave(&g->lock);
        }
        bool complete = is_complete(g, s, wait);
        if (wait) {
            ceni_lock_take(&g->lock);
        }
        if (complete) {
            ceni_span_note(g, CENI_EVENT_FREED, s, 0, 0);
            ceni_span_leave(g, s);
            count_pending(g, s, -1);
            s->next = taken;
            taken = s;
        }
    }
    ceni_lock_leave(&g->lock);
    return taken;
}

/* global->finishing is held. */
static void finish(cen_global *g, bool wait) {
    ceni_span *s = take_complete(g, wait), *next;
    uint64_t gone = ceni_spans_unstick(g, false);
    for (; s; s = next) {
        next = s->next;
        gone += ceni_span_keep(g, s);
    }
    atomic_fetch_add(&g->finished, gone);
}

bool ceni_spans_finish(cen_global *g, bool wait) {
    uint64_t before = atomic_load(&g->finished);
    if (!atomic_load(&g->pending_count) && !atomic_load(&g->stuck_count) &&
        ceni_lock_try(&g->finishing)) {
        ceni_lock_leave(&g->finishing);
        return false; /* nothing is, and nobody is returning any */
    }
    if (ceni_global_capturing(g)) {
        return false;
    }
    if (wait) {
        ceni_lock_take(&g->finishing);
    } else if (!ceni_lock_try(&g->finishing)) {
        return false;
    }
    finish(g, wait);
    ceni_lock_leave(&g->finishing);
    return atomic_load(&g->finished) != before;
}

void ceni_spans_close(cen_global *g) {
    size_t live = 0;
    for (size_t i = 0; i < g->span_count; i++) {
        ceni_span *s = g->spans[i];
        if (!s->pending) {
            live += s->pages != NULL;
            (void)record_uses(g, s); /* what cannot be waited for is not */
            ceni_span_note(g, CENI_EVENT_FREE | CENI_EMIT_PENDING, s, s->requested, 0);
            s->pending = true;
            count_pending(g, s, 1);
        }
    }
    if (live) {
        ceni_log(CEN_LOG_WARN, "global pool: destroyed with %zu blocks live", live);
    }
    finish(g, true);
    (void)ceni_spans_return(g, CEN_GLOBAL_ALL, UINT64_MAX);
    while (g->span_count) { /* those that could not be waited for */
        ceni_span *s = g->spans[--g->span_count];
        drop_events(g, s);
        (void)ceni_span_destroy(g, s);
    }
    (void)ceni_spans_unstick(g, true);
}
