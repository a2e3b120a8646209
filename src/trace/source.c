/* A snapshot's bytes as a sliding window, from a file, standard input or memory, plain or gzip.
 *
 * The window is always a copy (never a mapping): a file that shrinks while it is read is then a
 * short read and not a signal, and what is resident stays small. Zero bytes follow its end, so
 * that the machine may read a fixed-size operand before it finds out that it was cut off. */
#include "trace/read.h"

#include "base/fault.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RAW_SIZE    ((size_t)256 << 10)
#define WINDOW_SIZE ((size_t)512 << 10)

/* Reads up to `size` bytes of the file as it is stored; *got = 0 only at its end. */
static cen_status read_stored(ceni_reader *reader, uint8_t *to, size_t size, size_t *got) {
    ceni_source *source = &reader->source;
    ssize_t count;
    do {
        if (ceni_fault(CENI_FAULT_IO)) {
            errno = EIO;
            count = -1;
        } else if (source->fd >= 0) {
            count = read(source->fd, to, size);
        } else {
            count = (ssize_t)(size < source->memory_left ? size : source->memory_left);
            if (count) {
                memcpy(to, source->memory, (size_t)count);
                source->memory += count;
                source->memory_left -= (size_t)count;
            }
        }
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
        return ceni_read_fail(reader, CEN_ERR_IO, "reading failed: %s", strerror(errno));
    }
    source->stored += (uint64_t)count;
    *got = (size_t)count;
    return CEN_OK;
}

/* Inflates into the window's free part; *got = 0 only at the stream's end. */
static cen_status read_gzip(ceni_reader *reader, uint8_t *to, size_t size, size_t *got) {
    ceni_source *source = &reader->source;
    z_stream *z = &source->z;
    z->next_out = to;
    z->avail_out = (uInt)size;
    while (!source->z_ended && z->avail_out == size) {
        if (!z->avail_in) {
            size_t count = 0;
            if (read_stored(reader, source->raw, RAW_SIZE, &count)) {
                return reader->status;
            }
            if (!count) {
                return ceni_read_fail(reader, CEN_ERR_TRUNCATED, "the gzip data ends too early");
            }
            z->next_in = source->raw;
            z->avail_in = (uInt)count;
        }
        int result = inflate(z, Z_NO_FLUSH);
        if (result == Z_STREAM_END) {
            source->z_ended = true;
        } else if (result == Z_MEM_ERROR) {
            return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory to inflate");
        } else if (result != Z_OK) {
            return ceni_read_fail(reader, CEN_ERR_FORMAT, "the gzip data is damaged (%s)",
                                  z->msg ? z->msg : "cannot be inflated");
        }
    }
    *got = size - z->avail_out;
    return CEN_OK;
}

static cen_status read_more(ceni_reader *reader, uint8_t *to, size_t size, size_t *got) {
    return reader->source.raw ? read_gzip(reader, to, size, got)
                              : read_stored(reader, to, size, got);
}

static void *z_alloc(void *opaque, uInt count, uInt size) {
    return ceni_calloc(count, size);
}

static void z_free(void *opaque, void *ptr) {
    ceni_free(ptr);
}

/* Turns the window's bytes, which begin with gzip's magic, into compressed input. */
static cen_status begin_gzip(ceni_reader *reader) {
    ceni_source *source = &reader->source;
    source->raw = ceni_malloc(RAW_SIZE > WINDOW_SIZE ? RAW_SIZE : WINDOW_SIZE);
    if (!source->raw) {
        return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory to inflate");
    }
    size_t size = (size_t)(source->end - source->window);
    memcpy(source->raw, source->window, size);
    source->z = (z_stream){
        .zalloc = z_alloc, .zfree = z_free, .next_in = source->raw, .avail_in = (uInt)size};
    if (inflateInit2(&source->z, 15 + 16) != Z_OK) { /* 16: gzip's header and nothing else */
        ceni_free(source->raw);
        source->raw = NULL;
        return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory to inflate");
    }
    source->end = source->window;
    source->eof = false;
    return ceni_source_fill(reader, source->window, 2);
}

