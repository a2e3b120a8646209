/* Reservations and the mappings in them. A reserved range is mapped PROT_NONE; a page is its memfd
 * mapped over it, at first without access. What any device may do, the processor may do: rights of
 * single devices are checked when they work (ceni_host_denied). */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "dev/host/host_int.h"

static void *pointer(uint64_t addr) {
    return (void *)(uintptr_t)addr;
}

static int protection(uint64_t readers, uint64_t writers) {
    return writers ? PROT_READ | PROT_WRITE : readers ? PROT_READ : PROT_NONE;
}

cen_status ceni_host_reserve(host_device *device, uint64_t size, uint64_t align, bool segment,
                             cen_addr *addr) {
    host_space *space = device->space;
    if (align < device->base.granularity) {
        align = device->base.granularity;
    }
    if (ceni_grow(&space->ranges, &space->range_capacity, space->range_count + 1,
                  sizeof *space->ranges)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "va_reserve: out of host memory");
    }
    uint64_t whole = size + align;
    void *map = whole < size ? MAP_FAILED
                             : mmap(NULL, whole, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        return ceni_host_map_failed("va_reserve", whole < size ? EOVERFLOW : errno);
    }
    uint64_t base = (uint64_t)(uintptr_t)map;
    uint64_t start = (base + align - 1) & ~(align - 1);
    if (start > base) {
        munmap(map, start - base);
    }
    munmap(pointer(start + size), base + whole - (start + size));
    /* As on CUDA, a forked child has none of it. */
    madvise(pointer(start), size, MADV_DONTFORK);
    size_t i = ceni_host_find_range(space->ranges, space->range_count, start);
    memmove(&space->ranges[i + 1], &space->ranges[i],
            (space->range_count++ - i) * sizeof *space->ranges);
    space->ranges[i] =
        (host_range){.addr = start, .size = size, .owner = device, .segment = segment};
    *addr = start;
    return CEN_OK;
}

void ceni_host_forget_range(host_space *space, size_t range) {
    host_range *r = &space->ranges[range];
    memmove(r, r + 1, (--space->range_count - range) * sizeof *r);
}

cen_status ceni_host_unreserve(host_space *space, size_t range) {
    host_range *r = &space->ranges[range];
    while (munmap(pointer(r->addr), r->size)) {
        if (errno != ENOMEM || !ceni_host_spend_maps(space)) {
            return ceni_host_map_failed("va_free", errno);
        }
    }
    ceni_host_spare_maps(space);
    ceni_host_forget_range(space, range);
    return CEN_OK;
}

cen_status ceni_host_va_reserve(cen_device *device, uint64_t size, uint64_t align, cen_addr *addr) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (!status) {
        pthread_rwlock_wrlock(&d->space->map);
        status = ceni_host_reserve(d, size, align, false, addr);
        pthread_rwlock_unlock(&d->space->map);
    }
    return status;
}

static cen_status va_free(host_space *space, uint64_t addr, uint64_t size) {
    size_t i = ceni_host_find_range(space->ranges, space->range_count, addr);
    const host_range *r = i < space->range_count ? &space->ranges[i] : NULL;
    if (!r || r->addr != addr || r->size != size || r->segment) {
        return ceni_fail(CEN_ERR_INVALID, "va_free: 0x%llx of %llu bytes is no reserved range",
                         (unsigned long long)addr, (unsigned long long)size);
    }
    size_t m = ceni_host_find_mapping(space, addr);
    if (m < space->mapping_count && space->mappings[m].addr < addr + size) {
        return ceni_fail(CEN_ERR_BUSY, "va_free: 0x%llx is still mapped",
                         (unsigned long long)space->mappings[m].addr);
    }
    return ceni_host_unreserve(space, i);
}

cen_status ceni_host_va_free(cen_device *device, cen_addr addr, uint64_t size) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (!status) {
        pthread_rwlock_wrlock(&d->space->map);
        status = va_free(d->space, addr, size);
        pthread_rwlock_unlock(&d->space->map);
    }
    return status;
}

