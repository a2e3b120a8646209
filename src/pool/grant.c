/* Which other devices reach the pool's memory. */
#include "base/log.h"
#include "pool/page.h"

static cen_status grant_line(cen_pool *pool, const ceni_line *line) {
    for (const ceni_segment *s = line->first_segment; s; s = s->next) {
        if (s->plain || s->lost) {
            continue;
        }
        cen_status status = ceni_driver_access(pool, s->addr, s->size, 1, &s->page->home);
        if (status) {
            return status;
        }
    }
    return CEN_OK;
}

cen_status cen_pool_grant(cen_pool *pool, cen_device *peer) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_grant");
    if (status || !peer) {
        return status ? status : ceni_fail(CEN_ERR_INVALID, "cen_pool_grant: peer is NULL");
    }
    bool can = false;
    if ((status = cen_peer_can_access(peer, pool->device, &can))) {
        return status;
    }
    if (!can) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "cen_pool_grant: the device cannot reach the pool's");
    }
    status = cen_peer_enable(peer, pool->device);
    if (status || !pool->vmm) { /* plain segments are open with that */
        return status;
    }
    ceni_pool_enter(pool);
    size_t i = 0;
    while (i < pool->granted_count && pool->granted[i] != peer) {
        i++;
    }
    if (i < pool->granted_count || pool->lenders) {
        /* there already; a global pool has seen to it */
    } else if (i == CENI_GRANTS_MAX - 1) {
        status = ceni_fail(CEN_ERR_LIMIT, "cen_pool_grant: %zu devices have access", i);
    } else {
        pool->granted[pool->granted_count++] = peer;
        for (ceni_line *l = ceni_line_next(pool, NULL); l && !status; l = ceni_line_next(pool, l)) {
            status = grant_line(pool, l);
        }
        if (status) { /* what was granted meanwhile stays, and does no harm */
            pool->granted_count--;
        }
    }
    ceni_lock_leave(&pool->lock);
    return status;
}
