/* --pool: cenote's pool in the driver's place, one for each device, made when it is first needed.
 *
 * A block of cuMemAlloc's may be used on any stream at once, and one of cuMemFree's may be in use
 * on any. So each device has a stream of our own, on which nothing runs, in whose name such blocks
 * are allocated and freed: the pool gives back to it only what it has seen complete, or makes it
 * wait, and then the host waits with it. A free names the streams that may use the block: the
 * legacy default stream, behind which all blocking streams stand, and every non-blocking one.
 *
 * The driver serves what the pool cannot: while a stream captures, in contexts other than the
 * primary one, for the per-thread default streams, whose handle is every thread's, and once the
 * program shares memory with other processes. */
#include "preload/preload.h"

#include <pthread.h>
#include <stdio.h>

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "cenote/pool.h"

typedef struct member {
    atomic_int state; /* of those below */
    cen_device *device;
    cen_pool *pool;
    cen_stream idle;        /* ours, on which nothing runs */
    _Atomic uint64_t peers; /* devices that may use its memory, a bit each */
} member;

enum { UNOPENED, OPEN, UNUSABLE };

typedef struct known_stream {
    pl_ptr handle;
    int device;
    bool non_blocking;
} known_stream;

typedef struct late_free { /* freed while a stream captured */
    pl_addr addr;
    int device;
} late_free;

