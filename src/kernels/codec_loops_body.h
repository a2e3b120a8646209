/* The bodies of codec_loops.h's loops, written so that compilers turn them into vectors; included
 * by a file for each set of instructions, which names the table LOOPS. */
#include "base/fp8.h"
#include "base/half.h"
#include "kernels/codec_loops.h"

#define MAGNITUDE 0x7FFFFFFFu
#define INFINITE  0x7F800000u
#define LARGEST   0x1.FFFFFEp127f

enum { LANES = 8 };

static void load_f16(const uint16_t *from, size_t n, float *restrict x) {
    for (size_t i = 0; i < n; i++) {
        x[i] = ceni_float_of_f16(from[i]);
    }
}

static void load_bf16(const uint16_t *from, size_t n, float *restrict x) {
    for (size_t i = 0; i < n; i++) {
        x[i] = ceni_float_of_bf16(from[i]);
    }
}

static void store_f32(const float *y, size_t n, float *restrict to) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = ceni_float_bits(y[i]);
        to[i] = ceni_float_of((bits & MAGNITUDE) > INFINITE ? MAGNITUDE : bits);
    }
}

static void store_f16(const float *y, size_t n, uint16_t *restrict to) {
    for (size_t i = 0; i < n; i++) {
        to[i] = ceni_f16_of_float(y[i]);
    }
}

static void store_bf16(const float *y, size_t n, uint16_t *restrict to) {
    for (size_t i = 0; i < n; i++) {
        to[i] = ceni_bf16_of_float(y[i]);
    }
}

/* ---- scales ---- */

static inline int32_t finite_size(float x) {
    int32_t size = (int32_t)(ceni_float_bits(x) & MAGNITUDE);
    return size < (int32_t)INFINITE ? size : 0;
}

static inline float finite(float x) {
    uint32_t bits = ceni_float_bits(x);
    return ceni_float_of((bits & MAGNITUDE) < INFINITE ? bits : 0);
}

static inline float run_largest(const float *x, size_t n) {
    int32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t size = finite_size(x[i]);
        most = size > most ? size : most;
    }
    return ceni_float_of((uint32_t)most);
}

static void largest(const float *x, size_t n, size_t width, float *restrict hi) {
    if (width == 1) {
        for (size_t i = 0; i < n; i++) {
            float size = ceni_float_of((uint32_t)finite_size(x[i]));
            hi[i] = size > hi[i] ? size : hi[i];
        }
        return;
    }
    for (size_t k = 0, at = 0; at < n; k++, at += width) {
        size_t left = n - at;
        float most = width == 32 && left >= 32 ? run_largest(x + at, 32)
                                               : run_largest(x + at, left < width ? left : width);
        hi[k] = most > hi[k] ? most : hi[k];
    }
}

/* Lanes, since a compiler keeps the order of a single chain of comparisons. */
static inline void run_extremes(const float *x, size_t n, float *lo, float *hi) {
    float low[LANES] = {0}, high[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t l = 0; l < LANES; l++) {
            float v = finite(x[i + l]);
            low[l] = v < low[l] ? v : low[l];
            high[l] = v > high[l] ? v : high[l];
        }
    }
    for (; i < n; i++) {
        float v = finite(x[i]);
        low[0] = v < low[0] ? v : low[0];
        high[0] = v > high[0] ? v : high[0];
    }
    for (size_t l = 0; l < LANES; l++) {
        *lo = low[l] < *lo ? low[l] : *lo;
        *hi = high[l] > *hi ? high[l] : *hi;
    }
}

static void extremes(const float *x, size_t n, size_t width, float *restrict lo,
                     float *restrict hi) {
    if (width == 1) {
        for (size_t i = 0; i < n; i++) {
            float v = finite(x[i]);
            lo[i] = v < lo[i] ? v : lo[i];
            hi[i] = v > hi[i] ? v : hi[i];
        }
        return;
    }
    for (size_t k = 0, at = 0; at < n; k++, at += width) {
        run_extremes(x + at, n - at < width ? n - at : width, &lo[k], &hi[k]);
    }
}

static void inverse(const float *s, size_t n, float *restrict r) {
    for (size_t i = 0; i < n; i++) {
        r[i] = 1.0f / s[i];
    }
}

/* ---- codes ---- */

/* To the nearest integer, ties to even, for |t| < 2^22: beside 1.5 * 2^23 a float's last bit is 1.
 */
static inline int32_t rounded(float t) {
    return (int32_t)(ceni_float_bits(t + 0x1.8p23f) - 0x4B400000u);
}

