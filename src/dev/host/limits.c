/* Failures of the kernel, told apart: a limit that can be raised is named with its value and how.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "dev/host/host_int.h"

enum { SPARE_MAPS = 8 };

static long count_lines(const char *path) {
    FILE *file = fopen(path, "re");
    long lines = 0;
    for (int c; file && (c = getc(file)) != EOF;) {
        lines += c == '\n';
    }
    if (file) {
        fclose(file);
    }
    return lines;
}

/* 0: it cannot be read. */
static long read_number(const char *path) {
    FILE *file = fopen(path, "re");
    char text[32] = "";
    if (file) {
        if (!fgets(text, sizeof text, file)) {
            *text = '\0';
        }
        fclose(file);
    }
    return strtol(text, NULL, 10);
}

/* CEN_ERR_LIMIT, logged, if the process has about as many memory maps as it may. */
static cen_status maps_exhausted(const char *what) {
    long most = read_number("/proc/sys/vm/max_map_count");
    long now = count_lines("/proc/self/maps");
    if (!most || now < most - 2 * SPARE_MAPS) {
        return CEN_OK;
    }
    return ceni_fail(CEN_ERR_LIMIT,
                     "%s: %ld memory maps of at most %ld; raise it with sysctl -w "
                     "vm.max_map_count=%ld",
                     what, now, most, most * 4);
}

cen_status ceni_host_map_failed(const char *what, int error) {
    if (error != ENOMEM) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: %s", what, strerror(error));
    }
    if (maps_exhausted(what)) {
        return CEN_ERR_LIMIT;
    }
    struct rlimit limit;
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY) {
        return ceni_fail(CEN_ERR_LIMIT,
                         "%s: address space is limited to %llu bytes; raise it with ulimit -v",
                         what, (unsigned long long)limit.rlim_cur);
    }
    return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: %s", what, strerror(error));
}

cen_status ceni_host_fd_failed(const char *what, int error) {
    struct rlimit limit;
    if (error == EMFILE && !getrlimit(RLIMIT_NOFILE, &limit)) {
        return ceni_fail(
            CEN_ERR_LIMIT,
            "%s: %llu open files of at most %llu; raise it with ulimit -n (up to %llu)", what,
            (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_cur,
            (unsigned long long)limit.rlim_max);
    }
    if (error == EFBIG && !getrlimit(RLIMIT_FSIZE, &limit)) {
        return ceni_fail(CEN_ERR_LIMIT,
                         "%s: files, also in memory, have at most %llu bytes; raise it with "
                         "ulimit -f",
                         what, (unsigned long long)limit.rlim_cur);
    }
    if (error == ENFILE) {
        return ceni_fail(CEN_ERR_LIMIT,
                         "%s: the system's open files are at their most, %ld; raise it with sysctl "
                         "-w fs.file-max",
                         what, read_number("/proc/sys/fs/file-max"));
    }
    return ceni_fail(error == ENOMEM ? CEN_ERR_HOST_MEMORY : CEN_ERR_IO, "%s: %s", what,
                     strerror(error));
}

cen_status ceni_host_thread_failed(int error) {
    if (maps_exhausted("a stream's thread")) {
        return CEN_ERR_LIMIT;
    }
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NPROC, &limit);
    return ceni_fail(CEN_ERR_LIMIT,
                     "a stream's thread: %s; at most %llu processes and threads; raise it with "
                     "ulimit -u",
                     strerror(error), (unsigned long long)limit.rlim_cur);
}

void ceni_host_spare_maps(host_space *space) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (space->spare) {
        return;
    }
    char *map = mmap(NULL, SPARE_MAPS * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return;
    }
    bool apart = true; /* neighbours of unlike access are a map each */
    for (size_t i = 1; i < SPARE_MAPS; i += 2) {
        apart = apart && !mprotect(map + i * page, page, PROT_READ);
    }
    if (apart) {
        space->spare = map;
    } else {
        munmap(map, SPARE_MAPS * page);
    }
}

bool ceni_host_spend_maps(host_space *space) {
    bool had = space->spare != NULL;
    if (had) {
        munmap(space->spare, SPARE_MAPS * (size_t)sysconf(_SC_PAGESIZE));
        space->spare = NULL;
    }
    return had;
}
