/* Replaying a recorded history through the pool on the host backend.
 *
 * The recorded calls are made one at a time, by stream, with no look-ahead at what comes after
 * them; contents are never touched. A block freed while a stream still used it becomes free when
 * the recording says that it did. */
#ifndef CENOTE_CLI_REPLAY_H
#define CENOTE_CLI_REPLAY_H

#include "cenote/cenote.h"

typedef struct replay_options {
    uint64_t cap_bytes;  /* 0: none */
    uint64_t page_bytes; /* 0: the pool's own choice */
} replay_options;

/* What the recording itself shows (replay_recorded.c). */
typedef struct replay_recorded {
    uint64_t requested_peak_bytes; /* live from alloc to free_completed */
    uint64_t reserved_peak_bytes;
    uint64_t largest_hole_bytes; /* at the moment that matters */
    size_t moment;               /* event index: the first OOM, else the peak of requested */
    bool oom;
    uint64_t oom_requested_bytes, oom_live_bytes, oom_stream;
    uint64_t driver_calls; /* segments made, freed, mapped and unmapped */
} replay_recorded;

typedef struct replay_result {
    uint64_t requested_peak_bytes;
    uint64_t reserved_peak_bytes;
    uint64_t largest_hole_bytes; /* at the moment that matters */
    uint64_t remapped_bytes;
    uint64_t driver_calls;
    double driver_seconds, driver_seconds_second_half; /* by the cost model */
    double recorded_seconds, recorded_seconds_second_half;
    size_t skipped_frees; /* of blocks that nothing accounts for */
    bool tried_oom;       /* the failed request was made, under the cap */
    bool fits;
    uint64_t spare_bytes;  /* fits: what the cap leaves; else: what lacks */
    uint64_t failed_event; /* else SIZE_MAX: an earlier event could not be served under the cap */
} replay_result;

cen_status replay_examine(const cen_snapshot_device *device, replay_recorded *recorded);
cen_status replay_run(const cen_snapshot_device *device, const replay_recorded *recorded,
                      const replay_options *options, replay_result *result);

#endif
