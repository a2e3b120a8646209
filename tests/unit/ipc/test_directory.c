/* Directories: what is written is read back, and what a hostile publisher writes is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"
#include "ipc/directory.h"

#define BASE  ((cen_addr)0x700000000000)
#define BYTES ((uint64_t)1 << 30)

typedef struct built {
    uint8_t *data;
    size_t size;
} built;

static built build(const cen_share_item *items, size_t count) {
    void *data = NULL;
    built b = {0};
    assert_int_equal(ceni_directory_build(items, count, BASE, &data, &b.size), CEN_OK);
    b.data = data;
    return b;
}

static void items_come_back(void **state) {
    const cen_share_item items[] = {
        {"b.weight", BASE + 512, 100, "f32", 4},
        {"a.weight", BASE, 512, NULL, 0},
        {"", BASE + BYTES - 1, 1, "x", 1},
    };
    built b = build(items, 3);
    ceni_directory d;
    assert_int_equal(ceni_directory_open(b.data, b.size, BYTES, &d), CEN_OK);
    assert_int_equal(d.count, 3);
    assert_int_equal(d.bytes, 613);
    for (size_t i = 0; i < 3; i++) {
        cen_share_item item;
        size_t index = 99;
        ceni_directory_item(&d, i, 0x1000, &item);
        assert_string_equal(item.name, items[i].name);
        assert_true(item.addr == items[i].addr - BASE + 0x1000);
        assert_true(item.bytes == items[i].bytes);
        assert_int_equal(item.meta_bytes, items[i].meta_bytes);
        if (items[i].meta) {
            assert_memory_equal(item.meta, items[i].meta, item.meta_bytes);
        }
        assert_true(ceni_directory_find(&d, items[i].name, &index));
        assert_int_equal(index, i);
    }
    size_t index;
    assert_false(ceni_directory_find(&d, "c", &index));
    ceni_free(b.data);
}

static void many_are_found_by_name(void **state) {
    enum { COUNT = 10000 };
    cen_share_item *items = calloc(COUNT, sizeof *items);
    char(*names)[32] = calloc(COUNT, sizeof *names);
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "layer.%zu.w", i * 7919 % COUNT);
        items[i] = (cen_share_item){.name = names[i], .addr = BASE + i * 512, .bytes = 512};
    }
    built b = build(items, COUNT);
    ceni_directory d;
    assert_int_equal(ceni_directory_open(b.data, b.size, BYTES, &d), CEN_OK);
    for (size_t i = 0; i < COUNT; i++) {
        size_t index = COUNT;
        assert_true(ceni_directory_find(&d, names[i], &index));
        assert_int_equal(index, i);
    }
    ceni_free(b.data);
    free(names);
    free(items);
}

static void what_cannot_be_told_apart_is_refused(void **state) {
    void *data = NULL;
    size_t size = 0;
    cen_share_item items[] = {{"a", BASE, 1, NULL, 0}, {"a", BASE + 1, 1, NULL, 0}};
    assert_int_equal(ceni_directory_build(items, 2, BASE, &data, &size), CEN_ERR_INVALID);
    char *longest = calloc(1, CENI_DIRECTORY_NAME_MAX + 2);
    memset(longest, 'n', CENI_DIRECTORY_NAME_MAX + 1);
    items[1].name = longest;
    assert_int_equal(ceni_directory_build(items, 2, BASE, &data, &size), CEN_ERR_INVALID);
    longest[CENI_DIRECTORY_NAME_MAX] = 0;
    items[1].meta = longest;
    items[1].meta_bytes = CEN_SHARE_META_MAX + 1;
    assert_int_equal(ceni_directory_build(items, 2, BASE, &data, &size), CEN_ERR_INVALID);
    items[1].meta_bytes = CEN_SHARE_META_MAX;
    assert_null(data);
    assert_int_equal(ceni_directory_build(items, 2, BASE, &data, &size), CEN_OK);
    ceni_free(data);
    free(longest);
}

/* Places in a directory of two items, by docs/formats/share.md. */
enum {
    HEAD_SIZE = 8,
    HEAD_COUNT = 16,
    ENTRIES = 24,
    ENTRY = 32,
    ENTRY_BYTES = 8,
    ENTRY_NAME = 16,
    ENTRY_NAME_SIZE = 20,
    ENTRY_META = 24,
    ENTRY_META_SIZE = 28,
    ORDER = ENTRIES + 2 * ENTRY
};

