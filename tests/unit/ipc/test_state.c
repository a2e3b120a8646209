/* What the broker's state does with each request, by actors that are no processes. */
#include "tests/unit/ipc/state_fixture.h"

static void an_export_lives_from_publish_to_the_last_close(void **state) {
    come(A, 500);
    come(B, 500);
    uint64_t set = new_set(w, A, 3);
    uint64_t id = publish(w, A, set, "weights", CENI_WIRE_DIRECTORY_FD | CENI_WIRE_EVENT_FD);
    assert_int_equal(w->open_count, 5);
    assert_int_equal(open_name(w, B, "weights", 0), CEN_OK);
    const ceni_wire_open_reply *r = opened(B);
    assert_true(r->export_id == id && r->version == 1 && r->set == set && r->bytes == 300);
    assert_int_equal(r->flags, CENI_WIRE_DIRECTORY_FD | CENI_WIRE_EVENT_FD);
    assert_int_equal(w->actors[B].reply_fds, 2);
    assert_int_equal(send_pages(w, B, set, 1), CEN_OK);
    assert_int_equal(w->actors[B].reply_fds, 2);
    assert_int_equal(w->open_count, 5); /* those for reading only were closed */
    assert_int_equal(send_pages(w, A, set, 0), CEN_ERR_PERMISSION); /* it has no lease */
    assert_int_equal(send_id(w, A, CENI_WIRE_WITHDRAW, id), CEN_OK);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 0);
    assert_int_equal(open_name(w, A, "weights", 0), CEN_ERR_NOT_FOUND);
    holds();
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, id), CEN_OK);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 1);
    assert_true(w->actors[A].notice.export_id == id && !w->actors[A].notice.unclean);
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, id), CEN_ERR_NOT_FOUND);
    assert_int_equal(send_pages(w, B, set, 0), CEN_ERR_PERMISSION);
    assert_int_equal(w->open_count, 3);
    assert_int_equal(send_id(w, A, CENI_WIRE_DROP, set), CEN_OK);
    assert_int_equal(w->open_count, 0);
    assert_int_equal(count().sets, 0);
}

static cen_status send_part(unsigned i, uint64_t set, uint64_t bytes, uint32_t first,
                            unsigned pages) {
    ceni_wire_set *b = ceni_wire_begin(&request, CENI_WIRE_SET, 2, sizeof *b);
    *b = (ceni_wire_set){.set = set, .bytes = bytes, .page_bytes = 100, .uuid = "GPU-1"};
    b->page_count = (uint32_t)((bytes + 99) / 100);
    b->first_page = first;
    return world_send(w, i, &request, pages);
}

static void a_set_comes_in_parts_and_in_order(void **state) {
    come(A, 500);
    come(B, 500);
    assert_int_equal(send_part(A, 0, 10000, 0, 64), CEN_OK);
    uint64_t set = ((const ceni_wire_set_reply *)world_body(w, A))->set;
    assert_int_equal(publish(w, A, set, "early", 0), 0);
    assert_int_equal(send_part(A, set, 10000, 65, 35), CEN_ERR_INVALID);
    assert_int_equal(send_part(B, set, 10000, 64, 36), CEN_ERR_PERMISSION);
    w->refused_fd = w->next_fd + 3;
    assert_int_equal(send_part(A, set, 10000, 64, 36), CEN_ERR_INVALID);
    assert_non_null(strstr(world_body(w, A), "page 67 of GPU-1: it is the one"));
    assert_int_equal(send_part(A, set, 9999, 64, 36), CEN_ERR_INVALID);
    assert_int_equal(send_part(A, set, 10000, 64, 36), CEN_OK);
    assert_int_not_equal(publish(w, A, set, "ready", 0), 0);
    assert_int_equal(w->open_count, 100);
    assert_int_equal(send_part(A, 0, 10000, 0, 64), CEN_ERR_LIMIT); /* 120 descriptors a user */
    assert_int_equal(w->open_count, 100);
    holds();
    assert_int_equal(send_part(A, 0, 2000, 0, 10), CEN_OK); /* half of it when it goes */
    world_hangup(w, A);
    assert_int_equal(w->open_count, 100);
}

