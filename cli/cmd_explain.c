/* cenote explain: the verdict on a snapshot, or on a log with an out-of-memory message in it, or on
 * the snapshots of several ranks. */
#include "cli/cmd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cenote/cenote.h"

typedef struct arguments {
    const char *file;   /* the first */
    const char **files; /* argv, with the files at its front */
    size_t file_count;
    bool json, plain, help;
    cen_explain_options options;
} arguments;

static const char recipe[] =
    "cenote explain FILE needs a recording: a memory snapshot of PyTorch's, a cenote trace, or an\n"
    "RMM log. To record a snapshot in a PyTorch job:\n"
    "\n"
    "    import torch\n"
    "    torch.cuda.memory._record_memory_history(max_entries=1_000_000)\n"
    "    ...                                  # from before the model is built, if possible\n"
    "    torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")\n"
    "\n"
    "At the moment when memory runs out, by itself, instead of the last line:\n"
    "\n"
    "    def on_oom(device, requested, allowed, free):\n"
    "        torch.cuda.memory._dump_snapshot(f\"oom-{device}.pickle\")\n"
    "    torch._C._cuda_attach_out_of_memory_observer(on_oom)\n"
    "\n"
    "In a job of many ranks, name files by rank: f\"rank{rank}.pickle\". Then\n"
    "'cenote explain rank*.pickle' says which rank stands out, and by what.\n"
    "\n"
    "A program that uses cenote's pools records a trace when it is asked to:\n"
    "\n"
    "    CENOTE_TRACE=job-%p.cenotrace ./engine   # %p: the process's id\n"
    "\n"
    "or calls cen_trace_start before the pools are made; its steps and stacks tell more. An RMM\n"
    "log is what rmm.enable_logging() or a logging_resource_adaptor writes.\n"
    "\n"
    "A log that contains the text of a \"CUDA out of memory\" error can be explained too.\n";

static const char usage[] =
    "usage: cenote explain [FILE...] [--cap SIZE] [--device-total SIZE] [--json]\n"
    "\n"
    "Says why memory ran out, or whether it will: the verdict first, then the evidence.\n"
    "FILE is a PyTorch memory snapshot, a cenote trace or an RMM log (plain or gzip; \"-\" for\n"
    "standard input), or a log with the text of a \"CUDA out of memory\" error.\n"
    "Without FILE: how to make a recording.\n"
    "Several FILEs are snapshots of the ranks of one job: which rank stands out, by which stack,\n"
    "and the verdict on that rank. The number in a file's name is its rank.\n"
    "\n"
    "  --cap SIZE           what the framework may hold, such as 27.94GiB (30GB: as much)\n"
    "  --device-total SIZE  the device's memory: needed to see what others hold\n"
    "  --json               one JSON object; its keys are in docs/explain.md\n";

/* Files are gathered at the front of argv, which is read before it is written. */
static int parse(int argc, char **argv, arguments *args) {
    for (int i = 1; i < argc; i++) {
        const char *value;
        int status = CLI_OK;
        if (cli_end_of_options(argv[i], &args->plain)) {
            continue;
        }
        if (cli_is_operand(argv[i], args->plain)) {
            args->files[args->file_count++] = argv[i];
        } else if (cli_common_option(argv[i], &args->help, &args->json)) {
            continue;
        } else if ((value = cli_option_value("--cap", argc, argv, &i))) {
            status = cli_size_option("explain", "--cap", value, &args->options.cap_bytes);
        } else if ((value = cli_option_value("--device-total", argc, argv, &i))) {
            status = cli_size_option("explain", "--device-total", value,
                                     &args->options.device_total_bytes);
        } else {
            status = cli_stray_word("explain", argv[i]);
        }
        if (status) {
            return status;
        }
    }
    args->file = args->file_count ? args->files[0] : NULL;
    for (size_t i = 0; args->file_count > 1 && i < args->file_count; i++) {
        if (!strcmp(args->files[i], "-")) {
            return cli_usage_error("explain", "'-' cannot be one of several files");
        }
    }
    return CLI_OK;
}

/* Most of a log that is read, from its end: the last message is what counts. */
#define LOG_MAX ((off_t)256 << 20)

