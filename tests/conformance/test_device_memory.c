/* Virtual memory: reservations, pages, mappings, access, segments. */
#include "tests/conformance/suite.h"

static void props_describe_the_device(void **state) {
    fixture *f = *state;
    cen_device_props p;
    OK(cen_device_get_props(f->device, &p));
    assert_true(p.name[0] && p.uuid[0]);
    assert_int_equal(p.ordinal, 0);
    assert_true(p.total_bytes > 0 && p.multiprocessors > 0);
    assert_int_equal(p.granularity & (p.granularity - 1), 0);
    assert_int_equal(p.granularity, f->device->granularity);
    assert_true(p.vmm);
    if (f->host) {
        assert_string_equal(p.uuid, "HOST-0");
    }
}

static void mem_info_follows_pages(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    const uint64_t size = 64 * d->granularity;
    uint64_t before = suite_free_bytes(d);
    ceni_page page;
    OK(ceni_dev_page_create(d, size, 0, &page));
    assert_true(before - suite_free_bytes(d) >= size);
    OK(ceni_dev_page_release(d, page));
    assert_true(suite_free_bytes(d) + d->granularity >= before);
}

static void released_page_lives_while_mapped(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, 0);
    uint32_t word = 0x12345678;
    suite_write(d, m.addr, &word, sizeof word);
    uint64_t before = suite_free_bytes(d);
    OK(ceni_dev_page_release(d, m.pages[0]));
    assert_int_equal(suite_free_bytes(d), before);
    assert_int_equal(suite_word(d, m.addr), word);
    FAILS(CEN_ERR_INVALID, ceni_dev_page_release(d, m.pages[0]));
    OK(ceni_dev_page_unmap(d, m.addr, m.size, 1));
    assert_true(suite_free_bytes(d) >= before + m.size);
    OK(ceni_dev_va_free(d, m.addr, m.size));
}

static void reservations_are_aligned(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    const uint64_t g = d->granularity, align = 64 * g;
    cen_addr a, b;
    OK(ceni_dev_va_reserve(d, 3 * g, align, &a));
    OK(ceni_dev_va_reserve(d, 3 * g, 0, &b));
    assert_int_equal(a % align, 0);
    assert_int_equal(b % g, 0);
    assert_true(a + 3 * g <= b || b + 3 * g <= a);
    FAILS(CEN_ERR_INVALID, ceni_dev_va_free(d, a, 2 * g));
    FAILS(CEN_ERR_INVALID, ceni_dev_va_free(d, a + g, 2 * g));
    OK(ceni_dev_va_free(d, a, 3 * g));
    FAILS(CEN_ERR_INVALID, ceni_dev_va_free(d, a, 3 * g));
    OK(ceni_dev_va_free(d, b, 3 * g));
}

static void mapped_range_is_busy(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 2, 0);
    FAILS(CEN_ERR_BUSY, ceni_dev_va_free(d, m.addr, m.size));
    suite_log_reset();
    FAILS(CEN_ERR_BUSY, ceni_dev_page_map(d, m.addr, m.granule, m.pages[1]));
    assert_int_equal(suite_log_errors, 1);
    suite_unmap(d, &m);
}

static void data_survives_a_remap(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, 0);
    OK(cen_fill_async(d, m.addr, 0xab, m.size, 0));
    OK(cen_stream_sync(d, 0));
    OK(ceni_dev_page_unmap(d, m.addr, m.size, 1));
    cen_addr other;
    OK(ceni_dev_va_reserve(d, m.size, 0, &other));
    assert_int_not_equal(other, m.addr);
    OK(ceni_dev_page_map(d, other, m.size, m.pages[0]));
    ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
    OK(ceni_dev_page_access(d, other, m.size, 1, &grant, 1));
    assert_int_equal(suite_word(d, other + m.size - 4), 0xabababab);
}

static void aliases_see_the_same_bytes(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, 0);
    cen_addr alias;
    OK(ceni_dev_va_reserve(d, m.size, 0, &alias));
    OK(ceni_dev_page_map(d, alias, m.size, m.pages[0]));
    ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
    OK(ceni_dev_page_access(d, alias, m.size, 1, &grant, 1));
    uint32_t word = 0xfeedface;
    suite_write(d, alias + 64, &word, sizeof word);
    assert_int_equal(suite_word(d, m.addr + 64), word);
    OK(ceni_dev_page_unmap(d, m.addr, m.size, 1));
    assert_int_equal(suite_word(d, alias + 64), word);
}

