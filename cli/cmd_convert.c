/* cenote convert: a recording in another format. */
#include "cli/cmd.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cenote/cenote.h"

typedef struct arguments {
    const char *in, *out; /* "": missing */
    const char *to;       /* NULL: by the ending of `out` */
    bool plain, help;
} arguments;

static const char usage[] =
    "usage: cenote convert IN -o OUT [--to torch|trace|chrome]\n"
    "\n"
    "Writes the recording IN in another format. IN is a PyTorch memory snapshot, a cenote trace "
    "or\n"
    "an RMM log (plain or gzip; \"-\" for standard input); OUT appears whole or not at all (\"-\" "
    "for\n"
    "standard output), and is compressed if its name ends in .gz.\n"
    "\n"
    "  --to torch   a PyTorch snapshot, for its memory_viz page (OUT ends in .pickle or .pkl)\n"
    "  --to trace   cenote's trace (OUT ends in .cenotrace)\n"
    "  --to chrome  Chrome's trace events, for ui.perfetto.dev (OUT ends in .json)\n"
    "\n"
    "Without --to, the ending of OUT decides. docs/convert.md says what each format keeps.\n";

static const struct {
    const char *name;
    cen_format format;
} formats[] = {
    {"torch", CEN_FORMAT_TORCH}, {"trace", CEN_FORMAT_TRACE}, {"chrome", CEN_FORMAT_CHROME}};

static const struct {
    const char *ending, *format;
} endings[] = {
    {".pickle", "torch"}, {".pkl", "torch"}, {".cenotrace", "trace"}, {".json", "chrome"}};

static int parse(int argc, char **argv, arguments *args) {
    for (int i = 1; i < argc; i++) {
        const char *value;
        if (cli_end_of_options(argv[i], &args->plain)) {
            continue;
        }
        if (cli_is_operand(argv[i], args->plain)) {
            if (*args->in) {
                return cli_usage_error("convert", "one IN, not '%s' and '%s'; OUT comes after -o",
                                       args->in, argv[i]);
            }
            args->in = argv[i];
        } else if (cli_common_option(argv[i], &args->help, NULL)) {
            continue;
        } else if ((value = cli_option_value("--to", argc, argv, &i))) {
            args->to = value;
        } else if (!strcmp(argv[i], "-o")) {
            args->out = i + 1 < argc ? argv[++i] : "";
        } else {
            return cli_stray_word("convert", argv[i]);
        }
    }
    if (args->help) {
        return CLI_OK;
    }
    if (!*args->in) {
        return cli_usage_error("convert", "IN is missing; --help says more");
    }
    if (!*args->out) {
        return cli_usage_error("convert", "-o OUT is missing; --help says more");
    }
    return CLI_OK;
}

/* The length of a name without ".gz". */
static size_t bare_length(const char *name) {
    size_t length = strlen(name);
    return length > 3 && !strcmp(name + length - 3, ".gz") ? length - 3 : length;
}

static const char *format_of_name(const char *name) {
    size_t length = bare_length(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t size = strlen(endings[i].ending);
        if (length > size && !strncmp(name + length - size, endings[i].ending, size)) {
            return endings[i].format;
        }
    }
    return NULL;
}

static int choose_format(const arguments *args, cen_format *format) {
    const char *name = args->to ? args->to : format_of_name(args->out);
    if (!name) {
        return cli_usage_error("convert",
                               "'%s' does not end in .pickle, .pkl, .cenotrace or .json (or these "
                               "and .gz): --to says the format",
                               args->out);
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!strcmp(name, formats[i].name)) {
            *format = formats[i].format;
            return CLI_OK;
        }
    }
    return cli_usage_error("convert", "--to: '%s' is not torch, trace or chrome", name);
}

/* Two names of one plain file. */
static bool is_same_file(const char *in, const char *out) {
    struct stat a, b;
    bool known = !(strcmp(in, "-") ? stat(in, &a) : fstat(STDIN_FILENO, &a)) &&
                 !(strcmp(out, "-") ? stat(out, &b) : fstat(STDOUT_FILENO, &b));
    return known && S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int cmd_convert(int argc, char **argv) {
    arguments args = {.in = "", .out = ""};
    cen_format format = CEN_FORMAT_TORCH;
    int status = parse(argc, argv, &args);
    if (status) {
        return status;
    }
    if (args.help) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    status = choose_format(&args, &format);
    if (status) {
        return status;
    }
    if (is_same_file(args.in, args.out)) {
        return cli_failed("convert", "%s: IN and OUT are the same file", args.out);
    }
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    if (cli_read("convert", args.in, &snapshot, &error) ||
        cen_snapshot_write(snapshot, format, args.out, &error)) {
        status = cli_failed("convert", "%s", error.message);
    }
    cen_snapshot_free(snapshot);
    return status;
}
