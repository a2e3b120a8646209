/* Streams as the pool knows them: epochs, marks and what waits for them.
 *
 * Recording an event at each free would cost more than the free. Instead a free notes its stream's
 * epoch, and a mark (an event recorded later, when someone needs to know) closes it: work before
 * the free is before the mark. While a stream captures a graph no event is queried and none is
 * waited for, since either would break the capture. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "pool/lookup.h"
#include "pool/note.h"

ceni_pstream *ceni_stream_enter(cen_pool *pool, cen_stream handle) {
    ceni_pstream *s = ceni_calloc(1, sizeof *s);
    if (s) {
        s->handle = handle;
        s->epoch = 1;
        s->done = pool->lost ? UINT64_MAX : 0;
        _Atomic(ceni_pstream *) *slot = &pool->streams[ceni_stream_slot(handle)];
        atomic_store_explicit(&s->next, atomic_load(slot), memory_order_relaxed);
        atomic_store_explicit(slot, s, memory_order_release);
        pool->stream_count++;
    }
    return s;
}

/* Adding takes the lock, which the caller of the first use of a stream does not hold. */
ceni_pstream *ceni_stream_add(cen_pool *pool, cen_stream handle) {
    ceni_lock_take(&pool->lock);
    ceni_pstream *s = ceni_stream_find(pool, handle, false);
    s = s ? s : ceni_stream_enter(pool, handle);
    ceni_lock_leave(&pool->lock);
    return s;
}

uint64_t ceni_stream_epoch(const ceni_pstream *stream) {
    return atomic_load(&stream->retired) ? stream->epoch - 1 : stream->epoch;
}

uint64_t ceni_stream_freeing(cen_pool *pool, ceni_pstream *stream) {
    uint64_t epoch = ceni_stream_epoch(stream);
    if (epoch > stream->freed_epoch) {
        stream->freed_epoch = epoch;
        pool->freeing_streams++;
    }
    return epoch;
}

bool ceni_pool_in_graph(cen_pool *pool) {
    bool capturing = false;
    for (unsigned i = 0; i < CENI_STREAM_SLOTS && pool->capturing; i++) {
        for (ceni_pstream *s = atomic_load(&pool->streams[i]); s && !capturing;
             s = atomic_load(&s->next)) {
            if (atomic_load(&s->route) &&
                cen_stream_capturing(pool->device, s->handle, &capturing)) {
                capturing = true; /* better no memory than a broken graph */
            }
        }
    }
    return capturing;
}

bool ceni_stream_passed(const ceni_pstream *stream, uint64_t epoch) {
    return !stream || epoch <= stream->done;
}

static cen_status take_event(cen_pool *pool, cen_event *event) {
    if (pool->spare_event_count) {
        *event = pool->spare_events[--pool->spare_event_count];
        return CEN_OK;
    }
    return cen_event_create(pool->device, 0, event);
}

static void give_event(cen_pool *pool, cen_event event) {
    if (ceni_grow(&pool->spare_events, &pool->spare_event_capacity, pool->spare_event_count + 1,
                  sizeof *pool->spare_events)) {
        cen_event_destroy(pool->device, event);
        return;
    }
    pool->spare_events[pool->spare_event_count++] = event;
}

cen_status ceni_stream_mark(cen_pool *pool, ceni_pstream *stream) {
    ceni_mark *mark = ceni_malloc(sizeof *mark);
    if (!mark) {
        return CEN_ERR_HOST_MEMORY;
    }
    cen_status status = take_event(pool, &mark->event);
    if (!status && (status = cen_event_record(pool->device, mark->event, stream->handle))) {
        give_event(pool, mark->event);
    }
    if (status) {
        ceni_free(mark);
        return status;
    }
    mark->epoch = stream->epoch++;
    mark->next = NULL;
    *(stream->last_mark ? &stream->last_mark->next : &stream->marks) = mark;
    stream->last_mark = mark;
    pool->marks++;
    return CEN_OK;
}

static void drop_mark(cen_pool *pool, ceni_pstream *stream) {
    ceni_mark *mark = stream->marks;
    stream->done = mark->epoch;
    pool->epochs_passed = true;
    pool->marks--;
    stream->marks = mark->next;
    if (!stream->marks) {
        stream->last_mark = NULL;
    }
    give_event(pool, mark->event);
    ceni_free(mark);
}

