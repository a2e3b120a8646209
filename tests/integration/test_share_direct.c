/* Sharing over a socket, without a broker. */
#include "tests/integration/agent.h"

#define BLOCK (6 * MIB)

/* A publisher and a reader with a socket between them; both know the numbers of its ends. */
typedef struct pair {
    agent publisher, reader;
    int ends[2];
    uint64_t id;
} pair;

static pair start(int type) {
    pair p;
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, p.ends), 0);
    agent_extra = p.ends[0];
    p.publisher = agent_start();
    agent_extra = p.ends[1];
    p.reader = agent_start();
    agent_extra = -1;
    OK(agent_ask(&p.publisher, "connect -"));
    OK(agent_ask(&p.reader, "connect -"));
    OK(agent_ask(&p.publisher, "set %llu %llu", 8 * MIB, 2 * MIB));
    OK(agent_ask(&p.publisher, "alloc %llu", BLOCK));
    OK(agent_ask(&p.publisher, "fill 0 %d", 0x42));
    OK(agent_ask(&p.publisher, "export model - 0 3"));
    p.id = p.publisher.a;
    return p;
}

static void pass(pair *p) {
    agent_say(&p->reader, "receive %d 10000", p->ends[1]);
    OK(agent_ask(&p->publisher, "send %llu %d 10000", U(p->id), p->ends[0]));
    OK(agent_hear(&p->reader));
}

static void stop(pair *p) {
    agent_kill(&p->publisher);
    agent_kill(&p->reader);
    close(p->ends[0]);
    close(p->ends[1]);
}

static void an_export_goes_over(int type) {
    pair p = start(type);
    OK(agent_ask(&p.reader, "held"));
    uint64_t fds = p.reader.a, maps = p.reader.b;
    pass(&p);
    OK(agent_ask(&p.reader, "info 0"));
    assert_int_equal(p.reader.a, 3);
    assert_string_equal(p.reader.text, ".");
    OK(agent_ask(&p.reader, "peek 0 2"));
    assert_int_equal(p.reader.a, 0x42424242);
    assert_int_equal(p.reader.b, 2 << 20);
    assert_string_equal(p.reader.text, "2");
    OK(agent_ask(&p.publisher, "fill 0 %d", 0x55));
    OK(agent_ask(&p.reader, "peek 0 0"));
    assert_int_equal(p.reader.a, 0x55555555);
    pass(&p); /* the same again, over the same socket */
    OK(agent_ask(&p.reader, "close 0"));
    OK(agent_ask(&p.reader, "close 1"));
    for (int i = 0; i < 2000 && (p.reader.a != fds || p.reader.b != maps); i++) {
        OK(agent_ask(&p.reader, "held"));
        usleep(1000);
    }
    assert_int_equal(p.reader.a, fds);
    assert_int_equal(p.reader.b, maps);
    agent_end(&p.reader);
    agent_end(&p.publisher);
    stop(&p);
}

static void over_a_stream(void **state) {
    an_export_goes_over(SOCK_STREAM);
}

static void over_messages(void **state) {
    an_export_goes_over(SOCK_SEQPACKET);
}

/* A block of 6 of 8 MiB is had again only once the reader has closed it. */
static void a_free_waits_for_the_reader(void **state) {
    pair p = start(SOCK_STREAM);
    pass(&p);
    OK(agent_ask(&p.publisher, "free 0"));
    usleep(20000);
    FAILS(CEN_ERR_DEVICE_MEMORY, agent_ask(&p.publisher, "alloc %llu", BLOCK));
    OK(agent_ask(&p.reader, "close 0"));
    agent_until_allocated(&p.publisher, BLOCK);
    stop(&p);
}

