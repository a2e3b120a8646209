/* The host backend's table, and its devices' beginning and end. */
#include <stdio.h>
#include <unistd.h>

#include "dev/host/host_int.h"

static cen_status host_count(int *count) {
    cen_host_options options;
    cen_status status = ceni_host_options(NULL, &options);
    if (!status) {
        *count = (int)options.devices;
    }
    return status;
}

static cen_status host_open(int ordinal, const cen_host_options *given, cen_device **device) {
    cen_host_options options;
    cen_status status = ceni_host_options(given, &options);
    if (status) {
        return status;
    }
    if (ordinal < 0 || (uint32_t)ordinal >= options.devices) {
        return ceni_fail(CEN_ERR_NO_DEVICE, "host:%d: there are %u host devices", ordinal,
                         options.devices);
    }
    host_device *d = ceni_calloc(1, sizeof *d);
    if (!d) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "host:%d: out of host memory", ordinal);
    }
    d->options = options;
    d->fd = -1;
    d->base.ordinal = ordinal;
    d->base.granularity = options.granularity;
    d->base.total_bytes = options.capacity;
    d->base.vmm = !options.no_vmm;
    status = ceni_host_streams_open(d);
    if (status) {
        ceni_free(d);
        return status;
    }
    status = ceni_host_space_join(d);
    if (status) {
        ceni_free(d->streams);
        ceni_free(d);
        return status;
    }
    *device = &d->base;
    return CEN_OK;
}

static void host_close(cen_device *device) {
    host_device *d = host_of(device);
    ceni_host_streams_close(d);
    ceni_host_pinned_close(d);
    ceni_host_memory_close(d);
    ceni_host_space_leave(d);
    ceni_free(d);
}

static cen_status host_props(cen_device *device, cen_device_props *props) {
    cen_status status = ceni_host_ready(host_of(device));
    if (status) {
        return status;
    }
    cen_device_props p = {
        .ordinal = device->ordinal,
        .total_bytes = device->total_bytes,
        .granularity = device->granularity,
        .vmm = device->vmm,
        .export_fd = device->vmm,
        .multiprocessors = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
    };
    snprintf(p.name, sizeof p.name, "cenote host device");
    snprintf(p.uuid, sizeof p.uuid, "HOST-%d", device->ordinal);
    *props = p;
    return CEN_OK;
}

/* As of a small card, so that what goes by them runs here, too. */
static cen_status host_limits(cen_device *device, ceni_dev_limits *limits) {
    cen_status status = ceni_host_ready(host_of(device));
    if (!status) {
        *limits = (ceni_dev_limits){
            .l2_bytes = 1 << 20, .shared_bytes = 64 << 10, .register_bytes = 256 << 10};
    }
    return status;
}

static cen_status host_mem_info(cen_device *device, uint64_t *free_bytes, uint64_t *total_bytes) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (!status) {
        pthread_rwlock_rdlock(&d->space->map);
        *free_bytes = d->options.capacity - d->used;
        *total_bytes = d->options.capacity;
        pthread_rwlock_unlock(&d->space->map);
    }
    return status;
}

static bool reaches(const host_device *device, const host_device *peer) {
    int group = (int)device->options.peer_group;
    return !group || device->base.ordinal / group == peer->base.ordinal / group;
}

static cen_status host_peer_can_access(cen_device *device, cen_device *peer, bool *can) {
    cen_status status = ceni_host_ready(host_of(device));
    if (!status) {
        *can = device != peer && reaches(host_of(device), host_of(peer));
    }
    return status;
}

/* Cards sit in pairs with a link between them; all others are one step farther. */
static cen_status host_peer_rank(cen_device *device, cen_device *peer, int *rank) {
    cen_status status = ceni_host_ready(host_of(device));
    if (!status) {
        *rank = device->ordinal / 2 == peer->ordinal / 2 ? 0 : 1;
    }
    return status;
}

static cen_status host_peer_enable(cen_device *device, cen_device *peer) {
    if (!reaches(host_of(device), host_of(peer))) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "peer_enable: host:%d cannot reach host:%d",
                         device->ordinal, peer->ordinal);
    }
    return ceni_host_peer_enable(device, peer);
}

const ceni_backend ceni_backend_host = {
    .name = "host",
    .foreign_waits_end = true,
    .count = host_count,
    .open = host_open,
    .close = host_close,
    .props = host_props,
    .mem_info = host_mem_info,
    .limits = host_limits,
    .va_reserve = ceni_host_va_reserve,
    .va_free = ceni_host_va_free,
    .page_create = ceni_host_page_create,
    .page_release = ceni_host_page_release,
    .page_map = ceni_host_page_map,
    .page_unmap = ceni_host_page_unmap,
    .page_access = ceni_host_page_access,
    .page_export = ceni_host_page_export,
    .page_import = ceni_host_page_import,
    .segment_alloc = ceni_host_segment_alloc,
    .segment_free = ceni_host_segment_free,
    .stream_create = ceni_host_stream_create,
    .stream_destroy = ceni_host_stream_destroy,
    .stream_sync = ceni_host_stream_sync,
    .stream_query = ceni_host_stream_query,
    .stream_wait = ceni_host_stream_wait,
    .stream_capturing = ceni_host_stream_capturing,
    .event_create = ceni_host_event_create,
    .event_destroy = ceni_host_event_destroy,
    .event_record = ceni_host_event_record,
    .event_query = ceni_host_event_query,
    .event_peek = ceni_host_event_peek,
    .event_sync = ceni_host_event_sync,
    .event_signal = ceni_host_event_signal,
    .event_elapsed = ceni_host_event_elapsed,
    .copy = ceni_host_copy,
    .copy_peer = ceni_host_copy_peer,
    .fill = ceni_host_fill,
    .launch = ceni_host_launch,
    .host_func = ceni_host_func,
    .pinned_alloc = ceni_host_pinned_alloc,
    .pinned_free = ceni_host_pinned_free,
    .pinned_register = ceni_host_pinned_register,
    .pinned_unregister = ceni_host_pinned_unregister,
    .peer_can_access = host_peer_can_access,
    .peer_rank = host_peer_rank,
    .peer_enable = host_peer_enable,
    .event_export = ceni_host_event_export,
    .event_import = ceni_host_event_import,
    .legacy_export = ceni_host_legacy_export,
    .legacy_open = ceni_host_legacy_open,
    .legacy_close = ceni_host_legacy_close,
    .dmabuf = ceni_host_dmabuf,
    .capture_begin = ceni_host_capture_begin,
    .capture_end = ceni_host_capture_end,
    .graph_launch = ceni_host_graph_launch,
    .graph_destroy = ceni_host_graph_destroy,
};
