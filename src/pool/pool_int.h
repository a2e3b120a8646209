/* The local pool's private header.
 *
 * Words. A page is one physical chunk from the driver. A segment is one mapping of a page at a
 * range of addresses; a page may have several, of which exactly one is active: the place where its
 * memory is being used. The other mappings stay, so that going back to one costs nothing. A line is
 * a reserved range of addresses filled with segments from its start. A block is a range of a line
 * inside active segments: live, pending or free. An arena owns three lines, for small, medium and
 * large blocks; the shared arena serves everyone, a private one serves a graph.
 *
 * Invariants (verify.c): active segments of a line are tiled by its blocks; a page's bytes are used
 * through its active segment only; free blocks are in the bins of the heap of their (arena, line,
 * stream); neighbours that are free and may merge have merged.
 *
 * Stream order. A free block carries the stream after whose work it may be reused, and that
 * stream's epoch when it was freed; without a stream it is free for all. Marks (recorded events)
 * close epochs; an epoch at or below `done` has been seen complete by the host.
 *
 * Locks: pool->lock guards everything but magazines, which have a spin lock each, taken last. */
#ifndef CENI_POOL_INT_H
#define CENI_POOL_INT_H

#include <stdatomic.h>

#include "cenote/pool.h"
#include "dev/dev.h"
#include "pool/lock.h"

#define CENI_SMALL_LIMIT  ((uint64_t)1 << 20)  /* below: the small line */
#define CENI_MEDIUM_LIMIT ((uint64_t)4 << 20)  /* below: the medium line */
#define CENI_SLAB_LIMIT   ((uint64_t)32 << 10) /* up to this: slabs */
#define CENI_SIZE_MAX     ((uint64_t)1 << 46)  /* no device holds more; more cannot be rounded */
#define CENI_GRANULE_BITS 15 /* of the index: no two owners start in one granule */
#define CENI_CLASSES      20
#define CENI_BINS         576
#define CENI_SHARDS       8 /* magazines of a stream, chosen by processor */
#define CENI_MAGAZINE     16
#define CENI_STREAM_SLOTS 64
#define CENI_GRANTS_MAX   16

typedef struct ceni_pool_page ceni_pool_page;
typedef struct ceni_segment ceni_segment;
typedef struct ceni_block ceni_block;
typedef struct ceni_heap ceni_heap;
typedef struct ceni_line ceni_line;
typedef struct ceni_arena ceni_arena;
typedef struct ceni_pstream ceni_pstream;
typedef struct ceni_slab ceni_slab;

/* Whose memory a page is: the device's own, a peer's that was borrowed, or the host's. */
typedef struct ceni_home {
    cen_device *device; /* the host's memory: the pool's own, through which it is mapped */
    bool host;
} ceni_home;

/* What a global pool does for a local one. Called without the pool's lock, but for grants. */
typedef struct ceni_lenders {
    void *arg;
    /* Has memory of the pool's own device given back by those who borrowed it; true if some was. */
    bool (*reclaim)(void *arg, uint64_t bytes);
    /* Whose memory to try for `bytes` more, the best first: true, or false when there is none left.
     * *attempt is 0 at first, and moves on. */
    bool (*lender)(void *arg, uint64_t bytes, unsigned *attempt, ceni_home *home);
    /* Who gets access to memory of a home: all that can reach it, the pool's device among them.
     * Fills CENI_GRANTS_MAX at most, returns how many. */
    size_t (*grants)(void *arg, const ceni_home *home, ceni_grant *grants);
} ceni_lenders;

/* One physical chunk. */
struct ceni_pool_page {
    ceni_page handle;
    uint64_t size;
    ceni_home home;
    ceni_segment *active;
    ceni_segment *mappings; /* all of its segments, linked by same_page */
    bool idle;              /* scratch of window.c */
    bool dead;              /* its device is lost: dead.c */
    uint64_t stamp;
    ceni_pool_page *next, *prev;
};

