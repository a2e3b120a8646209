/* Local pools that borrow pages of their neighbours, or of the host, and give them back: idle ones,
 * those behind work, and, once told, those in use. */
#include "tests/conformance/global_suite.h"

#include "dev/capture.h"

#define ROOM  ((uint64_t)48 * MIB)
#define CHUNK (4 * MIB)

enum { MOST = 128 };

/* Blocks of one local pool, filled by its device. */
typedef struct heap {
    int device;
    void *blocks[MOST];
    size_t count;
} heap;

static cen_global_options options_of(void) {
    cen_global_options o = {.small_bytes = 64 * KIB, .pool = {.size = sizeof(cen_pool_options)}};
    o.pool.page_bytes = 2 * MIB;
    return o;
}

static bool take(world *w, heap *h) {
    void *block = NULL;
    cen_status status =
        cen_pool_alloc(pool_of(w, h->device), CHUNK, w->nodes[h->device].streams[0], &block);
    if (status) {
        assert_int_equal(status, CEN_ERR_DEVICE_MEMORY);
        return false;
    }
    assert_true(h->count < MOST);
    fill(w, h->device, 0, block, CHUNK, (uint32_t)(h->count + 1) * 7);
    h->blocks[h->count++] = block;
    return true;
}

/* Until the device is full, and `more` beyond. */
static void fill_up(world *w, heap *h, size_t more) {
    while (room_of(w, h->device).available_bytes >= CHUNK) {
        assert_true(take(w, h));
    }
    assert_int_equal(stats_of(w, h->device).borrowed_bytes, 0);
    for (size_t i = 0; i < more; i++) {
        assert_true(take(w, h));
    }
}

static void check_all(world *w, const heap *h, int device) {
    OK(cen_stream_sync(w->devices[h->device], w->nodes[h->device].streams[0]));
    for (size_t i = 0; i < h->count; i++) {
        check(w, device, 0, h->blocks[i], CHUNK, (uint32_t)(i + 1) * 7);
    }
    OK(cen_stream_sync(w->devices[device], w->nodes[device].streams[0]));
    no_mismatches(w);
}

static void drop_down_to(world *w, heap *h, size_t count) {
    while (h->count > count) {
        h->count--;
        check(w, h->device, 0, h->blocks[h->count], CHUNK, (uint32_t)(h->count + 1) * 7);
        drop_local(w, h->blocks[h->count], h->device, 0);
    }
}

static uint64_t borrowed(world *w, int device) {
    cen_global_room room = room_of(w, device);
    assert_int_equal(room.borrowed_bytes, stats_of(w, device).borrowed_bytes);
    return room.borrowed_bytes;
}

static void from_a_neighbour(void **state) {
    cen_global_options options = options_of();
    world w = world_open(state, ROOM, &options);
    heap h = {.device = 0};
    fill_up(&w, &h, 5);
    assert_in_range(borrowed(&w, 0), 4 * CHUNK, 5 * CHUNK);
    assert_int_equal(room_of(&w, 1).lent_bytes, borrowed(&w, 0)); /* its link is best */
    assert_int_equal(room_of(&w, 0).pool_bytes + borrowed(&w, 0), stats_of(&w, 0).reserved_bytes);
    cen_global_report r;
    OK(cen_global_where(w.global, h.blocks[h.count - 1], &r));
    assert_int_equal(r.placement, CEN_PLACE_PEER);
    assert_int_equal(r.device_bytes[1], CHUNK);
    assert_true(r.local_pool);
    int home;
    OK(cen_global_home(w.global, (char *)h.blocks[h.count - 1] + CHUNK - 1, &home));
    assert_int_equal(home, 1);
    check_all(&w, &h, 0);
    check_all(&w, &h, 1);
    sound(&w);
    /* A local block must not be a borrowed one. */
    void *block = NULL;
    cen_status status = place(&w, 40 * KIB, 0, CEN_PLACE_LOCAL, &block, NULL);
    assert_true(!status || status == CEN_ERR_DEVICE_MEMORY);
    if (block) {
        OK(cen_global_home(w.global, block, &home));
        assert_int_equal(home, 0);
        drop(&w, block, 0, 0);
    }
    drop_down_to(&w, &h, 0);
    world_close(&w);
}

