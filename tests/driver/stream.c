/* Streams. Those of a context are in order with its legacy default stream, unless they were made
 * not to be: work on one waits for what the other had at that time. The numbers 0 and 1 are the
 * legacy stream, 2 is the calling thread's own. */
#include "base/mem.h"
#include "tests/driver/td.h"

_Thread_local bool td_thread_default;
_Thread_local cu_enum td_capture_mode = CU_CAPTURE_MODE_GLOBAL;

static ceni_map live; /* of streams */

td_stream *td_stream_add(td_context *context, unsigned flags, int priority, cu_result *result) {
    td_stream *made = ceni_calloc(1, sizeof *made);
    cen_device *device = context->card->device;
    if (!made || ceni_map_put(&live, (uintptr_t)made, 1)) {
        ceni_free(made);
        *result = CU_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    cen_status status = ceni_backend_host.stream_create(device, priority, &made->host);
    if (!status) {
        status = ceni_backend_host.event_create(device, 0, &made->fence);
    }
    if (status) {
        ceni_map_remove(&live, (uintptr_t)made, NULL);
        ceni_free(made);
        *result = td_result(status);
        return NULL;
    }
    made->context = context;
    made->flags = flags;
    made->priority = priority;
    td_stream **tail = &context->streams;
    while (*tail) {
        tail = &(*tail)->next;
    }
    *tail = made;
    return made;
}

/* The thread's own stream of a context, made when first used. (locked) */
static cu_result per_thread(td_context *context, td_stream **stream) {
    for (td_stream *s = context->streams; s; s = s->next) {
        if (s->per_thread && pthread_equal(s->thread, pthread_self())) {
            *stream = s;
            return CU_SUCCESS;
        }
    }
    cu_result result;
    td_stream *made = td_stream_add(context, 0, 0, &result);
    if (!made) {
        return result;
    }
    made->per_thread = true;
    made->thread = pthread_self();
    *stream = made;
    return CU_SUCCESS;
}

static cu_result find(td_context *context, cu_stream handle, td_stream **stream) {
    if (handle == CU_STREAM_PER_THREAD || (!handle && td_thread_default)) {
        return per_thread(context, stream);
    }
    if (!handle || handle == CU_STREAM_LEGACY) {
        *stream = context->streams;
        return CU_SUCCESS;
    }
    if (!ceni_map_get(&live, (uintptr_t)handle)) {
        return CU_ERROR_INVALID_HANDLE;
    }
    *stream = (td_stream *)handle;
    return CU_SUCCESS;
}

cu_result td_stream_find(td_context *context, cu_stream handle, td_stream **stream) {
    pthread_mutex_lock(&td_lock);
    cu_result result = find(context, handle, stream);
    pthread_mutex_unlock(&td_lock);
    return result;
}

bool td_is_capturing(const td_stream *stream) {
    bool capturing = false;
    ceni_backend_host.stream_capturing(stream->context->card->device, stream->host, &capturing);
    return capturing;
}

/* The stream waits for what is on the other one now. */
static void follow(td_stream *stream, td_stream *other) {
    cen_device *device = stream->context->card->device;
    if (!ceni_backend_host.event_record(device, other->fence, other->host)) {
        ceni_backend_host.stream_wait(device, stream->host, other->fence);
    }
}

/* (locked) */
static cu_result order(td_stream *stream) {
    td_stream *legacy = stream->context->streams;
    stream->operations++;
    if (stream->flags & CU_STREAM_NO_IMPLICIT || td_is_capturing(stream)) {
        return CU_SUCCESS;
    }
    if (stream != legacy) {
        if (stream->seen_of_legacy != legacy->operations) {
            stream->seen_of_legacy = legacy->operations;
            follow(stream, legacy);
        }
        return CU_SUCCESS;
    }
    for (td_stream *s = legacy->next; s; s = s->next) {
        if (!(s->flags & CU_STREAM_NO_IMPLICIT) && s->seen_by_legacy != s->operations) {
            if (td_is_capturing(s)) {
                return CU_ERROR_CAPTURE_IMPLICIT;
            }
            s->seen_by_legacy = s->operations;
            follow(legacy, s);
        }
    }
    return CU_SUCCESS;
}

cu_result td_stream_for_work(td_context *context, cu_stream handle, td_stream **stream) {
    pthread_mutex_lock(&td_lock);
    cu_result result = find(context, handle, stream);
    if (result == CU_SUCCESS) {
        result = order(*stream);
    }
    pthread_mutex_unlock(&td_lock);
    return result;
}

cu_result td_stream_for_wait(td_context *context, cu_stream handle, td_stream **stream) {
    pthread_mutex_lock(&td_lock);
    cu_result result = find(context, handle, stream);
    /* The legacy stream ends when the others do.
     * NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
    if (result == CU_SUCCESS && (*stream)->legacy) {
        result = order(*stream);
    }
    pthread_mutex_unlock(&td_lock);
    return result;
}

/* The host's streams of a context, to be waited for without the lock; NULL: out of memory. */
static cen_stream *list_streams(const td_context *context, size_t *count) {
    pthread_mutex_lock(&td_lock);
    size_t n = 0;
    for (const td_stream *s = context->streams; s; s = s->next) {
        n++;
    }
    cen_stream *list = ceni_malloc(n * sizeof *list);
    *count = 0;
    for (const td_stream *s = context->streams; list && s; s = s->next) {
        list[(*count)++] = s->host;
    }
    pthread_mutex_unlock(&td_lock);
    return list;
}

/* Whether a capture is going on that this thread may not disturb. (locked) */
static bool forbidden(const td_context *context) {
    for (const td_stream *s = context->streams; s; s = s->next) {
        bool own = pthread_equal(s->capturer, pthread_self());
        if (s->capturing && td_capture_mode != CU_CAPTURE_MODE_RELAXED &&
            (s->capture_mode == CU_CAPTURE_MODE_GLOBAL ||
             (s->capture_mode == CU_CAPTURE_MODE_THREAD && own))) {
            return true;
        }
    }
    return false;
}

cu_result td_forbid_capture(const td_context *context) {
    pthread_mutex_lock(&td_lock);
    bool breaks = forbidden(context);
    pthread_mutex_unlock(&td_lock);
    if (breaks) {
        ceni_backend_host.stream_query(context->card->device, context->streams->host);
    }
    return breaks ? CU_ERROR_CAPTURE_UNSUPPORTED : CU_SUCCESS;
}

cu_result td_context_wait(td_context *context) {
    size_t count;
    cen_stream *list = list_streams(context, &count);
    cen_status status = list ? CEN_OK : CEN_ERR_HOST_MEMORY;
    for (size_t i = 0; !status && i < count; i++) {
        status = ceni_backend_host.stream_sync(context->card->device, list[i]);
        if (status == CEN_ERR_INVALID) { /* destroyed meanwhile */
            status = CEN_OK;
        }
    }
    ceni_free(list);
    if (!status) {
        td_pools_settle(context->card);
    }
    return td_result(status);
}

/* (locked) */
static cen_status destroy(td_stream *stream) {
    cen_device *device = stream->context->card->device;
    cen_status status = ceni_backend_host.stream_destroy(device, stream->host);
    if (status) {
        return status;
    }
    ceni_backend_host.event_destroy(device, stream->fence);
    td_stream **link = &stream->context->streams;
    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
    ceni_map_remove(&live, (uintptr_t)stream, NULL);
    ceni_free(stream);
    return CEN_OK;
}

void td_streams_end_context(td_context *context) {
    for (td_stream *s = context->streams; s; s = s->next) {
        ceni_graph *graph = NULL;
        if (s->capturing &&
            !ceni_backend_host.capture_end(context->card->device, s->host, &graph)) {
            ceni_backend_host.graph_destroy(context->card->device, graph);
        }
    }
    td_context_wait(context);
    pthread_mutex_lock(&td_lock);
    while (context->streams && !destroy(context->streams)) {
    }
    context->streams = NULL; /* a lost device's stay with it */
    pthread_mutex_unlock(&td_lock);
}

cu_result cuStreamCreateWithPriority(cu_stream *stream, unsigned flags, int priority) {
    td_context *context;
    cu_result result;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(stream && !(flags & ~(unsigned)CU_STREAM_NO_IMPLICIT));
    pthread_mutex_lock(&td_lock);
    td_stream *made = td_stream_add(context, flags, priority, &result);
    pthread_mutex_unlock(&td_lock);
    if (!made) {
        return result;
    }
    *stream = (cu_stream)made;
    return CU_SUCCESS;
}

cu_result cuStreamCreate(cu_stream *stream, unsigned flags) {
    TD_TRY(td_enter(__func__));
    return cuStreamCreateWithPriority(stream, flags, 0);
}

cu_result cuStreamDestroy_v2(cu_stream stream) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    pthread_mutex_lock(&td_lock);
    cu_result result = (uintptr_t)stream > 2 ? find(context, stream, &s) : CU_ERROR_INVALID_HANDLE;
    if (result == CU_SUCCESS) {
        result = td_result(destroy(s));
    }
    pthread_mutex_unlock(&td_lock);
    return result;
}

cu_result cuStreamSynchronize(cu_stream stream) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_TRY(td_stream_for_wait(context, stream, &s));
    td_card *card = s->context->card;
    TD_TRY(td_result(ceni_backend_host.stream_sync(card->device, s->host)));
    td_pools_settle(card);
    return CU_SUCCESS;
}

cu_result cuStreamQuery(cu_stream stream) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_TRY(td_stream_for_wait(context, stream, &s));
    return td_result(ceni_backend_host.stream_query(s->context->card->device, s->host));
}
