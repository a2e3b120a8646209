/* An independent check that no two live blocks share memory. It knows nothing of the pool or the
 * host backend: live blocks are kept here, sorted by address, and what physical memory an address
 * has is read from /proc/self/maps, where a page is a range of a memfd. */
#ifndef TEST_OVERLAP_H
#define TEST_OVERLAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct overlap_block {
    uint64_t addr, size;
} overlap_block;

typedef struct overlap_model {
    overlap_block *blocks; /* live, by address */
    size_t count, capacity;
    size_t alike;     /* blocks that overlap a live one, or are not aligned */
    size_t shared;    /* pieces of physical memory that two live blocks have */
    size_t unmapped;  /* live blocks without readable and writable memory all over */
    size_t unknown;   /* ends of blocks that are not live */
    size_t looked_at; /* pieces of physical memory looked at */
} overlap_model;

/* The first block at or after an address. */
static inline size_t overlap_find(const overlap_model *m, uint64_t addr) {
    size_t low = 0, high = m->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (m->blocks[middle].addr < addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static inline void overlap_begin(overlap_model *m, uint64_t addr, uint64_t size) {
    size_t at = overlap_find(m, addr);
    bool before = at && m->blocks[at - 1].addr + m->blocks[at - 1].size > addr;
    bool after = at < m->count && m->blocks[at].addr < addr + size;
    m->alike += before || after || addr % 512;
    if (m->count == m->capacity) {
        m->capacity = m->capacity ? m->capacity * 2 : 1024;
        m->blocks = realloc(m->blocks, m->capacity * sizeof *m->blocks);
    }
    memmove(&m->blocks[at + 1], &m->blocks[at], (m->count++ - at) * sizeof *m->blocks);
    m->blocks[at] = (overlap_block){addr, size};
}

static inline void overlap_end(overlap_model *m, uint64_t addr) {
    size_t at = overlap_find(m, addr);
    if (at == m->count || m->blocks[at].addr != addr) {
        m->unknown++;
        return;
    }
    memmove(&m->blocks[at], &m->blocks[at + 1], (--m->count - at) * sizeof *m->blocks);
}

/* A piece of a live block, in its memfd. */
typedef struct overlap_piece {
    uint64_t inode, offset, size;
} overlap_piece;

typedef struct overlap_pieces {
    overlap_piece *items;
    size_t count, capacity;
} overlap_pieces;

static inline void overlap_add(overlap_pieces *p, overlap_piece piece) {
    if (p->count == p->capacity) {
        p->capacity = p->capacity ? p->capacity * 2 : 4096;
        p->items = realloc(p->items, p->capacity * sizeof *p->items);
    }
    p->items[p->count++] = piece;
}

static inline int overlap_by_place(const void *a, const void *b) {
    const overlap_piece *x = a, *y = b;
    if (x->inode != y->inode) {
        return x->inode < y->inode ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Adds the pieces of live blocks in one mapping; both go by address, so `at` only moves on. Returns
 * the bytes found. */
static inline uint64_t overlap_map(const overlap_model *m, size_t *at, uint64_t start, uint64_t end,
                                   uint64_t inode, uint64_t offset, overlap_pieces *pieces) {
    uint64_t bytes = 0;
    while (*at < m->count && m->blocks[*at].addr + m->blocks[*at].size <= start) {
        ++*at;
    }
    for (size_t i = *at; i < m->count && m->blocks[i].addr < end; i++) {
        const overlap_block *b = &m->blocks[i];
        uint64_t from = b->addr > start ? b->addr : start;
        uint64_t to = b->addr + b->size < end ? b->addr + b->size : end;
        overlap_add(pieces, (overlap_piece){inode, offset + (from - start), to - from});
        bytes += to - from;
    }
    return bytes;
}

/* Looks at the physical memory of all live blocks. */
static inline void overlap_look(overlap_model *m) {
    FILE *maps = fopen("/proc/self/maps", "r");
    overlap_pieces pieces = {0};
    uint64_t wanted = 0, found = 0;
    size_t at = 0;
    char line[512];
    for (size_t i = 0; i < m->count; i++) {
        wanted += m->blocks[i].size;
    }
    while (maps && fgets(line, sizeof line, maps)) {
        char *rest; /* "start-end rw-s offset device inode name" */
        uint64_t start = strtoull(line, &rest, 16), end = strtoull(rest + 1, &rest, 16);
        const char *perms = rest + 1;
        uint64_t offset = strtoull(perms + 4, &rest, 16);
        char *device = strchr(rest + 1, ' ');
        uint64_t inode = device ? strtoull(device, NULL, 10) : 0;
        if (strstr(line, "memfd:cenote") && perms[0] == 'r' && perms[1] == 'w') {
            found += overlap_map(m, &at, start, end, inode, offset, &pieces);
        }
    }
    if (maps) {
        fclose(maps);
    }
    if (pieces.count) {
        qsort(pieces.items, pieces.count, sizeof *pieces.items, overlap_by_place);
    }
    for (size_t i = 1; i < pieces.count; i++) {
        const overlap_piece *a = &pieces.items[i - 1], *b = &pieces.items[i];
        m->shared += a->inode == b->inode && a->offset + a->size > b->offset;
    }
    m->unmapped += found != wanted;
    m->looked_at += pieces.count;
    free(pieces.items);
}

static inline bool overlap_fine(const overlap_model *m) {
    return !m->alike && !m->shared && !m->unmapped && !m->unknown;
}

static inline void overlap_print(const overlap_model *m, const char *what) {
    printf("%s: %zu overlap, %zu pieces of memory shared, %zu times not mapped, %zu unknown ends\n",
           what, m->alike, m->shared, m->unmapped, m->unknown);
}

#endif
