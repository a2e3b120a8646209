/* A folder of a test's own, and the files in it. */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char test_folder[64];

/* The path of a file in it; good for the next three calls. */
static inline const char *in_folder(const char *name) {
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder, name);
    return path;
}

/* In memory, if there is such a place: on a disk the writer waits for each of many files. */
static inline int make_folder(void **state) {
    const char *where = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(test_folder, sizeof test_folder, "%s/cenote-test-XXXXXX", where);
    return mkdtemp(test_folder) ? 0 : -1;
}

/* How many files there are; they are removed if `clear`. */
static inline size_t files(bool clear) {
    size_t count = 0;
    DIR *dir = opendir(test_folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            count++;
            if (clear) {
                unlink(in_folder(entry->d_name));
            }
        }
    }
    closedir(dir);
    return count;
}

static inline int drop_folder(void **state) {
    files(true);
    return rmdir(test_folder);
}

#endif
