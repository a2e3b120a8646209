#include "cli/replay.h"

#include <stdlib.h>
#include <string.h>

#include "cli/addrmap.h"

/* What driver calls cost beside running kernels on an H200, in microseconds (docs/design.md,
 * decision 3): by call and by handle, in the order of cen_pool_stats.driver_handles. */
static const double call_us[] = {10, 0, 0, 180, 125, 0};
static const double handle_us[] = {0, 130, 25, 40, 23, 100};

static double driver_seconds(const cen_pool_stats *s) {
    double us = 0;
    for (size_t i = 0; i < 6; i++) {
        us += call_us[i] * (double)s->driver_kind_calls[i] +
              handle_us[i] * (double)s->driver_handles[i];
    }
    return us / 1e6;
}

/* A stream of the host device for each recorded stream, and streams that wait at a gate: a block
 * that a stream still used when it was freed is used by such a stream until its gate opens. */
typedef struct stream_pair {
    uint64_t recorded;
    cen_stream stream;
} stream_pair;

typedef struct gate {
    cen_event event;
    cen_stream stream;
    struct gate *next;
} gate;

typedef struct player {
    const cen_snapshot_device *d;
    const replay_recorded *recorded;
    cen_device *device;
    cen_pool *pool;
    stream_pair *streams;
    size_t stream_count;
    gate *open_gates; /* to be used again */
    addrmap live;
    uint64_t live_bytes;
    uint64_t now_us;
    size_t operations, half;
    int64_t half_time;
    double half_cost;
    replay_result result;
} player;

static uint64_t clock_of(void *arg) {
    return ((player *)arg)->now_us;
}

static cen_status stream_of(player *p, uint64_t recorded, cen_stream *stream) {
    for (size_t i = 0; i < p->stream_count; i++) {
        if (p->streams[i].recorded == recorded) {
            *stream = p->streams[i].stream;
            return CEN_OK;
        }
    }
    stream_pair *grown = realloc(p->streams, (p->stream_count + 1) * sizeof *grown);
    if (!grown) {
        return CEN_ERR_HOST_MEMORY;
    }
    p->streams = grown;
    cen_status status = cen_stream_create(p->device, 0, stream);
    if (!status) {
        p->streams[p->stream_count++] = (stream_pair){recorded, *stream};
    }
    return status;
}

/* The private pool that an address belonged to at the end; 0: none. */
static uint64_t private_of(const cen_snapshot_device *d, uint64_t addr) {
    size_t low = 0, high = d->segment_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->segments[middle].addr + d->segments[middle].size <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == d->segment_count || d->segments[low].addr > addr) {
        return 0;
    }
    const int64_t *id = d->segments[low].pool_id;
    return id[0] || id[1] ? (uint64_t)id[0] << 32 ^ (uint64_t)id[1] : 0;
}

static void count_operation(player *p, int64_t time_us) {
    if (p->operations++ == p->half) {
        cen_pool_stats s;
        p->half_time = time_us;
        p->half_cost = cen_pool_get_stats(p->pool, &s) ? 0 : driver_seconds(&s);
    }
}

static cen_status play_alloc(player *p, uint64_t addr, uint64_t size, uint64_t recorded_stream) {
    cen_stream stream;
    cen_status status = stream_of(p, recorded_stream, &stream);
    uint64_t id = private_of(p->d, addr);
    if (!status && id) {
        status = cen_pool_capture_begin(p->pool, stream, id);
    }
    void *block = NULL;
    if (!status) {
        status = cen_pool_alloc(p->pool, size, stream, &block);
    }
    if (id && !status) {
        status = cen_pool_capture_end(p->pool, stream);
    }
    addrmap_entry *e = status ? NULL : addrmap_put(&p->live, addr);
    if (!status && !e) {
        status = CEN_ERR_HOST_MEMORY;
    }
    if (status) {
        return status;
    }
    p->live_bytes += size - e->size;
    e->size = size;
    e->block = block;
    e->gate = 0;
    if (p->live_bytes > p->result.requested_peak_bytes) {
        p->result.requested_peak_bytes = p->live_bytes;
    }
    return CEN_OK;
}

