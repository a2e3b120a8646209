/* Sharing through a broker, between processes that end well. */
#include "tests/integration/agent.h"

#include <libgen.h>
#include <sys/stat.h>

enum { NEW_VERSION = CEN_SHARE_NEW_VERSION, REVOKED = CEN_SHARE_REVOKED, IDLE = CEN_SHARE_IDLE };

#define SET   (8ull << 20)
#define PAGE  (2ull << 20)
#define BLOCK (6ull << 20)

/* A broker, a publisher with one block of a set, and a reader. */
typedef struct world {
    agent broker, publisher, reader;
} world;

static world start(void) {
    world w = {.broker = agent_broker()};
    w.publisher = agent_client();
    w.reader = agent_client();
    OK(agent_ask(&w.publisher, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&w.publisher, "alloc %llu", BLOCK));
    OK(agent_ask(&w.publisher, "fill 0 %d", 0x42));
    return w;
}

static void stop(world *w) {
    agent_end(&w->reader);
    agent_end(&w->publisher);
    agent_broker_stop(&w->broker);
}

static void an_export_is_read(void **state) {
    world w = start();
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.publisher, "export model - 0 3"));
    uint64_t id = w.publisher.a;
    char token[CEN_SHARE_TOKEN_SIZE];
    snprintf(token, sizeof token, "%.127s", w.publisher.text);
    assert_int_equal(w.publisher.b, 1);
    OK(agent_ask(&w.reader, "open model 0 0"));
    assert_int_equal(w.reader.b, id);
    OK(agent_ask(&w.reader, "peek 0 1"));
    assert_int_equal(w.reader.a, 0x42424242);
    assert_int_equal(w.reader.b, BLOCK / 3);
    assert_string_equal(w.reader.text, "1");
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "peek 0 7"));
    OK(agent_ask(&w.reader, "open %s 0 0", token));
    OK(agent_ask(&w.reader, "open model@1 0 0"));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "open model@2 0 0"));
    OK(agent_ask(&w.publisher, "fill 0 %d", 0x17));
    OK(agent_ask(&w.reader, "peek 2 2"));
    assert_int_equal(w.reader.a, 0x17171717);
    agent_until_listed(&w.reader, "leases", 1);
    OK(agent_ask(&w.reader, "close 0"));
    OK(agent_ask(&w.reader, "close 2"));
    OK(agent_ask(&w.reader, "peek 1 0"));
    OK(agent_ask(&w.reader, "close 1"));
    agent_until_listed(&w.reader, "leases", 0);
    stop(&w);
}

/* What is open already is opened again without the broker. */
static void opening_again_asks_nobody(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export model - 0 3"));
    char token[CEN_SHARE_TOKEN_SIZE];
    snprintf(token, sizeof token, "%.127s", w.publisher.text);
    OK(agent_ask(&w.reader, "open model 0 0"));
    kill(w.broker.pid, SIGSTOP);
    OK(agent_ask(&w.reader, "open %s 0 0", token));
    OK(agent_ask(&w.reader, "open model@1 0 0"));
    OK(agent_ask(&w.reader, "peek 2 0"));
    assert_int_equal(w.reader.a, 0x42424242);
    kill(w.broker.pid, SIGCONT);
    stop(&w);
}

static void a_publisher_reads_its_own(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export model w 0 3"));
    OK(agent_ask(&w.publisher, "open model 0 0"));
    OK(agent_ask(&w.publisher, "peek 0 0"));
    assert_int_equal(w.publisher.a, 0x42424242);
    OK(agent_ask(&w.publisher, "open model 1 0"));
    OK(agent_ask(&w.publisher, "poke 1 0 7"));
    OK(agent_ask(&w.publisher, "peek 0 0"));
    assert_int_equal(w.publisher.a, 0x07070707);
    stop(&w);
}

static void versions_follow_each_other(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export model - 0"));
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.publisher, "export model - 0"));
    assert_int_equal(w.publisher.b, 2);
    OK(agent_ask(&w.reader, "notice %d %d", NEW_VERSION, SOON_MS));
    assert_int_equal(w.reader.b, 2);
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.reader, "info 1"));
    assert_int_equal(w.reader.b, 2);
    OK(agent_ask(&w.reader, "info 0"));
    assert_int_equal(w.reader.b, 1);
    OK(agent_ask(&w.reader, "peek 0 0"));
    OK(agent_ask(&w.publisher, "export model o 0"));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.publisher, "open model@1 0 0"));
    OK(agent_ask(&w.publisher, "open model@2 0 0"));
    OK(agent_ask(&w.publisher, "open model 0 0"));
    OK(agent_ask(&w.publisher, "info 1"));
    assert_int_equal(w.publisher.b, 3);
    OK(agent_ask(&w.reader, "close 0"));
    OK(agent_ask(&w.publisher, "notice %d %d", IDLE, SOON_MS)); /* of the first, which is over */
    stop(&w);
}

