/* Histories made up for tests: a cen_snapshot_device without a file. Addresses are the history's
 * own names for blocks; a recorded free completes when the history says so. */
#ifndef TEST_HISTORY_H
#define TEST_HISTORY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cenote/cenote.h"
#include "tests/random.h"

typedef struct history {
    cen_trace_event *events;
    size_t count, capacity;
    int64_t time_us;
} history;

static inline void history_add(history *h, cen_action action, uint64_t addr, uint64_t size,
                               uint64_t stream) {
    if (h->count == h->capacity) {
        h->capacity = h->capacity ? h->capacity * 2 : 256;
        h->events = realloc(h->events, h->capacity * sizeof *h->events);
        assert_non_null(h->events);
    }
    h->events[h->count++] = (cen_trace_event){.addr = addr,
                                              .size = size,
                                              .stream = stream,
                                              .time_us = h->time_us,
                                              .stack = CEN_NO_STACK,
                                              .action = (uint8_t)action};
    h->time_us += h->time_us ? 10 : 0;
}

static inline void history_free(history *h, uint64_t addr, uint64_t size, uint64_t stream) {
    history_add(h, CEN_ACTION_FREE_REQUESTED, addr, size, stream);
    history_add(h, CEN_ACTION_FREE_COMPLETED, addr, size, stream);
}

static inline cen_snapshot_device history_device(const history *h) {
    return (cen_snapshot_device){.events = h->events, .event_count = h->count};
}

static inline uint64_t history_random(uint64_t *state, uint64_t below) {
    return (random_next(state) >> 11) % below;
}

#endif
