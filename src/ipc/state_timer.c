/* Deadlines: a binary heap, in which each item knows its place. */
#include "base/mem.h"
#include "ipc/state_int.h"

static uint64_t deadline_of(const ceni_state *s, uint32_t timer) {
    return timer & CENI_TIMER_EXPORT ? ceni_export_at(s, timer & ~CENI_TIMER_EXPORT)->deadline
                                     : ceni_client_at(s, timer)->deadline;
}

static uint32_t *place_of(const ceni_state *s, uint32_t timer) {
    return timer & CENI_TIMER_EXPORT ? &ceni_export_at(s, timer & ~CENI_TIMER_EXPORT)->timer
                                     : &ceni_client_at(s, timer)->timer;
}

static void put(ceni_state *s, size_t at, uint32_t timer) {
    s->timers[at] = timer;
    *place_of(s, timer) = (uint32_t)at;
}

static void rise(ceni_state *s, size_t at, uint32_t timer) {
    uint64_t deadline = deadline_of(s, timer);
    while (at && deadline_of(s, s->timers[(at - 1) / 2]) > deadline) {
        put(s, at, s->timers[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(s, at, timer);
}

static void sink(ceni_state *s, size_t at, uint32_t timer) {
    uint64_t deadline = deadline_of(s, timer);
    for (size_t child; (child = 2 * at + 1) < s->timer_count; at = child) {
        if (child + 1 < s->timer_count &&
            deadline_of(s, s->timers[child + 1]) < deadline_of(s, s->timers[child])) {
            child++;
        }
        if (deadline_of(s, s->timers[child]) >= deadline) {
            break;
        }
        put(s, at, s->timers[child]);
    }
    put(s, at, timer);
}

bool ceni_timer_start(ceni_state *s, uint32_t timer, uint64_t ms) {
    ceni_timer_stop(s, timer);
    if (ceni_grow(&s->timers, &s->timer_capacity, s->timer_count + 1, sizeof *s->timers)) {
        return false;
    }
    if (timer & CENI_TIMER_EXPORT) {
        ceni_export_at(s, timer & ~CENI_TIMER_EXPORT)->deadline = s->now + ms;
    } else {
        ceni_client_at(s, timer)->deadline = s->now + ms;
    }
    rise(s, s->timer_count++, timer);
    return true;
}

void ceni_timer_stop(ceni_state *s, uint32_t timer) {
    uint32_t at = *place_of(s, timer);
    if (at == CENI_NONE) {
        return;
    }
    *place_of(s, timer) = CENI_NONE;
    uint32_t last = s->timers[--s->timer_count];
    if (last != timer) {
        sink(s, at, last);
        rise(s, *place_of(s, last), last);
    }
}

void ceni_state_now(ceni_state *state, uint64_t now_ms) {
    state->now = now_ms;
}

uint64_t ceni_state_deadline(const ceni_state *state) {
    return state->timer_count ? deadline_of(state, state->timers[0]) : UINT64_MAX;
}

void ceni_state_tick(ceni_state *s) {
    while (s->timer_count && deadline_of(s, s->timers[0]) <= s->now) {
        uint32_t timer = s->timers[0];
        ceni_timer_stop(s, timer);
        if (timer & CENI_TIMER_EXPORT) {
            ceni_export_withdraw(s, timer & ~CENI_TIMER_EXPORT, CENI_NONE);
        } else {
            ceni_open_timeout(s, timer);
        }
    }
}
