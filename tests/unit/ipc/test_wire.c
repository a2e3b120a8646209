/* What is refused of a message, what is not, and how messages travel. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "cenote/log.h"
#include "ipc/step.h"
#include "ipc/wire.h"

static ceni_wire_builder b;
static ceni_wire_message m;

static cen_status check(unsigned fds, enum ceni_wire_side side) {
    return ceni_wire_check(b.data, b.size, fds, side, &m);
}

static void refused(unsigned fds, enum ceni_wire_side side, const char *why) {
    assert_int_equal(check(fds, side), CEN_ERR_FORMAT);
    const char *text = cen_log_last_error();
    if (!strstr(text, why)) {
        fail_msg("'%s' does not say '%s'", text, why);
    }
}

static ceni_wire_set *a_set(uint64_t bytes, uint64_t page_bytes, uint32_t count) {
    ceni_wire_set *set = ceni_wire_begin(&b, CENI_WIRE_SET, 1, sizeof *set);
    *set = (ceni_wire_set){.bytes = bytes, .page_bytes = page_bytes, .page_count = count};
    strcpy(set->uuid, "HOST-0");
    return set;
}

static ceni_wire_publish *a_publish(uint32_t flags, uint32_t access, const char *name,
                                    const ceni_wire_access *list) {
    ceni_wire_publish *p = ceni_wire_begin(&b, CENI_WIRE_PUBLISH, 7, sizeof *p);
    *p = (ceni_wire_publish){.set = 5, .token = {1, 2}, .flags = flags, .access_count = access};
    p->name_size = (uint32_t)strlen(name);
    p->directory_size = 11;
    ceni_wire_add(&b, list, access * sizeof *list);
    ceni_wire_add(&b, name, strlen(name));
    if (!(flags & CENI_WIRE_DIRECTORY_FD)) {
        ceni_wire_add(&b, "a directory", 11);
    }
    return p;
}

static ceni_wire_open *an_open(const char *name) {
    ceni_wire_open *o = ceni_wire_begin(&b, CENI_WIRE_OPEN, 3, sizeof *o);
    o->name_size = (uint32_t)strlen(name);
    ceni_wire_add(&b, name, strlen(name));
    return o;
}

static void hello(uint16_t version_min, uint16_t version_max, const char *label) {
    ceni_wire_hello *h = ceni_wire_begin(&b, CENI_WIRE_HELLO, 0, sizeof *h);
    h->version_min = version_min;
    h->version_max = version_max;
    h->label_size = (uint32_t)strlen(label);
    ceni_wire_add(&b, label, strlen(label));
}

static void whole_messages_are_taken_apart(void **state) {
    const ceni_wire_access list[] = {{CEN_SHARE_USER, 7, 1, 0}, {CEN_SHARE_ALL, 0, 0, 0}};
    a_publish(CENI_WIRE_KEEP, 2, "model/weights", list);
    assert_int_equal(check(0, CENI_WIRE_REQUEST), CEN_OK);
    assert_int_equal(m.head.type, CENI_WIRE_PUBLISH);
    assert_int_equal(m.head.seq, 7);
    assert_int_equal(((const ceni_wire_publish *)m.body)->set, 5);
    assert_int_equal(m.access_count, 2);
    assert_memory_equal(m.access, list, sizeof list);
    assert_int_equal(m.name_size, 13);
    assert_memory_equal(m.name, "model/weights", 13);
    assert_int_equal(m.directory_size, 11);
    assert_memory_equal(m.directory, "a directory", 11);

    a_publish(CENI_WIRE_DIRECTORY_FD | CENI_WIRE_EVENT_FD, 0, "", NULL);
    assert_int_equal(check(2, CENI_WIRE_REQUEST), CEN_OK);
    assert_int_equal(m.directory_size, 0);
    hello(1, 1, "python 3");
    assert_int_equal(check(2, CENI_WIRE_REQUEST), CEN_OK);
    assert_int_equal(m.name_size, 8);
    an_open("x");
    assert_int_equal(check(0, CENI_WIRE_REQUEST), CEN_OK);
    a_set(1000, 300, 4);
    assert_int_equal(check(4, CENI_WIRE_REQUEST), CEN_OK);
    ceni_wire_fail(&b, CENI_WIRE_OPEN, 9, CEN_ERR_PERMISSION, "no\nway");
    assert_int_equal(check(0, CENI_WIRE_REPLY), CEN_OK);
    assert_string_equal(m.why, "no?way");
    assert_int_equal(m.head.status, CEN_ERR_PERMISSION);
    ceni_wire_begin(&b, CENI_WIRE_CLOSE, 9, 0);
    assert_int_equal(check(0, CENI_WIRE_REPLY), CEN_OK);
    ceni_wire_notice *n = ceni_wire_begin(&b, CENI_WIRE_NOTICE, 0, sizeof *n);
    *n = (ceni_wire_notice){.kind = CEN_SHARE_IDLE, .export_id = 3};
    assert_int_equal(check(0, CENI_WIRE_NOTIFY), CEN_OK);
}

static void every_cut_is_refused(void **state) {
    const ceni_wire_access all = {CEN_SHARE_ALL, 0, 0, 0};
    for (int kind = 0; kind < 4; kind++) {
        if (kind == 0) {
            a_publish(0, 1, "a-name", &all);
        } else if (kind == 1) {
            an_open("a-name");
        } else if (kind == 2) {
            a_set(1, 1, 1);
        } else {
            hello(1, 1, "label");
        }
        unsigned fds = kind >= 2;
        size_t whole = b.size;
        assert_int_equal(check(fds, CENI_WIRE_REQUEST), CEN_OK);
        for (b.size = 0; b.size < whole; b.size++) {
            ((ceni_wire_head *)b.data)->size = (uint32_t)b.size;
            assert_int_equal(check(fds, CENI_WIRE_REQUEST), CEN_ERR_FORMAT);
        }
        ((ceni_wire_head *)b.data)->size = (uint32_t)(b.size = whole + 8);
        refused(fds, CENI_WIRE_REQUEST, "too many");
    }
}

static void heads_are_refused(void **state) {
    ceni_wire_head *head = (ceni_wire_head *)b.data;
    an_open("x");
    head->size++;
    refused(0, CENI_WIRE_REQUEST, "says that it has");
    an_open("x");
    head->type = 14;
    refused(0, CENI_WIRE_REQUEST, "unknown type 14");
    an_open("x");
    head->type = 0;
    refused(0, CENI_WIRE_REQUEST, "unknown type 0");
    an_open("x");
    head->type = UINT16_MAX;
    refused(0, CENI_WIRE_REQUEST, "unknown type 65535");
    an_open("x");
    head->type = CENI_WIRE_NOTICE;
    refused(0, CENI_WIRE_REQUEST, "unknown type 32");
    refused(0, CENI_WIRE_REPLY, "unknown type 32");
    an_open("x");
    refused(0, CENI_WIRE_NOTIFY, "unknown type 4");
    head->version = 2;
    refused(0, CENI_WIRE_REQUEST, "OPEN request of version 2");
    an_open("x");
    head->status = -1;
    refused(0, CENI_WIRE_REQUEST, "with status -1");
    ceni_wire_fail(&b, CENI_WIRE_OPEN, 9, 3, "positive");
    refused(0, CENI_WIRE_REPLY, "with status 3");
    ceni_wire_begin(&b, CENI_WIRE_OPEN, 9, 0);
    head->status = -1;
    refused(0, CENI_WIRE_REPLY, "without a reason");
    ceni_wire_add(&b, "12345678", 8);
    head->status = -1;
    refused(0, CENI_WIRE_REPLY, "without a reason");
}

static void another_version_says_hello(void **state) {
    ceni_wire_head *head = (ceni_wire_head *)b.data;
    hello(2, 3, "of the future, with a label in another place");
    head->version = 3;
    assert_int_equal(check(1, CENI_WIRE_REQUEST), CEN_OK);
    assert_int_equal(m.name_size, 0);
    hello(3, 2, "");
    refused(1, CENI_WIRE_REQUEST, "range");
    hello(1, 1, "line\nbreak");
    refused(1, CENI_WIRE_REQUEST, "control character");
    hello(1, 1, "x");
    refused(0, CENI_WIRE_REQUEST, "with 0 descriptors: 1 to 2");
    refused(3, CENI_WIRE_REQUEST, "with 3 descriptors");
}

static void names_and_lists_are_refused(void **state) {
    char name[CEN_SHARE_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    name[CEN_SHARE_NAME_MAX + 1] = '\0';
    an_open(name);
    refused(0, CENI_WIRE_REQUEST, "name of 256 bytes");
    an_open(name + 1);
    assert_int_equal(check(0, CENI_WIRE_REQUEST), CEN_OK);
    an_open("#1f");
    refused(0, CENI_WIRE_REQUEST, "begins with '#'");
    an_open("1#");
    assert_int_equal(check(0, CENI_WIRE_REQUEST), CEN_OK);
    an_open("a b");
    refused(0, CENI_WIRE_REQUEST, "0x20");
    an_open("a\x7f");
    refused(0, CENI_WIRE_REQUEST, "0x7f");
    an_open("\xc3\xa9");
    refused(0, CENI_WIRE_REQUEST, "0xc3");
    an_open("abc");
    b.data[b.size - 1] = 1;
    refused(0, CENI_WIRE_REQUEST, "not padded");
    an_open("")->export_id = 4;
    refused(0, CENI_WIRE_REQUEST, "neither a name nor an id");
    an_open("x")->export_id = 4;
    refused(0, CENI_WIRE_REQUEST, "neither a name nor an id");
    an_open("x")->flags = 4;
    refused(0, CENI_WIRE_REQUEST, "unknown flag");
    ceni_wire_access list[CEN_SHARE_ACCESS_MAX + 1];
    for (size_t i = 0; i <= CEN_SHARE_ACCESS_MAX; i++) {
        list[i] = (ceni_wire_access){CEN_SHARE_GROUP, 1, 0, 0};
    }
    a_publish(0, CEN_SHARE_ACCESS_MAX + 1, "x", list);
    refused(0, CENI_WIRE_REQUEST, "access list of 17");
    a_publish(0, UINT32_MAX, "x", list)->directory_size = 1;
    refused(0, CENI_WIRE_REQUEST, "access list of 4294967295");
    list[0].who = 4;
    a_publish(0, 1, "x", list);
    refused(0, CENI_WIRE_REQUEST, "no known kind");
    list[0] = (ceni_wire_access){CEN_SHARE_ALL, 3, 0, 0};
    a_publish(0, 1, "x", list);
    refused(0, CENI_WIRE_REQUEST, "must be 0");
}

static void exports_and_sets_are_refused(void **state) {
    a_publish(0, 0, "x", NULL)->token[0] = 0;
    assert_int_equal(check(0, CENI_WIRE_REQUEST), CEN_OK);
    memset(a_publish(0, 0, "x", NULL)->token, 0, 16);
    refused(0, CENI_WIRE_REQUEST, "no token");
    a_publish(0, 0, "x", NULL)->version = 2;
    refused(0, CENI_WIRE_REQUEST, "id or version");
    a_publish(CENI_WIRE_AGAIN, 0, "x", NULL)->export_id = 2;
    refused(0, CENI_WIRE_REQUEST, "id or version");
    a_publish(CENI_WIRE_WITHDRAWN, 0, "x", NULL);
    refused(0, CENI_WIRE_REQUEST, "new and withdrawn");
    a_publish(256, 0, "x", NULL);
    refused(0, CENI_WIRE_REQUEST, "unknown flag");
    a_publish(CENI_WIRE_ONCE, 0, "x", NULL)->once_ttl_ms = 5;
    assert_int_equal(check(0, CENI_WIRE_REQUEST), CEN_OK);
    a_publish(0, 0, "x", NULL)->once_ttl_ms = 5;
    refused(0, CENI_WIRE_REQUEST, "unknown value");
    a_publish(0, 0, "x", NULL)->event[63] = 1;
    refused(0, CENI_WIRE_REQUEST, "without its flag");
    a_publish(0, 0, "x", NULL)->directory_size = CENI_WIRE_INLINE_MAX + 1;
    refused(0, CENI_WIRE_REQUEST, "directory of 4097");
    a_publish(CENI_WIRE_DIRECTORY_FD, 0, "x", NULL)->directory_size = CENI_DIRECTORY_MAX + 1;
    refused(1, CENI_WIRE_REQUEST, "directory of");
    a_publish(CENI_WIRE_DIRECTORY_FD, 0, "x", NULL);
    refused(0, CENI_WIRE_REQUEST, "1 to 1 belong");
    a_set(1000, 300, 3);
    refused(1, CENI_WIRE_REQUEST, "another number of pages");
    a_set(UINT64_MAX, 1, UINT32_MAX);
    refused(1, CENI_WIRE_REQUEST, "too many pages");
    a_set(0, 300, 0);
    refused(1, CENI_WIRE_REQUEST, "no pages");
    a_set(1000, 300, 4)->first_page = 4;
    refused(1, CENI_WIRE_REQUEST, "after its last page");
    a_set(1000, 300, 4)->first_page = 2;
    refused(1, CENI_WIRE_REQUEST, "names no set");
    a_set(1000, 300, 4)->set = 2;
    refused(1, CENI_WIRE_REQUEST, "where it begins");
    a_set(1000, 300, 4)->again = 1;
    refused(1, CENI_WIRE_REQUEST, "names no set");
    memset(a_set(1000, 300, 4)->uuid, 'u', 48);
    refused(4, CENI_WIRE_REQUEST, "does not end");
    a_set(1000, 300, 4);
    refused(5, CENI_WIRE_REQUEST, "with 5 descriptors: 1 to 4");
}

static void events_are_refused(void **state) {
    ceni_wire_event *e = ceni_wire_begin(&b, CENI_WIRE_EVENT, 1, sizeof *e);
    e->flags = CENI_WIRE_EVENT_CLEAR;
    assert_int_equal(check(0, CENI_WIRE_REQUEST), CEN_OK);
    refused(1, CENI_WIRE_REQUEST, "0 to 0 belong");
    refused(0, CENI_WIRE_REPLY, "unknown flag");
    e->event[3] = 1;
    refused(0, CENI_WIRE_REQUEST, "without its flag");
    e->event[3] = 0;
    e->flags |= CENI_WIRE_EVENT_FD;
    refused(1, CENI_WIRE_REQUEST, "unknown flag");
    e->flags = CENI_WIRE_KEEP;
    refused(0, CENI_WIRE_REQUEST, "unknown flag");
    e->flags = CENI_WIRE_EVENT_FD | CENI_WIRE_EVENT_TOKEN;
    assert_int_equal(check(1, CENI_WIRE_REQUEST), CEN_OK);
}

static void replies_are_refused(void **state) {
    ceni_wire_pages_reply *p = ceni_wire_begin(&b, CENI_WIRE_PAGES, 1, sizeof *p);
    p->count = CENI_WIRE_FDS + 1;
    refused(64, CENI_WIRE_REPLY, "too many");
    p->count = 3;
    refused(2, CENI_WIRE_REPLY, "3 to 3 belong");
    ceni_wire_notice *n = ceni_wire_begin(&b, CENI_WIRE_NOTICE, 0, sizeof *n);
    n->kind = CENI_WIRE_NOTICE_EVENT + 1;
    refused(0, CENI_WIRE_NOTIFY, "unknown kind");
    ceni_wire_open_reply *o = ceni_wire_begin(&b, CENI_WIRE_OPEN, 1, sizeof *o);
    *o = (ceni_wire_open_reply){1, 0, 1, 100, 30, {1, 1}, 3, 0, 0, 0, 0, 1, 0, 0, "HOST-0", {0}};
    ceni_wire_add(&b, "d", 1);
    refused(0, CENI_WIRE_REPLY, "another number of pages");
    o->page_count = 4;
    assert_int_equal(check(0, CENI_WIRE_REPLY), CEN_OK);
}

static void too_long_a_message_is_not_sent(void **state) {
    static const char part[20000];
    ceni_wire_begin(&b, CENI_WIRE_LIST, 1, sizeof(ceni_wire_list_reply));
    ceni_wire_add(&b, part, sizeof part);
    assert_false(b.overflow);
    ceni_wire_add(&b, part, sizeof part);
    ceni_wire_add(&b, part, 8);
    assert_true(b.overflow);
    assert_int_equal(ceni_wire_send(-1, &b, NULL, 0, true), CEN_ERR_INVALID);
}

static void messages_travel_with_descriptors(void **state) {
    static uint64_t buffer[CENI_WIRE_MAX / 8];
    int pair[2], fds[CENI_WIRE_FDS], files[2];
    unsigned count;
    size_t size;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(ceni_wire_receive(pair[1], buffer, &size, fds, &count, true),
                     CEN_ERR_NOT_READY);
    assert_int_equal(pipe(files), 0);
    hello(1, 1, "sender");
    assert_int_equal(ceni_wire_send(pair[0], &b, files, 2, false), CEN_OK);
    assert_int_equal(ceni_wire_receive(pair[1], buffer, &size, fds, &count, false), CEN_OK);
    assert_int_equal(size, b.size);
    assert_memory_equal(buffer, b.data, size);
    assert_int_equal(count, 2);
    assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(write(fds[1], "x", 1), 1); /* the very pipe */
    char byte;
    assert_int_equal(read(files[0], &byte, 1), 1);
    for (int i = 0; i < 2; i++) {
        close(fds[i]);
        close(files[i]);
    }
    while (!ceni_wire_send(pair[0], &b, NULL, 0, true)) {
    }
    assert_int_equal(ceni_wire_send(pair[0], &b, NULL, 0, true), CEN_ERR_NOT_READY);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], 1, false);
    assert_int_equal(ceni_wire_receive(pair[1], buffer, &size, fds, &count, true), CEN_ERR_IO);
    close(pair[0]);
    cen_status status;
    while (!(status = ceni_wire_receive(pair[1], buffer, &size, fds, &count, true))) {
    }
    assert_int_equal(status, CEN_ERR_NO_BROKER);
    assert_int_equal(ceni_wire_send(pair[1], &b, NULL, 0, true), CEN_ERR_NO_BROKER);
    close(pair[1]);
}

