/* A device is lost: while it holds global blocks, while a neighbour has borrowed of it, and while
 * it has borrowed. The others go on, none of its memory is given out again, and all of theirs
 * returns.
 */
#include "tests/conformance/global_suite.h"

#include "dev/host/host.h"

#define ROOM  ((uint64_t)32 * MIB)
#define CHUNK (2 * MIB)

enum { MOST = 64 };

static world start(void **state, uint64_t page_bytes) {
    const fixture *f = *state;
    if (!f->host) {
        suite_skip("only a host device can be lost at will");
    }
    cen_global_options options = {.small_bytes = 64 * KIB};
    options.pool = (cen_pool_options){.size = sizeof options.pool, .page_bytes = page_bytes};
    return world_open(state, ROOM, &options);
}

/* Loses a device, which the pool notices when it next asks. */
static void lose(world *w, int device) {
    ceni_host_lose(w->devices[device]);
    cen_global_room room = room_of(w, device);
    assert_true(room.lost);
    assert_int_equal(room.available_bytes, 0);
    assert_int_equal(room.largest_bytes, 0);
    assert_int_equal(room.free_bytes, 0);
    sound(w);
}

/* Destroys the pool; the devices that are there get everything back. */
static void finish(world *w, int lost) {
    for (int d = 0; d < (int)w->count; d++) {
        for (int i = 0; d != lost && i < STREAMS; i++) {
            OK(cen_stream_sync(w->devices[d], w->nodes[d].streams[i]));
        }
    }
    no_mismatches(w);
    sound(w);
    (void)cen_global_destroy(w->global); /* says what was lost */
    for (int d = 0; d < (int)w->count; d++) {
        if (d != lost) {
            assert_int_equal(suite_free_bytes(w->devices[d]), w->nodes[d].free_at_start);
        }
    }
    close_devices(w);
}

/* As settle, for the device that is there whatever was lost. */
static void settle_first(world *w) {
    world first = {.f = w->f, .count = 1, .nodes = {w->nodes[0]}, .global = w->global};
    first.devices[0] = w->devices[0];
    settle(&first);
}

static cen_status try_local(world *w, size_t bytes, void **block) {
    return cen_pool_alloc(pool_of(w, 0), bytes, w->nodes[0].streams[0], block);
}

/* Not a byte of a block lies on a device. */
static void not_on(world *w, void *block, size_t bytes, int device) {
    int home;
    for (size_t at = 0; at < bytes; at += CHUNK / 2) {
        OK(cen_global_home(w->global, (char *)block + at, &home));
        assert_int_not_equal(home, device);
    }
    OK(cen_global_home(w->global, (char *)block + bytes - 1, &home));
    assert_int_not_equal(home, device);
}

/* Everybody but device 1 is full, so device 0 borrows of it. */
static size_t until_borrowing(world *w, void **blocks, size_t chunks) {
    size_t count = 0;
    for (int d = 2; d < (int)w->count; d++) {
        (void)get(w, room_of(w, d).largest_bytes, d, CEN_PLACE_LOCAL);
    }
    while (count < ROOM / CHUNK) {
        blocks[count++] = get_local(w, CHUNK, 0, 0);
    }
    for (size_t i = 0; i < chunks; i++) {
        blocks[count++] = get_local(w, CHUNK, 0, 0);
    }
    assert_int_equal(stats_of(w, 0).borrowed_bytes, chunks * CHUNK);
    return count;
}

/* Has 16 MiB of borrowed pages, idle: as large as the blocks that they were borrowed for. */
static void borrow_pages(world *w, uint64_t bytes) {
    void *blocks[8];
    for (uint64_t i = 0; i < 16 * MIB / bytes; i++) {
        blocks[i] = get_local(w, bytes, 0, 0);
    }
    for (uint64_t i = 0; i < 16 * MIB / bytes; i++) {
        drop_local(w, blocks[i], 0, 0);
    }
    settle(w);
    assert_int_equal(stats_of(w, 0).borrowed_bytes, 16 * MIB);
}

