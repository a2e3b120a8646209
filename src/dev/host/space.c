/* The process's address space as its host devices see it: made with the first device, gone with the
 * last. A forked child starts with none, since nothing of its parent's is usable there. */
#include <string.h>

#include "dev/host/host_int.h"
#include "dev/host/shared_event.h"

static pthread_mutex_t space_lock = PTHREAD_MUTEX_INITIALIZER;
static host_space *space_of_process;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void before_fork(void) {
    pthread_mutex_lock(&space_lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&space_lock);
}

static void in_child(void) {
    space_of_process = NULL;
    pthread_mutex_unlock(&space_lock);
}

/* What is registered last runs first before a fork: the lock of the space comes before that of the
 * shared events, as when one is made. */
static void watch_fork(void) {
    ceni_host_shared_watch_forks();
    pthread_atfork(before_fork, after_fork, in_child);
}

static host_space *space_new(void) {
    host_space *space = ceni_calloc(1, sizeof *space);
    if (!space) {
        return NULL;
    }
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    /* Streams read all the time: an unmap must not wait for a moment when none does. */
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&space->map, &attr);
    pthread_rwlockattr_destroy(&attr);
    pthread_mutex_init(&space->run, NULL);
    pthread_cond_init(&space->changed, NULL);
    ceni_host_spare_maps(space);
    return space;
}

static void space_free(host_space *space) {
    ceni_host_spend_maps(space);
    ceni_host_handles_free(&space->pages);
    ceni_host_handles_free(&space->streams);
    ceni_host_handles_free(&space->events);
    ceni_free(space->ranges);
    ceni_free(space->mappings);
    ceni_free(space->pinned);
    pthread_cond_destroy(&space->changed);
    pthread_mutex_destroy(&space->run);
    pthread_rwlock_destroy(&space->map);
    ceni_free(space);
}

cen_status ceni_host_space_join(host_device *device) {
    pthread_once(&fork_once, watch_fork);
    cen_status status = CEN_OK;
    pthread_mutex_lock(&space_lock);
    if (!space_of_process) {
        space_of_process = space_new();
    }
    host_space *space = space_of_process;
    unsigned slot = 0;
    if (!space) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "host device: out of memory");
    } else {
        pthread_mutex_lock(&space->run);
        while (slot < HOST_DEVICES_MAX && space->devices[slot]) {
            slot++;
        }
        if (slot == HOST_DEVICES_MAX) {
            status = ceni_fail(CEN_ERR_LIMIT, "host device: %d are open, the most a process can",
                               HOST_DEVICES_MAX);
        } else {
            pthread_rwlock_wrlock(&space->map);
            space->devices[slot] = device;
            pthread_rwlock_unlock(&space->map);
            space->users++;
            device->space = space;
            device->slot = slot;
        }
        pthread_mutex_unlock(&space->run);
    }
    pthread_mutex_unlock(&space_lock);
    return status;
}

/* No right of the device survives it: its slot goes to another. */
static void leave_slot(host_device *device) {
    host_space *space = device->space;
    uint64_t others = ~host_bit(device);
    pthread_mutex_lock(&space->run);
    pthread_rwlock_wrlock(&space->map);
    space->devices[device->slot] = NULL;
    for (size_t i = 0; i < space->mapping_count; i++) {
        space->mappings[i].readers &= others;
        space->mappings[i].writers &= others;
    }
    for (size_t i = 0; i < HOST_DEVICES_MAX; i++) {
        if (space->devices[i]) {
            space->devices[i]->peers &= others;
        }
    }
    pthread_rwlock_unlock(&space->map);
    pthread_mutex_unlock(&space->run);
}

void ceni_host_space_leave(host_device *device) {
    host_space *space = device->space;
    pthread_mutex_lock(&space_lock);
    leave_slot(device);
    if (--space->users == 0) {
        space_of_process = NULL;
        space_free(space);
    }
    pthread_mutex_unlock(&space_lock);
}

size_t ceni_host_find_range(const host_range *ranges, size_t count, uint64_t addr) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].addr + ranges[middle].size > addr) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

size_t ceni_host_find_mapping(const host_space *space, uint64_t addr) {
    size_t low = 0, high = space->mapping_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (space->mappings[middle].addr + space->mappings[middle].size > addr) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static bool overlaps_pinned(const host_space *space, uint64_t addr, uint64_t size) {
    for (size_t i = 0; i < space->pinned_count; i++) {
        const host_pinned *p = &space->pinned[i];
        if (addr < p->addr + p->size && p->addr < addr + size) {
            return true;
        }
    }
    return false;
}

static bool inside_pinned(const host_space *space, uint64_t addr, uint64_t size) {
    for (size_t i = 0; i < space->pinned_count; i++) {
        const host_pinned *p = &space->pinned[i];
        if (addr >= p->addr && addr + size <= p->addr + p->size) {
            return true;
        }
    }
    return false;
}

static bool overlaps_reserved(const host_space *space, uint64_t addr, uint64_t size) {
    size_t i = ceni_host_find_range(space->ranges, space->range_count, addr);
    return i < space->range_count && space->ranges[i].addr < addr + size;
}

const char *ceni_host_denied(host_device *device, uint64_t addr, uint64_t size, bool write,
                             bool by_kernel) {
    const host_space *space = device->space;
    if (addr + size < addr) {
        return "the end of all addresses";
    }
    if (!overlaps_reserved(space, addr, size)) {
        return by_kernel && !inside_pinned(space, addr, size) ? "memory that is not pinned" : NULL;
    }
    uint64_t at = addr, end = addr + size;
    for (size_t i = ceni_host_find_mapping(space, addr); at < end; i++) {
        const host_mapping *m = i < space->mapping_count ? &space->mappings[i] : NULL;
        if (!m || m->addr > at) {
            return "unmapped memory";
        }
        if (!(m->readers & host_bit(device))) {
            return "memory without access";
        }
        if (write && !(m->writers & host_bit(device))) {
            return "read-only memory";
        }
        at = m->addr + m->size;
    }
    return NULL;
}

bool ceni_host_is_pageable(host_space *space, uint64_t addr, uint64_t size) {
    return !overlaps_reserved(space, addr, size) && !overlaps_pinned(space, addr, size);
}
