/* Physical memory: memfds. Exportable memory has its own; the rest are extents of one sparse file a
 * device, which grows as needed and whose returned extents are punched out, so that memory is the
 * system's from its first touch to its release and at no other time. `map` is held for writing. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "dev/host/host_int.h"

/* A file that others will map is sealed: none of them can shrink it under the rest. Who has a
 * read-only descriptor of it cannot open it for writing unless it is its user's. */
enum { EXPORTED_MODE = 0644 };

static cen_status file_new(uint64_t size, bool exportable, int *fd) {
    int made = memfd_create("cenote", MFD_CLOEXEC | (exportable ? MFD_ALLOW_SEALING : 0));
    if (made < 0) {
        return ceni_host_fd_failed("page memory (memfd_create)", errno);
    }
    if (!ceni_fd_may_grow(size) || ftruncate(made, (off_t)size) ||
        (exportable && fchmod(made, EXPORTED_MODE)) ||
        (exportable && fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))) {
        cen_status status = ceni_host_fd_failed("page memory (ftruncate)", errno);
        close(made);
        return status;
    }
    *fd = made;
    return CEN_OK;
}

/* The smallest hole that fits, or the file's end. */
static cen_status carve(host_device *device, uint64_t size, uint64_t *offset) {
    size_t best = device->hole_count;
    for (size_t i = 0; i < device->hole_count; i++) {
        if (device->holes[i].size >= size &&
            (best == device->hole_count || device->holes[i].size < device->holes[best].size)) {
            best = i;
        }
    }
    if (best < device->hole_count) {
        host_range *hole = &device->holes[best];
        *offset = hole->addr;
        hole->addr += size;
        hole->size -= size;
        if (!hole->size) {
            memmove(hole, hole + 1, (--device->hole_count - best) * sizeof *hole);
        }
        return CEN_OK;
    }
    if (device->fd < 0) {
        cen_status status = file_new(0, false, &device->fd);
        if (status) {
            return status;
        }
    }
    if (!ceni_fd_may_grow(device->fd_size + size) ||
        ftruncate(device->fd, (off_t)(device->fd_size + size))) {
        return ceni_host_fd_failed("page memory (ftruncate)", errno);
    }
    *offset = device->fd_size;
    device->fd_size += size;
    return CEN_OK;
}

/* Back to the holes, merged with its neighbours. A hole that cannot be noted for want of host
 * memory is lost to later pages, which take the file's end; its memory is freed all the same. */
