/* The counters: which there are, which to ask for, and how their values are written. */
#include "probe/profile.h"

#include "base/log.h"
#include "base/str.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

const ceni_counter ceni_counters[] = {
#define CENI_COUNTER(term, name, worth, usual) {CENI_##term, name, worth, usual},
    CENI_TERM_MAP(CENI_COUNTER)
#undef CENI_COUNTER
};
const size_t ceni_counter_count = sizeof ceni_counters / sizeof *ceni_counters;

size_t ceni_counter_find(const char *name) {
    size_t i = 0;
    while (i < ceni_counter_count && strcmp(ceni_counters[i].name, name)) {
        i++;
    }
    return i;
}

const char *ceni_term_name(ceni_term term) {
    size_t i = 0;
    while (ceni_counters[i].term != term) {
        i++;
    }
    return ceni_counters[i].name;
}

/* ---- values ---- */

/* Digits, in groups of three if there is a comma among them, then a fraction and an exponent. */
static const char *skip_whole(const char *at) {
    const char *begin = at;
    while (isdigit((unsigned char)*at)) {
        at++;
    }
    if (at == begin || *at != ',' || at - begin > 3) {
        return at == begin ? NULL : at;
    }
    while (*at == ',') {
        if (!isdigit((unsigned char)at[1]) || !isdigit((unsigned char)at[2]) ||
            !isdigit((unsigned char)at[3])) {
            return NULL;
        }
        at += 4;
    }
    return at;
}

/* As strtod in the C locale: the program's may have another decimal point. */
static bool parse_number(const char *text, double *number) {
    const char *end = skip_whole(text);
    double value = 0;
    int exponent = 0;
    if (!end) {
        return false;
    }
    for (; text < end; text++) {
        value = *text == ',' ? value : value * 10 + (*text - '0');
    }
    if (*text == '.') {
        for (text++; isdigit((unsigned char)*text); text++) {
            if (value < 1e15) { /* beyond that a double has no digits for it */
                value = value * 10 + (*text - '0');
                exponent--;
            }
        }
    }
    if (*text == 'e' || *text == 'E') {
        bool minus = text[1] == '-';
        int given = 0;
        text += text[1] == '-' || text[1] == '+' ? 2 : 1;
        if (!isdigit((unsigned char)*text)) {
            return false;
        }
        for (; isdigit((unsigned char)*text); text++) {
            given = given < 1000 ? given * 10 + (*text - '0') : given;
        }
        exponent += minus ? -given : given;
    }
    *number = exponent < 0 ? value / pow(10, -exponent) : value * pow(10, exponent);
    return !*text;
}

/* What a unit of time or of bytes is worth; ncu names them in two ways. 0: it is none. No unit:
 * the recording has none, and is taken for one in base units. */
static double unit_worth(const char *unit, bool time) {
    static const struct {
        const char *name;
        double worth;
        bool time;
    } units[] = {
        {"", 1e-9, true},        {"ns", 1e-9, true}, {"nsecond", 1e-9, true}, {"us", 1e-6, true},
        {"usecond", 1e-6, true}, {"ms", 1e-3, true}, {"msecond", 1e-3, true}, {"s", 1, true},
        {"second", 1, true},     {"", 1, false},     {"byte", 1, false},      {"B", 1, false},
        {"Kbyte", 1e3, false},   {"KB", 1e3, false}, {"Mbyte", 1e6, false},   {"MB", 1e6, false},
        {"Gbyte", 1e9, false},   {"GB", 1e9, false}, {"Tbyte", 1e12, false},  {"TB", 1e12, false}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (units[i].time == time && !strcmp(unit, units[i].name)) {
            return units[i].worth;
        }
    }
    return 0;
}

static bool is_bytes(ceni_term term) {
    return term == CENI_DRAM_READ || term == CENI_DRAM_WRITE || term == CENI_L2_BYTES ||
           term == CENI_L1_BYTES;
}

/* More than any machine counts: sums of what is below stay finite. */
static const double MOST = 1e30;

/* In percent: peaks are measured, and a share may be a little over its own, but not ten times. */
static const double MOST_PERCENT = 1000;

static double most_of(const ceni_counter *c) {
    return strstr(c->name, "pct") ? MOST_PERCENT : MOST;
}

bool ceni_counter_parse(size_t counter, const char *value, const char *unit, double *number) {
    const ceni_counter *c = &ceni_counters[counter];
    double parsed, worth = c->worth;
    if (c->term == CENI_TIME || is_bytes(c->term)) {
        worth *= unit_worth(unit, c->term == CENI_TIME);
    }
    if (worth == 0 || !parse_number(value, &parsed) || !(parsed <= most_of(c))) {
        return false;
    }
    *number = parsed * worth;
    return true;
}

/* ---- what to ask for ---- */

/* The length of a counter's name without what is made of it: "dram__bytes_read" of ".sum". */
static size_t base_length(const char *name) {
    return strcspn(name, ".");
}

/* Without a suffix it is no counter of a unit: what belongs to a launch or to its instructions is
 * in other lists of ncu's, and always there. */
static bool is_always(const char *name) {
    return !strchr(name, '.');
}

/* Marks the counters whose name without suffix is the first word of a line. */
static bool mark(const char *offered, bool *there) {
    bool any = false;
    for (const char *line = offered; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *word = line + strspn(line, " \t\"");
        size_t length = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_");
        for (size_t i = 0; i < ceni_counter_count; i++) {
            const char *name = ceni_counters[i].name;
            if (length && length == base_length(name) && !memcmp(word, name, length)) {
                there[i] = any = true;
            }
        }
    }
    return any;
}

cen_status cen_profile_metrics(const char *offered, char **metrics) {
    bool there[sizeof ceni_counters / sizeof *ceni_counters] = {false};
    if (!metrics) {
        return ceni_fail(CEN_ERR_INVALID, "cen_profile_metrics: metrics is NULL");
    }
    bool known = offered && mark(offered, there);
    ceni_str list = {0};
    bool asked[CENI_TERMS] = {false};
    for (size_t i = 0; i < ceni_counter_count; i++) {
        const ceni_counter *c = &ceni_counters[i];
        if (!asked[c->term] && (is_always(c->name) || (known ? there[i] : c->usual))) {
            asked[c->term] = true;
            ceni_str_printf(&list, "%s%s", list.size ? "," : "", c->name);
        }
    }
    char *text = ceni_str_take(&list);
    if (!text) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_profile_metrics: no memory for the list");
    }
    *metrics = text;
    return CEN_OK;
}
