/* The file's regions. Each is mapped by itself, so that growing one moves no other. Room on the
 * disk is taken before it is touched: a mapped file for which there is none would end the program
 * with a signal. The room of what a region was before is given back. */
#include "ledger/ledger_int.h"

#include "base/fault.h"
#include "trace/write.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES_MAX (UINT64_C(4) << 30)

static uint64_t pages(uint64_t bytes) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static int take_room(int fd, uint64_t offset, uint64_t bytes) {
    if (ceni_fault(CENI_FAULT_IO)) {
        return EIO;
    }
    ceni_quiet quiet;
    ceni_quiet_begin(&quiet);
    int error = fallocate(fd, 0, (off_t)offset, (off_t)bytes) ? errno : 0;
    if (error == EOPNOTSUPP) {
        error = posix_fallocate(fd, (off_t)offset, (off_t)bytes);
    }
    ceni_quiet_end(&quiet, error);
    return error;
}

/* More of the file, mapped and zero. errno tells why not. */
static cen_status more(cen_ledger *l, uint64_t bytes, uint64_t *offset, void **mapped) {
    bytes = pages(bytes);
    int fd = ceni_ledger_fd(l);
    if (fd < 0) {
        return CEN_ERR_IO;
    }
    if (bytes > BYTES_MAX || l->end > BYTES_MAX - bytes) {
        errno = EFBIG;
        return CEN_ERR_IO;
    }
    int error = take_room(fd, l->end, bytes);
    if (error) {
        (void)!ftruncate(fd, (off_t)l->end);
        errno = error;
        return CEN_ERR_IO;
    }
    void *at = ceni_fault(CENI_FAULT_HOST_MEMORY)
                   ? MAP_FAILED
                   : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)l->end);
    if (at == MAP_FAILED) {
        (void)!ftruncate(fd, (off_t)l->end);
        errno = ENOMEM;
        return CEN_ERR_HOST_MEMORY;
    }
    *offset = l->end;
    *mapped = at;
    l->end += bytes;
    return CEN_OK;
}

cen_status ceni_ledger_spare(cen_ledger *l, enum ceni_ledger_part part, uint64_t capacity,
                             void **mapped) {
    ceni_ledger_region *region = &l->head->region[part];
    uint32_t spare = !(atomic_load_explicit(&region->which, memory_order_relaxed) & 1);
    uint64_t offset = 0;
    cen_status status = more(l, capacity * ceni_ledger_element(part), &offset, mapped);
    if (!status) {
        region->place[spare] = (ceni_ledger_place){offset, capacity};
    }
    return status;
}

void ceni_ledger_swap(cen_ledger *l, enum ceni_ledger_part part, void *mapped) {
    ceni_ledger_region *region = &l->head->region[part];
    uint32_t which = atomic_load_explicit(&region->which, memory_order_relaxed) & 1;
    const ceni_ledger_place *old = &region->place[which];
    atomic_store_explicit(&region->which, !which, memory_order_release);
    if (l->mapped[part]) {
        munmap(l->mapped[part], l->mapped_bytes[part]);
        (void)!fallocate(ceni_ledger_fd(l), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         (off_t)old->offset, (off_t)l->mapped_bytes[part]);
    }
    l->mapped[part] = mapped;
    l->mapped_bytes[part] =
        pages(ceni_ledger_capacity(l, part) * (uint64_t)ceni_ledger_element(part));
}

cen_status ceni_ledger_room(cen_ledger *l, enum ceni_ledger_part part, uint64_t want) {
    uint64_t count = CENI_LEDGER_COUNT(l, part), capacity = ceni_ledger_capacity(l, part);
    uint64_t larger = capacity;
    if (want <= capacity - count) {
        return CEN_OK;
    }
    while (larger - count < want) {
        larger *= 2;
    }
    void *mapped = NULL;
    cen_status status = ceni_ledger_spare(l, part, larger, &mapped);
    if (!status) {
        memcpy(mapped, l->mapped[part], count * ceni_ledger_element(part));
        ceni_ledger_swap(l, part, mapped);
    }
    return status;
}

cen_status ceni_ledger_map_all(cen_ledger *l) {
    static const uint32_t first[CENI_LEDGER_PARTS] = {
        [CENI_LEDGER_LIVE] = 1024,   [CENI_LEDGER_EVENTS] = 1024, [CENI_LEDGER_HOLDINGS] = 64,
        [CENI_LEDGER_STACKS] = 512,  [CENI_LEDGER_FRAMES] = 2048, [CENI_LEDGER_MODULES] = 512,
        [CENI_LEDGER_STRINGS] = 512, [CENI_LEDGER_TEXT] = 16384,
    };
    uint64_t offset = 0;
    void *head = NULL, *mapped = NULL;
    cen_status status = more(l, sizeof *l->head, &offset, &head);
    l->head = head;
    for (int part = 0; !status && part < CENI_LEDGER_PARTS; part++) {
        uint64_t capacity = first[part];
        if (part == CENI_LEDGER_EVENTS && capacity > l->options.events) {
            capacity = l->options.events;
        }
        l->head->region[part].element = ceni_ledger_element((enum ceni_ledger_part)part);
        status = ceni_ledger_spare(l, (enum ceni_ledger_part)part, capacity, &mapped);
        if (!status) {
            ceni_ledger_swap(l, (enum ceni_ledger_part)part, mapped);
        }
    }
    return status;
}

void ceni_ledger_unmap_all(cen_ledger *l) {
    for (size_t part = 0; part < CENI_LEDGER_PARTS; part++) {
        if (l->mapped[part]) {
            munmap(l->mapped[part], l->mapped_bytes[part]);
        }
    }
    if (l->head) {
        munmap(l->head, pages(sizeof *l->head));
    }
}
