/* Stream-ordered allocation: pools that keep chunks of their card. A block freed on a stream can be
 * had again on that stream at once, on others when the work before its free is done. What nothing
 * lies in goes back when something was waited for, down to the pool's threshold. */
#include <string.h>

#include "base/mem.h"
#include "tests/driver/td.h"

enum { CHUNK = 32 << 20 };

struct CUmemPoolHandle_st {
    td_pool *next;
    td_arena arena;
    bool is_default, closing;
    int follow_events, opportunistic, internal;
    uint64_t threshold, reserved_high, used, used_high;
};

static td_pool *pools;

static td_pool *pool_new(td_card *card) {
    td_pool *pool = ceni_calloc(1, sizeof *pool);
    if (pool) {
        *pool = (td_pool){.next = pools,
                          .arena = {.card = card},
                          .follow_events = 1,
                          .opportunistic = 1,
                          .internal = 1};
        pools = pool;
    }
    return pool;
}

static td_pool *default_pool(td_card *card) {
    if (!card->default_pool && (card->default_pool = pool_new(card))) {
        card->default_pool->is_default = true;
    }
    return card->default_pool;
}

static td_pool *current_pool(td_card *card) {
    return card->pool ? card->pool : default_pool(card);
}

static bool is_pool(const td_pool *pool) {
    const td_pool *p = pools;
    while (p && p != pool) {
        p = p->next;
    }
    return p && !p->closing;
}

static bool card_captures(const td_card *card) {
    for (const td_context *c = td_contexts; c; c = c->next) {
        for (const td_stream *s = c->card == card ? c->streams : NULL; s; s = s->next) {
            if (s->capturing) {
                return true;
            }
        }
    }
    return false;
}

/* Takes a freed block out of the table: its room is free for any stream. */
static void forget(const td_entry *entry) {
    if (entry->freed) {
        ceni_backend_host.event_destroy(entry->card->device, entry->freed);
    }
    td_table_remove(entry->addr);
}

/* Those whose work is done; asking would break a capture. */
static void reap(const td_pool *pool) {
    const td_card *card = pool->arena.card;
    bool may_ask = !card_captures(card);
    for (size_t i = 0; may_ask && td_table_get(i);) {
        const td_entry *e = td_table_get(i);
        if (e->pool == pool && e->kind == TD_FREED && e->freed &&
            ceni_backend_host.event_query(card->device, e->freed) != CEN_ERR_NOT_READY) {
            const td_entry done = *e;
            forget(&done);
        } else {
            i++;
        }
    }
}

static void unlink_pool(td_pool *pool) {
    td_pool **link = &pools;
    while (*link != pool) {
        link = &(*link)->next;
    }
    *link = pool->next;
    td_arena_clear(&pool->arena);
    ceni_free(pool);
}

static void settle(td_pool *pool) {
    reap(pool);
    td_arena_trim(&pool->arena, pool->closing ? 0 : pool->threshold);
    if (pool->closing && !pool->arena.count) {
        unlink_pool(pool);
    }
}

void td_pools_settle(const td_card *card) {
    pthread_mutex_lock(&td_lock);
    for (td_pool *p = pools, *next; p; p = next) {
        next = p->next;
        if (p->arena.card == card) {
            settle(p);
        }
    }
    pthread_mutex_unlock(&td_lock);
}