/* The lender's own need, in its local pool and in the global one, takes idle pages back. */
static void idle_pages_go_back(void **state) {
    cen_global_options options = options_of();
    world w = world_open(state, ROOM, &options);
    heap h = {.device = 0}, other = {.device = 1};
    fill_up(&w, &h, 6);
    uint64_t lent = borrowed(&w, 0);
    assert_true(lent > 4 * CHUNK);
    drop_down_to(&w, &h, h.count - 6);
    settle(&w);
    assert_int_equal(borrowed(&w, 0), lent);
    assert_true(room_of(&w, 1).available_bytes >= room_of(&w, 1).free_bytes + lent);
    uint64_t returned = 0;
    OK(cen_global_reclaim(w.global, 1, 1, false, &returned));
    assert_int_equal(returned, w.granule);
    assert_int_equal(borrowed(&w, 0), lent - returned);
    /* A block of all that the lender has. */
    settle(&w);
    void *all = get(&w, room_of(&w, 1).largest_bytes, 1, CEN_PLACE_LOCAL);
    assert_int_equal(borrowed(&w, 0), 0);
    drop(&w, all, 1, 0);
    settle(&w);
    for (int i = 0; i < 6; i++) {
        assert_true(take(&w, &h));
    }
    assert_true(borrowed(&w, 0) > 0);
    drop_down_to(&w, &h, h.count - 6);
    settle(&w);
    fill_up(&w, &other, 0); /* by its local pool, chunk by chunk */
    assert_true(room_of(&w, 1).lent_bytes < w.granule);
    check_all(&w, &h, 0);
    check_all(&w, &other, 1);
    drop_down_to(&w, &h, 0);
    drop_down_to(&w, &other, 0);
    sound(&w);
    world_close(&w);
}

static void pages_behind_work(void **state) {
    const fixture *f = *state;
    cen_global_options options = options_of();
    world w = world_open(state, ROOM, &options);
    heap h = {.device = 0};
    fill_up(&w, &h, 5);
    uint64_t lent = borrowed(&w, 0), returned = 1;
    hold(&w, 0, 0);
    drop_down_to(&w, &h, h.count - 5);
    OK(cen_global_reclaim(w.global, 1, UINT64_MAX, false, &returned));
    assert_true(returned == 0 || !f->host);
    sound(&w);
    let_go(&w, 0, 0);
    OK(cen_global_reclaim(w.global, 1, UINT64_MAX, true, &returned));
    assert_true(returned >= 4 * CHUNK || !f->host);
    assert_int_equal(borrowed(&w, 0), lent - returned);
    if (!f->is_inline) { /* the lender's need waits for a slow stream */
        for (int i = 0; i < 5; i++) {
            assert_true(take(&w, &h));
        }
        const uint64_t ns = 5000000;
        void *args[] = {(void *)(uintptr_t)&ns};
        suite_launch(w.devices[0], "cen_spin", args, 1, w.nodes[0].streams[0]);
        drop_down_to(&w, &h, h.count - 5);
        uint64_t most = w.f->host ? ROOM : room_of(&w, 1).available_bytes + 4 * CHUNK;
        void *block = get(&w, most / w.granule * w.granule, 1, CEN_PLACE_LOCAL);
        drop(&w, block, 1, 0);
    }
    drop_down_to(&w, &h, 0);
    world_close(&w);
}

typedef struct asked {
    world *w;
    heap *h;
    int calls, frees;
    int through; /* the device in whose name they are freed; -1: nothing is */
    cen_global_notice last;
} asked;

static void told(void *arg, const cen_global_notice *notice) {
    asked *a = arg;
    a->calls++;
    a->last = *notice;
    for (int i = 0; i < a->frees && a->through >= 0 && a->h->count; i++) {
        void *block = a->h->blocks[--a->h->count];
        OK(cen_global_free(a->w->global, block, a->through, a->w->nodes[a->through].streams[0]));
    }
}

