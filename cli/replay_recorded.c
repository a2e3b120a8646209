/* What a recording shows of the allocator that made it: peaks, the moment that matters and its
 * holes, driver time. */
#include <stdlib.h>
#include <string.h>

#include "cli/addrmap.h"
#include "cli/replay.h"

/* Where a range of mapped addresses begins (+1) or ends (-1). Segments that lie side by side are
 * apart (hard) unless they are the parts of an expandable one. */
typedef struct edge {
    uint64_t addr;
    int step;
    bool hard;
} edge;

typedef struct range {
    uint64_t addr, size;
} range;

static int by_edge(const void *a, const void *b) {
    const edge *x = a, *y = b;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int by_addr(const void *a, const void *b) {
    const range *x = a, *y = b;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void add_edges(edge *edges, size_t *count, uint64_t addr, uint64_t size, int step,
                      bool hard) {
    edges[(*count)++] = (edge){addr, step, hard};
    edges[(*count)++] = (edge){addr + size, -step, hard};
}

/* The final segments, with the events from `moment` on undone. */
static edge *edges_at(const cen_snapshot_device *d, size_t moment, size_t *count) {
    edge *edges = calloc(d->segment_count + (d->event_count - moment) + 1, 2 * sizeof *edges);
    *count = 0;
    for (size_t i = 0; edges && i < d->segment_count; i++) {
        const cen_snapshot_segment *s = &d->segments[i];
        add_edges(edges, count, s->addr, s->size, 1, !s->expandable);
    }
    for (size_t i = moment; edges && i < d->event_count; i++) {
        const cen_trace_event *e = &d->events[i];
        switch (e->action) {
        case CEN_ACTION_SEGMENT_FREE:
        case CEN_ACTION_SEGMENT_UNMAP:
            add_edges(edges, count, e->addr, e->size, 1, e->action == CEN_ACTION_SEGMENT_FREE);
            break;
        case CEN_ACTION_SEGMENT_ALLOC:
        case CEN_ACTION_SEGMENT_MAP:
            add_edges(edges, count, e->addr, e->size, -1, e->action == CEN_ACTION_SEGMENT_ALLOC);
            break;
        default:
            break;
        }
    }
    if (edges && *count) {
        qsort(edges, *count, sizeof *edges, by_edge);
    }
    return edges;
}

/* The ranges mapped just before event `moment`, by address. */
static range *mapped_at(const cen_snapshot_device *d, size_t moment, size_t *count) {
    size_t edge_count;
    edge *edges = edges_at(d, moment, &edge_count);
    range *ranges = edges ? calloc(edge_count + 1, sizeof *ranges) : NULL;
    long depth = 0;
    *count = 0;
    for (size_t i = 0; ranges && i < edge_count;) {
        uint64_t addr = edges[i].addr;
        bool was = depth > 0, hard = false;
        for (; i < edge_count && edges[i].addr == addr; i++) {
            depth += edges[i].step;
            hard |= edges[i].hard;
        }
        if (was && (hard || depth <= 0)) {
            ranges[*count - 1].size = addr - ranges[*count - 1].addr;
        }
        if (depth > 0 && (hard || !was)) {
            ranges[(*count)++].addr = addr;
        }
    }
    free(edges);
    return ranges;
}

static uint64_t largest_hole(const range *mapped, size_t mapped_count, const range *live,
                             size_t live_count) {
    uint64_t largest = 0;
    size_t k = 0;
    for (size_t i = 0; i < mapped_count; i++) {
        uint64_t at = mapped[i].addr, end = mapped[i].addr + mapped[i].size;
        while (k < live_count && live[k].addr < at) {
            k++;
        }
        for (; k < live_count && live[k].addr < end; k++) {
            if (live[k].addr > at && live[k].addr - at > largest) {
                largest = live[k].addr - at;
            }
            uint64_t after = live[k].addr + (live[k].size + 511) / 512 * 512;
            at = after > at ? after : at;
        }
        if (end > at && end - at > largest) {
            largest = end - at;
        }
    }
    return largest;
}

static range *live_ranges(const addrmap *live, size_t *count) {
    range *ranges = malloc((live->count + 1) * sizeof *ranges);
    *count = 0;
    for (size_t i = 0; ranges && i < live->capacity; i++) {
        if (live->entries[i].used) {
            ranges[(*count)++] = (range){live->entries[i].key, live->entries[i].size};
        }
    }
    if (ranges && *count) {
        qsort(ranges, *count, sizeof *ranges, by_addr);
    }
    return ranges;
}

/* What is live and reserved as the events go by. */
typedef struct state {
    addrmap live;
    uint64_t now, reserved;
} state;

static cen_status put(state *s, uint64_t addr, uint64_t size) {
    addrmap_entry *e = addrmap_put(&s->live, addr);
    if (!e) {
        return CEN_ERR_HOST_MEMORY;
    }
    s->now += size; /* an address handed out again without a free: the first stays live */
    e->size = size;
    return CEN_OK;
}

static cen_status begin(state *s, const cen_snapshot_device *d) {
    cen_status status = CEN_OK;
    *s = (state){.reserved = d->initial_reserved};
    for (size_t i = 0; i < d->initial_count && !status; i++) {
        status = put(s, d->initial[i].addr, d->initial[i].size);
    }
    return status;
}

static cen_status step(state *s, const cen_trace_event *ev) {
    addrmap_entry *e;
    switch (ev->action) {
    case CEN_ACTION_ALLOC:
        return put(s, ev->addr, ev->size);
    case CEN_ACTION_FREE_COMPLETED:
        if ((e = addrmap_get(&s->live, ev->addr))) {
            s->now -= e->size;
            addrmap_remove(&s->live, e);
        }
        return CEN_OK;
    case CEN_ACTION_SEGMENT_ALLOC:
    case CEN_ACTION_SEGMENT_MAP:
        s->reserved += ev->size;
        return CEN_OK;
    case CEN_ACTION_SEGMENT_FREE:
    case CEN_ACTION_SEGMENT_UNMAP:
        s->reserved -= ev->size < s->reserved ? ev->size : s->reserved;
        return CEN_OK;
    default:
        return CEN_OK;
    }
}

static bool is_operation(const cen_trace_event *e) {
    return e->action == CEN_ACTION_ALLOC || e->action == CEN_ACTION_FREE_COMPLETED;
}

/* The second half begins at the event of the middle operation; 0: before the first event. */
static void find_half(const cen_snapshot_device *d, replay_recorded *r) {
    r->operations = d->initial_count;
    for (size_t i = 0; i < d->event_count; i++) {
        r->operations += is_operation(&d->events[i]);
    }
    size_t half = r->operations / 2, n = d->initial_count;
    for (size_t i = 0; i < d->event_count && n <= half; i++) {
        if (is_operation(&d->events[i]) && n++ == half) {
            r->half_event = i;
        }
    }
    int64_t first = d->event_count ? d->events[0].time_us : 0;
    int64_t last = d->event_count ? d->events[d->event_count - 1].time_us : 0;
    int64_t middle = d->event_count ? d->events[r->half_event].time_us : 0;
    if (first > 0 && last > first && middle >= first && middle <= last) {
        r->seconds = (double)(last - first) / 1e6;
        r->second_half_seconds = (double)(last - middle) / 1e6;
    }
}

static cen_status find_peaks(const cen_snapshot_device *d, replay_recorded *r) {
    state s;
    cen_status status = begin(&s, d);
    r->requested_peak_bytes = s.now;
    r->reserved_peak_bytes = s.reserved;
    for (size_t i = 0; i < d->event_count && !status; i++) {
        const cen_trace_event *ev = &d->events[i];
        status = step(&s, ev);
        double us = replay_segment_us(ev, &r->driver_calls);
        r->driver_seconds += us / 1e6;
        r->driver_second_half += i >= r->half_event ? us / 1e6 : 0;
        if (ev->action == CEN_ACTION_OOM) {
            r->oom = true;
            r->moment = i;
        }
        if (s.now > r->requested_peak_bytes) {
            r->requested_peak_bytes = s.now;
            r->moment = r->oom ? r->moment : i + 1;
        }
        if (s.reserved > r->reserved_peak_bytes) {
            r->reserved_peak_bytes = s.reserved;
        }
    }
    r->reserved_unknown = !r->reserved_peak_bytes && r->requested_peak_bytes;
    addrmap_free(&s.live);
    return status;
}

static cen_status find_hole(const cen_snapshot_device *d, replay_recorded *r) {
    state s;
    cen_status status = begin(&s, d);
    for (size_t i = 0; i < r->moment && !status; i++) {
        status = step(&s, &d->events[i]);
    }
    size_t mapped_count = 0, live_count = 0;
    range *mapped = status ? NULL : mapped_at(d, r->moment, &mapped_count);
    range *live = mapped ? live_ranges(&s.live, &live_count) : NULL;
    if (live) {
        r->largest_hole_bytes = largest_hole(mapped, mapped_count, live, live_count);
    } else {
        status = CEN_ERR_HOST_MEMORY;
    }
    free(live);
    free(mapped);
    addrmap_free(&s.live);
    return status;
}

cen_status replay_examine(const cen_snapshot_device *d, replay_recorded *recorded) {
    replay_recorded r = {0};
    find_half(d, &r);
    cen_status status = find_peaks(d, &r);
    if (!status) {
        status = find_hole(d, &r);
    }
    if (!status) {
        *recorded = r;
    }
    return status;
}
