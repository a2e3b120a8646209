/* cenote probe: this machine's levels of memory, measured. */
#include "cli/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/probe.h"

typedef struct arguments {
    cen_probe_options options;
    const char *svg;
    bool json, csv, no_keep, help;
} arguments;

static const char usage[] =
    "usage: cenote probe [--json | --csv] [--svg FILE] [--dir FOLDER] [--no-keep] [--quick]\n"
    "\n"
    "Measures each level of memory of this machine's GPUs and of the host: what it holds, how far\n"
    "away it is and how many bytes a second it moves. Takes half a minute and more, and wants the\n"
    "machine to itself. The results are kept for 'cenote roofline' and 'cenote tile'. What cannot\n"
    "be measured is named with the reason. Works without a GPU.\n"
    "\n"
    "  --json        one JSON object; docs/formats/probe.md has its keys\n"
    "  --csv         all figures, one a line\n"
    "  --svg FILE    draws latencies by size, and bandwidths by level\n"
    "  --dir FOLDER  where the disk is measured, if not in $TMPDIR or /tmp\n"
    "  --no-keep     the results are printed, and not kept\n"
    "  --quick       a few seconds; the figures are rough\n";

static int parse_one(int argc, char **argv, int *i, arguments *args) {
    const char *value;
    if (cli_common_option(argv[*i], &args->help, &args->json)) {
        return CLI_OK;
    }
    if (!strcmp(argv[*i], "--csv")) {
        args->csv = true;
    } else if (!strcmp(argv[*i], "--no-keep")) {
        args->no_keep = true;
    } else if (!strcmp(argv[*i], "--quick")) {
        args->options.quick = true;
    } else if ((value = cli_option_value("--svg", argc, argv, i))) {
        args->svg = value;
        return *value ? CLI_OK : cli_usage_error("probe", "--svg needs a file to write");
    } else if ((value = cli_option_value("--dir", argc, argv, i))) {
        args->options.dir = value;
        return *value ? CLI_OK : cli_usage_error("probe", "--dir needs a folder");
    } else {
        return cli_stray_word("probe", argv[*i]);
    }
    return CLI_OK;
}

static int parse(int argc, char **argv, arguments *args) {
    int status = CLI_OK;
    struct stat st;
    for (int i = 1; i < argc && !status; i++) {
        status = parse_one(argc, argv, &i, args);
    }
    if (!status && args->json && args->csv) {
        status = cli_usage_error("probe", "--json and --csv exclude each other");
    }
    const char *dir = args->options.dir;
    if (!status && dir && (stat(dir, &st) || !S_ISDIR(st.st_mode))) {
        status = cli_usage_error("probe", "--dir: '%s' is no folder", dir);
    }
    return status;
}

static int print(const arguments *args, const cen_probe *probe) {
    char *text = NULL;
    if (args->csv) {
        probe_print_csv(probe);
    } else if (!args->json) {
        probe_print(probe, args->options.quick);
    } else if (cen_probe_json(probe, &text)) {
        return cli_failed("probe", "%s", cli_reason(cen_log_last_error()));
    } else {
        puts(text);
        free(text);
    }
    return CLI_OK;
}

/* The results are printed first: whoever cannot keep them has them still. And they are kept first:
 * whoever cannot draw them need not measure again. */
static int finish(const arguments *args, const cen_probe *probe) {
    int status = print(args, probe);
    if (!status && !args->no_keep && cen_probe_write(probe, NULL)) {
        fflush(stdout);
        status = cli_failed("probe",
                            "the results are not kept: %s; set CENOTE_PROBE to a file, or give "
                            "--no-keep",
                            cli_reason(cen_log_last_error()));
    }
    int drawn = args->svg ? probe_write_svg(probe, args->svg) : CLI_OK;
    return status ? status : drawn;
}

int cmd_probe(int argc, char **argv) {
    arguments args = {.options = {.size = sizeof args.options}};
    cen_probe *probe = NULL;
    int status = parse(argc, argv, &args);
    if (status || args.help) {
        fputs(args.help && !status ? usage : "", stdout);
        return status;
    }
    if (cen_probe_run(&args.options, &probe)) {
        return cli_failed("probe", "%s", cli_reason(cen_log_last_error()));
    }
    status = finish(&args, probe);
    cen_probe_free(probe);
    return status;
}
