/* A ledger as its writer sees it, and as it is read: what is added is there, what is removed is
 * not, through all sizes that its tables grow to. */
#include "tests/unit/ledger/ledger_tests.h"

#include <sys/stat.h>
#include <sys/wait.h>

/* What the file says of it while it is written. */
static void read_while_open(const char *path, uint32_t stack) {
    cen_ledger_view *view = NULL;
    size_t count;
    OK(cen_ledger_read(path, &view, NULL));
    const cen_ledger_info *info = cen_ledger_view_info(view);
    assert_int_equal(info->pid, getpid());
    assert_string_equal(info->writer, "test");
    assert_non_null(strstr(info->program, "test_ledger"));
    assert_false(info->closed);
    assert_int_equal(info->adds, 2);
    const cen_ledger_device_info *device = cen_ledger_view_device(view, 1);
    assert_true(device->known);
    assert_string_equal(device->name, "NVIDIA H200");
    assert_int_equal(device->bytes[CEN_LEDGER_MEMORY], 4 * MIB);
    assert_int_equal(device->count[CEN_LEDGER_MEMORY], 1);
    assert_int_equal(device->peak_bytes, 4 * MIB);
    const cen_ledger_entry *entries = cen_ledger_view_entries(view, &count);
    assert_int_equal(count, 2);
    assert_int_equal(entries[1].bytes, 4 * MIB);
    const cen_frame *frames = cen_ledger_view_stack(view, stack, &count);
    assert_int_equal(count, 1);
    assert_string_equal(frames[0].function, "load");
    assert_int_equal(frames[0].line, 12);
    assert_null(cen_ledger_view_device(view, CEN_LEDGER_DEVICES));
    cen_ledger_view_free(view);
}

static void test_basic(void **state) {
    const char *path = fresh_path();
    cen_ledger *ledger = NULL;
    cen_ledger_options options = {.size = sizeof options, .writer = "test"};
    OK(cen_ledger_create(path, &options, &ledger));
    OK(cen_ledger_device(ledger, 1, "GPU-1", "NVIDIA H200", 141 * 1024 * MIB));
    uint32_t stack = stack_named(ledger, "load");
    assert_int_equal(stack, stack_named(ledger, "load"));
    assert_int_not_equal(stack, stack_named(ledger, "store"));
    cen_ledger_entry entry = an_entry(CEN_LEDGER_MEMORY, 0x1000, 3 * MIB, stack), found;
    entry.device = 1;
    entry.stream = 7;
    OK(cen_ledger_add(ledger, &entry));
    entry = an_entry(CEN_LEDGER_HOST, 0x1000, 5 * MIB, CEN_LEDGER_NO_STACK);
    OK(cen_ledger_add(ledger, &entry));
    assert_int_equal(cen_ledger_held_bytes(ledger, 1), 3 * MIB);
    assert_int_equal(cen_ledger_held_bytes(ledger, 0), 0);
    OK(cen_ledger_find(ledger, CEN_LEDGER_MEMORY, 0x1000, &found));
    assert_int_equal(found.device, 1);
    assert_int_equal(found.stream, 7);
    assert_true(found.time_us > 0);
    assert_int_equal(cen_ledger_find(ledger, CEN_LEDGER_PAGE, 0x1000, &found), CEN_ERR_NOT_FOUND);
    OK(cen_ledger_resize(ledger, CEN_LEDGER_MEMORY, 1, 0x1000, 4 * MIB));
    read_while_open(path, stack);

    OK(cen_ledger_remove(ledger, CEN_LEDGER_MEMORY, 1, 0x1000, &found));
    assert_int_equal(found.bytes, 4 * MIB);
    assert_int_equal(cen_ledger_remove(ledger, CEN_LEDGER_MEMORY, 1, 0x1000, NULL),
                     CEN_ERR_NOT_FOUND);
    assert_int_equal(cen_ledger_held_bytes(ledger, 1), 0);
    cen_ledger_close(ledger);
    cen_ledger_view *view = NULL;
    size_t count;
    OK(cen_ledger_read(path, &view, NULL));
    assert_true(cen_ledger_view_info(view)->closed);
    (void)cen_ledger_view_entries(view, &count);
    assert_int_equal(count, 1);
    cen_ledger_view_free(view);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    unlink(path);
}

