/* Traces as they are recorded: by many threads, stopped and started while they emit, across fork
 * and kill, on a full disk, without memory; and what the file says then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "cenote/log.h"
#include "cenote/snapshot.h"
#include "cenote/trace.h"
#include "trace/emit.h"
#include "trace/format.h"

#define OK(call) assert_int_equal(call, CEN_OK)

static char path[64];
static char last_log[512];
static atomic_int errors_logged;

static void keep_log(void *arg, cen_log_level level, const char *message) {
    if (level == CEN_LOG_ERROR && !atomic_fetch_add(&errors_logged, 1)) {
        snprintf(last_log, sizeof last_log, "%s", message);
    }
}

static int set_up(void **state) {
    snprintf(path, sizeof path, "/tmp/cenote_live_XXXXXX");
    int fd = mkstemp(path);
    close(fd);
    last_log[0] = '\0';
    errors_logged = 0;
    cen_log_set(keep_log, NULL, CEN_LOG_ERROR);
    return fd < 0;
}

static int tear_down(void **state) {
    unlink(path);
    return 0;
}

static cen_snapshot *read_back(void) {
    cen_snapshot *s = NULL;
    cen_read_error error = {{0}, 0};
    cen_status status = cen_snapshot_read(path, &s, &error);
    if (status) {
        fail_msg("%s", error.message);
    }
    return s;
}

static size_t count_of(const cen_snapshot *s, cen_action action) {
    size_t count = 0;
    for (size_t i = 0; i < cen_snapshot_device_count(s); i++) {
        const cen_snapshot_device *d = cen_snapshot_get_device(s, i);
        for (size_t k = 0; k < d->event_count; k++) {
            count += d->events[k].action == action;
        }
    }
    return count;
}

/* What the program says itself is in the file, in order, and the figures agree. */
static void program_events(void **state) {
    cen_trace_stats stats;
    OK(cen_trace_start(path, NULL));
    cen_trace_mark("load", false);
    cen_trace_alloc(0, 0x1000, 512, 7);
    cen_trace_alloc(1, 0x1000, 100, 0);
    cen_trace_mark("load", true);
    cen_trace_free(0, 0x1000, 512, 7);
    cen_trace_step();
    OK(cen_trace_get_stats(&stats));
    assert_true(stats.on);
    assert_int_equal(stats.events, 6);
    assert_int_equal(cen_trace_start(path, NULL), CEN_ERR_BUSY);
    OK(cen_trace_stop());
    assert_int_equal(cen_trace_stop(), CEN_ERR_NOT_FOUND);
    OK(cen_trace_flush());
    OK(cen_trace_get_stats(&stats));
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(stats.bytes, file.st_size);
    assert_int_equal(stats.events, 6);
    assert_int_equal(stats.lost, 0);
    assert_false(stats.on);

    cen_snapshot *s = read_back();
    assert_int_equal(cen_snapshot_device_count(s), 2);
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    assert_int_equal(d->event_count, 3);
    assert_int_equal(d->events[0].action, CEN_ACTION_ALLOC);
    assert_int_equal(d->events[2].action, CEN_ACTION_FREE_COMPLETED);
    assert_int_equal(d->events[2].size, 512);
    assert_true(d->events[0].time_us > INT64_C(1000000000000000)); /* it is the wall clock's */
    assert_true(d->events[2].time_us >= d->events[0].time_us);
    assert_int_equal(d->annotation_count, 3);
    assert_string_equal(d->annotations[0].name, "load");
    assert_true(d->annotations[1].end);
    assert_string_equal(d->annotations[2].name, CENI_STEP_MARK);
    cen_snapshot_free(s);
}

static void refused_arguments(void **state) {
    cen_trace_options options = {0};
    assert_int_equal(cen_trace_start(NULL, NULL), CEN_ERR_INVALID);
    errors_logged = 0;
    assert_int_equal(cen_trace_start(path, &options), CEN_ERR_INVALID);
    assert_non_null(strstr(last_log, "options.size"));
    options = (cen_trace_options){.size = sizeof options, .stacks = (cen_trace_stacks)9};
    assert_int_equal(cen_trace_start(path, &options), CEN_ERR_INVALID);
    options = (cen_trace_options){.size = sizeof options, .buffer_bytes = UINT32_MAX};
    assert_int_equal(cen_trace_start(path, &options), CEN_ERR_INVALID);
    assert_int_equal(cen_trace_start("/no/such/folder/t", NULL), CEN_ERR_IO);
    assert_int_equal(cen_trace_get_stats(NULL), CEN_ERR_INVALID);
    cen_trace_step(); /* nothing is on: nothing happens */
    cen_trace_mark("x", true);
    cen_trace_alloc(0, 1, 1, 0);
    OK(cen_trace_start(path, NULL));
    cen_trace_alloc(-1, 1, 1, 0); /* no device: dropped */
    cen_trace_mark(NULL, false);
    OK(cen_trace_stop());
    cen_snapshot *s = read_back();
    assert_int_equal(cen_snapshot_device_count(s), 0);
    cen_snapshot_free(s);
}

