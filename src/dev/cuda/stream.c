/* Streams, events, copies and fills.
 *
 * Handles are the driver's own, so a framework's stream or event can be passed. Streams of ours do
 * not synchronise with the legacy default stream (0). A stream's handle names its context, so these
 * calls take streams of other contexts of the same device too. */
#include "dev/cuda/backend.h"

#include <inttypes.h>

#include "base/log.h"

static cu_stream stream_of(cen_stream stream) {
    return (cu_stream)stream;
}

static cu_event event_of(cen_event event) {
    return (cu_event)event;
}

cen_status ceni_cuda_stream_create(cen_device *device, int priority, cen_stream *stream) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    const ceni_cuda_device *self = scope.self;
    cu_stream made = NULL;
    if (scope.result == CU_SUCCESS) { /* lower numbers are greater priorities */
        int clamped = priority < self->greatest_priority ? self->greatest_priority
                      : priority > self->least_priority  ? self->least_priority
                                                         : priority;
        scope.result = scope.cu->cuStreamCreateWithPriority(&made, CU_STREAM_NO_IMPLICIT, clamped);
    }
    if (scope.result == CU_SUCCESS) {
        if (ceni_cuda_own(scope.self, CENI_CUDA_STREAM, (uintptr_t)made, 1)) {
            *stream = (cen_stream)made;
        } else {
            scope.cu->cuStreamDestroy(made);
            scope.result = CU_ERROR_OUT_OF_MEMORY;
            return ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "keeping a stream");
        }
    }
    return ceni_cuda_leave(&scope, "creating a stream");
}

cen_status ceni_cuda_stream_destroy(cen_device *device, cen_stream stream) {
    if (!stream) {
        return ceni_fail(CEN_ERR_INVALID, "cuda:%d: the default stream cannot be destroyed",
                         device->ordinal);
    }
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        uint64_t owned = ceni_cuda_disown(scope.self, CENI_CUDA_STREAM, stream);
        scope.result = scope.cu->cuStreamDestroy(stream_of(stream));
        if (scope.result != CU_SUCCESS && owned) {
            ceni_cuda_own(scope.self, CENI_CUDA_STREAM, stream, owned);
        }
    }
    return ceni_cuda_leave(&scope, "destroying the stream %#" PRIxPTR, stream);
}

cen_status ceni_cuda_stream_sync(cen_device *device, cen_stream stream) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuStreamSynchronize(stream_of(stream));
    }
    return ceni_cuda_leave(&scope, "waiting for the stream %#" PRIxPTR, stream);
}

cen_status ceni_cuda_stream_query(cen_device *device, cen_stream stream) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuStreamQuery(stream_of(stream));
    }
    return ceni_cuda_leave(&scope, "querying the stream %#" PRIxPTR, stream);
}

cen_status ceni_cuda_stream_wait(cen_device *device, cen_stream stream, cen_event event) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuStreamWaitEvent(stream_of(stream), event_of(event), 0);
    }
    return ceni_cuda_leave(&scope, "making the stream %#" PRIxPTR " wait for an event", stream);
}

cen_status ceni_cuda_event_create(cen_device *device, unsigned flags, cen_event *event) {
    if (flags & CEN_EVENT_MANUAL) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "cuda:%d: manual events exist on the host only",
                         device->ordinal);
    }
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_event made = NULL;
    const bool shared = flags & CEN_EVENT_SHARED;
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuEventCreate(
            &made, (flags & CEN_EVENT_TIMING ? 0u : (unsigned)CU_EVENT_NO_TIMING) |
                       (shared ? (unsigned)CU_EVENT_FOR_OTHERS : 0u));
    }
    if (scope.result == CU_SUCCESS) {
        if (ceni_cuda_own(scope.self, CENI_CUDA_EVENT, (uintptr_t)made,
                          shared ? CENI_CUDA_EVENT_SHARED : CENI_CUDA_EVENT_OWN)) {
            *event = (cen_event)made;
        } else {
            scope.cu->cuEventDestroy(made);
            scope.result = CU_ERROR_OUT_OF_MEMORY;
            return ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "keeping an event");
        }
    }
    return ceni_cuda_leave(&scope, "creating an event");
}