static void with_global_blocks(void **state) {
    world w = start(state, 0);
    void *own = get(&w, 4 * MIB, 1, CEN_PLACE_LOCAL),
         *split = get(&w, 16 * MIB, 0, CEN_PLACE_SPLIT);
    void *asked = get(&w, 16 * MIB, 1, CEN_PLACE_SPLIT),
         *kept = get(&w, 6 * MIB, 0, CEN_PLACE_SPLIT);
    void *block = NULL, *mine = get(&w, 4 * MIB, 0, CEN_PLACE_LOCAL);
    drop(&w, kept, 0, 0);
    settle(&w);
    fill(&w, 0, 0, mine, 4 * MIB, 1);
    OK(cen_global_use(w.global, split, 1, w.nodes[1].streams[1]));
    drop(&w, asked, 1, 0); /* pending, maybe */
    lose(&w, 1);
    const cen_placement all[] = {CEN_PLACE_AUTO, CEN_PLACE_LOCAL, CEN_PLACE_PEER, CEN_PLACE_SPLIT};
    for (int i = 0; i < 4; i++) {
        FAILS(CEN_ERR_DEVICE_LOST, place(&w, 3 * MIB, 1, all[i], &block, NULL));
        FAILS(CEN_ERR_DEVICE_LOST, place(&w, 300, 1, all[i], &block, NULL));
        assert_null(block);
    }
    FAILS(CEN_ERR_DEVICE_LOST, cen_pool_alloc(pool_of(&w, 1), MIB, 0, &block));
    cen_global_report r;
    OK(place(&w, 3 * MIB, 0, CEN_PLACE_AUTO, &block, &r));
    assert_int_equal(r.reachable, (((uint64_t)1 << w.count) - 1) & ~(uint64_t)2);
    drop(&w, block, 0, 0);
    if (w.count > 2) {
        OK(place(&w, 8 * MIB, 0, CEN_PLACE_SPLIT, &block, &r));
        assert_int_equal(r.device_bytes[1], 0);
        drop(&w, block, 0, 0);
        OK(place(&w, 8 * MIB, 0, CEN_PLACE_PEER, &block, &r));
        assert_int_equal(r.device_bytes[1], 0);
        drop(&w, block, 2, 0);
    } else {
        assert_true(place(&w, 8 * MIB, 0, CEN_PLACE_SPLIT, &block, NULL) < 0);
        assert_true(place(&w, 8 * MIB, 0, CEN_PLACE_PEER, &block, NULL) < 0);
    }
    sound(&w);
    drop(&w, split, 0, 0);
    drop(&w, own, 0, 0);
    check(&w, 0, 0, mine, 4 * MIB, 1);
    drop(&w, mine, 0, 0);
    settle_first(&w);
    assert_int_equal(room_of(&w, 0).global_bytes, 0);
    /* All of the first device can be had again, also what was split with the lost one. */
    uint64_t most = room_of(&w, 0).largest_bytes;
    assert_int_equal(most, ROOM);
    block = get(&w, most, 0, CEN_PLACE_LOCAL);
    drop(&w, block, 0, 0);
    finish(&w, 1);
}

/* Nobody asks: the first call that needs the device finds out. */
static void found_out_on_the_way(void **state) {
    world w = start(state, 0);
    void *block = NULL;
    ceni_host_lose(w.devices[1]);
    FAILS(CEN_ERR_DEVICE_LOST, place(&w, 3 * MIB, 1, CEN_PLACE_LOCAL, &block, NULL));
    ceni_host_lose(w.devices[0]);
    FAILS(CEN_ERR_DEVICE_LOST, place(&w, 100, 0, CEN_PLACE_LOCAL, &block, NULL));
    FAILS(CEN_ERR_DEVICE_LOST, place(&w, 100, 0, CEN_PLACE_AUTO, &block, NULL));
    sound(&w);
    (void)cen_global_destroy(w.global);
    close_devices(&w);
    w = start(state, 0);
    ceni_host_lose(w.devices[1]);
    OK(place(&w, ROOM - 2 * MIB, 0, CEN_PLACE_AUTO, &block, NULL));
    cen_status status = place(&w, ROOM / 2, 0, CEN_PLACE_AUTO, &block, NULL);
    assert_int_equal(status, w.count == 2 ? CEN_ERR_DEVICE_MEMORY : CEN_OK);
    finish(&w, 1);
}

/* Pages lent, idle: the borrower returns them at once. */
static void lent_and_idle(void **state) {
    world w = start(state, CHUNK);
    void *blocks[MOST], *block = NULL;
    size_t count = until_borrowing(&w, blocks, 4);
    for (int i = 0; i < 4; i++) {
        drop_local(&w, blocks[--count], 0, 0);
    }
    settle(&w);
    assert_int_equal(stats_of(&w, 0).borrowed_bytes, 4 * CHUNK);
    lose(&w, 1);
    assert_int_equal(stats_of(&w, 0).borrowed_bytes, 0);
    FAILS(CEN_ERR_DEVICE_MEMORY, try_local(&w, CHUNK, &block));
    while (count) {
        drop_local(&w, blocks[--count], 0, 0);
    }
    OK(try_local(&w, ROOM, &block));
    not_on(&w, block, ROOM, 1);
    drop_local(&w, block, 0, 0);
    finish(&w, 1);
}

