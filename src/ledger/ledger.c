/* Making, closing and locking a ledger, and what concerns all of it: devices and steps. */
#include "ledger/ledger_int.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EVENTS     (UINT32_C(1) << 16)
#define EVENTS_MAX (UINT32_C(1) << 24)
#define HOLD_MOST  UINT64_C(50000000) /* ns: what a reader may ask for */
#define HOLD_PAUSE 50000              /* ns */

/* Counted in the child of every fork, so that it knows what is its parent's. */
static atomic_uint forks;
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

static void count_fork(void) {
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, count_fork);
}

static bool is_forked(const cen_ledger *l) {
    return l->forks != atomic_load_explicit(&forks, memory_order_relaxed);
}

cen_status ceni_ledger_check(const cen_ledger *l, const char *call) {
    if (!l) {
        return ceni_fail(CEN_ERR_INVALID, "%s: ledger is NULL", call);
    }
    if (is_forked(l)) {
        ceni_log(CEN_LOG_DEBUG, "%s: the ledger is the parent process's", call);
        return CEN_ERR_FORKED;
    }
    return CEN_OK;
}

/* ---- the lock ---- */

int64_t ceni_ledger_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* What a reader asks for is granted for a little while, and never twice for the same asking. */
static void hold_still(cen_ledger *l, uint64_t until) {
    for (uint64_t now = ceni_now_ns(); now < until && until - now < HOLD_MOST;
         now = ceni_now_ns()) {
        nanosleep(&(struct timespec){.tv_nsec = HOLD_PAUSE}, NULL);
        if (atomic_load_explicit(&l->head->hold_until_ns, memory_order_relaxed) != until) {
            return;
        }
    }
    atomic_compare_exchange_strong(&l->head->hold_until_ns, &until, 0);
}

void ceni_ledger_enter(cen_ledger *l) {
    pthread_mutex_lock(&l->lock);
    uint64_t until = atomic_load_explicit(&l->head->hold_until_ns, memory_order_relaxed);
    if (until) {
        hold_still(l, until);
    }
    /* Nothing that follows is seen before it, as that is an acquiring operation. */
    (void)atomic_fetch_add_explicit(&l->head->seq, 1, memory_order_acq_rel);
}

void ceni_ledger_leave(cen_ledger *l, int64_t now_us) {
    atomic_store_explicit(&l->head->changed_us, now_us, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&l->head->seq, 1, memory_order_release);
    pthread_mutex_unlock(&l->lock);
}

/* ---- create and close ---- */

static cen_status read_options(const cen_ledger_options *given, cen_ledger_options *options) {
    *options = (cen_ledger_options){0};
    if (given && given->size < sizeof given->size) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_create: options.size is not set");
    }
    if (given) {
        memcpy(options, given, given->size < sizeof *given ? given->size : sizeof *given);
    }
    if ((unsigned)options->stacks > CEN_TRACE_NATIVE_STACKS) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_create: stacks is %d, no kind of stacks",
                         (int)options->stacks);
    }
    if (options->events > EVENTS_MAX) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_create: events is %u, more than %u",
                         options->events, EVENTS_MAX);
    }
    uint32_t events = 1;
    while (events < (options->events ? options->events : EVENTS)) {
        events *= 2;
    }
    options->events = events;
    return CEN_OK;
}

/* A file that is there already is not emptied but replaced: a process that has it mapped must not
 * lose what it stands on. */
static int open_file(const char *path) {
    if (ceni_fault(CENI_FAULT_IO)) {
        errno = EIO;
        return -1;
    }
    if (!path) {
        return memfd_create("cenote-ledger", MFD_CLOEXEC);
    }
    struct stat there;
    if (!lstat(path, &there)) {
        if (!S_ISREG(there.st_mode)) {
            errno = EEXIST;
            return -1;
        }
        unlink(path);
    }
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        /* Others see that the writer lives, also where its process has another number. It is a new
         * file, so nobody else has it; a file system without locks goes without. */
        flock(fd, LOCK_SH | LOCK_NB);
    }
    return fd;
}

int ceni_ledger_fd(cen_ledger *l) {
    if (ceni_fd_is(l->fd, l->id)) {
        return l->fd;
    }
    int fd = l->path ? ceni_fd_move(open(l->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK))
                     : (errno = EBADF, -1);
    if (fd >= 0 && !ceni_fd_is(fd, l->id)) {
        close(fd);
        fd = -1;
        errno = EBADF;
    }
    if (fd >= 0) {
        flock(fd, LOCK_SH | LOCK_NB);
        l->fd = fd;
    }
    return fd;
}

/* The program and its arguments, as much of them as there is room for. */
static void name_program(char *to, size_t size) {
    char line[4096];
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t length = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file) {
        fclose(file);
    }
    while (length && !line[length - 1]) {
        length--;
    }
    line[length] = '\0';
    const char *from = ceni_base_name(line);
    for (size_t i = 0; i < length; i++) {
        line[i] = line[i] ? line[i] : ' ';
    }
    ceni_join_lines(line + (from - line));
    snprintf(to, size, "%s", from);
    ceni_one_line(to);
}

static void fill_head(cen_ledger *l) {
    ceni_ledger_head *h = l->head;
    h->major = CENI_LEDGER_MAJOR;
    h->minor = CENI_LEDGER_MINOR;
    h->order = CENI_LEDGER_ORDER;
    h->bytes = sizeof *h;
    h->parts = CENI_LEDGER_PARTS;
    h->pid = (uint64_t)getpid();
    h->start_ticks = ceni_ledger_start_ticks(getpid());
    h->started_us = ceni_ledger_now_us();
    name_program(h->program, sizeof h->program);
    snprintf(h->writer, sizeof h->writer, "%s", l->options.writer ? l->options.writer : "");
    ceni_one_line(h->writer);
    l->options.writer = NULL;
    atomic_store(&h->changed_us, h->started_us);
    /* Last: who opens it before sees no ledger yet. */
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(h->magic, CENI_LEDGER_MAGIC, sizeof h->magic);
}

