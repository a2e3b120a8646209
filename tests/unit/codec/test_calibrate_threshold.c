/* Thresholds, each compared with a slow computation of its own, and what an outlier does to them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/fault.h"
#include "base/half.h"
#include "cenote/calibrate.h"
#include "cenote/log.h"
#include "kernels/calibrate.h"

#define OK(call) assert_int_equal((call), CEN_OK)

enum { N = 1 << 16 };

static uint64_t random_state = 7;

static double uniform(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static float bell(void) {
    return (float)(sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform()));
}

static cen_matrix matrix_of(const float *x, size_t n) {
    return (cen_matrix){(uintptr_t)x, 1, n, n, CEN_FP32};
}

static cen_calibration *of(const float *x, size_t n) {
    cen_calibration *c;
    cen_matrix m = matrix_of(x, n);
    OK(cen_calibration_create(CEN_CHANNELS_NONE, 0, &c));
    OK(cen_calibration_add(c, &m));
    return c;
}

static float threshold(const cen_calibration *c, cen_threshold how, double percentile,
                       const cen_codec *codec) {
    float amax = -1;
    OK(cen_calibration_threshold(c, how, percentile, codec, &amax));
    return amax;
}

static float *sample_of(int kind, size_t n) {
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        switch (kind) {
        case 0:
            x[i] = bell();
            break;
        case 1: /* heavy tails */
            x[i] = expf(2 * bell()) * (uniform() < 0.5 ? -1.0f : 1.0f);
            break;
        case 2: /* half zeros, and of BF16's values */
            x[i] = bell();
            x[i] = x[i] < 0 ? 0 : ceni_float_of_bf16(ceni_bf16_of_float(x[i]));
            break;
        default: /* an outlier */
            x[i] = bell();
            break;
        }
    }
    if (kind == 3) {
        x[n / 3] = 5000.0f;
    }
    return x;
}

static float *sample(int kind) {
    return sample_of(kind, N);
}
enum { SAMPLES = 4 };

/* ---- percentile ---- */

static int rising(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* The value that is reached, and then where its bin ends. */
static void percentiles(void **state) {
    static const double wanted[] = {1e-6, 25, 50, 60, 99, 99.9, 99.99, 99.999, 100};
    for (int kind = 0; kind < SAMPLES; kind++) {
        float *x = sample(kind);
        cen_calibration *c = of(x, N);
        for (size_t i = 0; i < N; i++) {
            x[i] = fabsf(x[i]);
        }
        qsort(x, N, sizeof *x, rising);
        for (size_t p = 0; p < sizeof wanted / sizeof *wanted; p++) {
            size_t k = 1;
            while ((double)k < wanted[p] / 100 * N) {
                k++;
            }
            float value = x[k - 1], got = threshold(c, CEN_THRESHOLD_PERCENTILE, wanted[p], NULL);
            uint32_t bin = ceni_float_bits(value) >> 14;
            float end = value > 0 ? ceni_float_of((bin + 1) << 14) : 0;
            assert_true(got == (end < x[N - 1] ? end : x[N - 1]));
            assert_true(got >= value && got <= value * (1 + 0x1p-8f));
        }
        assert_true(threshold(c, CEN_THRESHOLD_MAX, 0, NULL) == x[N - 1]);
        cen_calibration_free(c);
        free(x);
    }
}

/* ---- squared error ---- */

/* Of all elements, in the codec's own arithmetic, by the codec itself. */
static double codec_error(const cen_codec *codec, const float *x, size_t n, float amax,
                          double *sqnr) {
    float *cut = malloc((n + 1) * sizeof *cut), *back = malloc((n + 1) * sizeof *back), scale;
    uint8_t *values = malloc(n + 1);
    assert_true(cut && back && values);
    for (size_t i = 0; i < n; i++) {
        cut[i] = x[i] > amax ? amax : x[i] < -amax ? -amax : x[i];
    }
    cut[n] = amax; /* so that the codec's own amax is this */
    cen_matrix from = matrix_of(cut, n + 1), to = matrix_of(back, n + 1);
    cen_codec_parts parts = {.values = (uintptr_t)values, .scales = (uintptr_t)&scale};
    OK(cen_codec_bound(codec, 1, n + 1, &parts.bytes));
    OK(cen_codec_encode(codec, &from, &parts, NULL, NULL));
    OK(cen_codec_decode(codec, &parts, &to));
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)x[i] - back[i]) * ((double)x[i] - back[i]);
        power += (double)x[i] * x[i];
    }
    if (sqnr) {
        *sqnr = 10 * log10(power / error);
    }
    free(cut);
    free(back);
    free(values);
    return error;
}

