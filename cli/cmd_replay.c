/* cenote replay: what the pool would have needed for a recorded run. */
#include "cli/cmd.h"

#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/cenote.h"
#include "cli/replay_report.h"

typedef struct arguments {
    const char *file;
    bool json, curve, plain, help;
    uint64_t cap;
} arguments;

static const char usage[] =
    "usage: cenote replay FILE [--cap SIZE] [--curve] [--json]\n"
    "\n"
    "Makes the recorded allocations and frees again, one at a time, through the pool on the host\n"
    "backend, and shows what it would have reserved beside what was. FILE is a PyTorch memory\n"
    "snapshot with a history, a cenote trace or an RMM log (plain or gzip; \"-\" for standard "
    "input).\n"
    "No GPU is needed.\n"
    "\n"
    "  --cap SIZE  the framework's limit, such as 27.94GiB (30GB: as much): does the request that\n"
    "              failed fit, and by how much?\n"
    "  --curve     also with pages of fixed sizes: utilisation against driver time\n"
    "  --json      one JSON object; its keys are in docs/replay.md\n";

const uint64_t replay_curve_mib[REPLAY_CURVE_POINTS] = {2, 8, 32, 128, 512};

static int parse(int argc, char **argv, arguments *args) {
    for (int i = 1; i < argc; i++) {
        const char *value;
        if (cli_end_of_options(argv[i], &args->plain)) {
            continue;
        }
        if (cli_is_operand(argv[i], args->plain)) {
            if (args->file) {
                return cli_usage_error("replay", "one FILE, not '%s' and '%s'", args->file,
                                       argv[i]);
            }
            args->file = argv[i];
        } else if (cli_common_option(argv[i], &args->help, &args->json)) {
            continue;
        } else if (!strcmp(argv[i], "--curve")) {
            args->curve = true;
        } else if ((value = cli_option_value("--cap", argc, argv, &i))) {
            int status = cli_size_option("replay", "--cap", value, &args->cap);
            if (status) {
                return status;
            }
        } else {
            return cli_stray_word("replay", argv[i]);
        }
    }
    return args->file || args->help
               ? CLI_OK
               : cli_usage_error("replay", "FILE is missing; --help says more");
}

static cen_status run_all(replay_outcome *o) {
    cen_status status = replay_examine(o->d, &o->recorded);
    replay_options options = {0};
    if (!status) {
        status = replay_run(o->d, &o->recorded, &options, &o->own);
    }
    if (!status && o->cap_bytes) {
        options.cap_bytes = o->cap_bytes;
        status = replay_run(o->d, &o->recorded, &options, &o->capped);
        options.cap_bytes = 0;
    }
    for (size_t i = 0; o->with_curve && i < REPLAY_CURVE_POINTS && !status; i++) {
        options.page_bytes = replay_curve_mib[i] << 20;
        status = replay_run(o->d, &o->recorded, &options, &o->curve[i]);
    }
    return status;
}

static int print_json(const replay_outcome *outcomes, size_t count) {
    json_t *devices = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(devices, replay_json(&outcomes[i]));
    }
    bool complete = json_array_size(devices) == count;
    json_t *root = json_pack("{s:o}", "devices", devices);
    int status = CLI_OK;
    if (!root || !complete || json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9))) {
        status = cli_failed("replay", "the JSON could not be written");
    } else {
        putchar('\n');
    }
    json_decref(root);
    return status;
}

static int no_history(const cen_snapshot *snapshot, const arguments *args) {
    return cli_failed(
        "replay",
        cen_snapshot_setting(snapshot, "cenote")
            ? "%s: no allocations to replay; start the trace before the pools are made"
            : "%s: no history to replay, only a final state; record with "
              "_record_memory_history",
        args->file);
}

static int print_all(const replay_outcome *outcomes, size_t count, const arguments *args) {
    if (args->json) {
        return print_json(outcomes, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (i) {
            putchar('\n');
        }
        replay_print(&outcomes[i]);
    }
    return CLI_OK;
}

static int report(const cen_snapshot *snapshot, const arguments *args) {
    char name[CLI_NAME];
    cli_base_name(args->file, name);
    size_t count = cen_snapshot_device_count(snapshot), done = 0;
    replay_outcome *outcomes = calloc(count + 1, sizeof *outcomes);
    cen_status status = outcomes ? CEN_OK : CEN_ERR_HOST_MEMORY;
    cli_last_error last = {.text = ""};
    cen_log_set(cli_keep_error, &last, CEN_LOG_ERROR);
    for (size_t i = 0; i < count && !status; i++) {
        const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, i);
        if (!d->event_count) {
            continue;
        }
        replay_outcome *o = &outcomes[done++];
        o->name = name;
        o->snapshot = snapshot;
        o->d = d;
        o->cap_bytes = args->cap;
        o->with_curve = args->curve;
        status = run_all(o);
    }
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    int exit_status = status
                          ? cli_failed("replay", "%s: %s%s%s", args->file, cen_status_text(status),
                                       *last.text ? ": " : "", last.text)
                      : done ? print_all(outcomes, done, args)
                             : no_history(snapshot, args);
    free(outcomes);
    return exit_status;
}

/* Freed small objects wait in caches by processor: on one, a replay gives the same figures each
 * time. If it cannot be had, they differ a little. */
static void stay_on_one_processor(void) {
    int cpu = sched_getcpu();
    cpu_set_t one;
    if (cpu >= 0 && cpu < CPU_SETSIZE) {
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        (void)sched_setaffinity(0, sizeof one, &one);
    }
}

int cmd_replay(int argc, char **argv) {
    arguments args = {0};
    int status = parse(argc, argv, &args);
    if (status || args.help || !args.file) {
        if (args.help && !status) {
            fputs(usage, stdout);
        }
        return status;
    }
    stay_on_one_processor();
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    if (cli_read("replay", args.file, &snapshot, &error)) {
        return cli_failed("replay", "%s", error.message);
    }
    status = report(snapshot, &args);
    cen_snapshot_free(snapshot);
    return status;
}
