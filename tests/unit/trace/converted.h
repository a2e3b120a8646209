/* What the tests of conversions share: a folder of their own, and the recordings that there are. */
#ifndef TEST_CONVERTED_H
#define TEST_CONVERTED_H

#include "tests/folder.h"

#include <glob.h>

#include "cenote/cenote.h"

static inline cen_snapshot *read_file(const char *path) {
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    if (cen_snapshot_read(path, &snapshot, &error)) {
        fail_msg("%s", error.message);
    }
    return snapshot;
}

static inline char *bytes_of(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *data = NULL;
    *size = 0;
    for (size_t got = 1; got;) {
        data = realloc(data, *size + (1 << 20) + 1);
        assert_non_null(data);
        got = fread(data + *size, 1, 1 << 20, file);
        *size += got;
    }
    data[*size] = 0;
    fclose(file);
    return data;
}

/* Calls fn for each recording of a pattern that can be read. */
static inline size_t for_each_in(const char *pattern, void (*fn)(const cen_snapshot *snapshot)) {
    size_t read = 0;
    char path[256];
    glob_t found;
    snprintf(path, sizeof path, TEST_DATA "%s", pattern);
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        cen_snapshot *snapshot = NULL;
        if (!cen_snapshot_read(found.gl_pathv[i], &snapshot, NULL)) {
            read++;
            fn(snapshot);
            cen_snapshot_free(snapshot);
        }
    }
    globfree(&found);
    return read;
}

static inline size_t for_each(void (*fn)(const cen_snapshot *snapshot)) {
    return for_each_in("/traces/*.gz", fn) + for_each_in("/snapshots/*", fn) +
           for_each_in("/logs/rmm*", fn) + for_each_in("/../fuzz/corpus/snapshot/*", fn);
}

#endif
