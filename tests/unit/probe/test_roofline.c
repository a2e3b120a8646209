/* Work against ceilings: the time, what bounds it, and where the ceilings come from. */
#include "cenote/log.h"
#include "cenote/roofline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

static cen_probe *probe;

static int load(void **state) {
    return cen_probe_load(TEST_DATA "/probe/gpu.json", &probe);
}

static int unload(void **state) {
    cen_probe_free(probe);
    return 0;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static void the_slower_ceiling_decides(void **state) {
    /* The ridge of 100 Tflop/s and 2 TB/s is at 50 operations a byte. */
    for (int step = 0; step < 14; step++) {
        double intensity = pow(1.7, step);
        cen_traffic traffic = {.bytes = 1e9, .bandwidth = 2e12};
        cen_work work = {.size = sizeof work,
                         .flops = intensity * 1e9,
                         .peak_flops = 1e14,
                         .traffic = &traffic,
                         .traffic_count = 1};
        cen_roofline_result r;
        assert_int_equal(cen_roofline_judge(&work, &r), CEN_OK);
        assert_int_equal(r.bound, intensity > 50 ? CEN_BOUND_COMPUTE : CEN_BOUND_MEMORY);
        assert_true(near(r.seconds, intensity > 50 ? intensity * 1e9 / 1e14 : 5e-4));
        assert_true(near(r.levels[0].ridge, 50) && near(r.levels[0].intensity, intensity));
        assert_true(r.latency_seconds == 0);
        assert_string_equal(r.levels[0].level, "memory");
    }
}

static void few_bytes_wait_for_latency(void **state) {
    /* 2 TB/s at 500 ns keep 1 MB in flight. */
    for (int step = 0; step < 13; step++) {
        double bytes = 1e3 * pow(3, step);
        cen_traffic traffic = {.bytes = bytes, .bandwidth = 2e12, .latency_seconds = 5e-7};
        cen_work work = {.size = sizeof work, .traffic = &traffic, .traffic_count = 1};
        cen_roofline_result r;
        assert_int_equal(cen_roofline_judge(&work, &r), CEN_OK);
        assert_int_equal(r.bound, bytes < 1e6 ? CEN_BOUND_LATENCY : CEN_BOUND_MEMORY);
        assert_true(near(r.seconds, bytes < 1e6 ? 5e-7 : bytes / 2e12));
        assert_true(r.peak_flops == 0 && r.levels[0].ridge == 0);
    }
}

static void ceilings_come_from_the_probe(void **state) {
    const cen_traffic traffic[] = {{.level = "L2", .bytes = 6e10}, {.bytes = 1e8}};
    cen_work work = {.size = sizeof work,
                     .flops = 1e12,
                     .type = CEN_BF16,
                     .traffic = traffic,
                     .traffic_count = 2,
                     .device = cen_probe_get_device(probe, 0)};
    cen_roofline_result r;
    assert_int_equal(cen_roofline_judge(&work, &r), CEN_OK);
    assert_int_equal(r.bound, CEN_BOUND_MEMORY);
    assert_int_equal(r.level, 0);
    assert_true(near(r.seconds, 6e10 / 1e13) && near(r.compute_seconds, 1e12 / 6.73e14));
    assert_string_equal(r.levels[1].level, "HBM");
    assert_true(near(r.levels[1].seconds, 1e8 / 3.9e12) && near(r.latency_seconds, 420e-9));
    work.peak_flops = 1e12; /* what is given stands before what was measured */
    assert_int_equal(cen_roofline_judge(&work, &r), CEN_OK);
    assert_true(r.bound == CEN_BOUND_COMPUTE && near(r.seconds, 1));
}

static void fails(cen_work work, cen_status status, const char *words) {
    cen_roofline_result r = {.seconds = 77};
    assert_int_equal(cen_roofline_judge(&work, &r), status);
    assert_non_null(strstr(cen_log_last_error(), words));
    assert_true(r.seconds == 77);
}

static void refuses_what_is_off(void **state) {
    cen_traffic traffic = {.bytes = 1};
    const cen_work good = {.size = sizeof good,
                           .traffic = &traffic,
                           .traffic_count = 1,
                           .device = cen_probe_get_device(probe, 0)};
    cen_work work = good;
    cen_roofline_result r;
    assert_int_equal(cen_roofline_judge(&good, &r), CEN_OK);
    assert_int_equal(cen_roofline_judge(&good, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_roofline_judge(NULL, &r), CEN_ERR_INVALID);
    work.size = 0;
    fails(work, CEN_ERR_INVALID, "work.size is 0; ");
    work = good, work.flops = -1;
    fails(work, CEN_ERR_INVALID, "flops is -1");
    work = good, work.flops = INFINITY;
    fails(work, CEN_ERR_INVALID, "flops is inf");
    work = good, work.traffic_count = 0;
    fails(work, CEN_ERR_INVALID, "0 levels");
    work = good, work.traffic_count = CEN_ROOFLINE_LEVELS + 1;
    fails(work, CEN_ERR_INVALID, "9 levels");
    work = good, work.flops = 1, work.type = CEN_FP8_E4M3;
    fails(work, CEN_ERR_NOT_FOUND, "no rate of fp8_e4m3");
    work = good, work.device = NULL;
    fails(work, CEN_ERR_NOT_FOUND, "no bandwidth of the main memory");
    traffic.level = "L3";
    fails(good, CEN_ERR_NOT_FOUND, "no bandwidth of L3");
    traffic.bytes = 0;
    fails(good, CEN_ERR_INVALID, "traffic[0]: bytes is 0, ");
    traffic.bytes = NAN;
    fails(good, CEN_ERR_INVALID, "traffic[0]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slower_ceiling_decides),
        cmocka_unit_test(few_bytes_wait_for_latency),
        cmocka_unit_test(ceilings_come_from_the_probe),
        cmocka_unit_test(refuses_what_is_off),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
