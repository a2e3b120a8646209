/* Starting and stopping a trace, devices' names, and the events that a program makes itself.
 *
 * A trace that the environment asked for, and any that is still on, ends when the process exits. In
 * a forked child nothing of the parent's trace is touched but for closing the file: other threads,
 * which are not there any more, may have been in the middle of anything. */
#include "trace/ring.h"

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES     (UINT32_C(32) << 10)
#define BUFFER_BYTES_MAX (UINT32_C(64) << 20)
#define STEP_FLUSH_NS    100000000u

ceni_trace_state ceni_trace = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static pthread_once_t watch_once = PTHREAD_ONCE_INIT;

/* ---- devices ---- */

static struct {
    struct named_device {
        char *name;
        uint64_t total_bytes;
        bool used, in_trace; /* in_trace: the one that is on has events of it */
    } * at;
    size_t count, capacity;
} devices; /* state.lock */

static void describe(size_t number) {
    struct named_device *d = &devices.at[number];
    d->in_trace = true;
    (void)ceni_writer_device(&ceni_trace.writer, (uint32_t)number, d->name, d->total_bytes);
}

static void start_as_asked(void);

/* A number is not given again in the same trace, which could not tell the two apart. */
static size_t free_number(void) {
    size_t number = 0;
    while (number < devices.count &&
           (devices.at[number].used || (ceni_trace.open && devices.at[number].in_trace))) {
        number++;
    }
    return number;
}

unsigned ceni_trace_device_add(const char *name, uint64_t total_bytes) {
    static pthread_once_t asked = PTHREAD_ONCE_INIT;
    pthread_once(&asked, start_as_asked);
    if (atomic_load(&ceni_trace.forked)) {
        return 0;
    }
    pthread_mutex_lock(&ceni_trace.lock);
    size_t number = free_number();
    char *copy = ceni_strdup(name);
    if (!copy || ceni_grow(&devices.at, &devices.capacity, number + 1, sizeof *devices.at)) {
        ceni_log(CEN_LOG_WARN, "trace: no memory to note %s; it goes by number 0", name);
        ceni_free(copy);
        pthread_mutex_unlock(&ceni_trace.lock);
        return 0;
    }
    if (number == devices.count) {
        devices.count++;
    } else {
        ceni_free(devices.at[number].name);
    }
    devices.at[number] = (struct named_device){copy, total_bytes, true, false};
    if (ceni_trace.open) {
        describe(number);
    }
    pthread_mutex_unlock(&ceni_trace.lock);
    return (unsigned)number;
}

void ceni_trace_device_remove(unsigned number) {
    if (atomic_load(&ceni_trace.forked)) {
        return;
    }
    pthread_mutex_lock(&ceni_trace.lock);
    if (number < devices.count) {
        devices.at[number].used = false;
    }
    pthread_mutex_unlock(&ceni_trace.lock);
}

/* ---- start ---- */

/* Not if the program has closed it and has a file of its own by that number. */
static int close_file(void) {
    int fd = ceni_trace.fd;
    ceni_trace.fd = -1;
    return fd >= 0 && ceni_fd_is(fd, ceni_trace.writer.id) ? close(fd) : 0;
}

/* The child has a copy of the file's descriptor and of half-made state; it uses neither. */
static void in_child(void) {
    atomic_store(&ceni_trace_is_on, false);
    atomic_store(&ceni_trace.forked, true);
    (void)close_file();
}

static void at_end(void) {
    if (!atomic_load(&ceni_trace.forked) && atomic_load(&ceni_trace_is_on)) {
        (void)cen_trace_stop();
    }
}

static void watch(void) {
    pthread_atfork(NULL, NULL, in_child);
    atexit(at_end);
}

static cen_status read_options(const cen_trace_options *given, cen_trace_options *options) {
    *options = (cen_trace_options){0};
    if (given && given->size < sizeof given->size) {
        return ceni_fail(CEN_ERR_INVALID, "cen_trace_start: options.size is not set");
    }
    if (given) {
        memcpy(options, given, given->size < sizeof *given ? given->size : sizeof *given);
    }
    if ((unsigned)options->stacks > CEN_TRACE_NATIVE_STACKS) {
        return ceni_fail(CEN_ERR_INVALID, "cen_trace_start: stacks is %d, no kind of stacks",
                         (int)options->stacks);
    }
    if (options->buffer_bytes > BUFFER_BYTES_MAX) {
        return ceni_fail(CEN_ERR_INVALID, "cen_trace_start: buffer_bytes is %u, more than %u",
                         options->buffer_bytes, BUFFER_BYTES_MAX);
    }
    return CEN_OK;
}

static void forget_path(void) {
    ceni_free(ceni_trace.path);
    ceni_trace.path = NULL;
}

