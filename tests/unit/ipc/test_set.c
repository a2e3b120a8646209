/* Sets, blocks and exports of one process, over a connection without a broker; and that no failure
 * of memory, I/O or the device leaves anything behind. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "cenote/cenote.h"
#include "dev/dev.h"
#include "tests/files.h"

#define OK(call)            assert_int_equal((call), CEN_OK)
#define FAILS(status, call) assert_int_equal((call), (status))
#define MIB                 ((uint64_t)1 << 20)

typedef struct world {
    cen_device *device;
    cen_share *share;
    cen_share_set *set;
    cen_addr base;
} world;

static char log_line[1024];

static void note_log(void *arg, cen_log_level level, const char *message) {
    snprintf(log_line, sizeof log_line, "%s", message);
}

static cen_device *open_device(bool no_vmm) {
    cen_host_options options = {.size = sizeof options, .capacity = 256 * MIB, .no_vmm = no_vmm};
    cen_device *device;
    OK(cen_device_open_host(0, &options, &device));
    return device;
}

static cen_status connect_alone(cen_share **share) {
    cen_share_options options = {.size = sizeof options, .no_broker = true};
    return cen_share_connect(&options, share);
}

static int setup(void **state) {
    world *w = calloc(1, sizeof *w);
    uint64_t bytes;
    cen_log_set(note_log, NULL, CEN_LOG_WARN);
    w->device = open_device(false);
    OK(connect_alone(&w->share));
    OK(cen_share_set_create(w->share, w->device, 8 * MIB, 2 * MIB, &w->set));
    OK(cen_share_set_range(w->set, &w->base, &bytes));
    assert_int_equal(bytes, 8 * MIB);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    cen_share_disconnect(w->share);
    cen_device_close(w->device);
    free(w);
    return 0;
}

static uint64_t free_bytes(cen_device *device) {
    uint64_t now, total;
    OK(cen_device_mem_info(device, &now, &total));
    return now;
}

static cen_share_item item_of(const char *name, cen_addr addr, uint64_t bytes) {
    return (cen_share_item){.name = name, .addr = addr, .bytes = bytes};
}

static void blocks_are_apart_and_come_back(void **state) {
    world *w = *state;
    cen_addr a, b, c;
    OK(cen_share_alloc(w->set, 1000, &a));
    OK(cen_share_alloc(w->set, 6 * MIB, &b));
    assert_true(a % 512 == 0 && b >= a + 1000);
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_share_alloc(w->set, 2 * MIB, &c));
    assert_non_null(strstr(log_line, "2096128 are free"));
    FAILS(CEN_ERR_INVALID, cen_share_alloc(w->set, 0, &c));
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_share_free(w->set, a + 512, 0));
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_share_free(w->set, w->base - 4096, 0));
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_share_free(w->set, w->base + 8 * MIB, 0));
    OK(cen_share_free(w->set, a, 0));
    OK(cen_share_free(w->set, b, 0));
    OK(cen_stream_sync(w->device, 0));
    OK(cen_share_alloc(w->set, 8 * MIB, &c));
    assert_true(c == w->base);
}

/* The block is free once the stream gets there, and not before; nobody waits. */
static void a_free_waits_for_its_stream(void **state) {
    world *w = *state;
    cen_event gate;
    cen_stream stream;
    cen_addr a, b;
    OK(cen_stream_create(w->device, 0, &stream));
    OK(cen_event_create(w->device, CEN_EVENT_MANUAL, &gate));
    OK(cen_stream_wait(w->device, stream, gate));
    OK(cen_share_alloc(w->set, 8 * MIB, &a));
    OK(cen_share_free(w->set, a, stream));
    FAILS(CEN_ERR_DOUBLE_FREE, cen_share_free(w->set, a, stream));
    FAILS(CEN_ERR_DEVICE_MEMORY, cen_share_alloc(w->set, 512, &b));
    OK(cen_event_signal(w->device, gate));
    OK(cen_stream_sync(w->device, stream));
    OK(cen_share_alloc(w->set, 8 * MIB, &b));
    OK(cen_event_destroy(w->device, gate));
    OK(cen_stream_destroy(w->device, stream));
}