/* No other threshold is better by more than the width of the bins explains. */
static void squared_errors(void **state) {
    static const cen_codec codecs[] = {
        {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR},
        {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_TENSOR},
        {.format = CEN_CODEC_FP8_E4M3, .granularity = CEN_CODEC_TENSOR},
        {.format = CEN_CODEC_FP8_E5M2, .granularity = CEN_CODEC_TENSOR}};
    enum { SOME = 1 << 13 };
    for (int kind = 0; kind < SAMPLES; kind++) {
        float *x = sample_of(kind, SOME);
        cen_calibration *c = of(x, SOME);
        float most = threshold(c, CEN_THRESHOLD_MAX, 0, NULL);
        for (size_t k = 0; k < 4; k++) {
            float got = threshold(c, CEN_THRESHOLD_MSE, 0, &codecs[k]);
            double error = codec_error(&codecs[k], x, SOME, got, NULL);
            assert_true(got > 0 && got <= most);
            float t = most;
            while (t > most / 4096) {
                double other = codec_error(&codecs[k], x, SOME, t, NULL);
                if (other < error * 0.9) {
                    fail_msg("sample %d, %s: %g gives %g, %g only %g", kind,
                             cen_codec_format_name(codecs[k].format), (double)t, other, (double)got,
                             error);
                }
                t *= 0.97f;
            }
        }
        cen_calibration_free(c);
        free(x);
    }
}

/* Over all thresholds that are asked, of the middles of the bins, each coded by the codec. */
static void least_of_the_bins(void **state) {
    static const cen_codec codecs[] = {
        {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_TENSOR},
        {.format = CEN_CODEC_FP8_E4M3, .granularity = CEN_CODEC_TENSOR}};
    enum { FEW = 1500 };
    for (int kind = 0; kind < SAMPLES; kind++) {
        float *x = sample_of(kind, FEW), middle[FEW + 1], back[FEW + 1], scale, best = 0;
        double count[FEW], least = INFINITY;
        cen_calibration *c = of(x, FEW);
        const uint64_t *bins = cen_calibration_bins(c, NULL);
        float most = threshold(c, CEN_THRESHOLD_MAX, 0, NULL);
        const cen_codec *codec = &codecs[kind % 2];
        size_t n = 0;
        for (size_t i = 0; i < CENI_CALIBRATE_BINS; i++) {
            if (bins[i]) {
                float m = (cen_calibration_edge(i) + cen_calibration_edge(i + 1)) / 2;
                middle[n] = m < most ? m : most;
                count[n++] = (double)bins[i];
            }
        }
        for (size_t k = 0; k < CENI_CALIBRATE_BINS && cen_calibration_edge(k) <= most; k++) {
            float end = cen_calibration_edge(k + 1), t = end < most ? end : most;
            if ((!bins[k] && k % 16) || t < most / 4096) {
                continue;
            }
            double error = 0;
            float cut[FEW + 1];
            uint8_t values[FEW + 1];
            for (size_t i = 0; i < n; i++) {
                cut[i] = middle[i] < t ? middle[i] : t;
            }
            cut[n] = t;
            cen_matrix from = matrix_of(cut, n + 1), to = matrix_of(back, n + 1);
            cen_codec_parts parts = {.values = (uintptr_t)values, .scales = (uintptr_t)&scale};
            OK(cen_codec_bound(codec, 1, n + 1, &parts.bytes));
            OK(cen_codec_encode(codec, &from, &parts, NULL, NULL));
            OK(cen_codec_decode(codec, &parts, &to));
            for (size_t i = 0; i < n; i++) {
                double e = (double)middle[i] - back[i];
                error += count[i] * e * e;
            }
            if (error < least * (1 - 1e-12)) {
                least = error;
                best = t;
            }
        }
        assert_true(threshold(c, CEN_THRESHOLD_MSE, 0, codec) == best);
        cen_calibration_free(c);
        free(x);
    }
}

/* ---- entropy ---- */

enum { GRID = 2048 };

static double slow_divergence(const double *h, int kept, int levels, double all) {
    double *p = calloc((size_t)kept, sizeof *p), *q = calloc((size_t)kept, sizeof *q), held = 0;
    assert_true(p && q);
    for (int i = 0; i < kept; i++) {
        p[i] = h[i];
        held += h[i];
    }
    for (int i = kept; i-- > 0;) {
        if (h[i] > 0) {
            p[i] += all - held > 1e-6 ? all - held : 0;
            break;
        }
    }
    for (int level = 0; level < levels; level++) {
        int from = level * kept / levels, to = (level + 1) * kept / levels, filled = 0;
        double sum = 0;
        for (int i = from; i < to; i++) {
            sum += h[i];
            filled += h[i] > 0;
        }
        for (int i = from; i < to; i++) {
            q[i] = h[i] > 0 ? sum / filled : 0;
        }
    }
    double total = 0;
    for (int i = 0; i < kept; i++) {
        if (p[i] > 0) {
            total += q[i] > 0 ? p[i] / all * (log(p[i] / all) - log(q[i] / all)) : INFINITY;
        }
    }
    free(p);
    free(q);
    return held > 0 ? total : INFINITY;
}

