/* Where blocks of the global pool lie: each placement, and requests that cannot be met. */
#include "tests/conformance/global_suite.h"

#define ROOM ((uint64_t)64 * MIB)

static const cen_global_options spans = {.small_bytes = 64 * KIB};

/* Allocates, looks at all of it, and frees; the report is for more checks. */
static cen_global_report try_out(world *w, size_t bytes, int device,
                                 const cen_global_request *request) {
    void *block = NULL;
    cen_global_report report, again;
    OK(cen_global_alloc(w->global, bytes, device, request, &block, &report));
    agrees(w, block, bytes, &report);
    OK(cen_global_where(w->global, (char *)block + report.mapped_bytes - 1, &again));
    assert_memory_equal(&again, &report, sizeof again);
    assert_false(report.local_pool);
    is_shared(w, block, bytes, report.reachable);
    sound(w);
    drop(w, block, device, 0);
    return report;
}

static void on_one_device(void **state) {
    world w = world_open(state, ROOM, &spans);
    const size_t sizes[] = {64 * KIB + 1, w.granule, 3 * w.granule - 1, 16 * MIB};
    for (int d = 0; d < (int)w.count; d++) {
        for (size_t i = 0; i < 4; i++) {
            cen_global_request request = asking(CEN_PLACE_LOCAL);
            cen_global_report r = try_out(&w, sizes[i], d, &request);
            assert_int_equal(r.placement, CEN_PLACE_LOCAL);
            assert_int_equal(r.device_bytes[d], r.mapped_bytes);
            assert_int_equal(r.reachable, everyone(&w));
            r = try_out(&w, sizes[i], d, NULL);
            assert_int_equal(r.placement, CEN_PLACE_LOCAL);
            request.placement = CEN_PLACE_PEER;
            r = try_out(&w, sizes[i], d, &request);
            assert_int_equal(r.placement, CEN_PLACE_PEER);
            /* The link is best within a pair. */
            assert_int_equal(r.device_bytes[d ^ 1], r.mapped_bytes);
        }
    }
    world_close(&w);
}

static void split_evenly(void **state) {
    world w = world_open(state, ROOM, &spans);
    int first = 0, home;
    for (size_t pages = 1; pages <= 11; pages++) {
        first = first + 1 < (int)w.count ? first + 1 : 0;
        cen_global_request request = asking(CEN_PLACE_SPLIT);
        void *block = NULL;
        cen_global_report r = try_out(&w, pages * w.granule - 5, first, &request);
        assert_int_equal(r.placement, CEN_PLACE_SPLIT);
        for (size_t d = 0; d < w.count; d++) { /* to a page, the first gets no less */
            uint64_t part = r.device_bytes[d] / w.granule;
            assert_true(part == pages / w.count || part == pages / w.count + 1);
            assert_true(r.device_bytes[d] <= r.device_bytes[first]);
        }
        OK(cen_global_alloc(w.global, pages * w.granule, first, &request, &block, NULL));
        OK(cen_global_home(w.global, block, &home));
        assert_int_equal(home, first);
        drop(&w, block, first, 0);
    }
    world_close(&w);
}

static void in_stripes(void **state) {
    world w = world_open(state, ROOM, &spans);
    const uint64_t stripes[] = {0,        1,         w.granule, w.granule + 1, 3 * w.granule,
                                20 * MIB, UINT64_MAX};
    const size_t sizes[] = {w.granule, 7 * w.granule + 3, 24 * MIB};
    for (size_t i = 0; i < 7; i++) {
        for (size_t k = 0; k < 3; k++) {
            cen_global_request request = asking(CEN_PLACE_STRIPED);
            request.stripe_bytes = stripes[i];
            cen_global_report r = try_out(&w, sizes[k], 1, &request);
            assert_int_equal(r.placement, CEN_PLACE_STRIPED);
            void *block = NULL;
            OK(cen_global_alloc(w.global, sizes[k], 1, &request, &block, NULL));
            uint64_t size = whole(&w, sizes[k]);
            uint64_t stripe = stripes[i] ? stripes[i] : 2 * MIB;
            stripe = whole(&w, stripe < size ? stripe : size);
            for (uint64_t at = 0; at < size; at += w.granule) {
                int order[DEVICES_MAX] = {1, 0, 2, 3}, home;
                OK(cen_global_home(w.global, (char *)block + at, &home));
                assert_int_equal(home, order[at / stripe % w.count]);
            }
            drop(&w, block, 0, 0);
        }
    }
    world_close(&w);
}