static void an_exported_block_is_free_after_its_export(void **state) {
    world *w = *state;
    cen_addr a, b;
    cen_share_export_info first, second;
    OK(cen_share_alloc(w->set, 8 * MIB, &a));
    cen_share_item items[] = {item_of("x", a, 512), item_of("y", a + 512, 512)};
    cen_share_export_options options = {.size = sizeof options, .name = "model"};
    OK(cen_share_export(w->share, items, 2, &options, &first));
    assert_int_equal(first.version, 1);
    OK(cen_share_export(w->share, items, 2, &options, &second));
    assert_int_equal(second.version, 2);
    FAILS(CEN_ERR_NOT_FOUND, cen_share_withdraw(w->share, first.id)); /* over with the second */
    OK(cen_share_mark(w->share, second.id, 0));
    OK(cen_share_free(w->set, a, 0));
    FAILS(CEN_ERR_NOT_FOUND, cen_share_mark(w->share, second.id, 0));
    OK(cen_stream_sync(w->device, 0));
    OK(cen_share_alloc(w->set, 8 * MIB, &b));
    FAILS(CEN_ERR_NOT_FOUND, cen_share_withdraw(w->share, 1));
}

static void what_cannot_be_exported_is_named(void **state) {
    world *w = *state;
    cen_share_set *other;
    cen_addr a, b;
    cen_share_export_info info = {.id = 77};
    OK(cen_share_set_create(w->share, w->device, MIB, 0, &other));
    OK(cen_share_alloc(w->set, 4096, &a));
    OK(cen_share_alloc(other, 4096, &b));
    cen_share_item items[] = {item_of("x", a, 4096), item_of("y", a, 4096)};
    items[1].addr = b;
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_share_export(w->share, items, 2, NULL, &info));
    assert_non_null(strstr(log_line, "item 1"));
    items[1].addr = a + 1;
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_share_export(w->share, items, 2, NULL, &info));
    items[1] = item_of("y", a + 100, 0);
    FAILS(CEN_ERR_INVALID, cen_share_export(w->share, items, 2, NULL, &info));
    items[1] = item_of("x", a + 100, 4);
    FAILS(CEN_ERR_INVALID, cen_share_export(w->share, items, 2, NULL, &info));
    static const char *const names[] = {"", "a b", "a\n", "model@3", "cenote1.AAAA"};
    cen_share_export_options options = {.size = sizeof options};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        options.name = names[i];
        FAILS(CEN_ERR_INVALID, cen_share_export(w->share, items, 1, &options, &info));
    }
    assert_int_equal(info.id, 77);
    OK(cen_share_export(w->share, items, 1, NULL, &info));
    cen_share_access everybody = {.who = CEN_SHARE_ALL};
    options =
        (cen_share_export_options){.size = sizeof options, .access = &everybody, .access_count = 1};
    FAILS(CEN_ERR_INVALID, cen_share_export(w->share, items, 1, &options, &info));
    OK(cen_share_free(w->set, a, 0));
    FAILS(CEN_ERR_FOREIGN_POINTER, cen_share_export(w->share, items, 1, NULL, &info));
}

/* As much of addresses and of memory as the set has, and all of it back. */
static void a_set_is_given_back(void **state) {
    world *w = *state;
    cen_share_set *set;
    cen_addr addr;
    uint64_t before = free_bytes(w->device), bytes;
    OK(cen_share_set_create(w->share, w->device, 5 * MIB, 4 * MIB, &set));
    OK(cen_share_set_range(set, &addr, &bytes));
    assert_int_equal(bytes, 6 * MIB);
    assert_int_equal(free_bytes(w->device), before - 6 * MIB);
    OK(cen_share_alloc(set, 6 * MIB, &addr));
    OK(cen_share_set_destroy(set));
    assert_int_equal(free_bytes(w->device), before);
    FAILS(CEN_ERR_INVALID, cen_share_set_create(w->share, w->device, 0, 0, &set));
    FAILS(CEN_ERR_INVALID, cen_share_set_create(w->share, w->device, UINT64_MAX, 0, &set));
    FAILS(CEN_ERR_DEVICE_MEMORY,
          cen_share_set_create(w->share, w->device, 1024 * MIB, 2 * MIB, &set));
    assert_int_equal(free_bytes(w->device), before);
    OK(cen_share_set_destroy(NULL));
}

