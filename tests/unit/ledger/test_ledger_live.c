/* A ledger while others write it, and after its writer was killed: what is read is whole. */
#include "tests/unit/ledger/ledger_tests.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "ledger/format.h"

enum { THREADS = 8, ROUNDS = 3000 };

/* Takes and frees, so that something is always live; `forever`: until it is killed. */
static void churn(cen_ledger *ledger, uint64_t base, bool forever) {
    char name[32];
    snprintf(name, sizeof name, "thread %d", (int)base);
    uint32_t stack = stack_named(ledger, name);
    for (uint64_t i = 0; forever || i < ROUNDS; i++) {
        cen_ledger_entry entry = an_entry(CEN_LEDGER_MEMORY, base << 40 | i, 100, stack);
        assert_int_equal(cen_ledger_add(ledger, &entry), CEN_OK);
        if (i >= 500) {
            OK(cen_ledger_remove(ledger, CEN_LEDGER_MEMORY, 0, base << 40 | (i - 500), NULL));
        }
        if (i % 64 == 0) {
            cen_ledger_step(ledger);
        }
        if (i % 1000 == 999) {
            snprintf(name, sizeof name, "thread %d-%d", (int)base, (int)(i / 1000 % 400));
            stack = stack_named(ledger, name);
        }
    }
}

/* What must hold of any whole copy. */
static void check_view(cen_ledger_view *view) {
    size_t count, frames;
    const cen_ledger_info *info = cen_ledger_view_info(view);
    const cen_ledger_device_info *device = cen_ledger_view_device(view, 0);
    const cen_ledger_entry *entries = cen_ledger_view_entries(view, &count);
    assert_int_equal(info->adds - info->removes, count);
    assert_int_equal(device->bytes[CEN_LEDGER_MEMORY], 100 * count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(entries[i].bytes, 100);
        assert_int_not_equal(entries[i].stack, CEN_LEDGER_NO_STACK);
        assert_true(i == 0 || entries[i - 1].key < entries[i].key);
        if (i % 100 == 0) {
            const cen_frame *frame = cen_ledger_view_stack(view, entries[i].stack, &frames);
            assert_memory_equal(frame->function, "thread ", 7);
        }
    }
}

static cen_ledger *shared;

static void *work(void *arg) {
    churn(shared, (uint64_t)(uintptr_t)arg, false);
    return NULL;
}

static void test_threads(void **state) {
    pthread_t threads[THREADS];
    cen_ledger_view *view = NULL;
    OK(cen_ledger_create(NULL, NULL, &shared));
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    }
    for (int i = 0; i < 5; i++) {
        OK(cen_ledger_look(shared, &view));
        check_view(view);
        cen_ledger_view_free(view);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(cen_ledger_look(shared, &view));
    assert_int_equal(cen_ledger_view_info(view)->adds, THREADS * ROUNDS);
    assert_int_equal(cen_ledger_held_bytes(shared, 0), THREADS * 500 * 100);
    check_view(view);
    cen_ledger_view_free(view);
    cen_ledger_close(shared);
}

