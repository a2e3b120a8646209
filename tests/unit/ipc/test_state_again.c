/* What the broker's state makes of a restart: what it is told again, and what it told before, so
 * that the next one is told right. */
#include "ipc/state_int.h"
#include "tests/unit/ipc/state_fixture.h"

enum { WITHDRAWN = CENI_WIRE_NOTICE_WITHDRAWN };

static void a_restart_is_told_by_publishers_and_readers(void **state) {
    const publication p = {
        .set = 77, .export_id = 78, .version = 4, .name = "n", .flags = CENI_WIRE_AGAIN};
    come(A, 500);
    come(B, 501);
    come(C, 500);
    come(D, 500);
    assert_int_equal(send_lease(w, C, 77, 78, false), CEN_OK); /* before it is known */
    assert_int_equal(send_lease(w, C, 77, 78, false), CEN_ERR_INVALID);
    assert_int_equal(send_lease(w, B, 77, 78, false), CEN_OK); /* may not: forgotten later */
    assert_int_equal(send_lease(w, D, 77, 99, false), CEN_OK); /* nobody ever announces it */
    holds();
    assert_int_equal(send_set(w, A, 77, 1, 2), CEN_OK);
    assert_int_equal(send_set(w, D, 77, 1, 2), CEN_ERR_BUSY); /* has a publisher */
    assert_int_equal(send_set(w, B, 77, 1, 2), CEN_ERR_PERMISSION);
    assert_int_equal(send_set(w, C, 77, 2, 2), CEN_OK);
    assert_int_equal(w->open_count, 2); /* C's pages were here already */
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    assert_int_equal(count().leases, 1);
    assert_int_equal(open_name(w, D, "n", 0), CEN_OK);
    assert_int_equal(opened(D)->version, 4);
    assert_int_equal(send_id(w, A, CENI_WIRE_WITHDRAW, 78), CEN_OK);
    assert_int_equal(send_id(w, D, CENI_WIRE_CLOSE, 78), CEN_OK);
    world_dead(w, C);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 1);
    assert_int_equal(w->actors[A].notice.unclean, 1); /* a reader may not be back yet */
    assert_int_equal(send_id(w, D, CENI_WIRE_CLOSE, 99), CEN_OK);
    holds();
}

static void a_reader_holds_up_a_dead_publishers_set(void **state) {
    publication p = {
        .set = 77, .export_id = 78, .version = 4, .name = "n", .flags = CENI_WIRE_AGAIN};
    come(A, 500);
    come(B, 500);
    assert_int_equal(send_set(w, A, 77, 2, 1), CEN_OK);
    assert_int_equal(send_publish(w, A, &p), CEN_OK); /* and that is its lease */
    assert_int_equal(count().leases, 1);
    assert_int_equal(open_name(w, B, "n", 0), CEN_ERR_NOT_FOUND); /* not kept */
    assert_int_equal(send_lease(w, A, 77, 78, false), CEN_OK);
    p.export_id = 79;
    p.name = "kept";
    p.flags |= CENI_WIRE_KEEP;
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    assert_int_equal(open_name(w, B, "kept", 0), CEN_OK);
    assert_int_equal(send_pages(w, B, 77, 0), CEN_OK);
    assert_int_equal(send_set(w, B, 77, 1, 1), CEN_OK); /* the publisher lives after all */
    p.export_id = 78;
    p.name = "n";
    p.flags = CENI_WIRE_AGAIN;
    p.token = 9;
    assert_int_equal(send_publish(w, B, &p), CEN_ERR_PERMISSION); /* another token */
    p.token = 0;
    assert_int_equal(send_publish(w, B, &p), CEN_OK);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK); /* it is there again */
    world_dead(w, A);
    world_dead(w, B);
    assert_int_equal(count().exports, 1); /* the kept one */
    come(A, 500);
    assert_int_equal(send_set(w, A, 80, 2, 1), CEN_OK);
    world_hangup(w, A);
    assert_int_equal(count().sets, 1); /* nothing came of the other */
}

