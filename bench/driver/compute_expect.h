/* What bench_compute expects: elements as doubles, and rows worked out in doubles. */
#ifndef CENOTE_BENCH_COMPUTE_EXPECT_H
#define CENOTE_BENCH_COMPUTE_EXPECT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cenote/dtype.h"

static inline double tolerance(cen_dtype dtype) {
    return dtype == CEN_FP32 ? 2e-5 : dtype == CEN_FP16 ? 2e-3 : 1.6e-2;
}

static inline double value_of(const uint8_t *at, cen_dtype dtype) {
    uint32_t bits = 0;
    float value;
    memcpy(&bits, at, cen_dtype_bits(dtype) / 8);
    if (dtype == CEN_FP16) {
        int exponent = (int)(bits >> 10 & 31);
        double size =
            exponent ? ldexp(1024 + (bits & 1023), exponent - 25) : ldexp(bits & 1023, -24);
        return bits >> 15 ? -size : size;
    }
    bits = dtype == CEN_BF16 ? bits << 16 : bits;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double gelu_tanh(double x) {
    return x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979324) * (x + 0.044715 * x * x * x)));
}

/* A row's mean, and 1 / its spread. */
static inline void moments(const double *x, uint64_t count, double *mean, double *rstd) {
    double squares = 0;
    *mean = 0;
    for (uint64_t j = 0; j < count; j++) {
        *mean += x[j] / (double)count;
    }
    for (uint64_t j = 0; j < count; j++) {
        squares += (x[j] - *mean) * (x[j] - *mean) / (double)count;
    }
    *rstd = 1 / sqrt(squares + 1e-5);
}

static inline void expect_softmax(const double *x, uint64_t count, double *expected) {
    double most = -INFINITY, total = 0;
    for (uint64_t j = 0; j < count; j++) {
        most = x[j] > most ? x[j] : most;
    }
    for (uint64_t j = 0; j < count; j++) {
        expected[j] = exp(x[j] - most);
        total += expected[j];
    }
    for (uint64_t j = 0; j < count; j++) {
        expected[j] /= total;
    }
}

static inline void expect_back(const double *x, const double *dy, const double *gamma,
                               uint64_t count, double *expected) {
    double mean, rstd, mean_g = 0, mean_gh = 0;
    moments(x, count, &mean, &rstd);
    for (uint64_t j = 0; j < count; j++) {
        double g = dy[j] * gamma[j], h = (x[j] - mean) * rstd;
        mean_g += g / (double)count;
        mean_gh += g * h / (double)count;
    }
    for (uint64_t j = 0; j < count; j++) {
        double h = (x[j] - mean) * rstd;
        expected[j] = rstd * (dy[j] * gamma[j] - mean_g - h * mean_gh);
    }
}

#endif
