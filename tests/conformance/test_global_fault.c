/* Every call that the global pool and its local pools make of any device, and every piece of host
 * memory they ask for, fails once, and then for good: whatever they answer, their invariants hold,
 * no two blocks share memory, contents stay, and in the end everything goes back.
 *
 * One program is run again and again; the n-th call fails, for n from 1 on until the program does
 * not come that far. */
#include "tests/conformance/global_suite.h"

#include "tests/conformance/faults.h"
#include "dev/capture.h"
#include "dev/host/host.h"

enum { MOST = 64 };

#define ROOM ((uint64_t)24 * MIB)

typedef struct item {
    void *block;
    size_t bytes;
    uint32_t seed;
    int device;
} item;

typedef struct trial {
    world w;
    faults faults;
    item items[MOST];
    int count;
} trial;

/* A few words of each page: quick, since there are thousands of runs. */
static void mark(trial *t, const item *it, bool check_it) {
    node *n = &t->w.nodes[it->device];
    uint64_t counter = address(n->mismatches), words = it->bytes < 64 ? it->bytes / 4 : 16;
    for (size_t at = 0; at < it->bytes; at += t->w.granule) {
        cen_addr addr = address(it->block) + at;
        uint32_t seed = it->seed * 100 + (uint32_t)(at / MIB);
        void *args[] = {&addr, &seed, &words, &counter};
        const cen_launch shape = {{1, 1, 1}, {32, 1, 1}, 0};
        OK(cen_kernel_launch(n->device, check_it ? "cen_check_u32" : "cen_pattern_u32", &shape,
                             args, check_it ? 4 : 3, n->streams[0]));
    }
}

static void verify(trial *t) {
    if (cen_global_verify(t->w.global)) {
        atomic_store(&t->faults.arm->left, 0);
        fail_msg("%s", suite_log_line);
    }
}

static void took(trial *t, cen_status status, void *block, size_t bytes, int device) {
    assert_true(status <= 0 && (status == CEN_OK) == (block != NULL));
    pause_faults(&t->faults);
    verify(t);
    for (int i = 0; block && i < t->count; i++) {
        cen_addr a = address(t->items[i].block), b = address(block);
        assert_true(b + bytes <= a || a + t->items[i].bytes <= b);
    }
    if (block) {
        assert_true(t->count < MOST);
        item it = {block, bytes, (uint32_t)t->count + 1, device};
        mark(t, &it, false);
        t->items[t->count++] = it;
    }
    resume_faults(&t->faults);
}

static void take(trial *t, size_t bytes, int device, cen_placement placement) {
    void *block = NULL;
    cen_global_report report = {.requested_bytes = 12345};
    cen_status status = place(&t->w, bytes, device, placement, &block, &report);
    assert_int_equal(report.requested_bytes, status ? 12345 : bytes);
    took(t, status, block, bytes, device);
}

static void take_local(trial *t, size_t bytes, int device) {
    void *block = NULL;
    cen_status status =
        cen_pool_alloc(pool_of(&t->w, device), bytes, t->w.nodes[device].streams[0], &block);
    took(t, status, block, bytes, device);
}

/* Frees item i, if it is there, on a device, behind its own and another's use. */
static void drop_item(trial *t, int i, int device, int user) {
    if (i < 0 || i >= t->count || !t->items[i].block) {
        return;
    }
    item *it = &t->items[i];
    pause_faults(&t->faults);
    mark(t, it, true);
    resume_faults(&t->faults);
    const node *nodes = t->w.nodes;
    if ((device != it->device &&
         cen_global_use(t->w.global, it->block, it->device, nodes[it->device].streams[0])) ||
        cen_global_use(t->w.global, it->block, user, nodes[user].streams[1])) {
        return; /* not noted: cannot be freed there */
    }
    if (!cen_global_free(t->w.global, it->block, device, nodes[device].streams[0])) {
        it->block = NULL;
        it->bytes = 0;
    }
    pause_faults(&t->faults);
    verify(t);
    resume_faults(&t->faults);
}

static void placements(trial *t) {
    int first = t->count;
    take(t, 3 * MIB, 0, CEN_PLACE_LOCAL);
    take(t, 4 * MIB, 0, CEN_PLACE_PEER);
    take(t, 8 * MIB, 1, CEN_PLACE_STRIPED);
    take(t, 5 * MIB, 0, CEN_PLACE_HOST);
    take(t, 300, 1, CEN_PLACE_AUTO);
    drop_item(t, first + 2, 0, 1);
    drop_item(t, first + 1, 1, 0);
    take(t, 8 * MIB, 1, CEN_PLACE_STRIPED); /* a kept one */
    take(t, 6 * MIB, 1, CEN_PLACE_WEIGHTED);
    for (int i = first; i < t->count; i++) {
        drop_item(t, i, i % 2, 1);
    }
    take(t, 40 * MIB, 0, CEN_PLACE_AUTO); /* over both */
    drop_item(t, t->count - 1, 0, 0);
}