static void a_name_is_waited_for(void **state) {
    world w = start();
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "open later 0 20"));
    agent_say(&w.reader, "open later 0 %d", 2 * SOON_MS);
    usleep(20000);
    OK(agent_ask(&w.publisher, "export later - 0"));
    OK(agent_hear(&w.reader));
    OK(agent_ask(&w.reader, "peek 0 0"));
    assert_int_equal(w.reader.a, 0x42424242);
    stop(&w);
}

static void a_name_is_watched(void **state) {
    world w = start();
    OK(agent_ask(&w.reader, "watch news 1"));
    OK(agent_ask(&w.publisher, "export other - 0"));
    OK(agent_ask(&w.publisher, "export news - 0"));
    OK(agent_ask(&w.reader, "notice %d %d", NEW_VERSION, SOON_MS));
    assert_int_equal(w.reader.b, 1);
    OK(agent_ask(&w.reader, "watch news 0"));
    OK(agent_ask(&w.publisher, "export news - 0"));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "notice %d 50", NEW_VERSION));
    stop(&w);
}

static void ten_thousand_items_are_one_export(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export model - 0 10000"));
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.reader, "info 0"));
    assert_int_equal(w.reader.a, 10000);
    OK(agent_ask(&w.reader, "peek 0 9999"));
    assert_int_equal(w.reader.a, 0x42424242);
    assert_string_equal(w.reader.text, "9999");
    stop(&w);
}

static void what_is_withdrawn_opens_no_more(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export model - 0"));
    unsigned long long id = w.publisher.a;
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.publisher, "withdraw %llu", id));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.publisher, "open model 0 0"));
    OK(agent_ask(&w.reader, "peek 0 0"));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.publisher, "notice %d 50", IDLE));
    OK(agent_ask(&w.reader, "close 0"));
    OK(agent_ask(&w.publisher, "notice %d %d", IDLE, SOON_MS));
    assert_int_equal(w.publisher.a, id);
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.publisher, "withdraw %llu", id));
    OK(agent_ask(&w.publisher, "export model - 0"));
    /* another process of the user may */
    OK(agent_ask(&w.reader, "withdraw %llu", U(w.publisher.a)));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "open model 0 0"));
    stop(&w);
}

static void what_is_revoked_is_said_to_readers(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export model - 0"));
    unsigned long long id = w.publisher.a;
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.publisher, "revoke %llu", id));
    OK(agent_ask(&w.reader, "notice %d %d", REVOKED, SOON_MS));
    assert_int_equal(w.reader.a, id);
    OK(agent_ask(&w.reader, "info 0"));
    assert_string_equal(w.reader.text, ".r");
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "open model@1 0 0"));
    OK(agent_ask(&w.reader, "close 0"));
    OK(agent_ask(&w.publisher, "notice %d %d", IDLE, SOON_MS));
    stop(&w);
}

/* The exit status of this build's `cenote revoke`. */
static int run_revoke(const char *words) {
    char self[512] = "", command[1024];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "'%s/cenote' revoke --socket '%s' %s 2>/dev/null",
             dirname(self), agent_path, words);
    int status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void the_command_takes_back(void **state) {
    world w = start();
    char id[32];
    OK(agent_ask(&w.publisher, "export model - 0"));
    OK(agent_ask(&w.reader, "open model 0 0"));
    assert_int_equal(run_revoke("model@2 other"), 1);
    OK(agent_ask(&w.publisher, "open model 0 0"));
    assert_int_equal(run_revoke("--withdraw model@1"), 0);
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.publisher, "open model 0 0"));
    OK(agent_ask(&w.reader, "info 0"));
    assert_string_equal(w.reader.text, "."); /* not told to close it */
    OK(agent_ask(&w.publisher, "export model - 0"));
    snprintf(id, sizeof id, "'#%llx'", U(w.publisher.a));
    OK(agent_ask(&w.reader, "open model 0 0"));
    assert_int_equal(run_revoke(id), 0);
    OK(agent_ask(&w.reader, "notice %d %d", REVOKED, SOON_MS));
    assert_int_equal(w.reader.a, w.publisher.a);
    stop(&w);
}

