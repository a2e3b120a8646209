/* Streams: which ones there are, for the pool, and whether one is being captured, when neither the
 * pool nor a measurement may touch the device. */
#include "preload/preload.h"

static _Atomic unsigned captures; /* begun and not ended, in the process */

void pl_fork_streams(void) {
    atomic_store(&captures, 0);
}

bool pl_capturing(void) {
    return atomic_load(&captures) != 0;
}

bool pl_stream_capturing(pl_ptr stream) {
    pl_enum status = 0;
    return pl_capturing() && pl_real()->cuStreamIsCapturing(stream, &status) == PL_SUCCESS &&
           status != 0;
}

static pl_result made(int before, pl_result result, const pl_ptr *stream, unsigned flags) {
    if (result == PL_SUCCESS && before == PL_PROGRAM) {
        pl_pool_stream_made(*stream, flags);
    }
    return pl_leave(before, result);
}

pl_result cuStreamCreate(pl_ptr *stream, unsigned flags) {
    PL_BEGIN(cuStreamCreate, (stream, flags))
    return made(request.before, real->cuStreamCreate(stream, flags), stream, flags);
}

pl_result cuStreamCreateWithPriority(pl_ptr *stream, unsigned flags, int priority) {
    PL_BEGIN(cuStreamCreateWithPriority, (stream, flags, priority))
    pl_result result = real->cuStreamCreateWithPriority(stream, flags, priority);
    return made(request.before, result, stream, flags);
}

pl_result cuGreenCtxStreamCreate(pl_ptr *stream, pl_ptr context, unsigned flags, int priority) {
    PL_BEGIN(cuGreenCtxStreamCreate, (stream, context, flags, priority))
    pl_result result = real->cuGreenCtxStreamCreate(stream, context, flags, priority);
    return made(request.before, result, stream, PL_STREAM_NON_BLOCKING);
}

pl_result cuStreamDestroy(pl_ptr stream) {
    PL_BEGIN(cuStreamDestroy, (stream))
    if (request.before == PL_PROGRAM) {
        pl_pool_stream_gone(stream);
    }
    return pl_leave(request.before, real->cuStreamDestroy(stream));
}

pl_result cuStreamDestroy_v2(pl_ptr stream) {
    PL_BEGIN(cuStreamDestroy_v2, (stream))
    if (request.before == PL_PROGRAM) {
        pl_pool_stream_gone(stream);
    }
    return pl_leave(request.before, real->cuStreamDestroy_v2(stream));
}

/* ---- captures ---- */

/* Defines a hook. A capture counts before it begins: another thread must not touch the device just
 * then. */
#define BEGINS(symbol, parameters, arguments)                                                      \
    pl_result symbol parameters {                                                                  \
        PL_BEGIN(symbol, arguments)                                                                \
        atomic_fetch_add(&captures, 1);                                                            \
        pl_result result = real->symbol arguments;                                                 \
        if (result != PL_SUCCESS) {                                                                \
            atomic_fetch_sub(&captures, 1);                                                        \
        }                                                                                          \
        return pl_leave(request.before, result);                                                   \
    }

BEGINS(cuStreamBeginCapture, (pl_ptr stream), (stream))
BEGINS(cuStreamBeginCapture_ptsz, (pl_ptr stream), (stream))
BEGINS(cuStreamBeginCapture_v2, (pl_ptr stream, pl_enum mode), (stream, mode))
BEGINS(cuStreamBeginCapture_v2_ptsz, (pl_ptr stream, pl_enum mode), (stream, mode))
BEGINS(cuStreamBeginCaptureToGraph,
       (pl_ptr stream, pl_ptr graph, const pl_ptr *after, const void *edges, size_t count,
        pl_enum mode),
       (stream, graph, after, edges, count, mode))
BEGINS(cuStreamBeginCaptureToGraph_ptsz,
       (pl_ptr stream, pl_ptr graph, const pl_ptr *after, const void *edges, size_t count,
        pl_enum mode),
       (stream, graph, after, edges, count, mode))

/* An invalid capture ends too, with an error. Only a stream that did not capture ends nothing. */
static pl_result ended(int before, pl_result result, bool captured) {
    unsigned now = atomic_load(&captures);
    while (captured && now && !atomic_compare_exchange_weak(&captures, &now, now - 1)) {
    }
    return pl_leave(before, result);
}

pl_result cuStreamEndCapture(pl_ptr stream, pl_ptr *graph) {
    PL_BEGIN(cuStreamEndCapture, (stream, graph))
    bool captured = pl_stream_capturing(stream);
    return ended(request.before, real->cuStreamEndCapture(stream, graph), captured);
}

pl_result cuStreamEndCapture_ptsz(pl_ptr stream, pl_ptr *graph) {
    PL_BEGIN(cuStreamEndCapture_ptsz, (stream, graph))
    bool captured = pl_stream_capturing(pl_stream_of(stream, PL_PER_THREAD));
    return ended(request.before, real->cuStreamEndCapture_ptsz(stream, graph), captured);
}
