/* Scales and zero points on the host. */
#include "kernels/codec_tile.h"

#include <math.h>

enum { STEP = CENI_CODEC_STEP };

void ceni_codec_load(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t row,
                     uint64_t col, size_t n, float *x) {
    uint64_t at = row * job->stride + col;
    if (job->dtype == CEN_FP32) {
        memcpy(x, (const float *)(uintptr_t)job->matrix + at, n * sizeof *x);
    } else if (job->dtype == CEN_FP16) {
        loops->load_f16((const uint16_t *)(uintptr_t)job->matrix + at, n, x);
    } else {
        loops->load_bf16((const uint16_t *)(uintptr_t)job->matrix + at, n, x);
    }
}

static float at_least(float s) {
    return s < 0x1p-126f ? 0x1p-126f : s;
}

void ceni_codec_scale_unit(const ceni_codec_job *job, uint64_t unit, float lo, float hi) {
    float s;
    if (ceni_codec_is(job, CENI_CODEC_ASYMMETRIC)) {
        float high = hi / job->divisor, low = lo / job->divisor;
        s = at_least(high - low);
        float r = 1.0f / s;
        *(int8_t *)(uintptr_t)(job->zeros + unit) = (int8_t)((float)job->low - nearbyintf(lo * r));
    } else {
        s = at_least(hi / job->divisor);
    }
    memcpy((void *)(uintptr_t)(job->scales + unit * sizeof s), &s, sizeof s);
}

/* Widens to n elements from (row, col) on, units of `width` beginning with the first. Whole vectors
 * of them are read where they lie. */
static void widen(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t row,
                  uint64_t col, size_t n, size_t width, float *lo, float *hi) {
    float x[CENI_CODEC_TILE];
    size_t whole = !loops->runs ? 0 : width >= n ? n - n % STEP : width % STEP ? 0 : n - n % width;
    bool both = ceni_codec_is(job, CENI_CODEC_ASYMMETRIC);
    if (whole) {
        const ceni_codec_source_loops *source = &loops->runs->source[ceni_codec_source(job)];
        const void *from = ceni_codec_element(job, row, col);
        if (both) {
            source->extremes(from, whole, width, lo, hi);
        } else {
            source->largest(from, whole, width, hi);
        }
        lo += whole / width;
        hi += whole / width;
    }
    if (n > whole) {
        ceni_codec_load(loops, job, row, col + whole, n - whole, x);
        if (both) {
            loops->extremes(x, n - whole, width, lo, hi);
        } else {
            loops->largest(x, n - whole, width, hi);
        }
    }
}

void ceni_codec_widen(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t row,
                      uint64_t col, size_t n, float *lo, float *hi) {
    widen(loops, job, row, col, n, CENI_CODEC_TILE, lo, hi);
}

/* Units of rows first..last that lie side by side and fit into a tile, or one that is wider. */
static void scale_stripe(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t first,
                         uint64_t last, uint64_t col, uint64_t end) {
    float lo[CENI_CODEC_TILE], hi[CENI_CODEC_TILE];
    size_t width = (size_t)ceni_codec_least(job->unit_cols, CENI_CODEC_TILE);
    size_t units = (size_t)((end - col + job->unit_cols - 1) / job->unit_cols);
    memset(lo, 0, units * sizeof *lo);
    memset(hi, 0, units * sizeof *hi);
    /* From the last row on, so that the first ones are in a cache when they are encoded. */
    for (uint64_t row = last; row-- > first;) {
        for (uint64_t at = col; at < end; at += CENI_CODEC_TILE) {
            size_t n = (size_t)ceni_codec_least(end - at, CENI_CODEC_TILE);
            widen(loops, job, row, at, n, width, lo, hi);
        }
    }
    uint64_t unit = first / job->unit_rows * job->units_across + col / job->unit_cols;
    for (size_t k = 0; k < units; k++) {
        ceni_codec_scale_unit(job, unit + k, lo[k], hi[k]);
    }
}

void ceni_codec_scale_band(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t row) {
    uint64_t first = row / job->unit_rows * job->unit_rows;
    uint64_t last = first + ceni_codec_least(job->unit_rows, job->rows - first);
    uint64_t across = job->unit_cols < CENI_CODEC_TILE ? CENI_CODEC_TILE / job->unit_cols : 1;
    uint64_t step = across * job->unit_cols;
    for (uint64_t col = 0, left = job->cols; left; col += step) {
        uint64_t n = ceni_codec_least(left, step);
        scale_stripe(loops, job, first, last, col, col + n);
        left -= n;
    }
}
