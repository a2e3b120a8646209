/* Events: the host backend's, with the context they are of. One for other processes keeps a
 * descriptor, which its handle names.
 *
 * As CUDA does, another process's event stays incomplete when that process dies, and a stream that
 * waits for it never goes on. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "dev/host/host_int.h"
#include "tests/driver/td.h"

typedef struct td_event {
    cen_device *device;
    td_card *card;
    cen_event host;
    int fd;       /* for other processes, -1: none */
    bool foreign; /* another process's */
} td_event;

/* A handle of this driver's, in the driver's opaque bytes. */
typedef struct event_handle {
    char name[16];
    int pid, fd;
} event_handle;

static const char handle_name[16] = "test event";

static ceni_map live;

static cu_result find(cu_event handle, td_event *event) {
    pthread_mutex_lock(&td_lock);
    bool known = ceni_map_get(&live, (uintptr_t)handle);
    if (known) {
        *event = *(const td_event *)handle;
    }
    pthread_mutex_unlock(&td_lock);
    return known ? CU_SUCCESS : CU_ERROR_INVALID_HANDLE;
}

static void discard(td_event *event) {
    if (event->fd >= 0) {
        close(event->fd);
    }
    ceni_free(event);
}

/* Enters an event that the host made, or did not. */
static cu_result keep(td_event *made, cu_result result, cu_event *event) {
    if (result == CU_SUCCESS) {
        pthread_mutex_lock(&td_lock);
        result = ceni_map_put(&live, (uintptr_t)made, 1) ? CU_ERROR_OUT_OF_MEMORY : CU_SUCCESS;
        pthread_mutex_unlock(&td_lock);
        if (result != CU_SUCCESS) {
            ceni_backend_host.event_destroy(made->device, made->host);
        }
    }
    if (result == CU_SUCCESS) {
        *event = (cu_event)made;
    } else {
        discard(made);
    }
    return result;
}

cu_result cuEventCreate(cu_event *event, unsigned flags) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(event && flags < 8);
    TD_NEED(!(flags & CU_EVENT_FOR_OTHERS) || flags & CU_EVENT_NO_TIMING);
    td_event *made = ceni_calloc(1, sizeof *made);
    if (!made) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    made->card = context->card;
    made->device = context->card->device;
    made->fd = -1;
    unsigned wanted = flags & CU_EVENT_FOR_OTHERS  ? CEN_EVENT_SHARED
                      : flags & CU_EVENT_NO_TIMING ? 0
                                                   : CEN_EVENT_TIMING;
    cu_result result = td_result(ceni_backend_host.event_create(made->device, wanted, &made->host));
    if (result == CU_SUCCESS && wanted == CEN_EVENT_SHARED) {
        ceni_event_token unused;
        result =
            td_result(ceni_backend_host.event_export(made->device, made->host, &unused, &made->fd));
        if (result != CU_SUCCESS) {
            ceni_backend_host.event_destroy(made->device, made->host);
        }
    }
    return keep(made, result, event);
}

cu_result cuEventDestroy_v2(cu_event event) {
    td_event e;
    TD_TRY(td_enter(__func__));
    TD_TRY(find(event, &e));
    pthread_mutex_lock(&td_lock);
    ceni_map_remove(&live, (uintptr_t)event, NULL);
    pthread_mutex_unlock(&td_lock);
    discard((td_event *)event);
    return td_result(ceni_backend_host.event_destroy(e.device, e.host));
}

cu_result cuEventRecord(cu_event event, cu_stream stream) {
    td_context *context;
    td_event e;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_TRY(find(event, &e));
    TD_TRY(td_stream_for_work(context, stream, &s));
    if (s->context->card != e.card) {
        return CU_ERROR_INVALID_HANDLE;
    }
    return td_result(ceni_backend_host.event_record(e.device, e.host, s->host));
}

cu_result cuEventQuery(cu_event event) {
    td_event e;
    TD_TRY(td_enter(__func__));
    TD_TRY(find(event, &e));
    cen_status status = td_capture_mode == CU_CAPTURE_MODE_RELAXED
                            ? ceni_backend_host.event_peek(e.device, e.host)
                            : ceni_backend_host.event_query(e.device, e.host);
    return e.foreign && status == CEN_ERR_DEVICE_LOST ? CU_ERROR_NOT_READY : td_result(status);
}

