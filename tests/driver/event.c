/* Events: the host backend's, with the context they are of. */
#include "base/mem.h"
#include "tests/driver/td.h"

typedef struct td_event {
    cen_device *device;
    td_card *card;
    cen_event host;
} td_event;

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

cu_result cuEventCreate(cu_event *event, unsigned flags) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(event && flags < 8);
    td_event *made = ceni_calloc(1, sizeof *made);
    if (!made) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    made->card = context->card;
    made->device = context->card->device;
    cen_status status = ceni_backend_host.event_create(
        made->device, flags & CU_EVENT_NO_TIMING ? 0 : CEN_EVENT_TIMING, &made->host);
    if (!status) {
        pthread_mutex_lock(&td_lock);
        status = ceni_map_put(&live, (uintptr_t)made, 1) ? CEN_ERR_HOST_MEMORY : CEN_OK;
        pthread_mutex_unlock(&td_lock);
        if (status) {
            ceni_backend_host.event_destroy(made->device, made->host);
        }
    }
    if (status) {
        ceni_free(made);
        return td_result(status);
    }
    *event = (cu_event)made;
    return CU_SUCCESS;
}

cu_result cuEventDestroy_v2(cu_event event) {
    td_event e;
    TD_TRY(td_enter(__func__));
    TD_TRY(find(event, &e));
    pthread_mutex_lock(&td_lock);
    ceni_map_remove(&live, (uintptr_t)event, NULL);
    pthread_mutex_unlock(&td_lock);
    ceni_free(event);
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
    return td_result(ceni_backend_host.event_query(e.device, e.host));
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

cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags) {
    td_context *context;
    td_event e;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_TRY(find(event, &e));
    TD_TRY(td_stream_for_work(context, stream, &s));
    return td_result(ceni_backend_host.stream_wait(s->context->card->device, s->host, e.host));
}