/* What its own device has is given out as ever, and of the lost one nothing is left. */
static void own_memory_serves(world *w, void **blocks, size_t count) {
    void *block;
    for (size_t left = count / 2; count > left;) {
        drop_local(w, blocks[--count], 0, 0);
    }
    while (!try_local(w, CHUNK, &block)) {
        not_on(w, block, CHUNK, 1);
        fill(w, 0, 0, block, CHUNK, 6);
        check(w, 0, 0, block, CHUNK, 6);
        blocks[count++] = block;
    }
    assert_int_equal(count, ROOM / CHUNK);
    OK(cen_pool_trim(pool_of(w, 0), 0, true, NULL));
    assert_int_equal(stats_of(w, 0).borrowed_bytes, 0);
    assert_int_equal(stats_of(w, 0).reserved_bytes, ROOM);
    while (count) {
        drop_local(w, blocks[--count], 0, 0);
    }
}

/* Pages lent, in use: what is freed on them later is never given out again, and once nothing is
 * left on one it goes. Pages hold several blocks, and blocks lie on several pages. */
static void lent_and_in_use(void **state, uint64_t page_bytes, size_t bytes, bool hold_up) {
    world w = start(state, page_bytes);
    void *blocks[MOST], *borrowed[MOST], *block = NULL;
    size_t count = until_borrowing(&w, blocks, 0), many = 0;
    borrow_pages(&w, page_bytes);
    while (many < 16 * MIB / bytes) {
        borrowed[many++] = get_local(&w, bytes, 0, 0);
    }
    uint64_t lent = stats_of(&w, 0).borrowed_bytes;
    assert_true(lent >= 16 * MIB);
    drop_local(&w, borrowed[1], 0, 0); /* parts of pages are free already */
    drop_local(&w, borrowed[many - 2], 0, 1);
    borrowed[1] = borrowed[many - 2] = NULL;
    if (many > 4) { /* the one freed last is parked */
        drop_local(&w, borrowed[many / 2], 0, 0);
        borrowed[many / 2] = NULL;
    }
    if (hold_up) { /* one is pending */
        hold(&w, 0, 1);
        OK(cen_pool_use(pool_of(&w, 0), borrowed[0], w.nodes[0].streams[1]));
        drop_local(&w, borrowed[0], 0, 0);
        borrowed[0] = NULL;
    }
    lose(&w, 1);
    if (!hold_up) { /* else it would wait */
        FAILS(CEN_ERR_DEVICE_MEMORY, try_local(&w, bytes, &block));
    }
    for (size_t i = 0; i < many; i++) {
        if (borrowed[i]) {
            drop_local(&w, borrowed[i], 0, (int)(i % 3 == 1));
            if (!hold_up) { /* at once: the block freed last is found first */
                FAILS(CEN_ERR_DEVICE_MEMORY, try_local(&w, bytes, &block));
            }
            sound(&w);
        }
    }
    if (hold_up) { /* work may still use those freed behind it */
        OK(cen_pool_trim(pool_of(&w, 0), 0, false, NULL));
        assert_int_equal(stats_of(&w, 0).borrowed_bytes, lent);
    }
    let_go(&w, 0, 1);
    settle_first(&w);
    FAILS(CEN_ERR_DEVICE_MEMORY, try_local(&w, bytes, &block));
    sound(&w);
    own_memory_serves(&w, blocks, count);
    finish(&w, 1);
}

static void lent_page_by_page(void **state) {
    lent_and_in_use(state, CHUNK, CHUNK, false);
}

static void lent_in_large_pages(void **state) {
    lent_and_in_use(state, 8 * MIB, CHUNK, false);
}

static void lent_over_several_pages(void **state) {
    lent_and_in_use(state, CHUNK, 4 * MIB, false);
}

static void lent_and_behind_work(void **state) {
    lent_and_in_use(state, 8 * MIB, CHUNK, true);
}