/* Measured kinds: what came free is taken off. */
static void test_less(void **state) {
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    OK(cen_ledger_create(NULL, NULL, &ledger));
    cen_ledger_entry entry = an_entry(CEN_LEDGER_CONTEXT, 1, 500 * MIB, CEN_LEDGER_NO_STACK);
    OK(cen_ledger_add(ledger, &entry));
    entry = an_entry(CEN_LEDGER_CONTEXT, 2, 100 * MIB, CEN_LEDGER_NO_STACK);
    entry.less = true;
    OK(cen_ledger_add(ledger, &entry));
    assert_int_equal(cen_ledger_held_bytes(ledger, 0), 400 * MIB);
    OK(cen_ledger_look(ledger, &view));
    assert_int_equal(cen_ledger_view_device(view, 0)->bytes[CEN_LEDGER_CONTEXT], 400 * MIB);
    assert_int_equal(cen_ledger_view_device(view, 0)->peak_bytes, 500 * MIB);
    cen_ledger_view_free(view);
    OK(cen_ledger_remove(ledger, CEN_LEDGER_CONTEXT, 0, 2, NULL));
    assert_int_equal(cen_ledger_held_bytes(ledger, 0), 500 * MIB);
    cen_ledger_close(ledger);
}

static void test_replace(void **state) {
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    OK(cen_ledger_create(NULL, NULL, &ledger));
    cen_ledger_entry entry = an_entry(CEN_LEDGER_MEMORY, 64, 2 * MIB, stack_named(ledger, "a"));
    OK(cen_ledger_add(ledger, &entry));
    entry.bytes = MIB;
    assert_int_equal(cen_ledger_add(ledger, &entry), CEN_ERR_BUSY);
    entry.device = 1; /* the same key on another device is another entry */
    OK(cen_ledger_add(ledger, &entry));
    assert_int_equal(cen_ledger_held_bytes(ledger, 0), MIB);
    OK(cen_ledger_look(ledger, &view));
    assert_int_equal(cen_ledger_view_info(view)->adds, 3);
    assert_int_equal(cen_ledger_view_info(view)->removes, 1);
    cen_ledger_view_free(view);
    cen_ledger_close(ledger);
}

/* No sequence that a hash would spread evenly: so that keys meet in the table. */
static uint64_t scattered(uint64_t i) {
    i = (i ^ i >> 3 ^ 77) * 0xbf58476d1ce4e5b9u;
    i = (i ^ i >> 27) * 0x94d049bb133111ebu;
    return i ^ i >> 31;
}

/* All tables through several sizes. */
static void test_growth(void **state) {
    enum { COUNT = 20000 };
    const char *path = fresh_path();
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    size_t count;
    OK(cen_ledger_create(path, NULL, &ledger));
    for (uint64_t i = 0; i < COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "function %d", (int)(i % 5000));
        cen_ledger_entry entry =
            an_entry(CEN_LEDGER_MEMORY, scattered(i), i, stack_named(ledger, name));
        entry.device = (uint16_t)(i % 3);
        OK(cen_ledger_add(ledger, &entry));
    }
    for (uint64_t i = 0; i < COUNT; i += 2) {
        OK(cen_ledger_remove(ledger, CEN_LEDGER_MEMORY, i % 3, scattered(i), NULL));
    }
    OK(cen_ledger_read(path, &view, NULL));
    const cen_ledger_entry *entries = cen_ledger_view_entries(view, &count);
    assert_int_equal(count, COUNT / 2);
    for (size_t i = 0; i < count; i++) {
        size_t frames;
        char name[32];
        assert_int_equal(entries[i].key, scattered(entries[i].bytes));
        assert_int_equal(entries[i].bytes % 2, 1);
        snprintf(name, sizeof name, "function %d", (int)(entries[i].bytes % 5000));
        const cen_frame *frame = cen_ledger_view_stack(view, entries[i].stack, &frames);
        assert_string_equal(frame->function, name);
    }
    cen_ledger_view_free(view);
    for (uint64_t i = 1; i < COUNT; i += 2) {
        OK(cen_ledger_remove(ledger, CEN_LEDGER_MEMORY, i % 3, scattered(i), NULL));
    }
    assert_int_equal(cen_ledger_held_bytes(ledger, 0), 0);
    cen_ledger_close(ledger);
    unlink(path);
}