/* One mapping. */
struct ceni_segment {
    uint64_t addr, size;
    ceni_pool_page *page;
    ceni_segment *same_page;
    ceni_segment *prev, *next; /* of the line, by address */
    ceni_line *line;
    ceni_pstream *last_stream; /* inactive: who used it last, and the epoch: it may be unmapped */
    uint64_t last_epoch;       /* only when that is complete */
    uint64_t free_head, free_tail; /* scratch of window.c */
    bool active;
    bool plain; /* a plain segment: no page behind it */
    bool lost;  /* could not be unmapped after a failure, or has no access: never used */
};

enum ceni_block_kind {
    CENI_BLOCK_FREE,
    CENI_BLOCK_LIVE,
    CENI_BLOCK_SLAB,
    CENI_BLOCK_PENDING,
    CENI_BLOCK_PARKED, /* in no heap, and not counted as allocated */
    CENI_BLOCK_DEAD    /* the same, freed on a page that is dead: never used again */
};

struct ceni_block {
    uint64_t addr, size;
    uint64_t requested;
    ceni_block *prev, *next;         /* of the line, by address */
    ceni_block *bin_prev, *bin_next; /* free: in its heap */
    ceni_line *line;
    ceni_heap *heap;       /* free: whose bins it is in */
    ceni_pstream *stream;  /* live: allocated on; free: reusable after its work; NULL: anyone's */
    uint64_t epoch;        /* of that stream, when freed */
    struct ceni_use *uses; /* other streams that use it */
    ceni_slab *slab;
    uint8_t kind;
    bool wall; /* does not merge with the block before it: another plain segment begins here */
    uint32_t movable; /* the number of its handle, from 1; 0: it stays where it is */
};

/* What a handle stands for. */
typedef struct ceni_movable {
    ceni_block *block; /* NULL: nothing */
    uint32_t generation;
    uint32_t pins;
    uint32_t next; /* with nothing: the number of the next one with nothing; 0: none */
} ceni_movable;

/* A stream that uses a block besides the one it was allocated on. */
typedef struct ceni_use {
    ceni_pstream *stream;
    uint64_t epoch; /* the last of its epochs to use it: set at the free, or at an unpin */
    struct ceni_use *next;
} ceni_use;

/* Free blocks of one (line, stream), by size. */
struct ceni_heap {
    ceni_line *line;
    ceni_pstream *stream; /* NULL: anyone's */
    ceni_heap *next;      /* of the line, the youngest first */
    size_t number;        /* of the line's heaps, from 0 */
    uint64_t free_bytes;
    uint32_t words; /* of the map: bit n: some bit of map[n] is set */
    uint64_t map[CENI_BINS / 64];
    uint32_t most[CENI_BINS]; /* no block of the bin is larger than so many units of 512 bytes */
    ceni_block *bins[CENI_BINS];
};

/* Lines by the size of their blocks: what is short-lived and small does not break up what is large.
 */
enum ceni_rank { CENI_SMALL, CENI_MEDIUM, CENI_LARGE, CENI_RANKS };

struct ceni_line {
    ceni_arena *arena;
    uint64_t base, size; /* the reservation; 0 while there is none */
    ceni_segment *first_segment, *last_segment;
    ceni_block *first_block, *last_block;
    ceni_heap *heaps;
    ceni_heap *anyones; /* the one without a stream */
    uint64_t reserved;  /* bytes in active segments */
    enum ceni_rank rank;
    uint64_t no_idle_at; /* pool->freed when no page of it was idle for ... */
    const ceni_pstream *no_idle_for;
    uint64_t no_run_at, no_run_need; /* the same of joining free blocks to one so large */
    const ceni_pstream *no_run_for;
    uint64_t no_hole[2]; /* scratch of evacuate.c: no hole of so much; the same with idle pages */
    bool has_gaps;       /* between its segments, not only after them */
};

struct ceni_arena {
    uint64_t id; /* 0: shared */
    ceni_line lines[CENI_RANKS];
    ceni_slab *slabs[CENI_CLASSES]; /* with free objects, any stream */
    unsigned capturing;
    unsigned serving; /* allocations from it that are under way: it stays */
    bool released;    /* the shared arena may use what is free in it */
    ceni_arena *next; /* the shared one is first */
};