/* So that they say so to the next broker. */
static void a_withdrawal_is_told_to_who_announces_it(void **state) {
    come(A, 500);
    come(B, 500);
    come(C, 501);
    come(D, 500);
    uint64_t set = new_set(w, A, 1);
    publication p = {.set = set, .name = "n", .access_count = 1};
    p.access[0] = (ceni_wire_access){CEN_SHARE_ALL, 0, 0, 0};
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    uint64_t first = ((const ceni_wire_publish_reply *)world_body(w, A))->export_id;
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    assert_int_equal(open_name(w, C, "n", 0), CEN_OK);
    assert_int_equal(send_id(w, D, CENI_WIRE_WITHDRAW, first), CEN_OK);
    assert_int_equal(w->actors[A].notices[WITHDRAWN], 1);
    assert_true(w->actors[A].notice.export_id == first && !w->actors[A].notice.name_size);
    assert_int_equal(w->actors[B].notices[WITHDRAWN], 1);
    assert_int_equal(w->actors[C].notices[WITHDRAWN], 0); /* it would not announce it */
    assert_int_equal(send_id(w, D, CENI_WIRE_REVOKE, first), CEN_OK);
    assert_int_equal(w->actors[A].notices[WITHDRAWN], 1);
    /* By a newer version, of the same process or another; before IDLE. */
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    uint64_t other = new_set(w, D, 1);
    p.set = other;
    assert_int_equal(send_publish(w, D, &p), CEN_OK);
    assert_int_equal(w->actors[A].notices[WITHDRAWN], 2);
    assert_int_equal(w->actors[A].notice.kind, CEN_SHARE_IDLE);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    assert_int_equal(send_publish(w, D, &p), CEN_OK);
    assert_int_equal(w->actors[B].notices[WITHDRAWN], 2);
    /* The one who asks knows; a DROP takes what is kept, too. */
    p.flags = CENI_WIRE_KEEP;
    assert_int_equal(send_publish(w, D, &p), CEN_OK);
    unsigned told = w->actors[D].notices[WITHDRAWN];
    uint64_t last = ((const ceni_wire_publish_reply *)world_body(w, D))->export_id;
    assert_int_equal(send_id(w, D, CENI_WIRE_WITHDRAW, last), CEN_OK);
    assert_int_equal(w->actors[D].notices[WITHDRAWN], told);
    assert_int_equal(send_publish(w, D, &p), CEN_OK);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    assert_int_equal(send_id(w, D, CENI_WIRE_DROP, other), CEN_OK);
    assert_int_equal(w->actors[B].notices[WITHDRAWN], 3);
}

/* What was away hears of it when it is back, and a publisher of the parcel that is taken. */
static void a_withdrawal_is_told_later(void **state) {
    come(A, 500);
    come(B, 500);
    come(C, 500);
    uint64_t set = new_set(w, A, 1), id = publish(w, A, set, "n", 0);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    world_hangup(w, A);
    world_hangup(w, B);
    assert_int_equal(send_id(w, C, CENI_WIRE_WITHDRAW, id), CEN_OK);
    come(A, 500);
    come(B, 500);
    assert_int_equal(w->actors[A].notices[WITHDRAWN], 1);
    assert_int_equal(w->actors[B].notices[WITHDRAWN], 1);
    assert_int_not_equal(publish(w, A, set, "p", CENI_WIRE_ONCE), 0);
    assert_int_equal(open_name(w, B, "p", 0), CEN_OK);
    assert_int_equal(w->actors[A].notices[WITHDRAWN], 2);
    assert_int_equal(w->actors[B].notices[WITHDRAWN], 1); /* knows */
    holds();
}

static cen_status announce(unsigned i, uint32_t again, uint64_t set, uint64_t id, uint32_t flags) {
    const publication p = {
        .set = set, .export_id = id, .version = 4, .name = "n", .flags = flags | CENI_WIRE_AGAIN};
    cen_status status = send_set(w, i, set, again, 1);
    return status ? status : send_publish(w, i, &p);
}

