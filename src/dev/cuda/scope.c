/* Entering and leaving the device's context, and what the driver's results mean.
 *
 * The caller's current context is left as it was. A context that is gone (the device was reset, a
 * kernel faulted, the process is exiting) makes every later call fail with CEN_ERR_DEVICE_LOST. */
#include "dev/cuda/backend.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"

ceni_cuda_scope ceni_cuda_enter(cen_device *device) {
    ceni_cuda_device *self = (ceni_cuda_device *)device;
    ceni_cuda_scope scope = {self, self->cu, CU_SUCCESS, false};
    cu_context current = NULL;
    scope.result = scope.cu->cuCtxGetCurrent(&current);
    if (scope.result == CU_SUCCESS && current != self->context) {
        scope.result = scope.cu->cuCtxPushCurrent(self->context);
        scope.pushed = scope.result == CU_SUCCESS;
    }
    return scope;
}

cen_status ceni_cuda_status(cu_result result) {
    if (result >= CU_ERROR_CAPTURE_FIRST && result <= CU_ERROR_CAPTURE_LAST) {
        return CEN_ERR_CAPTURE;
    }
    switch (result) {
    case CU_SUCCESS:
        return CEN_OK;
    case CU_ERROR_NOT_READY:
        return CEN_ERR_NOT_READY;
    case CU_ERROR_OUT_OF_MEMORY:
        return CEN_ERR_DEVICE_MEMORY;
    case CU_ERROR_INVALID_VALUE:
    case CU_ERROR_INVALID_DEVICE:
    case CU_ERROR_INVALID_HANDLE:
    case CU_ERROR_NOT_MAPPED:
    case CU_ERROR_NOT_REGISTERED:
        return CEN_ERR_INVALID;
    case CU_ERROR_ALREADY_MAPPED:
    case CU_ERROR_ALREADY_REGISTERED:
        return CEN_ERR_BUSY;
    case CU_ERROR_NOT_SUPPORTED:
    case CU_ERROR_NOT_PERMITTED:
    case CU_ERROR_NEWER_DRIVER:
    case CU_ERROR_PEER_UNSUPPORTED:
    case CU_ERROR_INVALID_IMAGE: /* of a format that this driver does not know */
    case CU_ERROR_NO_BINARY:
    case CU_ERROR_PTX_VERSION:
        return CEN_ERR_UNSUPPORTED;
    case CU_ERROR_NO_DEVICE:
        return CEN_ERR_NO_DEVICE;
    case CU_ERROR_NOT_INITIALIZED:
    case CU_ERROR_DEINITIALIZED:
    case CU_ERROR_INVALID_CONTEXT: /* ours was valid once */
    case CU_ERROR_CONTEXT_DESTROYED:
    case CU_ERROR_ECC:
    case CU_ERROR_NVLINK:
    case CU_ERROR_ILLEGAL_ADDRESS:
    case CU_ERROR_LAUNCH_TIMEOUT:
    case CU_ERROR_ASSERT:
    case CU_ERROR_HARDWARE_STACK:
    case CU_ERROR_ILLEGAL_INSTRUCTION:
    case CU_ERROR_MISALIGNED:
    case CU_ERROR_ADDRESS_SPACE:
    case CU_ERROR_INVALID_PC:
    case CU_ERROR_LAUNCH_FAILED:
        return CEN_ERR_DEVICE_LOST;
    default:
        return CEN_ERR_DEVICE;
    }
}

static cen_status leave(ceni_cuda_scope *scope, cen_status status, const char *format,
                        va_list args) {
    const ceni_cu *cu = scope->cu;
    if (scope->pushed) {
        cu_context ours;
        cu->cuCtxPopCurrent(&ours);
        scope->pushed = false;
    }
    if (status == CEN_OK || status == CEN_ERR_NOT_READY) {
        return status;
    }
    const char *name = NULL, *text = NULL;
    cu->cuGetErrorName(scope->result, &name);
    cu->cuGetErrorString(scope->result, &text);
    char what[256];
    vsnprintf(what, sizeof what, format, args);
    return ceni_fail(status, "cuda:%d: %s: %s (%u): %s", scope->self->base.ordinal, what,
                     name ? name : "unknown error", scope->result, text ? text : "no text");
}

cen_status ceni_cuda_leave(ceni_cuda_scope *scope, const char *format, ...) {
    va_list args;
    va_start(args, format);
    cen_status status = leave(scope, ceni_cuda_status(scope->result), format, args);
    va_end(args);
    return status;
}

cen_status ceni_cuda_leave_as(ceni_cuda_scope *scope, cen_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    status = leave(scope, status, format, args);
    va_end(args);
    return status;
}

cu_enum ceni_cuda_relax(const ceni_cu *cu) {
    cu_enum mode = CU_CAPTURE_MODE_RELAXED;
    return cu->cuThreadExchangeStreamCaptureMode(&mode) == CU_SUCCESS ? mode
                                                                      : CU_CAPTURE_MODE_RELAXED;
}

void ceni_cuda_restore(const ceni_cu *cu, cu_enum mode) {
    cu->cuThreadExchangeStreamCaptureMode(&mode);
}
