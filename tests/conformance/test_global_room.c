/* How much room there is: what automatic placements fall back to as it fills, the figures of what
 * is left and kept, and that the largest block they promise can be had. */
#include "tests/conformance/global_suite.h"

#define ROOM ((uint64_t)64 * MIB)

static const cen_global_options spans = {.small_bytes = 64 * KIB};

/* The link from the first device: cards of the host backend sit in pairs. */
static int distance(int peer) {
    return peer == 1 ? 0 : 1;
}

/* What an automatic placement on device 0 should be, by the figures. */
static cen_placement expected(world *w, uint64_t bytes, int *home, bool host) {
    cen_global_room room[DEVICES_MAX] = {{0}};
    uint64_t together = 0;
    for (int d = 0; d < (int)w->count; d++) {
        room[d] = room_of(w, d);
        together += room[d].largest_bytes;
    }
    *home = 0;
    if (room[0].largest_bytes >= bytes) {
        return CEN_PLACE_LOCAL;
    }
    for (int d = 1; d < (int)w->count; d++) {
        bool better = !*home || distance(d) < distance(*home) ||
                      (distance(d) == distance(*home) &&
                       room[d].available_bytes > room[*home].available_bytes);
        if (room[d].largest_bytes >= bytes && better) {
            *home = d;
        }
    }
    if (*home) {
        return CEN_PLACE_PEER;
    }
    *home = CEN_GLOBAL_ALL;
    if (together >= bytes) {
        return CEN_PLACE_WEIGHTED;
    }
    *home = CEN_GLOBAL_HOST;
    return host && room_of(w, CEN_GLOBAL_HOST).largest_bytes >= bytes ? CEN_PLACE_HOST
                                                                      : CEN_PLACE_AUTO;
}

#define BLOCK (24 * MIB)

/* From the device to its peers, to what is left of all together, to the host, to nowhere. */
static void fall_back(void **state, bool host) {
    cen_global_options options = {.small_bytes = 64 * KIB, .allow_host = host};
    options.host_bytes = 40 * MIB;
    world w = world_open(state, ROOM, &options);
    void *blocks[64], *odd = NULL;
    bool seen[8] = {false};
    size_t count = 0;
    if (w.count == 4) { /* so that rooms differ */
        odd = get(&w, 10 * MIB, 2, CEN_PLACE_LOCAL);
    }
    for (; count < 64; count++) {
        int home = 0, found;
        cen_placement should = expected(&w, BLOCK, &home, host);
        cen_global_report r;
        cen_status status = place(&w, BLOCK, 0, CEN_PLACE_AUTO, &blocks[count], &r);
        if (should == CEN_PLACE_AUTO) {
            assert_int_equal(status, CEN_ERR_DEVICE_MEMORY);
            assert_non_null(strstr(suite_log_line, "no room for 24.00 MiB for device 0"));
            break;
        }
        OK(status);
        assert_int_equal(r.placement, should);
        agrees(&w, blocks[count], BLOCK, &r);
        seen[should] = true;
        OK(cen_global_home(w.global, blocks[count], &found));
        assert_true(home == CEN_GLOBAL_ALL || found == home);
        fill(&w, 0, 0, blocks[count], BLOCK, (uint32_t)count + 1);
    }
    assert_true(seen[CEN_PLACE_LOCAL] && seen[CEN_PLACE_PEER] && seen[CEN_PLACE_HOST] == host);
    assert_true(seen[CEN_PLACE_WEIGHTED] || !w.f->host);
    sound(&w);
    for (size_t i = 0; i < count; i++) {
        check(&w, 0, 0, blocks[i], BLOCK, (uint32_t)i + 1);
        drop(&w, blocks[i], 0, 0);
    }
    if (odd) {
        drop(&w, odd, 2, 0);
    }
    world_close(&w);
}

static void automatic_falls_back(void **state) {
    fall_back(state, false);
}

static void automatic_falls_back_to_the_host(void **state) {
    fall_back(state, true);
}

