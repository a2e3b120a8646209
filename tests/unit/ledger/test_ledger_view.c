/* What a ledger is taken to mean: growth, owners, failures and their watchers, snapshots that
 * explain takes, and what was never freed. */
#include "tests/unit/ledger/ledger_tests.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "cenote/explain.h"
#include "ledger/format.h"

/* ---- growth ---- */

static void test_growing(void **state) {
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    cen_ledger_growth growing[4];
    OK(cen_ledger_create(NULL, NULL, &ledger));
    uint32_t leak = stack_named(ledger, "leak"), steady = stack_named(ledger, "steady");
    uint32_t slow = stack_named(ledger, "slow"), shrinks = stack_named(ledger, "shrinks");
    cen_ledger_entry entry = an_entry(CEN_LEDGER_BLOCK, 1, 100 * MIB, steady);
    OK(cen_ledger_add(ledger, &entry));
    for (uint64_t step = 0; step < 50; step++) {
        entry = an_entry(CEN_LEDGER_BLOCK, 1000 + step, 2 * MIB, leak);
        OK(cen_ledger_add(ledger, &entry));
        entry = an_entry(CEN_LEDGER_BLOCK, 2000 + step, MIB, shrinks);
        OK(cen_ledger_add(ledger, &entry));
        if (step == 40) {
            OK(cen_ledger_remove(ledger, CEN_LEDGER_BLOCK, 0, 2000, NULL));
            OK(cen_ledger_remove(ledger, CEN_LEDGER_BLOCK, 0, 2001, NULL));
        }
        if (step >= 44) {
            entry = an_entry(CEN_LEDGER_MEMORY, 3000 + step, MIB / 2, slow);
            entry.device = 2;
            OK(cen_ledger_add(ledger, &entry));
        }
        cen_ledger_step(ledger);
    }
    OK(cen_ledger_look(ledger, &view));
    assert_int_equal(cen_ledger_view_growing(view, 0, growing, 4), 2);
    assert_int_equal(growing[0].stack, leak);
    assert_int_equal(growing[0].step_bytes, 2 * MIB);
    assert_int_equal(growing[0].live_bytes, 100 * MIB);
    assert_int_equal(growing[0].live_count, 50);
    assert_int_equal(growing[0].steps, 31);
    assert_int_equal(growing[1].stack, slow);
    assert_int_equal(growing[1].device, 2);
    assert_int_equal(growing[1].steps, 6);
    assert_int_equal(cen_ledger_view_growing(view, 7, growing, 4), 1);
    assert_int_equal(cen_ledger_view_growing(view, 1000, growing, 4), 1);
    assert_int_equal(cen_ledger_view_growing(view, 4, growing, 1), 1);
    assert_int_equal(growing[0].stack, leak);
    cen_ledger_view_free(view);
    cen_ledger_step(ledger); /* and then it held still */
    OK(cen_ledger_look(ledger, &view));
    assert_int_equal(cen_ledger_view_growing(view, 4, growing, 4), 0);
    cen_ledger_view_free(view);
    cen_ledger_close(ledger);
}

/* ---- owners ---- */

