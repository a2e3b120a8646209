/* cenote quantize: a tensor file in fewer bits. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/tensors.h"

enum { PATTERNS = 64 };

typedef struct arguments {
    const char *in, *out, *format, *calibrate;
    uint64_t group, top;
    cen_quantize_options options;
    const char *include[PATTERNS], *exclude[PATTERNS];
    bool asymmetric, budget, json, plain, help;
} arguments;

static const char usage[] =
    "usage: cenote quantize IN -o OUT [--format FORMAT] [--group N] [--asymmetric]\n"
    "                       [--calibrate METHOD] [--budget LIMITS] [--include PATTERN]\n"
    "                       [--exclude PATTERN] [--top N] [--json]\n"
    "\n"
    "Writes the tensors of the safetensors file IN, or of all files of its index, in fewer bits "
    "to\n"
    "OUT, and says what that cost each of them. Encoded are F32, F16 and BF16 of two dimensions "
    "and\n"
    "more; all else stays as it is. OUT appears whole or not at all.\n"
    "\n"
    "  --format FORMAT    int8 (if not given), int4, fp8_e4m3, fp8_e5m2, fp16, bf16, 2:4_fp16,\n"
    "                     2:4_bf16, 2:4_int8, lossless_bf16; none: what is encoded is decoded\n"
    "  --group N          a scale for each N elements of a row, 32, 64 or 128; not for each row\n"
    "  --asymmetric       zero points, too; int8, int4 and 2:4_int8\n"
    "  --calibrate METHOD how far a tensor's scales reach: minmax (if not given): to its largest\n"
    "                     element; percentile, or percentile=P (99.99), entropy, mse: to a "
    "threshold,\n"
    "                     found on the tensor itself, and what is beyond is cut off\n"
    "  --budget LIMITS    such as sqnr=30 or sqnr=30,cosine=0.999,max-error=0.01 (of the largest\n"
    "                     element): a tensor over it gets a wider format, or stays as it is\n"
    "  --include PATTERN  only tensors whose name fits, as 'model.layers.*'; may be repeated\n"
    "  --exclude PATTERN  not those; may be repeated\n"
    "  --top N            lists the N worst tensors; 10 if not given\n"
    "  --json             one JSON object with all tensors; its keys are in docs/tensors.md\n";

/* ---- the call ---- */

static int add_pattern(const char *option, const char *value, const char **patterns,
                       size_t *count) {
    if (!*value) {
        return cli_usage_error("quantize", "%s needs a pattern, such as 'model.layers.*'", option);
    }
    if (*count == PATTERNS) {
        return cli_usage_error("quantize", "%s is given more than %d times", option, PATTERNS);
    }
    patterns[(*count)++] = value;
    return CLI_OK;
}

static int wrong_budget(const char *value) {
    return cli_usage_error("quantize",
                           "--budget is made of sqnr=DB, cosine=C and max-error=E, such as "
                           "sqnr=30,cosine=0.999%s%s%s",
                           *value ? "; not '" : "", value, *value ? "'" : "");
}

static int parse_budget(const char *value, cen_codec_budget *budget) {
    const struct {
        const char *name;
        double *to, most;
    } limits[] = {{"sqnr=", &budget->min_sqnr_db, 1000},
                  {"cosine=", &budget->min_cosine, 1},
                  {"max-error=", &budget->max_error, 1e300}};
    const char *at = value;
    do {
        char *end = NULL;
        for (size_t i = 0; i < sizeof limits / sizeof *limits && !end; i++) {
            size_t length = strlen(limits[i].name);
            if (!strncmp(at, limits[i].name, length)) {
                double limit = strtod(at + length, &end);
                if (end == at + length || !(limit > 0 && limit <= limits[i].most)) {
                    return wrong_budget(value);
                }
                *limits[i].to = limit;
            }
        }
        if (!end || (*end && *end != ',')) {
            return wrong_budget(value);
        }
        at = *end ? end + 1 : end;
        if (*end && !*at) {
            return wrong_budget(value);
        }
    } while (*at);
    return CLI_OK;
}

static int parse_calibrate(const char *value, arguments *args) {
    static const char *const names[] = {[CEN_THRESHOLD_MAX] = "minmax",
                                        [CEN_THRESHOLD_PERCENTILE] = "percentile",
                                        [CEN_THRESHOLD_ENTROPY] = "entropy",
                                        [CEN_THRESHOLD_MSE] = "mse"};
    cen_quantize_options *o = &args->options;
    char *end = NULL;
    o->percentile = 99.99;
    if (!strncmp(value, "percentile=", 11)) {
        o->percentile = strtod(value + 11, &end);
        o->threshold = CEN_THRESHOLD_PERCENTILE;
        args->calibrate = value;
        if (end != value + 11 && !*end && o->percentile > 0 && o->percentile <= 100) {
            return CLI_OK;
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(value, names[i])) {
            o->threshold = (cen_threshold)i;
            args->calibrate = i ? names[i] : NULL;
            return CLI_OK;
        }
    }
    return cli_usage_error("quantize",
                           "--calibrate is minmax, percentile, percentile=P (over 0 to 100), "
                           "entropy or mse, not '%s'",
                           value);
}

