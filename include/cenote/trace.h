/* Traces: what this process's pools and devices did, written to a file as it happens.
 *
 * A trace is on or off for the whole process; it is off until cen_trace_start. Every part of the
 * library emits events: allocations and frees, pages mapped and unmapped, copies, streams, steps.
 * Each thread gathers its own in a buffer and appends it to the file as one block when it is full,
 * so a process that is killed loses at most one buffer a thread. docs/formats/trace.md has the
 * format; cen_snapshot_read reads it, so explain and replay do too.
 *
 * What is live when a trace starts is known only once it is freed: start before the pools are made.
 * Any thread may call; a forked child has no trace of its own (CEN_ERR_FORKED). */
#ifndef CENOTE_TRACE_H
#define CENOTE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/device.h"
#include "cenote/snapshot.h"
#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which call stacks are kept with allocations, frees and mappings. */
typedef enum cen_trace_stacks {
    CEN_TRACE_NO_STACKS,
    CEN_TRACE_NATIVE_STACKS /* the C stack of the caller; named when the trace is read */
} cen_trace_stacks;

/* Gives the frames of the calling thread, innermost first, at most `capacity`; the count is
 * returned. Its strings are read after it has returned: they stay until the call of cenote's that
 * it serves is done. Several threads may be in it at a time. It must not call cenote. */
typedef size_t (*cen_trace_stack_fn)(void *arg, cen_frame *frames, size_t capacity);

/* One of these: the Python frames of the calling thread, if the process runs Python 3.11 or later.
 * From 3.14 on the thread must hold the interpreter's lock; without it there are none. Nothing of
 * Python is linked: it is found in the process. `arg` is not used. */
CEN_API size_t cen_trace_python_frames(void *arg, cen_frame *frames, size_t capacity);

/* Zero-initialise, set `size` to sizeof, then what differs: a zero field means its default. */
typedef struct cen_trace_options {
    size_t size;
    cen_trace_stacks stacks;
    cen_trace_stack_fn stack_fn; /* frames of another language, before the native ones */
    void *stack_arg;
    uint32_t buffer_bytes; /* of each thread, at most 64 MiB; default 32 KiB */
} cen_trace_options;

/* Starts a trace into `path`, which is created or emptied. options may be NULL. CEN_ERR_BUSY: one
 * was started and is not stopped yet, even if it had to end; CEN_ERR_IO: the file cannot be made;
 * CEN_ERR_INVALID; CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_trace_start(const char *path, const cen_trace_options *options);

/* Appends what all threads have gathered, and the index, and closes the file. Other threads may go
 * on meanwhile: their events are in the trace until it is off. CEN_ERR_NOT_FOUND: none was started;
 * CEN_ERR_IO: the trace had to end early, as when the disk was full (the log said so then): the
 * file holds what was written before, whole blocks only. */
CEN_API cen_status cen_trace_stop(void);

/* Appends what the calling thread has gathered to the file (not what others have; the system writes
 * it to the disk when it likes). CEN_OK too when no trace is on. CEN_ERR_IO: it could not be
 * written, and the trace has ended; CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_trace_flush(void);

/* What follows does nothing when no trace is on, and cannot fail: what could not be kept is counted
 * in cen_trace_stats.lost.
 *
 * Marks the end of an iteration of the program, for the step-by-step figures of explain; what the
 * thread has gathered is appended about ten times a second. */
CEN_API void cen_trace_step(void);
/* Marks the begin or the end of a named part of the program. The name is copied. */
CEN_API void cen_trace_mark(const char *name, bool end);

/* Notes an allocation or a free that cenote did not make. device: the number that the trace gives
 * it, from 0 to 65534; events of others are dropped. */
CEN_API void cen_trace_alloc(int device, cen_addr addr, uint64_t bytes, cen_stream stream);
CEN_API void cen_trace_free(int device, cen_addr addr, uint64_t bytes, cen_stream stream);

/* Of the trace that is on, or of the last one. */
typedef struct cen_trace_stats {
    uint64_t events, bytes; /* emitted; written to the file */
    uint64_t stacks;        /* different ones */
    uint64_t lost;          /* events that could not be written */
    bool on;                /* false too when it had to end and is not stopped yet */
} cen_trace_stats;
CEN_API cen_status cen_trace_get_stats(cen_trace_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
