/* Streams: queues that run in order. A threaded stream has a worker, started with its first
 * operation; an inline one is run by whoever makes its head runnable (ceni_host_pump), so that a
 * single-threaded program is deterministic. A wait is runnable once its point is done; everything
 * is, when the device was lost or is closing what nobody will signal.
 *
 * The default stream (0) is a stream like the others: it orders nothing but itself. */
#include <string.h>

#include "dev/host/host_int.h"

/* How long a wait for another process goes without asking whether it lives, or what else there is
 * to do. */
enum { WORKER_PAUSE_MS = 50, INLINE_PAUSE_MS = 5 };

cen_status ceni_host_ready(host_device *device) {
    switch (atomic_load_explicit(&device->error, memory_order_acquire)) {
    case CEN_OK:
        return CEN_OK;
    case CEN_ERR_FAULT:
        return ceni_fail(CEN_ERR_FAULT,
                         "host:%d: an earlier operation accessed memory it may not; close it",
                         device->base.ordinal);
    default:
        return ceni_fail(CEN_ERR_DEVICE_LOST, "host:%d is lost; close it", device->base.ordinal);
    }
}

static bool is_idle(const host_stream *stream) {
    return !stream->head && !stream->running;
}

static bool is_runnable(const host_stream *stream) {
    const host_op *op = stream->head;
    if (!op || stream->running) {
        return false;
    }
    return op->kind != HOST_WAIT || op->point->done || atomic_load(&stream->device->error) ||
           (stream->device->closing && op->point->manual) ||
           (op->point->foreign && ceni_host_foreign_done(op->point));
}

/* Runs the head, with `run` released meanwhile. */
static void run_head(host_stream *stream) {
    host_space *space = stream->device->space;
    host_op *op = stream->head;
    uint64_t delay = (uint64_t)stream->delay_us * 1000;
    stream->head = op->next;
    if (!stream->head) {
        stream->tail = &stream->head;
    }
    stream->running = true;
    pthread_mutex_unlock(&space->run);
    if (delay) {
        ceni_host_sleep_until(ceni_now_ns() + delay);
    }
    ceni_host_execute(stream, op);
    pthread_mutex_lock(&space->run);
    stream->running = false;
    if (op->kind == HOST_RECORD) {
        if (op->point->shared) {
            ceni_host_shared_reach(op->point, atomic_load(&stream->device->error));
        }
        ceni_host_point_done(space, op->point);
    }
    ceni_host_op_free(op);
    pthread_cond_broadcast(&space->changed);
}

static void stream_free(host_stream *stream) {
    host_stream **link = &stream->device->streams;
    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
    pthread_cond_destroy(&stream->work);
    ceni_free(stream);
}

static bool pump_device(host_device *device) {
    for (host_stream *s = device->streams; s; s = s->next) {
        if (is_runnable(s)) {
            run_head(s); /* the lists may have changed meanwhile: begin again */
            return true;
        }
    }
    return false;
}

void ceni_host_pump(host_space *space) {
    bool progress = true;
    while (progress) {
        progress = false;
        for (unsigned i = 0; i < HOST_DEVICES_MAX; i++) {
            host_device *device = space->devices[i];
            if (device && device->options.inline_streams) {
                progress = pump_device(device) || progress;
            }
        }
    }
}

/* The first wait for another process that an inline stream has come to. */
static host_point *foreign_head(const host_space *space) {
    for (unsigned i = 0; i < HOST_DEVICES_MAX; i++) {
        const host_device *device = space->devices[i];
        const host_stream *s = device && device->options.inline_streams ? device->streams : NULL;
        for (; s; s = s->next) {
            if (s->head && !s->running && s->head->kind == HOST_WAIT && s->head->point->foreign) {
                return s->head->point;
            }
        }
    }
    return NULL;
}

void ceni_host_wait_changed(host_space *space) {
    host_point *point = foreign_head(space);
    if (point) {
        ceni_host_foreign_pause(space, point, INLINE_PAUSE_MS);
        ceni_host_pump(space);
    } else {
        pthread_cond_wait(&space->changed, &space->run);
    }
}

void ceni_host_poll(host_device *device) {
    host_point *point = device->options.inline_streams ? foreign_head(device->space) : NULL;
    if (point) {
        ceni_host_foreign_pause(device->space, point, 0);
        ceni_host_pump(device->space);
    }
}

static void *work(void *arg) {
    host_stream *stream = arg;
    host_space *space = stream->device->space;
    pthread_mutex_lock(&space->run);
    while (stream->head || !stream->dying) {
        if (is_runnable(stream)) {
            bool completes = stream->head->kind == HOST_RECORD;
            run_head(stream);
            if (completes) {
                ceni_host_pump(space);
            }
        } else if (!stream->head) {
            pthread_cond_wait(&stream->work, &space->run);
        } else if (stream->head->point->foreign) {
            ceni_host_foreign_pause(space, stream->head->point, WORKER_PAUSE_MS);
        } else {
            ceni_host_wait_changed(space);
        }
    }
    stream->finished = true;
    pthread_cond_broadcast(&space->changed);
    pthread_mutex_unlock(&space->run);
    return NULL;
}

