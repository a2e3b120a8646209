/* The client's own state: a connection, the sets that it made and what it exports of them, what it
 * opened of others, and what waits for streams.
 *
 * Two locks. `wire` orders what is told to the broker: who holds it sends requests and reads their
 * replies, and changes the state as they say before it lets go, so that a notice, which takes
 * `wire` where it does not find what it speaks of, comes after. `lock` guards the state, and is
 * never held during a request or a wait. `wire` is taken first.
 *
 * What must be told but not at once (the end of a lease, a withdrawal by a free) is a ceni_told in
 * a queue, which is sent in order. A request goes behind the withdrawals and drops that were queued
 * before it; ends of leases, which come when streams are done, it may overtake. After a restart of
 * the broker the queue is void: what is announced again is how things are by then. */
#ifndef CENI_IPC_CLIENT_INT_H
#define CENI_IPC_CLIENT_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/turn.h"
#include "dev/call.h"
#include "dev/dev.h"
#include "ipc/directory.h"
#include "ipc/ranges.h"
#include "ipc/step.h"
#include "ipc/token.h"
#include "ipc/wire.h"

typedef struct ceni_told ceni_told;
struct ceni_told {
    ceni_told *next;
    enum ceni_wire_type type; /* of a message whose body is an id */
    uint64_t id;
    uint64_t number; /* in the order of the queue, from 1 */
};

/* Something to do once a stream got to where it is now. */
typedef struct ceni_work ceni_work;
struct ceni_work {
    ceni_work *next;
    cen_device *device;
    cen_event event;                                 /* 0: nothing to wait for */
    void (*done)(cen_share *share, ceni_work *work); /* `lock` is held */
};

typedef struct ceni_hold ceni_hold;
typedef struct ceni_offer ceni_offer;

/* A block of a set: live, freed (while work or exports hold it), or not to be used again. */
typedef struct ceni_block {
    ceni_work work;
    cen_share_set *set;
    ceni_range *range;
    ceni_hold *holds; /* of exports */
    unsigned pins;    /* of an export being made */
    uint64_t mark;    /* the export being made that has seen it */
    bool freed, work_done, quarantined;
} ceni_block;

/* That an export has items in a block. */
struct ceni_hold {
    ceni_offer *export;
    ceni_block *block;
    ceni_hold *before, *next; /* of the block */
};

/* A shared event. */
typedef struct ceni_shared_event {
    uint32_t flags; /* CENI_WIRE_EVENT_*; 0: none */
    uint8_t token[64];
    int fd; /* -1: none */
} ceni_shared_event;

struct ceni_offer {
    cen_share_set *set;
    ceni_offer *before, *next; /* of the set */
    ceni_offer *older;         /* of the same name */
    uint64_t id, version;
    uint64_t secret[2];
    char *name; /* NULL: none */
    uint32_t flags, once_ttl_ms;
    void *directory;
    size_t directory_size;
    cen_event event;
    ceni_shared_event shared;
    ceni_offer *unsettled_next;
    bool unsettled; /* its work was not seen to be complete yet */
    bool cleared;   /* it was, and that is told */
    ceni_hold *holds;
    size_t hold_count;
    unsigned direct; /* leases that were given over a socket */
    bool withdrawn;
    bool idle; /* the broker said that nobody has it open */
    ceni_told *withdrawal;
};

struct cen_share_set {
    cen_share *share;
    cen_share_set *before, *next;
    cen_device *device;
    cen_addr addr;
    uint64_t bytes, page_bytes;
    ceni_page *pages;
    uint32_t page_count;
    uint64_t id; /* 0: not announced */
    char uuid[48];
    ceni_ranges ranges;
    bool has_access;
    ceni_wire_access access[CEN_SHARE_ACCESS_MAX];
    uint32_t access_count;
    ceni_offer *exports;
    ceni_told *drop;
};

/* A lease given over a socket: the receiver writes a byte when it has taken it, and one when it has
 * closed it. */
typedef struct ceni_direct {
    struct ceni_direct *next;
    int fd;
    ceni_offer *export;
    bool marked; /* and so said */
} ceni_direct;
enum { CENI_DIRECT_TAKEN = 1, CENI_DIRECT_CLOSED = 2, CENI_DIRECT_REFUSED = 3 };
/* What the sender says there, which the receiver reads when it waits: the work that the export
 * names is complete; there is new work, of whose end it will not say anything before its own. */
enum { CENI_DIRECT_DONE = 4, CENI_DIRECT_MARKED = 5 };

/* Another's set, mapped here: for one device, with one kind of access. */
typedef struct ceni_import {
    struct ceni_import *next; /* of the same set */
    uint64_t set;
    cen_device *device;
    bool write, direct;
    cen_addr addr;
    uint64_t bytes, page_bytes;
    uint32_t page_count;
    int *fds; /* to announce the set again; NULL: not this user's */
    size_t refs;
} ceni_import;

