/* Numbers: as options' values, and as they are printed. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
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

const char *cli_size_text(char text[CLI_SIZE], uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    int digits = !unit || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    snprintf(text, CLI_SIZE, "%.*f %s", digits, value, units[unit]);
    return text;
}

/* K, M, G, T, P and E are powers of 1000. */
static bool parse_amount(const char *text, double *amount) {
    static const char letters[] = "kmgtpe";
    if (!isdigit((unsigned char)*text) ||
        (text[0] == '0' && tolower((unsigned char)text[1]) == 'x')) {
        return false;
    }
    char *end;
    double value = strtod(text, &end), unit = 1;
    for (size_t i = 0; *end && letters[i]; i++) {
        unit *= 1000;
        if (tolower((unsigned char)*end) == letters[i]) {
            value *= unit;
            end++;
            break;
        }
    }
    *amount = value;
    return !*end && isfinite(value);
}

int cli_amount_option(const char *command, const char *name, const char *value, const char *what,
                      const char *such, double *amount) {
    if (parse_amount(value, amount)) {
        return CLI_OK;
    }
    return cli_usage_error(command, "%s needs a number of %s, such as %s%s%s%s", name, what, such,
                           *value ? ", not '" : "", value, *value ? "'" : "");
}

/* Texts that are in use at a time: a line's. */
static char *next_text(void) {
    static char texts[8][40];
    static unsigned turn;
    return texts[turn++ % 8];
}

const char *cli_si(double n) {
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    char *text = next_text();
    size_t i = 0;
    while (n >= 999.95 && i + 1 < sizeof units / sizeof *units) {
        n /= 1000;
        i++;
    }
    snprintf(text, 40, "%.4g %s", n, units[i]);
    return text;
}

const char *cli_time(double seconds) {
    char *text = next_text();
    bool ns = seconds < 1e-6, us = seconds < 1e-3, ms = seconds < 1;
    snprintf(text, 40, "%.4g %s",
             seconds * (ns   ? 1e9
                        : us ? 1e6
                        : ms ? 1e3
                             : 1),
             ns   ? "ns"
             : us ? "us"
             : ms ? "ms"
                  : "s");
    return text;
}