/* The work of blocks that were freed in a capture is done when nobody can launch it any more. */
void td_pool_end_captures(const td_card *card) {
    pthread_mutex_lock(&td_lock);
    for (size_t i = 0; td_table_get(i);) {
        const td_entry *e = td_table_get(i);
        if (e->kind == TD_FREED && !e->freed && e->card == card) {
            td_table_remove(e->addr);
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&td_lock);
}

/* A block that this stream freed and that is large enough. */
static bool reuse(const td_pool *pool, uint64_t room, cen_stream stream, uint64_t *addr) {
    for (size_t i = 0; i < pool->arena.count; i++) {
        const td_range *chunk = &pool->arena.chunks[i];
        for (size_t n = td_table_index(chunk->addr); td_table_get(n); n++) {
            const td_entry e = *td_table_get(n);
            if (e.addr >= chunk->addr + chunk->size) {
                break;
            }
            if (e.kind == TD_FREED && e.freed && e.freed_on == stream && e.room >= room) {
                forget(&e);
                *addr = e.addr;
                return true;
            }
        }
    }
    return false;
}

static cu_result place(td_pool *pool, uint64_t room, cen_stream stream, uint64_t *addr) {
    if (reuse(pool, room, stream, addr)) {
        return CU_SUCCESS;
    }
    reap(pool);
    cu_result result = td_arena_place(&pool->arena, room, CHUNK, true, addr);
    if (result == CU_ERROR_OUT_OF_MEMORY) { /* what other pools keep empty */
        for (td_pool *p = pools; p; p = p->next) {
            if (p->arena.card == pool->arena.card) {
                reap(p);
                td_arena_trim(&p->arena, 0);
            }
        }
        result = td_arena_place(&pool->arena, room, CHUNK, true, addr);
    }
    return result;
}

static cu_result allocate(td_pool *pool, uint64_t size, const td_stream *stream,
                          cu_deviceptr *addr) {
    td_card *card = pool->arena.card;
    if (size > card->device->total_bytes) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    td_entry entry = {.size = size,
                      .room = td_round(size, TD_UNIT),
                      .kind = TD_ASYNC,
                      .card = card,
                      .context = stream->context,
                      .pool = pool};
    TD_TRY(place(pool, entry.room, stream->host, &entry.addr));
    TD_TRY(td_table_add(&entry));
    pool->used += entry.room;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    if (pool->arena.bytes > pool->reserved_high) {
        pool->reserved_high = pool->arena.bytes;
    }
    *addr = entry.addr;
    return CU_SUCCESS;
}

static cu_result enter_allocate(const char *symbol, cu_deviceptr *addr, size_t size, td_pool *pool,
                                bool given, cu_stream stream) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(symbol, &context));
    TD_NEED(addr && size);
    TD_TRY(td_stream_for_work(context, stream, &s));
    pthread_mutex_lock(&td_lock);
    if (!given) {
        pool = current_pool(s->context->card);
    }
    cu_result result = is_pool(pool) ? allocate(pool, size, s, addr) : CU_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&td_lock);
    return result;
}

cu_result cuMemAllocAsync(cu_deviceptr *addr, size_t size, cu_stream stream) {
    return enter_allocate(__func__, addr, size, NULL, false, stream);
}

cu_result cuMemAllocFromPoolAsync(cu_deviceptr *addr, size_t size, cu_pool pool, cu_stream stream) {
    return enter_allocate(__func__, addr, size, pool, true, stream);
}

/* Freed in a capture: kept until its graph is gone. */
static cu_result free_on(td_entry *entry, const td_stream *stream) {
    const cen_device *device = entry->card->device;
    cen_event freed = 0;
    if (!td_is_capturing(stream)) {
        cen_device *on = stream->context->card->device;
        cen_status status = ceni_backend_host.event_create(on, 0, &freed);
        if (!status) {
            status = ceni_backend_host.event_record(on, freed, stream->host);
            if (status) {
                ceni_backend_host.event_destroy(on, freed);
            }
        }
        TD_TRY(td_result(status));
    }
    entry->kind = TD_FREED;
    entry->freed = freed;
    entry->freed_on = stream->context->card->device == device ? stream->host : 0;
    entry->pool->used -= entry->room;
    return CU_SUCCESS;
}

cu_result cuMemFreeAsync(cu_deviceptr addr, cu_stream stream) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    if (!addr) {
        return CU_SUCCESS;
    }
    TD_TRY(td_stream_for_work(context, stream, &s));
    pthread_mutex_lock(&td_lock);
    td_entry *e = td_table_at(addr);
    cu_result result = e && e->kind == TD_ASYNC ? free_on(e, s) : CU_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&td_lock);
    return result;
}

cu_result td_pool_free(td_entry *entry) {
    td_pool *pool = entry->pool;
    pool->used -= entry->room;
    td_table_remove(entry->addr);
    settle(pool);
    return CU_SUCCESS;
}

/* Its blocks end with it; its streams have been waited for. */
void td_pool_end_context(td_context *context) {
    for (size_t i = 0; td_table_get(i);) {
        const td_entry e = *td_table_get(i);
        if (e.context != context || (e.kind != TD_ASYNC && e.kind != TD_FREED)) {
            i++;
            continue;
        }
        e.pool->used -= e.kind == TD_ASYNC ? e.room : 0;
        forget(&e);
    }
    for (td_pool *p = pools, *next; p; p = next) {
        next = p->next;
        if (p->arena.card == context->card) {
            td_arena_trim(&p->arena, 0);
        }
    }
}

/* ---- pools ---- */

cu_result cuMemPoolCreate(cu_pool *pool, const cu_pool_props *props) {
    td_card *card;
    TD_TRY(td_enter(__func__));
    TD_NEED(pool && props && props->type == CU_ALLOC_PINNED);
    if (props->location.type != CU_LOCATION_DEVICE || props->handle_types) {
        return CU_ERROR_NOT_SUPPORTED;
    }
    TD_TRY(td_enter_device(__func__, props->location.id, &card));
    pthread_mutex_lock(&td_lock);
    td_pool *made = pool_new(card);
    pthread_mutex_unlock(&td_lock);
    if (!made) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    *pool = made;
    return CU_SUCCESS;
}

