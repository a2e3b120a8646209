/* What the commands on tensor files share. */
#include "cli/tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/json.h"

bool tensors_open(const char *command, const char *path, cen_tensors **tensors) {
    cli_last_error last = {.command = command};
    cen_log_set(cli_keep_error, &last, CEN_LOG_WARN);
    cen_status status = cen_tensors_open(path, tensors);
    status = status ? status : cen_quantized_check(*tensors);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    if (status) {
        cli_failed(command, "%s", cli_reason(last.text));
        cen_tensors_close(*tensors);
        *tensors = NULL;
    }
    return !status;
}

const char *tensors_text(const char *text) {
    static char texts[2][1024];
    static unsigned turn;
    char *made = texts[turn++ % 2];
    snprintf(made, sizeof texts[0], "%s", text);
    cli_one_line(made);
    return made;
}

const char *tensors_shape(const uint64_t *shape, uint32_t rank) {
    static char texts[2][256];
    static unsigned turn;
    char *made = texts[turn++ % 2];
    size_t at = 1;
    made[0] = '[';
    for (uint32_t i = 0; i < rank; i++) {
        if (at + 32 > sizeof texts[0]) {
            at += (size_t)snprintf(made + at, sizeof texts[0] - at, ", ...");
            break;
        }
        at += (size_t)snprintf(made + at, sizeof texts[0] - at, "%s%" PRIu64, i ? ", " : "",
                               shape[i]);
    }
    snprintf(made + at, sizeof texts[0] - at, "]");
    return made;
}

json_t *tensors_shape_json(const uint64_t *shape, uint32_t rank) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < rank; i++) {
        cli_json_append(&list, json_integer((json_int_t)shape[i]));
    }
    return list;
}

json_t *tensors_real(double value) {
    if (isinf(value)) {
        return json_string(value > 0 ? "inf" : "-inf");
    }
    return isnan(value) ? json_null() : json_real(value);
}

void tensors_put(const char *text, int width) {
    int have = cli_columns(text);
    printf("%s%*s", text, have < width ? width - have : 0, "");
}
