/* The ledgers in this user's folder: found, read, and removed where nobody has a use for them.
 *
 * A ledger's name says whose it is, what is in it says whether that process is the one which has
 * the number now. The folders run-* are those of `cenote run`, which removes its own ledgers when
 * it is done with them: while it lives they are left alone. */
#include "ledger/holders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "ledger/file.h"

typedef struct scan {
    ceni_holder_ledgers *files;
    const int *listed; /* processes that NVML lists */
    size_t listed_count;
    bool keep; /* the folder is in use: remove nothing */
} scan;

/* The number at the start of a text; 0: none. *end: what follows. */
static int number_at(const char *text, const char **end) {
    char *after = NULL;
    long number = *text >= '1' && *text <= '9' ? strtol(text, &after, 10) : 0;
    *end = after ? after : text;
    return number > 0 && number <= INT_MAX ? (int)number : 0;
}

/* Whose ledger a file of that name is; 0: it is none. */
static int pid_of(const char *name) {
    const char *rest;
    int pid = number_at(name, &rest);
    size_t length = strlen(rest);
    return *rest == '-' && length > 7 && !strcmp(rest + length - 7, ".ledger") ? pid : 0;
}

static bool is_listed(const scan *s, int pid) {
    for (size_t i = 0; i < s->listed_count; i++) {
        if (s->listed[i] == pid) {
            return true;
        }
    }
    return false;
}

/* Removes the ledger of a process that is gone. Another user's stays, as does one that is locked:
 * its writer lives, where its number is another. */
static void remove_stale(const scan *s, const char *path) {
    struct stat st;
    if (s->keep || ceni_fault(CENI_FAULT_IO) || lstat(path, &st) || !S_ISREG(st.st_mode) ||
        st.st_uid != geteuid()) {
        return;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return;
    }
    if (!flock(fd, LOCK_EX | LOCK_NB) && !unlink(path)) {
        ceni_log(CEN_LOG_DEBUG, "%s: removed, its process is gone", path);
    }
    close(fd);
}

/* Reads one. A file that is no ledger, or not yet whole, is passed over: it was said why. */
static cen_status read_ledger(const char *path, cen_ledger_view **view) {
    cen_ledger_view *read = NULL;
    cen_status status = cen_ledger_read(path, &read, NULL);
    if (status == CEN_ERR_HOST_MEMORY) {
        return status;
    }
    *view = status ? NULL : read;
    return CEN_OK;
}

static cen_status consider(scan *s, const char *path, int pid) {
    bool lives = ceni_process_lives(pid);
    if (!lives && !is_listed(s, pid)) {
        remove_stale(s, path);
        return CEN_OK;
    }
    cen_ledger_view *view = NULL;
    cen_status status = read_ledger(path, &view);
    if (status || !view) {
        return status;
    }
    const cen_ledger_info *info = cen_ledger_view_info(view);
    uint64_t start = lives ? ceni_ledger_start_ticks(pid) : 0;
    if (info->pid != pid || (start && start != info->start_ticks)) { /* the number is used again */
        remove_stale(s, path);
        cen_ledger_view_free(view);
        return CEN_OK;
    }
    ceni_holder_ledgers *files = s->files;
    if (ceni_grow(&files->at, &files->capacity, files->count + 1, sizeof *files->at)) {
        cen_ledger_view_free(view);
        return CEN_ERR_HOST_MEMORY;
    }
    files->at[files->count++] =
        (ceni_holder_ledger){.pid = pid, .physical = !strcmp(info->writer, "run"), .view = view};
    return CEN_OK;
}

static cen_status scan_folder(scan *s, const char *folder, bool top);

/* A run holds a lock on its folder, which tells that it lives where its number is another. */
static bool is_locked(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool locked = flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

/* A folder of `cenote run`, whose number is in the name. Removed once it is empty. */
static cen_status scan_run(scan *s, const char *path, const char *name) {
    const char *rest;
    int owner = number_at(name, &rest);
    scan inner = *s;
    inner.keep = !owner || ceni_process_lives(owner) || is_locked(path);
    cen_status status = scan_folder(&inner, path, false);
    if (!inner.keep) {
        rmdir(path); /* with anything left in it, it stays */
    }
    return status;
}

static cen_status scan_folder(scan *s, const char *folder, bool top) {
    DIR *dir = ceni_fault(CENI_FAULT_IO) ? NULL : opendir(folder);
    if (!dir) {
        ceni_log(CEN_LOG_WARN, "%s: cannot be opened: %s", folder, strerror(errno));
        return CEN_OK;
    }
    cen_status status = CEN_OK;
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        int pid = pid_of(entry->d_name);
        if (length >= (int)sizeof path) {
            continue;
        }
        if (pid) {
            status = consider(s, path, pid);
        } else if (top && !strncmp(entry->d_name, "run-", 4)) {
            status = scan_run(s, path, entry->d_name + 4);
        }
    }
    closedir(dir);
    return status;
}

/* By process, the physical one first, then the one that was started last. */
static int by_process(const void *a, const void *b) {
    const ceni_holder_ledger *x = a, *y = b;
    if (x->pid != y->pid) {
        return x->pid < y->pid ? -1 : 1;
    }
    uint64_t s = cen_ledger_view_info(x->view)->start_ticks;
    uint64_t t = cen_ledger_view_info(y->view)->start_ticks;
    if (s != t) {
        return s > t ? -1 : 1;
    }
    return (int)y->physical - (int)x->physical;
}

/* Of a process that is gone, older ones of the same number may be there, too: the latest counts. */
static void drop_earlier(ceni_holder_ledgers *files) {
    size_t kept = 0;
    for (size_t i = 0; i < files->count; i++) {
        const ceni_holder_ledger *file = &files->at[i];
        const ceni_holder_ledger *last = kept ? &files->at[kept - 1] : NULL;
        if (last && last->pid == file->pid &&
            cen_ledger_view_info(last->view)->start_ticks !=
                cen_ledger_view_info(file->view)->start_ticks) {
            cen_ledger_view_free(file->view);
        } else {
            files->at[kept++] = *file;
        }
    }
    files->count = kept;
}

cen_status ceni_holder_ledgers_read(ceni_holder_ledgers *files, const int *listed, size_t count) {
    char folder[PATH_MAX];
    scan s = {.files = files, .listed = listed, .listed_count = count};
    if (cen_ledger_dir(folder, sizeof folder)) {
        return CEN_OK; /* it was said why; without it there are no ledgers of this user's */
    }
    cen_status status = scan_folder(&s, folder, true);
    if (files->count) {
        qsort(files->at, files->count, sizeof *files->at, by_process);
        drop_earlier(files);
    }
    return status;
}

void ceni_holder_ledgers_free(ceni_holder_ledgers *files) {
    for (size_t i = 0; i < files->count; i++) {
        cen_ledger_view_free(files->at[i].view);
    }
    ceni_free(files->at);
    *files = (ceni_holder_ledgers){0};
}
