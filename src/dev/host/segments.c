/* Plain memory, as of cudaMalloc: reserved, created, mapped and accessible at once, also for each
 * device that enabled peer access. And the end of all memory of a device. */
#include <unistd.h>

#include "dev/host/host_int.h"

/* The device itself and those that enabled access to it. */
static uint64_t plain_rights(const host_device *device) {
    uint64_t rights = host_bit(device);
    for (unsigned i = 0; i < HOST_DEVICES_MAX; i++) {
        const host_device *other = device->space->devices[i];
        if (other && other->peers & host_bit(device)) {
            rights |= host_bit(other);
        }
    }
    return rights;
}

static cen_status segment_alloc(host_device *device, uint64_t size, uint64_t rights,
                                cen_addr *addr) {
    cen_addr start = 0;
    host_mem *mem;
    cen_status status = ceni_host_mem_create(device, size, 0, &mem);
    if (status) {
        return status;
    }
    status = ceni_host_reserve(device, size, 0, true, &start);
    if (!status) {
        status = ceni_host_map(device->space, start, mem, rights);
        if (status) {
            host_space *space = device->space;
            ceni_host_unreserve(space,
                                ceni_host_find_range(space->ranges, space->range_count, start));
        } else {
            *addr = start;
        }
    }
    ceni_host_mem_drop(mem);
    return status;
}

cen_status ceni_host_segment_alloc(cen_device *device, uint64_t size, cen_addr *addr) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    status = status ? status : ceni_host_no_capture_unlocked(d, "segment_alloc");
    if (status) {
        return status;
    }
    uint64_t granularity = device->granularity;
    uint64_t rounded = (size + granularity - 1) / granularity * granularity;
    pthread_rwlock_wrlock(&d->space->map);
    status = size > d->options.capacity /* what it is rounded to may be 0 */
                 ? ceni_host_mem_charge(d, size)
                 : segment_alloc(d, rounded, plain_rights(d), addr);
    pthread_rwlock_unlock(&d->space->map);
    return status;
}

/* Waits for the device's work, as cudaFree does. */
static cen_status wait_all(host_device *device) {
    cen_status status;
    pthread_mutex_lock(&device->space->run);
    status = ceni_host_no_capture(device, "segment_free");
    for (host_stream *s = device->streams; !status && s; s = s->next) {
        ceni_host_wait_idle(s);
    }
    pthread_mutex_unlock(&device->space->run);
    return status ? status : ceni_host_ready(device);
}

cen_status ceni_host_segment_free(cen_device *device, cen_addr addr) {
    host_device *d = host_of(device);
    host_space *space = d->space;
    cen_status status = ceni_host_ready(d);
    status = status ? status : wait_all(d);
    if (status) {
        return status;
    }
    pthread_rwlock_wrlock(&space->map);
    size_t i = ceni_host_find_range(space->ranges, space->range_count, addr);
    if (i < space->range_count && space->ranges[i].addr == addr && space->ranges[i].segment &&
        space->ranges[i].owner == d) {
        size_t m = ceni_host_find_mapping(space, addr);
        status = ceni_host_unreserve(space, i);
        if (!status) {
            ceni_host_forget(space, m, m + 1);
        }
    } else {
        status = ceni_fail(CEN_ERR_INVALID, "segment_free: 0x%llx is no segment of host:%d",
                           (unsigned long long)addr, device->ordinal);
    }
    pthread_rwlock_unlock(&space->map);
    return status;
}

cen_status ceni_host_peer_enable(cen_device *device, cen_device *peer) {
    host_device *d = host_of(device), *p = host_of(peer);
    cen_status status = ceni_host_ready(d);
    status = status ? status : ceni_host_ready(p);
    if (status) {
        return status;
    }
    host_space *space = d->space;
    pthread_rwlock_wrlock(&space->map);
    d->peers |= host_bit(p);
    for (size_t i = 0; i < space->mapping_count; i++) {
        host_mapping *m = &space->mappings[i];
        size_t r = ceni_host_find_range(space->ranges, space->range_count, m->addr);
        if (space->ranges[r].segment && m->mem->owner == p) {
            m->readers |= host_bit(d);
            m->writers |= host_bit(d);
        }
    }
    pthread_rwlock_unlock(&space->map);
    return CEN_OK;
}

/* Memory that another device reserved addresses for must be unmapped there; what this one reserved
 * goes as a whole. */
static void close_mappings(host_device *device) {
    host_space *space = device->space;
    for (size_t i = space->mapping_count; i-- > 0;) {
        const host_mapping *m = &space->mappings[i];
        size_t r = ceni_host_find_range(space->ranges, space->range_count, m->addr);
        bool here = space->ranges[r].owner == device;
        if (here || (m->mem->owner == device && ceni_host_unmap(space, i, i + 1))) {
            ceni_host_forget(space, i, i + 1);
        }
    }
}

void ceni_host_memory_close(host_device *device) {
    host_space *space = device->space;
    pthread_rwlock_wrlock(&space->map);
    close_mappings(device);
    for (size_t i = space->range_count; i-- > 0;) {
        if (space->ranges[i].owner == device && ceni_host_unreserve(space, i)) {
            ceni_host_forget_range(space, i);
        }
    }
    for (size_t i = 0; i < space->pages.count; i++) {
        uint64_t handle = ceni_host_handle_at(&space->pages, i);
        host_mem *mem = handle ? ceni_host_handle_get(&space->pages, handle) : NULL;
        if (mem && mem->owner == device) {
            ceni_host_handle_remove(&space->pages, handle);
            ceni_host_mem_drop(mem);
        }
    }
    if (device->fd >= 0) {
        close(device->fd);
    }
    ceni_free(device->holes);
    pthread_rwlock_unlock(&space->map);
}