static void told_then_freed(void **state, int through) {
    asked a = {.frees = 5, .through = through};
    cen_global_options options = options_of();
    options.notice = told;
    options.notice_arg = &a;
    world w = world_open(state, ROOM, &options);
    heap h = {.device = 0};
    a.w = &w;
    a.h = &h;
    fill_up(&w, &h, 5);
    uint64_t lent = borrowed(&w, 0);
    check_all(&w, &h, 0);
    assert_int_equal(a.calls, 0); /* nobody lacked anything */
    uint64_t most = w.f->host ? ROOM - CHUNK : room_of(&w, 1).free_bytes + 3 * CHUNK;
    void *block = NULL;
    cen_status status = place(&w, most / w.granule * w.granule, 1, CEN_PLACE_LOCAL, &block, NULL);
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.last.lender, 1);
    assert_int_equal(a.last.borrower, 0);
    assert_int_equal(a.last.in_use, lent);
    assert_true(a.last.wanted > 0 && a.last.wanted <= lent + w.granule);
    if (through >= 0) {
        OK(status);
        fill(&w, 1, 0, block, most / w.granule * w.granule, 3);
        check(&w, 1, 0, block, most / w.granule * w.granule, 3);
        drop(&w, block, 1, 0);
    } else {
        FAILS(CEN_ERR_DEVICE_MEMORY, status);
        assert_int_equal(borrowed(&w, 0), lent);
    }
    check_all(&w, &h, 0); /* what was not freed is as it was */
    sound(&w);
    drop_down_to(&w, &h, 0);
    world_close(&w);
}

static void pages_in_use_are_asked_for(void **state) {
    told_then_freed(state, 0);
}

static void freed_in_anothers_name_when_asked(void **state) {
    told_then_freed(state, 1);
}

static void asked_in_vain(void **state) {
    told_then_freed(state, -1);
}

/* The lender's local pool reclaims and asks, too, and nobody who can do without. */
static void a_local_pool_asks(void **state) {
    asked a = {.frees = 1, .through = 0};
    cen_global_options options = options_of();
    options.notice = told;
    options.notice_arg = &a;
    world w = world_open(state, ROOM, &options);
    heap h = {.device = 0}, other = {.device = 1};
    a.w = &w;
    a.h = &h;
    fill_up(&w, &h, 3);
    check_all(&w, &h, 0);
    fill_up(&w, &other, 0);
    assert_int_equal(a.calls, 0);
    assert_true(take(&w, &other));
    assert_true(a.calls >= 1);
    assert_int_equal(a.last.lender, 1);
    if (w.count == 2) { /* nobody else could lend */
        assert_int_equal(borrowed(&w, 1), 0);
    }
    check_all(&w, &other, 1);
    check_all(&w, &h, 0);
    drop_down_to(&w, &h, 0);
    drop_down_to(&w, &other, 0);
    world_close(&w);
}

/* What is told of one lack and lacks memory itself, by each kind of call. */
static void told_and_lacks(void *arg, const cen_global_notice *notice) {
    asked *a = arg;
    cen_pool *pool = pool_of(a->w, notice->lender);
    void *block = NULL;
    cen_movable m = 0;
    if (a->calls++) {
        return;
    }
    FAILS(CEN_ERR_DEVICE_MEMORY, place(a->w, ROOM, notice->lender, CEN_PLACE_LOCAL, &block, NULL));
    if (!cen_pool_alloc(pool, ROOM, 0, &block)) { /* borrowed, where there are more devices */
        OK(cen_pool_free(pool, block, 0));
    }
    if (!cen_movable_alloc(pool, ROOM, 0, &m)) {
        OK(cen_movable_free(pool, m, 0));
    }
    OK(cen_global_reclaim(a->w->global, notice->lender, ROOM, true, NULL));
}

static void a_notice_is_not_told_in_turn(void **state) {
    asked a = {0};
    cen_global_options options = options_of();
    options.notice = told_and_lacks;
    options.notice_arg = &a;
    world w = world_open(state, ROOM, &options);
    if (w.f->host) { /* where the room is known */
        heap h = {.device = 0};
        a.w = &w;
        fill_up(&w, &h, w.count > 2 ? 8 : 5);
        void *block = NULL;
        FAILS(CEN_ERR_DEVICE_MEMORY, place(&w, ROOM, 1, CEN_PLACE_LOCAL, &block, NULL));
        assert_int_equal(a.calls, 1);
        OK(cen_global_reclaim(w.global, 1, ROOM, true, NULL));
        assert_int_equal(a.calls, 2);
        drop_down_to(&w, &h, 0);
    }
    suite_log_reset();
    world_close(&w);
}

