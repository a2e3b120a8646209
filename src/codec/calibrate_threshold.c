/* Thresholds from a calibration's histogram. */
#include "codec/calibrate.h"

#include <float.h>
#include <math.h>

#include "base/fp8.h"
#include "base/half.h"
#include "base/log.h"
#include "base/mem.h"
#include "codec/codec.h"

/* For the least squared error: how far below the largest size, and where no bins are filled, as in
 * the tail of few elements, each so many-th. */
#define OCTAVES_SEARCHED 12
#define EMPTY_APART      16

/* The size above which a bin's elements are cut off when it is the last one kept. */
static float upper_edge(size_t bin, float amax) {
    float edge = cen_calibration_edge(bin + 1);
    return edge < amax ? edge : amax;
}

static float percentile_of(const cen_calibration *c, double percentile, float amax) {
    double wanted = percentile / 100 * (double)ceni_calibration_finite(c);
    uint64_t below = c->state.zeros;
    if ((double)below >= wanted) {
        return 0;
    }
    for (size_t i = 0; i < CENI_CALIBRATE_BINS; i++) {
        below += c->state.bins[i];
        if ((double)below >= wanted) {
            return upper_edge(i, amax);
        }
    }
    return amax;
}

/* ---- the least squared error ---- */

/* The bins that are not empty, in order: their middle, count, and the sum of count * middle^2 of
 * those before. */
typedef struct filled {
    size_t count;
    size_t last; /* of the bins */
    float *x;
    double *n, *before;
} filled;

static void filled_free(filled *f) {
    ceni_free(f->x);
    ceni_free(f->n);
    ceni_free(f->before);
}

static bool filled_make(const cen_calibration *c, float amax, filled *f) {
    size_t count = 0;
    for (size_t i = 0; i < CENI_CALIBRATE_BINS; i++) {
        count += c->state.bins[i] != 0;
    }
    *f = (filled){.x = ceni_malloc(count * sizeof *f->x),
                  .n = ceni_malloc(count * sizeof *f->n),
                  .before = ceni_malloc(count * sizeof *f->before)};
    if (!f->x || !f->n || !f->before) {
        filled_free(f);
        return false;
    }
    double before = 0;
    for (size_t i = 0; i < CENI_CALIBRATE_BINS; i++) {
        if (c->state.bins[i]) {
            uint32_t half = 1u << (CENI_CALIBRATE_SHIFT - 1);
            float middle = ceni_float_of(((uint32_t)i << CENI_CALIBRATE_SHIFT) | half);
            float x = middle < amax ? middle : amax;
            f->last = i;
            f->x[f->count] = x;
            f->n[f->count] = (double)c->state.bins[i];
            f->before[f->count++] = before;
            before += (double)c->state.bins[i] * x * x;
        }
    }
    return true;
}

/* What a size becomes and comes back as, with the codec's arithmetic. */
static float there_and_back(cen_dtype kind, float x, float r, float s) {
    float t = x * r, q;
    switch (kind) {
    case CEN_FP8_E4M3:
        q = ceni_float_of_e4m3(ceni_e4m3_of_float(t, true));
        break;
    case CEN_FP8_E5M2:
        q = ceni_float_of_e5m2(ceni_e5m2_of_float(t, true));
        break;
    default:
        q = nearbyintf(t);
        q = q > ceni_codec_largest(kind) ? ceni_codec_largest(kind) : q;
        break;
    }
    return q * s > FLT_MAX ? FLT_MAX : q * s;
}

/* x * r below this becomes 0; so does a little more, which is not worth telling. */
static float surely_zero(cen_dtype kind) {
    return kind == CEN_FP8_E4M3 ? 0x1p-11f : kind == CEN_FP8_E5M2 ? 0x1p-18f : 0.25f;
}

static double error_of(const filled *f, cen_dtype kind, float threshold) {
    float s = threshold / ceni_codec_largest(kind);
    s = s < FLT_MIN ? FLT_MIN : s;
    float r = 1.0f / s, zero = surely_zero(kind) * s;
    size_t low = 0, high = f->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->x[middle] < zero) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    double error = low < f->count ? f->before[low] : INFINITY;
    for (size_t i = low; i < f->count; i++) {
        double e = (double)f->x[i] - (double)there_and_back(kind, f->x[i], r, s);
        error += f->n[i] * (e * e);
    }
    return error;
}

