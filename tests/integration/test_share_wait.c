/* Waiting for another process's work: until it is done, or never will be. */
#include "tests/integration/agent.h"

#include <sys/stat.h>

enum {
    GONE = CEN_SHARE_PUBLISHER_GONE,
    BROKER_GONE = CEN_SHARE_BROKER_GONE,
    BROKER_BACK = CEN_SHARE_BROKER_BACK
};

#define SET     (8ull << 20)
#define PAGE    (2ull << 20)
#define BLOCK   (6ull << 20)
#define SOON_MS 10000

typedef struct world {
    agent broker, publisher, reader;
    unsigned long long id;
} world;

/* A publisher that has a block, and whose stream is held or not. */
static world start(bool held) {
    world w = {.broker = agent_broker()};
    w.publisher = agent_client();
    w.reader = agent_client();
    OK(agent_ask(&w.publisher, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&w.publisher, "alloc %llu", BLOCK));
    OK(agent_ask(&w.publisher, "fill 0 %d", 0x42));
    if (held) {
        OK(agent_ask(&w.publisher, "gate"));
    }
    return w;
}

/* And whose export a reader has open, and waits for on its stream if the work is held. */
static world start_waiting(void) {
    world w = start(true);
    OK(agent_ask(&w.publisher, "export model k 0"));
    w.id = w.publisher.a;
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.reader, "wait 0"));
    FAILS(CEN_ERR_NOT_READY, agent_ask(&w.reader, "query"));
    return w;
}

static void stop(world *w) {
    agent_end(&w->reader);
    if (w->publisher.pid) {
        agent_end(&w->publisher);
    }
    agent_broker_stop(&w->broker);
}

/* The work will not be done; the device is as it was. */
static void until_lost(agent *g) {
    OK(agent_ask(g, "sync")); /* it goes on */
    FAILS(CEN_ERR_DEVICE_LOST, agent_ask(g, "wait 0"));
    OK(agent_ask(g, "query"));
}

static void a_wait_ends_with_the_work(void **state) {
    world w = start_waiting();
    OK(agent_ask(&w.reader, "wait 0")); /* and another */
    FAILS(CEN_ERR_NOT_READY, agent_ask(&w.reader, "query"));
    OK(agent_ask(&w.publisher, "ungate"));
    OK(agent_ask(&w.reader, "sync"));
    OK(agent_ask(&w.reader, "peek 0 0"));
    assert_int_equal(w.reader.a, 0x42424242);
    stop(&w);
}

static void a_dead_publisher_ends_waits(void **state) {
    world w = start_waiting();
    agent_kill(&w.publisher);
    OK(agent_ask(&w.reader, "sync"));
    OK(agent_ask(&w.reader, "notice %d %d", GONE, SOON_MS));
    until_lost(&w.reader);
    agent late = agent_client();
    OK(agent_ask(&late, "open model 0 0"));
    agent_say(&late, "wait 0"); /* at once, or once it has heard of the end */
    if (!agent_hear(&late)) {
        until_lost(&late);
    }
    agent_end(&late);
    stop(&w);
}

/* Work that is done is no matter for who opens it after the publisher's death. */
static void what_is_done_outlives_its_publisher(void **state) {
    world w = start(false);
    OK(agent_ask(&w.publisher, "export model k 0"));
    agent_kill(&w.publisher);
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.reader, "event 0"));
    assert_int_equal(w.reader.a, 0);
    OK(agent_ask(&w.reader, "peek 0 0"));
    assert_int_equal(w.reader.a, 0x42424242);
    stop(&w);
}

/* Nor for who had it open before the work was done. */
static void what_gets_done_outlives_its_publisher(void **state) {
    world w = start(true);
    OK(agent_ask(&w.publisher, "export model k 0"));
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.reader, "event 0"));
    assert_int_equal(w.reader.a, 1);
    OK(agent_ask(&w.publisher, "ungate"));
    agent_end(&w.publisher); /* which waits for its work */
    OK(agent_ask(&w.reader, "peek 0 0"));
    assert_int_equal(w.reader.a, 0x42424242);
    stop(&w);
}

static void a_publisher_waits_for_itself(void **state) {
    world w = start(true);
    OK(agent_ask(&w.publisher, "export model - 0"));
    OK(agent_ask(&w.publisher, "open model 0 0"));
    OK(agent_ask(&w.publisher, "wait 0"));
    kill(w.broker.pid, SIGKILL); /* nobody is needed for that */
    (void)agent_wait(&w.broker);
    OK(agent_ask(&w.publisher, "notice %d %d", BROKER_GONE, SOON_MS));
    OK(agent_ask(&w.publisher, "ungate"));
    OK(agent_ask(&w.publisher, "peek 0 0"));
    assert_int_equal(w.publisher.a, 0x42424242);
    agent_end(&w.reader);
    agent_end(&w.publisher);
}

