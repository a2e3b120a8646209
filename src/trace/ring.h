/* The threads' buffers, and the trace that they belong to.
 *
 * A ring is its thread's alone while a trace is on: emitting takes no lock and no locked
 * instruction. The owner says that it is busy, then looks whether the trace is (still) on; who ends
 * a trace turns it off, makes all processors agree (membarrier, where the kernel has it), then
 * waits until no ring is busy. Either the owner sees that it is off, or the other sees it busy.
 * From then until the next start a ring is whose lock the state's is.
 *
 * Locks, in the order in which they are taken: state.lock, the stacks' (emit_stack.c), the
 * writer's. A busy ring takes the writer's only. */
#ifndef CENI_TRACE_RING_H
#define CENI_TRACE_RING_H

#include <pthread.h>
#include <stdatomic.h>

#include "cenote/trace.h"
#include "trace/emit.h"
#include "trace/write.h"

#define CENI_STACK_CACHE 256

/* A stack seen by this thread: of the trace `generation`. */
typedef struct ceni_stack_seen {
    uint64_t hash; /* or its mark */
    uint32_t id, generation;
} ceni_stack_seen;

typedef struct ceni_ring {
    atomic_bool busy;
    _Atomic uint32_t count; /* the owner writes, statistics read */
    uint32_t capacity;
    uint32_t thread; /* its number in the file */
    ceni_event_record *records;
    _Atomic uint64_t flushed; /* events of this trace that have left the buffer */
    uint64_t flushed_ns;      /* when, last */
    struct ceni_ring *next;
    ceni_stack_seen seen[CENI_STACK_CACHE];
} ceni_ring;

typedef struct ceni_trace_state {
    pthread_mutex_t lock;
    bool open;                /* started, not stopped */
    atomic_bool forked;       /* this process is a child of one that had a trace */
    atomic_bool locked_enter; /* no membarrier: owners pay for a locked instruction */
    uint32_t generation;      /* counts traces */
    uint32_t buffer_events;
    uint32_t threads;
    _Atomic uint32_t stack_kinds; /* bit per kind of event: a stack is kept with it */
    int fd;
    char *path;
    ceni_writer writer;
    ceni_ring *rings;
    uint64_t gone_events; /* of rings that are no more */
    _Atomic uint64_t lost;
    _Atomic uint64_t steps;
    cen_trace_stats last; /* of the trace that was stopped last */
} ceni_trace_state;

extern ceni_trace_state ceni_trace;

/* ring.c */
/* The calling thread's ring, made if need be; NULL: no memory. */
ceni_ring *ceni_ring_own(void);
/* Makes room in the own, full ring, between enter and leave; false: no memory, and counted. */
bool ceni_ring_make_room(ceni_ring *ring);
/* Writes what the own ring holds; between enter and leave. A failure was logged and has ended the
 * trace. */
cen_status ceni_ring_flush(ceni_ring *ring);
/* Turns the trace off and waits until no thread is in a ring. state.lock is held. */
void ceni_rings_halt(void);
/* Writes what all rings hold, after ceni_rings_halt. */
void ceni_rings_collect(void);
/* Before a start: all rings are empty and of the size asked for. */
void ceni_rings_reset(void);
uint64_t ceni_rings_events(void);

/* emit_clock.c */
ceni_moment_pair ceni_trace_moment(void);
/* The wall clock: nanoseconds since 1970. */
uint64_t ceni_trace_unix_ns(void);
/* After all that came before in this thread. */
uint64_t ceni_trace_ticks_after(void);

/* emit_stack.c */
void ceni_stacks_open(const cen_trace_options *options);
void ceni_stacks_close(void);
/* The id of the caller's stack in the trace `*generation`; CENI_FILE_NONE: none, or no memory. */
uint32_t ceni_stack_here(ceni_ring *ring, uint32_t *generation);
uint64_t ceni_stacks_count(void);

/* ---- the hot path, in line: everything in it is a load or a store of the thread's own ---- */

static inline void ceni_ring_leave(ceni_ring *ring) {
    atomic_store_explicit(&ring->busy, false, memory_order_release);
}

/* Begins to write to the own ring; false: no trace is on. */
static inline bool ceni_ring_enter(ceni_ring *ring) {
    if (atomic_load_explicit(&ceni_trace.locked_enter, memory_order_relaxed)) {
        (void)atomic_exchange(&ring->busy, true);
    } else {
        atomic_store_explicit(&ring->busy, true, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
    }
    if (atomic_load(&ceni_trace_is_on)) {
        return true;
    }
    ceni_ring_leave(ring);
    return false;
}

/* Where the next record goes, to be filled in place; NULL: no memory, and counted as lost. */
static inline ceni_event_record *ceni_ring_next(ceni_ring *ring) {
    uint32_t count = atomic_load_explicit(&ring->count, memory_order_relaxed);
    if (count == ring->capacity && !ceni_ring_make_room(ring)) { /* it has none yet */
        return NULL;
    }
    return &ring->records[count];
}

/* The record is filled. */
static inline void ceni_ring_commit(ceni_ring *ring) {
    uint32_t count = atomic_load_explicit(&ring->count, memory_order_relaxed) + 1;
    atomic_store_explicit(&ring->count, count, memory_order_relaxed);
    if (count == ring->capacity) {
        (void)ceni_ring_flush(ring);
    }
}

#endif
