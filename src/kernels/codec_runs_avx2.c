/* Compiled with -mavx2 -mfma (CMakeLists.txt). */
#if defined(__x86_64__)
#include "kernels/codec_runs.h"
#include "kernels/codec_vectors.h"

enum { STEP = CENI_CODEC_STEP };

static inline size_t end_of(const ceni_codec_run *run, size_t from) {
    return run->n - from < run->width ? run->n : from + run->width;
}

VECTOR_INLINE v_unit unit_of(const ceni_codec_run *run, size_t k, uint32_t kind) {
    v_unit u = {.saturate = run->saturate};
    if (kind > CENI_CODEC_BF16) {
        u.s = _mm256_set1_ps(run->s[k]);
        u.r = _mm256_set1_ps(run->r[k]);
        u.z = _mm256_set1_epi32(run->z ? run->z[k] : 0);
    }
    return u;
}

VECTOR_INLINE __m256 scaled(__m256 x, const v_unit *u, uint32_t kind) {
    return kind > CENI_CODEC_BF16 ? _mm256_mul_ps(x, u->r) : x;
}

/* Has what lies `ahead` bytes behind elements i..i+31 come from memory, if there is such. */
VECTOR_INLINE void fetch(const void *from, size_t i, size_t ahead, cen_dtype dtype) {
    size_t bytes = dtype == CEN_FP32 ? 4 : 2;
    v_fetch(from, i * bytes + ahead);
    if (dtype == CEN_FP32) {
        v_fetch(from, i * bytes + ahead + 64);
    }
}

VECTOR_INLINE void encode(const ceni_codec_run *run, cen_dtype dtype, uint32_t kind, bool zero) {
    for (size_t i = 0, k = 0; i < run->n; k++) {
        v_unit u = unit_of(run, k, kind);
        for (size_t end = end_of(run, i); i < end; i += STEP) {
            __m256i code[4];
            fetch(run->matrix, i, run->ahead, dtype);
            for (size_t j = 0; j < 4; j += 2) {
                __m256 x, next;
                v_load_two(run->matrix, i + 8 * j, dtype, &x, &next);
                code[j] = v_encode(scaled(x, &u, kind), &u, kind, zero);
                code[j + 1] = v_encode(scaled(next, &u, kind), &u, kind, zero);
            }
            v_put_codes(run->values, i, code, kind, dtype != CEN_FP32);
        }
    }
}

VECTOR_INLINE void decode_unit(const ceni_codec_run *run, size_t i, size_t end, v_unit u,
                               cen_dtype dtype, uint32_t kind, bool tame) {
    for (; i < end; i += STEP) {
        __m256 y[4];
        size_t at = kind <= CENI_CODEC_BF16 ? 2 * i : kind == CENI_CODEC_INT4 ? i / 2 : i;
        v_fetch(run->values, at + CENI_CODEC_AHEAD);
        v_numbers(run->values, i, _mm256_cvtepi32_ps(u.z), kind, y);
        for (size_t j = 0; j < 4; j++) {
            y[j] = v_scaled(y[j], u.s, kind, tame);
        }
        bool numbers = tame && kind >= CENI_CODEC_INT8;
        v_store(run->matrix, i, y[0], y[1], dtype, numbers);
        v_store(run->matrix, i + 16, y[2], y[3], dtype, numbers);
    }
}

VECTOR_INLINE void decode(const ceni_codec_run *run, cen_dtype dtype, uint32_t kind) {
    for (size_t i = 0, k = 0; i < run->n; k++) {
        size_t end = end_of(run, i);
        v_unit u = unit_of(run, k, kind);
        if (kind <= CENI_CODEC_BF16 || v_is_tame(run->s[k], kind)) {
            decode_unit(run, i, end, u, dtype, kind, true);
        } else {
            decode_unit(run, i, end, u, dtype, kind, false);
        }
        i = end;
    }
}

/* ---- sums ---- */

/* Of finite elements, in the lanes that codec_loops_body.h adds up in. A product of two floats is
 * exact in a double, so that its fused sum is the same as the two operations. */
typedef struct sums {
    __m256d max_error, error[2], error2[2], x2[2], y2[2], xy[2];
} sums;

