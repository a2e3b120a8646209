/* cuMemAlloc and its kin: up to half a granule as parts of the context's granules, what is larger
 * in ranges of its own. Host memory that devices can use. Freeing waits for all work. */
#include <string.h>

#include "base/mem.h"
#include "tests/driver/td.h"

static cu_result place(td_context *context, uint64_t size, td_entry *entry) {
    uint64_t granule = context->card->device->granularity;
    bool small = size <= granule / 2;
    td_range range;
    *entry = (td_entry){.size = size,
                        .room = td_round(size, small ? TD_UNIT : granule),
                        .kind = small ? TD_SMALL : TD_MEMORY,
                        .card = context->card,
                        .context = context};
    if (small) {
        return td_arena_place(&context->small, entry->room, granule, true, &entry->addr);
    }
    TD_TRY(td_range_take(context->card, size, &range));
    entry->addr = range.addr;
    return CU_SUCCESS;
}

static void give_back(const td_entry *entry) {
    td_context *context = entry->context;
    td_table_remove(entry->addr);
    if (entry->kind == TD_SMALL) {
        td_arena_trim(&context->small, 0);
    } else {
        td_range_drop(entry->card, (td_range){entry->addr, entry->room});
    }
}

static cu_result allocate(td_context *context, uint64_t size, cu_deviceptr *addr) {
    if (!size) {
        return CU_ERROR_INVALID_VALUE;
    }
    if (size > context->card->device->total_bytes) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    TD_TRY(td_forbid_capture(context));
    td_entry entry;
    pthread_mutex_lock(&td_lock);
    cu_result result = place(context, size, &entry);
    if (result == CU_SUCCESS) {
        result = td_table_add(&entry);
        if (result != CU_SUCCESS) {
            give_back(&entry);
        }
    }
    pthread_mutex_unlock(&td_lock);
    if (result == CU_SUCCESS) {
        *addr = entry.addr;
    }
    return result;
}

cu_result cuMemAlloc_v2(cu_deviceptr *addr, size_t size) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(addr);
    return allocate(context, size, addr);
}

cu_result cuMemAllocPitch_v2(cu_deviceptr *addr, size_t *pitch, size_t width, size_t height,
                             unsigned element) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(addr && pitch && width && height);
    TD_NEED(element == 4 || element == 8 || element == 16);
    size_t row = td_round(width, TD_UNIT);
    if (row < width || row > SIZE_MAX / height) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    TD_TRY(allocate(context, row * height, addr));
    *pitch = row;
    return CU_SUCCESS;
}

/* The entry that begins at addr, with its lock released: whoever frees it twice at once is wrong
 * on CUDA, too. */
static cu_result look(uint64_t addr, td_entry *entry) {
    pthread_mutex_lock(&td_lock);
    const td_entry *e = td_table_at(addr);
    if (e) {
        *entry = *e;
    }
    pthread_mutex_unlock(&td_lock);
    return e ? CU_SUCCESS : CU_ERROR_INVALID_VALUE;
}

static cu_result free_host(const td_entry *entry);

cu_result cuMemFree_v2(cu_deviceptr addr) {
    td_context *context;
    td_entry entry;
    TD_TRY(td_enter_context(__func__, &context));
    if (!addr) {
        return CU_SUCCESS;
    }
    TD_TRY(look(addr, &entry));
    if (entry.kind != TD_MEMORY && entry.kind != TD_SMALL && entry.kind != TD_ASYNC &&
        entry.kind != TD_MANAGED) {
        return CU_ERROR_INVALID_VALUE;
    }
    TD_TRY(td_context_wait(entry.context && entry.context->live ? entry.context : context));
    if (entry.kind == TD_MANAGED) {
        return free_host(&entry);
    }
    pthread_mutex_lock(&td_lock);
    td_entry *e = td_table_at(addr);
    cu_result result = CU_SUCCESS;
    if (!e || e->kind != entry.kind) {
        result = CU_ERROR_INVALID_VALUE;
    } else if (e->kind == TD_ASYNC) {
        result = td_pool_free(e);
    } else {
        give_back(&entry);
    }
    pthread_mutex_unlock(&td_lock);
    return result;
}

cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(free_bytes && total_bytes);
    uint64_t free_now, total;
    td_card_free_bytes(context->card, &free_now, &total);
    *free_bytes = free_now;
    *total_bytes = total;
    return CU_SUCCESS;
}

/* ---- host memory ---- */

static cu_result add_host(td_context *context, void *ptr, size_t size, enum td_kind kind) {
    const td_entry entry = {.addr = (uintptr_t)ptr,
                            .size = size,
                            .room = size,
                            .kind = kind,
                            .card = context->card,
                            .context = context};
    pthread_mutex_lock(&td_lock);
    cu_result result = td_table_add(&entry);
    pthread_mutex_unlock(&td_lock);
    return result;
}

static cu_result allocate_host(const char *symbol, void **ptr, size_t size, enum td_kind kind) {
    td_context *context;
    TD_TRY(td_enter_context(symbol, &context));
    TD_NEED(ptr && size);
    TD_TRY(td_forbid_capture(context));
    cen_device *device = context->card->device;
    void *made;
    TD_TRY(td_result(ceni_backend_host.pinned_alloc(device, size, &made)));
    cu_result result = add_host(context, made, size, kind);
    if (result == CU_SUCCESS) {
        *ptr = made;
    } else {
        ceni_backend_host.pinned_free(device, made);
    }
    return result;
}

static cu_result free_host(const td_entry *entry) {
    pthread_mutex_lock(&td_lock);
    td_table_remove(entry->addr);
    pthread_mutex_unlock(&td_lock);
    void *ptr = (void *)(uintptr_t)entry->addr;
    return td_result(entry->kind == TD_REGISTERED
                         ? ceni_backend_host.pinned_unregister(entry->card->device, ptr)
                         : ceni_backend_host.pinned_free(entry->card->device, ptr));
}

cu_result cuMemHostAlloc(void **ptr, size_t size, unsigned flags) {
    return flags & ~7u ? CU_ERROR_INVALID_VALUE : allocate_host(__func__, ptr, size, TD_PINNED);
}

cu_result cuMemAllocHost_v2(void **ptr, size_t size) {
    return allocate_host(__func__, ptr, size, TD_PINNED);
}

cu_result cuMemAllocManaged(cu_deviceptr *addr, size_t size, unsigned flags) {
    TD_NEED(addr && (flags == CU_ATTACH_GLOBAL || flags == CU_ATTACH_HOST));
    void *ptr;
    TD_TRY(allocate_host(__func__, &ptr, size, TD_MANAGED));
    *addr = (uintptr_t)ptr;
    return CU_SUCCESS;
}

cu_result cuMemFreeHost(void *ptr) {
    td_context *context;
    td_entry entry;
    TD_TRY(td_enter_context(__func__, &context));
    TD_TRY(look((uintptr_t)ptr, &entry));
    if (entry.kind != TD_PINNED) {
        return CU_ERROR_INVALID_VALUE;
    }
    TD_TRY(td_context_wait(context));
    return free_host(&entry);
}

cu_result cuMemHostRegister_v2(void *ptr, size_t size, unsigned flags) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(ptr && size);
    TD_TRY(td_forbid_capture(context));
    cen_device *device = context->card->device;
    cen_status status = ceni_backend_host.pinned_register(device, ptr, size);
    if (status == CEN_ERR_BUSY) {
        return CU_ERROR_ALREADY_REGISTERED;
    }
    TD_TRY(td_result(status));
    cu_result result = add_host(context, ptr, size, TD_REGISTERED);
    if (result != CU_SUCCESS) {
        ceni_backend_host.pinned_unregister(device, ptr);
    }
    return result;
}

