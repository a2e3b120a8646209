/* The results file taken apart: every value that is read is checked, and the first that is off is
 * named by its place. Keys that are not known are left alone: a later probe may measure more. */
#include "probe/results.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The file's name, and where in it we are: "devices[0].levels[2]". */
typedef struct place {
    const char *name;
    char path[96];
} place;

static cen_status wrong(const place *at, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static cen_status wrong(const place *at, const char *key, const char *format, ...) {
    char why[256];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return ceni_fail(CEN_ERR_FORMAT, "%s: %s%s%s%s%s", at->name, at->path,
                     *at->path && *key ? "." : "", key, *at->path || *key ? ": " : "", why);
}

static const char *kind_of(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "text";
    case JSON_NULL:
        return "null";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    default:
        return "a number";
    }
}

static bool has_control(const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            return true;
        }
    }
    return false;
}

/* Text of 1 to size - 1 bytes. */
static cen_status read_text(const place *at, const json_t *object, const char *key, char *to,
                            size_t size) {
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return wrong(at, key, "missing; text is expected");
    }
    if (!json_is_string(value)) {
        return wrong(at, key, "text is expected, not %s", kind_of(value));
    }
    size_t length = json_string_length(value);
    if (!length || length >= size) {
        return wrong(at, key, "%zu bytes; text of 1 to %zu is expected", length, size - 1);
    }
    if (has_control(json_string_value(value))) {
        return wrong(at, key, "text without control characters is expected");
    }
    memcpy(to, json_string_value(value), length + 1);
    return CEN_OK;
}

/* A number over 0, if the key is there. */
static cen_status read_number(const place *at, const json_t *object, const char *key, double *to) {
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return CEN_OK;
    }
    if (!json_is_number(value)) {
        return wrong(at, key, "a number over 0 is expected, not %s", kind_of(value));
    }
    double number = json_number_value(value);
    if (!(number > 0) || !isfinite(number)) {
        return wrong(at, key, "%g; a number over 0 is expected", number);
    }
    *to = number;
    return CEN_OK;
}

/* A whole number from 1 to max, if the key is there. */
static cen_status read_whole(const place *at, const json_t *object, const char *key, json_int_t max,
                             uint64_t *to) {
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return CEN_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > max) {
        return wrong(at, key, "a whole number from 1 to %lld is expected", (long long)max);
    }
    *to = (uint64_t)json_integer_value(value);
    return CEN_OK;
}

/* The list of that key; *list NULL if it is not there and need not be. */
static cen_status read_list(const place *at, const json_t *object, const char *key, bool needed,
                            size_t max, const json_t **list) {
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return needed ? wrong(at, key, "missing; a list is expected") : CEN_OK;
    }
    if (!json_is_array(value)) {
        return wrong(at, key, "a list is expected, not %s", kind_of(value));
    }
    if (json_array_size(value) > max) {
        return wrong(at, key, "%zu entries; at most %zu are read", json_array_size(value), max);
    }
    *list = value;
    return CEN_OK;
}

/* [low, high], if the key is there. */
static cen_status read_spread(const place *at, const json_t *object, const char *key,
                              cen_probe_spread *to) {
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return CEN_OK;
    }
    const json_t *low = json_array_get(value, 0), *high = json_array_get(value, 1);
    double from = json_number_value(low), up_to = json_number_value(high);
    if (json_array_size(value) != 2 || !(from > 0) || !(up_to >= from) || !isfinite(up_to)) {
        return wrong(at, key, "a list of the lowest and the highest, both over 0, is expected");
    }
    *to = (cen_probe_spread){from, up_to};
    return CEN_OK;
}

/* Numbers over 0, each if its key is there. */
typedef struct number_key {
    const char *key;
    double *to;
} number_key;

static cen_status read_numbers(const place *at, const json_t *object, const number_key *keys,
                               size_t count) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        status = read_number(at, object, keys[i].key, keys[i].to);
    }
    return status;
}

static cen_status read_level(const place *at, const json_t *object, cen_probe_level *level) {
    const number_key numbers[] = {{"latency_ns", &level->latency_ns},
                                  {"bandwidth_gbps", &level->bandwidth_gbps},
                                  {"latency_cycles", &level->latency_cycles},
                                  {"peak_gbps", &level->peak_gbps},
                                  {"picojoules_per_byte", &level->picojoules_per_byte}};
    cen_status status = read_text(at, object, "level", level->level, sizeof level->level);
    if (!status) {
        status = read_whole(at, object, "capacity_bytes", INT64_MAX, &level->capacity_bytes);
    }
    if (!status) {
        status = read_whole(at, object, "unit_bytes", INT64_MAX, &level->unit_bytes);
    }
    if (!status) {
        status = read_numbers(at, object, numbers, sizeof numbers / sizeof *numbers);
    }
    if (!status) {
        status = read_spread(at, object, "latency_spread", &level->latency_spread);
    }
    if (!status) {
        status = read_spread(at, object, "bandwidth_spread", &level->bandwidth_spread);
    }
    if (!status && !level->capacity_bytes && level->latency_ns <= 0 && level->bandwidth_gbps <= 0) {
        status = wrong(at, "",
                       "none of capacity_bytes, latency_ns and bandwidth_gbps is there; what was "
                       "not measured belongs in skipped");
    }
    return status;
}

