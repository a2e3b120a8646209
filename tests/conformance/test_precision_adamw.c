/* AdamW with moments of 8 bits on every backend, beside one that is computed here, to the bit. */
#include "tests/conformance/precision_suite.h"

/* The values of a moment's codes, from the format's definition. */
static double code_value(int code, int exponent) {
    int bias = (1 << (exponent - 1)) - 1, e = code >> 3, m = code & 7;
    return e ? ldexp(1 + m / 8.0, e - bias) : ldexp(m / 8.0, 1 - bias);
}

static float moment_of(int code, float amax, int exponent) {
    float s = amax / (float)code_value((8 << exponent) - 1, exponent);
    s = s < 0x1p-126f ? 0x1p-126f : s;
    return (float)code_value(code, exponent) * s;
}

static int code_of(float size, float amax, int exponent, uint32_t noise) {
    int top = (8 << exponent) - 1, code = 0;
    float s = amax / (float)code_value(top, exponent);
    s = s < 0x1p-126f ? 0x1p-126f : s;
    double t = (double)(size / s);
    while (code < top && code_value(code + 1, exponent) <= t) {
        code++;
    }
    double low = code_value(code, exponent), gap = code_value(code + 1, exponent) - low;
    double share = floor((t - low) / gap * 0x1p20);
    code += share + noise >= 0x1p20 && code < top;
    return size > 0 && !code ? 1 : code;
}