cen_status ceni_calibration_mse(const cen_calibration *c, cen_dtype kind, float amax,
                                float *threshold) {
    filled f;
    if (!filled_make(c, amax, &f)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_calibration_threshold: no memory");
    }
    float best = amax;
    double least = INFINITY;
    for (size_t i = 0; i <= f.last; i++) {
        float t = upper_edge(i, amax);
        bool asked = c->state.bins[i] || i % EMPTY_APART == 0;
        if (asked && t >= amax * (1.0f / (1 << OCTAVES_SEARCHED))) {
            double error = error_of(&f, kind, t);
            if (error < least) {
                least = error;
                best = t;
            }
        }
    }
    filled_free(&f);
    *threshold = best;
    return CEN_OK;
}

/* ---- all methods ---- */

/* The kind of the codec's elements, and of how many levels a magnitude is. */
static cen_status levels_of(const cen_codec *codec, cen_threshold how, cen_dtype *kind,
                            uint32_t *levels) {
    const cen_codec assumed = {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR};
    codec = codec ? codec : &assumed;
    cen_status status = cen_codec_check(codec);
    if (status) {
        return status;
    }
    cen_dtype dtype = cen_codec_format_dtype(codec->format);
    bool fp8 = ceni_codec_is_fp8(codec->format);
    if (codec->asymmetric || (!ceni_codec_is_int(codec->format) && !fp8) ||
        (fp8 && how == CEN_THRESHOLD_ENTROPY)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_threshold: codec is %s%s; %s",
                         codec->asymmetric ? "asymmetric " : "",
                         cen_codec_format_name(codec->format),
                         how == CEN_THRESHOLD_ENTROPY
                             ? "entropy is of symmetric int8 and int4, whose levels lie evenly"
                             : "the squared error is of symmetric int8, int4 and fp8");
    }
    *kind = dtype;
    *levels = dtype == CEN_INT4 ? 8 : 128;
    return CEN_OK;
}

static cen_status check(const cen_calibration *c, cen_threshold how, double percentile,
                        const float *amax) {
    if (!c || !amax) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_threshold: %s is NULL",
                         c ? "amax" : "calibration");
    }
    if (how > CEN_THRESHOLD_MSE) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_threshold: how is %d, which is none",
                         (int)how);
    }
    if (how == CEN_THRESHOLD_PERCENTILE && !(percentile > 0 && percentile <= 100)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_calibration_threshold: percentile is %g; it is over 0 to 100",
                         percentile);
    }
    if (!ceni_calibration_finite(c)) {
        return ceni_fail(CEN_ERR_NOT_FOUND,
                         "cen_calibration_threshold: of %llu elements none was finite",
                         (unsigned long long)c->state.count);
    }
    return CEN_OK;
}

cen_status cen_calibration_threshold(const cen_calibration *c, cen_threshold how, double percentile,
                                     const cen_codec *codec, float *amax) {
    cen_status status = check(c, how, percentile, amax);
    cen_dtype kind = CEN_INT8;
    uint32_t levels = 0;
    if (!status && how >= CEN_THRESHOLD_ENTROPY) {
        status = levels_of(codec, how, &kind, &levels);
    }
    if (status) {
        return status;
    }
    float most = ceni_calibration_stats_of(&c->state).amax, found = most;
    if (most > 0 && how == CEN_THRESHOLD_PERCENTILE) {
        found = percentile_of(c, percentile, most);
    } else if (most > 0 && how == CEN_THRESHOLD_ENTROPY) {
        status = ceni_calibration_entropy(c, levels, most, &found);
    } else if (most > 0 && how == CEN_THRESHOLD_MSE) {
        status = ceni_calibration_mse(c, kind, most, &found);
    }
    if (!status) {
        *amax = found;
    }
    return status;
}
