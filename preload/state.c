/* The process: its settings, its ledger and its trace, who is inside, and what a fork leaves. */
#include "preload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cenote/log.h"
#include "cenote/trace.h"
#include "trace/emit.h"

__thread int pl_inside __attribute__((tls_model("initial-exec")));
__thread bool pl_quiet __attribute__((tls_model("initial-exec")));
pl_settings pl_set = {.stacks = true, .limit = UINT64_MAX};

typedef struct known_device {
    atomic_bool known;
    char uuid[48];
    uint64_t total;
} known_device;

static struct {
    pthread_mutex_t lock;
    atomic_bool started;
    bool forked;       /* the trace is the parent's */
    atomic_int inside; /* hooks that are noting something */
    atomic_bool ended;
    cen_ledger *ledger;
    known_device devices[PL_DEVICES];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- start ---- */

/* The library's warnings and failures, each a line of cenote's own. */
static void print_log(void *arg, cen_log_level level, const char *message) {
    char line[1024];
    if (pl_quiet) {
        return;
    }
    int size = snprintf(line, sizeof line, "cenote: %s\n", message);
    size = size < (int)sizeof line ? size : (int)sizeof line - 1;
    line[size - 1] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)size);
    (void)ignored;
}

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0");
}

static void read_settings(void) {
    const char *limit = getenv("CENOTE_RUN_LIMIT");
    char *end = NULL;
    unsigned long long bytes = limit ? strtoull(limit, &end, 10) : 0;
    pl_set.limit = bytes && end && !*end ? bytes : UINT64_MAX;
    pl_set.pool = is_set("CENOTE_RUN_POOL");
    pl_set.stacks = !is_set("CENOTE_RUN_NO_STACKS");
}

/* The first process of a run has the trace's plain name: it is the one that makes this file. */
static bool is_first(const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/traced", folder);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        return false;
    }
    close(fd);
    return true;
}

static void start_trace(const char *folder) {
    const char *file = getenv("CENOTE_RUN_TRACE");
    if (!file || !*file || state.forked) {
        return;
    }
    char path[4096];
    if (is_first(folder)) {
        snprintf(path, sizeof path, "%s", file);
    } else {
        snprintf(path, sizeof path, "%s.%d", file, (int)getpid());
    }
    cen_trace_options options = {.size = sizeof options,
                                 .stacks =
                                     pl_set.stacks ? CEN_TRACE_NATIVE_STACKS : CEN_TRACE_NO_STACKS,
                                 .stack_fn = pl_set.stacks ? cen_trace_python_frames : NULL};
    (void)cen_trace_start(path, &options); /* the log says why not */
}

/* Where the file cannot be made the ledger is kept in memory: a limit holds all the same. */
static void start_ledger(const char *folder) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%d-run.ledger", folder, (int)getpid());
    cen_ledger_options options = {.size = sizeof options,
                                  .writer = "run",
                                  .stacks =
                                      pl_set.stacks ? CEN_TRACE_NATIVE_STACKS : CEN_TRACE_NO_STACKS,
                                  .stack_fn = pl_set.stacks ? cen_trace_python_frames : NULL};
    if (*folder && cen_ledger_create(path, &options, &state.ledger) == CEN_OK) {
        return;
    }
    if (cen_ledger_create(NULL, &options, &state.ledger)) {
        state.ledger = NULL;
    }
}

