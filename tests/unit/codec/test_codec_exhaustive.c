/* Every one of the 2^32 floats through FP16, BF16 and both FP8, saturating and not, against their
 * definition: a code's value from its exponent and mantissa, and between neighbours the middle,
 * ties to the even code. As rounding never goes down when floats go up, the codes of consecutive
 * floats are runs, which the middles delimit; so what is expected is filled in by runs. In debug
 * builds only blocks around each boundary and every 61st other are taken. */
#include "cenote/codec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = 1 << 16, INFINITE = 0x7F800000 };

typedef struct kind {
    cen_codec_format format;
    int exponent_bits, mantissa_bits;
    uint32_t largest; /* code of the largest number */
    uint32_t beyond;  /* code of what overflows, when it does not saturate */
    uint32_t nan;
} kind;

static const kind kinds[] = {{CEN_CODEC_FP8_E4M3, 4, 3, 0x7E, 0x7F, 0x7F},
                             {CEN_CODEC_FP8_E5M2, 5, 2, 0x7B, 0x7C, 0x7F},
                             {CEN_CODEC_FP16, 5, 10, 0x7BFF, 0x7C00, 0x7FFF},
                             {CEN_CODEC_BF16, 8, 7, 0x7F7F, 0x7F80, 0x7FFF}};

/* first[c]: the first positive float, as bits, whose code is c or more. */
static uint32_t first[0x8001];

static double value_of(const kind *k, uint32_t code) {
    int bias = (1 << (k->exponent_bits - 1)) - 1;
    int exponent = (int)(code >> k->mantissa_bits);
    int mantissa = (int)(code & ((1u << k->mantissa_bits) - 1));
    return ldexp(mantissa + (exponent ? 1 << k->mantissa_bits : 0),
                 (exponent ? exponent : 1) - bias - k->mantissa_bits);
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void find_firsts(const kind *k) {
    first[0] = 0;
    for (uint32_t code = 1; code <= k->largest + 1; code++) {
        double middle = (value_of(k, code - 1) + value_of(k, code)) / 2;
        float m = (float)middle;
        assert_true((double)m == middle);
        first[code] = bits_of(m) + (code & 1);
    }
}

static int width_of(const kind *k) {
    return k->exponent_bits + k->mantissa_bits > 8 ? 2 : 1;
}

static void fill(const kind *k, uint8_t *to, uint64_t from, uint64_t end, uint32_t code) {
    if (width_of(k) == 1) {
        memset(to + from, (int)code, (size_t)(end - from));
    } else {
        for (uint64_t i = from; i < end; i++) {
            ((uint16_t *)to)[i] = (uint16_t)code;
        }
    }
}

/* The codes of BLOCK floats from `start` on. *at: a code at or before the first one's. */
static void expect(const kind *k, uint32_t start, bool saturate, uint32_t *at, uint8_t *to) {
    uint32_t size = start & 0x7FFFFFFFu, sign = start >> 31;
    uint32_t sign_bit = sign << (width_of(k) * 8 - 1);
    for (uint64_t i = 0; i < BLOCK;) {
        uint64_t now = size + i, next;
        uint32_t code;
        if (now > INFINITE) {
            fill(k, to, i, BLOCK, k->nan);
            return;
        }
        if (now >= first[k->largest + 1]) {
            code = saturate ? k->largest : k->beyond;
            next = INFINITE + 1ull;
        } else {
            while (first[*at + 1] <= now) {
                ++*at;
            }
            code = *at;
            next = first[code + 1];
        }
        uint64_t end = next - size < BLOCK ? next - size : BLOCK;
        fill(k, to, i, end, code | sign_bit);
        i = end;
    }
}

/* In debug builds: a block with a boundary of a code that is a power of two, or by number. */
static bool is_taken(const kind *k, uint32_t start) {
#ifndef CENI_DEBUG
    return true;
#else
    uint32_t size = start & 0x7FFFFFFFu, step = 1u << k->mantissa_bits;
    bool boundary = size <= INFINITE && INFINITE - size < BLOCK;
    for (uint32_t code = 0; code <= k->largest + 1; code += code + step <= k->largest ? step : 1) {
        boundary = boundary || (first[code] >= size && first[code] - size < BLOCK);
    }
    return boundary || size / BLOCK % 61 == 0;
#endif
}

static void compare(const kind *k, const uint8_t *got, const uint8_t *want, uint32_t start) {
    int width = width_of(k);
    if (!memcmp(got, want, (size_t)(BLOCK * width))) {
        return;
    }
    uint32_t i = 0;
    while (!memcmp(got + i * (uint32_t)width, want + i * (uint32_t)width, (size_t)width)) {
        i++;
    }
    fail_msg("%s: float 0x%08x became %02x%02x, not %02x%02x", cen_codec_format_name(k->format),
             start + i, got[(i + 1) * (uint32_t)width - 1], got[i * (uint32_t)width],
             want[(i + 1) * (uint32_t)width - 1], want[i * (uint32_t)width]);
}

static void run(const kind *k, bool saturate) {
    static uint32_t floats[BLOCK];
    static uint16_t got[BLOCK], want[BLOCK];
    cen_codec codec = {.format = k->format,
                       .overflow = saturate ? CEN_CODEC_SATURATE : CEN_CODEC_NONFINITE};
    cen_matrix source = {(cen_addr)(uintptr_t)floats, 1, BLOCK, BLOCK, CEN_FP32};
    uint32_t at = 0;
    find_firsts(k);
    for (uint64_t start = 0; start < (uint64_t)1 << 32; start += BLOCK) {
        at = start == (uint64_t)1 << 31 ? 0 : at;
        if (!is_taken(k, (uint32_t)start)) {
            continue;
        }
        for (uint32_t i = 0; i < BLOCK; i++) {
            floats[i] = (uint32_t)start + i;
        }
        cen_codec_parts parts = {.values = (cen_addr)(uintptr_t)got, .bytes.values = sizeof got};
        assert_int_equal(cen_codec_encode(&codec, &source, &parts, NULL, NULL), CEN_OK);
        expect(k, (uint32_t)start, saturate, &at, (uint8_t *)want);
        compare(k, (const uint8_t *)got, (const uint8_t *)want, (uint32_t)start);
    }
}

static void saturating(void **state) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        run(&kinds[i], true);
    }
}

