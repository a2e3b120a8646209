/* The client over brokers that are slow, stopped, absent, or do not take what they are told: some
 * are a thread here that answers as a test wants it, others real ones. */
#include <pthread.h>
#include <sys/un.h>

#include "base/fd.h"
#include "dev/capture.h"
#include "tests/integration/agent.h"

/* ---- a broker of the test's ---- */

enum { FAKE_HEARD_MOST = 4096 };

typedef struct heard {
    unsigned type;
    uint64_t id;
    char name[64];
} heard;

typedef struct fake {
    int listening;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    heard heard[FAKE_HEARD_MOST];
    size_t count;
    bool held;           /* it does not answer meanwhile */
    bool hangs_up, over; /* it ends its connection; it ends */
    const char *refused; /* name of an export that it does not take again */
    uint64_t ids;
} fake;

static fake f;

static void fake_note(const ceni_wire_message *m) {
    pthread_mutex_lock(&f.lock);
    assert_true(f.count < FAKE_HEARD_MOST);
    heard *h = &f.heard[f.count++];
    *h = (heard){.type = m->head.type};
    if (h->type == CENI_WIRE_CLOSE || h->type == CENI_WIRE_WITHDRAW) {
        h->id = ((const ceni_wire_id *)m->body)->id;
    } else if (m->name_size) {
        snprintf(h->name, sizeof h->name, "%.*s", (int)m->name_size, m->name);
    }
    pthread_cond_broadcast(&f.changed);
    while (f.held && h->type != CENI_WIRE_HELLO) {
        pthread_cond_wait(&f.changed, &f.lock);
    }
    pthread_mutex_unlock(&f.lock);
}

static void fake_reply(const ceni_wire_message *m, ceni_wire_builder *out) {
    static const size_t bodies[] = {[CENI_WIRE_HELLO] = sizeof(ceni_wire_hello_reply),
                                    [CENI_WIRE_SET] = sizeof(ceni_wire_set_reply),
                                    [CENI_WIRE_PUBLISH] = sizeof(ceni_wire_publish_reply),
                                    [CENI_WIRE_LIST] = sizeof(ceni_wire_list_reply),
                                    [CENI_WIRE_EVENT] = sizeof(ceni_wire_event)};
    enum ceni_wire_type type = (enum ceni_wire_type)m->head.type;
    size_t size = m->head.type < sizeof bodies / sizeof *bodies ? bodies[m->head.type] : 0;
    void *body = ceni_wire_begin(out, type, m->head.seq, size);
    switch (type) {
    case CENI_WIRE_HELLO:
        *(ceni_wire_hello_reply *)body = (ceni_wire_hello_reply){.version = CENI_WIRE_VERSION,
                                                                 .death_known = 1,
                                                                 .client = 1,
                                                                 .secret = 1,
                                                                 .instance = 1};
        break;
    case CENI_WIRE_SET: {
        const ceni_wire_set *set = m->body;
        *(ceni_wire_set_reply *)body = (ceni_wire_set_reply){set->set ? set->set : ++f.ids};
        break;
    }
    case CENI_WIRE_PUBLISH: {
        const ceni_wire_publish *p = m->body;
        if (p->flags & CENI_WIRE_AGAIN && f.refused && m->name_size == strlen(f.refused) &&
            !memcmp(m->name, f.refused, m->name_size)) {
            ceni_wire_fail(out, type, m->head.seq, CEN_ERR_LIMIT, "there is no room");
            break;
        }
        *(ceni_wire_publish_reply *)body = (ceni_wire_publish_reply){
            p->export_id ? p->export_id : ++f.ids, p->version ? p->version : 1};
        break;
    }
    case CENI_WIRE_LIST:
        ((ceni_wire_list_reply *)body)->kind = CENI_WIRE_RECORD_LEASE;
        break;
    case CENI_WIRE_EVENT:
        ((ceni_wire_event *)body)->export_id = ((const ceni_wire_event *)m->body)->export_id;
        break;
    default:
        break;
    }
}

