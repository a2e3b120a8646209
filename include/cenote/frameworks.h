/* The local pool as the C functions that frameworks take for an allocator without streams, such as
 * CuPy's CFunctionAllocator: void *malloc(void *param, size_t bytes, int device).
 *
 * All work is taken to be on the default stream: a block is freed for reuse by later work there. A
 * program that uses other streams needs an allocator that is told which. Any thread may call. */
#ifndef CENOTE_FRAMEWORKS_H
#define CENOTE_FRAMEWORKS_H

#include <stddef.h>

#include "cenote/pool.h"
#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CEN_FRAMEWORKS_DEVICES 64

/* What `param` points to: the pool of each device by its number, NULL where there is none. It is
 * the caller's, who puts pools in before they are used and keeps them until their blocks are
 * free. */
typedef struct cen_frameworks_pools {
    cen_pool *pools[CEN_FRAMEWORKS_DEVICES];
} cen_frameworks_pools;

/* A block of the device's pool. NULL: 0 bytes; there is no room, or no pool for the device (the log
 * says why, and cen_log_last_error). */
CEN_API void *cen_frameworks_malloc(void *pools, size_t bytes, int device);

/* Frees it; NULL is ignored. What is no live block of the device's pool stays as it is (the log
 * says so). */
CEN_API void cen_frameworks_free(void *pools, void *block, int device);

#ifdef __cplusplus
}
#endif
#endif
