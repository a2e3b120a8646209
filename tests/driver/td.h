/* The test driver's own header: cards, contexts, streams and the memory on them.
 *
 * A card is a host device of cenote's, one for each ordinal, opened by cuInit and kept until the
 * process ends. All calls go to the host backend's table directly, so that neither fault points nor
 * traces of the program under test reach them. Tables are under one lock, td_lock, which nobody
 * holds while waiting for work. */
#ifndef TESTS_DRIVER_TD_H
#define TESTS_DRIVER_TD_H

#include <pthread.h>
#include <stdbool.h>

#include "base/map.h"
#include "dev/dev.h"
#include "tests/driver/entries.h"

enum { TD_CARDS_MAX = 16, TD_UNIT = 512 };

typedef struct td_card td_card;
typedef struct td_context td_context;
typedef struct td_stream td_stream;
typedef struct td_page td_page;
typedef struct CUmemPoolHandle_st td_pool;

/* A range of addresses with memory of a card behind it. */
typedef struct td_range {
    uint64_t addr, size;
} td_range;

/* What hands out parts of ranges: small allocations of a context, all of a pool. Its parts are
 * entries of the table below. */
typedef struct td_arena {
    td_card *card;
    td_range *chunks;
    size_t count, capacity;
    uint64_t bytes; /* of the chunks */
} td_arena;

enum td_kind {
    TD_MEMORY,     /* a range of its own */
    TD_SMALL,      /* a part of its context's arena */
    TD_ASYNC,      /* a part of a pool's arena */
    TD_FREED,      /* the same, freed in stream order and not complete */
    TD_MAPPED,     /* a mapping of a page */
    TD_MANAGED,    /* pinned memory that is called managed */
    TD_PINNED,     /* allocated by the driver */
    TD_REGISTERED, /* the caller's */
    TD_OPENED,     /* another process's, by a handle of it */
};

/* One thing with an address; sorted by address, disjoint. */
typedef struct td_entry {
    uint64_t addr;
    uint64_t size; /* as asked for */
    uint64_t room; /* as taken */
    enum td_kind kind;
    td_card *card;
    td_context *context; /* NULL: none's */
    td_pool *pool;
    td_page *page;
    cen_stream freed_on; /* TD_FREED: the host's stream, and an event after the last use, */
    cen_event freed;     /* or 0: freed in a capture */
    void *map;           /* TD_OPENED: what is mapped, and of which file */
    size_t map_bytes;
    uint64_t inode, offset;
} td_entry;

struct td_stream {
    td_stream *next; /* in its context */
    td_context *context;
    cen_stream host;
    unsigned flags;
    int priority;
    bool legacy;
    pthread_t thread; /* of a thread's default stream */
    bool per_thread;
    /* Order with the legacy stream: operations so far, and how many of the other one each saw. */
    uint64_t operations, seen_by_legacy, seen_of_legacy;
    cen_event fence;
    /* The capture that it began. */
    bool capturing;
    cu_enum capture_mode;
    pthread_t capturer;
    uint64_t capture_id;
};

struct td_context {
    td_context *next;
    td_card *card;
    bool primary;
    bool live;
    unsigned flags;
    size_t users; /* of the primary one */
    uint64_t peers;
    td_range own; /* what a context itself takes */
    td_arena small;
    td_stream *streams; /* the legacy stream first */
};

struct td_card {
    int ordinal;
    cen_device *device;
    td_context primary;
    td_pool *default_pool, *pool;
    td_range *ranges; /* all memory but pages, for peers that come later */
    size_t range_count, range_capacity;
};

extern pthread_mutex_t td_lock;
extern td_card td_cards[TD_CARDS_MAX];
extern int td_card_count;
extern td_context *td_contexts; /* all that were ever made, primary ones too */

/* Every entry begins with one of these: the failure that the test asked for, a driver that is not
 * initialised here, no current context. */
cu_result td_enter(const char *symbol);
cu_result td_enter_context(const char *symbol, td_context **context);
cu_result td_enter_device(const char *symbol, cu_device device, td_card **card);

