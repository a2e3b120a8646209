/* Stream-ordered memory, and the pools of the driver that it comes from.
 *
 * A block of such a pool lies in what the pool has reserved, which is what counts: the driver is
 * asked for it after each call, since it grows and shrinks by itself. While a stream captures, what
 * it allocates is part of the graph, and nothing is asked. */
#include "preload/preload.h"

static uint64_t figure(pl_ptr pool, pl_enum which) {
    unsigned long long value = 0;
    return pl_real()->cuMemPoolGetAttribute(pool, which, &value) == PL_SUCCESS ? value : 0;
}

static void update(int device, pl_ptr pool) {
    if (pool && device >= 0 && !pl_capturing()) {
        pl_set_bytes(CEN_LEDGER_POOL, device, (uintptr_t)pool, figure(pool, PL_POOL_RESERVED_NOW));
    }
}

/* The pool that a device's stream-ordered calls use. */
static pl_ptr pool_of(int device) {
    pl_ptr pool = NULL;
    return device >= 0 && pl_real()->cuDeviceGetMemPool(&pool, device) == PL_SUCCESS ? pool : NULL;
}

/* Room for what the pool would have to grow by. */
static bool may_grow(pl_request *growth, int device, pl_ptr pool, uint64_t size, pl_ptr stream) {
    uint64_t idle = 0;
    if (pl_set.limit != UINT64_MAX && pool && !pl_capturing()) {
        uint64_t reserved = figure(pool, PL_POOL_RESERVED_NOW),
                 used = figure(pool, PL_POOL_USED_NOW);
        idle = reserved > used ? reserved - used : 0;
    }
    return pl_ask(growth, CEN_LEDGER_POOL, device, size > idle ? size - idle : 0, stream);
}

static int device_of(pl_ptr pool) {
    cen_ledger_entry entry;
    bool known = pl_ledger() &&
                 cen_ledger_find(pl_ledger(), CEN_LEDGER_POOL, (uintptr_t)pool, &entry) == CEN_OK;
    return known ? entry.device : pl_device_now();
}

/* What is asked of the driver: pool NULL, the device's own one. */
typedef struct demand {
    pl_addr *addr;
    size_t size;
    pl_ptr pool, stream;
    unsigned streams;
} demand;

static pl_result ask_driver(const demand *d) {
    const pl_driver *real = pl_real();
    bool legacy = d->streams == PL_LEGACY;
    if (d->pool) {
        return legacy ? real->cuMemAllocFromPoolAsync(d->addr, d->size, d->pool, d->stream)
                      : real->cuMemAllocFromPoolAsync_ptsz(d->addr, d->size, d->pool, d->stream);
    }
    return legacy ? real->cuMemAllocAsync(d->addr, d->size, d->stream)
                  : real->cuMemAllocAsync_ptsz(d->addr, d->size, d->stream);
}

static pl_result alloc(pl_request *request, const demand *d) {
    pl_ptr stream = pl_stream_of(d->stream, d->streams);
    pl_result result;
    if (pl_stream_capturing(stream)) {
        return ask_driver(d);
    }
    if (!d->pool && d->addr && request->before == PL_PROGRAM &&
        pl_pool_alloc(d->size, stream, true, d->addr, &result)) {
        return result;
    }
    int device = d->pool ? device_of(d->pool) : pl_device_now();
    pl_ptr pool = d->pool ? d->pool : pool_of(device);
    pl_request growth = {.before = request->before};
    if (!may_grow(&growth, device, pool, d->size, stream)) {
        return PL_OUT_OF_MEMORY;
    }
    (void)pl_ask(request, CEN_LEDGER_ASYNC, device, d->size, stream);
    result = ask_driver(d);
    update(device, pool);
    pl_drop(&growth);
    return pl_done(request, result, d->addr ? *d->addr : 0);
}

pl_result cuMemAllocAsync(pl_addr *addr, size_t size, pl_ptr stream) {
    PL_BEGIN(cuMemAllocAsync, (addr, size, stream))
    const demand d = {addr, size, NULL, stream, PL_LEGACY};
    return pl_leave(request.before, alloc(&request, &d));
}

pl_result cuMemAllocAsync_ptsz(pl_addr *addr, size_t size, pl_ptr stream) {
    PL_BEGIN(cuMemAllocAsync_ptsz, (addr, size, stream))
    const demand d = {addr, size, NULL, stream, PL_PER_THREAD};
    return pl_leave(request.before, alloc(&request, &d));
}

