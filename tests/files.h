/* How many files and threads a process has, for tests that look for one too many. */
#ifndef TESTS_FILES_H
#define TESTS_FILES_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

static inline unsigned entries_of(pid_t pid, const char *what) {
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) {
        count++;
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

/* Of this process that includes the folder that they are read from. Of one that is gone: 0. */
static inline unsigned files_of(pid_t pid) {
    return entries_of(pid, "fd");
}

static inline unsigned threads_of(pid_t pid) {
    return entries_of(pid, "task") - 2; /* the folder and the one above it */
}

/* Whether the process has so many threads at most, soon: one that has done its work is there for a
 * moment more. The thread sanitizer has one of its own, which begins with the first other one. */
static inline bool threads_stay_within(pid_t pid, unsigned most) {
#if defined(__SANITIZE_THREAD__)
    most++;
#endif
    for (int i = 0; i < 5000 && threads_of(pid) > most; i++) {
        usleep(1000);
    }
    return threads_of(pid) <= most;
}

#endif
