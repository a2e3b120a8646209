/* See trace/read_ledger.h. A device's memory is segments with blocks in them, as an allocator's:
 *
 *   entry    is a segment                        is a block
 *   SEGMENT  always                              never
 *   MEMORY   always                              where no blocks lie in it: none are known, or
 *                                                they lie in SEGMENTs
 *   BLOCK    where there is neither of them      always
 *   ASYNC    where there is no SEGMENT           always
 *
 * Where there are PAGEs, BLOCKs lie in those, and not in MEMORY; both are segments then.
 *
 * Others have no address. A CONTEXT, MODULE, GRAPH or ARRAY, and a PAGE or POOL of a device whose
 * blocks are not known, is a segment with one block at an address that nobody else has. Where the
 * blocks are known, what the PAGEs (POOLs) have beyond them is one segment without any: spare. */
#include "trace/read_ledger.h"

#include "base/map.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES_MAX ((size_t)1 << 30) /* of one that comes through a pipe or out of gzip */

/* Addresses that no driver gives. */
#define SPARE_AT(which) (UINT64_C(1) << 59 | (uint64_t)(which) << 50)
#define LONE_FROM       (UINT64_C(1) << 60)
#define LONE_UNTIL      (UINT64_C(1) << 63)

enum { SPARE_PAGES, SPARE_POOLS, SPARES, NO_SPARE };

/* What pages, or pools, have beyond the blocks in them: by the sums, and as it was put last. */
typedef struct spare {
    uint64_t bytes; /* modulo 2^64: blocks may be known before what they lie in */
    uint64_t mapped;
} spare;

/* An entry without an address, at one of ours. */
typedef struct lone {
    uint64_t addr, bytes;
} lone;

typedef struct conversion {
    ceni_reader *reader;
    const ceni_ledger_file *from;
    ceni_trace_file to;
    bool has[CEN_LEDGER_DEVICES][CEN_LEDGER_KINDS];
    spare spares[CEN_LEDGER_DEVICES][SPARES];
    ceni_map lone_at[CEN_LEDGER_DEVICES][CEN_LEDGER_KINDS]; /* key: index of a lone */
    CENI_ARRAY(lone) lones;
    uint64_t lone_next;
    uint32_t kind_stacks[CEN_LEDGER_KINDS]; /* one frame, the kind's name */
    uint64_t ticks;                         /* of the latest event: nanoseconds since 1970 */
    CENI_ARRAY(ceni_ledger_event) added;
} conversion;

/* ---- what stacks are made of ---- */

static void note_kinds(conversion *c) {
    for (size_t i = 0; i < c->from->entry_count; i++) {
        c->has[c->from->entries[i].device][c->from->entries[i].kind] = true;
    }
    for (size_t i = 0; i < c->from->event_count; i++) {
        const ceni_ledger_event *e = &c->from->events[i];
        unsigned what = e->what & ~CENI_LEDGER_LESS;
        if (what == CENI_LEDGER_ADDED || what == CENI_LEDGER_REMOVED) {
            c->has[e->device][e->kind] = true;
        }
    }
}

/* A stack whose only frame is a kind's name: what nobody asked for by itself goes by it. */
static cen_status take_kind_stack(conversion *c, unsigned kind) {
    ceni_frame_record frame = {.module = CENI_FILE_NONE};
    bool there = false;
    for (unsigned device = 0; device < CEN_LEDGER_DEVICES; device++) {
        there = there || c->has[device][kind];
    }
    if (!there) {
        return CEN_OK;
    }
    frame.at.named.file = c->to.empty;
    if (ceni_ledger_text(c->reader, cen_ledger_kind_text((cen_ledger_kind)kind),
                         &frame.at.named.function) ||
        CENI_ROOM(c->reader, c->to.frames, 1) || CENI_ROOM(c->reader, c->to.stacks, 1)) {
        return c->reader->status;
    }
    c->kind_stacks[kind] = (uint32_t)c->to.stacks.count;
    c->to.stacks.at[c->to.stacks.count++] = (ceni_span){c->to.frames.count, 1};
    c->to.frames.at[c->to.frames.count++] = frame;
    return CEN_OK;
}

