/* Stream capture, as far as an allocator meets it: while a stream of the device captures, any query
 * or wait breaks the capture, whichever stream or event it names; a stream that waits for an event
 * of the capture joins it. A graph is the operations in the order of recording, which is one of its
 * topological orders; it is replayed in that order on one stream. */
#include <string.h>

#include "dev/host/host_int.h"

static void graph_free(ceni_graph *graph) {
    for (host_op *op = graph->ops, *next; op; op = next) {
        next = op->next;
        ceni_host_op_free(op);
    }
    ceni_free(graph);
}

cen_status ceni_host_no_capture(host_device *device, const char *what) {
    bool capturing = false;
    for (host_stream *s = device->streams; s; s = s->next) {
        if (s->capture) {
            s->capture->broken = true;
            capturing = true;
        }
    }
    return capturing ? ceni_fail(CEN_ERR_CAPTURE, "%s while a stream of host:%d is capturing", what,
                                 device->base.ordinal)
                     : CEN_OK;
}

cen_status ceni_host_no_capture_unlocked(host_device *device, const char *what) {
    pthread_mutex_lock(&device->space->run);
    cen_status status = ceni_host_no_capture(device, what);
    pthread_mutex_unlock(&device->space->run);
    return status;
}

void ceni_host_capture_op(ceni_graph *graph, host_op *op) {
    if (op->kind == HOST_RECORD || op->kind == HOST_WAIT) {
        ceni_host_op_free(op); /* order within the graph is that of its list */
    } else {
        *graph->tail = op;
        graph->tail = &op->next;
    }
}

cen_status ceni_host_capture_join(host_stream *stream, const host_point *point) {
    for (host_stream *s = stream->device->streams; s; s = s->next) {
        if (s->capture && s->capture->id == point->capture) {
            if (stream->capture && stream->capture != s->capture) {
                s->capture->broken = stream->capture->broken = true;
                return ceni_fail(CEN_ERR_CAPTURE, "stream_wait: two captures cannot be joined");
            }
            stream->capture = s->capture;
            return CEN_OK;
        }
    }
    return ceni_fail(CEN_ERR_INVALID, "stream_wait: the event's capture has ended");
}

cen_status ceni_host_stream_capturing(cen_device *device, cen_stream stream, bool *capturing) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    host_stream *s = ceni_host_stream_get(d, stream);
    if (s) {
        *capturing = s->capture != NULL;
    }
    pthread_mutex_unlock(&d->space->run);
    return s ? CEN_OK : CEN_ERR_INVALID;
}

cen_status ceni_host_capture_begin(cen_device *device, cen_stream stream) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    ceni_graph *graph = status ? NULL : ceni_calloc(1, sizeof *graph);
    if (!graph) {
        return status ? status : ceni_fail(CEN_ERR_HOST_MEMORY, "capture: out of host memory");
    }
    pthread_mutex_lock(&d->space->run);
    host_stream *s = ceni_host_stream_get(d, stream);
    if (!s) {
        status = CEN_ERR_INVALID;
    } else if (s->capture) {
        status = ceni_fail(CEN_ERR_CAPTURE, "capture: the stream is capturing already");
    } else {
        graph->id = ++d->space->captures;
        graph->origin = s;
        graph->tail = &graph->ops;
        s->capture = graph;
    }
    pthread_mutex_unlock(&d->space->run);
    if (status) {
        ceni_free(graph);
    }
    return status;
}

/* Every stream leaves the capture. */
static void leave(host_device *device, const ceni_graph *graph) {
    for (host_stream *s = device->streams; s; s = s->next) {
        if (s->capture == graph) {
            s->capture = NULL;
        }
    }
}

cen_status ceni_host_capture_end(cen_device *device, cen_stream stream, ceni_graph **graph) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    host_stream *s = ceni_host_stream_get(d, stream);
    ceni_graph *ended = s ? s->capture : NULL;
    if (!ended || ended->origin != s) {
        status = ceni_fail(CEN_ERR_INVALID, "capture: the stream did not begin one");
    } else {
        leave(d, ended);
        if (ended->broken) {
            status = ceni_fail(CEN_ERR_CAPTURE, "capture: it was broken");
            graph_free(ended);
        } else {
            *graph = ended;
        }
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}

void ceni_host_captures_close(host_device *device) {
    for (host_stream *s = device->streams; s; s = s->next) {
        ceni_graph *graph = s->capture;
        if (graph) {
            leave(device, graph);
            graph_free(graph);
        }
    }
}

/* A copy of the graph's list, to be queued; NULL in *copy when host memory is exhausted. */
static cen_status copy_ops(const ceni_graph *graph, host_op **copy) {
    host_op **tail = copy;
    *copy = NULL;
    for (const host_op *op = graph->ops; op; op = op->next) {
        host_op *made = ceni_host_op_new(op->kind, op->data_size);
        if (!made) {
            return ceni_fail(CEN_ERR_HOST_MEMORY, "graph_launch: out of host memory");
        }
        memcpy(made, op, sizeof *op + op->data_size);
        made->next = NULL;
        *tail = made;
        tail = &made->next;
    }
    return CEN_OK;
}

cen_status ceni_host_graph_launch(cen_device *device, ceni_graph *graph, cen_stream stream) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&d->space->run);
    host_stream *s = ceni_host_stream_get(d, stream);
    host_op *ops = NULL;
    status = s ? copy_ops(graph, &ops) : CEN_ERR_INVALID;
    for (host_op *next; ops; ops = next) {
        next = ops->next;
        ops->next = NULL;
        if (status) {
            ceni_host_op_free(ops);
        } else {
            status = ceni_host_push(s, ops);
        }
    }
    pthread_mutex_unlock(&d->space->run);
    return status;
}

void ceni_host_graph_destroy(cen_device *device, ceni_graph *graph) {
    host_space *space = host_of(device)->space;
    pthread_mutex_lock(&space->run);
    graph_free(graph);
    pthread_mutex_unlock(&space->run);
}

cen_status ceni_host_stream_delay(cen_device *device, cen_stream stream, uint32_t us) {
    host_device *d = host_of(device);
    pthread_mutex_lock(&d->space->run);
    host_stream *s = ceni_host_stream_get(d, stream);
    if (s) {
        s->delay_us = us;
    }
    pthread_mutex_unlock(&d->space->run);
    return s ? CEN_OK : CEN_ERR_INVALID;
}

void ceni_host_lose(cen_device *device) {
    host_device *d = host_of(device);
    pthread_mutex_lock(&d->space->run);
    atomic_store(&d->error, CEN_ERR_DEVICE_LOST);
    pthread_cond_broadcast(&d->space->changed);
    ceni_host_pump(d->space);
    pthread_mutex_unlock(&d->space->run);
}