static bool is_binary(int fd) {
    unsigned char first[2] = {0};
    ssize_t got = pread(fd, first, sizeof first, 0);
    bool gzip = got == 2 && first[0] == 0x1f && first[1] == 0x8b;
    return got <= 0 || gzip || first[0] == 0x80;
}

/* Reads a file of text, or the end of a long one. NULL: it cannot be read, or it is binary (a
 * snapshot). What is no plain file is not even opened: a pipe can be read only once. */
static char *read_text(const char *path, size_t *size) {
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode) || st.st_size <= 0) {
        return NULL;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t from = st.st_size > LOG_MAX ? st.st_size - LOG_MAX : 0;
    size_t room = (size_t)(st.st_size - from);
    char *text = fd < 0 || is_binary(fd) ? NULL : malloc(room);
    ssize_t got = 1;
    for (*size = 0; text && got > 0 && *size<room; *size += got> 0 ? (size_t)got : 0) {
        got = pread(fd, text + *size, room - *size, from + (off_t)*size);
    }
    if (fd >= 0) {
        close(fd);
    }
    return text;
}

static int print(const arguments *args, const cen_explanation *explanation) {
    char *out = NULL;
    cen_status status =
        args->json ? cen_explain_json(explanation, &out) : cen_explain_text(explanation, &out);
    if (status) {
        return cli_failed("explain", "%s", cen_status_text(status));
    }
    fputs(out, stdout); /* main sees whether it could be written */
    free(out);
    return CLI_OK;
}

/* Explains a log; CEN_ERR_NOT_FOUND in *status: the file is none, try a snapshot. */
static int explain_log(const arguments *args, cen_status *status) {
    size_t size = 0;
    char *text = read_text(args->file, &size);
    cli_last_error last = {.text = ""};
    cen_explanation *explanation = NULL;
    cen_log_set(cli_keep_error, &last, CEN_LOG_ERROR);
    *status = text ? cen_explain_log(text, size, &args->options, &explanation) : CEN_ERR_NOT_FOUND;
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    free(text);
    if (*status == CEN_ERR_NOT_FOUND) {
        return CLI_FAILED;
    }
    if (*status) {
        return cli_failed("explain", "%s: %s", args->file, last.text);
    }
    int result = print(args, explanation);
    cen_explanation_free(explanation);
    return result;
}

static int explain_snapshot(const arguments *args) {
    cen_snapshot *snapshot = NULL;
    cen_explanation *explanation = NULL;
    cen_read_error error;
    cli_last_error last = {.text = ""};
    if (cli_read("explain", args->file, &snapshot, &error)) {
        return cli_failed("explain", "%s", error.message);
    }
    cen_log_set(cli_keep_error, &last, CEN_LOG_ERROR);
    cen_status status = cen_explain(snapshot, &args->options, &explanation);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    int result =
        status ? cli_failed("explain", "%s: %s", args->file, last.text) : print(args, explanation);
    cen_explanation_free(explanation);
    cen_snapshot_free(snapshot);
    return result;
}

static int explain_ranks(const arguments *args) {
    cli_last_error last = {.text = ""};
    cen_explanation *explanation = NULL;
    cen_log_set(cli_keep_error, &last, CEN_LOG_ERROR);
    cen_status status =
        cen_explain_rank_files(args->files, args->file_count, &args->options, &explanation);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    int result = status ? cli_failed("explain", "%s", last.text) : print(args, explanation);
    cen_explanation_free(explanation);
    return result;
}

int cmd_explain(int argc, char **argv) {
    arguments args = {.files = (const char **)argv, .options.size = sizeof args.options};
    int status = parse(argc, argv, &args);
    if (status) {
        return status;
    }
    if (args.help || !args.file) {
        fputs(args.help ? usage : recipe, stdout);
        return CLI_OK;
    }
    if (args.file_count > 1) {
        return explain_ranks(&args);
    }
    char name[CLI_NAME];
    args.options.name = cli_base_name(args.file, name);
    cen_status found = CEN_ERR_NOT_FOUND;
    if (strcmp(args.file, "-")) {
        status = explain_log(&args, &found);
    }
    return found == CEN_ERR_NOT_FOUND ? explain_snapshot(&args) : status;
}
