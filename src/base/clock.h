/* Monotonic time, in nanoseconds from a point that only this boot knows. */
#ifndef CENI_CLOCK_H
#define CENI_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ceni_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
