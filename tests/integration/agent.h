/* Other processes for tests of sharing: the test program started anew with `--agent DEVICE FD`,
 * since a forked child could not use CUDA. An agent does what it is told over a socket, a line at a
 * time, and answers "STATUS A B TEXT". Its commands are in agent_main.h. */
#ifndef AGENT_H
#define AGENT_H

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cenote/cenote.h"
#include "tests/integration/agent_main.h"

typedef struct agent {
    pid_t pid;
    int socket;
    int status;
    uint64_t a, b;
    char text[512];
} agent;

static const char *agent_device = "host:0"; /* that the agents open */

#define MIB                 (1ull << 20)
#define U(value)            ((unsigned long long)(value)) /* to print it */
#define SOON_MS             10000                         /* for what comes by itself */
#define OK(call)            assert_int_equal((call), CEN_OK)
#define FAILS(status, call) assert_int_equal((call), (status))

/* A descriptor that the agents get, with the same number; -1: none. */
static int agent_extra = -1;

/* Those that live: a test that fails leaves none behind. */
enum { AGENTS_MOST = 64 };
static pid_t agent_alive[AGENTS_MOST];

static inline void agent_note(pid_t from, pid_t to) {
    for (size_t i = 0; i < AGENTS_MOST; i++) {
        if (agent_alive[i] == from) {
            agent_alive[i] = to;
            return;
        }
    }
}

static inline int agent_teardown(void **state) {
    for (size_t i = 0; i < AGENTS_MOST; i++) {
        if (agent_alive[i]) {
            kill(agent_alive[i], SIGKILL);
            waitpid(agent_alive[i], NULL, 0);
            agent_alive[i] = 0;
        }
    }
    return 0;
}

#define AGENT_TEST(function) cmocka_unit_test_teardown(function, agent_teardown)

/* Whether agents get user, PID, mount and network namespaces of their own. */
static bool agent_isolated;

static inline void agent_write(const char *path, const char *line) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, line, strlen(line)) < 0) {
        _exit(125);
    }
    close(fd);
}

/* In the child: its own child goes on, in the new namespaces, and ends with it. */
static inline void agent_isolate(void) {
    char users[32], groups[32];
    int status = 0;
    snprintf(users, sizeof users, "%u %u 1", (unsigned)getuid(), (unsigned)getuid());
    snprintf(groups, sizeof groups, "%u %u 1", (unsigned)getgid(), (unsigned)getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET)) {
        _exit(125);
    }
    agent_write("/proc/self/setgroups", "deny");
    agent_write("/proc/self/uid_map", users);
    agent_write("/proc/self/gid_map", groups);
    pid_t pid = fork();
    if (pid) {
        waitpid(pid, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 126);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Where that is not allowed, the agent sees a /proc that is not its own. */
    (void)mount("proc", "/proc", "proc", 0, NULL);
}