pl_result cuMemAllocFromPoolAsync(pl_addr *addr, size_t size, pl_ptr pool, pl_ptr stream) {
    PL_BEGIN(cuMemAllocFromPoolAsync, (addr, size, pool, stream))
    const demand d = {addr, size, pool, stream, PL_LEGACY};
    return pl_leave(request.before, alloc(&request, &d));
}

pl_result cuMemAllocFromPoolAsync_ptsz(pl_addr *addr, size_t size, pl_ptr pool, pl_ptr stream) {
    PL_BEGIN(cuMemAllocFromPoolAsync_ptsz, (addr, size, pool, stream))
    const demand d = {addr, size, pool, stream, PL_PER_THREAD};
    return pl_leave(request.before, alloc(&request, &d));
}

static pl_result release(const pl_request *request, pl_addr addr, pl_ptr stream, unsigned streams) {
    const pl_driver *real = pl_real();
    pl_result result;
    pl_ptr exact = pl_stream_of(stream, streams);
    bool captured = pl_stream_capturing(exact);
    if (!captured && request->before == PL_PROGRAM && pl_pool_free(addr, exact, true, &result)) {
        return result;
    }
    cen_ledger_entry entry;
    bool ended =
        !captured && addr &&
        (pl_end(CEN_LEDGER_ASYNC, addr, &entry) || pl_end(CEN_LEDGER_MEMORY, addr, &entry) ||
         pl_end(CEN_LEDGER_IMPORT, addr, &entry));
    result = streams == PL_LEGACY ? real->cuMemFreeAsync(addr, stream)
                                  : real->cuMemFreeAsync_ptsz(addr, stream);
    if (ended && result != PL_SUCCESS) {
        pl_restore(&entry);
    } else if (ended) {
        update(entry.device, pool_of(entry.device));
    }
    return result;
}

pl_result cuMemFreeAsync(pl_addr addr, pl_ptr stream) {
    PL_BEGIN(cuMemFreeAsync, (addr, stream))
    return pl_leave(request.before, release(&request, addr, stream, PL_LEGACY));
}

pl_result cuMemFreeAsync_ptsz(pl_addr addr, pl_ptr stream) {
    PL_BEGIN(cuMemFreeAsync_ptsz, (addr, stream))
    return pl_leave(request.before, release(&request, addr, stream, PL_PER_THREAD));
}

/* ---- pools of the program's own ---- */

pl_result cuMemPoolCreate(pl_ptr *pool, const pl_pool_prop *prop) {
    PL_BEGIN(cuMemPoolCreate, (pool, prop))
    pl_result result = real->cuMemPoolCreate(pool, prop);
    if (result == PL_SUCCESS && prop->location.type == PL_LOCATION_DEVICE &&
        prop->location.id < PL_DEVICES) {
        (void)pl_device_total(prop->location.id);
        (void)pl_ask(&request, CEN_LEDGER_POOL, prop->location.id, 0, NULL);
        (void)pl_done(&request, result, (uintptr_t)*pool);
    }
    return pl_leave(request.before, result);
}

pl_result cuMemPoolDestroy(pl_ptr pool) {
    PL_BEGIN(cuMemPoolDestroy, (pool))
    cen_ledger_entry entry;
    bool ended = pl_end(CEN_LEDGER_POOL, (uintptr_t)pool, &entry);
    return pl_leave(request.before, pl_ended(ended, &entry, real->cuMemPoolDestroy(pool)));
}

pl_result cuMemPoolTrimTo(pl_ptr pool, size_t keep) {
    PL_BEGIN(cuMemPoolTrimTo, (pool, keep))
    pl_result result = real->cuMemPoolTrimTo(pool, keep);
    update(device_of(pool), pool);
    return pl_leave(request.before, result);
}

pl_result cuMemPoolExportToShareableHandle(void *shared, pl_ptr pool, pl_enum type,
                                           pl_flags flags) {
    PL_BEGIN(cuMemPoolExportToShareableHandle, (shared, pool, type, flags))
    pl_pool_stop_for_ipc();
    return pl_leave(request.before,
                    real->cuMemPoolExportToShareableHandle(shared, pool, type, flags));
}

pl_result cuMemPoolImportPointer(pl_addr *addr, pl_ptr pool, void *shared) {
    PL_BEGIN(cuMemPoolImportPointer, (addr, pool, shared))
    pl_result result = real->cuMemPoolImportPointer(addr, pool, shared);
    size_t size = 0;
    if (result == PL_SUCCESS) {
        (void)real->cuMemGetAddressRange_v2(NULL, &size, *addr);
        (void)pl_ask(&request, CEN_LEDGER_IMPORT, pl_device_now(), size, NULL);
        (void)pl_done(&request, result, *addr);
    }
    return pl_leave(request.before, result);
}
