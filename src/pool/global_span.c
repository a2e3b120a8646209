/* Spans: made over whole pages, entered in a table by address, returned page by page. */
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

static cen_status make_page(cen_global *g, ceni_span *s, ceni_span_page *page) {
    ceni_home home = ceni_global_home_of(g, page->home, s->mapper);
    cen_status status = ceni_dev_page_create(home.device, page->size,
                                             home.host ? CENI_PAGE_HOST : 0, &page->handle);
    if (status) {
        return status;
    }
    count_page(g, page, 1);
    status = ceni_dev_page_map(g->members[s->mapper].device, s->addr + s->mapped_bytes, page->size,
                               page->handle);
    if (!status) {
        s->mapped_bytes += page->size;
        s->mapped++;
    }
    return status;
}

/* One call for all pages that the same devices may reach. */
static cen_status allow(cen_global *g, ceni_span *s) {
    cen_status status = CEN_OK;
    uint64_t offset = 0;
    s->reachable = UINT64_MAX;
    for (size_t i = 0; i < s->page_count && !status;) {
        uint64_t size = 0, granted = ceni_global_granted(g, s->pages[i].home);
        size_t first = i;
        for (; i < s->page_count && ceni_global_granted(g, s->pages[i].home) == granted; i++) {
            size += s->pages[i].size;
        }
        ceni_grant grants[CENI_GRANTS_MAX];
        size_t count = ceni_global_grants(g, granted, grants);
        status = ceni_dev_page_access(g->members[s->mapper].device, s->addr + offset, size,
                                      i - first, grants, count);
        offset += size;
        s->reachable &= granted;
    }
    return status;
}

static cen_status map_pages(cen_global *g, ceni_span *s, const ceni_layout *layout) {
    cen_status status = ceni_dev_va_reserve(g->members[s->mapper].device, s->size, 0, &s->addr);
    for (size_t i = 0; i < layout->count && !status; i++) {
        s->pages[i] = layout->parts[i];
        status = make_page(g, s, &s->pages[i]);
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
    s->device = s->mapper = device;
    s->placement = layout->placement;
    s->pages = pages;
    s->page_count = layout->count;
    cen_status before = ceni_log_expect(CEN_ERR_DEVICE_MEMORY); /* there may be another place */
    cen_status status = map_pages(g, s, layout);
    (void)ceni_log_expect(before);
    if (status) {
        (void)ceni_span_destroy(g, s);
        return status;
    }
    s->driver_ns = ceni_now_ns() - start;
    s->noted = ceni_noting();
    ceni_span_note(g, CENI_EVENT_MAP | CENI_EMIT_PLAIN | CENI_EMIT_ANYONES, s, size, 0);
    *out = s;
    return CEN_OK;
}

/* Unmaps a span, or frees its addresses, through its device or another in its place. */
static cen_status undo(cen_global *g, const ceni_span *s, bool unmap) {
    for (;;) {
        cen_device *mapper = ceni_global_mapper(g, s->mapper);
        cen_status status = unmap ? ceni_dev_page_unmap(mapper, s->addr, s->mapped_bytes, s->mapped)
                                  : ceni_dev_va_free(mapper, s->addr, s->size);
        if (!ceni_is_loss(status)) {
            return status;
        }
        ceni_global_find_lost(g); /* memory of the others in it goes back to them */
        if (ceni_global_mapper(g, s->mapper) == mapper) {
            return CEN_OK; /* nobody is left */
        }
    }
}

/* The pages of a span, whose addresses then have nothing behind them. */
static bool return_pages(cen_global *g, ceni_span *s) {
    if (s->mapped) {
        if (undo(g, s, true)) {
            return false;
        }
        if (s->noted) {
            ceni_span_note(g, CENI_EVENT_UNMAP | CENI_EMIT_PLAIN | CENI_EMIT_ANYONES, s, s->size,
                           0);
        }
        s->mapped = 0;
    }
    bool all = true;
    for (size_t i = 0; i < s->page_count; i++) {
        ceni_span_page *page = &s->pages[i];
        if (!page->handle) {
            continue;
        }
        ceni_home home = ceni_global_home_of(g, page->home, s->mapper);
        cen_status status = ceni_dev_page_release(home.device, page->handle);
        if (status && !ceni_is_loss(status)) {
            all = false;
            continue;
        }
        page->handle = 0; /* returned, or gone with its device */
        count_page(g, page, -1);
    }
    return all;
}

static bool return_all(cen_global *g, ceni_span *s) {
    if (!s->pages) { /* a block of the local pool */
        void *block = (void *)(uintptr_t)s->addr;
        cen_status status = ceni_pool_free_complete(g->members[s->device].pool, block);
        return status != CEN_ERR_HOST_MEMORY;
    }
    return return_pages(g, s) && (!s->addr || !undo(g, s, false));
}

static void forget(cen_global *g, ceni_span *s) {
    for (size_t i = 0; i < s->page_count; i++) {
        if (s->pages[i].handle) {
            count_page(g, &s->pages[i], -1);
        }
    }
    ceni_free(s->uses);
    ceni_free(s->pages);
    ceni_free(s);
}

bool ceni_span_destroy(cen_global *g, ceni_span *s) {
    bool gone = return_all(g, s);
    if (gone) {
        forget(g, s);
    } else {
        ceni_lock_take(&g->lock);
        s->next = g->stuck;
        g->stuck = s;
        g->stuck_count++;
        ceni_lock_leave(&g->lock);
    }
    return gone;
}

bool ceni_spans_unstick(cen_global *g, bool last) {
    bool any = false;
    ceni_lock_take(&g->lock);
    ceni_span *s = g->stuck, *next;
    g->stuck = NULL;
    g->stuck_count = 0;
    ceni_lock_leave(&g->lock);
    for (; s; s = next) {
        next = s->next;
        if (!last) {
            any = ceni_span_destroy(g, s) || any;
        } else {
            (void)return_all(g, s);
            forget(g, s);
        }
    }
    return any;
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

ceni_span *ceni_span_from(const cen_global *g, uint64_t addr) {
    size_t i = index_of(g, addr);
    return i < g->span_count ? g->spans[i] : NULL;
}

cen_status ceni_span_enter(cen_global *g, ceni_span *span) {
    if (ceni_grow(&g->spans, &g->span_capacity, g->span_count + 1, sizeof(void *))) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "global pool: no memory for a block");
    }
    size_t i = index_of(g, span->addr);
    memmove(&g->spans[i + 1], &g->spans[i], (g->span_count++ - i) * sizeof(void *));
    g->spans[i] = span;
    return CEN_OK;
}

void ceni_span_leave(cen_global *g, const ceni_span *span) {
    size_t i = index_of(g, span->addr);
    memmove(&g->spans[i], &g->spans[i + 1], (--g->span_count - i) * sizeof(void *));
}

void ceni_span_report(const ceni_span *s, cen_global_report *report) {
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
