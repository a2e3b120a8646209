/* The calls of the pool that recorded events amount to, and the gates that stand for streams which
 * still use a block. */
#include <stdlib.h>
#include <string.h>

#include "cli/replay_player.h"

static void observe(const replay_player *p, replay_act act, const addrmap_entry *e,
                    cen_stream stream) {
    if (p->options->observe && e->block) {
        replay_call call = {act,     p->device, p->pool, (cen_addr)(uintptr_t)e->block,
                            e->size, stream};
        p->options->observe(p->options->observe_arg, &call);
    }
}

/* A free that completes before the program allocates again is of a block that nothing used any
 * more; the others are marked in `in_use`, by event. */
cen_status replay_find_in_use(const cen_snapshot_device *d, bool *in_use) {
    addrmap requested = {0}; /* address -> event of the request, and allocs until then */
    size_t allocs = 0;
    cen_status status = CEN_OK;
    for (size_t i = 0; i < d->event_count && !status; i++) {
        const cen_trace_event *ev = &d->events[i];
        addrmap_entry *e = NULL;
        if (ev->action == CEN_ACTION_ALLOC) {
            allocs++;
        } else if (ev->action == CEN_ACTION_FREE_REQUESTED) {
            in_use[i] = true;
            if (!(e = addrmap_put(&requested, ev->addr))) {
                status = CEN_ERR_HOST_MEMORY;
            } else {
                e->size = allocs;
                e->block = &in_use[i];
            }
        } else if (ev->action == CEN_ACTION_FREE_COMPLETED &&
                   (e = addrmap_get(&requested, ev->addr))) {
            *(bool *)e->block = e->size != allocs;
            addrmap_remove(&requested, e);
        }
    }
    addrmap_free(&requested);
    return status;
}

cen_status replay_stream(replay_player *p, uint64_t recorded, cen_stream *stream) {
    addrmap_entry *e = addrmap_get(&p->streams, recorded);
    cen_status status = CEN_OK;
    if (!e) {
        cen_stream made;
        if ((status = cen_stream_create(p->device, 0, &made))) {
            return status;
        }
        if (!(e = addrmap_put(&p->streams, recorded))) {
            return CEN_ERR_HOST_MEMORY;
        }
        e->size = made;
    }
    *stream = (cen_stream)e->size;
    return CEN_OK;
}

/* The final segment that an address lies in, or NULL. */
static const cen_snapshot_segment *segment_of(const cen_snapshot_device *d, uint64_t addr) {
    size_t low = 0, high = d->segment_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->segments[middle].addr + d->segments[middle].size <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < d->segment_count && d->segments[low].addr <= addr ? &d->segments[low] : NULL;
}

static bool is_private(const cen_snapshot_segment *s) {
    return s && (s->pool_id[0] || s->pool_id[1]);
}

cen_status replay_find_private(replay_player *p) {
    for (size_t i = 0; i < p->d->event_count; i++) {
        const cen_trace_event *ev = &p->d->events[i];
        if (ev->action == CEN_ACTION_SEGMENT_ALLOC && is_private(segment_of(p->d, ev->addr))) {
            addrmap_entry *e = addrmap_put(&p->unmade, ev->addr);
            if (!e) {
                return CEN_ERR_HOST_MEMORY;
            }
            e->size++;
        }
    }
    return CEN_OK;
}

void replay_segment_made(replay_player *p, uint64_t addr) {
    addrmap_entry *e = addrmap_get(&p->unmade, addr);
    if (e && e->size) {
        e->size--;
    }
}

uint64_t replay_private(const replay_player *p, uint64_t addr) {
    const cen_snapshot_segment *s = segment_of(p->d, addr);
    const addrmap_entry *unmade = is_private(s) ? addrmap_get(&p->unmade, s->addr) : NULL;
    if (!is_private(s) || (unmade && unmade->size)) {
        return 0;
    }
    uint64_t mixed = (uint64_t)s->pool_id[0] << 32 ^ (uint64_t)s->pool_id[1];
    return mixed + !mixed;
}

cen_status replay_obtain(replay_player *p, uint64_t id, uint64_t size, cen_stream stream,
                         void **block) {
    if (!id) {
        return cen_pool_alloc(p->pool, size, stream, block);
    }
    addrmap_entry *e = addrmap_put(&p->privates, id);
    cen_status status = e ? CEN_OK : CEN_ERR_HOST_MEMORY;
    if (!status) {
        status = cen_pool_capture_begin(p->pool, stream, id);
    }
    if (status) {
        return status;
    }
    status = cen_pool_alloc(p->pool, size, stream, block);
    cen_status ended = cen_pool_capture_end(p->pool, stream);
    return status ? status : ended;
}

