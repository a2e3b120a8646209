/* Events and memory shared by the driver's own handles.
 *
 * The driver opens a handle of memory once in a context: opened again it is the same view, counted
 * here, for all device objects on that context. */
#include "dev/cuda/backend.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

typedef struct view {
    struct view *next;
    cu_context context;
    cu_ipc_memory handle;
    cu_deviceptr addr;
    uint64_t bytes;
    size_t refs;
} view;

static pthread_mutex_t views_lock = PTHREAD_MUTEX_INITIALIZER;
static view *views;

/* The driver opens no handle in the process that it is from: it says "invalid context", of one
 * which was found valid just before. */
static cen_status leave_opening(ceni_cuda_scope *scope, const char *what) {
    if (scope->result == CU_ERROR_INVALID_CONTEXT) {
        return ceni_cuda_leave_as(scope, CEN_ERR_INVALID, "%s, which may be this process's own",
                                  what);
    }
    return ceni_cuda_leave(scope, "%s", what);
}

cen_status ceni_cuda_event_export(cen_device *device, cen_event event, ceni_event_token *token,
                                  int *fd) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_ipc_event handle;
    if (scope.result == CU_SUCCESS &&
        ceni_cuda_size_of(scope.self, CENI_CUDA_EVENT, event) != CENI_CUDA_EVENT_SHARED) {
        scope.result = CU_ERROR_INVALID_HANDLE;
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuIpcGetEventHandle(&handle, (cu_event)event);
    }
    if (scope.result == CU_SUCCESS) {
        memcpy(token->bytes, handle.reserved, sizeof token->bytes);
        *fd = -1;
    }
    return ceni_cuda_leave(&scope, "exporting an event, which must be a shared one made here");
}

cen_status ceni_cuda_event_import(cen_device *device, const ceni_event_token *token, int fd,
                                  cen_event *event) {
    (void)fd; /* the token is all */
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_ipc_event handle;
    cu_event opened = NULL;
    memcpy(handle.reserved, token->bytes, sizeof handle.reserved);
    if (scope.result == CU_SUCCESS) {
        cu_enum mode =
            ceni_cuda_relax(scope.cu); /* a thread of ours may be the one that opens it */
        scope.result = scope.cu->cuIpcOpenEventHandle(&opened, handle);
        ceni_cuda_restore(scope.cu, mode);
    }
    if (scope.result == CU_SUCCESS) {
        if (ceni_cuda_own(scope.self, CENI_CUDA_EVENT, (uintptr_t)opened,
                          CENI_CUDA_EVENT_IMPORTED)) {
            *event = (cen_event)opened;
        } else {
            scope.cu->cuEventDestroy(opened);
            scope.result = CU_ERROR_OUT_OF_MEMORY;
            return ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "keeping an event");
        }
    }
    return leave_opening(&scope, "importing an event");
}

/* What kind of memory it is, when the driver has no handle for it. */
static cen_status no_handle(ceni_cuda_scope *scope, cen_addr addr) {
    cu_handle page;
    if (scope->cu->cuMemRetainAllocationHandle(&page, (void *)(uintptr_t)addr) == CU_SUCCESS) {
        scope->cu->cuMemRelease(page);
        return ceni_cuda_leave_as(scope, CEN_ERR_UNSUPPORTED,
                                  "legacy_export: %#" PRIx64
                                  " is virtual memory (cuMemMap), which has no legacy handle; such "
                                  "memory is shared with cen_share_export",
                                  addr);
    }
    return ceni_cuda_leave_as(scope, CEN_ERR_UNSUPPORTED,
                              "legacy_export: %#" PRIx64
                              " is not of cudaMalloc (of a stream-ordered pool, say); allocate it "
                              "in a set and share it with cen_share_export",
                              addr);
}

cen_status ceni_cuda_legacy_export(cen_device *device, cen_addr addr, ceni_legacy_handle *handle,
                                   uint64_t *offset, uint64_t *bytes) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_deviceptr base = 0;
    size_t size = 0;
    cu_ipc_memory made;
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemGetAddressRange(&base, &size, addr);
        if (scope.result == CU_ERROR_NOT_FOUND) {
            return ceni_cuda_leave_as(&scope, CEN_ERR_INVALID,
                                      "legacy_export: %#" PRIx64 " is no device memory", addr);
        }
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuIpcGetMemHandle(&made, base);
        if (scope.result == CU_ERROR_INVALID_VALUE || scope.result == CU_ERROR_NOT_SUPPORTED) {
            return no_handle(&scope, addr);
        }
    }
    if (scope.result == CU_SUCCESS) {
        memcpy(handle->bytes, made.reserved, sizeof handle->bytes);
        *offset = addr - base;
        *bytes = size;
    }
    return ceni_cuda_leave(&scope, "legacy_export of %#" PRIx64, addr);
}