/* Makes the file's first module bear another path. */
static const char *owner_with_module(const char *path) {
    static char owner[64];
    const char *file_path = fresh_path();
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    cen_ledger_options options = {.size = sizeof options, .stacks = CEN_TRACE_NATIVE_STACKS};
    size_t count;
    OK(cen_ledger_create(file_path, &options, &ledger));
    (void)stack_named(ledger, path);
    cen_ledger_entry entry = an_entry(CEN_LEDGER_MEMORY, 1, 1, cen_ledger_stack_here(ledger, 0));
    OK(cen_ledger_add(ledger, &entry));
    cen_ledger_close(ledger);
    FILE *file = fopen(file_path, "r+b");
    ceni_ledger_head head;
    assert_int_equal(fread(&head, sizeof head, 1, file), 1);
    const ceni_ledger_region *modules = &head.region[CENI_LEDGER_MODULES];
    ceni_module_record record;
    fseek(file, (long)modules->place[modules->which].offset, SEEK_SET);
    assert_int_equal(fread(&record, sizeof record, 1, file), 1);
    record.path = 1; /* the stack's file is string 0, its function 1 */
    fseek(file, (long)modules->place[modules->which].offset, SEEK_SET);
    fwrite(&record, sizeof record, 1, file);
    fclose(file);
    OK(cen_ledger_read(file_path, &view, NULL));
    const cen_ledger_entry *entries = cen_ledger_view_entries(view, &count);
    snprintf(owner, sizeof owner, "%s", cen_ledger_view_owner(view, &entries[0]));
    cen_ledger_view_free(view);
    unlink(file_path);
    return owner;
}

static void test_owner(void **state) {
    assert_string_equal(owner_with_module("/usr/lib/libnccl.so.2"), "nccl");
    assert_string_equal(owner_with_module("/x/libcublasLt.so.12"), "cublas");
    assert_string_equal(owner_with_module("/x/torch/lib/libc10_cuda.so"), "torch");
    assert_string_equal(owner_with_module("/x/cupy_backends/cuda/api/runtime.cpython-311.so"),
                        "cupy");
    assert_string_equal(owner_with_module("/opt/libengine-2.so.1"), "engine-2");
    assert_string_equal(owner_with_module("/opt/server"), "server");
    assert_string_equal(owner_with_module("/x/_C.cpython-311-x86_64-linux-gnu.so"), "_C");

    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    OK(cen_ledger_create(NULL, NULL, &ledger));
    cen_frame frames[] = {{.file = "/lib/site-packages/numba/cuda/driver.py", .function = "alloc"}};
    cen_ledger_entry entry = an_entry(CEN_LEDGER_MEMORY, 1, 1, cen_ledger_stack(ledger, frames, 1));
    OK(cen_ledger_look(ledger, &view));
    assert_string_equal(cen_ledger_view_owner(view, &entry), "numba");
    entry.stack = CEN_LEDGER_NO_STACK;
    assert_string_equal(cen_ledger_view_owner(view, &entry), "unknown");
    entry.kind = CEN_LEDGER_CONTEXT;
    assert_string_equal(cen_ledger_view_owner(view, &entry), "context");
    cen_ledger_view_free(view);
    cen_ledger_close(ledger);
}

/* A module that is passed over is not the owner: its caller is. */
static void test_owner_own(void **state) {
    assert_string_equal(owner_with_module("/x/libcenote-run.so"), "cmocka");
    assert_string_equal(owner_with_module("/x/libcudart.so.12"), "cmocka");
}

/* ---- failures ---- */

static void test_failures(void **state) {
    const char *path = fresh_path();
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    size_t count;
    OK(cen_ledger_create(path, NULL, &ledger));
    assert_int_equal(cen_ledger_failed(ledger, CEN_LEDGER_DEVICES, 1, 1, 0, 0, 0), CEN_ERR_INVALID);
    uint32_t stack = stack_named(ledger, "ask");
    for (uint64_t i = 0; i < 100; i++) {
        OK(cen_ledger_failed(ledger, 1, i, i / 2, 3, stack, 1000000)); /* nobody watches */
    }
    OK(cen_ledger_read(path, &view, NULL));
    assert_int_equal(cen_ledger_view_info(view)->failures, 100);
    const cen_ledger_failure *failures = cen_ledger_view_failures(view, &count);
    assert_int_equal(count, 64);
    assert_int_equal(failures[0].bytes, 36);
    assert_int_equal(failures[63].bytes, 99);
    assert_int_equal(failures[63].free_bytes, 49);
    assert_int_equal(failures[63].stack, stack);
    cen_ledger_view_free(view);
    cen_ledger_close(ledger);
    unlink(path);
}