cen_status ceni_host_map(host_space *space, uint64_t addr, host_mem *mem, uint64_t rights) {
    if (ceni_grow(&space->mappings, &space->mapping_capacity, space->mapping_count + 1,
                  sizeof *space->mappings)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "page_map: out of host memory");
    }
    if (mmap(pointer(addr), mem->size, protection(rights, rights), MAP_SHARED | MAP_FIXED, mem->fd,
             (off_t)mem->offset) == MAP_FAILED) {
        return ceni_host_map_failed("page_map", errno);
    }
    madvise(pointer(addr), mem->size, MADV_DONTFORK);
    size_t i = ceni_host_find_mapping(space, addr);
    memmove(&space->mappings[i + 1], &space->mappings[i],
            (space->mapping_count++ - i) * sizeof *space->mappings);
    space->mappings[i] = (host_mapping){
        .addr = addr, .size = mem->size, .mem = mem, .readers = rights, .writers = rights};
    mem->refs++;
    return CEN_OK;
}

void ceni_host_forget(host_space *space, size_t first, size_t last) {
    for (size_t i = first; i < last; i++) {
        ceni_host_mem_drop(space->mappings[i].mem);
    }
    memmove(&space->mappings[first], &space->mappings[last],
            (space->mapping_count - last) * sizeof *space->mappings);
    space->mapping_count -= last - first;
}

cen_status ceni_host_unmap(host_space *space, size_t first, size_t last) {
    host_mapping *m = &space->mappings[first];
    uint64_t size = space->mappings[last - 1].addr + space->mappings[last - 1].size - m->addr;
    while (mmap(pointer(m->addr), size, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        if (errno != ENOMEM || !ceni_host_spend_maps(space)) {
            return ceni_host_map_failed("page_unmap", errno);
        }
    }
    madvise(pointer(m->addr), size, MADV_DONTFORK);
    ceni_host_spare_maps(space);
    ceni_host_forget(space, first, last);
    return CEN_OK;
}

static cen_status page_map(host_space *space, uint64_t addr, uint64_t size, ceni_page page) {
    host_mem *mem = ceni_host_handle_get(&space->pages, page);
    if (!mem) {
        return ceni_fail(CEN_ERR_INVALID, "page_map: page 0x%llx does not exist",
                         (unsigned long long)page);
    }
    if (size < mem->size) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "page_map: size %llu is a slice of a page of %llu bytes; only whole pages "
                         "can be mapped",
                         (unsigned long long)size, (unsigned long long)mem->size);
    }
    size_t r = ceni_host_find_range(space->ranges, space->range_count, addr);
    const host_range *range = r < space->range_count ? &space->ranges[r] : NULL;
    if (size > mem->size || !range || addr < range->addr ||
        addr + size > range->addr + range->size || range->segment) {
        return ceni_fail(CEN_ERR_INVALID, "page_map: [0x%llx, +%llu) %s", (unsigned long long)addr,
                         (unsigned long long)size,
                         size > mem->size ? "is larger than the page"
                                          : "is not in a reserved range");
    }
    size_t m = ceni_host_find_mapping(space, addr);
    if (m < space->mapping_count && space->mappings[m].addr < addr + size) {
        return ceni_fail(CEN_ERR_BUSY, "page_map: 0x%llx is mapped already",
                         (unsigned long long)space->mappings[m].addr);
    }
    return ceni_host_map(space, addr, mem, 0);
}

cen_status ceni_host_page_map(cen_device *device, cen_addr addr, uint64_t size, ceni_page page) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (!status) {
        pthread_rwlock_wrlock(&d->space->map);
        status = page_map(d->space, addr, size, page);
        pthread_rwlock_unlock(&d->space->map);
    }
    return status;
}