static void not_saturating(void **state) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        run(&kinds[i], false);
    }
}

/* Every code decodes to its value, and NaN to the one NaN. */
static void codes_decode(void **state) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind *k = &kinds[i];
        static uint16_t codes[0x10000];
        static float values[0x10000];
        uint32_t count = width_of(k) == 1 ? 0x100 : 0x10000, half = count / 2;
        for (uint32_t code = 0; code < count; code++) {
            if (width_of(k) == 1) {
                ((uint8_t *)codes)[code] = (uint8_t)code;
            } else {
                codes[code] = (uint16_t)code;
            }
        }
        cen_codec codec = {.format = k->format};
        cen_codec_parts parts = {.values = (cen_addr)(uintptr_t)codes,
                                 .bytes.values = sizeof codes};
        cen_matrix to = {(cen_addr)(uintptr_t)values, 1, count, count, CEN_FP32};
        assert_int_equal(cen_codec_decode(&codec, &parts, &to), CEN_OK);
        for (uint32_t code = 0; code < count; code++) {
            uint32_t size = code % half, bits = bits_of(values[code]);
            double want = value_of(k, size);
            if (size <= k->largest) {
                assert_true(fabs((double)values[code]) == want);
                assert_int_equal(bits >> 31, code / half);
            } else if (size == k->beyond && k->beyond != k->nan) {
                assert_int_equal(bits, 0x7F800000u | code / half << 31);
            } else {
                assert_int_equal(bits, 0x7FFFFFFFu);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_decode),
        cmocka_unit_test(saturating),
        cmocka_unit_test(not_saturating),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