static cen_status close_gate(player *p, gate **out) {
    gate *g = p->open_gates;
    cen_status status = CEN_OK;
    if (g) {
        p->open_gates = g->next;
        (void)cen_event_destroy(p->device, g->event);
    } else if (!(g = calloc(1, sizeof *g))) {
        return CEN_ERR_HOST_MEMORY;
    } else {
        status = cen_stream_create(p->device, 0, &g->stream);
    }
    if (!status) {
        status = cen_event_create(p->device, CEN_EVENT_MANUAL, &g->event);
    }
    if (!status) {
        status = cen_stream_wait(p->device, g->stream, g->event);
    }
    *out = g;
    return status;
}

static cen_status play_free(player *p, const cen_trace_event *ev, bool completed) {
    addrmap_entry *e = addrmap_get(&p->live, ev->addr);
    if (!e) {
        p->result.skipped_frees += completed;
        return CEN_OK;
    }
    cen_stream stream;
    cen_status status = stream_of(p, ev->stream, &stream);
    if (!status && !completed) {
        gate *g;
        if (!(status = close_gate(p, &g)) &&
            !(status = cen_pool_use(p->pool, e->block, g->stream))) {
            status = cen_pool_free(p->pool, e->block, stream);
            e->gate = (uintptr_t)g;
        }
        return status;
    }
    if (!status && e->gate) {
        gate *g = (gate *)e->gate;
        status = cen_event_signal(p->device, g->event);
        g->next = p->open_gates;
        p->open_gates = g;
    } else if (!status) {
        status = cen_pool_free(p->pool, e->block, stream);
    }
    p->live_bytes -= e->size;
    addrmap_remove(&p->live, e);
    return status;
}

/* Whether the free requested by event `i` completed before the program allocated again: then
 * nothing used the block any more. */
static bool completes_at_once(const cen_snapshot_device *d, size_t i) {
    for (size_t k = i + 1; k < d->event_count && d->events[k].action != CEN_ACTION_ALLOC; k++) {
        if (d->events[k].action == CEN_ACTION_FREE_COMPLETED &&
            d->events[k].addr == d->events[i].addr) {
            return true;
        }
    }
    return false;
}

static void note_moment(player *p) {
    cen_pool_stats s;
    if (!cen_pool_get_stats(p->pool, &s)) {
        p->result.largest_hole_bytes = s.largest_free_bytes;
    }
}

static cen_status play_oom(player *p, const cen_trace_event *ev, uint64_t cap) {
    if (!cap || p->result.tried_oom) {
        return CEN_OK;
    }
    cen_stream stream;
    cen_status status = stream_of(p, ev->stream, &stream);
    void *block = NULL;
    if (status) {
        return status;
    }
    status = cen_pool_alloc(p->pool, ev->size, stream, &block);
    p->result.tried_oom = true;
    p->result.fits = status == CEN_OK;
    cen_pool_stats s = {0};
    (void)cen_pool_get_stats(p->pool, &s);
    if (p->result.fits) {
        p->result.spare_bytes = cap - s.reserved_bytes;
        return cen_pool_free(p->pool, block, stream);
    }
    uint64_t needed = p->live_bytes + ev->size;
    p->result.spare_bytes = needed > cap ? needed - cap : 0;
    return status == CEN_ERR_DEVICE_MEMORY ? CEN_OK : status;
}

static cen_status play_event(player *p, size_t i, uint64_t cap) {
    const cen_trace_event *ev = &p->d->events[i];
    p->now_us = (uint64_t)ev->time_us;
    switch (ev->action) {
    case CEN_ACTION_ALLOC:
        count_operation(p, ev->time_us);
        return play_alloc(p, ev->addr, ev->size, ev->stream);
    case CEN_ACTION_FREE_REQUESTED:
        return completes_at_once(p->d, i) ? CEN_OK : play_free(p, ev, false);
    case CEN_ACTION_FREE_COMPLETED:
        count_operation(p, ev->time_us);
        return play_free(p, ev, true);
    case CEN_ACTION_OOM:
        return play_oom(p, ev, cap);
    default:
        return CEN_OK;
    }
}