static cen_status take_stacks(conversion *c) {
    note_kinds(c);
    if (CENI_ROOM(c->reader, c->to.stacks, c->from->stack_count)) {
        return c->reader->status;
    }
    for (size_t i = 0; i < c->from->stack_count; i++) {
        const ceni_ledger_span *span = &c->from->stacks[i];
        c->to.stacks.at[c->to.stacks.count++] = (ceni_span){span->first, span->count};
    }
    for (unsigned kind = 0; kind < CEN_LEDGER_KINDS; kind++) {
        if (cen_ledger_kind_is_summed((cen_ledger_kind)kind) && take_kind_stack(c, kind)) {
            return c->reader->status;
        }
    }
    return ceni_trace_stacks(&c->to);
}

static cen_status put_setting(conversion *c, const char *key, const char *value) {
    uint32_t key_id, value_id;
    return ceni_ledger_text(c->reader, key, &key_id) ||
                   ceni_ledger_text(c->reader, value, &value_id)
               ? c->reader->status
               : ceni_trace_setting(&c->to, key_id, value_id);
}

/* What PyTorch's allocator did is told in its own words, with its frames; the rest in cenote's. */
static cen_status take_settings(conversion *c) {
    const ceni_ledger_head *head = &c->from->head;
    if ((strcmp(head->writer, "torch") != 0 && put_setting(c, "cenote", "ledger")) ||
        put_setting(c, "program", head->program) || put_setting(c, "writer", head->writer)) {
        return c->reader->status;
    }
    for (unsigned i = 0; i < CEN_LEDGER_DEVICES; i++) {
        char key[32];
        snprintf(key, sizeof key, "device %u", i);
        if (head->device[i].known && put_setting(c, key, head->device[i].name)) {
            return c->reader->status;
        }
    }
    return CEN_OK;
}

/* ---- events ---- */

static bool is_segment(const conversion *c, const ceni_ledger_event *e) {
    const bool *has = c->has[e->device];
    return e->kind == CEN_LEDGER_SEGMENT || e->kind == CEN_LEDGER_MEMORY ||
           (e->kind == CEN_LEDGER_BLOCK && !has[CEN_LEDGER_SEGMENT] &&
            (!has[CEN_LEDGER_MEMORY] || has[CEN_LEDGER_PAGE])) ||
           (e->kind == CEN_LEDGER_ASYNC && !has[CEN_LEDGER_SEGMENT]);
}

static bool is_block(const conversion *c, const ceni_ledger_event *e) {
    const bool *has = c->has[e->device];
    return e->kind == CEN_LEDGER_BLOCK || e->kind == CEN_LEDGER_ASYNC ||
           (e->kind == CEN_LEDGER_MEMORY &&
            (!has[CEN_LEDGER_BLOCK] || has[CEN_LEDGER_SEGMENT] || has[CEN_LEDGER_PAGE]));
}

/* Which spare an entry is a part of, or lies in. Where there are SEGMENTs, they are all of it. */
static int spare_of(const conversion *c, const ceni_ledger_event *e, bool *lies_in) {
    const bool *has = c->has[e->device];
    *lies_in = e->kind == CEN_LEDGER_BLOCK || e->kind == CEN_LEDGER_ASYNC;
    if (has[CEN_LEDGER_SEGMENT]) {
        return NO_SPARE;
    }
    if (e->kind == CEN_LEDGER_PAGE || e->kind == CEN_LEDGER_BLOCK) {
        return has[CEN_LEDGER_PAGE] && has[CEN_LEDGER_BLOCK] ? SPARE_PAGES : NO_SPARE;
    }
    if (e->kind == CEN_LEDGER_POOL || e->kind == CEN_LEDGER_ASYNC) {
        return has[CEN_LEDGER_POOL] && has[CEN_LEDGER_ASYNC] ? SPARE_POOLS : NO_SPARE;
    }
    return NO_SPARE;
}