/* Serves one connection to its end. */
static void fake_serve(int socket) {
    static uint64_t in[CENI_WIRE_MAX / 8];
    static ceni_wire_builder out;
    int fds[CENI_WIRE_FDS], notices = -1;
    unsigned count = 0;
    size_t size;
    ceni_wire_message m;
    while (!ceni_wire_receive(socket, in, &size, fds, &count, false) &&
           !ceni_wire_check(in, size, count, CENI_WIRE_REQUEST, &m)) {
        if (m.head.type == CENI_WIRE_HELLO) {
            notices = fds[0];
            fds[0] = -1;
        }
        ceni_fd_close_all(fds, count);
        fake_note(&m);
        fake_reply(&m, &out);
        if (ceni_wire_send(socket, &out, NULL, 0, false)) {
            break;
        }
        pthread_mutex_lock(&f.lock);
        bool ends = f.hangs_up;
        f.hangs_up = false;
        pthread_mutex_unlock(&f.lock);
        if (ends) {
            break;
        }
    }
    close(socket);
    close(notices);
}

static void *fake_run(void *unused) {
    for (;;) {
        int socket = accept4(f.listening, NULL, NULL, SOCK_CLOEXEC);
        if (socket < 0) {
            return NULL;
        }
        fake_serve(socket);
    }
}

static cen_share *fake_start_with(cen_share_options options) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cen_share *share;
    agent_choose_path();
    f = (fake){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", agent_path);
    f.listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f.listening, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(f.listening, 4), 0);
    assert_int_equal(pthread_create(&f.thread, NULL, fake_run, NULL), 0);
    options.size = sizeof options;
    options.socket = agent_path;
    options.timeout_ms = 60000;
    OK(cen_share_connect(&options, &share));
    return share;
}

static cen_share *fake_start(void) {
    return fake_start_with((cen_share_options){0});
}

static void fake_end(cen_share *share) {
    cen_share_disconnect(share);
    shutdown(f.listening, SHUT_RDWR);
    pthread_join(f.thread, NULL);
    close(f.listening);
    unlink(agent_path);
}

static void fake_hold(bool held) {
    pthread_mutex_lock(&f.lock);
    f.held = held;
    pthread_cond_broadcast(&f.changed);
    pthread_mutex_unlock(&f.lock);
}

/* Until it has heard so many messages of a type. */
static void fake_until(unsigned type, size_t wanted) {
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_sec += SOON_MS / 1000;
    size_t count = 0;
    pthread_mutex_lock(&f.lock);
    for (int error = 0;; error = pthread_cond_timedwait(&f.changed, &f.lock, &soon)) {
        count = 0;
        for (size_t i = 0; i < f.count; i++) {
            count += f.heard[i].type == type;
        }
        if (count >= wanted || error) {
            break;
        }
    }
    pthread_mutex_unlock(&f.lock);
    assert_int_equal(count, wanted);
}

/* Where the first message of a type stands among those that it heard. */
static size_t fake_place(unsigned type) {
    size_t i = 0;
    while (i < f.count && f.heard[i].type != type) {
        i++;
    }
    return i;
}

/* ---- what is queued ---- */

enum { QUEUED = 5 * CENI_FLUSH_MOST };

/* Queues messages, while the broker answers none. */
static void queue(cen_share *share, enum ceni_wire_type type) {
    fake_hold(true);
    pthread_mutex_lock(&share->lock);
    for (uint64_t id = 1; id <= QUEUED; id++) {
        ceni_told *told = ceni_calloc(1, sizeof *told);
        assert_non_null(told);
        told->type = type;
        told->id = id;
        ceni_share_tell_later(share, &told);
    }
    pthread_mutex_unlock(&share->lock);
    fake_until(type, 1);
}