static void give_back(host_device *device, uint64_t offset, uint64_t size) {
    fallocate(device->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
    size_t i = ceni_host_find_range(device->holes, device->hole_count, offset);
    host_range *before = i > 0 ? &device->holes[i - 1] : NULL;
    host_range *after = i < device->hole_count ? &device->holes[i] : NULL;
    bool joins_before = before && before->addr + before->size == offset;
    bool joins_after = after && after->addr == offset + size;
    if (joins_before) {
        before->size += size + (joins_after ? after->size : 0);
        if (joins_after) {
            memmove(after, after + 1, (--device->hole_count - i) * sizeof *after);
        }
    } else if (joins_after) {
        after->addr = offset;
        after->size += size;
    } else if (!ceni_grow(&device->holes, &device->hole_capacity, device->hole_count + 1,
                          sizeof *device->holes)) {
        host_range *at = &device->holes[i];
        memmove(at + 1, at, (device->hole_count++ - i) * sizeof *at);
        *at = (host_range){.addr = offset, .size = size};
    }
}

/* Notes whose file it is, so that ceni_host_page_import finds it. */
static void own_file(host_mem *mem) {
    struct stat st;
    if (!fstat(mem->fd, &st)) {
        mem->dev = (uint64_t)st.st_dev;
        mem->ino = (uint64_t)st.st_ino;
    }
    mem->exportable = true;
    mem->next = mem->owner->own_fds;
    mem->owner->own_fds = mem;
}

cen_status ceni_host_mem_charge(const host_device *device, uint64_t size) {
    uint64_t left = device->options.capacity - device->used;
    if (size > left) {
        return ceni_fail(
            CEN_ERR_DEVICE_MEMORY,
            "host:%d is full: %llu bytes asked, %llu of %llu free; it emulates a card "
            "of that capacity, which CENOTE_HOST_CAPACITY or cen_host_options.capacity "
            "sets, in bytes",
            device->base.ordinal, (unsigned long long)size, (unsigned long long)left,
            (unsigned long long)device->options.capacity);
    }
    return CEN_OK;
}

cen_status ceni_host_mem_create(host_device *device, uint64_t size, unsigned flags,
                                host_mem **mem) {
    bool exportable = flags & CENI_PAGE_EXPORTABLE, on_host = flags & CENI_PAGE_HOST;
    cen_status status = on_host ? CEN_OK : ceni_host_mem_charge(device, size);
    if (status) {
        return status;
    }
    host_mem *made = ceni_calloc(1, sizeof *made);
    if (!made) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "page memory: out of host memory");
    }
    *made = (host_mem){.owner = device, .size = size, .refs = 1, .on_host = on_host};
    if (exportable) {
        status = file_new(size, true, &made->fd);
    } else {
        status = carve(device, size, &made->offset);
        made->fd = device->fd;
    }
    if (status) {
        ceni_free(made);
        return status;
    }
    if (exportable) {
        own_file(made);
    }
    device->used += on_host ? 0 : size;
    *mem = made;
    return CEN_OK;
}

/* The memory of that file, if it is here and can do as much. */
static host_mem *find_file(const host_device *device, const struct stat *st, bool read_only) {
    host_mem *m = device->own_fds;
    while (m && (m->dev != (uint64_t)st->st_dev || m->ino != (uint64_t)st->st_ino ||
                 (m->imported && m->read_only != read_only))) {
        m = m->next;
    }
    return m;
}

cen_status ceni_host_mem_adopt(host_device *device, int fd, uint64_t size, host_mem **mem) {
    struct stat st;
    if (fstat(fd, &st)) {
        return ceni_fail(CEN_ERR_INVALID, "page_import: fd %d: %s", fd, strerror(errno));
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if ((uint64_t)st.st_size != size || seals < 0 || !(seals & F_SEAL_SHRINK)) {
        return ceni_fail(CEN_ERR_INVALID, "page_import: fd %d is no page of %llu bytes", fd,
                         (unsigned long long)size);
    }
    int flags = fcntl(fd, F_GETFL);
    bool read_only =
        (flags & O_ACCMODE) == O_RDONLY || seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
    if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY) {
        return ceni_fail(CEN_ERR_INVALID, "page_import: fd %d is not open for reading", fd);
    }
    host_mem *here = find_file(device, &st, read_only);
    if (here) {
        here->refs++;
        *mem = here;
        return CEN_OK;
    }
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        return ceni_host_fd_failed("page_import", errno);
    }
    host_mem *made = ceni_calloc(1, sizeof *made);
    if (!made) {
        close(own);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "page_import: out of host memory");
    }
    *made = (host_mem){.owner = device,
                       .size = size,
                       .refs = 1,
                       .fd = own,
                       .imported = true,
                       .read_only = read_only};
    own_file(made);
    *mem = made;
    return CEN_OK;
}

void ceni_host_mem_drop(host_mem *mem) {
    if (--mem->refs) {
        return;
    }
    host_device *device = mem->owner;
    device->used -= mem->on_host || mem->imported ? 0 : mem->size;
    if (mem->exportable) {
        host_mem **link = &device->own_fds;
        while (*link != mem) {
            link = &(*link)->next;
        }
        *link = mem->next;
        close(mem->fd);
    } else {
        give_back(device, mem->offset, mem->size);
    }
    ceni_free(mem);
}