static void not_if_told_not_to(void **state) {
    cen_global_options options = options_of();
    options.no_borrowing = true;
    world w = world_open(state, ROOM, &options);
    heap h = {.device = 0};
    fill_up(&w, &h, 0);
    assert_false(take(&w, &h));
    assert_int_equal(borrowed(&w, 0), 0);
    /* The global pool still places blocks elsewhere, small ones too. */
    cen_global_report r;
    void *large = NULL, *small = NULL;
    OK(place(&w, CHUNK, 0, CEN_PLACE_AUTO, &large, &r));
    assert_int_equal(r.placement, CEN_PLACE_PEER);
    cen_status status = CEN_OK;
    void *fillers[4096];
    size_t count = 0;
    while (count < 4096 && !(status = place(&w, 60 * KIB, 0, CEN_PLACE_AUTO, &small, &r)) &&
           r.local_pool) {
        fillers[count++] = small;
    }
    OK(status);
    assert_int_equal(r.placement, CEN_PLACE_PEER);
    drop(&w, small, 0, 0);
    while (count) {
        drop(&w, fillers[--count], 0, 0);
    }
    drop(&w, large, 0, 0);
    drop_down_to(&w, &h, 0);
    world_close(&w);
}

static void from_the_host(void **state) {
    cen_global_options options = options_of();
    options.allow_host = true;
    options.host_bytes = 3 * CHUNK;
    world w = world_open(state, ROOM, &options);
    heap h = {.device = 0}, others[DEVICES_MAX];
    for (int d = 1; d < (int)w.count; d++) { /* neighbours are full */
        others[d] = (heap){.device = d};
        fill_up(&w, &others[d], 0);
    }
    fill_up(&w, &h, 0);
    for (int i = 0; i < 3; i++) {
        assert_true(take(&w, &h));
    }
    assert_false(take(&w, &h));
    cen_global_report r;
    OK(cen_global_where(w.global, h.blocks[h.count - 1], &r));
    assert_int_equal(r.host_bytes, CHUNK);
    assert_int_equal(r.placement, CEN_PLACE_HOST);
    assert_int_equal(r.reachable, ((uint64_t)1 << w.count) - 1);
    assert_int_equal(room_of(&w, CEN_GLOBAL_HOST).lent_bytes, 3 * CHUNK);
    assert_int_equal(room_of(&w, CEN_GLOBAL_HOST).available_bytes, 0);
    assert_int_equal(borrowed(&w, 0), 3 * CHUNK);
    void *block = NULL;
    FAILS(CEN_ERR_DEVICE_MEMORY, place(&w, CHUNK, 1, CEN_PLACE_HOST, &block, NULL));
    check_all(&w, &h, 0);
    check_all(&w, &h, 1);
    drop_down_to(&w, &h, h.count - 3);
    OK(cen_pool_trim(pool_of(&w, 0), 0, true, NULL));
    assert_int_equal(room_of(&w, CEN_GLOBAL_HOST).lent_bytes, 0);
    OK(place(&w, CHUNK, 1, CEN_PLACE_HOST, &block, NULL));
    drop(&w, block, 1, 0);
    settle(&w); /* is kept: the limit is for both */
    for (int i = 0; i < 3; i++) {
        assert_true(take(&w, &h));
    }
    assert_int_equal(room_of(&w, CEN_GLOBAL_HOST).lent_bytes, 3 * CHUNK);
    assert_int_equal(room_of(&w, CEN_GLOBAL_HOST).idle_bytes, 0);
    drop_down_to(&w, &h, 0);
    for (int d = 1; d < (int)w.count; d++) {
        drop_down_to(&w, &others[d], 0);
    }
    world_close(&w);
}

static void only_of_whom_is_reached(void **state) {
    const fixture *f = *state;
    if (!f->host || f->devices < 4) {
        suite_skip("needs four devices of the host, in two groups");
        return;
    }
    const cen_host_options pairs = {.peer_group = 2};
    cen_global_options options = options_of();
    world w = world_on(state, ROOM, &pairs, &options);
    heap h = {.device = 2};
    while (take(&w, &h)) {
    }
    assert_int_equal(h.count, 2 * ROOM / CHUNK);
    assert_int_equal(room_of(&w, 3).lent_bytes, ROOM);
    assert_int_equal(room_of(&w, 0).lent_bytes + room_of(&w, 1).lent_bytes, 0);
    sound(&w);
    check_all(&w, &h, 3);
    drop_down_to(&w, &h, 0);
    world_close(&w);
}