/* Threads that run on while the process exits may be in a hook. */
static bool all_left(void) {
    enum { TRIES = 100 };
    atomic_store(&state.ended, true);
    for (int i = 0; i < TRIES && atomic_load(&state.inside); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return !atomic_load(&state.inside);
}

/* Called last of all when the process exits: what the program's exit functions and the destructors
 * of other libraries free is in the ledger by then, and goes to the pool that it came from. */
static void end(int status, void *arg) {
    if (atomic_load(&state.started) && all_left()) {
        pl_pages_end_own();
        cen_ledger_close(state.ledger);
        state.ledger = NULL;
    }
}

/* Exit functions run in the opposite order, so ours is noted before any other: the loader calls
 * this before the program begins. atexit would not do, which belongs to this library. */
__attribute__((constructor(101))) static void note_end(void) {
    on_exit(end, NULL);
}

static void in_child(void) {
    pthread_mutex_init(&state.lock, NULL);
    atomic_store(&state.started, false);
    atomic_store(&state.inside, 0);
    state.forked = true;
    state.ledger = NULL; /* the parent's mapping stays, unused */
    for (int i = 0; i < PL_DEVICES; i++) {
        atomic_store(&state.devices[i].known, false);
    }
    pl_fork_resolve();
    pl_fork_account();
    pl_fork_pages();
    pl_fork_streams();
    pl_fork_pool();
}

static void start(void) {
    static bool once; /* a child has what its parent asked for */
    if (!once) {
        once = true;
        pthread_atfork(NULL, NULL, in_child);
    }
    cen_log_set(print_log, NULL, CEN_LOG_WARN);
    read_settings();
    char folder[4096];
    if (cen_ledger_dir(folder, sizeof folder)) {
        folder[0] = '\0';
    }
    start_ledger(folder);
    start_trace(folder);
}

static void start_once(void) {
    if (atomic_load_explicit(&state.started, memory_order_acquire)) {
        return;
    }
    pthread_mutex_lock(&state.lock);
    if (!atomic_load(&state.started)) {
        start();
        atomic_store_explicit(&state.started, true, memory_order_release);
    }
    pthread_mutex_unlock(&state.lock);
}

/* ---- who is inside ---- */

bool pl_enter(int *before) {
    *before = pl_inside;
    if (pl_inside == PL_OWN) {
        return false;
    }
    atomic_fetch_add(&state.inside, 1);
    if (atomic_load(&state.ended)) {
        atomic_fetch_sub(&state.inside, 1);
        return false;
    }
    pl_inside = PL_OWN;
    start_once();
    return true;
}

pl_result pl_leave(int before, pl_result result) {
    pl_inside = before;
    atomic_fetch_sub(&state.inside, 1);
    return result;
}

cen_ledger *pl_ledger(void) {
    return state.ledger;
}

/* ---- devices ---- */

static void print_uuid(char text[48], const char *name, const pl_uuid *uuid) {
    int at = snprintf(text, 48, "%s", strstr(name, " MIG ") ? "MIG-" : "GPU-");
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(text + at, (size_t)(48 - at), "%s%02x", dash ? "-" : "", uuid->bytes[i]);
    }
}

static void get_to_know(int device) {
    known_device read = {.known = false};
    const pl_driver *real = pl_real();
    char name[128] = "";
    size_t total = 0;
    pl_uuid uuid = {{0}};
    (void)real->cuDeviceGetName(name, sizeof name, device);
    if (real->cuDeviceGetUuid_v2(&uuid, device) == PL_SUCCESS ||
        real->cuDeviceGetUuid(&uuid, device) == PL_SUCCESS) {
        print_uuid(read.uuid, name, &uuid);
    }
    if (real->cuDeviceTotalMem_v2(&total, device) != PL_SUCCESS) {
        return; /* the driver is not initialised yet, or gone */
    }
    pthread_mutex_lock(&state.lock);
    known_device *d = &state.devices[device];
    if (!atomic_load(&d->known)) {
        memcpy(d->uuid, read.uuid, sizeof d->uuid);
        d->total = total;
        if (state.ledger) {
            (void)cen_ledger_device(state.ledger, (unsigned)device, d->uuid, name, total);
        }
        if (ceni_tracing() && !pl_set.pool) { /* cuInit names them all, in order: numbers agree */
            (void)ceni_trace_device_add(name, total);
        }
        atomic_store_explicit(&d->known, true, memory_order_release);
    }
    pthread_mutex_unlock(&state.lock);
}

static const known_device *known(int device) {
    known_device *d = &state.devices[device];
    if (!atomic_load_explicit(&d->known, memory_order_acquire)) {
        get_to_know(device);
    }
    return d;
}

const char *pl_device_uuid(int device) {
    return device >= 0 && device < PL_DEVICES ? known(device)->uuid : "";
}

uint64_t pl_device_total(int device) {
    return device >= 0 && device < PL_DEVICES ? known(device)->total : 0;
}

int pl_device_now(void) {
    pl_device device = -1;
    if (pl_real()->cuCtxGetDevice(&device) != PL_SUCCESS || device < 0 || device >= PL_DEVICES) {
        return -1;
    }
    (void)known(device);
    return device;
}

pl_result cuInit(unsigned flags) {
    int before;
    const pl_driver *real = pl_real();
    if (!pl_enter(&before)) {
        return real->cuInit(flags);
    }
    pl_result result = real->cuInit(flags);
    int count = 0;
    if (result == PL_SUCCESS && real->cuDeviceGetCount(&count) == PL_SUCCESS) {
        for (int device = 0; device < count && device < PL_DEVICES; device++) {
            (void)known(device);
        }
    }
    return pl_leave(before, result);
}
