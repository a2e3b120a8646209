/* Mixed precision on every backend: each step beside one that is computed here, to the bit. */
#include "tests/conformance/precision_suite.h"

enum { TENSORS = 5, HISTORY = 4 };

/* ---- loss scaling ---- */

typedef struct gradients {
    cen_matrix at[TENSORS]; /* on the device */
    uint64_t offset[TENSORS], bytes;
    uint8_t *data;
} gradients;

static gradients gradients_make(cen_addr addr) {
    static const cen_matrix shapes[TENSORS] = {{0, 3, 7, 7, CEN_FP32},
                                               {0, 2, 9001, 9003, CEN_FP16},
                                               {0, 0, 5, 5, CEN_FP16},
                                               {0, 129, 33, 40, CEN_BF16},
                                               {0, 1, 20000, 20000, CEN_FP16}};
    gradients g = {.bytes = 0};
    for (int i = 0; i < TENSORS; i++) {
        g.at[i] = shapes[i];
        g.offset[i] = g.bytes;
        g.at[i].data = addr + g.bytes;
        g.bytes += (shapes[i].rows * shapes[i].stride * width_of(shapes[i].dtype) + 7) / 4 * 4 +
                   (i == 3 ? 2 : 0) * 2;
    }
    g.data = calloc(1, g.bytes);
    assert_non_null(g.data);
    return g;
}

static void gradients_fill(gradients *g) {
    for (int i = 0; i < TENSORS; i++) {
        for (uint64_t k = 0; k < g->at[i].rows * g->at[i].stride; k++) {
            put(g->data + g->offset[i], g->at[i].dtype, k, number());
        }
    }
}

/* What they become, where `scale` is divided out. */
static void gradients_unscale(gradients *g, float scale) {
    float inverse = 1.0f / scale;
    for (int i = 0; i < TENSORS; i++) {
        const cen_matrix *m = &g->at[i];
        uint8_t *to = g->data + g->offset[i];
        for (uint64_t k = 0; k < m->rows * m->stride; k++) {
            if (k % m->stride < m->cols) {
                put(to, m->dtype, k, get(to, m->dtype, k) * inverse);
            }
        }
    }
}

static void unscales_all_in_one_launch(void **state) {
    fixture *f = *state;
    uint64_t bytes;
    OK(cen_scaler_bytes(TENSORS, &bytes));
    mapped kept = room(f->device, bytes), memory = room(f->device, 1 << 20);
    gradients g = gradients_make(memory.addr);
    uint8_t *got = malloc(g.bytes);
    assert_non_null(got);
    random_state = 1;
    gradients_fill(&g);
    put(g.data + g.offset[1], CEN_FP16, 9001, INFINITY); /* lies between rows: not looked at */
    suite_write(f->device, memory.addr, g.data, g.bytes);
    OK(cen_scaler_init(f->device, NULL, kept.addr, g.at, TENSORS, 0));
    launched(cen_scaler_check_async(f->device, kept.addr, g.at, TENSORS, true, 0));
    gradients_unscale(&g, 65536.0f);
    suite_read(f->device, got, memory.addr, g.bytes);
    assert_memory_equal(got, g.data, g.bytes);
    cen_scaler_report report;
    OK(cen_scaler_update_async(f->device, NULL, kept.addr, TENSORS, 0));
    OK(cen_scaler_read(f->device, kept.addr, TENSORS, 0, &report, NULL));
    assert_true(report.scale == 65536.0f && report.good == 1 && report.steps == 1);
    assert_int_equal(report.skipped, 0);

    /* Without `unscale` nothing is written. */
    OK(cen_scaler_check_async(f->device, kept.addr, g.at, TENSORS, false, 0));
    suite_read(f->device, got, memory.addr, g.bytes);
    assert_memory_equal(got, g.data, g.bytes);
    free(got);
    free(g.data);
    suite_unmap(f->device, &kept);
    suite_unmap(f->device, &memory);
}

typedef struct slow_scaler {
    float scale;
    uint32_t good;
    uint64_t steps, skipped, floored, last, first, overflows[TENSORS];
} slow_scaler;

static void slow_step(slow_scaler *s, const bool hit[TENSORS], const cen_scaler_options *o) {
    int first = 0;
    while (first < TENSORS && !hit[first]) {
        first++;
    }
    s->steps++;
    for (int i = 0; i < TENSORS; i++) {
        s->overflows[i] += hit[i];
    }
    if (first < TENSORS) {
        s->skipped++;
        s->floored += s->scale <= o->floor;
        s->scale = s->scale * o->backoff < o->floor ? o->floor : s->scale * o->backoff;
        s->good = 0;
        s->last = s->steps;
        s->first = (uint64_t)first;
    } else if (++s->good == o->interval) {
        s->scale = isinf(s->scale * o->growth) ? s->scale : s->scale * o->growth;
        s->good = 0;
    }
}

