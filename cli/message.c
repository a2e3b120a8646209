/* What the commands say beside their results: failures, and names of files. */
#include "cli/cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The bytes of a character of UTF-8 that would act on a terminal, or hide; 0: it is another. */
static size_t control_length(const unsigned char *c) {
    if (*c < ' ' || *c == 0x7f) {
        return 1;
    }
    if ((*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) || (*c == 0xd8 && c[1] == 0x9c)) {
        return 2; /* C1; U+061C */
    }
    bool marks = *c == 0xe2 && c[1] == 0x80 && /* U+200B, U+200E, U+200F, U+2028 to U+202E */
                 (c[2] == 0x8b || c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xa8 && c[2] <= 0xae));
    bool format = *c == 0xe2 && c[1] == 0x81 && c[2] >= 0xa0 && c[2] <= 0xaf; /* U+2060 to 206F */
    bool no_width = *c == 0xef && c[1] == 0xbb && c[2] == 0xbf;               /* U+FEFF */
    return marks || format || no_width ? 3 : 0;
}

void cli_one_line(char *text) {
    while (*text) {
        size_t length = control_length((const unsigned char *)text);
        memset(text, '?', length);
        text += length ? length : 1;
    }
}

int cli_columns(const char *text) {
    int count = 0;
    for (; *text; text++) {
        count += (*text & 0xc0) != 0x80;
    }
    return count;
}

static void print_error(const char *command, const char *format, va_list args) {
    char line[2048];
    vsnprintf(line, sizeof line, format, args);
    cli_one_line(line);
    fprintf(stderr, "cenote%s%s: %s\n", *command ? " " : "", command, line);
}

static void print_warning(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void print_warning(const char *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_error(command, format, args);
    va_end(args);
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
    } else if (level == CEN_LOG_WARN && last->command) {
        print_warning(last->command, "warning: %s", message);
    }
}

cen_status cli_read(const char *command, const char *file, cen_snapshot **snapshot,
                    cen_read_error *error) {
    cli_last_error last = {.command = command};
    cen_log_set(cli_keep_error, &last, CEN_LOG_WARN);
    cen_status status = cen_snapshot_read(file, snapshot, error);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    return status;
}

const char *cli_base_name(const char *path, char name[CLI_NAME]) {
    const char *slash = strrchr(path, '/');
    snprintf(name, CLI_NAME, "%s",
             !strcmp(path, "-") ? "standard input"
             : slash            ? slash + 1
                                : path);
    cli_one_line(name);
    return name;
}

const char *cli_reason(const char *message) {
    const char *colon = strchr(message, ':');
    return colon && !strncmp(message, "cen_", 4) && colon[1] == ' ' ? colon + 2 : message;
}
