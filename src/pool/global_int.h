/* The global pool's private header.
 *
 * A member is one device with its local pool. A span is a block of the global pool's own: one
 * range of addresses over whole pages of one or several homes, made for it and returned with it; or
 * the note that a block of a local pool is used by another device's streams. Spans are kept sorted
 * by address.
 *
 * Freeing a span records an event on every stream that uses it; it is pending until all are
 * complete, and looked at whenever memory is wanted. Then it is kept, mapped as it is, for the next
 * block of its layout, and returned when anybody lacks its memory: what was used costs the driver
 * as much time to give out again as it takes to clear it. A span that could not be returned,
 * because a call failed, is in no table any more and tried again each time.
 *
 * Locks: global->lock guards the spans, and is never held while a local pool is called. What local
 * pools ask of their neighbours they ask without their own lock. global->finishing lets one thread
 * at a time return what is complete, so that who finds nothing knows that there is nothing; it is
 * taken before the others, one of which is held at a time. */
#ifndef CENI_GLOBAL_INT_H
#define CENI_GLOBAL_INT_H

#include "cenote/global.h"
#include "pool/note.h"
#include "pool/page.h"

typedef struct ceni_member {
    cen_global *global;
    int number;
    cen_device *device;
    cen_pool *pool;
    ceni_lenders lenders;
    uint64_t reach; /* bit n: this device can map memory of device n, its own too */
    int rank[CEN_GLOBAL_DEVICES];
    uint64_t granted;              /* bit n: device n can reach this device's memory */
    _Atomic uint64_t global_bytes; /* of its memory, in spans */
    _Atomic uint64_t pending_bytes;
    _Atomic uint64_t kept_bytes; /* in spans that wait for their next use; not in global_bytes */
    atomic_bool lost;
} ceni_member;

/* A page of a span. */
typedef struct ceni_span_page {
    ceni_page handle; /* 0: not made, or returned */
    int home;         /* a member's number, or CEN_GLOBAL_HOST */
    uint64_t size;
} ceni_span_page;

/* A stream that uses a span; once it is freed also the event after its last work. */
typedef struct ceni_span_use {
    int device;
    cen_stream stream;
    cen_event event;
    bool recorded;
} ceni_span_use;

typedef struct ceni_span {
    uint64_t addr, size, requested;
    int device; /* that it was asked for on */
    int mapper; /* through which it is mapped */
    cen_placement placement;
    uint64_t reachable, driver_ns;
    ceni_span_page *pages; /* none: a block of the device's local pool */
    size_t page_count;
    uint64_t mapped_bytes; /* of the first `mapped` of them */
    size_t mapped;
    ceni_span_use *uses;
    size_t use_count, use_capacity;
    bool pending;           /* freed, not complete */
    bool noted;             /* a trace was told of its memory */
    struct ceni_span *next; /* of those kept, or about to be returned */
} ceni_span;

struct cen_global {
    cen_global_options options;
    uint64_t granularity;
    size_t count;
    ceni_member members[CEN_GLOBAL_DEVICES];
    _Atomic uint64_t host_bytes; /* in spans */
    _Atomic uint64_t host_kept, host_pending;

    ceni_lock finishing;
    _Atomic uint64_t finished; /* spans so far */
    _Atomic size_t look_at;    /* a free looks for complete ones when so many are pending */

    ceni_lock lock;
    ceni_span **spans; /* by address */
    size_t span_count, span_capacity;
    _Atomic size_t pending_count, stuck_count;
    ceni_span *kept;  /* the latest first */
    ceni_span *stuck; /* could not be returned yet */
};

/* The parts of a block that is to be made. */
typedef struct ceni_layout {
    cen_placement placement;
    ceni_span_page *parts; /* without handles */
    size_t count, capacity;
} ceni_layout;

/* global.c */
/* Logs and returns what is wrong with a call's pool or device number. */
cen_status ceni_global_refuse(const cen_global *global, int device, const char *call);
static inline uint64_t ceni_global_round(const cen_global *global, uint64_t bytes) {
    return (bytes + global->granularity - 1) / global->granularity * global->granularity;
}
ceni_home ceni_global_home_of(cen_global *global, int home, int device);
/* The number of a device, or CEN_GLOBAL_HOST. */
int ceni_global_number(const cen_global *global, const ceni_home *home);
/* Devices that can reach all of a home's memory and are there, as bits; and as grants. */
uint64_t ceni_global_granted(const cen_global *global, int home);
size_t ceni_global_grants(const cen_global *global, uint64_t granted, ceni_grant *grants);
/* A device that is gone: its pages in neighbours' pools must not be used again. */
void ceni_global_lose(cen_global *global, int number);
/* The device itself, or one that can unmap in its place. */
cen_device *ceni_global_mapper(const cen_global *global, int number);

/* global_layout.c: how a block would lie. Each returns CEN_OK, or why it cannot. */
cen_status ceni_layout_asked(cen_global *global, uint64_t size, int device,
                             const cen_global_request *request, ceni_layout *layout);
