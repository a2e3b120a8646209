/* Frames of Huffman codes decode, with libzstd, to the symbols that they were made of, whatever
 * these are and however often; and take hardly more than their entropy. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <zstd.h>

#include "codec/huffman.h"
#include "tests/random.h"

enum { COUNT = CENI_HUFFMAN_COUNT };

static uint8_t symbols[COUNT], frame[CENI_HUFFMAN_ROOM], back[COUNT];
static uint64_t seed = 1;

static uint32_t next(void) {
    return (uint32_t)(random_next(&seed) >> 24);
}

/* Each symbol half as often as the one before, or so, from `first` on, up to `last`. */
static void fill(uint32_t first, uint32_t last, uint32_t of_four) {
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t s = first;
        while (s < last && next() % 4 < of_four) {
            s++;
        }
        symbols[i] = (uint8_t)s;
    }
}

static double entropy(void) {
    size_t counts[256] = {0};
    double bits = 0;
    for (size_t i = 0; i < COUNT; i++) {
        counts[symbols[i]]++;
    }
    for (size_t s = 0; s < 256; s++) {
        bits -= counts[s] ? (double)counts[s] * log2((double)counts[s] / COUNT) : 0;
    }
    return bits / 8;
}

static size_t round_trip(void) {
    memset(frame, 0xA5, sizeof frame);
    size_t size = ceni_huffman_encode(symbols, frame);
    assert_in_range(size, 1, sizeof frame);
    memset(back, 0xA5, sizeof back);
    assert_int_equal(ZSTD_decompress(back, sizeof back, frame, size), COUNT);
    assert_memory_equal(back, symbols, COUNT);
    return size;
}

static void any_alphabet(void **state) {
    static const uint32_t ends[][2] = {{0, 1},     {0, 128}, {1, 128},   {127, 128}, {0, 2},
                                       {100, 126}, {60, 70}, {112, 113}, {3, 30}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        for (uint32_t of_four = 1; of_four <= 3; of_four++) {
            fill(ends[i][0], ends[i][1], of_four);
            double size = (double)round_trip();
            /* A code has a bit at least, which two symbols, or one that is most, need not. */
            bool spread = of_four > 1 && ends[i][1] - ends[i][0] > 1;
            assert_true(!spread || size < entropy() * 1.06 + 200);
        }
    }
}

/* So that a quarter of the block says nothing of them. */
static void rare_symbols(void **state) {
    fill(110, 120, 2);
    for (uint8_t s = 0; s < 110; s++) {
        symbols[1000 * s + 7 + s % 16] = s;
    }
    symbols[COUNT - 1] = 128;
    round_trip();
    memset(symbols, 5, sizeof symbols);
    symbols[9] = 0;
    round_trip();
    symbols[9] = 5;
    symbols[COUNT - 3] = 6;
    round_trip();
}

static void as_often_each(void **state) {
    for (size_t i = 0; i < COUNT; i++) {
        symbols[i] = (uint8_t)(next() % 129);
    }
    assert_in_range(round_trip(), COUNT * 7 / 8, COUNT * 15 / 16);
}

static void others_are_refused(void **state) {
    memset(symbols, 0, sizeof symbols);
    assert_int_equal(ceni_huffman_encode(symbols, frame), 0);
    memset(symbols, 77, sizeof symbols);
    assert_int_equal(ceni_huffman_encode(symbols, frame), 0);
    symbols[COUNT / 2] = 129;
    assert_int_equal(ceni_huffman_encode(symbols, frame), 0);
    symbols[COUNT / 2] = 255;
    assert_int_equal(ceni_huffman_encode(symbols, frame), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_alphabet),
        cmocka_unit_test(rare_symbols),
        cmocka_unit_test(as_often_each),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
