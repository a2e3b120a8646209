/* Watching a live ledger: a few words of its head, read and written in place. */
#include "ledger/file.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define AT(field) ((off_t)offsetof(ceni_ledger_head, field))

struct cen_ledger_watch {
    int fd;
};

static bool get(const cen_ledger_watch *w, off_t at, void *to, size_t size) {
    return !ceni_fault(CENI_FAULT_IO) && pread(w->fd, to, size, at) == (ssize_t)size;
}

static bool put(const cen_ledger_watch *w, off_t at, uint64_t word) {
    return !ceni_fault(CENI_FAULT_IO) && pwrite(w->fd, &word, sizeof word, at) == sizeof word;
}

static cen_status begin(cen_ledger_watch *w, const char *path) {
    uint8_t magic[8] = {0};
    uint64_t failures = 0;
    path = ceni_ledger_short_name(path);
    if (w->fd < 0) {
        return ceni_fail(CEN_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    }
    if (!get(w, AT(magic), magic, sizeof magic) || !ceni_ledger_looks(magic, sizeof magic)) {
        return ceni_fail(CEN_ERR_FORMAT, "%s: not a ledger of cenote's", path);
    }
    if (!get(w, AT(failures), &failures, sizeof failures) || !put(w, AT(answered), failures) ||
        !put(w, AT(watcher), (uint64_t)getpid())) {
        return ceni_fail(CEN_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    }
    return CEN_OK;
}

cen_status cen_ledger_watch_open(const char *path, cen_ledger_watch **watch) {
    if (!path || !watch) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_watch_open: %s is NULL",
                         path ? "watch" : "path");
    }
    cen_ledger_watch *w = ceni_malloc(sizeof *w);
    if (!w) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_ledger_watch_open: no memory");
    }
    w->fd =
        ceni_fault(CENI_FAULT_IO) ? (errno = EIO, -1) : open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    cen_status status = begin(w, path);
    if (status) {
        if (w->fd >= 0) {
            close(w->fd);
        }
        ceni_free(w);
        return status;
    }
    *watch = w;
    return CEN_OK;
}

void cen_ledger_watch_close(cen_ledger_watch *w) {
    uint64_t watcher = 0;
    if (!w) {
        return;
    }
    if (get(w, AT(watcher), &watcher, sizeof watcher) && watcher == (uint64_t)getpid()) {
        (void)put(w, AT(watcher), 0);
    }
    close(w->fd);
    ceni_free(w);
}

void cen_ledger_watch_counts(cen_ledger_watch *w, uint32_t *steps, uint64_t *failures) {
    *steps = 0;
    *failures = 0;
    (void)get(w, AT(steps), steps, sizeof *steps);
    (void)get(w, AT(failures), failures, sizeof *failures);
}

void cen_ledger_watch_answer(cen_ledger_watch *w) {
    uint64_t failures;
    if (get(w, AT(failures), &failures, sizeof failures)) {
        (void)put(w, AT(answered), failures);
    }
}
