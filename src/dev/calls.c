/* The public calls of cenote/device.h on an open device: checks, then the backend. */
#include "dev/call.h"
#include "trace/emit.h"

/* What succeeded, told to the trace if one is on. */
static void note(cen_status status, enum ceni_event kind, const cen_device *device, cen_addr addr,
                 uint64_t size, cen_stream stream) {
    if (!status && ceni_tracing()) {
        ceni_emit(kind, device->number, addr, size, stream);
    }
}

static cen_status unsupported(cen_device *device, enum ceni_dev_op op) {
    return ceni_fail(CEN_ERR_UNSUPPORTED, "%s: not on %s:%d", ceni_dev_op_name(op),
                     device->backend->name, device->ordinal);
}

cen_status cen_device_get_props(cen_device *device, cen_device_props *props) {
    cen_status status = ceni_call_enter(device, CENI_OP_props);
    status = status ? status : ceni_call_need(props, CENI_OP_props, "props");
    return ceni_call_leave(device, CENI_OP_props,
                           status ? status : device->backend->props(device, props));
}

cen_status cen_device_mem_info(cen_device *device, uint64_t *free_bytes, uint64_t *total_bytes) {
    const enum ceni_dev_op op = CENI_OP_mem_info;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(free_bytes, op, "free_bytes");
    status = status ? status : ceni_call_need(total_bytes, op, "total_bytes");
    return ceni_call_leave(
        device, op, status ? status : device->backend->mem_info(device, free_bytes, total_bytes));
}

cen_status cen_stream_create(cen_device *device, int priority, cen_stream *stream) {
    const enum ceni_dev_op op = CENI_OP_stream_create;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(stream, op, "stream");
    if (!status && !(status = device->backend->stream_create(device, priority, stream))) {
        note(status, CENI_EVENT_STREAM, device, 0, 0, *stream);
    }
    return ceni_call_leave(device, op, status);
}

cen_status cen_stream_destroy(cen_device *device, cen_stream stream) {
    const enum ceni_dev_op op = CENI_OP_stream_destroy;
    cen_status status = ceni_call_enter(device, op);
    if (!status && !stream) {
        status = ceni_fail(CEN_ERR_INVALID, "stream_destroy: the default stream cannot go");
    }
    if (!status) {
        status = device->backend->stream_destroy(device, stream);
        note(status, CENI_EVENT_STREAM, device, 0, 1, stream);
    }
    return ceni_call_leave(device, op, status);
}

cen_status cen_stream_sync(cen_device *device, cen_stream stream) {
    const enum ceni_dev_op op = CENI_OP_stream_sync;
    cen_status status = ceni_call_enter(device, op);
    return ceni_call_leave(device, op,
                           status ? status : device->backend->stream_sync(device, stream));
}

cen_status cen_stream_query(cen_device *device, cen_stream stream) {
    const enum ceni_dev_op op = CENI_OP_stream_query;
    cen_status status = ceni_call_enter(device, op);
    return ceni_call_leave(device, op,
                           status ? status : device->backend->stream_query(device, stream));
}

cen_status cen_stream_wait(cen_device *device, cen_stream stream, cen_event event) {
    const enum ceni_dev_op op = CENI_OP_stream_wait;
    cen_status status = ceni_call_enter(device, op);
    return ceni_call_leave(device, op,
                           status ? status : device->backend->stream_wait(device, stream, event));
}

cen_status cen_stream_capturing(cen_device *device, cen_stream stream, bool *capturing) {
    const enum ceni_dev_op op = CENI_OP_stream_capturing;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(capturing, op, "capturing");
    return ceni_call_leave(
        device, op, status ? status : device->backend->stream_capturing(device, stream, capturing));
}

cen_status cen_event_create(cen_device *device, unsigned flags, cen_event *event) {
    const enum ceni_dev_op op = CENI_OP_event_create;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(event, op, "event");
    const unsigned known = CEN_EVENT_TIMING | CEN_EVENT_MANUAL | CEN_EVENT_SHARED;
    if (!status && (flags & ~known)) {
        status = ceni_fail(CEN_ERR_INVALID, "event_create: flags 0x%x has unknown bits", flags);
    } else if (!status && flags & CEN_EVENT_SHARED && flags != CEN_EVENT_SHARED) {
        status = ceni_fail(CEN_ERR_INVALID,
                           "event_create: flags 0x%x: a shared event has neither time nor signal",
                           flags);
    }
    return ceni_call_leave(device, op,
                           status ? status : device->backend->event_create(device, flags, event));
}

cen_status cen_event_destroy(cen_device *device, cen_event event) {
    const enum ceni_dev_op op = CENI_OP_event_destroy;
    cen_status status = ceni_call_enter(device, op);
    return ceni_call_leave(device, op,
                           status ? status : device->backend->event_destroy(device, event));
}

cen_status cen_event_record(cen_device *device, cen_event event, cen_stream stream) {
    const enum ceni_dev_op op = CENI_OP_event_record;
    cen_status status = ceni_call_enter(device, op);
    return ceni_call_leave(device, op,
                           status ? status : device->backend->event_record(device, event, stream));
}

