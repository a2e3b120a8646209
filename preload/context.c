/* Contexts: what each takes of its device is measured around its making, and is often the largest
 * thing that a program holds without having asked for it.
 *
 * A primary context is there from the first retain to the last release, or a reset. Memory that a
 * context takes with it when it is destroyed was never freed by the program, and stays in the
 * ledger. */
#include "preload/preload.h"

static _Atomic uintptr_t primary[PL_DEVICES]; /* its context, once made */

pl_ptr pl_primary_context(int device) {
    return (pl_ptr)atomic_load(&primary[device]);
}

static bool is_active(pl_device device) {
    unsigned flags = 0;
    int active = 0;
    return pl_real()->cuDevicePrimaryCtxGetState(device, &flags, &active) == PL_SUCCESS && active;
}

static pl_result made(const pl_measure *measure, pl_result result, pl_ptr *context) {
    int64_t bytes = 0;
    if (result == PL_SUCCESS) {
        if (!pl_measure_end(measure, &bytes)) {
            bytes = 0; /* it is there, though nobody says how large it is */
        }
        pl_add_measured(CEN_LEDGER_CONTEXT, measure->device, (uintptr_t)*context, bytes);
    } else if (result == PL_OUT_OF_MEMORY) {
        pl_failed(measure->device, 0, 0);
    }
    return result;
}

static pl_measure begin(pl_device device) {
    pl_measure none = {.device = -1, .by = PL_NOT};
    return device >= 0 && device < PL_DEVICES ? pl_measure_begin(device, true) : none;
}

pl_result cuDevicePrimaryCtxRetain(pl_ptr *context, pl_device device) {
    PL_BEGIN(cuDevicePrimaryCtxRetain, (context, device))
    if (device < 0 || device >= PL_DEVICES ||
        (atomic_load(&primary[device]) && is_active(device))) {
        return pl_leave(request.before, real->cuDevicePrimaryCtxRetain(context, device));
    }
    bool active = is_active(device);
    pl_measure measure = begin(device);
    pl_result result = real->cuDevicePrimaryCtxRetain(context, device);
    if (result == PL_SUCCESS) {
        atomic_store(&primary[device], (uintptr_t)*context);
    }
    if (!active) {
        result = made(&measure, result, context);
    }
    return pl_leave(request.before, result);
}

static pl_result ended(pl_result result, pl_device device) {
    if (result == PL_SUCCESS && device >= 0 && device < PL_DEVICES && !is_active(device)) {
        uintptr_t context = atomic_exchange(&primary[device], 0);
        if (context) {
            (void)pl_end(CEN_LEDGER_CONTEXT, context, NULL);
        }
    }
    return result;
}

pl_result cuDevicePrimaryCtxRelease(pl_device device) {
    PL_BEGIN(cuDevicePrimaryCtxRelease, (device))
    return pl_leave(request.before, ended(real->cuDevicePrimaryCtxRelease(device), device));
}

pl_result cuDevicePrimaryCtxRelease_v2(pl_device device) {
    PL_BEGIN(cuDevicePrimaryCtxRelease_v2, (device))
    return pl_leave(request.before, ended(real->cuDevicePrimaryCtxRelease_v2(device), device));
}

pl_result cuDevicePrimaryCtxReset(pl_device device) {
    PL_BEGIN(cuDevicePrimaryCtxReset, (device))
    pl_pool_reset(device);
    return pl_leave(request.before, ended(real->cuDevicePrimaryCtxReset(device), device));
}

pl_result cuDevicePrimaryCtxReset_v2(pl_device device) {
    PL_BEGIN(cuDevicePrimaryCtxReset_v2, (device))
    pl_pool_reset(device);
    return pl_leave(request.before, ended(real->cuDevicePrimaryCtxReset_v2(device), device));
}

pl_result cuCtxCreate(pl_ptr *context, unsigned flags, pl_device device) {
    PL_BEGIN(cuCtxCreate, (context, flags, device))
    pl_measure measure = begin(device);
    pl_result result = real->cuCtxCreate(context, flags, device);
    return pl_leave(request.before, made(&measure, result, context));
}

pl_result cuCtxCreate_v2(pl_ptr *context, unsigned flags, pl_device device) {
    PL_BEGIN(cuCtxCreate_v2, (context, flags, device))
    pl_measure measure = begin(device);
    pl_result result = real->cuCtxCreate_v2(context, flags, device);
    return pl_leave(request.before, made(&measure, result, context));
}

pl_result cuCtxCreate_v3(pl_ptr *context, void *affinity, int count, unsigned flags,
                         pl_device device) {
    PL_BEGIN(cuCtxCreate_v3, (context, affinity, count, flags, device))
    pl_measure measure = begin(device);
    pl_result result = real->cuCtxCreate_v3(context, affinity, count, flags, device);
    return pl_leave(request.before, made(&measure, result, context));
}

pl_result cuCtxCreate_v4(pl_ptr *context, void *params, unsigned flags, pl_device device) {
    PL_BEGIN(cuCtxCreate_v4, (context, params, flags, device))
    pl_measure measure = begin(device);
    pl_result result = real->cuCtxCreate_v4(context, params, flags, device);
    return pl_leave(request.before, made(&measure, result, context));
}

static pl_result destroyed(pl_result result, pl_ptr context) {
    if (result == PL_SUCCESS) {
        (void)pl_end(CEN_LEDGER_CONTEXT, (uintptr_t)context, NULL);
    }
    return result;
}

pl_result cuCtxDestroy(pl_ptr context) {
    PL_BEGIN(cuCtxDestroy, (context))
    return pl_leave(request.before, destroyed(real->cuCtxDestroy(context), context));
}

pl_result cuCtxDestroy_v2(pl_ptr context) {
    PL_BEGIN(cuCtxDestroy_v2, (context))
    return pl_leave(request.before, destroyed(real->cuCtxDestroy_v2(context), context));
}

/* The device whose context it is; -1: none. */
static int device_of(pl_ptr context) {
    const pl_driver *real = pl_real();
    pl_device device = -1;
    pl_ptr ignored;
    if (real->cuCtxPushCurrent_v2(context) == PL_SUCCESS) {
        if (real->cuCtxGetDevice(&device) != PL_SUCCESS) {
            device = -1;
        }
        (void)real->cuCtxPopCurrent_v2(&ignored);
    }
    return device;
}

/* The current context may use the peer's memory from now on: the pool's pages say so one by one. */
pl_result cuCtxEnablePeerAccess(pl_ptr peer, unsigned flags) {
    PL_BEGIN(cuCtxEnablePeerAccess, (peer, flags))
    pl_result result = real->cuCtxEnablePeerAccess(peer, flags);
    if (result == PL_SUCCESS && pl_set.pool && request.before == PL_PROGRAM) {
        pl_pool_peer(device_of(peer), pl_device_now());
    }
    return pl_leave(request.before, result);
}
