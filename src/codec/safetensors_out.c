#include "codec/safetensors_out.h"

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/safetensors.h"
#include "trace/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* At most this much in one call: the kernel's own limit is below 2^31. */
#define WRITE_AT_ONCE ((uint64_t)1 << 30)

static cen_status failed(const ceni_tensor_out *out, const char *what) {
    return ceni_fail(CEN_ERR_IO, "%s: %s: %s", out->target, what, strerror(errno));
}

static cen_status no_memory(const char *path) {
    return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for its name", path);
}

/* True, with an errno, if this call has to fail. */
static bool fault(void) {
    bool hit = ceni_fault(CENI_FAULT_IO);
    errno = hit ? EIO : errno;
    return hit;
}

/* The file behind `path`, if there is one: a symbolic link stays one, and is refused if it leads to
 * none. */
static cen_status find_target(ceni_tensor_out *out, const char *path) {
    struct stat st, link;
    bool there = !stat(path, &st);
    int error = errno;
    if (!there && !lstat(path, &link)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: a symbolic link that leads to no file (%s); one to a plain file, or "
                         "no link, is expected",
                         path, strerror(error));
    }
    char *real = there ? realpath(path, NULL) : NULL;
    out->target = ceni_strdup(real ? real : path);
    free(real);
    if (!out->target) {
        return no_memory(path);
    }
    if (ceni_tensor_path_is_index(path) || ceni_tensor_path_is_index(out->target)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: a tensor file would be read as an index by that name; one that does "
                         "not end in .index.json is expected",
                         path);
    }
    if (there && !S_ISREG(st.st_mode)) {
        return ceni_fail(CEN_ERR_INVALID, "%s: is there, and no plain file", path);
    }
    if (there && access(path, W_OK)) {
        return failed(out, "cannot be written");
    }
    out->replaces = there;
    if (there) {
        out->mode = st.st_mode & 07777;
        out->owner = st.st_uid;
        out->group = st.st_gid;
    }
    return CEN_OK;
}

/* The target's folder, as it was given. */
static char *folder_of(const ceni_tensor_out *out) {
    int length = (int)(ceni_base_name(out->target) - out->target);
    ceni_str path = {0};
    ceni_str_printf(&path, "%.*s", length ? length : 1, length ? out->target : ".");
    return ceni_str_take(&path);
}

/* Where a file without a name is found, by which it gets one. */
typedef struct fd_path {
    char text[32];
} fd_path;

static fd_path path_of(int fd) {
    fd_path path;
    snprintf(path.text, sizeof path.text, "/proc/self/fd/%d", fd);
    return path;
}

/* A file without a name, of which nothing is left if the process is killed. Left out: the file
 * system has none, or there is no /proc to name it by. */
