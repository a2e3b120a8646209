/* Sharing through a broker, when processes die: publishers, readers, and the broker itself. */
#include "tests/integration/agent.h"

enum {
    GONE = CEN_SHARE_PUBLISHER_GONE,
    IDLE = CEN_SHARE_IDLE,
    BROKER_GONE = CEN_SHARE_BROKER_GONE,
    BROKER_BACK = CEN_SHARE_BROKER_BACK
};

#define SET   (8ull << 20)
#define PAGE  (2ull << 20)
#define BLOCK (6ull << 20)

typedef struct world {
    agent broker, publisher, reader;
    char token[CEN_SHARE_TOKEN_SIZE];
    unsigned long long id;
} world;

/* A publisher with an export, named "model", that a reader has open. */
static world start(const char *flags) {
    world w = {.broker = agent_broker()};
    w.publisher = agent_client();
    w.reader = agent_client();
    OK(agent_ask(&w.publisher, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&w.publisher, "alloc %llu", BLOCK));
    OK(agent_ask(&w.publisher, "fill 0 %d", 0x42));
    OK(agent_ask(&w.publisher, "export model %s 0 3", flags));
    w.id = w.publisher.a;
    snprintf(w.token, sizeof w.token, "%.127s", w.publisher.text);
    OK(agent_ask(&w.reader, "open model 0 0"));
    return w;
}

static void reads(agent *g, int view, uint64_t word) {
    OK(agent_ask(g, "peek %d 1", view));
    assert_int_equal(g->a, word);
}

/* Ends the broker as the number says, and starts another. */
static void restart(world *w, int number) {
    kill(w->broker.pid, number);
    (void)agent_wait(&w->broker);
    if (w->publisher.pid) {
        OK(agent_ask(&w->publisher, "notice %d %d", BROKER_GONE, SOON_MS));
    }
    OK(agent_ask(&w->reader, "notice %d %d", BROKER_GONE, SOON_MS));
    reads(&w->reader, 0, 0x42424242); /* also while there is none */
    w->broker = agent_broker();
    if (w->publisher.pid) {
        OK(agent_ask(&w->publisher, "notice %d %d", BROKER_BACK, SOON_MS));
    }
    OK(agent_ask(&w->reader, "notice %d %d", BROKER_BACK, SOON_MS));
}

/* Who had an export open before a restart need not have told the new broker yet: its blocks go with
 * their set only. */
static void is_not_used_again(world *w) {
    usleep(20000);
    FAILS(CEN_ERR_DEVICE_MEMORY, agent_ask(&w->publisher, "alloc %llu", BLOCK));
    OK(agent_ask(&w->publisher, "memory"));
    uint64_t before = w->publisher.a;
    OK(agent_ask(&w->publisher, "drop"));
    OK(agent_ask(&w->publisher, "memory"));
    assert_true(!agent_on_host() || w->publisher.a == before + SET);
}

static void a_killed_reader_lets_go(void **state) {
    world w = start("-");
    OK(agent_ask(&w.publisher, "free 0"));
    FAILS(CEN_ERR_DEVICE_MEMORY, agent_ask(&w.publisher, "alloc %llu", BLOCK));
    agent_kill(&w.reader);
    agent_until_allocated(&w.publisher, BLOCK);
    agent_until_listed(&w.publisher, "leases", 0);
    agent_until_listed(&w.publisher, "clients", 1);
}

static void a_killed_publisher_takes_nothing(void **state) {
    world w = start("-");
    agent_kill(&w.publisher);
    OK(agent_ask(&w.reader, "notice %d %d", GONE, SOON_MS));
    assert_int_equal(w.reader.a, w.id);
    reads(&w.reader, 0, 0x42424242);
    agent late = agent_client();
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&late, "open model 0 0"));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&late, "open %s 0 0", w.token));
    OK(agent_ask(&late, "list sets"));
    assert_int_equal(late.a, 1);
    assert_int_equal(late.b, 1); /* an orphan */
    OK(agent_ask(&w.reader, "close 0"));
    agent_until_listed(&late, "sets", 0);
}

static void what_is_kept_outlives_its_publisher(void **state) {
    world w = start("k");
    agent_kill(&w.publisher);
    OK(agent_ask(&w.reader, "notice %d %d", GONE, SOON_MS));
    OK(agent_ask(&w.reader, "close 0"));
    agent_until_listed(&w.reader, "leases", 0);
    OK(agent_ask(&w.reader, "open model 0 0"));
    reads(&w.reader, 1, 0x42424242);
    OK(agent_ask(&w.reader, "withdraw %llu", w.id));
    OK(agent_ask(&w.reader, "close 1"));
    agent_until_listed(&w.reader, "sets", 0);
}

static void a_publisher_that_leaves_keeps_what_is_kept(void **state) {
    world w = start("k");
    OK(agent_ask(&w.publisher, "export other - 0"));
    agent_end(&w.publisher);
    OK(agent_ask(&w.reader, "open model 0 0"));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "open other 0 0"));
    reads(&w.reader, 1, 0x42424242);
}

