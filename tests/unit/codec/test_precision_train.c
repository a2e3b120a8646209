/* Training, on the host's device: a network whose FP16 gradients become 0 learns nothing without a
 * scale and all with one, and moments of 8 bits lead where those of 32 do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/half.h"
#include "cenote/precision.h"
#include "dev/dev.h"

#define OK(call) assert_int_equal((call), CEN_OK)

/* y(t) = UNIT * network(t): one input, HIDDEN tanh, one output. The task is a damped oscillation
 * that is measured in units of which it has few, as physical quantities are. */
#define UNIT 3e-4

enum { SAMPLES = 64, HIDDEN = 16, PARAMS = 3 * HIDDEN + 1 };

static uint64_t random_state;

static double uniform(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static double wanted(double t) {
    return UNIT * exp(-t) * sin(5 * t);
}

static void parameters(float *p) {
    random_state = 11;
    for (int i = 0; i < PARAMS; i++) {
        p[i] = (float)(2 * uniform() - 1) * (i < HIDDEN ? 4.0f : i < 2 * HIDDEN ? 2.0f : 0.5f);
    }
    p[PARAMS - 1] = 0;
}

static float half(double x) {
    return ceni_float_of_f16(ceni_f16_of_float((float)x));
}

/* The mean squared error. `gradient`, times `scale`, is made as by a framework in FP16: what flows
 * back is of FP16, and the sums are rounded to it. */
static double run(const float *p, double scale, float *gradient) {
    double loss = 0, sum[PARAMS] = {0};
    for (int s = 0; s < SAMPLES; s++) {
        double t = 2.0 * s / SAMPLES, h[HIDDEN], out = p[PARAMS - 1];
        for (int i = 0; i < HIDDEN; i++) {
            h[i] = tanh(p[i] * t + p[HIDDEN + i]);
            out += p[2 * HIDDEN + i] * h[i];
        }
        double error = UNIT * out - wanted(t);
        loss += error * error / SAMPLES;
        double back = half(2 * error / SAMPLES * UNIT * scale);
        for (int i = 0; i < HIDDEN; i++) {
            double inner = half(back * p[2 * HIDDEN + i] * (1 - h[i] * h[i]));
            sum[i] += inner * t;
            sum[HIDDEN + i] += inner;
            sum[2 * HIDDEN + i] += back * h[i];
        }
        sum[PARAMS - 1] += back;
    }
    for (int i = 0; i < PARAMS; i++) {
        gradient[i] = (float)sum[i];
    }
    return loss;
}

/* ---- on the device ---- */

typedef struct trainer {
    cen_device *device;
    cen_addr base, clock, scaler, moments, params, gradients;
    cen_adamw_tensor tensor;
} trainer;

enum { PART = 4096 };

static trainer trainer_open(const float *p) {
    const cen_host_options options = {.size = sizeof options, .inline_streams = true};
    trainer t;
    ceni_page page;
    OK(cen_device_open_host(0, &options, &t.device));
    uint64_t size = t.device->granularity;
    ceni_grant grant = {t.device, CENI_ACCESS_READ_WRITE};
    OK(ceni_dev_va_reserve(t.device, size, 0, &t.base));
    OK(ceni_dev_page_create(t.device, size, 0, &page));
    OK(ceni_dev_page_map(t.device, t.base, size, page));
    OK(ceni_dev_page_access(t.device, t.base, size, 1, &grant, 1));
    t.clock = t.base;
    t.scaler = t.base + PART;
    t.moments = t.base + 2 * PART;
    t.params = t.base + 3 * PART;
    t.gradients = t.base + 4 * PART;
    t.tensor.parameter = (cen_matrix){t.params, 1, PARAMS, PARAMS, CEN_FP32};
    t.tensor.gradient = (cen_matrix){t.gradients, 1, PARAMS, PARAMS, CEN_FP16};
    t.tensor.master = (cen_matrix){0};
    t.tensor.moments = t.moments;
    OK(cen_fill_async(t.device, t.base, 0, 5 * PART, 0));
    OK(cen_copy_async(t.device, t.params, (uintptr_t)p, PARAMS * sizeof *p, 0));
    return t;
}

/* One step with gradients of FP16; p becomes the parameters after it. */
static void trainer_step(trainer *t, const cen_adamw_options *o, const cen_scaler_options *scaling,
                         const float *gradient, float *p) {
    uint16_t halves[PARAMS];
    for (int i = 0; i < PARAMS; i++) {
        halves[i] = ceni_f16_of_float(gradient[i]);
    }
    OK(cen_copy_async(t->device, t->gradients, (uintptr_t)halves, sizeof halves, 0));
    OK(cen_scaler_check_async(t->device, t->scaler, &t->tensor.gradient, 1, false, 0));
    OK(cen_adamw_begin_async(t->device, o, t->clock, t->scaler, true, 0));
    OK(cen_adamw_step_async(t->device, o, t->clock, &t->tensor, 0));
    OK(cen_scaler_update_async(t->device, scaling, t->scaler, 1, 0));
    OK(cen_copy_async(t->device, (uintptr_t)p, t->params, PARAMS * sizeof *p, 0));
    OK(cen_stream_sync(t->device, 0));
}

typedef struct outcome {
    double first, last;
    float p[PARAMS];
    cen_scaler_report report;
} outcome;

static const cen_adamw_options options = {.rate = 0.02, .epsilon = 1e-14};

static outcome train(const cen_scaler_options *scaling, int steps) {
    outcome r;
    float gradient[PARAMS];
    parameters(r.p);
    trainer t = trainer_open(r.p);
    OK(cen_scaler_init(t.device, scaling, t.scaler, &t.tensor.gradient, 1, 0));
    r.first = run(r.p, 1, gradient);
    for (int i = 0; i < steps; i++) {
        OK(cen_scaler_read(t.device, t.scaler, 1, 0, &r.report, NULL));
        (void)run(r.p, (double)r.report.scale, gradient);
        trainer_step(&t, &options, scaling, gradient, r.p);
    }
    OK(cen_scaler_read(t.device, t.scaler, 1, 0, &r.report, NULL));
    r.last = run(r.p, 1, gradient);
    cen_device_close(t.device);
    return r;
}

static void scaling_rescues(void **state) {
    static const cen_scaler_options none = {.scale = 1, .interval = UINT32_MAX};
    static const cen_scaler_options usual = {.scale = 65536, .interval = 100};
    static const cen_scaler_options high = {.scale = 0x1p60f, .interval = 100};
    float start[PARAMS];
    parameters(start);
    outcome plain = train(&none, 600), scaled = train(&usual, 600), fell = train(&high, 600);
    print_message("loss, first %.3e; after 600 steps: %.3e unscaled, %.3e scaled from 65536, %.3e "
                  "from 2^60 (%llu steps skipped)\n",
                  plain.first, plain.last, scaled.last, fell.last,
                  (unsigned long long)fell.report.skipped);
    assert_true(plain.last == plain.first); /* every gradient was 0 */
    assert_memory_equal(plain.p, start, sizeof start);
    assert_true(scaled.last < 0.01 * scaled.first && fell.last < 0.01 * fell.first);
    assert_true(fell.report.skipped >= 15 && fell.report.scale < 0x1p50f);
    assert_true(fell.report.floored == 0 && fell.report.steps == 600);
}

/* The same network with moments in double precision, and exact gradients. */
static void as_good_as_wide_moments(void **state) {
    static const cen_scaler_options usual = {.scale = 65536, .interval = 100};
    float p[PARAMS], gradient[PARAMS];
    double m[PARAMS] = {0}, v[PARAMS] = {0};
    parameters(p);
    for (int step = 1; step <= 600; step++) {
        (void)run(p, 0x1p20, gradient);
        for (int i = 0; i < PARAMS; i++) {
            double g = gradient[i] * 0x1p-20;
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            double deep = sqrt(v[i] / (1 - pow(0.999, step))) + options.epsilon;
            p[i] -= (float)(options.rate * m[i] / (1 - pow(0.9, step)) / deep);
        }
    }
    double wide = run(p, 1, gradient);
    outcome narrow = train(&usual, 600);
    print_message("loss after 600 steps: %.3e with wide moments, %.3e with 8 bits\n", wide,
                  narrow.last);
    assert_true(narrow.last < 3 * wide + 0.002 * narrow.first);
}

/* A thousand steps along gradients with a drift and noise, of very different sizes: each parameter
 * gets as far as with wide moments, on the whole and one by one. */
static void moves_as_far(void **state) {
    enum { STEPS = 1000 };
    const cen_adamw_options o = {.rate = 1e-3, .epsilon = 1e-12};
    const cen_scaler_options fixed = {.scale = 1, .interval = UINT32_MAX};
    double m[PARAMS] = {0}, v[PARAMS] = {0}, wide[PARAMS] = {0}, apart = 0, path = 0, worst = 0;
    float p[PARAMS] = {0}, gradient[PARAMS];
    trainer t = trainer_open(p);
    OK(cen_scaler_init(t.device, &fixed, t.scaler, &t.tensor.gradient, 1, 0));
    random_state = 12;
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < PARAMS; i++) {
            double size = ldexp(1, -(i % 8)), noise = uniform() + uniform() + uniform() - 1.5;
            gradient[i] = half(size * (0.3 * (i % 3 - 1) + noise));
            double g = gradient[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            double deep = sqrt(v[i] / (1 - pow(0.999, step))) + o.epsilon;
            wide[i] -= o.rate * m[i] / (1 - pow(0.9, step)) / deep;
        }
        trainer_step(&t, &o, &fixed, gradient, p);
    }
    for (int i = 0; i < PARAMS; i++) {
        double d = fabs(p[i] - wide[i]);
        apart += d * d;
        path += wide[i] * wide[i];
        worst = d > worst ? d : worst;
    }
    print_message("after %d steps apart by %.4f of the way; at most by %.4f\n", STEPS,
                  sqrt(apart / path), worst);
    assert_true(sqrt(apart / path) < 0.1 && worst < 0.15);
    cen_device_close(t.device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scaling_rescues),
        cmocka_unit_test(as_good_as_wide_moments),
        cmocka_unit_test(moves_as_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
