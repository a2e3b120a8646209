/* See ledger/leaks.h; and the text of it. */
#include "ledger/leaks.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "trace/diagnose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOP     10
#define FRAMES  8
#define COLUMNS 80

/* ---- by stack ---- */

static bool is_of_pool(const cen_ledger_entry *e) {
    return e->kind == CEN_LEDGER_PAGE && e->stream != CEN_LEDGER_PAGE_PLAIN;
}

/* What the driver takes by itself is no leak, addresses are no memory, and a pool keeps its pages.
 */
static bool counts(const cen_ledger_entry *e) {
    return !is_of_pool(e) && e->kind != CEN_LEDGER_CONTEXT && e->kind != CEN_LEDGER_MODULE &&
           e->kind != CEN_LEDGER_POOL && e->kind != CEN_LEDGER_SEGMENT && !e->less;
}

static int by_stack(const void *left, const void *right) {
    const cen_ledger_entry *a = *(const cen_ledger_entry *const *)left;
    const cen_ledger_entry *b = *(const cen_ledger_entry *const *)right;
    if (a->stack != b->stack) {
        return a->stack < b->stack ? -1 : 1;
    }
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    return (a->kind > b->kind) - (a->kind < b->kind);
}

static int by_bytes(const void *left, const void *right) {
    const ceni_leak *a = left, *b = right;
    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    return by_stack(&a->first, &b->first);
}

static void gather(ceni_leaks *leaks, const cen_ledger_entry *e) {
    ceni_leak *last = leaks->count ? &leaks->at[leaks->count - 1] : NULL;
    if (!last || by_stack(&last->first, &e)) {
        last = &leaks->at[leaks->count++];
        *last = (ceni_leak){.first = e,
                            .oldest_us = e->time_us,
                            .newest_us = e->time_us,
                            .oldest_step = e->step,
                            .newest_step = e->step};
    }
    last->bytes += e->bytes;
    last->count++;
    last->oldest_us = e->time_us < last->oldest_us ? e->time_us : last->oldest_us;
    last->newest_us = e->time_us > last->newest_us ? e->time_us : last->newest_us;
    last->oldest_step = e->step < last->oldest_step ? e->step : last->oldest_step;
    last->newest_step = e->step > last->newest_step ? e->step : last->newest_step;
    leaks->bytes += e->bytes;
    leaks->entries++;
}

cen_status ceni_leaks_find(const cen_ledger_view *v, const void *output, const char *call,
                           ceni_leaks *leaks) {
    *leaks = (ceni_leaks){0};
    if (!v || !output) {
        return ceni_fail(CEN_ERR_INVALID, "%s: %s is NULL", call, v ? "the output" : "view");
    }
    size_t count = 0;
    const cen_ledger_entry **entries = ceni_malloc(v->file.entry_count * sizeof(void *));
    leaks->at = ceni_malloc(v->file.entry_count * sizeof *leaks->at);
    if (!entries || !leaks->at) {
        ceni_free(entries);
        ceni_free(leaks->at);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory", call);
    }
    for (size_t i = 0; i < v->file.entry_count; i++) {
        const cen_ledger_entry *e = &v->file.entries[i];
        if (counts(e)) {
            entries[count++] = e;
        } else if (is_of_pool(e) && e->stream == CEN_LEDGER_PAGE_OF_POOL) {
            leaks->unjudged_bytes += e->bytes;
            leaks->unjudged++;
        }
    }
    if (count) {
        qsort(entries, count, sizeof(void *), by_stack);
    }
    for (size_t i = 0; i < count; i++) {
        gather(leaks, entries[i]);
    }
    if (leaks->count) {
        qsort(leaks->at, leaks->count, sizeof *leaks->at, by_bytes);
    }
    ceni_free(entries);
    return CEN_OK;
}

/* ---- text ---- */

/* A line of it, cut to the columns with "..." where it is too long. */
static void put_line(ceni_str *out, size_t indent, const char *text) {
    size_t room = COLUMNS - indent, length = strlen(text);
    ceni_str_fill(out, ' ', (int)indent);
    if (length <= room) {
        ceni_str_printf(out, "%s\n", text);
        return;
    }
    size_t keep = room - 3;
    while (keep && ((unsigned char)text[keep] & 0xc0) == 0x80) {
        keep--;
    }
    ceni_str_printf(out, "%.*s...\n", (int)keep, text);
}

/* The end of a line tells most: a long function's name is cut, not its place. */
static void put_frame(ceni_str *out, const cen_frame *f) {
    char place[64] = "", line[COLUMNS - 6 + 1];
    const char *file = ceni_base_name(f->file);
    if (*file && f->line) {
        snprintf(place, sizeof place, " (%.40s:%u)", file, f->line);
    } else if (*file) {
        snprintf(place, sizeof place, " (%.40s)", file);
    }
    int room = (int)sizeof line - 1 - (int)strlen(place);
    int length = (int)strlen(f->function);
    if (length <= room) {
        snprintf(line, sizeof line, "%s%s", f->function, place);
    } else {
        int keep = room - 3;
        while (keep && ((unsigned char)f->function[keep] & 0xc0) == 0x80) {
            keep--;
        }
        snprintf(line, sizeof line, "%.*s...%s", keep, f->function, place);
    }
    put_line(out, 6, line);
}