cen_status ceni_host_push(host_stream *stream, host_op *op) {
    if (stream->capture) {
        if (stream->capture->broken) {
            ceni_host_op_free(op);
            return ceni_fail(CEN_ERR_CAPTURE, "the stream's capture was broken; end it");
        }
        ceni_host_capture_op(stream->capture, op);
        return CEN_OK;
    }
    bool is_inline = stream->device->options.inline_streams;
    if (!is_inline && !stream->threaded) {
        int error = pthread_create(&stream->thread, NULL, work, stream);
        if (error) {
            ceni_host_op_free(op);
            return ceni_host_thread_failed(error);
        }
        stream->threaded = true;
    }
    *stream->tail = op;
    stream->tail = &op->next;
    if (is_inline) {
        ceni_host_pump(stream->device->space);
    } else {
        pthread_cond_signal(&stream->work);
    }
    return CEN_OK;
}

void ceni_host_wait_idle(host_stream *stream) {
    host_device *device = stream->device;
    while (!is_idle(stream) && !atomic_load(&device->error)) {
        ceni_host_wait_changed(device->space);
    }
}

bool ceni_host_would_hang(const host_device *device) {
    return device->options.inline_streams && device->options.never_wait;
}

/* Frees destroyed streams whose work is done; all of them once `wait` is set. */
static void reap(host_device *device, bool wait) {
    host_stream *next;
    for (host_stream *s = device->streams; s; s = next) {
        next = s->next;
        while (wait && s->dying && (s->threaded ? !s->finished : !is_idle(s))) {
            ceni_host_wait_changed(device->space);
        }
        if (s->dying && (s->threaded ? s->finished : is_idle(s))) {
            if (s->threaded) {
                pthread_join(s->thread, NULL); /* it only has to return */
            }
            stream_free(s);
        }
    }
}

static host_stream *stream_new(host_device *device, int priority) {
    host_stream *stream = ceni_calloc(1, sizeof *stream);
    if (stream) {
        stream->device = device;
        stream->priority = priority;
        stream->delay_us = device->options.stream_delay_us;
        stream->tail = &stream->head;
        pthread_cond_init(&stream->work, NULL);
    }
    return stream;
}

cen_status ceni_host_streams_open(host_device *device) {
    device->streams = stream_new(device, 0);
    return device->streams ? CEN_OK
                           : ceni_fail(CEN_ERR_HOST_MEMORY, "host device: out of host memory");
}

void ceni_host_streams_close(host_device *device) {
    host_space *space = device->space;
    pthread_mutex_lock(&space->run);
    device->closing = true;
    ceni_host_events_release_manual(device);
    ceni_host_captures_close(device);
    for (host_stream *s = device->streams; s; s = s->next) {
        ceni_host_handle_remove(&space->streams, s->handle);
        s->dying = true;
        pthread_cond_signal(&s->work);
    }
    pthread_cond_broadcast(&space->changed);
    ceni_host_pump(space);
    reap(device, true);
    ceni_host_events_close(device);
    pthread_mutex_unlock(&space->run);
}

host_stream *ceni_host_stream_get(host_device *device, cen_stream stream) {
    if (!stream) {
        return device->streams;
    }
    host_stream *s = ceni_host_handle_get(&device->space->streams, stream);
    if (!s || s->device != device) {
        ceni_log(CEN_LOG_ERROR, "stream 0x%llx is not one of host:%d", (unsigned long long)stream,
                 device->base.ordinal);
        return NULL;
    }
    return s;
}

cen_status ceni_host_stream_create(cen_device *device, int priority, cen_stream *stream) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
    host_stream *made = stream_new(d, priority);
    pthread_mutex_lock(&d->space->run);
    reap(d, false);
    uint64_t handle = made ? ceni_host_handle_add(&d->space->streams, made) : 0;
    if (handle) {
        made->handle = handle;
        made->next = d->streams->next;
        d->streams->next = made;
        *stream = handle;
    }
    pthread_mutex_unlock(&d->space->run);
    if (!handle) {
        ceni_free(made);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "stream_create: out of host memory");
    }
    return CEN_OK;
}

cen_status ceni_host_stream_destroy(cen_device *device, cen_stream stream) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    host_stream *s = ceni_host_stream_get(d, stream);
    if (!s) {
        status = CEN_ERR_INVALID;
    } else if (s->capture) {
        status = ceni_fail(CEN_ERR_CAPTURE, "stream_destroy: the stream is capturing");
    } else {
        ceni_host_handle_remove(&d->space->streams, stream);
        s->dying = true;
        pthread_cond_signal(&s->work);
        reap(d, false);
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}

cen_status ceni_host_stream_sync(cen_device *device, cen_stream stream) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    ceni_host_poll(d);
    host_stream *s = ceni_host_stream_get(d, stream);
    status = s ? ceni_host_no_capture(d, "stream_sync") : CEN_ERR_INVALID;
    if (!status && !is_idle(s) && ceni_host_would_hang(d)) {
        status = CEN_ERR_NOT_READY;
    } else if (!status) {
        ceni_host_wait_idle(s);
    }
    pthread_mutex_unlock(&d->space->run);
    return status ? status : ceni_host_ready(d);
}

cen_status ceni_host_stream_query(cen_device *device, cen_stream stream) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    ceni_host_poll(d);
    host_stream *s = ceni_host_stream_get(d, stream);
    status = s ? ceni_host_no_capture(d, "stream_query") : CEN_ERR_INVALID;
    if (!status && !is_idle(s)) {
        status = CEN_ERR_NOT_READY;
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}