static cen_status open_ledger(cen_ledger *l, const char *path) {
    const char *name = ceni_ledger_short_name(path ? path : "memory");
    l->path = path ? ceni_strdup(path) : NULL;
    if (path && !l->path) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_ledger_create: no memory");
    }
    l->fd = ceni_fd_move(open_file(path));
    l->id = ceni_fd_identify(l->fd);
    if (l->fd < 0) {
        return ceni_fail(CEN_ERR_IO, "cen_ledger_create: %s: cannot be made: %s", name,
                         strerror(errno));
    }
    cen_status status = ceni_ledger_map_all(l);
    if (status) {
        ceni_log(ceni_log_level(status), "cen_ledger_create: %s: no room: %s", name,
                 strerror(errno));
        if (path) {
            unlink(path);
        }
    }
    return status;
}

static void release(cen_ledger *l) {
    ceni_ledger_unmap_all(l);
    if (ceni_fd_is(l->fd, l->id)) {
        close(l->fd);
    }
    ceni_free(l->path);
    ceni_map_free(&l->strings);
    ceni_map_free(&l->stacks);
    ceni_map_free(&l->holdings);
    ceni_free(l->modules.at);
    pthread_mutex_destroy(&l->lock);
    ceni_free(l);
}

cen_status cen_ledger_create(const char *path, const cen_ledger_options *options,
                             cen_ledger **ledger) {
    cen_ledger_options given;
    if (!ledger) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_create: ledger is NULL");
    }
    cen_status status = read_options(options, &given);
    if (status) {
        return status;
    }
    cen_ledger *l = ceni_calloc(1, sizeof *l);
    if (!l) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_ledger_create: no memory");
    }
    pthread_once(&forks_once, watch_forks);
    pthread_mutex_init(&l->lock, NULL);
    l->forks = atomic_load(&forks);
    l->options = given;
    status = open_ledger(l, path);
    if (status) {
        release(l);
        return status;
    }
    fill_head(l);
    *ledger = l;
    return CEN_OK;
}

void cen_ledger_close(cen_ledger *l) {
    if (!l) {
        return;
    }
    if (!is_forked(l)) {
        ceni_ledger_enter(l);
        atomic_store_explicit(&l->head->closed, 1, memory_order_relaxed);
        ceni_ledger_leave(l, ceni_ledger_now_us());
    }
    release(l);
}

/* ---- devices, steps, kinds ---- */

const char *cen_ledger_kind_text(cen_ledger_kind kind) {
    static const char *const texts[] = {
#define KIND_TEXT(name, value, text, summed) [value] = text,
        CEN_LEDGER_KIND_MAP(KIND_TEXT)
#undef KIND_TEXT
    };
    return (unsigned)kind < CEN_LEDGER_KINDS ? texts[kind] : "?";
}

bool cen_ledger_kind_is_summed(cen_ledger_kind kind) {
    static const bool summed_kinds[] = {
#define KIND_SUMMED(name, value, text, summed) [value] = summed,
        CEN_LEDGER_KIND_MAP(KIND_SUMMED)
#undef KIND_SUMMED
    };
    return (unsigned)kind < CEN_LEDGER_KINDS && summed_kinds[kind];
}

cen_status cen_ledger_device(cen_ledger *l, unsigned device, const char *uuid, const char *name,
                             uint64_t total_bytes) {
    cen_status status = ceni_ledger_check(l, "cen_ledger_device");
    if (status) {
        return status;
    }
    if (device >= CEN_LEDGER_DEVICES) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_device: device is %u, not below %d", device,
                         CEN_LEDGER_DEVICES);
    }
    ceni_ledger_enter(l);
    ceni_ledger_device *d = &l->head->device[device];
    snprintf(d->uuid, sizeof d->uuid, "%s", uuid ? uuid : "");
    snprintf(d->name, sizeof d->name, "%s", name ? name : "");
    ceni_one_line(d->uuid);
    ceni_one_line(d->name);
    d->total_bytes = total_bytes;
    d->known = 1;
    ceni_ledger_leave(l, ceni_ledger_now_us());
    return CEN_OK;
}

/* Each holding's sample is put down when it changes next: a step costs the same however many. */
void cen_ledger_step(cen_ledger *l) {
    if (ceni_ledger_check(l, "cen_ledger_step")) {
        return;
    }
    int64_t now = ceni_ledger_now_us();
    ceni_ledger_enter(l);
    uint32_t steps = atomic_load_explicit(&l->head->steps, memory_order_relaxed) + 1;
    atomic_store_explicit(&l->head->steps, steps, memory_order_relaxed);
    ceni_ledger_event event = {
        .key = steps, .time_us = now, .stack = CEN_LEDGER_NO_STACK, .what = CENI_LEDGER_STEPPED};
    ceni_ledger_note_event(l, &event);
    ceni_ledger_leave(l, now);
}

uint64_t cen_ledger_held_bytes(cen_ledger *l, unsigned device) {
    if (ceni_ledger_check(l, "cen_ledger_held_bytes") || device >= CEN_LEDGER_DEVICES) {
        return 0;
    }
    pthread_mutex_lock(&l->lock);
    int64_t held = l->held[device];
    pthread_mutex_unlock(&l->lock);
    return held > 0 ? (uint64_t)held : 0;
}