/* How long before the last change. */
static void put_age(ceni_str *out, const cen_ledger_view *v, int64_t us) {
    double seconds = us < v->info.changed_us ? ((double)v->info.changed_us - (double)us) / 1e6 : 0;
    if (seconds < 120) {
        ceni_str_printf(out, "%.1f s", seconds);
    } else if (seconds < 7200) {
        ceni_str_printf(out, "%.0f min", seconds / 60);
    } else {
        ceni_str_printf(out, "%.1f h", seconds / 3600);
    }
}

/* A line that is composed first. */
static void put_composed(ceni_str *out, size_t indent, ceni_str *line) {
    char *text = ceni_str_take(line);
    put_line(out, indent, text ? text : "");
    out->failed |= !text;
    free(text);
}

static void put_ages(ceni_str *out, const cen_ledger_view *v, const ceni_leak *leak) {
    ceni_str line = {0};
    ceni_str_printf(&line, "added ");
    put_age(&line, v, leak->oldest_us);
    if (leak->count > 1) {
        ceni_str_printf(&line, " to ");
        put_age(&line, v, leak->newest_us);
    }
    ceni_str_printf(&line, " before the end");
    if (v->info.steps) {
        ceni_str_printf(&line, ", after %u", leak->oldest_step);
        if (leak->oldest_step != leak->newest_step) {
            ceni_str_printf(&line, " to %u", leak->newest_step);
        }
        ceni_str_printf(&line, " of %u steps", v->info.steps);
    }
    put_composed(out, 4, &line);
}

static void put_leak(ceni_str *out, cen_ledger_view *v, const ceni_leak *leak, size_t number) {
    size_t count;
    ceni_str line = {0};
    ceni_str_printf(&line, "%zu. ", number);
    ceni_put_size(&line, leak->bytes);
    ceni_str_printf(&line, " in ");
    ceni_put_count(&line, leak->count);
    ceni_str_printf(&line, " (%s), device %u, of %s",
                    cen_ledger_kind_text((cen_ledger_kind)leak->first->kind), leak->first->device,
                    cen_ledger_view_owner(v, leak->first));
    ceni_str_printf(out, "\n");
    put_composed(out, 1, &line);
    put_ages(out, v, leak);
    const cen_frame *frames = cen_ledger_view_stack(v, leak->first->stack, &count);
    for (size_t i = 0; i < count && i < FRAMES; i++) {
        put_frame(out, &frames[i]);
    }
    if (count > FRAMES) {
        ceni_str_printf(out, "      and %zu more\n", count - FRAMES);
    } else if (!count) {
        ceni_str_printf(out, "      (no stack)\n");
    }
}

static void put_head(ceni_str *out, const cen_ledger_view *v, const ceni_leaks *leaks) {
    char line[400];
    if (!leaks->entries) {
        ceni_str_printf(out, leaks->unjudged ? "NOTHING ELSE LEFT: see what is not judged below\n"
                                             : "NOTHING LEFT: all that was taken was freed\n");
    } else {
        ceni_str_printf(out, "NEVER FREED: ");
        ceni_put_size(out, leaks->bytes);
        ceni_str_printf(out, " in ");
        ceni_put_count(out, leaks->entries);
        ceni_str_printf(out, leaks->entries == 1 ? " allocation\n" : " allocations");
        if (leaks->entries > 1) {
            ceni_str_printf(out, ", from ");
            ceni_put_count(out, leaks->count);
            ceni_str_printf(out, leaks->count == 1 ? " place\n" : " places\n");
        }
    }
    snprintf(line, sizeof line, "process %d: %s", v->info.pid, v->info.program);
    put_line(out, 0, line);
    if (!v->info.closed) {
        ceni_str_printf(out, "The program did not come to its end: this is what it held then.\n");
    }
    if (leaks->unjudged) {
        ceni_str_printf(out, "Not judged: ");
        ceni_put_size(out, leaks->unjudged_bytes);
        ceni_str_printf(out, " in ");
        ceni_put_count(out, leaks->unjudged);
        ceni_str_printf(out, leaks->unjudged == 1 ? " page" : " pages");
        ceni_str_printf(out, " of pools that the program made itself.\n"
                             "Blocks in them that were not freed do not show here.\n");
    }
    if (v->info.lost) {
        ceni_put_count(out, v->info.lost);
        ceni_str_printf(out, " more could not be noted: there was no room for them.\n");
    }
}

cen_status cen_ledger_leaks_text(cen_ledger_view *v, size_t top, char **text, uint64_t *leaked) {
    ceni_leaks leaks;
    ceni_str out = {0};
    cen_status status = ceni_leaks_find(v, text, "cen_ledger_leaks_text", &leaks);
    if (status) {
        return status;
    }
    top = top ? top : TOP;
    put_head(&out, v, &leaks);
    for (size_t i = 0; i < leaks.count && i < top; i++) {
        put_leak(&out, v, &leaks.at[i], i + 1);
    }
    if (leaks.count > top) {
        uint64_t rest = 0;
        for (size_t i = top; i < leaks.count; i++) {
            rest += leaks.at[i].bytes;
        }
        ceni_str_printf(&out, "\n and ");
        ceni_put_size(&out, rest);
        ceni_str_printf(
            &out, leaks.count - top == 1 ? " from %zu more place\n" : " from %zu more places\n",
            leaks.count - top);
    }
    uint64_t entries = leaks.entries;
    ceni_free(leaks.at);
    char *made = ceni_str_take(&out);
    if (!made) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_ledger_leaks_text: no memory");
    }
    *text = made;
    if (leaked) {
        *leaked = entries;
    }
    return CEN_OK;
}
