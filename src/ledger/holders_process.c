/* A process as /proc shows it. /proc may hide the processes of others (hidepid), so that what has
 * no folder there is gone only if no signal could reach it either. */
#include "ledger/holders.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "ledger/nvml.h"

bool ceni_process_lives(int pid) {
    return pid > 0 && (!kill(pid, 0) || errno != ESRCH);
}

/* Reads up to size - 1 bytes of /proc/PID/NAME and ends them with NUL. -1: it cannot be read. */
static ssize_t read_file(int pid, const char *name, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = ceni_fault(CENI_FAULT_IO) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t got = read(fd, text, size - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got;
}

void ceni_process_program(int pid, char *program, size_t size) {
    char text[4096];
    ssize_t got = read_file(pid, "cmdline", text, sizeof text);
    while (got > 0 && !text[got - 1]) {
        got--;
    }
    *program = '\0';
    if (got > 0) {
        /* A title that a program gave itself ("sshd: anna@pts/0") is no path. */
        const char *base = strchr(text, ' ') ? text : ceni_base_name(text);
        for (char *at = text; at < text + got; at++) {
            *at = *at ? *at : ' ';
        }
        ceni_join_lines(text + (base - text));
        snprintf(program, size, "%s", base);
    } else if (read_file(pid, "comm", text, sizeof text) > 0) { /* a zombie, or of the kernel */
        text[strcspn(text, "\n")] = '\0';
        snprintf(program, size, "%s", text);
    } else {
        ceni_nvml_program(pid, program, size);
    }
    ceni_clean_text(program);
}

void ceni_process_user(int pid, char *user, size_t size) {
    char path[32], room[4096];
    struct stat st;
    struct passwd entry, *found = NULL;
    *user = '\0';
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (ceni_fault(CENI_FAULT_IO) || stat(path, &st)) {
        return;
    }
    if (!getpwuid_r(st.st_uid, &entry, room, sizeof room, &found) && found) {
        snprintf(user, size, "%s", entry.pw_name);
    } else {
        snprintf(user, size, "%ju", (uintmax_t)st.st_uid);
    }
    ceni_clean_text(user);
}