/* A page of the lost device and one of the own under one free range: only the first is dead. */
static void blocks_over_both(void **state) {
    world w = start(state, CHUNK);
    void *blocks[MOST], *block = NULL;
    size_t count = until_borrowing(&w, blocks, 0);
    drop_local(&w, blocks[--count], 0, 0);
    drop_local(&w, blocks[--count], 0, 0);
    void *both = get_local(&w, 4 * CHUNK, 0, 0); /* two pages of its own, two borrowed ones */
    assert_int_equal(stats_of(&w, 0).borrowed_bytes, 2 * CHUNK);
    fill(&w, 0, 0, both, 4 * CHUNK, 2);
    lose(&w, 1);
    drop_local(&w, both, 0, 0);
    sound(&w);
    OK(try_local(&w, CHUNK, &block));
    not_on(&w, block, CHUNK, 1);
    blocks[count++] = block;
    OK(try_local(&w, CHUNK, &block));
    not_on(&w, block, CHUNK, 1);
    blocks[count++] = block;
    FAILS(CEN_ERR_DEVICE_MEMORY, try_local(&w, CHUNK, &block));
    while (count) {
        drop_local(&w, blocks[--count], 0, 0);
    }
    finish(&w, 1);
}

/* Small objects: of slabs on dead pages none is given out again, from magazines either. */
static void slabs(void **state) {
    world w = start(state, CHUNK);
    static void *objects[8192];
    void *blocks[MOST];
    size_t count = until_borrowing(&w, blocks, 0), many = 0, lost_ones = 0;
    int home;
    while (many < 4096 && stats_of(&w, 0).borrowed_bytes < 2 * CHUNK) {
        objects[many++] = get_local(&w, 900, 0, 0);
    }
    assert_true(stats_of(&w, 0).borrowed_bytes > 0);
    for (size_t i = 0; i < many; i += 3) { /* some are in magazines, some back in their slab */
        drop_local(&w, objects[i], 0, 0);
        objects[i] = NULL;
    }
    lose(&w, 1);
    for (size_t i = 0; i < many; i++) {
        if (objects[i]) {
            OK(cen_global_home(w.global, objects[i], &home));
            lost_ones += home == 1;
            drop_local(&w, objects[i], 0, 0);
            FAILS(CEN_ERR_DOUBLE_FREE,
                  cen_pool_free(pool_of(&w, 0), objects[i], w.nodes[0].streams[0]));
        }
    }
    assert_true(lost_ones > 0);
    sound(&w);
    drop_local(&w, blocks[--count], 0, 0);
    for (many = 0; many < 8192; many++) {
        if (try_local(&w, 900, &objects[many])) {
            break;
        }
        OK(cen_global_home(w.global, objects[many], &home));
        assert_int_equal(home, 0);
    }
    assert_true(many > 1000);
    sound(&w);
    while (many) {
        drop_local(&w, objects[--many], 0, 0);
    }
    OK(cen_pool_trim(pool_of(&w, 0), 0, true, NULL));
    assert_int_equal(stats_of(&w, 0).borrowed_bytes, 0);
    while (count) {
        drop_local(&w, blocks[--count], 0, 0);
    }
    finish(&w, 1);
}

/* Movable blocks on a lost device stay there, and can be freed. */
static void movable_ones(void **state) {
    world w = start(state, 8 * MIB);
    void *blocks[MOST];
    size_t count = until_borrowing(&w, blocks, 0);
    cen_pool *pool = pool_of(&w, 0);
    cen_stream s = w.nodes[0].streams[0];
    cen_movable handles[8];
    borrow_pages(&w, 8 * MIB);
    for (int i = 0; i < 8; i++) {
        OK(cen_movable_alloc(pool, CHUNK, s, &handles[i]));
    }
    assert_int_equal(stats_of(&w, 0).borrowed_bytes, 16 * MIB); /* which they fill */
    lose(&w, 1);
    for (int i = 0; i < 4; i++) {
        drop_local(&w, blocks[--count], 0, 0);
    }
    cen_defragment_options options = {.size = sizeof options, .compact = true, .wait = true};
    OK(cen_global_defragment(w.global, &options, NULL));
    sound(&w);
    for (int i = 0; i < 8; i++) {
        void *where;
        int home;
        OK(cen_movable_pin(pool, handles[i], s, &where));
        OK(cen_global_home(w.global, where, &home));
        assert_int_equal(home, 1);
        OK(cen_movable_unpin(pool, handles[i], s));
        FAILS(CEN_ERR_DEVICE_LOST, cen_movable_move(pool, handles[i]));
        OK(cen_movable_free(pool, handles[i], s));
        sound(&w);
    }
    sound(&w);
    OK(cen_pool_trim(pool, 0, true, NULL));
    assert_int_equal(stats_of(&w, 0).borrowed_bytes, 0);
    while (count) {
        drop_local(&w, blocks[--count], 0, 0);
    }
    finish(&w, 1);
}