/* Threads: what they give is whether it worked. */
static void *watch_a_name(void *share) {
    return cen_share_watch(share, "a-name", true) ? NULL : share;
}

static void *list_all(void *share) {
    cen_share_list *list;
    if (cen_share_list_read(share, &list)) {
        return NULL;
    }
    cen_share_list_free(list);
    return share;
}

/* Has another thread ask, which waits for its turn, then the broker answer; all of the queue comes,
 * in its order. */
static void ask_meanwhile(cen_share *share, enum ceni_wire_type type, void *(*fn)(void *)) {
    pthread_t thread;
    void *worked = NULL;
    assert_int_equal(pthread_create(&thread, NULL, fn, share), 0);
    for (int ms = 0; ceni_turn_count(&share->wire) < 2; ms++) {
        assert_true(ms < SOON_MS);
        usleep(1000);
    }
    fake_hold(false);
    pthread_join(thread, &worked);
    assert_non_null(worked);
    fake_until(type, QUEUED);
    uint64_t id = 0;
    for (size_t i = 0; i < f.count; i++) {
        if (f.heard[i].type == type) {
            assert_int_equal(f.heard[i].id, ++id);
        }
    }
}

/* Behind HELLO. */
#define NEXT_TURN (1 + CENI_FLUSH_MOST)

static void a_request_waits_for_some_of_the_queue_alone(void **state) {
    cen_share *share = fake_start();
    queue(share, CENI_WIRE_CLOSE);
    ask_meanwhile(share, CENI_WIRE_CLOSE, list_all);
    assert_int_equal(fake_place(CENI_WIRE_LIST), NEXT_TURN);
    fake_end(share);
}

static void no_request_overtakes_withdrawals(void **state) {
    cen_share *share = fake_start();
    queue(share, CENI_WIRE_WITHDRAW);
    ask_meanwhile(share, CENI_WIRE_WITHDRAW, list_all);
    assert_int_equal(fake_place(CENI_WIRE_LIST), 1 + QUEUED);
    fake_end(share);
    /* One that has nothing to do with them may. */
    share = fake_start();
    queue(share, CENI_WIRE_WITHDRAW);
    ask_meanwhile(share, CENI_WIRE_WITHDRAW, watch_a_name);
    assert_int_equal(fake_place(CENI_WIRE_WATCH), NEXT_TURN);
    fake_end(share);
}

/* ---- a broker that was started anew ---- */

static char warned[1024];
static atomic_int warnings;
static void note_warning(void *arg, cen_log_level level, const char *line) {
    if (level == CEN_LOG_WARN && strstr(line, "did not take")) {
        snprintf(warned, sizeof warned, "%s", line);
        atomic_fetch_add(&warnings, 1);
    }
}

static void what_it_does_not_take_keeps_nothing_else_from_it(void **state) {
    cen_device *device;
    cen_share_set *set;
    cen_addr addr;
    cen_share_export_info info;
    static const char *const names[] = {"one", "two", "three"};
    OK(cen_device_open("host:0", &device));
    cen_share *share = fake_start();
    OK(cen_share_set_create(share, device, 1, 0, &set));
    OK(cen_share_alloc(set, 1, &addr));
    cen_share_item item = {.addr = addr, .bytes = 1};
    for (int i = 0; i < 3; i++) {
        cen_share_export_options options = {
            .size = sizeof options, .name = names[i], .synced = true};
        OK(cen_share_export(share, &item, 1, &options, &info));
    }
    cen_log_set(note_warning, NULL, CEN_LOG_WARN);
    pthread_mutex_lock(&f.lock);
    f.refused = "two"; /* told in the midst of them */
    f.hangs_up = true;
    pthread_mutex_unlock(&f.lock);
    (void)cen_share_watch(share, "a-name", true);
    fake_until(CENI_WIRE_PUBLISH, 6);
    for (int ms = 0; !atomic_load(&warnings); ms++) {
        assert_true(ms < SOON_MS);
        usleep(1000);
    }
    fake_end(share);
    cen_log_set(NULL, NULL, CEN_LOG_DEBUG);
    assert_int_equal(atomic_load(&warnings), 1);
    if (!strstr(warned, "did not take 1 of the exports here: 'two@1';")) {
        fail_msg("it says: %s", warned);
    }
    cen_device_close(device);
}

