/* The pool's calls to the driver, counted and timed by kind. */
#include "base/clock.h"
#include "base/log.h"
#include "pool/page.h"

static uint64_t begin(void) {
    return ceni_now_ns();
}

static cen_status end(cen_pool *pool, enum ceni_driver_kind kind, size_t handles, uint64_t start,
                      cen_status status) {
    cen_pool_stats *stats = &pool->stats;
    stats->driver_calls++;
    stats->driver_ns += ceni_now_ns() - start;
    stats->driver_kind_calls[kind]++;
    stats->driver_handles[kind] += handles;
    ceni_policy_spend(pool, kind, handles);
    return status;
}

cen_status ceni_driver_reserve(cen_pool *pool, uint64_t size, cen_addr *addr) {
    uint64_t start = begin();
    cen_status status = ceni_dev_va_reserve(pool->device, size, 0, addr);
    return end(pool, CENI_RESERVE, 1, start, status);
}

cen_status ceni_driver_create(cen_pool *pool, uint64_t size, const ceni_home *home,
                              ceni_page *page) {
    unsigned flags = home->host ? CENI_PAGE_HOST : 0;
    /* A device that is full is no failure yet: the ladder goes on. */
    cen_status before = ceni_log_expect(CEN_ERR_DEVICE_MEMORY);
    uint64_t start = begin();
    cen_status status = ceni_dev_page_create(home->device, size, flags, page);
    (void)ceni_log_expect(before);
    return end(pool, CENI_CREATE, 1, start, status);
}

cen_status ceni_driver_map(cen_pool *pool, uint64_t addr, uint64_t size, ceni_page page) {
    uint64_t start = begin();
    return end(pool, CENI_MAP, 1, start, ceni_dev_page_map(pool->device, addr, size, page));
}

cen_status ceni_driver_access(cen_pool *pool, uint64_t addr, uint64_t size, size_t handles,
                              const ceni_home *home) {
    ceni_grant grants[CENI_GRANTS_MAX] = {{pool->device, CENI_ACCESS_READ_WRITE}};
    size_t count = 1;
    if (pool->lenders) {
        count = pool->lenders->grants(pool->lenders->arg, home, grants);
    }
    for (size_t i = 0; i < pool->granted_count; i++) {
        grants[count++] = (ceni_grant){pool->granted[i], CENI_ACCESS_READ_WRITE};
    }
    uint64_t start = begin();
    return end(pool, CENI_ACCESS, handles, start,
               ceni_dev_page_access(pool->device, addr, size, handles, grants, count));
}

cen_status ceni_driver_unmap(cen_pool *pool, uint64_t addr, uint64_t size, size_t handles) {
    uint64_t start = begin();
    return end(pool, CENI_UNMAP, handles, start,
               ceni_dev_page_unmap(pool->mapper, addr, size, handles));
}

cen_status ceni_driver_release(cen_pool *pool, const ceni_pool_page *page) {
    uint64_t start = begin();
    cen_status status = ceni_dev_page_release(page->home.device, page->handle);
    if (ceni_is_loss(status) && (pool->lost || page->home.device != pool->device)) {
        status = CEN_OK; /* it went with its device */
    }
    return end(pool, CENI_RELEASE, 1, start, status);
}

cen_status ceni_driver_segment_alloc(cen_pool *pool, uint64_t size, cen_addr *addr) {
    cen_status before = ceni_log_expect(CEN_ERR_DEVICE_MEMORY);
    uint64_t start = begin();
    cen_status status = ceni_dev_segment_alloc(pool->device, size, addr);
    (void)ceni_log_expect(before);
    return end(pool, CENI_CREATE, 1, start, status);
}

cen_status ceni_driver_segment_free(cen_pool *pool, cen_addr addr) {
    uint64_t start = begin();
    return end(pool, CENI_RELEASE, 1, start, ceni_dev_segment_free(pool->device, addr));
}
