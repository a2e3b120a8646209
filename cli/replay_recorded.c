/* What a recording shows of the allocator that made it: peaks, the moment that matters, its holes.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/addrmap.h"
#include "cli/replay.h"

typedef struct range {
    uint64_t addr, size;
} range;

static int by_addr(const void *a, const void *b) {
    const range *x = a, *y = b;
    return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void sort(range *ranges, size_t count) {
    if (count) {
        qsort(ranges, count, sizeof *ranges, by_addr);
    }
}

/* The addresses mapped just before event `moment`: the final segments, rewound. An expandable
 * segment is several ranges here, as it was mapped. */
static range *mapped_at(const cen_snapshot_device *d, size_t moment, size_t *count) {
    addrmap removed = {0};
    range *ranges = calloc(d->segment_count + d->event_count + 1, sizeof *ranges);
    *count = 0;
    for (size_t i = d->event_count; ranges && i-- > moment;) {
        const cen_trace_event *e = &d->events[i];
        if (e->action == CEN_ACTION_SEGMENT_FREE || e->action == CEN_ACTION_SEGMENT_UNMAP) {
            ranges[(*count)++] = (range){e->addr, e->size};
        } else if (e->action == CEN_ACTION_SEGMENT_ALLOC || e->action == CEN_ACTION_SEGMENT_MAP) {
            addrmap_entry *r = addrmap_put(&removed, e->addr);
            if (r) {
                r->size = e->size;
            }
        }
    }
    for (size_t i = 0; ranges && i < d->segment_count; i++) {
        const cen_snapshot_segment *s = &d->segments[i];
        uint64_t at = s->addr, end = s->addr + s->size;
        for (const addrmap_entry *r; at < end && (r = addrmap_get(&removed, at)) && r->size;) {
            at += r->size;
        }
        if (at < end) {
            ranges[(*count)++] = (range){at, end - at};
        }
    }
    addrmap_free(&removed);
    if (ranges) {
        sort(ranges, *count);
    }
    return ranges;
}

static uint64_t largest_hole(const range *mapped, size_t mapped_count, const range *live,
                             size_t live_count) {
    uint64_t largest = 0;
    size_t k = 0;
    for (size_t i = 0; i < mapped_count; i++) {
        uint64_t at = mapped[i].addr, end = mapped[i].addr + mapped[i].size;
        while (k < live_count && live[k].addr + live[k].size <= at) {
            k++;
        }
        for (size_t j = k; j < live_count && live[j].addr < end; j++) {
            if (live[j].addr > at && live[j].addr - at > largest) {
                largest = live[j].addr - at;
            }
            uint64_t after = live[j].addr + (live[j].size + 511) / 512 * 512;
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
    if (ranges) {
        sort(ranges, *count);
    }
    return ranges;
}

/* Goes through the events up to `stop`, keeping what is live and the figures. */
static cen_status go_through(const cen_snapshot_device *d, size_t stop, addrmap *live,
                             replay_recorded *r) {
    uint64_t now = 0, reserved = d->initial_reserved;
    for (size_t i = 0; i < d->initial_count; i++) {
        addrmap_entry *e = addrmap_put(live, d->initial[i].addr);
        if (!e) {
            return CEN_ERR_HOST_MEMORY;
        }
        e->size = d->initial[i].size;
        now += e->size;
    }
    r->requested_peak_bytes = now;
    r->reserved_peak_bytes = reserved;
    for (size_t i = 0; i < stop; i++) {
        const cen_trace_event *ev = &d->events[i];
        addrmap_entry *e;
        switch (ev->action) {
        case CEN_ACTION_ALLOC:
            if (!(e = addrmap_put(live, ev->addr))) {
                return CEN_ERR_HOST_MEMORY;
            }
            now += ev->size - e->size;
            e->size = ev->size;
            break;
        case CEN_ACTION_FREE_COMPLETED:
            if ((e = addrmap_get(live, ev->addr))) {
                now -= e->size;
                addrmap_remove(live, e);
            }
            break;
        case CEN_ACTION_SEGMENT_ALLOC:
        case CEN_ACTION_SEGMENT_MAP:
            reserved += ev->size;
            r->driver_calls++;
            break;
        case CEN_ACTION_SEGMENT_FREE:
        case CEN_ACTION_SEGMENT_UNMAP:
            reserved -= ev->size;
            r->driver_calls++;
            break;
        case CEN_ACTION_OOM:
            if (!r->oom) {
                r->oom = true;
                r->moment = i;
                r->oom_requested_bytes = ev->size;
                r->oom_live_bytes = now;
                r->oom_stream = ev->stream;
            }
            break;
        default:
            break;
        }
        if (now > r->requested_peak_bytes) {
            r->requested_peak_bytes = now;
            r->moment = r->oom ? r->moment : i + 1;
        }
        r->reserved_peak_bytes =
            reserved > r->reserved_peak_bytes ? reserved : r->reserved_peak_bytes;
    }
    return CEN_OK;
}

cen_status replay_examine(const cen_snapshot_device *d, replay_recorded *recorded) {
    addrmap live = {0};
    replay_recorded r = {0}, ignored = {0};
    cen_status status = go_through(d, d->event_count, &live, &r);
    addrmap_free(&live);
    if (!status) {
        status = go_through(d, r.moment, &live, &ignored);
    }
    size_t mapped_count, live_count;
    range *mapped = status ? NULL : mapped_at(d, r.moment, &mapped_count);
    range *blocks = mapped ? live_ranges(&live, &live_count) : NULL;
    if (!status && !blocks) {
        status = CEN_ERR_HOST_MEMORY;
    }
    if (!status) {
        r.largest_hole_bytes = largest_hole(mapped, mapped_count, blocks, live_count);
        *recorded = r;
    }
    free(blocks);
    free(mapped);
    addrmap_free(&live);
    return status;
}
