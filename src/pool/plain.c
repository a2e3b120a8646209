/* A line before pages are mapped into it: its addresses; and plain segments behind it, where the
 * device has no virtual memory management. */
#include "pool/page.h"

cen_status ceni_line_open(cen_pool *pool, ceni_line *line) {
    if (line->size || !pool->vmm) {
        return ceni_heap_get(pool, line, NULL, true) ? CEN_OK : CEN_ERR_HOST_MEMORY;
    }
    if (!ceni_heap_get(pool, line, NULL, true)) {
        return CEN_ERR_HOST_MEMORY;
    }
    uint64_t unit = pool->granularity, total = pool->device->total_bytes;
    uint64_t want = line->arena->id ? total / 2 : total * 4; /* pages leave gaps as they move */
    cen_addr base = 0;
    cen_status status = CEN_ERR_DEVICE_MEMORY;
    for (want = want / unit * unit; status && want; want = want / 2 / unit * unit) {
        status = ceni_driver_reserve(pool, want, &base);
        if (!status) {
            line->base = base;
            line->size = want;
            return CEN_OK;
        }
        if (status != CEN_ERR_DEVICE_MEMORY && status != CEN_ERR_LIMIT &&
            status != CEN_ERR_HOST_MEMORY) {
            break; /* it is not that there are too few addresses */
        }
    }
    return status;
}

cen_status ceni_line_grow_plain(cen_pool *pool, ceni_line *line, uint64_t need, bool must) {
    ceni_growth g = ceni_policy_growth(pool, line, need, need);
    uint64_t allowed = ceni_pool_allowed(pool);
    uint64_t size = must || g.bytes > allowed ? ceni_policy_plain(pool, need) : g.bytes;
    if (size > allowed) {
        return CEN_ERR_DEVICE_MEMORY;
    }
    if (ceni_pool_in_graph(pool)) {
        return CEN_ERR_CAPTURE; /* asking the driver would break the capture */
    }
    cen_status status = ceni_blocks_ready(pool, 1);
    cen_addr addr = 0;
    if (!status) {
        status = ceni_driver_segment_alloc(pool, size, &addr);
    }
    if (status) {
        return status;
    }
    ceni_segment *after = line->last_segment;
    while (after && after->addr > addr) {
        after = after->prev;
    }
    status = ceni_index_reserve(pool, addr, size);
    ceni_segment *s = status ? NULL : ceni_segment_new(line, after, addr, size, NULL);
    if (!s) {
        ceni_driver_segment_free(pool, addr);
        return status ? status : CEN_ERR_HOST_MEMORY;
    }
    s->plain = true;
    ceni_segment_activate(pool, s, NULL);
    ceni_pool_count_reserved(pool, line, (int64_t)size);
    return CEN_OK;
}
