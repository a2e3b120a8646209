/* A producer, a consumer and the broker are killed, each at every step of the protocol that it goes
 * through, and at random times. The others go on to their end: what they read is right, every call
 * ends with a status that belongs there, and nothing is left of whom was killed. */
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/files.h"
#include "tests/integration/agent.h"

enum {
    DIED = -1,  /* in place of an answer */
    PLAY_S = 60 /* for one play, else it hangs */
};

#define BLOCK (1ull << 20)
#define SET   (8 * BLOCK)
#define PAGE  (2ull << 20)

enum role { PRODUCER, CONSUMER, OBSERVER, BROKER, ROLES };
static const char *const role_names[] = {"producer", "consumer", "observer", "broker"};

/* What the blocks hold. */
enum { FIRST = 0x11, KEPT = 0x22, PARCEL = 0x33, SECOND = 0x44, REUSED = 0x55 };

typedef struct play {
    agent agents[ROLES];
    bool may_die[ROLES];
    unsigned broker_deaths;
    bool restarts; /* the broker is killed half way, and the victims are armed only then */
    uint64_t arm[ROLES];
    uint64_t steps[ROLES];
    unsigned files; /* that the broker has open without clients */
    unsigned long long kept_id, parcel_id;
    unsigned seen;   /* in what was opened last */
    uint64_t memory; /* free, at the observer */
    char parcel[CEN_SHARE_TOKEN_SIZE];
    int models[2], kept, parcel_view; /* the consumer's views; -1: none */
} play;

static play now;
static char doing[128] = "starting";

/* ---- processes ---- */

static void hangs(int number) {
    if (now.agents[BROKER].pid > 0) {
        kill(now.agents[BROKER].pid, SIGKILL); /* the others end with this process */
    }
    (void)!write(STDERR_FILENO, "it hangs: ", 10);
    (void)!write(STDERR_FILENO, doing, strlen(doing));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(1);
}

static void bury(enum role role, bool may_end) {
    int status = agent_wait(&now.agents[role]);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && now.may_die[role];
    if (!killed && !(may_end && !status)) {
        fail_msg("%s: the %s ended with %#x", doing, role_names[role], (unsigned)status);
    }
}

static void start_broker(uint64_t arm) {
    now.agents[BROKER] = agent_start();
    agent_choose_path();
    OK(agent_ask(&now.agents[BROKER], "serve %s %llu", agent_path, U(arm)));
    unsigned files = files_of(now.agents[BROKER].pid);
    if (!now.files || files < now.files) { /* clients may be back with a later one by now */
        now.files = files;
    }
}

static bool is_dead(enum role role) {
    siginfo_t info = {.si_pid = 0};
    pid_t pid = now.agents[role].pid;
    return !pid || (!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid);
}

/* If the broker has died there is a new one. */
static void revive_broker(void) {
    if (now.agents[BROKER].pid && is_dead(BROKER)) {
        bury(BROKER, false);
        now.broker_deaths++;
        start_broker(0);
    }
}

/* Until it answers. Work that was told of before the broker died may be waited for with another
 * one only. */
static void await(const agent *g) {
    struct pollfd answer = {.fd = g->socket, .events = POLLIN};
    while (!poll(&answer, 1, 100)) {
        revive_broker();
    }
}

/* One command and its answer's status, or DIED. */
static int tell(enum role role, const char *format, va_list args) {
    agent *g = &now.agents[role];
    char line[1024];
    if (!g->pid) {
        return DIED;
    }
    int size = vsnprintf(line, sizeof line, format, args);
    ssize_t got = send(g->socket, line, (size_t)size + 1, MSG_NOSIGNAL);
    await(g);
    got = got < 0 ? got : recv(g->socket, line, sizeof line - 1, 0);
    if (got <= 0) {
        bury(role, false);
        return DIED;
    }
    line[got] = '\0';
    return agent_take(g, line);
}

static bool is_of_no_broker(int status) {
    return status == CEN_ERR_NO_BROKER || status == CEN_ERR_IO;
}

