/* What holds of every snapshot that was read, whatever the bytes were. */
#ifndef SNAPSHOT_CHECKS_H
#define SNAPSHOT_CHECKS_H

#include "cenote/snapshot.h"

#include "base/map.h"

#include <stdlib.h>
#include <string.h>

static inline void require(bool holds) {
    if (!holds) {
        abort();
    }
}

static inline void check_stack(const cen_snapshot *snapshot, uint32_t stack) {
    size_t count;
    const cen_frame *frames = cen_snapshot_stack(snapshot, stack, &count);
    require(stack == CEN_NO_STACK ? !frames && !count : frames && count);
    for (size_t i = 0; i < count; i++) {
        require(strlen(frames[i].file) + strlen(frames[i].function) < SIZE_MAX);
    }
}

static inline void check_device(const cen_snapshot *snapshot, const cen_snapshot_device *device) {
    size_t block = 0;
    require(device->event_count || device->segment_count);
    for (size_t i = 0; i < device->segment_count; i++) {
        const cen_snapshot_segment *segment = &device->segments[i];
        require(!i || segment[-1].addr <= segment->addr);
        require(segment->first_block == block);
        block += segment->block_count;
    }
    require(block == device->block_count);
    for (size_t i = 0; i < device->block_count; i++) {
        require(device->blocks[i].state <= CEN_BLOCK_PENDING_FREE);
        check_stack(snapshot, device->blocks[i].stack);
    }
    for (size_t i = 0; i < device->event_count; i++) {
        require(device->events[i].action <= CEN_ACTION_OTHER);
        check_stack(snapshot, device->events[i].stack);
    }
    for (size_t i = 0; i < device->initial_count; i++) {
        require(!i || device->initial[i - 1].addr < device->initial[i].addr);
        check_stack(snapshot, device->initial[i].stack);
    }
    for (size_t i = 0; i < device->annotation_count; i++) {
        require(!i || device->annotations[i - 1].time_us <= device->annotations[i].time_us);
        require(device->annotations[i].name);
    }
}

/* Forward, in the simplest way: the reader counts them while it goes backward. */
static inline void check_history(const cen_snapshot_device *device) {
    ceni_map live = {0};
    size_t unknown = 0;
    for (size_t i = 0; i < device->initial_count; i++) {
        require(!ceni_map_put(&live, device->initial[i].addr, 0));
    }
    for (size_t i = 0; i < device->event_count; i++) {
        const cen_trace_event *event = &device->events[i];
        if (event->action == CEN_ACTION_ALLOC) {
            require(!ceni_map_put(&live, event->addr, 0));
        } else if (event->action == CEN_ACTION_FREE_COMPLETED) {
            unknown += !ceni_map_remove(&live, event->addr, NULL);
        }
    }
    require(unknown == device->unknown_frees);
    ceni_map_free(&live);
}

/* Reads bytes; what they say, if they say anything, has to hold. */
static inline void check_bytes(const uint8_t *data, size_t size) {
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    cen_status status = cen_snapshot_read_memory("fuzz", data, size, &snapshot, &error);
    require(status == CEN_OK ? snapshot != NULL : !snapshot && error.message[0]);
    for (size_t i = 0; snapshot && i < cen_snapshot_device_count(snapshot); i++) {
        check_device(snapshot, cen_snapshot_get_device(snapshot, i));
        check_history(cen_snapshot_get_device(snapshot, i));
    }
    if (snapshot) {
        cen_snapshot_setting(snapshot, "expandable_segments");
    }
    cen_snapshot_free(snapshot);
}

#endif
