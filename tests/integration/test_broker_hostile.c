/* Clients that leave unread what they are sent, hold up what they can, or lie: they are cut off or
 * refused, and others are served. */
#include <netinet/in.h>

#include "base/fd.h"
#include "ipc/closer.h"
#include "tests/integration/broker_fixture.h"

static void ask_for_pages(raw *r, uint64_t set) {
    ceni_wire_pages *b = ceni_wire_begin(&raw_out, CENI_WIRE_PAGES, ++r->seq, sizeof *b);
    b->set = set;
    assert_int_equal(ceni_wire_send(r->socket, &raw_out, NULL, 0, false), CEN_OK);
}

/* A descriptor under way counts against all that the broker may send. */
static void who_leaves_descriptors_unread_gets_no_more(void **state) {
    uint64_t set = raw_set(&me, "x");
    assert_int_not_equal(raw_publish(&me, set, "weights", NULL), 0);
    assert_int_equal(raw_dial(&other, s.path), CEN_OK);
    assert_int_equal(raw_open(&other, "weights", 0, 0), CEN_OK);
    assert_int_equal(raw_pages(&other, set), CEN_OK);
    ask_for_pages(&other, set);
    ask_for_pages(&other, set);
    assert_true(raw_until(&me, CENI_WIRE_RECORD_CLIENT, 1));
    assert_int_equal(raw_receive(&other), CEN_OK);
    assert_int_equal(raw_receive(&other), CEN_ERR_INVALID);
    assert_non_null(strstr(other.reply.why, "before it has read a reply"));
    assert_int_equal(raw_receive(&other), CEN_ERR_NO_BROKER);
    raw other_again = {.socket = raw_connect(s.path), .notices = -1};
    assert_int_equal(raw_hello(&other_again, other.id, other.secret), CEN_OK);
    raw_hangup(&other);
    assert_int_equal(raw_id(&other_again, CENI_WIRE_CLOSE, other.opened[0]), CEN_OK);
    raw_leave(&other_again);
}

static void who_keeps_what_it_sent_is_forgotten_all_the_same(void **state) {
    enum { CLIENTS = 32 };
    int kept[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(raw_dial_keeping(&other, s.path, &kept[i]), CEN_OK);
        close(other.socket);
        assert_true(raw_until(&me, CENI_WIRE_RECORD_CLIENT, 1));
        close(other.notices); /* makes an event of the one that is kept */
        assert_int_equal(raw_count(&me, CENI_WIRE_RECORD_CLIENT), 1);
    }
    for (int i = 0; i < CLIENTS; i++) {
        close(kept[i]);
    }
}

/* A connection whose last close waits: what is sent is not taken, and to be waited for. -1: there
 * is no network. */
static int lingering(int *other_end) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct linger patience = {1, 600};
    static char bytes[65536];
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    const int little = 4096;
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&address, &size) ||
        connect(fd, (struct sockaddr *)&address, size)) {
        close(listener);
        close(fd);
        return -1;
    }
    *other_end = accept(listener, NULL, NULL);
    close(listener);
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    while (poll(&room, 1, 20) > 0 && send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &patience, sizeof patience), 0);
    return fd;
}

/* Sends files with a request that has none; whoever closes them then is the last to. */
static void send_away(raw *r, int *fds, unsigned count) {
    ceni_wire_begin(&raw_out, CENI_WIRE_LIST, 1, sizeof(ceni_wire_list));
    kill(s.pid, SIGSTOP);
    assert_int_equal(ceni_wire_send(r->socket, &raw_out, fds, count, false), CEN_OK);
    ceni_fd_close_all(fds, count);
    kill(s.pid, SIGCONT);
}

static void a_close_that_waits_hinders_nobody(void **state) {
    int other_end = -1, fd = lingering(&other_end);
    if (fd < 0) {
        skip();
    }
    raw_dial(&other, s.path);
    send_away(&other, &fd, 1);
    assert_int_not_equal(raw_count(&me, CENI_WIRE_RECORD_CLIENT), UINT32_MAX);
    raw_hangup(&other);
    close(other_end);
}

static void is_refused_for_its_files(raw *r, cen_status status) {
    assert_int_equal(status, CEN_ERR_LIMIT);
    assert_non_null(strstr(r->reply.why, "cannot be closed"));
    assert_int_equal(raw_receive(r), CEN_ERR_NO_BROKER);
    raw_hangup(r);
}

