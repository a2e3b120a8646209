/* How many files a process has open, for tests that look for one too many. */
#ifndef TESTS_FILES_H
#define TESTS_FILES_H

#include <dirent.h>
#include <stdio.h>
#include <sys/types.h>

/* Of this process that includes the folder that they are read from. Of one that is gone: 0. */
static inline unsigned files_of(pid_t pid) {
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) {
        count++;
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

#endif