static void only_who_is_listed_opens(void **state) {
    come(A, 500);
    come(B, 501);
    come(C, 502);
    come(D, 0);
    uint64_t set = new_set(w, A, 1);
    publication p = {.set = set, .name = "n", .access_count = 2};
    p.access[0] = (ceni_wire_access){CEN_SHARE_USER, 501, 1, 0};
    p.access[1] = (ceni_wire_access){CEN_SHARE_GROUP, 5502, 0, 0}; /* a further group of C */
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    assert_int_equal(open_name(w, A, "n", 0), CEN_OK);
    assert_int_equal(open_name(w, A, "n", CENI_WIRE_OPEN_WRITE), CEN_ERR_PERMISSION);
    assert_int_equal(open_name(w, B, "n", CENI_WIRE_OPEN_WRITE), CEN_OK);
    assert_true(opened(B)->write == 1 && opened(B)->access_count == 2);
    assert_int_equal(open_name(w, C, "n", 0), CEN_OK);
    assert_int_equal(open_name(w, C, "n", CENI_WIRE_OPEN_WRITE), CEN_ERR_PERMISSION);
    assert_int_equal(open_name(w, D, "n", 0), CEN_OK);
    p.name = "other";
    p.access[0].write = 0;
    assert_int_equal(send_publish(w, A, &p), CEN_ERR_INVALID); /* the set has another list */
    set = new_set(w, A, 1);
    assert_int_not_equal(publish(w, A, set, "own", 0), 0);
    assert_int_equal(open_name(w, B, "own", 0), CEN_ERR_NOT_FOUND); /* as if it were not there */
    assert_int_equal(publish(w, B, set, "mine", 0), 0);             /* not B's set */
    set = new_set(w, B, 1);
    assert_int_equal(publish(w, B, set, "own", 0), 0); /* A's name */
    assert_int_not_equal(publish(w, B, set, "b", 0), 0);
    holds();
}

static void a_token_is_whole_and_ends_with_its_export(void **state) {
    come(A, 500);
    come(B, 500);
    come(C, 501);
    uint64_t set = new_set(w, A, 1), id = publish(w, A, set, NULL, 0);
    assert_int_equal(open_token(w, B, id, 6), CEN_ERR_NOT_FOUND);
    assert_int_equal(open_token(w, B, id + 1, 7), CEN_ERR_NOT_FOUND);
    assert_int_equal(open_token(w, C, id, 7), CEN_ERR_PERMISSION);
    assert_int_equal(send_lease(w, C, set, id, false), CEN_ERR_PERMISSION);
    assert_int_equal(open_token(w, B, id, 7), CEN_OK);
    assert_int_equal(send_id(w, C, CENI_WIRE_WITHDRAW, id),
                     CEN_ERR_NOT_FOUND);                             /* for C it is not */
    assert_int_equal(send_id(w, B, CENI_WIRE_WITHDRAW, id), CEN_OK); /* of the same user */
    assert_int_equal(open_token(w, B, id, 7), CEN_OK);               /* it has it open */
    assert_int_equal(open_token(w, A, id, 7), CEN_ERR_NOT_FOUND);
    assert_int_equal(send_lease(w, A, set, id, false), CEN_OK); /* counts, but gives no pages */
    assert_int_equal(send_pages(w, A, set, 0), CEN_ERR_PERMISSION);
    assert_int_equal(send_id(w, A, CENI_WIRE_CLOSE, id), CEN_OK);
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, id), CEN_OK);
    assert_int_equal(open_token(w, B, id, 7), CEN_ERR_NOT_FOUND);
}

