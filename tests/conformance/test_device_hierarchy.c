/* The kernels that measure levels of memory do what they say: each against a plain loop. Times are
 * only asked to be there. */
#include "tests/conformance/suite.h"

#include "kernels/hierarchy.h"
#include "kernels/memory.h"

enum { WORDS = 4096, BYTES = WORDS * 4, LINE = 128, LINES = BYTES / LINE };

static const cen_launch shapes[] = {
    {{1, 1, 1}, {1, 1, 1}, 0},
    {{1, 1, 1}, {32, 1, 1}, 0},
    {{5, 1, 1}, {96, 1, 1}, 0},
    {{16, 1, 1}, {512, 1, 1}, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Memory of the device, and three words for results, which are zero. */
typedef struct area {
    cen_device *device;
    cen_addr memory, out;
} area;

static area make_area(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, 0);
    area a = {d, m.addr, m.addr + m.size - 4096};
    static const char zero[4096];
    suite_write(d, a.out, zero, sizeof zero);
    return a;
}

static void launch(const area *a, const char *name, cen_launch shape, void *const *args,
                   size_t count) {
    cen_status status = cen_kernel_launch(a->device, name, &shape, args, count, 0);
    if (status == CEN_ERR_UNSUPPORTED) {
        suite_skip("the library was built without CUDA kernels");
    }
    OK(status);
}

static void results(const area *a, uint64_t got[3]) {
    suite_read(a->device, got, a->out, 3 * sizeof *got);
}

/* Each line names the one `by` behind it. */
static void write_chain(const area *a, uint64_t by) {
    static uint64_t words[BYTES / 8];
    for (uint64_t i = 0; i < LINES; i++) {
        words[i * LINE / 8] = a->memory + (i + by) % LINES * LINE;
    }
    suite_write(a->device, a->memory, words, sizeof words);
}

static void chases_follow(void **state) {
    area a = make_area(state);
    static const char *const names[] = {"cen_chase", "cen_chase_l2"};
    write_chain(&a, 3);
    for (int i = 0; i < 2; i++) {
        for (uint64_t steps = 0; steps < 200; steps += 24) {
            uint64_t bytes = BYTES, got[3], done = steps / CENI_CHASE_BATCH * CENI_CHASE_BATCH;
            uint64_t begin = steps % LINES, first = a.memory + begin * LINE;
            void *args[] = {&a.memory, &bytes, &first, &steps, &a.out};
            launch(&a, names[i], shapes[2], args, 5);
            results(&a, got);
            assert_int_equal(got[0], a.memory + (begin + done * 3) % LINES * LINE);
            assert_true(got[1] > 0 || !done);
        }
    }
}

static void lines_are_timed_each(void **state) {
    area a = make_area(state);
    uint64_t stride = LINE, count = 20, steps = 4096, got[21], after = 77;
    write_chain(&a, 0);
    suite_write(a.device, a.out + 20 * 8, &after, sizeof after);
    void *args[] = {&a.memory, &stride, &count, &steps, &a.out};
    launch(&a, "cen_chase_lines", shapes[0], args, 5);
    suite_read(a.device, got, a.out, sizeof got);
    for (int i = 0; i < 20; i++) {
        assert_true(got[i] > 0);
    }
    assert_int_equal(got[20], 77);
}

static void shared_memory_is_followed(void **state) {
    area a = make_area(state);
    for (uint32_t bytes = 128; bytes <= 32 << 10; bytes *= 4) {
        cen_launch shape = {{1, 1, 1}, {64, 1, 1}, bytes};
        uint64_t steps = 1600, got[3];
        void *args[] = {&bytes, &steps, &a.out};
        launch(&a, "cen_chase_shared", shape, args, 3);
        results(&a, got);
        assert_int_equal(got[0], steps * 17 % (bytes / 4) * 4);
    }
}

static const uint64_t sizes[] = {16, 32, 48, 1008, BYTES};
enum { SIZES = sizeof sizes / sizeof *sizes };

static uint32_t fold(uint32_t seed, uint64_t bytes) {
    uint32_t sum = 0;
    for (uint64_t i = 0; i < bytes / 4; i++) {
        sum ^= ceni_mix_u32(seed, i);
    }
    return sum;
}

static void fill(const area *a, cen_addr at, uint32_t seed) {
    static uint32_t words[WORDS];
    for (uint64_t i = 0; i < WORDS; i++) {
        words[i] = ceni_mix_u32(seed, i);
    }
    suite_write(a->device, at, words, sizeof words);
}

static void reads_see_every_word(void **state) {
    area a = make_area(state);
    uint64_t all = 0, each = 0, expected_all = 0, expected_each = 0, rounds = 3, got[3];
    cen_addr out_each = a.out + 8;
    fill(&a, a.memory, 5);
    for (int s = 0; s < SHAPES; s++) {
        for (int i = 0; i < SIZES; i++) {
            uint64_t bytes = sizes[i];
            void *args[] = {&a.memory, &bytes, &rounds, &a.out};
            launch(&a, "cen_read", shapes[s], args, 4);
            void *args_each[] = {&a.memory, &bytes, &rounds, &out_each};
            launch(&a, "cen_read_l1", shapes[s], args_each, 4);
            expected_all ^= fold(5, bytes);
            expected_each += (uint64_t)fold(5, bytes) * shapes[s].grid[0];
        }
    }
    results(&a, got);
    all = got[0];
    each = got[1];
    assert_int_equal(all, expected_all);
    assert_int_equal(each, expected_each);
}

static void shared_memory_is_read(void **state) {
    area a = make_area(state);
    uint64_t expected = 0, rounds = 5, got[3];
    for (int s = 0; s < SHAPES; s++) {
        for (uint32_t bytes = 16; bytes <= 48 << 10; bytes *= 3) {
            cen_launch shape = shapes[s];
            shape.shared_bytes = bytes;
            void *args[] = {&bytes, &rounds, &a.out};
            launch(&a, "cen_read_shared", shape, args, 3);
            expected += (uint64_t)fold(1, bytes) * shape.grid[0];
        }
    }
    results(&a, got);
    assert_int_equal(got[0], expected);
}

/* Checks `bytes` of what was written, and that what follows was left alone. */
static void compare(const area *a, cen_addr at, const uint32_t *expected, uint64_t bytes,
                    uint32_t behind) {
    static uint32_t got[WORDS + 4];
    suite_read(a->device, got, at, bytes + 16);
    assert_memory_equal(got, expected, bytes);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(got[bytes / 4 + (uint64_t)i], behind);
    }
}

