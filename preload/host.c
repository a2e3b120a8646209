/* Pinned memory of the host: no memory of a device, but often what a machine runs out of next. */
#include "preload/preload.h"

static pl_result made(pl_request *request, pl_result result, void *const *memory, uint64_t size) {
    (void)pl_ask(request, CEN_LEDGER_HOST, pl_device_now(), size, NULL);
    if (result == PL_OUT_OF_MEMORY) { /* of the host's: no failure of a device */
        return result;
    }
    return pl_done(request, result, result == PL_SUCCESS ? (uintptr_t)*memory : 0);
}

pl_result cuMemAllocHost(void **memory, unsigned size) {
    PL_BEGIN(cuMemAllocHost, (memory, size))
    pl_result result = real->cuMemAllocHost(memory, size);
    return pl_leave(request.before, made(&request, result, memory, size));
}

pl_result cuMemAllocHost_v2(void **memory, size_t size) {
    PL_BEGIN(cuMemAllocHost_v2, (memory, size))
    pl_result result = real->cuMemAllocHost_v2(memory, size);
    return pl_leave(request.before, made(&request, result, memory, size));
}

pl_result cuMemHostAlloc(void **memory, size_t size, unsigned flags) {
    PL_BEGIN(cuMemHostAlloc, (memory, size, flags))
    pl_result result = real->cuMemHostAlloc(memory, size, flags);
    return pl_leave(request.before, made(&request, result, memory, size));
}

pl_result cuMemHostRegister(void *memory, size_t size, unsigned flags) {
    PL_BEGIN(cuMemHostRegister, (memory, size, flags))
    pl_result result = real->cuMemHostRegister(memory, size, flags);
    return pl_leave(request.before, made(&request, result, &memory, size));
}

pl_result cuMemHostRegister_v2(void *memory, size_t size, unsigned flags) {
    PL_BEGIN(cuMemHostRegister_v2, (memory, size, flags))
    pl_result result = real->cuMemHostRegister_v2(memory, size, flags);
    return pl_leave(request.before, made(&request, result, &memory, size));
}

pl_result cuMemFreeHost(void *memory) {
    PL_BEGIN(cuMemFreeHost, (memory))
    cen_ledger_entry entry;
    bool ended = pl_end(CEN_LEDGER_HOST, (uintptr_t)memory, &entry);
    return pl_leave(request.before, pl_ended(ended, &entry, real->cuMemFreeHost(memory)));
}

pl_result cuMemHostUnregister(void *memory) {
    PL_BEGIN(cuMemHostUnregister, (memory))
    cen_ledger_entry entry;
    bool ended = pl_end(CEN_LEDGER_HOST, (uintptr_t)memory, &entry);
    return pl_leave(request.before, pl_ended(ended, &entry, real->cuMemHostUnregister(memory)));
}