static void readers_outlive_their_publisher(void **state) {
    come(A, 500);
    come(B, 500);
    uint64_t set = new_set(w, A, 2);
    uint64_t plain = publish(w, A, set, "plain", 0);
    publish(w, A, set, "kept", CENI_WIRE_KEEP);
    assert_int_equal(open_name(w, B, "plain", 0), CEN_OK);
    world_dead(w, A);
    assert_int_equal(w->actors[B].notices[CEN_SHARE_PUBLISHER_GONE], 1);
    assert_int_equal(open_name(w, B, "plain", 0), CEN_ERR_NOT_FOUND);
    assert_int_equal(open_name(w, B, "kept", 0), CEN_OK);
    uint64_t kept = opened(B)->export_id;
    assert_int_equal(send_pages(w, B, set, 0), CEN_OK);
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, plain), CEN_OK);
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, kept), CEN_OK);
    assert_int_equal(w->open_count, 2);
    assert_int_equal(count().exports, 1);
    assert_int_equal(send_id(w, B, CENI_WIRE_WITHDRAW, kept), CEN_OK);
    assert_int_equal(w->open_count, 0);
    assert_int_equal(count().sets, 0);
}

static void leases_end_with_the_process_not_the_socket(void **state) {
    come(A, 500);
    come(B, 500);
    uint64_t set = new_set(w, A, 1), id = publish(w, A, set, "n", 0);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    world_hangup(w, B);
    assert_true(w->actors[B].there);
    assert_int_equal(send_id(w, A, CENI_WIRE_REVOKE, id), CEN_OK);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 0);
    come(B, 500); /* resumes */
    assert_int_equal(((const ceni_wire_hello_reply *)world_body(w, B))->resumed, 1);
    assert_int_equal(w->actors[B].notices[CEN_SHARE_REVOKED], 1); /* it was away before */
    assert_int_equal(count().clients, 2);
    world_hangup(w, B);
    world_dead(w, B);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 1);
    assert_int_equal(w->actors[A].notice.unclean, 0);
    id = publish(w, A, set, "n", 0);
    assert_int_equal(world_hello(w, C, 500, false), CEN_OK); /* its death will not be seen */
    assert_int_equal(open_name(w, C, "n", 0), CEN_OK);
    assert_int_equal(send_id(w, A, CENI_WIRE_WITHDRAW, id), CEN_OK);
    world_hangup(w, C);
    assert_false(w->actors[C].there);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 2);
    assert_int_equal(w->actors[A].notice.unclean, 1);
}

static void another_process_does_not_resume(void **state) {
    come(A, 500);
    new_set(w, A, 1);
    uint64_t id = w->actors[A].id, secret = w->actors[A].secret;
    w->actors[B].id = id;
    w->actors[B].secret = secret;
    come(B, 500); /* knows the secret, but is another process */
    assert_int_equal(((const ceni_wire_hello_reply *)world_body(w, B))->resumed, 0);
    world_hangup(w, A);
    w->actors[A].secret++;
    come(A, 500);
    assert_int_equal(((const ceni_wire_hello_reply *)world_body(w, A))->resumed, 0);
    assert_int_equal(count().clients, 3);
}

static void an_absent_publisher_hears_of_idle_exports_later(void **state) {
    come(A, 500);
    come(B, 500);
    uint64_t set = new_set(w, A, 1), id = publish(w, A, set, "n", 0);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    assert_int_equal(send_id(w, A, CENI_WIRE_WITHDRAW, id), CEN_OK);
    world_hangup(w, A);
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, id), CEN_OK);
    holds();
    come(A, 500);
    assert_int_equal(w->actors[A].notices[CEN_SHARE_IDLE], 1);
    assert_int_equal(count().exports, 0);
}

