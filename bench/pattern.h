/* The mixed pattern that allocators are compared on: one rule, the same sequence for each of them.
 *
 * PATTERN_SLOTS blocks are allocated; then PATTERN_STEPS times a random slot's block is freed and a
 * new one allocated in its place. Sizes lie between 512 B and 64 MiB, each of the 17 octaves as
 * likely as any other, uniform within it: about 1.5 GiB are live, at most 2.3. Random numbers are
 * xorshift64 (shifts 13, 7, 17) from PATTERN_SEED; a step draws twice: first the slot, then the
 * size.
 *
 * Time is taken over PATTERN_CHUNK steps at a time, so that reading the clock is not measured:
 * a chunk's nanoseconds over its steps is one sample of "ns a pair". */
#ifndef CENOTE_BENCH_PATTERN_H
#define CENOTE_BENCH_PATTERN_H

#include <stddef.h>
#include <stdint.h>

enum { PATTERN_SLOTS = 256, PATTERN_STEPS = 200000, PATTERN_CHUNK = 10000 };
#define PATTERN_SEED UINT64_C(0x9E3779B97F4A7C15)

static inline uint64_t pattern_next(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

static inline size_t pattern_slot(uint64_t *state) {
    return (size_t)(pattern_next(state) >> 33) % PATTERN_SLOTS;
}

static inline size_t pattern_size(uint64_t *state) {
    uint64_t r = pattern_next(state) >> 16;
    uint64_t octave = UINT64_C(512) << (r % 17);
    return (size_t)(octave + (octave * ((r >> 8) & 1023) >> 10));
}

#endif