static void by_weights(void **state) {
    world w = world_open(state, ROOM, &spans);
    const double weights[][4] = {
        {1, 1, 1, 1}, {3, 1, 0, 0}, {0, 1, 0, 0}, {0, 0.25, 0, 0.5}, {1e-9, 5e17, 0, 0}};
    for (size_t i = 0; i < 5; i++) {
        cen_global_request request = asking(CEN_PLACE_WEIGHTED);
        request.weights = weights[i];
        double sum = 0;
        for (size_t d = 0; d < w.count; d++) {
            sum += weights[i][d];
        }
        cen_global_report r = try_out(&w, 16 * w.granule, 0, &request);
        assert_int_equal(r.placement, CEN_PLACE_WEIGHTED);
        for (size_t d = 0; d < w.count; d++) {
            double share = weights[i][d] / sum * 16;
            double part = (double)r.device_bytes[d] / (double)w.granule;
            assert_true(part > share - 1 && part < share + 1);
            assert_true(weights[i][d] > 0 || !r.device_bytes[d]);
        }
    }
    /* Stripes, too. */
    const double three[4] = {3, 1, 0, 0};
    cen_global_request stripes = asking(CEN_PLACE_STRIPED);
    stripes.weights = three;
    stripes.stripe_bytes = w.granule;
    cen_global_report dealt = try_out(&w, 16 * w.granule, 0, &stripes);
    assert_int_equal(dealt.device_bytes[0], 12 * w.granule);
    assert_int_equal(dealt.device_bytes[1], 4 * w.granule);
    /* By room: the device that has less gets less. */
    settle(&w);
    void *less = get(&w, ROOM / 2, 1, CEN_PLACE_LOCAL);
    cen_global_request request = asking(CEN_PLACE_WEIGHTED);
    cen_global_report r = try_out(&w, 24 * w.granule, 0, &request);
    assert_true(r.device_bytes[1] > 0 && r.device_bytes[1] < r.device_bytes[0]);
    drop(&w, less, 1, 0);
    world_close(&w);
}

static void on_the_host(void **state) {
    world w = world_open(state, ROOM, &spans);
    cen_global_request request = asking(CEN_PLACE_HOST);
    void *block = NULL;
    suite_log_reset();
    FAILS(CEN_ERR_UNSUPPORTED, cen_global_alloc(w.global, MIB, 0, &request, &block, NULL));
    assert_logged("allow_host");
    world_close(&w);
    cen_global_options options = {.small_bytes = 64 * KIB, .allow_host = true};
    options.host_bytes = 16 * MIB;
    w = world_open(state, ROOM, &options);
    for (int d = 0; d < (int)w.count; d++) {
        cen_global_report r = try_out(&w, 5 * MIB, d, &request);
        assert_int_equal(r.placement, CEN_PLACE_HOST);
        assert_int_equal(r.host_bytes, r.mapped_bytes);
        assert_int_equal(r.reachable, everyone(&w));
    }
    settle(&w);
    block = get(&w, 10 * MIB, 0, CEN_PLACE_HOST);
    assert_int_equal(room_of(&w, CEN_GLOBAL_HOST).global_bytes, 10 * MIB);
    assert_int_equal(room_of(&w, CEN_GLOBAL_HOST).available_bytes, 6 * MIB);
    void *more = NULL;
    FAILS(CEN_ERR_DEVICE_MEMORY, place(&w, 7 * MIB, 1, CEN_PLACE_HOST, &more, NULL));
    OK(place(&w, 6 * MIB, 1, CEN_PLACE_HOST, &more, NULL));
    assert_int_equal(room_of(&w, CEN_GLOBAL_HOST).available_bytes, 0);
    drop(&w, block, 0, 0);
    drop(&w, more, 0, 0);
    world_close(&w);
}

static void explicit_ones_do_not_fall_back(void **state) {
    world w = world_open(state, ROOM, &spans);
    uint64_t room = room_of(&w, 0).largest_bytes;
    void *block = NULL, *most = get(&w, room - 2 * w.granule, 0, CEN_PLACE_LOCAL);
    FAILS(CEN_ERR_DEVICE_MEMORY, place(&w, 8 * w.granule, 0, CEN_PLACE_LOCAL, &block, NULL));
    FAILS(CEN_ERR_DEVICE_MEMORY,
          place(&w, 4 * w.count * w.granule, 0, CEN_PLACE_SPLIT, &block, NULL));
    FAILS(CEN_ERR_DEVICE_MEMORY, place(&w, 64 * w.granule / 2, 0, CEN_PLACE_STRIPED, &block, NULL));
    if (w.count == 2) {
        FAILS(CEN_ERR_DEVICE_MEMORY, place(&w, 8 * w.granule, 1, CEN_PLACE_PEER, &block, NULL));
    }
    double weights[4] = {1, 0, 0, 0};
    cen_global_request request = asking(CEN_PLACE_WEIGHTED);
    request.weights = weights;
    block = NULL;
    FAILS(CEN_ERR_DEVICE_MEMORY,
          cen_global_alloc(w.global, 8 * w.granule, 0, &request, &block, NULL));
    assert_null(block);
    sound(&w);
    assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).global_bytes, room - 2 * w.granule);
    drop(&w, most, 0, 0);
    world_close(&w);
}