typedef struct ceni_imported_event {
    struct ceni_imported_event *next;
    cen_device *device;
    cen_event event; /* 0: the device cannot open it */
} ceni_imported_event;

typedef struct ceni_wait ceni_wait;

/* An export that is open here. */
typedef struct ceni_opened {
    uint64_t id, version, set;
    uint64_t bytes, page_bytes; /* of the set */
    uint32_t page_count, owner_uid, flags;
    char uuid[48];
    uint64_t secret[2];
    char *name;                    /* "" without one */
    struct ceni_opened *same_name; /* hash of name and version */
    uint64_t name_hash;
    ceni_wire_access access[CEN_SHARE_ACCESS_MAX];
    uint32_t access_count;
    void *data; /* of the directory */
    size_t data_size;
    bool mapped; /* from a file, else allocated */
    ceni_directory directory;
    ceni_shared_event shared;
    ceni_imported_event *events;
    size_t refs;
    bool write;
    atomic_bool revoked;
    bool withdrawn;    /* the broker said so; `lock` */
    bool orphan;       /* its publisher is gone; so are the next */
    bool done;         /* the publisher said so of its work, which may be more since */
    bool marked;       /* it said that there is more (of a direct one) */
    bool lost;         /* the publisher ended before its work was done */
    atomic_bool ask;   /* the broker told of an event */
    atomic_bool doubt; /* it may have told of one while there was no connection */
    uint64_t instance; /* of the broker that was last seen to know the publisher */
    int direct;        /* socket of one that was received; -1 */
    ceni_told *close;  /* NULL for one that was received */
} ceni_opened;

struct cen_share_view {
    ceni_work work;
    cen_share *share;
    cen_share_view *before, *next;
    ceni_opened *lease;
    ceni_import *import;
};

typedef struct ceni_watch {
    struct ceni_watch *next;
    char name[CEN_SHARE_NAME_MAX + 1];
    bool asked;       /* by cen_share_watch */
    unsigned waiting; /* calls that wait for the name */
} ceni_watch;

struct cen_share {
    int pid;
    cen_share_options options;
    char path[108];
    char label[CENI_WIRE_LABEL_MAX + 1];

    ceni_turn wire;
    int socket, notices; /* -1: not connected; the thread closes them, when it has read them */
    uint32_t seq;
    bool unsure; /* a request was sent, and its reply not read: the broker may have done it */
    bool silent; /* while it is disconnected: the broker did not answer, and is not asked again */
    uint64_t client, secret, instance;
    ceni_wire_builder *out;
    uint64_t *in;    /* CENI_WIRE_MAX bytes: a reply */
    uint64_t *heard; /* the same: a notice */

    pthread_mutex_t lock;
    pthread_cond_t news; /* a name was published, or the connection changed */
    uint64_t news_count;
    ceni_told *told, **told_end;
    uint64_t told_number;  /* of the last that was queued */
    uint64_t told_ordered; /* of the last that no request may overtake */
    ceni_work *works;
    cen_share_set *sets;
    ceni_map exports;     /* id -> ceni_offer */
    ceni_map named;       /* hash of a name -> its newest export here */
    ceni_map leases;      /* id -> ceni_opened */
    ceni_map opened;      /* hash of name and version -> ceni_opened */
    ceni_map imports;     /* set -> ceni_import */
    ceni_import *garbage; /* to be unmapped */
    cen_share_view *views;
    ceni_wait *waits; /* of streams, for other processes */
    ceni_offer *unsettled, **unsettled_end;
    size_t unsettled_count;
    uint64_t back_at; /* when the broker was found */
    uint64_t look_at; /* when it looks for publishers there */
    ceni_direct *directs;
    ceni_watch *watches;
    uint64_t marks;
    uint64_t local_ids;

    int wake; /* eventfd of the thread */
    pthread_t thread;
    atomic_bool stopping, connected;
    atomic_bool hearing;   /* notices were received and may not be applied yet */
    atomic_int notices_fd; /* as `notices`, for who does not hold `wire` */
};

/* ---- client.c ---- */

/* CEN_ERR_INVALID: NULL; CEN_ERR_FORKED. */
cen_status ceni_share_check(const cen_share *share, const char *what);
void ceni_share_wake(cen_share *share);
/* Two random numbers, not both 0. */
cen_status ceni_share_random(uint64_t out[2]);
/* CEN_ERR_INVALID: it is no name of an export. */
cen_status ceni_share_name_check(const char *what, const char *name);

/* ---- client_request.c: `wire` is held ---- */

