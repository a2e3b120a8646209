/* Spans: made over whole pages, entered in a table by address, freed behind events. */
#include "pool/global_int.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

static void count_page(cen_global *g, const ceni_span_page *page, int64_t sign) {
    _Atomic uint64_t *at =
        page->home == CEN_GLOBAL_HOST ? &g->host_bytes : &g->members[page->home].global_bytes;
    atomic_fetch_add(at, (uint64_t)sign * page->size);
}

static cen_status make_page(cen_global *g, ceni_span *s, ceni_span_page *page, uint64_t offset) {
    ceni_home home = ceni_global_home_of(g, page->home, s->device);
    cen_status status = ceni_dev_page_create(home.device, page->size,
                                             home.host ? CENI_PAGE_HOST : 0, &page->handle);
    if (status) {
        return status;
    }
    status =
        ceni_dev_page_map(g->members[s->device].device, s->addr + offset, page->size, page->handle);
    if (status) {
        (void)ceni_dev_page_release(home.device, page->handle);
        return status;
    }
    count_page(g, page, 1);
    s->mapped++;
    return CEN_OK;
}

/* One call for all pages that the same devices may reach. */
static cen_status allow(cen_global *g, const ceni_span *s) {
    cen_status status = CEN_OK;
    uint64_t offset = 0;
    for (size_t i = 0; i < s->page_count && !status;) {
        uint64_t size = 0, granted = ceni_global_granted(g, s->pages[i].home);
        size_t first = i, count;
        for (; i < s->page_count && ceni_global_granted(g, s->pages[i].home) == granted; i++) {
            size += s->pages[i].size;
        }
        const ceni_grant *grants = ceni_global_grants(g, s->pages[first].home, &count);
        status = ceni_dev_page_access(g->members[s->device].device, s->addr + offset, size,
                                      i - first, grants, count);
        offset += size;
    }
    return status;
}

static cen_status map_pages(cen_global *g, ceni_span *s, const ceni_layout *layout) {
    cen_status status = ceni_dev_va_reserve(g->members[s->device].device, s->size, 0, &s->addr);
    uint64_t offset = 0;
    s->reachable = UINT64_MAX;
    for (size_t i = 0; i < layout->count && !status; i++) {
        s->pages[i] = layout->parts[i];
        status = make_page(g, s, &s->pages[i], offset);
        offset += s->pages[i].size;
        s->reachable &= ceni_global_granted(g, s->pages[i].home);
    }
    return status ? status : allow(g, s);
}

cen_status ceni_span_make(cen_global *g, int device, uint64_t bytes, uint64_t size,
                          const ceni_layout *layout, ceni_span **out) {
    ceni_span *s = ceni_calloc(1, sizeof *s);
    ceni_span_page *pages = ceni_calloc(layout->count, sizeof *pages);
    if (!s || !pages) {
        ceni_free(s);
        ceni_free(pages);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_global_alloc: no memory");
    }
    uint64_t start = ceni_now_ns();
    s->size = size;
    s->requested = bytes;
    s->device = device;
    s->placement = layout->placement;
    s->pages = pages;
    s->page_count = layout->count;
    cen_status status = map_pages(g, s, layout);
    if (status) {
        ceni_span_destroy(g, s);
        return status;
    }
    s->driver_ns = ceni_now_ns() - start;
    *out = s;
    return CEN_OK;
}

static void drop_events(cen_global *g, ceni_span *s) {
    for (size_t i = 0; i < s->use_count; i++) {
        if (s->uses[i].recorded) {
            (void)cen_event_destroy(g->members[s->uses[i].device].device, s->uses[i].event);
            s->uses[i].recorded = false;
        }
    }
}

void ceni_span_destroy(cen_global *g, ceni_span *s) {
    cen_device *device = g->members[s->device].device;
    uint64_t mapped = 0;
    drop_events(g, s);
    for (size_t i = 0; i < s->mapped; i++) {
        mapped += s->pages[i].size;
    }
    if (mapped) {
        (void)ceni_dev_page_unmap(device, s->addr, mapped, s->mapped);
    }
    for (size_t i = 0; i < s->mapped; i++) {
        ceni_home home = ceni_global_home_of(g, s->pages[i].home, s->device);
        (void)ceni_dev_page_release(home.device, s->pages[i].handle);
        count_page(g, &s->pages[i], -1);
    }
    if (s->addr && s->pages) {
        (void)ceni_dev_va_free(device, s->addr, s->size);
    }
    ceni_free(s->uses);
    ceni_free(s->pages);
    ceni_free(s);
}