/* Of 256 descriptors 16 may wait to be closed. */
static void closes_that_wait_cost_a_user_few_threads(void **state) {
    enum { BATCH = 8, BATCHES = 3 };
    int ends[BATCH * BATCHES], fds[BATCH];
    static raw earlier;
    raw_hangup(&me);
    server_end(&s);
    assert_true(server_start(&s, NULL, 256));
    assert_int_equal(raw_dial(&me, s.path), CEN_OK);
    assert_int_equal(raw_dial(&earlier, s.path), CEN_OK);
    unsigned most = threads_of(s.pid) + CENI_CLOSER_THREADS;
    for (unsigned i = 0; i < BATCHES; i++) {
        for (unsigned k = 0; k < BATCH; k++) {
            fds[k] = lingering(&ends[i * BATCH + k]);
            if (fds[k] < 0) {
                skip();
            }
        }
        assert_int_equal(raw_dial(&other, s.path), CEN_OK);
        send_away(&other, fds, BATCH);
        assert_int_equal(raw_receive(&other), CEN_ERR_FORMAT);
        raw_hangup(&other);
    }
    assert_true(threads_stay_within(s.pid, most));
    for (unsigned i = 0; i < 40; i++) { /* nor does trying again cost any */
        is_refused_for_its_files(&other, raw_dial(&other, s.path));
    }
    assert_int_equal(raw_set(&earlier, "x"), 0);
    is_refused_for_its_files(&earlier, earlier.reply.head.status);
    assert_in_range(files_of(s.pid), s.files, s.files + BATCH * BATCHES + 6);
    assert_true(threads_stay_within(s.pid, most));
    assert_int_not_equal(raw_count(&me, CENI_WIRE_RECORD_CLIENT), UINT32_MAX);
    ceni_fd_close_all(ends, BATCH * BATCHES); /* resets them, which ends the wait */
    assert_true(raw_until(&me, CENI_WIRE_RECORD_CLIENT, 1));
    while (raw_dial(&other, s.path)) {
        raw_hangup(&other);
        usleep(1000);
    }
    assert_int_not_equal(raw_set(&other, "x"), 0);
    raw_leave(&other);
}

/* ---- those who lie ---- */

/* The next request is refused so, and the connection is over after that. */
static void is_cut_off(const int *fds, unsigned count, const char *why) {
    assert_int_not_equal(raw_call(&other, fds, count), CEN_OK);
    assert_non_null(other.reply.why);
    if (!strstr(other.reply.why, why)) {
        fail_msg("'%s' does not say '%s'", other.reply.why, why);
    }
    assert_int_equal(raw_receive(&other), CEN_ERR_NO_BROKER);
    raw_hangup(&other);
}

static void malformed_messages_cut_off(void **state) {
    ceni_wire_head *head = (ceni_wire_head *)raw_out.data;
    assert_int_equal(raw_dial(&other, s.path), CEN_OK);
    ceni_wire_begin(&raw_out, CENI_WIRE_LIST, 1, sizeof(ceni_wire_list));
    head->type = 77;
    assert_int_equal(ceni_wire_send(other.socket, &raw_out, NULL, 0, false), CEN_OK);
    assert_int_not_equal(raw_receive(&other), CEN_OK); /* no reply has that type, either */
    assert_int_equal(raw_receive(&other), CEN_ERR_NO_BROKER);
    raw_hangup(&other);

    assert_int_equal(raw_dial(&other, s.path), CEN_OK);
    assert_int_equal(send(other.socket, "short", 5, 0), 5);
    assert_int_not_equal(raw_receive(&other), CEN_OK);
    raw_hangup(&other);

    assert_int_equal(raw_dial(&other, s.path), CEN_OK);
    ceni_wire_begin(&raw_out, CENI_WIRE_LIST, 1, sizeof(ceni_wire_list));
    is_cut_off(&other.socket, 1, "with 1 descriptors: 0 to 0");

    assert_int_equal(raw_dial(&other, s.path), CEN_OK);
    char name[300];
    memset(name, 'n', sizeof name);
    ceni_wire_open *b = ceni_wire_begin(&raw_out, CENI_WIRE_OPEN, 2, sizeof *b);
    b->name_size = sizeof name;
    ceni_wire_add(&raw_out, name, sizeof name);
    is_cut_off(NULL, 0, "name of 300 bytes");

    other = (raw){.socket = raw_connect(s.path), .notices = -1};
    ceni_wire_begin(&raw_out, CENI_WIRE_LIST, 1, sizeof(ceni_wire_list));
    is_cut_off(NULL, 0, "first message has to be HELLO");

    other = (raw){.socket = raw_connect(s.path), .notices = -1};
    ceni_wire_hello *h = ceni_wire_begin(&raw_out, CENI_WIRE_HELLO, 1, sizeof *h);
    *h = (ceni_wire_hello){.version_min = 9, .version_max = 10};
    head->version = 10;
    is_cut_off(&other.socket, 1, "the broker speaks version 1, the client 9 to 10");

    other = (raw){.socket = raw_connect(s.path), .notices = -1};
    int file = raw_page("x", RAW_PAGE, 0);
    h = ceni_wire_begin(&raw_out, CENI_WIRE_HELLO, 1, sizeof *h);
    *h = (ceni_wire_hello){.version_min = 1, .version_max = 1};
    is_cut_off(&file, 1, "without a seqpacket socket");
    close(file);
    assert_int_equal(raw_count(&me, CENI_WIRE_RECORD_CLIENT), 1);
}

