/* The commands of `cenote`: one table drives dispatch, help and shell completion; a file each. */
#ifndef CENOTE_CLI_CMD_H
#define CENOTE_CLI_CMD_H

#include <stdbool.h>
#include <stdint.h>

#include "cenote/log.h"
#include "cenote/snapshot.h"

typedef struct cli_command {
    const char *name;
    const char *args;                  /* "FILE [--cap SIZE] [--json]" */
    const char *summary;               /* one line */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */
} cli_command;

extern const cli_command cli_commands[]; /* ends with a NULL name */

/* Exit statuses: 0 done, 1 it failed (one line on stderr says why), 2 the call's words are off. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Prints "cenote NAME: message" to stderr and returns CLI_USAGE or CLI_FAILED. */
int cli_usage_error(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int cli_failed(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes a file, which then takes the place of what was there; on failure that stays. A link stays
 * one; a device or a pipe is written to. Returns the exit status; one line on stderr says what
 * failed. */
int cli_write_file(const char *command, const char *path, const char *text, size_t size);

/* The library's last error, for the one line that says why a command failed: pass cli_keep_error to
 * cen_log_set with one of these. */
typedef struct cli_last_error {
    char text[1024];
    const char *command; /* warnings are printed as this command's; NULL: they are not */
} cli_last_error;
void cli_keep_error(void *arg, cen_log_level level, const char *message);

/* Reads a recording. What the reader warns of, such as a missing end, is printed to stderr. */
cen_status cli_read(const char *command, const char *file, cen_snapshot **snapshot,
                    cen_read_error *error);

/* What an output calls a file: "standard input" for "-", else the last part of its path, with '?'
 * for control characters, which would act on a terminal. `name` holds it, and is returned. */
#define CLI_NAME 256
const char *cli_base_name(const char *path, char name[CLI_NAME]);

/* Replaces by '?' what would act on a terminal or hide, as in a file's name: controls, separators
 * of lines, changes of direction, what has no width. */
void cli_one_line(char *text);

/* Characters, not bytes, of UTF-8. */
int cli_columns(const char *text);

/* Parses a size such as "27.94GiB", "512M", "8e9" (K, M, G, T and KiB ... are powers of 1024; KB,
 * MB, GB, TB of 1000). False if malformed, negative or over 2^63. */
bool cli_parse_size(const char *text, uint64_t *bytes);

/* The value of an option given as "--name VALUE" or "--name=VALUE" at argv[*i], which moves on past
 * the value; "" if it is missing; NULL: another argument. */
const char *cli_option_value(const char *name, int argc, char **argv, int *i);

/* Whether a word is --help, -h or, if `json` is not NULL, --json, which is noted. */
bool cli_common_option(const char *word, bool *help, bool *json);

/* Whether a word is the "--" behind which all words are operands, which is noted in *plain. */
bool cli_end_of_options(const char *word, bool *plain);

/* Whether a word is an operand: no option, or behind "--". A lone "-" is one. */
bool cli_is_operand(const char *word, bool plain);

/* Whether argv[*i] is --socket PATH, the broker's, which is noted. *status: the exit status so far.
 */
bool cli_socket_option(const char *command, int argc, char **argv, int *i, const char **path,
                       int *status);

/* The usage error of a word that is no option that the command has, or one too many. */
int cli_stray_word(const char *command, const char *word);

/* The value of an option that is a size over 0; else a usage error. */
int cli_size_option(const char *command, const char *name, const char *value, uint64_t *bytes);

/* The value of an option that is a whole number from `min` to `max`; else a usage error. */
int cli_whole_option(const char *command, const char *name, const char *value, uint64_t min,
                     uint64_t max, uint64_t *number);

/* The value of an option that is a number from 0 up, with K, M, G, T, P or E (powers of 1000); else
 * a usage error that says what it counts, and gives an example. */
int cli_amount_option(const char *command, const char *name, const char *value, const char *what,
                      const char *such, double *amount);

/* "673.2 T", to be followed by a unit, and "203.6 us"; eight texts are in use at a time at most. */
const char *cli_si(double n);
const char *cli_time(double seconds);

/* "12.0 MiB": three digits. `text` holds it, and is returned. */
#define CLI_SIZE 32
const char *cli_size_text(char text[CLI_SIZE], uint64_t bytes);

/* 1,234,567; four texts are in use at a time at most. */
const char *cli_grouped(uint64_t n);

/* A message of the library's without the name of the call that it begins with. */
const char *cli_reason(const char *message);

int cmd_explain(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_holders(int argc, char **argv);
int cmd_revoke(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_banks(int argc, char **argv);
int cmd_probe(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_roofline(int argc, char **argv);
int cmd_tile(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_help(int argc, char **argv);

#endif
