/* What tests of the broker's state begin and end with: a world, whose state is whole at its end. */
#ifndef TESTS_UNIT_IPC_STATE_FIXTURE_H
#define TESTS_UNIT_IPC_STATE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/ipc/requests.h"

enum { A, B, C, D };

static world *w;

static inline int set_up(void **state) {
    w = world_new(0x1111);
    return 0;
}
static inline int tear_down(void **state) {
    bool whole = !ceni_state_verify(w->state);
    return world_free(w) && whole ? 0 : -1;
}

static inline void come(unsigned i, uint32_t uid) {
    assert_int_equal(world_hello(w, i, uid, true), CEN_OK);
}
static inline void holds(void) {
    assert_int_equal(ceni_state_verify(w->state), CEN_OK);
}
static inline ceni_state_counts count(void) {
    holds();
    return ceni_state_count(w->state);
}
static inline const ceni_wire_open_reply *opened(unsigned i) {
    return world_body(w, i);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
