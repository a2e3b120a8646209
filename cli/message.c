/* What the commands say beside their results: failures, and names of files. */
#include "cli/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void print_error(const char *command, const char *format, va_list args) {
    fprintf(stderr, "cenote%s%s: ", *command ? " " : "", command);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

int cli_usage_error(const char *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_error(command, format, args);
    va_end(args);
    return CLI_USAGE;
}

int cli_failed(const char *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_error(command, format, args);
    va_end(args);
    return CLI_FAILED;
}

void cli_keep_error(void *arg, cen_log_level level, const char *message) {
    cli_last_error *last = arg;
    if (level == CEN_LOG_ERROR) {
        snprintf(last->text, sizeof last->text, "%s", message);
    }
}

const char *cli_file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return !strcmp(path, "-") ? "standard input" : slash ? slash + 1 : path;
}