static bool is_lone(const conversion *c, const ceni_ledger_event *e) {
    const bool *has = c->has[e->device];
    switch (e->kind) {
    case CEN_LEDGER_CONTEXT:
    case CEN_LEDGER_MODULE:
    case CEN_LEDGER_GRAPH:
    case CEN_LEDGER_ARRAY:
        return true;
    case CEN_LEDGER_PAGE:
        return !has[CEN_LEDGER_SEGMENT] && !has[CEN_LEDGER_BLOCK];
    case CEN_LEDGER_POOL:
        return !has[CEN_LEDGER_SEGMENT] && !has[CEN_LEDGER_ASYNC];
    default:
        return false;
    }
}

static cen_status put(conversion *c, const ceni_ledger_event *e, unsigned kind, unsigned flags,
                      uint64_t addr, unsigned device) {
    if (CENI_ROOM(c->reader, c->to.events, 1)) {
        return c->reader->status;
    }
    c->to.events.at[c->to.events.count++] = (ceni_event_record){.ticks = c->ticks,
                                                                .addr = addr,
                                                                .size = e->bytes,
                                                                .stream = e->stream,
                                                                .stack = e->stack,
                                                                .kind = (uint8_t)kind,
                                                                .flags = (uint8_t)(flags >> 8),
                                                                .device = (uint16_t)device};
    return CEN_OK;
}

/* ---- what has no address ---- */

static cen_status put_spare(conversion *c, const ceni_ledger_event *e, int which, uint64_t more,
                            unsigned flags) {
    spare *s = &c->spares[e->device][which];
    s->bytes += more;
    uint64_t to = s->bytes > INT64_MAX ? 0 : s->bytes;
    to = to < CENI_READ_SIZE_MAX ? to : CENI_READ_SIZE_MAX;
    bool grows = to > s->mapped;
    uint64_t from = grows ? s->mapped : to;
    const ceni_ledger_event change = {.bytes = grows ? to - from : s->mapped - from,
                                      .stack = CEN_LEDGER_NO_STACK};
    s->mapped = to;
    return change.bytes ? put(c, &change, grows ? CENI_EVENT_MAP : CENI_EVENT_UNMAP,
                              flags | CENI_EMIT_ANYONES, SPARE_AT(which) + from, e->device)
                        : CEN_OK;
}

static cen_status begin_lone(conversion *c, const ceni_ledger_event *e, uint64_t bytes,
                             unsigned flags) {
    if (!bytes || bytes > CENI_LEDGER_BYTES_MOST || c->lone_next >= LONE_UNTIL) {
        return CEN_OK;
    }
    ceni_map *at = &c->lone_at[e->device][e->kind];
    if (CENI_ROOM(c->reader, c->lones, 1)) {
        return c->reader->status;
    }
    if (ceni_map_put(at, e->key, c->lones.count)) {
        return ceni_read_fail(c->reader, CEN_ERR_HOST_MEMORY, "no memory for the entries");
    }
    bool asked = e->kind == CEN_LEDGER_PAGE || e->kind == CEN_LEDGER_ARRAY;
    const ceni_ledger_event block = {
        .bytes = bytes,
        .stack = asked && e->stack != CEN_LEDGER_NO_STACK ? e->stack : c->kind_stacks[e->kind]};
    uint64_t addr = c->lone_next;
    c->lones.at[c->lones.count++] = (lone){addr, bytes};
    c->lone_next += bytes + (LONE_FROM >> 20); /* no two are neighbours */
    return put(c, &block, CENI_EVENT_MAP, flags | CENI_EMIT_PLAIN | CENI_EMIT_ANYONES, addr,
               e->device) ||
                   put(c, &block, CENI_EVENT_ALLOC, flags, addr, e->device)
               ? c->reader->status
               : CEN_OK;
}

