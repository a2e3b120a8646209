/* The bodies of codec_loops.h's loops, written so that compilers turn them into vectors; included
 * by a file for each set of instructions, which names the table LOOPS, what runs it has RUNS, and
 * PRUNE and EXPAND if it has better ones. */
#include "base/fp8.h"
#include "base/half.h"
#include "kernels/codec_loops.h"

#define MAGNITUDE 0x7FFFFFFFu
#define INFINITE  0x7F800000u
#define LARGEST   0x1.FFFFFEp127f

enum { STEP = 32 }; /* a loop of so many has no head and no tail */

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
        size_t end = n - at < width ? n : at + width, i = at;
        float most = 0;
        for (; i + STEP <= end; i += STEP) {
            float size = run_largest(x + i, STEP);
            most = size > most ? size : most;
        }
        float size = run_largest(x + i, end - i);
        most = size > most ? size : most;
        hi[k] = most > hi[k] ? most : hi[k];
    }
}

/* Finite floats in the order of integers, since a compiler keeps the order of comparisons of
 * floats; the same turns them back. -0 is below 0, which makes no difference to a scale. */
static inline int32_t ordered(int32_t bits) {
    return bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1);
}

static inline void run_extremes(const float *x, size_t n, float *lo, float *hi) {
    int32_t low = 0, high = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t v = ordered((int32_t)ceni_float_bits(finite(x[i])));
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    float least = ceni_float_of((uint32_t)ordered(low)), most = ceni_float_of((uint32_t)high);
    *lo = least < *lo ? least : *lo;
    *hi = most > *hi ? most : *hi;
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

static void spread(const float *s, const float *r, size_t units, size_t width,
                   float *restrict all_s, float *restrict all_r) {
    for (size_t k = 0, at = 0; k < units; k++) {
        for (size_t end = at + width; at < end; at += STEP) {
            for (size_t i = 0; i < STEP; i++) {
                all_s[at + i] = s[k];
                all_r[at + i] = r[k];
            }
        }
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

static inline int32_t with_zero(float x, float r, int32_t z) {
    return rounded(cut(x * r, 1024.0f)) + z;
}

static void to_int_zero(const float *x, const float *r, const int32_t *z, size_t n, int32_t high,
                        int8_t *restrict q) {
    for (size_t i = 0; i < n; i++) {
        int32_t v = with_zero(x[i], r[i], z[i]);
        v = v > high ? high : v;
        q[i] = (int8_t)(v < -high - 1 ? -high - 1 : v);
    }
}

static uint64_t cut_by_zero(const float *x, const float *r, const int32_t *z, size_t n,
                            int32_t high) {
    uint32_t beyond = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t v = with_zero(x[i], r[i], z[i]);
        beyond += (v > high) | (v < -high - 1);
    }
    return beyond;
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

static void split(const uint16_t *from, size_t n, uint8_t *restrict exponents,
                  uint8_t *restrict rest) {
    for (size_t i = 0; i < n; i++) {
        exponents[i] = (uint8_t)(from[i] >> 7);
        rest[i] = (uint8_t)((from[i] >> 8 & 0x80) | (from[i] & 0x7F));
    }
}

static void join(const uint8_t *exponents, const uint8_t *rest, size_t n, uint16_t *restrict to) {
    for (size_t i = 0; i < n; i++) {
        to[i] = (uint16_t)((rest[i] & 0x80) << 8 | exponents[i] << 7 | (rest[i] & 0x7F));
    }
}

#ifndef PRUNE
/* ---- 2:4 ---- */

/* The nibble for each set of kept elements (bit i: the i-th), from the lowest on; under two, the
 * canonical pair. */
#define PAIRS_LOW  0x098E4DCEu /* of sets without the last */
#define PAIRS_HIGH 0x000E0DCEu

static inline float pick(const float *v, uint32_t index) {
    float low = index & 1 ? v[1] : v[0], high = index & 1 ? v[3] : v[2];
    return index & 2 ? high : low;
}

/* Sizes are compared as integers, so that infinity is larger than any number and NaN than all. */
static bool prune(const float *x, size_t n, float *restrict kept, uint8_t *restrict nibbles) {
    uint32_t dense = 0;
    for (size_t g = 0; g < (n + 3) / 4; g++) {
        const float *v = x + 4 * g;
        int32_t a = (int32_t)(ceni_float_bits(v[0]) & MAGNITUDE);
        int32_t b = (int32_t)(ceni_float_bits(v[1]) & MAGNITUDE);
        int32_t c = (int32_t)(ceni_float_bits(v[2]) & MAGNITUDE);
        int32_t d = (int32_t)(ceni_float_bits(v[3]) & MAGNITUDE);
        /* Each comparison beats one of two; of equal ones the later. */
        uint32_t ab = a < b, ac = a < c, ad = a < d, bc = b < c, bd = b < d, cd = c < d;
        uint32_t of_a = a > 0, of_b = b > 0, of_c = c > 0, of_d = d > 0;
        uint32_t mask = (of_a & (ab + ac + ad < 2)) | (of_b & (1 - ab + bc + bd < 2)) << 1 |
                        (of_c & (2 - ac - bc + cd < 2)) << 2 | (of_d & (3 - ad - bd - cd < 2)) << 3;
        uint32_t pairs = mask & 8 ? PAIRS_HIGH : PAIRS_LOW, pair = pairs >> (mask & 7) * 4 & 15;
        dense |= of_a + of_b + of_c + of_d > 2;
        nibbles[g] = (uint8_t)pair;
        kept[2 * g] = pick(v, pair & 3);
        kept[2 * g + 1] = pick(v, pair >> 2);
    }
    return !dense;
}

static void expand(const float *kept, const uint8_t *nibbles, size_t groups, float *restrict all) {
    memset(all, 0, groups * 4 * sizeof *all);
    for (size_t g = 0; g < groups; g++) {
        all[4 * g + (nibbles[g] & 3)] = kept[2 * g];
        all[4 * g + (nibbles[g] >> 2)] = kept[2 * g + 1];
    }
}

#define PRUNE  prune
#define EXPAND expand
#endif

/* ---- sums ---- */

/* Of doubles, side by side: the order of additions is the same whatever they are compiled for, and
 * in codec_runs_avx2.c. */
typedef float lane_f32 __attribute__((vector_size(16)));
typedef int32_t lane_i32 __attribute__((vector_size(16)));
typedef double lane_f64 __attribute__((vector_size(32)));
typedef int64_t lane_i64 __attribute__((vector_size(32)));
enum { LANES = 4, HALVES = 2 };

#define LANE_MOST(a, b) ((lane_f64)((((a) > (b)) & (lane_i64)(a)) | (~((a) > (b)) & (lane_i64)(b))))
#define LANE_SIZE(a)    ((lane_f64)((lane_i64)(a)&INT64_MAX))

static void count(const float *x, const float *r, const float *y, size_t n, float limit,
                  ceni_codec_sums *restrict to) {
    uint32_t nan = 0, infinite = 0, saturated = 0, overflowed = 0, underflowed = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t x_size = (int32_t)(ceni_float_bits(x[i]) & MAGNITUDE);
        int32_t y_size = (int32_t)(ceni_float_bits(y[i]) & MAGNITUDE);
        float t = ceni_float_of(ceni_float_bits(x[i] * r[i]) & MAGNITUDE);
        uint32_t finite_y = y_size < (int32_t)INFINITE, finite_x = x_size < (int32_t)INFINITE;
        nan += x_size > (int32_t)INFINITE;
        infinite += x_size == (int32_t)INFINITE;
        saturated += (t > limit) & finite_y;
        overflowed += finite_x & !finite_y;
        underflowed += (x_size > 0) & finite_x & (y_size == 0);
    }
    to->count += n;
    to->nan += nan;
    to->infinite += infinite;
    to->saturated += saturated;
    to->overflowed += overflowed;
    to->underflowed += underflowed;
}

typedef struct lane_sums {
    lane_f64 largest, most, error, error2, x2, y2, xy;
} lane_sums;

static inline void sum_lanes(const float *x, const float *y, lane_sums *s) {
    lane_i32 a_bits, b_bits;
    memcpy(&a_bits, x, sizeof a_bits);
    memcpy(&b_bits, y, sizeof b_bits);
    lane_i32 good = ((a_bits & (int32_t)MAGNITUDE) < (int32_t)INFINITE) &
                    ((b_bits & (int32_t)MAGNITUDE) < (int32_t)INFINITE);
    lane_f64 a = __builtin_convertvector((lane_f32)(a_bits & good), lane_f64);
    lane_f64 b = __builtin_convertvector((lane_f32)(b_bits & good), lane_f64);
    lane_f64 e = LANE_SIZE(a - b), size = LANE_SIZE(a);
    s->largest = LANE_MOST(size, s->largest);
    s->most = LANE_MOST(e, s->most);
    s->error += e;
    s->error2 += e * e;
    s->x2 += a * a;
    s->y2 += b * b;
    s->xy += a * b;
}

static void add_lanes(const lane_sums *s, ceni_codec_sums *restrict to) {
    for (int l = 0; l < LANES; l++) {
        to->largest = s->largest[l] > to->largest ? s->largest[l] : to->largest;
        to->max_error = s->most[l] > to->max_error ? s->most[l] : to->max_error;
        to->error += s->error[l];
        to->error2 += s->error2[l];
        to->x2 += s->x2[l];
        to->y2 += s->y2[l];
        to->xy += s->xy[l];
    }
}

static void sums(const float *x, const float *r, const float *y, size_t n, float limit,
                 ceni_codec_sums *restrict to) {
    float last_x[HALVES * LANES] = {0}, last_y[HALVES * LANES] = {0};
    lane_sums s[HALVES];
    memset(s, 0, sizeof s);
    size_t i = 0;
    for (; i + HALVES * LANES <= n; i += HALVES * LANES) {
        sum_lanes(x + i, y + i, &s[0]);
        sum_lanes(x + i + LANES, y + i + LANES, &s[1]);
    }
    memcpy(last_x, x + i, (n - i) * sizeof *x);
    memcpy(last_y, y + i, (n - i) * sizeof *y);
    for (size_t h = 0; h < HALVES; h++) {
        sum_lanes(last_x + h * LANES, last_y + h * LANES, &s[h]);
        add_lanes(&s[h], to);
    }
    count(x, r, y, n, limit, to);
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
    .spread = spread,
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
    .split = split,
    .join = join,
    .prune = PRUNE,
    .expand = EXPAND,
    .cut_by_zero = cut_by_zero,
    .sums = sums,
    .runs = RUNS,
};