/* What is counted: the largest x, as bits; t beyond the limit; y and x that are 0. */
typedef struct counts {
    int32_t largest;
    uint64_t saturated, underflowed;
} counts;

VECTOR_INLINE void add_half(sums *s, size_t h, __m256d x, __m256d y) {
    __m256d e = _mm256_andnot_pd(_mm256_set1_pd(-0.0), _mm256_sub_pd(x, y));
    s->max_error = _mm256_max_pd(e, s->max_error);
    s->error[h] = _mm256_add_pd(s->error[h], e);
    s->error2[h] = _mm256_add_pd(s->error2[h], _mm256_mul_pd(e, e));
    s->x2[h] = _mm256_fmadd_pd(x, x, s->x2[h]);
    s->y2[h] = _mm256_fmadd_pd(y, y, s->y2[h]);
    s->xy[h] = _mm256_fmadd_pd(x, y, s->xy[h]);
}

static uint64_t count_of(__m256i less) {
    int32_t lane[8], all = 0;
    _mm256_storeu_si256((__m256i_u *)lane, less);
    for (int i = 0; i < 8; i++) {
        all -= lane[i];
    }
    return (uint64_t)all;
}

static int32_t most_of(__m256i sizes) {
    int32_t lane[8], most = 0;
    _mm256_storeu_si256((__m256i_u *)lane, sizes);
    for (int i = 0; i < 8; i++) {
        most = lane[i] > most ? lane[i] : most;
    }
    return most;
}

static void add_lanes(double *to, const __m256d *halves) {
    double lane[8];
    _mm256_storeu_pd(lane, halves[0]);
    _mm256_storeu_pd(lane + 4, halves[1]);
    for (int i = 0; i < 8; i++) {
        *to += lane[i];
    }
}

static void largest_lane(double *to, __m256d lanes) {
    double lane[4];
    _mm256_storeu_pd(lane, lanes);
    for (int i = 0; i < 4; i++) {
        *to = lane[i] > *to ? lane[i] : *to;
    }
}

VECTOR_INLINE counts count(const ceni_codec_run *run, const float *y, cen_dtype dtype, bool cuts) {
    __m256 none = _mm256_setzero_ps(), limit = _mm256_set1_ps(run->limit);
    __m256i largest = _mm256_setzero_si256(), cut = largest, kept = largest, zero = largest;
    for (size_t i = 0, k = 0; i < run->n; k++) {
        __m256 r = _mm256_set1_ps(run->r[k]);
        for (size_t end = end_of(run, i); i < end; i += 8) {
            __m256 x = v_load(run->matrix, i, dtype), back = _mm256_loadu_ps(y + i);
            __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
            __m256 lost = _mm256_cmp_ps(back, none, _CMP_EQ_OQ);
            largest = _mm256_max_epi32(largest, _mm256_castps_si256(size));
            kept = _mm256_add_epi32(kept, _mm256_castps_si256(lost));
            zero = _mm256_add_epi32(zero, _mm256_castps_si256(_mm256_cmp_ps(x, none, _CMP_EQ_OQ)));
            if (cuts) {
                __m256 beyond = _mm256_cmp_ps(_mm256_mul_ps(size, r), limit, _CMP_GT_OQ);
                cut = _mm256_add_epi32(cut, _mm256_castps_si256(beyond));
            }
        }
    }
    return (counts){most_of(largest), count_of(cut), count_of(kept) - count_of(zero)};
}