static void spoil(fixture *f, const gradients *g, int tensor, bool undo) {
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    const cen_matrix *m = &g->at[tensor];
    uint64_t at = m->rows * m->stride - m->stride + m->cols - 1; /* its last element */
    uint8_t bytes[4];
    put(bytes, m->dtype, 0, undo ? 1.0f : bad[next() % 3]);
    suite_write(f->device, m->data + at * width_of(m->dtype), bytes, width_of(m->dtype));
}

/* A hundred steps, of which some find something, and then the floor. */
static void scale_follows(void **state) {
    fixture *f = *state;
    const cen_scaler_options o = {
        .scale = 64, .growth = 4, .backoff = 0.25f, .interval = 3, .floor = 2};
    static const int real[] = {0, 1, 3, 4}; /* tensors that are not empty */
    uint64_t bytes, overflows[TENSORS];
    OK(cen_scaler_bytes(TENSORS, &bytes));
    mapped kept = room(f->device, bytes), memory = room(f->device, 1 << 20);
    gradients g = gradients_make(memory.addr);
    slow_scaler slow = {.scale = 64};
    random_state = 2;
    suite_write(f->device, memory.addr, g.data, g.bytes);
    OK(cen_scaler_init(f->device, &o, kept.addr, g.at, TENSORS, 0));
    for (int step = 0; step < 100; step++) {
        bool hit[TENSORS] = {false};
        for (int i = 0; i < 4; i++) {
            hit[real[i]] = step < 80 ? next() % 12 == 0 : next() % 2 == 0;
            if (hit[real[i]]) {
                spoil(f, &g, real[i], false);
            }
        }
        launched(cen_scaler_check_async(f->device, kept.addr, g.at, TENSORS, false, 0));
        uint32_t found = suite_word(f->device, kept.addr + 8);
        OK(cen_scaler_update_async(f->device, &o, kept.addr, TENSORS, 0));
        slow_step(&slow, hit, &o);
        assert_int_equal(found != 0, slow.last == slow.steps);
        cen_scaler_report r;
        OK(cen_scaler_read(f->device, kept.addr, TENSORS, 0, &r, overflows));
        assert_true(r.scale == slow.scale && r.good == slow.good);
        assert_true(r.steps == slow.steps && r.skipped == slow.skipped);
        assert_true(r.floored == slow.floored && r.last_step == slow.last);
        assert_int_equal(r.first, slow.first);
        assert_memory_equal(overflows, slow.overflows, sizeof overflows);
        for (int i = 0; i < 4; i++) {
            if (hit[real[i]]) {
                spoil(f, &g, real[i], true);
            }
        }
    }
    assert_true(slow.floored > 0 && slow.skipped > slow.floored && slow.scale >= 2);
    free(g.data);
    suite_unmap(f->device, &kept);
    suite_unmap(f->device, &memory);
}

/* Growth ends before infinity. */
static void scale_stays_finite(void **state) {
    fixture *f = *state;
    const cen_scaler_options o = {.scale = 0x1p126f, .interval = 1};
    float x = 0;
    mapped kept = room(f->device, 4096);
    cen_matrix m = {kept.addr + 2048, 1, 1, 1, CEN_FP32};
    cen_scaler_report r;
    suite_write(f->device, m.data, &x, sizeof x);
    OK(cen_scaler_init(f->device, &o, kept.addr, &m, 1, 0));
    for (int i = 0; i < 4; i++) {
        launched(cen_scaler_update_async(f->device, &o, kept.addr, 1, 0));
    }
    OK(cen_scaler_read(f->device, kept.addr, 1, 0, &r, NULL));
    assert_true(r.scale == 0x1p127f && r.steps == 4);
    suite_unmap(f->device, &kept);
}

/* ---- FP8 ---- */

static void fp8_step(fixture *f, const cen_fp8_options *o, cen_addr states, cen_addr memory,
                     float amax, cen_dtype dtype) {
    uint8_t data[4 * 600] = {0};
    for (uint64_t i = 0; i < 3 * 200; i++) {
        put(data, dtype, i, i % 200 == 199 ? INFINITY : 0); /* the last column is not looked at */
    }
    put(data, dtype, 2 * 200 + 198, -amax);
    put(data, dtype, 5, amax == amax && !isinf(amax) ? amax / 2 : 1);
    suite_write(f->device, memory, data, sizeof data);
    cen_matrix m = {memory, 3, 199, 200, dtype};
    launched(cen_fp8_amax_async(f->device, states, &m, 0));
    cen_fp8_scaling s;
    OK(cen_fp8_read(f->device, states, 0, &s));
    assert_true(s.amax == amax || (isnan(s.amax) && isnan(amax)));
    OK(cen_fp8_update_async(f->device, o, states, 1, 0));
}