/* Whether that may be done here. */
static inline bool agent_can_isolate(void) {
    int status = -1;
    pid_t pid = fork();
    if (!pid) {
        agent_isolate();
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static inline agent agent_start(void) {
    int ends[2];
    char fd[16];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    snprintf(fd, sizeof fd, "%d", ends[1]);
    const char *device = agent_device;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)fcntl(ends[1], F_SETFD, 0);
        if (agent_extra >= 0) {
            (void)fcntl(agent_extra, F_SETFD, 0);
        }
        if (agent_isolated) {
            agent_isolate();
        }
        execl("/proc/self/exe", "agent", "--agent", device, fd, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    agent_note(0, pid);
    return (agent){.pid = pid, .socket = ends[0]};
}

/* Tells it a line, without waiting. */
static inline void agent_say(agent *g, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void agent_say(agent *g, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert_int_equal(send(g->socket, line, (size_t)size + 1, MSG_NOSIGNAL), size + 1);
}

/* Takes an answer apart: its status, which is returned, two numbers and a text. */
static inline int agent_take(agent *g, char *line) {
    char *at = line;
    g->status = (int)strtol(at, &at, 10);
    g->a = strtoull(at, &at, 10);
    g->b = strtoull(at, &at, 10);
    snprintf(g->text, sizeof g->text, "%s", *at ? at + 1 : at);
    return g->status;
}

/* Its answer's status. */
static inline int agent_hear(agent *g) {
    char line[1024] = "";
    ssize_t got = recv(g->socket, line, sizeof line - 1, 0);
    if (got <= 0) {
        fail_msg("the agent ended without an answer");
    }
    return agent_take(g, line);
}

#define agent_ask(g, ...) (agent_say((g), __VA_ARGS__), agent_hear(g))

/* Asks until it works and the answer is `a`; UINT64_MAX: whatever it is. */
static inline void agent_until(agent *g, const char *command, uint64_t a) {
    for (int ms = 0; agent_ask(g, "%s", command) || (a != UINT64_MAX && g->a != a); ms++) {
        if (ms == SOON_MS) {
            fail_msg("%s: %d, %llu", command, g->status, U(g->a));
        }
        usleep(1000);
    }
}

/* Until the broker lists so many. */
static inline void agent_until_listed(agent *g, const char *what, uint64_t count) {
    char command[32];
    snprintf(command, sizeof command, "list %s", what);
    agent_until(g, command, count);
}

/* Until a block can be had, once the last lease of another has ended. */
static inline void agent_until_allocated(agent *g, uint64_t bytes) {
    char command[32];
    snprintf(command, sizeof command, "alloc %llu", U(bytes));
    agent_until(g, command, UINT64_MAX);
}

/* The socket is closed last: one in namespaces of its own dies after its parent, and would take
 * that for the end of its work. */
static inline int agent_wait(agent *g) {
    int status = -1;
    assert_int_equal(waitpid(g->pid, &status, 0), g->pid);
    close(g->socket);
    agent_note(g->pid, 0);
    g->pid = 0;
    return status;
}

static inline void agent_kill(agent *g) {
    if (g->pid) {
        siginfo_t info;
        kill(g->pid, SIGKILL);
        /* Dead before its socket closes, which would have it end by itself. */
        (void)waitid(P_PID, (id_t)g->pid, &info, WEXITED | WNOWAIT);
        (void)agent_wait(g);
    }
}

/* It must end by itself, with nothing left. */
static inline void agent_end(agent *g) {
    assert_int_equal(agent_ask(g, "end"), CEN_OK);
    assert_int_equal(agent_wait(g), 0);
}

/* ---- a broker ---- */

static char agent_folder[64];
static char agent_path[96];

/* Chooses where, once. */
static inline void agent_choose_path(void) {
    if (!agent_folder[0]) {
        snprintf(agent_folder, sizeof agent_folder, "/tmp/cenote-test-XXXXXX");
        assert_non_null(mkdtemp(agent_folder));
        snprintf(agent_path, sizeof agent_path, "%s/broker.sock", agent_folder);
    }
}

static inline agent agent_broker(void) {
    agent g = agent_start();
    agent_choose_path();
    assert_int_equal(agent_ask(&g, "serve %s", agent_path), CEN_OK);
    return g;
}

static inline void agent_broker_stop(agent *g) {
    kill(g->pid, SIGTERM);
    assert_int_equal(agent_wait(g), 0);
}

/* One that is connected. */
static inline agent agent_client(void) {
    agent g = agent_start();
    assert_int_equal(agent_ask(&g, "connect %s", agent_path), CEN_OK);
    return g;
}

static inline void agent_cleanup(void) {
    if (agent_folder[0]) {
        unlink(agent_path);
        rmdir(agent_folder);
        agent_folder[0] = 0;
    }
}

/* ---- running ---- */

/* Runs the tests on each device that is here, as tests/conformance/suite.h does: CENOTE_TEST_DEVICE
 * chooses one, CENOTE_REQUIRE_GPU makes the lack of a GPU a failure. */
static inline int agent_suite(const struct CMUnitTest *tests, size_t count) {
    static const char *const names[] = {"host:0", "cuda:0"};
    const char *only = getenv("CENOTE_TEST_DEVICE");
    int failed = 0, ran = 0;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < 2; i++) {
        char backend[8] = "";
        int devices = 0;
        memcpy(backend, names[i], 4);
        if (only && strcmp(only, names[i]) && strcmp(only, backend)) {
            continue;
        }
        cen_device_props props = {.export_fd = false};
        cen_device *device = NULL;
        if (!cen_device_count(backend, &devices) && devices &&
            !cen_device_open(names[i], &device)) {
            (void)cen_device_get_props(device, &props);
            cen_device_close(device);
        }
        if (!props.export_fd) {
            bool required = i && getenv("CENOTE_REQUIRE_GPU");
            printf("%s: %s: %s\n", names[i], required ? "required" : "skipped",
                   device ? "its pages cannot be exported" : "there is no such device");
            failed += required;
            continue;
        }
        agent_device = names[i];
        ran++;
        failed += _cmocka_run_group_tests(names[i], tests, count, NULL, NULL) != 0;
        agent_cleanup();
    }
    return failed ? 1 : ran ? 0 : 77;
}

static inline bool agent_on_host(void) {
    return !strncmp(agent_device, "host", 4);
}

#define AGENT_MAIN(tests)                                                                          \
    int main(int argc, char **argv) {                                                              \
        if (argc == 4 && !strcmp(argv[1], "--agent")) {                                            \
            return agent_main(argv[2], (int)strtol(argv[3], NULL, 10));                            \
        }                                                                                          \
        return agent_suite(tests, sizeof(tests) / sizeof *(tests));                                \
    }

#endif
