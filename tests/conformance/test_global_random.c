/* Random programs over all devices by several threads at once, against a model that knows what is
 * live: blocks of every placement and of local pools, which are full most of the time and so borrow
 * and give back, freed on any device behind uses on others, and movable ones that are pinned to be
 * looked at, while memory is reclaimed, trimmed and defragmented, and streams go through captures.
 * No two live blocks may overlap, and kernels check each block's contents, on its device and on
 * others, before it goes: memory handed out too early or mapped twice is seen as wrong contents. */
#include "tests/conformance/global_suite.h"

#include <stdatomic.h>

#include "dev/host/host.h"

enum { THREADS = STREAMS, LIVE_MAX = 40, ENOUGH = 6000 /* steps, for all to have come up */ };

#define ROOM ((uint64_t)48 * MIB)

typedef struct entry {
    void *block;
    size_t bytes;
    uint32_t seed;
    int device;          /* whose stream wrote it last */
    bool local;          /* straight from the device's local pool */
    cen_movable movable; /* of that pool; `block` is where it was pinned last. 0: no such block */
} entry;

struct model;

typedef struct actor {
    struct model *m;
    pthread_t thread;
    int number; /* of its stream on each device */
    uint64_t rng;
    entry live[LIVE_MAX];
    int count;
    uint64_t allocs, failures, borrows, moved;
} actor;

typedef struct model {
    world w;
    int steps;
    pthread_mutex_t lock; /* of what is live, for all threads */
    uint64_t from[THREADS * LIVE_MAX], to[THREADS * LIVE_MAX];
    actor actors[THREADS];
    _Atomic(const char *) wrong; /* the first thing that was; threads may not use cmocka */
    _Atomic uint32_t seeds;
} model;

/* False: says what is wrong, once, and ends the program. */
static bool holds(actor *a, bool condition, const char *what) {
    const char *none = NULL;
    if (!condition) {
        atomic_compare_exchange_strong(&a->m->wrong, &none, what);
    }
    return condition;
}
#define TEXT_OF(x)       #x
#define TEXT(x)          TEXT_OF(x)
#define HOLDS(condition) holds(a, (condition), "line " TEXT(__LINE__) ": " #condition)
#define SUCCEEDS(call)   HOLDS((call) == CEN_OK)

static uint64_t below(actor *a, uint64_t n) { /* xorshift64* */
    a->rng ^= a->rng >> 12;
    a->rng ^= a->rng << 25;
    a->rng ^= a->rng >> 27;
    return (a->rng * 0x2545F4914F6CDD1Du >> 16) % n;
}

static cen_stream stream_of(const actor *a, int device) {
    return a->m->w.nodes[device].streams[a->number];
}

/* Enters a block among all live ones, with none of which it may overlap; or takes it out. */
static void note(actor *a, const entry *e, bool live) {
    model *m = a->m;
    uint64_t from = address(e->block), to = from + e->bytes;
    size_t hole = THREADS * LIVE_MAX;
    bool overlaps = false;
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < THREADS * LIVE_MAX; i++) {
        bool is_it = live ? !m->to[i] : m->from[i] == from && m->to[i] == to;
        hole = is_it ? i : hole;
        overlaps = overlaps || (live && m->from[i] < to && from < m->to[i]);
    }
    if (hole < THREADS * LIVE_MAX) {
        m->from[hole] = live ? from : 0;
        m->to[hole] = live ? to : 0;
    }
    pthread_mutex_unlock(&m->lock);
    HOLDS(hole < THREADS * LIVE_MAX);
    HOLDS(!overlaps);
}

/* A few words at the start of each granule, at odd places, and at the end. */
static void visit(actor *a, const entry *e, int device, bool check_it) {
    node *n = &a->m->w.nodes[device];
    uint64_t counter = address(n->mismatches), step = a->m->w.granule;
    const cen_launch shape = {{1, 1, 1}, {64, 1, 1}, 0};
    for (uint64_t at = 0; at < e->bytes; at += step) {
        uint64_t part = e->bytes - at < step ? e->bytes - at : step;
        uint64_t words = part < 256 ? part / 4 : 64,
                 ends[2] = {at, at + (part - words * 4) / 4 * 4};
        for (int k = 0; k < (part > 512 ? 2 : 1) && words; k++) {
            cen_addr addr = address(e->block) + ends[k];
            uint32_t seed = e->seed * 2654435761u + (uint32_t)(at >> 12) + (uint32_t)k;
            void *args[] = {&addr, &seed, &words, &counter};
            SUCCEEDS(cen_kernel_launch(n->device, check_it ? "cen_check_u32" : "cen_pattern_u32",
                                       &shape, args, check_it ? 4 : 3, stream_of(a, device)));
        }
    }
}