static void a_killed_reader_leaves_its_blocks_unused(void **state) {
    pair p = start(SOCK_STREAM);
    pass(&p);
    OK(agent_ask(&p.publisher, "free 0"));
    agent_kill(&p.reader);
    OK(agent_ask(&p.publisher, "alloc %llu", 2 * MIB)); /* what was free is */
    for (int i = 0; i < 50; i++) {
        usleep(2000);
        FAILS(CEN_ERR_DEVICE_MEMORY, agent_ask(&p.publisher, "alloc 512"));
    }
    stop(&p);
}

static void a_killed_publisher_takes_nothing(void **state) {
    pair p = start(SOCK_SEQPACKET);
    pass(&p);
    agent_kill(&p.publisher);
    OK(agent_ask(&p.reader, "peek 0 1"));
    assert_int_equal(p.reader.a, 0x42424242);
    stop(&p);
}

static void readers_cannot_write(void **state) {
    if (!agent_on_host()) {
        print_message("[  REASON  ] on CUDA a kernel that writes would end the context\n");
        skip();
    }
    pair p = start(SOCK_STREAM);
    pass(&p);
    agent_say(&p.reader, "stab 0");
    int status = agent_wait(&p.reader);
    assert_true(WIFSIGNALED(status));
    OK(agent_ask(&p.publisher, "fill 0 1"));
    stop(&p);
}

static void what_is_no_export_is_refused(void **state) {
    pair p = start(SOCK_STREAM);
    char junk[64];
    memset(junk, 0x7f, sizeof junk);
    OK(agent_ask(&p.reader, "held"));
    uint64_t fds = p.reader.a, maps = p.reader.b;
    assert_int_equal(write(p.ends[0], junk, sizeof junk), sizeof junk);
    FAILS(CEN_ERR_FORMAT, agent_ask(&p.reader, "receive %d 1000", p.ends[1]));
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&p.publisher, "send 12345 %d 100", p.ends[0]));
    OK(agent_ask(&p.reader, "held"));
    assert_int_equal(p.reader.a, fds);
    assert_int_equal(p.reader.b, maps);
    stop(&p);
}

/* The sender's message stops half way. */
static void half_a_message_is_refused(void **state) {
    pair p = start(SOCK_STREAM);
    int own[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, own), 0);
    assert_int_equal(send(p.ends[0], "\x18\0\0\0\x01\0\x01\0", 8, 0), 8);
    FAILS(CEN_ERR_IO, agent_ask(&p.reader, "receive %d 50", p.ends[1]));
    assert_int_equal(send(p.ends[0], "\x18\0\0\0\x01\0\x01\0", 8, 0), 8);
    agent_say(&p.reader, "receive %d 10000", p.ends[1]);
    agent_kill(&p.publisher);
    close(p.ends[0]);
    FAILS(CEN_ERR_TRUNCATED, agent_hear(&p.reader));
    p.ends[0] = own[0];
    close(own[1]);
    stop(&p);
}

/* Nobody reads, or nobody answers: the sender gives up, and its blocks stay its own. */
static void a_sender_does_not_wait_for_ever(void **state) {
    pair p = start(SOCK_STREAM);
    FAILS(CEN_ERR_IO, agent_ask(&p.publisher, "send %llu %d 50", U(p.id), p.ends[0]));
    /* what came late is of a sender that gave up */
    FAILS(CEN_ERR_TRUNCATED, agent_ask(&p.reader, "receive %d 1000", p.ends[1]));
    stop(&p);
}

static const struct CMUnitTest tests[] = {
    AGENT_TEST(over_a_stream),
    AGENT_TEST(over_messages),
    AGENT_TEST(a_free_waits_for_the_reader),
    AGENT_TEST(a_killed_reader_leaves_its_blocks_unused),
    AGENT_TEST(a_killed_publisher_takes_nothing),
    AGENT_TEST(readers_cannot_write),
    AGENT_TEST(what_is_no_export_is_refused),
    AGENT_TEST(half_a_message_is_refused),
    AGENT_TEST(a_sender_does_not_wait_for_ever),
};
AGENT_MAIN(tests)