static void only_pages_are_kept(void **state) {
    int pipes[2], device = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(pipe(pipes), 0);
    int unsealed = raw_page("x", RAW_PAGE, 0);
    int small = raw_page("x", RAW_PAGE / 2, F_SEAL_SHRINK);
    int right = raw_page("x", RAW_PAGE, F_SEAL_SHRINK);
    const struct {
        const char *uuid;
        int fd;
        const char *why;
    } wrong[] = {{"HOST-0", pipes[0], "a memfd belongs here"},
                 {"HOST-0", device, "a memfd belongs here"},
                 {"HOST-0", unsealed, "not sealed"},
                 {"HOST-0", small, "its size is another"},
                 {"GPU-0", right, "a device's memory belongs here"},
                 {"GPU-0", pipes[0], "a device's memory belongs here"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(raw_send_set(&me, wrong[i].uuid, wrong[i].fd), CEN_ERR_INVALID);
        assert_non_null(strstr(me.reply.why, wrong[i].why));
    }
    assert_int_equal(raw_send_set(&me, "GPU-0", device), CEN_OK);
    assert_int_equal(raw_send_set(&me, "HOST-0", right), CEN_OK);
    const int files[] = {pipes[0], pipes[1], device, unsealed, small, right};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        close(files[i]);
    }
}

static void a_token_has_to_be_whole_and_new(void **state) {
    uint64_t set = raw_set(&me, "x"), id = raw_publish(&me, set, "", NULL);
    assert_int_equal(raw_dial(&other, s.path), CEN_OK);
    assert_int_equal(raw_open_token(&other, id, 3, 5), CEN_ERR_NOT_FOUND);
    assert_int_equal(raw_pages(&other, set), CEN_ERR_PERMISSION);
    assert_int_equal(raw_open_token(&other, id, 3, 4), CEN_OK);
    assert_int_equal(raw_id(&other, CENI_WIRE_CLOSE, id), CEN_OK);
    assert_int_equal(raw_id(&me, CENI_WIRE_WITHDRAW, id), CEN_OK);
    assert_int_equal(raw_open_token(&other, id, 3, 4), CEN_ERR_NOT_FOUND);
    assert_int_equal(raw_pages(&other, set), CEN_ERR_PERMISSION);
    raw_hangup(&other);
}

static void quotas_are_kept(void **state) {
    raw_hangup(&me);
    server_end(&s);
    const cen_broker_options options = {.quota_bytes = 2 * RAW_PAGE, .max_leases = 2};
    assert_true(server_start(&s, &options, 0));
    assert_int_equal(raw_dial(&me, s.path), CEN_OK);
    uint64_t set = raw_set(&me, "x");
    assert_int_not_equal(raw_set(&me, "y"), 0);
    assert_int_equal(raw_set(&me, "z"), 0);
    assert_int_equal(me.reply.head.status, CEN_ERR_LIMIT);
    for (unsigned i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), 0};
        assert_int_not_equal(raw_publish(&me, set, name, NULL), 0);
        assert_int_equal(raw_open(&me, name, 0, 0), i < 2 ? CEN_OK : CEN_ERR_LIMIT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(who_leaves_descriptors_unread_gets_no_more),
        TEST(who_keeps_what_it_sent_is_forgotten_all_the_same),
        TEST(a_close_that_waits_hinders_nobody),
        TEST(closes_that_wait_cost_a_user_few_threads),
        TEST(malformed_messages_cut_off),
        TEST(only_pages_are_kept),
        TEST(a_token_has_to_be_whole_and_new),
        TEST(quotas_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
