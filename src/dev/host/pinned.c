/* Pinned host memory: touched when allocated, and noted, so that kernels may use it. */
#include <errno.h>
#include <sys/mman.h>

#include "dev/host/host_int.h"

static size_t find(const host_space *space, const host_device *device, const void *ptr,
                   bool registered) {
    size_t i = 0;
    while (i < space->pinned_count &&
           (space->pinned[i].addr != (uint64_t)(uintptr_t)ptr || space->pinned[i].owner != device ||
            space->pinned[i].registered != registered)) {
        i++;
    }
    return i;
}

static cen_status add(host_device *device, void *ptr, size_t size, bool registered) {
    host_space *space = device->space;
    uint64_t addr = (uint64_t)(uintptr_t)ptr;
    cen_status status = CEN_OK;
    pthread_rwlock_wrlock(&space->map);
    for (size_t i = 0; !status && i < space->pinned_count; i++) {
        const host_pinned *p = &space->pinned[i];
        if (addr < p->addr + p->size && p->addr < addr + size) {
            status = ceni_fail(CEN_ERR_BUSY, "pinned_register: [%p, +%zu) overlaps pinned memory",
                               ptr, size);
        }
    }
    size_t r = ceni_host_find_range(space->ranges, space->range_count, addr);
    if (!status && r < space->range_count && space->ranges[r].addr < addr + size) {
        status = ceni_fail(CEN_ERR_INVALID, "pinned_register: %p is device memory", ptr);
    }
    if (!status && ceni_grow(&space->pinned, &space->pinned_capacity, space->pinned_count + 1,
                             sizeof *space->pinned)) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "pinned: out of host memory");
    }
    if (!status) {
        space->pinned[space->pinned_count++] = (host_pinned){addr, size, device, registered};
    }
    pthread_rwlock_unlock(&space->map);
    return status;
}

/* Takes it out of the table; its size is 0 if it was not there. */
static size_t take(host_device *device, const void *ptr, bool registered) {
    host_space *space = device->space;
    size_t size = 0;
    pthread_rwlock_wrlock(&space->map);
    size_t i = find(space, device, ptr, registered);
    if (i < space->pinned_count) {
        size = space->pinned[i].size;
        space->pinned[i] = space->pinned[--space->pinned_count];
    }
    pthread_rwlock_unlock(&space->map);
    return size;
}

cen_status ceni_host_pinned_alloc(cen_device *device, size_t size, void **ptr) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    void *map =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (map == MAP_FAILED) {
        return ceni_host_map_failed("pinned_alloc", errno);
    }
    status = add(d, map, size, false);
    if (status) {
        munmap(map, size);
        return status;
    }
    *ptr = map;
    return CEN_OK;
}

cen_status ceni_host_pinned_free(cen_device *device, void *ptr) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    size_t size = take(d, ptr, false);
    if (!size) {
        return ceni_fail(CEN_ERR_INVALID, "pinned_free: %p is not of pinned_alloc", ptr);
    }
    munmap(ptr, size);
    return CEN_OK;
}

cen_status ceni_host_pinned_register(cen_device *device, void *ptr, size_t size) {
    cen_status status = ceni_host_ready(host_of(device));
    return status ? status : add(host_of(device), ptr, size, true);
}

cen_status ceni_host_pinned_unregister(cen_device *device, void *ptr) {
    cen_status status = ceni_host_ready(host_of(device));
    if (!status && !take(host_of(device), ptr, true)) {
        status = ceni_fail(CEN_ERR_INVALID, "pinned_unregister: %p is not registered", ptr);
    }
    return status;
}

void ceni_host_pinned_close(host_device *device) {
    host_space *space = device->space;
    pthread_rwlock_wrlock(&space->map);
    for (size_t i = space->pinned_count; i-- > 0;) {
        const host_pinned p = space->pinned[i];
        if (p.owner == device) {
            if (!p.registered) {
                munmap((void *)(uintptr_t)p.addr, p.size);
            }
            space->pinned[i] = space->pinned[--space->pinned_count];
        }
    }
    pthread_rwlock_unlock(&space->map);
}