static cen_status open_file(const char *path) {
    ceni_trace.path = ceni_strdup(path);
    if (!ceni_trace.path) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_trace_start: no memory");
    }
    int fd = ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1)
                                       : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    fd = ceni_fd_move(fd);
    if (fd < 0) {
        int error = errno;
        forget_path();
        return ceni_fail(CEN_ERR_IO, "cen_trace_start: %s cannot be made: %s", path,
                         strerror(error));
    }
    cen_status status =
        ceni_writer_open(&ceni_trace.writer, fd, ceni_trace.path, (uint64_t)getpid(),
                         ceni_trace_moment(), ceni_trace_unix_ns());
    if (status) {
        close(fd);
        forget_path();
        return status;
    }
    ceni_trace.fd = fd;
    return CEN_OK;
}

/* Who wrote it, and which of several processes that was. */
static void put_settings(void) {
    static const char *const ranks[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    ceni_writer *w = &ceni_trace.writer;
    char host[256] = "";
    (void)ceni_writer_setting(w, "cenote", CENI_VERSION);
    if (!gethostname(host, sizeof host - 1)) {
        (void)ceni_writer_setting(w, "host", host);
    }
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *rank = getenv(ranks[i]);
        if (rank) {
            (void)ceni_writer_setting(w, "rank", rank);
            return;
        }
    }
}

static uint32_t kinds_with_stacks(const cen_trace_options *options) {
    bool any = options->stack_fn || options->stacks != CEN_TRACE_NO_STACKS;
    return any ? 1u << CENI_EVENT_ALLOC | 1u << CENI_EVENT_FREE | 1u << CENI_EVENT_MAP |
                     1u << CENI_EVENT_OOM
               : 0;
}

/* state.lock is held, no trace is open. */
static cen_status start(const char *path, const cen_trace_options *options) {
    cen_status status = open_file(path);
    if (status) {
        return status;
    }
    uint32_t bytes = options->buffer_bytes ? options->buffer_bytes : BUFFER_BYTES;
    ceni_trace.buffer_events = bytes / sizeof(ceni_event_record);
    ceni_trace.buffer_events += !ceni_trace.buffer_events;
    ceni_rings_reset();
    put_settings();
    for (size_t i = 0; i < devices.count; i++) {
        devices.at[i].in_trace = false;
        if (devices.at[i].used) {
            describe(i);
        }
    }
    ceni_trace.generation++;
    ceni_trace.gone_events = 0;
    atomic_store(&ceni_trace.lost, 0);
    atomic_store(&ceni_trace.steps, 0);
    ceni_stacks_open(options);
    atomic_store(&ceni_trace.stack_kinds, kinds_with_stacks(options));
    ceni_trace.open = true;
    atomic_store(&ceni_trace_is_on, true);
    return CEN_OK;
}

static cen_status refuse_forked(const char *call) {
    return atomic_load(&ceni_trace.forked)
               ? ceni_fail(CEN_ERR_FORKED, "%s: the trace is the parent process's", call)
               : CEN_OK;
}

cen_status cen_trace_start(const char *path, const cen_trace_options *given) {
    if (!path) {
        return ceni_fail(CEN_ERR_INVALID, "cen_trace_start: path is NULL");
    }
    cen_trace_options options;
    cen_status status = read_options(given, &options);
    status = status ? status : refuse_forked("cen_trace_start");
    if (status) {
        return status;
    }
    pthread_once(&watch_once, watch);
    pthread_mutex_lock(&ceni_trace.lock);
    status = ceni_trace.open ? ceni_fail(CEN_ERR_BUSY, "cen_trace_start: a trace is on already: %s",
                                         ceni_trace.path)
                             : start(path, &options);
    pthread_mutex_unlock(&ceni_trace.lock);
    return status;
}

/* CENOTE_TRACE=FILE; %p in it stands for the process's id. */
static void start_as_asked(void) {
    const char *asked = getenv("CENOTE_TRACE");
    if (!asked || !*asked || atomic_load(&ceni_trace_is_on)) {
        return;
    }
    const char *percent = strstr(asked, "%p");
    ceni_str path = {0};
    if (percent) {
        ceni_str_printf(&path, "%.*s%d%s", (int)(percent - asked), asked, (int)getpid(),
                        percent + 2);
    } else {
        ceni_str_printf(&path, "%s", asked);
    }
    char *text = ceni_str_take(&path);
    if (text) {
        (void)cen_trace_start(text, NULL); /* the log says why not */
    }
    ceni_free(text);
}

/* ---- stop and the like ---- */