/* ---- threads ---- */

enum { THREADS = 4, EACH = 20000 };

static void *emit_many(void *arg) {
    uint64_t base = (uint64_t)(uintptr_t)arg << 32;
    for (uint64_t i = 0; i < EACH; i++) {
        ceni_emit(CENI_EVENT_ALLOC, 0, base + i * 512, 512, (uintptr_t)arg);
    }
    return NULL;
}

/* Of threads that have ended and of one that goes on, nothing is missing; each thread's are in its
 * order. */
static void nothing_is_missing(void **state) {
    pthread_t threads[THREADS];
    cen_trace_options options = {.size = sizeof options, .buffer_bytes = 1000};
    OK(cen_trace_start(path, &options));
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, emit_many, (void *)(i + 1)), 0);
    }
    emit_many((void *)(uintptr_t)(THREADS + 1));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(cen_trace_stop());
    cen_trace_stats stats;
    OK(cen_trace_get_stats(&stats));
    assert_int_equal(stats.events, (THREADS + 1) * EACH);
    cen_snapshot *s = read_back();
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    assert_int_equal(d->event_count, (THREADS + 1) * EACH);
    uint64_t next[THREADS + 2] = {0};
    for (size_t i = 0; i < d->event_count; i++) {
        uint64_t thread = d->events[i].stream;
        assert_true(thread >= 1 && thread <= THREADS + 1);
        assert_int_equal(d->events[i].addr, (thread << 32) + next[thread]++ * 512);
    }
    cen_snapshot_free(s);
}

typedef struct worker {
    atomic_bool *end;
    uint64_t number, emitted;
} worker;

static void *emit_until_told(void *arg) {
    worker *w = arg;
    while (!atomic_load(w->end)) {
        if (ceni_tracing()) {
            ceni_emit(CENI_EVENT_ALLOC, 0, (w->number << 40) + ++w->emitted * 512, 512, w->number);
        }
    }
    return NULL;
}

/* Traces are stopped and started while all threads emit: each file is whole, with as many events
 * as the figures say, and none twice in all of them. */
static void stop_while_emitting(void **state) {
    atomic_bool end = false;
    pthread_t threads[THREADS];
    worker workers[THREADS];
    uint64_t last[THREADS + 1] = {0}, total = 0;
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){&end, i + 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, emit_until_told, &workers[i]), 0);
    }
    cen_trace_options options = {.size = sizeof options, .buffer_bytes = 2000};
    for (int round = 0; round < 30; round++) {
        cen_trace_stats stats;
        OK(cen_trace_start(path, &options));
        do {
            OK(cen_trace_get_stats(&stats));
        } while (stats.events < 500);
        OK(cen_trace_stop());
        OK(cen_trace_get_stats(&stats));
        assert_int_equal(stats.lost, 0);
        cen_snapshot *s = read_back();
        const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
        assert_int_equal(d->event_count, stats.events);
        for (size_t i = 0; i < d->event_count; i++) {
            uint64_t thread = d->events[i].stream, at = d->events[i].addr & 0xffffffffff;
            assert_true(at > last[thread]);
            last[thread] = at;
        }
        total += stats.events;
        cen_snapshot_free(s);
    }
    atomic_store(&end, true);
    uint64_t emitted = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        emitted += workers[i].emitted;
    }
    assert_true(total <= emitted);
}

/* ---- processes ---- */