static cen_status play(player *p, uint64_t cap) {
    const cen_snapshot_device *d = p->d;
    cen_status status = CEN_OK;
    for (size_t i = 0; i < d->initial_count && !status; i++) {
        count_operation(p, (int64_t)p->now_us);
        status = play_alloc(p, d->initial[i].addr, d->initial[i].size, d->initial[i].stream);
    }
    for (size_t i = 0; i < d->event_count && !status; i++) {
        if (i == p->recorded->moment) {
            note_moment(p);
        }
        status = play_event(p, i, cap);
        if (status == CEN_ERR_DEVICE_MEMORY && cap) {
            p->result.failed_event = i;
            return CEN_OK;
        }
    }
    if (p->recorded->moment == d->event_count) {
        note_moment(p);
    }
    return status;
}

static size_t operations_of(const cen_snapshot_device *d) {
    size_t n = d->initial_count;
    for (size_t i = 0; i < d->event_count; i++) {
        n += d->events[i].action == CEN_ACTION_ALLOC ||
             d->events[i].action == CEN_ACTION_FREE_COMPLETED;
    }
    return n;
}

static void finish(player *p) {
    const cen_snapshot_device *d = p->d;
    replay_result *r = &p->result;
    cen_pool_stats s;
    if (cen_pool_get_stats(p->pool, &s)) {
        return;
    }
    int64_t first = d->events[0].time_us, last = d->events[d->event_count - 1].time_us;
    r->reserved_peak_bytes = s.reserved_peak_bytes;
    r->remapped_bytes = s.remapped_bytes;
    r->driver_calls = s.driver_calls;
    r->driver_seconds = driver_seconds(&s);
    r->driver_seconds_second_half = r->driver_seconds - p->half_cost;
    r->recorded_seconds = (double)(last - first) / 1e6;
    r->recorded_seconds_second_half = (double)(last - p->half_time) / 1e6;
}

static void clean_up(player *p) {
    for (size_t i = 0; i < p->live.capacity; i++) {
        addrmap_entry *e = &p->live.entries[i];
        if (e->used && e->gate) {
            gate *g = (gate *)e->gate;
            (void)cen_event_signal(p->device, g->event);
            g->next = p->open_gates;
            p->open_gates = g;
        }
    }
    while (p->open_gates) {
        gate *g = p->open_gates;
        p->open_gates = g->next;
        free(g);
    }
    (void)cen_pool_destroy(p->pool);
    cen_device_close(p->device);
    addrmap_free(&p->live);
    free(p->streams);
}

cen_status replay_run(const cen_snapshot_device *d, const replay_recorded *recorded,
                      const replay_options *options, replay_result *result) {
    uint64_t unit = (uint64_t)2 << 20;
    uint64_t room = 2 * recorded->reserved_peak_bytes + 2 * recorded->requested_peak_bytes;
    cen_host_options host = {
        .size = sizeof host,
        .devices = 1,
        .capacity = (room / unit + 1024) * unit,
        .granularity = unit,
        .inline_streams = true,
    };
    player p = {.d = d, .recorded = recorded, .result.failed_event = SIZE_MAX};
    p.now_us = (uint64_t)d->events[0].time_us;
    p.half = operations_of(d) / 2;
    cen_pool_options pool = {
        .size = sizeof pool,
        .limit_bytes = options->cap_bytes,
        .page_bytes = options->page_bytes,
        .clock_us = clock_of,
        .clock_arg = &p,
    };
    cen_status status = cen_device_open_host(0, &host, &p.device);
    if (!status) {
        status = cen_pool_create(p.device, &pool, &p.pool);
    }
    if (!status) {
        status = play(&p, options->cap_bytes);
    }
    if (!status) {
        status = cen_pool_verify(p.pool);
    }
    if (!status) {
        finish(&p);
        *result = p.result;
    }
    clean_up(&p);
    return status;
}