/* A child that writes as fast as it can. */
static pid_t start_writer(const char *path) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* where a test fails */
        cen_ledger *ledger = NULL;
        cen_ledger_options options = {.size = sizeof options, .events = 1024};
        if (cen_ledger_create(path, &options, &ledger) || write(ready[1], "", 1) != 1) {
            _exit(1);
        }
        churn(ledger, 1, true);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void end_writer(pid_t child) {
    int status;
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void test_live_writer(void **state) {
    const char *path = fresh_path();
    pid_t child = start_writer(path);
    uint64_t before = 0;
    for (int i = 0; i < 40 || before < 10000; i++) {
        cen_ledger_view *view = NULL;
        OK(cen_ledger_read(path, &view, NULL));
        check_view(view);
        assert_int_equal(cen_ledger_view_info(view)->pid, child);
        assert_true(cen_ledger_view_info(view)->adds >= before);
        before = cen_ledger_view_info(view)->adds;
        cen_ledger_view_free(view);
    }
    end_writer(child);
    unlink(path);
}

/* Killed at any place: at most the change that was under way is in doubt. */
static void test_killed(void **state) {
    for (int i = 0; i < 60; i++) {
        const char *path = fresh_path();
        pid_t child = start_writer(path);
        nanosleep(&(struct timespec){.tv_nsec = (i % 20 + 1) * 300000L}, NULL);
        end_writer(child);
        cen_ledger_view *view = NULL;
        size_t count;
        OK(cen_ledger_read(path, &view, NULL));
        const cen_ledger_info *info = cen_ledger_view_info(view);
        const cen_ledger_entry *entries = cen_ledger_view_entries(view, &count);
        int64_t difference = (int64_t)(info->adds - info->removes) - (int64_t)count;
        assert_true(difference >= -1 && difference <= 1);
        assert_false(info->closed);
        for (size_t k = 0; k < count; k++) {
            assert_int_equal(entries[k].bytes, 100);
            assert_true(k == 0 || entries[k - 1].key < entries[k].key);
        }
        cen_ledger_view_free(view);
        unlink(path);
    }
}

/* As left by a writer that was killed while an entry moved: it is in two slots. */
static void test_torn(void **state) {
    const char *path = fresh_path();
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    OK(cen_ledger_create(path, NULL, &ledger));
    cen_ledger_entry entry = an_entry(CEN_LEDGER_MEMORY, 77, 100, stack_named(ledger, "thread x"));
    OK(cen_ledger_add(ledger, &entry));
    cen_ledger_close(ledger);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    ceni_ledger_head head;
    assert_int_equal(fread(&head, sizeof head, 1, file), 1);
    const ceni_ledger_place *place =
        &head.region[CENI_LEDGER_LIVE].place[head.region[CENI_LEDGER_LIVE].which];
    ceni_ledger_slot slot, found = {0};
    long at = (long)place->offset, empty = -1;
    for (uint64_t i = 0; i < place->capacity; i++, at += (long)sizeof slot) {
        fseek(file, at, SEEK_SET);
        assert_int_equal(fread(&slot, sizeof slot, 1, file), 1);
        if (slot.used) {
            found = slot;
        } else {
            empty = at;
        }
    }
    assert_int_equal(found.key, 77);
    fseek(file, empty, SEEK_SET);
    fwrite(&found, sizeof found, 1, file);
    fflush(file);
    cen_read_error error;
    assert_int_equal(cen_ledger_read(path, &view, &error), CEN_ERR_FORMAT); /* it was closed */
    assert_non_null(strstr(error.message, "twice"));
    head.seq = 3;
    head.closed = 0;
    head.start_ticks = 1; /* nobody's */
    fseek(file, 0, SEEK_SET);
    fwrite(&head, sizeof head, 1, file);
    fclose(file);
    OK(cen_ledger_read(path, &view, NULL));
    check_view(view);
    cen_ledger_view_free(view);
    unlink(path);
}

/* Anything but a ledger is told, with its place, however long it is. */
static void test_damaged(void **state) {
    const char *path = fresh_path();
    cen_ledger *ledger = NULL;
    cen_ledger_view *view = NULL;
    cen_read_error error;
    OK(cen_ledger_create(path, NULL, &ledger));
    churn(ledger, 1, false);
    cen_ledger_close(ledger);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc((size_t)size);
    assert_non_null(data);
    assert_int_equal(fread(data, (size_t)size, 1, file), 1);
    fclose(file);
    const long cuts[] = {0, 5, 100, 16168, 20000, size / 2, size - 4096};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        assert_int_equal(truncate(path, 0), 0);
        file = fopen(path, "r+b");
        assert_int_equal(fwrite(data, 1, (size_t)cuts[i], file), (size_t)cuts[i]);
        fclose(file);
        cen_status status = cen_ledger_read(path, &view, &error);
        if (!status) { /* what was cut off held nothing any more */
            cen_ledger_view_free(view);
            assert_true(cuts[i] > 20000);
            continue;
        }
        assert_int_equal(status, CEN_ERR_TRUNCATED);
        assert_non_null(strstr(error.message, path));
        assert_non_null(strstr(error.message, "byte "));
    }
    free(data);
    file = fopen(path, "r+b");
    fprintf(file, "something else, long enough to be read as a head");
    fclose(file);
    assert_int_equal(truncate(path, 100000), 0);
    assert_int_equal(cen_ledger_read(path, &view, &error), CEN_ERR_FORMAT);
    assert_int_equal(cen_ledger_read("/tmp", &view, &error), CEN_ERR_IO);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads), cmocka_unit_test(test_live_writer),
        cmocka_unit_test(test_killed),  cmocka_unit_test(test_torn),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