/* Goes on only if the call succeeds. */
#define TD_TRY(call)                                                                               \
    do {                                                                                           \
        cu_result td_result_ = (call);                                                             \
        if (td_result_ != CU_SUCCESS) {                                                            \
            return td_result_;                                                                     \
        }                                                                                          \
    } while (0)
#define TD_NEED(pointer)                                                                           \
    do {                                                                                           \
        if (!(pointer)) {                                                                          \
            return CU_ERROR_INVALID_VALUE;                                                         \
        }                                                                                          \
    } while (0)

cu_result td_result(cen_status status);
/* A number from the environment, in MiB, as bytes. */
uint64_t td_mib_setting(const char *name, uint64_t fallback_mib);

/* context.c */
cu_result td_current(td_context **context);
cu_result td_find_context(cu_context handle, td_context **context);

/* card.c: memory of a card (locked). Others' use counts too (state.h). */
cu_result td_range_take(td_card *card, uint64_t size, td_range *range);
void td_range_drop(td_card *card, td_range range);
/* Lets another card use the range that holds addr; 0: all ranges. */
void td_range_share(const td_card *card, uint64_t addr, const td_card *with);
void td_card_free_bytes(const td_card *card, uint64_t *free_bytes, uint64_t *total);
void td_publish(const td_card *card);
cu_result td_card_check_room(const td_card *card, uint64_t size);
uint64_t td_round(uint64_t size, uint64_t unit);

/* table.c (locked) */
td_entry *td_table_at(uint64_t addr);    /* that begins there; NULL */
td_entry *td_table_holds(uint64_t addr); /* that contains it; NULL */
cu_result td_table_add(const td_entry *entry);
void td_table_remove(uint64_t addr);
/* Index of the first entry that ends after addr; the entry at an index, NULL past the end. */
size_t td_table_index(uint64_t addr);
td_entry *td_table_get(size_t index);

/* arena.c (locked): a free part, in a chunk that may be new; it becomes the caller's by
 * td_table_add. */
cu_result td_arena_place(td_arena *arena, uint64_t room, uint64_t chunk, bool may_grow,
                         uint64_t *addr);
/* Gives back chunks without any part while more than `keep` bytes are held. */
void td_arena_trim(td_arena *arena, uint64_t keep);
void td_arena_clear(td_arena *arena);

/* memory.c */
void td_memory_end_context(td_context *context); /* (locked) */

/* ipc.c */
void td_view_close(const td_entry *entry); /* (locked) */

/* pool.c */
void td_pools_settle(const td_card *card); /* something was waited for; takes the lock */
void td_pool_end_captures(const td_card *card);
cu_result td_pool_free(td_entry *entry); /* (locked) at once */
void td_pool_end_context(td_context *context);

/* stream.c */
/* NULL: *result says why. (locked) */
td_stream *td_stream_add(td_context *context, unsigned flags, int priority, cu_result *result);
/* The stream of a handle, in order with the legacy stream, for work to be put on it. */
cu_result td_stream_for_work(td_context *context, cu_stream handle, td_stream **stream);
/* The same, to be waited for. */
cu_result td_stream_for_wait(td_context *context, cu_stream handle, td_stream **stream);
cu_result td_stream_find(td_context *context, cu_stream handle, td_stream **stream);
/* Waits for all work of a context. CU_ERROR_CAPTURE_UNSUPPORTED, breaking it, beside a capture. */
cu_result td_context_wait(td_context *context);
/* What a capture forbids: breaks it, unless this thread is relaxed. */
cu_result td_forbid_capture(const td_context *context);
bool td_is_capturing(const td_stream *stream);
void td_streams_end_context(td_context *context); /* waits */
extern _Thread_local bool td_thread_default;      /* 0 is the thread's own stream */
extern _Thread_local cu_enum td_capture_mode;

/* module.c */
void td_modules_end_context(const td_context *context); /* (locked) */

#endif