/* Both ways, through amax that are ordinary, 0, NaN, infinite, tiny and huge. */
static void fp8_scales(void **state) {
    fixture *f = *state;
    static const float amax[] = {2, 3, 1, NAN, 0.5f, 0.25f,     0.125f,    0.0625f, INFINITY,
                                 0, 0, 0, 0,   0,    0x1p-149f, 0x1p-140f, 7,       3e38f};
    enum { STEPS = sizeof amax / sizeof *amax };
    mapped kept = room(f->device, 4096), memory = room(f->device, 4096);
    for (int way = 0; way < 4; way++) {
        const cen_fp8_options o = {.format = way % 2 ? CEN_CODEC_FP8_E5M2 : CEN_CODEC_FP8_E4M3,
                                   .margin = way % 2 ? 3 : 0,
                                   .history = way < 2 ? HISTORY : 0};
        float largest = way % 2 ? 57344.0f / 8 : 448.0f, scale = 1, past[STEPS + 1] = {0};
        uint64_t bad = 0, entered = 0, bytes;
        OK(cen_fp8_bytes(&o, &bytes));
        assert_true(bytes == (way < 2 ? 48 : 32) && !(bytes % 8));
        OK(cen_fp8_init(f->device, &o, kept.addr, 1, 0));
        for (int i = 0; i < STEPS; i++) {
            fp8_step(f, &o, kept.addr, memory.addr, amax[i], CEN_FP32);
            float of = isfinite(amax[i]) ? amax[i] : 0;
            bad += !isfinite(amax[i]);
            if (way < 2) {
                past[entered] = of;
                entered += isfinite(amax[i]) != 0;
                of = 0;
                for (uint64_t k = entered > HISTORY ? entered - HISTORY : 0; k < entered; k++) {
                    of = past[k] > of ? past[k] : of;
                }
            }
            float wanted = largest / of;
            wanted = wanted > 0x1p126f ? 0x1p126f : wanted;
            scale = of > 0 ? wanted : way < 2 ? scale : 1;
            cen_fp8_scaling s;
            OK(cen_fp8_read(f->device, kept.addr, 0, &s));
            assert_true(s.scale == scale && s.inverse == 1 / scale && s.amax == 0);
            assert_true(isfinite(s.scale) && isfinite(s.inverse) && s.inverse > 0);
            assert_true(s.updates == (uint64_t)i + 1 && s.nonfinite == bad);
        }
    }
    suite_unmap(f->device, &kept);
    suite_unmap(f->device, &memory);
}

