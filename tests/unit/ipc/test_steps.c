/* kill -9 at every step of the protocol that a client, or the broker, goes through: afterwards
 * nothing of the dead is held, and the living go on. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cenote/cenote.h"
#include "ipc/step.h"

#define OK(call) assert_int_equal((call), CEN_OK)
#define MIB      ((uint64_t)1 << 20)

enum { ITEMS = 300, SOON_MS = 20000, LINGER_MS = 500, MOST_STEPS = 400 };

static char folder[64], path[96];

/* ---- what is done, by one process ---- */

static cen_device *open_device(void) {
    cen_host_options options = {.size = sizeof options, .capacity = 64 * MIB};
    options.inline_streams = true;
    cen_device *device = NULL;
    return cen_device_open_host(0, &options, &device) ? NULL : device;
}

static cen_status connect_to(cen_share **share) {
    cen_share_options options = {.size = sizeof options, .socket = path, .timeout_ms = 2000};
    return cen_share_connect(&options, share);
}

static cen_status publish(cen_share *share, cen_device *device, const char *name, bool keep) {
    static char names[ITEMS][16];
    static cen_share_item items[ITEMS];
    cen_share_set *set;
    cen_addr addr;
    cen_share_export_info info;
    cen_share_export_options options = {.size = sizeof options, .name = name, .keep = keep};
    cen_status status = cen_share_set_create(share, device, 4 * MIB, 2 * MIB, &set);
    status = status ? status : cen_share_alloc(set, MIB, &addr);
    if (status) {
        return status;
    }
    for (int i = 0; i < ITEMS; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        items[i] = (cen_share_item){.name = names[i], .addr = addr + (unsigned)i, .bytes = 1};
    }
    status = cen_share_export(share, items, ITEMS, &options, &info);
    return status ? status : cen_share_mark(share, info.id, 0);
}

/* All that a client does. */
static cen_status do_all(cen_device *device) {
    cen_share *share, *other;
    cen_share_view *view, *mine;
    cen_share_list *list;
    cen_status status = connect_to(&share);
    if (status) {
        return status;
    }
    status = cen_share_open(share, device, "base", 0, SOON_MS, &view);
    status = status ? status : cen_share_wait(view, 0);
    status = status ? status : publish(share, device, "mine", false);
    status = status ? status : cen_share_open(share, device, "mine", 0, 0, &mine);
    status = status ? status : cen_share_watch(share, "mine", true);
    status = status ? status : connect_to(&other);
    if (!status) {
        status = cen_share_list_read(share, &list);
        if (!status) {
            cen_share_list_free(list);
        }
        cen_share_disconnect(other);
    }
    status = status ? status : cen_share_close(view, 0);
    cen_share_disconnect(share);
    return status;
}

/* ---- the broker, in a process of its own ---- */

static pid_t broker_start(int64_t step) {
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive a test that failed */
        cen_broker *broker;
        cen_broker_options options = {.size = sizeof options, .socket = path};
        close(ready[0]);
        if (cen_broker_create(&options, &broker) || write(ready[1], "x", 1) != 1) {
            _exit(1);
        }
        close(ready[1]);
        ceni_ipc_step_arm(step, -1);
        _exit(cen_broker_run(broker) ? 1 : 0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static int setup(void **state) {
    snprintf(folder, sizeof folder, "/tmp/cenote-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/broker.sock", folder);
    return 0;
}

static int teardown(void **state) {
    unlink(path);
    rmdir(folder);
    return 0;
}

static void kill_and_wait(pid_t pid) {
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Waits until the broker holds the base alone, and nobody has it open. */
static void assert_base_alone(cen_share *share, int step) {
    size_t sets = 0, leases = 0;
    for (int ms = 0; ms < SOON_MS; ms++) {
        cen_share_list *list;
        if (!cen_share_list_read(share, &list)) {
            sets = list->set_count;
            leases = list->lease_count;
            cen_share_list_free(list);
            if (sets == 1 && !leases) {
                return;
            }
        }
        usleep(1000);
    }
    fail_msg("after step %d there are %zu sets and %zu leases", step, sets, leases);
}

/* ---- a client dies ---- */

static void a_client_may_die_at_every_step(void **state) {
    pid_t broker = broker_start(0);
    cen_device *device = open_device();
    cen_share *share;
    OK(connect_to(&share));
    OK(publish(share, device, "base", false));
    int step = 0, status = SIGKILL;
    while (status && step < MOST_STEPS) {
        pid_t pid = fork();
        step++;
        if (!pid) {
            ceni_ipc_step_arm(step, -1);
            cen_device *own = open_device();
            _exit(own && !do_all(own) ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(!status || WTERMSIG(status) == SIGKILL);
        assert_base_alone(share, step);
    }
    assert_true(step > 20 && step < MOST_STEPS);
    cen_share_disconnect(share);
    cen_device_close(device);
    kill_and_wait(broker);
}

/* ---- the broker dies ---- */

/* The publisher of the base, which stays through all restarts; ends when its socket does. */
static pid_t keeper_start(int *control) {
    int ends[2];
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        cen_share *share;
        cen_device *device = open_device();
        close(ends[0]);
        if (!device || connect_to(&share) || publish(share, device, "base", false) ||
            write(ends[1], "x", 1) != 1) {
            _exit(1);
        }
        _exit(read(ends[1], &byte, 1) < 0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    *control = ends[0];
    return pid;
}

/* Whether the broker dies, within so long: its last steps come after the client's. */
static bool dies(pid_t broker, int linger_ms) {
    pid_t ended = waitpid(broker, NULL, WNOHANG);
    for (int ms = 0; !ended && ms < linger_ms; ms++) {
        usleep(1000);
        ended = waitpid(broker, NULL, WNOHANG);
    }
    return ended == broker;
}

/* Again until it succeeds: the broker may die under it, and is then started anew. Whether it died.
 */
static bool until_done(cen_device *device, int step, pid_t *broker) {
    cen_status status = CEN_ERR_NO_BROKER;
    bool died = false;
    for (int ms = 0; status && ms < SOON_MS; ms += 10) {
        status = do_all(device);
        if (dies(*broker, status ? 0 : LINGER_MS)) {
            *broker = broker_start(0);
            died = true;
            status = CEN_ERR_NO_BROKER;
        } else if (status) {
            usleep(10000);
        }
    }
    if (status) {
        fail_msg("after step %d: %s", step, cen_status_name(status));
    }
    return died;
}

static void the_broker_may_die_at_every_step(void **state) {
    pid_t broker = broker_start(0);
    int control, step = 0;
    bool died = true;
    pid_t keeper = keeper_start(&control);
    cen_device *device = open_device();
    while (died && step < MOST_STEPS) {
        kill_and_wait(broker);
        broker = broker_start(++step);
        died = until_done(device, step, &broker);
        if (!died) { /* it went through fewer, and may not die of what follows */
            kill_and_wait(broker);
            broker = broker_start(0);
        }
        cen_share *share;
        OK(connect_to(&share));
        assert_base_alone(share, step);
        cen_share_disconnect(share);
    }
    assert_true(step > 10 && step < MOST_STEPS);
    cen_device_close(device);
    close(control);
    kill_and_wait(keeper);
    kill_and_wait(broker);
}

int main(void) {
#if defined(__SANITIZE_THREAD__)
    puts("skipped: the thread sanitizer follows no threads of a forked child");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_client_may_die_at_every_step, setup, teardown),
        cmocka_unit_test_setup_teardown(the_broker_may_die_at_every_step, setup, teardown),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
