/* --watch: stacks whose memory grows and never shrinks.
 *
 * A program that tells its steps has them judged by the ledger. Of others the looks from here are
 * the steps: what each stack holds is compared from one look to the next, as long as the program
 * allocates. A stack is named once. */
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/run.h"

enum { STEPS = 6 };

typedef struct holding {
    uint32_t stack;
    uint16_t device;
    bool named;
    unsigned grown; /* in so many looks one after the other */
    uint64_t bytes, count, first_bytes;
    int64_t first_us; /* when it began to grow */
    uint64_t now_bytes, now_count;
} holding;

struct run_growth {
    holding *at;
    size_t count, capacity;
};

void run_growth_free(struct run_growth *growth) {
    if (growth) {
        free(growth->at);
        free(growth);
    }
}

static holding *enter(struct run_growth *growth, uint32_t stack, uint16_t device) {
    for (size_t i = 0; i < growth->count; i++) {
        if (growth->at[i].stack == stack && growth->at[i].device == device) {
            return &growth->at[i];
        }
    }
    if (growth->count == growth->capacity) {
        size_t capacity = growth->capacity ? 2 * growth->capacity : 64;
        holding *grown = realloc(growth->at, capacity * sizeof *grown);
        if (!grown) {
            return NULL;
        }
        growth->at = grown;
        growth->capacity = capacity;
    }
    holding *h = &growth->at[growth->count++];
    *h = (holding){.stack = stack, .device = device};
    return h;
}

/* What grows by itself is no leak of the program's. */
static bool is_watched(const cen_ledger_entry *entry) {
    switch (entry->kind) {
    case CEN_LEDGER_CONTEXT:
    case CEN_LEDGER_MODULE:
    case CEN_LEDGER_GRAPH:
    case CEN_LEDGER_POOL:
    case CEN_LEDGER_SEGMENT:
        return false;
    default:
        return entry->stack != CEN_LEDGER_NO_STACK;
    }
}

static void name(cen_ledger_view *view, const holding *h, int64_t now_us) {
    char where[512], more[CLI_SIZE], bytes[CLI_SIZE];
    run_where(view, h->stack, where, sizeof where);
    run_say("grows by %s in %.1f s: %llu blocks, %s, at %s",
            cli_size_text(more, h->bytes - h->first_bytes), (double)(now_us - h->first_us) / 1e6,
            (unsigned long long)h->count, cli_size_text(bytes, h->bytes), where);
}

static void compare(cen_ledger_view *view, holding *h, int64_t now_us) {
    if (h->now_bytes <= h->bytes) {
        h->grown = h->now_bytes < h->bytes ? 0 : h->grown; /* it shrank, or stayed as it was */
    } else if (!h->grown++) {
        h->first_bytes = h->bytes;
        h->first_us = now_us;
    }
    h->bytes = h->now_bytes;
    h->count = h->now_count;
    if (h->grown >= STEPS && !h->named) {
        h->named = true;
        name(view, h, now_us);
    }
}

static void compare_looks(struct run_growth *growth, cen_ledger_view *view) {
    size_t count = 0;
    const cen_ledger_entry *entries = cen_ledger_view_entries(view, &count);
    int64_t now_us = cen_ledger_view_info(view)->changed_us;
    for (size_t i = 0; i < growth->count; i++) {
        growth->at[i].now_bytes = growth->at[i].now_count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        holding *h =
            is_watched(&entries[i]) ? enter(growth, entries[i].stack, entries[i].device) : NULL;
        if (h) {
            h->now_bytes += entries[i].bytes;
            h->now_count++;
        }
    }
    for (size_t i = 0; i < growth->count; i++) {
        compare(view, &growth->at[i], now_us);
    }
}

static void name_growing(struct run_growth *growth, cen_ledger_view *view) {
    enum { MOST = 16 };
    cen_ledger_growth growing[MOST];
    size_t count = cen_ledger_view_growing(view, STEPS, growing, MOST);
    for (size_t i = 0; i < count && i < MOST; i++) {
        holding *h = enter(growth, growing[i].stack, growing[i].device);
        char where[512], more[CLI_SIZE], bytes[CLI_SIZE];
        if (!h || h->named) {
            continue;
        }
        h->named = true;
        run_where(view, growing[i].stack, where, sizeof where);
        run_say("grows by %s a step: %llu blocks, %s, at %s",
                cli_size_text(more, growing[i].step_bytes),
                (unsigned long long)growing[i].live_count,
                cli_size_text(bytes, growing[i].live_bytes), where);
    }
}

void run_growth_look(run_process *process, cen_ledger_view *view) {
    const cen_ledger_info *info = cen_ledger_view_info(view);
    process->growth = process->growth ? process->growth : calloc(1, sizeof *process->growth);
    if (!process->growth) {
        return;
    }
    if (info->steps) {
        name_growing(process->growth, view);
    } else if (info->adds != process->looked_adds) {
        process->looked_adds = info->adds;
        compare_looks(process->growth, view);
    }
}
