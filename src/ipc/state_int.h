/* The state's types, and what its files ask of each other. */
#ifndef CENI_IPC_STATE_INT_H
#define CENI_IPC_STATE_INT_H

#include "ipc/state.h"

enum {
    CENI_LEASE_WRITE = 4u,
    CENI_LEASE_GRANTED = 8u, /* by OPEN: it may have the pages */
    CENI_VERSIONS_MAX = 256, /* living ones of a name */
    CENI_WATCHES_MAX = 1024, /* of a client */
    CENI_OVER_MAX = 4096     /* ids kept for a user */
};

typedef struct ceni_user { /* there as long as any count is not 0 */
    ceni_slot slot;
    uint32_t uid;
    uint32_t clients, sets, exports;
    uint32_t leases; /* pending ones included */
    uint32_t fds;
    uint64_t bytes;
    /* the last ids of earlier brokers whose exports were withdrawn and are over: a ring of
     * CENI_OVER_MAX, made with the first announcement */
    uint64_t *over;
    uint32_t over_count, over_next;
} ceni_user;

typedef struct ceni_client {
    ceni_slot slot;
    uint32_t user, gid;
    uint64_t id, secret;
    void *peer;
    bool connected, death_known;
    int pid;
    uint32_t *groups; /* sorted */
    uint32_t group_count;
    uint32_t leases, sets, pending, watches; /* lists */
    uint32_t lease_count, export_count, watch_count;
    uint32_t stamp; /* of the last notice that went to each client once */
    /* while an OPEN waits for its name */
    uint32_t wait_name; /* CENI_NONE: none waits */
    ceni_links by_name;
    uint64_t wait_version, deadline;
    uint32_t wait_flags, wait_seq, timer;
    char label[64], container[64];
} ceni_client;

typedef struct ceni_set {
    ceni_slot slot;
    uint32_t user;   /* its owner */
    uint32_t holder; /* client; CENI_NONE: gone */
    bool by_reader;  /* the holder is not its publisher but announces it again */
    bool listed;     /* the access list is set */
    bool host;
    uint8_t access_count;
    int publisher_pid;
    uint64_t id, bytes, page_bytes;
    uint32_t page_count, pages_have;
    int *pages;
    size_t page_capacity;
    uint32_t exports; /* list */
    uint32_t export_count, importers;
    uint32_t busy; /* its exports are being walked: it stays */
    ceni_links by_holder;
    ceni_wire_access access[CEN_SHARE_ACCESS_MAX];
    char uuid[48];
} ceni_set;

typedef struct ceni_export {
    ceni_slot slot;
    uint32_t set, name; /* CENI_NONE: no name */
    uint64_t id, version;
    uint64_t token[2];
    bool keep, once, withdrawn, revoked, unclean, has_token;
    bool hidden;     /* withdrawn only until its publisher announces it */
    bool announced;  /* by its publisher, to this broker */
    uint32_t leases; /* list */
    uint32_t lease_count, writers;
    ceni_links by_set, by_name;
    uint32_t timer, ttl_ms;
    uint64_t deadline;
    int directory_fd, event_fd; /* -1: none */
    uint8_t *directory;
    uint32_t directory_size;
    uint8_t event[64];
} ceni_export;

typedef struct ceni_lease {
    ceni_slot slot; /* flags: CENI_LEASE_* */
    uint32_t client, export;
    ceni_links by_client, by_export;
} ceni_lease;

/* A lease of an export that is not announced yet. */
typedef struct ceni_pending {
    ceni_slot slot;
    uint32_t client;
    bool write;
    uint64_t export_id, set_id;
    ceni_links by_client;
} ceni_pending;

/* How many leases a client has in a set, a user in another's set, a client in others' sets by their
 * owner: what may be seen and given is looked up here. */
enum ceni_link_kind { CENI_CLIENT_SET, CENI_USER_SET, CENI_CLIENT_OWNER };
typedef struct ceni_link {
    ceni_slot slot;
    uint32_t from; /* kind in the two highest bits */
    uint32_t to;
    uint32_t count, writes, granted;
} ceni_link;

typedef struct ceni_name {
    ceni_slot slot;
    uint32_t owner;             /* user, while there is a living version */
    uint32_t living, withdrawn; /* lists of exports */
    uint32_t living_count;
    uint32_t watches, waiting; /* lists */
    uint32_t size;
    uint64_t last_version;
    char *text;
} ceni_name;

typedef struct ceni_watch {
    ceni_slot slot;
    uint32_t client, name;
    ceni_links by_client, by_name;
} ceni_watch;

