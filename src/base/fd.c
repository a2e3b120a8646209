#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLOSE_STACK = 65536 };

int ceni_fd_move(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(fd);
    errno = error;
    return moved;
}

int ceni_fd_reopen(int fd, int flags) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return ceni_fd_move(open(path, flags | O_CLOEXEC));
}

bool ceni_fd_no_proc(int error) {
    return error == ENOENT || error == ENOTDIR;
}

bool ceni_fd_may_grow(uint64_t size) {
    struct rlimit limit;
    bool may = getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
               size <= limit.rlim_cur;
    errno = may ? errno : EFBIG;
    return may;
}

void ceni_fd_close_all(const int *fds, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

ceni_fd_id ceni_fd_identify(int fd) {
    struct stat st;
    return fstat(fd, &st) ? (ceni_fd_id){0} : (ceni_fd_id){st.st_dev, st.st_ino};
}

bool ceni_fd_is(int fd, ceni_fd_id id) {
    ceni_fd_id now = ceni_fd_identify(fd);
    return now.inode && now.device == id.device && now.inode == id.inode;
}

static void *close_it(void *fd) {
    close((int)(intptr_t)fd);
    return NULL;
}

/* False: there is no thread. It takes no signals, which are the program's. */
static bool close_apart(int fd) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes)) {
        return false;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool begun = !pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) &&
                 !pthread_attr_setstacksize(&attributes, CLOSE_STACK) &&
                 !pthread_create(&thread, &attributes, close_it, (void *)(intptr_t)fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return begun;
}

void ceni_fd_close_foreign(int fd) {
    if (fd >= 0 && (fcntl(fd, F_GET_SEALS) >= 0 || !close_apart(fd))) {
        close(fd);
    }
}