static cen_status make_unnamed(ceni_tensor_out *out) {
    char *folder = folder_of(out);
    if (!folder) {
        return no_memory(out->target);
    }
    int fd = fault() ? -1 : ceni_fd_move(open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
    ceni_free(folder);
    if (fd >= 0 && !access(path_of(fd).text, F_OK)) {
        out->fd = fd;
    } else {
        ceni_fd_close_all(&fd, 1);
    }
    return CEN_OK;
}

/* A new file of that name, -1 with errno: also if there is one. */
static int make_named(const char *name) {
    return fault() ? -1 : ceni_fd_move(open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
}

static int link_to(int fd, const char *name) {
    return fault() ? -1 : linkat(AT_FDCWD, path_of(fd).text, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

/* Gives the file, or if there is none yet a new one, a name in the target's folder that is
 * nobody's. */
static cen_status name_temporary(ceni_tensor_out *out, const char *what) {
    int folder = (int)(ceni_base_name(out->target) - out->target), got = -1;
    size_t size = (size_t)folder + 64;
    char *name = ceni_malloc(size);
    if (!name) {
        return no_memory(out->target);
    }
    for (int i = 0; i < 1000 && got < 0; i++) {
        snprintf(name, size, "%.*s.cenote-%ld-%d.part", folder, out->target, (long)getpid(), i);
        got = out->fd < 0 ? make_named(name) : link_to(out->fd, name);
        if (got < 0 && errno != EEXIST) {
            break;
        }
    }
    if (got < 0) {
        cen_status status = failed(out, what);
        ceni_free(name);
        return status;
    }
    out->fd = out->fd < 0 ? got : out->fd;
    out->temporary = name;
    return CEN_OK;
}

/* Room for all of it, so that a disk that has none says so before anything is computed. Where that
 * cannot be asked for, writing will tell. */
static cen_status reserve(const ceni_tensor_out *out, uint64_t bytes) {
    ceni_quiet quiet;
    ceni_quiet_begin(&quiet);
    int error = fault() || fallocate(out->fd, 0, 0, (off_t)bytes) ? errno : 0;
    ceni_quiet_end(&quiet, error);
    errno = error;
    return !error || error == EOPNOTSUPP || error == ENOSYS ? CEN_OK
                                                            : failed(out, "writing failed");
}

cen_status ceni_tensor_out_open(ceni_tensor_out *out, const char *path, uint64_t bytes) {
    cen_status status = find_target(out, path);
    if (!status) {
        status = make_unnamed(out);
    }
    if (!status && out->fd < 0) {
        status = name_temporary(out, "cannot be made");
    }
    return status ? status : reserve(out, bytes);
}

static int write_at(int fd, const uint8_t *data, uint64_t bytes, uint64_t offset) {
    while (bytes) {
        size_t part = (size_t)(bytes < WRITE_AT_ONCE ? bytes : WRITE_AT_ONCE);
        ssize_t got = fault() ? -1 : pwrite(fd, data, part, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got ? errno : ENOSPC;
        }
        data += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return 0;
}

cen_status ceni_tensor_out_write(ceni_tensor_out *out, uint64_t offset, const void *data,
                                 uint64_t bytes) {
    ceni_quiet quiet;
    ceni_quiet_begin(&quiet);
    int error = write_at(out->fd, data, bytes, offset);
    ceni_quiet_end(&quiet, error);
    errno = error;
    return error ? failed(out, "writing failed") : CEN_OK;
}

/* A name is on the disk once its folder is. */
static cen_status sync_folder(const ceni_tensor_out *out) {
    char *folder = folder_of(out);
    if (!folder) {
        return no_memory(out->target);
    }
    int fd = fault() ? -1 : ceni_fd_move(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    bool synced = fd >= 0 && !fault() && !fsync(fd);
    cen_status status =
        synced ? CEN_OK : failed(out, "is there, but its name may not be on the disk yet");
    ceni_fd_close_all(&fd, 1);
    ceni_free(folder);
    return status;
}

/* Owner and group as of what is replaced, as far as this process may, then the permissions: a file
 * that is not of its owner or group any more does not run as them. */
static cen_status take_over(const ceni_tensor_out *out) {
    struct stat st;
    bool given = !fchown(out->fd, out->owner, out->group) ||
                 !fchown(out->fd, (uid_t)-1, out->group); /* or not even that */
    if (fstat(out->fd, &st)) {
        return failed(out, "its owner cannot be told");
    }
    bool same = given && st.st_uid == out->owner && st.st_gid == out->group;
    return fchmod(out->fd, same ? out->mode : out->mode & 01777)
               ? failed(out, "its permissions cannot be set")
               : CEN_OK;
}

cen_status ceni_tensor_out_name(ceni_tensor_out *out) {
    cen_status status = out->replaces ? take_over(out) : CEN_OK;
    if (status) {
        return status;
    }
    if (fault() || fsync(out->fd)) {
        return failed(out, "it cannot be put on the disk");
    }
    status = out->temporary ? CEN_OK : name_temporary(out, "cannot be given its name");
    if (status) {
        return status;
    }
    int fd = out->fd;
    out->fd = -1;
    if (close(fd)) {
        return failed(out, "writing failed");
    }
    if (fault() || rename(out->temporary, out->target)) {
        return failed(out, "cannot be given its name");
    }
    ceni_free(out->temporary);
    out->temporary = NULL;
    return sync_folder(out);
}

void ceni_tensor_out_close(ceni_tensor_out *out) {
    ceni_fd_close_all(&out->fd, 1);
    if (out->temporary) {
        unlink(out->temporary);
    }
    ceni_free(out->temporary);
    ceni_free(out->target);
    *out = (ceni_tensor_out){.fd = -1};
}