struct ceni_state {
    ceni_state_limits limits;
    ceni_state_calls calls;
    void *arg;
    uint64_t instance, seed, now;
    uint64_t counter; /* of ids */
    uint32_t key[4];
    bool plain_ids;
    uint32_t stamp;
    ceni_slots users, clients, sets, exports, leases, pending, links, names, watches;
    uint32_t *timers; /* a heap by deadline: clients that wait, exports (CENI_TIMER_EXPORT) */
    size_t timer_count, timer_capacity;
    ceni_wire_builder out, note;
    char why[200];
};

#define CENI_TIMER_EXPORT 0x80000000u

/* Items by number. */
#define CENI_AT(function, type, field)                                                             \
    static inline type *function(const ceni_state *s, uint32_t index) {                            \
        return ceni_slots_at(&s->field, index);                                                    \
    }
CENI_AT(ceni_user_at, ceni_user, users)
CENI_AT(ceni_client_at, ceni_client, clients)
CENI_AT(ceni_set_at, ceni_set, sets)
CENI_AT(ceni_export_at, ceni_export, exports)
CENI_AT(ceni_lease_at, ceni_lease, leases)
CENI_AT(ceni_pending_at, ceni_pending, pending)
CENI_AT(ceni_link_at, ceni_link, links)
CENI_AT(ceni_name_at, ceni_name, names)
CENI_AT(ceni_watch_at, ceni_watch, watches)
#undef CENI_AT