static uint64_t noise_of(uint64_t step, uint64_t element) {
    uint64_t x = (element + 1) * 0x9E3779B97F4A7C15u ^ step * 0xD1B54A32D192ED03u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

typedef struct adam {
    cen_matrix param, grad, master;
    uint8_t *p, *g;
    float *w;
    uint64_t count, blocks, bytes;
    uint8_t *moments; /* as on the device */
} adam;

/* One step of block `b`; each operation is a statement, so that none is contracted. */
static void slow_block(adam *a, const cen_adamw_options *o, uint64_t b, uint64_t step,
                       float unscale) {
    float *m_amax = (float *)(void *)a->moments + b, *v_amax = m_amax + a->blocks;
    uint8_t *mc = a->moments + 8 * a->blocks, *vc = mc + a->count;
    double p1 = 1, p2 = 1;
    for (uint64_t i = 0; i < step; i++) {
        p1 *= o->beta1;
        p2 *= o->beta2;
    }
    float size = (float)(o->rate / (1 - p1)), root = (float)sqrt(1 - p2), m[256], v[256];
    double kept = o->rate * o->weight_decay;
    float decay = (float)(1 - kept), most_m = 0, most_v = 0;
    uint64_t end = b * 256 + 256 < a->count ? b * 256 + 256 : a->count;
    for (uint64_t i = b * 256; i < end; i++) {
        uint64_t k = i % 256, row = i / a->param.cols, col = i % a->param.cols;
        uint64_t at = row * a->param.stride + col;
        m[k] = moment_of(mc[i] & 127, *m_amax, 4);
        m[k] = mc[i] >> 7 ? -m[k] : m[k];
        v[k] = moment_of(vc[i], *v_amax, 5);
        float g = get(a->g, a->grad.dtype, row * a->grad.stride + col);
        g *= unscale;
        if (isfinite(g)) {
            float c1 = (float)(1 - o->beta1), c2 = (float)(1 - o->beta2);
            float old = (float)o->beta1 * m[k], new = c1 *g;
            m[k] = old + new;
            old = (float)o->beta2 * v[k];
            new = c2 *g;
            new *= g;
            v[k] = old + new;
            float deep = sqrtf(v[k]) / root;
            deep += (float)o->epsilon;
            float move = m[k] / deep, p = a->w ? a->w[at] : get(a->p, a->param.dtype, at);
            move *= size;
            p *= decay;
            p -= move;
            put(a->p, a->param.dtype, at, p);
            if (a->w) {
                a->w[at] = p;
            }
        }
        most_m = fabsf(m[k]) > most_m ? fabsf(m[k]) : most_m;
        most_v = v[k] > most_v ? v[k] : most_v;
    }
    for (uint64_t i = b * 256; i < end; i++) {
        uint64_t noise = noise_of(step, i);
        float x = m[i % 256];
        mc[i] = (uint8_t)(code_of(fabsf(x), most_m, 4, noise & 0xFFFFF) | (x < 0 ? 128 : 0));
        vc[i] = (uint8_t)code_of(v[i % 256], most_v, 5, noise >> 20 & 0xFFFFF);
    }
    *m_amax = most_m;
    *v_amax = most_v;
}

typedef struct adam_place {
    mapped memory;
    cen_addr clock, scaler;
    cen_adamw_tensor tensor;
} adam_place;

/* On the device: clock, scaler's state, moments, parameter, gradient, master. */
static adam_place place(cen_device *device, const adam *a) {
    uint64_t part = 1 << 18;
    adam_place at = {.memory = room(device, 5 * part)};
    at.clock = at.memory.addr;
    at.scaler = at.memory.addr + 1024;
    at.tensor = (cen_adamw_tensor){a->param, a->grad, a->master, at.memory.addr + part};
    at.tensor.parameter.data = at.memory.addr + 2 * part;
    at.tensor.gradient.data = at.memory.addr + 3 * part;
    at.tensor.master.data = a->w ? at.memory.addr + 4 * part : 0;
    assert_true(a->bytes <= part);
    OK(cen_fill_async(device, at.memory.addr, 0, 2 * part, 0));
    return at;
}

static uint64_t span(const cen_matrix *m) {
    return m->rows * m->stride * width_of(m->dtype);
}

static adam adam_make(cen_dtype param, cen_dtype grad, bool master, uint64_t rows, uint64_t cols) {
    adam a = {.param = {0, rows, cols, cols + rows % 3, param},
              .grad = {0, rows, cols, cols + rows % 2, grad},
              .master = {0, rows, cols, cols + rows % 3, CEN_FP32},
              .count = rows * cols,
              .blocks = (rows * cols + 255) / 256};
    OK(cen_adamw_bytes(a.count, &a.bytes));
    assert_int_equal(a.bytes, 2 * a.count + 8 * a.blocks);
    a.p = calloc(1, span(&a.param));
    a.g = calloc(1, span(&a.grad));
    a.w = master ? calloc(1, span(&a.master)) : NULL;
    a.moments = calloc(1, a.bytes);
    assert_true(a.p && a.g && a.moments && (a.w || !master));
    for (uint64_t i = 0; i < rows * a.param.stride; i++) {
        float x = number();
        put(a.p, param, i, x);
        if (a.w) {
            a.w[i] = get(a.p, param, i);
        }
    }
    return a;
}

static void adam_free(adam *a) {
    free(a->p);
    free(a->g);
    free(a->w);
    free(a->moments);
}

static void same_as_slow(cen_device *device, const adam *a, const adam_place *at) {
    uint8_t *got = malloc(1 << 18);
    assert_non_null(got);
    suite_read(device, got, at->tensor.moments, a->bytes);
    assert_memory_equal(got, a->moments, a->bytes);
    suite_read(device, got, at->tensor.parameter.data, span(&a->param));
    assert_memory_equal(got, a->p, span(&a->param));
    if (a->w) {
        suite_read(device, got, at->tensor.master.data, span(&a->master));
        assert_memory_equal(got, a->w, span(&a->master));
    }
    free(got);
}

static void adam_run(fixture *f, adam *a, uint64_t spoiled) {
    cen_device *device = f->device;
    const cen_adamw_options o = {
        .rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1};
    adam_place at = place(device, a);
    suite_write(device, at.tensor.parameter.data, a->p, span(&a->param));
    if (a->w) {
        suite_write(device, at.tensor.master.data, a->w, span(&a->master));
    }
    for (uint64_t step = 1; step <= 6; step++) {
        for (uint64_t i = 0; i < a->grad.rows * a->grad.stride; i++) {
            put(a->g, a->grad.dtype, i, step == 3 && i % 5 ? 0 : number());
        }
        if (spoiled) {
            put(a->g, a->grad.dtype, 0, NAN);
        }
        suite_write(device, at.tensor.gradient.data, a->g, span(&a->grad));
        launched(cen_adamw_begin_async(device, &o, at.clock, 0, false, 0));
        OK(cen_adamw_step_async(device, &o, at.clock, &at.tensor, 0));
        for (uint64_t b = 0; b < a->blocks; b++) {
            slow_block(a, &o, b, step, 1);
        }
        same_as_slow(device, a, &at);
    }
    cen_adamw_clock clock;
    suite_read(device, &clock, at.clock, sizeof clock);
    assert_true(clock.steps == 6 && clock.nonfinite == 6 * spoiled);
    suite_unmap(device, &at.memory);
}

static void adamw_to_the_bit(void **state) {
    fixture *f = *state;
    static const cen_dtype dtypes[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    random_state = 5;
    for (size_t i = 0; i < 9; i++) {
        adam a = adam_make(dtypes[i % 3], dtypes[i / 3], i % 2, 1 + i, 97 + 31 * i);
        adam_run(f, &a, i == 4);
        adam_free(&a);
    }
}

/* A step is skipped whole where the scaler found something, and counts as none. */
static void adamw_obeys_the_scaler(void **state) {
    fixture *f = *state;
    cen_device *device = f->device;
    const cen_adamw_options o = {.rate = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    random_state = 6;
    adam a = adam_make(CEN_FP32, CEN_FP16, false, 3, 200);
    adam_place at = place(device, &a);
    suite_write(device, at.tensor.parameter.data, a.p, span(&a.param));
    OK(cen_scaler_init(device, NULL, at.scaler, &at.tensor.gradient, 1, 0));
    float scale = 65536;
    for (uint64_t step = 1, made = 0; step <= 4; step++) {
        bool bad = step == 2;
        for (uint64_t i = 0; i < a.grad.rows * a.grad.stride; i++) {
            put(a.g, CEN_FP16, i, number());
        }
        put(a.g, CEN_FP16, 3, bad ? INFINITY : 1);
        suite_write(device, at.tensor.gradient.data, a.g, span(&a.grad));
        launched(cen_scaler_check_async(device, at.scaler, &at.tensor.gradient, 1, false, 0));
        OK(cen_adamw_begin_async(device, &o, at.clock, at.scaler, true, 0));
        OK(cen_adamw_step_async(device, &o, at.clock, &at.tensor, 0));
        OK(cen_scaler_update_async(device, NULL, at.scaler, 1, 0));
        made += !bad;
        for (uint64_t b = 0; !bad && b < a.blocks; b++) {
            slow_block(&a, &o, b, made, 1 / scale);
        }
        scale = bad ? scale / 2 : scale;
        same_as_slow(device, &a, &at);
    }
    cen_adamw_clock clock;
    suite_read(device, &clock, at.clock, sizeof clock);
    assert_true(clock.steps == 3 && clock.nonfinite == 0);
    adam_free(&a);
    suite_unmap(device, &at.memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(adamw_to_the_bit),
        SUITE_TEST(adamw_obeys_the_scaler),
    };
    return suite_run(tests, sizeof tests / sizeof *tests);
}