/* Objects of one class, carved from a block. free_list holds the indices of the objects that are
 * neither live nor in a magazine. */
struct ceni_slab {
    uint64_t addr;
    ceni_block *block;
    ceni_arena *arena; /* whom it serves; its block may come from a released arena */
    ceni_pstream *stream;
    ceni_slab *next, *prev; /* among the arena's slabs with free objects */
    uint32_t object_bytes, objects;
    uint32_t inverse; /* of the object's 512-byte units, times 65536, rounded up */
    uint32_t free_count;
    uint8_t class_index;
    bool listed;
    bool dead;            /* lies on a page that is dead: gives out no objects */
    atomic_bool has_uses; /* some object is used on other streams: uses are in the pool's list; or
                             it is dead: frees go past the magazines */
    uint16_t *free_list;
    _Atomic uint32_t requested[]; /* of each object; 0: not live */
};

/* Freed objects of one stream and processor, ready to be given out again. */
typedef struct ceni_shard {
    ceni_spin lock;
    uint8_t count[CENI_CLASSES];
    int64_t requested_delta; /* not yet in the pool's figures */
    uint64_t allocs, frees;
    void *object[CENI_CLASSES][CENI_MAGAZINE];
} __attribute__((aligned(64))) ceni_shard;

/* An event recorded on a stream, closing an epoch. */
typedef struct ceni_mark {
    cen_event event;
    uint64_t epoch;
    struct ceni_mark *next;
} ceni_mark;

struct ceni_pstream {
    cen_stream handle;
    atomic_bool retired; /* released: its handle may be another stream's by now, or nobody's */
    ceni_pstream *_Atomic next;   /* in its slot of the pool's table */
    _Atomic(ceni_arena *) route;  /* capturing into a private arena */
    ceni_heap *heaps[CENI_RANKS]; /* of the shared arena's lines */
    uint64_t epoch;               /* of frees made now */
    uint64_t freed_epoch;         /* of the last free: a mark is needed if == epoch */
    uint64_t done;                /* epochs up to this one are complete */
    ceni_mark *marks, *last_mark;
    struct ceni_sync {
        ceni_pstream *stream;
        uint64_t epoch; /* this stream waits for that one's epochs up to this */
    } * syncs;
    size_t sync_count, sync_capacity;
    _Atomic(ceni_shard *) shards; /* CENI_SHARDS of them */
};

/* A freed block or slab object that streams still use. */
typedef struct ceni_pending {
    ceni_block *block;
    void *object; /* of block->slab; NULL: the whole block */
    ceni_use *uses;
    struct ceni_pending *next;
} ceni_pending;

enum ceni_driver_kind {
    CENI_RESERVE,
    CENI_CREATE,
    CENI_MAP,
    CENI_ACCESS,
    CENI_UNMAP,
    CENI_RELEASE
};

/* What is only read while blocks come and go stands apart from what the lock's holder writes, and
 * that apart from the tables. */
struct cen_pool {
    cen_device *device;
    cen_device *mapper;     /* that unmaps: `device`, or while that is lost another one */
    _Atomic(void *) *index; /* address -> owner, two levels (index.c) */
    cen_pool_options options;
    uint64_t granularity;
    bool vmm;
    const ceni_lenders *lenders;          /* of the global pool that this one is part of, or NULL */
    cen_device *granted[CENI_GRANTS_MAX]; /* others that reach its memory, without a global pool */
    size_t granted_count;
    _Atomic(ceni_pstream *) streams[CENI_STREAM_SLOTS];

