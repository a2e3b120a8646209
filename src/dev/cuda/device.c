/* Opening and closing CUDA devices, and the backend's table.
 *
 * A device object holds one reference to its device's primary context, which it shares with the
 * CUDA runtime and so with every framework in the process. */
#include "dev/cuda/backend.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

static cen_status device_count(int *count) {
    const char *why = NULL;
    const ceni_cu *cu = ceni_cuda_driver(&why);
    int devices = 0;
    if (!cu) {
        ceni_log(CEN_LOG_INFO, "cuda: %s", why);
    } else {
        cu_result result = cu->cuDeviceGetCount(&devices);
        if (result != CU_SUCCESS && result != CU_ERROR_NO_DEVICE) {
            return ceni_fail(ceni_cuda_status(result), "cuda: counting devices: error %u", result);
        }
    }
    *count = devices;
    return CEN_OK;
}

static int attribute(const ceni_cuda_device *self, cu_enum name) {
    int value = 0;
    return self->cu->cuDeviceGetAttribute(&value, name, self->device) == CU_SUCCESS ? value : 0;
}

/* What is asked once; the context is current. */
static cu_result read_limits(ceni_cuda_device *self) {
    const ceni_cu *cu = self->cu;
    size_t total = 0, granularity = 0;
    cu_result result = cu->cuDeviceTotalMem(&total, self->device);
    if (result == CU_SUCCESS) {
        result = cu->cuCtxGetStreamPriorityRange(&self->least_priority, &self->greatest_priority);
    }
    if (result != CU_SUCCESS) {
        return result;
    }
    cu_alloc_prop prop = {.type = CU_ALLOC_PINNED, .location = {CU_LOCATION_DEVICE, self->device}};
    self->base.vmm = attribute(self, CU_ATTR_VMM) &&
                     cu->cuMemGetAllocationGranularity(&granularity, &prop,
                                                       CU_GRANULARITY_MINIMUM) == CU_SUCCESS;
    self->base.granularity = self->base.vmm ? granularity : (uint64_t)2 << 20;
    self->base.total_bytes = total;
    self->base.compute_capability =
        (uint32_t)(attribute(self, CU_ATTR_MAJOR) * 10 + attribute(self, CU_ATTR_MINOR));
    self->base.multiprocessors = (uint32_t)attribute(self, CU_ATTR_MULTIPROCESSORS);
    self->export_fd = self->base.vmm && attribute(self, CU_ATTR_EXPORT_FD);
    self->dma_buf = attribute(self, CU_ATTR_DMA_BUF);
    self->rdma = self->base.vmm && attribute(self, CU_ATTR_RDMA);
    self->host_pages = self->base.vmm && attribute(self, CU_ATTR_HOST_NUMA_VMM);
    int node = attribute(self, CU_ATTR_HOST_NUMA_ID);
    self->host_node = node > 0 ? node : 0; /* -1: the system has one */
    return CU_SUCCESS;
}

static cen_status device_open(int ordinal, const cen_host_options *host, cen_device **device) {
    const char *why = NULL;
    const ceni_cu *cu = ceni_cuda_driver(&why);
    if (!cu) {
        return ceni_fail(CEN_ERR_NO_DEVICE, "cuda:%d: %s", ordinal, why);
    }
    int count = 0;
    cu_result result = cu->cuDeviceGetCount(&count);
    if (result != CU_SUCCESS || ordinal < 0 || ordinal >= count) {
        return ceni_fail(CEN_ERR_NO_DEVICE, "cuda:%d: there are %d devices", ordinal, count);
    }
    ceni_cuda_device *self = ceni_calloc(1, sizeof *self);
    if (!self) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cuda:%d: no memory for the device", ordinal);
    }
    self->cu = cu;
    self->base.ordinal = ordinal;
    pthread_mutex_init(&self->owned.lock, NULL);
    pthread_mutex_init(&self->kernels_lock, NULL);
    result = cu->cuDeviceGet(&self->device, ordinal);
    if (result == CU_SUCCESS) {
        result = cu->cuDevicePrimaryCtxRetain(&self->context, self->device);
    }
    ceni_cuda_scope scope = {self, cu, result, false};
    if (result == CU_SUCCESS) {
        scope = ceni_cuda_enter(&self->base);
        if (scope.result == CU_SUCCESS) {
            scope.result = read_limits(self);
        }
    }
    cen_status status = ceni_cuda_leave(&scope, "opening the device");
    if (status == CEN_OK) {
        *device = &self->base;
        return CEN_OK;
    }
    if (self->context) {
        cu->cuDevicePrimaryCtxRelease(self->device);
    }
    ceni_free(self);
    return status;
}