/* Without given scales elements are cut only where there are none, and then the largest says so. */
VECTOR_INLINE bool add(const ceni_codec_run *run, const float *y, ceni_codec_sums *to,
                       cen_dtype dtype) {
    counts c = run->given ? count(run, y, dtype, true) : count(run, y, dtype, false);
    float size = ceni_float_of((uint32_t)c.largest);
    if (c.largest >= 0x7F800000 || (run->unscaled && size > run->limit)) {
        return false;
    }
    sums s;
    memset(&s, 0, sizeof s);
    for (size_t i = 0; i < run->n; i += 8) {
        __m256 x = v_load(run->matrix, i, dtype);
        if (i % STEP == 0) {
            fetch(run->matrix, i, run->ahead, dtype);
        }
        add_half(&s, 0, _mm256_cvtps_pd(_mm256_castps256_ps128(x)),
                 _mm256_cvtps_pd(_mm_loadu_ps(y + i)));
        add_half(&s, 1, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)),
                 _mm256_cvtps_pd(_mm_loadu_ps(y + i + 4)));
    }
    to->count += run->n;
    to->saturated += c.saturated;
    to->underflowed += c.underflowed;
    to->largest = size > to->largest ? size : to->largest;
    largest_lane(&to->max_error, s.max_error);
    add_lanes(&to->error, s.error);
    add_lanes(&to->error2, s.error2);
    add_lanes(&to->x2, s.x2);
    add_lanes(&to->y2, s.y2);
    add_lanes(&to->xy, s.xy);
    return true;
}

/* ---- extremes ---- */

/* The largest size of n elements, as bits of their own type. */
VECTOR_INLINE uint32_t most_bits(const void *from, size_t at, size_t end, cen_dtype dtype) {
    __m256i most = _mm256_setzero_si256(), next = most;
    if (dtype == CEN_FP32) {
        const float *x = (const float *)from;
        for (size_t i = at; i < end; i += 16) {
            if (i % STEP == 0) {
                fetch(from, i, CENI_CODEC_AHEAD, dtype);
            }
            __m256i a = _mm256_loadu_si256((const __m256i_u *)(x + i));
            __m256i b = _mm256_loadu_si256((const __m256i_u *)(x + i + 8));
            most = _mm256_max_epi32(most, v_size(a));
            next = _mm256_max_epi32(next, v_size(b));
        }
        return (uint32_t)most_of(_mm256_max_epi32(most, next));
    }
    const uint16_t *x = (const uint16_t *)from;
    __m256i mask = _mm256_set1_epi16(0x7FFF);
    for (size_t i = at; i < end; i += STEP) {
        fetch(from, i, CENI_CODEC_AHEAD, dtype);
        __m256i a = _mm256_loadu_si256((const __m256i_u *)(x + i));
        __m256i b = _mm256_loadu_si256((const __m256i_u *)(x + i + 16));
        most = _mm256_max_epi16(most, _mm256_and_si256(a, mask));
        next = _mm256_max_epi16(next, _mm256_and_si256(b, mask));
    }
    most = _mm256_max_epi16(most, next);
    __m256i odd = _mm256_srli_epi32(most, 16), even = _mm256_and_si256(most, v_all(0xFFFF));
    return (uint32_t)most_of(_mm256_max_epi32(odd, even));
}

/* As those of finite elements, which a unit with others is searched again for. */
static float finite_most(const void *from, size_t at, size_t end, cen_dtype dtype) {
    __m256i most = _mm256_setzero_si256();
    for (size_t i = at; i < end; i += 8) {
        __m256i size = v_size(_mm256_castps_si256(v_load(from, i, dtype)));
        __m256i beyond = v_above(size, 0x7F7FFFFFu);
        most = _mm256_max_epi32(most, _mm256_andnot_si256(beyond, size));
    }
    return ceni_float_of((uint32_t)most_of(most));
}

VECTOR_INLINE void largest(const void *from, size_t n, size_t width, float *hi, cen_dtype dtype) {
    uint32_t infinite = dtype == CEN_FP32 ? 0x7F800000u : dtype == CEN_BF16 ? 0x7F80 : 0x7C00;
    for (size_t at = 0, k = 0; at < n; at += width, k++) {
        size_t end = n - at < width ? n : at + width;
        uint32_t bits = most_bits(from, at, end, dtype);
        float most = bits >= infinite    ? finite_most(from, at, end, dtype)
                     : dtype == CEN_FP32 ? ceni_float_of(bits)
                     : dtype == CEN_BF16 ? ceni_float_of_bf16((uint16_t)bits)
                                         : ceni_float_of_f16((uint16_t)bits);
        hi[k] = most > hi[k] ? most : hi[k];
    }
}