cen_status cen_event_query(cen_device *device, cen_event event) {
    const enum ceni_dev_op op = CENI_OP_event_query;
    cen_status status = ceni_call_enter(device, op);
    return ceni_call_leave(device, op,
                           status ? status : device->backend->event_query(device, event));
}

cen_status ceni_dev_event_peek(cen_device *device, cen_event event) {
    const enum ceni_dev_op op = CENI_OP_event_peek;
    cen_status status = ceni_call_enter(device, op);
    return ceni_call_leave(device, op,
                           status ? status : device->backend->event_peek(device, event));
}

cen_status cen_event_sync(cen_device *device, cen_event event) {
    const enum ceni_dev_op op = CENI_OP_event_sync;
    cen_status status = ceni_call_enter(device, op);
    return ceni_call_leave(device, op,
                           status ? status : device->backend->event_sync(device, event));
}

cen_status cen_event_signal(cen_device *device, cen_event event) {
    const enum ceni_dev_op op = CENI_OP_event_signal;
    cen_status status = ceni_call_enter(device, op);
    if (!status) {
        status = device->backend->event_signal ? device->backend->event_signal(device, event)
                                               : unsupported(device, op);
    }
    return ceni_call_leave(device, op, status);
}

cen_status cen_event_elapsed(cen_device *device, cen_event start, cen_event end, float *ms) {
    const enum ceni_dev_op op = CENI_OP_event_elapsed;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(ms, op, "ms");
    return ceni_call_leave(
        device, op, status ? status : device->backend->event_elapsed(device, start, end, ms));
}

/* [addr, addr + size) does not wrap and does not begin at 0. */
static cen_status check_bytes(enum ceni_dev_op op, const char *argument, cen_addr addr,
                              size_t size) {
    if (!addr || addr + size < addr) {
        return ceni_fail(CEN_ERR_INVALID, "%s: %s 0x%llx with size %zu is no range",
                         ceni_dev_op_name(op), argument, (unsigned long long)addr, size);
    }
    return CEN_OK;
}

cen_status cen_copy_async(cen_device *device, cen_addr dst, cen_addr src, size_t size,
                          cen_stream stream) {
    const enum ceni_dev_op op = CENI_OP_copy;
    cen_status status = ceni_call_enter(device, op);
    if (!status && size) {
        status = check_bytes(op, "dst", dst, size);
        status = status ? status : check_bytes(op, "src", src, size);
        status = status ? status : device->backend->copy(device, dst, src, size, stream);
        note(status, CENI_EVENT_COPY, device, dst, size, stream);
    }
    return ceni_call_leave(device, op, status);
}

cen_status cen_copy_peer_async(cen_device *dst_device, cen_addr dst, cen_device *src_device,
                               cen_addr src, size_t size, cen_stream stream) {
    const enum ceni_dev_op op = CENI_OP_copy_peer;
    cen_status status = ceni_call_enter(dst_device, op);
    status = status ? status : ceni_call_need(src_device, op, "src_device");
    if (!status && src_device->backend != dst_device->backend) {
        status = ceni_fail(CEN_ERR_INVALID, "copy_peer: the devices are of two backends");
    }
    if (!status && size) {
        status = check_bytes(op, "dst", dst, size);
        status = status ? status : check_bytes(op, "src", src, size);
        status =
            status ? status
                   : dst_device->backend->copy_peer(dst_device, dst, src_device, src, size, stream);
        note(status, CENI_EVENT_COPY, dst_device, dst, size, stream);
    }
    return ceni_call_leave(dst_device, op, status);
}

cen_status cen_fill_async(cen_device *device, cen_addr dst, uint8_t value, size_t size,
                          cen_stream stream) {
    const enum ceni_dev_op op = CENI_OP_fill;
    cen_status status = ceni_call_enter(device, op);
    if (!status && size) {
        status = check_bytes(op, "dst", dst, size);
        status = status ? status : device->backend->fill(device, dst, value, size, stream);
    }
    return ceni_call_leave(device, op, status);
}

static cen_status check_shape(const cen_launch *shape) {
    for (int i = 0; i < 3; i++) {
        if (!shape->grid[i] || !shape->block[i]) {
            return ceni_fail(CEN_ERR_INVALID, "launch: shape has an empty dimension");
        }
    }
    return CEN_OK;
}

cen_status cen_kernel_launch(cen_device *device, const char *name, const cen_launch *shape,
                             void *const *args, size_t arg_count, cen_stream stream) {
    const enum ceni_dev_op op = CENI_OP_launch;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(name, op, "name");
    status = status ? status : ceni_call_need(shape, op, "shape");
    status = status ? status : check_shape(shape);
    for (size_t i = 0; !status && i < arg_count; i++) {
        status = ceni_call_need(args ? args[i] : NULL, op, "an argument");
    }
    return ceni_call_leave(
        device, op,
        status ? status : device->backend->launch(device, name, shape, args, arg_count, stream));
}

