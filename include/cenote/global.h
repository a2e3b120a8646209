/* The global pool: the memory of several devices as one.
 *
 * It owns a local pool on each device (cen_global_pool), which serves small blocks and everyday
 * work, and places large blocks where there is room: on the device asked for, on a peer, or as one
 * contiguous range of addresses over pages of several devices. Every page grants access to each
 * device that can reach it. When a device is full its local pool borrows pages of a neighbour, or
 * of the host if that is allowed; they are the neighbour's to reclaim, which is announced
 * (cen_global_notice).
 *
 * Devices are numbered as they were given, from 0. Streams belong to a device and are given with
 * its number. Any thread may call. Called back are the notice, the log, and the retry and the clock
 * of options.pool, nothing else. No function waits for a device except as the last step before
 * failing, or where asked to. */
#ifndef CENOTE_GLOBAL_H
#define CENOTE_GLOBAL_H

#include "cenote/movable.h"
#include "cenote/pool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_global cen_global;

#define CEN_GLOBAL_DEVICES 16   /* at most */
#define CEN_GLOBAL_HOST    (-1) /* in place of a device's number: memory of the host */
#define CEN_GLOBAL_ALL     (-2) /* all devices together, and the host if allowed */

/* A device wants memory back that a neighbour's local pool has borrowed, and what could be had
 * without help is not enough. Called without locks held, by the thread whose allocation or
 * cen_global_reclaim lacks it, so by several at a time. Free or unpin blocks of the borrower's
 * local pool, then return; what is then idle goes back. It may use every pool; what its own calls
 * lack is not announced. */
typedef struct cen_global_notice {
    int lender;      /* the device whose pages are wanted back */
    int borrower;    /* the device whose local pool holds them */
    uint64_t wanted; /* bytes that the lender lacks */
    uint64_t in_use; /* bytes of the lender in the borrower's pool that are in use */
} cen_global_notice;
typedef void (*cen_global_notice_fn)(void *arg, const cen_global_notice *notice);

/* Zero-initialise, set `size` to sizeof, then what differs: a zero field means its default. */
typedef struct cen_global_options {
    size_t size;
    cen_pool_options pool; /* of each local pool; its own size field too if anything is set */
    bool no_borrowing;     /* local pools stay on their device */
    bool return_at_once;   /* blocks of the global pool's own go back to the driver when they are
                              free, instead of being kept for the next one alike */
    bool allow_host;       /* pages in host memory are used when no device has room */
    uint64_t host_bytes;   /* at most so many of them; default: no limit */
    uint64_t small_bytes;  /* blocks up to this come from the local pool; default 32 MiB */
    cen_global_notice_fn notice;
    void *notice_arg;
} cen_global_options;

/* Makes a global pool over `count` open devices of one backend, which must outlive it, and enables
 * peer access wherever it can be had. Devices that cannot reach each other are fine: each then
 * lacks the other as a place. options may be NULL. CEN_ERR_INVALID: none, too many, a device twice
 * or of another backend, or a size field that is not set; CEN_ERR_UNSUPPORTED: a device has no
 * virtual memory management; errors as cen_pool_create's. */
CEN_API cen_status cen_global_create(cen_device *const *devices, size_t count,
                                     const cen_global_options *options, cen_global **global);

/* Waits for all uses that it knows of, then returns everything, the local pools too. What is still
 * live is gone too, its count is logged (CEN_LOG_WARN). NULL is ignored. Nothing else may use the
 * pool during or after the call. */
CEN_API cen_status cen_global_destroy(cen_global *global);

/* The local pool of a device, for cen_pool_* and cen_movable_*; not to be destroyed by the caller.
 * NULL: no such device (logged). */
CEN_API cen_pool *cen_global_pool(cen_global *global, int device);

typedef enum cen_placement {
    CEN_PLACE_AUTO,    /* local; else on the peer with the best link that has room, of those the one
                          with most; else by weight of room; else on the host, if allowed */
    CEN_PLACE_LOCAL,   /* on the device, or nowhere */
    CEN_PLACE_PEER,    /* on a peer, as chosen by AUTO */
    CEN_PLACE_SPLIT,   /* equal parts, one a device, the device asked for first */
    CEN_PLACE_STRIPED, /* stripes in turn over the devices, the device asked for first; with weights
                          in proportion to them */
    CEN_PLACE_WEIGHTED, /* one part a device, in proportion to the weights */
    CEN_PLACE_HOST
} cen_placement;

/* How to place a block. Zero-initialise, set `size` to sizeof. Devices that the one asked for
 * cannot reach take no part. */
typedef struct cen_global_request {
    size_t size;
    cen_placement placement;
    cen_stream stream;     /* of the device: the work that the block is for */
    uint64_t stripe_bytes; /* STRIPED: rounded up to the granularity; default: a 64th of the block,
                              at least 2 MiB */
    const double *weights; /* WEIGHTED, STRIPED: one for each device, none negative, some positive;
                              NULL: by the room that each has, stripes equally. One that is not 0
                              for a device out of reach: CEN_ERR_UNSUPPORTED */
} cen_global_request;

