/* Plays a recorded history through the pool, and takes the figures. */
#include "cli/replay.h"

#include <stdlib.h>
#include <string.h>

#include "cli/replay_player.h"

static uint64_t clock_of(void *arg) {
    return ((replay_player *)arg)->now_us;
}

static uint64_t margin(uint64_t cap, uint64_t reserved) {
    return cap > reserved ? cap - reserved : 0;
}

static void note_request(replay_player *p, size_t event, uint32_t stack, uint64_t size,
                         const cen_pool_stats *before) {
    replay_cap *c = &p->result.cap;
    c->at_request = true;
    c->event = event;
    c->stack = stack;
    c->requested_bytes = size;
    c->live_bytes = p->live_bytes;
    c->reserved_bytes = before->reserved_bytes;
    c->pending_bytes = before->pending_bytes;
}

/* What the pool would have had to hold for a request that the cap refused: it is asked again
 * without a cap, and its block kept: nothing follows. */
static cen_status find_lack(replay_player *p, uint64_t id, const cen_trace_event *ev) {
    replay_cap *c = &p->result.cap;
    uint64_t cap = p->options->cap_bytes, least = c->live_bytes + ev->size;
    cen_pool_stats s;
    cen_stream stream;
    void *block = NULL;
    cen_status status = cen_pool_set_limit(p->pool, 0);
    if (!status) {
        status = replay_stream(p, ev->stream, &stream);
    }
    if (!status) {
        status = replay_obtain(p, id, ev->size, stream, &block);
    }
    if (!status) {
        status = cen_pool_get_stats(p->pool, &s);
    }
    if (!status) {
        least = s.reserved_bytes;
    }
    c->margin_bytes = least > cap ? least - cap : 0;
    return status == CEN_ERR_DEVICE_MEMORY ? CEN_OK : status;
}

static cen_status note_lack(replay_player *p, replay_fit fit, size_t event,
                            const cen_trace_event *ev) {
    replay_cap *c = &p->result.cap;
    cen_pool_failure failure;
    cen_pool_stats s;
    cen_status status = cen_pool_last_failure(p->pool, &failure);
    c->largest_free_bytes = status ? 0 : failure.largest_free_bytes; /* none: larger than sense */
    status = cen_pool_get_stats(p->pool, &s);
    if (status) {
        return status;
    }
    note_request(p, event, ev->stack, ev->size, &s);
    c->fit = fit;
    return find_lack(p, fit == REPLAY_LACKS_SERVED ? replay_private(p, ev->addr) : 0, ev);
}

/* A request that failed when recorded: it is made, and given up at once, as the program had to. */
static cen_status play_oom(replay_player *p, size_t i) {
    const cen_trace_event *ev = &p->d->events[i];
    replay_cap *c = &p->result.cap;
    uint64_t cap = p->options->cap_bytes;
    cen_stream stream;
    cen_pool_stats before, after;
    void *block = NULL;
    if (!cap) {
        return CEN_OK;
    }
    cen_status status = replay_stream(p, ev->stream, &stream);
    if (!status) {
        status = cen_pool_get_stats(p->pool, &before);
    }
    if (status) {
        return status;
    }
    c->tried++;
    status = cen_pool_alloc(p->pool, ev->size, stream, &block);
    if (status == CEN_ERR_DEVICE_MEMORY) {
        return note_lack(p, REPLAY_LACKS_FAILED, i, ev);
    }
    if (!status) {
        status = cen_pool_get_stats(p->pool, &after);
    }
    if (!status) {
        c->served++;
        if (!c->at_request || margin(cap, after.reserved_bytes) <= c->margin_bytes) {
            note_request(p, i, ev->stack, ev->size, &before);
            c->margin_bytes = margin(cap, after.reserved_bytes);
        }
        status = cen_pool_free(p->pool, block, stream);
    }
    return status;
}

static void count_operation(replay_player *p) {
    cen_pool_stats s;
    if (p->operations++ == p->recorded->operations / 2 && !cen_pool_get_stats(p->pool, &s)) {
        p->half_cost_us = replay_pool_us(&s);
    }
}

/* Makes the call of an event that allocates; under a cap a lack of memory is an outcome. */
static cen_status play_alloc(replay_player *p, size_t event, const cen_trace_event *ev) {
    count_operation(p);
    cen_status status = replay_alloc(p, ev->addr, ev->size, ev->stream);
    if (status == CEN_ERR_DEVICE_MEMORY && p->options->cap_bytes) {
        return note_lack(p, REPLAY_LACKS_SERVED, event, ev);
    }
    return status;
}

