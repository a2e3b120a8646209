/* The local pool behind allocators that know a device and no stream: a pool looked up by its
 * number, and the default stream. */
#include "cenote/frameworks.h"

#include "base/log.h"

static cen_pool *pool_of(const cen_frameworks_pools *pools, int device, const char *caller) {
    if (!pools || device < 0 || device >= CEN_FRAMEWORKS_DEVICES || !pools->pools[device]) {
        (void)ceni_fail(CEN_ERR_INVALID, "%s: there is no pool for device %d", caller, device);
        return NULL;
    }
    return pools->pools[device];
}

void *cen_frameworks_malloc(void *pools, size_t bytes, int device) {
    cen_pool *pool = pool_of(pools, device, "cen_frameworks_malloc");
    void *block = NULL;
    if (pool) {
        (void)cen_pool_alloc(pool, bytes, 0, &block);
    }
    return block;
}

void cen_frameworks_free(void *pools, void *block, int device) {
    cen_pool *pool = block ? pool_of(pools, device, "cen_frameworks_free") : NULL;
    if (pool) {
        (void)cen_pool_free(pool, block, 0);
    }
}
