/* Offsets in a set: against a plain model, with memory that runs out, and many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "ipc/ranges.h"
#include "tests/random.h"

static uint64_t seed = 88172645463325252u;

static void the_best_fit_is_taken(void **state) {
    ceni_ranges r;
    bool no_memory;
    assert_int_equal(ceni_ranges_open(&r, 1 << 20), 0);
    ceni_range *blocks[5];
    const uint64_t sizes[] = {8192, 512, 4096, 512, 100};
    for (size_t i = 0; i < 5; i++) {
        blocks[i] = ceni_ranges_take(&r, sizes[i], &no_memory);
        assert_non_null(blocks[i]);
        assert_int_equal(blocks[i]->offset % 512, 0);
    }
    assert_int_equal(blocks[4]->size, 512);
    uint64_t small = blocks[2]->offset;
    ceni_ranges_give(&r, blocks[0]);
    ceni_ranges_give(&r, blocks[2]);
    blocks[2] = ceni_ranges_take(&r, 3000, &no_memory);
    assert_int_equal(blocks[2]->offset, small);
    blocks[0] = ceni_ranges_take(&r, 8192, &no_memory);
    assert_int_equal(blocks[0]->offset, 0);
    assert_null(ceni_ranges_take(&r, 1 << 20, &no_memory));
    assert_false(no_memory);
    assert_null(ceni_ranges_take(&r, UINT64_MAX, &no_memory));
    for (size_t i = 0; i < 5; i++) {
        ceni_ranges_give(&r, blocks[i]);
        assert_true(ceni_ranges_verify(&r));
    }
    assert_int_equal(ceni_ranges_largest(&r), 1 << 20);
    ceni_ranges_close(&r);
}

static void random_programs_keep_it_sound(void **state) {
    enum { BLOCKS = 64, SLOTS = 256 };
    ceni_ranges r;
    ceni_range *live[BLOCKS] = {0};
    uint8_t slots[SLOTS] = {0}; /* who has each 512 bytes; 0: nobody */
    bool no_memory;
    assert_int_equal(ceni_ranges_open(&r, SLOTS * 512), 0);
    for (int step = 0; step < 20000; step++) {
        size_t i = random_next(&seed) % BLOCKS;
        if (live[i]) {
            for (uint64_t at = live[i]->offset / 512, n = live[i]->size / 512; n; n--, at++) {
                assert_int_equal(slots[at], i + 1);
                slots[at] = 0;
            }
            ceni_ranges_give(&r, live[i]);
            live[i] = NULL;
        } else {
            uint64_t size = 1 + random_next(&seed) % 8192;
            live[i] = ceni_ranges_take(&r, size, &no_memory);
            if (!live[i]) {
                assert_true(ceni_ranges_largest(&r) < size);
                continue;
            }
            assert_true(live[i]->size >= size);
            for (uint64_t at = live[i]->offset / 512, n = live[i]->size / 512; n; n--, at++) {
                assert_int_equal(slots[at], 0);
                slots[at] = (uint8_t)(i + 1);
            }
            uint64_t inside = live[i]->offset + random_next(&seed) % live[i]->size;
            assert_ptr_equal(ceni_ranges_at(&r, inside), live[i]);
        }
        assert_true(step % 16 || ceni_ranges_verify(&r));
    }
    ceni_ranges_close(&r);
}

static void ten_thousand_blocks_are_kept(void **state) {
    enum { COUNT = 10000 };
    ceni_ranges r;
    bool no_memory;
    static ceni_range *blocks[COUNT];
    assert_int_equal(ceni_ranges_open(&r, (uint64_t)COUNT * 1024), 0);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = ceni_ranges_take(&r, 1024, &no_memory);
        assert_non_null(blocks[i]);
    }
    assert_null(ceni_ranges_take(&r, 1, &no_memory));
    for (size_t i = 0; i < COUNT; i += 2) {
        ceni_ranges_give(&r, blocks[i]);
    }
    assert_int_equal(ceni_ranges_largest(&r), 1024);
    for (size_t i = 1; i < COUNT; i += 2) {
        ceni_ranges_give(&r, blocks[i]);
    }
    assert_true(ceni_ranges_verify(&r));
    assert_int_equal(ceni_ranges_largest(&r), r.size);
    ceni_ranges_close(&r);
}

static void memory_that_runs_out_changes_nothing(void **state) {
    ceni_ranges r;
    bool no_memory = false;
    ceni_fault_arm *memory = &ceni_fault_points[CENI_FAULT_HOST_MEMORY];
    ceni_fault_set(memory, 1, false);
    assert_int_equal(ceni_ranges_open(&r, 1 << 20), -1);
    assert_int_equal(ceni_ranges_open(&r, 1 << 20), 0);
    ceni_fault_set(memory, 1, false);
    assert_null(ceni_ranges_take(&r, 512, &no_memory));
    assert_true(no_memory);
    assert_true(ceni_ranges_verify(&r));
    ceni_range *block = ceni_ranges_take(&r, 512, &no_memory);
    assert_non_null(block);
    ceni_fault_set(memory, 1, true);
    ceni_ranges_give(&r, block); /* needs none */
    ceni_fault_set(memory, 0, false);
    assert_int_equal(ceni_ranges_largest(&r), 1 << 20);
    ceni_ranges_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_fit_is_taken),
        cmocka_unit_test(random_programs_keep_it_sound),
        cmocka_unit_test(ten_thousand_blocks_are_kept),
        cmocka_unit_test(memory_that_runs_out_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