void ceni_streams_lose(cen_pool *pool) {
    for (unsigned i = 0; i < CENI_STREAM_SLOTS; i++) {
        for (ceni_pstream *s = atomic_load(&pool->streams[i]); s; s = atomic_load(&s->next)) {
            while (s->marks) {
                drop_mark(pool, s);
            }
            s->done = UINT64_MAX;
        }
    }
    pool->epochs_passed = true;
    pool->uses_unmarked = false;
}

/* Moves `done` on as far as events are complete. */
static void poll_stream(cen_pool *pool, ceni_pstream *stream) {
    while (stream->marks && !cen_event_query(pool->device, stream->marks->event)) {
        drop_mark(pool, stream);
    }
}

static void each_stream(cen_pool *pool, void (*fn)(cen_pool *, ceni_pstream *)) {
    for (unsigned i = 0; i < CENI_STREAM_SLOTS; i++) {
        for (ceni_pstream *s = atomic_load(&pool->streams[i]); s; s = atomic_load(&s->next)) {
            fn(pool, s);
        }
    }
}

static bool uses_passed(const ceni_use *uses) {
    for (; uses; uses = uses->next) {
        if (!ceni_stream_passed(uses->stream, uses->epoch)) {
            return false;
        }
    }
    return true;
}

static void finish_pending(cen_pool *pool, ceni_pending *p) {
    ceni_block *block = p->block;
    pool->stats.pending_blocks--;
    ceni_note(pool, CENI_EVENT_FREED, p->object ? (uintptr_t)p->object : block->addr, 0,
              block->stream ? block->stream->handle : 0);
    if (p->object) {
        pool->stats.pending_bytes -= block->slab->object_bytes;
        ceni_slab_give_back(pool, block->slab, p->object);
    } else {
        pool->stats.pending_bytes -= block->size;
        ceni_block_release(pool, block, block->stream, block->epoch);
    }
    ceni_uses_free(p->uses);
    ceni_free(p);
}

/* A use noted during a capture has no mark yet: make it now. False: to be tried again. */
static bool mark_uses(cen_pool *pool, ceni_use *uses) {
    for (; uses; uses = uses->next) {
        if (uses->epoch == uses->stream->epoch && !ceni_stream_passed(uses->stream, uses->epoch) &&
            ceni_stream_mark(pool, uses->stream)) {
            return false; /* the device said why */
        }
    }
    return true;
}

static void mark_pending(cen_pool *pool) {
    bool all = true;
    for (ceni_pending *p = pool->pending; p; p = p->next) {
        all = mark_uses(pool, p->uses) && all;
    }
    pool->uses_unmarked = !all;
}

void ceni_pool_poll(cen_pool *pool) {
    if (pool->capturing) {
        return;
    }
    if (pool->uses_unmarked) {
        mark_pending(pool);
    }
    if (pool->marks) {
        each_stream(pool, poll_stream);
    }
    if (!pool->epochs_passed) {
        return; /* nothing became complete since pending frees were looked at */
    }
    pool->epochs_passed = false;
    for (ceni_pending **at = &pool->pending; *at;) {
        ceni_pending *p = *at;
        if (uses_passed(p->uses)) {
            *at = p->next;
            finish_pending(pool, p);
        } else {
            at = &p->next;
        }
    }
}

static void mark_if_freed(cen_pool *pool, ceni_pstream *stream) {
    if (stream->freed_epoch == stream->epoch && !pool->lost) {
        (void)ceni_stream_mark(pool, stream); /* unmarked means only: not yet reusable elsewhere */
    }
}

/* Blocks of a stream whose work is complete become anyone's. With several streams in use what they
 * merge with is in no stream's heap, so the list that is gone through loses only them. */
static void settle_heap(cen_pool *pool, ceni_heap *heap) {
    for (unsigned bin = ceni_heap_bin(heap, 0); bin < CENI_BINS;
         bin = ceni_heap_bin(heap, bin + 1)) {
        for (ceni_block *b = heap->bins[bin], *next; b; b = next) {
            next = b->bin_next;
            if (ceni_stream_passed(b->stream, b->epoch)) {
                ceni_block_unbin(b);
                ceni_block_release(pool, b, NULL, b->epoch);
            }
        }
    }
}

static void settle_line(cen_pool *pool, ceni_line *line) {
    if (pool->stream_count > 1) {
        for (ceni_heap *h = line->heaps; h; h = h->next) {
            if (h->stream && h->free_bytes) {
                settle_heap(pool, h);
            }
        }
        return;
    }
    for (ceni_block *b = line->first_block; b; b = b->next) {
        if (b->kind == CENI_BLOCK_FREE && b->stream && ceni_stream_passed(b->stream, b->epoch)) {
            ceni_block_unbin(b);
            b->stream = NULL;
            ceni_block_bin(pool, b);
        }
    }
    ceni_line_merge(pool, line);
}

