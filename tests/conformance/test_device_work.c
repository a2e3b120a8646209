/* Copies, fills and kernels, pinned memory, peers. */
#include "tests/conformance/suite.h"

static void copies_go_in_every_direction(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 2, 0);
    const size_t size = m.granule - 3;
    unsigned char *pageable = malloc(size), *pinned;
    OK(cen_pinned_alloc(d, size, (void **)&pinned));
    for (size_t i = 0; i < size; i++) {
        pageable[i] = (unsigned char)(i * 7 + i / 251);
    }
    cen_addr a = m.addr + 1, b = m.addr + m.granule + 2;
    OK(cen_copy_async(d, address(pinned), address(pageable), size, 0)); /* host to host */
    OK(cen_copy_async(d, a, address(pinned), size, 0));
    OK(cen_copy_async(d, b, a, size, 0));
    OK(cen_stream_sync(d, 0));
    memset(pinned, 0, size);
    OK(cen_copy_async(d, address(pinned), b, size, 0));
    OK(cen_stream_sync(d, 0));
    assert_memory_equal(pinned, pageable, size);
    OK(cen_fill_async(d, a, 0, size, 0));
    OK(cen_copy_async(d, a, address(pageable), size, 0));
    OK(cen_stream_sync(d, 0));
    memset(pageable, 0, size);
    OK(cen_copy_async(d, address(pageable), a, size, 0));
    OK(cen_stream_sync(d, 0));
    assert_memory_equal(pinned, pageable, size);
    OK(cen_pinned_free(d, pinned));
    free(pageable);
}

static void a_pageable_source_may_change_after_the_call(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, 0);
    cen_stream stream;
    OK(cen_stream_create(d, 0, &stream));
    uint32_t word = 0x11223344;
    suite_spin(d, 5 * 1000 * 1000, stream);
    OK(cen_copy_async(d, m.addr, address(&word), sizeof word, stream));
    word = 0;
    OK(cen_stream_sync(d, stream));
    assert_int_equal(suite_word(d, m.addr), 0x11223344);
}

static void empty_work_is_no_error(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    OK(cen_copy_async(d, 0, 0, 0, 0));
    OK(cen_fill_async(d, 0, 1, 0, 0));
    FAILS(CEN_ERR_INVALID, cen_fill_async(d, 0, 1, 1, 0));
    FAILS(CEN_ERR_INVALID, cen_fill_async(d, UINT64_MAX - 2, 1, 8, 0));
}

static uint64_t mismatches(cen_device *d, cen_addr words, uint32_t seed, uint64_t count,
                           cen_addr scratch) {
    uint64_t result = 0;
    OK(cen_fill_async(d, scratch, 0, sizeof result, 0));
    void *args[] = {&words, &seed, &count, &scratch};
    suite_launch(d, "cen_check_u32", args, 4, 0);
    suite_read(d, &result, scratch, sizeof result);
    return result;
}

static void kernels_agree_with_the_pattern(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 2, 0);
    uint64_t count = m.granule / 4;
    uint32_t seed = 0xC0FFEE;
    void *args[] = {&m.addr, &seed, &count};
    suite_launch(d, "cen_pattern_u32", args, 3, 0);
    cen_addr scratch = m.addr + m.granule;
    uint32_t *words = malloc(m.granule);
    suite_read(d, words, m.addr, m.granule);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t x = (uint32_t)i * 0x9E3779B1u ^ seed;
        x ^= x >> 16;
        x *= 0x85EBCA6Bu;
        assert_int_equal(words[i], x ^ x >> 13);
    }
    assert_int_equal(mismatches(d, m.addr, seed, count, scratch), 0);
    words[0] ^= 1;
    words[count / 2] ^= 1u << 31;
    words[count - 1] ^= 1;
    suite_write(d, m.addr, words, m.granule);
    assert_int_equal(mismatches(d, m.addr, seed, count, scratch), 3);
    uint32_t value = 0xdeadbeef;
    void *fill[] = {&m.addr, &value, &count};
    suite_launch(d, "cen_fill_u32", fill, 3, 0);
    assert_int_equal(suite_word(d, m.addr + m.granule - 4), value);
    free(words);
}

static void launches_are_checked(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    cen_launch shape = {{1, 1, 1}, {1, 1, 1}, 0};
    uint64_t ns = 1;
    void *args[] = {&ns, &ns};
    cen_status status = cen_kernel_launch(d, "cen_nothing", &shape, NULL, 0, 0);
    assert_true(status == CEN_ERR_NOT_FOUND || status == CEN_ERR_UNSUPPORTED);
    assert_true(cen_kernel_launch(d, "cen_spin", &shape, args, 2, 0) < 0);
    shape.grid[1] = 0;
    FAILS(CEN_ERR_INVALID, cen_kernel_launch(d, "cen_spin", &shape, args, 1, 0));
    FAILS(CEN_ERR_INVALID, cen_kernel_launch(d, NULL, &shape, args, 1, 0));
}

