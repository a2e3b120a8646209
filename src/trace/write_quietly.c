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

void ceni_quiet_begin(ceni_quiet *quiet) {
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGXFSZ);
    sigaddset(&both, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &both, &quiet->old);
    sigpending(&quiet->before);
}

void ceni_quiet_end(ceni_quiet *quiet, int error) {
    int raised = error == EFBIG ? SIGXFSZ : error == EPIPE ? SIGPIPE : 0;
    if (raised && !sigismember(&quiet->before, raised)) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, raised);
        sigtimedwait(&one, NULL, &(struct timespec){0});
    }
    pthread_sigmask(SIG_SETMASK, &quiet->old, NULL);
}

int ceni_write_quietly(int fd, struct iovec *parts, size_t count) {
    ceni_quiet quiet;
    ceni_quiet_begin(&quiet);
    int error = write_all(fd, parts, count);
    ceni_quiet_end(&quiet, error);
    return error;
}