static inline float cut(float t, float end) {
    t = t > end ? end : t;
    t = t < -end ? -end : t;
    return t != t ? 0.0f : t;
}

static void to_int(const float *x, const float *r, size_t n, float end, int8_t *restrict q) {
    for (size_t i = 0; i < n; i++) {
        q[i] = (int8_t)rounded(cut(x[i] * r[i], end));
    }
}

static void to_int_zero(const float *x, const float *r, const int32_t *z, size_t n, int32_t high,
                        int8_t *restrict q) {
    for (size_t i = 0; i < n; i++) {
        int32_t v = rounded(cut(x[i] * r[i], 1024.0f)) + z[i];
        v = v > high ? high : v;
        q[i] = (int8_t)(v < -high - 1 ? -high - 1 : v);
    }
}

static void to_e4m3(const float *x, const float *r, size_t n, bool saturate, uint8_t *restrict q) {
    for (size_t i = 0; i < n; i++) {
        q[i] = ceni_e4m3_of_float(x[i] * r[i], saturate);
    }
}

static void to_e5m2(const float *x, const float *r, size_t n, bool saturate, uint8_t *restrict q) {
    for (size_t i = 0; i < n; i++) {
        q[i] = ceni_e5m2_of_float(x[i] * r[i], saturate);
    }
}

static void to_f16(const float *x, size_t n, bool saturate, uint16_t *restrict q) {
    uint32_t infinite = saturate ? 0x7C00u : 0x10000u;
    for (size_t i = 0; i < n; i++) {
        uint32_t code = ceni_f16_of_float(x[i]);
        q[i] = (uint16_t)((code & 0x7FFFu) == infinite ? code - 1 : code);
    }
}

static void to_bf16(const float *x, size_t n, bool saturate, uint16_t *restrict q) {
    uint32_t infinite = saturate ? 0x7F80u : 0x10000u;
    for (size_t i = 0; i < n; i++) {
        uint32_t code = ceni_bf16_of_float(x[i]);
        q[i] = (uint16_t)((code & 0x7FFFu) == infinite ? code - 1 : code);
    }
}

static inline float back(float value, float s) {
    float y = value * s;
    y = y > LARGEST ? LARGEST : y;
    return y < -LARGEST ? -LARGEST : y;
}

static void of_int(const int8_t *q, const float *s, const int32_t *z, size_t n, float *restrict y) {
    for (size_t i = 0; i < n; i++) {
        y[i] = back((float)(q[i] - z[i]), s[i]);
    }
}

static void of_e4m3(const uint8_t *q, const float *s, size_t n, float *restrict y) {
    for (size_t i = 0; i < n; i++) {
        y[i] = back(ceni_float_of_e4m3(q[i]), s[i]);
    }
}

static void of_e5m2(const uint8_t *q, const float *s, size_t n, float *restrict y) {
    for (size_t i = 0; i < n; i++) {
        float v = ceni_float_of_e5m2(q[i]), scaled = back(v, s[i]);
        y[i] = (q[i] & 0x7Fu) == 0x7Cu ? v : scaled;
    }
}

static void pack(const int8_t *q, size_t n, uint8_t *restrict to) {
    for (size_t i = 0; i < n / 2; i++) {
        to[i] = (uint8_t)((q[2 * i] & 15) | (q[2 * i + 1] & 15) << 4);
    }
    if (n % 2) {
        to[n / 2] = (uint8_t)(q[n - 1] & 15);
    }
}

static void unpack(const uint8_t *from, size_t n, int8_t *restrict q) {
    for (size_t i = 0; i < n / 2; i++) {
        q[2 * i] = (int8_t)((from[i] & 15) - 2 * (from[i] & 8));
        q[2 * i + 1] = (int8_t)((from[i] >> 4) - 2 * (from[i] >> 4 & 8));
    }
    if (n % 2) {
        q[n - 1] = (int8_t)((from[n / 2] & 15) - 2 * (from[n / 2] & 8));
    }
}

/* ---- 2:4 ---- */

/* The nibble for each set of kept elements (bit i: the i-th); under two, the canonical pair. */
static const uint8_t pair_of[16] = {0xE, 0xC, 0xD, 0x4, 0xE, 0x8, 0x9, 0, 0xE, 0xC, 0xD, 0, 0xE};