/* In a child all calls are refused, and nothing it does reaches the parent's file. */
static void forked_child(void **state) {
    OK(cen_trace_start(path, NULL));
    ceni_emit(CENI_EVENT_ALLOC, 0, 512, 512, 0);
    pid_t child = fork();
    if (!child) {
        bool good = !ceni_tracing() && cen_trace_flush() == CEN_ERR_FORKED &&
                    cen_trace_stop() == CEN_ERR_FORKED &&
                    cen_trace_start("/tmp/cenote_child", NULL) == CEN_ERR_FORKED;
        ceni_emit(CENI_EVENT_ALLOC, 0, 1024, 512, 0);
        cen_trace_step();
        exit(good ? 0 : 1); /* with the handlers of exit */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ceni_emit(CENI_EVENT_ALLOC, 0, 2048, 512, 0);
    OK(cen_trace_stop());
    cen_snapshot *s = read_back();
    assert_int_equal(count_of(s, CEN_ACTION_ALLOC), 2);
    cen_snapshot_free(s);
}

/* A process that is killed loses what its buffer held, no more. */
static void killed(void **state) {
    pid_t child = fork();
    if (!child) { /* a program of its own, or it would be a child without a trace */
        execl("/proc/self/exe", "test_trace_live", "--emit-and-wait", path, (char *)NULL);
        _exit(1);
    }
    cen_snapshot *s = NULL;
    for (int i = 0; i < 2000 && !s; i++) { /* until its first events are there */
        usleep(10000);
        struct stat file;
        if (!stat(path, &file) && file.st_size > 200000) {
            assert_int_equal(kill(child, SIGKILL), 0);
            assert_int_equal(waitpid(child, NULL, 0), child);
            s = read_back();
        }
    }
    assert_non_null(s);
    assert_string_equal(cen_snapshot_setting(s, "trace cut off"), "True");
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    for (size_t i = 0; i < d->event_count; i++) {
        assert_int_equal(d->events[i].addr, (i + 1) * 512); /* no gap */
    }
    assert_true(d->event_count > 1000);
    cen_snapshot_free(s);
}

static int emit_and_wait(const char *to) {
    if (cen_trace_start(to, NULL)) {
        return 1;
    }
    for (uint64_t i = 1;; i++) {
        ceni_emit(CENI_EVENT_ALLOC, 0, i * 512, 512, 0);
    }
}

/* A trace that was not stopped is when the process exits. */
static void exits(void **state) {
    pid_t child = fork();
    if (!child) {
        setenv("CENOTE_TRACE", path, 1);
        execl("/proc/self/exe", "test_trace_live", "--as-asked", (char *)NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    cen_snapshot *s = read_back();
    assert_int_equal(count_of(s, CEN_ACTION_ALLOC), 1);
    assert_null(cen_snapshot_setting(s, "trace cut off"));
    assert_string_equal(cen_snapshot_setting(s, "device 0"), "card");
    cen_snapshot_free(s);
}

static int as_asked(void) {
    unsigned number = ceni_trace_device_add("card", 1 << 20); /* as opening a device does */
    ceni_emit(CENI_EVENT_ALLOC, number, 512, 512, 0);
    return 0;
}

/* ---- failures ---- */

static void emit_blocks(size_t events) {
    for (size_t i = 0; i < events; i++) {
        ceni_emit(CENI_EVENT_ALLOC, 0, (i + 1) * 512, 512, 0);
    }
}

/* The file's head does not fit: no trace. */
static void full_from_the_start(void **state) {
    if (access("/dev/full", W_OK)) {
        skip();
    }
    assert_int_equal(cen_trace_start("/dev/full", NULL), CEN_ERR_IO);
    assert_non_null(strstr(last_log, "No space left"));
    assert_int_equal(cen_trace_stop(), CEN_ERR_NOT_FOUND);
}

/* Beyond the limit of a file's size the kernel sends a signal, which would end the program. */
static void full_on_the_way(void **state) {
    enum { LIMIT = 100000 };
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){LIMIT, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    OK(cen_trace_start(path, NULL));
    emit_blocks(10000);
    cen_trace_stats stats;
    OK(cen_trace_get_stats(&stats));
    cen_status status = cen_trace_stop();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, CEN_ERR_IO);
    assert_false(stats.on);
    assert_true(stats.lost > 0);
    assert_int_equal(errors_logged, 1); /* it says so once */
    assert_non_null(strstr(last_log, "the trace ends there: File too large"));
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(stats.bytes, file.st_size);
    assert_true(file.st_size <= LIMIT && file.st_size > LIMIT / 2);
    cen_snapshot *s = read_back();
    assert_int_equal(count_of(s, CEN_ACTION_ALLOC), stats.events - stats.lost);
    cen_snapshot_free(s);
    OK(cen_trace_start(path, NULL)); /* and the next one works */
    emit_blocks(10);
    OK(cen_trace_stop());
}

static void traced(void) {
    static const cen_trace_options options = {
        .size = sizeof options, .stacks = CEN_TRACE_NATIVE_STACKS, .buffer_bytes = 4000};
    if (!cen_trace_start(path, &options)) {
        cen_trace_mark("part", false);
        emit_blocks(300);
        cen_trace_step();
    }
}

/* Whatever fails: the program goes on, statuses say so, and what is in the file can be read. */
static void each_call_fails(enum ceni_fault_point point, cen_status expected) {
    for (int64_t n = 1; n < 1000; n++) {
        ceni_fault_set(&ceni_fault_points[point], n, false);
        traced();
        cen_trace_stats stats;
        OK(cen_trace_get_stats(&stats));
        cen_status status = cen_trace_stop();
        bool hit = !atomic_load(&ceni_fault_points[point].left);
        ceni_fault_set(&ceni_fault_points[point], 0, false);
        struct stat file;
        if (n % 16 == 1 && !stat(path, &file) && file.st_size) { /* naming the stacks takes long */
            cen_snapshot_free(read_back());
        }
        if (!hit) {
            OK(status);
            assert_true(n > 3);
            return;
        }
        assert_true(!status || status == expected || status == CEN_ERR_NOT_FOUND);
        if (point == CENI_FAULT_IO) {
            assert_int_not_equal(status, CEN_OK);
        }
    }
    fail();
}

static void io_fails(void **state) {
    each_call_fails(CENI_FAULT_IO, CEN_ERR_IO);
}

static void memory_lacks(void **state) {
    each_call_fails(CENI_FAULT_HOST_MEMORY, CEN_ERR_HOST_MEMORY);
}

/* ---- stacks ---- */

static size_t give_frames(void *arg, cen_frame *frames, size_t capacity) {
    assert_true(capacity >= 2);
    frames[0] = (cen_frame){.file = "model.py", .function = arg, .line = 5};
    frames[1] = (cen_frame){.file = "train.py", .function = "main", .line = 60};
    return 2;
}

__attribute__((noinline)) static void emit_from_here(uint64_t addr) {
    ceni_emit(CENI_EVENT_ALLOC, 0, addr, 512, 0);
    __asm__ volatile("" ::: "memory"); /* a call, not a jump */
}

static void stacks_are_kept_once(void **state) {
    cen_trace_options options = {.size = sizeof options,
                                 .stacks = CEN_TRACE_NATIVE_STACKS,
                                 .stack_fn = give_frames,
                                 .stack_arg = "forward"};
    OK(cen_trace_start(path, &options));
    for (uint64_t i = 1; i <= 1000; i++) {
        emit_from_here(i * 512);
    }
    cen_trace_stats stats;
    OK(cen_trace_get_stats(&stats));
    OK(cen_trace_stop());
    assert_int_equal(stats.stacks, 1);
    cen_snapshot *s = read_back();
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    assert_int_equal(d->event_count, 1000);
    size_t count;
    const cen_frame *frames = cen_snapshot_stack(s, d->events[999].stack, &count);
    assert_true(count > 4);
    assert_string_equal(frames[0].function, "forward");
    assert_int_equal(frames[1].line, 60);
    assert_int_equal(d->events[0].stack, d->events[999].stack);
#ifdef CENI_HAVE_LIBDW
    assert_string_equal(frames[2].function, "emit_from_here");
    assert_string_equal(frames[3].function, "stacks_are_kept_once");
#else
    assert_non_null(strstr(frames[2].function, "test_trace_live+0x"));
#endif
    cen_snapshot_free(s);
}

/* ---- devices ---- */

static void devices_get_numbers(void **state) {
    unsigned first = ceni_trace_device_add("one", 1), second = ceni_trace_device_add("two", 2);
    assert_int_not_equal(first, second);
    ceni_trace_device_remove(first);
    assert_int_equal(ceni_trace_device_add("three", 3), first); /* no trace is on: again */
    OK(cen_trace_start(path, NULL));
    ceni_trace_device_remove(first);
    unsigned third = ceni_trace_device_add("four", 4);
    assert_int_not_equal(third, first);
    OK(cen_trace_stop());
    cen_snapshot *s = read_back();
    char key[32];
    snprintf(key, sizeof key, "device %u", first);
    assert_string_equal(cen_snapshot_setting(s, key), "three");
    snprintf(key, sizeof key, "device %u", third);
    assert_string_equal(cen_snapshot_setting(s, key), "four");
    cen_snapshot_free(s);
    ceni_trace_device_remove(second);
    ceni_trace_device_remove(third);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--emit-and-wait")) {
        return emit_and_wait(argv[2]);
    }
    if (argc == 2 && !strcmp(argv[1], "--as-asked")) {
        return as_asked();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(program_events, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refused_arguments, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_is_missing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stop_while_emitting, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forked_child, set_up, tear_down),
        cmocka_unit_test_setup_teardown(killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(exits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_from_the_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_on_the_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(io_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_lacks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stacks_are_kept_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(devices_get_numbers, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
