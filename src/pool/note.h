/* What the pool tells a trace. With none on, a test of one byte. */
#ifndef CENI_POOL_NOTE_H
#define CENI_POOL_NOTE_H

#include "pool/pool_int.h"
#include "trace/emit.h"

static inline bool ceni_noting(void) {
    return __builtin_expect(ceni_tracing(), false);
}

static inline void ceni_note(const cen_pool *pool, enum ceni_event kind, uint64_t addr,
                             uint64_t size, cen_stream stream) {
    if (ceni_noting()) {
        ceni_emit(kind, pool->device->number, addr, size, stream);
    }
}

/* The time of a free, taken before it: as soon as it is done, others may have the memory. 0: no
 * trace is on. */
static inline uint64_t ceni_note_time(void) {
    return ceni_noting() ? ceni_trace_ticks() : 0;
}

/* A free of `size` requested bytes at the time that ceni_note_time gave. pending: other streams
 * still use the memory. */
static inline void ceni_note_free(const cen_pool *pool, uint64_t ticks, uint64_t addr,
                                  uint64_t size, cen_stream stream, bool pending) {
    if (__builtin_expect(ticks != 0, false)) {
        enum ceni_event kind = CENI_EVENT_FREE;
        ceni_emit_at(ticks, pending ? kind | CENI_EMIT_PENDING : kind, pool->device->number, addr,
                     size, stream);
    }
}

/* A segment comes into use, for a stream (NULL: anyone), or goes out of it. */
static inline void ceni_note_segment(const cen_pool *pool, enum ceni_event kind,
                                     const ceni_segment *segment, const ceni_pstream *stream) {
    unsigned flags = CENI_EMIT_ANYONES | (segment->plain ? CENI_EMIT_PLAIN : 0) |
                     (segment->line->rank == CENI_SMALL ? CENI_EMIT_SMALL : 0);
    ceni_note(pool, kind | flags, segment->addr, segment->size, stream ? stream->handle : 0);
}

#endif
