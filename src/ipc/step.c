#include "ipc/step.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

ceni_fault_arm ceni_ipc_steps;
static atomic_int report_fd = -1;

void ceni_ipc_step_arm(int64_t n, int report) {
    atomic_store(&report_fd, report);
    ceni_fault_set(&ceni_ipc_steps, n, false);
}

void ceni_ipc_step_die(const char *what) {
    int fd = atomic_load(&report_fd);
    if (fd >= 0) { /* one that cannot be told of is died at all the same */
        ssize_t wrote = write(fd, what, strlen(what));
        wrote = wrote < 0 ? wrote : write(fd, "\n", 1);
        (void)wrote;
    }
    raise(SIGKILL);
}