/* Every function of a pool's: enters, and holds the lock if the pool is one. */
static cu_result enter_pool(const char *symbol, const td_pool *pool) {
    TD_TRY(td_enter(symbol));
    pthread_mutex_lock(&td_lock);
    if (is_pool(pool)) {
        return CU_SUCCESS;
    }
    pthread_mutex_unlock(&td_lock);
    return CU_ERROR_INVALID_VALUE;
}

static cu_result leave_pool(cu_result result) {
    pthread_mutex_unlock(&td_lock);
    return result;
}

/* What is allocated of it stays until it is freed. */
cu_result cuMemPoolDestroy(cu_pool pool) {
    TD_TRY(enter_pool(__func__, pool));
    if (pool->is_default) {
        return leave_pool(CU_ERROR_INVALID_VALUE);
    }
    td_card *card = pool->arena.card;
    card->pool = card->pool == pool ? NULL : card->pool;
    pool->closing = true;
    settle(pool);
    return leave_pool(CU_SUCCESS);
}

cu_result cuMemPoolTrimTo(cu_pool pool, size_t keep) {
    TD_TRY(enter_pool(__func__, pool));
    reap(pool);
    td_arena_trim(&pool->arena, keep);
    return leave_pool(CU_SUCCESS);
}

static int *flag_of(td_pool *pool, cu_enum attribute) {
    switch (attribute) {
    case CU_POOL_FOLLOW_EVENTS:
        return &pool->follow_events;
    case CU_POOL_OPPORTUNISTIC:
        return &pool->opportunistic;
    case CU_POOL_INTERNAL:
        return &pool->internal;
    default:
        return NULL;
    }
}

static uint64_t *number_of(td_pool *pool, cu_enum attribute) {
    switch (attribute) {
    case CU_POOL_THRESHOLD:
        return &pool->threshold;
    case CU_POOL_RESERVED:
        return &pool->arena.bytes;
    case CU_POOL_RESERVED_HIGH:
        return &pool->reserved_high;
    case CU_POOL_USED:
        return &pool->used;
    case CU_POOL_USED_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

cu_result cuMemPoolGetAttribute(cu_pool pool, cu_enum attribute, void *value) {
    TD_NEED(value);
    TD_TRY(enter_pool(__func__, pool));
    const int *flag = flag_of(pool, attribute);
    const uint64_t *number = number_of(pool, attribute);
    if (flag) {
        memcpy(value, flag, sizeof *flag);
    } else if (number) {
        memcpy(value, number, sizeof *number);
    }
    return leave_pool(flag || number ? CU_SUCCESS : CU_ERROR_INVALID_VALUE);
}

/* High marks can only be set back to 0: to what there is now. */
cu_result cuMemPoolSetAttribute(cu_pool pool, cu_enum attribute, void *value) {
    TD_NEED(value);
    TD_TRY(enter_pool(__func__, pool));
    int *flag = flag_of(pool, attribute);
    uint64_t *number = number_of(pool, attribute), wanted;
    if (flag) {
        memcpy(flag, value, sizeof *flag);
        return leave_pool(CU_SUCCESS);
    }
    memcpy(&wanted, value, sizeof wanted);
    switch (attribute) {
    case CU_POOL_THRESHOLD:
        *number = wanted;
        return leave_pool(CU_SUCCESS);
    case CU_POOL_RESERVED_HIGH:
    case CU_POOL_USED_HIGH:
        if (!wanted) {
            *number = attribute == CU_POOL_USED_HIGH ? pool->used : pool->arena.bytes;
            return leave_pool(CU_SUCCESS);
        }
        return leave_pool(CU_ERROR_INVALID_VALUE);
    default:
        return leave_pool(CU_ERROR_INVALID_VALUE);
    }
}

static cu_result device_pool(const char *symbol, cu_pool *pool, cu_device device, bool by_default) {
    td_card *card;
    TD_TRY(td_enter_device(symbol, device, &card));
    TD_NEED(pool);
    pthread_mutex_lock(&td_lock);
    td_pool *found = by_default ? default_pool(card) : current_pool(card);
    pthread_mutex_unlock(&td_lock);
    if (!found) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    *pool = found;
    return CU_SUCCESS;
}

cu_result cuDeviceGetDefaultMemPool(cu_pool *pool, cu_device device) {
    return device_pool(__func__, pool, device, true);
}

cu_result cuDeviceGetMemPool(cu_pool *pool, cu_device device) {
    return device_pool(__func__, pool, device, false);
}

cu_result cuDeviceSetMemPool(cu_device device, cu_pool pool) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, device, &card));
    TD_TRY(enter_pool(__func__, pool));
    if (pool->arena.card != card) {
        return leave_pool(CU_ERROR_INVALID_VALUE);
    }
    card->pool = pool;
    return leave_pool(CU_SUCCESS);
}
