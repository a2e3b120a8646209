/* Loops over memory: one set for every processor, and wider ones for those that have them. */
#include "probe/host.h"

#include "base/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__aarch64__)
#define LOOPS_FMA(x, a, b)                                                                         \
    ((neon_floats)vfmaq_f32((float32x4_t)(b), (float32x4_t)(x), (float32x4_t)(a)))
#define LOOPS_NAME(part) neon_##part
#define LOOPS_LABEL      "NEON"
#else
#define LOOPS_FMA(x, a, b) ((x) * (a) + (b))
#define LOOPS_NAME(part)   plain_##part
#define LOOPS_LABEL        "16-byte vectors"
#endif
#define LOOPS_TARGET
#define LOOPS_WIDTH 16
#include "probe/host_loops.inc"

#if defined(__x86_64__)
#define LOOPS_NAME(part)   avx2_##part
#define LOOPS_LABEL        "AVX2"
#define LOOPS_TARGET       __attribute__((target("avx2,fma")))
#define LOOPS_WIDTH        32
#define LOOPS_FMA(x, a, b) ((avx2_floats)_mm256_fmadd_ps((__m256)(x), (__m256)(a), (__m256)(b)))
#include "probe/host_loops.inc"

#define LOOPS_NAME(part)   avx512_##part
#define LOOPS_LABEL        "AVX-512"
#define LOOPS_TARGET       __attribute__((target("avx512f")))
#define LOOPS_WIDTH        64
#define LOOPS_FMA(x, a, b) ((avx512_floats)_mm512_fmadd_ps((__m512)(x), (__m512)(a), (__m512)(b)))
#include "probe/host_loops.inc"
#endif

const ceni_host_loops *ceni_host_loops_at(size_t index) {
    const ceni_host_loops *can[3] = {NULL};
    size_t count = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        can[count++] = &avx512_table;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        can[count++] = &avx2_table;
    }
    can[count++] = &plain_table;
#elif defined(__aarch64__)
    can[count++] = &neon_table;
#else
    can[count++] = &plain_table;
#endif
    return index < count ? can[index] : NULL;
}

const ceni_host_loops *ceni_host_loops_best(void) {
    return ceni_host_loops_at(0);
}

#define FOLLOW (at = *(const volatile uint64_t *)(uintptr_t)at)
uint64_t ceni_host_follow(uint64_t at, uint64_t steps) {
    for (; steps >= 8; steps -= 8) {
        FOLLOW;
        FOLLOW;
        FOLLOW;
        FOLLOW;
        FOLLOW;
        FOLLOW;
        FOLLOW;
        FOLLOW;
    }
    while (steps--) {
        FOLLOW;
    }
    return at;
}

/* Additions and exclusive ors in turns, each waiting for the one before: neither compilers nor
 * processors shorten that, and each takes one cycle on every processor so far. */
static uint64_t step_alone(uint64_t rounds, uint64_t x, uint64_t y) {
    for (uint64_t i = 0; i < rounds; i++) {
        x += y;
        x ^= i;
        x += y;
        x ^= i;
        x += y;
        x ^= i;
        x += y;
        x ^= i;
    }
    return x;
}

double ceni_host_clock(bool quick) {
    uint64_t rounds = quick ? 10000 : 1000000;
    volatile uint64_t seed = 3, sink;
    double best = 0;
    for (int i = 0; i < 5; i++) { /* the fastest: what else runs only slows */
        uint64_t start = ceni_now_ns();
        sink = step_alone(rounds, seed, seed);
        uint64_t ns = ceni_now_ns() - start;
        double clock = ns ? 8 * (double)rounds / (double)ns : 0;
        best = clock > best ? clock : best;
    }
    (void)sink;
    return best;
}

#if defined(__x86_64__)
__attribute__((target("fma"))) static float fma_alone(uint64_t rounds, float x) {
    __m128 v = _mm_set_ss(x), half = _mm_set_ss(0.5f), one = _mm_set_ss(1);
    for (uint64_t i = 0; i < rounds; i++) {
        v = _mm_fmadd_ss(v, half, one);
    }
    return _mm_cvtss_f32(v);
}

double ceni_host_fma_latency(bool quick) {
    uint64_t rounds = quick ? 10000 : 1000000;
    volatile float seed = 5, sink;
    if (!__builtin_cpu_supports("fma")) {
        return 0;
    }
    uint64_t start = ceni_now_ns();
    sink = fma_alone(rounds, seed);
    (void)sink;
    return (double)(ceni_now_ns() - start) / (double)rounds;
}
#else
double ceni_host_fma_latency(bool quick) {
    (void)quick;
    return 0;
}
#endif
