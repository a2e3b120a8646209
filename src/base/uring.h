/* Reads and writes of files that the kernel takes from a ring: many in the air from one thread. */
#ifndef CENI_URING_H
#define CENI_URING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ceni_uring ceni_uring;

/* One transfer; `tag` comes back with its end. */
typedef struct ceni_uring_move {
    int fd;
    bool write;
    void *data;
    uint32_t bytes;
    uint64_t offset; /* in the file */
    uint64_t tag;
} ceni_uring_move;

/* A ring of up to `depth` transfers, 1 to 4096, for one thread at a time. 0, or the errno: ENOSYS
 * or EPERM where the kernel has none or does not let this process have one. */
int ceni_uring_open(uint32_t depth, ceni_uring **ring);

/* Hands a transfer to the kernel, which uses its memory until the transfer's end was taken. 0, or
 * the errno; EBUSY: `depth` are in the air. After another failure the ring can only be closed. */
int ceni_uring_start(ceni_uring *ring, const ceni_uring_move *move);

/* Waits for the next end, in any order. 0 with the tag and what was moved, bytes or a negative
 * errno; or the errno, ENOENT if nothing is in the air. */
int ceni_uring_take(ceni_uring *ring, uint64_t *tag, int *moved);

/* Waits for what is in the air; NULL is ignored. 0, or the errno of a wait that failed: then the
 * kernel may go on using memory of transfers. */
int ceni_uring_close(ceni_uring *ring);

#endif
