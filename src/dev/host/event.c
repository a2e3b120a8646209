/* Events. Each record makes a point; who waits keeps the point it saw, so that recording the event
 * again changes nothing for earlier waits. A manual event's point is done by cen_event_signal, and
 * stays the same when the event is recorded while it is pending. */
#include "dev/host/host_int.h"

host_point *ceni_host_point_new(bool manual) {
    host_point *point = ceni_calloc(1, sizeof *point);
    if (point) {
        point->refs = 1;
        point->manual = manual;
    }
    return point;
}

void ceni_host_point_drop(host_point *point) {
    if (point && --point->refs == 0) {
        ceni_host_shared_drop(point->shared);
        ceni_free(point);
    }
}

void ceni_host_point_done(host_space *space, host_point *point) {
    if (!point->ns) {
        point->ns = ceni_now_ns();
    }
    point->done = true;
    pthread_cond_broadcast(&space->changed);
}

host_event *ceni_host_event_find(host_space *space, const char *what, cen_event event) {
    host_event *found = ceni_host_handle_get(&space->events, event);
    if (!found) {
        ceni_log(CEN_LOG_ERROR, "%s: event 0x%llx does not exist", what, (unsigned long long)event);
    }
    return found;
}

static void event_free(host_space *space, cen_event handle, host_event *event) {
    ceni_host_handle_remove(&space->events, handle);
    ceni_host_point_drop(event->point);
    ceni_host_shared_drop(event->shared);
    ceni_free(event);
}

void ceni_host_events_close(host_device *device) {
    host_space *space = device->space;
    for (size_t i = 0; i < space->events.count; i++) {
        uint64_t handle = ceni_host_handle_at(&space->events, i);
        host_event *event = handle ? ceni_host_handle_get(&space->events, handle) : NULL;
        if (event && event->device == device) {
            event_free(space, handle, event);
        }
    }
}

void ceni_host_events_release_manual(host_device *device) {
    host_space *space = device->space;
    for (size_t i = 0; i < space->events.count; i++) {
        uint64_t handle = ceni_host_handle_at(&space->events, i);
        host_event *event = handle ? ceni_host_handle_get(&space->events, handle) : NULL;
        if (event && event->device == device && event->point && event->point->manual) {
            ceni_host_point_done(space, event->point);
        }
    }
}

cen_status ceni_host_event_add(host_device *device, unsigned flags, host_point *point,
                               host_shared *shared, cen_event *event) {
    host_event *made = ceni_calloc(1, sizeof *made);
    uint64_t handle = made ? ceni_host_handle_add(&device->space->events, made) : 0;
    if (!handle) {
        ceni_host_point_drop(point);
        ceni_host_shared_drop(shared);
        ceni_free(made);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "event: out of host memory");
    }
    *made = (host_event){.device = device, .flags = flags, .point = point, .shared = shared};
    *event = handle;
    return CEN_OK;
}

cen_status ceni_host_event_create(cen_device *device, unsigned flags, cen_event *event) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    host_point *point = NULL;
    host_shared *shared = NULL;
    if (flags & CEN_EVENT_MANUAL && !(point = ceni_host_point_new(true))) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "event_create: out of host memory");
    }
    pthread_mutex_lock(&d->space->run);
    status = flags & CEN_EVENT_SHARED ? ceni_host_shared_new(&shared) : CEN_OK;
    status = status ? status : ceni_host_event_add(d, flags, point, shared, event);
    pthread_mutex_unlock(&d->space->run);
    return status;
}

cen_status ceni_host_event_destroy(cen_device *device, cen_event event) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    host_event *e = ceni_host_event_find(d->space, "event_destroy", event);
    if (e) {
        event_free(d->space, event, e);
    } else {
        status = CEN_ERR_INVALID;
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}

/* A point that the stream reaches: at once noted in the event, done when the stream gets there. */
static cen_status record(host_event *event, host_stream *stream) {
    if (event->shared && stream->capture) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "event_record: a shared event, in a capture");
    }
    host_point *point = ceni_host_point_new(false);
    host_op *op = ceni_host_op_new(HOST_RECORD, 0);
    if (!point || !op) {
        ceni_host_point_drop(point);
        ceni_free(op);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "event_record: out of host memory");
    }
    point->capture = stream->capture ? stream->capture->id : 0;
    point->refs = 2;
    op->point = point;
    host_point *before = event->point;
    event->point = point; /* first: an inline stream runs it within the push */
    if (event->shared) {
        ceni_host_shared_record(event->shared, point);
    }
    cen_status status = ceni_host_push(stream, op);
    if (status) {
        event->point = before;
        if (event->shared) {
            ceni_host_shared_reach(point, false); /* the number stands for nothing */
        }
        ceni_host_point_drop(point);
    } else {
        ceni_host_point_drop(before);
    }
    return status;
}

static cen_status record_manual(host_event *event) {
    if (!event->point->done) {
        return CEN_OK;
    }
    host_point *point = ceni_host_point_new(true);
    if (!point) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "event_record: out of host memory");
    }
    ceni_host_point_drop(event->point);
    event->point = point;
    return CEN_OK;
}