static void fill_stats(cen_trace_stats *stats) {
    pthread_mutex_lock(&ceni_trace.writer.lock);
    uint64_t bytes = ceni_trace.writer.end;
    pthread_mutex_unlock(&ceni_trace.writer.lock);
    uint64_t lost = atomic_load(&ceni_trace.lost);
    *stats = (cen_trace_stats){.events = ceni_rings_events(),
                               .bytes = bytes,
                               .stacks = ceni_stacks_count(),
                               .lost = lost,
                               .on = atomic_load(&ceni_trace_is_on)};
}

static cen_status stop(void) {
    ceni_rings_halt();
    ceni_rings_collect();
    ceni_stacks_close();
    fill_stats(&ceni_trace.last);
    uint64_t lost = ceni_trace.last.lost;
    cen_status status = ceni_writer_close(&ceni_trace.writer, lost, ceni_trace_moment());
    ceni_trace.last.bytes = ceni_trace.writer.end; /* the index too */
    if (close_file() && !status) {
        status = ceni_fail(CEN_ERR_IO, "cen_trace_stop: %s: %s", ceni_trace.path, strerror(errno));
    }
    forget_path();
    ceni_trace.open = false;
    return status;
}

cen_status cen_trace_stop(void) {
    cen_status status = refuse_forked("cen_trace_stop");
    if (status) {
        return status;
    }
    pthread_mutex_lock(&ceni_trace.lock);
    status = ceni_trace.open ? stop() : ceni_fail(CEN_ERR_NOT_FOUND, "cen_trace_stop: none is on");
    pthread_mutex_unlock(&ceni_trace.lock);
    return status;
}

cen_status cen_trace_flush(void) {
    cen_status status = refuse_forked("cen_trace_flush");
    if (status || !ceni_tracing()) {
        return status;
    }
    ceni_ring *ring = ceni_ring_own();
    if (!ring) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_trace_flush: no memory");
    }
    if (ceni_ring_enter(ring)) {
        status = ceni_ring_flush(ring);
        ceni_ring_leave(ring);
    }
    return status;
}

cen_status cen_trace_get_stats(cen_trace_stats *stats) {
    if (!stats) {
        return ceni_fail(CEN_ERR_INVALID, "cen_trace_get_stats: stats is NULL");
    }
    cen_status status = refuse_forked("cen_trace_get_stats");
    if (status) {
        return status;
    }
    pthread_mutex_lock(&ceni_trace.lock);
    if (ceni_trace.open) {
        fill_stats(stats);
    } else {
        *stats = ceni_trace.last;
    }
    pthread_mutex_unlock(&ceni_trace.lock);
    return CEN_OK;
}

/* ---- the program's own events ---- */

void cen_trace_step(void) {
    if (!ceni_tracing()) {
        return;
    }
    uint64_t step = atomic_fetch_add(&ceni_trace.steps, 1) + 1;
    ceni_emit(CENI_EVENT_STEP, CENI_EMIT_ALL_DEVICES, 0, step, 0);
    ceni_ring *ring = ceni_ring_own();
    if (ring && ceni_ring_enter(ring)) {
        if (ceni_trace_moment().ns - ring->flushed_ns >= STEP_FLUSH_NS) {
            (void)ceni_ring_flush(ring);
        }
        ceni_ring_leave(ring);
    }
}

void cen_trace_mark(const char *name, bool end) {
    ceni_ring *ring = ceni_tracing() && name ? ceni_ring_own() : NULL;
    if (!ring || !ceni_ring_enter(ring)) {
        return;
    }
    uint32_t id = ceni_writer_string(&ceni_trace.writer, name, strlen(name));
    ceni_event_record *record = id == CENI_FILE_NONE ? NULL : ceni_ring_next(ring);
    if (record) {
        *record = (ceni_event_record){.ticks = ceni_trace_ticks_after(),
                                      .addr = id,
                                      .size = end,
                                      .stack = CENI_FILE_NONE,
                                      .kind = CENI_EVENT_MARK,
                                      .device = CENI_EMIT_ALL_DEVICES};
        ceni_ring_commit(ring);
    } else if (id == CENI_FILE_NONE) {
        atomic_fetch_add(&ceni_trace.lost, 1);
    }
    ceni_ring_leave(ring);
}

static void emit_for_program(enum ceni_event kind, int device, cen_addr addr, uint64_t bytes,
                             cen_stream stream) {
    if (ceni_tracing() && device >= 0 && device < CENI_EMIT_ALL_DEVICES) {
        ceni_emit(kind, (unsigned)device, addr, bytes, stream);
    }
}

void cen_trace_alloc(int device, cen_addr addr, uint64_t bytes, cen_stream stream) {
    emit_for_program(CENI_EVENT_ALLOC, device, addr, bytes, stream);
}

void cen_trace_free(int device, cen_addr addr, uint64_t bytes, cen_stream stream) {
    emit_for_program(CENI_EVENT_FREE, device, addr, bytes, stream);
}