static void stitched_pages_are_one_range(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 8, 0);
    const uint64_t g = m.granule;
    for (uint64_t i = 1; i < 8; i++) { /* a word on each side of each seam */
        uint32_t words[2] = {(uint32_t)i, (uint32_t)i + 100};
        suite_write(d, m.addr + i * g - 4, words, sizeof words);
    }
    OK(ceni_dev_page_unmap(d, m.addr + 3 * g, 2 * g, 2)); /* the neighbours stay */
    OK(ceni_dev_page_map(d, m.addr + 3 * g, g, m.pages[4]));
    OK(ceni_dev_page_map(d, m.addr + 4 * g, g, m.pages[3]));
    ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
    OK(ceni_dev_page_access(d, m.addr + 3 * g, 2 * g, 2, &grant, 1));
    assert_int_equal(suite_word(d, m.addr + 3 * g - 4), 3);
    assert_int_equal(suite_word(d, m.addr + 3 * g), 104);
    assert_int_equal(suite_word(d, m.addr + 4 * g), 103);
    assert_int_equal(suite_word(d, m.addr + 5 * g), 105);
    OK(cen_fill_async(d, m.addr, 0x11, m.size, 0));
    assert_int_equal(suite_word(d, m.addr + 7 * g), 0x11111111);
    suite_unmap(d, &m);
}

static void partial_unmap_and_slices_are_refused(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    const uint64_t g = d->granularity;
    cen_addr addr;
    ceni_page page;
    OK(ceni_dev_va_reserve(d, 4 * g, 0, &addr));
    OK(ceni_dev_page_create(d, 2 * g, 0, &page));
    FAILS(CEN_ERR_UNSUPPORTED, ceni_dev_page_map(d, addr, g, page));
    FAILS(CEN_ERR_INVALID, ceni_dev_page_map(d, addr, 3 * g, page));
    OK(ceni_dev_page_map(d, addr, 2 * g, page));
    ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
    OK(ceni_dev_page_access(d, addr, 2 * g, 1, &grant, 1));
    FAILS(CEN_ERR_INVALID, ceni_dev_page_unmap(d, addr, g, 1));
    FAILS(CEN_ERR_INVALID, ceni_dev_page_unmap(d, addr + g, g, 1));
    FAILS(CEN_ERR_INVALID, ceni_dev_page_unmap(d, addr, 3 * g, 1));
    OK(cen_fill_async(d, addr, 1, 2 * g, 0));
    OK(cen_stream_sync(d, 0));
    OK(ceni_dev_page_unmap(d, addr, 2 * g, 1));
    FAILS(CEN_ERR_INVALID, ceni_dev_page_unmap(d, addr, 2 * g, 1));
}

static void bad_sizes_are_refused(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    const uint64_t g = d->granularity, huge = (uint64_t)1 << 60;
    cen_addr addr = 7;
    ceni_page page = 7;
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, ceni_dev_va_reserve(d, 0, 0, &addr));
    assert_logged("size 0");
    FAILS(CEN_ERR_INVALID, ceni_dev_va_reserve(d, g + 1, 0, &addr));
    assert_logged("granularity");
    FAILS(CEN_ERR_INVALID, ceni_dev_va_reserve(d, g, 3 * g, &addr));
    assert_logged("power of two");
    assert_true(ceni_dev_va_reserve(d, huge, 0, &addr) < 0);
    FAILS(CEN_ERR_INVALID, ceni_dev_page_create(d, 0, 0, &page));
    FAILS(CEN_ERR_INVALID, ceni_dev_page_create(d, g / 2, 0, &page));
    FAILS(CEN_ERR_INVALID, ceni_dev_page_create(d, g, 0x80, &page));
    FAILS(CEN_ERR_DEVICE_MEMORY, ceni_dev_page_create(d, huge, 0, &page));
    FAILS(CEN_ERR_INVALID, ceni_dev_segment_alloc(d, 0, &addr));
    FAILS(CEN_ERR_DEVICE_MEMORY, ceni_dev_segment_alloc(d, huge, &addr));
    assert_int_equal(addr, 7);
    assert_int_equal(page, 7);
    mapped m = suite_map(d, 1, 0);
    FAILS(CEN_ERR_INVALID, ceni_dev_page_unmap(d, m.addr + 1, g, 1));
    FAILS(CEN_ERR_INVALID, ceni_dev_page_unmap(d, m.addr, UINT64_MAX - g + 1, 1));
    FAILS(CEN_ERR_INVALID, ceni_dev_page_map(d, 0, g, m.pages[0]));
}

