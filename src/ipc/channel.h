/* Messages over a socket that two programs have: of type SOCK_SEQPACKET, where each arrives whole,
 * or SOCK_STREAM, where its head says how long it is, and nothing beyond it is read. */
#ifndef CENI_IPC_CHANNEL_H
#define CENI_IPC_CHANNEL_H

#include "ipc/wire.h"

typedef struct ceni_channel {
    int socket;
    bool stream;
    uint64_t end_ns; /* when to give up */
} ceni_channel;

/* CEN_ERR_INVALID: it is no socket of these types. */
cen_status ceni_channel_open(ceni_channel *channel, int socket, uint32_t timeout_ms);
/* CEN_ERR_TRUNCATED: the other end is closed; CEN_ERR_IO: the time is over. */
cen_status ceni_channel_send(const ceni_channel *channel, const ceni_wire_builder *builder,
                             const int *fds, unsigned count);
/* Into a buffer as ceni_wire_receive's. Nothing is left open on failure. */
cen_status ceni_channel_receive(const ceni_channel *channel, void *buffer, size_t *size, int *fds,
                                unsigned *count);
/* Waits until `socket`, one of the two processes' own, can be read, or the channel is closed. */
cen_status ceni_channel_await(const ceni_channel *channel, int socket);

#endif
