/* The page of a shared event, and how an importer learns that its exporter died.
 *
 * Records are numbered; the page has the number of the latest one that was enqueued, and the latest
 * up to which all are complete. An importer waits until the second reaches what the first was.
 *
 * The exporter holds a write lock on a description of the file that it never gives away (an OFD
 * lock belongs to the open file description), and hands out another description. So anyone who has
 * the latter can ask whether the lock is still there: the kernel drops it when the exporter closes
 * the file, however it ends. No process ids are involved, so it does not matter in which PID
 * namespace either of them is, and one descriptor is all that has to be passed. A pidfd would be a
 * second one; a robust mutex belongs to a thread, which may end before its process. The kernel
 * opens a memfd anew through /proc alone, so where none is mounted there are no shared events: a
 * lock on the description that readers have would live as long as they do. A forked child inherits
 * the description and would keep the lock: it closes it at once, and gets no mapping.
 *
 * What is handed out is read-only, of a file that only its user may open for writing, so no reader
 * of another user can forge a completion. An importer trusts the page in nothing but how long to
 * wait; the file's size is sealed, so reading it cannot fail. */
#include "dev/host/shared_event.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "dev/host/host_int.h"

enum { PAGE_BYTES = 4096, PAGE_MAGIC = 0x6e654563 };

typedef struct event_page {
    uint32_t magic;
    _Atomic uint32_t recorded, completed; /* numbers of records, which wrap around */
    _Atomic uint32_t lost;                /* 1: what is not complete never will be */
} event_page;

struct host_shared {
    size_t refs;
    event_page *page;
    int fd;         /* the importer's; the exporter's has the lock */
    int handed_out; /* another description, read-only; -1 with an importer */
    uint32_t recorded;
    host_point *open, **open_tail; /* records that are not complete, in order */
    host_shared *next;             /* in `exporters` */
};

/* Those whose lock a forked child must give up. */
static pthread_mutex_t exporters_lock = PTHREAD_MUTEX_INITIALIZER;
static host_shared *exporters;

static void before_fork(void) {
    pthread_mutex_lock(&exporters_lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&exporters_lock);
}

static void in_child(void) {
    for (host_shared *s = exporters; s; s = s->next) {
        close(s->fd);
    }
    exporters = NULL;
    pthread_mutex_unlock(&exporters_lock);
}

void ceni_host_shared_watch_forks(void) {
    pthread_atfork(before_fork, after_fork, in_child);
}

static struct flock whole_file(short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET};
}

static cen_status map_page(int fd, int protection, event_page **page) {
    void *map = mmap(NULL, PAGE_BYTES, protection, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return ceni_host_map_failed("a shared event", errno);
    }
    madvise(map, PAGE_BYTES, MADV_DONTFORK); /* a mapping, too, keeps the description */
    *page = map;
    return CEN_OK;
}

/* The file, sealed and locked, and its second description. */
static cen_status make_file(int *fd, int *handed_out) {
    struct flock lock = whole_file(F_WRLCK);
    int made = ceni_fd_move(memfd_create("cenote-event", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    int other = -1;
    if (made >= 0 && ceni_fd_may_grow(PAGE_BYTES) && !ftruncate(made, PAGE_BYTES) &&
        !fchmod(made, 0644) &&
        !fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) &&
        !fcntl(made, F_OFD_SETLK, &lock)) {
        other = ceni_fd_reopen(made, O_RDONLY);
    }
    if (other < 0) {
        cen_status status = ceni_fd_no_proc(errno)
                                ? ceni_fail(CEN_ERR_UNSUPPORTED,
                                            "a shared event: there is no /proc of this process, "
                                            "which opens its file for others")
                                : ceni_host_fd_failed("a shared event", errno);
        if (made >= 0) {
            close(made);
        }
        return status;
    }
    *fd = made;
    *handed_out = other;
    return CEN_OK;
}

static void release(host_shared *shared) {
    if (shared->page) {
        munmap(shared->page, PAGE_BYTES);
    }
    if (shared->fd >= 0) {
        close(shared->fd);
    }
    if (shared->handed_out >= 0) {
        close(shared->handed_out);
    }
    ceni_free(shared);
}

static host_shared *object_new(void) {
    host_shared *shared = ceni_calloc(1, sizeof *shared);
    if (shared) {
        *shared = (host_shared){.refs = 1, .fd = -1, .handed_out = -1};
        shared->open_tail = &shared->open;
    }
    return shared;
}

cen_status ceni_host_shared_new(host_shared **shared) {
    host_shared *made = object_new();
    if (!made) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "a shared event: out of host memory");
    }
    cen_status status = make_file(&made->fd, &made->handed_out);
    status = status ? status : map_page(made->fd, PROT_READ | PROT_WRITE, &made->page);
    if (!made->page) {
        release(made);
        return status;
    }
    made->page->magic = PAGE_MAGIC;
    pthread_mutex_lock(&exporters_lock);
    made->next = exporters;
    exporters = made;
    pthread_mutex_unlock(&exporters_lock);
    *shared = made;
    return CEN_OK;
}