cen_status ceni_cuda_event_destroy(cen_device *device, cen_event event) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        uint64_t owned = ceni_cuda_disown(scope.self, CENI_CUDA_EVENT, event);
        scope.result = scope.cu->cuEventDestroy(event_of(event));
        if (scope.result != CU_SUCCESS && owned) {
            ceni_cuda_own(scope.self, CENI_CUDA_EVENT, event, owned);
        }
    }
    return ceni_cuda_leave(&scope, "destroying an event");
}

cen_status ceni_cuda_event_record(cen_device *device, cen_event event, cen_stream stream) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS &&
        ceni_cuda_size_of(scope.self, CENI_CUDA_EVENT, event) == CENI_CUDA_EVENT_IMPORTED) {
        scope.result = CU_ERROR_INVALID_VALUE;
        return ceni_cuda_leave(&scope, "recording another process's event");
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuEventRecord(event_of(event), stream_of(stream));
    }
    return ceni_cuda_leave(&scope, "recording an event on the stream %#" PRIxPTR, stream);
}

cen_status ceni_cuda_event_query(cen_device *device, cen_event event) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuEventQuery(event_of(event));
    }
    return ceni_cuda_leave(&scope, "querying an event");
}

/* A thread in relaxed mode is let query what is in no capture, whoever captures; in the others its
 * query breaks captures that were begun in global mode. */
cen_status ceni_cuda_event_peek(cen_device *device, cen_event event) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        cu_enum mode = ceni_cuda_relax(scope.cu);
        scope.result = scope.cu->cuEventQuery(event_of(event));
        ceni_cuda_restore(scope.cu, mode);
    }
    return ceni_cuda_leave(&scope, "looking at an event");
}

cen_status ceni_cuda_event_sync(cen_device *device, cen_event event) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuEventSynchronize(event_of(event));
    }
    return ceni_cuda_leave(&scope, "waiting for an event");
}

cen_status ceni_cuda_event_elapsed(cen_device *device, cen_event start, cen_event end, float *ms) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    float elapsed = 0;
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuEventElapsedTime(&elapsed, event_of(start), event_of(end));
    }
    if (scope.result == CU_SUCCESS) {
        *ms = elapsed;
    }
    return ceni_cuda_leave(&scope, "reading the time between two events");
}

cen_status ceni_cuda_copy(cen_device *device, cen_addr dst, cen_addr src, size_t size,
                          cen_stream stream) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemcpyAsync(dst, src, size, stream_of(stream));
    }
    return ceni_cuda_leave(&scope, "copying %zu bytes from %#" PRIx64 " to %#" PRIx64, size, src,
                           dst);
}

cen_status ceni_cuda_copy_peer(cen_device *dst_device, cen_addr dst, cen_device *src_device,
                               cen_addr src, size_t size, cen_stream stream) {
    ceni_cuda_scope scope = ceni_cuda_enter(dst_device);
    cu_context from = ((const ceni_cuda_device *)src_device)->context;
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemcpyPeerAsync(dst, scope.self->context, src, from, size,
                                                   stream_of(stream));
    }
    return ceni_cuda_leave(&scope, "copying %zu bytes from cuda:%d", size, src_device->ordinal);
}

cen_status ceni_cuda_fill(cen_device *device, cen_addr dst, uint8_t value, size_t size,
                          cen_stream stream) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemsetD8Async(dst, value, size, stream_of(stream));
    }
    return ceni_cuda_leave(&scope, "filling %zu bytes at %#" PRIx64, size, dst);
}

cen_status ceni_cuda_host_func(cen_device *device, cen_stream stream, void (*fn)(void *),
                               void *arg) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuLaunchHostFunc(stream_of(stream), fn, arg);
    }
    return ceni_cuda_leave(&scope, "enqueuing a host function on the stream %#" PRIxPTR, stream);
}