/* Keeps why a request is refused, for its reply, and gives the status. */
cen_status ceni_state_refuse(ceni_state *s, cen_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
cen_status ceni_state_no_memory(ceni_state *s);
void ceni_state_send(ceni_state *s, uint32_t client, const int *fds, unsigned count);
void ceni_state_send_failure(ceni_state *s, uint32_t client, enum ceni_wire_type type, uint32_t seq,
                             cen_status status);
/* user: whose it is. */
void ceni_state_close_fd(ceni_state *s, uint32_t user, int *fd);

/* state_id.c */
uint64_t ceni_state_new_id(ceni_state *s);
bool ceni_state_gave_id(const ceni_state *s, uint64_t id);
uint64_t ceni_id_encrypt(const uint32_t key[4], uint64_t number);
uint64_t ceni_id_decrypt(const uint32_t key[4], uint64_t id);

/* state_key.c: finding. */
void ceni_state_init_slots(ceni_state *s);
uint32_t ceni_user_find(const ceni_state *s, uint32_t uid);
uint32_t ceni_user_get(ceni_state *s, uint32_t uid); /* made if need be */
void ceni_user_release(ceni_state *s, uint32_t user);
uint32_t ceni_client_find(const ceni_state *s, uint64_t id);
uint32_t ceni_set_find(const ceni_state *s, uint64_t id);
uint32_t ceni_export_find(const ceni_state *s, uint64_t id);
uint32_t ceni_lease_find(const ceni_state *s, uint32_t client, uint32_t export);
uint32_t ceni_link_find(const ceni_state *s, enum ceni_link_kind kind, uint32_t from, uint32_t to);
uint32_t ceni_pending_first(const ceni_state *s, uint64_t export_id);
uint32_t ceni_pending_next(const ceni_state *s, uint32_t index, uint64_t export_id);
uint32_t ceni_watch_find(const ceni_state *s, uint32_t client, uint32_t name);
uint32_t ceni_name_find(const ceni_state *s, const char *text, uint32_t size);
uint32_t ceni_name_get(ceni_state *s, const char *text, uint32_t size);
void ceni_name_release(ceni_state *s, uint32_t name);

/* state_set.c */
cen_status ceni_state_on_set(ceni_state *s, uint32_t client, const ceni_wire_message *m, int *fds,
                             unsigned count);
cen_status ceni_state_on_drop(ceni_state *s, uint32_t client, const ceni_wire_message *m);
/* Descriptors of pages from `first` on, at most `room`, for a client that has an export of the set
 * open; 0: they cannot be had now. Afterwards they are given back to ceni_set_lent. */
unsigned ceni_set_lend(ceni_state *s, uint32_t set, uint32_t client, uint32_t first, int *fds,
                       unsigned room);
void ceni_set_lent(ceni_state *s, uint32_t set, uint32_t client, int *fds, unsigned count);
cen_status ceni_state_on_pages(ceni_state *s, uint32_t client, const ceni_wire_message *m);
/* The publisher gives it up, or is dead: its readers hear that. The set may be gone afterwards. */
void ceni_set_let_go(ceni_state *s, uint32_t set, bool dropped);
/* What holds it up ended: it is over unless something else does. */
void ceni_set_release(ceni_state *s, uint32_t set);
void ceni_set_count_fd(ceni_state *s, const ceni_set *set, int by);
/* Whether the client may open it; *write: for writing, too. */
bool ceni_set_allows(const ceni_state *s, const ceni_set *set, uint32_t client, bool *write);

/* state_publish.c */
cen_status ceni_state_on_publish(ceni_state *s, uint32_t client, const ceni_wire_message *m,
                                 int *fds);
/* state_export.c */
cen_status ceni_state_on_withdraw(ceni_state *s, uint32_t client, const ceni_wire_message *m);
cen_status ceni_state_on_event(ceni_state *s, uint32_t client, const ceni_wire_message *m,
                               int *fds);
/* flags: CENI_WIRE_EVENT_*; the descriptor, if there is one, is taken. */
void ceni_export_set_event(ceni_state *s, ceni_export *e, uint32_t flags, const uint8_t event[64],
                           int *fd);
/* Nothing opens it any more, and who could announce it is told; by: who asked, and knows. */
void ceni_export_withdraw(ceni_state *s, uint32_t index, uint32_t by);
/* The same, and nobody is told. */
void ceni_export_shut(ceni_state *s, uint32_t index);
/* Whether what an earlier broker called so was withdrawn and is over, or this one did. */
bool ceni_export_was_over(const ceni_state *s, uint32_t user, uint64_t id);
/* A withdrawn one without a lease is over: the publisher hears it. Its set may be gone then. */
void ceni_export_release(ceni_state *s, uint32_t index);
uint32_t ceni_export_publisher(const ceni_state *s, const ceni_export *e);

/* state_lease.c */
/* Of an export that is opened once it is the last: who announces that is to be told after the
 * reader, lest nobody has it if the broker dies in between. */
cen_status ceni_lease_begin(ceni_state *s, uint32_t client, uint32_t export, uint32_t flags);
/* One that the client had before; tells. */
cen_status ceni_lease_again(ceni_state *s, uint32_t client, uint32_t export, uint32_t flags);
/* unclean: without a sign that the work of its process is over. */
void ceni_lease_end(ceni_state *s, uint32_t lease, bool unclean);
cen_status ceni_state_on_lease(ceni_state *s, uint32_t client, const ceni_wire_message *m);
cen_status ceni_state_on_close(ceni_state *s, uint32_t client, const ceni_wire_message *m);
void ceni_pending_end(ceni_state *s, uint32_t pending);
/* Turns what waits for this export into leases. */
void ceni_pending_match(ceni_state *s, uint32_t export);

/* state_open.c */
cen_status ceni_state_on_open(ceni_state *s, uint32_t client, const ceni_wire_message *m);
/* Answers who waits for this export's name. */
void ceni_open_waiting(ceni_state *s, uint32_t export);
/* Ends a client's waiting, without an answer. */
void ceni_open_forget(ceni_state *s, uint32_t client);
void ceni_open_timeout(ceni_state *s, uint32_t client);
/* The living export of the highest version, or CENI_NONE. */
uint32_t ceni_name_newest(const ceni_state *s, uint32_t name);

/* state_notice.c */
cen_status ceni_state_on_watch(ceni_state *s, uint32_t client, const ceni_wire_message *m);
void ceni_watch_end(ceni_state *s, uint32_t watch);
/* Whether it will be read. */
bool ceni_notice_export(ceni_state *s, uint32_t client, uint32_t kind, const ceni_export *e);
/* To those who would announce it, but for `by`. */
void ceni_notice_withdrawn(ceni_state *s, const ceni_export *e, uint32_t by);
/* To all that have it open. */
void ceni_notice_readers(ceni_state *s, const ceni_export *e, cen_share_notice_kind kind);
void ceni_notice_version(ceni_state *s, uint32_t export);
/* The same, only to those who watch its name. */
void ceni_notice_watchers(ceni_state *s, uint32_t export);
/* What a client may have missed while it was not connected. */
void ceni_notice_again(ceni_state *s, uint32_t client);

/* state_list.c */
cen_status ceni_state_on_list(ceni_state *s, uint32_t client, const ceni_wire_message *m);

/* state_timer.c: `timer` is a client's number, or an export's with CENI_TIMER_EXPORT. */
bool ceni_timer_start(ceni_state *s, uint32_t timer, uint64_t ms);
void ceni_timer_stop(ceni_state *s, uint32_t timer);

#endif
