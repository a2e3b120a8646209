/* Allocation from the global pool: the local pool for what is small, else one way of placing a
 * block after the other. */
#include "pool/global_int.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

/* One way of placing a block: makes room where it is to lie, and makes it. */
static cen_status try_layout(cen_global *g, int device, uint64_t bytes, uint64_t size,
                             const ceni_layout *layout, ceni_span **span) {
    uint64_t wanted[CEN_GLOBAL_DEVICES] = {0};
    for (size_t i = 0; i < layout->count; i++) {
        if (layout->parts[i].home >= 0) {
            wanted[layout->parts[i].home] += layout->parts[i].size;
        }
    }
    for (size_t i = 0; i < g->count; i++) {
        if (wanted[i]) {
            ceni_global_make_room(g, (int)i, wanted[i]);
        }
    }
    return ceni_span_make(g, device, bytes, size, layout, span);
}

static cen_status try_one(cen_global *g, int device, uint64_t bytes, uint64_t size, int home,
                          ceni_span **span) {
    ceni_layout layout = {0};
    cen_status status = CEN_ERR_DEVICE_MEMORY;
    if (ceni_global_room_of(g, home) >= size) {
        status = ceni_layout_one(g, size, home, &layout);
        layout.placement = home == CEN_GLOBAL_HOST ? CEN_PLACE_HOST
                           : home == device        ? CEN_PLACE_LOCAL
                                                   : CEN_PLACE_PEER;
        status = status ? status : try_layout(g, device, bytes, size, &layout, span);
    }
    ceni_free(layout.parts);
    return status;
}

static cen_status try_peers(cen_global *g, int device, uint64_t bytes, uint64_t size,
                            ceni_span **span) {
    int peers[CEN_GLOBAL_DEVICES];
    size_t count = ceni_global_peers(g, device, peers);
    cen_status status = CEN_ERR_DEVICE_MEMORY;
    for (size_t i = 0; i < count && status == CEN_ERR_DEVICE_MEMORY; i++) {
        status = try_one(g, device, bytes, size, peers[i], span);
    }
    return status;
}

static cen_status try_by_room(cen_global *g, int device, uint64_t bytes, uint64_t size,
                              ceni_span **span) {
    ceni_layout layout = {0};
    cen_status status = ceni_layout_by_room(g, size, device, &layout);
    status = status ? status : try_layout(g, device, bytes, size, &layout, span);
    ceni_free(layout.parts);
    return status;
}

static cen_status try_auto(cen_global *g, int device, uint64_t bytes, uint64_t size,
                           ceni_span **span) {
    cen_status status = try_one(g, device, bytes, size, device, span);
    status = status == CEN_ERR_DEVICE_MEMORY ? try_peers(g, device, bytes, size, span) : status;
    status = status == CEN_ERR_DEVICE_MEMORY ? try_by_room(g, device, bytes, size, span) : status;
    if (status == CEN_ERR_DEVICE_MEMORY && g->options.allow_host) {
        status = try_one(g, device, bytes, size, CEN_GLOBAL_HOST, span);
    }
    return status;
}

static cen_status try_asked(cen_global *g, int device, uint64_t bytes, uint64_t size,
                            const cen_global_request *request, ceni_span **span) {
    ceni_layout layout = {0};
    cen_status status = ceni_layout_asked(g, size, device, request, &layout);
    status = status ? status : try_layout(g, device, bytes, size, &layout, span);
    ceni_free(layout.parts);
    return status;
}

static cen_status place(cen_global *g, int device, uint64_t bytes, uint64_t size,
                        const cen_global_request *request, ceni_span **span) {
    switch (request->placement) {
    case CEN_PLACE_AUTO:
        return try_auto(g, device, bytes, size, span);
    case CEN_PLACE_LOCAL:
        return try_one(g, device, bytes, size, device, span);
    case CEN_PLACE_PEER:
        if (!(g->members[device].reach & ~((uint64_t)1 << device))) {
            return ceni_fail(CEN_ERR_UNSUPPORTED, "cen_global_alloc: device %d reaches no peer",
                             device);
        }
        return try_peers(g, device, bytes, size, span);
    case CEN_PLACE_HOST:
        if (!g->options.allow_host) {
            return ceni_fail(CEN_ERR_UNSUPPORTED,
                             "cen_global_alloc: host memory is not allowed (options.allow_host)");
        }
        return try_one(g, device, bytes, size, CEN_GLOBAL_HOST, span);
    default:
        return try_asked(g, device, bytes, size, request, span);
    }
}

#define MIB(bytes) ((double)(bytes) / (1 << 20))

static cen_status no_room(cen_global *g, int device, uint64_t bytes) {
    char line[512];
    size_t at = 0;
    for (size_t i = 0; i < g->count && at < sizeof line; i++) {
        int written = snprintf(line + at, sizeof line - at, "%s%zu: %.2f", i ? ", " : "", i,
                               MIB(ceni_global_room_of(g, (int)i)));
        at += written > 0 ? (size_t)written : 0;
    }
    return ceni_fail(CEN_ERR_DEVICE_MEMORY,
                     "cen_global_alloc: no room for %.2f MiB for device %d; MiB free or idle by "
                     "device: %s",
                     MIB(bytes), device, line);
}

static void *at_address(uint64_t addr) {
    return (void *)(uintptr_t)addr;
}

static cen_status alloc_span(cen_global *g, size_t bytes, int device,
                             const cen_global_request *request, void **block,
                             cen_global_report *report) {
    uint64_t size = ceni_global_round(g, bytes);
    ceni_span *span = NULL;
    (void)ceni_spans_finish(g, false);
    cen_status status = place(g, device, bytes, size, request, &span);
    if (status == CEN_ERR_DEVICE_MEMORY && ceni_spans_finish(g, true)) {
        status = place(g, device, bytes, size, request, &span);
    }
    if (status == CEN_ERR_DEVICE_MEMORY && ceni_global_take_back(g, device, size, true, true)) {
        status = place(g, device, bytes, size, request, &span);
    }
    if (status) {
        return status == CEN_ERR_DEVICE_MEMORY ? no_room(g, device, bytes) : status;
    }
    ceni_lock_take(&g->lock);
    status = ceni_span_enter(g, span);
    if (!status) {
        *block = at_address(span->addr);
        if (report) {
            ceni_span_report(g, span, report);
        }
    }
    ceni_lock_leave(&g->lock);
    if (status) {
        ceni_span_destroy(g, span);
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
    cen_status status = cen_pool_alloc(pool, bytes, request->stream, &got);
    if (status) {
        return status;
    }
    bool must_be_local = request->placement == CEN_PLACE_LOCAL;
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
    if (status == CEN_ERR_DEVICE_LOST) {
        ceni_global_find_lost(global);
    }
    return status;
}
