#include "ipc/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"

/* A user's files, there while any is to be closed. */
typedef struct queue {
    struct queue *next;
    ceni_closer *closer;
    uint32_t uid;
    unsigned threads, closing; /* that run; that are at a file, which is not in `fds` any more */
    int *fds;
    size_t count, capacity;
} queue;

struct ceni_closer {
    pthread_mutex_t lock;
    queue *queues;
    bool left;
};

ceni_closer *ceni_closer_create(void) {
    ceni_closer *closer = ceni_calloc(1, sizeof *closer);
    if (closer && pthread_mutex_init(&closer->lock, NULL)) {
        ceni_free(closer);
        return NULL;
    }
    return closer;
}

static void destroy(ceni_closer *closer) {
    pthread_mutex_destroy(&closer->lock);
    ceni_free(closer);
}

void ceni_closer_leave(ceni_closer *closer) {
    if (!closer) {
        return;
    }
    pthread_mutex_lock(&closer->lock);
    closer->left = true;
    bool over = !closer->queues;
    pthread_mutex_unlock(&closer->lock);
    if (over) {
        destroy(closer);
    }
}

static queue **find(ceni_closer *closer, uint32_t uid) {
    queue **at = &closer->queues;
    while (*at && (*at)->uid != uid) {
        at = &(*at)->next;
    }
    return at;
}

static void drop(queue *q) {
    *find(q->closer, q->uid) = q->next;
    ceni_free(q->fds);
    ceni_free(q);
}

static void *work(void *arg) {
    queue *q = arg;
    ceni_closer *closer = q->closer;
    pthread_mutex_lock(&closer->lock);
    while (q->count) {
        int fd = q->fds[--q->count];
        q->closing++;
        pthread_mutex_unlock(&closer->lock);
        close(fd);
        pthread_mutex_lock(&closer->lock);
        q->closing--;
    }
    if (--q->threads == 0) {
        drop(q);
    }
    bool over = closer->left && !closer->queues;
    pthread_mutex_unlock(&closer->lock);
    if (over) {
        destroy(closer);
    }
    return NULL;
}

/* Puts a file behind the user's others; false: it cannot be. */
static bool put(ceni_closer *closer, uint32_t uid, int fd) {
    queue **at = find(closer, uid), *q = *at;
    if (!q) {
        q = ceni_calloc(1, sizeof *q);
        if (!q) {
            return false;
        }
        q->closer = closer;
        q->uid = uid;
        *at = q;
    }
    bool kept = !ceni_grow(&q->fds, &q->capacity, q->count + 1, sizeof *q->fds);
    if (kept) {
        q->fds[q->count++] = fd;
        q->threads += q->threads < CENI_CLOSER_THREADS && ceni_thread_detached(work, q);
        if (!q->threads) {
            q->count--;
            kept = false;
        }
    }
    if (!q->threads) {
        drop(q);
    }
    return kept;
}

static void close_apart(ceni_closer *closer, uint32_t uid, int fd) {
    pthread_mutex_lock(&closer->lock);
    bool waits = put(closer, uid, fd);
    pthread_mutex_unlock(&closer->lock);
    if (!waits) {
        close(fd);
    }
}

/* Whether a file is a pidfd: asked of no signal, and of no file where the answer may be a
 * filter's. */
static bool is_pidfd(int fd) {
    return (!syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) || errno != EBADF) &&
           syscall(SYS_pidfd_send_signal, -1, 0, NULL, 0) && errno == EBADF;
}

void ceni_closer_close(ceni_closer *closer, uint32_t uid, int fd) {
    if (fd < 0) {
        return;
    }
    if (fcntl(fd, F_GET_SEALS) >= 0 || is_pidfd(fd)) {
        close(fd);
    } else {
        close_apart(closer, uid, fd);
    }
}

/* Whether nothing waits in a socket that was shut down. With credentials, which there is no room
 * for here, an empty message shows, too. */
static bool is_empty(int socket) {
    int on = 1;
    char byte;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on)) {
        return false;
    }
    ssize_t got = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && errno == ECONNRESET) { /* said once, before what is there */
        got = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
    }
    return !got && !(message.msg_flags & MSG_CTRUNC);
}

void ceni_closer_hang_up(ceni_closer *closer, uint32_t uid, int socket) {
    if (socket < 0) {
        return;
    }
    if (!shutdown(socket, SHUT_RDWR) && is_empty(socket)) {
        close(socket);
    } else {
        close_apart(closer, uid, socket);
    }
}

size_t ceni_closer_count(ceni_closer *closer, uint32_t uid) {
    pthread_mutex_lock(&closer->lock);
    const queue *q = *find(closer, uid);
    size_t count = q ? q->count + q->closing : 0;
    pthread_mutex_unlock(&closer->lock);
    return count;
}
