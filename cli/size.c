#include "cli/cmd.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

/* K, M, G, T alone and KiB ... are powers of 1024; KB ... of 1000. */
static bool unit_of(const char *text, double *unit) {
    static const char letters[] = "kmgt";
    *unit = 1;
    if (!*text || !strcasecmp(text, "b")) {
        return true;
    }
    for (size_t i = 0; letters[i]; i++) {
        if (tolower((unsigned char)text[0]) != letters[i]) {
            continue;
        }
        bool decimal = !strcasecmp(text + 1, "b");
        if (!decimal && text[1] && strcasecmp(text + 1, "ib")) {
            return false;
        }
        for (size_t power = 0; power <= i; power++) {
            *unit *= decimal ? 1000 : 1024;
        }
        return true;
    }
    return false;
}

bool cli_parse_size(const char *text, uint64_t *bytes) {
    /* Only plain decimals: strtod alone would take "inf", "nan", "0x1" and leading spaces. */
    if (!isdigit((unsigned char)*text) && *text != '.') {
        return false;
    }
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        return false;
    }
    char *end;
    double value = strtod(text, &end), unit;
    while (*end == ' ') {
        end++;
    }
    if (end == text || !unit_of(end, &unit) || !(value * unit <= 0x1p63)) {
        return false;
    }
    *bytes = (uint64_t)(value * unit);
    return true;
}
