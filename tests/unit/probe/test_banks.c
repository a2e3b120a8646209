/* Bank conflicts against a slow memory: 32 banks that each hand out one word a cycle, until every
 * byte that a lane wants was served. Walks against a table of where each element lies, remedies
 * against exhaustive search. */
#include "cenote/log.h"
#include "cenote/roofline.h"
#include "tests/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state = 88172645463325252u;

static uint32_t below(uint32_t n) {
    return (uint32_t)(random_next(&random_state) >> 20) % n;
}

/* Cycles until the lanes [from, to) have every byte. */
static uint32_t serve(const uint32_t *offsets, uint32_t from, uint32_t to, uint32_t bytes) {
    bool served[32][16] = {{false}};
    for (uint32_t cycle = 0;; cycle++) {
        uint32_t open[32]; /* the word that each bank hands out in this cycle */
        bool is_open[32] = {false}, left = false;
        for (uint32_t lane = from; lane < to; lane++) {
            for (uint32_t b = 0; b < bytes; b++) {
                uint32_t word = (offsets[lane] + b) / 4, bank = word % 32;
                if (served[lane][b]) {
                    continue;
                }
                left = true;
                if (!is_open[bank]) {
                    is_open[bank] = true;
                    open[bank] = word;
                }
                served[lane][b] = open[bank] == word;
            }
        }
        if (!left) {
            return cycle;
        }
    }
}

static cen_bank_access simulate(const uint32_t *offsets, uint32_t lanes, uint32_t bytes) {
    uint32_t parts = bytes == 16 ? 4 : bytes == 8 ? 2 : 1;
    cen_bank_access access = {0};
    for (uint32_t part = 0; part < parts; part++) {
        uint32_t from = part * (32 / parts), to = (part + 1) * (32 / parts);
        if (from < lanes) {
            uint32_t cycles = serve(offsets, from, to < lanes ? to : lanes, bytes);
            access.degree = cycles > access.degree ? cycles : access.degree;
            access.wavefronts += cycles;
            access.ideal_wavefronts++;
        }
    }
    return access;
}

static void assert_same(const cen_bank_access *a, const cen_bank_access *b) {
    assert_int_equal(a->degree, b->degree);
    assert_int_equal(a->wavefronts, b->wavefronts);
    assert_int_equal(a->ideal_wavefronts, b->ideal_wavefronts);
}

static void any_access_is_as_simulated(void **state) {
    for (int round = 0; round < 20000; round++) {
        uint32_t offsets[32], bytes = (uint32_t)1 << below(5), lanes = 1 + below(32);
        uint32_t range = 1 + below(round % 2 ? 40 : 4000), step = 1 + below(70);
        for (uint32_t i = 0; i < 32; i++) {
            offsets[i] = (round % 4 < 2 ? below(range) : i * step % range) * bytes;
        }
        cen_bank_access got, expected = simulate(offsets, lanes, bytes);
        assert_int_equal(cen_banks_warp(offsets, lanes, bytes, &got), CEN_OK);
        assert_same(&got, &expected);
    }
}

/* Where each element lies, in elements; swapped in place, bit by bit, from the plain layout. */
static uint32_t *layout(const cen_banks_tile *t) {
    uint32_t *at = calloc((size_t)t->rows * t->cols, sizeof *at);
    assert_non_null(at);
    for (uint32_t r = 0; r < t->rows; r++) {
        uint32_t *row = at + (size_t)r * t->cols;
        for (uint32_t c = 0; c < t->cols; c++) {
            row[c] = r * (t->cols + t->pad) + c;
        }
        for (uint32_t bit = 0; bit < t->swizzle.bits; bit++) {
            uint32_t far = (uint32_t)1 << (t->swizzle.base + bit);
            for (uint32_t c = 0; r >> t->swizzle.shift >> bit & 1 && c < t->cols; c++) {
                if (!(c & far)) {
                    uint32_t other = row[c + far];
                    row[c + far] = row[c];
                    row[c] = other;
                }
            }
        }
    }
    return at;
}

/* The elements in the order of one direction. */
static uint32_t visit(const cen_banks_tile *t, bool down, uint32_t *order) {
    uint32_t count = 0;
    if (down) {
        for (uint32_t c = 0; c < t->cols; c++) {
            for (uint32_t r = 0; r < t->rows; r++) {
                order[count++] = r * t->cols + c;
            }
        }
    } else {
        uint32_t step = t->walk == CEN_WALK_STRIDED ? t->stride : 1;
        for (uint64_t e = 0; e < (uint64_t)t->rows * t->cols; e += step) {
            order[count++] = (uint32_t)e;
        }
    }
    return count;
}

typedef struct tally {
    uint64_t accesses, wavefronts, ideal;
    uint32_t degree;
} tally;

