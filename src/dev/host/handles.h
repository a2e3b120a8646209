/* Handles for objects: an index and a generation, so that a handle used after its object is gone is
 * told from every other, instead of being dereferenced. The caller locks. */
#ifndef CENI_HOST_HANDLES_H
#define CENI_HOST_HANDLES_H

#include <stddef.h>
#include <stdint.h>

typedef struct host_handle_slot {
    void *object; /* NULL: free */
    uint32_t generation;
    uint32_t next_free; /* 1 + index, 0: none */
} host_handle_slot;

typedef struct host_handles {
    host_handle_slot *slots;
    size_t count, capacity;
    uint32_t first_free; /* 1 + index, 0: none */
} host_handles;

/* A handle, never 0; 0 when host memory is exhausted. */
uint64_t ceni_host_handle_add(host_handles *handles, void *object);
/* NULL if there is no such handle (any more). */
void *ceni_host_handle_get(const host_handles *handles, uint64_t handle);
void ceni_host_handle_remove(host_handles *handles, uint64_t handle);
/* The handle in slot `index` < count; 0 if the slot is free. */
uint64_t ceni_host_handle_at(const host_handles *handles, size_t index);
void ceni_host_handles_free(host_handles *handles);

#endif
