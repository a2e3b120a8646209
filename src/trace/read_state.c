/* What a device holds: pieces of memory as they are mapped and unmapped, and in the end segments
 * with their blocks. Pieces that lie side by side and are not a segment each (plain ones are) make
 * one segment, whose blocks may lie across them. */
#include "trace/read_trace.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_UNIT 512 /* what cenote's pool rounds a block's size up to */

/* The first piece that ends after addr. */
static size_t find(const ceni_final *f, uint64_t addr) {
    size_t low = 0, high = f->pieces.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->pieces.at[middle].end <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static cen_status insert(ceni_reader *reader, ceni_final *f, size_t at, const ceni_piece *piece) {
    if (CENI_ROOM(reader, f->pieces, 1)) {
        return reader->status;
    }
    memmove(&f->pieces.at[at + 1], &f->pieces.at[at], (f->pieces.count - at) * sizeof *piece);
    f->pieces.at[at] = *piece;
    f->pieces.count++;
    return CEN_OK;
}

cen_status ceni_final_unmap(ceni_reader *reader, ceni_final *f, uint64_t addr, uint64_t end) {
    size_t at = find(f, addr), gone = at;
    if (at < f->pieces.count && f->pieces.at[at].addr < addr) {
        ceni_piece rest = f->pieces.at[at];
        f->pieces.at[at].end = addr;
        if (rest.end > end) {
            rest.addr = end;
            return insert(reader, f, at + 1, &rest);
        }
        gone = ++at;
    }
    while (gone < f->pieces.count && f->pieces.at[gone].end <= end) {
        gone++;
    }
    if (gone < f->pieces.count && f->pieces.at[gone].addr < end) {
        f->pieces.at[gone].addr = end;
    }
    if (gone > at) {
        memmove(&f->pieces.at[at], &f->pieces.at[gone],
                (f->pieces.count - gone) * sizeof *f->pieces.at);
        f->pieces.count -= gone - at;
    }
    return CEN_OK;
}

/* What was there is no more, as where events were lost. */
cen_status ceni_final_map(ceni_reader *reader, ceni_final *f, const ceni_piece *piece) {
    return ceni_final_unmap(reader, f, piece->addr, piece->end)
               ? reader->status
               : insert(reader, f, find(f, piece->addr), piece);
}

static bool joins(const ceni_piece *left, const ceni_piece *right) {
    return left->end == right->addr && !left->plain && !right->plain &&
           left->stream == right->stream && left->pool[0] == right->pool[0] &&
           left->pool[1] == right->pool[1];
}

static cen_status put_block(ceni_reader *reader, const ceni_live *live, uint64_t addr,
                            uint64_t size) {
    if (CENI_ROOM(reader, reader->blocks, 1)) {
        return reader->status;
    }
    cen_snapshot_block block = {.addr = addr,
                                .size = size,
                                .requested = live ? live->size : size,
                                .stack = live ? live->stack : CEN_NO_STACK,
                                .state = (uint8_t)(!live           ? CEN_BLOCK_INACTIVE
                                                   : live->pending ? CEN_BLOCK_PENDING_FREE
                                                                   : CEN_BLOCK_ACTIVE)};
    reader->blocks.at[reader->blocks.count++] =
        (ceni_block_record){.block = block, .has_address = true, .has_requested = true};
    return CEN_OK;
}

/* The blocks of [addr, end), which they tile: live ones from *next on, and what is between. */
static cen_status put_blocks(ceni_reader *reader, const ceni_final *f, size_t *next, uint64_t addr,
                             uint64_t end) {
    while (*next < f->live.count && f->live.at[*next].addr < addr) {
        ++*next; /* where nothing is mapped: not cenote's memory */
    }
    for (uint64_t at = addr; at < end;) {
        const ceni_live *live =
            *next < f->live.count && f->live.at[*next].addr < end ? &f->live.at[*next] : NULL;
        uint64_t free_until = live ? live->addr : end;
        if (free_until > at && put_block(reader, NULL, at, free_until - at)) {
            return reader->status;
        }
        at = free_until;
        if (live) {
            ++*next;
            uint64_t after = *next < f->live.count && f->live.at[*next].addr < end
                                 ? f->live.at[*next].addr
                                 : end;
            uint64_t size = (live->size + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
            size = size && size < after - at ? size : after - at;
            if (put_block(reader, live, at, size)) {
                return reader->status;
            }
            at += size;
        }
    }
    return CEN_OK;
}

cen_status ceni_trace_list(ceni_reader *reader, enum ceni_object_kind kind, size_t first,
                           size_t count, ceni_value *list) {
    if (CENI_ROOM(reader, reader->runs, 1) || CENI_ROOM(reader, reader->lists, 1) ||
        CENI_ROOM(reader, reader->objects, 1)) {
        return reader->status;
    }
    ceni_items items = {.kind = CENI_EMPTY};
    if (count) {
        reader->runs.at[reader->runs.count++] = (ceni_run){.first = first, .count = count};
        items = (ceni_items){
            .head = reader->runs.count, .tail = reader->runs.count, .kind = (uint8_t)kind};
    }
    reader->lists.at[reader->lists.count] = items;
    reader->objects.at[reader->objects.count] = (uint64_t)reader->lists.count++ << 8 | CENI_ITEMS;
    *list = ceni_make(CENI_LIST, reader->objects.count++);
    return CEN_OK;
}

static cen_status put_segment(ceni_reader *reader, const ceni_final *f, size_t first, size_t last,
                              uint32_t device, size_t *next) {
    const ceni_piece *from = &f->pieces.at[first];
    uint64_t end = f->pieces.at[last].end;
    size_t blocks = reader->blocks.count;
    ceni_value list;
    if (put_blocks(reader, f, next, from->addr, end) ||
        ceni_trace_list(reader, CENI_BLOCK, blocks, reader->blocks.count - blocks, &list) ||
        CENI_ROOM(reader, reader->segments, 1)) {
        return reader->status;
    }
    reader->segments.at[reader->segments.count++] =
        (ceni_segment_record){.segment = {.addr = from->addr,
                                          .size = end - from->addr,
                                          .stream = from->stream,
                                          .pool_id = {from->pool[0], from->pool[1]},
                                          .expandable = !from->plain,
                                          .small = from->small},
                              .device = device,
                              .blocks = list};
    return CEN_OK;
}

cen_status ceni_final_put(ceni_reader *reader, ceni_final *f, uint32_t device) {
    size_t next = 0;
    for (size_t first = 0, last; first < f->pieces.count; first = last + 1) {
        last = first;
        while (last + 1 < f->pieces.count && joins(&f->pieces.at[last], &f->pieces.at[last + 1])) {
            last++;
        }
        if (put_segment(reader, f, first, last, device, &next)) {
            return reader->status;
        }
    }
    return CEN_OK;
}
