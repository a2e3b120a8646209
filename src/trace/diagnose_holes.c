/* The segments as they were at the moment, and the holes in them.
 *
 * The final segments are known; undoing the segment events after the moment gives those of then. A
 * hole is a run of bytes that no live block asked for, so that holes add up to held - live,
 * rounding included. A segment belongs to its stream, and to the private pool that the final state
 * names; a segment given back since then counts as the default pool's. */
#include "trace/diagnose.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct range {
    uint64_t addr, end, stream;
    int64_t pool[2];
    bool expandable;
} range;

/* By address, none overlapping. */
typedef struct ranges {
    range *at;
    size_t count, capacity;
} ranges;

/* The first range that ends after addr. */
static size_t find(const ranges *r, uint64_t addr) {
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (r->at[mid].end <= addr) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static cen_status insert(ranges *r, size_t at, const range *range_) {
    if (ceni_grow(&r->at, &r->capacity, r->count + 1, sizeof *r->at)) {
        return CEN_ERR_HOST_MEMORY;
    }
    memmove(&r->at[at + 1], &r->at[at], (r->count - at) * sizeof *r->at);
    r->at[at] = *range_;
    r->count++;
    return CEN_OK;
}

static void erase(ranges *r, size_t at) {
    memmove(&r->at[at], &r->at[at + 1], (r->count - at - 1) * sizeof *r->at);
    r->count--;
}

/* Adds a range; expandable neighbours of one stream grow together. */
static cen_status add(ranges *r, const range *add_) {
    size_t at = find(r, add_->addr);
    if (add_->expandable && at > 0 && at <= r->count) {
        range *before = &r->at[at - 1];
        if (before->expandable && before->end == add_->addr && before->stream == add_->stream) {
            before->end = add_->end;
            if (at < r->count && r->at[at].expandable && r->at[at].addr == before->end &&
                r->at[at].stream == before->stream) {
                before->end = r->at[at].end;
                erase(r, at);
            }
            return CEN_OK;
        }
    }
    if (add_->expandable && at < r->count && r->at[at].expandable && r->at[at].addr == add_->end &&
        r->at[at].stream == add_->stream) {
        r->at[at].addr = add_->addr;
        return CEN_OK;
    }
    return insert(r, at, add_);
}

static cen_status cut(ranges *r, uint64_t addr, uint64_t end) {
    for (size_t at = find(r, addr); at < r->count && r->at[at].addr < end;) {
        range *hit = &r->at[at];
        if (hit->addr < addr && hit->end > end) {
            range rest = *hit;
            rest.addr = end;
            hit->end = addr;
            return insert(r, at + 1, &rest);
        }
        if (hit->addr < addr) {
            hit->end = addr;
            at++;
        } else if (hit->end > end) {
            hit->addr = end;
        } else {
            erase(r, at);
        }
    }
    return CEN_OK;
}

static cen_status segments_then(const ceni_diag *diag, ranges *r) {
    const cen_snapshot_device *dev = diag->source;
    cen_status status = CEN_OK;
    for (size_t i = 0; !status && i < dev->segment_count; i++) {
        const cen_snapshot_segment *s = &dev->segments[i];
        range seg = {
            s->addr, s->addr + s->size, s->stream, {s->pool_id[0], s->pool_id[1]}, s->expandable};
        status = add(r, &seg);
    }
    size_t until = diag->event == CENI_NO_INDEX ? 0 : diag->event + 1;
    for (size_t i = dev->event_count; !status && i > until; i--) {
        const cen_trace_event *e = &dev->events[i - 1];
        bool mapped = e->action == CEN_ACTION_SEGMENT_MAP || e->action == CEN_ACTION_SEGMENT_ALLOC;
        bool unmapped = e->action == CEN_ACTION_SEGMENT_UNMAP;
        if (mapped) {
            status = cut(r, e->addr, e->addr + e->size);
        } else if (unmapped || e->action == CEN_ACTION_SEGMENT_FREE) {
            range seg = {e->addr, e->addr + e->size, e->stream, {0, 0}, unmapped};
            status = add(r, &seg);
        }
    }
    return status;
}

static void count_hole(ceni_segment_group *g, uint64_t size) {
    g->holes += size;
    g->hole_count++;
    g->hole_largest = size > g->hole_largest ? size : g->hole_largest;
}

/* The group of a stream, or of a pool; made if new. NULL: no memory. */
static ceni_segment_group *group(ceni_segment_group **groups, size_t *count, const range *seg,
                                 bool pool) {
    for (size_t i = 0; i < *count; i++) {
        ceni_segment_group *g = &(*groups)[i];
        if (pool ? g->pool[0] == seg->pool[0] && g->pool[1] == seg->pool[1]
                 : g->stream == seg->stream) {
            return g;
        }
    }
    ceni_segment_group *grown = ceni_realloc(*groups, (*count + 1) * sizeof *grown);
    if (!grown) {
        return NULL;
    }
    *groups = grown;
    grown[*count] = (ceni_segment_group){.stream = seg->stream,
                                         .pool = {seg->pool[0], seg->pool[1]},
                                         .owner = {CENI_NO_INDEX, CENI_NO_INDEX}};
    return &grown[(*count)++];
}

/* Adds one segment's blocks and holes to the groups in `to` (up to three; NULL ends). */
static void count_segment(ceni_diag *diag, const range *seg, size_t *record,
                          ceni_segment_group *const to[3]) {
    uint64_t at = seg->addr;
    size_t holes = 0, first;
    while (*record < diag->record_count && diag->records[*record].addr < seg->addr) {
        ++*record;
    }
    first = *record;
    while (*record < diag->record_count && diag->records[*record].addr < seg->end) {
        ++*record;
    }
    for (size_t i = first; i <= *record; i++) {
        uint64_t next = i < *record ? diag->records[i].addr : seg->end;
        for (size_t g = 0; g < 3 && to[g]; g++) {
            if (next > at) {
                count_hole(to[g], next - at);
            }
            to[g]->live += i < *record ? diag->records[i].size : 0;
        }
        holes += next > at;
        at = i < *record ? next + diag->records[i].size : at;
    }
    for (size_t g = 0; g < 3 && to[g]; g++) {
        to[g]->bytes += seg->end - seg->addr;
        to[g]->segments++;
    }
    diag->segments_with_holes += holes != 0;
    diag->cached += first == *record ? seg->end - seg->addr : 0;
}

/* The two largest owners of each private pool. */
static cen_status pool_owners(ceni_diag *diag, const ranges *r) {
    uint64_t *bytes = ceni_malloc(diag->owner_count * sizeof *bytes);
    if (!bytes) {
        return CEN_ERR_HOST_MEMORY;
    }
    for (size_t p = 0; p < diag->pool_count; p++) {
        ceni_segment_group *pool = &diag->pools[p];
        memset(bytes, 0, diag->owner_count * sizeof *bytes);
        for (size_t i = 0; i < diag->record_count; i++) {
            size_t at = find(r, diag->records[i].addr);
            size_t owner = ceni_record_owner(diag, &diag->records[i]);
            if (at < r->count && owner != CENI_NO_INDEX && r->at[at].pool[0] == pool->pool[0] &&
                r->at[at].pool[1] == pool->pool[1] && r->at[at].addr <= diag->records[i].addr) {
                bytes[owner] += diag->records[i].size;
            }
        }
        for (size_t o = 0; o < diag->owner_count; o++) {
            size_t place = bytes[o] > pool->owner_bytes[0] ? 0 : 1;
            if (bytes[o] <= pool->owner_bytes[place]) {
                continue;
            }
            if (place == 0) {
                pool->owner[1] = pool->owner[0];
                pool->owner_bytes[1] = pool->owner_bytes[0];
            }
            pool->owner[place] = o;
            pool->owner_bytes[place] = bytes[o];
        }
        diag->in_pools += pool->bytes;
    }
    ceni_free(bytes);
    return CEN_OK;
}

static int by_held(const void *a, const void *b) {
    const ceni_segment_group *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : -(x->bytes > y->bytes);
}

cen_status ceni_diagnose_holes(ceni_diag *diag) {
    ranges r = {0};
    cen_status status = segments_then(diag, &r);
    size_t record = 0;
    for (size_t i = 0; !status && i < r.count; i++) {
        const range *seg = &r.at[i];
        ceni_segment_group *to[3] = {&diag->total, NULL, NULL};
        to[1] = group(&diag->streams, &diag->stream_count, seg, false);
        if (to[1] && (seg->pool[0] || seg->pool[1])) {
            to[2] = group(&diag->pools, &diag->pool_count, seg, true);
            status = to[2] ? CEN_OK : CEN_ERR_HOST_MEMORY;
        }
        if (!to[1] || status) {
            status = CEN_ERR_HOST_MEMORY;
            break;
        }
        count_segment(diag, seg, &record, to);
    }
    if (!status && diag->pool_count) {
        status = pool_owners(diag, &r);
        qsort(diag->pools, diag->pool_count, sizeof *diag->pools, by_held);
    }
    if (!status && diag->stream_count) {
        qsort(diag->streams, diag->stream_count, sizeof *diag->streams, by_held);
    }
    ceni_free(r.at);
    return status;
}
