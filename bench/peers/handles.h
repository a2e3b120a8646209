/* Sharing by one handle for each block, as a peer: the driver's own handles (cuIpcGetMemHandle),
 * found with dlopen; on the host, files of shm_open. */
#ifndef CENOTE_BENCH_HANDLES_H
#define CENOTE_BENCH_HANDLES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct peer_handle {
    char bytes[64];
} peer_handle;
typedef struct peer_handles peer_handles;

/* For the device that bench names "cuda:N" or "host:N". NULL: it worked; else why not. */
const char *peer_handles_open(const char *device, peer_handles **peer);
const char *peer_handles_name(const peer_handles *peer);
/* A block that begins with `word`, and its handle. */
bool peer_handles_make(peer_handles *peer, uint64_t bytes, uint64_t word, peer_handle *handle);
/* Opens another process's block. It stays open. */
bool peer_handles_map(peer_handles *peer, const peer_handle *handle, uint64_t bytes,
                      uint64_t *addr);
bool peer_handles_word(peer_handles *peer, uint64_t addr, uint64_t *word);
/* Lets go of what was made. */
void peer_handles_close(peer_handles *peer);

#endif