/* ---- a broker that is stopped ---- */

/* What is asked of it is counted, not the time that it takes. */
static void a_stopped_broker_is_asked_once_by_a_disconnect(void **state) {
    agent broker = agent_broker(), producer = agent_start();
    OK(agent_ask(&producer, "connect %s 2000", agent_path));
    OK(agent_ask(&producer, "set 2097152 0"));
    OK(agent_ask(&producer, "alloc 4096"));
    OK(agent_ask(&producer, "export model - 0"));
    kill(broker.pid, SIGSTOP);
    OK(agent_ask(&producer, "arm 0"));
    OK(agent_ask(&producer, "disconnect"));
    OK(agent_ask(&producer, "steps"));
    assert_int_equal(producer.a, 2); /* before and after one request */
    kill(broker.pid, SIGCONT);
    OK(agent_ask(&producer, "connect %s", agent_path));
    agent_until(&producer, "list exports", 0);
    agent_end(&producer);
    agent_broker_stop(&broker);
}

/* ---- a broker that is gone ---- */

static void an_open_waits_for_a_broker_that_is_gone(void **state) {
    agent broker = agent_broker(), producer = agent_client(), consumer = agent_client();
    char token[CEN_SHARE_TOKEN_SIZE];
    OK(agent_ask(&producer, "set 2097152 0"));
    OK(agent_ask(&producer, "alloc 4096"));
    OK(agent_ask(&producer, "fill 0 7"));
    OK(agent_ask(&producer, "export old - 0"));
    snprintf(token, sizeof token, "%.127s", producer.text);
    agent_kill(&broker);
    OK(agent_ask(&consumer, "notice %d %d", CEN_SHARE_BROKER_GONE, SOON_MS));
    FAILS(CEN_ERR_NO_BROKER, agent_ask(&consumer, "open old 0 0"));
    FAILS(CEN_ERR_NO_BROKER, agent_ask(&consumer, "open old 0 10"));
    agent_say(&consumer, "open new 0 %d", SOON_MS);
    broker = agent_broker();
    OK(agent_ask(&producer, "notice %d %d", CEN_SHARE_BROKER_BACK, SOON_MS));
    OK(agent_ask(&producer, "export new - 0"));
    OK(agent_hear(&consumer));
    OK(agent_ask(&consumer, "peek 0 0"));
    assert_int_equal(consumer.a, 0x07070707);
    /* And for the publisher of a token. */
    agent_kill(&broker);
    OK(agent_ask(&consumer, "notice %d %d", CEN_SHARE_BROKER_GONE, SOON_MS));
    agent_say(&consumer, "open %s 0 %d", token, SOON_MS);
    broker = agent_broker();
    OK(agent_hear(&consumer));
    /* One that names nothing is not waited for where the broker is there. */
    OK(agent_ask(&producer, "withdraw %llu", U(consumer.b)));
    OK(agent_ask(&consumer, "close 1"));
    agent_until(&producer, "list exports", 1);
    FAILS(CEN_ERR_NOT_FOUND, agent_ask(&consumer, "open %s 0 %d", token, 1000 * SOON_MS));
    agent_end(&consumer);
    agent_end(&producer);
    agent_broker_stop(&broker);
}

typedef struct asker {
    cen_share *_Atomic share;
    cen_device *device;
    atomic_int status; /* of an open in a notice; 1: none yet */
} asker;