void ceni_pool_settle(cen_pool *pool, bool mark) {
    if (pool->capturing) {
        return;
    }
    if (mark) {
        each_stream(pool, mark_if_freed);
        pool->freeing_streams = 0;
    }
    ceni_pool_poll(pool);
    for (ceni_line *l = ceni_line_next(pool, NULL); l; l = ceni_line_next(pool, l)) {
        settle_line(pool, l);
    }
}

/* Waits for a stream's marks; what fails stays marked, and is not reusable. */
static cen_status drain_stream(cen_pool *pool, ceni_pstream *stream) {
    cen_status status = CEN_OK;
    while (stream->marks && !(status = cen_event_sync(pool->device, stream->marks->event))) {
        drop_mark(pool, stream);
    }
    return status;
}

/* Marks what was freed and waits for all marks; the first failure is told. */
static cen_status drain_once(cen_pool *pool) {
    cen_status status = CEN_OK;
    each_stream(pool, mark_if_freed);
    for (unsigned i = 0; i < CENI_STREAM_SLOTS; i++) {
        for (ceni_pstream *s = atomic_load(&pool->streams[i]); s; s = atomic_load(&s->next)) {
            cen_status one = drain_stream(pool, s);
            status = status ? status : one;
        }
    }
    ceni_pool_settle(pool, false);
    return status;
}

cen_status ceni_pool_drain(cen_pool *pool) {
    if (pool->capturing) {
        return CEN_ERR_CAPTURE;
    }
    bool pending = pool->pending;
    mark_pending(pool);
    pool->epochs_passed = true;
    cen_status status = drain_once(pool);
    /* Slabs that pending objects emptied were freed only now, in a new epoch. */
    return status || !pending ? status : drain_once(pool);
}

/* The earliest mark at or after `epoch`, made now if there is none. */
static cen_status mark_for(cen_pool *pool, ceni_pstream *stream, uint64_t epoch, ceni_mark **mark) {
    for (ceni_mark *m = stream->marks; m; m = m->next) {
        if (m->epoch >= epoch) {
            *mark = m;
            return CEN_OK;
        }
    }
    cen_status status = ceni_stream_mark(pool, stream);
    *mark = stream->last_mark;
    return status;
}

cen_status ceni_stream_order(cen_pool *pool, ceni_pstream *after, ceni_pstream *before,
                             uint64_t epoch) {
    if (!before || before == after || ceni_stream_passed(before, epoch)) {
        return CEN_OK;
    }
    struct ceni_sync *sync = NULL;
    for (size_t i = 0; i < after->sync_count && !sync; i++) {
        if (after->syncs[i].stream == before) {
            sync = &after->syncs[i];
        }
    }
    if (sync && sync->epoch >= epoch) {
        return CEN_OK;
    }
    if (pool->capturing) {
        return CEN_ERR_CAPTURE;
    }
    if (!sync) {
        if (ceni_grow(&after->syncs, &after->sync_capacity, after->sync_count + 1,
                      sizeof *after->syncs)) {
            return CEN_ERR_HOST_MEMORY;
        }
        sync = &after->syncs[after->sync_count++];
        *sync = (struct ceni_sync){before, 0};
    }
    ceni_mark *mark;
    cen_status status = mark_for(pool, before, epoch, &mark);
    if (!status) {
        status = cen_stream_wait(pool->device, after->handle, mark->event);
    }
    if (!status) {
        sync->epoch = mark->epoch;
    }
    return status;
}

cen_status ceni_pending_add(cen_pool *pool, ceni_block *block, void *object, ceni_use *uses) {
    ceni_pending *p = ceni_malloc(sizeof *p);
    if (!p) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "pool: no memory to note a pending free");
    }
    *p = (ceni_pending){block, object, uses, pool->pending};
    if (pool->capturing || !mark_uses(pool, uses)) {
        pool->uses_unmarked = true;
    }
    if (uses_passed(uses)) {
        pool->epochs_passed = true;
    }
    pool->pending = p;
    pool->stats.pending_blocks++;
    pool->stats.pending_bytes += object ? block->slab->object_bytes : block->size;
    return CEN_OK;
}