static cen_status end_lone(conversion *c, const ceni_ledger_event *e) {
    uint64_t index;
    if (!ceni_map_remove(&c->lone_at[e->device][e->kind], e->key, &index)) {
        return CEN_OK;
    }
    const lone *known = &c->lones.at[index];
    const ceni_ledger_event block = {.bytes = known->bytes, .stack = e->stack};
    uint64_t addr = known->addr;
    return put(c, &block, CENI_EVENT_FREE, 0, addr, e->device) ||
                   put(c, &block, CENI_EVENT_UNMAP, CENI_EMIT_PLAIN | CENI_EMIT_ANYONES, addr,
                       e->device)
               ? c->reader->status
               : CEN_OK;
}

/* An entry that ends or changes, and was never seen to begin, was there before. What came free when
 * something was measured is nowhere. */
static cen_status put_lone(conversion *c, const ceni_ledger_event *e) {
    unsigned what = e->what & ~CENI_LEDGER_LESS;
    uint64_t before = what == CENI_LEDGER_REMOVED   ? e->bytes
                      : what == CENI_LEDGER_RESIZED ? e->stream
                                                    : 0;
    bool known = ceni_map_get(&c->lone_at[e->device][e->kind], e->key) != NULL;
    if (e->what & CENI_LEDGER_LESS || (!known && begin_lone(c, e, before, CENI_EMIT_BEFORE)) ||
        end_lone(c, e)) {
        return c->reader->status;
    }
    return what == CENI_LEDGER_REMOVED ? CEN_OK : begin_lone(c, e, e->bytes, 0);
}

/* ---- each event ---- */

static cen_status put_added(conversion *c, const ceni_ledger_event *e, unsigned flags) {
    return (is_segment(c, e) &&
            put(c, e, CENI_EVENT_MAP, flags | CENI_EMIT_PLAIN, e->key, e->device)) ||
                   (is_block(c, e) && put(c, e, CENI_EVENT_ALLOC, flags, e->key, e->device))
               ? c->reader->status
               : CEN_OK;
}

static cen_status put_removed(conversion *c, const ceni_ledger_event *e) {
    return (is_block(c, e) && put(c, e, CENI_EVENT_FREE, 0, e->key, e->device)) ||
                   (is_segment(c, e) &&
                    put(c, e, CENI_EVENT_UNMAP, CENI_EMIT_PLAIN, e->key, e->device))
               ? c->reader->status
               : CEN_OK;
}

/* How much larger a spare is after the event, modulo 2^64. */
static uint64_t spare_change(const ceni_ledger_event *e, bool lies_in) {
    unsigned what = e->what & ~CENI_LEDGER_LESS;
    uint64_t more = what == CENI_LEDGER_ADDED     ? e->bytes
                    : what == CENI_LEDGER_REMOVED ? 0 - e->bytes
                                                  : e->bytes - e->stream;
    return lies_in ? 0 - more : more;
}

static cen_status put_entry(conversion *c, const ceni_ledger_event *e) {
    unsigned what = e->what & ~CENI_LEDGER_LESS;
    bool lies_in;
    if (is_lone(c, e)) {
        return put_lone(c, e);
    }
    if (what == CENI_LEDGER_REMOVED && put_removed(c, e)) {
        return c->reader->status;
    }
    int which = spare_of(c, e, &lies_in);
    if (which != NO_SPARE && put_spare(c, e, which, spare_change(e, lies_in), 0)) {
        return c->reader->status;
    }
    return what == CENI_LEDGER_ADDED ? put_added(c, e, 0) : CEN_OK;
}

