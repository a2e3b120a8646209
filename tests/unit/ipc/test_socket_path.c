/* Where brokers listen, and where clients look for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cenote/broker.h"
#include "cenote/log.h"
#include "ipc/path.h"

static char folder[64], own[64], sock[96], path[108];

static int set_up(void **state) {
    unsetenv("CENOTE_BROKER");
    strcpy(folder, "/tmp/cenote-path-XXXXXX");
    if (!mkdtemp(folder)) {
        return -1;
    }
    snprintf(own, sizeof own, "%s/cenote", folder);
    snprintf(sock, sizeof sock, "%s/broker.sock", own);
    return setenv("XDG_RUNTIME_DIR", folder, 1);
}

static int tear_down(void **state) {
    unlink(sock);
    rmdir(own);
    return rmdir(folder);
}

static void what_is_named_is_taken(void **state) {
    ceni_ipc_place place;
    assert_int_equal(setenv("CENOTE_BROKER", "/in/environment", 1), 0);
    assert_int_equal(ceni_ipc_socket_path("/as/argument", path, sizeof path), CEN_OK);
    assert_string_equal(path, "/as/argument");
    assert_int_equal(ceni_ipc_socket_path("", path, sizeof path), CEN_OK);
    assert_string_equal(path, "/in/environment");
    assert_int_equal(ceni_ipc_listen_path(NULL, path, sizeof path, &place), CEN_OK);
    assert_string_equal(path, "/in/environment");
    assert_int_equal(place, CENI_IPC_NAMED);
}

static void a_client_looks_for_its_users_own_first(void **state) {
    assert_int_equal(ceni_ipc_socket_path(NULL, path, sizeof path), CEN_OK);
    assert_string_equal(path, "/run/cenote/broker.sock");
    assert_int_equal(mkdir(own, 0700), 0);
    close(open(sock, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(ceni_ipc_socket_path(NULL, path, sizeof path), CEN_OK);
    assert_string_equal(path, sock);
    unsetenv("XDG_RUNTIME_DIR");
    assert_int_equal(ceni_ipc_socket_path(NULL, path, sizeof path), CEN_OK);
    assert_string_equal(path, "/run/cenote/broker.sock");
}

/* Where a broker of that user listens, as seen by a client; a process's own, as it does not come
 * back from being another user. */
static int as_user(uid_t uid) {
    ceni_ipc_place place;
    if (setuid(uid) || ceni_ipc_listen_path(NULL, path, sizeof path, &place)) {
        return 1;
    }
    if (strcmp(path, uid ? sock : "/run/cenote/broker.sock") ||
        place != (uid ? CENI_IPC_OWN : CENI_IPC_SHARED)) {
        return 2;
    }
    setenv("XDG_RUNTIME_DIR", "", 1);
    return ceni_ipc_listen_path(NULL, path, sizeof path, &place) || place != CENI_IPC_SHARED;
}

static void a_broker_is_its_users_or_the_machines(void **state) {
    const uid_t users[] = {geteuid(), 65534};
    for (unsigned i = 0; i < (geteuid() ? 1 : 2); i++) {
        int status;
        pid_t pid = fork();
        if (!pid) {
            _exit(as_user(users[i]));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

static void a_path_has_to_fit(void **state) {
    char name[120];
    ceni_ipc_place place;
    memset(name, 'n', sizeof name);
    name[108] = '\0';
    assert_int_equal(ceni_ipc_socket_path(name, path, sizeof path), CEN_ERR_INVALID);
    assert_non_null(strstr(cen_log_last_error(), "a path of 108 bytes is too long"));
    assert_int_equal(ceni_ipc_listen_path(name, path, sizeof path, &place), CEN_ERR_INVALID);
    name[107] = '\0';
    assert_int_equal(ceni_ipc_socket_path(name, path, sizeof path), CEN_OK);
    assert_string_equal(path, name);
    setenv("XDG_RUNTIME_DIR", name, 1); /* a client does without */
    assert_int_equal(ceni_ipc_socket_path(NULL, path, sizeof path), CEN_OK);
    assert_string_equal(path, "/run/cenote/broker.sock");
}

static void no_broker_is_no_crash(void **state) {
    cen_broker_stop(NULL);
    cen_broker_destroy(NULL);
    assert_string_equal(cen_broker_socket(NULL), "");
    assert_int_equal(cen_broker_run(NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_broker_create(NULL, NULL), CEN_ERR_INVALID);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_named_is_taken),
        TEST(a_client_looks_for_its_users_own_first),
        TEST(a_broker_is_its_users_or_the_machines),
        TEST(a_path_has_to_fit),
        TEST(no_broker_is_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