typedef struct ceni_reply {
    ceni_wire_message message;
    int fds[CENI_WIRE_FDS];
    unsigned fd_count;
} ceni_reply;

/* Dials and says HELLO. *resumed: the broker knows what this client has. */
cen_status ceni_client_dial(cen_share *share, bool *resumed);
/* Begins a request in share->out, gives its body. */
void *ceni_client_begin(cen_share *share, enum ceni_wire_type type, size_t body_size);
/* Sends it and reads the reply. A reply that says no is a failure, with its reason logged. What
 * breaks the connection has the thread find the broker again. */
cen_status ceni_client_call(cen_share *share, const int *fds, unsigned count, ceni_reply *reply);
/* The same for a message whose body is an id, and whose reply is empty. */
cen_status ceni_client_tell(cen_share *share, enum ceni_wire_type type, uint64_t id);
void ceni_reply_close(ceni_reply *reply);
enum { CENI_FLUSH_MOST = 32 };
/* Sends what a request must not overtake of what is queued, or all of it; while there is no
 * connection it stays queued. Every CENI_FLUSH_MOST messages whoever waits for `wire` gets it in
 * between: what was found out under it before may be so no more. */
void ceni_client_flush(cen_share *share);
void ceni_client_flush_all(cen_share *share);
/* Looks for the broker again: one that knows this client gets what it was not told yet, one that
 * does not is told how things are. That none listens is not logged. */
cen_status ceni_client_come_back(cen_share *share);
/* Closes the connection, but for what is left to read of its notices. Only for the thread, or when
 * it has ended. */
void ceni_client_hang_up(cen_share *share);
/* The connection is of no more use. */
void ceni_client_lose(cen_share *share);

/* ---- client_thread.c ---- */

void *ceni_client_thread(void *share);
/* Whether the caller is that thread, in a notice of the program's: nobody else finds the broker. */
bool ceni_client_is_thread(const cen_share *share);
/* `lock` is held: does what is done waiting; `wait`: all of it. */
void ceni_share_poll(cen_share *share, bool wait);
/* Queues a message, whose memory the queue takes over. `lock` is held. */
void ceni_share_tell_later(cen_share *share, ceni_told **told);
/* Takes a message out of the queue, if it is there. `wire` and `lock` are held. */
void ceni_share_untell(cen_share *share, enum ceni_wire_type type, uint64_t id);
/* Notes the work submitted so far to `stream` in an event, unless it is done already. */
cen_status ceni_work_begin(ceni_work *work, const char *what, cen_device *device,
                           cen_stream stream);
/* Does it, now if it waits for nothing. `lock` is held. */
void ceni_work_queue(cen_share *share, ceni_work *work);

/* ---- client_again.c ---- */

/* Tells a broker that knows nothing what this process holds. `wire` is held. */
cen_status ceni_client_announce(cen_share *share);
/* Gives back what a broker that knows this client did for requests that were cut off. */
cen_status ceni_client_reconcile(cen_share *share);
/* Tells it of the names watched. */
cen_status ceni_client_watches(cen_share *share);
/* Whether a call waits for the name. No lock is held. */
cen_status ceni_share_watch_hold(cen_share *share, const char *name, bool on);

/* ---- set.c ---- */

/* Bytes of a page of a set: the last may have less. */
uint64_t ceni_set_page_size(uint64_t bytes, uint64_t page_bytes, uint32_t page);

/* The rest: `lock` is held. */

/* Gives up the set here. What is exported of it must be gone. */
void ceni_share_set_free(cen_share_set *set);
/* The block that holds [addr, addr + bytes); NULL. */
ceni_block *ceni_block_find(cen_share *share, cen_addr addr, uint64_t bytes);
/* A freed block is room again once its work is done and no export has it. */
void ceni_block_settle(ceni_block *block);

/* ---- publish.c ---- */

enum ceni_again { CENI_FIRST, CENI_AGAIN_PUBLISHER, CENI_AGAIN_READER };

/* Where descriptors of pages come from. */
typedef struct ceni_pages {
    uint64_t bytes, page_bytes;
    uint32_t page_count;
    const char *uuid;
    cen_device *device; /* of pages; NULL: fds */
    const ceni_page *pages;
    const int *fds;
} ceni_pages;
/* The descriptor of a page, and whether it must be closed after use. */
cen_status ceni_pages_fd(const ceni_pages *pages, uint32_t page, int *fd, bool *close_it);
/* Tells the pages of a set; *id is 0, or what it was. */
cen_status ceni_publish_set(cen_share *share, const ceni_pages *pages, enum ceni_again again,
                            uint64_t *id);