static void refused_with(const built *b, size_t at, const void *value, size_t size) {
    uint8_t *copy = malloc(b->size + 1);
    ceni_directory d = {.count = 77};
    memcpy(copy, b->data, b->size);
    memcpy(copy + at, value, size);
    if (ceni_directory_open(copy, b->size, BYTES, &d) != CEN_ERR_FORMAT &&
        ceni_directory_open(copy, b->size, BYTES, &d) != CEN_ERR_TRUNCATED) {
        fail_msg("accepted with byte %zu changed", at);
    }
    assert_int_equal(d.count, 77);
    free(copy);
}

static void refused_u32(const built *b, size_t at, uint32_t value) {
    refused_with(b, at, &value, sizeof value);
}
static void refused_u64(const built *b, size_t at, uint64_t value) {
    refused_with(b, at, &value, sizeof value);
}

static void hostile_ones_are_refused(void **state) {
    const cen_share_item items[] = {{"b", BASE, 16, "meta", 4}, {"a", BASE + 16, 16, NULL, 0}};
    built b = build(items, 2);
    ceni_directory d;
    for (size_t size = 0; size < b.size; size++) {
        uint8_t *part = malloc(size + 1);
        memcpy(part, b.data, size);
        assert_int_equal(ceni_directory_open(part, size, BYTES, &d), CEN_ERR_TRUNCATED);
        free(part);
    }
    refused_with(&b, 0, "X", 1);
    refused_u64(&b, HEAD_SIZE, b.size + 8);
    refused_u64(&b, HEAD_SIZE, 0);
    refused_u32(&b, HEAD_COUNT, 3);
    refused_u32(&b, HEAD_COUNT, UINT32_MAX);
    refused_u64(&b, ENTRIES, BYTES);
    refused_u64(&b, ENTRIES, UINT64_MAX);
    refused_u64(&b, ENTRIES + ENTRY_BYTES, BYTES + 1);
    refused_u64(&b, ENTRIES + ENTRY_BYTES, UINT64_MAX);
    refused_u32(&b, ENTRIES + ENTRY_NAME, 0);
    refused_u32(&b, ENTRIES + ENTRY_NAME, (uint32_t)b.size);
    refused_u32(&b, ENTRIES + ENTRY_NAME, UINT32_MAX);
    refused_u32(&b, ENTRIES + ENTRY_NAME_SIZE, 0);
    refused_u32(&b, ENTRIES + ENTRY_NAME_SIZE, 2);
    refused_u32(&b, ENTRIES + ENTRY_NAME_SIZE, UINT32_MAX);
    refused_u32(&b, ENTRIES + ENTRY_META, 8);
    refused_u32(&b, ENTRIES + ENTRY_META, UINT32_MAX - 7);
    refused_u32(&b, ENTRIES + ENTRY_META_SIZE, 1000);
    refused_u32(&b, ENTRIES + ENTRY_META_SIZE, UINT32_MAX);
    refused_u32(&b, ORDER, 0);
    refused_u32(&b, ORDER, 2);
    refused_u32(&b, ORDER + 4, 1);
    refused_u32(&b, ORDER + 4, UINT32_MAX);
    ceni_free(b.data);
}

static void memory_that_runs_out_leaves_nothing(void **state) {
    const cen_share_item items[] = {{"b", BASE, 16, "meta", 4}, {"a", BASE + 16, 16, NULL, 0}};
    void *data = NULL;
    size_t size = 0;
    for (int n = 1;; n++) {
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], n, false);
        cen_status status = ceni_directory_build(items, 2, BASE, &data, &size);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        if (!status) {
            assert_true(n > 2);
            break;
        }
        assert_int_equal(status, CEN_ERR_HOST_MEMORY);
        assert_null(data);
    }
    ceni_free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_back),
        cmocka_unit_test(many_are_found_by_name),
        cmocka_unit_test(what_cannot_be_told_apart_is_refused),
        cmocka_unit_test(hostile_ones_are_refused),
        cmocka_unit_test(memory_that_runs_out_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
