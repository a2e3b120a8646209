/* Writing that ends nobody's program: a file at its size limit and a pipe without a reader raise
 * signals whose default is to end the process. They are held back while writing, and taken if it
 * was the writing that raised them. */
#include "trace/write.h"

#include "base/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static ssize_t write_some(int fd, const struct iovec *parts, int count) {
    if (ceni_fault(CENI_FAULT_IO)) {
        errno = EIO;
        return -1;
    }
    return writev(fd, parts, count);
}

/* Writes all; 0, or an errno. */
static int write_all(int fd, struct iovec *parts, size_t count) {
    while (count) {
        ssize_t got = write_some(fd, parts, (int)count);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got ? errno : ENOSPC;
        }
        for (size_t rest = (size_t)got; count && rest >= parts->iov_len; parts++, count--) {
            rest -= parts->iov_len;
            got = (ssize_t)rest;
        }
        if (count) {
            parts->iov_base = (uint8_t *)parts->iov_base + got;
            parts->iov_len -= (size_t)got;
        }
    }
    return 0;
}

int ceni_write_quietly(int fd, struct iovec *parts, size_t count) {
    sigset_t quiet, old, before;
    sigemptyset(&quiet);
    sigaddset(&quiet, SIGXFSZ);
    sigaddset(&quiet, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &quiet, &old);
    sigpending(&before);
    int error = write_all(fd, parts, count);
    int raised = error == EFBIG ? SIGXFSZ : error == EPIPE ? SIGPIPE : 0;
    if (raised && !sigismember(&before, raised)) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, raised);
        sigtimedwait(&one, NULL, &(struct timespec){0});
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}
