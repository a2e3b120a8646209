/* The writer of tensor files: the layout to the byte, and that a file appears whole or not at all.
 */
#include "tensor_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fault.h"

static const uint64_t two_three[] = {2, 3}, five[] = {5}, none[] = {0, 4};
static const cen_tensor_spec specs[] = {{"zeta", "BF16", 1, five},  {"b", "F32", 2, two_three},
                                        {"a", "F32", 2, two_three}, {"byte", "I8", 1, five},
                                        {"", "F64", 2, none},       {"one", "I64", 0, NULL}};
enum { SPECS = sizeof specs / sizeof *specs };
static const size_t sizes[SPECS] = {10, 24, 24, 5, 0, 8};
static const cen_tensor_note notes[] = {{"b", "2"}, {"a", "quote \" and \\ and \n"}};

static cen_status fill(cen_tensor_writer *writer) {
    uint8_t bytes[32];
    for (size_t i = 0; i < SPECS; i++) {
        for (size_t j = 0; j < sizes[i]; j++) {
            bytes[j] = (uint8_t)(16 * i + j);
        }
        size_t half = sizes[i] / 2;
        cen_status status = cen_tensor_writer_put(writer, i, bytes, half);
        if (!status) {
            status = cen_tensor_writer_put(writer, i, bytes + half, sizes[i] - half);
        }
        if (status) {
            return status;
        }
    }
    return CEN_OK;
}

static cen_status write_file(const char *path) {
    cen_tensor_writer *writer = NULL;
    cen_status status = cen_tensor_writer_open(path, specs, SPECS, notes, 2, &writer);
    assert_int_equal(status != CEN_OK, writer == NULL);
    if (status) {
        return status;
    }
    status = fill(writer);
    if (status) {
        cen_tensor_writer_drop(writer);
        return status;
    }
    return cen_tensor_writer_finish(writer);
}

static void the_layout_is_safetensors_own(void **state) {
    static const char header[] =
        "{\"__metadata__\":{\"a\":\"quote \\\" and \\\\ and \\n\",\"b\":\"2\"},"
        "\"one\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"\":{\"dtype\":\"F64\",\"shape\":[0,4],\"data_offsets\":[8,8]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[32,56]},"
        "\"zeta\":{\"dtype\":\"BF16\",\"shape\":[5],\"data_offsets\":[56,66]},"
        "\"byte\":{\"dtype\":\"I8\",\"shape\":[5],\"data_offsets\":[66,71]}}";
    assert_int_equal(write_file(in_folder("w")), CEN_OK);
    size_t size, padded = (sizeof header - 1 + 7) / 8 * 8;
    char *bytes = get_file("w", &size);
    assert_int_equal(size, 8 + padded + 71);
    assert_true((uint8_t)bytes[0] + 256u * (uint8_t)bytes[1] == padded && !bytes[2]);
    assert_memory_equal(bytes + 8, header, sizeof header - 1);
    for (size_t i = sizeof header - 1; i < padded; i++) {
        assert_int_equal(bytes[8 + i], ' ');
    }
    const uint8_t *data = (const uint8_t *)bytes + 8 + padded;
    assert_true(data[0] == 80 && data[8] == 32 && data[32] == 16 && data[56] == 0 &&
                data[66] == 48 && data[70] == 52);
    free(bytes);
    assert_int_equal(files(true), 1);
}

static void what_is_written_is_read_back(void **state) {
    assert_int_equal(write_file(in_folder("w")), CEN_OK);
    cen_tensors *t = open_tensors("w");
    assert_int_equal(cen_tensors_count(t), SPECS);
    for (size_t i = 0; i < SPECS; i++) {
        const cen_tensor *found = cen_tensors_find(t, specs[i].name);
        uint8_t bytes[32];
        assert_non_null(found);
        assert_string_equal(found->type, specs[i].type);
        assert_true(found->rank == specs[i].rank && found->bytes == sizes[i]);
        assert_int_equal(cen_tensors_read(t, found, 0, found->bytes, bytes), CEN_OK);
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(bytes[j], 16 * i + j);
        }
    }
    assert_string_equal(cen_tensors_find_note(t, "a"), notes[1].value);
    cen_tensors_close(t);
    cen_tensor_writer *writer = NULL;
    assert_int_equal(cen_tensor_writer_open(in_folder("w"), NULL, 0, NULL, 0, &writer), CEN_OK);
    assert_int_equal(cen_tensor_writer_bytes(writer), 16);
    assert_int_equal(cen_tensor_writer_finish(writer), CEN_OK);
    t = open_tensors("w");
    assert_int_equal(cen_tensors_count(t), 0);
    cen_tensors_close(t);
    files(true);
}

