/* What the tests of movable blocks share. A block's contents are written and checked between a pin
 * and an unpin on the same stream. */
#ifndef MOVABLE_SUITE_H
#define MOVABLE_SUITE_H

#include "tests/conformance/pool_suite.h"

static inline cen_movable make(world *w, size_t bytes, int stream) {
    cen_movable m = 0;
    OK(cen_movable_alloc(w->pool, bytes, w->streams[stream], &m));
    assert_true(m != 0);
    return m;
}

static inline void *pin(world *w, cen_movable m, int stream) {
    void *addr = NULL;
    OK(cen_movable_pin(w->pool, m, w->streams[stream], &addr));
    assert_non_null(addr);
    return addr;
}

static inline void unpin(world *w, cen_movable m, int stream) {
    OK(cen_movable_unpin(w->pool, m, w->streams[stream]));
}

static inline void write_it(world *w, cen_movable m, size_t bytes, uint32_t seed, int stream) {
    fill(w, pin(w, m, stream), bytes, seed, w->streams[stream]);
    unpin(w, m, stream);
}

static inline void *read_it(world *w, cen_movable m, size_t bytes, uint32_t seed, int stream) {
    void *at = pin(w, m, stream);
    check(w, at, bytes, seed, w->streams[stream]);
    unpin(w, m, stream);
    return at;
}

/* Memory to move to, on pages of its own. */
static inline void make_hole(world *w, size_t bytes) {
    void *block = get(w, bytes, w->streams[3]);
    OK(cen_pool_free(w->pool, block, w->streams[3]));
}

static inline void waits(world *w, int i) {
    if (w->f->host) {
        FAILS(CEN_ERR_NOT_READY, cen_stream_query(w->device, w->streams[i]));
    }
}

/* What one stream does next comes after what another did. */
static inline void order(world *w, int after, int before) {
    cen_event event;
    if (after != before) {
        OK(cen_event_create(w->device, 0, &event));
        OK(cen_event_record(w->device, event, w->streams[before]));
        OK(cen_stream_wait(w->device, w->streams[after], event));
        OK(cen_event_destroy(w->device, event));
    }
}

#endif
