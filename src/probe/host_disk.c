/* The disk below a folder: a file without a name, read and written past the system's cache, by
 * threads and by one thread with many transfers in the air. */
#include "probe/host.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { THREADS = 4, CHUNK = 1 << 20, BLOCK = 4096, DEPTH = 8, BLOCK_DEPTH = 32 };

typedef struct disk {
    int fd;
    uint64_t bytes;      /* of the file; a multiple of CHUNK */
    uint64_t until;      /* ns: no chunk is begun after */
    bool write, random;  /* random: blocks, in no order */
    _Atomic uint64_t at; /* of the next chunk */
    _Atomic uint64_t done;
    _Atomic int error;
} disk;

static uint64_t unit(const disk *d) {
    return d->random ? BLOCK : CHUNK;
}

/* Where the next chunk or block lies. */
static uint64_t next_place(disk *d) {
    uint64_t turn = atomic_fetch_add(&d->at, 1), units = d->bytes / unit(d);
    /* An odd multiplier visits all blocks, out of order. */
    return (d->random ? turn * 40503 % units : turn % units) * unit(d);
}

/* Counts a transfer that moved n bytes, or failed with errno `error`; false: it failed. */
static bool count(disk *d, int64_t n, int error) {
    if (n != (int64_t)unit(d)) {
        atomic_store(&d->error, n < 0 ? error : ENOSPC);
        return false;
    }
    atomic_fetch_add(&d->done, unit(d));
    return true;
}

/* One chunk or block; false: it failed. */
static bool move(disk *d, char *buffer) {
    off_t offset = (off_t)next_place(d);
    size_t size = unit(d);
    ssize_t n = d->write ? pwrite(d->fd, buffer, size, offset) : pread(d->fd, buffer, size, offset);
    return count(d, n, errno);
}

static void work(void *arg, uint32_t i) {
    disk *d = arg;
    uint64_t size = unit(d);
    char *buffer = aligned_alloc(BLOCK, size);
    if (!buffer) {
        atomic_store(&d->error, ENOMEM);
        return;
    }
    memset(buffer, (int)(i + 1), size);
    while (!atomic_load(&d->error) && move(d, buffer) && ceni_now_ns() < d->until) {
    }
    free(buffer);
}

/* Transfers of one thread through a ring. */
typedef struct flight {
    ceni_uring *ring;
    char *buffers; /* a unit for each transfer in the air */
    uint32_t depth;
} flight;

static bool start_one(disk *d, flight *f, uint64_t i) {
    ceni_uring_move next = {.fd = d->fd,
                            .write = d->write,
                            .data = f->buffers + i * unit(d),
                            .bytes = (uint32_t)unit(d),
                            .offset = next_place(d),
                            .tag = i};
    int error = ceni_uring_start(f->ring, &next);
    if (error) {
        atomic_store(&d->error, error);
    }
    return !error;
}

/* Keeps `depth` in the air until the time is over, and then lands them. */
static void fly(disk *d, flight *f) {
    uint32_t flying = 0;
    while (flying < f->depth && start_one(d, f, flying)) {
        flying++;
    }
    while (flying) {
        uint64_t tag = 0;
        int moved = 0, error = ceni_uring_take(f->ring, &tag, &moved);
        if (error) {
            atomic_store(&d->error, error);
            return;
        }
        bool more = count(d, moved, -moved) && !atomic_load(&d->error) && ceni_now_ns() < d->until;
        flying -= !(more && start_one(d, f, tag));
    }
}

/* Samples of one way to move, by a crew or through a ring; the errno of the first failure. */
static int sample(disk *d, ceni_crew *crew, flight *f, const ceni_host *host, ceni_samples *out) {
    uint64_t budget = host->options->quick ? 2000000 : 300000000;
    for (int i = 0; i < CENI_SAMPLES && !atomic_load(&d->error); i++) {
        uint64_t start = ceni_now_ns();
        d->until = start + budget;
        atomic_store(&d->done, 0);
        if (f) {
            fly(d, f);
        } else {
            ceni_crew_run(crew, work, d);
        }
        if (d->write && fdatasync(d->fd)) {
            atomic_store(&d->error, errno);
        }
        double ns = (double)(ceni_now_ns() - start), done = (double)atomic_load(&d->done);
        ceni_samples_add(out, d->random && !f ? ns * BLOCK / done : done / ns);
    }
    return atomic_load(&d->error);
}

/* All of the file is written first: what was not would be read without the disk. */
static int fill(disk *d, ceni_crew *crew) {
    d->until = UINT64_MAX;
    d->write = true;
    if (!ceni_fd_may_grow(d->bytes)) {
        return errno;
    }
    int error = posix_fallocate(d->fd, 0, (off_t)d->bytes);
    if (error && error != EOPNOTSUPP && error != EINVAL) {
        return error;
    }
    for (uint64_t chunk = 0; chunk < d->bytes / CHUNK && !atomic_load(&d->error);
         chunk += THREADS) {
        d->until = 0; /* each thread one chunk */
        ceni_crew_run(crew, work, d);
    }
    return atomic_load(&d->error);
}

