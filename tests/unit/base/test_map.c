/* The map against a plain array: random puts and removals in a small key space, so that probe
 * sequences collide, wrap around and are cut by removals. */
#include "base/map.h"

#include "base/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define KEYS 300

static void agrees_with_an_array(void **state) {
    ceni_map map = {0};
    uint64_t model[KEYS] = {0}, random = 1; /* 0: not there */
    size_t count = 0;
    for (uint64_t round = 1; round < 200000; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t key = (random >> 33) % KEYS;
        uint64_t value = 0;
        if (random >> 62) {
            assert_false(ceni_map_put(&map, key << 40, round));
            count += !model[key];
            model[key] = round;
        } else {
            assert_int_equal(ceni_map_remove(&map, key << 40, &value), model[key] != 0);
            assert_int_equal(value, model[key]);
            count -= model[key] != 0;
            model[key] = 0;
        }
        assert_int_equal(map.count, count);
        key = (random >> 20) % KEYS;
        uint64_t *found = ceni_map_get(&map, key << 40);
        assert_int_equal(found ? *found : 0, model[key]);
    }
    ceni_map_free(&map);
}

static void failing_memory_changes_nothing(void **state) {
    ceni_map map = {0};
    assert_null(ceni_map_get(&map, 0));
    assert_false(ceni_map_remove(&map, 0, NULL));
    for (uint64_t key = 0; key < 100; key++) {
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 1, true);
        int failed = ceni_map_put(&map, key, key);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        assert_int_equal(map.count, key + !failed);
        assert_false(failed && ceni_map_put(&map, key, key));
    }
    for (uint64_t key = 0; key < 100; key++) {
        assert_int_equal(*ceni_map_get(&map, key), key);
    }
    ceni_map_free(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_an_array),
        cmocka_unit_test(failing_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
