/* Replaying a recorded history through the pool on the host backend.
 *
 * The recorded calls are made one at a time, by stream, with no look-ahead at what comes after
 * them; contents are never touched. A block freed while a stream still used it becomes free when
 * the recording says that it did. docs/replay.md says what that simulates and what not. */
#ifndef CENOTE_CLI_REPLAY_H
#define CENOTE_CLI_REPLAY_H

#include "cenote/cenote.h"

/* What the replay does, for tests that look on. */
typedef enum replay_act {
    REPLAY_ALLOCATED, /* a block was handed out for `stream` */
    REPLAY_FREEING,   /* it is about to be freed; work put on `stream` now is its last use */
    REPLAY_ENDED,     /* the recording says that its free is complete */
} replay_act;

typedef struct replay_call {
    replay_act act;
    cen_device *device;
    cen_pool *pool;
    cen_addr block;
    uint64_t size;
    cen_stream stream;
} replay_call;

typedef struct replay_options {
    uint64_t cap_bytes;       /* 0: none */
    uint64_t page_bytes;      /* 0: the pool's own choice */
    uint32_t stream_delay_us; /* over 0: streams are threads, and as late as this */
    void (*observe)(void *arg, const replay_call *call);
    void *observe_arg;
} replay_options;

/* What the recording itself shows (replay_recorded.c). */
typedef struct replay_recorded {
    uint64_t requested_peak_bytes; /* live from alloc to free_completed */
    uint64_t reserved_peak_bytes;
    bool reserved_unknown;       /* no segments recorded: nor are holes and driver calls known */
    uint64_t largest_hole_bytes; /* at the moment that matters */
    size_t moment;               /* event index: the last OOM, else after the peak of requested */
    bool oom;
    uint64_t driver_calls;               /* for segments made, freed, mapped and unmapped */
    double driver_seconds;               /* by the cost model */
    size_t operations;                   /* initial blocks + allocs + completed frees */
    size_t half_event;                   /* the event at which the second half of them begins */
    double driver_second_half;           /* of driver_seconds */
    double seconds, second_half_seconds; /* by the recording's clock; 0: it has none */
} replay_recorded;

/* Under a cap: whether everything fits, and the place that decides it. */
typedef enum replay_fit {
    REPLAY_FITS,
    REPLAY_LACKS_FAILED, /* a request that failed when recorded fails again */
    REPLAY_LACKS_SERVED, /* one that was served when recorded cannot be */
} replay_fit;

typedef struct replay_cap {
    replay_fit fit;
    size_t tried, served;  /* of the requests that failed when recorded */
    uint64_t margin_bytes; /* fits: what the cap leaves at the tightest; else: what lacks */
    /* The request that lacks, or of those that failed when recorded the tightest. */
    bool at_request;
    size_t event; /* SIZE_MAX: a block alive before the first event */
    uint32_t stack;
    uint64_t requested_bytes;
    uint64_t live_bytes, reserved_bytes, pending_bytes, largest_free_bytes; /* before it */
} replay_cap;

typedef struct replay_result {
    uint64_t requested_peak_bytes;
    uint64_t reserved_peak_bytes;
    uint64_t largest_hole_bytes; /* at the moment that matters */
    uint64_t remapped_bytes;
    uint64_t driver_calls;
    double driver_seconds, driver_seconds_second_half; /* by the cost model */
    size_t unknown_frees; /* of blocks that nothing accounts for: not made */
    size_t lost_frees;    /* addresses handed out again with no free: live to the end */
    size_t pending_frees; /* frees still incomplete at the end */
    uint64_t private_ids; /* private pools used */
    replay_cap cap;       /* if options.cap_bytes */
} replay_result;

cen_status replay_examine(const cen_snapshot_device *device, replay_recorded *recorded);

/* CEN_ERR_DEVICE_MEMORY cannot come back under a cap: that is in result->cap. */
cen_status replay_run(const cen_snapshot_device *device, const replay_recorded *recorded,
                      const replay_options *options, replay_result *result);

/* Driver time by the cost model, in microseconds (replay_cost.c): the pool's calls, and those that
 * the recorded allocator made for one segment event. */
double replay_pool_us(const cen_pool_stats *stats);
double replay_segment_us(const cen_trace_event *event, uint64_t *calls);

#endif
