/* Numbers: as options' values, and as they are printed. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cmd.h"

int cli_whole_option(const char *command, const char *name, const char *value, uint64_t min,
                     uint64_t max, uint64_t *number) {
    char *end = NULL;
    errno = 0;
    /* Only digits: strtoull alone would take spaces and a sign. */
    unsigned long long parsed = isdigit((unsigned char)*value) ? strtoull(value, &end, 10) : 0;
    if (!end || *end || errno || parsed < min || parsed > max) {
        return cli_usage_error(command,
                               "%s needs a whole number from %" PRIu64 " to %" PRIu64 "%s%s%s",
                               name, min, max, *value ? ", not '" : "", value, *value ? "'" : "");
    }
    *number = parsed;
    return CLI_OK;
}

const char *cli_grouped(uint64_t n) {
    static char texts[4][32];
    static unsigned turn;
    char digits[24];
    char *out = texts[turn++ % 4], *at = out;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) {
            *at++ = ',';
        }
        *at++ = digits[i];
    }
    *at = 0;
    return out;
}
