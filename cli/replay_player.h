/* Inside the replay: what it keeps while it plays. */
#ifndef CENOTE_CLI_REPLAY_PLAYER_H
#define CENOTE_CLI_REPLAY_PLAYER_H

#include "cli/addrmap.h"
#include "cli/replay.h"

/* A stream of the host device that waits until the recording says that a free is complete: a block
 * that a stream still used when it was freed is used by such a stream. Open gates are used again.
 */
typedef struct replay_gate {
    cen_event event;
    cen_stream stream;
    bool closed;
} replay_gate;

typedef struct replay_player {
    const cen_snapshot_device *d;
    const replay_recorded *recorded;
    const replay_options *options;
    cen_device *device;
    cen_pool *pool;
    addrmap streams;    /* recorded stream -> entry whose size is the device's */
    addrmap privates;   /* private pools seen */
    addrmap unmade;     /* address of a private segment -> how often it is made from here on */
    addrmap live;       /* recorded address -> block */
    replay_gate *gates; /* from 1 */
    size_t gate_count, gate_capacity;
    uint32_t *open; /* of them */
    size_t open_count;
    bool *in_use; /* by event: a free requested while a stream still used the block */
    uint64_t live_bytes, now_us;
    size_t operations;
    double half_cost_us;
    replay_result result;
} replay_player;

/* The calls of the pool that a recorded event amounts to (replay_blocks.c). CEN_ERR_DEVICE_MEMORY
 * from replay_alloc: nothing changed. */
cen_status replay_find_in_use(const cen_snapshot_device *d, bool *in_use);
cen_status replay_stream(replay_player *p, uint64_t recorded, cen_stream *stream);
/* The private pool that an address belongs to now; 0: none. Only final segments tell their pool,
 * and an address may have been another segment's before its last one was made. */
cen_status replay_find_private(replay_player *p);
void replay_segment_made(replay_player *p, uint64_t addr);
uint64_t replay_private(const replay_player *p, uint64_t addr);
cen_status replay_obtain(replay_player *p, uint64_t id, uint64_t size, cen_stream stream,
                         void **block);
cen_status replay_alloc(replay_player *p, uint64_t addr, uint64_t size, uint64_t stream);
cen_status replay_free_in_use(replay_player *p, const cen_trace_event *ev);
cen_status replay_free_completed(replay_player *p, const cen_trace_event *ev);
/* Opens every gate that is still closed, so that nothing is waited for. */
void replay_open_gates(replay_player *p);
void replay_forget(replay_player *p);

#endif
