/* Options of the commands: "--name VALUE" and "--name=VALUE". */
#include <string.h>

#include "cli/cmd.h"

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

int cli_size_option(const char *command, const char *name, const char *value, uint64_t *bytes) {
    if (!*value) {
        return cli_usage_error(command, "%s needs a size, such as 27.94GiB", name);
    }
    if (!cli_parse_size(value, bytes) || !*bytes) {
        return cli_usage_error(command, "%s: '%s' is not a size such as 27.94GiB", name, value);
    }
    return CLI_OK;
}
