/* The loops for any processor and those for AVX2 give the same bytes, and the same sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/codec_loops.h"
#include "tests/random.h"

enum { TILE = CENI_CODEC_TILE };

#if defined(__x86_64__)

static const ceni_codec_loops *const any = &ceni_codec_loops_any, *const avx2 =
                                                                      &ceni_codec_loops_avx2;
static uint64_t seed = 1;
static float x[TILE], r[TILE], s[TILE];
static float y[TILE];
static int32_t z[TILE];
static union {
    float f[TILE];
    uint16_t u16[TILE];
    int8_t i8[TILE];
    uint8_t u8[TILE];
} a, b, in;

static uint32_t next(void) {
    return (uint32_t)(random_next(&seed) >> 24);
}

static float any_float(void) {
    uint32_t bits = next();
    float value;
    bits = next() % 4 ? bits : (bits & 0x807FFFFFu) | 0x3F000000u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void fill(void) {
    for (int i = 0; i < TILE; i++) {
        x[i] = any_float();
        s[i] = (float)(1 + next() % 1000) * 0x1p-10f;
        r[i] = 1.0f / s[i];
        z[i] = (int32_t)(next() % 256) - 128;
        in.u16[i] = (uint16_t)next();
    }
}

static void same(const char *what, size_t n) {
    const uint8_t *left = (const uint8_t *)&a, *right = (const uint8_t *)&b;
    if (memcmp(left, right, sizeof a)) {
        fail_msg("%s of %zu differs", what, n);
    }
}

#define BOTH(call)                                                                                 \
    do {                                                                                           \
        memset(&a, 7, sizeof a);                                                                   \
        memset(&b, 7, sizeof b);                                                                   \
        const ceni_codec_loops *l = any;                                                           \
        void *to = &a;                                                                             \
        (void)l->call;                                                                             \
        l = avx2;                                                                                  \
        to = &b;                                                                                   \
        (void)l->call;                                                                             \
        same(#call, n);                                                                            \
    } while (0)

static void compare_codes(size_t n) {
    BOTH(to_int(x, r, n, 127.0f, to));
    BOTH(to_int(x, r, n, 7.0f, to));
    BOTH(to_int_zero(x, r, z, n, 127, to));
    BOTH(to_e4m3(x, r, n, true, to));
    BOTH(to_e4m3(x, r, n, false, to));
    BOTH(to_e5m2(x, r, n, true, to));
    BOTH(to_e5m2(x, r, n, false, to));
    BOTH(to_f16(x, n, true, to));
    BOTH(to_f16(x, n, false, to));
    BOTH(to_bf16(x, n, true, to));
    BOTH(to_bf16(x, n, false, to));
    BOTH(pack(in.i8, n, to));
    BOTH(split(in.u16, n, to, (uint8_t *)to + TILE));
    BOTH(join(in.u8, in.u8 + TILE, n, to));
    uint8_t nibbles[2][TILE];
    for (size_t i = 0; i < TILE / 4; i++) {
        nibbles[0][i] = in.u8[i] & 15;
    }
    BOTH(expand(x, nibbles[0], n / 4, to));
    memset(nibbles, 7, sizeof nibbles);
    assert_int_equal(any->cut_by_zero(x, r, z, n, 7), avx2->cut_by_zero(x, r, z, n, 7));
    assert_int_equal(any->prune(x, n & ~(size_t)3, a.f, nibbles[0]),
                     avx2->prune(x, n & ~(size_t)3, b.f, nibbles[1]));
    assert_memory_equal(nibbles[0], nibbles[1], TILE);
}

/* NaN of any payload is a NaN: what matters is what is stored. */
static void compare_values(size_t n) {
    static float back[2][TILE];
    const ceni_codec_loops *const both[2] = {any, avx2};
    BOTH(store_f32(x, n, to));
    BOTH(store_f16(x, n, to));
    BOTH(store_bf16(x, n, to));
    BOTH(load_f16(in.u16, n, to));
    BOTH(load_bf16(in.u16, n, to));
    BOTH(unpack(in.u8, n, to));
    BOTH(of_int(in.i8, s, z, n, to));
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < 2; i++) {
            (kind ? both[i]->of_e4m3 : both[i]->of_e5m2)(in.u8, s, n, back[i]);
        }
        any->store_f32(back[0], n, a.f);
        any->store_f32(back[1], n, b.f);
        same("FP8", n);
    }
}

static void compare_scales(size_t n) {
    static const size_t widths[] = {1, 5, 32, 64, 128, TILE};
    BOTH(inverse(s, n, to));
    BOTH(spread(s, r, n / 64, 64, to, y));
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        float lo[2][TILE] = {{0}}, hi[4][TILE] = {{0}};
        any->extremes(x, n, widths[w], lo[0], hi[0]);
        avx2->extremes(x, n, widths[w], lo[1], hi[1]);
        any->largest(x, n, widths[w], hi[2]);
        avx2->largest(x, n, widths[w], hi[3]);
        assert_memory_equal(lo[0], lo[1], sizeof lo[0]);
        assert_memory_equal(hi[0], hi[1], sizeof hi[0]);
        assert_memory_equal(hi[2], hi[3], sizeof hi[2]);
    }
}

static void compare_sums(size_t n) {
    ceni_codec_sums sums[2];
    for (size_t i = 0; i < n; i++) {
        y[i] = next() % 3 ? x[i] : any_float();
    }
    memset(sums, 0, sizeof sums);
    any->sums(x, r, y, n, 448.0f, &sums[0]);
    avx2->sums(x, r, y, n, 448.0f, &sums[1]);
    assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
}

static void both_give_the_same(void **state) {
    if (avx2 != ceni_codec_loops_here()) {
        print_message("[  REASON  ] this processor has no AVX2\n");
        skip();
    }
    for (int round = 0; round < 60; round++) {
        fill();
        size_t n = round < 20 ? (size_t)round : next() % (TILE + 1);
        compare_codes(n);
        compare_values(n);
        compare_scales(n);
        compare_sums(n);
    }
}

/* Each set of nonzeros, in either of two groups. */
static void both_find_the_dense(void **state) {
    if (avx2 != ceni_codec_loops_here()) {
        print_message("[  REASON  ] this processor has no AVX2\n");
        skip();
    }
    for (uint32_t sets = 0; sets < 256; sets++) {
        float kept[2][4], eight[8];
        uint8_t nibbles[2][2];
        for (uint32_t i = 0; i < 8; i++) {
            eight[i] = sets >> i & 1 ? -1.0f - (float)(i * 5 % 8) : 0.0f;
        }
        bool sparse = any->prune(eight, 8, kept[0], nibbles[0]);
        assert_int_equal(sparse,
                         __builtin_popcount(sets & 15) < 3 && __builtin_popcount(sets >> 4) < 3);
        assert_int_equal(avx2->prune(eight, 8, kept[1], nibbles[1]), sparse);
        assert_memory_equal(kept[0], kept[1], sizeof kept[0]);
        assert_memory_equal(nibbles[0], nibbles[1], sizeof nibbles[0]);
        assert_int_equal(avx2->prune(eight, 4, kept[1], nibbles[1]),
                         __builtin_popcount(sets & 15) < 3);
    }
}

static void the_processor_s_are_taken(void **state) {
    bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    assert_ptr_equal(ceni_codec_loops_here(), has ? avx2 : any);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_give_the_same),
        cmocka_unit_test(both_find_the_dense),
        cmocka_unit_test(the_processor_s_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    puts("there are no loops but those for any processor");
    return 77;
}

#endif
