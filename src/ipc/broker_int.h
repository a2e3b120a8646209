/* The broker's process side: sockets around the state. */
#ifndef CENI_IPC_BROKER_INT_H
#define CENI_IPC_BROKER_INT_H

#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <sys/un.h>

#include "cenote/broker.h"
#include "ipc/closer.h"
#include "ipc/state.h"

/* A connection, and after its end the process that had it, as long as that has something open. */
typedef struct ceni_peer {
    struct cen_broker *broker;
    struct ceni_peers *list;
    struct ceni_peer *prev, *next;
    struct ceni_peer *next_doomed;
    int socket, notice, pidfd; /* -1: none */
    uint32_t client;           /* once greeted */
    bool greeted;              /* the state knows it */
    bool doomed;               /* to be closed when what is being done is done */
    bool dead;
    bool stopped; /* not read from: its request waits */
    bool owes;    /* its latest reply carried descriptors: it may ask again once it has read that */
    uint32_t uid, gid;
    int pid;
    uint64_t since_ms; /* when it connected */
    /* a reply that did not fit */
    ceni_wire_builder *reply;
    /* notices that did not fit: messages one behind the other; kept for the process's next
     * connection */
    uint8_t *queue;
    size_t queue_size, queue_sent, queue_capacity;
} ceni_peer;

/* In the order in which they came. */
typedef struct ceni_peers {
    ceni_peer *first, *last;
} ceni_peers;

struct cen_broker {
    cen_broker_options options;
    ceni_state *state;
    ceni_closer *closer;
    size_t closing_max; /* files of a user that are still to be closed */
    int epoll, listener, wake, spare;
    bool listening;        /* not paused for want of descriptors */
    uint64_t listen_again; /* ms */
    atomic_bool stop;
    struct sockaddr_un address;
    dev_t socket_device;
    ino_t socket_inode;          /* 0: no file of ours */
    bool partly_mapped;          /* this process is in a user namespace without all users */
    ceni_peers strangers, known; /* who has not said HELLO yet, and who has */
    ceni_peer *doomed;
    uint64_t now;
    uint64_t batches;
    ceni_wire_builder out;
    uint64_t in[CENI_WIRE_MAX / 8];
};

/* What an epoll event is about, in the low bits of a peer's address. */
enum ceni_event { CENI_EVENT_SOCKET, CENI_EVENT_NOTICE, CENI_EVENT_DEATH, CENI_EVENT_MASK = 7 };

/* broker_listen.c: opens the socket, or takes the one that is open. */
cen_status ceni_broker_listen(cen_broker *broker);
void ceni_broker_unlisten(cen_broker *broker);

/* broker_peer.c: who is at the other end. pidfd: the client's own, or -1, which is taken over or
 * closed. */
bool ceni_peer_credentials(ceni_peer *peer);
cen_status ceni_peer_identify(ceni_peer *peer, int pidfd, ceni_state_identity *identity,
                              uint32_t **groups);

/* For tests over a driver whose pages are files: these are taken for a device's memory. */
extern atomic_bool ceni_broker_files_stand_in;
/* broker_check.c */
bool ceni_broker_check_fd(void *arg, int fd, enum ceni_state_fd kind, uint64_t bytes,
                          const char **why);
int ceni_broker_read_only(void *arg, int fd);

/* broker_send.c */
void ceni_broker_reply(void *arg, void *peer, const ceni_wire_builder *message, const int *fds,
                       unsigned count);
bool ceni_broker_notice(void *arg, void *peer, const ceni_wire_builder *message);
/* Whether the descriptors that it was sent have arrived. */
bool ceni_peer_has_read(const ceni_peer *peer);
void ceni_peer_send_more(ceni_peer *peer);   /* the socket has room again */
void ceni_peer_notice_more(ceni_peer *peer); /* the notices' socket has */
void ceni_peer_drop_reply(ceni_peer *peer);  /* one that was not sent */
/* The notices that an earlier connection of the same process did not get. False: no memory. */
bool ceni_peer_take_notices(ceni_peer *peer, ceni_peer *before);

/* broker_loop.c */
cen_status ceni_broker_loop(cen_broker *broker);
void ceni_broker_close_all(cen_broker *broker);
/* Closes a connection once the current event is done. why: for the log; NULL: nothing to say. */
void ceni_peer_doom(ceni_peer *peer, const char *why);
/* Says what to wait for. */
void ceni_peer_watch(ceni_peer *peer, enum ceni_event what, int fd, uint32_t events, bool first);

#endif