static cen_status put_event(conversion *c, const ceni_ledger_event *e) {
    switch (e->what & ~CENI_LEDGER_LESS) {
    case CENI_LEDGER_ADDED:
    case CENI_LEDGER_REMOVED:
    case CENI_LEDGER_RESIZED:
        return put_entry(c, e);
    case CENI_LEDGER_FAILED:
        return put(c, e, CENI_EVENT_OOM, 0, e->key, e->device);
    case CENI_LEDGER_STEPPED:
        return put(c, e, CENI_EVENT_STEP, 0, e->key, CENI_EMIT_ALL_DEVICES);
    default:
        return CEN_OK;
    }
}

static int by_name(const void *left, const void *right) {
    const ceni_ledger_event *a = left, *b = right;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    return (a->key > b->key) - (a->key < b->key);
}

static ceni_ledger_event event_of(const cen_ledger_entry *from) {
    return (ceni_ledger_event){.key = from->key,
                               .bytes = from->bytes,
                               .stream = from->stream,
                               .stack = from->stack,
                               .device = from->device,
                               .kind = from->kind,
                               .what = CENI_LEDGER_ADDED};
}

static bool is_of_entry(const ceni_ledger_event *e) {
    unsigned what = e->what & ~CENI_LEDGER_LESS;
    return what == CENI_LEDGER_ADDED || what == CENI_LEDGER_REMOVED || what == CENI_LEDGER_RESIZED;
}

/* Spares before the ring's first event: those of now, less what its events did. */
static cen_status put_spares_before(conversion *c) {
    const ceni_ledger_file *f = c->from;
    bool lies_in;
    for (size_t i = 0; i < f->entry_count; i++) {
        const ceni_ledger_event e = event_of(&f->entries[i]);
        int which = spare_of(c, &e, &lies_in);
        if (which != NO_SPARE) {
            c->spares[e.device][which].bytes += spare_change(&e, lies_in);
        }
    }
    for (size_t i = 0; i < f->event_count; i++) {
        const ceni_ledger_event *e = &f->events[i];
        int which = is_of_entry(e) ? spare_of(c, e, &lies_in) : NO_SPARE;
        if (which != NO_SPARE) {
            c->spares[e->device][which].bytes -= spare_change(e, lies_in);
        }
    }
    for (unsigned device = 0; device < CEN_LEDGER_DEVICES; device++) {
        const ceni_ledger_event e = {.device = (uint16_t)device};
        for (int which = 0; which < SPARES; which++) {
            if (put_spare(c, &e, which, 0, CENI_EMIT_BEFORE)) {
                return c->reader->status;
            }
        }
    }
    return CEN_OK;
}

/* Those that the ring says nothing of. */
static cen_status put_lones_before(conversion *c) {
    for (size_t i = 0; i < c->from->entry_count; i++) {
        const ceni_ledger_event e = event_of(&c->from->entries[i]);
        if (is_lone(c, &e) && !c->from->entries[i].less &&
            !ceni_map_get(&c->lone_at[e.device][e.kind], e.key) &&
            begin_lone(c, &e, e.bytes, CENI_EMIT_BEFORE)) {
            return c->reader->status;
        }
    }
    return CEN_OK;
}

/* What was added before the ring's first event, as there before it. */
static cen_status put_before(conversion *c) {
    const ceni_ledger_file *f = c->from;
    if (CENI_ROOM(c->reader, c->added, f->event_count)) {
        return c->reader->status;
    }
    for (size_t i = 0; i < f->event_count; i++) {
        if ((f->events[i].what & ~CENI_LEDGER_LESS) == CENI_LEDGER_ADDED) {
            c->added.at[c->added.count++] = f->events[i];
        }
    }
    if (c->added.count) {
        qsort(c->added.at, c->added.count, sizeof *c->added.at, by_name);
    }
    for (size_t i = 0; i < f->entry_count; i++) {
        const ceni_ledger_event e = event_of(&f->entries[i]);
        bool in_ring = c->added.count &&
                       bsearch(&e, c->added.at, c->added.count, sizeof *c->added.at, by_name);
        if (!in_ring && put_added(c, &e, CENI_EMIT_BEFORE)) {
            return c->reader->status;
        }
    }
    return CEN_OK;
}