static void what_was_withdrawn_stays_so(void **state) {
    come(A, 500);
    come(B, 500);
    come(C, 500);
    assert_int_equal(announce(B, 2, 77, 78, 0), CEN_OK); /* only hidden until A is here */
    assert_int_equal(send_id(w, C, CENI_WIRE_WITHDRAW, 78), CEN_OK);
    assert_int_equal(w->actors[B].notices[WITHDRAWN], 1);
    assert_int_equal(announce(A, 1, 77, 78, 0), CEN_OK);
    assert_int_equal(w->actors[A].notices[WITHDRAWN], 1);
    assert_int_equal(open_name(w, C, "n", 0), CEN_ERR_NOT_FOUND);
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, 78), CEN_OK);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 1);
    holds();
    /* A reader knows what the publisher was not told. */
    assert_int_equal(announce(A, 1, 87, 88, CENI_WIRE_KEEP), CEN_OK);
    assert_int_equal(announce(B, 2, 87, 88, CENI_WIRE_KEEP | CENI_WIRE_WITHDRAWN), CEN_OK);
    assert_int_equal(w->actors[A].notices[WITHDRAWN], 2);
    assert_int_equal(open_name(w, C, "n", 0), CEN_ERR_NOT_FOUND);
    /* And one that is told again as open hears that it is not. */
    assert_int_equal(announce(C, 2, 87, 88, CENI_WIRE_KEEP), CEN_OK);
    assert_int_equal(w->actors[C].notices[WITHDRAWN], 1);
    holds();
}

static void what_is_over_does_not_come_back(void **state) {
    come(A, 500);
    come(B, 500);
    come(C, 501);
    assert_int_equal(announce(A, 2, 77, 78, CENI_WIRE_KEEP), CEN_OK);
    assert_int_equal(send_id(w, A, CENI_WIRE_WITHDRAW, 78), CEN_OK);
    assert_int_equal(send_id(w, A, CENI_WIRE_CLOSE, 78), CEN_OK);
    assert_int_equal(count().exports, 0);
    assert_int_equal(announce(B, 2, 77, 78, CENI_WIRE_KEEP), CEN_OK); /* late */
    assert_int_equal(w->actors[B].notices[WITHDRAWN], 1);
    assert_int_equal(open_name(w, A, "n", 0), CEN_ERR_NOT_FOUND);
    world_dead(w, A);
    world_dead(w, B);
    assert_int_equal(count().users, 2);
    come(A, 500); /* also when nobody of the user was there meanwhile */
    come(B, 500);
    assert_int_equal(announce(A, 1, 77, 78, CENI_WIRE_KEEP), CEN_OK);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 1);
    /* An id that this broker gave needs no note. */
    uint64_t set = new_set(w, A, 1), id = publish(w, A, set, "n", CENI_WIRE_KEEP);
    assert_int_equal(send_id(w, A, CENI_WIRE_WITHDRAW, id), CEN_OK);
    assert_int_equal(announce(B, 2, set, id, CENI_WIRE_KEEP), CEN_OK);
    assert_int_equal(open_name(w, A, "n", 0), CEN_ERR_NOT_FOUND);
    /* What was only hidden may be announced by its publisher. */
    assert_int_equal(announce(B, 2, 97, 98, 0), CEN_OK);
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, 98), CEN_OK);
    assert_int_equal(announce(A, 1, 97, 98, 0), CEN_OK);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    holds();
}

/* The notes are bounded, for each user. */
static void only_so_much_is_kept_of_what_is_over(void **state) {
    come(A, 500);
    come(B, 501);
    assert_int_equal(announce(B, 1, 6000, 6001, CENI_WIRE_WITHDRAWN), CEN_OK);
    for (uint64_t i = 0; i <= CENI_OVER_MAX; i++) {
        assert_int_equal(announce(A, 1, 77, 100000 + i, CENI_WIRE_WITHDRAWN), CEN_OK);
    }
    assert_int_equal(count().exports, 0);
    assert_int_equal(announce(A, 1, 77, 100001, 0), CEN_OK);
    assert_int_equal(open_name(w, A, "n", 0), CEN_ERR_NOT_FOUND);
    assert_int_equal(announce(A, 1, 77, 100000, 0), CEN_OK); /* the first is forgotten */
    assert_int_equal(open_name(w, A, "n", 0), CEN_OK);
    assert_int_equal(announce(B, 1, 6000, 6001, 0), CEN_OK);
    assert_int_equal(w->actors[B].notices[WITHDRAWN], 1);
}

