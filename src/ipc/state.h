/* What the broker knows, and what follows from a message: clients, sets of pages, exports, leases,
 * names. It has no socket and no clock: it is told what came and what the time is, and acts through
 * the calls below, so that tests drive it without processes.
 *
 * Every request costs O(1), or O(log n) where timers are involved, beside what it has to tell
 * others. None of the calls may come back into the state. One thread. */
#ifndef CENI_IPC_STATE_H
#define CENI_IPC_STATE_H

#include "ipc/slots.h"
#include "ipc/wire.h"

typedef struct ceni_state ceni_state;

enum ceni_state_fd {
    CENI_FD_HOST_PAGE,   /* a memfd of that size */
    CENI_FD_DEVICE_PAGE, /* a character device */
    CENI_FD_DIRECTORY,   /* a sealed memfd of that size */
    CENI_FD_EVENT
};

typedef struct ceni_state_calls {
    /* The reply to a client's request; the descriptors stay the state's. */
    void (*reply)(void *arg, void *peer, const ceni_wire_builder *message, const int *fds,
                  unsigned count);
    /* Whether it will be read. If not, ceni_state_hangup must follow: it is told anew to the
     * connection after that. */
    bool (*notice)(void *arg, void *peer, const ceni_wire_builder *message);
    /* A descriptor that this user sent. */
    void (*close)(void *arg, uint32_t uid, int fd);
    /* Whether a descriptor is what it has to be; if not, *why says so. */
    bool (*check)(void *arg, int fd, enum ceni_state_fd kind, uint64_t bytes, const char **why);
    /* Another descriptor of the same page without the right to write; -1: there is none. */
    int (*read_only)(void *arg, int fd);
    /* The quota of a user, UINT64_MAX: none. */
    uint64_t (*quota)(void *arg, uint32_t uid);
} ceni_state_calls;

typedef struct ceni_state_limits { /* for each user */
    uint32_t clients, sets, exports, leases, fds;
} ceni_state_limits;

/* Random numbers. Clients are told the instance; the others are secret. Without a key ids are 1, 2,
 * and so on, which only tests want. */
typedef struct ceni_state_random {
    uint64_t instance, seed, key[2];
} ceni_state_random;

/* NULL: no memory. */
ceni_state *ceni_state_create(const ceni_state_limits *limits, const ceni_state_calls *calls,
                              void *arg, const ceni_state_random *random);
/* Closes all descriptors, and tells nobody. */
void ceni_state_destroy(ceni_state *state);

/* Milliseconds; before each of the calls below that the time matters to. */
void ceni_state_now(ceni_state *state, uint64_t now_ms);
/* When ceni_state_tick is due; UINT64_MAX: never. */
uint64_t ceni_state_deadline(const ceni_state *state);
void ceni_state_tick(ceni_state *state);

/* Who connected. */
typedef struct ceni_state_identity {
    uint32_t uid, gid;
    int pid;
    const uint32_t *groups;
    size_t group_count;
    char container[64];
    bool death_known; /* ceni_state_dead will be called */
    uint64_t secret;  /* random, to resume with */
} ceni_state_identity;

/* A client's first message, a checked HELLO; `peer` names it in the calls until it is over. It is
 * replied to in any case. *replaced: the peer whose connection this one resumes, or NULL; if that
 * one had a sign of its death, this one has it, too. */
cen_status ceni_state_hello(ceni_state *state, void *peer, const ceni_state_identity *identity,
                            const ceni_wire_message *message, uint32_t *client, void **replaced);
/* A later one, checked. The descriptors become the state's. */
void ceni_state_request(ceni_state *state, uint32_t client, const ceni_wire_message *message,
                        int *fds, unsigned count);
/* Its socket is closed; `peer` is not used any more. True: the client is over; else what it has
 * open stays until it is dead or resumes, and `peer` is what ceni_state_hello will call replaced.
 */
bool ceni_state_hangup(ceni_state *state, uint32_t client);
/* Its process is dead: the client is over. */
void ceni_state_dead(ceni_state *state, uint32_t client);
/* Whether its request waits for a name. */
bool ceni_state_waits(const ceni_state *state, uint32_t client);
/* How many leases and exports it has: what notices may come at once. */
uint64_t ceni_state_weight(const ceni_state *state, uint32_t client);

/* Checks all invariants; CEN_ERR_CORRUPT with what is wrong logged. */
cen_status ceni_state_verify(const ceni_state *state);

typedef struct ceni_state_counts {
    uint32_t clients, sets, exports, leases, names, users;
    size_t lease_bytes; /* of memory for leases and what they need to be found */
} ceni_state_counts;
ceni_state_counts ceni_state_count(const ceni_state *state);

#endif