static cen_status play_event(replay_player *p, size_t i) {
    const cen_trace_event *ev = &p->d->events[i];
    p->now_us = (uint64_t)ev->time_us;
    switch (ev->action) {
    case CEN_ACTION_ALLOC:
        return play_alloc(p, i, ev);
    case CEN_ACTION_FREE_REQUESTED:
        return p->in_use[i] ? replay_free_in_use(p, ev) : CEN_OK;
    case CEN_ACTION_FREE_COMPLETED:
        count_operation(p);
        return replay_free_completed(p, ev);
    case CEN_ACTION_SEGMENT_ALLOC:
        replay_segment_made(p, ev->addr);
        return CEN_OK;
    case CEN_ACTION_OOM:
        return play_oom(p, i);
    default:
        return CEN_OK;
    }
}

static cen_status note_moment(replay_player *p) {
    cen_pool_stats s;
    cen_status status = cen_pool_get_stats(p->pool, &s);
    if (!status) {
        p->result.largest_hole_bytes = s.largest_free_bytes;
    }
    return status;
}

/* Stops at what a cap refuses: what came after would not have come so. */
static cen_status play(replay_player *p) {
    const cen_snapshot_device *d = p->d;
    const replay_cap *c = &p->result.cap;
    cen_status status = CEN_OK;
    for (size_t i = 0; i < d->initial_count && !status && !c->fit; i++) {
        const cen_initial_block *b = &d->initial[i];
        const cen_trace_event born = {
            .addr = b->addr, .size = b->size, .stream = b->stream, .stack = b->stack};
        status = play_alloc(p, SIZE_MAX, &born);
    }
    for (size_t i = 0; i < d->event_count && !status && !c->fit; i++) {
        if (i == p->recorded->moment && (status = note_moment(p))) {
            break;
        }
        status = play_event(p, i);
    }
    if (!status && !c->fit && p->recorded->moment == d->event_count) {
        status = note_moment(p);
    }
    return status;
}

static cen_status finish(replay_player *p) {
    replay_result *r = &p->result;
    cen_pool_stats s;
    cen_status status = cen_pool_get_stats(p->pool, &s);
    if (!status) {
        status = cen_pool_verify(p->pool);
    }
    if (status) {
        return status;
    }
    double us = replay_pool_us(&s);
    r->reserved_peak_bytes = s.reserved_peak_bytes;
    r->remapped_bytes = s.remapped_bytes;
    r->driver_calls = s.driver_calls;
    r->driver_seconds = us / 1e6;
    r->driver_seconds_second_half = (us - p->half_cost_us) / 1e6;
    r->pending_frees = p->gate_count - p->open_count;
    r->private_ids = p->privates.count;
    if (p->options->cap_bytes && !r->cap.at_request) {
        r->cap.margin_bytes = margin(p->options->cap_bytes, s.reserved_peak_bytes);
    }
    return CEN_OK;
}

/* A device that is never full: what the pool holds is the question, not the limit. Its pages are
 * never touched, so they cost addresses only. */
static cen_status open_device(replay_player *p) {
    const replay_recorded *r = p->recorded;
    uint64_t unit = (uint64_t)2 << 20;
    uint64_t most = (uint64_t)1 << 46, peaks = r->reserved_peak_bytes + r->requested_peak_bytes;
    uint64_t room = peaks < most / 8 ? 4 * peaks + ((uint64_t)64 << 30) : most;
    bool threads = p->options->stream_delay_us;
    cen_host_options host = {
        .size = sizeof host,
        .devices = 1,
        .capacity = room / unit * unit,
        .granularity = unit,
        .stream_delay_us = p->options->stream_delay_us,
        .inline_streams = !threads,
        .never_wait = true,
    };
    return cen_device_open_host(0, &host, &p->device);
}

static cen_status open_pool(replay_player *p) {
    cen_pool_options pool = {
        .size = sizeof pool,
        .limit_bytes = p->options->cap_bytes,
        .page_bytes = p->options->page_bytes,
        .clock_us = clock_of,
        .clock_arg = p,
    };
    return cen_pool_create(p->device, &pool, &p->pool);
}

cen_status replay_run(const cen_snapshot_device *d, const replay_recorded *recorded,
                      const replay_options *options, replay_result *result) {
    replay_player p = {.d = d, .recorded = recorded, .options = options};
    p.now_us = d->event_count ? (uint64_t)d->events[0].time_us : 0;
    p.in_use = calloc(d->event_count + 1, sizeof *p.in_use);
    cen_status status = p.in_use ? replay_find_in_use(d, p.in_use) : CEN_ERR_HOST_MEMORY;
    if (!status) {
        status = replay_find_private(&p);
    }
    if (!status) {
        status = open_device(&p);
    }
    if (!status) {
        status = open_pool(&p);
    }
    if (!status) {
        status = play(&p);
    }
    if (!status) {
        status = finish(&p);
    }
    if (!status) {
        *result = p.result;
    }
    replay_open_gates(&p);
    cen_status closed = cen_pool_destroy(p.pool);
    cen_device_close(p.device);
    replay_forget(&p);
    return status ? status : closed;
}
