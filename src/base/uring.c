/* io_uring, by liburing. */
#include "base/uring.h"

#include "base/fault.h"
#include "base/mem.h"

#include <errno.h>
#include <liburing.h>

struct ceni_uring {
    struct io_uring ring;
    uint32_t depth;
    uint32_t flying; /* handed over, and their ends not taken */
};

int ceni_uring_open(uint32_t depth, ceni_uring **ring) {
    if (ceni_fault(CENI_FAULT_IO)) {
        return ENOSYS;
    }
    ceni_uring *made = ceni_calloc(1, sizeof *made);
    if (!made) {
        return ENOMEM;
    }
    int error = -io_uring_queue_init(depth, &made->ring, 0);
    if (error) {
        ceni_free(made);
        return error;
    }
    made->depth = depth;
    *ring = made;
    return 0;
}

int ceni_uring_start(ceni_uring *ring, const ceni_uring_move *move) {
    if (ring->flying == ring->depth) {
        return EBUSY;
    }
    if (ceni_fault(CENI_FAULT_IO)) {
        return EIO;
    }
    /* There is an entry: the ring has `depth`, and each was handed over when it was made. */
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->ring);
    if (!entry) {
        return EBUSY;
    }
    if (move->write) {
        io_uring_prep_write(entry, move->fd, move->data, move->bytes, move->offset);
    } else {
        io_uring_prep_read(entry, move->fd, move->data, move->bytes, move->offset);
    }
    io_uring_sqe_set_data64(entry, move->tag);
    int submitted;
    do {
        submitted = io_uring_submit(&ring->ring);
    } while (submitted == -EINTR);
    if (submitted < 1) {
        return submitted < 0 ? -submitted : EBUSY;
    }
    ring->flying++;
    return 0;
}

int ceni_uring_take(ceni_uring *ring, uint64_t *tag, int *moved) {
    struct io_uring_cqe *end = NULL;
    int error;
    if (!ring->flying) {
        return ENOENT;
    }
    do {
        error = -io_uring_wait_cqe(&ring->ring, &end);
    } while (error == EINTR);
    if (error) {
        return error;
    }
    *tag = io_uring_cqe_get_data64(end);
    *moved = end->res;
    io_uring_cqe_seen(&ring->ring, end);
    ring->flying--;
    return 0;
}

int ceni_uring_close(ceni_uring *ring) {
    uint64_t tag;
    int moved, error = 0;
    if (!ring) {
        return 0;
    }
    while (ring->flying && !error) {
        error = ceni_uring_take(ring, &tag, &moved);
    }
    io_uring_queue_exit(&ring->ring);
    ceni_free(ring);
    return error;
}