static struct {
    pthread_mutex_t opening, lock;
    member members[PL_DEVICES];
    ceni_map blocks; /* address: device */
    known_stream *streams;
    size_t stream_count, stream_capacity;
    late_free *late;
    size_t late_capacity;
    _Atomic size_t late_count;
    atomic_bool stopped;
} pools = {.opening = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

void pl_fork_pool(void) {
    pthread_mutex_init(&pools.opening, NULL);
    pthread_mutex_init(&pools.lock, NULL);
    for (int i = 0; i < PL_DEVICES; i++) {
        atomic_store(&pools.members[i].state, UNOPENED);
    }
    pools.blocks = (ceni_map){0}; /* the parent's memory stays, unused */
    pools.streams = NULL;
    pools.stream_count = pools.stream_capacity = 0;
    pools.late = NULL;
    pools.late_capacity = 0;
    atomic_store(&pools.late_count, 0);
    atomic_store(&pools.stopped, false);
}

/* ---- opening ---- */

static bool open_member(member *m, int device) {
    char name[32];
    snprintf(name, sizeof name, "cuda:%d", device);
    if (cen_device_open(name, &m->device)) {
        return false;
    }
    if (cen_stream_create(m->device, 0, &m->idle) || cen_pool_create(m->device, NULL, &m->pool)) {
        cen_device_close(m->device);
        return false;
    }
    return true;
}

/* NULL: the driver serves the device; the log says why. */
static member *member_of(int device) {
    member *m = &pools.members[device];
    int state = atomic_load_explicit(&m->state, memory_order_acquire);
    if (state == UNOPENED) {
        pthread_mutex_lock(&pools.opening);
        state = atomic_load(&m->state);
        if (state == UNOPENED) {
            state = open_member(m, device) ? OPEN : UNUSABLE;
            atomic_store_explicit(&m->state, state, memory_order_release);
        }
        pthread_mutex_unlock(&pools.opening);
    }
    return state == OPEN ? m : NULL;
}

static member *opened(int device) {
    member *m = device >= 0 && device < PL_DEVICES ? &pools.members[device] : NULL;
    return m && atomic_load_explicit(&m->state, memory_order_acquire) == OPEN ? m : NULL;
}

/* ---- blocks ---- */

static bool keep_block(pl_addr addr, int device) {
    pthread_mutex_lock(&pools.lock);
    bool kept = !ceni_map_put(&pools.blocks, addr, (uint64_t)device);
    pthread_mutex_unlock(&pools.lock);
    return kept;
}

static bool forget_block(pl_addr addr, int *device) {
    uint64_t value = 0;
    pthread_mutex_lock(&pools.lock);
    bool found = ceni_map_remove(&pools.blocks, addr, &value);
    pthread_mutex_unlock(&pools.lock);
    *device = (int)value;
    return found;
}

static int block_device(pl_addr addr) {
    pthread_mutex_lock(&pools.lock);
    const uint64_t *value = ceni_map_get(&pools.blocks, addr);
    int device = value ? (int)*value : -1;
    pthread_mutex_unlock(&pools.lock);
    return device;
}

/* ---- freeing ---- */

/* Copies the device's non-blocking streams; -1: there are more than there is room for. */
static int copy_streams(int device, pl_ptr *streams, int room) {
    int count = 0;
    pthread_mutex_lock(&pools.lock);
    for (size_t i = 0; i < pools.stream_count && count >= 0; i++) {
        const known_stream *s = &pools.streams[i];
        if (s->non_blocking && s->device == device) {
            if (count < room) {
                streams[count] = s->handle;
            }
            count = count < room ? count + 1 : -1;
        }
    }
    pthread_mutex_unlock(&pools.lock);
    return count;
}

/* A block that any stream may be using. Where the streams are too many to name, the host waits for
 * the device, as the driver itself would. */
static void free_shared(member *m, int device, pl_addr addr) {
    enum { NAMED = 256 };
    void *block = (void *)(uintptr_t)addr;
    pl_ptr streams[NAMED];
    int count = copy_streams(device, streams, NAMED);
    if (count < 0) {
        (void)pl_real()->cuCtxSynchronize();
        count = 0;
    }
    (void)cen_pool_use(m->pool, block, 0);
    for (int i = 0; i < count; i++) {
        (void)cen_pool_use(m->pool, block, (cen_stream)streams[i]);
    }
    (void)cen_pool_free(m->pool, block, m->idle);
}

static bool free_later(pl_addr addr, int device) {
    pthread_mutex_lock(&pools.lock);
    size_t count = atomic_load(&pools.late_count);
    bool kept = !ceni_grow(&pools.late, &pools.late_capacity, count + 1, sizeof *pools.late);
    if (kept) {
        pools.late[count] = (late_free){addr, device};
        atomic_store(&pools.late_count, count + 1);
    }
    pthread_mutex_unlock(&pools.lock);
    return kept;
}

/* No stream captures any more. */
static void free_late(void) {
    while (atomic_load(&pools.late_count)) {
        pthread_mutex_lock(&pools.lock);
        size_t count = atomic_load(&pools.late_count);
        late_free next = {0};
        if (count) {
            next = pools.late[count - 1];
            atomic_store(&pools.late_count, count - 1);
        }
        pthread_mutex_unlock(&pools.lock);
        member *m = count ? opened(next.device) : NULL;
        if (m) {
            free_shared(m, next.device, next.addr);
        }
    }
}

static bool is_per_thread(pl_ptr stream) {
    return stream == PL_STREAM_PER_THREAD;
}

static cen_stream pool_stream(pl_ptr stream) {
    return stream == PL_STREAM_LEGACY ? 0 : (cen_stream)stream; /* the default one by its name */
}

bool pl_pool_free(pl_addr addr, pl_ptr stream, bool async, pl_result *result) {
    int device;
    if (!pl_set.pool || !addr || !forget_block(addr, &device)) {
        return false;
    }
    member *m = opened(device);
    (void)pl_end(CEN_LEDGER_BLOCK, addr, NULL);
    *result = PL_SUCCESS;
    int before = pl_inside;
    pl_inside = PL_POOL;
    if (pl_capturing()) {
        *result = free_later(addr, device) ? PL_SUCCESS : PL_INVALID_VALUE;
    } else if (async && !is_per_thread(stream)) {
        (void)cen_pool_free(m->pool, (void *)(uintptr_t)addr, pool_stream(stream));
    } else {
        free_shared(m, device, addr);
    }
    pl_inside = before;
    return true;
}

/* ---- allocating ---- */

static bool is_of_other_device(pl_ptr stream, int device) {
    bool other = false;
    pthread_mutex_lock(&pools.lock);
    for (size_t i = 0; i < pools.stream_count; i++) {
        const known_stream *s = &pools.streams[i];
        other = other || (s->handle == stream && s->device != device);
    }
    pthread_mutex_unlock(&pools.lock);
    return other;
}

/* The device whose pool is to serve; -1: the driver is. */
static int serving(pl_ptr stream, bool async) {
    if (!pl_set.pool || atomic_load(&pools.stopped) || pl_capturing() ||
        (async && is_per_thread(stream))) {
        return -1;
    }
    int device = pl_device_now();
    return device >= 0 && async && is_of_other_device(stream, device) ? -1 : device;
}

static bool in_primary_context(int device) {
    pl_ptr current = NULL;
    return pl_real()->cuCtxGetCurrent(&current) == PL_SUCCESS && current &&
           current == pl_primary_context(device);
}

/* What the pool made our stream wait for, the host waits for too. */
static cen_status wait_idle(const member *m) {
    cen_status status = cen_stream_query(m->device, m->idle);
    return status == CEN_ERR_NOT_READY ? cen_stream_sync(m->device, m->idle) : status;
}

static cen_status alloc(member *m, uint64_t bytes, pl_ptr stream, bool async, pl_addr *addr) {
    void *block = NULL;
    cen_status expected = ceni_log_expect(CEN_ERR_DEVICE_MEMORY); /* the program is told */
    cen_status status =
        cen_pool_alloc(m->pool, bytes, async ? pool_stream(stream) : m->idle, &block);
    (void)ceni_log_expect(expected);
    if (!status && !async && (status = wait_idle(m))) {
        (void)cen_pool_free(m->pool, block, m->idle);
    }
    if (!status) {
        *addr = (uintptr_t)block;
    }
    return status;
}

bool pl_pool_alloc(uint64_t bytes, pl_ptr stream, bool async, pl_addr *addr, pl_result *result) {
    int device = bytes ? serving(stream, async) : -1;
    if (device < 0) {
        return false;
    }
    int before = pl_inside;
    pl_inside = PL_POOL;
    member *m = member_of(device);
    cen_status status = CEN_ERR_UNSUPPORTED;
    if (m && in_primary_context(device)) {
        free_late();
        status = alloc(m, bytes, stream, async, addr);
    }
    if (!status && !keep_block(*addr, device)) {
        (void)cen_pool_free(m->pool, (void *)(uintptr_t)*addr, m->idle);
        status = CEN_ERR_DEVICE_MEMORY;
    }
    pl_inside = before;
    if (status && status != CEN_ERR_DEVICE_MEMORY) {
        return false;
    }
    pl_request request = {.before = PL_PROGRAM};
    (void)pl_ask(&request, CEN_LEDGER_BLOCK, device, bytes, stream);
    *result = pl_done(&request, status ? PL_OUT_OF_MEMORY : PL_SUCCESS, *addr);
    return true;
}

/* ---- what else a program asks ---- */

bool pl_pool_has(pl_addr addr) {
    pl_addr base;
    size_t size;
    return pl_pool_range(addr, &base, &size);
}

typedef struct search {
    pl_addr addr, base;
    uint64_t size;
} search;

static bool look_at(void *arg, const cen_pool_block_info *info) {
    search *s = arg;
    if (info->state == CEN_POOL_LIVE && s->addr - info->addr < info->requested_bytes) {
        s->base = info->addr;
        s->size = info->requested_bytes;
        return false;
    }
    return true;
}

/* An address within a block is rare, and looked for in all pools. */
bool pl_pool_range(pl_addr addr, pl_addr *base, size_t *size) {
    if (!pl_set.pool) {
        return false;
    }
    search s = {.addr = addr};
    int owner = block_device(addr);
    size_t bytes = 0;
    if (owner >= 0 &&
        !cen_pool_block_size(pools.members[owner].pool, (void *)(uintptr_t)addr, &bytes)) {
        s.base = addr;
        s.size = bytes;
    }
    for (int device = 0; owner < 0 && !s.size && device < PL_DEVICES; device++) {
        if (opened(device)) {
            (void)cen_pool_walk(pools.members[device].pool, look_at, &s);
        }
    }
    if (s.size && base) {
        *base = s.base;
    }
    if (s.size && size) {
        *size = s.size;
    }
    return s.size != 0;
}

uint64_t pl_pool_idle(int device) {
    const member *m = opened(device);
    cen_pool_stats stats;
    if (!m || cen_pool_get_stats(m->pool, &stats)) {
        return 0;
    }
    return stats.reserved_bytes - stats.allocated_bytes;
}

/* Blocks of one device, taken out of the table a few at a time. */
static size_t take_blocks(int device, pl_addr *taken, size_t room) {
    size_t count = 0;
    pthread_mutex_lock(&pools.lock);
    for (size_t i = 0; i < pools.blocks.capacity && count < room; i++) {
        const ceni_map_slot *slot = &pools.blocks.slots[i];
        if (slot->used && (int)slot->value == device) {
            taken[count++] = slot->key;
        }
    }
    for (size_t i = 0; i < count; i++) {
        (void)ceni_map_remove(&pools.blocks, taken[i], NULL);
    }
    pthread_mutex_unlock(&pools.lock);
    return count;
}

static void forget_device(int device) {
    pthread_mutex_lock(&pools.lock);
    for (size_t i = pools.stream_count; i-- > 0;) {
        if (pools.streams[i].device == device) {
            pools.streams[i] = pools.streams[--pools.stream_count];
        }
    }
    size_t late = atomic_load(&pools.late_count);
    for (size_t i = late; i-- > 0;) {
        if (pools.late[i].device == device) {
            pools.late[i] = pools.late[--late];
        }
    }
    atomic_store(&pools.late_count, late);
    pthread_mutex_unlock(&pools.lock);
}

/* The program resets the device: all memory of its primary context goes, and all streams, ours too.
 * A program that does so has no other thread at work there. The next block opens the pool anew. */
void pl_pool_reset(int device) {
    enum { SOME = 64 };
    pl_addr taken[SOME];
    member *m = opened(device);
    if (!m) {
        return;
    }
    int before = pl_inside;
    pl_inside = PL_POOL;
    for (size_t count; (count = take_blocks(device, taken, SOME)) > 0;) {
        for (size_t i = 0; i < count; i++) {
            (void)cen_pool_free(m->pool, (void *)(uintptr_t)taken[i], m->idle);
        }
    }
    if (!pl_capturing()) {
        free_late();
    }
    forget_device(device);
    (void)cen_pool_destroy(m->pool);
    cen_device_close(m->device);
    atomic_store(&m->peers, 0);
    atomic_store_explicit(&m->state, UNOPENED, memory_order_release);
    pl_inside = before;
}

void pl_pool_stop_for_ipc(void) {
    atomic_store(&pools.stopped, true);
}

/* ---- streams and peers ---- */

void pl_pool_stream_made(pl_ptr stream, unsigned flags) {
    int device = pl_set.pool ? pl_device_now() : -1;
    if (device < 0) {
        return;
    }
    pthread_mutex_lock(&pools.lock);
    if (ceni_grow(&pools.streams, &pools.stream_capacity, pools.stream_count + 1,
                  sizeof *pools.streams)) {
        atomic_store(&pools.stopped, true); /* a stream that frees do not know */
    } else {
        pools.streams[pools.stream_count++] =
            (known_stream){stream, device, (flags & PL_STREAM_NON_BLOCKING) != 0};
    }
    pthread_mutex_unlock(&pools.lock);
}

/* What is still in the stream runs on; blocks that are freed later may be used by it, so ours waits
 * for its end. */
static void outlive(const member *m, pl_ptr stream) {
    cen_event event;
    if (cen_event_create(m->device, 0, &event)) {
        return;
    }
    if (!cen_event_record(m->device, event, (cen_stream)stream)) {
        (void)cen_stream_wait(m->device, m->idle, event);
    }
    (void)cen_event_destroy(m->device, event);
}

void pl_pool_stream_gone(pl_ptr stream) {
    int device = -1;
    pthread_mutex_lock(&pools.lock);
    for (size_t i = 0; i < pools.stream_count; i++) {
        if (pools.streams[i].handle == stream) {
            device = pools.streams[i].device;
            pools.streams[i] = pools.streams[--pools.stream_count];
            break;
        }
    }
    pthread_mutex_unlock(&pools.lock);
    const member *m = opened(device);
    if (!m || pl_stream_capturing(stream)) {
        return;
    }
    int before = pl_inside;
    pl_inside = PL_POOL;
    outlive(m, stream);
    (void)cen_pool_stream_release(m->pool, (cen_stream)stream);
    pl_inside = before;
}

static void grant(pl_addr addr, uint64_t size, int peer) {
    const pl_access access = {{PL_LOCATION_DEVICE, peer}, PL_ACCESS_READ_WRITE};
    (void)pl_real()->cuMemSetAccess(addr, size, &access, 1);
}

void pl_pool_peer(int device, int peer) {
    if (device >= 0 && device < PL_DEVICES && peer >= 0) {
        atomic_fetch_or(&pools.members[device].peers, UINT64_C(1) << peer);
        pl_pages_each_own(device, grant, peer);
    }
}

void pl_pool_granted(int device, pl_addr addr, uint64_t size) {
    uint64_t peers =
        device >= 0 && device < PL_DEVICES ? atomic_load(&pools.members[device].peers) : 0;
    for (int peer = 0; peers; peer++, peers >>= 1) {
        if (peers & 1) {
            grant(addr, size, peer);
        }
    }
}