static void release(const ceni_cuda_device *self, const ceni_cuda_thing *thing) {
    const ceni_cu *cu = self->cu;
    void *pointer = (void *)(uintptr_t)thing->handle;
    switch (thing->kind) {
    case CENI_CUDA_STREAM:
        cu->cuStreamSynchronize(pointer);
        cu->cuStreamDestroy(pointer);
        break;
    case CENI_CUDA_EVENT:
        cu->cuEventDestroy(pointer);
        break;
    case CENI_CUDA_VIEW:
        ceni_cuda_view_drop(self, thing->handle);
        break;
    case CENI_CUDA_MAPPING:
        cu->cuMemUnmap(thing->handle, thing->size);
        break;
    case CENI_CUDA_VA:
        cu->cuMemAddressFree(thing->handle, thing->size);
        break;
    case CENI_CUDA_PAGE:
        cu->cuMemRelease(thing->handle);
        break;
    case CENI_CUDA_SEGMENT:
        cu->cuMemFree(thing->handle);
        break;
    case CENI_CUDA_PINNED:
        cu->cuMemFreeHost(pointer);
        break;
    case CENI_CUDA_REGISTERED:
        cu->cuMemHostUnregister(pointer);
        break;
    case CENI_CUDA_NOTHING:
    case CENI_CUDA_KINDS:
        break;
    }
}

/* A stream that is still being captured can be neither waited for nor destroyed. */
static void end_captures(const ceni_cuda_device *self) {
    for (size_t i = 0; i < self->owned.capacity; i++) {
        const ceni_cuda_thing *thing = &self->owned.slots[i];
        cu_stream stream = (cu_stream)(uintptr_t)thing->handle;
        cu_enum status = CU_CAPTURE_NONE;
        cu_graph graph = NULL;
        if (thing->kind == CENI_CUDA_STREAM &&
            self->cu->cuStreamIsCapturing(stream, &status) == CU_SUCCESS &&
            status != CU_CAPTURE_NONE) {
            self->cu->cuStreamEndCapture(stream, &graph);
        }
        if (graph) {
            self->cu->cuGraphDestroy(graph);
        }
    }
}

static void release_all(const ceni_cuda_device *self) {
    for (int kind = CENI_CUDA_STREAM; kind < CENI_CUDA_KINDS; kind++) {
        for (size_t i = 0; i < self->owned.capacity; i++) {
            const ceni_cuda_thing *thing = &self->owned.slots[i];
            for (unsigned n = 0; (int)thing->kind == kind && n < thing->refs; n++) {
                release(self, thing);
            }
        }
    }
}

/* Failures are ignored: there is nothing to be done about them, and when the driver is shutting
 * down it has released everything itself. */
static void device_close(cen_device *device) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    ceni_cuda_device *self = scope.self;
    const ceni_cu *cu = scope.cu;
    if (scope.result == CU_SUCCESS) {
        cu_enum capture = CU_CAPTURE_NONE;
        end_captures(self);
        if (cu->cuStreamIsCapturing(NULL, &capture) == CU_SUCCESS && capture == CU_CAPTURE_NONE) {
            cu->cuStreamSynchronize(NULL);
        }
        release_all(self);
        ceni_cuda_unload_kernels(self);
    }
    scope.result = CU_SUCCESS;
    ceni_cuda_leave(&scope, "closing the device");
    cu->cuDevicePrimaryCtxRelease(self->device);
    pthread_mutex_destroy(&self->owned.lock);
    pthread_mutex_destroy(&self->kernels_lock);
    ceni_free(self->functions);
    ceni_free(self->owned.slots);
    ceni_free(self);
}