static void versions_follow_each_other(void **state) {
    come(A, 500);
    come(B, 500);
    come(C, 501);
    uint64_t set = new_set(w, A, 1);
    uint64_t first = publish(w, A, set, "n", 0);
    assert_int_equal(send_watch(w, C, "n", true), CEN_OK);
    assert_int_equal(send_watch(w, B, "n", true), CEN_OK);
    assert_int_equal(send_watch(w, B, "n", true), CEN_OK);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    uint64_t second = publish(w, A, set, "n", CENI_WIRE_KEEP_OLDER);
    assert_int_equal(w->actors[B].notices[CEN_SHARE_NEW_VERSION], 1); /* once, by two reasons */
    assert_true(w->actors[B].notice.version == 2 && w->actors[B].notice.export_id == second);
    assert_int_equal(w->actors[C].notices[CEN_SHARE_NEW_VERSION], 0); /* may not open it */
    assert_int_equal(open_version(w, B, "n", 1, 0, 0), CEN_OK);
    assert_true(opened(B)->export_id == first);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    assert_true(opened(B)->export_id == second);
    publish(w, A, set, "n", 0);
    assert_int_equal(open_version(w, B, "n", 1, 0, 0), CEN_ERR_NOT_FOUND);
    assert_int_equal(open_version(w, B, "n", 2, 0, 0), CEN_ERR_NOT_FOUND);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    assert_int_equal(opened(B)->version, 3);
    assert_int_equal(send_watch(w, B, "n", false), CEN_OK);
    assert_int_equal(send_watch(w, C, "n", false), CEN_OK);
    assert_int_equal(count().names, 1);
    for (unsigned i = 0; i < 80; i++) {
        publish(w, A, set, "many", CENI_WIRE_KEEP_OLDER);
    }
    assert_int_equal(publish(w, A, set, "many", CENI_WIRE_KEEP_OLDER), 0); /* 80 exports a user */
}

static void an_open_waits_for_its_name(void **state) {
    come(A, 500);
    come(B, 500);
    come(C, 501);
    come(D, 500);
    assert_int_equal(open_version(w, B, "n", 0, 0, 100), CEN_ERR_NOT_READY);
    assert_int_equal(open_version(w, C, "n", 0, 0, 100), CEN_ERR_NOT_READY);
    assert_int_equal(open_version(w, D, "n", 2, 0, 50), CEN_ERR_NOT_READY);
    assert_true(ceni_state_waits(w->state, w->actors[B].client));
    assert_int_equal(ceni_state_deadline(w->state), 50);
    holds();
    uint64_t set = new_set(w, A, 1), id = publish(w, A, set, "n", 0);
    assert_int_equal(w->actors[B].reply.head.status, CEN_OK);
    assert_true(opened(B)->export_id == id);
    assert_true(ceni_state_waits(w->state, w->actors[C].client)); /* for C there is none yet */
    unsigned replies = w->actors[D].replies;
    ceni_state_now(w->state, 49);
    ceni_state_tick(w->state);
    assert_int_equal(w->actors[D].replies, replies);
    ceni_state_now(w->state, 50);
    ceni_state_tick(w->state);
    assert_int_equal(w->actors[D].replies, replies + 1);
    assert_int_equal(w->actors[D].reply.head.status, CEN_ERR_NOT_FOUND);
    ceni_state_now(w->state, 100);
    ceni_state_tick(w->state);
    assert_int_equal(w->actors[C].reply.head.status, CEN_ERR_NOT_FOUND);
    assert_false(ceni_state_waits(w->state, w->actors[C].client));
    assert_true(ceni_state_deadline(w->state) == UINT64_MAX);
    assert_int_equal(open_version(w, D, "never", 0, 0, 100), CEN_ERR_NOT_READY);
    world_hangup(w, D);
    assert_int_equal(count().names, 1);
}