static void a_restart_changes_nothing(int number) {
    world w = start("-");
    restart(&w, number);
    agent_until_listed(&w.reader, "leases", 1);
    agent_until_listed(&w.reader, "sets", 1);
    agent late = agent_client();
    OK(agent_ask(&late, "open model 0 %d", SOON_MS));
    assert_int_equal(late.b, w.id);
    reads(&late, 0, 0x42424242);
    OK(agent_ask(&late, "open %s 0 0", w.token));
    OK(agent_ask(&w.publisher, "export model - 0"));
    assert_int_equal(w.publisher.b, 2);
    assert_true(w.publisher.a != w.id);
    OK(agent_ask(&w.publisher, "free 0"));
    OK(agent_ask(&w.reader, "close 0"));
    OK(agent_ask(&late, "close 0"));
    OK(agent_ask(&late, "close 1"));
    agent_until_listed(&w.reader, "leases", 0);
    agent_until_listed(&w.reader, "exports", 0);
    is_not_used_again(&w);
}

static void a_killed_broker_is_told_anew(void **state) {
    a_restart_changes_nothing(SIGKILL);
}

static void a_stopped_broker_is_told_anew(void **state) {
    a_restart_changes_nothing(SIGTERM);
}

/* Nobody but the reader knows the set any more. */
static void a_reader_tells_of_what_is_kept(void **state) {
    world w = start("k");
    agent_kill(&w.publisher);
    OK(agent_ask(&w.reader, "notice %d %d", GONE, SOON_MS));
    restart(&w, SIGKILL);
    agent late = agent_client();
    OK(agent_ask(&late, "open model 0 %d", SOON_MS));
    reads(&late, 0, 0x42424242);
    agent_kill(&w.reader);
    agent_until_listed(&late, "leases", 1);
    reads(&late, 0, 0x42424242);
    OK(agent_ask(&late, "open model 0 0"));
}

static void what_ended_meanwhile_is_not_told(void **state) {
    world w = start("-");
    kill(w.broker.pid, SIGKILL);
    (void)agent_wait(&w.broker);
    OK(agent_ask(&w.reader, "notice %d %d", BROKER_GONE, SOON_MS));
    OK(agent_ask(&w.publisher, "notice %d %d", BROKER_GONE, SOON_MS));
    OK(agent_ask(&w.reader, "close 0"));
    FAILS(CEN_ERR_NO_BROKER, agent_ask(&w.reader, "open model 0 0"));
    FAILS(CEN_ERR_NO_BROKER, agent_ask(&w.publisher, "export model - 0"));
    OK(agent_ask(&w.publisher, "free 0"));
    w.broker = agent_broker();
    OK(agent_ask(&w.reader, "notice %d %d", BROKER_BACK, SOON_MS));
    OK(agent_ask(&w.publisher, "notice %d %d", BROKER_BACK, SOON_MS));
    agent_until_listed(&w.reader, "leases", 0);
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "open model 0 0"));
    agent_until_listed(&w.reader, "exports", 0);
    is_not_used_again(&w);
}

static void those_killed_meanwhile_hold_nothing(void **state) {
    world w = start("-");
    kill(w.broker.pid, SIGKILL);
    (void)agent_wait(&w.broker);
    agent_kill(&w.reader);
    OK(agent_ask(&w.publisher, "free 0"));
    w.broker = agent_broker();
    OK(agent_ask(&w.publisher, "notice %d %d", BROKER_BACK, SOON_MS));
    agent_until_listed(&w.publisher, "exports", 0);
    is_not_used_again(&w);
}

/* A broker that does not answer: the request fails, and what it did all the same is given back. */
static void a_cut_off_request_leaves_nothing(void **state) {
    world w = start("-");
    agent late = agent_start();
    OK(agent_ask(&late, "connect %s 100", agent_path));
    kill(w.broker.pid, SIGSTOP);
    FAILS(CEN_ERR_IO, agent_ask(&late, "open model 0 0"));
    kill(w.broker.pid, SIGCONT);
    OK(agent_ask(&late, "notice %d %d", BROKER_BACK, SOON_MS));
    agent_until_listed(&w.reader, "leases", 1);
    OK(agent_ask(&late, "open model 0 0"));
    agent_until_listed(&w.reader, "leases", 2);
    OK(agent_ask(&late, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&late, "alloc 4096"));
    kill(w.broker.pid, SIGSTOP);
    FAILS(CEN_ERR_IO, agent_ask(&late, "export other - 0"));
    kill(w.broker.pid, SIGCONT);
    OK(agent_ask(&late, "notice %d %d", BROKER_BACK, SOON_MS));
    agent_until_listed(&w.reader, "sets", 1);
    agent_until_listed(&w.reader, "exports", 1);
    OK(agent_ask(&late, "export other - 0"));
    OK(agent_ask(&w.reader, "open other 0 0"));
}

