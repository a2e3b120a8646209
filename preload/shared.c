/* Memory of other processes, by handles of cuIpc* and of other interfaces: views, which count as
 * nothing of this process's own. */
#include "preload/preload.h"

#include <inttypes.h>

#include "base/log.h"

/* A block of cenote's pool is no memory of cuMemAlloc's, so no other process can open it. What is
 * allocated later is the driver's: a program that shares memory learns it at its first try. */
pl_result cuIpcGetMemHandle(pl_ipc *handle, pl_addr addr) {
    PL_BEGIN(cuIpcGetMemHandle, (handle, addr))
    pl_pool_stop_for_ipc();
    if (pl_pool_has(addr)) {
        ceni_log(CEN_LOG_ERROR,
                 "cuIpcGetMemHandle: %#" PRIx64
                 " is a block of the pool, which cannot be shared: run without --pool",
                 (uint64_t)addr);
        return pl_leave(request.before, PL_NOT_SUPPORTED);
    }
    return pl_leave(request.before, real->cuIpcGetMemHandle(handle, addr));
}

static pl_result opened(pl_request *request, pl_result result, const pl_addr *addr) {
    size_t size = 0;
    if (result == PL_SUCCESS) {
        (void)pl_real()->cuMemGetAddressRange_v2(NULL, &size, *addr);
    }
    (void)pl_ask(request, CEN_LEDGER_IMPORT, pl_device_now(), size, NULL);
    return pl_done(request, result, result == PL_SUCCESS ? *addr : 0);
}

pl_result cuIpcOpenMemHandle(pl_addr *addr, pl_ipc handle, unsigned flags) {
    PL_BEGIN(cuIpcOpenMemHandle, (addr, handle, flags))
    pl_result result = real->cuIpcOpenMemHandle(addr, handle, flags);
    return pl_leave(request.before, opened(&request, result, addr));
}

pl_result cuIpcOpenMemHandle_v2(pl_addr *addr, pl_ipc handle, unsigned flags) {
    PL_BEGIN(cuIpcOpenMemHandle_v2, (addr, handle, flags))
    pl_result result = real->cuIpcOpenMemHandle_v2(addr, handle, flags);
    return pl_leave(request.before, opened(&request, result, addr));
}

pl_result cuIpcCloseMemHandle(pl_addr addr) {
    PL_BEGIN(cuIpcCloseMemHandle, (addr))
    cen_ledger_entry entry;
    bool ended = pl_end(CEN_LEDGER_IMPORT, addr, &entry);
    return pl_leave(request.before, pl_ended(ended, &entry, real->cuIpcCloseMemHandle(addr)));
}

pl_result cuImportExternalMemory(pl_ptr *memory, const pl_external_desc *desc) {
    PL_BEGIN(cuImportExternalMemory, (memory, desc))
    pl_result result = real->cuImportExternalMemory(memory, desc);
    (void)pl_ask(&request, CEN_LEDGER_IMPORT, pl_device_now(), desc ? desc->size : 0, NULL);
    return pl_leave(request.before,
                    pl_done(&request, result, result == PL_SUCCESS ? (uintptr_t)*memory : 0));
}

pl_result cuDestroyExternalMemory(pl_ptr memory) {
    PL_BEGIN(cuDestroyExternalMemory, (memory))
    (void)pl_end(CEN_LEDGER_IMPORT, (uintptr_t)memory, NULL);
    return pl_leave(request.before, real->cuDestroyExternalMemory(memory));
}