static __attribute__((noinline)) uint32_t here(cen_ledger *ledger) {
    volatile uint32_t stack = cen_ledger_stack_here(ledger, 0); /* its frame stays until then */
    return stack;
}

static size_t two_frames(void *arg, cen_frame *frames, size_t capacity) {
    assert_true(capacity >= 2);
    frames[0] = (cen_frame){.file = "model.py", .function = "forward", .line = 3};
    frames[1] = (cen_frame){.file = "train.py", .function = arg, .line = 4};
    return 2;
}

static void test_native_stack(void **state) {
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    cen_ledger_options options = {.size = sizeof options,
                                  .stacks = CEN_TRACE_NATIVE_STACKS,
                                  .stack_fn = two_frames,
                                  .stack_arg = "main"};
    size_t count;
    uint32_t stack[3];
    OK(cen_ledger_create(NULL, &options, &ledger));
    for (int i = 0; i < 3; i++) {
        stack[i] = here(ledger);
    }
    assert_int_not_equal(stack[0], CEN_LEDGER_NO_STACK);
    assert_int_equal(stack[0], stack[2]);
    assert_int_not_equal(here(ledger), stack[0]); /* called from another place */
    OK(cen_ledger_look(ledger, &view));
    const cen_frame *frames = cen_ledger_view_stack(view, stack[0], &count);
    assert_true(count > 3);
    assert_string_equal(frames[0].function, "forward");
    assert_string_equal(frames[1].function, "main");
#ifdef CENI_HAVE_LIBDW
    assert_string_equal(frames[2].function, "here");
    assert_string_equal(frames[3].function, "test_native_stack");
#endif
    cen_ledger_view_free(view);
    cen_ledger_close(ledger);
}

