#include "base/file.h"

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One read that is carried on after a signal. */
static ssize_t read_some(int fd, char *to, size_t size) {
    ssize_t got;
    do {
        got = ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1) : read(fd, to, size);
    } while (got < 0 && errno == EINTR);
    return got;
}

static cen_status read_all(const char *path, int fd, size_t limit, char **data, size_t *size) {
    char *bytes = NULL;
    size_t capacity = 0, held = 0;
    for (;;) {
        if (ceni_grow(&bytes, &capacity, held + 4096, 1)) {
            ceni_free(bytes);
            return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for its bytes", path);
        }
        ssize_t got = read_some(fd, bytes + held, capacity - held);
        if (got < 0) {
            int error = errno;
            ceni_free(bytes);
            return ceni_fail(CEN_ERR_IO, "%s: reading failed: %s", path, strerror(error));
        }
        held += (size_t)got;
        if (!got) {
            *data = bytes;
            *size = held;
            return CEN_OK;
        }
        if (held > limit) {
            ceni_free(bytes);
            return ceni_fail(CEN_ERR_FORMAT, "%s: longer than the limit of %zu MiB", path,
                             limit >> 20);
        }
    }
}

cen_status ceni_file_read(const char *path, size_t limit, char **data, size_t *size) {
    int fd = ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return ceni_fail(errno == ENOENT ? CEN_ERR_NOT_FOUND : CEN_ERR_IO,
                         "%s: cannot be opened: %s", path, strerror(errno));
    }
    cen_status status = read_all(path, fd, limit, data, size);
    close(fd);
    return status;
}

/* At most this much in one call: the kernel's own limit is below 2^31. */
#define READ_AT_ONCE ((uint64_t)1 << 30)

cen_status ceni_file_open(const char *path, int *fd, struct stat *st) {
    /* Of a pipe, opening would wait for its other end. */
    int made = ceni_fault(CENI_FAULT_IO)
                   ? (errno = EIO, -1)
                   : ceni_fd_move(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (made < 0) {
        return ceni_fail(errno == ENOENT ? CEN_ERR_NOT_FOUND : CEN_ERR_IO,
                         "%s: cannot be opened: %s", path, strerror(errno));
    }
    cen_status status = CEN_OK;
    if (ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1) : fstat(made, st)) {
        status = ceni_fail(CEN_ERR_IO, "%s: its size cannot be told: %s", path, strerror(errno));
    } else if (!S_ISREG(st->st_mode)) {
        status = ceni_fail(CEN_ERR_IO, "%s: no plain file", path);
    }
    if (status) {
        close(made);
        return status;
    }
    *fd = made;
    return CEN_OK;
}

cen_status ceni_file_read_at(const char *path, int fd, uint64_t offset, uint64_t bytes, void *to) {
    uint8_t *at = to;
    while (bytes) {
        size_t part = (size_t)(bytes < READ_AT_ONCE ? bytes : READ_AT_ONCE);
        ssize_t got =
            ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1) : pread(fd, at, part, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return ceni_fail(CEN_ERR_IO, "%s: reading failed: %s", path, strerror(errno));
        }
        if (!got) {
            return ceni_fail(CEN_ERR_TRUNCATED,
                             "%s: ends at byte %" PRIu64 "; %" PRIu64 " more are expected", path,
                             offset, bytes);
        }
        at += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return CEN_OK;
}

static int write_all(int fd, const char *bytes, size_t size) {
    while (size) {
        ssize_t n = ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1) : write(fd, bytes, size);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        if (n > 0) {
            bytes += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

/* -1: errno says why. */
static int open_file(const char *path, int flags) {
    return ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1)
                                     : open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC | flags, 0666);
}

/* Writes to a file that open_file gave, and closes it. */
static int write_file(int fd, const void *bytes, size_t size) {
    if (fd < 0) {
        return -1;
    }
    int failed = write_all(fd, bytes, size), error = errno;
    if (close(fd) && !failed) {
        failed = -1;
        error = errno;
    }
    errno = error;
    return failed;
}

/* A file of its own beside `path`, which it then takes the place of. */
static int replace(const char *path, const void *bytes, size_t size) {
    char beside[4096 + 32];
    int fd = -1;
    if (!ceni_fd_may_grow(size)) {
        return -1;
    }
    for (int i = 0; i < 1000 && fd < 0; i++) { /* other threads may write to theirs */
        int length = snprintf(beside, sizeof beside, "%s.%ld-%d.part", path, (long)getpid(), i);
        if (length < 0 || (size_t)length >= sizeof beside) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open_file(beside, O_CREAT | O_EXCL);
        if (fd < 0 && errno != EEXIST) {
            return -1;
        }
    }
    if (fd >= 0 && (write_file(fd, bytes, size) || rename(beside, path))) {
        int error = errno;
        unlink(beside);
        errno = error;
        return -1;
    }
    return fd < 0 ? -1 : 0;
}

cen_status ceni_file_replace(const char *path, const void *bytes, size_t size) {
    struct stat there;
    bool is_there = !stat(path, &there);
    if (is_there && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode) && !S_ISCHR(there.st_mode)) {
        return ceni_fail(CEN_ERR_INVALID, "%s: is there, and no plain file", path);
    }
    char *target = realpath(path, NULL); /* a symbolic link stays one */
    int failed = is_there && S_ISCHR(there.st_mode) ? write_file(open_file(path, 0), bytes, size)
                                                    : replace(target ? target : path, bytes, size);
    int error = errno;
    free(target);
    return failed ? ceni_fail(error == ENAMETOOLONG ? CEN_ERR_INVALID : CEN_ERR_IO,
                              "%s: cannot be written: %s", path, strerror(error))
                  : CEN_OK;
}