static void refuse_spec(cen_tensor_spec one, const char *words) {
    cen_tensor_writer *writer = NULL;
    cen_tensor_spec both[] = {{"x", "U8", 1, five}, one};
    assert_int_equal(cen_tensor_writer_open(in_folder("w"), both, 2, NULL, 0, &writer),
                     CEN_ERR_INVALID);
    assert_null(writer);
    const char *said = cen_log_last_error();
    if (!strstr(said, words)) {
        fail_msg("it says \"%s\", not \"%s\"", said, words);
    }
    assert_int_equal(files(false), 0);
}

static void wrong_calls_are_refused(void **state) {
    static const uint64_t wrap[] = {UINT64_MAX / 8 + 2, 8}, huge[] = {INT64_MAX}, three[] = {3};
    cen_tensor_writer *w = NULL;
    refuse_spec((cen_tensor_spec){"x", "U8", 1, five}, "tensor 'x' is to be written twice");
    refuse_spec((cen_tensor_spec){NULL, "U8", 1, five}, "/w: specs[1].name is NULL");
    refuse_spec((cen_tensor_spec){"y", NULL, 1, five}, "type is NULL");
    refuse_spec((cen_tensor_spec){"y", "U8", 1, NULL}, "shape is NULL");
    refuse_spec((cen_tensor_spec){"y", "u8", 1, five}, "'u8' is no type of tensor files");
    refuse_spec((cen_tensor_spec){"y", "U8", 2, wrap}, "too many bytes");
    refuse_spec((cen_tensor_spec){"y", "F4", 1, three}, "a last byte that is not full");
    refuse_spec((cen_tensor_spec){"y", "U8", 1, huge}, "too many bytes");
    refuse_spec((cen_tensor_spec){"__metadata__", "U8", 1, five}, "cannot be named");
    refuse_spec((cen_tensor_spec){"\xff", "U8", 1, five}, "/w: a tensor's name '");
    const cen_tensor_note twice[] = {{"k", "1"}, {"k", "2"}}, null = {"k", NULL};
    const char *path = in_folder("w");
    assert_int_equal(cen_tensor_writer_open(path, specs, 1, twice, 2, &w), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_open(path, specs, 1, &null, 1, &w), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_open(NULL, specs, 1, NULL, 0, &w), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_open(path, NULL, 1, NULL, 0, &w), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_open(path, specs, 1, NULL, 1, &w), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_open(path, specs, 1, NULL, 0, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_open(test_folder, specs, 1, NULL, 0, &w), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_open("/dev/full", specs, 1, NULL, 0, &w), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_open(in_folder("no/w"), specs, 1, NULL, 0, &w), CEN_ERR_IO);
    assert_null(w);
    assert_int_equal(cen_tensor_writer_put(NULL, 0, "", 1), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_finish(NULL), CEN_ERR_INVALID);
    cen_tensor_writer_drop(NULL);
    assert_int_equal(files(false), 0);
}

static void an_incomplete_file_gets_no_name(void **state) {
    cen_tensor_writer *w = NULL;
    assert_int_equal(cen_tensor_writer_open(in_folder("w"), specs, SPECS, NULL, 0, &w), CEN_OK);
    assert_int_equal(cen_tensor_writer_put(w, 0, "0123456789", 10), CEN_OK);
    assert_int_equal(cen_tensor_writer_put(w, 0, "0", 1), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_put(w, SPECS, "0", 1), CEN_ERR_INVALID);
    assert_int_equal(cen_tensor_writer_put(w, 1, "0", UINT64_MAX), CEN_ERR_INVALID);
    assert_int_equal(access(in_folder("w"), F_OK), -1);
    assert_int_equal(cen_tensor_writer_finish(w), CEN_ERR_INVALID);
    assert_non_null(strstr(cen_log_last_error(), "tensor 1 has 0 of its 24 bytes"));
    assert_int_equal(files(false), 0);
    assert_int_equal(cen_tensor_writer_open(in_folder("w"), specs, SPECS, NULL, 0, &w), CEN_OK);
    assert_int_equal(fill(w), CEN_OK);
    cen_tensor_writer_drop(w);
    assert_int_equal(files(false), 0);
}

/* What each call says that fails once, in the order of the calls. */
static void note_stage(size_t *stage) {
    static const char *const stages[] = {"cannot be made", "writing failed",
                                         "it cannot be put on the disk", "cannot be given its name",
                                         "may not be on the disk yet"};
    const char *said = cen_log_last_error();
    while (*stage < sizeof stages / sizeof *stages && !strstr(said, stages[*stage])) {
        ++*stage;
        if (*stage < sizeof stages / sizeof *stages) {
            assert_non_null(strstr(said, stages[*stage])); /* none is left out */
        }
    }
    assert_true(*stage < sizeof stages / sizeof *stages);
}

/* Each call of a kind fails once: the file is what it was, and nothing else is there. Only when the
 * folder cannot be written in the end is the new file there already, and whole. A file without a
 * name, the first call, is done without. */
static void each_failure_leaves_the_file_alone(void **state) {
    static const cen_status expected[] = {
        [CENI_FAULT_HOST_MEMORY] = CEN_ERR_HOST_MEMORY, [CENI_FAULT_IO] = CEN_ERR_IO};
    for (int point = 0; point < CENI_FAULT_POINTS; point++) {
        int64_t n = 1, named = 0;
        size_t stage = 0;
        for (bool passed = false; !passed; n++) {
            put_file("w", "before", 6);
            ceni_fault_set(&ceni_fault_points[point], n, false);
            cen_status status = write_file(in_folder("w"));
            passed = ceni_fault_points[point].left > 0;
            ceni_fault_set(&ceni_fault_points[point], 0, false);
            bool spared = point == CENI_FAULT_IO && n == 1;
            assert_int_equal(status, passed || spared ? CEN_OK : expected[point]);
            if (status && point == CENI_FAULT_IO) {
                note_stage(&stage);
            }
            size_t size;
            char *bytes = get_file("w", &size);
            bool replaced = size != 6;
            free(bytes);
            assert_int_equal(files(false), 1);
            named += replaced && status;
            assert_true(replaced || status);
            if (replaced) {
                cen_tensors_close(open_tensors("w"));
            }
        }
        assert_true(n > 6 && named == (point == CENI_FAULT_IO ? 2 : 1));
        assert_int_equal(stage, point == CENI_FAULT_IO ? 4 : 0);
    }
    files(true);
}

/* A file at its limit, as on a full disk: no signal ends the program, and nothing is left. */
static void a_full_file_leaves_nothing(void **state) {
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t limit = 0; limit < 1024; limit += 100) {
        small = (struct rlimit){limit, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        cen_status status = write_file(in_folder("full"));
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(files(true), status ? 0 : 1);
        assert_true(!status || (status == CEN_ERR_IO &&
                                strstr(cen_log_last_error(), "writing failed: File too large")));
        assert_true(limit ? true : status != CEN_OK);
    }
}

/* A process that is killed amid writing; without_names: its file system has files without. */
static pid_t killed_writer(bool without_names) {
    pid_t child = fork();
    if (!child) {
        cen_tensor_writer *w = NULL;
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], without_names ? 0 : 1, false);
        if (!cen_tensor_writer_open(in_folder("w"), specs, SPECS, NULL, 0, &w) && !fill(w)) {
            kill(getpid(), SIGKILL);
        }
        _exit(1);
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    return child;
}