/* Over all devices in reach, as much of each as it has room. CEN_ERR_DEVICE_MEMORY: too little. */
cen_status ceni_layout_by_room(cen_global *global, uint64_t size, int device, ceni_layout *layout);

/* global_span.c */
cen_status ceni_span_make(cen_global *global, int device, uint64_t bytes, uint64_t size,
                          const ceni_layout *layout, ceni_span **span);
/* Tells a trace of a span that has pages of its own; other spans are the local pool's to tell. */
static inline void ceni_span_note(const cen_global *g, enum ceni_event kind, const ceni_span *s,
                                  uint64_t size, cen_stream stream) {
    if (ceni_noting() && s->pages) {
        ceni_emit(kind, g->members[s->mapper].device->number, s->addr, size, stream);
    }
}
/* Unmaps and returns everything; what cannot be is kept, to be tried again. True: all is gone. */
bool ceni_span_destroy(cen_global *global, ceni_span *span);
/* Tries again to return what could not be; `last`: then forgets it. True: some went. */
bool ceni_spans_unstick(cen_global *global, bool last);
/* The span that an address lies in, or NULL; the lock is held. */
ceni_span *ceni_span_find(const cen_global *global, uint64_t addr);
/* The first span that ends beyond an address, or NULL; the lock is held. */
ceni_span *ceni_span_from(const cen_global *global, uint64_t addr);
/* Enters a span into the table, and takes it out; the lock is held. */
cen_status ceni_span_enter(cen_global *global, ceni_span *span);
void ceni_span_leave(cen_global *global, const ceni_span *span);
void ceni_span_report(const ceni_span *span, cen_global_report *report);

/* global_free.c */
/* Returns freed spans whose uses are complete; `wait`: waits for them. True if any went meanwhile.
 */
bool ceni_spans_finish(cen_global *global, bool wait);
/* Returns all spans, live ones too, once their uses are complete. */
void ceni_spans_close(cen_global *global);
/* The member whose local pool an address belongs to, or NULL. */
ceni_member *ceni_global_owner(cen_global *global, const void *block);

/* Destroys the events of its uses. */
void ceni_span_forget_uses(cen_global *global, ceni_span *span);

/* global_keep.c: spans between two uses. */
/* Keeps a span, or returns it to the driver. False: that has to be tried again. */
bool ceni_span_keep(cen_global *global, ceni_span *span);
/* A kept span of just this layout, or NULL. */
ceni_span *ceni_span_again(cen_global *global, int device, uint64_t bytes,
                           const ceni_layout *layout);
/* Returns kept spans until `bytes` of a home went back (CEN_GLOBAL_ALL: of any); how many did. */
uint64_t ceni_spans_return(cen_global *global, int home, uint64_t bytes);
/* Bytes of a span that lie in one home. */
uint64_t ceni_span_bytes(const ceni_span *span, int home);

/* global_room.c */
bool ceni_global_capturing(cen_global *global);
/* Free bytes of a device as the driver says; 0 if it is lost. */
uint64_t ceni_global_driver_free(cen_global *global, int number);
/* What a home could give now: free, and idle in local pools. */
uint64_t ceni_global_room_of(cen_global *global, int home);
/* How far to go for memory: what is idle; what pending work still uses, which is waited for; and
 * what its user has to be asked for. */
enum ceni_effort { CENI_AT_ONCE, CENI_WAITING, CENI_ASKING };
/* Has memory of a device returned until `bytes` are free. False: so many are not. */
bool ceni_global_make_room(cen_global *global, int number, uint64_t bytes, enum ceni_effort effort);
/* Peers that a device can reach, by link and room: fills numbers, returns how many. */
size_t ceni_global_peers(cen_global *global, int device, int peers[CEN_GLOBAL_DEVICES]);
/* Asks every device whether it is still there. */
void ceni_global_find_lost(cen_global *global);

/* where.c */
/* Whether a block of the pool begins at an address or did, or an object's slab is around it;
 * `live`: it is not known to be free. */
bool ceni_pool_owns(cen_pool *pool, const void *block, bool live);
/* CEN_OK: a live block begins there. Else what is wrong, logged. */
cen_status ceni_pool_live(cen_pool *pool, const void *block, const char *call);
/* Frees a block whose uses are known to be complete. */
cen_status ceni_pool_free_complete(cen_pool *pool, void *block);
/* Bytes of [addr, addr+size) of a local pool by home: calls fn for each page's part. */
void ceni_pool_homes(cen_pool *pool, uint64_t addr, uint64_t size,
                     void (*fn)(void *arg, const ceni_home *home, uint64_t bytes), void *arg);
/* Bytes in pages of one home (NULL: any), all and idle ones. */
typedef struct ceni_held {
    uint64_t bytes, idle;
} ceni_held;
/* `look`: events may be recorded and queried, so that what is idle is known. */
ceni_held ceni_pool_held(cen_pool *pool, const ceni_home *home, bool look);

#endif
