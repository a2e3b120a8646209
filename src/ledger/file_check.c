/* A ledger's copy is believed only where it is in bounds: everything that refers to something is
 * looked at before anybody follows it. Only an entry that a killed writer had in two places is
 * taken silently, once: that is how entries move within the table. */
#include "ledger/file.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define ATOMIC(word) atomic_load_explicit(&(word), memory_order_relaxed)

static uint64_t offset_of(const ceni_ledger_file *f, enum ceni_ledger_part part, size_t index) {
    return ceni_ledger_place_of(&f->head.region[part])->offset +
           (uint64_t)index * ceni_ledger_element(part);
}

static cen_status bad(const ceni_ledger_file *f, ceni_ledger_trouble *trouble,
                      enum ceni_ledger_part part, size_t index, const char *what) {
    return ceni_ledger_refuse(trouble, CEN_ERR_FORMAT, offset_of(f, part, index),
                              "the ledger's %s %llu is damaged", what, (unsigned long long)index);
}

/* ---- what stacks are made of ---- */

static bool is_string(const ceni_ledger_file *f, uint32_t id) {
    return id == CENI_FILE_NONE || id < f->string_count;
}

static bool within(const ceni_ledger_span *span, size_t count) {
    return span->first <= count && span->count <= count - span->first;
}

static cen_status check_names(const ceni_ledger_file *f, ceni_ledger_trouble *trouble) {
    for (size_t i = 0; i < f->string_count; i++) {
        if (!within(&f->strings[i], f->text_size)) {
            return bad(f, trouble, CENI_LEDGER_STRINGS, i, "string");
        }
    }
    for (size_t i = 0; i < f->module_count; i++) {
        if (!is_string(f, f->modules[i].path) || !is_string(f, f->modules[i].build_id)) {
            return bad(f, trouble, CENI_LEDGER_MODULES, i, "module");
        }
    }
    return CEN_OK;
}

static cen_status check_stacks(const ceni_ledger_file *f, ceni_ledger_trouble *trouble) {
    for (size_t i = 0; i < f->frame_count; i++) {
        const ceni_frame_record *frame = &f->frames[i];
        bool good = frame->module == CENI_FILE_NONE ? is_string(f, frame->at.named.file) &&
                                                          is_string(f, frame->at.named.function)
                                                    : frame->module < f->module_count;
        if (!good) {
            return bad(f, trouble, CENI_LEDGER_FRAMES, i, "frame");
        }
    }
    for (size_t i = 0; i < f->stack_count; i++) {
        if (!within(&f->stacks[i], f->frame_count)) {
            return bad(f, trouble, CENI_LEDGER_STACKS, i, "stack");
        }
    }
    return CEN_OK;
}

static bool is_stack(const ceni_ledger_file *f, uint32_t stack) {
    return stack == CEN_LEDGER_NO_STACK || stack < f->stack_count;
}

/* ---- entries ---- */

static int by_name(const void *left, const void *right) {
    const cen_ledger_entry *a = left, *b = right;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    return (a->key > b->key) - (a->key < b->key);
}

static cen_status take_entries(ceni_ledger_file *f, const ceni_ledger_slot *slots,
                               size_t slot_count, ceni_ledger_trouble *trouble) {
    size_t used = 0;
    for (size_t i = 0; i < slot_count; i++) {
        used += ATOMIC(slots[i].used) != 0;
    }
    f->entries = ceni_calloc(used, sizeof *f->entries);
    if (!f->entries) {
        return ceni_ledger_refuse(trouble, CEN_ERR_HOST_MEMORY, 0, "no memory for the ledger");
    }
    for (size_t i = 0; i < slot_count; i++) {
        const ceni_ledger_slot *s = &slots[i];
        if (!ATOMIC(s->used)) {
            continue;
        }
        if (s->kind >= CEN_LEDGER_KINDS || s->device >= CEN_LEDGER_DEVICES ||
            s->bytes > CENI_LEDGER_BYTES_MOST || !is_stack(f, s->stack)) {
            return bad(f, trouble, CENI_LEDGER_LIVE, i, "entry");
        }
        f->entries[f->entry_count++] = ceni_ledger_entry_of(s);
    }
    return CEN_OK;
}

