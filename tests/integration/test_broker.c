/* The broker over real sockets, with clients that share, die and dawdle. */
#include <sched.h>

#include "tests/integration/broker_fixture.h"

/* Maps the page that came with PAGES; whether that may be written to. */
static char *map_page(const raw *r, int protection) {
    void *at = mmap(NULL, RAW_PAGE, protection, MAP_SHARED, r->fds[0], 0);
    return at == MAP_FAILED ? NULL : at;
}

static int read_weights(void *arg) {
    raw *r = &other;
    CHECK_IN_CHILD(!raw_dial(r, s.path));
    CHECK_IN_CHILD(!raw_open(r, "weights", 0, 0));
    uint64_t set = ((const ceni_wire_open_reply *)r->reply.body)->set;
    CHECK_IN_CHILD(!raw_pages(r, set) && r->fd_count == 1);
    const char *at = map_page(r, PROT_READ);
    CHECK_IN_CHILD(at && !strcmp(at, "one copy"));
    CHECK_IN_CHILD(!map_page(r, PROT_READ | PROT_WRITE));
    CHECK_IN_CHILD(raw_open(r, "weights", CENI_WIRE_OPEN_WRITE, 0) == CEN_ERR_PERMISSION);
    return 0;
}

static void two_processes_share_a_page(void **state) {
    uint64_t set = raw_set(&me, "one copy");
    assert_int_not_equal(raw_publish(&me, set, "weights", NULL), 0);
    child c = child_start(read_weights, NULL);
    assert_int_equal(child_result(&c), 0);
    child_kill(&c);
}

static int write_as_another(void *arg) {
    raw *r = &other;
    CHECK_IN_CHILD(!setgid(65533) && !setuid(65533));
    CHECK_IN_CHILD(!raw_dial(r, s.path));
    CHECK_IN_CHILD(raw_open(r, "closed", 0, 0) == CEN_ERR_NOT_FOUND);
    CHECK_IN_CHILD(!raw_open(r, "read", 0, 0));
    CHECK_IN_CHILD(!raw_pages(r, ((const ceni_wire_open_reply *)r->reply.body)->set));
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", r->fds[0]);
    CHECK_IN_CHILD(open(path, O_RDWR) < 0 && errno == EACCES);
    CHECK_IN_CHILD(!raw_open(r, "write", CENI_WIRE_OPEN_WRITE, 0));
    CHECK_IN_CHILD(!raw_pages(r, ((const ceni_wire_open_reply *)r->reply.body)->set));
    char *at = map_page(r, PROT_READ | PROT_WRITE);
    CHECK_IN_CHILD(at);
    at[0] = 'W';
    return 0;
}

static void another_user_gets_what_the_list_grants(void **state) {
    if (geteuid()) {
        print_message("skipped: only root becomes another user\n");
        skip();
    }
    const ceni_wire_access reads = {CEN_SHARE_USER, 65533, 0, 0};
    const ceni_wire_access writes = {CEN_SHARE_GROUP, 65533, 1, 0};
    raw_publish(&me, raw_set(&me, "x"), "closed", NULL);
    raw_publish(&me, raw_set(&me, "x"), "read", &reads);
    uint64_t set = raw_set(&me, "x");
    raw_publish(&me, set, "write", &writes);
    child c = child_start(write_as_another, NULL);
    assert_int_equal(child_result(&c), 0);
    assert_int_equal(raw_open(&me, "write", 0, 0), CEN_OK);
    assert_int_equal(raw_pages(&me, set), CEN_OK);
    const char *at = map_page(&me, PROT_READ);
    assert_int_equal(at[0], 'W');
    child_kill(&c);
}

static int open_weights(void *arg) {
    CHECK_IN_CHILD(!raw_dial(&other, s.path));
    CHECK_IN_CHILD(other.death_known);
    CHECK_IN_CHILD(!raw_open(&other, "weights", 0, 0));
    return 0;
}