cen_status cen_host_func(cen_device *device, cen_stream stream, void (*fn)(void *arg), void *arg) {
    const enum ceni_dev_op op = CENI_OP_host_func;
    cen_status status = ceni_call_enter(device, op);
    if (!status && !fn) {
        status = ceni_fail(CEN_ERR_INVALID, "host_func: fn is NULL");
    }
    return ceni_call_leave(device, op,
                           status ? status : device->backend->host_func(device, stream, fn, arg));
}

cen_status cen_pinned_alloc(cen_device *device, size_t size, void **ptr) {
    const enum ceni_dev_op op = CENI_OP_pinned_alloc;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(ptr, op, "ptr");
    if (!status && !size) {
        status = ceni_fail(CEN_ERR_INVALID, "pinned_alloc: size is 0");
    }
    return ceni_call_leave(device, op,
                           status ? status : device->backend->pinned_alloc(device, size, ptr));
}

cen_status cen_pinned_free(cen_device *device, void *ptr) {
    const enum ceni_dev_op op = CENI_OP_pinned_free;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(ptr, op, "ptr");
    return ceni_call_leave(device, op, status ? status : device->backend->pinned_free(device, ptr));
}

cen_status cen_pinned_register(cen_device *device, void *ptr, size_t size) {
    const enum ceni_dev_op op = CENI_OP_pinned_register;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(ptr, op, "ptr");
    if (!status && (!size || (uintptr_t)ptr + size < (uintptr_t)ptr)) {
        status = ceni_fail(CEN_ERR_INVALID, "pinned_register: size %zu is no range", size);
    }
    return ceni_call_leave(device, op,
                           status ? status : device->backend->pinned_register(device, ptr, size));
}

cen_status cen_pinned_unregister(cen_device *device, void *ptr) {
    const enum ceni_dev_op op = CENI_OP_pinned_unregister;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(ptr, op, "ptr");
    return ceni_call_leave(device, op,
                           status ? status : device->backend->pinned_unregister(device, ptr));
}

cen_status cen_peer_can_access(cen_device *device, cen_device *peer, bool *can) {
    const enum ceni_dev_op op = CENI_OP_peer_can_access;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(peer, op, "peer");
    status = status ? status : ceni_call_need(can, op, "can");
    if (!status && peer->backend != device->backend) {
        *can = false;
        return CEN_OK;
    }
    return ceni_call_leave(device, op,
                           status ? status : device->backend->peer_can_access(device, peer, can));
}

cen_status ceni_dev_obtainable(cen_device *device, uint64_t *bytes) {
    uint64_t free_bytes, total;
    cen_status status = cen_device_mem_info(device, &free_bytes, &total);
    if (!status) {
        uint64_t withheld = atomic_load_explicit(&device->withheld, memory_order_relaxed);
        *bytes = free_bytes > withheld ? free_bytes - withheld : 0;
    }
    return status;
}

cen_status ceni_dev_get_limits(cen_device *device, ceni_dev_limits *limits) {
    const enum ceni_dev_op op = CENI_OP_limits;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(limits, op, "limits");
    return ceni_call_leave(device, op, status ? status : device->backend->limits(device, limits));
}

cen_status ceni_dev_tensor_map(cen_device *device, const ceni_tiled *tiled, ceni_tensor_map *map) {
    const enum ceni_dev_op op = CENI_OP_tensor_map;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(tiled, op, "tiled");
    status = status ? status : ceni_call_need(map, op, "map");
    if (!status && !device->backend->tensor_map) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED, "tensor_map: not on %s:%d", device->backend->name,
                           device->ordinal);
    }
    return ceni_call_leave(device, op,
                           status ? status : device->backend->tensor_map(device, tiled, map));
}

cen_status ceni_dev_pixel_map(cen_device *device, const ceni_pixels *pixels, ceni_tensor_map *map) {
    const enum ceni_dev_op op = CENI_OP_pixel_map;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(pixels, op, "pixels");
    status = status ? status : ceni_call_need(map, op, "map");
    if (!status && !device->backend->pixel_map) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED, "pixel_map: not on %s:%d", device->backend->name,
                           device->ordinal);
    }
    return ceni_call_leave(device, op,
                           status ? status : device->backend->pixel_map(device, pixels, map));
}

cen_status ceni_dev_peer_rank(cen_device *device, cen_device *peer, int *rank) {
    const enum ceni_dev_op op = CENI_OP_peer_rank;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(peer, op, "peer");
    status = status ? status : ceni_call_need(rank, op, "rank");
    if (!status && peer->backend != device->backend) {
        status = ceni_fail(CEN_ERR_INVALID, "peer_rank: peer is of another backend");
    }
    return ceni_call_leave(device, op,
                           status ? status : device->backend->peer_rank(device, peer, rank));
}

cen_status cen_peer_enable(cen_device *device, cen_device *peer) {
    const enum ceni_dev_op op = CENI_OP_peer_enable;
    cen_status status = ceni_call_enter(device, op);
    status = status ? status : ceni_call_need(peer, op, "peer");
    if (!status && (peer == device || peer->backend != device->backend)) {
        status = ceni_fail(CEN_ERR_INVALID, "peer_enable: peer is %s",
                           peer == device ? "the device itself" : "of another backend");
    }
    return ceni_call_leave(device, op,
                           status ? status : device->backend->peer_enable(device, peer));
}
