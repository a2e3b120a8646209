/* Captures and the graphs that come of them: the host backend's, with CUDA's modes and states. */
#include "base/mem.h"
#include "tests/driver/td.h"

static uint64_t captures; /* begun so far */

cu_result cuThreadExchangeStreamCaptureMode(cu_enum *mode) {
    TD_TRY(td_enter(__func__));
    TD_NEED(mode && *mode <= CU_CAPTURE_MODE_RELAXED);
    cu_enum before = td_capture_mode;
    td_capture_mode = *mode;
    *mode = before;
    return CU_SUCCESS;
}

static cu_result capture_status(const char *symbol, cu_stream stream, cu_enum *status,
                                uint64_t *id) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(symbol, &context));
    TD_NEED(status);
    TD_TRY(td_stream_find(context, stream, &s));
    bool capturing = td_is_capturing(s);
    if (s->legacy && !capturing) {
        for (const td_stream *other = s->next; other; other = other->next) {
            if (other->capturing && !(other->flags & CU_STREAM_NO_IMPLICIT)) {
                return CU_ERROR_CAPTURE_IMPLICIT;
            }
        }
    }
    *status = capturing ? CU_CAPTURE_ACTIVE : CU_CAPTURE_NONE;
    if (id && capturing) {
        *id = s->capture_id ? s->capture_id : captures; /* joined: the latest */
    }
    return CU_SUCCESS;
}

cu_result cuStreamIsCapturing(cu_stream stream, cu_enum *status) {
    return capture_status(__func__, stream, status, NULL);
}

cu_result cuStreamGetCaptureInfo(cu_stream stream, cu_enum *status, uint64_t *id) {
    return capture_status(__func__, stream, status, id);
}

/* Graphs here have no nodes that could be shown. */
cu_result cuStreamGetCaptureInfo_v2(cu_stream stream, cu_enum *status, uint64_t *id,
                                    cu_graph *graph, const cu_graph_node **nodes, size_t *count) {
    TD_TRY(capture_status(__func__, stream, status, id));
    if (graph) {
        *graph = NULL;
    }
    if (nodes) {
        *nodes = NULL;
    }
    if (count) {
        *count = 0;
    }
    return CU_SUCCESS;
}

cu_result cuStreamGetCaptureInfo_v3(cu_stream stream, cu_enum *status, uint64_t *id,
                                    cu_graph *graph, const cu_graph_node **nodes,
                                    const cu_edge_data **edges, size_t *count) {
    if (edges) {
        *edges = NULL;
    }
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
}

cu_result cuStreamBeginCapture_v2(cu_stream stream, cu_enum mode) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(mode <= CU_CAPTURE_MODE_RELAXED);
    TD_TRY(td_stream_find(context, stream, &s));
    if (s->legacy) {
        return CU_ERROR_CAPTURE_UNSUPPORTED;
    }
    if (s->capturing) {
        return CU_ERROR_ILLEGAL_STATE;
    }
    TD_TRY(td_result(ceni_backend_host.capture_begin(s->context->card->device, s->host)));
    pthread_mutex_lock(&td_lock);
    s->capturing = true;
    s->capture_mode = mode;
    s->capturer = pthread_self();
    s->capture_id = ++captures;
    pthread_mutex_unlock(&td_lock);
    return CU_SUCCESS;
}

/* A graph: what a capture recorded, or what was made to be launched of it. The recording lives as
 * long as either. */
typedef struct recording {
    ceni_graph *graph;
    td_card *card;
    size_t refs;
} recording;

struct CUgraph_st {
    recording *of;
};
struct CUgraphExec_st {
    recording *of;
};

static void drop_recording(recording *r) {
    pthread_mutex_lock(&td_lock);
    bool last = --r->refs == 0;
    pthread_mutex_unlock(&td_lock);
    if (last) {
        ceni_backend_host.graph_destroy(r->card->device, r->graph);
        td_pool_end_captures(r->card);
        ceni_free(r);
    }
}

cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(graph);
    TD_TRY(td_stream_find(context, stream, &s));
    *graph = NULL;
    if (!s->capturing) {
        return td_is_capturing(s) ? CU_ERROR_CAPTURE_UNMATCHED : CU_ERROR_ILLEGAL_STATE;
    }
    if (s->capture_mode != CU_CAPTURE_MODE_RELAXED && !pthread_equal(s->capturer, pthread_self())) {
        return CU_ERROR_CAPTURE_WRONG_THREAD;
    }
    ceni_graph *captured = NULL;
    cen_status status = ceni_backend_host.capture_end(s->context->card->device, s->host, &captured);
    pthread_mutex_lock(&td_lock);
    s->capturing = false;
    s->capture_id = 0;
    pthread_mutex_unlock(&td_lock);
    if (status) {
        return status == CEN_ERR_CAPTURE ? CU_ERROR_CAPTURE_INVALIDATED : td_result(status);
    }
    recording *r = ceni_malloc(sizeof *r);
    cu_graph made = ceni_malloc(sizeof *made);
    if (!r || !made) {
        ceni_free(r);
        ceni_free(made);
        ceni_backend_host.graph_destroy(s->context->card->device, captured);
        return CU_ERROR_OUT_OF_MEMORY;
    }
    *r = (recording){captured, s->context->card, 1};
    made->of = r;
    *graph = made;
    return CU_SUCCESS;
}

cu_result cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph,
                                      unsigned long long flags) {
    TD_TRY(td_enter(__func__));
    TD_NEED(exec && graph);
    cu_graph_exec made = ceni_malloc(sizeof *made);
    if (!made) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&td_lock);
    graph->of->refs++;
    pthread_mutex_unlock(&td_lock);
    made->of = graph->of;
    *exec = made;
    return CU_SUCCESS;
}

cu_result cuGraphLaunch(cu_graph_exec exec, cu_stream stream) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(exec);
    TD_TRY(td_stream_for_work(context, stream, &s));
    return td_result(
        ceni_backend_host.graph_launch(s->context->card->device, exec->of->graph, s->host));
}

cu_result cuGraphExecDestroy(cu_graph_exec exec) {
    TD_TRY(td_enter(__func__));
    TD_NEED(exec);
    drop_recording(exec->of);
    ceni_free(exec);
    return CU_SUCCESS;
}

cu_result cuGraphDestroy(cu_graph graph) {
    TD_TRY(td_enter(__func__));
    TD_NEED(graph);
    drop_recording(graph->of);
    ceni_free(graph);
    return CU_SUCCESS;
}