static void widen(__m256 low, __m256 high, float *lo, float *hi) {
    float lows[8], highs[8];
    _mm256_storeu_ps(lows, low);
    _mm256_storeu_ps(highs, high);
    for (int i = 0; i < 8; i++) {
        *lo = lows[i] < *lo ? lows[i] : *lo;
        *hi = highs[i] > *hi ? highs[i] : *hi;
    }
}

VECTOR_INLINE void extremes(const void *from, size_t n, size_t width, float *lo, float *hi,
                            cen_dtype dtype) {
    for (size_t at = 0, k = 0; at < n; k++) {
        __m256 low[2], high[2];
        low[0] = low[1] = high[0] = high[1] = _mm256_setzero_ps();
        for (size_t end = n - at < width ? n : at + width; at < end; at += 16) {
            if (at % STEP == 0) {
                fetch(from, at, CENI_CODEC_AHEAD, dtype);
            }
            for (size_t j = 0; j < 2; j++) {
                __m256 x = v_load(from, at + 8 * j, dtype);
                __m256i beyond = v_above(v_size(_mm256_castps_si256(x)), 0x7F7FFFFFu);
                x = _mm256_andnot_ps(_mm256_castsi256_ps(beyond), x);
                low[j] = _mm256_min_ps(x, low[j]);
                high[j] = _mm256_max_ps(x, high[j]);
            }
        }
        widen(_mm256_min_ps(low[0], low[1]), _mm256_max_ps(high[0], high[1]), &lo[k], &hi[k]);
    }
}

/* ---- the table ---- */

#define RUN(kind, dtype)                                                                           \
    static void encode_##kind##_##dtype(const ceni_codec_run *run) {                               \
        if (CENI_CODEC_##kind >= CENI_CODEC_INT8 && run->z) {                                      \
            encode(run, CEN_##dtype, CENI_CODEC_##kind, true);                                     \
        } else {                                                                                   \
            encode(run, CEN_##dtype, CENI_CODEC_##kind, false);                                    \
        }                                                                                          \
    }                                                                                              \
    static void decode_##kind##_##dtype(const ceni_codec_run *run) {                               \
        decode(run, CEN_##dtype, CENI_CODEC_##kind);                                               \
    }

#define SOURCE(dtype)                                                                              \
    RUN(FP16, dtype)                                                                               \
    RUN(BF16, dtype)                                                                               \
    RUN(E4M3, dtype)                                                                               \
    RUN(E5M2, dtype)                                                                               \
    RUN(INT8, dtype)                                                                               \
    RUN(INT4, dtype)                                                                               \
    static void largest_##dtype(const void *from, size_t n, size_t width, float *hi) {             \
        largest(from, n, width, hi, CEN_##dtype);                                                  \
    }                                                                                              \
    static void extremes_##dtype(const void *from, size_t n, size_t width, float *lo, float *hi) { \
        extremes(from, n, width, lo, hi, CEN_##dtype);                                             \
    }                                                                                              \
    static bool sums_##dtype(const ceni_codec_run *run, const float *y, ceni_codec_sums *to) {     \
        return add(run, y, to, CEN_##dtype);                                                       \
    }

#define ROW(kind, dtype) [CENI_CODEC_##kind] = {encode_##kind##_##dtype, decode_##kind##_##dtype}
#define ROWS(dtype)                                                                                \
    {                                                                                              \
        ROW(FP16, dtype), ROW(BF16, dtype), ROW(E4M3, dtype), ROW(E5M2, dtype), ROW(INT8, dtype),  \
            ROW(INT4, dtype)                                                                       \
    }

SOURCE(FP32)
SOURCE(FP16)
SOURCE(BF16)

const ceni_codec_runs ceni_codec_runs_avx2 = {.of = {ROWS(FP32), ROWS(BF16), ROWS(FP16)},
                                              .source = {{largest_FP32, extremes_FP32, sums_FP32},
                                                         {largest_BF16, extremes_BF16, sums_BF16},
                                                         {largest_FP16, extremes_FP16, sums_FP16}},
                                              .encode_sparse = ceni_codec_encode_sparse_avx2,
                                              .decode_sparse = ceni_codec_decode_sparse_avx2};
#endif