static void a_killed_client_leaves_no_lease(void **state) {
    uint64_t id = raw_publish(&me, raw_set(&me, "x"), "weights", NULL);
    child c = child_start(open_weights, NULL);
    assert_int_equal(child_result(&c), 0);
    assert_int_equal(raw_count(&me, CENI_WIRE_RECORD_LEASE), 1);
    assert_int_equal(raw_id(&me, CENI_WIRE_WITHDRAW, id), CEN_OK);
    child_kill(&c);
    assert_true(raw_hear(&me, CEN_SHARE_IDLE));
    assert_true(me.notice.export_id == id && !me.notice.unclean);
    assert_int_equal(raw_count(&me, CENI_WIRE_RECORD_EXPORT), 0);
}

static int open_and_hang_up(void *arg) {
    int failed = open_weights(arg);
    raw_hangup(&other);
    return failed;
}

static void a_closed_socket_is_no_death(void **state) {
    uint64_t id = raw_publish(&me, raw_set(&me, "x"), "weights", NULL);
    child c = child_start(open_and_hang_up, NULL);
    assert_int_equal(child_result(&c), 0);
    assert_true(raw_until(&me, CENI_WIRE_RECORD_CLIENT, 1)); /* the broker has seen it */
    assert_int_equal(raw_count(&me, CENI_WIRE_RECORD_LEASE), 1);
    assert_int_equal(raw_id(&me, CENI_WIRE_REVOKE, id), CEN_OK);
    assert_int_equal(raw_count(&me, CENI_WIRE_RECORD_LEASE), 1);
    child_kill(&c);
    assert_true(raw_hear(&me, CEN_SHARE_IDLE));
    assert_int_equal(me.notice.unclean, 0);
}

static int resume(void *arg) {
    CHECK_IN_CHILD(!open_weights(arg));
    uint64_t id = other.id, secret = other.secret;
    raw_hangup(&other);
    other.socket = raw_connect(s.path);
    CHECK_IN_CHILD(!raw_hello(&other, id, secret + 1) && !other.resumed); /* a guess */
    raw_hangup(&other);
    other.socket = raw_connect(s.path);
    CHECK_IN_CHILD(!raw_hello(&other, id, secret) && other.resumed && other.id == id);
    CHECK_IN_CHILD(raw_count(&other, CENI_WIRE_RECORD_LEASE) == 1);
    return 0;
}

static void a_process_resumes_its_connection(void **state) {
    uint64_t id = raw_publish(&me, raw_set(&me, "x"), "weights", NULL);
    child c = child_start(resume, NULL);
    assert_int_equal(child_result(&c), 0);
    assert_int_equal(raw_id(&me, CENI_WIRE_WITHDRAW, id), CEN_OK);
    child_kill(&c);
    assert_true(raw_hear(&me, CEN_SHARE_IDLE));
}

static int publish_and_die(void *arg) {
    CHECK_IN_CHILD(!raw_dial(&other, s.path));
    CHECK_IN_CHILD(raw_publish(&other, raw_set(&other, "left behind"), "weights", NULL));
    return 0;
}

static void a_dead_publishers_pages_stay_with_readers(void **state) {
    child c = child_start(publish_and_die, NULL);
    assert_int_equal(child_result(&c), 0);
    assert_int_equal(raw_open(&me, "weights", 0, 0), CEN_OK);
    const ceni_wire_open_reply open = *(const ceni_wire_open_reply *)me.reply.body;
    child_kill(&c);
    assert_true(raw_hear(&me, CEN_SHARE_PUBLISHER_GONE));
    assert_int_equal(raw_pages(&me, open.set), CEN_OK);
    assert_string_equal(map_page(&me, PROT_READ), "left behind");
    assert_int_equal(raw_open(&me, "weights", 0, 0), CEN_ERR_NOT_FOUND);
    assert_int_equal(raw_id(&me, CENI_WIRE_CLOSE, open.export_id), CEN_OK);
    assert_int_equal(raw_count(&me, CENI_WIRE_RECORD_SET), 0);
}