static unsigned open_files(void) {
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Waits until so many are open: what came is closed on threads. */
static bool open_again(unsigned files) {
    for (unsigned i = 0; i < 20000 && open_files() != files; i++) {
        usleep(1000);
    }
    return open_files() == files;
}

/* Sends `n` copies of a file past the library's own limit. */
static void send_many(int socket, int file, unsigned n) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(200 * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {b.data, b.size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control};
    message.msg_controllen = CMSG_SPACE(n * sizeof(int));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(n * sizeof(int));
    for (unsigned i = 0; i < n; i++) {
        memcpy(CMSG_DATA(&control.header) + i * sizeof file, &file, sizeof file);
    }
    assert_int_equal(sendmsg(socket, &message, 0), (ssize_t)b.size);
}

static void descriptors_that_cannot_be_kept_are_closed(void **state) {
    static uint64_t buffer[CENI_WIRE_MAX / 8];
    int pair[2], fds[CENI_WIRE_FDS];
    unsigned count;
    size_t size;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    unsigned before = open_files();
    hello(1, 1, "many");
    send_many(pair[0], pair[0], CENI_WIRE_FDS + 1);
    assert_int_equal(ceni_wire_receive(pair[1], buffer, &size, fds, &count, false), CEN_ERR_FORMAT);
    assert_true(open_again(before));

    struct rlimit limit, tight;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    int next = dup(pair[0]);
    close(next);
    tight = (struct rlimit){(rlim_t)next + 3, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    send_many(pair[0], pair[0], 10);
    cen_status status = ceni_wire_receive(pair[1], buffer, &size, fds, &count, false);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, CEN_ERR_LIMIT);
    assert_memory_equal(buffer, b.data, b.size);
    assert_true(open_again(before));
    close(pair[0]);
    close(pair[1]);
}

static void a_process_dies_at_the_nth_step(void **state) {
    int report[2], status;
    assert_int_equal(pipe(report), 0);
    pid_t child = fork();
    if (!child) {
        ceni_ipc_step_arm(2, report[1]);
        ceni_ipc_step("first");
        ceni_ipc_step("second");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    char name[16] = "";
    assert_int_equal(read(report[0], name, sizeof name), 7);
    assert_string_equal(name, "second\n");
    close(report[0]);
    close(report[1]);
    ceni_ipc_step("not armed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_messages_are_taken_apart),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(heads_are_refused),
        cmocka_unit_test(another_version_says_hello),
        cmocka_unit_test(names_and_lists_are_refused),
        cmocka_unit_test(exports_and_sets_are_refused),
        cmocka_unit_test(events_are_refused),
        cmocka_unit_test(replies_are_refused),
        cmocka_unit_test(too_long_a_message_is_not_sent),
        cmocka_unit_test(messages_travel_with_descriptors),
        cmocka_unit_test(descriptors_that_cannot_be_kept_are_closed),
        cmocka_unit_test(a_process_dies_at_the_nth_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