/* As NVML prints it: four groups of bytes between dashes; a slice of a GPU has its own. */
static void print_uuid(char text[48], const char *prefix, const cu_uuid *uuid) {
    int at = snprintf(text, 48, "%s", prefix);
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(text + at, (size_t)(48 - at), "%s%02x", dash ? "-" : "",
                       (unsigned char)uuid->bytes[i]);
    }
}

static cen_status device_props(cen_device *device, cen_device_props *props) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    const ceni_cuda_device *self = scope.self;
    const ceni_cu *cu = scope.cu;
    cen_device_props read = {.ordinal = device->ordinal,
                             .total_bytes = device->total_bytes,
                             .granularity = device->granularity,
                             .vmm = device->vmm,
                             .export_fd = self->export_fd,
                             .rdma = self->rdma};
    cu_uuid uuid = {{0}};
    if (scope.result == CU_SUCCESS) {
        scope.result = cu->cuDeviceGetName(read.name, sizeof read.name, self->device);
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = cu->cuDeviceGetUuid2(&uuid, self->device);
        if (scope.result == CU_ERROR_NOT_SUPPORTED) { /* a driver from before CUDA 11.4 */
            scope.result = cu->cuDeviceGetUuid(&uuid, self->device);
        }
    }
    if (scope.result == CU_SUCCESS) {
        print_uuid(read.uuid, strstr(read.name, " MIG ") ? "MIG-" : "GPU-", &uuid);
        read.compute_capability = device->compute_capability;
        read.multiprocessors = device->multiprocessors;
        *props = read;
    }
    return ceni_cuda_leave(&scope, "reading the device's properties");
}

/* An attribute that is a number of something; 0: not told. */
static uint64_t amount(const ceni_cuda_device *self, cu_enum name) {
    int value = attribute(self, name);
    return value > 0 ? (uint64_t)value : 0;
}

static cen_status device_limits(cen_device *device, ceni_dev_limits *limits) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        *limits =
            (ceni_dev_limits){.l2_bytes = amount(scope.self, CU_ATTR_L2_BYTES),
                              .shared_bytes = amount(scope.self, CU_ATTR_SHARED_BYTES),
                              .register_bytes = amount(scope.self, CU_ATTR_REGISTERS) * 4,
                              .memory_clock_khz = amount(scope.self, CU_ATTR_MEMORY_CLOCK),
                              .memory_bus_bits = (uint32_t)amount(scope.self, CU_ATTR_MEMORY_BUS)};
    }
    return ceni_cuda_leave(&scope, "reading the device's limits");
}

static cen_status device_mem_info(cen_device *device, uint64_t *free_bytes, uint64_t *total_bytes) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    size_t free_now = 0, total = 0;
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuMemGetInfo(&free_now, &total);
    }
    if (scope.result == CU_SUCCESS) {
        *free_bytes = free_now;
        *total_bytes = total;
    }
    return ceni_cuda_leave(&scope, "reading how much memory is free");
}

static cen_status peer_can_access(cen_device *device, cen_device *peer, bool *can) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    int answer = device->ordinal == peer->ordinal;
    if (scope.result == CU_SUCCESS && !answer) {
        scope.result = scope.cu->cuDeviceCanAccessPeer(&answer, scope.self->device,
                                                       ((ceni_cuda_device *)peer)->device);
    }
    if (scope.result == CU_SUCCESS) {
        *can = answer;
    }
    return ceni_cuda_leave(&scope, "asking for access to cuda:%d", peer->ordinal);
}