static void add_direction(const cen_banks_tile *t, bool down, const uint32_t *at, tally *sum) {
    uint32_t *order = calloc((size_t)t->rows * t->cols + 1, sizeof *order);
    assert_non_null(order);
    uint32_t count = visit(t, down, order);
    for (uint32_t i = 0; i < count; i += 32) {
        uint32_t offsets[32], lanes = 0;
        while (lanes < 32 && i + lanes < count) {
            offsets[lanes] = at[order[i + lanes]] * t->elem_bytes;
            lanes++;
        }
        cen_bank_access got, a = simulate(offsets, lanes, t->elem_bytes);
        assert_int_equal(cen_banks_judge_access(t, sum->accesses, &got), CEN_OK);
        assert_same(&got, &a);
        sum->accesses++;
        sum->wavefronts += a.wavefronts;
        sum->ideal += a.ideal_wavefronts;
        sum->degree = a.degree > sum->degree ? a.degree : sum->degree;
    }
    free(order);
}

static tally walk_slowly(const cen_banks_tile *t) {
    tally sum = {0};
    uint32_t *at = layout(t);
    if (t->walk != CEN_WALK_COLUMN) {
        add_direction(t, false, at, &sum);
    }
    if (t->walk == CEN_WALK_COLUMN || t->walk == CEN_WALK_TRANSPOSED) {
        add_direction(t, true, at, &sum);
    }
    free(at);
    return sum;
}

static cen_banks_tile random_tile(void) {
    cen_banks_tile t = {.size = sizeof t, .walk = (cen_walk)below(4)};
    t.elem_bytes = (uint32_t)1 << below(5);
    t.rows = 1 + below(50);
    t.cols = below(2) ? 1 + below(50) : (uint32_t)1 << below(7);
    t.stride = t.walk == CEN_WALK_STRIDED ? 1 + below(70) : 0;
    return t;
}

static void random_layout(cen_banks_tile *t) {
    uint32_t width = 0;
    while (!(t->cols >> width & 1)) {
        width++;
    }
    t->pad = below(2) ? below(40) : 0;
    if (below(2)) {
        t->swizzle.bits = below(width + 1);
        t->swizzle.base = below(width - t->swizzle.bits + 1);
        t->swizzle.shift = below(5);
    }
}

static void any_walk_is_as_simulated(void **state) {
    for (int round = 0; round < 600; round++) {
        cen_banks_tile t = random_tile();
        random_layout(&t);
        tally slow = walk_slowly(&t);
        cen_banks_result got;
        cen_bank_access none;
        assert_int_equal(cen_banks_judge(&t, &got), CEN_OK);
        assert_int_equal(got.degree, slow.degree);
        assert_int_equal(got.accesses, slow.accesses);
        assert_int_equal(got.wavefronts, slow.wavefronts);
        assert_int_equal(got.ideal_wavefronts, slow.ideal);
        assert_true(got.mean_degree <= got.degree && got.mean_degree >= 1);
        assert_int_equal(cen_banks_judge_access(&t, got.accesses, &none), CEN_ERR_NOT_FOUND);
    }
}

static uint32_t degree_of(const cen_banks_tile *t) {
    cen_banks_result result;
    assert_int_equal(cen_banks_judge(t, &result), CEN_OK);
    return result.degree;
}

static void pads_are_the_smallest(void **state) {
    for (int round = 0; round < 150; round++) {
        cen_banks_tile t = random_tile();
        cen_banks_remedy remedy;
        assert_int_equal(cen_banks_find_remedy(&t, &remedy), CEN_OK);
        /* Three times around the banks: a remedy that is not found is not there. */
        uint32_t end = remedy.has_pad ? remedy.pad : 3 * 128 / t.elem_bytes;
        for (t.pad = 0; t.pad < end; t.pad++) {
            assert_true(degree_of(&t) > 1);
        }
        assert_true(!remedy.has_pad || degree_of(&t) == 1);
    }
}

static void assert_bijection(const cen_banks_tile *t) {
    size_t count = (size_t)t->rows * t->cols;
    bool *taken = calloc(count, sizeof *taken);
    assert_non_null(taken);
    for (uint32_t r = 0; r < t->rows; r++) {
        for (uint32_t c = 0; c < t->cols; c++) {
            uint32_t mask = ((uint32_t)1 << t->swizzle.bits) - 1;
            uint32_t to = c ^ ((r >> t->swizzle.shift & mask) << t->swizzle.base);
            assert_true(to < t->cols && !taken[(size_t)r * t->cols + to]);
            taken[(size_t)r * t->cols + to] = true;
        }
    }
    free(taken);
}

/* Every swizzle of fewer bits that stays in the row, be it of any use or not. */
static bool fewer_bits_do(cen_banks_tile t, uint32_t bits) {
    for (t.swizzle.bits = 0; t.swizzle.bits < bits; t.swizzle.bits++) {
        for (t.swizzle.base = 0; t.swizzle.base < 10; t.swizzle.base++) {
            for (t.swizzle.shift = 0; t.swizzle.shift < 10; t.swizzle.shift++) {
                bool stays =
                    !t.swizzle.bits || !(t.cols % (1u << (t.swizzle.bits + t.swizzle.base)));
                if (stays && degree_of(&t) == 1) {
                    return true;
                }
            }
        }
    }
    return false;
}

