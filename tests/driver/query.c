/* What a pointer is. */
#include <string.h>

#include "tests/driver/td.h"

static bool on_device(const td_entry *e) {
    return e->kind != TD_PINNED && e->kind != TD_REGISTERED;
}

static cu_result attribute_of(const td_entry *e, cu_enum attribute, uint64_t addr, void *data) {
    uint64_t wide;
    unsigned narrow;
    size_t size = sizeof narrow;
    switch (attribute) {
    case CU_POINTER_CONTEXT:
        wide = (uintptr_t)e->context;
        size = sizeof wide;
        break;
    case CU_POINTER_DEVICE:
        wide = addr;
        size = sizeof wide;
        break;
    case CU_POINTER_HOST:
        if (e->kind != TD_PINNED && e->kind != TD_REGISTERED && e->kind != TD_MANAGED) {
            return CU_ERROR_INVALID_VALUE;
        }
        wide = addr;
        size = sizeof wide;
        break;
    case CU_POINTER_START:
        wide = e->addr;
        size = sizeof wide;
        break;
    case CU_POINTER_SIZE:
        wide = e->size;
        size = sizeof wide;
        break;
    case CU_POINTER_POOL:
        wide = (uintptr_t)e->pool;
        size = sizeof wide;
        break;
    case CU_POINTER_MEMORY_TYPE:
        narrow = on_device(e) ? CU_MEMORY_DEVICE : CU_MEMORY_HOST;
        break;
    case CU_POINTER_ORDINAL:
        narrow = (unsigned)e->card->ordinal;
        break;
    case CU_POINTER_MANAGED:
    case CU_POINTER_MAPPED: /* these two are of one byte */
        *(bool *)data = attribute == CU_POINTER_MAPPED || e->kind == TD_MANAGED;
        return CU_SUCCESS;
    default:
        return CU_ERROR_NOT_SUPPORTED;
    }
    memcpy(data, size == sizeof wide ? (const void *)&wide : (const void *)&narrow, size);
    return CU_SUCCESS;
}

static bool look(uint64_t addr, td_entry *entry) {
    pthread_mutex_lock(&td_lock);
    const td_entry *e = td_table_holds(addr);
    bool found = e && e->kind != TD_FREED;
    if (found) {
        *entry = *e;
    }
    pthread_mutex_unlock(&td_lock);
    return found;
}

cu_result cuPointerGetAttribute(void *data, cu_enum attribute, cu_deviceptr addr) {
    td_context *context;
    td_entry entry;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(data);
    return look(addr, &entry) ? attribute_of(&entry, attribute, addr, data)
                              : CU_ERROR_INVALID_VALUE;
}

/* Of memory that it does not know, the driver says 0 to everything. */
/* NOLINTNEXTLINE(readability-non-const-parameter): it is the driver's type */
cu_result cuPointerGetAttributes(unsigned count, cu_enum *attributes, void **data,
                                 cu_deviceptr addr) {
    td_context *context;
    td_entry entry;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(attributes && data);
    bool known = look(addr, &entry);
    for (unsigned i = 0; i < count; i++) {
        TD_NEED(data[i]);
        cu_enum a = attributes[i];
        if (!known || attribute_of(&entry, a, addr, data[i]) != CU_SUCCESS) {
            bool wide = a == CU_POINTER_CONTEXT || a == CU_POINTER_DEVICE || a == CU_POINTER_HOST ||
                        a == CU_POINTER_START || a == CU_POINTER_SIZE || a == CU_POINTER_POOL;
            bool byte = a == CU_POINTER_MANAGED || a == CU_POINTER_MAPPED;
            memset(data[i], 0, wide ? sizeof(uint64_t) : byte ? 1 : sizeof(unsigned));
        }
    }
    return CU_SUCCESS;
}

cu_result cuMemGetAddressRange_v2(cu_deviceptr *base, size_t *size, cu_deviceptr addr) {
    td_context *context;
    td_entry entry;
    TD_TRY(td_enter_context(__func__, &context));
    if (!look(addr, &entry) || !on_device(&entry)) {
        return CU_ERROR_NOT_FOUND;
    }
    if (base) {
        *base = entry.addr;
    }
    if (size) {
        *size = entry.size;
    }
    return CU_SUCCESS;
}
