/* Streams and events: order within a stream, order between streams, and what a query may say. */
#include "tests/conformance/suite.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { BUSY_NS = 100 * 1000 * 1000 }; /* long beside what a loaded machine delays a call */

typedef struct order {
    _Atomic int next;
    int seen[64];
} order;

typedef struct mark {
    order *order;
    int id;
} mark;

static void note(void *arg) {
    mark *m = arg;
    m->order->seen[atomic_fetch_add(&m->order->next, 1)] = m->id;
}

static void a_stream_keeps_its_order(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    cen_stream stream;
    OK(cen_stream_create(d, 0, &stream));
    order o = {0};
    mark marks[64];
    for (int i = 0; i < 64; i++) {
        marks[i] = (mark){&o, i};
        OK(cen_host_func(d, stream, note, &marks[i]));
    }
    OK(cen_stream_sync(d, stream));
    for (int i = 0; i < 64; i++) {
        assert_int_equal(o.seen[i], i);
    }
    OK(cen_stream_query(d, stream));
    OK(cen_stream_destroy(d, stream));
    FAILS(CEN_ERR_INVALID, cen_stream_destroy(d, 0));
}

static void later_work_sees_earlier_work(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 2, 0);
    cen_stream stream;
    OK(cen_stream_create(d, 0, &stream));
    for (int i = 1; i <= 20; i++) {
        OK(cen_fill_async(d, m.addr, (uint8_t)i, m.granule, stream));
        OK(cen_copy_async(d, m.addr + m.granule, m.addr, m.granule, stream));
    }
    OK(cen_stream_sync(d, stream));
    assert_int_equal(suite_word(d, m.addr + m.size - 4), 0x14141414);
}

static void an_event_orders_two_streams(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    mapped m = suite_map(d, 1, 0);
    cen_stream first, second;
    cen_event event;
    OK(cen_stream_create(d, 0, &first));
    OK(cen_stream_create(d, 0, &second));
    OK(cen_event_create(d, 0, &event));
    OK(cen_event_query(d, event)); /* never recorded: nothing to wait for */
    suite_spin(d, BUSY_NS, first);
    OK(cen_fill_async(d, m.addr, 1, m.size, first));
    OK(cen_event_record(d, event, first));
    if (!f->is_inline) {
        FAILS(CEN_ERR_NOT_READY, cen_event_query(d, event));
        FAILS(CEN_ERR_NOT_READY, cen_stream_query(d, first));
        OK(cen_stream_query(d, second));
    }
    OK(cen_stream_wait(d, second, event));
    OK(cen_fill_async(d, m.addr, 2, m.size, second));
    OK(cen_event_record(d, event, second)); /* the wait above keeps what it saw */
    OK(cen_event_sync(d, event));
    OK(cen_event_query(d, event));
    assert_int_equal(suite_word(d, m.addr), 0x02020202);
    OK(cen_event_destroy(d, event));
}

static void a_wait_keeps_the_record_it_saw(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, 0);
    cen_stream slow, quick, waiter;
    cen_event event;
    OK(cen_stream_create(d, 0, &slow));
    OK(cen_stream_create(d, 0, &quick));
    OK(cen_stream_create(d, 0, &waiter));
    OK(cen_event_create(d, 0, &event));
    suite_spin(d, BUSY_NS, slow);
    OK(cen_fill_async(d, m.addr, 1, m.size, slow));
    OK(cen_event_record(d, event, slow));
    OK(cen_stream_wait(d, waiter, event));
    OK(cen_fill_async(d, m.addr, 2, m.size, waiter));
    OK(cen_event_record(d, event, quick)); /* done at once; the waiter still waits for slow */
    OK(cen_event_destroy(d, event));
    OK(cen_stream_sync(d, waiter));
    OK(cen_stream_sync(d, slow));
    assert_int_equal(suite_word(d, m.addr), 0x02020202);
}

static void elapsed_time_is_measured(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    cen_stream stream;
    cen_event start, end, untimed;
    float ms = 0;
    OK(cen_stream_create(d, 0, &stream));
    OK(cen_event_create(d, CEN_EVENT_TIMING, &start));
    OK(cen_event_create(d, CEN_EVENT_TIMING, &end));
    OK(cen_event_create(d, 0, &untimed));
    OK(cen_event_record(d, start, stream));
    suite_spin(d, BUSY_NS, stream);
    OK(cen_event_record(d, end, stream));
    OK(cen_event_record(d, untimed, stream));
    OK(cen_stream_sync(d, stream));
    OK(cen_event_elapsed(d, start, end, &ms));
    assert_true(ms >= 99 && ms < 10000);
    assert_true(cen_event_elapsed(d, start, untimed, &ms) < 0);
}

static void destroyed_streams_finish(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, 0);
    cen_event event;
    OK(cen_event_create(d, 0, &event));
    for (int i = 1; i <= 8; i++) {
        cen_stream stream;
        OK(cen_stream_create(d, 0, &stream));
        suite_spin(d, BUSY_NS / 50, stream);
        OK(cen_fill_async(d, m.addr, (uint8_t)i, m.size, stream));
        OK(cen_event_record(d, event, stream));
        OK(cen_stream_destroy(d, stream));
        OK(cen_event_sync(d, event));
        assert_int_equal(suite_word(d, m.addr), 0x01010101u * (uint32_t)i);
    }
}

static void priorities_are_clamped(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    const int priorities[] = {-1000, -1, 0, 1000};
    for (size_t i = 0; i < 4; i++) {
        cen_stream stream;
        OK(cen_stream_create(d, priorities[i], &stream));
        OK(cen_stream_sync(d, stream));
        OK(cen_stream_destroy(d, stream));
    }
}

