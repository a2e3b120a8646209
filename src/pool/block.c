/* Blocks: ranges of a line, and the heaps that hold the free ones by size.
 *
 * A heap's bins are 16 to a doubling of the size; within a bin blocks are kept by size, then
 * address, as far as BIN_DEPTH steps look: so the first that fits is the best fit, in bounded time.
 */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "pool/pool_int.h"

#define BIN_DEPTH 32

unsigned ceni_bin_of(uint64_t size) {
    uint64_t units = size / CEN_POOL_ALIGNMENT;
    unsigned log = 63 - (unsigned)__builtin_clzll(units | 1);
    if (log < 4) {
        return (unsigned)units;
    }
    return (log - 3) * 16 + (unsigned)(units >> (log - 4) & 15);
}

/* Where a heap is noted that needs no search. */
static ceni_heap **noted(ceni_line *line, ceni_pstream *stream) {
    if (!stream) {
        return &line->anyones;
    }
    return line->arena->id ? NULL : &stream->heaps[line->rank];
}

static ceni_heap *find_heap(const ceni_line *line, const ceni_pstream *stream) {
    ceni_heap *h = line->heaps;
    while (h && h->stream != stream) {
        h = h->next;
    }
    return h;
}

ceni_heap *ceni_heap_get(cen_pool *pool, ceni_line *line, ceni_pstream *stream, bool create) {
    ceni_heap **note = noted(line, stream);
    ceni_heap *heap = note ? *note : find_heap(line, stream);
    if (heap || !create || !(heap = ceni_calloc(1, sizeof *heap))) {
        return heap;
    }
    heap->line = line;
    heap->stream = stream;
    heap->next = line->heaps;
    heap->number = line->heaps ? line->heaps->number + 1 : 0;
    line->heaps = heap;
    if (note) {
        *note = heap;
    }
    return heap;
}

static bool fits(const ceni_block *block, uint64_t size, uint64_t alignment) {
    uint64_t pad = -block->addr & (alignment - 1);
    return block->size >= size && block->size - size >= pad;
}

static ceni_block *first_fit(ceni_block *block, uint64_t size, uint64_t alignment, int depth) {
    for (; block && depth; block = block->bin_next, depth--) {
        if (fits(block, size, alignment)) {
            return block;
        }
    }
    return NULL;
}

