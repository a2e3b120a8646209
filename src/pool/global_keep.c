/* Spans between two uses. Giving out memory that was used before takes the driver as long as
 * clearing it, and mapping it again is not free either, so a span whose uses are complete stays as
 * it is until a block of just its layout is wanted, or its memory is. */
#include "pool/global_int.h"

uint64_t ceni_span_bytes(const ceni_span *s, int home) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->page_count; i++) {
        bytes += home == CEN_GLOBAL_ALL || s->pages[i].home == home ? s->pages[i].size : 0;
    }
    return bytes;
}

/* From the figures of blocks to those of what is kept, or back. */
static void count(cen_global *g, const ceni_span *s, int64_t sign) {
    for (size_t i = 0; i < s->page_count; i++) {
        uint64_t bytes = (uint64_t)sign * s->pages[i].size;
        if (s->pages[i].home == CEN_GLOBAL_HOST) {
            atomic_fetch_add(&g->host_kept, bytes);
            atomic_fetch_sub(&g->host_bytes, bytes);
        } else {
            atomic_fetch_add(&g->members[s->pages[i].home].kept_bytes, bytes);
            atomic_fetch_sub(&g->members[s->pages[i].home].global_bytes, bytes);
        }
    }
}

static bool any_lost(const cen_global *g, const ceni_span *s) {
    bool lost = atomic_load(&g->members[s->mapper].lost);
    for (size_t i = 0; i < s->page_count && !lost; i++) {
        lost = s->pages[i].home >= 0 && atomic_load(&g->members[s->pages[i].home].lost);
    }
    return lost;
}

bool ceni_span_keep(cen_global *g, ceni_span *s) {
    ceni_span_forget_uses(g, s);
    if (!s->pages || g->options.return_at_once || any_lost(g, s)) {
        return ceni_span_destroy(g, s);
    }
    s->pending = false;
    count(g, s, 1);
    ceni_lock_take(&g->lock);
    s->next = g->kept;
    g->kept = s;
    ceni_lock_leave(&g->lock);
    return true;
}

static bool is_alike(const ceni_span *s, const ceni_layout *layout) {
    bool alike = s->page_count == layout->count;
    for (size_t i = 0; i < s->page_count && alike; i++) {
        alike =
            s->pages[i].home == layout->parts[i].home && s->pages[i].size == layout->parts[i].size;
    }
    return alike;
}

ceni_span *ceni_span_again(cen_global *g, int device, uint64_t bytes, const ceni_layout *layout) {
    ceni_span *found = NULL;
    ceni_lock_take(&g->lock);
    for (ceni_span **at = &g->kept; *at && !found; at = found ? at : &(*at)->next) {
        if (is_alike(*at, layout) && !any_lost(g, *at)) {
            found = *at;
            *at = found->next;
        }
    }
    ceni_lock_leave(&g->lock);
    if (found) {
        count(g, found, -1);
        found->requested = bytes;
        found->device = device;
        found->placement = layout->placement;
        found->driver_ns = 0;
    }
    return found;
}

/* The longest kept of those with memory of a home; out of the list. */
static ceni_span *take_oldest(cen_global *g, int home) {
    ceni_span **oldest = NULL, *s = NULL;
    ceni_lock_take(&g->lock);
    for (ceni_span **at = &g->kept; *at; at = &(*at)->next) {
        oldest = ceni_span_bytes(*at, home) ? at : oldest;
    }
    if (oldest) {
        s = *oldest;
        *oldest = s->next;
    }
    ceni_lock_leave(&g->lock);
    return s;
}

uint64_t ceni_spans_return(cen_global *g, int home, uint64_t bytes) {
    uint64_t returned = 0;
    ceni_span *s;
    while (returned < bytes && (s = take_oldest(g, home))) {
        uint64_t size = ceni_span_bytes(s, home);
        count(g, s, -1);
        returned += ceni_span_destroy(g, s) ? size : 0;
    }
    return returned;
}
