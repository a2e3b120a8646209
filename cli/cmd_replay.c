/* cenote replay: what the pool would have needed for a recorded run. */
#include "cli/cmd.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/cenote.h"
#include "cli/replay.h"

typedef struct arguments {
    const char *file;
    bool json, curve, help;
    uint64_t cap;
} arguments;

static const char usage[] =
    "usage: cenote replay FILE [--cap SIZE] [--curve] [--json]\n"
    "\n"
    "Makes the recorded allocations and frees again, one at a time, through the pool on the host\n"
    "backend, and shows what it would have reserved beside what was. FILE is a memory snapshot\n"
    "with a history (plain or gzip; \"-\" for standard input). No GPU is needed.\n"
    "\n"
    "  --cap SIZE  the framework's limit: does the request that failed fit, and by how much?\n"
    "  --curve     also with pages of fixed sizes: utilisation against driver time\n"
    "  --json      one JSON object; its keys are in docs/replay.md\n";

static const uint64_t curve_mib[] = {2, 8, 32, 128, 512};
#define CURVE_POINTS (sizeof curve_mib / sizeof *curve_mib)

typedef struct outcome {
    int device;
    replay_recorded recorded;
    replay_result own;    /* without a limit */
    replay_result capped; /* with --cap */
    replay_result curve[CURVE_POINTS];
} outcome;

static int parse(int argc, char **argv, arguments *args) {
    for (int i = 1; i < argc; i++) {
        const char *value;
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            args->help = true;
        } else if (!strcmp(argv[i], "--json")) {
            args->json = true;
        } else if (!strcmp(argv[i], "--curve")) {
            args->curve = true;
        } else if ((value = cli_option_value("--cap", argc, argv, &i))) {
            int status = cli_size_option("replay", "--cap", value, &args->cap);
            if (status) {
                return status;
            }
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return cli_usage_error("replay", "unknown option '%s'; --help lists them", argv[i]);
        } else if (args->file) {
            return cli_usage_error("replay", "one FILE, not '%s' and '%s'", args->file, argv[i]);
        } else {
            args->file = argv[i];
        }
    }
    return args->file || args->help
               ? CLI_OK
               : cli_usage_error("replay", "FILE is missing; --help says more");
}

static cen_status run_all(const cen_snapshot_device *d, const arguments *args, outcome *o) {
    o->device = d->device;
    cen_status status = replay_examine(d, &o->recorded);
    replay_options options = {0};
    if (!status) {
        status = replay_run(d, &o->recorded, &options, &o->own);
    }
    if (!status && args->cap) {
        options.cap_bytes = args->cap;
        status = replay_run(d, &o->recorded, &options, &o->capped);
        options.cap_bytes = 0;
    }
    for (size_t i = 0; args->curve && i < CURVE_POINTS && !status; i++) {
        options.page_bytes = curve_mib[i] << 20;
        status = replay_run(d, &o->recorded, &options, &o->curve[i]);
    }
    return status;
}

static double ratio(uint64_t a, uint64_t b) {
    return b ? (double)a / (double)b : 0;
}

static json_t *curve_json(const outcome *o) {
    json_t *points = json_array();
    for (size_t i = 0; i < CURVE_POINTS; i++) {
        const replay_result *r = &o->curve[i];
        json_array_append_new(
            points,
            json_pack("{s:I, s:f, s:f, s:f}", "page_bytes", (json_int_t)(curve_mib[i] << 20),
                      "utilization", ratio(r->requested_peak_bytes, r->reserved_peak_bytes),
                      "driver_seconds", r->driver_seconds, "driver_seconds_second_half",
                      r->driver_seconds_second_half));
    }
    return points;
}

static json_t *cap_json(const outcome *o, uint64_t cap) {
    const replay_result *r = &o->capped;
    json_t *j = json_pack("{s:I, s:b}", "cap_bytes", (json_int_t)cap, "completed",
                          r->failed_event == SIZE_MAX);
    if (r->failed_event != SIZE_MAX) {
        json_object_set_new(j, "failed_event", json_integer((json_int_t)r->failed_event));
    }
    if (r->tried_oom) {
        json_object_set_new(j, "fits", json_boolean(r->fits));
        json_object_set_new(j, r->fits ? "spare_bytes" : "lacking_bytes",
                            json_integer((json_int_t)r->spare_bytes));
    }
    return j;
}

static json_t *outcome_json(const outcome *o, const arguments *args) {
    const replay_result *r = &o->own;
    const replay_recorded *rec = &o->recorded;
    json_t *j = json_pack(
        "{s:i, s:I, s:{s:I, s:f, s:I, s:I}, s:{s:I, s:f, s:I, s:I, s:f, s:f, s:I}, s:f, s:f, s:I}",
        "device", o->device, "requested_peak_bytes", (json_int_t)r->requested_peak_bytes,
        "recorded", "reserved_peak_bytes", (json_int_t)rec->reserved_peak_bytes, "utilization",
        ratio(rec->requested_peak_bytes, rec->reserved_peak_bytes), "largest_hole_bytes",
        (json_int_t)rec->largest_hole_bytes, "driver_calls", (json_int_t)rec->driver_calls,
        "cenote", "reserved_peak_bytes", (json_int_t)r->reserved_peak_bytes, "utilization",
        ratio(r->requested_peak_bytes, r->reserved_peak_bytes), "largest_hole_bytes",
        (json_int_t)r->largest_hole_bytes, "driver_calls", (json_int_t)r->driver_calls,
        "driver_seconds", r->driver_seconds, "driver_seconds_second_half",
        r->driver_seconds_second_half, "remapped_bytes", (json_int_t)r->remapped_bytes,
        "recorded_seconds", r->recorded_seconds, "recorded_seconds_second_half",
        r->recorded_seconds_second_half, "skipped_frees", (json_int_t)r->skipped_frees);
    if (args->cap) {
        json_object_set_new(j, "cap", cap_json(o, args->cap));
    }
    if (args->curve) {
        json_object_set_new(j, "curve", curve_json(o));
    }
    return j;
}