/* The best link first; among equals who has most room. */
static void of_the_best_first(void **state) {
    const fixture *f = *state;
    if (f->devices < 4) {
        suite_skip("needs four devices");
        return;
    }
    cen_global_options options = options_of();
    world w = world_open(state, ROOM, &options);
    void *less = get(&w, 2 * CHUNK, 2, CEN_PLACE_LOCAL);
    heap h = {.device = 0};
    fill_up(&w, &h, 0);
    while (room_of(&w, 1).available_bytes >= CHUNK) {
        assert_true(take(&w, &h));
        assert_int_equal(room_of(&w, 2).lent_bytes + room_of(&w, 3).lent_bytes, 0);
    }
    assert_true(take(&w, &h));
    assert_int_equal(room_of(&w, 2).lent_bytes, 0);
    assert_int_equal(room_of(&w, 3).lent_bytes, CHUNK);
    drop(&w, less, 2, 0);
    drop_down_to(&w, &h, 0);
    world_close(&w);
}

/* What a block lacks may be less than its size: idle pages of the pool's own serve it, too. */
static void only_what_lacks(void **state) {
    cen_global_options options = options_of();
    world w = world_open(state, ROOM, &options);
    void *others[DEVICES_MAX] = {NULL};
    heap h = {.device = 0};
    fill_up(&w, &h, 0);
    for (int d = 1; d < (int)w.count; d++) { /* each has room for two chunks */
        uint64_t size = room_of(&w, d).largest_bytes - 2 * CHUNK;
        others[d] = get(&w, size, d, CEN_PLACE_LOCAL);
    }
    drop_down_to(&w, &h, h.count - 2);
    settle(&w);
    void *block = get_local(&w, 4 * CHUNK, 0, 0);
    fill(&w, 0, 0, block, 4 * CHUNK, 77);
    check(&w, 0, 0, block, 4 * CHUNK, 77);
    assert_in_range(borrowed(&w, 0), CHUNK, 2 * CHUNK);
    sound(&w);
    drop_local(&w, block, 0, 0);
    for (int d = 1; d < (int)w.count; d++) {
        drop(&w, others[d], d, 0);
    }
    drop_down_to(&w, &h, 0);
    world_close(&w);
}

/* A graph's memory stays as long as the graph: it is never a neighbour's, not even an idle page. */
static void not_for_graphs(void **state) {
    cen_global_options options = options_of();
    world w = world_open(state, ROOM, &options);
    cen_stream s = w.nodes[0].streams[1];
    heap h = {.device = 0};
    fill_up(&w, &h, 3);
    void *block = NULL;
    for (int idle = 0; idle < 2; idle++) {
        if (idle) { /* borrowed pages are idle now, and would do */
            drop_down_to(&w, &h, h.count - 3);
            settle(&w);
            assert_true(borrowed(&w, 0) >= 2 * CHUNK);
        }
        OK(cen_pool_capture_begin(pool_of(&w, 0), s, 3));
        FAILS(CEN_ERR_DEVICE_MEMORY, cen_pool_alloc(pool_of(&w, 0), 2 * CHUNK, s, &block));
        OK(cen_pool_capture_end(pool_of(&w, 0), s));
        assert_int_equal(stats_of(&w, 0).private_reserved_bytes, 0);
        sound(&w);
    }
    OK(cen_pool_capture_release(pool_of(&w, 0), 3));
    OK(cen_global_reclaim(w.global, 1, UINT64_MAX, true, NULL));
    assert_int_equal(room_of(&w, 1).lent_bytes, 0);
    drop_down_to(&w, &h, 0);
    world_close(&w);
}