static cen_status order_entries(ceni_ledger_file *f, ceni_ledger_trouble *trouble) {
    size_t kept = 0;
    if (!f->entry_count) {
        return CEN_OK;
    }
    qsort(f->entries, f->entry_count, sizeof *f->entries, by_name);
    for (size_t i = 0; i < f->entry_count; i++) {
        if (kept && !by_name(&f->entries[kept - 1], &f->entries[i])) {
            if (!f->torn) {
                return ceni_ledger_refuse(trouble, CEN_ERR_FORMAT,
                                          offset_of(f, CENI_LEDGER_LIVE, 0),
                                          "the ledger has an entry twice");
            }
            continue;
        }
        f->entries[kept++] = f->entries[i];
    }
    f->entry_count = kept;
    return CEN_OK;
}

/* ---- the rest ---- */

/* The oldest event first. In a torn file the oldest may be half overwritten: it is left out. */
static cen_status order_events(ceni_ledger_file *f, ceni_ledger_trouble *trouble) {
    uint64_t all = ATOMIC(f->head.region[CENI_LEDGER_EVENTS].count);
    size_t count = f->event_count, first = count && all > count ? (size_t)(all & (count - 1)) : 0;
    for (size_t i = 0; i < count; i++) {
        const ceni_ledger_event *e = &f->events[i];
        if (e->kind >= CEN_LEDGER_KINDS || e->device >= CEN_LEDGER_DEVICES ||
            e->bytes > CENI_LEDGER_BYTES_MOST || !is_stack(f, e->stack)) {
            return bad(f, trouble, CENI_LEDGER_EVENTS, i, "event");
        }
    }
    if (first) {
        ceni_ledger_event *ordered = ceni_malloc(count * sizeof *ordered);
        if (!ordered) {
            return ceni_ledger_refuse(trouble, CEN_ERR_HOST_MEMORY, 0, "no memory for the ledger");
        }
        memcpy(ordered, f->events + first, (count - first) * sizeof *ordered);
        memcpy(ordered + (count - first), f->events, first * sizeof *ordered);
        ceni_free(f->events);
        f->events = ordered;
    }
    if (f->torn && all >= count && count) {
        f->event_count--;
        memmove(f->events, f->events + 1, f->event_count * sizeof *f->events);
    }
    return CEN_OK;
}

static cen_status check_holdings(ceni_ledger_file *f, ceni_ledger_trouble *trouble) {
    uint32_t steps = ATOMIC(f->head.steps);
    for (size_t i = 0; i < f->holding_count; i++) {
        const ceni_ledger_holding *h = &f->holdings[i];
        if (h->device >= CEN_LEDGER_DEVICES || h->stack >= f->stack_count || h->sampled > steps ||
            h->first > steps) {
            return bad(f, trouble, CENI_LEDGER_HOLDINGS, i, "holding");
        }
    }
    return CEN_OK;
}

static cen_status check_failures(ceni_ledger_file *f, ceni_ledger_trouble *trouble) {
    for (size_t i = 0; i < CENI_LEDGER_FAILURES; i++) {
        const ceni_ledger_failed *failed = &f->head.failed[i];
        if (i < ATOMIC(f->head.failures) &&
            (failed->device >= CEN_LEDGER_DEVICES || !is_stack(f, failed->stack))) {
            return ceni_ledger_refuse(trouble, CEN_ERR_FORMAT,
                                      offsetof(ceni_ledger_head, failed) + i * sizeof *failed,
                                      "the ledger's failure %zu is damaged", i);
        }
    }
    return CEN_OK;
}

cen_status ceni_ledger_file_check(ceni_ledger_file *f, const ceni_ledger_slot *slots,
                                  size_t slot_count, ceni_ledger_trouble *trouble) {
    cen_status status = check_names(f, trouble);
    status = status ? status : check_stacks(f, trouble);
    status = status ? status : take_entries(f, slots, slot_count, trouble);
    status = status ? status : order_entries(f, trouble);
    status = status ? status : order_events(f, trouble);
    status = status ? status : check_holdings(f, trouble);
    return status ? status : check_failures(f, trouble);
}