/* Also a reader that got no event, since there was no work left, waits for what is marked. */
static void a_mark_is_waited_for(void **state) {
    world w = start(false);
    OK(agent_ask(&w.publisher, "export model - 0"));
    w.id = w.publisher.a;
    OK(agent_ask(&w.reader, "open model 0 0"));
    OK(agent_ask(&w.reader, "event 0"));
    assert_int_equal(w.reader.a, 0);
    for (int i = 0; i < 3; i++) {
        OK(agent_ask(&w.reader, "wait 0"));
        OK(agent_ask(&w.reader, "sync"));
        OK(agent_ask(&w.publisher, "gate"));
        OK(agent_ask(&w.publisher, "mark %llu", w.id));
        OK(agent_ask(&w.reader, "wait 0"));
        FAILS(CEN_ERR_NOT_READY, agent_ask(&w.reader, "query"));
        OK(agent_ask(&w.publisher, "ungate"));
        OK(agent_ask(&w.reader, "sync"));
        OK(agent_ask(&w.publisher, "mark %llu", w.id)); /* of nothing: it is settled */
    }
    stop(&w);
}

static void disconnecting_ends_waits(void **state) {
    world w = start_waiting();
    OK(agent_ask(&w.reader, "close 0"));
    if (agent_on_host()) { /* its stream waits by itself */
        OK(agent_ask(&w.publisher, "ungate"));
    }
    OK(agent_ask(&w.reader, "disconnect"));
    OK(agent_ask(&w.reader, "sync"));
    OK(agent_ask(&w.publisher, "ungate"));
    stop(&w);
}

static void waits_go_on_without_a_broker(void **state) {
    world w = start_waiting();
    kill(w.broker.pid, SIGKILL);
    (void)agent_wait(&w.broker);
    OK(agent_ask(&w.reader, "notice %d %d", BROKER_GONE, SOON_MS));
    OK(agent_ask(&w.reader, "wait 0"));
    FAILS(CEN_ERR_NOT_READY, agent_ask(&w.reader, "query"));
    OK(agent_ask(&w.publisher, "ungate"));
    OK(agent_ask(&w.reader, "sync"));
    w.broker = agent_broker();
    OK(agent_ask(&w.reader, "notice %d %d", BROKER_BACK, SOON_MS));
    OK(agent_ask(&w.publisher, "notice %d %d", BROKER_BACK, SOON_MS));
    OK(agent_ask(&w.publisher, "gate"));
    OK(agent_ask(&w.publisher, "mark %llu", w.id));
    OK(agent_ask(&w.reader, "wait 0"));
    FAILS(CEN_ERR_NOT_READY, agent_ask(&w.reader, "query"));
    OK(agent_ask(&w.publisher, "ungate"));
    OK(agent_ask(&w.reader, "peek 0 0"));
    stop(&w);
}

/* A publisher that dies while there is no broker does not come back to the next. */
static void who_does_not_come_back_is_dead(void **state) {
    world w = start_waiting();
    kill(w.broker.pid, SIGKILL);
    (void)agent_wait(&w.broker);
    OK(agent_ask(&w.reader, "notice %d %d", BROKER_GONE, SOON_MS));
    agent_kill(&w.publisher);
    w.broker = agent_broker();
    OK(agent_ask(&w.reader, "notice %d %d", BROKER_BACK, SOON_MS));
    OK(agent_ask(&w.reader, "sync"));
    stop(&w);
}

/* What is marked while nobody can hear it is waited for at once. */
static void a_mark_without_a_broker_waits(void **state) {
    world w = start(false);
    OK(agent_ask(&w.publisher, "export model - 0"));
    w.id = w.publisher.a;
    OK(agent_ask(&w.reader, "open model 0 0"));
    kill(w.broker.pid, SIGKILL);
    (void)agent_wait(&w.broker);
    OK(agent_ask(&w.publisher, "notice %d %d", BROKER_GONE, SOON_MS));
    OK(agent_ask(&w.publisher, "mark %llu", w.id));
    OK(agent_ask(&w.publisher, "query"));
    w.broker = agent_broker();
    OK(agent_ask(&w.reader, "notice %d %d", BROKER_BACK, SOON_MS));
    OK(agent_ask(&w.reader, "peek 0 0"));
    stop(&w);
}

