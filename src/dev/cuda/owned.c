/* What a device object made and still holds: closing it releases what its user left, and a handle
 * that is not ours is refused where the driver would take it for another's.
 *
 * Open addressing with linear probing; a removal shifts the entries behind it back, so no
 * tombstones. At most half full. A lookup is a few cache lines, small beside any driver call. */
#include "dev/cuda/backend.h"

#include "base/mem.h"

static size_t home(const ceni_cuda_owned *owned, enum ceni_cuda_kind kind, uint64_t handle) {
    uint64_t hash = (handle + (uint64_t)kind) * 0x9E3779B97F4A7C15u;
    return (size_t)(hash >> 32) & (owned->capacity - 1);
}

/* The slot that holds (kind, handle), or the free one where it belongs. */
static ceni_cuda_thing *probe(ceni_cuda_owned *owned, enum ceni_cuda_kind kind, uint64_t handle) {
    size_t i = home(owned, kind, handle);
    while (owned->slots[i].kind != CENI_CUDA_NOTHING &&
           (owned->slots[i].kind != kind || owned->slots[i].handle != handle)) {
        i = (i + 1) & (owned->capacity - 1);
    }
    return &owned->slots[i];
}

static bool grow(ceni_cuda_owned *owned) {
    size_t capacity = owned->capacity ? owned->capacity * 2 : 64;
    ceni_cuda_owned grown = {.capacity = capacity,
                             .slots = ceni_calloc(capacity, sizeof *grown.slots)};
    if (!grown.slots) {
        return false;
    }
    for (size_t i = 0; i < owned->capacity; i++) {
        const ceni_cuda_thing *thing = &owned->slots[i];
        if (thing->kind != CENI_CUDA_NOTHING) {
            *probe(&grown, thing->kind, thing->handle) = *thing;
        }
    }
    ceni_free(owned->slots);
    owned->slots = grown.slots;
    owned->capacity = capacity;
    return true;
}

static void remove_at(ceni_cuda_owned *owned, size_t hole) {
    size_t mask = owned->capacity - 1;
    for (size_t i = (hole + 1) & mask; owned->slots[i].kind != CENI_CUDA_NOTHING;
         i = (i + 1) & mask) {
        size_t from = home(owned, owned->slots[i].kind, owned->slots[i].handle);
        if (((i - from) & mask) >= ((i - hole) & mask)) {
            owned->slots[hole] = owned->slots[i];
            hole = i;
        }
    }
    owned->slots[hole].kind = CENI_CUDA_NOTHING;
    owned->count--;
}

bool ceni_cuda_own(ceni_cuda_device *self, enum ceni_cuda_kind kind, uint64_t handle,
                   uint64_t size) {
    ceni_cuda_owned *owned = &self->owned;
    pthread_mutex_lock(&owned->lock);
    bool ok = owned->count * 2 < owned->capacity || grow(owned);
    if (ok) {
        ceni_cuda_thing *slot = probe(owned, kind, handle);
        if (slot->kind == CENI_CUDA_NOTHING) {
            *slot = (ceni_cuda_thing){.handle = handle, .kind = kind};
            owned->count++;
        }
        slot->size = size;
        slot->refs++;
    }
    pthread_mutex_unlock(&owned->lock);
    return ok;
}

uint64_t ceni_cuda_disown(ceni_cuda_device *self, enum ceni_cuda_kind kind, uint64_t handle) {
    ceni_cuda_owned *owned = &self->owned;
    uint64_t size = 0;
    pthread_mutex_lock(&owned->lock);
    if (owned->count) {
        ceni_cuda_thing *slot = probe(owned, kind, handle);
        if (slot->kind != CENI_CUDA_NOTHING) {
            size = slot->size;
            if (--slot->refs == 0) {
                remove_at(owned, (size_t)(slot - owned->slots));
            }
        }
    }
    pthread_mutex_unlock(&owned->lock);
    return size;
}

uint64_t ceni_cuda_size_of(ceni_cuda_device *self, enum ceni_cuda_kind kind, uint64_t handle) {
    ceni_cuda_owned *owned = &self->owned;
    pthread_mutex_lock(&owned->lock);
    const ceni_cuda_thing *slot = owned->count ? probe(owned, kind, handle) : NULL;
    uint64_t size = slot && slot->kind != CENI_CUDA_NOTHING ? slot->size : 0;
    pthread_mutex_unlock(&owned->lock);
    return size;
}

bool ceni_cuda_any_within(ceni_cuda_device *self, enum ceni_cuda_kind kind, uint64_t from,
                          uint64_t size) {
    ceni_cuda_owned *owned = &self->owned;
    bool found = false;
    pthread_mutex_lock(&owned->lock);
    for (size_t i = 0; i < owned->capacity && !found; i++) {
        const ceni_cuda_thing *thing = &owned->slots[i];
        found = thing->kind == kind && thing->handle - from < size;
    }
    pthread_mutex_unlock(&owned->lock);
    return found;
}