/* Work of this thread on one device comes before what it does next on another. */
static void order(actor *a, int before, int after) {
    cen_event event;
    cen_device *device = a->m->w.devices[before];
    if (before != after && SUCCEEDS(cen_event_create(device, 0, &event))) {
        SUCCEEDS(cen_event_record(device, event, stream_of(a, before)));
        SUCCEEDS(cen_stream_wait(a->m->w.devices[after], stream_of(a, after), event));
        SUCCEEDS(cen_event_destroy(device, event));
    }
}

static size_t random_size(actor *a) {
    switch (below(a, 6)) {
    case 0:
        return 1 + below(a, 32 * KIB);
    case 1:
        return 32 * KIB + 1 + below(a, MIB);
    case 2:
        return (1 + below(a, 6)) * 2 * MIB;
    default:
        return MIB / 2 + below(a, 7 * MIB);
    }
}

/* Fixes a movable block, which is live at its address until let_move. False: not now, for a capture
 * goes on. Other blocks stay where they are. */
static bool fix(actor *a, entry *e) {
    if (e->movable) {
        cen_status status = cen_movable_pin(pool_of(&a->m->w, e->device), e->movable,
                                            stream_of(a, e->device), &e->block);
        if (status == CEN_ERR_CAPTURE || !HOLDS(status == CEN_OK)) {
            return false;
        }
        note(a, e, true);
    }
    return true;
}

static void let_move(actor *a, const entry *e) {
    if (e->movable) {
        note(a, e, false);
        SUCCEEDS(
            cen_movable_unpin(pool_of(&a->m->w, e->device), e->movable, stream_of(a, e->device)));
    }
}

static void do_alloc_movable(actor *a) {
    entry e = {.bytes = random_size(a), .seed = atomic_fetch_add(&a->m->seeds, 1), .local = true};
    e.device = (int)below(a, a->m->w.count);
    cen_pool *pool = pool_of(&a->m->w, e.device);
    cen_status status = cen_movable_alloc(pool, e.bytes, stream_of(a, e.device), &e.movable);
    a->allocs++;
    if (status) {
        a->failures++;
        HOLDS(status == CEN_ERR_DEVICE_MEMORY);
    } else if (!fix(a, &e)) {
        SUCCEEDS(cen_movable_free(pool, e.movable, stream_of(a, e.device)));
    } else {
        visit(a, &e, e.device, false);
        let_move(a, &e);
        a->live[a->count++] = e;
    }
}

static void do_alloc(actor *a) {
    if (a->count == LIVE_MAX) {
        return;
    }
    if (!below(a, 5)) {
        do_alloc_movable(a);
        return;
    }
    model *m = a->m;
    entry e = {.bytes = random_size(a), .seed = atomic_fetch_add(&m->seeds, 1)};
    e.device = (int)below(a, m->w.count);
    e.local = !below(a, 3);
    cen_status status;
    if (e.local) {
        status =
            cen_pool_alloc(pool_of(&m->w, e.device), e.bytes, stream_of(a, e.device), &e.block);
    } else {
        cen_global_request request = {.size = sizeof request, .stream = stream_of(a, e.device)};
        const double weights[DEVICES_MAX] = {1, (double)below(a, 3), (double)below(a, 3), 0};
        request.placement = (cen_placement)below(a, CEN_PLACE_HOST + 1);
        request.stripe_bytes = below(a, 3) * 2 * MIB;
        request.weights = below(a, 2) ? weights : NULL;
        cen_global_report r;
        status = cen_global_alloc(m->w.global, e.bytes, e.device, &request, &e.block, &r);
        if (!status) {
            uint64_t sum = r.host_bytes;
            for (size_t d = 0; d < m->w.count; d++) {
                sum += r.device_bytes[d];
            }
            HOLDS(sum == r.mapped_bytes && sum >= e.bytes && r.requested_bytes == e.bytes);
        }
    }
    a->allocs++;
    if (status) {
        a->failures++;
        HOLDS(status == CEN_ERR_DEVICE_MEMORY);
        return;
    }
    note(a, &e, true);
    visit(a, &e, e.device, false);
    a->live[a->count++] = e;
}

