#include "cli/json.h"

#include "cli/cmd.h"

json_t *cli_json_count(double n) {
    return n < 0x1p53 ? json_integer((json_int_t)n) : json_real(n);
}

json_t *cli_json_known(double n) {
    return n > 0 ? json_real(n) : json_null();
}

void cli_json_append(json_t **array, json_t *value) {
    if (*array && (!value || json_array_append(*array, value))) {
        json_decref(*array);
        *array = NULL;
    }
    json_decref(value);
}

int cli_json_print(const char *command, json_t *root) {
    return cli_json_print_to(stdout, command, root);
}

int cli_json_print_to(FILE *out, const char *command, json_t *root) {
    int status = CLI_OK;
    if (!root || json_dumpf(root, out, JSON_COMPACT | JSON_REAL_PRECISION(9))) {
        status = cli_failed(command, "the JSON could not be written");
    } else {
        putc('\n', out);
    }
    json_decref(root);
    return status;
}
