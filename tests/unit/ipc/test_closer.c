/* Closing what others sent: everything is closed, at once or apart. Files whose close waits are in
 * tests/integration/test_broker_hostile.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "ipc/closer.h"
#include "ipc/wire.h"
#include "tests/files.h"

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

/* Until its threads are done. */
static void wait_for(ceni_closer *closer, uint32_t uid) {
    while (ceni_closer_count(closer, uid)) {
        usleep(1000);
    }
}

static void all_files_are_closed(void **state) {
    enum { PIPES = 32 };
    int pipes[PIPES][2];
    unsigned threads = threads_of(getpid());
    ceni_closer *closer = ceni_closer_create();
    assert_non_null(closer);
    int memfd = memfd_create("closer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    ceni_closer_close(closer, 500, -1);
    ceni_closer_close(closer, 500, memfd);
    ceni_closer_close(closer, 500, pidfd);
    assert_false(is_open(memfd) || is_open(pidfd)); /* at once */
    for (int i = 0; i < PIPES; i++) {
        assert_int_equal(pipe(pipes[i]), 0);
    }
    unsigned files = files_of(getpid());
    for (int i = 0; i < PIPES; i++) {
        ceni_closer_close(closer, 500, pipes[i][0]);
        ceni_closer_close(closer, 501, pipes[i][1]);
        assert_true(threads_stay_within(getpid(), threads + 2 * CENI_CLOSER_THREADS));
    }
    wait_for(closer, 500);
    wait_for(closer, 501);
    assert_int_equal(files_of(getpid()), files - 2 * PIPES);
    ceni_closer_leave(closer);
    ceni_closer_leave(NULL);
}

static void the_other_end_of_a_connection_knows(void **state) {
    int ends[2], file[2];
    char byte;
    ceni_closer *closer = ceni_closer_create();
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    int kept = dup(ends[1]);
    ceni_closer_hang_up(closer, 500, ends[1]);
    assert_false(is_open(ends[1])); /* nothing waited in it */
    assert_int_equal(recv(ends[0], &byte, 1, MSG_DONTWAIT), 0);
    close(kept);
    close(ends[0]);
    /* Files wait in it, unread. */
    static ceni_wire_builder b;
    ceni_wire_begin(&b, CENI_WIRE_LIST, 1, sizeof(ceni_wire_list));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    assert_int_equal(pipe(file), 0);
    assert_int_equal(ceni_wire_send(ends[0], &b, file, 1, true), CEN_OK);
    close(file[0]);
    ceni_closer_hang_up(closer, 500, ends[1]);
    wait_for(closer, 500);
    assert_false(is_open(ends[1]));
    assert_int_equal(write(file[1], "x", 1), -1); /* its reader went with it */
    close(file[1]);
    close(ends[0]);
    ceni_closer_leave(closer);
}

static void without_memory_they_are_closed_all_the_same(void **state) {
    int ends[2];
    ceni_closer *closer = ceni_closer_create();
    for (int64_t n = 1; n <= 2; n++) {
        assert_int_equal(pipe(ends), 0);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], n, false);
        ceni_closer_close(closer, 500, ends[0]);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        wait_for(closer, 500);
        assert_false(is_open(ends[0]));
        close(ends[1]);
    }
    ceni_closer_leave(closer);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_files_are_closed),
        cmocka_unit_test(the_other_end_of_a_connection_knows),
        cmocka_unit_test(without_memory_they_are_closed_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
