/* Inside the pool: driver calls, pages and segments, and the policy that weighs their cost. */
#ifndef CENI_POOL_PAGE_H
#define CENI_POOL_PAGE_H

#include "pool/pool_int.h"

/* driver.c */
cen_status ceni_driver_reserve(cen_pool *pool, uint64_t size, cen_addr *addr);
cen_status ceni_driver_create(cen_pool *pool, uint64_t size, const ceni_home *home,
                              ceni_page *page);
cen_status ceni_driver_map(cen_pool *pool, uint64_t addr, uint64_t size, ceni_page page);
/* All pages of the range are of one home. */
cen_status ceni_driver_access(cen_pool *pool, uint64_t addr, uint64_t size, size_t handles,
                              const ceni_home *home);
cen_status ceni_driver_unmap(cen_pool *pool, uint64_t addr, uint64_t size, size_t handles);
cen_status ceni_driver_release(cen_pool *pool, const ceni_pool_page *page);

cen_status ceni_driver_segment_alloc(cen_pool *pool, uint64_t size, cen_addr *addr);
cen_status ceni_driver_segment_free(cen_pool *pool, cen_addr addr);

/* segment.c */

/* What a request still lacks where it would go: addresses [addr, addr+room) are free of segments,
 * and `have` bytes just before them are free and usable. */
typedef struct ceni_gap {
    ceni_segment *after; /* the segment before the gap; NULL: at the line's start */
    ceni_block *left;    /* the free block that ends at the gap, or NULL */
    uint64_t addr, room, have;
} ceni_gap;

/* A page no part of which is in use. */
typedef struct ceni_idle {
    ceni_pool_page *page;
    uint64_t around; /* size of the free range it lies in */
} ceni_idle;

typedef struct ceni_idle_list {
    ceni_idle *items;
    size_t count, capacity;
    uint64_t bytes;
} ceni_idle_list;

/* The free blocks that cover an active segment, for a stream: fills nothing, returns the first of
 * them, or NULL if any byte is in use or may not be had (`stream` NULL: only what is complete). */
ceni_block *ceni_segment_idle(const cen_pool *pool, const ceni_segment *segment, ceni_block *from,
                              const ceni_pstream *stream);
/* Adds the idle pages of a line but for those in [skip, skip+skip_size). */
cen_status ceni_line_idle(cen_pool *pool, ceni_line *line, const ceni_pstream *stream,
                          uint64_t skip, uint64_t skip_size, ceni_idle_list *list);
bool ceni_line_gap(cen_pool *pool, ceni_line *line, uint64_t need, const ceni_pstream *stream,
                   ceni_gap *gap);
ceni_segment *ceni_segment_new(ceni_line *line, ceni_segment *after, uint64_t addr, uint64_t size,
                               ceni_pool_page *page);
void ceni_segment_delete(ceni_segment *segment);
static inline bool ceni_home_is(const ceni_home *a, const ceni_home *b) {
    return a->device == b->device && a->host == b->host;
}
/* Memory of a peer or of the host. */
static inline bool ceni_page_borrowed(const cen_pool *pool, const ceni_pool_page *page) {
    return page->home.host || page->home.device != pool->device;
}
/* What may still be created of the device's own memory under the pool's limit. */
static inline uint64_t ceni_pool_allowed(const cen_pool *pool) {
    uint64_t own = pool->stats.reserved_bytes - pool->stats.borrowed_bytes;
    return pool->limit > own ? pool->limit - own : 0;
}
/* Enters a page into the pool's list and figures, and takes it out. */
void ceni_page_add(cen_pool *pool, const ceni_line *line, ceni_pool_page *page);
void ceni_page_remove(cen_pool *pool, ceni_pool_page *page);
/* Makes `stream` wait for what used the page last. */
cen_status ceni_page_order(cen_pool *pool, ceni_pool_page *page, ceni_pstream *stream);
/* Takes the page's active segment out of use: its free blocks go. Needs spare blocks. */
void ceni_page_deactivate(cen_pool *pool, ceni_pool_page *page, ceni_pstream *stream);
/* Puts a segment into use: a free block of `stream` appears on it. Needs a spare block. */
void ceni_segment_activate(cen_pool *pool, ceni_segment *segment, ceni_pstream *stream);
/* trim.c: whether the host has seen the uses of all mappings complete that are not in use. */
bool ceni_page_quiet(const ceni_pool_page *page);
/* Unmaps and returns a page that was taken out of use. */
cen_status ceni_page_return(cen_pool *pool, ceni_pool_page *page);
/* Has at least `count` descriptors ready, so that what follows cannot fail. */
cen_status ceni_blocks_ready(cen_pool *pool, size_t count);

/* policy.c: what is worth its driver time. */
typedef struct ceni_growth {
    uint64_t bytes;      /* to create */
    uint64_t page_bytes; /* of each page; the last may be smaller */
} ceni_growth;
/* For a block of `need` bytes that lacks `lack` of them. */
ceni_growth ceni_policy_growth(cen_pool *pool, const ceni_line *line, uint64_t need, uint64_t lack);
/* The same for plain segments, when no more than needed may be taken. */
uint64_t ceni_policy_plain(const cen_pool *pool, uint64_t need);
void ceni_policy_spend(cen_pool *pool, enum ceni_driver_kind kind, size_t handles);

#endif
