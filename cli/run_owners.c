/* Whose the memory of a process is, by owner and kind, at a moment. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/holders.h"
#include "cli/cmd.h"
#include "cli/run.h"

typedef struct row {
    const char *owner;
    uint8_t kind;
    int64_t bytes;
    uint64_t count, unmeasured;
} row;

typedef struct listing {
    const cen_ledger_entry *at;
    size_t count;
} listing;

/* Most bytes first; what is not summed comes last. */
static int by_bytes(const void *a, const void *b) {
    const row *x = a, *y = b;
    if (cen_ledger_kind_is_summed(x->kind) != cen_ledger_kind_is_summed(y->kind)) {
        return cen_ledger_kind_is_summed(x->kind) ? -1 : 1;
    }
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->owner, y->owner);
}

static size_t gather(cen_ledger_view *view, const listing *list, unsigned device, row *rows,
                     size_t room) {
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        const cen_ledger_entry *e = &list->at[i];
        if (e->device != device) {
            continue;
        }
        const char *owner = cen_ledger_view_owner(view, e);
        size_t at = 0;
        while (at < count && (rows[at].kind != e->kind || strcmp(rows[at].owner, owner))) {
            at++;
        }
        if (at == count && count == room) {
            continue;
        }
        if (at == count) {
            rows[count++] = (row){.owner = owner, .kind = e->kind};
        }
        rows[at].bytes += e->less ? -(int64_t)e->bytes : (int64_t)e->bytes;
        rows[at].count++;
        rows[at].unmeasured += !e->bytes && e->kind == CEN_LEDGER_CONTEXT;
    }
    qsort(rows, count, sizeof *rows, by_bytes);
    return count;
}

static void put_bytes(FILE *out, int64_t bytes) {
    char text[CLI_SIZE];
    fprintf(out, " %s%10s", bytes < 0 ? "-" : " ", cli_size_text(text, (uint64_t)llabs(bytes)));
}

/* What NVML says of the process on the device, and what no entry explains; false if nothing. */
static bool put_reconciled(FILE *out, int pid, const char *uuid, int64_t sum) {
    cen_holders *holders = NULL;
    bool told = false;
    if (cen_holders_read(&holders)) {
        return false;
    }
    for (size_t i = 0; i < cen_holders_device_count(holders); i++) {
        const cen_holder_device *device = cen_holders_device(holders, i);
        for (size_t k = 0; !strcmp(device->uuid, uuid) && k < device->holder_count; k++) {
            const cen_holder *holder = &device->holders[k];
            if (holder->pid == pid && holder->device_bytes != CEN_BYTES_UNKNOWN) {
                put_bytes(out, (int64_t)holder->device_bytes);
                fprintf(out, "  as NVML says\n");
                put_bytes(out, (int64_t)holder->device_bytes - sum);
                fprintf(out, "  unexplained\n");
                told = true;
            }
        }
    }
    cen_holders_free(holders);
    return told;
}

static void put_row(FILE *out, const row *r) {
    const char *kind = cen_ledger_kind_text((cen_ledger_kind)r->kind);
    bool summed = cen_ledger_kind_is_summed(r->kind), none = r->unmeasured == r->count;
    if (none) { /* it is there, though nobody says how large it is */
        fprintf(out, "  %10s", "?");
    } else {
        put_bytes(out, r->bytes);
    }
    fprintf(out, "  %-16s %s, %" PRIu64 "%s", r->owner, kind, r->count,
            summed ? "" : " (not added)");
    if (r->unmeasured && !none) {
        fprintf(out, ", %" PRIu64 " of them not measured", r->unmeasured);
    } else if (r->unmeasured) {
        fprintf(out, ", not measured");
    }
    fprintf(out, "\n");
}

/* The entries at the moment; where the ledger cannot tell, those that are there, and that is said.
 */
static const char *list_entries(cen_ledger_view *view, run_moment moment, unsigned device,
                                listing *list) {
    static const char *const words[] = {[RUN_NOW] = "at the last look",
                                        [RUN_END] = "at its end",
                                        [RUN_PEAK] = "at its peak",
                                        [RUN_FAILURE] = "when the request failed"};
    bool past = moment == RUN_PEAK || moment == RUN_FAILURE;
    cen_ledger_moment then = moment == RUN_PEAK ? CEN_LEDGER_PEAK : CEN_LEDGER_FAILURE;
    if (past && !cen_ledger_view_then(view, then, device, &list->at, &list->count)) {
        return words[moment];
    }
    list->at = cen_ledger_view_entries(view, &list->count);
    return moment == RUN_FAILURE ? "when it was read, after the failure"
           : past                ? words[RUN_END]
                                 : words[moment];
}

static void put_device(FILE *out, cen_ledger_view *view, unsigned number, run_moment moment,
                       run_told *told) {
    enum { ROWS = 256 };
    row rows[ROWS];
    listing list;
    char program[RUN_PROGRAM];
    const cen_ledger_info *info = cen_ledger_view_info(view);
    const cen_ledger_device_info *device = cen_ledger_view_device(view, number);
    const char *when = list_entries(view, moment, number, &list);
    size_t count = gather(view, &list, number, rows, ROWS);
    int64_t sum = 0;
    bool summed =
        false; /* a framework's ledger has blocks alone, which lie in what the driver gave */
    for (size_t i = 0; i < count; i++) {
        summed = summed || cen_ledger_kind_is_summed(rows[i].kind);
    }
    if (!count) {
        return;
    }
    fprintf(out, "%s %s (pid %d) on device %u, %s, %s\n",
            summed ? "held by" : "within that, used by", run_program(program, view), info->pid,
            number, device && device->name[0] ? device->name : "unnamed", when);
    for (size_t i = 0; i < count; i++) {
        sum += cen_ledger_kind_is_summed(rows[i].kind) ? rows[i].bytes : 0;
        put_row(out, &rows[i]);
    }
    if (!summed) {
        return;
    }
    put_bytes(out, sum);
    fprintf(out, "  in all\n");
    if (told && device) {
        bool said = put_reconciled(out, info->pid, device->uuid, sum);
        *(said ? &told->told : &told->untold) += 1;
    }
}

char *run_owners_text(cen_ledger_view *view, run_moment moment, run_told *told) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) {
        return NULL;
    }
    for (unsigned device = 0; device < CEN_LEDGER_DEVICES; device++) {
        put_device(out, view, device, moment, told);
    }
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}