#define GIB(bytes) ((double)(bytes) / (1 << 30))

static void print_cap(const outcome *o, uint64_t cap) {
    const replay_result *r = &o->capped;
    const replay_recorded *rec = &o->recorded;
    printf("cap       %.2f GiB: ", GIB(cap));
    if (r->failed_event != SIZE_MAX) {
        printf("not enough for the run before that: event %llu cannot be served\n",
               (unsigned long long)r->failed_event);
    } else if (!r->tried_oom) {
        printf("the whole run fits\n");
    } else if (r->fits) {
        printf("the %.2f GiB that failed fit, with %.2f to spare\n", GIB(rec->oom_requested_bytes),
               GIB(r->spare_bytes));
    } else if (r->spare_bytes) {
        printf("the %.2f GiB that failed do not fit: %.2f more than the cap are needed\n",
               GIB(rec->oom_requested_bytes), GIB(r->spare_bytes));
    } else {
        printf("the %.2f GiB that failed do not fit in one piece\n", GIB(rec->oom_requested_bytes));
    }
}

static void print_curve(const outcome *o) {
    printf("\npages     utilisation  driver ms  in the second half\n");
    for (size_t i = 0; i < CURVE_POINTS; i++) {
        const replay_result *r = &o->curve[i];
        printf("%4llu MiB  %11.3f  %9.1f  %9.1f (%.1f%%)\n", (unsigned long long)curve_mib[i],
               ratio(r->requested_peak_bytes, r->reserved_peak_bytes), r->driver_seconds * 1e3,
               r->driver_seconds_second_half * 1e3,
               100 * r->driver_seconds_second_half / r->recorded_seconds_second_half);
    }
}

static void print_text(const outcome *o, const arguments *args) {
    const replay_result *r = &o->own;
    const replay_recorded *rec = &o->recorded;
    printf("device %d, %.2f s recorded     recorded     cenote\n", o->device, r->recorded_seconds);
    printf("  peak requested, GiB     %10.2f %10.2f\n", GIB(rec->requested_peak_bytes),
           GIB(r->requested_peak_bytes));
    printf("  peak reserved, GiB      %10.2f %10.2f\n", GIB(rec->reserved_peak_bytes),
           GIB(r->reserved_peak_bytes));
    printf("  utilisation             %10.3f %10.3f\n",
           ratio(rec->requested_peak_bytes, rec->reserved_peak_bytes),
           ratio(r->requested_peak_bytes, r->reserved_peak_bytes));
    printf("  largest hole at %s  %9.2f %10.2f\n", rec->oom ? "OOM " : "peak",
           GIB(rec->largest_hole_bytes), GIB(r->largest_hole_bytes));
    printf("  driver calls            %10llu %10llu\n", (unsigned long long)rec->driver_calls,
           (unsigned long long)r->driver_calls);
    printf("  driver time, modelled: %.1f ms, %.1f ms (%.1f%%) of it in the second half\n",
           r->driver_seconds * 1e3, r->driver_seconds_second_half * 1e3,
           r->recorded_seconds_second_half > 0
               ? 100 * r->driver_seconds_second_half / r->recorded_seconds_second_half
               : 0);
    if (args->cap) {
        print_cap(o, args->cap);
    }
    if (args->curve) {
        print_curve(o);
    }
}

static int print_json(const outcome *outcomes, size_t count, const arguments *args) {
    json_t *devices = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(devices, outcome_json(&outcomes[i], args));
    }
    json_t *root = json_pack("{s:o}", "devices", devices);
    int status = root && !json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9))
                     ? CLI_OK
                     : cli_failed("replay", "the JSON could not be written");
    putchar('\n');
    json_decref(root);
    return status;
}

static int report(const cen_snapshot *snapshot, const arguments *args) {
    size_t count = cen_snapshot_device_count(snapshot), done = 0;
    outcome *outcomes = calloc(count + 1, sizeof *outcomes);
    cen_status status = outcomes ? CEN_OK : CEN_ERR_HOST_MEMORY;
    for (size_t i = 0; i < count && !status; i++) {
        const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, i);
        if (d->event_count) {
            status = run_all(d, args, &outcomes[done++]);
        }
    }
    int exit_status = CLI_OK;
    if (status) {
        exit_status = cli_failed("replay", "%s: %s", args->file, cen_status_text(status));
    } else if (!done) {
        exit_status = cli_failed("replay",
                                 "%s: no history to replay, only a final state; record with "
                                 "_record_memory_history",
                                 args->file);
    } else if (args->json) {
        exit_status = print_json(outcomes, done, args);
    } else {
        for (size_t i = 0; i < done; i++) {
            print_text(&outcomes[i], args);
        }
    }
    free(outcomes);
    return exit_status;
}

int cmd_replay(int argc, char **argv) {
    arguments args = {0};
    int status = parse(argc, argv, &args);
    if (status || args.help) {
        if (!status) {
            fputs(usage, stdout);
        }
        return status;
    }
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    if (cen_snapshot_read(args.file, &snapshot, &error)) {
        return cli_failed("replay", "%s", error.message);
    }
    status = report(snapshot, &args);
    cen_snapshot_free(snapshot);
    if (!status && fflush(stdout)) {
        status = cli_failed("replay", "standard output: %s", strerror(errno));
    }
    return status;
}
