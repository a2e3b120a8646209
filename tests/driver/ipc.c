/* Memory for other processes: a handle names the file behind it through the owner's /proc folder,
 * which its user may open. And dma-bufs, which here are the files of exportable pages. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dev/host/host_int.h"
#include "tests/driver/td.h"

typedef struct memory_handle {
    char name[16];
    int pid, fd;
    uint64_t map_offset, map_bytes; /* in the file */
    uint64_t begin, bytes;          /* of the allocation, in that */
} memory_handle;

static const char handle_name[16] = "test memory";

/* Where the host has it. */
static bool find_file(const td_entry *e, memory_handle *handle) {
    host_space *space = ((host_device *)e->card->device)->space;
    pthread_rwlock_rdlock(&space->map);
    size_t i = ceni_host_find_mapping(space, e->addr);
    const host_mapping *m = i < space->mapping_count ? &space->mappings[i] : NULL;
    bool found = m && m->addr <= e->addr;
    if (found) {
        handle->fd = m->mem->fd;
        handle->map_offset = m->mem->offset;
        handle->map_bytes = m->mem->size;
        handle->begin = e->addr - m->addr;
        handle->bytes = e->size;
    }
    pthread_rwlock_unlock(&space->map);
    return found;
}

cu_result cuIpcGetMemHandle(cu_ipc_memory *handle, cu_deviceptr addr) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(handle);
    memory_handle made = {.pid = getpid()};
    memcpy(made.name, handle_name, sizeof made.name);
    pthread_mutex_lock(&td_lock);
    const td_entry *e = td_table_holds(addr);
    bool found = e && (e->kind == TD_MEMORY || e->kind == TD_SMALL) && find_file(e, &made);
    pthread_mutex_unlock(&td_lock);
    TD_NEED(found);
    *handle = (cu_ipc_memory){{0}};
    memcpy(handle->reserved, &made, sizeof made);
    return CU_SUCCESS;
}

/* Whether this context has it open: a second view of one handle is refused. */
static bool is_open(const td_context *context, uint64_t inode, const memory_handle *handle) {
    for (size_t i = 0; td_table_get(i); i++) {
        const td_entry *e = td_table_get(i);
        if (e->kind == TD_OPENED && e->context == context && e->inode == inode &&
            e->offset == handle->map_offset + handle->begin) {
            return true;
        }
    }
    return false;
}

static cu_result map_view(td_context *context, int fd, const memory_handle *handle,
                          cu_deviceptr *addr) {
    struct stat st;
    if (fstat(fd, &st) || handle->map_offset + handle->map_bytes > (uint64_t)st.st_size ||
        handle->begin + handle->bytes > handle->map_bytes) {
        return CU_ERROR_INVALID_HANDLE;
    }
    if (is_open(context, st.st_ino, handle)) {
        return CU_ERROR_ALREADY_MAPPED;
    }
    void *map = mmap(NULL, handle->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                     (off_t)handle->map_offset);
    if (map == MAP_FAILED) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    cen_device *device = context->card->device;
    cu_result result = td_result(ceni_backend_host.pinned_register(device, map, handle->map_bytes));
    const td_entry entry = {.addr = (uintptr_t)map + handle->begin,
                            .size = handle->bytes,
                            .room = handle->bytes,
                            .kind = TD_OPENED,
                            .card = context->card,
                            .context = context,
                            .map = map,
                            .map_bytes = handle->map_bytes,
                            .inode = st.st_ino,
                            .offset = handle->map_offset + handle->begin};
    result = result == CU_SUCCESS ? td_table_add(&entry) : result;
    if (result != CU_SUCCESS) {
        ceni_backend_host.pinned_unregister(device, map);
        munmap(map, handle->map_bytes);
        return result;
    }
    *addr = entry.addr;
    return CU_SUCCESS;
}

cu_result cuIpcOpenMemHandle_v2(cu_deviceptr *addr, cu_ipc_memory handle, unsigned flags) {
    td_context *context;
    memory_handle wanted;
    char path[64];
    TD_TRY(td_enter_context(__func__, &context));
    memcpy(&wanted, handle.reserved, sizeof wanted);
    TD_NEED(addr && flags <= 1 && !memcmp(wanted.name, handle_name, sizeof wanted.name));
    if (wanted.pid == getpid()) {
        return CU_ERROR_INVALID_CONTEXT; /* as CUDA says */
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", wanted.pid, wanted.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return CU_ERROR_INVALID_HANDLE;
    }
    pthread_mutex_lock(&td_lock);
    cu_result result = map_view(context, fd, &wanted, addr);
    pthread_mutex_unlock(&td_lock);
    close(fd);
    return result;
}

void td_view_close(const td_entry *entry) {
    const td_entry e = *entry;
    td_table_remove(e.addr);
    ceni_backend_host.pinned_unregister(e.card->device, e.map);
    munmap(e.map, e.map_bytes);
}

cu_result cuIpcCloseMemHandle(cu_deviceptr addr) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_TRY(td_context_wait(context));
    pthread_mutex_lock(&td_lock);
    const td_entry *e = td_table_at(addr);
    bool found = e && e->kind == TD_OPENED && e->context == context;
    if (found) {
        td_view_close(e);
    }
    pthread_mutex_unlock(&td_lock);
    return found ? CU_SUCCESS : CU_ERROR_INVALID_VALUE;
}

cu_result cuMemGetHandleForAddressRange(void *handle, cu_deviceptr addr, size_t size, cu_enum type,
                                        unsigned long long flags) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(handle && type == CU_RANGE_DMA_BUF && !flags && size);
    memory_handle file;
    int fd = -1;
    pthread_mutex_lock(&td_lock);
    const td_entry *e = td_table_holds(addr);
    if (e && e->kind == TD_MAPPED && size <= e->addr + e->size - addr && find_file(e, &file)) {
        fd = dup(file.fd);
    }
    pthread_mutex_unlock(&td_lock);
    TD_NEED(fd >= 0);
    *(int *)handle = fd;
    return CU_SUCCESS;
}
