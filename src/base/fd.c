#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"

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

void ceni_fd_close_foreign(int fd) {
    if (fd >= 0 &&
        (fcntl(fd, F_GET_SEALS) >= 0 || !ceni_thread_detached(close_it, (void *)(intptr_t)fd))) {
        close(fd);
    }
}