cen_status replay_alloc(replay_player *p, uint64_t addr, uint64_t size, uint64_t recorded_stream) {
    cen_stream stream;
    cen_status status = replay_stream(p, recorded_stream, &stream);
    void *block = NULL;
    if (!status) {
        status = replay_obtain(p, replay_private(p, addr), size, stream, &block);
    }
    if (status) {
        return status;
    }
    addrmap_entry *e = addrmap_put(&p->live, addr);
    if (!e) {
        return CEN_ERR_HOST_MEMORY;
    }
    p->result.lost_frees += e->size || e->block;
    p->live_bytes += size;
    *e = (addrmap_entry){.key = addr, .size = size, .block = block, .used = true};
    if (p->live_bytes > p->result.requested_peak_bytes) {
        p->result.requested_peak_bytes = p->live_bytes;
    }
    observe(p, REPLAY_ALLOCATED, e, stream);
    return CEN_OK;
}

static cen_status new_gate(replay_player *p, uint32_t *gate) {
    if (p->gate_count + 1 >= p->gate_capacity) {
        size_t capacity = p->gate_capacity ? p->gate_capacity * 2 : 64;
        replay_gate *gates = realloc(p->gates, capacity * sizeof *gates);
        uint32_t *open = gates ? realloc(p->open, capacity * sizeof *open) : NULL;
        p->gates = gates ? gates : p->gates;
        if (!open) {
            return CEN_ERR_HOST_MEMORY;
        }
        p->open = open;
        p->gate_capacity = capacity;
    }
    replay_gate g = {0};
    cen_status status = cen_stream_create(p->device, 0, &g.stream);
    if (!status) {
        status = cen_event_create(p->device, CEN_EVENT_MANUAL, &g.event);
    }
    if (!status) {
        p->gates[++p->gate_count] = g;
        *gate = (uint32_t)p->gate_count;
    }
    return status;
}

static void open_gate(replay_player *p, uint32_t gate) {
    (void)cen_event_signal(p->device, p->gates[gate].event);
    p->gates[gate].closed = false;
    p->open[p->open_count++] = gate;
}

static cen_status close_gate(replay_player *p, uint32_t *gate) {
    cen_status status = CEN_OK;
    if (p->open_count) {
        *gate = p->open[--p->open_count];
    } else if ((status = new_gate(p, gate))) {
        return status;
    }
    replay_gate *g = &p->gates[*gate];
    status = cen_event_record(p->device, g->event, g->stream); /* pending again */
    g->closed = true;
    return status ? status : cen_stream_wait(p->device, g->stream, g->event);
}

cen_status replay_free_in_use(replay_player *p, const cen_trace_event *ev) {
    addrmap_entry *e = addrmap_get(&p->live, ev->addr);
    cen_stream stream;
    uint32_t gate;
    if (!e || !e->block || e->gate) {
        return CEN_OK;
    }
    cen_status status = replay_stream(p, ev->stream, &stream);
    if (!status) {
        status = close_gate(p, &gate);
    }
    if (!status) {
        status = cen_pool_use(p->pool, e->block, p->gates[gate].stream);
    }
    if (!status) {
        observe(p, REPLAY_FREEING, e, p->gates[gate].stream);
        e->gate = gate;
        status = cen_pool_free(p->pool, e->block, stream);
    }
    return status;
}

cen_status replay_free_completed(replay_player *p, const cen_trace_event *ev) {
    addrmap_entry *e = addrmap_get(&p->live, ev->addr);
    if (!e) {
        p->result.unknown_frees++;
        return CEN_OK;
    }
    cen_stream stream;
    cen_status status = replay_stream(p, ev->stream, &stream);
    if (!status && e->gate) {
        observe(p, REPLAY_ENDED, e, p->gates[e->gate].stream);
        open_gate(p, e->gate);
    } else if (!status) {
        observe(p, REPLAY_FREEING, e, stream);
        observe(p, REPLAY_ENDED, e, stream);
        status = cen_pool_free(p->pool, e->block, stream);
    }
    p->live_bytes -= e->size;
    addrmap_remove(&p->live, e);
    return status;
}

void replay_open_gates(replay_player *p) {
    for (uint32_t i = 1; i <= p->gate_count; i++) {
        if (p->gates[i].closed) {
            open_gate(p, i);
        }
    }
}

void replay_forget(replay_player *p) {
    addrmap_free(&p->live);
    addrmap_free(&p->streams);
    addrmap_free(&p->privates);
    addrmap_free(&p->unmade);
    free(p->gates);
    free(p->open);
    free(p->in_use);
}
