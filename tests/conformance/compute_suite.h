/* What the suites of cen_compute_* share: matrices at any alignment and stride in memory that is
 * poisoned around and between their rows, values that are new in each run, and comparisons.
 * CENOTE_TEST_SEED repeats a run; a failure names the seed. */
#ifndef COMPUTE_SUITE_H
#define COMPUTE_SUITE_H

#include "tests/conformance/suite.h"

#include <math.h>
#include <time.h>

#include "base/half.h"

#define UNIT 0x1p-24

enum { AREA_PAGES = 4, AREA_POISON = 0xEE };

typedef struct area {
    cen_device *device;
    cen_addr memory;
    uint64_t size, used;
    uint8_t *host, *got; /* what was put into the device's memory, and what is there */
} area;

static uint64_t compute_seed, compute_random;

static inline uint64_t any(void) {
    compute_random = compute_random * 6364136223846793005u + 1442695040888963407u;
    return compute_random >> 33;
}

static inline uint64_t any_below(uint64_t limit) {
    return any() % limit;
}

/* In [-1, 1), mostly with all bits of a float. */
static inline float any_float(void) {
    return (float)any() * 0x1p-30f - 1;
}

static inline area area_make(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, AREA_PAGES, 0);
    const char *seed = getenv("CENOTE_TEST_SEED");
    compute_seed =
        seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) * 1000003u + (uint64_t)clock();
    compute_random = compute_seed;
    return (area){d, m.addr, m.size, 0, test_malloc(m.size), test_malloc(m.size)};
}

static inline void area_end(area *a) {
    test_free(a->host);
    test_free(a->got);
}

static inline void area_clear(area *a) {
    a->used = 0;
}

static inline uint64_t size_of(cen_dtype dtype) {
    return cen_dtype_bits(dtype) / 8;
}

/* A matrix `shift` elements behind a multiple of 64 bytes, its rows `gap` elements apart. */
static inline cen_matrix area_place(area *a, uint64_t rows, uint64_t cols, uint64_t gap,
                                    uint64_t shift, cen_dtype dtype) {
    uint64_t at = (a->used + 16 + 63) / 64 * 64 + shift * size_of(dtype);
    cen_matrix m = {a->memory + at, rows, cols, cols + gap, dtype};
    uint64_t end = at + (rows * m.stride + 1) * size_of(dtype) + 16;
    assert_true(end <= a->size);
    memset(a->host + a->used, AREA_POISON, end - a->used);
    a->used = end;
    return m;
}

/* The same at a stride and an alignment of its own. */
static inline cen_matrix area_any(area *a, uint64_t rows, uint64_t cols, cen_dtype dtype) {
    uint64_t gap = any_below(3) ? 0 : any_below(20), shift = any_below(2) ? 0 : any_below(17);
    return area_place(a, rows, cols, gap, shift, dtype);
}

static inline uint64_t area_at(const area *a, const cen_matrix *m, uint64_t row, uint64_t col) {
    return m->data - a->memory + (row * m->stride + col) * size_of(m->dtype);
}

static inline float float_at(const uint8_t *memory, uint64_t at, cen_dtype dtype) {
    float value;
    uint16_t half;
    if (dtype == CEN_FP32) {
        memcpy(&value, memory + at, sizeof value);
        return value;
    }
    memcpy(&half, memory + at, sizeof half);
    return dtype == CEN_FP16 ? ceni_float_of_f16(half) : ceni_float_of_bf16(half);
}

static inline float rounded(cen_dtype dtype, float value) {
    return dtype == CEN_FP16   ? ceni_float_of_f16(ceni_f16_of_float(value))
           : dtype == CEN_BF16 ? ceni_float_of_bf16(ceni_bf16_of_float(value))
                               : value;
}

/* What was put there, and what came back. */
static inline float area_in(const area *a, const cen_matrix *m, uint64_t row, uint64_t col) {
    return float_at(a->host, area_at(a, m, row, col), m->dtype);
}

static inline float area_out(const area *a, const cen_matrix *m, uint64_t row, uint64_t col) {
    return float_at(a->got, area_at(a, m, row, col), m->dtype);
}

static inline void area_set(area *a, const cen_matrix *m, uint64_t row, uint64_t col, float value) {
    uint64_t at = area_at(a, m, row, col);
    uint16_t half = m->dtype == CEN_FP16 ? ceni_f16_of_float(value) : ceni_bf16_of_float(value);
    if (m->dtype == CEN_FP32) {
        memcpy(a->host + at, &value, sizeof value);
    } else {
        memcpy(a->host + at, &half, sizeof half);
    }
}