static void swizzles_turn_rows_in_place(void **state) {
    uint32_t found = 0;
    for (int round = 0; round < 120; round++) {
        cen_banks_tile t = random_tile();
        cen_banks_remedy remedy;
        if (round % 2) { /* the shapes that kernels have */
            t.walk = (cen_walk)(CEN_WALK_COLUMN + below(2));
            t.rows = (uint32_t)8 << below(4), t.cols = (uint32_t)8 << below(4), t.stride = 0;
        }
        assert_int_equal(cen_banks_find_remedy(&t, &remedy), CEN_OK);
        assert_false(fewer_bits_do(t, remedy.has_swizzle ? remedy.swizzle.bits : 8));
        if (remedy.has_swizzle) {
            t.swizzle = remedy.swizzle;
            assert_int_equal(degree_of(&t), 1);
            assert_bijection(&t);
            found += remedy.swizzle.bits > 0;
        }
    }
    assert_true(found > 20);
}

static void known_walks(void **state) {
    static const struct {
        uint32_t rows, cols, bytes, pad, degree, wavefronts, ideal;
    } columns[] = {
        {32, 32, 4, 0, 32, 1024, 32}, {32, 32, 4, 1, 1, 32, 32},     {32, 32, 8, 0, 16, 1024, 64},
        {32, 32, 8, 1, 1, 64, 64},    {32, 32, 16, 0, 8, 1024, 128}, {32, 32, 16, 1, 1, 128, 128},
        {32, 64, 2, 0, 32, 2048, 64}, {32, 64, 2, 2, 1, 64, 64},     {32, 33, 4, 0, 1, 33, 33},
        {16, 16, 4, 0, 8, 64, 8},
    };
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        cen_banks_tile t = {.size = sizeof t, .walk = CEN_WALK_COLUMN};
        t.rows = columns[i].rows, t.cols = columns[i].cols, t.elem_bytes = columns[i].bytes;
        t.pad = columns[i].pad;
        cen_banks_result r;
        assert_int_equal(cen_banks_judge(&t, &r), CEN_OK);
        assert_int_equal(r.degree, columns[i].degree);
        assert_int_equal(r.wavefronts, columns[i].wavefronts);
        assert_int_equal(r.ideal_wavefronts, columns[i].ideal);
    }
    uint32_t same[32] = {0}; /* all lanes want one word: no conflict */
    cen_bank_access access;
    assert_int_equal(cen_banks_warp(same, 32, 4, &access), CEN_OK);
    assert_int_equal(access.degree, 1);
}

static void refused(cen_banks_tile t, const char *words) {
    cen_banks_result result = {.degree = 77};
    assert_int_equal(cen_banks_judge(&t, &result), CEN_ERR_INVALID);
    assert_int_equal(result.degree, 77);
    assert_non_null(strstr(cen_log_last_error(), words));
}

static void refuses_what_is_off(void **state) {
    const cen_banks_tile good = {.size = sizeof good, .rows = 32, .cols = 32, .elem_bytes = 4};
    cen_banks_tile t = good;
    cen_banks_remedy remedy;
    t.size = 0;
    refused(t, "tile.size is 0; ");
    t = good, t.rows = 0;
    refused(t, "no rows");
    t = good, t.elem_bytes = 12;
    refused(t, "12 bytes");
    t = good, t.walk = (cen_walk)9;
    refused(t, "no walk 9");
    t = good, t.stride = 2;
    refused(t, "strided");
    t = good, t.walk = CEN_WALK_STRIDED;
    refused(t, "needs a stride");
    t = good, t.rows = UINT32_MAX, t.cols = UINT32_MAX, t.pad = UINT32_MAX, t.elem_bytes = 16;
    refused(t, "do not fit");
    t = good, t.swizzle.bits = 6;
    refused(t, "leaves the row");
    t = good, t.swizzle.shift = 17;
    refused(t, "over 16");
    assert_int_equal(cen_banks_judge(NULL, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_banks_judge(&good, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_banks_find_remedy(&good, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_banks_find_remedy(NULL, &remedy), CEN_ERR_INVALID);
    const uint32_t odd[32] = {2};
    cen_bank_access access;
    assert_int_equal(cen_banks_warp(odd, 32, 4, &access), CEN_ERR_INVALID);
    assert_int_equal(cen_banks_warp(odd, 33, 1, &access), CEN_ERR_INVALID);
    assert_int_equal(cen_banks_warp(odd, 1, 3, &access), CEN_ERR_INVALID);
    assert_int_equal(cen_banks_warp(NULL, 1, 1, &access), CEN_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_access_is_as_simulated),
        cmocka_unit_test(any_walk_is_as_simulated),
        cmocka_unit_test(pads_are_the_smallest),
        cmocka_unit_test(swizzles_turn_rows_in_place),
        cmocka_unit_test(known_walks),
        cmocka_unit_test(refuses_what_is_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
