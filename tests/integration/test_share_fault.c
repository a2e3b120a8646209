/* Through a broker in this process: whatever call fails on the client's side, nothing is left of
 * it, neither here nor at the broker, and the next try succeeds. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "cenote/cenote.h"
#include "tests/files.h"

#define OK(call) assert_int_equal((call), CEN_OK)
#define MIB      ((uint64_t)1 << 20)

enum { ITEMS = 300 }; /* a directory that does not fit in a message */

typedef struct world {
    cen_device *device, *reader;
    char folder[64], path[96];
    cen_broker *broker;
    pthread_t thread;
} world;

static void *serve(void *arg) {
    (void)cen_broker_run(arg);
    return NULL;
}

static int setup(void **state) {
    world *w = calloc(1, sizeof *w);
    cen_host_options options = {.size = sizeof options, .capacity = 256 * MIB};
    OK(cen_device_open_host(0, &options, &w->device));
    OK(cen_device_open_host(0, &options, &w->reader));
    snprintf(w->folder, sizeof w->folder, "/tmp/cenote-test-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    snprintf(w->path, sizeof w->path, "%s/broker.sock", w->folder);
    cen_broker_options broker = {.size = sizeof broker, .socket = w->path};
    OK(cen_broker_create(&broker, &w->broker));
    assert_int_equal(pthread_create(&w->thread, NULL, serve, w->broker), 0);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    cen_broker_stop(w->broker);
    pthread_join(w->thread, NULL);
    cen_broker_destroy(w->broker);
    unlink(w->path);
    rmdir(w->folder);
    cen_device_close(w->device);
    cen_device_close(w->reader);
    free(w);
    return 0;
}

static uint64_t free_bytes(cen_device *device) {
    uint64_t now, total;
    OK(cen_device_mem_info(device, &now, &total));
    return now;
}

static cen_status connect_to(const world *w, cen_share **share) {
    cen_share_options options = {.size = sizeof options, .socket = w->path, .timeout_ms = 2000};
    return cen_share_connect(&options, share);
}

static cen_status publish(cen_share *share, cen_device *device) {
    static char names[ITEMS][16];
    cen_share_item items[ITEMS];
    cen_share_set *set;
    cen_addr addr;
    cen_share_export_info info;
    cen_share_export_options options = {.size = sizeof options, .name = "model"};
    cen_status status = cen_share_set_create(share, device, 4 * MIB, 2 * MIB, &set);
    status = status ? status : cen_share_alloc(set, MIB, &addr);
    if (status) {
        return status;
    }
    for (int i = 0; i < ITEMS; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        items[i] = (cen_share_item){.name = names[i], .addr = addr + (unsigned)i, .bytes = 1};
    }
    status = cen_share_export(share, items, ITEMS, &options, &info);
    status = status ? status : cen_share_export(share, items, 2, NULL, &info);
    status = status ? status : cen_share_withdraw(share, info.id);
    return status ? status : cen_share_free(set, addr, 0);
}

static cen_status read_back(cen_share *share, cen_device *device, const char *name) {
    cen_share_view *views[2];
    cen_share_list *list;
    cen_status status = cen_share_open(share, device, name, 0, 10, &views[0]);
    if (status) {
        return status;
    }
    status = cen_share_wait(views[0], 0);
    cen_status again = cen_share_open(share, device, "model@1", 0, 0, &views[1]);
    status = status ? status : again;
    if (!again) {
        cen_status closed = cen_share_close(views[1], 0);
        status = status ? status : closed;
    }
    cen_status listed = cen_share_list_read(share, &list);
    if (!listed) {
        cen_share_list_free(list);
    }
    cen_status closed = cen_share_close(views[0], 0);
    return status ? status : listed ? listed : closed;
}

/* A publisher whose export stays, for the reader's turn. */
static cen_status share_once(const world *w, int64_t n, enum ceni_fault_point point) {
    cen_share *keeper, *share;
    cen_share_set *set;
    cen_addr addr;
    cen_share_export_info info;
    cen_share_export_options options = {.size = sizeof options, .name = "model"};
    OK(connect_to(w, &keeper));
    OK(cen_share_set_create(keeper, w->device, 2 * MIB, 0, &set));
    OK(cen_share_alloc(set, 4096, &addr));
    cen_share_item item = {.name = "x", .addr = addr, .bytes = 1};
    OK(cen_share_export(keeper, &item, 1, &options, &info));
    ceni_fault_set(&ceni_fault_points[point], n, false);
    cen_status status = connect_to(w, &share);
    if (!status) {
        status = read_back(share, w->reader, "model");
        status = status ? status : publish(share, w->device);
        cen_share_disconnect(share);
    }
    ceni_fault_set(&ceni_fault_points[point], 0, false);
    cen_share_disconnect(keeper);
    return status;
}

/* What the broker still has, once what was under way is through. */
static void assert_nothing_listed(const world *w, int n) {
    cen_share *share;
    cen_share_list *list;
    size_t sets = 0, leases = 0;
    for (int ms = 0; ms < 5000; ms++) {
        OK(connect_to(w, &share));
        OK(cen_share_list_read(share, &list));
        sets = list->set_count;
        leases = list->lease_count;
        cen_share_list_free(list);
        cen_share_disconnect(share);
        if (!sets && !leases) {
            return;
        }
        usleep(1000);
    }
    fail_msg("with call %d failing the broker keeps %zu sets and %zu leases", n, sets, leases);
}

static void sweep(world *w, enum ceni_fault_point point) {
    int failed = 0, well = 0, n = 0;
    OK(share_once(w, 0, point));
    assert_nothing_listed(w, 0);
    uint64_t bytes[2] = {free_bytes(w->device), free_bytes(w->reader)};
    while (well < 12 && n < 600) {
        cen_status status = share_once(w, ++n, point);
        if (free_bytes(w->device) != bytes[0] || free_bytes(w->reader) != bytes[1]) {
            fail_msg("with call %d failing (%s), pages are left", n, cen_status_name(status));
        }
        assert_nothing_listed(w, n);
        well = status ? 0 : well + 1;
        failed += status != CEN_OK;
    }
    assert_true(n < 600 && failed > 10);
}

static void memory_that_runs_out_leaves_nothing(void **state) {
    sweep(*state, CENI_FAULT_HOST_MEMORY);
}

static void files_that_fail_leave_nothing(void **state) {
    sweep(*state, CENI_FAULT_IO);
}

static void no_files_are_left(void **state) {
    world *w = *state;
    unsigned files = files_of(getpid()); /* or fewer: what closes apart may not have yet */
    for (int n = 1; n < 60; n++) {
        (void)share_once(w, n, CENI_FAULT_IO);
        (void)share_once(w, n, CENI_FAULT_HOST_MEMORY);
    }
    assert_nothing_listed(w, 0);
    for (int ms = 0; ms < 5000 && files_of(getpid()) > files; ms++) {
        usleep(1000); /* the broker closes those of connections that ended */
    }
    assert_true(files_of(getpid()) <= files);
}

/* A directory too large for a message is a file, which a limit of sizes would have end the program.
 */
static void a_directory_beyond_the_limit_of_files_is_refused(void **state) {
    const world *w = *state;
    static char names[ITEMS][16];
    cen_share_item items[ITEMS];
    cen_share *share;
    cen_share_set *set;
    cen_addr addr;
    cen_share_export_info info;
    struct rlimit limit, low;
    OK(connect_to(w, &share));
    OK(cen_share_set_create(share, w->device, 2 * MIB, 0, &set));
    OK(cen_share_alloc(set, MIB, &addr));
    for (int i = 0; i < ITEMS; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        items[i] = (cen_share_item){.name = names[i], .addr = addr + (unsigned)i, .bytes = 1};
    }
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low = limit;
    low.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    cen_status status = cen_share_export(share, items, ITEMS, NULL, &info);
    assert_non_null(strstr(cen_log_last_error(), "File too large"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(status, CEN_ERR_LIMIT);
    OK(cen_share_export(share, items, ITEMS, NULL, &info));
    cen_share_disconnect(share);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_that_runs_out_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(files_that_fail_leave_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(no_files_are_left, setup, teardown),
        cmocka_unit_test_setup_teardown(a_directory_beyond_the_limit_of_files_is_refused, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