/* Who is killed leaves what was there, and at most one file of a name that tells. */
static void a_killed_writer_leaves_what_was_there(void **state) {
    int unnamed = open(test_folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    for (int without = 0; without < 1 + (unnamed >= 0); without++) {
        char name[64];
        size_t size;
        put_file("w", "before", 6);
        pid_t child = killed_writer(without);
        snprintf(name, sizeof name, ".cenote-%d-0.part", (int)child);
        assert_int_equal(access(in_folder(name), F_OK), without ? -1 : 0);
        char *bytes = get_file("w", &size);
        assert_string_equal(bytes, "before");
        free(bytes);
        assert_int_equal(files(true), without ? 1 : 2);
    }
    close(unnamed);
}

static mode_t mode_of(const char *path) {
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode;
}

static void files_keep_their_permissions_and_readers(void **state) {
    mode_t before = umask(027);
    assert_int_equal(write_file(in_folder("real")), CEN_OK);
    umask(before);
    assert_int_equal(mode_of(in_folder("real")) & 07777, 0640);
    assert_int_equal(chmod(in_folder("real"), 0600), 0);
    assert_int_equal(symlink("real", in_folder("link")), 0);
    cen_tensors *t = open_tensors("real");
    assert_int_equal(write_file(in_folder("link")), CEN_OK);
    assert_true(S_ISLNK(mode_of(in_folder("link"))));
    assert_int_equal(mode_of(in_folder("real")) & 07777, 0600);
    uint8_t byte;
    assert_int_equal(cen_tensors_read(t, cen_tensors_find(t, "b"), 1, 1, &byte), CEN_OK);
    assert_int_equal(byte, 17);
    assert_false(cen_tensors_reads(t, in_folder("real")));
    cen_tensors_close(t);
    files(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layout_is_safetensors_own),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(an_incomplete_file_gets_no_name),
        cmocka_unit_test(each_failure_leaves_the_file_alone),
        cmocka_unit_test(a_full_file_leaves_nothing),
        cmocka_unit_test(a_killed_writer_leaves_what_was_there),
        cmocka_unit_test(files_keep_their_permissions_and_readers),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