/* A pool at its own limit borrows, but does not take back what it has lent: that would not help. */
static void at_its_limit(void **state) {
    asked a = {.through = -1};
    cen_global_options options = options_of();
    options.notice = told;
    options.notice_arg = &a;
    options.pool.limit_bytes = 2 * CHUNK;
    world w = world_open(state, ROOM, &options);
    heap h = {.device = 0}, other = {.device = 1};
    for (int i = 0; i < 4; i++) {
        assert_true(take(&w, &h));
    }
    assert_int_equal(borrowed(&w, 0), 2 * CHUNK);
    for (int i = 0; i < 4; i++) {
        assert_true(take(&w, &other));
    }
    assert_int_equal(borrowed(&w, 0), 2 * CHUNK);
    assert_int_equal(borrowed(&w, 1), 2 * CHUNK);
    void *rest = get(&w, room_of(&w, 0).largest_bytes, 0, CEN_PLACE_LOCAL);
    assert_true(take(&w, &h)); /* the device is full, too, and has lent */
    assert_int_equal(borrowed(&w, 0), 3 * CHUNK);
    assert_int_equal(a.calls, 0);
    drop(&w, rest, 0, 0);
    drop_down_to(&w, &h, 0);
    drop_down_to(&w, &other, 0);
    world_close(&w);
}

typedef struct rival {
    world *w;
    pthread_t thread;
    pthread_barrier_t *barrier;
    int device, failed;
    uint64_t borrowed;
} rival;

/* Takes more than its device has, for a moment, again and again: in turns, and all at once. */
static void *contend(void *arg) {
    rival *me = arg;
    world *w = me->w;
    cen_stream s = w->nodes[me->device].streams[0];
    cen_pool *pool = pool_of(w, me->device);
    for (int round = 0; round < 12; round++) {
        void *blocks[MOST];
        size_t all = (size_t)(w->room / CHUNK), count = 0;
        size_t most = round % 3 == 0 || (round + me->device) % 2 ? all + all / 2 : all / 2;
        pthread_barrier_wait(me->barrier);
        cen_status status = CEN_OK;
        while (count < most && !(status = cen_pool_alloc(pool, CHUNK, s, &blocks[count]))) {
            me->failed |= cen_fill_async(w->devices[me->device], address(blocks[count]),
                                         (uint8_t)round, CHUNK / 4, s) != 0;
            count++;
        }
        cen_pool_stats stats;
        me->failed |= status && status != CEN_ERR_DEVICE_MEMORY;
        me->failed |= cen_pool_get_stats(pool, &stats) != 0;
        me->borrowed |= stats.borrowed_bytes;
        while (count) {
            me->failed |= cen_pool_free(pool, blocks[--count], s) != 0;
        }
        me->failed |= round % 4 == 0 && cen_global_verify(w->global);
    }
    return NULL;
}

static void from_each_other_at_once(void **state) {
    cen_global_options options = options_of();
    world w = world_open(state, ROOM, &options);
    rival rivals[DEVICES_MAX];
    uint64_t any = 0;
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, (unsigned)w.count), 0);
    for (int d = 0; d < (int)w.count; d++) {
        rivals[d] = (rival){.w = &w, .barrier = &barrier, .device = d};
        assert_int_equal(pthread_create(&rivals[d].thread, NULL, contend, &rivals[d]), 0);
    }
    for (int d = 0; d < (int)w.count; d++) {
        pthread_join(rivals[d].thread, NULL);
        any |= rivals[d].borrowed;
        if (rivals[d].failed) {
            fail_msg("%s", suite_log_line);
        }
    }
    pthread_barrier_destroy(&barrier);
    assert_int_not_equal(any, 0);
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    GLOBAL_TEST(from_a_neighbour),
    GLOBAL_TEST(idle_pages_go_back),
    GLOBAL_TEST(pages_behind_work),
    GLOBAL_TEST(pages_in_use_are_asked_for),
    GLOBAL_TEST(freed_in_anothers_name_when_asked),
    GLOBAL_TEST(asked_in_vain),
    GLOBAL_TEST(a_local_pool_asks),
    GLOBAL_TEST(a_notice_is_not_told_in_turn),
    GLOBAL_TEST(not_if_told_not_to),
    GLOBAL_TEST(from_the_host),
    GLOBAL_TEST(only_of_whom_is_reached),
    GLOBAL_TEST(of_the_best_first),
    GLOBAL_TEST(only_what_lacks),
    GLOBAL_TEST(not_for_graphs),
    GLOBAL_TEST(at_its_limit),
    GLOBAL_TEST(from_each_other_at_once),
};
SUITE_MAIN(tests)
