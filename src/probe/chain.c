/* Chains of dependent accesses, and what their latencies tell of the levels. */
#include "probe/probe.h"

#include <string.h>

/* xorshift64*: the order has to look random to prefetchers, no more. */
static uint64_t next_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1Du;
}

static void put(char *memory, uint64_t line, uint64_t i, uint64_t value) {
    memcpy(memory + i * line, &value, sizeof value);
}

static uint64_t get(const char *memory, uint64_t line, uint64_t i) {
    uint64_t value;
    memcpy(&value, memory + i * line, sizeof value);
    return value;
}

/* Sattolo's algorithm: exchanging each entry with an earlier one, never with itself, gives a
 * permutation of one cycle. */
void ceni_chain_make(void *memory, uint64_t base, uint64_t lines, uint64_t line, uint64_t seed) {
    uint64_t state = seed * 2 + 1;
    for (uint64_t i = 0; i < lines; i++) {
        put(memory, line, i, base + i * line);
    }
    for (uint64_t i = lines; i-- > 1;) {
        uint64_t other = next_random(&state) % i, held = get(memory, line, i);
        put(memory, line, i, get(memory, line, other));
        put(memory, line, other, held);
    }
}

size_t ceni_chain_sizes(uint64_t from, uint64_t to, uint64_t line, uint64_t *sizes, size_t room) {
    size_t count = 0;
    for (uint64_t power = from; power <= to && count < room; power *= 2) {
        uint64_t between = (power + power / 2) / line * line;
        sizes[count++] = power / line * line;
        if (count < room && between <= to) {
            sizes[count++] = between;
        }
    }
    return count;
}

/* A level shows as three sizes or more, so a factor of two, whose latencies are at most 1.2 times
 * the first one's; it ends with the last of them. Sizes between two such are a mix of both. */
size_t ceni_steps_find(const cen_probe_step *steps, size_t count, uint64_t *ends, size_t room) {
    enum { LEAST = 3 };
    size_t found = 0;
    for (size_t i = 0; i < count && found < room;) {
        size_t end = i + 1;
        while (end < count && steps[end].ns <= 1.2 * steps[i].ns) {
            end++;
        }
        if (end == count) {
            break;
        }
        if (end - i >= LEAST) {
            ends[found++] = steps[end - 1].bytes;
            i = end;
        } else {
            i++;
        }
    }
    return found;
}

const char *ceni_cache_name(size_t n) {
    static const char *const names[] = {CEN_LEVEL_L1, CEN_LEVEL_L2, CEN_LEVEL_L3, "L4"};
    return names[n < 3 ? n : 3];
}