static void by_name_there_is_what_a_user_may_open(void **state) {
    come(A, 500);
    come(B, 501);
    publication open = {.set = new_set(w, A, 1), .name = "n", .access_count = 1};
    open.access[0] = (ceni_wire_access){CEN_SHARE_ALL, 0, 0, 0};
    assert_int_equal(send_publish(w, A, &open), CEN_OK);
    uint64_t shut = new_set(w, A, 1);
    assert_int_not_equal(publish(w, A, shut, "n", CENI_WIRE_KEEP_OLDER), 0);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    assert_int_equal(opened(B)->version, 1);
    assert_int_equal(open_version(w, B, "n", 2, 0, 0), CEN_ERR_NOT_FOUND);
    assert_int_equal(open_name(w, A, "n", 0), CEN_OK);
    assert_int_equal(opened(A)->version, 2);
    assert_int_not_equal(publish(w, A, shut, "n", 0), 0); /* withdraws the first */
    assert_int_equal(open_version(w, B, "n", 0, 0, 100), CEN_ERR_NOT_READY);
    open.set = new_set(w, A, 1);
    assert_int_equal(send_publish(w, A, &open), CEN_OK);
    assert_int_equal(w->actors[B].reply.head.status, CEN_OK);
    assert_int_equal(opened(B)->version, 4);
    holds();
}

static void a_parcel_is_opened_once(void **state) {
    come(A, 500);
    come(B, 500);
    come(C, 500);
    uint64_t set = new_set(w, A, 1);
    publication p = {.set = set, .name = "p", .flags = CENI_WIRE_ONCE, .ttl_ms = 30};
    assert_int_equal(open_version(w, B, "p", 0, 0, 100), CEN_ERR_NOT_READY);
    assert_int_equal(open_version(w, C, "p", 0, 0, 100), CEN_ERR_NOT_READY);
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    unsigned waiting = ceni_state_waits(w->state, w->actors[B].client) +
                       ceni_state_waits(w->state, w->actors[C].client);
    assert_int_equal(waiting, 1); /* for the next */
    assert_int_equal(open_name(w, A, "p", 0), CEN_ERR_NOT_FOUND);
    p.name = "q";
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    p.name = "r";
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    assert_int_equal(send_id(w, A, CENI_WIRE_DROP, set), CEN_OK);
    holds();
    assert_int_equal(open_name(w, A, "q", 0), CEN_OK);
    ceni_state_now(w->state, 30);
    ceni_state_tick(w->state);
    assert_int_equal(open_name(w, A, "r", 0), CEN_ERR_NOT_FOUND);
    assert_int_equal(count().exports, 2);
}

static void events_are_the_exporters(void **state) {
    come(A, 500);
    come(B, 500);
    uint64_t set = new_set(w, A, 1), id = publish(w, A, set, "n", 0);
    assert_int_equal(send_event(w, B, id, 0), CEN_ERR_PERMISSION); /* not open */
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    assert_int_equal(send_event(w, B, id, 0), CEN_OK);
    assert_int_equal(w->actors[B].reply_fds, 0);
    assert_int_equal(send_event(w, B, id, CENI_WIRE_EVENT_FD), CEN_ERR_PERMISSION);
    assert_int_equal(send_event(w, A, id, CENI_WIRE_EVENT_FD), CEN_OK);
    assert_int_equal(send_event(w, A, id, CENI_WIRE_EVENT_FD), CEN_OK);
    assert_int_equal(w->open_count, 2);
    assert_int_equal(send_event(w, B, id, 0), CEN_OK);
    assert_int_equal(w->actors[B].reply_fds, 1);
    assert_int_equal(send_event(w, A, id, CENI_WIRE_EVENT_TOKEN), CEN_OK);
    assert_int_equal(w->open_count, 1);
    holds();
    assert_int_equal(send_event(w, B, id, CENI_WIRE_EVENT_CLEAR), CEN_ERR_PERMISSION);
    assert_int_equal(send_event(w, B, id, 0), CEN_OK);
    assert_int_equal(((const ceni_wire_event *)world_body(w, B))->flags, CENI_WIRE_EVENT_TOKEN);
}