static void ask_in_a_notice(void *arg, const cen_share_notice *notice) {
    asker *a = arg;
    cen_share_view *view;
    if (notice->kind == CEN_SHARE_BROKER_GONE) {
        atomic_store(&a->status, cen_share_open(atomic_load(&a->share), a->device, "a-name", 0,
                                                100 * SOON_MS, &view));
    }
}

/* The thread that would find it is the one that asks. */
static void an_open_in_a_notice_does_not(void **state) {
    asker a = {.status = 1};
    OK(cen_device_open("host:0", &a.device));
    cen_share *share =
        fake_start_with((cen_share_options){.notice = ask_in_a_notice, .notice_arg = &a});
    atomic_store(&a.share, share);
    pthread_mutex_lock(&f.lock);
    f.hangs_up = true;
    pthread_mutex_unlock(&f.lock);
    (void)cen_share_watch(share, "a-name", true);
    for (int ms = 0; atomic_load(&a.status) == 1; ms++) {
        assert_true(ms < SOON_MS);
        usleep(1000);
    }
    assert_int_equal(atomic_load(&a.status), CEN_ERR_NO_BROKER);
    fake_end(share);
    cen_device_close(a.device);
}

/* ---- captures ---- */

static void hold(void *held) {
    while (atomic_load((atomic_bool *)held)) {
        usleep(100);
    }
}

/* The thread looks at an export's work, and at that which ends a block, as long as they are not
 * done: a capture of another stream, of which it does not know, outlives that. */
static void its_thread_breaks_no_capture(void **state) {
    cen_share_options options = {.size = sizeof options, .no_broker = true};
    cen_share_export_info info;
    cen_device *device;
    cen_share *share;
    cen_share_set *set;
    cen_addr addr, other;
    cen_stream stream, captured;
    ceni_graph *graph = NULL;
    atomic_bool held = true;
    OK(cen_device_open(agent_device, &device));
    OK(cen_share_connect(&options, &share));
    OK(cen_share_set_create(share, device, 1, 0, &set));
    OK(cen_share_alloc(set, 4096, &addr));
    OK(cen_share_alloc(set, 4096, &other));
    OK(cen_stream_create(device, 0, &stream));
    OK(cen_stream_create(device, 0, &captured));
    OK(cen_host_func(device, stream, hold, &held));
    cen_share_item item = {.addr = addr, .bytes = 4096};
    cen_share_export_options how = {.size = sizeof how, .stream = stream};
    OK(cen_share_export(share, &item, 1, &how, &info));
    OK(cen_share_free(set, other, stream));
    OK(ceni_capture_begin(device, captured));
    FAILS(CEN_ERR_CAPTURE, cen_share_mark(share, info.id, captured));
    OK(cen_fill_async(device, addr, 1, 4, captured));
    const _Atomic uint64_t *looks = &device->stats[CENI_OP_event_peek].calls;
    uint64_t before = atomic_load(looks);
    for (int ms = 0; atomic_load(looks) < before + 6; ms++) {
        assert_true(ms < SOON_MS);
        usleep(1000);
    }
    cen_status ended = ceni_capture_end(device, captured, &graph);
    atomic_store(&held, false);
    OK(ended);
    OK(ceni_graph_launch(device, graph, stream));
    OK(cen_stream_sync(device, stream));
    ceni_graph_destroy(device, graph);
    cen_share_disconnect(share);
    cen_device_close(device);
}

static const struct CMUnitTest tests[] = {
    AGENT_TEST(its_thread_breaks_no_capture),
    AGENT_TEST(an_open_waits_for_a_broker_that_is_gone),
    AGENT_TEST(an_open_in_a_notice_does_not),
    AGENT_TEST(a_request_waits_for_some_of_the_queue_alone),
    AGENT_TEST(no_request_overtakes_withdrawals),
    AGENT_TEST(what_it_does_not_take_keeps_nothing_else_from_it),
    AGENT_TEST(a_stopped_broker_is_asked_once_by_a_disconnect),
};

AGENT_MAIN(tests)
