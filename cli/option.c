/* Options of the commands: "--name VALUE" and "--name=VALUE". */
#include <inttypes.h>
#include <string.h>

#include "cli/cmd.h"

static const uint64_t MIN_LIMIT = 1 << 20;

const char *cli_option_value(const char *name, int argc, char **argv, int *i) {
    size_t length = strlen(name);
    if (strncmp(argv[*i], name, length)) {
        return NULL;
    }
    if (argv[*i][length] == '=') {
        return argv[*i] + length + 1;
    }
    if (argv[*i][length]) {
        return NULL;
    }
    return *i + 1 < argc ? argv[++*i] : "";
}

bool cli_common_option(const char *word, bool *help, bool *json) {
    bool asks_help = !strcmp(word, "--help") || !strcmp(word, "-h");
    bool asks_json = json && !strcmp(word, "--json");
    *help = *help || asks_help;
    if (asks_json) {
        *json = true;
    }
    return asks_help || asks_json;
}

bool cli_end_of_options(const char *word, bool *plain) {
    bool end = !*plain && !strcmp(word, "--");
    *plain = *plain || end;
    return end;
}

bool cli_is_operand(const char *word, bool plain) {
    return plain || word[0] != '-' || !word[1];
}

bool cli_socket_option(const char *command, int argc, char **argv, int *i, const char **path,
                       int *status) {
    const char *value = cli_option_value("--socket", argc, argv, i);
    if (value) {
        *path = value;
        *status = *value ? CLI_OK : cli_usage_error(command, "--socket needs a path");
    }
    return value != NULL;
}

int cli_stray_word(const char *command, const char *word) {
    return word[0] == '-'
               ? cli_usage_error(command, "unknown option '%s'; --help lists them", word)
               : cli_usage_error(command, "'%s' is one word too many; --help says how it is called",
                                 word);
}

int cli_size_option(const char *command, const char *name, const char *value, uint64_t *bytes) {
    if (!*value) {
        return cli_usage_error(command, "%s needs a size, such as 27.94GiB", name);
    }
    if (!cli_parse_size(value, bytes) || !*bytes) {
        return cli_usage_error(command, "%s: '%s' is not a size such as 27.94GiB", name, value);
    }
    if (*bytes < MIN_LIMIT) { /* no device is as small: "12" was meant as more than 12 bytes */
        return cli_usage_error(command,
                               "%s: '%s' is only %" PRIu64 " bytes; give a unit, as in 27.94GiB",
                               name, value, *bytes);
    }
    return CLI_OK;
}
