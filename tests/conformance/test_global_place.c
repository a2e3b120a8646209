/* Where blocks of the global pool lie: each placement, what automatic ones fall back to, requests
 * that cannot be met, and the figures of what is left. */
#include "tests/conformance/global_suite.h"

#define ROOM ((uint64_t)64 * MIB)

static const cen_global_options spans = {.small_bytes = 64 * KIB};

/* The report's sums, and the home of each page of the block. */
static void agrees(world *w, void *block, size_t bytes, const cen_global_report *r) {
    uint64_t sum = r->host_bytes, tally[DEVICES_MAX] = {0}, host = 0;
    assert_int_equal(r->requested_bytes, bytes);
    assert_int_equal(r->mapped_bytes, whole(w, bytes));
    assert_int_not_equal(r->placement, CEN_PLACE_AUTO);
    for (size_t d = 0; d < CEN_GLOBAL_DEVICES; d++) {
        sum += r->device_bytes[d];
        assert_true(d < w->count || !r->device_bytes[d]);
    }
    assert_int_equal(sum, r->mapped_bytes);
    for (uint64_t at = 0; at < r->mapped_bytes; at += w->granule) {
        int first, last;
        OK(cen_global_home(w->global, (char *)block + at, &first));
        OK(cen_global_home(w->global, (char *)block + at + w->granule - 1, &last));
        assert_int_equal(first, last);
        *(first == CEN_GLOBAL_HOST ? &host : &tally[first]) += w->granule;
    }
    for (size_t d = 0; d < w->count; d++) {
        assert_int_equal(tally[d], r->device_bytes[d]);
    }
    assert_int_equal(host, r->host_bytes);
}

/* What one device writes, each other one in reach reads at the same addresses. */
static void is_shared(world *w, void *block, size_t bytes, uint64_t reachable) {
    for (int d = 0; d < (int)w->count; d++) {
        if (!(reachable >> d & 1)) {
            continue;
        }
        fill(w, d, 0, block, bytes, 100 + (uint32_t)d);
        OK(cen_stream_sync(w->devices[d], w->nodes[d].streams[0]));
        for (int e = 0; e < (int)w->count; e++) {
            if (reachable >> e & 1) {
                check(w, e, 0, block, bytes, 100 + (uint32_t)d);
            }
        }
        for (int e = 0; e < (int)w->count; e++) {
            OK(cen_stream_sync(w->devices[e], w->nodes[e].streams[0]));
        }
        no_mismatches(w);
    }
}

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

static cen_global_request asking(cen_placement placement) {
    return (cen_global_request){.size = sizeof(cen_global_request), .placement = placement};
}

static uint64_t everyone(const world *w) {
    return ((uint64_t)1 << w->count) - 1;
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
    for (size_t pages = 1; pages <= 11; pages++) {
        int first = (int)(pages % w.count), home;
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
            double share = weights[i][d] / sum * 16, part = (double)(r.device_bytes[d] / w.granule);
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
        sum.idle_bytes += r.idle_bytes;
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
    GLOBAL_TEST(automatic_falls_back),
    GLOBAL_TEST(automatic_falls_back_to_the_host),
    GLOBAL_TEST(explicit_ones_do_not_fall_back),
    GLOBAL_TEST(odd_sizes),
    GLOBAL_TEST(wrong_calls),
    GLOBAL_TEST(small_ones_are_local),
    GLOBAL_TEST(preallocated_pages_are_shared),
    GLOBAL_TEST(figures_add_up),
    GLOBAL_TEST(ranges_are_kept),
    GLOBAL_TEST(the_largest_can_be_had),
    GLOBAL_TEST(only_within_reach),
};
SUITE_MAIN(tests)
