/* Allocation from the global pool: the local pool for what is small, else one way of placing a
 * block after the other. */
#include "pool/global_int.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

/* An allocation under way. `last`: before it fails it waits for memory and asks for it. */
typedef struct attempt {
    cen_global *g;
    int device;
    uint64_t bytes, size; /* asked for, and in whole pages */
    const cen_global_request *request;
    bool last;
    ceni_span *span;
} attempt;

/* One way of placing a block: as one that was kept, else it is made where room was made. */
static cen_status try_layout(attempt *a, const ceni_layout *layout) {
    uint64_t wanted[CEN_GLOBAL_DEVICES] = {0};
    if ((a->span = ceni_span_again(a->g, a->device, a->bytes, layout))) {
        return CEN_OK;
    }
    for (size_t i = 0; i < layout->count; i++) {
        if (layout->parts[i].home >= 0) {
            wanted[layout->parts[i].home] += layout->parts[i].size;
        } else {
            (void)ceni_spans_return(a->g, CEN_GLOBAL_HOST, UINT64_MAX);
        }
    }
    for (size_t i = 0; i < a->g->count; i++) {
        if (wanted[i] && (wanted[i] > a->g->members[i].device->total_bytes ||
                          !ceni_global_make_room(a->g, (int)i, wanted[i],
                                                 a->last ? CENI_ASKING : CENI_AT_ONCE))) {
            return atomic_load(&a->g->members[i].lost) ? CEN_ERR_DEVICE_LOST
                                                       : CEN_ERR_DEVICE_MEMORY;
        }
    }
    return ceni_span_make(a->g, a->device, a->bytes, a->size, layout, &a->span);
}

static cen_status try_one(attempt *a, int home) {
    ceni_span_page part = {.home = home, .size = a->size};
    ceni_layout layout = {.parts = &part, .count = 1};
    bool wait = a->last && home != CEN_GLOBAL_HOST;
    layout.placement = home == CEN_GLOBAL_HOST ? CEN_PLACE_HOST
                       : home == a->device     ? CEN_PLACE_LOCAL
                                               : CEN_PLACE_PEER;
    if ((a->span = ceni_span_again(a->g, a->device, a->bytes, &layout))) {
        return CEN_OK; /* without asking anybody for room */
    }
    return wait || ceni_global_room_of(a->g, home) >= a->size ? try_layout(a, &layout)
                                                              : CEN_ERR_DEVICE_MEMORY;
}

/* A peer that turns out to be lost is no reason not to try the next one. */
static cen_status try_peers(attempt *a) {
    int peers[CEN_GLOBAL_DEVICES];
    size_t count = ceni_global_peers(a->g, a->device, peers);
    cen_status status = CEN_ERR_DEVICE_MEMORY;
    for (size_t i = 0; i < count && status == CEN_ERR_DEVICE_MEMORY; i++) {
        status = try_one(a, peers[i]);
        if (ceni_is_loss(status)) {
            ceni_global_find_lost(a->g);
            status = atomic_load(&a->g->members[a->device].lost) ? status : CEN_ERR_DEVICE_MEMORY;
        }
    }
    return status;
}

static cen_status try_by_room(attempt *a) {
    ceni_layout layout = {0};
    cen_status status = ceni_layout_by_room(a->g, a->size, a->device, &layout);
    status = status ? status : try_layout(a, &layout);
    ceni_free(layout.parts);
    return status;
}

static cen_status try_auto(attempt *a) {
    cen_status status = try_one(a, a->device);
    status = status == CEN_ERR_DEVICE_MEMORY ? try_peers(a) : status;
    status = status == CEN_ERR_DEVICE_MEMORY ? try_by_room(a) : status;
    if (status == CEN_ERR_DEVICE_MEMORY && a->g->options.allow_host) {
        status = try_one(a, CEN_GLOBAL_HOST);
    }
    return status;
}

static cen_status try_asked(attempt *a) {
    ceni_layout layout = {0};
    cen_status status = ceni_layout_asked(a->g, a->size, a->device, a->request, &layout);
    status = status ? status : try_layout(a, &layout);
    ceni_free(layout.parts);
    return status;
}

static cen_status place(attempt *a) {
    switch (a->request->placement) {
    case CEN_PLACE_AUTO:
        return try_auto(a);
    case CEN_PLACE_LOCAL:
        return try_one(a, a->device);
    case CEN_PLACE_PEER:
        if (!(a->g->members[a->device].reach & ~((uint64_t)1 << a->device))) {
            return ceni_fail(CEN_ERR_UNSUPPORTED, "cen_global_alloc: device %d reaches no peer",
                             a->device);
        }
        return try_peers(a);
    case CEN_PLACE_HOST:
        if (!a->g->options.allow_host) {
            return ceni_fail(CEN_ERR_UNSUPPORTED,
                             "cen_global_alloc: host memory is not allowed (options.allow_host)");
        }
        return try_one(a, CEN_GLOBAL_HOST);
    default:
        return try_asked(a);
    }
}