/* The same; while the broker is gone, or coming back, it is tried again. */
static int ask(enum role role, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int ask(enum role role, const char *format, ...) {
    for (int ms = 0;; ms++) {
        va_list args;
        va_start(args, format);
        int status = tell(role, format, args);
        va_end(args);
        revive_broker();
        bool again = is_of_no_broker(status) && (now.may_die[BROKER] || now.broker_deaths);
        if (!again || ms == SOON_MS) {
            return status;
        }
        usleep(1000);
    }
}

/* It has to work, unless that process dies. `false`: it is dead. */
#define does(role, ...) is_done((role), ask((role), __VA_ARGS__), CEN_OK, #role ": " __VA_ARGS__)
/* What is over already is as good. */
#define ends(role, ...)                                                                            \
    is_done((role), ask((role), __VA_ARGS__), CEN_ERR_NOT_FOUND, #role ": " __VA_ARGS__)
static bool is_done(enum role role, int status, int other, const char *what, ...) {
    if (status != CEN_OK && status != other && status != DIED) {
        fail_msg("%s: %s: %s", doing, what, cen_status_text((cen_status)status));
    }
    return status != DIED;
}

/* ---- what they do ---- */

/* The blocks are filled before they are exported: a producer that dies leaves them whole, though it
 * may not have seen the end of its stream. */
static bool peeks(enum role role, int view) {
    return does(role, "peek %d 0 %s", view, now.may_die[PRODUCER] ? "any" : "");
}

static void reads(enum role role, int view, unsigned byte) {
    if (view < 0 || !peeks(role, view)) {
        return;
    }
    if (now.agents[role].a != byte * 0x01010101u) {
        fail_msg("%s: the %s reads %#llx, not %#x", doing, role_names[role], U(now.agents[role].a),
                 byte);
    }
}

/* A view, or -1: it need not be there, or whoever would open it is dead. `other` is as right to
 * find as `byte`. A new broker may have to hear of it first. */
static int opens(enum role role, const char *what, unsigned byte, unsigned other) {
    int status = ask(role, "open %s 0 0", what);
    for (int ms = 0;
         status == CEN_ERR_NOT_FOUND && now.broker_deaths && !is_dead(PRODUCER) && ms < SOON_MS;
         ms += 5) {
        usleep(5000);
        status = ask(role, "open %s 0 0", what);
    }
    if (status == DIED || (status == CEN_ERR_NOT_FOUND && is_dead(PRODUCER))) {
        return -1;
    }
    if (status) {
        fail_msg("%s: open %s: %s", doing, what, cen_status_text((cen_status)status));
    }
    int view = (int)now.agents[role].a;
    if (peeks(role, view)) {
        now.seen = (unsigned)(now.agents[role].a & 0xff);
        reads(role, view, now.seen == other ? other : byte);
    }
    return view;
}

/* Block `number` of the producer's, filled and exported; the id. */
static unsigned long long publishes(const char *name, const char *flags, int number,
                                    unsigned byte) {
    bool all = does(PRODUCER, "alloc %llu", BLOCK) && does(PRODUCER, "fill %d %u", number, byte) &&
               does(PRODUCER, "export %s %s %d", name, flags, number);
    return all ? now.agents[PRODUCER].a : 0;
}

static void first_half(void) {
    if (does(PRODUCER, "connect %s", agent_path) && does(PRODUCER, "set %llu %llu", SET, PAGE)) {
        now.kept_id = publishes("kept", "k", 0, KEPT);
        (void)publishes("model", "-", 1, FIRST);
        now.parcel_id = publishes("-", "1t", 2, PARCEL);
        snprintf(now.parcel, sizeof now.parcel, "%.127s", now.agents[PRODUCER].text);
    }
    if (does(CONSUMER, "connect %s", agent_path)) {
        now.models[0] = opens(CONSUMER, "model", FIRST, FIRST);
        now.kept = opens(CONSUMER, "kept", KEPT, KEPT);
        now.parcel_view = now.parcel_id ? opens(CONSUMER, now.parcel, PARCEL, PARCEL) : -1;
    }
}

static void second_half(void) {
    unsigned long long second = publishes("model", "-", 3, SECOND);
    now.models[1] = opens(CONSUMER, "model", SECOND, second ? SECOND : FIRST);
    (void)does(PRODUCER, "mark %llu", now.kept_id);
    /* What is freed may be used again only when the consumer has let go of it. */
    (void)does(PRODUCER, "free 1");
    (void)(does(PRODUCER, "alloc %llu", BLOCK) && does(PRODUCER, "fill 4 %d", REUSED));
    reads(CONSUMER, now.models[0], FIRST);
    (void)(now.models[0] < 0 || does(CONSUMER, "close %d", now.models[0]));
    if (second) {
        (void)ends(PRODUCER, "revoke %llu", second);
    }
    reads(CONSUMER, now.models[1], now.seen);
    (void)(now.models[1] < 0 || does(CONSUMER, "close %d", now.models[1]));
    (void)does(PRODUCER, "free 2");
    (void)(does(PRODUCER, "alloc %llu", BLOCK) && does(PRODUCER, "fill 5 %d", REUSED));
    reads(CONSUMER, now.parcel_view, PARCEL);
    reads(CONSUMER, now.kept, KEPT);
    (void)(now.parcel_view < 0 || does(CONSUMER, "close %d", now.parcel_view));
    (void)(now.kept < 0 || does(CONSUMER, "close %d", now.kept));
}

static void until_listed(const char *what, uint64_t count) {
    for (int ms = 0; does(OBSERVER, "list %s", what) && now.agents[OBSERVER].a != count; ms++) {
        if (ms == SOON_MS) {
            fail_msg("%s: %llu %s are left", doing, U(now.agents[OBSERVER].a - count), what);
        }
        usleep(1000);
    }
}

/* Everything but the block of what is kept becomes one range again. After the broker died that is
 * not sure: who has what open may not have told the new one. */
static void frees_all(void) {
    for (int number = 3; number < 6; number++) {
        (void)does(PRODUCER, "free %d", number);
    }
    if (now.parcel_id) {
        (void)ends(PRODUCER, "withdraw %llu", now.parcel_id);
    }
    int status = CEN_ERR_DEVICE_MEMORY;
    for (int ms = 0; status == CEN_ERR_DEVICE_MEMORY && !now.broker_deaths; ms++) {
        if (ms == SOON_MS) {
            fail_msg("%s: the blocks are not free again", doing);
        }
        status = ask(PRODUCER, "alloc %llu", SET - BLOCK);
        usleep(status ? 1000 : 0);
    }
}

static void end(enum role role) {
    if (does(role, "steps")) {
        now.steps[role] = now.agents[role].a;
    }
    if (does(role, "end")) {
        bury(role, true);
    }
}

/* What is kept is there when its producer has ended; when that is withdrawn nothing is left. */
static void looks_after(void) {
    (void)does(OBSERVER, "connect %s", agent_path);
    int status = ask(OBSERVER, "open kept 0 0");
    bool sure = now.kept_id && !now.broker_deaths;
    if (status == CEN_ERR_NOT_FOUND && sure) {
        fail_msg("%s: what was kept is gone", doing);
    }
    if (!status) {
        unsigned long long id = now.agents[OBSERVER].b;
        int view = (int)now.agents[OBSERVER].a;
        reads(OBSERVER, view, KEPT);
        (void)ends(OBSERVER, "withdraw %llu", id);
        (void)does(OBSERVER, "close %d", view);
    }
    until_listed("leases", 0);
    until_listed("exports", 0);
    until_listed("sets", 0);
    until_listed("clients", 1);
    (void)does(OBSERVER, "disconnect");
    for (int ms = 0; files_of(now.agents[BROKER].pid) != now.files; ms++) {
        if (ms == SOON_MS) {
            fail_msg("%s: the broker has %u descriptors too many", doing,
                     files_of(now.agents[BROKER].pid) - now.files);
        }
        usleep(1000);
        revive_broker();
    }
    for (int ms = 0; does(OBSERVER, "memory") && now.agents[OBSERVER].a < now.memory; ms++) {
        if (ms == SOON_MS) {
            fail_msg("%s: %llu bytes of the device are not free again", doing,
                     U(now.memory - now.agents[OBSERVER].a));
        }
        usleep(1000);
    }
}

static void stop_broker(void) {
    agent *b = &now.agents[BROKER];
    kill(b->pid, SIGTERM);
    if (recv(b->socket, b->text, sizeof b->text - 1, 0) > 0) {
        const char *steps = strchr(b->text, ' '); /* behind the status */
        now.steps[BROKER] = steps ? strtoull(steps, NULL, 10) : 0;
        bury(BROKER, true);
    } else {
        bury(BROKER, false);
    }
}

static void arm(enum role role) {
    (void)does(role, "arm %llu", U(now.arm[role]));
}

/* The broker is killed and another started. */
static void restart_broker(void) {
    bool may = now.may_die[BROKER];
    now.may_die[BROKER] = true;
    kill(now.agents[BROKER].pid, SIGKILL);
    bury(BROKER, false);
    now.may_die[BROKER] = may;
    now.broker_deaths++;
    arm(PRODUCER);
    arm(CONSUMER);
    start_broker(now.arm[BROKER]);
    for (enum role role = PRODUCER; role <= CONSUMER; role++) {
        (void)does(role, "list sets"); /* it is back */
    }
}

/* Starts the processes; the observer stays from play to play. */
static void begin(void) {
    agent observer = now.agents[OBSERVER];
    now = (play){
        .agents = {[OBSERVER] = observer}, .models = {-1, -1}, .kept = -1, .parcel_view = -1};
    snprintf(doing, sizeof doing, "starting");
    alarm(PLAY_S);
    if (!observer.pid) {
        now.agents[OBSERVER] = agent_start();
    }
    (void)does(OBSERVER, "memory");
    now.memory = now.agents[OBSERVER].a;
    now.agents[PRODUCER] = agent_start();
    now.agents[CONSUMER] = agent_start();
}

static void finish(void) {
    frees_all();
    end(CONSUMER);
    end(PRODUCER);
    looks_after();
    stop_broker();
    alarm(0);
}

static void run_play(void) {
    start_broker(now.restarts ? 0 : now.arm[BROKER]);
    if (!now.restarts) {
        arm(PRODUCER);
        arm(CONSUMER);
    }
    first_half();
    if (now.restarts) {
        restart_broker();
    }
    second_half();
    finish();
}

/* ---- the tests ---- */

/* CENOTE_TEST_STRIDE: of so many steps and rounds one is tried; 1. Processes that open a GPU start
 * slowly. */
static uint64_t stride(void) {
    const char *text = getenv("CENOTE_TEST_STRIDE");
    uint64_t n = text ? strtoull(text, NULL, 10) : 1;
    return n ? n : 1;
}

/* Every step of every role, one a play. Steps while it ends are not counted, and vary. */
static void every_step(bool restarts) {
    enum { ENDING = 8 };
    uint64_t steps[ROLES];
    begin();
    now.restarts = restarts;
    snprintf(doing, sizeof doing, "nobody is killed");
    run_play();
    memcpy(steps, now.steps, sizeof steps);
    for (enum role role = PRODUCER; role < ROLES; role++) {
        for (uint64_t n = 1; role != OBSERVER && n <= steps[role] + ENDING; n += stride()) {
            begin();
            now.restarts = restarts;
            now.arm[role] = n;
            now.may_die[role] = true;
            snprintf(doing, sizeof doing, "%s the %s is killed at step %llu of %llu",
                     restarts ? "after a restart" : "", role_names[role], U(n), U(steps[role]));
            run_play();
        }
    }
    printf("steps: %llu of the producer, %llu of the consumer, %llu of the broker\n",
           U(steps[PRODUCER]), U(steps[CONSUMER]), U(steps[BROKER]));
    assert_true(steps[PRODUCER] && steps[CONSUMER] && steps[BROKER]);
}

static void killed_at_every_step(void **state) {
    every_step(false);
}

static void killed_at_every_step_after_a_restart(void **state) {
    every_step(true);
}

/* ---- at any time ---- */

typedef struct killer {
    int pidfd;
    uint64_t delay_ns;
} killer;

static void *kill_later(void *arg) {
    const killer *k = arg;
    nanosleep(&(struct timespec){.tv_sec = (time_t)(k->delay_ns / 1000000000),
                                 .tv_nsec = (long)(k->delay_ns % 1000000000)},
              NULL);
    (void)syscall(SYS_pidfd_send_signal, k->pidfd, SIGKILL, NULL, 0);
    return NULL;
}

static uint64_t random_below(uint64_t *seed, uint64_t limit) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % limit;
}

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void killed_at_any_time(void **state) {
    enum { ROUNDS = 100 };
    static const enum role victims[] = {PRODUCER, CONSUMER, BROKER};
    uint64_t seed = 1, start = clock_ns();
    begin();
    run_play();
    uint64_t whole = clock_ns() - start;
    for (int round = 0; round < ROUNDS; round += (int)stride()) {
        pthread_t thread;
        killer k;
        begin();
        start_broker(0);
        enum role victim = victims[random_below(&seed, 3)];
        k.delay_ns = random_below(&seed, whole);
        k.pidfd = (int)syscall(SYS_pidfd_open, now.agents[victim].pid, 0);
        assert_true(k.pidfd >= 0);
        now.may_die[victim] = true;
        snprintf(doing, sizeof doing, "round %d: the %s is killed after %llu us", round,
                 role_names[victim], U(k.delay_ns / 1000));
        assert_int_equal(pthread_create(&thread, NULL, kill_later, &k), 0);
        first_half();
        second_half();
        finish();
        pthread_join(thread, NULL);
        close(k.pidfd);
    }
}

/* A consumer that is stopped while the broker restarts, and the producer frees what it reads. */
static void a_reader_that_comes_back_late_keeps_what_it_reads(void **state) {
    begin();
    snprintf(doing, sizeof doing, "the consumer comes back late");
    start_broker(0);
    first_half();
    publishes("model", "-", 3, SECOND); /* withdraws what the consumer reads */
    kill(now.agents[CONSUMER].pid, SIGSTOP);
    now.may_die[BROKER] = true;
    kill(now.agents[BROKER].pid, SIGKILL);
    bury(BROKER, false);
    now.broker_deaths++;
    start_broker(0);
    (void)does(PRODUCER, "list sets"); /* it is back */
    (void)does(PRODUCER, "free 1");
    (void)does(PRODUCER, "free 2");
    for (int number = 4; number < 8; number++) {
        (void)(does(PRODUCER, "alloc %llu", BLOCK) && does(PRODUCER, "fill %d %d", number, REUSED));
    }
    FAILS(CEN_ERR_DEVICE_MEMORY, ask(PRODUCER, "alloc %llu", BLOCK));
    kill(now.agents[CONSUMER].pid, SIGCONT);
    reads(CONSUMER, now.models[0], FIRST);
    reads(CONSUMER, now.parcel_view, PARCEL);
    reads(CONSUMER, now.kept, KEPT);
    (void)does(CONSUMER, "list sets");
    /* The parcel was opened, which the producer never heard. */
    (void)does(OBSERVER, "connect %s", agent_path);
    FAILS(CEN_ERR_NOT_FOUND, ask(OBSERVER, "open %s 0 0", now.parcel));
    (void)does(OBSERVER, "disconnect");
    end(CONSUMER);
    end(PRODUCER);
    looks_after();
    stop_broker();
    alarm(0);
}

static int tear_down(void **state) {
    alarm(0);
    for (enum role role = PRODUCER; role < ROLES; role++) {
        if (now.agents[role].pid) {
            kill(now.agents[role].pid, SIGCONT);
            agent_kill(&now.agents[role]);
        }
    }
    memset(&now, 0, sizeof now);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(killed_at_every_step, tear_down),
    cmocka_unit_test_teardown(killed_at_every_step_after_a_restart, tear_down),
    cmocka_unit_test_teardown(killed_at_any_time, tear_down),
    cmocka_unit_test_teardown(a_reader_that_comes_back_late_keeps_what_it_reads, tear_down),
};

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "--agent")) {
        return agent_main(argv[2], (int)strtol(argv[3], NULL, 10));
    }
    signal(SIGALRM, hangs);
    return agent_suite(tests, sizeof tests / sizeof *tests);
}
