/* Memory of the device: cuMemAlloc and its like, and what of the device a program sees. */
#include "preload/preload.h"

static pl_result alloc(pl_request *request, pl_addr *addr, size_t size) {
    pl_result result;
    if (request->before == PL_PROGRAM && addr && pl_pool_alloc(size, NULL, false, addr, &result)) {
        return result;
    }
    if (!pl_ask(request, CEN_LEDGER_MEMORY, pl_device_now(), size, NULL)) {
        return PL_OUT_OF_MEMORY;
    }
    result = pl_real()->cuMemAlloc_v2(addr, size);
    return pl_done(request, result, addr ? *addr : 0);
}

pl_result cuMemAlloc_v2(pl_addr *addr, size_t size) {
    PL_BEGIN(cuMemAlloc_v2, (addr, size))
    return pl_leave(request.before, alloc(&request, addr, size));
}

/* Of a program from before addresses had 64 bits: the driver itself serves it. */
pl_result cuMemAlloc(pl_addr_v1 *addr, unsigned size) {
    PL_BEGIN(cuMemAlloc, (addr, size))
    pl_result result = PL_OUT_OF_MEMORY;
    if (pl_ask(&request, CEN_LEDGER_MEMORY, pl_device_now(), size, NULL)) {
        result = real->cuMemAlloc(addr, size);
        result = pl_done(&request, result, addr ? *addr : 0);
    }
    return pl_leave(request.before, result);
}

/* Rows are padded as the driver likes. What the limit is asked for is without the padding. */
static pl_result pitched(pl_request *request, pl_result result, uint64_t addr, uint64_t bytes) {
    result = pl_done(request, result, addr);
    if (result == PL_SUCCESS) {
        pl_set_bytes(request->kind, request->device, addr, bytes);
    }
    return result;
}

pl_result cuMemAllocPitch_v2(pl_addr *addr, size_t *pitch, size_t width, size_t height,
                             unsigned element) {
    PL_BEGIN(cuMemAllocPitch_v2, (addr, pitch, width, height, element))
    if (!pl_ask(&request, CEN_LEDGER_MEMORY, pl_device_now(), (uint64_t)width * height, NULL)) {
        return pl_leave(request.before, PL_OUT_OF_MEMORY);
    }
    pl_result result = real->cuMemAllocPitch_v2(addr, pitch, width, height, element);
    bool made = result == PL_SUCCESS;
    result = pitched(&request, result, made ? *addr : 0, made ? (uint64_t)*pitch * height : 0);
    return pl_leave(request.before, result);
}

pl_result cuMemAllocPitch(pl_addr_v1 *addr, unsigned *pitch, unsigned width, unsigned height,
                          unsigned element) {
    PL_BEGIN(cuMemAllocPitch, (addr, pitch, width, height, element))
    if (!pl_ask(&request, CEN_LEDGER_MEMORY, pl_device_now(), (uint64_t)width * height, NULL)) {
        return pl_leave(request.before, PL_OUT_OF_MEMORY);
    }
    pl_result result = real->cuMemAllocPitch(addr, pitch, width, height, element);
    bool made = result == PL_SUCCESS;
    result = pitched(&request, result, made ? *addr : 0, made ? (uint64_t)*pitch * height : 0);
    return pl_leave(request.before, result);
}

pl_result cuMemAllocManaged(pl_addr *addr, size_t size, unsigned flags) {
    PL_BEGIN(cuMemAllocManaged, (addr, size, flags))
    pl_result result = PL_OUT_OF_MEMORY;
    if (pl_ask(&request, CEN_LEDGER_MANAGED, pl_device_now(), size, NULL)) {
        result = real->cuMemAllocManaged(addr, size, flags);
        result = pl_done(&request, result, addr ? *addr : 0);
    }
    return pl_leave(request.before, result);
}

static bool end_any(pl_addr addr, cen_ledger_entry *entry) {
    static const cen_ledger_kind kinds[] = {CEN_LEDGER_MEMORY, CEN_LEDGER_ASYNC, CEN_LEDGER_MANAGED,
                                            CEN_LEDGER_IMPORT};
    for (size_t i = 0; addr && i < sizeof kinds / sizeof *kinds; i++) {
        if (pl_end(kinds[i], addr, entry)) {
            return true;
        }
    }
    return false;
}

pl_result cuMemFree_v2(pl_addr addr) {
    PL_BEGIN(cuMemFree_v2, (addr))
    pl_result result;
    if (request.before == PL_PROGRAM && pl_pool_free(addr, NULL, false, &result)) {
        return pl_leave(request.before, result);
    }
    cen_ledger_entry entry;
    bool ended = end_any(addr, &entry);
    return pl_leave(request.before, pl_ended(ended, &entry, real->cuMemFree_v2(addr)));
}

pl_result cuMemFree(pl_addr_v1 addr) {
    PL_BEGIN(cuMemFree, (addr))
    cen_ledger_entry entry;
    bool ended = end_any(addr, &entry);
    return pl_leave(request.before, pl_ended(ended, &entry, real->cuMemFree(addr)));
}

/* Either pointer may be NULL, as some programs have it. What cenote's pool keeps idle is free to
 * the program. */
pl_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    PL_BEGIN(cuMemGetInfo_v2, (free_bytes, total_bytes))
    pl_result result = real->cuMemGetInfo_v2(free_bytes, total_bytes);
    int device = result == PL_SUCCESS ? pl_device_now() : -1;
    uint64_t free_now = free_bytes ? *free_bytes : 0, total = total_bytes ? *total_bytes : 0;
    if (device >= 0) {
        pl_show(device, &free_now, &total);
        free_now += request.before == PL_PROGRAM ? pl_pool_idle(device) : 0;
        if (free_bytes) {
            *free_bytes = free_now;
        }
        if (total_bytes) {
            *total_bytes = total;
        }
    }
    return pl_leave(request.before, result);
}

pl_result cuDeviceTotalMem_v2(size_t *bytes, pl_device device) {
    PL_BEGIN(cuDeviceTotalMem_v2, (bytes, device))
    pl_result result = real->cuDeviceTotalMem_v2(bytes, device);
    if (result == PL_SUCCESS) {
        uint64_t total = *bytes;
        pl_show(device, NULL, &total);
        *bytes = total;
    }
    return pl_leave(request.before, result);
}

pl_result cuMemGetAddressRange_v2(pl_addr *base, size_t *size, pl_addr addr) {
    PL_BEGIN(cuMemGetAddressRange_v2, (base, size, addr))
    if (request.before == PL_PROGRAM && pl_pool_range(addr, base, size)) {
        return pl_leave(request.before, PL_SUCCESS);
    }
    return pl_leave(request.before, real->cuMemGetAddressRange_v2(base, size, addr));
}
