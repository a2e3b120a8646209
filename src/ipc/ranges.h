/* Offsets in a set: which are free, which are a block's. Best fit; free neighbours are merged. A
 * treap by offset finds the range at any place, one by size the smallest that is large enough. */
#ifndef CENI_IPC_RANGES_H
#define CENI_IPC_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ceni_range ceni_range;
struct ceni_range {
    uint64_t offset, size;
    ceni_range *left[2], *right[2]; /* by offset, by size */
    ceni_range *before, *after;     /* neighbours */
    uint32_t weight;
    bool used;
    void *owner; /* of a used one: the caller's */
};

typedef struct ceni_ranges {
    ceni_range *roots[2];
    uint64_t size, used;
    uint32_t seed;
} ceni_ranges;

/* One free range of `size`. Returns 0, or -1 when memory is exhausted. */
int ceni_ranges_open(ceni_ranges *ranges, uint64_t size);
void ceni_ranges_close(ceni_ranges *ranges);
/* Takes `size` bytes, at a multiple of 512. NULL: no free range is large enough, or *no_memory. */
ceni_range *ceni_ranges_take(ceni_ranges *ranges, uint64_t size, bool *no_memory);
void ceni_ranges_give(ceni_ranges *ranges, ceni_range *range);
/* The range that holds the offset; NULL outside. */
ceni_range *ceni_ranges_at(const ceni_ranges *ranges, uint64_t offset);
/* The largest free range. */
uint64_t ceni_ranges_largest(const ceni_ranges *ranges);
/* Whether the structure is sound: for tests and debug builds. */
bool ceni_ranges_verify(const ceni_ranges *ranges);

#endif
