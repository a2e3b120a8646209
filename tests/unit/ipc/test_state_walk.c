/* Random walks through the broker's state, and what a lease costs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/log.h"
#include "tests/random.h"
#include "tests/unit/ipc/requests.h"

static world *w;

static int set_up(void **state) {
    w = world_new(0x1111);
    return 0;
}
static int tear_down(void **state) {
    return world_free(w) ? 0 : -1;
}

static void holds(void) {
    assert_int_equal(ceni_state_verify(w->state), CEN_OK);
}

static uint64_t random_state;
static uint32_t pick(uint32_t n) {
    return (uint32_t)(random_next(&random_state) >> 33) % n;
}

static uint64_t sets[64], exports[256];

static void announce(unsigned i) {
    uint64_t set = 5000 + pick(6);
    const publication p = {.set = set,
                           .export_id = 6000 + set * 4 + pick(4),
                           .version = pick(2) ? 0 : 1 + pick(4),
                           .flags = CENI_WIRE_AGAIN | pick(2) * CENI_WIRE_KEEP |
                                    pick(3) / 2 * CENI_WIRE_WITHDRAWN |
                                    pick(4) / 3 * CENI_WIRE_ONCE};
    publication q = p;
    q.name = p.version ? "again" : NULL;
    exports[pick(256)] = p.export_id;
    switch (pick(3)) {
    case 0:
        (void)send_set(w, i, set, 1 + pick(2), 1 + pick(2));
        break;
    case 1:
        (void)send_publish(w, i, &q);
        break;
    default:
        (void)send_lease(w, i, set, p.export_id, pick(4) == 0);
    }
}

static void make(unsigned i) {
    static const char *const names[] = {"one", "two", "three", "again", NULL};
    publication p = {.set = sets[pick(64)], .name = names[pick(5)], .access_count = 1};
    p.access[0] = (ceni_wire_access){CEN_SHARE_ALL, 0, 1, 0};
    p.flags = pick(64) &
              (CENI_WIRE_KEEP | CENI_WIRE_KEEP_OLDER | CENI_WIRE_DIRECTORY_FD | CENI_WIRE_EVENT_FD);
    p.flags |= pick(4) ? 0 : CENI_WIRE_ONCE;
    p.ttl_ms = p.flags & CENI_WIRE_ONCE ? pick(100) : 0;
    if (pick(3) == 0) {
        sets[pick(64)] = new_set(w, i, 1 + pick(3));
    } else if (!send_publish(w, i, &p)) {
        exports[pick(256)] = ((const ceni_wire_publish_reply *)world_body(w, i))->export_id;
    }
}

static void use(unsigned i) {
    static const char *const names[] = {"one", "two", "three", "again", "never"};
    uint64_t id = exports[pick(256)];
    switch (pick(10)) {
    case 0:
    case 1:
    case 2:
        (void)open_version(w, i, names[pick(5)], pick(4) / 3 * pick(5), pick(2),
                           pick(2) * pick(80));
        break;
    case 3:
        (void)open_token(w, i, id, 7 + pick(5) / 4);
        break;
    case 4:
    case 5:
        (void)send_id(w, i, CENI_WIRE_CLOSE, id);
        break;
    case 6:
        (void)send_pages(w, i, sets[pick(64)], pick(3));
        break;
    case 7:
        (void)send_watch(w, i, names[pick(5)], pick(2));
        break;
    case 8:
        (void)send_list(w, i, (uint64_t)pick(6) << 32 | pick(4));
        break;
    default:
        (void)send_event(w, i, id,
                         pick(5) ? pick(4) * CENI_WIRE_EVENT_FD : (uint32_t)CENI_WIRE_EVENT_CLEAR);
    }
}

static void end(unsigned i) {
    static const enum ceni_wire_type types[] = {CENI_WIRE_WITHDRAW, CENI_WIRE_REVOKE,
                                                CENI_WIRE_DROP};
    unsigned which = pick(3);
    (void)send_id(w, i, types[which], which == 2 ? sets[pick(64)] : exports[pick(256)]);
}

static void come_or_go(unsigned i) {
    actor *a = &w->actors[i];
    if (!a->there || !a->connected) {
        if (a->there && pick(3) == 0) {
            world_dead(w, i);
        } else {
            (void)world_hello(w, i, i ? 500 + i % 3 : 0, pick(4) != 0);
        }
    } else if (pick(2)) {
        world_hangup(w, i);
    } else {
        world_dead(w, i);
    }
}

static void walk_a_step(unsigned i) {
    w->now += pick(4);
    ceni_state_now(w->state, w->now);
    ceni_state_tick(w->state);
    if (!w->actors[i].connected || pick(30) == 0) {
        come_or_go(i);
        return;
    }
    switch (pick(8)) {
    case 0:
    case 1:
        make(i);
        break;
    case 2:
        announce(i);
        break;
    case 3:
        end(i);
        break;
    default:
        use(i);
    }
}

static void walk(uint64_t seed, unsigned steps, bool faults) {
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    memset(sets, 0, sizeof sets);
    for (unsigned i = 0; i < steps; i++) {
        if (faults) {
            ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 1 + pick(3), false);
        }
        unsigned deaf = pick(WORLD_ACTORS); /* now and then one takes no notice, and is cut off */
        bool cut = pick(8) == 0 && w->actors[deaf].connected;
        w->actors[deaf].deaf = cut;
        walk_a_step(pick(WORLD_ACTORS));
        if (cut && w->actors[deaf].connected) {
            world_hangup(w, deaf);
        }
        w->actors[deaf].deaf = false;
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        if (ceni_state_verify(w->state) || w->broken) {
            fail_msg("seed %d, step %u: %s", (int)seed, i, cen_log_last_error());
        }
    }
    for (unsigned i = 0; i < WORLD_ACTORS; i++) {
        if (w->actors[i].there) {
            world_dead(w, i);
        }
    }
    w->now += 100000;
    ceni_state_now(w->state, w->now);
    ceni_state_tick(w->state);
    holds();
    ceni_state_counts c = ceni_state_count(w->state);
    assert_int_equal(c.leases, 0);
    assert_int_equal(c.clients, 0);
    world_hello(w, 0, 0, true);
    for (unsigned i = 0; i < 256; i++) { /* what is left was kept */
        (void)send_id(w, 0, CENI_WIRE_WITHDRAW, exports[i]);
    }
    holds();
}