static void what_a_device_cannot_share_is_said(void **state) {
    world *w = *state;
    cen_device *plain = open_device(true);
    cen_share_set *set;
    FAILS(CEN_ERR_UNSUPPORTED, cen_share_set_create(w->share, plain, MIB, 0, &set));
    assert_non_null(strstr(log_line, "cannot be exported"));
    cen_device_close(plain);
}

/* ---- failures ---- */

typedef struct receiver {
    cen_device *device;
    int socket;
    cen_status status;
} receiver;

/* Opens what comes, looks at it, and closes it. */
static void *receive(void *arg) {
    receiver *r = arg;
    cen_share *share;
    cen_share_view *view;
    cen_share_item item;
    r->status = connect_alone(&share);
    if (r->status) {
        shutdown(r->socket, SHUT_RDWR);
        return NULL;
    }
    r->status = cen_share_receive(share, r->device, r->socket, 10000, &view);
    if (!r->status) {
        r->status = cen_share_view_find(view, "x", &item);
        r->status = r->status ? r->status : cen_share_wait(view, 0);
        cen_status closed = cen_share_close(view, 0);
        r->status = r->status ? r->status : closed;
    } else {
        shutdown(r->socket, SHUT_RDWR);
    }
    cen_share_disconnect(share);
    return NULL;
}

/* Everything once: CEN_OK, or what went wrong first on the publisher's side. */
static cen_status publish_once(cen_device *device, int socket) {
    cen_share *share;
    cen_share_set *set;
    cen_addr addr;
    cen_share_export_info info;
    cen_share_export_options options = {.size = sizeof options, .name = "model"};
    cen_status status = connect_alone(&share);
    if (status) {
        return status;
    }
    status = cen_share_set_create(share, device, 4 * MIB, 2 * MIB, &set);
    status = status ? status : cen_share_alloc(set, 4096, &addr);
    if (!status) {
        cen_share_item items[] = {item_of("x", addr, 4), item_of("y", addr + 4, 4)};
        status = cen_share_export(share, items, 2, &options, &info);
        status = status ? status : cen_share_send(share, info.id, socket, 10000);
        status = status ? status : cen_share_mark(share, info.id, 0);
        status = status ? status : cen_share_free(set, addr, 0);
    }
    cen_share_disconnect(share);
    return status;
}

typedef struct sender {
    cen_device *device;
    int socket;
    cen_status status;
} sender;

static void *publish(void *arg) {
    sender *s = arg;
    s->status = publish_once(s->device, s->socket);
    return NULL;
}

/* publish_once sends "x" and "y". */
static void items_come_in_one_call(void **state) {
    world *w = *state;
    int ends[2];
    pthread_t thread;
    cen_share *reader;
    cen_share_view *view;
    cen_share_item items[3] = {{.name = NULL}}, one;
    size_t got = 77;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    sender s = {.device = w->device, .socket = ends[0]};
    assert_int_equal(pthread_create(&thread, NULL, publish, &s), 0);
    OK(connect_alone(&reader));
    OK(cen_share_receive(reader, w->device, ends[1], 10000, &view));
    OK(cen_share_view_items(view, 0, items, 3, &got));
    assert_int_equal(got, 2);
    assert_null(items[2].name);
    for (size_t i = 0; i < got; i++) {
        OK(cen_share_view_item(view, i, &one));
        assert_string_equal(items[i].name, i ? "y" : "x");
        assert_ptr_equal(items[i].name, one.name);
        assert_true(items[i].addr == one.addr && items[i].bytes == one.bytes);
    }
    OK(cen_share_view_items(view, 1, items, 1, &got));
    assert_int_equal(got, 1);
    assert_string_equal(items[0].name, "y");
    OK(cen_share_view_items(view, 2, items, 3, &got));
    assert_int_equal(got, 0);
    OK(cen_share_view_items(view, SIZE_MAX, items, 3, &got));
    assert_int_equal(got, 0);
    FAILS(CEN_ERR_INVALID, cen_share_view_items(view, 0, NULL, 3, &got));
    FAILS(CEN_ERR_INVALID, cen_share_view_items(view, 0, items, 3, NULL));
    OK(cen_share_close(view, 0));
    cen_share_disconnect(reader);
    pthread_join(thread, NULL);
    OK(s.status);
    close(ends[0]);
    close(ends[1]);
}