static cen_status peer_rank(cen_device *device, cen_device *peer, int *rank) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    int answer = 0;
    if (scope.result == CU_SUCCESS && device->ordinal != peer->ordinal) {
        scope.result = scope.cu->cuDeviceGetP2PAttribute(&answer, CU_P2P_RANK, scope.self->device,
                                                         ((ceni_cuda_device *)peer)->device);
    }
    if (scope.result == CU_SUCCESS) {
        *rank = answer;
    }
    return ceni_cuda_leave(&scope, "asking for the link to cuda:%d", peer->ordinal);
}

static cen_status peer_enable(cen_device *device, cen_device *peer) {
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS && device->ordinal != peer->ordinal) {
        scope.result = scope.cu->cuCtxEnablePeerAccess(((ceni_cuda_device *)peer)->context, 0);
        if (scope.result == CU_ERROR_PEER_ALREADY_ENABLED) {
            scope.result = CU_SUCCESS;
        }
    }
    return ceni_cuda_leave(&scope, "enabling access to cuda:%d", peer->ordinal);
}

const ceni_backend ceni_backend_cuda = {
    .name = "cuda",
    .count = device_count,
    .open = device_open,
    .close = device_close,
    .props = device_props,
    .mem_info = device_mem_info,
    .limits = device_limits,
    .tensor_map = ceni_cuda_tensor_map,
    .pixel_map = ceni_cuda_pixel_map,
    .managed_alloc = ceni_cuda_managed_alloc,
    .managed_prefetch = ceni_cuda_managed_prefetch,
    .va_reserve = ceni_cuda_va_reserve,
    .va_free = ceni_cuda_va_free,
    .page_create = ceni_cuda_page_create,
    .page_release = ceni_cuda_page_release,
    .page_map = ceni_cuda_page_map,
    .page_unmap = ceni_cuda_page_unmap,
    .page_access = ceni_cuda_page_access,
    .page_export = ceni_cuda_page_export,
    .page_import = ceni_cuda_page_import,
    .segment_alloc = ceni_cuda_segment_alloc,
    .segment_free = ceni_cuda_segment_free,
    .stream_create = ceni_cuda_stream_create,
    .stream_destroy = ceni_cuda_stream_destroy,
    .stream_sync = ceni_cuda_stream_sync,
    .stream_query = ceni_cuda_stream_query,
    .stream_wait = ceni_cuda_stream_wait,
    .stream_capturing = ceni_cuda_stream_capturing,
    .event_create = ceni_cuda_event_create,
    .event_destroy = ceni_cuda_event_destroy,
    .event_record = ceni_cuda_event_record,
    .event_query = ceni_cuda_event_query,
    .event_peek = ceni_cuda_event_peek,
    .event_sync = ceni_cuda_event_sync,
    .event_elapsed = ceni_cuda_event_elapsed,
    .copy = ceni_cuda_copy,
    .copy_peer = ceni_cuda_copy_peer,
    .fill = ceni_cuda_fill,
    .launch = ceni_cuda_launch,
    .host_func = ceni_cuda_host_func,
    .pinned_alloc = ceni_cuda_pinned_alloc,
    .pinned_free = ceni_cuda_pinned_free,
    .pinned_register = ceni_cuda_pinned_register,
    .pinned_unregister = ceni_cuda_pinned_unregister,
    .peer_can_access = peer_can_access,
    .peer_rank = peer_rank,
    .peer_enable = peer_enable,
    .event_export = ceni_cuda_event_export,
    .event_import = ceni_cuda_event_import,
    .legacy_export = ceni_cuda_legacy_export,
    .legacy_open = ceni_cuda_legacy_open,
    .legacy_close = ceni_cuda_legacy_close,
    .dmabuf = ceni_cuda_dmabuf,
    .capture_begin = ceni_cuda_capture_begin,
    .capture_end = ceni_cuda_capture_end,
    .graph_launch = ceni_cuda_graph_launch,
    .graph_destroy = ceni_cuda_graph_destroy,
};