cen_status ceni_host_shared_adopt(int fd, host_shared **shared) {
    const int needed = F_SEAL_SHRINK | F_SEAL_GROW;
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) || st.st_size != PAGE_BYTES || seals < 0 || (seals & needed) != needed) {
        return ceni_fail(CEN_ERR_INVALID, "event_import: fd %d is no shared event", fd);
    }
    host_shared *made = object_new();
    if (!made) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "event_import: out of host memory");
    }
    cen_status status = CEN_OK;
    made->fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (made->fd < 0) {
        status = ceni_host_fd_failed("event_import", errno);
    }
    status = status ? status : map_page(made->fd, PROT_READ, &made->page);
    if (made->page && made->page->magic != PAGE_MAGIC) {
        status = ceni_fail(CEN_ERR_INVALID, "event_import: fd %d is no shared event", fd);
    }
    if (status) {
        release(made);
        return status;
    }
    *shared = made;
    return CEN_OK;
}

host_shared *ceni_host_shared_keep(host_shared *shared) {
    shared->refs++;
    return shared;
}

void ceni_host_shared_drop(host_shared *shared) {
    if (!shared || --shared->refs) {
        return;
    }
    if (!ceni_host_shared_is_import(shared)) {
        pthread_mutex_lock(&exporters_lock);
        host_shared **link = &exporters;
        while (*link != shared) {
            link = &(*link)->next;
        }
        *link = shared->next;
        pthread_mutex_unlock(&exporters_lock);
    }
    release(shared);
}

bool ceni_host_shared_is_import(const host_shared *shared) {
    return shared->handed_out < 0;
}

cen_status ceni_host_shared_export(const host_shared *shared, int *fd) {
    int copy = fcntl(shared->handed_out, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (copy < 0) {
        return ceni_host_fd_failed("event_export", errno);
    }
    *fd = copy;
    return CEN_OK;
}

void ceni_host_shared_record(host_shared *shared, host_point *point) {
    point->shared = ceni_host_shared_keep(shared);
    point->number = ++shared->recorded;
    *shared->open_tail = point;
    shared->open_tail = &point->next_open;
    atomic_store(&shared->page->recorded, shared->recorded);
}

static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, (void *)word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Streams reach records out of order; importers see the latest before the first that is open. */
void ceni_host_shared_reach(host_point *point, bool lost) {
    host_shared *shared = point->shared;
    host_point **link = &shared->open;
    while (*link != point) {
        link = &(*link)->next_open;
    }
    *link = point->next_open;
    if (!*link) {
        shared->open_tail = link;
    }
    if (lost) {
        atomic_store(&shared->page->lost, 1);
    } else {
        atomic_store(&shared->page->completed,
                     shared->open ? shared->open->number - 1 : shared->recorded);
    }
    futex_wake(&shared->page->completed);
}

uint32_t ceni_host_shared_latest(const host_shared *shared) {
    return atomic_load(&shared->page->recorded);
}

bool ceni_host_shared_is_complete(const host_shared *shared, uint32_t number) {
    return (int32_t)(atomic_load(&shared->page->completed) - number) >= 0;
}

/* Asks what a read lock would meet: the exporter's, since for a write lock one must be able to open
 * the file for writing. Other importers' read locks are not seen. */
static bool exporter_is_gone(const host_shared *shared) {
    struct flock lock = whole_file(F_RDLCK);
    return atomic_load(&shared->page->lost) ||
           (!fcntl(shared->fd, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK);
}

cen_status ceni_host_shared_pause(const host_shared *shared, uint32_t number, uint32_t ms) {
    _Atomic uint32_t *word = &shared->page->completed;
    uint32_t seen = atomic_load(word);
    const struct timespec limit = {ms / 1000, (long)(ms % 1000) * 1000000};
    if (!ceni_host_shared_is_complete(shared, number) && !atomic_load(&shared->page->lost) && ms) {
        syscall(SYS_futex, (void *)word, FUTEX_WAIT, seen, &limit, NULL, 0);
    }
    if (ceni_host_shared_is_complete(shared, number)) {
        return CEN_OK;
    }
    bool gone = exporter_is_gone(shared);
    /* It may have completed it and ended since. */
    return ceni_host_shared_is_complete(shared, number) ? CEN_OK
           : gone                                       ? CEN_ERR_DEVICE_LOST
                                                        : CEN_ERR_NOT_READY;
}
