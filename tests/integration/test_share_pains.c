/* What users of other ways to share device memory suffer from, a test for each. */
#include <libgen.h>

#include "tests/integration/agent.h"

#define SET   (64ull << 20)
#define PAGE  (2ull << 20)
#define BLOCK (48ull << 20) /* there is no room for two */
#define WORD  0x42424242

typedef struct world {
    agent broker, producer, consumer;
    unsigned long long id; /* of "model", block 0 */
    char token[CEN_SHARE_TOKEN_SIZE];
} world;

static void produce(world *w, const char *name, const char *flags) {
    w->producer = agent_client();
    OK(agent_ask(&w->producer, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&w->producer, "alloc %llu", BLOCK));
    OK(agent_ask(&w->producer, "fill 0 %d", WORD & 0xff));
    OK(agent_ask(&w->producer, "export %s %s 0", name, flags));
    w->id = w->producer.a;
    snprintf(w->token, sizeof w->token, "%.127s", w->producer.text);
}

static world start(void) {
    world w = {.broker = agent_broker()};
    produce(&w, "model", "-");
    w.consumer = agent_client();
    return w;
}

static void reads(agent *g, int view) {
    OK(agent_ask(g, "peek %d 0", view));
    assert_int_equal(g->a, WORD);
}

static void a_producer_dies_and_consumers_keep_everything(void **state) {
    world w = start();
    OK(agent_ask(&w.consumer, "open model 0 0"));
    agent_kill(&w.producer);
    OK(agent_ask(&w.consumer, "notice %d %d", CEN_SHARE_PUBLISHER_GONE, SOON_MS));
    reads(&w.consumer, 0);
    /* Others come and go meanwhile. */
    produce(&w, "model", "-");
    OK(agent_ask(&w.producer, "fill 0 1"));
    reads(&w.consumer, 0);
}

static void nobody_looks_into_another_process(void **state) {
    agent denied = agent_start();
    if (agent_ask(&denied, "deny")) {
        print_message("[  REASON  ] calls cannot be denied here\n");
        skip();
    }
    world w = start();
    agent *all[] = {&w.producer, &w.consumer};
    OK(agent_ask(&denied, "connect %s", agent_path));
    for (size_t i = 0; i < 2; i++) {
        OK(agent_ask(all[i], "deny"));
    }
    OK(agent_ask(&w.consumer, "open model 0 0"));
    OK(agent_ask(&denied, "open %s 0 0", w.token));
    reads(&w.consumer, 0);
    reads(&denied, 0);
    OK(agent_ask(&w.producer, "export model - 0"));
    OK(agent_ask(&denied, "open model 0 0"));
    reads(&denied, 1);
    agent_end(&denied);
    agent_end(&w.consumer);
    agent_end(&w.producer);
}