cu_result cuMemHostUnregister(void *ptr) {
    td_context *context;
    td_entry entry;
    TD_TRY(td_enter_context(__func__, &context));
    if (look((uintptr_t)ptr, &entry) != CU_SUCCESS || entry.kind != TD_REGISTERED) {
        return CU_ERROR_NOT_REGISTERED;
    }
    return free_host(&entry);
}

cu_result cuMemHostGetDevicePointer_v2(cu_deviceptr *addr, void *ptr, unsigned flags) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(addr && !flags);
    pthread_mutex_lock(&td_lock);
    const td_entry *e = td_table_holds((uintptr_t)ptr);
    bool host = e && (e->kind == TD_PINNED || e->kind == TD_REGISTERED);
    pthread_mutex_unlock(&td_lock);
    if (!host) {
        return CU_ERROR_INVALID_VALUE;
    }
    *addr = (uintptr_t)ptr;
    return CU_SUCCESS;
}

void td_memory_end_context(td_context *context) {
    for (size_t i = 0; td_table_get(i);) {
        const td_entry entry = *td_table_get(i);
        if (entry.context != context || entry.kind == TD_ASYNC || entry.kind == TD_FREED ||
            entry.kind == TD_MAPPED) {
            i++;
            continue;
        }
        void *ptr = (void *)(uintptr_t)entry.addr;
        switch (entry.kind) {
        case TD_MEMORY:
        case TD_SMALL:
            give_back(&entry);
            break;
        case TD_REGISTERED:
            td_table_remove(entry.addr);
            ceni_backend_host.pinned_unregister(entry.card->device, ptr);
            break;
        case TD_OPENED:
            td_view_close(&entry);
            break;
        default:
            td_table_remove(entry.addr);
            ceni_backend_host.pinned_free(entry.card->device, ptr);
        }
    }
    td_arena_clear(&context->small);
}

/* ---- arrays ---- */

static size_t format_bytes(cu_enum format) {
    switch (format) {
    case CU_FORMAT_UINT8:
    case CU_FORMAT_SINT8:
        return 1;
    case CU_FORMAT_UINT16:
    case CU_FORMAT_SINT16:
    case CU_FORMAT_HALF:
        return 2;
    case CU_FORMAT_UINT32:
    case CU_FORMAT_SINT32:
    case CU_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

/* An array's handle is the address of its memory. */
static cu_result create_array(const char *symbol, cu_array *array, const cu_array3d_desc *d) {
    td_context *context;
    TD_TRY(td_enter_context(symbol, &context));
    TD_NEED(array && d->width && d->channels && d->channels <= 4 && format_bytes(d->format));
    const size_t limit = (size_t)1 << 20;
    if (d->width > limit || d->height > limit || d->depth > limit) {
        return CU_ERROR_INVALID_VALUE;
    }
    size_t rows = (d->height ? d->height : 1) * (d->depth ? d->depth : 1);
    size_t row = td_round(d->width * d->channels * format_bytes(d->format), TD_UNIT);
    if (rows > SIZE_MAX / row) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    cu_deviceptr addr;
    TD_TRY(allocate(context, rows * row, &addr));
    *array = (cu_array)(uintptr_t)addr;
    return CU_SUCCESS;
}

cu_result cuArray3DCreate_v2(cu_array *array, const cu_array3d_desc *desc) {
    TD_NEED(desc);
    return create_array(__func__, array, desc);
}

cu_result cuArrayCreate_v2(cu_array *array, const cu_array_desc *desc) {
    TD_NEED(desc);
    const cu_array3d_desc wide = {.width = desc->width,
                                  .height = desc->height,
                                  .format = desc->format,
                                  .channels = desc->channels};
    return create_array(__func__, array, &wide);
}

cu_result cuArrayDestroy(cu_array array) {
    cu_result result = cuMemFree_v2((uintptr_t)array);
    return result == CU_ERROR_INVALID_VALUE || !array ? CU_ERROR_INVALID_HANDLE : result;
}
