/* The local pool: stream-ordered allocation of one device's memory.
 *
 * Small sizes come from slabs by class; large ones by best fit from ranges of addresses, behind
 * which physical pages are mapped. Idle pages are mapped where they are needed before the pool
 * grows, so that memory freed in pieces serves one large request. A block freed on a stream is at
 * once reusable by work submitted to that stream later; other streams get it behind an event.
 *
 * Unless said otherwise any thread may call, a block may be freed by another thread than the one
 * that allocated it, and no function waits for the device except as the last step before failing.
 * While a stream is capturing a graph, tell the pool with cen_pool_capture_begin. */
#ifndef CENOTE_POOL_H
#define CENOTE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/device.h"
#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_pool cen_pool;

/* Blocks are multiples of this and aligned to it, in bytes. */
#define CEN_POOL_ALIGNMENT 512

/* Why an allocation failed, in bytes; valid while the callback or call that gets it runs. */
typedef struct cen_pool_failure {
    uint64_t requested_bytes;
    cen_stream stream;
    uint64_t live_bytes;             /* requested by and live in blocks */
    uint64_t reserved_bytes;         /* held from the driver */
    uint64_t limit_bytes;            /* the pool's; UINT64_MAX: none */
    uint64_t device_free_bytes;      /* as the driver says */
    uint64_t largest_free_bytes;     /* the largest free range that the stream could have had */
    uint64_t stranded_stream_bytes;  /* free, but behind work of other streams */
    uint64_t stranded_private_bytes; /* free in private pools */
    uint64_t pending_bytes;          /* freed, still used by a stream */
} cen_pool_failure;

/* Called when nothing else helped, without locks held: it may free blocks or trim. Returns true to
 * try once more. */
typedef bool (*cen_pool_retry_fn)(void *arg, const cen_pool_failure *failure);

/* Zero-initialise, set `size` to sizeof, then what differs: a zero field means its default. */
typedef struct cen_pool_options {
    size_t size;
    uint64_t limit_bytes; /* most to hold of the device; default: no limit of the pool's own */
    uint64_t preallocate_bytes;
    uint64_t page_bytes; /* size of the pages made when growing; default: chosen by cost; at
                            most 2^46 */
    double driver_share; /* share of the elapsed time that optional driver calls may take once
                            the pool is warm; default 0.01, negative: as little as possible */
    cen_pool_retry_fn retry;
    void *retry_arg;
    uint64_t (*clock_us)(void *arg); /* the clock of driver_share; default: monotonic time */
    void *clock_arg;
} cen_pool_options;

/* Makes a pool on a device, which must outlive it. options may be NULL. Where the device lacks
 * virtual memory management the pool uses plain segments and says so in the log (CEN_LOG_WARN). */
CEN_API cen_status cen_pool_create(cen_device *device, const cen_pool_options *options,
                                   cen_pool **pool);

/* Waits for all uses that the pool knows of, then returns everything to the driver. Blocks still
 * live are gone too; their count is logged (CEN_LOG_WARN). NULL is ignored. Nothing else may use
 * the pool during or after the call. */
CEN_API cen_status cen_pool_destroy(cen_pool *pool);

/* Allocates `bytes` for work on `stream`. 0 bytes give NULL. Errors: CEN_ERR_DEVICE_MEMORY after
 * the whole ladder (wait for pending frees, other streams' idle memory, remap, moving movable
 * blocks, trim, the retry callback) failed, with the sums in the log and in cen_pool_last_failure;
 * CEN_ERR_FORKED; others of the device. */
CEN_API cen_status cen_pool_alloc(cen_pool *pool, size_t bytes, cen_stream stream, void **block);

/* The same, aligned to `alignment`, a power of two. CEN_ERR_INVALID if it is not one or exceeds
 * 1 GiB. */
CEN_API cen_status cen_pool_alloc_aligned(cen_pool *pool, size_t bytes, size_t alignment,
                                          cen_stream stream, void **block);

/* Frees a block for reuse after the work submitted so far to `stream` and to the streams named with
 * cen_pool_use. NULL is ignored. CEN_ERR_FOREIGN_POINTER, CEN_ERR_DOUBLE_FREE: the pool is
 * unchanged; CEN_ERR_INVALID: a movable block (cenote/movable.h). A block used on a stream other
 * than `stream` without cen_pool_use is the caller's to order. */
CEN_API cen_status cen_pool_free(cen_pool *pool, void *block, cen_stream stream);

/* Says that work submitted to `stream` uses the block: it is not reused before that work is done.
 * CEN_ERR_FOREIGN_POINTER, CEN_ERR_DOUBLE_FREE; CEN_ERR_INVALID: a movable block. */
CEN_API cen_status cen_pool_use(cen_pool *pool, void *block, cen_stream stream);

/* The size that was asked for. */
CEN_API cen_status cen_pool_block_size(cen_pool *pool, const void *block, size_t *bytes);

/* Tells the pool that a stream is about to be destroyed, so that its idle memory goes to the
 * others. Blocks that it allocated or used can still be freed in its name. A stream that gets the
 * same handle later is another one. */
CEN_API cen_status cen_pool_stream_release(cen_pool *pool, cen_stream stream);

/* Grows until at least `bytes` are reserved. */
CEN_API cen_status cen_pool_preallocate(cen_pool *pool, uint64_t bytes);

/* Sets the limit (0: none). Holding more than the limit is no error; the pool just stops growing.
 */
CEN_API cen_status cen_pool_set_limit(cen_pool *pool, uint64_t bytes);

