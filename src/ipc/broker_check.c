/* Descriptors that clients send: only what a page, a directory or an event can be is kept. Nothing
 * is asked that a file system of the client's could leave unanswered. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "ipc/broker_int.h"

static bool is_memfd(int fd, const struct statx *st, int seals, const char **why) {
    int has = fcntl(fd, F_GET_SEALS);
    if (!S_ISREG(st->stx_mode) || has < 0) {
        *why = "a memfd belongs here";
        return false;
    }
    if ((has & seals) != seals) {
        *why = "it is not sealed as it has to be";
        return false;
    }
    return true;
}

static bool has_size(const struct statx *st, uint64_t bytes, const char **why) {
    *why = "its size is another";
    return st->stx_size == bytes;
}

atomic_bool ceni_broker_files_stand_in;

bool ceni_broker_check_fd(void *arg, int fd, enum ceni_state_fd kind, uint64_t bytes,
                          const char **why) {
    struct statx st;
    if (ceni_fault(CENI_FAULT_IO) ||
        statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_SIZE, &st)) {
        *why = "it cannot be looked at";
        return false;
    }
    switch (kind) {
    case CENI_FD_HOST_PAGE:
        if (!is_memfd(fd, &st, F_SEAL_SHRINK, why) || !has_size(&st, bytes, why)) {
            return false;
        }
        /* Who gets it for reading must not open it anew for writing, through /proc. The owner and
         * root can; a broker of another user has to take the mode as it is. */
        (void)!fchmod(fd, S_IRUSR | S_IWUSR);
        return true;
    case CENI_FD_DEVICE_PAGE:
        *why = "a device's memory belongs here";
        return S_ISCHR(st.stx_mode) || atomic_load(&ceni_broker_files_stand_in);
    case CENI_FD_DIRECTORY:
        return is_memfd(fd, &st, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW, why) &&
               has_size(&st, bytes, why);
    case CENI_FD_EVENT:
        return is_memfd(fd, &st, F_SEAL_SHRINK | F_SEAL_GROW, why);
    }
    *why = "it is of no known kind";
    return false;
}

int ceni_broker_read_only(void *arg, int fd) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return ceni_fault(CENI_FAULT_IO) ? -1 : ceni_fd_move(open(path, O_RDONLY | O_CLOEXEC));
}
