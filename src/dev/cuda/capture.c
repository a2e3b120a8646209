/* Whether a stream is being captured into a graph, and capturing one, which only tests do.
 *
 * A capture of ours is global: the strictest kind, in which any thread's query or wait breaks it.
 */
#include "dev/cuda/backend.h"

#include <inttypes.h>

/* The default stream counts as capturing while a capture on another, blocking stream forbids its
 * use; so does a stream whose capture was broken and not ended yet. */
cen_status ceni_cuda_stream_capturing(cen_device *device, cen_stream stream, bool *capturing) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_enum status = CU_CAPTURE_NONE;
    bool implicit = false;
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuStreamIsCapturing((cu_stream)stream, &status);
    }
    if (scope.result == CU_ERROR_CAPTURE_IMPLICIT) {
        implicit = true;
        scope.result = CU_SUCCESS;
    } else if (scope.result == CU_ERROR_NOT_SUPPORTED) {
        scope.result = CU_SUCCESS; /* a driver that cannot capture */
    }
    if (scope.result == CU_SUCCESS) {
        *capturing = implicit || status != CU_CAPTURE_NONE;
    }
    return ceni_cuda_leave(&scope, "asking whether the stream %#" PRIxPTR " is capturing", stream);
}

cen_status ceni_cuda_capture_begin(cen_device *device, cen_stream stream) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuStreamBeginCapture((cu_stream)stream, CU_CAPTURE_MODE_GLOBAL);
    }
    return ceni_cuda_leave(&scope, "capturing the stream %#" PRIxPTR, stream);
}

cen_status ceni_cuda_capture_end(cen_device *device, cen_stream stream, ceni_graph **graph) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_graph captured = NULL;
    cu_graph_exec exec = NULL;
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuStreamEndCapture((cu_stream)stream, &captured);
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuGraphInstantiateWithFlags(&exec, captured, 0);
    }
    if (captured) {
        scope.cu->cuGraphDestroy(captured);
    }
    if (scope.result == CU_SUCCESS) {
        *graph = (ceni_graph *)exec;
    }
    return ceni_cuda_leave(&scope, "ending the capture of the stream %#" PRIxPTR, stream);
}

cen_status ceni_cuda_graph_launch(cen_device *device, ceni_graph *graph, cen_stream stream) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuGraphLaunch((cu_graph_exec)graph, (cu_stream)stream);
    }
    return ceni_cuda_leave(&scope, "launching a graph on the stream %#" PRIxPTR, stream);
}

void ceni_cuda_graph_destroy(cen_device *device, ceni_graph *graph) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuGraphExecDestroy((cu_graph_exec)graph);
    }
    ceni_cuda_leave(&scope, "destroying a graph");
}
