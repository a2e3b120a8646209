/* The probe of a GPU, on the host backend, whose kernels are the twins: which rows come of it, and
 * that each call that fails is a reason, and no more. No time is judged. */
#include "cenote/log.h"
#include "dev/dev.h"
#include "probe/probe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cen_device *open_host(int ordinal, uint64_t capacity, uint32_t peer_group) {
    cen_host_options options = {
        .size = sizeof options, .devices = 2, .capacity = capacity, .peer_group = peer_group};
    cen_device *device = NULL;
    assert_int_equal(cen_device_open_host(ordinal, &options, &device), CEN_OK);
    return device;
}

/* The draft, looked at before it is taken. */
static ceni_draft measure(cen_device *const *devices, size_t count, size_t self) {
    ceni_draft draft = {0};
    assert_int_equal(ceni_probe_device(devices, count, self, true, &draft), CEN_OK);
    return draft;
}

static const cen_probe_level *level(const ceni_draft *draft, const char *name) {
    for (size_t i = 0; i < draft->device.level_count; i++) {
        if (!strcmp(draft->levels[i].level, name)) {
            return &draft->levels[i];
        }
    }
    fail_msg("no level %s", name);
    return NULL;
}

static bool skips(const ceni_draft *draft, const char *name, const char *words) {
    for (size_t i = 0; i < draft->device.skipped_count; i++) {
        if (!strcmp(draft->skipped[i].level, name) && strstr(draft->skipped[i].reason, words)) {
            return true;
        }
    }
    return false;
}

static size_t transfers(const ceni_draft *draft, const char *name, const char *access) {
    size_t count = 0;
    for (size_t i = 0; i < draft->device.transfer_count; i++) {
        const cen_probe_transfer *t = &draft->transfers[i];
        count += !strcmp(t->level, name) && !strcmp(t->access, access);
    }
    return count;
}

static void every_level_is_measured(void **state) {
    static const char *const levels[] = {"registers", "shared", "L1", "L2", "DRAM", "link", "peer"};
    static const char *const accesses[] = {"read", "write", "copy", "triad"};
    static const char *const copies[] = {"H2D pinned",   "D2H pinned",     "both pinned",
                                         "H2D pageable", "D2H registered", "H2D registered"};
    cen_device *devices[] = {open_host(0, 1 << 26, 0), open_host(1, 1 << 26, 0)};
    ceni_draft draft = measure(devices, 2, 1);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        assert_true(level(&draft, levels[i])->latency_ns > 0);
        assert_true(level(&draft, levels[i])->latency_cycles > 0);
        assert_true(level(&draft, levels[i])->bandwidth_gbps > 0);
        assert_true(level(&draft, levels[i])->latency_spread.low > 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(transfers(&draft, "L2", accesses[i]), 1);
        assert_int_equal(transfers(&draft, "DRAM", accesses[i]), 1);
    }
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        assert_int_equal(transfers(&draft, "link", copies[i]), 4); /* sizes */
    }
    assert_int_equal(transfers(&draft, "peer", "to 0"), 1);
    assert_int_equal(transfers(&draft, "peer", "to 0, both ways"), 1);
    assert_int_equal(level(&draft, "L2")->capacity_bytes, 1 << 20);
    assert_int_equal(level(&draft, "DRAM")->capacity_bytes, 1 << 26);
    assert_true(draft.device.step_count > 5 && draft.device.rate_count == 1);
    assert_true(skips(&draft, "unified memory", "host has no unified memory"));
    assert_true(skips(&draft, "DRAM", "the device does not tell its clock"));
    assert_true(skips(&draft, "DRAM", "energy: ")); /* NVML is not there, or knows no such device */
    assert_true(skips(&draft, "link", "share of the theoretical peak: "));
    ceni_draft_free(&draft);
    /* All that was taken was given back. */
    for (int i = 0; i < 2; i++) {
        uint64_t free_bytes = 0, total = 0;
        assert_int_equal(cen_device_mem_info(devices[i], &free_bytes, &total), CEN_OK);
        assert_int_equal(free_bytes, total);
        cen_device_close(devices[i]);
    }
}

static void one_device_has_no_peer(void **state) {
    cen_device *device = open_host(0, 1 << 26, 0);
    ceni_draft draft = measure(&device, 1, 0);
    assert_true(skips(&draft, "peer", "there is one device"));
    ceni_draft_free(&draft);
    cen_device_close(device);
}

static void peers_may_be_out_of_reach(void **state) {
    cen_device *devices[] = {open_host(0, 1 << 26, 1), open_host(1, 1 << 26, 1), NULL};
    ceni_draft draft = measure(devices, 3, 0);
    assert_true(skips(&draft, "peer", "device 1 cannot be reached from here"));
    assert_true(skips(&draft, "peer", "device 2 could not be opened"));
    ceni_draft_free(&draft);
    cen_device_close(devices[0]);
    cen_device_close(devices[1]);
}

static void full_devices_say_so(void **state) {
    cen_device *device = open_host(0, 1 << 22, 0);
    ceni_draft draft = measure(&device, 1, 0);
    assert_true(skips(&draft, "device", "all that is measured: 4 MiB are free; 8 are needed"));
    assert_true(level(&draft, "L2")->capacity_bytes > 0);
    ceni_draft_free(&draft);
    cen_device_close(device);
}

/* The thread sanitizer takes some twenty times as long, and gets a third. */
#if defined(__SANITIZE_THREAD__)
enum { FIRST_CALL = 16, CALLS_APART = 16 };
#else
enum { FIRST_CALL = 1, CALLS_APART = 15 };
#endif

/* Each operation fails from its n-th call on: a reason names it, the rest is measured. */
static void failures_are_reasons(void **state) {
    static const enum ceni_dev_op ops[] = {CENI_OP_props,
                                           CENI_OP_limits,
                                           CENI_OP_mem_info,
                                           CENI_OP_segment_alloc,
                                           CENI_OP_stream_create,
                                           CENI_OP_stream_sync,
                                           CENI_OP_event_create,
                                           CENI_OP_event_record,
                                           CENI_OP_event_elapsed,
                                           CENI_OP_copy,
                                           CENI_OP_fill,
                                           CENI_OP_launch,
                                           CENI_OP_pinned_alloc,
                                           CENI_OP_pinned_register,
                                           CENI_OP_pinned_unregister,
                                           CENI_OP_peer_enable,
                                           CENI_OP_copy_peer,
                                           CENI_OP_peer_can_access};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        for (int64_t n = FIRST_CALL; n <= 31; n += CALLS_APART) {
            cen_device *devices[] = {open_host(0, 1 << 26, 0), open_host(1, 1 << 26, 0)};
            uint64_t before = devices[0]->stats[ops[i]].failures;
            ceni_dev_fault(devices[0], ops[i], n, true);
            ceni_draft draft = measure(devices, 2, 0);
            bool failed = devices[0]->stats[ops[i]].failures > before, named = false;
            for (size_t k = 0; k < draft.device.skipped_count; k++) {
                named = named || strstr(draft.skipped[k].reason, "failure injected");
            }
            assert_int_equal(failed, named);
            assert_true(failed || n > 1);
            ceni_draft_free(&draft);
            cen_device_close(devices[0]);
            cen_device_close(devices[1]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_is_measured),   cmocka_unit_test(one_device_has_no_peer),
        cmocka_unit_test(peers_may_be_out_of_reach), cmocka_unit_test(full_devices_say_so),
        cmocka_unit_test(failures_are_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
