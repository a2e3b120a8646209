/* The cost model: what driver calls cost beside running kernels on an H200, in microseconds
 * (docs/replay.md has the table and where it comes from). */
#include "cli/replay.h"

/* By call and by handle, in the order of cen_pool_stats.driver_handles. */
enum { RESERVE, CREATE, MAP, ACCESS, UNMAP, RELEASE, KINDS };
static const double call_us[KINDS] = {10, 0, 0, 180, 125, 0};
static const double handle_us[KINDS] = {0, 130, 25, 40, 23, 100};

/* cudaMalloc and cudaFree of a whole segment; that cudaFree waits for all work is not in it. */
static const double malloc_us = 330, free_us = 73;

/* PyTorch's expandable segments are made of handles of 2 MiB for small blocks, else of 20 MiB. */
static const uint64_t small_handle = 2u << 20, large_handle = 20u << 20;

double replay_pool_us(const cen_pool_stats *stats) {
    double us = 0;
    for (size_t i = 0; i < KINDS; i++) {
        us += call_us[i] * (double)stats->driver_kind_calls[i] +
              handle_us[i] * (double)stats->driver_handles[i];
    }
    return us;
}

double replay_segment_us(const cen_trace_event *event, uint64_t *calls) {
    uint64_t unit = event->size % large_handle ? small_handle : large_handle;
    uint64_t handles = event->size / unit + (event->size % unit != 0);
    switch (event->action) {
    case CEN_ACTION_SEGMENT_ALLOC:
        *calls += 1;
        return malloc_us;
    case CEN_ACTION_SEGMENT_FREE:
        *calls += 1;
        return free_us;
    case CEN_ACTION_SEGMENT_MAP: /* creates and maps each handle, and grants access to all */
        *calls += 2 * handles + 1;
        return (double)handles * (handle_us[CREATE] + handle_us[MAP] + handle_us[ACCESS]) +
               call_us[ACCESS];
    case CEN_ACTION_SEGMENT_UNMAP: /* unmaps and releases one handle after the other */
        *calls += 2 * handles;
        return (double)handles * (call_us[UNMAP] + handle_us[UNMAP] + handle_us[RELEASE]);
    default:
        return 0;
    }
}