static void kernels_use_pinned_memory(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    uint32_t *pinned, value = 77;
    uint64_t count = 1000;
    OK(cen_pinned_alloc(d, count * 4, (void **)&pinned));
    cen_addr dst = address(pinned);
    void *args[] = {&dst, &value, &count};
    suite_launch(d, "cen_fill_u32", args, 3, 0);
    OK(cen_stream_sync(d, 0));
    assert_int_equal(pinned[0], 77);
    assert_int_equal(pinned[999], 77);
    OK(cen_pinned_free(d, pinned));
}

static void memory_can_be_registered_once(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    const size_t size = 1 << 20;
    unsigned char *memory = aligned_alloc(4096, size);
    memset(memory, 5, size);
    OK(cen_pinned_register(d, memory, size));
    suite_log_reset();
    assert_true(cen_pinned_register(d, memory + 4096, 4096) < 0);
    assert_int_equal(suite_log_errors, 1);
    mapped m = suite_map(d, 1, 0);
    OK(cen_copy_async(d, m.addr, address(memory), 4096, 0));
    assert_int_equal(suite_word(d, m.addr + 4092), 0x05050505);
    FAILS(CEN_ERR_INVALID, cen_pinned_free(d, memory));
    OK(cen_pinned_unregister(d, memory));
    FAILS(CEN_ERR_INVALID, cen_pinned_unregister(d, memory));
    free(memory);
}

/* The second device of the fixture's backend, or the test is skipped. */
static cen_device *open_peer(fixture *f) {
    int count = 0;
    OK(cen_device_count(f->host ? "host" : "cuda", &count));
    if (count < 2) {
        suite_skip("one device only");
    }
    return suite_open(f, 1, NULL);
}

static void peers_copy_and_map(void **state) {
    fixture *f = *state;
    cen_device *d = f->device, *peer = open_peer(f);
    bool can = false;
    OK(cen_peer_can_access(d, peer, &can));
    if (!can) {
        cen_device_close(peer);
        suite_skip("the devices cannot reach each other");
    }
    FAILS(CEN_ERR_INVALID, cen_peer_enable(d, d));
    mapped mine = suite_map(d, 1, 0), theirs = suite_map(peer, 1, 0);
    OK(cen_fill_async(peer, theirs.addr, 0x5a, theirs.size, 0));
    OK(cen_stream_sync(peer, 0));
    OK(cen_copy_peer_async(d, mine.addr, peer, theirs.addr, mine.size, 0));
    assert_int_equal(suite_word(d, mine.addr), 0x5a5a5a5a);
    OK(cen_peer_enable(d, peer));
    OK(cen_peer_enable(d, peer));
    ceni_grant grants[] = {{peer, CENI_ACCESS_READ_WRITE}, {d, CENI_ACCESS_READ}};
    OK(ceni_dev_page_access(peer, theirs.addr, theirs.size, 1, grants, 2));
    assert_int_equal(suite_word(d, theirs.addr + 16), 0x5a5a5a5a);
    if (f->host) {
        FAILS(CEN_ERR_FAULT, cen_fill_async(d, theirs.addr, 1, 4, 0));
    }
    OK(cen_fill_async(peer, theirs.addr, 0x6b, 4, 0));
    OK(cen_stream_sync(peer, 0));
    assert_int_equal(suite_word(d, theirs.addr), 0x6b6b6b6b);
    cen_device_close(peer);
}

static void access_needs_an_enabled_peer(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("CUDA grants page access without it");
    }
    cen_device *d = f->device, *peer = open_peer(f);
    mapped m = suite_map(d, 1, 0);
    cen_addr segment;
    OK(ceni_dev_segment_alloc(d, 64, &segment));
    ceni_grant grant = {peer, CENI_ACCESS_READ_WRITE};
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, ceni_dev_page_access(d, m.addr, m.size, 1, &grant, 1));
    assert_logged("has not enabled peer access");
    FAILS(CEN_ERR_FAULT, cen_fill_async(peer, m.addr, 1, 4, 0));
    FAILS(CEN_ERR_FAULT, cen_fill_async(peer, segment, 1, 4, 0));
    OK(cen_peer_enable(peer, d));
    OK(ceni_dev_page_access(d, m.addr, m.size, 1, &grant, 1));
    OK(cen_fill_async(peer, m.addr, 1, 4, 0));
    OK(cen_fill_async(peer, segment, 2, 4, 0)); /* plain memory is open to enabled peers */
    OK(cen_stream_sync(peer, 0));
    assert_int_equal(suite_word(d, m.addr), 0x01010101);
    assert_int_equal(suite_word(d, segment), 0x02020202);
    cen_device_close(peer);
}