static void writes_fill_and_copy(void **state) {
    area a = make_area(state);
    static uint32_t expected[WORDS];
    cen_addr to = a.memory + 2 * BYTES;
    uint64_t rounds = 2;
    fill(&a, a.memory, 6);
    for (int s = 0; s < SHAPES; s++) {
        for (int i = 0; i < SIZES; i++) {
            uint64_t bytes = sizes[i];
            uint32_t value = 0x1234567 + (uint32_t)i;
            OK(cen_fill_async(a.device, to, 0xee, BYTES + 16, 0));
            void *args[] = {&to, &value, &bytes, &rounds};
            launch(&a, "cen_write", shapes[s], args, 4);
            for (uint64_t w = 0; w < bytes / 4; w++) {
                expected[w] = value;
            }
            compare(&a, to, expected, bytes, 0xeeeeeeee);
            void *args_copy[] = {&to, &a.memory, &bytes, &rounds};
            launch(&a, "cen_copy", shapes[s], args_copy, 4);
            for (uint64_t w = 0; w < bytes / 4; w++) {
                expected[w] = ceni_mix_u32(6, w);
            }
            compare(&a, to, expected, bytes, 0xeeeeeeee);
        }
    }
}

static void triad_adds_what_is_scaled(void **state) {
    area a = make_area(state);
    static float x[WORDS], y[WORDS], expected[WORDS];
    cen_addr b = a.memory + 2 * BYTES, to = a.memory + 4 * BYTES;
    float scale = 1.7f;
    uint64_t rounds = 1;
    for (int i = 0; i < WORDS; i++) {
        x[i] = (float)i * 0.31f - 700;
        y[i] = 3.0f / (float)(i + 1);
        float product = scale * y[i];
        expected[i] = x[i] + product;
    }
    suite_write(a.device, a.memory, x, sizeof x);
    suite_write(a.device, b, y, sizeof y);
    for (int s = 0; s < SHAPES; s++) {
        for (int i = 0; i < SIZES; i++) {
            uint64_t bytes = sizes[i];
            OK(cen_fill_async(a.device, to, 0xee, BYTES + 16, 0));
            void *args[] = {&to, &a.memory, &b, &scale, &bytes, &rounds};
            launch(&a, "cen_triad", shapes[s], args, 6);
            compare(&a, to, (const uint32_t *)(const void *)expected, bytes, 0xeeeeeeee);
        }
    }
}

/* x = x / 2 + 1, from `from` on. */
static float halve(float from, uint64_t times) {
    while (times--) {
        from = from * 0.5f + 1;
    }
    return from;
}

static void arithmetic_is_done(void **state) {
    area a = make_area(state);
    uint64_t expected = 0, got[3];
    uint32_t bits;
    for (uint64_t rounds = 0; rounds < 40; rounds += 3) {
        float sum = 0;
        void *args[] = {&rounds, &a.out};
        launch(&a, "cen_fma", shapes[2], args, 2);
        for (int c = 0; c < CENI_FMA_CHAINS; c++) {
            sum += halve((float)c, rounds);
        }
        expected += (uint64_t)(sum + 0.5f) * shapes[2].grid[0] * shapes[2].block[0];
    }
    results(&a, got);
    assert_int_equal(got[0], expected);
    for (uint64_t rounds = 0; rounds < 3; rounds++) {
        float last = halve(5, rounds * CENI_CHASE_BATCH);
        void *args[] = {&rounds, &a.out};
        launch(&a, "cen_fma_chain", shapes[0], args, 2);
        results(&a, got);
        memcpy(&bits, &last, sizeof bits);
        assert_int_equal(got[0], bits);
    }
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(chases_follow),
    SUITE_TEST(lines_are_timed_each),
    SUITE_TEST(shared_memory_is_followed),
    SUITE_TEST(reads_see_every_word),
    SUITE_TEST(shared_memory_is_read),
    SUITE_TEST(writes_fill_and_copy),
    SUITE_TEST(triad_adds_what_is_scaled),
    SUITE_TEST(arithmetic_is_done),
};
SUITE_MAIN(tests)