/* `keeps`: ranges that are free may be kept for the next block alike. */
static void adds_up(world *w, bool keeps) {
    cen_global_room sum = {0}, all = room_of(w, CEN_GLOBAL_ALL);
    for (int d = -1; d < (int)w->count; d++) { /* the host too */
        cen_global_room r = room_of(w, d);
        assert_true(r.available_bytes >= r.free_bytes);
        assert_true(r.largest_bytes <= r.available_bytes);
        assert_false(r.lost);
        if (d >= 0 && w->f->host) {
            assert_int_equal(r.free_bytes + r.pool_bytes + r.global_bytes + r.kept_bytes +
                                 r.lent_bytes,
                             r.total_bytes);
            assert_true(keeps || !r.kept_bytes);
        }
        sum.pool_bytes += r.pool_bytes;
        sum.global_bytes += r.global_bytes;
        sum.lent_bytes += r.lent_bytes;
        sum.borrowed_bytes += r.borrowed_bytes;
        sum.pending_bytes += r.pending_bytes;
        sum.idle_bytes += d >= 0 ? r.idle_bytes : 0;
        sum.available_bytes += r.available_bytes;
    }
    assert_int_equal(sum.pool_bytes, all.pool_bytes);
    assert_int_equal(sum.global_bytes, all.global_bytes);
    assert_int_equal(sum.lent_bytes, all.lent_bytes);
    assert_int_equal(sum.borrowed_bytes, all.borrowed_bytes);
    assert_int_equal(sum.borrowed_bytes, sum.lent_bytes);
    assert_int_equal(sum.pending_bytes, all.pending_bytes);
    assert_int_equal(sum.idle_bytes, all.idle_bytes);
    assert_true(sum.available_bytes == all.available_bytes || !w->f->host);
}

static void add_up(void **state, bool keeps) {
    cen_global_options options = {.small_bytes = 64 * KIB, .allow_host = true};
    options.return_at_once = !keeps;
    options.host_bytes = 32 * MIB;
    world w = world_open(state, ROOM, &options);
    adds_up(&w, keeps);
    void *a = get(&w, 16 * MIB, 0, CEN_PLACE_LOCAL), *b = get(&w, 16 * MIB, 1, CEN_PLACE_SPLIT);
    void *c = get(&w, 6 * MIB, 0, CEN_PLACE_HOST), *d = get_local(&w, 10 * MIB, 1, 0);
    adds_up(&w, keeps);
    assert_int_equal(room_of(&w, 0).global_bytes, 16 * MIB + 16 * MIB / w.count);
    assert_int_equal(room_of(&w, CEN_GLOBAL_HOST).global_bytes, 6 * MIB);
    assert_int_equal(room_of(&w, 1).pool_bytes, 10 * MIB);
    assert_int_equal(room_of(&w, 1).idle_bytes, 0);
    drop_local(&w, d, 1, 0);
    settle(&w);
    assert_int_equal(room_of(&w, 1).idle_bytes, 10 * MIB);
    adds_up(&w, keeps);
    hold(&w, 0, 1);
    drop(&w, b, 0, 1);
    if (w.f->host) {
        assert_int_equal(room_of(&w, 0).pending_bytes, 16 * MIB / w.count);
    }
    adds_up(&w, keeps);
    drop(&w, a, 0, 0);
    drop(&w, c, 0, 0);
    sync_all(&w);
    settle(&w);
    adds_up(&w, keeps);
    assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).global_bytes, 0);
    assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).pending_bytes, 0);
    world_close(&w);
}

static void figures_add_up(void **state) {
    add_up(state, true);
    add_up(state, false);
}

/* A local pool's idle pages of the host are the host's as well, and counted once in all. */
static void idle_host_pages_count_once(void **state) {
    cen_global_options options = {.small_bytes = 64 * KIB, .allow_host = true};
    world w = world_open(state, ROOM, &options);
    void *full[DEVICES_MAX] = {NULL};
    if (!w.f->host) {
        world_close(&w);
        suite_skip("a GPU is not filled for this");
        return;
    }
    for (int d = 0; d < (int)w.count; d++) {
        full[d] = get(&w, room_of(&w, d).largest_bytes, d, CEN_PLACE_LOCAL);
    }
    drop_local(&w, get_local(&w, 4 * MIB, 0, 0), 0, 0);
    settle(&w);
    assert_int_equal(room_of(&w, CEN_GLOBAL_HOST).idle_bytes, 4 * MIB);
    assert_int_equal(room_of(&w, 0).idle_bytes, 4 * MIB);
    assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).idle_bytes, 4 * MIB);
    for (int d = 0; d < (int)w.count; d++) {
        drop(&w, full[d], d, 0);
    }
    world_close(&w);
}

