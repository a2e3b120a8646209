/* The driver's own handles of memory, and dma-bufs: on CUDA. */
#include "tests/conformance/child.h"

enum { OFFSET = 4096 };

typedef struct offer {
    ceni_legacy_handle handle;
    uint64_t offset, bytes;
} offer;

static void play_opener(const fixture *f, int socket) {
    cen_device *d = f->device, *second = suite_open(f, 0, NULL);
    offer o;
    cen_addr addr = 0, again = 0, third = 0;
    uint64_t bytes = 0;
    child_hear(socket, &o, sizeof o);
    OK(ceni_dev_legacy_open(d, &o.handle, &addr, &bytes));
    assert_int_equal(bytes, o.bytes);
    OK(ceni_dev_legacy_open(d, &o.handle, &again, &bytes)); /* the driver would refuse it */
    OK(ceni_dev_legacy_open(second, &o.handle, &third, &bytes));
    assert_int_equal(again, addr);
    assert_int_equal(third, addr);
    assert_int_equal(suite_word(d, addr), 0x13131313);
    assert_int_equal(suite_word(d, addr + o.offset), 0x14141414);
    OK(ceni_dev_legacy_close(d, addr + o.offset));
    OK(ceni_dev_legacy_close(d, addr));
    FAILS(CEN_ERR_INVALID, ceni_dev_legacy_close(d, addr)); /* the other one is not its own */
    OK(cen_fill_async(second, addr + o.offset, 0x15, 4, 0));
    OK(cen_stream_sync(second, 0));
    cen_device_close(second); /* closes what is left */
    FAILS(CEN_ERR_INVALID, ceni_dev_legacy_close(d, addr));
    OK(ceni_dev_legacy_open(d, &o.handle, &addr, &bytes));
    assert_int_equal(suite_word(d, addr + o.offset), 0x15151515);
    child_tell_word(socket, 0);
}

static const child_role roles[] = {{"opener", play_opener}};

static void another_process_opens_a_handle(void **state) {
    fixture *f = *state;
    if (f->host) {
        suite_skip("host devices have no such handles");
    }
    cen_device *d = f->device;
    const uint64_t size = 2 * d->granularity;
    cen_addr addr;
    offer o;
    OK(ceni_dev_segment_alloc(d, size, &addr));
    OK(cen_fill_async(d, addr, 0x13, size, 0));
    OK(cen_fill_async(d, addr + OFFSET, 0x14, 4, 0));
    OK(cen_stream_sync(d, 0));
    OK(ceni_dev_legacy_export(d, addr + OFFSET, &o.handle, &o.offset, &o.bytes));
    assert_int_equal(o.offset, OFFSET);
    assert_int_equal(o.bytes, size);
    child c = child_start(f, "opener");
    child_tell(c.socket, &o, sizeof o, -1);
    child_hear_word(c.socket);
    child_end(c); /* with a view open */
    assert_int_equal(suite_word(d, addr + OFFSET), 0x15151515);
    cen_addr none = 7;
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, ceni_dev_legacy_open(d, &o.handle, &none, &o.bytes));
    assert_logged("this process's own");
    assert_int_equal(none, 7);
    OK(ceni_dev_segment_free(d, addr));
}

static void other_memory_has_no_handle(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    mapped m = suite_map(d, 1, CENI_PAGE_EXPORTABLE);
    offer o;
    cen_addr addr = 7;
    suite_log_reset();
    FAILS(CEN_ERR_UNSUPPORTED, ceni_dev_legacy_export(d, m.addr, &o.handle, &o.offset, &o.bytes));
    assert_logged("cen_share_export");
    const cen_status other = f->host ? CEN_ERR_UNSUPPORTED : CEN_ERR_INVALID;
    FAILS(other, ceni_dev_legacy_export(d, address(&o), &o.handle, &o.offset, &o.bytes));
    memset(&o.handle, 0x5e, sizeof o.handle);
    suite_log_reset();
    FAILS(other, ceni_dev_legacy_open(d, &o.handle, &addr, &o.bytes));
    assert_int_equal(suite_log_errors, 1);
    assert_int_equal(addr, 7);
    FAILS(other, ceni_dev_legacy_close(d, m.addr));
    FAILS(CEN_ERR_INVALID, ceni_dev_legacy_export(d, m.addr, NULL, &o.offset, &o.bytes));
    FAILS(CEN_ERR_INVALID, ceni_dev_legacy_open(d, NULL, &addr, &o.bytes));
    suite_unmap(d, &m);
}

static void a_dmabuf_is_a_descriptor(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    cen_device_props props;
    OK(cen_device_get_props(d, &props));
    mapped m = suite_map(d, 2, CENI_PAGE_EXPORTABLE | (props.rdma ? CENI_PAGE_RDMA : 0u));
    int fd = -7;
    FAILS(CEN_ERR_INVALID, ceni_dev_dmabuf(d, m.addr + 8, m.granule, &fd));
    FAILS(CEN_ERR_INVALID, ceni_dev_dmabuf(d, m.addr, m.granule - 8, &fd));
    FAILS(CEN_ERR_INVALID, ceni_dev_dmabuf(d, m.addr, 0, &fd));
    FAILS(CEN_ERR_INVALID, ceni_dev_dmabuf(d, m.addr, m.granule, NULL));
    suite_log_reset();
    cen_status status = ceni_dev_dmabuf(d, m.addr, m.granule, &fd);
    if (status) {
        assert_int_equal(status, CEN_ERR_UNSUPPORTED);
        assert_logged("dmabuf");
        assert_int_equal(fd, -7);
        suite_skip("there is no dma-buf of this device's memory");
    }
    assert_false(f->host);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    suite_unmap(d, &m);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(another_process_opens_a_handle),
    SUITE_TEST(other_memory_has_no_handle),
    SUITE_TEST(a_dmabuf_is_a_descriptor),
};
CHILD_MAIN(tests, roles)