/* Index of the first span that ends beyond an address. */
static size_t index_of(const cen_global *g, uint64_t addr) {
    size_t low = 0, high = g->span_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (g->spans[middle]->addr + g->spans[middle]->size <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

ceni_span *ceni_span_find(const cen_global *g, uint64_t addr) {
    size_t i = index_of(g, addr);
    return i < g->span_count && g->spans[i]->addr <= addr ? g->spans[i] : NULL;
}

cen_status ceni_span_enter(cen_global *g, ceni_span *span) {
    if (ceni_grow(&g->spans, &g->span_capacity, g->span_count + 1, sizeof *g->spans)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "global pool: no memory for a block");
    }
    size_t i = index_of(g, span->addr);
    memmove(&g->spans[i + 1], &g->spans[i], (g->span_count++ - i) * sizeof *g->spans);
    g->spans[i] = span;
    return CEN_OK;
}

static void leave(cen_global *g, const ceni_span *span) {
    size_t i = index_of(g, span->addr);
    memmove(&g->spans[i], &g->spans[i + 1], (--g->span_count - i) * sizeof *g->spans);
}

void ceni_span_report(const cen_global *g, const ceni_span *s, cen_global_report *report) {
    (void)g;
    *report = (cen_global_report){
        .placement = s->placement,
        .requested_bytes = s->requested,
        .mapped_bytes = s->size,
        .reachable = s->reachable,
        .driver_ns = s->driver_ns,
    };
    for (size_t i = 0; i < s->page_count; i++) {
        *(s->pages[i].home == CEN_GLOBAL_HOST ? &report->host_bytes
                                              : &report->device_bytes[s->pages[i].home]) +=
            s->pages[i].size;
    }
}

ceni_member *ceni_global_owner(cen_global *g, const void *block) {
    for (size_t i = 0; i < g->count; i++) {
        if (ceni_pool_owns(g->members[i].pool, block)) {
            return &g->members[i];
        }
    }
    return NULL;
}

/* Events on every stream that uses the span. All or none. */
static cen_status record_uses(cen_global *g, ceni_span *s) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < s->use_count && !status; i++) {
        ceni_span_use *use = &s->uses[i];
        cen_device *device = g->members[use->device].device;
        bool capturing = false;
        status = cen_stream_capturing(device, use->stream, &capturing);
        if (!status && capturing) {
            status = ceni_fail(CEN_ERR_CAPTURE, "cen_global_free: a stream that uses the block is "
                                                "capturing");
        }
        status = status ? status : cen_event_create(device, 0, &use->event);
        if (!status) {
            use->recorded = true;
            status = cen_event_record(device, use->event, use->stream);
        }
        if (status == CEN_ERR_DEVICE_LOST) {
            status = CEN_OK; /* it does no work any more */
        }
    }
    if (status) {
        drop_events(g, s);
    }
    return status;
}

static cen_status add_use(ceni_span *s, int device, cen_stream stream) {
    for (size_t i = 0; i < s->use_count; i++) {
        if (s->uses[i].device == device && s->uses[i].stream == stream) {
            return CEN_OK;
        }
    }
    if (ceni_grow(&s->uses, &s->use_capacity, s->use_count + 1, sizeof *s->uses)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "global pool: no memory to note a use");
    }
    s->uses[s->use_count++] = (ceni_span_use){.device = device, .stream = stream};
    return CEN_OK;
}

static void count_pending(cen_global *g, const ceni_span *s, int64_t sign) {
    g->pending_count += (size_t)sign;
    for (size_t i = 0; i < s->page_count; i++) {
        if (s->pages[i].home != CEN_GLOBAL_HOST) {
            atomic_fetch_add(&g->members[s->pages[i].home].pending_bytes,
                             (uint64_t)sign * s->pages[i].size);
        }
    }
}

/* The note of a local pool's block: other devices' streams use it. The lock is held. */
static cen_status note_block(cen_global *g, const ceni_member *owner, void *block,
                             ceni_span **out) {
    ceni_span *s = ceni_calloc(1, sizeof *s);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "global pool: no memory to note a use");
    }
    s->addr = (uintptr_t)block;
    s->size = 1;
    s->device = owner->number;
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
    cen_status status = add_use(s, device, stream);
    status = status ? status : record_uses(g, s);
    if (!status) {
        s->pending = true;
        count_pending(g, s, 1);
    }
    return status;
}