static int parse_one(int argc, char **argv, int *i, arguments *args) {
    cen_quantize_options *o = &args->options;
    const char *value;
    if (cli_end_of_options(argv[*i], &args->plain)) {
        return CLI_OK;
    }
    if (cli_is_operand(argv[*i], args->plain)) {
        if (*args->in) {
            return cli_usage_error("quantize", "one IN, not '%s' and '%s'; OUT comes after -o",
                                   args->in, argv[*i]);
        }
        args->in = argv[*i];
    } else if (cli_common_option(argv[*i], &args->help, &args->json)) {
        return CLI_OK;
    } else if (!strcmp(argv[*i], "--asymmetric")) {
        args->asymmetric = true;
    } else if (!strcmp(argv[*i], "-o")) {
        args->out = *i + 1 < argc ? argv[++*i] : "";
    } else if ((value = cli_option_value("--format", argc, argv, i))) {
        args->format = value;
    } else if ((value = cli_option_value("--group", argc, argv, i))) {
        return cli_whole_option("quantize", "--group", value, 1, 128, &args->group);
    } else if ((value = cli_option_value("--budget", argc, argv, i))) {
        args->budget = true;
        return parse_budget(value, &o->budget);
    } else if ((value = cli_option_value("--calibrate", argc, argv, i))) {
        return parse_calibrate(value, args);
    } else if ((value = cli_option_value("--include", argc, argv, i))) {
        return add_pattern("--include", value, args->include, &o->include_count);
    } else if ((value = cli_option_value("--exclude", argc, argv, i))) {
        return add_pattern("--exclude", value, args->exclude, &o->exclude_count);
    } else if ((value = cli_option_value("--top", argc, argv, i))) {
        return cli_whole_option("quantize", "--top", value, 0, INT32_MAX, &args->top);
    } else {
        return cli_stray_word("quantize", argv[*i]);
    }
    return CLI_OK;
}

static bool is_none(const arguments *args) {
    return !strcmp(args->format, "none");
}

static int choose_codec(arguments *args) {
    cen_codec *codec = &args->options.codec;
    if (is_none(args)) {
        return args->group || args->asymmetric || args->calibrate || args->budget ||
                       args->options.include_count || args->options.exclude_count
                   ? cli_usage_error("quantize",
                                     "--format none takes no --group, --asymmetric, --calibrate, "
                                     "--budget, --include or --exclude")
                   : CLI_OK;
    }
    if (cen_codec_format_find(args->format, &codec->format)) {
        return cli_usage_error("quantize", "--format: '%s' is none; --help lists them",
                               args->format);
    }
    cen_dtype dtype = cen_codec_format_dtype(codec->format);
    bool scaled =
        dtype == CEN_INT8 || dtype == CEN_INT4 || dtype == CEN_FP8_E4M3 || dtype == CEN_FP8_E5M2;
    if (!scaled && (args->group || args->asymmetric || args->calibrate)) {
        return cli_usage_error("quantize",
                               "%s has no scales: it takes no --group, --asymmetric or --calibrate",
                               args->format);
    }
    if (args->calibrate && args->asymmetric) {
        return cli_usage_error("quantize", "--calibrate %s is of scales without --asymmetric",
                               args->calibrate);
    }
    if (args->options.threshold == CEN_THRESHOLD_ENTROPY && dtype != CEN_INT8 &&
        dtype != CEN_INT4) {
        return cli_usage_error("quantize", "--calibrate entropy is of int8 and int4, not of %s",
                               args->format);
    }
    if (args->group && args->group != 32 && args->group != 64 && args->group != 128) {
        return cli_usage_error("quantize", "--group is 32, 64 or 128, not %u",
                               (unsigned)args->group);
    }
    codec->granularity = !scaled       ? CEN_CODEC_UNSCALED
                         : args->group ? CEN_CODEC_GROUP
                                       : CEN_CODEC_ROW;
    codec->group = (uint32_t)args->group;
    codec->asymmetric = args->asymmetric;
    return cen_codec_check(codec)
               ? cli_usage_error("quantize", "%s", cli_reason(cen_log_last_error()))
               : CLI_OK;
}

