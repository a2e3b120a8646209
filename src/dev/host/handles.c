#include "dev/host/handles.h"

#include "base/mem.h"

static host_handle_slot *find(const host_handles *handles, uint64_t handle) {
    uint64_t index = (handle & UINT32_MAX) - 1;
    if (index >= handles->count) {
        return NULL;
    }
    host_handle_slot *slot = &handles->slots[index];
    return slot->object && slot->generation == handle >> 32 ? slot : NULL;
}

uint64_t ceni_host_handle_add(host_handles *handles, void *object) {
    if (!handles->first_free) {
        if (handles->count >= UINT32_MAX - 1 ||
            ceni_grow(&handles->slots, &handles->capacity, handles->count + 1,
                      sizeof *handles->slots)) {
            return 0;
        }
        handles->slots[handles->count++] = (host_handle_slot){0};
        handles->first_free = (uint32_t)handles->count;
    }
    uint32_t number = handles->first_free;
    host_handle_slot *slot = &handles->slots[number - 1];
    handles->first_free = slot->next_free;
    slot->object = object;
    slot->generation++;
    return (uint64_t)slot->generation << 32 | number;
}

void *ceni_host_handle_get(const host_handles *handles, uint64_t handle) {
    const host_handle_slot *slot = find(handles, handle);
    return slot ? slot->object : NULL;
}

void ceni_host_handle_remove(host_handles *handles, uint64_t handle) {
    host_handle_slot *slot = find(handles, handle);
    if (slot) {
        slot->object = NULL;
        slot->next_free = handles->first_free;
        handles->first_free = (uint32_t)(handle & UINT32_MAX);
    }
}

uint64_t ceni_host_handle_at(const host_handles *handles, size_t index) {
    const host_handle_slot *slot = &handles->slots[index];
    return slot->object ? (uint64_t)slot->generation << 32 | (index + 1) : 0;
}

void ceni_host_handles_free(host_handles *handles) {
    ceni_free(handles->slots);
    *handles = (host_handles){0};
}
