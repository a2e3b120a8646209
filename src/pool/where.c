/* What the global pool asks of a local one: whose memory lies where. */
#include "pool/global_int.h"
#include "pool/lookup.h"

#include "base/log.h"
#include "base/mem.h"

bool ceni_pool_owns(cen_pool *pool, const void *block, bool live) {
    uintptr_t owner = ceni_index_get(pool, (uintptr_t)block);
    return owner && !(live && owner == CENI_OWNER_FREED);
}

/* The stream of a live block; the lock is held. */
static cen_status stream_of(cen_pool *pool, const void *block, const char *call,
                            cen_stream *stream) {
    ceni_slab *slab = ceni_slab_of(pool, block);
    if (!slab) {
        ceni_block *b;
        cen_status status = ceni_pool_block_at(pool, block, call, &b);
        if (!status && b->movable) {
            status = ceni_fail(CEN_ERR_INVALID,
                               "%s: %p is a movable block: its handle says who "
                               "uses it, and is freed",
                               call, block);
        }
        *stream = status ? 0 : b->stream->handle;
        return status;
    }
    int64_t bytes = ceni_slab_requested(slab, block);
    if (bytes <= 0) {
        return bytes ? ceni_fail(CEN_ERR_FOREIGN_POINTER, "%s: %p is inside a block", call, block)
                     : ceni_fail(CEN_ERR_DOUBLE_FREE, "%s: %p is free already", call, block);
    }
    *stream = slab->stream->handle;
    return CEN_OK;
}

cen_status ceni_pool_live(cen_pool *pool, const void *block, const char *call) {
    cen_stream stream;
    ceni_lock_take(&pool->lock);
    cen_status status = stream_of(pool, block, call, &stream);
    ceni_lock_leave(&pool->lock);
    return status;
}

cen_status ceni_pool_free_complete(cen_pool *pool, void *block) {
    cen_stream stream;
    ceni_lock_take(&pool->lock);
    cen_status status = stream_of(pool, block, "cen_global_free", &stream);
    ceni_lock_leave(&pool->lock);
    return status ? status : cen_pool_free(pool, block, stream);
}

void ceni_pool_homes(cen_pool *pool, uint64_t addr, uint64_t size,
                     void (*fn)(void *arg, const ceni_home *home, uint64_t bytes), void *arg) {
    ceni_lock_take(&pool->lock);
    for (ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        if (addr < l->base || addr >= l->base + l->size) {
            continue;
        }
        for (const ceni_segment *s = l->first_segment; s && s->addr < addr + size; s = s->next) {
            uint64_t from = s->addr > addr ? s->addr : addr;
            uint64_t to = s->addr + s->size < addr + size ? s->addr + s->size : addr + size;
            if (s->active && s->page && from < to) {
                fn(arg, &s->page->home, to - from);
            }
        }
    }
    ceni_lock_leave(&pool->lock);
}

static uint64_t idle_of(cen_pool *pool, const ceni_home *home) {
    uint64_t idle = 0;
    for (ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        ceni_idle_list list = {0};
        if (!ceni_arena_open_to_all(l->arena) || ceni_line_idle(pool, l, NULL, 0, 0, &list)) {
            ceni_free(list.items);
            continue;
        }
        for (size_t i = 0; i < list.count; i++) {
            const ceni_pool_page *page = list.items[i].page;
            if ((!home || ceni_home_is(&page->home, home)) && ceni_page_quiet(page)) {
                idle += page->size;
            }
        }
        ceni_free(list.items);
    }
    return idle;
}

ceni_held ceni_pool_held(cen_pool *pool, const ceni_home *home, bool look) {
    ceni_held held = {0};
    ceni_pool_enter(pool);
    for (const ceni_pool_page *p = pool->pages; p; p = p->next) {
        if (!home || ceni_home_is(&p->home, home)) {
            held.bytes += p->size;
        }
    }
    if (held.bytes) {
        if (look) {
            ceni_pool_settle(pool, true);
        }
        held.idle = idle_of(pool, home);
    }
    ceni_lock_leave(&pool->lock);
    return held;
}