cen_status ceni_source_open(ceni_reader *reader, const char *path, const void *data, size_t size) {
    ceni_source *source = &reader->source;
    *source = (ceni_source){.fd = -1, .memory = data, .memory_left = size};
    if (path && !strcmp(path, "-")) {
        source->fd = STDIN_FILENO;
    } else if (path) {
        source->fd =
            ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1) : open(path, O_RDONLY | O_CLOEXEC);
        if (source->fd < 0) {
            return ceni_read_fail(reader, CEN_ERR_IO, "cannot be opened: %s", strerror(errno));
        }
        source->close_fd = true;
        (void)posix_fadvise(source->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    source->window = ceni_malloc(WINDOW_SIZE + CENI_SOURCE_PAD);
    if (!source->window) {
        return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory for the input");
    }
    source->capacity = WINDOW_SIZE;
    source->end = source->window;
    if (ceni_source_fill(reader, source->window, 2)) {
        return reader->status;
    }
    bool gzip =
        source->end - source->window >= 2 && source->window[0] == 0x1f && source->window[1] == 0x8b;
    return gzip ? begin_gzip(reader) : CEN_OK;
}

void ceni_source_close(ceni_source *source) {
    if (source->raw) {
        inflateEnd(&source->z);
    }
    ceni_free(source->raw);
    ceni_free(source->window);
    if (source->close_fd) {
        close(source->fd);
    }
}

/* Makes the window hold `need` bytes, its first `kept` bytes staying. */
static cen_status enlarge(ceni_reader *reader, size_t kept, size_t need) {
    ceni_source *source = &reader->source;
    size_t capacity = source->capacity;
    while (capacity < need) {
        capacity *= 2;
    }
    uint8_t *window = ceni_realloc(source->window, capacity + CENI_SOURCE_PAD);
    if (!window) {
        return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory for the input");
    }
    source->window = window;
    source->end = window + kept;
    source->capacity = capacity;
    return CEN_OK;
}

cen_status ceni_source_fill(ceni_reader *reader, const uint8_t *from, size_t need) {
    ceni_source *source = &reader->source;
    size_t kept = (size_t)(source->end - from);
    source->base += (uint64_t)(from - source->window);
    memmove(source->window, from, kept);
    source->end = source->window + kept;
    while (kept < need && !source->eof) {
        /* Only what has arrived makes the window grow, not what a length claims. */
        if (kept == source->capacity && enlarge(reader, kept, kept + 1)) {
            return reader->status;
        }
        size_t got = 0;
        if (read_more(reader, source->end, source->capacity - kept, &got)) {
            return reader->status;
        }
        source->eof = !got;
        source->end += got;
        kept += got;
        if (source->base + kept > CENI_READ_STREAM_MAX) {
            return ceni_read_fail(reader, CEN_ERR_FORMAT, "longer than the limit of 64 GiB");
        }
    }
    memset(source->end, 0, CENI_SOURCE_PAD);
    return CEN_OK;
}

cen_status ceni_source_drain(ceni_reader *reader) {
    ceni_source *source = &reader->source;
    while (source->raw && !source->eof) {
        if (ceni_source_fill(reader, source->end, 1)) {
            return reader->status;
        }
    }
    return CEN_OK;
}

const char *ceni_source_looks(const uint8_t *data, size_t size) {
    static const struct {
        const char *start, *looks;
    } known[] = {
        {"PK\003\004", "a zip archive, such as torch.save writes"},
        {"\x28\xb5\x2f\xfd", "zstd data (only gzip is read)"},
        {"\xfd\x37zXZ", "xz data (only gzip is read)"},
        {"BZh", "bzip2 data (only gzip is read)"},
        {"version https://git-lfs", "a Git LFS pointer (fetch the file itself)"},
        {"Traceback (most recent", "the text of a Python traceback"},
        {"\x7f"
         "ELF",
         "a program"},
        {"SQLite format", "an SQLite database"},
    };
    if (!size) {
        return "empty";
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t length = strlen(known[i].start);
        if (size >= length && !memcmp(data, known[i].start, length)) {
            return known[i].looks;
        }
    }
    size_t at = 0;
    while (at < size && strchr(" \t\r\n", data[at]) && data[at]) {
        at++;
    }
    if (at < size && data[at] == '<') {
        return "an HTML or XML page";
    }
    if (at + 1 < size && (data[at] == '{' || (data[at] == '[' && data[at + 1] != '('))) {
        return "JSON text (Chrome's traces are written, not read)";
    }
    for (at = 0; at < size && at < 256; at++) {
        if (data[at] < 9 || data[at] == 127) {
            return "binary data of another kind";
        }
    }
    return "text (or a pickle of protocol 0 or 1)";
}
