/* Transfers through a ring: each ends once, with what it moved, and failures are told. */
#include "base/uring.h"

#include "base/fault.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { DEPTH = 4, UNIT = 1000, UNITS = 23 };

static FILE *file;
static char units[UNITS][UNIT];

static int make_file(void **state) {
    file = tmpfile();
    memset(units, 0, sizeof units);
    return !file;
}

static int close_file(void **state) {
    return fclose(file);
}

static ceni_uring *open_ring(void) {
    ceni_uring *ring = NULL;
    assert_int_equal(ceni_uring_open(DEPTH, &ring), 0);
    return ring;
}

static ceni_uring_move move_of(uint64_t i, bool write) {
    return (ceni_uring_move){.fd = fileno(file),
                             .write = write,
                             .data = units[i],
                             .bytes = UNIT,
                             .offset = i * UNIT,
                             .tag = i};
}

/* Moves all units, as many at once as there is room for. */
static void move_all(ceni_uring *ring, bool write) {
    bool ended[UNITS] = {false};
    uint64_t next = 0, tag = UNITS;
    int moved = 0;
    for (int ends = 0; ends < UNITS; ends++) {
        int error = 0;
        while (next < UNITS && !error) {
            ceni_uring_move move = move_of(next, write);
            error = ceni_uring_start(ring, &move);
            next += !error;
        }
        assert_true(!error || (error == EBUSY && next == (uint64_t)ends + DEPTH));
        assert_int_equal(ceni_uring_take(ring, &tag, &moved), 0);
        assert_int_equal(moved, UNIT);
        assert_true(tag < UNITS && !ended[tag]);
        ended[tag] = true;
    }
    assert_int_equal(ceni_uring_take(ring, &tag, &moved), ENOENT);
}

static void what_is_written_is_read(void **state) {
    ceni_uring *ring = open_ring();
    for (int i = 0; i < UNITS; i++) {
        memset(units[i], i + 1, UNIT);
    }
    move_all(ring, true);
    memset(units, 0, sizeof units);
    move_all(ring, false);
    for (int i = 0; i < UNITS; i++) {
        for (int k = 0; k < UNIT; k++) {
            assert_int_equal(units[i][k], i + 1);
        }
    }
    assert_int_equal(ceni_uring_close(ring), 0);
}

static void failures_come_with_their_transfer(void **state) {
    ceni_uring *ring = open_ring();
    uint64_t tag = 0;
    int moved = 0;
    ceni_uring_move move = move_of(7, false);
    assert_int_equal(ceni_uring_start(ring, &move), 0); /* beyond the end */
    assert_int_equal(ceni_uring_take(ring, &tag, &moved), 0);
    assert_int_equal(tag, 7);
    assert_int_equal(moved, 0);
    move.fd = -1;
    assert_int_equal(ceni_uring_start(ring, &move), 0);
    assert_int_equal(ceni_uring_take(ring, &tag, &moved), 0);
    assert_int_equal(moved, -EBADF);
    assert_int_equal(ceni_uring_close(ring), 0);
}

static void closing_waits(void **state) {
    ceni_uring *ring = open_ring();
    char back = 0;
    for (uint64_t i = 0; i < DEPTH; i++) {
        memset(units[i], 9, UNIT);
        ceni_uring_move move = move_of(i, true);
        assert_int_equal(ceni_uring_start(ring, &move), 0);
    }
    assert_int_equal(ceni_uring_close(ring), 0);
    assert_int_equal(pread(fileno(file), &back, 1, DEPTH * UNIT - 1), 1);
    assert_int_equal(back, 9);
    assert_int_equal(ceni_uring_close(NULL), 0);
}

static void no_ring_is_told(void **state) {
    ceni_uring *ring = NULL;
    assert_int_equal(ceni_uring_open(0, &ring), EINVAL);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 1, false);
    assert_int_equal(ceni_uring_open(1, &ring), ENOMEM);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], 1, false);
    assert_int_equal(ceni_uring_open(1, &ring), ENOSYS);
    assert_null(ring);
    ring = open_ring();
    ceni_uring_move move = move_of(0, true);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], 1, false);
    assert_int_equal(ceni_uring_start(ring, &move), EIO);
    assert_int_equal(ceni_uring_close(ring), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read, make_file, close_file),
        cmocka_unit_test_setup_teardown(failures_come_with_their_transfer, make_file, close_file),
        cmocka_unit_test_setup_teardown(closing_waits, make_file, close_file),
        cmocka_unit_test_setup_teardown(no_ring_is_told, make_file, close_file),
    };
    ceni_uring *ring = NULL;
    int error = ceni_uring_open(1, &ring);
    if (error) {
        printf("skipped: the kernel gives no ring: %s\n", strerror(error));
        return 77;
    }
    ceni_uring_close(ring);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