static int wait_for_weights(void *arg) {
    CHECK_IN_CHILD(!raw_dial(&other, s.path));
    CHECK_IN_CHILD(raw_open(&other, "never", 0, 1) == CEN_ERR_NOT_FOUND);
    CHECK_IN_CHILD(!raw_open(&other, "weights", 0, RAW_PATIENCE_S * 1000));
    CHECK_IN_CHILD(raw_count(&other, CENI_WIRE_RECORD_LEASE) == 1); /* and is heard again */
    return 0;
}

static void an_open_waits_until_the_name_is_there(void **state) {
    child c = child_start(wait_for_weights, NULL);
    assert_true(raw_until(&me, CENI_WIRE_RECORD_CLIENT, 2));
    assert_int_not_equal(raw_publish(&me, raw_set(&me, "x"), "weights", NULL), 0);
    assert_int_equal(child_result(&c), 0);
    child_kill(&c);
}

/* ---- those who dawdle ---- */

static int watch_and_sleep(void *arg) {
    CHECK_IN_CHILD(!raw_dial(&other, s.path));
    ceni_wire_watch *b = ceni_wire_begin(&raw_out, CENI_WIRE_WATCH, 1, sizeof *b);
    *b = (ceni_wire_watch){1, 7};
    ceni_wire_add(&raw_out, "weights", 7);
    CHECK_IN_CHILD(!raw_call(&other, NULL, 0));
    return 0;
}

static void who_reads_no_notices_is_cut_off(void **state) {
    child c = child_start(watch_and_sleep, NULL);
    assert_int_equal(child_result(&c), 0);
    uint64_t set = raw_set(&me, "x");
    static uint64_t in[CENI_WIRE_MAX / 8];
    int fds[CENI_WIRE_FDS];
    unsigned fd_count, rounds = 0;
    size_t size;
    for (; raw_count(&me, CENI_WIRE_RECORD_CLIENT) == 2 && rounds < 100000; rounds++) {
        assert_int_not_equal(raw_publish(&me, set, "weights", NULL), 0);
        while (!ceni_wire_receive(me.notices, in, &size, fds, &fd_count, true)) {
        }
    }
    assert_in_range(rounds, 100, 99999); /* some are waited for */
    child_kill(&c);
}

/* Reads what is there, which must be the ends of exports, in their order; how many. */
static unsigned hear_ends(int notices, const uint64_t *ids) {
    static uint64_t in[CENI_WIRE_MAX / 8];
    ceni_wire_message m;
    int fds[CENI_WIRE_FDS];
    unsigned fd_count, heard = 0;
    size_t size;
    while (!ceni_wire_receive(notices, in, &size, fds, &fd_count, true)) {
        assert_int_equal(ceni_wire_check(in, size, fd_count, CENI_WIRE_NOTIFY, &m), CEN_OK);
        const ceni_wire_notice *n = m.body;
        assert_int_equal(n->kind, CEN_SHARE_IDLE);
        assert_true(n->export_id == ids[heard++]);
    }
    return heard;
}

/* What waited for room in the socket when the connection ended comes with the next. */
static void notices_outlive_their_connection(void **state) {
    enum { MANY = 1000 };
    static uint64_t ids[MANY];
    uint64_t set = raw_set(&me, "x");
    for (unsigned i = 0; i < MANY; i++) {
        ids[i] = raw_publish(&me, set, "", NULL);
    }
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(raw_id(&me, CENI_WIRE_WITHDRAW, ids[i]), CEN_OK);
    }
    int before = me.notices;
    uint64_t id = me.id, secret = me.secret;
    shutdown(before, SHUT_RDWR);
    close(me.socket);
    unsigned heard = hear_ends(before, ids);
    close(before);
    assert_in_range(heard, 1, MANY - 1);
    me = (raw){.socket = raw_connect(s.path), .notices = -1};
    assert_int_equal(raw_hello(&me, id, secret), CEN_OK);
    assert_true(me.resumed);
    while (heard < MANY) {
        struct pollfd p = {.fd = me.notices, .events = POLLIN};
        assert_int_equal(poll(&p, 1, RAW_PATIENCE_S * 1000), 1);
        heard += hear_ends(me.notices, ids + heard);
    }
    assert_int_equal(raw_id(&me, CENI_WIRE_DROP, set), CEN_OK);
}

