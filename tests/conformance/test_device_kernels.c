/* Each kernel gives what its host twin gives, at any alignment, count and grid, and touches nothing
 * else. */
#include "tests/conformance/suite.h"

#include "kernels/table.h"

enum { WORDS = 5000, GUARD = 8 };

static const cen_launch shapes[] = {
    {{1, 1, 1}, {1, 1, 1}, 0},
    {{3, 1, 1}, {32, 1, 1}, 0},
    {{64, 1, 1}, {256, 1, 1}, 0},
};
static const uint64_t counts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 1000, 4099};
enum { SHAPES = sizeof shapes / sizeof *shapes, COUNTS = sizeof counts / sizeof *counts };

static void launch(cen_device *d, const char *name, const cen_launch *shape, void *const *args,
                   size_t count) {
    cen_status status = cen_kernel_launch(d, name, shape, args, count, 0);
    if (status == CEN_ERR_UNSUPPORTED) {
        suite_skip("the library was built without CUDA kernels");
    }
    OK(status);
}

/* Runs a kernel (dst, value, count) and its twin over equal memory, and compares all of it. */
static void compare_writes(cen_device *d, const char *name, cen_addr memory, uint64_t offset,
                           uint64_t count, const cen_launch *shape) {
    static uint32_t expected[WORDS], got[WORDS];
    uint32_t value = 0x13579BDF + (uint32_t)count;
    memset(expected, 0xee, sizeof expected);
    suite_write(d, memory, expected, sizeof expected);
    cen_addr dst = memory + (GUARD + offset) * 4, twin_dst = address(expected + GUARD + offset);
    void *args[] = {&dst, &value, &count}, *twin_args[] = {&twin_dst, &value, &count};
    launch(d, name, shape, args, 3);
    ceni_kernel_find(name)->twin(shape->grid, shape->block, 0, twin_args);
    suite_read(d, got, memory, sizeof got);
    assert_memory_equal(got, expected, sizeof got);
}

static void writes_are_the_twins(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, 0);
    for (int shape = 0; shape < SHAPES; shape++) {
        for (int i = 0; i < COUNTS; i++) {
            uint64_t offset = (uint64_t)i % 4;
            compare_writes(d, "cen_fill_u32", m.addr, offset, counts[i], &shapes[shape]);
            compare_writes(d, "cen_pattern_u32", m.addr, 3 - offset, counts[i], &shapes[shape]);
        }
    }
}

/* Spoils every third word; the kernel, like its twin, counts those within, and adds. */
static void checks_count_and_add(void **state) {
    static uint32_t words[WORDS];
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, 0);
    cen_addr sum = m.addr + m.granule - 8;
    uint64_t zero = 0, expected = 0, got = 0;
    suite_write(d, sum, &zero, sizeof zero);
    for (int shape = 0; shape < SHAPES; shape++) {
        for (int i = 0; i < COUNTS; i++) {
            uint64_t offset = (uint64_t)i % 4, count = counts[i];
            uint32_t seed = 99 + (uint32_t)i;
            cen_addr here = address(words + offset), src = m.addr + offset * 4;
            void *make[] = {&here, &seed, &count};
            ceni_kernel_find("cen_pattern_u32")->twin(shapes[0].grid, shapes[0].block, 0, make);
            for (uint64_t k = 0; k < count; k += 3) {
                words[offset + k] ^= 1u << (k % 32);
                expected++;
            }
            suite_write(d, m.addr, words, sizeof words);
            void *args[] = {&src, &seed, &count, &sum};
            launch(d, "cen_check_u32", &shapes[shape], args, 4);
        }
    }
    suite_read(d, &got, sum, sizeof got);
    assert_int_equal(got, expected);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(writes_are_the_twins),
    SUITE_TEST(checks_count_and_add),
};
SUITE_MAIN(tests)