/* The order is the ring's: times were taken a little before it was decided. */
static void advance(conversion *c, int64_t time_us) {
    uint64_t ticks = time_us > 0 && time_us < INT64_MAX / 1000 ? (uint64_t)time_us * 1000 : 0;
    c->ticks = ticks > c->ticks ? ticks : c->ticks;
}

static cen_status take_events(conversion *c) {
    const ceni_ledger_file *f = c->from;
    advance(c, f->event_count ? f->events[0].time_us : f->head.started_us);
    c->to.head.unix_ns = c->to.head.ns = c->to.head.ticks = c->ticks;
    if (CENI_ROOM(c->reader, c->to.clock, 1) || put_before(c) || put_spares_before(c)) {
        return c->reader->status;
    }
    c->to.clock.at[c->to.clock.count++] = (ceni_clock_pair){c->ticks, c->ticks};
    for (size_t i = 0; i < f->event_count; i++) {
        advance(c, f->events[i].time_us);
        if (put_event(c, &f->events[i])) {
            return c->reader->status;
        }
    }
    return put_lones_before(c);
}

cen_status ceni_ledger_convert(ceni_reader *reader, const ceni_ledger_file *file,
                               ceni_value *result) {
    conversion *c = ceni_calloc(1, sizeof *c);
    if (!c) {
        return ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory to read it");
    }
    c->reader = c->to.reader = reader;
    c->from = file;
    c->lone_next = LONE_FROM;
    reader->no_ring =
        atomic_load(&file->head.region[CENI_LEDGER_EVENTS].count) <= file->event_count;
    if (!ceni_ledger_take_names(reader, file, &c->to) && !take_stacks(c) && !take_settings(c) &&
        !take_events(c)) {
        (void)ceni_trace_events(&c->to, result);
    }
    ceni_trace_file_free(&c->to);
    for (unsigned i = 0; i < CEN_LEDGER_DEVICES * CEN_LEDGER_KINDS; i++) {
        ceni_map_free(&c->lone_at[i / CEN_LEDGER_KINDS][i % CEN_LEDGER_KINDS]);
    }
    ceni_free(c->lones.at);
    ceni_free(c->added.at);
    ceni_free(c);
    return reader->status;
}

/* ---- from a source ---- */

/* A file can be read again until it is whole; what comes through a pipe or out of gzip is taken as
 * it is. */
static cen_status open_bytes(ceni_reader *reader, ceni_ledger_source *bytes) {
    ceni_source *source = &reader->source;
    off_t end = source->fd >= 0 && !source->raw ? lseek(source->fd, 0, SEEK_END) : -1;
    if (end >= 0) {
        source->stored = (uint64_t)end;
        *bytes = (ceni_ledger_source){.fd = source->fd};
        return CEN_OK;
    }
    if (ceni_source_fill(reader, source->window, BYTES_MAX)) {
        return reader->status;
    }
    *bytes = (ceni_ledger_source){
        .fd = -1, .data = source->window, .size = (uint64_t)(source->end - source->window)};
    return CEN_OK;
}

cen_status ceni_ledger_run(ceni_reader *reader, ceni_value *result) {
    ceni_ledger_source bytes;
    ceni_ledger_file file;
    ceni_ledger_trouble trouble;
    if (open_bytes(reader, &bytes)) {
        return reader->status;
    }
    cen_status status = ceni_ledger_file_read(&bytes, &file, &trouble);
    if (status) {
        reader->offset = trouble.offset;
        reader->at_offset = status == CEN_ERR_FORMAT || status == CEN_ERR_TRUNCATED;
        return ceni_read_fail(reader, status, "%s", trouble.message);
    }
    (void)ceni_ledger_convert(reader, &file, result);
    ceni_ledger_file_free(&file);
    return reader->status;
}
