/* cenote profile: a program's kernels, judged by the counters that ncu records. */
#include "cli/cmd.h"

#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "cli/profile.h"

static const char command[] = "profile";

static const char usage[] =
    "usage: cenote profile [OPTION...] [--] COMMAND [ARGUMENT...]\n"
    "       cenote profile [OPTION...] --csv FILE\n"
    "\n"
    "Runs a program under Nsight Compute (ncu) and says of each kernel what bounds it, DRAM, L2,\n"
    "L1 and shared memory, arithmetic, latency or its launches, and the one thing to try. Where "
    "ncu\n"
    "is not there or may not count, devices are sampled beside the program, if they can be. The\n"
    "program's output and exit status stay its own; the report follows on standard error, JSON on\n"
    "standard output. With --csv, no program and no GPU are needed.\n"
    "\n"
    "  --csv FILE        judges what ncu recorded elsewhere\n"
    "  --print-command   prints how ncu is called for that, and runs nothing\n"
    "  --kernel REGEX    kernels whose name matches\n"
    "  --top N           so many kernels, those that took longest; 10 if not given, in JSON all\n"
    "  --launch-limit N  profiles the first N launches: each is run several times\n"
    "  --ncu PATH        this ncu, not that of CENOTE_NCU or the newest that is found\n"
    "  --sample          does not try ncu: shares of whole devices over time\n"
    "  --machine FILE    the results of a probe, if not this machine's own\n"
    "  --json            one JSON object; its keys are in docs/profile.md\n"
    "  -o FILE           the report goes there\n"
    "\n"
    "Exit status: the program's, or 128 and the number of the signal that ended it; 125 it\n"
    "succeeded, and no profile came of it; 1 it was not run, or the recording cannot be read; 2 "
    "the\n"
    "call's words are off; 126 the program cannot be run, 127 there is none.\n";

static bool read_flag(const char *word, profile_options *options) {
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--help", &options->help},
                 {"-h", &options->help},
                 {"--json", &options->json},
                 {"--sample", &options->sample},
                 {"--print-command", &options->print_command}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!strcmp(word, flags[i].name)) {
            *flags[i].flag = true;
            return true;
        }
    }
    return false;
}

static int read_kernel(const char *value, profile_options *options) {
    options->kernel = value;
    return *value && strlen(value) < CLI_PATH - 16
               ? CLI_OK
               : cli_usage_error(command, "--kernel needs a pattern of a kernel's name");
}

/* Takes argv[*i] and its value if it is an option with a value; false: it is none. */
static bool read_value(int argc, char **argv, int *i, profile_options *options, int *status) {
    const struct {
        const char *name, *what;
        const char **to;
    } texts[] = {{"--csv", "a file that ncu wrote", &options->csv},
                 {"--ncu", "the path of ncu", &options->ncu},
                 {"--machine", "a file that 'cenote probe' wrote", &options->machine.file},
                 {"--record", "a file", &options->record},
                 {"-o", "a file to write", &options->out}};
    const char *value;
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        if ((value = cli_option_value(texts[t].name, argc, argv, i))) {
            *texts[t].to = value;
            *status = *value
                          ? CLI_OK
                          : cli_usage_error(command, "%s needs %s", texts[t].name, texts[t].what);
            return true;
        }
    }
    if ((value = cli_option_value("--kernel", argc, argv, i))) {
        *status = read_kernel(value, options);
    } else if ((value = cli_option_value("--top", argc, argv, i))) {
        *status = cli_whole_option(command, "--top", value, 1, 1000000, &options->top);
    } else if ((value = cli_option_value("--launch-limit", argc, argv, i))) {
        *status =
            cli_whole_option(command, "--launch-limit", value, 1, 1000000000, &options->launches);
    } else {
        return false;
    }
    return true;
}

/* What excludes what. */
static int check(const profile_options *options) {
    regex_t pattern;
    if (options->csv && *options->command) {
        return cli_usage_error(command, "--csv judges a file; '%s' is one word too many",
                               options->command[0]);
    }
    if (options->csv &&
        (options->sample || options->print_command || options->ncu || options->launches)) {
        return cli_usage_error(command, "--csv runs nothing: %s has no place beside it",
                               options->sample          ? "--sample"
                               : options->print_command ? "--print-command"
                               : options->ncu           ? "--ncu"
                                                        : "--launch-limit");
    }
    if (options->sample && (options->ncu || options->kernel || options->launches || options->top ||
                            options->print_command)) {
        return cli_usage_error(command, "--sample knows no kernels, and calls no ncu");
    }
    if (!options->csv && !*options->command) {
        return cli_usage_error(command, "no command; as in: cenote profile -- ./program");
    }
    if (options->csv && options->kernel) {
        if (regcomp(&pattern, options->kernel, REG_EXTENDED | REG_NOSUB)) {
            return cli_usage_error(command, "--kernel: '%s' is no regular expression",
                                   options->kernel);
        }
        regfree(&pattern);
    }
    return CLI_OK;
}

/* Options end at "--" or at the first other word, which is the command. */
static int parse(int argc, char **argv, profile_options *options) {
    int i = 1, status = CLI_OK;
    for (; i < argc && argv[i][0] == '-' && !status; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (!read_flag(argv[i], options) && !read_value(argc, argv, &i, options, &status)) {
            status = cli_usage_error(command, "unknown option '%s'; --help lists them", argv[i]);
        }
    }
    options->command = argv + (i < argc ? i : argc);
    return status || options->help ? status : check(options);
}

static int judge_csv(const profile_options *options) {
    cen_profile *profile = NULL;
    if (cen_profile_read(options->csv, &profile)) {
        return cli_failed(command, "%s", cli_reason(cen_log_last_error()));
    }
    const profile_result result = {.profile = profile};
    int status = profile_report(options, &result);
    cen_profile_free(profile);
    return status;
}

int cmd_profile(int argc, char **argv) {
    profile_options options = {0};
    int status = parse(argc, argv, &options);
    if (status || options.help) {
        fputs(options.help && !status ? usage : "", stdout);
        return status;
    }
    if (options.record) {
        return profile_record(&options);
    }
    if (options.print_command) {
        return profile_print_command(&options);
    }
    cli_hold_streams();
    status = options.sample ? CLI_OK : cli_machine_open(command, true, &options.machine);
    if (!status) {
        status = options.csv ? judge_csv(&options) : profile_run(&options);
    }
    cli_machine_close(&options.machine);
    return status;
}
