/* Movable blocks and defragmentation of a local pool.
 *
 * A movable block is known by a handle. It has an address only while it is pinned; unpinned, the
 * pool may copy it elsewhere to make whole pages free: when asked, by a policy, or before an
 * allocation fails. Moves are stream-ordered: they come after the work of the streams that unpinned
 * the block and before that of the stream that pins it next, and nobody waits on the host. The
 * address is for work on the block only: cen_pool_free and cen_pool_use refuse it. Any thread may
 * call. */
#ifndef CENOTE_MOVABLE_H
#define CENOTE_MOVABLE_H

#include "cenote/pool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t cen_movable; /* never 0; a freed one is not given out again soon */

/* Allocates a movable block for work on `stream`. Errors: as cen_pool_alloc; CEN_ERR_INVALID for 0
 * bytes. Blocks of up to 32 KiB take a little over 32 KiB. While the stream is in a private pool
 * (cen_pool_capture_begin): CEN_ERR_CAPTURE, a graph's addresses stay. */
CEN_API cen_status cen_movable_alloc(cen_pool *pool, size_t bytes, cen_stream stream,
                                     cen_movable *handle);

/* Fixes the block where it is and gives its address, valid until the matching unpin, for work on
 * `stream`, which is ordered behind the last move. Pins nest, also by several streams. Pin before a
 * graph is captured, and unpin when the graph is gone. CEN_ERR_NOT_FOUND: no such handle, or freed;
 * CEN_ERR_CAPTURE: a stream captures and the last move is not known to be complete. */
CEN_API cen_status cen_movable_pin(cen_pool *pool, cen_movable handle, cen_stream stream,
                                   void **addr);

/* Ends a pin: work submitted so far to `stream` may use the block, later work may not.
 * CEN_ERR_NOT_FOUND; CEN_ERR_INVALID: it is not pinned. */
CEN_API cen_status cen_movable_unpin(cen_pool *pool, cen_movable handle, cen_stream stream);

/* Frees the block for reuse after the work submitted so far to `stream` and to those that unpinned
 * it. CEN_ERR_NOT_FOUND; CEN_ERR_BUSY: it is pinned, and stays. */
CEN_API cen_status cen_movable_free(cen_pool *pool, cen_movable handle, cen_stream stream);

/* Moves one block now into the best hole of other pages, of those in use if they have one; for
 * tests and for those who know better. CEN_ERR_NOT_FOUND; CEN_ERR_BUSY: it is pinned;
 * CEN_ERR_CAPTURE: a stream captures; CEN_ERR_DEVICE_MEMORY: no other page has a hole for it;
 * CEN_ERR_DEVICE_LOST: it lay on a lost device. */
CEN_API cen_status cen_movable_move(cen_pool *pool, cen_movable handle);

/* The size that was asked for. CEN_ERR_NOT_FOUND. */
CEN_API cen_status cen_movable_size(cen_pool *pool, cen_movable handle, size_t *bytes);

/* Zero-initialise, set `size` to sizeof, then what differs. */
typedef struct cen_defragment_options {
    size_t size;
    uint64_t keep_bytes; /* return idle pages while more than this is reserved; 0: all of them,
                            UINT64_MAX: none, which puts them side by side instead */
    uint64_t budget_us; /* begin nothing new after about so long by the pool's clock, but no wait is
                           cut short; 0: go on until nothing is left to do */
    bool compact;       /* copy movable blocks together, so that more pages become idle */
    bool wait;          /* wait for pending frees and for copies, so that they count; without it a
                           page that work may still use is not returned by this call */
} cen_defragment_options;

typedef struct cen_defragment_report {
    uint64_t returned_bytes;  /* to the driver */
    uint64_t regrouped_bytes; /* of idle pages, mapped side by side */
    uint64_t moved_bytes, moved_blocks;
    uint64_t pinned_bytes;                  /* in movable blocks that stood in the way, pinned */
    uint64_t largest_before, largest_after; /* free block */
    uint64_t reserved_before, reserved_after;
    uint64_t ns;      /* host time */
    bool out_of_time; /* the budget ended it */
} cen_defragment_report;

/* Defragments a pool: merges what is free, with `compact` moves unpinned movable blocks out of the
 * emptiest pages into holes of the others, returns idle pages, and puts the rest of them side by
 * side. options may be NULL, report too. CEN_ERR_CAPTURE while a stream captures. */
CEN_API cen_status cen_pool_defragment(cen_pool *pool, const cen_defragment_options *options,
                                       cen_defragment_report *report);

/* When the pool defragments by itself, within its own calls: at an allocation or free of a block
 * over 32 KiB, never while a stream captures. Zero-initialise, set `size`. */
typedef struct cen_defragment_policy {
    size_t size;
    uint64_t interval_us; /* by the pool's clock; 0: not by time */
    double threshold;     /* also once the largest free block is less than 1 - threshold of what is
                             free, and that is a sixteenth of what is reserved; 0: not by this */
    cen_defragment_options each; /* what is done each time; budget_us 0 means 1000 */
} cen_defragment_policy;
/* NULL: no longer. Where defragmenting fails, the call that it is within does not. CEN_ERR_INVALID:
 * size is not set, or threshold is not between 0 and 1. */
CEN_API cen_status cen_pool_set_defragment(cen_pool *pool, const cen_defragment_policy *policy);

#ifdef __cplusplus
}
#endif
#endif