    _Alignas(64) ceni_lock lock;
    unsigned capturing; /* streams between capture begin and end */
    bool lost;          /* the device is */
    ceni_pending *pending;
    bool uses_unmarked;       /* some use of them has no mark yet */
    bool epochs_passed;       /* since pending frees were looked at */
    size_t marks;             /* of all streams, not complete */
    size_t since_polled;      /* queries not made yet that allocations have paid for */
    uint64_t freed;           /* blocks so far: what found nothing finds nothing until this moves */
    ceni_block *parked;       /* the block freed last, if it is not merged yet */
    size_t dead_pages;        /* of devices that are lost */
    ceni_block *spare_blocks; /* descriptors */
    struct ceni_habit *habit; /* of defragmenting by itself, or NULL (defragment.c) */
    size_t stream_count;
    unsigned freeing_streams;         /* with frees since the last look at streams */
    unsigned since_settled;           /* allocations since streams were last looked at */
    _Atomic int64_t requested_locked; /* written under the lock */
    _Atomic uint64_t requested_peak;
    cen_pool_stats stats; /* but for what magazines have yet to add */
    cen_pool_failure failure;
    bool failed;
    uint64_t limit; /* UINT64_MAX: none */
    ceni_arena shared;
    ceni_pool_page *pages;
    size_t inactive_segments;
    uint64_t dead_bytes;     /* in blocks that are dead */
    _Atomic uint64_t losses; /* how often pages have died */
    struct ceni_object_use { /* uses of slab objects */
        void *object;
        ceni_use *uses;
        struct ceni_object_use *next;
    } * object_uses;
    cen_event *spare_events;
    size_t spare_event_count, spare_event_capacity;
    ceni_shard **spare_shards; /* of streams that were released */
    size_t spare_shard_count, spare_shard_capacity;
    /* budget of optional driver time, microseconds (policy.c) */
    double budget;
    uint64_t budget_time;
    uint64_t stamp;
    uint64_t debug_ops; /* debug builds: counts towards the next check */
    ceni_movable *movables;
    size_t movable_count, movable_capacity;
    size_t movable_live;
    size_t movable_awaited; /* handles taken for blocks that are being obtained */
    uint32_t free_movable;  /* the number of the first with nothing; 0: none */
    ceni_pstream *mover;    /* the stream that copies blocks elsewhere, once there is one */

    _Alignas(64) _Atomic int64_t requested_shards; /* written under a shard's lock */
};

/* What a block takes for `bytes` that slabs do not serve. No two blocks begin in one granule of the
 * index. */
static inline uint64_t ceni_block_bytes(uint64_t bytes) {
    uint64_t unit = CEN_POOL_ALIGNMENT, size = (bytes + unit - 1) & ~(unit - 1);
    return size > CENI_SLAB_LIMIT ? size : CENI_SLAB_LIMIT + unit;
}

#define CENI_MIB(bytes) ((double)(bytes) / (1 << 20)) /* for messages */

/* pool.c */
/* CEN_ERR_INVALID: pool is NULL; CEN_ERR_FORKED: it is another process's. Logged. */
cen_status ceni_pool_refuse(const cen_pool *pool, const char *call);
uint64_t ceni_pool_now_us(const cen_pool *pool);
/* What was asked for and is live: by the counts of the lock's holder, and those of magazines. */
int64_t ceni_pool_requested(const cen_pool *pool);
void ceni_pool_count_requested(cen_pool *pool, int64_t bytes); /* lock held */
void ceni_pool_count_shard(cen_pool *pool, int64_t bytes);     /* what a shard has added up */
/* `size` bytes became a block's. */
void ceni_pool_count_allocated(cen_pool *pool, uint64_t size);
/* Which live block (no slab) begins at an address, or what is wrong, logged; the lock is held. */
cen_status ceni_pool_block_at(cen_pool *pool, const void *ptr, const char *call,
                              ceni_block **block);
/* Takes the lock for anything but an alloc or a free: the block freed last is merged first. */
void ceni_pool_enter(cen_pool *pool);
void ceni_pool_unpark(cen_pool *pool);
void ceni_pool_count_reserved(cen_pool *pool, const ceni_line *line, int64_t bytes);

/* Debug builds: checks all invariants now and then. */
#ifdef CENI_DEBUG
void ceni_pool_check_often(cen_pool *pool);
#else
static inline void ceni_pool_check_often(cen_pool *pool) {
    (void)pool;
}
#endif

