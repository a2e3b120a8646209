/* What tests of the broker begin and end with: the broker in a process of its own, and a client. */
#ifndef TESTS_BROKER_FIXTURE_H
#define TESTS_BROKER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/integration/raw_client.h"

static server s;
static raw me, other;

static inline int start(void **state) {
    return server_start(&s, NULL, 0) && !raw_dial(&me, s.path) ? 0 : -1;
}

/* Every test ends with a broker that lives and has let go of everything. */
static inline int end(void **state) {
    raw_leave(&me);
    bool empty = server_is_empty(&s);
    if (!empty) {
        fprintf(stderr, "the broker has %u files open, not %u\n", files_of(s.pid), s.files);
    }
    bool lived = server_kill(&s);
    unlink(s.path);
    rmdir(s.folder);
    return empty && lived ? 0 : -1;
}

#define CHECK_IN_CHILD(holds)                                                                      \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "line %d: %s\n", __LINE__, #holds);                                    \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

#endif