static void a_free_waits_for_the_lease(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export model - 0"));
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.publisher, "free 0"));
    FAILS(CEN_ERR_DOUBLE_FREE, agent_ask(&w.publisher, "free 0"));
    agent_until_listed(&w.publisher, "exports", 1);
    usleep(20000);
    FAILS(CEN_ERR_DEVICE_MEMORY, agent_ask(&w.publisher, "alloc %llu", BLOCK));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.publisher, "open model 0 0"));
    OK(agent_ask(&w.reader, "peek 0 0"));
    assert_int_equal(w.reader.a, 0x42424242);
    OK(agent_ask(&w.reader, "close 0"));
    agent_until_allocated(&w.publisher, BLOCK);
    agent_until_listed(&w.publisher, "exports", 0);
    stop(&w);
}

static void a_parcel_has_one_receiver(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export - 1 0"));
    char token[CEN_SHARE_TOKEN_SIZE];
    snprintf(token, sizeof token, "%.127s", w.publisher.text);
    OK(agent_ask(&w.publisher, "free 0"));
    usleep(20000);
    FAILS(CEN_ERR_DEVICE_MEMORY, agent_ask(&w.publisher, "alloc %llu", BLOCK));
    OK(agent_ask(&w.reader, "open %s 0 0", token));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.publisher, "open %s 0 0", token));
    OK(agent_ask(&w.reader, "peek 0 0"));
    assert_int_equal(w.reader.a, 0x42424242);
    OK(agent_ask(&w.reader, "close 0"));
    agent_until_allocated(&w.publisher, BLOCK);
    stop(&w);
}

static void writing_is_asked_for(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export model w 0"));
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.reader, "open model@1 1 0"));
    OK(agent_ask(&w.reader, "info 1"));
    assert_string_equal(w.reader.text, ".w");
    OK(agent_ask(&w.reader, "poke 1 0 9"));
    OK(agent_ask(&w.reader, "peek 0 0"));
    assert_int_equal(w.reader.a, 0x09090909);
    if (agent_on_host()) {
        agent_say(&w.reader, "stab 0");
        int status = agent_wait(&w.reader);
        assert_true(WIFSIGNALED(status));
        w.reader = agent_client();
    }
    stop(&w);
}

/* Another user: nothing, reading, or writing, as the list says; the token alone opens nothing. */
static void other_users_get_what_the_list_says(void **state) {
    if (geteuid()) {
        print_message("[  REASON  ] only root can be several users\n");
        skip();
    }
    world w = start();
    assert_int_equal(chmod(agent_folder, 0711), 0);
    agent other = agent_start();
    FAILS(CEN_ERR_INVALID,
          agent_ask(&other, "nothing")); /* its device is open before it is nobody */
    OK(agent_ask(&other, "become 65534"));
    OK(agent_ask(&other, "connect %s", agent_path));
    OK(agent_ask(&w.publisher, "export private - 0"));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&other, "open private 0 0"));
    FAILS(CEN_ERR_PERMISSION, agent_ask(&other, "open %s 0 0", w.publisher.text));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&other, "withdraw %llu", U(w.publisher.a)));
    FAILS(CEN_ERR_INVALID, agent_ask(&w.publisher, "export public r 0"));
    OK(agent_ask(&w.publisher, "drop"));
    OK(agent_ask(&w.publisher, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&w.publisher, "alloc 4096"));
    OK(agent_ask(&w.publisher, "export public rs 1"));
    FAILS(CEN_ERR_PERMISSION, agent_ask(&other, "withdraw %llu", U(w.publisher.a)));
    OK(agent_ask(&other, "open public 0 0"));
    OK(agent_ask(&other, "peek 0 0"));
    FAILS(CEN_ERR_PERMISSION, agent_ask(&other, "open public 1 0"));
    OK(agent_ask(&other, "list sets"));
    assert_int_equal(other.a, 1);
    if (agent_on_host()) {
        agent_say(&other, "stab 0");
        int status = agent_wait(&other);
        assert_true(WIFSIGNALED(status));
    }
    agent_kill(&other);
    stop(&w);
}