/* index.c: which block or slab an address belongs to; lookup.h has the rest. */
#define CENI_OWNER_SLAB  ((uintptr_t)1) /* tag of a slab in the index */
#define CENI_OWNER_FREED ((uintptr_t)2) /* a block began here, and was freed */
cen_status ceni_index_open(cen_pool *pool);
void ceni_index_close(cen_pool *pool);
cen_status ceni_index_reserve(cen_pool *pool, uint64_t addr, uint64_t size);
/* Addresses are given back. */
void ceni_index_forget(cen_pool *pool, uint64_t addr, uint64_t size);

/* open.c */
/* The lines of all arenas, the shared one's first: NULL begins, NULL ends. */
ceni_line *ceni_line_next(cen_pool *pool, const ceni_line *line);
void ceni_arena_open(ceni_arena *arena, uint64_t id);
/* Whether the shared arena may use what is free in this one. */
bool ceni_arena_open_to_all(const ceni_arena *arena);

/* block.c: blocks, heaps. */
ceni_heap *ceni_heap_get(cen_pool *pool, ceni_line *line, ceni_pstream *stream, bool create);
/* The first bin from `bin` on that holds a block; CENI_BINS: none. */
unsigned ceni_heap_bin(const ceni_heap *heap, unsigned bin);
/* The bin of a size. */
unsigned ceni_bin_of(uint64_t size);
ceni_block *ceni_heap_find(ceni_heap *heap, uint64_t size, uint64_t alignment);
ceni_block *ceni_block_new(cen_pool *pool);
void ceni_block_delete(cen_pool *pool, ceni_block *block);
void ceni_block_link(ceni_line *line, ceni_block *block, ceni_block *before);
void ceni_block_unlink(ceni_block *block);
void ceni_block_bin(cen_pool *pool, ceni_block *block);
void ceni_block_unbin(ceni_block *block);
/* Makes a block free for `stream` (NULL: anyone), whose heap exists, and merges it with its
 * neighbours. */
void ceni_block_release(cen_pool *pool, ceni_block *block, ceni_pstream *stream, uint64_t epoch);
/* Takes [addr, addr+size) out of a free block; the rest stays free. CEN_ERR_HOST_MEMORY: unchanged.
 */
cen_status ceni_block_take(cen_pool *pool, ceni_block *block, uint64_t addr, uint64_t size);
bool ceni_block_touches(const ceni_block *left, const ceni_block *right);
/* Neighbours that would be one block, if both were free; and that are. */
bool ceni_block_fits_with(const cen_pool *pool, const ceni_block *left, const ceni_block *right);
bool ceni_block_may_merge(const cen_pool *pool, const ceni_block *left, const ceni_block *right);
/* Merges all neighbours of a line that may merge. */
void ceni_line_merge(cen_pool *pool, ceni_line *line);
/* Free bytes of a line, whoever may have them. */
uint64_t ceni_line_free(const ceni_line *line);
/* The largest free block of a line, whoever may have it. */
uint64_t ceni_line_largest(const ceni_line *line);

/* plain.c: a line's addresses, and memory behind it where there is no virtual memory management. */
cen_status ceni_line_open(cen_pool *pool, ceni_line *line);
cen_status ceni_line_grow_plain(cen_pool *pool, ceni_line *line, uint64_t need, bool must);

/* grow.c: more memory behind a line. Free blocks of `stream` appear; the caller searches again. */
/* Maps idle pages where `need` bytes lack the least, and creates the rest; `must`: whatever it
 * costs, and no more than needed. */
cen_status ceni_line_grow(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream,
                          bool must);
/* The same, making no more than needed, of memory that is not the device's own. */
cen_status ceni_line_borrow(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream,
                            const ceni_home *home);
/* What that would have to make: `need` without what is free where it would go, and idle. */
uint64_t ceni_line_lack(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream);
/* Maps idle pages, at most `most` of them, behind free memory of a line, if all idle pages there
 * would make a block larger than `above` by a page. `stream` NULL: only what is complete. */
cen_status ceni_line_regroup(cen_pool *pool, ceni_line *line, uint64_t above, size_t most,
                             ceni_pstream *stream);