/* The same, once more if a device on the way was lost: without it, another may do. */
static cen_status place_on_what_is_there(attempt *a) {
    cen_status status = place(a);
    if (ceni_is_loss(status)) {
        ceni_global_find_lost(a->g);
        status = atomic_load(&a->g->members[a->device].lost) ? CEN_ERR_DEVICE_LOST : place(a);
    }
    return status;
}

static cen_status no_room(cen_global *g, int device, uint64_t bytes) {
    char line[512];
    size_t at = 0;
    for (size_t i = 0; i < g->count && at < sizeof line; i++) {
        int written = snprintf(line + at, sizeof line - at, "%s%zu: %.2f", i ? ", " : "", i,
                               CENI_MIB(ceni_global_room_of(g, (int)i)));
        at += written > 0 ? (size_t)written : 0;
    }
    return ceni_fail(CEN_ERR_DEVICE_MEMORY,
                     "cen_global_alloc: no room for %.2f MiB for device %d; MiB free or idle by "
                     "device: %s",
                     CENI_MIB(bytes), device, line);
}

static void *at_address(uint64_t addr) {
    return (void *)(uintptr_t)addr;
}

static cen_status alloc_span(cen_global *g, size_t bytes, int device,
                             const cen_global_request *request, void **block,
                             cen_global_report *report) {
    attempt a = {g, device, bytes, ceni_global_round(g, bytes), request, false, NULL};
    (void)ceni_spans_finish(g, false);
    cen_status status = place_on_what_is_there(&a);
    if (status == CEN_ERR_DEVICE_MEMORY) {
        (void)ceni_spans_finish(g, true);
        a.last = true;
        status = place_on_what_is_there(&a);
    }
    if (status) {
        return status == CEN_ERR_DEVICE_MEMORY ? no_room(g, device, bytes) : status;
    }
    ceni_lock_take(&g->lock);
    status = ceni_span_enter(g, a.span);
    if (!status) {
        *block = at_address(a.span->addr);
        ceni_span_note(g, CENI_EVENT_ALLOC, a.span, bytes, request->stream);
        if (report) {
            ceni_span_report(a.span, report);
        }
    }
    ceni_lock_leave(&g->lock);
    if (status) {
        (void)ceni_span_destroy(g, a.span);
    }
    return status;
}

static bool lies_at_home(const cen_global_report *report, int device) {
    return report->device_bytes[device] == report->mapped_bytes;
}

/* From the local pool, whose memory may be borrowed, which LOCAL does not take. */
static cen_status alloc_small(cen_global *g, size_t bytes, int device,
                              const cen_global_request *request, void **block,
                              cen_global_report *report) {
    cen_pool *pool = g->members[device].pool;
    cen_global_report where;
    void *got = NULL;
    bool must_be_local = request->placement == CEN_PLACE_LOCAL;
    cen_status status = cen_pool_alloc(pool, bytes, request->stream, &got);
    if (status == CEN_ERR_DEVICE_MEMORY && !must_be_local && g->options.no_borrowing) {
        return alloc_span(g, bytes, device, request, block, report); /* it could not leave home */
    }
    if (status) {
        return status;
    }
    if (report || must_be_local) {
        status = cen_global_where(g, got, &where);
    }
    if (status || (must_be_local && !lies_at_home(&where, device))) {
        (void)cen_pool_free(pool, got, request->stream); /* it has just come from there */
        return status ? status : alloc_span(g, bytes, device, request, block, report);
    }
    *block = got;
    if (report) {
        *report = where;
    }
    return CEN_OK;
}

cen_status cen_global_alloc(cen_global *global, size_t bytes, int device,
                            const cen_global_request *request, void **block,
                            cen_global_report *report) {
    const char *call = "cen_global_alloc";
    cen_status status = ceni_global_refuse(global, device, call);
    if (!status && (!block || (request && request->size < sizeof(size_t)))) {
        status = ceni_fail(CEN_ERR_INVALID, "%s: %s", call,
                           block ? "request.size is not set" : "block is NULL");
    }
    if (status) {
        return status;
    }
    cen_global_request own = {.size = sizeof own};
    if (request) {
        memcpy(&own, request, request->size < sizeof own ? request->size : sizeof own);
    }
    if (own.placement < CEN_PLACE_AUTO || own.placement > CEN_PLACE_HOST) {
        return ceni_fail(CEN_ERR_INVALID, "%s: placement %d is unknown", call, own.placement);
    }
    if (atomic_load(&global->members[device].lost)) {
        return ceni_fail(CEN_ERR_DEVICE_LOST, "%s: device %d is lost", call, device);
    }
    if (!bytes) {
        *block = NULL;
        return CEN_OK;
    }
    if (bytes > UINT64_MAX / 4) {
        return ceni_fail(CEN_ERR_DEVICE_MEMORY, "%s: no devices hold %zu bytes", call, bytes);
    }
    bool small = bytes <= global->options.small_bytes &&
                 (own.placement == CEN_PLACE_AUTO || own.placement == CEN_PLACE_LOCAL);
    status = small ? alloc_small(global, bytes, device, &own, block, report)
                   : alloc_span(global, bytes, device, &own, block, report);
    if (ceni_is_loss(status)) {
        ceni_global_find_lost(global);
    }
    return status;
}
