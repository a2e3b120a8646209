/* What the global pool asks of a local one: whose memory lies where. */
#include "pool/global_int.h"
#include "pool/lookup.h"

#include "base/log.h"
#include "base/mem.h"

bool ceni_pool_owns(cen_pool *pool, const void *block) {
    return ceni_index_get(pool, (uintptr_t)block) != 0;
}

cen_status ceni_pool_free_complete(cen_pool *pool, void *block) {
    uintptr_t owner = ceni_index_get(pool, (uintptr_t)block);
    cen_stream stream = 0;
    ceni_lock_take(&pool->lock);
    if (owner & CENI_OWNER_SLAB) {
        stream = ((ceni_slab *)(owner & ~CENI_OWNER_SLAB))->stream->handle;
    } else if (owner && owner != CENI_OWNER_FREED) {
        stream = ((ceni_block *)owner)->stream->handle;
    }
    ceni_lock_leave(&pool->lock);
    return cen_pool_free(pool, block, stream);
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
            if (!home || ceni_home_is(&list.items[i].page->home, home)) {
                idle += list.items[i].page->size;
            }
        }
        ceni_free(list.items);
    }
    return idle;
}

ceni_held ceni_pool_held(cen_pool *pool, const ceni_home *home) {
    ceni_held held = {0};
    ceni_pool_enter(pool);
    for (const ceni_pool_page *p = pool->pages; p; p = p->next) {
        if (!home || ceni_home_is(&p->home, home)) {
            held.bytes += p->size;
        }
    }
    if (held.bytes) {
        ceni_pool_settle(pool, true);
        held.idle = idle_of(pool, home);
    }
    ceni_lock_leave(&pool->lock);
    return held;
}