static void rights_end_with_their_device(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("about the rights that the host keeps");
    }
    cen_device *d = f->device, *peer = open_peer(f);
    mapped m = suite_map(d, 1, 0);
    ceni_grant grant = {peer, CENI_ACCESS_READ_WRITE};
    OK(cen_peer_enable(d, peer));
    OK(cen_peer_enable(peer, d));
    OK(ceni_dev_page_access(d, m.addr, m.size, 1, &grant, 1));
    cen_device_close(peer);
    peer = suite_open(f, 1, NULL); /* another card, in the same place */
    uint32_t word;
    FAILS(CEN_ERR_FAULT, cen_fill_async(peer, m.addr, 1, 4, 0));
    FAILS(CEN_ERR_FAULT, cen_copy_async(peer, address(&word), m.addr, 4, 0));
    cen_addr segment;
    OK(ceni_dev_segment_alloc(peer, 64, &segment));
    FAILS(CEN_ERR_FAULT, cen_fill_async(d, segment, 1, 4, 0));
    cen_device_close(peer);
}

static void pages_in_host_memory(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    const uint64_t g = d->granularity;
    uint64_t before = suite_free_bytes(d);
    ceni_page page;
    cen_status status = ceni_dev_page_create(d, g, CENI_PAGE_HOST, &page);
    if (status == CEN_ERR_UNSUPPORTED && !f->host) {
        suite_skip("the device cannot map pages of host memory");
    }
    OK(status);
    if (f->host) {
        assert_int_equal(suite_free_bytes(d), before); /* it is nobody's device memory */
    }
    cen_addr addr;
    OK(ceni_dev_va_reserve(d, g, 0, &addr));
    OK(ceni_dev_page_map(d, addr, g, page));
    ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
    OK(ceni_dev_page_access(d, addr, g, 1, &grant, 1));
    OK(cen_fill_async(d, addr, 0x2d, g, 0));
    assert_int_equal(suite_word(d, addr + g - 4), 0x2d2d2d2d);
    OK(ceni_dev_page_unmap(d, addr, g, 1));
    OK(ceni_dev_page_release(d, page));
    OK(ceni_dev_va_free(d, addr, g));
}

static void links_are_ranked(void **state) {
    fixture *f = *state;
    cen_device *d = f->device, *peer = open_peer(f);
    int rank = -1;
    OK(ceni_dev_peer_rank(d, peer, &rank));
    assert_true(rank >= 0);
    cen_device_close(peer);
}

static void groups_do_not_reach_each_other(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("only the host can part its devices");
    }
    cen_host_options options = {.size = sizeof options, .devices = 4, .peer_group = 2};
    cen_device *devices[4];
    for (int i = 0; i < 4; i++) {
        OK(cen_device_open_host(i, &options, &devices[i]));
    }
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++) {
            bool can = false;
            OK(cen_peer_can_access(devices[i], devices[k], &can));
            assert_int_equal(can, i != k && i / 2 == k / 2);
        }
    }
    FAILS(CEN_ERR_UNSUPPORTED, cen_peer_enable(devices[0], devices[2]));
    OK(cen_peer_enable(devices[0], devices[1]));
    for (int i = 0; i < 4; i++) {
        cen_device_close(devices[i]);
    }
}

static void one_range_over_two_devices(void **state) {
    fixture *f = *state;
    cen_device *d = f->device, *peer = open_peer(f);
    const uint64_t g = d->granularity;
    OK(cen_peer_enable(d, peer));
    cen_addr addr;
    ceni_page mine, theirs;
    OK(ceni_dev_va_reserve(d, 2 * g, 0, &addr));
    OK(ceni_dev_page_create(d, g, 0, &mine));
    OK(ceni_dev_page_create(peer, g, 0, &theirs));
    OK(ceni_dev_page_map(d, addr, g, mine));
    OK(ceni_dev_page_map(d, addr + g, g, theirs));
    ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
    OK(ceni_dev_page_access(d, addr, 2 * g, 2, &grant, 1));
    OK(cen_fill_async(d, addr, 0x3c, 2 * g, 0));
    assert_int_equal(suite_word(d, addr + g), 0x3c3c3c3c);
    OK(ceni_dev_page_unmap(d, addr, 2 * g, 2));
    cen_device_close(peer);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(copies_go_in_every_direction),
    SUITE_TEST(a_pageable_source_may_change_after_the_call),
    SUITE_TEST(empty_work_is_no_error),
    SUITE_TEST(kernels_agree_with_the_pattern),
    SUITE_TEST(launches_are_checked),
    SUITE_TEST(kernels_use_pinned_memory),
    SUITE_TEST(memory_can_be_registered_once),
    SUITE_TEST(peers_copy_and_map),
    SUITE_TEST(access_needs_an_enabled_peer),
    SUITE_TEST(rights_end_with_their_device),
    SUITE_TEST(pages_in_host_memory),
    SUITE_TEST(links_are_ranked),
    SUITE_TEST(groups_do_not_reach_each_other),
    SUITE_TEST(one_range_over_two_devices),
};
SUITE_MAIN(tests)