static void idle_is_for_who_announced_it(void **state) {
    come(A, 500);
    come(B, 500);
    assert_int_equal(announce(B, 2, 77, 78, 0), CEN_OK);
    assert_int_equal(send_set(w, A, 77, 1, 1), CEN_OK); /* takes it for open */
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, 78), CEN_OK);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 0);
    assert_int_equal(count().exports, 0);
    assert_int_equal(announce(A, 1, 77, 78, 0), CEN_OK);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    world_dead(w, A); /* another that takes the set over has to announce it, too */
    come(A, 500);
    assert_int_equal(send_set(w, A, 77, 1, 1), CEN_OK);
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, 78), CEN_OK);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 0);
    assert_int_equal(count().exports, 0);
}

/* Who asked before the publisher was back. */
static void who_waits_hears_of_what_is_told_again(void **state) {
    come(A, 500);
    come(B, 500);
    come(C, 500);
    come(D, 500);
    assert_int_equal(send_watch(w, C, "n", true), CEN_OK);
    assert_int_equal(open_version(w, D, "n", 0, 0, 100), CEN_ERR_NOT_READY);
    assert_int_equal(announce(B, 2, 77, 78, 0), CEN_OK);
    assert_int_equal(w->actors[C].notices[CEN_SHARE_NEW_VERSION], 0);
    assert_int_equal(announce(A, 1, 77, 78, 0), CEN_OK);
    assert_int_equal(w->actors[C].notices[CEN_SHARE_NEW_VERSION], 1);
    assert_true(opened(D)->export_id == 78);
    assert_int_equal(announce(A, 1, 77, 78, 0), CEN_OK);
    assert_int_equal(w->actors[C].notices[CEN_SHARE_NEW_VERSION], 1);
}

/* A notice that is not taken comes again. */
static void idle_is_not_lost(void **state) {
    come(A, 500);
    uint64_t set = new_set(w, A, 1), id = publish(w, A, set, "n", 0);
    w->actors[A].deaf = true;
    assert_int_equal(send_id(w, A, CENI_WIRE_WITHDRAW, id), CEN_OK);
    world_hangup(w, A);
    assert_int_equal(count().exports, 1);
    come(A, 500);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 1);
    assert_int_equal(count().exports, 0);
}

/* Who knows some ids of a broker cannot announce others' to the next one. */
static void ids_are_not_guessed(void **state) {
    static const uint32_t key[4] = {0x00010203, 0x04050607, 0x08090a0b, 0x0c0d0e0f};
    assert_true(ceni_id_encrypt(key, 0x4142434445464748) == 0x497df3d072612cb5); /* XTEA's own */
    assert_true(ceni_id_decrypt(key, 0x497df3d072612cb5) == 0x4142434445464748);
    come(A, 500);
    come(B, 501);
    uint64_t before = new_set(w, B, 1), set = new_set(w, A, 1), id = publish(w, A, set, "n", 0);
    uint64_t after = new_set(w, B, 1);
    assert_true(world_free(w));
    w = world_new(0x2222);
    come(A, 500);
    come(B, 501);
    for (uint64_t i = 1; i < 16; i++) {
        (void)send_set(w, B, before + i, 1, 1);
        (void)send_set(w, B, after - i, 1, 1);
    }
    assert_int_equal(send_set(w, A, set, 1, 1), CEN_OK);
    const publication p = {
        .set = set, .export_id = id, .version = 1, .name = "n", .flags = CENI_WIRE_AGAIN};
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_restart_is_told_by_publishers_and_readers),
        TEST(a_reader_holds_up_a_dead_publishers_set),
        TEST(a_withdrawal_is_told_to_who_announces_it),
        TEST(a_withdrawal_is_told_later),
        TEST(what_was_withdrawn_stays_so),
        TEST(what_is_over_does_not_come_back),
        TEST(only_so_much_is_kept_of_what_is_over),
        TEST(idle_is_for_who_announced_it),
        TEST(who_waits_hears_of_what_is_told_again),
        TEST(idle_is_not_lost),
        TEST(ids_are_not_guessed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
