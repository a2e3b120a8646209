/* A pool's memory is reached from another device once that was granted: what is there, and what
 * comes later. */
#include "tests/conformance/global_suite.h"

/* Device 1 writes and reads a block of device 0's pool. */
static void reach(cen_device *peer, void *block, uint8_t value) {
    uint8_t read = 0;
    OK(cen_fill_async(peer, (cen_addr)block, value, 4096, 0));
    OK(cen_copy_async(peer, (cen_addr)&read, (cen_addr)block + 4095, 1, 0));
    OK(cen_stream_sync(peer, 0));
    assert_int_equal(read, value);
}

static void a_peer_reaches_blocks(void **state) {
    const fixture *f = *state;
    cen_host_options options = {.capacity = (uint64_t)1 << 30, .devices = 4};
    cen_device *own = suite_open(f, 0, &options), *peer = suite_open(f, 1, &options);
    bool can = false;
    OK(cen_peer_can_access(peer, own, &can));
    if (!can) {
        suite_skip("the devices cannot reach each other");
    }
    cen_pool *pool;
    OK(cen_pool_create(own, NULL, &pool));
    void *before, *after;
    OK(cen_pool_alloc(pool, 3 * MIB, 0, &before));
    OK(cen_pool_grant(pool, peer));
    OK(cen_pool_grant(pool, peer)); /* once more is no error */
    OK(cen_pool_alloc(pool, 200 * MIB, 0, &after));
    reach(peer, before, 7);
    reach(peer, after, 9);
    FAILS(CEN_ERR_INVALID, cen_pool_grant(pool, NULL));
    FAILS(CEN_ERR_INVALID, cen_pool_grant(NULL, peer));
    OK(cen_pool_verify(pool));
    OK(cen_pool_free(pool, before, 0));
    OK(cen_pool_free(pool, after, 0));
    OK(cen_pool_destroy(pool));
    cen_device_close(peer);
    cen_device_close(own);
}

static const struct CMUnitTest tests[] = {SUITE_TEST(a_peer_reaches_blocks)};
SUITE_MAIN(tests)