/* The mappings [*first, *last) that fill a range exactly. */
static cen_status whole_mappings(host_space *space, const char *what, uint64_t addr, uint64_t size,
                                 size_t *first, size_t *last) {
    size_t r = ceni_host_find_range(space->ranges, space->range_count, addr);
    bool segment = r < space->range_count && space->ranges[r].segment;
    uint64_t at = addr, end = addr + size;
    size_t i = ceni_host_find_mapping(space, addr);
    *first = i;
    while (!segment && at < end && i < space->mapping_count && space->mappings[i].addr == at &&
           space->mappings[i].size <= end - at) {
        at += space->mappings[i++].size;
    }
    if (at != end) {
        return ceni_fail(CEN_ERR_INVALID, "%s: [0x%llx, +%llu) is not filled by whole mappings",
                         what, (unsigned long long)addr, (unsigned long long)size);
    }
    *last = i;
    return CEN_OK;
}

cen_status ceni_host_page_unmap(cen_device *device, cen_addr addr, uint64_t size) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_rwlock_wrlock(&d->space->map);
    size_t first, last;
    status = whole_mappings(d->space, "page_unmap", addr, size, &first, &last);
    status = status ? status : ceni_host_unmap(d->space, first, last);
    pthread_rwlock_unlock(&d->space->map);
    return status;
}

/* The rights of a mapping after the grants; a device that is not among them keeps its own. */
static void granted(const host_mapping *m, const ceni_grant *grants, size_t count,
                    uint64_t *readers, uint64_t *writers) {
    *readers = m->readers;
    *writers = m->writers;
    for (size_t g = 0; g < count; g++) {
        uint64_t bit = host_bit(host_of(grants[g].device));
        *readers = grants[g].access ? *readers | bit : *readers & ~bit;
        *writers = grants[g].access == CENI_ACCESS_READ_WRITE ? *writers | bit : *writers & ~bit;
    }
}

static cen_status check_grants(const host_mapping *m, const ceni_grant *grants, size_t count) {
    const host_mem *mem = m->mem;
    for (size_t g = 0; g < count; g++) {
        const host_device *to = host_of(grants[g].device);
        if (mem->read_only && grants[g].access == CENI_ACCESS_READ_WRITE) {
            return ceni_fail(CEN_ERR_INVALID,
                             "page_access: the page at 0x%llx was imported read-only; it cannot be "
                             "granted for writing",
                             (unsigned long long)m->addr);
        }
        if (to != mem->owner && !mem->on_host && !mem->imported &&
            !(to->peers & host_bit(mem->owner))) {
            return ceni_fail(CEN_ERR_INVALID,
                             "page_access: host:%d has not enabled peer access to host:%d",
                             to->base.ordinal, mem->owner->base.ordinal);
        }
    }
    return CEN_OK;
}

/* Protects [from, to) as the grants say, or as it is (count 0); neighbours alike in one call. */
static int protect(host_space *space, size_t from, size_t to, const ceni_grant *grants,
                   size_t count) {
    for (size_t i = from; i < to;) {
        uint64_t readers, writers;
        granted(&space->mappings[i], grants, count, &readers, &writers);
        const int prot = protection(readers, writers);
        const uint64_t addr = space->mappings[i].addr;
        uint64_t size = 0;
        do {
            size += space->mappings[i++].size;
            if (i < to) {
                granted(&space->mappings[i], grants, count, &readers, &writers);
            }
        } while (i < to && protection(readers, writers) == prot);
        if (mprotect(pointer(addr), size, prot)) {
            return errno;
        }
    }
    return 0;
}

cen_status ceni_host_page_access(cen_device *device, cen_addr addr, uint64_t size,
                                 const ceni_grant *grants, size_t count) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    host_space *space = d->space;
    pthread_rwlock_wrlock(&space->map);
    size_t first = 0, last = 0;
    status = whole_mappings(space, "page_access", addr, size, &first, &last);
    for (size_t i = first; !status && i < last; i++) {
        status = check_grants(&space->mappings[i], grants, count);
    }
    int error = status ? 0 : protect(space, first, last, grants, count);
    if (error) {
        protect(space, first, last, NULL, 0);
        status = ceni_host_map_failed("page_access", error);
    }
    for (size_t i = first; !status && i < last; i++) {
        host_mapping *m = &space->mappings[i];
        granted(m, grants, count, &m->readers, &m->writers);
    }
    pthread_rwlock_unlock(&space->map);
    return status;
}
