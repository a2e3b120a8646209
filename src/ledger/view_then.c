/* What was there at an earlier moment: the entries of now, with the ring's events since then
 * undone. Of each entry that changed since, its first event after the moment says how it was then.
 */
#include "ledger/view.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static unsigned what_of(const ceni_ledger_event *e) {
    return e->what & ~CENI_LEDGER_LESS;
}

static bool is_of_entry(const ceni_ledger_event *e) {
    unsigned what = what_of(e);
    return what == CENI_LEDGER_ADDED || what == CENI_LEDGER_REMOVED || what == CENI_LEDGER_RESIZED;
}

/* ---- when ---- */

/* How many events there were when the last request failed; false: the ring has none. */
static bool find_failure(const ceni_ledger_file *f, size_t *when) {
    for (size_t i = f->event_count; i-- > 0;) {
        if (what_of(&f->events[i]) == CENI_LEDGER_FAILED) {
            *when = i;
            return true;
        }
    }
    return false;
}

/* By how much an event changed the sum of the device, modulo 2^64. */
static uint64_t change_of(const ceni_ledger_event *e, unsigned device) {
    if (!is_of_entry(e) || e->device != device ||
        !cen_ledger_kind_is_summed((cen_ledger_kind)e->kind)) {
        return 0;
    }
    uint64_t more = what_of(e) == CENI_LEDGER_ADDED     ? e->bytes
                    : what_of(e) == CENI_LEDGER_REMOVED ? 0 - e->bytes
                                                        : e->bytes - e->stream;
    return e->what & CENI_LEDGER_LESS ? 0 - more : more;
}

/* Backwards from now. False: the writer saw a higher one before. */
static bool find_peak(const cen_ledger_view *v, unsigned device, size_t *when) {
    const ceni_ledger_file *f = &v->file;
    uint64_t held = 0;
    for (size_t k = 0; k < CEN_LEDGER_KINDS; k++) {
        held += cen_ledger_kind_is_summed((cen_ledger_kind)k) ? v->device[device].bytes[k] : 0;
    }
    int64_t most = (int64_t)held;
    *when = f->event_count;
    for (size_t i = f->event_count; i-- > 0;) {
        held -= change_of(&f->events[i], device);
        if ((int64_t)held > most) {
            most = (int64_t)held;
            *when = i;
        }
    }
    return most > 0 && (uint64_t)most >= v->device[device].peak_bytes;
}

/* ---- what ---- */

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

/* The same, and the earlier one first: `time_us` holds its place. */
static int by_name_and_place(const void *left, const void *right) {
    const ceni_ledger_event *a = left, *b = right;
    int order = by_name(left, right);
    return order ? order : (a->time_us > b->time_us) - (a->time_us < b->time_us);
}

/* The first event since then of each entry that changed, by name. NULL: no memory. */
static ceni_ledger_event *first_since(const ceni_ledger_file *f, size_t when, size_t *count) {
    size_t all = 0, kept = 0;
    ceni_ledger_event *first = ceni_malloc((f->event_count - when) * sizeof *first);
    if (!first) {
        return NULL;
    }
    for (size_t i = when; i < f->event_count; i++) {
        if (is_of_entry(&f->events[i])) {
            first[all] = f->events[i];
            first[all++].time_us = (int64_t)i;
        }
    }
    qsort(first, all, sizeof *first, by_name_and_place);
    for (size_t i = 0; i < all; i++) {
        if (!kept || by_name(&first[kept - 1], &first[i])) {
            first[kept++] = first[i];
        }
    }
    *count = kept;
    return first;
}

static cen_ledger_entry entry_before(const ceni_ledger_event *e) {
    bool resized = what_of(e) == CENI_LEDGER_RESIZED;
    return (cen_ledger_entry){.key = e->key,
                              .bytes = resized ? e->stream : e->bytes,
                              .stream = resized ? 0 : e->stream,
                              .stack = e->stack,
                              .device = e->device,
                              .kind = e->kind,
                              .less = (e->what & CENI_LEDGER_LESS) != 0};
}

static bool changed(const ceni_ledger_event *first, size_t count, const cen_ledger_entry *entry) {
    const ceni_ledger_event name = {
        .key = entry->key, .device = entry->device, .kind = entry->kind};
    return count && bsearch(&name, first, count, sizeof *first, by_name);
}

static cen_status undo_since(cen_ledger_view *v, size_t when) {
    size_t changed_count = 0, count = 0;
    ceni_ledger_event *first = first_since(&v->file, when, &changed_count);
    cen_ledger_entry *then =
        first ? ceni_malloc((v->file.entry_count + changed_count) * sizeof *then) : NULL;
    if (!then) {
        ceni_free(first);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_ledger_view_then: no memory");
    }
    for (size_t i = 0; i < v->file.entry_count; i++) {
        if (!changed(first, changed_count, &v->file.entries[i])) {
            then[count++] = v->file.entries[i];
        }
    }
    for (size_t i = 0; i < changed_count; i++) {
        if (what_of(&first[i]) != CENI_LEDGER_ADDED) {
            then[count++] = entry_before(&first[i]);
        }
    }
    ceni_free(first);
    ceni_free(v->then);
    v->then = then;
    v->then_count = count;
    return CEN_OK;
}

cen_status cen_ledger_view_then(cen_ledger_view *v, cen_ledger_moment moment, unsigned device,
                                const cen_ledger_entry **entries, size_t *count) {
    size_t when;
    if (!v || !entries || !count || device >= CEN_LEDGER_DEVICES) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_view_then: %s",
                         !v         ? "view is NULL"
                         : !entries ? "entries is NULL"
                         : !count   ? "count is NULL"
                                    : "device is not below 64");
    }
    if (moment != CEN_LEDGER_FAILURE && moment != CEN_LEDGER_PEAK) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_view_then: moment is none");
    }
    if (!(moment == CEN_LEDGER_PEAK ? find_peak(v, device, &when)
                                    : find_failure(&v->file, &when))) {
        return CEN_ERR_NOT_FOUND;
    }
    cen_status status = undo_since(v, when);
    if (!status) {
        *entries = v->then;
        *count = v->then_count;
    }
    return status;
}