/* Where a block lies. */
typedef struct cen_global_report {
    cen_placement placement; /* never AUTO */
    uint64_t requested_bytes;
    uint64_t mapped_bytes; /* rounded up to whole pages; from a local pool: as requested */
    uint64_t device_bytes[CEN_GLOBAL_DEVICES]; /* of mapped_bytes, by device */
    uint64_t host_bytes;
    uint64_t reachable; /* bit n: device n has access to all of it */
    uint64_t driver_ns; /* host time of the driver calls that made it; 0 from a local pool, or where
                           a range that was kept is given out again */
    bool local_pool;    /* a block of the local pool of the device asked for */
} cen_global_report;

/* Allocates `bytes` for work on `device`. request and report may be NULL (automatic, stream 0). 0
 * bytes give NULL, and no report. Errors: CEN_ERR_DEVICE_MEMORY with the room of each device in the
 * log; CEN_ERR_NO_DEVICE: no such device; CEN_ERR_INVALID: an unknown placement, weights that are
 * none, or more than 65536 stripes; CEN_ERR_UNSUPPORTED: the placement asked for needs a peer that
 * cannot be reached, or host memory that is not allowed or not to be had; CEN_ERR_DEVICE_LOST: the
 * device is lost, which is known once a call on it has failed. */
CEN_API cen_status cen_global_alloc(cen_global *global, size_t bytes, int device,
                                    const cen_global_request *request, void **block,
                                    cen_global_report *report);

/* Frees a block that cen_global_alloc gave, for reuse after the work submitted so far to `stream`
 * of `device` and to the streams named with cen_global_use. NULL is ignored.
 * CEN_ERR_FOREIGN_POINTER, CEN_ERR_DOUBLE_FREE; CEN_ERR_CAPTURE: the stream, or another one that
 * uses the block, is capturing; the block stays (one of the device's own local pool is freed). */
CEN_API cen_status cen_global_free(cen_global *global, void *block, int device, cen_stream stream);

/* Says that work submitted to `stream` of `device` uses the block, also one of a local pool, which
 * is freed with cen_global_free then. CEN_ERR_UNSUPPORTED: that device cannot reach all of it;
 * CEN_ERR_FOREIGN_POINTER, CEN_ERR_DOUBLE_FREE: it is no live block. */
CEN_API cen_status cen_global_use(cen_global *global, void *block, int device, cen_stream stream);

/* Where a live block lies: any address in a block of the global pool's own, the start of a local
 * pool's block. CEN_ERR_FOREIGN_POINTER, CEN_ERR_DOUBLE_FREE. */
CEN_API cen_status cen_global_where(cen_global *global, const void *block,
                                    cen_global_report *report);

/* The device (or CEN_GLOBAL_HOST) whose memory holds one byte. CEN_ERR_FOREIGN_POINTER. */
CEN_API cen_status cen_global_home(cen_global *global, const void *byte, int *device);

/* Room of a device, of the host or of all, in bytes. */
typedef struct cen_global_room {
    uint64_t total_bytes; /* of memory; the host: what it may be asked for, UINT64_MAX: unlimited */
    uint64_t free_bytes;  /* as the driver says, less what it was seen not to give; the host: what
                             it may still be asked for */
    uint64_t idle_bytes;  /* in idle pages of its local pool, whoever's pages they are; the host: in
                             idle pages of its memory, which the local pools count, too */
    uint64_t pool_bytes;  /* of its memory, held by its local pool */
    uint64_t global_bytes;    /* of its memory, in blocks of the global pool, pending ones too */
    uint64_t lent_bytes;      /* of its memory, held by other local pools */
    uint64_t borrowed_bytes;  /* of others' memory, held by its local pool */
    uint64_t kept_bytes;      /* of its memory, kept by the global pool for the next block alike */
    uint64_t pending_bytes;   /* of global_bytes: freed, still used by a stream; the host: 0 */
    uint64_t available_bytes; /* free, idle and kept of its own memory, borrowers' idle pages
                                 included: what an allocation can get without anybody freeing; the
                                 host: free_bytes */
    uint64_t largest_bytes;   /* the largest block obtainable for the device: of its own memory; of
                                 CEN_GLOBAL_ALL: over all devices that reach each other, or on the
                                 host if that has more */
    bool lost;
} cen_global_room;
/* Looks without waiting; also finishes frees that are complete. */
CEN_API cen_status cen_global_available(cen_global *global, int device, cen_global_room *room);

/* Makes neighbours give back at least `bytes` of the device's memory, if they can: idle pages;
 * movable blocks are moved away; with `wait` pending work is waited for; then the notice. Fewer are
 * no error. returned_bytes may be NULL. CEN_ERR_CAPTURE while a stream captures. */
CEN_API cen_status cen_global_reclaim(cen_global *global, int device, uint64_t bytes, bool wait,
                                      uint64_t *returned_bytes);

/* Defragments every local pool, brings movable blocks home from borrowed pages where there is room
 * at home, gives borrowed idle pages back, and finishes frees. What is kept for blocks alike goes
 * back too unless keep_bytes is UINT64_MAX. options may be NULL, report too: of all together. A
 * device that fails does not keep the others from it; the first failure is returned.
 * CEN_ERR_CAPTURE while a stream captures. */
CEN_API cen_status cen_global_defragment(cen_global *global, const cen_defragment_options *options,
                                         cen_defragment_report *report);

/* Checks every invariant, those of the local pools too. CEN_ERR_CORRUPT with the first violation in
 * the log. */
CEN_API cen_status cen_global_verify(cen_global *global);

#ifdef __cplusplus
}
#endif
#endif