cen_status ceni_host_event_record(cen_device *device, cen_event event, cen_stream stream) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    host_event *e = ceni_host_event_find(d->space, "event_record", event);
    host_stream *s = e ? ceni_host_stream_get(d, stream) : NULL;
    if (!s) {
        status = CEN_ERR_INVALID;
    } else if (e->device != d) {
        status = ceni_fail(CEN_ERR_INVALID, "event_record: the event is of host:%d, not host:%d",
                           e->device->base.ordinal, device->ordinal);
    } else if (e->shared && ceni_host_shared_is_import(e->shared)) {
        status = ceni_fail(CEN_ERR_INVALID, "event_record: the event is another process's");
    } else {
        status = e->flags & CEN_EVENT_MANUAL ? record_manual(e) : record(e, s);
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}

/* The event's point for a query or sync; NULL in *point when it was never recorded, or is another
 * process's and complete. (locked) */
static cen_status settled_point(host_device *device, const char *what, cen_event event, bool wait,
                                host_point **point) {
    host_event *e = ceni_host_event_find(device->space, what, event);
    if (!e) {
        return CEN_ERR_INVALID;
    }
    if (e->point && e->point->capture) {
        return ceni_fail(CEN_ERR_INVALID, "%s: the event was recorded in a capture", what);
    }
    if (e->shared && ceni_host_shared_is_import(e->shared)) {
        return ceni_host_foreign_settle(device, what, e->shared, wait);
    }
    *point = e->point;
    return CEN_OK;
}

/* `breaks`: every capture of the device. */
static cen_status look(cen_device *device, const char *what, cen_event event, bool breaks) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    host_point *point = NULL;
    pthread_mutex_lock(&d->space->run);
    ceni_host_poll(d);
    status = breaks ? ceni_host_no_capture(d, what) : CEN_OK;
    status = status ? status : settled_point(d, what, event, false, &point);
    if (!status && point && !point->done) {
        status = CEN_ERR_NOT_READY;
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}

cen_status ceni_host_event_query(cen_device *device, cen_event event) {
    return look(device, "event_query", event, true);
}

cen_status ceni_host_event_peek(cen_device *device, cen_event event) {
    return look(device, "event_peek", event, false);
}

cen_status ceni_host_event_sync(cen_device *device, cen_event event) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    host_point *point = NULL;
    pthread_mutex_lock(&d->space->run);
    ceni_host_poll(d);
    status = ceni_host_no_capture(d, "event_sync");
    status = status ? status : settled_point(d, "event_sync", event, true, &point);
    if (!status && point && !point->done && ceni_host_would_hang(d)) {
        status = CEN_ERR_NOT_READY;
    } else if (!status && point) {
        point->refs++;
        while (!point->done && !atomic_load(&d->error)) {
            ceni_host_wait_changed(d->space);
        }
        ceni_host_point_drop(point);
    }
    pthread_mutex_unlock(&d->space->run);
    return status ? status : ceni_host_ready(d);
}

cen_status ceni_host_event_signal(cen_device *device, cen_event event) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    host_event *e = ceni_host_event_find(d->space, "event_signal", event);
    if (!e) {
        status = CEN_ERR_INVALID;
    } else if (!(e->flags & CEN_EVENT_MANUAL)) {
        status = ceni_fail(CEN_ERR_INVALID, "event_signal: the event is not CEN_EVENT_MANUAL");
    } else {
        ceni_host_point_done(d->space, e->point);
        ceni_host_pump(d->space);
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}

static bool has_time(const host_event *event) {
    return event->flags & CEN_EVENT_TIMING && event->point && !event->point->capture;
}

cen_status ceni_host_event_elapsed(cen_device *device, cen_event start, cen_event end, float *ms) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    host_event *from = ceni_host_event_find(d->space, "event_elapsed", start);
    host_event *to = from ? ceni_host_event_find(d->space, "event_elapsed", end) : NULL;
    if (!to) {
        status = CEN_ERR_INVALID;
    } else if (!has_time(from) || !has_time(to)) {
        status =
            ceni_fail(CEN_ERR_INVALID, "event_elapsed: %s was not recorded with CEN_EVENT_TIMING",
                      has_time(from) ? "end" : "start");
    } else if (!from->point->done || !to->point->done) {
        status = CEN_ERR_NOT_READY;
    } else {
        *ms = (float)((double)(int64_t)(to->point->ns - from->point->ns) / 1e6);
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}

/* Makes the stream wait for a point. (locked) */
static cen_status wait_for(host_stream *stream, host_point *point) {
    if (!point) {
        return CEN_OK;
    }
    if (point->capture) {
        return ceni_host_capture_join(stream, point);
    }
    if (stream->capture) {
        stream->capture->broken = true;
        return ceni_fail(CEN_ERR_CAPTURE,
                         "stream_wait: a capturing stream cannot wait for work outside of it");
    }
    if (point->done && !stream->head) {
        return CEN_OK;
    }
    host_op *op = ceni_host_op_new(HOST_WAIT, 0);
    if (!op) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "stream_wait: out of host memory");
    }
    point->refs++;
    op->point = point;
    return ceni_host_push(stream, op);
}

cen_status ceni_host_stream_wait(cen_device *device, cen_stream stream, cen_event event) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    host_stream *s = ceni_host_stream_get(d, stream);
    host_event *e = s ? ceni_host_event_find(d->space, "stream_wait", event) : NULL;
    if (!e) {
        status = CEN_ERR_INVALID;
    } else if (e->shared && ceni_host_shared_is_import(e->shared)) {
        host_point *point = ceni_host_foreign_point(e->shared);
        status = point ? wait_for(s, point)
                       : ceni_fail(CEN_ERR_HOST_MEMORY, "stream_wait: out of host memory");
        ceni_host_point_drop(point);
    } else {
        status = wait_for(s, e->point);
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}
