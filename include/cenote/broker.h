/* The broker through which processes share device memory (cenote/share.h, docs/share.md): it keeps
 * the pages that publishers made, hands them to who may open them, and ends the leases of a process
 * that dies. It opens no device. `cenote serve` is one; a program that wants its own makes one
 * here.
 *
 * Sizes are in bytes. Any call may return CEN_ERR_INVALID (the log names the argument),
 * CEN_ERR_HOST_MEMORY and CEN_ERR_LIMIT (of descriptors). */
#ifndef CENOTE_BROKER_H
#define CENOTE_BROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_broker cen_broker;

/* Zero-initialise, set `size` to sizeof, then what differs: a zero field means its default. */
typedef struct cen_broker_options {
    size_t size;
    const char *socket;   /* path; default as cen_share_options.socket for this user */
    int listen_fd;        /* 1 + a listening seqpacket socket that is there already (socket
                             activation); 0: none */
    uint32_t mode;        /* of the socket's file; default 0600 */
    uint64_t quota_bytes; /* of sets for each user; default no limit */
    uint32_t max_clients, max_sets, max_exports, max_leases; /* for each user; defaults 4096, 65536,
                                                                1048576, 4194304 */
    /* A user's own quota; NULL or false: quota_bytes. */
    bool (*user_quota)(void *arg, uint32_t uid, uint64_t *bytes);
    void *user_quota_arg;
} cen_broker_options;

/* Opens the socket. CEN_ERR_BUSY: a broker listens there; a socket that nobody listens on is
 * replaced. CEN_ERR_IO. options may be NULL. */
CEN_API cen_status cen_broker_create(const cen_broker_options *options, cen_broker **broker);
/* Serves until cen_broker_stop; by one thread. It closes what clients sent on threads of its own,
 * up to four for each user, as such a close may wait. */
CEN_API cen_status cen_broker_run(cen_broker *broker);
/* Ends cen_broker_run; from any thread or a signal handler. NULL is ignored. */
CEN_API void cen_broker_stop(cen_broker *broker);
/* Tells the clients and closes. What they hold stays theirs. NULL is ignored. */
CEN_API void cen_broker_destroy(cen_broker *broker);
/* The path it listens on; "" with listen_fd, and for NULL. */
CEN_API const char *cen_broker_socket(const cen_broker *broker);

#ifdef __cplusplus
}
#endif
#endif