cen_status cen_global_free(cen_global *global, void *block, int device, cen_stream stream) {
    cen_status status = ceni_global_refuse(global, device, "cen_global_free");
    if (status || !block) {
        return status;
    }
    ceni_member *owner = ceni_global_owner(global, block);
    ceni_lock_take(&global->lock);
    ceni_span *s = ceni_span_find(global, (uintptr_t)block);
    if (s && s->addr != (uintptr_t)block) {
        s = NULL;
    }
    if (!s && owner && owner->number != device) {
        status = note_block(global, owner, block, &s);
    }
    if (s && !status) {
        status = free_span(global, s, device, stream);
    }
    ceni_lock_leave(&global->lock);
    if (s || status) {
        return status;
    }
    return owner ? cen_pool_free(owner->pool, block, stream)
                 : ceni_fail(CEN_ERR_FOREIGN_POINTER,
                             "cen_global_free: %p is no block of this pool", block);
}

cen_status cen_global_use(cen_global *global, void *block, int device, cen_stream stream) {
    cen_status status = ceni_global_refuse(global, device, "cen_global_use");
    if (status) {
        return status;
    }
    ceni_member *owner = ceni_global_owner(global, block);
    if (owner && owner->number == device) {
        return cen_pool_use(owner->pool, block, stream);
    }
    ceni_lock_take(&global->lock);
    ceni_span *s = ceni_span_find(global, (uintptr_t)block);
    if (!s && owner) {
        status = note_block(global, owner, block, &s);
    }
    if (!status && (!s || s->addr != (uintptr_t)block || s->pending)) {
        status = ceni_fail(CEN_ERR_FOREIGN_POINTER,
                           "cen_global_use: %p is no live block of this "
                           "pool",
                           block);
    } else if (!status && s->pages && !(s->reachable >> device & 1)) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED,
                           "cen_global_use: device %d cannot reach all of the block", device);
    }
    status = status ? status : add_use(s, device, stream);
    ceni_lock_leave(&global->lock);
    return status;
}

/* Whether all uses are complete; with `wait`, once they are. What a lost device did is over. */
static bool is_complete(cen_global *g, ceni_span *s, bool wait) {
    for (size_t i = 0; i < s->use_count; i++) {
        ceni_span_use *use = &s->uses[i];
        cen_device *device = g->members[use->device].device;
        if (!use->recorded) {
            continue;
        }
        cen_status status =
            wait ? cen_event_sync(device, use->event) : cen_event_query(device, use->event);
        if (status && status != CEN_ERR_DEVICE_LOST) {
            return false;
        }
    }
    return true;
}

/* The next pending span from an address on that no other thread looks at; the lock is held. */
static ceni_span *next_pending(const cen_global *g, uint64_t from) {
    for (size_t i = index_of(g, from); i < g->span_count; i++) {
        if (g->spans[i]->pending && !g->spans[i]->busy) {
            return g->spans[i];
        }
    }
    return NULL;
}

/* Takes what is complete out of the table. The lock is dropped while a span is waited for. */
static ceni_span *take_complete(cen_global *g, bool wait) {
    ceni_span *taken = NULL, *s;
    ceni_lock_take(&g->lock);
    for (uint64_t from = 0; (s = next_pending(g, from));) {
        from = s->addr + s->size;
        s->busy = true;
        if (wait) {
            ceni_lock_leave(&g->lock);
        }
        bool complete = is_complete(g, s, wait);
        if (wait) {
            ceni_lock_take(&g->lock);
        }
        s->busy = false;
        if (complete) {
            leave(g, s);
            count_pending(g, s, -1);
            s->next = taken;
            taken = s;
        }
    }
    ceni_lock_leave(&g->lock);
    return taken;
}

bool ceni_spans_finish(cen_global *g, bool wait) {
    ceni_lock_take(&g->lock);
    bool any = g->pending_count > 0;
    ceni_lock_leave(&g->lock);
    if (!any || ceni_global_capturing(g)) {
        return false;
    }
    ceni_span *s = take_complete(g, wait), *next;
    any = s;
    for (; s; s = next) {
        next = s->next;
        if (!s->pages) {
            (void)ceni_pool_free_complete(g->members[s->device].pool, (void *)(uintptr_t)s->addr);
        }
        ceni_span_destroy(g, s);
    }
    return any;
}