unsigned ceni_heap_bin(const ceni_heap *heap, unsigned bin) {
    if (bin >= CENI_BINS) {
        return CENI_BINS;
    }
    unsigned word = bin / 64;
    uint64_t bits = heap->map[word] & ~(uint64_t)0 << bin % 64;
    if (!bits) {
        unsigned rest = heap->words & ~0u << (word + 1);
        if (!rest) {
            return CENI_BINS;
        }
        word = (unsigned)__builtin_ctz(rest);
        bits = heap->map[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(bits);
}

/* In the bin of the size itself some blocks are too small: all are looked at, but not again if none
 * is as large. */
static ceni_block *find_in_own_bin(ceni_heap *heap, unsigned bin, uint64_t size,
                                   uint64_t alignment) {
    if (heap->most[bin] < size / CEN_POOL_ALIGNMENT) {
        return NULL;
    }
    ceni_block *found = first_fit(heap->bins[bin], size, alignment, -1);
    if (!found && alignment <= CEN_POOL_ALIGNMENT) {
        heap->most[bin] = (uint32_t)(size / CEN_POOL_ALIGNMENT) - 1;
    }
    return found;
}

ceni_block *ceni_heap_find(ceni_heap *heap, uint64_t size, uint64_t alignment) {
    if (!heap || !heap->words) {
        return NULL;
    }
    unsigned bin = ceni_bin_of(size);
    ceni_block *found = find_in_own_bin(heap, bin, size, alignment);
    while (!found && (bin = ceni_heap_bin(heap, bin + 1)) < CENI_BINS) {
        found = first_fit(heap->bins[bin], size, alignment, BIN_DEPTH);
    }
    return found;
}

ceni_block *ceni_block_new(cen_pool *pool) {
    ceni_block *block = pool->spare_blocks;
    if (block) {
        pool->spare_blocks = block->next;
        memset(block, 0, sizeof *block);
        return block;
    }
    return ceni_calloc(1, sizeof *block);
}

void ceni_block_delete(cen_pool *pool, ceni_block *block) {
    block->next = pool->spare_blocks;
    pool->spare_blocks = block;
}

void ceni_block_link(ceni_line *line, ceni_block *block, ceni_block *before) {
    block->line = line;
    block->prev = before;
    block->next = before ? before->next : line->first_block;
    *(block->prev ? &block->prev->next : &line->first_block) = block;
    *(block->next ? &block->next->prev : &line->last_block) = block;
}

void ceni_block_unlink(ceni_block *block) {
    *(block->prev ? &block->prev->next : &block->line->first_block) = block->next;
    *(block->next ? &block->next->prev : &block->line->last_block) = block->prev;
}

void ceni_block_bin(cen_pool *pool, ceni_block *block) {
    /* The heap exists: whoever brings a stream to a line makes it first. */
    ceni_heap *heap = ceni_heap_get(pool, block->line, block->stream, false);
    unsigned bin = ceni_bin_of(block->size);
    ceni_block *after = NULL, *at = heap->bins[bin];
    for (int depth = BIN_DEPTH; at && depth; depth--, after = at, at = at->bin_next) {
        if (at->size > block->size || (at->size == block->size && at->addr > block->addr)) {
            break;
        }
    }
    block->kind = CENI_BLOCK_FREE;
    block->heap = heap;
    block->bin_prev = after;
    block->bin_next = at;
    *(after ? &after->bin_next : &heap->bins[bin]) = block;
    if (at) {
        at->bin_prev = block;
    }
    heap->map[bin / 64] |= (uint64_t)1 << bin % 64;
    heap->words |= 1u << bin / 64;
    uint32_t units = (uint32_t)(block->size / CEN_POOL_ALIGNMENT);
    heap->most[bin] = units > heap->most[bin] ? units : heap->most[bin];
    heap->free_bytes += block->size;
}

void ceni_block_unbin(ceni_block *block) {
    /* A free block has a heap; analysers that follow one path only cannot know. */
    ceni_heap *heap = block->heap;
    unsigned bin = ceni_bin_of(block->size);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
    *(block->bin_prev ? &block->bin_prev->bin_next : &heap->bins[bin]) = block->bin_next;
    if (block->bin_next) {
        block->bin_next->bin_prev = block->bin_prev;
    }
    if (!heap->bins[bin]) { /* NOLINT(clang-analyzer-core.NullDereference) */
        heap->map[bin / 64] &= ~((uint64_t)1 << bin % 64);
        heap->words &= ~((heap->map[bin / 64] ? 0u : 1u) << bin / 64);
    }
    heap->free_bytes -= block->size;
    block->heap = NULL;
}

bool ceni_block_touches(const ceni_block *left, const ceni_block *right) {
    return left && right && left->addr + left->size == right->addr && !right->wall;
}

/* With one stream in use, memory that is anyone's is as good as that stream's. */
bool ceni_block_fits_with(const cen_pool *pool, const ceni_block *left, const ceni_block *right) {
    return ceni_block_touches(left, right) &&
           (left->stream == right->stream ||
            (pool->stream_count <= 1 && (!left->stream || !right->stream)));
}

bool ceni_block_may_merge(const cen_pool *pool, const ceni_block *left, const ceni_block *right) {
    return ceni_block_fits_with(pool, left, right) && left->kind == CENI_BLOCK_FREE &&
           right->kind == CENI_BLOCK_FREE;
}

/* Joins `right` to `left`; both out of their bins. */
static void join(cen_pool *pool, ceni_block *left, ceni_block *right) {
    left->size += right->size;
    if (!left->stream) {
        left->stream = right->stream;
        left->epoch = right->epoch;
    } else if (right->stream && right->epoch > left->epoch) {
        left->epoch = right->epoch;
    }
    ceni_block_unlink(right);
    ceni_block_delete(pool, right);
}

void ceni_block_release(cen_pool *pool, ceni_block *block, ceni_pstream *stream, uint64_t epoch) {
    if (block->kind != CENI_BLOCK_FREE) {
        pool->freed++;
        pool->stats.allocated_bytes -= block->kind == CENI_BLOCK_PARKED ? 0 : block->size;
    }
    block->kind = CENI_BLOCK_FREE;
    block->requested = 0;
    block->movable = 0;
    block->slab = NULL;
    block->stream = stream;
    block->epoch = epoch;
    if (pool->dead_pages && ceni_block_bury(pool, block)) {
        return;
    }
    if (ceni_block_may_merge(pool, block, block->next)) {
        ceni_block_unbin(block->next);
        join(pool, block, block->next);
    }
    if (ceni_block_may_merge(pool, block->prev, block)) {
        ceni_block *left = block->prev;
        ceni_block_unbin(left);
        join(pool, left, block);
        block = left;
    }
    ceni_block_bin(pool, block);
}

cen_status ceni_block_take(cen_pool *pool, ceni_block *block, uint64_t addr, uint64_t size) {
    ceni_block *left = NULL, *right = NULL;
    if (addr > block->addr && !(left = ceni_block_new(pool))) {
        return CEN_ERR_HOST_MEMORY;
    }
    if (addr + size < block->addr + block->size && !(right = ceni_block_new(pool))) {
        if (left) {
            ceni_block_delete(pool, left);
        }
        return CEN_ERR_HOST_MEMORY;
    }
    ceni_block_unbin(block);
    if (left) {
        left->addr = block->addr;
        left->size = addr - block->addr;
        left->stream = block->stream;
        left->epoch = block->epoch;
        left->wall = block->wall;
        block->wall = false;
        ceni_block_link(block->line, left, block->prev);
        ceni_block_bin(pool, left);
    }
    if (right) {
        right->addr = addr + size;
        right->size = block->addr + block->size - right->addr;
        right->stream = block->stream;
        right->epoch = block->epoch;
        ceni_block_link(block->line, right, block);
        ceni_block_bin(pool, right);
    }
    block->addr = addr;
    block->size = size;
    return CEN_OK;
}

uint64_t ceni_line_free(const ceni_line *line) {
    uint64_t sum = 0;
    for (const ceni_heap *h = line->heaps; h; h = h->next) {
        sum += h->free_bytes;
    }
    return sum;
}

uint64_t ceni_line_largest(const ceni_line *line) {
    uint64_t largest = 0;
    for (const ceni_heap *h = line->heaps; h; h = h->next) {
        if (!h->words) {
            continue;
        }
        unsigned word = 31 - (unsigned)__builtin_clz(h->words);
        unsigned bin = word * 64 + 63 - (unsigned)__builtin_clzll(h->map[word]);
        for (const ceni_block *b = h->bins[bin]; b; b = b->bin_next) {
            largest = b->size > largest ? b->size : largest;
        }
    }
    return largest;
}

void ceni_line_merge(cen_pool *pool, ceni_line *line) {
    ceni_block *block = line->first_block;
    while (block) {
        if (!ceni_block_may_merge(pool, block, block->next)) {
            block = block->next;
            continue;
        }
        ceni_block_unbin(block);
        do {
            ceni_block_unbin(block->next);
            join(pool, block, block->next);
        } while (ceni_block_may_merge(pool, block, block->next));
        ceni_block_bin(pool, block);
    }
}