/* window.c: what is there already, put together.
 * Joins neighbouring free blocks, also of other streams (behind events), if that makes `need`. */
bool ceni_line_gather(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream);
/* Goes back to earlier mappings of idle pages, without a driver call. True if that made `need`. */
bool ceni_line_reactivate(cen_pool *pool, ceni_line *line, uint64_t need, ceni_pstream *stream);

/* Creates `bytes` more behind a line. */
cen_status ceni_line_extend(cen_pool *pool, ceni_line *line, uint64_t bytes, ceni_pstream *stream);

/* trim.c: memory back to the driver. */
uint64_t ceni_pool_release_idle(cen_pool *pool, uint64_t keep_bytes);
/* Idle pages of one home (NULL: all that are not the device's own) until `bytes` went back. */
uint64_t ceni_pool_release_home(cen_pool *pool, const ceni_home *home, uint64_t bytes);
void ceni_line_drop_inactive(cen_pool *pool, ceni_line *line);
void ceni_pool_close_lines(cen_pool *pool);
/* Forgets released private pools that have nothing left, and their addresses. */
void ceni_arenas_reap(cen_pool *pool);

/* dead.c: memory of devices that are lost. The lock is held. */
/* Pages of a home die: what is free on them, or will be, is never used again. */
void ceni_pool_lose_home(cen_pool *pool, const ceni_home *home);
/* The pool's own device is lost: its work is over, and `mapper` unmaps from now on. */
void ceni_pool_lose(cen_pool *pool, cen_device *mapper);
/* A block of no bin that was just freed: takes what is dead of it out of use, and releases the
 * rest. False: none of it is, nothing was done. */
bool ceni_block_bury(cen_pool *pool, ceni_block *block);
/* Whether any of a block's memory is dead. */
bool ceni_block_is_lost(const cen_pool *pool, const ceni_block *block);
/* Returns dead pages on which nothing is left. */
uint64_t ceni_pool_release_dead(cen_pool *pool);

/* stream.c; finding a stream is in lookup.h */
/* Adds one with the lock held; NULL: no host memory. */
ceni_pstream *ceni_stream_enter(cen_pool *pool, cen_stream handle);
/* That of work submitted last: nothing was to a released stream since the mark that its release
 * made. */
uint64_t ceni_stream_epoch(const ceni_pstream *stream);
/* The epoch of a free made now. */
uint64_t ceni_stream_freeing(cen_pool *pool, ceni_pstream *stream);
/* Whether a stream that the pool was told of is being captured. Breaks no capture. */
bool ceni_pool_in_graph(cen_pool *pool);
cen_status ceni_stream_mark(cen_pool *pool, ceni_pstream *stream);
bool ceni_stream_passed(const ceni_pstream *stream, uint64_t epoch);
cen_status ceni_stream_order(cen_pool *pool, ceni_pstream *after, ceni_pstream *before,
                             uint64_t epoch);
/* All that streams of a lost device did, and will be said to do, is complete. */
void ceni_streams_lose(cen_pool *pool);
void ceni_pool_poll(cen_pool *pool);
void ceni_pool_settle(cen_pool *pool, bool mark);
cen_status ceni_pool_drain(cen_pool *pool);
/* The uses have ended, each with its epoch. */
cen_status ceni_pending_add(cen_pool *pool, ceni_block *block, void *object, ceni_use *uses);

/* uses.c */
cen_status ceni_use_add(ceni_use **uses, ceni_pstream *stream);
ceni_use *ceni_use_of(ceni_use *uses, const ceni_pstream *stream);
/* Takes it out of the list; NULL: it is not in it. */
ceni_use *ceni_use_take(ceni_use **uses, const ceni_pstream *stream);
void ceni_use_drop(ceni_use **uses, const ceni_pstream *stream);
/* Uses end with what was submitted so far. */
void ceni_uses_end(ceni_use *uses);
/* Drops those that the host has seen complete. */
void ceni_uses_prune(ceni_use **uses);
void ceni_uses_free(ceni_use *uses);
/* magazine.c: small sizes, by way of magazines where there are any. */
cen_status ceni_slab_alloc(cen_pool *pool, uint64_t bytes, ceni_pstream *stream, void **object);
cen_status ceni_slab_free(cen_pool *pool, ceni_slab *slab, void *object, ceni_pstream *stream);
/* Empties all magazines into their slabs; the lock is held. */
void ceni_magazines_flush(cen_pool *pool);
/* Empties those of a stream that was marked as released, and keeps them for the next new stream.
 * They are never freed before the pool: a free in the stream's name may have them in hand. */