static void skip(const ceni_host *host, const char *dir, const char *what, int error) {
    ceni_draft_skip(host->draft, CEN_LEVEL_DISK, "%s: %s%s%s", dir, what, error ? ": " : "",
                    error ? strerror(error) : "");
}

/* One way of a ring: chunks one after another, or blocks in no order. */
static int measure_way(const ceni_host *host, disk *d, const char *access, bool write,
                       bool random) {
    ceni_samples gbps = {{0}, 0};
    d->write = write;
    d->random = random;
    flight f = {.depth = random ? BLOCK_DEPTH : DEPTH};
    f.buffers = aligned_alloc(BLOCK, f.depth * unit(d));
    int error = f.buffers ? ceni_uring_open(f.depth, &f.ring) : ENOMEM;
    if (!error) {
        memset(f.buffers, 1, f.depth * unit(d));
        error = sample(d, NULL, &f, host, &gbps);
        /* Memory that the kernel may still write to is nobody else's. */
        if (ceni_uring_close(f.ring)) {
            f.buffers = NULL;
        }
    }
    if (!error) {
        ceni_draft_transfer(host->draft, CEN_LEVEL_DISK, access, 1, unit(d), &gbps, !random);
    }
    free(f.buffers);
    return error;
}

static void measure_ring(const ceni_host *host, disk *d) {
    int error = measure_way(host, d, "write io_uring", true, false);
    error = error ? error : measure_way(host, d, "read io_uring", false, false);
    error = error ? error : measure_way(host, d, "read io_uring", false, true);
    if (error) {
        ceni_draft_skip(host->draft, CEN_LEVEL_DISK, "io_uring: %s%s", strerror(error),
                        error == ENOSYS || error == EPERM
                            ? ": the kernel lacks it or keeps it from this process"
                            : "");
    }
}

static void measure(const ceni_host *host, const char *dir, disk *d, ceni_crew *crew,
                    ceni_crew *alone) {
    ceni_samples gbps = {{0}, 0}, ns = {{0}, 0};
    int error = fill(d, crew);
    if (error) {
        skip(host, dir, "cannot be written", error);
        return;
    }
    error = sample(d, crew, NULL, host, &gbps);
    if (!error) {
        ceni_draft_transfer(host->draft, CEN_LEVEL_DISK, "write", THREADS, CHUNK, &gbps, true);
        d->write = false;
        gbps.count = 0;
        error = sample(d, crew, NULL, host, &gbps);
    }
    if (!error) {
        ceni_draft_transfer(host->draft, CEN_LEVEL_DISK, "read", THREADS, CHUNK, &gbps, true);
        d->random = true;
        error = sample(d, alone, NULL, host, &ns);
    }
    if (!error) {
        ceni_draft_latency(host->draft, CEN_LEVEL_DISK, &ns, 0);
        measure_ring(host, d);
    } else {
        skip(host, dir, d->write ? "cannot be written" : "cannot be read", error);
    }
}

/* A file that no name leads to, open past the cache; -1 with errno. */
static int open_file(const char *dir) {
    char path[4096];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) {
        return fd;
    }
    snprintf(path, sizeof path, "%s/cenote-probe-%ld", dir, (long)getpid());
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        unlink(path);
    }
    return fd;
}

void ceni_host_disk(ceni_host *host) {
    enum { TMPFS = 0x01021994, RAMFS = (int)0x858458f6 };
    const char *dir = host->options->dir, *temporary = getenv("TMPDIR");
    dir = dir ? dir : temporary && *temporary ? temporary : "/tmp";
    struct statfs fs;
    disk d = {.bytes = host->options->quick ? 4 * (uint64_t)CHUNK : 256 * (uint64_t)CHUNK};
    if (statfs(dir, &fs)) {
        skip(host, dir, "cannot be looked at", errno);
        return;
    }
    if ((int)fs.f_type == TMPFS || (int)fs.f_type == RAMFS) {
        skip(host, dir, "is memory, not a disk; --dir names another folder", 0);
        return;
    }
    d.fd = open_file(dir);
    if (d.fd < 0) {
        skip(host, dir,
             errno == EINVAL ? "cannot be read and written past the system's cache"
                             : "no file can be made",
             errno);
        return;
    }
    cen_probe_level *level = ceni_draft_level(host->draft, CEN_LEVEL_DISK);
    if (level) {
        level->capacity_bytes = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
    }
    ceni_crew *crew = NULL, *alone = NULL;
    int error = ceni_crew_start(&host->system, THREADS, &crew);
    error = error ? error : ceni_crew_start(&host->system, 1, &alone);
    if (error) {
        skip(host, dir, "no threads", error);
    } else {
        measure(host, dir, &d, crew, alone);
    }
    ceni_crew_stop(alone);
    ceni_crew_stop(crew);
    close(d.fd);
}