/* A user whose processes may not open the publisher's events. */
static void another_user_waits(void **state) {
    if (geteuid()) {
        print_message("[  REASON  ] only root can be several users\n");
        skip();
    }
    world w = start(true);
    assert_int_equal(chmod(agent_folder, 0711), 0);
    agent other = agent_start();
    FAILS(CEN_ERR_INVALID, agent_ask(&other, "nothing"));
    OK(agent_ask(&other, "become 65534"));
    OK(agent_ask(&other, "connect %s", agent_path));
    OK(agent_ask(&w.publisher, "export model r 0"));
    w.id = w.publisher.a;
    OK(agent_ask(&other, "open model 0 0"));
    OK(agent_ask(&other, "wait 0"));
    FAILS(CEN_ERR_NOT_READY, agent_ask(&other, "query"));
    OK(agent_ask(&w.publisher, "ungate"));
    OK(agent_ask(&other, "sync"));
    OK(agent_ask(&w.publisher, "gate"));
    OK(agent_ask(&w.publisher, "mark %llu", w.id));
    OK(agent_ask(&other, "wait 0"));
    FAILS(CEN_ERR_NOT_READY, agent_ask(&other, "query"));
    agent_kill(&w.publisher);
    OK(agent_ask(&other, "sync"));
    OK(agent_ask(&other, "notice %d %d", GONE, SOON_MS));
    until_lost(&other);
    agent_end(&other);
    stop(&w);
}

/* ---- over a socket, without a broker ---- */

static world start_direct(int ends[2]) {
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    world w = {.broker = {0}};
    agent_extra = ends[0];
    w.publisher = agent_start();
    agent_extra = ends[1];
    w.reader = agent_start();
    agent_extra = -1;
    OK(agent_ask(&w.publisher, "connect -"));
    OK(agent_ask(&w.reader, "connect -"));
    OK(agent_ask(&w.publisher, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&w.publisher, "alloc %llu", BLOCK));
    OK(agent_ask(&w.publisher, "fill 0 %d", 0x42));
    return w;
}

static void pass(world *w, const int ends[2]) {
    w->id = w->publisher.a;
    agent_say(&w->reader, "receive %d %d", ends[1], SOON_MS);
    OK(agent_ask(&w->publisher, "send %llu %d %d", w->id, ends[0], SOON_MS));
    OK(agent_hear(&w->reader));
    close(ends[0]);
    close(ends[1]);
}

static void a_dead_sender_ends_waits(void **state) {
    int ends[2];
    world w = start_direct(ends);
    OK(agent_ask(&w.publisher, "gate"));
    OK(agent_ask(&w.publisher, "export model - 0"));
    pass(&w, ends);
    OK(agent_ask(&w.reader, "wait 0"));
    FAILS(CEN_ERR_NOT_READY, agent_ask(&w.reader, "query"));
    agent_kill(&w.publisher);
    until_lost(&w.reader);
    agent_end(&w.reader);
}

static void what_is_done_outlives_its_sender(void **state) {
    int ends[2];
    world w = start_direct(ends);
    OK(agent_ask(&w.publisher, "export model - 0"));
    pass(&w, ends);
    agent_kill(&w.publisher);
    OK(agent_ask(&w.reader, "peek 0 0"));
    assert_int_equal(w.reader.a, 0x42424242);
    agent_end(&w.reader);
}

static void a_sender_that_leaves_has_done_its_work(void **state) {
    int ends[2];
    world w = start_direct(ends);
    OK(agent_ask(&w.publisher, "gate"));
    OK(agent_ask(&w.publisher, "export model - 0"));
    pass(&w, ends);
    OK(agent_ask(&w.publisher, "mark %llu", w.id));
    OK(agent_ask(&w.publisher, "ungate"));
    agent_end(&w.publisher);
    OK(agent_ask(&w.reader, "peek 0 0"));
    assert_int_equal(w.reader.a, 0x42424242);
    agent_end(&w.reader);
}

static const struct CMUnitTest tests[] = {
    AGENT_TEST(a_wait_ends_with_the_work),
    AGENT_TEST(a_dead_publisher_ends_waits),
    AGENT_TEST(what_is_done_outlives_its_publisher),
    AGENT_TEST(what_gets_done_outlives_its_publisher),
    AGENT_TEST(a_publisher_waits_for_itself),
    AGENT_TEST(a_mark_is_waited_for),
    AGENT_TEST(disconnecting_ends_waits),
    AGENT_TEST(waits_go_on_without_a_broker),
    AGENT_TEST(who_does_not_come_back_is_dead),
    AGENT_TEST(a_mark_without_a_broker_waits),
    AGENT_TEST(another_user_waits),
    AGENT_TEST(a_dead_sender_ends_waits),
    AGENT_TEST(what_is_done_outlives_its_sender),
    AGENT_TEST(a_sender_that_leaves_has_done_its_work),
};
AGENT_MAIN(tests)