typedef struct answering {
    cen_ledger_watch *watch;
    uint64_t seen;
} answering;

static void *answer(void *arg) {
    answering *a = arg;
    uint32_t steps = 0;
    while (!a->seen) {
        cen_ledger_watch_counts(a->watch, &steps, &a->seen);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cen_ledger_watch_answer(a->watch);
    return NULL;
}

/* The writer waits until it is answered, which is long before its patience ends; a watcher that is
 * gone is not waited for. */
static void test_watch(void **state) {
    const char *path = fresh_path();
    cen_ledger *ledger = NULL;
    answering a = {0};
    pthread_t thread;
    uint32_t steps;
    uint64_t failures;
    OK(cen_ledger_create(path, NULL, &ledger));
    OK(cen_ledger_watch_open(path, &a.watch));
    cen_ledger_step(ledger);
    cen_ledger_watch_counts(a.watch, &steps, &failures);
    assert_int_equal(steps, 1);
    assert_int_equal(failures, 0);
    assert_int_equal(pthread_create(&thread, NULL, answer, &a), 0);
    OK(cen_ledger_failed(ledger, 0, 1, 0, 0, CEN_LEDGER_NO_STACK, 1000000));
    pthread_join(thread, NULL);
    assert_int_equal(a.seen, 1);
    OK(cen_ledger_failed(ledger, 0, 1, 0, 0, CEN_LEDGER_NO_STACK, 1)); /* not answered */
    cen_ledger_watch_close(a.watch);
    OK(cen_ledger_failed(ledger, 0, 1, 0, 0, CEN_LEDGER_NO_STACK, 1000000));
    pid_t child = fork();
    if (!child) {
        _exit(cen_ledger_watch_open(path, &a.watch) ? 1 : 0); /* without closing it */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    OK(cen_ledger_failed(ledger, 0, 1, 0, 0, CEN_LEDGER_NO_STACK, 1000000));
    cen_ledger_close(ledger);
    cen_ledger_watch_close(NULL);
    assert_int_equal(cen_ledger_watch_open("/nowhere/at/all", &a.watch), CEN_ERR_IO);
    FILE *file = fopen(path, "wb");
    fprintf(file, "no ledger");
    fclose(file);
    assert_int_equal(cen_ledger_watch_open(path, &a.watch), CEN_ERR_FORMAT);
    unlink(path);
}

/* ---- snapshots ---- */

static cen_verdict verdict_of(const cen_snapshot *snapshot, char **text) {
    cen_explanation *explanation = NULL;
    OK(cen_explain(snapshot, NULL, &explanation));
    cen_verdict verdict = cen_explanation_verdict(explanation);
    OK(cen_explain_text(explanation, text));
    cen_explanation_free(explanation);
    return verdict;
}

/* The verdict on a ledger, which its file gives as well as its view. */
static cen_verdict verdict(cen_ledger *ledger, const char *path, char **text) {
    cen_ledger_view *view = NULL;
    cen_snapshot *snapshot = NULL;
    char *again = NULL;
    OK(cen_ledger_look(ledger, &view));
    OK(cen_ledger_view_snapshot(view, &snapshot));
    cen_verdict found = verdict_of(snapshot, text);
    cen_snapshot_free(snapshot);
    cen_ledger_view_free(view);
    OK(cen_snapshot_read(path, &snapshot, NULL));
    assert_int_equal(verdict_of(snapshot, &again), found);
    assert_string_equal(again, *text);
    cen_snapshot_free(snapshot);
    free(again);
    return found;
}

static int64_t at_us;

static void add_at(cen_ledger *ledger, cen_ledger_kind kind, uint64_t key, uint64_t bytes,
                   uint32_t stack) {
    cen_ledger_entry entry = an_entry(kind, key, bytes, stack);
    entry.time_us = at_us += 10;
    OK(cen_ledger_add(ledger, &entry));
}

/* Steps of ten blocks each, of which one stays where `leaks`; then a request that fails. */
static void train(cen_ledger *ledger, bool leaks) {
    uint32_t weights = stack_named(ledger, "build"), leak = stack_named(ledger, "keep");
    uint32_t work = stack_named(ledger, "forward");
    uint64_t at = 0x7f0000000000;
    add_at(ledger, CEN_LEDGER_MEMORY, at, 1000 * MIB, weights);
    for (uint64_t step = 0; step < 30; step++) {
        for (uint64_t i = 0; i < 10; i++) {
            add_at(ledger, CEN_LEDGER_MEMORY, at + (2000 + i * 10) * MIB, 10 * MIB, work);
        }
        if (leaks) {
            add_at(ledger, CEN_LEDGER_MEMORY, at + (4000 + step * 20) * MIB, 20 * MIB, leak);
        }
        for (uint64_t i = 0; i < 10; i++) {
            OK(cen_ledger_remove(ledger, CEN_LEDGER_MEMORY, 0, at + (2000 + i * 10) * MIB, NULL));
        }
        cen_ledger_step(ledger);
    }
    OK(cen_ledger_failed(ledger, 0, 100 * MIB, 10 * MIB, 0, work, 0));
}

static void test_explain(void **state) {
    for (int leaks = 0; leaks < 2; leaks++) {
        const char *path = fresh_path();
        cen_ledger *ledger = NULL;
        char *text = NULL;
        OK(cen_ledger_create(path, NULL, &ledger));
        at_us = 1700000000000000;
        train(ledger, leaks);
        assert_int_equal(verdict(ledger, path, &text),
                         leaks ? CEN_VERDICT_LEAK : CEN_VERDICT_CAPACITY);
        assert_true(!leaks || strstr(text, "keep"));
        free(text);
        cen_ledger_close(ledger);
        unlink(path);
    }
}

/* What fell out of the ring is there from the start; a block's segment may be another entry. */
static void test_snapshot(void **state) {
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    cen_snapshot *snapshot = NULL;
    cen_ledger_options options = {.size = sizeof options, .events = 16, .writer = "torch"};
    OK(cen_ledger_create(NULL, &options, &ledger));
    OK(cen_ledger_device(ledger, 0, "GPU-0", "NVIDIA H200", 1));
    uint32_t stack = stack_named(ledger, "a");
    add_at(ledger, CEN_LEDGER_SEGMENT, 0x100000000, 20 * MIB, stack);
    add_at(ledger, CEN_LEDGER_BLOCK, 0x100000000, 2 * MIB, stack);
    add_at(ledger, CEN_LEDGER_PAGE, 1, 20 * MIB, stack);
    for (uint64_t i = 0; i < 20; i++) {
        add_at(ledger, CEN_LEDGER_BLOCK, 0x100000000 + 4 * MIB, MIB, stack);
        OK(cen_ledger_remove(ledger, CEN_LEDGER_BLOCK, 0, 0x100000000 + 4 * MIB, NULL));
    }
    add_at(ledger, CEN_LEDGER_BLOCK, 0x100000000 + 6 * MIB, 3 * MIB, stack);
    OK(cen_ledger_look(ledger, &view));
    OK(cen_ledger_view_snapshot(view, &snapshot));
    assert_int_equal(cen_snapshot_device_count(snapshot), 1);
    const cen_snapshot_device *device = cen_snapshot_get_device(snapshot, 0);
    assert_int_equal(device->segment_count, 1);
    assert_int_equal(device->segments[0].size, 20 * MIB);
    assert_int_equal(device->initial_count, 2); /* and one that is freed first */
    assert_int_equal(device->initial[0].size, 2 * MIB);
    assert_int_equal(device->initial[1].size, MIB);
    assert_int_equal(device->initial_reserved, 20 * MIB);
    uint64_t live = 0;
    for (size_t i = 0; i < device->block_count; i++) {
        live += device->blocks[i].state == CEN_BLOCK_ACTIVE ? device->blocks[i].size : 0;
    }
    assert_int_equal(live, 5 * MIB);
    assert_string_equal(cen_snapshot_setting(snapshot, "device 0"), "NVIDIA H200");
    assert_null(cen_snapshot_setting(snapshot, "cenote"));
    cen_snapshot_free(snapshot);
    cen_ledger_view_free(view);
    cen_ledger_close(ledger);
}

/* What the process holds without an address is held all the same, and is named. */
static void test_without_address(void **state) {
    const char *path = fresh_path();
    cen_ledger *ledger = NULL;
    char *text = NULL;
    cen_ledger_options options = {.size = sizeof options, .events = 16, .writer = "run"};
    OK(cen_ledger_create(path, &options, &ledger));
    uint32_t asked = stack_named(ledger, "communicate"), work = stack_named(ledger, "forward");
    add_at(ledger, CEN_LEDGER_CONTEXT, 0x1000, 400 * MIB, work);
    add_at(ledger, CEN_LEDGER_MODULE, 0x2000, 60 * MIB, work);
    add_at(ledger, CEN_LEDGER_MODULE, 0x3000, 40 * MIB, work);
    add_at(ledger, CEN_LEDGER_PAGE, 1, 200 * MIB, asked);
    add_at(ledger, CEN_LEDGER_POOL, 0x4000, 64 * MIB, work);
    for (uint64_t i = 0; i < 20; i++) { /* the above falls out of the ring */
        add_at(ledger, CEN_LEDGER_ARRAY, 0x5000, MIB, asked);
        OK(cen_ledger_remove(ledger, CEN_LEDGER_ARRAY, 0, 0x5000, NULL));
    }
    OK(cen_ledger_resize(ledger, CEN_LEDGER_POOL, 0, 0x4000, 100 * MIB));
    OK(cen_ledger_remove(ledger, CEN_LEDGER_MODULE, 0, 0x3000, NULL));
    add_at(ledger, CEN_LEDGER_MEMORY, 0x7f0000000000, 24 * MIB, work);
    OK(cen_ledger_failed(ledger, 0, 200 * MIB, 0, 0, work, 0));
    assert_int_equal(verdict(ledger, path, &text), CEN_VERDICT_CAPACITY);
    assert_non_null(strstr(text, "784.00 MiB live + 200.00 = 984.00 needed, 784.00 allowed"));
    assert_non_null(strstr(text, "(most is from context)"));
    assert_non_null(strstr(text, "400.00 41%  context\n"));
    assert_non_null(strstr(text, "100.00 10%  driver pool\n"));
    assert_non_null(strstr(text, "60.00  6%  module\n"));
    assert_non_null(strstr(text, "200.00 20%  communicate, "));
    free(text);
    cen_ledger_close(ledger);
    unlink(path);
}

/* What pages have beyond the blocks in them is held, and no block's. */
static void test_spare(void **state) {
    const char *path = fresh_path();
    cen_ledger *ledger = NULL;
    char *text = NULL;
    cen_ledger_options options = {.size = sizeof options, .events = 16, .writer = "run"};
    OK(cen_ledger_create(path, &options, &ledger));
    uint32_t work = stack_named(ledger, "forward");
    add_at(ledger, CEN_LEDGER_PAGE, 1, 300 * MIB, work);
    add_at(ledger, CEN_LEDGER_MEMORY, 0x7e0000000000, 100 * MIB, work);
    for (uint64_t i = 0; i < 20; i++) {
        add_at(ledger, CEN_LEDGER_BLOCK, 0x7f0000000000, MIB, work);
        OK(cen_ledger_remove(ledger, CEN_LEDGER_BLOCK, 0, 0x7f0000000000, NULL));
    }
    add_at(ledger, CEN_LEDGER_BLOCK, 0x7f0000000000, 120 * MIB, work);
    OK(cen_ledger_failed(ledger, 0, 200 * MIB, 100 * MIB, 0, work, 0));
    assert_int_equal(verdict(ledger, path, &text), CEN_VERDICT_FRAGMENTATION);
    assert_non_null(strstr(text, "220.00 MiB live + 200.00 = 420.00 needed, fits 500.00"));
    assert_non_null(strstr(text, "400.00 held + 200.00 = 600.00"));
    assert_non_null(strstr(text, "largest 180.00"));
    free(text);
    cen_ledger_close(ledger);
    unlink(path);
}

/* ---- earlier moments ---- */

static uint64_t bytes_then(cen_ledger_view *view, cen_ledger_moment moment, size_t *count) {
    const cen_ledger_entry *entries = NULL;
    uint64_t bytes = 0;
    OK(cen_ledger_view_then(view, moment, 0, &entries, count));
    for (size_t i = 0; i < *count; i++) {
        bytes += entries[i].bytes;
    }
    return bytes;
}

static void test_then(void **state) {
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    const cen_ledger_entry *entries = NULL;
    size_t count = 0;
    cen_ledger_options options = {.size = sizeof options, .events = 16};
    OK(cen_ledger_create(NULL, &options, &ledger));
    add_at(ledger, CEN_LEDGER_CONTEXT, 9, 16 * MIB, CEN_LEDGER_NO_STACK);
    add_at(ledger, CEN_LEDGER_POOL, 8, 2 * MIB, CEN_LEDGER_NO_STACK);
    add_at(ledger, CEN_LEDGER_MEMORY, 1, MIB, CEN_LEDGER_NO_STACK);
    OK(cen_ledger_failed(ledger, 0, MIB, 0, 0, CEN_LEDGER_NO_STACK, 0));
    OK(cen_ledger_remove(ledger, CEN_LEDGER_MEMORY, 0, 1, NULL));
    OK(cen_ledger_resize(ledger, CEN_LEDGER_POOL, 0, 8, 64 * MIB));
    add_at(ledger, CEN_LEDGER_MEMORY, 1, 5 * MIB, CEN_LEDGER_NO_STACK);
    OK(cen_ledger_resize(ledger, CEN_LEDGER_POOL, 0, 8, 4 * MIB));
    add_at(ledger, CEN_LEDGER_MEMORY, 2, 7 * MIB, CEN_LEDGER_NO_STACK);
    OK(cen_ledger_look(ledger, &view));
    assert_int_equal(bytes_then(view, CEN_LEDGER_FAILURE, &count), 19 * MIB);
    assert_int_equal(count, 3);
    assert_int_equal(bytes_then(view, CEN_LEDGER_PEAK, &count), 85 * MIB);
    assert_int_equal(count, 3);
    assert_int_equal(cen_ledger_view_then(view, CEN_LEDGER_PEAK, 1, &entries, &count),
                     CEN_ERR_NOT_FOUND);
    assert_int_equal(cen_ledger_view_then(view, CEN_LEDGER_PEAK, 64, &entries, &count),
                     CEN_ERR_INVALID);
    cen_ledger_view_free(view);
    for (int i = 0; i < 10; i++) { /* the ring reaches back to neither any more */
        add_at(ledger, CEN_LEDGER_MEMORY, 3, MIB, CEN_LEDGER_NO_STACK);
        OK(cen_ledger_remove(ledger, CEN_LEDGER_MEMORY, 0, 3, NULL));
    }
    OK(cen_ledger_look(ledger, &view));
    assert_int_equal(cen_ledger_view_then(view, CEN_LEDGER_FAILURE, 0, &entries, &count),
                     CEN_ERR_NOT_FOUND);
    assert_int_equal(cen_ledger_view_then(view, CEN_LEDGER_PEAK, 0, &entries, &count),
                     CEN_ERR_NOT_FOUND);
    cen_ledger_view_free(view);
    cen_ledger_close(ledger);
}

/* ---- leaks ---- */

static void check_columns(const char *text) {
    size_t column = 0;
    for (; *text; text++) {
        column = *text == '\n' ? 0 : column + 1;
        assert_true(column <= 80);
    }
}

static void test_leaks(void **state) {
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    char *text = NULL, *json = NULL, longer[400];
    uint64_t leaked = 99;
    cen_frame deep[20];
    OK(cen_ledger_create(NULL, NULL, &ledger));
    OK(cen_ledger_look(ledger, &view));
    OK(cen_ledger_leaks_text(view, 0, &text, &leaked));
    assert_int_equal(leaked, 0);
    assert_memory_equal(text, "NOTHING LEFT", 12);
    cen_ledger_view_free(view);
    free(text);

    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    for (size_t i = 0; i < 20; i++) {
        deep[i] = (cen_frame){.file = "/deep/train.py", .function = i ? "walk" : longer, .line = 7};
    }
    uint32_t stack = cen_ledger_stack(ledger, deep, 20);
    cen_ledger_step(ledger);
    at_us = 1000;
    add_at(ledger, CEN_LEDGER_MEMORY, 1, 3 * MIB, stack);
    add_at(ledger, CEN_LEDGER_MEMORY, 2, 3 * MIB, stack);
    add_at(ledger, CEN_LEDGER_HOST, 1, MIB, CEN_LEDGER_NO_STACK);
    add_at(ledger, CEN_LEDGER_ASYNC, 1, MIB / 2, stack_named(ledger, "small"));
    add_at(ledger, CEN_LEDGER_CONTEXT, 1, 500 * MIB, stack);
    add_at(ledger, CEN_LEDGER_POOL, 1, 500 * MIB, stack);
    OK(cen_ledger_look(ledger, &view));
    OK(cen_ledger_leaks_text(view, 0, &text, &leaked));
    assert_int_equal(leaked, 4);
    assert_memory_equal(text, "NEVER FREED: 7.50 MiB in 4 allocations, from 3 places\n", 54);
    assert_non_null(strstr(text, "1. 6.00 MiB in 2 (memory), device 0, of unknown\n"));
    assert_non_null(strstr(text, "after 1 of 1 steps\n"));
    assert_non_null(strstr(text, "      walk (train.py:7)\n"));
    assert_non_null(strstr(text, "xx... (train.py:7)\n"));
    assert_non_null(strstr(text, "and 12 more\n"));
    assert_non_null(strstr(text, "(no stack)\n"));
    assert_non_null(strstr(text, "did not come to its end"));
    check_columns(text);
    free(text);
    OK(cen_ledger_leaks_text(view, 1, &text, NULL));
    assert_non_null(strstr(text, "\n and 1.50 MiB from 2 more places\n"));
    free(text);
    OK(cen_ledger_leaks_json(view, &json, &leaked));
    assert_int_equal(leaked, 4);
    assert_non_null(strstr(json, "\"leaked_bytes\": 7864320"));
    assert_non_null(strstr(json, "\"leaked_count\": 4"));
    assert_non_null(strstr(json, "\"kind\": \"pinned host\""));
    free(json);
    assert_int_equal(cen_ledger_leaks_text(view, 0, NULL, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_ledger_leaks_json(NULL, &json, NULL), CEN_ERR_INVALID);
    cen_ledger_view_free(view);
    cen_ledger_close(ledger);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing),   cmocka_unit_test(test_owner),
        cmocka_unit_test(test_owner_own), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_watch),     cmocka_unit_test(test_explain),
        cmocka_unit_test(test_snapshot),  cmocka_unit_test(test_without_address),
        cmocka_unit_test(test_spare),     cmocka_unit_test(test_then),
        cmocka_unit_test(test_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