/* The first open of a set brings its pages, as far as there is room, if that is asked for. */
static void an_open_brings_pages(void **state) {
    enum { BOTH = CENI_WIRE_DIRECTORY_FD | CENI_WIRE_EVENT_FD };
    come(A, 500);
    come(B, 500);
    come(C, 500);
    uint64_t set = new_set(w, A, 3), id = publish(w, A, set, "few", BOTH);
    uint64_t other = publish(w, A, set, "other", BOTH);
    int before = w->open_count;
    assert_int_equal(open_name(w, B, "few", CENI_WIRE_OPEN_PAGES), CEN_OK);
    assert_int_equal(w->actors[B].reply_fds, 2 + 3);
    assert_int_equal(w->open_count, before); /* those for reading only were closed */
    assert_int_equal(open_name(w, B, "few", CENI_WIRE_OPEN_PAGES), CEN_OK); /* a second try */
    assert_int_equal(w->actors[B].reply_fds, 2 + 3);
    assert_int_equal(open_name(w, B, "other", CENI_WIRE_OPEN_PAGES), CEN_OK); /* it has them */
    assert_int_equal(w->actors[B].reply_fds, 2);
    assert_int_equal(open_name(w, C, "few", 0), CEN_OK);
    assert_int_equal(w->actors[C].reply_fds, 2);
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, id), CEN_OK);
    assert_int_equal(send_id(w, B, CENI_WIRE_CLOSE, other), CEN_OK);
    assert_int_equal(open_name(w, B, "few", CENI_WIRE_OPEN_PAGES), CEN_OK); /* it had them */
    assert_int_equal(w->actors[B].reply_fds, 2 + 3);
    set = new_set(w, A, CENI_WIRE_FDS);
    publish(w, A, set, "many", BOTH);
    assert_int_equal(open_name(w, B, "many", CENI_WIRE_OPEN_PAGES), CEN_OK);
    assert_int_equal(w->actors[B].reply_fds, CENI_WIRE_FDS);
    holds();
}

static void an_event_that_is_complete_is_given_to_nobody(void **state) {
    come(A, 500);
    come(B, 500);
    uint64_t set = new_set(w, A, 1), id = publish(w, A, set, "n", CENI_WIRE_EVENT_FD);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    assert_int_equal(w->open_count, 2);
    assert_int_equal(send_event(w, A, id, CENI_WIRE_EVENT_CLEAR), CEN_OK);
    assert_int_equal(w->open_count, 1);
    assert_int_equal(send_event(w, A, id, CENI_WIRE_EVENT_CLEAR), CEN_OK); /* twice is as good */
    assert_int_equal(send_event(w, B, id, 0), CEN_OK);
    assert_int_equal(((const ceni_wire_event *)world_body(w, B))->flags, 0);
    assert_int_equal(w->actors[B].reply_fds, 0);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    assert_int_equal(opened(B)->flags & (CENI_WIRE_EVENT_FD | CENI_WIRE_EVENT_TOKEN), 0);
    assert_int_equal(w->actors[B].notices[CENI_WIRE_NOTICE_EVENT], 0);
    assert_int_equal(send_event(w, A, id, CENI_WIRE_EVENT_FD), CEN_OK); /* there may be a new one */
    assert_int_equal(w->actors[B].notices[CENI_WIRE_NOTICE_EVENT], 1);
    assert_int_equal(send_event(w, B, id, 0), CEN_OK);
    assert_int_equal(w->actors[B].reply_fds, 1);
    /* After a restart the publisher's word counts, whoever came first. */
    publication p = {.set = 77, .export_id = 78, .flags = CENI_WIRE_AGAIN | CENI_WIRE_EVENT_FD};
    assert_int_equal(send_set(w, B, 77, 2, 1), CEN_OK);
    assert_int_equal(send_publish(w, B, &p), CEN_OK);
    p.flags = CENI_WIRE_AGAIN;
    assert_int_equal(send_set(w, A, 77, 1, 1), CEN_OK);
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    assert_int_equal(open_token(w, B, 78, 7), CEN_OK);
    assert_int_equal(opened(B)->flags & (CENI_WIRE_EVENT_FD | CENI_WIRE_EVENT_TOKEN), 0);
    assert_int_equal(w->open_count, 3);
}

