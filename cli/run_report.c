/* What `cenote run` says of a ledger: whose memory it is, why it ran out, what was never freed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cenote/cenote.h"
#include "cenote/holders.h"
#include "cli/cmd.h"
#include "cli/run.h"

/* ---- by owner and kind ---- */

typedef struct row {
    const char *owner;
    uint8_t kind;
    int64_t bytes;
    uint64_t count;
} row;

/* Most bytes first; what is not summed comes last. */
static int by_bytes(const void *a, const void *b) {
    const row *x = a, *y = b;
    if (cen_ledger_kind_is_summed(x->kind) != cen_ledger_kind_is_summed(y->kind)) {
        return cen_ledger_kind_is_summed(x->kind) ? -1 : 1;
    }
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->owner, y->owner);
}

static size_t gather(cen_ledger_view *view, unsigned device, row *rows, size_t room) {
    size_t count = 0, entry_count = 0;
    const cen_ledger_entry *entries = cen_ledger_view_entries(view, &entry_count);
    for (size_t i = 0; i < entry_count; i++) {
        const cen_ledger_entry *e = &entries[i];
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
    }
    qsort(rows, count, sizeof *rows, by_bytes);
    return count;
}

static void put_bytes(FILE *out, int64_t bytes) {
    char text[RUN_SIZE];
    fprintf(out, " %s%10s", bytes < 0 ? "-" : " ", run_size(text, (uint64_t)llabs(bytes)));
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

static void put_device(FILE *out, cen_ledger_view *view, unsigned number, run_told *told) {
    enum { ROWS = 256 };
    row rows[ROWS];
    const cen_ledger_info *info = cen_ledger_view_info(view);
    const cen_ledger_device_info *device = cen_ledger_view_device(view, number);
    size_t count = gather(view, number, rows, ROWS);
    int64_t sum = 0;
    bool summed =
        false; /* a framework's ledger has blocks alone, which lie in what the driver gave */
    for (size_t i = 0; i < count; i++) {
        summed = summed || cen_ledger_kind_is_summed(rows[i].kind);
    }
    if (!count) {
        return;
    }
    fprintf(out, "%s %s (pid %d) on device %u, %s\n", summed ? "held by" : "within that, used by",
            info->program, info->pid, number, device && device->name[0] ? device->name : "unnamed");
    for (size_t i = 0; i < count; i++) {
        const char *kind = cen_ledger_kind_text((cen_ledger_kind)rows[i].kind);
        sum += cen_ledger_kind_is_summed(rows[i].kind) ? rows[i].bytes : 0;
        put_bytes(out, rows[i].bytes);
        fprintf(out, "  %-16s %s, %" PRIu64 "%s\n", rows[i].owner, kind, rows[i].count,
                cen_ledger_kind_is_summed(rows[i].kind) ? "" : " (not added)");
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

char *run_owners_text(cen_ledger_view *view, run_told *told) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) {
        return NULL;
    }
    for (unsigned device = 0; device < CEN_LEDGER_DEVICES; device++) {
        put_device(out, view, device, told);
    }
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- out of memory ---- */

static void explain(cen_ledger_view *view, const run_options *options,
                    const cen_ledger_failure *failure) {
    const cen_ledger_info *info = cen_ledger_view_info(view);
    const cen_ledger_device_info *device = cen_ledger_view_device(view, failure->device);
    cen_explain_options how = {.size = sizeof how,
                               .name = info->program,
                               .cap_bytes = options->limit,
                               .device_total_bytes = device ? device->total_bytes : 0};
    cen_snapshot *snapshot = NULL;
    cen_explanation *explanation = NULL;
    char *text = NULL;
    if (!cen_ledger_view_snapshot(view, &snapshot) && !cen_explain(snapshot, &how, &explanation) &&
        !cen_explain_text(explanation, &text)) {
        run_say_text(text);
    }
    free(text);
    cen_explanation_free(explanation);
    cen_snapshot_free(snapshot);
}

void run_tell_failure(cen_ledger_view *view, const run_options *options, bool first) {
    size_t count = 0;
    const cen_ledger_info *info = cen_ledger_view_info(view);
    const cen_ledger_failure *failures = cen_ledger_view_failures(view, &count);
    if (!count) {
        return;
    }
    const cen_ledger_failure *last = &failures[count - 1];
    char asked[RUN_SIZE], room[RUN_SIZE], where[512];
    run_where(view, last->stack, where, sizeof where);
    if (options->limit && last->free_bytes >= last->bytes) {
        run_say(
            "over the limit: %s (pid %d) asked for %s on device %u, where it may hold %s, at %s",
            info->program, info->pid, run_size(asked, last->bytes), last->device,
            run_size(room, options->limit), where);
    } else {
        run_say("out of memory: %s (pid %d) asked for %s on device %u, which had %s free, at %s",
                info->program, info->pid, run_size(asked, last->bytes), last->device,
                run_size(room, last->free_bytes), where);
    }
    if (!first) {
        return;
    }
    explain(view, options, last);
    run_told told = {0};
    char *owners = run_owners_text(view, &told);
    if (owners) {
        run_say_text(owners);
    }
    free(owners);
}

/* ---- the end ---- */

static void put_json(FILE *out, const char *name, cen_ledger_view *view, const char *leaks) {
    const cen_ledger_info *info = cen_ledger_view_info(view);
    fprintf(out,
            "{\"ledger\": \"%s\", \"pid\": %d, \"closed\": %s, \"failures\": %" PRIu64
            ", \"lost\": %" PRIu64 ", \"leaks\": %s}",
            name, info->pid, info->closed ? "true" : "false", info->failures, info->lost, leaks);
}

static uint64_t report(const run_watcher *watcher, const run_process *process, FILE *json,
                       bool *comma) {
    cen_ledger_view *view = run_read(watcher, process);
    uint64_t leaked = 0;
    char *text = NULL;
    if (!view) {
        run_say("%s cannot be read", process->name);
        return 0;
    }
    if (watcher->options->ledger) {
        char *owners = process->held_text ? NULL : run_owners_text(view, NULL);
        run_say_text(process->held_text ? process->held_text : owners ? owners : "");
        free(owners);
    }
    if (watcher->options->leaks && !cen_ledger_leaks_text(view, 0, &text, &leaked)) {
        const cen_ledger_info *info = cen_ledger_view_info(view);
        run_say("leaks of %s (pid %d)%s:", info->program, info->pid,
                info->closed ? "" : ", which did not come to its end");
        run_say_text(text);
    }
    free(text);
    text = NULL;
    if (json && !cen_ledger_leaks_json(view, &text, NULL)) {
        size_t length = strlen(text);
        text[length - (length && text[length - 1] == '\n')] = '\0';
        fprintf(json, "%s\n", *comma ? "," : "");
        put_json(json, process->name, view, text);
        *comma = true;
    }
    free(text);
    cen_ledger_view_free(view);
    return leaked;
}

uint64_t run_report_end(run_watcher *watcher, int status) {
    uint64_t leaked = 0;
    bool comma = false;
    const char *path = watcher->options->json;
    FILE *json = path ? fopen(path, "we") : NULL;
    if (path && !json) {
        (void)cli_failed("run", "%s cannot be written", path);
    }
    if (json) {
        fprintf(json, "{\"version\": 1, \"exit_status\": %d, \"processes\": [", status);
    }
    if (watcher->options->leaks && !watcher->count) { /* nothing was found is not nothing leaked */
        run_say("no process that could be watched used CUDA: nothing is known of leaks");
    }
    for (size_t i = 0; i < watcher->count; i++) {
        leaked += report(watcher, &watcher->processes[i], json, &comma);
    }
    if (json) {
        fprintf(json, "]}\n");
        if (fclose(json)) {
            (void)cli_failed("run", "%s cannot be written", path);
        }
    }
    return leaked;
}