/* Its contents are read on a device, in order behind the writer, which the pool has to know. */
static void read_on(actor *a, entry *e, int device) {
    order(a, e->device, device);
    visit(a, e, device, true);
    SUCCEEDS(cen_global_use(a->m->w.global, e->block, device, stream_of(a, device)));
}

static void do_free(actor *a) {
    if (!a->count) {
        return;
    }
    model *m = a->m;
    int at = (int)below(a, (uint64_t)a->count), device = a->live[at].device;
    entry *e = &a->live[at];
    if (!fix(a, e)) {
        return;
    }
    visit(a, e, e->device, true);
    if (e->movable) {
        let_move(a, e);
        SUCCEEDS(cen_movable_free(pool_of(&m->w, device), e->movable, stream_of(a, device)));
        *e = a->live[--a->count];
        return;
    }
    if (!below(a, 3)) {
        read_on(a, e, (int)below(a, m->w.count));
    }
    note(a, e, false);
    if (!below(a, 3)) { /* in another device's name */
        SUCCEEDS(cen_global_use(m->w.global, e->block, device, stream_of(a, device)));
        device = (int)below(a, m->w.count);
    }
    SUCCEEDS(cen_global_free(m->w.global, e->block, device, stream_of(a, device)));
    *e = a->live[--a->count];
}

static void do_visit(actor *a) {
    if (a->count) {
        entry *e = &a->live[below(a, (uint64_t)a->count)];
        int device = (int)below(a, a->m->w.count);
        if (e->movable) {
            if (fix(a, e)) {
                visit(a, e, e->device, true);
                let_move(a, e);
            }
        } else if (below(a, 2)) {
            read_on(a, e, device);
            order(a, device, e->device);
        } else { /* rewritten by another device */
            order(a, e->device, device);
            visit(a, e, device, true);
            e->seed = atomic_fetch_add(&a->m->seeds, 1);
            visit(a, e, device, false);
            SUCCEEDS(cen_global_use(a->m->w.global, e->block, e->device, stream_of(a, e->device)));
            SUCCEEDS(cen_global_use(a->m->w.global, e->block, device, stream_of(a, device)));
            e->device = device;
        }
    }
}

/* Done, or refused because some stream captures. */
#define SUCCEEDS_UNLESS_CAPTURING(call)                                                            \
    do {                                                                                           \
        cen_status done = (call);                                                                  \
        HOLDS(done == CEN_OK || done == CEN_ERR_CAPTURE);                                          \
    } while (0)

static void do_defragment(actor *a) {
    cen_defragment_options o = {.size = sizeof o, .compact = below(a, 3), .wait = below(a, 2)};
    cen_defragment_report r = {0};
    o.keep_bytes = below(a, 2) ? UINT64_MAX : below(a, 32) * MIB;
    o.budget_us = below(a, 2) * 200;
    SUCCEEDS_UNLESS_CAPTURING(cen_global_defragment(a->m->w.global, &o, &r));
    a->moved += r.moved_bytes;
}

/* A block of a private pool, between the begin and the end of what would be a capture. */
static void do_capture(actor *a, int device) {
    cen_pool *pool = pool_of(&a->m->w, device);
    uint64_t id = 1 + (uint64_t)a->number;
    entry e = {.bytes = random_size(a), .seed = atomic_fetch_add(&a->m->seeds, 1)};
    e.device = device;
    if (!SUCCEEDS(cen_pool_capture_begin(pool, stream_of(a, device), id))) {
        return;
    }
    cen_status status = cen_pool_alloc(pool, e.bytes, stream_of(a, device), &e.block);
    HOLDS(status == CEN_OK || status == CEN_ERR_DEVICE_MEMORY);
    if (!status) {
        note(a, &e, true);
        visit(a, &e, device, false);
        visit(a, &e, device, true);
        note(a, &e, false);
        SUCCEEDS(cen_pool_free(pool, e.block, stream_of(a, device)));
    }
    SUCCEEDS(cen_pool_capture_end(pool, stream_of(a, device)));
    SUCCEEDS(cen_pool_capture_release(pool, id));
}