static view *find_handle(const ceni_cuda_device *self, const cu_ipc_memory *handle) {
    view *v = views;
    while (v && (v->context != self->context || memcmp(&v->handle, handle, sizeof *handle) != 0)) {
        v = v->next;
    }
    return v;
}

/* A view that holds the address. */
static view *find_addr(const ceni_cuda_device *self, cu_deviceptr addr) {
    view *v = views;
    while (v && (v->context != self->context || addr - v->addr >= v->bytes)) {
        v = v->next;
    }
    return v;
}

/* Opens what is not open yet. (locked) */
static cu_result view_new(const ceni_cuda_device *self, const cu_ipc_memory *handle, view **made) {
    view *v = ceni_calloc(1, sizeof *v);
    if (!v) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    size_t bytes = 0;
    cu_result result = self->cu->cuIpcOpenMemHandle(&v->addr, *handle, CU_IPC_PEER_ACCESS);
    if (result == CU_SUCCESS) {
        result = self->cu->cuMemGetAddressRange(NULL, &bytes, v->addr);
        if (result != CU_SUCCESS) {
            self->cu->cuIpcCloseMemHandle(v->addr);
        }
    }
    if (result != CU_SUCCESS) {
        ceni_free(v);
        return result;
    }
    v->context = self->context;
    v->handle = *handle;
    v->bytes = bytes;
    v->next = views;
    views = v;
    *made = v;
    return CU_SUCCESS;
}

/* (locked) */
static cu_result view_unref(const ceni_cuda_device *self, view *v) {
    if (--v->refs) {
        return CU_SUCCESS;
    }
    view **link = &views;
    while (*link != v) {
        link = &(*link)->next;
    }
    *link = v->next;
    cu_result result = self->cu->cuIpcCloseMemHandle(v->addr);
    ceni_free(v);
    return result;
}

cu_result ceni_cuda_view_drop(const ceni_cuda_device *self, cu_deviceptr addr) {
    pthread_mutex_lock(&views_lock);
    view *v = find_addr(self, addr);
    cu_result result = v ? view_unref(self, v) : CU_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&views_lock);
    return result;
}

cen_status ceni_cuda_legacy_open(cen_device *device, const ceni_legacy_handle *handle,
                                 cen_addr *addr, uint64_t *bytes) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_ipc_memory wanted;
    bool kept = true;
    memcpy(wanted.reserved, handle->bytes, sizeof wanted.reserved);
    pthread_mutex_lock(&views_lock);
    view *v = find_handle(scope.self, &wanted);
    if (scope.result == CU_SUCCESS && !v) {
        scope.result = view_new(scope.self, &wanted, &v);
    }
    if (scope.result == CU_SUCCESS) {
        v->refs++;
        kept = ceni_cuda_own(scope.self, CENI_CUDA_VIEW, v->addr, v->bytes);
        if (kept) {
            *addr = v->addr;
            *bytes = v->bytes;
        } else {
            view_unref(scope.self, v);
            scope.result = CU_ERROR_OUT_OF_MEMORY;
        }
    }
    pthread_mutex_unlock(&views_lock);
    return kept ? leave_opening(&scope, "legacy_open: opening another process's memory")
                : ceni_cuda_leave_as(&scope, CEN_ERR_HOST_MEMORY, "legacy_open: keeping a view");
}

cen_status ceni_cuda_legacy_close(cen_device *device, cen_addr addr) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    pthread_mutex_lock(&views_lock);
    view *v = find_addr(scope.self, addr);
    if (scope.result == CU_SUCCESS) {
        scope.result = v && ceni_cuda_disown(scope.self, CENI_CUDA_VIEW, v->addr)
                           ? view_unref(scope.self, v)
                           : CU_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&views_lock);
    return ceni_cuda_leave(&scope, "legacy_close: %#" PRIx64 ", which must be open here", addr);
}

cen_status ceni_cuda_dmabuf(cen_device *device, cen_addr addr, uint64_t bytes, int *fd) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    int made = -1;
    if (scope.result == CU_SUCCESS && !scope.self->dma_buf) {
        scope.result = CU_ERROR_NOT_SUPPORTED;
        return ceni_cuda_leave(&scope, "dmabuf: the device or its kernel module has no dma-buf");
    }
    if (scope.result == CU_SUCCESS) {
        scope.result =
            scope.cu->cuMemGetHandleForAddressRange(&made, addr, bytes, CU_RANGE_DMA_BUF, 0);
    }
    if (scope.result == CU_SUCCESS) {
        fcntl(made, F_SETFD, FD_CLOEXEC);
        *fd = made;
    }
    return ceni_cuda_leave(&scope, "dmabuf: exporting %#" PRIx64 " to +%" PRIu64 " bytes", addr,
                           bytes);
}
