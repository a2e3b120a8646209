/* Private pools: arenas of their own for graphs that are being captured, whose addresses and pages
 * stay where they are until the graphs are released. */
#include "base/log.h"
#include "base/mem.h"
#include "pool/lookup.h"
#include "pool/note.h"

static ceni_arena *find(cen_pool *pool, uint64_t id) {
    for (ceni_arena *a = pool->shared.next; a; a = a->next) {
        if (a->id == id && !a->released) {
            return a;
        }
    }
    return NULL;
}

static ceni_arena *make(cen_pool *pool, uint64_t id) {
    ceni_arenas_reap(pool);
    ceni_arena *a = ceni_calloc(1, sizeof *a);
    if (a) {
        ceni_arena_open(a, id);
        a->next = pool->shared.next;
        pool->shared.next = a;
    }
    return a;
}

cen_status cen_pool_capture_begin(cen_pool *pool, cen_stream stream, uint64_t id) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_capture_begin");
    if (!status && !id) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_pool_capture_begin: id 0 is the shared pool");
    }
    if (status) {
        return status;
    }
    ceni_pstream *s = ceni_stream_get(pool, stream);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_capture_begin: no memory");
    }
    ceni_pool_enter(pool);
    ceni_arena *a = find(pool, id);
    if (atomic_load(&s->retired)) { /* its end would not find it */
        status = ceni_fail(CEN_ERR_BUSY, "cen_pool_capture_begin: the stream is being released");
    } else if (atomic_load(&s->route)) {
        status = ceni_fail(CEN_ERR_BUSY, "cen_pool_capture_begin: the stream captures already");
    } else if (!a && !(a = make(pool, id))) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_capture_begin: no memory");
    } else {
        a->capturing++;
        pool->capturing++;
        atomic_store_explicit(&s->route, a, memory_order_release);
        ceni_note(pool, CENI_EVENT_PRIVATE, 0, id, stream);
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status cen_pool_capture_end(cen_pool *pool, cen_stream stream) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_capture_end");
    if (status) {
        return status;
    }
    ceni_pstream *s = ceni_stream_get(pool, stream);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_capture_end: no memory");
    }
    ceni_pool_enter(pool);
    ceni_arena *a = atomic_load(&s->route);
    if (a) {
        atomic_store_explicit(&s->route, NULL, memory_order_release);
        ceni_note(pool, CENI_EVENT_PRIVATE, 0, 0, stream);
        a->capturing--;
        pool->capturing--;
    } else {
        status = ceni_fail(CEN_ERR_INVALID, "cen_pool_capture_end: the stream does not capture");
    }
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status cen_pool_capture_release(cen_pool *pool, uint64_t id) {
    cen_status status = ceni_pool_refuse(pool, "cen_pool_capture_release");
    if (status) {
        return status;
    }
    ceni_pool_enter(pool);
    ceni_arena *a = find(pool, id);
    if (!a) {
        status = ceni_fail(CEN_ERR_NOT_FOUND, "cen_pool_capture_release: no private pool %llu",
                           (unsigned long long)id);
    } else if (a->capturing) {
        status = ceni_fail(CEN_ERR_BUSY, "cen_pool_capture_release: a stream captures into %llu",
                           (unsigned long long)id);
    } else {
        a->released = true;
        ceni_slabs_release(pool, a);
        ceni_note(pool, CENI_EVENT_SHARED, 0, id, 0);
        for (unsigned i = 0; i < CENI_RANKS; i++) {
            pool->stats.private_reserved_bytes -= a->lines[i].reserved;
        }
    }
    ceni_lock_leave(&pool->lock);
    return status;
}
