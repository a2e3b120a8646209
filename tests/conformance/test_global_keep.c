/* Blocks of the global pool between two uses: kept for the next one alike, not before all uses are
 * complete, and returned when anybody lacks their memory. */
#include "tests/conformance/global_suite.h"

#define ROOM (256 * MIB)

static const cen_global_options spans = {.small_bytes = 1};

static void the_next_one_alike_gets_it(void **state) {
    world w = world_open(state, ROOM, &spans);
    const cen_placement placements[] = {CEN_PLACE_LOCAL, CEN_PLACE_PEER, CEN_PLACE_SPLIT,
                                        CEN_PLACE_STRIPED};
    for (size_t i = 0; i < sizeof placements / sizeof *placements; i++) {
        cen_global_report made, again;
        void *first, *second;
        OK(place(&w, 8 * MIB, 0, placements[i], &first, &made));
        fill(&w, 0, 0, first, 8 * MIB, 1);
        drop(&w, first, 0, 0);
        sync_all(&w);
        cen_global_room room = room_of(&w, CEN_GLOBAL_ALL);
        assert_int_equal(room.kept_bytes, made.mapped_bytes);
        assert_int_equal(room.global_bytes, 0);
        sound(&w);
        OK(place(&w, 8 * MIB, 0, placements[i], &second, &again));
        assert_ptr_equal(first, second);
        assert_int_equal(again.driver_ns, 0);
        assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).kept_bytes, 0);
        again.driver_ns = made.driver_ns;
        assert_memory_equal(&made, &again, sizeof made);
        fill(&w, 1, 0, second, 8 * MIB, 2);
        check(&w, 1, 0, second, 8 * MIB, 2);
        drop(&w, second, 1, 0);
        sync_all(&w);
        no_mismatches(&w);
        OK(cen_global_defragment(w.global, NULL, NULL));
        assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).kept_bytes, 0);
    }
    world_close(&w);
}

static void not_before_it_is_complete(void **state) {
    world w = world_open(state, ROOM, &spans);
    if (!w.f->host) {
        world_close(&w);
        suite_skip("only the host can hold work up for as long as a test wants");
    }
    void *first = get(&w, 4 * MIB, 0, CEN_PLACE_LOCAL);
    hold(&w, 1, 0);
    OK(cen_global_use(w.global, first, 1, w.nodes[1].streams[0]));
    drop(&w, first, 0, 0);
    void *second = get(&w, 4 * MIB, 0, CEN_PLACE_LOCAL);
    assert_ptr_not_equal(first, second);
    assert_int_equal(room_of(&w, 0).pending_bytes, 4 * MIB);
    let_go(&w, 1, 0);
    sync_all(&w);
    void *third = get(&w, 4 * MIB, 0, CEN_PLACE_LOCAL);
    assert_ptr_equal(first, third);
    drop(&w, second, 0, 0);
    drop(&w, third, 0, 0);
    world_close(&w);
}

static void others_get_its_memory(void **state) {
    world w = world_open(state, ROOM, &spans);
    if (!w.f->host) {
        world_close(&w);
        suite_skip("needs devices so small that they can be filled");
    }
    const size_t most = room_of(&w, 0).largest_bytes;
    drop(&w, get(&w, most / 2 / w.granule * w.granule, 0, CEN_PLACE_LOCAL), 0, 0);
    sync_all(&w);
    assert_true(room_of(&w, 0).kept_bytes > 0);
    assert_int_equal(room_of(&w, 0).largest_bytes, most);
    void *block = get(&w, most, 0, CEN_PLACE_LOCAL); /* another block of the global pool */
    assert_int_equal(room_of(&w, 0).kept_bytes, 0);
    drop(&w, block, 0, 0);
    sync_all(&w);
    assert_true(room_of(&w, 0).kept_bytes > 0);
    block = get_local(&w, most / 4 * 3, 0, 0); /* the device's local pool */
    assert_int_equal(stats_of(&w, 0).borrowed_bytes, 0);
    drop_local(&w, block, 0, 0);
    world_close(&w);
}

static void so_are_ranges_on_the_host(void **state) {
    cen_global_options options = spans;
    options.allow_host = true;
    options.host_bytes = 64 * MIB;
    world w = world_open(state, ROOM, &options);
    void *block = NULL;
    cen_status status = place(&w, 8 * MIB, 0, CEN_PLACE_HOST, &block, NULL);
    if (status == CEN_ERR_UNSUPPORTED && !w.f->host) {
        world_close(&w);
        suite_skip("the device cannot map pages of host memory");
    }
    OK(status);
    if (w.f->host) {
        hold(&w, 0, 0);
    }
    drop(&w, block, 0, 0);
    cen_global_room room = room_of(&w, CEN_GLOBAL_HOST);
    if (w.f->host) {
        assert_int_equal(room.pending_bytes, 8 * MIB);
    }
    assert_int_equal(room.free_bytes + room.global_bytes + room.kept_bytes, 64 * MIB);
    sync_all(&w);
    room = room_of(&w, CEN_GLOBAL_HOST);
    assert_int_equal(room.kept_bytes, 8 * MIB);
    assert_int_equal(room.free_bytes, 56 * MIB);
    assert_int_equal(room.available_bytes, 64 * MIB);
    assert_int_equal(room.pending_bytes, 0);
    world_close(&w);
}

static void nothing_is_kept_that_should_not_be(void **state) {
    cen_global_options options = spans;
    options.return_at_once = true;
    world w = world_open(state, ROOM, &options);
    drop(&w, get(&w, 4 * MIB, 0, CEN_PLACE_SPLIT), 0, 0);
    sync_all(&w);
    cen_global_room room = room_of(&w, CEN_GLOBAL_ALL);
    assert_int_equal(room.kept_bytes + room.global_bytes, 0);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(the_next_one_alike_gets_it),
    SUITE_TEST(not_before_it_is_complete),
    SUITE_TEST(others_get_its_memory),
    SUITE_TEST(so_are_ranges_on_the_host),
    SUITE_TEST(nothing_is_kept_that_should_not_be),
};
SUITE_MAIN(tests)
