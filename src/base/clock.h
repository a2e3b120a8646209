/* Monotonic time, in nanoseconds from a point that only this boot knows. */
#ifndef CENI_CLOCK_H
#define CENI_CLOCK_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t ceni_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* From `now` until `end` as poll() takes it: in milliseconds, rounded up; 0 once it is over. At
 * most INT_MAX, after which one has to look again. */
static inline int ceni_poll_ms(uint64_t now, uint64_t end) {
    uint64_t left = now >= end ? 0 : (end - now - 1) / 1000000 + 1;
    return left < INT_MAX ? (int)left : INT_MAX;
}

#endif