static cen_status read_skipped(const place *at, const json_t *object, cen_probe_skipped *skipped) {
    cen_status status = read_text(at, object, "level", skipped->level, sizeof skipped->level);
    return status ? status
                  : read_text(at, object, "reason", skipped->reason, sizeof skipped->reason);
}

static cen_status read_rate(const place *at, const json_t *object, cen_probe_rate *rate) {
    cen_status status = read_text(at, object, "dtype", rate->dtype, sizeof rate->dtype);
    if (!status) {
        status = read_number(at, object, "flops", &rate->flops);
    }
    return status || rate->flops > 0 ? status
                                     : wrong(at, "flops", "missing; a number over 0 is expected");
}

static cen_status read_transfer(const place *at, const json_t *object, cen_probe_transfer *t) {
    uint64_t threads = 0;
    cen_status status = read_text(at, object, "level", t->level, sizeof t->level);
    if (!status) {
        status = read_text(at, object, "access", t->access, sizeof t->access);
    }
    if (!status) {
        status = read_whole(at, object, "threads", UINT32_MAX, &threads);
    }
    if (!status) {
        status = read_whole(at, object, "bytes", INT64_MAX, &t->bytes);
    }
    if (!status) {
        status = read_number(at, object, "gbps", &t->gbps);
    }
    if (!status) {
        status = read_spread(at, object, "spread", &t->spread);
    }
    t->threads = (uint32_t)threads;
    if (status || (t->bytes && t->gbps > 0)) {
        return status;
    }
    return wrong(at, t->bytes ? "gbps" : "bytes", "missing; a number over 0 is expected");
}

static cen_status read_step(const place *at, const json_t *object, cen_probe_step *step) {
    cen_status status = read_whole(at, object, "bytes", INT64_MAX, &step->bytes);
    if (!status) {
        status = read_number(at, object, "ns", &step->ns);
    }
    if (!status) {
        status = read_spread(at, object, "spread", &step->spread);
    }
    if (status || (step->bytes && step->ns > 0)) {
        return status;
    }
    return wrong(at, step->bytes ? "ns" : "bytes", "missing; a number over 0 is expected");
}

/* What an entry of a list is read into, by kind of list. */
typedef union row {
    cen_probe_level level;
    cen_probe_skipped skipped;
    cen_probe_rate rate;
    cen_probe_transfer transfer;
    cen_probe_step step;
} row;

typedef enum rows { LEVELS, SKIPPED, RATES, TRANSFERS, STEPS } rows;
static const struct {
    const char *key;
    bool needed;
    bool named; /* rows begin with the name by which they are looked up: there is one each */
    size_t size;
} lists[] = {
    [LEVELS] = {"levels", true, true, sizeof(cen_probe_level)},
    [SKIPPED] = {"skipped", false, false, sizeof(cen_probe_skipped)},
    [RATES] = {"rates", false, true, sizeof(cen_probe_rate)},
    [TRANSFERS] = {"transfers", false, false, sizeof(cen_probe_transfer)},
    [STEPS] = {"steps", false, false, sizeof(cen_probe_step)},
};

static cen_status read_row(const place *at, rows kind, const json_t *object, row *made) {
    *made = (row){0};
    switch (kind) {
    case LEVELS:
        return read_level(at, object, &made->level);
    case SKIPPED:
        return read_skipped(at, object, &made->skipped);
    case RATES:
        return read_rate(at, object, &made->rate);
    case TRANSFERS:
        return read_transfer(at, object, &made->transfer);
    default:
        return read_step(at, object, &made->step);
    }
}

static cen_status check_alone(const place *at, rows kind, const char *before, size_t count,
                              const row *made) {
    for (size_t i = 0; i < count && lists[kind].named; i++) {
        if (!strcmp(before + i * lists[kind].size, (const char *)made)) {
            return wrong(at, "", "'%s' is there twice", (const char *)made);
        }
    }
    return CEN_OK;
}

