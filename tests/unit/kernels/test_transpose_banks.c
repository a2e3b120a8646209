/* The tiles of transposes meet no bank conflict, on paper: what each warp of a kernel reads and
 * writes of shared memory, by the layout that the kernel takes from the same header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cenote/roofline.h"
#include "kernels/transpose.h"

enum { THREADS = 256, WARP = 32 };

static void no_conflict(const uint32_t offsets[WARP], uint32_t bytes) {
    cen_bank_access access;
    assert_int_equal(cen_banks_warp(offsets, WARP, bytes, &access), CEN_OK);
    assert_int_equal(access.wavefronts, access.ideal_wavefronts);
}

/* As in transpose.cu: quads come in along rows, words go out down columns. */
static void swizzled(uint32_t size) {
    uint32_t n = 16 / size, quads = (uint32_t)CENI_TRANSPOSE_TILE(size) / n;
    uint32_t word = size == 8 ? 8 : 4, words = 16 / word, tile = quads * n, offsets[WARP];
    for (uint32_t first = 0; first < tile * quads; first += WARP) {
        for (uint32_t lane = 0; lane < WARP; lane++) {
            uint32_t y = (first + lane) / quads, x = (first + lane) % quads;
            offsets[lane] = (y * quads + CENI_TRANSPOSE_SWIZZLE(x, y, size)) * 16;
        }
        no_conflict(offsets, 16);
    }
    for (uint32_t first = 0; first < tile / n * quads * words; first += WARP) {
        for (uint32_t row = 0; row < n; row++) {
            for (uint32_t lane = 0; lane < WARP; lane++) {
                uint32_t at = first + lane, rest = at / 8, w = rest % words;
                uint32_t x = rest / words % quads,
                         r = (rest / words / quads * 8 + at % 8) * n + row;
                offsets[lane] = (r * quads + CENI_TRANSPOSE_SWIZZLE(x, r, size)) * 16 + w * word;
            }
            no_conflict(offsets, word);
        }
    }
}

static void swizzled_tiles_have_no_conflict(void **state) {
    for (uint32_t size = 1; size <= 8; size *= 2) {
        swizzled(size);
    }
}

static void padded_tiles_have_no_conflict(void **state) {
    for (uint32_t size = 1; size <= 8; size *= 2) {
        cen_banks_tile tile = {.size = sizeof tile,
                               .rows = 32,
                               .cols = 32,
                               .elem_bytes = size,
                               .walk = CEN_WALK_TRANSPOSED,
                               .pad = CENI_TRANSPOSE_PAD(size)};
        cen_banks_result result;
        assert_int_equal(cen_banks_judge(&tile, &result), CEN_OK);
        assert_int_equal(result.degree, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swizzled_tiles_have_no_conflict),
        cmocka_unit_test(padded_tiles_have_no_conflict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