/* The largest of several calls and of every type; NaN is kept, whatever comes after it. */
static void fp8_amax(void **state) {
    fixture *f = *state;
    const cen_fp8_options o = {.format = CEN_CODEC_FP8_E4M3, .history = 1};
    static const cen_dtype dtypes[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    mapped kept = room(f->device, 4096), memory = room(f->device, 1 << 16);
    static uint8_t data[1 << 16];
    for (size_t d = 0; d < 3; d++) {
        cen_fp8_scaling s;
        float most = 0;
        OK(cen_fp8_init(f->device, &o, kept.addr, 1, 0));
        random_state = 3 + d;
        for (int call = 0; call < 3; call++) {
            for (uint64_t i = 0; i < 10000; i++) {
                put(data, dtypes[d], i, number());
                float size = fabsf(get(data, dtypes[d], i));
                most = size > most ? size : most;
            }
            if (call == 1) {
                put(data, dtypes[d], 7777, NAN);
            }
            cen_matrix m = {memory.addr, 1, 10000, 10000, dtypes[d]};
            suite_write(f->device, memory.addr, data, 10000 * width_of(dtypes[d]));
            launched(cen_fp8_amax_async(f->device, kept.addr, &m, 0));
            OK(cen_fp8_read(f->device, kept.addr, 0, &s));
            assert_true(call ? isnan(s.amax) : s.amax == most);
        }
    }
    suite_unmap(f->device, &kept);
    suite_unmap(f->device, &memory);
}

/* ---- what is refused ---- */

static void refuses(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    cen_matrix m = {4096, 2, 3, 3, CEN_FP32}, eight = {4096, 2, 3, 3, CEN_INT8};
    const cen_scaler_options shrinks = {.growth = 0.5f}, low = {.scale = 0.5f};
    const cen_fp8_options fp8 = {.format = CEN_CODEC_INT8},
                          deep = {.format = CEN_CODEC_FP8_E4M3, .history = 1025};
    cen_adamw_options o = {.rate = 1};
    cen_adamw_tensor t = {m, m, {0}, 4096};
    FAILS(CEN_ERR_INVALID, cen_scaler_init(d, NULL, 4, &m, 1, 0));
    assert_logged("state is 0x4");
    FAILS(CEN_ERR_INVALID, cen_scaler_init(d, &shrinks, 8, &m, 1, 0));
    assert_logged("options.growth is 0.5");
    FAILS(CEN_ERR_INVALID, cen_scaler_init(d, &low, 8, &m, 1, 0));
    assert_logged("options.scale is 0.5");
    FAILS(CEN_ERR_INVALID, cen_scaler_check_async(d, 8, &eight, 1, false, 0));
    assert_logged("gradients[0] is of int8");
    FAILS(CEN_ERR_INVALID, cen_scaler_check_async(d, 8, &m, 0, false, 0));
    assert_logged("count is 0");
    FAILS(CEN_ERR_INVALID, cen_fp8_update_async(d, &fp8, 8, 1, 0));
    assert_logged("options.format is int8");
    FAILS(CEN_ERR_INVALID, cen_fp8_update_async(d, &deep, 8, 1, 0));
    assert_logged("history 1025");
    FAILS(CEN_ERR_INVALID, cen_fp8_amax_async(d, 8, &eight, 0));
    assert_logged("tensor is of int8");
    FAILS(CEN_ERR_INVALID, cen_adamw_step_async(d, &o, 8, &t, 0));
    assert_logged("tensor.gradient and tensor.parameter overlap");
    t.gradient.data = 8192;
    t.gradient.rows = 3;
    FAILS(CEN_ERR_INVALID, cen_adamw_step_async(d, &o, 8, &t, 0));
    assert_logged("tensor.gradient is 3 x 3; tensor.parameter is 2 x 3");
    FAILS(CEN_ERR_INVALID, cen_adamw_begin_async(d, &o, 8, 0, true, 0));
    assert_logged("gradients are scaled");
    o.beta2 = 1;
    FAILS(CEN_ERR_INVALID, cen_adamw_begin_async(d, &o, 8, 0, false, 0));
    assert_logged("beta2 1");
    o = (cen_adamw_options){.rate = NAN};
    FAILS(CEN_ERR_INVALID, cen_adamw_begin_async(d, &o, 8, 0, false, 0));
    assert_logged("options.rate is");
}

/* A call of the device's fails: it is returned, and nothing is set. */
static void device_failures(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    const cen_fp8_options o = {.format = CEN_CODEC_FP8_E4M3, .history = 2};
    mapped kept = room(d, 4096);
    cen_matrix m = {kept.addr + 2048, 1, 4, 4, CEN_FP32};
    OK(cen_fill_async(d, kept.addr, 0, 4096, 0));
    OK(cen_stream_sync(d, 0));
    for (int op = 0; op < 2; op++) {
        enum ceni_dev_op which = op ? CENI_OP_stream_sync : CENI_OP_copy;
        cen_scaler_report r = {.steps = 77};
        cen_fp8_scaling s = {.updates = 77};
        ceni_dev_fault(d, which, 1, true);
        assert_int_not_equal(cen_scaler_init(d, NULL, kept.addr, &m, 1, 0), CEN_OK);
        assert_int_not_equal(cen_scaler_read(d, kept.addr, 1, 0, &r, NULL), CEN_OK);
        assert_int_not_equal(cen_fp8_init(d, &o, kept.addr, 1, 0), CEN_OK);
        assert_int_not_equal(cen_fp8_read(d, kept.addr, 0, &s), CEN_OK);
        ceni_dev_fault(d, which, 0, false);
        assert_true(r.steps == 77 && s.updates == 77);
        OK(cen_stream_sync(d, 0));
    }
    ceni_dev_fault(d, CENI_OP_launch, 1, true);
    assert_int_not_equal(cen_scaler_check_async(d, kept.addr, &m, 1, true, 0), CEN_OK);
    assert_int_not_equal(cen_fp8_amax_async(d, kept.addr, &m, 0), CEN_OK);
    ceni_dev_fault(d, CENI_OP_launch, 0, false);
    suite_log_reset();
    suite_unmap(d, &kept);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(unscales_all_in_one_launch),
        SUITE_TEST(scale_follows),
        SUITE_TEST(scale_stays_finite),
        SUITE_TEST(fp8_scales),
        SUITE_TEST(fp8_amax),

        SUITE_TEST(refuses),
        SUITE_TEST(device_failures),
    };
    return suite_run(tests, sizeof tests / sizeof *tests);
}