/* Withdrawn by a process that neither publishes nor reads it. */
static void take_back(const char *how, const char *flags, bool publisher_dies) {
    world w = start(flags);
    if (publisher_dies) {
        agent_kill(&w.publisher);
        OK(agent_ask(&w.reader, "notice %d %d", GONE, SOON_MS));
    }
    agent late = agent_client();
    OK(agent_ask(&late, "%s %llu", how, w.id));
    restart(&w, SIGKILL);
    OK(agent_ask(&late, "notice %d %d", BROKER_BACK, SOON_MS));
    agent_until_listed(&late, "leases", 1);
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&late, "open model 0 0"));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&late, "open %s 0 0", w.token));
    restart(&w, SIGKILL); /* nor with the one after */
    OK(agent_ask(&late, "notice %d %d", BROKER_BACK, SOON_MS));
    agent_until_listed(&late, "leases", 1);
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&late, "open model 0 0"));
    OK(agent_ask(&w.reader, "close 0"));
    agent_until_listed(&late, "exports", 0);
    agent_kill(&w.publisher);
    agent_until_listed(&late, "sets", 0);
}

static void what_was_taken_back_stays_so(void **state) {
    take_back("withdraw", "-", false);
    agent_teardown(state);
    take_back("revoke", "k", false);
    agent_teardown(state);
    take_back("withdraw", "k", true);
}

/* The newer version is of another process, which is gone: the older one does not come back. */
static void an_older_version_stays_withdrawn(void **state) {
    world w = start("-");
    agent other = agent_client();
    OK(agent_ask(&other, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&other, "alloc 4096"));
    OK(agent_ask(&other, "export model - 0"));
    assert_int_equal(other.b, 2);
    agent_kill(&other);
    restart(&w, SIGKILL);
    agent_until_listed(&w.reader, "leases", 1);
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&w.reader, "open model 0 0"));
}

/* A reader that is back only when the export is over does not bring it back. */
static void a_late_reader_revives_nothing(void **state) {
    world w = start("k");
    agent late = agent_client(), observer = agent_client();
    OK(agent_ask(&late, "open model 0 0"));
    agent_kill(&w.publisher);
    OK(agent_ask(&w.reader, "notice %d %d", GONE, SOON_MS));
    OK(agent_ask(&late, "notice %d %d", GONE, SOON_MS));
    kill(late.pid, SIGSTOP);
    restart(&w, SIGKILL);
    OK(agent_ask(&observer, "notice %d %d", BROKER_BACK, SOON_MS));
    OK(agent_ask(&w.reader, "withdraw %llu", w.id));
    OK(agent_ask(&w.reader, "close 0"));
    agent_until_listed(&observer, "exports", 0);
    kill(late.pid, SIGCONT);
    OK(agent_ask(&late, "notice %d %d", BROKER_BACK, SOON_MS));
    agent_until_listed(&observer, "leases", 1);
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&observer, "open model 0 0"));
    reads(&late, 0, 0x42424242);
    OK(agent_ask(&late, "close 0"));
    agent_until_listed(&observer, "sets", 0);
}

/* The publisher's connection ends while the broker does not look, and the last lease, too. */
static void idle_reaches_who_was_cut_off(void **state) {
    world w = {.broker = agent_broker(), .publisher = agent_start()};
    OK(agent_ask(&w.publisher, "connect %s 1000", agent_path));
    w.reader = agent_client();
    OK(agent_ask(&w.publisher, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&w.publisher, "alloc %llu", BLOCK));
    OK(agent_ask(&w.publisher, "export model - 0"));
    w.id = w.publisher.a;
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.publisher, "withdraw %llu", w.id));
    OK(agent_ask(&w.publisher, "free 0"));
    kill(w.broker.pid, SIGSTOP);
    OK(agent_ask(&w.reader, "close 0"));
    FAILS(CEN_ERR_IO, agent_ask(&w.publisher, "list leases"));
    OK(agent_ask(&w.publisher, "notice %d %d", BROKER_GONE, SOON_MS));
    kill(w.broker.pid, SIGCONT);
    OK(agent_ask(&w.publisher, "notice %d %d", BROKER_BACK, SOON_MS));
    agent_until_allocated(&w.publisher, BLOCK);
}

static const struct CMUnitTest tests[] = {
    AGENT_TEST(what_was_taken_back_stays_so),
    AGENT_TEST(an_older_version_stays_withdrawn),
    AGENT_TEST(a_late_reader_revives_nothing),
    AGENT_TEST(idle_reaches_who_was_cut_off),
    AGENT_TEST(a_killed_reader_lets_go),
    AGENT_TEST(a_killed_publisher_takes_nothing),
    AGENT_TEST(what_is_kept_outlives_its_publisher),
    AGENT_TEST(a_publisher_that_leaves_keeps_what_is_kept),
    AGENT_TEST(a_killed_broker_is_told_anew),
    AGENT_TEST(a_stopped_broker_is_told_anew),
    AGENT_TEST(a_reader_tells_of_what_is_kept),
    AGENT_TEST(what_ended_meanwhile_is_not_told),
    AGENT_TEST(those_killed_meanwhile_hold_nothing),
    AGENT_TEST(a_cut_off_request_leaves_nothing),
};
AGENT_MAIN(tests)