static void odd_sizes(void **state) {
    world w = world_open(state, ROOM, &spans);
    void *block = &w;
    cen_global_report r;
    const cen_placement all[] = {CEN_PLACE_AUTO,  CEN_PLACE_LOCAL,   CEN_PLACE_PEER,
                                 CEN_PLACE_SPLIT, CEN_PLACE_STRIPED, CEN_PLACE_WEIGHTED};
    for (size_t i = 0; i < 6; i++) {
        block = &w;
        OK(place(&w, 0, 0, all[i], &block, NULL));
        assert_null(block);
        OK(place(&w, 1, 0, all[i], &block, &r));
        assert_int_equal(r.requested_bytes, 1);
        fill(&w, 1, 0, block, 1, 1);
        drop(&w, block, 0, 0);
        const size_t huge[] = {(w.count * ROOM) * 2, (size_t)1 << 46, SIZE_MAX / 4, SIZE_MAX};
        for (size_t k = w.f->host ? 0 : 1; k < 4; k++) {
            block = NULL;
            FAILS(CEN_ERR_DEVICE_MEMORY, place(&w, huge[k], 0, all[i], &block, NULL));
            assert_null(block);
        }
        sound(&w);
    }
    world_close(&w);
}

static void wrong_calls(void **state) {
    world w = world_open(state, ROOM, &spans);
    void *block = NULL;
    cen_global_request request = asking(CEN_PLACE_AUTO);
    cen_global *none = NULL;
    const int numbers[] = {-1, -2, -3, (int)w.count, 16, 1 << 30};
    for (size_t i = 0; i < 6; i++) {
        suite_log_reset();
        FAILS(CEN_ERR_NO_DEVICE, cen_global_alloc(w.global, MIB, numbers[i], NULL, &block, NULL));
        assert_logged("there is no device");
        assert_null(cen_global_pool(w.global, numbers[i]));
        suite_log_reset();
    }
    cen_global_room room;
    FAILS(CEN_ERR_NO_DEVICE, cen_global_available(w.global, -3, &room));
    FAILS(CEN_ERR_NO_DEVICE, cen_global_reclaim(w.global, -1, 1, false, NULL));
    FAILS(CEN_ERR_INVALID, cen_global_available(w.global, 0, NULL));
    FAILS(CEN_ERR_INVALID, cen_global_alloc(w.global, MIB, 0, NULL, NULL, NULL));
    FAILS(CEN_ERR_INVALID, cen_global_alloc(NULL, MIB, 0, NULL, &block, NULL));
    request.size = 0;
    FAILS(CEN_ERR_INVALID, cen_global_alloc(w.global, MIB, 0, &request, &block, NULL));
    request = asking((cen_placement)99);
    FAILS(CEN_ERR_INVALID, cen_global_alloc(w.global, MIB, 0, &request, &block, NULL));
    double weights[][4] = {{0, 0, 0, 0}, {1, -1, 1, 1}, {1, 0.0 / 0.0, 1, 1}, {1, 1e300, 0, 0}};
    for (size_t i = 0; i < 4; i++) {
        request = asking(CEN_PLACE_WEIGHTED);
        request.weights = weights[i];
        suite_log_reset();
        FAILS(CEN_ERR_INVALID, cen_global_alloc(w.global, MIB, 0, &request, &block, NULL));
        assert_logged("weight");
    }
    assert_null(block);
    FAILS(CEN_ERR_INVALID, cen_global_create(NULL, 1, NULL, &none));
    FAILS(CEN_ERR_INVALID, cen_global_create(w.devices, 0, NULL, &none));
    FAILS(CEN_ERR_INVALID, cen_global_create(w.devices, 17, NULL, &none));
    FAILS(CEN_ERR_INVALID, cen_global_create(w.devices, 1, NULL, NULL));
    cen_device *twice[] = {w.devices[0], w.devices[0]}, *null[] = {w.devices[0], NULL};
    FAILS(CEN_ERR_INVALID, cen_global_create(twice, 2, NULL, &none));
    FAILS(CEN_ERR_INVALID, cen_global_create(null, 2, NULL, &none));
    cen_global_options sizeless = {0};
    FAILS(CEN_ERR_INVALID, cen_global_create(w.devices, 1, &sizeless, &none));
    assert_null(none);
    OK(cen_global_destroy(NULL));
    world_close(&w);
}