static void do_other(actor *a) {
    world *w = &a->m->w;
    int device = (int)below(a, w->count);
    uint64_t returned;
    cen_global_room room;
    switch (below(a, 7)) {
    case 0:
        SUCCEEDS_UNLESS_CAPTURING(
            cen_global_reclaim(w->global, device, below(a, 16) * MIB, below(a, 2), &returned));
        break;
    case 1:
        SUCCEEDS_UNLESS_CAPTURING(
            cen_pool_trim(pool_of(w, device), below(a, 32) * MIB, below(a, 2), &returned));
        break;
    case 4:
        do_defragment(a);
        break;
    case 5:
        do_capture(a, device);
        break;
    case 2:
        SUCCEEDS(cen_global_available(w->global, (int)below(a, w->count + 2) - 2, &room));
        a->borrows += room.borrowed_bytes > 0;
        break;
    case 3:
        SUCCEEDS(cen_global_verify(w->global));
        break;
    default:
        if (w->f->host && !w->f->is_inline) {
            SUCCEEDS(ceni_host_stream_delay(w->devices[device], stream_of(a, device),
                                            (uint32_t)below(a, 3) * 5));
        }
        break;
    }
}

static void *act(void *arg) {
    actor *a = arg;
    for (int i = 0; i < a->m->steps && !atomic_load(&a->m->wrong); i++) {
        uint64_t dice = below(a, 1000);
        if (dice < 430) {
            do_alloc(a);
        } else if (dice < 860) {
            do_free(a);
        } else if (dice < 980) {
            do_visit(a);
        } else {
            do_other(a);
        }
    }
    return NULL;
}

static void no_more(model *m) {
    const char *wrong = atomic_load(&m->wrong);
    if (wrong) {
        fail_msg("%s; the log says '%s'", wrong, suite_log_line);
    }
}

static void run(void **state, uint64_t seed, bool at_once, int steps) {
    static model m;
    m = (model){.steps = steps, .lock = PTHREAD_MUTEX_INITIALIZER, .seeds = 1};
    cen_global_options options = {.small_bytes = 3 * MIB, .allow_host = true};
    options.host_bytes = 16 * MIB;
    options.return_at_once = at_once;
    options.pool = (cen_pool_options){.size = sizeof options.pool, .driver_share = 0.5};
    options.pool.page_bytes = seed % 2 ? 0 : 2 * MIB;
    m.w = world_open(state, ROOM, &options);
    uint64_t borrows = 0, failures = 0, moved = 0;
    for (int i = 0; i < THREADS; i++) {
        actor *a = &m.actors[i];
        a->m = &m;
        a->number = i;
        a->rng = (seed * THREADS + (uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
        assert_int_equal(pthread_create(&a->thread, NULL, act, a), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(m.actors[i].thread, NULL);
        borrows += m.actors[i].borrows;
        failures += m.actors[i].failures;
        moved += m.actors[i].moved;
    }
    no_more(&m);
    settle(&m.w);
    no_mismatches(&m.w);
    assert_true(steps < ENOUGH || (borrows > 0 && failures > 0 && moved > 0)); /* it was tight */
    for (int i = 0; i < THREADS; i++) {
        while (m.actors[i].count) {
            do_free(&m.actors[i]);
        }
    }
    no_more(&m);
    settle(&m.w);
    cen_global_room all = room_of(&m.w, CEN_GLOBAL_ALL);
    assert_int_equal(all.global_bytes, 0);
    assert_int_equal(all.pending_bytes, 0);
    for (int d = 0; d < (int)m.w.count; d++) {
        assert_int_equal(stats_of(&m.w, d).blocks, 0);
        OK(cen_pool_trim(pool_of(&m.w, d), 0, true, NULL));
        assert_int_equal(stats_of(&m.w, d).reserved_bytes, 0);
    }
    world_close(&m.w);
}

/* CENOTE_TEST_STEPS, of each thread. */
static int steps_or(int usual) {
    const char *steps = getenv("CENOTE_TEST_STEPS");
    return steps ? (int)strtol(steps, NULL, 10) : usual;
}

static void chosen_pages(void **state) {
    run(state, 1, false, steps_or(ENOUGH));
}

static void small_pages(void **state) {
    run(state, 2, true, steps_or(ENOUGH));
}

/* CENOTE_TEST_SEED=n: that one, longer. */
static void a_given_seed(void **state) {
    const char *seed = getenv("CENOTE_TEST_SEED");
    if (!seed) {
        suite_skip("CENOTE_TEST_SEED is not set");
        return;
    }
    uint64_t n = strtoull(seed, NULL, 10);
    run(state, n, n % 3 == 0, steps_or(100000));
}

static const struct CMUnitTest tests[] = {
    GLOBAL_TEST(chosen_pages),
    GLOBAL_TEST(small_pages),
    GLOBAL_TEST(a_given_seed),
};
SUITE_MAIN(tests)