/* From the elements themselves, each in its grid bin. */
static double slow_entropy(const float *x, double top, int levels, int *best) {
    static double h[GRID];
    double least = INFINITY, all = 0;
    memset(h, 0, sizeof h);
    for (size_t i = 0; i < N; i++) {
        if (x[i] == 0) {
            continue;
        }
        all++;
        size_t bin = (size_t)(fabs((double)x[i]) / (top / GRID));
        if (fabs((double)x[i]) <= top) {
            h[bin < GRID ? bin : GRID - 1]++;
        }
    }
    for (int kept = levels; kept <= GRID; kept++) {
        double d = slow_divergence(h, kept, levels, all);
        if (d < least) {
            least = d;
            *best = kept;
        }
    }
    return top * *best / GRID;
}

/* The histogram's bins are wider than the grid's near its top, so that the best differs a little.
 */
static void entropies(void **state) {
    static const cen_codec int4 = {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_TENSOR};
    for (int kind = 0; kind < SAMPLES; kind++) {
        float *x = sample(kind);
        cen_calibration *c = of(x, N);
        for (int levels = 8; levels <= 128; levels += 120) {
            double wanted = threshold(c, CEN_THRESHOLD_MAX, 0, NULL);
            int best = 0;
            do {
                wanted = slow_entropy(x, wanted, levels, &best);
            } while (best == levels);
            float got = threshold(c, CEN_THRESHOLD_ENTROPY, 0, levels == 8 ? &int4 : NULL);
            print_message("sample %d, %d levels: %g, slowly %g\n", kind, levels, (double)got,
                          wanted);
            assert_true(got > wanted * 0.8 && got < wanted * 1.25);
        }
        cen_calibration_free(c);
        free(x);
    }
}

/* A histogram of counts at the grid's own bins leaves nothing to spread, and the result is that of
 * the definition, to the bit: the bins of an octave are as wide as the grid's. */
static void entropy_to_the_bin(void **state) {
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < N; i++) { /* 1 + k / 512 below 2, as in the middle of a bin, and 2 */
        double t = fabs((double)bell()) / 6;
        x[i] = (float)(1 + floor((t < 1 ? t : 0.99) * 512) / 512 + 0x1p-10);
    }
    x[0] = 2.0f;
    cen_calibration *c = of(x, N);
    static double h[GRID];
    for (size_t i = 0; i < N; i++) {
        double low = floor((double)x[i] * 512) / 512; /* two bins of the grid, half in each */
        size_t bin = (size_t)(low * 1024);
        if (bin < GRID) {
            h[bin] += 0.5;
            h[bin + 1] += 0.5;
        } else {
            h[GRID - 1]++;
        }
    }
    double least = INFINITY;
    int best = 0;
    for (int kept = 128; kept <= GRID; kept++) {
        double d = slow_divergence(h, kept, 128, N);
        if (d < least) {
            least = d;
            best = kept;
        }
    }
    float got = threshold(c, CEN_THRESHOLD_ENTROPY, 0, NULL);
    assert_true(got == (float)(2.0 * best / GRID));
    cen_calibration_free(c);
    free(x);
}

/* A picture's pixels, half of them black: few values, far apart. Nearly all cut off is as few
 * values as levels, and no way to tell them apart. */
static void entropy_of_few_values(void **state) {
    for (int values = 1; values <= 64; values *= 2) {
        float *x = malloc(N * sizeof *x);
        assert_non_null(x);
        for (size_t i = 0; i < N; i++) {
            x[i] = i % 2 ? (float)(1 + (int)(uniform() * values)) / (float)values : 0;
        }
        cen_calibration *c = of(x, N);
        float got = threshold(c, CEN_THRESHOLD_ENTROPY, 0, NULL);
        print_message("%d values and zeros, up to 1: %g\n", values, (double)got);
        assert_true(got > 0.9F && got <= 1);
        cen_calibration_free(c);
        free(x);
    }
}

/* Zeros are kept apart by any threshold, so however many there are, it is the same. */
static void entropy_without_zeros(void **state) {
    float *x = sample(0);
    cen_calibration *c = of(x, N);
    float without = threshold(c, CEN_THRESHOLD_ENTROPY, 0, NULL);
    memset(x, 0, N * sizeof *x);
    for (int i = 0; i < 3; i++) {
        cen_matrix m = matrix_of(x, N);
        OK(cen_calibration_add(c, &m));
    }
    assert_true(threshold(c, CEN_THRESHOLD_ENTROPY, 0, NULL) == without);
    cen_calibration_free(c);
    free(x);
}