static int never_read(void *arg) {
    CHECK_IN_CHILD(!raw_dial(&other, s.path));
    ceni_wire_begin(&raw_out, CENI_WIRE_LIST, 1, sizeof(ceni_wire_list));
    while (!ceni_wire_send(other.socket, &raw_out, NULL, 0, true)) {
    }
    return 0;
}

static void who_reads_no_replies_hinders_nobody(void **state) {
    child c = child_start(never_read, NULL);
    assert_int_equal(child_result(&c), 0);
    assert_int_not_equal(raw_publish(&me, raw_set(&me, "x"), "weights", NULL), 0);
    assert_int_equal(raw_open(&me, "weights", 0, 0), CEN_OK);
    child_kill(&c);
    assert_true(raw_until(&me, CENI_WIRE_RECORD_CLIENT, 1));
}

/* ---- the broker's own troubles ---- */

static void without_descriptors_it_refuses_and_goes_on(void **state) {
    enum { MANY = 80 };
    static raw clients[MANY];
    raw_hangup(&me);
    server_end(&s);
    const cen_broker_options options = {.max_clients = 1000};
    assert_true(server_start(&s, &options, 64));
    unsigned count = 0;
    cen_status status = CEN_OK;
    /* Connections that say nothing: no limit of the user's stops them before the descriptors do. */
    int sockets[MANY];
    for (; count < MANY; count++) {
        sockets[count] = raw_connect(s.path);
        assert_true(sockets[count] >= 0);
    }
    clients[0] = (raw){.socket = sockets[MANY - 1], .notices = -1};
    status = raw_receive(&clients[0]);
    assert_true(status == CEN_ERR_LIMIT || status == CEN_ERR_NO_BROKER);
    for (unsigned i = 0; i < MANY; i++) {
        close(sockets[i]);
    }
    for (unsigned i = 0; i < RAW_PATIENCE_S * 100 && raw_dial(&me, s.path); i++) {
        raw_hangup(&me);
        usleep(10000);
    }
    assert_int_not_equal(raw_set(&me, "x"), 0);
}

static void a_broker_that_comes_back_is_told(void **state) {
    int page = raw_page("again", RAW_PAGE, F_SEAL_SHRINK);
    assert_int_equal(raw_send_set(&me, "HOST-0", page), CEN_OK);
    uint64_t set = ((const ceni_wire_set_reply *)me.reply.body)->set;
    uint64_t id = raw_publish(&me, set, "weights", NULL), client = me.id, secret = me.secret;
    assert_true(server_kill(&s));
    assert_int_equal(raw_receive(&me), CEN_ERR_NO_BROKER);
    raw_hangup(&me);
    assert_true(server_run(&s, NULL, 0)); /* over the socket's file that the dead one left */
    me.socket = raw_connect(s.path);
    assert_int_equal(raw_hello(&me, client, secret), CEN_OK);
    assert_false(me.resumed);
    ceni_wire_set *b = ceni_wire_begin(&raw_out, CENI_WIRE_SET, 9, sizeof *b);
    *b = (ceni_wire_set){.set = set, .bytes = RAW_PAGE, .page_bytes = RAW_PAGE, .page_count = 1};
    b->again = 1;
    strcpy(b->uuid, "HOST-0");
    assert_int_equal(raw_call(&me, &page, 1), CEN_OK);
    close(page);
    ceni_wire_publish *p = ceni_wire_begin(&raw_out, CENI_WIRE_PUBLISH, 10, sizeof *p);
    *p = (ceni_wire_publish){.set = set, .export_id = id, .version = 1, .token = {3, 4}};
    p->flags = CENI_WIRE_AGAIN;
    p->name_size = 7;
    p->directory_size = 3;
    ceni_wire_add(&raw_out, "weights", 7);
    ceni_wire_add(&raw_out, "dir", 3);
    assert_int_equal(raw_call(&me, NULL, 0), CEN_OK);
    assert_int_equal(raw_open(&me, "weights", 0, 0), CEN_OK);
    assert_int_equal(raw_pages(&me, set), CEN_OK);
    assert_string_equal(map_page(&me, PROT_READ), "again");
}