/* Returns idle pages to the driver until at most `keep_bytes` are reserved or none is left whose
 * uses the host has seen complete; waits for pending work if `wait`. Not while capturing
 * (CEN_ERR_CAPTURE). returned_bytes may be NULL. */
CEN_API cen_status cen_pool_trim(cen_pool *pool, uint64_t keep_bytes, bool wait,
                                 uint64_t *returned_bytes);

/* Graph capture. From begin to end, allocations on `stream` come from private pool `id` (any number
 * but 0; made by its first begin), whose addresses and pages stay where they are until
 * cen_pool_capture_release. Until the end no event is queried, nothing is synchronised and no
 * memory of other streams is taken. Several graphs may share an id. begin and end may also bracket
 * allocations without a capture, to place them in a private pool. Otherwise begin comes before the
 * capture begins, and end after it has ended: then streams may be marked with events again. A pool
 * of plain segments cannot grow while a stream captures (CEN_ERR_CAPTURE): allocate and free
 * between begin and the start of the capture what it will need. */
CEN_API cen_status cen_pool_capture_begin(cen_pool *pool, cen_stream stream, uint64_t id);
CEN_API cen_status cen_pool_capture_end(cen_pool *pool, cen_stream stream);
/* The graphs of `id` are gone: its idle memory joins the pool's, also that of blocks freed later.
 * CEN_ERR_NOT_FOUND, CEN_ERR_BUSY while a stream captures into it. */
CEN_API cen_status cen_pool_capture_release(cen_pool *pool, uint64_t id);
/* Allocates in private pool `id` the very block that was there before, by the address and size that
 * it had: to take the pool back to an earlier state before its graphs replay. The place is ordered
 * behind the streams that had it since. CEN_ERR_BUSY: it is not free; CEN_ERR_NOT_FOUND: no such
 * pool; CEN_ERR_CAPTURE: another stream had it last, and one captures; CEN_ERR_INVALID. */
CEN_API cen_status cen_pool_alloc_at(cen_pool *pool, uint64_t id, void *block, size_t bytes,
                                     cen_stream stream);

/* Lets `peer`, which must outlive the pool, reach all memory of the pool, now and later. A pool of
 * a global one is reached by all already. CEN_ERR_UNSUPPORTED: it cannot; CEN_ERR_LIMIT. */
CEN_API cen_status cen_pool_grant(cen_pool *pool, cen_device *peer);

/* Figures of a pool, in bytes and counts. requested: asked for and live; allocated: the same,
 * rounded up to blocks; reserved: held from the driver. */
typedef struct cen_pool_stats {
    uint64_t requested_bytes, requested_peak_bytes;
    uint64_t allocated_bytes, allocated_peak_bytes;
    uint64_t reserved_bytes, reserved_peak_bytes;
    uint64_t private_reserved_bytes; /* of reserved_bytes, in private pools */
    uint64_t borrowed_bytes;         /* of reserved_bytes, memory of peers or the host */
    uint64_t blocks;
    uint64_t allocs, frees, failures;
    uint64_t pending_blocks, pending_bytes;
    uint64_t largest_free_bytes;
    uint64_t pages, segments;      /* a page is mapped by one segment or several */
    uint64_t driver_calls;         /* reserve, create, map, access, unmap, release */
    uint64_t driver_ns;            /* host time spent in them */
    uint64_t driver_handles[6];    /* handles concerned, by kind of call in the order above */
    uint64_t driver_kind_calls[6]; /* calls, by kind */
    uint64_t remapped_bytes;       /* idle pages mapped elsewhere instead of growing */
    uint64_t retries;
    uint64_t defragmentations; /* asked for, and by a policy (cenote/movable.h) */
    uint64_t moved_bytes;      /* of movable blocks that these copied elsewhere */
} cen_pool_stats;
CEN_API cen_status cen_pool_get_stats(cen_pool *pool, cen_pool_stats *stats);
/* Sets the peaks to the current values. */
CEN_API cen_status cen_pool_reset_peaks(cen_pool *pool);

/* The last failure of the pool, if any (CEN_ERR_NOT_FOUND). */
CEN_API cen_status cen_pool_last_failure(cen_pool *pool, cen_pool_failure *failure);

typedef enum cen_pool_block_state {
    CEN_POOL_LIVE,
    CEN_POOL_PENDING, /* freed, a stream still uses it */
    CEN_POOL_FREE,    /* a free range, or free objects of a slab */
    CEN_POOL_LOST,    /* freed, on borrowed memory whose device was lost: not used again */
} cen_pool_block_state;

typedef struct cen_pool_block_info {
    cen_addr addr;
    uint64_t bytes;
    uint64_t requested_bytes; /* 0 for free ranges */
    cen_stream stream;        /* whose work comes before reuse; 0 for none too */
    uint64_t private_id;      /* 0: the shared pool */
    cen_pool_block_state state;
} cen_pool_block_info;

/* Calls fn for every block and free range, by address within a segment, under the pool's lock (fn
 * must not call the pool). Stops when fn returns false. */
CEN_API cen_status cen_pool_walk(cen_pool *pool,
                                 bool (*fn)(void *arg, const cen_pool_block_info *info), void *arg);

/* The same into an array: fills the first `capacity` of `infos` (NULL if 0) and gives how many
 * there are in all, which may have changed by the next call. */
CEN_API cen_status cen_pool_list(cen_pool *pool, cen_pool_block_info *infos, size_t capacity,
                                 size_t *count);

/* Checks every invariant of the pool: blocks tile their segments, no page serves two places, free
 * lists and counters agree. CEN_ERR_CORRUPT with the first violation in the log. Debug builds call
 * it often. */
CEN_API cen_status cen_pool_verify(cen_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
