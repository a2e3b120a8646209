/* What `cenote run` says of a ledger: why memory ran out, what was never freed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cenote/cenote.h"
#include "cli/cmd.h"
#include "cli/run.h"

/* ---- out of memory ---- */

static void explain(cen_ledger_view *view, const run_options *options,
                    const cen_ledger_failure *failure) {
    char name[RUN_PROGRAM];
    const cen_ledger_device_info *device = cen_ledger_view_device(view, failure->device);
    cen_explain_options how = {.size = sizeof how,
                               .name = run_program(name, view),
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

void run_tell_failure(cen_ledger_view *view, const run_options *options, const char *owners) {
    size_t count = 0;
    const cen_ledger_info *info = cen_ledger_view_info(view);
    const cen_ledger_failure *failures = cen_ledger_view_failures(view, &count);
    if (!count) {
        return;
    }
    const cen_ledger_failure *last = &failures[count - 1];
    char asked[CLI_SIZE], room[CLI_SIZE], where[512], program[RUN_PROGRAM];
    run_where(view, last->stack, where, sizeof where);
    if (options->limit && last->free_bytes >= last->bytes) {
        run_say(
            "over the limit: %s (pid %d) asked for %s on device %u, where it may hold %s, at %s",
            run_program(program, view), info->pid, cli_size_text(asked, last->bytes), last->device,
            cli_size_text(room, options->limit), where);
    } else {
        run_say("out of memory: %s (pid %d) asked for %s on device %u, which had %s free, at %s",
                run_program(program, view), info->pid, cli_size_text(asked, last->bytes),
                last->device, cli_size_text(room, last->free_bytes), where);
    }
    if (owners) {
        explain(view, options, last);
        run_say_text(owners);
    }
}

/* ---- the end ---- */

static void put_json(FILE *out, const char *name, cen_ledger_view *view, const char *leaks) {
    const cen_ledger_info *info = cen_ledger_view_info(view);
    fprintf(out,
            "{\"ledger\": \"%s\", \"pid\": %d, \"closed\": %s, \"failures\": %" PRIu64
            ", \"lost\": %" PRIu64 ", \"leaks\": %s}",
            name, info->pid, info->closed ? "true" : "false", info->failures, info->lost, leaks);
}

/* At the last look while it ran; if it was too short for one, at its peak, for a program that comes
 * to its end has freed what it held. What was told at a failure is not told again. */
static void say_held(const run_process *process, cen_ledger_view *view) {
    if (process->held_text) {
        run_say_text(process->held_text);
    } else if (!process->told) {
        bool closed = cen_ledger_view_info(view)->closed;
        char *owners = run_owners_text(view, closed ? RUN_PEAK : RUN_END, NULL);
        run_say_text(owners ? owners : "");
        free(owners);
    }
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
        say_held(process, view);
    }
    if (watcher->options->leaks && !cen_ledger_leaks_text(view, 0, &text, &leaked)) {
        const cen_ledger_info *info = cen_ledger_view_info(view);
        char program[RUN_PROGRAM];
        run_say("leaks of %s (pid %d)%s:", run_program(program, view), info->pid,
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