/* Sizes are compared as integers, so that infinity is larger than any number and NaN than all. */
static bool prune(const float *x, size_t n, float *restrict kept, uint8_t *restrict nibbles) {
    uint32_t dense = 0;
    for (size_t g = 0; g < (n + 3) / 4; g++) {
        const float *v = x + 4 * g;
        uint32_t a = ceni_float_bits(v[0]) & MAGNITUDE, b = ceni_float_bits(v[1]) & MAGNITUDE;
        uint32_t c = ceni_float_bits(v[2]) & MAGNITUDE, d = ceni_float_bits(v[3]) & MAGNITUDE;
        /* Each comparison beats one of two; of equal ones the later. */
        uint32_t ab = a < b, ac = a < c, ad = a < d, bc = b < c, bd = b < d, cd = c < d;
        uint32_t mask =
            (uint32_t)(ab + ac + ad < 2 && a) | (uint32_t)(!ab + bc + bd < 2 && b) << 1 |
            (uint32_t)(!ac + !bc + cd < 2 && c) << 2 | (uint32_t)(!ad + !bd + !cd < 2 && d) << 3;
        dense |= (uint32_t)((a > 0) + (b > 0) + (c > 0) + (d > 0) > 2);
        uint8_t pair = pair_of[mask];
        nibbles[g] = pair;
        kept[2 * g] = v[pair & 3];
        kept[2 * g + 1] = v[pair >> 2];
    }
    return !dense;
}

/* ---- sums ---- */

typedef struct lanes {
    double largest[LANES], most[LANES], error[LANES], error2[LANES], x2[LANES], y2[LANES],
        xy[LANES];
    uint32_t nan[LANES], infinite[LANES], saturated[LANES], overflowed[LANES], underflowed[LANES];
} lanes;

static inline void sum_one(lanes *to, size_t l, float x, float t, float y, float limit) {
    uint32_t x_size = ceni_float_bits(x) & MAGNITUDE, y_size = ceni_float_bits(y) & MAGNITUDE;
    uint32_t good = x_size < INFINITE && y_size < INFINITE;
    float t_size = ceni_float_of(ceni_float_bits(t) & MAGNITUDE);
    to->nan[l] += x_size > INFINITE;
    to->infinite[l] += x_size == INFINITE;
    to->saturated[l] += (t_size > limit) & (y_size < INFINITE);
    to->overflowed[l] += (x_size < INFINITE) & (y_size >= INFINITE);
    to->underflowed[l] += (x_size - 1 < INFINITE - 1) & !y_size;
    double a = ceni_float_of(good ? ceni_float_bits(x) : 0);
    double b = ceni_float_of(good ? ceni_float_bits(y) : 0);
    double size = a < 0 ? -a : a, e = a - b;
    e = e < 0 ? -e : e;
    to->largest[l] = size > to->largest[l] ? size : to->largest[l];
    to->most[l] = e > to->most[l] ? e : to->most[l];
    to->error[l] += e;
    to->error2[l] += e * e;
    to->x2[l] += a * a;
    to->y2[l] += b * b;
    to->xy[l] += a * b;
}

static void sums(const float *x, const float *r, const float *y, size_t n, float limit,
                 ceni_codec_sums *restrict to) {
    lanes s;
    memset(&s, 0, sizeof s);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t l = 0; l < LANES; l++) {
            sum_one(&s, l, x[i + l], x[i + l] * r[i + l], y[i + l], limit);
        }
    }
    for (; i < n; i++) {
        sum_one(&s, 0, x[i], x[i] * r[i], y[i], limit);
    }
    for (size_t l = 0; l < LANES; l++) {
        to->nan += s.nan[l];
        to->infinite += s.infinite[l];
        to->saturated += s.saturated[l];
        to->overflowed += s.overflowed[l];
        to->underflowed += s.underflowed[l];
        to->largest = s.largest[l] > to->largest ? s.largest[l] : to->largest;
        to->max_error = s.most[l] > to->max_error ? s.most[l] : to->max_error;
        to->error += s.error[l];
        to->error2 += s.error2[l];
        to->x2 += s.x2[l];
        to->y2 += s.y2[l];
        to->xy += s.xy[l];
    }
    to->count += n;
}

const ceni_codec_loops LOOPS = {
    .load_f16 = load_f16,
    .load_bf16 = load_bf16,
    .store_f32 = store_f32,
    .store_f16 = store_f16,
    .store_bf16 = store_bf16,
    .extremes = extremes,
    .largest = largest,
    .inverse = inverse,
    .to_int = to_int,
    .to_int_zero = to_int_zero,
    .to_e4m3 = to_e4m3,
    .to_e5m2 = to_e5m2,
    .to_f16 = to_f16,
    .to_bf16 = to_bf16,
    .of_int = of_int,
    .of_e4m3 = of_e4m3,
    .of_e5m2 = of_e5m2,
    .pack = pack,
    .unpack = unpack,
    .prune = prune,
    .sums = sums,
};