void ceni_magazines_retire(cen_pool *pool, ceni_pstream *stream);

/* slab.c; slab.h has what only the two share. */
/* An object is back: the slab goes if it was the last, but not a private pool's, where the object
 * may be asked for again by its address. */
void ceni_slab_give_back(cen_pool *pool, ceni_slab *slab, void *object);
/* A private pool is released: its slabs without live objects go. */
void ceni_slabs_release(cen_pool *pool, ceni_arena *arena);
cen_status ceni_slab_use(cen_pool *pool, ceni_slab *slab, void *object, ceni_pstream *stream);
cen_status ceni_slab_size(ceni_slab *slab, const void *object, size_t *bytes);
/* The same without a log line; 0: it is free, -1: no object begins there. */
int64_t ceni_slab_requested(ceni_slab *slab, const void *object);
/* The slab lies on a page that died. */
void ceni_slab_lose(ceni_slab *slab);
void ceni_slabs_close(cen_pool *pool);

/* ladder.c: a block of `size` bytes for `stream` from `arena`, by every means. Lock held; it may be
 * dropped while the retry callback runs. */
enum ceni_rank ceni_rank_of(uint64_t size);
/* The best fit of the stream's free blocks of a line and anyone's, or NULL. */
ceni_block *ceni_line_best(cen_pool *pool, ceni_line *line, uint64_t size, uint64_t alignment,
                           ceni_pstream *stream);
cen_status ceni_pool_obtain(cen_pool *pool, ceni_arena *arena, uint64_t size, uint64_t alignment,
                            uint64_t requested, ceni_pstream *stream, ceni_block **block);
/* The same for a slab. *block is NULL, with CEN_OK, if an object of the stream's slabs of that
 * class came back meanwhile: from a magazine, or from a stream that used it. */
cen_status ceni_pool_obtain_slab(cen_pool *pool, ceni_arena *arena, uint64_t size,
                                 uint64_t alignment, unsigned class_index, uint64_t requested,
                                 ceni_pstream *stream, ceni_block **block);

/* policy.c */
void ceni_policy_open(cen_pool *pool);

/* movable.c */
/* Forgets all handles; blocks stay. */
void ceni_movables_close(cen_pool *pool);

/* vacate.c; the lock is held.
 * Moves unpinned movable blocks so that pages become idle in stream order; the bytes of those. */
uint64_t ceni_pool_compact(cen_pool *pool);
/* Gives pages of a home back to the driver until `bytes` of them went: those that are idle, then
 * those whose blocks can all be moved, to elsewhere in the pool or to new memory of the pool's own
 * device. `wait`: for copies and uses to complete; without it pages that were left go back with a
 * later call. Returns the bytes that went back. */
uint64_t ceni_pool_vacate(cen_pool *pool, const ceni_home *home, uint64_t bytes, bool wait);
/* Moves unpinned movable blocks from borrowed pages to the device's own memory as far as that has
 * room, for about so long (0: to the end), and gives back those that are idle. The bytes moved. */
uint64_t ceni_pool_bring_home(cen_pool *pool, uint64_t budget_us);
/* defragment.c: defragments if the pool is to do so by itself and it is time. */
void ceni_pool_habit(cen_pool *pool);
void ceni_habit_close(cen_pool *pool);

/* stats.c */
/* The largest free block that is open to all. */
uint64_t ceni_pool_largest_free(cen_pool *pool);

/* verify.c: the checks of cen_pool_verify; lock held. */
cen_status ceni_pool_check(cen_pool *pool);

#endif
