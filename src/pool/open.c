/* Making a pool, and its end. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "dev/call.h"
#include "pool/lookup.h"
#include "pool/note.h"

#define DRIVER_SHARE 0.01
#define PAGE_MOST    ((uint64_t)1 << 46) /* no device holds more */

void ceni_arena_open(ceni_arena *arena, uint64_t id) {
    arena->id = id;
    for (unsigned i = 0; i < CENI_RANKS; i++) {
        arena->lines[i].arena = arena;
        arena->lines[i].rank = (enum ceni_rank)i;
    }
}

bool ceni_arena_open_to_all(const ceni_arena *arena) {
    return !arena->id || arena->released;
}

ceni_line *ceni_line_next(cen_pool *pool, const ceni_line *line) {
    if (!line) {
        return pool->shared.lines;
    }
    if (line->rank + 1 < CENI_RANKS) {
        return &line->arena->lines[line->rank + 1];
    }
    return line->arena->next ? line->arena->next->lines : NULL;
}

static cen_status open_pool(cen_pool *pool) {
    ceni_arena_open(&pool->shared, 0);
    pool->limit = pool->options.limit_bytes ? pool->options.limit_bytes : UINT64_MAX;
    if (pool->options.driver_share == 0) {
        pool->options.driver_share = DRIVER_SHARE;
    }
    ceni_policy_open(pool);
    cen_status status = ceni_index_open(pool);
    for (unsigned i = 0; i < CENI_RANKS && !status; i++) {
        status = ceni_line_open(pool, &pool->shared.lines[i]);
    }
    return status;
}

/* What the caller's version of the options says; the rest is 0. */
static cen_status read_options(const cen_pool_options *options, cen_pool_options *own) {
    *own = (cen_pool_options){0};
    if (options && options->size < sizeof(size_t)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_create: options.size is not set");
    }
    if (options) {
        memcpy(own, options, options->size < sizeof *own ? options->size : sizeof *own);
    }
    if (!(own->driver_share <= 1)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_create: driver_share is not a share");
    }
    if (own->page_bytes > PAGE_MOST) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_create: page_bytes is %llu, more than %llu",
                         (unsigned long long)own->page_bytes, (unsigned long long)PAGE_MOST);
    }
    return CEN_OK;
}

cen_status cen_pool_create(cen_device *device, const cen_pool_options *options, cen_pool **out) {
    if (!device || !out) {
        return ceni_fail(CEN_ERR_INVALID, "cen_pool_create: %s is NULL",
                         device ? "pool" : "device");
    }
    cen_pool_options own;
    cen_status status = read_options(options, &own);
    if (status) {
        return status;
    }
    cen_pool *pool = ceni_aligned(_Alignof(cen_pool), sizeof *pool);
    if (!pool) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_pool_create: no memory");
    }
    memset(pool, 0, sizeof *pool);
    pool->options = own;
    pool->device = pool->mapper = device;
    pool->granularity = device->granularity;
    pool->vmm = device->vmm;
    if (!pool->vmm) {
        ceni_log(CEN_LOG_WARN, "pool: the device has no virtual memory management: plain segments, "
                               "which cannot be remapped");
    }
    status = open_pool(pool);
    if (!status && pool->options.preallocate_bytes) {
        status = cen_pool_preallocate(pool, pool->options.preallocate_bytes);
    }
    if (status) {
        cen_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return CEN_OK;
}

static void close_streams(cen_pool *pool) {
    for (unsigned i = 0; i < CENI_STREAM_SLOTS; i++) {
        ceni_pstream *s = atomic_load(&pool->streams[i]);
        while (s) {
            ceni_pstream *next = atomic_load(&s->next);
            while (s->marks) {
                ceni_mark *mark = s->marks;
                s->marks = mark->next;
                (void)cen_event_destroy(pool->device, mark->event);
                ceni_free(mark);
            }
            ceni_free(s->syncs);
            ceni_free(atomic_load(&s->shards));
            ceni_free(s);
            s = next;
        }
    }
    for (size_t i = 0; i < pool->spare_event_count; i++) {
        (void)cen_event_destroy(pool->device, pool->spare_events[i]);
    }
    ceni_free(pool->spare_events);
    for (size_t i = 0; i < pool->spare_shard_count; i++) {
        ceni_free(pool->spare_shards[i]);
    }
    ceni_free(pool->spare_shards);
}

static void free_descriptors(cen_pool *pool) {
    while (pool->pending) {
        ceni_pending *p = pool->pending;
        pool->pending = p->next;
        ceni_uses_free(p->uses);
        ceni_free(p);
    }
    while (pool->object_uses) {
        struct ceni_object_use *u = pool->object_uses;
        pool->object_uses = u->next;
        ceni_uses_free(u->uses);
        ceni_free(u);
    }
    while (pool->spare_blocks) {
        ceni_block *b = pool->spare_blocks;
        pool->spare_blocks = b->next;
        ceni_free(b);
    }
    while (pool->shared.next) {
        ceni_arena *a = pool->shared.next;
        pool->shared.next = a->next;
        ceni_free(a);
    }
}

static bool note_gone(void *arg, const cen_pool_block_info *info) {
    if (info->state == CEN_POOL_LIVE) {
        ceni_note(arg, CENI_EVENT_FREE, info->addr, info->requested_bytes, info->stream);
    }
    return true;
}

/* In a forked child all is the parent's, and stays. */
cen_status cen_pool_destroy(cen_pool *pool) {
    if (!pool) {
        return CEN_OK;
    }
    cen_status status = ceni_pool_refuse(pool, "cen_pool_destroy");
    if (status) {
        return status;
    }
    cen_pool_stats stats;
    if (!cen_pool_get_stats(pool, &stats) && stats.blocks) {
        ceni_log(CEN_LOG_WARN, "pool: destroyed with %llu blocks of %llu bytes live",
                 (unsigned long long)stats.blocks, (unsigned long long)stats.requested_bytes);
        if (ceni_noting()) {
            (void)cen_pool_walk(pool, note_gone, pool);
        }
    }
    ceni_pool_enter(pool);
    pool->capturing = 0;
    ceni_magazines_flush(pool);
    status = ceni_pool_drain(pool);
    ceni_slabs_close(pool);
    ceni_pool_close_lines(pool);
    ceni_lock_leave(&pool->lock);
    if (pool->mover) {
        (void)cen_stream_destroy(pool->device, pool->mover->handle);
    }
    ceni_movables_close(pool);
    ceni_habit_close(pool);
    free_descriptors(pool);
    close_streams(pool);
    ceni_index_close(pool);
    ceni_free(pool);
    return status;
}