static void borrowing(trial *t) {
    int first = t->count;
    for (int i = 0; i < 8; i++) {
        take_local(t, 4 * MIB, 0);
    }
    for (int i = first + 5; i < first + 8; i++) {
        drop_item(t, i, i % 2, 0);
    }
    uint64_t returned;
    cen_global_room room;
    (void)cen_global_reclaim(t->w.global, 1, 4 * MIB, true, &returned);
    (void)cen_global_available(t->w.global, CEN_GLOBAL_ALL, &room);
    take_local(t, 4 * MIB, 0);
    take(t, 16 * MIB, 1, CEN_PLACE_LOCAL); /* takes back */
    for (int i = 0; i < 5; i++) {
        take_local(t, 4 * MIB, 1);
    }
    cen_defragment_options options = {.size = sizeof options, .wait = true};
    (void)cen_global_defragment(t->w.global, &options, NULL);
    int home;
    cen_global_report report;
    for (int i = first; i < t->count; i++) {
        if (t->items[i].block) {
            (void)cen_global_where(t->w.global, t->items[i].block, &report);
            (void)cen_global_home(t->w.global, t->items[i].block, &home);
        }
        drop_item(t, i, 1, 1);
    }
}

/* Everything works again: all can be freed, and all memory returns. */
static void clean_up(trial *t) {
    ceni_fault_set(t->faults.arm, 0, false);
    for (int i = 0; i < t->count; i++) {
        item *it = &t->items[i];
        if (it->block) {
            mark(t, it, true);
            drop(&t->w, it->block, it->device, 0);
        }
    }
    settle(&t->w);
    no_mismatches(&t->w);
    verify(t);
    cen_global_room room = room_of(&t->w, CEN_GLOBAL_ALL);
    assert_int_equal(room.global_bytes, 0);
    assert_int_equal(room.pending_bytes, 0);
    for (int d = 0; d < (int)t->w.count; d++) {
        OK(cen_pool_trim(pool_of(&t->w, d), 0, true, NULL));
        assert_int_equal(stats_of(&t->w, d).blocks, 0);
        assert_int_equal(stats_of(&t->w, d).reserved_bytes, 0);
    }
    OK(cen_global_destroy(t->w.global));
    t->w.global = NULL;
}

/* False: the call that was to fail did not come. */
static bool attempt(void *base, ceni_fault_arm *arm, int64_t n, bool sticky) {
    static trial t;
    t = (trial){.w = *(world *)base, .faults = {.arm = arm}};
    cen_global_options options = {
        .size = sizeof options, .small_bytes = 64 * KIB, .allow_host = true, .host_bytes = 8 * MIB};
    options.pool = (cen_pool_options){.size = sizeof options.pool, .page_bytes = 2 * MIB};
    options.return_at_once = n % 2;
    ceni_fault_set(arm, n, sticky);
    if (!cen_global_create(t.w.devices, t.w.count, &options, &t.w.global)) {
        placements(&t);
        borrowing(&t);
    } else {
        assert_null(t.w.global);
    }
    bool came = faults_came(&t.faults, sticky);
    if (t.w.global) {
        clean_up(&t);
    }
    ceni_fault_set(arm, 0, false);
    for (size_t d = 0; d < t.w.count; d++) {
        assert_int_equal(suite_free_bytes(t.w.devices[d]), t.w.nodes[d].free_at_start);
    }
    return came;
}

/* `once`: with inline streams only, which are quick. */
static world start(void **state, bool once) {
    const fixture *f = *state;
    if (!f->host || f->devices > 2 || (once && !f->is_inline)) {
        suite_skip("a failing call is injected above the backend: two devices of the host show it");
    }
    world w = world_open(state, ROOM, NULL);
    OK(cen_global_destroy(w.global));
    w.global = NULL;
    return w;
}

static void each_op(void **state, bool once, const enum ceni_dev_op *ops, size_t count) {
    world w = start(state, once);
    for (size_t i = 0; i < count; i++) {
        for (size_t d = 0; d < w.count; d++) {
            each_fault(attempt, &w, &w.devices[d]->faults[ops[i]], 20000);
        }
    }
    close_devices(&w);
}

static void memory_calls_fail(void **state) {
    const enum ceni_dev_op ops[] = {
        CENI_OP_va_reserve, CENI_OP_va_free,     CENI_OP_page_create,     CENI_OP_page_release,
        CENI_OP_page_map,   CENI_OP_page_unmap,  CENI_OP_page_access,     CENI_OP_mem_info,
        CENI_OP_peer_rank,  CENI_OP_peer_enable, CENI_OP_peer_can_access,
    };
    each_op(state, true, ops, sizeof ops / sizeof *ops);
}

static void ordering_calls_fail(void **state) {
    const enum ceni_dev_op ops[] = {
        CENI_OP_event_create, CENI_OP_event_destroy, CENI_OP_event_record,     CENI_OP_event_query,
        CENI_OP_event_sync,   CENI_OP_stream_wait,   CENI_OP_stream_capturing,
    };
    each_op(state, false, ops, sizeof ops / sizeof *ops);
}

static void host_memory_fails(void **state) {
    world w = start(state, true);
    each_fault(attempt, &w, &ceni_fault_points[CENI_FAULT_HOST_MEMORY], 20000);
    close_devices(&w);
}

static const struct CMUnitTest tests[] = {
    GLOBAL_TEST(memory_calls_fail),
    GLOBAL_TEST(ordering_calls_fail),
    GLOBAL_TEST(host_memory_fails),
};
SUITE_MAIN(tests)
