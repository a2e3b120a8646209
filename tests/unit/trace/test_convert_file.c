/* A file that is written appears whole or not at all, with the permissions that it should have. */
#include "converted.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fault.h"

static mode_t mode_of(const char *path) {
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode;
}

static void files_get_their_permissions(void **state) {
    cen_snapshot *snapshot = read_file(TEST_DATA "/snapshots/sparse.pickle");
    char real[512], link[512];
    snprintf(real, sizeof real, "%s", in_folder("real.pickle"));
    snprintf(link, sizeof link, "%s", in_folder("link.pickle"));
    files(true);
    mode_t before = umask(027);
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, real, NULL), CEN_OK);
    umask(before);
    assert_int_equal(mode_of(real) & 07777, 0640);

    /* One that is replaced keeps them, and a link stays a link. */
    assert_int_equal(chmod(real, 0600), 0);
    assert_int_equal(symlink("real.pickle", link), 0);
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_CHROME, link, NULL), CEN_OK);
    assert_true(S_ISLNK(mode_of(link)));
    assert_int_equal(mode_of(real) & 07777, 0600);
    size_t size;
    char *text = bytes_of(real, &size);
    assert_int_equal(text[0], '{');
    free(text);
    assert_int_equal(files(true), 2);

    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, "/dev/null", NULL), CEN_OK);
    assert_true(S_ISCHR(mode_of("/dev/null")));
    cen_snapshot_free(snapshot);
}

static void calls_are_checked(void **state) {
    cen_snapshot *snapshot = read_file(TEST_DATA "/snapshots/sparse.pickle");
    cen_read_error error;
    const char *path = in_folder("no/such/a.pickle");
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, path, &error), CEN_ERR_IO);
    assert_non_null(strstr(error.message, "a.pickle: cannot be made: No such file or directory"));
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, test_folder, &error),
                     CEN_ERR_IO);
    assert_non_null(strstr(error.message, "cannot be written: Is a directory"));
    assert_int_equal(cen_snapshot_write(NULL, CEN_FORMAT_TORCH, "a", &error), CEN_ERR_INVALID);
    assert_string_equal(error.message, "snapshot is NULL");
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, NULL, &error), CEN_ERR_INVALID);
    assert_int_equal(cen_snapshot_write(snapshot, (cen_format)9, "a", NULL), CEN_ERR_INVALID);
    assert_int_equal(files(false), 0);
    cen_snapshot_free(snapshot);
}

/* Each call of a kind fails once: the file is what it was, and nothing else is there. */
static void fail_each(const cen_snapshot *snapshot, cen_format format, const char *name,
                      enum ceni_fault_point point, cen_status expected) {
    for (int64_t n = 1;; n++) {
        FILE *file = fopen(in_folder(name), "w");
        assert_non_null(file);
        fputs("before", file);
        fclose(file);
        cen_read_error error = {.message = ""};
        ceni_fault_set(&ceni_fault_points[point], n, false);
        cen_status status = cen_snapshot_write(snapshot, format, in_folder(name), &error);
        bool passed = ceni_fault_points[point].left > 0;
        ceni_fault_set(&ceni_fault_points[point], 0, false);
        if (passed) {
            assert_int_equal(status, CEN_OK);
            assert_true(n > 2);
            break;
        }
        assert_int_equal(status, expected);
        assert_non_null(strstr(error.message, name));
        size_t size;
        char *text = bytes_of(in_folder(name), &size);
        assert_string_equal(text, "before");
        free(text);
        assert_int_equal(files(false), 1);
    }
    assert_int_equal(files(true), 1);
}

static void each_failure_leaves_the_file_alone(void **state) {
    cen_snapshot *snapshot = read_file(TEST_DATA "/traces/graphs-oom.pickle.gz");
    static const struct {
        cen_format format;
        const char *name;
    } forms[] = {{CEN_FORMAT_TORCH, "f.pickle"},    {CEN_FORMAT_TORCH, "f.pickle.gz"},
                 {CEN_FORMAT_TRACE, "f.cenotrace"}, {CEN_FORMAT_TRACE, "f.cenotrace.gz"},
                 {CEN_FORMAT_CHROME, "f.json"},     {CEN_FORMAT_CHROME, "f.json.gz"}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        fail_each(snapshot, forms[i].format, forms[i].name, CENI_FAULT_IO, CEN_ERR_IO);
        fail_each(snapshot, forms[i].format, forms[i].name, CENI_FAULT_HOST_MEMORY,
                  CEN_ERR_HOST_MEMORY);
    }
    cen_snapshot_free(snapshot);
}

/* The signal for a file at its limit, which would end the program, does not reach it. */
static void a_full_file_ends_no_program(void **state) {
    cen_snapshot *snapshot = read_file(TEST_DATA "/traces/graphs-oom.pickle.gz");
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){4096, before.rlim_max};
    for (cen_format format = CEN_FORMAT_TORCH; format <= CEN_FORMAT_CHROME; format++) {
        cen_read_error error = {.message = ""};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        cen_status status = cen_snapshot_write(snapshot, format, in_folder("full"), &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, CEN_ERR_IO);
        assert_non_null(strstr(error.message, "writing failed: File too large"));
        assert_int_equal(files(false), 0);
    }
    cen_snapshot_free(snapshot);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_get_their_permissions),
        cmocka_unit_test(calls_are_checked),
        cmocka_unit_test(each_failure_leaves_the_file_alone),
        cmocka_unit_test(a_full_file_ends_no_program),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