static void small_ones_are_local(void **state) {
    world w = world_open(state, ROOM, NULL);
    const size_t sizes[] = {1, 700, 40 * KIB, MIB + 3, 20 * MIB};
    void *blocks[5];
    for (size_t i = 0; i < 5; i++) {
        cen_global_report r, again;
        OK(place(&w, sizes[i], 1, i % 2 ? CEN_PLACE_AUTO : CEN_PLACE_LOCAL, &blocks[i], &r));
        assert_true(r.local_pool);
        assert_int_equal(r.placement, CEN_PLACE_LOCAL);
        assert_int_equal(r.requested_bytes, sizes[i]);
        assert_int_equal(r.device_bytes[1], r.mapped_bytes);
        assert_int_equal(r.reachable, everyone(&w));
        OK(cen_global_where(w.global, blocks[i], &again));
        assert_memory_equal(&again, &r, sizeof again);
        is_shared(&w, blocks[i], sizes[i], r.reachable);
    }
    assert_int_equal(stats_of(&w, 1).blocks, 5);
    assert_int_equal(room_of(&w, 1).global_bytes, 0);
    for (size_t i = 0; i < 5; i++) {
        drop(&w, blocks[i], 1, 0);
    }
    assert_int_equal(stats_of(&w, 1).blocks, 0);
    world_close(&w);
}

/* Pages that a local pool made before it was part of the whole are shared like the others. */
static void preallocated_pages_are_shared(void **state) {
    cen_global_options options = {.pool = {.size = sizeof(cen_pool_options)}};
    options.pool.preallocate_bytes = 8 * MIB;
    world w = world_open(state, ROOM, &options);
    assert_true(stats_of(&w, 0).reserved_bytes >= 8 * MIB);
    void *block = get(&w, 6 * MIB, 0, CEN_PLACE_AUTO);
    is_shared(&w, block, 6 * MIB, everyone(&w));
    drop(&w, block, 0, 0);
    world_close(&w);
}

static void only_within_reach(void **state) {
    const fixture *f = *state;
    if (!f->host || f->devices < 4) {
        suite_skip("needs four devices of the host, in two groups");
        return;
    }
    const cen_host_options pairs = {.peer_group = 2};
    world w = world_on(state, ROOM, &pairs, &spans);
    cen_global_request request = asking(CEN_PLACE_SPLIT);
    cen_global_report r = try_out(&w, 16 * MIB, 2, &request);
    assert_int_equal(r.reachable, 12);
    assert_int_equal(r.device_bytes[2], 8 * MIB);
    assert_int_equal(r.device_bytes[3], 8 * MIB);
    const double weights[4] = {0, 1, 1, 0};
    request = asking(CEN_PLACE_WEIGHTED);
    request.weights = weights;
    void *block = NULL;
    suite_log_reset();
    FAILS(CEN_ERR_UNSUPPORTED, cen_global_alloc(w.global, MIB, 2, &request, &block, NULL));
    assert_logged("cannot reach device 1");
    FAILS(CEN_ERR_DEVICE_MEMORY, place(&w, 2 * ROOM + MIB, 0, CEN_PLACE_AUTO, &block, NULL));
    assert_int_equal(room_of(&w, CEN_GLOBAL_ALL).largest_bytes, 2 * ROOM);
    block = get(&w, 4 * MIB, 0, CEN_PLACE_LOCAL);
    FAILS(CEN_ERR_UNSUPPORTED, cen_global_use(w.global, block, 3, 0));
    OK(cen_global_use(w.global, block, 1, w.nodes[1].streams[0]));
    drop(&w, block, 0, 0);
    void *small = get_local(&w, 300, 0, 0);
    FAILS(CEN_ERR_UNSUPPORTED, cen_global_use(w.global, small, 2, 0));
    OK(cen_global_where(w.global, small, &r));
    assert_int_equal(r.reachable, 3);
    drop_local(&w, small, 0, 0);
    world_close(&w);
    const cen_host_options alone = {.peer_group = 1};
    w = world_on(state, ROOM, &alone, &spans);
    const cen_placement needs_peers[] = {CEN_PLACE_PEER, CEN_PLACE_SPLIT, CEN_PLACE_STRIPED};
    for (int i = 0; i < 3; i++) {
        suite_log_reset();
        FAILS(CEN_ERR_UNSUPPORTED, place(&w, MIB, 3, needs_peers[i], &block, NULL));
        assert_logged("device 3 reaches no peer");
    }
    world_close(&w);
}

static const struct CMUnitTest tests[] = {
    GLOBAL_TEST(on_one_device),
    GLOBAL_TEST(split_evenly),
    GLOBAL_TEST(in_stripes),
    GLOBAL_TEST(by_weights),
    GLOBAL_TEST(on_the_host),
    GLOBAL_TEST(explicit_ones_do_not_fall_back),
    GLOBAL_TEST(odd_sizes),
    GLOBAL_TEST(wrong_calls),
    GLOBAL_TEST(small_ones_are_local),
    GLOBAL_TEST(preallocated_pages_are_shared),
    GLOBAL_TEST(only_within_reach),
};
SUITE_MAIN(tests)