static void a_random_walk_keeps_the_invariants(void **state) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        walk(seed, 3000, seed % 3 == 0);
        assert_true(world_free(w));
        w = world_new(seed);
    }
}

static void a_lease_takes_less_than_100_bytes(void **state) {
    enum { CLIENTS = 20, EXPORTS = 1000 };
    static const ceni_state_limits limits = {CLIENTS + 1, 10, EXPORTS, 100000, 10000};
    ceni_state_calls calls = {.reply = world_reply,
                              .notice = world_notice,
                              .close = world_close,
                              .check = world_check,
                              .read_only = world_read_only,
                              .quota = world_quota};
    ceni_state_destroy(w->state);
    const ceni_state_random random = {.instance = 5, .seed = 6, .key = {7, 8}};
    w->state = ceni_state_create(&limits, &calls, w, &random);
    uint64_t id[EXPORTS];
    assert_int_equal(world_hello(w, CLIENTS, 500, true), CEN_OK);
    uint64_t set = new_set(w, CLIENTS, 1);
    for (unsigned e = 0; e < EXPORTS; e++) {
        id[e] = publish(w, CLIENTS, set, NULL, 0);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_int_equal(world_hello(w, i, 500, true), CEN_OK);
        for (unsigned e = 0; e < EXPORTS; e++) {
            assert_int_equal(open_token(w, i, id[e], 7), CEN_OK);
        }
    }
    ceni_state_counts c = ceni_state_count(w->state);
    assert_int_equal(c.leases, CLIENTS * EXPORTS);
    print_message("%.1f bytes a lease\n", (double)c.lease_bytes / c.leases);
    assert_in_range(c.lease_bytes / c.leases, 1, 99);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_random_walk_keeps_the_invariants, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lease_takes_less_than_100_bytes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
