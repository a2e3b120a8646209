/* How every part of the library emits events into the trace that is on, if one is.
 *
 * The test whether one is on is a load of one byte; call ceni_emit_* only behind it. The order of
 * events of several threads is that of their times, so a time is taken where the order is decided:
 * that of a free before anybody else can have the memory, that of an allocation after its memory
 * is its own. */
#ifndef CENI_EMIT_H
#define CENI_EMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Kinds of events as they are in the file: numbers are never reused (docs/formats/trace.md). */
enum ceni_event {
    CENI_EVENT_ALLOC = 1,    /* addr, size asked for, stream */
    CENI_EVENT_FREE = 2,     /* addr, size asked for, stream: requested */
    CENI_EVENT_FREED = 3,    /* a free that waited for other streams is complete */
    CENI_EVENT_MAP = 4,      /* addr, size: memory is used at these addresses from now on */
    CENI_EVENT_UNMAP = 5,    /* and no longer */
    CENI_EVENT_COPY = 6,     /* addr: destination, size, stream */
    CENI_EVENT_STREAM = 7,   /* stream created; size 1: destroyed */
    CENI_EVENT_STEP = 8,     /* size: the steps so far */
    CENI_EVENT_MARK = 9,     /* addr: the name's id, size 0 begin, 1 end */
    CENI_EVENT_OOM = 10,     /* addr: bytes that the device had free, size asked for, stream */
    CENI_EVENT_MOVE = 11,    /* a movable block: addr from, size; the next event of the thread is
                                its ALLOC at the new address */
    CENI_EVENT_PRIVATE = 12, /* from here on the stream allocates from private pool (addr, size);
                                (0, 0): no longer */
    CENI_EVENT_SHARED = 13,  /* private pool (addr, size) was released: its memory is anyone's */
    /* Of converted recordings only. */
    CENI_EVENT_SNAPSHOT = 14, /* a snapshot was taken */
    CENI_EVENT_OTHER = 15,    /* an action that cenote does not know; addr, size, stream are its */

    /* Flags, to be added to a kind. */
    CENI_EMIT_PENDING = 1 << 8, /* FREE: waits for other streams, FREED follows; ALLOC, with BEFORE:
                                   so did its free */
    CENI_EMIT_PLAIN = 2 << 8,   /* MAP, UNMAP: a segment of its own, which joins no neighbour */
    CENI_EMIT_SMALL = 4 << 8,   /* MAP: a segment for small blocks */
    CENI_EMIT_BEFORE = 8 << 8,  /* ALLOC, MAP: it was there before the first event */
    CENI_EMIT_ANYONES = 16 << 8 /* MAP, UNMAP: memory that all streams share */
};

/* What a STEP is read as: the end of a mark of this name. */
#define CENI_STEP_MARK "cen_trace_step"

#define CENI_EMIT_ALL_DEVICES UINT16_MAX /* the device of events that concern all: STEP, MARK */

extern atomic_bool ceni_trace_is_on;

static inline bool ceni_tracing(void) {
    return atomic_load_explicit(&ceni_trace_is_on, memory_order_relaxed);
}

/* Now, on the trace's clock: ticks whose length the file tells. Never 0. It may be read early, by
 * some tens of nanoseconds, but not later than what follows is seen by others: for a free. */
uint64_t ceni_trace_ticks(void);

/* `device`: cen_device.number. Never fails: an event that cannot be kept is counted as lost. A
 * stack is kept with ALLOC, FREE, MAP and OOM if stacks are asked for. The time is taken after all
 * that came before: for an allocation. */
void ceni_emit(enum ceni_event kind, unsigned device, uint64_t addr, uint64_t size,
               uint64_t stream);
/* With a time taken earlier by this thread. */
void ceni_emit_at(uint64_t ticks, enum ceni_event kind, unsigned device, uint64_t addr,
                  uint64_t size, uint64_t stream);

/* Names a device of the process for the traces to come, and starts the one that the environment
 * asks for (CENOTE_TRACE). The number is for ceni_emit. Numbers start at 0 and are given again when
 * the device is gone, but not in the same trace. */
unsigned ceni_trace_device_add(const char *name, uint64_t total_bytes);
void ceni_trace_device_remove(unsigned number);

#endif