/* What PUBLISH says, of an export or of a lease. */
typedef struct ceni_publication {
    uint64_t set, id, version;
    const uint64_t *secret;
    uint32_t flags, once_ttl_ms;
    const ceni_wire_access *access;
    uint32_t access_count;
    const char *name;
    const void *directory;
    size_t directory_size;
    const ceni_shared_event *shared;
} ceni_publication;
cen_status ceni_publish(cen_share *share, const ceni_publication *publication, uint64_t *id,
                        uint64_t *version);
/* A sealed file with the directory. */
cen_status ceni_directory_file(const void *data, size_t size, int *fd);

/* ---- export.c: `lock` is held ---- */

/* Tells the broker, later; without one it is over once the leases given over sockets are. */
void ceni_offer_withdrawn(ceni_offer *export);
/* Fewer have it open: if nobody has, it is forgotten. `unclean`: one of them may read on for all
 * that is known, so its blocks are never used again. Besides `lock`, `wire` or being the
 * connection's thread: only there exports are forgotten. */
void ceni_offer_idle(cen_share *share, ceni_offer *export, bool unclean);
/* Forgets it; its blocks are let go of. */
void ceni_offer_free(cen_share *share, ceni_offer *export);
ceni_offer *ceni_offer_find(cen_share *share, uint64_t id);

/* ---- import.c ---- */

/* Maps a set from descriptors. They stay the caller's unless keep, which takes them. */
cen_status ceni_import_map(cen_device *device, bool write, const ceni_opened *lease, int *fds,
                           bool keep, ceni_import **import);
/* Whether `device` reaches memory of the device `uuid`. */
cen_status ceni_import_reaches(cen_device *device, const char *uuid);
/* One that is there, with a reference; NULL. `lock` is held. */
ceni_import *ceni_import_find(cen_share *share, uint64_t set, cen_device *device, bool write);
/* Enters one in the table. `lock` is held. */
cen_status ceni_import_add(cen_share *share, ceni_import *import);
/* A reference less; what nobody has is left to ceni_import_sweep. `lock` is held. */
void ceni_import_drop(cen_share *share, ceni_import *import);
/* Unmaps one that is in no table. */
void ceni_import_free(ceni_import *import);
/* Unmaps what nobody uses; no lock is held. */
void ceni_import_sweep(cen_share *share);

/* ---- view.c ---- */

/* Makes one of an OPEN reply; takes the descriptors that it keeps out of the reply. */
cen_status ceni_opened_new(ceni_reply *reply, ceni_opened **lease);
void ceni_opened_free(ceni_opened *lease);
/* `lock` is held. */
cen_status ceni_opened_add(cen_share *share, ceni_opened *lease);
void ceni_opened_remove(cen_share *share, ceni_opened *lease);
void ceni_opened_drop(cen_share *share, ceni_opened *lease);
uint64_t ceni_name_hash(const char *name, size_t size, uint64_t version);
/* A view of what is leased and mapped, whose references it takes over. `lock` is held. */
void ceni_view_init(cen_share *share, cen_share_view *view, ceni_opened *lease,
                    ceni_import *import);

/* ---- list.c ---- */

/* As cen_share_list_read; `wire` is held. */
cen_status ceni_client_list(cen_share *share, cen_share_list **list);

/* ---- shared_event.c ---- */

/* An event that other processes can wait for, recorded on the stream; *event 0 and no flags where
 * the device has none: the stream was waited for instead. */
cen_status ceni_shared_event_make(cen_device *device, cen_stream stream, bool synced,
                                  cen_event *event, ceni_shared_event *shared);
void ceni_shared_event_close(ceni_shared_event *shared);
/* Its work is to be looked after: the thread tells when it is complete. `lock` is held. */
void ceni_offer_unsettled(cen_share *share, ceni_offer *export);
/* It is in none of the tables here any more. `lock` is held. */
void ceni_offer_forget_event(cen_share *share, ceni_offer *export);
/* Tells the broker, and who got it over a socket, of exports whose work is complete. No lock is
 * held. */
void ceni_offers_poll(cen_share *share);
/* The same of a set's exports, or with NULL of all, waiting for their work. `wire` is held. */
void ceni_offers_settle(cen_share *share, const cen_share_set *set);
/* Tells who got an export over a socket. `lock` is held. */
void ceni_direct_tell(ceni_direct *direct, uint8_t what);
/* Whether this process exports it: then the stream waits for the event itself. */
bool ceni_wait_local(const ceni_opened *lease, cen_device *device, cen_stream stream,
                     cen_status *status);

/* ---- wait.c ---- */

/* Looks after the waits of streams. No lock is held. */
void ceni_waits_poll(cen_share *share);
/* How long until they must be looked after again, in nanoseconds. `lock` is held. */
uint64_t ceni_waits_pause(const cen_share *share, uint64_t now);
/* Ends them, whatever they wait for. `lock` is held. */
void ceni_waits_end(cen_share *share);

#endif
