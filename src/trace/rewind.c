/* What was alive before the first event: the history run backwards from the final state.
 *
 * A block is live from `alloc` to `free_completed`. Backwards, an alloc takes its block away and a
 * free_completed brings it back with the event's size, so that address reuse needs no care: the
 * map holds at any moment what was live at that address then. It starts with the active blocks of
 * the final state. See docs/formats/snapshot.md for the rules of `truncated`. */
#include "trace/read.h"

#include "base/map.h"
#include "base/mem.h"

#include <stdlib.h>

/* What the map says of a live block: the free_completed event that ends it, or the block of the
 * final state that it is. */
static uint64_t live_until_event(size_t index) {
    return (uint64_t)index << 1 | 1;
}
static uint64_t live_at_end(size_t block) {
    return (uint64_t)block << 1;
}
static bool ends_by_event(uint64_t live) {
    return live & 1;
}

typedef struct walk {
    ceni_map live;
    int64_t reserved;
    bool too_large; /* segments of more than any address space: `reserved` has no meaning */
    size_t unknown_frees;
    /* frees whose alloc is known too, with frames: with the alloc's stack, with another one */
    size_t same_stack, other_stack;
} walk;

/* Sizes are at most 2^48, so that one more cannot overflow. */
static void add_reserved(walk *w, int64_t bytes) {
    const int64_t limit = INT64_C(1) << 62;
    if (w->reserved > limit || w->reserved < -limit) {
        w->too_large = true;
    } else {
        w->reserved += bytes;
    }
}

static int undo(const cen_snapshot_device *device, size_t index, walk *w) {
    const cen_trace_event *event = &device->events[index];
    uint64_t live, *found;
    switch (event->action) {
    case CEN_ACTION_ALLOC:
        if (ceni_map_remove(&w->live, event->addr, &live) && ends_by_event(live)) {
            uint32_t stack = device->events[live >> 1].stack;
            w->same_stack += stack == event->stack && stack != CEN_NO_STACK;
            w->other_stack += stack != event->stack;
        }
        return 0;
    case CEN_ACTION_FREE_COMPLETED:
        found = ceni_map_get(&w->live, event->addr);
        if (found) { /* the later free found nothing live, unless an alloc is missing */
            w->unknown_frees += ends_by_event(*found);
            *found = live_until_event(index);
            return 0;
        }
        return ceni_map_put(&w->live, event->addr, live_until_event(index));
    case CEN_ACTION_SEGMENT_ALLOC:
    case CEN_ACTION_SEGMENT_MAP:
        add_reserved(w, -(int64_t)event->size);
        return 0;
    case CEN_ACTION_SEGMENT_FREE:
    case CEN_ACTION_SEGMENT_UNMAP:
        add_reserved(w, (int64_t)event->size);
        return 0;
    default:
        return 0;
    }
}

static int load_final_state(const cen_snapshot_device *device, walk *w) {
    for (size_t i = 0; i < device->segment_count; i++) {
        add_reserved(w, (int64_t)device->segments[i].size);
    }
    for (size_t i = 0; i < device->block_count; i++) {
        if (device->blocks[i].state != CEN_BLOCK_INACTIVE &&
            ceni_map_put(&w->live, device->blocks[i].addr, live_at_end(i))) {
            return -1;
        }
    }
    return 0;
}

static int by_address(const void *left, const void *right) {
    const cen_initial_block *a = left, *b = right;
    return (a->addr > b->addr) - (a->addr < b->addr);
}

/* The stream of a block of the final state: its segment's. */
static uint64_t stream_of(const cen_snapshot_device *device, size_t block) {
    size_t low = 0, high = device->segment_count;
    while (high - low > 1) { /* first_block ascends with the address */
        size_t middle = low + (high - low) / 2;
        *(device->segments[middle].first_block <= block ? &low : &high) = middle;
    }
    return device->segments[low].stream;
}

static cen_initial_block initial_block(const cen_snapshot_device *device, uint64_t addr,
                                       uint64_t live) {
    if (ends_by_event(live)) {
        const cen_trace_event *event = &device->events[live >> 1];
        return (cen_initial_block){addr, event->size, event->stream, event->stack};
    }
    const cen_snapshot_block *block = &device->blocks[live >> 1];
    return (cen_initial_block){addr, block->requested, stream_of(device, live >> 1), block->stack};
}

/* A full ring buffer has the size that a user chose; users choose round numbers. */
static bool is_ring_size(size_t count) {
    return count && (count % 10000 == 0 || (count >= 1024 && (count & (count - 1)) == 0));
}

cen_status ceni_rewind(ceni_reader *reader, cen_snapshot_device *device) {
    walk w = {0};
    int failed = load_final_state(device, &w);
    for (size_t i = device->event_count; i-- > 0 && !failed;) {
        failed = undo(device, i, &w);
    }
    if (w.too_large) {
        ceni_map_free(&w.live);
        return ceni_read_fail(reader, CEN_ERR_FORMAT,
                              "device %d: segments of more than 2^62 bytes in all", device->device);
    }
    cen_initial_block *initial = failed ? NULL : ceni_malloc(w.live.count * sizeof *initial);
    if (!initial) {
        ceni_map_free(&w.live);
        return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory to rewind the history");
    }
    bool frees_carry_allocs = w.same_stack && !w.other_stack, recorded = false;
    size_t count = 0;
    for (size_t i = 0; i < w.live.capacity; i++) {
        const ceni_map_slot *slot = &w.live.slots[i];
        if (slot->used) {
            initial[count] = initial_block(device, slot->key, slot->value);
            recorded |= initial[count].stack != CEN_NO_STACK &&
                        (!ends_by_event(slot->value) || frees_carry_allocs);
            count++;
        }
    }
    ceni_map_free(&w.live);
    qsort(initial, count, sizeof *initial, by_address);
    device->initial = initial;
    device->initial_count = count;
    device->initial_reserved = w.reserved > 0 ? (uint64_t)w.reserved : 0;
    device->unknown_frees = w.unknown_frees;
    bool full = !reader->no_ring && is_ring_size(device->event_count) && count;
    device->truncated = device->event_count && (recorded || full);
    return CEN_OK;
}