static void wrong_handles_are_refused(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("the driver dereferences them");
    }
    cen_device *d = f->device;
    cen_stream stream;
    cen_event event;
    OK(cen_stream_create(d, 0, &stream));
    OK(cen_event_create(d, 0, &event));
    OK(cen_stream_destroy(d, stream));
    OK(cen_event_destroy(d, event));
    FAILS(CEN_ERR_INVALID, cen_stream_sync(d, stream));
    FAILS(CEN_ERR_INVALID, cen_stream_destroy(d, stream));
    FAILS(CEN_ERR_INVALID, cen_event_record(d, event, 0));
    FAILS(CEN_ERR_INVALID, cen_event_destroy(d, event));
    FAILS(CEN_ERR_INVALID, cen_event_query(d, 12345));
    FAILS(CEN_ERR_INVALID, cen_event_create(d, 0x80, &event));
    cen_device *other = suite_open(f, 1, NULL);
    OK(cen_stream_create(other, 0, &stream));
    FAILS(CEN_ERR_INVALID, cen_stream_sync(d, stream));
    cen_device_close(other);
}

static void manual_events_wait_for_their_signal(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    cen_event gate, after;
    cen_stream stream;
    if (!f->host) {
        FAILS(CEN_ERR_UNSUPPORTED, cen_event_create(d, CEN_EVENT_MANUAL, &gate));
        return;
    }
    mapped m = suite_map(d, 1, 0);
    OK(cen_stream_create(d, 0, &stream));
    OK(cen_event_create(d, CEN_EVENT_MANUAL, &gate));
    OK(cen_event_create(d, 0, &after));
    for (uint32_t i = 1; i <= 3; i++) {
        OK(cen_event_record(d, gate, stream));
        FAILS(CEN_ERR_NOT_READY, cen_event_query(d, gate));
        OK(cen_stream_wait(d, stream, gate));
        OK(cen_fill_async(d, m.addr, (uint8_t)i, 4, stream));
        OK(cen_event_record(d, after, stream));
        FAILS(CEN_ERR_NOT_READY, cen_event_query(d, after));
        assert_int_equal(suite_word(d, m.addr), 0x01010101u * (i - 1));
        OK(cen_event_signal(d, gate));
        if (f->is_inline) {
            OK(cen_event_query(d, after)); /* ran within the signal */
        }
        OK(cen_event_sync(d, after));
        assert_int_equal(suite_word(d, m.addr), 0x01010101u * i);
    }
    FAILS(CEN_ERR_INVALID, cen_event_signal(d, after));
}

static void a_pending_manual_event_can_be_recorded_again(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("manual events are the host's");
    }
    cen_device *d = f->device;
    cen_event gate;
    cen_stream stream;
    OK(cen_stream_create(d, 0, &stream));
    OK(cen_event_create(d, CEN_EVENT_MANUAL, &gate));
    OK(cen_stream_wait(d, stream, gate));
    OK(cen_event_record(d, gate, stream));
    FAILS(CEN_ERR_NOT_READY, cen_stream_query(d, stream));
    OK(cen_event_signal(d, gate));
    OK(cen_stream_sync(d, stream));
}

static void closing_does_not_wait_for_signals(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("manual events are the host's");
    }
    cen_device *d = f->device;
    mapped m = suite_map(d, 1, 0);
    for (int i = 0; i < 3; i++) {
        cen_event gate;
        cen_stream stream;
        OK(cen_stream_create(d, 0, &stream));
        OK(cen_event_create(d, CEN_EVENT_MANUAL, &gate));
        OK(cen_stream_wait(d, stream, gate));
        OK(cen_fill_async(d, m.addr + 64 * (cen_addr)i, 9, 4, stream));
        if (i == 1) {
            OK(cen_event_destroy(d, gate));
        } else if (i == 2) {
            OK(cen_stream_destroy(d, stream));
        }
    }
}

static void a_chain_of_streams_runs_once_released(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("manual events are the host's");
    }
    cen_device *d = f->device, *other = suite_open(f, 1, NULL);
    cen_event gate, links[6];
    order o = {0};
    mark marks[6];
    OK(cen_event_create(d, CEN_EVENT_MANUAL, &gate));
    for (int i = 0; i < 6; i++) { /* on both devices in turn */
        cen_device *on = i % 2 ? other : d;
        cen_stream stream;
        OK(cen_stream_create(on, 0, &stream));
        OK(cen_event_create(on, 0, &links[i]));
        OK(cen_stream_wait(on, stream, i ? links[i - 1] : gate));
        marks[i] = (mark){&o, i};
        OK(cen_host_func(on, stream, note, &marks[i]));
        OK(cen_event_record(on, links[i], stream));
    }
    assert_int_equal(o.next, 0);
    OK(cen_event_signal(d, gate));
    OK(cen_event_sync(other, links[5]));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(o.seen[i], i);
    }
    cen_device_close(other);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(a_stream_keeps_its_order),
    SUITE_TEST(later_work_sees_earlier_work),
    SUITE_TEST(an_event_orders_two_streams),
    SUITE_TEST(a_wait_keeps_the_record_it_saw),
    SUITE_TEST(elapsed_time_is_measured),
    SUITE_TEST(destroyed_streams_finish),
    SUITE_TEST(priorities_are_clamped),
    SUITE_TEST(wrong_handles_are_refused),
    SUITE_TEST(manual_events_wait_for_their_signal),
    SUITE_TEST(a_pending_manual_event_can_be_recorded_again),
    SUITE_TEST(closing_does_not_wait_for_signals),
    SUITE_TEST(a_chain_of_streams_runs_once_released),
};
SUITE_MAIN(tests)