/* A range whose uses are complete serves the next block of its layout as it is, and goes back when
 * its memory is wanted. */
static void ranges_are_kept(void **state) {
    world w = world_open(state, ROOM, &spans);
    cen_global_report r;
    void *block = NULL, *again = NULL, *other = NULL;
    OK(place(&w, 16 * MIB, 0, CEN_PLACE_SPLIT, &block, &r));
    assert_true(r.driver_ns > 0);
    drop(&w, block, 0, 0);
    settle(&w);
    assert_int_equal(room_of(&w, 0).global_bytes, 0);
    assert_int_equal(room_of(&w, 0).kept_bytes, 16 * MIB / w.count);
    OK(place(&w, 16 * MIB - 7, 0, CEN_PLACE_SPLIT, &again, &r));
    assert_ptr_equal(again, block);
    assert_int_equal(r.driver_ns, 0);
    assert_int_equal(r.requested_bytes, 16 * MIB - 7);
    assert_int_equal(room_of(&w, 0).global_bytes, 16 * MIB / w.count);
    OK(place(&w, 16 * MIB, 0, CEN_PLACE_SPLIT, &other, NULL));
    assert_ptr_not_equal(other, again);
    is_shared(&w, again, 16 * MIB - 7, everyone(&w));
    drop(&w, again, 0, 0);
    drop(&w, other, 0, 0);
    settle(&w);
    OK(place(&w, room_of(&w, 0).largest_bytes, 0, CEN_PLACE_LOCAL, &block, NULL));
    assert_int_equal(room_of(&w, 1).idle_bytes, 0);
    drop(&w, block, 0, 0);
    settle(&w);
    void *local = get_local(&w, w.f->host ? ROOM - 2 * MIB : 8 * MIB, 0, 0);
    is_shared(&w, local, 8 * MIB, everyone(&w));
    drop_local(&w, local, 0, 0);
    world_close(&w);
}

/* What is said to be the largest block can be had, a page more cannot. */
static void the_largest_can_be_had(void **state) {
    world w = world_open(state, ROOM, &spans);
    void *pieces[3];
    for (int i = 0; i < 3; i++) { /* idle pages between others */
        pieces[i] = get_local(&w, 6 * MIB, 0, 0);
    }
    drop_local(&w, pieces[1], 0, 0);
    void *kept = get(&w, 4 * MIB, 1, CEN_PLACE_LOCAL), *block = NULL;
    settle(&w);
    for (int d = 0; d < (int)w.count; d++) {
        uint64_t largest = room_of(&w, d).largest_bytes;
        uint64_t more = w.f->host ? w.granule : 64 * MIB; /* others use a GPU too */
        FAILS(CEN_ERR_DEVICE_MEMORY, place(&w, largest + more, d, CEN_PLACE_LOCAL, &block, NULL));
        if (w.f->host) {
            OK(place(&w, largest, d, CEN_PLACE_LOCAL, &block, NULL));
            assert_int_equal(room_of(&w, d).available_bytes, 0);
            drop(&w, block, d, 0);
            settle(&w);
        }
    }
    uint64_t all = room_of(&w, CEN_GLOBAL_ALL).largest_bytes;
    block = NULL;
    FAILS(CEN_ERR_DEVICE_MEMORY,
          place(&w, all + (w.f->host ? w.granule : 64 * MIB), 0, CEN_PLACE_AUTO, &block, NULL));
    if (w.f->host) {
        OK(place(&w, all, 0, CEN_PLACE_AUTO, &block, NULL));
        fill(&w, 1, 0, block, all, 5);
        check(&w, 1, 0, block, all, 5);
        drop(&w, block, 1, 0);
    }
    drop(&w, pieces[0], 0, 0);
    drop(&w, pieces[2], 0, 0);
    drop(&w, kept, 1, 0);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    GLOBAL_TEST(automatic_falls_back), GLOBAL_TEST(automatic_falls_back_to_the_host),
    GLOBAL_TEST(figures_add_up),       GLOBAL_TEST(idle_host_pages_count_once),
    GLOBAL_TEST(ranges_are_kept),      GLOBAL_TEST(the_largest_can_be_had),
};
SUITE_MAIN(tests)