static void read_only_memory_can_be_read_only(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("on a GPU the write would end the context");
    }
    cen_device *d = f->device;
    mapped m = suite_map(d, 2, 0);
    OK(cen_fill_async(d, m.addr, 0x22, m.size, 0));
    OK(cen_stream_sync(d, 0));
    ceni_grant grant = {d, CENI_ACCESS_READ};
    OK(ceni_dev_page_access(d, m.addr + m.granule, m.granule, 1, &grant, 1));
    FAILS(CEN_ERR_FAULT, cen_fill_async(d, m.addr, 1, m.size, 0));
    OK(cen_fill_async(d, m.addr, 0x33, m.granule, 0));
    assert_int_equal(suite_word(d, m.addr + m.granule), 0x22222222);
    grant.access = CENI_ACCESS_NONE;
    OK(ceni_dev_page_access(d, m.addr, m.size, 2, &grant, 1));
    uint32_t word;
    FAILS(CEN_ERR_FAULT, cen_copy_async(d, address(&word), m.addr, 4, 0));
    grant.access = CENI_ACCESS_READ_WRITE;
    OK(ceni_dev_page_access(d, m.addr, m.size, 2, &grant, 1));
    assert_int_equal(suite_word(d, m.addr), 0x33333333);
}

static void segments_are_plain_memory(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    uint64_t before = suite_free_bytes(d);
    cen_addr a, b;
    OK(ceni_dev_segment_alloc(d, 3 * d->granularity + 5, &a));
    OK(ceni_dev_segment_alloc(d, 1, &b));
    assert_true(suite_free_bytes(d) < before);
    OK(cen_fill_async(d, a, 0x44, 3 * d->granularity + 5, 0));
    OK(cen_stream_sync(d, 0));
    assert_int_equal(suite_word(d, a + 3 * d->granularity), 0x44444444);
    FAILS(CEN_ERR_INVALID, ceni_dev_segment_free(d, a + d->granularity));
    OK(ceni_dev_segment_free(d, a));
    OK(ceni_dev_segment_free(d, b));
    FAILS(CEN_ERR_INVALID, ceni_dev_segment_free(d, a));
    assert_true(suite_free_bytes(d) + d->granularity >= before);
}

static void freeing_a_segment_waits_for_its_use(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    cen_stream stream;
    cen_addr segment;
    OK(cen_stream_create(d, 0, &stream));
    OK(ceni_dev_segment_alloc(d, d->granularity, &segment));
    suite_spin(d, 20 * 1000 * 1000, stream);
    OK(cen_fill_async(d, segment, 1, d->granularity, stream));
    OK(ceni_dev_segment_free(d, segment));
    OK(cen_stream_sync(d, stream));
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(props_describe_the_device),
    SUITE_TEST(mem_info_follows_pages),
    SUITE_TEST(released_page_lives_while_mapped),
    SUITE_TEST(reservations_are_aligned),
    SUITE_TEST(mapped_range_is_busy),
    SUITE_TEST(data_survives_a_remap),
    SUITE_TEST(aliases_see_the_same_bytes),
    SUITE_TEST(stitched_pages_are_one_range),
    SUITE_TEST(partial_unmap_and_slices_are_refused),
    SUITE_TEST(bad_sizes_are_refused),
    SUITE_TEST(read_only_memory_can_be_read_only),
    SUITE_TEST(segments_are_plain_memory),
    SUITE_TEST(freeing_a_segment_waits_for_its_use),
};
SUITE_MAIN(tests)
