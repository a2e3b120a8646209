/* What the tests of products share: matrices with guards and padding that must not be touched,
 * fresh random numbers, a reference in double precision, and each kernel in turn.
 *
 * What surrounds an operand is NaN: a kernel that reads beyond a row spoils its result. What
 * surrounds a result is a pattern that is looked for afterwards. CENOTE_TEST_SEED repeats a run. */
#ifndef PRODUCT_SUITE_H
#define PRODUCT_SUITE_H

#include <math.h>
#include <time.h>

#include "base/half.h"
#include "tests/conformance/suite.h"

enum { GUARD_BYTES = 64, POISON = 0xff };

static uint64_t random_state, random_seed;

static inline uint64_t random_word(void) { /* xorshift64* */
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545F4914F6CDD1Du >> 16;
}

static inline uint64_t below(uint64_t n) {
    return random_word() % n;
}

static inline void random_begin(void) {
    const char *given = getenv("CENOTE_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    random_seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_sec * 1000003u ^ now.tv_nsec;
    random_state = random_seed * 2 + 1;
    print_message("[  SEED    ] %llu\n", (unsigned long long)random_seed);
}

/* Memory of the device for one test, given out from its start. */
typedef struct arena {
    cen_device *device;
    mapped memory;
    uint64_t used;
} arena;

static inline arena arena_make(cen_device *device) {
    return (arena){device, suite_map(device, 16, 0), 0};
}

static inline cen_addr arena_take(arena *a, uint64_t bytes) {
    cen_addr addr = a->memory.addr + a->used;
    a->used += (bytes + 255) / 256 * 256;
    assert_true(a->used <= a->memory.size);
    return addr;
}

/* A matrix here and on the device, the same bytes. */
typedef struct twofold {
    cen_matrix matrix;
    cen_addr base;
    uint64_t bytes, lead; /* of all; before the first element */
    uint8_t *host;
} twofold;

static inline twofold twofold_make(arena *a, cen_dtype dtype, uint64_t rows, uint64_t cols,
                                   uint64_t extra, uint64_t offset) {
    uint64_t size = cen_dtype_bits(dtype) / 8, stride = cols + extra;
    twofold t = {.lead = GUARD_BYTES + offset * size};
    t.bytes = t.lead + rows * stride * size + GUARD_BYTES;
    t.base = arena_take(a, t.bytes);
    t.host = malloc(t.bytes);
    assert_non_null(t.host);
    memset(t.host, POISON, t.bytes);
    t.matrix = (cen_matrix){t.base + t.lead, rows, cols, stride, dtype};
    return t;
}

static inline void *element(const twofold *t, uint64_t row, uint64_t col) {
    uint64_t size = cen_dtype_bits(t->matrix.dtype) / 8;
    return t->host + t->lead + (row * t->matrix.stride + col) * size;
}

static inline double get(const twofold *t, uint64_t row, uint64_t col) {
    const void *at = element(t, row, col);
    uint16_t half;
    float single;
    int32_t word;
    switch (t->matrix.dtype) {
    case CEN_INT8:
        return *(const int8_t *)at;
    case CEN_INT32:
        memcpy(&word, at, sizeof word);
        return word;
    case CEN_FP32:
        memcpy(&single, at, sizeof single);
        return (double)single;
    default:
        memcpy(&half, at, sizeof half);
        return (double)(t->matrix.dtype == CEN_BF16 ? ceni_float_of_bf16(half)
                                                    : ceni_float_of_f16(half));
    }
}

static inline void put(twofold *t, uint64_t row, uint64_t col, float value) {
    void *at = element(t, row, col);
    uint16_t half;
    switch (t->matrix.dtype) {
    case CEN_INT8:
        *(int8_t *)at = (int8_t)value;
        break;
    case CEN_FP32:
        memcpy(at, &value, sizeof value);
        break;
    default:
        half = t->matrix.dtype == CEN_BF16 ? ceni_bf16_of_float(value) : ceni_f16_of_float(value);
        memcpy(at, &half, sizeof half);
    }
}

/* Whole numbers from -128 to 127, or from -1 to 1. */
static inline void fill_random(arena *a, twofold *t) {
    for (uint64_t i = 0; i < t->matrix.rows; i++) {
        for (uint64_t j = 0; j < t->matrix.cols; j++) {
            float value = t->matrix.dtype == CEN_INT8
                              ? (float)below(256) - 128
                              : (float)((double)below(1 << 24) / (1 << 23) - 1);
            put(t, i, j, value);
        }
    }
    suite_write(a->device, t->base, t->host, t->bytes);
}

static inline bool inside(const twofold *t, uint64_t byte) {
    uint64_t size = cen_dtype_bits(t->matrix.dtype) / 8;
    uint64_t at = byte - t->lead, row = at / (t->matrix.stride * size);
    return byte >= t->lead && row < t->matrix.rows &&
           at % (t->matrix.stride * size) < t->matrix.cols * size;
}

/* Reads it back; nothing around its elements has changed. */
static inline void read_back(arena *a, twofold *t, const char *what) {
    suite_read(a->device, t->host, t->base, t->bytes);
    for (uint64_t i = 0; i < t->bytes; i++) {
        if (!inside(t, i) && t->host[i] != POISON) {
            fail_msg("%s: byte %llu of %llu, outside of the result, was written; seed %llu", what,
                     (unsigned long long)i, (unsigned long long)t->bytes,
                     (unsigned long long)random_seed);
        }
    }
}

/* As cenote/product.h states it; 2^-20 of the result is left to the activation. */
static inline double rounding(cen_dtype dtype) {
    return dtype == CEN_BF16   ? 0x1p-8
           : dtype == CEN_FP16 ? 0x1p-11
           : dtype == CEN_FP32 ? 0x1p-24
                               : 0;
}

static inline double allowed(double exact, double sum, uint64_t k, cen_dtype out,
                             cen_activation activation) {
    double tiny = out == CEN_FP16 ? 0x1p-25 : 0; /* below the normal range */
    double slope = activation >= CEN_ACTIVATION_GELU ? 1.13 : 1;
    double own = activation >= CEN_ACTIVATION_GELU ? 0x1p-20 * sum : 0;
    return out == CEN_INT32 ? 0
                            : slope * (double)(k + 16) * 0x1p-23 * sum + own +
                                  rounding(out) * fabs(exact) * 1.01 + tiny;
}

static inline double activated(double x, cen_activation activation) {
    switch (activation) {
    case CEN_ACTIVATION_RELU:
        return x < 0 ? 0 : x;
    case CEN_ACTIVATION_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case CEN_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    default:
        return x;
    }
}

/* One product and what goes with it. Extra: elements between rows; offset: elements from a boundary
 * of 64 bytes; of A, B, C, D, residual, and of the vectors together. */
typedef struct trial {
    uint64_t m, n, k;
    cen_dtype in, out, bias_type;
    bool transpose_a, transpose_b, bias, residual, row_scale, col_scale, in_place;
    float alpha, beta;
    cen_activation activation;
    uint64_t extra[5], offset[6];
    const char *kernel; /* NULL: each */
} trial;

typedef struct operands {
    twofold a, b, c, d, residual, bias, row_scale, col_scale;
} operands;

static inline void print_trial(const trial *t, const char *kernel, char text[256]) {
    snprintf(text, 256,
             "%s: %llu x %llu x %llu %s to %s%s%s alpha %g beta %g%s%s%s%s%s act %d extra "
             "%d %d %d %d %d offset %d %d %d %d %d %d",
             kernel, (unsigned long long)t->m, (unsigned long long)t->n, (unsigned long long)t->k,
             cen_dtype_name(t->in), cen_dtype_name(t->out), t->transpose_a ? " A'" : "",
             t->transpose_b ? " B'" : "", (double)t->alpha, (double)t->beta, t->bias ? " bias" : "",
             t->residual ? " residual" : "", t->row_scale ? " rows" : "",
             t->col_scale ? " cols" : "", t->in_place ? " in place" : "", (int)t->activation,
             (int)t->extra[0], (int)t->extra[1], (int)t->extra[2], (int)t->extra[3],
             (int)t->extra[4], (int)t->offset[0], (int)t->offset[1], (int)t->offset[2],
             (int)t->offset[3], (int)t->offset[4], (int)t->offset[5]);
}

static inline operands operands_make(arena *a, const trial *t) {
    operands o;
    uint64_t m = t->m, n = t->n, k = t->k;
    a->used = 0;
    o.a = twofold_make(a, t->in, t->transpose_a ? k : m, t->transpose_a ? m : k, t->extra[0],
                       t->offset[0]);
    o.b = twofold_make(a, t->in, t->transpose_b ? n : k, t->transpose_b ? k : n, t->extra[1],
                       t->offset[1]);
    o.c = twofold_make(a, t->out, t->beta != 0 ? m : 0, n, t->extra[2], t->offset[2]);
    o.d = twofold_make(a, t->out, m, n, t->extra[3], t->offset[3]);
    o.residual = twofold_make(a, t->out, t->residual ? m : 0, n, t->extra[4], t->offset[4]);
    o.bias = twofold_make(a, t->bias_type, 1, n, 0, t->offset[5]);
    o.row_scale = twofold_make(a, CEN_FP32, 1, m, 0, t->offset[5]);
    o.col_scale = twofold_make(a, CEN_FP32, 1, n, 0, t->offset[5]);
    twofold *all[7] = {&o.a, &o.b, &o.c, &o.residual, &o.bias, &o.row_scale, &o.col_scale};
    bool whole = t->out == CEN_INT32;
    for (size_t i = 0; i < 7; i++) {
        if (!whole || i < 2) { /* what a plain product does not read stays NaN */
            fill_random(a, all[i]);
        }
    }
    return o;
}

static inline void operands_free(operands *o) {
    twofold *all[8] = {&o->a,        &o->b,    &o->c,         &o->d,
                       &o->residual, &o->bias, &o->row_scale, &o->col_scale};
    for (size_t i = 0; i < 8; i++) {
        free(all[i]->host);
    }
}

static inline cen_product product_of(const trial *t, const operands *o) {
    return (cen_product){
        .size = sizeof(cen_product),
        .a = o->a.matrix,
        .b = o->b.matrix,
        .d = o->d.matrix,
        .transpose_a = t->transpose_a,
        .transpose_b = t->transpose_b,
        .activation = t->activation,
        .alpha = t->alpha,
        .beta = t->beta,
        .c = t->in_place ? o->d.matrix : o->c.matrix,
        .residual = t->residual ? o->residual.matrix : (cen_matrix){0},
        .bias = t->bias ? o->bias.matrix.data : 0,
        .bias_dtype = t->bias_type,
        .row_scale = t->row_scale ? o->row_scale.matrix.data : 0,
        .col_scale = t->col_scale ? o->col_scale.matrix.data : 0,
    };
}

/* The exact result, and the sum of all sizes in it. */
static inline double exact(const trial *t, const operands *o, uint64_t i, uint64_t j, double *sum) {
    double x = 0, size = 0, scale = (double)t->alpha;
    for (uint64_t k = 0; k < t->k; k++) {
        double a = t->transpose_a ? get(&o->a, k, i) : get(&o->a, i, k);
        double b = t->transpose_b ? get(&o->b, j, k) : get(&o->b, k, j);
        x += a * b;
        size += fabs(a * b);
    }
    scale *= t->row_scale ? get(&o->row_scale, 0, i) : 1;
    scale *= t->col_scale ? get(&o->col_scale, 0, j) : 1;
    double c = t->beta != 0 ? (double)t->beta * get(&o->c, i, j) : 0;
    double bias = t->bias ? get(&o->bias, 0, j) : 0;
    double residual = t->residual ? get(&o->residual, i, j) : 0;
    *sum = fabs(scale) * size + fabs(c) + fabs(bias) + fabs(residual);
    return activated(x * scale + c + bias, t->activation) + residual;
}

/* In place, D holds C before; the layouts are then D's. */
static inline void prepare_result(arena *a, const trial *t, operands *o) {
    memset(o->d.host, POISON, o->d.bytes);
    for (uint64_t i = 0; t->in_place && i < t->m; i++) {
        for (uint64_t j = 0; j < t->n; j++) {
            memcpy(element(&o->d, i, j), element(&o->c, i, j), cen_dtype_bits(t->out) / 8);
        }
    }
    suite_write(a->device, o->d.base, o->d.host, o->d.bytes);
}

/* Of large results some rows; each element is looked at for being written, by being no NaN. */
static inline void check_result(const trial *t, const operands *o, const char *text) {
    uint64_t work = t->m * t->n * (t->k + 1), step = (work >> 22) + 1;
    for (uint64_t i = 0; i < t->m; i++) {
        bool look = i % step == below(step) || i + 1 == t->m;
        for (uint64_t j = 0; j < t->n; j++) {
            double got = get(&o->d, i, j), sum, want = look ? exact(t, o, i, j, &sum) : got;
            double most = look ? allowed(want, sum, t->k, t->out, t->activation) : 0;
            if (!(fabs(got - want) <= most)) {
                fail_msg("%s: [%llu, %llu] is %.9g, not %.9g; %.3g is allowed; seed %llu", text,
                         (unsigned long long)i, (unsigned long long)j, got, want, most,
                         (unsigned long long)random_seed);
            }
        }
    }
}

static inline void skip_without_kernels(cen_status status) {
    if (status == CEN_ERR_UNSUPPORTED && strstr(suite_log_line, "without CUDA kernels")) {
        suite_skip("the library was built without CUDA kernels");
    }
}

/* Whether each kernel is one of its own, and no name for the same twin. */
static inline bool kernels_differ(const fixture *f) {
    return !f->host && !suite_test_driver(f);
}

/* Each kernel that can do it, or, where they are all the same twin, one. `how` is what a failure
 * says of it, beside the trial. */
static inline void try_kernels(const fixture *f, arena *a, const trial *t, operands *o,
                               cen_product product, const char *how) {
    cen_product_kernel kernels[16];
    size_t count = 0;
    OK(cen_product_list(a->device, &product, kernels, 16, &count));
    assert_int_equal(count > 0, t->m && t->n);
    size_t first = kernels_differ(f) || !count ? 0 : below(count);
    size_t end = kernels_differ(f) || !count ? count : first + 1;
    for (size_t i = first; i < end; i++) {
        if (t->kernel && !strstr(kernels[i].name, t->kernel)) {
            continue;
        }
        char text[256], all[384];
        print_trial(t, kernels[i].name, text);
        snprintf(all, sizeof all, "%s%s", text, how);
        prepare_result(a, t, o);
        product.kernel = kernels[i].name;
        cen_status status = cen_product_run(a->device, &product, 0);
        skip_without_kernels(status);
        OK(status);
        read_back(a, &o->d, all);
        check_result(t, o, all);
    }
}

static inline void try_product(const fixture *f, arena *a, const trial *t) {
    operands o = operands_make(a, t);
    try_kernels(f, a, t, &o, product_of(t, &o), "");
    operands_free(&o);
}

/* Strides and offsets: half of the time such that every access can be wide. */
static inline void random_places(trial *t) {
    bool wide = below(2);
    for (int i = 0; i < 6; i++) {
        t->offset[i] = wide ? below(2) * 16 : below(8);
    }
    uint64_t cols[5] = {t->transpose_a ? t->m : t->k, t->transpose_b ? t->k : t->n, t->n, t->n,
                        t->n};
    for (int i = 0; i < 5; i++) {
        t->extra[i] = wide ? 16 + (16 - cols[i] % 16) % 16 - below(2) * 16 : below(9);
    }
}

static const cen_dtype product_types[][2] = {
    {CEN_FP32, CEN_FP32}, {CEN_BF16, CEN_BF16}, {CEN_FP16, CEN_FP16},
    {CEN_BF16, CEN_FP32}, {CEN_FP16, CEN_FP32}, {CEN_INT8, CEN_INT32},
    {CEN_INT8, CEN_FP32}, {CEN_INT8, CEN_BF16}, {CEN_INT8, CEN_FP16},
};
enum { PRODUCT_TYPES = sizeof product_types / sizeof *product_types };

static inline trial plain_trial(uint64_t m, uint64_t n, uint64_t k, int types) {
    return (trial){.m = m,
                   .n = n,
                   .k = k,
                   .in = product_types[types][0],
                   .out = product_types[types][1],
                   .bias_type = CEN_FP32,
                   /* INT8 is large: its products would leave FP16 */
                   .alpha =
                       product_types[types][0] == CEN_INT8 && product_types[types][1] != CEN_INT32
                           ? 0x1p-14f
                           : 1};
}

/* With anything that may be done to the sums. */
static inline trial random_epilogue(uint64_t m, uint64_t n, uint64_t k, int types) {
    trial t = plain_trial(m, n, k, types);
    if (t.out == CEN_INT32) {
        return t;
    }
    t.bias_type = below(2) ? CEN_FP32 : t.out;
    t.bias = below(2);
    t.residual = below(2);
    t.row_scale = below(2);
    t.col_scale = below(2);
    t.activation = (cen_activation)below(4);
    t.alpha *= (float)((double)below(1 << 12) / (1 << 10) - 2);
    t.beta = below(2) ? (float)((double)below(1 << 12) / (1 << 10) - 2) : 0;
    t.in_place = t.beta != 0 && below(2);
    t.transpose_a = below(2);
    t.transpose_b = below(2);
    return t;
}

#endif