/* The borrower is lost: the lender gets idle pages back at once, and others when they are freed. */
static void while_it_borrows(void **state) {
    world w = start(state, CHUNK);
    void *blocks[MOST];
    size_t count = until_borrowing(&w, blocks, 4);
    hold(&w, 0, 0);
    drop_local(&w, blocks[--count], 0, 0); /* behind work that never ends */
    hold(&w, 0, 1);
    OK(cen_pool_use(pool_of(&w, 0), blocks[count - 1], w.nodes[0].streams[1]));
    drop_local(&w, blocks[--count], 0, 0); /* and pending */
    ceni_host_lose(w.devices[0]);
    assert_true(room_of(&w, 0).lost);
    assert_int_equal(room_of(&w, 1).lent_bytes, 2 * CHUNK);
    assert_int_equal(room_of(&w, 1).free_bytes, ROOM - 2 * CHUNK);
    sound(&w);
    drop_local(&w, blocks[--count], 0, 0);
    OK(cen_global_free(w.global, blocks[--count], 0, w.nodes[0].streams[0]));
    uint64_t returned = 0;
    OK(cen_global_reclaim(w.global, 1, UINT64_MAX, true, &returned));
    assert_int_equal(returned, 2 * CHUNK);
    void *all = get(&w, ROOM, 1, CEN_PLACE_LOCAL);
    fill(&w, 1, 0, all, ROOM, 3);
    check(&w, 1, 0, all, ROOM, 3);
    drop(&w, all, 1, 0);
    finish(&w, 0);
}

/* Its blocks still hold pages of others when the pool is destroyed, with nobody having noticed. */
static void destroyed_unnoticed(void **state) {
    for (int lost = 0; lost < 2; lost++) {
        world w = start(state, CHUNK);
        void *blocks[MOST];
        (void)until_borrowing(&w, blocks, 4);
        (void)get(&w, 4 * CHUNK, 1, CEN_PLACE_LOCAL);
        ceni_host_lose(w.devices[lost]);
        finish(&w, lost);
    }
}

static void all_lost(void **state) {
    world w = start(state, CHUNK);
    void *blocks[MOST], *block = NULL;
    size_t count = until_borrowing(&w, blocks, 4);
    void *span = get(&w, 4 * CHUNK, 1, CEN_PLACE_LOCAL);
    for (int d = 0; d < (int)w.count; d++) {
        lose(&w, d);
    }
    assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).largest_bytes, 0);
    FAILS(CEN_ERR_DEVICE_LOST, place(&w, 100, 0, CEN_PLACE_AUTO, &block, NULL));
    drop_local(&w, blocks[count - 1], 0, 0);
    drop_local(&w, blocks[0], 0, 0);
    drop(&w, span, 1, 0);
    sound(&w);
    (void)cen_global_destroy(w.global);
    close_devices(&w);
}

/* The pool is not made, and what was made of it goes. */
static void lost_before_the_pool(void **state) {
    const fixture *f = *state;
    if (!f->host) {
        suite_skip("only the host can be declared lost");
    }
    for (int lost = 0; lost < 2; lost++) {
        cen_device *devices[2];
        cen_global *global = NULL;
        const cen_global_options options = {.size = sizeof options};
        for (int i = 0; i < 2; i++) {
            devices[i] = suite_open(f, i, NULL);
        }
        ceni_host_lose(devices[lost]);
        FAILS(CEN_ERR_DEVICE_LOST, cen_global_create(devices, 2, &options, &global));
        assert_null(global);
        for (int i = 0; i < 2; i++) {
            cen_device_close(devices[i]);
        }
    }
}

static const struct CMUnitTest tests[] = {
    GLOBAL_TEST(with_global_blocks),
    GLOBAL_TEST(found_out_on_the_way),
    GLOBAL_TEST(lent_and_idle),
    GLOBAL_TEST(lent_page_by_page),
    GLOBAL_TEST(lent_in_large_pages),
    GLOBAL_TEST(lent_over_several_pages),
    GLOBAL_TEST(lent_and_behind_work),
    GLOBAL_TEST(blocks_over_both),
    GLOBAL_TEST(slabs),
    GLOBAL_TEST(movable_ones),
    GLOBAL_TEST(while_it_borrows),
    GLOBAL_TEST(destroyed_unnoticed),
    GLOBAL_TEST(all_lost),
    GLOBAL_TEST(lost_before_the_pool),
};
SUITE_MAIN(tests)