static void a_place_is_taken_only_if_nobody_has_it(void **state) {
    cen_broker *broker;
    cen_broker_options options = {.size = sizeof options, .socket = s.path};
    assert_int_equal(cen_broker_create(&options, &broker), CEN_ERR_BUSY);
    char path[128];
    snprintf(path, sizeof path, "%s/file", s.folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    options.socket = path;
    assert_int_equal(cen_broker_create(&options, &broker), CEN_ERR_IO);
    assert_non_null(strstr(cen_log_last_error(), "no socket"));
    assert_int_equal(unlink(path), 0);
    options.mode = 0640;
    assert_int_equal(cen_broker_create(&options, &broker), CEN_OK);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_string_equal(cen_broker_socket(broker), path);
    cen_broker_stop(broker);
    assert_int_equal(cen_broker_run(broker), CEN_OK);
    cen_broker_destroy(broker);
    assert_int_not_equal(stat(path, &st), 0);
    options.listen_fd = 1;
    assert_int_equal(cen_broker_create(&options, &broker), CEN_ERR_INVALID);
}

/* ---- containers ---- */

/* 77: not permitted here. The process that has the lease is the first of its PID namespace, and
 * tells its number outside to who kills it. */
static int open_from_namespaces(void *arg) {
    pid_t *inner = arg;
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)) {
        return 77;
    }
    int said[2];
    char result;
    CHECK_IN_CHILD(!pipe(said));
    pid_t pid = fork();
    if (!pid) {
        result = (char)open_weights(arg);
        _exit(write(said[1], &result, 1) == 1 ? (pause(), 0) : 1);
    }
    CHECK_IN_CHILD(pid > 0);
    *inner = pid;
    return read(said[0], &result, 1) == 1 ? result : 1;
}

static void isolated_namespaces_share_and_die(void **state) {
    uint64_t id = raw_publish(&me, raw_set(&me, "x"), "weights", NULL);
    pid_t *inner =
        mmap(NULL, sizeof *inner, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    child c = child_start(open_from_namespaces, inner);
    int result = child_result(&c);
    if (result == 77) {
        child_kill(&c);
        print_message("skipped: unshare of user, PID and network namespaces is not permitted\n");
        skip();
    }
    assert_int_equal(result, 0);
    assert_int_equal(raw_count(&me, CENI_WIRE_RECORD_LEASE), 1);
    assert_int_equal(raw_id(&me, CENI_WIRE_WITHDRAW, id), CEN_OK);
    assert_true(*inner > 0);
    kill(*inner, SIGKILL);
    assert_true(raw_hear(&me, CEN_SHARE_IDLE));
    assert_int_equal(me.notice.unclean, 0);
    child_kill(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(two_processes_share_a_page),
        TEST(another_user_gets_what_the_list_grants),
        TEST(a_killed_client_leaves_no_lease),
        TEST(a_closed_socket_is_no_death),
        TEST(a_process_resumes_its_connection),
        TEST(a_dead_publishers_pages_stay_with_readers),
        TEST(an_open_waits_until_the_name_is_there),
        TEST(who_reads_no_notices_is_cut_off),
        TEST(notices_outlive_their_connection),
        TEST(who_reads_no_replies_hinders_nobody),
        TEST(without_descriptors_it_refuses_and_goes_on),
        TEST(a_broker_that_comes_back_is_told),
        TEST(a_place_is_taken_only_if_nobody_has_it),
        TEST(isolated_namespaces_share_and_die),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
