/* Stacks that are the same in several snapshots, and what each rank has live of them.
 *
 * A stack's key is a hash of its frames' files, functions and lines. The first rank that has
 * something of a stack has it copied; the copy outlives the rank's snapshot. */
#include "trace/diagnose_ranks.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t hash, uint64_t value) {
    return (hash ^ value) * 0x100000001b3u;
}

uint64_t ceni_stack_key(const cen_snapshot *snapshot, uint32_t stack) {
    size_t count = 0;
    const cen_frame *frames =
        stack == CEN_NO_STACK ? NULL : cen_snapshot_stack(snapshot, stack, &count);
    uint64_t key = mix(CENI_HASH_START, count);
    for (size_t i = 0; i < count; i++) {
        key = ceni_hash_text(key, frames[i].file);
        key = ceni_hash_text(key, frames[i].function);
        key = mix(key, frames[i].line);
    }
    return key;
}

static char *put_text(char **at, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);
    *at += size;
    return copy;
}

/* Frames and their strings in one block. */
static cen_frame *copy_frames(const cen_frame *frames, size_t count) {
    size_t size = count * sizeof *frames;
    for (size_t i = 0; i < count; i++) {
        size += strlen(frames[i].file) + strlen(frames[i].function) + 2;
    }
    cen_frame *copy = ceni_malloc(size);
    char *text = (char *)(copy + count);
    for (size_t i = 0; copy && i < count; i++) {
        copy[i].file = put_text(&text, frames[i].file);
        copy[i].function = put_text(&text, frames[i].function);
        copy[i].line = frames[i].line;
    }
    return copy;
}

static cen_status add_stack(ceni_ranks *ranks, const cen_snapshot *snapshot, uint32_t stack,
                            ceni_kind kind) {
    ceni_rank_stack s = {.owner = {.kind = kind, .what = ""}, .origin = ceni_origin_of(snapshot)};
    if (ceni_grow(&ranks->stacks, &ranks->stack_capacity, ranks->stack_count + 1,
                  sizeof *ranks->stacks)) {
        return CEN_ERR_HOST_MEMORY;
    }
    if (stack != CEN_NO_STACK) {
        const cen_frame *frames = cen_snapshot_stack(snapshot, stack, &s.frame_count);
        s.frames = copy_frames(frames, s.frame_count);
        if (!s.frames) {
            return CEN_ERR_HOST_MEMORY;
        }
        s.owner.kind = ceni_frames_kind(s.frames, s.frame_count, s.origin, &s.owner.what);
        s.owner.user = ceni_frames_user(s.frames, s.frame_count, s.origin);
    }
    ranks->stacks[ranks->stack_count++] = s;
    return CEN_OK;
}

cen_status ceni_ranks_stack(ceni_ranks *ranks, const cen_snapshot *snapshot, uint32_t stack,
                            ceni_kind kind, size_t *index) {
    uint64_t key = stack == CEN_NO_STACK ? kind : ceni_stack_key(snapshot, stack);
    const uint64_t *found = ceni_map_get(&ranks->by_key, key);
    *index = found ? *found : ranks->stack_count;
    if (found) {
        return CEN_OK;
    }
    if (ceni_map_put(&ranks->by_key, key, *index)) {
        return CEN_ERR_HOST_MEMORY;
    }
    return add_stack(ranks, snapshot, stack, kind);
}

static int by_stack(const void *a, const void *b) {
    const ceni_rank_use *x = a, *y = b;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* Sums of one rank, by the slots of its own snapshot. */
static void add_up(const ceni_diag *diag, ceni_rank_use *slots) {
    for (size_t i = 0; i < diag->record_count; i++) {
        ceni_rank_use *slot = &slots[ceni_record_slot(diag, &diag->records[i])];
        slot->bytes += diag->records[i].size;
        slot->blocks++;
    }
    if (diag->request) {
        ceni_record request = ceni_request_record(diag);
        ceni_rank_use *slot = &slots[ceni_record_slot(diag, &request)];
        slot->bytes += request.size;
        slot->blocks++;
    }
}

/* Keeps the slots in use, at the front, and gives them the stacks of all ranks. */
static cen_status name_slots(ceni_ranks *ranks, const ceni_diag *diag, ceni_rank_use *slots,
                             size_t slot_count, size_t *used) {
    size_t stacks = cen_snapshot_stack_count(diag->snapshot);
    *used = 0;
    for (size_t i = 0; i < slot_count; i++) {
        if (!slots[i].blocks) {
            continue;
        }
        uint32_t stack = i < stacks ? (uint32_t)i : CEN_NO_STACK;
        ceni_kind kind = i < stacks ? CENI_KIND_TENSORS : (ceni_kind)(i - stacks);
        ceni_rank_use use = slots[i];
        if (ceni_ranks_stack(ranks, diag->snapshot, stack, kind, &use.stack)) {
            return CEN_ERR_HOST_MEMORY;
        }
        slots[(*used)++] = use;
    }
    return CEN_OK;
}

cen_status ceni_ranks_uses(ceni_ranks *ranks, ceni_rank *rank, const ceni_diag *diag) {
    size_t count = cen_snapshot_stack_count(diag->snapshot) + CENI_KINDS, used;
    ceni_rank_use *slots = ceni_calloc(count, sizeof *slots);
    if (!slots) {
        return CEN_ERR_HOST_MEMORY;
    }
    add_up(diag, slots);
    cen_status status = name_slots(ranks, diag, slots, count, &used);
    if (!status) {
        rank->uses = ceni_malloc(used * sizeof *rank->uses);
        status = rank->uses ? CEN_OK : CEN_ERR_HOST_MEMORY;
    }
    if (!status) {
        memcpy(rank->uses, slots, used * sizeof *slots);
        qsort(rank->uses, used, sizeof *rank->uses, by_stack);
        rank->use_count = used;
    }
    ceni_free(slots);
    return status;
}