/* ---- all four ---- */

/* A million values, so that int8 pays for cutting off a single one: what it costs is its square,
 * what it saves is a twelfth of a step's square for each other. */
static void outlier_table(void **state) {
    enum { MANY = 1 << 20 };
    static const cen_codec int8 = {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR};
    static const char *names[] = {"min/max", "percentile", "entropy", "squared error"};
    float *x = sample_of(3, MANY);
    double sqnr[4], clean;
    x[MANY / 3] = 90.0f;
    cen_calibration *c = of(x, MANY);
    x[MANY / 3] = 0.5f; /* how well all others are told apart */
    codec_error(&int8, x, MANY, 5.0f, &clean);
    print_message("2^20 normally distributed values and one of 90, in int8:\n");
    for (int how = 0; how < 4; how++) {
        float amax = threshold(c, (cen_threshold)how, 99.999, &int8);
        codec_error(&int8, x, MANY, amax, &sqnr[how]);
        print_message("  %-14s threshold %7.3f, the others at %5.2f dB\n", names[how], (double)amax,
                      sqnr[how]);
        assert_true(how ? amax < 20.0f : amax == 90.0f);
    }
    print_message("  %-14s threshold %7.3f, the others at %5.2f dB\n", "without it", 5.0, clean);
    assert_true(sqnr[0] < clean - 20);
    assert_true(sqnr[1] > clean - 3 && sqnr[2] > clean - 3 && sqnr[3] > clean - 11);
    cen_calibration_free(c);
    free(x);
}

static void refuses(void **state) {
    static const cen_codec fp8 = {.format = CEN_CODEC_FP8_E4M3};
    static const cen_codec zeros = {
        .format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR, .asymmetric = true};
    static const cen_codec half = {.format = CEN_CODEC_BF16};
    static const float nothing[] = {NAN, INFINITY, -INFINITY}, zero[] = {0, -0.0f};
    float amax = 3;
    cen_calibration *c = of(nothing, 3), *z = of(zero, 2);
    for (int how = 0; how < 4; how++) {
        assert_int_equal(cen_calibration_threshold(c, (cen_threshold)how, 99, NULL, &amax),
                         CEN_ERR_NOT_FOUND);
        assert_true(threshold(z, (cen_threshold)how, 99, NULL) == 0);
    }
    for (int how = 2; how < 5; how++) {
        assert_int_equal(cen_calibration_threshold(z, (cen_threshold)how, 0, &zeros, &amax),
                         CEN_ERR_INVALID);
        assert_int_equal(cen_calibration_threshold(z, (cen_threshold)how, 0, &half, &amax),
                         CEN_ERR_INVALID);
    }
    assert_int_equal(cen_calibration_threshold(z, CEN_THRESHOLD_ENTROPY, 0, &fp8, &amax),
                     CEN_ERR_INVALID);
    assert_int_equal(cen_calibration_threshold(z, CEN_THRESHOLD_PERCENTILE, 0, NULL, &amax),
                     CEN_ERR_INVALID);
    assert_int_equal(cen_calibration_threshold(z, CEN_THRESHOLD_PERCENTILE, NAN, NULL, &amax),
                     CEN_ERR_INVALID);
    assert_int_equal(cen_calibration_threshold(z, CEN_THRESHOLD_MAX, 0, NULL, NULL),
                     CEN_ERR_INVALID);
    assert_true(amax == 3);
    cen_calibration_free(c);
    cen_calibration_free(z);
}

/* Every allocation fails once; nothing is set, and nothing is lost. */
static void memory_runs_out(void **state) {
    float *x = sample_of(0, 100);
    cen_calibration *c = of(x, 100);
    for (int how = CEN_THRESHOLD_ENTROPY; how <= CEN_THRESHOLD_MSE; how++) {
        cen_status status = CEN_ERR_HOST_MEMORY;
        int n = 0;
        while (status) {
            float amax = 7;
            ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], ++n, false);
            status = cen_calibration_threshold(c, (cen_threshold)how, 0, NULL, &amax);
            ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
            assert_true(!status || (status == CEN_ERR_HOST_MEMORY && amax == 7));
        }
        assert_int_equal(n, how == CEN_THRESHOLD_MSE ? 4 : 2);
    }
    cen_calibration_free(c);
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles),
        cmocka_unit_test(squared_errors),
        cmocka_unit_test(entropies),
        cmocka_unit_test(entropy_to_the_bin),
        cmocka_unit_test(entropy_of_few_values),
        cmocka_unit_test(entropy_without_zeros),
        cmocka_unit_test(outlier_table),
        cmocka_unit_test(least_of_the_bins),
        cmocka_unit_test(refuses),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