static void nothing_is_left_of_what_ended(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export model - 0 10000"));
    uint64_t fds = 0, maps = 0;
    for (int i = 0; i < 3; i++) {
        OK(agent_ask(&w.reader, "open model 0 0"));
        OK(agent_ask(&w.reader, "peek %d 0", i));
        OK(agent_ask(&w.reader, "close %d", i));
        agent_until_listed(&w.reader, "leases", 0);
        usleep(50000); /* the end of a lease is told, and its set unmapped, by different threads */
        OK(agent_ask(&w.reader, "held"));
        fds = i ? fds : w.reader.a; /* a driver opens and maps files of its own the first time */
        maps = i || agent_on_host() ? maps : w.reader.b;
    }
    for (int ms = 0; ms < SOON_MS && (w.reader.a != fds || w.reader.b != maps); ms++) {
        usleep(1000);
        OK(agent_ask(&w.reader, "held"));
    }
    assert_int_equal(w.reader.a, fds);
    assert_int_equal(w.reader.b, maps);
    OK(agent_ask(&w.publisher, "memory"));
    uint64_t before = w.publisher.a;
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.publisher, "drop"));
    OK(agent_ask(&w.publisher, "memory"));
    assert_true(w.publisher.a >= before + SET || !agent_on_host());
    OK(agent_ask(&w.reader, "peek 3 0"));
    assert_int_equal(w.reader.a, 0x42424242);
    agent_until_listed(&w.reader, "sets", 1);
    OK(agent_ask(&w.reader, "close 3"));
    agent_until_listed(&w.reader, "sets", 0);
    stop(&w);
}

static void a_forked_child_is_refused(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "fork"));
    OK(agent_ask(&w.publisher, "export model - 0"));
    OK(agent_ask(&w.reader, "open model 0 0"));
    stop(&w);
}

/* A broker cuts off who sends a malformed message: a name that cannot be one is not sent. */
static void what_is_no_name_is_not_asked_for(void **state) {
    world w = start();
    OK(agent_ask(&w.publisher, "export model - 0"));
    FAILS(CEN_ERR_INVALID, agent_ask(&w.reader, "open mod\tel 0 0"));
    FAILS(CEN_ERR_INVALID, agent_ask(&w.reader, "open mod\tel@1 0 0"));
    FAILS(CEN_ERR_INVALID, agent_ask(&w.reader, "open mod\tel 0 20"));
    FAILS(CEN_ERR_INVALID, agent_ask(&w.reader, "open @1 0 0"));
    FAILS(CEN_ERR_INVALID, agent_ask(&w.reader, "open #1 0 0"));
    FAILS(CEN_ERR_INVALID, agent_ask(&w.publisher, "export #1 - 0"));
    OK(agent_ask(&w.reader, "open model 0 0"));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "notice %d 50", CEN_SHARE_BROKER_GONE));
    stop(&w);
}

static void without_a_broker_that_is_said(void **state) {
    agent g = agent_start();
    FAILS(CEN_ERR_NO_BROKER, agent_ask(&g, "connect /nowhere/broker.sock"));
    OK(agent_ask(&g, "connect -"));
    FAILS(CEN_ERR_NO_BROKER, agent_ask(&g, "open model 0 0"));
    FAILS(CEN_ERR_NO_BROKER, agent_ask(&g, "list sets"));
    agent_end(&g);
}

static const struct CMUnitTest tests[] = {
    AGENT_TEST(an_export_is_read),
    AGENT_TEST(opening_again_asks_nobody),
    AGENT_TEST(a_publisher_reads_its_own),
    AGENT_TEST(versions_follow_each_other),
    AGENT_TEST(a_name_is_waited_for),
    AGENT_TEST(a_name_is_watched),
    AGENT_TEST(ten_thousand_items_are_one_export),
    AGENT_TEST(what_is_withdrawn_opens_no_more),
    AGENT_TEST(what_is_revoked_is_said_to_readers),
    AGENT_TEST(the_command_takes_back),
    AGENT_TEST(a_free_waits_for_the_lease),
    AGENT_TEST(a_parcel_has_one_receiver),
    AGENT_TEST(writing_is_asked_for),
    AGENT_TEST(other_users_get_what_the_list_says),
    AGENT_TEST(nothing_is_left_of_what_ended),
    AGENT_TEST(a_forked_child_is_refused),
    AGENT_TEST(what_is_no_name_is_not_asked_for),
    AGENT_TEST(without_a_broker_that_is_said),
};
AGENT_MAIN(tests)