cu_result cuEventSynchronize(cu_event event) {
    td_event e;
    TD_TRY(td_enter(__func__));
    TD_TRY(find(event, &e));
    TD_TRY(td_result(ceni_backend_host.event_sync(e.device, e.host)));
    td_pools_settle(e.card);
    return CU_SUCCESS;
}

cu_result cuEventElapsedTime(float *ms, cu_event start, cu_event end) {
    td_event from, to;
    TD_TRY(td_enter(__func__));
    TD_NEED(ms);
    TD_TRY(find(start, &from));
    TD_TRY(find(end, &to));
    cu_result result =
        td_result(ceni_backend_host.event_elapsed(from.device, from.host, to.host, ms));
    return result == CU_ERROR_INVALID_VALUE ? CU_ERROR_INVALID_HANDLE : result;
}

/* A record of another process's, to be waited for by a host function. */
typedef struct foreign_record {
    host_space *space;
    host_shared *shared;
    uint32_t number;
} foreign_record;

static void wait_record(void *arg) {
    foreign_record *r = arg;
    while (!ceni_host_shared_is_complete(r->shared, r->number)) {
        usleep(200);
    }
    pthread_mutex_lock(&r->space->run);
    ceni_host_shared_drop(r->shared);
    pthread_mutex_unlock(&r->space->run);
    ceni_free(r);
}

static cu_result wait_foreign(cen_device *device, cen_stream stream, cen_event event) {
    foreign_record *r = ceni_calloc(1, sizeof *r);
    if (!r) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    r->space = ((host_device *)device)->space;
    pthread_mutex_lock(&r->space->run);
    r->shared = ceni_host_shared_keep(ceni_host_event_find(r->space, "stream_wait", event)->shared);
    r->number = ceni_host_shared_latest(r->shared);
    pthread_mutex_unlock(&r->space->run);
    return td_result(ceni_backend_host.host_func(device, stream, wait_record, r));
}

cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags) {
    td_context *context;
    td_event e;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_TRY(find(event, &e));
    TD_TRY(td_stream_for_work(context, stream, &s));
    cen_device *device = s->context->card->device;
    return e.foreign ? wait_foreign(device, s->host, e.host)
                     : td_result(ceni_backend_host.stream_wait(device, s->host, e.host));
}

cu_result cuIpcGetEventHandle(cu_ipc_event *handle, cu_event event) {
    td_event e;
    TD_TRY(td_enter(__func__));
    TD_NEED(handle);
    TD_TRY(find(event, &e));
    if (e.fd < 0) {
        return CU_ERROR_INVALID_HANDLE;
    }
    event_handle made = {.pid = getpid(), .fd = e.fd};
    memcpy(made.name, handle_name, sizeof made.name);
    *handle = (cu_ipc_event){{0}};
    memcpy(handle->reserved, &made, sizeof made);
    return CU_SUCCESS;
}

cu_result cuIpcOpenEventHandle(cu_event *event, cu_ipc_event handle) {
    td_context *context;
    event_handle wanted;
    char path[64];
    TD_TRY(td_enter_context(__func__, &context));
    memcpy(&wanted, handle.reserved, sizeof wanted);
    TD_NEED(event && !memcmp(wanted.name, handle_name, sizeof wanted.name));
    if (wanted.pid == getpid()) {
        return CU_ERROR_INVALID_CONTEXT; /* as CUDA says */
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", wanted.pid, wanted.fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return CU_ERROR_UNKNOWN;
    }
    td_event *made = ceni_calloc(1, sizeof *made);
    if (!made) {
        close(fd);
        return CU_ERROR_OUT_OF_MEMORY;
    }
    *made = (td_event){
        .device = context->card->device, .card = context->card, .fd = -1, .foreign = true};
    const ceni_event_token unused = {{0}};
    cu_result result =
        td_result(ceni_backend_host.event_import(made->device, &unused, fd, &made->host));
    close(fd);
    return keep(made, result, event);
}