/* New values around `middle`, not farther than `reach`. */
static inline void area_fill(area *a, const cen_matrix *m, float middle, float reach) {
    for (uint64_t i = 0; i < m->rows; i++) {
        for (uint64_t j = 0; j < m->cols; j++) {
            area_set(a, m, i, j, middle + reach * any_float());
        }
    }
}

static inline void area_push(area *a) {
    suite_write(a->device, a->memory, a->host, a->used);
}

/* Checks a call's status, and skips where there are no kernels. */
static inline void called(cen_status status) {
    if (status == CEN_ERR_UNSUPPORTED && strstr(suite_log_line, "without CUDA kernels")) {
        suite_skip("the library was built without CUDA kernels");
    }
    if (status) {
        fail_msg("%s (seed %llu)", suite_log_line, (unsigned long long)compute_seed);
    }
}

/* Brings all back, and checks that nothing but these matrices' elements was written. */
static inline void area_pull(area *a, const cen_matrix *const *outputs, size_t count) {
    suite_read(a->device, a->got, a->memory, a->used);
    uint8_t *expected = test_malloc(a->used);
    memcpy(expected, a->host, a->used);
    for (size_t k = 0; k < count; k++) {
        const cen_matrix *m = outputs[k];
        for (uint64_t i = 0; i < m->rows && m->cols; i++) {
            uint64_t at = area_at(a, m, i, 0);
            memcpy(expected + at, a->got + at, m->cols * size_of(m->dtype));
        }
    }
    if (memcmp(expected, a->got, a->used)) {
        uint64_t at = 0;
        while (expected[at] == a->got[at]) {
            at++;
        }
        fail_msg("byte %llu of %llu was written (seed %llu)", (unsigned long long)at,
                 (unsigned long long)a->used, (unsigned long long)compute_seed);
    }
    test_free(expected);
}

/* Half a unit in the last place of a type, around a value. */
static inline double half_ulp(cen_dtype dtype, double value) {
    double magnitude = fabs(value);
    int bits = dtype == CEN_FP32 ? 24 : dtype == CEN_FP16 ? 11 : 8;
    double least = dtype == CEN_FP16 ? 0x1p-25 : 0x1p-134;
    double half = ldexp(magnitude, -bits);
    return half > least ? half : least;
}

/* `got` is within `bound` of `expected`, and what rounding to its type adds. */
static inline void near(const char *what, double got, double expected, double bound,
                        cen_dtype dtype, uint64_t row, uint64_t col) {
    double allowed = bound + half_ulp(dtype, fabs(expected) + bound);
    double largest = dtype == CEN_FP16 ? 65519 : 3.3e38;
    bool ok = isnan(expected)                 ? isnan(got)
              : isinf(expected) || isinf(got) ? got == expected || (fabs(expected) > largest)
                                              : fabs(got - expected) <= allowed;
    if (!ok) {
        fail_msg("%s, %s at (%llu, %llu): %.9g, not %.9g within %.3g (seed %llu)", what,
                 cen_dtype_name(dtype), (unsigned long long)row, (unsigned long long)col, got,
                 expected, allowed, (unsigned long long)compute_seed);
    }
}

/* The same value; NaN is NaN, and -0 is not 0. */
static inline void same_value(const char *what, float got, float expected, uint64_t row,
                              uint64_t col) {
    bool ok = isnan(expected) ? isnan(got) : ceni_float_bits(got) == ceni_float_bits(expected);
    if (!ok) {
        fail_msg("%s at (%llu, %llu): %.9g, not %.9g (seed %llu)", what, (unsigned long long)row,
                 (unsigned long long)col, (double)got, (double)expected,
                 (unsigned long long)compute_seed);
    }
}

static const cen_dtype float_types[] = {CEN_FP32, CEN_FP16, CEN_BF16};

static inline cen_dtype any_type(void) {
    return float_types[any_below(3)];
}

static const float special_values[] = {
    0.0f,          -0.0f,       NAN,         INFINITY,     -INFINITY, 1.0f,
    -1.0f,         0x1p-149f,   0x1p-24f,    0x1p-25f,     0x1p-14f,  65504.0f,
    65520.0f,      -65519.0f,   3.40282e38f, -3.40282e38f, 1e-40f,    0x1p-133f,
    3.3895314e38f, 1.00390625f, 1.01171875f, 2049.0f,      -20.0f,    20.0f};
enum { SPECIALS = sizeof special_values / sizeof *special_values };

#endif
