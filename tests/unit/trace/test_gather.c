/* A stack that was gathered before is recognised without being unwound: always the right one,
 * whoever asks from wherever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "trace/emit_gather.h"

enum { PATHS = 6, ROUNDS = 300 };

static volatile unsigned steps; /* so that no call below is the last of its function */

__attribute__((noinline)) static void ask(ceni_raw_stack *stack, size_t skip) {
    ceni_gather_native(stack, skip);
    steps++;
}

/* Frames of one size, told apart by their addresses only. */
#define PATH(n)                                                                                    \
    __attribute__((noinline)) static void path_##n(ceni_raw_stack *stack, size_t skip) {           \
        ask(stack, skip);                                                                          \
        steps += (n);                                                                              \
    }
PATH(0)
PATH(1)
PATH(2)

__attribute__((noinline)) static void deeper(void (*path)(ceni_raw_stack *, size_t),
                                             ceni_raw_stack *stack, size_t skip) {
    path(stack, skip);
    steps++;
}

static void by_path(int n, ceni_raw_stack *stack, size_t skip) {
    static void (*const paths[])(ceni_raw_stack *, size_t) = {path_0, path_1, path_2};
    if (n < 3) {
        paths[n](stack, skip);
    } else {
        deeper(paths[n - 3], stack, skip);
    }
    steps++;
}

static void every_path_keeps_its_own(void **state) {
    ceni_raw_stack first[PATHS], again;
    for (int n = 0; n < PATHS; n++) {
        by_path(n, &first[n], 0);
        assert_true(first[n].native_count > 4);
        for (int k = 0; k < n; k++) {
            assert_false(first[k].native_count == first[n].native_count &&
                         !memcmp(first[k].native, first[n].native,
                                 first[n].native_count * sizeof *first[n].native));
        }
    }
    uint32_t seed = 7;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 1664525 + 1013904223;
        int n = (int)(seed >> 16) % PATHS;
        by_path(n, &again, 0);
        /* by_path was called from another line: what is inside of it is the same. */
        size_t inside = n < 3 ? 2 : 3;
        assert_int_equal(again.native_count, first[n].native_count);
        assert_memory_equal(again.native, first[n].native, inside * sizeof *again.native);
    }
}

static void what_is_skipped_counts(void **state) {
    for (int i = 0; i < 3; i++) {
        ceni_raw_stack whole, without[2];
        for (int n = 0; n < 2; n++) { /* from one line: but for `skip` all is the same */
            by_path(0, &without[n], (size_t)n);
        }
        by_path(0, &whole, 0);
        assert_int_equal(without[0].native_count, whole.native_count);
        assert_int_equal(without[1].native_count, whole.native_count - 1);
        assert_int_equal(without[0].native[1], without[1].native[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_keeps_its_own),
        cmocka_unit_test(what_is_skipped_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