static int parse(int argc, char **argv, arguments *args) {
    int status = CLI_OK;
    for (int i = 1; i < argc && !status; i++) {
        status = parse_one(argc, argv, &i, args);
    }
    if (status || args->help) {
        return status;
    }
    if (!*args->in) {
        return cli_usage_error("quantize", "IN is missing; --help says more");
    }
    if (!*args->out) {
        return cli_usage_error("quantize", "-o OUT is missing; --help says more");
    }
    args->options.include = args->include;
    args->options.exclude = args->exclude;
    return choose_codec(args);
}

/* ---- the work ---- */

/* The library's messages, and a bar on a terminal. */
typedef struct watch {
    cli_last_error last;
    int drawn; /* percent; -1: there is no bar */
} watch;

/* Redrawn when a hundredth more is done. */
static void draw(void *arg, uint64_t done, uint64_t total) {
    watch *w = arg;
    int percent = total ? (int)(100 * (double)done / (double)total) : 100;
    if (percent != w->drawn) {
        char bar[51];
        memset(bar, '.', 50);
        memset(bar, '#', (size_t)percent / 2);
        bar[50] = 0;
        fprintf(stderr, "\r[%s] %3d %%", bar, percent);
        w->drawn = percent;
    }
}

static void clear_bar(watch *w) {
    if (w->drawn >= 0) {
        fprintf(stderr, "\r%60s\r", "");
        w->drawn = -1;
    }
}

static void keep_message(void *arg, cen_log_level level, const char *message) {
    watch *w = arg;
    clear_bar(w);
    cli_keep_error(&w->last, level, message);
}

static cen_status make(arguments *args, const cen_tensors *in, cen_quantize_row *rows,
                       char reason[1024]) {
    watch w = {.last = {.command = "quantize"}, .drawn = -1};
    if (isatty(STDERR_FILENO)) {
        args->options.progress = draw;
        args->options.arg = &w;
    }
    cen_log_set(keep_message, &w, CEN_LOG_WARN);
    cen_status status = is_none(args) ? cen_dequantize(in, args->out, &args->options, rows)
                                      : cen_quantize(in, args->out, &args->options, rows);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    clear_bar(&w);
    snprintf(reason, 1024, "%s", cli_reason(w.last.text));
    return status;
}

/* What the output takes, as it is on the disk. */
static uint64_t bytes_of(const char *path) {
    cen_tensors *made = NULL;
    uint64_t bytes = 0;
    if (!cen_tensors_open(path, &made)) {
        bytes = cen_tensors_get_shard(made, 0)->bytes;
    }
    cen_tensors_close(made);
    return bytes;
}

/* What could not be printed is a failure, but not of the file. */
static int finish_printing(const arguments *args) {
    return fflush(stdout) || ferror(stdout)
               ? cli_failed("quantize", "standard output: %s; %s is written, and whole",
                            strerror(errno), args->out)
               : CLI_OK;
}

static int run(arguments *args, const cen_tensors *in) {
    quantize_result result = {.codec = is_none(args) ? NULL : &args->options.codec,
                              .calibrate = args->calibrate,
                              .count = cen_tensors_count(in)};
    char reason[1024];
    result.rows = calloc(result.count ? result.count : 1, sizeof *result.rows);
    if (!result.rows) {
        return cli_failed("quantize", "%s", cen_status_text(CEN_ERR_HOST_MEMORY));
    }
    int status = CLI_OK;
    if (make(args, in, result.rows, reason)) {
        status = cli_failed("quantize", "%s", reason);
    } else {
        cli_base_name(args->in, result.in);
        cli_base_name(args->out, result.out);
        for (size_t i = 0; i < cen_tensors_shard_count(in); i++) {
            result.file_before += cen_tensors_get_shard(in, i)->bytes;
        }
        result.file_after = bytes_of(args->out);
        if (args->json) {
            status = quantize_print_json(&result);
        } else {
            quantize_print(&result, (size_t)args->top);
        }
        status = status ? status : finish_printing(args);
    }
    free(result.rows);
    return status;
}

int cmd_quantize(int argc, char **argv) {
    arguments args = {
        .in = "", .out = "", .format = "int8", .top = 10, .options = {.size = sizeof args.options}};
    cen_tensors *in = NULL;
    int status = parse(argc, argv, &args);
    if (status || args.help) {
        fputs(args.help && !status ? usage : "", stdout);
        return status;
    }
    if (!tensors_open("quantize", args.in, &in)) {
        return CLI_FAILED;
    }
    status = run(&args, in);
    cen_tensors_close(in);
    return status;
}