/* Bytes of addresses that a process has taken. */
static uint64_t addresses_of(pid_t pid) {
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    return strtoull(line, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void an_import_takes_addresses_for_its_set_alone(void **state) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("[  REASON  ] a sanitizer takes addresses of its own at any time\n");
    skip();
#endif
    assert_int_equal(setenv("MALLOC_ARENA_MAX", "1", 1), 0); /* else each thread reserves some */
    world w = start();
    assert_int_equal(unsetenv("MALLOC_ARENA_MAX"), 0);
    /* Once beforehand, for what a stream and its thread take. */
    OK(agent_ask(&w.consumer, "open model 0 0"));
    reads(&w.consumer, 0);
    uint64_t before = addresses_of(w.consumer.pid), without = before;
    OK(agent_ask(&w.consumer, "close 0"));
    for (int ms = 0; without > before - SET; ms++) {
        assert_true(ms < SOON_MS);
        usleep(1000);
        without = addresses_of(w.consumer.pid);
    }
    OK(agent_ask(&w.consumer, "open model 0 0"));
    reads(&w.consumer, 1);
    uint64_t taken = addresses_of(w.consumer.pid) - without;
    if (taken < SET || taken > SET + SET / 4) {
        fail_msg("an import of %llu bytes took %llu", SET, U(taken));
    }
}

static void what_cannot_be_exported_is_said_and_has_a_way(void **state) {
    world w = start();
    FAILS(CEN_ERR_FOREIGN_POINTER, agent_ask(&w.producer, "foreign"));
    if (!strstr(w.producer.text, "item 0") || !strstr(w.producer.text, "no live block")) {
        fail_msg("it says neither what nor why: %s", w.producer.text);
    }
    /* The way: memory of a set. */
    OK(agent_ask(&w.producer, "alloc 4096"));
    OK(agent_ask(&w.producer, "fill 1 %d", WORD & 0xff));
    OK(agent_ask(&w.producer, "export weights - 1"));
    OK(agent_ask(&w.consumer, "open weights 0 0"));
    reads(&w.consumer, 0);
}

static void what_is_never_opened_does_not_stay(void **state) {
    world w = {.broker = agent_broker()};
    produce(&w, "-", "-"); /* a token that went astray */
    OK(agent_ask(&w.producer, "withdraw %llu", w.id));
    OK(agent_ask(&w.producer, "free 0"));
    agent_until_allocated(&w.producer, BLOCK);
    /* A parcel, whose sender dies. */
    OK(agent_ask(&w.producer, "export - 1t 1"));
    agent_kill(&w.producer);
    w.consumer = agent_client();
    agent_until(&w.consumer, "list sets", 0);
    agent_until(&w.consumer, "list exports", 0);
}

/* What the producer goes through to free a block, `others` exports being open. */
static uint64_t steps_of_a_free(int others) {
    agent broker = agent_broker(), producer = agent_client(), consumer = agent_client();
    OK(agent_ask(&producer, "set %llu %llu", SET, PAGE));
    for (int i = 0; i <= others; i++) {
        OK(agent_ask(&producer, "alloc %llu", SET / (unsigned)(others + 1)));
        OK(agent_ask(&producer, "export %d - %d", i, i));
        OK(agent_ask(&consumer, "open %d 0 0", i));
    }
    FAILS(CEN_ERR_DEVICE_MEMORY, agent_ask(&producer, "alloc 4096"));
    OK(agent_ask(&producer, "arm 0"));
    OK(agent_ask(&producer, "free 0"));
    OK(agent_ask(&consumer, "close 0"));
    agent_until_allocated(&producer, 4096);
    OK(agent_ask(&producer, "steps"));
    uint64_t steps = producer.a;
    agent_kill(&producer);
    agent_kill(&consumer);
    agent_kill(&broker);
    return steps;
}

static void a_free_looks_at_no_other_blocks(void **state) {
    uint64_t few = steps_of_a_free(1);
    assert_true(few > 0);
    assert_int_equal(steps_of_a_free(31), few);
}

static void the_memory_of_a_killed_client_is_let_go(void **state) {
    world w = start();
    OK(agent_ask(&w.consumer, "open model 0 0"));
    OK(agent_ask(&w.producer, "free 0"));
    FAILS(CEN_ERR_DEVICE_MEMORY, agent_ask(&w.producer, "alloc %llu", BLOCK));
    agent_kill(&w.consumer);
    agent_until_allocated(&w.producer, BLOCK);
    agent_until(&w.producer, "list leases", 0);
    agent_until(&w.producer, "list clients", 1);
    /* The producer's, too. */
    w.consumer = agent_client();
    agent_kill(&w.producer);
    agent_until(&w.consumer, "list sets", 0);
}

static void imports_are_given_up_while_the_process_lives(void **state) {
    world w = start();
    OK(agent_ask(&w.consumer, "held"));
    uint64_t files = w.consumer.a, maps = w.consumer.b;
    OK(agent_ask(&w.consumer, "open model 0 0"));
    reads(&w.consumer, 0);
    OK(agent_ask(&w.consumer, "held"));
    assert_true(w.consumer.a > files);
    OK(agent_ask(&w.consumer, "close 0"));
    agent_until(&w.consumer, "held", files);
    assert_int_equal(w.consumer.b, maps);
    OK(agent_ask(&w.producer, "free 0"));
    agent_until_allocated(&w.producer, BLOCK);
}

static void isolated_namespaces_share(void **state) {
    if (!agent_can_isolate()) {
        print_message("[  REASON  ] namespaces cannot be made here\n");
        skip();
    }
    world w = start();
    agent_isolated = true;
    agent inside = agent_client();
    agent_isolated = false;
    OK(agent_ask(&inside, "open model 0 0"));
    reads(&inside, 0);
    /* Its death is seen from outside. */
    OK(agent_ask(&w.producer, "free 0"));
    FAILS(CEN_ERR_DEVICE_MEMORY, agent_ask(&w.producer, "alloc %llu", BLOCK));
    agent_kill(&inside);
    agent_until_allocated(&w.producer, BLOCK);
    /* And it shares with those outside. */
    agent_isolated = true;
    produce(&w, "inside", "-");
    agent_isolated = false;
    OK(agent_ask(&w.consumer, "open inside 0 0"));
    reads(&w.consumer, 0);
    agent_kill(&w.producer);
    OK(agent_ask(&w.consumer, "notice %d %d", CEN_SHARE_PUBLISHER_GONE, SOON_MS));
    reads(&w.consumer, 0);
}

static agent without_proc(void) {
    agent g = agent_start();
    if (agent_ask(&g, "hide")) {
        print_message("[  REASON  ] /proc cannot be hidden here\n");
        skip();
    }
    OK(agent_ask(&g, "connect %s", agent_path));
    return g;
}

/* Events of the host backend need it: readers then find the work done that fills an export. */
static void processes_without_proc_share(void **state) {
    if (!agent_on_host()) {
        skip();
    }
    world w = start();
    agent producer = without_proc(), consumer = without_proc();
    OK(agent_ask(&consumer, "open model 0 0"));
    reads(&consumer, 0);
    OK(agent_ask(&producer, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&producer, "alloc %llu", BLOCK));
    OK(agent_ask(&producer, "fill 0 %d", WORD & 0xff));
    OK(agent_ask(&producer, "export inside - 0"));
    unsigned long long id = producer.a;
    char token[CEN_SHARE_TOKEN_SIZE];
    snprintf(token, sizeof token, "%.127s", producer.text);
    OK(agent_ask(&w.consumer, "open inside 0 0"));
    OK(agent_ask(&w.consumer, "event 0"));
    assert_int_equal(w.consumer.a, 0);
    reads(&w.consumer, 0);
    OK(agent_ask(&w.consumer, "open %s 0 0", token)); /* of which machine it is nobody knows */
    reads(&w.consumer, 1);
    OK(agent_ask(&consumer, "open %s 0 0", w.token));
    reads(&consumer, 1);
    OK(agent_ask(&producer, "mark %llu", id));
    /* What one process sends to another only reads, which takes a /proc. */
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    agent_extra = ends[0];
    agent sender = without_proc();
    agent_extra = -1;
    OK(agent_ask(&sender, "set %llu %llu", SET, PAGE));
    OK(agent_ask(&sender, "alloc %llu", BLOCK));
    OK(agent_ask(&sender, "export - - 0"));
    FAILS(CEN_ERR_UNSUPPORTED, agent_ask(&sender, "send %llu %d 1000", U(sender.a), ends[0]));
    close(ends[0]);
    close(ends[1]);
}

/* What `cenote holders` of this build prints. */
static void run_holders(char *text, size_t size) {
    char self[512] = "", command[768];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "'%s/cenote' holders --socket '%s' --json", dirname(self),
             agent_path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t got = fread(text, 1, size - 1, pipe);
    text[got] = '\0';
    assert_int_equal(pclose(pipe), 0);
}

static void orphans_are_named(void **state) {
    static char text[1 << 16];
    char pid[64];
    world w = start();
    OK(agent_ask(&w.consumer, "open model 0 0"));
    snprintf(pid, sizeof pid, "\"publisher_pid\": %d", (int)w.producer.pid);
    run_holders(text, sizeof text);
    assert_non_null(strstr(text, "\"orphan\": false"));
    assert_null(strstr(text, "\"orphan\": true"));
    agent_kill(&w.producer);
    OK(agent_ask(&w.consumer, "notice %d %d", CEN_SHARE_PUBLISHER_GONE, SOON_MS));
    run_holders(text, sizeof text);
    if (!strstr(text, "\"orphan\": true") || !strstr(text, pid) || !strstr(text, "\"model\"")) {
        fail_msg("no orphan of %s in: %s", pid, text);
    }
}

static const struct CMUnitTest tests[] = {
    AGENT_TEST(a_producer_dies_and_consumers_keep_everything),
    AGENT_TEST(nobody_looks_into_another_process),
    AGENT_TEST(an_import_takes_addresses_for_its_set_alone),
    AGENT_TEST(what_cannot_be_exported_is_said_and_has_a_way),
    AGENT_TEST(what_is_never_opened_does_not_stay),
    AGENT_TEST(a_free_looks_at_no_other_blocks),
    AGENT_TEST(the_memory_of_a_killed_client_is_let_go),
    AGENT_TEST(imports_are_given_up_while_the_process_lives),
    AGENT_TEST(isolated_namespaces_share),
    AGENT_TEST(processes_without_proc_share),
    AGENT_TEST(orphans_are_named),
};

AGENT_MAIN(tests)
