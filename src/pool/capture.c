/* Private pools: arenas of their own for graphs that are being captured, whose addresses and pages
 * stay where they are until the graphs are released. */
#include "base/log.h"
#include "base/mem.h"
#include "pool/lookup.h"

static ceni_arena *find(cen_pool *pool, uint64_t id) {
    for (ceni_arena *a = pool->arenas; a; a = a->next) {
        if (a->id == id && !a->released) {
            return a;
        }
    }
    return NULL;
}

static ceni_arena *make(cen_pool *pool, uint64_t id) {
    ceni_arena *a = ceni_calloc(1, sizeof *a);
    if (a) {
        a->id = id;
        a->small.small = true;
        a->small.arena = a->large.arena = a;
        a->next = pool->arenas;
        pool->arenas = a;
    }
    return a;
}

cen_status cen_pool_capture_begin(cen_pool *pool, cen_stream stream, uint64_t id) {
    if (!pool || !id) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_capture_begin: %s",
                         pool ? "id 0 is the shared pool" : "pool is NULL");
    }
    ceni_pstream *s = ceni_stream_get(pool, stream);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_capture_begin: no memory");
    }
    cen_status status = CEN_OK;
    ceni_lock_take(&pool->lock);
    ceni_arena *a = find(pool, id);
    if (atomic_load(&s->route)) {
        status = ceni_fail(CEN_ERR_BUSY, "cen_pool_capture_begin: the stream captures already");
    } else if (!a && !(a = make(pool, id))) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_capture_begin: no memory");
    } else {
        a->capturing++;
        pool->capturing++;
        atomic_store_explicit(&s->route, a, memory_order_release);
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status cen_pool_capture_end(cen_pool *pool, cen_stream stream) {
    if (!pool) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_capture_end: pool is NULL");
    }
    ceni_pstream *s = ceni_stream_get(pool, stream);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_capture_end: no memory");
    }
    cen_status status = CEN_OK;
    ceni_lock_take(&pool->lock);
    ceni_arena *a = atomic_load(&s->route);
    if (a) {
        atomic_store_explicit(&s->route, NULL, memory_order_release);
        a->capturing--;
        pool->capturing--;
    } else {
        status = ceni_fail(CEN_ERR_INVALID, "cen_pool_capture_end: the stream does not capture");
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status cen_pool_capture_release(cen_pool *pool, uint64_t id) {
    if (!pool) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_capture_release: pool is NULL");
    }
    cen_status status = CEN_OK;
    ceni_lock_take(&pool->lock);
    ceni_arena *a = find(pool, id);
    if (!a) {
        status = ceni_fail(CEN_ERR_NOT_FOUND, "cen_pool_capture_release: no private pool %llu",
                           (unsigned long long)id);
    } else if (a->capturing) {
        status = ceni_fail(CEN_ERR_BUSY, "cen_pool_capture_release: a stream captures into %llu",
                           (unsigned long long)id);
    } else {
        a->released = true;
        pool->stats.private_reserved_bytes -= a->small.reserved + a->large.reserved;
    }
    ceni_lock_leave(&pool->lock);
    return status;
}