static cen_status share_once(cen_device *from, cen_device *to) {
    int ends[2];
    pthread_t thread;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    receiver r = {.device = to, .socket = ends[1]};
    assert_int_equal(pthread_create(&thread, NULL, receive, &r), 0);
    cen_status status = publish_once(from, ends[0]);
    shutdown(ends[0], SHUT_RDWR);
    pthread_join(thread, NULL);
    close(ends[0]);
    close(ends[1]);
    return status ? status : r.status;
}

typedef void (*arm_fn)(cen_device *from, cen_device *to, int which, int64_t n);

/* The n-th call fails, for each n: whatever then happens, all is given back. Ends with the first n
 * that the calls do not reach, which is the number of calls. */
static int sweep(cen_device *from, cen_device *to, arm_fn arm, int which) {
    uint64_t bytes[2] = {free_bytes(from), free_bytes(to)};
    unsigned files = files_of(getpid());
    int n = 0, failed = 0, well = 0;
    while (well < 8 && n < 500) { /* threads interleave: not each run makes as many calls */
        arm(from, to, which, ++n);
        cen_status status = share_once(from, to);
        arm(from, to, which, 0);
        OK(cen_stream_sync(from, 0)); /* records under way hold their event's file */
        OK(cen_stream_sync(to, 0));
        if (free_bytes(from) != bytes[0] || free_bytes(to) != bytes[1] ||
            files_of(getpid()) != files) {
            fail_msg("with call %d of %d failing (%s), something is left", n, which,
                     cen_status_name(status));
        }
        well = status ? 0 : well + 1;
        failed += status != CEN_OK;
    }
    assert_true(n < 500);
    return failed;
}

static void arm_point(cen_device *from, cen_device *to, int which, int64_t n) {
    ceni_fault_set(&ceni_fault_points[which], n, false);
}
static void arm_from(cen_device *from, cen_device *to, int which, int64_t n) {
    ceni_dev_fault(from, (enum ceni_dev_op)which, n, false);
}
static void arm_to(cen_device *from, cen_device *to, int which, int64_t n) {
    ceni_dev_fault(to, (enum ceni_dev_op)which, n, false);
}

static void failures_leave_nothing(void **state) {
    cen_device *from = open_device(false), *to = open_device(false);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    OK(share_once(from, to));
    assert_true(sweep(from, to, arm_point, CENI_FAULT_HOST_MEMORY) > 20);
    assert_true(sweep(from, to, arm_point, CENI_FAULT_IO) > 5);
    static const enum ceni_dev_op ops[] = {
        CENI_OP_props,        CENI_OP_va_reserve,   CENI_OP_page_create,  CENI_OP_page_map,
        CENI_OP_page_access,  CENI_OP_page_export,  CENI_OP_page_import,  CENI_OP_event_create,
        CENI_OP_event_record, CENI_OP_event_export, CENI_OP_event_import, CENI_OP_stream_wait};
    int failed = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        failed += sweep(from, to, arm_from, (int)ops[i]);
        failed += sweep(from, to, arm_to, (int)ops[i]);
    }
    assert_true(failed >= 12);
    cen_device_close(from);
    cen_device_close(to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_are_apart_and_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_free_waits_for_its_stream, setup, teardown),
        cmocka_unit_test_setup_teardown(an_exported_block_is_free_after_its_export, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_exported_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(a_set_is_given_back, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_device_cannot_share_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(items_come_in_one_call, setup, teardown),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
