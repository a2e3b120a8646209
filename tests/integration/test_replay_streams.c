/* Made-up programs on several streams, with blocks that side streams still use when they are freed,
 * replayed on streams that run at once and on threads that run late. Two checks: by address and
 * physical memory (overlap.h), and by content: each block is filled with a pattern of its own by
 * its stream, and the last use of it, on whichever stream, must find the pattern whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "cenote/cenote.h"
#include "cli/replay.h"
#include "tests/integration/history.h"
#include "tests/integration/overlap.h"

enum { STREAMS = 5, LIVE = 120, STEPS = 800, PAGE = 4096 };

static _Alignas(PAGE) uint8_t counters[PAGE]; /* registered with the device: a kernel counts here */

/* The fill of a block, for streams that use it later. */
typedef struct filled {
    uint64_t block;
    cen_event event;
} filled;

typedef struct watcher {
    overlap_model model;
    filled filled[LIVE];
    size_t acts, checks;
    bool registered;
} watcher;

static filled *filled_of(watcher *w, uint64_t block) {
    for (size_t i = 0; i < LIVE; i++) {
        if (w->filled[i].block == block) {
            return &w->filled[i];
        }
    }
    fail_msg("no place for a block");
    return NULL;
}

static void launch(const replay_call *call, const char *name, size_t count) {
    uint64_t addr = call->block, words = call->size / 4, mismatches = (uintptr_t)counters;
    uint32_t seed = (uint32_t)(call->block >> 9) ^ (uint32_t)call->size;
    void *args[] = {&addr, &seed, &words, &mismatches};
    const cen_launch shape = {{1, 1, 1}, {1, 1, 1}, 0};
    assert_int_equal(cen_kernel_launch(call->device, name, &shape, args, count, call->stream),
                     CEN_OK);
}

static void fill(watcher *w, const replay_call *call) {
    filled *f = filled_of(w, 0);
    f->block = call->block;
    launch(call, "cen_pattern_u32", 3);
    assert_int_equal(cen_event_create(call->device, 0, &f->event), CEN_OK);
    assert_int_equal(cen_event_record(call->device, f->event, call->stream), CEN_OK);
}

/* The last use, ordered behind the fill as a program would order it. */
static void check(watcher *w, const replay_call *call) {
    filled *f = filled_of(w, call->block);
    assert_int_equal(cen_stream_wait(call->device, call->stream, f->event), CEN_OK);
    assert_int_equal(cen_event_destroy(call->device, f->event), CEN_OK);
    f->block = 0;
    launch(call, "cen_check_u32", 4);
    w->checks++;
}

static void watch(void *arg, const replay_call *call) {
    watcher *w = arg;
    if (!w->registered) {
        memset(counters, 0, sizeof counters);
        assert_int_equal(cen_pinned_register(call->device, counters, sizeof counters), CEN_OK);
        w->registered = true;
    }
    switch (call->act) {
    case REPLAY_ALLOCATED:
        overlap_begin(&w->model, call->block, call->size);
        fill(w, call);
        break;
    case REPLAY_FREEING:
        check(w, call);
        break;
    case REPLAY_ENDED:
        overlap_end(&w->model, call->block);
        break;
    }
    if (++w->acts % 100 == 0) {
        overlap_look(&w->model);
    }
}

typedef struct made_block {
    uint64_t addr, size, stream;
    int in_use; /* steps until a requested free is complete; -1: not freed */
} made_block;

static uint64_t some_size(uint64_t *random) {
    switch (history_random(random, 4)) {
    case 0:
        return 1 + history_random(random, 4096);
    case 1:
        return 1 + history_random(random, 512 << 10);
    default:
        return 1 + history_random(random, 6 << 20);
    }
}

/* Frees a block at once, or asks for it while a stream still uses it for some steps. */
static void let_go(history *h, made_block *b, uint64_t *random) {
    if (history_random(random, 2)) {
        history_free(h, b->addr, b->size, b->stream);
        b->size = 0;
    } else {
        history_add(h, CEN_ACTION_FREE_REQUESTED, b->addr, b->size, b->stream);
        b->in_use = 1 + (int)history_random(random, 30);
    }
}

static history make(uint64_t seed) {
    history h = {.time_us = 1000};
    made_block blocks[LIVE] = {{0}};
    uint64_t random = seed * 0x9E3779B97F4A7C15u + 1;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LIVE; i++) {
            made_block *b = &blocks[i];
            if (b->size && b->in_use > 0 && --b->in_use == 0) {
                history_add(&h, CEN_ACTION_FREE_COMPLETED, b->addr, b->size, b->stream);
                b->size = 0;
            }
        }
        made_block *b = &blocks[history_random(&random, LIVE)];
        if (b->size && b->in_use < 0) {
            let_go(&h, b, &random);
        } else if (!b->size) {
            uint64_t slot = (uint64_t)(b - blocks) + 1;
            *b = (made_block){slot << 30, some_size(&random), history_random(&random, STREAMS), -1};
            history_add(&h, CEN_ACTION_ALLOC, b->addr, b->size, b->stream);
        }
    }
    return h;
}

static replay_result play(const history *h, replay_options options) {
    watcher w = {0};
    cen_snapshot_device d = history_device(h);
    replay_recorded r;
    replay_result result;
    assert_int_equal(replay_examine(&d, &r), CEN_OK);
    options.observe = watch;
    options.observe_arg = &w;
    assert_int_equal(replay_run(&d, &r, &options, &result), CEN_OK);
    uint64_t mismatches;
    memcpy(&mismatches, counters, sizeof mismatches);
    if (!overlap_fine(&w.model)) {
        overlap_print(&w.model, "made up");
        fail();
    }
    assert_int_equal(mismatches, 0);
    assert_true(result.cap.fit || (w.checks > 0 && w.model.looked_at > 0));
    free(w.model.blocks);
    return result;
}

static void streams_that_run_at_once(void **state) {
    for (uint64_t seed = 1; seed <= 3; seed++) {
        history h = make(seed);
        replay_result all = play(&h, (replay_options){0});
        play(&h, (replay_options){.page_bytes = 2u << 20});
        play(&h, (replay_options){.page_bytes = 8u << 20});
        /* The pool's last rung waits for streams: behind gates that are closed, it must not. */
        for (uint64_t part = 3; part <= 8; part += 2) {
            uint64_t cap = all.requested_peak_bytes / 8 * part;
            replay_result r = play(&h, (replay_options){.cap_bytes = cap});
            assert_true(part > 7 || r.cap.fit == REPLAY_LACKS_SERVED);
        }
        free(h.events);
    }
}

static void streams_that_run_late(void **state) {
    for (uint64_t seed = 11; seed <= 12; seed++) {
        history h = make(seed);
        play(&h, (replay_options){.stream_delay_us = 200});
        play(&h, (replay_options){.stream_delay_us = 200, .page_bytes = 2u << 20});
        free(h.events);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_that_run_at_once),
        cmocka_unit_test(streams_that_run_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