static void test_invalid(void **state) {
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    cen_ledger_options options = {.size = sizeof options, .stacks = 7};
    assert_int_equal(cen_ledger_create(NULL, &options, &ledger), CEN_ERR_INVALID);
    assert_int_equal(cen_ledger_create(NULL, NULL, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_ledger_create("/nowhere/at/all", NULL, &ledger), CEN_ERR_IO);
    assert_int_equal(cen_ledger_create("/dev/null", NULL, &ledger), CEN_ERR_IO);
    OK(cen_ledger_create(NULL, NULL, &ledger));
    cen_ledger_entry entry = an_entry(CEN_LEDGER_KINDS, 1, 1, 0);
    assert_int_equal(cen_ledger_add(ledger, &entry), CEN_ERR_INVALID);
    entry = an_entry(CEN_LEDGER_MEMORY, 1, 1, 0);
    entry.device = CEN_LEDGER_DEVICES;
    assert_int_equal(cen_ledger_add(ledger, &entry), CEN_ERR_INVALID);
    assert_int_equal(cen_ledger_add(ledger, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_ledger_device(ledger, CEN_LEDGER_DEVICES, "", "", 0), CEN_ERR_INVALID);
    entry = an_entry(CEN_LEDGER_MEMORY, 1, 1, 12345); /* no stack of this ledger's */
    OK(cen_ledger_add(ledger, &entry));
    OK(cen_ledger_find(ledger, CEN_LEDGER_MEMORY, 1, &entry));
    assert_int_equal(entry.stack, CEN_LEDGER_NO_STACK);
    cen_ledger_close(ledger);
    cen_ledger_close(NULL);
    cen_read_error error;
    assert_int_equal(cen_ledger_read("/nowhere/at/all", &view, &error), CEN_ERR_IO);
    assert_non_null(strstr(error.message, "/nowhere/at/all"));
}

/* A child has its parent's ledger, but writes nothing into it. */
static void test_fork(void **state) {
    const char *path = fresh_path();
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    OK(cen_ledger_create(path, NULL, &ledger));
    cen_ledger_entry entry = an_entry(CEN_LEDGER_MEMORY, 1, MIB, CEN_LEDGER_NO_STACK);
    OK(cen_ledger_add(ledger, &entry));
    pid_t child = fork();
    if (!child) {
        entry.key = 2;
        bool good = cen_ledger_add(ledger, &entry) == CEN_ERR_FORKED &&
                    cen_ledger_remove(ledger, CEN_LEDGER_MEMORY, 0, 1, NULL) == CEN_ERR_FORKED &&
                    cen_ledger_failed(ledger, 0, 1, 0, 0, 0, 0) == CEN_ERR_FORKED &&
                    stack_named(ledger, "child") == CEN_LEDGER_NO_STACK;
        cen_ledger_step(ledger);
        cen_ledger_close(ledger);
        cen_ledger *own = NULL;
        good = good && !cen_ledger_create(NULL, NULL, &own) && !cen_ledger_add(own, &entry);
        _exit(good ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    OK(cen_ledger_read(path, &view, NULL));
    assert_int_equal(cen_ledger_view_info(view)->adds, 1);
    assert_int_equal(cen_ledger_view_info(view)->steps, 0);
    assert_false(cen_ledger_view_info(view)->closed);
    cen_ledger_view_free(view);
    cen_ledger_close(ledger);
    unlink(path);
}

static void test_kinds(void **state) {
    assert_string_equal(cen_ledger_kind_text(CEN_LEDGER_POOL), "driver pool");
    assert_string_equal(cen_ledger_kind_text(CEN_LEDGER_KINDS), "?");
}

static void test_dir(void **state) {
    char path[256], folder[64] = "/tmp/cenote-dir-XXXXXX", inside[80];
    assert_non_null(mkdtemp(folder));
    snprintf(inside, sizeof inside, "%s/cenote", folder);
    unsetenv("CENOTE_LEDGER_DIR");
    setenv("XDG_RUNTIME_DIR", folder, 1);
    OK(cen_ledger_dir(path, sizeof path));
    assert_string_equal(path, inside);
    struct stat made;
    assert_int_equal(stat(path, &made), 0);
    assert_int_equal(made.st_mode & 0777, 0700);
    assert_int_equal(cen_ledger_dir(path, 4), CEN_ERR_INVALID);
    setenv("CENOTE_LEDGER_DIR", "/proc/none/such", 1);
    assert_int_equal(cen_ledger_dir(path, sizeof path), CEN_ERR_IO);
    setenv("CENOTE_LEDGER_DIR", "/proc/self/status", 1);
    assert_int_equal(cen_ledger_dir(path, sizeof path), CEN_ERR_IO);
    setenv("CENOTE_LEDGER_DIR", folder, 1);
    OK(cen_ledger_dir(path, sizeof path));
    assert_string_equal(path, folder);
    unsetenv("CENOTE_LEDGER_DIR");
    rmdir(inside);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_basic),        cmocka_unit_test(test_less),
        cmocka_unit_test(test_replace),      cmocka_unit_test(test_growth),
        cmocka_unit_test(test_native_stack), cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_fork),         cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