/* Reads a list into memory of its own, which the caller frees on failure, too. */
static cen_status read_rows(const place *device, rows kind, const json_t *object, void **to,
                            size_t *count) {
    const json_t *list = NULL;
    cen_status status =
        read_list(device, object, lists[kind].key, lists[kind].needed, CENI_RESULTS_ROWS, &list);
    size_t n = list ? json_array_size(list) : 0, size = lists[kind].size;
    if (status || !n) {
        return status;
    }
    char *made = ceni_calloc(n, size);
    if (!made) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for it", device->name);
    }
    *to = made;
    for (size_t i = 0; i < n && !status; i++) {
        place at = {.name = device->name};
        row one;
        snprintf(at.path, sizeof at.path, "%.40s.%s[%zu]", device->path, lists[kind].key, i);
        const json_t *entry = json_array_get(list, i);
        if (!json_is_object(entry)) {
            return wrong(&at, "", "an object is expected, not %s", kind_of(entry));
        }
        status = read_row(&at, kind, entry, &one);
        if (!status) {
            status = check_alone(&at, kind, made, i, &one);
        }
        memcpy(made + i * size, &one, size);
    }
    *count = n;
    return status;
}

static cen_status read_device(const place *at, const json_t *object, cen_probe_device *device) {
    uint64_t multiprocessors = 0;
    void *levels = NULL, *skipped = NULL, *rates = NULL, *transfers = NULL, *steps = NULL;
    cen_status status = CEN_OK;
    if (!json_is_object(object)) {
        return wrong(at, "", "an object is expected, not %s", kind_of(object));
    }
    if (json_object_get(object, "name")) {
        status = read_text(at, object, "name", device->name, sizeof device->name);
    }
    if (!status) {
        status = read_whole(at, object, "multiprocessors", CENI_MULTIPROCESSORS, &multiprocessors);
    }
    if (!status) {
        status = read_rows(at, LEVELS, object, &levels, &device->level_count);
    }
    if (!status) {
        status = read_rows(at, SKIPPED, object, &skipped, &device->skipped_count);
    }
    if (!status) {
        status = read_whole(at, object, "page_bytes", INT64_MAX, &device->page_bytes);
    }
    if (!status) {
        status = read_rows(at, RATES, object, &rates, &device->rate_count);
    }
    if (!status) {
        status = read_rows(at, TRANSFERS, object, &transfers, &device->transfer_count);
    }
    if (!status) {
        status = read_rows(at, STEPS, object, &steps, &device->step_count);
    }
    device->multiprocessors = (uint32_t)multiprocessors;
    device->levels = levels;
    device->skipped = skipped;
    device->rates = rates;
    device->transfers = transfers;
    device->steps = steps;
    return status;
}

static cen_status read_root(const char *name, const json_t *root, cen_probe *probe) {
    place at = {.name = name};
    const json_t *list = NULL;
    if (!json_is_object(root)) {
        return wrong(&at, "", "the results of a probe are an object, not %s", kind_of(root));
    }
    cen_status status = read_list(&at, root, "devices", true, CENI_RESULTS_DEVICES, &list);
    if (!status && json_object_get(root, "date")) {
        status = read_text(&at, root, "date", probe->date, sizeof probe->date);
    }
    probe->quick = json_is_true(json_object_get(root, "quick"));
    size_t n = list ? json_array_size(list) : 0;
    if (status || !n) {
        return status;
    }
    probe->devices = ceni_calloc(n, sizeof *probe->devices);
    if (!probe->devices) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for it", name);
    }
    probe->device_count = n;
    for (size_t i = 0; i < n && !status; i++) {
        snprintf(at.path, sizeof at.path, "devices[%zu]", i);
        status = read_device(&at, json_array_get(list, i), &probe->devices[i]);
    }
    return status;
}

cen_status cen_probe_load_memory(const char *name, const void *data, size_t size,
                                 cen_probe **probe) {
    if (!name || (!data && size) || !probe) {
        return ceni_fail(CEN_ERR_INVALID, "cen_probe_load_memory: %s is NULL",
                         !name             ? "name"
                         : (!data && size) ? "data"
                                           : "probe");
    }
    json_error_t error;
    json_t *root = json_loadb(size ? data : "", size, JSON_REJECT_DUPLICATES, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for it", name);
    }
    if (!root) {
        return ceni_fail(CEN_ERR_FORMAT, "%s:%d:%d: no results of a probe: %s", name, error.line,
                         error.column, ceni_json_fault(&error));
    }
    cen_probe *made = ceni_calloc(1, sizeof *made);
    cen_status status = made ? read_root(name, root, made)
                             : ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for it", name);
    json_decref(root);
    if (status) {
        cen_probe_free(made);
        return status;
    }
    *probe = made;
    return CEN_OK;
}

void cen_probe_free(cen_probe *probe) {
    for (size_t i = 0; probe && i < probe->device_count; i++) {
        ceni_free((void *)probe->devices[i].levels);
        ceni_free((void *)probe->devices[i].skipped);
        ceni_free((void *)probe->devices[i].rates);
        ceni_free((void *)probe->devices[i].transfers);
        ceni_free((void *)probe->devices[i].steps);
    }
    if (probe) {
        ceni_free(probe->devices);
        ceni_free(probe);
    }
}