static void events_count_as_descriptors(void **state) {
    enum { MOST = 120, PAGES = 64 };
    come(A, 500);
    uint64_t set = new_set(w, A, PAGES), id[MOST - PAGES + 1];
    for (unsigned i = 0; i < MOST - PAGES; i++) {
        id[i] = publish(w, A, set, NULL, 0);
        assert_int_equal(send_event(w, A, id[i], CENI_WIRE_EVENT_FD), CEN_OK);
    }
    id[MOST - PAGES] = publish(w, A, set, NULL, 0);
    assert_int_equal(send_event(w, A, id[MOST - PAGES], CENI_WIRE_EVENT_FD), CEN_ERR_LIMIT);
    assert_int_equal(send_event(w, A, id[0], CENI_WIRE_EVENT_FD), CEN_OK); /* another for one */
    assert_int_equal(send_event(w, A, id[0], CENI_WIRE_EVENT_CLEAR), CEN_OK);
    assert_int_equal(send_event(w, A, id[MOST - PAGES], CENI_WIRE_EVENT_FD), CEN_OK);
    assert_int_equal(w->open_count, MOST);
}

static void quotas_hold(void **state) {
    come(A, 500);
    come(B, 500);
    come(C, 501);
    w->quota = 1000;
    uint64_t set = new_set(w, A, 6);
    assert_int_equal(send_set(w, B, 0, 0, 5), CEN_ERR_LIMIT);
    assert_string_equal(world_body(w, B),
                        "the quota of user 500 is 0.98 KiB: 600 B are used, 500 B more were asked "
                        "for; the broker's --quota-user 500=SIZE raises it");
    assert_int_equal(send_set(w, C, 0, 0, 10), CEN_OK);
    assert_int_equal(send_set(w, B, 0, 0, 4), CEN_OK);
    assert_int_equal(send_id(w, A, CENI_WIRE_DROP, set), CEN_OK);
    assert_int_equal(send_set(w, B, 0, 0, 6), CEN_OK);
    w->quota = UINT64_MAX;
    for (unsigned i = 2; i < 40; i++) {
        assert_int_equal(send_set(w, A, 0, 0, 1), CEN_OK);
    }
    assert_int_equal(send_set(w, A, 0, 0, 1), CEN_ERR_LIMIT); /* 40 sets a user */
    for (unsigned i = 4; i < 22; i++) {
        come(i, 500);
    }
    assert_int_equal(world_hello(w, 22, 500, true), CEN_ERR_LIMIT); /* 20 clients */
    for (unsigned i = 0; i < 1024; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", i);
        assert_int_equal(send_watch(w, A, name, true), CEN_OK);
    }
    assert_int_equal(send_watch(w, A, "one too many", true), CEN_ERR_FORMAT);
    assert_int_equal(send_watch(w, A, "one-too-many", true), CEN_ERR_LIMIT);
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(send_lease(w, C, 9, 1000 + i, false), CEN_OK);
    }
    assert_int_equal(send_lease(w, C, 9, 5000, false), CEN_ERR_LIMIT); /* 200 leases */
    holds();
}

/* The number of records of each kind that an actor sees. */
static void see(unsigned i, unsigned seen[5]) {
    uint64_t cursor = 0;
    memset(seen, 0, 5 * sizeof *seen);
    do {
        assert_int_equal(send_list(w, i, cursor), CEN_OK);
        const ceni_wire_list_reply *r = world_body(w, i);
        seen[r->kind] += r->count;
        cursor = r->cursor;
    } while (cursor);
}

