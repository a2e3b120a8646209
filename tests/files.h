/* How many files and threads a process has, for tests that look for one too many. */
#ifndef TESTS_FILES_H
#define TESTS_FILES_H

#include <dirent.h>
#include <stdio.h>
#include <sys/types.h>

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

#endif
