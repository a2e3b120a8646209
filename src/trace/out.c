#include "trace/out.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "trace/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_SIZE ((size_t)128 << 10)

void ceni_out_fail(ceni_out *out, cen_status status, const char *format, ...) {
    if (!out->status) {
        va_list args;
        va_start(args, format);
        vsnprintf(out->message, sizeof out->message, format, args);
        va_end(args);
        out->status = status;
    }
}

static void fail_io(ceni_out *out, const char *what) {
    ceni_out_fail(out, CEN_ERR_IO, "%s: %s", what, strerror(errno));
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* ---- opening ---- */

static int open_file(const char *path, int flags) {
    if (ceni_fault(CENI_FAULT_IO)) {
        errno = EIO;
        return -1;
    }
    return open(path, flags | O_WRONLY | O_CLOEXEC, 0666); /* the kernel applies the umask */
}

/* Makes a file in the target's folder under a name that is nobody's. */
static void make_temporary(ceni_out *out) {
    const char *slash = strrchr(out->target, '/');
    int folder = slash ? (int)(slash + 1 - out->target) : 0;
    size_t size = (size_t)folder + 64;
    out->temporary = ceni_malloc(size);
    if (!out->temporary) {
        ceni_out_fail(out, CEN_ERR_HOST_MEMORY, "no memory for a name");
        return;
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(out->temporary, size, "%.*s.cenote-%ld-%d.part", folder, out->target,
                 (long)getpid(), i);
        out->fd = open_file(out->temporary, O_CREAT | O_EXCL);
        if (out->fd >= 0 || errno != EEXIST) {
            break;
        }
    }
    if (out->fd < 0) {
        fail_io(out, "cannot be made");
        ceni_free(out->temporary);
        out->temporary = NULL;
    }
}

/* The file behind `path`, if there is one: a symbolic link stays one. */
static char *resolve(const char *path) {
    char *real = realpath(path, NULL);
    char *copy = ceni_strdup(real ? real : path);
    free(real);
    return copy;
}

static void open_path(ceni_out *out, const char *path) {
    struct stat st;
    bool there = !stat(path, &st);
    out->close_fd = true;
    if (there && !S_ISREG(st.st_mode)) {
        out->fd = open_file(path, 0);
        if (out->fd < 0) {
            fail_io(out, "cannot be written");
        }
        return;
    }
    if (there && access(path, W_OK)) {
        fail_io(out, "cannot be written");
        return;
    }
    out->mode = there ? st.st_mode & 07777 : 0;
    out->target = resolve(path);
    if (!out->target) {
        ceni_out_fail(out, CEN_ERR_HOST_MEMORY, "no memory for a name");
        return;
    }
    make_temporary(out);
}

static void *z_alloc(void *opaque, uInt count, uInt size) {
    return ceni_calloc(count, size);
}

static void z_free(void *opaque, void *ptr) {
    ceni_free(ptr);
}

static void begin_gzip(ceni_out *out) {
    out->z = (z_stream){.zalloc = z_alloc, .zfree = z_free};
    out->packed = ceni_malloc(BUFFER_SIZE);
    out->gzip = out->packed && deflateInit2(&out->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
                                            Z_DEFAULT_STRATEGY) == Z_OK;
    if (!out->gzip) {
        ceni_out_fail(out, CEN_ERR_HOST_MEMORY, "no memory to compress");
    }
}

void ceni_out_open(ceni_out *out, const char *path) {
    *out = (ceni_out){.name = strcmp(path, "-") ? path : "standard output", .fd = -1};
    out->buffer = ceni_malloc(BUFFER_SIZE);
    if (!out->buffer) {
        ceni_out_fail(out, CEN_ERR_HOST_MEMORY, "no memory for the output");
        return;
    }
    if (strcmp(path, "-")) {
        open_path(out, path);
    } else {
        out->fd = STDOUT_FILENO;
    }
    if (!out->status && ends_with(path, ".gz")) {
        begin_gzip(out);
    }
}

/* ---- writing ---- */

static void write_all(ceni_out *out, const uint8_t *data, size_t size) {
    struct iovec part = {(void *)(uintptr_t)data, size};
    int error = size && !out->status ? ceni_write_quietly(out->fd, &part, 1) : 0;
    if (error) {
        errno = error;
        fail_io(out, "writing failed");
    }
}

/* Empties the buffer into the file. */
static void flush(ceni_out *out, int mode) {
    if (!out->gzip) {
        write_all(out, out->buffer, out->size);
    } else {
        out->z.next_in = out->buffer;
        out->z.avail_in = (uInt)out->size;
        do {
            out->z.next_out = out->packed;
            out->z.avail_out = (uInt)BUFFER_SIZE;
            deflate(&out->z, mode); /* cannot fail: its state is whole and its output has room */
            write_all(out, out->packed, BUFFER_SIZE - out->z.avail_out);
        } while (!out->z.avail_out && !out->status);
    }
    out->size = 0;
}

void ceni_out_put(ceni_out *out, const void *data, size_t size) {
    const uint8_t *from = data;
    while (size && !out->status) {
        size_t room = BUFFER_SIZE - out->size, part = size < room ? size : room;
        memcpy(out->buffer + out->size, from, part);
        out->size += part;
        from += part;
        size -= part;
        if (out->size == BUFFER_SIZE) {
            flush(out, Z_NO_FLUSH);
        }
    }
}

void ceni_out_printf(ceni_out *out, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ceni_out_put(out, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

/* ---- what others write ---- */

int ceni_out_file(ceni_out *out) {
    if (!out->gzip || out->status) {
        return out->status ? -1 : out->fd;
    }
    FILE *file = ceni_fault(CENI_FAULT_IO) ? (errno = EIO, NULL) : tmpfile();
    int fd = file ? dup(fileno(file)) : -1;
    if (file) {
        fclose(file);
    }
    if (fd < 0) {
        fail_io(out, "a temporary file cannot be made");
    }
    return fd;
}

void ceni_out_take(ceni_out *out, int fd) {
    if (fd < 0 || fd == out->fd) {
        return;
    }
    ssize_t count = 1;
    for (off_t at = 0; count > 0 && !out->status; at += count > 0 ? count : 0) {
        count =
            ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1) : pread(fd, out->buffer, BUFFER_SIZE, at);
        if (count < 0) {
            fail_io(out, "the temporary file cannot be read");
        } else if (count) {
            out->size = (size_t)count;
            flush(out, Z_NO_FLUSH);
        }
    }
    close(fd);
}

/* ---- the end ---- */

static void finish(ceni_out *out) {
    if (!out->status) {
        flush(out, Z_FINISH);
    }
    if (!out->status && out->mode && fchmod(out->fd, out->mode)) {
        fail_io(out, "its permissions cannot be set");
    }
    if (out->close_fd && out->fd >= 0 && close(out->fd)) {
        fail_io(out, "writing failed");
    }
    if (!out->temporary) {
        return;
    }
    if (!out->status &&
        (ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1) : rename(out->temporary, out->target))) {
        fail_io(out, "cannot be given its name");
    }
    if (out->status) {
        unlink(out->temporary);
    }
}

cen_status ceni_out_close(ceni_out *out, cen_read_error *error) {
    finish(out);
    if (out->gzip) {
        deflateEnd(&out->z);
    }
    ceni_free(out->buffer);
    ceni_free(out->packed);
    ceni_free(out->target);
    ceni_free(out->temporary);
    if (!out->status) {
        return CEN_OK;
    }
    size_t length = strlen(out->name); /* the end of a long name tells more than its beginning */
    cen_read_error made = {0};
    snprintf(made.message, sizeof made.message, "%s: %s",
             length > 100 ? out->name + length - 100 : out->name, out->message);
    ceni_one_line(made.message);
    if (error) {
        *error = made;
    }
    if (!out->logged) {
        ceni_log(CEN_LOG_ERROR, "%s", made.message);
    }
    return out->status;
}