static void a_user_sees_what_is_theirs(void **state) {
    come(A, 500);
    come(B, 501);
    come(C, 502);
    come(D, 0);
    uint64_t set = new_set(w, A, 1);
    publication p = {.set = set, .name = "n", .access_count = 1};
    p.access[0] = (ceni_wire_access){CEN_SHARE_USER, 501, 0, 0};
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    uint64_t id = ((const ceni_wire_publish_reply *)world_body(w, A))->export_id;
    assert_int_not_equal(publish(w, C, new_set(w, C, 1), "c", 0), 0);
    assert_int_equal(open_name(w, B, "n", 0), CEN_OK);
    static const unsigned want[4][5] = {
        {0, 2, 1, 1, 1}, {0, 1, 1, 1, 1}, {0, 1, 1, 1, 0}, {0, 4, 2, 2, 1}};
    for (unsigned i = A; i <= D; i++) {
        unsigned seen[5];
        see(i, seen);
        assert_memory_equal(seen, want[i], sizeof seen);
    }
    assert_int_equal(send_id(w, C, CENI_WIRE_REVOKE, id), CEN_ERR_NOT_FOUND);
    assert_int_equal(send_list(w, A, 5ull << 32), CEN_ERR_INVALID);
    assert_int_equal(send_list(w, A, 4ull << 32 | 9999), CEN_ERR_INVALID);
}

/* By name, and as long as it is open; it may not take it back, and is told so. */
static void a_user_sees_what_it_may_open(void **state) {
    come(A, 500);
    come(B, 501);
    uint64_t set = new_set(w, A, 1);
    publication p = {.set = set, .name = "n", .access_count = 1};
    p.access[0] = (ceni_wire_access){CEN_SHARE_USER, 501, 0, 0};
    unsigned seen[5];
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    uint64_t id = ((const ceni_wire_publish_reply *)world_body(w, A))->export_id;
    p.name = NULL;
    assert_int_equal(send_publish(w, A, &p), CEN_OK);
    see(B, seen);
    assert_true(seen[CENI_WIRE_RECORD_SET] == 1 && seen[CENI_WIRE_RECORD_EXPORT] == 1);
    assert_int_equal(send_id(w, B, CENI_WIRE_REVOKE, id), CEN_ERR_PERMISSION);
    assert_non_null(strstr(world_body(w, B), "is user 500's"));
    assert_int_equal(open_name(w, A, "n", 0), CEN_OK); /* it is open all the same, and stays */
    assert_int_equal(send_id(w, A, CENI_WIRE_WITHDRAW, id), CEN_OK);
    see(B, seen);
    assert_int_equal(seen[CENI_WIRE_RECORD_EXPORT], 0);
}

static void another_version_is_refused_by_name(void **state) {
    ceni_wire_message m;
    void *replaced;
    uint32_t client;
    ceni_state_identity identity = {.uid = 500};
    ceni_wire_hello *h = ceni_wire_begin(&request, CENI_WIRE_HELLO, 5, sizeof *h);
    *h = (ceni_wire_hello){.version_min = 2, .version_max = 3};
    assert_int_equal(ceni_wire_check(request.data, request.size, 1, CENI_WIRE_REQUEST, &m), CEN_OK);
    assert_int_equal(ceni_state_hello(w->state, &w->actors[A], &identity, &m, &client, &replaced),
                     CEN_ERR_UNSUPPORTED);
    assert_non_null(strstr((const char *)world_body(w, A), "version 1, the client 2 to 3"));
    assert_int_equal(count().users, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_export_lives_from_publish_to_the_last_close),
        TEST(a_set_comes_in_parts_and_in_order),
        TEST(only_who_is_listed_opens),
        TEST(a_token_is_whole_and_ends_with_its_export),
        TEST(readers_outlive_their_publisher),
        TEST(leases_end_with_the_process_not_the_socket),
        TEST(another_process_does_not_resume),
        TEST(an_absent_publisher_hears_of_idle_exports_later),
        TEST(versions_follow_each_other),
        TEST(an_open_waits_for_its_name),
        TEST(by_name_there_is_what_a_user_may_open),
        TEST(a_parcel_is_opened_once),
        TEST(events_are_the_exporters),
        TEST(an_open_brings_pages),
        TEST(an_event_that_is_complete_is_given_to_nobody),
        TEST(events_count_as_descriptors),
        TEST(quotas_hold),
        TEST(a_user_sees_what_is_theirs),
        TEST(a_user_sees_what_it_may_open),
        TEST(another_version_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
